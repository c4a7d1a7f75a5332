"""The worker kernel of every built-in program compiles for every architecture. No GPU needed.

Each program is compiled for each architecture, and each of its variants (weights, width of ids, rows
packed or not) for at least one: an architecture takes the next variant. All of them for all would take
minutes and tell little more, as variants differ in C++ and architectures in the assembler. Without
``--all`` each architecture and each variant still has its turn, but not each of them with every program.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit
from architectures import compiled_for, each_architecture
from godwit.algorithms import bfs, sssp
from godwit.algorithms.betweenness import cuda as brandes_steps
from godwit.algorithms.communities import cuda as label_steps
from godwit.algorithms.communities import cuda_summary as summary_steps
from godwit.algorithms.communities import levels_cuda as level_steps
from godwit.algorithms.components import cuda as components_steps
from godwit.algorithms.core import cuda as core_steps
from godwit.algorithms.distances import cuda as distances_steps
from godwit.algorithms.greedy import cuda as greedy_steps
from godwit.algorithms.greedy.order import Kind
from godwit.algorithms.pagerank import cuda as pagerank_steps
from godwit.algorithms.paths.cuda import PassKind
from godwit.algorithms.power_iteration import cuda as power_steps
from godwit.algorithms.random_walks import cuda as walk_steps
from godwit.algorithms.random_walks import cuda_neighbors as sample_steps
from godwit.algorithms.similarity import cuda as similarity_steps
from godwit.algorithms.spanning_forest import cuda as forest_steps
from godwit.algorithms.sssp import cuda as sssp_steps
from godwit.algorithms.sssp import cuda_rows as sssp_rows
from godwit.algorithms.strong_components import cuda as strong_steps
from godwit.algorithms.topological import cuda as topological_steps
from godwit.algorithms.triangles import cuda as triangles_steps
from godwit.algorithms.truss import cuda as truss_steps
from godwit.runtime.cuda.compile import ARCHITECTURES, cubin
from godwit.supersteps import rows as step_rows
from godwit.supersteps import tiled_rows
from godwit.worker.cuda import program as instantiation
from godwit.worker.cuda.program import Variant
from godwit.worker.program import VertexProgram
from programs import GAINED

_NEEDED = ("numba_cuda", "cuda")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)} (extra 'cuda')"
)

_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WIDEST_PATH = runpy.run_path(str(_EXAMPLES / "widest_path.py"))["WIDEST_PATH"]
RESIDUAL_PAGERANK = runpy.run_path(str(_EXAMPLES / "residual_pagerank.py"))["RESIDUAL_PAGERANK"]

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


def _variants(*weight_dtypes: Any, packs: bool = True) -> list[Variant]:
    """32-bit ids with packed rows and without, and 64-bit ids; unweighted, weighted; one device or more."""
    shapes = (
        [(INT32, True), (INT64, False), (INT32, False)]
        if packs
        else [(INT32, False), (INT64, False)]
    )
    dtypes = [None if name is None else np.dtype(name) for name in weight_dtypes]
    several = [(ids, weights, packed) for ids, packed in shapes for weights in dtypes]
    return [Variant(*one, is_alone=number % 2 == 0) for number, one in enumerate(several)]


PROGRAMS: dict[str, tuple[VertexProgram, list[Variant]]] = {
    "bfs": (bfs.PROGRAM, [*_variants(None), Variant(INT32, None, delay_ns=1000)]),
    "sssp int32": (sssp.PROGRAMS["int32"], _variants(None, "int32")),
    "sssp int64": (sssp.PROGRAMS["int64"], _variants("int32", "int64")),
    "sssp float64": (sssp.PROGRAMS["float64"], _variants("float32", "float64")),
    "widest path": (WIDEST_PATH, _variants(None, "float64")),
    "residual pagerank": (RESIDUAL_PAGERANK, _variants(None, packs=False)),
    "bits": (GAINED, _variants(None)),
}


def _unless(chosen: bool) -> Any:
    """The marks of a parameter: what is not chosen waits for ``--all``."""
    return () if chosen else pytest.mark.thorough


def _chosen() -> list[Any]:
    """Of six architectures, each program takes two without ``--all``, and the next program the next two."""
    return [
        pytest.param(
            name,
            variants[(place + number) % len(variants)],
            architecture,
            id=f"{name}-{architecture}",
            marks=_unless((number - place) % 3 == 0),
        )
        for place, (name, (_, variants)) in enumerate(PROGRAMS.items())
        for number, architecture in enumerate(ARCHITECTURES)
    ]


def test_every_variant_has_its_turn() -> None:
    assert all(len(variants) <= len(ARCHITECTURES) for _, variants in PROGRAMS.values())


@pytest.mark.parametrize(("name", "variant", "architecture"), _chosen())
def test_worker_compiles(name: str, variant: Variant, architecture: str) -> None:
    program = PROGRAMS[name][0]
    count = len(program.parameters)
    source = instantiation.source(program.operators, variant, count)
    functions = instantiation.functions(program.operators, variant, count)
    code = cubin(source, functions, architecture)
    kernels = re.findall(r"__global__[^{;]*?(\w+)\(\w[^()]*\)\s*{", source)
    assert "work" in kernels
    for kernel in kernels:
        assert f".text.{kernel}\0".encode() in code
    for function in functions:
        assert function.symbol.encode() not in code, "an operator that was not inlined"


RANKS = [
    ("int32", "float32", None), ("int32", "float64", None), ("int64", "float32", "uint32"),
    ("int32", "float64", "float32"), ("int64", "float64", "int64"), ("int32", "float32", "int32"),
]  # fmt: skip
"""Of positions, ranks and weights."""


@pytest.mark.parametrize(
    ("dtypes", "architecture", "accelerated", "one_hop"),
    [
        pytest.param(
            dtypes,
            name,
            accelerated,
            one_hop,
            marks=_unless(place % 4 == accelerated + 2 * one_hop),
        )
        for place, (dtypes, name) in enumerate(zip(RANKS, ARCHITECTURES, strict=True))
        for one_hop in (False, True)
        for accelerated in (False, True)
    ],
    ids=str,
)
def test_pagerank_compiles(
    dtypes: tuple[Any, ...], architecture: str, accelerated: bool, one_hop: bool
) -> None:
    text = pagerank_steps.source(*dtypes, accelerated=accelerated, one_hop=one_hop)
    assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("dtypes", "words", "accelerated"),
    [(("int32", "float32"), 2, True), (("int32", "float64", "int64"), 3, False)],
    ids=str,
)
def test_tiles_compile(dtypes: tuple[Any, ...], words: int, accelerated: bool) -> None:
    text = pagerank_steps.source(*dtypes, accelerated=accelerated, tile_words=words)
    assert b".text.work\0" in compiled_for(text, "90")
    text = tiled_rows.source_code(INT32, *((dtypes[2], dtypes[1]) if len(dtypes) == 3 else ()))
    assert b".text.make_tiles\0" in compiled_for(text, "90")
    text = power_steps.source(*dtypes[::2], two_sided=accelerated, tile_words=3)
    assert b".text.work\0" in compiled_for(text, "90")


@pytest.mark.parametrize(
    ("dtypes", "architecture", "two_sided"),
    [
        pytest.param(dtypes, name, two_sided, marks=_unless(place % 3 == two_sided))
        for place, (dtypes, name) in enumerate(
            zip(
                [("int32",), ("int64", "int64"), ("int32", "float32")] * 2,
                ARCHITECTURES,
                strict=True,
            )
        )
        for two_sided in (False, True)
    ],
    ids=str,
)
def test_power_iterations_compile(
    dtypes: tuple[Any, ...], architecture: str, two_sided: bool
) -> None:
    text = power_steps.source(*dtypes, two_sided=two_sided)
    assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("id_dtype", "architecture"),
    [
        pytest.param("int64" if place % 2 else "int32", name, marks=_unless(place % 3 == 2))
        for place, name in enumerate(ARCHITECTURES)
    ],
)
def test_core_numbers_compile(id_dtype: str, architecture: str) -> None:
    assert b".text.work\0" in compiled_for(core_steps.source(id_dtype), architecture)


@pytest.mark.parametrize(
    ("id_dtype", "architecture"),
    [
        pytest.param("int64" if place % 2 else "int32", name, marks=_unless(place % 3 == 0))
        for place, name in enumerate(ARCHITECTURES)
    ],
)
def test_truss_numbers_compile(id_dtype: str, architecture: str) -> None:
    assert b".text.work\0" in compiled_for(truss_steps.source(id_dtype), architecture)


@pytest.mark.parametrize(
    ("id_dtype", "architecture"),
    [
        pytest.param("int64" if place % 2 else "int32", name, marks=_unless(place % 3 == 0))
        for place, name in enumerate(ARCHITECTURES)
    ],
)
def test_label_propagation_compiles(id_dtype: str, architecture: str) -> None:
    for weighted, cdlp in ((False, False), (True, False), (False, True)):
        text = label_steps.source(id_dtype, weighted=weighted, cdlp=cdlp)
        assert b".text.work\0" in compiled_for(text, architecture)
    for weighted, wide in ((False, False), (False, True), (True, True)):
        text = summary_steps.source(id_dtype, weighted=weighted, wide=wide)
        assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("id_dtype", "wide", "architecture"),
    [
        pytest.param(
            "int64" if place % 2 else "int32", place % 3 == 0, name, marks=_unless(place % 3 == 1)
        )
        for place, name in enumerate(ARCHITECTURES)
    ],
)
def test_louvain_and_leiden_compile(id_dtype: str, wide: bool, architecture: str) -> None:
    text = level_steps.source(id_dtype, wide=wide, one_way=not wide)
    assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("id_dtype", "architecture", "kind"),
    [
        pytest.param(
            "int64" if (place + choice) % 2 else "int32", name, kind,
            marks=_unless(place % 3 == choice),
        )
        for place, name in enumerate(ARCHITECTURES)
        for choice, kind in enumerate(Kind)
    ],
)  # fmt: skip
def test_greedy_passes_compile(id_dtype: str, architecture: str, kind: Kind) -> None:
    assert b".text.work\0" in compiled_for(greedy_steps.source(id_dtype, kind), architecture)


DISTANCES = [
    ("int32", "int32", "int32"), ("int32", "float64", "float32"), ("int64", "int64", "int32"),
    ("int32", "int64", "int64"), ("int64", "float64", "float64"), ("int32", "int32", "int32"),
]  # fmt: skip
"""Of positions, distances and weights."""


@pytest.mark.parametrize(
    ("dtypes", "architecture"),
    [
        pytest.param(dtypes, name, marks=_unless(place % 3 == 1))
        for place, (dtypes, name) in enumerate(zip(DISTANCES, ARCHITECTURES, strict=True))
    ],
    ids=str,
)
def test_shortest_paths_compile(dtypes: tuple[str, ...], architecture: str) -> None:
    ids, _, weights = map(np.dtype, dtypes)
    for several in (False, True):
        text = sssp_steps.source(*map(np.dtype, dtypes), several=several)
        assert b".text.work\0" in compiled_for(text, architecture)
    code = compiled_for(sssp_rows.source(ids, weights), architecture)
    assert b".text.write_weight_keys\0" in code


@pytest.mark.parametrize(
    ("ids", "lanes", "by_vertex", "weights", "architecture"),
    [
        pytest.param(*variant, name, marks=_unless(place % 3 == 0))
        for place, (variant, name) in enumerate(
            zip(
                [
                    (INT32, 16, True, None), (INT64, 16, False, "float32"), (INT32, 4, False, "int32"),
                    (INT32, 1, False, "float64"), (INT64, 1, False, None), (INT32, 4, False, "int64"),
                ],
                ARCHITECTURES,
                strict=True,
            )
        )
    ],
    ids=str,
)  # fmt: skip
def test_distances_compile(
    ids: Any, lanes: int, by_vertex: bool, weights: Any, architecture: str
) -> None:
    hops = distances_steps.hops_source(ids, lanes, by_vertex=by_vertex)
    lengths = distances_steps.lengths_source(ids, None if weights is None else np.dtype(weights))
    sweeps = distances_steps.sweeps_source(ids, weighted=weights is not None)
    for text in (hops, lengths, sweeps):
        assert b".text.work\0" in compiled_for(text, architecture)


@each_architecture
@pytest.mark.parametrize(("ids", "weights"), [(INT32, INT32), (INT32, INT64), (INT64, INT32)])
def test_rows_compile(ids: Any, weights: Any, architecture: str) -> None:
    code = compiled_for(step_rows.source(ids, INT32, weights), architecture)
    for name in ("place_weights", "place_hub_arcs", "localize_targets"):
        assert f".text.{name}\0".encode() in code


UNIONS = [(ids, merge, splices) for ids in (INT32, INT64) for merge, splices in (
    ("none", False), ("tree", True), ("direct", False), ("direct", True), ("none", True), ("tree", False),
)]  # fmt: skip
"""Of positions, how devices come together, and how links are made."""


@pytest.mark.parametrize(
    ("ids", "merge", "splices", "architecture"),
    [
        # Each way to come together and to link has its turn, with one width of positions.
        pytest.param(*union, architecture, marks=_unless(place % 2 == place // 6))
        for place, (union, architecture) in enumerate(zip(UNIONS, 2 * ARCHITECTURES, strict=True))
    ],
    ids=str,
)
def test_components_compile(ids: Any, merge: Any, splices: bool, architecture: str) -> None:
    text = components_steps.source(ids, merge, splices=splices)
    assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("ids", "architecture"),
    [
        pytest.param((INT32, INT64)[place % 2], architecture, marks=_unless(place in (0, 5)))
        for place, architecture in enumerate(ARCHITECTURES)
    ],
    ids=str,
)
def test_walks_and_samples_compile(ids: Any, architecture: str) -> None:
    for text in (walk_steps.source(ids), sample_steps.source(ids)):
        assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("ids", "weight_bytes", "packed", "architecture"),
    [
        pytest.param(*variant, name, marks=_unless(place in (0, 5)))
        for place, (variant, name) in enumerate(
            zip(
                [
                    (ids, *way)
                    for ids in (INT32, INT64)
                    for way in ((4, True), (4, False), (8, False))
                ],
                ARCHITECTURES,
                strict=True,
            )
        )
    ],
    ids=str,
)
def test_spanning_forests_compile(
    ids: Any, weight_bytes: int, packed: bool, architecture: str
) -> None:
    text = forest_steps.source(ids, weight_bytes, packed=packed)
    assert b".text.work\0" in compiled_for(text, architecture)


@pytest.mark.parametrize(
    ("ids", "architecture"),
    [
        # The oldest and the newest: what they take those in between take, too.
        pytest.param((INT32, INT64)[place % 2], architecture, marks=_unless(place in (0, 5)))
        for place, architecture in enumerate(ARCHITECTURES)
    ],
    ids=str,
)
def test_brandes_compiles(ids: Any, architecture: str) -> None:
    assert b".text.work\0" in compiled_for(brandes_steps.source(ids), architecture)


@pytest.mark.parametrize(
    ("ids", "architecture"),
    [
        pytest.param((INT32, INT64)[place % 2], architecture, marks=_unless(place in (0, 5)))
        for place, architecture in enumerate(ARCHITECTURES)
    ],
    ids=str,
)
def test_strong_components_compile(ids: Any, architecture: str) -> None:
    assert b".text.work\0" in compiled_for(strong_steps.source(ids), architecture)
    assert b".text.work\0" in compiled_for(topological_steps.source(ids), architecture)


@pytest.mark.parametrize(
    ("ids", "valued", "architecture"),
    [
        pytest.param((INT32, INT64)[place % 2], place % 4 > 1, name, marks=_unless(place in (0, 3)))
        for place, name in enumerate(ARCHITECTURES)
    ],
    ids=str,
)
def test_triangles_and_similarity_compile(ids: Any, valued: bool, architecture: str) -> None:
    texts = triangles_steps.source(ids, valued=valued), similarity_steps.source(ids)
    for text in (*texts, similarity_steps.neighbours_source(ids)):
        assert b".text.work\0" in compiled_for(text, architecture)


PASSES = [
    ("int32", "int32", None, True), ("int64", "int32", None, False), ("int32", "int64", "uint32", True),
    ("int64", "int64", "int64", False), ("int32", "float64", "float32", False),
    ("int64", "float64", "float64", True),
]  # fmt: skip
"""Of ids, distances and weights, and whether rows are in-arcs, too."""


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        pytest.param(kind, architecture, marks=_unless(place in (0, 3, 5)))
        for place, (kind, architecture) in enumerate(zip(PASSES, ARCHITECTURES, strict=True))
    ],
    ids=str,
)
def test_predecessors_compile(kind: Any, architecture: str) -> None:
    *names, pulls = kind
    dtypes = [None if name is None else np.dtype(name) for name in names]
    code = compiled_for(PassKind(*dtypes, pulls).source, architecture)
    for name in ("prepare", "search_rows", "search_hubs", "settle_ties"):
        assert f".text.{name}\0".encode() in code


def test_no_lambda_is_generic() -> None:
    """NVRTC 13.0 takes one within another for a function of the host, which later versions do not."""
    folder = Path(godwit.__file__).parent
    texts = {path: path.read_text() for path in folder.rglob("*.cuh")}
    assert len(texts) > 50
    generic = re.compile(r"\]\s*\([^)]*\bauto\b")
    assert not [path.name for path, text in texts.items() if generic.search(text)]
