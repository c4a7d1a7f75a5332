"""Try random cases of every part for some time; exit status 1 if one fails."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time

from . import watch
from .report import Report

PARTS = ("graphs", "files", "arguments", "signals")
NUMBERED = ("graphs", "files", "signals")
"""Parts with ``case(seed, number)``."""


def main(arguments: list[str] | None = None) -> int:
    """Run the harness; return the exit status."""
    given = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    parts = [part for part in PARTS if given.only is None or part in given.only]
    if given.case is not None:
        return _one_case(parts[0], seed, given.case)
    before = dict(os.environ)
    # What killed processes leave behind goes with this folder.
    with tempfile.TemporaryDirectory(prefix="godwit-fuzz-") as folder:
        os.environ["TMPDIR"] = folder
        try:
            return _run_all(parts, seed, given.seconds)
        finally:
            os.environ.clear()
            os.environ.update(before)


def _run_all(parts: list[str], seed: int, seconds: float) -> int:
    """Run parts side by side; return the exit status."""
    print(f"fuzz: --seed {seed} --seconds {seconds:g} --only {','.join(parts)}", flush=True)
    begin = time.monotonic()
    reports: dict[str, Report] = {}
    threads = [threading.Thread(target=_run, args=(part, seed, seconds, reports)) for part in parts]
    interrupted = False
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt:
        interrupted = True
        watch.stopping.set()
        for thread in threads:
            thread.join()
    for part in parts:
        print(reports[part].text())
    failures = sum(len(report.failures) for report in reports.values())
    cases = sum(sum(report.counts.values()) for report in reports.values())
    took = time.monotonic() - begin
    print(
        f"fuzz: {cases:,} cases, {failures:,} failures in {took:.0f} s (--seed {seed})", flush=True
    )
    if interrupted:
        return 130
    return 1 if failures else 0


def _run(part: str, seed: int, seconds: float, reports: dict[str, Report]) -> None:
    reports[part] = Report(part)
    try:
        run = watch.run_cases if part in NUMBERED else watch.run_whole
        reports[part] = run(part, seed, seconds)
    except Exception as error:  # a fault of the harness
        reports[part].fail("harness", f"--only {part} --seed {seed}", repr(error))


def _one_case(part: str, seed: int, number: int) -> int:
    module = watch.load(part)
    if hasattr(module, "describe"):
        print(module.describe(seed, number))
    kind, wrong = module.case(seed, number)
    print(f"{part}, case {number}, {kind}: {'right' if wrong is None else wrong}")
    return 0 if wrong is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="for all parts, side by side")
    parser.add_argument("--seed", type=int, help="drawn, and printed, if it is not given")
    parser.add_argument("--only", type=_parts, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--case", type=int, help="try only this case of the part named by --only")
    return parser


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    if not set(parts) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(PARTS)}, got {text!r}")
    return parts


if __name__ == "__main__":
    # Also where a shell that runs this in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
