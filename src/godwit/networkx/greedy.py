"""Greedy colourings."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.greedy.cpu import decide_on_cores
from godwit.algorithms.greedy.order import Kind
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import refusals


def greedy_color(
    G: ArrayGraph, strategy: Any = "largest_first", interchange: bool = False
) -> dict[Any, int]:
    """Return the colour of each node, by descending degree."""
    if len(G) == 0:
        return {}
    if strategy != "largest_first" or interchange:
        raise NotImplementedError("only strategy='largest_first' has the same result")
    if G.is_directed():
        raise NotImplementedError("in a directed graph, only successors count as neighbours")
    order = np.argsort(-G.degree, kind="stable")
    with refusals():
        colors = decide_on_cores(G.structure, Kind.COLOR, order, None, None)
    return dict(zip(G.names(order), colors[order].tolist(), strict=True))
