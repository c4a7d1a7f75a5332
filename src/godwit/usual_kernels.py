"""Kernels that first queries of usual graphs take on one GPU, which a wheel carries compiled.

``python -m godwit.usual_kernels FOLDER ARCHITECTURE...`` compiles them into a folder, as hatch_build.py
does for the package. Usual graphs have fewer than 2^31 vertices and are unweighted, or have weights of 4 or
8 bytes; queries are BFS, shortest paths, connected components, PageRank and communities. What is missing
here is compiled when it is first needed.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np

from godwit.algorithms import bfs, sssp
from godwit.algorithms.bfs import cuda as bfs_cuda
from godwit.algorithms.communities import cuda as labels_cuda
from godwit.algorithms.communities import cuda_summary, levels_cuda
from godwit.algorithms.components import cuda as components_cuda
from godwit.algorithms.pagerank import cuda as pagerank_cuda
from godwit.algorithms.sssp import cuda as sssp_cuda
from godwit.algorithms.sssp import cuda_rows
from godwit.runtime.cuda.compile import compiled, shipped_name
from godwit.runtime.cuda.transfer import delivery
from godwit.supersteps import results, rows, tiled_rows
from godwit.worker.cuda import program as worker_program

_IDS = np.dtype(np.int32)
_WEIGHTS = tuple(map(np.dtype, (np.int32, np.int64, np.float32, np.float64)))


def sources() -> list[str]:
    """Return the sources of all kernels, each once."""
    return list(dict.fromkeys(_sources()))


def _sources() -> Iterator[str]:
    yield from _communities()  # first: some take longer to compile than all others
    yield bfs_cuda.source(_IDS, is_alone=True)
    for weight in (None, *_WEIGHTS):
        yield rows.source(_IDS, _IDS, weight)
        yield from _searches(weight)
        for accelerated, words in product((False, True), (0,) if weight else (0, 2, 3)):
            yield pagerank_cuda.source(
                _IDS, np.float64, weight, accelerated=accelerated, tile_words=words
            )
    yield tiled_rows.source_code(_IDS)
    for splices, tiled in product((False, True), repeat=2):
        yield components_cuda.source(_IDS, "none", splices=splices, tiled=tiled)
    for dtype in (_IDS, np.dtype(np.float64)):
        for bound in ("", "min"):  # levels, labels and ranks; levels and distances up to a target's
            yield delivery.source(delivery.Conversion(dtype, dtype, bound), _IDS)


def _searches(weight: np.dtype | None) -> Iterator[str]:
    """Yield the sources of searches by arcs and by weights; None: of an unweighted graph."""
    kind = "i" if weight is None else weight.kind
    program = sssp.PROGRAMS["float64" if kind == "f" else "int32"]
    for packed in (False, True):
        variant = worker_program.Variant(_IDS, weight, packed=packed, is_alone=True)
        yield worker_program.source(program.operators, variant, 0)
        if weight is None:
            yield worker_program.source(bfs.PROGRAM.operators, variant, 0)
    distance = program.operators.value_dtype
    yield delivery.source(
        results.conversion_of(distance, **sssp_cuda.result_arguments(distance)), _IDS
    )
    if weight is not None:
        yield sssp_cuda.source(_IDS, distance, weight)
        yield cuda_rows.source(_IDS, weight)


def _communities() -> Iterator[str]:
    """Yield the sources of Louvain's and Leiden's methods, and of label propagation."""
    for wide, one_way in product((False, True), repeat=2):
        yield levels_cuda.source(_IDS, wide=wide, one_way=one_way)
    for weighted in (False, True):
        yield cuda_summary.source(_IDS, weighted=weighted, wide=weighted)
        for cdlp in (False, True):
            yield labels_cuda.source(_IDS, weighted=weighted, cdlp=cdlp)


def compile_to(folder: Path, architectures: Iterable[str]) -> int:
    """Compile all kernels into a folder, from which other files go; return the number of files.

    :param architectures: such as ``"90"``
    :raises GodwitError: as :func:`godwit.runtime.cuda.compile.compiled`
    """

    def compile_one(source: str, architecture: str) -> None:
        code = compiled(source, (), architecture, ())
        (folder / shipped_name(source, architecture)).write_bytes(zlib.compress(code, 9))

    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.cubin.z"):
        path.unlink()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return len(
            list(pool.map(compile_one, *zip(*product(sources(), architectures), strict=True)))
        )


if __name__ == "__main__":
    compile_to(Path(sys.argv[1]), sys.argv[2:])
