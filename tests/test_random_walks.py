"""Random walks: arcs of the graph, right distributions, and the same walks on all devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.random_walks import query as walk_queries
from godwit.algorithms.random_walks.cpu import _GROUP
from godwit.cli.application import app
from godwit.dtypes import Array
from godwit.errors import InputError, RunTimeoutError, VerificationError
from godwit.graph import generators
from godwit.graph.csr import Graph
from godwit.graph.hashing import mix, unit
from godwit.runtime.gpu_options import ExperimentOptions
from graphs import each_graph, graphs, named_graph

WAYS: dict[str, dict[str, Any]] = {
    "uniform": {"weighted": False},
    "weighted": {},
    "biased": {"p": 0.5, "q": 2.0, "weighted": False},
    "biased, weighted": {"p": 4.0, "q": 0.25},
    "rejecting nearly all": {"p": 1e9, "q": 1e-9},
}
each_way = pytest.mark.parametrize("way", WAYS)


def serial_walks(graph: Graph, sources: list[int], length: int, **options: Any) -> list[list[int]]:
    """The walks as the documentation defines them, in Python."""
    p, q, seed = options.get("p", 1.0), options.get("q", 1.0), options.get("seed", 0)
    weighted = graph.is_weighted and options.get("weighted") is not False
    biased = (p, q) != (1.0, 1.0)
    back, far = 1 / p, 1 / q
    rows = []
    for v in range(graph.vertex_count):
        begin, end = graph.offsets[v], graph.offsets[v + 1]
        row = graph.targets[begin:end]
        weights = np.ones(len(row)) if not weighted else graph.weights[begin:end]  # type: ignore[index]
        order = np.argsort(row, kind="stable") if biased else slice(None)
        rows.append((row[order], np.cumsum(weights[order].astype(np.float64))))
    known = [set(row.tolist()) for row, _ in rows]

    def draw(v: int, word: Any) -> int:
        row, sums = rows[v]
        if len(row) == 0 or sums[-1] == 0:
            return -1
        if not weighted:
            return int(word % np.uint64(len(row)))
        above = (sums > unit(word) * sums[-1]) | (sums == sums[-1])
        return int(np.argmax(above))

    def bias(previous: int, target: int) -> float:
        return float(back if target == previous else 1.0 if target in known[previous] else far)

    def step_from(v: int, previous: int, word: Callable[[int], Any], is_first: bool) -> int:
        row, sums = rows[v]
        if is_first or not biased:
            arc = draw(v, word(0))
            return -1 if arc < 0 else int(row[arc])
        for attempt in range(walk_queries.TRIES):
            arc = draw(v, word(2 * attempt))
            if arc < 0:
                return -1
            if unit(word(2 * attempt + 1)) * max(back, far, 1.0) < bias(previous, int(row[arc])):
                return int(row[arc])
        weights = np.diff(sums, prepend=0.0)
        shares = [w * bias(previous, t) for w, t in zip(weights, row.tolist(), strict=True)]
        wanted, total, last = unit(word(2 * walk_queries.TRIES)) * sum(shares, 0.0), 0.0, -1
        for target, share, weight in zip(row.tolist(), shares, weights, strict=True):
            if weight > 0:
                total, last = total + share, target
                if total > wanted:
                    break
        return last

    found = []
    with np.errstate(over="ignore"):
        for number, source in enumerate(sources):
            key = mix(mix(np.uint64(seed)) + np.uint64(number))
            walk = [source]
            for step in range(length):
                v = walk[-1]

                def word(count: int, step: int = step, key: Any = key) -> Any:
                    return mix(key + np.uint64(step << walk_queries.WORDS_BITS | count))

                previous = walk[-2] if step else -1
                walk.append(-1 if v < 0 else step_from(v, previous, word, step == 0))
            found.append(walk)
    return found


@each_graph
@each_way
def test_as_serial_walks(name: str, way: str) -> None:
    graph = named_graph(name)
    sources = list(range(graph.vertex_count))[: 2 * _GROUP + 3]
    walks = gw.random_walks(graph, sources, 7, seed=3, devices="cpu", **WAYS[way])
    assert walks.dtype == graph.targets.dtype
    assert walks.shape == (len(sources), 8)
    assert walks.tolist() == serial_walks(graph, sources, 7, seed=3, **WAYS[way])
    gw.verify_random_walks(graph, walks, weighted=WAYS[way].get("weighted"))


@settings(max_examples=30)
@given(graph=graphs(min_vertices=1), way=st.sampled_from(list(WAYS)), seed=st.integers())
def test_any_graph(graph: Graph, way: str, seed: int) -> None:
    sources = list(range(graph.vertex_count)) * 2
    walks = gw.random_walks(graph, sources, 5, seed=seed, devices="cpu", **WAYS[way])
    gw.verify_random_walks(graph, walks, weighted=WAYS[way].get("weighted"))
    half = gw.random_walks(graph, sources[:1], 3, seed=seed, devices="cpu", **WAYS[way])
    np.testing.assert_array_equal(half, walks[:1, :4])  # a walk depends on nothing behind it


def assert_drawn(drawn: Array, expected: Array) -> None:
    """Chi-square test at 1e-6: counts of what was drawn, and probabilities."""
    counts = np.bincount(drawn, minlength=len(expected))
    assert not counts[expected == 0].any()
    means = len(drawn) * expected[expected > 0]
    assert means.min() >= 5
    statistic = float(((counts[expected > 0] - means) ** 2 / means).sum())
    assert statistic < chi2.isf(1e-6, len(means) - 1)


def test_steps_are_uniform() -> None:
    graph = generators.star(101)
    walks = gw.random_walks(graph, [0] * 50_000, 1, seed=1, devices="cpu")
    assert_drawn(walks[:, 1], np.append(0, np.full(100, 0.01)))


def test_steps_go_by_weights() -> None:
    weights = np.array([0, 1, 2.5, 0, 4, 0.5])
    graph = Graph.from_edges(np.zeros(6, int), np.arange(6), weights)
    walks = gw.random_walks(graph, [0] * 50_000, 1, seed=2, devices="cpu")
    assert_drawn(walks[:, 1], weights / weights.sum())


@pytest.mark.parametrize(("p", "q"), [(0.25, 4.0), (4.0, 0.25), (1e9, 1.0), (1.0, 1e-9), (2, 0.5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_biased_steps(p: float, q: float, weighted: bool) -> None:
    # From 0 to 1, whose neighbours are 0, two neighbours of 0, and two others.
    sources, targets = [0, 1, 1, 1, 1, 0, 0], [1, 2, 3, 4, 5, 2, 3]
    weights = np.array([1, 2, 1, 3, 1, 1, 1.0])
    graph = Graph.from_edges(sources, targets, weights, directed=False)
    walks = gw.random_walks(
        graph, [0] * 60_000, 2, p=p, q=q, seed=5, weighted=weighted, devices="cpu"
    )
    drawn = walks[walks[:, 1] == 1, 2]
    shares = np.array([1, 0, 2, 1, 3, 1.0]) if weighted else np.array([1, 0, 1, 1, 1, 1.0])
    shares *= [1 / p, 0, 1, 1, 1 / q, 1 / q]
    shares[shares < 1e-6 * shares.max()] = 0
    assert_drawn(drawn, shares / shares.sum())


def test_steps_of_a_walk_are_independent() -> None:
    graph = generators.complete(8)
    walks = gw.random_walks(graph, [0] * 2000, 20, seed=4, devices="cpu")
    pairs = walks[:, 10] * 8 + walks[:, 11]
    expected = np.full((8, 8), 1 / 56)
    np.fill_diagonal(expected, 0)
    assert_drawn(pairs, expected.ravel())


def test_walks_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = generators.rmat(9, 8, seed=1).with_random_weights(0, 9)
    sources = np.arange(graph.vertex_count)
    found = []
    for threads in (1, 3):
        monkeypatch.setenv("GODWIT_THREADS", str(threads))
        found.append(gw.random_walks(graph, sources, 30, p=2, seed=9, devices="cpu"))
    np.testing.assert_array_equal(found[0], found[1])
    other = gw.random_walks(graph, sources, 30, p=2, seed=10, devices="cpu")
    assert (other != found[0]).mean() > 0.5


def test_names_are_sources() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], ids=["Ulm", "Bonn", "Jena"])
    assert gw.random_walks(graph, ["Bonn", "Ulm", "Bonn"], 2, devices="cpu").tolist() == [
        [1, 2, -1], [0, 1, 2], [1, 2, -1],
    ]  # fmt: skip
    assert gw.random_walks(graph, "Ulm", 0, devices="cpu").tolist() == [[0]]
    assert gw.random_walks(graph, [], 3, devices="cpu").shape == (0, 4)


def test_wrong_arguments() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], [1.0, -2.0])
    with pytest.raises(InputError, match=r"the arc from 1 to 2 has weight -2\.0"):
        gw.random_walks(graph, 0, 3)
    for wrong in (0, -1, np.nan, 1e10, "x"):
        for name in ("p", "q"):
            with pytest.raises(InputError, match=name):
                gw.random_walks(graph, 0, 3, weighted=False, **{name: wrong})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="length"):
        gw.random_walks(graph, 0, -1)
    for weight in (1e308, 1e299):  # the sum, or its product with 1 / q, would be infinite
        huge = Graph.from_edges([0, 0], [1, 2], [weight, weight])
        with pytest.raises(InputError, match=r"add up to more than"):
            gw.random_walks(huge, 0, 3)
    with pytest.raises(RunTimeoutError):
        gw.random_walks(generators.path(3), 0, 30_000_000, devices="cpu", timeout_s=0.05)


@pytest.mark.parametrize(
    ("walk", "message"),
    [
        ([0, 1, 3], "step 2 of walk 0 leads from 1 to 3"),
        ([0, -1, -1], "ends at vertex 0 after 0 steps"),
        ([2, -1, 1], "walk 0 goes on to vertex 1 after it has ended"),
        ([0, 9, 1], "is at 9 after 1 steps"),
        ([-1, -1, -1], "is at -1 after 0 steps"),
        ([1, 0, 1], "step 1 of walk 0 leads from 1 to 0"),
    ],
)
def test_verifier(walk: list[int], message: str) -> None:
    graph = Graph.from_edges([0, 1, 1], [1, 2, 0], [1, 1, 0], vertex_count=4)
    gw.verify_random_walks(graph, np.array([[0, 1, 2], [1, 2, -1], [2, -1, -1]]))
    with pytest.raises(VerificationError, match=message):
        gw.verify_random_walks(graph, np.array([walk]))


def test_command(tmp_path: Path) -> None:
    roads = tmp_path / "roads.csv"
    roads.write_text("from,to\nUlm,Bonn\nBonn,Jena\n")
    target = tmp_path / "walks.csv"
    line = ["walks", str(roads), "--columns", "from,to", "-l", "3", "--walks", "2", "-s", "Ulm"]
    found = CliRunner().invoke(app, [*line, "--verify", "--json", "-o", str(target)])
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert facts["first"] == [["Ulm", "Bonn", "Jena"]] * 2
    assert (facts["walks"], facts["steps"], facts["ended"]) == (2, 4, 2)
    assert target.read_text().splitlines()[1] == '0,0,"Ulm"'
    found = CliRunner().invoke(app, line)
    assert "Ulm Bonn Jena" in found.stdout
    many = ["walks", "path:1000", "-l", "1", "--walks", str(1 << 32)]
    found = CliRunner().invoke(app, many)
    assert found.exit_code == 2
    assert "are available" in found.output


class TestEmulated:
    """The kernel of GPUs, on emulated ones."""

    @each_way
    def test_as_on_cpus(self, way: str) -> None:
        names = ["random undirected", "parallel arcs and self-loops", "zero weights", "64-bit ids"]
        for name in names:
            graph = named_graph(name)
            sources = list(range(graph.vertex_count)) * 2
            options = {**WAYS[way], "seed": 3}
            expected = gw.random_walks(graph, sources, 6, devices="cpu", **options)
            with emulated_gpus(1):
                found = gw.random_walks(graph, sources, 6, devices="cuda", **options)
                np.testing.assert_array_equal(found, expected)

    def test_several_gpus_pieces_and_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from godwit.algorithms.random_walks import cuda

        graph = generators.rmat(6, 6, seed=1).with_random_weights(1, 9)
        unsorted = Graph(graph.offsets, graph.targets[::-1].copy(), directed=True)
        monkeypatch.setattr(cuda, "_STEPS", 100)
        monkeypatch.setattr(cuda, "_LEAST_SHARE", 1)
        monkeypatch.setattr(cuda, "_MEMORY_SHARE", 1 << 20)
        sources = np.arange(50)
        for rows in (graph, unsorted):
            for way in ("uniform", "biased"):
                expected = gw.random_walks(rows, sources, 9, devices="cpu", **WAYS[way])
                with emulated_gpus(3), gw.place(rows, ["cuda:0", "cuda:1", "cuda:2"]) as placed:
                    for gpu in (ExperimentOptions(slice_s=0), None):
                        found = gw.random_walks(placed, sources, 9, gpu=gpu, **WAYS[way])
                        np.testing.assert_array_equal(found, expected)

    def test_accesses_are_ordered(self) -> None:
        graph = generators.rmat(5, 4, seed=1).with_random_weights(1, 9)
        for way in ("weighted", "biased"):
            expected = gw.random_walks(graph, range(32), 5, devices="cpu", **WAYS[way])
            with emulated_gpus(1, seed=1, checks=True):
                found = gw.random_walks(graph, range(32), 5, devices="cuda", **WAYS[way])
            np.testing.assert_array_equal(found, expected)
