"""What the processes of test_distributed.py run: ``mpiexec -n 3 python distributed_checks.py CHECKS DIR``.

A check raises in the process that finds something wrong, which ends all of them.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import godwit as gw
from godwit.distributed import exchange, shared
from godwit.distributed import processes as waiting
from programs import FEWEST_HOPS, GAINED, LABELS, LOST, NUMBERED, RESIDUAL, WALKS, WIDEST

waiting._PATIENT_S = 2e-4  # of processes, there are more than cores: those that wait leave these
processes = gw.distributed.context()
rank = processes.rank
is_first = rank == 0


_FEW = (
    "empty", "one self-loop", "isolated vertices, weighted", "star", "cycle",
    "parallel edges and self-loops",
    "all weights zero", "64-bit ids",
)  # fmt: skip


def random_graphs(count: int = 12, seed: int = 28) -> Iterator[gw.Graph]:
    """Yield graphs of all kinds: directed or not, with ids, with weights of each dtype."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        n = int(generator.integers(1, 600))
        m = int(generator.integers(0, 4 * n))
        sources, targets = generator.integers(0, n, (2, m))
        weights = (
            None,
            generator.integers(0, 9, m).astype(np.int32),
            generator.random(m),
        )[number % 3]
        ids: Any = (0, 100, [f"v{v}" for v in range(n)], 3 * np.arange(n))[number % 4]
        yield gw.Graph.from_edges(
            sources, targets, weights, vertex_count=n, directed=number % 2 == 0, ids=ids
        )


