"""What connected components ask of their GPU code, and what that returns.

The labels are of all vertices in their own order; the ``cuda`` module turns vertices into positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Array

Merge = Literal["auto", "tree", "direct"]


@dataclass(frozen=True)
class UnionQuery:
    """A query that has been checked, of a graph that has vertices.

    :param is_sampled: the largest component is looked for, and its rows are left out (Afforest)
    :param splices: links are Rem's algorithm, else hooks of roots
    :param rounds: neighbours of every vertex, after the first, that are linked before the sample, or
        rounds of hooking without atomics before the atomic one
    :param more_rounds: further neighbours that are linked, one at a time, while vertices that are drawn are
        found in many trees
    :param jumps: how far a vertex gets up its tree after each of the latter; None: to the root
    :param merge: how devices come to one result: trees of each merged in pairs, or all hook into words that
        lie at their owners
    :param destination: (n) where labels go: an array of NumPy, or of CuPy on any GPU
    :param gpu: how kernels are run
    """

    is_sampled: bool
    splices: bool
    rounds: int
    more_rounds: int
    jumps: int | None
    merge: Merge
    destination: Any
    gpu: GpuOptions


@dataclass
class UnionOutcome:
    """How a query went; the labels are in its destination.

    :param rows: (devices) rows that were gone through, in all supersteps
    :param arcs: (devices) arcs that were looked at
    :param supersteps: (devices) of them
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    rows: Array
    arcs: Array
    supersteps: Array
    seconds: dict[str, float] = field(default_factory=dict)
