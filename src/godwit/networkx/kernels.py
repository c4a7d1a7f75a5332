"""Searches that visit vertices in NetworkX's order, compiled for one thread.

NetworkX's functions promise an order (``bfs_edges``) or return one of several shortest paths, and both
depend on the order of neighbours in a node's dictionary. Rows keep that order, and these kernels process
them as NetworkX's loops do.

Vertices are positions. A parent of -1 is that of a source, of -2 that of a vertex that was not reached.
"""

from __future__ import annotations

from typing import Any

from godwit.runtime.cpu.compile import kernel

NO_PARENT = -1
UNREACHED = -2


@kernel
def bfs_order(
    offsets: Any, targets: Any, sources: Any, limit: int, order: Any, parent: Any, level: Any
) -> int:
    """Search from distinct sources, at most ``limit`` arcs far; return the number of vertices reached.

    :param order: (n) gets the vertices in the order of their discovery
    :param parent: (n) :data:`UNREACHED` everywhere before; gets the vertex that each was discovered from
    :param level: (n) gets the distance of each vertex reached
    """
    n = len(offsets) - 1
    reached = 0
    for source in sources:
        order[reached] = source
        parent[source] = NO_PARENT
        level[source] = 0
        reached += 1
    head = 0
    while head < reached < n:
        v = order[head]
        head += 1
        if level[v] >= limit:
            break
        for i in range(offsets[v], offsets[v + 1]):
            w = targets[i]
            if parent[w] == UNREACHED:
                parent[w] = v
                level[w] = level[v] + 1
                order[reached] = w
                reached += 1
    return reached


@kernel
def bidirectional_path(
    offsets: Any, targets: Any, in_offsets: Any, in_targets: Any, source: int, target: int,
    parent: Any, child: Any, forward: Any, backward: Any, path: Any,
) -> int:  # fmt: skip
    """Find a path with fewest arcs from both ends, one level of the smaller frontier at a time.

    :param parent: (n) scratch, :data:`UNREACHED` everywhere before and after; likewise ``child``
    :param forward: (n) scratch; likewise ``backward``
    :param path: (n) gets the vertices of the path
    :returns: number of vertices of the path; 0 if there is none
    """
    parent[source] = NO_PARENT
    child[target] = NO_PARENT
    forward[0] = source
    backward[0] = target
    forward_begin, forward_end, forward_next = 0, 1, 1
    backward_begin, backward_end, backward_next = 0, 1, 1
    meeting = -1
    if source == target:
        meeting = source
    while meeting < 0 and forward_begin < forward_end and backward_begin < backward_end:
        if forward_end - forward_begin <= backward_end - backward_begin:
            for k in range(forward_begin, forward_end):
                v = forward[k]
                for i in range(offsets[v], offsets[v + 1]):
                    w = targets[i]
                    if parent[w] == UNREACHED:
                        parent[w] = v
                        forward[forward_next] = w
                        forward_next += 1
                    if child[w] != UNREACHED:
                        meeting = w
                        break
                if meeting >= 0:
                    break
            forward_begin, forward_end = forward_end, forward_next
        else:
            for k in range(backward_begin, backward_end):
                v = backward[k]
                for i in range(in_offsets[v], in_offsets[v + 1]):
                    w = in_targets[i]
                    if child[w] == UNREACHED:
                        child[w] = v
                        backward[backward_next] = w
                        backward_next += 1
                    if parent[w] != UNREACHED:
                        meeting = w
                        break
                if meeting >= 0:
                    break
            backward_begin, backward_end = backward_end, backward_next
    length = 0
    if meeting >= 0:
        v = meeting
        while v >= 0:
            path[length] = v
            length += 1
            v = parent[v]
        for k in range(length // 2):
            path[k], path[length - 1 - k] = path[length - 1 - k], path[k]
        v = child[meeting]
        while v >= 0:
            path[length] = v
            length += 1
            v = child[v]
    for k in range(forward_next):
        parent[forward[k]] = UNREACHED
    for k in range(backward_next):
        child[backward[k]] = UNREACHED
    return length
