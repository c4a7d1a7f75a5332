"""PageRank on GPUs: fills in the arguments of pagerank.cuh, runs it, and downloads the ranks.

Kept on the devices between queries: rows, out-degrees, subscriber masks, and, by weights, the contribution
of each arc. The first query computes contributions in a superstep before the first iteration; they are
valid when its run has ended.

Carried values have room for all positions on each device, or, if a query says so, for its own vertices and
those that its rows name (supersteps/halos). The sums are the same, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.halos import Halos
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_own, deliver_positions, delivery_needs
from godwit.supersteps.rows import StepRows
from godwit.supersteps.run import (
    PEERS,
    ROWS,
    STAGE,
    StepRun,
    copies_by_host,
    point_rows,
    refuse_selective,
    step_run,
    step_source,
)

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("rows", ROWS),
        ("weights", np.uint64),
        ("contributions", np.uint64),
        ("outflows", np.uint64),
        ("degrees", np.uint64),
        ("teleport", np.uint64),
        ("start", np.uint64),
        ("subscribers", np.uint64),
        ("slots", np.uint64),
        ("carried", PEERS, 2),
        ("uniform", np.float64),
        ("damping", np.float64),
        ("tolerance", np.float64),
        ("most_iterations", np.uint64),
    ]
)
"""``Arguments`` of pagerank.cuh."""

_PREPARE, _START, _ITERATE = 0, 1, 2  # phases
_ITERATIONS, _RESIDUAL = 0, 4  # words of the state


@dataclass(frozen=True)
class RankQuery:
    """A checked query of a graph that has vertices.

    :param dtype: dtype of the ranks, float32 or float64
    :param weighted: ranks are divided in proportion to weights, which are finite and not negative
    :param teleport: (n) float64 of sum 1: distribution of restarts; None: uniform
    :param start: (n) float64 of sum 1: initial ranks; None: uniform
    :param damping: in [0, 1)
    :param tolerance: converged when an iteration changes ranks by less, in sum
    :param max_iterations: at least 1
    :param accelerated: True to accelerate; the graph is undirected
    :param destination: (n) array of NumPy, or of CuPy on any GPU, for the ranks in the graph's order
    :param gpu: how kernels are run
    :param one_hop: devices have room for their own vertices and those that they read, else for all; None:
        what is faster
    """

    dtype: np.dtype[Any]
    weighted: bool
    teleport: Array | None
    start: Array | None
    damping: float
    tolerance: float
    max_iterations: int
    accelerated: bool
    destination: Any
    gpu: GpuOptions
    one_hop: bool | None = None


@dataclass
class RankOutcome:
    """Iterations, work and times of a query.

    :param iterations: number of iterations
    :param residual: L1 norm of the last change; accelerated, of the change by one more plain iteration
    :param owned: vertices of each device
    :param arcs: in-arcs of these
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    iterations: int
    residual: float
    owned: Array
    arcs: Array
    seconds: dict[str, float] = field(default_factory=dict)


def source(
    id_dtype: Any,
    rank_dtype: Any,
    weight_dtype: Any = None,
    *,
    accelerated: bool = False,
    one_hop: bool = False,
) -> str:
    """Return the source of the kernel for dtypes of positions, ranks and, if they count, weights.

    :param accelerated: True to accelerate
    :param one_hop: devices have room for their own vertices and those that they read only
    """
    types = {
        "Id": c_type(np.dtype(id_dtype)),
        "Rank": c_type(np.dtype(rank_dtype)),
        "Weight": "void" if weight_dtype is None else c_type(np.dtype(weight_dtype)),
    }
    text = step_source(
        "algorithms/pagerank/pagerank.cuh", ARGUMENTS, types=types, work="grid_pagerank"
    )
    flags = {"ACCELERATED": accelerated, "ONE_HOP": one_hop}
    return "".join(f"#define {name} {str(on).lower()}\n" for name, on in flags.items()) + text


