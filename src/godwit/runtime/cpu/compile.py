"""Compiled functions, cached across processes by content: ``@kernel``.

Numba caches a function under its file and line, and never finds operators that were passed as
arguments or held in closures. A kernel is instead compiled as an *instantiation*: its bytecode and,
transitively, everything that it refers to (helpers, operators bound to it, constants, attributes of
modules and classes) are hashed into a key, under which compiled code is kept in Godwit's cache folder
(:mod:`godwit.cache`; Numba's own cache is not used). The same content gives the same key in every
process; a changed helper, a changed closure value or another version of Numba gives another. Within a
process, kernels of equal content share one instantiation. A cache that is damaged or cannot be used
costs compilation, never an error.

What a kernel may refer to: other plain Python functions (compiled and inlined with it), Numba
intrinsics, modules (by attributes written out: ``module.NAME``), and constants (numbers, strings,
enumerations, tuples of these, NumPy dtypes and small arrays).
"""

from __future__ import annotations

import hashlib
import operator
import pickle
import sys
import threading
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache as once
from functools import cached_property
from importlib import import_module
from typing import Any, NoReturn

import numba
import numpy as np
from numba._dispatcher import compute_fingerprint
from numba.core import compiler
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps
from numba.core.typed_passes import InlineOverloads, NopythonRewrites
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import Context as TypingContext
from numba.core.untyped_passes import InlineClosureLikes, InlineInlinables, LiteralUnroll

from godwit import cache
from godwit.errors import OperatorError
from godwit.runtime.checks import CheckedContext, checked, take_fault
from godwit.runtime.content import Content, plain_function, source_digest
from godwit.runtime.cpu.compile_time import compiling
from godwit.runtime.cpu.stopping import RunStopped, StoppableLoops
from godwit.runtime.rebuilding import Originals, rebuild


class _InlinedLibrary(JITCodeLibrary):
    """LLVM code of a function that is only ever inlined.

    It never becomes machine code, which would be half of the time of compiling.
    """

    def _optimize_final_module(self) -> None:
        """Do nothing: the functions that inline it are optimized."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


class _RememberingContext(TypingContext):
    """Numba's typing context, which types a call of one of Numba's functions once for the same types.

    It shares all state with the context that it stands for. Numba tries a dozen templates for an addition,
    each time that one is typed, which would be a fifth of the time of compiling.
    """

    __slots__ = ("signatures",)

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__
        self.signatures: dict[Any, Any] = {}

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call."""
        resolve: Any = super().resolve_function_type
        function = self._lookup_global(func) or func  # type: ignore[no-untyped-call]
        if kws or not isinstance(function, BaseFunction | str):
            return resolve(func, args, kws)
        key = (function, tuple(args))
        try:
            signature = self.signatures.get(key)
        except TypeError:  # the index of a static access is a slice
            return resolve(func, args, kws)
        if signature is None:
            signature = resolve(func, args, kws)
            if signature is not None:
                self.signatures[key] = signature
        return signature

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """Return the signature of an assignment to an element."""
        return self.resolve_function_type(operator.setitem, (target, index, value), {})


@once
def _remembering(context: Any, kind: str) -> Any:
    """Return the context of a kind of compiler: what other options compile is another signature's."""
    return _RememberingContext(context)


class _InlinedCompiler(compiler.Compiler):
    """Compiler for functions that are only ever inlined."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self.state.typingctx = _remembering(self.state.typingctx, type(self).__name__)
        self.state.flags.no_compile = True
        codegen = self.state.targetctx.codegen()
        self.state.library = _InlinedLibrary(codegen, "inlined")  # type: ignore[no-untyped-call]

    def compile_extra(self, func: Any) -> Any:
        """Compile; the entry point that dispatchers expect is a built-in function, which is never
        called."""
        result = super().compile_extra(func)  # type: ignore[no-untyped-call]
        entry_point: Any = list[Any]().append
        self.state.targetctx.insert_user_function(entry_point, result.fndesc, [result.library])
        return result._replace(entry_point=entry_point)


_NEEDLESS_PASSES = (InlineClosureLikes, InlineInlinables, InlineOverloads, NopythonRewrites)


class _FewerPasses(compiler.Compiler):
    """Compiler without the passes for array expressions and functions within functions.

    Godwit's compiled functions create no arrays and define no functions.
    """

    def define_pipelines(self) -> Any:
        """Return the usual passes without those."""
        pipelines = super().define_pipelines()  # type: ignore[no-untyped-call]
        for pipeline in pipelines:
            pipeline.passes = [each for each in pipeline.passes if each[0] not in _NEEDLESS_PASSES]
            pipeline.finalize()
        return pipelines


class _HelperCompiler(_FewerPasses, _InlinedCompiler):
    """Compiler for Godwit's functions below an entry."""


