"""NetworkX's functions: NetworkX's own code beside Godwit's backend, on real graphs, in one process.

    python benchmarks/networkx_backend.py [--data FOLDER] [--graphs NAMES] [--functions NAMES]
        [--limit SECONDS] [--runs N] [--device NAME] [--conversion]

Prints a table per graph, aligned and in Markdown at once. Every call is made through NetworkX's dispatch,
results are used (iterators to their end, dictionaries filled), and the median of the runs counts. NetworkX
runs once, with a limit; where its whole run takes minutes, it is given a few of the nodes, and its time is
multiplied: such times begin with ≈. ``first`` is a call on a graph that is not converted yet, ``later`` one
on a graph that is; ``conversion`` is what conversion has of the first. A * stands where Godwit's
``should_run`` leaves the first call to NetworkX, unless Godwit is asked for by name.

``--conversion`` measures conversions alone, beside igraph's and SciPy's, and what Godwit adds to
``import networkx``.
"""

from __future__ import annotations

import argparse
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
from time import perf_counter
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
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

    :ivar arguments: of the call, after the graph; functions get the graph's nodes, of highest degree first
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
    return {"source": nodes[0], "target": nodes[len(nodes) // 2]}


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


def measured(row: Row, graph: Any, nodes: list[Any], arguments: argparse.Namespace) -> list[str]:
    """Return the cells of a row."""
    function = getattr(nx, row.function)
    given = row.arguments(nodes)
    own, factor = row.sampled(nodes) if row.sampled else (given, 1.0)
    about = "≈ " if row.sampled else ""
    forget(graph)
    expected = should_run(row.function, (graph,), given)
    named: dict[str, Any] = {"backend": "godwit"}
    if arguments.device and "Additional parameters" in (function.__doc__ or ""):
        named["devices"] = arguments.device
    try:
        use(function(graph, **given, **named))  # compiles
    except (nx.NetworkXException, NotImplementedError) as error:
        return [row.name, "", "", "", "", f"{type(error).__name__}"]
    first, later = [], []
    for _ in range(arguments.runs):
        forget(graph)
        first.append(seconds(lambda: function(graph, **given, **named)))
        later.append(seconds(lambda: function(graph, **given, **named)))
    with_conversion, without = statistics.median(first), statistics.median(later)
    star = "" if expected is True else "*"
    share = f"{max(0.0, 1 - without / with_conversion):.0%}"
    forget(graph)
    try:
        with limit(arguments.limit):
            # A call of milliseconds is repeated: a single one is at the mercy of the clock.
            taken = seconds(lambda: function(graph, **own, backend="networkx"))
            if taken < 0.5:
                taken = statistics.median(
                    seconds(lambda: function(graph, **own, backend="networkx")) for _ in range(5)
                )
        taken *= factor
    except _TooLongError:
        taken, about = arguments.limit, "> "
    return [
        row.name, f"{about}{number(taken)}", number(without), number(with_conversion), share,
        f"{about}{number(taken / without)} x", f"{about}{number(taken / with_conversion)} x{star}",
    ]  # fmt: skip


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
            taken[name].append(seconds(way))
    edges = graph.number_of_edges()
    return [
        [name, f"{statistics.median(times):.3f}", f"{edges / statistics.median(times) / 1e6:.2f}"]
        for name, times in taken.items()
    ]


def import_seconds(runs: int = 30) -> tuple[float, float]:
    """Return seconds of ``import networkx`` with Godwit's entry points and without."""
    program = "{} import importlib.metadata, time; t = time.perf_counter(); import networkx;"
    taken: dict[str, list[float]] = {"": [], _ONLY_OTHERS: []}
    for _ in range(runs):
        for before, times in taken.items():
            line = f"{program.format(before)} print(time.perf_counter() - t)"
            done = subprocess.run(
                [sys.executable, "-c", line], capture_output=True, text=True, check=True
            )
            times.append(float(done.stdout))
    return statistics.median(taken[""]), statistics.median(taken[_ONLY_OTHERS])


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
    made.add_argument("--device", help="devices of Godwit; default: the CPU, or as configured")
    made.add_argument("--conversion", action="store_true", help="measure conversions alone")
    found = made.parse_args()
    unknown = set(found.graphs.split(",")) - set(GRAPHS)
    if unknown:
        made.error(f"--graphs takes {', '.join(GRAPHS)}, not {', '.join(sorted(unknown))}")
    return found


def main() -> None:
    arguments = parsed()
    wanted = [name for name in arguments.functions.split(",") if name]
    if "godwit" not in nx.utils.backends.backends:
        raise SystemExit("NetworkX does not know Godwit: install the package (pip install -e .)")
    nx.config.warnings_to_ignore.add("cache")
    for name in arguments.graphs.split(","):
        file = arguments.data / GRAPHS[name]
        if not file.exists():
            print(f"{name}: left out, there is no {file}", file=sys.stderr)
            continue
        graph = read(file)
        kind = "directed" if graph.is_directed() else "undirected"
        print(f"{name}: {kind}, {len(graph):,} nodes, {graph.number_of_edges():,} edges\n")
        if arguments.conversion:
            show(["conversion", "seconds", "million edges/s"], conversions(graph, arguments.runs))
            continue
        nodes = sorted(graph, key=graph.degree, reverse=True)
        rows = [
            measured(row, graph, nodes, arguments)
            for row in ROWS
            if row.kind in (None, kind) and (not wanted or row.function in wanted)
        ]
        heads = ["function", "NetworkX", "later", "first", "conversion", "speed-up", "of the first"]
        show(heads, rows)
    if arguments.conversion:
        with_godwit, without = (1e3 * value for value in import_seconds())
        print(f"import networkx: {with_godwit:.1f} ms with Godwit, {without:.1f} ms without")


if __name__ == "__main__":
    main()
