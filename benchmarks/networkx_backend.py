"""NetworkX's functions: NetworkX's own code beside Godwit's backend, on real graphs, in one process.

    python benchmarks/networkx_backend.py [--data FOLDER] [--graphs NAMES] [--functions NAMES]
        [--devices cpu,cuda] [--limit SECONDS] [--runs N] [--output FILE]
    python benchmarks/networkx_backend.py --render FILES
    python benchmarks/networkx_backend.py --conversion [--data FOLDER] [--graphs NAMES]
    python benchmarks/networkx_backend.py --small [--functions NAMES]

Prints a table per graph, aligned and in Markdown at once, of seconds. Every call is made through NetworkX's
dispatch, results are used (iterators to their end, dictionaries filled), and the median of the runs counts.
NetworkX runs once, with a limit (">"); where its whole run takes minutes, it is given a few of the nodes,
and its time is multiplied ("≈"). For each device, ``first`` is a call on a graph that is not converted yet,
and ``x`` how many times faster than NetworkX a call is on a graph that is. ``first x`` is the same of a
first call on the first device, with a * where Godwit's ``should_run`` leaves this call to NetworkX, unless
Godwit is asked for by name. Behind a first call's seconds is the share that conversion has of them.
Functions that the GPU has no part in have no times there. Calls of Godwit end after 40 s, too (">").

``--output`` keeps the numbers, which ``--render`` prints again, of several runs as one.

``--conversion`` measures conversions alone, beside igraph's and SciPy's, and what Godwit adds to
``import networkx``, in CPU time of one thread. (nx-cugraph needs RAPIDS on a machine with a GPU.)

``--small`` measures calls of each cost of ``_godwit_networkx.COSTS`` on random graphs from 64 nodes on, in
microseconds of CPU time, which other work on the machine changes little: NetworkX's, Godwit's first and
later ones (``should_run`` included), and how many times faster they are, with a * where ``should_run``
leaves them to NetworkX. It ends with the calls that ``should_run`` takes and that are slower.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from _godwit_networkx import FUNCTIONS
from godwit.networkx import from_networkx, should_run

GRAPHS = {
    "cit-HepPh": "cit-HepPh.mtx.xz",
    "email-Enron": "email-Enron.mtx.xz",
    "soc-Slashdot0902": "soc-Slashdot0902.mtx.xz",
    "dblp-2010": "dblp-2010.mtx.xz",
    "uk-2007-05@100000": "uk-2007-05@100000.mtx.xz",
    "NY": "USA-road-d.NY.gr.xz",
}


@dataclass(frozen=True)
class Row:
    """A call to measure.

    :ivar arguments: of the call, after the graph; functions get the nodes, of highest out-degree first
    :ivar sampled: arguments of a smaller call for NetworkX, and the number of such calls in a whole one
    :ivar kind: ``"undirected"`` or ``"directed"`` where the function takes no other graphs
    """

    function: str
    arguments: Callable[[list[Any]], dict[str, Any]] = field(default=lambda _: {})
    sampled: Callable[[list[Any]], tuple[dict[str, Any], float]] | None = None
    kind: str | None = None
    label: str = ""

    @property
    def name(self) -> str:
        """What the table calls it."""
        return self.label or self.function


def _source(nodes: list[Any]) -> dict[str, Any]:
    return {"source": nodes[0]}


def _source_by_length(nodes: list[Any]) -> dict[str, Any]:
    return {"source": nodes[0], "weight": "length"}


def _pair(nodes: list[Any]) -> dict[str, Any]:
    return {"source": nodes[0], "target": nodes[len(nodes) // 100]}


def _drawn(nodes: list[Any], count: int) -> list[Any]:
    return random.Random(1).sample(sorted(nodes), count)


def _one_of_all(parameter: str) -> Callable[[list[Any]], tuple[dict[str, Any], float]]:
    return lambda nodes: ({parameter: _drawn(nodes, 1)[0]}, float(len(nodes)))


ROWS = [
    Row("betweenness_centrality", lambda _: {"k": 100, "seed": 1},
        lambda _: ({"k": 4, "seed": 1}, 25.0), label="betweenness_centrality(k=100)"),
    Row("edge_betweenness_centrality", lambda _: {"k": 100, "seed": 1},
        lambda _: ({"k": 4, "seed": 1}, 25.0), label="edge_betweenness_centrality(k=100)"),
    Row("closeness_centrality", sampled=_one_of_all("u")),
    Row("harmonic_centrality", sampled=lambda nodes: ({"nbunch": _drawn(nodes, 1)}, len(nodes))),
    Row("pagerank"),
    Row("eigenvector_centrality", lambda _: {"max_iter": 1000}),
    Row("katz_centrality", lambda _: {"alpha": 1e-3}),
    Row("hits"),
    Row("degree_centrality"),
    Row("connected_components", kind="undirected"),
    Row("weakly_connected_components", kind="directed"),
    Row("number_connected_components", kind="undirected"),
    Row("is_forest"),
    Row("shortest_path", _pair, label="shortest_path(source, target)"),
    Row("shortest_path", lambda nodes: {**_pair(nodes), "weight": "length"},
        label="shortest_path(source, target, weight)"),
    Row("shortest_path", _source, label="shortest_path(source)"),
    Row("single_source_shortest_path_length", _source),
    Row("single_source_dijkstra_path_length", _source_by_length),
    Row("single_source_dijkstra", _source_by_length),
    Row("single_source_bellman_ford_path_length", _source_by_length),
    Row("multi_source_dijkstra_path_length",
        lambda nodes: {"sources": nodes[:10], "weight": "length"}),
    Row("voronoi_cells", lambda nodes: {"center_nodes": nodes[:10], "weight": "length"}),
    Row("bfs_edges", _source),
    Row("bfs_predecessors", _source),
    Row("bfs_successors", _source),
    Row("bfs_layers", lambda nodes: {"sources": nodes[:1]}),
    Row("bfs_tree", _source),
    Row("descendants", _source),
    Row("ego_graph", lambda nodes: {"n": nodes[len(nodes) // 2], "radius": 1}),
    Row("reciprocity", kind="directed"),
]  # fmt: skip


_LONG_SECONDS = 4.0
"""Calls of Godwit that take longer are measured once."""
_MOST_SECONDS = 40
"""Limit of a call of Godwit."""

Record = dict[str, Any]
"""Of a row: ``function``, ``is_dispatched``, ``networkx`` (seconds), ``about`` (what stands before these),
``godwit`` (seconds of a first call and of a later one, by device), or ``error``."""


class _TooLongError(Exception):
    """NetworkX's call passed its limit."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise :class:`_TooLongError` in the block after so many seconds."""

    def stop(*_: Any) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def use(result: Any) -> None:
    """Take all that a result has, as a loop over it would."""
    if isinstance(result, dict):
        result.values()  # fills it
    elif isinstance(result, tuple):
        for part in result:
            use(part)
    elif hasattr(result, "__next__"):
        for _ in result:
            pass