class _EntryCompiler(_FewerPasses):
    """Compiler for Godwit's entries."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self.state.typingctx = _remembering(self.state.typingctx, type(self).__name__)


class _OperatorCompiler(_InlinedCompiler):
    """Compiler for users' functions, inlined, too: what Python checks raises, and loops can be stopped."""

    def compile_extra(self, func: Any) -> Any:
        """Compile with the checks of :mod:`godwit.runtime.checks`."""
        context = self.state.targetctx
        self.state.targetctx = checked(context, CheckedContext, context.call_conv, func)
        return super().compile_extra(func)

    def define_pipelines(self) -> Any:
        """Return the usual passes, with :class:`StoppableLoops` behind those that change loops."""
        pipelines = super().define_pipelines()  # type: ignore[no-untyped-call]
        for pipeline in pipelines:
            pipeline.add_pass_after(StoppableLoops, LiteralUnroll)
            pipeline.finalize()
        return pipelines


# Every function below an entry is inlined into it: a call costs nothing. Reference counting
# (_nrt) is off: arrays that are handed around cost up to ten times less, and compiled code creates
# none.
_HELPER_OPTIONS: dict[str, Any] = {
    "pipeline_class": _HelperCompiler,
    "nogil": True,
    "forceinline": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
_USER_OPTIONS = {**_HELPER_OPTIONS, "pipeline_class": _OperatorCompiler, "boundscheck": True}
_ENTRY_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "_nrt": False,
}

# Not imported: what the package names for type checkers only lies above this layer.
_VERSION: str = sys.modules["godwit"].__version__


class Kernel:
    """A compiled function of plain Python, cached across processes by content.

    Calling it compiles (or loads) on first use for the argument types given, and runs without the
    GIL. Compiled code creates no arrays: preallocate and pass them in.

    :param function: the entry
    :param bindings: values for global names of the functions of Godwit's modules among the entry and
        everything below it; this is how operators are put into a template. A user's functions keep
        their own globals
    :raises OperatorError: when compiled, if that is impossible; when run, from any exception of a
        user's function
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
        """The function, under the name of Numba's dispatchers."""
        return self.function

    def __call__(self, *arguments: Any) -> Any:
        """Run; compile or load first if need be."""
        instance = self._instance or self._instantiated()
        try:
            return instance.dispatcher(*arguments)
        except Exception as error:
            instance.fail(error, arguments)

    def prepare(self, *arguments: Any) -> bool:
        """Compile, or load, for arguments of these types, without running; return False if it was done.

        It then takes microseconds.
        """
        instance = self._instance or self._instantiated()
        types_key = _types_key(arguments)
        if types_key in instance.prepared:
            return False
        try:
            with compiling():
                signature = tuple(numba.typeof(argument) for argument in arguments)
                instance.dispatcher.compile(signature)
        except Exception as error:
            instance.fail(error, arguments)
        if types_key is not None:
            instance.prepared.add(types_key)
        return True

    def bind(self, **bindings: Any) -> Kernel:
        """Return a kernel of the same template with further global names bound."""
        return Kernel(self.function, {**self._bindings, **bindings})

    def compile(self) -> Callable[..., Any]:
        """Return Numba's dispatcher for this kernel, which compiles when it is called."""
        dispatcher: Callable[..., Any] = self._instantiated().dispatcher
        return dispatcher

    @cached_property
    def key(self) -> str:
        """A name of its content, equal in every process."""
        return f"{self.__name__}_{content_key(self.function, self._bindings)}"

    def _instantiated(self) -> _Instance:
        if self._instance is None:
            key = self.key
            with _INSTANCES_LOCK:
                if key not in _INSTANCES:
                    kept = cache.usable_folder() is not None
                    _INSTANCES[key] = _instantiate(self.function, self._bindings, key, kept=kept)
                self._instance = _INSTANCES[key]
        return self._instance


