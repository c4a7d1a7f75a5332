"""Declaration of options: each is a parameter of a command, or a field of a group that commands share.

A group is a dataclass. :func:`with_options` gives a command that has a parameter of its type one option for
each field. The ``:param:`` lines of the docstrings of commands and groups are the help of their options.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from godwit.errors import InputError

READING = "How the graph is read"
DEVICES = "Where it runs"
RESULT = "What comes out"
TUNING = "Tuning"


@dataclass(frozen=True)
class Option:
    """Declaration of an option, in ``Annotated``.

    :param names: short names to be added to ``--NAME``, or all names
    :param help: for options that several commands have; else the docstring has it
    :param panel: heading of the section of ``--help``
    """

    names: str = ""
    metavar: str | None = None
    help: str | None = None
    panel: str | None = None


@dataclass(frozen=True)
class Argument:
    """Declaration of a required argument, in ``Annotated``."""

    metavar: str
    help: str | None = None


GraphArgument = Annotated[
    str,
    Argument(
        "GRAPH",
        "A file (- for standard input), a generated graph such as rmat:20 or road:1000x1000, or a named "
        "data set such as dataset:USA-road-d.NY.",
    ),
]
ExecutionOption = Annotated[
    str | None,
    Option(
        metavar="KIND",
        help="asynchronous, bulk-synchronous (in supersteps, at the end of which all devices synchronize), "
        "or auto (the default), which chooses the faster.",
        panel=DEVICES,
    ),
]
OutputOption = Annotated[
    str | None,
    Option(
        "-o",
        "FILE",
        "Write the result to a file: .npy (an array in the order of the vertices), .csv or .parquet (a "
        "table with ids of vertices), or - for CSV on stdout.",
        RESULT,
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """Options of reading a graph.

    :param format: The file's format, if its content does not identify it; godwit convert --help lists all.
    :param id_base: The file's number of the first vertex, where the format counts vertices; by default 1
        for DIMACS, Matrix Market and METIS. For edge lists and tables it implies --no-relabel.
    :param directed: By default as the file says. --undirected replaces all arcs between two vertices by one
        edge with the least of their weights.
    :param columns: Columns of a table (CSV, Parquet) with sources, targets and perhaps weights, such as
        from,to,km.
    :param relabel: For edge lists and tables: the vertices are the ids that occur (the default), or all
        numbers up to the largest. Results name the ids of the file either way.
    :param weight_dtype: Type of the weights in a Galois or GAP file: int32, uint32, int64, float32 or
        float64.
    """

    panel: ClassVar[str] = READING

    format: str | None = None
    id_base: int | None = None
    directed: Annotated[bool | None, Option("--directed/--undirected")] = None
    columns: Annotated[str | None, Option(metavar="NAMES")] = None
    relabel: Annotated[bool | None, Option("--relabel/--no-relabel")] = None
    weight_dtype: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that were given, as arguments of :func:`godwit.read`."""
        arguments = {name: value for name, value in vars(self).items() if value is not None}
        if self.columns is not None:
            arguments["columns"] = [name.strip() for name in self.columns.split(",")]
        return arguments

    @property
    def names(self) -> list[str]:
        """The options that were given, as written on the command line."""
        negated = {"directed": "--undirected", "relabel": "--no-relabel"}
        return [
            negated[name] if value is False else f"--{name.replace('_', '-')}"
            for name, value in self.arguments.items()
        ]


