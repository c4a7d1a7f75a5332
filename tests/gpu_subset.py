"""Launches every kernel once or more, on small graphs: the subset that runs under compute-sanitizer.

    compute-sanitizer --tool memcheck  python tests/gpu_subset.py 1
    compute-sanitizer --tool memcheck  python tests/gpu_subset.py 2
    compute-sanitizer --tool racecheck python tests/gpu_subset.py 1 unions searches

The number is that of endpoints; where there are fewer GPUs, endpoints share one. It ends with status 1 if a
result is wrong. racecheck sees shared memory; what is in global and peer memory has its stress tests.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

import numpy as np

import godwit as gw
from godwit.algorithms.communities import levels, levels_cuda
from godwit.algorithms.similarity import cuda as similarity_steps
from godwit.algorithms.triangles import cuda as triangle_steps
from godwit.runtime.cuda import driver
from godwit.runtime.gpu_options import ExperimentOptions, Schedule

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))


def devices_for(endpoints: int) -> list[str]:
    """So many endpoints, on as many GPUs as there are."""
    return [f"cuda:{place % driver.device_count()}" for place in range(endpoints)]


def check(name: str, found: object, wanted: object, tolerance: float = 0.0) -> None:
    """Compare a result with the CPU's."""
    same = np.allclose(found, wanted, rtol=0, atol=tolerance, equal_nan=True)  # type: ignore[arg-type]
    print(f"{name}: {'right' if same else 'WRONG'}", flush=True)
    if not same:
        raise SystemExit(1)


def run_programs(devices: list[str]) -> None:
    """Every built-in program, packed and not, weighted and not, ids of 32 and 64 bits."""
    from residual_pagerank import residual_pagerank
    from widest_path import widest_path

    wide = gw.generators.rmat(9, 6, seed=1, weights=(1, 9))
    hub = gw.generators.star(3000)
    thin = gw.generators.road(30, seed=1, weights=(1, 9))
    ids = gw.Graph(wide.offsets, wide.targets.astype(np.int64), wide.weights, directed=False)
    for name, graph in {"wide": wide, "hub": hub, "thin": thin, "ids": ids}.items():
        source = graph.highest_degree_vertex()
        for query in (gw.bfs, gw.sssp):
            wanted = query(graph, source, devices="cpu").distance
            for transport in ("direct", "host", "ring"):
                gpu = ExperimentOptions(hops=2, transport=transport)
                found = query(
                    graph, source, devices=devices, gpu=gpu, worker=gw.WorkerOptions(ring_items=50)
                ).distance
                check(f"{query.__name__} {name} {transport}", found, wanted)
            there = query(graph, source, devices=devices, partition="random", results="cuda:0")
            check(f"{query.__name__} {name} on the GPU", there.distance.get(), wanted)
    real = wide.with_weights(wide.weights.astype(np.float64))  # type: ignore[union-attr]
    check(
        "sssp float64",
        gw.sssp(real, 0, devices=devices).distance,
        gw.sssp(real, 0, devices="cpu").distance,
    )
    counted = gw.VertexProgram(
        name="counted", combine="min", dtype="int32", field_dtype="int64", field_initial=0,
        message=lambda value, weight: value + weight, update=lambda field: field + 1,
    )  # fmt: skip
    wanted = gw.run(counted, wide, {0: 0}, devices="cpu").values
    check("fields", gw.run(counted, wide, {0: 0}, devices=devices).values, wanted)
    check("widest", widest_path(wide, 0, devices=devices), widest_path(wide, 0, devices="cpu"))
    exact = residual_pagerank(wide, epsilon=1e-12, devices="cpu")
    check("pagerank", residual_pagerank(wide, epsilon=1e-7, devices=devices), exact, 1e-5)
    skewed = gw.generators.rmat(12, 16, seed=1, weights=(1, 64))
    with gw.place(skewed, devices[0]) as placed:
        for source in (0, skewed.highest_degree_vertex()):
            result = gw.sssp(placed, source)
            assert result.statistics.solver == "direction-optimizing"
            wanted = gw.sssp(skewed, source, devices="cpu").distance
            check(f"sssp of a skewed graph from {source}", result.distance, wanted)


