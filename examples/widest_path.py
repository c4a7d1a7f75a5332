"""Widest paths: the largest flow along a single path from a source to every vertex.

The width of a path is its narrowest arc; a vertex's value is the largest width of a path to it.
Run it: python examples/widest_path.py [FILE] [SOURCE]
"""

import sys

import numpy as np

import godwit as gw

WIDEST_PATH = gw.VertexProgram(
    name="widest path",
    dtype="float64",
    initial=0.0,
    message=lambda value, weight: min(value, weight),  # noqa: PLW0108 (operators go by names)
    combine="max",
    priority=lambda value: -value,
)


def widest_path(graph: gw.Graph, source: int, **options) -> np.ndarray:
    """Return the widths of the widest paths to all vertices, float64 (n); 0 without a path."""
    return gw.run(WIDEST_PATH, graph, {source: np.inf}, **options).values


if __name__ == "__main__":
    graph = (
        gw.read(sys.argv[1])
        if len(sys.argv) > 1
        else gw.generators.road(300, weights=(1, 64), seed=1)
    )
    source = int(sys.argv[2]) if len(sys.argv) > 2 else graph.highest_degree_vertex()
    width = widest_path(graph, source)
    reached = np.isfinite(width) & (width > 0)
    print(f"{reached.sum()} vertices reached, mean width {width[reached].mean():.2f}")
