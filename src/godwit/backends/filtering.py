"""What filtering asks of a backend: packets of an array in, what a predicate keeps of each out, in order.

A packet's kernel may still be running when the next one is begun with: a *slot* has room for what one
packet keeps, and says how much that is when it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, Protocol

import numpy as np

from godwit.dtypes import shown
from godwit.errors import InputError, OperatorError
from godwit.parallel.content import plain_function
from godwit.parallel.rebuilding import place

ITEM_DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
)  # fmt: skip
"""Of what can be filtered."""

Predicate = Callable[[Any], Any]


class Slot(Protocol):
    """Room for what one packet keeps."""

    def start(self, packet: Any) -> None:
        """Begin to filter a packet, in the endpoint's stream: the packet may be overwritten by what is put
        into that later.
        """

    def kept(self) -> Any:
        """What it keeps, once that is known: a view of the slot, good until the next start.

        :raises DeviceError: the kernel failed
        """


class PacketFilter(Protocol):
    """Filters packets that lie in one endpoint's memory.

    :ivar runs_on: whether kernels run while the host goes on
    """

    runs_on: bool

    @property
    def slots(self) -> Sequence[Slot]:
        """As many as were asked for."""

    def close(self) -> None:
        """Give all memory back, once nothing is under way; twice does no harm."""


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
