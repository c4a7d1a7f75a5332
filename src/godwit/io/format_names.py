"""Names and file endings of the formats, without their code: the command line's help loads only this."""

from __future__ import annotations

from typing import NamedTuple


class FormatName(NamedTuple):
    """Module and file endings of a format.

    :ivar module: in :mod:`godwit.io`
    :ivar endings: of file names, without that of a compression
    :ivar certain: no file of another format is recognized as this one
    :ivar header: for messages: how each file with these endings begins; "" if there is no header
    """

    module: str
    endings: tuple[str, ...]
    certain: bool = False
    header: str = ""


FORMATS = {
    "godwit": FormatName(
        "binary.native", (".godwit",), certain=True, header="the bytes \\x89Godwit"
    ),
    "gap": FormatName("binary.gap", (".sg", ".wsg"), certain=True, header="GAP's binary header"),
    "galois": FormatName(
        "binary.galois", (".vgr", ".sgr"), certain=True, header="Galois' binary header"
    ),
    "parquet": FormatName("binary.parquet", (".parquet",), certain=True, header="the bytes PAR1"),
    "dimacs": FormatName("text.dimacs", (".gr",), certain=True, header="a line p sp VERTICES ARCS"),
    "matrix-market": FormatName(
        "text.matrix_market",
        (".mtx",),
        certain=True,
        header="a banner, %%MatrixMarket matrix LAYOUT FIELD SYMMETRY",
    ),
    "graphml": FormatName(
        "text.graphml", (".graphml",), certain=True, header="XML whose root is <graphml>"
    ),
    "graphalytics": FormatName("text.graphalytics", (".e",)),
    "webgraph-ascii": FormatName(
        "text.webgraph", (".graph-txt",), header="a line with the number of vertices"
    ),
    "metis": FormatName("text.metis", (".graph",), header="a line VERTICES EDGES [FMT [NCON]]"),
    "adjacency-list": FormatName("text.adjacency_list", (".adj",)),
    "csv": FormatName("text.delimited", (".csv", ".tsv")),
    "edge-list": FormatName("text.edge_list", (".el", ".wel", ".txt")),
}
"""The formats, in the order in which they are tried on a file: those that are certain come first. Of the
others, the one with the file's ending."""


def format_line() -> str:
    """Return all formats and their endings in one line."""
    return ", ".join(f"{name} ({', '.join(known.endings)})" for name, known in FORMATS.items())
