"""Centralities: betweenness, and those that iterations converge to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.dtypes import Array
from godwit.errors import ConvergenceError
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.kernels import lanczos_step
from godwit.networkx.options import RELEASE, on_devices, refusals
from godwit.networkx.results import values_by_node
from godwit.placement import PlacedGraph
from godwit.runtime.registry import DevicesArgument


def _distribution(graph: ArrayGraph, weights: Any) -> Array | None:
    """Return numbers by node as an array; nodes without one have 0, and other keys do not count."""
    if weights is None:
        return None
    return np.array([weights.get(node, 0) for node in graph], np.float64)


def pagerank(
    G: ArrayGraph,
    alpha: float = 0.85,
    personalization: Any = None,
    max_iter: int = 100,
    tol: float = 1.0e-6,
    nstart: Any = None,
    weight: Any = "weight",
    dangling: Any = None,
    *,
    devices: DevicesArgument = None,
) -> dict[Any, float]:
    """Return the PageRank of each node."""
    if len(G) == 0:
        return {}
    restart = _distribution(G, personalization)
    if restart is not None and restart.sum() == 0:
        raise ZeroDivisionError
    if max_iter < 1:
        raise nx.PowerIterationFailedConvergence(max_iter)
    with refusals():
        result = gw.pagerank(
            on_devices(G, G.weighted(weight), devices), alpha, tolerance=len(G) * tol,
            max_iterations=max_iter, personalization=restart, initial=_distribution(G, nstart),
        )  # fmt: skip
    if not result.converged:
        raise nx.PowerIterationFailedConvergence(max_iter)
    return values_by_node(G, result.rank)


def betweenness_centrality(
    G: ArrayGraph,
    k: int | None = None,
    normalized: bool = True,
    weight: Any = None,
    endpoints: bool = False,
    seed: Any = None,
    *,
    devices: DevicesArgument = None,
) -> dict[Any, float]:
    """Return the betweenness of each node."""
    n = len(G)
    sources = None if k is None or k == n else _drawn(n, k, seed)
    sums = _dependencies(G, sources, weight, devices, endpoints=endpoints).centrality.copy()
    scale, source_scale = _scales(n, sources, normalized, G.is_directed(), endpoints=endpoints)
    if sources is None:
        sums *= scale
    else:
        of_sources = sums[sources] * source_scale
        sums *= scale
        sums[sources] = of_sources
    return values_by_node(G, sums)


def edge_betweenness_centrality(
    G: ArrayGraph,
    k: int | None = None,
    normalized: bool = True,
    weight: Any = None,
    seed: Any = None,
    *,
    devices: DevicesArgument = None,
) -> dict[tuple[Any, Any], float]:
    """Return the betweenness of each edge, by its nodes."""
    if G.is_multigraph():
        raise NotImplementedError("parallel edges share their betweenness: NetworkX divides it")
    n = len(G)
    sources = None if k is None else _drawn(n, k, seed)
    sums = _dependencies(G, sources, weight, devices, edges=True).edge_centrality
    scale, _ = _scales(n, sources, normalized, G.is_directed(), edges=True)
    tails, heads = G.tails, G.structure.targets
    if not G.is_directed():
        once = tails <= heads
        tails, heads, sums = tails[once], heads[once], sums[once]
    pairs = zip(G.names(tails), G.names(heads), strict=True)
    return dict(zip(pairs, (sums * scale).tolist(), strict=True))


def betweenness_centrality_subset(
    G: ArrayGraph,
    sources: Any,
    targets: Any,
    normalized: bool = False,
    weight: Any = None,
    *,
    devices: DevicesArgument = None,
) -> dict[Any, float]:
    """Return the betweenness of each node for paths from some nodes to all."""
    begins, ends = list(sources), set(targets)
    if len(set(begins)) < len(begins):
        raise NotImplementedError("a source is given several times")
    if not ends.issuperset(G):
        raise NotImplementedError("targets are not all nodes")
    positions = np.array([G.position(source) for source in begins], np.int64)
    sums = _dependencies(G, positions, weight, devices).centrality
    scale, _ = _scales(len(G), None, normalized, G.is_directed())
    return values_by_node(G, sums * scale)


def _drawn(n: int, k: int, seed: Any) -> Array:
    """Return k of n positions, drawn as NetworkX draws nodes."""
    return np.array(seed.sample(range(n), k), np.int64)


def _dependencies(
    graph: ArrayGraph, sources: Array | None, weight: Any, devices: DevicesArgument, **named: Any
) -> Any:
    """Return sums of dependencies (Brandes, 2001) over sources."""
    rows = graph.lengths(weight)
    with refusals():
        return gw.betweenness_centrality(
            on_devices(graph, rows, devices, chooses=True), sources=sources, scale="sum",
            weighted=None if weight is not None else False, **named,
        )  # fmt: skip


def _scales(
    n: int, sources: Array | None, normalized: bool, directed: bool, *, endpoints: bool = False,
    edges: bool = False,
) -> tuple[float, float]:  # fmt: skip
    """Return NetworkX's factors of sums of dependencies: of nodes (or edges), and of sources.

    Paths from a node do not count for this node itself: sums at a source are over one source fewer, so they
    have another factor. Before NetworkX 3.5 (for edges: 3.6) sources and others had the same.
    """
    ends = n if endpoints or edges else n - 1
    k = ends if sources is None else len(sources)
    correction = 1 if directed else 2
    if ends < 2:
        return 1.0, 1.0
    if (3, 6 if edges else 5) > RELEASE:
        scale = 1 / (ends * (ends - 1)) if normalized else 1 / correction
        if sources is not None and (normalized or not directed):
            scale *= n / k
        return scale, scale
    scale = 1 / (k * (ends - 1)) if normalized else ends / (k * correction)
    if sources is None or endpoints or edges:
        return scale, scale
    if k == 1:
        return scale, math.nan
    return scale, scale * k / (k - 1)


def _iterated(
    graph: ArrayGraph, run: Callable[[], Any], max_iter: int, start: Any
) -> dict[Any, float]:
    """Return a centrality that iterations converge to."""
    if start is not None and start.keys() != set(graph):
        raise NotImplementedError("nstart does not have a value for every node, and none besides")
    if max_iter < 1:
        raise nx.PowerIterationFailedConvergence(max_iter)
    with refusals():
        try:
            result = run()
        except ConvergenceError:
            raise nx.PowerIterationFailedConvergence(max_iter) from None
    if start is None:
        return values_by_node(graph, result.centrality)
    ordered = result.centrality[graph.positions(list(start))]
    return dict(zip(start, ordered.tolist(), strict=True))


def eigenvector_centrality(
    G: ArrayGraph,
    max_iter: int = 100,
    tol: float = 1.0e-6,
    nstart: Any = None,
    weight: Any = None,
    *,
    devices: DevicesArgument = None,
) -> dict[Any, float]:
    """Return the eigenvector centrality of each node."""
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("cannot compute centrality for the null graph")
    start = _distribution(G, nstart)
    if nstart is not None and not any(nstart.values()):
        raise nx.NetworkXError("initial vector cannot have all zero values")

    def run() -> Any:
        return gw.eigenvector_centrality(
            on_devices(G, G.weighted(weight), devices), tolerance=tol, max_iterations=max_iter,
            start=start,
        )  # fmt: skip

    return _iterated(G, run, max_iter, nstart)


def katz_centrality(
    G: ArrayGraph,
    alpha: float = 0.1,
    beta: Any = 1.0,
    max_iter: int = 1000,
    tol: float = 1.0e-6,
    nstart: Any = None,
    normalized: bool = True,
    weight: Any = None,
    *,
    devices: DevicesArgument = None,
) -> dict[Any, float]:
    """Return the Katz centrality of each node."""
    if len(G) == 0:
        return {}
    try:
        constant: Any = float(beta)
    except (TypeError, ValueError, AttributeError) as error:
        if set(beta) != set(G):
            raise nx.NetworkXError("beta dictionary must have a value for every node") from error
        constant = _distribution(G, beta)

    def run() -> Any:
        return gw.katz_centrality(
            on_devices(G, G.weighted(weight), devices), alpha=alpha, beta=constant, tolerance=tol,
            max_iterations=max_iter, start=_distribution(G, nstart), normalized=bool(normalized),
        )  # fmt: skip

    return _iterated(G, run, max_iter, nstart)


_CPU_ITERATIONS = 20
"""Power iterations on the CPU, at most; then Lanczos' method runs, which converges in fewer steps."""

