"""Which way components are found; what is found on each way is of test_components and its like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit.algorithms import components
from godwit.errors import ClosedContextError, GraphTooLargeError, InputError

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")

GRAPH = gw.generators.rmat(6, 4, seed=5)
BOTH = ["cuda:0", "cuda:1"]
APART = np.eye(2, dtype=bool)


class _StreamedError(Exception):
    pass


@pytest.fixture(autouse=True)
def gpus_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody names a device."""
    monkeypatch.setenv("GODWIT_DEVICES", "cuda")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The devices that arcs were to stream to, each time."""
    asked: list[Any] = []

    def stream(given: Any, query: Any, devices: Any, options: Any) -> Any:
        assert given is GRAPH
        asked.append(devices)
        raise _StreamedError

    monkeypatch.setattr(components, "_stream_arcs", stream)
    return asked


def test_arcs_stream_to_gpus_that_are_no_peers(streams: list[Any]) -> None:
    with emulated_gpus(2, peers=APART), gw.place(GRAPH, BOTH) as placed:
        for graph, devices in ((GRAPH, BOTH), (GRAPH, "cuda"), (GRAPH, 2), (placed, None)):
            with pytest.raises(_StreamedError):
                gw.connected_components(graph, devices=devices)
        assert streams == [BOTH] * 4
        for devices in ("cpu", "cuda:1", None):
            assert (
                "streamed" not in gw.connected_components(GRAPH, devices=devices).statistics.solver
            )
        with pytest.raises(InputError, match="the graph is placed already"):
            gw.connected_components(placed, devices="cpu")
        placed.close()
        with pytest.raises(ClosedContextError, match="this placed graph is closed"):
            gw.connected_components(placed)
    with emulated_gpus(2):
        gw.connected_components(GRAPH, devices=BOTH)
    assert len(streams) == 4


def test_what_cannot_stream_to_them_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def stream(given: Any, query: Any, devices: Any, options: Any) -> Any:
        tried.append(devices)
        raise GraphTooLargeError("8 bytes are needed")

    monkeypatch.setattr(components, "_stream_arcs", stream)
    with (
        emulated_gpus(2, peers=APART),
        pytest.raises(GraphTooLargeError, match=r"^8 bytes are needed$"),
    ):
        gw.connected_components(GRAPH, devices=BOTH)
    assert tried == [BOTH]


def test_arcs_stream_where_the_graph_does_not_fit(
    streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise GraphTooLargeError("8 bytes are needed")

    monkeypatch.setattr(components, "_find_resident", refuse)
    with emulated_gpus(2), gw.place(GRAPH, BOTH) as placed:
        for devices, asked in ((BOTH, BOTH), ("cuda:1", ["cuda:1"]), (None, ["cuda:0"])):
            with pytest.raises(_StreamedError):
                gw.connected_components(GRAPH, devices=devices)
            assert streams.pop() == asked
        wrong: list[tuple[Any, dict[str, Any], str]] = [
            (placed, {}, "^8 bytes are needed; the arcs of placed.graph would stream$"),
            (GRAPH, {"devices": BOTH, "merge": "direct"}, "; its arcs .* without merge='direct'$"),
            (GRAPH, {"devices": "cpu"}, "^8 bytes are needed$"),
        ]
        for graph, arguments, message in wrong:
            with pytest.raises(GraphTooLargeError, match=message):
                gw.connected_components(graph, **arguments)
    assert streams == []
