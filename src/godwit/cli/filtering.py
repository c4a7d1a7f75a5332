"""The command ``filter``: the items of an array in a file that satisfy a predicate.

The predicate is an expression of ``x``, or a lambda. Nothing of it is evaluated here: what runs, on items,
is what is compiled of it.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import os
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.errors import InputError
from godwit.files import check_writable, replacing

if TYPE_CHECKING:
    from godwit.dtypes import Array

FILTER_HELP = (
    "The items of an array that satisfy a predicate, in their order.\n\n"
    "FILE is a .npy file of one dimension, which may be larger than all memory: packets of it go to "
    "whichever device is free. What is kept must fit into memory.\n\n"
    "PREDICATE is a Python expression of x, compiled for the devices; it may use math."
)
FILTER_EPILOG = """Examples:

  godwit filter values.npy "x > 0.5" --output kept.npy

  godwit filter values.npy "0.2 < x < 0.3 or math.isnan(x)" --json

  godwit filter values.npy -o small.npy -- "-x > -0.5"

  godwit filter values.npy "x % 2 == 1" --devices cuda:0,cuda:1,cpu -o odd.npy
"""

_KNOWN = ("abs", "bool", "float", "int", "max", "min", "round")
_ALLOWED = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Name,
    ast.Constant, ast.Tuple, ast.boolop, ast.operator, ast.unaryop, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Load,
)  # fmt: skip
_MOST_CHARACTERS = 10_000
_MOST_NODES = 2_000
_MOST_DEPTH = 100
"""Of a predicate's syntax tree: Python and Numba go through it recursively."""

FileOption = Annotated[
    str, typer.Argument(metavar="FILE", help="A .npy file of one dimension.", show_default=False)
]
PredicateOption = Annotated[
    str,
    typer.Argument(
        metavar="PREDICATE",
        help='What is true of the items to be kept, such as "x > 0.5", in quotes. One that begins with a '
        'minus stands in brackets, "(-x) < 0.5", or behind --, which ends the options.',
        show_default=False,
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write what is kept, as .npy. Without it only their number is said.",
        rich_help_panel="What comes out",
        show_default=False,
    ),
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="N|NAMES",
        help="GPUs and CPUs, also together: cuda, cuda:0,cuda:1,cpu and so on. By default the first GPU if "
        "the file has 64 MiB or more; else all cores. See godwit devices.",
        rich_help_panel="Where it runs",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Give up when it takes longer; compiling and writing do not count.",
        rich_help_panel="Where it runs",
        show_default=False,
    ),
]
UnorderedOption = Annotated[
    bool,
    typer.Option(
        "--unordered", help="Packets may come in any order.", rich_help_panel="What comes out"
    ),
]


def filter_file(
    file: FileOption,
    predicate: PredicateOption,
    output: OutputOption = None,
    unordered: UnorderedOption = False,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: DevicesOption = None,
    timeout: TimeoutOption = None,
    trace: options.TraceOption = None,
    verify: options.VerifyOption = False,
) -> None:
    """Filter an array."""
    import godwit as gw
    from godwit.algorithms.filtering import default_devices
    from godwit.algorithms.filtering.verify import verify_filter
    from godwit.arrays import mapped_array
    from godwit.cli.facts import verification_facts
    from godwit.cli.report import print_json
    from godwit.runtime.registry import resolve_devices
    from godwit.trace import recorded, seconds_since

    keeps = parse_predicate(predicate)
    array = mapped_array(file)
    if array.ndim != 1:
        raise InputError(
            f"{file} must hold an array of one dimension, got shape {array.shape}: "
            "save array.reshape(-1)"
        )
    chosen = inputs.parse_devices(devices) or default_devices(array)
    names = [device.name for device in resolve_devices(chosen, mixed=True)]
    _check_output(output, file, trace)
    display = Display(quiet=quiet)
    with recorded(trace, "godwit filter", input_path=file):
        begin = perf_counter()
        with display.waiting("compiling"):  # by filtering nothing
            gw.filter(array[:0], keeps, chosen)
        seconds = {"compile": seconds_since(begin, "compile")}
        begin = perf_counter()
        with display.steps("filtering") as show:
            kept = gw.filter(
                array,
                keeps,
                chosen,
                ordered=not unordered,
                timeout_s=timeout,
                progress=None if show is None else lambda done: show(done, array.size),
            )
        seconds["run"] = seconds_since(begin, "run")
        if verify:
            begin = perf_counter()
            with display.waiting("verifying"):
                verify_filter(array, keeps, kept, ordered=not unordered)
            seconds["verify"] = seconds_since(begin, "verify")
        if output is not None:
            begin = perf_counter()
            with display.waiting("writing"):
                _write(output, kept)
            seconds["write"] = seconds_since(begin, "write")
    found = {
        "command": "filter",
        "array": {"name": file, "items": array.size, "dtype": array.dtype.name, "bytes": array.nbytes},
        "predicate": predicate,
        "kept": len(kept),
        **verification_facts(
            "exactly the items that satisfy the predicate were kept" if verify else None
        ),
        "output": output,
        "devices": names,
        "seconds": seconds,
        "bytes_per_s": array.nbytes / seconds["run"],
    }  # fmt: skip
    if json:
        print_json(found)
    elif not quiet:
        _print(found)


