"""Processes: exceptions that travel between them, children that run nothing foreign and end in time."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import godwit as gw
from godwit import errors
from godwit.graph.partition import metis
from waiting import HANG_S

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and PR_SET_PDEATHSIG are Linux'")


def all_kinds() -> Iterator[type[errors.GodwitError]]:
    kinds = [errors.GodwitError]
    for kind in kinds:
        yield kind
        kinds += kind.__subclasses__()


def one_of(kind: type[errors.GodwitError]) -> errors.GodwitError:
    if issubclass(kind, errors.FormatError):
        return kind("./some/file.el", "not a number", line=7, text="1 x\n")
    if issubclass(kind, errors.CycleError):
        return kind("Ulm", "an order")
    if issubclass(kind, errors.ConvergenceError):
        return kind("Katz centrality", 100, 0.5, 1e-6)
    return kind("what is wrong, and what would work")


@pytest.mark.parametrize("kind", list(all_kinds()), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_exceptions_are_the_same_after_pickle_and_copy(
    kind: type[errors.GodwitError], protocol: int
) -> None:
    error = one_of(kind)
    for other in (
        pickle.loads(pickle.dumps(error, protocol)),
        copy.copy(error),
        copy.deepcopy(error),
    ):
        assert type(other) is kind
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def test_a_pool_hands_on_what_reading_raised(tmp_path: Path) -> None:
    bad = tmp_path / "bad.el"
    bad.write_text("0 1\n1 x\n")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.map_async(gw.read, [str(bad)])
        with pytest.raises(errors.FormatError, match=r"bad\.el:2: "):
            result.get(timeout=HANG_S)


@linux
def test_a_file_gets_the_permissions_of_the_umask_and_others_never_see_another(
    tmp_path: Path,
) -> None:
    """A thread creates files while another writes graphs; both have the permissions of the mask."""
    program = """
import os, sys, threading
from godwit.files import replacing
os.umask(0o027)
wrong, end = set(), threading.Event()
def create():
    while not end.is_set():
        number = os.open("beside", os.O_CREAT | os.O_WRONLY, 0o666)
        wrong.add(os.fstat(number).st_mode & 0o777)
        os.close(number)
        os.unlink("beside")
thread = threading.Thread(target=create)
thread.start()
for number in range(300):
    with replacing(f"out{number}") as file:
        file.write(b"x")
    wrong.add(os.stat(f"out{number}").st_mode & 0o777)
end.set()
thread.join()
print(sorted(map(oct, wrong)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("['0o640']", "")


@pytest.fixture
def big_graph() -> gw.Graph:
    graph = gw.generators.grid(1000, 1000)
    assert graph.arc_count > metis.CHILD_ARCS
    return graph


@pytest.mark.skipif(sys.platform != "linux", reason="pymetis is required on Linux only")
def test_no_module_of_the_working_directory_runs(tmp_path: Path) -> None:
    for name in ("numpy", "pymetis", "godwit", "json", "tempfile"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')"
        )
    program = (
        "import sys; del sys.path[0]; import pymetis, godwit as gw, godwit.graph.partition.metis;"
        "graph = gw.generators.grid(1000, 1000);"
        "sys.path.insert(0, ''); print(gw.partition(graph, 2, 'metis'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "godwit", "--version"], cwd=tmp_path.parent, capture_output=True,
        text=True, timeout=HANG_S, check=True,
    )  # fmt: skip
    assert done.stdout.strip()


def test_the_child_computes_what_a_call_does(big_graph: gw.Graph) -> None:
    offsets, targets = big_graph.offsets, big_graph.targets
    work = np.ones(big_graph.vertex_count, np.int64)
    inside = metis._in_process(offsets, targets, work, 3, 1)
    assert np.array_equal(metis.least_volume(offsets, targets, work, 3, 1), inside)


@linux
def test_the_child_ends_with_its_parent_and_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import godwit as gw; graph = gw.generators.grid(2000, 2000); print(flush=True);"
        "gw.partition(graph, 8, 'metis')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        parent.stdout.readline()
        child = wait_for(lambda: children(parent.pid))[0]
        parent.kill()
        parent.wait()
        wait_for(lambda: not Path(f"/proc/{child}").exists() or state(child) == "Z")
    assert list(tmp_path.iterdir()) == []


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
def test_an_early_signal_ends_the_command_in_one_line(
    number: signal.Signals, after_s: float
) -> None:
    command = [sys.executable, "-c", "from _godwit_command import main; main()"]
    arguments = ["components", "rmat:22", "--devices", "cpu"]
    with subprocess.Popen(
        command + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_for(lambda: catches(process.pid, signal.SIGTERM))
        time.sleep(after_s)
        process.send_signal(number)
        output, messages = process.communicate(timeout=HANG_S)
    expected = "godwit: interrupted\n" if number == signal.SIGINT else ""
    assert (process.returncode, output, messages) == (128 + number, "", expected)


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_an_import_waits_for_its_end(
    number: signal.Signals, tmp_path: Path
) -> None:
    """A library in C that is interrupted while it imports another would print, and raise ImportError."""
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\n"
        f"os.kill(os.getpid(), {int(number)})\n"
        "try:\n    time.sleep(0.2)\nexcept BaseException:\n    raise ImportError from None\n"
    )
    program = (
        "import godwit.cli as cli\n"
        "from godwit.cli import application\n"
        "class Run:\n"
        "    def main(self, **named):\n"
        "        import slow\n"
        "        import time\n"
        "        time.sleep(20)\n"
        "application.command = Run\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    expected = "godwit: interrupted\n" if number == signal.SIGINT else ""
    assert (done.returncode, done.stderr) == (128 + number, expected)


def test_handlers_stand_before_anything_is_imported() -> None:
    program = (
        "import sys, _godwit_command;"
        "print([name for name in ('godwit', 'typer', 'rich', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def wait_for(condition: object, timeout_s: float = 60.0) -> list[int]:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found  # type: ignore[no-any-return]
        time.sleep(0.001)
    raise AssertionError("it did not come")


def children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]


def catches(process: int, number: int) -> bool:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
