"""Distances from many sources on GPUs: arguments of hops.cuh, sweeps.cuh and lengths.cuh; results.

Each GPU has the whole graph and a share of the sources. By arcs, all its blocks search from many
sources at once: a *line* of words for each vertex has a bit for each of these. By weights, and in
graphs with many levels, they sweep over a contracted graph (contraction.py), or, if there is none, each
block searches from a source of its own. Distances are computed by position, for as many sources at a
time as there is memory for, and delivered from there: in the order of vertices or targets, or as sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.distances.contraction import Contraction, contraction_of
from godwit.algorithms.distances.cpu import in_bits
from godwit.algorithms.distances.query import (
    HOP_FIELDS,
    LARGEST,
    LENGTH_FIELDS,
    DistanceQuery,
    DistanceSums,
    add_hop_fields,
)
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.placement import PlacedGraph
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.gpu_arrays import address_of
from godwit.runtime.cuda.memory import PinnedBuffer, new_host_array
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import download
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.rows import RowClass, StepRows
from godwit.supersteps.run import (
    STEP,
    THREADS,
    StepPlan,
    left_rows_bytes,
    point_rows,
    step_source,
)

Placed = StepPlacement | StepCopies

LINES = (16, 4, 1)
"""Possible widths of lines, in words of 64 bits."""
PLANES = 8
"""Bits of a level's number while levels are recorded."""
SEARCH_THREADS = 256
"""Threads of a block that searches from a source of its own."""

_MANY_SOURCES = 1024
"""Sources from which contracting a graph pays."""
_LEAST_SHARE = 64
"""Sources that pay for copying the whole graph to another GPU."""
_LEAST_FILLED = 2
"""A width of lines is used if the sources fill at least one half (1 / 2) of their bits."""
_MEMORY_SHARE = 2
"""Rows of distances, or lines, may take one half (1 / 2) of the free memory."""
_MOST_PER_STEP = 16
_STEP_ARCS = 1 << 24
_FIELDS = HOP_FIELDS  # of sums on GPUs, also of lengths

HOPS_ARGUMENTS = struct_dtype("algorithms/distances/hops.cuh", "Arguments")
LENGTHS_ARGUMENTS = struct_dtype("algorithms/distances/lengths.cuh", "Arguments")

SWEEPS_ARGUMENTS = struct_dtype("algorithms/distances/sweeps.cuh", "Arguments")


class HopsPhase(IntEnum):
    """Phases of hops.cuh."""

    BEGIN, CLEAR, PUSH, SPREAD, PULL, QUEUE, DELIVER, SUM = range(8)


class HopsWord(IntEnum):
    """Words of the state of hops.cuh that are read when a run has ended."""

    ALL_FOUND, ALL_VISITED = 9, 10


class LengthsPhase(IntEnum):
    """Phases of lengths.cuh."""

    SEARCH, DELIVER, SUM = range(3)


class LengthsWord(IntEnum):
    """Words of the state of lengths.cuh that are read when a run has ended."""

    ALL_VISITED, ALL_FOUND = 1, 2


class SweepsPhase(IntEnum):
    """Phases of sweeps.cuh."""

    BEGIN, CLIMB, CORE, DESCEND, DELIVER, SUM = range(6)


class SweepsWord(IntEnum):
    """Words of the state of sweeps.cuh that are read when a run has ended."""

    ALL_VISITED, ALL_FOUND, ALL_TOO_FAR = 1, 2, 3


def hops_source(id_dtype: np.dtype[Any], lanes: int, *, by_vertex: bool) -> str:
    """Return the source of the kernel that searches in bits.

    :param lanes: words of a line
    :param by_vertex: sums of vertices are wanted, not a matrix
    """
    text = step_source(
        "algorithms/distances/hops.cuh",
        types={"Id": c_type(id_dtype)},
        enums=(HopsPhase, HopsWord),
        work="grid_hops",
    )
    names = {"LANES": f"{lanes}u", "PLANES": f"{PLANES}u", "BY_VERTEX": str(by_vertex).lower()}
    return "".join(f"#define {name} {value}\n" for name, value in names.items()) + text


