"""The bulk-synchronous worker: the loop of each virtual device's thread in supersteps.

It uses the queues, mailboxes and operators of the asynchronous worker (worker.py). In a superstep every
worker

1. processes each item once that was queued in the lowest bucket of all workers when the superstep began;
   the items that they push are for later supersteps, even in the same bucket;
2. fills the mailboxes from its outboxes, as far as credit allows; **meets** the others; empties its
   mailboxes; **meets** the others; all repeat this until every outbox is empty;
3. reads the lowest bucket that any worker holds. If there is none, the run has ended.

A value that improves in a superstep is visible at once to later items on the same device: supersteps order
the work, and nothing else.

Invariants:
- Mailboxes are only filled between the second meeting and the first, and only emptied between the first and
  the second. So at the second meeting they are empty, and all items are in queues and outboxes, whose state
  each worker published before: the end is not detected too early.
- The words published before the second meeting are written again only after the next first one, when all
  workers have read them: all decide alike.
- A worker without room leaves with its phase in `counts`, and continues there with a larger arena; the
  others wait at the next meeting meanwhile.
"""

from __future__ import annotations

from typing import Any

from godwit.runtime.cpu.atomics import load_acquire, load_relaxed, store_relaxed, store_release
from godwit.runtime.cpu.team import ABORT, barrier
from godwit.worker.cpu.bins import (
    BASE,
    BUCKETS,
    FAR,
    NO_BUCKET,
    OUTBOX,
    OVERFLOWED,
    URGENT,
    WAITING,
    has_room,
    lowest_bucket,
    peek_key,
    pop_bin,
)
from godwit.worker.cpu.mailbox import arrived
from godwit.worker.cpu.worker import (
    ABORTED,
    BATCH_ITEMS,
    CURRENT_BUCKET,
    END_INITIAL,
    FAILED,
    FAR_AHEAD,
    FINISHED,
    GROW,
    NEAR_AHEAD,
    NEXT_INITIAL,
    PROCESSED,
    PUBLISHED_WORDS,
    RESUME_BEGIN,
    RESUME_END,
    ROUND_PARITY,
    ROUNDS,
    THRESHOLD_CHANGES,
    fanout,
    flush,
    initial_value,
    look_ahead,
    process,
    push_seeds,
    receive,
)

GOES_ON = -1

# Words of `counts` that the shared-memory engine uses otherwise.
PHASE = ROUND_PARITY
URGENT_END = RESUME_BEGIN  # end of the superstep's items in the urgent bin; 0 if none is left
NEAR_END = RESUME_END  # end of the superstep's items in the bucket's bin; 0 if none is left

# Values of PHASE: where a worker continues.
SEEDING = 0
WORKING = 1
FILLING = 2
EMPTYING = 3

# Further words of `published`; LOWEST does not serve, since `flush` of other workers lowers it at any time.
STEP_LOWEST = 4  # lowest bucket that the worker holds
STEP_UNSENT = 5  # 1 if an outbox is not empty


def begin_step(worklist: Any, bucket: int) -> None:
    """Begin a superstep: its items are those that are queued now, urgent or in the bucket."""
    bins = worklist.bins
    counts = worklist.counts
    counts[CURRENT_BUCKET] = bucket
    counts[URGENT_END] = bins.tail[URGENT]
    counts[NEAR_END] = bins.tail[1 + (bucket & (BUCKETS - 1))]


