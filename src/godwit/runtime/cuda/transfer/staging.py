"""The staging pool: threads of the process that copy between ordinary host memory and all GPUs.

Copy engines of GPUs reach page-locked memory only. The driver copies from and to ordinary memory through
one small buffer of its own, at a seventh of the bus's speed; page-locking users' memory takes longer than
copying it (benchmarks/staging.py). Here each thread has some page-locked *slots*: while a piece is on the
bus, the thread fills or empties another slot.

All who copy share the pool, whose memory is bounded. Copies of one GPU and direction are queued. The
threads are two *teams*. One has the queue up of the first GPU that the process uses and that down of the
second, the other one that up of the second and that down of the first; further GPUs alternate. For the more
cores write what a GPU reads, the more slowly it reads, and who empties slots has to wait for new pages. The
threads of a team take pieces from its queues by turns, so all buses are busy in both directions. They run
compiled code (:func:`_serve`) from start to end, without the interpreter's lock: a piece costs a few
microseconds, and 90 GB/s are 45,000 pieces a second. They sleep on a semaphore while there is nothing to
copy.

Invariants: a copy is queued after the events that it waits for, so no thread ever waits for anything but
the bus. The words of a copy are the pool's until it is finished; finishing it is the last that a thread
does with them. The words of a team are changed while its lock is held, but for the count of a queue,
which is atomic.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from time import sleep
from typing import Any

import numpy as np

from godwit import config
from godwit.errors import DeviceError
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    store_release,
    yield_thread,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.native import (
    add_to_word,
    call,
    clock_gettime,
    copy_bytes,
    load_word,
    sem_init,
    sem_post,
    sem_wait,
    store_word,
    usleep,
)
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import PinnedBuffer
from godwit.runtime.memory import Event

PIECE_BYTES = 2 << 20
"""Largest piece of a copy, and size of a slot: pieces of 1 MiB are 7 % slower, of 512 KiB 40 %.

Also the size of a huge page. Pieces into host memory end at its multiples: of threads that touch a new page
at once, each zeroes a whole one, and only one of these is used.
"""
LEAST_PIECE_BYTES = 512 << 10
"""Smallest piece of a larger copy to a GPU: threads share it."""
TEAMS = 2
TEAM_SLOTS = 24
"""Slots of a team, which its threads share out: while one is on the bus, others are filled or emptied."""
SPARE_SLOTS = 2
"""Slots of a team that pieces of one queue never take: its bus may stand still. With 18 of 24 under way at
once instead of 22, one GPU is 5 % slower (benchmarks/RESULTS.md)."""
MANY_CORES = 24
MANY_THREADS = 12
FEW_THREADS = 8
"""Most threads of a team where the process has so many cores, and else: with 12 on 16 cores, two GPUs are a
sixth slower. One GPU is as fast with 8 threads of 3 slots as with 12 of 2."""
_MOST_GPUS = 64

_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_WITHOUT_TIMES = 0x02  # cudaEventDisableTiming
_MONOTONIC = 1  # the clock of time.perf_counter
_PAUSE_US = 10
_LOOKS = 200  # of a thread with nothing to do, before it sleeps
_WAITS = 400  # pauses of one call of _await: so soon Ctrl-C is noticed
_ORDER_PAUSE_S = 2e-5
_ENDED_BEFORE = "the process ended before it was copied"


class Way(IntEnum):
    """Direction of a copy: from the host to a GPU, from a GPU to the host, or within the host."""

    UP = 0
    DOWN = 1
    WITHIN_HOST = 2


# Bytes of a copy's words from its address.
_TO, _ORIGIN, _NBYTES, _WAY, _GPU, _PIECE = range(0, 48, 8)
_CLAIMED, _LEFT, _STATUS, _NEXT, _BEGAN, _ENDED, _FINISHED, _GIVEN = range(48, 112, 8)
_COPY_WORDS = 14

# Words of a team. Its queues are lists that are linked by _NEXT.
_LOCK = 0
_QUEUED = 8  # copies with pieces that no thread has claimed
_ASLEEP = 9
_USED = 10  # queues from the first on that were ever used
_STOP = 11
_BELL = 16  # the semaphore on which idle threads sleep, of 32 bytes
_MOST = 12  # pieces of a queue that may be under way
_QUEUES = 24
_FIRST, _LAST, _UNDER_WAY, _QUEUE_WORDS = range(4)  # of a queue: two copies, a count
_TEAM_WORDS = _QUEUES + _QUEUE_WORDS * (2 * _MOST_GPUS + 1)
_CLOCK_WORDS = 8  # of each thread, behind those

# Columns of a thread's slots.
_ADDRESS, _COPY, _HOST, _LENGTH = range(4)
_SLOT_WORDS = 4

# Functions of the driver, by their place in an array of addresses.
_COPY_ASYNC, _RECORD_EVENT, _QUERY_EVENT, _SET_CONTEXT = range(4)


def _lock(team: Any) -> None:
    spins = 0
    while not compare_exchange(team, _LOCK, 0, 1):
        spins += 1
        if spins > 100:
            yield_thread()


def _unlock(team: Any) -> None:
    store_release(team, _LOCK, 0)


def _now(clock: int) -> int:
    """Return the time in nanoseconds, by 16 bytes of room at an address."""
    clock_gettime((_MONOTONIC, clock))
    seconds: int = load_word(clock)
    rest: int = load_word(clock + 8)
    return seconds * 1_000_000_000 + rest


def _queue_of(way: int, gpu: int) -> int:
    """Return the index of a queue: 0 for copies within the host, then each GPU's copies up, and down."""
    return 0 if way == Way.WITHIN_HOST else 1 + 2 * gpu + way


