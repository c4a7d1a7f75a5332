"""Connected components by label propagation: every vertex takes the smallest label it hears of.

A vertex's label is its own id at first; when it has become smaller, all neighbours are told. So the
smallest id of a component comes to all of it, in as many steps as it lies away: fine where components are
wide (gw.run takes execution="bulk-synchronous" to go in such steps), slow on long, thin graphs. Arcs tell
one way only, so graphs must be undirected.
Run it: python examples/label_propagation.py [FILE]
"""

import sys

import numpy as np

import godwit as gw

LABEL_PROPAGATION = gw.VertexProgram(
    name="label propagation",
    dtype="int64",
    initial=lambda vertices: vertices,
    message=lambda value: value,
    combine="min",
)


def label_propagation(graph: gw.Graph, **options) -> np.ndarray:
    """The smallest vertex of every vertex's component, int64 (n)."""
    if graph.directed:
        raise ValueError("the graph is directed: labels go along arcs; symmetrize() it first")
    return gw.run(LABEL_PROPAGATION, graph, **options).values


if __name__ == "__main__":
    graph = (
        gw.read(sys.argv[1]).symmetrize()
        if len(sys.argv) > 1
        else gw.generators.rmat(14, 4, seed=1)
    )
    label, sizes = np.unique(label_propagation(graph), return_counts=True)
    print(f"{len(label)} components, the largest of {sizes.max()} vertices")