def process_step(worklist: Any, state: Any, control: Any) -> int:
    """Process the superstep's items; return GOES_ON when all are, GROW if there is no room, or ABORTED."""
    bins = worklist.bins
    counts = worklist.counts
    near = 1 + (counts[CURRENT_BUCKET] & (BUCKETS - 1))
    items = 0
    while True:
        source = URGENT
        end = URGENT_END
        initial = counts[NEXT_INITIAL] < counts[END_INITIAL]
        if initial:
            key = counts[NEXT_INITIAL]
            value = initial_value(state, key)
        else:
            if counts[URGENT_END] == 0:
                if counts[NEAR_END] == 0:
                    return GOES_ON
                source = near
                end = NEAR_END
            key = peek_key(bins, source, 0)
            look_ahead(state, peek_key(bins, source, FAR_AHEAD), peek_key(bins, source, NEAR_AHEAD))
        if not has_room(bins, fanout(state, key)):
            return GROW
        if initial:
            counts[NEXT_INITIAL] += 1
        else:
            if bins.head[source] + 1 == counts[end]:
                counts[end] = 0
            key, value = pop_bin(bins, source)
            bins.header[WAITING] -= 1
        process(worklist, state, key, value)
        counts[PROCESSED] += 1
        items += 1
        if items & (BATCH_ITEMS - 1) == 0 and load_acquire(control, ABORT) != 0:
            return ABORTED


def empty_mailboxes(worklist: Any, mailboxes: Any, state: Any) -> bool:
    """Receive all items; return False if there is no room, also for what `lowest_bucket` distributes."""
    bins = worklist.bins
    for sender in range(worklist.devices):
        if sender == worklist.device:
            continue
        while True:
            items = min(arrived(mailboxes, sender, worklist.device), BATCH_ITEMS)
            if items == 0:
                break
            if not has_room(bins, 2 * items):
                return False
            receive(worklist, mailboxes, state, sender, items)
    return bool(bins.tail[FAR] == 0 or has_room(bins, BUCKETS))


def meet(worklist: Any, control: Any) -> int:
    """Wait for the other workers; return GOES_ON, or the code that ends the run."""
    if worklist.bins.header[OVERFLOWED] != 0:
        store_release(control, ABORT, 1)
        return FAILED
    if not barrier(control, worklist.devices):
        return ABORTED
    return GOES_ON


def publish_step(worklist: Any, published: Any) -> None:
    """Publish what remains to do, for the second meeting."""
    bins = worklist.bins
    mine = worklist.device * PUBLISHED_WORDS
    unsent = 0
    for receiver in range(worklist.devices):
        if bins.tail[OUTBOX + receiver] != 0:
            unsent = 1
    store_relaxed(published, mine + STEP_UNSENT, unsent)
    store_relaxed(published, mine + STEP_LOWEST, lowest_bucket(bins))


def agree(worklist: Any, published: Any) -> tuple[bool, int]:
    """Return, after the second meeting, True if an outbox is not empty, and the lowest bucket of all."""
    unsent = False
    lowest = NO_BUCKET
    for device in range(worklist.devices):
        line = device * PUBLISHED_WORDS
        if load_relaxed(published, line + STEP_UNSENT) != 0:
            unsent = True
        lowest = min(lowest, load_relaxed(published, line + STEP_LOWEST))
    return unsent, lowest


def run_in_steps(worklist: Any, mailboxes: Any, published: Any, control: Any, state: Any) -> int:
    """Work until the run has ended or is aborted, or this worker must grow."""
    bins = worklist.bins
    counts = worklist.counts
    phase = counts[PHASE]
    while True:
        if phase == SEEDING:
            if not push_seeds(worklist):
                return GROW
            begin_step(worklist, counts[CURRENT_BUCKET])
            phase = WORKING
        if phase == WORKING:
            counts[PHASE] = WORKING
            code = process_step(worklist, state, control)
            if code != GOES_ON:
                return code
            counts[ROUNDS] += 1
            phase = FILLING
        if phase == FILLING:
            flush(worklist, mailboxes, published, state)
            code = meet(worklist, control)
            if code != GOES_ON:
                return code
        counts[PHASE] = EMPTYING
        if not empty_mailboxes(worklist, mailboxes, state):
            return GROW
        publish_step(worklist, published)
        code = meet(worklist, control)
        if code != GOES_ON:
            return code
        unsent, bucket = agree(worklist, published)
        phase = FILLING
        if not unsent:
            if bucket == NO_BUCKET:
                return FINISHED
            if bins.header[BASE] == NO_BUCKET or bins.header[BASE] < bucket:
                bins.header[BASE] = bucket
                counts[THRESHOLD_CHANGES] += 1
            begin_step(worklist, bucket)
            phase = WORKING