def _claim(team: Any, turn: int) -> tuple[int, int, int, int]:
    """Claim the next piece of a queue, trying them from ``turn`` on.

    Returns the copy, where the piece begins and its length, and the next turn; 0 for no copy. What is left
    of a copy that failed is claimed as one piece. A queue with many pieces under way is passed over: its
    bus has enough to do, or stands still.
    """
    if load_acquire(team, _QUEUED) == 0:
        return 0, 0, 0, turn
    _lock(team)
    copy = begin = length = 0
    used = team[_USED]
    for step in range(used):
        queue = (turn + step) % used
        place = _QUEUES + _QUEUE_WORDS * queue
        copy = team[place + _FIRST]
        if load_acquire(team, place + _UNDER_WAY) >= team[_MOST]:
            copy = 0
        if copy != 0:
            nbytes, begin = load_word(copy + _NBYTES), load_word(copy + _CLAIMED)
            length = nbytes - begin
            if load_word(copy + _STATUS) == 0:
                piece = load_word(copy + _PIECE)
                if load_word(copy + _WAY) != Way.UP:
                    piece -= (load_word(copy + _TO) + begin) % piece
                length = min(length, piece)
            store_word(copy + _CLAIMED, begin + length)
            if begin + length == nbytes:
                team[place + _FIRST] = load_word(copy + _NEXT)
                store_release(team, _QUEUED, team[_QUEUED] - 1)
            fetch_add(team, place + _UNDER_WAY, 1)
            turn = queue + 1
            break
    _unlock(team)
    return copy, begin, length, turn


def _finish(team: Any, copy: int, length: int, status: int, clock: int) -> None:
    """Note that a piece has arrived, or why not; the last piece finishes the copy."""
    queue = _queue_of(load_word(copy + _WAY), load_word(copy + _GPU))
    fetch_add(team, _QUEUES + _QUEUE_WORDS * queue + _UNDER_WAY, -1)
    if status != 0:
        store_word(copy + _STATUS, status)
    if add_to_word(copy + _LEFT, -length) == length:
        store_word(copy + _ENDED, _now(clock))
        store_word(copy + _FINISHED, 1)


