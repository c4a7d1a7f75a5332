"""Compiled functions that another process finds again: ``@kernel``.

Numba caches a function under its file and line, and never finds operators that were passed as
arguments or held in closures. A kernel is instead compiled as an *instantiation*: its bytecode and,
transitively, everything that it refers to (helpers, operators bound to it, constants, attributes of
modules and classes) are hashed into a key; the functions are rebuilt under a file of that name in
Godwit's cache folder, and Numba's own on-disk cache does the rest. The same content gives the same
key in every process; a changed helper, a changed closure value or another version of Numba gives
another. Within a process, kernels of equal content share one instantiation. A cache that is damaged
or cannot be written costs compilation, never an error.

What a kernel may refer to: other plain Python functions (compiled and inlined with it), Numba
intrinsics, modules (by attributes written out: ``module.NAME``), and constants (numbers, strings,
enumerations, tuples of these, NumPy dtypes and small arrays).
"""

from __future__ import annotations

import builtins
import os
import re
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numba
import numpy as np

from godwit import config
from godwit.errors import OperatorError
from godwit.parallel.content import ADAPTERS, Content, is_users, plain_function, references

# Every function below an entry is inlined into it: a call costs nothing. Reference counting
# (_nrt) is off: arrays that are handed around cost up to ten times less, and compiled code creates
# none.
_HELPER_OPTIONS = {
    "nogil": True,
    "forceinline": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
_ENTRY_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}

# Not imported: what the package names for type checkers only lies above this layer.
_VERSION: str = sys.modules["godwit"].__version__
_LONGEST_MESSAGE = 199


class Kernel:
    """A compiled function of plain Python, cached across processes by content.

    Calling it compiles (or loads) on first use for the argument types given, and runs without the
    GIL. Compiled code creates no arrays: preallocate and pass them in.

    :param function: the entry
    :param bindings: values for global names of the functions of Godwit's modules among the entry and
        everything below it; this is how operators are put into a template. A user's functions keep
        their own globals
    :raises OperatorError: when compiled, if that is impossible; when run, from whatever exception a
        user's function raises
    """

    def __init__(
        self, function: Callable[..., Any], bindings: Mapping[str, Any] | None = None
    ) -> None:
        if plain_function(function) is None:
            raise OperatorError(f"a kernel must be a Python function, got {function!r}")
        self.function = function
        self._bindings = dict(bindings or {})
        self._instance: _Instance | None = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    @property
    def py_func(self) -> Callable[..., Any]:
        """The function, under the name that Numba's dispatchers have it."""
        return self.function

    def __call__(self, *arguments: Any) -> Any:
        """Run; compile or load first if need be."""
        instance = self._instance or self._instantiated()
        try:
            return instance.dispatcher(*arguments)
        except Exception as error:
            instance.fail(error, arguments)

    def prepare(self, *arguments: Any) -> None:
        """Compile, or load, for arguments of these types, without running."""
        instance = self._instance or self._instantiated()
        try:
            instance.dispatcher.compile(tuple(numba.typeof(argument) for argument in arguments))
        except Exception as error:
            instance.fail(error, arguments)

    def bind(self, **bindings: Any) -> Kernel:
        """A kernel of the same template with further global names bound."""
        return Kernel(self.function, {**self._bindings, **bindings})

    def compile(self) -> Callable[..., Any]:
        """Numba's dispatcher for this kernel; nothing is compiled until it is called."""
        dispatcher: Callable[..., Any] = self._instantiated().dispatcher
        return dispatcher

    def _instantiated(self) -> _Instance:
        if self._instance is None:
            key = f"{self.__name__}_{content_key(self.function, self._bindings)}"
            with _INSTANCES_LOCK:
                if key not in _INSTANCES:
                    _INSTANCES[key] = _instantiate(self.function, self._bindings, key)
                self._instance = _INSTANCES[key]
        return self._instance


def kernel(function: Callable[..., Any]) -> Kernel:
    """Decorator: compile a plain Python function as a :class:`Kernel`."""
    return Kernel(function)


def content_key(function: Callable[..., Any], bindings: Mapping[str, Any]) -> str:
    """A hash of the function and of everything that it refers to, equal in every process."""
    content = Content(bindings)
    versions = (sys.version_info[:3], numba.__version__, np.__version__, _VERSION)
    options = (sorted(_HELPER_OPTIONS.items()), sorted(_ENTRY_OPTIONS.items()))
    content.add(repr((versions, options)))
    content.visit(function, getattr(function, "__name__", "kernel"))
    return content.digest.hexdigest()[:32]


