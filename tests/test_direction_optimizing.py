"""Direction-optimizing BFS against SciPy and a queue of a dozen lines, for every number of threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
import graphs as zoo
from godwit.algorithms.bfs import cpu as driver
from godwit.algorithms.bfs.cpu import UNREACHED, bfs_on_cpu
from godwit.graph.csr import Graph
from godwit.runtime.cpu.team import ABORT, new_control
from graphs import each_graph, named_graph

each_team = pytest.mark.parametrize("threads", [1, 2, 3])
WAYS = ["as it likes", "levels", "together", "marks", "bottom-up"]
each_way = pytest.mark.parametrize("way", WAYS)


@contextmanager
def forced(way: str) -> Iterator[dict[str, int]]:
    """Within the block small graphs take the paths of large ones; gives the arguments for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_ALONE_GRAPH_ARCS", 0)
        if way == "levels":
            patch.setattr(driver, "_TOGETHER_VERTICES", 1)
            patch.setattr(driver, "_MARK_ARCS_PER_VERTEX", 1 << 30)
        elif way != "as it likes":
            patch.setattr(driver, "_TEAM_ARCS", 0)
            patch.setattr(driver, "_MARK_ARCS_PER_VERTEX", 1 << 30 if way == "together" else 0)
        if way != "bottom-up":
            yield {}
            return
        patch.setattr(driver, "SWEEP_ARCS_PER_VERTEX", 0)
        yield {"alpha": 1 << 40}


def reference(
    graph: Graph, sources: Any, cutoff: int | None = None, target: int | None = None
) -> list[int]:
    distance = [UNREACHED] * graph.vertex_count
    queue = deque()
    for source in sources:
        if distance[source] != 0:
            distance[source] = 0
            queue.append(source)
    while queue:
        v = queue.popleft()
        if distance[v] == cutoff:
            continue
        for u in graph.targets[graph.offsets[v] : graph.offsets[v + 1]].tolist():
            if distance[u] == UNREACHED:
                distance[u] = distance[v] + 1
                queue.append(u)
    if target is not None:
        distance = [d if d <= distance[target] else UNREACHED for d in distance]
    return distance


