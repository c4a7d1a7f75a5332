"""GPUs of plain host memory, for benchmarks/devices.py and the topology: no GPU is needed to test those.

Buffers are arrays, pointers are addresses in them, copies and kernels happen at once, and time is a clock
that each of them advances. Each kernel of benchmarks/devices.cu has a counterpart in Python here.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import devices
import devices_testbed as testbed
import devices_trials as trials
from devices_testbed import pattern
from godwit.runtime import registry
from godwit.runtime.cpu.device import CpuKind
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import GpuProperties

RING_OF_FOUR = [[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]
THREADS = 4 * 256  # of every launch: 4 blocks of random access


@dataclass
class Machine:
    """What happens on the pretended GPUs.

    :param access: which GPU reaches which other
    :param breaks: peer writes are lost, as behind an IOMMU that redirects them
    :param silent: kernels that wait find nobody
    """

    access: np.ndarray[Any, Any]
    breaks: bool = False
    silent: bool = False
    now_ms: float = 0.0
    held: dict[int, int] = field(default_factory=dict)  # address of each buffer: its GPU
    relays: list[Any] = field(default_factory=list)

    def move(self, to: int, origin: int, nbytes: int) -> None:
        if not (self.breaks and self.home(to) != self.home(origin)):
            ctypes.memmove(to, origin, nbytes)
        self.now_ms += nbytes / 1e8

    def home(self, address: int) -> int:
        return self.held[max(base for base in self.held if base <= address)]


class PretendBuffer:
    """Stands for Buffer and, without a GPU, for PinnedBuffer."""

    machine: Machine

    def __init__(self, *arguments: int) -> None:
        self.index = arguments[0] if len(arguments) == 2 else -1
        self.nbytes = arguments[-1]
        self._bytes = np.zeros(self.nbytes, np.uint8)
        self.pointer = self._bytes.ctypes.data
        self.machine.held[self.pointer] = self.index

    def fill_bytes(self, byte: int) -> None:
        self._bytes[:] = byte

    def upload(self, array: Any, offset_bytes: int = 0) -> None:
        self._bytes[offset_bytes : offset_bytes + array.nbytes] = array.view(np.uint8)

    def download(self, dtype: Any, count: int, offset_bytes: int = 0) -> Any:
        end = offset_bytes + count * np.dtype(dtype).itemsize
        return self._bytes[offset_bytes:end].view(dtype).copy()

    def __enter__(self) -> PretendBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        del self.machine.held[self.pointer]


class PretendPinned(PretendBuffer):
    def array(self, dtype: Any) -> Any:
        return self._bytes.view(dtype)


class PretendStream:
    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = 0

    def synchronize(self) -> None: ...

    def close(self) -> None: ...


class PretendEvent:
    machine: Machine

    def __init__(self, index: int) -> None:
        self.index = index
        self._event = 0
        self.at_ms = 0.0

    def record(self, stream: PretendStream) -> None:
        assert stream.index == self.index
        self.at_ms = self.machine.now_ms

    def synchronize(self) -> None: ...


class PretendModule:
    def __init__(self, index: int) -> None:
        self.index = index

    def kernel(self, name: str) -> PretendKernel:
        return PretendKernel(self.index, name)


@dataclass
class PretendKernel:
    index: int
    name: str

    def occupancy(self, threads: int) -> int:
        return 1


def _words(address: int, count: int, kind: Any = ctypes.c_uint32) -> Any:
    return np.ctypeslib.as_array((kind * count).from_address(address))


def _launch(machine: Machine, kernel: PretendKernel, a: list[int], threads: int) -> None:
    machine.now_ms += 0.01
    if kernel.name == "fill_pattern":
        _words(a[0], a[1])[:] = pattern(np.arange(a[1]), a[2])
    elif kernel.name == "copy_coalesced":
        machine.move(a[0], a[1], 16 * a[2])
    elif kernel.name == "random_read":
        table = _words(a[0], a[1])
        assert (table == table[0]).all()
        _words(a[4], 1, ctypes.c_uint64)[0] += 4 * threads * 8 * a[2] * int(table[0])
    elif kernel.name.startswith("random_"):
        _words(a[0], a[1])[0] = a[4]
    elif kernel.name == "ping_pong":
        if machine.silent:
            _words(a[6], 1)[0] = 1
    elif not a[7]:  # a relay of no rounds
        assert not any(a[:6])
    elif a[2]:  # a relay that waits: it acts when the one that begins does
        machine.relays.append(a)
    else:
        flags: list[tuple[int, int]] = []
        for stop in [a, *reversed(machine.relays)]:
            to, origin, arrived, announced, packets, vectors, members, rounds, epoch = stop[:9]
            assert packets * vectors * 16 == testbed.MESSAGE_BYTES
            assert vectors % members == 0
            if arrived:
                awaited = _words(arrived, packets * members)
                assert flags[-1] == (arrived, packets * members)
                assert (awaited == epoch + rounds - 1).all()
            if to:
                machine.move(to, origin, testbed.MESSAGE_BYTES)
            if announced:
                _words(announced, packets * members)[:] = epoch + rounds - 1
                flags.append((announced, packets * members))
        machine.relays.clear()


def pretend(patch: pytest.MonkeyPatch, access: Any, **settings: Any) -> Machine:
    """Put pretended GPUs in the place of the driver; ``access`` says which reaches which."""
    machine = Machine(np.asarray(access, bool), **settings)
    for kind in (PretendBuffer, PretendEvent):
        patch.setattr(kind, "machine", machine, raising=False)
    properties = GpuProperties("Pretended", "90", 4, 1 << 30, 1 << 16, "0000:01", True)

    class Runtime:
        @staticmethod
        def cudaStreamWaitEvent(*_: object) -> tuple[int]:  # noqa: N802
            return (0,)

    def launch(kernel: Any, stream: Any, *, blocks: int, threads: int, arguments: Any) -> None:
        assert kernel.index == stream.index
        _launch(machine, kernel, arguments, threads)

    def copy(to: int, origin: int, nbytes: int, stream: Any) -> None:
        machine.move(to, origin, nbytes)

    def copy_peer(to: int, there: int, origin: int, here: int, nbytes: int, stream: Any) -> None:
        assert (machine.home(to), machine.home(origin)) == (there, here)
        machine.move(to, origin, nbytes)

    replaced = {
        "device_count": lambda: len(machine.access),
        "properties": lambda index: properties,
        "can_access_peer": lambda i, j: bool(machine.access[i, j]),
        "peer_attribute": lambda name, i, j: name == "native_atomics" and int(machine.access[i, j]),
        "enable_peer_access": list,
        "use": lambda index: None,
        "launch": launch,
        "copy_async": copy,
        "copy_peer_async": copy_peer,
        "elapsed_ms": lambda begin, end: end.at_ms - begin.at_ms,
    }
    for name, function in replaced.items():
        patch.setattr(driver, name, function)
    patch.setattr(driver, "current", lambda: driver.Current(0, 0))
    patch.setattr(driver, "return_to", lambda before: None)
    patch.setattr(testbed, "bindings", lambda: (None, Runtime))
    patch.setattr(testbed, "load", lambda index, source: PretendModule(index))
    patch.setattr(testbed, "Buffer", PretendBuffer)
    patch.setattr(testbed, "PinnedBuffer", PretendPinned)
    for module in (testbed, devices):
        patch.setattr(module, "TimedEvent", PretendEvent)
    patch.setattr(testbed, "Stream", PretendStream)
    patch.setattr(testbed, "MESSAGE_BYTES", 1 << 20)
    patch.setattr(testbed, "SPAN_BYTES", 1 << 18)
    patch.setattr(trials, "PACKET_BYTES", (1 << 16, 1 << 18, 1 << 20))
    patch.setattr(trials, "BROADCAST_PACKET_BYTES", (1 << 18,))
    # They run nothing but measurements.
    patch.setattr(registry, "all_devices", lambda: CpuKind().devices())
    return machine
