"""Kernels that end after a slice of time and are launched again, until all have finished.

A :class:`SlicedRun` is made once and driven by one query after another: what does not depend on a query
(kernels, launch shapes, arguments) stays as it is.

Between two slices the host looks at the clock, reports progress, and serves signals. Nothing is allocated
or loaded while kernels run, since that may wait for a kernel that waits for another. What reads the results
of the kernels is started behind them, before they end: so the GPU does not wait for the host.

A recorded trace gets a span for each slice of each endpoint, by the clock of the host: from before the
first launch to when the host, which waits for the endpoints in their order, sees the endpoint's end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from time import perf_counter, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.progress import Progress
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.operators import DeviceFunction, fault_error
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.memory import Event
from godwit.runtime.polling import RunPoll
from godwit.runtime.protocol import ProgressPoll
from godwit.trace import PROGRESS, Trace, active

RUNNING, FINISHED, LEFT, PEER_LOST = range(4)
"""How a launch ended: ``Status`` of runtime/cuda/include/barrier.cuh."""

_LONGEST_S = 1e9
_SHORTEST_SLICE_S = 1e-4
_MOST_GPUS = 1024
_WORDS = 1 + MAXIMAL_DEVICES
_POLL_PAUSE_S = 2e-4
_SIGNALS_EVERY_S = 0.02
"""Seconds between queries of the stream, and between calls of the poll, if operators may not return."""
_SPIN_S = 1e-3
"""Seconds for which the host spins on kernels' end words; then it waits for events, and releases the
GIL."""


class _Part(Protocol):
    """One endpoint's memory and stream."""

    index: int
    stream: driver.Stream


class _Placed(Protocol):
    """Endpoints that run together."""

    indexes: list[int]

    @property
    def parts(self) -> Sequence[_Part]:
        """The parts of all endpoints."""

    def sharing(self, index: int) -> int:
        """Return the number of endpoints of a GPU."""


_MAKES_WORDS = threading.RLock()  # the garbage collector may run while it is held


def _host_words() -> memory.PinnedBuffer:
    """Return words that kernels and host share, for each GPU that may be the first of a run.

    The first word tells kernels to stop waiting for others; then each endpoint has one that its kernel sets
    when it ends.
    """
    # A cache alone lets two threads make them: then kernels of one write into memory that was freed.
    with _MAKES_WORDS:
        return _made_host_words()


@lru_cache(maxsize=1)
def _made_host_words() -> memory.PinnedBuffer:
    words = memory.PinnedBuffer(4 * _WORDS * _MOST_GPUS)
    words.fill_bytes(0)
    return words


def nanoseconds(seconds: float) -> int:
    """Return a time, which may be infinite, as kernels take it."""
    return round(min(seconds, _LONGEST_S) * 1e9)


class KeptOutcomes(NamedTuple):
    """Outcomes of a launch, to be read later: to copy bytes takes a tenth of the time of structs."""

    content: bytes
    dtype: np.dtype[Any]

    def array(self) -> Array:
        """Return a new array of the outcomes, by endpoint."""
        return np.frombuffer(bytearray(self.content), self.dtype)


class Written:
    """Content of the latest write to words that a kernel reads, so that equal content is not written again.

    Invariant: from before the first word is written until the last one is, nothing counts as written. So
    what an error or Ctrl-C cuts off is written again, whatever is asked next.
    """

    __slots__ = ("_content",)

    def __init__(self) -> None:
        self._content: Any = None

    def has(self, content: Any) -> bool:
        """Return True if this is what was written; if not, nothing is from now on.

        :param content: None: something that cannot be compared
        """
        if content is not None and content == self._content:
            return True
        self._content = None
        return False

    def note(self, content: Any) -> None:
        """Take note that all of it is written."""
        self._content = content


