"""Matrix Market: all layouts, fields and symmetries, against SciPy."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import FormatError, GodwitError
from godwit.graph.csr import Graph
from godwit.io.graph_files import read
from graphs import arcs_of
from mutations import mutated

Write = Callable[[str | bytes], Path]


@pytest.fixture
def put(tmp_path: Path) -> Write:
    """Write a file whose name says nothing, and give its path."""

    def put_file(content: str | bytes) -> Path:
        path = tmp_path / "matrix"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put_file


def matrix_of(field: str, symmetry: str, n: int = 7) -> Any:
    """A matrix with zeros, dense."""
    generator = np.random.default_rng(n)
    matrix = generator.integers(-9, 10, (n, n)) * (generator.random((n, n)) < 0.6)
    matrix = matrix.astype({"complex": np.complex128, "real": np.float64}.get(field, np.int64))
    if field == "unsigned-integer":
        matrix = abs(matrix)
    if field == "real":
        matrix /= 7
    if field == "complex":
        matrix = matrix + 1j * (matrix.real > 3)
    lower = np.tril(matrix, -1)
    if symmetry == "symmetric":
        return lower + lower.T + np.diag(np.diag(matrix))
    if symmetry == "skew-symmetric":
        return lower - lower.T
    if symmetry == "hermitian":
        return lower + lower.conj().T + np.diag(np.diag(matrix).real)
    return matrix


FIELDS = ("integer", "unsigned-integer", "real", "complex", "pattern")
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
COMBINATIONS = [
    (layout, field, symmetry)
    for layout in ("coordinate", "array")
    for field in FIELDS
    for symmetry in SYMMETRIES
    if not (field == "pattern" and (layout == "array" or symmetry == "skew-symmetric"))
    and not (field == "unsigned-integer" and symmetry == "skew-symmetric")
    and (field == "complex" or symmetry != "hermitian")
]


@pytest.mark.parametrize(("layout", "field", "symmetry"), COMBINATIONS)
def test_every_combination_that_scipy_writes(
    layout: str, field: str, symmetry: str, put: Write
) -> None:
    matrix = matrix_of(field, symmetry)
    if field == "unsigned-integer":
        matrix = matrix.astype(np.uint64)
    file = io.BytesIO()
    stored = scipy.sparse.coo_array(matrix) if layout == "coordinate" else matrix
    scipy.io.mmwrite(
        file, stored, field=None if field == "unsigned-integer" else field, symmetry=symmetry
    )
    banner = file.getvalue().split(b"\n")[0].decode()
    assert banner == f"%%MatrixMarket matrix {layout} {field} {symmetry}"
    path = put(file.getvalue())
    if field == "complex":
        with pytest.raises(FormatError, match="complex numbers cannot be weights"):
            read(path)
    graph = read(path, weighted=False if field == "complex" else None)
    assert graph.directed == (symmetry in ("general", "skew-symmetric"))
    assert (graph.ids.kind, graph.ids.base) == ("consecutive", 1)
    expected = scipy.sparse.coo_array(scipy.io.mmread(path))
    columns = [expected.row.tolist(), expected.col.tolist()]
    if field not in ("complex", "pattern"):
        columns.append(expected.data.tolist())
        assert graph.weights is not None
        assert graph.weights.dtype == (np.float64 if field == "real" else np.int32)
    assert sorted(arcs_of(graph)) == sorted(zip(*columns, strict=True))
    Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)


def test_wide_integers(put: Write) -> None:
    for layout, content in (
        ("array", f"2 2\n1\n{2**40}\n0\n-5\n"),
        ("coordinate", f"2 2 3\n1 1 1\n2 1 {2**40}\n2 2 -5\n"),
    ):
        graph = read(put(f"%%MatrixMarket matrix {layout} integer general\n{content}"))
        assert graph.weights is not None
        assert graph.weights.dtype == np.int64
        assert arcs_of(graph) == [(0, 0, 1), (1, 0, 2**40), (1, 1, -5)]


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [sign * 2**k + d for k in (31, 32, 53, 62) for sign in (-1, 1) for d in (-1, 0, 1)]
    + [-(2**63), 1 - 2**63, 2**63 - 2, 2**63 - 1, 0]
)


@given(
    st.lists(INTEGERS, min_size=1, max_size=5),
    st.sampled_from(["general", "symmetric", "skew-symmetric"]),
    st.sampled_from(["{}", "{:025}"]),
)
def test_integers_are_those_that_scipy_reads(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], symmetry: str, form: str
) -> None:
    if symmetry == "skew-symmetric":
        numbers = [max(number, 1 - 2**63) for number in numbers]
    n = len(numbers) + 1
    lines = [f"{n} {row} {form.format(number)}" for row, number in enumerate(numbers, 1)]
    path = tmp_path_factory.mktemp("integers") / "graph.mtx"
    path.write_text(
        f"%%MatrixMarket matrix coordinate integer {symmetry}\n{n} {n} {n - 1}\n" + "\n".join(lines)
    )
    expected = scipy.io.mmread(path).tocoo()
    assert expected.dtype == np.int64
    assert sorted(arcs_of(read(path))) == sorted(
        zip(expected.row.tolist(), expected.col.tolist(), expected.data.tolist(), strict=True)
    )


def test_an_array_has_no_arcs_where_it_is_zero(put: Write) -> None:
    graph = read(put("%%MatrixMarket matrix array real symmetric\n% c\n2 2\n0\nnan\n-0\n"))
    assert (graph.directed, [arc[:2] for arc in arcs_of(graph)]) == (False, [(0, 1), (1, 0)])
    graph = read(put("%%MatrixMarket matrix array integer general\n1 1\n4\n"), id_base=0)
    assert (graph.ids.base, arcs_of(graph)) == (0, [(0, 0, 4)])


@pytest.mark.parametrize("content", ["real general\n3 3 0\n", "integer skew-symmetric\n3 3 0\n"])
def test_no_entries(put: Write, content: str) -> None:
    graph = read(put(f"%%MatrixMarket matrix coordinate {content}"))
    assert (graph.vertex_count, graph.arc_count, graph.is_weighted) == (3, 0, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("coordinate integer skew-symmetric\n2 2 1\n2 2 5\n", "zero diagonal"),
        ("coordinate pattern skew-symmetric\n2 2 1\n2 1\n", "cannot be pattern"),
        (f"coordinate integer skew-symmetric\n2 2 1\n2 1 {-(2**63)}\n", "does not fit int64"),
        (
            f"coordinate integer general\n2 2 1\n2 1 {2**63}\n",
            "does not fit in 64 bits with a sign",
        ),
        (
            f"coordinate integer general\n2 2 1\n2 1 {-(2**63) - 1}\n",
            "does not fit in 64 bits with",
        ),
        ("array integer general\n2 3\n1\n2\n3\n4\n5\n6\n", "square"),
        ("array integer general\n2 2\n1\n2\n3\n", "but 3 follow"),
        ("array integer general\n2 2\n1\n2\n3\n4\n5\n", "but 5 follow"),
        ("array integer general\n2 2\n1\nx\n3\n4\n", "malformed line, expected NUMBER"),
        ("array pattern general\n2 2\n1\n1\n3\n4\n", "cannot be pattern"),
        ("array integer general\n1 1\n1_0\n", ":3: malformed line, expected NUMBER"),
        ("array real general\n1 1\n1_0.5\n", ":3: malformed line, expected NUMBER"),
        ("coordinate complex general\n2 2 1\n1 2 5_0 6\n", ":3: malformed line"),
        ("array unsigned-integer general\n1 1\n-5\n", ":3: the number is negative"),
        (
            "coordinate unsigned-integer general\n2 2 2\n% -1\n1 1 -0\n1 2 -5\n",
            ":5: the number is negative",
        ),
        ("coordinate integer general\r2 2 1\r1 2 5\r", "end with CR alone"),
        ("array real general\n2 2 4\n1\n1\n3\n4\n", "malformed size line"),
        (f"array real general\n{10**8} {10**8}\n1\n1\n3\n4\n", "larger than|memory"),
        ("array real general\n1000 1000\n1\n1\n3\n4\n", "larger than the file"),
        (f"array unsigned-integer general\n1 1\n{2**64 - 1}\n", "64 bits"),
        (
            "coordinate complex general\n2 2 1\n1 2 5\n",
            ":3: malformed line, expected ROW COLUMN NUMBER",
        ),
        ("coordinate complex general\n2 2 1\n1 3 5 6\n", ":3: vertex id 3 is out of range"),
        ("coordinate complex general\n2 2 9\n1 2 5 6\n", "declares 9 entries, but 1 follow"),
        ("list real general\n2 2 0\n", "layout must be coordinate or array"),
        ("coordinate quaternion general\n2 2 0\n", "the field must be one of"),
        ("coordinate real diagonal\n2 2 0\n", "the symmetry must be one of"),
    ],
)
def test_what_is_wrong(put: Write, content: str, message: str) -> None:
    path = put(f"%%MatrixMarket matrix {content}")
    with pytest.raises(FormatError, match=message):
        read(path, weighted=False if "complex" in content else None)


SAMPLES = [
    "%%MatrixMarket matrix array real symmetric\n3 3\n1\n0\n2.5\n4\n5e-1\n6\n",
    "%%MatrixMarket matrix coordinate complex hermitian\n3 3 3\n2 1 1 2\n3 1 0 1\n1 1 5 0\n",
    "%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 2\n2 1 1\n3 1 -7\n",
    "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 1.5\n3 1 -7\n",
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_mutations(sample: str, put: Write) -> None:
    outcomes = {"read": 0, "refused": 0}
    for seed in range(10 * settings().max_examples):
        path = put(mutated(sample.encode(), seed))
        try:
            graph = read(path, format="matrix-market", weighted=False if seed % 2 else None)
        except GodwitError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)
    assert min(outcomes.values()) > 0
