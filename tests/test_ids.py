"""Ids: what the source of a graph calls its vertices, both ways, and through what graphs become."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds

KINDS: dict[str, Any] = {
    "consecutive": 0,
    "range": 3,
    "integer": np.array([7, -2, 2**62, 0]),
    "text": ["Bremen", "Köln", "", "a b"],
    "object": [("a", 1), "a", 1, 2.5],
}


def ids_of(kind: str) -> VertexIds:
    return VertexIds(4, KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways(kind: str) -> None:
    ids = ids_of(kind)
    assert ids.kind == ("integer" if kind == "range" else kind)
    assert ids.own == (kind != "consecutive")
    assert len(ids) == 4
    listed = [ids[v] for v in range(4)]
    first = KINDS[kind]
    assert listed == (list(range(first, first + 4)) if isinstance(first, int) else list(first))
    assert [ids.position(one) for one in listed] == [0, 1, 2, 3]
    assert ids.of(np.array([2, 0])) == [listed[2], listed[0]]
    assert ids.positions(listed[::-1]).tolist() == [3, 2, 1, 0]
    assert [str(one) for one in ids.to_arrow().to_pylist()] == [str(one) for one in listed]


@pytest.mark.parametrize("kind", KINDS)
def test_as_a_collection(kind: str) -> None:
    ids = ids_of(kind)
    assert list(ids) == [ids[v] for v in range(4)] == ids.of((0, 1, 2, 3))
    assert ids[2] in ids
    assert "absent" not in ids
    for wrong in (4, -1):
        with pytest.raises(IndexError, match=r"in \[0, 4\)"):
            ids[wrong]
        with pytest.raises(IndexError, match=r"in \[0, 4\)"):
            ids.of([0, wrong])
    with pytest.raises(InputError, match="must be an integer"):
        ids["a"]  # type: ignore[index]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("absent", [99, "absent", None, 2.0, True, [1], 2**70, ("b", 2), "\ud800"])
def test_what_is_no_id_is_named(kind: str, absent: Any) -> None:
    if kind == "object" and absent is True:
        return  # equal to 1, as everywhere in Python
    message = (
        "vertex .*the graph has no ids of its own"
        if kind == "consecutive"
        else ("is not in the graph, which has .*ids of its own")
    )
    with pytest.raises(InputError, match=message):
        ids_of(kind).position(absent)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_after_pickling_and_not_to_others(kind: str) -> None:
    ids = ids_of(kind)
    assert pickle.loads(pickle.dumps(ids)) == ids
    assert [other for other in KINDS if ids_of(other) == ids] == [kind]
    assert ids != 5
    assert repr(ids).startswith("<VertexIds: ")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 1, 2], "1 occurs twice"),
        (["a", "b", "a"], "'a' occurs twice"),
        ([1, "a", 1], "1 occurs twice"),
        ([[1], [2], [3]], "must be hashable"),
        ([1, 2], "an id for each of the 3 vertices, got 2"),
        (np.zeros((3, 1), int), "one dimension"),
        (np.zeros(3), "must be integers, texts or objects"),
        (pa.array(["a", None, "b"]), "must not be null"),
        (pa.array([b"\xff", b"a", b"b"]), "must be integers or texts"),
        (pa.array([[1], [2], [3]]), "must be integers or texts"),
        (pa.array([1.5, 2.5, 3.5]), "must be integers, texts or objects"),
        (["a", None, "b"], "must not be None"),
        (VertexIds(50, 1), "an id for each of the 3 vertices, got 50"),
        ("abc", "or an id for each vertex"),
        (2.5, "or an id for each vertex"),
        (-1, "must not be negative"),
    ],
)
def test_refused(ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        VertexIds(3, ids)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (np.array([5, 6], np.uint8), "integer"),
        (np.array([5, 2**64 - 1], np.uint64), "object"),
        (np.array(["x", "y"]), "text"),
        (pa.chunked_array([["x"], ["y"]]), "text"),
        (pa.array(["x", "y"]).dictionary_encode(), "text"),
        (pa.array([1, 2], pa.int32()), "integer"),
        ([2**70, 1], "object"),
        (range(2), "consecutive"),
        (range(1, 3), "integer"),
        ({"a": 1, "b": 2}, "text"),
        ([np.int64(1), np.int64(2)], "integer"),
        ([np.str_("a"), "b"], "text"),
        (["\ud800", "b"], "object"),
    ],
)
def test_whatever_holds_ids(given: Any, kind: str) -> None:
    assert VertexIds(2, given).kind == kind


def test_unsigned_hashes_that_files_have_as_texts_are_found_as_integers() -> None:
    ids = VertexIds(2, [str(2**63 + 5), "7"])
    assert ids.position(2**63 + 5) == 0
    assert ids.positions([7, str(2**63 + 5)]).tolist() == [1, 0]


def test_objects_of_one_text_are_not_mixed_up() -> None:
    with pytest.raises(InputError, match="several ids are objects whose text is '1'"):
        VertexIds(2, [1, "1"]).to_arrow()


def test_graphs_carry_ids_along() -> None:
    graph = Graph.from_edges([0, 1, 3], [1, 2, 2], [5, 6, 7], ids=KINDS["text"])
    for made in (
        graph.reverse,
        graph.symmetrize(),
        graph.merge_parallel_arcs(),
        graph.with_random_weights(1, 2),
        graph.without_weights(),
        pickle.loads(pickle.dumps(graph)),
    ):
        assert made.ids == graph.ids
    moved = graph.relabel([3, 1, 0, 2])
    assert [moved.ids[v] for v in range(4)] == ["", "Köln", "a b", "Bremen"]
    assert graph.with_ids(0).ids.kind == "consecutive"


def test_a_component_keeps_the_ids_of_its_vertices() -> None:
    for kind, ids in KINDS.items():
        graph = Graph.from_edges([1, 3], [3, 1], ids=ids, vertex_count=4)
        component = graph.largest_component()
        assert [component.ids[v] for v in range(2)] == [graph.ids[1], graph.ids[3]], kind


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=30))
def test_integers_of_any_size(values: list[int]) -> None:
    ids = VertexIds(len(values), np.array(values, np.int64))
    for v, value in enumerate(values):
        assert ids[v] == value
        assert ids.position(value) == v


@given(st.lists(st.text(), unique=True, max_size=30))
def test_texts_of_any_kind(values: list[str]) -> None:
    values = [value for value in values if value.encode("utf-8", "ignore").decode() == value]
    ids = VertexIds(len(values), values)
    for v, value in enumerate(values):
        assert ids[v] == value
        assert ids.position(value) == v


def test_ids_of_a_mask() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 0], ids=["a", "b", "c"], vertex_count=3)
    inside = gw.connected_components(graph).label == 0
    assert graph.ids.of(inside) == ["a", "b"]
    assert graph.subgraph(graph.ids.of(inside)).vertex_count == 2
    with pytest.raises(
        InputError, match=r"graph\.ids\.of makes a list of vertices of such booleans"
    ):
        graph.subgraph(inside)
    with pytest.raises(InputError, match="booleans must be one for each of 3 vertices, got 2"):
        graph.ids.of(inside[:2])
    with pytest.raises(InputError, match=r"graph\.ids\.of takes several"):
        _ = graph.ids[inside]


@pytest.mark.parametrize(
    ("given", "meant"), [("hamburg", "Hamburg"), ("Hambrug", "Hamburg"), ("Oslo", None), ("", None)]
)
def test_a_misspelt_text_gets_a_hint(given: str, meant: str | None) -> None:
    ids = VertexIds(3, ["Bremen", "Hamburg", "Köln"])
    with pytest.raises(InputError) as caught:
        ids.position(given)
    expected = f"; did you mean {meant!r}?" if meant else "such as 'Bremen' and 'Köln'"
    assert str(caught.value).endswith(expected)
