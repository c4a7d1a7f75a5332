"""PageRank by pushing residuals (Groute, 4.6.3).

A vertex's value is the residual that it has received and not yet added to its rank. Processing a vertex
takes the residual, adds it to the rank, and sends a damped share along every arc. A vertex is processed
when its residual exceeds epsilon, so the error of the ranks is at most damping / (1 - damping) * epsilon *
n in sum.

This is an example of a program that adds, not complete PageRank: weights are ignored, and residual at a
vertex without out-arcs stays in its rank, so that ranks then sum to less than 1.
gw.pagerank(graph, execution="asynchronous") is complete.
Run it: python examples/residual_pagerank.py [FILE]
"""

import sys

import numpy as np

import godwit as gw

RESIDUAL_PAGERANK = gw.VertexProgram(
    name="residual pagerank",
    dtype="float64",
    message=lambda value, degree, damping: damping * value / degree,
    combine="add",
    activate=lambda value, epsilon: value > epsilon,
    update=lambda field, value: field + value,
    field_dtype="float64",
    parameters={"damping": 0.85, "epsilon": 1e-9},
)


def residual_pagerank(
    graph: gw.Graph, damping: float = 0.85, epsilon: float = 1e-9, **options
) -> np.ndarray:
    """Return the rank of every vertex, float64 (n), of sum 1 if all vertices have out-arcs."""
    count = graph.vertex_count
    start = np.full(count, (1 - damping) / max(1, count))
    parameters = {"damping": damping, "epsilon": epsilon}
    result = gw.run(RESIDUAL_PAGERANK, graph, start, parameters=parameters, **options)
    return result.fields + result.values


if __name__ == "__main__":
    graph = gw.read(sys.argv[1]) if len(sys.argv) > 1 else gw.generators.rmat(14, 16, seed=1)
    rank = residual_pagerank(graph, epsilon=1e-3 / max(1, graph.vertex_count))
    for vertex in np.argsort(rank)[::-1][:5]:
        print(f"vertex {vertex}: {rank[vertex]:.6f}")
