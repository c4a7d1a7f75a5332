"""A GPU of plain host memory whose kernels really run, at once: for code that makes and moves data.

For graph/cuda/rows.py and graph/generators/cuda.py, function by function; NumPy sorts in the place of CuPy.
:mod:`emulated_grid` has the kernels run, and whole GPUs for all above the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emulated_grid import as_gpu_array, check_arguments, new_machine
from emulated_grid_compiler import COMPILER, Compiler
from emulated_grid_machine import Kernel, Machine
from godwit.graph.cuda import builder as builder_module
from godwit.graph.cuda import rows, stored
from godwit.graph.generators import cuda as generators
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.transfer import copies

__all__ = ["COMPILER", "EmulatedBuffer", "EmulatedModule", "EmulatedStream", "emulate"]

_GUARD = b"\xab" * 64  # before and behind every buffer
_MOST_BLOCKS, _MOST_THREADS = 3, 96


class EmulatedBuffer:
    """Stands for Buffer and PinnedBuffer; closing it finds writes beyond its ends."""

    def __init__(self, *arguments: int) -> None:
        self.index = arguments[0]
        self.nbytes = arguments[-1]
        self._bytes = np.frombuffer(bytearray(_GUARD + b"\xcd" * self.nbytes + _GUARD), np.uint8)
        self.pointer = self._bytes.ctypes.data + len(_GUARD)

    @property
    def inside(self) -> np.ndarray[Any, Any]:
        return self._bytes[len(_GUARD) : len(_GUARD) + self.nbytes]

    def download(self, dtype: Any, count: int, offset_bytes: int = 0) -> np.ndarray[Any, Any]:
        end = offset_bytes + count * np.dtype(dtype).itemsize
        return self.inside[offset_bytes:end].copy().view(dtype)

    def moved(self) -> EmulatedBuffer:
        made = EmulatedBuffer.__new__(EmulatedBuffer)
        made.__dict__.update(self.__dict__)
        self.pointer = 0
        return made

    def close(self) -> None:
        if self.pointer:
            assert self._bytes[: len(_GUARD)].tobytes() == _GUARD, "written before a buffer"
            assert self._bytes[-len(_GUARD) :].tobytes() == _GUARD, "written behind a buffer"
        self.pointer = 0

    def __enter__(self) -> EmulatedBuffer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class EmulatedStream:
    """Everything in it is done when it is put there."""

    def __init__(self, index: int) -> None:
        self.index = index

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


class EmulatedModule:
    """Kernels, compiled for this machine.

    :param folder: not used: what is compiled is kept in Godwit's cache folder
    """

    def __init__(self, folder: Path, source: str) -> None:
        compiler = Compiler()
        self._kernels = compiler.load(compiler.cubin(source, (), "90"))

    def kernel(self, name: str) -> Kernel:
        return self._kernels[name]


@lru_cache(maxsize=1)
def _machine() -> Machine:
    return new_machine(1, most_threads=_MOST_THREADS)


def _launch(kernel: Kernel, stream: Any, *, blocks: int, threads: int, arguments: Any) -> None:
    check_arguments(kernel, arguments)
    held = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
    addresses = (ctypes.c_void_p * len(held))(*[ctypes.addressof(one) for one in held])
    blocks = min(blocks, _MOST_BLOCKS)
    _machine().launch(kernel, 0, ctypes.addressof(addresses), blocks, threads, 0, cooperative=False)


def _sort_keys(keys: EmulatedBuffer, count: int, stream: Any) -> None:
    keys.inside[: 8 * count].view(np.uint64).sort()


def _stable_order(keys: EmulatedBuffer, count: int, stream: Any) -> Any:
    order = np.argsort(keys.inside[: 8 * count].view(np.uint64), kind="stable").astype(np.int64)
    return SimpleNamespace(data=SimpleNamespace(ptr=order.ctypes.data), held=order)


def emulate(monkeypatch: pytest.MonkeyPatch, folder: Path, free_bytes: int = 1 << 30) -> None:
    """Make one GPU with so much memory, whose kernels are compiled into a folder."""
    for module in (rows, generators, stored):
        monkeypatch.setattr(module, "Buffer", EmulatedBuffer)
    for module in (builder_module, copies):
        monkeypatch.setattr(module, "Stream", EmulatedStream)
    for module in (builder_module, stored):
        monkeypatch.setattr(module, "held_gpus", contextlib.nullcontext)
    monkeypatch.setattr(
        builder_module, "load", lambda index, source: EmulatedModule(folder, source)
    )
    monkeypatch.setattr(rows, "sort_keys", _sort_keys)
    monkeypatch.setattr(rows, "stable_order", _stable_order)
    monkeypatch.setattr(rows, "on_gpu", as_gpu_array)
    monkeypatch.setattr(driver, "launch", _launch)
    monkeypatch.setattr(
        driver, "copy_async", lambda to, source, n, _: ctypes.memmove(to, source, n)
    )
    monkeypatch.setattr(memory, "free_memory_bytes", lambda index: free_bytes)
    monkeypatch.setattr(driver, "properties", lambda index: SimpleNamespace(multiprocessors=2))