def some(graphs: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield all graphs, numbered, to two processes, and to others each fifth, of which no two are alike.

    More processes than cores take ten times as long, and one alone has nobody to tell anything.
    """
    for number, graph in enumerate(graphs):
        if processes.count == 2 or number % 5 == (processes.count == 1):
            yield number, graph


def check_results(folder: Path) -> None:
    """Compare with one process: bit by bit, and ranks up to rounding; print a hash of all ranks."""
    from graphs import named_graph

    ranks = hashlib.sha256()
    centralities = hashlib.sha256()
    same_iterations: list[bool] = []
    graphs = [
        *map(named_graph, _FEW),
        *random_graphs(),
        gw.generators.rmat(11, weights=(1, 64)),
        gw.generators.rmat(10, symmetrize=False),
        gw.generators.road(40, 50, weights=(1, 64)),
        zigzag(100),
        gw.Graph.from_edges(*diamonds(200, 32)),  # (its paths begin at vertex 0, too)
        zigzag(80).with_weights(np.zeros(318, np.int32)),
    ]
    for number, graph in enumerate(graphs):
        with processes.place(graph) as placed:
            if number % 4 == 1 or processes.count == 2:
                compare(graph, placed, number)
            if number % 3 != 1:  # as for all numbers of processes, whose bits are compared
                compare_centralities(graph, placed, number, centralities)
            result = gw.pagerank(placed).gather()
            if is_first:
                ranks.update(result.rank.tobytes())
                expected = gw.pagerank(graph)
                # Rounding may decide when iterations are accelerated, as of a star.
                bound = 1e-13 if result.iterations == expected.iterations else 1e-6 / 0.15
                assert np.abs(result.rank - expected.rank).sum() < bound, number
                same_iterations.append(result.iterations == expected.iterations)
    graph = graphs[-6]
    with processes.place(graph) as placed:
        options: dict[str, Any] = {
            "personalization": {0: 1.0, 5: 2.0},
            "dtype": "float32",
            "weighted": False,
        }
        result = gw.pagerank(placed, **options).gather()
        if is_first:
            ranks.update(result.rank.tobytes())
            np.testing.assert_allclose(result.rank, gw.pagerank(graph, **options).rank, atol=1e-7)
        check_tables(graph, placed, folder)
        check_statistics(placed)
    check_sharing()
    if is_first:
        assert np.mean(same_iterations) > 0.8
        print("ranks", ranks.hexdigest(), centralities.hexdigest())


def odd_graphs(count: int, seed: int) -> Iterator[gw.Graph]:
    """Yield random graphs of shapes that divide badly, with all kinds of ids and weights."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        sources, targets, n = _odd_edges(generator, number % len(_ODD_SHAPES))
        m = len(sources)
        weights: Any = (
            None,
            generator.integers(0, 9, m).astype(np.int32),
            generator.random(m) * 10.0 ** generator.integers(-30, 30, m),
            np.zeros(m, np.int32),
            generator.integers(0, 2, m) * generator.random(m).astype(np.float32),
            generator.integers(0, 1 << 40, m),
            np.full(m, 0.1),
        )[generator.integers(7)]
        ids: Any = (
            0,
            0,
            100,
            [f"v{v}" for v in range(n)],
            np.cumsum(generator.integers(1, 1 << 40, n)),
            generator.permutation(n),
        )[generator.integers(6)]
        yield gw.Graph.from_edges(
            sources, targets, weights, vertex_count=n, directed=bool(generator.integers(2)), ids=ids
        )


_ODD_SHAPES = (
    "random", "few vertices", "no edge", "star", "mostly isolated", "loops and parallel edges",
    "shuffled path", "between the halves", "within one word", "clique at the end", "forest", "skewed",
)  # fmt: skip


def _odd_edges(generator: np.random.Generator, shape: int) -> tuple[Any, Any, int]:
    """Return sources and targets of random edges, and the number of vertices."""
    name = _ODD_SHAPES[shape]
    n = int(generator.integers(1, 6 if name == "few vertices" else 700))
    m = int(generator.integers(0, 5 * n))
    sources, targets = generator.integers(0, n, (2, m))
    if name == "no edge":
        sources = targets = np.empty(0, np.int64)
    elif name == "star":
        targets = np.full(m, generator.integers(n))
    elif name == "mostly isolated":
        sources, targets = sources[:5], targets[:5]
    elif name == "loops and parallel edges":
        some = generator.integers(0, n, 4)
        sources, targets = some[sources % 4], some[targets % 4]
    elif name == "shuffled path":
        order = generator.permutation(n)[:100]
        sources, targets = order[:-1], order[1:]
    elif name == "between the halves":
        sources, targets = sources // 2, n // 2 + targets // 2
    elif name == "within one word":
        sources, targets = (n // 2 + np.stack([sources, targets]) % 64).clip(max=n - 1)
    elif name == "clique at the end":
        last = np.arange(max(0, n - 30), n)
        sources, targets = np.repeat(last, len(last)), np.tile(last, len(last))
    elif name == "forest":
        sources = np.flatnonzero(generator.random(n) < 0.9)
        targets = (sources * generator.random(len(sources))).astype(np.int64)
    elif name == "skewed":
        sources, targets = (n * generator.random((2, m)) ** 4).astype(np.int64)
    return sources, targets, n


def check_random(folder: Path) -> None:
    """Compare many random graphs with one process, and ranks with other numbers of processes.

    ``GODWIT_GRAPHS`` says how many: 200 take minutes.
    """
    hashes = hashlib.sha256(), hashlib.sha256()
    differences: Any = (0.0, 0.0)
    count = int(os.environ.get("GODWIT_GRAPHS", "6"))
    seed = int(os.environ.get("GODWIT_SEED", "200"))
    for number, graph in enumerate(odd_graphs(count, seed)):
        with processes.place(graph) as placed:
            differences = np.maximum(differences, compare_all(graph, placed, number, hashes))
    if is_first:
        compare_hashes(folder, f"{count} random graphs of seed {seed}", hashes)
        print(f"{count} random graphs on {processes.count} processes")
        print("largest difference of ranks in sum, of a centrality:", *differences)


def check_data(folder: Path) -> None:
    """Compare all graphs in the files of a folder, ``GODWIT_DATA``, with one process.

    They are read as ``.godwit`` files, and again as edge lists.
    """
    only = os.environ.get("GODWIT_FILES", "")  # a part of names
    native, text = folder / "graph.godwit", folder / "graph.txt"
    files = enumerate(graph_files(folder) if is_first else [])
    chosen = [(number, file) for number, file in files if only in file.name]
    for number, file in processes.share(chosen)[0]:
        begin = time.perf_counter()
        if is_first:
            graph = gw.read(file)
            if (
                graph.weights is not None
            ):  # negative ones, of one file, are refused by most functions
                weights = np.abs(graph.weights)
                graph = gw.Graph(
                    graph.offsets, graph.targets, weights, directed=graph.directed, ids=graph.ids
                )
            gw.write(graph, native)
            gw.write(graph, text, format="edge-list")
        processes.share(None)
        graph = gw.read(native)
        with processes.place(text, directed=graph.directed) as placed:
            compare_stored(gw.read(text, directed=graph.directed), placed)
        hashes = hashlib.sha256(), hashlib.sha256()
        with processes.place(native) as placed:
            differences = compare_all(graph, placed, number, hashes)
        if is_first:
            compare_hashes(folder, file.name, hashes)
            took_s = time.perf_counter() - begin
            print(file.name, *differences, f"{took_s:.1f} s", flush=True)


def graph_files(folder: Path) -> list[Path]:
    """Return the graph files of the folder ``GODWIT_DATA``, those of archives unpacked."""
    data = Path(os.environ["GODWIT_DATA"])
    for archive in sorted((data / "small").glob("*.tar.xz")):
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "unpacked", filter="data")
    small = [
        file for file in sorted((folder / "unpacked").rglob("*"))
        if file.suffix in (".gr", ".mtx", ".graph", ".el", ".wel")
        and file.name != "ak2010.mtx"  # (its header is damaged: of no format)
    ]  # fmt: skip
    return [*small, *sorted((data / "expected").rglob("*.v")), *sorted(data.glob("*.xz"))]


def compare_hashes(folder: Path, name: str, hashes: Any) -> None:
    """Compare hashes of ranks and centralities with those of an earlier run in the same folder."""
    made = " ".join(one.hexdigest() for one in hashes)
    file = folder / f"{name}.hashes"
    if not file.exists():
        file.write_text(made)
    assert file.read_text() == made, (
        f"{name}: ranks differ from those of other numbers of processes"
    )


def compare_all(graph: gw.Graph, placed: Any, number: int, hashes: Any) -> tuple[float, float]:
    """Compare all algorithms; add ranks and centralities to two hashes, return their differences."""
    compare(graph, placed, number)
    of_centralities = compare_centralities(graph, placed, number, hashes[1])
    of_ranks = 0.0
    result = gw.pagerank(placed, accelerated=False).gather()
    if is_first:
        hashes[0].update(result.rank.tobytes())
        expected = gw.pagerank(graph, accelerated=False, devices="cpu")
        assert result.iterations == expected.iterations
        of_ranks = float(np.abs(result.rank - expected.rank).sum())
        assert of_ranks < 1e-13, (number, of_ranks)
    return of_ranks, of_centralities


def zigzag(n: int) -> gw.Graph:
    """Return a path that goes to and fro between the halves of the vertices."""
    sources = np.concatenate([np.arange(n), np.arange(1, n)])
    targets = np.concatenate([np.arange(n) + n, np.arange(n - 1) + n])
    return gw.Graph.from_edges(sources, targets, directed=False)


def diamonds(count: int, width: int) -> tuple[Any, Any]:
    """Return the edges of a chain of diamonds, between whose ends are width^count paths, and a shortcut."""
    last = (width + 1) * count
    first = np.repeat(np.arange(0, last, width + 1), width)
    middle = first + np.tile(np.arange(1, width + 1), count)
    tail = last + np.arange(9)
    sources = np.concatenate([first, middle, [0], tail])
    targets = np.concatenate([middle, first + width + 1, [last + 1], tail + 1])
    return sources, targets


def compare(graph: gw.Graph, placed: Any, number: int) -> None:
    """Compare searches and components, also as tables of ids."""
    n = graph.vertex_count
    components = gw.connected_components(placed)
    rows = [row for part in processes.share(components.to_arrow().to_pylist()) for row in part]
    largest = components.largest(3)
    whole = components.gather()
    if is_first:
        expected = gw.connected_components(graph)
        assert largest == whole.largest(3) == expected.largest(3), number
        assert whole.to_dict() == expected.to_dict()
        np.testing.assert_array_equal(whole.label, expected.label, str(number))
        assert whole.count == expected.count
        assert rows == whole.to_arrow().to_pylist() == expected.to_arrow().to_pylist(), number
    if n == 0:
        return
    sources = [graph.ids[0]] if number % 3 else [graph.ids[0], graph.ids[n // 2]]
    cutoff = 3 if number % 5 == 4 else None
    target = graph.ids[n // 3] if number % 4 == 1 else None
    for search in (gw.bfs, gw.sssp):
        if number % 7 == 2:
            _ = placed.in_rows  # (those of a directed graph change how predecessors are found)
        part = search(placed, sources, target=target, cutoff=cutoff, predecessors=True)
        rows = [row for other in processes.share(part.to_arrow().to_pylist()) for row in other]
        parts = processes.share(part.to_dict())
        reached = {vertex: distance for known in parts for vertex, distance in known.items()}
        last = max(reached, key=lambda vertex: reached[vertex])
        path = part.path_to(last)
        result = part.gather()
        if is_first:
            found = search(graph, sources, target=target, cutoff=cutoff)
            np.testing.assert_array_equal(result.distance, found.distance, str(number))
            assert result.distance.dtype == found.distance.dtype
            assert result.to_dict() == found.to_dict()
            np.testing.assert_array_equal(result.predecessor, found.predecessor, str(number))
            assert rows == result.to_arrow().to_pylist() == found.to_arrow().to_pylist(), number
            assert path == result.path_to(last) == found.path_to(last), number


def compare_centralities(graph: gw.Graph, placed: Any, number: int, centralities: Any) -> float:
    """Compare betweenness with one process up to rounding, and add it to a hash.

    :returns: the largest difference relative to a value; 0 in all processes but the first
    """
    n = graph.vertex_count
    options: dict[str, Any] = {
        "weighted": False,
        "endpoints": number % 2 == 1,
        "normalized": number % 3 > 0,
        "scale": "sum" if number % 5 == 0 else "all",
    }
    if n > 20:
        options |= (
            {"samples": 3, "seed": number}
            if number % 4
            else {"sources": [graph.ids[n // 2], graph.ids[0]]}
        )
    part = gw.betweenness_centrality(placed, **options)
    highest = part.highest(4)
    result = part.gather()
    difference = 0.0
    if is_first:
        assert highest == result.highest(4)
        assert dict(highest).items() <= result.to_dict().items()
        expected = gw.betweenness_centrality(graph, devices="cpu", **options)
        np.testing.assert_allclose(
            result.centrality, expected.centrality, rtol=1e-12, atol=1e-14, err_msg=str(number)
        )
        positions = [graph.ids.position(one) for one in expected.sources]
        assert result.source_positions == positions
        centralities.update(result.centrality.tobytes())
        apart = np.abs(result.centrality - expected.centrality)
        difference = float((apart / np.maximum(np.abs(expected.centrality), 1e-2)).max(initial=0))
    return difference


def check_tables(graph: gw.Graph, placed: Any, folder: Path) -> None:
    """Write a part a process; together they are the result of one process."""
    result = gw.sssp(placed, 0)
    assert result.vertices == placed.vertices
    assert len(result.distance) == len(result.vertices)
    file = result.to_parquet(folder / "distances")
    assert (
        len(processes.share(str(file))) == len(set(processes.share(str(file)))) == processes.count
    )
    last = result.gather(processes.count - 1)
    assert (last is not None) == (rank == processes.count - 1)
    if is_first:
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(folder / "distances")
        distances = gw.sssp(graph, 0).to_arrow().select(["vertex", "distance"])
        assert table.sort_by("vertex").equals(distances)


def check_statistics(placed: Any) -> None:
    """All processes have the same counts; messages are counted where they are sent."""
    options: dict[str, Any] = {"accelerated": False, "max_iterations": 5, "tolerance": 1e-15}
    gw.pagerank(placed, **options)  # prepares the graph
    statistics = gw.pagerank(placed, **options).statistics
    assert statistics.processes == processes.count
    assert statistics.rounds.tolist() == [5] * processes.count
    assert statistics.arcs_relaxed.sum() == 5 * placed.arc_count
    counts = (
        statistics.supersteps,
        statistics.messages.tolist(),
        statistics.message_bytes.tolist(),
    )
    assert len({str(one) for one in processes.share(counts)}) == 1
    assert statistics.messages.shape == (processes.count, processes.count)
    assert not statistics.messages.diagonal().any()
    # Each superstep is a header of 64 bytes to every other process, and perhaps data.
    others = ~np.eye(processes.count, dtype=bool)
    assert (statistics.message_bytes[others] >= 64 * statistics.supersteps).all()
    # Values go to other machines alone.
    values = 6 * 8 * placed.rows.halo.border_counts
    values[processes.machine] = 0
    own = statistics.message_bytes[rank] - 64 * statistics.supersteps
    assert (own[others[rank]] >= values[others[rank]]).all()
    assert (own[processes.machine] <= 1024).all()
    found = gw.bfs(placed, placed.highest_degree_vertex())
    farthest = int(found.distance[found.reached].max(initial=0))
    assert found.statistics.levels == max(processes.share(farthest)) + 1


def check_sharing() -> None:
    """Ranks are the same if processes of a machine cannot share memory, or are late to use it."""
    from godwit.algorithms.pagerank import distributed

    if os.environ.get("MPIR_CVAR_ODD_EVEN_CLIQUES") == "1" and "PMI_SIZE" in os.environ:  # MPICH
        assert processes.machine == list(range(rank % 2, processes.count, 2))
    graph = gw.generators.rmat(9, symmetrize=False)

    def ranks() -> Any:
        with processes.place(graph) as placed:
            result = gw.pagerank(placed)
            sent = result.statistics.message_bytes
            again = gw.pagerank(
                placed, accelerated=False
            )  # in the memory that the first run has left
            np.testing.assert_array_equal(again.rank, result.rank)
            return result.rank, int(sent.sum())

    expected, sent = ranks()
    mapped, run_team = shared.mmap, distributed.run_team
    generator = np.random.default_rng(rank)

    def run_team_later(*arguments: Any, **options: Any) -> Any:
        time.sleep(generator.random() * 0.005)
        outcome = run_team(*arguments, **options)
        time.sleep(generator.random() * 0.005)
        return outcome

    try:
        distributed.run_team = run_team_later  # type: ignore[assignment]
        np.testing.assert_array_equal(ranks()[0], expected)
        distributed.run_team = run_team
        if rank == processes.count - 1:

            class Refused:
                def mmap(self, *arguments: Any) -> Any:
                    raise OSError("refused")

            shared.mmap = Refused()  # type: ignore[assignment]
        alone, sent_alone = ranks()
        np.testing.assert_array_equal(alone, expected)
        assert sent_alone > sent or len(processes.machine) == 1 or rank != processes.count - 1
    finally:
        shared.mmap, distributed.run_team = mapped, run_team


def check_files(folder: Path) -> None:
    """Read files by ranges of bytes: the graph is that of ``gw.read``."""
    exchange._PIECE = 50  # so that arcs go to their owners in several pieces
    generator = np.random.default_rng(5)
    sources, targets = generator.integers(0, 300, (2, 900))
    weights = generator.integers(1, 100, 900)

    def lines(*columns: Any) -> str:
        rows = zip(*columns, strict=True)
        return "".join(" ".join(map(str, row)) + "\n" for row in rows)

    late = [*weights[:880].tolist(), *(weights[880:] + 0.5).tolist()]
    texts = {
        "plain": lines(sources, targets),
        "weights": lines(sources, targets, weights),
        "declared": "# Undirected graph\n# Nodes: 400 Edges: 900\n"
        + lines(sources, targets, weights),
        "gaps": lines(sources * 7 + 3, targets * 7 + 3),
        "far apart": lines(sources * 10**9, targets * 10**9, weights)[:-1],
        "counted": "# Ids: from 5\n" + lines(sources + 5, targets + 5),
        "late reals": lines(sources, targets, late),
        "wide at last": lines(sources, targets, [*weights[:899].tolist(), 2**40]),
        "parallel": lines(sources % 20, targets % 20, weights),
        "one line": "1 2\n",
        "no arc": "# Directed graph\n# Nodes: 3 Edges: 0\n",
    }
    for name, text in texts.items():
        file = folder / f"{name}.txt"
        if is_first:
            file.write_text(text)
        processes.share(None)
        for directed in (None, False) if name in ("weights", "declared") else (None,):
            compare_stored(
                gw.read(file, directed=directed), processes.place(file, directed=directed)
            )
    with processes.place(folder / "counted.txt") as placed:  # ids in files are larger by a base
        compare(gw.read(folder / "counted.txt"), placed, 0)
    whole = gw.read(folder / "weights.txt")
    with processes.place(folder / "weights.txt", weighted=False) as placed:
        compare_stored(whole.without_weights(), placed)
    for number, graph in enumerate(random_graphs()):
        if number >= 4:
            break
        file = folder / f"{number}.godwit"
        if is_first:
            gw.write(graph, file)
            content = bytearray(file.read_bytes())
            content[-20] ^= 1
            file.with_suffix(".damaged").write_bytes(content)
        processes.share(None)
        compare_stored(graph, processes.place(file))
        expect(
            gw.errors.FormatError,
            "checksum",
            lambda f=file: processes.place(f.with_suffix(".damaged")),
        )
    check_writing(folder)
    for spec in (
        "rmat:9,seed=4,weights=1..64", "rmat:8,symmetrize=false", "rmat:8,simple=false", "uniform:700",
        "watts-strogatz:900", "barabasi-albert:600,weights=0.0..1.0", "road:30x40,weights=1..9", "path:5",
        "rmat:6,copies=3", "rmat:0",
    ):  # fmt: skip
        compare_stored(gw.generate(spec), processes.place(spec))


def check_writing(folder: Path) -> None:
    """A file that all write is bit by bit that of one process; none is left if one fails."""
    file, expected = folder / "written.godwit", folder / "expected.godwit"
    for graph in (*random_graphs(), gw.Graph.from_edges([], []), gw.generators.rmat(8)):
        placed = processes.place(graph)
        gw.write(placed, file)
        if is_first:
            gw.write(graph, expected)
            assert file.read_bytes() == expected.read_bytes()
        compare_stored(graph, processes.place(file))
    expect(gw.errors.InputError, "godwit convert", lambda: gw.write(placed, folder / "web.txt"))
    nowhere = folder / "nowhere" / "a.godwit"
    expect(gw.errors.FileError, "cannot write", lambda: gw.write(placed, nowhere))
    objects = gw.Graph.from_edges([0, 1], [1, 2], ids=[(0, 1), (1, 2), (2, 3)])
    several = processes.place(objects)
    expect(gw.errors.InputError, "objects", lambda: gw.write(several, file))
    compare_stored(graph, processes.place(file))  # what was there is unchanged
    processes.share(None)
    assert not list(folder.glob(".godwit-*"))


def check_checkpoints(folder: Path) -> None:
    """A run that goes on has the bits of one that was not interrupted; print a hash of the ranks."""
    saved = folder.parent / "checkpoint"  # of runs with other numbers of processes, too
    errors = gw.errors
    ranks = hashlib.sha256()
    graphs = [
        gw.generators.rmat(9, symmetrize=False),
        gw.generators.rmat(9, weights=(1, 9)),
        gw.generators.road(20, 30),
        gw.Graph.from_edges([], [], vertex_count=70),
    ]
    for number, graph in enumerate(graphs):
        options: dict[str, Any] = {"tolerance": 1e-12}
        if number == 1:
            options |= {
                "personalization": {3: 1.0, 400: 2.0},
                "dtype": "float32",
                "tolerance": 1e-6,
            }
        with processes.place(graph) as placed:
            expected = gw.pagerank(placed, **options)
            kept = {"checkpoint": saved / str(number), "checkpoint_s": 0, **options}
            before = (saved / str(number) / "checkpoint.json").exists()
            processes.share(None)
            if not before:
                gw.pagerank(placed, max_iterations=5, **kept)
            resumed = gw.pagerank(placed, max_iterations=9, **kept)
            assert resumed.iterations == min(9, expected.iterations)
            kept["checkpoint"] = folder / f"whole {number}"
            gw.pagerank(placed, max_iterations=4, **kept)
            resumed = gw.pagerank(placed, **kept)
            np.testing.assert_array_equal(resumed.rank, expected.rank)
            assert (resumed.iterations, resumed.residual) == (
                expected.iterations, expected.residual
            )  # fmt: skip
            assert (resumed.statistics.rounds == max(0, expected.iterations - 4)).all()
            parts = list((folder / f"whole {number}").glob("*.npz"))
            assert len(parts) in (0, processes.count)
            kept["checkpoint"], kept["checkpoint_s"] = saved / str(number), 1e9
            np.testing.assert_array_equal(gw.pagerank(placed, **kept).rank, expected.rank)
            whole = resumed.gather()
            if is_first:
                ranks.update(whole.rank.tobytes())
    with processes.place(graphs[0]) as placed:
        apart = {"checkpoint": folder / f"of process {rank}", "tolerance": 1e-12}
        gw.pagerank(placed, max_iterations=4, checkpoint_s=0, **apart)
        alone = gw.pagerank(placed, max_iterations=6, **apart)  # each reads its own file
        expected = gw.pagerank(placed, max_iterations=6, tolerance=1e-12)
        np.testing.assert_array_equal(alone.rank, expected.rank)
        expect(
            errors.InputError,
            "iteration 4",
            lambda: gw.pagerank(placed, max_iterations=3, **apart),
        )
        if processes.count > 1:
            part_only = {"checkpoint": folder / "first only" if is_first else None}
            expect(errors.ProcessError, "different", lambda: gw.pagerank(placed, **part_only))
            expect(
                errors.ProcessError,
                "personalization differs",
                lambda: gw.pagerank(placed, personalization={rank: 1.0}),
            )
        if is_first:
            (folder / "foreign").mkdir()
            (folder / "foreign" / "checkpoint.json").write_text("[]")
        processes.share(None)
        foreign = {"checkpoint": folder / "foreign"}
        expect(errors.FormatError, "not the state", lambda: gw.pagerank(placed, **foreign))
        kept = {"checkpoint": folder / "whole 0", "tolerance": 1e-12}
        expect(errors.InputError, "damping 0.85", lambda: gw.pagerank(placed, 0.8, **kept))
        expect(
            errors.InputError, "checkpoint_s", lambda: gw.pagerank(placed, checkpoint_s=-1, **kept)
        )
        with processes.place(graphs[2]) as other:
            expect(errors.InputError, "vertices 512", lambda: gw.pagerank(other, **kept))
        changed = gw.Graph(graphs[0].offsets, graphs[0].targets[::-1].copy())
        with processes.place(changed) as other:
            expect(errors.InputError, "checksum of the arcs", lambda: gw.pagerank(other, **kept))
        processes.share(None)
        if is_first:
            part = min((folder / "whole 0").glob("*.npz"))
            content = bytearray(part.read_bytes())
            content[len(content) // 2] ^= 1
            part.write_bytes(content)
        processes.share(None)
        expect(errors.FormatError, "damaged", lambda: gw.pagerank(placed, **kept))
        processes.share(None)
        if is_first:
            part.unlink()
        processes.share(None)
        expect(errors.FileError, "cannot read", lambda: gw.pagerank(placed, **kept))
    if is_first:
        print("ranks", ranks.hexdigest())


def compare_stored(graph: gw.Graph, placed: Any) -> None:
    """Compare the rows of all processes, and their ids, with those of a graph."""
    rows = placed.rows
    parts = processes.share(
        (np.diff(rows.offsets), placed.targets_in_graph(), rows.weights, list(placed.ids.in_file))
    )
    degrees, targets, weights, ids = zip(*parts, strict=True)
    np.testing.assert_array_equal(np.concatenate(degrees), graph.out_degree())
    np.testing.assert_array_equal(np.concatenate(targets), graph.targets)
    if graph.weights is not None:
        np.testing.assert_array_equal(np.concatenate(weights), graph.weights)
        assert all(part.dtype == graph.weight_dtype for part in weights)
    assert [name for part in ids for name in part] == list(graph.ids.in_file)
    assert (placed.vertex_count, placed.arc_count) == (graph.vertex_count, graph.arc_count)
    assert placed.directed == graph.directed


def expect(kind: type[BaseException], text: str, function: Any) -> None:
    """Check that a call raises an error whose message has a text, in every process."""
    import pytest

    with pytest.raises(kind) as raised:
        function()
    notes = " ".join(getattr(raised.value, "__notes__", []))
    assert text in f"{raised.value} {notes}", (str(raised.value), notes)


def check_errors(folder: Path) -> None:
    """An error of one process is raised by all, which then can go on."""
    graph = processes.place("rmat:8")
    last = processes.count - 1
    expect(gw.errors.InputError, "source 999", lambda: gw.bfs(graph, 999))
    weighted = processes.place("rmat:5,weights=1..5")
    expect(gw.errors.InputError, "weighted=False", lambda: gw.betweenness_centrality(weighted))
    expect(gw.errors.InputError, "edges", lambda: gw.betweenness_centrality(graph, edges=True))
    expect(gw.errors.InputError, "devices", lambda: gw.bfs(graph, 0, devices="cpu"))
    expect(gw.errors.ProcessError, "different", lambda: gw.bfs(graph, 0 if is_first else 1))
    only_last: Any = {"timeout_s": -1 if rank == last else None}
    for function in (gw.bfs, gw.sssp):
        expect(gw.errors.InputError, "timeout_s", lambda f=function: f(graph, 0, **only_last))
    for call in (gw.connected_components, gw.pagerank, gw.betweenness_centrality):
        expect(gw.errors.InputError, "timeout_s", lambda f=call: f(graph, **only_last))
    expect(gw.errors.InputError, "predecessors", lambda: gw.bfs(graph, 0, predecessors="all"))
    expect(gw.errors.InputError, "predecessors=True", lambda: gw.bfs(graph, 0).path_to(1))
    with processes.place("path:200") as path:
        alone = gw.sssp(path, 70, cutoff=100).statistics
        found = gw.sssp(path, 70, cutoff=100, predecessors=True)
    assert found.path_to(7) == list(range(70, 6, -1))  # the graph is closed
    expect(gw.errors.InputError, "vertex 180 was not reached", lambda: found.path_to(180))
    expect(gw.errors.InputError, "vertex 200 is not in the graph", lambda: found.path_to(200))
    assert found.statistics.supersteps > alone.supersteps
    assert found.statistics.processed_items.tolist() == alone.processed_items.tolist()
    components = gw.connected_components(graph)
    expect(gw.errors.InputError, "count", lambda: components.largest(-1))
    expect(gw.errors.InputError, "count", lambda: gw.pagerank(graph).highest(1.5))
    functions: list[Any] = [gw.connected_components, gw.pagerank]
    expect(gw.errors.ProcessError, "different", lambda: functions[rank == last](graph))
    file = folder / "bad.txt"
    if is_first:
        file.write_text("1 2\n" * 100 + "7 x\n")
    processes.share(None)
    expect(gw.errors.FormatError, "bad.txt:101", lambda: processes.place(file))

    def fail_in_last() -> None:
        with processes.running("test"):
            processes.meet(1)
            if rank == last:
                raise ZeroDivisionError("of one process")
            processes.meet(2)

    expect(ZeroDivisionError, f"process {last} of {processes.count}", fail_in_last)

    def compute_unless_last() -> int:
        number = int(processes.meet(1).sum())
        if rank == last and not kept:
            raise ZeroDivisionError("of one process")
        return number

    def keep() -> None:
        with processes.running("test"):
            kept.append(graph.cached("number", compute_unless_last))

    kept: list[int] = []
    expect(ZeroDivisionError, "", keep)
    kept.append(0)
    keep()  # all compute it again
    assert kept[1:] == [processes.count]

    def lack_memory_in_last() -> None:
        with processes.running("test"):
            processes.meet(1)
            if rank == last:
                np.empty(2**60, np.uint8)
            processes.meet(2)

    expect(gw.errors.GraphTooLargeError, "use more processes", lack_memory_in_last)

    def interrupt_last() -> None:
        with processes.running("test"):
            while True:
                if processes.meet(1)[0, 0] and rank == last:
                    os.kill(os.getpid(), signal.SIGINT)

    expect(KeyboardInterrupt, "", interrupt_last)
    with processes.place("road:300x300") as road:
        expect(gw.errors.RunTimeoutError, "", lambda: gw.bfs(road, 0, timeout_s=1e-3))
        assert gw.bfs(road, 0).gather() is not None or rank
    expect(gw.errors.ClosedContextError, "closed", lambda: gw.bfs(road, 0))
    expect(gw.errors.InputError, "graph on several processes", lambda: gw.triangles(graph))


def check_programs(folder: Path) -> None:
    """Run vertex programs of all kinds, and compare with one process."""
    generator = np.random.default_rng(3)
    graphs = [
        *random_graphs(),
        gw.generators.rmat(10, weights=(0, 64)),
        gw.generators.road(20, 30, weights=(1, 64)),
        zigzag(200),
        gw.Graph.from_edges([], [], vertex_count=130),
    ]
    for number, graph in some(graphs):
        n = graph.vertex_count
        own = {graph.ids[v]: 1 << v % 60 for v in range(0, n, max(1, n // 40))}
        masks = generator.integers(-(2**60), 2**60, n)
        far = {graph.ids[n // 2]: 0, graph.ids[0]: 7}
        last = graph.ids[n - 1]
        runs: list[tuple[gw.VertexProgram, dict[str, Any]]] = [
            (LABELS, {}),
            (WIDEST, {"start": {graph.ids[0]: np.inf}}),
            (WIDEST, {"start": far, "limit": 0.25}),
            (FEWEST_HOPS, {"start": far, "parameters": {"add": 2}}),
            (FEWEST_HOPS, {"start": far, "target": last}),
            (NUMBERED, {"start": {graph.ids[0]: 1}}),
            (GAINED, {"start": own}),
            (LOST, {"start": masks}),
            (RESIDUAL, {}),
        ]
        for execution in ("auto", "bulk-synchronous")[: 1 + number % 2]:
            with processes.place(graph) as placed:
                for program, options in runs:
                    compare_run(program, graph, placed, {**options, "execution": execution})
                first = placed.vertices
                parts = gw.run(LOST, placed, masks[first.start : first.stop])
                np.testing.assert_array_equal(parts.values, gw.run(LOST, placed, masks).values)
        sources, targets = np.sort(generator.integers(0, n, (2, 3 * n)), axis=0)
        ascending = gw.Graph.from_edges(*np.compress(sources < targets, [sources, targets], axis=1),
                                        vertex_count=n)  # fmt: skip
        if n < 100:
            with processes.place(ascending) as placed:
                compare_run(WALKS, ascending, placed, {"start": {0: 1, n // 2: 2}})
    check_program_errors()


def compare_run(program: Any, graph: gw.Graph, placed: Any, options: dict[str, Any]) -> None:
    """Compare the solution with that of one process: bit by bit, but for sums of floats."""
    result = gw.run(program, placed, **options)
    rows = [row for part in processes.share(result.to_arrow().to_pylist()) for row in part]
    highest = result.highest(3)
    whole = result.gather()
    if is_first:
        expected = gw.run(program, graph, **options)
        assert whole.values.dtype == expected.values.dtype
        if program is RESIDUAL:
            np.testing.assert_allclose(whole.fields, expected.fields, rtol=1e-7)
            return
        np.testing.assert_array_equal(whole.values, expected.values, program.name)
        assert (whole.fields is None) == (expected.fields is None)
        if whole.fields is not None:
            np.testing.assert_array_equal(whole.fields, expected.fields)
        assert rows == whole.to_arrow().to_pylist() == expected.to_arrow().to_pylist()
        assert whole.to_dict() == expected.to_dict()
        assert highest == whole.highest(3) == expected.highest(3)


def check_program_errors(folder: Path | None = None) -> None:
    """Errors of one process' operators and values are raised by all."""
    errors = gw.errors
    around = np.arange(200)
    cycle = processes.place(gw.Graph.from_edges(around, (around + 1) % 200))
    grows = gw.VertexProgram("grows", lambda value: value + 2**29, "max", dtype="int32")
    expect(errors.ValueOverflowError, "grows", lambda: gw.run(grows, cycle, {0: 0}))
    # An overflow ends a run in which other vertices would go on.
    both = gw.VertexProgram(
        "both",
        lambda value, vertex: value - (1 if vertex < 50 else 2**31 - 1),
        "min",
        dtype="int32",
    )
    loops = np.array([0, 50])
    with processes.place(gw.Graph.from_edges(loops, loops)) as placed:
        run_both = partial(gw.run, both, placed, {0: 0, 50: 0}, max_items=10**7)
        expect(errors.ValueOverflowError, "both", run_both)
    falls = gw.VertexProgram("falls", lambda value: value - 1, "min", dtype="int64")
    expect(errors.RunTimeoutError, "items", lambda: gw.run(falls, cycle, {0: 0}, max_items=9999))
    expect(errors.RunTimeoutError, "within", lambda: gw.run(falls, cycle, {0: 0}, timeout_s=0.3))
    table = np.arange(199)
    outside = gw.VertexProgram("outside", lambda value, vertex: table[vertex], "max", dtype="int64")
    expect(errors.OperatorError, "IndexError", lambda: gw.run(outside, cycle))
    never = gw.VertexProgram("never", lambda value: [value], "min")
    expect(errors.OperatorError, "message", lambda: gw.run(never, cycle))
    mine = gw.VertexProgram("mine", lambda value: value + rank, "min")
    if processes.count > 1:
        expect(errors.ProcessError, "constants", lambda: gw.run(mine, cycle, {0: 0}))
        expect(errors.ProcessError, "same vertices", lambda: gw.run(LABELS, cycle, {rank: 0}))
        expect(errors.ProcessError, "values of start", lambda: gw.run(LABELS, cycle, {7: rank}))
    expect(errors.InputError, "vertex of start 777", lambda: gw.run(LABELS, cycle, {777: 0}))
    expect(errors.InputError, "target 777", lambda: gw.run(LABELS, cycle, target=777))
    expect(errors.InputError, "shape", lambda: gw.run(LABELS, cycle, np.zeros(7, np.int32)))
    expect(errors.InputError, "combine by min or max", lambda: gw.run(RESIDUAL, cycle, limit=1))
    expect(errors.InputError, "devices", lambda: gw.run(LABELS, cycle, devices="cpu"))
    expect(errors.InputError, "VertexProgram", lambda: gw.run("labels", cycle))
    whole = gw.run(LABELS, cycle).gather()  # (some process may have no vertex of it)
    if is_first:
        assert whole.values.max() == -50


SURVEY = gw.StepProgram(
    name="survey",
    fields={
        "a": ("int32", "degree"),
        "b": ("int64", "vertex"),
        "c": ("uint32", 7),
        "d": ("float64", 0.5),
        "e": ("float32", -np.inf),
    },
    numbers={
        "low": "int64",
        "sum": "int64",
        "mean": ("float64", 1.5),
        "turn": "int64",
        "arcs": "int64",
    },
    steps=[
        gw.frontier.filter(lambda a, vertex: a % 2 == 1 or vertex % 3 == 0),
        gw.frontier.repeat(
            [
                gw.frontier.advance(
                    "b",
                    lambda source, target, b_at_target, weight, turn: (
                        source - target + b_at_target % 5 + int(weight) + turn
                    ),
                    "add",
                    keep=lambda degree, degree_at_target: degree >= degree_at_target - 1,
                ),
                gw.frontier.compute(
                    "c", lambda c, b, vertex: (c + b % 100 + vertex) % 1000, of="all"
                ),
                gw.frontier.reduce("low", lambda b: b, "min"),
                gw.frontier.reduce("sum", lambda a: a, "add", of="all"),
                gw.frontier.advance(
                    "d", lambda b, c_at_target: (b % 8 + c_at_target) / 4, "max", frontier="kept"
                ),
                gw.frontier.advance(
                    "e",
                    lambda d, weight, mean: d - weight + mean,
                    "max",
                    direction="pull",
                    candidates=lambda vertex: vertex % 4 != 1,
                    keep=lambda source, target: source != target,
                ),
                gw.frontier.reduce("mean", lambda d: d, "max", of="all"),
                gw.frontier.advance("a", lambda: 1, "add", at="source", frontier="kept"),
                gw.frontier.arcs(lambda c, b_at_target: (c + b_at_target) % 3 > 0),
                gw.frontier.assign("arcs", lambda arcs, size: 2 * arcs + size),
                gw.frontier.advance("c", lambda target: target % 50, "min", frontier="kept"),
                gw.frontier.arcs(lambda weight, source: source % 5 > 0),
                gw.frontier.advance("a", lambda a: a % 3, "add", direction="auto"),
                gw.frontier.assign("turn", lambda turn, size: turn + 1 + size % 2),
            ],
            until=lambda turn: turn > 4,
        ),
    ],
)
"""All operators that processes run; all sums are exact."""


def check_steps(folder: Path) -> None:
    """Run step programs, and compare with one process."""
    from step_programs import (
        ARCS,
        COMPONENTS,
        GAINED_BITS,
        LENGTHS,
        LEVELS,
        LEVELS_PULLED,
        LOST_BITS,
        with_integer_weights,
    )

    graphs = [*random_graphs(4), zigzag(100), gw.generators.rmat(9)]
    for number, graph in some(map(with_integer_weights, graphs)):
        n = graph.vertex_count
        begins = [graph.ids[n // 2], graph.ids[0], graph.ids[n - 1]]
        masks = np.random.default_rng(number).integers(0, 2**60, n)
        with processes.place(graph) as placed:
            compare_steps(LEVELS, graph, placed, frontier=begins)
            compare_steps(LEVELS_PULLED, graph, placed, frontier=begins[0])
            compare_steps(LENGTHS, graph, placed, frontier=begins)
            compare_steps(SURVEY, graph, placed)
            compare_steps(SURVEY, graph, placed, frontier=begins, numbers={"turn": 2})
            for program in (GAINED_BITS, LOST_BITS):
                compare_steps(program, graph, placed, fields={"bits": masks})
            own = placed.vertices
            given = masks[own.start : own.stop]
            parts = GAINED_BITS.run(placed, fields={"bits": given}).to_dict()
            named = GAINED_BITS.run(
                placed, fields={"bits": dict(zip(graph.ids, masks, strict=True))}
            )
            assert parts == named.to_dict()
    graph = graphs[-1]
    check_values_of_steps()
    check_arguments_of_steps()
    errors = gw.errors
    expect(errors.InputError, "a field names", lambda: COMPONENTS.run(placed))
    expect(errors.InputError, "a field names", lambda: ARCS.run(placed))
    expect(errors.InputError, "devices", lambda: LEVELS.run(placed, devices="cpu"))
    with processes.place(graph) as placed:
        expect(errors.InputError, "frontier 777", lambda: LEVELS.run(placed, [777]))
        expect(errors.InputError, "booleans", lambda: LEVELS.run(placed, np.zeros(512, bool)))
        expect(
            errors.InputError,
            "not in the graph",
            lambda: GAINED_BITS.run(placed, fields={"bits": {777: 1}}),
        )
        expect(
            errors.InputError,
            "all vertices",
            lambda: GAINED_BITS.run(placed, fields={"bits": {0: 1}}),
        )
        expect(errors.InputError, "no field 'x'", lambda: LEVELS.run(placed, fields={"x": 1}))
        expect(errors.ValueOverflowError, "does not fit", lambda: OVERFLOWS.run(placed))
        expect(errors.RunTimeoutError, "within", lambda: ENDLESS.run(placed, timeout_s=0.3))
        expect(errors.OperatorError, "IndexError", lambda: FAILS_LATE.run(placed))
        mine = gw.StepProgram(
            "mine", fields={"x": ("int64", 0)}, steps=[gw.frontier.compute("x", lambda: rank)]
        )
        if processes.count > 1:
            expect(errors.ProcessError, "constants", lambda: mine.run(placed))


def check_values_of_steps() -> None:
    """Check sums of which only the total fits, and sums that are rounded once."""
    n = 192
    others = np.arange(1, n)
    inward = gw.Graph.from_edges(others, np.zeros(n - 1, int), vertex_count=n, directed=True)
    large = np.zeros(n, np.int64)
    large[1:4], large[-4:-1] = 2**30, -(2**30)
    small = np.zeros(n)
    small[1], small[[2, 100, 101, 102, 190, 191]] = 2**24, 1  # a 1 alone is lost in a float32
    with processes.place(inward) as placed:
        compare_steps(SUM, inward, placed, fields={"given": large})
        compare_steps(ROUNDED_SUM, inward, placed, fields={"given": small})
        expect(
            gw.errors.ValueOverflowError,
            "does not fit",
            lambda: SUM.run(placed, fields={"given": np.abs(large)}),
        )


def check_arguments_of_steps() -> None:
    """Check frontiers, sources and fields of all kinds on a graph whose ids are texts."""
    import pandas as pd

    n = 192
    ids = [f"v{v}" for v in range(n)]
    ring = gw.Graph.from_edges(np.arange(n), np.roll(np.arange(n), -1), vertex_count=n, ids=ids)
    some = ["v150", "v3", "v100", "v7"]
    errors = gw.errors
    with processes.place(ring) as placed:
        for given in (set(some), frozenset(some), pd.Series(some), pd.Index(some), np.array(some)):
            compare_steps(LONGEST, ring, placed, frontier=given)
            assert gw.bfs(placed, given).source_positions == [3, 7, 100, 150]

        def with_values(values: Any) -> Any:
            return lambda: LONGEST.run(placed, fields={"x": values})

        expect(errors.InputError, "'v0' occurs twice", with_values(pd.Series(1, [*ids, "v0"])))
        expect(
            errors.InputError, "'q' is not in the graph", with_values(dict.fromkeys([*ids, "q"], 1))
        )
        expect(errors.InputError, "must be an array", with_values([[1], [1, 2]]))
        expect(errors.InputError, "each of the 192 vertices, or", with_values(np.ones(500)))
        expect(errors.InputError, "1.5 of vertex 'v100'", with_values([1] * 100 + [1.5] + [1] * 91))
        labels = gw.VertexProgram("labels of texts", lambda value: value, "min")
        twice = pd.Series(1, ["v0", "v0"])
        expect(errors.InputError, "'v0' occurs twice", lambda: gw.run(labels, placed, twice))
        if processes.count > 1:
            mixed: Any = "all" if rank else ["v3"]
            expect(errors.ProcessError, "arguments", lambda: LONGEST.run(placed, mixed))
            mixed_values: Any = [1] * n if rank else dict.fromkeys(ids, 1)
            expect(errors.ProcessError, "arguments", with_values(mixed_values))
            start: Any = "all" if rank else {"v3": 0}
            expect(errors.ProcessError, "arguments", lambda: gw.run(labels, placed, start))
            own = dict.fromkeys(placed.ids, 1)
            expect(errors.ProcessError, "same vertices", with_values(own))


SUM = gw.StepProgram(
    name="sum",
    fields={"x": ("int32", 0), "given": "int64"},
    steps=[gw.frontier.advance("x", lambda given: given, "add")],
)
ROUNDED_SUM = gw.StepProgram(
    name="rounded sum",
    fields={"x": ("float32", 0), "given": "float64"},
    steps=[gw.frontier.advance("x", lambda given: given, "add")],
)
LONGEST = gw.StepProgram(
    name="longest",
    fields={"x": ("int64", 1)},
    steps=[gw.frontier.advance("x", lambda x: x + 1, "max")],
)
OVERFLOWS = gw.StepProgram(
    "overflows",
    fields={"x": ("int32", 2**30)},
    steps=[gw.frontier.advance("x", lambda x: x, "add")],
)
TABLE = np.arange(500)
FAILS_LATE = gw.StepProgram(
    "fails late",
    fields={"x": ("int64", 0)},
    numbers={"turn": "int64"},
    steps=[
        gw.frontier.repeat(
            [
                gw.frontier.compute("x", lambda turn, vertex: TABLE[vertex if turn > 2 else 0]),
                gw.frontier.assign("turn", lambda turn: turn + 1),
            ],
            until=lambda turn: turn > 9,
        )
    ],
)
"""Its operator raises in the fourth round, at the last vertices of 512."""
ENDLESS = gw.StepProgram(
    "endless",
    fields={"x": ("int64", 0)},
    steps=[
        gw.frontier.repeat(
            [gw.frontier.compute("x", lambda x: 1 - x)], until=lambda vertex_count: vertex_count < 0
        )
    ],
)


def compare_steps(program: gw.StepProgram, graph: gw.Graph, placed: Any, **options: Any) -> None:
    """Compare fields, numbers and the frontier with those of one process, bit by bit."""
    part = program.run(placed, **options)
    rows = [row for other in processes.share(part.to_arrow().to_pylist()) for row in other]
    members = np.concatenate(processes.share(part.frontier))
    whole = part.gather()
    if is_first:
        expected = program.run(graph, **options)
        for name, values in expected.fields.items():
            np.testing.assert_array_equal(whole.fields[name], values, f"{program.name}: {name}")
            assert whole.fields[name].dtype == values.dtype
        assert whole.numbers == expected.numbers, program.name
        np.testing.assert_array_equal(whole.frontier, expected.frontier, program.name)
        np.testing.assert_array_equal(members, expected.frontier)
        assert rows == expected.to_arrow().to_pylist()


def check_memory(folder: Path) -> None:
    """Read, place and search a file, ``GODWIT_FILE``, with a limit of memory for it.

    ``GODWIT_LIMIT_MB`` says how many millions of bytes a process may allocate beyond what interpreter,
    libraries and compiled code take.
    """
    import resource

    sources = "text" if os.environ["GODWIT_FILE"].endswith(".txt") else "godwit"
    small = folder / f"small.{'txt' if sources == 'text' else 'godwit'}"
    if is_first:
        gw.write(gw.generate("rmat:12"), small)
    processes.share(None)
    with processes.place(small, directed=False if sources == "text" else None) as graph:
        gw.bfs(graph, 0)
        gw.connected_components(graph)
    (taken,) = (
        1024 * int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmData")
    )
    allowed = 10**6 * int(os.environ["GODWIT_LIMIT_MB"])
    resource.setrlimit(resource.RLIMIT_DATA, (taken + allowed, resource.RLIM_INFINITY))
    begin = time.perf_counter()
    directed = False if sources == "text" else None
    with processes.place(os.environ["GODWIT_FILE"], directed=directed) as graph:
        bytes_of_arcs = graph.arc_count * graph.rows.targets.itemsize
        result = gw.bfs(graph, graph.highest_degree_vertex())
        counts = processes.share(int(result.reached.sum()))
        components = gw.connected_components(graph).count
    if is_first:
        print(
            f"{bytes_of_arcs / 1e6:.0f} MB of targets, {bytes_of_arcs / allowed:.1f} times the limit of "
            f"{allowed / 1e6:.0f} MB, on {processes.count} processes: {sum(counts):,} vertices reached, "
            f"{components:,} components, {time.perf_counter() - begin:.1f} s"
        )


KILLED = "rmat:12,seed=1,weights=1..9", "rmat:12,seed=2,weights=1..9"
"""Graphs that are written in turns until a process is killed."""
KILLED_OPTIONS: dict[str, Any] = {"tolerance": 1e-12, "accelerated": False}


def check_kill(folder: Path) -> None:
    """Place, read, search, rank and write again and again, until a process is killed."""
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    text = folder / "edges.txt"
    if is_first:
        gw.write(gw.generate(KILLED[0]), text, format="edge-list")

    def begin(name: str) -> None:
        (folder / f"{rank}.doing").write_text(name)

    for number in itertools.count():
        begin("place")
        with processes.place(KILLED[number % 2]) as graph:
            begin("read")
            with processes.place(text, directed=False) as read:
                begin("components")
                gw.connected_components(read)
            begin("bfs")
            gw.bfs(graph, 0)
            begin("sssp")
            distances = gw.sssp(graph, 0)
            begin("pagerank with checkpoint")
            saved = {"checkpoint": folder / f"ranks {number}", "checkpoint_s": 0}
            gw.pagerank(graph, **saved, **KILLED_OPTIONS)
            begin("write")
            gw.write(graph, folder / "graph.godwit")
            begin("to_parquet")
            distances.to_parquet(folder / "distances")


def check_killed(folder: Path) -> None:
    """Check the files that killed processes have left: each is complete, and saved states go on."""
    import pyarrow.parquet

    graphs = [gw.generate(spec) for spec in KILLED]
    file = folder / "graph.godwit"
    if file.exists():
        found = gw.read(file)
        assert any(all(map(np.array_equal, found.rows, graph.rows)) for graph in graphs)
    expected = [gw.sssp(graph, 0).to_arrow().select(["vertex", "distance"]) for graph in graphs]
    for part in folder.glob("distances/*.parquet"):
        table = pyarrow.parquet.read_table(part).select(["vertex", "distance"])
        first = table["vertex"][0].as_py()
        assert any(table.equals(whole.slice(first, len(table))) for whole in expected), part
    states = sorted(folder.glob("ranks *"), key=lambda one: int(one.name.split()[1]))
    for state in states[-2:]:
        with processes.place(graphs[int(state.name.split()[1]) % 2]) as graph:
            resumed = gw.pagerank(graph, checkpoint=state, **KILLED_OPTIONS)
            whole = gw.pagerank(graph, **KILLED_OPTIONS)
            np.testing.assert_array_equal(resumed.rank, whole.rank)
    gw.write(graphs[0], file)
    left = list(folder.rglob(".godwit-*"))
    assert not [one for one in left if one.parent == folder], left


def check_raise(folder: Path) -> None:
    """Raise in one process, outside of Godwit, while the others wait for it."""
    graph = processes.place("rmat:8")
    if rank == processes.count - 1:
        raise ZeroDivisionError("of a user")
    gw.bfs(graph, 0)


def check_exit(folder: Path) -> None:
    """End one process while the others wait for it."""
    graph = processes.place("rmat:8")
    if rank == processes.count - 1:
        sys.exit()
    gw.bfs(graph, 0)
    time.sleep(60)


if __name__ == "__main__":
    for check in sys.argv[1].split(","):
        globals()[f"check_{check}"](Path(sys.argv[2]))
    if is_first:
        print("done")
