"""Drawings of small graphs, by a layout of NetworkX or igraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.errors import InputError, shown
from godwit.plots import COLOR, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from godwit.dtypes import Array
    from godwit.graph.csr import Graph

_MOST_VERTICES = 2000
_MOST_LABELS = 50


def draw(graph: Graph, values: Any, label: str | None, axes: Axes | None) -> Axes:
    """Draw the graph; see :meth:`godwit.Graph.plot`."""
    if graph.vertex_count > _MOST_VERTICES:
        raise InputError(
            f"a drawing of {graph.vertex_count:,} vertices shows little: draw some of them, such as "
            f"graph.subgraph(graph.neighborhood(vertex, 2)).plot(), up to {_MOST_VERTICES:,}; "
            "graph.plot_degrees() takes graphs of any size"
        )
    colors = None if values is None else _values(values, graph.vertex_count)
    axes = new_axes(axes)
    axes.set_axis_off()
    if graph.vertex_count == 0:
        return axes
    places = _layout(graph)
    _draw_arcs(graph, places, axes)
    x, y = places.T
    small = graph.vertex_count > _MOST_LABELS
    drawn = axes.scatter(
        x, y, s=12 if small else 60, c=COLOR if colors is None else colors,
        linewidths=0.5, edgecolors="white", zorder=2,
    )  # fmt: skip
    if colors is not None:
        drawn.set_cmap("viridis")
        axes.figure.colorbar(drawn, ax=axes, label=label or "", shrink=0.8)
    if not small:
        for name, place in zip(graph.ids, places, strict=True):
            axes.annotate(str(name), place, (4, 4), textcoords="offset points", fontsize=7)
    axes.set_aspect("equal")
    return axes


def _values(values: Any, count: int) -> Array:
    """Return a number for each vertex.

    :raises InputError: it is not one for each
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths, such objects
        array = np.empty(0, object)
    if array.shape != (count,) or array.dtype.kind not in "iufb":
        raise InputError(
            f"values must be a number for each of {count} vertices, such as result.rank, got "
            f"{shown(values)}"
        )
    return array.astype(np.float64)


def _ends(graph: Graph) -> tuple[Array, Array]:
    """Return source and target of each arc."""
    return np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets)), graph.targets


def _layout(graph: Graph) -> Array:
    """Return the place of each vertex, float64 (n, 2); the same in every call.

    :raises InputError: neither NetworkX nor igraph is installed
    """
    sources, targets = _ends(graph)
    pairs = np.stack([sources, targets], axis=1).tolist()
    try:
        import networkx as nx
    except ImportError:
        pass
    else:
        drawn: Any = nx.Graph()
        drawn.add_nodes_from(range(graph.vertex_count))
        drawn.add_edges_from(pairs)
        places = nx.spring_layout(drawn, seed=1)
        return np.array([places[v] for v in range(graph.vertex_count)])
    try:
        import igraph
    except ImportError:
        raise InputError(
            "drawings need a layout of NetworkX or igraph: pip install networkx"
        ) from None
    other = igraph.Graph(graph.vertex_count, pairs)
    circle = other.layout_circle()
    return np.array(other.layout_fruchterman_reingold(seed=circle, niter=500).coords)


def _draw_arcs(graph: Graph, places: Array, axes: Axes) -> None:
    """Draw edges as lines, arcs of directed graphs as arrows; self-loops are not drawn."""
    from matplotlib.collections import LineCollection

    sources, targets = _ends(graph)
    shown_arcs = sources != targets if graph.directed else sources < targets
    begin, end = places[sources[shown_arcs]], places[targets[shown_arcs]]
    if not graph.directed:
        lines = LineCollection(list(np.stack([begin, end], axis=1)), colors="0.75", linewidths=0.7)
        axes.add_collection(lines)
        return
    x, y = begin.T
    dx, dy = 0.95 * (end - begin).T
    axes.quiver(
        x, y, dx, dy, angles="xy", scale_units="xy", scale=1, width=0.0025, color="0.65",
        headwidth=6, headlength=8, zorder=1,
    )  # fmt: skip
