"""What is noted beside a file in the cache: its SHA-256, and what it was made of.

A file from one address does not stand for that of another, nor the content of an archive for that of
one which took its place. Only what somebody put into the cache himself stands for every address.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from godwit.errors import FileError
from godwit.files import replacing
from godwit.graph.arcs import Progress
from godwit.io.datasets.archives import BLOCK_BYTES
from godwit.io.datasets.catalog import DataSet


class Origin(NamedTuple):
    """What a file in the cache was made of.

    :param place: an address, the path of an archive, or ``DataSet.file`` of what lies in the cache
    :param size: of an archive that was unpacked, in bytes; else 0
    :param mtime_ns: of it, when it was changed last
    """

    place: str
    size: int = 0
    mtime_ns: int = 0


class _Record(NamedTuple):
    """What is noted beside a file in the cache."""

    sha256: str
    size: int
    mtime_ns: int
    origin: Origin


def is_kept(data: DataSet, stored: Path, origin: Origin, progress: Progress | None) -> bool:
    """Whether a file made of this is in the cache, or one that somebody put there himself.

    :raises FileError: it was made of this, and is no longer what it was
    """
    if not stored.is_file():
        return False
    known = _recorded(stored)
    status = stored.stat()
    is_same = known is not None and known[1:3] == (status.st_size, status.st_mtime_ns)
    is_placed = known is None or (known.origin.place == data.file and not origin.size)
    is_ours = is_placed or (known is not None and known.origin == origin)
    if data.member and (known is None or not is_ours):  # nobody puts there what was unpacked
        return False
    if is_same:
        return is_ours
    with stored.open("rb") as file:
        checksum = digest(file, progress)
    if not is_ours:
        if known is not None and known.sha256 == checksum:
            return False
        known = None  # somebody put another file there
    if known is not None and known.sha256 != checksum:
        raise FileError(
            f"{stored} is no longer what was fetched (its SHA-256 is {checksum}, it was "
            f"{known.sha256}): delete it, to fetch it again"
        )
    with suppress(FileError):  # the cache may be another user's
        record(stored, checksum, Origin(data.file) if known is None else known.origin)
    return True


def digest(file: IO[bytes], progress: Progress | None) -> str:
    """The SHA-256 of the rest of a file."""
    sha256 = hashlib.sha256()
    total = os.fstat(file.fileno()).st_size
    while block := file.read(BLOCK_BYTES):
        sha256.update(block)
        if progress is not None:
            progress(file.tell(), max(total, file.tell()), "checking")
    return sha256.hexdigest()


def _record_of(stored: Path) -> Path:
    return stored.with_name(f"{stored.name}.json")


def record(stored: Path, checksum: str, origin: Origin) -> None:
    """Note what a file is and what it was made of, beside it."""
    status = stored.stat()
    noted = _Record(checksum, status.st_size, status.st_mtime_ns, origin)._asdict()
    with replacing(_record_of(stored)) as file:
        file.write(json.dumps(noted | {"origin": origin._asdict()}).encode())


def _recorded(stored: Path) -> _Record | None:
    """What is noted beside a file; None if it is nothing, or nothing of sense."""
    try:
        noted = json.loads(_record_of(stored).read_bytes())
        origin = noted["origin"]
        origin = Origin(str(origin["place"]), int(origin["size"]), int(origin["mtime_ns"]))
        return _Record(str(noted["sha256"]), int(noted["size"]), int(noted["mtime_ns"]), origin)
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
