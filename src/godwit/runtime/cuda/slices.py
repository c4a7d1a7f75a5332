"""Kernels that leave after a slice of time and are started again, until all have finished.

Between two slices the host looks at the clock, reports progress, and takes signals. Nothing is allocated or
loaded while kernels run, since that may wait for a kernel that waits for another.

A recorded trace gets a span for each slice of each endpoint, by the clock of the host: from before the
first launch to when the host, which waits for the endpoints in their order, has seen the endpoint's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np

from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.operators import DeviceFunction, fault_error
from godwit.runtime.cuda.types import MAXIMAL_DEVICES
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Progress, ProgressPoll
from godwit.trace import PROGRESS, Trace, active

RUNNING, FINISHED, LEFT, PEER_LOST = range(4)
"""How a launch ended: ``Status`` of runtime/cuda/include/barrier.cuh."""

_LONGEST_S = 1e9
_MOST_GPUS = 1024
_WORDS = 1 + MAXIMAL_DEVICES
_PAUSE_S = 2e-4
_CLOCK_S = 0.02
"""Where operators may stay in a loop, the host looks so often whether kernels have ended, and whether the
run is to end."""
_LOOK_S = 1e-3
"""So long the host looks for a kernel's word of its end; then it waits for the stream's, and other threads
go on."""


class _Part(Protocol):
    """One endpoint's memory and stream."""

    index: int
    stream: driver.Stream


class _Placed(Protocol):
    """Endpoints that run together."""

    indexes: list[int]

    @property
    def parts(self) -> Sequence[_Part]:
        """One an endpoint."""

    def sharing(self, index: int) -> int:
        """How many endpoints a GPU has."""


@lru_cache(maxsize=1)
def _host_words() -> driver.PinnedBuffer:
    """Of each GPU, for the run that has it as its first: whether kernels shall give up waiting for others;
    then of each endpoint whether its kernel has ended.
    """
    words = driver.PinnedBuffer(4 * _WORDS * _MOST_GPUS)
    words.fill_bytes(0)
    return words


def nanoseconds(seconds: float) -> int:
    """As kernels take a time, which may be infinite."""
    return round(min(seconds, _LONGEST_S) * 1e9)


