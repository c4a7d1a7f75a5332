"""The names of file formats, and how files in them end: what the command line's help needs to know."""

from __future__ import annotations

from typing import NamedTuple


class FormatName(NamedTuple):
    """Where a format is at home, and how files in it end."""

    module: str
    """In :mod:`godwit.io`."""
    endings: tuple[str, ...]
    """Of files that are written in it, without that of a compression."""
    certain: bool = False
    """Whether no file of another format is taken for one."""
    header: str = ""
    """How each file begins that is called so; nothing if such files need not begin in any way."""


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
    "graphalytics": FormatName("text.graphalytics", (".e",)),
    "webgraph-ascii": FormatName(
        "text.webgraph", (".graph-txt",), header="a line with the number of vertices"
    ),
    "metis": FormatName("text.metis", (".graph",), header="a line VERTICES EDGES [FMT [NCON]]"),
    "adjacency-list": FormatName("text.adjacency_list", (".adj",)),
    "csv": FormatName("text.delimited", (".csv", ".tsv")),
    "edge-list": FormatName("text.edge_list", (".el", ".wel", ".txt")),
}
"""The formats, in the order in which they are tried on a file: those that are certain come first. Among
the others, the one that the file's name speaks for."""


def format_line() -> str:
    """All formats and their endings."""
    return ", ".join(f"{name} ({', '.join(one.endings)})" for name, one in FORMATS.items())
