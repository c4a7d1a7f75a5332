"""The algorithms, a folder each: what it computes and by which engine, its kernels, its verifier.

There are ``cpu`` and ``cuda`` modules and ``.cuh`` files where neither a vertex program nor a step program
is enough. All may import :mod:`godwit.algorithms.paths` and :mod:`godwit.algorithms.checks`. Beside that,
``diameter`` imports ``bfs``, ``betweenness`` ``sssp`` (searches by weights), ``components`` ``filtering``
(packets of edges that stream), and ``pagerank`` names arcs in messages as ``sssp`` does.
"""
