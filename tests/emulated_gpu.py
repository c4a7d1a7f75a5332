"""A GPU of plain host memory whose kernels really run: compiled by the machine's C++ compiler.

For the code that makes graphs (backends/cuda/rows.py, generators.py, arcs.py). The kernels are those of the
package, over ``emulated_gpu.h`` in the place of ``memory.cuh``; NumPy sorts in the place of CuPy.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from godwit.backends.cuda import arcs, download, driver, generators, rows, workshop
from godwit.backends.cuda.compilation import KERNELS

COMPILER = shutil.which("g++")

_GUARD = b"\xab" * 64  # before and behind every buffer
_GRID = (3, 96)  # blocks and threads of a launch that leaves them to the GPU
_ENTRY = re.compile(r'extern "C" __global__ void (\w+)\((.*?)\) \{', re.DOTALL)
_PARAMETER = re.compile(r"\s*(.*?)(\**)(\w+)\s*", re.DOTALL)


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
    """Kernels, compiled for this machine into a folder."""

    def __init__(self, folder: Path, source: str) -> None:
        headers = {path.name: path.read_text() for path in KERNELS.glob("*.cuh")}
        headers["memory.cuh"] = Path(__file__).with_name("emulated_gpu.h").read_text()
        text = "".join(headers[name] for name in re.findall(r'"(\w+_kernels\.cuh)"', source))
        entries = {name: _parameters(listed) for name, listed in _ENTRY.findall(text)}
        program = source + "".join(_launcher(name, types) for name, types in entries.items())
        library = folder / f"{hashlib.sha256(program.encode()).hexdigest()[:16]}.so"
        if not library.exists():
            for name, content in headers.items():
                (folder / name).write_text(content)
            (folder / "kernels.cpp").write_text(program)
            options = ["-O1", "-std=c++17", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
            subprocess.run(
                [str(COMPILER), *options, "-o", library, folder / "kernels.cpp"], check=True
            )
        self._library = ctypes.CDLL(str(library))
        self._counts = {name: len(types) for name, types in entries.items()}

    def kernel(self, name: str) -> tuple[Any, int]:
        return getattr(self._library, f"launch_{name}"), self._counts[name]


def _parameters(listed: str) -> list[str]:
    """The types of a kernel's parameters."""
    found = [_PARAMETER.fullmatch(one) for one in listed.split(",")]
    return [match[1] + match[2] for match in found if match is not None]


def _launcher(name: str, types: list[str]) -> str:
    """What takes a kernel's arguments as the driver does: by their addresses."""
    values = ", ".join(f"*static_cast<{one} *>(a[{i}])" for i, one in enumerate(types))
    return (
        f'extern "C" void launch_{name}(u32 blocks, u32 threads, void **a) '
        f"{{ run_grid(blocks, threads, [=] {{ {name}({values}); }}); }}\n"
    )


def _launch(
    kernel: tuple[Any, int], stream: Any, *, blocks: int, threads: int, arguments: Any
) -> None:
    function, count = kernel
    assert len(arguments) == count
    held = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
    addresses = (ctypes.c_void_p * count)(*[ctypes.addressof(one) for one in held])
    grid = (1, threads) if blocks == 1 else _GRID
    function(*grid, addresses)


def _sort_keys(keys: EmulatedBuffer, count: int, stream: Any) -> None:
    keys.inside[: 8 * count].view(np.uint64).sort()


def _stable_order(keys: EmulatedBuffer, count: int, stream: Any) -> Any:
    order = np.argsort(keys.inside[: 8 * count].view(np.uint64), kind="stable").astype(np.int64)
    return SimpleNamespace(data=SimpleNamespace(ptr=order.ctypes.data), held=order)


def _as_gpu_array(values: Any) -> Any:
    """What stands for a CuPy array of NumPy's values."""
    return SimpleNamespace(
        data=SimpleNamespace(ptr=values.ctypes.data),
        device=SimpleNamespace(id=0, synchronize=lambda: None),
        dtype=values.dtype,
        size=values.size,
        held=values,
    )


def emulate(monkeypatch: pytest.MonkeyPatch, folder: Path, free_bytes: int = 1 << 30) -> None:
    """Make one GPU with so much memory, whose kernels are compiled into a folder."""
    for module in (rows, generators, arcs):
        monkeypatch.setattr(module, "Buffer", EmulatedBuffer)
    for module in (workshop, download):
        monkeypatch.setattr(module, "Stream", EmulatedStream)
    monkeypatch.setattr(workshop, "held_gpus", contextlib.nullcontext)
    monkeypatch.setattr(download, "PinnedBuffer", EmulatedBuffer)
    monkeypatch.setattr(download, "PIECE_BYTES", 1000)  # many pieces of little
    monkeypatch.setattr(workshop, "_module", lambda index, source: EmulatedModule(folder, source))
    monkeypatch.setattr(rows, "sort_keys", _sort_keys)
    monkeypatch.setattr(rows, "stable_order", _stable_order)
    monkeypatch.setattr(arcs, "_on_gpu", _as_gpu_array)
    monkeypatch.setattr(driver, "launch", _launch)
    monkeypatch.setattr(
        driver, "copy_async", lambda to, source, n, _: ctypes.memmove(to, source, n)
    )
    monkeypatch.setattr(driver, "free_memory_bytes", lambda index: free_bytes)
    monkeypatch.setattr(driver, "properties", lambda index: SimpleNamespace(multiprocessors=2))
