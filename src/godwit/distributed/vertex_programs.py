"""Vertex programs on several processes: each relaxes the rows of its own vertices, and sends to others.

All processes work on the same bucket of priority. In a superstep each processes what it has of it, also
again and again along arcs between its own vertices, until nothing of the bucket is left in it; then it
sends what the vertices of its halo got, each once: the best value, if it has sent none as good, or the sum.
When no process has anything of the bucket left, the next one is the lowest of a vertex that waits. (Meyer
and Sanders, "Delta-stepping", J. Algorithms 49, 2003; relaxing at the receiver as in Chakaravarthy et al.,
"Scalable single source shortest path algorithms for massively parallel systems", IPDPS 2014.)

The schedule does not change the result: values that only improve have a bound, whatever the order; sums of
floating-point numbers are rounded in the order in which they are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph, by_id, kind_of
from godwit.distributed.result import DistributedScores
from godwit.dtypes import Array, frozen, id_dtype_for
from godwit.errors import InputError, ProcessError
from godwit.graph.ids import Vertex
from godwit.graph.interchange.tables import Column
from godwit.graph.rows import require_memory, thread_count_for
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.team import borrowed_team, new_control
from godwit.runtime.polling import RunPoll
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.worker.cpu import vertex_set
from godwit.worker.cpu.bins import NO_BUCKET, bucket_of
from godwit.worker.cpu.engine import worklist_operators
from godwit.worker.cpu.relax import ProgramState
from godwit.worker.cpu.vertex_set import (
    COUNT_WORDS,
    END_WORDS,
    FRONTIER,
    OUTBOX,
    OVERFLOWED,
    VertexSet,
)
from godwit.worker.cpu.worker import ARCS, FILTERED, PROCESSED, USELESS
from godwit.worker.delta import delta_for, typical_weight
from godwit.worker.options import SolverOptions, WorkerOptions, query_options
from godwit.worker.program import VertexProgram
from godwit.worker.solve import most_items, overflow_error, reset_beyond, start_array
from godwit.worker.task import Start, as_value, combined, initial_values, start_values

_ALONE_ITEMS = 512
"""Frontiers of fewer vertices are processed by one thread."""
_ALONE_VERTICES = 1 << 20
"""In parts of fewer vertices one thread looks for those that wait."""
_ANY = np.iinfo(np.int64).max


class DistributedSolution(DistributedScores):
    """The own vertices' part of the result of a vertex program."""

    value_name = "value"
    _gathered = ("_values", "fields")

    def __init__(
        self,
        graph: DistributedGraph | GpuGraph,
        values: Array,
        fields: Array | None,
        statistics: RunStatistics,
    ) -> None:
        super().__init__(graph, values, statistics)
        self.fields = fields

    @property
    def values(self) -> Array:
        """The value of each vertex in ``vertices``."""
        return self._values

    @property
    def columns(self) -> list[Column]:
        """The values and, where the program has a field, the fields."""
        fields = [] if self.fields is None else [Column("field", self.fields)]
        return [*super().columns, *fields]


@public
def run(
    program: VertexProgram,
    graph: DistributedGraph,
    start: Start = "all",
    *,
    parameters: Mapping[str, float] | None = None,
    limit: Any = None,
    target: Vertex | None = None,
    execution: str = "auto",
    timeout_s: float | None = None,
    max_items: int | None = None,
    progress: ProgressArgument = None,
    worker: WorkerOptions | None = None,
) -> DistributedSolution:
    """Run a vertex program; return values of the own vertices; see :func:`godwit.run`.

    Arrays of values have an element for each vertex of the whole graph, or for each of the own ones.
    """
    processes = graph.processes
    asked = repr(parameters), limit, target, execution, max_items, repr(worker), kind_of(start)
    with processes.running("run", getattr(program, "name", None), graph.vertex_count, *asked):
        options = query_options(
            execution=execution, timeout_s=timeout_s, progress=progress, worker=worker
        )
        if not isinstance(program, VertexProgram):
            raise InputError(f"expected a VertexProgram, got a {type(program).__name__}")
        if program.combine not in ("min", "max") and (limit is not None or target is not None):
            raise InputError("limit and target are for programs that combine by min or max")
        begins = own_start(graph, start)
        place = None if target is None else int(graph.positions([target], "target")[0])
        poll = RunPoll(
            options.timeout_s,
            options.progress,
            None,
            max_items=most_items(max_items, graph.vertex_count),
        )
        with poll.noting_interruptions():
            return solve(
                program, graph, begins, options, parameters=parameters, limit=limit, target=place,
                poll=poll,
            )  # fmt: skip


