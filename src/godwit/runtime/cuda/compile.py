"""Kernels: from CUDA C++ and operators to cubins, kept on disk, and to modules loaded on a GPU.

NVRTC compiles CUDA C++, nvJitLink links the operators in; no GPU and no driver is needed for that. A cubin
is stored under a hash of all that it depends on: the source, the headers that it includes, the operators
with everything that they refer to, options, architecture, and the versions of all compilers. Finding it
imports none of them. A damaged file, or a folder that cannot be used (:mod:`godwit.cache`), costs
compilation, never an error.

Kernels without operators that first queries take (:mod:`godwit.usual_kernels`) may lie compiled in the
package, under a hash of the same but for versions: a kernel is the same whatever compiled it.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from godwit import cache
from godwit.errors import DeviceError, GodwitError
from godwit.runtime.content import Content, source_digest
from godwit.runtime.cpu.compile_time import compiling
from godwit.runtime.cuda import driver, libraries
from godwit.runtime.cuda.compiler_process import compiled_elsewhere
from godwit.runtime.cuda.driver import Module
from godwit.runtime.cuda.operators import FAULT_DECLARATION, DeviceFunction, compile_function

MAXIMAL_DEVICES = 16
"""Most GPUs of a run; ``MAX_DEVICES`` of runtime/cuda/include/barrier.cuh."""

ARCHITECTURES = ("80", "86", "89", "90", "100", "120")
"""Architectures that every kernel is tested for; others that NVRTC supports work, too."""

INCLUDE_FOLDER = Path(__file__).parents[2]
"""The package: ``#include "folder/file.cuh"`` names a file by its path in it."""

SHIPPED_FOLDER = INCLUDE_FOLDER / "cubins"
"""Compiled kernels that came with the package (hatch_build.py), if any did."""

# Contraction (a * b + c in one rounding) is off: floating-point results shall equal the CPU's.
_COMPILER_OPTIONS = ("-std=c++17", "-fmad=false")
_LINE_NUMBERS = "-lineinfo"  # for profilers and sanitizers; it names files of this machine
_LINKER_OPTIONS = ("-lto", "-O3", "-lineinfo", "-fma=0")

# Distributions that cubins depend on, under CUDA 13's and CUDA 12's names.
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_NVJITLINK = ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12")
_NVVM = ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12")
_PYTHON_PACKAGES = ("numba", "numba-cuda", "llvmlite", "numpy", "cuda-bindings")

_C_TYPES = {
    "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "float32": "float",
    "float64": "double", "int8": "signed char", "uint8": "u8", "int16": "short", "uint16": "u16",
}  # fmt: skip

_BUILT: dict[str, bytes] = {}  # cubins of this process, by key
_REFUSED = threading.Event()  # the driver does not take the package's cubins
_LOCKS: dict[str, threading.Lock] = {}
_COMPILING = threading.Lock()  # held by the thread whose program NVRTC compiles in this process
_thread = (
    threading.local()
)  # is_first: the lock was acquired for this thread by the one that started it


def c_type(dtype: np.dtype[Any]) -> str:
    """Return the name that kernels have for a dtype (runtime/cuda/include/memory.cuh)."""
    return _C_TYPES[dtype.name]


def number_bits(number: Any, dtype: np.dtype[Any]) -> int:
    """Return the bits of a number of 4 or 8 bytes."""
    bits = np.array([number], dtype).view(np.uint32 if dtype.itemsize == 4 else np.uint64)
    return int(bits[0])


