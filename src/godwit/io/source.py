"""A file to read a graph from: its beginning, and its content as text or as bytes.

Compression is transparent. Text that takes more than half of the available memory is not held: it is
read window by window, from the file or, if that is compressed, from an unnamed temporary copy.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import FileError, FormatError, GraphTooLargeError, InputError, shown
from godwit.graph.arcs import Progress
from godwit.io.compression import RawFile, decompressed, file_error
from godwit.io.format import COMPRESSION_SUFFIXES, HEAD_BYTES, Head
from godwit.io.text.lines import PADDING_BYTES, FileText, MemoryText, Text

_SHARE_HELD = 0.5  # of the available memory
_SHARE_OF_DISK = 0.8  # of the free space that a temporary copy may take


class Source:
    """An open file; :func:`open_source` makes one.

    :ivar path: of the file
    :ivar head: the beginning of its content
    :ivar compression: "gzip", "bzip2", "xz", "zstd" or None
    """

    def __init__(
        self, path: Path, file: BinaryIO, progress: Progress | None, held_bytes: int | None
    ) -> None:
        self.path = path
        self._held_bytes = held_bytes
        self._files_beside = ExitStack()
        self.progress = progress
        self._raw = RawFile(path, file, progress)
        packed = decompressed(self._raw)
        self.compression = None if packed is None else packed[0]
        self._held: Array | None = None
        self._spooled: BinaryIO | None = None
        self._size = 0
        if packed is not None:
            self._take_in(packed[1])
        elif not self._raw.is_regular:
            self._take_in(iter(lambda: self._raw.read(1 << 20), b""))
        else:
            self._spooled = file
            self._size = self._raw.size
        if self._size == 0:
            raise FormatError(path, "the file is empty")
        self.head = Head(path, self._first_bytes(), self._size)
        compression = COMPRESSION_SUFFIXES.get(path.suffix.lower())
        if compression is not None and packed is None and not self.head.is_utf8:
            raise FormatError(
                path,
                f"a {path.suffix} file begins as {compression} streams do, and this one does not: it is "
                "damaged, or is not compressed and has to be renamed",
            )

    @property
    def size(self) -> int:
        """Size of the content in bytes."""
        return self._size

    def room(self, share: float) -> int:
        """Return the size of buffers to use: a share of the free memory, at most ``held_bytes``."""
        room = int(share * config.available_memory_bytes())
        return room if self._held_bytes is None else min(room, self._held_bytes)

    def beside(self, path: Path) -> Source:
        """Open another file that belongs to this one, for as long as this one is open."""
        return self._files_beside.enter_context(open_source(path, self.progress, self._held_bytes))

    def text(self) -> Text:
        """Return the content as text. Call it only once: a buffer in memory is moved into the text."""
        if self._held is not None:
            held, self._held = self._held, None
            return self._text_in_memory(held, self._size)
        assert self._spooled is not None
        if self._size > self.room(_SHARE_HELD):
            return FileText(self.path, self._spooled, self._size, self._held_bytes)
        buffer = np.empty(self._size + 1 + PADDING_BYTES, np.uint8)
        count = self._raw.read_into(buffer[: self._size + 1].data)
        if count != self._size:
            raise FileError(f"{self.path} changed its size while it was read")
        return self._text_in_memory(buffer, count)

    def text_in_file(self) -> FileText:
        """Return the content as text that stays in the file.

        :raises InputError: the file is compressed, or no regular file
        """
        if self._spooled is None or self.compression is not None:
            kind = (
                "no regular file"
                if self.compression is None
                else f"compressed ({self.compression})"
            )
            raise InputError(
                f"{self.path} is {kind}, and a part of it cannot be read alone: decompress it, or write a "
                ".godwit file with godwit.write (command line: godwit convert)"
            )
        return FileText(self.path, self._spooled, self._size)

    def content(self) -> Array:
        """Return the content (uint8, read-only); mapped from the file if that is not compressed."""
        if self._held is not None:
            content = self._held[: self._size]
        else:
            assert self._spooled is not None
            content = np.memmap(self._spooled, np.uint8, "r", shape=(self._size,)).view(np.ndarray)
        content.flags.writeable = False
        return content

    def require_size(self, size: int, what: str) -> None:
        """Refuse a file that is shorter or longer than its header declares.

        :param what: what the header declares, for the message
        """
        if self._size != size:
            problem = "is truncated" if self._size < size else "has bytes behind its end"
            raise FormatError(
                self.path, f"the file {problem}: {what} take {size:,} bytes, it has {self._size:,}"
            )

    def _first_bytes(self) -> bytes:
        if self._held is not None:
            return self._held[: min(self._size, HEAD_BYTES)].tobytes()
        assert self._spooled is not None
        return os.pread(self._spooled.fileno(), HEAD_BYTES, 0)

    def _take_in(self, blocks: Iterator[bytes]) -> None:
        """Keep blocks in memory, or in a temporary file if they are too large."""
        room = self.room(_SHARE_HELD)
        gathered = bytearray()
        for block in blocks:
            if len(gathered) + len(block) > room:
                self._spool(chain(_drained(gathered), [block], blocks))
                return
            gathered += block
        self._size = len(gathered)
        gathered += bytes(1 + PADDING_BYTES)
        self._held = np.frombuffer(gathered, np.uint8)

    def _spool(self, blocks: Iterator[bytes | bytearray]) -> None:
        folder = tempfile.gettempdir()
        room = int(_SHARE_OF_DISK * shutil.disk_usage(folder).free)
        spooled = tempfile.TemporaryFile(prefix="godwit-")  # noqa: SIM115 (closed by close)
        try:
            for block in blocks:
                if spooled.tell() + len(block) > room:
                    raise OSError(errno.ENOSPC, "not enough space")
                spooled.write(block)
            spooled.flush()
        except OSError as error:
            spooled.close()
            raise GraphTooLargeError(
                f"{self.path}: its content does not fit in memory, and a temporary copy does not fit "
                f"in {folder} ({error.strerror or error}); TMPDIR names another folder"
            ) from error
        except BaseException:
            spooled.close()
            raise
        self._size = spooled.tell()
        self._spooled = spooled

    def _text_in_memory(self, buffer: Array, count: int) -> MemoryText:
        if buffer[count - 1] != ord("\n"):
            buffer[count] = ord("\n")
            count += 1
        buffer[count:] = 0
        return MemoryText(self.path, buffer, count)

    def close(self) -> None:
        """Close the file, its temporary copy and the files beside it."""
        self._files_beside.close()
        if self._spooled is not None:
            self._spooled.close()


def _drained(gathered: bytearray) -> Iterator[bytes | bytearray]:
    """Yield a buffer, then free its memory."""
    yield gathered
    gathered.clear()


def _check_ends(path: Path, file: BinaryIO) -> None:
    """Refuse disks, and devices such as /dev/zero, which never end; terminals and pipes do.

    Standard input may be any device (often it is /dev/null).
    """
    status = os.fstat(file.fileno())
    if stat.S_ISBLK(status.st_mode) or (
        stat.S_ISCHR(status.st_mode) and not file.isatty() and not _is_standard_input(status)
    ):
        raise FileError(f"{path} is a device, not a file")


def _is_standard_input(status: os.stat_result) -> bool:
    try:
        return os.path.samestat(status, os.fstat(0))
    except OSError:  # it is closed
        return False


@contextmanager
def open_source(
    path: str | os.PathLike[str], progress: Progress | None = None, held_bytes: int | None = None
) -> Iterator[Source]:
    """Open a file; read its content if it is compressed or a pipe.

    :param progress: called with (position in the file, its size, "reading" or "decompressing")
    :param held_bytes: how much of the content may be held in memory; None: a share of the memory
    :raises FileError: if it is missing, cannot be read, or is a device other than a terminal
    :raises FormatError: if it is empty, or its compressed stream is corrupt or truncated
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path must be a string or a path, got {shown(path)}")
    path = Path(path)
    try:
        file = path.open("rb")
    except ValueError as error:  # a null byte
        raise FileError(f"cannot read {str(path)!r}: {error}") from error
    except OSError as error:
        raise file_error(path, error) from error
    with file:
        _check_ends(path, file)
        source = Source(path, file, progress, held_bytes)
        try:
            yield source
        finally:
            source.close()
