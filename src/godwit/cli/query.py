"""Commands that compute a result: load, run, verify, write and report, in one order for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from godwit.cli.facts import Facts, graph_facts, plain
from godwit.cli.inputs import load_graph
from godwit.cli.options import Option, ReadingOptions, ResultOptions
from godwit.cli.progress import Display
from godwit.cli.report import Report, closing_rows, graph_line, number, outcome_rows, present

if TYPE_CHECKING:
    from godwit.cli.outputs import Output
    from godwit.graph.csr import Graph

_SHOWN = 10


@dataclass(frozen=True)
class ScoreOptions(ResultOptions):
    """Options of a result whose values can be ranked: what is printed, written and verified.

    :param top: How many values to show, the highest first; 10 by default, none if --output has all.
    """

    top: Annotated[int | None, Option(metavar="COUNT")] = None

    def __post_init__(self) -> None:
        """Check the number of values to show."""
        from godwit.dtypes import as_count

        if self.top is not None:
            as_count(self.top, "top")


@dataclass
class Query(ABC):
    """One run of a command that computes a result.

    :param command: name of the command
    :param input: GRAPH or FILE as on the command line
    :param options: output, report and verification
    """

    npy_only: ClassVar[bool] = False
    """True if the result can be written as .npy only."""

    command: str
    input: str
    options: ResultOptions

    @abstractmethod
    def run(self, display: Display) -> Any:
        """Read the input and compute; return the result, whose ``statistics`` record seconds by phase."""

    @abstractmethod
    def verify(self, result: Any) -> str:
        """Check the result; return a description of the property that was verified."""

    @abstractmethod
    def write(self, output: Output, result: Any) -> None:
        """Write the result to a file."""

    def plot(self, result: Any) -> Any:
        """Return axes of matplotlib with a plot of the result."""
        return result.plot()

    @abstractmethod
    def facts(self, result: Any, outcome: Facts) -> Facts:
        """Return what ``--json`` prints.

        :param outcome: entries to include: ``verified``, ``verification`` and ``output``
        """

    @abstractmethod
    def show(self, report: Report, facts: Facts) -> None:
        """Print the result as text and tables."""

    def answer(self) -> Any:
        """Run, verify, write and report; return the result."""
        from godwit.cli.outputs import Output
        from godwit.plots import check_plot, save_plot
        from godwit.trace import recorded

        options = self.options
        check_plot(options.plot, self.input)
        output = Output(options.output, self.input, options.json, options.trace, self.npy_only)
        display = Display(quiet=options.quiet)
        verification = None
        with recorded(options.trace, f"godwit {self.command}", input_path=self.input):
            result = self.run(display)
            if options.verify:
                with display.waiting("verifying"), result.statistics.phase("verify"):
                    verification = self.verify(result)
            if options.output is not None:
                with display.waiting("writing"), result.statistics.phase("write"):
                    self.write(output, result)
            if options.plot is not None:
                with display.waiting("plotting"), result.statistics.phase("plot"):
                    save_plot(self.plot(result), options.plot)
        outcome = {
            "verified": options.verify,
            "verification": verification,
            "output": options.output,
            "plot": options.plot,
        }
        facts = {"command": self.command, **self.facts(result, outcome)}
        present(facts, options, lambda report: self.show(report, facts), output)
        return result


@dataclass
class GraphQuery(Query):
    """Query of a graph.

    :param reading: how the graph is read
    :ivar graph: set by :meth:`load`
    """

    reading: ReadingOptions
    graph: Graph = field(init=False)
    _read_s: float = field(init=False)

    def load(self, display: Display) -> Graph:
        """Read or generate the graph, as a phase of the run."""
        from godwit.trace import seconds_since

        begin = perf_counter()
        self.graph = load_graph(self.input, display, self.reading)
        self._read_s = seconds_since(begin, "read")
        return self.graph

    def statistics(self, result: Any, **seconds: float) -> Facts:
        """Return the statistics of the run, with the phases "read" and ``seconds`` before its own."""
        statistics: Facts = result.statistics.to_dict()
        statistics["seconds"] = {"read": self._read_s, **seconds, **statistics["seconds"]}
        return statistics


@dataclass
class ScoreQuery(GraphQuery):
    """Query whose result is a value for each vertex, edge or component.

    :param arguments: keyword arguments of the Python function
    :param name: name of the Python function in the package
    """

    title: ClassVar[str]
    """Title of the table of the highest values."""
    options: ScoreOptions
    arguments: dict[str, Any]
    name: str

    @property
    def function(self) -> Callable[..., Any]:
        """The Python function."""
        import godwit as gw

        found: Callable[..., Any] = getattr(gw, self.name)
        return found

    def compute(self, graph: Graph, progress: Callable[[int], None] | None) -> Any:
        """Call the Python function."""
        return self.function(graph, progress=progress, **self.arguments)

    def write(self, output: Output, result: Any) -> None:
        """Write the result to a file: columns of which each row is a vertex."""
        output.write(result.columns, result.graph.ids.in_file)

    @abstractmethod
    def highest(self, result: Any, count: int) -> list[Facts]:
        """Return rows of the highest values: in each, ids come first and the value last."""

    @abstractmethod
    def details(self, result: Any) -> Facts:
        """Return the entries of ``--json`` that describe the result, without its values."""

    @abstractmethod
    def summary(self, facts: Facts) -> tuple[str, str]:
        """Return label and text of the report's line about the details."""

    def check_early(self, **changed: Any) -> None:
        """Check the arguments by a call on a graph without vertices, before a large file is read.

        The CPU computes this call, as GPUs might take seconds to initialize.

        :param changed: arguments that replace those of the query
        """
        from godwit.graph.csr import Graph
        from godwit.runtime.registry import resolve_devices

        arguments = self.arguments | changed
        if arguments["devices"] is None or resolve_devices(arguments["devices"])[0].kind != "cpu":
            arguments["devices"] = "cpu"
        self.function(Graph.from_edges([], []), **arguments)

    def run(self, display: Display) -> Any:
        """Read the graph and compute."""
        graph = self.load(display)
        with display.bar(f"running {self.command}") as progress:
            return self.compute(graph, progress)

    def top(self, result: Any) -> list[Facts]:
        """Return the rows of the ``--top`` highest values (10 by default)."""
        return self.highest(result, _SHOWN if self.options.top is None else self.options.top)

    def facts(self, result: Any, outcome: Facts) -> Facts:
        """Return what ``--json`` prints."""
        return {
            "graph": graph_facts(self.graph, self.input),
            **self.details(result),
            "top": self.top(result),
            **outcome,
            "statistics": self.statistics(result),
        }

    def show(self, report: Report, facts: Facts) -> None:
        """Print the highest values, the outcome of the run, and what it took."""
        self.show_scores(report, facts, graph_line(facts["graph"]))

    def show_scores(self, report: Report, facts: Facts, size: str, rate: str = "") -> None:
        """Print the highest values, the outcome of the run, and what it took.

        :param size: text for the size of the graph
        :param rate: text appended to the line of seconds
        """
        if facts["top"] and (self.options.top is not None or facts["output"] is None):
            rows = [
                [*map(str, ids), number(value)] for *ids, value in map(dict.values, facts["top"])
            ]
            report.table(list(facts["top"][0]), rows, title=self.title, text_columns=0)
        verbose = self.options.verbose
        report.facts(
            [
                self.summary(facts),
                *outcome_rows(facts),
                *closing_rows(facts, size, verbose=verbose, rate=rate),
            ]
        )


def rows_of_vertices(graph: Graph, highest: list[tuple[Any, float]], column: str) -> list[Facts]:
    """Return rows of some vertices: their ids in the graph's file, and values.

    :param highest: id and value of each vertex
    :param column: name of the column of values
    """
    ids = graph.ids
    positions = ids.positions([vertex for vertex, _ in highest])
    return [
        {"vertex": name, column: plain(value)}
        for name, (_, value) in zip(ids.in_file.of(positions), highest, strict=True)
    ]