def layout_checks(
    struct: str, dtype: np.dtype[Any], members: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return C++ that fails to compile unless a struct has the size and the fields of a NumPy dtype.

    Offsets of fields are compared where the compiler knows ``__builtin_offsetof``: NVRTC 13.0 does not.

    :param members: what C++ calls fields of other names, such as ``"mine.counts"``
    """
    offsets = [
        f"static_assert(__builtin_offsetof({struct}, {members.get(name, name)}) == {field[1]});"
        for name, field in (dtype.fields or {}).items()
    ]
    return "\n".join(
        [
            f"static_assert(sizeof({struct}) == {dtype.itemsize});",
            "#ifdef __has_builtin",
            "#if __has_builtin(__builtin_offsetof)",
            *offsets,
            "#endif",
            "#endif",
        ]
    )


def load(index: int, source: str, functions: Sequence[DeviceFunction] = ()) -> Module:
    """Return kernels compiled for a GPU and loaded there; each module is loaded once.

    :param source: as for :func:`cubin`, and ``functions``
    """
    if functions:  # not kept by identity: equal operators are often made anew for a call
        return load_cubin(index, cubin(source, functions, _architecture(index)))
    return _loaded_source(index, source)


def compile_meanwhile(index: int, source: str) -> None:
    """Start to compile a source for a GPU, or to look for it in the cache, while the caller goes on.

    Only the first call for a source does so. :func:`load` waits for it, and raises its errors. Of several
    sources the first is compiled in this process, which begins sooner than another: the longest should be.

    :param source: as for :func:`cubin`, without functions
    """
    compile_for(_architecture(index), source)


@lru_cache(maxsize=256)
def compile_for(architecture: str, source: str) -> None:
    """Do what :func:`compile_meanwhile` does, for an architecture such as ``"90"``."""
    if shipped(source, architecture) is not None:
        return
    is_first = _COMPILING.acquire(blocking=False)

    def compile_source() -> None:
        _thread.is_first = is_first
        try:
            with suppress(GodwitError):
                cubin(source, (), architecture)
        finally:
            if is_first:
                _COMPILING.release()

    threading.Thread(target=compile_source, name="godwit compiles").start()


@lru_cache(maxsize=256)
def _loaded_source(index: int, source: str) -> Module:
    architecture = _architecture(index)
    code = shipped(source, architecture)
    if code is not None:
        with suppress(DeviceError):
            return load_cubin(index, code)
    module = load_cubin(index, cubin(source, (), architecture))
    if code is not None:  # this driver is older than the compiler
        _REFUSED.set()
    return module


def shipped(source: str, architecture: str) -> bytes | None:
    """Return the cubin of a source without operators that came with the package; None if none did.

    None, too, once the driver has refused one: it would refuse the others.
    """
    return None if _REFUSED.is_set() else _shipped(source, architecture)


@lru_cache(maxsize=64)
def _shipped(source: str, architecture: str) -> bytes | None:
    if not SHIPPED_FOLDER.is_dir():
        return None
    with suppress(OSError, zlib.error):
        return zlib.decompress((SHIPPED_FOLDER / shipped_name(source, architecture)).read_bytes())
    return None


def shipped_name(source: str, architecture: str) -> str:
    """Return the name of the package's file of a cubin, without line numbers and compressed by zlib."""
    return f"{_key(source, (), architecture, (), versions=())}.cubin.z"


@lru_cache(maxsize=256)
def load_cubin(index: int, code: bytes) -> Module:
    """Return a cubin loaded on a GPU, once."""
    return Module(index, code)


def _architecture(index: int) -> str:
    return driver.properties(index).compute_capability


def cubin(
    source: str, functions: Sequence[DeviceFunction], architecture: str, options: Sequence[str] = ()
) -> bytes:
    """Return compiled kernels as a cubin.

    :param source: CUDA C++; the prototypes of the functions are put in front of it
    :param functions: operators that it calls
    :param architecture: such as ``"90"``
    :param options: further ones for NVRTC
    :raises OperatorError: an operator cannot be compiled
    :raises DeviceError: a library is missing, or too old for the architecture or for another library
    :raises GodwitError: the source is wrong; the compiler's log is attached as a note
    """
    options = (_LINE_NUMBERS, *options)
    key = _key(source, functions, architecture, options, _versions())
    with _LOCKS.setdefault(key, threading.Lock()):  # one thread compiles, the others wait for it
        code = _BUILT.get(key)
        if code is None:
            names = ("cuda", key[:2], f"{key}.cubin")
            code = cache.load(*names)
            if code is None:
                with compiling():
                    code = compiled(source, functions, architecture, options)
                cache.store(code, *names)
            _BUILT[key] = code
    return code


def _key(
    source: str,
    functions: Sequence[DeviceFunction],
    architecture: str,
    options: Sequence[str],
    versions: Sequence[str],
) -> str:
    content = Content({})
    content.add(repr((tuple(versions), architecture, tuple(options))))
    content.add(repr((_COMPILER_OPTIONS, _LINKER_OPTIONS)))
    content.add(source)
    for name, text in sorted(included_headers(source, {}).items()):
        content.add(name)
        content.add(text)
    for function in functions:
        dtypes = [dtype.str for dtype in function.arguments]
        wanted = None if function.wanted is None else function.wanted.str
        content.add(repr((function.symbol, dtypes, function.parameter_count, wanted)))
        content.visit(function.function, function.symbol)
    return content.digest.hexdigest()


def included_headers(text: str, found: dict[str, str]) -> dict[str, str]:
    """Return the headers that a text includes, directly or not, by their paths below the folder."""
    for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.MULTILINE):
        path = INCLUDE_FOLDER / name
        if name not in found and path.is_file():
            found[name] = path.read_text(encoding="utf-8")
            included_headers(found[name], found)
    return found


@lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    def nvrtc_itself() -> str:
        return repr(libraries.nvrtc().nvrtcVersion()[1:])

    def nvjitlink_itself() -> str:
        return repr(libraries.nvjitlink().version())

    return (
        f"godwit {sys.modules['godwit'].__version__}",
        source_digest("checks", "loops", "cuda.operators"),
        f"python {sys.version_info[:3]}",
        # A library of a toolkit, which is no installed distribution, is asked for its version.
        _version(_NVRTC) or nvrtc_itself(),
        _version(_NVJITLINK) or nvjitlink_itself(),
        _version(_NVVM),
        *(f"{name} {_version((name,))}" for name in _PYTHON_PACKAGES),
    )


def _version(names: Sequence[str]) -> str:
    """Return the versions of those of some distributions that are installed; empty if none is."""
    versions = []
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append(importlib.metadata.version(name))
    return " ".join(versions)


def compiled(
    source: str, functions: Sequence[DeviceFunction], architecture: str, options: Sequence[str]
) -> bytes:
    """Compile kernels to a cubin, which is not kept; parameters and errors as of :func:`cubin`."""
    _check_architecture(architecture)
    if not functions:
        return _nvrtc(source, architecture, options, link_later=False)
    _check_linker()
    made = [compile_function(function, architecture) for function in functions]
    declarations = [function.prototype for function in made]
    if any(function.may_fail for function in made):
        declarations.append(FAULT_DECLARATION)
    prototypes = "\n".join(declarations)
    full = f'{prototypes}\n#line 1 "kernel.cu"\n{source}'
    kernel = _nvrtc(full, architecture, options, link_later=True)
    named = {
        "kernel": kernel,
        **{function.symbol: code.ltoir for function, code in zip(functions, made, strict=True)},
    }
    return _linked(named, architecture)


def _check_architecture(architecture: str) -> None:
    nvrtc = libraries.nvrtc()
    known = nvrtc.nvrtcGetSupportedArchs()[-1]
    if not architecture.isdecimal() or int(architecture) not in known:
        version = ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
        names = ", ".join(f"sm_{number}" for number in known)
        raise DeviceError(
            f"NVRTC {version} cannot compile for sm_{architecture}, only for {names}; "
            f"another version may: {libraries.INSTALL}"
        )