def few_blocks(devices: list[str]) -> list[dict[str, Any]]:
    """Options of kernels in supersteps: racecheck takes long for each block that waits.

    How several devices tell each other is an option of its own.
    """
    alone: list[dict[str, Any]] = [{"blocks": 6}, {"slice_s": 0, "blocks": 2}]
    return alone if len(devices) == 1 else [*alone, {"blocks": 6, "transport": "host"}]


def run_ranks(devices: list[str]) -> None:
    """PageRank in supersteps: rows of every class, directed and not, weighted and not."""
    generator = np.random.default_rng(2)
    lengths = [4500, 4200, 300, 60, 9, 3, 1]
    targets = np.repeat(np.arange(len(lengths)), lengths)
    sources = generator.integers(0, 4600, len(targets))
    weights = generator.integers(0, 9, len(targets))
    ways = [ExperimentOptions(**asked) for asked in few_blocks(devices)]
    broadcasts = [ExperimentOptions(blocks=6, communication="broadcast")] * (len(devices) > 1)
    for directed in (False, True):
        graph = gw.Graph.from_edges(sources, targets, weights, vertex_count=4602, directed=directed)
        for weighted in (False, True):
            for dtype in ("float32", "float64"):
                settings: dict[str, Any] = {
                    "weighted": weighted,
                    "dtype": dtype,
                    "max_iterations": 3,
                }
                wanted = gw.pagerank(graph, devices="cpu", **settings).rank
                for gpu in ways + broadcasts:
                    found = gw.pagerank(graph, devices=devices, gpu=gpu, **settings).rank
                    name = f"ranks {dtype}, {directed=}, {weighted=}, {gpu=}"
                    check(name, found, wanted, 1e-6 if dtype == "float32" else 1e-14)
        with gw.place(graph, devices, duplication="1-hop") as placed:
            for weighted in (False, True):
                settings = {"weighted": weighted, "max_iterations": 3}
                wanted = gw.pagerank(graph, devices="cpu", **settings).rank
                for gpu in ways:
                    found = gw.pagerank(placed, gpu=gpu, **settings).rank
                    check(
                        f"ranks 1-hop, {directed=}, {weighted=}, {gpu=}",
                        found,
                        wanted,
                        1e-14,
                    )


def run_tiles(devices: list[str]) -> None:
    """PageRank and power iterations by tiles: several, of few and many rows, weighted and not.

    Few blocks and iterations: racecheck takes long for each access to shared memory.
    """
    from godwit.supersteps import tiled_rows

    usual = tiled_rows.LEAST_GAINING_ARCS, tiled_rows.LEAST_TILE_WORK
    tiled_rows.LEAST_GAINING_ARCS, tiled_rows.LEAST_TILE_WORK = 0, 1000
    options = ExperimentOptions(blocks=8), ExperimentOptions(slice_s=0, blocks=2)
    for directed in (False, True):
        graph = gw.generators.rmat(9, 9, seed=2, symmetrize=not directed, weights=(0, 9))
        with gw.place(graph, devices) as placed:
            for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-14)):
                settings: dict[str, Any] = {"dtype": dtype, "max_iterations": 3}
                settings["weighted"] = directed == (dtype == "float32")
                wanted = gw.pagerank(graph, devices="cpu", **settings).rank
                for gpu in options:
                    found = gw.pagerank(placed, gpu=gpu, **settings).rank
                    check(f"ranks by tiles {dtype}, {directed=}, {gpu=}", found, wanted, tolerance)
            settings = {"weighted": directed, "tolerance": 1e-2}
            for gpu in options:
                hubs = gw.hits(graph, devices="cpu", **settings).hubs
                found = gw.hits(placed, gpu=gpu, **settings).hubs
                check(f"hubs by tiles, {directed=}, {gpu=}", found, hubs, 1e-12)
                wanted = gw.eigenvector_centrality(graph, devices="cpu", **settings).centrality
                found = gw.eigenvector_centrality(placed, gpu=gpu, **settings).centrality
                check(f"eigenvector by tiles, {directed=}, {gpu=}", found, wanted, 1e-12)
    tiled_rows.LEAST_GAINING_ARCS, tiled_rows.LEAST_TILE_WORK = usual


