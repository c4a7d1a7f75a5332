"""The algorithms, a folder each: what it computes and by which engine, its kernels, its verifier.

``cpu`` and ``cuda`` modules and ``.cuh`` files are there where neither a vertex program nor a step program
does. Algorithms import from each other only what :mod:`godwit.algorithms.paths` and
:mod:`godwit.algorithms.checks` have for all, or another algorithm as a whole.
"""
