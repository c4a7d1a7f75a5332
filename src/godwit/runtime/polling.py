"""What the calling thread does again and again while a run lasts: time-out, progress, and the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from godwit.errors import RunTimeoutError
from godwit.progress import Progress
from godwit.runtime.cpu.compile_time import run_clock
from godwit.trace import PROGRESS, Trace

_FIRST_LOOK_S = 2e-3
"""Seconds for which a run goes on at least: less is not worth another launch."""


class CoresAreFasterError(Exception):
    """A run on GPUs ended since cores will be sooner; the caller runs it there. Users never see it.

    :ivar elapsed_s: seconds that the run took, without compilation
    """

    def __init__(self, elapsed_s: float) -> None:
        super().__init__()
        self.elapsed_s = elapsed_s


@dataclass(frozen=True)
class HandOver:
    """The time after which a run on GPUs is to end if all cores are likely to be sooner.

    Searches of long, narrow graphs keep a few threads of a GPU busy, of which each is slower than a core. A
    run that has taken as long as cores need for all of it ends if, at its pace, what is left takes longer
    than that; and after twice that time in any case, since items that are processed again look like
    progress. So a query takes at most some three times the time of the better way.

    :param cores_s: seconds that all cores need
    :param total: items of the whole run
    :param unfinished: items that the progress counts before they are done
    """

    cores_s: float
    total: int
    unfinished: int = 0


class RunPoll:
    """A function that is called with the progress of a run, and raises RunTimeoutError once time is over.

    The clock starts at the first call, and stands still during compilation. The progress never decreases: a
    run that begins again, as where one GPU had too little memory, first catches up.

    :param timeout_s: limit of the run in seconds; None for none
    :param progress: the user's function, called with the number of processed items
    :param trace: gets that number, too
    :param total: number of items of the whole run, which the user's function gets as well; None: unknown
    :param max_items: RunTimeoutError once the run has processed more items; None for no limit
    :param hand_over: ends the run with CoresAreFasterError; None: never
    :ivar before: items processed by earlier parts of the run, each of which counts from 0
    """

    def __init__(
        self,
        timeout_s: float | None,
        progress: Callable[[int], None] | None,
        trace: Trace | None,
        total: int | None = None,
        max_items: int | None = None,
        hand_over: HandOver | None = None,
    ) -> None:
        self.before = 0
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._progress = progress
        self._trace = trace
        self._total = total
        self._max_items = max_items
        self._hand_over = hand_over
        self._looked_s = 0.0
        self._processed = 0
        self._begin: float | None = None

    def __call__(self, processed: int) -> None:
        """Report the number of processed items to the user's function and the trace.

        :raises RunTimeoutError: out of time, or too many items
        :raises CoresAreFasterError: see :class:`HandOver`
        """
        if self._begin is None:
            self._begin = run_clock()
        if self.before:
            processed = self.before + processed
        processed = max(processed, self._processed)
        self._processed = int(processed)
        if self.remaining_s() < 0:
            raise RunTimeoutError(
                f"the run did not finish within {self._timeout_s:g} s ({processed} items processed)"
            )
        if self._max_items is not None and processed > self._max_items:
            raise RunTimeoutError(
                f"the run did not end within {self._max_items:,} items: it {self._so_far()}. A "
                "program whose values improve again and again around a cycle never ends; "
                "max_items=... allows more items"
            )
        if self._hand_over is not None:
            self._look_at_pace(self._hand_over, run_clock() - self._begin)
        if self._trace is not None:
            self._trace.count(PROGRESS, int(processed))
        if self._progress is not None:
            known = self._total is None
            self._progress(processed if known else Progress.of(processed, total=self._total))

    def _look_at_pace(self, hand_over: HandOver, now_s: float) -> None:
        """End the run if cores are likely to be sooner; look again after twice the time."""
        if now_s < self._next_look_s(hand_over):
            return
        done = max(0, self._processed - hand_over.unfinished)
        left = max(0, hand_over.total - done)
        if self._looked_s or left * now_s > done * hand_over.cores_s:
            raise CoresAreFasterError(now_s)
        self._looked_s = now_s

    def _next_look_s(self, hand_over: HandOver) -> float:
        return max(_FIRST_LOOK_S, hand_over.cores_s, 2 * self._looked_s)

    @contextmanager
    def noting_interruptions(self) -> Iterator[None]:
        """Add to a KeyboardInterrupt of the block how far the run was."""
        try:
            yield
        except KeyboardInterrupt as interruption:
            interruption.add_note(f"the run {self._so_far()}; timeout_s=... ends a run by itself")
            raise

    def _so_far(self) -> str:
        seconds = 0.0 if self._begin is None else run_clock() - self._begin
        return f"took {seconds:.1f} s and processed {self._processed:,} items"

    def remaining_s(self) -> float:
        """Return the seconds until the time-out, negative after it; infinity if there is none."""
        begin = run_clock() if self._begin is None else self._begin
        return self._timeout_s - (run_clock() - begin)

    def until_look_s(self) -> float:
        """Return the seconds until the next call is due: for the time-out, or for the hand-over."""
        remaining = self.remaining_s()
        if self._hand_over is None or self._begin is None:
            return remaining
        due = self._next_look_s(self._hand_over) - (run_clock() - self._begin)
        return min(remaining, due)
