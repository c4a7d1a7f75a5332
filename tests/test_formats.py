"""Reading graph files: every format and compression, real files, and every way to be wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import re
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import scipy.io

from godwit.errors import FileError, FormatError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.io.graph_files import read
from godwit.io.source import open_source
from godwit.io.text import line_reader
from godwit.io.text.line_reader import IdRange, LineShape, read_lines
from godwit.io.text.scanner import INTEGER_32

DIMACS = "c a comment\np sp 4 5\na 1 2 7\na 1 3 2\na 3 2 1\na 2 4 9\na 4 1 0\n"
MATRIX_MARKET = (
    "%%MatrixMarket matrix coordinate integer general\n% c\n4 4 3\n1 2 7\n3 1 -2\n4 4 1\n"
)
SYMMETRIC = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n2 1\n3 2\n3 3\n"
REAL = "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 0.5\n2 3 1e-3\n3 1 -.25\n"
EDGE_LIST = "# Directed graph\n# Nodes: 4\n0\t1\n0\t2\n2\t1\n3 0\n"
WEIGHTED_EDGE_LIST = "0 1 5\n0 2 6\n2 1 7\n"

SAMPLES = {
    "dimacs": DIMACS,
    "dimacs without problem line": "a 0 1 5\na 2 0 1\n",
    "matrix market": MATRIX_MARKET,
    "symmetric": SYMMETRIC,
    "real": REAL,
    "edge list": EDGE_LIST,
    "weighted edge list": WEIGHTED_EDGE_LIST,
    "csv": "0,1,0.5\n2,1,1.5\n1, 0, 3\n",
}


def _zstd(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": _zstd,
}

EDGES_OF_DOUBLE = """
0 -0 0.0 -0.0 +1 1. .5 -.5 00012 0.000000000000000000000000000012345678901234567
9007199254740993 9007199254740992 9007199254740991 18014398509481985
9007199254740993.00000000000000000000000001 9007199254740992.99999999999999999
1e22 1e23 1e-22 8.5e15 123456789012345678901234567890 1e0 1E+5 1e-0005
1.7976931348623157e308 1.7976931348623159e308 1e309 -1e309 1e99999999999999999999999
2.2250738585072014e-308 2.2250738585072011e-308 4.9e-324 2.4e-324 5e-325 1e-400 1e-9999
0e999999999999 0.1e-1 1234567890123456789 12345678901234567890 18446744073709551615
18446744073709551616 99999999999999999999 1000000000000000000000e-21
6.631236846766476e-316 3.2378839133029012895883524125015321748630094e-319
7.2057594037927933e16 7.2057594037927937e16 -7.2057594037927937e16
inf -inf +inf Infinity INF
"""

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file whose name says nothing, and give its path."""

    def write_file(content: str | bytes) -> Path:
        path = tmp_path / "graph"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def arcs(graph: Graph) -> list[tuple[Any, ...]]:
    sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets)).tolist()
    columns = [sources, graph.targets.tolist()]
    if graph.weights is not None:
        columns.append(graph.weights.tolist())
    return list(zip(*columns, strict=True))


class TestDimacs:
    def test_with_problem_line(self, write: Write) -> None:
        graph = read(write(DIMACS))
        assert (graph.vertex_count, graph.directed, graph.ids.base) == (4, True, 1)
        assert graph.weights is not None
        assert graph.weights.dtype == np.int32
        assert graph.targets.dtype == np.int32
        assert arcs(graph) == [(0, 1, 7), (0, 2, 2), (1, 3, 9), (2, 1, 1), (3, 0, 0)]

    @pytest.mark.parametrize(
        ("content", "id_base", "n", "base"),
        [
            ("a 0 2 5\n", None, 3, 0),
            ("a 1 2 5\n", None, 2, 1),
            ("a 1 2 5\n", 0, 3, 0),
            ("a 1 2 5\n", 1, 2, 1),
            ("p sp 3 1\na 0 2 5\n", 0, 3, 0),
            ("p sp 3 0\n", None, 3, 1),
            ("p sp 0 0\n", None, 0, 1),
        ],
    )
    def test_first_id(
        self, write: Write, content: str, id_base: int | None, n: int, base: int
    ) -> None:
        graph = read(write(content), id_base=id_base)
        assert (graph.vertex_count, graph.ids.base) == (n, base)
        assert arcs(graph) == [] or arcs(graph)[0][1] == 2 - base

    def test_parallel_arcs_and_loops_are_kept_comments_anywhere(self, write: Write) -> None:
        graph = read(write("p sp 2 4\na 1 2 3\nc between\n\na 1 2 4\nc\na 2 2 1\na 1 2 3\n"))
        assert arcs(graph) == [(0, 1, 3), (0, 1, 4), (0, 1, 3), (1, 1, 1)]

    def test_weights_widen_only_as_needed(self, write: Write) -> None:
        def weights(*texts: str) -> Any:
            lines = "".join(f"a 1 2 {text}\n" for text in texts)
            return read(write(f"p sp 2 {len(texts)}\n{lines}")).weights

        assert weights("2147483647", "-2147483648").dtype == np.int32
        wide = weights("1", "2147483648", str(2**63 - 2))
        assert wide.dtype == np.int64
        assert wide.tolist() == [1, 2147483648, 2**63 - 2]
        real = weights("1", "2147483648", "0.5", "+7", "-3")
        assert real.dtype == np.float64
        assert real.tolist() == [1.0, 2147483648.0, 0.5, 7.0, -3.0]