def lengths_source(id_dtype: np.dtype[Any], weight_dtype: np.dtype[Any] | None) -> str:
    """Return the source of the kernel whose blocks search from a source each.

    :param weight_dtype: None if arcs are counted
    """
    weight = np.dtype(np.int32) if weight_dtype is None else weight_dtype
    result: np.dtype[Any] = np.dtype(np.float64 if weight.kind == "f" else np.int64)
    if weight_dtype is None:
        result = np.dtype(np.int32)
    text = step_source(
        "algorithms/distances/lengths.cuh",
        types={"Id": c_type(id_dtype), "Weight": c_type(weight), "Result": c_type(result)},
        enums=(LengthsPhase, LengthsWord),
        work="grid_lengths",
    )
    return f"#define UNIT_LENGTHS {str(weight_dtype is None).lower()}\n{text}"


def sweeps_source(id_dtype: np.dtype[Any], *, weighted: bool) -> str:
    """Return the source of the kernel that sweeps over a contracted graph."""
    result = np.dtype(np.int64 if weighted else np.int32)
    return step_source(
        "algorithms/distances/sweeps.cuh",
        types={"Id": c_type(id_dtype), "Result": c_type(result)},
        enums=(SweepsPhase, SweepsWord),
        work="grid_sweeps",
    )


