"""Greedy passes as step programs, for graphs that one GPU has no room for.

Every vertex counts its neighbours before it that are not decided (of a set: that are not left out). Those
that reach 0 decide, all at once (Jones and Plassmann, 1993). The kernel of greedy.cuh, for one GPU, does
not synchronize between decisions.
"""

from __future__ import annotations

from typing import Any

from godwit import frontier
from godwit.algorithms.greedy.order import Kind, ranks_of
from godwit.dtypes import Array
from godwit.frontier.program import StepProgram
from godwit.frontier.state import initial_state, run_code
from godwit.placement import PlacedGraph
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions

_WINDOW = 62
"""Colours that a vertex compares at once, as bits."""
_ALL_TAKEN = (1 << _WINDOW) - 1


def _is_before(rank: Any, rank_at_target: Any) -> Any:
    return rank < rank_at_target


def _first_free(color: Any, bits: Any) -> Any:
    """Return the first colour from ``color`` on whose bit is not set."""
    while bits & 1:
        bits >>= 1
        color += 1
    return color


_COUNT_BEFORE = [
    frontier.advance(
        "before", lambda: 1, "add", keep=_is_before, direction="pull", frontier="kept"
    ),
    frontier.filter(lambda before: before == 0),
]

SET = StepProgram(
    name="independent set",
    fields={
        "rank": "int64",  # in the order of decisions
        "state": ("int32", 0),  # 0: not decided; 1: in the set; 2: left out
        "before": ("int32", 0),  # neighbours of smaller rank that are not left out
    },
    steps=[
        *_COUNT_BEFORE,
        frontier.repeat(
            [
                frontier.compute("state", lambda: 1),
                frontier.advance(
                    "state", lambda: 2, "max", keep=lambda state_at_target: state_at_target == 0
                ),
                frontier.advance(
                    "before",
                    lambda: -1,
                    "add",
                    keep=lambda state_at_target, rank, rank_at_target: (
                        state_at_target == 0 and rank < rank_at_target
                    ),
                ),
                frontier.filter(lambda before, state: before == 0 and state == 0),
            ],
            until=lambda size: size == 0,
        ),
    ],
)  # fmt: skip

COLORING = StepProgram(
    name="colouring",
    fields={
        "rank": "int64",
        "color": ("int32", 0),  # that the vertex has, or the first that it compares
        "bits": ("int64", 0),  # colours from that on that neighbours have
        "done": ("int32", 0),
        "before": ("int32", 0),  # neighbours of smaller rank that are not done
    },
    steps=[
        *_COUNT_BEFORE,
        frontier.repeat(
            [
                frontier.compute("bits", lambda: 0),
                frontier.advance(
                    "bits",
                    lambda color, color_at_target: 1 << (color_at_target - color),
                    "or",
                    at="source",
                    keep=lambda color, color_at_target, done_at_target: (
                        done_at_target == 1
                        and color_at_target >= color
                        and color_at_target < color + _WINDOW
                    ),
                    frontier="kept",
                ),
                frontier.compute("done", lambda bits: bits != _ALL_TAKEN),
                frontier.compute("color", _first_free),
                frontier.advance(
                    "before",
                    lambda: -1,
                    "add",
                    keep=lambda done, rank, rank_at_target: done == 1 and rank < rank_at_target,
                    frontier="kept",
                ),
                frontier.filter(lambda before, done: before == 0 and done == 0, of="all"),
            ],
            until=lambda size: size == 0,
        ),
    ],
)


def decide_by_steps(
    placed: PlacedGraph, kind: Kind, order: Array, options: SolverOptions
) -> tuple[Any, RunStatistics]:
    """Return the decision of each vertex, int32 (n), and the statistics of the run."""
    graph = placed.graph
    if graph.directed:
        both = graph.cached("both directions", lambda: graph.without_weights().symmetrize())
        placed = placed.reweighted(both)
    program = SET if kind is Kind.SET else COLORING
    fields = {"rank": ranks_of(order)}
    state = initial_state(program.code, placed.graph, program.declarations, fields, None, "all")
    statistics = run_code(program.code, placed, state, options)
    decided = state.fields[1]
    return (decided == 1).astype(decided.dtype) if kind is Kind.SET else decided, statistics