class TestMatrixMarket:
    def test_general(self, write: Write) -> None:
        graph = read(write(MATRIX_MARKET))
        assert (graph.vertex_count, graph.directed, graph.ids.base) == (4, True, 1)
        assert arcs(graph) == [(0, 1, 7), (2, 0, -2), (3, 3, 1)]

    def test_symmetric_is_undirected(self, write: Write) -> None:
        graph = read(write(SYMMETRIC))
        assert not graph.directed
        assert (graph.edge_count, graph.arc_count, graph.weights) == (3, 5, None)
        assert arcs(graph) == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]
        called_directed = read(write(SYMMETRIC), directed=True)
        assert called_directed.directed
        assert arcs(called_directed) == arcs(graph)

    def test_real(self, write: Write) -> None:
        graph = read(write(REAL))
        assert graph.weights is not None
        assert graph.weights.dtype == np.float64
        assert graph.weights.tolist() == [0.5, 1e-3, -0.25]

    @pytest.mark.parametrize("field", ["pattern", "integer", "real"])
    @pytest.mark.parametrize("symmetry", ["general", "symmetric"])
    def test_what_scipy_writes(self, tmp_path: Path, field: str, symmetry: str) -> None:
        matrix = scipy.sparse.random_array((30, 30), density=0.1, rng=1, format="coo")
        if symmetry == "symmetric":
            matrix = scipy.sparse.tril(matrix, format="coo")
            matrix = (matrix + scipy.sparse.tril(matrix, -1).T).tocoo()
        matrix.data = np.round(matrix.data * 100) if field == "integer" else matrix.data * 1e-7
        if field == "integer":
            matrix = matrix.astype(np.int64)
        path = tmp_path / "m.mtx"
        scipy.io.mmwrite(path, matrix, field=field, symmetry=symmetry)
        expected = scipy.io.mmread(path).tocsr()
        graph = read(path)
        assert graph.directed == (symmetry == "general")
        assert np.array_equal(graph.to_scipy().toarray(), expected.toarray())


class TestEdgeList:
    def test_unweighted(self, write: Write) -> None:
        graph = read(write(EDGE_LIST))
        assert (graph.vertex_count, graph.directed, graph.ids.base) == (4, True, 0)
        assert arcs(graph) == [(0, 1), (0, 2), (2, 1), (3, 0)]

    @pytest.mark.parametrize(
        "content",
        [
            "0 1 5\n2 1 7\n",
            "0\t1\t5\n2\t1\t7",
            "0,1,5\n2,1,7\n",
            "0, 1 ,5\n2 1 7\n",
            "\ufeff0 1 5\r\n2 1 7\r\n",
            "% from somewhere\n# else\n\n  0 1 5  \n\n2 1 7 \t\n# end",
            "00 001 +5\n2 1 7\n",
        ],
    )
    def test_separators_comments_and_line_ends(self, write: Write, content: str) -> None:
        graph = read(write(content))
        assert arcs(graph) == [(0, 1, 5), (2, 1, 7)]
        assert graph.weights is not None
        assert graph.weights.dtype == np.int32

    def test_directed_and_first_id(self, write: Write) -> None:
        graph = read(write("1 2\n3 3\n"), id_base=1, directed=False)
        assert (graph.vertex_count, graph.ids.base, graph.directed) == (3, 1, False)
        assert arcs(graph) == [(0, 1), (1, 0), (2, 2)]
        path = write("10 12\n")
        assert list(read(path).ids) == [10, 12]
        assert read(path, relabel=False).vertex_count == 13

    def test_weights_can_be_dropped_or_demanded(self, write: Write) -> None:
        assert read(write("0 1 5\n"), weighted=False).weights is None
        assert read(write("0 1 5\n"), weighted=True).weights is not None
        with pytest.raises(FormatError, match="no weights"):
            read(write("0 1\n"), weighted=True)

    def test_ids_of_64_bits_where_32_do_not_do(self, write: Write) -> None:
        with open_source(write("0 1\n0 2\n4294967296 7\n")) as source:
            text = source.text()
            found = read_lines(text, 0, LineShape("U V"), IdRange(0, 2**40, False))
        (block,) = found.blocks()
        assert block.targets.dtype == np.int64
        assert block.sources.tolist() == [0, 0, 2**32]
        assert (found.min_id, found.max_id) == (0, 2**32)

    @pytest.mark.parametrize(
        ("content", "ids", "weights"),
        [
            ("source target\n5 7\n7 6\n", [5, 6, 7], None),
            ("# of SNAP\nFromNodeId ToNodeId\n0 1\n", [0, 1], None),
            ("x y z\n0 1 5\n1 2 6\n", [0, 1, 2], [5, 6]),
            ("source target weight\nann bob 3\n", ["ann", "bob"], [3]),
            ("u v\nv w\n", ["u", "v", "w"], None),  # usual names, which are ids below
            ("protein1\tprotein2 score\n9606.A 9606.B .5\n", ["9606.A", "9606.B"], [0.5]),
            ("ann bob\n1 2\n2 ann\n", ["1", "2", "ann", "bob"], None),
            ("# Ids: text\nann bob\n1 2\n", ["1", "2", "ann", "bob"], None),
        ],
    )
    def test_a_line_that_names_columns_is_no_arc(
        self, write: Write, content: str, ids: Any, weights: Any
    ) -> None:
        graph = read(write(content))
        assert graph.ids.of(np.arange(graph.vertex_count)) == list(ids)
        assert (None if graph.weights is None else graph.weights.tolist()) == weights

    def test_a_wrong_weight_of_the_first_arc_makes_no_names_of_its_vertices(
        self, write: Write
    ) -> None:
        with pytest.raises(FormatError):
            read(write("ann bob NA\nbob cyd 3\n"))

    def test_named_columns_in_another_order_are_refused(self, write: Write) -> None:
        with pytest.raises(FormatError, match=r"must be SOURCE TARGET or .*: 'target source'"):
            read(write("target source\n0 1\n"))

    @pytest.mark.parametrize("names", ["u v w", "source target weight"])
    def test_names_of_columns_that_are_not_there_are_refused(
        self, names: str, write: Write
    ) -> None:
        with pytest.raises(FormatError, match="unknown format"):
            read(write(f"{names}\n0 1\n1 2\n"))
        with pytest.raises(FormatError):
            read(write(f"{names}\n0 1\n1 2\n"), format="edge-list")


