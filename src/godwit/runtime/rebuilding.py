"""Functions rebuilt for a compiler, and error messages about the functions that they were made of.

A compiler accepts no plain Python function as a global or closure value of another. So an entry and every
plain function below it are rebuilt, each with a namespace of its own in which the others are what the
compiler accepts (Numba dispatchers), under a file name that moving them does not change. :class:`Originals`
maps each to the function that it was made of, since errors name the user's function and line.
"""

from __future__ import annotations

import builtins
import re
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from godwit.runtime.checks import FaultRecord, number_function
from godwit.runtime.constants import check_constants
from godwit.runtime.content import ADAPTERS, COMPILED_AS, is_users, plain_function, references

_NUMBERS = "an operator returns one number or a boolean"
_INTEGERS = "an operator for integers returns integers: write int(...), or declare float64"
_CONDITIONS = "a condition returns a boolean, such as value > 0"

_LONGEST_MESSAGE = 199
_WRONG_RETURN = re.compile(
    r"^\s*(?:TypingError: )?(\S.*?) "
    rf"(returns .*; (?:{'|'.join(map(re.escape, (_NUMBERS, _INTEGERS, _CONDITIONS)))}))",
    re.MULTILINE,
)


def wrong_return(what: str, returned: np.dtype[Any] | None, wanted: np.dtype[Any] | None) -> str:
    """Return the error text for an operator that returns ``what``; empty if that is as wanted.

    :param returned: its dtype, if it is a number or a boolean
    :param wanted: the dtype of what it is converted to, a boolean's of conditions; None: any
    """
    rule = ""
    if returned is None:
        rule = _NUMBERS
    elif wanted is not None and wanted.kind == "b" and returned.kind != "b":
        rule = _CONDITIONS
    elif wanted is not None and wanted.kind in "iu" and returned.kind == "f":
        rule = _INTEGERS
    return f"returns {type_in_words(what)}; {rule}" if rule else ""


def type_in_words(kind: str) -> str:
    """Return Numba's name of a type in plain words."""
    return re.sub(
        r"(Uni|Named|NamedUni)?Tuple\(.*\)", "a tuple", kind.replace("unicode_type", "a text")
    )


