"""Users' loops on GPUs end when their run is to end: each turn begins with a look at the fault variable.

An operator may not return: ``while True: pass``. The kernel that called it then leaves neither at the end
of its slice nor when the host asks. So each loop of a function that a user wrote begins its turns with a
look at ``FAULT_NAME`` (:mod:`godwit.runtime.cuda.driver`), which is not 0 once an operator has failed, or
the host has ended the run (:meth:`godwit.runtime.cuda.driver.Kernel.stop_operators`). Who sees that leaves
the operator, which returns 0; what the run has computed then is not used. Functions without loops are
compiled as they are. On CPUs :mod:`godwit.runtime.cpu.stopping` does the same with a word of the process.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from llvmlite import ir

from godwit.runtime.cuda.driver import FAULT_NAME, FAULT_WORDS
from godwit.runtime.loops import begin_turns_with

_WORD = ir.IntType(64)


def fault_word(builder: Any, index: int = 0) -> Any:
    """Make the address of a word of the module's fault variable."""
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
    """What a loop's turn begins with, as a function of Numba for code on GPUs."""
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
    """The pass that begins each turn of a function's loops with a look at the fault variable.

    It says so in ``state.faults.noted``.
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
