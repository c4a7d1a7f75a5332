"""Binary graphs (Godwit's own, GAP's, Galois'): written and read back, read as others write them, and
damaged in every way.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import FormatError, GodwitError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.io.binary import galois, native
from godwit.io.binary.checksum import checked, checksum
from godwit.io.graph_files import read, write
from graphs import ZOO, arcs_of, each_graph, forced_threads, graphs, named_graph
from mutations import mutated

TEXTS = ["", "a", "Zoë", "日本", "a b", "x" * 300]
WORD = 2**64 - 1


def same(left: Graph, right: Graph) -> bool:
    """Whether two graphs have the same arcs in the same order, weights, direction and ids."""
    weights = (
        left.weights is None and right.weights is None
        if left.weights is None or right.weights is None
        else left.weights.dtype == right.weights.dtype
        and np.array_equal(left.weights, right.weights)
    )
    return bool(
        weights
        and left.directed == right.directed
        and left.ids == right.ids
        and np.array_equal(left.offsets, right.offsets)
        and np.array_equal(left.targets, right.targets)
    )


def checked_again(graph: Graph) -> Graph:
    """The same graph with everything checked that there is to check."""
    return Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)


def as_arcs(graph: Graph) -> Graph:
    """The same arcs, directed: what becomes of an undirected graph in a file of Galois."""
    return Graph(graph.offsets, graph.targets, graph.weights)


def with_ids(graph: Graph, kind: str) -> Graph:
    """The same graph with ids of a kind."""
    n = graph.vertex_count
    ids: dict[str, Any] = {
        "consecutive": VertexIds.counted(n, 7),
        "range": 7,
        "integer": np.arange(n)[::-1] * 3 - 5,
        "text": pa.array([f"{TEXTS[v % len(TEXTS)]}{v}" for v in range(n)], pa.large_string()),
    }
    return graph.with_ids(ids[kind])


# Godwit's own.


@each_graph
@pytest.mark.parametrize("kind", ["consecutive", "range", "integer", "text"])
def test_native_round_trip(name: str, kind: str, tmp_path: Path) -> None:
    graph = with_ids(named_graph(name), kind)
    write(graph, tmp_path / "graph.godwit")
    found = read(tmp_path / "graph.godwit")
    assert same(found, graph)
    assert found.targets.dtype == graph.targets.dtype
    assert found.ids == graph.ids


@given(graphs(), st.sampled_from([".godwit", ".godwit.gz", ".godwit.xz", ".godwit.zst", ".bin"]))
def test_native_round_trip_of_any_graph(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("native") / f"graph{suffix}"
    write(graph, path, format="godwit")
    assert same(read(path), graph)
    assert same(read(path, directed=True), as_arcs(graph))
    assert same(read(path, weighted=False), graph.without_weights())


def test_native_is_mapped_and_read_when_it_is_used(tmp_path: Path) -> None:
    graph = named_graph("random undirected")
    path = tmp_path / "graph.godwit"
    write(graph, path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\1")  # the last byte that fills up the weights
    opened = read(path)
    assert (opened.vertex_count, opened.arc_count) == (graph.vertex_count, graph.arc_count)
    assert opened.is_weighted
    assert not opened.directed
    for touch in (lambda: opened.offsets, lambda: opened.targets, lambda: opened.ids):
        with pytest.raises(FormatError, match="checksum of its weights does not match"):
            touch()
    path.write_bytes(content)
    whole = read(path)
    assert not whole.offsets.flags.writeable
    base: Any = whole.offsets
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert type(base.base).__name__ == "mmap"


def test_opening_a_native_file_loads_neither_numba_nor_arrow(tmp_path: Path) -> None:
    """Either takes longer to load than a file of any size takes to open."""
    path = tmp_path / "graph.godwit"
    write(with_ids(named_graph("grid"), "text"), path)
    program = (
        "import sys, godwit; graph = godwit.read(sys.argv[1]); print(graph.vertex_count);"
        "print(*sys.modules.keys() & {'numba', 'pyarrow', 'scipy'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], check=True, capture_output=True, text=True
    )
    assert done.stdout == "204\n\n"


def test_native_can_be_written_over_while_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "graph.godwit"
    write(named_graph("grid"), path)
    before = read(path)
    write(before.without_weights(), path)
    assert same(before, named_graph("grid"))
    assert same(read(path), named_graph("grid").without_weights())


def test_every_flipped_bit_of_a_native_file_is_noticed(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 0, 2], [1, 2, 0], [1.5, 2.5, 3.5], ids=["a", "bc", "é"])
    path = tmp_path / "graph.godwit"
    write(graph, path)
    content = path.read_bytes()
    assert same(read(path), graph)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(FormatError):
            # The first bytes decide which format it is.
            read(path, format="godwit").offsets  # noqa: B018


def test_native_header_is_as_specified(tmp_path: Path) -> None:
    """The example of docs/file-format.md, made with nothing of Godwit's."""
    offsets = np.array([0, 2, 2, 3], "<i8").tobytes()
    targets = np.array([1, 2, 0], "<i4").tobytes()
    header = struct.pack("<8sIIQQQQII", b"\x89Godwit\n", 1, 1, 3, 3, 256, 1, 2, 0) + bytes(8)
    table = struct.pack("<IIQQQ", 1, 3, 128, 32, reference_checksum(offsets))
    table += struct.pack("<IIQQQ", 2, 1, 192, 12, reference_checksum(targets))
    value = hashlib.blake2b(header + table, digest_size=8).digest()
    content = header[:56] + value + table + offsets.ljust(64, b"\0") + targets.ljust(64, b"\0")
    path = tmp_path / "graph.godwit"
    path.write_bytes(content)
    graph = read(path)
    assert arcs_of(graph) == [(0, 1), (0, 2), (2, 0)]
    assert graph.directed
    assert graph.ids.base == 1
    write(graph, tmp_path / "again.godwit")
    assert (tmp_path / "again.godwit").read_bytes() == content


