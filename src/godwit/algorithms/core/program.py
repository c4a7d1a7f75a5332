"""Core numbers as a step program, for graphs that one GPU has no room for: an operator a superstep.

Each round takes the least number of remaining neighbours as its level k (which never decreases), and
removes vertices of at most k until there are none. The kernel of core.cuh, for one GPU, needs fewer
supersteps.
"""

from __future__ import annotations

from typing import Any

from godwit import frontier
from godwit.frontier.program import StepProgram
from godwit.frontier.state import initial_state, run_code
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions

_NONE = 2**31 - 1

PROGRAM = StepProgram(
    name="core numbers",
    fields={
        "left": ("int32", "degree"),  # neighbours that are not removed
        "core": ("int32", -1),  # -1: the vertex is not removed
    },
    numbers={"k": "int64", "least": "int64"},
    steps=[
        frontier.repeat(
            [
                frontier.reduce(
                    "least", lambda core, left: left if core < 0 else _NONE, "min", of="all"
                ),
                frontier.assign("k", lambda k, least: k if least >= _NONE else max(k, least)),
                frontier.filter(lambda core, left, k: core < 0 and left <= k, of="all"),
                frontier.repeat(
                    [
                        frontier.compute("core", lambda k: k),
                        frontier.advance(
                            "left",
                            lambda: -1,
                            "add",
                            keep=lambda core_at_target: core_at_target < 0,
                        ),
                        frontier.filter(lambda left, k: left <= k),
                    ],
                    until=lambda size: size == 0,
                ),
            ],
            until=lambda least: least >= _NONE,  # the minimum over no vertices is larger
        )
    ],
)


def core_numbers_by_steps(placed: PlacedGraph, options: SolverOptions) -> tuple[Any, RunStatistics]:
    """Return core numbers, int32 (n), and the statistics of the run."""
    graph = placed.graph
    simple = graph.cached("both directions without self-loops", lambda: _both_directions(graph))
    if simple is not None:
        placed = placed.reweighted(simple)
    state = initial_state(PROGRAM.code, placed.graph, PROGRAM.declarations, None, None, "all")
    statistics = run_code(PROGRAM.code, placed, state, options)
    return state.fields[1], statistics


def _both_directions(graph: Graph) -> Graph | None:
    """Return the graph with an edge for each arc, without self-loops; None if it is that itself."""
    simple = graph.remove_self_loops().symmetrize(merge=None)
    return None if simple.arc_count == graph.arc_count and not graph.directed else simple
