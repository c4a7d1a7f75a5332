"""PageRank on several processes: the iterations of one process, with the carried values of the halo.

An iteration is a superstep. Each process updates its rows by the code of one process
(:mod:`godwit.algorithms.pagerank.cpu`). It reads the values of this machine's processes where they are
(:mod:`godwit.distributed.shared`), and gets those of others from their owners after each iteration.

Of the two arrays of values, an iteration reads one and writes the own section of the other. The meeting
behind it parts that from the next one, which writes what this one has read.

Results have the same bits for any number of processes and threads: a row is summed in a fixed order, that
of its in-arcs in the whole graph, and sums over vertices are integers. A rank is added as two of them: in
units of 2**-40, and what is left of it, in units of 2**-70, both rounded to zero. So sums of ranks, which
are below some 32 in all iterations, are exact up to 2**-70 for each vertex. A change is added as one, in
units of 2**-54 of the change by the iteration before, rounded up to a power of two; it grows by no factor
near 2**9. One process without MPI adds such sums in floating point; its ranks differ by that rounding.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.pagerank.cpu import is_last, next_block, next_omega, update_block
from godwit.algorithms.pagerank.in_arcs import InArcs, arranged, divide, narrowed
from godwit.algorithms.pagerank.settings import (
    MAX_ITERATIONS,
    PAGERANK_NEEDS,
    check_damping,
    check_dtype,
)
from godwit.algorithms.paths.weights import WITHOUT_WEIGHTS, uses_weights
from godwit.distributed.checkpoint import Checkpoint
from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.halo import Halo, HaloRows
from godwit.distributed.result import DistributedScores
from godwit.distributed.shared import shared_arrays
from godwit.dtypes import Array, as_count, as_flag, as_float, as_positive_number, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.rows import Rows, require_memory
from godwit.progress import Progress, ProgressArgument
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options
from godwit.worker.solve import make_poll

_COARSE = 2.0**40
_FINE_BITS = 30
_FINE = 2.0**_FINE_BITS
_UNIT = 2.0**-70
_CHANGE_BITS = 54
_LARGEST_SCALE_BITS = 1000

_WORDS = 8  # of a thread's sums: a cache line
_ALONE_WORK = 30_000


class DistributedPageRankResult(DistributedScores):
    """Ranks of the own vertices of a process.

    :ivar iterations: number of iterations
    :ivar converged: True if the residual is below the tolerance
    :ivar residual: L1 norm of the last iteration's change, as of :class:`PageRankResult`
    """

    value_name = "rank"

    def __init__(
        self, graph: DistributedGraph | GpuGraph, rank: Array, statistics: RunStatistics, iterations: int,
        converged: bool, residual: float,
    ) -> None:  # fmt: skip
        super().__init__(graph, rank, statistics)
        self.iterations = iterations
        self.converged = converged
        self.residual = residual

    @property
    def rank(self) -> Array:
        """Rank of each vertex in ``vertices``; those of all processes sum to 1."""
        return self._values


def pagerank(
    graph: DistributedGraph,
    damping: float = 0.85,
    *,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    personalization: Mapping[Any, float] | None = None,
    weighted: bool | None = None,
    accelerated: bool | None = None,
    dtype: Any = "float64",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_s: float = 600.0,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedPageRankResult:
    """Return the PageRank of the own vertices; see :func:`godwit.pagerank`.

    :param personalization: a mapping of some vertices, by id, to weights; None: uniform
    :param checkpoint: a folder, in which the state of the run is saved again and again. If it has one, of
        this graph and these arguments (but for ``max_iterations``), the run goes on from there, and its
        result has the bits of a run that was not interrupted. ``iterations`` and ``max_iterations`` count
        those before the saved state, too; the statistics are of this run alone
    :param checkpoint_s: seconds between two saved states
    :raises InputError: the folder has the state of another graph or of other arguments
    """
    same = (
        damping, tolerance, max_iterations, weighted, accelerated, str(dtype), checkpoint_s,
        checkpoint is None, personalization is None,
    )  # fmt: skip
    with graph.processes.running("pagerank", graph.vertex_count, *same):
        options = query_options(timeout_s=timeout_s, progress=progress)
        damping, tolerance = check_damping(damping), as_positive_number(tolerance, "tolerance")
        most = as_count(
            MAX_ITERATIONS if max_iterations is None else max_iterations,
            "max_iterations",
            1,
            2**62,
        )
        number = check_dtype(dtype)
        by_weights = _uses_weights(graph, weighted)
        teleport = _teleport(graph, personalization)
        statistics = RunStatistics(("cpu",), "pull")
        with statistics.phase("place"):
            symmetric = _is_symmetric(graph, by_weights)
            if accelerated is not None and as_flag(accelerated, "accelerated") and not symmetric:
                raise InputError("accelerated=True needs an undirected graph")
            layout = graph.cached(
                ("pagerank", number.name if by_weights else None),
                lambda: _Layout(graph, symmetric, by_weights, number),
            )
        run = _Run(graph, layout, number, teleport, damping, tolerance)
        radius = damping if symmetric and accelerated is not False else 0.0
        if checkpoint is not None:
            with statistics.phase("checkpoint"):
                arguments = {
                    "damping": damping,
                    "tolerance": tolerance,
                    "accelerated": radius > 0,
                    "weighted": by_weights,
                    "dtype": number.name,
                    "personalization": None
                    if personalization is None
                    else _digest(personalization),
                }
                run.checkpoint = Checkpoint(
                    graph, checkpoint, checkpoint_s, arguments, weighted=by_weights
                )
        report = make_poll(options)
        with statistics.phase("run"):
            poll = None if report is None else lambda: report(run.progress)
            run.iterate(most, radius, poll)
            rank = run.ranks()
        statistics.rounds = np.array([run.iterations - run.resumed_at], np.int64)
        statistics.processed_items = statistics.rounds * len(rank)
        statistics.arcs_relaxed = statistics.rounds * len(layout.arcs.sources)
        graph.processes.report(statistics)
        return DistributedPageRankResult(
            graph, rank, statistics, run.iterations, run.change < tolerance, run.change
        )


def _listed(personalization: Mapping[Any, float]) -> list[tuple[str, float]]:
    """Return the weights of restarts in an order that does not depend on the mapping's."""
    return sorted((str(vertex), float(weight)) for vertex, weight in personalization.items())