def _forged(graph: Graph, change: Callable[[dict[int, Any]], None]) -> bytes:
    """A native file with right checksums of wrong arrays, by kind of section."""
    arrays: dict[int, Any] = {1: graph.offsets.copy(), 2: graph.targets.copy()}
    arrays |= {kind: array.copy() for kind, array in native.stored_ids(graph.ids)}
    change(arrays)
    begin = 64 + 64 * (-(-32 * len(arrays) // 64))
    table, body = b"", b""
    for kind, array in arrays.items():
        code = native._CODES[array.dtype]
        at = begin + len(body)
        table += struct.pack("<IIQQQ", kind, code, at, array.nbytes, checksum(array))
        body += array.tobytes() + bytes(-array.nbytes % 64)
    n, m = graph.vertex_count, graph.arc_count
    size = begin + len(body)
    header = struct.pack("<8sIIQQQQII", b"\x89Godwit\n", 1, 1, n, m, size, 0, len(arrays), 0)
    blank = (header + bytes(8) + table).ljust(begin, b"\0")
    value = hashlib.blake2b(blank, digest_size=8).digest()
    return blank[:56] + value + blank[64:] + body


@pytest.mark.parametrize(
    ("kind", "at", "value", "message"),
    [
        (1, 0, 1, "offsets must begin with 0"),
        (1, 2, 99, "offsets must not decrease"),
        (1, -1, 2, "offsets must not decrease|offsets must end with"),
        (2, 1, -1, r"targets\[1\] must be a vertex in \[0, 4\), got -1"),
        (2, 3, 4, r"targets\[3\] must be a vertex in \[0, 4\), got 4"),
        (5, 2, 99, "text of ids is wrong"),
        (5, 2, -1, "text of ids is wrong"),
        (5, 0, 1, "offsets of the text of ids must go from 0 to 5, got 1 to 5"),
        (5, -1, 2**62, "offsets of the text of ids"),
        (6, 0, 0xFF, "text of ids is wrong"),
    ],
)
def test_forged_native_files(kind: int, at: int, value: int, message: str, tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1, 1, 3], [1, 2, 0, 3], ids=["a", "b", "cd", "e"])

    def change(arrays: dict[int, Any]) -> None:
        arrays[kind][at] = value

    path = tmp_path / "forged.godwit"
    path.write_bytes(_forged(graph, lambda arrays: None))
    assert same(read(path), graph)
    path.write_bytes(_forged(graph, change))
    with pytest.raises(FormatError, match=message):
        read(path).targets  # noqa: B018


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (8, "<I", 2, "version 2"),
        (12, "<I", 4, "unknown flags"),
        (16, "<Q", 2**60, "contradicts itself: 1152921504606846976 vertices"),
        (16, "<Q", 2**40, "contradicts itself"),
        (24, "<Q", 2**40, "contradicts itself"),
        (32, "<Q", 2**40, "contradicts itself"),
        (40, "<Q", 2**40, "contradicts itself: ids from"),
        (48, "<I", 1, "sections of kinds"),
        (48, "<I", 2**31, "damaged"),
        (64, "<I", 3, "sections of kinds"),
        (68, "<I", 77, "unknown dtype"),
        (72, "<Q", 2**62, "contradicts itself"),
        (80, "<Q", 2**62, "contradicts itself"),
    ],
)
def test_contradicting_native_headers(
    at: int, form: str, value: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "graph.godwit"
    write(named_graph("one arc").without_weights(), path)
    content = bytearray(path.read_bytes())
    struct.pack_into(form, content, at, value)
    content[56:64] = bytes(8)
    end = native._padded(64 + 32 * min(struct.unpack_from("<I", content, 48)[0], 8))
    content[56:64] = hashlib.blake2b(content[:end], digest_size=8).digest()
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read(path)


def test_native_files_of_wrong_size(tmp_path: Path) -> None:
    path = tmp_path / "graph.godwit"
    write(named_graph("grid"), path)
    content = path.read_bytes()
    for size in (8, 63, 64, 100, 200, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(FormatError, match="truncated"):
            read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(FormatError, match="bytes behind its end"):
        read(path)


def test_native_refuses_object_ids(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], ids=[("a", 1), ("b", 2)])
    with pytest.raises(InputError, match="objects"):
        write(graph, tmp_path / "graph.godwit")
    assert os.listdir(tmp_path) == []


def test_native_writes_slices_of_text(tmp_path: Path) -> None:
    texts = pa.array(["before", "", "Zoë", "b", "behind"], pa.large_string())[1:4]
    graph = Graph.trusted(
        np.zeros(4, np.int64), np.empty(0, np.int32), ids=VertexIds.trusted("text", texts)
    )
    write(graph, tmp_path / "graph.godwit")
    assert read(tmp_path / "graph.godwit").ids.of(range(3)) == ["", "Zoë", "b"]


# Checksums.


def _mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def reference_checksum(content: bytes) -> int:
    """As docs/file-format.md says, word by word."""
    total = 0
    for block in range(-(-len(content) // 32768)):
        piece = content[32768 * block :][:32768]
        piece += bytes(-len(piece) % 64)
        lanes = [0] * 8
        for i, (word,) in enumerate(struct.iter_unpack("<Q", piece)):
            lane = ((lanes[i % 8] ^ word) * 0x9FB21C651E98DF25) & WORD
            lanes[i % 8] = lane ^ (lane >> 32)
        state = _mix(block)
        for lane in lanes:
            state = _mix(state ^ lane)
        total = (total + state) & WORD
    return total


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 32767, 32768, 32769, 100_001])
@pytest.mark.parametrize("threads", [1, 3])
def test_checksum_is_the_specified_one(size: int, threads: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    with forced_threads(threads):
        assert checksum(content) == reference_checksum(content.tobytes())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rules_hold_across_blocks_and_threads(threads: int, dtype: Any) -> None:
    count = 32768  # a multiple of what fills a line
    values = np.arange(count, dtype=dtype)
    with forced_threads(threads):
        for at in (1, 4095, 4096, 8191, 8192, 16384, count - 1):
            wrong = values.copy()
            wrong[at] = wrong[at - 1] - 1
            expected = checksum(wrong)
            assert checked(wrong.view(np.uint8), wrong, "ascending") == (expected, False)
            assert checked(wrong.view(np.uint8), wrong, "below", count) == (expected, at != 1)
            wrong[at] = count
            assert checked(wrong.view(np.uint8), wrong, "below", count)[1] is False
        assert checked(values.view(np.uint8), values, "ascending")[1]
        assert checked(values.view(np.uint8), values, "below", count)[1]


# GAP's.


def gap_bytes(graph: Graph, *, reverse: bool = True) -> bytes:
    """What gapbs' writer.h writes."""
    parts = [graph, graph.reverse] if graph.directed and reverse else [graph]
    content = struct.pack("<?qq", graph.directed, graph.arc_count, graph.vertex_count)
    for part in parts:
        content += np.asarray(part.offsets, "<i8").tobytes()
        for arc in zip(*arcs_columns(part), strict=True):
            content += struct.pack(f"<{len(arc)}i", *arc)
    return content


def arcs_columns(graph: Graph) -> list[list[int]]:
    """Targets, and weights where there are."""
    columns = [graph.targets.tolist()]
    return columns if graph.weights is None else [*columns, graph.weights.tolist()]


def as_int32(graph: Graph) -> Graph:
    """The graph with weights that GAP has."""
    return graph if graph.weights is None else graph.with_weights(graph.weights.astype(np.int32))


@given(graphs(), st.sampled_from(["", ".gz", ".xz", ".zst"]))
def test_gap_round_trip(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, packed: str
) -> None:
    graph = as_int32(graph)
    folder = tmp_path_factory.mktemp("gap")
    name = f"graph{'.wsg' if graph.is_weighted else '.sg'}{packed}"
    write(graph, folder / name)
    assert same(read(folder / name), graph)
    if not packed:
        assert (folder / name).read_bytes() == gap_bytes(graph)


@pytest.mark.parametrize("reverse", [True, False])
def test_gap_is_known_by_its_size(reverse: bool, tmp_path: Path) -> None:
    for name in ZOO:
        graph = as_int32(named_graph(name))
        path = tmp_path / "nameless"
        path.write_bytes(gap_bytes(graph, reverse=reverse))
        if graph.is_weighted and graph.arc_count == 0:
            graph = graph.without_weights()  # nothing tells them apart but the name
        assert same(read(path), graph), name


def test_gap_weights_of_other_dtypes(tmp_path: Path) -> None:
    path = tmp_path / "graph.wsg"
    arcs = Graph.from_edges([0, 1], [1, 0], np.array([0.5, -2.0], np.float32))
    assert arcs.weights is not None
    path.write_bytes(gap_bytes(arcs.with_weights(arcs.weights.view(np.int32))))
    assert same(read(path, weight_dtype="float32"), arcs)
    with pytest.raises(FormatError, match="weight_dtype asks for float64"):
        read(path, weight_dtype="float64")
    write(arcs.without_weights(), tmp_path / "graph.sg")
    with pytest.raises(FormatError, match="no weights"):
        read(tmp_path / "graph.sg", weight_dtype="float32")
    with pytest.raises(FormatError, match="no weights"):
        read(tmp_path / "graph.sg", weighted=True)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.array([2**31]), "2147483648 is none"),
        (np.array([-(2**31) - 1]), "-2147483649 is none"),
        (np.array([2**32 - 1], np.uint32), "4294967295 is none"),
        (np.array([1.0]), "float64"),
        (np.array([1.0], np.float32), "float32"),
    ],
)
def test_gap_refuses_weights_that_it_has_no_room_for(
    weights: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        write(Graph.from_edges([0], [1], weights), tmp_path / "graph.wsg")
    assert os.listdir(tmp_path) == []


def test_gap_widths_that_fit_are_written(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 0], np.array([2**31 - 1, -(2**31)]))
    write(graph, tmp_path / "graph.wsg")
    assert same(read(tmp_path / "graph.wsg"), as_int32(graph))


