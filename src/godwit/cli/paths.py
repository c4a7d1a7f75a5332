"""The commands ``bfs`` and ``sssp``, which differ in the function that they call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import ahead
from godwit.cli.facts import Facts, graph_facts, partition_facts, plain, smallest
from godwit.cli.inputs import check_method, parse_distance, parse_partition, parse_vertex
from godwit.cli.options import (
    DEVICES,
    RESULT,
    TUNING,
    ExecutionOption,
    GraphArgument,
    Option,
    ReadingOptions,
    ResultOptions,
    RunOptions,
    with_options,
)
from godwit.cli.query import GraphQuery
from godwit.cli.report import (
    Report,
    closing_rows,
    graph_line,
    integer,
    number,
    outcome_rows,
    partition_line,
)
from godwit.config import launched_processes

if TYPE_CHECKING:
    from godwit.algorithms.paths.result import PathResult
    from godwit.cli.outputs import Output
    from godwit.cli.progress import Display
    from godwit.distributed.graph import DistributedGraph
    from godwit.distributed.processes import Processes
    from godwit.graph.interchange.tables import Column

BFS_EXAMPLES = """
godwit bfs web.mtx.gz --source 1 --output distances.parquet
godwit bfs rmat:20,edge_factor=8 --source max-degree --verify
godwit bfs rmat:20 -s max-degree --devices cuda:0,cuda:1 --execution bulk-synchronous
godwit bfs soc.mtx --undirected -s 1 -s 17 --cutoff 3 --output - | sort -t, -k2n | head
"""
SSSP_EXAMPLES = """
godwit sssp USA-road-d.NY.gr.xz --source 1 --output distances.npy
godwit sssp roads.gr --source 1 --target 9000
godwit sssp road:1000x1000,weights=1..64 -s max-degree --devices cuda --partition metis
godwit sssp road:1000x1000,weights=1..64 -s max-degree --devices cpu:0,cpu:1 --verify
godwit sssp rmat:20,weights=1..64 -s max-degree --devices 2 --execution bulk-synchronous
godwit sssp roads.gr --source 1 --trace run.json     (open it at ui.perfetto.dev)
godwit sssp roads.gr --source 1 --json | jq .mteps
"""
_MAX_NAMES = 8


@dataclass
class _PathsQuery(GraphQuery):
    sources: list[str]
    target: str | None
    predecessors: bool
    placement: dict[str, Any]
    arguments: dict[str, Any]
    _partition: Facts | None = None

    def run(self, display: Display) -> PathResult:
        import godwit as gw

        graph = self.load(display)
        sources = [parse_vertex(text, graph, "source") for text in self.sources]
        self._target = None if self.target is None else parse_vertex(self.target, graph, "target")
        with display.waiting("partitioning"):
            placed = gw.place(graph, **self.placement)
        with placed:
            with_predecessors = self.predecessors or self.options.verify
            waited_s = 0.0
            if placed.context.devices[0].shares_memory:
                with display.waiting("compiling (once)"):
                    waited_s = ahead.wait(graph, predecessors=with_predecessors)
            with display.bar(f"running {self.command}") as progress:
                result: PathResult = getattr(gw, self.command)(
                    placed, sources, target=self._target, progress=progress, **self.arguments
                )
                seconds = result.statistics.seconds
                if waited_s > 0:
                    seconds["compile"] = waited_s + seconds.get("compile", 0.0)
                if with_predecessors:
                    _ = result.predecessor
            if self.options.json or self.options.verbose:  # counting cut arcs takes a pass over all
                self._partition = partition_facts(placed.partition)
            self._place_s = dict(placed.seconds)
        return result

    def verify(self, result: PathResult) -> str:
        from godwit.algorithms.paths.verify import verify_bfs, verify_sssp

        cutoff = self.arguments["cutoff"]
        if self._target is not None:  # vertices beyond the target are not reached
            distance = result.distance[result.graph.ids.position(self._target)].item()
            if distance != result.unreached:
                cutoff = distance if cutoff is None else min(cutoff, distance)
        check = {"bfs": verify_bfs, "sssp": verify_sssp}[self.command]
        check(result.graph, result.sources, result.distance, result.predecessor, cutoff=cutoff)
        return "every distance and predecessor is right"

    def write(self, output: Output, result: PathResult) -> None:
        columns = result.columns if self.predecessors else result._shown_columns()
        output.write(columns, result.graph.ids.in_file)

    def facts(self, result: PathResult, outcome: Facts) -> Facts:
        return {
            "graph": graph_facts(self.graph, self.input),
            **_distance_facts(result),
            **({} if self._target is None else {"target": _target_facts(result, self._target)}),
            **outcome,
            "partition": self._partition,
            "statistics": self.statistics(result, **self._place_s),
        }

    def show(self, report: Report, facts: Facts) -> None:
        report.facts([*_answer_rows(facts), *outcome_rows(facts)])
        for which in ("nearest", "farthest") if facts["output"] is None else ():
            rows = [[str(row["vertex"]), number(row["distance"])] for row in facts[which]]
            if rows:
                header = ["vertex", "distance"]
                report.table(header, rows, title=f"The {which} vertices", text_columns=0)
        statistics, verbose = facts["statistics"], self.options.verbose
        rows_below = closing_rows(facts, graph_line(facts["graph"]), verbose=verbose)
        report.facts([*rows_below, *(_run_rows(facts) if verbose else [])])
        if not verbose:
            return
        _print_seconds(report, statistics["seconds"])
        _print_work(report, statistics)
        if len(statistics["devices"]) > 1:
            title = "Items sent per link"
            if statistics["sent_bytes"] is not None:
                from godwit.config import readable_bytes

                total = readable_bytes(sum(map(sum, statistics["sent_bytes"])))
                title += f", of {statistics['item_bytes']} bytes: {total} in all"
            report.matrix(title, statistics["devices"], statistics["sent_items"])


def _distance_facts(result: PathResult) -> Facts:
    """Return counts, MTEPS, and the nearest and the farthest few vertices."""
    import numpy as np

    graph = result.graph
    reached = result.reached
    traversed = int(graph.out_degree()[reached].sum())
    run_s = result.statistics.run_s
    vertices = np.flatnonzero(reached)
    distance = result.distance[vertices]
    is_other = ~np.isin(vertices, result._sources)
    ids = graph.ids.in_file

    def rows(order: list[int], vertices: Any) -> list[Facts]:
        return [
            {"vertex": ids[vertices[i]], "distance": plain(result.distance[vertices[i]])}
            for i in order
        ]

    return {
        "sources": ids.of(result._sources),
        "reached_vertices": len(vertices),
        "largest_distance": plain(distance.max()) if len(distance) else None,
        "traversed_arcs": traversed,
        "mteps": traversed / run_s / 1e6 if run_s > 0 else None,
        "nearest": rows(smallest(distance[is_other]), vertices[is_other]),
        "farthest": rows(smallest(-distance), vertices),
    }


def _target_facts(result: PathResult, target: Any) -> Facts:
    """Return the target's distance and path, or None for both.

    :param target: an id
    """
    ids, file_ids = result.graph.ids, result.graph.ids.in_file
    position = ids.position(target)
    distance = result.distance[position]
    if distance == result.unreached:
        return {"vertex": file_ids[position], "distance": None, "path": None}
    path = file_ids.of(ids.positions(result.path_to(target)))
    return {"vertex": file_ids[position], "distance": plain(distance), "path": path}


def _answer_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return what was found: how many vertices were reached, and the path to the target."""
    farthest = ""
    if facts["largest_distance"] is not None:
        farthest = f", the farthest at distance {number(facts['largest_distance'])}"
    reached = integer(facts["reached_vertices"])
    sources = _shortened(facts["sources"], ", ")
    everything = f"{reached} of {integer(facts['graph']['vertices'])} vertices from {sources}"
    rows = [("reached", f"{everything}{farthest}")]
    if (target := facts.get("target")) is not None:
        text = f"{target['vertex']} was not reached"
        if target["path"] is not None:
            text = (
                f"{target['vertex']} at distance {number(target['distance'])}, "
                f"{integer(len(target['path']) - 1)} arcs: {' > '.join(map(str, target['path']))}"
            )
        rows.insert(0, ("target", text))
    return rows


