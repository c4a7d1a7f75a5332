"""The algorithms, one folder each: public function, kernels, verifier.

An algorithm that is neither a vertex program nor a step program has ``cpu`` and ``cuda`` modules and
``.cuh`` files. All may import :mod:`godwit.algorithms.paths` and :mod:`godwit.algorithms.checks`. Beside
that, ``diameter`` imports ``bfs``, ``betweenness`` ``sssp`` (searches by weights), ``components``
``filtering`` (packets of edges that stream), and ``pagerank`` names arcs in messages as ``sssp`` does.
"""