def rank_on_gpus(
    placement: StepPlacement, query: RankQuery, poll: ProgressPoll | None
) -> RankOutcome:
    """Write the ranks of all vertices into the query's destination.

    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    :raises InputError: selective communication where the host copies all values
    :raises DeviceError: devices that wait in vain
    """
    one_hop = _is_one_hop(placement, query)
    if not one_hop:
        refuse_selective(placement, query.gpu)
    with placement.held():
        begin = perf_counter()
        halos = None
        subscribers = []
        if one_hop:
            halos = placement.halos("in", query.weighted)
            rows, subscribers = halos.rows, halos.subscribers
        else:
            rows = placement.rows("in", query.weighted)
            if len(placement.parts) > 1:
                broadcasts = query.gpu.communication == "broadcast"
                subscribers = (
                    placement.subscriber_masks() if broadcasts else placement.subscriber_masks("in")
                )
        seconds = {"rows": perf_counter() - begin}
        arguments = np.zeros(len(placement.parts), ARGUMENTS)
        weight_dtype = rows[0].weight_dtype if query.weighted else None
        code = source(
            placement.id_dtype,
            query.dtype,
            weight_dtype,
            accelerated=query.accelerated,
            one_hop=one_hop,
        )
        with step_run(placement, code, arguments, query.gpu) as run:
            pagerank_run = _PageRankRun(placement, query, rows, arguments, halos)
            pagerank_run.upload()
            pagerank_run.connect(run, subscribers)
            run.prepare(phase=_PREPARE if pagerank_run.makes_contributions else _START)
            seconds["kernel"] = run.drive(poll)
            if run.exchange.by_host:
                seconds["exchange"] = run.exchange_s
            pagerank_run.mark_contributions()
            state = run.controls()["state"][0]
        iterations = int(state[_ITERATIONS])
        ranks = pagerank_run.carried[1 - iterations % 2]
        seconds["compile"] = run.compile_s
        deliver = deliver_positions if halos is None else deliver_own
        seconds["gather"] = deliver(placement, ranks, query.dtype, query.destination)
    return RankOutcome(
        iterations,
        float(state[_RESIDUAL : _RESIDUAL + 1].view(np.float64)[0]),
        np.array([part.owned for part in placement.parts], np.int64),
        np.array([part_rows.arcs for part_rows in rows], np.int64),
        seconds,
    )


def _is_one_hop(placement: StepPlacement, query: RankQuery) -> bool:
    """Return whether devices have room for what they read only: by default where the host copies values."""
    if len(placement.parts) == 1:
        return False
    if query.one_hop is not None:
        return query.one_hop
    return query.gpu.communication != "broadcast" and copies_by_host(placement, query.gpu)


class RankArrays:
    """The arrays of PageRank, kept on the devices between queries; those of ranks by their dtype.

    :ivar carried: by parity of the iteration
    :ivar contributions: part of its source's rank that each in-arc carries
    :ivar has_contributions: dtypes for which a run has computed them
    :ivar outflow_widths: number of vertices whose outflows each device holds; empty before the upload
    """

    def __init__(self, placement: StepPlacement) -> None:
        dtypes = ("float32", "float64")
        self.carried = {name: (DeviceArray(placement), DeviceArray(placement)) for name in dtypes}
        self.contributions = {name: DeviceArray(placement) for name in dtypes}
        self.has_contributions: set[str] = set()
        self.outflows = DeviceArray(placement)
        self.outflow_widths: list[int] = []
        self.teleport = DeviceArray(placement)
        self.start = DeviceArray(placement)


