"""Mailboxes: one single-producer, single-consumer ring per pair of workers, in shared memory.

The ring of the pair (sender, receiver) has ``capacity`` slots of an item each and two counters that
only grow: ``tail``, written by the sender alone, counts the items put in; ``head``, written by the
receiver alone, counts those taken out. Slot i mod capacity holds item i.

Invariants:
- head <= tail <= head + capacity. The sender writes slot i only when it has seen head > i - capacity
  (its credit), the receiver reads it only when it has seen tail > i.
- Item contents are written before tail is released, and read after tail was acquired; a slot is read
  before head is released, and reused after head was acquired. So no item is seen half-written,
  overwritten, lost or taken twice.
- Nobody waits for credit in place: items wait in the sender's outbox (a bin of its own arena), and
  the sender goes on receiving. So full rings cannot deadlock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.runtime.cpu.atomics import load_acquire, store_release
from godwit.runtime.cpu.values import to_bits
from godwit.worker.cpu.bins import ITEM_WORDS, VALUE, from_bits

_LINE = 8  # int64 words of a cache line: counters of different writers never share one


class Mailboxes(NamedTuple):
    """The rings of all ordered pairs of ``devices`` workers."""

    slots: Any  # int64 (devices * devices * capacity * item words)
    tails: Any  # int64 (devices * devices * _LINE)
    heads: Any  # int64 (devices * devices * _LINE)
    devices: int
    capacity: int


def new_mailboxes(devices: int, capacity: int, item_words: int) -> Mailboxes:
    """Empty rings."""
    pairs = devices * devices
    return Mailboxes(
        slots=np.empty(pairs * capacity * item_words, np.int64),
        tails=np.zeros(pairs * _LINE, np.int64),
        heads=np.zeros(pairs * _LINE, np.int64),
        devices=devices,
        capacity=capacity,
    )


# Compiled from here on.


def credit(mailboxes: Any, sender: int, receiver: int) -> int:
    """How many items the sender may put now."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    waiting = mailboxes.tails[pair] - load_acquire(mailboxes.heads, pair)
    return int(mailboxes.capacity - waiting)


def put(mailboxes: Any, sender: int, receiver: int, ahead: int, key: int, value: Any) -> None:
    """Write the item ``ahead`` of the tail; the receiver sees it after `publish`."""
    pair = sender * mailboxes.devices + receiver
    item = mailboxes.tails[pair * _LINE] + ahead
    slot = pair * mailboxes.capacity + item % mailboxes.capacity
    if ITEM_WORDS == 1:
        mailboxes.slots[slot] = (to_bits(VALUE(value)) << 32) | key
    else:
        mailboxes.slots[2 * slot] = key
        mailboxes.slots[2 * slot + 1] = to_bits(VALUE(value))


def publish(mailboxes: Any, sender: int, receiver: int, items: int) -> None:
    """Hand the ``items`` written ahead of the tail to the receiver."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    store_release(mailboxes.tails, pair, mailboxes.tails[pair] + items)


def arrived(mailboxes: Any, sender: int, receiver: int) -> int:
    """How many items the receiver may take now."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    return int(load_acquire(mailboxes.tails, pair) - mailboxes.heads[pair])


def take(mailboxes: Any, sender: int, receiver: int, ahead: int) -> tuple[int, Any]:
    """Read the item ``ahead`` of the head; its slot is given back by `release`."""
    pair = sender * mailboxes.devices + receiver
    item = mailboxes.heads[pair * _LINE] + ahead
    slot = pair * mailboxes.capacity + item % mailboxes.capacity
    if ITEM_WORDS == 1:
        word = mailboxes.slots[slot]
        return word & 0xFFFFFFFF, from_bits((word >> 32) & 0xFFFFFFFF)
    return mailboxes.slots[2 * slot], from_bits(mailboxes.slots[2 * slot + 1])


def release(mailboxes: Any, sender: int, receiver: int, items: int) -> None:
    """Give the slots of the ``items`` ahead of the head back to the sender."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    store_release(mailboxes.heads, pair, mailboxes.heads[pair] + items)