def run_dependencies(devices: list[str]) -> None:
    """Betweenness: by all blocks and by each for itself; rows of every class; arcs, too."""
    from godwit.algorithms.betweenness import cuda as brandes_steps

    usual = brandes_steps.gpus_apart
    wide = gw.generators.rmat(9, 6, seed=1)
    arcs = gw.generators.rmat(8, 6, seed=1, symmetrize=False)
    for name, graph in {"wide": wide, "arcs": arcs, "hub": gw.generators.star(4500)}.items():
        for sources in ([1], [0, 2, 5], range(100)):
            # Of many sources each device has some to itself.
            brandes_steps.gpus_apart = usual if len(sources) > 3 else lambda *_: 0
            for gpu in (gw.GpuOptions(), ExperimentOptions(slice_s=0, blocks=2)):
                settings: dict[str, Any] = {"sources": sources, "edges": True, "endpoints": True}
                wanted = gw.betweenness_centrality(graph, devices="cpu", **settings)
                found = gw.betweenness_centrality(graph, devices=devices, gpu=gpu, **settings)
                what = f"betweenness {name}, {len(sources)} sources, {gpu.slice_s=}"
                check(what, found.centrality, wanted.centrality, 1e-9)
                check(f"{what}, arcs", found.edge_centrality, wanted.edge_centrality, 1e-9)
    brandes_steps.gpus_apart = usual


def run_searches(devices: list[str]) -> None:
    """BFS in supersteps: pushed and pulled, queues that grow, long rows, hubs, two blocks, schedules."""
    from godwit.supersteps import rows as step_rows

    hub_arcs = step_rows.HUB_ARCS
    wide = gw.generators.rmat(9, 8, seed=1)
    arcs = gw.generators.rmat(9, 6, seed=1, symmetrize=False)
    hub, path = gw.generators.star(4500), gw.generators.path(60)
    ids = gw.Graph(wide.offsets, wide.targets.astype(np.int64), directed=False)
    turns: tuple[dict[str, float], ...] = (
        {}, {"turn_down": math.inf}, {"turn_down": 0.0, "turn_back": math.inf},
    )  # fmt: skip
    for name, graph in {"wide": wide, "arcs": arcs, "hub": hub, "path": path, "ids": ids}.items():
        source = graph.highest_degree_vertex()
        wanted = gw.bfs(graph, source, devices="cpu").distance
        for turn in turns if graph in (wide, arcs, hub) else turns[:1]:
            step_rows.HUB_ARCS = 8 if turn else hub_arcs
            for asked in few_blocks(devices):
                more = asked | ({"frontier_items": 1} if "slice_s" in asked else {})
                found = gw.bfs(
                    graph, source, devices=devices, execution="bulk-synchronous",
                    gpu=ExperimentOptions(**turn, **more),  # type: ignore[arg-type]
                )  # fmt: skip
                check(f"search {name}, {turn=}, {more=}", found.distance, wanted)
    step_rows.HUB_ARCS = hub_arcs
    wanted = gw.bfs(hub, 9, devices="cpu").distance
    for schedule in get_args(Schedule):
        gpu = ExperimentOptions(schedule=schedule, turn_down=math.inf, blocks=6)
        found = gw.bfs(hub, 9, devices=devices, execution="bulk-synchronous", gpu=gpu)
        check(f"search hub, {schedule=}", found.distance, wanted)


