"""A team of threads that run one compiled function each, together, without the GIL.

The caller waits instead of taking part, so that Ctrl-C reaches it while kernels run: it then raises
the abort word of the run's control array, joins the team and lets the exception through. Every
kernel that can take long polls that word; users' functions do in their loops (:mod:`.stopping`).

Threads are kept between runs, since starting one costs more than a small BFS. A run owns its team:
runs that are started at the same time from several Python threads get teams of their own.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from time import monotonic
from typing import Any

import numpy as np

from godwit import config
from godwit.runtime.cpu import stopping
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, store_release, yield_thread
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.stopping import RunStopped, check_running, stop, stoppable
from godwit.trace import HOST, Trace, active

# Words of a control array (int64), each on a cache line of its own.
WORDS_PER_LINE = 8
ABORT = stopping.ABORT
_BARRIER_ARRIVED = 1 * WORDS_PER_LINE
_BARRIER_EPOCH = 2 * WORDS_PER_LINE
CURSOR = 3 * WORDS_PER_LINE  # a counter for dynamic scheduling, free for the kernel's use
CONTROL_WORDS = 4 * WORDS_PER_LINE

_SPINS_BEFORE_YIELD = 4096
"""Some microseconds, which threads with equal shares do not wait for each other.

A thread that yields its core to another process may get it back milliseconds later."""

_FEW_THREADS = 16
"""Idle threads that are kept in any case: to count cores takes as long as to wake a thread."""

GRACE_S = 2.0
"""Seconds that threads may take to leave after an abort, before they are left behind."""

_teams_made = count()


def new_control() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a control array for one run: abort word, barrier and cursor, all zero."""
    return np.zeros(CONTROL_WORDS, np.int64)


def barrier(control: Any, size: int) -> bool:
    """Wait until all ``size`` threads of the team have arrived; return False if the run is to be aborted.

    For compiled code. Invariant: the last to arrive resets the count before it advances the epoch,
    and no thread arrives again before it has seen the epoch advance. An abort releases all, after
    which the control array is not used again.
    """
    epoch = load_acquire(control, _BARRIER_EPOCH)
    if fetch_add(control, _BARRIER_ARRIVED, 1) == size - 1:
        store_release(control, _BARRIER_ARRIVED, 0)
        store_release(control, _BARRIER_EPOCH, epoch + 1)
        return bool(load_acquire(control, ABORT) == 0)
    spins = 0
    while load_acquire(control, _BARRIER_EPOCH) == epoch:
        if load_acquire(control, ABORT) != 0:
            return False
        spins += 1
        if spins > _SPINS_BEFORE_YIELD:
            yield_thread()
    return bool(load_acquire(control, ABORT) == 0)


def next_range(control: Any, chunk: int, count: int) -> tuple[int, int]:
    """Return the next part [begin, end) of ``range(count)`` that no thread has taken, by the run's cursor.

    For compiled code. Empty if there is none left, or the run is to be aborted.
    """
    begin = fetch_add(control, CURSOR, chunk)
    if begin >= count or load_acquire(control, ABORT) != 0:
        return count, count
    return begin, min(begin + chunk, count)


