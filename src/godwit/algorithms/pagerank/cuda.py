"""PageRank on GPUs: fills in the arguments of pagerank.cuh, runs it, and downloads the ranks.

Rows are summed up row by row or, where that is faster, by tiles (supersteps/tiled_rows), which then take
the place of rows that no other query has asked for.

Kept on the devices between queries: rows or tiles, out-degrees, subscriber masks, and, by weights, the
contribution of each arc. The first query of rows computes contributions in a superstep before the first
iteration; they are valid when its run has ended. Tiles have them from the beginning.

Carried values have room for all positions on each device, or, if a query says so, for its own vertices and
those that its rows name (supersteps/halos). The sums are the same, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.slices import Written
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import VertexValues, compile_delivery
from godwit.supersteps.rows import StepRows
from godwit.supersteps.run import (
    StepPlan,
    copies_by_host,
    point_rows,
    refuse_selective,
    step_source,
)
from godwit.supersteps.tiled_rows import (
    KeptTiles,
    TileKind,
    can_be_tiled,
    make_with_tiles,
    takes_tiles,
    tile_bytes,
    tile_checks,
)

ARGUMENTS = struct_dtype("algorithms/pagerank/pagerank.cuh", "Arguments")

_PREPARE, _START, _ITERATE = 0, 1, 2  # phases
_ITERATIONS, _RESIDUAL = 0, 4  # words of the state
_LEAST_TOLERANCE = {"float32": 1e-7, "float64": 1e-14}  # that ranks reach


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
    :param location: of the ranks
    :param gpu: how kernels are run
    :param one_hop: devices have room for their own vertices and those that they read, else for all; None:
        what is faster
    :param tiled: True: rows are summed up by tiles where that is possible; False: row by row; None: what is
        faster
    """

    dtype: np.dtype[Any]
    weighted: bool
    teleport: Array | None
    start: Array | None
    damping: float
    tolerance: float
    max_iterations: int
    accelerated: bool
    location: ResultLocation
    gpu: GpuOptions
    one_hop: bool | None = None
    tiled: bool | None = None


