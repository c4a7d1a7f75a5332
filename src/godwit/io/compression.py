"""Compressed streams, both ways: gzip, bzip2, xz and zstd.

The compression of a file is recognized by its first bytes, not by its name; several streams one after
another are one. A written file is compressed according to the ending of its name.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from godwit import config
from godwit.errors import FileError, FormatError
from godwit.graph.arcs import Progress

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_BLOCK_BYTES = 1 << 20  # of the raw file, between two reports of progress
_OUTPUT_BYTES = 1 << 24  # at most, of one step: a small block may hold gigabytes of zeros
_READ_BYTES = 1 << 24
_MAGIC_BYTES = 6
_STREAM_ERRORS = (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError, ValueError, EOFError)


class RawFile:
    """Uncompressed reader of a file: counts the bytes read, and raises FileError if a read fails."""

    def __init__(self, path: Path, file: BinaryIO, progress: Progress | None) -> None:
        self.path = path
        self.phase = "reading"
        self._file = file
        self._progress = progress
        self._head = b""
        self._position = 0
        status = os.fstat(file.fileno())
        self.is_regular = stat.S_ISREG(status.st_mode)
        self.size = status.st_size if self.is_regular else 0

    def peek(self, size: int) -> bytes:
        """Return the first bytes, which will be read again."""
        try:
            self._head = self._file.read(size)
        except OSError as error:
            raise file_error(self.path, error) from error
        return self._head

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes; at least one unless the file ends."""
        data, self._head = self._head, b""
        try:
            data += self._file.read(size - len(data))
        except OSError as error:
            raise file_error(self.path, error) from error
        self._advance(len(data))
        return data

    def read_into(self, buffer: memoryview) -> int:
        """Fill the buffer from the file's beginning, and return the number of bytes read.

        Two threads do so, since it takes most time to add new pages to the process.
        """
        begins = range(0, len(buffer), _READ_BYTES)
        done = 0
        with ThreadPoolExecutor(2) as pool:
            for count in pool.map(
                lambda at: self._read_at(buffer[at : at + _READ_BYTES], at), begins
            ):
                done += count
                self._advance(count)
        return done

    def _read_at(self, buffer: memoryview, at: int) -> int:
        done = 0
        try:
            while count := os.preadv(self._file.fileno(), [buffer[done:]], at + done):
                done += count
        except OSError as error:
            raise file_error(self.path, error) from error
        return done

    def _advance(self, count: int) -> None:
        self._position += count
        if self._progress is not None:
            self._progress(self._position, max(self.size, self._position), self.phase)


def file_error(path: Path, error: OSError) -> FileError:
    """Return the FileError for a system's error about a file that is read."""
    if isinstance(error, FileNotFoundError):
        return FileError(f"no such file: {path}")
    if isinstance(error, IsADirectoryError):
        return FileError(f"{path} is a directory, not a file")
    if isinstance(error, PermissionError):
        return FileError(f"permission denied: {path}")
    return FileError(f"cannot read {path}: {error.strerror or error}")


class _Decompressor(Protocol):
    """The interface of the standard library's decompressors of bzip2, xz and zstd."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _GzipDecompressor:
    """Decompressor of one gzip member, with the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _xz_decompressor() -> _Decompressor:
    return lzma.LZMADecompressor(
        lzma.FORMAT_XZ, memlimit=max(1 << 24, min(config.available_memory_bytes(), (1 << 63) - 1))
    )


def _zstd_decompressor() -> _Decompressor:
    return zstd.ZstdDecompressor()


def _blocks(
    raw: RawFile, name: str, magic: bytes, make: Callable[[], _Decompressor]
) -> Iterator[bytes]:
    """Yield the content of one or more streams in a row; zero bytes may stand between them."""
    decompressor = make()
    data = raw.read(_BLOCK_BYTES)
    ended = False
    while True:
        try:
            block = decompressor.decompress(data, _OUTPUT_BYTES)
        except _STREAM_ERRORS as error:
            raise FormatError(raw.path, f"corrupt {name} stream: {error}") from error
        if block:
            yield block
        if decompressor.eof:
            data = _behind_zeros(raw, decompressor.unused_data)
            if not data:
                return
            if not data.startswith(magic):
                raise FormatError(raw.path, f"garbage behind the end of the {name} stream")
            decompressor = make()
        elif not decompressor.needs_input:
            data = b""
        elif ended and not block:
            raise FormatError(raw.path, f"truncated {name} stream: the file ends too early")
        else:
            data = raw.read(_BLOCK_BYTES)
            ended = not data


def _behind_zeros(raw: RawFile, data: bytes) -> bytes:
    """Return the bytes behind a stream and its padding, at least those of the next magic number, if any."""
    data = data.lstrip(b"\0")
    while len(data) < _MAGIC_BYTES:
        more = raw.read(_BLOCK_BYTES)
        if not more:
            break
        data = (data + more).lstrip(b"\0")
    return data


_COMPRESSIONS: tuple[tuple[str, bytes, Callable[[], _Decompressor]], ...] = (
    ("gzip", b"\x1f\x8b", _GzipDecompressor),
    ("bzip2", b"BZh", bz2.BZ2Decompressor),
    ("xz", b"\xfd7zXZ\x00", _xz_decompressor),
    ("zstd", b"\x28\xb5\x2f\xfd", _zstd_decompressor),
)


def decompressed(raw: RawFile) -> tuple[str, Iterator[bytes]] | None:
    """Return the name of the file's compression, and its content in blocks; None if it has none."""
    head = raw.peek(_MAGIC_BYTES)
    for name, magic, make in _COMPRESSIONS:
        if head.startswith(magic):
            raw.phase = "decompressing"
            return name, _blocks(raw, name, magic, make)
    return None


@contextmanager
def compressed(file: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Open a file to write to, whose content goes compressed into another one.

    Each kind of stream ends with a checksum of its content.
    """
    if compression is None:
        yield file
        return
    packed: Any
    if compression == "gzip":
        packed = gzip.GzipFile("", "wb", 6, file, mtime=0)
    elif compression == "bzip2":
        packed = bz2.BZ2File(file, "wb")
    elif compression == "xz":
        packed = lzma.LZMAFile(file, "wb", preset=1)  # noqa: SIM115 (closed below)
    else:
        parameter = zstd.CompressionParameter
        options: dict[int, int] = {parameter.compression_level: 1, parameter.checksum_flag: 1}
        packed = zstd.ZstdFile(file, "wb", options=options)
    with packed:
        yield packed
