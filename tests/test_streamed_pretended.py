"""Page-locked edges dealt out to GPUs by one thread: copies, kernels, merging and the labels' way home.

The GPUs are those of pretend_cuda.py, which do what was put into their streams some time later, each in its
own order; a forest is NumPy's, put into the endpoint's stream.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.algorithms.components import streamed as streamed_components
from godwit.algorithms.components.streamed_cpu import Fault, Linking
from godwit.errors import InputError
from godwit.runtime.cuda import memory
from godwit.runtime.cuda.memory import PinnedBuffer
from pretend_cuda import Machine, pretended_gpus

VERTICES = 600
PEERS = np.ones((4, 4), bool)
STRANGERS = np.eye(4, dtype=bool)


class PretendedForest:
    """Labels instead of trees: what is joined gets the smaller one."""

    def __init__(self, machine: Machine, space: Any, linking: Linking) -> None:
        self._machine, self._space = machine, space
        self._block = space.allocate(4 * linking.vertices)
        self.parents = self._block.view(linking.id_dtype, (linking.vertices,))
        self._fault: Fault | None = None
        parents = self.parents.host
        self._put(lambda: parents.__setitem__(slice(None), np.arange(linking.vertices)))

    def _put(self, kernel: Any) -> None:
        self._machine.launch(self._space.stream, kernel)

    def _join(self, pairs: Any) -> None:
        labels = self.parents.host
        for u, v in pairs:
            low, high = sorted((labels[u], labels[v]))
            labels[labels == high] = low

    def link(self, edges: Any, chunk: int, row: int) -> None:
        def kernel(host: Any = edges.host) -> None:
            wrong = np.flatnonzero((host < 0).any(1) | (host >= VERTICES).any(1))
            if len(wrong):
                place = int(wrong[0])
                self._fault = Fault(chunk, row + place, *host[place].tolist())
            self._join(np.delete(host, wrong, 0).tolist())

        self._put(kernel)

    def absorb(self, parents: Any, first: int) -> None:
        host = parents.host
        self._put(lambda: self._join(list(enumerate(host.tolist(), first))))

    def flatten(self) -> None:
        self._put(lambda: None)

    def fault(self) -> Fault | None:
        return self._fault

    def close(self) -> None:
        self._space.record_event().wait()
        self.parents = None
        self._block.free()


@pytest.fixture(params=[PEERS, STRANGERS], ids=["peers", "strangers"])
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with pretended_gpus(request.param, seed=5) as found:
        real = streamed_components.make_forest

        def make(device: Any, space: Any, linking: Linking) -> Any:
            is_gpu = space.kind == "cuda"
            return (
                PretendedForest(found, space, linking) if is_gpu else real(device, space, linking)
            )

        monkeypatch.setattr(streamed_components, "make_forest", make)
        real_compile = streamed_components.compile_for

        def compile_for(space: Any, *given: Any) -> None:
            if space.kind == "host":
                real_compile(space, *given)

        monkeypatch.setattr(streamed_components, "compile_for", compile_for)
        yield found
        assert found.faults == []


def locked(edges: Any) -> Any:
    """The same edges in page-locked memory."""
    held = PinnedBuffer(max(1, edges.nbytes))
    array = held.array(np.uint8)[: edges.nbytes].view(edges.dtype).reshape(edges.shape)
    array[:] = edges
    return held, array


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [0, 1, 127, 128, 129, 3000])
def test_labels_are_those_of_the_cpu(
    machine: Machine, gpus: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = np.random.default_rng(rows).integers(0, VERTICES, (rows, 2), np.int32)
    expected = gw.connected_components_of_edges(edges, vertex_count=VERTICES, devices="cpu:0").label
    if rows:  # nothing lies nowhere
        monkeypatch.setattr(streamed_components, "EdgeSenders", None)
    held, array = locked(edges)
    before = machine.bytes_on(0)
    devices = [f"cuda:{index}" for index in range(gpus)]
    found = gw.connected_components_of_edges(
        array, vertex_count=VERTICES, devices=devices, packet_bytes=1024
    )
    assert np.array_equal(found.label, expected)
    assert found.statistics.processed_items.sum() == rows
    del array
    held.close()
    gc.collect()
    for index in range(gpus):
        memory.free_kept(index)
    assert machine.bytes_on(0) == before


def test_a_graph_on_gpus_that_are_no_peers(machine: Machine) -> None:
    """Its arcs stream, as nobody links in another's memory; nothing needs to be asked for."""
    if machine.access.all():
        pytest.skip("of strangers")
    edges = np.random.default_rng(7).integers(0, VERTICES, (900, 2))
    for directed in (False, True):
        graph = gw.Graph.from_edges(*edges.T, vertex_count=VERTICES, directed=directed)
        expected = gw.connected_components(graph, devices="cpu").label
        for given in ({}, {"merge": "tree"}, {"method": "hook"}):
            found = gw.connected_components(graph, devices=["cuda:0", "cuda:1"], **given)
            assert np.array_equal(found.label, expected)
            assert found.statistics.solver.startswith("streamed")
            assert found.graph is graph


def test_an_edge_that_is_none_is_named(machine: Machine) -> None:
    edges = np.random.default_rng(1).integers(0, VERTICES, (2000, 2), np.int32)
    edges[1777] = 5, VERTICES
    held, array = locked(edges)
    with pytest.raises(InputError, match=rf"row 1,777 of .* is \(5, {VERTICES}\)"):
        gw.connected_components_of_edges(
            array, vertex_count=VERTICES, devices=["cuda:0", "cuda:1"], packet_bytes=1024
        )
    del array
    held.close()


def test_progress_that_raises_ends_it(machine: Machine) -> None:
    held, array = locked(np.zeros((200_000, 2), np.int32))

    def look(_: int) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        gw.connected_components_of_edges(
            array, vertex_count=VERTICES, devices=["cuda:0"], packet_bytes=1024, progress=look
        )
    del array
    held.close()
