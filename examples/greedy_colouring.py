"""Greedy colouring: each vertex gets the smallest colour that none of its earlier neighbours has.

The order is by descending rank. A vertex is ready when all neighbours of higher rank have colours, so many
vertices are ready at the same time (Jones and Plassmann, "A parallel graph coloring heuristic", 1993).
Ready vertices try the colours 0, 1, … in turn: the result is that of the serial loop over the ranks. Run
it: python examples/greedy_colouring.py [FILE]
"""

import sys

import numpy as np

import godwit as gw


def outranks(rank, rank_at_target):
    """Return True if the arc's source is coloured before its target."""
    return rank > rank_at_target


GREEDY_COLOURING = gw.StepProgram(
    name="greedy colouring",
    fields={
        "rank": "int32",  # all different
        "colour": ("int32", 0),  # that the vertex tries, or has
        "taken": ("int32", 0),  # 1: a neighbour has this colour
        "done": ("int32", 0),  # 1: the vertex has this colour
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


def default_ranks(graph: gw.Graph) -> np.ndarray:
    """Return ranks by degree, in random order among equal degrees: int32 (n), distinct."""
    order = np.random.default_rng(1).permutation(graph.vertex_count)
    rank = np.empty(graph.vertex_count, np.int32)
    rank[np.lexsort((order, graph.out_degree()))] = np.arange(graph.vertex_count)
    return rank


def colours(graph: gw.Graph, rank: np.ndarray | None = None, **options) -> np.ndarray:
    """Return the colour of every vertex, int32 (n), from 0; ignores directions and self-loops.

    rank: distinct numbers, (n); vertices of higher rank are coloured first. By default the degree decides.
    """
    simple = graph.symmetrize().remove_self_loops().merge_parallel_arcs()
    rank = default_ranks(simple) if rank is None else rank
    return GREEDY_COLOURING.run(simple, fields={"rank": rank}, **options).fields["colour"]


if __name__ == "__main__":
    graph = gw.read(sys.argv[1]) if len(sys.argv) > 1 else gw.generators.rmat(14, 16, seed=1)
    colour = colours(graph)
    print(f"{colour.max(initial=-1) + 1} colours for {graph.vertex_count} vertices")
