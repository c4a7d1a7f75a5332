"""The optional libraries of CUDA code, imported in this one place and only when needed.

Whatever is missing or cannot be loaded is a DeviceError that says what to install. None of these
libraries needs a GPU or a driver to compile for one.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.errors import DeviceError

INSTALL = 'pip install ".[cuda]" (".[cuda12]" where the driver knows CUDA 12 only)'
_MACHINES = ("x86_64", "aarch64", "arm64")
_COMPAT = threading.RLock()


def check_platform() -> None:
    """DeviceError, naming the platform, where GPUs are not supported."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _MACHINES:
        raise DeviceError(
            f"GPUs are supported on Linux on x86-64 and 64-bit Arm, not on {platform.system()} on "
            f"{machine}; the CPU works everywhere"
        )


_PACKAGES = ("cuda.bindings", "numba_cuda")


@lru_cache(maxsize=1)
def are_there() -> bool:
    """Whether what compiles for GPUs is installed; nothing is imported to find out."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:  # not even the package around it
        return False


@lru_cache(maxsize=1)
def bindings() -> tuple[Any, Any]:
    """The bindings of the CUDA driver and of the CUDA runtime."""
    return _imported("cuda.bindings.driver"), _imported("cuda.bindings.runtime")


@lru_cache(maxsize=1)
def nvrtc() -> Any:
    """NVRTC, which compiles CUDA C++."""
    module = _imported("cuda.bindings.nvrtc")
    with _named("NVRTC"):
        module.nvrtcVersion()  # finds the shared library
    return module


@lru_cache(maxsize=1)
def nvjitlink() -> Any:
    """nvJitLink, which links and optimizes across what NVRTC and Numba have compiled."""
    module = _imported("cuda.bindings.nvjitlink")
    with _named("nvJitLink"):
        module.version()  # finds the shared library
    return module


@lru_cache(maxsize=1)
def numba_cuda() -> Any:
    """Numba for GPUs, with NVVM."""
    check_platform()
    if importlib.util.find_spec("numba_cuda") is None:  # Numba's own, older module will not do
        raise DeviceError(f"GPUs need the Python package numba-cuda; install it: {INSTALL}")
    with _named("numba-cuda"), numba_cuda_compat():
        module = importlib.import_module("numba.cuda")
        nvvm = importlib.import_module("numba.cuda.cudadrv.nvvm")
    if not hasattr(module, "compile"):
        raise DeviceError("numba-cuda only simulates a GPU; unset NUMBA_ENABLE_CUDASIM")
    with _named("NVVM"):
        nvvm.NVVM()  # finds the shared library
    return module


def _imported(name: str) -> Any:
    check_platform()
    with _named(name):
        return importlib.import_module(name)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn whatever keeps a library from loading into a DeviceError that names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"GPUs need the Python module {error.name}; install it: {INSTALL}"
        ) from error
    except Exception as error:  # a shared library that is absent or broken raises anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DeviceError(f"{what} cannot be loaded ({reason}); install it: {INSTALL}") from error


@contextmanager
def numba_cuda_compat() -> Iterator[None]:
    """What numba-cuda 0.30 needs around it, to be imported and to compile, under NumPy 2.5.

    NumPy has no row_stack any more, an old name of vstack; and warns of what numba-cuda does as it starts.
    One thread at a time: what is patched belongs to the process.
    """
    with _COMPAT, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        missing = not hasattr(np, "row_stack")
        if missing:
            np.row_stack = np.vstack  # type: ignore[attr-defined, unused-ignore]  # noqa: NPY201
        try:
            yield
        finally:
            if missing:
                del np.row_stack  # noqa: NPY201