def test_gap_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "graph.sg"

    def refused(content: bytes, message: str) -> None:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message):
            read(path)

    edge = gap_bytes(Graph.from_edges([0], [1], directed=False))
    refused(edge[:-1], "truncated")
    refused(edge[:18], "truncated")
    refused(edge + b"\0", "bytes behind its end")
    refused(edge[:10], "unknown format|does not begin")
    refused(edge[:-4] + struct.pack("<i", 2), r"targets\[1\] must be a vertex in \[0, 2\), got 2")
    refused(edge[:-4] + struct.pack("<i", 1), "both directions")
    refused(struct.pack("<?qq", True, 2**46, 2**30), "truncated")
    refused(struct.pack("<?qq", True, 2**62, 1), "unknown format")
    refused(struct.pack("<?qq", True, 1, -1), "unknown format")
    arcs = gap_bytes(Graph.from_edges([0, 1], [1, 2]))
    refused(arcs[:-4] + struct.pack("<i", 0), "not its reverse")


# Galois'.


def galois_bytes(graph: Graph, version: int, *, filled: bool = True) -> bytes:
    """What Galois' file graphs are, by the comments in FileGraph.cpp."""
    weights = graph.weights
    n, m = graph.vertex_count, graph.arc_count
    size = 0 if weights is None else weights.itemsize
    content = struct.pack("<4Q", version, size, n, m)
    content += struct.pack(f"<{n}Q", *graph.offsets[1:].tolist())
    content += struct.pack(f"<{m}{'I' if version == 1 else 'Q'}", *graph.targets.tolist())
    if m % 2 and filled:
        content += bytes(4 if version == 1 else 8)
    return content if weights is None else content + weights.tobytes()


