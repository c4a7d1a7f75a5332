"""Memory of GPUs that the process keeps for the next who asks: where it lies, nothing else.

To allocate buffers and free them takes milliseconds, and a call that filters takes some tens.

Invariants: of each GPU at most ``limit_bytes`` are kept, nothing uses what is kept, and nobody comes here
but :mod:`godwit.backends.cuda.driver`, which allocates and frees.
"""

from __future__ import annotations

import threading


class KeptMemory:
    """Allocations by GPU and size.

    :param limit_bytes: of each GPU
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._spare: dict[int, dict[int, list[int]]] = {}  # pointers by size, by GPU
        self._lock = threading.RLock()  # the collector of garbage may come while it is held

    def take(self, index: int, nbytes: int) -> int | None:
        """One of exactly so many bytes, if there is one."""
        with self._lock:
            spare = self._spare.get(index, {}).get(nbytes)
            return spare.pop() if spare else None

    def put(self, index: int, nbytes: int, pointer: int) -> list[int]:
        """Keep one; those that are to be freed for it: other sizes first, as they were not used last."""
        surplus: list[int] = []
        with self._lock:
            spare = self._spare.setdefault(index, {})
            spare.setdefault(nbytes, []).append(pointer)
            kept = self.kept_bytes(index)
            for size in sorted(spare, key=lambda size: size == nbytes):
                while kept > self.limit_bytes and spare[size]:
                    surplus.append(spare[size].pop(0))
                    kept -= size
                if not spare[size]:
                    del spare[size]
        return surplus

    def take_all(self, index: int) -> list[int]:
        """All of a GPU, to be freed."""
        with self._lock:
            return [one for spare in self._spare.pop(index, {}).values() for one in spare]

    def kept_bytes(self, index: int) -> int:
        """What is kept of a GPU."""
        with self._lock:
            return sum(size * len(spare) for size, spare in self._spare.get(index, {}).items())
