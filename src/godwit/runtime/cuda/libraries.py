"""The optional libraries of CUDA code, imported in this one place and only when needed.

A library that is missing or cannot be loaded is a DeviceError that says what to install. None of the
compilers needs a GPU or a driver.
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
_PACKAGES = ("cuda.bindings", "numba_cuda")
_COMPAT = threading.RLock()


def check_platform() -> None:
    """Raise DeviceError, naming the platform, where GPUs are not supported."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _MACHINES:
        raise DeviceError(
            f"GPUs are supported on Linux on x86-64 and 64-bit Arm, not on {platform.system()} on "
            f"{machine}; the CPU works everywhere"
        )


@lru_cache(maxsize=1)
def are_installed() -> bool:
    """Return True if the compilers for GPUs are installed; nothing is imported."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:  # the package around it is missing
        return False


@lru_cache(maxsize=1)
def bindings() -> tuple[Any, Any]:
    """Return the bindings of the CUDA driver and of the CUDA runtime."""
    return _imported("cuda.bindings.driver"), _imported("cuda.bindings.runtime")


@lru_cache(maxsize=1)
def nvrtc() -> Any:
    """Return the bindings of NVRTC, which compiles CUDA C++."""
    module = _imported("cuda.bindings.nvrtc")
    with _named("NVRTC"):
        module.nvrtcVersion()  # loads the shared library
    return module


@lru_cache(maxsize=1)
def nvjitlink() -> Any:
    """Return the bindings of nvJitLink, which links and optimizes the output of NVRTC and Numba."""
    module = _imported("cuda.bindings.nvjitlink")
    with _named("nvJitLink"):
        module.version()  # loads the shared library
    return module


@lru_cache(maxsize=1)
def numba_cuda() -> Any:
    """Return Numba for GPUs, with NVVM."""
    check_platform()
    if importlib.util.find_spec("numba_cuda") is None:  # Numba's own, older module is not enough
        raise DeviceError(f"GPUs need the Python package numba-cuda; install it: {INSTALL}")
    with _named("numba-cuda"), numba_cuda_compat():
        module = importlib.import_module("numba.cuda")
        nvvm = importlib.import_module("numba.cuda.cudadrv.nvvm")
    if not hasattr(module, "compile"):
        raise DeviceError("numba-cuda only simulates a GPU; unset NUMBA_ENABLE_CUDASIM")
    with _named("NVVM"):
        nvvm.NVVM()  # loads the shared library
    return module


def cupy() -> Any:
    """Return CuPy, which only arrays on GPUs and sorting need."""
    module = sys.modules.get("cupy")
    if module is not None:
        return module
    try:
        return importlib.import_module("cupy")
    except Exception as error:  # a broken installation raises anything
        raise DeviceError(
            f"arrays on GPUs need CuPy, which cannot be imported ({error}): {INSTALL}"
        ) from error


def _imported(name: str) -> Any:
    check_platform()
    with _named(name):
        return importlib.import_module(name)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn an error of loading a library into a DeviceError that names the library."""
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
    """Provide what numba-cuda 0.30 needs to be imported and to compile under NumPy 2.5.

    NumPy has no row_stack any more, an old name of vstack, and warns of what numba-cuda does as it starts.
    One thread at a time, since modules of the process are patched.
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
