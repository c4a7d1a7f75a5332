"""Graphs on several processes, written to one ``.godwit`` file: each process writes the bytes of its part.

The file is that of :func:`godwit.write` of the whole graph, bit by bit, so that any number of processes, or
one without MPI, reads it again. It is written under a temporary name; when all have written, each adds a
part of the bytes to the checksums, and the first process writes the header and gives the file its name.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.processes import Processes
from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FileError, InputError
from godwit.files import errors_named, replacing_by_several
from godwit.io import graph_files
from godwit.io.binary.checksum import checksum_of_part
from godwit.io.binary.native import (
    INTEGER_IDS,
    OFFSETS,
    TARGETS,
    TEXT,
    TEXT_OFFSETS,
    WEIGHTS,
    header_of,
    laid_out,
    stored_ids,
)
from godwit.public import public


@public
def write(
    graph: DistributedGraph | GpuGraph, path: str | os.PathLike[str], *, format: str | None = None
) -> None:
    """Write a graph to a ``.godwit`` file in a folder that all processes see; see :func:`godwit.write`.

    A graph on GPUs, of which every process has a copy on its host, is written by process 0, in any format.

    :raises InputError: another format, or ids that are objects
    :raises FileError: the file cannot be written, or a process does not see it; what was there is unchanged
    """
    processes = graph.processes
    with processes.running("write", os.fspath(path), format):
        if isinstance(graph, GpuGraph):
            if processes.rank == 0:
                graph_files.write(graph.graph, path, format=format)
            return
        if (os.path.splitext(path)[1] if format is None else format) not in (".godwit", "godwit"):
            raise InputError(
                f"several processes write .godwit files, got {os.fspath(path)}; godwit convert makes "
                "others of them"
            )
        with ExitStack() as complete:
            name = ""
            file = None
            if processes.rank == 0:
                file, name = complete.enter_context(replacing_by_several(path))
            name = processes.share(name)[0]
            if file is None:
                file = complete.enter_context(_opened(name, path, processes))
            with errors_named(path):
                _write(graph, file, name)
            processes.meet()  # all are well


def _opened(name: str, path: str | os.PathLike[str], processes: Processes) -> BinaryIO:
    """Open the file that the first process has made."""
    try:
        return open(name, "r+b")
    except OSError as error:
        raise FileError(
            f"process {processes.rank} cannot write {os.fspath(path)}, which process 0 has begun "
            f"({error.strerror or error}): it must be in a folder of a file system that all see"
        ) from error


def _write(graph: DistributedGraph, file: BinaryIO, name: str) -> None:
    """Write the file under its temporary name; all processes call it."""
    processes = graph.processes
    base, arrays = _arrays(graph)
    lengths = np.array(processes.share([len(array) for _, array in arrays]), np.int64)
    firsts = lengths[: processes.rank].sum(axis=0).tolist()
    totals = lengths.sum(axis=0).tolist()
    sections = laid_out(
        [
            (kind, array.dtype, array.itemsize * total)
            for (kind, array), total in zip(arrays, totals, strict=True)
        ]
    )
    if processes.rank == 0:
        file.truncate(sections[-1].end)
    processes.meet()
    for section, (_, array), first in zip(sections, arrays, firsts, strict=True):
        file.seek(section.begin + first * array.itemsize)
        file.write(np.ascontiguousarray(array).view(np.uint8).data)
    _store(file)
    processes.meet()
    content = np.memmap(name, np.uint8, "r")
    own = [
        checksum_of_part(content[section.begin : section.end], processes.rank, processes.count)
        for section in sections
    ]
    sums = processes.add_up(np.array(own, np.uint64).view(np.int64)).view(np.uint64)
    if processes.rank == 0:
        file.seek(0)
        file.write(
            header_of(
                sections,
                sums.tolist(),
                graph.vertex_count,
                graph.arc_count,
                base,
                directed=graph.directed,
            )
        )
        _store(file)


def _store(file: BinaryIO) -> None:
    """Let other machines see what has been written."""
    file.flush()
    os.fsync(file.fileno())


def _arrays(graph: DistributedGraph) -> tuple[int, list[tuple[int, Array]]]:
    """Return the id of the first vertex in files, and this process' part of each section, by kind."""
    processes, rows = graph.processes, graph.rows
    positions = graph.positions_of_slots(rows).astype(id_dtype_for(graph.vertex_count))
    arrays = [
        (OFFSETS, _continued(processes, rows.offsets)),
        (TARGETS, positions[rows.targets]),
    ]
    if rows.weights is not None:
        arrays.append((WEIGHTS, rows.weights))
    ids: list[tuple[int, Array]] = []
    base = max(processes.share(graph.ids.base))
    known = [kind for kind, count in processes.share((graph.ids.kind, len(graph.ids))) if count]
    if not graph.is_range or graph.first_id != base:  # ids of its own
        if "object" in known:
            stored_ids(graph.ids.in_file)  # raises in a process that has some
        if "text" in known:
            offsets, text = np.zeros(1, np.int64), np.empty(0, np.uint8)
            if len(graph.ids):
                (_, offsets), (_, text) = stored_ids(graph.ids)
            ids = [(TEXT_OFFSETS, _continued(processes, offsets)), (TEXT, text)]
        else:
            ids = [(INTEGER_IDS, np.asarray(graph.ids.in_file.stored, np.int64))]
        base = 0
    return base, arrays + ids


def _continued(processes: Processes, offsets: Array) -> Array:
    """Return the offsets of this process' rows in the whole graph; the last process has the end, too."""
    ends: list[Any] = processes.share(int(offsets[-1]))
    whole: Array = offsets + sum(ends[: processes.rank])
    return whole if processes.rank == processes.count - 1 else whole[:-1]
