"""Wrong arguments of public callables: a result, or one exception of ours (tests/fuzz/arguments.py)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import godwit as gw
from fuzz import arguments
from fuzz.arguments import Target
from godwit.errors import InputError


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, Target]]:
    with ExitStack() as stack:
        yield arguments.targets(stack)


def test_every_public_name_is_a_target(targets: dict[str, Target]) -> None:
    tried = {name.partition(".")[0] for name in targets}
    assert set(gw.__all__) - tried == set(arguments.UNTRIED)


def test_what_targets_are_given_works(targets: dict[str, Target]) -> None:
    for name in ("bfs", "read", "write", "partition", "Link", "Graph.from_table", "verify_filter"):
        target = targets[name]
        parameter = next(iter(target.given))
        target.try_with(parameter, target.given[parameter])


def test_wrong_arguments_raise_exceptions_of_ours(targets: dict[str, Target]) -> None:
    cases = list(arguments.cases(targets))
    found = {
        case: message
        for case in random.Random(19).sample(cases, 2000)
        if (message := arguments.wrong(targets[case[0]], *case[1:]))
    }
    assert not found


def test_what_is_no_exception_of_ours_is_found() -> None:
    def broken(array: object) -> None:
        raise KeyError(array)

    assert arguments.wrong(Target(broken), "array", "5") == "KeyError: 5"


def test_no_array_argument_takes_masked_or_sparse_ones(targets: dict[str, Target]) -> None:
    masked = np.ma.masked_array([0, 1, 2, 3], [0, 1, 0, 0])
    for name, parameter in (
        ("Graph.from_edges", "sources"), ("Graph.from_edges", "weights"), ("Graph.from_edges", "ids"),
        ("Graph", "offsets"), ("Graph", "ids"), ("bfs", "source"), ("pagerank", "initial"),
        ("betweenness_centrality", "sources"), ("place", "partition"), ("run", "start"),
        ("Graph.with_weights", "weights"), ("Graph.relabel", "permutation"), ("filter", "array"),
        ("filter", "out"), ("verify_bfs", "distance"), ("Graph.from_edge_index", "edge_index"),
    ):  # fmt: skip
        for value in (masked, arguments.MATRIX):
            with pytest.raises(InputError):
                targets[name].try_with(parameter, value)


def test_a_partition_made_by_hand_is_checked() -> None:
    for owner in ([0, 7, 0, 0], [0, -1, 0, 0], [0.5] * 4, [[0]] * 4):
        made = gw.Partition(arguments.GRAPH, np.array(owner), 2, "array")
        with pytest.raises(InputError):
            gw.place(arguments.GRAPH, 2, made)
