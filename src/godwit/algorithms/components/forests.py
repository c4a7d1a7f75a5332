"""What connected components of a stream of edges ask of an endpoint: a forest that takes edges in.

Invariant: ``parents[v] <= v``; what edges have joined stays joined. So a forest may be sent to another
endpoint, which links every vertex with its parent there, and in the end the root of a component is its
smallest vertex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Linking:
    """How edges are linked.

    :param vertices: of the forest
    :param id_dtype: of its parents
    :param splices: by Rem's algorithm, else by hooks of roots
    :param rounds: of hooking without atomics before, over each segment
    :param jumps: how far up its tree a vertex gets after each of the latter; None: to the root
    """

    vertices: int
    id_dtype: np.dtype[Any]
    splices: bool
    rounds: int = 0
    jumps: int | None = None


@dataclass(frozen=True)
class Fault:
    """An edge whose ends are not both vertices: which row of which chunk of the user's edges."""

    chunk: int
    row: int
    source: int
    target: int


class Forest(Protocol):
    """Trees of all vertices in one endpoint's memory.

    All but :meth:`fault` is put into the endpoint's stream, where it has one; elsewhere it is done when it
    returns.

    :ivar parents: (n) of the endpoint's memory
    """

    parents: Any

    def link(self, edges: Any, chunk: int, row: int) -> None:
        """Join the ends of edges, an array of shape (m, 2) in this memory.

        :param chunk: of the user's edges
        :param row: the first row there, for faults
        """

    def absorb(self, parents: Any, first: int) -> None:
        """Join what another forest has joined: its parents of some vertices from ``first`` on."""

    def flatten(self) -> None:
        """Point every vertex at its root."""

    def fault(self) -> Fault | None:
        """An edge that was found to be none, among those that have been looked at so far."""

    def close(self) -> None:
        """Give the memory back; what is under way is waited for. Twice does no harm."""