def seconds(call: Callable[[], Any]) -> float:
    begin = perf_counter()
    use(call())
    return perf_counter() - begin


def read(file: Path) -> Any:
    """Return a graph of NetworkX; edges have a ``length`` of 1 to 100, or that of the file."""
    graph = gw.read(file).with_ids(0)
    made = nx.DiGraph() if graph.directed else nx.Graph()
    made.add_nodes_from(range(graph.vertex_count))
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    lengths = np.random.default_rng(1).integers(1, 101, graph.arc_count)
    if graph.is_weighted:
        lengths = np.asarray(graph.weights)
    made.add_weighted_edges_from(
        zip(tails.tolist(), graph.targets.tolist(), lengths.tolist(), strict=True), weight="length"
    )
    return made


def forget(graph: Any) -> None:
    """Drop what NetworkX keeps of conversions."""
    graph.__networkx_cache__.clear()


def measured(row: Row, graph: Any, nodes: list[Any], arguments: argparse.Namespace) -> Record:
    """Return the seconds of a row."""
    function = getattr(nx, row.function)
    given = row.arguments(nodes)
    own, factor = row.sampled(nodes) if row.sampled else (given, 1.0)
    forget(graph)
    record: Record = {
        "function": row.name,
        "is_dispatched": should_run(row.function, (graph,), given) is True,
        "about": "≈ " if row.sampled else "",
        "godwit": {},
    }
    for device in arguments.devices.split(","):
        if device != "cpu" and not FUNCTIONS[row.function].devices:
            continue
        nx.config.backends.godwit.devices = device
        try:
            with limit(_MOST_SECONDS):
                taken = seconds(lambda: function(graph, **given, backend="godwit"))  # compiles
        except (nx.NetworkXException, NotImplementedError) as error:
            record["error"] = type(error).__name__
            return record
        except _TooLongError:
            record["godwit"][device] = None
            continue
        first, later = [], []
        for _ in range(arguments.runs if taken < _LONG_SECONDS else 1):
            forget(graph)
            first.append(seconds(lambda: function(graph, **given, backend="godwit")))
            if taken < _LONG_SECONDS:  # brings into caches what a conversion has displaced
                use(function(graph, **given, backend="godwit"))
            later.append(seconds(lambda: function(graph, **given, backend="godwit")))
        record["godwit"][device] = statistics.median(first), statistics.median(later)
    forget(graph)
    try:
        with limit(arguments.limit):
            # A call of milliseconds is repeated: a single one is at the mercy of the clock.
            taken = seconds(lambda: function(graph, **own, backend="networkx"))
            if taken < 0.5:
                taken = statistics.median(
                    seconds(lambda: function(graph, **own, backend="networkx")) for _ in range(5)
                )
        record["networkx"] = taken * factor
    except _TooLongError:
        record["networkx"], record["about"] = arguments.limit, "> "
    return record


