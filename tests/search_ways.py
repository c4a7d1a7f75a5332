"""The ways in which distances from many sources are found on the CPU, chosen for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from godwit.algorithms.distances import cpu
from graphs import forced_threads

WAYS = ("in bits", "in wide bits", "one by one")


@contextmanager
def searching(way: str) -> Iterator[None]:
    """Within the block, numbers of arcs are found in this way, by three threads even on small graphs."""
    with pytest.MonkeyPatch.context() as patch, forced_threads(3):
        patch.setattr(cpu, "is_deep", lambda graph: way == "one by one")
        if way == "in wide bits":
            patch.setattr(cpu, "_WIDE_SOURCES", 0)
        patch.setattr(cpu, "_ALONE_WORK", 0)
        yield
