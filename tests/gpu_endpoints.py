"""Which GPUs there are for tests, and which of them a test marked ``gpu`` runs on."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from godwit.runtime.cuda import driver
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer

COUNT = driver.device_count()
needs_gpu = pytest.mark.skipif(COUNT == 0, reason=f"no GPU: {driver.why_not()}")


def names_of(count: int) -> list[str]:
    """The first so many, real or emulated."""
    return [f"cuda:{place}" for place in range(count)]


COUNTS = [1, 3, pytest.param(2, marks=pytest.mark.thorough)]
"""Numbers of emulated GPUs."""

ENDPOINTS = [["cuda:0"], ["cuda:0", "cuda:0"], ["cuda:0"] * 3]
"""One alone, several that share it, and all there are."""
if COUNT > 1:
    ENDPOINTS.append(names_of(COUNT))
on_endpoints: Callable[[Any], Any] = pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)


def held_bytes() -> int:
    """Return the bytes of this process's buffers: the free memory of a GPU depends on others, too."""
    gc.collect()
    buffers = (one for one in gc.get_objects() if isinstance(one, Buffer | PinnedBuffer))
    return sum(buffer.nbytes for buffer in buffers if buffer.pointer)