@given(graphs(), st.sampled_from(["", ".gz", ".xz", ".zst"]))
def test_galois_round_trip(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, packed: str
) -> None:
    path = tmp_path_factory.mktemp("galois") / f"graph.sgr{packed}"
    write(graph, path)
    if not packed:
        assert path.read_bytes() == galois_bytes(graph, 1)
    dtype = None if graph.weights is None else graph.weights.dtype
    assert same(read(path, weight_dtype=dtype), as_arcs(graph))
    assert same(read(path, weighted=False), as_arcs(graph.without_weights()))
    if not graph.directed:
        assert same(read(path, weight_dtype=dtype, directed=False), graph)


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("version", [1, 2])
@each_graph
def test_galois_versions(name: str, version: int, filled: bool, tmp_path: Path) -> None:
    graph = as_arcs(named_graph(name))
    if version == 1 and graph.is_weighted:
        filled = True  # its weights begin at a multiple of 8 bytes in any case
    path = tmp_path / "nameless"
    path.write_bytes(galois_bytes(graph, version, filled=filled))
    dtype = None if graph.weights is None else graph.weights.dtype
    assert same(read(path, weight_dtype=dtype), graph)


def test_galois_version_2_is_written_where_1_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(galois, "_VERTICES_OF_VERSION_1", 100)
    graph = named_graph("random directed")
    write(graph, tmp_path / "graph.sgr")
    assert (tmp_path / "graph.sgr").read_bytes() == galois_bytes(graph, 2, filled=False)
    assert same(read(tmp_path / "graph.sgr"), graph)


