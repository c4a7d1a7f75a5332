"""Distances from many sources in a contracted graph (contraction.py), on threads of the CPU.

A thread has the distances from ``LANES`` sources at once in lines, a word for each source, so that a visit
of an arc serves all of them. What sweeps.cuh does for GPUs, in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.distances.contraction import ABSENT, FAR
from godwit.runtime.cpu.atomics import fetch_add, load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR

LANES = 16
_TILE = 64
"""Columns whose lines stay in the first-level cache while rows are written."""

_absent: Any = np.uint32(ABSENT)
_far: Any = np.uint32(FAR)
_at: Any = np.uint64  # spares the test that Numba makes for Python's a[-1]


def _lower(lines: Any, to: int, by: int, length: Any) -> bool:
    """Lower a line to another one plus a length; return whether it has changed."""
    room = np.uint32(_far - length)
    difference = np.uint32(0)
    for lane in range(LANES):
        distance = lines[_at(by), _at(lane)]
        before = lines[_at(to), _at(lane)]
        longer = np.uint32(min(distance, room) + length)
        longer = _absent if distance == _absent else longer
        lower = np.uint32(min(before, longer))
        lines[_at(to), _at(lane)] = lower
        difference |= np.uint32(before ^ lower)
    return bool(difference != 0)


@kernel
def sweep(
    rank: int, size: int, control: Any, core: int, offsets: Any, heads: Any, up: Any, down: Any,
    sources: Any, columns: Any, matrix: Any, unreached: Any, lines: Any, stamps: Any, tally: Any,
) -> int:  # fmt: skip
    """Fill in rows of the matrix; return 1 if a distance has no room in 32 bits, else 0.

    :param core: positions of the core
    :param sources: position of the source of each row
    :param columns: position of the vertex of each column
    :param lines: uint32 (n, LANES), of this thread
    :param stamps: (core): the round in which each line has changed, of this thread
    :param tally: pairs of a source and a column that it reaches, and lines that were read
    """
    n = len(offsets) - 1
    while True:
        begin = fetch_add(control, CURSOR, LANES)
        count = min(LANES, len(sources) - begin)
        if count <= 0:
            return 0
        lines[:] = _absent
        for lane in range(count):
            position = sources[begin + lane]
            lines[position, lane] = 0
            while position >= core and offsets[position] < offsets[position + 1]:
                distance = lines[position, lane]
                if distance != _absent:
                    for arc in range(offsets[position], offsets[position + 1]):
                        if up[arc] != _absent:
                            longer = np.uint32(min(distance, np.uint32(_far - up[arc])) + up[arc])
                            lines[heads[arc], lane] = min(lines[heads[arc], lane], longer)
                position = heads[offsets[position + 1] - 1]
        stamps[:] = 0
        current = 0
        has_changed = True
        while has_changed:
            if load_acquire(control, ABORT) != 0:
                return 0
            current += 1
            has_changed = False
            for position in range(core):
                is_lower = False
                for arc in range(offsets[position], offsets[position + 1]):
                    head = heads[_at(arc)]
                    if stamps[_at(head)] + 1 >= current and down[_at(arc)] != _absent:
                        is_lower |= _lower(lines, position, head, down[_at(arc)])
                        tally[1] += 1
                if is_lower:
                    stamps[position] = current
                    has_changed = True
        for position in range(core, n):
            for arc in range(offsets[position], offsets[position + 1]):
                if down[_at(arc)] != _absent:
                    _lower(lines, position, heads[_at(arc)], down[_at(arc)])
        tally[1] += offsets[n] - offsets[core]
        reached = 0
        is_too_far = False
        for first in range(0, len(columns), _TILE):
            end = min(first + _TILE, len(columns))
            for lane in range(count):
                for column in range(first, end):
                    distance = lines[_at(columns[_at(column)]), _at(lane)]
                    is_there = distance != _absent
                    is_too_far |= distance == _far
                    reached += is_there
                    matrix[_at(begin + lane), _at(column)] = distance if is_there else unreached
        tally[0] += reached
        if is_too_far:
            return 1
