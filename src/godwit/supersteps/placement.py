"""A graph on GPUs for supersteps: in positions (graph/partition/positions.py), each GPU with its rows.

Nothing lies on the GPUs before it is asked for. Rows of a direction, in an order, are made once and kept.
But for making and closing a placement, whoever touches the GPUs has them: :meth:`StepPlacement.held`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any, Literal

import numpy as np

from godwit.dtypes import Array
from godwit.errors import ClosedContextError, InputError
from godwit.graph.csr import Graph
from godwit.graph.partition import Partition
from godwit.graph.partition.positions import Positions, number_vertices
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Buffer, Stream
from godwit.runtime.cuda.gpu_locks import held_gpus
from godwit.runtime.protocol import Device
from godwit.supersteps import hubs as step_hubs
from godwit.supersteps import readers as step_readers
from godwit.supersteps import rows as step_rows
from godwit.supersteps.hubs import HubRows
from godwit.supersteps.rows import StepRows
from godwit.trace import seconds_since
from godwit.worker.cuda.placement import GpuEndpoints, GpuMemory, require_room

Direction = Literal["out", "in"]

_CLOSED = "this placed graph was closed; place the graph again"


@dataclass
class StepPart(GpuMemory):
    """One device's positions, and what it holds.

    :param device: which part it is
    :param first: its first position
    :param classes: (7) int64 own index where each class of degrees begins, and where the last ends
    """

    device: int
    first: int
    classes: Array

    @property
    def owned(self) -> int:
        """Vertices of its own."""
        return int(self.classes[-1])

    @property
    def active(self) -> int:
        """Those of them that have an arc; they come first."""
        return int(self.classes[-2])

    def lacks(self, name: str, nbytes: int) -> bool:
        """Whether there is no such buffer of so many bytes."""
        return name not in self.buffers or self.buffers[name].nbytes < nbytes


class StepPlacement(GpuEndpoints[StepPart]):
    """A graph on GPUs, in positions.

    :param devices: one a part; some may be the same
    :param partition: who owns which vertex; None for what suits the graph
    :param id_dtype: of positions; None: int32 where that does
    :param numbering: positions that are known, for so many devices
    :raises InputError: too many devices, or a partition into another number of parts
    :raises DeviceError: a GPU cannot run kernels whose blocks wait for each other

    :ivar capacity: positions of a part
    :ivar count: positions of all parts: the length of an array of all vertices' values
    :ivar copies_fit: whether the whole graph has room on each GPU, as far as is known
    :ivar seconds: ``"number"``: to find the positions; ``"rows"``: to bring up and make all rows so far,
        ``"sort"`` of it; ``"deliver"``: results
    """

    def __init__(
        self,
        devices: Sequence[Device],
        graph: Graph,
        partition: Partition | None = None,
        *,
        id_dtype: Any = None,
        numbering: Positions | None = None,
    ) -> None:
        super().__init__(devices)
        if partition is not None and (
            partition.part_count != len(devices) or len(partition.owner) != graph.vertex_count
        ):
            raise InputError(
                f"the partition is of {len(partition.owner)} vertices into {partition.part_count} parts, "
                f"and {graph.vertex_count} into {len(devices)} are needed"
            )
        self.graph = graph
        self.devices = tuple(devices)
        self.seconds: dict[str, float] = {}
        self._copies: list[StepPlacement] = []
        self.copies_fit = True
        self._making = Lock()
        self._rows: dict[tuple[Direction, bool, bool], list[StepRows]] = {}
        self._readers: dict[tuple[Direction, ...], list[Buffer]] = {}
        self._hub_rows: list[HubRows] | None = None
        begin = perf_counter()
        if numbering is None:
            numbering = number_vertices(graph, len(devices), partition, id_dtype=id_dtype)
        self.numbering = numbering
        self.add_seconds("number", begin)
        with held_gpus(self.indexes):
            driver.enable_peer_access(self.indexes)
            try:
                for device, index in enumerate(self.indexes):
                    first = device * self.capacity
                    classes = self.numbering.classes[device]
                    part = StepPart(index, device, first, classes, stream=Stream(index))
                    self.parts.append(part)
            except BaseException:
                self._free()
                raise

    @property
    def capacity(self) -> int:
        """Positions of a part."""
        return self.numbering.capacity

    @property
    def count(self) -> int:
        """Positions of all parts."""
        return self.numbering.count

    @property
    def vertex_count(self) -> int:
        """Vertices of the graph."""
        return self.graph.vertex_count

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Of positions."""
        return self.numbering.position.dtype

    def add_seconds(self, name: str, begin: float) -> None:
        """Add the time since then to a phase's."""
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begin

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the GPUs to oneself.

        :raises ClosedContextError: the placement is closed
        """
        with held_gpus(self.indexes):
            if self.closed:
                raise ClosedContextError(_CLOSED)
            yield

    def rows(
        self, direction: Direction, weighted: bool = False, *, ordered: bool = False
    ) -> list[StepRows]:
        """The arcs that leave (``"out"``) or reach (``"in"``) each device's vertices.

        :param weighted: with weights; in the graph's order, then
        :param ordered: in the order of the graph, or of its reverse; else neighbours of high degree first
        :raises GraphTooLargeError: need against free, before anything is allocated
        :raises InputError: the graph has no weights
        """
        direction = self._direction(direction)
        if weighted and not self.graph.is_weighted:
            raise InputError("this graph has no weights")
        key = (direction, weighted, ordered or weighted)
        found = self._rows.get(key)
        if found is None:
            begin = perf_counter()
            found = self._rows[key] = step_rows.make_rows(self, *key)
            self.add_seconds("rows", begin)
            seconds_since(begin, "rows")
        return found

    def hub_rows(self) -> list[HubRows]:
        """On each device the arcs of all devices' hubs to its vertices; a directed graph has no hubs."""
        if self._hub_rows is None:
            self._hub_rows = step_hubs.make_hub_rows(self, self.rows("out"))
        return self._hub_rows

    def readers(self, *directions: Direction) -> list[Buffer]:
        """On each device (devices, capacity / 32) uint32: which devices read which own vertices.

        That is, have an arc to them in their rows of any of these directions; of none: all devices read
        all. What a device has of itself is of no use.

        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        both = sorted({self._direction(direction) for direction in directions})
        key: tuple[Direction, ...] = tuple(both)
        found = self._readers.get(key)
        if found is None:
            row_sets = [self._rows_there(direction) for direction in key]
            begin = perf_counter()
            name = f"readers of {' and '.join(key) or 'all'}"
            found = self._readers[key] = step_readers.make_readers(self, name, row_sets)
            self.add_seconds("rows", begin)
            seconds_since(begin, "rows")
        return found

    def make_room(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Have buffers of these names on each device, of so many bytes at least.

        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        missing = [
            sum(nbytes for name, nbytes in wanted.items() if part.lacks(name, nbytes))
            for part, wanted in zip(self.parts, sizes, strict=True)
        ]
        require_room(self.indexes, missing, driver.free_memory_bytes)
        for part, wanted in zip(self.parts, sizes, strict=True):
            for name, nbytes in wanted.items():
                part.room(name, nbytes)

    def _rows_there(self, direction: Direction) -> list[StepRows]:
        """Rows in any order, new ones only where there are none."""
        for (known, _, _), rows in self._rows.items():
            if known == direction:
                return rows
        return self.rows(direction)

    def _direction(self, direction: Direction) -> Direction:
        """Where edges are two arcs each, what leaves a vertex is what reaches it."""
        return direction if self.graph.directed else "out"

    def degrees(self, direction: Direction) -> list[Buffer]:
        """On each device (owned) int64: how many arcs leave or reach each own vertex."""
        return step_rows.make_degrees(self, self._direction(direction))

    def positions(self) -> list[Buffer]:
        """On each device (n) ids: the position of each vertex."""
        return [step_rows.positions_on(self, part) for part in self.parts]

    def vertices(self) -> list[Buffer]:
        """On each device (owned) ids: the vertex of each own index."""
        return step_rows.make_vertices(self)

    def position(self, vertices: Any) -> Array:
        """(k) int64 positions of vertices."""
        return self.numbering.position[np.asarray(vertices, np.int64)].astype(np.int64)

    def vertex(self, positions: Any) -> Array:
        """(k) int64 vertices of positions; -1 where there is none."""
        return self.numbering.vertex[np.asarray(positions, np.int64)].astype(np.int64)

    @property
    def joint(self) -> int:
        """How many devices work together: all."""
        return len(self.parts)

    @property
    def placements(self) -> tuple[StepPlacement, ...]:
        """As :attr:`StepCopies.placements`: itself, whose devices search together."""
        return (self,)

    def copies(self, count: int) -> StepCopies:
        """The whole graph on each of the first GPUs, for what they do faster apart.

        Made once and kept until :meth:`drop_copies`, by someone who does not hold the GPUs.

        :param count: at most as many as there are GPUs
        :raises ClosedContextError: the placement is closed
        """
        places = [self.indexes.index(index) for index in dict.fromkeys(self.indexes)][:count]
        with self._making:
            while len(self._copies) < count and not self.closed:
                device = self.devices[places[len(self._copies)]]
                known = self._copies[0].numbering if self._copies else None
                self._copies.append(StepPlacement([device], self.graph, numbering=known))
            if self.closed:
                for copy in self._copies:  # it was closed while these were made
                    copy.close()
                raise ClosedContextError(_CLOSED)
            return StepCopies(self._copies[:count], places)

    def drop_copies(self) -> None:
        """Give their memory back, once nobody uses them."""
        with self._making:
            copies, self._copies = self._copies, []
        for copy in copies:
            copy.close()

    def _free(self) -> None:
        super()._free()
        self._rows, self._readers, self._hub_rows = {}, {}, None
        for copy in self._copies:
            copy.closed = True
            copy._free()


class StepCopies:
    """The whole graph on each of several GPUs, which know nothing of each other: for one run.

    :param placements: of one device each
    :param places: which devices of the placement that they are copies of
    """

    joint = 1

    def __init__(self, placements: Sequence[StepPlacement], places: Sequence[int]) -> None:
        self.placements = tuple(placements)
        self.places = list(places)
        self.indexes = [index for one in placements for index in one.indexes]

    @property
    def parts(self) -> list[StepPart]:
        """One a GPU."""
        return [part for one in self.placements for part in one.parts]

    @property
    def capacity(self) -> int:
        """Positions of a part."""
        return self.placements[0].capacity

    def sharing(self, index: int) -> int:
        """How many endpoints a GPU has."""
        return self.indexes.count(index)

    def is_narrow(self) -> bool:
        """Whether a GPU has less memory left than its copy takes."""
        return any(
            driver.free_memory_bytes(part.index) < sum(one.nbytes for one in part.buffers.values())
            for part in self.parts
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """As :meth:`StepPlacement.held`."""
        with held_gpus(self.indexes):
            if any(one.closed for one in self.placements):
                raise ClosedContextError(_CLOSED)
            yield
