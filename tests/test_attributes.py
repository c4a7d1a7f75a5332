"""Attributes of vertices and edges travel with a graph, and to NetworkX and igraph and back."""

from __future__ import annotations

import datetime
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import FormatError, InputError, LostDataWarning
from graphs import arcs_of, graphs

NX_TYPES = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
VALUES = st.one_of(
    st.integers(), st.booleans(), st.floats(-9, 9), st.text(max_size=3), st.just([1, 2])
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["colour", "since", "weight", 7]), VALUES, max_size=3)


def reversal(n: int) -> Any:
    return np.arange(n)[::-1].copy()


TRANSFORMS: dict[str, Callable[[gw.Graph], gw.Graph]] = {
    "reverse": lambda graph: graph.reverse,
    "symmetrize": lambda graph: graph.symmetrize(),
    "symmetrize all": lambda graph: graph.symmetrize(merge=None),
    "without loops": lambda graph: graph.remove_self_loops(),
    "merged": lambda graph: graph.merge_parallel_arcs("max"),
    "relabel": lambda graph: graph.relabel(reversal(graph.vertex_count)),
    "subgraph": lambda graph: graph.subgraph(range(0, graph.vertex_count, 2)),
    "largest component": lambda graph: graph.largest_component(),
    "replicate": lambda graph: graph.replicate(3),
    "random weights": lambda graph: graph.with_random_weights(1, 9),
    "without weights": lambda graph: graph.without_weights(),
    "ids": lambda graph: graph.with_ids([f"v{v}" for v in range(graph.vertex_count)]),
    "pickle": lambda graph: pickle.loads(pickle.dumps(graph)),
    "data": lambda graph: graph.with_vertex_data({"more": np.zeros(graph.vertex_count)}),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@given(graph=graphs(min_vertices=1))
@settings(max_examples=12)
def test_transformed_graphs_keep_them(
    transform: Callable[[gw.Graph], gw.Graph], graph: gw.Graph
) -> None:
    pairs = [tuple(sorted(arc[:2])) for arc in arcs_of(graph)]
    made = transform(
        graph.with_vertex_data({"me": range(graph.vertex_count)}).with_edge_data(
            {"ends": [f"{u} {v}" for u, v in pairs]}
        )
    )
    me = made.vertex_data["me"]
    assert len(me) == made.vertex_count
    ends = [tuple(sorted((int(me[u]), int(me[v])))) for u, v, *_ in arcs_of(made)]
    assert made.edge_data["ends"].tolist() == [f"{u} {v}" for u, v in ends]
    if made.vertex_count == graph.vertex_count:
        assert sorted(me.tolist()) == list(range(graph.vertex_count))


def test_vertices_keep_theirs_when_they_move() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
    graph = graph.with_vertex_data({"name": ["Bonn", "Ulm", "Jena"]})
    for moved in (graph.relabel([2, 0, 1]), graph.subgraph(["Jena", "Bonn"])):
        assert moved.vertex_data["name"].tolist() == list(moved.ids)


@pytest.mark.parametrize("library", ["networkx", "igraph"])
@given(data=st.data())
@settings(max_examples=60)
def test_there_and_back(library: str, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(NX_TYPES))()
    for node in range(5):
        source.add_node(node, **{str(k): v for k, v in data.draw(ATTRIBUTES).items()})
    vertex = st.integers(0, 4)
    for u, v in data.draw(st.lists(st.tuples(vertex, vertex), max_size=8, unique=True)):
        if source.is_directed() or not source.has_edge(u, v):
            source.add_edge(
                u, v, **{str(k): x for k, x in data.draw(ATTRIBUTES).items() if k != "weight"}
            )
    graph = gw.Graph.from_networkx(source, weight=None)
    if library == "igraph":
        pytest.importorskip("igraph")
        graph = gw.Graph.from_igraph(graph.to_igraph(), weight=None)
    back = graph.to_networkx()
    assert dict(back.nodes(data=True)) == dict(source.nodes(data=True))
    expected = {tuple(edge[:2]): edge[2] for edge in source.edges(data=True)}
    found = {tuple(edge[:2]): edge[2] for edge in back.edges(data=True)}
    if not source.is_directed():
        expected = {tuple(sorted(edge)): values for edge, values in expected.items()}
        found = {tuple(sorted(edge)): values for edge, values in found.items()}
    assert found == expected


def test_weights_and_attributes() -> None:
    source = nx.MultiGraph()
    source.add_edge("a", "b", weight=3, km=7, note="x")
    source.add_edge("a", "b", weight=2, km=9)
    graph = gw.Graph.from_networkx(source)
    assert list(graph.edge_data) == ["km", "note"]
    assert sorted(graph.to_networkx().edges(data="km")) == sorted(source.edges(data="km"))
    by_km = gw.Graph.from_networkx(source, "km")
    assert by_km.edge_data["weight"].tolist() == [3, 2, 3, 2]
    assert graph.merge_parallel_arcs("sum").edge_data["note"].tolist() == ["x", "x"]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(1, 3),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([1.5, -2.0]),
        st.sampled_from([datetime.date(2020, 1, 1), None]),
    ),
    max_size=30,
)
FIELDS = ("from", "to", "weight", "note", "km", "since")