def run_distances(devices: list[str]) -> None:
    """Distances from many sources: in bits, over a contracted graph, side by side; matrices and sums."""
    from godwit.algorithms.distances import contraction, cpu, cuda

    wide = gw.generators.rmat(10, 8, weights=(1, 9), seed=1)
    road = gw.generators.road(12, 17, weights=(1, 9), seed=4)
    deep, many, gain = cpu.is_deep, cuda._MANY_SOURCES, contraction._LEAST_GAIN
    cases = [
        ("wide", wide.without_weights(), "in bits"),
        ("hub", gw.generators.star(4500), "in bits"),
        ("road", road, "contracted"),
        ("road", gw.Graph(*road.rows), "side by side"),
        ("wide", wide, "side by side"),
    ]
    for name, graph, way in cases:
        cpu.is_deep = lambda graph, way=way: way != "in bits"  # type: ignore[misc]
        cuda._MANY_SOURCES = 0 if way == "contracted" else 1 << 40
        contraction._LEAST_GAIN = 0
        n = graph.vertex_count
        few = np.arange(0, n, 1 + n // 70)
        for sources in (few, np.arange(0, n, 1 + n // 300)):
            wanted = gw.distances(graph, sources, devices="cpu").distance
            found = gw.distances(graph, sources, devices=devices)
            check(f"distances {name}, {way}", found.distance, wanted)
        centrality = gw.harmonic_centrality(graph, few, devices="cpu").centrality
        sums = gw.harmonic_centrality(graph, few, devices=devices)
        check(f"sums {name}, {way}", sums.centrality, centrality, 1e-9)
    cpu.is_deep, cuda._MANY_SOURCES, contraction._LEAST_GAIN = deep, many, gain


def run_unions(devices: list[str]) -> None:
    """Connected components by every method and merge, with long rows, directed and not."""
    wide = gw.generators.rmat(10, 8, seed=1)
    arcs = gw.generators.rmat(9, 3, seed=1, symmetrize=False)
    thin, hub = gw.generators.road(30, seed=1), gw.generators.star(4500)
    for name, graph in {"wide": wide, "arcs": arcs, "thin": thin, "hub": hub}.items():
        wanted = gw.connected_components(graph, devices="cpu").label
        for method in ("afforest", "rem", "hook"):
            for merge in ("direct", "tree"):
                for rounds, gpu in (
                    (None, gw.GpuOptions()),
                    (2, ExperimentOptions(slice_s=0, blocks=2)),
                ):
                    found = gw.connected_components(
                        graph, method=method, merge=merge, rounds=rounds, devices=devices, gpu=gpu
                    )
                    check(f"unions {name}, {method}, {merge}, {rounds=}", found.label, wanted)


def run_structure(devices: list[str]) -> None:
    """Core numbers, independent sets and colourings: short and long rows, directed and not."""
    wide = gw.generators.rmat(9, 6, seed=1)
    arcs = gw.generators.rmat(8, 6, seed=1, symmetrize=False)
    clique, hub = gw.generators.complete(200), gw.generators.star(20_000)
    for name, graph in {"wide": wide, "arcs": arcs, "clique": clique, "hub": hub}.items():
        for gpu in (gw.GpuOptions(), ExperimentOptions(slice_s=0, blocks=2)):
            for function, attribute in (
                (gw.core_number, "core"),
                (gw.maximal_independent_set, "member"),
                (gw.greedy_color, "color"),
            ):
                wanted = getattr(function(graph, devices="cpu"), attribute)
                found = getattr(function(graph, devices=devices, gpu=gpu), attribute)
                check(f"{function.__name__} {name}, {gpu=}", found, wanted)


def run_triangles(devices: list[str]) -> None:
    """Triangles, clustering and similarity: long and short rows, with values and without."""
    # Small graphs are shared by several GPUs, too.
    triangle_steps._LEAST_SHARE_ARCS = 1
    similarity_steps._LEAST_SHARE_PAIRS = similarity_steps._LEAST_SHARE_ARCS = 1
    wide: Any = gw.generators.rmat(9, 16, seed=1, weights=(1, 9))
    clique, hub = gw.generators.complete(300), gw.generators.star(5000)
    for name, graph in {"wide": wide, "clique": clique, "hub": hub}.items():
        for gpu in (gw.GpuOptions(), ExperimentOptions(slice_s=0, blocks=2)):
            counts = gw.triangles(graph, devices="cpu").triangles
            check(
                f"triangles {name}, {gpu=}",
                gw.triangles(graph, devices=devices, gpu=gpu).triangles,
                counts,
            )
            shares = gw.clustering(graph, devices="cpu").clustering
            found = gw.clustering(graph, devices=devices, gpu=gpu).clustering
            check(f"clustering {name}, {gpu=}", found, shares, 1e-9)
    pairs = np.random.default_rng(1).integers(0, wide.vertex_count, (500, 2))
    similarity_steps.HUB_DEGREE, similarity_steps._MOST_BITMAP_BYTES = 20, 32
    similarity_steps.LEAST_PAIRS = 2
    for function in (gw.jaccard, gw.adamic_adar):
        wanted = function(wide, pairs, devices="cpu").score
        check(f"{function.__name__}", function(wide, pairs, devices=devices).score, wanted, 1e-9)
        every = function(wide, above=0.1, devices=devices)
        wanted = function(wide, above=0.1, devices="cpu")
        check(f"{function.__name__}, all pairs", every.score, wanted.score, 1e-9)


def run_truss(devices: list[str]) -> None:
    """Truss numbers: long and short rows, many levels and few."""
    graphs = {
        "wide": gw.generators.rmat(9, 12, seed=1),
        "clique": gw.generators.complete(150),
        "hub": gw.generators.star(5000),
    }
    for name, graph in graphs.items():
        for gpu in (gw.GpuOptions(), ExperimentOptions(slice_s=0, blocks=2)):
            wanted = gw.truss_number(graph, devices="cpu").truss
            found = gw.truss_number(graph, devices=devices, gpu=gpu).truss
            check(f"truss numbers {name}, {gpu=}", found, wanted)


def run_communities(devices: list[str]) -> None:
    """Label propagation, Louvain, Leiden: rows of all tables, weighted and not, directed and not."""
    levels.SMALL_VERTICES = levels_cuda.SMALL_VERTICES = 16  # no level has 1024 classes
    wide: Any = gw.generators.rmat(9, 12, seed=1)
    graphs = {
        "wide": wide,
        "one way": gw.generators.rmat(9, 12, seed=1, symmetrize=False),
        "weights": wide.with_random_weights(0.5, 2.0, seed=1),
        "thin": gw.generators.road(30, seed=1),
        "hub": gw.generators.star(9000),
    }
    for name, graph in graphs.items():
        for variant in ("parts", "cdlp"):
            settings: dict[str, Any] = {"variant": variant, "max_iterations": 4}
            wanted = gw.label_propagation(graph, devices="cpu", **settings)
            for gpu in (gw.GpuOptions(), ExperimentOptions(blocks=2, threads=64)):
                found = gw.label_propagation(graph, devices=devices, gpu=gpu, **settings)
                check(f"labels {name}, {variant}, {gpu=}", found.label, wanted.label)
                values = np.array([found.modularity]), np.array([wanted.modularity])
                check(f"modularity {name}, {variant}, {gpu=}", *values)
        wanted = gw.leiden(graph, iterations=1, devices="cpu")
        for gpu in (gw.GpuOptions(), ExperimentOptions(blocks=2, threads=64)):
            found = gw.leiden(graph, iterations=1, devices=devices, gpu=gpu)
            check(f"leiden {name}, {gpu=}", found.label, wanted.label)


def run_strong(devices: list[str]) -> None:
    """Strong components and generations: a large component, many small ones, long rows, none."""
    graphs = {
        "wide": gw.generators.rmat(10, 8, seed=1, symmetrize=False),
        "thin": gw.generators.rmat(10, 1, seed=1, symmetrize=False),
        "cycle": gw.Graph.from_edges(range(300), [*range(1, 300), 0]),
    }
    for name, graph in graphs.items():
        for gpu in (gw.GpuOptions(), ExperimentOptions(slice_s=0, blocks=2)):
            wanted = gw.strongly_connected_components(graph, devices="cpu").label
            found = gw.strongly_connected_components(graph, devices=devices, gpu=gpu).label
            check(f"strong components {name}, {gpu=}", found, wanted)
            low, high = np.sort(graph.to_edges()[:2], axis=0)
            edges = low[low != high], high[low != high]
            acyclic = gw.Graph.from_edges(*edges, vertex_count=graph.vertex_count)
            wanted = gw.topological_generations(acyclic, devices="cpu").generation
            found = gw.topological_generations(acyclic, devices=devices, gpu=gpu).generation
            check(f"generations {name}, {gpu=}", found, wanted)


def run_step_programs(devices: list[str]) -> None:
    """A program with most operators, and one with arcs."""
    from k_core import core_numbers
    from step_programs import COMPONENTS, LEVELS

    graph = gw.generators.rmat(8, 6, seed=1)
    check("k-core", core_numbers(graph, devices=devices), core_numbers(graph, devices="cpu"))
    wanted = COMPONENTS.run(graph, devices="cpu")
    for gpu in (gw.GpuOptions(), gw.GpuOptions(transport="host")):
        found = COMPONENTS.run(graph, devices=devices, gpu=gpu)
        for field in wanted.fields:
            check(f"components, {field}, {gpu=}", found.fields[field], wanted.fields[field])
    level = LEVELS.run(graph, [0], devices="cpu").fields["level"]
    for way in ("selective", "broadcast"):
        gpu = gw.GpuOptions(communication=way)  # type: ignore[arg-type]
        told = LEVELS.run(graph, [0], devices=devices, gpu=gpu)
        check(f"levels, {way}", told.fields["level"], level)


def exchange(
    endpoint: gw.Endpoint, router: gw.Router, values: object, sums: dict[str, int]
) -> None:
    """A worker that sends to all, and adds up what it gets."""
    with router.input(endpoint) as link:
        link.send(values)
    sums[endpoint.name] = sum(int(one.array.sum()) for one in router.output(endpoint))


def run_links(devices: list[str]) -> None:
    """Segments between all pairs of endpoints, through routers, the host's memory and small buffers."""
    for transport in ("direct", "host"):
        with gw.Context([*devices, "cpu"], transport=transport) as context:  # type: ignore[arg-type]
            ends = [context.host, *context.endpoints]
            values = np.arange(1000, dtype=np.int32)
            router = gw.Router(ends, ends, "broadcast", packet_bytes=256, buffers=2)
            sums: dict[str, int] = {}

            with context.workers() as workers:
                workers.each(ends, exchange, router, values, sums)
            wanted = int(values.sum()) * (len(ends) - 1)
            check(f"links, {transport}", list(sums.values()), [wanted] * len(ends))


def run_filters(devices: list[str]) -> None:
    """Packets in order and not, on GPUs alone and beside the CPU."""
    values = np.random.default_rng(5).random(70_001).astype(np.float32)
    wanted = values[values > 0.5]
    for places in (devices, [*devices, "cpu"]):
        for ordered in (True, False):
            found = gw.filter(
                values, lambda x: x > 0.5, devices=places, ordered=ordered, packet_bytes=9_000
            )
            check(f"filter, {ordered=}", np.sort(found) if not ordered else found,
                  np.sort(wanted) if not ordered else wanted)  # fmt: skip


def run_streams(devices: list[str]) -> None:
    """Edges that stream to endpoints, whose forests are merged."""
    edges = np.random.default_rng(6).integers(0, 3000, (4001, 2)).astype(np.int32)
    wanted = gw.connected_components_of_edges(edges, vertex_count=3000, devices="cpu").label
    for method in ("rem", "hook"):
        for rounds in (0, 1):
            found = gw.connected_components_of_edges(
                edges,
                vertex_count=3000,
                method=method,
                rounds=rounds,
                devices=devices,
                packet_bytes=2048,
            )
            check(f"stream, {method}, {rounds=}", found.label, wanted)


def run_arrays(_devices: list[str]) -> None:
    """Rows of arcs that lie on the GPU, with weights and without, ids of 32 and 64 bits."""
    import cupy

    generator = np.random.default_rng(3)
    for ids in (np.int32, np.int64):
        ends = generator.integers(0, 500, (2, 4000)).astype(ids)
        for weights in (None, generator.integers(0, 9, 4000), generator.random(4000)):
            wanted = gw.Graph.from_edges(*ends, weights, vertex_count=500)
            on_gpu = None if weights is None else cupy.asarray(weights)
            made = gw.Graph.from_edges(*cupy.asarray(ends), on_gpu, vertex_count=500)
            check("arcs on the GPU", made.targets, wanted.targets)
            if weights is not None:
                check("their weights", made.weights, wanted.weights)


def run_measurements(devices: list[str]) -> None:
    """The kernels of benchmarks/devices.py."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import devices as benchmark

    benchmark.measure(range(min(len(devices), driver.device_count())))
    print("measured", flush=True)


def run_generators(_devices: list[str]) -> None:
    """R-MAT and grids."""
    for spec in ("rmat:9,weights=1..9", "road:40,weights=1..9", "rmat:8,symmetrize=false"):
        wanted = gw.generate(spec)
        made = gw.generate(spec, device="cuda:0")
        check(f"{spec} offsets", made.offsets, wanted.offsets)
        check(f"{spec} targets", made.targets, wanted.targets)
        if wanted.weights is not None:
            check(f"{spec} weights", made.weights, wanted.weights)


def run_forests(devices: list[str]) -> None:
    """Spanning forests, random walks and samples: weights of 32 and 64 bits, hubs, all ways to draw."""
    wide: Any = gw.generators.rmat(9, 16, seed=1, weights=(-9, 9))
    thin = gw.generators.road(30, seed=1, weights=(1, 9))
    real = wide.with_weights(wide.weights.astype(np.float64))
    hub = gw.generators.star(3000)
    for name, graph in {"wide": wide, "real": real, "thin": thin, "hub": hub}.items():
        for maximum in (False, True):
            wanted = gw.minimum_spanning_forest(graph, maximum, devices="cpu").arcs
            for gpu in (gw.GpuOptions(), ExperimentOptions(slice_s=0, blocks=2)):
                found = gw.minimum_spanning_forest(graph, maximum, devices=devices, gpu=gpu)
                check(f"forest {name}, {maximum=}", found.arcs, wanted)
    for name, graph in {"thin": thin, "hub": hub}.items():
        for p, q in ((1, 1), (0.5, 2), (1e9, 1e-9)):
            sources = range(graph.vertex_count)
            wanted = gw.random_walks(graph, sources, 9, p=p, q=q, devices="cpu")
            walks = gw.random_walks(graph, sources, 9, p=p, q=q, devices=devices)
            check(f"walks {name}, {p=}, {q=}", walks, wanted)
        for replace in (False, True):
            query: Any = (graph, range(0, graph.vertex_count, 7), [3, 80, -1])
            wanted = gw.sample_neighbors(*query, replace=replace, devices="cpu").edges
            found = gw.sample_neighbors(*query, replace=replace, devices=devices).edges
            check(f"sample {name}, {replace=}", found, wanted)


SUPERSTEPS = {
    "searches": run_searches,
    "distances": run_distances,
    "ranks": run_ranks,
    "tiles": run_tiles,
    "unions": run_unions,
    "structure": run_structure,
    "triangles": run_triangles,
    "strong": run_strong,
    "truss": run_truss,
    "communities": run_communities,
    "dependencies": run_dependencies,
    "step-programs": run_step_programs,
    "forests": run_forests,
}
DATAFLOW = {"links": run_links, "filters": run_filters, "streams": run_streams}
PARTS: dict[str, dict[str, Callable[[list[str]], None]]] = {
    "programs": {"programs": run_programs},
    "supersteps": SUPERSTEPS,
    "generators": {"generators": run_generators, "arrays": run_arrays},
    "dataflow": DATAFLOW,
    "measurements": {"measurements": run_measurements},
}


def main() -> None:
    """Run what the command line names: all, parts, or parts of parts."""
    begin = perf_counter()
    endpoints = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    asked = set(sys.argv[2:] or PARTS)
    unknown = asked - {name for part, runs in PARTS.items() for name in (part, *runs)}
    if unknown:
        sys.exit(f"there is no part {', '.join(sorted(unknown))}")
    for part, runs in PARTS.items():
        for name, run in runs.items():
            if asked & {part, name}:
                run(devices_for(endpoints))
    print(f"all right in {perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
