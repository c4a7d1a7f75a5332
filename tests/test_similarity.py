"""Similarity of pairs: NetworkX's and sets' numbers, of given pairs and of all, on any devices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import COMPILER, Machine, emulated_gpus
from godwit.algorithms.similarity import cuda, query
from godwit.cli.application import app
from godwit.errors import InputError, RunTimeoutError, VerificationError
from godwit.graph.csr import Graph
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import forced_threads, graphs
from references import CLOSE

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "jaccard": gw.jaccard,
    "overlap": gw.overlap,
    "sorensen": gw.sorensen,
    "adamic_adar": gw.adamic_adar,
    "resource_allocation": gw.resource_allocation,
}
EXACT = ("jaccard", "overlap", "sorensen")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
DEVICES = [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1"]]


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


def neighbours(graph: Graph) -> list[set[int]]:
    """Return the other vertices that each vertex has an arc to or from."""
    found: list[set[int]] = [set() for _ in range(graph.vertex_count)]
    sources, targets, _ = graph.with_ids(0).to_edges()
    for u, v in zip(sources.tolist(), targets.tolist(), strict=True):
        if u != v:
            found[u].add(v)
            found[v].add(u)
    return found


def expected_score(name: str, sets: list[set[int]], u: int, v: int) -> float:
    """Return a score by its definition."""
    common = sets[u] & sets[v]
    if not common:
        return 0.0
    degrees = [len(sets[w]) for w in common]
    scores: dict[str, Callable[[], float]] = {
        "jaccard": lambda: len(common) / len(sets[u] | sets[v]),
        "overlap": lambda: len(common) / min(len(sets[u]), len(sets[v])),
        "sorensen": lambda: 2 * len(common) / (len(sets[u]) + len(sets[v])),
        "adamic_adar": lambda: sum(1 / math.log(d) if d > 1 else math.inf for d in degrees),
        "resource_allocation": lambda: sum(1 / d for d in degrees),
    }
    return scores[name]()


pairs_of_numbers = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 2**16)), max_size=20)


@given(graphs(min_vertices=1), pairs_of_numbers, st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_any_graph(graph: Graph, numbers: list[tuple[int, int]], above: float) -> None:
    n = graph.vertex_count
    sets = neighbours(graph)
    pairs = [(u % n, v % n) for u, v in numbers]
    for name, function in FUNCTIONS.items():
        found = function(graph, np.array(pairs, int).reshape(-1, 2), devices="cpu")
        expected = [expected_score(name, sets, u, v) for u, v in pairs]
        np.testing.assert_allclose(found.score, expected, **CLOSE)
        assert found.pairs == pairs
        assert gw.verify_similarity(graph, found) == len(pairs)
        every = function(graph, above=above).to_dict()
        scores = {
            (u, v): expected_score(name, sets, u, v) for u in range(n) for v in range(u + 1, n)
        }
        assert list(every) == sorted(every)
        near = {pair for pair, score in scores.items() if abs(score - above) < 1e-12 and above}
        wanted = {pair for pair, score in scores.items() if score > above}
        assert every.keys() - near == wanted - near
        assert all(every[pair] == pytest.approx(scores[pair]) for pair in every)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pairs_and_all_pairs_agree_for_any_threads(name: str) -> None:
    graph = gw.generators.rmat(8, 6, seed=2)
    every = FUNCTIONS[name](graph, devices="cpu")
    with forced_threads(3):
        again = FUNCTIONS[name](graph, devices="cpu")
    given_pairs = FUNCTIONS[name](graph, every.positions, devices="cpu")
    np.testing.assert_array_equal(every.positions, again.positions)
    np.testing.assert_array_equal(every.score, again.score)
    np.testing.assert_array_equal(every.score, given_pairs.score)
    assert len(every.score) > 1000


def check(graph: Graph, pairs: Any, devices: Any) -> None:
    """Compare scores with the CPU's."""
    for name, function in FUNCTIONS.items():
        found = function(graph, pairs, devices=devices)
        expected = function(graph, pairs, devices="cpu")
        if name in EXACT:
            np.testing.assert_array_equal(found.score, expected.score)
        else:
            np.testing.assert_allclose(found.score, expected.score, **CLOSE)
        assert int(found.statistics.processed_items.sum()) == len(pairs)


def check_all_pairs(graph: Graph, devices: Any) -> None:
    """Compare all pairs above a bound with the CPU's."""
    for name, above in (("sorensen", 0.21), ("resource_allocation", None)):
        found = FUNCTIONS[name](graph, above=above, devices=devices)
        expected = FUNCTIONS[name](graph, above=above, devices="cpu")
        np.testing.assert_array_equal(found.positions, expected.positions)
        np.testing.assert_allclose(found.score, expected.score, **CLOSE)
        assert found.statistics.devices[0].startswith("cuda")