def _digest(personalization: Mapping[Any, float]) -> str:
    """Return a hash of the weights of restarts, for files."""
    return hashlib.blake2b(repr(_listed(personalization)).encode(), digest_size=8).hexdigest()


def _uses_weights(graph: DistributedGraph, weighted: Any) -> bool:
    """Return True if weights count, after a check of the own ones."""
    weights = graph.rows.weights
    if weights is None or not uses_weights(graph, weighted):
        return False
    if len(weights) and not (weights.min() >= 0 and weights.max() < np.inf):
        raise InputError(f"{PAGERANK_NEEDS}: {WITHOUT_WEIGHTS}")
    return True


def _teleport(graph: DistributedGraph, personalization: Any) -> Array | None:
    """Return the distribution of restarts over the own vertices; None: uniform."""
    if personalization is None:
        return None
    if not isinstance(personalization, Mapping):
        raise InputError(
            "personalization of a graph on several processes must be a mapping {vertex: weight} or None, "
            f"got {shown(personalization)}"
        )
    names = list(personalization)
    given = [
        as_float(w, f"personalization of vertex {shown(v)}") for v, w in personalization.items()
    ]
    if not all(0 <= weight < math.inf for weight in given) or not any(given):
        raise InputError("personalization must be finite, not negative, and not 0 everywhere")
    graph.processes.require_same(
        _listed(personalization),
        "personalization",
        "the same mapping, of vertices of the whole graph",
    )
    graph.own_sources(names)  # raises if one does not exist
    largest = max(given)
    total = math.fsum(weight / largest for weight in given)
    teleport = np.zeros(len(graph.ids))
    found, positions = graph.ids._found(names)
    teleport[positions] = [given[index] / largest / total for index in found]
    return teleport


