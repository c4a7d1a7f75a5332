"""A user's operator as code that kernels call: Python to LTO-IR with the C ABI, by Numba.

Numba infers what an operator returns from the types of its arguments. The C prototype is made of that, so
caller and callee agree by construction; a kernel converts the result on purpose. nvJitLink inlines the
operator into the kernel that calls it.

What the CPU compiles, the GPU compiles (plain helpers, lambdas, njit functions, closures), except functions
that raise. An operator that fails (:mod:`godwit.runtime.checks`) returns 0 and notes its fault in a
variable of the module (``FAULT_NAME`` of :mod:`godwit.runtime.cuda.driver`), which the host reads between
slices and at the end of a run.

An operator may not return: ``while True: pass``. The kernel that called it then leaves neither at the end
of its slice nor when the host asks. So each iteration of a loop of a user's function begins with a look at
the fault variable, which is not 0 once an operator has failed, or the host has ended the run
(:meth:`godwit.runtime.cuda.driver.Kernel.stop_operators`). The operator then returns 0, and what the run
computes is not used. On CPUs :mod:`godwit.runtime.cpu.stopping` does the same with a word of the process.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from inspect import signature
from typing import Any
from zlib import crc32

import numba
import numpy as np
from llvmlite import ir

from godwit.errors import OperatorError, shown
from godwit.runtime.checks import Checks, Fault, FaultRecord, checked
from godwit.runtime.content import ADAPTERS, Content, plain_function
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cuda import libraries
from godwit.runtime.cuda.driver import FAULT_NAME, FAULT_WORDS
from godwit.runtime.loops import begin_turns_with
from godwit.runtime.rebuilding import Originals, function_location, rebuild, wrong_return

_WORD = ir.IntType(64)


def fault_word(builder: Any, index: int = 0) -> Any:
    """Return the address of a word of the module's fault variable, in LLVM."""
    module = builder.module
    if FAULT_NAME in module.globals:
        record = module.globals[FAULT_NAME]
    else:
        kind = ir.ArrayType(_WORD, FAULT_WORDS)
        record = ir.GlobalVariable(module, kind, FAULT_NAME, addrspace=1)
    number = ir.IntType(32)
    return builder.gep(record, [number(0), number(index)])


@lru_cache(maxsize=1)
def leave_if_stopped() -> Any:
    """Return the function that begins each iteration of a loop, for Numba's code on GPUs."""
    extending: Any = import_module("numba.cuda.extending")
    types: Any = import_module("numba.cuda.types")
    cgutils: Any = import_module("numba.cuda.cgutils")
    convention: Any = import_module("numba.cuda.core.callconv")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = fault_word(builder)
        # Past the first-level cache, where other GPUs' and the host's writes are not seen.
        load = ir.InlineAsm(
            ir.FunctionType(_WORD, [place.type]),
            "ld.relaxed.gpu.global.b64 $0, [$1];",
            "=l,l",
            side_effect=True,
        )
        noted = builder.call(load, [place])
        with cgutils.if_unlikely(builder, builder.icmp_signed("!=", noted, _WORD(0))):
            builder.ret(ir.IntType(32)(int(convention.RETCODE_USEREXC.constant)))
        return context.get_dummy_value()

    def leave(typing_context: Any) -> Any:
        return types.none(), generate

    return extending.intrinsic(leave)


@lru_cache(maxsize=1)
def stoppable_loops() -> Any:
    """Return the compiler pass that begins each iteration of a loop with a look at the fault variable.

    It sets ``state.faults.noted`` if there are loops.
    """
    compiler = {
        name: import_module(f"numba.cuda.core.{name}") for name in ("ir", "analysis", "ir_utils")
    }
    machinery: Any = import_module("numba.cuda.core.compiler_machinery")

    class StoppableLoops(machinery.FunctionPass):  # type: ignore[misc, unused-ignore]
        _name = "godwit_stoppable_loops_on_gpus"

        def __init__(self) -> None:
            machinery.FunctionPass.__init__(self)

        def run_pass(self, state: Any) -> bool:
            has_loops = begin_turns_with(leave_if_stopped(), state.func_ir, **compiler)
            state.faults.noted |= has_loops
            return has_loops

    return machinery.register_pass(mutates_CFG=False, analysis_only=False)(StoppableLoops)


