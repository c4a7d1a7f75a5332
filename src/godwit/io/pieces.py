"""Text in windows, windows in pieces: what the scanners of arcs and of neighbours share.

A text that is in memory is one window; another one is read window by window. A window is scanned in
pieces of equal size, which threads take from a common counter, into columns that are long enough for
all that its lines can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.arcs import Block, Progress
from godwit.graph.rows import require_memory
from godwit.io.text.decimals import HARD, powers_of_five
from godwit.io.text.lines import Text
from godwit.io.text.scanner import FRACTION, INTEGER_32, INTEGER_64, NONE, REAL, WIDE
from godwit.runtime.cpu.team import CURSOR, new_control, run_team

_PIECE_BYTES = 1 << 18  # scanned at a stretch by one thread; its columns stay in the core's cache
_BYTES_FOR_TEAM = 1 << 20  # below, waking a second thread costs more than it brings
_POSITION_MASK = (1 << 51) - 1  # of a number that the scanner left to us

_SHARE_OF_MEMORY = 16  # a window of a text that is not in memory takes so much of what is available
_SMALLEST_WINDOW = 1 << 20

WEIGHT_DTYPES = {
    NONE: None,
    INTEGER_32: np.dtype(np.int32),
    INTEGER_64: np.dtype(np.int64),
    REAL: np.dtype(np.float64),
}
"""What weights of each kind are in the end."""


def windows(text: Text, begin: int, progress: Progress | None = None) -> Iterator[tuple[int, int]]:
    """Whole lines that are scanned at a stretch, as (begin, end).

    :param progress: called with (position, size of the text, "parsing") behind each
    """
    size = text.size
    if text.window_bytes is not None:
        size = text.window_bytes
    elif not text.whole:
        size = max(config.available_memory_bytes() // _SHARE_OF_MEMORY, _SMALLEST_WINDOW)
    while begin < text.size:
        end = min(begin + size, text.size)
        if end < text.size:
            line = text.line_begin(end)
            end = line if line > begin else text.behind_line(end)
        yield begin, end
        begin = end
        if progress is not None:
            progress(begin, text.size, "parsing")


def wider_kinds(kinds: tuple[int, ...], status: int) -> tuple[int, ...]:
    """The kinds of weights that are left where one did not fit the first: none if it fits no other."""
    # Integers stay exact, or fail.
    needed = {WIDE: INTEGER_64, FRACTION: REAL}.get(status)
    return kinds[kinds.index(needed) :] if needed in kinds[1:] else ()


class Columns:
    """Memory for so many arcs.

    :param what: they are, for the message if they do not fit
    """

    def __init__(self, count: int, id_dtype: np.dtype[Any], kind: int, what: str) -> None:
        weight_dtype = WEIGHT_DTYPES[kind]
        weight_bytes = 0 if weight_dtype is None else weight_dtype.itemsize
        require_memory(count * (2 * id_dtype.itemsize + weight_bytes), what)
        self.kind = kind
        self.sources: Array = np.empty(count, id_dtype)
        self.targets: Array = np.empty(count, id_dtype)
        self.weights: Array = np.empty(count if kind == INTEGER_32 else 0, np.int32)
        self.wide_weights: Array = np.empty(count if kind in (INTEGER_64, REAL) else 0, np.int64)

    @property
    def used(self) -> list[Array]:
        """Sources, targets and, if there are some, weights: those of REAL as their bits."""
        if self.kind == NONE:
            return [self.sources, self.targets]
        weights = self.weights if self.kind == INTEGER_32 else self.wide_weights
        return [self.sources, self.targets, weights]

    def block(self, text: Text, shift: int, count: int) -> Block:
        """The first arcs, with the numbers that the scanner has left to us.

        :param shift: position in the text of what the scanner took for 0
        """
        sources, targets, *rest = (column[:count] for column in self.used)
        if not rest:
            return Block(sources, targets, None)
        if self.kind != REAL:
            return Block(sources, targets, rest[0])
        _settle_hard_numbers(text, shift, rest[0])
        return Block(sources, targets, rest[0].view(np.float64))


class Window:
    """Whole lines in memory, in pieces that threads take."""

    def __init__(self, text: Text, begin: int, end: int) -> None:
        self.text = text
        self.buffer, self.shift = text.window(begin, end)
        self.piece_count = -(-(end - begin) // _PIECE_BYTES)
        self.threads = 1 if end - begin < _BYTES_FOR_TEAM else config.thread_count()
        self._begin = begin
        place = (begin - self.shift, end - self.shift, _PIECE_BYTES)
        self._place = tuple(map(np.int64, place))

    def run(self, kernel: Any, *arguments: Any, progress: Progress | None = None) -> None:
        """Run a kernel on (text, begin, end, piece, *arguments), whose threads take the pieces.

        :param progress: called with (position, size of the text, "parsing")
        """
        control = new_control()

        def poll() -> None:
            if progress is not None:
                done = self._begin + int(control[CURSOR]) * _PIECE_BYTES
                progress(min(done, self.text.size), self.text.size, "parsing")

        run_team(
            kernel,
            self.buffer,
            *self._place,
            *arguments,
            threads=self.threads,
            control=control,
            poll=poll if progress is not None else None,
        )


def powers_for(kind: int) -> Array:
    """What the scanner needs for weights of a kind: powers of five for REAL, nothing for others."""
    return powers_of_five() if kind == REAL else np.empty(0, np.uint64)


def _settle_hard_numbers(text: Text, shift: int, bits: Array) -> None:
    """Replace every HARD + position by the bits of the number at that position, read by Python."""
    values = bits.view(np.float64)
    for arc in np.flatnonzero(bits >= HARD).tolist():
        position = (int(bits[arc]) & _POSITION_MASK) + shift
        try:
            values[arc] = float(text.word(position))
        except ValueError:
            raise text.error("the weight is not a number", text.line_begin(position)) from None
