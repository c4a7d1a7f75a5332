"""Values of vertices, which lie on GPUs by endpoint, as one array of all vertices: on the host or on a GPU.

One kernel (delivery.cuh) converts values, puts them in order, and writes them where they are to be:

- on a GPU, into the array. If the values lie on several GPUs in an order of their own, they are joined on
  one first, over peer links;
- on the host, over the bus into page-locked memory, in which the array lies
  (:class:`godwit.runtime.cuda.memory.ResultMemory`); kernels write there at 95 % of the rate of a copy;
- other arrays of the host, small ones or those for which there is no page-locked memory: into a room of
  page-locked memory, from which the staging pool copies them. If values were not joined, the host puts them
  in order.

Where a GPU has no room for what is on its way to another GPU, the array goes by the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Self

import numpy as np

from godwit import config
from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.errors import GraphTooLargeError
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, layout_checks, load
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.memory import (
    LEAST_LOCKED_BYTES,
    Buffer,
    keep_pinned,
    kept_or_new,
    new_host_array,
    take_pinned,
)
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.staging import StagedCopy, Way, staging_pool
from godwit.trace import HOST, copied

ROOM_BYTES = 32 << 20
"""Size of the page-locked buffer that kernels fill and the staging pool empties."""
_SCATTERED_BY_THREAD = 1 << 16
_BLOCK_THREADS = 256
_RESULTS_PER_THREAD = 4  # as in delivery.cuh


Turns = Sequence[tuple[int, int]]
"""For each share, what :class:`Piece` has as ``turn``."""


@dataclass(frozen=True)
class Share:
    """The values of one endpoint.

    :param index: the number of its GPU
    :param stream: of the endpoint
    :param first: position of its first value among those of all endpoints
    :param count: number of its values
    :param active: number of the first of these that runs may change; the others are the same after all runs
    """

    index: int
    stream: Stream
    first: int
    count: int
    active: int


@dataclass(frozen=True)
class Conversion:
    """How values become results.

    :param dtype: of values, of 4 or 8 bytes
    :param result_dtype: of results
    :param bound: ``"min"`` or ``"max"`` if values beyond the limit, and the identity, become ``never``;
        otherwise empty
    :param limit: smaller values are beyond it with ``"max"``, larger ones with ``"min"``
    :param identity: the value of vertices that no message has reached
    :param never: the result for these, and for values beyond the limit
    """

    dtype: np.dtype[Any]
    result_dtype: np.dtype[Any]
    bound: str = ""
    limit: Any = 0
    identity: Any = 0
    never: Any = 0

    @property
    def is_plain(self) -> bool:
        """True if results are equal to values, bit by bit."""
        return not self.bound and self.dtype == self.result_dtype


def source(conversion: Conversion, id_dtype: np.dtype[Any]) -> str:
    """Return the source of the kernel.

    :param id_dtype: of positions
    """
    dtypes = {"Value": conversion.dtype, "Result": conversion.result_dtype, "Id": id_dtype}
    flags = {"BOUNDED": conversion.bound != "", "MAXIMIZES": conversion.bound == "max"}
    return "\n".join(
        [
            '#include "runtime/cuda/include/memory.cuh"',
            *(f"using {name} = {c_type(dtype)};" for name, dtype in dtypes.items()),
            *(f"constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()),
            '#include "runtime/cuda/transfer/delivery.cuh"',
            f"static_assert(RESULTS_PER_THREAD == {_RESULTS_PER_THREAD});",
            layout_checks("DeliveryArguments", _arguments_dtype(conversion)),
            "",
        ]
    )


def _arguments_dtype(conversion: Conversion) -> np.dtype[Any]:
    """Return the dtype of ``DeliveryArguments`` of delivery.cuh."""
    dtypes = {"Value": conversion.dtype, "Result": conversion.result_dtype}
    return struct_dtype("runtime/cuda/transfer/delivery.cuh", "DeliveryArguments", **dtypes)


class _Gather:
    """The kernel in a stream, ready to be started.

    :param kernel: as of :func:`source`
    :param count: results of a start, at most
    """

    def __init__(
        self, kernel: driver.Kernel, stream: Stream, conversion: Conversion, count: int
    ) -> None:
        self._arguments = np.zeros(1, _arguments_dtype(conversion))
        self._results = self._arguments["results"]
        # Those of the latest start, which are mostly the same.
        self._piece: Piece | None = None
        self._conversion = conversion
        blocks = -(-count // (_BLOCK_THREADS * _RESULTS_PER_THREAD))
        self._launch = driver.Launch(
            kernel,
            stream,
            blocks=max(1, blocks),
            threads=_BLOCK_THREADS,
            arguments=self._arguments,
        )

    def start(self, conversion: Conversion, piece: Piece, results: int) -> None:
        """Start to write the results of a piece to an address that the GPU reaches."""
        self._results[0] = results
        if piece is not self._piece or conversion is not self._conversion:
            self._write(conversion, piece)
        self._launch.start()

    def _write(self, conversion: Conversion, piece: Piece) -> None:
        """Write all arguments but the address of the results."""
        self._piece, arguments = None, self._arguments
        arguments["values"], arguments["positions"] = piece.values, piece.positions
        arguments["count"] = piece.count
        arguments["others"], arguments["turn"] = piece.turn
        arguments["joined"] = piece.joined
        arguments["first"], arguments["owned"] = piece.own
        if conversion.bound:
            arguments["limit"], arguments["identity"] = conversion.limit, conversion.identity
            arguments["never"] = conversion.never
        self._piece, self._conversion = piece, conversion


@dataclass(frozen=True)
class Piece:
    """Results that one GPU writes.

    :param number: index of the share whose stream the kernel runs in
    :param values: address of the values on that GPU
    :param positions: address of the index into ``values`` of each result; 0: in the order of values
    :param count: number of results
    :param begin: index of the first result among the results of all vertices
    :param vertices: index of each result among these, if they are no range
    :param turn: address of a second array of values, and of a counter on the GPU: the kernel reads the
        second array if the counter is odd; (0, 0): there is only one
    :param joined: address of the values of all positions on that GPU, where those of others are read; 0:
        all are read in ``values``
    :param own: position of the first of the GPU's own values, and their number
    """

    number: int
    values: int
    positions: int
    count: int
    begin: int = 0
    vertices: Array | None = None
    turn: tuple[int, int] = (0, 0)
    joined: int = 0
    own: tuple[int, int] = (0, 0)


@dataclass
class _Start:
    """A kernel that is started for each array of results, with what it writes.

    :param to: where it writes, which differs from array to array
    """

    gather: _Gather
    conversion: Conversion
    piece: Piece
    to: int

    def start(self) -> None:
        """Start the kernel."""
        self.gather.start(self.conversion, self.piece, self.to)


class Delivery:
    """Copies the values of a placement's vertices into result arrays; kept with the placement.

    The caller holds the placement's GPUs.

    :param count: number of results
    :param id_dtype: of positions
    :param positions: returns the address of the position of each result, on the GPU of a share, by its
        number; None if results are in the order of positions
    :param vertices: returns the place of each of a share's values among the results
    """

    def __init__(
        self,
        shares: Sequence[Share],
        count: int,
        id_dtype: np.dtype[Any],
        positions: Callable[[int], int] | None,
        vertices: Callable[[int], Array],
    ) -> None:
        self.shares = list(shares)
        self.count = count
        self.id_dtype = id_dtype
        self._positions = positions
        self._vertices = vertices
        self._indexes = [share.index for share in shares]
        self._gathers: dict[Any, _Gather] = {}
        self._kernels: dict[Any, driver.Kernel] = {}

    @property
    def has_positions(self) -> bool:
        """True if results are in another order than the values of shares, one behind the other."""
        return self._positions is not None

    def gatherer(self, gpu: int | None) -> int:
        """Return the index of the share whose GPU gathers the values for a GPU, or (None) for the host."""
        return self._indexes.index(gpu) if gpu in self._indexes else 0

    def fill(
        self, array: Array, values: Sequence[int], conversion: Conversion, *, joined: int = 0
    ) -> None:
        """Write the results of all vertices into a NumPy array; parameters as of :class:`Arrival`."""
        if self.count:
            self._fill_on_host(array, values, conversion, joined, is_locked=False)

    # To the host

    def new_on_host(
        self,
        values: Sequence[int],
        conversion: Conversion,
        joined: int,
        turns: Turns = (),
    ) -> Array:
        """Return the results of all vertices in a new NumPy array; parameters as of :class:`Arrival`."""
        array, is_locked = new_host_array(self.count, conversion.result_dtype, self._indexes)
        if self.count:
            self._fill_on_host(array, values, conversion, joined, turns, is_locked=is_locked)
        return array

    def _fill_on_host(
        self,
        array: Array,
        values: Sequence[int],
        conversion: Conversion,
        joined: int,
        turns: Turns = (),
        *,
        is_locked: bool,
    ) -> None:
        begin, item = perf_counter(), conversion.result_dtype.itemsize
        gatherer = self.gatherer(None)
        pieces = self.pieces(gatherer, values, conversion, joined, turns)
        if joined:
            self.join(gatherer, values, conversion, joined)
        if is_locked and pieces[0].vertices is None:
            address = array.ctypes.data
            for piece in pieces:
                self.start(piece, conversion, address + piece.begin * item)
        else:
            self.synchronize(pieces)  # values may still be on their way to the gatherer
            self._bring(pieces, conversion, array)
        self.synchronize(pieces)
        for piece in pieces:
            copied(f"cuda:{self.shares[piece.number].index}", HOST, piece.count * item, begin)

    def _bring(self, pieces: Sequence[Piece], conversion: Conversion, array: Array) -> None:
        """Fill an array of ordinary host memory, which kernels do not reach, through a page-locked buffer.

        While the staging pool empties one half of the buffer, kernels of all GPUs fill the other.
        """
        room_bytes = LEAST_LOCKED_BYTES if array.nbytes <= LEAST_LOCKED_BYTES else ROOM_BYTES
        step = room_bytes // (2 * len(pieces) * array.itemsize)
        room = take_pinned(room_bytes)
        memory = room.array(np.uint8)
        under_way: list[list[StagedCopy]] = [[], []]
        try:
            for number, first in enumerate(range(0, max(piece.count for piece in pieces), step)):
                half = number % 2
                for copy in under_way[half]:
                    copy.wait()
                parts = [
                    self._part_of(piece, conversion, first, step)
                    for piece in pieces
                    if first < piece.count
                ]
                begins = [
                    (half * len(pieces) + place) * step * array.itemsize
                    for place in range(len(parts))
                ]
                for begin, part in zip(begins, parts, strict=True):
                    self.start(part, conversion, room.pointer + begin)
                self.synchronize(parts)
                under_way[half] = []
                for begin, part in zip(begins, parts, strict=True):
                    written = memory[begin : begin + part.count * array.itemsize]
                    under_way[half] += _store(part, frozen(written.view(array.dtype)), array)
            for copy in (*under_way[0], *under_way[1]):
                copy.wait()
        finally:
            with ExitStack() as stack:  # does all, even if some raise
                stack.callback(keep_pinned, room)
                stack.callback(self.synchronize, pieces)
                for copy in (*under_way[0], *under_way[1]):
                    stack.callback(copy.settle)

    def _part_of(self, piece: Piece, conversion: Conversion, first: int, count: int) -> Piece:
        """Return the part of a piece that has its results ``first`` to ``first + count``, or to its end."""
        values, positions, vertices = piece.values, piece.positions, piece.vertices
        turn = piece.turn
        if positions:
            positions += first * self.id_dtype.itemsize
        else:
            values += first * conversion.dtype.itemsize
            if turn[0]:
                turn = turn[0] + first * conversion.dtype.itemsize, turn[1]
        if vertices is not None:
            vertices = frozen(vertices[first : first + count])
        count = min(count, piece.count - first)
        return replace(
            piece, values=values, positions=positions, count=count, begin=piece.begin + first,
            vertices=vertices, turn=turn,
        )  # fmt: skip

    # To both

    def pieces(
        self,
        gatherer: int,
        values: Sequence[int],
        conversion: Conversion,
        joined: int,
        turns: Turns = (),
    ) -> list[Piece]:
        """Return a piece for each GPU, or one for the GPU where all values were joined.

        :param joined: address of the joined values on the gatherer's GPU; 0 if each GPU writes its own
        :param turns: as of :class:`Arrival`
        """
        if self._positions is not None and joined:
            share, itemsize = self.shares[gatherer], conversion.dtype.itemsize
            return [
                Piece(
                    gatherer,
                    values[gatherer] - share.first * itemsize,
                    self._positions(gatherer),
                    self.count,
                    turn=_moved(turns[gatherer], -share.first * itemsize) if turns else (0, 0),
                    joined=joined,
                    own=(share.first, share.count),
                )
            ]
        pieces = []
        for number, share in enumerate(self.shares):
            vertices = None if self._positions is None else self._vertices(number)
            if share.count:
                turn = turns[number] if turns else (0, 0)
                pieces.append(
                    Piece(number, values[number], 0, share.count, share.first, vertices, turn)
                )
        return pieces

    def join(
        self,
        gatherer: int,
        values: Sequence[int],
        conversion: Conversion,
        joined: int,
        *,
        changed: bool = False,
    ) -> None:
        """Start to copy the values of other shares to the GPU of one, in whose stream it gathers.

        :param changed: only those that runs may change: the others were copied after an earlier one
        """
        to, itemsize = self.shares[gatherer], conversion.dtype.itemsize
        for share, origin in zip(self.shares, values, strict=True):
            target = joined + share.first * itemsize
            nbytes = (share.active if changed else share.count) * itemsize
            if nbytes and share is not to:
                pool = event_pool(share.index)
                pool.record_unless_done(share.stream.native).wait_on(to.stream)
                driver.copy_peer_async(target, to.index, origin, share.index, nbytes, to.stream)

    def joins_by_turns(
        self, gatherer: int, values: Sequence[int], turns: Turns, plain: Conversion, joined: int
    ) -> list[_Start]:
        """Return what does as :meth:`join` by kernels, which choose the values; GPUs reach that memory.

        :param plain: of values to themselves
        """
        starts = []
        for number, share in enumerate(self.shares):
            if share.count and number != gatherer:
                piece = Piece(number, values[number], 0, share.count, turn=turns[number])
                to = joined + share.first * plain.dtype.itemsize
                starts.append(_Start(self.prepare(number, plain), plain, piece, to))
        return starts

    def start(self, piece: Piece, conversion: Conversion, to: int) -> None:
        """Start to write a piece to an address that its GPU reaches."""
        gather = self.prepare(piece.number, conversion)
        gather.start(conversion, piece, to)

    def prepare(self, number: int, conversion: Conversion) -> _Gather:
        """Return the kernel in the stream of a share, loaded by the first call."""
        key = number, conversion.dtype, conversion.result_dtype, conversion.bound
        gather = self._gathers.get(key)
        if gather is None:
            share = self.shares[number]
            count = self.count if self._positions is not None else share.count
            kernel = self.kernel(share.index, conversion)
            gather = self._gathers[key] = _Gather(kernel, share.stream, conversion, count)
        return gather

    def kernel(self, index: int, conversion: Conversion) -> driver.Kernel:
        """Return the kernel on a GPU, loaded by the first call."""
        key = index, conversion.dtype, conversion.result_dtype, conversion.bound
        if key not in self._kernels:
            text = source(conversion, self.id_dtype)
            self._kernels[key] = load(index, text).kernel("deliver")
        return self._kernels[key]

    def synchronize(self, pieces: Sequence[Piece]) -> None:
        """Wait until pieces are written; values are joined in the stream of their only piece."""
        for piece in pieces:
            self.shares[piece.number].stream.synchronize()


class Arrival:
    """New arrays of the results of all vertices, on the host or on a GPU, one after the other.

    GPUs that write an array on a GPU do so in the streams of the shares, behind what computes the values
    there. The caller holds the GPUs until the array is finished, or no work is under way.

    Where kernels wait for each other, the array is allocated before they are started, since allocating may
    wait for a kernel; a GPU that runs alone gets all but the first while its kernel runs.

    :param values: the address of each share's values
    :param joined: address, on the gatherer's GPU, of room for the values of all positions; 0 if there is
        none
    :param turns: as of :class:`Piece`, of the values of each share; () if values are in one array. For
        arrays on the GPU of a share, whose memory all GPUs reach
    :param is_alone: no kernel waits for one on another GPU
    :param lasts: values beyond the active ones of a share (:class:`Share`) stay where they were joined
    """

    def __init__(
        self, delivery: Delivery, values: Sequence[int], conversion: Conversion,
        location: ResultLocation, *, joined: int = 0, turns: Turns = (),
        is_alone: bool = False, lasts: bool = False,
    ) -> None:  # fmt: skip
        self._lasts, self._has_lasting = lasts, False
        self._delivery, self._values, self._conversion = delivery, values, conversion
        self._location, self._joined, self._joined_at = location, joined, 0
        self._turns, self._is_alone = turns, is_alone
        self._joins_by_turns = len(turns) > 1
        self._plain = Conversion(conversion.dtype, conversion.dtype)
        self._result: Any = None
        self._pieces: list[Piece] = []
        self._writers: list[Share] = []
        self._written_at: list[int] = []
        self._joins: list[_Start] = []  # by turns
        self._only: _Start | None = None  # writes the whole array, each time in the same way
        self._is_allocated = self._is_started = False
        self._scratch: list[Buffer] = []  # memory that is free again when all streams are done

    def begin(self) -> Self:
        """Begin a new array; no kernel runs."""
        if self._is_allocated:
            self.discard()  # an array that was not finished
        self._is_started = False
        if not (self._is_alone and self._pieces):  # the first one loads the kernel
            self._allocate()
        return self

    def _allocate(self) -> None:
        gpu, delivery = self._location.gpu, self._delivery
        self._is_allocated = True
        if gpu is not None:
            self._result = self._location.empty(delivery.count, self._conversion.result_dtype)
            if self._only is not None:
                self._only.to = self._address_of(self._only.piece)
            elif delivery.count:
                try:
                    self._lay_out(gpu)
                except GraphTooLargeError:  # no room for what is on its way: it goes by the host
                    self._result = None

    def discard(self) -> None:
        """Free an array that is not wanted any more; no work is under way in the streams of the shares."""
        self._result, self._is_allocated = None, False
        while self._scratch:
            self._scratch.pop().keep()

    def drop(self) -> None:
        """Free an array that is not wanted any more, when what was started is done."""
        if self._is_started:
            self._delivery.synchronize(self._pieces)
        self.discard()

    def _lay_out(self, gpu: int) -> None:
        """Choose what each GPU writes, and where, and load what it needs."""
        delivery, conversion = self._delivery, self._conversion
        number, joined = delivery.gatherer(gpu), self._joined
        if delivery.has_positions and not joined:
            joined = self._room(number, conversion.dtype.itemsize * _end(delivery.shares))
        if not self._pieces or joined != self._joined_at:
            self._pieces = delivery.pieces(number, self._values, conversion, joined, self._turns)
            self._writers = [delivery.shares[piece.number] for piece in self._pieces]
            self._joined_at = joined
            if self._joins_by_turns:
                self._joins = delivery.joins_by_turns(
                    number, self._values, self._turns, self._plain, joined
                )
        self._written_at = []
        for piece in self._pieces:
            at = piece.values
            if delivery.shares[piece.number].index == gpu:
                at = self._address_of(piece)
            elif piece.positions or not conversion.is_plain:
                at = self._room(piece.number, piece.count * conversion.result_dtype.itemsize)
            self._written_at.append(at)
            if at != piece.values:
                gather = delivery.prepare(piece.number, conversion)
                if len(self._pieces) == 1 and not self._scratch:
                    self._only = _Start(gather, conversion, piece, at)

    def _room(self, number: int, nbytes: int) -> int:
        """Return the address of memory on a share's GPU, kept by the process for others afterwards."""
        buffer = kept_or_new(self._delivery.shares[number].index, nbytes)
        self._scratch.append(buffer)
        return buffer.pointer

    def _address_of(self, piece: Piece) -> int:
        """Return the address of a piece in the array."""
        return int(self._result.data.ptr) + piece.begin * self._conversion.result_dtype.itemsize

    def start(self) -> None:
        """Start to write an array on a GPU behind what is under way in the streams.

        Of several starts the last one counts.
        """
        if not self._is_allocated:
            self._allocate()
        delivery, conversion, gpu = self._delivery, self._conversion, self._location.gpu
        self._is_started = True
        if self._result is None or gpu is None:
            return
        if self._joined_at and len(self._values) > 1:
            to, at = delivery.gatherer(gpu), self._joined_at
            for one in self._joins:
                one.start()
                share = delivery.shares[one.piece.number]
                event = event_pool(share.index).record(share.stream.native)
                event.wait_on(delivery.shares[to].stream)
            if not self._joins_by_turns:
                delivery.join(to, self._values, conversion, at, changed=self._has_lasting)
        if self._only is not None:
            self._only.start()
            return
        for piece, at in zip(self._pieces, self._written_at, strict=True):
            if at != piece.values:
                delivery.start(piece, conversion, at)
            share = delivery.shares[piece.number]
            if share.index != gpu:
                to, nbytes = self._address_of(piece), piece.count * conversion.result_dtype.itemsize
                driver.copy_peer_async(to, gpu, at, share.index, nbytes, share.stream)

    def finish(self) -> Any:
        """Return the array when it is written."""
        if not self._is_started:
            self.start()
        result = self._result
        if result is None:
            joined = self._joined if self._location.gpu is None else 0
            array = self._delivery.new_on_host(self._values, self._conversion, joined, self._turns)
            return self._location.place(array)
        try:
            for share in self._writers:
                share.stream.synchronize()
            self._has_lasting = self._lasts  # from a whole run, after which it was joined
        finally:
            self.discard()
        return result


