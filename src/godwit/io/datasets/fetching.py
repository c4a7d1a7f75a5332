"""A data set's file in the cache: complete, and what it was when it was fetched, or not there at all.

Few publishers give checksums, so the first download is trusted: its SHA-256 is kept beside the file,
and whoever reads it later finds it unchanged (by size and time; where those differ, by the checksum).
A mirror that has ``SHA256SUMS`` is held to it. Of an archive only the graph's own file is kept,
compressed by zstd.

A download goes to a temporary file, which takes its name at the end: processes that fetch the same
file at the same time do not meet.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from godwit import cache, config
from godwit.errors import FileError
from godwit.files import errors_named, replacing
from godwit.graph.arcs import Progress
from godwit.io.compression import compressed, file_error
from godwit.io.datasets.archives import BLOCK_BYTES, member_blocks
from godwit.io.datasets.catalog import DataSet
from godwit.io.datasets.records import Origin, digest, is_kept, record

_TIMEOUT_S = 30.0  # without a byte from the server
_SUMS = "SHA256SUMS"
_WEB_PAGE = b"<"  # no graph begins like this
_GZIP = b"\x1f\x8b"


def fetch(data: DataSet, progress: Progress | None = None) -> Path:
    """The file of a data set: from the cache, from a folder that mirrors the homes, or downloaded.

    :param progress: called with (bytes done, bytes in all or done, phase)
    :raises FileError: it cannot be had; says what to do
    """
    mirror = _mirror()
    folder = mirror if isinstance(mirror, Path) else None
    if folder is not None and not (folder / data.file).is_file():
        raise FileError(f"{data.name}: no file {folder / data.file} (GODWIT_DATASETS={mirror})")
    if folder is not None and not data.member:
        return folder / data.file
    kept = cache_folder()
    stored = kept / data.stored
    placed = (folder or kept) / data.file
    archive = placed if data.member and placed.is_file() else None
    address = None if isinstance(mirror, Path) else mirror
    url = data.url if address is None else f"{address.rstrip('/')}/{data.file}"
    if archive is None:
        origin = Origin(re.sub(r"(?<=://)[^/]*@", "", url))  # without a password
    else:
        with _errors_of_reading(archive):
            status = archive.stat()
        place = data.file if folder is None else os.path.realpath(archive)
        origin = Origin(place, status.st_size, status.st_mtime_ns)
    with _errors_of_reading(stored):
        if is_kept(data, stored, origin, progress):
            return stored
    _make_folder(stored.parent)
    if archive is None:
        checksum = _download(data, url, address, kept, progress)
    else:
        with _errors_of_reading(archive), archive.open("rb") as file:
            checksum = _unpack(data, file, str(archive), stored, progress)
    record(stored, checksum, origin)
    return stored


def _mirror() -> Path | str | None:
    """The folder, or the address, that stands for the homes. :raises FileError: it is neither."""
    mirror = config.dataset_mirror()
    if mirror is None or re.match("https?://", mirror, re.IGNORECASE):
        return mirror
    if local := re.match("file://(localhost)?(?=/)", mirror, re.IGNORECASE):
        return Path(unquote(mirror[local.end() :]))
    if "://" in mirror:
        raise FileError(
            f"GODWIT_DATASETS must be an http:// or https:// address, or a folder, got {mirror!r}"
        )
    return Path(os.path.expanduser(mirror))


def _download(
    data: DataSet, url: str, mirror: str | None, kept: Path, progress: Progress | None
) -> str:
    """Bring a data set's file from its home, or from a mirror, into the cache. :returns: its SHA-256"""
    stored = kept / data.stored
    expected = None if mirror is None else _published_checksum(data, mirror, kept)
    if data.member:
        with errors_named(stored), tempfile.TemporaryFile(dir=stored.parent) as archive:
            _receive(data, url, kept, _Receiver(archive, stored.parent, progress), expected)
            return _unpack(data, archive, url, stored, progress)
    with replacing(stored) as file:
        receiver = _Receiver(file, stored.parent, progress)
        _receive(data, url, kept, receiver, expected)
    return receiver.sha256.hexdigest()


