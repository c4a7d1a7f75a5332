"""Memory that the process keeps for the next who asks: of GPUs, and of the host what is page-locked.

To allocate buffers and free them takes milliseconds, to page-lock them more, and a call that filters takes
some tens.

Invariants: of each place at most ``limit_bytes`` are kept, nothing uses what is kept, and what is freed for
others is what has been kept the longest: so calls that need the same again and again find it, whatever was
needed before them.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class KeptMemory(Generic[Kept]):
    """Allocations by place and size.

    :param limit_bytes: of each place: a GPU's index, or 0 for the host
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._spare: dict[int, list[tuple[int, Kept]]] = {}  # the longest kept first
        self._lock = threading.RLock()  # the collector of garbage may come while it is held

    def take(self, index: int, nbytes: int) -> Kept | None:
        """One of exactly so many bytes, if there is one: that which was kept last."""
        with self._lock:
            spare = self._spare.get(index, [])
            for place in range(len(spare) - 1, -1, -1):
                if spare[place][0] == nbytes:
                    return spare.pop(place)[1]
            return None

    def put(self, index: int, nbytes: int, allocation: Kept) -> list[Kept]:
        """Keep one; those that are to be freed for it."""
        surplus = []
        with self._lock:
            spare = self._spare.setdefault(index, [])
            spare.append((nbytes, allocation))
            kept = self.kept_bytes(index)
            while kept > self.limit_bytes:
                size, one = spare.pop(0)
                surplus.append(one)
                kept -= size
        return surplus

    def take_all(self, index: int) -> list[Kept]:
        """All of a place, to be freed."""
        with self._lock:
            return [one for _, one in self._spare.pop(index, [])]

    def kept_bytes(self, index: int) -> int:
        """What is kept of a place."""
        with self._lock:
            return sum(size for size, _ in self._spare.get(index, []))
