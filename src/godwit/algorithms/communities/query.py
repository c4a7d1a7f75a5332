"""Checked arguments of community detection: devices, and weights as integers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from godwit.algorithms.checks import checked_array
from godwit.algorithms.communities import cpu
from godwit.algorithms.communities.result import CommunitiesResult
from godwit.algorithms.paths.weights import unsuitable_weight, uses_weights
from godwit.arrays import computed_in_place, gpu_array, lies_on_gpu
from godwit.dtypes import Array, as_array, as_float, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.rows import Rows, require_memory, thread_count_for
from godwit.graph.transform import symmetrized
from godwit.placement import PlacedGraph, default_step_devices, place_for_one_query
from godwit.runtime.cpu.team import run_team
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, resolve_devices
from godwit.worker.query import GraphArgument

_SUM_BITS = 51
"""Sums of all weights are below 2^51, so sums of strengths are below 2^53: exact in float64."""

_VERTEX_BYTES, _ARC_BYTES = 256, 48
"""Limits of the memory of a GPU that a run takes for each vertex and arc."""

_SHORT_SUMS = 1 << 31
"""Sums of strengths below this are of 32 bits where arcs have weight 1: half of the memory is read."""


@dataclass(frozen=True)
class WeightedRows:
    """Arcs of a graph with weights that are integers.

    :param rows: the arcs; no weights for 1 each
    :param exponent: 1 is 2**exponent in ``rows.weights``
    """

    rows: cpu.Rows
    exponent: int

    def scaled(self, number: float) -> float:
        """Return what a number is among the weights of ``rows``; infinity where it is too large."""
        try:
            return math.ldexp(number, self.exponent)
        except OverflowError:
            return math.inf


@contextmanager
def on_gpus_or_threads(
    graph: GraphArgument, devices: DevicesArgument
) -> Iterator[tuple[Graph, tuple[Device, ...], PlacedGraph | None]]:
    """Yield a graph, devices, and its placement on GPUs or None: then devices are of the CPU."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        chosen = graph.context.devices
        yield graph.graph, chosen, graph if chosen[0].kind == "cuda" else None
    elif isinstance(graph, Graph):
        if devices is None:
            nbytes = _VERTEX_BYTES * graph.vertex_count + _ARC_BYTES * graph.arc_count
            devices = default_step_devices(graph, nbytes=nbytes)
        chosen = resolve_devices(devices)
        if chosen[0].kind == "cpu":
            yield graph, chosen, None
            return
        with place_for_one_query(graph, [device.name for device in chosen], None) as placed:
            yield graph, placed.context.devices, placed
    else:
        raise not_a_graph(graph)


def thread_limit(devices: tuple[Device, ...]) -> int | None:
    """Return the number of threads of devices of the CPU; None for all cores."""
    return None if devices[0].name == "cpu" else len(devices)


def as_resolution(value: Any) -> float:
    """Return the resolution as a finite float that is not negative; InputError otherwise."""
    number = as_float(value, "resolution")
    if not 0 <= number < math.inf:
        raise InputError(f"resolution must be finite and not negative, got {shown(value)}")
    return number


def weighted_rows(graph: Graph, weighted: Any, what: str) -> WeightedRows:
    """Return the arcs of a graph with integers for weights, made once.

    Integers stay as they are while their sum is below 2^51. Others are multiplied by the power of two that
    brings their sum to 2^50 to 2^51, and rounded, half to even: each is then exact to the sum of all
    weights times 2^-51.

    :param weighted: as of :func:`godwit.louvain`
    :raises InputError: a weight is negative, infinite or NaN
    """
    offsets = graph.offsets
    begins, ends = frozen(offsets[:-1]), frozen(offsets[1:])
    is_short = max(2 * graph.arc_count, graph.vertex_count) < _SHORT_SUMS
    none = frozen(np.empty(0, np.int32 if is_short else np.int64))
    if not uses_weights(graph, weighted):
        return WeightedRows(cpu.Rows(begins, ends, graph.targets, none), 0)
    weights, exponent = graph.cached("integer weights", lambda: _integer_weights(graph, what))
    if len(weights) == 0:
        weights = none
    return WeightedRows(cpu.Rows(begins, ends, graph.targets, weights), exponent)


