"""Arrays from the host to a GPU at the speed of the bus: as download.py, the other way.

The driver takes ordinary memory through one small buffer of its own. Here several threads each own a
page-locked buffer and a stream: while the piece of one is on the bus, others fill theirs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.download import STAGING_BYTES, Staging, stagings
from godwit.runtime.cuda.driver import Buffer
from godwit.trace import HOST, copied

_SMALL_BYTES = 16 << 20
_MOST_THREADS = 8


def upload(buffer: Buffer, array: Array) -> None:
    """Copy a host array to where a buffer of a GPU begins; done when it returns."""
    array = np.ascontiguousarray(array)
    if array.nbytes <= _SMALL_BYTES:
        buffer.upload(array)
        return
    begin = perf_counter()
    workers = min(_MOST_THREADS, config.thread_count())
    pieces = iter(range(0, array.nbytes, STAGING_BYTES))
    with stagings(workers) as taken, ThreadPoolExecutor(workers, "godwit-upload") as pool:
        jobs = [pool.submit(_move_pieces, buffer, array, pieces, staging) for staging in taken]
        for job in jobs:
            job.result()
    copied(HOST, f"cuda:{buffer.index}", array.nbytes, begin)


def _move_pieces(buffer: Buffer, array: Array, pieces: Iterator[int], staging: Staging) -> None:
    """Take pieces that nobody has taken yet, until there are none."""
    stream = staging.stream(buffer.index)
    for offset in pieces:  # an iterator of a range: taking the next is one step
        length = min(STAGING_BYTES, array.nbytes - offset)
        ctypes.memmove(staging.pointer, array.ctypes.data + offset, length)
        driver.copy_async(buffer.pointer + offset, staging.pointer, length, stream)
        stream.synchronize()
