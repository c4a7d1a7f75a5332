"""``godwit filter`` answers what gw.filter answers; whatever goes wrong is one line, and leaves no file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from godwit.algorithms.filtering.predicate import as_predicate
from godwit.cli.application import app
from godwit.cli.filter_array import parse_predicate
from godwit.errors import GodwitError, InputError
from godwit.runtime.constants import with_exact_constants

VALUES = np.random.default_rng(3).random(10_000)
VALUES[::10] = np.nan


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "values.npy", VALUES)
    return tmp_path / "values.npy"


def run(*arguments: object, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["filter", *map(str, arguments)])
    assert result.exit_code == status, result.output
    assert len(result.stderr.splitlines()) == (status != 0)
    return result


@pytest.mark.parametrize("devices", ["cpu", "cpu:0,cpu:1"])
@pytest.mark.parametrize("predicate", ["x > 0.5", "lambda y: y > 0.5"])
def test_what_is_kept_is_written(path: Path, devices: str, predicate: str) -> None:
    kept = path.with_name("kept.npy")
    result = run(path, predicate, "--devices", devices, "-o", kept)
    assert np.array_equal(np.load(kept), VALUES[VALUES > 0.5])
    assert f"{np.count_nonzero(VALUES > 0.5):,}" in result.stdout


@pytest.mark.parametrize("predicate", [["--", "-x > -0.5"], ["(-x) > -0.5"]])
def test_a_predicate_may_begin_with_a_minus(path: Path, predicate: list[str]) -> None:
    kept = path.with_name("kept.npy")
    run(path, "--devices", "cpu", "-o", kept, *predicate)
    assert np.array_equal(np.load(kept), VALUES[VALUES < 0.5])
    assert "No such option: -x (see 'godwit filter --help')" in run(path, "-x > 0", status=2).stderr
    assert "behind --" in " ".join(run("--help").stdout.replace("│", " ").split())


def test_json(path: Path) -> None:
    found = json.loads(run(path, "math.isnan(x)", "--devices", "cpu:0", "--json").stdout)
    assert found["kept"] == 1000
    assert found["array"] == {
        "name": str(path), "items": 10_000, "dtype": "float64", "bytes": 80_000,
    }  # fmt: skip
    assert found["devices"] == ["cpu:0"]
    assert found["output"] is None
    assert list(found["seconds"]) == ["compile", "run"]
    assert found["predicate"] == "math.isnan(x)"


def test_without_order(path: Path) -> None:
    kept = path.with_name("kept.npy")
    run(path, "x < 0.25", "--unordered", "--devices", "cpu:0,cpu:1", "-q", "-o", kept)
    assert np.array_equal(np.sort(np.load(kept)), np.sort(VALUES[VALUES < 0.25]))


def test_its_timeline(path: Path) -> None:
    trace, kept = path.with_name("run.json"), path.with_name("kept.npy")
    run(path, "x > 0.5", "--devices", "cpu", "-q", "-o", kept, "--trace", trace)
    spans = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert {"godwit filter", "compile", "run", "write", "keep_chunks"} <= set(spans)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x >",), r"PREDICATE must be an expression of x such as 'x > 0.5', got 'x >' (inv"),
        (("",), "PREDICATE must be an expression of x"),
        (("y > 5",), "'y' is unknown to it"),
        (("__import__('os').remove('values.npy')",), "'__import__' is unknown to it"),
        (("x",), "(PREDICATE, line 1) returns float64"),
        (("lambda x, y: x > y",), "must take one item"),
        (("x.nonsense",), "cannot compile 'predicate' (PREDICATE, line 1): Unknown attribute"),
        (("x > 0", "--devices", "tpu"), "there is no device 'tpu'"),
        (("x > 0", "--timeout", "-1"), "timeout_s must be positive"),
        (("x > 0", "-o", "kept.csv"), "--output must end in .npy, got 'kept.csv'"),
        (("x > 0", "-o", "nowhere/kept.npy"), "cannot write nowhere/kept.npy"),
        (("x > 0", "-o", "values.npy"), "would overwrite what is read"),
        (("x > 0", "--trace", "values.npy"), "would overwrite what is read"),
        (("x > 0", "-o", "a.npy", "--trace", "./a.npy"), "are the same file"),
    ],
)
def test_what_cannot_be(
    arguments: tuple[str, ...], said: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    assert said in run("values.npy", *arguments, status=2).stderr
    assert [one.name for one in path.parent.iterdir()] == ["values.npy"]
    assert np.array_equal(np.load(path), VALUES, equal_nan=True)


def test_files_that_are_none(tmp_path: Path) -> None:
    assert "No such file" in run(tmp_path / "nowhere.npy", "x > 0", status=2).stderr
    (tmp_path / "text.npy").write_text("1 2 3")
    assert "not an array in NumPy's format" in run(tmp_path / "text.npy", "x > 0", status=2).stderr
    np.save(tmp_path / "square.npy", np.eye(3))
    assert (
        "one dimension, got shape (3, 3)" in run(tmp_path / "square.npy", "x > 0", status=2).stderr
    )


def test_a_predicate_calls_nothing_when_it_is_read() -> None:
    """Not even by a default value, which Python evaluates where a lambda stands."""
    with pytest.raises(InputError, match="must be an expression of x"):
        parse_predicate("lambda x, y=(lambda: 1 / 0)(): x > y")
    assert parse_predicate("abs(x) > math.pi")(-4.0)


FORMS = [
    "await x", "yield x", "(yield x)", "(yield from x)", "(y := x)", "[x]", "{x}", "{x: x}",
    "[y for y in (x,)]", "f'{x}'", "'x' < x", "b'x' < x", "x[0]", "x[1:]", "*x", "**x", "x is 1",
    "1 is not x", "1j < x", "...", "None", "lambda x: lambda y: y", "lambda *x: x", "lambda **x: x",
    "lambda: x", "x = 1", "x; x", "import os", "x\0", "\udcff", "x > 0\nx", "def f(): pass",
    "-" * 20_000 + "x", "(" * 500 + "x" + ")" * 500, "9" * 5000 + " > x", "x > 0" + " or x > 0" * 5_000,
    "not " * 150 + "x", "x if " * 200, "__builtins__", "().__class__.__bases__", "print(x)", "open('x')",
    "math.__loader__.load_module('os').system('true')",
]  # fmt: skip
SEEDS = [
    "await x", "f'{x}'", "x > 0.5", "-x < 2**7 - 1", "0.2 < x or math.isnan(x)", "lambda y: y % 2 == 1",
]  # fmt: skip
PIECES = [
    "x", "0.5", "2**70", "9**9**9", "1//0", "(", ")", ",", "and", "lambda y:", " ", "\n", "\\", "'", "[",
    "math.", "abs(", "-", "~", "<<", "<", "==", "in", "is", "await ", ":=", "\0", "\ud800", "\u0663",
]  # fmt: skip


def mutated(random: Random) -> str:
    text = random.choice(SEEDS)
    for _ in range(random.randrange(1, 4)):
        begin = random.randrange(len(text) + 1)
        end = begin + random.choice([0, 0, 1, 3])
        text = text[:begin] + random.choice(PIECES) * random.choice([1, 1, 2]) + text[end:]
    return text


def test_mutated_predicates_are_functions_or_refused_in_a_sentence(path: Path) -> None:
    random = Random(5)
    refused = []
    for text in [*(mutated(random) for _ in range(1000)), *FORMS]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                predicate = as_predicate(parse_predicate(text))
                with_exact_constants(predicate, np.dtype(np.float64))
            assert text not in FORMS
        except GodwitError as error:
            refused.append(str(error))
    assert len(FORMS) + 500 < len(refused) < len(FORMS) + 990
    assert all(len(message.splitlines()) == 1 for message in refused)
    for text in ("await x", "x < 2**70", "9**9**9 > x", "x // 0 > 0", "\udcff"):
        run(path, "--devices", "cpu:0", "--", text, status=2)
