"""The fuzz harness finds planted faults, survives crashes and hangs, and is the same for a seed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from fuzz import __main__ as command
from fuzz import files, graphs, watch
from fuzz.report import Report


def fault(module: Any, numbers: range, seed: int = 3) -> tuple[str, str]:
    """The first failure among the cases."""
    for number in numbers:
        kind, wrong = watch.attempt(module, seed, number)
        if wrong is not None:
            return kind, wrong
    raise AssertionError(f"no case of {numbers} fails")


@pytest.fixture
def one_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of one kind, so that nothing else is compiled for."""
    variant = graphs._Variant(np.dtype("int64"), None, ("cpu",), "contiguous")
    monkeypatch.setattr(graphs, "_variant", lambda generator: variant)


@pytest.mark.usefixtures("one_variant")
@pytest.mark.parametrize("name", ["bfs", "sssp"])
def test_a_wrong_distance_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(gw, name)

    def planted(graph: gw.Graph, sources: Any, **named: Any) -> Any:
        result = right(graph, sources, **named)
        distance = result.distance.copy()
        distance[(distance > 1) & (distance < result.unreached)] -= 1
        result.__dict__["distance"] = distance
        return result

    monkeypatch.setattr(gw, name, planted)
    kind, wrong = fault(graphs, range(100))
    assert kind == name
    assert "must be at" in wrong


@pytest.mark.usefixtures("one_variant")
@pytest.mark.parametrize(
    ("name", "attribute", "kind"),
    [
        ("pagerank", "_computed", "pagerank"),
        ("connected_components", "label", "components"),
        ("betweenness_centrality", "_computed", "betweenness"),
    ],
)
def test_other_wrong_results_are_found(
    name: str, attribute: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(gw, name)

    def planted(*arguments: Any, **named: Any) -> Any:
        result = right(*arguments, **named)
        values = getattr(result, attribute).copy()
        values[len(values) // 2 :] = values[: (len(values) + 1) // 2]
        result.__dict__[attribute] = values
        return result

    monkeypatch.setattr(gw, name, planted)
    found, wrong = fault(graphs, range(300))
    assert found == kind
    assert "Verification" in wrong or "labels" in wrong


@pytest.mark.parametrize(
    "planted",
    [
        IndexError("list index out of range"),
        gw.errors.InputError("two\nlines"),
        RuntimeWarning("!"),
    ],
)
def test_a_foreign_exception_of_a_reader_is_found(
    planted: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, **options: Any) -> Any:
        raise planted

    monkeypatch.setattr(gw, "read", read)
    monkeypatch.setattr(files, "_limit_memory", lambda: None)
    _, wrong = fault(files, range(1))
    assert type(planted).__name__ in wrong


def test_a_case_is_the_same_for_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graphs.describe(5, 7) == graphs.describe(5, 7)
    assert len({graphs.describe(seed, 7) for seed in range(20)}) > 10
    seen: list[bytes] = []
    monkeypatch.setattr(gw, "read", lambda path, **options: seen.append(path.read_bytes()))
    monkeypatch.setattr(files, "_limit_memory", lambda: None)
    for _ in range(2):
        files.case(5, 7)
    assert seen[0] == seen[1]


def test_crashes_hangs_and_exceptions_are_survived_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "CASE_LIMIT_S", 6.0)
    report = watch.run_cases("planted", 3, 300.0, last=10)
    numbers = {int(failure.reproduce.rsplit(" ", 1)[1]): failure for failure in report.failures}
    assert numbers[2].message == "the process ended with status 7"
    assert numbers[4].message == f"the process ended with status -{int(signal.SIGSEGV)}"
    assert numbers[6].kind == "hang"
    assert numbers[8].message.startswith("ZeroDivisionError: seed 3")
    assert numbers[9].message.startswith("RuntimeWarning: planted")
    assert report.counts == {"sound": 5, "exception": 2}
    assert sorted(numbers) == [2, 4, 6, 8, 9]


def test_reports_count_and_show_failures_that_are_alike_once() -> None:
    report, other = Report("files"), Report("files")
    report.count("csv", 5)
    other.count("csv")
    for number in (1, 2):
        other.fail("csv", f"--case {number}", f"KeyError: {number} (x.py:3)")
    report.add(other)
    text = report.text()
    assert "files: 6 cases, 2 failures" in text
    assert text.count("FAILED") == 1
    assert "FAILED 2 times, csv: KeyError: 1" in text


def test_the_exit_status_says_whether_something_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GODWIT_DEVICES", "cpu")

    def run_cases(part: str, seed: int, seconds: float) -> Report:
        report = Report(part)
        report.count("csv")
        if seed == 1:
            report.fail("csv", "--case 0", "planted")
        return report

    monkeypatch.setattr(watch, "run_cases", run_cases)
    assert command.main(["--only", "files", "--seed", "0", "--seconds", "1"]) == 0
    assert command.main(["--only", "files", "--seed", "1", "--seconds", "1"]) == 1
    assert "fuzz: 1 cases, 1 failures" in capsys.readouterr().out
