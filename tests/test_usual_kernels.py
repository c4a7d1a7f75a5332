"""Kernels that come with the package: those of first queries are among them, and none is ever needed."""

from __future__ import annotations

import ast
import re
import threading
import zlib
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from emulated_grid_compiler import Compiler
from godwit import usual_kernels
from godwit.algorithms.communities import levels
from godwit.errors import DeviceError
from godwit.runtime.cuda import compile as compilation
from godwit.runtime.cuda import libraries
from test_cuda_compilation import needs_compilers

SOURCE = 'extern "C" __global__ void k(int *x) { x[0] = 1; }'

QUERIES = {
    "bfs": lambda graph, **given: gw.bfs(graph, 0, **given),
    "sssp": lambda graph, **given: gw.sssp(graph, 0, **given),
    "components": gw.connected_components,
    "pagerank": gw.pagerank,
}
COMMUNITIES = (gw.louvain, gw.label_propagation, partial(gw.label_propagation, variant="cdlp"))


def test_first_queries_take_kernels_that_a_wheel_carries(monkeypatch: Any) -> None:
    asked: list[str] = []
    real = Compiler.cubin

    def cubin(compiler: Any, source: str, functions: Sequence[Any], *given: Any) -> bytes:
        assert not functions
        asked.append(source)
        return real(compiler, source, functions, *given)

    monkeypatch.setattr(Compiler, "cubin", cubin)
    monkeypatch.setattr(levels, "SMALL_VERTICES", 16)  # communities of larger graphs are a GPU's
    with emulated_gpus():
        for spec, directed, dtype in product(
            ("rmat:7,seed=1", "road:12x12"), (False, True), (None, "int32", "float64")
        ):
            sources, targets, _ = gw.generate(spec).to_edges()
            weights = None if dtype is None else 1 + np.arange(len(sources)).astype(dtype) % 9
            for ask in QUERIES.values():
                graph = gw.Graph.from_edges(sources, targets, weights, directed=directed)
                ask(graph, devices="cuda:0")
                with gw.place(graph, "cuda:0") as placed:
                    ask(placed)
            with gw.place(graph, "cuda:0") as placed:
                for find in COMMUNITIES:  # Leiden's method has Louvain's kernel
                    find(placed)
            gw.bfs(graph, 0, target=3, devices="cuda:0")
            gw.sssp(graph, 0, target=3, devices="cuda:0")
    carried = set(usual_kernels.sources())
    assert asked
    assert [source for source in dict.fromkeys(asked) if source not in carried] == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """The package's folder of compiled kernels, which holds one for architecture 80."""
    monkeypatch.setattr(compilation, "SHIPPED_FOLDER", tmp_path / "cubins")
    monkeypatch.setattr(usual_kernels, "sources", lambda: [SOURCE])
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation, "_REFUSED", threading.Event())
    for found in (compilation._shipped, compilation.compile_for, compilation._loaded_source):
        found.cache_clear()
    assert usual_kernels.compile_to(tmp_path / "cubins", ["80"]) == 1
    return tmp_path / "cubins"


@needs_compilers
def test_no_compiler_is_needed(folder: Path, monkeypatch: Any) -> None:
    def unexpected(*_: Any) -> Any:
        raise AssertionError("compiles")

    monkeypatch.setattr(libraries, "nvrtc", unexpected)
    monkeypatch.setattr(compilation, "cubin", unexpected)
    monkeypatch.setattr(compilation, "_versions", unexpected)
    code = compilation.shipped(SOURCE, "80")
    assert code is not None
    assert code.startswith(b"\x7fELF")
    compilation.compile_for("80", SOURCE)
    assert compilation.shipped(SOURCE, "90") is None
    assert compilation.shipped(SOURCE.replace("1", "2"), "80") is None


@needs_compilers
@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "refused", "absent"])
def test_what_cannot_be_used_is_compiled(folder: Path, monkeypatch: Any, damage: str) -> None:
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(
        {
            "truncated": whole[:-1],
            "changed": whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
            "empty": b"",
            "refused": zlib.compress(b"of a newer compiler"),
            "absent": whole,
        }[damage]
    )
    if damage == "absent":
        path.unlink()
        folder.rmdir()

    def load_cubin(index: int, code: bytes) -> Any:
        if code.startswith(b"of a newer"):
            raise DeviceError("this driver does not know the code")
        return index, code

    monkeypatch.setattr(compilation, "load_cubin", load_cubin)
    monkeypatch.setattr(compilation, "_architecture", lambda index: "80")
    assert compilation.load(0, SOURCE) == (0, compilation.cubin(SOURCE, (), "80"))
    assert compilation._REFUSED.is_set() == (damage == "refused")


@needs_compilers
def test_files_of_other_kernels_go(folder: Path) -> None:
    (folder / "old.cubin.z").write_bytes(b"")
    (kept,) = (path.name for path in folder.iterdir() if path.name != "old.cubin.z")
    usual_kernels.compile_to(folder, ["80"])
    assert [path.name for path in folder.iterdir()] == [kept]


def test_all_architectures_are_those_that_kernels_are_tested_for() -> None:
    hook = Path(__file__).parents[1] / "hatch_build.py"
    (line,) = re.findall(r"^_ALL = (.*?)  #", hook.read_text(encoding="utf-8"), re.MULTILINE)
    assert ast.literal_eval(line) == list(compilation.ARCHITECTURES)
