"""Files of every format with bits flipped and ends cut off: refused, or read as what they were.

That is so of all that has checksums. GAP's and Galois' binary graphs have no room for one; there what the
structure shows is refused, which is all but what is named here.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from godwit.errors import GodwitError
from godwit.graph.csr import Graph
from godwit.io.graph_files import read, write

CHECKED = (
    ".wel.zst", ".wel.gz", ".wel.bz2", ".wel.xz", ".csv.zst", ".csv.gz", ".csv.bz2", ".csv.xz",
    ".godwit", ".parquet",
)  # fmt: skip
UNCHECKED = (".sg", ".wsg", ".vgr", ".sgr")


def sample(*, weighted: bool, directed: bool) -> Graph:
    """Five edges, one of them a self-loop."""
    weights = [5, 7, 2**31 - 9, -3, 0] if weighted else None
    return Graph.from_edges(
        [0, 0, 2, 3, 4], [1, 2, 0, 1, 4], weights, directed=directed, vertex_count=5
    )


def content_of(graph: Graph) -> tuple[object, ...]:
    """What two graphs that are the same have in common."""
    weights = None if graph.weights is None else (graph.weights.dtype, graph.weights.tolist())
    return (
        graph.directed,
        graph.offsets.tolist(),
        graph.targets.tolist(),
        weights,
        list(graph.ids.in_file),
    )


def changed(path: Path, contents: list[bytes]) -> list[int]:
    """Which of these contents of a file are read as another graph than its own."""
    expected = content_of(read(path))
    found = []
    for number, content in enumerate(contents):
        path.write_bytes(content)
        try:
            graph = content_of(read(path))
        except GodwitError:
            continue
        if graph != expected:
            found.append(number)
    return found


def flipped(content: bytes) -> list[bytes]:
    """The content with each of its bits flipped."""
    return [
        content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        for at in range(len(content))
        for bit in range(8)
    ]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("ending", CHECKED)
def test_every_bit_is_checked(ending: str, directed: bool, tmp_path: Path) -> None:
    path = tmp_path / f"graph{ending}"
    write(sample(weighted=True, directed=directed), path)
    assert changed(path, flipped(path.read_bytes())) == []


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("ending", CHECKED + UNCHECKED)
def test_every_truncation_is_noticed(ending: str, directed: bool, tmp_path: Path) -> None:
    path = tmp_path / f"graph{ending}"
    write(sample(weighted=ending not in (".sg", ".vgr"), directed=directed), path)
    content = path.read_bytes()
    assert changed(path, [content[:size] for size in range(len(content))]) == []


@pytest.mark.parametrize("ending", [".sg", ".wsg"])
def test_what_the_structure_of_gap_shows(ending: str, tmp_path: Path) -> None:
    """All of a directed graph, which has its reverse beside it; of an undirected one, all but whether it
    is, and the weights of self-loops."""
    path = tmp_path / f"graph{ending}"
    write(sample(weighted=ending == ".wsg", directed=True), path)
    assert changed(path, flipped(path.read_bytes())) == []
    write(sample(weighted=ending == ".wsg", directed=False), path)
    content = path.read_bytes()
    weight = range(8 * (len(content) - 4), 8 * len(content)) if ending == ".wsg" else ()
    assert changed(path, flipped(content)) == [0, *weight]


@pytest.mark.parametrize("ending", [".vgr", ".sgr"])
def test_what_the_structure_of_galois_shows(ending: str, tmp_path: Path) -> None:
    """Sizes, but neither offsets that stay in order, nor targets that stay vertices, nor data."""
    path = tmp_path / f"graph{ending}"
    write(sample(weighted=ending == ".sgr", directed=True), path)
    content = path.read_bytes()
    assert all(number >= 8 * 32 for number in changed(path, flipped(content)))


def test_the_seal_of_parquet_is_skipped_by_others(tmp_path: Path) -> None:
    path = tmp_path / "graph.parquet"
    graph = sample(weighted=True, directed=True)
    write(graph, path)
    table = pyarrow.parquet.read_table(path)
    assert table["target"].to_pylist() == graph.targets.tolist()
    # Whatever does not come from us has none, and is read as it was before.
    pyarrow.parquet.write_table(table, path)
    assert content_of(read(path)) == content_of(graph)


@pytest.mark.parametrize("size", [*range(70), 1 << 20, (1 << 20) + 1, 3_000_001])
def test_zstd_frames_are_those_of_the_tool(size: int, tmp_path: Path) -> None:
    zstd = shutil.which("zstd")
    if zstd is None:
        pytest.skip("there is no zstd command")
    content = np.random.default_rng(size).integers(0, 9, size).astype(np.uint8).tobytes()
    from godwit.io.compression import compressed

    with (tmp_path / "it.zst").open("wb") as file, compressed(file, "zstd") as packed:
        packed.write(content[: size // 3])
        packed.write(content[size // 3 :])
    command = [zstd, "-dcq", str(tmp_path / "it.zst")]
    assert subprocess.run(command, check=True, capture_output=True).stdout == content
    listed = subprocess.run([zstd, "-lv", *command[2:]], check=True, capture_output=True, text=True)
    assert "XXH64" in listed.stdout
