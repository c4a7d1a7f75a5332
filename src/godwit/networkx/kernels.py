"""Searches that visit vertices in NetworkX's order, and Lanczos' method, compiled for one thread.

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
    offsets: Any, targets: Any, sources: Any, target: int, limit: int, order: Any, parent: Any,
    level: Any,
) -> int:  # fmt: skip
    """Search from distinct sources, at most ``limit`` arcs far; return the number of vertices reached.

    :param target: vertex at whose discovery the search ends; -1 for none
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
                if w == target:
                    return reached
    return reached


@kernel
def bidirectional_path(
    offsets: Any, targets: Any, in_offsets: Any, in_targets: Any, source: int, target: int,
    parent: Any, child: Any, forward: Any, backward: Any, path: Any,
) -> int:  # fmt: skip
    """Find a path with fewest arcs from both ends, one level of the smaller frontier at a time.

    :param parent: (n) :data:`UNREACHED` everywhere before and after
    :param child: (n) :data:`UNREACHED` everywhere before and after
    :param forward: (n) scratch
    :param backward: (n) scratch
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
    length = _joined(meeting, parent, child, path)
    for k in range(forward_next):
        parent[forward[k]] = UNREACHED
    for k in range(backward_next):
        child[backward[k]] = UNREACHED
    return length


def _joined(meeting: int, parent: Any, child: Any, path: Any) -> int:
    """Write the path through a vertex, if there is one; return its number of vertices.

    :param child: (n) the vertex behind each on its path; as ``parent``, -1 where paths end
    """
    if meeting < 0:
        return 0
    length = _path_from(meeting, parent, path)
    v = child[meeting]
    while v >= 0:
        path[length] = v
        length += 1
        v = child[v]
    return length


def _path_from(v: int, parent: Any, path: Any) -> int:
    """Write the path that ends at a vertex; return its number of vertices."""
    length = 0
    while v >= 0:
        path[length] = v
        length += 1
        v = parent[v]
    for k in range(length // 2):
        path[k], path[length - 1 - k] = path[length - 1 - k], path[k]
    return length


def _push(
    distances: Any, numbers: Any, vertices: Any, size: int, distance: Any, number: int, vertex: int
) -> None:
    """Put an entry into a heap of ``size`` entries, ordered by distance, then by number."""
    k = size
    while k > 0:
        above = (k - 1) >> 2
        if distances[above] < distance or (
            distances[above] == distance and numbers[above] < number
        ):
            break
        distances[k] = distances[above]
        numbers[k] = numbers[above]
        vertices[k] = vertices[above]
        k = above
    distances[k] = distance
    numbers[k] = number
    vertices[k] = vertex


def _pop(distances: Any, numbers: Any, vertices: Any, size: int) -> None:
    """Move the first of ``size`` entries of a heap behind the others."""
    last = size - 1
    first_distance, first_number, first_vertex = distances[0], numbers[0], vertices[0]
    distance, number, vertex = distances[last], numbers[last], vertices[last]
    k = 0
    while True:
        child = 4 * k + 1
        if child >= last:
            break
        least = child
        for other in range(child + 1, min(child + 4, last)):
            if distances[other] < distances[least] or (
                distances[other] == distances[least] and numbers[other] < numbers[least]
            ):
                least = other
        if distance < distances[least] or (
            distance == distances[least] and number < numbers[least]
        ):
            break
        distances[k] = distances[least]
        numbers[k] = numbers[least]
        vertices[k] = vertices[least]
        k = least
    distances[k] = distance
    numbers[k] = number
    vertices[k] = vertex
    distances[last], numbers[last], vertices[last] = first_distance, first_number, first_vertex


@kernel
def length_path(
    offsets: Any, targets: Any, weights: Any, sources: Any, target: int, cutoff: Any,
    distance: Any, parent: Any, is_final: Any, heap_distances: Any, heap_numbers: Any,
    heap_vertices: Any, path: Any,
) -> int:  # fmt: skip
    """Find a shortest path by lengths of arcs from one of several vertices to a target, or to all vertices.

    :param target: -1 to search for all
    :param cutoff: largest length
    :param distance: (n) gets the distance of each vertex reached
    :param parent: (n) :data:`UNREACHED` everywhere before; gets the vertex before each on its path
    :param is_final: (n) False everywhere before; gets True for each vertex processed
    :param heap_distances: scratch, an entry for each arc and source, as in the other arrays of the heap
    :param path: (n) gets the vertices of the path; in a search for all, those reached, in order
    :returns: number of vertices in ``path``; 0 if there is no path
    """
    size, pushed, reached = 0, 0, 0
    for source in sources:
        distance[source] = 0
        parent[source] = NO_PARENT
        _push(heap_distances, heap_numbers, heap_vertices, size, distance[source], pushed, source)
        size += 1
        pushed += 1
    while size > 0:
        _pop(heap_distances, heap_numbers, heap_vertices, size)
        size -= 1
        v = heap_vertices[size]
        if is_final[v]:
            continue
        is_final[v] = True
        if v == target:
            return _path_from(v, parent, path)
        if target < 0:
            path[reached] = v
            reached += 1
        for i in range(offsets[v], offsets[v + 1]):
            w = targets[i]
            length = distance[v] + weights[i]
            if is_final[w] or length > cutoff:
                continue
            if parent[w] == UNREACHED or length < distance[w]:
                distance[w] = length
                parent[w] = v
                _push(heap_distances, heap_numbers, heap_vertices, size, length, pushed, w)
                size += 1
                pushed += 1
    return reached


@kernel
def bidirectional_length_path(
    rows: Any, in_rows: Any, source: int, target: int, forward: Any, backward: Any, path: Any,
    total: Any,
) -> int:  # fmt: skip
    """Find a shortest path by lengths of arcs from both ends, one vertex of each in turn.

    :param rows: offsets, targets and weights
    :param in_rows: those of the reversed arcs
    :param forward: distance (n), parent (n) with :data:`UNREACHED` everywhere, is_final (n) with False, and
        the three arrays of a heap, an entry for each arc and one more
    :param backward: the same arrays for the search from the other end
    :param path: (n) gets the vertices of the path
    :param total: (1) gets the length of the path
    :returns: number of vertices of the path; 0 if there is none
    """
    meeting = -1
    size, back_size, pushed = 1, 1, 2
    forward[0][source] = 0
    forward[1][source] = NO_PARENT
    _push(forward[3], forward[4], forward[5], 0, forward[0][source], 0, source)
    backward[0][target] = 0
    backward[1][target] = NO_PARENT
    _push(backward[3], backward[4], backward[5], 0, backward[0][target], 1, target)
    is_forward = True
    while size > 0 and back_size > 0:
        if is_forward:
            size, pushed, meeting, is_met = _settle(
                rows, forward, backward, size, pushed, meeting, total
            )
        else:
            back_size, pushed, meeting, is_met = _settle(
                in_rows, backward, forward, back_size, pushed, meeting, total
            )
        if is_met:
            return _joined(meeting, forward[1], backward[1], path)
        is_forward = not is_forward
    return 0


def _settle(
    rows: Any, near: Any, far: Any, size: int, pushed: int, meeting: int, total: Any
) -> tuple[int, int, int, bool]:
    """Take the nearest entry of one side's heap; process its vertex, unless that has been.

    :returns: new size of the heap, number of pushes, the vertex of the shortest path known, and True if
        that path is shortest
    """
    offsets, targets, weights = rows
    distance, parent, is_final, heap_distances, heap_numbers, heap_vertices = near
    _pop(heap_distances, heap_numbers, heap_vertices, size)
    size -= 1
    v = heap_vertices[size]
    if is_final[v]:
        return size, pushed, meeting, False
    is_final[v] = True
    if far[2][v]:
        return size, pushed, meeting, True
    for i in range(offsets[v], offsets[v + 1]):
        w = targets[i]
        length = distance[v] + weights[i]
        if is_final[w] or (parent[w] != UNREACHED and not length < distance[w]):
            continue
        distance[w] = length
        parent[w] = v
        _push(heap_distances, heap_numbers, heap_vertices, size, length, pushed, w)
        size += 1
        pushed += 1
        if far[1][w] != UNREACHED:
            whole = length + far[0][w]
            if meeting < 0 or whole < total[0]:
                total[0] = whole
                meeting = w
    return size, pushed, meeting, False


@kernel
def tree_of_distances(
    offsets: Any, targets: Any, weights: Any, sources: Any, distance: Any, reached: Any, group: Any,
    slot: Any, order: Any, parent: Any,
) -> None:  # fmt: skip
    """Find the order in which NetworkX's search by a heap visits vertices, and its paths, from distances.

    From the heap, vertices come by distance, and those of equal distance in the order in which they were
    pushed: when the first of their neighbours on a shortest path was processed. So each is appended to the
    vertices of its distance when that neighbour is processed here. This holds for lengths of 0, too.

    :param distance: (n) distances, of vertices that were reached
    :param reached: (n) True for these
    :param group: (n) rank of each distance among the distinct ones
    :param slot: for each rank, the number of vertices that are nearer; is changed
    :param order: (k) gets the vertices
    :param parent: (n) :data:`UNREACHED` everywhere before
    """
    for source in sources:
        parent[source] = NO_PARENT
        order[slot[group[source]]] = source
        slot[group[source]] += 1
    for k in range(len(order)):
        v = order[k]
        for i in range(offsets[v], offsets[v + 1]):
            w = targets[i]
            if not reached[w] or parent[w] != UNREACHED:
                continue
            if distance[v] + weights[i] == distance[w]:
                parent[w] = v
                order[slot[group[w]]] = w
                slot[group[w]] += 1


@kernel
def roots(order: Any, parent: Any, root: Any) -> None:
    """Find the source that each vertex of a search is reached from.

    :param root: (n) gets the source of each vertex of ``order``
    """
    for v in order:
        root[v] = v if parent[v] == NO_PARENT else root[parent[v]]


@kernel
def component_labels(offsets: Any, targets: Any, label: Any) -> None:
    """Find connected components, whatever the directions of arcs.

    :param label: (n) gets the smallest vertex of each vertex's component
    """
    n = len(offsets) - 1
    for v in range(n):
        label[v] = v
    for v in range(n):
        for i in range(offsets[v], offsets[v + 1]):
            a, b = _root(label, v), _root(label, targets[i])
            if a < b:
                label[b] = a
            elif b < a:
                label[a] = b
    for v in range(n):
        label[v] = label[label[v]]


def _root(label: Any, v: int) -> int:
    """Return the root of a vertex's tree, and halve the path to it."""
    while label[v] != v:
        label[v] = label[label[v]]
        v = label[v]
    return v


@kernel
def lanczos_step(
    offsets: Any, targets: Any, weights: Any, vector: Any, before: Any, beside: Any, following: Any
) -> Any:
    """Multiply a vector by A'A, the matrix of HITS' authorities, and make it orthogonal to the last two.

    :param vector: (n) vector of Lanczos' method; ``before`` is the one before it
    :param beside: the entry of the tridiagonal matrix that the two share
    :param following: (n) gets the next vector, times its length
    :returns: the entry of the tridiagonal matrix on the diagonal
    """
    n = len(offsets) - 1
    for v in range(n):
        following[v] = -beside * before[v]
    for v in range(n):
        total = 0.0
        for i in range(offsets[v], offsets[v + 1]):
            total += weights[i] * vector[targets[i]]
        for i in range(offsets[v], offsets[v + 1]):
            following[targets[i]] += weights[i] * total
    product = 0.0
    for v in range(n):
        product += following[v] * vector[v]
    for v in range(n):
        following[v] -= product * vector[v]
    return product
