"""The command ``godwit``: parse, call the public functions, render.

Exit statuses: 0 done; 1 a fault of Godwit's own; 2 bad input, a run out of time, a failed check, a
full disk; 3 not converged, the result being where it was wanted; 130 interrupted; 141 the reader of our
output went away; 143 terminated. Whatever goes wrong is one line on stderr, and leaves no half-written
file behind. Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130
_TERMINATED = 143
_INSIST_S = 3.0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; the arguments are those of the process by default."""
    _open_what_is_closed()
    from godwit.cli.application import command

    run = command()
    # A clean way out, by which temporary files are removed and devices stop.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt_on_signal)
    _insist_on_signals()
    try:
        run.main(args=arguments, prog_name="godwit")
    except KeyboardInterrupt:  # on its way out
        print("godwit: interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    raise AssertionError("the command always exits")


def _open_what_is_closed() -> None:
    """Where standard output or error is closed (``>&-``), nobody wants it: that is no fault of ours.

    Closed standard input is empty; else it would be whatever is opened next.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(_TERMINATED)


def _interrupt_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _insist_on_signals() -> None:
    """Send signals again to a main thread that is still there after a while.

    Python loses one that comes right before a read that blocks, or to another thread, as nothing wakes
    the main thread then; and one while an object is being finalized, where exceptions are printed and
    forgotten. Whatever comes, Python's own handler in C writes its number to a pipe.
    """
    if not hasattr(signal, "pthread_kill"):
        return
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def insist() -> None:
        while True:
            number = os.read(reader, 1)[0]
            if number in (signal.SIGINT, signal.SIGTERM):
                time.sleep(_INSIST_S)
                signal.pthread_kill(main_thread, number)

    threading.Thread(target=insist, daemon=True).start()
