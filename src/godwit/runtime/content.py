"""Hashes of all that a compiled function depends on: its bytecode and all that it refers to.

Numba compiles the values of globals, closures and attributes into the code. So the hash has all of these,
by value; what belongs to Python, NumPy or Numba themselves, by name (their versions are in the key).
"""

from __future__ import annotations

import dis
import enum
import hashlib
import inspect
import os
import sys
import types
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.extending import _Intrinsic  # Numba has no public test for one

from godwit.errors import OperatorError
from godwit.runtime.purity import check_purity, place_of

_STANDARD_PACKAGES = sys.stdlib_module_names | {"numpy", "numba"}
_NUMBERS_AND_TEXT = (bool, int, float, complex, str, bytes)
ADAPTERS = "operator_adapter"  # module of the functions, named as roles, that call operators
_HAS_DOCSTRING = 0x4000000  # CO_HAS_DOCSTRING, since Python 3.13


def plain_function(value: Any) -> types.FunctionType | None:
    """Return the Python function to compile of a function, a kernel or a Numba dispatcher; else None."""
    value = getattr(value, "py_func", value)
    value = getattr(value, COMPILED_AS, value) if isinstance(value, types.FunctionType) else value
    return value if isinstance(value, types.FunctionType) else None


COMPILED_AS = "__godwit_compiled_as__"
"""Attribute of public functions that operators may call: the function that stands for it there."""