@dataclass
class RankOutcome:
    """Ranks, iterations, work and times of a query.

    :param rank: (n) ranks in the graph's order
    :param iterations: number of iterations
    :param residual: L1 norm of the last change; accelerated, of the change by one more plain iteration
    :param owned: vertices of each device
    :param arcs: in-arcs of these
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    rank: Any
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
    tile_words: int = 0,
) -> str:
    """Return the source of the kernel for dtypes of positions, ranks and, if they count, weights.

    :param accelerated: True to accelerate
    :param one_hop: devices have room for their own vertices and those that they read only
    :param tile_words: words of a sum if rows are summed up by tiles; 0: row by row
    """
    types = {
        "Id": c_type(np.dtype(id_dtype)),
        "Rank": c_type(np.dtype(rank_dtype)),
        "Weight": c_type(np.dtype(weight_dtype or np.float32)),
    }
    text = step_source("algorithms/pagerank/pagerank.cuh", types=types, work="grid_pagerank")
    flags = {
        "ACCELERATED": accelerated,
        "ONE_HOP": one_hop,
        "WEIGHTED": weight_dtype is not None,
    }
    defines = "".join(f"#define {name} {str(on).lower()}\n" for name, on in flags.items())
    defines += f"#define TILE_WORDS {tile_words}\n"
    return defines + text + tile_checks()


def rank_on_gpus(
    placement: StepPlacement, query: RankQuery, poll: ProgressPoll | None
) -> RankOutcome:
    """Return the ranks of all vertices.

    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    :raises InputError: selective communication where the host copies all values
    :raises DeviceError: devices that wait in vain
    """
    seconds: dict[str, float] = {}
    with placement.held():
        latest = placement.kept(LatestPlan)
        plan = latest.plan
        if latest.query is not query or plan is None or not placement.is_current(plan):
            plan = latest.choose(placement, query, seconds)
        ranks = None
        if plan.gathers_early(query.location):
            ranks = plan.values_at(query.location, lambda: plan.ranks_at(query.location))
        seconds["kernel"] = plan.ask(
            query, latest.units, poll, None if ranks is None else ranks.start
        )
        if plan.exchange.by_host:
            seconds["exchange"] = plan.exchange_s
        outcome = RankOutcome(
            None, plan.last_state[_ITERATIONS], plan.last_amounts[_RESIDUAL],
            plan.owned, plan.arcs, seconds,
        )  # fmt: skip
        if ranks is None:
            which = 1 - outcome.iterations % 2
            ranks = plan.values_at(
                query.location,
                lambda: VertexValues(
                    placement, plan.carried[which], query.dtype, query.location,
                    own_first=plan.halos is not None, exchange=plan.exchange,
                ),
                which,
            )  # fmt: skip
        outcome.rank, seconds["gather"] = ranks.gather()
    return outcome


def _is_one_hop(placement: StepPlacement, query: RankQuery) -> bool:
    """Return whether devices have room for what they read only: by default where the host copies values."""
    if placement.device_count == 1 or placement.processes is not None:
        return False
    if query.one_hop is not None:
        return query.one_hop
    return query.gpu.communication != "broadcast" and copies_by_host(placement, query.gpu)


def _units(graph: Graph, query: RankQuery) -> tuple[int, int]:
    """Return log2 of the number of units in 1 for sums by tiles, and how many words a sum has; 0: too many.

    An arc's share of rank is rounded by half a unit at most, and an iteration's error is multiplied by the
    damping in each later one: in all, arcs / 2 * damping / (1 - damping) units. They are to be a tenth of
    the least tolerance that ranks of the dtype reach by their own rounding.

    Sums must stay below 2^63 or 2^95 units. Plain ranks sum to 1. Accelerated ones may exceed 1 in between:
    in the norm sqrt(sum of x_v^2 / s_v), where s_v is the outflow of v, no iterate's distance from the
    limit is more than twice the first one's, and neither is longer than the given distributions.
    """
    rounded = graph.arc_count / 2 * query.damping / (1 - query.damping)
    bits = max(0, math.ceil(math.log2(max(1.0, 10 * rounded / _LEAST_TOLERANCE[query.dtype.name]))))
    highest = _log_longest(graph, query) if query.accelerated else 0
    return bits, next((words for words in (2, 3) if bits + highest <= 32 * words - 2), 0)


def _log_longest(graph: Graph, query: RankQuery) -> int:
    """Return log2 of a bound of accelerated ranks."""

    def bound(values: Array | None) -> int:
        strength = outflows_of(graph) if query.weighted else graph.out_degree()
        reached = strength > 0
        squares = 1 / graph.vertex_count**2 if values is None else values[reached] ** 2
        length = math.sqrt((squares / strength[reached]).sum() * strength.max(initial=0))
        return math.ceil(math.log2(max(1.0, 8 * length)))

    uniform: int = graph.cached(("longest ranks", query.weighted), lambda: bound(None))
    given = (values for values in (query.teleport, query.start) if values is not None)
    return max(uniform, *map(bound, given), 0)


def _tiling(placement: StepPlacement, query: RankQuery) -> tuple[int, int]:
    """Return log2 of the units in 1, and the words of a sum: 0 for row by row."""
    if not takes_tiles(placement, query.tiled, "in"):
        return 0, 0
    bits, words = _units(placement.graph, query)
    return (bits, words) if can_be_tiled(placement, words) else (0, 0)


def _tile_kind(query: RankQuery) -> TileKind:
    return TileKind("in", query.dtype.name, by_outflow=True) if query.weighted else TileKind("in")


class LatestPlan:
    """The plan of the latest query, since the next one is mostly the same.

    :ivar units: number of units in 1, for sums by tiles
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.query: RankQuery | None = None
        self.plan: _RankPlan | None = None
        self.units = 1.0

    def choose(
        self, placement: StepPlacement, query: RankQuery, seconds: dict[str, float]
    ) -> _RankPlan:
        """Return the plan of a query; parameters and errors as of :func:`rank_on_gpus`.

        :param seconds: gets the times of making it
        """
        one_hop = _is_one_hop(placement, query)
        if not one_hop:
            refuse_selective(placement, query.gpu)
        self.query = None
        unit_bits, tile_words = (0, 0) if one_hop else _tiling(placement, query)
        options = (query.gpu, query.dtype, query.weighted, query.accelerated, one_hop)

        def plan_with(tile_words: int) -> _RankPlan:
            return placement.plan(
                ("pagerank", *options, tile_words),
                lambda: _RankPlan(placement, query, one_hop, tile_words, seconds),
            )

        plan = make_with_tiles(placement, tile_words, plan_with, asked=query.tiled)
        self.query, self.plan, self.units = query, plan, 2.0**unit_bits
        return plan


