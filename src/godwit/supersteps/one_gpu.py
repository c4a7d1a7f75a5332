"""Plans of kernels that one GPU runs alone, with the arrays to which their arguments point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import compile_meanwhile
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.first_gpu import Outcome
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_vertices
from godwit.supersteps.run import STEP, THREADS, StepPlan

_LEAST_BYTES = 8
"""Size of the smallest buffer: one of no bytes has no address."""


@dataclass
class Preparation:
    """Source of a plan's kernel, and the time of making its rows, while the kernel is compiled.

    :param source: of the kernel
    :param rows_s: seconds of what was made while it was compiled
    """

    source: str
    rows_s: float = 0.0


@contextmanager
def compiling(placement: StepPlacement, source: str) -> Iterator[Preparation]:
    """Compile a kernel in another thread, while the block makes rows and whatever else the plan needs."""
    begin = perf_counter()
    compile_meanwhile(placement.indexes[0], source)
    prepared = Preparation(source)
    yield prepared
    prepared.rows_s = perf_counter() - begin


class OneGpuPlan(StepPlan[StepPlacement]):
    """A step kernel on a placement with one device.

    A subclass makes rows under :func:`compiling`, calls this constructor, fills in ``struct``, calls
    :meth:`allocate`, and at last :meth:`lay_out`. A query calls :meth:`ask`, then :meth:`deliver`, then
    :meth:`outcome`. Arrays are kept with the placement, and shared by plans of other options.

    :param arguments: dtype of the kernel's ``Arguments``
    :param owner: the plans that share arrays: those of one algorithm
    :param threads: of a block, if the options do not say
    :ivar struct: the arguments
    :ivar seconds: seconds of the latest query by phase; those of the first query include making the plan
    """

    def __init__(
        self,
        placement: StepPlacement,
        prepared: Preparation,
        arguments: np.dtype[Any],
        gpu: GpuOptions,
        owner: str,
        threads: int = THREADS,
    ) -> None:
        super().__init__(placement, prepared.source, np.zeros(1, arguments), gpu, threads=threads)
        (self.part,) = placement.parts
        self.struct: Any = self.arguments[0]
        self.seconds: dict[str, float] = {}
        self._ended: Any = None
        self._making_s = {"rows": prepared.rows_s, "compile": self.compile_s}
        self._arrays = placement.arrays(owner)

    def array(self, name: str, number: int = 0) -> DeviceArray:
        """Return an array by name; where a field of the arguments has several pointers, by number, too."""
        return self._arrays[name, number]

    def allocate(self, sizes: Mapping[str, int]) -> None:
        """Make room for arrays, and point the fields of the arguments to them that have their names.

        A field of several pointers gets as many arrays, all of the same size.

        :param sizes: bytes by name
        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        fields: Mapping[str, Any] = self.arguments.dtype.fields or {}
        shapes = {name: fields[name][0].shape if name in fields else () for name in sizes}
        needs = [
            (self.array(name, number), [max(_LEAST_BYTES, nbytes)])
            for name, nbytes in sizes.items()
            for number in range(math.prod(shapes[name]))
        ]
        if any(0 < array.nbytes(self.part) < nbytes for array, (nbytes,) in needs):
            self.wait_for_queue()
        self.placement.reserve(*needs)
        for name in sizes.keys() & fields.keys():
            pointers = [
                self.array(name, number)[self.part].pointer
                for number in range(math.prod(shapes[name]))
            ]
            if len(shapes[name]) == 0:
                (self.struct[name],) = pointers
            else:
                self.struct[name] = np.array(pointers, np.uint64).reshape(shapes[name])

    def ask(
        self, state: Any = None, *, phase: int = 0, early: bool = False, poll: ProgressPoll | None
    ) -> Any:
        """Run the kernel, and return the outcome of its last launch: a ``STEP_OUTCOME``.

        Parameters and errors as of :meth:`run`.
        """
        self.seconds, self._making_s = self._making_s, {}
        self.seconds["kernel"] = self.run(state, phase=phase, early=early, poll=poll)
        self._ended = self.controls()[0]  # which takes some microseconds
        return self._ended

    def deliver(
        self, name: str, dtype: Any, location: ResultLocation, *, result_dtype: Any = None
    ) -> Any:
        """Return an array of vertices' values in the order of vertices.

        Parameters as of :func:`deliver_vertices`, but for the name of the array.
        """
        values, self.seconds["gather"] = deliver_vertices(
            self.placement, self.array(name), dtype, location, result_dtype=result_dtype
        )
        return values

    def outcome(self, values: Any, processed: int, arcs: int) -> Outcome:
        """Return the outcome of the query.

        :param processed: index of the kernel's count of items that it processed
        :param arcs: index of its count of arcs
        """
        counts, steps = self._ended["run_counts"], self._ended["state"][STEP]
        return Outcome(values, int(counts[processed]), int(counts[arcs]), int(steps), self.seconds)


def require_few_vertices(placement: StepPlacement, what: str) -> None:
    """Raise GraphTooLargeError if the kernel cannot count the vertices in 32 bits.

    :param what: subject and verb of the message
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"{what} fewer than {1 << 32:,} vertices, and the graph has {placement.vertex_count:,}; use "
            "devices='cpu'"
        )