def with_integer_weights(placed: PlacedGraph, weights: Array) -> PlacedGraph:
    """Return a placed graph whose weights are those of :func:`weighted_rows`."""
    graph = placed.graph
    made = graph.cached("graph of integer weights", lambda: graph.with_weights(weights))
    return placed.reweighted(made)


def _integer_weights(graph: Graph, what: str) -> tuple[Array, int]:
    """Return weights as integers, and the exponent of the power of two that they are multiplied by."""
    weights = graph.weights
    assert weights is not None
    m = len(weights)
    if m == 0:
        return frozen(np.empty(0, np.int64)), 0
    least, largest = weights.min(), weights.max()
    if not (least >= 0 and largest < math.inf):
        arc = int(np.argmax(~((weights >= 0) & (weights < math.inf))))
        raise unsuitable_weight(
            graph, arc, f"{what} needs weights that are finite and not negative"
        )
    require_memory(16 * m, "weights as integers")
    # An exact sum of rounded weights bounds the sum of all, whatever their order.
    exponent = math.frexp(float(largest))[1]
    shift = 61 - m.bit_length() - exponent
    rough = int(np.rint(np.ldexp(weights.astype(np.float64), shift)).astype(np.int64).sum()) + m
    total_bits = rough.bit_length() - shift  # the sum is below 2**total_bits
    if weights.dtype.kind in "iu" and total_bits <= _SUM_BITS:
        return frozen(weights, np.int64), 0
    shift = _SUM_BITS - total_bits
    scaled = np.rint(np.ldexp(weights.astype(np.float64), shift)).astype(np.int64)
    return frozen(scaled), shift


def labels_below_n(labels: Any, graph: Graph, *, stay: bool) -> Any:
    """Return the community of each vertex by numbers below n, given by any integers, or a result.

    :param stay: labels that lie on a GPU stay there
    :raises InputError: a wrong shape or dtype
    """
    n = graph.vertex_count
    given = labels.label if isinstance(labels, CommunitiesResult) else labels
    if not (stay and lies_on_gpu(given)):
        given = as_array(given, "labels")
        if given.dtype.kind in "OUT":
            raise InputError(
                f"labels must be integers, got {given.dtype}: numpy.unique(labels, return_inverse=True)[1] "
                "makes integers of texts"
            )
        return _below(checked_array(given, n, "labels", "iu"), n)
    given = gpu_array(given)
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise InputError(
            f"labels must be integers of shape ({n},), got {given.dtype} of shape {given.shape}"
        )
    return computed_in_place(given, lambda there: _below(there, n))


def _below(label: Any, n: int) -> Any:
    """Return the labels if they are numbers below n, else others in their places."""
    if n == 0 or (int(label.min()) >= 0 and int(label.max()) < n):
        return label
    return np.unique(label, return_inverse=True)[1]


def strengths(graph: Graph, rows: cpu.Rows) -> Array:
    """Return the sum of the weights of each vertex's out-arcs: (n), of the dtype of weights; made once.

    Self-loops count twice in undirected graphs, which have them as one arc.
    """

    def compute() -> Array:
        strength = np.empty(len(rows.begins), rows.weights.dtype)
        threads = thread_count_for(len(rows.targets))
        loops = 1 if graph.directed else 2
        run_team(cpu.vertex_strengths, *rows, loops, strength, threads=threads, brief=True)
        return frozen(strength)

    made: Array = graph.cached(("strengths", len(rows.weights) > 0), compute)
    return made


def in_strengths(rows: cpu.Rows, dtype: Any) -> Array:
    """Return the sum of the weights of each vertex's in-arcs: (n)."""
    weights = rows.weights if len(rows.weights) else None
    sums = np.bincount(rows.targets, weights=weights, minlength=len(rows.begins))
    return frozen(sums.astype(dtype))


