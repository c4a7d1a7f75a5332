"""Commands that ``mpiexec`` has started several times: all processes compute, and the first one answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from godwit.cli.facts import Facts, plain
from godwit.cli.failures import BAD_INPUT, INTERRUPTED
from godwit.cli.inputs import MAX_DEGREE, file_of
from godwit.cli.options import ReadingOptions, ResultOptions
from godwit.cli.progress import Display
from godwit.cli.report import (
    Report,
    closing_rows,
    graph_line,
    integer,
    outcome_rows,
    present,
)
from godwit.config import launched_processes
from godwit.errors import GodwitError, InputError
from godwit.graph.generators.spec import is_spec, plain_integer

if TYPE_CHECKING:
    from godwit.distributed.gpu_graph import GpuGraph
    from godwit.distributed.graph import DistributedGraph
    from godwit.distributed.processes import Processes
    from godwit.graph.interchange.tables import Column

COMMANDS = ("bfs", "sssp", "pagerank", "components", "betweenness")
"""Commands that run on several processes."""


def check_launch(command: str | None) -> None:
    """Raise InputError if several processes run a command that one alone can run."""
    count = launched_processes()
    if count > 1 and command is not None and command not in COMMANDS:
        raise InputError(
            f"mpiexec started {count} processes, and godwit {command} runs in one: start it without "
            f"mpiexec ({', '.join(COMMANDS)} run in several)"
        )


def uses_gpus(devices: str | None) -> bool:
    """Return True if ``--devices`` asks several processes for a GPU each."""
    return devices not in (None, "cpu")


def run_alone(function: Callable[[], Any]) -> Any:
    """Run a command; of several processes, only the first prints errors that all have agreed on."""
    try:
        return function()
    except (GodwitError, KeyboardInterrupt) as error:
        from godwit.distributed.processes import is_reported_elsewhere

        if is_reported_elsewhere(error):
            sys.exit(BAD_INPUT if isinstance(error, GodwitError) else INTERRUPTED)
        raise


@dataclass
class ProcessesQuery:
    """One run of a command on several processes.

    :param call: computes the result; its second argument is a bar, or None
    :param describe: returns the entries of ``--json`` about the result, the same in all processes
    :param answer_rows: returns labels and texts of the report's lines about these entries
    :param given: values of options that one process alone takes, by name; None if not given
    :param columns: returns the columns of a whole result that are written; None: all
    :param devices: as given for ``--devices``; None, or ``cpu``: the cores of each process
    """

    command: str
    input: str
    options: ResultOptions
    reading: ReadingOptions
    call: Callable[[Any, Any], Any]
    describe: Callable[[Processes, Any, Any], Facts]
    answer_rows: Callable[[Facts], list[tuple[str, str]]]
    given: Mapping[str, Any]
    columns: Callable[[Any], list[Column]] | None = None
    devices: str | None = None

    def answer(self) -> Any:
        """Read, run, write and report; return the result."""
        return run_alone(self._answer)

    def _answer(self) -> Any:
        from godwit.cli.outputs import Output
        from godwit.distributed.processes import context

        options = self.options
        processes = context()
        is_first = processes.rank == 0
        with processes.running("output", options.output):
            self._check(processes)
            output = Output(options.output, self.input, options.json) if is_first else None
        display = Display(quiet=options.quiet or not is_first)
        with display.waiting(f"reading {self.input}"):
            source = self.input if is_spec(self.input) else file_of(self.input)
            directed = self.reading.directed
            placed: DistributedGraph | GpuGraph
            if uses_gpus(self.devices):
                placed = processes.place(source, directed=directed, devices=str(self.devices))
            else:
                placed = processes.place(source, directed=directed)
        with placed as graph:
            with display.bar(f"running {self.command}") as progress:
                result = self.call(graph, progress)
            if options.output is not None:
                with display.waiting("writing"), processes.running("write", options.output):
                    whole = result.gather()
                    if output is not None:
                        columns = whole.columns if self.columns is None else self.columns(whole)
                        output.write(columns, whole.ids.in_file)
            with processes.running("describe", self.command):
                facts = self._facts(processes, graph, result)
        if is_first:
            present(facts, options, lambda report: self._show(report, facts), output)
        return result

    def _check(self, processes: Processes) -> None:
        """Raise InputError for options that several processes do not take."""
        options = self.options
        names = [
            f"--{name}" for name in ("verify", "plot", "trace") if getattr(options, name, None)
        ]
        names += [name for name in self.reading.names if name not in ("--directed", "--undirected")]
        names += [name for name, value in self.given.items() if value is not None]
        if self.command == "pagerank" and self.reading.directed is False:
            names.append("--undirected")
        if names:
            raise InputError(
                f"{processes.count} processes do not take {' or '.join(names)}: leave it out, or start one "
                "process without mpiexec"
            )
        if self.reading.directed is not None and is_spec(self.input):
            raise InputError(
                f"--directed and --undirected are for files; {self.input} is generated"
            )

    def _facts(
        self, processes: Processes, graph: DistributedGraph | GpuGraph, result: Any
    ) -> Facts:
        from godwit.distributed.gpu_graph import GpuGraph

        statistics = result.statistics.to_dict()
        statistics["seconds"] = {**graph.seconds, **statistics["seconds"]}
        weights = graph.graph.weights if isinstance(graph, GpuGraph) else graph.rows.weights
        bounds = processes.share(
            (weights.min(), weights.max()) if weights is not None and len(weights) else None
        )
        known = [pair for pair in bounds if pair is not None]
        return {
            "command": self.command,
            "graph": {
                "name": self.input,
                "vertices": graph.vertex_count,
                "arcs": graph.arc_count,
                "directed": graph.directed,
                "weights": None if weights is None else weights.dtype.name,
                "min_weight": plain(min(low for low, _ in known)) if known else None,
                "max_weight": plain(max(high for _, high in known)) if known else None,
            },
            **self.describe(processes, graph, result),
            "output": self.options.output,
            "statistics": statistics,
        }

    def _show(self, report: Report, facts: Facts) -> None:
        statistics = facts["statistics"]
        sent = sum(map(sum, statistics["message_bytes"]))
        rows = closing_rows(
            {
                **facts,
                "statistics": {**statistics, "devices": [f"{statistics['processes']} processes"]},
            },
            graph_line(facts["graph"]),
            verbose=self.options.verbose,
        )
        text = f"{integer(statistics['supersteps'])} supersteps, {integer(sent)} bytes between processes"
        report.facts([*self.answer_rows(facts), *outcome_rows(facts), *rows, ("exchange", text)])


def parse_placed_vertex(text: str, graph: DistributedGraph | GpuGraph, what: str) -> Any:
    """Return the vertex id for an id in the file or ``max-degree``; all processes call it.

    :param what: the name of the argument in messages
    """
    with graph.processes.running(what, text):
        if text == MAX_DEGREE:
            return graph.highest_degree_vertex()
        if graph.ids.kind not in ("consecutive", "integer"):
            return text
        file_id = plain_integer(text)
        if file_id is None:
            raise InputError(f"{what} must be the id of a vertex or {MAX_DEGREE}, got {text!r}")
        return file_id - (0 if graph.ids.own else graph.ids.base)


def describe_paths(processes: Processes, graph: DistributedGraph | GpuGraph, result: Any) -> Facts:
    """Return how many vertices were reached, and the largest distance."""
    import numpy as np

    reached = result.distance[result.reached]
    largest = reached.max().item() if len(reached) else None
    parts = processes.share((len(reached), largest))
    distances = [distance for _, distance in parts if distance is not None]
    return {
        "sources": graph.ids_of(np.array(result.source_positions, np.int64)).tolist(),
        "reached_vertices": sum(count for count, _ in parts),
        "largest_distance": plain(max(distances)) if distances else None,
    }


def describe_target(graph: DistributedGraph | GpuGraph, result: Any, target: Any) -> Facts:
    """Return the target's distance and path, or None for both; all processes call it.

    :param target: an id
    """
    import numpy as np

    position = int(graph.positions([target], "target")[0])
    (name,) = graph.ids_of(np.array([position])).tolist()
    own = graph.vertices
    mine = result.distance[position - own.start].item() if position in own else None
    (distance,) = (value for value in graph.processes.share(mine) if value is not None)
    if distance == result.unreached:
        return {"vertex": name, "distance": None, "path": None}
    path = graph.positions(result.path_to(target), "target")
    return {"vertex": name, "distance": plain(distance), "path": graph.ids_of(path).tolist()}


def describe_components(
    processes: Processes, graph: DistributedGraph | GpuGraph, result: Any
) -> Facts:
    """Return the number of components."""
    return {"components": result.count}


def components_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return the line about the components."""
    return [("components", integer(facts["components"]))]