@dataclass
class _Instance:
    """One compiled instantiation.

    :param name: the entry's
    :param key: in the table of the process
    :param dispatcher: Numba's, of the entry
    :param originals: by id of the rebuilt function: the function it was made of, and what to call it
    """

    name: str
    key: str
    dispatcher: Any = None
    originals: dict[int, tuple[types.FunctionType, str]] = field(default_factory=dict)

    def fail(self, error: Exception, arguments: tuple[Any, ...]) -> NoReturn:
        """Raise what the user should see of an exception out of the dispatcher."""
        if isinstance(error, MemoryError):
            raise error
        try:
            signature = tuple(numba.typeof(argument) for argument in arguments)
        except Exception:
            signature = None
        if signature not in self.dispatcher.overloads:
            # Equal content elsewhere shall be named by its own whereabouts when it fails.
            with _INSTANCES_LOCK:
                if _INSTANCES.get(self.key) is self:
                    del _INSTANCES[self.key]
            raise OperatorError(self._compile_message(str(error))) from error
        if not self._users():
            raise error
        raise OperatorError(self._run_message(error)) from error

    def _users(self) -> list[tuple[types.FunctionType, str]]:
        return [pair for pair in self.originals.values() if is_users(pair[0])]

    def _compile_message(self, message: str) -> str:
        """The operator and what is wrong with it, in one line, as far as Numba says so."""
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        reason = _reason(lines)
        number: int | None = None
        for line in lines:  # from the innermost function outwards
            callee = re.search(r"callee type: .*<function .* at (0x[0-9a-fA-F]+)>", line)
            if callee is not None:
                original = self.originals.get(int(callee[1], 16))
                if original is not None and is_users(original[0]):
                    return _shortened(f"cannot compile {_place(original, number)}: {reason}")
                number = None
            elif number is None:
                at = re.search(r'^File ".*", line (\d+)|\.py \((\d+)\)', line)
                number = int(at[1] or at[2]) if at is not None else None
        # No callee: the entry's own body, or bytecode that Numba does not even read.
        entry = next(iter(self.originals.values()))
        found = entry if is_users(entry[0]) else None
        if number is not None and "Raised from" in message:
            found = self._at_line(number) or found
        if found is not None and number is not None:
            return _shortened(f"cannot compile {_place(found, number)}: {reason}")
        users = self._user_labels()
        using = f" with {', '.join(users)}" if users else ""
        return _shortened(f"cannot compile {self.name}{using}: {reason}")

    def _run_message(self, error: Exception) -> str:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        number = frames[-1].lineno if frames else None
        found = None if number is None else self._at_line(number, frames[-1].name)
        if found is not None:
            return _shortened(f"{_place(found, number)} raised {what}")
        users = self._user_labels() or [self.name]
        one_of = "one of " if len(users) > 1 else ""
        return _shortened(f"{one_of}{', '.join(users)} raised {what}")

    def _user_labels(self) -> list[str]:
        labels = dict.fromkeys(f"'{label}'" for _, label in self._users() if label != self.name)
        return list(labels)[:6]

    def _at_line(
        self, number: int, name: str | None = None
    ) -> tuple[types.FunctionType, str] | None:
        """The user's function around a line, if there is just one (the innermost of nested ones)."""
        found = []
        for plain, label in self._users():
            lines = [line for _, _, line in plain.__code__.co_lines() if line is not None]
            named = name is None or plain.__name__ in name
            if named and lines and min(lines) <= number <= max(lines):
                found.append((max(lines) - min(lines), (plain, label)))
        found.sort(key=lambda item: item[0])
        alone = len(found) == 1 or (len(found) > 1 and found[0][0] < found[1][0])
        return found[0][1] if alone else None


_INSTANCES: dict[str, _Instance] = {}
_INSTANCES_LOCK = threading.Lock()


def _place(original: tuple[types.FunctionType, str], number: int | None) -> str:
    plain, label = original
    line = plain.__code__.co_firstlineno if number is None else number
    return f"'{label}' ({Path(plain.__code__.co_filename).name}, line {line})"


_BOILERPLATE = ("Failed in ", "- Resolution failure", "During: ", "Overload", "File ")


