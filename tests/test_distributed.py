"""Graphs on the processes of an MPI run: they compute what one process computes, and end together."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.distributed.graph import balanced_bounds
from godwit.distributed.place import bounds_of_rows
from godwit.worker.cpu import vertex_set
from godwit.worker.cpu.bins import bucket_of
from waiting import HANG_S

_BESIDE = str(Path(sys.executable).parent)
MPIEXEC = shutil.which("mpiexec", path=f"{_BESIDE}{os.pathsep}{os.environ.get('PATH', '')}")
CHECKS = Path(__file__).with_name("distributed_checks.py")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="no MPI: mpi4py or mpiexec is not installed (pip install mpi4py mpich)",
)
pytestmark = pytest.mark.xdist_group("mpi")  # processes that wait for each other need cores


def start(
    processes: int, *command: str, threads: int = 1, two_machines: bool = False
) -> subprocess.Popen[str]:
    """Start a command on several processes, by MPICH as if they were on two machines."""
    assert MPIEXEC is not None
    environment = {
        **os.environ,
        "GODWIT_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join([str(CHECKS.parent), os.environ.get("PYTHONPATH", "")]),
        # Open MPI refuses to run as root, and more processes than cores.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        # MPICH takes processes of odd and of even numbers for those of two machines.
        "MPIR_CVAR_ODD_EVEN_CLIQUES": str(int(two_machines)),
    }
    return subprocess.Popen(
        [MPIEXEC, "-n", str(processes), *command],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(processes: int, *command: str, **options: Any) -> tuple[int, str, str]:
    """Run a command on several processes; return exit status, output and errors."""
    with start(processes, *command, **options) as started:
        output, errors = started.communicate(timeout=HANG_S)
        return started.returncode, output, errors


def check(processes: int, checks: str, folder: Path, **options: Any) -> str:
    """Run checks of distributed_checks.py, which all must pass; return the output."""
    status, output, errors = run(
        processes, sys.executable, str(CHECKS), checks, str(folder), **options
    )
    assert status == 0, errors
    assert "done" in output.splitlines(), errors  # MPI may print warnings at the end
    assert "not matched" not in errors  # UCX's, of messages that nobody has received
    return output


@needs_mpi
def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    ranks = set()
    for processes, checks, options in (
        (1, "results", {}),
        (2, "results,errors,random", {"threads": 2}),
        (3, "results,files", {"two_machines": True}),
    ):
        folder = tmp_path / str(processes)
        folder.mkdir()
        output = check(processes, checks, folder, **options)
        ranks.add(re.findall("ranks (.*)", output)[0])
    assert len(ranks) == 1  # bit by bit


@needs_mpi
def test_pagerank_goes_on_from_the_state_of_any_number_of_processes(tmp_path: Path) -> None:
    ranks = set()
    for processes in (2, 1, 3):  # each goes on from the state of the one before
        folder = tmp_path / str(processes)
        folder.mkdir()
        output = check(processes, "checkpoints", folder, two_machines=processes == 3)
        ranks.add(re.findall("ranks (.*)", output)[0])
    assert len(ranks) == 1  # bit by bit


@needs_mpi
@pytest.mark.parametrize(
    ("processes", "threads"),
    [
        (1, 2),
        pytest.param(2, 2, marks=pytest.mark.thorough),
        (3, 1),
        pytest.param(4, 1, marks=pytest.mark.thorough),
    ],
)
def test_programs_of_users(processes: int, threads: int, tmp_path: Path) -> None:
    check(processes, "programs,steps", tmp_path, threads=threads)


@needs_mpi
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raise", "godwit: process 1 of 2: ZeroDivisionError: of a user"),
        ("exit", "process 1 ended while this one ran"),
    ],
)
def test_all_end_if_one_does(name: str, message: str, tmp_path: Path) -> None:
    status, _, errors = run(2, sys.executable, str(CHECKS), name, str(tmp_path))
    assert status != 0
    assert message in errors


@needs_mpi
@pytest.mark.parametrize("kill", range(int(os.environ.get("GODWIT_KILLS", "1"))))
def test_all_end_if_one_is_killed(kill: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(kill)
    with start(3, sys.executable, str(CHECKS), "kill", str(tmp_path)) as started:
        begins: list[float] = []
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            if (tmp_path / f"ranks {len(begins) + 1}").exists():
                begins.append(time.monotonic())  # of ranking in the second round, and the third
            if len(begins) == 2 or started.poll() is not None:
                break
            time.sleep(0.01)
        assert len(begins) == 2
        time.sleep(generator.random() * (begins[1] - begins[0]))  # at any moment of a round
        pids = [int((tmp_path / f"{rank}.pid").read_text()) for rank in range(3)]
        killed = int(generator.integers(3))
        os.kill(pids[killed], signal.SIGKILL)
        begin = time.monotonic()
        started.communicate(timeout=HANG_S)
        took_s = time.monotonic() - begin
    doing = (tmp_path / f"{killed}.doing").read_text()
    print(f"kill {kill}: process {killed} in {doing}: all ended after {took_s:.2f} s")
    assert started.returncode != 0
    assert took_s < 60  # they look for each other every quarter of a second
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    check(1, "killed", tmp_path)


@needs_mpi
def test_the_command_line_joins_by_itself(tmp_path: Path) -> None:
    godwit = str(Path(sys.executable).with_name("godwit"))
    file, output = tmp_path / "edges.txt", tmp_path / "distances.npy"
    graph = gw.generators.road(40, 50, weights=(1, 9)).largest_component().with_ids(0)
    gw.write(graph, file.with_suffix(".wel"))
    file.with_suffix(".wel").rename(file)
    status, printed, errors = run(
        2, godwit, "sssp", str(file), "-s", "max-degree", "-t", "1500", "--json", "-o", str(output)
    )
    assert status == 0, errors
    facts = json.loads(printed)  # of one process alone
    source = graph.highest_degree_vertex()
    expected = gw.sssp(graph, source, target=1500)
    np.testing.assert_array_equal(np.load(output), expected.distance)
    assert facts["statistics"]["processes"] == 2
    assert facts["reached_vertices"] == int(expected.reached.sum())
    assert facts["sources"] == [source]
    assert facts["target"] == {
        "vertex": 1500,
        "distance": int(expected.distance[1500]),
        "path": expected.path_to(1500),
    }
    table = tmp_path / "distances.csv"
    status, printed, errors = run(
        2, godwit, "bfs", str(file), "-s", str(source), "--predecessors", "-o", str(table)
    )
    assert status == 0, errors
    assert "supersteps" in printed + errors
    alone, *rows = table.read_text().splitlines()
    whole = gw.bfs(graph, source).to_arrow().to_pylist()
    assert alone == "vertex,distance,predecessor"
    assert rows == [
        ",".join("" if value is None else str(value) for value in row.values()) for row in whole
    ]
    status, printed, errors = run(
        2,
        godwit,
        "betweenness",
        "rmat:6",
        "-s",
        "max-degree",
        "-s",
        "3",
        "--json",
        "-o",
        str(output),
    )
    assert status == 0, errors
    small = gw.generators.rmat(6)
    sources = [small.highest_degree_vertex(), 3]
    expected_scores = gw.betweenness_centrality(small, sources=sources).centrality
    np.testing.assert_allclose(np.load(output), expected_scores, rtol=1e-12)
    assert json.loads(printed)["sources"] == 2


@needs_mpi
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bfs rmat:4 -s 0 --cutoff x", "cutoff must be"),
        ("info rmat:4", "godwit info runs in one"),
        # As cutoff, but for the text:
        pytest.param("bfs rmat:4 -s 0 --timeout -1", "timeout must be", marks=pytest.mark.thorough),
        pytest.param("bfs rmat:4", "Missing option '--source'", marks=pytest.mark.thorough),
    ],
)
def test_one_process_prints_what_is_wrong_in_a_command(command: str, message: str) -> None:
    godwit = str(Path(sys.executable).with_name("godwit"))
    status, _, errors = run(2, godwit, *command.split())
    assert status == 2
    assert errors.count(message) == 1


@needs_mpi
def test_examples_in_docstrings() -> None:
    code = (
        "import doctest, importlib\n"
        "for name in ('distributed', 'distributed.processes', 'distributed.result',\n"
        "             'algorithms.components.distributed'):\n"
        "    failed, tried = doctest.testmod(importlib.import_module(f'godwit.{name}'))\n"
        "    assert tried and not failed\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_mpi
def test_importing_godwit_imports_no_mpi() -> None:
    code = "import godwit, sys; godwit.distributed; godwit.bfs; assert 'mpi4py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bounds_are_balanced_and_begin_at_words() -> None:
    graph = gw.generators.rmat(12)
    for parts in (1, 2, 3, 7):
        bounds = bounds_of_rows(graph.offsets, parts)
        assert len(bounds) == parts + 1
        assert bounds[0] == 0
        assert bounds[-1] == graph.vertex_count
        assert (np.diff(bounds) >= 0).all()
        assert not (bounds[:-1] % 64).any()
        arcs = np.diff(graph.offsets[bounds])
        assert arcs.max() < 1.3 * arcs.mean()
    assert balanced_bounds(np.array([0]), np.array([0]), 0, 3).tolist() == [0, 0, 0, 0]


def test_without_mpi_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from godwit.distributed import processes

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(processes, "_processes", None)
    with pytest.raises(gw.errors.DeviceError, match=r"godwit\[mpi\]"):
        gw.distributed.context()


@pytest.mark.parametrize(
    "scaled", [-1e300, -7.5, 0.0, 3.0, 1e15, 2.0**59, 1e18, 1e300, np.inf, np.nan]
)
def test_a_priority_is_due_with_its_bucket_and_not_before(scaled: float) -> None:
    bucket = int(bucket_of(scaled, 1.0))
    assert not scaled >= vertex_set.end_of_bucket(bucket)
    if -1e15 < bucket < 1e15:
        assert scaled >= vertex_set.end_of_bucket(bucket - 1)
