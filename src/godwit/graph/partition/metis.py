"""METIS, which holds the GIL while it runs, called so that Ctrl-C works.

Up to CHILD_ARCS it takes well under a second and is called here. Beyond, a child process runs it, so
that Ctrl-C reaches the caller at once, and a crash of METIS is an error.

The child is this file, run as a program:

- It is isolated (``-I``): neither the working directory nor PYTHONPATH is on its ``sys.path``. It gets the
  absolute entries of the caller's path, so that it imports the same modules as the caller.
- It ends with the thread that started it (PR_SET_PDEATHSIG).
- Arrays travel in temporary files without a name, which vanish with the last process that has them open.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import Any

if __name__ == "__main__":  # isolated: before anything that is not in the standard library
    sys.path[:] = json.loads(sys.argv[1])

import numpy as np

from godwit.dtypes import Array
from godwit.errors import InputError

CHILD_ARCS = 2_000_000
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_OBJTYPE_VOL = 1  # metis.h: METIS_OBJTYPE_VOL, total communication volume


def least_volume(offsets: Array, targets: Array, work: Array, parts: int, seed: int) -> Array:
    """Return the owner of each vertex, by METIS' k-way partition of least communication volume.

    :param offsets: (n + 1) of an undirected graph without self-loops and parallel arcs
    :param targets: (m)
    :param work: (n) weights of the vertices, which are balanced
    :raises ImportError: pymetis is not installed
    :raises InputError: there are too many arcs for METIS, or it failed
    """
    if len(targets) > CHILD_ARCS:
        return _in_child(offsets, targets, work, parts, seed)
    return _in_process(offsets, targets, work, parts, seed)


def _in_process(offsets: Array, targets: Array, work: Array, parts: int, seed: int) -> Array:
    import pymetis

    zero_copy_dtype = getattr(pymetis, "zero_copy_dtype", None)  # since pymetis 2025.2
    index_dtype = np.dtype(zero_copy_dtype() if zero_copy_dtype else np.int32)
    largest = max(len(targets), int(work.sum()))
    if largest > np.iinfo(index_dtype).max:
        raise InputError(f"its {index_dtype} cannot count {largest:,} arcs and vertices")
    offsets = offsets.astype(index_dtype, copy=False)
    targets = targets.astype(index_dtype, copy=False)
    compressed_rows = getattr(pymetis, "CSRAdjacency", None)  # since 2025.2; the rest is deprecated
    adjacency: dict[str, Any] = (
        {"xadj": offsets, "adjncy": targets}
        if compressed_rows is None
        else {"adjacency": compressed_rows(offsets, targets)}
    )
    result = pymetis.part_graph(
        parts,
        **adjacency,
        vweights=work.astype(index_dtype, copy=False),
        recursive=False,  # recursive bisection minimizes the cut only
        options=pymetis.Options(objtype=_OBJTYPE_VOL, seed=seed % 2**31),
    )
    return np.asarray(result[1])


def _in_child(offsets: Array, targets: Array, work: Array, parts: int, seed: int) -> Array:
    import pymetis  # noqa: F401 (its absence is noticed here)

    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(4)]
        for file, array in zip(files, (offsets, targets, work), strict=False):
            np.save(file, array)
            file.flush()
        numbers = [file.fileno() for file in files]
        absolute = [path for path in sys.path if os.path.isabs(path)]
        arguments = [json.dumps(absolute), *map(str, (os.getpid(), parts, seed, *numbers))]
        command = [sys.executable, "-I", __file__, *arguments]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, pass_fds=numbers
        ) as child:
            try:
                _, errors = child.communicate()
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            last = errors.strip().splitlines()[-1:] or [f"status {child.returncode}"]
            raise InputError(last[0])
        files[3].seek(0)
        return np.asarray(np.load(files[3]))


def _end_with_parent(parent: int) -> None:
    """Have the system kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        sys.exit(1)


def _main() -> None:
    parent, parts, seed, *numbers = map(int, sys.argv[2:])
    _end_with_parent(parent)
    files = [open(number, "r+b") for number in numbers]  # noqa: SIM115 (open until the end)
    for file in files:
        file.seek(0)  # the offset is shared with the caller
    offsets, targets, work = np.load(files[0]), np.load(files[1]), np.load(files[2])
    np.save(files[3], _in_process(offsets, targets, work, parts, seed))
    files[3].flush()


if __name__ == "__main__":
    _main()
