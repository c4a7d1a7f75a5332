"""Named graphs from their official homes: fetched once, kept in the cache, checked, read.

``catalog`` says what there is and where, ``fetching`` brings a file into the cache, by way of
``archives`` if it is wrapped in one, and ``records`` knows what it was made of; the formats do the
rest. Nothing is fetched but by :func:`dataset`.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from godwit.io.datasets.catalog import PREFIX, DataSet, catalog, named

if TYPE_CHECKING:
    from godwit.graph.arcs import Progress
    from godwit.graph.csr import Graph

__all__ = ["DataSet", "dataset", "datasets", "is_dataset"]


def dataset(name: str, *, progress: Progress | None = None, **options: Any) -> Graph:
    """The graph of this name; fetched from its home the first time, and read from the cache later.

    :param name: of :func:`datasets`, in capital or small letters; or ``GROUP/NAME`` for any matrix of
        the SuiteSparse collection. ``dataset:`` before it, as on the command line, is no harm
    :param progress: called now and then from the calling thread with (bytes done, bytes in all,
        phase); the phases are "downloading", "unpacking", "checking" and those of :func:`godwit.read`
    :param options: keyword arguments of :func:`godwit.read`, such as ``directed=False``
    :raises InputError: there is no such data set; names those that are called alike
    :raises FileError: it cannot be fetched or kept, or is no longer what was fetched
    :raises FormatError: what was fetched cannot be read as a graph
    :raises GraphTooLargeError: before more is allocated than there is memory
    """
    from godwit.io.datasets.fetching import fetch
    from godwit.io.graph_files import read

    found = named(name)
    for option in options:
        if option not in signature(read).parameters or option == "path":
            raise TypeError(f"dataset() got an unexpected keyword argument {option!r}")
    return read(fetch(found, progress), progress=progress, **options)


def datasets() -> list[DataSet]:
    """All data sets that have a name: where they come from, how large they are, who used them."""
    return list(catalog())


def is_dataset(text: str) -> bool:
    """Whether a graph on the command line is ``dataset:NAME``, and not a file."""
    return text.startswith(PREFIX)