@dataclass(frozen=True)
class RunOptions:
    """Where an algorithm runs, and how long it may take.

    :param devices: GPUs: cuda is all of them, cuda:1 or cuda:0,cuda:1 some, 2 the first two. CPU: cpu is
        all cores as one device, cpu:0,cpu:1 are virtual devices of one thread each; where there is no GPU,
        numbers mean these (1 is cpu). By default the first GPU, or all GPUs where the graph does not fit
        there or a query is very long; without GPUs all cores. See godwit devices.
    :param timeout: End the run if it takes longer; reading and partitioning do not count.
    """

    panel: ClassVar[str] = DEVICES

    devices: Annotated[str | None, Option(metavar="N|NAMES")] = None
    timeout: Annotated[float | None, Option(metavar="SECONDS")] = None

    @property
    def timeout_s(self) -> float | None:
        """The time, as an argument of the Python functions.

        :raises InputError: it is not positive
        """
        if self.timeout is not None and not self.timeout > 0:
            raise InputError(f"timeout must be a positive number of seconds, got {self.timeout:g}")
        return self.timeout

    @property
    def arguments(self) -> dict[str, Any]:
        """``devices`` and ``timeout_s``, as arguments of the Python functions.

        :raises InputError: there is no such device, or the time is not positive
        """
        from godwit.cli.inputs import parse_devices
        from godwit.runtime.registry import resolve_devices

        timeout_s = self.timeout_s
        devices = parse_devices(self.devices)
        resolve_devices(devices)
        return {"devices": devices, "timeout_s": timeout_s}


@dataclass(frozen=True)
class ReportOptions:
    """Options of what to print.

    :param json: One JSON object on stdout instead of tables.
    :param quiet: No progress and no tables; errors and warnings only.
    """

    panel: ClassVar[str] = RESULT

    json: bool = False
    quiet: Annotated[bool, Option("-q")] = False


@dataclass(frozen=True)
class ResultOptions(ReportOptions):
    """Options of what to print, write and verify.

    :param trace: Write a timeline of the run (phases, kernels, copies, threads), such as run.json: open it
        at ui.perfetto.dev or chrome://tracing; a picture of it if FILE ends in .pdf, .png or .svg. It is
        written also if the run fails or is interrupted.
    :param plot: Draw the result: a picture as the ending says, .pdf, .png or .svg.
    :param verbose: Show how it was computed, too: devices, seconds of each phase, work.
    :param verify: Check the result by a serial method that does not depend on how it was computed; exit
        status 2 if it is wrong.
    """

    output: OutputOption = None
    plot: Annotated[str | None, Option(metavar="FILE")] = None
    trace: Annotated[str | None, Option(metavar="FILE")] = None
    verbose: Annotated[bool, Option("-v")] = False
    verify: bool = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters are what typer makes options of."""
    text, help_of = _split_docstring(command)
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _group_parameters(groups[name])
        elif hints[name] is typer.Context:
            parameters.append(parameter.replace(annotation=typer.Context))
        else:
            parameters.append(_parameter(name, parameter.default, hints[name], help_of))

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    changed: Any = call
    changed.__signature__ = inspect.Signature(
        [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    changed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    changed.__doc__ = text
    return call


def _group_parameters(group: Any) -> list[inspect.Parameter]:
    """Return a parameter for each field of a group."""
    help_of: dict[str, str] = {}
    for cls in reversed(group.__mro__[:-1]):
        help_of |= _split_docstring(cls)[1]
    hints = get_type_hints(group, include_extras=True)
    return [
        _parameter(field.name, field.default, hints[field.name], help_of, group.panel)
        for field in fields(group)
    ]


def _parameter(
    name: str, default: Any, hint: Any, help_of: dict[str, str], panel: str | None = None
) -> inspect.Parameter:
    """Return a parameter that typer makes an option or argument of."""
    is_annotated = hasattr(hint, "__metadata__")
    kind, declared = (hint.__origin__, hint.__metadata__[0]) if is_annotated else (hint, Option())
    text = declared.help or help_of[name]
    if isinstance(declared, Argument):
        info: Any = typer.Argument(metavar=declared.metavar, help=text, show_default=False)
    else:
        names = declared.names.split()
        if not any(word.startswith("--") for word in names):
            names.insert(0, f"--{name.replace('_', '-')}")
        info = typer.Option(
            *names, metavar=declared.metavar, help=text, rich_help_panel=declared.panel or panel
        )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _split_docstring(documented: Any) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring, a line per paragraph, and the text of each ``:param:``."""
    text, *parameters = re.split(r"^:param ", inspect.getdoc(documented) or "", flags=re.M)
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    named = (parameter.partition(":") for parameter in parameters)
    return "\n\n".join(paragraphs), {name: " ".join(text.split()) for name, _, text in named}
