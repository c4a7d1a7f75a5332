"""Item links between the devices of a run: routes, and where mailboxes and boards lie.

A mailbox is in the receiver's memory if sender and receiver have peer access, otherwise in pinned host
memory. Items are sent directly to their device, unless it has no peer access and a third device has access
to both, or a ring is asked for: then each device on the way relays them in the next round
(worker/cuda/mailbox.cuh).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer
from godwit.runtime.gpu_options import GpuOptions
from godwit.worker.cuda.placement import GpuPlacement
from godwit.worker.cuda.program import BOARD_BYTES


def next_hops(peers: Array, transport: str) -> Array:
    """Return (devices, devices): the device to which device i sends items for device j.

    :param peers: bool (devices, devices): pairs with peer access
    """
    count = len(peers)
    hops = np.tile(np.arange(count), (count, 1))
    if transport == "ring":
        return np.where(np.eye(count, dtype=np.bool_), hops, (hops.T + 1) % count)
    if transport == "direct":
        for i, j in np.argwhere(~peers):
            between = np.flatnonzero(peers[i] & peers[:, j])
            hops[i, j] = next((k for k in between if k not in (i, j)), j)
    return hops


def connect(
    placement: GpuPlacement,
    arguments: Array,
    item_bytes: int,
    ring_items: int | None,
    gpu: GpuOptions,
    own: Callable[[Any], Any],
) -> tuple[Array, list[Buffer | PinnedBuffer]]:
    """Allocate mailboxes and boards, and fill in the workers' arguments.

    :param arguments: (devices) of dtype PART, with halo ranges
    :param own: called with each buffer that the arguments' owner must close; returns it
    :returns: :func:`next_hops`; the boards, whose content is undefined
    """
    count = len(arguments)
    itself = np.eye(count, dtype=np.bool_)
    peers = np.array(
        [[placement.are_peers(i, j) for j in range(count)] for i in range(count)], np.bool_
    )
    hops = next_hops(peers, gpu.transport)
    on_host = ~itself if gpu.transport == "host" else ~peers
    boards: list[Buffer | PinnedBuffer] = []
    for device, part in enumerate(placement.parts):
        is_far = bool(on_host[device].any())
        board = PinnedBuffer(BOARD_BYTES) if is_far else Buffer(part.index, BOARD_BYTES)
        boards.append(own(board))
        arguments[device]["board"] = board.pointer
    arguments["boards"][:, :count] = arguments["board"]
    arguments["next_hop"][:, :count] = hops
    relays = bool((hops != np.arange(count)).any(where=~itself))
    arguments["relays"] = relays
    traffic = np.diff(arguments["halo_begin"], axis=1)[:, :count]
    most = max(1, int(traffic.max()))
    items = most if ring_items is None else min(ring_items, most)
    room = items * count if relays else items
    arguments["mailbox_items"], arguments["mailbox_room"] = items, room
    relay = np.zeros((count, MAXIMAL_DEVICES, MAXIMAL_DEVICES), np.uint64)
    for sender, final in np.ndindex(count, count):
        # A sender without traffic of its own may relay items.
        if sender == final or not (traffic[sender, final] or relays):
            continue
        receiver = int(hops[sender, final])
        pointer = placement.link_memory(
            sender,
            receiver,
            final,
            2 * item_bytes * room,
            on_host=bool(on_host[sender, receiver]),
        ).pointer
        arguments[sender]["outbox"][final] = pointer
        if receiver == final:
            arguments[final]["inbox"][sender] = pointer
        else:
            relay[receiver, sender, final] = pointer
    if relays:
        for device, part in enumerate(placement.parts):
            table = own(Buffer(part.index, relay[device].nbytes))
            table.upload(relay[device])
            arguments[device]["relay"] = table.pointer
    return hops, boards


def per_link(sent: Array, hops: Array) -> Array:
    """Return (devices, devices) items by link, from items by sending and by final device."""
    devices = np.arange(len(sent))
    links: Array = (sent[:, :, None] * (hops[:, :, None] == devices)).sum(axis=1)
    return links
