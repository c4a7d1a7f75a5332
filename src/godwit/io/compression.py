"""Compressed streams, both ways: gzip, bzip2, xz and zstd.

The compression of a file is recognized by its first bytes, whatever it is called; several streams
one after another are one. What is written is compressed as the name of the file ends.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from godwit import config
from godwit.errors import FileError, FormatError
from godwit.graph.arcs import Progress

_BLOCK_BYTES = 1 << 20  # of the raw file, between two reports of progress
_OUTPUT_BYTES = 1 << 24  # at most, of one step: a small block may hold gigabytes of zeros
_READ_BYTES = 1 << 24
_MAGIC_BYTES = 6


class RawFile:
    """The file as it lies on disk: counts what is read, and turns its failures into FileError."""

    def __init__(self, path: Path, file: BinaryIO, progress: Progress | None) -> None:
        self.path = path
        self.phase = "reading"
        self.closed = False
        self._file = file
        self._progress = progress
        self._head = b""
        self._position = 0
        status = os.fstat(file.fileno())
        self.is_regular = stat.S_ISREG(status.st_mode)
        self.size = status.st_size if self.is_regular else 0

    def peek(self, size: int) -> bytes:
        """The first bytes, which will be read again."""
        try:
            self._head = self._file.read(size)
        except OSError as error:
            raise file_error(self.path, error) from error
        return self._head

    def read(self, size: int = -1) -> bytes:
        """As of a file; at least one byte unless it ends."""
        data, self._head = self._head, b""
        try:
            data += self._file.read(size - len(data) if size >= 0 else -1)
        except OSError as error:
            raise file_error(self.path, error) from error
        self._advance(len(data))
        return data

    def read_into(self, buffer: memoryview) -> int:
        """Fill the buffer from the file's beginning; the number of bytes that there were.

        By two threads where it is large: most of the time goes into pages that are new to the process.
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

    def close(self) -> None:
        """Part of the protocol of files; the one who opened the file closes it."""
        self.closed = True

    def _advance(self, count: int) -> None:
        self._position += count
        if self._progress is not None:
            self._progress(self._position, max(self.size, self._position), self.phase)


def file_error(path: Path, error: OSError) -> FileError:
    """The system's error about a file that is read, as ours."""
    if isinstance(error, FileNotFoundError):
        return FileError(f"no such file: {path}")
    if isinstance(error, IsADirectoryError):
        return FileError(f"{path} is a directory, not a file")
    if isinstance(error, PermissionError):
        return FileError(f"permission denied: {path}")
    return FileError(f"cannot read {path}: {error.strerror or error}")


class _Decompressor(Protocol):
    """What the standard library's decompressors of bzip2 and xz have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _GzipDecompressor:
    """zlib's decompressor for one gzip member, with the interface of the others."""

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


def _streams(
    make: Callable[[], _Decompressor],
) -> Callable[[RawFile, str, bytes], Iterator[bytes]]:
    """Blocks of text from one or more streams in a row, with zero bytes allowed between them."""

    def blocks(raw: RawFile, name: str, magic: bytes) -> Iterator[bytes]:
        decompressor = make()
        data = raw.read(_BLOCK_BYTES)
        ended = False
        while True:
            try:
                block = decompressor.decompress(data, _OUTPUT_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
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

    return blocks


def _behind_zeros(raw: RawFile, data: bytes) -> bytes:
    """What follows a stream and its padding: nothing, or enough to see the next one's magic."""
    data = data.lstrip(b"\0")
    while len(data) < _MAGIC_BYTES:
        more = raw.read(_BLOCK_BYTES)
        if not more:
            break
        data = (data + more).lstrip(b"\0")
    return data


def _zstd_blocks(raw: RawFile, name: str, magic: bytes) -> Iterator[bytes]:
    import pyarrow

    try:
        with pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd") as stream:
            while block := stream.read(_OUTPUT_BYTES):
                yield block
    except FileError:
        raise
    except (OSError, pyarrow.ArrowException) as error:
        truncated = "runcated" in str(error)
        problem = "truncated zstd stream" if truncated else "corrupt zstd stream"
        raise FormatError(raw.path, f"{problem}: {error}") from error


_COMPRESSIONS: tuple[tuple[str, bytes, Callable[[RawFile, str, bytes], Iterator[Any]]], ...] = (
    ("gzip", b"\x1f\x8b", _streams(_GzipDecompressor)),
    ("bzip2", b"BZh", _streams(bz2.BZ2Decompressor)),
    ("xz", b"\xfd7zXZ\x00", _streams(_xz_decompressor)),
    ("zstd", b"\x28\xb5\x2f\xfd", _zstd_blocks),
)


def decompressed(raw: RawFile) -> tuple[str, Iterator[bytes]] | None:
    """The name of the file's compression, and its content in blocks; None if it has none."""
    head = raw.peek(_MAGIC_BYTES)
    for name, magic, blocks in _COMPRESSIONS:
        if head.startswith(magic):
            raw.phase = "decompressing"
            return name, blocks(raw, name, magic)
    return None


@contextmanager
def compressed(file: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """A file to write to, whose content goes compressed into another one."""
    if compression is None:
        yield file
    elif compression == "gzip":
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif compression == "bzip2":
        with bz2.BZ2File(file, "wb") as packed_2:
            yield cast(BinaryIO, packed_2)
    elif compression == "xz":
        with lzma.LZMAFile(file, "wb", preset=1) as packed_3:
            yield cast(BinaryIO, packed_3)
    else:
        from godwit.io import zstd  # which loads Numba

        with zstd.compressed(file) as packed_4:
            yield packed_4
