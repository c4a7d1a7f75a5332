"""Verifiers of eigenvector centrality, Katz centrality and HITS: one more iteration hardly changes values.

They apply the definitions in float64, with sums over arcs by NumPy.
"""

from __future__ import annotations

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_graph, checked_array, fail, first_true
from godwit.algorithms.katz import katz_constant
from godwit.algorithms.power_iteration.query import (
    VertexValues,
    as_finite,
    checks_weights,
    largest_weight,
    power_of_two,
    scaled_to_unit,
)
from godwit.algorithms.power_iteration.result import CentralityResult, HitsResult
from godwit.dtypes import Array, as_flag, as_positive_number
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph

_ROUNDING = 1e-12
"""Rounding error of a sum, relative to the largest value, that is allowed beside the tolerance."""


def verify_eigenvector_centrality(
    graph: Graph,
    centrality: Array | CentralityResult,
    *,
    tolerance: float = 1e-6,
    weighted: bool | None = None,
) -> None:
    """Check that values have L2 norm 1, and that one more iteration changes them little.

    :param centrality: (n), float64 or float32; or a result, whose values are checked
    :param tolerance: largest mean absolute change, of values of one more iteration
    :param weighted: as it was computed, as for :func:`eigenvector_centrality`
    :raises VerificationError: naming the vertex whose value changes most
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    tolerance = as_positive_number(tolerance, "tolerance")
    is_weighted = checks_weights(graph, weighted, "eigenvector centrality")
    values = _checked(centrality, graph, "centrality")
    _check_norm(values, "centralities")
    factor = power_of_two(max(1.0, largest_weight(graph)))  # large weights do not overflow
    stepped = factor * values + _sums(graph, values, is_weighted, factor)
    _compare(graph, values, scaled_to_unit(stepped), tolerance, "centralities")


def verify_katz_centrality(
    graph: Graph,
    centrality: Array | CentralityResult,
    *,
    alpha: float = 0.1,
    beta: float | VertexValues = 1.0,
    tolerance: float = 1e-6,
    normalized: bool = True,
    weighted: bool | None = None,
) -> None:
    """Check that one more iteration changes values little, after these are scaled to fit ``beta``.

    Parameters as for :func:`katz_centrality`; ``tolerance`` is the largest mean absolute change of values
    that are not normalized.

    :param centrality: (n), float64 or float32; or a result, whose values are checked
    :raises VerificationError: naming the vertex whose value changes most
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    normalized = as_flag(normalized, "normalized")
    tolerance = as_positive_number(tolerance, "tolerance")
    is_weighted = checks_weights(graph, weighted, "Katz centrality")
    alpha, constant = as_finite(alpha, "alpha"), katz_constant(beta, graph)
    values = _checked(centrality, graph, "centrality")
    own = values - alpha * _sums(graph, values, is_weighted)
    if normalized:
        _check_norm(values, "centralities")
        # own is the constant, scaled like the values: find the scale that fits best.
        constant = np.broadcast_to(constant, values.shape)
        square = float((own * own).sum())
        scale = float((own * constant).sum()) / square if square > 0 else 1.0
        values, own = values * scale, own * scale
    _compare(graph, values, values + (constant - own), tolerance, "centralities")


def verify_hits(
    graph: Graph,
    hubs: Array | HitsResult,
    authorities: Array | None = None,
    *,
    tolerance: float = 1e-12,
    normalized: bool = True,
    weighted: bool | None = None,
) -> None:
    """Check that hubs are the sums over authorities, and that one more iteration changes these little.

    :param hubs: (n), float64 or float32; or a result, whose hubs and authorities are checked
    :param authorities: (n), float64 or float32; None beside a result
    :param tolerance: largest mean absolute change of authorities of L2 norm 1
    :param normalized: both sum to 1; else authorities have L2 norm 1
    :param weighted: as it was computed, as for :func:`hits`
    :raises VerificationError: naming the vertex whose value changes most
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    normalized = as_flag(normalized, "normalized")
    tolerance = as_positive_number(tolerance, "tolerance")
    is_weighted = checks_weights(graph, weighted, "HITS")
    if isinstance(hubs, HitsResult):
        if authorities is not None:
            raise InputError("a result has authorities: give no others beside it")
        authorities = hubs.authorities
        hubs = hubs.hubs
    elif authorities is None:
        raise InputError("authorities must be an array, or hubs a result, got neither")
    found_hubs = _checked(hubs, graph, "hubs")
    found = _checked(authorities, graph, "authorities")
    if normalized:
        for values, what in ((found_hubs, "hubs"), (found, "authorities")):
            total = float(values.sum())
            if values.any() and not abs(total - 1) <= 1e-9:
                fail(f"the {what} sum to {total}, not to 1")
    else:
        _check_norm(found, "authorities")
    sums = _sums(graph.reverse, found, is_weighted)
    if normalized and sums.any():
        sums = sums / sums.sum()
    _compare(graph, found_hubs, sums, 0.0, "hubs")
    factor = power_of_two(largest_weight(graph))
    unit, stepped = scaled_to_unit(found), _sums(graph, found_hubs, is_weighted, factor)
    if stepped.any():
        _compare(graph, unit, scaled_to_unit(stepped), tolerance, "authorities")


def _checked(values: Array | CentralityResult, graph: Graph, name: str) -> Array:
    """Return values as float64; VerificationError if one is not finite."""
    values = values.centrality if isinstance(values, CentralityResult) else values
    checked = checked_array(values, graph.vertex_count, name, "f").astype(np.float64)
    if (v := first_true(~np.isfinite(checked))) is not None:
        fail(f"{name} of vertex {shown(graph.ids[v])} is {checked[v]}")
    return checked


def _check_norm(values: Array, what: str) -> None:
    norm = float(np.sqrt((values * values).sum()))
    if values.any() and not abs(norm - 1) <= 1e-6:
        fail(f"the {what} have L2 norm {norm}, not 1")


def _sums(graph: Graph, values: Array, weighted: bool, factor: float = 1.0) -> Array:
    """Return for each vertex the sum of the values of its in-arcs' sources, times weights and a factor."""
    sums = np.zeros(graph.vertex_count)
    for tails, arcs in arc_blocks(graph):
        products = factor * values[tails]
        if weighted and graph.weights is not None:
            products *= graph.weights[arcs]
        sums += np.bincount(graph.targets[arcs], products, graph.vertex_count)
    return sums


def _compare(graph: Graph, values: Array, stepped: Array, tolerance: float, what: str) -> None:
    """Raise VerificationError if values differ by more than a tolerance on average."""
    change = np.abs(stepped - values)
    allowed = tolerance + _ROUNDING * float(np.abs(values).max(initial=0.0))
    if len(values) and not float(change.mean()) <= allowed:
        v = int(np.argmax(change))
        fail(
            f"one more iteration changes the {what} by {float(change.mean()):.6g} on average, more than "
            f"{tolerance:.3g}; that of vertex {shown(graph.ids[v])} most, from {values[v]} to "
            f"{stepped[v]}"
        )
