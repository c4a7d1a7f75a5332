"""Who sends edges from the host to a router: threads that read ahead, or one for what lies in memory.

Invariant: a block of host memory is being filled by one thread, or is on its way with a future that says
when it may be filled again, or is free. Those on their way go round in the order in which they were sent,
so the thread that takes the next waits for the one that is back first. There are at least as many as
threads, none of which has two, so there is always one to take. They are made when they are first needed:
page-locking takes time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from godwit import config
from godwit.dataflow.future import Future
from godwit.dataflow.link import Link
from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.io.edge_sources import EdgeChunks, Edges, EdgeTable, end_dtype
from godwit.runtime.memory import Block, Space

MOST_READERS = 8
"""Threads that read a file at once, at most."""

_BLOCKS_A_READER = 3

Sender = Callable[[], None]


class Senders:
    """The threads' functions, and the blocks that go round. A context manager, which frees these.

    :param link: to the router; the last of the functions shuts it down
    :param space: the host's memory
    :param packet_bytes: of a block
    :param limit_bytes: of all blocks; None for as many as keep the threads busy
    :raises InputError: the limit is less than a block
    """

    def __init__(
        self, edges: Edges, link: Link, space: Space, packet_bytes: int, limit_bytes: int | None
    ) -> None:
        self._edges = edges
        self._link = link
        self._space = space
        self._packet_bytes = packet_bytes
        self._blocks: list[Block] = []
        self._back: deque[tuple[Block, Future[None] | None]] = deque()
        self._most_blocks = 0
        self._lock = threading.Lock()
        self._numbers = count()  # of pieces of a table
        most = None if limit_bytes is None else limit_bytes // packet_bytes
        if most == 0:
            raise InputError(
                f"host_bytes leaves {config.readable_bytes(limit_bytes or 0)} to read edges into, and a "
                f"packet takes {config.readable_bytes(packet_bytes)}: allow more, or use smaller packets"
            )
        self.functions = self._functions(most)
        self._running = len(self.functions)

    def _functions(self, most: int | None) -> list[Sender]:
        edges = self._edges
        if isinstance(edges, EdgeChunks):
            self._most_blocks = min(most or _BLOCKS_A_READER, _BLOCKS_A_READER)
            return [self._ending(self._send_chunks, edges)]
        if edges.array is not None:
            return [self._ending(self._send_array, edges)]
        pieces = -(-edges.count // self._rows(edges.dtype))
        readers = max(1, min(MOST_READERS, config.thread_count(), pieces, most or MOST_READERS))
        blocks = readers * _BLOCKS_A_READER
        self._most_blocks = blocks if most is None else min(most, blocks)
        return [self._ending(self._send_pieces, edges) for _ in range(readers)]

    def _ending(self, function: Callable[[Any], None], edges: Edges) -> Sender:
        """A function that shuts the link down if it is the last to end."""

        def send_edges() -> None:
            function(edges)
            with self._lock:
                self._running -= 1
                left = self._running
            if left == 0:
                self._link.shutdown()

        return send_edges

    def _rows(self, dtype: np.dtype[Any]) -> int:
        """Rows of a block."""
        return max(1, self._packet_bytes // (2 * dtype.itemsize))

    def _send_array(self, edges: EdgeTable) -> None:
        """All at once, from where it is."""
        if edges.count:
            self._link.send(edges.array, metadata=(0, 0)).wait()

    def _send_pieces(self, edges: EdgeTable) -> None:
        """Whichever pieces nobody else has taken."""
        rows = self._rows(edges.dtype)
        while (first := next(self._numbers) * rows) < edges.count:
            some = min(rows, edges.count - first)
            self._send_filled(edges.dtype, some, (0, first), partial(edges.fill, first=first))

    def _send_chunks(self, chunks: EdgeChunks) -> None:
        """One chunk after the other, each copied, so that the iterator may have its array back."""
        for number, chunk in enumerate(chunks):
            dtype = end_dtype(chunk.dtype, f"chunk {number}")
            for first in range(0, len(chunk), self._rows(dtype)):
                piece = chunk[first : first + self._rows(dtype)]
                self._send_filled(dtype, len(piece), (number, first), partial(np.copyto, src=piece))

    def _send_filled(
        self,
        dtype: np.dtype[Any],
        rows: int,
        origin: tuple[int, int],
        fill: Callable[[Array], None],
    ) -> None:
        """Fill the next block that is free, and send it."""
        block, before = self._next_block()
        try:
            if before is not None:
                before.wait()
            view = block.view(dtype, (rows, 2))
            fill(view)
            before = self._link.send(view, metadata=origin)
        finally:  # also where this thread ends in the middle: others may still come for one
            self._back.append((block, before))

    def _next_block(self) -> tuple[Block, Future[None] | None]:
        """A block to fill when its future is there."""
        with self._lock:
            is_enough = len(self._blocks) == self._most_blocks
            if is_enough or (self._back and _is_done(self._back[0][1])):
                return self._back.popleft()
            block = self._space.allocate(self._packet_bytes)
            self._blocks.append(block)
            return block, None

    def __enter__(self) -> Senders:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the blocks; the workers have ended."""
        for block in self._blocks:
            block.free()
        self._blocks.clear()


def _is_done(future: Future[None] | None) -> bool:
    return future is None or future.done
