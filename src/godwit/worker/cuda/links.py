"""Item links between the devices of a run: who sends to whom, and where the mailboxes lie.

A mailbox lies in the receiver's memory where sender and receiver are peers, else in pinned host memory.
Items go straight to their device, unless it is no peer and a neighbour is one of both, or a ring is asked
for: then each device on the way relays them in the next round (worker/cuda/mailbox.cuh).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.gpu_options import GpuOptions
from godwit.worker.cuda.placement import GpuPlacement
from godwit.worker.cuda.program import BOARD_BYTES


def next_hops(peers: Array, transport: str) -> Array:
    """(devices, devices): where device i sends what is for device j.

    :param peers: bool (devices, devices): who reaches whose memory
    """
    count = len(peers)
    if transport == "ring":
        return np.array(
            [[(i + 1) % count if i != j else i for j in range(count)] for i in range(count)]
        )
    hops = np.tile(np.arange(count), (count, 1))
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
) -> Array:
    """Lay out mailboxes and boards, and tell the workers of them; returns :func:`next_hops`.

    :param arguments: (devices) of dtype PART, whose halo ranges are known
    """
    count = len(arguments)
    peers = np.array(
        [[placement.are_peers(i, j) for j in range(count)] for i in range(count)], np.bool_
    )
    hops = next_hops(peers, gpu.transport)
    on_host = ~peers if gpu.transport != "host" else ~np.eye(count, dtype=np.bool_)
    boards = [_board(placement, place, bool(on_host[place].any())) for place in range(count)]
    arguments["next_hop"][:, :count] = hops
    relays = bool((hops != np.arange(count)).any(where=~np.eye(count, dtype=np.bool_)))
    arguments["relays"] = relays
    traffic = np.diff(arguments["halo_begin"], axis=1)[:, :count]
    most = max(1, int(traffic.max()))
    items = most if ring_items is None else min(ring_items, most)
    room = items * count if relays else items
    arguments["mailbox_items"], arguments["mailbox_room"] = items, room
    relay = np.zeros((count, MAXIMAL_DEVICES, MAXIMAL_DEVICES), np.uint64)
    for sender in range(count):
        arguments[sender]["board"] = boards[sender]
        arguments[sender]["boards"][:count] = boards
        for last in range(count):
            receiver = int(hops[sender, last])
            # What others relay through the sender may come where it has nothing to send of its own.
            if sender == last or not (traffic[sender, last] or relays):
                continue
            nbytes = 2 * item_bytes * room
            name = f"mailbox {sender} to {last}"
            where: Any = placement.parts[receiver]
            if on_host[sender, receiver]:
                pointer = placement.pinned_room(f"{name} at {receiver}", nbytes).pointer
            else:
                pointer = where.room(name, nbytes).pointer
            arguments[sender]["outbox"][last] = pointer
            if receiver == last:
                arguments[last]["inbox"][sender] = pointer
            else:
                relay[receiver, sender, last] = pointer
    if relays:
        for place, part in enumerate(placement.parts):
            table = part.room("relay", relay[place].nbytes)
            table.upload(relay[place])
            arguments[place]["relay"] = table.pointer
    return hops


def _board(placement: GpuPlacement, place: int, on_host: bool) -> int:
    """Where a device's reports come in; empty, as epochs count from 0."""
    room: Any
    if on_host:
        room = placement.pinned_room(f"board {place}", BOARD_BYTES)
    else:
        room = placement.parts[place].room("board", BOARD_BYTES)
    room.fill_bytes(0)
    return int(room.pointer)


def per_link(sent: Array, hops: Array) -> Array:
    """(devices, devices) items by link, from items by the device that sends and the final one."""
    links = np.zeros_like(sent)
    for i, j in np.ndindex(*sent.shape):
        links[i, hops[i, j]] += sent[i, j]
    return links
