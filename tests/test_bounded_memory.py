"""A text that takes more than half of the memory is read window by window: the graph is the same, and
memory holds the graph and a window, never the text."""

from __future__ import annotations

import gzip
import itertools
import lzma
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from godwit.errors import FormatError, GraphTooLargeError
from godwit.graph.blocks import rows_of_blocks
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph
from godwit.io.graph_files import read
from godwit.io.text import line_reader
from graphs import forced_threads


@pytest.fixture
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("godwit.io.source._SHARE_HELD", 0)
    monkeypatch.setattr(line_reader, "_SMALLEST_WINDOW", 300)
    monkeypatch.setattr(line_reader, "_SHARE_OF_MEMORY", 1 << 62)


def edges(kind: str, count: int = 400) -> str:
    generator = np.random.default_rng(3)
    pairs = generator.integers(0, 60, (count, 2)) ** (3 if kind == "sparse" else 1) * (
        10**12 if kind == "sparse" else 1
    )
    weights = generator.integers(0, 9, count)
    if kind == "wide":
        weights[count // 2] = 2**40
    lines = [f"{u} {v} {w}" for (u, v), w in zip(pairs.tolist(), weights.tolist(), strict=True)]
    if kind == "real":
        lines[count - 3] = "1 2 0.1"
    if kind == "texts":
        lines = [f"n{line.replace(' ', ' été', 1)}" for line in lines]
    if kind == "dimacs":
        lines = ["c a comment", *(f"a {line}" for line in lines)]
    if kind == "mtx":
        lines = ["%%MatrixMarket matrix coordinate integer symmetric", f"61 61 {count}"] + [
            f"{u + 1} {v + 1} {w}" for u, v, w in (map(int, line.split()) for line in lines)
        ]
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["plain", "sparse", "wide", "real", "texts", "dimacs", "mtx"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("directed", [None, False])
def test_the_graph_is_the_same(
    tmp_path: Path,
    kind: str,
    pack: Callable[[bytes], bytes],
    directed: bool | None,
    request: pytest.FixtureRequest,
) -> None:
    path = tmp_path / "graph"
    path.write_bytes(pack(edges(kind).encode()))
    whole = read(path, directed=directed)
    request.getfixturevalue("_little_memory")
    windowed = read(path, directed=directed)
    assert_equal(windowed, whole)
    assert windowed.ids == whole.ids


def assert_equal(one: Graph, other: Graph) -> None:
    assert one.directed == other.directed
    assert np.array_equal(one.offsets, other.offsets)
    assert np.array_equal(one.targets, other.targets)
    assert (one.weights is None) == (other.weights is None)
    if one.weights is not None and other.weights is not None:
        assert one.weights.dtype == other.weights.dtype
        assert np.array_equal(one.weights, other.weights)


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("line", [1, 50, 399, 400])
def test_the_line_of_an_error_is_right(tmp_path: Path, line: int) -> None:
    lines = edges("plain").split("\n")
    lines[line - 1] = "0 1 x"
    path = tmp_path / "graph"
    path.write_text("# one more\n" + "\n".join(lines))
    with pytest.raises(FormatError) as caught:
        read(path, format="edge-list")
    assert (caught.value.line, caught.value.text) == (line + 1, "0 1 x")


@given(
    arcs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=6),
    both=st.booleans(),
    weighted=st.booleans(),
    threads=st.integers(1, 3),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_do_not_depend_on_blocks(
    arcs: list[tuple[int, int, int]], cuts: list[int], both: bool, weighted: bool, threads: int
) -> None:
    table = np.array(arcs, np.int32).reshape(-1, 3)
    at = sorted({0, len(arcs), *(cut for cut in cuts if cut < len(arcs))})

    def columns(part: Any) -> Any:
        weights = np.ascontiguousarray(part[:, 2]) if weighted else None
        return np.ascontiguousarray(part[:, 0]), np.ascontiguousarray(part[:, 1]), weights

    def blocks() -> Any:
        for begin, end in itertools.pairwise(at):
            yield columns(table[begin:end])

    id_dtype = np.dtype(np.int32)
    with forced_threads(threads):
        found = rows_of_blocks(
            blocks, 10, id_dtype, id_dtype if weighted else None, both, one_block=False
        )
        wanted = arcs_to_rows(*columns(table), 10, id_dtype, both_directions=both)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other)


@pytest.mark.parametrize(
    "pack", [bytes, partial(gzip.compress, compresslevel=1)], ids=("plain", "gzip")
)
def test_memory_holds_the_graph_and_a_window(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    table = generator.integers(1000, 5000, (1_500_000, 3))
    lines = "\n".join(f"{u} {v} {10**9 + w}" for u, v, w in table.tolist())
    path = tmp_path / "graph.wel"
    path.write_bytes(pack(lines.encode()))
    graph = read(path)
    memory_bytes = len(lines) + (1 << 20)
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(memory_bytes))
    tracemalloc.start()  # sees what NumPy allocates
    try:
        windowed = read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_equal(windowed, graph)
    assert peak < memory_bytes
    assert peak < graph.nbytes + memory_bytes * 0.5


def test_a_graph_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.el"
    path.write_text("\n".join(f"{i % 1000} {i % 999}" for i in range(400_000)))
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(1_500_000))
    with pytest.raises(GraphTooLargeError, match="arcs need"):
        read(path)
