"""Core numbers of vertices by peeling.

The k-core is the subgraph that remains when vertices of fewer than k neighbours are removed until there are
none; a vertex' core number is the largest k whose core contains it. In each round, k becomes the smallest
number of remaining neighbours (it never decreases), and vertices with at most k are removed until there are
none. Run it: python examples/k_core.py [FILE]
"""

import sys

import numpy as np

import godwit as gw

NONE = 2**31 - 1

K_CORE = gw.StepProgram(
    name="k-core",
    fields={
        "left": ("int32", "degree"),  # neighbours that are not removed yet
        "core": ("int32", -1),  # -1: the vertex is not removed yet
    },
    numbers={"k": "int64", "fewest": "int64"},
    steps=[
        gw.frontier.repeat(
            [
                gw.frontier.reduce(
                    "fewest", lambda core, left: left if core < 0 else NONE, "min", of="all"
                ),
                gw.frontier.assign("k", lambda k, fewest: k if fewest >= NONE else max(k, fewest)),
                gw.frontier.filter(lambda core, left, k: core < 0 and left <= k, of="all"),
                gw.frontier.repeat(
                    [
                        gw.frontier.compute("core", lambda k: k),
                        gw.frontier.advance(
                            "left",
                            lambda: -1,
                            "add",
                            keep=lambda core_at_target: core_at_target < 0,
                        ),
                        gw.frontier.filter(lambda left, k: left <= k),
                    ],
                    until=lambda size: size == 0,
                ),
            ],
            until=lambda fewest: fewest >= NONE,  # the minimum over no vertices is larger
        )
    ],
)


def core_numbers(graph: gw.Graph, **options) -> np.ndarray:
    """Return core numbers, int32 (n); ignores directions, self-loops and parallel arcs."""
    simple = graph.symmetrize().remove_self_loops().merge_parallel_arcs()
    return K_CORE.run(simple, **options).fields["core"]


if __name__ == "__main__":
    graph = gw.read(sys.argv[1]) if len(sys.argv) > 1 else gw.generators.rmat(14, 16, seed=1)
    core = core_numbers(graph)
    for k, count in enumerate(np.bincount(core)):
        if count:
            print(f"{count} vertices have core number {k}")