class Team:
    """Threads that wait for work."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._process = os.getpid()
        self._first_core = next(
            _teams_made
        )  # so that teams that run at once begin on different cores
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._abandoned = False
        self._cores: list[int] = []
        self._are_bound = [False] * size
        self._threads = [
            threading.Thread(target=self._serve, args=(inbox,), name=f"godwit-{rank}", daemon=True)
            for rank, inbox in enumerate(self._inboxes)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, inbox: queue.SimpleQueue[Any]) -> None:
        while (task := inbox.get()) is not None:
            rank, function, arguments, outcomes, control = task
            self._stay_on_own_core(rank)
            try:
                with stoppable(control):
                    outcomes[rank] = (function(*arguments), None)
            except RunStopped:  # why is another's failure
                outcomes[rank] = (None, None)
            except BaseException as error:
                outcomes[rank] = (None, error)
            # The caller waits for the last one, or for a failure; it needs a core to be woken.
            if None not in outcomes or outcomes[rank][1] is not None:
                self._woken.put(None)
            del task, function, arguments, outcomes, control

    def _stay_on_own_core(self, rank: int) -> None:
        """Bind the calling thread to a core of its own, until `_leave_own_cores`.

        The system wakes several threads on the waker's core (also the one that waited for the GIL)
        and parts them only after milliseconds, when a short kernel has ended. Threads stay bound between
        runs, in which they wait.
        """
        if len(self._cores) > 1 and self.size > 1 and not self._are_bound[rank]:
            core = self._cores[(self._first_core + rank) % len(self._cores)]
            with suppress(OSError):
                os.sched_setaffinity(0, {core})
                self._are_bound[rank] = True

    def _leave_own_cores(self) -> None:
        """Let all threads run on any core again."""
        for rank in range(self.size):
            if self._are_bound[rank]:
                self._let_run_on_cores(rank)

    def _let_run_on_cores(self, rank: int) -> None:
        """Let a thread run on the cores of the thread that started the run."""
        self._are_bound[rank] = False
        with suppress(OSError):
            os.sched_setaffinity(self._threads[rank].native_id or 0, self._cores)

    def run(
        self,
        tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
        control: np.ndarray[Any, np.dtype[np.int64]],
        poll: Callable[[], None] | None = None,
        poll_interval_s: float = 0.02,
        tracks: Sequence[tuple[str, str]] | None = None,
    ) -> list[Any]:
        """Run task i on thread i; return their results in order.

        Where a trace is recorded, the time of each is noted: on a track of the host's, or on that which
        ``tracks`` says, by process and name.

        If a task raises, or the caller is interrupted, or ``poll`` (called every
        ``poll_interval_s`` in the calling thread) raises, the abort word is set, all threads are
        joined, and the first exception is raised. So it is if the calling thread itself belongs to a run
        that is to end.

        An interruption may come between any two steps of this function, so no step may matter
        alone: an outcome is noted where its thread leaves it, a lost wake-up is made good by the
        next look, and a team that was left in the middle is not used again. That happens too when
        threads do not leave after an abort, as Godwit's kernels and users' loops do: at a second
        interruption, or GRACE_S after the first failure, they are left behind.
        """
        outcomes: list[tuple[Any, BaseException | None] | None] = [None] * len(tasks)
        if poll is not None:
            # The poll may measure the time, for which this thread compiles.
            for function, arguments in {id(task[0]): task for task in tasks}.values():
                if isinstance(function, Kernel):
                    function.prepare(*arguments)
        trace = active()
        if trace is not None:
            tasks = _traced(trace, tasks, tracks)
        self._abandoned = True
        if hasattr(os, "sched_getaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            if cores != self._cores:
                is_new = not self._cores  # threads begin on the cores of the thread that made them
                self._cores = cores
                for rank in range(0 if is_new else self.size):
                    self._let_run_on_cores(rank)
        try:
            for rank, (function, arguments) in enumerate(tasks):
                self._inboxes[rank].put((rank, function, arguments, outcomes, control))
            failure = self._join(outcomes, control, poll, poll_interval_s)
        except BaseException:
            stop(control)
            raise
        self._abandoned = False
        if failure is not None:
            raise failure
        return [outcome[0] for outcome in outcomes if outcome is not None]

    def _join(
        self,
        outcomes: list[tuple[Any, BaseException | None] | None],
        control: np.ndarray[Any, np.dtype[np.int64]],
        poll: Callable[[], None] | None,
        poll_interval_s: float,
    ) -> BaseException | None:
        """Wait until all outcomes are there; return the first failure, or None."""
        failure: BaseException | None = None
        failed_at = 0.0
        while True:
            running = outcomes.count(None)
            if failure is None:
                errors = [outcome[1] for outcome in outcomes if outcome is not None]
                failure = next((error for error in errors if error is not None), None)
                if failure is not None:
                    failed_at = monotonic()
                    stop(control)
            if running == 0:
                return failure
            if failure is not None and monotonic() - failed_at > GRACE_S:
                raise failure
            try:
                self._woken.get(timeout=poll_interval_s)
            except queue.Empty:
                # A longer run: where others need a core, the system is to move the threads about.
                self._leave_own_cores()
                try:
                    if failure is None:
                        check_running()
                    if poll is not None and failure is None:
                        poll()
                except BaseException as raised:
                    failure = raised
                    failed_at = monotonic()
                    stop(control)
            except BaseException as interruption:
                if failure is not None:
                    raise
                failure = interruption
                failed_at = monotonic()
                stop(control)

    def close(self) -> None:
        """End the threads."""
        for inbox in self._inboxes:
            inbox.put(None)

    @property
    def usable(self) -> bool:
        """True if the team can run tasks in this process.

        False in a forked child, which has none of the threads, and after a run that was abandoned
        before its threads had finished.
        """
        return self._process == os.getpid() and not self._abandoned


def thread_track(rank: int) -> tuple[str, str]:
    """Return the default track of a trace for a thread of a team."""
    return HOST, f"thread {rank}"


def _traced(
    trace: Trace,
    tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
    tracks: Sequence[tuple[str, str]] | None,
) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return the tasks with their times noted by the threads that run them."""

    def timed(
        track: tuple[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        name = getattr(function, "__name__", type(function).__name__).lstrip("_")
        with trace.span(*track, name):
            return function(*arguments)

    if tracks is None:
        tracks = [thread_track(rank) for rank in range(len(tasks))]
    return [
        (timed, (track, function, arguments))
        for track, (function, arguments) in zip(tracks, tasks, strict=True)
    ]


_idle_teams: list[Team] = []
_idle_lock = threading.Lock()


class _CallingThread:
    """A team of one, the calling thread, which spares waking another."""

    def run(
        self,
        tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
        control: np.ndarray[Any, np.dtype[np.int64]],
        poll: Callable[[], None] | None = None,
        tracks: Sequence[tuple[str, str]] | None = None,
    ) -> list[Any]:
        """Run the task; return its result in a list."""
        return [function(*arguments) for function, arguments in tasks]


_calling_thread = _CallingThread()


@contextmanager
def borrowed_team(size: int, *, brief: bool = False) -> Iterator[Team | _CallingThread]:
    """Provide a team of at least ``size`` threads exclusively during the block.

    :param brief: its runs take milliseconds, so that Ctrl-C may wait for them, and have no poll: a team of
        one is then the calling thread
    """
    if brief and size == 1 and active() is None:
        yield _calling_thread
        return
    team = None
    with _idle_lock:
        for candidate in _idle_teams:
            if candidate.size >= size and candidate.usable:
                team = candidate
                _idle_teams.remove(candidate)
                break
    if team is None:
        team = Team(size)
    try:
        yield team
    finally:
        with _idle_lock:
            threads = team.size + sum(other.size for other in _idle_teams)
            are_few = threads <= _FEW_THREADS or threads <= 4 * config.thread_count()
            kept = team.usable and are_few
            if kept:
                _idle_teams.append(team)
        if not kept:
            team.close()


def run_team(
    function: Callable[..., Any],
    *arguments: Any,
    threads: int | None = None,
    control: np.ndarray[Any, np.dtype[np.int64]] | None = None,
    poll: Callable[[], None] | None = None,
    tracks: Sequence[tuple[str, str]] | None = None,
    brief: bool = False,
) -> list[Any]:
    """Call ``function(rank, size, control, *arguments)`` on ``size`` threads at once.

    :param threads: size of the team; all that the process may use by default
    :param tracks: of each thread, as for :meth:`Team.run`
    :param brief: with these arguments it takes milliseconds; see :func:`borrowed_team`
    :returns: the results by rank
    """
    size = config.thread_count() if threads is None else threads
    if control is None:
        control = new_control()
    with borrowed_team(size, brief=brief and poll is None) as team:
        tasks = [(function, (rank, size, control, *arguments)) for rank in range(size)]
        return team.run(tasks, control, poll, tracks=tracks)


def block_range(rank: int, size: int, count: int) -> tuple[int, int]:
    """Return the part [begin, end) of ``range(count)`` of thread ``rank`` of ``size``."""
    return count * rank // size, count * (rank + 1) // size
