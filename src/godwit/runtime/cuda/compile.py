"""Kernels to cubins: NVRTC compiles CUDA C++, nvJitLink links the operators in; kept on disk.

No GPU and no driver is needed. A cubin is stored under a hash of all that it depends on: the source,
the headers that it includes, the operators with everything that they refer to, options, architecture,
and the versions of whatever had a hand in it. Finding it imports none of the compilers. What is damaged, or
a folder that cannot be used (:mod:`godwit.cache`), costs compilation, never an error.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from godwit import cache
from godwit.errors import DeviceError, GodwitError
from godwit.runtime.content import Content, source_digest
from godwit.runtime.cpu.compile_time import compiling
from godwit.runtime.cuda import libraries
from godwit.runtime.cuda.operators import FAULT_DECLARATION, DeviceFunction, compile_function

ARCHITECTURES = ("80", "86", "89", "90", "100", "120")
"""For which every kernel is compiled and tested; others that NVRTC knows work, too."""

INCLUDE_FOLDER = Path(__file__).parents[2]
"""The package: ``#include "folder/file.cuh"`` names a file by its path in it."""

# Contraction (a * b + c in one rounding) is off: floating-point results shall equal the CPU's.
_COMPILER_OPTIONS = ("-std=c++17", "-lineinfo", "-fmad=false")
_LINKER_OPTIONS = ("-lto", "-O3", "-lineinfo", "-fma=0")

# Who has a hand in a cubin, under CUDA 13's and CUDA 12's names.
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_NVJITLINK = ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12")
_NVVM = ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12")
_PYTHON_PACKAGES = ("numba", "numba-cuda", "llvmlite", "numpy", "cuda-bindings")

_BUILT: dict[str, bytes] = {}  # of this process, by key


def cubin(
    source: str, functions: Sequence[DeviceFunction], architecture: str, options: Sequence[str] = ()
) -> bytes:
    """Compiled kernels, ready to be loaded.

    :param source: CUDA C++; the prototypes of the functions are put in front of it
    :param functions: operators that it calls
    :param architecture: such as ``"90"``
    :param options: further ones for NVRTC
    :raises OperatorError: an operator cannot be compiled
    :raises DeviceError: a library is missing, or too old for the architecture or for another library
    :raises GodwitError: the source is wrong; the compiler's log is attached as a note
    """
    key = _key(source, functions, architecture, options)
    found = _BUILT.get(key)
    if found is None:
        names = ("cuda", key[:2], f"{key}.cubin")
        found = cache.load(*names)
        if found is None:
            with compiling():
                found = _compiled(source, functions, architecture, options)
            cache.store(found, *names)
        _BUILT[key] = found
    return found


def _key(
    source: str, functions: Sequence[DeviceFunction], architecture: str, options: Sequence[str]
) -> str:
    content = Content({})
    content.add(repr((_versions(), architecture, tuple(options))))
    content.add(repr((_COMPILER_OPTIONS, _LINKER_OPTIONS)))
    content.add(source)
    for name, text in sorted(_included(source, {}).items()):
        content.add(name)
        content.add(text)
    for function in functions:
        dtypes = [dtype.str for dtype in function.arguments]
        wanted = None if function.wanted is None else function.wanted.str
        content.add(repr((function.symbol, dtypes, function.parameter_count, wanted)))
        content.visit(function.function, function.symbol)
    return content.digest.hexdigest()


def _included(text: str, found: dict[str, str]) -> dict[str, str]:
    """The headers that a text includes, directly or not; they go by their paths below the folder."""
    for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.MULTILINE):
        path = INCLUDE_FOLDER / name
        if name not in found and path.is_file():
            found[name] = path.read_text(encoding="utf-8")
            _included(found[name], found)
    return found


@lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    def nvrtc_itself() -> str:
        return repr(libraries.nvrtc().nvrtcVersion()[1:])

    def nvjitlink_itself() -> str:
        return repr(libraries.nvjitlink().version())

    return (
        f"godwit {sys.modules['godwit'].__version__}",
        source_digest("checks", "loops", "cuda.operators", "cuda.stopping"),
        f"python {sys.version_info[:3]}",
        # From a toolkit of the system instead of a wheel: it must say itself.
        _version(_NVRTC) or nvrtc_itself(),
        _version(_NVJITLINK) or nvjitlink_itself(),
        _version(_NVVM),
        *(f"{name} {_version((name,))}" for name in _PYTHON_PACKAGES),
    )


def _version(names: Sequence[str]) -> str:
    """The version of whichever of these distributions is installed; empty if none is."""
    found = []
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(importlib.metadata.version(name))
    return " ".join(found)


def _compiled(
    source: str, functions: Sequence[DeviceFunction], architecture: str, options: Sequence[str]
) -> bytes:
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
        **{one.symbol: code.ltoir for one, code in zip(functions, made, strict=True)},
    }
    return _linked(named, architecture)


def _check_architecture(architecture: str) -> None:
    nvrtc = libraries.nvrtc()
    known = nvrtc.nvrtcGetSupportedArchs()[-1]
    if not architecture.isdecimal() or int(architecture) not in known:
        version = ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
        names = ", ".join(f"sm_{one}" for one in known)
        raise DeviceError(
            f"NVRTC {version} cannot compile for sm_{architecture}, only for {names}; "
            f"another version may: {libraries.INSTALL}"
        )


def _check_linker() -> None:
    """nvJitLink reads the LTO-IR of compilers up to its own version only."""
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
    """Compile to a cubin, or to LTO-IR for the linker."""
    nvrtc = libraries.nvrtc()
    given = [f"-arch=sm_{architecture}", *_COMPILER_OPTIONS, f"-I{INCLUDE_FOLDER}", *options]
    given += ["-dlto"] if link_later else []
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    _check_nvrtc(status, "cannot start")
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(given), [one.encode() for one in given])[0]
        if int(status) != 0:
            log = _nvrtc_output(program, "ProgramLog").decode(errors="replace").rstrip("\0\n ")
            raise _with_log(f"a kernel does not compile for sm_{architecture}", log or str(status))
        return _nvrtc_output(program, "LTOIR" if link_later else "CUBIN")
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
    """An error that shows the first complaint and carries the whole log."""
    lines = [
        line for line in log.splitlines() if re.search("error|fatal", line.lower())
    ] or log.splitlines()
    error = GodwitError(f"{message}: {lines[0] if lines else 'no reason given'}")
    error.add_note(log)
    return error
