"""Calls inserted at the beginning of each iteration of a function's loops.

Numba and numba-cuda have the same intermediate representation, each in modules of its own: the passes of
both compilers call :func:`begin_turns_with`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def begin_turns_with(
    function: Any, func_ir: Any, *, ir: ModuleType, analysis: ModuleType, ir_utils: ModuleType
) -> bool:
    """Begin each iteration of all loops with a call of a function without arguments.

    :param function: the function, as the compiler refers to it
    :param func_ir: changed in place
    :param ir: the compiler's modules of these names
    :returns: True if there are loops
    """
    blocks = func_ir.blocks
    headers = {loop.header for loop in analysis.compute_cfg_from_blocks(blocks).loops().values()}
    for header in headers:
        block = blocks[header]
        callee, result = (
            ir.Var(block.scope, ir_utils.mk_unique_var(f"$turn.{what}"), block.loc)
            for what in ("function", "result")
        )
        block.body[:0] = [
            ir.Assign(ir.Global("begin_turn", function, block.loc), callee, block.loc),
            ir.Assign(ir.Expr.call(callee, (), (), block.loc), result, block.loc),
        ]
    if headers:
        func_ir._definitions = ir_utils.build_definitions(blocks)
    return bool(headers)
