"""The asynchronous worker: the loop that each virtual device's thread runs until termination.

A worker owns its bins (near and far queues, outboxes) and its part of the state; workers share only the
mailboxes and one cache line of published words each. In each round a worker receives, processes a batch of
its lowest bucket, flushes its outboxes, and publishes. No worker waits in place for another.

**Soft priority.** Each worker publishes the lowest bucket that it holds, and processes no bucket more than
``window`` above the lowest published one. Published words may be stale, which only causes useless work: the
threshold is a hint. The worker that holds the lowest bucket of all is never held back, so the run
progresses. ``window`` = 0 keeps all workers in the same bucket; with a very large one they ignore each
other's buckets.

**Leaving.** A worker without room for the items that the next one may push returns GROW, with its state in
arrays; its host thread enlarges them and calls it again.

**Termination.** A worker is idle when its queues, its outboxes and the rest of its initial range are empty.
It then publishes how many items it has sent and received, and makes its STATE word odd; before it takes an
item from a mailbox it makes STATE even. Only an arriving item ends idleness. Worker 0, when idle, reads
STATE, SENT and RECEIVED of all workers (first snapshot), and ends the run if all were idle, the sums are
equal, and a second reading returns the same STATE words.

Proof. STATE only grows, so an equal odd value in both readings means that the worker was idle, with an
empty worklist, all the time between them, and that the counts read are from that time. Suppose all second
readings agree, and some RECEIVED that was read counts an item that its sender k's SENT, as read, lacks.
Then k was awake after its first reading: its STATE store came before that item's tail (a release), which
the receiver acquired before it published RECEIVED (a release), which worker 0 acquired before its second
reading of k's STATE, which therefore returns the changed word: a contradiction. So every item counted as
received is counted as sent; with equal sums the two are the same items, and none is in a mailbox. All
workers were idle and empty at the moment between the snapshots, so no item can arrive any more.
(tests/test_worker_model.py explores this protocol's schedules.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from godwit.runtime.cpu.atomics import (
    fetch_min,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
    yield_thread,
)
from godwit.runtime.cpu.team import ABORT, CURSOR
from godwit.runtime.protocol import KEEP, PASS
from godwit.worker.cpu.bins import (
    BUCKETS,
    FAR,
    ITEM_WORDS,
    NO_BUCKET,
    NO_DEVICE,
    NO_VALUE,
    OUTBOX,
    OVERFLOWED,
    URGENT,
    WAITING,
    advance_base,
    has_room,
    item_bucket,
    lowest_bucket,
    peek_key,
    pop_bin,
    push_bin,
    push_bucket,
)
from godwit.worker.cpu.mailbox import arrived, credit, publish, put, release, take

RUN_ENDED = CURSOR
"""Word of the control array that worker 0 sets when the run has ended."""

# Return values of a worker.
FINISHED = 0
ABORTED = 1
GROW = 2
FAILED = 3

# Words of `published`, per worker; a cache line each worker.
LOWEST = 0
STATE = 1
SENT = 2
RECEIVED = 3
PUBLISHED_WORDS = 8

# Words of `counts`, private to a worker, summed up by the host when the run has ended.
PROCESSED = 0
USELESS = 1
ARCS = 2
THRESHOLD_CHANGES = 3
RECEIVED_ITEMS = 4
FILTERED = 5  # items not sent: dropped by on_send or the halo filter, or merged with a queued one
FUSION_LIMIT = 6  # shared-memory engine: items of its own bin that a thread may process in a round
NEXT_INITIAL = 7  # keys [NEXT_INITIAL, END_INITIAL) are initial work not yet done
END_INITIAL = 8
RESUME_BEGIN = 9  # shared-memory engine: the claimed frontier range, kept when the thread leaves
RESUME_END = 10
ROUNDS = 11
CURRENT_BUCKET = 12  # shared-memory engine, as the next two
ROUND_PARITY = 13
WANTED_ROOM = 14  # this thread made the team leave
NEXT_SEED = 15  # seeds [NEXT_SEED, ...) are not queued yet
SENT_TO = 16  # items sent, one word per device

BATCH_ITEMS = 128
FAR_AHEAD = 8  # distances, in items, at which `look_ahead` prefetches
NEAR_AHEAD = 4
_SPINS_BEFORE_YIELD = 64


class Worklist(NamedTuple):
    """The data of one worker, as compiled code takes it."""

    device: int
    devices: int
    bins: Any
    counts: Any  # int64 (SENT_TO + devices)
    next_hop: Any  # int64 (devices): the device to which items for device d are sent
    seed_keys: Any  # int64: initial items
    seed_values: Any


# Operators, bound by the instantiation.


def process(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Process an item; may push others."""
    raise NotImplementedError


def initial_value(state: Any, key: int) -> Any:
    """Return the value of the initial item of a key in [0, END_INITIAL)."""
    raise NotImplementedError


def look_ahead(state: Any, far_key: int, near_key: int) -> None:
    """Prefetch data of keys that are processed soon, the near one sooner."""
    raise NotImplementedError


def fanout(state: Any, key: int) -> int:
    """Return the largest number of items that processing the key can push."""
    raise NotImplementedError


