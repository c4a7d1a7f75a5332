"""zstd streams whose frame ends with the checksum of its content, which every reader verifies.

Arrow's compressor writes none. It makes one frame (RFC 8878, section 3.1.1): what is missing is a bit in
the frame's header, and behind its last block the lower 32 bits of XXH64 of the content, with seed 0.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from godwit.io.xxh64 import Xxh64

_DESCRIPTOR = 4  # where the frame's header says what is in it: behind the magic number
_HAS_CHECKSUM = 1 << 2
_PIECE_BYTES = 1 << 20


class _Frame:
    """A file for Arrow to write a frame to: says in its header that a checksum ends it."""

    closed = False  # the caller closes the file

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0

    def write(self, data: bytes) -> int:
        at = _DESCRIPTOR - self._position
        if 0 <= at < len(data):
            data = data[:at] + bytes([data[at] | _HAS_CHECKSUM]) + data[at + 1 :]
        self._file.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Part of what Arrow asks of a file."""


class _Content(io.RawIOBase):
    """What is to be compressed, on its way to Arrow."""

    def __init__(self, packed: Any) -> None:
        super().__init__()
        self.hash = Xxh64()
        self._packed = packed
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            content = view.cast("B")
            self.hash.update(content)
            self._packed.write(content)
            self._position += len(content)
            return len(content)


@contextmanager
def compressed(file: BinaryIO) -> Iterator[BinaryIO]:
    """A file to write to, whose content goes into another one as a frame of zstd with a checksum."""
    import pyarrow

    frame = pyarrow.PythonFile(_Frame(file), "w")
    with pyarrow.CompressedOutputStream(frame, "zstd") as packed:
        content = _Content(packed)
        with io.BufferedWriter(content, _PIECE_BYTES) as buffered:
            yield cast(BinaryIO, buffered)
    file.write((content.hash.digest() % (1 << 32)).to_bytes(4, "little"))