def parse_predicate(text: str) -> Callable[[Any], Any]:
    """An expression of ``x``, or a lambda, as a function.

    :raises InputError: it is none, or has what is not known here
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's about text such as '1 is x'
            return _compiled(_checked(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
        raise InputError(
            f"PREDICATE must be an expression of x such as 'x > 0.5', got {text!r:.80} ({why})"
        ) from error


def _checked(text: str) -> ast.Lambda:
    """The syntax tree of a predicate's text.

    :raises ValueError: it has what a predicate cannot have, or is too large
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, and may have {_MOST_CHARACTERS:,}")
    tree = ast.parse(text.strip(), "PREDICATE", "eval")
    body = tree.body
    if not isinstance(body, ast.Lambda):
        given = ast.arguments(
            posonlyargs=[], args=[ast.arg("x")], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        body = ast.Lambda(given, body)
    arguments = body.args
    if arguments.defaults or any(arguments.kw_defaults):  # which would be evaluated here
        raise ValueError("defaults are of no use")
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    known = {"math", *_KNOWN, *(one.arg for one in named)}
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
            said = ast.unparse(node) if isinstance(node, ast.expr) else ""
            raise ValueError(f"{said or type(node).__name__!r:.40} is not for predicates")
        if isinstance(node, ast.Name) and node.id not in known:
            raise ValueError(
                f"{node.id!r} is unknown to it; x, math, {', '.join(_KNOWN)} are known"
            )
        waiting += [(child, depth + 1) for child in reversed([*ast.iter_child_nodes(node)])]
    raise AssertionError("unreachable")


def _compiled(tree: ast.Lambda) -> Callable[[Any], Any]:
    known = {name: getattr(builtins, name) for name in _KNOWN}
    scope = {"__builtins__": known, "math": math}
    expression = ast.fix_missing_locations(ast.Expression(tree))
    function: Callable[[Any], Any] = eval(compile(expression, "PREDICATE", "eval"), scope)
    return function


def _check_output(output: str | None, file: str, trace: str | None) -> None:
    """Find out now whether the result can be written later."""
    if output is None:
        return
    if not output.endswith(".npy"):
        raise InputError(f"--output must end in .npy, got {output!r}")
    check_writable(output, file)
    if trace is not None and os.path.realpath(trace) == os.path.realpath(output):
        raise InputError(f"--trace and --output are the same file, {output}")


def _write(output: str, kept: Array) -> None:
    import numpy as np

    with replacing(output) as target:
        np.save(target, kept, allow_pickle=False)


def _print(found: dict[str, Any]) -> None:
    from godwit.cli.report import Report, integer, number

    array, seconds = found["array"], found["seconds"]
    share = f" ({found['kept'] / array['items']:.1%})" if array["items"] else ""
    phases = ", ".join(f"{phase} {taken:.4f}" for phase, taken in seconds.items())
    rows = [
        ("array", f"{array['name']}: {integer(array['items'])} items of {array['dtype']}"),
        ("devices", ", ".join(found["devices"])),
        ("kept", f"{integer(found['kept'])}{share}"),
        ("seconds", f"{phases} ({number(found['bytes_per_s'] / 1e9)} GB/s)"),
    ]
    if found["verified"]:
        rows.append(("verified", found["verification"]))
    if found["output"] is not None:
        rows.append(("output", found["output"]))
    Report().facts(rows)