class TestNumbers:
    """Every double is the nearest one, as Python's float() finds it."""

    def _read(self, write: Write, words: list[str]) -> Any:
        lines = "".join(f"1 1 {word}\n" for word in words)
        banner = f"%%MatrixMarket matrix coordinate real general\n1 1 {len(words)}\n"
        return read(write(banner + lines)).weights

    def _check(self, write: Write, words: list[str]) -> None:
        expected = np.array([float(word) for word in words])
        got = self._read(write, words)
        wrong = np.flatnonzero(got.view(np.int64) != expected.view(np.int64))
        assert wrong.size == 0, (words[wrong[0]], got[wrong[0]])

    def test_random_doubles_in_many_notations(self, write: Write) -> None:
        generator = np.random.default_rng(1)
        bits = generator.integers(0, 2**64, 20_000, dtype=np.uint64)
        doubles = bits.view(np.float64)
        doubles = doubles[np.isfinite(doubles)].tolist()
        near_one = (generator.standard_normal(10_000) * 1000).tolist()
        words = [repr(x) for x in doubles + near_one]
        words += [f"{x:.17e}" for x in doubles] + [f"{x:.25f}" for x in near_one]
        words += [f"{x:.{k % 19}g}".upper() for k, x in enumerate(doubles)]
        self._check(write, words)

    def test_edges_of_the_format(self, write: Write) -> None:
        self._check(write, EDGES_OF_DOUBLE.split())

    def test_halfway_cases(self, write: Write) -> None:
        generator = random.Random(2)
        words = []
        for _ in range(2000):
            mantissa = generator.randrange(1 << 52, 1 << 53)
            exponent = generator.randrange(0, 10)
            halfway = (2 * mantissa + 1) << exponent
            words += [str(halfway), str(halfway - 1), str(halfway + 1), f"{halfway}e-1"]
            words.append(f"{halfway}.{'0' * 12}1")
        self._check(write, words)

    def test_nan_is_read_as_it_is(self, write: Write) -> None:
        assert np.isnan(self._read(write, ["nan", "NaN"])).all()