@pytest.mark.parametrize("names", [True, False], ids=["texts", "numbers"])
@pytest.mark.parametrize("directed", [True, False])
@given(rows=ROWS)
@settings(max_examples=40)
def test_columns_of_tables_travel(directed: bool, names: bool, rows: list[Any]) -> None:
    if names:
        rows = [(f"v{u}", f"v{v}", *values) for u, v, *values in rows]
    id_type = pa.string() if names else pa.int64()
    types = [id_type, id_type, pa.int32(), pa.string(), pa.float64(), pa.date32()]
    columns = [[row[at] for row in rows] for at in range(len(FIELDS))]
    table = pa.table(dict(zip(FIELDS, map(pa.array, columns, types), strict=True)))
    graph = gw.Graph.from_table(table, directed=directed)
    expected = Counter(rows)
    if not directed:
        expected += Counter((v, u, *values) for u, v, *values in rows if u != v)
    assert _rows_of(graph) == expected
    table = graph.to_arrow()
    assert table.column_names == ["source", "target", *FIELDS[2:]]
    back = gw.Graph.from_table(table)
    assert back.directed == directed
    assert _rows_of(back) == expected
    frame = graph.without_weights().to_frame()
    assert list(frame.columns) == ["source", "target", *FIELDS[3:]]
    assert len(frame) == len(rows)
    assert sorted(frame["km"]) == sorted(row[4] for row in rows)


def _rows_of(graph: gw.Graph) -> Counter[Any]:
    ids = list(graph.ids)
    data = zip(*(graph.edge_data[name].tolist() for name in FIELDS[3:]), strict=True)
    return Counter(
        (ids[u], ids[v], int(weight), *values)
        for (u, v, weight), values in zip(arcs_of(graph), data, strict=True)
    )


def test_no_attribute_of_a_table_is_lost_or_taken_for_another_column() -> None:
    odd = {"source": [1, 2], "weight": [3, None], 7: [{1}, "x"], "length": [5, 6]}
    graph = gw.Graph.from_edges([0, 1], [1, 2]).with_edge_data(odd)
    table = graph.to_arrow()
    assert table.column_names == ["source", "target", "source_", "weight", "7", "length"]
    assert table["7"].to_pylist() == ["{1}", "x"]
    back = gw.Graph.from_table(table)
    assert not back.is_weighted
    assert back.edge_data["weight"].tolist() == [3, None]
    assert gw.Graph.from_table(table, "source", "target", "length").weights.tolist() == [5, 6]
    weighted = graph.with_weights([8, 9]).to_arrow()
    assert weighted.column_names == [
        "source",
        "target",
        "weight",
        "source_",
        "weight_",
        "7",
        "length",
    ]
    assert gw.Graph.from_table(weighted).weights.tolist() == [8, 9]
    frame = pd.DataFrame({"u": [0, 1, 2], "v": [1, 2, 0], "kind": pd.Categorical(["a", "b", "a"])})
    cut = gw.Graph.from_table(frame[frame["u"] > 0])  # its index has no name
    assert {name: values.tolist() for name, values in cut.edge_data.items()} == {"kind": ["b", "a"]}
    with pytest.raises(InputError, match="several columns are called 'b'"):
        gw.Graph.from_table(pa.table([[0], [1], [2], [3]], ["u", "v", "b", "b"]))


def test_results_become_attributes() -> None:
    graph = gw.Graph.from_networkx(nx.karate_club_graph())
    rank = gw.pagerank(graph).rank
    nodes = graph.with_vertex_data({"rank": rank}).to_networkx().nodes
    assert [nodes[v]["rank"] for v in nodes] == rank.tolist()
    assert nodes[0]["club"] == "Mr. Hi"
    assert not rank.flags.writeable or not np.shares_memory(
        graph.with_vertex_data({"rank": rank}).vertex_data["rank"], rank
    )


def test_wrong_columns() -> None:
    graph = gw.generators.path(3)
    with pytest.raises(InputError, match="column 'a' must have 3 values, got 2"):
        graph.with_vertex_data({"a": [1, 2]})
    with pytest.raises(InputError, match="column 'a' must be values, got 5"):
        graph.with_edge_data({"a": 5})
    with pytest.raises(InputError, match="mapping"):
        graph.with_edge_data([1, 2, 3, 4])
    with pytest.raises(ValueError, match="read-only"):
        graph.with_vertex_data({"a": [1, 2, 3]}).vertex_data["a"][0] = 2


