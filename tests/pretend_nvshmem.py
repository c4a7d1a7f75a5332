"""A stand-in for NVSHMEM's library, for processes that are threads with emulated GPUs each.

Copies that were put into a stream are done when it is told to complete them, and not before.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from godwit.errors import DeviceError
from godwit.runtime.cuda import libraries
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.transfer import nvshmem
from waiting import HANG_S


class _World:
    """What the processes have in common.

    :ivar begins: for each place in symmetric memory, its address in each process
    """

    def __init__(self, count: int, seed: int) -> None:
        self.barrier = threading.Barrier(count)
        self.count, self.seed = count, seed
        self.begins: list[dict[int, int]] = []
        self.buffers: list[Buffer] = []
        self.lock = threading.Lock()


class _Library:
    """The functions of the library that one process calls.

    :param fails: what goes wrong: ``"begin"``, ``"memory"``, or nothing
    """

    def __init__(self, world: _World, fails: str) -> None:
        self._world, self._fails = world, fails
        self._pending: list[tuple[int, int, int]] = []
        self._places = 0

    def nvshmemx_get_uniqueid(self, identity: Any) -> int:
        ctypes.memmove(ctypes.addressof(identity) + 4, b"pretended", 9)
        return 0

    def nvshmemx_set_attr_uniqueid_args(self, rank: int, count: int, given: Any, _: Any) -> int:
        assert given.raw[4:13] == b"pretended"
        assert count == self._world.count
        self._rank, self._random = rank, Random(self._world.seed + rank)
        return 0

    def nvshmemx_hostlib_init_attr(self, flags: int, _: Any) -> int:
        assert flags == 1 << 3
        return int(self._fails == "begin")

    def nvshmem_malloc(self, nbytes: int) -> int:
        world, number = self._world, self._places
        self._places += 1
        buffer = Buffer(self._rank, nbytes)
        with world.lock:
            world.buffers.append(buffer)
            if len(world.begins) == number:
                world.begins.append({})
            world.begins[number][self._rank] = buffer.pointer
        world.barrier.wait(HANG_S)
        return 0 if self._fails == "memory" else buffer.pointer

    def nvshmem_free(self, address: int) -> None:
        self._world.barrier.wait(HANG_S)
        with self._world.lock:
            (buffer,) = (one for one in self._world.buffers if one.pointer == address)
            self._world.buffers.remove(buffer)
        buffer.close()

    def nvshmemx_putmem_on_stream(
        self, to: int, source: int, nbytes: int, rank: int, stream: int
    ) -> None:
        begins = self._world.begins[-1]
        self._pending.append((to - begins[self._rank] + begins[rank], source, nbytes))

    def nvshmemx_quiet_on_stream(self, stream: int) -> None:
        pending, self._pending = self._pending, []
        self._random.shuffle(pending)
        sleep(self._random.choice([0, 0, 1e-3]))
        _, runtime = libraries.bindings()
        for to, source, nbytes in pending:
            runtime.cudaMemcpyAsync(to, source, nbytes, None, stream)


@contextmanager
def pretended_nvshmem(count: int, *, seed: int = 0, fails: str = "", by: int = 0) -> Iterator[Any]:
    """NVSHMEM is there, for ``count`` processes that are threads, while the block lasts.

    :param fails: what goes wrong in process ``by``: ``"load"``, ``"begin"``, ``"memory"``, or nothing
    """
    world, loaded = _World(count, seed), SimpleNamespace(count=0)

    def load() -> _Library:
        with world.lock:
            number, loaded.count = loaded.count, loaded.count + 1
        if fails == "load" and number == by:
            raise DeviceError("NVSHMEM cannot be loaded (pretended)")
        return _Library(world, fails if number == by else "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvshmem, "load", load)
        patch.setattr(nvshmem, "_begun", {})
        try:
            yield world
        finally:
            for buffer in world.buffers:
                buffer.close()