@kernel
def _serve(
    team: Any,
    slots: Any,
    events: Any,
    streams: Any,
    contexts: Any,
    functions: Any,
    clock: int,
    bell: int,
) -> None:
    """Copy pieces until the pool is closed; one thread's.

    :param slots: a row of words for each slot
    :param events: by GPU and slot
    :param streams: by GPU and way; all threads use them, so pieces arrive in their order
    :param functions: addresses of functions of the driver
    :param clock: address of 16 bytes
    :param bell: address of the team's semaphore
    """
    current = -1  # the thread's GPU
    turn = looks = 0
    while True:
        has_moved, is_busy, free = False, False, -1
        for slot in range(len(slots)):
            copy = slots[slot, _COPY]
            if copy != 0:
                gpu = load_word(copy + _GPU)
                if gpu != current:
                    call(functions[_SET_CONTEXT], (contexts[gpu],))
                    current = gpu
                status = call(functions[_QUERY_EVENT], (events[gpu, slot],))
                if status == _NOT_READY:
                    is_busy = True
                    continue
                length = slots[slot, _LENGTH]
                if status == 0 and load_word(copy + _WAY) == Way.DOWN:
                    copy_bytes(slots[slot, _HOST], slots[slot, _ADDRESS], length)
                slots[slot, _COPY] = 0
                _finish(team, copy, length, status, clock)
                has_moved = True
            free = slot
        if free >= 0:
            copy, begin, length, turn = _claim(team, turn)
            if copy != 0:
                has_moved = True
                to, origin = load_word(copy + _TO) + begin, load_word(copy + _ORIGIN) + begin
                way, status = load_word(copy + _WAY), load_word(copy + _STATUS)
                if begin == 0:
                    store_word(copy + _BEGAN, _now(clock))
                if status != 0:
                    _finish(team, copy, length, status, clock)
                elif way == Way.WITHIN_HOST:
                    copy_bytes(to, origin, length)
                    _finish(team, copy, length, 0, clock)
                else:
                    gpu, place = load_word(copy + _GPU), slots[free, _ADDRESS]
                    if gpu != current:
                        call(functions[_SET_CONTEXT], (contexts[gpu],))
                        current = gpu
                    if way == Way.UP:
                        copy_bytes(place, origin, length)
                        origin = place
                    else:
                        slots[free, _HOST] = to
                        to = place
                    stream = streams[gpu, way]
                    status = call(functions[_COPY_ASYNC], (to, origin, length, stream))
                    if status == 0:
                        status = call(functions[_RECORD_EVENT], (events[gpu, free], stream))
                    if status == 0:
                        slots[free, _LENGTH] = length
                        slots[free, _COPY] = copy
                    else:
                        _finish(team, copy, length, status, clock)
        if has_moved:
            looks = 0
        elif is_busy or load_acquire(team, _QUEUED) != 0:  # pieces that no queue gives out yet
            usleep((_PAUSE_US,))
        elif looks < _LOOKS:
            looks += 1
            yield_thread()
        else:
            looks = 0
            _lock(team)
            is_over = team[_STOP] != 0
            sleeps = team[_QUEUED] == 0 and not is_over
            if sleeps:
                team[_ASLEEP] += 1
            _unlock(team)
            if is_over:
                return
            if sleeps:
                while sem_wait((bell,)) != 0:
                    pass


@kernel
def _submit(team: Any, queue: int, copy: int, pieces: int, bell: int) -> None:
    """Queue a copy, and wake threads for its pieces."""
    store_word(copy + _GIVEN, 1)
    _lock(team)
    place = _QUEUES + _QUEUE_WORDS * queue
    if team[place + _FIRST] == 0:
        team[place + _FIRST] = copy
    else:
        store_word(team[place + _LAST] + _NEXT, copy)
    team[place + _LAST] = copy
    team[_USED] = max(team[_USED], queue + 1)
    store_release(team, _QUEUED, team[_QUEUED] + 1)
    woken = min(team[_ASLEEP], pieces)
    team[_ASLEEP] -= woken
    _unlock(team)
    for _ in range(woken):
        sem_post((bell,))


@kernel
def _stop(team: Any, bell: int) -> None:
    """End all threads, once nothing is queued."""
    _lock(team)
    team[_STOP] = 1
    woken = team[_ASLEEP]
    team[_ASLEEP] = 0
    _unlock(team)
    for _ in range(woken):
        sem_post((bell,))