def owner(state: Any, key: int) -> int:
    """Return the device that processes items of a key, as passed to `push` or returned by `unpack`."""
    raise NotImplementedError


def on_send(state: Any, key: int, value: Any) -> int:
    """Return flags for an item of another device: PASS, KEEP (process here), both, or DROP."""
    raise NotImplementedError


def pack(state: Any, key: int, value: Any) -> tuple[int, Any]:
    """Return an item in the form in which it is sent; called when it leaves the outbox."""
    raise NotImplementedError


def unpack(state: Any, key: int, value: Any) -> tuple[int, Any]:
    """Return a received item in the form in which it is processed."""
    raise NotImplementedError


def on_receive(worklist: Any, state: Any, key: int, value: Any) -> int:
    """Return flags for a received item: KEEP, PASS (send it to its owner), both, or DROP."""
    raise NotImplementedError


# Called by operators.


def note_overflow(worklist: Any) -> None:
    """End the run with an error: a value or a key does not fit, and is not stored."""
    worklist.bins.header[OVERFLOWED] = NO_VALUE


def fits_item(worklist: Any, key: int) -> bool:
    """Return True if an item can hold the key; otherwise end the run with an error."""
    if ITEM_WORDS == 1 and (key >> 32) != 0:
        note_overflow(worklist)
        return False
    return True


def push_local(worklist: Any, key: int, value: Any) -> None:
    """Queue an item on this device."""
    if not fits_item(worklist, key):
        return
    push_bucket(worklist.bins, item_bucket(worklist.bins.buckets_per_unit, value), key, value)


def push_to(worklist: Any, device: int, key: int, value: Any) -> None:
    """Queue an item for a device: in the outbox of the next hop, or here if it is this device."""
    if device == worklist.device:
        # A device has no mailbox to itself.
        push_local(worklist, key, value)
        return
    if not (0 <= device < worklist.devices):
        worklist.bins.header[OVERFLOWED] = NO_DEVICE
        return
    if not fits_item(worklist, key):
        return
    push_bin(worklist.bins, OUTBOX + worklist.next_hop[device], key, value)


