"""Signals at random moments of commands: SIGINT, SIGTERM, SIGKILL.

A command ends by the documented status, with no traceback; its output is what was there before or all of
what it writes; nothing is left beside it or in the temporary folder; no child lives on.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

_COMMANDS = {
    "generate": ("generate", "rmat:13,weights=1..64", "{out}.godwit"),
    "convert": ("convert", "{graph}", "{out}.wel.gz"),
    "convert to zstd": ("convert", "{graph}", "{out}.gr.zst"),
    "sssp": ("sssp", "{graph}", "--source", "max-degree", "--output", "{out}.npy"),
    "bfs": ("bfs", "{graph}", "-s", "1", "--devices", "cpu:0,cpu:1", "-o", "{out}.parquet"),
    "components": ("components", "{graph}", "--output", "{out}.csv"),
    "streamed components": ("components", "{graph}", "--stream", "--output", "{out}.npy"),
    "filter": ("filter", "{values}", "x > 0.5", "--output", "{out}.npy"),
    "partition": ("partition", "{graph}", "--parts", "3", "--method", "metis", "-o", "{out}.npy"),
}
_STATUSES = {
    signal.SIGINT: (0, 130),
    signal.SIGTERM: (0, 143),
    signal.SIGKILL: (0, -signal.SIGKILL),
}
_LIMIT_S = 100.0
_END_S = 10.0
_CHILDREN_S = 5.0
_POLL_S = 0.005
_EARLY = 0.2
_OLD = b"what was there before"


def case(seed: int, number: int) -> tuple[str, str | None]:
    """Try one case."""
    generator = random.Random(f"signals {seed} {number}")
    name = generator.choice(sorted(_COMMANDS))
    sent = generator.choice(sorted(_STATUSES))
    usual_s, whole = _usual(name)
    share, is_early = generator.random(), generator.random() < _EARLY
    delay_s = 0.3 * share if is_early else 1.1 * usual_s * share
    is_old = generator.random() < 0.5
    with tempfile.TemporaryDirectory(prefix="godwit-fuzz-") as text:
        folder = Path(text)
        out = folder / "out" / _output(name).name
        for path in (folder / "out", folder / "tmp"):
            path.mkdir()
        if is_old:
            out.write_bytes(_OLD)
        begin = time.monotonic()
        process = _start(name, folder, f"{seed}-{number}-{os.getpid()}")
        try:
            # Before the command has its handlers, a signal ends it as the system does.
            while not is_early and process.poll() is None and not _handles_signals(process.pid):
                time.sleep(_POLL_S)
            time.sleep(max(0.0, begin + delay_s - time.monotonic()))
            # Ctrl-C reaches a foreground group, kill one process.
            if process.poll() is None:
                handled = _handles_signals(process.pid)
                process.send_signal(sent)
            else:
                handled = True
            try:
                _, errors = process.communicate(timeout=_END_S if handled else _LIMIT_S)
            except subprocess.TimeoutExpired:
                return (
                    sent.name,
                    f"{name} has not ended {_END_S:g} s after {sent.name} at {delay_s:.3f} s",
                )
            wrong = _wrong(sent, process.returncode, errors.decode(errors="replace"), handled)
            wrong = wrong or _wrong_output(out, whole, is_old) or _left(folder, out)
            wrong = wrong or _living(f"{seed}-{number}-{os.getpid()}")
        finally:
            process.kill()
            process.communicate()
            for child in _children(f"{seed}-{number}-{os.getpid()}"):
                os.kill(child, signal.SIGKILL)
    return (
        sent.name,
        None if wrong is None else f"{name}, {sent.name} after {delay_s:.3f} s: {wrong}",
    )


def _wrong(sent: signal.Signals, status: int, errors: str, handled: bool) -> str | None:
    if not handled:
        return None
    if status not in _STATUSES[sent]:
        return f"exit status {status}, stderr {errors[-300:]!r}"
    if "Traceback" in errors or errors.count("\n") > 1:
        return f"stderr {errors[-300:]!r}"
    return None


def _wrong_output(out: Path, whole: bytes, is_old: bool) -> str | None:
    if not out.exists():
        return "the old output is gone" if is_old else None
    content = out.read_bytes()
    if content == whole or (is_old and content == _OLD):
        return None
    return f"{out.name} has {len(content)} bytes, neither the old ones nor the new {len(whole)}"


def _left(folder: Path, out: Path) -> str | None:
    left = [path for path in folder.rglob("*") if path.is_file() and path != out]
    return f"left behind: {', '.join(path.name for path in left)}" if left else None


def _living(mark: str) -> str | None:
    deadline = time.monotonic() + _CHILDREN_S
    while children := _children(mark):
        if time.monotonic() > deadline:
            return f"{len(children)} children live on"
        time.sleep(0.05)
    return None


def _children(mark: str) -> list[int]:
    """Return the processes that have the mark in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                environment = (path / "environ").read_bytes()
            except OSError:  # ended, or of another user
                continue
            if f"GODWIT_FUZZ={mark}\0".encode() in environment:
                found.append(int(path.name))
    return found


def _handles_signals(process: int) -> bool:
    """Return whether a process has handlers for SIGINT and SIGTERM."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return all(caught >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM))


def _start(name: str, folder: Path, mark: str) -> subprocess.Popen[bytes]:
    out = folder / "out" / "out"
    arguments = [
        text.format(out=out, graph=_inputs() / "graph.gr", values=_inputs() / "values.npy")
        for text in _COMMANDS[name]
    ]
    environment = os.environ | {"GODWIT_FUZZ": mark, "TMPDIR": str(folder / "tmp")}
    return subprocess.Popen(
        [sys.executable, "-m", "godwit", *arguments, "-q"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip


def _output(name: str) -> Path:
    return Path(next(text for text in _COMMANDS[name] if "{out}" in text).format(out="out"))


@cache
def _inputs() -> Path:
    """Return a folder with what commands read."""
    import numpy as np

    import godwit as gw

    folder = Path(tempfile.mkdtemp(prefix="godwit-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    gw.write(gw.generate("rmat:13,weights=1..64"), folder / "graph.gr")
    np.save(folder / "values.npy", np.random.default_rng(1).random(1_000_000))
    return folder


@cache
def _usual(name: str) -> tuple[float, bytes]:
    """Return how long a command takes undisturbed, and what it writes."""
    with tempfile.TemporaryDirectory(prefix="godwit-fuzz-") as text:
        folder = Path(text)
        for path in (folder / "out", folder / "tmp"):
            path.mkdir()
        begin = time.monotonic()
        _, errors = _start(name, folder, "usual").communicate(timeout=_LIMIT_S)
        seconds = time.monotonic() - begin
        if errors:
            raise RuntimeError(f"{name} says {errors.decode()}")
        return seconds, (folder / "out" / _output(name).name).read_bytes()
