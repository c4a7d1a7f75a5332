"""The file of a data set: in the cache, in a folder that mirrors the publishers, or downloaded.

Each mirror has a folder of its own in the cache, so a file from one address does not stand for that of
another. Of an archive only the graph's own file is kept, compressed by zstd, with the time of an archive
that lies on this machine. All files are compressed, and damage in the cache is noticed by the checksums of
their compression; the SHA256SUMS of a mirror are checked on download.

pooch downloads. What it does not have is here: files that are complete or not there even if the process is
killed (:func:`godwit.files.replacing`), one member of an archive without unpacking the others, a look
at the free disk space, and errors of one line.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import lzma
import os
import re
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

from godwit import cache, config
from godwit.errors import FileError
from godwit.files import replacing
from godwit.graph.arcs import Progress
from godwit.io.compression import compressed, file_error
from godwit.io.datasets.catalog import DataSet

_TIMEOUT_S = 30.0  # without a byte from the server
_SUMS = "SHA256SUMS"
_WEB_PAGE = b"<"  # no graph begins like this
_GZIP = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 20
_ARCHIVE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,  # of bz2, gzip and the disk
    ValueError,
    RuntimeError,  # encrypted, or an unknown compression
)


def fetch(data: DataSet, progress: Progress | None = None) -> Path:
    """Return the file of a data set; download or unpack it if it is not in the cache.

    :param progress: called with (bytes done, bytes in all or done, phase)
    :raises FileError: it cannot be had; names a remedy
    """
    mirror = _mirror()
    archive = None
    if isinstance(mirror, Path):
        archive = mirror / data.file
        if not archive.is_file():
            raise FileError(f"{data.name}: no file {archive} (GODWIT_DATASETS={mirror})")
        if not data.member:
            return archive
    folder = cache_folder() / _subfolder(mirror)
    stored = folder / data.stored
    if archive is None and data.member:
        archive = folder / data.file  # if the user has put it there
    with _errors_of_reading(stored):
        time = archive.stat().st_mtime_ns if archive is not None and archive.is_file() else None
        if stored.is_file() and time in (None, stored.stat().st_mtime_ns):
            return stored
    _make_folder(stored.parent)
    with replacing(stored) as file:
        if time is not None:
            assert archive is not None
            with _errors_of_reading(archive), archive.open("rb") as packed:
                _unpack(data, packed, str(archive), file, progress)
        elif data.member:
            with tempfile.TemporaryFile(dir=stored.parent) as packed:
                url = _download(data, mirror, folder, packed, progress)
                _unpack(data, packed, url, file, progress)
        else:
            _download(data, mirror, folder, file, progress)
    if time is not None:
        os.utime(stored, ns=(time, time))
    return stored


def _mirror() -> Path | str | None:
    """Return the folder or the address of a mirror, if there is one. :raises FileError: it is neither"""
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


def _subfolder(mirror: Path | str | None) -> str:
    """Return the name of a mirror's folder in the cache; "" for the publishers'."""
    if mirror is None:
        return ""
    if isinstance(mirror, Path):
        origin = os.path.realpath(mirror)
    else:
        origin = re.sub(r"(?<=://)[^/]*@", "", mirror).rstrip("/")  # without a password
    return f"mirror-{hashlib.sha256(origin.encode()).hexdigest()[:12]}"


def cache_folder() -> Path:
    """Return the folder of data sets in the cache folder, or a temporary one if there is none.

    :raises FileError: others can write to the cache folder, so its content cannot be trusted
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


class _ProgressBar:
    """Progress bar for pooch; refuses a download that does not fit on the disk.

    :ivar total: Content-Length, set by pooch before the first byte; 0 if there is none
    """

    def __init__(self, folder: Path, progress: Progress | None) -> None:
        self.count = 0
        self._folder = folder
        self._progress = progress
        self._total = 0

    @property
    def total(self) -> int:
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

    def update(self, count: int) -> None:
        self.count += count
        if self._progress is not None:
            done = min(self.count, self._total) if self._total else self.count
            self._progress(done, self._total or done, "downloading")

    def reset(self) -> None:
        """Do nothing: pooch calls this before its last update."""

    def close(self) -> None:
        """Do nothing: part of the interface of progress bars."""


