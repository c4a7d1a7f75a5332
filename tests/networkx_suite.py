"""Plugin of pytest for NetworkX's own tests: counts those that Godwit's functions took part in.

    PYTHONPATH=tests NETWORKX_TEST_BACKEND=godwit python -m pytest -p networkx_suite --pyargs networkx

With ``NETWORKX_FALLBACK_TO_NX=True`` NetworkX runs what Godwit does not have; without, tests that need such
a function are expected failures.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import godwit.networkx as backend
from _godwit_networkx import FUNCTIONS

_calls: Counter[str] = Counter()
"""For each function, how many of its calls returned."""

_passed: list[str] = []
"""Tests that passed, and in which a function of Godwit's returned."""


def _counted(name: str) -> Any:
    function = getattr(backend, name)

    @functools.wraps(function)
    def counting(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        _calls[name] += 1
        return result

    return counting


def pytest_configure() -> None:
    """Count the calls of all functions."""
    for name in FUNCTIONS:
        setattr(backend, name, _counted(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Count a test if it passes."""
    before = _calls.total()
    result = yield
    if _calls.total() > before:
        _passed.append(item.nodeid)
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the counts."""
    never = ", ".join(sorted(set(FUNCTIONS) - set(_calls))) or "none"
    terminalreporter.write_line(
        f"{len(_passed)} tests ran in Godwit: {_calls.total()} calls of {len(_calls)} functions; "
        f"functions never called: {never}"
    )


def files_of_functions() -> list[str]:
    """Return NetworkX's files of tests, beside the functions that Godwit has, that call these."""
    from networkx.utils.backends import _registered_algorithms

    beside: dict[Path, set[str]] = {}
    for name in FUNCTIONS:
        source = inspect.getsourcefile(_registered_algorithms[name].__wrapped__.orig_func)
        assert source is not None
        beside.setdefault(Path(source).parent / "tests", set()).add(name)
    return [
        str(file)
        for folder, names in sorted(beside.items())
        for file in sorted(folder.glob("test_*.py"))
        if re.search(rf"\b({'|'.join(names)})\(", file.read_text(encoding="utf-8"))
    ]
