"""g++ in the place of NVRTC, and Numba for the CPU in that of Numba for GPUs.

Compiled libraries are kept in Godwit's cache folder under a hash of all that they are made of.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.ccallback import CFunc

from emulated_grid_machine import EmulationError, Kernel
from emulated_grid_source import included, kernel_names, translated
from godwit import cache
from godwit.files import fcntl
from godwit.runtime.content import source_digest
from godwit.runtime.cpu.compile import _KeptCode, content_key
from godwit.runtime.cuda import operators
from godwit.runtime.cuda.compile import INCLUDE_FOLDER
from godwit.runtime.cuda.operators import DeviceFunction
from godwit.runtime.rebuilding import rebuild

COMPILER = shutil.which("g++") if sys.platform == "linux" else None

_HERE = Path(__file__).parent
_OPTIONS = [
    "-O1", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fno-gnu-unique",
    "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-w", "-fPIC",
]  # fmt: skip
# The sanitizer's instrumentation alone: emulated_grid.cpp is what it reports to.
_CHECKING = [
    "-fsanitize=thread", "-g1", "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
]  # fmt: skip


def _cache() -> Path:
    """Where compiled libraries are kept: they are executed, so that it must be ours alone."""
    folder = cache.usable_folder("emulated")
    if folder is None:
        return _temporary_folder()
    cache.make_folder(folder)
    return folder


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="godwit-emulated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@lru_cache(maxsize=1)
def scheduler() -> Any:
    """What runs fibers: kernels find it among the process's symbols."""
    files = {path.name: path.read_text() for path in sorted(_HERE.glob("emulated_grid*.[ch]*"))}
    options = ["-O3", "-fvisibility=default"]
    path = _cache() / f"scheduler-{_digest(repr((files, options)))}.so"
    with _missing(path) as is_missing:
        if is_missing:
            _compile(files, "emulated_grid.cpp", path, options)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.emulated_run.restype = ctypes.c_char_p
    number, pointer = ctypes.c_uint32, ctypes.c_void_p
    library.emulated_run.argtypes = [
        number, pointer, ctypes.c_uint64, number, pointer, number, pointer, number, number,
    ]  # fmt: skip
    library.emulated_forget.argtypes = [ctypes.c_void_p]
    library.emulated_forget.restype = None
    return library


class Compiler:
    """What compiles, and loads.

    :param checks: kernels report each access of memory
    """

    def __init__(self, *, checks: bool = False) -> None:
        scheduler()
        self._options = _CHECKING if checks else []
        self._programs: dict[bytes, tuple[str, list[DeviceFunction], list[str]]] = {}
        self._loaded: dict[bytes, dict[str, Kernel]] = {}

    def cubin(
        self,
        source: str,
        functions: Sequence[DeviceFunction],
        architecture: str,
        options: Sequence[str] = (),
    ) -> bytes:
        """What stands for compiled kernels: the name of what to compile."""
        keys = [_key(one) for one in functions]
        code = _digest(repr((source, keys, tuple(options)))).encode()
        self._programs[code] = (source, list(functions), list(options))
        return code

    def load(self, code: bytes) -> dict[str, Kernel]:
        """The kernels of a program."""
        if code not in self._loaded:
            self._loaded[code] = self._load(*self._programs[code])
        return self._loaded[code]

    def _load(
        self, source: str, functions: list[DeviceFunction], options: list[str]
    ) -> dict[str, Kernel]:
        made = [_operator(one) for one in functions]
        path, names = _library(source, tuple(one[0] for one in made), (*self._options, *options))
        library = self._opened(path, alone=bool(functions))
        for symbol, (_, pointer) in zip([one.symbol for one in functions], made, strict=True):
            getattr(library, f"set_{symbol}")(ctypes.c_void_p(pointer))
        return {name: _kernel(library, name) for name in names}

    def _opened(self, path: Path, *, alone: bool) -> Any:
        """A library; one with operators is this program's own, as others have other operators."""
        if not alone:
            return ctypes.CDLL(str(path))
        with tempfile.TemporaryDirectory() as folder:
            return ctypes.CDLL(shutil.copy(path, folder))


