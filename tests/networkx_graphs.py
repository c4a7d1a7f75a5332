"""Random graphs of NetworkX, of all kinds, for hypothesis."""

from __future__ import annotations

from typing import Any

import networkx as nx
from hypothesis import settings
from hypothesis import strategies as st

# The first call of a kernel may compile it: no deadline for single examples.
settings.register_profile("godwit", deadline=None)
settings.load_profile("godwit")

KINDS = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
_NAMES: dict[str, Any] = {
    "range": range,
    "integers": lambda n: [7 * i % 11 - 3 for i in range(n)],
    "large integers": lambda n: [(i * 10**15) * (-1) ** i for i in range(n)],
    "texts": lambda n: [f"node {i}" for i in range(n)],
    "objects": lambda n: [_OBJECTS[i % len(_OBJECTS)](i) for i in range(n)],
}
_OBJECTS: list[Any] = [
    lambda i: (i, "x"), lambda i: i + 0.5, lambda i: frozenset([i]), str, lambda i: i
]  # fmt: skip


@st.composite
def networkx_graphs(
    draw: st.DrawFn,
    kinds: tuple[Any, ...] = KINDS,
    weights: st.SearchStrategy[Any] | None = None,
    min_nodes: int = 1,
) -> Any:
    """Return a graph with up to 11 nodes, in any order, self-loops and (multigraphs) parallel edges.

    :param weights: of edges; some edges have none
    """
    graph = draw(st.sampled_from(kinds))()
    n = draw(st.integers(min_nodes, 11))
    nodes = list(_NAMES[draw(st.sampled_from(sorted(_NAMES)))](n))
    if draw(st.booleans()):
        nodes = draw(st.permutations(nodes))
    graph.add_nodes_from(nodes)
    ends = st.integers(0, n - 1)
    count = draw(st.integers(0, 30)) if n else 0
    for _ in range(count):
        u, v = nodes[draw(ends)], nodes[draw(ends)]
        weight = None if weights is None else draw(st.none() | weights)
        graph.add_edge(u, v, **({} if weight is None else {"weight": weight}))
    return graph
