"""Copies by NVSHMEM between GPUs of processes: threads, emulated GPUs and a stand-in for the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit import errors
from godwit.distributed.gpu_copies import NvshmemCopies
from godwit.distributed.gpu_processes import GpuProcesses
from godwit.distributed.processes import Processes
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.transfer.nvshmem import SymmetricMemory
from pretend_nvshmem import pretended_nvshmem
from process_threads import run_processes
from programs import FEWEST_HOPS
from step_programs import COMPONENTS
from test_distributed_gpus import emulates

pytestmark = emulates

ROUNDS = 12


def _copies(count: int, seed: int) -> None:
    """Copy random spans between processes in several rounds; compare what arrives with what was sent."""

    def run(processes: Processes) -> None:
        gpus = GpuProcesses(processes, gw.all_devices()[processes.rank], "nvshmem")
        assert isinstance(gpus.copies, NvshmemCopies)
        own = processes.rank
        others = sorted(set(range(count)) - {own})
        random = np.random.default_rng([seed, own])
        with processes.running("copies"), Buffer(own, 4096) as buffer, Buffer(own, 4096) as room:
            for turn in range(ROUNDS):
                values = random.integers(0, 256, 4096, np.uint8)
                buffer.upload(values)
                room.fill_bytes(0)
                # They grow: mailboxes are exchanged for larger ones between rounds.
                same = np.random.default_rng([seed, turn])
                sizes = same.integers(0, 1 << (turn % 9 + 1), (count, count, 2))
                begins = random.integers(0, 2048, (count, 2))
                sent: list[Any] = [[] for _ in range(count)]
                into: list[Any] = [[] for _ in range(count)]
                place = 0
                for other in others:
                    for begin, nbytes in zip(begins[other], sizes[own, other], strict=True):
                        sent[other].append((buffer.pointer + int(begin), int(nbytes)))
                    total = int(sizes[other, own].sum())
                    for nbytes in (total // 3, total - total // 3):
                        into[other].append((room.pointer + place, nbytes))
                        place += nbytes
                parts = [
                    [values[b : b + n] for b, n in zip(begins[to], sizes[own, to], strict=True)]
                    for to in range(count)
                ]
                told = processes.share(parts)
                expected = [part for other in others for part in told[other][own]]
                gpus.copy(sent, into)
                found = room.download(np.uint8, 4096)
                np.testing.assert_array_equal(found[:place], np.concatenate(expected))
                assert not found[place:].any()
        gpus.close()

    with emulated_gpus(count) as machine, pretended_nvshmem(count, seed=seed):
        run_processes(machine, count, run)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_all_arrives_where_it_belongs(count: int, seed: int) -> None:
    _copies(count, seed)


def test_copies_that_are_not_waited_for_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SymmetricMemory, "complete", lambda *_: None)
    with pytest.raises(AssertionError):
        _copies(2, 1)


@pytest.mark.parametrize(
    "spec", ["rmat:7,seed=2,weights=1..9", "road:9x11,weights=1..9", "star:30"]
)
def test_answers_are_those_of_mapped_memory(spec: str) -> None:
    graph = gw.generate(spec)

    def run(processes: Processes) -> dict[str, Any]:
        answers = {}
        for transport in ("direct", "nvshmem"):
            with processes.place(graph, devices="cuda", transport=transport) as placed:  # type: ignore[call-overload]
                assert placed.transport == transport
                answers[transport] = [
                    gw.bfs(placed, 1).distance,
                    gw.sssp(placed, 1).distance,
                    gw.connected_components(placed, merge="tree").label,
                    gw.pagerank(placed, max_iterations=4).rank,
                    gw.betweenness_centrality(placed, sources=[0, 3], weighted=False).centrality,
                    gw.run(FEWEST_HOPS, placed, {0: 0}).values,
                    COMPONENTS.run(placed).fields["label"],
                ]
        return answers

    with emulated_gpus(2) as machine, pretended_nvshmem(2):
        for answers in run_processes(machine, 2, run):
            for direct, copied in zip(answers["direct"], answers["nvshmem"], strict=True):
                np.testing.assert_array_equal(direct, copied)


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("fails", ["load", "begin"])
def test_where_it_does_not_begin_in_one_process_all_say_so(fails: str, by: int) -> None:
    def run(processes: Processes) -> str:
        with pytest.raises(errors.DeviceError, match="NVSHMEM"):
            processes.place("path:9", devices="cuda", transport="nvshmem")
        with processes.place("path:9", devices="cuda") as placed:
            assert gw.bfs(placed, 8).distance.tolist() == [8 - v for v in placed.vertices]
            return placed.transport

    with emulated_gpus(2) as machine, pretended_nvshmem(2, fails=fails, by=by):
        assert run_processes(machine, 2, run) == ["direct"] * 2


def test_no_room_for_mailboxes_is_an_error_of_all() -> None:
    def run(processes: Processes) -> None:
        with (
            processes.place("path:9", devices="cuda", transport="nvshmem") as placed,
            pytest.raises(errors.DeviceError, match="NVSHMEM_SYMMETRIC_SIZE"),
        ):
            gw.bfs(placed, 8)

    with emulated_gpus(2) as machine, pretended_nvshmem(2, fails="memory"):
        run_processes(machine, 2, run)


def test_transports_are_checked() -> None:
    def run(processes: Processes) -> None:
        with pytest.raises(
            errors.InputError, match="'direct', 'nvshmem', 'host' or None, got 'ring'"
        ):
            processes.place("path:9", devices="cuda", transport="ring")  # type: ignore[call-overload]
        with pytest.raises(errors.InputError, match="give devices='cuda', too"):
            processes.place("path:9", transport="host")  # type: ignore[call-overload]

    with emulated_gpus(2) as machine:
        run_processes(machine, 2, run)