def show_graph(measurement: dict[str, Any]) -> None:
    """Print the table of a graph."""
    print(f"{measurement['graph']}\n")
    devices = measurement["devices"]
    heads = ["function", "NetworkX"]
    for device in devices:
        heads += [f"{device} first", device, "x"]
    rows = [_cells(record, devices) for record in measurement["records"]]
    show([*heads, "first x"], rows)


def _cells(record: Record, devices: list[str]) -> list[str]:
    if "error" in record:
        return [record["function"], record["error"], *[""] * (3 * len(devices) + 1)]
    about, taken, found = record["about"], record["networkx"], record["godwit"]
    cells = [record["function"], f"{about}{number(taken)}"]
    for device in devices:
        if device in found and found[device] is None:
            cells += [f"> {_MOST_SECONDS}", f"> {_MOST_SECONDS}", ""]
        elif device in found:
            first, later = found[device]
            cells += [
                f"{number(first)} ({max(0.0, 1 - later / first):.0%})",
                number(later),
                f"{about}{number(taken / later)}",
            ]
        else:
            cells += ["", "", ""]
    star = "" if record["is_dispatched"] else "*"
    if found[devices[0]] is None:
        return [*cells, star]
    return [*cells, f"{about}{number(taken / found[devices[0]][0])}{star}"]


