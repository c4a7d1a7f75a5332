"""NetworkX's own tests pass with Godwit's functions in the place of NetworkX's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from networkx_suite import files_of_functions

pytestmark = pytest.mark.skipif(
    "godwit" not in nx.utils.backends.backends,
    reason="the installed package has no entry points for NetworkX: install it again",
)


_INSTALLED = Path(nx.__file__).parents[1]
_OLDEST = "NETWORKX_OLDEST"
"""A variable that names a folder with the oldest NetworkX that the package takes: .ci/run sets it."""


def _run(*arguments: str, fallback: bool, folder: Path = _INSTALLED) -> tuple[int, str]:
    """Run tests of NetworkX in a folder; return how many ran in Godwit, and pytest's last line."""
    paths = [str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("NETWORKX_")},
        "NETWORKX_TEST_BACKEND": "godwit",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    if fallback:
        environment["NETWORKX_FALLBACK_TO_NX"] = "True"
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(
        [*line, "-p", "networkx_suite", *arguments],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    found = re.search(r"^(\d+) tests ran in Godwit", done.stdout, re.MULTILINE)
    assert found is not None
    return int(found[1]), done.stdout.splitlines()[-1]


_EXACT_COMMUNITIES = (
    "test_karate_club_partition", "test_undirected_selfloops", "test_none_weight_param",
    "test_directed_partition", "(test_louvain and test_multigraph)",
)  # fmt: skip
"""NetworkX's tests of Louvain that ask for the communities, or their order, of NetworkX's own seeds. The
last one expects the same of two graphs of different weights, of which each has other best ones."""
_SLOW = (
    "naive_greedy_modularity_communities", "arborescence_iterator_min", "arborescence_iterator_max",
    "test_omega", "test_sigma",
)  # fmt: skip
"""Tests that take longer than all others: thousands of calls of a function on some ten nodes."""
_MANY = ("(test_use_bounds_on_off_consistency and not -0])",)
"""Cases of 500 random graphs, 32 calls each, but for the fifty of the first seed: each size and density."""


def _without(*names: str) -> tuple[str, str]:
    """Return options of pytest that leave out tests by their names."""
    return "-k", " and ".join(f"not {name}" for name in names)


def test_files_of_the_functions() -> None:
    left_out = _without(*_EXACT_COMMUNITIES, *_SLOW, *_MANY)
    ran, summary = _run(*files_of_functions(), *left_out, fallback=True)
    assert ran > 600
    assert "xfailed" not in summary


@pytest.mark.skipif(
    _OLDEST not in os.environ, reason=f"{_OLDEST} names no folder with NetworkX 3.4"
)
def test_files_of_the_functions_in_the_oldest() -> None:
    folder = Path(os.environ[_OLDEST])
    files = [folder / Path(file).relative_to(_INSTALLED) for file in files_of_functions()]
    ran, summary = _run(
        *_without(*_EXACT_COMMUNITIES, *_SLOW, *_MANY),
        *(str(file) for file in files if file.exists()),
        fallback=True,
        folder=folder,
    )
    assert ran > 300
    assert "xfailed" not in summary


@pytest.mark.thorough
@pytest.mark.parametrize("fallback", [True, False])
def test_whole(fallback: bool) -> None:
    ran, summary = _run("--pyargs", "networkx", *_without(*_EXACT_COMMUNITIES), fallback=fallback)
    # Without it, a test that also calls what Godwit does not have is an expected failure.
    assert ran > (1000 if fallback else 200)
    if fallback:  # NetworkX's own: of what it does not have itself
        assert int(re.findall(r"(\d+) xfailed", summary)[0]) <= 2