def _is_symmetric(graph: DistributedGraph, weighted: bool) -> bool:
    """Return True if every arc has its reverse, of equal weight if weights count."""

    def find() -> bool:
        if not graph.directed:
            return True
        rows, reverse = graph.rows, graph.in_rows
        same = np.array_equal(rows.offsets, reverse.offsets) and np.array_equal(
            rows.halo.remote, reverse.halo.remote
        )
        same = same and np.array_equal(rows.targets, reverse.targets)
        if same and weighted:
            assert rows.weights is not None
            assert reverse.weights is not None
            same = np.array_equal(rows.weights, reverse.weights)
        return bool((graph.processes.meet(int(same)) == 1).all())

    found: bool = graph.cached(("symmetric", weighted), find)
    return found


class _Layout:
    """In-arcs of the own vertices as iterations read them, and what other processes need.

    :ivar arcs: rows of in-arcs, whose sources are numbers in the shared arrays
    :ivar counts: (n) divisors of ranks, by row
    :ivar sinks: number of own vertices whose divisor is 0
    :ivar shared: two arrays of values, with a section of each process of this machine: by row, and behind
        that of the halo of other machines' processes
    :ivar halo: that halo, whose sections ascend by their owners' rows
    :ivar border_rows: the row of each vertex of its border
    """

    def __init__(
        self, graph: DistributedGraph, symmetric: bool, weighted: bool, number: np.dtype[Any]
    ) -> None:
        rows = graph.rows
        in_rows: HaloRows = rows if symmetric else graph.in_rows
        halo = in_rows.halo
        n, arcs = rows.vertex_count, len(in_rows.targets)
        arc_bytes = 2 * (number.itemsize if weighted else 0) + 4
        value_bytes = 32 * n + 2 * halo.slots * number.itemsize
        require_memory(value_bytes + arc_bytes * arcs, "preparing a graph for PageRank")
        self.threads = 1 if n + arcs < _ALONE_WORK else config.thread_count()
        offsets = narrowed(in_rows.offsets)
        contributions = np.empty(0, number)
        divisors = np.empty(0, offsets.dtype)
        if weighted:
            flows = np.zeros(halo.slots)
            contributions = self._contributions(rows, in_rows, flows, number)
            divisors = (flows[:n] > 0).astype(offsets.dtype)
        elif not symmetric:
            divisors = np.diff(rows.offsets).astype(offsets.dtype)
        out = Rows(rows.offsets, rows.targets, None)
        by_slot: InArcs = arranged(
            offsets, in_rows.targets, contributions, divisors, out,
            threads=self.threads, symmetric=symmetric, value_count=halo.slots,
        )  # fmt: skip
        self.shared = shared_arrays(halo.processes, halo.slots, number, 2)
        self.arcs, self.halo, self.border_rows = self._numbered(by_slot, halo, n)
        self.counts = self.arcs.divisors if len(divisors) else np.diff(self.arcs.offsets)
        self.sinks = int(np.count_nonzero(self.counts == 0))

    def _numbered(self, by_slot: InArcs, halo: Halo, n: int) -> tuple[InArcs, Halo, Array]:
        """Return in-arcs with sources as indices in the shared arrays, the remaining halo, and its border.

        :param by_slot: in-arcs whose sources are rows and slots
        """
        shared, processes = self.shared, halo.processes
        row_of = np.arange(n)
        if by_slot.order.size:
            row_of[by_slot.order] = np.arange(n)
        border_rows = row_of[halo.border]
        rows_there, _, _ = processes.exchange(border_rows, halo.border_counts)
        numbers = np.empty(halo.slots, id_dtype_for(shared.arrays.shape[1]))
        numbers[:n] = shared.own.start + np.arange(n)
        is_apart = shared.begins < 0
        remaining = []
        ends, border_ends = np.cumsum(halo.counts), np.cumsum(halo.border_counts)
        for other in processes.others:
            there = rows_there[ends[other] - halo.counts[other] : ends[other]]
            first = int(shared.begins[other])
            if is_apart[other]:
                first = shared.own.start + int(halo.begins[other])
                there = np.argsort(np.argsort(there))
                begin = border_ends[other] - halo.border_counts[other]
                remaining.append(np.sort(border_rows[begin : border_ends[other]]))
            slot = int(halo.begins[other])
            numbers[slot : slot + len(there)] = first + there
        border_rows = np.concatenate([border_rows[:0], *remaining])
        apart = replace(
            halo,
            counts=np.where(is_apart, halo.counts, 0),
            border_counts=np.where(is_apart, halo.border_counts, 0),
        )
        sources = by_slot.sources if processes.count == 1 else numbers[by_slot.sources]
        return replace(by_slot, sources=sources), apart, border_rows

    def _contributions(
        self, rows: HaloRows, in_rows: HaloRows, flows: Array, number: np.dtype[Any]
    ) -> Array:
        """Return the part of its source's rank that each in-arc carries; set the sums of weights.

        :param flows: gets the sum of the weights of each vertex' out-arcs, over all slots
        """
        n = rows.vertex_count
        assert in_rows.weights is not None
        own = np.zeros(n)
        nothing = np.empty(0, in_rows.weights.dtype)
        run_team(
            divide, rows.offsets, rows.weights, in_rows.offsets, in_rows.targets[:0], nothing, own,
            np.empty(0, number), threads=self.threads,
        )  # fmt: skip
        flows[:n] = own
        in_rows.halo.processes.meet()
        in_rows.halo.refresh(flows, in_rows.halo.border)
        flow = flows[in_rows.targets]
        parts = np.zeros(len(flow))
        np.divide(in_rows.weights, flow, out=parts, where=flow != 0)
        return parts.astype(number, copy=False)