class _PageRankRun:
    """Arrays and arguments of a query on the devices.

    :param halos: slots of remote values on each device; None: it has room for all positions
    """

    def __init__(
        self,
        placement: StepPlacement,
        query: RankQuery,
        rows: list[StepRows],
        arguments: Array,
        halos: Halos | None,
    ) -> None:
        self.placement = placement
        self.query = query
        self.rows = rows
        self.arguments = arguments
        self.halos = halos
        self.arrays = placement.kept(RankArrays)
        self.carried = self.arrays.carried[query.dtype.name]
        self.contributions = self.arrays.contributions[query.dtype.name]
        self.makes_contributions = (
            query.weighted and query.dtype.name not in self.arrays.has_contributions
        )

    def upload(self) -> None:
        """Allocate arrays, and fill in initial values and arguments.

        :raises GraphTooLargeError: need against free
        """
        self._reserve()
        # In undirected graphs out-degrees are the lengths of rows.
        needs_degrees = self.placement.graph.directed and not self.query.weighted
        degrees = self.placement.degrees("out") if needs_degrees else []
        if self.halos is not None:
            self.placement.position_of.release()  # degrees needed it
        if self.query.weighted:
            self._upload_outflows()
        for place, (part, rows) in enumerate(self._each()):
            own = self.arguments[place]
            if degrees:
                own["degrees"] = degrees[place].pointer
            self._fill_vertices(own, part)
            self._point(own, part, rows)

    def _upload_outflows(self) -> None:
        """Upload the sums of weights that the devices need, unless they hold them from a query before."""
        if self.arrays.outflow_widths:
            return
        outflows = _outflows(self.placement)
        for part in self.placement.parts:
            self.arrays.outflows[part].upload(self._local(outflows, part))
        self.arrays.outflow_widths = [self._width(part) for part in self.placement.parts]

    def _each(self) -> list[tuple[StepPart, StepRows]]:
        return list(zip(self.placement.parts, self.rows, strict=True))

    def _reserve(self) -> None:
        """Allocate what devices need besides rows."""
        placement, query, item = self.placement, self.query, self.query.dtype.itemsize
        widths = [self._width(part) for part in placement.parts]
        ranks = [item * width for width in widths]
        needs = [(array, ranks) for array in self.carried]
        if query.weighted:
            outflows = self.arrays.outflows
            if self.arrays.outflow_widths != widths or not all(
                p in outflows for p in placement.parts
            ):
                self.arrays.outflow_widths = []  # the buffers may be replaced, even if this query fails
            needs.append((outflows, [8 * width for width in widths]))
            needs.append((self.contributions, [item * rows.arcs for rows in self.rows]))
        if self.halos is not None and not isinstance(query.destination, np.ndarray):
            needs.append(delivery_needs(placement, query.dtype, query.destination))
        owned = [8 * part.owned for part in placement.parts]
        for given, array in (
            (query.teleport, self.arrays.teleport),
            (query.start, self.arrays.start),
        ):
            if given is not None:
                needs.append((array, owned))
        placement.reserve(*needs)

    def _width(self, part: StepPart) -> int:
        """Return the number of vertices whose values a device has."""
        return self.placement.count if self.halos is None else self.halos.width(part.device)

    def _local(self, values: Array, part: StepPart) -> Array:
        """Select, of values of all positions, those that a device has room for, in its order."""
        if self.halos is None:
            return values
        own = values[part.first : part.first + part.owned]
        others = self.halos.halo_positions(self.placement, part.device)
        return np.concatenate((own, values[others]))

    def _fill_vertices(self, own: Any, part: StepPart) -> None:
        """Upload the given distributions of the own vertices."""
        query, arrays = self.query, self.arrays
        for name, given, array in (
            ("teleport", query.teleport, arrays.teleport),
            ("start", query.start, arrays.start),
        ):
            if given is not None:
                positions = np.arange(part.first, part.first + part.owned)
                array[part].upload(given[self.placement.vertex(positions)])
                own[name] = array[part].pointer

    def _point(self, own: Any, part: StepPart, rows: StepRows) -> None:
        """Fill in the pointers to a device's own memory, and numbers."""
        point_rows(own["rows"], rows)
        if self.query.weighted:
            own["contributions"] = self.contributions[part].pointer
            own["outflows"] = self.arrays.outflows[part].pointer
        if self.makes_contributions:
            assert rows.weights is not None
            own["weights"] = rows.weights.pointer
        own["uniform"] = 1 / self.placement.vertex_count
        own["damping"], own["tolerance"] = self.query.damping, self.query.tolerance
        own["most_iterations"] = self.query.max_iterations

    def connect(self, run: StepRun, subscribers: list[Buffer]) -> None:
        """Fill in the pointers to all devices' memory, and the subscriber masks.

        A value goes to another device's array at its position; with halos, in its slot there.
        """
        run.exchange_on_host = partial(self._exchange_on_host, run.exchange)
        for parity in (0, 1):
            carried, item = self.carried[parity], self.query.dtype.itemsize
            if self.halos is None:
                pointers = run.exchange.broadcast_pointers(carried)
            else:
                pointers = run.exchange.packed_pointers(carried, item, self.halos)
            self.arguments["carried"][:, parity] = pointers
        for own, mask in zip(self.arguments, subscribers, strict=False):  # none: one device
            own["subscribers"] = mask.pointer
        if self.halos is not None:
            for own, slots in zip(self.arguments, self.halos.slots, strict=True):
                own["slots"] = slots.pointer

    def _exchange_on_host(self, exchange: Exchange, last: int, coming: int, state: Array) -> None:
        """Copy what the next iteration reads, where the host copies."""
        if coming != _ITERATE:
            return
        carried = self.carried[int(state[_ITERATIONS]) % 2]
        if self.halos is None:
            exchange.broadcast(carried, 8 * self.query.dtype.itemsize)
        else:
            exchange.send(carried, self.query.dtype.itemsize, self.halos)

    def mark_contributions(self) -> None:
        """Record that the devices have the contributions of arcs."""
        if self.makes_contributions:
            self.arrays.has_contributions.add(self.query.dtype.name)


def _outflows(placement: StepPlacement) -> Array:
    """Return the sum of the weights of each vertex's out-arcs, by position."""
    graph = placement.graph

    def summed() -> Array:
        sums = np.empty(graph.vertex_count)
        threads = thread_count_for(graph.arc_count)
        run_team(_sum_rows, graph.offsets, graph.weights, sums, threads=threads)
        return frozen(sums)

    by_vertex: Array = graph.cached("outflows", summed)
    outflows = np.zeros(placement.count)
    outflows[placement.numbering.position] = by_vertex
    return outflows


@kernel
def _sum_rows(rank: int, size: int, control: Any, offsets: Any, weights: Any, sums: Any) -> None:
    begin, end = block_range(rank, size, sums.size)
    for v in range(begin, end):
        total = 0.0
        for arc in range(offsets[v], offsets[v + 1]):
            total += weights[arc]
        sums[v] = total
