"""Progress of runs: the numbers that functions get, and the bar that ``progress=True`` shows."""

from __future__ import annotations

import io
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit import progress as module
from godwit.errors import ConvergenceError, InputError

GRAPH = gw.generators.rmat(10, 8, seed=1)
COUNTED: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "betweenness": (300, lambda show: gw.betweenness_centrality(GRAPH, samples=300, progress=show)),
    "distances": (300, lambda show: gw.distances(GRAPH, range(300), progress=show)),
    "closeness": (1024, lambda show: gw.closeness_centrality(GRAPH, progress=show)),
    "walks": (1024 * 20, lambda show: gw.random_walks(GRAPH, range(1024), 20, progress=show)),
    "truss": (
        len(gw.truss_number(GRAPH).truss),
        lambda show: gw.truss_number(GRAPH, progress=show),
    ),
    "filter": (10**6, lambda show: gw.filter(np.arange(10**6), lambda x: x > 9, progress=show)),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "bfs": lambda show: gw.bfs(GRAPH, 0, progress=show),
    "sssp": lambda show: gw.sssp(GRAPH, 0, progress=show),
    "components": lambda show: gw.connected_components(GRAPH, progress=show),
    "samples": lambda show: gw.sample_neighbors(GRAPH, range(100), [5, 3], progress=show),
    "spanning forest": lambda show: gw.minimum_spanning_forest(GRAPH, progress=show),
    "pagerank": lambda show: gw.pagerank(GRAPH, progress=show),
    "core": lambda show: gw.core_number(GRAPH, progress=show),
    "colouring": lambda show: gw.greedy_color(GRAPH, progress=show),
    "katz": lambda show: gw.katz_centrality(GRAPH, alpha=1e-3, progress=show),
}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", COUNTED)
def test_numbers_go_up_to_the_total(name: str) -> None:
    total, ask = COUNTED[name]
    seen: list[Any] = []
    ask(seen.append)
    assert seen == sorted(seen)
    assert all(0 <= count <= total == count.total for count in seen)


@pytest.mark.parametrize("name", ["pagerank", "eigenvector"])
def test_iterations_have_residuals(name: str) -> None:
    """What is reported belongs together, although the run goes on meanwhile."""
    seen: list[Any] = []
    graph = gw.generators.road(300, seed=1)
    if name == "pagerank":
        gw.pagerank(
            graph, tolerance=1e-12, max_iterations=500, accelerated=False, progress=seen.append
        )
    else:
        with pytest.raises(ConvergenceError):
            gw.eigenvector_centrality(
                graph, tolerance=1e-300, max_iterations=500, progress=seen.append
            )
    told = [count for count in seen if count.rounds]
    assert all(count == graph.vertex_count * count.rounds for count in told)
    assert all(count.residual > 0 for count in told)


@pytest.mark.parametrize("name", [*COUNTED, *OTHERS])
def test_true_and_false(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal nothing is shown; results are the same."""
    ask = COUNTED[name][1] if name in COUNTED else OTHERS[name]
    monkeypatch.setattr(module, "_FIRST_S", 0.0)
    for show in (True, False, None):
        ask(show)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_files(tmp_path: Path) -> None:
    gw.write(GRAPH, tmp_path / "graph.mtx")
    assert gw.read(tmp_path / "graph.mtx", progress=True).arc_count == GRAPH.arc_count
    with pytest.raises(InputError, match="progress must be a function"):
        gw.read(tmp_path / "graph.mtx", progress=3)  # type: ignore[arg-type]


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "_FIRST_S", 0.0)
    monkeypatch.setattr(module, "_STEP_S", 0.0)
    with module.Bar("counting") as bar:
        for count in range(11):
            bar(module.Progress.of(count, total=10))
            time.sleep(0.02)
        bar(module.Progress.of_iterations(7, 100, 0.25))
        time.sleep(0.2)
    shown = terminal.getvalue()
    assert "counting" in shown
    assert "% " not in shown
    assert "%, about" in shown
    assert "7 iterations; residual 0.25" in shown


def test_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)
    python = types.ModuleType("IPython")
    display = types.ModuleType("IPython.display")
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    python.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda *_, **__: handle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(module, "_FIRST_S", 0.0)
    monkeypatch.setattr(module, "_STEP_S", 0.0)
    with module.Bar("<b>") as bar:
        bar(5, 10, "parsing")
    assert shown[0].startswith('&lt;b&gt; <progress value="5" max="10"></progress> parsing; 50%')
    assert shown[-1] == ""


def test_short_runs_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    gw.bfs(GRAPH, 0, progress=True)
    assert terminal.getvalue() == ""
