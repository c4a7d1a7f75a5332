"""What is asked of collectives, checked once: roots, arrays, operators, and by what they are done."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, get_args

from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.library_collectives import has_own, own_pays
from godwit.dtypes import as_count
from godwit.errors import DeviceError, InputError, shown

Collective = Literal["auto", "links", "nccl"]

FUNCTIONS = {"add": "add", "min": "minimum", "max": "maximum"}
"""What NumPy and CuPy call the operators."""


def as_root(context: Context, root: Any) -> Endpoint:
    """The endpoint that somebody names; InputError if it is none."""
    if isinstance(root, Endpoint):
        if root is context.host or any(root is one for one in context.endpoints):
            return root
        raise InputError(f"the root must be an endpoint of the context, got {shown(root)}")
    place = as_count(root, "root", 0, 1 << 20)
    if place >= len(context.endpoints):
        raise InputError(f"root must be in [0, {len(context.endpoints)}), got {place}")
    return context.endpoints[place]


def when_made(endpoint: Endpoint, array: Any) -> Any:
    """What an endpoint sends, when all that makes it is done."""
    taken, after = endpoint.space.take(array)
    for event in after:
        event.wait()
    return taken


def as_arrays(context: Context, arrays: Sequence[Any]) -> list[Any]:
    """The arrays, one an endpoint, when all that makes them is done."""
    ends = context.endpoints
    if not isinstance(arrays, list | tuple) or len(arrays) != len(ends):
        raise InputError(f"one array an endpoint is combined: a list of {len(ends)}")
    found = []
    for endpoint, array in zip(ends, arrays, strict=True):
        taken = when_made(endpoint, array)
        if not endpoint.space.reads(taken):
            raise InputError(
                f"the array of {endpoint} lies elsewhere; arrays come from their endpoints"
            )
        found.append(taken)
    return found


def as_operands(context: Context, arrays: Sequence[Any], operator: Any) -> list[Any]:
    """Arrays that can be combined by an operator; InputError if they cannot."""
    if operator not in FUNCTIONS:
        known = ", ".join(map(repr, FUNCTIONS))
        raise InputError(f"operator must be one of {known}, got {shown(operator)}")
    found = as_arrays(context, arrays)
    kinds = {(one.dtype, one.shape) for one in found}
    if len(kinds) > 1:
        several = " and ".join(sorted(f"{dtype} {shape}" for dtype, shape in kinds))
        raise InputError(f"arrays of one dtype and shape can be combined, got {several}")
    return found


def takes_nccl(
    context: Context, collective: Any, arrays: Sequence[Any], root: Endpoint | None = None
) -> bool:
    """Whether NCCL does it; InputError if nothing is called so, DeviceError where it cannot."""
    if collective not in get_args(Collective):
        known = ", ".join(map(repr, get_args(Collective)))
        raise InputError(f"collective must be one of {known}, got {shown(collective)}")
    if collective == "links":
        return False
    from_host = root is not None and root.kind == "host"
    there = not from_host and len(context.endpoints) > 1 and has_own(context.devices, arrays[0])
    if collective == "nccl" and not there:
        raise DeviceError(
            "NCCL needs GPUs, each of them once, CuPy with NCCL, and numbers that it knows; "
            "collective='links' works everywhere"
        )
    if not there or prod(arrays[0].shape) == 0:
        return False
    return collective == "nccl" or own_pays(context.devices)
