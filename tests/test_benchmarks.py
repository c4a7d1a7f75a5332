"""The command lines of the benchmarks: what is not there is refused before anything is measured."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from godwit.backends.cuda import driver


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")


def parsed(monkeypatch: pytest.MonkeyPatch, *line: str) -> Any:
    """What gpu_steps.py makes of its command line."""
    monkeypatch.setattr(sys, "argv", ["gpu_steps.py", *line])
    return import_module("gpu_steps").parsed()


class TestGpuSteps:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (["--only", ""], "--only takes overhead, .*, not ''"),
            (["--only", "bfs,none"], "--only takes overhead, .*, not none"),
            (["--graphs", "none"], "--graphs takes path, .*, not none"),
            (["--tiny", "--devices", "x"], "--devices takes numbers of GPUs, .*, not 'x'"),
            (["--devices", "1,"], "--devices takes numbers of GPUs, .*, not '1,'"),
        ],
    )
    def test_wrong_arguments(
        self, line: list[str], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(SystemExit, match=words):
            parsed(monkeypatch, *line)

    def test_on_the_cpu_if_nobody_named_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 0)
        monkeypatch.setattr(driver, "why_not", lambda: "this is a test")
        assert parsed(monkeypatch, "--tiny", "--only", "bfs,").devices == ["cpu"]
        for line in ([], ["--tiny", "--devices", "2,0+0"]):
            with pytest.raises(SystemExit, match="no GPU: this is a test"):
                parsed(monkeypatch, *line)

    def test_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 2)
        found = parsed(monkeypatch, "--only", "bfs")
        assert found.devices == ["1", "2"]
        assert found.only == ["bfs"]
        assert "rmat22" in found.graphs
        assert parsed(monkeypatch, "--devices", "0+0+1,4").devices == ["0+0+1"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--only", "none"], "invalid choice: '?none"),
        (["--runs", "0"], "must be at least 1, got 0"),
        (["--runs", "many"], "invalid positive value"),
    ],
)
def test_wrong_arguments_of_benchmarks_beside_peers(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        import_module("peers").parser("What it is.", runs=3).parse_args(line)
    assert re.search(words, capsys.readouterr().err)