@kernel
def _make_bell(bell: int) -> int:
    """Initialize the semaphore; return 0 on success."""
    outcome: int = sem_init((bell, 0, 0))
    return outcome


@kernel
def _await(copy: int, pauses: int) -> bool:
    """Wait until a copy is finished, or for ``pauses`` of _PAUSE_US; return True if it is finished."""
    is_finished: bool = load_word(copy + _FINISHED) != 0
    for _ in range(pauses):
        if is_finished:
            break
        usleep((_PAUSE_US,))
        is_finished = load_word(copy + _FINISHED) != 0
    return is_finished


class StagedCopy:
    """Event of a copy by the staging pool, which starts it; done when all of it has arrived.

    :param way: from where to where
    :param index: the GPU; 0 for copies within the host
    :param to: an address
    :param origin: another one
    :param note: called with the copy by the first look that finds it finished
    """

    def __init__(
        self, way: Way, index: int, to: int, origin: int, nbytes: int,
        note: Callable[[StagedCopy], None] | None = None,
    ) -> None:  # fmt: skip
        self.way = way
        self.index = index
        self.nbytes = nbytes
        self._words = words = np.zeros(_COPY_WORDS, np.int64)
        words[_TO // 8], words[_ORIGIN // 8] = to, origin
        words[_NBYTES // 8] = words[_LEFT // 8] = nbytes
        words[_WAY // 8], words[_GPU // 8] = way, index
        self.address = int(words.ctypes.data)
        """Address of the words that the staging threads read and write."""
        self._is_finished = False
        self._failure: BaseException | None = None
        self._notes = [] if note is None else [note]

    def cut(self, piece_bytes: int) -> int:
        """Set the largest size of pieces; return their number, or one less if the first is shorter."""
        self._words[_PIECE // 8] = piece_bytes
        return -(-self.nbytes // piece_bytes)

    @property
    def is_given(self) -> bool:
        """True if threads were given it."""
        return bool(self._words[_GIVEN // 8])

    @property
    def times_s(self) -> tuple[float, float]:
        """When the first piece was taken and the last had arrived, in the time of ``time.perf_counter``."""
        return self._words[_BEGAN // 8] / 1e9, self._words[_ENDED // 8] / 1e9

    @property
    def is_finished(self) -> bool:
        """True if nothing of it is under way any more, also if it failed."""
        if not self._is_finished and _await(self.address, 0):
            status = int(self._words[_STATUS // 8])
            try:
                what = f"copying {self.nbytes:,} bytes on cuda:{self.index}"
                driver.checked((bindings()[0].CUresult(status),), what)
            except DeviceError as error:
                self._failure = error
            self._is_finished = True
            while self._notes and self._failure is None:
                with suppress(IndexError):  # two threads may ask
                    self._notes.pop()(self)
        return self._is_finished

    def done(self) -> bool:
        """Return True if all has arrived.

        :raises DeviceError: it could not be copied
        """
        if not self.is_finished:
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def settle(self) -> None:
        """Wait until nothing of it is under way, also if it fails. Ctrl-C is raised after that."""
        interrupt: KeyboardInterrupt | None = None
        while not self.is_finished:
            try:
                _await(self.address, _WAITS)
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def wait(self) -> None:
        """Wait until all has arrived; Ctrl-C ends the wait, while threads still use the memory.

        :raises DeviceError: it could not be copied
        """
        while not self.done():
            _await(self.address, _WAITS)

    def wait_on(self, stream: Any) -> None:
        """Wait until all has arrived: all later work, in any stream, comes after it."""
        self.wait()

    def end(self, failure: BaseException | None) -> None:
        """End a copy that no thread has been given."""
        self._failure = failure
        self._is_finished = True


class StagingPool:
    """Threads and slots; see the head of this module.

    :param threads: number of a team
    """

    def __init__(self, threads: int) -> None:
        count = _TEAM_WORDS + _CLOCK_WORDS * threads
        self._teams = [np.zeros(count, np.int64) for _ in range(TEAMS)]
        self._bells = [int(words.ctypes.data) + 8 * _BELL for words in self._teams]
        if any(_make_bell(bell) for bell in self._bells):
            raise DeviceError("the system has no semaphore for threads that copy to GPUs")
        calls = driver.calls()
        functions = calls.copy_async, calls.record_event, calls.query_event, calls.set_context
        self._functions = np.array([*map(driver.address_of_function, functions)], np.int64)
        self._contexts = np.zeros(_MOST_GPUS, np.int64)
        self._streams = np.zeros((_MOST_GPUS, 2), np.int64)
        self._team_threads = threads
        slots = max(1, TEAM_SLOTS // threads)
        shape = TEAMS * threads, slots
        self._events = np.zeros((shape[0], _MOST_GPUS, slots), np.int64)
        self._entered: dict[int, tuple[list[Stream], list[Any]]] = {}
        """Streams and events, by GPU."""
        for team in self._teams:
            team[_MOST] = max(1, threads * slots - SPARE_SLOTS)
        self._piece_bytes = PIECE_BYTES
        count = shape[0] * slots
        self._memory = PinnedBuffer(count * PIECE_BYTES)
        places = self._memory.pointer + PIECE_BYTES * np.arange(count, dtype=np.int64)
        self._slots = np.zeros((*shape, _SLOT_WORDS), np.int64)
        self._slots[:, :, _ADDRESS] = places.reshape(shape)
        self._lock = threading.Lock()
        self._held: deque[StagedCopy] = deque()
        """Copies whose words threads may use, and some that are finished."""
        self._waiting: list[tuple[StagedCopy, tuple[Event, ...]]] = []
        self._has_waiting = threading.Condition(self._lock)
        self._orderer: threading.Thread | None = None
        self._is_closed = False
        _serve.prepare(*self._arguments(0))
        _submit.prepare(self._teams[0], 0, 0, 0, 0)  # not while the lock is held
        _await.prepare(0, 0)
        self._threads = [
            self._thread(f"godwit-staging-{rank}", _serve, *self._arguments(rank))
            for rank in range(TEAMS * threads)
        ]

    def _arguments(self, rank: int) -> tuple[Any, ...]:
        """Return the arguments of :func:`_serve` for one thread."""
        place, team = divmod(rank, TEAMS)
        words = self._teams[team]
        clock = int(words.ctypes.data) + 8 * (_TEAM_WORDS + _CLOCK_WORDS * place)
        return (
            words, self._slots[rank], self._events[rank], self._streams, self._contexts,
            self._functions, clock, self._bells[team],
        )  # fmt: skip

    def _team_of(self, copy: StagedCopy) -> int:
        """Return the number of the team that has a copy's queue."""
        if copy.way == Way.WITHIN_HOST:
            return 0
        return (list(self._entered).index(copy.index) + copy.way) % TEAMS

    def _thread(self, name: str, run: Callable[..., None], *arguments: Any) -> threading.Thread:
        """Start a thread."""
        thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
        thread.start()
        return thread

    def start(self, copy: StagedCopy, after: Sequence[Event] = ()) -> StagedCopy:
        """Start a copy, once some events are done; return it.

        The caller keeps the memory alive until the copy is finished. Where this raises, it is finished.
        """
        try:
            self._start(copy, after)
        except BaseException as error:  # an event failed, the GPU is lost, or Ctrl-C
            with self._lock:
                self._waiting = [entry for entry in self._waiting if entry[0] is not copy]
                if not copy.is_given:
                    copy.end(error)
            copy.settle()
            raise
        return copy

    def _start(self, copy: StagedCopy, after: Sequence[Event]) -> None:
        after = tuple(event for event in after if not event.done())
        self._enter(copy)
        with self._lock:
            if self._is_closed:
                raise DeviceError(_ENDED_BEFORE)
            while self._held and self._held[0].is_finished:
                self._held.popleft()
            self._held.append(copy)
            if not after:
                self._give(copy)
                return
            self._waiting.append((copy, after))
            if self._orderer is None:
                self._orderer = self._thread("godwit-staging-order", self._order)
            self._has_waiting.notify()

    def _enter(self, copy: StagedCopy) -> None:
        """Create two streams (up, down) and an event for each slot on a copy's GPU, unless they exist."""
        index = copy.index
        if copy.way == Way.WITHIN_HOST or index in self._entered:
            return
        with self._lock:
            if index not in self._entered:
                _, runtime = bindings()
                what, shape = f"an event of cuda:{index}", self._events[:, index].shape
                with driver.entered(index):
                    streams = [Stream(index) for _ in range(2)]
                    events = [
                        driver.checked(runtime.cudaEventCreateWithFlags(_WITHOUT_TIMES), what)
                        for _ in range(shape[0] * shape[1])
                    ]
                self._streams[index] = [stream.handle for stream in streams]
                self._events[:, index] = np.reshape([int(event) for event in events], shape)
                self._contexts[index] = driver.context_handle(index)
                self._entered[index] = streams, events

    def _give(self, copy: StagedCopy) -> None:
        """Queue a copy, whose events are done, for the threads."""
        if copy.nbytes == 0:
            copy.end(None)
            return
        piece_bytes, team = self._piece_bytes, self._team_of(copy)
        if copy.way == Way.UP:
            share = -(-copy.nbytes // self._team_threads)
            piece_bytes = min(piece_bytes, max(LEAST_PIECE_BYTES, share))
        pieces = copy.cut(piece_bytes)
        queue = _queue_of(copy.way, copy.index)
        _submit(self._teams[team], queue, copy.address, pieces, self._bells[team])

    def _order(self) -> None:
        """Queue copies as soon as the events that they wait for are done; the function of a thread."""
        while True:
            with self._has_waiting:
                while not self._waiting and not self._is_closed:
                    self._has_waiting.wait()
            if self._is_closed:
                return
            if not self._give_ready():
                sleep(_ORDER_PAUSE_S)

    def _give_ready(self) -> bool:
        """Queue the copies whose events are done; return True if there were any."""
        with self._lock:
            waiting = list(self._waiting)
        ready = {copy for copy, after in waiting if self._is_ready(copy, after)}
        if not ready:
            return False
        with self._lock:  # start may have taken some back
            for copy, _ in self._waiting:
                if copy in ready and not copy.is_finished:
                    self._give(copy)
            self._waiting = [entry for entry in self._waiting if entry[0] not in ready]
        return True

    def _is_ready(self, copy: StagedCopy, after: Sequence[Event]) -> bool:
        """Return True if the events of a copy are done, or if one failed, which ends the copy."""
        try:
            driver.enter_any(copy.index)
            return all(event.done() for event in after)
        except Exception as error:
            copy.end(error)
            return True

    def close(self) -> None:
        """Wait for all copies, and end the threads. A second call has no effect."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._has_waiting.notify()
        if self._orderer is not None:
            self._orderer.join()
        for copy, _ in self._waiting:
            copy.end(DeviceError(_ENDED_BEFORE))
        for copy in self._held:
            copy.settle()
        for words, bell in zip(self._teams, self._bells, strict=True):
            _stop(words, bell)
        for thread in self._threads:
            thread.join()
        self._memory.close()
        _, runtime = bindings()
        for streams, events in self._entered.values():
            for event in events:
                runtime.cudaEventDestroy(event)
            for stream in streams:
                stream.close()


_pools: dict[int, StagingPool] = {}
"""By process: what a forked child inherits has no threads."""
_making = threading.Lock()


def staging_pool() -> StagingPool:
    """Return the pool of the process, made by the first call."""
    process = os.getpid()
    pool = _pools.get(process)
    if pool is None:
        with _making:
            pool = _pools.get(process)
            if pool is None:
                cores = config.thread_count()
                pool = StagingPool(MANY_THREADS if cores >= MANY_CORES else min(FEW_THREADS, cores))
                _pools[process] = pool
    return pool


@atexit.register
def close_pool() -> None:
    """End the threads of the process's pool, if there is one; the next copy makes another."""
    pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        pool.close()