class TestCompression:
    @pytest.mark.parametrize("kind", COMPRESSORS)
    @pytest.mark.parametrize("name", SAMPLES)
    def test_gives_the_same_graph(self, write: Write, kind: str, name: str) -> None:
        plain = read(write(SAMPLES[name]))
        packed = read(write(COMPRESSORS[kind](SAMPLES[name].encode())))
        assert arcs(packed) == arcs(plain)

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_streams_in_a_row(self, write: Write, kind: str) -> None:
        halves = DIMACS[:30].encode(), DIMACS[30:].encode()
        packed = b"".join(COMPRESSORS[kind](half) for half in halves)
        assert arcs(read(write(packed))) == arcs(read(write(DIMACS)))

    @pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz"])
    def test_zeros_behind_the_stream_are_padding(self, write: Write, kind: str) -> None:
        assert read(write(COMPRESSORS[kind](DIMACS.encode()) + bytes(4096))).arc_count == 5

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_text_larger_than_a_step(
        self, write: Write, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("godwit.io.compression._BLOCK_BYTES", 7)
        monkeypatch.setattr("godwit.io.compression._OUTPUT_BYTES", 1000)
        lines = "".join(f"{v} {v + 1}\n" for v in range(20_000))
        graph = read(write(COMPRESSORS[kind](lines.encode())))
        assert np.array_equal(graph.targets, np.arange(1, 20_001))

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_truncated_at_every_byte(self, write: Write, kind: str) -> None:
        packed = COMPRESSORS[kind](DIMACS.encode())
        for length in range(8, len(packed)):
            with pytest.raises(FormatError, match=f"{kind} stream|header size"):
                read(write(packed[:length]))

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_corrupt_and_garbage(self, write: Write, kind: str) -> None:
        packed = bytearray(COMPRESSORS[kind](b"".join(b"%d 1\n" % i for i in range(9999))))
        with pytest.raises(FormatError, match=kind):
            read(write(bytes(packed) + b"garbage"))
        # Of these zstd alone has no checksum here: a byte of its frame's header is hit.
        packed[4 if kind == "zstd" else len(packed) // 2] ^= 0xFF
        with pytest.raises(FormatError, match=f"corrupt {kind} stream"):
            read(write(bytes(packed)))

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_of_nothing(self, write: Write, kind: str) -> None:
        with pytest.raises(FormatError, match="the file is empty"):
            read(write(COMPRESSORS[kind](b"")))

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_a_bomb_is_stopped(
        self, write: Write, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(COMPRESSORS[kind](bytes(100 << 20)))
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(40 << 20))
        monkeypatch.setattr("godwit.io.source._SHARE_OF_DISK", 0)
        with pytest.raises(GraphTooLargeError, match="not enough space"):
            read(path)


class TestErrors:
    @pytest.mark.parametrize(
        ("content", "line", "message"),
        [
            ("", None, "the file is empty"),
            ("hello, dear world\n", 1, "unknown format; known are "),
            ("\x7fELF\0\0", None, "not a text file"),
            (b"\x93NUMPY\x01\x00v", None, "an array of NumPy's, not a graph"),
            ("0,1\n".encode("utf-16"), None, "this is text in UTF-16: save it as UTF-8"),
            ("source,target\nann,bob\n".encode("utf-16"), None, "this is text in UTF-16"),
            (b"PK\x03\x04\x14\0\0\0\0\0a.csvfrom,to\n1,2\n", None, "a ZIP archive"),
            (b"a.csv".ljust(257, b"\0") + b"ustar\x0000", None, "a tar archive"),
            (b"ARROW1\0\0\xff\xff", None, "a table of Arrow"),
            (b"SQLite format 3\0\x10", None, "this is a database"),
            (b"\x89HDF\r\n\x1a\n\0\0", None, "anndata.read_h5ad"),
            (b"\x80\x04\x95\x10\0", None, "a pickle"),
            ("%PDF-1.7\n1 0 obj\n", None, "a PDF document"),
            (
                "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 1\n",
                None,
                "Git LFS",
            ),
            ("<!DOCTYPE html><html><body>404</body></html>", None, "an HTML page"),
            ("\n<HTML>\n<p>Not found\n", None, "an HTML page"),
            ('<?xml version="1.0"?>\n<gexf version="1.2">\n</gexf>\n', None, "read_gexf"),
            ("# by hand\ngraph [\n directed 1\n]\n", None, "read_gml"),
            ('*Vertices 2\n1 "a"\n2 "b"\n', None, "read_pajek"),
            ("strict digraph G {\n a -> b\n}\n", None, "read_dot"),
            ('{"nodes":[{"id":1}],"links":[]}', None, "this is JSON"),
            ('[{"source": 0, "target": 1}]', None, "this is JSON"),
            ("14 53 100\n2 3 4 5 7\n", 1, "unknown format"),
            ("# only comments\n", 1, "unknown format"),
            ("0 1 {}\n1 2 {}\n", None, "networkx.read_edgelist"),
            ("ann bob {'weight': 3, 'since': 'May'}\n", None, "networkx.read_edgelist"),
            (
                "% sym positive\n1 2 1 1082040961\n2 3 1 1082155839\n",
                None,
                "this file has 4: awk '",
            ),
            ("ann bob 1 1082040961 x\n", None, "this file has 5: awk '"),
            ("6,2,4,1289241911.728\n6,5,2,1289241941.534\n", None, "this file has 4: awk -F, '"),
            (
                "protein1 protein2 fusion score\nA B 0 490\n",
                None,
                "), 'protein1', 'protein2', 'fusion')",
            ),
            ("so many words here\n", 1, "unknown format"),
            (
                "ann|bob\nbob|cyd\n",
                1,
                "godwit.Graph.from_table what pandas.read_csv(path, sep=...)",
            ),
            ("a,b,c,d\nann,bob,x,y\n", 1, 'format="csv" reads a table'),
            ("1 2 3 4\n1 2 3\n", 1, "unknown format"),
            # DIMACS
            ("c only a comment\n", None, "neither arcs nor a problem line"),
            ("p sp 2 1\na 1 2\n", 2, "malformed line, expected a SOURCE TARGET WEIGHT: 'a 1 2'"),
            ("p sp 2 1\na 1 2 3 4\n", 2, "malformed line"),
            ("p sp 2 1\na 1 x 3\n", 2, "malformed line"),
            ("p sp 2 1\na 1 2 3x\n", 2, "malformed line"),
            ("p sp 2 1\na 1 2 1.5x\n", 2, "malformed line"),
            ("p sp 2 1\na1 2 3\n", 2, "malformed line"),
            ("p sp 2 1\ne 1 2\n", 2, "malformed line"),
            ("p sp 2 1\n1 2 3\n", 2, "malformed line"),
            ("p sp 2 1\na 1 2 3\np sp 2 1\n", 3, "malformed line"),
            ("p sp 2 1\np sp 2 1\na 1 2 3\n", 2, "a second problem line"),
            ("p sp 2\na 1 2 3\n", 1, "malformed problem line, expected p sp VERTICES ARCS"),
            ("p col 2 1\ne 1 2\n", 1, "malformed problem line"),
            ("p sp 2 2\na 1 2 3\n", 1, "declares 2 arcs, but 1 follow"),
            ("p sp 2 1\na 1 2 3\na 2 1 3\n", 1, "declares 1 arcs, but 2 follow"),
            ("p sp 2 1\na 0 1 3\n", 2, "read it with id_base=0 (command line: --id-base 0)"),
            (
                "p sp 2 1\na 1 3 3\n",
                2,
                "vertex id 3 is out of range: 2 vertices are declared, 1 to",
            ),
            ("p sp 2 1\na -1 2 3\n", 2, "vertex id -1 is negative"),
            ("p sp 2 1\na 1 99999999999999999999999 3\n", 2, "is out of range"),
            ("p sp 2 1\na 1 2 99999999999999999999\n", 2, "does not fit in 64 bits"),
            ("p sp 99999999999999 0\n", 1, "do not fit in memory"),
            (f"p sp {'9' * 5000} 0\n", 1, "malformed problem line"),
            ("p sp 2 999999999999999999\na 1 2 3\n", 1, "declares 999999999999999999 arcs, but 1"),
            ("a 1 2 3\na 1 99999999999999 1\n", 2, "too large"),
            # Matrix Market
            ("%%MatrixMarket matrix coordinate\n1 1 1\n", 1, "malformed banner"),
            ("%%MatrixMarket vector coordinate real general\n1 1\n", 1, "malformed banner"),
            (
                "%%MatrixMarket matrix coordinate pattern general\n% c\n",
                None,
                "size line is missing",
            ),
            ("%%MatrixMarket matrix coordinate pattern general\n3 3\n", 2, "malformed size line"),
            ("%%MatrixMarket matrix coordinate pattern general\n3 4 0\n", 2, "this one is 3 x 4"),
            ("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2 5\n", 3, "malformed"),
            ("%%MatrixMarket matrix coordinate integer general\n3 3 1\n1 2\n", 3, "malformed"),
            ("%%MatrixMarket matrix coordinate integer general\n3 3 1\n1 2 .5\n", 3, "an integer"),
            ("%%MatrixMarket matrix coordinate integer general\n3 3 1\n1 2 1.5\n", 3, "an integer"),
            ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 1.5e\n", 3, "malformed"),
            ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 .\n", 3, "malformed"),
            ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 ice\n", 3, "not a number"),
            ("%%MatrixMarket matrix coordinate real general\n3 3 1\n0 2 1\n", 3, "id_base=0"),
            ("%%MatrixMarket matrix coordinate real general\n3 3 1\n4 2 1\n", 3, "1 to 3"),
            ("%%MatrixMarket matrix coordinate pattern general\n3 3 9\n1 2\n", 2, "but 1 follow"),
            # edge lists
            ("0 1\n1 2 3\n", 2, "malformed line, expected SOURCE TARGET: '1 2 3'"),
            ("0 1 2\n1 2\n", 2, "malformed line, expected SOURCE TARGET WEIGHT"),
            ("0 1\n1\n", 2, "malformed line"),
            ("0 1\n1 b\n", 2, "malformed line"),
            ("0,1\n1,,2\n", 2, "malformed line"),
            ("0 1\n\r1 2\n", 2, "malformed line"),
        ],
    )
    def test_file(self, write: Write, content: str, line: int | None, message: str) -> None:
        path = write(content)
        with pytest.raises(FormatError) as caught:
            read(path)
        assert message in str(caught.value)
        assert str(path) in str(caught.value)
        assert caught.value.line == line

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"format": "excel"}, "format must be one of "),
            ({"columns": ["u", "v"]}, "is of format dimacs, for which columns means nothing"),
            ({"columns": "uv"}, "columns must be names"),
            ({"directed": "no"}, "directed must be"),
            ({"relabel": 1}, "relabel must be"),
            ({"columns": ["u", "u"]}, "columns must be 2 or 3 different names"),
            ({"weight_dtype": "int8"}, "weight_dtype must be one of int32, "),
            ({"id_base": -1}, "id_base must not be negative, got -1"),
            ({"id_base": "0"}, "id_base must be an integer, got '0'"),
        ],
    )
    def test_options(self, write: Write, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            read(write(DIMACS), **options)

    def test_first_id_that_is_wrong(self, write: Write) -> None:
        with pytest.raises(FormatError, match="is read with id_base=1"):
            read(write(DIMACS), id_base=0)
        with pytest.raises(FormatError, match="below the first id, 5"):
            read(write("4 5\n"), id_base=5)
        with pytest.raises(FormatError, match="read it with id_base=0"):
            read(write("0 5\n"), id_base=1)
        with pytest.raises(FormatError, match="vertex id -2 is negative") as caught:
            read(write("0 1\n1 -2\n"), relabel=False)
        assert caught.value.line == 2

    def test_ids_too_large_to_be_vertices(self, write: Write) -> None:
        path = write("0 1\n1 4000000000000\n")
        with pytest.raises(FormatError, match=r"too large.*relabel=True") as caught:
            read(path, relabel=False)
        assert caught.value.line == 2

    def test_format_can_be_forced(self, write: Write) -> None:
        assert read(write("# nothing\n1 2\n"), format="edge-list").arc_count == 1
        with pytest.raises(FormatError, match="only comments"):
            read(write("# nothing\n"), format="edge-list")
        with pytest.raises(FormatError, match="malformed line, expected a SOURCE"):
            read(write(EDGE_LIST), format="dimacs")
        with pytest.raises(FormatError, match="malformed banner"):
            read(write(EDGE_LIST), format="matrix-market")

    def test_paths(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing.gr"
        with pytest.raises(FileError, match=f"no such file: {missing}"):
            read(missing)
        for text, advice in {
            "rmat:10,seed=3": "godwit.generate",
            "dataset:web-Google": r"godwit.dataset\('web-Google'\)",
            "web-google": "command line: dataset:web-google",
            "https://example.org/roads.csv": "download it first",
            "~/roads.csv": "os.path.expanduser",
        }.items():
            with pytest.raises(FileError, match=f"no such file: {text}; .*{advice}"):
                read(text)
        with pytest.raises(FileError, match="is a directory"):
            read(tmp_path)
        with pytest.raises(FileError, match="cannot read"):
            read("a\0b")
        with pytest.raises(FileError, match="cannot read"):
            read(tmp_path / ("x" * 5000))
        with pytest.raises(InputError, match="path must be"):
            read(5)  # type: ignore[arg-type]

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
    def test_permission(self, write: Write) -> None:
        path = write(DIMACS)
        path.chmod(0)
        with pytest.raises(FileError, match="permission denied"):
            read(path)

    def test_permission_as_reported_by_the_system(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> None:
            raise PermissionError(13, "Permission denied")

        path = write(DIMACS)
        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(FileError, match="permission denied"):
            read(path)

    def test_columns_that_do_not_fit(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write("0 1\n" * 10_000)
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", "50000")
        with pytest.raises(GraphTooLargeError, match="10,000 arcs need"):
            read(path)


class TestPieces:
    """Where the text is cut, and on how many threads it is scanned, makes no difference."""

    @pytest.fixture(params=[1, 2, 3])
    def _small_pieces(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_THREADS", str(request.param))
        monkeypatch.setattr(line_reader, "_BYTES_FOR_TEAM", 0)

    @pytest.mark.usefixtures("_small_pieces")
    @pytest.mark.parametrize("piece", [1, 2, 3, 7, 16, 61, 1000])
    def test_arcs(self, write: Write, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
        generator = random.Random(5)
        rows = [(generator.randrange(10 ** (1 + i % 7)), i, i * i) for i in range(300)]
        lines = [" ".join(map(str, row)) for row in rows]
        for at in sorted(generator.sample(range(300), 40), reverse=True):
            lines.insert(at, generator.choice(["", "# comment", "%", "  "]))
        path = write("\n".join(lines))
        monkeypatch.setattr(line_reader, "_PIECE_BYTES", piece)
        lines_of_arcs = LineShape("U V W", (INTEGER_32,), comments="#%")
        with open_source(path) as source:
            text = source.text()
            found = read_lines(text, 0, lines_of_arcs, IdRange(0, 10**7, False))
        (block,) = found.blocks()
        assert block.weights is not None
        columns = (block.sources.tolist(), block.targets.tolist(), block.weights.tolist())
        assert list(zip(*columns, strict=True)) == rows

    @pytest.mark.usefixtures("_small_pieces")
    def test_first_wrong_line(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(line_reader, "_PIECE_BYTES", 50)
        lines = [f"{i} {i + 1}" for i in range(1000)]
        for wrong in (999, 700, 501, 500):
            lines[wrong] = f"{wrong} x"
            with pytest.raises(FormatError) as caught:
                read(write("\n".join(lines)))
            assert caught.value.line == wrong + 1
            assert caught.value.text == f"{wrong} x"


class TestProgress:
    def test_of_a_plain_and_a_compressed_file(self, write: Write) -> None:
        content = "".join(f"{v} {v + 1}\n" for v in range(300_000)).encode()
        for data, phase in ((content, "reading"), (gzip.compress(content, 1), "decompressing")):
            calls: list[tuple[int, int, str]] = []
            threads = set()

            def progress(done: int, total: int, phase: str, calls=calls, threads=threads) -> None:  # type: ignore[no-untyped-def]
                calls.append((done, total, phase))
                threads.add(threading.current_thread())

            read(write(data), progress=progress)
            assert threads == {threading.main_thread()}
            assert all(0 < done <= total for done, total, _ in calls)
            of_file = [call for call in calls if call[2] == phase]
            assert of_file[-1][:2] == (len(data), len(data))
            assert calls[-1][2] == "building"

    def test_an_exception_comes_through(self, write: Write) -> None:
        def progress(done: int, total: int, phase: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            read(write(DIMACS), progress=progress)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("pack", [bytes, gzip.compress, _zstd])
def test_pipe(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(pack(DIMACS.encode())))
    writer.start()
    graph = read(path)
    writer.join()
    assert graph.arc_count == 5


class TestDevices:
    @pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
    def test_they_are_refused(self, path: str) -> None:
        if not Path(path).exists():
            pytest.skip(f"no {path} here")
        with pytest.raises(FileError, match=f"{path} is a device, not a file"):
            read(path)

    def test_disks_are_refused(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(DIMACS)
        status = os.stat_result((stat.S_IFBLK | 0o600, *[0] * 9))
        monkeypatch.setattr(os, "fstat", lambda _: status)
        with pytest.raises(FileError, match="is a device, not a file"):
            read(path)

    def test_terminals_are_read(self) -> None:
        pty = pytest.importorskip("pty")
        master, terminal = pty.openpty()
        try:
            os.write(master, DIMACS.encode() + b"\x04\x04")  # Ctrl-D
            assert read(os.ttyname(terminal)).arc_count == 5
        finally:
            os.close(master)
            os.close(terminal)

    @pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="no /dev/stdin here")
    def test_standard_input_is_read(self) -> None:
        command = [sys.executable, "-c", "import godwit; godwit.read('/dev/stdin')"]
        found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert b"/dev/stdin: the file is empty" in found.stderr


class TestFuzz:
    """Whatever is done to a file, it is read, or refused by an error that we meant."""

    @pytest.fixture(autouse=True)
    def _little_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(64 << 20))

    def _mutate(self, data: bytes, generator: random.Random) -> bytes:
        changed = bytearray(data)
        for _ in range(generator.choice([1, 1, 1, 2, 4, 16])):
            at = generator.randrange(len(changed) + 1)
            match generator.randrange(7):
                case 0:
                    changed[at : at + 1] = bytes([generator.randrange(256)])
                case 1:
                    changed[at:at] = generator.choice(b"0123456789 -.eE\n\tcpa%#,+n").to_bytes()
                case 2:
                    del changed[at : at + generator.choice([1, 1, 3, 40])]
                case 3:
                    del changed[at:]
                case 4:
                    end = at + generator.randrange(40)
                    changed[at:at] = changed[at:end]
                case 5:
                    changed[at : at + 1] = b"9" * generator.choice([1, 5, 12, 20, 30])
                case 6:
                    other = generator.randrange(len(changed) + 1)
                    changed[at : at + 4] = changed[other : other + 4]
        return bytes(changed)

    def _outcome(self, path: Path) -> str:
        try:
            graph = read(path)
        except InputError as error:
            return "refused" if str(path) in str(error) else f"refused without the path: {error}"
        Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)
        return "read"

    @pytest.mark.parametrize("name", SAMPLES)
    def test_text(self, write: Write, name: str) -> None:
        generator = random.Random(name)
        outcomes = {
            self._outcome(write(self._mutate(SAMPLES[name].encode(), generator)))
            for _ in range(300)
        }
        assert outcomes == {"read", "refused"}

    @pytest.mark.parametrize("kind", COMPRESSORS)
    def test_compressed(self, write: Write, kind: str) -> None:
        generator = random.Random(kind)
        packed = COMPRESSORS[kind](DIMACS.encode())
        outcomes = [self._outcome(write(self._mutate(packed, generator))) for _ in range(300)]
        assert "refused" in outcomes
        assert set(outcomes) <= {"read", "refused"}


REAL_FILES = [
    ("USA-road-d.NY.gr.xz", 264_346, 733_846, True, "int32"),
    ("rome-roads.mtx.xz", 234_496, 258_193, False, "int32"),
    ("moscow-roads.mtx.xz", 411_992, 450_919, False, "int32"),
    ("cnr-2000.mtx.xz", 325_557, 3_216_152, True, None),
    ("dblp-2010.mtx.xz", 326_186, 807_700, False, None),
    ("bremen_dist.gr.xz", 40_461, 86_475, True, "int32"),
    ("uk-2007-05@100000.mtx.xz", 100_000, 3_050_615, True, None),
    ("soc-Slashdot0902.mtx.xz", 82_168, 948_464, True, None),
    ("cit-HepPh.mtx.xz", 34_546, 421_578, True, None),
    ("email-Enron.mtx.xz", 36_692, 183_831, False, None),
    ("as-caida20071105.mtx.xz", 26_475, 53_381, False, None),
    ("wave.mtx.xz", 156_317, 1_059_331, False, None),
    ("rgg_n_2_15_s0.mtx.xz", 32_768, 160_240, False, None),
    ("delaunay_n15.mtx.xz", 32_768, 98_274, False, None),
    ("PGPgiantcompo.mtx.xz", 10_680, 24_316, False, None),
]


class TestRealFiles:
    @pytest.mark.parametrize(("name", "n", "m", "directed", "weights"), REAL_FILES)
    def test_counts_and_arcs(
        self, data_folder: Path, name: str, n: int, m: int, directed: bool, weights: str | None
    ) -> None:
        path = data_folder / name
        graph = read(path)
        assert (graph.vertex_count, graph.directed) == (n, directed)
        assert (graph.arc_count if directed else graph.edge_count) == m
        assert (None if graph.weights is None else graph.weights.dtype.name) == weights
        assert graph.ids.base == (0 if name.startswith("bremen") else 1)
        data = lzma.decompress(path.read_bytes())
        if ".mtx" in name:
            expected = scipy.io.mmread(io.BytesIO(data)).tocsr()
            expected.sort_indices()
            assert np.array_equal(graph.offsets, expected.indptr)
            assert np.array_equal(graph.targets, expected.indices)
            if graph.weights is not None:
                assert np.array_equal(graph.weights, expected.data)
        else:
            rows = [line[2:] for line in data.split(b"\n") if line.startswith(b"a ")]
            columns = np.array(b" ".join(rows).split(), np.int64).reshape(-1, 3)
            columns[:, :2] -= graph.ids.base
            order = np.lexsort((np.arange(m), columns[:, 1], columns[:, 0]))
            sources = np.repeat(np.arange(n), np.diff(graph.offsets))
            assert graph.weights is not None
            got = np.stack([sources, graph.targets, graph.weights], axis=1)
            assert np.array_equal(got, columns[order])

    def test_the_gap_suite_in_every_text_format(self, data_folder: Path, tmp_path: Path) -> None:
        with tarfile.open(data_folder / "small" / "gapbs.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        folder = next(tmp_path.rglob("4.el")).parent
        graphs = {
            path.name: read(path, relabel=False if path.suffix in (".el", ".wel") else None)
            for path in folder.glob("4*")
            if path.suffix != ".graph"
        }
        assert set(graphs) == {"4.el", "4.wel", "4.gr", "4.mtx", "4w.mtx"}
        for name, graph in graphs.items():
            assert (graph.vertex_count, graph.arc_count) == (14, 256), name
            assert np.array_equal(graph.offsets, graphs["4.el"].offsets), name
            assert np.array_equal(graph.targets, graphs["4.el"].targets), name
        assert graphs["4.wel"].weights is not None
        assert arcs(graphs["4.wel"]) == arcs(graphs["4.gr"])
        assert sorted(arcs(graphs["4w.mtx"])) == sorted(arcs(graphs["4.gr"]))

    @pytest.mark.parametrize(
        ("archive_name", "file", "n", "arc_count"),
        [
            ("galois", "rome99.gr", 3353, 8870),
            ("gunrock", "bips98_606.mtx", 7135, 34_738),
            ("gunrock", "chesapeake.mtx", 39, 340),
            ("gunrock", "delaunay_n13.mtx", 8192, 49_094),
        ],
    )
    def test_small_graphs_of_others(
        self, data_folder: Path, archive_name: str, file: str, n: int, arc_count: int, write: Write
    ) -> None:
        with tarfile.open(data_folder / "small" / f"{archive_name}.tar.xz") as archive:
            member = next(m for m in archive.getmembers() if m.name.endswith(file))
            extracted = archive.extractfile(member)
            assert extracted is not None
            data = extracted.read()
        graph = read(write(data))
        assert (graph.vertex_count, graph.arc_count) == (n, arc_count)
        if file.endswith(".mtx"):
            expected = scipy.io.mmread(io.BytesIO(data)).tocsr()
            assert np.array_equal(graph.offsets, expected.indptr)
            if graph.weights is not None:
                expected.sort_indices()
                assert np.array_equal(graph.weights, expected.data)


@pytest.mark.parametrize(
    ("ending", "missing"),
    [
        (".mtx", "%%MatrixMarket matrix LAYOUT FIELD SYMMETRY"),
        (".gr", "p sp VERTICES ARCS"),
        (".graph", "VERTICES EDGES"),
        (".graph-txt", "number of vertices"),
        (".godwit", "Godwit"),
        (".parquet", "PAR1"),
        (".sg", "GAP's binary header"),
        (".wsg", "GAP's binary header"),
        (".vgr", "Galois' binary header"),
        (".sgr", "Galois' binary header"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_header_that_the_name_promises_is_missed(
    tmp_path: Path, ending: str, missing: str, packed: bool
) -> None:
    path = tmp_path / f"graph{ending}{'.gz' if packed else ''}"
    for content, format in (
        ("% of somebody\n3 3 4\n1 2 5\n2 3 6\n3 1 7\n1 3 8\n", "edge-list"),
        ("source,target\n1,2\n2,3\n", "csv"),
    ):
        path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
        if ending == ".graph" and format == "edge-list":
            continue  # its first line is such a header, and the others are no neighbours
        with pytest.raises(FormatError, match=re.escape(missing)) as caught:
            read(path)
        assert f"--format {format}" in str(caught.value)
        assert read(path, format=format).arc_count == content.count("\n") - 1
    path.write_text("neither\nthis\nnor that one here\n")
    with pytest.raises(FormatError, match=re.escape(missing)):
        read(path)
    # What another format's own header says counts for more than the name.
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    assert read(path).arc_count == 1