class Content:
    """Hash of all that functions refer to. After :meth:`visit`, ``is_ours`` is True if all functions were
    Godwit's own.

    After visits, ``is_ours`` says whether all functions were Godwit's own.
    """

    def __init__(self, bindings: Mapping[str, Any]) -> None:
        self.digest = hashlib.sha256()
        self.is_ours = True
        self._open: set[int] = set()
        self._bindings = bindings
        self._seen: dict[int, int] = {}

    def add(self, text: str) -> None:
        """Add a piece of text."""
        data = text.encode("utf-8", "surrogatepass")
        self.digest.update(b"%d:" % len(data) + data)  # the length keeps neighbours apart

    def visit(self, value: Any, where: str) -> None:
        """Add a value and all that it refers to; ``where`` names it in errors."""
        plain = plain_function(value)
        if plain is not None:
            options = getattr(value, "targetoptions", {})  # of a user's own njit function
            self.add(repr(sorted((name, repr(option)) for name, option in options.items())))
            self._visit_function(plain, where)
        elif isinstance(value, enum.Enum):
            self.add(f"enum {_type_name(type(value))}.{value.name}")
            self.visit(value.value, where)
        elif isinstance(value, tuple):
            self.add(f"{_type_name(type(value))}{getattr(value, '_fields', '')} of {len(value)}")
            for item in value:
                self.visit(item, where)
        elif isinstance(value, type):
            self._visit_class(value, where)
        elif isinstance(value, _Intrinsic):
            self._visit_intrinsic(value)
        else:
            self.add(_constant_text(value, where))

    def _visit_function(self, plain: types.FunctionType, where: str) -> None:
        if id(plain) in self._seen:
            if id(plain) in self._open:
                raise OperatorError(
                    f"'{plain.__name__}' calls itself, perhaps by others, which operators cannot: "
                    "write a loop"
                )
            self.add(f"seen {self._seen[id(plain)]}")
            return
        self._seen[id(plain)] = len(self._seen)
        self._open.add(id(plain))
        self.is_ours &= is_ours(plain)
        self.add(f"function {_code_text(plain.__code__)}")
        self.visit(plain.__defaults__, where)
        for name, value in sorted((plain.__kwdefaults__ or {}).items()):
            self.add(name)
            self.visit(value, where)
        values = references(plain, self._bindings)
        chains = _loaded_chains(plain.__code__)
        if is_users(plain):
            check_purity(plain, values, chains)
            where = place_of(plain)
        for chain in sorted(chains):
            if chain[0] in values:
                self.add(f"name {chain}")
                self._visit_chain(values[chain[0]], chain, where)
        self._open.discard(id(plain))

    def _visit_chain(self, value: Any, chain: tuple[str, ...], where: str) -> None:
        """Add the value of ``a.b.c``; only modules and classes have attributes that matter."""
        standard = None
        path = chain[0]
        for name in chain[1:]:
            if not isinstance(value, types.ModuleType | type):
                break
            owner = value
            path = f"{path}.{name}"
            standard = owner if _is_standard(owner) else None
            try:
                value = getattr(owner, name)
            except AttributeError as error:
                raise OperatorError(f"{where} uses {'.'.join(chain)}: {error}") from None
            is_function = isinstance(value, types.FunctionType) and not hasattr(value, COMPILED_AS)
            if is_function and standard is None:
                raise OperatorError(
                    f"{where} calls {path}, a Python function that is an attribute of a "
                    f"{type(owner).__name__}, which compiled code cannot; give it a name of its own: "
                    f"'from ... import {name}'"
                )
        if isinstance(value, types.ModuleType):
            if not _is_standard(value):
                raise OperatorError(
                    f"{where} passes the module {'.'.join(chain)} around, which compiled code cannot; "
                    "write out the attribute, as in module.NAME"
                )
            self.add(f"module {value.__name__}")
        elif standard is not None and not isinstance(value, _NUMBERS_AND_TEXT):
            self.add(
                f"standard {standard.__name__}"
            )  # with the chain, its name and version are all
        else:
            self.visit(value, f"{where} -> {path}")

    def _visit_class(self, value: type, where: str) -> None:
        self.add(f"class {_type_name(value)}")
        if _is_standard(value):
            return
        if hasattr(value, "class_type"):
            raise OperatorError(f"{where} is a jitclass, which an operator cannot refer to")
        self.add(f"fields {getattr(value, '_fields', '')}")
        for members in (getattr(value, "_field_defaults", {}), getattr(value, "__members__", {})):
            for name, member in members.items():
                self.add(name)
                self.visit(member, where)
        for owner in value.__mro__:
            if _is_standard(owner):
                continue
            for name, attribute in sorted(vars(owner).items()):
                if name.startswith("__") or not isinstance(
                    attribute, (*_NUMBERS_AND_TEXT, enum.Enum)
                ):
                    continue
                self.add(name)
                self.visit(attribute, where)

    def _visit_intrinsic(self, value: Any) -> None:
        define = value._defn
        self.add(f"intrinsic {define.__qualname__} {_code_text(define.__code__)}")
        for cell in define.__closure__ or ():
            if isinstance(cell.cell_contents, _NUMBERS_AND_TEXT):
                self.add(repr(cell.cell_contents))
        try:
            status = os.stat(inspect.getfile(define))
            self.add(_file_digest(inspect.getfile(define), status.st_mtime_ns, status.st_size))
        except (OSError, TypeError):
            return  # typed at a prompt: the code above must do


_FILE_DIGESTS: dict[tuple[str, int, int], str] = {}


def _file_digest(path: str, modified_ns: int, size: int) -> str:
    key = (path, modified_ns, size)
    if key not in _FILE_DIGESTS:
        _FILE_DIGESTS[key] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return _FILE_DIGESTS[key]


