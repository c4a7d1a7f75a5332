"""Compiled functions that another process finds again: ``@kernel``.

Numba caches a function under its file and line, and never finds operators that were passed as
arguments or held in closures. A kernel is instead compiled as an *instantiation*: its bytecode and,
transitively, everything that it refers to (helpers, operators bound to it, constants) are hashed
into a key; the functions are rebuilt under a file of that name in Godwit's cache folder, and Numba's
own on-disk cache does the rest. The same content gives the same key in every process; a changed
helper, a changed closure value or another version of Numba gives another.

What a kernel may refer to: other plain Python functions (compiled and inlined with it), Numba
intrinsics, modules, and constants (numbers, strings, tuples of these, NumPy dtypes and small
arrays).
"""

from __future__ import annotations

import builtins
import hashlib
import inspect
import marshal
import os
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError
from numba.core.extending import _Intrinsic  # Numba has no public test for one

from godwit import config
from godwit.errors import OperatorError

# Every function below an entry is inlined into it: a call costs nothing, and arrays that are handed
# down are not reference-counted on the way.
_HELPER_OPTIONS = {
    "nogil": True,
    "forceinline": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_ENTRY_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}


class Kernel:
    """A compiled function of plain Python, cached across processes by content.

    Calling it compiles (or loads) on first use for the argument types given, and runs without the
    GIL.

    :param function: the entry
    :param allocates: whether compiled code creates arrays (np.empty inside the kernel). Without it
        Numba's reference counting is off, which makes code that hands arrays around up to ten times
        faster: preallocate and pass scratch arrays in instead wherever speed matters
    :param bindings: values for global names of the functions of Godwit's modules among the entry and
        everything below it; this is how operators are put into a template. A user's functions keep
        their own globals
    """

    def __init__(
        self,
        function: Callable[..., Any],
        bindings: Mapping[str, Any] | None = None,
        *,
        allocates: bool = False,
    ) -> None:
        if plain_function(function) is None:
            raise OperatorError(f"a kernel must be a Python function, got {function!r}")
        self.function = function
        self.allocates = allocates
        self._bindings = dict(bindings or {})
        self._dispatcher: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Run; compile or load first if need be."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self.compile()
        try:
            return dispatcher(*arguments)
        except NumbaError as error:
            raise OperatorError(_compile_message(self.__name__, error)) from error

    def prepare(self, *arguments: Any) -> None:
        """Compile, or load, for arguments of these types, without running."""
        dispatcher: Any = self.compile()
        try:
            dispatcher.compile(tuple(numba.typeof(argument) for argument in arguments))
        except NumbaError as error:
            raise OperatorError(_compile_message(self.__name__, error)) from error

    def bind(self, **bindings: Any) -> Kernel:
        """A kernel of the same template with further global names bound."""
        return Kernel(self.function, {**self._bindings, **bindings}, allocates=self.allocates)

    def compile(self) -> Callable[..., Any]:
        """Numba's dispatcher for this kernel; nothing is compiled until it is called."""
        with self._lock:
            if self._dispatcher is None:
                key = content_key(self.function, self._bindings)
                if self.allocates:
                    key = f"a{key}"
                self._dispatcher = _instantiate(
                    self.function, self._bindings, key, {"_nrt": self.allocates}
                )
            return self._dispatcher


def kernel(function: Callable[..., Any]) -> Kernel:
    """Decorator: compile a plain Python function as a :class:`Kernel` that allocates nothing."""
    return Kernel(function)


def allocating_kernel(function: Callable[..., Any]) -> Kernel:
    """Decorator: compile a plain Python function as a :class:`Kernel` that may create arrays."""
    return Kernel(function, allocates=True)


