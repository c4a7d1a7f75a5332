"""Entry point of the command ``godwit``: set handlers of signals, then import everything else.

It is a package of its own because importing a module of ``godwit`` runs ``godwit/__init__.py`` first.
"""

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line with the arguments of the process, and exit."""
    # godwit.cli.main replaces both by handlers that clean up. SIGTERM's is set last: then both are set.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    from godwit.cli import main as run

    run()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once: while modules are imported there is nothing to clean up."""
    if number == signal.SIGINT:
        os.write(2, b"godwit: interrupted\n")
    os._exit(128 + number)