def some_sources(graph: Graph) -> np.ndarray[Any, Any]:
    n = graph.vertex_count
    return np.array([n // 3] if n else [], np.int64)


@each_way
@each_team
@each_graph
def test_distances_are_those_of_a_plain_search(name: str, threads: int, way: str) -> None:
    graph = named_graph(name)
    sources = some_sources(graph)
    with forced(way) as arguments:
        distance, counts = bfs_on_cpu(graph, sources, threads=threads, **arguments)
    assert distance.dtype == np.int32
    assert distance.tolist() == reference(graph, sources)
    assert counts.completed
    assert counts.vertices_visited == np.count_nonzero(distance != UNREACHED)


@given(st.data())
def test_sources_targets_cutoffs_of_any_graph(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    if data.draw(st.booleans(), "reverse at hand"):
        assert graph.reverse is not None
    vertices = st.integers(0, graph.vertex_count - 1)
    sources = data.draw(st.lists(vertices, min_size=1, max_size=5), "sources")
    target = data.draw(st.none() | vertices, "target")
    cutoff = data.draw(st.none() | st.integers(0, 6), "cutoff")
    threads = data.draw(st.integers(1, 3), "threads")
    expected = reference(graph, sources, cutoff, target)
    with forced(data.draw(st.sampled_from(WAYS))) as arguments:
        if "alpha" in arguments:
            # Small betas turn back to top-down after a sweep, large ones stay bottom-up.
            arguments["beta"] = data.draw(st.sampled_from([0, 18, 1 << 40]), "beta")
        distance, counts = bfs_on_cpu(
            graph,
            np.array(sources, np.int64),
            target=target,
            cutoff=cutoff,
            threads=threads,
            **arguments,
        )
    assert distance.tolist() == expected
    assert counts.vertices_visited == sum(d != UNREACHED for d in expected)


def random_graph(n: int, arcs: int, *, directed: bool) -> Graph:
    generator = np.random.default_rng(n + arcs)
    # Cubes crowd the ends of arcs near 0: hubs, as in social networks.
    tails, heads = (generator.random((2, arcs)) ** 3 * n).astype(np.int64)
    return Graph.from_edges(tails, heads, vertex_count=n, directed=directed)


@each_team
@pytest.mark.parametrize("directed", [False, True])
def test_large_graphs_are_as_scipy_has_them(directed: bool, threads: int) -> None:
    from scipy.sparse.csgraph import dijkstra

    graph = random_graph(20_000, 300_000, directed=directed)
    source = graph.highest_degree_vertex()
    expected = dijkstra(graph.to_scipy(merge="min"), indices=source, unweighted=True)
    with forced("as it likes"):
        distance, counts = bfs_on_cpu(graph, np.array([source]), threads=threads)
    assert np.array_equal(np.where(distance == UNREACHED, np.inf, distance), expected)
    assert counts.levels == expected[np.isfinite(expected)].max() + 1
    assert (counts.bottom_up_levels > 0) == (not directed)
    if directed:
        degrees = np.diff(graph.offsets)
        assert counts.arcs_examined == degrees[distance != UNREACHED].sum()
    else:
        assert counts.arcs_examined < graph.arc_count // 2


def test_a_directed_graph_goes_bottom_up_once_its_reverse_is_there() -> None:
    graph = random_graph(20_000, 300_000, directed=True)
    sources = np.array([graph.highest_degree_vertex()])
    top_down, counts = bfs_on_cpu(graph, sources)
    assert counts.bottom_up_levels == 0
    assert "reverse" not in graph._cache
    reverse = graph.reverse
    both_ways, counts = bfs_on_cpu(graph, sources)
    assert counts.bottom_up_levels > 0
    assert np.array_equal(both_ways, top_down)
    # The reverse knows its original.
    assert bfs_on_cpu(reverse, sources)[1].bottom_up_levels > 0


def test_long_thin_graphs_never_go_bottom_up() -> None:
    graph = Graph.from_edges(np.arange(70_000), np.arange(1, 70_001), directed=False)
    distance, counts = bfs_on_cpu(graph, np.array([0]))
    assert np.array_equal(distance, np.arange(70_001))
    assert counts.bottom_up_levels == 0
    assert counts.arcs_examined == graph.arc_count


@pytest.mark.parametrize("threads", [2, 3])
def test_narrow_frontiers_are_followed_together(threads: int) -> None:
    graph = gw.generators.road(300, 300, seed=1)
    source = np.array([graph.highest_degree_vertex()])
    with forced("as it likes"):
        alone, counts = bfs_on_cpu(graph, source, threads=1)
        together, others = bfs_on_cpu(graph, source, threads=threads)
    assert np.array_equal(alone, together)
    assert alone[alone != UNREACHED].max() + 1 == others.levels == counts.levels
    assert counts.vertices_visited == others.vertices_visited
    # Threads may list a vertex each.
    assert counts.arcs_examined <= others.arcs_examined < 1.1 * counts.arcs_examined


def test_the_queue_has_room_for_what_threads_list_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a level that several threads have listed, all other vertices may follow one by one."""
    rooms = []

    def run_team(function: Any, *arguments: Any, **options: Any) -> Any:
        rooms.append((len(arguments[5]), arguments[8].shape))
        return driver_run_team(function, *arguments, **options)

    driver_run_team = driver.run_team
    monkeypatch.setattr(driver, "run_team", run_team)
    graph = gw.generators.road(30, 30, seed=1)
    with forced("as it likes"):
        for threads in (1, 3):  # the second search finds the queue of the first
            bfs_on_cpu(graph, np.array([0]), threads=threads)
    (alone, _), (together, (_, _, listed)) = rooms
    assert alone > graph.vertex_count
    assert listed > 1
    assert together >= graph.vertex_count + listed


def test_what_is_left_behind_a_hub_is_not_swept_level_by_level() -> None:
    """The hub's arcs exceed what is left, which then takes thousands of levels of a vertex each."""
    leaves, path = 20_000, 4_000
    hub = leaves + 1
    core = np.arange(1, hub)
    ahead = np.arange(hub, hub + path)
    tails = np.concatenate([np.zeros(hub, int), np.full(leaves, hub), ahead])
    heads = np.concatenate([core, [hub], core, ahead + 1])
    graph = Graph.from_edges(tails, heads, vertex_count=hub + path + 1, directed=True)
    assert graph.reverse is not None
    distance, counts = bfs_on_cpu(graph, np.array([0]))
    assert distance.max() == counts.levels - 1 == path + 1
    assert counts.arcs_examined < 3 * graph.arc_count


@each_way
@each_team
@pytest.mark.parametrize("cutoff", [0, 1, 2, 7, 1 << 40])
def test_a_cutoff_leaves_what_is_farther_unreached(cutoff: int, threads: int, way: str) -> None:
    # On the star bottom-up pays at once, on the others the levels are many.
    for name in ("path", "grid", "star", "random undirected"):
        graph = named_graph(name)
        with forced(way) as arguments:
            distance, counts = bfs_on_cpu(
                graph, np.array([3]), cutoff=cutoff, threads=threads, **arguments
            )
        assert distance.tolist() == reference(graph, [3], cutoff)
        assert counts.levels <= cutoff


def test_a_target_stops_the_search() -> None:
    graph = Graph.from_edges(np.arange(999), np.arange(1, 1000), directed=False)
    distance, counts = bfs_on_cpu(graph, np.array([500]), target=503)
    assert counts.levels == 3
    assert np.flatnonzero(distance != UNREACHED).tolist() == list(range(497, 504))


def test_the_arrays_of_a_graph_are_left_alone_and_results_are_the_callers() -> None:
    graph = named_graph("grid")
    first, _ = bfs_on_cpu(graph, np.array([0]))
    kept = first.copy()
    second, _ = bfs_on_cpu(graph, np.array([5]))
    assert np.array_equal(first, kept)
    assert not np.array_equal(first, second)


def test_searches_of_one_graph_at_the_same_time_do_not_meet() -> None:
    graph = random_graph(3_000, 40_000, directed=False)
    sources = list(range(0, 3_000, 100))
    expected = [bfs_on_cpu(graph, np.array([s]), threads=1)[0] for s in sources]
    wrong = []

    def search(part: int) -> None:
        for i in range(part, len(sources), 3):
            with_threads = 1 + i % 2
            found, _ = bfs_on_cpu(
                graph, np.array([sources[i]]), threads=with_threads, alpha=1 << 40
            )
            if not np.array_equal(found, expected[i]):
                wrong.append(sources[i])

    with forced("bottom-up"):
        workers = [threading.Thread(target=search, args=(part,)) for part in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert wrong == []
    assert 1 <= len(graph._cache["search workspaces"]) <= 3


@each_way
@each_team
def test_an_abort_ends_the_search_early(threads: int, way: str) -> None:
    graph = named_graph("path")
    control = new_control()
    control[ABORT] = 1
    with forced(way) as arguments:
        _, counts = bfs_on_cpu(graph, np.array([0]), threads=threads, control=control, **arguments)
        assert not counts.completed
        # The next search of the graph is not disturbed.
        distance, counts = bfs_on_cpu(graph, np.array([0]), threads=threads, **arguments)
    assert counts.completed
    assert distance.tolist() == list(range(300))
