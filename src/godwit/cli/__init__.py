"""The command ``godwit``: parse arguments, call the public functions, print tables or JSON.

Exit statuses: 0 done; 1 internal error; 2 bad input, a run out of time, a failed verification, a full disk;
3 not converged, though the result is written; 130 interrupted; 141 standard output was closed by its
reader; 143 terminated. An error is one line on stderr, and leaves no incomplete file. Each command imports
the large libraries that it needs, so that ``--help`` is quick.
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
_RESEND_S = 3.0
_DEFERRED_S = 0.02


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; the arguments are those of the process by default."""
    _open_standard_streams()
    from godwit.cli.ahead import search_ahead

    with search_ahead(sys.argv[1:] if arguments is None else arguments):
        from godwit.cli.application import command

        run = command()
        # Exceptions remove temporary files and stop the devices.
        signal.signal(signal.SIGTERM, _exit_on_signal)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, _interrupt_on_signal)
        _resend_signals()
        try:
            run.main(args=arguments, prog_name="godwit")
        except KeyboardInterrupt:  # while the command exits
            print("godwit: interrupted", file=sys.stderr)
            sys.exit(_INTERRUPTED)
    raise AssertionError("the command always exits")


def _open_standard_streams() -> None:
    """Open ``/dev/null`` in place of standard streams that are closed (``>&-``).

    A closed standard input would else be the file that is opened next.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    if not _deferred(number, frame):
        sys.exit(_TERMINATED)


def _interrupt_on_signal(number: int, frame: FrameType | None) -> None:
    if not _deferred(number, frame):
        raise KeyboardInterrupt


def _deferred(number: int, frame: FrameType | None) -> bool:
    """Return True if a module is being imported, and send the signal again a little later.

    Libraries in C that are interrupted while they import others print a traceback, and raise ImportError.
    """
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None or not hasattr(signal, "pthread_kill"):
        return False
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    again = threading.Timer(_DEFERRED_S, signal.pthread_kill, (main_thread, number))
    again.daemon = True
    again.start()
    return True


def _resend_signals() -> None:
    """Send a signal to the main thread again if the process still runs seconds later.

    Python loses a signal that arrives right before a read that blocks, or at another thread, because
    nothing wakes the main thread; and one that arrives while an object is finalized, where exceptions are
    printed and dropped. In all cases Python's handler in C writes the number of the signal to a pipe.
    """
    if not hasattr(signal, "pthread_kill"):
        return
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def resend() -> None:
        while True:
            number = os.read(reader, 1)[0]
            if number in (signal.SIGINT, signal.SIGTERM):
                time.sleep(_RESEND_S)
                signal.pthread_kill(main_thread, number)

    threading.Thread(target=resend, daemon=True).start()
