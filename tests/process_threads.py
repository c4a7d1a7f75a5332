"""Processes of an MPI run that are threads of this one, each with an emulated GPU: :func:`run_processes`.

:class:`godwit.distributed.processes.Processes` is the package's own; only MPI is a stand-in, of queues.
"""

# Names are those of mpi4py.
# ruff: noqa: N802

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emulated_grid_machine import Machine
from godwit.distributed import processes as processes_module
from godwit.distributed.processes import Processes
from godwit.runtime.cuda.slices import SlicedRun
from godwit.supersteps import process_exchange
from godwit.supersteps.process_exchange import ReportRelay
from waiting import HANG_S


class _Request:
    """A message that is to be received, or None for one that was sent."""

    def __init__(self, queue: deque[bytes] | None, into: Any) -> None:
        self._queue, self._into = queue, into

    def test(self) -> bool:
        if self._queue is None:
            return True
        if not self._queue:
            return False
        message = np.frombuffer(self._queue.popleft(), np.uint8)
        self._into.reshape(-1).view(np.uint8)[:] = message
        self._queue = None
        return True


class _World:
    """What :class:`Processes` uses of a communicator of MPI."""

    def __init__(self, rank: int, count: int, shared: dict[Any, Any]) -> None:
        self._rank, self._count, self._shared = rank, count, shared

    def Dup(self) -> _World:
        return self

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return self._count

    def Split_type(self, kind: Any) -> _World:
        return self

    def Free(self) -> None:
        pass

    def allgather(self, value: Any) -> list[Any]:
        return [value] * self._count

    def _queue(self, source: int, to: int, tag: Any) -> deque[Any]:
        queue: deque[Any] = self._shared.setdefault((source, to, tag), deque())
        return queue

    def Isend(self, data: Any, to: int, tag: int) -> _Request:
        self._queue(self._rank, to, tag).append(np.ascontiguousarray(data).tobytes())
        return _Request(None, None)

    def Irecv(self, into: Any, source: int, tag: int) -> _Request:
        return _Request(self._queue(source, self._rank, tag), into)

    def Iprobe(self, *_: Any) -> bool:
        return False

    def bcast(self, value: Any, root: int) -> Any:
        if self._rank == root:
            for other in range(self._count):
                self._queue(root, other, "bcast").append(value)
        while not self._queue(root, self._rank, "bcast"):
            pass
        return self._queue(root, self._rank, "bcast").popleft()


def run_processes(
    machine: Machine, count: int, function: Callable[[Processes], Any], timeout_s: float = HANG_S
) -> list[Any]:
    """Return what a function returns in each process; raise what one of them raises.

    A kernel of an emulated GPU runs when its host waits for it, so hosts wait together for kernels that do.
    """
    shared: dict[Any, Any] = {}
    outcomes: list[Any] = [None] * count
    errors: list[BaseException] = []
    launched = threading.Barrier(count)
    real_wait, real_run = SlicedRun._wait, ReportRelay.run

    def wait(run: Any, *given: Any) -> None:
        if getattr(run.placement, "processes", None) is not None:
            launched.wait(timeout_s)
        real_wait(run, *given)

    def run_relay(relay: Any, is_over: Any) -> None:
        launched.wait(timeout_s)
        kernels = threading.Thread(target=machine.finish)
        kernels.start()
        real_run(relay, is_over)
        kernels.join()
        launched.wait(timeout_s)

    def work(rank: int) -> None:
        world = _World(rank, count, shared)
        mpi = SimpleNamespace(
            COMM_WORLD=world, COMM_TYPE_SHARED=0, ANY_SOURCE=-1, Status=lambda: None,
            Is_finalized=lambda: True,
            Request=SimpleNamespace(Testall=lambda requests: all(one.test() for one in requests)),
        )  # fmt: skip
        try:
            outcomes[rank] = function(Processes(mpi))
        except BaseException as error:
            errors.append(error)
            launched.abort()

    def refuse_while_running(what: str) -> None:
        """Look at the GPU of the calling process only: those of others do not make it wait."""
        with machine.lock:
            streams = dict(machine._streams)
            mine = {n: stream for n, stream in streams.items() if stream.device == machine.device}
            machine._streams = mine
            try:
                real_refuse(what)
            finally:
                machine._streams = streams

    real_refuse = machine.refuse_while_running
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "refuse_while_running", refuse_while_running)
        patch.setattr(machine, "hosts_write", True)  # reports of meetings, carried by the host
        patch.setattr(SlicedRun, "_wait", wait)
        patch.setattr(ReportRelay, "run", run_relay)
        patch.setattr(process_exchange, "_BUSY_LOOKS", 0)  # kernels run on the same cores
        patch.setattr(process_exchange, "_PATIENT_LOOKS", 0)
        patch.setattr(processes_module, "_share_cores", lambda *_: ([], []))
        patch.setattr(processes_module.atexit, "register", lambda *_: None)
        patch.setattr(sys, "excepthook", sys.excepthook)
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_s)
        assert not any(thread.is_alive() for thread in threads), "a process waits in vain"
    if errors:
        raise errors[0]
    return outcomes
