"""Cases in a process of their own, which may crash, hang or fill its memory without harm to the harness."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from godwit.errors import DirectionWarning, LostDataWarning

from .report import Report

CASE_LIMIT_S = 120.0
"""A case that takes longer hangs: compiling for a new dtype takes up to a minute on a busy machine."""
_CASES_PER_PROCESS = 1000
_MOST_RESIDENT_BYTES = 1 << 31
_GRACE_S = 10.0
_POLL_S = 0.2

stopping = threading.Event()
"""Set when all parts are to end, as by Ctrl-C."""


def run_cases(part: str, seed: int, seconds: float, last: float = math.inf) -> Report:
    """Try cases of a part, one after the other from 0 on, until the time is over.

    :param part: name of a module of this package that has ``case(seed, number)``
    :param last: number of cases to end before
    """
    report = Report(part)
    deadline = time.monotonic() + seconds
    number = 0
    while number < last and time.monotonic() < deadline and not stopping.is_set():
        number = _watch(report, seed, number, deadline, last)
    return report


def _watch(report: Report, seed: int, number: int, deadline: float, last: float) -> int:
    """Try cases from a number on in one process; return the number to go on with."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    end = min(last, number + _CASES_PER_PROCESS)
    arguments = (report.part, seed, number, end, deadline - time.monotonic(), sender)
    process = context.Process(target=_work, args=arguments, daemon=True)
    process.start()
    sender.close()
    begin, is_done = time.monotonic(), False
    try:
        while True:
            if receiver.poll(_POLL_S):
                done, kind, wrong = receiver.recv()
                report.count(kind)
                if wrong is not None:
                    report.fail(kind, _reproduce(report.part, seed, done), wrong)
                number, begin = done + 1, time.monotonic()
                continue
            now = time.monotonic()
            if stopping.is_set() or now > deadline + _GRACE_S:
                return number
            if now - begin > CASE_LIMIT_S:
                message = f"no end after {CASE_LIMIT_S:g} s"
                report.fail("hang", _reproduce(report.part, seed, number), message)
                return number + 1
    except EOFError:
        process.join(_GRACE_S)
        is_done = process.exitcode == 0
        if not is_done:
            message = f"the process ended with status {process.exitcode}"
            report.fail("crash", _reproduce(report.part, seed, number), message)
            number += 1
        return number
    finally:
        if not is_done and process.pid is not None:
            with suppress(ProcessLookupError):  # its children, too
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        process.close()
        receiver.close()


def _reproduce(part: str, seed: int, number: int) -> str:
    return f"python -m tests.fuzz --only {part} --seed {seed} --case {number}"


def _work(
    part: str, seed: int, number: int, end: float, seconds: float, connection: Connection
) -> None:
    """Try cases, and send (number, kind, what is wrong) for each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the harness ends its processes itself
    with suppress(PermissionError):
        os.setpgid(0, 0)
    deadline = time.monotonic() + seconds
    module = load(part)
    while number < end and time.monotonic() < deadline and _resident_bytes() < _MOST_RESIDENT_BYTES:
        try:
            connection.send((number, *attempt(module, seed, number)))
        except BrokenPipeError:  # the harness has ended
            return
        number += 1


def load(part: str) -> Any:
    """Import the module of a part; from then on warnings are failures."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", LostDataWarning)  # of a column whose name is damaged
    warnings.simplefilter("ignore", DirectionWarning)  # of an edge that is damaged at one end
    return import_module(f"{__package__}.{part}")


def attempt(module: Any, seed: int, number: int) -> tuple[str, str | None]:
    """Return the kind of a case, and what is wrong; whatever it raises is wrong."""
    try:
        kind, wrong = module.case(seed, number)
    except Exception as error:
        return "exception", raised(error)
    return kind, wrong


def raised(error: Exception) -> str:
    """Return an exception in one line, with the place that raised it."""
    places = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    ours = [one for one in places if "godwit" in one.filename]
    if ours and ours[-1] is not places[-1]:
        place += f" below {Path(ours[-1].filename).name}:{ours[-1].lineno}"
    return f"{type(error).__name__}: {error}{place}"


def _resident_bytes() -> int:
    with suppress(
        OSError
    ):  # not the peak: where a large process started this one, it has that one's
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def run_whole(part: str, seed: int, seconds: float) -> Report:
    """Call the ``run(seed, seconds)`` of a part in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(part, seed, seconds, sender), daemon=True)
    process.start()
    sender.close()
    report = Report(part)
    reproduce = f"python -m tests.fuzz --only {part} --seed {seed} --seconds {seconds:g}"
    deadline = time.monotonic() + seconds + CASE_LIMIT_S
    try:
        while not stopping.is_set():
            if receiver.poll(_POLL_S):
                report = receiver.recv()
                break
            if time.monotonic() > deadline:
                report.fail("hang", reproduce, f"no end {CASE_LIMIT_S:g} s after its time")
                break
    except EOFError:
        process.join(_GRACE_S)
        report.fail("crash", reproduce, f"the process ended with status {process.exitcode}")
    finally:
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        process.close()
        receiver.close()
    return report


def _run(part: str, seed: int, seconds: float, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(PermissionError):
        os.setpgid(0, 0)
    connection.send(load(part).run(seed, seconds))
