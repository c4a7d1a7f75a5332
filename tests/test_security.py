"""Files execute nothing: what SECURITY.md says of NumPy's, which can hold pickles."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.errors import GodwitError

REPOSITORY = Path(__file__).parents[1]


class _Poison:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A file of NumPy's that executes something when it is unpickled."""
    array = np.empty((1, 2), object)
    array[:] = _Poison(tmp_path / "executed")
    np.save(tmp_path / "hostile.npy", array, allow_pickle=True)
    return tmp_path / "hostile.npy"


@pytest.mark.parametrize(
    "read",
    [
        gw.read,
        lambda path: gw.filter(path, lambda x: x > 0),
        gw.connected_components,
    ],
)
def test_pickles_in_arrays_are_refused(hostile: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(GodwitError):
        read(hostile)
    assert not (hostile.parent / "executed").exists()
    np.load(hostile, allow_pickle=True)  # what it is worth
    assert (hostile.parent / "executed").exists()


def test_pickles_in_arrays_are_refused_by_commands(hostile: Path) -> None:
    for command in (["filter", str(hostile), "x > 0"], ["components", str(hostile)]):
        done = subprocess.run(
            [sys.executable, "-m", "godwit", *command], capture_output=True, check=False
        )
        assert done.returncode == 2
    assert not (hostile.parent / "executed").exists()


def test_the_tests_that_are_named_exist() -> None:
    text = (REPOSITORY / "SECURITY.md").read_text()
    files = {path.name: path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    everything = "".join(files.values())
    for name in set(re.findall(r"\b(test_\w+)(?!\.py)\b", text)):
        if f"{name}.py" not in files:
            assert f"def {name}(" in everything, name