def kernel(function: Callable[..., Any]) -> Kernel:
    """Make a plain Python function a :class:`Kernel`; a decorator."""
    return Kernel(function)


def content_key(function: Callable[..., Any], bindings: Mapping[str, Any]) -> str:
    """Return a hash of the function and of everything that it refers to, equal in every process."""
    content = Content(bindings)
    versions = (sys.version_info[:3], numba.__version__, np.__version__, _VERSION)
    content.add(source_digest("checks", "loops", "cpu.stopping", "cpu.compile"))
    options = (sorted(map(repr, _USER_OPTIONS.items())), sorted(_ENTRY_OPTIONS.items()))
    content.add(repr((versions, options)))
    content.visit(function, getattr(function, "__name__", "kernel"))
    return content.digest.hexdigest()[:32]


@dataclass
class _Instance:
    """A compiled instantiation.

    :param key: in the table of the process
    :param dispatcher: Numba's, of the entry
    :param originals: what it was made of
    :ivar prepared: keys of arguments' types that it has been prepared for (:func:`_types_key`)
    """

    key: str
    dispatcher: Any
    originals: Originals
    prepared: set[tuple[bytes, ...]] = field(default_factory=set)

    def fail(self, error: Exception, arguments: tuple[Any, ...]) -> NoReturn:
        """Raise what the user should see of an exception from the dispatcher."""
        if isinstance(error, MemoryError | RunStopped):
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
            raise OperatorError(self.originals.compile_message(error)) from error
        if not self.originals.users():
            raise error
        raise OperatorError(self.originals.run_message(error, take_fault(error))) from error


def _types_key(arguments: tuple[Any, ...]) -> tuple[bytes, ...] | None:
    """Return a key that differs between types of arguments, faster than Numba's types; None if unknown."""
    try:
        return tuple(map(compute_fingerprint, arguments))
    except NotImplementedError:
        return None


_INSTANCES: dict[str, _Instance] = {}
_INSTANCES_LOCK = threading.Lock()


def _instantiate(
    function: Callable[..., Any], bindings: Mapping[str, Any], key: str, *, kept: bool
) -> _Instance:
    """Return an instantiation, which compiles when it is called.

    :param kept: whether compiled code is kept in the cache folder, and looked for there
    """
    _import_array_functions()
    module_name = f"godwit._instances.{key}"
    file_name = f"<godwit>/{key}.py"  # errors are read by the suffix

    def compiled(rebuilt: types.FunctionType, *, is_entry: bool, by_user: bool) -> Any:
        if is_entry:
            options = (
                _ENTRY_OPTIONS if by_user else _ENTRY_OPTIONS | {"pipeline_class": _EntryCompiler}
            )
            return numba.njit(**options)(rebuilt)
        return numba.njit(**_USER_OPTIONS)(rebuilt) if by_user else _helper(rebuilt)

    def shared(plain: types.FunctionType) -> Any:
        return _shared_helper(plain, bindings)

    module = types.ModuleType(module_name)
    sys.modules[module_name] = module  # where Numba looks for the globals of what it loads
    dispatcher, originals = rebuild(function, bindings, module_name, file_name, compiled, shared)
    module.__dict__[function.__name__] = dispatcher
    if kept:
        dispatcher._cache = code = _KeptCode(key)
        dispatcher.compile = code.in_one_process(dispatcher.compile)
    return _Instance(key, dispatcher, originals)


