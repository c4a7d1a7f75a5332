"""The names of file formats, and how files in them end: what the command line's help needs to know."""

from __future__ import annotations

from typing import NamedTuple


class FormatName(NamedTuple):
    """Where a format is at home, and how files in it end."""

    module: str
    """In :mod:`godwit.graph.formats`."""
    endings: tuple[str, ...]
    """Of files that are written in it, without that of a compression."""


FORMATS = {
    "godwit": FormatName("native", (".godwit",)),
    "gap": FormatName("gap", (".sg", ".wsg")),
    "galois": FormatName("galois", (".vgr", ".sgr")),
    "parquet": FormatName("parquet", (".parquet",)),
    "dimacs": FormatName("dimacs", (".gr",)),
    "matrix-market": FormatName("matrix_market", (".mtx",)),
    "graphalytics": FormatName("graphalytics", (".e",)),
    "webgraph-ascii": FormatName("webgraph", (".graph-txt",)),
    "metis": FormatName("metis", (".graph",)),
    "adjacency-list": FormatName("adjacency_list", (".adj",)),
    "csv": FormatName("delimited", (".csv", ".tsv")),
    "edge-list": FormatName("edge_list", (".el", ".wel", ".txt")),
}
"""The formats, in the order in which they are tried on a file: those that are certain come first."""


def format_line() -> str:
    """All formats and their endings."""
    return ", ".join(f"{name} ({', '.join(one.endings)})" for name, one in FORMATS.items())
