"""Runs a step kernel (supersteps/step.cuh) on a graph in device order: connects the devices, drives it.

A placement keeps *plans*: for each primitive and its options a loaded kernel with its arguments. A query
writes into them what it asks for, and drives the plan. Control words and boards belong to the placement and
are shared by its plans, since queries take turns.

The structs that host and kernels share are declared here with the names and the order of ``step.cuh``; the
generated code asserts that their layouts agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError, InputError
from godwit.progress import Progress
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES, layout_checks, load
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer
from godwit.runtime.cuda.operators import DeviceFunction
from godwit.runtime.cuda.slices import LEFT, KeptOutcomes, SlicedRun, Written, nanoseconds
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions, Schedule
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.process_exchange import ProcessExchange, ReportRelay
from godwit.supersteps.results import VertexValues
from godwit.supersteps.rows import RowClass, StepRows
from godwit.trace import active, seconds_since
from godwit.worker.cuda.placement import synchronize

THREADS = 1024
STATE_WORDS = 32
STEP = STATE_WORDS - 2
"""Word of the state: supersteps so far."""
EPOCH = STATE_WORDS - 1
"""Word of the state: meetings with other devices so far, in all runs."""
_COUNTS, _AMOUNTS = 8, 4
_GOES_ON, _BEGINS, _FOLLOWS = range(3)
"""Values of ``Begin`` of step.cuh."""
_PHASE = 0x3FFFFFFF
"""Bits of a phase; the others say which blocks run it, and whether the kernel leaves before it."""

STAGE = struct_dtype("supersteps/step.cuh", "Stage")
STEP_CONTROL = struct_dtype("supersteps/step.cuh", "StepControl")
STEP_OUTCOME = struct_dtype("supersteps/step.cuh", "StepOutcome")
ROWS = struct_dtype("supersteps/step.cuh", "Rows")

_BOARD_BYTES = 2 * MAXIMAL_DEVICES * 8 * 2 * (_COUNTS + _AMOUNTS + 1)


def engine_layout_checks() -> str:
    """Return C++ that checks the engine's structs against their dtypes."""
    structs = (
        ("Stage", STAGE),
        ("StepControl", STEP_CONTROL),
        ("StepOutcome", STEP_OUTCOME),
        ("Rows<int>", ROWS),
    )
    return "\n".join(
        [
            *(layout_checks(struct, dtype) for struct, dtype in structs),
            f"static_assert(sizeof(StepBoard) == {_BOARD_BYTES});",
        ]
    )


def step_source(
    file: str,
    *,
    types: dict[str, str],
    work: str,
    enums: Sequence[type[IntEnum]] = (),
) -> str:
    """Return the source that instantiates a step kernel.

    :param file: the header that defines it, and its struct ``Arguments``, whose first member is ``stage``
    :param types: C++ types by the names that the header uses
    :param work: the device function that is the kernel, which takes the struct
    :param enums: constants that the header must define with equal names and values
    """
    usings = "\n".join(f"using {name} = {meaning};" for name, meaning in types.items())
    kinds: list[type[IntEnum]] = [RowClass, *enums]
    constants = "\n".join(
        f"static_assert({constant.name} == {constant.value});"
        for kind in kinds
        for constant in kind
    )
    return f"""#include "supersteps/step.cuh"
{usings}
#include "{file}"
{engine_layout_checks()}
{layout_checks("Arguments", struct_dtype(file, "Arguments"))}
{constants}
extern "C" __global__ void __launch_bounds__({THREADS}, 1)
work(const __grid_constant__ Arguments arguments) {{
    {work}(arguments);
}}
"""


def point_rows(member: Any, rows: StepRows) -> None:
    """Fill in a :data:`ROWS`."""
    member["offsets"] = rows.offsets.pointer
    member["targets"] = rows.targets.pointer
    member["heads"] = rows.heads.pointer
    member["classes"] = rows.classes


_SCHEDULES: dict[Schedule, tuple[str, int]] = {
    "mixed": ("MixedSchedule", 32),
    "thread": ("ThreadSchedule", 0),
    "warp": ("WarpSchedule", 0),
    "block": ("BlockSchedule", 24),
    "merge-path": ("MergePathSchedule", 16),
}
"""By name: the struct (runtime/cuda/include/schedule.cuh), and the bytes of its ``Row``."""