_GPU_ITERATIONS = 20
"""Power iterations on GPUs for each of ``max_iter``, at most; then Lanczos' method runs on the CPU."""


def hits(
    G: ArrayGraph,
    max_iter: int = 100,
    tol: float = 1.0e-8,
    nstart: Any = None,
    normalized: bool = True,
    *,
    devices: DevicesArgument = None,
) -> tuple[dict[Any, float], dict[Any, float]]:
    """Return the hub and the authority score of each node."""
    if len(G) == 0:
        return {}, {}
    if max_iter <= 0:
        raise nx.PowerIterationFailedConvergence(max_iter)
    start = _distribution(G, nstart)
    with refusals():
        graph = on_devices(G, G.weighted("weight"), devices)
        is_on_gpus = isinstance(graph, PlacedGraph) and graph.context.devices[0].kind == "cuda"
        try:
            result = gw.hits(
                graph, tolerance=tol / len(G), start=start, normalized=bool(normalized),
                max_iterations=(
                    max_iter * _GPU_ITERATIONS if is_on_gpus else min(max_iter, _CPU_ITERATIONS)
                ),
            )  # fmt: skip
        except ConvergenceError:
            hubs, authorities = _singular_vectors(G.weighted("weight"), start, max_iter)
            if normalized:
                hubs, authorities = hubs / hubs.sum(), authorities / authorities.sum()
        else:
            hubs, authorities = result.hubs, result.authorities
    return values_by_node(G, hubs), values_by_node(G, authorities)