def cache_folder() -> Path:
    """Where data sets are kept: below the cache folder, or a temporary one if there is no home.

    :raises FileError: the cache folder is not ours alone, so that others could say what is written where
    """
    base = config.cache_folder()
    if base is None:
        return _temporary_folder()
    refused = cache.refusal(base) or cache.refusal(base / "datasets")
    if refused:
        raise FileError(
            f"{refused} (GODWIT_DATASETS may name a folder of data sets that others own)"
        )
    return base / "datasets"


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="godwit-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class _Receiver:
    """What pooch writes a download to, and its progress bar too: counts, hashes, keeps the beginning.

    ``total``, which pooch sets before the first byte, is what the server says that there is; 0 if it
    does not say. If it has compressed the file on its own account (``is_decoded``), that is not the
    file's size.
    """

    def __init__(self, file: IO[bytes], folder: Path, progress: Progress | None) -> None:
        self.count = 0
        self.head = b""
        self.is_decoded = False
        self.sha256 = hashlib.sha256()
        self.file = file
        self._folder = folder
        self._progress = progress
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes to come in all, or 0. :raises FileError: on setting it, if they have no room"""
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        self._total = total
        free = shutil.disk_usage(self._folder).free
        if total > free:
            raise FileError(
                f"cannot write to {self._folder}: the download takes {total:,} bytes and "
                f"{free:,} are free; GODWIT_CACHE names another folder"
            )

    @property
    def is_short(self) -> bool:
        """Whether less has come than the server said."""
        return self.count < self._total and not self.is_decoded

    def write(self, data: bytes) -> None:
        """Take the next block."""
        self.file.write(data)
        self.sha256.update(data)
        self.count += len(data)
        if len(self.head) < 64:
            self.head += data[:64]

    def flush(self) -> None:
        """Called by pooch after each block, which would be too often."""

    def update(self, _: int) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(self.count, max(self._total, self.count), "downloading")

    def reset(self) -> None:
        """Part of the protocol of progress bars."""

    def close(self) -> None:
        """Part of the protocol of progress bars."""


def _receive(
    data: DataSet, url: str, kept: Path, receiver: _Receiver, expected: str | None
) -> None:
    """Download a file. :raises FileError: it did not come, not whole, or is another one"""
    try:
        _get(url, receiver)
    except _download_errors() as error:
        raise _not_fetched(data, url, _problem(error, receiver), kept) from error
    problem = ""
    if receiver.is_short or not receiver.count:
        problem = _cut(receiver)
    elif receiver.head.lstrip().startswith(_WEB_PAGE):
        problem = "the server sent a web page, not a graph"
    elif expected is not None and receiver.sha256.hexdigest() != expected:
        problem = (
            f"wrong checksum: its SHA-256 is {receiver.sha256.hexdigest()}, {_SUMS} says {expected}"
        )
    elif not receiver.total and not _is_whole(receiver):
        problem = _cut(receiver)
    if problem:
        raise _not_fetched(data, url, problem, kept)


def _get(url: str, receiver: _Receiver) -> None:
    import pooch

    with ExitStack() as answers:

        def keep(answer: Any, **_: Any) -> None:
            answers.callback(answer.close)  # pooch leaves those open that it gives up
            receiver.is_decoded = "Content-Encoding" in answer.headers

        download = pooch.HTTPDownloader(
            progressbar=receiver,
            chunk_size=BLOCK_BYTES,
            timeout=_TIMEOUT_S,
            headers={"Accept-Encoding": "identity"},
            hooks={"response": keep},
        )
        download(url, receiver, None)


def _published_checksum(data: DataSet, mirror: str, kept: Path) -> str | None:
    """The SHA-256 that a mirror gives for a file, or None if it has no list or not this file."""
    url = f"{mirror.rstrip('/')}/{_SUMS}"
    sums = BytesIO()
    receiver = _Receiver(sums, kept, None)
    try:
        _get(url, receiver)
    except _download_errors() as error:
        if _status(error) == 404:
            return None
        raise _not_fetched(data, url, _problem(error, receiver), kept) from error
    if receiver.is_short:
        raise _not_fetched(data, url, _cut(receiver), kept)
    for line in sums.getvalue().decode("utf-8", "replace").splitlines():
        checksum, _, file = line.partition(" ")
        if file.lstrip(" *").removeprefix("./") == data.file:
            return checksum.lower()
    return None


def _is_whole(receiver: _Receiver) -> bool:
    """Whether a gzip stream ends as it should, where no length says when it is complete."""
    receiver.file.seek(0)
    try:
        if receiver.head.startswith(_GZIP):
            with gzip.open(receiver.file) as content:
                while content.read(BLOCK_BYTES):
                    pass
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    return True


def _download_errors() -> tuple[type[Exception], ...]:
    """What a download raises, besides what writing raises."""
    import requests
    import urllib3

    return (requests.RequestException, urllib3.exceptions.HTTPError, ValueError)


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _problem(error: Exception, receiver: _Receiver) -> str:
    """In a few words, what is wrong with a download."""
    import requests

    text = " ".join(str(error).split())[:200]
    status = _status(error)
    if status is not None and status >= 400:
        return f"the server answered {status}"
    if isinstance(error, requests.Timeout) or "timed out" in text:
        return f"the server sent nothing for {_TIMEOUT_S:g} s"
    if receiver.count or isinstance(error, requests.exceptions.ChunkedEncodingError):
        return _cut(receiver)
    if isinstance(error, requests.ConnectionError) and not isinstance(
        error, requests.exceptions.SSLError
    ):
        return "the server cannot be reached; is this machine offline?"
    return text


def _cut(receiver: _Receiver) -> str:
    due = f"all {receiver.total:,} bytes" if receiver.total else "the end"
    return f"the connection was cut before {due} had come"


def _not_fetched(data: DataSet, origin: str, problem: str, kept: Path) -> FileError:
    return FileError(
        f"cannot fetch {data.name} from {origin}: {problem} "
        f"(if you get the file elsewhere, put it at {kept / data.file})"
    )


def _unpack(
    data: DataSet, archive: IO[bytes], origin: str, stored: Path, progress: Progress | None
) -> str:
    """Keep the graph's file of an archive.

    :returns: the SHA-256 of what is kept
    :raises FileError: the archive is corrupt or lacks it
    """
    total = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    with replacing(stored) as file:
        with compressed(file, "zstd") as packed:
            for block in member_blocks(data, archive, origin):
                packed.write(block)
                if progress is not None:
                    progress(archive.tell(), total, "unpacking")
        file.seek(0)
        return digest(file, progress)


def _make_folder(folder: Path) -> None:
    try:
        cache.make_folder(folder)
    except OSError as error:
        raise FileError(
            f"cannot make the folder {folder}: {error.strerror or error}; "
            "GODWIT_CACHE names another one"
        ) from error


@contextmanager
def _errors_of_reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise file_error(path, error) from error
