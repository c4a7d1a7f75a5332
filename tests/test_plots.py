"""Plots of results and graphs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import godwit as gw
from godwit.cli.application import app
from godwit.errors import InputError
from test_result_tables import RESULTS

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def figures() -> Iterator[Any]:
    """No window, and no figure that stays."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, figures: Any) -> None:
    result = RESULTS[name]()
    axes = result.plot()
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert axes.has_data()
    _, given = figures.subplots()
    assert result.plot(given) is given
    axes.figure.canvas.draw()


def test_bars_are_counts() -> None:
    graph = gw.generators.road(12, seed=1)
    result = gw.bfs(graph, 0)
    bars = result.plot().patches
    assert sum(bar.get_height() for bar in bars) == np.count_nonzero(result.reached)
    (stairs,) = gw.sssp(graph.with_random_weights(1, 999), 0).plot().patches
    assert stairs.get_data().values.sum() == np.count_nonzero(result.reached)
    coloring = gw.greedy_color(graph)
    assert [bar.get_height() for bar in coloring.plot().patches] == coloring.sizes.tolist()


def test_tails_begin_with_the_share_of_positive_values() -> None:
    graph = gw.generators.star(50)
    (line,) = gw.betweenness_centrality(graph).plot().lines
    assert line.get_ydata().tolist() == [1 / 50]
    (line,) = gw.pagerank(gw.generators.rmat(13, 4, seed=1)).plot().lines
    share = line.get_ydata()
    assert len(share) <= 2000
    assert share[-1] == 1
    assert (np.diff(share) > 0).all()
    assert (np.diff(line.get_xdata()) < 0).all()  # a point for each value


def test_degrees() -> None:
    graph = gw.Graph.from_edges([0, 0, 1], [1, 2, 2], vertex_count=9)
    (line,) = graph.plot_degrees().lines
    assert dict(zip(*line.get_data(), strict=True)) == {0: 7, 1: 1, 2: 1}


def test_scales_are_logarithmic_from_a_decade_on() -> None:
    path, star = gw.generators.path(4), gw.generators.star(50)
    for axes, scales in (
        (path.plot_degrees(), ("linear", "linear")),
        (star.plot_degrees(), ("log", "log")),
        (gw.pagerank(path).plot(), ("linear", "linear")),
        (gw.pagerank(star).plot(), ("log", "log")),
        (
            gw.Graph.from_edges([0] * 10 + [1], [*range(1, 11), 2]).plot_degrees(),
            ("symlog", "linear"),
        ),
    ):
        assert (axes.get_xscale(), axes.get_yscale()) == scales


@pytest.mark.parametrize("directed", [True, False])
def test_drawings(directed: bool) -> None:
    ids = ["Ulm", "Bonn", "Jena", "Kiel"]
    graph = gw.Graph.from_edges(
        [0, 1, 2, 2], [1, 2, 0, 2], ids=ids, directed=directed, vertex_count=4
    )
    axes = graph.plot(np.arange(4), label="number")
    assert [text.get_text() for text in axes.texts] == ids
    drawn = max(axes.collections, key=lambda shown: len(shown.get_offsets()))
    again = max(graph.plot().collections, key=lambda shown: len(shown.get_offsets()))
    assert np.array_equal(drawn.get_offsets(), again.get_offsets())
    axes.figure.canvas.draw()


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match=r"10,000 vertices.*neighborhood.*plot_degrees"):
        gw.generators.path(10_000).plot()
    for values in ([1, 2], ["a", "b", "c"], np.ones((3, 3)), [[1], [2, 3], 4]):
        with pytest.raises(InputError, match="a number for each of 3 vertices"):
            gw.generators.path(3).plot(values)
    with pytest.raises(InputError, match="ax must be axes"):
        gw.bfs(gw.generators.path(3), 0).plot("x")  # type: ignore[arg-type]
    gw.Graph.from_edges([], []).plot()
    gw.pagerank(gw.Graph.from_edges([], [])).plot()


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="pip install matplotlib"):
        gw.bfs(gw.generators.path(3), 0).plot()
    result = CliRunner().invoke(
        app, ["bfs", "path:9", "-s", "0", "--plot", str(tmp_path / "x.png")]
    )
    assert result.exit_code == 2
    assert "pip install matplotlib" in result.output


@pytest.mark.parametrize(
    "command",
    ["info road:9", "bfs road:9 -s 0", "components road:9", "pagerank road:9", "hits road:9"],
)
def test_commands(command: str, tmp_path: Path) -> None:
    begins = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    for ending in begins if command.startswith("info") else [".svg"]:
        file = tmp_path / f"plot{ending}"
        result = CliRunner().invoke(app, [*command.split(), "--plot", str(file)])
        assert result.exit_code == 0, result.output
        assert file.read_bytes().startswith(begins[ending])
    result = CliRunner().invoke(app, [*command.split(), "--plot", "x.jpeg"])
    assert result.exit_code == 2
    assert "--plot must end in .pdf, .png or .svg, got 'x.jpeg'" in result.output


def test_colors_by_vertex() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"], directed=False)
    for people in ({"Jena": 110, "Ulm": 129, "Bonn": 336}, {"Bonn": 336, "Jena": 110, "Ulm": 129}):
        for values in (people, pd.Series(people)):
            shown = [dots.get_array() for dots in graph.plot(values).collections]
            assert [336, 129, 110] in [array.tolist() for array in shown if array is not None]


def test_counts_have_no_fractions() -> None:
    parts = gw.Graph.from_edges([0, 1, 3], [1, 2, 4], directed=False)
    plots = [
        gw.connected_components(parts).plot(), parts.plot_degrees(), gw.bfs(parts, 0).plot(),
        gw.core_number(gw.generators.path(4)).plot(),
    ]  # fmt: skip
    for axes in plots:
        axes.figure.canvas.draw()
        assert all(tick == round(tick) for tick in axes.get_xticks())
    for axes in plots[:3]:
        assert all(tick == round(tick) for tick in axes.get_yticks())
        assert axes.get_ylim()[0] == 0


def test_tails_of_equal_values_are_one_point() -> None:
    (line,) = gw.core_number(gw.generators.path(4)).plot().lines
    assert [line.get_xdata().tolist(), line.get_ydata().tolist()] == [[1], [1]]