def own_start(graph: DistributedGraph, start: Any) -> Start:
    """Return the initial work of the own vertices: "all", their values, or a mapping of their numbers."""
    if isinstance(start, str) and start == "all":
        return "all"
    own = graph.vertices
    start = by_id(start, "start")
    if not isinstance(start, Mapping):
        shape = np.shape(start)
        values = start_array(start, len(own) if shape == (len(own),) else graph.vertex_count)
        return values if shape == (len(own),) else values[own.start : own.stop]
    positions = graph.positions(list(start), "a vertex of start")
    if len(np.unique(positions)) < len(positions):
        raise InputError("start names a vertex twice")
    here = np.flatnonzero((positions >= own.start) & (positions < own.stop))
    given = list(start.values())
    graph.processes.require_same(given, "the mapping of values of start", "the same mapping")
    return {int(positions[i]) - own.start: given[i] for i in here.tolist()}


def solve(
    program: VertexProgram,
    graph: DistributedGraph,
    start: Start,
    options: SolverOptions,
    *,
    limit: Any = None,
    target: int | None = None,
    parameters: Mapping[str, float] | None = None,
    poll: ProgressPoll | None = None,
) -> DistributedSolution:
    """Run a vertex program, with checked arguments, within a block of :meth:`Processes.running`.

    :param start: initial work, by numbers of own vertices
    :param target: a position in the whole graph
    """
    statistics = RunStatistics(
        ("cpu",), "bulk-synchronous" if options.in_steps else "delta-stepping"
    )
    delta = options.worker.delta
    if delta is None:
        delta = _choose_delta(program, graph)
    statistics.delta = None if program.priority is None else delta
    run = _Run(
        program, graph, start, delta, limit=limit, target=target, parameters=parameters,
        in_steps=options.in_steps, poll=poll,
    )  # fmt: skip
    with statistics.phase("run"):
        run.run()
    run.report(statistics)
    values = run.values
    if program.combine in ("min", "max") and not (limit is None and target is None):
        reset_beyond(program, values, run.limit)
    fields = run.fields if program.field_dtype is not None else None
    return DistributedSolution(graph, values, fields, statistics)


def _choose_delta(program: VertexProgram, graph: DistributedGraph) -> float:
    """Return the width of buckets, as :func:`godwit.worker.delta.choose_delta`; all processes call it."""
    if program.priority is None:
        return 1.0
    weights = graph.rows.weights if program.operators.uses_weight else None

    def measure() -> tuple[float, float]:
        log = 0.0 if weights is None else math.log(typical_weight(weights))
        with_arcs = int(np.count_nonzero(np.diff(graph.rows.offsets)))
        parts = graph.processes.share((log, len(graph.rows.targets), with_arcs))
        arcs = max(1, graph.arc_count)
        length = math.exp(sum(log * part for log, part, _ in parts) / arcs)
        return length, graph.arc_count / max(1, sum(vertices for _, _, vertices in parts))

    length, degree = graph.cached(("delta", weights is None), measure)
    return delta_for(length, degree, integers=program.dtype.kind in "iu")


@dataclass
class _Kernels:
    """The compiled parts of a run."""

    find: Kernel
    open: Kernel
    relax: Kernel
    take_in: Kernel


def _kernels(program: VertexProgram, *, weighted: bool) -> _Kernels:
    """Return the kernels with the program's operators, made once."""
    operators = program.operators
    key = ("set", weighted)
    made: _Kernels | None = operators.compiled.get(key)
    if made is None:
        shared = worklist_operators(
            operators, shared=True, weighted=weighted, item_bytes=16, has_halo=True
        )
        bindings = {
            **shared.bindings,
            "in_buckets": vertex_set.in_buckets,
            "push_local": vertex_set.push_local,
            "send_halo": vertex_set.send_halo,
            "note_overflow": vertex_set.note_overflow,
        }
        if bindings["priority"] is None:
            del bindings["priority"]
            bindings["in_buckets"] = vertex_set.in_one_bucket
        made = operators.compiled[key] = _Kernels(
            vertex_set.find_lowest.bind(**bindings),
            vertex_set.open_bucket.bind(**bindings),
            vertex_set.relax_frontiers.bind(**bindings),
            vertex_set.take_in_messages.bind(**bindings),
        )
    return made