@dataclass
class Originals:
    """The functions that the functions of an instantiation were made of.

    :param name: the entry's
    :param made: by id of the rebuilt function: the function it was made of, and what to call it
    """

    name: str
    made: dict[int, tuple[types.FunctionType, str]] = field(default_factory=dict)

    def users(self) -> list[tuple[types.FunctionType, str]]:
        """Return the functions that a user wrote."""
        return [pair for pair in self.made.values() if is_users(pair[0])]

    def compile_message(self, error: Exception) -> str:
        """Return the operator that does not compile and the reason, in one line, as far as Numba names
        them.
        """
        message = plain_text(error)
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        returns = _WRONG_RETURN.search(message)
        if returns is not None:
            operator = self._operator(returns[1].strip("'"))
            name = returns[1] if operator is None else function_location(operator)
            return _shortened(f"{name} {returns[2]}")
        reason = _reason(lines)
        number: int | None = None
        for line in lines:  # from the innermost function outwards
            callee = re.search(r"callee type: .*<function .* at (0x[0-9a-fA-F]+)>", line)
            if callee is not None:
                original = self.made.get(int(callee[1], 16))
                if original is not None and is_users(original[0]):
                    return _shortened(
                        f"cannot compile {function_location(original, number)}: {reason}"
                    )
                number = None
            elif number is None and not _NUMBAS_OWN.search(line):
                at = re.search(r'^File ".*", line (\d+)|\.py \((\d+)\)', line)
                number = int(at[1] or at[2]) if at is not None else None
        # No callee: the entry's own body, or bytecode that Numba does not even read.
        entry = next(iter(self.made.values()))
        failing = entry if is_users(entry[0]) else None
        if number is not None and "Raised from" in message:
            failing = self._at_line(number) or failing
        if failing is not None and number is not None:
            return _shortened(f"cannot compile {function_location(failing, number)}: {reason}")
        users = self._user_labels()
        using = f" with {', '.join(users)}" if users else ""
        return _shortened(f"cannot compile {self.name}{using}: {reason}")

    def fault_message(self, record: FaultRecord) -> str:
        """Return the function that failed and its fault, in one line."""
        original = [*self.made.values()][record.function]
        return _shortened(f"{function_location(original)} raised {record.message()}")

    def run_message(self, error: Exception, record: FaultRecord | None) -> str:
        """Return the operator that raised an exception, and the exception, in one line.

        :param record: what it reported before
        """
        if record is not None:
            return self.fault_message(record)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        number = frames[-1].lineno if frames else None
        raising = None if number is None else self._at_line(number, frames[-1].name)
        if raising is not None:
            return _shortened(f"{function_location(raising, number)} raised {what}")
        # Code from the cache may have the lines of a file that has changed since.
        named = [pair for pair in self.users() if frames and pair[0].__name__ == frames[-1].name]
        if len(named) == 1:
            return _shortened(f"{function_location(named[0])} raised {what}")
        users = self._user_labels() or [self.name]
        one_of = "one of " if len(users) > 1 else ""
        return _shortened(f"{one_of}{', '.join(users)} raised {what}")

    def _operator(self, role: str) -> tuple[types.FunctionType, str] | None:
        """Return the user's function that the adapter for a role calls."""
        adapters = [plain for plain, _ in self.made.values() if plain.__module__ == ADAPTERS]
        called = [plain.__globals__.get("operator") for plain in adapters if plain.__name__ == role]
        return next((pair for pair in self.users() if pair[0] in called), None)

    def _user_labels(self) -> list[str]:
        labels = dict.fromkeys(f"'{label}'" for _, label in self.users() if label != self.name)
        return list(labels)[:6]

    def _at_line(
        self, number: int, name: str | None = None
    ) -> tuple[types.FunctionType, str] | None:
        """Return the user's function around a line (the innermost), unless several are."""
        around = []
        for plain, label in self.users():
            lines = [line for _, _, line in plain.__code__.co_lines() if line is not None]
            named = name is None or plain.__name__ in name
            if named and lines and min(lines) <= number <= max(lines):
                around.append((max(lines) - min(lines), (plain, label)))
        around.sort(key=lambda item: item[0])
        alone = len(around) == 1 or (len(around) > 1 and around[0][0] < around[1][0])
        return around[0][1] if alone else None


def function_location(original: tuple[types.FunctionType, str], number: int | None = None) -> str:
    """Return how errors name a function: its name, its file, and a line (by default its first)."""
    plain, label = original
    line = plain.__code__.co_firstlineno if number is None else number
    return f"'{label}' ({Path(plain.__code__.co_filename).name}, line {line})"


_NO_MEMORY = "NRT required but not enabled"  # NRT is Numba's runtime, which counts references
_NUMBAS_OWN = re.compile(r"-packages[/\\]numba")  # a line of Numba's, not of the user's
_BOILERPLATE = ("Failed in ", "- Resolution failure", "During: ", "Overload", "File ")


def _reason(lines: list[str]) -> str:
    """Return the line of Numba's message that says what is wrong."""
    for position, line in enumerate(lines):
        if line.startswith(_BOILERPLATE):
            continue
        reason = re.sub(r"\.*\s*Raised from .*$", "", line)
        if reason == _NO_MEMORY:
            return (
                "it makes a list, an array or another object, and operators cannot allocate memory"
            )
        if reason.endswith(":") and position + 1 < len(lines):
            reason = f"{reason} {lines[position + 1].removeprefix('>>> ')}"
        for pattern, text in _IN_PLAIN_WORDS:
            reason = re.sub(pattern, text, reason)
        return reason
    return "no reason given"


