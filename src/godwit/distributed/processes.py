"""The processes of one MPI run: meetings, exchanges, and one error for all.

Every step of communication begins with a *meeting*: each process sends each other one header of eight
words, which says how it is (running, done or failed), what it runs, how many items of data follow, and up
to four numbers of its own, such as the size of its frontier. All processes hold the same headers then, so
all take the same decision, and nothing else has to be agreed upon. Data follow as one message for each
pair of processes that has some.

Invariant: between two meetings a process either sends and receives exactly the data that the headers
announce, or none, if a header says that a process failed or runs something else. So a process that fails
takes part in the next meeting, whatever that is, and no message is ever left over.

Messages are sent in pairs (``Isend``, ``Irecv``), not by collective calls: waiting for them can be
interrupted, empty ones are left out, and MPICH's ``Ialltoallv`` takes ten times as long within a machine.
A process that waits looks again and again instead of blocking, and lets other processes of its core run.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import numpy as np

from godwit import config
from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import DeviceError, GodwitError, GraphTooLargeError, ProcessError
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from godwit.distributed.gpu_graph import GpuGraph
    from godwit.distributed.graph import DistributedGraph
    from godwit.graph.csr import Graph

Transport = Literal["direct", "nvshmem", "host"]
"""Transports of values to the GPUs of other processes; see :meth:`Processes.place`."""

HEADER_WORDS = 8
_STATUS, _RUNS, _COUNT, _NUMBERS = range(4)
MOST_NUMBERS = HEADER_WORDS - _NUMBERS - 1
"""Numbers of its own that a process can send with a header; the last word is not used."""
_RUNNING, _DONE, _FAILED = range(3)

_HEADER, _DATA, _ENDED = range(3)
"""Tags of messages: headers, data, and the end of a process."""

_PATIENT_S = 0.02
"""Seconds after which a process that waits for messages sleeps between two tests for them."""
_NAP_S = 1e-4
"""Seconds of such a sleep."""
_PRINTING_S = 0.5
"""Seconds in which the launcher prints what a process has written; it drops the rest after an abort."""
_LOOK_S = 0.25
"""Seconds between two tests whether a process has ended."""

_REPORTED = ("processed_items", "useless_items", "arcs_relaxed", "filtered_items", "rounds")
"""Counts in the statistics that each process has of its own."""


class Processes:
    """The processes that ``mpiexec`` started together, of which this is one. Made by :func:`context`.

    All of them call the same functions in the same order, with the same arguments.

    :ivar rank: number of this process, from 0
    :ivar count: number of processes
    :ivar machine: numbers of those on this machine, ascending
    :ivar machine_sizes: (count) how many are on the machine of each
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._world = mpi.COMM_WORLD.Dup()
        self.rank: int = self._world.Get_rank()
        self.count: int = self._world.Get_size()
        self.others = [rank for rank in range(self.count) if rank != self.rank]
        self._sent_headers = np.zeros((self.count, HEADER_WORDS), np.int64)
        self._headers = np.zeros((self.count, HEADER_WORDS), np.int64)
        self._runs = ""
        self._communicates = False
        """True while messages are on their way; it stays True if an error ends the exchange."""
        self._interrupted = self._defers = False
        self.volume = Volume(self.count)
        self.machine, self.machine_sizes = _share_cores(mpi, self._world)
        if self.count > 1:
            atexit.register(self._send_end)
            sys.excepthook = _Excepthook(self, sys.excepthook)

    def __repr__(self) -> str:
        return f"<Processes: {self.rank} of {self.count}>"

    @overload
    def place(
        self,
        source: Graph | str | os.PathLike[str],
        *,
        directed: bool | None = None,
        weighted: bool | None = None,
        devices: None = None,
    ) -> DistributedGraph: ...

    @overload
    def place(
        self,
        source: Graph | str | os.PathLike[str],
        *,
        directed: bool | None = None,
        weighted: bool | None = None,
        devices: str,
        transport: Transport | None = None,
    ) -> GpuGraph: ...

    def place(
        self,
        source: Graph | str | os.PathLike[str],
        *,
        directed: bool | None = None,
        weighted: bool | None = None,
        devices: str | None = None,
        transport: Transport | None = None,
    ) -> DistributedGraph | GpuGraph:
        """Divide a graph among the processes, each of which keeps the rows of a range of vertices.

        >>> import godwit as gw
        >>> graph = gw.distributed.context().place("road:20x30")
        >>> gw.bfs(graph, 0).gather().distance.shape
        (600,)

        :param source: the path of an edge list or of a ``.godwit`` file, not compressed, which each process
            reads a part of, so that none holds the whole graph; the description of a generated graph, such
            as ``"rmat:20"`` (:func:`godwit.generate`); or a graph, which all processes have
        :param directed: of an edge list: None: as it declares; False: each line is an edge
        :param weighted: of a file: False: drop the weights. True: it must have weights
        :param devices: None: the cores of each process. ``"cuda"``: a GPU for each process, of which those
            of a machine take one after the other; or the name of one, such as ``"cuda:1"``. Every process
            then reads or makes the whole graph in the memory of its host, and its GPU has its share of the
            rows. Files may be of any format that :func:`godwit.read` reads
        :param transport: how GPUs reach each other: ``"direct"``, kernels in each other's memory, on one
            machine; ``"host"``, copies by messages of MPI after each superstep; or ``"nvshmem"``, copies by
            NVSHMEM (the extra ``nvshmem``) then. None: ``"direct"`` where that is possible, else ``"host"``
        :raises InputError: a wrong argument, a file of another format, or two processes on one GPU
        :raises DeviceError: a process has no GPU
        :raises FileError: the file cannot be read
        :raises FormatError: the file is malformed
        :raises GraphTooLargeError: the part of a process does not fit in its memory
        """
        from godwit.distributed.place import place

        return place(
            self, source, directed=directed, weighted=weighted, devices=devices, transport=transport
        )

    def running(self, name: str, *arguments: Any) -> AbstractContextManager[None]:
        """Return a block that all processes run alike: all leave it well, or all by the same error.

        :param name: what runs, for messages
        :param arguments: those that must be the same in all processes
        """
        if self._runs:  # within another block
            return nullcontext()
        return self._running_alike(name, arguments) if self.others else _RunningAlone(self, name)

    @contextmanager
    def _running_alike(self, name: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        checksum = _checksum((name, arguments))
        self._runs = name
        self.volume = Volume(self.count)
        self._sent_headers[:, _RUNS] = checksum
        previous = self._take_interruptions()
        try:
            yield
            self._meet(_DONE)
        except _AgreedError as agreed:
            raise agreed.error from None
        except BaseException as error:
            error = _with_advice(error, name)
            raise self._agree_on(error) from error.__cause__
        finally:
            self._runs = ""
            if previous is not None:
                signal.signal(signal.SIGINT, previous)

    def meet(self, *numbers: int, counts: Sequence[int] | Array | int = 0) -> Array:
        """Exchange headers with all processes.

        :param numbers: at most ``MOST_NUMBERS`` numbers of this process
        :param counts: how many items of data follow for each process
        :returns: int64 (processes, numbers)
        """
        self._sent_headers[:, _COUNT] = counts
        for index, number in enumerate(numbers):
            self._sent_headers[:, _NUMBERS + index] = number
        self._meet(_RUNNING)
        return self._headers[:, _NUMBERS : _NUMBERS + len(numbers)]

    def require_same(self, given: Any, what: str, kind: str) -> None:
        """Meet; raise ProcessError if a value that users give in all processes differs.

        :param what: the name of the value in the message
        :param kind: what all must give, in words
        """
        sums = self.meet(_checksum(given))[:, 0]
        differs = int(np.argmax(sums != sums[0]))
        if differs:
            raise ProcessError(f"{what} differs in processes 0 and {differs}: all must give {kind}")

    def announced(self) -> Array:
        """Return how many items of data each process has announced at the last meeting: int64."""
        return self._headers[:, _COUNT].copy()

    def exchange(self, data: Array, counts: Array, *numbers: int) -> tuple[Array, Array, Array]:
        """Meet, then send each process its part of an array.

        :param data: parts one behind the other, in the order of the processes; of one dimension
        :param counts: (processes) items of each part
        :returns: the parts that this process got, in the order of the processes; their items; and the
            numbers of all processes, as of :meth:`meet`
        """
        given = self.meet(*numbers, counts=counts).copy()
        received = self.announced()
        into = np.empty(int(received.sum()), data.dtype)
        self.send(data, _begins(counts), counts, into, _begins(received), received)
        return into, received, given

    def send(
        self, data: Array, begins: Array, counts: Array, into: Array, into_begins: Array,
        into_counts: Array,
    ) -> None:  # fmt: skip
        """Send parts of an array to all processes, whose numbers of items all know from a meeting.

        :param begins: (processes) first item of each part in ``data``
        :param into: gets the parts of the other processes
        """
        me = self.rank
        self._communicates = True
        first, count = int(into_begins[me]), int(into_counts[me])
        begin = int(begins[me])
        into[first : first + count] = data[begin : begin + count]
        requests = []
        for other in self.others:
            first, count = int(into_begins[other]), int(into_counts[other])
            if count:
                part = into[first : first + count]
                requests.append(self._world.Irecv(part, other, _DATA))
        for other in self.others:
            first, count = int(begins[other]), int(counts[other])
            if count:
                part = data[first : first + count]
                requests.append(self._world.Isend(part, other, _DATA))
                self.volume.messages[other] += 1
                self.volume.bytes[other] += part.nbytes
        self._wait(requests)
        self._communicates = False

    def share(self, value: Any) -> list[Any]:
        """Return the values that all processes give, any Python objects, in the order of the processes."""
        if self.count == 1:
            return [value]
        packed = np.frombuffer(pickle.dumps(value), np.uint8)
        counts = np.full(self.count, len(packed))
        data = np.tile(packed, self.count)
        with self.running("share"):
            into, received, _ = self.exchange(data, counts)
        begins = _begins(received)
        return [
            pickle.loads(into[begin : begin + count].tobytes())
            for begin, count in zip(begins.tolist(), received.tolist(), strict=True)
        ]

    def add_up(self, array: Array) -> Array:
        """Return the sum of the arrays of all processes, of one shape (k): each adds up a part of it."""
        pieces = np.array_split(array, self.count)
        counts = np.array([len(piece) for piece in pieces])
        received, _, _ = self.exchange(array, counts)
        own = received.reshape(self.count, -1).sum(axis=0).astype(array.dtype)
        whole, _, _ = self.exchange(np.tile(own, self.count), np.full(self.count, len(own)))
        return whole

    def gather(self, array: Array, root: int) -> list[Array] | None:
        """Return the arrays of all processes in one of them, and None in the others."""
        counts = np.zeros(self.count, np.int64)
        counts[root] = len(array)
        into, received, _ = self.exchange(array, counts)
        if self.rank != root:
            return None
        return np.split(into, np.cumsum(received)[:-1])

    def report(self, statistics: RunStatistics) -> None:
        """Complete statistics by the counts of all processes, and what they sent in this block.

        It may be called again, after more supersteps of the block.

        :param statistics: has the counts of this process, which become those of all
        """
        volume, count = self.volume, self.count
        statistics.supersteps = volume.supersteps
        if count == 1:
            statistics.devices = ("process 0",)
            statistics.waiting_s = np.zeros(1)
            statistics.messages = statistics.message_bytes = volume.messages[np.newaxis]  # none
            return
        own = slice(self.rank, self.rank + 1) if statistics.processes > 1 else slice(None)
        counts = [getattr(statistics, name)[own].sum() for name in _REPORTED]
        levels = statistics.levels
        counts.append(round(volume.waiting_s * 1e9))
        words = np.concatenate([np.array(counts, np.int64), volume.messages, volume.bytes])
        given, _, _ = self.exchange(np.tile(words, count), np.full(count, len(words)))
        columns = given.reshape(count, len(words)).T
        statistics.begin_on([f"process {rank}" for rank in range(count)])
        statistics.processes, statistics.levels = count, levels
        for name, of_all in zip(_REPORTED, columns, strict=False):
            setattr(statistics, name, of_all)
        statistics.waiting_s = columns[len(_REPORTED)] / 1e9
        statistics.messages = columns[-2 * count : -count].T
        statistics.message_bytes = columns[-count:].T

    def abort(self, message: str) -> NoReturn:
        """End all processes at once, after a line on stderr that names this one."""
        print(
            f"godwit: process {self.rank} of {self.count}: {message}", file=sys.stderr, flush=True
        )
        time.sleep(_PRINTING_S)
        self._mpi.COMM_WORLD.Abort(1)
        os._exit(1)

    def _meet(self, status: int) -> None:
        """Exchange headers; raise the error of all if a process has failed, or runs another function."""
        if status == _RUNNING and self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
        sent, headers, me = self._sent_headers, self._headers, self.rank
        sent[:, _STATUS] = status
        headers[me] = sent[me]
        self.volume.supersteps += status == _RUNNING
        if not self.others:
            return
        self._communicates = True
        world = self._world
        requests = [world.Irecv(headers[other], other, _HEADER) for other in self.others]
        requests += [world.Isend(sent[other], other, _HEADER) for other in self.others]
        for other in self.others:
            self.volume.messages[other] += 1
            self.volume.bytes[other] += sent[other].nbytes
        self._wait(requests)
        self._communicates = False
        if status != _FAILED and (headers[:, :_COUNT] == headers[me, :_COUNT]).all():
            return
        if (headers[:, _STATUS] == _FAILED).any():
            if status != _FAILED:
                raise _AgreedError(self._shared_error(None))
        elif (headers[:, _RUNS] != headers[me, _RUNS]).any():
            raise _AgreedError(self._mismatch())
        elif (headers[:, _STATUS] != status).any():
            raise _AgreedError(
                ProcessError(f"the processes did not end {self._runs} after the same superstep")
            )

    def _agree_on(self, error: BaseException) -> BaseException:
        """Send an error of this process to the others; return the error to raise here."""
        if self._communicates:  # messages may be on their way: no meeting is possible
            self.abort(f"{type(error).__name__} in {self._runs}: {error}")
        try:
            self._meet(_FAILED)
            return self._shared_error(error)
        except _AgreedError as agreed:
            return agreed.error

    def _shared_error(self, error: BaseException | None) -> BaseException:
        """Return this process' own error, or that of the first process that failed."""
        failed = np.flatnonzero(self._headers[:, _STATUS] == _FAILED)
        first = int(failed[0])
        packed = None
        if first == self.rank:
            try:
                packed = pickle.dumps(error)
                pickle.loads(packed)
            except Exception:  # not every exception can be pickled
                packed = pickle.dumps(ProcessError(f"{type(error).__name__}: {error}"))
        self._communicates = True
        packed = self._world.bcast(packed, first)
        self._communicates = False
        chosen: BaseException = pickle.loads(packed) if error is None else error
        if error is None or len(failed) < self.count:
            where = first if error is None else self.rank
            chosen.add_note(f"in process {where} of {self.count}, while all ran {self._runs}")
        setattr(chosen, _AGREED, True)
        return chosen

    def _mismatch(self) -> GodwitError:
        differs = int(np.argmax(self._headers[:, _RUNS] != self._headers[0, _RUNS]))
        error = ProcessError(
            f"processes 0 and {differs} call different functions, or the same with different arguments; "
            f"process {self.rank} runs {self._runs}. All processes must call the same functions in the "
            "same order"
        )
        setattr(error, _AGREED, True)
        return error

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Defer Ctrl-C to the next meeting, in a block in which other processes wait for this one."""
        self._defers = True
        try:
            yield
        finally:
            self._defers = False

    def _wait(self, requests: list[Any]) -> None:
        """Wait for messages; other processes may use the core meanwhile."""
        test = self._mpi.Request.Testall
        begin = looked = perf_counter()
        while not test(requests):
            now = perf_counter()
            if now - begin < _PATIENT_S:
                _yield_core()
            else:
                time.sleep(_NAP_S)
            if now - looked > _LOOK_S:
                looked = now
                self._check_alive()
        self.volume.waiting_s += perf_counter() - begin

    def _check_alive(self) -> None:
        """End all processes if one has ended that this one waits for."""
        status = self._mpi.Status()
        if self._world.Iprobe(self._mpi.ANY_SOURCE, _ENDED, status):
            runs = self._runs or "a function of Godwit's"
            self.abort(f"process {status.Get_source()} ended while this one ran {runs}")

    def _send_end(self) -> None:
        """Send each other process that this one ends, and wait until all have sent the same.

        So no message is left over; MPI waits for the end of all processes in any case. A process that waits
        for this one in a function of Godwit's ends all (:meth:`_check_alive`).
        """
        if self._mpi.Is_finalized():
            return
        nothing, world = np.empty(0, np.uint8), self._world
        requests = [world.Isend(nothing, other, _ENDED) for other in self.others]
        requests += [world.Irecv(nothing, other, _ENDED) for other in self.others]
        while not self._mpi.Request.Testall(requests):
            time.sleep(_NAP_S)

    def _take_interruptions(self) -> Any:
        """Defer Ctrl-C while messages are on their way; return the handler before, None if unchanged."""
        if threading.current_thread() is not threading.main_thread():
            return None
        previous = signal.getsignal(signal.SIGINT)
        if not callable(previous):
            return None

        def handle(number: int, frame: FrameType | None) -> None:
            if not (self._communicates or self._defers):
                previous(number, frame)
            elif self._interrupted:
                self.abort("interrupted twice")
            else:
                self._interrupted = True

        signal.signal(signal.SIGINT, handle)
        return previous


class Volume:
    """What a process has sent.

    :ivar messages: int64 (processes): to each process
    :ivar bytes: int64 (processes)
    :ivar supersteps: number of meetings
    :ivar waiting_s: seconds in which it waited for messages
    """

    def __init__(self, processes: int) -> None:
        self.messages = np.zeros(processes, np.int64)
        self.bytes = np.zeros(processes, np.int64)
        self.supersteps = 0
        self.waiting_s = 0.0


class _RunningAlone:
    """The block of :meth:`Processes.running` for a single process, which sends no messages."""

    __slots__ = ("_name", "_processes")

    def __init__(self, processes: Processes, name: str) -> None:
        self._processes, self._name = processes, name

    def __enter__(self) -> None:
        self._processes._runs = self._name
        self._processes.volume = Volume(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._processes._runs = ""
        if error is None:
            return
        advised = _with_advice(error, self._name)
        setattr(advised, _AGREED, True)
        if advised is not error:
            raise advised from error.__cause__


def _with_advice(error: BaseException, runs: str) -> BaseException:
    """Return the error to raise for one in a block; out of memory, it says what to do."""
    if isinstance(error, MemoryError) and not isinstance(error, GodwitError):
        return GraphTooLargeError(f"out of memory in {runs} ({error}): use more processes")
    return error


class _AgreedError(Exception):
    """Carries an error that all processes raise out of a meeting."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def is_agreed(error: BaseException) -> bool:
    """Return True if all processes raise this error."""
    return hasattr(error, _AGREED)


def has_joined() -> bool:
    """Return True if this process has joined others, by :func:`context`."""
    return _processes is not None


def is_reported_elsewhere(error: BaseException) -> bool:
    """Return True if all processes raise this error, and this is not process 0, which prints it."""
    return is_agreed(error) and _processes is not None and _processes.rank > 0


_AGREED = "_godwit_agreed"
"""Attribute of exceptions that all processes raise."""


class _Excepthook:
    """Ends all processes when one is about to end by an error that the others do not raise."""

    def __init__(self, processes: Processes, previous: Callable[..., Any]) -> None:
        self._processes = processes
        self._previous = previous

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        processes = self._processes
        if is_agreed(error):
            if processes.rank == 0:
                self._previous(kind, error, traceback)
            return
        self._previous(kind, error, traceback)
        processes.abort(f"{kind.__name__}: {error}")


_OF_ARRAYS = ("__array__", "__dlpack__", "__cuda_array_interface__")
"""Attributes of arrays of several libraries."""


def _checksum(given: Any) -> int:
    """Return a checksum of arguments that users give."""
    return zlib.crc32(repr(_content(given)).encode())


def _content(given: Any) -> Any:
    """Return an object whose ``repr`` shows all of an argument; that of an array may leave elements out."""
    if isinstance(given, Set):
        # The order of a set of texts differs in each process.
        return sorted(map(_content, given), key=repr)
    if isinstance(given, Mapping):
        return [(_content(key), _content(value)) for key, value in given.items()]
    if isinstance(given, Sequence) and not isinstance(given, str | bytes | range):
        return list(map(_content, given))
    is_array = any(hasattr(given, protocol) for protocol in _OF_ARRAYS)
    if is_array and not isinstance(given, np.generic):
        try:
            array = host_array(given)
        except (TypeError, ValueError, GodwitError):  # the function that gets it says what is wrong
            return repr(given)
        index = _content(given.index) if hasattr(given, "iloc") else None
        has_numbers = array.dtype.kind in "biufc"
        values = zlib.crc32(array.tobytes()) if has_numbers else array.tolist()
        return array.dtype.str, array.shape, values, index
    return given


def _yield_core() -> None:
    """Let another process run on this core if one waits for it; else return within a microsecond or two.

    (A sleep of 0 seconds takes some 80 of these, as a timer has to fire.)
    """
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def _begins(counts: Array) -> Array:
    """Return the first item of each part."""
    return np.cumsum(counts) - counts


def _share_cores(mpi: Any, world: Any) -> tuple[list[int], list[int]]:
    """Divide the cores of this machine among its processes, unless the launcher has done so.

    :returns: the numbers of these processes, and how many are on the machine of each process
    """
    here = world.Split_type(mpi.COMM_TYPE_SHARED)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {-1}
    all_cores = here.allgather(mine)
    machine = sorted(here.allgather(world.Get_rank()))
    here.Free()
    claimed = sum(map(len, all_cores))
    config.share_cores(len(set().union(*all_cores)) / claimed)
    return machine, world.allgather(len(machine))


_processes: Processes | None = None


def context() -> Processes:
    """Join the processes that ``mpiexec`` started with this one; all of them call it.

    Without ``mpiexec`` this process is the only one. Later calls return the same.

    :raises DeviceError: ``mpi4py``, or the library of MPI that it needs, is not installed
    """
    global _processes  # noqa: PLW0603 (a process joins once)
    if _processes is None:
        _processes = Processes(_import_mpi())
    return _processes


def _import_mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise DeviceError(
            f"graphs on several processes need mpi4py and MPI ({error}): "
            "pip install 'godwit[mpi]' (with an MPI library, such as the package mpich)"
        ) from error
    except RuntimeError as error:  # mpi4py found no library of MPI
        raise DeviceError(
            f"mpi4py cannot load a library of MPI ({error}): install one, such as the package mpich"
        ) from error
    return MPI
