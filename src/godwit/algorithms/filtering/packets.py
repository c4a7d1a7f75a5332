"""What filtering asks of a device: packets of an array in, what a predicate keeps of each out, in order.

A *slot* has room for what one packet keeps. On a GPU nothing waits (:class:`HostFilter`): kernels of
several packets may be under way, and a slot says how much its packet keeps when that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, Protocol

import numpy as np

from godwit.dtypes import Array
from godwit.errors import InputError, OperatorError, shown
from godwit.runtime.content import plain_function
from godwit.runtime.memory import Event
from godwit.runtime.rebuilding import place

ITEM_DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
)  # fmt: skip
"""Of what can be filtered."""

Predicate = Callable[[Any], Any]


class Slot(Protocol):
    """Room for what one packet keeps."""

    def start(self, packet: Any) -> None:
        """Filter a packet."""

    def kept(self) -> Any:
        """What it keeps: a view of the slot, good until the next start."""


class PacketFilter(Protocol):
    """Filters packets that lie in one endpoint's memory."""

    @property
    def slots(self) -> Sequence[Slot]:
        """As many as were asked for."""

    def close(self) -> None:
        """Give all memory back; twice does no harm."""


class HostSlot(Protocol):
    """Room on a device for one packet of host memory, and for what it keeps. Nothing here waits."""

    def start(self, packet: Array) -> None:
        """Begin to bring a packet there and to filter it; what the last one kept has been sent for."""

    def count(self) -> int | None:
        """How many items it keeps; None as long as that is not known.

        :raises DeviceError: the kernel failed
        """

    def bring(self, target: Array) -> Event:
        """Begin to bring what it keeps to page-locked host memory, which has just room for it.

        The slot may be started again at once.
        """


class HostFilter(Protocol):
    """Filters packets of host memory on one device."""

    @property
    def slots(self) -> Sequence[HostSlot]:
        """As many as were asked for."""

    def prepare(self) -> None:
        """Look up, or compile, what :meth:`advance` starts.

        :raises OperatorError: the predicate does not compile, or returns no boolean
        """

    def advance(self) -> None:
        """Go on with what has been started."""

    def close(self) -> None:
        """Wait for what is under way, and give all memory back; twice does no harm."""


def as_item_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of an array to be filtered, in the machine's byte order.

    :raises InputError: not one of those that can be
    """
    found: np.dtype[Any] = np.dtype(dtype)
    if found.name not in ITEM_DTYPES:
        raise InputError(
            f"an array to be filtered must hold one of {', '.join(ITEM_DTYPES)}, got {found}"
        )
    return np.dtype(found.name)


def as_predicate(predicate: Any) -> Predicate:
    """A plain Python function of one item.

    :raises OperatorError: it is none
    """
    plain = plain_function(predicate)
    if plain is None:
        raise OperatorError(
            f"predicate must be a Python function such as lambda x: x > 0, got {shown(predicate)}"
        )
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    given = list(signature(plain).parameters.values())
    needed = [one for one in given if one.default is Parameter.empty]
    fits = given and given[0].kind in positional and needed in ([], given[:1])
    if not fits or any(one.kind not in positional for one in given):
        names = ", ".join(map(str, given)) or "nothing"
        raise OperatorError(
            f"predicate {place((plain, plain.__name__), None)} must take one item, as 'lambda x: x > 0' "
            f"does; it takes {names}"
        )
    return plain


def not_boolean(predicate: Predicate, what: str) -> str:
    """The message about a predicate that returns something else."""
    plain = plain_function(predicate)
    assert plain is not None
    return (
        f"predicate {place((plain, plain.__name__), None)} returns {what}; a predicate returns a boolean, "
        "such as x > 0"
    )
