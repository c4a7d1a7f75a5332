"""Shortest paths, and of several of the same length those with the fewest hops: two values per vertex.

A vertex's value is an int64 that holds two numbers, the length in its upper 32 bits and the hops in its
lower ones, so that the smaller value is the shorter path, and the one with fewer hops where lengths are
equal.
Run it: python examples/fewest_hops.py [FILE] [SOURCE]
"""

import sys

import numpy as np

import godwit as gw

FEWEST_HOPS = gw.VertexProgram(
    name="fewest hops",
    dtype="int64",
    message=lambda value, weight: value + (weight << 32) + 1,
    combine="min",
    priority=lambda value: value >> 32,
)


def fewest_hops(graph: gw.Graph, source: int, **options) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of shortest paths to all vertices and the fewest hops of one, both int64 (n).

    Lengths below 2**31, with weights that are integers; 2**31 - 1 where no path leads.
    """
    values = gw.run(FEWEST_HOPS, graph, {source: 0}, **options).values
    return values >> 32, values & 0xFFFFFFFF


if __name__ == "__main__":
    graph = (
        gw.read(sys.argv[1])
        if len(sys.argv) > 1
        else gw.generators.road(300, weights=(1, 8), seed=1)
    )
    source = int(sys.argv[2]) if len(sys.argv) > 2 else graph.highest_degree_vertex()
    length, hops = fewest_hops(graph, source)
    reached = length < 2**31 - 1
    print(f"{reached.sum()} vertices reached, the farthest at {length[reached].max()}")
    print(f"at most {hops[reached].max()} hops")
