"""benchmarks/links.py on CPU endpoints: it runs, and what it says adds up."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import pytest


def run(monkeypatch: pytest.MonkeyPatch, *line: str) -> None:
    monkeypatch.setattr(sys, "argv", ["links.py", *line])
    import_module("links").main()


def test_a_small_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "links.json"
    line = ["--devices", "cpu:0,cpu:1", "--messages", "20", "--megabytes", "1", "--json", str(path)]
    run(monkeypatch, *line)
    found = json.loads(path.read_text())
    assert found["devices"] == ["cpu:0", "cpu:1"]
    small = [row for row in found["rows"] if row["section"] == "small"]
    assert [row["what"] for row in small] == ["link", "router"]
    assert all(row["us_a_message"] > 0 and row["us_a_round_trip"] > 0 for row in small)
    sizes = [row["bytes"] for row in found["rows"] if row["section"] == "collectives"]
    assert sizes == [4096] * 3 + [65536] * 3 + [1 << 20] * 3
    printed = capsys.readouterr().out
    assert "# collectives\nwhat | bytes | links_us" in printed


def test_unknown_sections_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "--devices", "cpu:0,cpu:1", "--only", "none")
    assert "--only takes costs, small, routers, copies, collectives" in capsys.readouterr().err