class SearchArrays:
    """The arrays of searches, kept on the devices between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.lines = tuple(DeviceArray(placement) for _ in range(2))
        self.planes = DeviceArray(placement)
        self.queued = DeviceArray(placement)
        self.united = DeviceArray(placement)
        self.queues = tuple(DeviceArray(placement) for _ in range(2))
        self.left_rows = DeviceArray(placement)
        self.vertex_sums = DeviceArray(placement)
        self.searches = DeviceArray(placement)
        self.wanted = DeviceArray(placement)
        self.columns = DeviceArray(placement)
        self.matrix = DeviceArray(placement)
        self.results = DeviceArray(placement)
        self.source_sums = DeviceArray(placement)
        self.stamps = DeviceArray(placement)
        self.contractions = {
            weighted: tuple(DeviceArray(placement) for _ in range(6)) for weighted in (False, True)
        }
        """Levels, offsets, heads, lengths up and down, and positions."""


@dataclass(frozen=True)
class _Piece:
    """Rows that a device computes in one run.

    :param begin: first row, in the order of the query's sources
    :param end: end of the rows
    """

    begin: int
    end: int

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.end - self.begin


Take = Callable[["_SearchPlan", Sequence[_Piece]], None]
"""Takes the results of a run, of each device a piece."""


class GpuSearches:
    """Searches on the GPUs of a placed graph.

    :param location: of matrices
    :param poll: called now and then with the number of sources begun; an exception ends the run
    """

    def __init__(
        self,
        placed: PlacedGraph,
        gpu: GpuOptions,
        location: ResultLocation,
        poll: RunPoll | None,
    ) -> None:
        self._placed = placed
        self._gpu = gpu
        self._location = location
        self._poll = poll
        devices = len(placed.context.devices)
        self._reached, self._visits, self._steps = np.zeros((3, devices), np.int64)
        self._seconds: dict[str, float] = {}
        self._contracted = False

    def report(self, statistics: RunStatistics) -> None:
        """Add the seconds and counts of all runs to statistics."""
        statistics.split_run(self._seconds)
        statistics.processed_items = self._reached
        statistics.arcs_relaxed = self._visits
        statistics.rounds = self._steps
        if self._contracted:
            statistics.solver = "contracted"

    def distances(self, query: DistanceQuery) -> Any:
        """Return the matrix of distances: (k, t), with a row per source.

        :raises GraphTooLargeError: need against free
        :raises ValueOverflowError: a sum of integer weights is too large
        """
        rows, columns = query.shape
        matrix = _Matrix(rows * columns, query.dtype, self._location)
        if rows * columns:
            self._run(query, "matrix", matrix)
        found = matrix.array.reshape(rows, columns)
        query.check_overflow(found)
        return found

    def sums_by_source(self, query: DistanceQuery) -> DistanceSums:
        """Return sums over the targets, for each source; errors as of :meth:`distances`."""
        fields = np.zeros((len(query.sources), _FIELDS), np.int64)

        def take(plan: _SearchPlan, pieces: Sequence[_Piece]) -> None:
            for part, arrays, piece in plan.members(pieces):
                found = arrays.source_sums[part].download(np.int64, piece.count * _FIELDS)
                fields[piece.begin : piece.end] = found.reshape(-1, _FIELDS)

        are_integers = not query.weighted
        if len(fields):
            are_integers |= self._run(query, "sums", take) is not None
        if are_integers:
            return DistanceSums.of_hops(fields)
        counts, sums = fields[:, 0], fields.view(np.float64)[:, :LENGTH_FIELDS].copy()
        sums[:, 0] = counts
        query.check_overflow(sums[:, LARGEST])
        return DistanceSums.of_lengths(sums)

    def sums_by_vertex(self, query: DistanceQuery) -> DistanceSums:
        """Return sums over the sources, for each vertex, of distances in arcs.

        :raises GraphTooLargeError: need against free
        """
        n = query.graph.vertex_count
        fields = np.zeros((n, _FIELDS), np.int64)

        def take(plan: _SearchPlan, pieces: Sequence[_Piece]) -> None:
            for part, arrays, _ in plan.members(pieces):
                found = arrays.vertex_sums[part].download(np.int64, n * _FIELDS)
                by_vertex = found.reshape(-1, _FIELDS)[plan.first.numbering.position]
                add_hop_fields(fields, by_vertex)

        if n and len(query.sources):
            self._run(query, "vertices", take)
        return DistanceSums.of_hops(fields)

    def _run(self, query: DistanceQuery, form: str, take: Take) -> Contraction | None:
        """Search from all sources of a query; ``take`` copies the results of each run of a kernel.

        :param form: of results: ``"matrix"``, ``"sums"`` of rows, or sums of ``"vertices"``
        :returns: the contraction that was used, if any
        """
        placed = self._placed
        if query.rows is not placed.graph:
            placed = placed.reweighted(query.rows)
        placement = place_positions(placed)
        if placement.capacity >= 1 << 32:
            raise GraphTooLargeError(
                f"the graph has {query.graph.vertex_count:,} vertices, and searches from many sources take "
                f"fewer than {1 << 32:,}"
            )

        begin = perf_counter()
        contraction = None if in_bits(query) else contraction_of(query, _MANY_SOURCES, self._poll)
        if contraction is not None:
            self._seconds["contract"] = self._seconds.get("contract", 0.0) + perf_counter() - begin

        def run(target: Placed) -> None:
            self._run_on(target, query, form, take, contraction)

        def run_all() -> None:
            if len(placement.parts) == 1:
                run(placement)
            else:
                gpus = len(set(placement.indexes))
                placement.run_on_copies(min(gpus, max(1, len(query.sources) // _LEAST_SHARE)), run)

        counted = None if self._poll is None else self._poll.before
        run_all()
        if contraction is not None and not contraction.has_room:
            contraction = None
            if self._poll is not None and counted is not None:
                self._poll.before = counted
            run_all()
        self._contracted = contraction is not None
        return contraction

    def _run_on(
        self,
        target: Placed,
        query: DistanceQuery,
        form: str,
        take: Take,
        contraction: Contraction | None,
    ) -> None:
        """Search on some devices; ends early if the contraction turns out to have no room."""
        first, *others = target.placements
        share = -(-len(query.sources) // len(target.parts))
        lanes = _lanes(target, share, form) if in_bits(query) else 0
        # A plan points to the arrays of all placements, and is kept with the first.
        versions = tuple(other.version for other in others)
        way = lanes if contraction is None else "contracted"
        key = ("distances", way, form == "vertices", query.weighted, self._gpu, versions)
        with target.held():
            plan = first.plan(key, lambda: self._make_plan(target, query, form, lanes, contraction))
            plan.begin(query, form, share, take if isinstance(take, _Matrix) else None)
            for pieces in plan.pieces(len(query.sources), share):
                plan.ask(pieces)
                kernel_s = plan.run(poll=self._poll)
                self._seconds["kernel"] = self._seconds.get("kernel", 0.0) + kernel_s
                self._count(plan)
                if (
                    contraction is not None
                    and plan.controls()["state"][:, SweepsWord.ALL_TOO_FAR].any()
                ):
                    contraction.has_room = False
                    return
                take(plan, pieces)
                if self._poll is not None:
                    self._poll.before += sum(piece.count for piece in pieces)

    def _make_plan(
        self,
        target: Placed,
        query: DistanceQuery,
        form: str,
        lanes: int,
        contraction: Contraction | None,
    ) -> _SearchPlan:
        made: _SearchPlan
        if contraction is not None:
            made = _SweepsPlan(target, contraction, self._gpu, weighted=query.weighted)
        elif lanes:
            made = _HopsPlan(target, lanes, self._gpu, by_vertex=form == "vertices")
        else:
            made = _LengthsPlan(target, self._gpu, weighted=query.weighted)
        self._seconds["compile"] = self._seconds.get("compile", 0.0) + made.compile_s
        return made

    def _count(self, plan: _SearchPlan) -> None:
        controls = plan.controls()["state"]
        devices = plan.placement.devices if isinstance(plan.placement, StepCopies) else [0]
        for device, state in zip(devices, controls, strict=True):
            self._reached[device] += int(state[plan.found_word])
            self._visits[device] += int(state[plan.visited_word])
            self._steps[device] += int(state[STEP])


class _Matrix:
    """A matrix that takes its rows from GPUs, in the memory of a location.

    :param count: number of elements
    :ivar array: the elements, of NumPy or CuPy
    """

    def __init__(self, count: int, dtype: np.dtype[Any], location: ResultLocation) -> None:
        self._location = location
        self._dtype = dtype
        self._count = count
        self._is_locked = location.gpu is not None
        self.array: Any = np.empty(0, dtype) if count == 0 else None

    def allocate(self, indexes: Sequence[int]) -> None:
        """Allocate the elements.

        :param indexes: GPUs that copy rows to them
        """
        if self._location.gpu is not None:
            self.array = self._location.empty(self._count, self._dtype)
        else:
            self.array, self._is_locked = new_host_array(self._count, self._dtype, indexes)

    def address_on(self, index: int) -> int | None:
        """Return the address of the elements if they lie on a GPU, where its kernel may write them."""
        return address_of(self.array) if index == self._location.gpu else None

    def __call__(self, plan: _SearchPlan, pieces: Sequence[_Piece]) -> None:
        """Copy rows that devices have computed."""
        columns = plan.column_count
        for part, arrays, piece in plan.members(pieces):
            if piece.count == 0 or plan.writes_itself(part):
                continue
            nbytes = piece.count * columns * self._dtype.itemsize
            origin = arrays.results[part].pointer
            first, end = piece.begin * columns, piece.end * columns
            if self._is_locked:
                base = (
                    self.array.ctypes.data if self._location.gpu is None else address_of(self.array)
                )
                to = base + first * self._dtype.itemsize
                driver.copy_async(to, origin, nbytes, part.stream)
            else:
                download(part.index, origin, self.array[first:end])
        for part, _, _ in plan.members(pieces):
            part.stream.synchronize()


def _lanes(target: Placed, share: int, form: str) -> int:
    """Return the number of 64-bit words of a vertex's line, which has a bit for each source of a run.

    :param share: number of sources of a device
    """
    if form == "vertices":
        return LINES[0]
    for lanes in LINES[:-1]:
        if share * _LEAST_FILLED < 64 * lanes:
            continue
        lines = 8 * lanes * (2 + PLANES) * target.capacity
        fits = all(
            lines <= memory.free_memory_bytes(part.index) // _MEMORY_SHARE for part in target.parts
        )
        if fits:
            return lanes
    return LINES[-1]


class _SearchPlan(StepPlan[StepPlacement | StepCopies]):
    """Searches of a placement with one device, or of copies, for one form of lines and one set of options.

    A subclass has the kernel's arguments. :meth:`begin` takes a query, then :meth:`ask` its rows, piece by
    piece.

    :ivar column_count: columns of the query's matrix
    """

    found_word: int
    """Word of the state with the number of pairs of a source and a vertex that it reaches."""
    visited_word: int
    """Word of the state with the number of arcs, or of vertices, that were visited."""
    item_bytes: int
    """Bytes of a distance while it is computed."""
    together = 1
    """Rows that are computed together: there is room for a multiple of them."""

    def __init__(
        self, target: Placed, text: str, arguments: Array, gpu: GpuOptions, threads: int
    ) -> None:
        super().__init__(target, text, arguments, gpu, threads=threads)
        self.first = target.placements[0]
        self._owners = list(target.placements)
        self._arrays = [owner.kept(SearchArrays) for owner in self._owners]
        self._sources = PinnedBuffer(self.first.id_dtype.itemsize)
        self._rows_at_once = 1
        self._writes: list[int | None] = []
        self.column_count = 0

    def members(self, pieces: Sequence[_Piece]) -> Iterator[tuple[StepPart, SearchArrays, _Piece]]:
        """Yield each device with its arrays and its piece."""
        yield from zip(self.placement.parts, self._arrays, pieces, strict=True)

    def writes_itself(self, part: StepPart) -> bool:
        """Return True if a device's kernel writes its rows into the result matrix; else they are copied."""
        return self._writes[self.placement.parts.index(part)] is not None

    def begin(self, query: DistanceQuery, form: str, share: int, matrix: _Matrix | None) -> None:
        """Write what is the same for all rows into the arguments, and make room.

        :param form: as of :meth:`GpuSearches._run`
        :param share: rows of a device
        :param matrix: takes the rows; None for sums
        :raises GraphTooLargeError: need against free
        """
        first = self.first
        positions = self.positions_of(query.sources)
        if positions.nbytes > self._sources.nbytes:
            self._sources.close()
            self._sources = PinnedBuffer(positions.nbytes)
        self._sources.upload(positions)
        self.column_count = query.shape[1]
        self._item = query.dtype.itemsize
        self._form = form
        self._writes = [None] * len(self._arrays)
        if matrix is not None:
            matrix.allocate(self.placement.indexes)
            self._writes = [matrix.address_on(part.index) for part in self.placement.parts]
        columns = wanted = None
        if query.targets is not None:
            columns = self.positions_of(query.targets)
            marks = np.zeros(-(-first.capacity // 32) * 32, np.bool_)
            marks[columns] = True
            wanted = np.packbits(marks, bitorder="little")
        arguments = self.arguments
        arguments["column_count"] = self.column_count
        for number, (owner, arrays, part) in enumerate(
            zip(self._owners, self._arrays, self.placement.parts, strict=True)
        ):
            own = arguments[number]
            own["wanted"], own["columns"] = 0, 0
            if columns is not None and wanted is not None:
                for name, array, values in (
                    ("columns", arrays.columns, columns), ("wanted", arrays.wanted, wanted)
                ):  # fmt: skip
                    owner.reserve((array, [values.nbytes]))
                    array[part].upload(values)
                    own[name] = array[part].pointer
            elif form == "matrix":
                own["columns"] = self.all_positions(number)
        self.begin_kind(query)
        if form != "vertices":
            self._rows_at_once = min(
                self._affordable_rows(number) for number in range(len(self._arrays))
            )
            self._make_rows(min(share, self._rows_at_once))
        else:
            self._rows_at_once = max(1, share)

    def begin_kind(self, query: DistanceQuery) -> None:
        """Write the arguments of a query that only this kind of search has."""
        raise NotImplementedError

    def positions_of(self, vertices: Array) -> Array:
        """Return the positions that the kernel has for vertices, as ids."""
        return self.first.numbering.position[vertices]

    def all_positions(self, number: int) -> int:
        """Return the address of the positions of all vertices on a device."""
        return self._owners[number].positions()[0].pointer

    def _row_bytes(self, number: int) -> tuple[int, int, int]:
        """Return the bytes of a row in the matrix, in the results of a device, and of its sums."""
        results = self.column_count * self._item * (self._form == "matrix")
        if results and self._writes[number] is not None:
            results = 0
        return self.item_bytes * self.first.capacity, results, 8 * _FIELDS * (self._form == "sums")

    def _affordable_rows(self, number: int) -> int:
        """Return the rows that fit into a part of a device's memory, at least one."""
        part, arrays = self.placement.parts[number], self._arrays[number]
        each = sum(self._row_bytes(number))
        if each == 0:
            return 1 << 62  # they need nothing
        kept = arrays.matrix.nbytes(part) + arrays.results.nbytes(part)
        free = (memory.free_memory_bytes(part.index) + kept) // _MEMORY_SHARE
        return max(1, free // each)

    def _make_rows(self, rows: int) -> None:
        computed = -(-rows // self.together) * self.together
        for number, (owner, arrays, part) in enumerate(
            zip(self._owners, self._arrays, self.placement.parts, strict=True)
        ):
            of_matrix, of_results, of_sums = self._row_bytes(number)
            owner.reserve(
                (arrays.matrix, [max(1, computed * of_matrix)]),
                (arrays.results, [max(1, rows * of_results)]),
                (arrays.source_sums, [max(1, rows * of_sums)]),
            )
            own = self.arguments[number]
            if of_matrix:
                own["matrix"] = arrays.matrix[part].pointer
            own["results"] = arrays.results[part].pointer if of_results else 0
            own["source_sums"] = arrays.source_sums[part].pointer if of_sums else 0

    def pieces(self, rows: int, share: int) -> Iterator[list[_Piece]]:
        """Yield pieces of all rows: of each device a number of rows that it has room for."""
        step = self._rows_at_once
        for offset in range(0, share, step):
            found = []
            for number in range(len(self._arrays)):
                last = min(rows, (number + 1) * share)
                begin = min(last, number * share + offset)
                found.append(_Piece(begin, min(last, begin + step)))
            yield found

    def ask(self, pieces: Sequence[_Piece]) -> None:
        """Write the rows of a run into the arguments."""
        arguments = self.arguments
        id_bytes = self.first.id_dtype.itemsize
        for number, piece in enumerate(pieces):
            arguments["sources"][number] = self._sources.pointer + piece.begin * id_bytes
            arguments["source_count"][number] = piece.count
            written = self._writes[number]
            if written is not None:
                first = piece.begin * self.column_count * self._item
                arguments["results"][number] = written + first

    def close(self) -> None:
        """Free the memory of sources, too."""
        self._sources.close()
        super().close()


class _HopsPlan(_SearchPlan):
    """Searches in the bits of lines."""

    found_word, visited_word = HopsWord.ALL_FOUND, HopsWord.ALL_VISITED
    item_bytes = 0  # they are in planes

    def __init__(self, target: Placed, lanes: int, gpu: GpuOptions, *, by_vertex: bool) -> None:
        text = hops_source(target.placements[0].id_dtype, lanes, by_vertex=by_vertex)
        out = [owner.rows("out")[0] for owner in target.placements]
        into = [owner.rows("in")[0] for owner in target.placements]
        arguments = np.zeros(len(target.parts), HOPS_ARGUMENTS)
        super().__init__(target, text, arguments, gpu, THREADS)
        for number, (out_rows, in_rows) in enumerate(zip(out, into, strict=True)):
            self._point(number, lanes, out_rows, in_rows, by_vertex)
        self.lay_out()

    def _point(
        self, number: int, lanes: int, out_rows: StepRows, in_rows: StepRows, by_vertex: bool
    ) -> None:
        """Make room for lines and queues of a device, and fill in the arguments that no query changes."""
        owner, arrays = self._owners[number], self._arrays[number]
        part, own = self.placement.parts[number], self.arguments[number]
        ids, owned = owner.id_dtype.itemsize, max(1, part.owned)
        sliced = int(in_rows.classes[RowClass.CLASS_BLOCK])
        left = left_rows_bytes("mixed", out_rows, owned)
        owner.reserve(
            *((line, [8 * lanes * owned]) for line in arrays.lines),
            (arrays.planes, [1 if by_vertex else 8 * lanes * PLANES * owned]),
            *((queue, [ids * (owned + 1)]) for queue in arrays.queues),
            (arrays.queued, [owned // 8 + 4]),
            (arrays.united, [max(1, 8 * lanes * sliced)]),
            (arrays.left_rows, [left]),
            (arrays.vertex_sums, [8 * _FIELDS * owned * by_vertex or 1]),
        )
        point_rows(own["out"], out_rows)
        point_rows(own["in"], in_rows)
        own["lines"] = [line[part].pointer for line in arrays.lines]
        own["queue"] = [queue[part].pointer for queue in arrays.queues]
        for name in ("planes", "queued", "united", "left_rows", "vertex_sums"):
            own[name] = getattr(arrays, name)[part].pointer
        own["arcs"] = owner.graph.arc_count

    def begin_kind(self, query: DistanceQuery) -> None:
        """Write the number of wanted vertices, and clear the sums of vertices."""
        self.arguments["wanted_count"] = self.column_count
        self.arguments["limit"] = _limit_word(query)
        if self._form == "vertices":
            for part, arrays in zip(self.placement.parts, self._arrays, strict=True):
                arrays.vertex_sums[part].fill_bytes(0)


class _LengthsPlan(_SearchPlan):
    """Searches by blocks, each from a source of its own."""

    found_word, visited_word = LengthsWord.ALL_FOUND, LengthsWord.ALL_VISITED
    item_bytes = 8

    def __init__(self, target: Placed, gpu: GpuOptions, *, weighted: bool) -> None:
        rows = [owner.rows("out", weighted=weighted)[0] for owner in target.placements]
        text = lengths_source(target.placements[0].id_dtype, rows[0].weight_dtype)
        arguments = np.zeros(len(target.parts), LENGTHS_ARGUMENTS)
        super().__init__(target, text, arguments, gpu, SEARCH_THREADS)
        for number, own_rows in enumerate(rows):
            self._point(number, own_rows)
        self.lay_out()

    def _point(self, number: int, rows: StepRows) -> None:
        """Make room for the searches of a device's blocks, and fill in what no query changes."""
        owner, arrays = self._owners[number], self._arrays[number]
        part, own = self.placement.parts[number], self.arguments[number]
        owned = max(1, part.owned)
        sizes = {
            "near": (4 * owned, 4 * owned),
            "far": (4 * owned,),
            "waits": (owned // 8 + 4, owned // 8 + 4),
            "left_rows": (left_rows_bytes("mixed", rows, owned),),
            "cursor": (8,),
        }
        end = 0
        for name, each in sizes.items():
            offsets = []
            for nbytes in each:
                offsets.append(end)
                end += -(-nbytes // 128) * 128
            own["layout"][name] = offsets if len(offsets) > 1 else offsets[0]
        own["layout"]["nbytes"] = end
        free = memory.free_memory_bytes(part.index) + arrays.searches.nbytes(part)
        blocks = max(1, min(self.blocks_with(number, 0), free // _MEMORY_SHARE // end))
        owner.reserve((arrays.searches, [blocks * end]))
        point_rows(own["out"], rows)
        own["weights"] = 0 if rows.weights is None else rows.weights.pointer
        own["searches"] = arrays.searches[part].pointer
        arcs = owner.graph.arc_count
        own["searching_blocks"] = blocks
        own["sources_a_step"] = blocks * min(_MOST_PER_STEP, 1 + _STEP_ARCS // (arcs + 1))

    def begin_kind(self, query: DistanceQuery) -> None:
        """Write the step by which bounds rise at first: the mean weight."""
        self.arguments["limit"] = _limit_word(query)
        self.arguments["step"] = 1
        weights = query.rows.weights
        if query.weighted and weights is not None:
            self.arguments["step"] = query.graph.cached(
                "step of distances", lambda: _first_step(weights)
            )


class _SweepsPlan(_SearchPlan):
    """Sweeps over a contracted graph."""

    found_word, visited_word = SweepsWord.ALL_FOUND, SweepsWord.ALL_VISITED
    item_bytes = 4
    together = 128

    def __init__(
        self, target: Placed, contraction: Contraction, gpu: GpuOptions, *, weighted: bool
    ) -> None:
        text = sweeps_source(target.placements[0].id_dtype, weighted=weighted)
        arguments = np.zeros(len(target.parts), SWEEPS_ARGUMENTS)
        super().__init__(target, text, arguments, gpu, SEARCH_THREADS)
        self._position = contraction.position.astype(self.first.id_dtype)
        self._core_size = contraction.core_size
        kept = (
            contraction.levels, contraction.offsets, contraction.heads, contraction.up,
            contraction.down, self._position,
        )  # fmt: skip
        self._all_positions = []
        for number, owner in enumerate(self._owners):
            part, own = self.placement.parts[number], self.arguments[number]
            homes = self._arrays[number].contractions[weighted]
            owner.reserve(
                *((home, [values.nbytes]) for home, values in zip(homes, kept, strict=True))
            )
            for home, values in zip(homes, kept, strict=True):
                home[part].upload(values)
            for name, home in zip(
                ("levels", "offsets", "heads", "up", "down"), homes, strict=False
            ):
                own[name] = home[part].pointer
            self._all_positions.append(homes[-1][part].pointer)
        self.arguments["vertex_count"] = len(self._position)
        self.arguments["level_count"] = len(contraction.levels) - 1
        self.lay_out()

    def positions_of(self, vertices: Array) -> Array:
        """Return positions in the contracted graph."""
        return self._position[vertices]

    def all_positions(self, number: int) -> int:
        """Return the address of the positions of all vertices in the contracted graph."""
        return self._all_positions[number]

    def begin_kind(self, query: DistanceQuery) -> None:
        """Do nothing: sweeps take no further arguments than the contracted graph."""

    def _make_rows(self, rows: int) -> None:
        """Allocate the rows, and the stamps: rounds in which vertices of the core were last improved."""
        super()._make_rows(rows)
        stamps = 4 * max(1, self._core_size) * -(-rows // self.together)
        for number, owner in enumerate(self._owners):
            array = self._arrays[number].stamps
            owner.reserve((array, [stamps]))
            self.arguments[number]["stamps"] = array[self.placement.parts[number]].pointer


def _first_step(weights: Array) -> int:
    """Return the mean of positive weights as a word: an integer, or a float64's bits."""
    used = weights[(weights > 0) & (weights < np.inf)]
    mean = float((used / used.max()).mean()) * float(used.max()) if len(used) else 1.0
    if weights.dtype.kind in "iu":
        return max(1, int(mean))
    return int(np.float64(max(mean, np.finfo(np.float64).tiny)).view(np.uint64))


def _limit_word(query: DistanceQuery) -> int:
    """Return the largest distance that counts as reached as a word."""
    if query.dtype.kind == "f":
        return int(np.float64(query.limit).view(np.uint64))
    return int(query.limit)
