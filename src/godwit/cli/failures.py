"""Exceptions of a command become an exit status and one line on stderr; so does each warning."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import typer

from godwit.config import launched_rank
from godwit.errors import ConvergenceError, GodwitError, InputError

DONE = 0
INTERNAL_FAULT = 1
BAD_INPUT = 2
NOT_CONVERGED = 3
INTERRUPTED = 130
PIPE_CLOSED = 141

# Typer has copied click's classes; this is the base class in either package.
UsageError: type[Any] = typer.BadParameter.__mro__[1]


class PipeClosedError(Exception):
    """Standard output was closed by its reader; not a BrokenPipeError, which Typer would catch."""


def end_unconverged(message: str) -> NoReturn:
    """End the command, which has written its result, with the status NOT_CONVERGED."""
    _print_line(message)
    raise typer.Exit(NOT_CONVERGED)


def _is_reported_by_first() -> bool:
    """Return True if process 0 of an MPI run reports an error of the command line, which all have.

    That is so in all other processes, until they join (:func:`godwit.distributed.context`).
    """
    if launched_rank() == 0:
        return False
    from godwit.distributed.processes import has_joined

    return not has_joined()


def exit_status(run: Callable[[], Any], *, traceback: bool) -> int:
    """Run a command, report failures, and return its exit status.

    :param traceback: raise unexpected errors
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
        # Rich, which prints help, raises it where a pipe is closed.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _discard_stdout()
        return PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except UsageError as error:
        if _is_reported_by_first():
            return BAD_INPUT
        return _failed(_describe_usage(error))
    except MemoryError as error:
        return _failed(str(error) or "out of memory")
    except OSError as error:
        return _failed(_describe_os_error(error))
    except ConvergenceError as error:
        return _failed(f"{error} (--max-iterations, --tolerance)", NOT_CONVERGED)
    except GodwitError as error:
        if isinstance(error, InputError) and _is_reported_by_first():
            return BAD_INPUT
        notes = getattr(error, "__notes__", [])  # in which process, of several
        return _failed(" ".join([str(error), *(f"({note})" for note in notes)]))
    except Exception as error:
        if traceback:
            raise
        return _failed(
            f"internal error, please report it: {type(error).__name__}: {error} "
            "(godwit --traceback COMMAND ... shows where)",
            INTERNAL_FAULT,
        )
    if status == INTERRUPTED:
        _print_line("interrupted")
    return status if isinstance(status, int) else DONE


def _describe_usage(error: Any) -> str:
    """Return the message of a UsageError, with the option that is meant by an unknown one, and a hint."""
    message: str = error.format_message().rstrip(".")
    context = error.ctx
    if context is None:
        return message
    if hasattr(error, "possibilities"):  # NoSuchOption
        from godwit.public import argument_meant

        options = {
            option.removeprefix("--").replace("-", "_"): option
            for parameter in context.command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--")
        }
        meant = argument_meant(error.option_name.lstrip("-").replace("-", "_"), options)
        message = error.message + (f". Did you mean {options[meant]}?" if meant else "")
    return f"{message} (see '{context.command_path} --help')"


def _failed(message: str, status: int = BAD_INPUT) -> int:
    _print_line(f"error: {message}")
    return status


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _print_line(f"warning: {message}")


def _print_line(message: str) -> None:
    line = printable(message.replace("\n", " ").replace("\t", " "))
    with suppress(OSError):  # of a closed stderr
        print(f"godwit: {line}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return a text with escapes in place of control characters, which might command a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _describe_os_error(error: OSError) -> str:
    if isinstance(error, GodwitError) or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}"


def _discard_stdout() -> None:
    """Replace standard output, which the interpreter flushes when it ends."""
    with suppress(OSError, ValueError):  # of a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