def _moved(turn: tuple[int, int], nbytes: int) -> tuple[int, int]:
    """Return what a piece has as ``turn``, with its values at another address."""
    return turn[0] + nbytes, turn[1]


def _end(shares: Sequence[Share]) -> int:
    """Return the number of positions."""
    return max(share.first + share.count for share in shares)


def _store(piece: Piece, values: Array, array: Array) -> list[StagedCopy]:
    """Copy the results of a piece into the array of all results; return copies that are under way."""
    if piece.vertices is not None:
        threads = min(config.thread_count(), 1 + piece.count // _SCATTERED_BY_THREAD)
        run_team(_scatter, piece.vertices, values, array, threads=threads, brief=True)
        return []
    target = array[piece.begin : piece.begin + piece.count]
    if array.nbytes <= LEAST_LOCKED_BYTES:
        target[:] = values
        return []
    to, origin = target.ctypes.data, values.ctypes.data
    return [staging_pool().start(StagedCopy(Way.WITHIN_HOST, 0, to, origin, values.nbytes))]


@kernel
def _scatter(rank: int, size: int, control: Any, vertices: Any, values: Any, out: Any) -> None:
    begin, end = block_range(rank, size, len(vertices))
    for index in range(begin, end):
        out[vertices[index]] = values[index]
