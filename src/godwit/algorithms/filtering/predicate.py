"""Predicates and dtypes of filtering: what may be filtered, by what."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import numpy as np

from godwit.errors import InputError, OperatorError, shown
from godwit.runtime.content import plain_function
from godwit.runtime.rebuilding import function_location, type_in_words

ITEM_DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
)  # fmt: skip
"""Dtypes of arrays that can be filtered."""

Predicate = Callable[[Any], Any]


def as_item_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of an array in native byte order; InputError if it cannot be filtered."""
    given: np.dtype[Any] = np.dtype(dtype)
    if given.name not in ITEM_DTYPES:
        raise InputError(
            f"an array to be filtered must hold one of {', '.join(ITEM_DTYPES)}, got {given}"
        )
    return np.dtype(given.name)


def as_predicate(predicate: Any) -> Predicate:
    """Return a plain Python function of one item; OperatorError if it is none."""
    plain = plain_function(predicate)
    if plain is None:
        raise OperatorError(
            f"predicate must be a Python function such as lambda x: x > 0, got {shown(predicate)}"
        )
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    given = list(signature(plain).parameters.values())
    needed = [parameter for parameter in given if parameter.default is Parameter.empty]
    fits = given and given[0].kind in positional and needed in ([], given[:1])
    if not fits or any(parameter.kind not in positional for parameter in given):
        names = ", ".join(map(str, given)) or "nothing"
        raise OperatorError(
            f"predicate {function_location((plain, plain.__name__))} must take one item, as "
            f"'lambda x: x > 0' does; it takes {names}"
        )
    return plain


def not_boolean(predicate: Predicate, what: str) -> str:
    """Return the message about a predicate that returns something else than a boolean."""
    plain = plain_function(predicate)
    assert plain is not None
    return (
        f"predicate {function_location((plain, plain.__name__))} returns {type_in_words(what)}; "
        "a predicate returns a boolean, such as x > 0"
    )


def is_plain(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Return True if compiled code can read an array where it is."""
    return array.flags.c_contiguous and array.flags.aligned and bool(array.dtype == dtype)
