"""Atomic writing: a file is complete under its name, or does not exist.

A file is written without a name in the file system of its target, and gets its name when it is complete: a
process that is killed leaves nothing behind. Replacing another file takes a temporary name between two
system calls; where there are no files without names (NFS, macOS), the file has it all the time. The writing
process holds a lock on the file; a temporary file without a lock is of a process that was killed, and the
next process that writes to the folder removes it.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from godwit.errors import FileError, InputError

fcntl: Any = None
with suppress(ImportError):  # Windows, where an open file is not replaced either
    import fcntl

_PREFIX, _SUFFIX = ".godwit-", ".tmp"
_TEMPORARY = re.compile(r"\.godwit-[a-z0-9_]{8,16}\.tmp")
_DESCRIPTORS = "/proc/self/fd"


def check_writable(target: str | os.PathLike[str], input_path: str | None = None) -> None:
    """Check now whether a file can be written later, by making a temporary one where it will be.

    :param input_path: what is read; writing over it is refused
    :raises InputError: the target is the input
    :raises FileError: it cannot be written
    """
    path = _real_path(target)
    with errors_named(target):
        if path.exists():
            if input_path is not None and Path(input_path).exists() and path.samefile(input_path):
                raise InputError(f"writing {target} would overwrite what is read")
            if not os.access(path, os.W_OK):
                raise FileError(f"cannot write {target}: permission denied")
        handle, name = _make_temporary(path)
        os.close(handle)
        if name is not None:
            os.unlink(name)


@contextmanager
def replacing(target: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Provide a file that replaces the target if the block ends well, and vanishes otherwise.

    It keeps the permissions of what it replaces; a link stays a link.

    :param private: only the user may read or write it, in spite of the umask and of what it replaces
    :raises FileError: it cannot be written; what was there before is there still
    """
    with _replacing(target, private=private, named=False) as (file, _):
        yield file


@contextmanager
def replacing_by_several(target: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, str]]:
    """Provide a file as :func:`replacing` does, with a name by which other processes write to it, too.

    :raises FileError: it cannot be written; what was there before is there still
    """
    with _replacing(target, private=False, named=True) as (file, name):
        assert name is not None
        yield file, name


@contextmanager
def _replacing(
    target: str | os.PathLike[str], *, private: bool, named: bool
) -> Iterator[tuple[BinaryIO, str | None]]:
    path = _real_path(target)
    with errors_named(target):
        handle, name = _make_temporary(path, named=named)
        # Keeps the file existing and locked, also if the block closes it.
        kept = None if fcntl is None else os.dup(handle)
        try:
            with os.fdopen(handle, "w+b") as file:
                yield file, name
            if not private:  # as temporary files are
                os.chmod(kept if name is None else name, _mode(path))  # type: ignore[arg-type]
            if name is None:
                assert kept is not None
                name = _named(kept, path)
            if name != str(path):
                os.replace(name, path)
        except BaseException:
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)
            raise
        finally:
            if kept is not None:
                os.close(kept)


@contextmanager
def errors_named(target: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the system's errors about a file that is written into ours."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error


def _real_path(target: str | os.PathLike[str]) -> Path:
    """Return the file that a name leads to, over links; only regular files are replaced."""
    try:
        path = Path(os.path.realpath(target))
    except ValueError as error:  # a null byte
        raise FileError(f"cannot write {str(target)!r}: {error}") from error
    with errors_named(target), suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):  # a loop of links is an OSError here
            raise FileError(f"cannot write {target}: it is not a regular file")
    return path


def _make_temporary(path: Path, *, named: bool = False) -> tuple[int, str | None]:
    """Return a private, locked file in the folder of another one, and its name if it has one."""
    _remove_leftovers(path.parent)
    handle = None if named else _open_unnamed(path.parent)
    if handle is not None:
        _lock(handle)
        return handle, None
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX, suffix=_SUFFIX)
        _lock(handle)
        with suppress(FileNotFoundError):  # it was taken for a leftover before it was locked
            if os.path.samestat(os.stat(name), os.fstat(handle)):
                return handle, name
        os.close(handle)


def _open_unnamed(folder: Path) -> int | None:
    """Return a file that vanishes when it is closed without a name; None where there are none."""
    if fcntl is None or not hasattr(os, "O_TMPFILE") or not os.path.isdir(_DESCRIPTORS):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # if the folder is why, a file with a name will say so
        return None


def _named(handle: int, path: Path) -> str:
    """Name an unnamed file: as wanted if that name is free, else by a temporary name beside it."""
    temporary = path.with_name(f"{_PREFIX}{os.urandom(6).hex()}{_SUFFIX}")
    # With a folder's descriptor, Python follows the link that the source is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        for name in (path, temporary):
            with suppress(FileExistsError):
                os.link(f"{_DESCRIPTORS}/{handle}", name, src_dir_fd=folder, follow_symlinks=True)
                return str(name)
    finally:
        os.close(folder)
    raise FileExistsError(f"{temporary} is there")


def _lock(handle: int) -> None:
    """Lock a file for as long as this process has it open, where the file system can."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)


@cache  # once per process
def _remove_leftovers(folder: Path) -> None:
    """Remove files of this user's killed processes from a folder."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name):
                with suppress(OSError):  # it is locked, or not ours
                    _remove_if_unlocked(entry.path)


def _remove_if_unlocked(name: str) -> None:
    handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
    finally:
        os.close(handle)


def _mode(path: Path) -> int:
    """Return the permissions of the file to be replaced, or of a new one; temporary files are private."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    return 0o666 & ~_umask()


def _umask() -> int:
    """Return the process' file mode creation mask.

    On Linux it is read from /proc; else it is set to a strict one for a moment, as the system
    call returns the former one, and files that other threads create meanwhile are private.
    """
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
