"""GraphML: XML with attributes of nodes and edges, read and written by NetworkX.

Nodes are named by texts, or by integers where all names are; the attribute ``weight`` of edges becomes the
weights, others are kept (``Graph.vertex_data``, ``Graph.edge_data``). It takes the time and memory of
NetworkX's graphs.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any, BinaryIO

from godwit.errors import FormatError, InputError
from godwit.graph.arcs import ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.interchange.libraries import DEFAULT_WEIGHT
from godwit.io.format import Format, Head
from godwit.io.source import Source

_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")
_NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def recognize(head: Head) -> bool:
    """Return True if the file begins with XML whose root is GraphML's."""
    return head.is_text and re.search(rb"<(\w+:)?graphml[\s>]", head.content[:4096]) is not None


def read(source: Source, options: ReadOptions) -> Graph:
    """Return the graph in a file, without weights if ``options.weighted`` is False.

    :raises InputError: NetworkX is not installed
    """
    nx = _networkx()
    try:
        found = nx.read_graphml(BytesIO(source.content().tobytes()))
    except MemoryError:
        raise
    except Exception as error:  # of the parser of XML, or of a value
        raise FormatError(source.path, f"malformed GraphML: {error}") from error
    if _are_integers(found):
        found = nx.relabel_nodes(found, int)
    found.graph.clear()
    if options.weighted is False:
        for *_, attributes in found.edges(data=True):
            attributes.pop(DEFAULT_WEIGHT, None)
    try:
        return Graph.from_networkx(found)
    except InputError as error:
        raise FormatError(source.path, str(error)) from None


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a graph with its attributes.

    :raises InputError: NetworkX is not installed, or an id or a value is nothing that XML can hold
    """
    nx = _networkx()
    if graph.ids.kind == "object" or (graph.ids.kind == "text" and _are_integers(graph.ids)):
        raise InputError(
            f"GraphML has ids that are integers or other texts, and the graph has {graph.ids.described}; "
            "drop them with graph.with_ids(0)"
        )
    content = BytesIO()
    try:
        nx.write_graphml_xml(graph.to_networkx(), content)
    except (nx.NetworkXException, TypeError, ValueError) as error:
        raise InputError(f"GraphML cannot hold an attribute of the graph: {error}") from error
    if _NOT_IN_XML.search(content.getbuffer()):
        raise InputError("GraphML cannot hold control characters, which an id or a value has")
    file.write(content.getbuffer())


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise InputError("GraphML is read and written by NetworkX: pip install networkx") from None
    return networkx


def _are_integers(names: Any) -> bool:
    """Return True if all names, of which there are some, are texts of integers."""
    listed = list(names)
    return bool(listed) and all(map(_INTEGER.fullmatch, listed))


FORMAT = Format("graphml", recognize, read, write, holds_data=True)
