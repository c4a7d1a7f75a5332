"""Routing policies: where a segment may go; the router picks among them by availability (Groute, 4.2).

A policy is a function ``(segment, source, destinations)``, called on the host for every segment. It returns
one of the destinations, or several, of which the first that is free takes the segment; or
:func:`every` of several, each of which gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import count
from typing import Any

from godwit.dataflow.context import Endpoint
from godwit.dataflow.receiver import Segment
from godwit.dtypes import as_count
from godwit.errors import InputError, shown

Endpoints = tuple[Endpoint, ...]


@dataclass(frozen=True)
class Every:
    """What :func:`every` returns."""

    destinations: tuple[Any, ...]


Choice = Endpoint | Sequence[Endpoint] | Every
Choose = Callable[[Segment, Endpoint, Endpoints], Choice]


def every(destinations: Sequence[Any]) -> Every:
    """To each of these, where a list alone means to any of them.

    :param destinations: endpoints, or lists of them, any of which will do
    :raises InputError: they are no list
    """
    if not isinstance(destinations, Sequence) or isinstance(destinations, str):
        raise InputError(f"destinations must be a list of endpoints, got {shown(destinations)}")
    return Every(tuple(destinations))


@dataclass(frozen=True)
class Policy:
    """A policy with what a router may know of it beforehand.

    :param name: for people
    :param choose: the function
    :param priority: ``priority(segment)``: segments with a higher one go first; by default that of the
        message
    :param outputs: how many outputs it takes, if not any number
    :param reach: ``reach(source, destinations)``: those that ``choose`` may name for what a source sends;
        by default any. An output ends when all who reach it have ended
    :raises InputError: one of them is none
    """

    name: str
    choose: Choose
    priority: Callable[[Segment], float] | None = None
    outputs: int | None = None
    reach: Callable[[Endpoint, Endpoints], Endpoints] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"name must be a text, got {shown(self.name)}")
        for name in ("choose", "priority", "reach"):
            function = getattr(self, name)
            if not callable(function) and (name == "choose" or function is not None):
                raise InputError(f"{name} must be a function, got {shown(function)}")
        if self.outputs is not None:
            object.__setattr__(self, "outputs", as_count(self.outputs, "outputs", 1))


def _others(source: Endpoint, destinations: Endpoints) -> Endpoints:
    """Nobody sends to itself, where senders are among the destinations."""
    if source not in destinations:
        return destinations
    return tuple(one for one in destinations if one is not source)


def any_available() -> Policy:
    """To whoever is free first: balances load by itself (the paper's default)."""
    return Policy("any", lambda segment, source, destinations: _others(source, destinations))


def round_robin() -> Policy:
    """To one after the other, whoever is free."""
    turns = count()

    def choose(segment: Segment, source: Endpoint, destinations: Endpoints) -> Choice:
        others = _others(source, destinations)
        return others[next(turns) % len(others)] if others else others

    return Policy("round-robin", choose)


def broadcast() -> Policy:
    """To each but the sender."""
    return Policy("broadcast", lambda segment, source, outputs: every(_others(source, outputs)))


def scatter(owner: Callable[[Segment], int] | None = None) -> Policy:
    """To its owner.

    :param owner: ``owner(segment)``: which of the outputs, counted from 0; by default equal parts of every
        message, one behind the other: a static split
    """

    def choose(segment: Segment, source: Endpoint, destinations: Endpoints) -> Choice:
        if owner is None:
            index = segment.offset * len(destinations) // max(1, segment.total)
        else:
            index = owner(segment)
            if not 0 <= index < len(destinations):
                raise InputError(
                    f"the owner of {segment} must be in [0, {len(destinations)}), got {shown(index)}"
                )
        return destinations[index]

    return Policy("scatter", choose)


def gather() -> Policy:
    """To the one output that there is."""
    return Policy("gather", lambda segment, source, destinations: destinations, outputs=1)


def _place(source: Endpoint, destinations: Endpoints, policy: str) -> int:
    for index, one in enumerate(destinations):
        if one is source:
            return index
    raise InputError(f"policy {policy!r} goes from output to output, and {source} is none of them")


def ring() -> Policy:
    """From each output to the next, from the last to the first; from elsewhere to the first."""

    def reach(source: Endpoint, destinations: Endpoints) -> Endpoints:
        if not any(one is source for one in destinations):
            return destinations[:1]
        place = (_place(source, destinations, "ring") + 1) % len(destinations)
        return destinations[place : place + 1]

    return _along("ring", reach)


def one_way() -> Policy:
    """From each output to any before it, so that all comes to the first: a reduction."""
    return _along("one-way", lambda source, ends: ends[: _place(source, ends, "one-way")])


def tree() -> Policy:
    """From each output to its elder sibling, 1 to 0, 3 to 2, 2 to 0, ...: a reduction in log2 steps."""

    def reach(source: Endpoint, destinations: Endpoints) -> Endpoints:
        place = _place(source, destinations, "tree")
        elder = place & (place - 1)
        return destinations[elder : elder + 1] if place else ()

    return _along("tree", reach)


def _along(name: str, reach: Callable[[Endpoint, Endpoints], Endpoints]) -> Policy:
    """To whoever a source reaches, and is free."""
    return Policy(name, lambda segment, source, ends: reach(source, ends), reach=reach)


def by_priority(key: Callable[[Segment], float] | None = None) -> Policy:
    """To whoever is free first, of the segments that wait the one with the highest priority.

    :param key: ``key(segment)``; the message's metadata by default
    """
    return Policy("priority", any_available().choose, key or (lambda segment: segment.metadata))


POLICIES: dict[str, Callable[[], Policy]] = {
    "any": any_available,
    "round-robin": round_robin,
    "broadcast": broadcast,
    "scatter": scatter,
    "gather": gather,
    "ring": ring,
    "one-way": one_way,
    "tree": tree,
    "priority": by_priority,
}


def as_policy(value: Any) -> Policy:
    """A policy of a name, a function or itself; InputError if it is none, or takes something else."""
    if isinstance(value, Policy):
        _check_parameters(value.choose, value.name)
        return value
    if isinstance(value, str):
        if value not in POLICIES:
            known = ", ".join(map(repr, POLICIES))
            raise InputError(f"unknown routing policy {shown(value)}; there are {known}")
        return POLICIES[value]()
    if callable(value):
        policy = Policy(getattr(value, "__name__", "function"), value)
        _check_parameters(value, policy.name)
        return policy
    raise InputError(f"the routing policy must be a name or a function, got {shown(value)}")


def _check_parameters(choose: Callable[..., Any], policy: str) -> None:
    """InputError if it does not take what a router gives it."""
    try:
        parameters = signature(choose)
    except (TypeError, ValueError):  # nobody knows: it is compiled
        return
    try:
        parameters.bind(None, None, ())
    except TypeError as error:
        raise InputError(
            f"policy {policy!r} is called with (segment, source, destinations), but takes {parameters}"
        ) from error


def groups_of(choice: Any, policy: str, destinations: Endpoints) -> tuple[Endpoints, ...]:
    """Who gets the segment: one of each group.

    :raises InputError: none, or an endpoint that is no output of the router
    """
    wanted = choice.destinations if isinstance(choice, Every) else (choice,)
    groups = []
    for one in wanted:
        group = (one,) if isinstance(one, Endpoint) else one
        if not isinstance(group, tuple | list):
            raise InputError(
                f"policy {policy!r} returned {shown(one)}; it returns endpoints among its destinations"
            )
        for endpoint in group:
            if not isinstance(endpoint, Endpoint) or endpoint not in destinations:
                there = ", ".join(map(str, destinations))
                raise InputError(
                    f"policy {policy!r} returned {shown(endpoint)}, which is no destination; there are "
                    f"{there}"
                )
        if not group:
            raise InputError(f"policy {policy!r} returned no destination for a segment")
        groups.append(tuple(group))
    if not groups:
        raise InputError(f"policy {policy!r} returned no destination for a segment")
    return tuple(groups)
