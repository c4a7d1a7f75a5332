"""Checked queries of power iterations, and what they return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from godwit.algorithms.paths.weights import unsuitable_weight, uses_weights
from godwit.dtypes import Array, as_array, as_float
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph

VertexValues = Any
"""A number for each vertex: an array of shape (n), or a mapping of some vertices (by id), the others 0."""


class Finish(IntEnum):
    """How results are scaled: ``PowerFinish`` of power.cuh."""

    POWER_AS_IS = 0
    """x divided by ``unit``, hubs times ``hubs_factor``"""
    POWER_UNIT = 1
    """x to L2 norm 1"""
    POWER_SUM = 2
    """x and hubs to sum 1 each, but as they are where the sum is 0"""


@dataclass(frozen=True)
class PowerQuery:
    """A checked query: ``x <- factor * M x + shift * x + constant`` is repeated until x hardly changes.

    M x is, for each vertex, the sum of x over the sources of its in-arcs; if ``weighted``, of weight * x.
    With ``two_sided``, an iteration is ``hubs <- factor * H x``, ``x <- factor * M hubs``: H x is the same
    sum over the targets of out-arcs. Each array is by the positions of vertices.

    :param start: float64 (n), or (1) for the same everywhere: the first iterate, times ``unit``
    :param normalizes: x is scaled to L2 norm 1 after each iteration
    :param constant: float64 (n), times ``unit``; (1) for the same everywhere, or None for 0
    :param tolerance: converged when the mean absolute change of an iteration is smaller
    :param max_iterations: at least 1
    :param finish: how results are scaled
    :param unit: a power of two: what 1 is in start, constant and iterates
    """

    weighted: bool
    start: Array
    tolerance: float
    max_iterations: int
    factor: float = 1.0
    shift: float = 0.0
    constant: Array | None = None
    normalizes: bool = True
    two_sided: bool = False
    finish: Finish = Finish.POWER_AS_IS
    unit: float = 1.0
    hubs_factor: float = 1.0


@dataclass(frozen=True)
class PowerOutcome:
    """What iterations lead to; arrays are NumPy's, or CuPy's.

    :param values: (n) the last iterate x, scaled as the query's ``finish`` says
    :param hubs: (n) factor * H x of the last iterate, scaled, too; None unless there are two sides
    :param iterations: number of iterations
    :param residual: mean absolute change of x by the last one; infinite or NaN if numbers overflow
    """

    values: Any
    hubs: Any
    iterations: int
    residual: float


def checks_weights(graph: Graph, weighted: Any, what: str) -> bool:
    """Return whether weights count.

    :param what: the algorithm, for messages
    :raises InputError: they do, and one is not finite (names the arc), or sums could overflow
    """
    if not uses_weights(graph, weighted):
        return False
    weights, largest = graph.weights, largest_weight(graph)
    assert weights is not None
    if not math.isfinite(largest):
        arc = int(np.argmax(~np.isfinite(weights)))
        raise unsuitable_weight(graph, arc, f"{what} needs weights that are finite")
    if math.isinf(largest * len(weights)):
        raise InputError(
            f"sums of {len(weights)} weights up to {largest:g} could overflow; divide them by {largest:g}"
        )
    return True


def as_finite(value: Any, name: str) -> float:
    """Return the value as a float; InputError if it is no finite number."""
    number = as_float(value, name)
    if not math.isfinite(number):
        raise InputError(f"{name} must be finite, got {shown(value)}")
    return number


def largest_weight(graph: Graph) -> float:
    """Return the largest absolute value of a weight; NaN if one is NaN, 0 if there are no arcs."""

    def largest() -> float:
        weights = graph.weights
        if weights is None or len(weights) == 0:
            return 0.0
        return max(abs(float(weights.min())), abs(float(weights.max())))

    return float(graph.cached("largest absolute weight", largest))


def power_of_two(largest: float) -> float:
    """Return 2**-e, for e such that the number is in [2**(e - 1), 2**e); products with it are exact.

    As a factor of sums over arcs it keeps these, and the sums of their squares, within float64, however
    large or small the weights are.
    """
    return math.ldexp(1.0, -max(-1021, min(math.frexp(largest)[1], 1021)))


def vertex_values(
    values: VertexValues, graph: Graph, name: str, *, least: float = -math.inf
) -> Array:
    """Return a number for each vertex, given as an array or as a mapping by id: float64 (n), new.

    A pandas Series is a mapping.

    :param least: of all numbers: 0 or -inf
    :raises InputError: a wrong shape, an unknown vertex, or a number that is not finite, or below ``least``
    """
    count, ids = graph.vertex_count, graph.ids
    values = ids.by_position(values, name)
    if isinstance(values, Mapping):
        numbers = np.zeros(count)
        for position, number in values.items():
            numbers[position] = as_float(number, f"{name} of vertex {shown(ids[position])}")
    else:
        given = as_array(values, name)
        if given.shape != (count,) or given.dtype.kind not in "iufb":
            raise InputError(
                f"{name} must be a mapping {{vertex: number}} or {count} numbers, one for each vertex; "
                f"got {shown(values)}, an array of {given.dtype}, shape {given.shape}"
            )
        numbers = given.astype(np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= least))
    if wrong.any():
        at = int(np.argmax(wrong))
        must = "finite and not negative" if least == 0 else "finite"
        raise InputError(f"{name} must be {must}, got {numbers[at]:g} for vertex {shown(ids[at])}")
    return numbers


def unit_start(values: VertexValues, graph: Graph) -> Array:
    """Return the first iterate of L2 norm 1: as given, (n); for None the same everywhere, (1).

    :raises InputError: as :func:`vertex_values`; or all are 0
    """
    count = graph.vertex_count
    if values is None:
        return np.full(1, 1 / math.sqrt(max(1, count)))
    start = vertex_values(values, graph, "start")
    largest = float(np.abs(start).max(initial=0.0))
    if count and largest == 0:
        raise InputError(f"start must not be 0 everywhere, got {count} zeros")
    return scaled_to_unit(start)


def scaled_to_unit(values: Array) -> Array:
    """Return an array scaled to L2 norm 1; unchanged if it is 0 everywhere."""
    largest = float(abs(values).max()) if len(values) else 0.0
    if largest == 0:
        return values
    values = values / largest  # squares would overflow
    unit: Array = values / math.sqrt(float((values * values).sum()))
    return unit
