"""Connected components by label propagation: every vertex takes the smallest label of its neighbours.

A vertex's label is initially its own id; when it has become smaller, it is sent to all neighbours. So the
smallest id of a component reaches a vertex in a number of steps that is their distance: suitable for
components of small diameter (with execution="bulk-synchronous" these are supersteps), slow for roads.
Labels follow arcs, so graphs must be undirected. Run it: python examples/label_propagation.py [FILE]
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
    """Return the smallest vertex of every vertex's component, int64 (n)."""
    if graph.directed:
        raise ValueError("the graph is directed: labels follow arcs; symmetrize() it first")
    return gw.run(LABEL_PROPAGATION, graph, **options).values


if __name__ == "__main__":
    graph = (
        gw.read(sys.argv[1]).symmetrize()
        if len(sys.argv) > 1
        else gw.generators.rmat(14, 4, seed=1)
    )
    label, sizes = np.unique(label_propagation(graph), return_counts=True)
    print(f"{len(label)} components, the largest of {sizes.max()} vertices")
