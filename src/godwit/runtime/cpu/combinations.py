"""Comparisons and combinations of a message and a value, for compiled code.

``improves(candidate, current)`` returns True if the candidate is better than the current value;
``combined(candidate, current)`` returns the new value if it is. Messages that are added improve nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _less(candidate: Any, current: Any) -> bool:
    return bool(candidate < current)


def _greater(candidate: Any, current: Any) -> bool:
    return bool(candidate > current)


def _adds_bits(candidate: Any, current: Any) -> bool:
    return bool((candidate | current) != current)


def _clears_bits(candidate: Any, current: Any) -> bool:
    return bool((candidate & current) != current)


def _never(candidate: Any, current: Any) -> bool:
    return False


def _candidate(candidate: Any, current: Any) -> Any:
    return candidate


def _bits_of_either(candidate: Any, current: Any) -> Any:
    return candidate | current


def _bits_of_both(candidate: Any, current: Any) -> Any:
    return candidate & current


IMPROVES: dict[str, Callable[[Any, Any], bool]] = {
    "min": _less,
    "max": _greater,
    "or": _adds_bits,
    "and": _clears_bits,
    "add": _never,
}
"""``improves`` by the name of the combination."""

COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "min": _candidate,
    "max": _candidate,
    "or": _bits_of_either,
    "and": _bits_of_both,
    "add": _candidate,
}
"""``combined`` by the name of the combination."""
