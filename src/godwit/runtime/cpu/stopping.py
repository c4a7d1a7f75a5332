"""Stopping users' loops on CPUs: each iteration looks at a stop word of the process.

An operator may not return: ``while True: pass``. So a compiler pass (:class:`StoppableLoops`) begins each
iteration of a user's loop with a look at the stop word; functions without loops are compiled as they are.
The word is raised when any run of the process is to end. A loop that sees it calls :func:`_must_stop`, and
if the run of its own thread is to end leaves the kernel by a :class:`RunStopped`, past the user's handlers.
The word is lowered by the first such call while no run is ending.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir as llvm
from numba import types
from numba.core import analysis, cgutils, ir, ir_utils
from numba.core.callconv import RETCODE_USEREXC
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.extending import intrinsic

from godwit.runtime.loops import begin_turns_with

ABORT = 0
"""The word of a run's control array (int64) that is not 0 when it is to end."""

_Control = np.ndarray[Any, np.dtype[np.int64]]


class RunStopped(Exception):  # noqa: N818 (no error: the caller that ended the run knows why)
    """A kernel has left a user's loop because its run is to end."""


_stop_word = np.zeros(1, np.int64)
_running: dict[int, _Control] = {}  # by thread


@contextmanager
def stoppable(control: _Control) -> Iterator[None]:
    """Let kernels that the calling thread runs in the block leave users' loops when the run is to end."""
    thread = threading.get_ident()
    before = _running.get(thread)
    _running[thread] = control
    try:
        yield
    finally:
        if before is None:
            del _running[thread]
        else:
            _running[thread] = before


def stop(control: _Control) -> None:
    """End the run of a control array."""
    control[ABORT] = 1
    _stop_word[0] = 1  # second: see _must_stop


def check_running() -> None:
    """Raise RunStopped if the run of the calling thread is to end."""
    own = _running.get(threading.get_ident())
    if own is not None and own[ABORT]:
        raise RunStopped


def _must_stop() -> int:
    """Return 1 if the run of the calling thread is to end; called by loops when the stop word is raised."""
    # Lowered before runs are looked at: one that is ended meanwhile raises it again afterwards.
    _stop_word[0] = 0
    if any(control[ABORT] for control in [*_running.values()]):
        _stop_word[0] = 1
    own = _running.get(threading.get_ident())
    return int(own is not None and own[ABORT] != 0)


_compiled_must_stop = ctypes.CFUNCTYPE(ctypes.c_int64)(_must_stop)  # for ever
_WORD, _QUESTION = "godwit_stop_word", "godwit_must_stop"
llvmlite.binding.add_symbol(_WORD, _stop_word.ctypes.data)
llvmlite.binding.add_symbol(_QUESTION, ctypes.cast(_compiled_must_stop, ctypes.c_void_p).value)
_INT = llvm.IntType(64)


@intrinsic
def _leave_if_stopped(typing_context: Any) -> Any:
    """Leave the kernel if the stop word is raised and the thread's run is to end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        module = builder.module
        word = module.globals.get(_WORD)
        if word is None:
            word = llvm.GlobalVariable(module, _INT, _WORD)
        raised = builder.load_atomic(word, "monotonic", 8)
        with cgutils.if_unlikely(builder, builder.icmp_signed("!=", raised, _INT(0))):
            kind = llvm.FunctionType(_INT, [])
            asked = builder.call(cgutils.get_or_insert_function(module, kind, _QUESTION), [])
            with cgutils.if_unlikely(builder, builder.icmp_signed("!=", asked, _INT(0))):
                # Not return_user_exc, which goes to the handler where the loop is in a "try".
                convention = context.call_conv
                convention.set_static_user_exc(builder, RunStopped, ())
                convention._return_errcode_raw(builder, RETCODE_USEREXC)
        return context.get_dummy_value()

    return types.none(), generate


@register_pass(mutates_CFG=False, analysis_only=False)
class StoppableLoops(FunctionPass):
    """Compiler pass: each iteration of a function's loops begins with a look at the stop word."""

    _name = "godwit_stoppable_loops"

    def __init__(self) -> None:
        FunctionPass.__init__(self)  # type: ignore[no-untyped-call, unused-ignore]

    def run_pass(self, state: Any) -> bool:
        """Change the function's loops; return True if there are any."""
        return begin_turns_with(
            _leave_if_stopped, state.func_ir, ir=ir, analysis=analysis, ir_utils=ir_utils
        )
