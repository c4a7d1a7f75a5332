"""Routes of items between devices: everything arrives, by peers where there are some. No GPU is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import InputError
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.worker.cuda.links import next_hops, per_link


@st.composite
def peer_matrices(draw: Any) -> Any:
    count = draw(st.integers(1, 6))
    bits = draw(st.lists(st.booleans(), min_size=count * count, max_size=count * count))
    peers = np.array(bits, np.bool_).reshape(count, count)
    return peers | peers.T | np.eye(count, dtype=np.bool_)


@given(peer_matrices(), st.sampled_from(["direct", "host", "ring"]))
def test_every_route_ends_at_its_device(peers: Any, transport: str) -> None:
    hops = next_hops(peers, transport)
    for i, j in np.ndindex(*hops.shape):
        place = i
        for _ in range(len(hops)):
            place = int(hops[place, j])
        assert place == j


@given(peer_matrices())
def test_a_detour_leads_over_peers_only(peers: Any) -> None:
    hops = next_hops(peers, "direct")
    for i, j in np.argwhere(hops != np.arange(len(hops))):
        assert not peers[i, j]
        assert peers[i, hops[i, j]]
        assert peers[hops[i, j], j]
        assert hops[hops[i, j], j] == j


def test_items_are_counted_on_the_links_that_they_take() -> None:
    hops = next_hops(np.ones((3, 3), np.bool_), "ring")
    sent = np.array([[0, 2, 5], [1, 0, 1], [0, 0, 0]])
    assert per_link(sent, hops).tolist() == [[0, 7, 0], [0, 0, 2], [0, 0, 0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transport": "post"}, "transport must be 'direct', 'host' or 'ring', got 'post'"),
        ({"transport": np.array(["host", "ring"])}, "transport must be 'direct'"),
        ({"communication": "ring"}, "communication must be 'selective', .* got 'ring'"),
        ({"communication": np.array(["selective"] * 2)}, "communication must be 'selective'"),
        ({"frontier_items": 0}, "frontier_items must be at least 1, got 0"),
        ({"slice_s": -1}, "slice_s must be from 0 to 10, got -1"),
        ({"slice_s": 1e6}, "slice_s must be from 0 to 10"),
        ({"patience_s": 0}, "patience_s must be positive"),
        ({"threads": 100}, "threads must be a multiple of 32, got 100"),
        ({"hops": -1}, "hops must not be negative"),
        ({"volume": 0}, "volume must be at least 1"),
        ({"blocks": 0}, "blocks must be at least 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ExperimentOptions(**options)
