"""The kernel that filters, pretended: NumPy, put into a stream of the GPUs of pretend_cuda.py."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from godwit.algorithms.filtering.predicate import not_boolean
from godwit.errors import OperatorError
from pretend_cuda import Machine, host_view


class PretendedFilter:
    """Stands for GpuFilter."""

    def __init__(
        self,
        machine: Machine,
        index: int,
        stream: Any,
        predicate: Any,
        dtype: Any,
        most_items: int,
        slots: int = 1,
        **more: Any,
    ) -> None:
        if predicate(dtype.type(0)) not in (True, False):
            raise OperatorError(not_boolean(predicate, "a number"))
        self._machine = machine
        self._stream = stream.handle
        self._predicate = np.vectorize(predicate, otypes=[bool])
        self._dtype = dtype
        self._most_items = most_items
        self._done = [threading.Event() for _ in range(slots)]
        self._counts = [0] * slots

    def start(self, source: int, count: int, target: int, slot: int = 0) -> None:
        assert count <= self._most_items
        done = self._done[slot] = threading.Event()

        def kernel() -> None:
            items = host_view(source, count, self._dtype)
            kept = items[self._predicate(items)] if count else items
            room = host_view(target, count, self._dtype)
            room[:] = 77  # it may write anywhere into its room
            room[: len(kept)] = kept
            self._counts[slot] = len(kept)
            done.set()

        self._machine.launch(self._stream, kernel)

    def is_done(self, slot: int = 0) -> bool:
        return self._done[slot].is_set()

    def kept_count(self, slot: int = 0) -> int:
        assert self._done[slot].wait(20)
        return self._counts[slot]

    def close(self) -> None:
        pass