def _reason(lines: list[str]) -> str:
    """The line of Numba's message that says what is wrong."""
    for position, line in enumerate(lines):
        if line.startswith(_BOILERPLATE):
            continue
        reason = re.sub(r"\.*\s*Raised from .*$", "", line)
        if reason.endswith(":") and position + 1 < len(lines):
            reason = f"{reason} {lines[position + 1].removeprefix('>>> ')}"
        return re.sub(
            r"No implementation of .* found for signature:", "no implementation of", reason
        )
    return "no reason given"


def _shortened(message: str) -> str:
    message = " ".join(message.split())
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return message[: _LONGEST_MESSAGE - 1] + "…"


def _instantiate(function: Callable[..., Any], bindings: Mapping[str, Any], key: str) -> _Instance:
    module_name = f"godwit._instances.{key}"
    path = _stamp_file(function.__name__, key)
    file_name = f"<godwit {key}>" if path is None else str(path)
    built: dict[int, Any] = {}
    instance = _Instance(function.__name__, key)

    def build(plain: types.FunctionType, options: dict[str, Any], label: str) -> Any:
        if id(plain) in built:
            return built[id(plain)]
        namespace: dict[str, Any] = {"__name__": module_name, "__builtins__": builtins}
        cells = {name: types.CellType() for name in plain.__code__.co_freevars}
        rebuilt = types.FunctionType(
            plain.__code__.replace(co_filename=file_name),
            namespace,
            plain.__name__,
            build_value(plain.__defaults__, "default"),
            tuple(cells.values()),
        )
        rebuilt.__kwdefaults__ = plain.__kwdefaults__ and {
            name: build_value(value, name) for name, value in plain.__kwdefaults__.items()
        }
        rebuilt.__qualname__ = plain.__name__
        compiled = built[id(plain)] = numba.njit(**options)(rebuilt)
        instance.originals[id(rebuilt)] = (plain, label)
        for name, value in references(plain, bindings).items():
            value_label = plain.__name__ if plain.__module__ == ADAPTERS else name
            if name in cells:
                cells[name].cell_contents = build_value(value, value_label)
            else:
                namespace[name] = build_value(value, value_label)
        return compiled

    def build_value(value: Any, label: str) -> Any:
        if type(value) is tuple:
            return tuple(build_value(item, label) for item in value)
        plain = plain_function(value)
        if plain is None:
            return value
        # A lambda is called as what refers to it calls it: the operator's name in the template.
        name = label if plain.__name__ == "<lambda>" else plain.__name__
        return build(plain, _HELPER_OPTIONS, name)

    entry = plain_function(function)
    assert entry is not None
    module = types.ModuleType(module_name)
    sys.modules[module_name] = module  # where Numba looks for the globals of what it loads
    instance.dispatcher = build(entry, _ENTRY_OPTIONS, function.__name__)
    module.__dict__[function.__name__] = instance.dispatcher
    if path is not None:
        _enable_caching(instance.dispatcher)
    return instance


def _enable_caching(dispatcher: Any) -> None:
    try:
        dispatcher.enable_caching()
        dispatcher._cache = _ForgivingCache(dispatcher._cache)
    except Exception:  # no folder that Numba can use: compile without
        return


class _ForgivingCache:
    """Numba's cache of one function; whatever goes wrong in it, the function is compiled anew."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return self._cache.load_overload(signature, target_context)
        except Exception:  # a damaged pickle raises anything
            self._discard()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            self._cache.save_overload(signature, data)
        except Exception:  # a full disk, a folder that has gone, what cannot be pickled
            self._discard()

    def _discard(self) -> None:
        """Remove the files, so that the next process does not stumble over them."""
        folder = Path(self._cache.cache_path)
        try:
            for file in folder.iterdir():
                if file.suffix in (".nbi", ".nbc") and file.name.startswith(
                    self._cache._impl.filename_base
                ):
                    file.unlink(missing_ok=True)
        except OSError:
            self._cache.disable()


def _stamp_file(name: str, key: str) -> Path | None:
    """The file under whose name Numba caches an instantiation; None where it cannot be."""
    cache = config.cache_folder()
    if cache is None:
        return None
    folder = cache / "cpu" / key
    path = folder / "kernel.py"
    temporary = None
    try:
        if path.exists():
            return path if os.access(folder, os.W_OK) else None
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(f'"""Godwit kernel {name}, key {key}; compiled code beside."""\n')
        # The stamp that Numba checks is modification time and size: keep it equal for every
        # process, whichever of them wins the rename.
        os.utime(temporary, (0, 0))
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return None
    return path
