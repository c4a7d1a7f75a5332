"""Mailboxes: one single-producer, single-consumer ring per pair of workers, in shared memory.

The ring of a pair (sender, receiver) has ``capacity`` slots of one item and two counters that only grow:
``tail``, written by the sender only, counts the items put in; ``head``, written by the receiver only,
counts the items taken out. Slot i mod capacity holds item i.

Invariants:
- head <= tail <= head + capacity. The sender writes item i only after it has read head > i - capacity (its
  credit), the receiver reads it only after it has read tail > i.
- Item contents are written before tail is released, and read after tail was acquired; a slot is read before
  head is released, and reused after head was acquired. So no item is seen half-written, overwritten, lost
  or taken twice.
- No worker waits for credit in place: items stay in the sender's outbox (a bin of its own arena), and the
  sender continues to receive. So full rings cannot deadlock.
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
    """Return empty rings."""
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
    """Return the number of items that the sender may put now."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    waiting = mailboxes.tails[pair] - load_acquire(mailboxes.heads, pair)
    return int(mailboxes.capacity - waiting)


def put(mailboxes: Any, sender: int, receiver: int, ahead: int, key: int, value: Any) -> None:
    """Write the item ``ahead`` of the tail; `publish` makes it visible to the receiver."""
    pair = sender * mailboxes.devices + receiver
    item = mailboxes.tails[pair * _LINE] + ahead
    slot = pair * mailboxes.capacity + item % mailboxes.capacity
    if ITEM_WORDS == 1:
        mailboxes.slots[slot] = (to_bits(VALUE(value)) << 32) | key
    else:
        mailboxes.slots[2 * slot] = key
        mailboxes.slots[2 * slot + 1] = to_bits(VALUE(value))


def publish(mailboxes: Any, sender: int, receiver: int, items: int) -> None:
    """Make the ``items`` written ahead of the tail visible to the receiver."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    store_release(mailboxes.tails, pair, mailboxes.tails[pair] + items)


def arrived(mailboxes: Any, sender: int, receiver: int) -> int:
    """Return the number of items that the receiver may take now."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    return int(load_acquire(mailboxes.tails, pair) - mailboxes.heads[pair])


def take(mailboxes: Any, sender: int, receiver: int, ahead: int) -> tuple[int, Any]:
    """Read the item ``ahead`` of the head; `release` frees its slot."""
    pair = sender * mailboxes.devices + receiver
    item = mailboxes.heads[pair * _LINE] + ahead
    slot = pair * mailboxes.capacity + item % mailboxes.capacity
    if ITEM_WORDS == 1:
        word = mailboxes.slots[slot]
        return word & 0xFFFFFFFF, from_bits((word >> 32) & 0xFFFFFFFF)
    return mailboxes.slots[2 * slot], from_bits(mailboxes.slots[2 * slot + 1])


def release(mailboxes: Any, sender: int, receiver: int, items: int) -> None:
    """Free the slots of the ``items`` ahead of the head."""
    pair = (sender * mailboxes.devices + receiver) * _LINE
    store_release(mailboxes.heads, pair, mailboxes.heads[pair] + items)