def both_directions(rows: cpu.Rows, offsets: Array) -> cpu.Rows:
    """Return rows with the reverse of each arc as well.

    :param offsets: (n + 1) of ``rows``
    """
    weights = rows.weights if len(rows.weights) else None
    both = symmetrized(Rows(offsets, rows.targets, weights), None)
    return cpu.Rows(
        frozen(both.offsets[:-1]),
        frozen(both.offsets[1:]),
        frozen(both.targets),
        rows.weights if both.weights is None else frozen(both.weights),
    )


def modularity_of(
    graph: Graph, rows: cpu.Rows, label: Array, resolution: float,
    known: tuple[int, Array] | None = None,
) -> float:  # fmt: skip
    """Return the modularity of communities; NaN without arcs.

    Sums of integers are exact, and that of squares is rounded once (``math.fsum``), so the result does not
    depend on any order.

    :param rows: arcs of the graph, with integers for weights
    :param label: (n) ids from 0 to n - 1
    :param known: of an undirected graph weight of the arcs within communities, and sums of strengths by
        community; None: they are computed
    """
    if graph.directed:
        return _directed_modularity(graph, rows, label, resolution)
    strength = strengths(graph, rows)
    total = int(strength.sum())
    if total == 0:
        return math.nan
    inside, mass = known or (_inner_weight(rows, label), np.bincount(label, weights=strength))
    share = mass / total
    return inside / total - resolution * exact_sum(share * share)


def exact_sum(numbers: Array) -> float:
    """Return the sum of numbers that are not negative, rounded once.

    Most are equal to many others, and equal ones sum to a few that are powers of two times as large.
    """
    values, counts = np.unique(numbers[numbers > 0], return_counts=True)
    terms: list[float] = []
    for bit in range(int(counts.max(initial=0)).bit_length()):
        terms += np.ldexp(values[(counts >> bit) & 1 == 1], bit).tolist()
    return math.fsum(terms)


def _inner_weight(rows: cpu.Rows, label: Array) -> int:
    """Return the weight of the arcs within communities, those from a vertex to itself twice."""
    threads = thread_count_for(len(rows.targets))
    return int(sum(run_team(cpu.inner_weight, *rows, frozen(label), threads=threads, brief=True)))


def _directed_modularity(graph: Graph, rows: cpu.Rows, label: Array, resolution: float) -> float:
    tails = np.repeat(label, np.diff(graph.offsets))
    heads = label[graph.targets]
    weights = rows.weights if len(rows.weights) else np.ones(len(tails), np.int64)
    total = int(weights.sum())
    if total == 0:
        return math.nan
    count = int(label.max()) + 1
    leaving = np.bincount(tails, weights=weights, minlength=count) / total
    entering = np.bincount(heads, weights=weights, minlength=count) / total
    inside = int(weights[tails == heads].sum())
    return inside / total - resolution * math.fsum((leaving * entering).tolist())


def potts_quality(graph: Graph, weighted: WeightedRows, label: Array, resolution: float) -> float:
    """Return the quality by the constant Potts model: per community, weight within - resolution * pairs.

    Pairs are ordered in directed graphs. The result is rounded once; infinity where it is too large.
    """
    rows = weighted.rows
    sizes = np.bincount(label).astype(np.int64)
    pairs = int((sizes * (sizes - 1)).sum())
    if graph.directed:
        within = np.repeat(label, np.diff(graph.offsets)) == label[graph.targets]
        inside = int(rows.weights[within].sum() if len(rows.weights) else within.sum())
    else:
        inside = _inner_weight(rows, label)
    weight = inside / Fraction(2) ** weighted.exponent
    quality = (weight - Fraction(resolution) * pairs) / (1 if graph.directed else 2)
    try:
        return float(quality)
    except OverflowError:
        return math.inf if quality > 0 else -math.inf
