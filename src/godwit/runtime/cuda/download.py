"""Arrays from a GPU to the host at the speed of the bus.

The driver copies to ordinary memory through one small buffer of its own, and the host's pages are touched
for the first time meanwhile: a few GB/s. Here several threads each own a page-locked buffer and a stream:
while one waits for its piece to arrive, others move theirs to where it belongs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

from godwit import config
from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import PinnedBuffer, Stream
from godwit.trace import HOST, copied

PIECE_BYTES = 16 << 20
STAGING_BYTES = 4 << 20
"""Of a buffer that is kept: enough for the bus, little enough to be page-locked in a millisecond."""
_MOST_THREADS = 8


class Staging:
    """A page-locked buffer of one thread, with a stream of each GPU that it takes pieces from.

    Page-locking takes longer than bringing down what fits in, so these are kept between runs.
    """

    def __init__(self) -> None:
        self._buffer = PinnedBuffer(STAGING_BYTES)
        self._streams: dict[int, Stream] = {}

    @property
    def pointer(self) -> int:
        """Where it is, for the host and for every GPU."""
        return self._buffer.pointer

    def array(self, dtype: Any) -> Array:
        """The buffer as an array; not to be used after :meth:`close`."""
        return self._buffer.array(dtype)

    def stream(self, index: int) -> Stream:
        """The stream of a GPU."""
        found = self._streams.get(index)
        if found is None:
            found = self._streams[index] = Stream(index)
        return found

    def settle(self) -> None:
        """Wait for what is on its way."""
        for stream in self._streams.values():
            with suppress(DeviceError):
                stream.synchronize()

    def close(self) -> None:
        """Give all back; closing twice does no harm."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._buffer.close()


_SPARE: list[Staging] = []


@contextmanager
def stagings(count: int) -> Iterator[list[Staging]]:
    """Page-locked buffers for so many threads, kept for the next who asks."""
    taken: list[Staging] = []
    try:
        for _ in range(count):
            try:
                taken.append(_SPARE.pop())
            except IndexError:
                taken.append(Staging())
        yield taken
    finally:
        for staging in taken:
            staging.settle()  # an interruption may have left a copy on its way
        _SPARE.extend(taken)


def download(index: int, pointer: int, array: Array) -> None:
    """Fill a contiguous host array with what lies at an address of a GPU, whose work there is done."""
    if array.nbytes == 0:
        return
    begin = perf_counter()
    pieces = -(-array.nbytes // PIECE_BYTES)
    if pieces == 1:
        stream = Stream(index)
        try:
            driver.copy_async(array.ctypes.data, pointer, array.nbytes, stream)
            stream.synchronize()
        finally:
            stream.close()
        copied(f"cuda:{index}", HOST, array.nbytes, begin)
        return
    workers = min(pieces, _MOST_THREADS, config.thread_count())
    offsets = iter(range(0, array.nbytes, PIECE_BYTES))
    lock = threading.Lock()
    with ThreadPoolExecutor(workers, "godwit-download") as pool:
        jobs = [
            pool.submit(_move_pieces, index, pointer, array, offsets, lock) for _ in range(workers)
        ]
        for job in jobs:
            job.result()
    copied(f"cuda:{index}", HOST, array.nbytes, begin)


def _move_pieces(
    index: int, pointer: int, array: Array, offsets: Iterator[int], lock: threading.Lock
) -> None:
    """Take pieces that nobody has taken yet, until there are none."""
    stream = Stream(index)
    try:
        with PinnedBuffer(PIECE_BYTES) as staging:
            while True:
                with lock:
                    offset = next(offsets, None)
                if offset is None:
                    return
                length = min(PIECE_BYTES, array.nbytes - offset)
                driver.copy_async(staging.pointer, pointer + offset, length, stream)
                stream.synchronize()
                ctypes.memmove(array.ctypes.data + offset, staging.pointer, length)
    finally:
        stream.close()
