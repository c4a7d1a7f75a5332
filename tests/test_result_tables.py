"""Tables of results: in Arrow, pandas and notebooks."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

import godwit as gw

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
    "components": lambda: gw.connected_components(GRAPH),
    "run": lambda: gw.run(LEVELS, GRAPH, {NAMES[0]: 0}),
    "steps": lambda: STEPS.run(GRAPH),
}


class _Cells(HTMLParser):
    """Texts of cells; a tag that no table has is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.inside = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {"div", "code", "table", "thead", "tbody", "tr", "th", "td"}, tag
        if tag in ("td", "th"):
            self.cells.append("")
        self.inside = tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


@pytest.mark.parametrize("name", RESULTS)
def test_tables_agree(name: str) -> None:
    result = RESULTS[name]()
    table = result.to_arrow()
    frame = result.to_frame()
    assert list(frame.columns) == table.column_names
    assert len(frame) == table.num_rows > 0
    cells = _Cells(result._repr_html_()).cells
    width = len(table.column_names) - ("predecessor" in table.column_names)
    assert cells[:width] == table.column_names[:width]
    rows = [cells[begin : begin + width] for begin in range(width, len(cells), width)]
    assert len(rows) == min(5, table.num_rows)
    by_vertex = {
        tuple(_text(value) for value in list(row.values())[:width]) for row in table.to_pylist()
    }
    assert {tuple(row) for row in rows} <= by_vertex


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def test_scores_show_the_highest() -> None:
    ranks = gw.pagerank(GRAPH)
    cells = _Cells(ranks._repr_html_()).cells[2:]
    assert cells[::2] == [name for name, _ in ranks.highest(5)]


def test_empty_results() -> None:
    empty = gw.Graph.from_edges([], [])
    for result in (gw.pagerank(empty), gw.connected_components(empty), gw.hits(empty)):
        assert len(result.to_frame()) == 0
        assert "<td>" not in result._repr_html_()
