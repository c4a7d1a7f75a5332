"""Arrays in memory that the processes of one machine share.

What all read then is in a shared cache once, and nothing is sent between them: two processes that each
keep the values of both, as their halos do, need twice the cache (PageRank: 1.4 times as long on two cores).

Invariant: a process writes to its own section alone, and reads others only where a meeting parts that from
their writing: MPI delivers a message after all that its sender wrote before.

The memory is a file without a name (``memfd``), which the first process of a machine makes and the others
open by its number; the system frees it with the last process that has it, however they end. Where that is
impossible, each process has a section of its own memory, as if it were alone on its machine.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.distributed.processes import Processes
from godwit.dtypes import Array

_LINE_ITEMS = 64
_MARK_BYTES = 16


@dataclass(frozen=True)
class SharedArrays:
    """Arrays, each with a section of every process that shares them.

    :ivar partners: the processes that share them, this one included
    :ivar begins: (processes) first item of each section; -1 for processes that are no partners
    :ivar arrays: (k, items)
    :ivar own: this process' section of each
    """

    partners: list[int]
    begins: Array
    arrays: Array
    own: slice


def shared_arrays(processes: Processes, items: int, dtype: Any, count: int) -> SharedArrays:
    """Return arrays of zeros; all processes call it.

    :param items: of this process' section
    :param count: number of arrays
    """
    me = processes.rank
    padded = [-(-size // _LINE_ITEMS) * _LINE_ITEMS for size in processes.share(items)]
    partners = processes.machine
    size_bytes = count * np.dtype(dtype).itemsize * sum(padded[rank] for rank in partners)
    memory = _shared_memory(processes, size_bytes) if max(processes.machine_sizes) > 1 else None
    if memory is None:
        partners = [me]
        arrays = np.zeros((count, padded[me]), dtype)
    else:
        arrays = np.frombuffer(memory, dtype).reshape(count, -1)
    begins = np.full(processes.count, -1, np.int64)
    begins[partners] = np.cumsum([0, *(padded[rank] for rank in partners[:-1])])
    first = int(begins[me])
    return SharedArrays(partners, begins, arrays, slice(first, first + items))


def _shared_memory(processes: Processes, size_bytes: int) -> mmap.mmap | None:
    """Return memory of this machine's processes, all zero; None if they cannot share. All call it."""
    first, me = processes.machine[0], processes.rank
    memory = descriptor = mark = None
    if me == first and hasattr(os, "memfd_create"):
        with suppress(OSError, ValueError):  # nothing to be mapped is a ValueError
            descriptor = os.memfd_create("godwit")
            os.ftruncate(descriptor, size_bytes)
            memory = mmap.mmap(descriptor, size_bytes)
            # By which others know it: in another container, process numbers are those of others.
            mark = os.urandom(_MARK_BYTES)
            memory[: len(mark)] = mark
    process, number, its_mark = processes.share((os.getpid(), descriptor, mark))[first]
    if me != first and its_mark is not None:
        memory = _opened(process, number, its_mark, size_bytes)
    have = processes.share(memory is not None)
    if descriptor is not None:
        os.close(descriptor)
    if not all(have[rank] for rank in processes.machine):
        return None
    if me == first and memory is not None:
        memory[:_MARK_BYTES] = bytes(_MARK_BYTES)
    return memory


def _opened(process: int, number: int, mark: bytes, size_bytes: int) -> mmap.mmap | None:
    """Return the memory that another process has made; None if it cannot be opened."""
    with suppress(OSError, ValueError):
        descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size == size_bytes:
                memory = mmap.mmap(descriptor, size_bytes)
                if memory[: len(mark)] == mark:
                    return memory
        finally:
            os.close(descriptor)
    return None
