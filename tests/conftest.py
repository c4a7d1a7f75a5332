"""What all tests share: the folder of real graphs, and the division of a run among processes."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import settings

import architectures
from godwit.placement import PlacedGraph
from godwit.runtime.cuda.driver import current_kept, device_count

# The whole suite takes minutes, and what it tries is the same in every run: tests.fuzz varies it.
settings.register_profile("gate", max_examples=16, derandomize=True)
settings.register_profile("all", max_examples=100)
settings.load_profile("gate")

os.environ.setdefault("GODWIT_DEVICES", "cpu")  # tests name the GPUs that they use

_ON_FIRST = PlacedGraph.on_first
_BFS = importlib.import_module("godwit.algorithms.bfs")
_ALL_ARCS = _BFS._ALL_ARCS

# Shells ignore Ctrl-C in what they run in the background, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Compilers make millions of objects that live on; by default Python looks through them again and again.
gc.set_threshold(20_000, 10, 10)

Cover = Literal["pairs", "values", "few graphs", "32-bit graphs"]
"""Which parameters of a test run without ``--all``: as many as it takes for each pair of values of two
parameters to occur, or for each value; with few graphs, likewise each value, but of the graphs those of
:data:`FEW_GRAPHS` alone; with 32-bit graphs, those of them whose ids are of 32 bits: others would compile
the test's programs again, and the file tests 64 bits elsewhere."""

FEW_GRAPHS = (
    "empty", "one self-loop", "star from its last vertex", "parallel edges and self-loops",
    "random directed", "64-bit ids",
)  # fmt: skip

COVERS: dict[str, Cover] = {
    "test_accelerated_pagerank.py": "values",
    "test_accelerated_pagerank_gpu.py": "values",
    "test_betweenness.py::test_the_zoo_as_networkx": "values",
    "test_betweenness_gpu.py": "few graphs",
    "test_bfs_steps.py": "few graphs",
    "test_build.py": "values",
    "test_cli.py::test_every_division_gives_the_same": "values",
    "test_cli.py::test_real_road_network": "values",
    "test_cli.py::test_what_is_closed_is_not_written_to": "values",
    "test_closeness.py": "few graphs",
    "test_communication.py": "values",
    "test_communities_gpu.py": "few graphs",
    "test_communities_levels_gpu.py": "few graphs",
    "test_components.py": "values",
    "test_components_gpu.py": "few graphs",
    "test_components_tiles.py": "few graphs",
    "test_core_gpu.py": "few graphs",
    "test_damaged_files.py::test_every_bit_is_checked": "values",
    "test_direction_optimizing.py": "values",
    "test_distributed_gpus.py": "few graphs",
    "test_duplication.py": "few graphs",
    "test_emulated_grid.py::test_distances_are_those_of_the_cpu": "values",
    "test_emulated_races.py": "values",
    "test_execution.py": "few graphs",
    "test_filter_pretended.py": "values",
    "test_filtering.py::test_dataflow_over_gpus": "values",
    "test_filtering.py::test_threads_set_aside_and_share_large_pieces": "pairs",
    "test_gpu_results.py": "pairs",
    "test_greedy.py": "few graphs",
    "test_ids_as_names.py::test_are_by_id": "values",
    "test_layout.py": "values",
    "test_no_peers.py": "few graphs",
    "test_pagerank.py": "few graphs",
    "test_pagerank_gpu.py": "few graphs",
    "test_power_iterations_gpu.py": "few graphs",
    "test_partition.py": "values",
    "test_paths.py": "values",
    "test_predecessors.py": "values",
    "test_predecessors_gpu.py": "few graphs",
    "test_result_verification.py": "values",
    "test_schedules.py": "few graphs",
    "test_segments_pretended.py": "pairs",
    "test_step_placement.py": "values",
    "test_step_programs.py": "few graphs",
    "test_step_programs.py::test_colours_are_those_of_the_serial_loop": "32-bit graphs",
    "test_step_programs.py::test_components_by_pointer_jumping": "32-bit graphs",
    "test_step_programs.py::test_core_numbers": "32-bit graphs",
    "test_step_programs.py::test_levels_and_lengths_are_those_of_other_algorithms": "32-bit graphs",
    "test_step_programs_gpu.py": "few graphs",
    "test_streamed_components.py": "values",
    "test_streamed_components_gpu.py": "few graphs",
    "test_streamed_text.py": "values",
    "test_text_writing.py": "values",
    "test_tiled_sums.py": "few graphs",
    "test_trace.py": "values",
    "test_truss_gpu.py": "few graphs",
    "test_vertex_program.py": "values",
    "test_weighted_betweenness.py": "few graphs",
    "test_worklist_stress.py": "values",
}
"""By test or file. Tests that are not named run with all their parameters, and so do those on real GPUs."""

_REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many processes as there are cores, within reason; ``-n 0`` has none besides this one."""
    from scheduling import process_count

    return process_count(config.args)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests stay with those that share their compiled code; what ``--dist`` names instead is as ever."""
    from scheduling import FileScheduling

    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_configure(config: pytest.Config) -> None:
    """A mark of tests, or of parameters, that compile for long and say hardly more than others."""
    config.addinivalue_line("markers", "thorough: left out unless --all are asked for")
    if config.getoption("--all"):
        settings.load_profile("all")  # before the files of tests, which read it, are imported
        architectures.optimize()
    worker = getattr(config, "workerinput", None)
    if worker is not None and os.environ.get("CUDA_VISIBLE_DEVICES"):
        _begin_with_gpu(int(worker["workerid"].removeprefix("gw")))


def _begin_with_gpu(number: int) -> None:
    """Turn the list of GPUs that are given: most tests use the first, on which all processes would be."""
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    first = number % len(gpus)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first:] + gpus[:first])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Leave nothing out."""
    parser.addoption(
        "--all", action="store_true", help="all parameters of tests that have hundreds"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the parameters that :data:`COVERS` does not need; the same ones in every run."""
    if config.getoption("--all"):
        return
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for tests in by_test.values() for item in _sample(tests)}
    left_out = [item for item in items if item not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in kept]


def _sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return those of a test's items that run without ``--all``; none that is marked ``thorough``."""
    first = items[0]
    items = [item for item in items if item.get_closest_marker("thorough") is None]
    file, test = first.path.name, first.name.partition("[")[0]
    cover = COVERS.get(f"{file}::{test}", COVERS.get(file))
    is_parametrized = len(items) > 1 and hasattr(first, "callspec")
    if cover is None or not is_parametrized or first.get_closest_marker("gpu") is not None:
        return items
    if cover in ("few graphs", "32-bit graphs"):
        names = FEW_GRAPHS if cover == "few graphs" else set(FEW_GRAPHS) - {"64-bit ids"}
        graphs = [item for item in items if item.callspec.params.get("name") in names]  # type: ignore[attr-defined]
        items = graphs or items
    return _covering(items, 2 if cover == "pairs" else 1)


def _covering(items: list[pytest.Item], strength: int) -> list[pytest.Item]:
    """Return few items in which all values of parameters occur that do in any, or all pairs of these."""
    combinations_of = {}
    for item in items:
        values = sorted((name, repr(value)) for name, value in item.callspec.params.items())  # type: ignore[attr-defined]
        combinations_of[item] = set(combinations(values, min(strength, len(values))))
    missing = set().union(*combinations_of.values())
    kept = []
    while missing:
        best = max(items, key=lambda item: len(combinations_of[item] & missing))
        kept.append(best)
        missing -= combinations_of[best]
    return kept


def pytest_itemcollected(item: pytest.Item) -> None:
    """In the suite's usual division only one process works on the GPU: the scheduler groups by marks."""
    if item.get_closest_marker("gpu") is not None:
        item.add_marker(pytest.mark.xdist_group("gpu"))


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_stays() -> None:
    """Whoever looks for garbage need not go through what the compilers left in the tests of other files."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def all_gpus_search() -> Iterator[None]:
    """Several GPUs search the small graphs of tests together, as if the first had no room for them.

    Tests of searches by the first GPU alone take the fixture ``first_gpu_searches``.
    """

    @functools.wraps(_ON_FIRST)
    def has_no_room(_self: PlacedGraph) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlacedGraph, "on_first", has_no_room)
        patch.setattr(_BFS, "_ALL_ARCS", 0)
        yield


@pytest.fixture(autouse=True)
def _current_gpu_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of parts use GPUs directly, and leave one current on which others do not count."""
    with current_kept() if _is_on_gpu(request) else nullcontext():
        yield


def _is_on_gpu(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("gpu") is not None and device_count() > 0


@pytest.fixture
def first_gpu_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several GPUs the first searches alone where that is faster."""
    monkeypatch.setattr(PlacedGraph, "on_first", _ON_FIRST)
    monkeypatch.setattr(_BFS, "_ALL_ARCS", _ALL_ARCS)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real graphs: ``GODWIT_DATA``, else ``../shared/data`` beside the checkout."""
    folder = Path(os.environ.get("GODWIT_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no graph data: {folder} is absent (set GODWIT_DATA)")
    return folder