_LONG_ROW_ARCS = 256
"""The mixed schedule leaves longer rows to the team: as in schedule/mixed.cuh."""
_MERGE_PATH_ARC_BITS = 36
_MERGE_PATH_ROW_BITS = 64 - _MERGE_PATH_ARC_BITS
"""Bits of the word that counts rows and arcs: as in schedule/merge_path.cuh."""


def schedule_define(schedule: Schedule) -> str:
    """Return the first lines of a kernel's source, which choose a schedule; none for the default one."""
    return "" if schedule == "mixed" else f"#define SCHEDULE {_SCHEDULES[schedule][0]}\n"


def left_rows_bytes(schedule: Schedule, rows: StepRows, most_rows: int) -> int:
    """Return the size of a device's list of rows that are left to the team.

    :param rows: those that are pushed along
    :param most_rows: limit of the rows in a frontier
    :raises GraphTooLargeError: the merge path cannot count them
    """
    active = int(rows.classes[RowClass.CLASS_NONE])
    if schedule == "merge-path" and (
        active >= 1 << _MERGE_PATH_ROW_BITS or rows.arcs >= 1 << _MERGE_PATH_ARC_BITS
    ):
        raise GraphTooLargeError(
            f"schedule='merge-path' takes fewer than {1 << _MERGE_PATH_ROW_BITS:,} vertices and "
            f"{1 << _MERGE_PATH_ARC_BITS:,} arcs a device, and one has {active:,} and {rows.arcs:,}; use "
            "more GPUs, or schedule='mixed'"
        )
    left = min(most_rows, active)
    if schedule == "mixed":
        left = min(left, rows.arcs // (_LONG_ROW_ARCS + 1))
    return max(1, _SCHEDULES[schedule][1] * left)


def copies_by_host(placement: StepPlacement | StepCopies, gpu: GpuOptions) -> bool:
    """Return True if the host copies what devices send each other, between supersteps."""
    if isinstance(placement, StepCopies) or placement.device_count == 1:
        return False
    if placement.processes is not None:
        return gpu.transport == "host" or not placement.processes.reach_each_other
    return gpu.transport == "host" or not placement.reach_each_other


def refuse_selective(placement: StepPlacement, gpu: GpuOptions) -> None:
    """Raise InputError if values are to go to subscribers only, but the host copies whole ranges."""
    if gpu.communication == "selective" and copies_by_host(placement, gpu):
        raise InputError(
            "communication='selective' is not possible here: the host copies what GPUs send each other "
            "(they do not reach each other's memory, or transport='host' was asked for), and all get all; "
            "leave communication out (and duplication='all', where that was asked for)"
        )


class RunArrays:
    """Memory that all plans of a placement share: control words, boards of meetings, outcomes of launches.

    :ivar are_valid: the last run ended as it should, in all processes: all devices have counted the same
        meetings
    """

    def __init__(self, placement: StepPlacement) -> None:
        self._placement = placement
        self.control = DeviceArray(placement)
        self.board = DeviceArray(placement)
        self.outcome = DeviceArray(placement)
        self.are_valid = False

    def clear(self) -> None:
        """Clear control words and boards: a run may have left them in any state."""
        for part in self._placement.parts:
            self.control[part].fill_bytes(0)
            self.outcome.pinned_room(part, STEP_OUTCOME.itemsize).fill_bytes(0)
            for board in self.board.rooms(part):
                board.fill_bytes(0)
        self.are_valid = True


Placed = TypeVar("Placed", StepPlacement, StepCopies, StepPlacement | StepCopies)


class StepPlan(SlicedRun, Generic[Placed]):
    """A step kernel on a placement, with its arguments: made once, and driven by one query after another.

    The maker fills in the arguments, sets the hooks below and calls :meth:`lay_out`; a query writes its
    request into the arguments and calls :meth:`run`. The caller holds the placement's GPUs.

    :param source: as of :func:`step_source`
    :param arguments: (devices) structs, whose member ``stage`` is filled in here
    :param functions: a user's operators
    :param threads: of a block, if the options do not say
    :ivar exchange: how the devices reach each other's arrays
    :ivar exchange_on_host: makes the host's copies after each superstep but the last; called with its
        phase, the next phase and the state
    :ivar exchange_s: seconds that the host's copies of the latest run took
    :ivar between: called with the outcomes between two launches, when memory may be allocated
    :ivar shared_bytes: dynamic shared memory of a block
    :ivar compile_s: seconds that loading took
    """

    def __init__(
        self,
        placement: Placed,
        source: str,
        arguments: Array,
        gpu: GpuOptions,
        functions: Sequence[DeviceFunction] = (),
        threads: int = THREADS,
    ) -> None:
        super().__init__(placement, gpu)
        self.placement: Placed = placement
        self.arguments = arguments
        self._stage = {name: arguments["stage"][name] for name in STAGE.names or ()}
        self._request, self._slice = Written(), Written()
        self.functions = tuple(functions)
        self._threads = max(64, gpu.threads or threads)
        self.shared_bytes = 0
        self.exchange = self._new_exchange()
        self._run_arrays = [placed.kept(RunArrays) for placed in placement.placements]
        self._relay: ReportRelay | None = None
        # Arguments of runs that nothing has waited for, and when the first run was queued that the next one
        # adds its counts to.
        self._queued: list[Array] = []
        self._queued_at: float | None = None
        self.exchange_s = 0.0
        self.exchange_on_host: Callable[[int, int, Array], None] | None = None
        self.between: Callable[[Array], None] | None = None
        self._values: dict[tuple[int | None, int], VertexValues] = {}
        begin = perf_counter()
        delay = f"#define DELAY_NS {gpu.delay_ns}ull\n" if gpu.delay_ns else ""
        for part in placement.parts:
            self.kernels.append(load(part.index, delay + source, self.functions).kernel("work"))
        self.compile_s = seconds_since(begin, "compile")

    def lay_out(self) -> None:
        """Fill in the engine's arguments, choose launch shapes, and launch once without effect."""
        group_size = self.placement.group_size
        for number, (placement, part) in enumerate(self._members()):
            arrays = placement.kept(RunArrays)
            stage = self.arguments[number]["stage"]
            control = arrays.control.room(part, STEP_CONTROL.itemsize)
            outcome = arrays.outcome.pinned_room(part, STEP_OUTCOME.itemsize)
            stage["control"], stage["outcome"] = control.pointer, outcome.pointer
            self.outcomes.append(outcome.array(STEP_OUTCOME))
            stage["board"] = self.reachable_room(arrays.board, part, _BOARD_BYTES).pointer
            stage["stop"], stage["ended"] = self.stop_pointer, self.ended_pointer(number)
            stage["capacity"], stage["owned"] = self.placement.capacity, part.owned
            stage["patience_ns"] = nanoseconds(self.gpu.patience_s)
            stage["latency_ns"] = self.gpu.latency_ns
            stage["devices"], stage["device"] = group_size, part.device
            blocks = self.blocks_with(number, self.shared_bytes)
            self.shapes.append((blocks, self._threads, self.shared_bytes))
            arrays.are_valid = False  # a board may be new
        self._connect_boards()
        self.warm()

    def _new_exchange(self) -> Exchange:
        placement = self.placement
        by_host = copies_by_host(placement, self.gpu)
        if isinstance(placement, StepCopies) or placement.processes is None:
            return Exchange(placement, by_host=by_host)
        return ProcessExchange(placement, placement.processes, by_host=by_host)

    def _connect_boards(self) -> None:
        """Fill in where devices write their reports."""
        stages, placement = self.arguments["stage"], self.placement
        if isinstance(placement, StepCopies) or placement.processes is None:
            stages["boards"][:, : len(stages)] = stages["board"]
            return
        arrays, (part,) = placement.kept(RunArrays), placement.parts
        if self.exchange.by_host:
            stages["boards"] = stages["board"]
            board = arrays.board.pinned_room(part, _BOARD_BYTES)
            self._relay = ReportRelay(placement.processes, board, 2 * (_COUNTS + _AMOUNTS + 1))
        else:
            stages["boards"][0, : placement.device_count] = placement.addresses(arrays.board)

    def run(
        self,
        state: Array | None = None,
        *,
        phase: int = 0,
        early: bool = False,
        poll: ProgressPoll | None = None,
        behind: Callable[[], None] | None = None,
    ) -> float:
        """Run the kernel to its end; return the seconds that kernels ran.

        :param state: ``control->state`` at first, of :func:`state_words`; None: zeros
        :param phase: phase of the first superstep
        :param early: True if the first superstep accesses no other device's memory: a device then starts
            without waiting for the launches on the others
        :param behind: as of :meth:`drive`
        :raises DeviceError: a device waited for another in vain
        :raises OperatorError: an operator failed
        """
        assert behind is None or not self._queued
        queued_s = 0.0 if self._queued_at is None else perf_counter() - self._queued_at
        self._begin_run(phase, state, early=early)
        self.exchange_s = 0.0
        if self.exchange.by_host:
            self.exchange.clear()
        try:
            kernel_s = self.drive(poll, behind)
        except BaseException:
            for arrays in self._run_arrays:
                arrays.are_valid = False
            self.give_up()
            raise
        finally:
            self.drop_queue()
        return queued_s + kernel_s

    def _begin_run(self, phase: int, state: Array | None, *, early: bool) -> None:
        """Write into the arguments what a run begins with."""
        request = (phase, early, None if state is None else state.tobytes())
        if not self._request.has(request):
            stage = self._stage
            stage["first_phase"][:] = phase
            stage["early"][:] = early
            stage["first_state"][:] = 0 if state is None else state
            self._request.note(request)
        for arrays in self._run_arrays:
            if not arrays.are_valid:
                arrays.clear()

    def queue(self, state: Array, *, phase: int) -> bool:
        """Start a run of a single device behind those before it, for whose end :meth:`run` waits.

        Counts of queued runs are added to those of the run that waits. If one of them leaves since its
        slice of time is over, those behind it do nothing, and are started again when it has finished: so
        memory that their arguments point to stays where it is until :meth:`wait_for_queue` has returned.

        :param state: as of :meth:`run`, like ``phase``
        :returns: False if nothing is started: :meth:`run` must do it
        """
        number, words = len(self._queued), self.spare_end_words
        is_alone = len(self.placement.parts) == 1 and self.placement.group_size == 1
        if not is_alone or number == len(words) or active() is not None or self._faulty:
            return False
        self._begin_run(phase, state, early=False)
        self.begin_slice(self.gpu.slice_s, is_first=True)
        if self._queued_at is None:
            self._queued_at = perf_counter()
        words[number] = 0
        try:
            self._stage["ended"][:] = self.ended_pointer(1 + number)
            self._queued.append(self.arguments.copy())
            self._launches[0].start()
        finally:
            self._stage["ended"][:] = self.ended_pointer(0)
        return True

    @property
    def has_queued(self) -> bool:
        """True if runs are queued: the seconds of the next :meth:`run` include theirs."""
        return self._queued_at is not None

    def drop_queue(self) -> None:
        """Forget queued runs, which have ended: before GPUs are given back, streams are waited for."""
        self._queued, self._queued_at = [], None

    def wait_for_queue(self) -> None:
        """Wait until all queued runs have finished."""
        if not self._queued:
            return
        arguments = self.arguments.copy()
        self._synchronize()
        try:
            self.arguments[:] = self._queued.pop()
            ended = self._end_words
            ended[0] = self.spare_end_words[len(self._queued)]
            self._finish_queue(ended, [], None)
            self._go_on(ended, [], None)
        finally:
            self.arguments[:] = arguments
            self._slice = Written()

    def _finish_queue(
        self, ended: memoryview, ends: list[float], look: Callable[[], None] | None
    ) -> None:
        """Finish the queued runs, and start that of the arguments again unless it has ended."""
        queued: list[Array] = self._queued
        self._queued = []
        if ended[0]:
            return
        left: int = sum(self.spare_end_words[: len(queued)]) - 1
        last = self.arguments.copy()
        self.arguments[:] = queued[left]
        for arguments in [*queued[left + 1 :], last]:
            self._go_on(ended, ends, look)
            self.arguments[:] = arguments
            self._start_slice(_FOLLOWS, ended, ends, look)

    def _go_on(self, ended: memoryview, ends: list[float], look: Callable[[], None] | None) -> None:
        """Run the rest of a run that has left."""
        while self._statuses[0][0] == LEFT:
            self._start_slice(_GOES_ON, ended, ends, look)

    def _start_slice(
        self, begins: int, ended: memoryview, ends: list[float], look: Callable[[], None] | None
    ) -> None:
        self._slice = Written()
        self._stage["ended"][:] = self.ended_pointer(0)
        self._stage["begins"][:] = begins
        ended[0] = 0
        super()._run_slice(ended, ends, look, None)

    def begin_slice(self, slice_s: float, *, is_first: bool) -> None:
        """Write into the arguments how long the launch lasts, and whether a run begins."""
        follows = self._queued_at is not None
        begins = _GOES_ON if not is_first else _FOLLOWS if follows else _BEGINS
        asked = slice_s, begins
        if self._slice.has(asked):
            return
        # Where the host copies, a launch is one superstep.
        self._stage["slice_ns"][:] = 0 if self.exchange.by_host else nanoseconds(slice_s)
        self._stage["begins"][:] = begins
        self._slice.note(asked)

    def _run_slice(
        self,
        ended: memoryview,
        ends: list[float],
        look: Callable[[], None] | None,
        behind: Callable[[], None] | None,
    ) -> None:
        """Start the kernels, and wait for them; those of several processes start together."""
        placement = self.placement
        if isinstance(placement, StepCopies) or placement.processes is None:
            super()._run_slice(ended, ends, look, behind)
            if self._queued:
                self._finish_queue(ended, ends, look)
            return
        with placement.processes.together():
            relay = self._relay
            if relay is None:
                super()._run_slice(ended, ends, look, behind)
                return
            relay.begin(int(self.outcomes[0]["state"][0, EPOCH]))

            def start_and_relay() -> None:
                if behind is not None:
                    behind()
                (part,) = placement.parts
                mark = event_pool(part.index).record(part.stream.native)
                relay.run(lambda: bool(ended[0]) or mark.done())

            super()._run_slice(ended, ends, look, start_and_relay)
            self._synchronize()

    @cached_property
    def last_state(self) -> memoryview:
        """The words of the state with which the latest run ended, on the first device."""
        words: memoryview = self.outcomes[0]["state"][0].data
        return words

    @cached_property
    def last_amounts(self) -> memoryview:
        """The same words as floating-point numbers."""
        words: memoryview = self.outcomes[0]["state"][0].view(np.float64).data
        return words

    def values_at(
        self, location: ResultLocation, make: Callable[[], VertexValues], which: int = 0
    ) -> VertexValues:
        """Return the values of vertices that a run leaves, with a new array for the next one.

        :param make: makes them for the first query with this location
        :param which: index of the array of values, if the plan may leave results in one of several
        """
        key = location.gpu, which
        values = self._values.get(key)
        if values is None:
            values = self._values[key] = make()
        return values.begin()

    def state_pointers(self, word: int) -> list[int]:
        """Return the address of a word of ``control->state`` on each device."""
        state = int(STEP_CONTROL.fields["state"][1]) if STEP_CONTROL.fields else 0
        return [int(control) + state + 8 * word for control in self._stage["control"]]

    def close(self) -> None:
        """Free what the plan alone has."""
        self.exchange.close()

    def _members(self) -> Iterator[tuple[StepPlacement, StepPart]]:
        """Yield each device with its placement."""
        for placement in self.placement.placements:
            for part in placement.parts:
                yield placement, part

    def reachable_room(
        self, array: DeviceArray, part: StepPart, nbytes: int
    ) -> Buffer | PinnedBuffer:
        """Return a small buffer that all devices reach while kernels run: on the host if need be."""
        return (array.pinned_room if self.exchange.by_host else array.room)(part, nbytes)

    def blocks_with(self, device: int, shared_bytes: int) -> int:
        """Return how many blocks of a device's kernel run at once, with dynamic shared memory."""
        if shared_bytes:
            self.kernels[device].allow_shared(shared_bytes)
        return self.blocks_for(device, self._threads, shared_bytes)

    def progress(self, controls: Array) -> Progress:
        """Return the first of the kernels' counts."""
        return Progress(int(controls["run_counts"][:, 0].sum()))

    def reached(self, control: Any) -> dict[str, Any]:
        """Return supersteps and processed items so far."""
        return {"supersteps": control["state"][STEP], "processed_items": control["run_counts"][0]}

    def between_slices(self, controls: Array) -> None:
        """Make the host's copies, and call the primitive's hook."""
        if self.exchange.by_host:
            assert self.exchange_on_host is not None
            begin = perf_counter()
            first = controls[0]
            self.exchange_on_host(
                int(first["last_phase"]) & _PHASE, int(first["phase"]) & _PHASE, first["state"]
            )
            synchronize(self.placement.parts)
            self.exchange_s += seconds_since(begin, "exchange")
        if self.between is not None:
            self.between(controls)

    def _prepare_flag(self, place: int, value: int) -> None:
        self.arguments[place]["stage"]["prepare"] = value


class SearchSeeds:
    """The vertices from which a search begins, in pinned memory that its kernels read.

    :param arguments: (devices) structs with fields ``seeds`` and ``seed_count``
    :ivar active: of each device, the number of vertices that arcs may lead to: in an undirected graph those
        with arcs, which come first. Others are reached only if they are seeds
    """

    def __init__(self, placement: StepPlacement, arguments: Array) -> None:
        numbering = placement.numbering
        self._position, self._capacity = numbering.position, numbering.capacity
        with_arcs = numbering.classes[:, RowClass.CLASS_NONE]
        self.active: list[int] = (numbering.owned if placement.is_directed else with_arcs).tolist()
        self._results = placement.results
        self._pointers, self._counts = arguments["seeds"], arguments["seed_count"]
        self._written_count = Written()
        self._take_room(1, placement.id_dtype)

    def _take_room(self, count: int, dtype: Any) -> None:
        self._room = PinnedBuffer(count * dtype.itemsize)
        self._words = self._room.array(dtype)
        self._first = self._words.data
        self._pointers[:] = self._room.pointer

    def write(self, sources: Array) -> Array | None:
        """Write what a search begins from; return the places in the result of sources without arcs.

        None if all have some. In an undirected graph kernels keep no values of vertices without arcs; in a
        directed one of all.

        :param sources: (s) vertices, each once
        """
        count = len(sources)
        if not self._written_count.has(count):
            self._counts[:] = count
            self._written_count.note(count)
        if count == 1:  # in few steps, without NumPy's
            self._first[0] = seed = self._position.item(sources.item(0))
            owner, index = divmod(seed, self._capacity)
            return None if index < self.active[owner] else self._places(sources)
        seeds = self._position[sources]
        if count > len(self._words):
            self._room.close()
            self._take_room(count, seeds.dtype)
        self._words[:count] = seeds
        owners, indexes = np.divmod(seeds, self._capacity)
        has_none = indexes >= np.array(self.active)[owners]
        return self._places(sources[has_none]) if has_none.any() else None

    def _places(self, vertices: Array) -> Array:
        """Return the places of those vertices whose values results have in this process."""
        first, end = self._results.start, self._results.stop
        return vertices[(vertices >= first) & (vertices < end)] - first

    def close(self) -> None:
        """Free the memory."""
        self._room.close()


def target_indexes(placement: StepPlacement, target: int | None) -> list[int]:
    """Return the local index of a vertex for the part that owns it, -1 for all others and for None."""
    owner, index = -1, -1
    if target is not None:
        owner, index = divmod(placement.numbering.position.item(target), placement.capacity)
    return [index if part.device == owner else -1 for part in placement.parts]


def count_work(kept: KeptOutcomes, processed: int, arcs: int, statistics: RunStatistics) -> Array:
    """Fill in what the devices have counted.

    :param kept: outcomes of their latest launch
    :param processed: index of the count of processed items
    :param arcs: index of the count of arcs
    :returns: the outcomes
    """
    outcomes = kept.array()
    counts = outcomes["run_counts"]
    statistics.processed_items = counts[:, processed].astype(np.int64)
    statistics.arcs_relaxed = counts[:, arcs].astype(np.int64)
    statistics.rounds = outcomes["state"][:, STEP].astype(np.int64)
    return outcomes


class Searched(NamedTuple):
    """Outcome of a search.

    :param values: the distances; None: it gave up
    :param seconds: by phase
    :param gains: True if it visited so few arcs that this method is faster than others for the graph
    :param looked: number of arcs that it visited
    :param supersteps: number of supersteps; of a search by levels, of levels
    """

    values: Any
    seconds: dict[str, float]
    gains: bool
    looked: int
    supersteps: int


def state_words(state: Sequence[Any]) -> Array:
    """Return the words of ``control->state`` with which a run begins; floats are stored as their bits."""
    words = np.zeros(STATE_WORDS, np.uint64)
    for word, number in enumerate(state):
        words[word] = np.float64(number).view(np.uint64) if isinstance(number, float) else number
    return words
