"""Results as files: complete under their name, or not there at all.

A file is written under a temporary name in the folder where it is to be, and renamed when it is
complete. Whether that will work is found out before anything else is done.

Forms. ``.npy`` holds what the Python functions return: an array in the order of the vertices,
counted from 0 (with fields, where there is more than one column), sentinels and all. ``.csv`` and
``.parquet`` are tables with a column ``vertex``; there, vertices are called what the file of the
graph calls them, and what does not exist (the distance of an unreached vertex) is empty or null.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from godwit.cli.failures import PipeClosedError
from godwit.errors import FileError, InputError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

STDOUT = "-"
FORMS = (".npy", ".csv", ".parquet")


@dataclass(frozen=True)
class Column:
    """A value per vertex.

    :param name: of the column
    :param values: (n) as the Python functions return them
    :param present: bool (n), False where there is no value; None if there is one everywhere
    :param ids: whether the values are vertices
    """

    name: str
    values: Array
    present: Array | None = None
    ids: bool = False


class Output:
    """Where results go.

    :param target: what the user wrote: a path, ``-`` for CSV on stdout, or None for nowhere
    :param input_path: what was read; writing over it is refused
    :raises InputError: the ending is unknown, or the path is that of the input
    :raises FileError: it could not be written; found out by writing a temporary file
    """

    def __init__(self, target: str | None, input_path: str) -> None:
        self.target = target
        self._form = ".csv"
        if target is None or target == STDOUT:
            return
        self._form = Path(target).suffix.lower()
        if self._form not in FORMS:
            raise InputError(
                f"--output must end in {', '.join(FORMS[:-1])} or {FORMS[-1]}, or be {STDOUT} for "
                f"CSV on stdout; got {target!r}"
            )
        # A link stays a link: what it points to is replaced.
        self._path = Path(os.path.realpath(target))
        self._check_writable(input_path)

    @property
    def on_stdout(self) -> bool:
        """Whether the result itself goes to stdout, so that nothing else may."""
        return self.target == STDOUT

    def write(self, columns: list[Column], id_base: int) -> None:
        """Write the columns, which start at the vertex called ``id_base``.

        :raises FileError: it did not work; what was there before is there still
        """
        if self.target is None:
            return
        if self.on_stdout:
            try:
                sys.stdout.flush()
                _write_csv(sys.stdout.buffer, columns, id_base)
                sys.stdout.buffer.flush()
            except BrokenPipeError as error:
                raise PipeClosedError from error
            return
        write = {".npy": _write_npy, ".csv": _write_csv, ".parquet": _write_parquet}[self._form]
        with _errors_named(self.target), self._temporary() as file:
            write(file, columns, id_base)

    def _check_writable(self, input_path: str) -> None:
        assert self.target is not None
        with _errors_named(self.target):
            if self._path.exists():
                if not stat.S_ISREG(self._path.stat().st_mode):
                    raise FileError(f"cannot write {self.target}: it is not a regular file")
                if Path(input_path).exists() and self._path.samefile(input_path):
                    raise InputError(f"--output {self.target} would overwrite the graph itself")
                if not os.access(self._path, os.W_OK):
                    raise FileError(f"cannot write {self.target}: permission denied")
            handle, name = self._make_temporary()
            os.close(handle)
            os.unlink(name)

    def _make_temporary(self) -> tuple[int, str]:
        return tempfile.mkstemp(dir=self._path.parent, prefix=".godwit-", suffix=".tmp")

    @contextmanager
    def _temporary(self) -> Iterator[IO[bytes]]:
        """A file that takes the real one's place if the block ends well, and vanishes if not."""
        handle, name = self._make_temporary()
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(name, self._mode())
            os.replace(name, self._path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def _mode(self) -> int:
        """Permissions of the file to be replaced, or of a new one; temporary files are private."""
        with suppress(OSError):
            return stat.S_IMODE(self._path.stat().st_mode)
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


@contextmanager
def _errors_named(target: str) -> Iterator[None]:
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error


def _write_npy(file: IO[bytes], columns: list[Column], id_base: int) -> None:
    import numpy as np

    if len(columns) == 1:
        np.save(file, columns[0].values, allow_pickle=False)
        return
    fields = np.dtype([(column.name, column.values.dtype) for column in columns])
    rows = np.empty(len(columns[0].values), fields)
    for column in columns:
        rows[column.name] = column.values
    np.save(file, rows, allow_pickle=False)


def _table(columns: list[Column], id_base: int) -> Any:
    import numpy as np
    import pyarrow as pa

    first = columns[0].values
    arrays = {"vertex": pa.array(np.arange(id_base, id_base + len(first), dtype=np.int64))}
    for column in columns:
        values = column.values.astype(np.int64) + id_base if column.ids else column.values
        absent = None if column.present is None else ~column.present
        arrays[column.name] = pa.array(values, mask=absent)
    return pa.table(arrays)


def _write_csv(file: Any, columns: list[Column], id_base: int) -> None:
    import pyarrow.csv

    table = _table(columns, id_base)
    # Arrow would quote the names.
    file.write((",".join(table.column_names) + "\n").encode())
    pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(include_header=False))


def _write_parquet(file: IO[bytes], columns: list[Column], id_base: int) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(columns, id_base), file)