def _run_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return how the run went."""
    rate = "0" if facts["mteps"] is None else f"{facts['mteps']:,.4g}"
    return [
        ("partition", partition_line(facts["partition"])),
        (
            "rate",
            f"{rate} MTEPS: {integer(facts['traversed_arcs'])} arcs leave the "
            f"reached vertices, run in {facts['statistics']['run_s']:.4f} s",
        ),
    ]


def _shortened(names: Sequence[Any], separator: str) -> str:
    if len(names) > _MAX_NAMES:
        names = [*names[: _MAX_NAMES - 2], "...", names[-1]]
    return separator.join(map(str, names))


def _print_seconds(report: Report, seconds: dict[str, float]) -> None:
    total = sum(seconds.values())
    rows = [
        [phase, f"{phase_s:,.4f}", f"{phase_s / total:.1%}" if total > 0 else ""]
        for phase, phase_s in seconds.items()
    ]
    report.table(
        ["phase", "seconds", "share"],
        rows,
        title="Time by phase",
        total=["total", f"{total:,.4f}", ""],
    )


def _print_work(report: Report, statistics: Facts) -> None:
    names = {
        "processed_items": "processed",
        "useless_items": "useless",
        "arcs_relaxed": "arcs relaxed",
        "filtered_items": "filtered",
        "received_items": "received",
        "threshold_changes": "threshold changes",
    }
    several = len(statistics["devices"]) > 1
    if not several:
        del names["received_items"]
    header = ["device", *names.values()]
    rows = [
        [device, *(integer(statistics[name][i]) for name in names)]
        for i, device in enumerate(statistics["devices"])
    ]
    total = ["total", *(integer(sum(statistics[name])) for name in names)] if several else None
    if statistics["busy_share"] is not None:
        header.append("busy")
        for row, share in zip(rows, statistics["busy_share"], strict=True):
            row.append(f"{share:.1%}")
        if total is not None:
            total.append("")
    report.table(header, rows, title="Work-items", total=total)


def _on_processes(
    command: str, graph: str, options: ResultOptions, reading: ReadingOptions, sources: list[str],
    target: str | None, cutoff: str | None, predecessors: bool, timeout_s: float | None,
    given: dict[str, Any], devices: str | None,
) -> None:  # fmt: skip
    """Search on the processes that ``mpiexec`` has started.

    :param given: options that one process alone takes; None if not given
    """
    from godwit.cli.processes import (
        ProcessesQuery,
        describe_paths,
        describe_target,
        parse_placed_vertex,
    )

    def call(graph: DistributedGraph, progress: Any) -> Any:
        import godwit as gw

        with graph.processes.running("cutoff", cutoff):
            limit = parse_distance(cutoff, "cutoff")
        return getattr(gw, command)(
            graph, [parse_placed_vertex(text, graph, "source") for text in sources],
            target=None if target is None else parse_placed_vertex(target, graph, "target"),
            cutoff=limit, predecessors=predecessors or target is not None,
            timeout_s=timeout_s, progress=progress,
        )  # fmt: skip

    def describe(processes: Processes, graph: DistributedGraph, result: Any) -> Facts:
        facts = describe_paths(processes, graph, result)
        if target is not None:
            named = parse_placed_vertex(target, graph, "target")
            facts["target"] = describe_target(graph, result, named)
        return facts

    def columns(result: Any) -> list[Column]:
        written: list[Column] = result.columns if predecessors else result._shown_columns()
        return written

    ProcessesQuery(
        command, graph, options, reading, call, describe, _answer_rows, given, columns, devices
    ).answer()


@with_options
def paths(
    context: typer.Context,
    graph: GraphArgument,
    options: ResultOptions,
    run: RunOptions,
    reading: ReadingOptions,
    source: Annotated[list[str], Option("-s", "ID")],
    target: Annotated[str | None, Option("-t", "ID")] = None,
    cutoff: Annotated[str | None, Option(metavar="DISTANCE")] = None,
    predecessors: Annotated[bool, Option(panel=RESULT)] = False,
    partition: Annotated[str | None, Option(metavar="METHOD|FILE", panel=DEVICES)] = None,
    seed: Annotated[int, Option(panel=DEVICES)] = 0,
    execution: ExecutionOption = None,
    delta: Annotated[float | None, Option(panel=TUNING)] = None,
    window: Annotated[int | None, Option(panel=TUNING)] = None,
    ring_items: Annotated[int | None, Option(panel=TUNING)] = None,
) -> None:
    """MTEPS are millions of arcs that leave reached vertices, per second of the phases run and kernel: each
    arc counts once, however often it was relaxed; reading, partitioning and placing do not count.

    Files: .npy holds the distances in the order of the vertices; a vertex that was not reached has the
    largest value of the dtype, or infinity. With --predecessors its records have two fields, distance and
    predecessor; there, vertices count from 0, and -1 is none. .csv and .parquet have columns vertex,
    numbered as in the file of the graph, distance and predecessor; without a path they are empty or null.

    :param source: Vertex to begin at: an id of the file, or max-degree for the vertex with most arcs. Given
        several times: distances from the nearest.
    :param target: Stop when the distance of this vertex is known, and show the path; vertices farther away
        are not reached.
    :param cutoff: Vertices farther away are not reached.
    :param predecessors: Write the vertex before each on a shortest path as well.
    :param partition: contiguous (the default), random, biased-random, metis, or a .npy file with the index
        of the device that owns each vertex.
    :param seed: Seed of the partitioners random and biased-random.
    :param delta: Width of a priority bucket; by default chosen from weights and degrees.
    :param window: Number of buckets that a device may run ahead of the others.
    :param ring_items: Number of slots of each mailbox.
    """
    command = str(context.command.name)
    if launched_processes() > 1:
        given = {
            "--partition": partition, "--seed": seed or None,
            "--execution": execution, "--delta": delta, "--window": window, "--ring-items": ring_items,
        }  # fmt: skip
        _on_processes(
            command,
            graph,
            options,
            reading,
            source,
            target,
            cutoff,
            predecessors,
            run.timeout_s,
            given,
            run.devices,
        )
        return
    # These import the large libraries.
    from godwit.algorithms.paths.result import check_cutoff
    from godwit.worker.options import WorkerOptions, as_execution

    where = run.arguments
    arguments = {
        "cutoff": parse_distance(cutoff, "cutoff"),
        "execution": as_execution("auto" if execution is None else execution),
        "timeout_s": where["timeout_s"],
        "worker": WorkerOptions(delta, 1 if window is None else window, ring_items),
    }
    placement = {
        "devices": where["devices"],
        "partition": parse_partition(partition),
        "seed": seed,
    }
    check_cutoff(arguments["cutoff"])  # before a large file is read
    check_method(placement["partition"])
    _PathsQuery(
        command,
        graph,
        options,
        reading,
        source,
        target,
        predecessors,
        placement,
        arguments,
    ).answer()