class RankArrays:
    """The arrays of PageRank, kept on the devices between queries; those of ranks by their dtype.

    :ivar carried: by parity of the iteration
    :ivar contributions: part of its source's rank that each in-arc carries
    :ivar has_contributions: dtypes for which a run has computed them
    :ivar outflows: of vertices, by whether devices have room only for those that they read
    """

    def __init__(self, placement: StepPlacement) -> None:
        dtypes = ("float32", "float64")
        self.carried = {name: (DeviceArray(placement), DeviceArray(placement)) for name in dtypes}
        self.contributions = {name: DeviceArray(placement) for name in dtypes}
        self.has_contributions: set[str] = set()
        self.outflows = {one_hop: DeviceArray(placement) for one_hop in (False, True)}
        self.teleport = DeviceArray(placement)
        self.start = DeviceArray(placement)


class _RankPlan(StepPlan[StepPlacement]):
    """PageRank of a placement for one set of options.

    :param one_hop: devices have room for their own vertices and those that they read, else for all
    :param tile_words: words of a sum if rows are summed up by tiles; 0: row by row
    :param seconds: gets the time of making rows, and of loading the kernel
    :ivar owned: vertices of each device
    :ivar arcs: in-arcs of these
    :raises GraphTooLargeError: need against free
    """

    def __init__(
        self, placement: StepPlacement, query: RankQuery, one_hop: bool, tile_words: int,
        seconds: dict[str, float],
    ) -> None:  # fmt: skip
        begin = perf_counter()
        code = source(
            placement.id_dtype,
            query.dtype,
            placement.graph.weight_dtype if query.weighted else None,
            accelerated=query.accelerated,
            one_hop=one_hop,
            tile_words=tile_words,
        )
        compile_meanwhile(placement.indexes[0], code)
        compile_delivery(placement, query.dtype)
        self.halos = placement.halos("in", query.weighted) if one_hop else None
        self.dtype, self.is_tiled = query.dtype, tile_words > 0
        self._dtype_name = query.dtype.name  # which NumPy makes anew each time
        self._asked = Written()  # by the latest query with uniform distributions
        self.arrays = placement.kept(RankArrays)
        self.carried = self.arrays.carried[query.dtype.name]
        with ExitStack() as stack:
            self.rows = self._rows(placement, query, stack)
            seconds["rows"] = perf_counter() - begin
            super().__init__(
                placement, code, np.zeros(len(placement.parts), ARGUMENTS), query.gpu
            )  # fmt: skip
            seconds["compile"] = self.compile_s
            self.exchange_on_host = self._exchange_on_host
            self._reserve(query)
            self._point(query)
            self._connect(query)
            self.owned = np.array([part.owned for part in placement.parts], np.int64)
            self.arcs = np.array([part_rows.arcs for part_rows in self.rows], np.int64)
            if self.is_tiled:
                begin = perf_counter()
                self._make_tiles(query)
                seconds["rows"] += perf_counter() - begin
                self.shared_bytes = tile_bytes(tile_words)
        self.lay_out()

    def _rows(
        self, placement: StepPlacement, query: RankQuery, stack: ExitStack
    ) -> list[StepRows]:  # fmt: skip
        """Return rows of in-arcs; of tiles, rows that may be freed when the stack ends."""
        if self.halos is not None:
            return self.halos.rows
        if not self.is_tiled:
            return placement.rows("in", query.weighted)
        return placement.kept(KeptTiles).rows(_tile_kind(query), stack)

    def _reserve(self, query: RankQuery) -> None:
        """Allocate what devices need besides rows, and fill in what no query changes.

        :raises GraphTooLargeError: need against free
        """
        placement, arrays, item = self.placement, self.arrays, self.dtype.itemsize
        widths = [self._width(part) for part in placement.parts]
        needs = [(array, [item * width for width in widths]) for array in self.carried]
        outflows = arrays.outflows[self.halos is not None]
        has_outflows = bool(outflows)
        if query.weighted:
            needs.append((outflows, [8 * width for width in widths]))
            if not self.is_tiled:
                contributions = arrays.contributions[self.dtype.name]
                needs.append((contributions, [item * rows.arcs for rows in self.rows]))
        placement.reserve(*needs)
        if query.weighted and not has_outflows:
            values = _outflows(placement)
            for part in placement.parts:
                outflows[part].upload(self._local(values, part))

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

    def _point(self, query: RankQuery) -> None:
        """Fill in the pointers to each device's own memory, and numbers."""
        placement, arrays = self.placement, self.arrays
        # In undirected graphs out-degrees are the lengths of rows.
        needs_degrees = placement.is_directed and not query.weighted
        degrees = placement.degrees("out") if needs_degrees else []
        if self.halos is not None:
            placement.position_of.release()  # degrees needed it
        for own, part, rows in zip(self.arguments, placement.parts, self.rows, strict=True):
            point_rows(own["rows"], rows)
            if degrees:
                own["degrees"] = degrees[part.place].pointer
            if query.weighted:
                assert rows.weights is not None
                own["weights"] = rows.weights.pointer  # none if they were freed for tiles
                if not self.is_tiled:
                    contributions = arrays.contributions[self.dtype.name]
                    own["contributions"] = contributions[part].pointer
                own["outflows"] = arrays.outflows[self.halos is not None][part].pointer
        self.arguments["uniform"] = 1 / placement.vertex_count

    def _make_tiles(self, query: RankQuery) -> None:
        """Make the tiles, if there are none, and point to them.

        :raises GraphTooLargeError: need against free
        """
        placement = self.placement
        outflows = self.arrays.outflows[False] if query.weighted else None
        tiled = placement.kept(KeptTiles).of(_tile_kind(query), self.rows, outflows)
        for own, part in zip(self.arguments, placement.parts, strict=True):
            tiled.point(part, own["tiled"])

    def _connect(self, query: RankQuery) -> None:
        """Fill in the pointers to all devices' memory, and the subscriber masks.

        A value goes to another device's array at its position; with halos, in its slot there.
        """
        placement, exchange = self.placement, self.exchange
        for parity, carried in enumerate(self.carried):
            if self.halos is None:
                pointers = exchange.broadcast_pointers(carried)
            else:
                pointers = exchange.packed_pointers(carried, self.dtype.itemsize, self.halos)
            self.arguments["carried"][:, parity] = pointers
        subscribers: list[Buffer] = []
        if self.halos is not None:
            subscribers = self.halos.subscribers
            for own, slots in zip(self.arguments, self.halos.slots, strict=True):
                own["slots"] = slots.pointer
        elif placement.device_count > 1:
            broadcasts = query.gpu.communication == "broadcast"
            subscribers = (
                placement.subscriber_masks() if broadcasts else placement.subscriber_masks("in")
            )
        for own, mask in zip(self.arguments, subscribers, strict=False):  # none: one device
            own["subscribers"] = mask.pointer

    def ask(
        self, query: RankQuery, units: float, poll: ProgressPoll | None,
        behind: Callable[[], None] | None,
    ) -> float:  # fmt: skip
        """Answer a query; return the seconds that kernels ran.

        :param units: number of units in 1, for sums by tiles
        :param behind: as of :meth:`drive`
        """
        arrays = self.arrays
        is_uniform = query.teleport is None and query.start is None
        asked = (
            (query.damping, query.tolerance, query.max_iterations, units) if is_uniform else None
        )
        if not self._asked.has(asked):
            arguments = self.arguments
            arguments["damping"], arguments["tolerance"] = query.damping, query.tolerance
            arguments["most_iterations"], arguments["units"] = query.max_iterations, units
            self._upload("teleport", query.teleport, arrays.teleport)
            self._upload("start", query.start, arrays.start)
            self._asked.note(asked)
        makes_contributions = (
            query.weighted
            and not self.is_tiled
            and self._dtype_name not in arrays.has_contributions
        )
        phase = _PREPARE if makes_contributions else _START
        kernel_s = self.run(phase=phase, poll=poll, behind=behind)
        if makes_contributions:
            arrays.has_contributions.add(self._dtype_name)
        return kernel_s

    def gathers_early(self, location: ResultLocation) -> bool:
        """Return True if ranks are gathered behind the kernels, which choose the array that has them."""
        placement = self.placement
        return (
            location.gpu in placement.indexes
            and placement.processes is None
            and self.halos is None
            and not self.exchange.by_host
        )

    def ranks_at(self, location: ResultLocation) -> VertexValues:
        """Return the ranks on a GPU where they are wanted.

        Kernels leave them in the array that the last iteration did not write.
        """
        placement = self.placement
        pointers = [
            self.carried[0][part].pointer + self.dtype.itemsize * part.first
            for part in placement.parts
        ]
        turns = list(zip(pointers, self.state_pointers(_ITERATIONS), strict=True))
        return VertexValues(placement, self.carried[1], self.dtype, location, turns=turns)

    def _upload(self, name: str, values: Array | None, array: DeviceArray) -> None:
        """Upload a distribution over the vertices, if one is given, and point to it."""
        self.arguments[name] = 0
        if values is None:
            return
        placement = self.placement
        placement.reserve((array, [8 * part.owned for part in placement.parts]))
        for own, part in zip(self.arguments, placement.parts, strict=True):
            positions = np.arange(part.first, part.first + part.owned)
            array[part].upload(values[placement.vertex(positions)])
            own[name] = array[part].pointer

    def _exchange_on_host(self, last: int, coming: int, state: Array) -> None:
        """Copy what the next iteration reads, where the host copies."""
        if coming != _ITERATE:
            return
        carried = self.carried[int(state[_ITERATIONS]) % 2]
        if self.halos is None:
            self.exchange.broadcast(carried, 8 * self.dtype.itemsize)
        else:
            self.exchange.send(carried, self.dtype.itemsize, self.halos)


def outflows_of(graph: Graph) -> Array:
    """Return the sum of the weights of each vertex's out-arcs."""

    def summed() -> Array:
        sums = np.empty(graph.vertex_count)
        threads = thread_count_for(graph.arc_count)
        run_team(_sum_rows, graph.offsets, graph.weights, sums, threads=threads)
        return frozen(sums)

    outflows: Array = graph.cached("outflows", summed)
    return outflows


def _outflows(placement: StepPlacement) -> Array:
    """Return the sum of the weights of each vertex's out-arcs, by position."""
    outflows = np.zeros(placement.count)
    outflows[placement.numbering.position] = outflows_of(placement.graph)
    return outflows


@kernel
def _sum_rows(rank: int, size: int, control: Any, offsets: Any, weights: Any, sums: Any) -> None:
    begin, end = block_range(rank, size, sums.size)
    for v in range(begin, end):
        total = 0.0
        for arc in range(offsets[v], offsets[v + 1]):
            total += weights[arc]
        sums[v] = total
