"""What the commands that give every vertex, or edge, a number have in common: how they run and answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs
from godwit.cli.progress import Display
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.cli.options import Reading
    from godwit.cli.outputs import Output
    from godwit.graph.csr import Graph

_SHOWN = 10
"""How many vertices are shown where nobody says."""

TopOption = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="COUNT",
        help=f"How many to show, the highest first; {_SHOWN} by default, none where --output has them all.",
        rich_help_panel="What comes out",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Scores:
    """A command of this kind.

    :param command: its name
    :param run: the query of a graph, with what is to be called as it goes on
    :param write: writes the numbers of a result
    :param highest: so many rows of a result, the highest first: ids, and a number as the last
    :param facts: what is said of a result besides its numbers
    :param line: of these facts, a name and a text, said between devices and seconds
    :param title: of the table of the highest numbers
    :param verify: checks a result, and returns what was found right
    """

    command: str
    run: Callable[[Graph, Callable[[int], None] | None], Any]
    write: Callable[[Output, Any], None]
    highest: Callable[[Any, int], list[dict[str, Any]]]
    facts: Callable[[Any], dict[str, Any]]
    line: Callable[[dict[str, Any]], tuple[str, str]]
    title: str
    verify: Callable[[Any], str]


def highest_vertices(column: str, result: Any, count: int) -> list[dict[str, Any]]:
    """The vertices of the highest numbers, which the result has by the name of the column."""
    from godwit.cli.facts import plain

    ids, numbers = result.graph.ids, getattr(result, column)
    positions = ids.positions(result.highest(count))
    return [
        {"vertex": name, column: plain(number)}
        for name, number in zip(ids.in_file.of(positions), numbers[positions], strict=True)
    ]


def check_early(asked: dict[str, Any], top: int | None) -> dict[str, Any]:
    """Fail before a large file is read, where that is possible.

    :returns: what was asked as it can be asked of a graph without vertices, to check the rest: not of GPUs
    """
    from godwit.dtypes import as_count
    from godwit.runtime.registry import resolve_devices

    if top is not None:
        as_count(top, "top")
    timeout_s = asked["timeout_s"]
    if timeout_s is not None and not timeout_s > 0:
        raise InputError(f"timeout must be a positive number of seconds, got {timeout_s:g}")
    devices = asked["devices"]
    if devices is None or resolve_devices(devices)[0].kind != "cpu":
        return {**asked, "devices": "cpu"}
    return asked


def answer(
    scores: Scores, graph: str, reading: Reading,
    *, top: int | None, output: str | None, json: bool, quiet: bool, trace: str | None, verify: bool,
) -> Any:  # fmt: skip
    """Read the graph, run, verify, write and print; the result."""
    from godwit.cli import facts
    from godwit.cli.outputs import Output
    from godwit.cli.report import graph_line, print_json
    from godwit.trace import recorded, seconds_since

    destination = Output(output, graph, json=json, trace=trace)
    display = Display(quiet=quiet)
    with recorded(trace, f"godwit {scores.command}", input_path=graph):
        begin = perf_counter()
        loaded = inputs.load_graph(graph, display, reading)
        read_s = seconds_since(begin, "read")
        with display.items(f"running {scores.command}") as progress:
            result = scores.run(loaded, progress)
        verification = verify_scores(scores, result, display) if verify else None
        if destination.target is not None:
            with display.waiting("writing"), result.statistics.phase("write"):
                scores.write(destination, result)
    statistics = result.statistics.to_dict()
    statistics["seconds"] = {"read": read_s, **statistics["seconds"]}
    found = {
        "command": scores.command,
        "graph": facts.graph_facts(loaded, graph),
        **scores.facts(result),
        "top": scores.highest(result, _SHOWN if top is None else top),
        **facts.verification_facts(verification),
        "output": destination.target,
        "statistics": statistics,
    }
    if json:
        print_json(found)
    elif not quiet:
        print_scores(
            scores, found, destination, graph_line(found["graph"]), highest=top is not None
        )
    return result


def verify_scores(scores: Scores, result: Any, display: Display) -> str:
    """Check a result, as a phase of its run; return what was found right."""
    with display.waiting("verifying"), result.statistics.phase("verify"):
        return scores.verify(result)


def print_scores(
    scores: Scores, facts: dict[str, Any], destination: Output, size: str, rate: str = "",
    *, highest: bool,
) -> None:  # fmt: skip
    """What was asked and how it went, and the vertices with the highest numbers.

    :param size: of the graph
    :param rate: behind the seconds
    :param highest: also where the whole result has been written
    """
    from godwit.cli.report import Report, number

    report = Report(on_stderr=destination.on_stdout)
    statistics = facts["statistics"]
    seconds = ", ".join(f"{phase} {taken:.4f}" for phase, taken in statistics["seconds"].items())
    rows = [
        ("graph", f"{facts['graph']['name']}: {size}"),
        ("devices", f"{', '.join(statistics['devices'])} ({statistics['solver']})"),
        scores.line(facts),
        ("seconds", seconds + rate),
    ]
    if facts["verified"]:
        rows.append(("verified", facts["verification"]))
    if facts["output"] is not None:
        rows.append(("output", facts["output"]))
    report.facts(rows)
    if facts["top"] and (highest or destination.target is None):
        found = [[*map(str, ids), number(value)] for *ids, value in map(dict.values, facts["top"])]
        report.table(list(facts["top"][0]), found, title=scores.title, text_columns=0)