@pytest.mark.parametrize("kind", [dict, pd.Series])
def test_values_by_vertex(kind: Any) -> None:
    """A pandas Series is by its index: sorted by value, it is in another order than the vertices."""
    graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"], directed=False)
    people = kind({"Jena": 110, "Ulm": 129, "Bonn": 336})
    assert graph.with_vertex_data({"people": people}).vertex_data["people"].tolist() == [
        336,
        129,
        110,
    ]
    names = kind({"Jena": "J", "Bonn": "BN", "Ulm": "UL"})
    assert list(graph.with_vertex_data({"sign": names}).vertex_data["sign"]) == ["BN", "UL", "J"]
    with pytest.raises(
        InputError, match="column 'people' must be of all vertices, and 'Ulm' has none"
    ):
        graph.with_vertex_data({"people": kind({"Jena": 110, "Bonn": 336})})
    with pytest.raises(InputError, match="Köln"):
        graph.with_vertex_data({"people": kind({"Jena": 1, "Bonn": 3, "Ulm": 2, "Köln": 4})})


def test_files_say_what_they_lack(tmp_path: Path) -> None:
    graph = gw.Graph.from_networkx(nx.karate_club_graph())
    with pytest.warns(LostDataWarning, match=r"graph.godwit does not have .*: club") as given_:
        gw.write(graph, tmp_path / "graph.godwit")
    assert given_[0].filename == __file__
    assert gw.read(tmp_path / "graph.godwit").arc_count == graph.arc_count


@given(graph=graphs(), data=st.data())
@settings(max_examples=40)
def test_graphml_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, graph: gw.Graph, data: st.DataObject
) -> None:
    n = graph.vertex_count
    if data.draw(st.booleans()):
        graph = graph.with_ids([f"<v&{v}>" for v in range(n)])
    graph = graph.with_vertex_data(
        {"note": [f"{v} ü<" for v in range(n)], "odd": np.arange(n) % 2 == 1}
    )
    path = tmp_path_factory.mktemp("graphml") / data.draw(
        st.sampled_from(["a.graphml", "a.graphml.gz"])
    )
    gw.write(graph, path)
    back = gw.read(path)
    assert back.vertex_count == n
    if graph.arc_count:
        assert back.is_weighted == graph.is_weighted
        assert sorted(arcs_of(back)) == sorted(arcs_of(graph))
        assert back.directed == graph.directed
    assert list(back.ids) == list(graph.ids)
    if n:
        assert back.vertex_data["note"].tolist() == graph.vertex_data["note"].tolist()
        assert back.vertex_data["odd"].tolist() == graph.vertex_data["odd"].tolist()


def test_what_graphml_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.graphml"
    graph = gw.generators.path(2)
    for wrong in (
        graph.with_ids(["1", "2"]),
        graph.with_ids([(1, 2), "2"]),
        graph.with_vertex_data({"list": [[1], [2]]}),
        graph.with_vertex_data({"text": ["\x01", ""]}),
    ):
        with pytest.raises(InputError, match="GraphML"):
            gw.write(wrong, path)
        assert not path.exists()
    path.write_text("<graphml><graph><node></graphml>")
    with pytest.raises(FormatError, match="malformed GraphML"):
        gw.read(path)
    path.write_text("1 2\n2 3\n")
    with pytest.raises(FormatError, match="begins with XML"):
        gw.read(path)


def test_graphml_of_which_some_edges_have_weights(tmp_path: Path) -> None:
    path = tmp_path / "a.graphml"
    nx.write_graphml(nx.DiGraph([("a", "b", {"weight": 2, "note": "x"}), ("b", "c")]), path)
    with pytest.raises(FormatError, match=r"a.graphml: edge .*'b', 'c'.*weighted=False"):
        gw.read(path)
    graph = gw.read(path, weighted=False)
    assert (graph.arc_count, graph.is_weighted, list(graph.edge_data)) == (2, False, ["note"])


@given(graph=graphs())
@settings(max_examples=40)
def test_edges_make_the_same_graph(graph: gw.Graph) -> None:
    again = gw.Graph.from_edges(
        *graph.to_edges(), vertex_count=graph.vertex_count, directed=graph.directed
    )
    assert sorted(arcs_of(again)) == sorted(arcs_of(graph))
    assert again.is_weighted == graph.is_weighted


@given(graph=graphs())
@settings(max_examples=40)
def test_networkit_and_igraph_there_and_back(graph: gw.Graph) -> None:
    for library in ("networkit", "igraph"):
        pytest.importorskip(library)
        there = graph.to_networkit() if library == "networkit" else graph.to_igraph()
        back = (
            gw.Graph.from_networkit(there)
            if library == "networkit"
            else gw.Graph.from_igraph(there)
        )
        assert back.directed == graph.directed
        assert back.vertex_count == graph.vertex_count
        assert sorted(arcs_of(back)) == sorted(arcs_of(graph))