_IN_PLAIN_WORDS = (
    (r"No implementation of .* found for signature:", "no implementation of"),
    (
        r"no implementation of setitem\(readonly array.*",
        "it writes to an array that it captures; a step program has fields that operators write",
    ),
    (r"Literal\[\w+\]\((.*?)\)", r"\1"),
    (r"(?:readonly )?array\((\w+), (\d)d, \w+\)", r"array(\1, \2d)"),
    (r"<iv=.*?>", ""),
    (r"unicode_type", "str"),
    (r"Untyped global name ('\w+'): .*", r"compiled code cannot use \1"),
    (r"Cannot bind .* due to \"TypeError: (.*?)\"?\.$", r"\1"),
)
"""Numba's words, as patterns, and ours for the same."""


def _shortened(message: str) -> str:
    message = " ".join(message.split())
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return message[: _LONGEST_MESSAGE - 1] + "…"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def plain_text(error: BaseException | None) -> str:
    """Return an error's text without the colours that Numba gives it where colorama is installed."""
    return _COLOURS.sub("", str(error))


class Compile(Protocol):
    """Makes of a rebuilt function an object that others may refer to; calling that object compiles."""

    def __call__(self, rebuilt: types.FunctionType, *, is_entry: bool, by_user: bool) -> Any:
        """Return the object that replaces the function."""


def rebuild(
    function: Callable[..., Any],
    bindings: Mapping[str, Any],
    module_name: str,
    file_name: str,
    compiled: Compile,
    shared: Callable[[types.FunctionType], Any] = lambda plain: None,
) -> tuple[Any, Originals]:
    """Rebuild and compile an entry with all that it refers to; return it, and what it was made of.

    :param bindings: values for global names of the functions of Godwit's own modules
    :param module_name: name of the module that the functions shall have
    :param file_name: name of the file that the functions shall have
    :param shared: what stands for a function below the entry already, if anything does
    """
    built: dict[int, Any] = {}
    originals = Originals(function.__name__)

    def build(plain: types.FunctionType, label: str, *, is_entry: bool) -> Any:
        if id(plain) in built:
            return built[id(plain)]
        if is_users(plain):
            check_constants(plain)
        namespace: dict[str, Any] = {"__name__": module_name, "__builtins__": builtins}
        cells = {name: types.CellType() for name in plain.__code__.co_freevars}
        rebuilt = types.FunctionType(
            plain.__code__.replace(co_filename=file_name),
            namespace,
            plain.__name__,
            build_value(plain.__defaults__, "default"),
            tuple(cells.values()),
        )
        rebuilt.__kwdefaults__ = plain.__kwdefaults__ and {
            name: build_value(value, name) for name, value in plain.__kwdefaults__.items()
        }
        rebuilt.__qualname__ = plain.__name__
        number_function(rebuilt, len(originals.made))
        stands_for = built[id(plain)] = compiled(
            rebuilt, is_entry=is_entry, by_user=is_users(plain)
        )
        originals.made[id(rebuilt)] = (plain, label)
        for name, value in references(plain, bindings).items():
            value_label = plain.__name__ if plain.__module__ == ADAPTERS else name
            if name in cells:
                cells[name].cell_contents = build_value(value, value_label)
            else:
                namespace[name] = build_value(value, value_label)
        return stands_for

    def public_stand_in(package: types.ModuleType, name: str) -> types.ModuleType:
        """Return a module that has what operators may call of Godwit's public functions."""
        module = types.ModuleType(name)
        for attribute, value in vars(package).items():
            if hasattr(value, COMPILED_AS):
                setattr(module, attribute, build_value(value, attribute))
        return module

    def build_value(value: Any, label: str) -> Any:
        if type(value) is tuple:
            return tuple(build_value(item, label) for item in value)
        if isinstance(value, types.ModuleType) and value.__name__ == "godwit":
            return public_stand_in(value, label)
        plain = plain_function(value)
        if plain is None:
            return value
        known = None if id(plain) in built else shared(plain)
        if known is not None:
            return known
        # A lambda is called as what refers to it calls it: the operator's name in the template.
        name = label if plain.__name__ == "<lambda>" else plain.__name__
        return build(plain, name, is_entry=False)

    entry = plain_function(function)
    assert entry is not None
    return build(entry, function.__name__, is_entry=True), originals
