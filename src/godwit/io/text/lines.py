"""Text in memory, or in a file that is too large for memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from godwit.dtypes import Array
from godwit.errors import FileError, FormatError
from godwit.io.format import BLANKS

PADDING_BYTES = 8  # compiled scanners load whole words

_COUNTED_BYTES = 1 << 18  # bytes read at a time to count lines
_LINE_BYTES = 1 << 12  # longest beginning of a line that ``lines`` yields


class Text:
    """Bytes of a decompressed text, which ends with a newline. Positions count these bytes.

    :ivar size: number of bytes
    :ivar begin: position behind the byte order mark
    :ivar whole: the text is in memory, and is scanned at once
    :ivar window_bytes: bytes scanned at once if not ``whole``; None for a share of the memory
    """

    path: Path
    size: int
    begin: int
    whole: bool
    window_bytes: int | None = None

    def window(self, begin: int, end: int) -> tuple[Array, int]:
        """Return memory with the bytes from ``begin`` to ``end`` and :data:`PADDING_BYTES` more.

        :returns: uint8, read-only, and the position in the text of its first byte
        """
        raise NotImplementedError

    def release(self) -> None:
        """Free the memory of the text, before a graph is built."""

    def lines(self, begin: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield lines as (position of the first byte, text stripped of blanks).

        Only the first 4,096 bytes of a longer line are yielded.
        """
        position = self.begin if begin is None else begin
        while position < self.size:
            end = self._line_end(position)
            yield position, self._decode(position, min(end, position + _LINE_BYTES)).strip(BLANKS)
            position = end + 1

    def behind_line(self, position: int) -> int:
        """Return the position of the first byte of the next line."""
        return self._line_end(position) + 1

    def line_begin(self, position: int) -> int:
        """Return the position of the first byte of the line that a position lies in."""
        step = 256
        while position > 0:
            low = max(0, position - step)
            at = self._bytes(low, position).rfind(b"\n")
            if at >= 0:
                return low + at + 1
            position = low
            step *= 4
        return 0

    def line_number(self, position: int) -> int:
        """Return the number (from 1) of the line that a position lies in."""
        pieces = (
            self._bytes(begin, min(begin + _COUNTED_BYTES, position))
            for begin in range(0, position, _COUNTED_BYTES)
        )
        return 1 + sum(piece.count(b"\n") for piece in pieces)

    def error(self, message: str, position: int | None = None) -> FormatError:
        """Return the error about the line at a position, or about the whole file."""
        if position is None:
            return FormatError(self.path, message)
        text = self._decode(position, min(self._line_end(position), position + 200))
        return FormatError(self.path, message, line=self.line_number(position), text=text)

    def word(self, position: int) -> str:
        """Return the characters from a position up to a blank, a comma or the line's end."""
        return re.split(r"[\s,]", self._decode(position, self._line_end(position)), maxsplit=1)[0]

    def _line_end(self, position: int) -> int:
        step = 256
        while True:
            offset = self._bytes(position, min(position + step, self.size)).find(b"\n")
            if offset >= 0:
                return position + offset
            position += step
            step *= 4

    def _bytes(self, begin: int, end: int) -> bytes:
        buffer, shift = self.window(begin, end)
        return buffer[begin - shift : end - shift].tobytes()

    def _decode(self, begin: int, end: int) -> str:
        return self._bytes(begin, end).decode("utf-8", "replace")


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class MemoryText(Text):
    """A text in memory; the buffer (uint8) has :data:`PADDING_BYTES` more bytes."""

    whole = True

    def __init__(self, path: Path, buffer: Array, size: int) -> None:
        self.path = path
        self.buffer = buffer
        self.buffer.flags.writeable = False
        self.size = size
        self.begin = 3 if buffer[:3].tobytes() == _BYTE_ORDER_MARK else 0

    def window(self, begin: int, end: int) -> tuple[Array, int]:
        """Return the whole buffer, and position 0."""
        return self.buffer, 0

    def release(self) -> None:
        """Free the buffer."""
        self.buffer = np.empty(0, np.uint8)
        self.size = 0


class FileText(Text):
    """A text too large to be held in memory, read from an open file window by window.

    It is not mapped: if another process truncates the file, reading raises FileError instead of SIGBUS.
    """

    whole = False

    def __init__(
        self, path: Path, file: BinaryIO, size: int, window_bytes: int | None = None
    ) -> None:
        self.path = path
        self.window_bytes = window_bytes
        self._file = file
        self._bytes_in_file = size
        self._ends_with_newline = os.pread(file.fileno(), 1, size - 1) == b"\n"
        self.size = size if self._ends_with_newline else size + 1
        self.begin = 3 if os.pread(file.fileno(), 3, 0) == _BYTE_ORDER_MARK else 0

    def window(self, begin: int, end: int) -> tuple[Array, int]:
        """Return a copy of the bytes from ``begin`` to ``end``, and ``begin``."""
        buffer = np.zeros(end - begin + PADDING_BYTES, np.uint8)
        inside = min(end, self._bytes_in_file)
        done = begin
        while done < inside:
            try:
                count = os.preadv(
                    self._file.fileno(), [buffer[done - begin : inside - begin].data], done
                )
            except OSError as error:
                raise FileError(f"cannot read {self.path}: {error.strerror or error}") from error
            if count == 0:
                raise FileError(f"{self.path} changed its size while it was read")
            done += count
        if end > inside:
            buffer[inside - begin] = ord("\n")
        buffer.flags.writeable = False
        return buffer, begin


class PartOfText(MemoryText):
    """Whole lines of a text in a file, in memory. Positions count its own bytes; lines, those of the file.

    :param text: the whole text
    :param begin: position in it of the first byte; a line begins there
    :param end: position behind the last byte, a newline
    """

    def __init__(self, text: FileText, begin: int, end: int) -> None:
        buffer, _ = text.window(begin, end)
        super().__init__(text.path, buffer, end - begin)
        self.begin = 0
        self._text = text
        self._first = begin

    def line_number(self, position: int) -> int:
        """Return the number (from 1) in the file of the line that a position lies in."""
        return self._text.line_number(self._first + position)
