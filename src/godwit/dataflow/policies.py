"""Routing policies: the destinations of a segment; the router picks one that is free (Groute, section 4.2).

A policy is a function ``(segment, source, destinations)``, called on the host for every segment, for some
if all of a message go the same way (:attr:`Policy.by_message`), or for one if all of a source do
(:attr:`Policy.by_source`). It returns one of the destinations; or
several, of which the first that is free gets the segment; or :func:`every` of several, each of which gets
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import count
from typing import Any

from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.receiver import Segment
from godwit.dtypes import as_count, as_flag
from godwit.errors import InputError, shown

Endpoints = tuple[Endpoint, ...]


@dataclass(frozen=True)
class Every:
    """Result of :func:`every`."""

    destinations: tuple[Any, ...]


Choice = Endpoint | Sequence[Endpoint] | Every
Choose = Callable[[Segment, Endpoint, Endpoints], Choice]


def every(destinations: Sequence[Any]) -> Every:
    """Return the choice of all destinations, where a list alone means any of them.

    :param destinations: endpoints, or lists of them, each of which means any of its endpoints
    :raises InputError: not a list
    """
    if not isinstance(destinations, Sequence) or isinstance(destinations, str):
        raise InputError(f"destinations must be a list of endpoints, got {shown(destinations)}")
    return Every(tuple(destinations))


@dataclass(frozen=True)
class Policy:
    """Routing function, and what a router has to know of it.

    :param name: name in messages and drawings
    :param choose: the function
    :param priority: ``priority(segment)``: segments with a higher one go first; by default the message's
    :param outputs: required number of outputs; None for any number
    :param reach: ``reach(source, destinations)``: the destinations that ``choose`` may return for segments
        of a source; by default any. An output ends when all sources that reach it have ended
    :param by_message: if True, ``choose`` and ``priority`` return the same for all segments of a message,
        and need not be called for each
    :param by_source: if True, ``choose`` returns the same for all segments of a source, and is called for
        the first alone
    :raises InputError: a value of another type
    """

    name: str
    choose: Choose
    priority: Callable[[Segment], float] | None = None
    outputs: int | None = None
    reach: Callable[[Endpoint, Endpoints], Endpoints] | None = None
    by_message: bool = False
    by_source: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"name must be a text, got {shown(self.name)}")
        for name in ("choose", "priority", "reach"):
            function = getattr(self, name)
            if not callable(function) and (name == "choose" or function is not None):
                raise InputError(f"{name} must be a function, got {shown(function)}")
        as_flag(self.by_message, "by_message")
        as_flag(self.by_source, "by_source")
        if self.outputs is not None:
            object.__setattr__(self, "outputs", as_count(self.outputs, "outputs", 1))


def _others(source: Endpoint, destinations: Endpoints) -> Endpoints:
    """Return the destinations without the source."""
    if source not in destinations:
        return destinations
    return tuple(end for end in destinations if end is not source)


def any_available() -> Policy:
    """Return a policy that sends to the first free receiver, which balances load (the paper's default)."""
    return Policy(
        "any", lambda segment, source, destinations: _others(source, destinations), by_source=True
    )


def round_robin() -> Policy:
    """Return a policy that sends to the receivers in turn."""
    turns = count()

    def choose(segment: Segment, source: Endpoint, destinations: Endpoints) -> Choice:
        others = _others(source, destinations)
        return others[next(turns) % len(others)] if others else others

    return Policy("round-robin", choose)


def broadcast() -> Policy:
    """Return a policy that sends to all receivers but the sender."""
    return Policy(
        "broadcast",
        lambda segment, source, outputs: every(_others(source, outputs)),
        by_source=True,
    )


def scatter(owner: Callable[[Segment], int] | None = None) -> Policy:
    """Return a policy that sends each segment to its owner.

    :param owner: ``owner(segment)``: index of an output; by default the outputs get equal, consecutive
        parts of every message
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
    """Return a policy that sends to the only output."""
    return Policy(
        "gather", lambda segment, source, destinations: destinations, outputs=1, by_source=True
    )


def _index(source: Endpoint, destinations: Endpoints, policy: str) -> int:
    for index, end in enumerate(destinations):
        if end is source:
            return index
    raise InputError(f"policy {policy!r} goes from output to output, and {source} is none of them")


def ring() -> Policy:
    """Return a policy that sends to the next output, cyclically; other inputs send to the first."""

    def reach(source: Endpoint, destinations: Endpoints) -> Endpoints:
        if not any(end is source for end in destinations):
            return destinations[:1]
        index = (_index(source, destinations, "ring") + 1) % len(destinations)
        return destinations[index : index + 1]

    return _reaching("ring", reach)


def one_way() -> Policy:
    """Return a policy that sends to any output before the sender: a reduction to the first."""
    return _reaching("one-way", lambda source, ends: ends[: _index(source, ends, "one-way")])


def tree() -> Policy:
    """Return a policy that sends to the parent in a binomial tree (1 to 0, 3 to 2, 2 to 0): a reduction."""

    def reach(source: Endpoint, destinations: Endpoints) -> Endpoints:
        index = _index(source, destinations, "tree")
        parent = index & (index - 1)
        return destinations[parent : parent + 1] if index else ()

    return _reaching("tree", reach)


def _reaching(name: str, reach: Callable[[Endpoint, Endpoints], Endpoints]) -> Policy:
    """Return a policy that sends to the first free receiver among those that a source reaches."""
    return Policy(
        name, lambda segment, source, ends: reach(source, ends), reach=reach, by_source=True
    )


def by_priority(key: Callable[[Segment], float] | None = None) -> Policy:
    """Return a policy that sends the waiting segment of highest priority to the first free receiver.

    :param key: ``key(segment)``; the message's metadata by default
    """
    choose = any_available().choose
    if key is None:
        return Policy("priority", choose, lambda segment: segment.metadata, by_message=True)
    return Policy("priority", choose, key)


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
    """Return the policy that a name, a function or a policy stands for.

    :raises InputError: none of these, or a function of other parameters
    """
    if isinstance(value, str):
        if value not in POLICIES:
            known = ", ".join(map(repr, POLICIES))
            raise InputError(f"unknown routing policy {shown(value)}; there are {known}")
        return POLICIES[value]()
    if not isinstance(value, Policy):
        if not callable(value):
            raise InputError(f"the routing policy must be a name or a function, got {shown(value)}")
        value = Policy(getattr(value, "__name__", "function"), value)
    policy: Policy = value
    _check_parameters(policy)
    return policy


def _check_parameters(policy: Policy) -> None:
    """Raise InputError if the function does not take a router's arguments."""
    try:
        parameters = signature(policy.choose)
    except (TypeError, ValueError):  # compiled functions have no signature
        return
    try:
        parameters.bind(None, None, ())
    except TypeError as error:
        raise InputError(
            f"policy {policy.name!r} is called with (segment, source, destinations), but takes {parameters}"
        ) from error


def groups_of(choice: Any, policy: str, destinations: Endpoints) -> tuple[Endpoints, ...]:
    """Return groups of endpoints; one endpoint of each group gets the segment.

    :raises InputError: no endpoint, or one that is not an output of the router
    """
    groups = []
    for chosen in choice.destinations if isinstance(choice, Every) else (choice,):
        group = (chosen,) if isinstance(chosen, Endpoint) else chosen
        if not isinstance(group, tuple | list):
            raise InputError(
                f"policy {policy!r} returned {shown(chosen)}; it returns endpoints among its destinations"
            )
        for endpoint in group:
            if not isinstance(endpoint, Endpoint) or endpoint not in destinations:
                names = ", ".join(map(str, destinations))
                raise InputError(
                    f"policy {policy!r} returned {shown(endpoint)}, which is no destination; there are "
                    f"{names}"
                )
        groups.append(tuple(group))
    if not all(groups) or not groups:
        raise InputError(f"policy {policy!r} returned no destination for a segment")
    return tuple(groups)