def push(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Queue an item at its owner, if `on_send` lets it pass."""
    if not fits_item(worklist, key):
        return
    destination = owner(state, key)
    if destination == worklist.device:
        push_local(worklist, key, value)
        return
    flags = on_send(state, key, value)
    if flags & KEEP:
        push_local(worklist, key, value)
    if flags & PASS:
        push_to(worklist, destination, key, value)
    else:
        worklist.counts[FILTERED] += 1


# The parts of a round.


def receive(worklist: Any, mailboxes: Any, state: Any, sender: int, items: int) -> None:
    """Take ``items`` items from a mailbox; room for twice as many is reserved."""
    for ahead in range(items):
        key, value = take(mailboxes, sender, worklist.device, ahead)
        key, value = unpack(state, key, value)
        flags = on_receive(worklist, state, key, value)
        if flags & KEEP:
            push_local(worklist, key, value)
        if flags & PASS:
            push_to(worklist, owner(state, key), key, value)
    release(mailboxes, sender, worklist.device, items)
    worklist.counts[RECEIVED_ITEMS] += items


def flush(worklist: Any, mailboxes: Any, published: Any, state: Any) -> tuple[bool, bool]:
    """Move items from outboxes to mailboxes as far as credit allows; return (any moved, all moved).

    The receiver's published bucket is lowered to the lowest one sent, so that no worker runs ahead of an
    item whose receiver is not scheduled at the moment.
    """
    any_moved = False
    all_moved = True
    bins = worklist.bins
    for receiver in range(worklist.devices):
        outbox = OUTBOX + receiver
        if bins.tail[outbox] == 0:
            continue
        room = credit(mailboxes, worklist.device, receiver)
        items = 0
        lowest = NO_BUCKET
        while items < room and bins.tail[outbox] != 0:
            key, value = pop_bin(bins, outbox)
            key, value = pack(state, key, value)
            if fits_item(worklist, key):
                put(mailboxes, worklist.device, receiver, items, key, value)
                lowest = min(lowest, item_bucket(bins.buckets_per_unit, value))
                items += 1
        if items > 0:
            fetch_min(published, receiver * PUBLISHED_WORDS + LOWEST, lowest)
            worklist.counts[SENT_TO + receiver] += items
            publish(mailboxes, worklist.device, receiver, items)
            any_moved = True
        if bins.tail[outbox] != 0:
            all_moved = False
    return any_moved, all_moved


def lowest_published(published: Any, devices: int) -> int:
    """Return the lowest bucket that any worker has published."""
    lowest = NO_BUCKET
    for device in range(devices):
        lowest = min(lowest, load_relaxed(published, device * PUBLISHED_WORDS + LOWEST))
    return lowest


def go_idle(worklist: Any, published: Any) -> None:
    """Publish the counts, then make STATE odd."""
    mine = worklist.device * PUBLISHED_WORDS
    sent = 0
    for receiver in range(worklist.devices):
        sent += worklist.counts[SENT_TO + receiver]
    store_release(published, mine + SENT, sent)
    store_release(published, mine + RECEIVED, worklist.counts[RECEIVED_ITEMS])
    store_release(published, mine + STATE, published[mine + STATE] + 1)


def go_busy(worklist: Any, published: Any) -> None:
    """Make STATE even."""
    mine = worklist.device * PUBLISHED_WORDS
    store_release(published, mine + STATE, published[mine + STATE] + 1)


def all_terminated(published: Any, seen: Any, devices: int) -> bool:
    """Return True if two snapshots show termination; ``seen`` is int64 (devices) memory for the first."""
    sent = 0
    received = 0
    for device in range(devices):
        line = device * PUBLISHED_WORDS
        seen[device] = load_acquire(published, line + STATE)
        if seen[device] & 1 == 0:
            return False
        sent += load_acquire(published, line + SENT)
        received += load_acquire(published, line + RECEIVED)
        # SENT and RECEIVED belong to this STATE only if it has not changed meanwhile, which the second
        # snapshot checks.
    if sent != received:
        return False
    for device in range(devices):
        if load_acquire(published, device * PUBLISHED_WORDS + STATE) != seen[device]:
            return False
    return True


def process_batch(worklist: Any, state: Any, bucket: int) -> int:
    """Process up to BATCH_ITEMS: initial keys first, then urgent items, then those of the bucket.

    Return their number; -1 if there is no room.
    """
    bins = worklist.bins
    counts = worklist.counts
    near = 1 + (bucket & (BUCKETS - 1))
    items = 0
    while items < BATCH_ITEMS:
        source = URGENT
        initial = counts[NEXT_INITIAL] < counts[END_INITIAL]
        if initial:
            key = counts[NEXT_INITIAL]
            value = initial_value(state, key)
        else:
            if bins.tail[URGENT] == 0:
                source = near
                if bins.tail[near] == 0:
                    break
            key = peek_key(bins, source, 0)
            look_ahead(state, peek_key(bins, source, FAR_AHEAD), peek_key(bins, source, NEAR_AHEAD))
        if not has_room(bins, fanout(state, key)):
            counts[PROCESSED] += items
            return -1
        if initial:
            counts[NEXT_INITIAL] += 1
        else:
            key, value = pop_bin(bins, source)
            bins.header[WAITING] -= 1
        process(worklist, state, key, value)
        items += 1
    counts[PROCESSED] += items
    return items


def push_seeds(worklist: Any) -> bool:
    """Queue the initial items; return False if there is no room."""
    counts = worklist.counts
    while counts[NEXT_SEED] < len(worklist.seed_keys):
        if not has_room(worklist.bins, 1):
            return False
        index = counts[NEXT_SEED]
        counts[NEXT_SEED] += 1
        push_local(worklist, worklist.seed_keys[index], worklist.seed_values[index])
    return True


def run_worker(
    worklist: Any, mailboxes: Any, published: Any, seen: Any, control: Any, state: Any, window: int
) -> int:
    """Work until the run has ended or is aborted, or this worker must grow."""
    device = worklist.device
    devices = worklist.devices
    bins = worklist.bins
    counts = worklist.counts
    mine = device * PUBLISHED_WORDS
    idle = False
    spins = 0
    if not push_seeds(worklist):
        return GROW
    while True:
        if load_acquire(control, ABORT) != 0:
            return ABORTED
        if idle and load_acquire(control, RUN_ENDED) != 0:
            return FINISHED
        worked = False

        for sender in range(devices):
            if sender == device:
                continue
            items = min(arrived(mailboxes, sender, device), BATCH_ITEMS)
            if items > 0:
                if idle:
                    idle = False
                    go_busy(worklist, published)
                if not has_room(bins, 2 * items):
                    return GROW
                receive(worklist, mailboxes, state, sender, items)
                worked = True

        initial = counts[NEXT_INITIAL] < counts[END_INITIAL]
        if initial or bins.header[WAITING] != 0:
            if bins.tail[FAR] != 0 and not has_room(bins, BUCKETS):
                return GROW
            bucket = lowest_bucket(bins)
            store_relaxed(published, mine + LOWEST, bucket)
            lowest = lowest_published(published, devices)
            if advance_base(bins, lowest):
                counts[THRESHOLD_CHANGES] += 1
            if initial or bucket - lowest <= window:
                if process_batch(worklist, state, bucket) < 0:
                    return GROW
                worked = True
        else:
            store_relaxed(published, mine + LOWEST, NO_BUCKET)

        any_moved, all_moved = flush(worklist, mailboxes, published, state)
        if bins.header[OVERFLOWED] != 0:
            store_release(control, ABORT, 1)
            return FAILED
        if worked or any_moved:
            counts[ROUNDS] += 1
            spins = 0
            continue
        if not idle and all_moved and bins.header[WAITING] == 0:
            idle = True
            go_idle(worklist, published)
        if idle and device == 0 and all_terminated(published, seen, devices):
            store_release(control, RUN_ENDED, 1)
            return FINISHED
        spins += 1
        if spins > _SPINS_BEFORE_YIELD:
            yield_thread()
