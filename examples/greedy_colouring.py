"""Greedy colouring: neighbours get different colours, each vertex the first that is free in its turn.

Turns are taken by rank, the highest first. A vertex is ready when all neighbours of higher rank have their
colours, so many are ready at once (Jones and Plassmann, "A parallel graph coloring heuristic", 1993). Ready
vertices try one colour after the other: the result is that of the serial loop over the ranks, colour by
colour.
Run it: python examples/greedy_colouring.py [FILE]
"""

import sys

import numpy as np

import godwit as gw


def outranks(rank, rank_at_target):
    """Whether the arc's source comes first."""
    return rank > rank_at_target


GREEDY_COLOURING = gw.StepProgram(
    name="greedy colouring",
    fields={
        "rank": "int32",  # all different
        "colour": ("int32", 0),  # the one that a vertex tries
        "taken": ("int32", 0),  # 1: a neighbour has it
        "done": ("int32", 0),  # 1: it is the vertex' own
        "before": ("int32", 0),  # neighbours of higher rank that are not done
    },
    steps=[
        gw.frontier.advance("before", lambda: 1, "add", keep=outranks, frontier="kept"),
        gw.frontier.filter(lambda before: before == 0),
        gw.frontier.repeat(
            [
                gw.frontier.compute("taken", lambda: 0),
                gw.frontier.advance(
                    "taken",
                    lambda: 1,
                    "max",
                    at="source",
                    keep=lambda colour, colour_at_target, done_at_target: (
                        done_at_target == 1 and colour_at_target == colour
                    ),
                    frontier="kept",
                ),
                gw.frontier.compute("colour", lambda colour, taken: colour + taken),
                gw.frontier.compute("done", lambda taken: 1 - taken),
                gw.frontier.advance(
                    "before",
                    lambda: -1,
                    "add",
                    keep=lambda done, rank, rank_at_target: done == 1 and rank > rank_at_target,
                    frontier="kept",
                ),
                gw.frontier.filter(lambda before, done: before == 0 and done == 0, of="all"),
            ],
            until=lambda size: size == 0,
        ),
    ],
)


def usual_ranks(graph: gw.Graph) -> np.ndarray:
    """By degree, of equal ones by chance: int32 (n), all different."""
    chance = np.random.default_rng(1).permutation(graph.vertex_count)
    rank = np.empty(graph.vertex_count, np.int32)
    rank[np.lexsort((chance, graph.out_degree()))] = np.arange(graph.vertex_count)
    return rank


def colours(graph: gw.Graph, rank: np.ndarray | None = None, **options) -> np.ndarray:
    """Colour of every vertex, int32 (n), from 0; directions and self-loops do not count.

    rank: whose turn comes first, (n), all different; by default that of most neighbours, then by chance
    """
    simple = graph.symmetrize().remove_self_loops().merge_parallel_arcs()
    rank = usual_ranks(simple) if rank is None else rank
    return GREEDY_COLOURING.run(simple, fields={"rank": rank}, **options).fields["colour"]


if __name__ == "__main__":
    graph = gw.read(sys.argv[1]) if len(sys.argv) > 1 else gw.generators.rmat(14, 16, seed=1)
    colour = colours(graph)
    print(f"{colour.max(initial=-1) + 1} colours for {graph.vertex_count} vertices")
