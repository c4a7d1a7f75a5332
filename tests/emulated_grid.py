"""GPUs of host memory whose kernels really run, together: compiled by the machine's C++ compiler.

:func:`emulated_gpus` puts them in the place of the CUDA driver and of NVRTC; all above those is the
package's own code, Python and CUDA. A test that wants them::

    @pytest.fixture
    def gpus() -> Iterator[Machine]:
        with emulated_gpus(2) as machine:
            yield machine
"""

from __future__ import annotations

import ctypes
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

import godwit
from emulated_grid_compiler import COMPILER, Compiler, explained, scheduler
from emulated_grid_driver import Driver, Runtime
from emulated_grid_machine import EmulationError, Kernel, Machine
from emulated_grid_source import translated
from godwit.arrays import ResultLocation
from godwit.runtime.cuda import compile as compilation
from godwit.runtime.cuda import driver, gpu_arrays, libraries, memory
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer, KeptMemory
from godwit.runtime.cuda.transfer import staging
from godwit.worker.cuda import engine
from native_calls import native_calls, no_quick_calls

__all__ = [
    "COMPILER", "EmulationError", "Machine", "ResultOnGpu", "as_gpu_array", "check_arguments",
    "emulated_gpus", "new_machine", "results_on_gpus",
]  # fmt: skip


@contextmanager
def emulated_gpus(
    count: int = 1,
    *,
    multiprocessors: int | None = None,
    blocks_per_multiprocessor: int = 1,
    most_threads: int = 64,
    memory_bytes: int = 1 << 30,
    peers: Any = None,
    seed: int = 0,
    checks: bool | Literal["strict"] = False,
) -> Iterator[Machine]:
    """Emulated GPUs ``cuda:0``, ``cuda:1``, ... in the place of real ones, while the block lasts.

    :param multiprocessors: of each; a grid whose blocks wait for each other has at most as many blocks,
        times ``blocks_per_multiprocessor``. None: 3 of one GPU alone, else 2: others have blocks, too
    :param most_threads: of a block; whoever asks for more gets these
    :param memory_bytes: of each
    :param peers: (count, count) which reaches which; None for all
    :param seed: of the schedule: 0 is by turns; each other seed has a random one for every launch
    :param checks: every access of memory is looked at: accesses that nothing orders (missing barriers and
        fences, too small scopes), and memory that is nobody's. "strict" also refuses what CUDA does not
        promise and GPUs do: collectives of a warp that order accesses, equal numbers that several write
    """
    if COMPILER is None:
        pytest.skip("no g++ to compile kernels for this machine")
    machine = new_machine(
        count, multiprocessors=multiprocessors, most_threads=most_threads, peers=peers, seed=seed,
        blocks_per_multiprocessor=blocks_per_multiprocessor, memory_bytes=memory_bytes,
        checks=checks,
    )  # fmt: skip
    compiler = Compiler(checks=bool(checks))
    bindings = (Driver(machine, compiler.load), Runtime(machine))
    calls = native_calls(
        bindings[0].launch, bindings[1].synchronize, bindings[1].copy_at_once, lambda *_: 0,
        lambda _: 0, lambda _: 0,
    )  # fmt: skip
    _forget()
    programs: list[Any] = []
    real_load = engine.ProgramPlan._load

    class Launch(driver.Launch):
        def __init__(self, kernel: Any, stream: Any, *, arguments: Any, **given: Any) -> None:
            check_arguments(kernel.function, arguments)
            super().__init__(kernel, stream, arguments=arguments, **given)

    def load(plan: Any) -> None:
        programs.append(plan.program)
        real_load(plan)

    with pytest.MonkeyPatch.context() as patch:
        stand_ins = {
            libraries.bindings: lambda: bindings,
            driver.calls: lambda: calls,
            driver.quick_calls: no_quick_calls,
            libraries.are_installed: lambda: True,
            compilation.cubin: compiler.cubin,
            compilation.shipped: lambda *_: None,
            driver.Launch: Launch,
            driver.loaded_cupy: lambda: None,
            gpu_arrays.sort_keys: _sort_keys,
            gpu_arrays.stable_order: _stable_order,
        }
        by_id = {id(original): stand_in for original, stand_in in stand_ins.items()}
        for module in _modules():
            for name, value in list(vars(module).items()):
                if id(value) in by_id:
                    patch.setattr(module, name, by_id[id(value)])
        patch.setattr(engine.ProgramPlan, "_load", load)
        patch.setattr(memory, "_ABANDONED", _Abandoned(machine))
        patch.setattr(memory, "_KEPT", KeptMemory(memory.KEPT_BYTES))
        patch.setattr(memory, "_KEPT_PINNED", KeptMemory(memory.KEPT_PINNED_BYTES))
        patch.setattr(staging, "_pools", {})
        try:
            yield machine
            machine.finish()
        finally:
            for program in programs:  # kernels of these GPUs are of no use on others
                for key in [key for key in program.compiled if key[0] == "cuda"]:
                    del program.compiled[key]
            staging.close_pool()
            _forget()
            _LEFT.append(machine)


_LEFT: list[Machine] = []
"""Those that are gone. Their memory is not given to others: somebody may still free it."""