def test_galois_weight_dtypes(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 0], np.array([0.5, 2.5]))
    path = tmp_path / "graph.sgr"
    write(graph, path)
    assert graph.weights is not None
    assert same(read(path), graph.with_weights(graph.weights.view(np.int64)))
    assert same(read(path, weight_dtype=np.float64), graph)
    with pytest.raises(FormatError, match="8 bytes of data, which are no float32"):
        read(path, weight_dtype="float32")


def test_galois_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "graph.sgr"

    def refused(content: bytes, message: str, **options: Any) -> None:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message):
            read(path, **options)

    arcs = galois_bytes(Graph.from_edges([0, 1], [1, 2]), 1)
    refused(arcs[:-1], "truncated")
    refused(arcs[:32], "truncated")
    refused(arcs + b"\0", "bytes behind its end")
    refused(arcs[:-4] + struct.pack("<I", 3), r"edge 1 must be a vertex in \[0, 3\), got 3")
    refused(arcs[:-4] + struct.pack("<I", 2**32 - 1), "got 4294967295")
    refused(arcs, "both directions", directed=False)
    refused(arcs[:32] + struct.pack("<Q", 2**63 + 5) + arcs[40:], "offsets must not decrease")
    refused(arcs[:48] + struct.pack("<Q", 3) + arcs[56:], "offsets must end with")
    refused(struct.pack("<4Q", 1, 16, 0, 1) + bytes(24), "16 bytes of data, which are no weight")
    refused(struct.pack("<4Q", 1, 4, 2**47, 2**47), "truncated")
    refused(struct.pack("<4Q", 3, 4, 1, 1) + bytes(64), "unknown format")
    path.write_bytes(struct.pack("<4Q", 1, 16, 1, 1) + struct.pack("<QII", 1, 0, 0) + bytes(16))
    assert arcs_of(read(path, weighted=False)) == [(0, 0)]


# All of them.

BYTES: dict[str, Callable[[Graph], bytes]] = {
    "gap": lambda graph: gap_bytes(as_int32(graph)),
    "galois": partial(galois_bytes, version=1),
    "galois 2": partial(galois_bytes, version=2),
}


@pytest.mark.parametrize("format", ["galois", "gap"])
def test_other_ids_are_refused(format: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="text ids"):
        write(Graph.from_edges([0], [1], ids=["a", "b"]), tmp_path / "x", format=format)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", BYTES)
def test_what_does_not_fit_is_refused_before_it_is_allocated(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph"
    path.write_bytes(BYTES[form](named_graph("grid")))
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1000")
    with pytest.raises(GraphTooLargeError):
        read(path)


@pytest.mark.parametrize("form", [*BYTES, "godwit", "godwit gz"])
def test_mutations(form: str, tmp_path: Path) -> None:
    """A damaged file gives a valid graph or one of our errors; of Godwit's own, an error always."""
    graph = named_graph("random undirected" if form == "gap" else "random directed")
    if form.startswith("godwit"):
        write(with_ids(graph, "text"), tmp_path / "whole.godwit")
        content = (tmp_path / "whole.godwit").read_bytes()
    else:
        content = BYTES[form](graph)
    path = tmp_path / "graph"
    for seed in range(1000):
        damaged = mutated(content, seed)
        path.write_bytes(gzip.compress(damaged, 1) if form.endswith("gz") else damaged)
        name = form.split(maxsplit=1)[0] if seed % 2 else None
        try:
            found = read(path, format=name)
            checked_again(found)
            assert len(found.ids) == found.vertex_count
        except GodwitError:
            continue
        assert not form.startswith("godwit"), seed