_STEPS = 20
"""Steps of Lanczos' method for each restart of ARPACK, which ``max_iter`` counts in NetworkX."""

_STEPS_BETWEEN_CHECKS = 4

_RESIDUAL = 1e-13
"""Residual of the eigenvector of A'A at which it has converged, relative to the eigenvalue."""


def _singular_vectors(rows: gw.Graph, start: Array | None, max_iter: int) -> tuple[Array, Array]:
    """Return hub and authority scores by Lanczos' method on A'A, whose first eigenvector is authorities.

    The eigenvector is a sum of the method's vectors. They are not kept but made twice: first for the
    tridiagonal matrix, whose eigenvector has their coefficients (Golub and Van Loan, "Matrix Computations",
    chapter 10). They lose orthogonality only after the first eigenvector has converged, when all is done.
    """
    from scipy.linalg import eigh_tridiagonal

    n = rows.vertex_count
    offsets, targets, weights = rows.rows
    weights = np.ones(len(targets)) if weights is None else weights.astype(np.float64)
    first = np.ones(n) if start is None else start
    first = first / np.linalg.norm(first)
    diagonal: list[float] = []
    beside = [0.0]
    vector, before, following = first.copy(), np.zeros(n), np.empty(n)
    for step in range(1, _STEPS * max_iter + 1):
        entry = lanczos_step(offsets, targets, weights, vector, before, beside[-1], following)
        diagonal.append(entry)
        beside.append(float(np.linalg.norm(following)))
        is_complete = beside[-1] <= _RESIDUAL * max(diagonal)
        if is_complete or step % _STEPS_BETWEEN_CHECKS == 0:
            last = (step - 1, step - 1)
            value, shares = eigh_tridiagonal(diagonal, beside[1:-1], select="i", select_range=last)
            if is_complete or beside[-1] * abs(shares[-1, 0]) <= _RESIDUAL * value[0]:
                break
        following /= beside[-1]
        vector, before, following = following, vector, before
    else:
        raise nx.PowerIterationFailedConvergence(max_iter)
    authorities = np.zeros(n)
    vector[:], before[:] = first, 0
    for share, between, length in zip(shares[:, 0], beside, beside[1:], strict=False):
        authorities += share * vector
        lanczos_step(offsets, targets, weights, vector, before, between, following)
        following /= length or 1.0
        vector, before, following = following, vector, before
    products = weights * authorities[targets]
    hubs = np.bincount(np.repeat(np.arange(n), np.diff(offsets)), products, minlength=n)
    return hubs, authorities