def _compile_message(name: str, error: NumbaError) -> str:
    """The part of Numba's message that says what is wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if line.startswith(("Unknown attribute", "No implementation", "Invalid use"))
        or "cannot" in line.lower() or "Unknown" in line or "NameError" in line
    ]  # fmt: skip
    return f"cannot compile {name}: {(telling or lines or ['no reason given'])[0]}"


def plain_function(value: Any) -> types.FunctionType | None:
    """The Python function behind a function, a kernel or a Numba dispatcher; else None."""
    if isinstance(value, Kernel):
        value = value.function
    value = getattr(value, "py_func", value)
    return value if isinstance(value, types.FunctionType) else None


def content_key(function: Callable[..., Any], bindings: Mapping[str, Any]) -> str:
    """A hash of the function and of everything that it refers to, equal in every process."""
    digest = hashlib.sha256()
    versions = (sys.version_info[:3], numba.__version__, np.__version__)
    digest.update(repr(versions).encode())
    seen: dict[int, int] = {}

    def visit(value: Any, where: str) -> None:
        plain = plain_function(value)
        if plain is not None:
            if id(plain) in seen:
                digest.update(b"seen %d" % seen[id(plain)])
                return
            seen[id(plain)] = len(seen)
            digest.update(b"function")
            digest.update(marshal.dumps(_anonymous(plain.__code__)))
            visit(plain.__defaults__, where)
            for name, referred in sorted(_references(plain, bindings).items()):
                digest.update(name.encode())
                visit(referred, f"{where} -> {name}")
            return
        digest.update(_constant_bytes(value, where))

    visit(function, getattr(function, "__name__", "kernel"))
    return digest.hexdigest()[:32]


def _anonymous(code: types.CodeType) -> types.CodeType:
    """The code without its whereabouts, so that moving a function does not change its key."""
    constants = tuple(_anonymous(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(
        co_filename="",
        co_firstlineno=1,
        co_linetable=b"",
        co_name="",
        co_qualname="",
        co_consts=_without_doc(constants),
    )


def _without_doc(constants: tuple[Any, ...]) -> tuple[Any, ...]:
    if constants and isinstance(constants[0], str):
        return (None, *constants[1:])
    return constants


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _references(function: types.FunctionType, bindings: Mapping[str, Any]) -> dict[str, Any]:
    """The global and closure names that a function uses, with their values."""
    references = {}
    ours = function.__module__ is not None and function.__module__.startswith("godwit.")
    for name in _global_names(function.__code__):
        if ours and name in bindings:
            references[name] = bindings[name]
        elif name in function.__globals__:
            references[name] = function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        references[name] = cell.cell_contents
    return references


def _constant_bytes(value: Any, where: str) -> bytes:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__}:{value!r};".encode()
    if isinstance(value, np.generic):
        return f"{value.dtype.str}:{value!r};".encode()
    if isinstance(value, tuple):
        return b"(" + b"".join(_constant_bytes(item, where) for item in value) + b")"
    if isinstance(value, np.dtype):
        return f"dtype:{value.str};".encode()
    if isinstance(value, np.ndarray):
        return f"array:{value.dtype.str}:{value.shape}:".encode() + value.tobytes()
    if isinstance(value, types.ModuleType):
        return f"module:{value.__name__};".encode()
    if isinstance(value, _Intrinsic):
        return _intrinsic_bytes(value)
    if isinstance(value, type | types.BuiltinFunctionType | np.ufunc | numba.types.Type):
        return f"{type(value).__name__}:{value!r};".encode()
    raise OperatorError(
        f"{where} is a {type(value).__name__}, which compiled code cannot refer to; "
        "functions, modules, numbers, strings, tuples and NumPy arrays can be"
    )


def _intrinsic_bytes(value: Any) -> bytes:
    source = Path(inspect.getfile(value._defn))
    name: str = value._defn.__qualname__
    return name.encode() + _file_digest(str(source))


_FILE_DIGESTS: dict[str, bytes] = {}


def _file_digest(path: str) -> bytes:
    if path not in _FILE_DIGESTS:
        _FILE_DIGESTS[path] = hashlib.sha256(Path(path).read_bytes()).digest()
    return _FILE_DIGESTS[path]


def _instantiate(
    function: Callable[..., Any],
    bindings: Mapping[str, Any],
    key: str,
    common_options: Mapping[str, Any],
) -> Callable[..., Any]:
    module_name = f"godwit._instances.{function.__name__}_{key}"
    path, persistent = _stamp_file(function.__name__, key)
    built: dict[int, Any] = {}

    def build(plain: types.FunctionType, options: dict[str, Any]) -> Any:
        if id(plain) in built:
            return built[id(plain)]
        namespace: dict[str, Any] = {"__name__": module_name, "__builtins__": builtins}
        code = plain.__code__.replace(co_filename=str(path))
        rebuilt = types.FunctionType(
            code,
            namespace,
            plain.__name__,
            plain.__defaults__,
            tuple(
                types.CellType(build_value(cell.cell_contents)) for cell in plain.__closure__ or ()
            ),
        )
        rebuilt.__qualname__ = plain.__name__
        compiled = numba.njit(**options, **common_options)(rebuilt)
        built[id(plain)] = compiled
        freevars = set(plain.__code__.co_freevars)
        for name, value in _references(plain, bindings).items():
            if name not in freevars:
                namespace[name] = build_value(value)
        return compiled

    def build_value(value: Any) -> Any:
        plain = plain_function(value)
        return value if plain is None else build(plain, _HELPER_OPTIONS)

    entry = plain_function(function)
    assert entry is not None
    options = dict(_ENTRY_OPTIONS)
    if not persistent:
        options["cache"] = False
    module = types.ModuleType(module_name)
    sys.modules[module_name] = module
    compiled: Callable[..., Any] = build(entry, options)
    module.__dict__[function.__name__] = compiled
    return compiled


def _stamp_file(name: str, key: str) -> tuple[Path, bool]:
    """The file under whose name Numba caches an instantiation, and whether it could be written."""
    folder = config.cache_folder() / "cpu" / f"{name}_{key}"
    path = folder / "kernel.py"
    if path.exists():
        return path, os.access(folder, os.W_OK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(f'"""Godwit kernel {name}, content key {key}; compiled code beside."""\n')
        # The stamp that Numba checks is modification time and size: keep it equal for every
        # process, whichever of them wins the rename.
        os.utime(temporary, (0, 0))
        os.replace(temporary, path)
    except OSError:
        return path, False
    return path, True