def _type_name(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_standard(value: types.ModuleType | type) -> bool:
    """Return True if it belongs to Python, NumPy or Numba, whose versions are in the key."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    return name != "__main__" and name.partition(".")[0] in _STANDARD_PACKAGES


def _constant_text(value: Any, where: str) -> str:
    if value is None or isinstance(value, _NUMBERS_AND_TEXT):
        return f"{_type_name(type(value))}:{value!r}"
    if isinstance(value, np.dtype):
        return f"dtype:{value.str}:{value!r}:{value.isalignedstruct}"
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        flags = (value.flags.c_contiguous, value.flags.f_contiguous, value.flags.aligned)
        kind = (_type_name(type(value)), value.shape, flags)
        return f"{kind}:{_constant_text(value.dtype, where)}:{value.tobytes().hex()}"
    if isinstance(value, np.ufunc):
        return f"ufunc:{value.__name__}"
    if isinstance(value, numba.types.Type):
        return f"type:{value!r}"
    if isinstance(value, types.BuiltinFunctionType) and isinstance(
        value.__self__, types.ModuleType | None
    ):
        return f"builtin:{value.__module__}.{value.__qualname__}"
    raise OperatorError(
        f"{where} is a {type(value).__name__}, which compiled code cannot refer to; "
        "functions, modules, numbers, strings, tuples and NumPy arrays can be, such as a number that is "
        "taken from it outside of the function"
    )


def _code_text(code: types.CodeType) -> str:
    """Return the code without file and lines, so that moving a function does not change its key."""
    constants = code.co_consts
    flags = code.co_flags
    # Lambdas and comprehensions have no docstring; other functions, before 3.13, always a place.
    has_place = sys.version_info < (3, 13) or flags & _HAS_DOCSTRING
    if has_place and not code.co_name.startswith("<") and isinstance((*constants, 0)[0], str):
        constants = (None, *constants[1:])
    parts = (
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        flags & ~_HAS_DOCSTRING,
        code.co_code,
        code.co_exceptiontable,
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        [_literal_text(constant) for constant in constants],
    )
    return repr(parts)


def _literal_text(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _code_text(value)
    if isinstance(value, tuple):
        return f"({', '.join(_literal_text(item) for item in value)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(_literal_text(item) for item in value))}}}"
    return f"{type(value).__name__}:{value!r}"


@lru_cache(maxsize=4096)
def _loaded_chains(
    code: types.CodeType, outer: frozenset[str] | None = None
) -> frozenset[tuple[str, ...]]:
    """Return what the code reads from outside, each a global or closure name and its attributes.

    ``a.b.c`` is ("a", "b", "c"). Names in ``outer`` are cells of the outermost function: what a
    nested function takes from the one around it is local.
    """
    outer = frozenset(code.co_freevars) if outer is None else outer & set(code.co_freevars)
    chains: set[tuple[str, ...]] = set()
    chain: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        operation = instruction.opname
        if operation == "EXTENDED_ARG":
            continue
        if operation in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            chain = (*chain, instruction.argval)
            continue
        if chain:
            chains.add(chain)
        is_global = operation in ("LOAD_GLOBAL", "LOAD_NAME")
        is_cell = operation == "LOAD_DEREF" and instruction.argval in outer
        chain = (instruction.argval,) if is_global or is_cell else ()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            chains |= _loaded_chains(constant, outer)
    return frozenset(chains)


def references(function: types.FunctionType, bindings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the global and closure names that a function uses, in a fixed order, with their values."""
    references = {}
    code = function.__code__
    for name in sorted({chain[0] for chain in _loaded_chains(code)} - set(code.co_freevars)):
        if is_ours(function) and name in bindings:
            references[name] = bindings[name]
        elif name in function.__globals__:
            references[name] = function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            references[name] = cell.cell_contents
        except ValueError as error:
            raise OperatorError(
                f"{function.__name__} refers to {name}, not yet assigned"
            ) from error
    return references


def is_ours(function: types.FunctionType) -> bool:
    """Return True if a function is Godwit's, so that bindings apply to the names in it."""
    return function.__module__ is not None and function.__module__.startswith("godwit.")


def is_users(function: types.FunctionType) -> bool:
    """Return True if a user wrote the function, so that errors name it."""
    return not is_ours(function) and function.__module__ != ADAPTERS


@lru_cache(maxsize=8)
def source_digest(*names: str) -> str:
    """Return a hash of the text of modules of ``godwit.runtime``, by name.

    Compiled code depends on the modules that change how Numba compiles.
    """
    digest = hashlib.sha256()
    for name in names:
        with suppress(OSError):  # of an archive; its version says enough
            digest.update(Path(import_module(f"godwit.runtime.{name}").__file__ or "").read_bytes())
    return digest.hexdigest()
