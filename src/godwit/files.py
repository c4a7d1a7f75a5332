"""Files that are complete under their name, or not there at all.

A file is written under a temporary name in the folder where it is to be, and renamed when it is
complete; what was there before stays until then.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from godwit.errors import FileError, InputError


def check_writable(target: str | os.PathLike[str], input_path: str | None = None) -> None:
    """Find out now whether a file can be written later, by making a temporary one beside it.

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
        os.unlink(name)


@contextmanager
def replacing(target: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """A file that takes the target's place if the block ends well, and vanishes if not.

    It keeps the permissions of what it replaces; a link stays a link.

    :param private: nobody but the user may read or write it, whatever the umask and what it replaces
    :raises FileError: it cannot be written; what was there before is there still
    """
    path = _real_path(target)
    with errors_named(target):
        handle, name = _make_temporary(path)
        try:
            with os.fdopen(handle, "w+b") as file:
                yield file
            if not private:  # as temporary files are
                os.chmod(name, _mode(path))
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


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
    """The file that a name leads to, over links; only regular ones are replaced."""
    try:
        path = Path(os.path.realpath(target))
    except ValueError as error:  # a null byte
        raise FileError(f"cannot write {str(target)!r}: {error}") from error
    with errors_named(target), suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):  # a loop of links is an OSError here
            raise FileError(f"cannot write {target}: it is not a regular file")
    return path


def _make_temporary(path: Path) -> tuple[int, str]:
    return tempfile.mkstemp(dir=path.parent, prefix=".godwit-", suffix=".tmp")


def _mode(path: Path) -> int:
    """Permissions of the file to be replaced, or of a new one; temporary files are private."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    return 0o666 & ~_umask()


def _umask() -> int:
    """Return the process' file mode creation mask.

    Where Linux tells it, it is read; else it is set to a strict one for a moment, as the system
    call returns the former one, and files that other threads create meanwhile are private.
    """
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
