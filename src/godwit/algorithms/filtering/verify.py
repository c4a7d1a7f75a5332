"""Verifier of filtered arrays: the predicate is called in Python, item by item.

Compiled code and Python do not have the same numbers: an int64 wraps around where Python's integers grow,
and a float32 is rounded where Python computes in float64. Items for which the predicate of a Python number
and that of a NumPy scalar of the array's dtype differ, or raise, may therefore be kept or not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from godwit.algorithms.checks import fail
from godwit.algorithms.filtering.predicate import as_item_dtype, as_predicate
from godwit.arrays import mapped_array
from godwit.dtypes import Array, as_array, as_flag
from godwit.errors import InputError

_CHUNK_ITEMS = 1 << 16


def verify_filter(
    array: Array | str | os.PathLike[str],
    predicate: Callable[[Any], Any],
    kept: Array,
    *,
    ordered: bool = True,
) -> None:
    """Check that exactly the items were kept for which the predicate, called in Python, is true.

    Items at which Python's numbers and NumPy's of the array's dtype give different answers (integers that
    wrap around, roundings to float32), or at which the predicate raises, may be kept or not.

    :param array: of one dimension, or the path of a ``.npy`` file
    :param predicate: of one item, as of :func:`godwit.filter`
    :param kept: the items that were kept, with the same bits as in the array
    :param ordered: check that they are in the order of the array, too
    :raises VerificationError: names the first item that is missing or should not be there
    :raises InputError: an argument is wrong
    """
    keeps = as_predicate(predicate)
    given = (
        mapped_array(array) if isinstance(array, str | os.PathLike) else as_array(array, "array")
    )
    kept = as_array(kept, "kept")
    dtype = as_item_dtype(given.dtype)
    if given.ndim != 1 or kept.ndim != 1 or kept.dtype.newbyteorder("=") != dtype:
        raise InputError(
            f"array and kept must have one dimension and the same dtype; got {given.dtype} of shape "
            f"{given.shape} and {kept.dtype} of shape {kept.shape}"
        )
    kept = kept.astype(dtype, copy=False)
    is_ordered = as_flag(ordered, "ordered")
    if is_ordered and _is_as_in_python(_chunks(given, dtype), keeps, kept):
        return
    check = _check_ordered if is_ordered else _check_unordered
    check(_chunks(given, dtype), keeps, kept)


def _chunks(array: Array, dtype: np.dtype[Any]) -> Iterator[tuple[int, Array]]:
    """Yield the index of the first item, and items, some at a time."""
    for first in range(0, len(array), _CHUNK_ITEMS):
        yield first, np.asarray(array[first : first + _CHUNK_ITEMS]).astype(dtype, copy=False)


def _bounds(items: Array, keeps: Callable[[Any], Any], by_python: Array) -> tuple[Array, Array]:
    """Return whether each item must be kept, and whether it may be.

    :param by_python: the answers for Python's numbers
    """
    by_numpy = _answers(list(items), keeps)
    must = (by_python == 1) & (by_numpy == 1)
    return must, must | (by_python != by_numpy) | (by_python < 0)


def _answers(items: list[Any], keeps: Callable[[Any], Any]) -> Array:
    """Return 1 where the predicate is true, 0 where it is false, -1 where it raises."""
    with np.errstate(all="ignore"):
        try:
            return np.fromiter((bool(keeps(item)) for item in items), np.int8, len(items))
        except (ArithmeticError, TypeError, ValueError):
            return np.fromiter((_answer(item, keeps) for item in items), np.int8, len(items))


def _answer(item: Any, keeps: Callable[[Any], Any]) -> int:
    try:
        return int(bool(keeps(item)))
    except (ArithmeticError, TypeError, ValueError):
        return -1


def _is_as_in_python(
    chunks: Iterator[tuple[int, Array]], keeps: Callable[[Any], Any], kept: Array
) -> bool:
    """Return whether exactly those items were kept, in order, that satisfy it as Python's numbers."""
    position = 0
    for _, items in chunks:
        expected = items[_answers(items.tolist(), keeps) == 1]
        if kept[position : position + len(expected)].tobytes() != expected.tobytes():
            return False
        position += len(expected)
    return position == len(kept)


def _check_ordered(
    chunks: Iterator[tuple[int, Array]], keeps: Callable[[Any], Any], kept: Array
) -> None:
    position = 0
    for first, items in chunks:
        must, may = _bounds(items, keeps, _answers(items.tolist(), keeps))
        # Equal items have equal answers, so taking whatever is next is never a mistake.
        for index in np.flatnonzero(may).tolist():
            if position < len(kept) and kept[position].tobytes() == items[index].tobytes():
                position += 1
            elif must[index]:
                got = kept[position] if position < len(kept) else "the end"
                fail(
                    f"item {first + index}, {items[index]}, satisfies the predicate, but at "
                    f"position {position} of what was kept is {got}"
                )
    if position < len(kept):
        fail(
            f"position {position} of what was kept, {kept[position]}, is no item that satisfies the "
            "predicate"
        )


def _check_unordered(
    chunks: Iterator[tuple[int, Array]], keeps: Callable[[Any], Any], kept: Array
) -> None:
    """Check that each item is kept as often as it must be, and not more often than it may be."""
    required, allowed = [], []
    for _, items in chunks:
        must, may = _bounds(items, keeps, _answers(items.tolist(), keeps))
        required.append(_bits(items[must]))
        allowed.append(_bits(items[may]))
    bits = _bits(kept)
    values, counts = np.unique(bits, return_counts=True)
    for chosen, least in ((required, True), (allowed, False)):
        others = np.concatenate(chosen) if chosen else bits[:0]
        known, often = np.unique(np.append(others, bits), return_counts=True)
        found = np.zeros(len(known), np.int64)
        found[np.searchsorted(known, values)] = counts
        often -= found
        wrong = found < often if least else found > often
        if wrong.any():
            which = int(np.argmax(wrong))
            item = known[which : which + 1].view(kept.dtype)[0]
            fail(
                f"{item} was kept {found[which]} times, and satisfies the predicate {often[which]} "
                "times"
            )


def _bits(items: Array) -> Array:
    return np.ascontiguousarray(items).view(f"u{items.dtype.itemsize}")
