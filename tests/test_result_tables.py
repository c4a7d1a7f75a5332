"""Tables of results: in Arrow, pandas and notebooks."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given

import godwit as gw
from graphs import graphs

NAMES = ["<b>Ulm</b>", "Bonn & Köln", "Jena", "Kiel", "Rom", "Bari", "Prag"]
GRAPH = gw.Graph.from_edges(
    [0, 1, 2, 3, 4, 1], [1, 2, 3, 4, 0, 4], [1, 2, 3, 4, 5, 6], ids=NAMES, vertex_count=7
)
LEVELS = gw.VertexProgram(
    name="levels", dtype="int64", initial=2**40, message=lambda value: value + 1, combine="min"
)
STEPS = gw.StepProgram(
    name="squares",
    fields={"square": ("int64", 0), "half": ("float64", 0)},
    numbers={},
    steps=[
        gw.frontier.compute("square", lambda vertex: vertex * vertex),
        gw.frontier.compute("half", lambda vertex: vertex / 2),
    ],
)
RESULTS: dict[str, Any] = {
    "sssp": lambda: gw.sssp(GRAPH, NAMES[0]),
    "distances": lambda: gw.distances(GRAPH, NAMES[:2]),
    "pagerank": lambda: gw.pagerank(GRAPH),
    "betweenness": lambda: gw.betweenness_centrality(GRAPH),
    "closeness": lambda: gw.closeness_centrality(GRAPH, NAMES[:3]),
    "eccentricity": lambda: gw.eccentricity(GRAPH),
    "hits": lambda: gw.hits(GRAPH),
    "katz": lambda: gw.katz_centrality(GRAPH, weighted=False),
    "core": lambda: gw.core_number(GRAPH),
    "truss": lambda: gw.truss_number(GRAPH),
    "set": lambda: gw.maximal_independent_set(GRAPH),
    "colouring": lambda: gw.greedy_color(GRAPH),
    "components": lambda: gw.connected_components(GRAPH),
    "spanning forest": lambda: gw.minimum_spanning_forest(GRAPH.symmetrize()),
    "communities": lambda: gw.label_propagation(GRAPH, variant="cdlp"),
    "run": lambda: gw.run(LEVELS, GRAPH, {NAMES[0]: 0}),
    "steps": lambda: STEPS.run(GRAPH),
}


class _Cells(HTMLParser):
    """Texts of cells; a tag that no table has, or that is not closed, is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open
        assert "color:" not in html, "a notebook's theme may be light or dark"

    @property
    def cells(self) -> list[str]:
        return [cell for row in self.rows for cell in row]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {"div", "code", "table", "thead", "tbody", "tr", "th", "td"}, tag
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.mark.parametrize("name", RESULTS)
def test_tables_agree(name: str) -> None:
    result = RESULTS[name]()
    table = result.to_arrow()
    frame = result.to_frame()
    assert list(frame.columns) == table.column_names
    assert len(frame) == table.num_rows > 0
    names = [name for name in table.column_names if name != "predecessor"]
    head, *rows = _Cells(result._repr_html_()).rows
    assert head == names
    if table.num_rows > 5:
        assert rows.pop() == ["…"] * len(names)
    assert len(rows) == min(5, table.num_rows)
    values = [[row[name] for name in names] for row in table.to_pylist()]
    for row in rows:
        assert any(all(map(_shows, row, expected)) for expected in values)


def _shows(text: str, value: Any) -> bool:
    """Return whether a cell has a value; floats have six digits."""
    if isinstance(value, float):
        return math.isclose(float(text or "nan"), value, rel_tol=1e-5)
    return text == ("" if value is None else str(value))


def test_scores_show_the_highest() -> None:
    ranks = gw.pagerank(GRAPH)
    cells = _Cells(ranks._repr_html_()).cells[2:-2]
    assert cells[::2] == [name for name, _ in ranks.highest(5)]
    decimals = {len(rank.partition(".")[2]) for rank in cells[1::2]}
    assert len(decimals) == 1, "numbers of a column are aligned"


def test_empty_results() -> None:
    empty = gw.Graph.from_edges([], [])
    for result in (gw.pagerank(empty), gw.connected_components(empty), gw.hits(empty)):
        assert len(result.to_frame()) == 0
        assert "<td" not in result._repr_html_()


@given(graph=graphs())
def test_graphs_show_what_they_are(graph: gw.Graph) -> None:
    facts = dict(_Cells(graph._repr_html_()).rows)
    assert facts["vertices"] == f"{graph.vertex_count:,}"
    assert facts["arcs"].startswith(f"{graph.arc_count:,}, ")
    assert facts["directed"].startswith("yes" if graph.directed else "no")
    if graph.weights is None or not graph.arc_count:
        assert facts["weights"] == ("none" if graph.weights is None else str(graph.weights.dtype))
        return
    dtype, low, _, high = facts["weights"].split()
    assert dtype == f"{graph.weights.dtype},"
    assert math.isclose(float(low.replace(",", "")), graph.weights.min(), rel_tol=1e-5)
    assert math.isclose(float(high.replace(",", "")), graph.weights.max(), rel_tol=1e-5)


def test_graphs_show_ids_and_attributes() -> None:
    graph = GRAPH.with_vertex_data({"<i>people</i>": range(7), "country": [None] * 7})
    facts = dict(_Cells(graph._repr_html_()).rows)
    assert facts["ids"] == "text, '<b>Ulm</b>' to 'Prag'"
    assert facts["vertex_data"] == "<i>people</i>, country"
    assert "edge_data" not in facts


@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]])
def test_statistics_show_what_happened(devices: Any) -> None:
    statistics = gw.sssp(GRAPH, NAMES[0], devices=devices).statistics
    html = statistics._repr_html_()
    facts = {name: values for name, *values in _Cells(html).rows}
    assert facts["devices"] == list(statistics.devices)
    assert facts["solver"] == [statistics.solver]
    assert facts["arcs_relaxed"] == [f"{count:,}" for count in statistics.arcs_relaxed]
    assert {f"seconds: {phase}" for phase in statistics.seconds} <= set(facts)
    assert "growths" not in facts, "it is 0"