def _download(
    data: DataSet,
    mirror: str | Path | None,
    folder: Path,
    file: IO[bytes],
    progress: Progress | None,
) -> str:
    """Download a file. Return its address.

    :raises FileError: it did not come, not whole, or is another one
    """
    url = data.url if mirror is None else f"{str(mirror).rstrip('/')}/{data.file}"
    bar = _ProgressBar(folder, progress)
    source = url
    try:
        expected = None
        if mirror is not None:
            source = f"{str(mirror).rstrip('/')}/{_SUMS}"
            expected = _published_checksum(source, data.file)
        source = url
        is_decoded = _get(url, file, bar)
        problem = _problem_of_file(file, expected, 0 if is_decoded else bar.total)
    except _download_errors() as error:
        problem = _problem_of_download(error, bar)
    if problem:
        raise FileError(
            f"cannot fetch {data.name} from {source}: {problem} "
            f"(if you get the file elsewhere, put it at {folder / data.file})"
        )
    return url


def _get(url: str, file: IO[bytes], bar: _ProgressBar) -> bool:
    """Download a file. Return True if the server has compressed it, so that its length is another."""
    import pooch

    encodings = []
    with ExitStack() as answers:

        def keep(answer: Any, **_: Any) -> None:
            answers.callback(answer.close)  # pooch does not close them on errors
            encodings.append(answer.headers.get("Content-Encoding"))

        download = pooch.HTTPDownloader(
            progressbar=bar,
            chunk_size=_BLOCK_BYTES,
            timeout=_TIMEOUT_S,
            headers={"Accept-Encoding": "identity"},
            hooks={"response": keep},
        )
        download(url, file, None)
    return encodings[-1] is not None


def _published_checksum(url: str, file: str) -> str | None:
    """Return the SHA-256 of a file in a mirror's list; None if there is no list or it lacks the file."""
    import requests

    answer = requests.get(url, timeout=_TIMEOUT_S)
    if answer.status_code == 404:
        return None
    answer.raise_for_status()
    for line in answer.text.splitlines():
        checksum, _, name = line.partition(" ")
        if name.lstrip(" *").removeprefix("./") == file:
            return checksum.lower()
    return None


def _problem_of_file(file: IO[bytes], expected: str | None, length: int) -> str:
    """Return what is wrong with a downloaded file; "" if nothing is.

    :param expected: its SHA-256
    :param length: bytes that it should have, or 0
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(64)
    file.seek(0)
    if size < max(length, 1):
        return _cut(length)
    if head.lstrip().startswith(_WEB_PAGE):
        return "the server sent a web page, not a graph"
    if expected is not None:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        if checksum != expected:
            return f"wrong checksum: its SHA-256 is {checksum}, {_SUMS} says {expected}"
    if not length and head.startswith(_GZIP):  # no length: a stream that was cut has no end
        file.seek(0)
        try:
            with gzip.open(file) as content:
                while content.read(_BLOCK_BYTES):
                    pass
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return _cut(0)
    return ""


def _download_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a download, but for those of writing."""
    import requests
    import urllib3

    return (requests.RequestException, urllib3.exceptions.HTTPError, ValueError)


def _problem_of_download(error: Exception, bar: _ProgressBar) -> str:
    """Return in a few words what went wrong."""
    import requests

    text = " ".join(str(error).split())[:200]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None and status >= 400:
        return f"the server answered {status}"
    if isinstance(error, requests.Timeout) or "timed out" in text:
        return f"the server sent nothing for {_TIMEOUT_S:g} s"
    if bar.count or isinstance(error, requests.exceptions.ChunkedEncodingError):
        return _cut(bar.total)
    if isinstance(error, requests.ConnectionError) and not isinstance(
        error, requests.exceptions.SSLError
    ):
        return "the server cannot be reached; is this machine offline?"
    return text


def _cut(length: int) -> str:
    due = f"all {length:,} bytes" if length else "the end"
    return f"the connection was cut before {due} had come"


def _unpack(
    data: DataSet, archive: IO[bytes], origin: str, file: IO[bytes], progress: Progress | None
) -> None:
    """Copy the graph's file out of an archive, compressed by zstd.

    :raises FileError: the archive is corrupt or lacks it
    """
    total = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    with compressed(file, "zstd") as packed:  # type: ignore[arg-type]
        for block in _member_blocks(data, archive, origin):
            packed.write(block)
            if progress is not None:
                progress(archive.tell(), total, "unpacking")


def _member_blocks(data: DataSet, archive: IO[bytes], origin: str) -> Iterator[bytes]:
    """Yield the content of the member of an archive that has the graph's name, in whatever folder.

    Nothing is written under a name from the archive, and links are not followed.
    """
    try:
        members = _zip_members(archive) if data.url.endswith(".zip") else _tar_members(archive)
        for name, size, content in members:
            if PurePosixPath(name).name == data.member:
                left = size
                while block := content.read(_BLOCK_BYTES):
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
    """Yield name, size and content of the regular files, in one pass."""
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
