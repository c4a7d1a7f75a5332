"""Which process of a parallel run takes which tests.

Tests of one file stay together, in order: what one of them has compiled the next finds in memory. Of
the files in `SPREAD`, whose tests are long and compile nothing, each test goes where a process is
idle; being the smallest groups they come last, and fill the gap at the end. Tests that need a GPU are
a group, so that one process at a time works on it. The group that takes longest begins first: otherwise
it ends long after the others.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling

from godwit import config

SPREAD = {"tests/test_worker_model.py", "tests/test_shared_memory_model.py"}
LONGEST = "mpi"  # the group of tests/test_distributed.py, whose tests each start several processes
MOST_PROCESSES = 4  # each has threads of its own, and compiles what it is the first to meet


class FileScheduling(LoadGroupScheduling):
    """A test's group is its own if it is marked with one, else its file."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        file = nodeid.partition("::")[0]
        return group if group != nodeid or file in SPREAD else file

    def _assign_work_unit(self, node: Any) -> None:
        if LONGEST in self.workqueue:
            self.workqueue.move_to_end(LONGEST, last=False)
        super()._assign_work_unit(node)


def process_count(arguments: list[str]) -> int:
    """Processes for the whole suite; 0, none but this one, where single files are asked for."""
    if any(".py" in argument for argument in arguments):
        return 0
    return min(config.thread_count(), MOST_PROCESSES)
