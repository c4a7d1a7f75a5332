"""METIS, called so that it can be left: it holds the GIL for as long as it runs.

Up to CHILD_ARCS it takes well under a second and is called here. Beyond, a child process runs it, so
that Ctrl-C reaches the caller at once (and a crash of METIS, which ends its process, is an error).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import InputError

CHILD_ARCS = 2_000_000
_OBJTYPE_VOL = 1  # metis.h: METIS_OBJTYPE_VOL, total communication volume


def least_volume(offsets: Array, targets: Array, work: Array, parts: int, seed: int) -> Array:
    """The owner of each vertex, by METIS' k-way partition of least communication volume.

    :param offsets: (n + 1) of an undirected graph without self-loops and parallel arcs
    :param targets: (m)
    :param work: (n) weights of the vertices, to be balanced
    :raises ImportError: pymetis is not there
    :raises InputError: METIS cannot count so many arcs, or failed
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
        recursive=False,  # recursive bisection knows the cut only
        options=pymetis.Options(objtype=_OBJTYPE_VOL, seed=seed % 2**31),
    )
    return np.asarray(result[1])


def _in_child(offsets: Array, targets: Array, work: Array, parts: int, seed: int) -> Array:
    import pymetis  # noqa: F401 (its absence is noticed here)

    with tempfile.TemporaryDirectory(prefix="godwit-metis-") as name:
        folder = Path(name)
        for stem, array in (("offsets", offsets), ("targets", targets), ("work", work)):
            np.save(folder / f"{stem}.npy", array)
        command = [sys.executable, "-m", "godwit.graph.metis", name, str(parts), str(seed)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            try:
                _, errors = child.communicate()
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            last = errors.strip().splitlines()[-1:] or [f"status {child.returncode}"]
            raise InputError(last[0])
        return np.asarray(np.load(folder / "owner.npy"))


def _main() -> None:
    folder, parts, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    offsets, targets, work = (
        np.load(folder / f"{stem}.npy", mmap_mode="r") for stem in ("offsets", "targets", "work")
    )
    np.save(folder / "owner.npy", _in_process(offsets, targets, work, parts, seed))


if __name__ == "__main__":
    _main()
