"""The package as a whole: what it exports, that importing it is light, and that docs keep up."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import subprocess
import sys
import textwrap
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import godwit as gw
from godwit import config, errors
from godwit.dataflow import context
from godwit.errors import InputError
from godwit.graph.generators import spec

_FUNCTIONS = [
    import_module(name)
    for name in sorted(
        {
            function.__module__
            for function in map(partial(getattr, gw), gw.__all__)
            if inspect.isfunction(function)
            and function.__module__.startswith("godwit.algorithms.")
            and not function.__module__.endswith(".verify")
        }
    )
]
"""Modules of public algorithms."""
_REPOSITORY = Path(__file__).resolve().parent.parent
_MODULES = ("collectives", "distributed", "errors", "frontier", "generators", "policies")


def test_every_public_name_is_there_and_documented() -> None:
    reference = (_REPOSITORY / "docs" / "reference.md").read_text()
    for name in gw.__all__:
        assert getattr(gw, name) is not None
        assert f"`gw.{name}`" in reference


@pytest.mark.parametrize(
    "page",
    ["README.md", *sorted(f"docs/{path.name}" for path in (_REPOSITORY / "docs").glob("*.md"))],
)
def test_every_name_in_documentation_is_there(page: str) -> None:
    text = (_REPOSITORY / page).read_text()
    for name in set(re.findall(r"\bgw\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text)) - {"NAME"}:
        assert attrgetter(name)(gw) is not None, name
    for name in set(re.findall(r"\bgraph\.(\w+)\(", text)):
        assert callable(getattr(gw.Graph, name)), name  # properties are not


@pytest.mark.parametrize("name", [name for name in gw.__all__ if name not in _MODULES])
def test_public_names_have_docstrings_and_hints(name: str) -> None:
    public = getattr(gw, name)
    members = [public]
    if inspect.isclass(public):
        members += [
            member for key, member in vars(public).items()
            if not key.startswith("_") and callable(member) and not inspect.isclass(member)
        ]  # fmt: skip
    for member in members:
        assert inspect.getdoc(member), member
        if inspect.isfunction(member):
            signature = inspect.signature(member)
            assert signature.return_annotation is not inspect.Signature.empty, member
            for parameter in signature.parameters.values():
                assert parameter.annotation is not parameter.empty or parameter.name == "self", (
                    member
                )


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in (_REPOSITORY / "docs" / "api").glob("*.rst"))
    documented = set(re.findall(r"^\.\. auto(?:function|class):: (\w+)", pages, re.M))
    assert set(gw.__all__) - documented == set(_MODULES)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gw.nonsense


def test_importing_is_light() -> None:
    program = (
        "import sys, godwit; heavy = {'numba', 'numpy', 'scipy', 'pyarrow', 'pymetis', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_reading_and_searching_named_vertices_imports_no_library_of_tables(tmp_path: Path) -> None:
    (tmp_path / "roads.csv").write_text("from,to,km\nUlm,Bonn,5\nBonn,Jena,2.5\n")
    program = (
        "import sys, godwit as gw; graph = gw.read('roads.csv', columns=['from', 'to', 'km']);"
        "distances = gw.sssp(graph, 'Ulm').to_dict(); assert distances['Jena'] == 7.5;"
        "gw.read('ids.txt').ids[0]; gw.write(graph, 'copy.parquet'); gw.read('copy.parquet');"
        "print(sorted({'pandas', 'polars'} & set(sys.modules)))"
    )
    (tmp_path / "ids.txt").write_text(f"5 {10**15}\n7 5\n")
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", [gw, *_FUNCTIONS, context, spec], ids=lambda module: module.__name__
)
def test_examples_in_docstrings(module: object) -> None:
    failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)  # type: ignore[arg-type]
    assert tried > 0
    assert failed == 0


_BLOCK = re.compile(r"^ *```(python|sh run)\n(.*?)^ *```(?:\n\n *```text\n(.*?)```)?", re.S | re.M)
"""A block that is run, and what it prints if a block of text follows at once."""


_PAGES_WITH_EXAMPLES = [
    str(page.relative_to(_REPOSITORY))
    for page in [_REPOSITORY / "README.md", *sorted((_REPOSITORY / "docs").glob("*.md"))]
    if _BLOCK.search(page.read_text(encoding="utf-8"))
]


def test_most_pages_have_examples() -> None:
    assert len(_PAGES_WITH_EXAMPLES) > 5


_OUTSIDE_OF_THE_SITE = ["README.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/RESULTS.md"]
"""Pages whose links Sphinx does not check."""


@pytest.mark.parametrize("page", _OUTSIDE_OF_THE_SITE)
def test_links_of_pages_outside_of_the_site(page: str) -> None:
    path = _REPOSITORY / page
    links = re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]+))?\)", path.read_text("utf-8"))
    assert links or page == "CHANGELOG.md"
    for link, anchor in links:
        target = path.parent / link if link else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text("utf-8"), re.M)
            slugs = {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in headings}
            assert anchor in slugs, f"{link}#{anchor}"


def _printed_by_commands(commands: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-euc", commands],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("page", _PAGES_WITH_EXAMPLES)
def test_examples_in_documentation(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of a page run one after the other in an empty folder; ``no-run`` marks those that cannot."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"gw": gw, "graph": gw.generators.rmat(6, 8)}
    checker = doctest.OutputChecker()
    for kind, block, printed in _BLOCK.findall((_REPOSITORY / page).read_text("utf-8")):
        if kind == "python":
            exec(textwrap.dedent(block), names)
            out = capsys.readouterr().out
        else:
            out = _printed_by_commands(textwrap.dedent(block))
        if printed:
            options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert checker.check_output(textwrap.dedent(printed), out, options), out


def test_all_errors_are_ours() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [kind for kind in kinds if issubclass(kind, Exception) and not issubclass(kind, Warning)]
    assert len(ours) > 8
    assert all(issubclass(kind, errors.GodwitError) for kind in ours)
    assert issubclass(errors.InputError, ValueError)


def test_threads_honour_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_THREADS", "3")
    assert config.thread_count() == 3
    assert gw.all_devices()[0].threads == 3
    monkeypatch.setenv("GODWIT_THREADS", "none")
    with pytest.raises(InputError, match="GODWIT_THREADS must be a positive integer, got 'none'"):
        config.thread_count()


def test_a_graph_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.generators.road(60)
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1000")
    for devices in (1, 2):
        with pytest.raises(errors.GraphTooLargeError, match="available"):
            gw.sssp(graph, 0, devices=devices)
