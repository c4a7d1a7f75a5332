"""Named graphs from their publishers: downloaded once, kept in the cache, read.

``catalog`` lists them, ``fetching`` brings a file into the cache. Only :func:`dataset` downloads.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from godwit.io.datasets.catalog import PREFIX, DataSet, catalog, named
from godwit.public import public

if TYPE_CHECKING:
    from godwit.graph.arcs import Progress
    from godwit.graph.csr import Graph

__all__ = ["DataSet", "dataset", "datasets", "is_dataset"]


@public
def dataset(name: str, *, progress: Progress | bool | None = None, **options: Any) -> Graph:
    """Read the graph of a name; it is downloaded from its publisher the first time.

    :param name: of :func:`datasets`, in capital or small letters; or ``GROUP/NAME`` for any matrix of
        the SuiteSparse collection. It may begin with ``dataset:``, as on the command line
    :param progress: True for a bar; or a function that is called now and then from the calling thread with
        (bytes done, bytes in all, phase); the phases are "downloading", "unpacking" and those of
        :func:`godwit.read`
    :param options: keyword arguments of :func:`godwit.read`, such as ``directed=False``
    :raises InputError: there is no such data set; suggests similar names
    :raises FileError: it cannot be downloaded or kept
    :raises FormatError: the file cannot be read as a graph
    :raises GraphTooLargeError: before more is allocated than there is memory
    """
    from godwit.io.datasets.fetching import fetch
    from godwit.io.graph_files import read

    data = named(name)
    if isinstance(progress, bool):
        progress = None  # a bar is a function by now
    for option in options:
        if option not in signature(read).parameters or option == "path":
            raise TypeError(f"dataset() got an unexpected keyword argument {option!r}")
    return read(fetch(data, progress), progress=progress, **options)


def datasets() -> list[DataSet]:
    """Return all named data sets: publishers, sizes, and the papers that used them."""
    return list(catalog())


def is_dataset(text: str) -> bool:
    """Return True if a graph on the command line is ``dataset:NAME``, and not a file."""
    return text.startswith(PREFIX)
