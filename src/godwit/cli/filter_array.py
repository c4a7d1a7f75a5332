"""The command ``filter``: the items of an array in a file that satisfy a predicate.

The predicate is an expression of ``x``, or a lambda. It is compiled, and evaluated on items only.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from godwit.cli.facts import Facts
from godwit.cli.inputs import parse_devices
from godwit.cli.options import DEVICES, RESULT, Argument, Option, ResultOptions, with_options
from godwit.cli.progress import Display
from godwit.cli.query import Query
from godwit.cli.report import Report, integer, number, outcome_rows, seconds_line
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.cli.outputs import Output
    from godwit.dtypes import Array
    from godwit.runtime.statistics import RunStatistics

EXAMPLES = """
godwit filter values.npy "x > 0.5" --output kept.npy
godwit filter values.npy "0.2 < x < 0.3 or math.isnan(x)" --json
godwit filter values.npy -o small.npy -- "-x > -0.5"
godwit filter values.npy "x % 2 == 1" --devices cuda:0,cuda:1,cpu -o odd.npy
"""

_FUNCTIONS = ("abs", "bool", "float", "int", "max", "min", "round")
_ALLOWED = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Name,
    ast.Constant, ast.Tuple, ast.boolop, ast.operator, ast.unaryop, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Load,
)  # fmt: skip
_MOST_CHARACTERS = 10_000
_MOST_NODES = 2_000
_MOST_DEPTH = 100  # Python and Numba walk the syntax tree recursively


@dataclass(frozen=True)
class _FilterOptions(ResultOptions):
    """Options of what to print, write and verify.

    :param output: Write the items that are kept, as .npy. Without it only their number is shown.
    """

    output: Annotated[str | None, Option("-o", "FILE")] = None


@dataclass
class _Filtered:
    kept: Array
    statistics: RunStatistics


@dataclass
class _FilterQuery(Query):
    npy_only = True

    options: _FilterOptions
    array: Array
    predicate: str
    keeps: Callable[[Any], Any]
    devices: Any
    names: tuple[str, ...]
    ordered: bool
    timeout_s: float | None

    def run(self, display: Display) -> _Filtered:
        import godwit as gw
        from godwit.runtime.statistics import RunStatistics

        statistics = RunStatistics(self.names, "filter")
        with display.waiting("compiling"), statistics.phase("compile"):  # by filtering nothing
            gw.filter(self.array[:0], self.keeps, self.devices)
        with display.bar("filtering") as progress, statistics.phase("run"):
            kept = gw.filter(
                self.array,
                self.keeps,
                self.devices,
                ordered=self.ordered,
                timeout_s=self.timeout_s,
                progress=progress,
            )
        return _Filtered(kept, statistics)

    def verify(self, result: _Filtered) -> str:
        from godwit.algorithms.filtering.verify import verify_filter

        verify_filter(self.array, self.keeps, result.kept, ordered=self.ordered)
        return "exactly the items that satisfy the predicate were kept"

    def write(self, output: Output, result: _Filtered) -> None:
        output.write_array(result.kept)

    def plot(self, result: _Filtered) -> Any:
        from godwit.plots import plot_counts

        return plot_counts(result.kept, "value of an item that was kept", of="items")

    def facts(self, result: _Filtered, outcome: Facts) -> Facts:
        array, seconds = self.array, result.statistics.seconds
        return {
            "array": {
                "name": self.input,
                "items": array.size,
                "dtype": array.dtype.name,
                "bytes": array.nbytes,
            },
            "predicate": self.predicate,
            "kept": len(result.kept),
            **outcome,
            "devices": list(self.names),
            "seconds": seconds,
            "bytes_per_s": array.nbytes / seconds["run"],
        }

    def show(self, report: Report, facts: Facts) -> None:
        array = facts["array"]
        share = f" ({facts['kept'] / array['items']:.1%})" if array["items"] else ""
        rate = number(facts["bytes_per_s"] / 1e9)
        report.facts(
            [
                ("kept", f"{integer(facts['kept'])}{share}"),
                *outcome_rows(facts),
                ("array", f"{array['name']}: {integer(array['items'])} items of {array['dtype']}"),
                ("devices", ", ".join(facts["devices"])),
                ("seconds", f"{seconds_line(facts['seconds'])} ({rate} GB/s)"),
            ]
        )


@with_options
def filter_file(
    file: Annotated[str, Argument("FILE")],
    predicate: Annotated[str, Argument("PREDICATE")],
    options: _FilterOptions,
    unordered: Annotated[bool, Option(panel=RESULT)] = False,
    devices: Annotated[str | None, Option(metavar="N|NAMES", panel=DEVICES)] = None,
    timeout: Annotated[float | None, Option(metavar="SECONDS", panel=DEVICES)] = None,
) -> None:
    """The items of an array that satisfy a predicate, in their order.

    FILE is a .npy file of one dimension, which may be larger than all memory: packets of it go to whichever
    device is free. The items that are kept must fit into memory.

    PREDICATE is a Python expression of x, compiled for the devices; it may use math.

    :param file: A .npy file of one dimension.
    :param predicate: True of the items to be kept, such as "x > 0.5", in quotes. One that begins with a
        minus stands in brackets, "(-x) < 0.5", or behind --, which ends the options.
    :param unordered: Packets may be written in any order.
    :param devices: GPUs and CPUs, also together: cuda, cuda:0,cuda:1,cpu and so on. By default the first
        GPU if the file has 64 MiB or more; else all cores. See godwit devices.
    :param timeout: End the run if it takes longer; compiling and writing do not count.
    """
    from godwit.algorithms.filtering import default_devices
    from godwit.arrays import mapped_array
    from godwit.runtime.registry import resolve_devices

    keeps = parse_predicate(predicate)
    array = mapped_array(file)
    if array.ndim != 1:
        raise InputError(
            f"{file} must hold an array of one dimension, got shape {array.shape}: "
            "save array.reshape(-1)"
        )
    chosen = parse_devices(devices) or default_devices(array)
    names = tuple(device.name for device in resolve_devices(chosen, mixed=True))
    _FilterQuery(
        "filter", file, options, array, predicate, keeps, chosen, names, not unordered, timeout
    ).answer()


def parse_predicate(text: str) -> Callable[[Any], Any]:
    """Return an expression of ``x``, or a lambda, as a function.

    :raises InputError: the text is neither, or has names or syntax that predicates cannot have
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of text such as '1 is x'
            return _compiled(_checked_tree(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
        raise InputError(
            f"PREDICATE must be an expression of x such as 'x > 0.5', got {text!r:.80} ({why})"
        ) from error


def _checked_tree(text: str) -> ast.Lambda:
    """Return the syntax tree of a predicate's text.

    :raises ValueError: it has syntax that predicates cannot have, or is too large
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, and may have {_MOST_CHARACTERS:,}")
    tree = ast.parse(text.strip(), "PREDICATE", "eval")
    body = tree.body
    if not isinstance(body, ast.Lambda):
        of_x = ast.arguments(
            posonlyargs=[], args=[ast.arg("x")], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        body = ast.Lambda(of_x, body)
    arguments = body.args
    if arguments.defaults or any(arguments.kw_defaults):  # Python would evaluate them here
        raise ValueError("defaults are of no use")
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    known = {"math", *_FUNCTIONS, *(parameter.arg for parameter in parameters)}
    waiting: list[tuple[ast.AST, int]] = [(body.body, 1)]
    for count in itertools.count(1):
        if not waiting:
            return body
        node, depth = waiting.pop()
        if count > _MOST_NODES or depth > _MOST_DEPTH:
            raise ValueError("it is too long, or nested too deep")
        is_number = not isinstance(node, ast.Constant) or type(node.value) in (bool, int, float)
        is_public = not isinstance(node, ast.Attribute) or not node.attr.startswith("_")
        if not (isinstance(node, _ALLOWED) and is_number and is_public):
            text = ast.unparse(node) if isinstance(node, ast.expr) else ""
            raise ValueError(f"{text or type(node).__name__!r:.40} is not for predicates")
        if isinstance(node, ast.Name) and node.id not in known:
            raise ValueError(
                f"{node.id!r} is unknown to it; x, math, {', '.join(_FUNCTIONS)} are known"
            )
        waiting += [(child, depth + 1) for child in reversed([*ast.iter_child_nodes(node)])]
    raise AssertionError("unreachable")


def _compiled(tree: ast.Lambda) -> Callable[[Any], Any]:
    known = {name: getattr(builtins, name) for name in _FUNCTIONS}
    scope = {"__builtins__": known, "math": math}
    expression = ast.fix_missing_locations(ast.Expression(tree))
    function: Callable[[Any], Any] = eval(compile(expression, "PREDICATE", "eval"), scope)
    return function