@lru_cache(maxsize=1)
def _headers() -> dict[str, str]:
    return {
        str(path.relative_to(INCLUDE_FOLDER)): path.read_text()
        for path in INCLUDE_FOLDER.rglob("*.cuh")
    }


def _library(source: str, operators: tuple[str, ...], options: tuple[str, ...]) -> Any:
    """Where a program's library is, which is compiled if it is not there, and the names of its kernels."""
    name, names, files = _made_of(source, operators, options)
    path = _cache() / name
    with _missing(path) as is_missing:
        if is_missing:
            _compile(files, "kernels.cpp", path, [*options, *_compiled_header(*options)])
    return path, names


_COMPILING = threading.RLock()


@contextmanager
def _missing(path: Path) -> Iterator[bool]:
    """Whether a file is not there yet: one thread of one process makes it, the others wait for it."""
    if path.exists():
        yield False
        return
    with _COMPILING, open(path.with_suffix(".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield not path.exists()


@lru_cache(maxsize=512)
def _made_of(
    source: str, operators: tuple[str, ...], options: tuple[str, ...]
) -> tuple[str, list[str], dict[str, str]]:
    """The name of a program's library, those of its kernels, and its files as C++."""
    headers = included(source, _headers())
    names = kernel_names("\n".join([source, *headers.values()]))
    files = {name: _translated(text) for name, text in headers.items()}
    lines = [*operators, '#line 1 "kernel.cu"', translated(source), *map(_launcher, names)]
    files["kernels.cpp"] = "\n".join(lines)
    return f"kernels-{_digest(repr((sorted(files.items()), options)))}.so", names, files


_translated = lru_cache(maxsize=None)(translated)


@lru_cache(maxsize=1)
def _common_header() -> str:
    return (_HERE / "emulated_grid.h").read_text()


def _digest(text: str) -> str:
    content = f"{text}{_OPTIONS}{_common_header()}"
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def _compile(files: dict[str, str], main: str, path: Path, options: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for name, text in files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        made = str(Path(folder) / "made.so")
        # In two steps: linked with -fsanitize, it would want the sanitizer's own library.
        object_file = str(Path(folder) / "made.o")
        source = str(Path(folder) / main)
        _call(folder, *_OPTIONS, *options, f"-I{folder}", "-o", object_file, "-c", source)
        _call(folder, "-shared", "-o", made, object_file)
        os.replace(made, path)


def _call(folder: str, *options: str) -> None:
    done = subprocess.run([str(COMPILER), *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        log = done.stderr.replace(f"{folder}/", "")
        raise EmulationError(f"kernels do not compile for the CPU:\n{log[:6000]}")


def _compiled_header(*options: str) -> list[str]:
    """Options that put emulated_grid.h in front, which was compiled before: a third of the time.

    The compiler takes the text beside it if what was compiled does not fit the other options.
    """
    path = _cache() / f"emulated_grid-{_digest(repr(options))}.h"
    compiled = path.with_suffix(".h.gch")
    with _missing(compiled) as is_missing:
        if is_missing:
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                text, made = Path(folder) / path.name, Path(folder) / compiled.name
                text.write_text(_common_header())
                _call(folder, *_OPTIONS, *options, "-x", "c++-header", str(text), "-o", str(made))
                os.replace(text, path)
                os.replace(made, compiled)
    return ["-include", str(path)]


def explained(message: str) -> str:
    """A message of the scheduler, with lines of source in the place of addresses."""
    return re.sub(r"@\{(.*?)\+0x([0-9a-f]+)\}", lambda match: _lines(match[1], match[2]), message)


def _lines(library: str, offset: str) -> str:
    """Where an instruction comes from, the innermost function first."""
    path = _cache() / Path(library).name  # it may have been loaded from a copy
    tool = shutil.which("addr2line")
    if tool is None or not path.exists():
        return f"{path.name}+{offset}"
    done = subprocess.run(
        [tool, "-Cfi", "-e", str(path), offset], capture_output=True, text=True, check=False
    )
    words = done.stdout.splitlines()
    frames = []
    for function, place in zip(words[::2], words[1::2], strict=False):
        file = place.rpartition("/")[2].partition(" ")[0]
        if not file.startswith(("emulated_grid", "?")):
            frames.append(f"{file} ({re.sub(r'[<(].*', '', function).split(' ')[-1]})")
    return ", ".join(frames[:4]) or f"{path.name}+{offset}"


def _launcher(name: str) -> str:
    return (
        f"EMULATED_EXPORT void *start_{name}(void **given) "
        f"{{ return emulated::start_of({name}, given); }}\n"
        f"EMULATED_EXPORT size_t sizes_{name}(size_t *sizes) "
        f"{{ return emulated::sizes_of({name}, sizes); }}\n"
    )


def _kernel(library: Any, name: str) -> Kernel:
    start = getattr(library, f"start_{name}")
    start.argtypes, start.restype = [ctypes.c_void_p], ctypes.c_void_p
    sizes = (ctypes.c_size_t * 64)()
    count = getattr(library, f"sizes_{name}")(sizes)
    return Kernel(name, list(sizes[:count]), start)


def _key(function: DeviceFunction) -> tuple[Any, ...]:
    dtypes = tuple(dtype.str for dtype in function.arguments)
    key = content_key(function.function, {})
    return function.symbol, key, dtypes, function.parameter_count, function.wanted


_OPERATORS: dict[Any, tuple[str, int, Any]] = {}


def _operator(function: DeviceFunction) -> tuple[str, int]:
    """How kernels call an operator: C++ that goes through a pointer, and where it points to."""
    key = _key(function)
    with _COMPILING:
        if key not in _OPERATORS:
            name = f"operator_{_digest(repr((key, _compiling())))}"
            _OPERATORS[key] = _compiled_operator(function, name)
        return _OPERATORS[key][:2]


@lru_cache(maxsize=1)
def _compiling() -> str:
    """Return the digests and the text of what compiles operators."""
    return source_digest("cuda.operators", "rebuilding") + Path(__file__).read_text()


def _compiled_operator(function: DeviceFunction, name: str) -> tuple[str, int, Any]:
    """An operator as code of the CPU, which is kept as that of Godwit is, and what it returns beside it.

    :param name: of its content: no two functions in one process may have the same name in LLVM
    """
    kinds = [numba.from_dtype(dtype) for dtype in function.arguments]
    kinds += [numba.float64] * function.parameter_count
    module = ModuleType(f"godwit._emulated.{name}")
    sys.modules[module.__name__] = module  # where Numba looks for the globals of what it loads

    def compiled(rebuilt: Any, *, is_entry: bool, by_user: bool) -> Any:
        return numba.njit(error_model="numpy", forceinline=not is_entry)(rebuilt)

    entry, originals = rebuild(
        operators._entry(function), {}, module.__name__, "<operator>", compiled
    )
    known = cache.load("emulated", f"{name}.returned")
    if known is None:
        entry.compile(tuple(kinds))
        returned = next(iter(entry.overloads.values())).signature.return_type
        operators._return_type(returned, function, originals)  # refuses what is no number
        known = str(getattr(returned, "literal_type", returned)).encode()
        cache.store(known, "emulated", f"{name}.returned")
    dtype = known.decode()
    names = ", ".join(f"a{number}" for number in range(len(kinds)))
    vars(module)["operator"] = entry
    exec(f"def {name}({names}): return operator({names})", vars(module))
    signature = tuple(kinds), numba.from_dtype(np.dtype(dtype))
    called: Any = CFunc(vars(module)[name], signature, {}, {})
    called._cache = kept = _KeptCode(name)
    kept.in_one_process(lambda _: called.compile())(None)
    types = [operators.C_TYPES[dtype.name] for dtype in function.arguments]
    types += ["double"] * function.parameter_count
    passed = ", ".join(f"{kind} a{number}" for number, kind in enumerate(types))
    kind = operators.C_TYPES[dtype]
    symbol, stored = function.symbol, "unsigned char" if kind == "bool" else kind
    text = (
        f"static {stored} (*{symbol}_pointer)({', '.join(types)});\n"
        f"inline {kind} {symbol}({passed}) {{ return {symbol}_pointer({names}); }}\n"
        f"EMULATED_EXPORT void set_{symbol}(void *pointer) {{ "
        f"{symbol}_pointer = reinterpret_cast<decltype({symbol}_pointer)>(pointer); }}"
    )
    return text, called.address, called