def _check_linker() -> None:
    """Raise DeviceError if nvJitLink is older than a compiler, whose LTO-IR it cannot read then."""
    linker = tuple(libraries.nvjitlink().version())
    producers = {"NVRTC": tuple(libraries.nvrtc().nvrtcVersion()[1:])}
    numbers = re.match(r"(\d+)\.(\d+)", _version(_NVVM))
    if numbers is not None and " " not in _version(_NVVM):
        producers["NVVM"] = (int(numbers[1]), int(numbers[2]))
    for name, version in producers.items():
        if version > linker:
            raise DeviceError(
                f"{name} {version[0]}.{version[1]} is newer than nvJitLink {linker[0]}.{linker[1]}, "
                "which cannot link what it compiles; update nvJitLink: "
                f"pip install --upgrade {_NVJITLINK[0] if version[0] > 12 else _NVJITLINK[1]}"
            )


def _nvrtc(source: str, architecture: str, options: Sequence[str], *, link_later: bool) -> bytes:
    """Compile to a cubin, or to LTO-IR for the linker: in another process while this one compiles."""
    libraries.nvrtc()
    given = [f"-arch=sm_{architecture}", *_COMPILER_OPTIONS, f"-I{INCLUDE_FOLDER}", *options]
    given += ["-dlto"] if link_later else []
    output = "LTOIR" if link_later else "CUBIN"
    if getattr(_thread, "is_first", False):
        return _nvrtc_here(source, architecture, given, output)
    if not _COMPILING.acquire(blocking=False):
        code = compiled_elsewhere(source, given, output)
        if code is None:
            # Without the lock, whose holder may wait for this thread; NVRTC has its own.
            code = _nvrtc_here(source, architecture, given, output)
        return code
    try:
        return _nvrtc_here(source, architecture, given, output)
    finally:
        _COMPILING.release()


def _nvrtc_here(source: str, architecture: str, given: Sequence[str], output: str) -> bytes:
    nvrtc = libraries.nvrtc()
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    _check_nvrtc(status, "cannot start")
    try:
        status = nvrtc.nvrtcCompileProgram(
            program, len(given), [option.encode() for option in given]
        )[0]
        if int(status) != 0:
            log = _nvrtc_output(program, "ProgramLog").decode(errors="replace").rstrip("\0\n ")
            raise _with_log(f"a kernel does not compile for sm_{architecture}", log or str(status))
        return _nvrtc_output(program, output)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _nvrtc_output(program: Any, what: str) -> bytes:
    nvrtc = libraries.nvrtc()
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check_nvrtc(status, f"has no {what}")
    output = bytearray(size)
    _check_nvrtc(getattr(nvrtc, f"nvrtcGet{what}")(program, output)[0], f"has no {what}")
    return bytes(output)


def _check_nvrtc(status: Any, what: str) -> None:
    if int(status) != 0:
        raise GodwitError(f"NVRTC {what}: {status}")


def _linked(parts: dict[str, bytes], architecture: str) -> bytes:
    nvjitlink = libraries.nvjitlink()
    options = [f"-arch=sm_{architecture}", *_LINKER_OPTIONS]
    handle = nvjitlink.create(len(options), options)
    try:
        for name, code in parts.items():
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), name)
        nvjitlink.complete(handle)
        output = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, output)
        return bytes(output)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        text = log.decode(errors="replace").rstrip("\0\n ")
        raise _with_log(
            f"a kernel cannot be linked for sm_{architecture}", text or str(error)
        ) from error
    finally:
        nvjitlink.destroy(handle)


def _with_log(message: str, log: str) -> GodwitError:
    """Return an error that shows the first message of a compiler's log and carries the whole log."""
    lines = [
        line for line in log.splitlines() if re.search("error|fatal", line.lower())
    ] or log.splitlines()
    error = GodwitError(f"{message}: {lines[0] if lines else 'no reason given'}")
    error.add_note(log)
    return error
