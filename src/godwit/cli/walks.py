"""The command ``walks``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from godwit.cli.facts import Facts, graph_facts
from godwit.cli.inputs import parse_vertex
from godwit.cli.options import (
    GraphArgument,
    Option,
    ReadingOptions,
    ResultOptions,
    RunOptions,
    with_options,
)
from godwit.cli.query import GraphQuery
from godwit.cli.report import Report, closing_rows, graph_line, integer, outcome_rows

if TYPE_CHECKING:
    from godwit.cli.outputs import Output
    from godwit.cli.progress import Display
    from godwit.dtypes import Array
    from godwit.runtime.statistics import RunStatistics

EXAMPLES = """
godwit walks follows.csv --columns user,friend --length 80 --walks 10 --output walks.npy
godwit walks soc.mtx --undirected --source 1 --source 17 --length 5
godwit walks rmat:20 --length 40 --p 0.5 --q 2 --devices cuda --output walks.parquet
"""
_SHOWN_WALKS = 10
_SHOWN_STEPS = 8


@dataclass
class _Walks:
    """Walks with what a result has."""

    walks: Array
    statistics: RunStatistics


@dataclass
class _WalksQuery(GraphQuery):
    sources: list[str]
    repetitions: int
    given: dict[str, Any]
    run_arguments: dict[str, Any]

    def run(self, display: Display) -> _Walks:
        import numpy as np

        from godwit.algorithms.random_walks import run_walks, walk_query
        from godwit.graph.rows import require_memory
        from godwit.worker.options import query_options

        graph = self.load(display)
        sources = [parse_vertex(text, graph, "source") for text in self.sources]
        query = walk_query(graph, sources, **self.given)
        begins = query.sources if sources else np.arange(graph.vertex_count)
        count = len(begins) * self.repetitions
        require_memory(count * begins.itemsize, f"a list of the sources of {count:,} walks")
        query = replace(query, sources=np.repeat(begins, self.repetitions))
        timeout_s, devices = self.run_arguments["timeout_s"], self.run_arguments["devices"]
        with display.bar("running walks") as progress:
            options = query_options(timeout_s=timeout_s, progress=progress)
            return _Walks(*run_walks(graph, query, devices, options))

    def verify(self, result: _Walks) -> str:
        from godwit.algorithms.random_walks.verify import verify_random_walks

        verify_random_walks(self.graph, result.walks, weighted=self.given["weighted"])
        return "every step follows an arc, and walks end where there is none"

    def write(self, output: Output, result: _Walks) -> None:
        output.write_matrix(result.walks, lambda: self._table(result.walks))

    def _table(self, walks: Array) -> Any:
        """Return an Arrow table of walk, step and vertex, without the ends of walks that are shorter."""
        import numpy as np
        import pyarrow as pa

        walk, step = np.nonzero(walks >= 0)
        names = self.graph.ids.in_file.to_arrow()
        return pa.table(
            {"walk": walk, "step": step, "vertex": names.take(pa.array(walks[walk, step]))}
        )

    def plot(self, result: _Walks) -> Any:
        import numpy as np

        from godwit.plots import plot_frequencies

        visits = np.bincount(result.walks[result.walks >= 0], minlength=self.graph.vertex_count)
        return plot_frequencies(visits, "visits of a vertex")

    def facts(self, result: _Walks, outcome: Facts) -> Facts:
        walks, ids = result.walks, self.graph.ids.in_file
        return {
            "graph": graph_facts(self.graph, self.input),
            "walks": len(walks),
            "length": self.given["length"],
            "steps": int((walks[:, 1:] >= 0).sum()),
            "ended": int((walks[:, -1] < 0).sum()),
            "first": [ids.of(walk[walk >= 0]) for walk in walks[:_SHOWN_WALKS]],
            **outcome,
            "statistics": self.statistics(result),
        }

    def show(self, report: Report, facts: Facts) -> None:
        if facts["output"] is None and facts["first"]:
            rows = []
            for number, walk in enumerate(facts["first"]):
                more = ["…"] if len(walk) > _SHOWN_STEPS else []
                rows.append([str(number), " ".join([*map(str, walk[:_SHOWN_STEPS]), *more])])
            report.table(["walk", "vertices"], rows, title="The first walks", text_columns=2)
        report.facts(
            [
                (
                    "walks",
                    f"{integer(facts['walks'])} of up to {integer(facts['length'])} steps, "
                    f"{integer(facts['steps'])} steps in all, {integer(facts['ended'])} ended early",
                ),
                *outcome_rows(facts),
                *closing_rows(facts, graph_line(facts["graph"]), verbose=self.options.verbose),
            ]
        )


@with_options
def walks(
    graph: GraphArgument,
    options: ResultOptions,
    run: RunOptions,
    reading: ReadingOptions,
    length: Annotated[int, Option("-l", "STEPS")],
    source: Annotated[list[str] | None, Option("-s", "ID")] = None,
    walks: int = 1,
    p: float = 1.0,
    q: float = 1.0,
    seed: int = 0,
    ignore_weights: bool = False,
) -> None:
    """Random walks along arcs: uniform, by weights, or biased by the vertex before (node2vec).

    The same seed gives the same walks on all devices.

    Files: .npy holds the vertices, a row for each walk, counted from 0, and -1 after the end of a walk;
    .csv and .parquet have columns walk, step and vertex, numbered as in the file of the graph.

    :param length: Steps of each walk; fewer where no arc goes on.
    :param source: Vertex at which walks begin: an id of the file, or max-degree for the vertex with most
        arcs; by default all vertices. May be given several times.
    :param walks: Walks from each of these vertices.
    :param p: Weights of arcs back to the vertex before are divided by it.
    :param q: Weights of arcs to vertices that no arc leads to from the vertex before are divided by it.
    :param seed: Seed of the random numbers.
    :param ignore_weights: Draw arcs uniformly.
    """
    from godwit.dtypes import as_count

    given = {
        "length": length,
        "p": p,
        "q": q,
        "seed": seed,
        "weighted": False if ignore_weights else None,
    }
    as_count(walks, "walks", 1, 1 << 32)  # before a large file is read
    as_count(length, "length")
    _WalksQuery(
        "walks", graph, options, reading, source or [], walks, given, run.arguments
    ).answer()
