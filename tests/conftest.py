"""What all tests share: the folder of real graphs, and the division of a run among processes."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

settings.register_profile("gate", max_examples=30)  # the whole suite shall take minutes
settings.load_profile("gate")

os.environ.setdefault("GODWIT_DEVICES", "cpu")  # tests name the GPUs that they use

# Compilers make millions of objects that live on; by default Python looks through them again and again.
gc.set_threshold(20_000, 10, 10)

SAMPLED = {
    "test_accelerated_pagerank.py": 4,
    "test_accelerated_pagerank_gpu.py": 6,
    "test_bfs_steps.py": 64,
    "test_betweenness_gpu.py": 28,
    "test_communication.py": 3,
    "test_compiles": 1,
    "test_components.py": 10,
    "test_components_gpu.py": 14,
    "test_components_tiles.py": 10,
    "test_direction_optimizing.py": 2,
    "test_emulated_grid.py": 8,
    "test_emulated_races.py": 8,
    "test_dataflow_over_gpus": 2,
    "test_every_division_gives_the_same": 4,
    "test_every_dtype": 8,
    "test_execution.py": 48,
    "test_filter_pretended.py": 3,
    "test_from_arcs_of_more_arcs_than_one_digit_sorts": 3,
    "test_layout.py": 2,
    "test_local_graphs_make_up_the_graph": 4,
    "test_pagerank.py": 4,
    "test_pagerank_gpu.py": 12,
    "test_partition.py": 2,
    "test_paths.py": 24,
    "test_segments_pretended.py": 12,
    "test_step_placement.py": 24,
    "test_programs_do_what_the_reference_does": 160,
    "test_core_numbers": 48,
    "test_colours_are_those_of_the_serial_loop": 48,
    "test_levels_and_lengths_are_those_of_other_algorithms": 48,
    "test_queues_have_no_races": 3,
    "test_queues_that_overflow": 3,
    "test_step_programs_gpu.py": 72,
    "test_streamed_components_gpu.py": 6,
    "test_streamed_text.py": 10,
    "test_threads_set_aside_and_share_large_pieces": 2,
    "test_trace.py": 3,
    "test_vertex_program.py": 12,
    "test_weighted_betweenness.py": 4,
    "test_worklist_stress.py": 2,
}
"""By file or test: one of so many of its parameters, unless ``--all`` are asked for. They are products of
graphs, devices and schedules, any part of which finds what is wrong everywhere. Tests on real GPUs are
never left out."""

EACH_VALUE = {
    "test_betweenness.py::test_the_zoo_as_networkx",
    "test_build.py::test_from_arcs_of_more_arcs_than_one_digit_sorts",
    "test_cli.py::test_every_division_gives_the_same",
    "test_cli.py::test_real_road_network",
    "test_cli.py::test_what_is_closed_is_not_written_to",
    "test_filtering.py::test_dataflow_over_gpus",
    "test_filtering.py::test_threads_set_aside_and_share_large_pieces",
    "test_layout.py::test_local_graphs_make_up_the_graph",
    "test_predecessors.py::test_the_zoo",
}
"""Tests of whose parameters each value has its turn, but without ``--all`` not together with each value of
the others: in the sample, where there is one, or besides it."""

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
    """Leave out what is not in the sample, the same in every process and every run."""
    if config.getoption("--all"):
        return
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for some in by_test.values() for item in _sample(some)}
    left_out = [item for item in items if item not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in kept]


def _sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of one test's parameters; at least one of those that are not marked ``thorough``."""
    first = items[0]
    test = first.name.partition("[")[0]
    items = [item for item in items if item.get_closest_marker("thorough") is None]
    one_of = SAMPLED.get(test, SAMPLED.get(first.path.name, 1))
    if not items or first.get_closest_marker("gpu") is not None:
        return items
    each_value = f"{first.path.name}::{test}" in EACH_VALUE
    if one_of == 1 and not each_value:
        return items
    numbers = {item: crc32(item.name.encode()) for item in items}
    found = [item for item in items if one_of > 1 and numbers[item] % one_of == 0]
    if each_value:
        return _with_each_value(found, items)
    return found or [min(items, key=numbers.__getitem__)]


def _with_each_value(found: list[pytest.Item], items: list[pytest.Item]) -> list[pytest.Item]:
    """Those found, and as few more as it takes for each value of each parameter to be in one of them."""
    values = {
        item: {(name, repr(value)) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]
        for item in items
    }
    kept = list(found)
    missing = set().union(*values.values()).difference(*(values[item] for item in kept))

    def rank(item: pytest.Item) -> tuple[int, int]:
        return len(values[item] & missing), crc32(item.name.encode())

    while missing:
        kept.append(max(items, key=rank))
        missing -= values[kept[-1]]
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


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real graphs: ``GODWIT_DATA``, else ``../shared/data`` beside the checkout."""
    folder = Path(os.environ.get("GODWIT_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no graph data: {folder} is absent (set GODWIT_DATA)")
    return folder