C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
"""C's types by the names that NumPy and Numba share."""


FAULT_DECLARATION = f'extern "C" __device__ unsigned long long {FAULT_NAME}[{FAULT_WORDS}];'


@dataclass(frozen=True)
class DeviceFunction:
    """An operator that kernels call as ``symbol(arguments..., double p0, double p1, ...)``.

    :param symbol: its name in C
    :param function: takes the arguments and, last and only if it names it ``parameters``, a tuple of
        the parameters' values
    :param arguments: dtypes
    :param parameter_count: how many doubles follow them
    :param wanted: what the kernel converts the result to, a boolean's dtype of conditions; None: any number
    """

    symbol: str
    function: Callable[..., Any]
    arguments: tuple[np.dtype[Any], ...]
    parameter_count: int = 0
    wanted: np.dtype[Any] | None = None


@dataclass(frozen=True)
class CompiledFunction:
    """A compiled operator, for NVRTC and nvJitLink.

    :param prototype: its declaration in C++
    :param ltoir: its code, to be linked
    :param may_fail: it refers to :data:`FAULT_NAME`
    """

    prototype: str
    ltoir: bytes
    may_fail: bool = False


def compile_function(function: DeviceFunction, architecture: str) -> CompiledFunction:
    """Compile an operator for an architecture such as ``"90"``.

    :raises OperatorError: it cannot be compiled, or does not return one number
    :raises DeviceError: a library is missing
    """
    cuda = libraries.numba_cuda()
    capability = divmod(int(architecture), 10)
    Content({}).visit(function.function, function.symbol)  # refuses what calls itself

    faults = _Faults(_symbol_key(function.symbol))

    def compiled(rebuilt: types.FunctionType, *, is_entry: bool, by_user: bool) -> Any:
        given = faults if by_user else None
        return rebuilt if is_entry else _helper_class()(rebuilt, capability, given)

    entry, originals = rebuild(
        _entry(function), {}, f"godwit._device.{function.symbol}", "<operator>", compiled
    )
    _check_no_exceptions(originals)
    kinds = [numba.from_dtype(dtype) for dtype in function.arguments]
    kinds += [numba.float64] * function.parameter_count
    try:
        with libraries.numba_cuda_compat():
            code, returned = cuda.compile(
                entry,
                tuple(kinds),
                debug=False,
                device=True,
                abi="c",
                abi_info={"abi_name": function.symbol},
                output="ltoir",
                forceinline=True,
                cc=capability,
                opt=True,
            )
    except MemoryError:
        raise
    except Exception as error:  # Numba's many, NVVM's
        for result in entry.__globals__["operator"].overloads.values():
            _return_type(result.signature.return_type, function, originals)
        _check_on_cpu(function, error)
        raise OperatorError(originals.compile_message(error)) from error
    taken = [C_TYPES[dtype.name] for dtype in function.arguments]
    taken += ["double"] * function.parameter_count
    kind = _return_type(returned, function, originals)
    prototype = f'extern "C" __device__ {kind} {function.symbol}({", ".join(taken)});'
    return CompiledFunction(prototype, bytes(code), faults.noted)


def _symbol_key(symbol: str) -> int:
    """Return the number by which kernels name an operator, never 0."""
    return crc32(symbol.encode()) + 1


