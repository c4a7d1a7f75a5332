"""Which process of a parallel run takes which tests.

Tests of one file stay together, in order: what one of them has compiled the next finds in memory. Of
the files in `SPREAD`, whose tests are long and compile nothing, each test goes where a process is
idle. Tests that need a GPU are a group, so that one process at a time works on it. The groups that take
longest begin first, and those with few tests come last: otherwise one would end long after the others.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling

from godwit import config

SPREAD = {
    "tests/test_networkx_suite.py", "tests/test_shared_memory_model.py",
    "tests/test_worker_model.py",
}  # fmt: skip
LONGEST = (  # each takes more than some 10 seconds of a core; mpi is tests/test_distributed.py
    "mpi", "tests/test_networkx_suite.py", "tests/test_distributed_gpus.py", "tests/test_cli.py",
    "tests/test_no_peers.py", "tests/test_step_programs_gpu.py", "tests/test_distances_gpu.py",
    "tests/test_power_iterations_gpu.py", "tests/test_betweenness_gpu.py",
    "tests/test_components_gpu.py", "tests/test_cuda_kernels.py", "tests/test_cuda_compilation.py",
    "tests/test_kernel.py", "tests/test_duplication.py", "tests/test_schedules.py",
    "tests/test_sssp_steps.py", "tests/test_formats.py", "tests/test_vertex_program.py",
    "tests/test_strong_components.py", "tests/test_networkx_backend.py",
    "tests/test_pagerank_gpu.py", "tests/test_step_programs.py", "tests/test_package.py",
    "tests/test_cache.py", "tests/test_devices_benchmark.py", "tests/test_segments_pretended.py",
)  # fmt: skip
MOST_PROCESSES = 4  # each has threads of its own, and compiles what it is the first to meet


class FileScheduling(LoadGroupScheduling):
    """A test's group is its own if it is marked with one, else its file."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        file = nodeid.partition("::")[0]
        return group if group != nodeid or file in SPREAD else file

    def _assign_work_unit(self, node: Any) -> None:
        first = min(self.workqueue, key=_begins)  # of the others, which follow each other by size
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def _begins(group: str) -> int:
    """Return the place of a group among those that take longest; behind them if it is none of them."""
    name = group.partition("::")[0]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def process_count(arguments: list[str]) -> int:
    """Processes for the whole suite; 0, none but this one, where single files are asked for."""
    if any(".py" in argument for argument in arguments):
        return 0
    return min(config.thread_count(), MOST_PROCESSES)