@once
def _import_array_functions() -> None:
    """Import Numba's array functions without ``scipy.linalg``, which takes up to a third of a second.

    Numba imports them before it compiles or loads anything, and with them ``scipy.linalg``, only to see
    whether SciPy is installed. It is a dependency of Godwit. Functions that use linear algebra import it
    when they are compiled.
    """
    linalg: Any = import_module("numba.np.linalg")
    ensure_blas = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        arraymath: Any = import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure_blas
    arraymath.ensure_blas = ensure_blas


_HELPERS: dict[str, Any] = {}
_HELPERS_MODULE = "godwit._instances.helpers"
sys.modules[_HELPERS_MODULE] = types.ModuleType(_HELPERS_MODULE)  # as for each instantiation


def _shared_helper(plain: types.FunctionType, bindings: Mapping[str, Any]) -> Any:
    """Return a helper that is compiled once for all kernels of the process.

    That is a function of Godwit's which calls no user's; for any other, None.
    """
    content = Content(bindings)
    content.visit(plain, plain.__name__)
    if not content.is_ours:
        return None
    key = content.digest.hexdigest()
    if key not in _HELPERS:

        def compiled(rebuilt: types.FunctionType, *, is_entry: bool, by_user: bool) -> Any:
            return _helper(rebuilt)

        def shared(below: types.FunctionType) -> Any:
            return _shared_helper(below, bindings)

        _HELPERS[key], _ = rebuild(
            plain, bindings, _HELPERS_MODULE, f"<{_HELPERS_MODULE}>", compiled, shared
        )
    return _HELPERS[key]


def _helper(rebuilt: types.FunctionType) -> Any:
    """Return a helper's dispatcher, which compiles it once for all constants of a type.

    Numba would compile it for each: ``has_room(bins, 1)`` and ``has_room(bins, 256)`` are two functions.
    """
    dispatcher = numba.njit(**_HELPER_OPTIONS)(rebuilt)
    call_template = dispatcher.get_call_template

    def get_call_template(arguments: Any, keywords: Any) -> Any:
        plain = {name: _without_constant(value) for name, value in keywords.items()}
        return call_template(tuple(map(_without_constant, arguments)), plain)

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _without_constant(argument: Any) -> Any:
    """Return the type of an integer that is a constant; any other type as it is."""
    is_constant = isinstance(argument, numba.types.IntegerLiteral)
    return numba.types.unliteral(argument) if is_constant else argument


class _KeptCode(NullCache):
    """Cache of a dispatcher's compiled code, in Godwit's cache folder.

    If cached code cannot be loaded, the function is compiled again. Of processes that need it at one time,
    as those of an MPI run do, one compiles it, and the others wait and load it.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._claim: cache.Claim | None = None

    def in_one_process(self, compile_or_load: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that compiles or loads, and then lets other processes have their turn.

        Numba's lock, which it holds for all that, has one thread of this process work on a claim.
        """

        def compile_in_turn(signature: Any) -> Any:
            with global_compiler_lock:
                try:
                    return compile_or_load(signature)
                finally:
                    if self._claim is not None:
                        self._claim.release()
                        self._claim = None

        return compile_in_turn

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for argument types, or None."""
        target_context.refresh()
        names = self._names(sig, target_context.codegen())
        data = cache.load(*names)
        if data is None:
            self._claim = cache.Claim(*names[:-1])
            data = cache.load(*names) if self._claim.wait() else None
        if data is None:
            return None
        try:
            signature, reduced = pickle.loads(data)
            if signature != sig:  # types of the same name
                return None
            return compiler.CompileResult._rebuild(target_context, *reduced)
        except Exception:  # another version of a class that the pickle names
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep a compiled function."""
        if cres.lifted or cres.library.has_dynamic_globals:  # it holds addresses of this process
            return
        try:
            data = dumps((sig, cres._reduce()))
        except Exception:  # not everything can be pickled
            return
        cache.store(data, *self._names(sig, cres.library.codegen))

    def _names(self, sig: Any, codegen: Any) -> tuple[str, str, str]:
        target = hashlib.sha256(repr((sig, codegen.magic_tuple())).encode()).hexdigest()
        return "cpu", self._key, f"{target[:32]}.code"