class SlicedRun:
    """One cooperative kernel for each endpoint, launched slice after slice.

    A subclass fills in ``kernels``, ``arguments`` (a struct for each endpoint; its field ``prepare`` makes
    the kernel return at once), and ``shapes``, and then calls :meth:`warm`. Launches read ``arguments``
    where they lie, so that a query changes them in place.

    Kernels set their end word when they store nothing any more, which the host sees earlier than the end of
    the stream.

    :ivar functions: the operators of the kernels
    :ivar shapes: blocks, threads and bytes of shared memory of each launch
    :ivar outcomes: of each endpoint an array of one struct with a field ``status``, in memory of the host
        that its kernel writes before it ends
    """

    def __init__(self, placement: _Placed, gpu: GpuOptions) -> None:
        self.placement = placement
        self.gpu = gpu
        self.kernels: list[driver.Kernel] = []
        self.functions: Sequence[DeviceFunction] = ()
        self.shapes: list[tuple[int, int, int]] = []
        self.outcomes: list[Array] = []
        self.arguments: Array = np.empty(0)
        self._launches: list[driver.Launch] = []
        self._faulty: list[driver.Kernel] = []  # those whose operators may fail
        self._marks: list[Event] = []

    @property
    def stop_pointer(self) -> int:
        """Address of the word that tells kernels to stop waiting."""
        return _host_words().pointer + 4 * _WORDS * self.placement.indexes[0]

    def ended_pointer(self, endpoint_index: int) -> int:
        """Return the address of the end word of an endpoint's kernel."""
        return self.stop_pointer + 4 * (1 + endpoint_index)

    @cached_property
    def _words(self) -> Array:
        first = _WORDS * self.placement.indexes[0]
        return _host_words().array(np.uint32)[first : first + 1 + len(self.placement.parts)]

    @cached_property
    def _end_words(self) -> memoryview:
        """The end words of all endpoints."""
        return self._words[1:].data

    def blocks_for(self, endpoint_index: int, threads: int, shared_bytes: int = 0) -> int:
        """Return how many blocks of an endpoint's kernel are resident at once.

        :raises DeviceError: none, beside the GPU's other endpoints
        """
        index = self.placement.indexes[endpoint_index]
        multiprocessors = driver.properties(index).multiprocessors
        sharing = self.placement.sharing(index)
        resident = self.kernels[endpoint_index].occupancy(threads, shared_bytes)
        blocks = multiprocessors * resident // sharing
        if self.gpu.blocks:
            blocks = min(blocks, self.gpu.blocks)
        if blocks < 1:
            raise DeviceError(
                f"cuda:{index} has {multiprocessors} multiprocessors, too few for {sharing} endpoints"
            )
        return blocks

    @cached_property
    def spare_end_words(self) -> memoryview:
        """End words that no endpoint has, for launches that nothing waits for."""
        first = _WORDS * self.placement.indexes[0]
        words = _host_words().array(np.uint32)
        return words[first + 1 + len(self.placement.parts) : first + _WORDS].data

    @cached_property
    def _statuses(self) -> list[memoryview]:
        """How the latest launch of each endpoint ended: its first item."""
        return [outcome["status"].data for outcome in self.outcomes]

    @cached_property
    def _outcome_bytes(self) -> list[memoryview]:
        return [outcome.view(np.uint8).data for outcome in self.outcomes]

    def kept_outcomes(self) -> KeptOutcomes:
        """Return the outcomes of the latest launch, by endpoint, as they are now."""
        return KeptOutcomes(b"".join(self._outcome_bytes), self._outcome_dtype)

    @cached_property
    def _outcome_dtype(self) -> np.dtype[Any]:
        return self.outcomes[0].dtype

    def controls(self) -> Array:
        """Return a copy of the outcomes of the latest launch, by endpoint."""
        return self.kept_outcomes().array()

    def progress(self, controls: Array) -> Progress:
        """Return the progress of the run from its control words."""
        raise NotImplementedError

    def between_slices(self, controls: Array) -> None:
        """Allocate memory and change arguments as needed, while no kernel runs."""

    def reached(self, control: Any) -> dict[str, Any]:
        """Return what a trace shows of an endpoint's control words."""
        return {}

    def warm(self) -> None:
        """Prepare the launches, and start every kernel once, alone: a first start may wait for others."""
        self._faulty = [kernel for kernel in self.kernels if kernel.faults]
        self._launches = [self._launch(index) for index in range(len(self.placement.parts))]
        for index in self.placement.indexes:
            event_pool(index)
        for endpoint_index, (part, launch) in enumerate(
            zip(self.placement.parts, self._launches, strict=True)
        ):
            self._prepare_flag(endpoint_index, 1)
            launch.start()
            part.stream.synchronize()
            self._prepare_flag(endpoint_index, 0)

    def begin_slice(self, slice_s: float, *, is_first: bool) -> None:
        """Write what the next launches need into the arguments.

        :param slice_s: seconds after which kernels end
        :param is_first: a run begins; otherwise it goes on
        """
        raise NotImplementedError

    def drive(self, poll: ProgressPoll | None, behind: Callable[[], None] | None = None) -> float:
        """Launch slice after slice until all have finished; return the seconds that kernels ran.

        :param behind: called when the kernels of a slice are started, starts what reads their results in
            the same streams; the caller waits for that of the last slice. None: all streams are done at the
            end
        :raises DeviceError: a device waited for another in vain
        :raises OperatorError: an operator failed
        """
        seconds = 0.0
        if self._faulty:
            self._take_faults()  # of runs that were given up
        ended = self._end_words
        trace = active()
        is_first = True
        if poll is not None:
            progress = Progress(0)
            poll(progress)  # the clock of time-outs starts here
        while True:
            slice_s = self.gpu.slice_s if poll is None else self._slice_s(poll)
            self.begin_slice(slice_s, is_first=is_first)
            is_first = False
            ends: list[float] = []
            for endpoint_index in range(len(ended)):
                ended[endpoint_index] = 0
            begin = perf_counter()
            look = None if poll is None else partial(poll, progress)
            try:
                self._run_slice(ended, ends, look, behind)
            except BaseException as error:
                if trace is not None:
                    self._note_interrupted(trace, begin, ends, type(error).__name__)
                raise
            seconds += ends[-1] - begin
            faults = self._take_faults() if self._faulty else []
            for words in self._statuses:
                if words[0] != FINISHED:
                    break
            else:
                if trace is None and not faults:
                    return seconds
            status = {words[0] for words in self._statuses}
            if trace is not None:
                self._note_slice(trace, begin, ends, self.controls())
            if PEER_LOST in status:
                names = ", ".join(f"cuda:{index}" for index in self.placement.indexes)
                raise DeviceError(
                    f"a device of {names} waited {self.gpu.patience_s:g} s for another at a "
                    "meeting, and the run was given up; another process may occupy one of them "
                    "(nvidia-smi shows it), and gpu=GpuOptions(patience_s=...) waits longer"
                )
            if faults:
                raise fault_error(self.functions, faults[0])
            if status == {FINISHED}:
                return seconds
            if behind is not None:
                self._synchronize()
            controls = self.controls()
            self.between_slices(controls)
            if poll is not None:
                progress = self.progress(controls)
                poll(progress)

    def _slice_s(self, poll: ProgressPoll) -> float:
        """Return the length of the next slice: it ends when the poll has to look."""
        if isinstance(poll, RunPoll):
            return min(self.gpu.slice_s, max(_SHORTEST_SLICE_S, poll.until_look_s()))
        return self.gpu.slice_s

    def _take_faults(self) -> list[list[int]]:
        """Return the fault words of the endpoints whose operators failed."""
        return [kernel.last_fault for kernel in self._faulty if kernel.take_fault()]

    def _run_slice(
        self,
        ended: memoryview,
        ends: list[float],
        look: Callable[[], None] | None,
        behind: Callable[[], None] | None,
    ) -> None:
        """Start the kernels, and wait for them in their order.

        :param ended: their end words
        :param ends: gets the time when the end of each was seen
        :param look: called while an operator may stay in a loop; raises an exception to end the run
        :param behind: as of :meth:`drive`
        """
        for launch in self._launches:
            launch.start()
        parts = self.placement.parts
        # Kept until the next launch: to free an event takes longer than to see that a word is set.
        self._marks = [event_pool(part.index).record(part.stream.native) for part in parts]
        if behind is not None:
            behind()
        until = perf_counter() + _SPIN_S
        for endpoint_index, mark in enumerate(self._marks):
            while not ended[endpoint_index]:
                if perf_counter() > until:
                    self._wait(endpoint_index, mark, look)
                    break
            ends.append(perf_counter())
        if behind is None:  # no block is still resident when the next slice starts
            self._synchronize()

    def _synchronize(self) -> None:
        for part in self.placement.parts:
            part.stream.synchronize()

    def _wait(self, endpoint_index: int, mark: Event, look: Callable[[], None] | None) -> None:
        """Wait for the end of a kernel; poll where operators have loops, to serve signals."""
        if not self.kernels[endpoint_index].faults:
            mark.wait()
            return
        due = perf_counter() + _SIGNALS_EVERY_S
        while not mark.done():
            sleep(_POLL_PAUSE_S)
            if look is not None and perf_counter() > due:
                look()
                due = perf_counter() + _SIGNALS_EVERY_S

    def _track(self, endpoint_index: int) -> tuple[str, str]:
        """Return the process and the track of a trace for the kernels of an endpoint."""
        index = self.placement.indexes[endpoint_index]
        endpoint = self.placement.indexes[:endpoint_index].count(index)
        shared = self.placement.sharing(index) > 1
        return f"cuda:{index}", f"kernel of endpoint {endpoint}" if shared else "kernel"

    def _note_interrupted(self, trace: Trace, begin: float, ends: list[float], error: str) -> None:
        for endpoint_index in range(len(self.placement.parts)):
            end = ends[endpoint_index] if endpoint_index < len(ends) else perf_counter()
            trace.add(*self._track(endpoint_index), "slice", begin, end, raised=error)

    def _note_slice(self, trace: Trace, begin: float, ends: list[float], controls: Array) -> None:
        for endpoint_index, (end, control) in enumerate(zip(ends, controls, strict=True)):
            track, status = self._track(endpoint_index), int(control["status"])
            ended = {FINISHED: "finished", LEFT: "left", PEER_LOST: "peer lost"}.get(status, "?")
            trace.add(*track, "slice", begin, end, ended=ended, **self.reached(control))
            if status != FINISHED:
                trace.instant(*track, ended, end)
        if set(controls["status"].tolist()) == {FINISHED}:  # earlier progress is noted by the poll
            trace.count(PROGRESS, int(self.progress(controls)), at_s=max(ends))

    def give_up(self) -> None:
        """Make all kernels end, and wait for that even if Ctrl-C is pressed again, which is raised then."""
        words = self._words
        words[0] = 1
        interruption: BaseException | None = None
        for kernel in self.kernels:
            try:
                with suppress(DeviceError):
                    kernel.stop_operators()
            except BaseException as error:
                interruption = error
        for part in self.placement.parts:
            waits = True
            while waits:
                try:
                    part.stream.synchronize()
                    waits = False
                except DeviceError:
                    waits = False
                except BaseException as error:  # Ctrl-C again: the kernels are about to end
                    interruption = error
        words[0] = 0
        if interruption is not None:
            raise interruption

    def _prepare_flag(self, endpoint_index: int, value: int) -> None:
        self.arguments[endpoint_index]["prepare"] = value

    def _launch(self, endpoint_index: int) -> driver.Launch:
        blocks, threads, shared = self.shapes[endpoint_index]
        return driver.Launch(
            self.kernels[endpoint_index],
            self.placement.parts[endpoint_index].stream,
            blocks=blocks,
            threads=threads,
            arguments=self.arguments[endpoint_index : endpoint_index + 1],
            shared_bytes=shared,
            cooperative=True,
        )