class _Run:
    """Iterations, as this process sees them.

    :ivar checkpoint: where the state is saved; None: nowhere
    :ivar iterations: number of iterations so far, those before a saved state included
    :ivar resumed_at: the iteration of the saved state from which this run went on; 0: none
    :ivar change: L1 norm of the last one's change, of all vertices
    """

    def __init__(
        self, graph: DistributedGraph, layout: _Layout, number: np.dtype[Any], teleport: Array | None,
        damping: float, tolerance: float,
    ) -> None:  # fmt: skip
        self._processes = graph.processes
        self._n = graph.vertex_count
        self._layout = layout
        self._damping, self._tolerance = damping, tolerance
        arcs = layout.arcs
        if teleport is None:
            teleport = np.full(1, 1 / max(1, self._n))
        elif arcs.order.size:
            teleport = teleport[arcs.order]
        self._teleport = teleport
        self._number = number
        self._read: Array = layout.shared.arrays[0]
        self._written: Array = layout.shared.arrays[1]
        self._new[:] = 0.0  # any number: plain iterations multiply it by 0
        self._iterate = _ITERATE[arcs.contributions.size > 0, arcs.divisors.size > 0]
        self.checkpoint: Checkpoint | None = None
        self._saves = False
        self._omega = 1.0
        self._scale = 2.0**_CHANGE_BITS
        self.iterations = self.resumed_at = 0
        self.change = 0.0

    @property
    def _old(self) -> Array:
        """This process' section of the last iterate."""
        section: Array = self._read[self._layout.shared.own]
        return section

    @property
    def _new(self) -> Array:
        """This process' section of the iterate before, or of what replaces it."""
        section: Array = self._written[self._layout.shared.own]
        return section

    @property
    def progress(self) -> int:
        """Number of vertices updated so far by all processes."""
        return Progress.of_iterations(self.iterations, self._n, self.change)

    def iterate(self, most: int, radius: float, poll: Callable[[], None] | None) -> None:
        """Iterate until the ranks have converged, at most some times.

        :param radius: bound of the eigenvalues; 0 for plain iterations
        """
        if self._n == 0:
            return
        counts = self._layout.counts
        start = self._number.type(1 / self._n)
        run_team(_begin, counts, float(start), self._old, threads=self._layout.threads)
        coarse, fine = _fixed(float(start))
        sinks = self._layout.sinks
        dangling = self._meet(self._old, 0, coarse * sinks, fine * sinks)
        before, ratio = 0.0, 0.0
        saved = None if self.checkpoint is None else self.checkpoint.load()
        if saved is not None:
            if saved[0] > most:
                raise InputError(
                    f"the saved state is of iteration {saved[0]}, beyond max_iterations {most}: give more, "
                    "or another folder"
                )
            before, ratio, dangling = self._restore(*saved)
        given = self._damping, self._tolerance
        while not is_last(self.iterations, most, self.change, *given, self._omega):
            ratio, self._omega = _choose(
                self.iterations, self.change, before, ratio, *given, radius, self._omega
            )
            before = self.change
            dangling = self._step(dangling, poll)
            self.iterations += 1
            if self._saves:
                self._save(before, ratio, dangling)

    def _save(self, before: float, ratio: float, dangling: float) -> None:
        """Save the state after an iteration."""
        assert self.checkpoint is not None
        n, order = len(self._layout.counts), self._layout.arcs.order
        arrays = {"old": self._old[:n], "new": self._new[:n]}
        if order.size:  # by vertex
            for name, by_row in arrays.items():
                arrays[name] = np.empty_like(by_row)
                arrays[name][order] = by_row
        numbers = {
            "before": before,
            "ratio": ratio,
            "dangling": dangling,
            "change": self.change,
            "omega": float(self._omega),
            "scale": self._scale,
        }
        self.checkpoint.save(self.iterations, numbers, arrays)

    def _restore(
        self, step: int, numbers: dict[str, float], arrays: dict[str, Array]
    ) -> tuple[float, float, float]:
        """Go on from a saved state."""
        n, order = len(self._layout.counts), self._layout.arcs.order
        for name, values in (("old", self._old), ("new", self._new)):
            values[:n] = arrays[name][order] if order.size else arrays[name]
        self._processes.meet()
        self._layout.halo.refresh(self._old, self._layout.border_rows)
        self.iterations = self.resumed_at = step
        self.change = numbers["change"]
        self._omega, self._scale = numbers["omega"], numbers["scale"]
        return numbers["before"], numbers["ratio"], numbers["dangling"]

    def ranks(self) -> Array:
        """Return the ranks of the own vertices, in their order, scaled so that all sum to 1."""
        counts, order = self._layout.counts, self._layout.arcs.order
        n = len(counts)
        # The iterate whose change was measured; an accelerated one is the one before.
        carried = self._old if self._omega == 1.0 else self._new
        ranks = np.empty(n, self._number)
        threads = self._layout.threads
        sums = np.zeros(_WORDS * threads, np.int64)
        run_team(_finish, carried, counts, order, ranks, sums, threads=threads)
        total = _sum_of(self._processes.meet(*sums.reshape(-1, _WORDS).sum(axis=0)[:2].tolist()))
        ranks /= self._number.type(total or 1.0)
        return ranks

    def _step(self, dangling: float, poll: Callable[[], None] | None) -> float:
        """Do an iteration; return the sum of the ranks of dangling vertices."""
        arcs, layout = self._layout.arcs, self._layout
        lift = 1.0 - self._damping + self._damping * dangling
        sums = np.zeros(_WORDS * layout.threads, np.int64)
        cursors = np.zeros_like(sums)
        run_team(
            self._iterate, arcs.offsets, arcs.sources, arcs.contributions, arcs.divisors, arcs.blocks,
            arcs.sections, self._teleport, self._read, self._old, self._new, sums, cursors,
            float(self._damping), lift, float(self._omega), self._scale,
            threads=layout.threads, poll=poll,
            brief=layout.threads == 1 and len(arcs.sources) < _ALONE_WORK,
        )  # fmt: skip
        self._read, self._written = self._written, self._read
        return self._meet(self._old, *sums.reshape(-1, _WORDS).sum(axis=0)[:3].tolist())

    def _meet(self, values: Array, *sums: int) -> float:
        """Add the sums of all processes, and get the values of the halo; return the dangling ranks."""
        due = self.checkpoint is not None and self.checkpoint.is_due
        given = self._processes.meet(*sums, int(due))
        self._saves = bool(given[0, 3])
        self.change = float(int(given[:, 0].sum())) / self._scale
        dangling = _sum_of(given[:, 1:3])
        if self.change:
            exponent = math.frexp(self.change)[1]
            self._scale = 2.0 ** min(_CHANGE_BITS - exponent, _LARGEST_SCALE_BITS)
        self._layout.halo.refresh(values, self._layout.border_rows)
        return dangling