class _Run:
    """The part that one process has in a run.

    :ivar values: of the own vertices
    :ivar fields: of the own vertices, or empty
    """

    def __init__(
        self,
        program: VertexProgram,
        graph: DistributedGraph,
        start: Start,
        delta: float,
        *,
        limit: Any,
        target: int | None,
        parameters: Mapping[str, float] | None,
        in_steps: bool,
        poll: ProgressPoll | None,
    ) -> None:
        self._program, self._graph = program, graph
        self._processes = graph.processes
        rows, dtype = graph.rows, program.dtype
        self._halo = rows.halo
        n, slots = rows.vertex_count, rows.halo.slots
        outside = slots - n
        item_bytes = 2 * dtype.itemsize + 3 * rows.targets.itemsize
        require_memory(slots * item_bytes, f"running {program.name!r} on {n:,} vertices")
        weighted = program.operators.uses_weight and rows.weights is not None
        self._kernels = _kernels(program, weighted=weighted)
        self._check_equal(self._kernels.relax.key)
        self.values, waiting = self._initial(start)
        self.fields = np.empty(0, program.field_dtype or dtype)
        if program.field_dtype is not None:
            self.fields = initial_part(graph, program.field_initial, 0, program.field_dtype)
        worst = program.identity if limit is None else as_value(program, limit, "limit")
        self._limit = np.array([worst], dtype)
        own = graph.vertices
        local = -1 if target is None or target not in own else target - own.start
        if local >= 0:
            self._limit[0] = combined(program, self._limit[0], self.values[local])
        self._has_target = target is not None
        self._halo_values = np.full(outside, program.identity, dtype)
        weights = rows.weights if weighted and rows.weights is not None else np.zeros(1, np.int32)
        nothing = np.empty(0, rows.targets.dtype)
        self._state = ProgramState(
            offsets=frozen(rows.offsets),
            targets=frozen(rows.targets),
            weights=frozen(weights),
            owned=n,
            vertices=frozen(graph.cached("positions", lambda: _positions(graph))),
            halo_owner=frozen(nothing),
            halo_remote=frozen(nothing),
            values=self.values,
            halo_values=self._halo_values,
            pending=np.empty(0, np.uint8),
            field=self.fields,
            limit=self._limit,
            target=local,
            parameters=program.parameter_values(parameters),
        )
        self._threads = thread_count_for(len(rows.targets))
        self._counts = np.zeros((self._threads, COUNT_WORDS), np.int64)
        self._ends = np.zeros(END_WORDS, np.int64)
        self._due = np.zeros(1)
        self._dirty = np.zeros(outside // 64 + 1, np.int64)
        self._outbox = np.empty(outside + 1, rows.targets.dtype)
        queued = np.zeros(len(waiting), np.int64)
        frontiers = np.empty(2 * (n + 1), rows.targets.dtype)
        self._sets = [
            VertexSet(
                counts=counts,
                ends=self._ends,
                waiting=waiting,
                queued=queued,
                dirty=self._dirty,
                frontiers=frontiers,
                outbox=self._outbox,
                due=self._due,
                buckets_per_unit=1.0 / delta,
            )
            for counts in self._counts
        ]
        self._rounds = 1 if in_steps else _ANY
        self._lowest = np.zeros((self._threads, 8))
        self._is_small = n < _ALONE_VERTICES
        self._elsewhere = 0
        self._poll: Callable[[], None] | None = (
            None if poll is None else lambda: poll(self._elsewhere + self._count(PROCESSED))
        )
        self._steps = self._buckets = 0

    @property
    def limit(self) -> Any:
        """The value that all values are compared with in the end."""
        return self._limit[0]

    def run(self) -> None:
        """Work until no process has anything to do."""
        while True:
            bucket = self._next_bucket()
            if bucket == NO_BUCKET:
                return
            self._buckets += 1
            while True:
                self._relax()
                if not self._exchange():
                    break

    def report(self, statistics: RunStatistics) -> None:
        """Write counts of the run into its statistics; all processes call it."""
        statistics.processed_items = np.array([self._count(PROCESSED)])
        statistics.useless_items = np.array([self._count(USELESS)])
        statistics.filtered_items = np.array([self._count(FILTERED)])
        statistics.arcs_relaxed = np.array([self._count(ARCS)])
        statistics.rounds = np.array([self._steps])
        statistics.levels = self._buckets
        self._processes.report(statistics)

    def _count(self, word: int) -> int:
        return int(self._counts[:, word].sum())

    def _check_equal(self, key: str) -> None:
        """Raise ProcessError if the processes have different programs, such as of other constants."""
        keys = self._processes.share(key)
        differs = next((rank for rank, other in enumerate(keys) if other != keys[0]), None)
        if differs is not None:
            raise ProcessError(
                f"processes 0 and {differs} have different programs {self._program.name!r}: operators, "
                "and constants that they use, must be the same in all processes"
            )

    def _initial(self, start: Start) -> tuple[Array, Array]:
        """Return initial values, and the bitmap of vertices that are to be processed."""
        program, graph = self._program, self._graph
        n = graph.rows.vertex_count
        initial = start if isinstance(start, np.ndarray) else program.initial
        values = initial_part(graph, initial, program.identity, program.dtype)
        seeds = np.arange(n)
        if isinstance(start, Mapping):
            given = np.fromiter(start, np.int64, len(start))
            values[given] = combined(program, values[given], start_values(program, start))
            # Where values accumulate, initial values may be active themselves: all are examined.
            if program.combine != "add" or program.initial is None:
                seeds = given
        bits = np.zeros(64 * (n // 64 + 1), np.bool_)
        bits[seeds] = True
        return values, np.packbits(bits, bitorder="little").view(np.int64)

    def _next_bucket(self) -> int:
        """Return the lowest bucket of a vertex that waits in any process, whose vertices are due now."""
        self._team(self._kernels.find, self._lowest, small=self._is_small)
        lowest = self._lowest[: 1 if self._is_small else self._threads]
        own = int(bucket_of(lowest[:, 0].min(), 1.0)) if lowest[:, 1].any() else NO_BUCKET
        bucket = int(self._meet(own).min())
        if bucket != NO_BUCKET:
            self._due[0] = vertex_set.end_of_bucket(bucket)
            self._team(self._kernels.open, small=self._is_small)
        return bucket

    def _relax(self) -> None:
        """Process what is due, as far as it can be done here."""
        rounds = self._rounds
        while self._ends[FRONTIER] and rounds:
            small = self._ends[FRONTIER] <= _ALONE_ITEMS
            alone = small and self._threads > 1 and rounds == _ANY
            self._team(
                self._kernels.relax, _ALONE_ITEMS if alone else _ANY, rounds, small=small
            )  # fmt: skip
            self._check_overflow()
            rounds -= self._rounds == 1
        self._steps += 1

    def _exchange(self) -> bool:
        """Send what the halo has got, take in what others send; return True if something is due still."""
        halo, values = self._halo, self._halo_values
        n = len(self.values)
        outgoing = self._outbox[: int(self._ends[OUTBOX])]
        outgoing.sort()  # by owner
        self._ends[OUTBOX] = 0
        self._dirty[outgoing >> 6] = 0  # all bits of these words are of vertices that are sent now
        slots = outgoing + outgoing.dtype.type(n)
        targets, messages = halo.to_owners(slots, values[outgoing])
        if self._program.combine == "add":
            values[outgoing] = 0
        if len(targets):
            self._team(self._kernels.take_in, targets, messages, small=True)
            self._check_overflow()
        if self._poll is not None:
            self._poll()
        return bool(self._meet(int(self._ends[FRONTIER])).any())

    def _meet(self, number: int) -> Array:
        """Return the numbers of all processes; agree on the limit, and on how much has been processed."""
        processed = self._count(PROCESSED)
        bits = np.int64 if self._limit.itemsize == 8 else np.int32
        given = self._processes.meet(number, int(self._limit.view(bits)[0]), processed)
        self._elsewhere = int(given[:, 2].sum()) - processed
        if self._has_target:
            limits = given[:, 1].astype(bits).view(self._limit.dtype)
            self._limit[0] = limits.min() if self._program.combine == "min" else limits.max()
        return given[:, 0].copy()

    def _check_overflow(self) -> None:
        if self._ends[OVERFLOWED]:
            raise overflow_error(self._program)

    def _team(self, function: Kernel, *arguments: Any, small: bool) -> None:
        """Run a kernel on the threads of this process."""
        size = 1 if small else self._threads
        control = new_control()
        with borrowed_team(size, brief=small and self._poll is None) as team:
            tasks = [
                (function, (rank, size, control, self._sets[rank], self._state, *arguments))
                for rank in range(size)
            ]
            team.run(tasks, control, self._poll)


def _positions(graph: DistributedGraph) -> Array:
    """Return the positions of the own vertices in the whole graph."""
    own = graph.vertices
    return np.arange(own.start, own.stop, dtype=id_dtype_for(graph.vertex_count))


def initial_part(
    graph: DistributedGraph, initial: Any, identity: Any, dtype: np.dtype[Any]
) -> Array:
    """Return initial values or fields of the own vertices, a new array."""
    own = graph.vertices
    vertices, count = np.arange(own.start, own.stop), graph.vertex_count
    if not callable(initial) and initial is not None and np.shape(initial) == (len(own),):
        vertices, count = np.arange(len(own)), len(own)
    made = initial_values(initial, identity, vertices, count, dtype)
    return np.array(np.broadcast_to(made, len(own)), dtype)