def fault_error(functions: Sequence[DeviceFunction], words: Sequence[int]) -> OperatorError:
    """Return the error that the user sees of a fault.

    :param functions: the operators of the kernel
    :param words: of the module's variable
    """
    key, fault, *values = words
    function = next(known for known in functions if _symbol_key(known.symbol) == key)

    def compiled(rebuilt: types.FunctionType, *, is_entry: bool, by_user: bool) -> Any:
        return rebuilt

    _, originals = rebuild(_entry(function), {}, "godwit._device", "<operator>", compiled)
    return OperatorError(originals.fault_message(FaultRecord(Fault(fault), *values)))


@dataclass
class _Faults:
    """Code that notes the faults of an operator.

    :param key: number of the operator (:func:`_symbol_key`)
    :param noted: True if the operator has code that may note a fault
    """

    key: int
    noted: bool = False

    def note(self, builder: Any, values: Sequence[Any]) -> None:
        """Generate code that notes the first fault."""
        self.noted = True
        word = ir.IntType(64)
        place = fault_word(builder)
        old = builder.cmpxchg(place, word(0), word(self.key), "monotonic", "monotonic")
        with builder.if_then(builder.extract_value(old, 1)):
            for index, value in enumerate(values, 1):
                builder.store(value, fault_word(builder, index))


def _entry(function: DeviceFunction) -> Callable[..., Any]:
    """Return the function that C calls, with the parameters' tuple as arguments one by one."""
    plain = plain_function(function.function)
    if plain is None:
        raise OperatorError(
            f"{function.symbol} must be a Python function, got {shown(function.function)}"
        )
    arguments = [f"a{index}" for index in range(len(function.arguments))]
    parameters = [f"p{index}" for index in range(function.parameter_count)]
    passed = list(arguments)
    if [*signature(plain).parameters][-1:] == ["parameters"]:
        passed.append(f"({''.join(f'{name}, ' for name in parameters)})")
    text = (
        f"def {function.symbol}({', '.join(arguments + parameters)}):\n"
        f"    return operator({', '.join(passed)})\n"
    )
    namespace: dict[str, Any] = {"operator": plain, "__name__": ADAPTERS}
    exec(compile(text, f"<{function.symbol}>", "exec"), namespace)
    entry: Callable[..., Any] = namespace[function.symbol]
    return entry


def _return_type(returned: Any, function: DeviceFunction, originals: Originals) -> str:
    """Return C's type of an operator's result; OperatorError if it has none, or not the one wanted."""
    kind = str(getattr(returned, "literal_type", returned))
    if isinstance(returned, numba.types.Optional):
        what = f"{returned.type} or nothing (None)"
    else:
        what = "nothing (None)" if kind == "none" else kind
    wrong = wrong_return(what, np.dtype(kind) if kind in C_TYPES else None, function.wanted)
    if wrong:
        users = originals.users()
        name = function_location(users[0]) if users else f"'{function.symbol}'"
        raise OperatorError(f"{name} {wrong}")
    return C_TYPES[kind]


def _check_on_cpu(function: DeviceFunction, error: Exception) -> None:
    """Raise the CPU's error for an operator that CPUs refuse as well: that names the line."""
    zeros = [dtype.type(0) for dtype in function.arguments]
    try:
        Kernel(_entry(function)).prepare(*zeros, *[0.0] * function.parameter_count)
    except OperatorError as same:
        raise OperatorError(str(same)) from error


def _check_no_exceptions(originals: Originals) -> None:
    for original in originals.users():
        for line in _exception_lines(original[0].__code__):
            raise OperatorError(
                f"{function_location(original, line)} raises or handles an exception, which code on a GPU "
                "cannot; return a value that says so, or run it on the CPU"
            )


def _exception_lines(code: types.CodeType) -> Iterator[int | None]:
    line = None
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno if instruction.positions else line
        if instruction.opname in ("RAISE_VARARGS", "PUSH_EXC_INFO"):
            yield line
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _exception_lines(constant)


