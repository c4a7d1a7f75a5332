"""What every format hands over: columns of arcs, and what the file says about the whole."""

from __future__ import annotations

from dataclasses import dataclass

from godwit.graph.readers.text import Arcs


@dataclass(frozen=True)
class ParsedGraph:
    """A graph as its file has it, before rows are made of it."""

    arcs: Arcs
    vertex_count: int
    directed: bool
    """False: each arc read is an edge, which stands in the file once."""
    id_base: int
