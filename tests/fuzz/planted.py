"""Cases with faults that the tests of the harness plant."""

from __future__ import annotations

import os
import signal
import time
import warnings


def case(seed: int, number: int) -> tuple[str, str | None]:
    """Crash, hang or raise, depending on the number."""
    match number:
        case 2:
            os._exit(7)
        case 4:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 6:
            time.sleep(1000)
        case 8:
            raise ZeroDivisionError(f"seed {seed}")
        case 9:
            warnings.warn("planted", RuntimeWarning, stacklevel=1)
    return "sound", None
