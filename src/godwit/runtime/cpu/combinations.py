"""How a message is combined with a value that it improves, for compiled code.

``improves(candidate, current)`` is True if the candidate is better than the current value, and
``combined(candidate, current)`` is the value that a better candidate makes of it.
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
}
"""``improves`` by the name of the combination."""

COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "min": _candidate,
    "max": _candidate,
    "or": _bits_of_either,
    "and": _bits_of_both,
}
"""``combined`` by the name of the combination."""