@needs_compiler
@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
def test_emulated_gpus(gpus: Machine, devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_LEAST_SHARE_PAIRS", 1)
    monkeypatch.setattr(cuda, "_LEAST_SHARE_ARCS", 1)
    gpus.seed = 5
    generator = np.random.default_rng(1)
    dense = gw.generators.watts_strogatz(150, neighbours=80, seed=1)  # long rows, which are merged
    for graph in (gw.generators.rmat(8, 8, seed=1), gw.generators.star(300), dense):
        # Without hubs; with hubs, in one range of vertices and in several.
        for piece, degree, nbytes in ((1 << 20, 512, 1 << 18), (90, 9, 1 << 18), (1 << 20, 3, 8)):
            monkeypatch.setattr(cuda, "PIECE_PAIRS", piece)
            monkeypatch.setattr(cuda, "HUB_DEGREE", degree)
            monkeypatch.setattr(cuda, "LEAST_PAIRS", 1 if piece == 90 else 3)
            monkeypatch.setattr(cuda, "_MOST_BITMAP_BYTES", nbytes)
            check(graph, generator.integers(0, graph.vertex_count, (200, 2)), devices)
    for graph in (gw.generators.rmat(6, 8, seed=1), gw.generators.star(30), gw.generators.path(4)):
        check_all_pairs(graph, devices)
    graph = gw.generators.star(300)
    with gw.place(graph, devices) as placed:
        for count in (5, 50, 5):
            pairs = generator.integers(0, graph.vertex_count, (count, 2))
            expected = gw.jaccard(graph, pairs, devices="cpu").score
            np.testing.assert_array_equal(gw.jaccard(placed, pairs).score, expected)
        assert len(gw.jaccard(placed, []).score) == 0
        for above, count in ((0.99, 299 * 298 // 2), (1, 0), (0, 299 * 298 // 2)):
            assert len(gw.overlap(placed, above=above).score) == count


@needs_compiler
@pytest.mark.thorough
def test_no_races(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.random.default_rng(1).integers(0, 128, (200, 2))
    monkeypatch.setattr(cuda, "HUB_DEGREE", 9)
    monkeypatch.setattr(cuda, "LEAST_PAIRS", 2)
    monkeypatch.setattr(cuda, "_MOST_BITMAP_BYTES", 8)
    with emulated_gpus(1, checks=True, seed=4):
        check(gw.generators.rmat(7, 12, seed=1), pairs, "cuda:0")
        check_all_pairs(gw.generators.rmat(6, 8, seed=1), "cuda:0")


@pytest.mark.gpu
@needs_gpu
@on_endpoints
def test_gpus(devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_LEAST_SHARE_PAIRS", 1)
    generator = np.random.default_rng(1)
    for graph in (
        gw.generators.rmat(16, 16, seed=1), gw.generators.star(5000), gw.generators.complete(500)
    ):  # fmt: skip
        check(graph, generator.integers(0, graph.vertex_count, (300_000, 2)), devices)
        with monkeypatch.context() as patch:
            patch.setattr(cuda, "HUB_DEGREE", 20)
            patch.setattr(cuda, "LEAST_PAIRS", 2)
            patch.setattr(cuda, "_MOST_BITMAP_BYTES", 4096)
            check(graph, generator.integers(0, graph.vertex_count, (300_000, 2)), devices)
    monkeypatch.setattr(cuda, "_LEAST_SHARE_ARCS", 1)
    for graph in (
        gw.generators.rmat(12, 8, seed=1), gw.generators.star(3000), gw.generators.road(200, 200, seed=1)
    ):  # fmt: skip
        check_all_pairs(graph, devices)


@pytest.mark.gpu
@needs_gpu
@on_endpoints
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
def test_pairs_on_a_gpu_stay_there(
    devices: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = pytest.importorskip("cupy")
    monkeypatch.setattr(cuda, "_LEAST_SHARE_PAIRS", 1)
    monkeypatch.setattr(cuda, "PIECE_PAIRS", 30_000)
    graph = gw.generators.rmat(12, 16, seed=1)
    pairs = np.random.default_rng(1).integers(0, graph.vertex_count, (100_000, 2)).astype(dtype)
    wanted = gw.jaccard(graph, pairs, devices="cpu")
    with gw.place(graph, devices) as placed:
        for given_pairs in (cupy.asarray(pairs), cupy.asarray(np.asfortranarray(pairs)), pairs):
            for where in ("host", "cuda"):
                found = gw.jaccard(placed, given_pairs, results=where)
                there = found.score if where == "host" else found.score.get()  # type: ignore[attr-defined]
                np.testing.assert_array_equal(there, wanted.score)
                np.testing.assert_array_equal(found.positions, pairs)
        with monkeypatch.context() as patch:
            patch.setattr(query, "host_array", None)  # is not called
            gw.jaccard(placed, cupy.asarray(pairs), results="cuda")
        for wrong in (cupy.asarray([[0, graph.vertex_count]]), cupy.zeros((2, 3), int)):
            with pytest.raises(InputError, match=r"pairs|vertex"):
                gw.jaccard(placed, wrong)


def test_names_and_tables() -> None:
    ids = ["Ulm", "Bonn", "Jena", "Kiel"]
    graph = Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False, ids=ids)
    found = gw.jaccard(graph, [("Ulm", "Kiel"), ("Kiel", "Ulm"), ("Ulm", "Bonn")], devices="cpu")
    assert found.pairs == [("Ulm", "Kiel"), ("Kiel", "Ulm"), ("Ulm", "Bonn")]
    assert found.highest(1) == [("Ulm", "Kiel", 0.5)]
    assert found.to_arrow().column_names == ["first", "second", "jaccard"]
    assert "Kiel" in found._repr_html_()
    assert repr(found) == "SimilarityResult(3 pair(s), jaccard)"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 9)], "9"),
        ([(0, 1, 2)], "shape"),
        (np.zeros((2, 3), int), "shape"),
        (["ab", "cd"], "shape"),
        (7, "shape"),
        ([0, 1], "shape"),
    ],
)
def test_wrong_pairs(pairs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gw.jaccard(gw.generators.path(4), pairs, devices="cpu")


def test_refusals() -> None:
    graph = gw.generators.path(4)
    with pytest.raises(InputError, match="is for all pairs"):
        gw.jaccard(graph, [(0, 1)], above=0.5)
    with pytest.raises(InputError, match="must not be negative"):
        gw.jaccard(graph, above=-1)
    with pytest.raises(InputError, match="one device of the CPU"):
        gw.jaccard(graph, [(0, 1)], devices=["cpu:0", "cpu:1"])
    with pytest.raises(RunTimeoutError):
        gw.jaccard(gw.generators.complete(3000), timeout_s=0.01)


def test_verifier_finds_errors() -> None:
    graph = gw.generators.rmat(6, 6, seed=5)
    for function in FUNCTIONS.values():
        found = function(graph, devices="cpu")
        found._scores[7] += 1e-6
        with pytest.raises(VerificationError, match="similarity"):
            gw.verify_similarity(graph, found)


def test_command(tmp_path: Path) -> None:
    graph = gw.generators.rmat(6, 4, seed=1)
    gw.write(graph, tmp_path / "graph.el")
    line = ["similarity", str(tmp_path / "graph.el"), "--devices", "cpu", "--verify", "--json"]
    output = tmp_path / "scores.npy"
    ran = CliRunner().invoke(
        app, [*line, "--measure", "overlap", "--above", "0.4", "-o", str(output), "--top", "3"]
    )
    assert ran.exit_code == 0, ran.output
    facts = json.loads(ran.stdout)
    expected = gw.overlap(gw.read(tmp_path / "graph.el"), above=0.4)
    assert facts["pairs"] == len(expected.score)
    np.testing.assert_array_equal(np.load(output)["overlap"], expected.score)
    assert [row["overlap"] for row in facts["top"]] == [row[2] for row in expected.highest(3)]
    first, second = expected.highest(1)[0][:2]
    ran = CliRunner().invoke(app, [*line, "--pair", f"{first},{second}"])
    assert json.loads(ran.stdout)["pairs"] == 1
    assert CliRunner().invoke(app, [*line, "--pair", "7"]).exit_code == 2
    assert CliRunner().invoke(app, [*line, "--measure", "cosine"]).exit_code == 2


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_pairs_in_a_table(library: str) -> None:
    module: Any = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    towns = gw.Graph.from_edges([0, 1, 2], [1, 2, 3], directed=False, ids=["a", "b", "c", "d"])
    columns = {"from": ["a", "b", "a"], "to": ["c", "d", "d"]}
    expected = gw.jaccard(towns, list(zip(*columns.values(), strict=True))).to_dict()
    assert gw.jaccard(towns, make(columns)).to_dict() == expected
    numbers = gw.Graph.from_edges([0, 1, 2], [1, 2, 3], directed=False)
    assert gw.jaccard(numbers, make({"u": [0, 1], "v": [2, 3]})).pairs == [(0, 2), (1, 3)]


def test_wrong_tables_of_pairs() -> None:
    graph = gw.generators.path(4)
    with pytest.raises(InputError, match="must have two columns, got a, b, c"):
        gw.jaccard(graph, pd.DataFrame({"a": [0], "b": [1], "c": [2]}))
    with pytest.raises(InputError, match="must be complete, and b lacks a value"):
        gw.jaccard(graph, pa.table({"a": [0], "b": pa.array([None], pa.int64())}))
    with pytest.raises(InputError, match=r"a table of two columns, or pairs of vertices such as"):
        gw.jaccard(graph, (0, 1))
