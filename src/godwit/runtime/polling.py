"""What the calling thread does again and again while a run lasts: time-out, progress, and the trace."""

from __future__ import annotations

import math
from collections.abc import Callable

from godwit.errors import RunTimeoutError
from godwit.progress import Progress
from godwit.runtime.cpu.compile_time import run_clock
from godwit.trace import PROGRESS, Trace


class RunPoll:
    """A function that is called with the progress of a run, and raises RunTimeoutError once time is over.

    The clock starts at the first call, and stands still during compilation.

    :param timeout_s: limit of the run in seconds; None for none
    :param progress: the user's function, called with the number of processed items
    :param trace: gets that number, too
    :param total: number of items of the whole run, which the user's function gets as well; None: unknown
    """

    def __init__(
        self,
        timeout_s: float | None,
        progress: Callable[[int], None] | None,
        trace: Trace | None,
        total: int | None = None,
    ) -> None:
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._progress = progress
        self._trace = trace
        self._total = total
        self._begin: float | None = None

    def __call__(self, processed: int) -> None:
        """Tell the user's function and the trace how far the run is.

        :raises RunTimeoutError: out of time
        """
        if self._begin is None:
            self._begin = run_clock()
        if self.remaining_s() < 0:
            raise RunTimeoutError(
                f"the run did not finish within {self._timeout_s:g} s ({processed} items processed)"
            )
        if self._trace is not None:
            self._trace.count(PROGRESS, int(processed))
        if self._progress is not None:
            known = self._total is None
            self._progress(processed if known else Progress.of(processed, total=self._total))

    def remaining_s(self) -> float:
        """Return the seconds until the time-out, negative after it; infinity if there is none."""
        begin = run_clock() if self._begin is None else self._begin
        return self._timeout_s - (run_clock() - begin)