def _fixed(value: float) -> tuple[int, int]:
    """Return a number in fixed point: multiples of 1 / _COARSE, and of 1 / (_COARSE * _FINE)."""
    scaled = value * _COARSE
    coarse = int(scaled)
    return coarse, int((scaled - coarse) * _FINE)


def _sum_of(sums: Array) -> float:
    """Return the sum of fixed-point numbers as of :func:`_fixed`, one per process, rounded once."""
    coarse, fine = (int(column) for column in sums.sum(axis=0))
    return float((coarse << _FINE_BITS) + fine) * _UNIT


def _no_fixed_sum() -> Any:
    return np.int64(0), np.int64(0)


def _change_added(total: Any, value: float) -> Any:
    """Return a sum of changes, and its scale, with a change added to it."""
    return total[0] + np.int64(value * total[1]), total[1]


def _fixed_added(total: Any, value: float) -> Any:
    """Return a fixed-point sum, two integers as of :func:`_fixed`, with a number added to it."""
    scaled = value * _COARSE
    coarse = np.int64(scaled)
    return total[0] + coarse, total[1] + np.int64((scaled - np.float64(coarse)) * _FINE)


@kernel
def _begin(rank: int, size: int, control: Any, counts: Any, start: float, carried: Any) -> None:
    """Set the initial values of this thread's rows."""
    begin, end = block_range(rank, size, counts.size)
    for row in range(begin, end):
        carried[row] = start / max(counts[row], 1)


