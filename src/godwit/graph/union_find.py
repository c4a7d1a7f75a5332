"""Trees of vertices that arcs join, by several threads: what is behind weakly connected components.

Invariant: ``parent[v] <= v`` at all times, so there are no cycles; what an atomic link has joined stays
joined, and roots only get fewer. In the end the root of a component is its smallest vertex, whatever the
schedule. A link goes on with smaller vertices whenever it tries again, so it ends.

Methods. *hook*: a root is hung below a smaller vertex of another tree by compare-and-swap; rounds of
hooking without atomics may go before, which lose links but leave fewer to do (Hellås, "Multi-GPU connected
components", 2018, 4.2). *rem*: both ends walk up at once and are spliced on their way (Patwary, Refsnes,
Manne, IPDPS 2012; in its lock-free form Dhulipala, Hong, Shun: ConnectIt, VLDB 2020). *afforest*: a few
neighbours of every vertex are linked; then most vertices are of one tree, whose rows need no look, for what
joins it to others stands in their rows, too (Sutton, Ben-Nun, Barak, IPDPS 2018).
"""

from __future__ import annotations

from typing import Any

from godwit.graph.rows import row_range
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    store_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, next_range

POLL_VERTICES = 4096
_CHUNK_VERTICES = 1024  # dealt out at once where rows may be left out
_SAMPLES = 1024

TO_THE_ROOT = 1 << 62


def hook(parent: Any, u: Any, v: Any) -> None:
    """Hang the root of one of two vertices below the other's tree."""
    above_u = load_relaxed(parent, u)
    above_v = load_relaxed(parent, v)
    while above_u != above_v:
        if above_u < above_v:
            above_u, above_v = above_v, above_u
        above = load_relaxed(parent, above_u)
        if above == above_v:
            return
        if above == above_u and compare_exchange(parent, above_u, above_u, above_v):
            return
        above_u = load_relaxed(parent, load_relaxed(parent, above_u))
        above_v = load_relaxed(parent, above_v)


def splice(parent: Any, u: Any, v: Any) -> None:
    """Join the trees of u and v by Rem's algorithm.

    Both walk up at once, the one with the larger parent first; on its way it is spliced under the
    other's parent, which is smaller, so the trees grow flat.
    """
    parent_u = load_relaxed(parent, u)
    parent_v = load_relaxed(parent, v)
    while parent_u != parent_v:
        if parent_u < parent_v:
            u, v = v, u
            parent_u, parent_v = parent_v, parent_u
        linked = compare_exchange(parent, u, parent_u, parent_v)
        if u == parent_u:
            if linked:
                return
        else:
            u = parent_u
        parent_u = load_relaxed(parent, u)
        parent_v = load_relaxed(parent, v)


def hook_plainly(parent: Any, u: Any, v: Any) -> None:
    """Hang the parent of one below that of the other; what others do at once may be lost."""
    above_u = load_relaxed(parent, u)
    above_v = load_relaxed(parent, v)
    if above_u < above_v:
        store_relaxed(parent, above_v, above_u)
    elif above_v < above_u:
        store_relaxed(parent, above_u, above_v)


def compress(rank: int, size: int, parent: Any, jumps: int) -> None:
    """Point a thread's vertices at an ancestor so many jumps away: at their root, if enough."""
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        above = load_relaxed(parent, v)
        root = load_relaxed(parent, above)
        if root == above:
            continue
        left = jumps
        while root != above and left > 0:
            above = root
            root = load_relaxed(parent, above)
            left -= 1
        store_relaxed(parent, v, above)


@kernel
def link_all(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    directed: bool,
    splices: bool,
    rounds: int,
    jumps: int,
    parent: Any,
    progress: Any,
) -> None:
    """Every vertex' root, by links of all arcs: ``splices`` by Rem's algorithm, else by hooks."""
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        parent[v] = v
    if not barrier(control, size):
        return
    begin, end = row_range(rank, size, offsets)
    for turn in range(rounds + 1):
        for v in range(begin, end):
            if v % POLL_VERTICES == 0:
                if load_acquire(control, ABORT) != 0:
                    return
                fetch_add(progress, 0, POLL_VERTICES)
            source = targets.dtype.type(v)
            for i in range(offsets[v], offsets[v + 1]):
                target = targets[i]
                if not directed and target > source:
                    continue
                if turn < rounds:
                    hook_plainly(parent, source, target)
                elif splices:
                    splice(parent, source, target)
                else:
                    hook(parent, source, target)
        if not barrier(control, size):
            return
        if turn < rounds and jumps > 0:
            compress(rank, size, parent, jumps)
            if not barrier(control, size):
                return
    compress(rank, size, parent, TO_THE_ROOT)


def _most_frequent_root(offsets: Any, parent: Any) -> Any:
    """The root of most vertices that have arcs, by a vote of some of them; of another tree at worst.

    :returns: the root, how many took part, and at most how many of these are in other trees
    """
    found = parent[0]
    lead = 0
    voters = 0
    samples = min(_SAMPLES, parent.size)
    for sample in range(samples):
        v = sample * parent.size // samples
        if offsets[v] == offsets[v + 1]:
            continue
        root = parent[v]
        if lead == 0:
            found = root
        lead += 1 if root == found else -1
        voters += 1
    return found, voters, voters - lead


@kernel
def link_sampled(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    directed: bool,
    rounds: int,
    most_rounds: int,
    parent: Any,
    progress: Any,
) -> None:
    """Every vertex' root by Afforest, of which some neighbours are linked first.

    :param rounds: so many neighbours of every vertex
    :param most_rounds: up to so many, as long as the rows of vertices outside the largest tree have more
        arcs than another round
    """
    first_own, last_own = block_range(rank, size, parent.size)
    for v in range(first_own, last_own):  # of the first neighbour, no one else writes here
        first = offsets[v]
        source = targets.dtype.type(v)
        parent[v] = min(targets[first], source) if first < offsets[v + 1] else source
    if not barrier(control, size):
        return
    compress(rank, size, parent, TO_THE_ROOT)
    linked = 1
    largest = parent[0]
    while True:
        if not barrier(control, size):
            return
        if linked >= rounds:
            largest, voters, others = _most_frequent_root(offsets, parent)
            is_enough = others * offsets[parent.size] <= voters * parent.size
            # Before anybody links on: all are to see the same, and none a tree that still changes.
            if not barrier(control, size):
                return
            if linked >= most_rounds or is_enough:
                break
        for v in range(first_own, last_own):
            arc = offsets[v] + linked
            if arc < offsets[v + 1]:
                hook(parent, targets.dtype.type(v), targets[arc])
        if not barrier(control, size):
            return
        compress(rank, size, parent, TO_THE_ROOT)
        linked += 1
    while True:
        begin, end = next_range(control, _CHUNK_VERTICES, parent.size)
        if begin == end:
            break
        for v in range(begin, end):
            if not directed and load_relaxed(parent, v) == largest:
                continue
            source = targets.dtype.type(v)
            first = offsets[v]
            last = offsets[v + 1]
            if first < last and targets[first] < source:
                first += linked  # linked already
            for i in range(first, last):
                if load_relaxed(parent, targets[i]) != load_relaxed(parent, v):
                    hook(parent, source, targets[i])
        fetch_add(progress, 0, end - begin)
    if not barrier(control, size):
        return
    compress(rank, size, parent, TO_THE_ROOT)
