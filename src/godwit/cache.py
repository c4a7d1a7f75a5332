"""The cache folder: files that runs keep for later ones, and that only this user can have written.

Compiled code is executed, and that of CPUs is unpickled, which executes anything that a file says. So a
cache folder is used only if it belongs to the user that runs this process (root, in a process of root's),
and neither its group nor others may write to it, or rename a folder above it. Otherwise a warning says so,
once per process, nothing is read or kept, and all is compiled in memory. New folders and files are private.
Links are followed first; the rules apply to the folder itself.

A file starts with the checksum of the rest. A file that is damaged, belongs to another user, or may be
written by others counts as absent; a folder that cannot be written costs compilation and a warning, never
an error. ``GODWIT_CACHE=/dev/null`` keeps nothing, without a warning.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from godwit import config
from godwit.errors import FileError
from godwit.files import fcntl, replacing

_PRIVATE = 0o700
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_HAS_OWNERS = hasattr(os, "geteuid")  # elsewhere (Windows) a user's folders are closed to others
_CHECKSUM_BYTES = hashlib.sha256().digest_size


def load(*names: str) -> bytes | None:
    """Return what was stored under names of folders and a file; None if nothing sound is there."""
    folder = usable_folder(*names[:-1])
    if folder is None:
        return None
    try:
        data = _read(folder / names[-1])
    except OSError:
        return None
    checksum, payload = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    return payload if hashlib.sha256(payload).digest() == checksum else None


def store(payload: bytes, *names: str) -> None:
    """Keep data under names of folders and a file; the first time that this is impossible is a warning."""
    folder = usable_folder(*names[:-1])
    if folder is None:
        return
    try:
        make_folder(folder)
        if _refusal(folder):  # another process made it meanwhile
            return
        with replacing(folder / names[-1], private=True) as file:
            file.write(hashlib.sha256(payload).digest() + payload)
    except OSError as error:  # a FileError is one
        cache = config.cache_folder()
        if cache is not None and not cache.is_relative_to(os.devnull):
            _warn(
                f"the cache folder {cache} cannot be written ({error.strerror or error}), so that each "
                "process compiles what it needs again; let GODWIT_CACHE name a folder that you can write, "
                f"or {os.devnull} to keep nothing"
            )


class Claim:
    """A folder of the cache in which this process is about to store what takes long to make.

    Invariant: a process that has a claim waits for no other process until it releases the claim, and the
    system releases those of a process that ends. A claim only saves others the same work: where there are
    no locks, or another process has not finished after ``_PATIENCE_S``, this one goes on without.
    """

    def __init__(self, *names: str) -> None:
        self._folder = usable_folder(*names)
        self._descriptor: int | None = None

    def wait(self) -> bool:
        """Claim the folder; return True if another process had: what it made may be there now."""
        has_waited = False
        if self._folder is None or fcntl is None:
            return has_waited
        with suppress(OSError):
            make_folder(self._folder)
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
            end = monotonic() + _PATIENCE_S
            while not self._is_locked() and monotonic() < end:
                has_waited = True
                sleep(_LOOK_S)
        return has_waited

    def _is_locked(self) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def release(self) -> None:
        """Release the claim: another process may then claim the folder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_PATIENCE_S = 60.0
_LOOK_S = 0.01
"""Seconds between two looks for the end of another process' claim."""

_warned = False


def usable_folder(*names: str) -> Path | None:
    """Return the real path of a folder in the cache folder, which need not exist; None if it must not be
    used.

    The first refusal of the process is a warning.
    """
    cache = config.cache_folder()
    if cache is None:
        return None
    folder = cache.joinpath(*names)
    refused = refusal(cache) or refusal(folder)
    if not refused:
        return Path(os.path.realpath(folder))
    _warn(f"{refused}; until then all is compiled in memory")
    return None


def _warn(message: str) -> None:
    """Warn of the cache folder, once per process."""
    global _warned  # noqa: PLW0603
    if not _warned:
        _warned = True
        warnings.warn(message, stacklevel=3)


def refusal(folder: Path) -> str:
    """Return why a folder of the cache must not be used and what to do, in a sentence; empty if it may
    be."""
    reason = _refusal(Path(os.path.realpath(folder)))
    return reason and f"the cache folder {folder} is not used: {reason}"


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each closed to others.

    :raises OSError: that is impossible
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for level in reversed(missing):
        try:
            level.mkdir(_PRIVATE)
        except FileExistsError:
            if not level.is_dir():
                raise


def _refusal(folder: Path) -> str:
    """Return what is wrong with a folder, given by its real path, and what would put it right."""
    if not _HAS_OWNERS:
        return ""
    user = os.geteuid()
    for level in (folder, *folder.parents):
        try:
            status = level.stat()
        except OSError:
            continue  # it is not there, and will be ours; or we cannot read it either
        if not stat.S_ISDIR(status.st_mode):  # nothing can be below it
            continue
        owner, mode = status.st_uid, status.st_mode
        above = "" if level == folder else ", above it,"
        if level == folder:
            is_foreign = owner != user
            is_open = mode & _WRITABLE_BY_OTHERS
        else:
            # The owner of "/" (root, except in some containers) may do everything anyway.
            is_foreign = owner not in (user, 0, Path("/").stat().st_uid)
            # Where the sticky bit is set, as in /tmp, users rename only what they own.
            is_open = mode & _WRITABLE_BY_OTHERS and not mode & stat.S_ISVTX
        if is_foreign:
            return (
                f"{level}{above} belongs to user {owner}, who could make user {user} execute anything; "
                "let GODWIT_CACHE name a folder of your own"
            )
        if is_open:
            who = "others" if mode & stat.S_IWOTH else f"group {status.st_gid}"
            mend = f"run 'chmod go-w {shlex.quote(str(level))}', or " if owner == user else ""
            return (
                f"{level}{above} may be written by {who}, who could make user {user} execute anything; "
                f"{mend}let GODWIT_CACHE name a folder of your own"
            )
    return ""


def _read(path: Path) -> bytes:
    """Return the content of a file that only this user can have written.

    :raises OSError: it is absent, or others may have written it
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path} is not a regular file")
        if _HAS_OWNERS and (status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS):
            raise FileError(f"{path} may have been written by others")
        return file.read()
