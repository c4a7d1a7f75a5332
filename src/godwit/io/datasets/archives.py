"""The one file that is wanted of an archive: a stream of bytes, from tar (compressed or not) or zip.

Nothing is written under a name that an archive gives, and links are not followed.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

from godwit.errors import FileError
from godwit.io.datasets.catalog import DataSet

BLOCK_BYTES = 1 << 20

_ARCHIVE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,  # of bz2 and gzip; and of the disk, which is as bad
    ValueError,
    RuntimeError,  # encrypted, or packed in a way that nobody knows
)


def member_blocks(data: DataSet, archive: IO[bytes], origin: str) -> Iterator[bytes]:
    """The content of the graph's file, found by its name in whatever folder of the archive."""
    try:
        members = _zip_members(archive) if data.url.endswith(".zip") else _tar_members(archive)
        for name, size, content in members:
            if PurePosixPath(name).name == data.member:
                left = size
                while block := content.read(BLOCK_BYTES):
                    left -= len(block)
                    yield block
                if left:
                    raise EOFError("it ends too early")
                return
    except _ARCHIVE_ERRORS as error:
        text = " ".join(str(error).split())[:200]
        raise FileError(
            f"cannot unpack {data.name} from {origin}: the archive is corrupt ({text})"
        ) from error
    raise FileError(
        f"cannot unpack {data.name} from {origin}: there is no {data.member} in the archive"
    )


def _tar_members(archive: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of the regular files, read in one go."""
    with tarfile.open(fileobj=archive, mode="r|*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, member.size, content


def _zip_members(archive: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if not member.is_dir():
                with packed.open(member) as content:
                    yield member.filename, member.file_size, content
