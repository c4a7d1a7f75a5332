"""Verifiers: whether a result has the properties that make it right, whoever computed it.

Each is serial, says nothing about how a result was found, shares no code with the solvers, and raises
:class:`~godwit.errors.VerificationError`, which names a vertex, an arc or an item that breaks a rule, and
the values there.
"""

from godwit.algorithms.verification.betweenness import (
    verify_betweenness_centrality as verify_betweenness_centrality,
)
from godwit.algorithms.verification.components import (
    verify_connected_components as verify_connected_components,
)
from godwit.algorithms.verification.filtering import verify_filter as verify_filter
from godwit.algorithms.verification.pagerank import verify_pagerank as verify_pagerank
from godwit.algorithms.verification.paths import verify_bfs as verify_bfs
from godwit.algorithms.verification.paths import verify_sssp as verify_sssp
