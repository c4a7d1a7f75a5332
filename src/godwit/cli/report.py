"""JSON and tables, both made of the same facts.

Tables are as wide as their contents: numbers are never cut short, and a narrow terminal wraps the lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from godwit.cli.failures import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from godwit.cli.facts import Facts
    from godwit.cli.options import ReportOptions
    from godwit.cli.outputs import Output

_UNBOUNDED_WIDTH = 10_000
_MAX_MATRIX_SIDE = 16
_MOST_DEVICES = 8


def present(
    facts: Facts,
    options: ReportOptions,
    show: Callable[[Report], None],
    output: Output | None = None,
) -> None:
    """Print the facts of a command as JSON, or as tables, or nothing, as the options say.

    :param show: prints the tables; to stderr if the output is written to stdout
    """
    if options.json:
        print_json(facts)
    elif not options.quiet:
        show(Report(on_stderr=output is not None and output.on_stdout))


def print_json(facts: Facts) -> None:
    """Print one JSON object on stdout."""
    text = json.dumps(facts, allow_nan=False, indent=2)  # completely, before anything is printed
    sys.stdout.write(f"{text}\n")


class Report:
    """Tables on stdout, or on stderr where the result itself goes to stdout."""

    def __init__(self, *, on_stderr: bool = False) -> None:
        from rich.console import Console

        self._console: Console = Console(
            stderr=on_stderr, width=_UNBOUNDED_WIDTH, markup=False, highlight=False, emoji=False
        )
        self._printed = False

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair a line."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(no_wrap=True)
        for name, value in rows:
            grid.add_row(name, printable(value))
        self._print(grid)

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str = "",
        total: Sequence[str] | None = None,
        text_columns: int = 1,
    ) -> None:
        """Print a table, whose first columns are text and the others numbers."""
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD, show_footer=total is not None, header_style="bold", pad_edge=False
        )
        for i, name in enumerate(header):
            table.add_column(
                name,
                justify="left" if i < text_columns else "right",
                no_wrap=True,
                footer=total[i] if total is not None else "",
            )
        for row in rows:
            table.add_row(*map(printable, row))
        self._print(table, title)

    def matrix(self, title: str, names: Sequence[str], matrix: Sequence[Sequence[int]]) -> None:
        """Print a number for each pair of names; of a large matrix only the sums."""
        out = [sum(row) for row in matrix]
        into = [sum(column) for column in zip(*matrix, strict=True)]
        total = integer(sum(out))
        if len(names) > _MAX_MATRIX_SIDE:
            self.table(
                ["", "to others", "from others"],
                [[name, integer(out[i]), integer(into[i])] for i, name in enumerate(names)],
                title=f"{title} (--json has every pair)",
                total=["total", total, integer(sum(into))],
            )
            return
        rows = [
            [name, *("-" if i == j else integer(v) for j, v in enumerate(matrix[i])), integer(out[i])]
            for i, name in enumerate(names)
        ]  # fmt: skip
        header = ["from \\ to", *names, "total"]
        self.table(header, rows, title=title, total=["total", *map(integer, into), total])

    def _print(self, table: Table, title: str = "") -> None:
        """Print, below an empty line unless this is the first table."""
        console = self._console
        with console.capture() as capture:
            if title:
                console.print(title, style="bold")
            console.print(table)
        # Without the padding of the last column, and without the empty line above the header.
        lines = [stripped for line in capture.get().splitlines() if (stripped := line.rstrip())]
        text = "\n" * self._printed + "\n".join(lines) + "\n"
        encoding = console.encoding
        # Not printed by rich, which exits on its own where a pipe is closed.
        console.file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._printed = True


def integer(value: Any) -> str:
    """Return an integer as text: 1,234,567."""
    return f"{int(value):,}"


def number(value: Any) -> str:
    """Return a number as text: an integer in full, a float with up to six digits, "none" for None."""
    if value is None:
        return "none"
    return integer(value) if isinstance(value, int) else f"{value:,.6g}"


def closing_rows(
    facts: Facts, size: str, *, verbose: bool, rate: str = ""
) -> list[tuple[str, str]]:
    """Return the rows below an answer: what it is about, and how long it took.

    :param facts: with ``graph`` and ``statistics``
    :param size: text for the size of the graph
    :param verbose: True for devices and all phases as well
    :param rate: text appended to the row of seconds
    """
    statistics = facts["statistics"]
    seconds = statistics["seconds"]
    total = sum(seconds.values())
    parts = {phase: phase_s for phase, phase_s in seconds.items() if phase_s >= 0.01 * total}
    names = f"{len(statistics['devices'])} devices"
    if len(statistics["devices"]) <= _MOST_DEVICES:
        names = ", ".join(statistics["devices"])
    rows = [("graph", f"{facts['graph']['name']}: {size}")]
    if not verbose:
        text = ", ".join(f"{phase} {phase_s:.3g}" for phase, phase_s in parts.items())
        return [*rows, ("time", f"{total:.3g} s on {names}: {text}{rate}")]
    settings = [statistics["solver"]]
    for name in ("delta", "window", "hops", "levels"):
        if statistics.get(name) is not None:
            settings.append(f"{name} {number(statistics[name])}")
    return [
        *rows,
        ("devices", f"{names} ({', '.join(settings)})"),
        ("seconds", f"{seconds_line(seconds)}{rate}"),
    ]


def seconds_line(seconds: dict[str, float]) -> str:
    """Return the seconds of each phase as text."""
    return ", ".join(f"{phase} {phase_s:.4f}" for phase, phase_s in seconds.items())


def graph_line(graph: Facts) -> str:
    """Return the size of a graph as text."""
    if graph["weights"] is None:
        weights = "no weights"
    elif graph["min_weight"] is None:
        weights = f"{graph['weights']} weights"
    else:
        bounds = f"{number(graph['min_weight'])} to {number(graph['max_weight'])}"
        weights = f"{graph['weights']} weights {bounds}"
    kind = "directed" if graph["directed"] else "undirected"
    return (
        f"{integer(graph['vertices'])} vertices, {integer(graph['arcs'])} arcs, {kind}, {weights}"
    )


def partition_line(division: Facts) -> str:
    """Return method and cut of a partition as text."""
    note = f" ({division['note']})" if division["note"] else ""
    return (
        f"{division['method']}: {integer(division['cut_arcs'])} cut arcs "
        f"({division['cut_fraction']:.2%}), {integer(division['border_vertices'])} border "
        f"vertices, balance {division['balance']:.3f}{note}"
    )


def outcome_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return rows for verification and output, where there are any."""
    rows = {
        "verified": facts.get("verification"),
        "output": facts["output"],
        "plot": facts.get("plot"),
    }
    return [(name, text) for name, text in rows.items() if text is not None]
