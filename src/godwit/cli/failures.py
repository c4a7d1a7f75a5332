"""Whatever ends a command becomes an exit status, and at most one line on stderr; warnings are one each."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import typer

from godwit.errors import GodwitError

DONE = 0
INTERNAL_FAULT = 1
BAD_INPUT = 2
NOT_CONVERGED = 3
INTERRUPTED = 130
PIPE_CLOSED = 141

# Typer has made click's classes its own meanwhile; this one is the same under either roof.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]


class PipeClosedError(Exception):
    """Whoever read our standard output has gone; not a BrokenPipeError, which Typer would take."""


def end_unconverged(message: str) -> NoReturn:
    """End the command, whose result is where it was wanted, and say that it is not what was asked for."""
    _say(message)
    raise typer.Exit(NOT_CONVERGED)


def exit_status(run: Callable[[], Any], *, traceback: Callable[[], bool]) -> int:
    """Run, and return the status to exit with; failures have been reported then.

    :param traceback: whether an unexpected error shall show where it happened
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = run()
        sys.stdout.flush()
    except (PipeClosedError, BrokenPipeError):
        _discard_stdout()
        return PIPE_CLOSED
    except SystemExit as error:
        # Rich, which prints help, makes one of a closed pipe.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _discard_stdout()
        return PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except _UsageError as error:
        context = error.ctx
        hint = f" (see '{context.command_path} --help')" if context is not None else ""
        return _failed(error.format_message().rstrip(".") + hint)
    except MemoryError as error:
        return _failed(str(error) or "out of memory")
    except OSError as error:
        return _failed(_describe_os_error(error))
    except GodwitError as error:
        return _failed(str(error))
    except Exception as error:
        if traceback():
            raise
        return _failed(
            f"internal error, please report it: {type(error).__name__}: {error} "
            "(godwit --traceback COMMAND ... shows where)",
            INTERNAL_FAULT,
        )
    if status == INTERRUPTED:
        _say("interrupted")
    return status if isinstance(status, int) else DONE


def _failed(message: str, status: int = BAD_INPUT) -> int:
    _say(f"error: {message}")
    return status


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {message}")


def _say(message: str) -> None:
    with suppress(OSError):  # if nobody listens, the status says it
        print(f"godwit: {_one_line(message)}", file=sys.stderr, flush=True)


def _one_line(message: str) -> str:
    """Without line breaks, and without characters that would command a terminal."""
    joined = " ".join(message.split("\n")).replace("\t", " ")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in joined)


def _describe_os_error(error: OSError) -> str:
    if isinstance(error, GodwitError) or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}"


def _discard_stdout() -> None:
    """So that the interpreter does not complain when it flushes at its end."""
    with suppress(OSError, ValueError):  # there may be no real file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