@lru_cache(maxsize=1)
def _helper_class() -> Any:
    """Return the dispatcher of functions that operators call, for any architecture.

    numba-cuda's own dispatcher compiles device functions for the current GPU, and fails without one.
    """
    libraries.numba_cuda()
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.dispatcher import CUDADispatcher

    class Helper(CUDADispatcher):  # type: ignore[misc, unused-ignore]
        def __init__(
            self, function: types.FunctionType, capability: tuple[int, int], faults: _Faults | None
        ) -> None:
            super().__init__(  # type: ignore[no-untyped-call, unused-ignore]
                function, {"device": True, "debug": False, "opt": True}
            )
            self._capability = capability
            self._faults = faults

        def compile_device(self, args: Any, return_type: Any = None) -> Any:
            if args not in self.overloads:
                if self._faults is None:
                    result = compile_cuda(
                        self.py_func,
                        return_type,
                        args,
                        forceinline=True,
                        nvvm_options={"opt": 3},
                        cc=self._capability,
                    )
                else:
                    result = _compiled_checked(
                        self.py_func, return_type, args, self._capability, self._faults
                    )
                self.overloads[args] = result
                result.target_context.insert_user_function(
                    result.entry_point, result.fndesc, [result.library]
                )
            return self.overloads[args]

    return Helper


def _compiled_checked(
    function: Any, return_type: Any, args: Any, capability: tuple[int, int], faults: _Faults
) -> Any:
    """Compile a user's function with checks, and loops that can be stopped.

    Otherwise as numba-cuda's ``compile_cuda`` does.
    """
    compiler: Any = import_module("numba.cuda.compiler")
    utils: Any = import_module("numba.cuda.utils")
    from numba.cuda import types as cuda_types
    from numba.cuda.core.callconv import CUDACallConv
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.target import CUDATargetContext

    class Context(Checks, CUDATargetContext):  # type: ignore[misc, unused-ignore]
        enable_boundscheck = True
        types = cuda_types

        def report(self, builder: Any, *values: Any) -> None:
            faults.note(builder, values)

    class CallConv(CUDACallConv):  # type: ignore[misc, unused-ignore]
        """Notes what raises; returns from the operator with 0."""

        number = getattr(function, "godwit_number", 0)

        def _note(self, builder: Any) -> None:
            word = ir.IntType(64)
            values = (int(Fault.EXCEPTION), self.number, 0, 0, -1)
            faults.note(builder, [word(value) for value in values])

        def return_user_exc(self, builder: Any, *given: Any, **named: Any) -> None:
            self._note(builder)
            super().return_user_exc(builder, *given, **named)

        def return_status_propagate(self, builder: Any, status: Any) -> None:
            self._note(builder)
            super().return_status_propagate(builder, status)

    plain_raises = CUDACallConv(cuda_target.target_context)

    class Compiler(compiler.CUDACompiler):  # type: ignore[misc, unused-ignore]
        def compile_extra(self, func: Any) -> Any:
            self.state.targetctx = checked(self.state.targetctx, Context, plain_raises, func)
            self.state.faults = faults
            leave_if_stopped()
            self.state.typingctx.refresh()  # registers that function
            self.state.targetctx.refresh()
            return super().compile_extra(func)

        def define_pipelines(self) -> Any:
            pipelines = super().define_pipelines()
            for pipeline in pipelines:
                pipeline.add_pass_after(stoppable_loops(), compiler.LiteralUnroll)
                pipeline.finalize()
            return pipelines

    flags: Any = compiler.CUDAFlags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.inline, flags.forceinline, flags.error_model = "never", True, "numpy"
    flags.nvvm_options = {"opt": 3}
    flags.compute_capability, flags.max_registers, flags.lto = capability, None, False
    with utils.numba_target_override():
        result = compiler.compile_extra(
            typingctx=cuda_target.typing_context,
            targetctx=cuda_target.target_context,
            func=function,
            args=args,
            return_type=return_type,
            flags=flags,
            locals={},
            pipeline_class=Compiler,
            call_conv=CallConv(cuda_target.target_context),
            abi_info={},
        )
    result.library.finalize()
    return result
