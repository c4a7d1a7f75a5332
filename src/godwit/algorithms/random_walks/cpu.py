"""Random walks on the CPU: each thread takes walks in groups, whose memory accesses overlap.

An arc of a vertex is drawn as ``word % degree``, or by a search for ``unit(word) * total`` in the
sums of weights up to each arc. A biased step (node2vec: Grover, Leskovec, KDD 2016) draws such an arc and
accepts it with the probability of its bias over the largest bias (rejection: KnightKing, Yang et al., SOSP
2019). After :data:`TRIES` rejections the sums of weight times bias of all arcs are computed, and an arc is
drawn from them, which leaves probabilities as they are and bounds the work of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.random_walks.query import TRIES, WORDS_BITS, WalkQuery
from godwit.dtypes import Array
from godwit.graph.hashing import mix, unit
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, prefetch
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, next_range, run_team

_GROUP = 16
"""Walks that a thread takes at a time."""
_POLL_STEPS = 1024
_FEW_STEPS = 10_000
"""Below this number of steps one thread does all work: waking others takes longer."""


def walk_on_cpu(
    query: WalkQuery, walks: Array, threads: int, poll: Callable[[int], None] | None
) -> None:
    """Fill an array with walks.

    :param walks: of the query's shape, dtype of the targets
    :param poll: called at intervals by the calling thread with the number of steps done
    """
    rows = query.rows
    progress = np.zeros(1, np.int64)
    threads = 1 if walks.size < _FEW_STEPS else threads
    # Each thread's group: current vertices, and begins of rows or arcs.
    groups = np.empty((threads, 2, _GROUP), np.int64)
    run_team(
        _walk, rows.offsets, rows.targets, query.sums, query.sources, query.is_biased,
        query.return_bias, query.far_bias, query.seed, groups, walks, progress,
        threads=threads, poll=None if poll is None else lambda: poll(int(progress[0])),
    )  # fmt: skip


def _word(key: Any, step: Any, count: Any) -> Any:
    """Return a random word of a step of the walk with this key."""
    return mix(key + ((np.uint64(step) << np.uint64(WORDS_BITS)) | np.uint64(count)))


def _draw(sums: Any, begin: Any, end: Any, word: Any) -> Any:
    """Return an arc of a row in proportion to the weights; -1 if there is none of positive weight."""
    if begin == end:
        return np.int64(-1)
    if sums.size == 0:
        return begin + np.int64(word % np.uint64(end - begin))
    total = sums[end - 1]
    if total == 0:
        return np.int64(-1)
    share = unit(word)
    wanted = share * total
    # The first arc whose sum is above, or is the total, is near that share of the row if weights are alike.
    low = begin
    high = end - 1
    guess = begin + np.int64(share * np.float64(end - begin))
    step = np.int64(1)
    while step <= high - low:
        middle = min(max(guess, low), high - 1)
        if sums[middle] > wanted or sums[middle] == total:
            high = middle
            guess = middle - step
        else:
            low = middle + 1
            guess = middle + step
        step *= 4
    while low < high:
        middle = (low + high) >> 1
        if sums[middle] > wanted or sums[middle] == total:
            high = middle
        else:
            low = middle + 1
    return low


def _has_arc(offsets: Any, targets: Any, source: Any, target: Any) -> bool:
    """Return True if an arc leads from one vertex to another, whose rows are sorted."""
    low = offsets[source]
    high = offsets[source + 1]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if targets[middle] < target:
            low = middle + 1
        else:
            high = middle
    return bool(low < end and targets[low] == target)


def _bias(
    offsets: Any, targets: Any, previous: Any, target: Any, return_bias: Any, far_bias: Any
) -> Any:
    """Return the factor of an arc's weight, by where it leads to."""
    if target == previous:
        return return_bias
    return 1.0 if _has_arc(offsets, targets, previous, target) else far_bias


def _draw_biased(
    offsets: Any, targets: Any, sums: Any, v: Any, previous: Any, return_bias: Any, far_bias: Any,
    key: Any, step: Any,
) -> Any:  # fmt: skip
    """Return an arc of a row in proportion to weight times bias; -1 if there is none."""
    begin = offsets[v]
    end = offsets[v + 1]
    most = max(return_bias, far_bias, 1.0)
    for attempt in range(TRIES):
        drawn = _draw(sums, begin, end, _word(key, step, 2 * attempt))
        if drawn < 0:
            return drawn
        bound = unit(_word(key, step, 2 * attempt + 1)) * most
        target = targets[drawn]
        if target == previous:
            accepted = bound < return_bias
        elif bound < min(far_bias, 1.0):  # whether an arc leads there does not matter
            accepted = True
        elif bound < max(far_bias, 1.0):
            accepted = _has_arc(offsets, targets, previous, target) == (far_bias < 1.0)
        else:
            accepted = False
        if accepted:
            return drawn
    total = 0.0
    for arc in range(begin, end):
        weight = 1.0
        if sums.size > 0:
            weight = sums[arc] - (sums[arc - 1] if arc > begin else 0.0)
        bias = _bias(offsets, targets, previous, targets[arc], return_bias, far_bias)
        total += weight * bias
    wanted = unit(_word(key, step, 2 * TRIES)) * total
    total = 0.0
    last: Any = np.int64(-1)
    for arc in range(begin, end):
        weight = 1.0
        if sums.size > 0:
            weight = sums[arc] - (sums[arc - 1] if arc > begin else 0.0)
        if weight > 0:
            bias = _bias(offsets, targets, previous, targets[arc], return_bias, far_bias)
            total += weight * bias
            last = arc
            if total > wanted:
                break
    return last


@kernel
def _walk(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, sums: Any, sources: Any,
    biased: bool, return_bias: Any, far_bias: Any, seed: Any, groups: Any, walks: Any,
    progress: Any,
) -> None:  # fmt: skip
    """Fill rows of ``walks``, some at a time.

    :param groups: (size, 2, walks at a time) int64: scratch of each thread
    """
    length = walks.shape[1] - 1
    vertices = groups[rank, 0]
    arcs = groups[rank, 1]
    base = mix(seed)
    while True:
        begin, end = next_range(control, vertices.size, sources.size)
        if begin == end:
            return
        count = end - begin
        for i in range(count):
            vertices[i] = sources[begin + i]
            walks[begin + i, 0] = vertices[i]
            prefetch(offsets, vertices[i])
        for step in range(length):
            if step % _POLL_STEPS == 0:
                if load_acquire(control, ABORT) != 0:
                    return
                fetch_add(progress, 0, count * min(_POLL_STEPS, length - step))
            for i in range(count):
                v = vertices[i]
                if v < 0:
                    continue
                key = mix(base + np.uint64(begin + i))
                if biased and step > 0:
                    arcs[i] = _draw_biased(
                        offsets, targets, sums, v, np.int64(walks[begin + i, step - 1]),
                        return_bias, far_bias, key, step,
                    )  # fmt: skip
                else:
                    arcs[i] = _draw(sums, offsets[v], offsets[v + 1], _word(key, step, 0))
                if arcs[i] >= 0:
                    prefetch(targets, arcs[i])
            for i in range(count):
                if vertices[i] >= 0:
                    vertices[i] = targets[arcs[i]] if arcs[i] >= 0 else -1
                    if vertices[i] >= 0:
                        prefetch(offsets, vertices[i])
                walks[begin + i, step + 1] = vertices[i]
