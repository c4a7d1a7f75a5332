"""Files that are no graphs, or of formats that Godwit does not read: recognized, to say what they are.

Some would pass for edge lists: text of two words a line. They are refused before any format is tried.
"""

from __future__ import annotations

import re

from godwit.errors import FormatError
from godwit.io.format import Head

_BY_NETWORKX = "networkx.read_{0} reads it, godwit.Graph.from_networkx makes a graph of that"

_KINDS: dict[bytes, str] = {
    rb"\x93NUMPY": (
        "this is an array of NumPy's, not a graph: godwit.connected_components_of_edges takes edges "
        "from files called .npy, godwit.Graph.from_edges makes a graph of its columns"
    ),
    rb"\xff\xfe|\xfe\xff": "this is text in UTF-16: save it as UTF-8",
    rb"PK\x03\x04": (
        "this is a ZIP archive (.zip, .npz, .xlsx): unpack it, or export its table as CSV; "
        "scipy.sparse.load_npz and godwit.Graph.from_scipy read a matrix of SciPy"
    ),
    rb"(?s).{257}ustar": "this is a tar archive: unpack it first",
    rb"ARROW1\0\0": (
        "this is a table of Arrow (Feather): pyarrow.feather.read_table reads it, "
        "godwit.Graph.from_table makes a graph of that"
    ),
    rb"SQLite format 3\0": (
        "this is a database: pandas.read_sql reads a table of it, godwit.Graph.from_table makes a graph "
        "of that"
    ),
    rb"\x89HDF\r\n\x1a\n": (
        "this is HDF5: godwit.Graph.from_scipy makes a graph of a matrix, such as "
        "anndata.read_h5ad(path).obsp['connectivities'] of a file that Scanpy wrote"
    ),
    rb"\x80[\x02-\x05]": (
        "this is a pickle of Python's: pickle.load or pandas.read_pickle loads what was saved, and "
        "godwit.Graph.from_networkx, from_table and others make a graph of that"
    ),
    rb"%PDF-": "this is a PDF document",
    rb"version https://git-lfs\.": (
        "this is a pointer to a file in Git LFS, not the file: git lfs pull fetches it"
    ),
    rb"(?i)\s*(<!doctype html|<html)": (
        "this is an HTML page, perhaps in place of a file that was not found: download it again"
    ),
    rb"(?s)\s*(<\?xml.*?)?<gexf": f"this is GEXF: {_BY_NETWORKX.format('gexf')}",
    rb"\s*(#[^\n]*\n\s*|Creator[^\n]*\n\s*)*graph\s*\[": (
        f"this is GML: {_BY_NETWORKX.format('gml')}"
    ),
    rb"(?i)\s*\*(vertices|network)\b": f"this is of Pajek's format: {_BY_NETWORKX.format('pajek')}",
    rb"\s*(strict\s+)?(di)?graph\b[^\n{]*\{": (
        "this is DOT, of Graphviz: networkx.nx_pydot.read_dot reads it, godwit.Graph.from_networkx makes "
        "a graph of that"
    ),
    rb"\s*(#[^\n]*\n\s*)*[^\s#]+[ \t,;]+\S+[ \t,;]+\{[^\n]*\}[ \t\r]*(\n|\Z)": (
        "this is an edge list of NetworkX with attributes: networkx.read_edgelist reads it, "
        "godwit.Graph.from_networkx makes a graph of that; networkx.write_edgelist writes none with "
        'data=False, and weights alone with data=["weight"]'
    ),
    rb"\s*(\{\s*[\"}]|\[\s*[\[{])": (
        "this is JSON: networkx.node_link_graph makes a graph of what json.load returns, if NetworkX "
        "wrote it; of a list of records pandas.read_json makes a table for godwit.Graph.from_table"
    ),
}
"""What a file is and what to do, by a pattern of its first bytes."""


def refuse_foreign(head: Head) -> None:
    """Raise FormatError if a file that begins like this is certainly of a kind that is not read."""
    begin = head.content.removeprefix(b"\xef\xbb\xbf")
    for pattern, problem in _KINDS.items():
        if re.match(pattern, begin):
            raise FormatError(head.path, problem)