class SlicedRun:
    """One cooperative kernel an endpoint, started slice after slice.

    A subclass fills in ``kernels``, ``arguments`` (a struct each, whose field ``prepare`` makes the kernel
    return at once), ``shapes``, and ``control_buffers``, which hold a word ``status``.

    :cvar says_ended: each kernel says by its word of the host that it stores nothing any more: so the host
        sees it sooner than by the stream
    :ivar functions: the operators of the kernels
    :ivar shapes: blocks, threads and bytes of shared memory of each launch
    """

    control_dtype: np.dtype[Any]
    says_ended = False

    def __init__(self, placement: _Placed, gpu: GpuOptions) -> None:
        self.placement = placement
        self.gpu = gpu
        self.kernels: list[driver.Kernel] = []
        self.functions: Sequence[DeviceFunction] = ()
        self.shapes: list[tuple[int, int, int]] = []
        self.control_buffers: list[driver.Buffer] = []
        self.arguments: Array = np.empty(0)

    @property
    def stop_pointer(self) -> int:
        """Where the host tells kernels to give up waiting."""
        return _host_words().pointer + 4 * _WORDS * self.placement.indexes[0]

    def ended_pointer(self, place: int) -> int:
        """Where the kernel of an endpoint says that it has ended."""
        return self.stop_pointer + 4 * (1 + place)

    @property
    def _words(self) -> Array:
        first = _WORDS * self.placement.indexes[0]
        return _host_words().array(np.uint32)[first : first + _WORDS]

    def blocks_for(self, place: int, threads: int, shared_bytes: int = 0) -> int:
        """How many blocks of an endpoint's kernel run at once.

        :raises DeviceError: not one, beside the GPU's other endpoints
        """
        index = self.placement.indexes[place]
        gpu = driver.properties(index)
        sharing = self.placement.sharing(index)
        blocks = gpu.multiprocessors * self.kernels[place].occupancy(threads, shared_bytes)
        blocks //= sharing
        if self.gpu.blocks:
            blocks = min(blocks, self.gpu.blocks)
        if blocks < 1:
            raise DeviceError(
                f"cuda:{index} has {gpu.multiprocessors} multiprocessors, too few for {sharing} "
                "endpoints"
            )
        return blocks

    def controls(self) -> Array:
        """The control words of all endpoints."""
        return np.concatenate(
            [buffer.download(self.control_dtype, 1) for buffer in self.control_buffers]
        )

    def progress(self, controls: Array) -> Progress:
        """What control words say of how far the run is."""
        raise NotImplementedError

    def warm(self) -> None:
        """Launch every kernel once: a first launch may wait for others, so it must end by itself."""
        for place, part in enumerate(self.placement.parts):
            self._prepare_flag(place, 1)
            self._ready(place).start()
            part.stream.synchronize()
            self._prepare_flag(place, 0)

    def drive(self, poll: ProgressPoll | None) -> float:
        """Slice after slice to the end; the seconds that kernels ran.

        :raises DeviceError: a device waited for another in vain
        :raises OperatorError: an operator failed
        """
        seconds = 0.0
        self._take_faults()  # of runs that were given up
        words = self._words
        ended = words[1:].data
        trace = active()
        seen = Progress(0)
        if poll is not None:
            poll(seen)  # time counts from here
        while True:
            launches = [self._ready(place) for place in range(len(self.placement.parts))]
            ends: list[float] = []
            words[1:] = 0
            begin = perf_counter()
            look = None if poll is None else partial(poll, seen)
            if trace is None:
                self._run_slice(launches, ended, ends, look)
            else:
                self._run_traced(trace, launches, begin, ended, ends, look)
            seconds += ends[-1] - begin
            faults = self._take_faults()
            controls = self.controls()
            if trace is not None:
                self._note_slice(trace, begin, ends, controls)
            status = set(controls["status"].tolist())
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
            self.between_slices(controls)
            if poll is not None:
                seen = self.progress(controls)
                poll(seen)

    def _take_faults(self) -> list[list[int]]:
        """What operators did wrong, by endpoint, for those where any did."""
        return [kernel.last_fault for kernel in self.kernels if kernel.take_fault()]

    def between_slices(self, controls: Array) -> None:
        """While no kernel runs: memory may be allocated, and arguments changed."""

    def reached(self, control: Any) -> dict[str, Any]:
        """What an endpoint's control words say of how far it is, for a trace."""
        return {}

    def _track(self, place: int) -> tuple[str, str]:
        """Where a trace has the kernels of an endpoint."""
        index = self.placement.indexes[place]
        endpoint = self.placement.indexes[:place].count(index)
        shared = self.placement.sharing(index) > 1
        return f"cuda:{index}", f"kernel of endpoint {endpoint}" if shared else "kernel"

    def _run_slice(
        self,
        launches: Sequence[driver.Launch],
        ended: memoryview,
        ends: list[float],
        look: Callable[[], None] | None,
    ) -> None:
        """Start the kernels, and wait for them in their order.

        :param ended: the words by which they say so
        :param ends: gets the time when each was seen to have ended
        :param look: raises what ends the run; called meanwhile where an operator may stay in a loop
        """
        for launch in launches:
            launch.start()
        until = perf_counter() + _LOOK_S if self.says_ended else 0.0
        for place, part in enumerate(self.placement.parts):
            while not ended[place]:
                if perf_counter() > until:
                    self._wait(place, part, look)
                    break
            ends.append(perf_counter())
        for part in self.placement.parts:  # what comes next is not to find a block about to leave
            part.stream.synchronize()

    def _wait(self, place: int, part: _Part, look: Callable[[], None] | None) -> None:
        """Wait for an endpoint's stream; where operators have loops, so that signals are seen."""
        if not self.kernels[place].faults:
            part.stream.synchronize()
            return
        due = perf_counter() + _CLOCK_S
        while not part.stream.is_done():
            sleep(_PAUSE_S)
            if look is not None and perf_counter() > due:
                look()
                due = perf_counter() + _CLOCK_S

    def _run_traced(
        self,
        trace: Trace,
        launches: Sequence[driver.Launch],
        begin: float,
        ended: memoryview,
        ends: list[float],
        look: Callable[[], None] | None,
    ) -> None:
        """A slice; of one that is interrupted, what is known is noted."""
        try:
            self._run_slice(launches, ended, ends, look)
        except BaseException as error:
            for place in range(len(self.placement.parts)):
                end = ends[place] if place < len(ends) else perf_counter()
                name = type(error).__name__
                trace.add(*self._track(place), "slice", begin, end, raised=name)
            raise

    def _note_slice(self, trace: Trace, begin: float, ends: list[float], controls: Array) -> None:
        for place, (end, control) in enumerate(zip(ends, controls, strict=True)):
            track, status = self._track(place), int(control["status"])
            ended = {FINISHED: "finished", LEFT: "left", PEER_LOST: "peer lost"}.get(status, "?")
            trace.add(*track, "slice", begin, end, ended=ended, **self.reached(control))
            if status != FINISHED:
                trace.instant(*track, ended, end)
        if set(controls["status"].tolist()) == {FINISHED}:  # before, it is what is polled
            trace.count(PROGRESS, int(self.progress(controls)), at_s=max(ends))

    def give_up(self) -> None:
        """Until no kernel is on any device, whatever happened: those that wait for others need not."""
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
                except BaseException as error:  # Ctrl-C again: the kernels are about to leave
                    interruption = error
        words[0] = 0
        if interruption is not None:
            raise interruption

    def _prepare_flag(self, place: int, value: int) -> None:
        self.arguments[place]["prepare"] = value

    def _ready(self, place: int) -> driver.Launch:
        blocks, threads, shared = self.shapes[place]
        return driver.Launch(
            self.kernels[place],
            self.placement.parts[place].stream,
            blocks=blocks,
            threads=threads,
            arguments=self.arguments[place].tobytes(),
            shared_bytes=shared,
            cooperative=True,
        )