def number(value: float) -> str:
    """Return a number with two or three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 1 else f"{value:.2f}"


def show(heads: list[str], rows: list[list[str]]) -> None:
    """Print an aligned table that is Markdown, too."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    print("| " + " | ".join(f"{h:<{w}}" for h, w in zip(heads, widths, strict=True)) + " |")
    rule = ["-" * width if k == 0 else "-" * (width - 1) + ":" for k, width in enumerate(widths)]
    print("|" + "|".join(f" {part} " for part in rule) + "|")
    for row in rows:
        cells = [
            f"{c:<{w}}" if k == 0 else f"{c:>{w}}"
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")
    print(flush=True)


def conversions(graph: Any, runs: int) -> list[list[str]]:
    """Return rows of conversions of a graph, the systems taking turns."""
    ways: dict[str, Callable[[], Any]] = {
        "Godwit": lambda: from_networkx(graph),
        "Godwit, with an attribute": lambda: from_networkx(graph, {"length": 1}),
        "SciPy, `nx.to_scipy_sparse_array`": lambda: nx.to_scipy_sparse_array(
            graph, weight="length", backend="networkx"
        ),
    }
    try:
        import igraph
    except ImportError:
        pass
    else:
        ways["igraph, `Graph.from_networkx`"] = lambda: igraph.Graph.from_networkx(graph)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            forget(graph)
            begin = process_time()  # of one thread each, and other work changes it little
            way()
            taken[name].append(process_time() - begin)
    edges = graph.number_of_edges()
    return [
        [name, f"{statistics.median(times):.3f}", f"{edges / statistics.median(times) / 1e6:.2f}"]
        for name, times in taken.items()
    ]


def _two_nodes(nodes: list[Any]) -> dict[str, Any]:
    source, target = _drawn(nodes, 2)
    return {"source": source, "target": target}


SMALL_ROWS = [
    Row("shortest_path", _two_nodes, label="shortest_path(source, target)"),
    Row("shortest_path", lambda nodes: {**_two_nodes(nodes), "weight": "length"},
        label="shortest_path(source, target, weight)"),
    Row("dijkstra_path", lambda nodes: {**_two_nodes(nodes), "weight": "length"}),
    Row("degree_centrality"),
    Row("number_of_isolates"),
    Row("bfs_edges", _source),
    Row("single_source_shortest_path_length", _source),
    Row("shortest_path", _source, label="shortest_path(source)"),
    Row("descendants", _source),
    Row("bfs_tree", _source),
    Row("closeness_centrality", lambda nodes: {"u": nodes[0]}, label="closeness_centrality(u)"),
    Row("connected_components", kind="undirected"),
    Row("is_forest"),
    Row("single_source_dijkstra_path_length", _source_by_length),
    Row("single_source_dijkstra", _source_by_length),
    Row("single_source_bellman_ford_path_length", _source_by_length),
    Row("voronoi_cells", lambda nodes: {"center_nodes": nodes[:10], "weight": "length"}),
    Row("betweenness_centrality", lambda _: {"k": 2, "seed": 1}, label="betweenness_centrality(k=2)"),
    Row("pagerank"),
    Row("eigenvector_centrality", lambda _: {"max_iter": 1000}),
    Row("katz_centrality", lambda _: {"alpha": 1e-3}),
    Row("hits"),
    Row("closeness_centrality"),
    Row("average_shortest_path_length"),
    Row("all_pairs_shortest_path"),
    Row("all_pairs_dijkstra_path_length", lambda _: {"weight": "length"}),
]  # fmt: skip
"""Functions of each cost."""

SMALL_NODES = (64, 128, 256, 512, 1024, 4096, 12000)
SMALL_DEGREES = (2, 5, 20)
_SECONDS_PER_ROW = 0.1
_MOST_OF_ALL = 256
"""Nodes of graphs on which functions that search from all nodes are measured."""


def small(wanted: list[str]) -> None:
    """Print tables of calls on small random graphs, and those that are dispatched and slower."""
    slower: list[str] = []
    for n in SMALL_NODES:
        for degree in SMALL_DEGREES:
            graph = nx.gnm_random_graph(n, n * degree // 2, seed=n)
            graph = graph.subgraph(max(nx.connected_components(graph), key=len)).copy()
            draw = random.Random(2)
            for _, _, data in graph.edges(data=True):
                data["length"] = draw.randint(1, 100)
            title = f"{len(graph):,} nodes, {graph.number_of_edges():,} edges"
            nodes = sorted(graph, key=graph.degree, reverse=True)
            rows = [
                _small_row(row, graph, nodes, title, slower)
                for row in SMALL_ROWS
                if (not wanted or row.function in wanted)
                and (row.label or not FUNCTIONS[row.function].searches or n <= _MOST_OF_ALL)
            ]
            print(f"{title}\n")
            show(["function", "NetworkX", "first", "later", "first x", "later x"], rows)
    print("should_run says yes, and NetworkX is faster:", *(slower or ["none"]), sep="\n")


def _small_row(row: Row, graph: Any, nodes: list[Any], title: str, slower: list[str]) -> list[str]:
    """Return a row of microseconds; add its calls that are dispatched and slower to a list."""
    function, given = getattr(nx, row.function), row.arguments(nodes)
    call = (row.function, (graph,), given)

    def first() -> Any:
        forget(graph)
        return dispatched(first)

    def later() -> Any:
        return dispatched(later)

    def dispatched(way: Any) -> Any:
        verdicts[way] = should_run(*call) is True
        return function(graph, **given, backend="godwit")

    def by_networkx() -> Any:
        return function(graph, **given, backend="networkx")

    verdicts: dict[Any, bool] = {}
    taken: dict[Any, list[float]] = {by_networkx: [], first: [], later: []}
    use(first())  # compiles
    begin = perf_counter()
    while len(taken[later]) < 5 or perf_counter() - begin < _SECONDS_PER_ROW:
        for way, times in taken.items():
            if way is later:
                use(way())  # brings into caches what a conversion has displaced
            start = process_time()
            use(way())
            times.append(1e6 * (process_time() - start))
    theirs, first_time, later_time = (sorted(times)[len(times) // 4] for times in taken.values())
    cells = [row.name, *(f"{time:,.0f}" for time in (theirs, first_time, later_time))]
    for which, time, is_taken in zip(
        ("first", "later"),
        (first_time, later_time),
        (verdicts[first], verdicts[later]),
        strict=True,
    ):
        cells.append(f"{theirs / time:.2f}{'' if is_taken else '*'}")
        if is_taken and time > theirs:
            slower.append(f"{title}: {row.name}, {which}: {theirs / time:.2f}")
    return cells


def import_seconds(runs: int = 30) -> tuple[float, float]:
    """Return the least CPU seconds of ``import networkx`` with Godwit's entry points and without."""
    program = "{} import importlib.metadata, time; t = time.process_time(); import networkx;"
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users import compiled modules
    taken: dict[str, list[float]] = {"": [], _ONLY_OTHERS: []}
    for _ in range(runs):
        for before, times in taken.items():
            line = f"{program.format(before)} print(time.process_time() - t)".strip()
            done = subprocess.run(
                [sys.executable, "-c", line], env=environment, capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            times.append(float(done.stdout))
    return min(taken[""]), min(taken[_ONLY_OTHERS])


_ONLY_OTHERS = (
    "import importlib.metadata as m; every = m.entry_points;"
    "m.entry_points = lambda **k: every(**k) if 'networkx' not in k.get('group', '') else"
    " m.EntryPoints(e for e in every(**k) if e.name != 'godwit');"
)
"""Code that hides Godwit's entry points, as if it were not installed."""


def parsed() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    made.add_argument("--data", type=Path, default=Path(os.environ.get("GODWIT_DATA", beside)))
    made.add_argument("--graphs", default=",".join(GRAPHS), help="names, with commas")
    made.add_argument("--functions", default="", help="names, with commas; default: all")
    made.add_argument("--limit", type=float, default=60.0, help="seconds for a call of NetworkX")
    made.add_argument("--runs", type=int, default=3)
    made.add_argument("--devices", default="cpu", help="of Godwit, with commas")
    made.add_argument("--output", type=Path, help="a JSON file, which gets the numbers")
    made.add_argument("--render", type=Path, nargs="+", help="print the tables of such files")
    made.add_argument("--conversion", action="store_true", help="measure conversions alone")
    made.add_argument("--small", action="store_true", help="measure calls on small random graphs")
    found = made.parse_args()
    unknown = set(found.graphs.split(",")) - set(GRAPHS)
    if unknown:
        made.error(f"--graphs takes {', '.join(GRAPHS)}, not {', '.join(sorted(unknown))}")
    return found


def main() -> None:
    arguments = parsed()
    if arguments.render:
        for file in arguments.render:
            for measurement in json.loads(file.read_text()):
                show_graph(measurement)
        return
    if "godwit" not in nx.utils.backends.backends:
        raise SystemExit("NetworkX does not know Godwit: install the package (pip install -e .)")
    nx.config.warnings_to_ignore.add("cache")
    if arguments.small:
        small([name for name in arguments.functions.split(",") if name])
        return
    measurements = []
    for name in arguments.graphs.split(","):
        file = arguments.data / GRAPHS[name]
        if not file.exists():
            print(f"{name}: left out, there is no {file}", file=sys.stderr)
            continue
        graph = read(file)
        kind = "directed" if graph.is_directed() else "undirected"
        title = f"{name}: {kind}, {len(graph):,} nodes, {graph.number_of_edges():,} edges"
        if arguments.conversion:
            print(f"{title}\n")
            show(["conversion", "seconds", "million edges/s"], conversions(graph, arguments.runs))
            continue
        measurement: dict[str, Any] = {
            "graph": title, "devices": arguments.devices.split(","), "records": []
        }  # fmt: skip
        measurements.append(measurement)
        for record in records(graph, kind, arguments):
            measurement["records"].append(record)
            if arguments.output:  # again and again: nothing is lost if the benchmark is stopped
                arguments.output.write_text(json.dumps(measurements, indent=1))
        show_graph(measurement)
    if arguments.conversion:
        with_godwit, without = (1e3 * value for value in import_seconds())
        print(f"import networkx: {with_godwit:.1f} ms with Godwit, {without:.1f} ms without")


def records(graph: Any, kind: str, arguments: argparse.Namespace) -> Iterator[Record]:
    """Yield the record of each row that suits the graph and is asked for, in their order."""
    wanted = [name for name in arguments.functions.split(",") if name]
    degree = graph.out_degree if graph.is_directed() else graph.degree
    nodes = sorted(graph, key=degree, reverse=True)
    for row in ROWS:
        if row.kind in (None, kind) and (not wanted or row.function in wanted):
            print(f"{row.name} ...", file=sys.stderr, flush=True)
            yield measured(row, graph, nodes, arguments)


if __name__ == "__main__":
    main()