class _Abandoned(list[tuple[int, int]]):
    """Buffers that nobody closed, as the driver keeps them; not those of other machines."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def append(self, entry: tuple[int, int]) -> None:
        if self._machine.holds(entry[1]):
            super().append(entry)


def new_machine(
    count: int = 1,
    *,
    multiprocessors: int | None = None,
    blocks_per_multiprocessor: int = 1,
    most_threads: int = 64,
    memory_bytes: int = 1 << 30,
    peers: Any = None,
    seed: int = 0,
    checks: bool | Literal["strict"] = False,
) -> Machine:
    """GPUs, as of :func:`emulated_gpus`, that stand in nothing's place."""
    fibers = scheduler()
    if multiprocessors is None:
        multiprocessors = 3 if count == 1 else 2
    return Machine(
        fibers.emulated_run, fibers.emulated_forget, count, multiprocessors=multiprocessors,
        blocks_per_multiprocessor=blocks_per_multiprocessor, most_threads=most_threads,
        memory_bytes=memory_bytes, peers=peers, seed=seed, checks=checks, explain=explained,
    )  # fmt: skip


_OF_GPUS = re.compile(r"cuda|godwit\.supersteps|components\.tiles")


@lru_cache(maxsize=1)
def _modules() -> list[Any]:
    """All modules that use CUDA."""
    found = pkgutil.walk_packages(godwit.__path__, "godwit.")
    names = [one.name for one in found if _OF_GPUS.search(one.name)]
    return [importlib.import_module(name) for name in names]


@lru_cache(maxsize=1)
def _remembering() -> list[Any]:
    """All functions of theirs that keep what they have returned."""
    return [
        value
        for module in _modules()
        for value in vars(module).values()
        if hasattr(value, "cache_clear") and value.__module__ == module.__name__
    ]


def _forget() -> None:
    """Let go of what the library keeps of the GPUs that there were."""
    for function in _remembering():
        function.cache_clear()


def check_arguments(kernel: Kernel, arguments: Any) -> None:
    """That a kernel gets as much as it takes: the driver just reads."""
    if isinstance(arguments, bytes):
        arguments = np.frombuffer(arguments, np.uint8)
    if isinstance(arguments, np.ndarray):
        sizes = [arguments.nbytes]
    else:
        sizes = [8 if isinstance(one, int) else ctypes.sizeof(one) for one in arguments]
    fits = len(sizes) == len(kernel.sizes) and all(map(int.__ge__, sizes, kernel.sizes))
    if not fits or (isinstance(arguments, np.ndarray) and sizes != kernel.sizes):
        raise EmulationError(
            f"kernel {kernel.name} takes arguments of {kernel.sizes} bytes, got {sizes}"
        )


def _keys(keys: Buffer, count: int, stream: Stream) -> np.ndarray[Any, Any]:
    """Keys where they lie, once the stream is there."""
    stream.synchronize()
    there: Any = (ctypes.c_uint64 * count).from_address(keys.pointer)
    return np.frombuffer(there, np.uint64)


def _sort_keys(keys: Buffer, count: int, stream: Stream) -> None:
    _keys(keys, count, stream).sort()


def _stable_order(keys: Buffer, count: int, stream: Stream) -> Any:
    return as_gpu_array(np.argsort(_keys(keys, count, stream), kind="stable"))


class ResultOnGpu:
    """What stands for a CuPy array that a query returns: memory of a GPU, freed by :meth:`get`."""

    def __init__(self, gpu: int, count: int, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.size = count
        self.nbytes = count * self.dtype.itemsize
        self._buffer = Buffer(gpu, self.nbytes)
        self.data = SimpleNamespace(ptr=self._buffer.pointer)
        self.device = SimpleNamespace(id=gpu)

    def get(self) -> np.ndarray[Any, Any]:
        """Download."""
        found = self._buffer.download(self.dtype, self.size)
        self._buffer.close()
        return found


def results_on_gpus(patch: pytest.MonkeyPatch) -> None:
    """Let queries return results on emulated GPUs."""

    def empty(location: ResultLocation, count: int, dtype: Any) -> Any:
        if location.gpu is None:
            return np.empty(count, dtype)
        return ResultOnGpu(location.gpu, count, dtype)

    def place(location: ResultLocation, array: Any) -> Any:
        if location.gpu is None or not isinstance(array, np.ndarray):
            return array
        found = ResultOnGpu(location.gpu, len(array), array.dtype)
        found._buffer.upload(array)
        return found

    patch.setattr(ResultLocation, "empty", empty)
    patch.setattr(ResultLocation, "place", place)


def as_gpu_array(values: np.ndarray[Any, Any]) -> Any:
    """What stands for a CuPy array of NumPy's values, on GPU 0."""
    held = np.ascontiguousarray(values)
    return SimpleNamespace(
        data=SimpleNamespace(ptr=held.ctypes.data),
        device=SimpleNamespace(id=0, synchronize=lambda: None),
        dtype=held.dtype,
        size=held.size,
        held=held,
    )


def main() -> None:
    """Show what is made of a kernel file, for who looks for an error."""
    sys.stdout.write(translated(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