@kernel
def _iterate(
    rank: int, size: int, control: Any, offsets: Any, sources: Any, contributions: Any, divisors: Any,
    blocks: Any, sections: Any, teleport: Any, of_sources: Any, old: Any, new: Any, sums: Any, cursors: Any,
    damping: float, lift: float, omega: float, scale: float,
) -> None:  # fmt: skip
    """Do one iteration of all blocks; store the sums of changes and dangling ranks of this thread's."""
    change = (np.int64(0), scale)
    dangling = _no_fixed_sum()
    helped = 0
    while True:
        block, helped = next_block(cursors, 0, rank, size, blocks.size - 1, helped)
        if block < 0 or load_acquire(control, ABORT) != 0:
            break
        change, dangling = update_block(
            block, offsets, sources, contributions, divisors, blocks, sections, teleport, of_sources, old,
            new, damping, lift, omega, change, dangling,
        )  # fmt: skip
    sums[_WORDS * rank] = change[0]
    sums[_WORDS * rank + 1] = dangling[0]
    sums[_WORDS * rank + 2] = dangling[1]


_ITERATE = {
    (weighted, has_divisors): _iterate.bind(
        _WEIGHTED=weighted,
        _HAS_DIVISORS=has_divisors,
        no_sum=_no_fixed_sum,
        added=_fixed_added,
        change_added=_change_added,
    )
    for weighted in (False, True)
    for has_divisors in (False, True)
}


@kernel
def _finish(
    rank: int, size: int, control: Any, carried: Any, counts: Any, order: Any, ranks: Any, sums: Any
) -> None:
    """Write the ranks of this thread's rows, and their sum."""
    total = _no_fixed_sum()
    begin, end = block_range(rank, size, counts.size)
    for row in range(begin, end):
        # Accelerated iterates oscillate about their limit, which may be close to 0.
        value = max(carried[row], 0.0) * max(counts[row], 1)
        v = row if order.size == 0 else order[row]
        ranks[v] = value
        total = _fixed_added(total, np.float64(ranks[v]))
    sums[_WORDS * rank] = total[0]
    sums[_WORDS * rank + 1] = total[1]


@kernel
def _choose(
    iteration: int, change: float, before: float, ratio_before: float, damping: float, tolerance: float,
    radius: float, omega: float,
) -> Any:  # fmt: skip
    """Return what :func:`next_omega` does, with the arithmetic of compiled code."""
    return next_omega(iteration, change, before, ratio_before, damping, tolerance, radius, omega)
