"""The bulk-synchronous worker: what each virtual device's thread runs where all go in step.

It works on the queues, mailboxes and operators of the asynchronous worker (worker.py); only the loop is
another. A superstep of every worker:

1. process the items that were queued, when it began, in the lowest bucket of all, each once: what they
   push comes in a later superstep, be it of the same bucket;
2. fill the mailboxes from the outboxes, as far as credit goes; **meet**; empty them; **meet**; again
   until nobody's outbox holds anything;
3. agree on the lowest bucket that anybody holds. None: the run has ended.

A value that improves in a superstep is seen at once by what is processed later in it on the same device:
supersteps order the work, and nothing else.

Invariants:
- Mailboxes are only filled between the second meeting and the first, and only emptied between the first
  and the second. So at the second meeting they are empty, and what is waiting lies in queues and
  outboxes, which each worker published before it came: the end cannot be seen too soon.
- What a worker publishes in front of the second meeting is written again only behind the next first one,
  by when all have read it: all decide alike.
- A worker without room leaves with its place in the superstep in `counts`, and comes back to it with a
  larger arena; the others meanwhile wait at the meeting that it has not reached.
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

# Words of `counts` that stand for other things in the shared-memory engine.
PHASE = ROUND_PARITY
URGENT_END = (
    RESUME_BEGIN  # the superstep's items of the bin of urgent ones end here, 0 if none is left
)
NEAR_END = RESUME_END  # likewise of the bucket's bin

# Values of PHASE: where a worker goes on.
SEEDING = 0
WORKING = 1
FILLING = 2
EMPTYING = 3

# Words of `published` beside those of the asynchronous worker: `flush` lowers its LOWEST at any time.
STEP_LOWEST = 4  # lowest bucket that the worker holds
STEP_UNSENT = 5  # whether its outboxes hold anything


def begin_step(worklist: Any, bucket: int) -> None:
    """The items of the superstep are those that wait now, urgent or in the bucket."""
    bins = worklist.bins
    counts = worklist.counts
    counts[CURRENT_BUCKET] = bucket
    counts[URGENT_END] = bins.tail[URGENT]
    counts[NEAR_END] = bins.tail[1 + (bucket & (BUCKETS - 1))]


def work_off(worklist: Any, state: Any, control: Any) -> int:
    """Process the superstep's items: GOES_ON when all are, GROW where room ran out, ABORTED."""
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
    """Take in all that has arrived, and look through the queues; False where room ran out."""
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
    # `lowest_bucket` deals the far bin out.
    return bool(bins.tail[FAR] == 0 or has_room(bins, BUCKETS))


def meet(worklist: Any, control: Any) -> int:
    """Wait for the others: GOES_ON, or what ends the run."""
    if worklist.bins.header[OVERFLOWED] != 0:
        store_release(control, ABORT, 1)
        return FAILED
    if not barrier(control, worklist.devices):
        return ABORTED
    return GOES_ON


def publish_step(worklist: Any, published: Any) -> None:
    """What is left to do here, for the second meeting."""
    bins = worklist.bins
    mine = worklist.device * PUBLISHED_WORDS
    unsent = 0
    for receiver in range(worklist.devices):
        if bins.tail[OUTBOX + receiver] != 0:
            unsent = 1
    store_relaxed(published, mine + STEP_UNSENT, unsent)
    store_relaxed(published, mine + STEP_LOWEST, lowest_bucket(bins))


def agree(worklist: Any, published: Any) -> tuple[bool, int]:
    """Behind the second meeting: whether items still wait in outboxes, and the lowest bucket of all."""
    unsent = False
    lowest = NO_BUCKET
    for device in range(worklist.devices):
        line = device * PUBLISHED_WORDS
        if load_relaxed(published, line + STEP_UNSENT) != 0:
            unsent = True
        lowest = min(lowest, load_relaxed(published, line + STEP_LOWEST))
    return unsent, lowest


def run_in_steps(worklist: Any, mailboxes: Any, published: Any, control: Any, state: Any) -> int:
    """Work with the others until the run has ended, is aborted, or this worker must grow."""
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
            code = work_off(worklist, state, control)
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
