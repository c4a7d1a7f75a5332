"""Adjacency lists: ``VERTEX NEIGHBOUR NEIGHBOUR …`` on each line.

Source: the validation graphs of LDBC Graphalytics. Ids are integers and names: the vertices are
those that occur, in ascending order. A vertex without a line of its own has no arcs out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.graph.arcs import ArcList, Block, IdTable, ReadOptions
from godwit.graph.csr import Graph, assemble
from godwit.io.format import Format, Head, require_no_weights, symmetric_graph
from godwit.io.source import Source
from godwit.io.text.line_reader import ANY_ID, LineShape, ScannedArcs, read_lines
from godwit.io.text.writing import write_rows

_LINES = LineShape("VERTEX NEIGHBOUR ... (integers that are not negative)", comments="#", many=True)


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format.

    Lines must be integers. If the name does not end with .adj, one line must have more than three (no edge
    list has), not all the same number (as tables have), and the first of each line must ascend (which
    excludes formats with a header of counts).
    """
    rows = [line.split() for line in head.lines if not line.startswith("#")]
    if not all(rows) or not all(
        word.isdecimal() and len(word) < 20 for row in rows for word in row
    ):
        return False
    if head.stem.endswith(".adj"):
        return True
    heads = [int(row[0]) for row in rows]
    lengths = set(map(len, rows))
    return (
        max(lengths, default=0) > 3 and len(lengths) > 1 and all(u < v for u, v in pairwise(heads))
    )


def read(source: Source, options: ReadOptions) -> Graph | ArcList:
    """Read arcs without weights.

    Directed; undirected if ``options.directed`` is False, and then each edge must be in the lists of
    both its ends.
    """
    text = source.text()
    arcs = read_lines(text, text.begin, _LINES, ANY_ID, options.progress)
    once, counts = np.unique(arcs.heads, return_counts=True)
    if len(once) < len(arcs.heads):
        raise text.error(f"vertex {once[np.argmax(counts > 1)]} has more than one line")
    text.release()
    names = IdTable(_distinct(once, arcs))

    def blocks() -> Iterator[Block]:
        for block in arcs.blocks():
            yield Block(names.vertices(block.sources), names.vertices(block.targets), None)

    listed = ArcList(replace(arcs, blocks=blocks), len(names.ids), directed=True, ids=names.ids)
    if options.directed is False:
        return symmetric_graph(assemble(listed, replace(options, directed=None)), text.path)
    return listed


def _distinct(heads: Array, arcs: ScannedArcs) -> Array:
    """Return all ids that occur."""
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = pa.array(heads)
    for block in arcs.blocks():
        distinct = pc.unique(pa.chunked_array([distinct, pa.array(block.targets, pa.int64())]))
    ids: Array = distinct.to_numpy(zero_copy_only=False)
    return ids


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a line for each vertex; both arcs of an undirected edge.

    :raises InputError: there are weights, or ids that are no integers or negative
    """
    require_no_weights(graph, "adjacency-list")
    ids = require_integer_ids(graph, "adjacency-list")
    if graph.vertex_count == 0:
        file.write(b"# no vertices\n")  # empty files are refused
    write_rows(graph, file, base=graph.ids.base, names=ids, headed=True)


def require_integer_ids(graph: Graph, format: str) -> Array | None:
    """Return the ids of vertices; None if they are consecutive numbers.

    :raises InputError: they are no integers, or negative
    """
    ids = graph.ids.in_file
    if not graph.ids.own:
        return None
    if ids.kind != "integer" or (len(ids) and int(ids.stored.min()) < 0):
        kind = "negative" if ids.kind == "integer" else ids.kind
        raise InputError(
            f"{format} cannot hold {kind} ids: drop them with graph.with_ids(0) "
            "(command line: --drop ids)"
        )
    stored: Array = ids.stored
    return stored


FORMAT = Format("adjacency-list", recognize, read, write, lists_arcs=True)
