// The meeting of all devices of a run, and their common decision there.
//
// The last block of each device to arrive writes a report into its own slot on every other device, then the
// epoch, with release at system scope, and waits until the epochs of all other devices have arrived in its
// own memory. A slot of epoch e is written again at e + 2, when its reader has met all devices at e + 1,
// after reading it. Termination: a report has the lowest priority that is pending on a device or sent by
// it: mailboxes are filled before the meeting, and items in them count for the sender. So if no device
// reports work, there is none.
//
// supersteps/step.cuh has an exchange of its own: there all devices get the same sums, each word with its
// epoch; here a report also has the item counts of mailboxes, which differ by receiver, and one flag covers
// all its words.
#pragma once

#include "runtime/cuda/include/barrier.cuh"
#include "worker/cuda/program.cuh"
#include "worker/cuda/window.cuh"

// By how many windows the bound is at most above the lowest pending priority: where blocks run ahead, and in
// dense rounds.
constexpr float LONGEST_LAG = 8, DENSE_LAG = 1;

// Exchange reports; called by the first warp of each device's last block. Return true if all arrived in
// time. Lane p gets the report of device p in `others`.
template <class P>
__device__ __forceinline__ bool warp_exchange(const Part<P> &part, Report mine, Report &others) {
    u32 lane = lane_id();
    Control *control = part.control;
    u32 epoch = control->epoch + 1;
    bool in_time = true;
    __threadfence_system();
    if (lane < part.devices) {
        if (lane == part.device) {
            others = mine;
        } else {
            if (part.latency_ns) {
                u64 until = now_ns() + part.latency_ns;
                while (now_ns() < until) __nanosleep(100);
            }
            Board *there = part.boards[lane];
            Report *slot = &there->reports[epoch & 1][part.device];
            store_system(&slot->lowest, mine.lowest);
            store_system(&slot->flags, mine.flags);
            store_system(&slot->limit, mine.limit);
            store_system(&slot->now_ns, mine.now_ns);
            for (u32 last = 0; last < part.devices; last++) {
                u32 items = part.next_hop[last] == lane ? control->outgoing[last] : 0;
                store_system(&slot->items[last], items);
            }
            store_release_system(&there->epochs[part.device][0], epoch);
            u64 begin = now_ns();
            const u32 *flag = &part.board->epochs[lane][0];
            while (static_cast<i32>(load_acquire_system(flag) - epoch) < 0) {
                u64 waiting = now_ns() - begin;
                // The host's word is behind the bus, and not read in a wait of normal length.
                if (waiting > part.patience_ns ||
                    (waiting > ASK_HOST_NS && load_system(part.stop))) {
                    in_time = false;
                    break;
                }
            }
            const Report *report = &part.board->reports[epoch & 1][lane];
            others.lowest = load_system(&report->lowest);
            others.flags = load_system(&report->flags);
            for (u32 last = 0; last < part.devices; last++)
                others.items[last] = load_system(&report->items[last]);
            others.limit = load_system(&report->limit);
            others.now_ns = load_system(&report->now_ns);
        }
    }
    in_time = __all_sync(FULL_WARP, in_time);
    __threadfence_system();
    if (lane == 0) control->epoch = epoch;
    return in_time;
}

template <class Value>
__device__ __forceinline__ Value value_of_bits(u64 bits) {
    Value value;
    memcpy(&value, &bits, sizeof(Value));
    return value;
}

template <class Value>
__device__ __forceinline__ u64 bits_of_value(Value value) {
    u64 bits = 0;
    memcpy(&bits, &value, sizeof(Value));
    return bits;
}

// Decide what follows this round, and return the word that releases the other blocks; called by the first
// warp of each device's last block. `due` is the number of vertices within the bound that were left pending.
//
// The bound decreases only when the window becomes narrower, and is not below the lowest pending priority, so
// every round has work, whatever the window is. It is at most LONGEST_LAG windows above the lowest priority:
// otherwise vertices that were left pending after the last hop, or arrive late from other devices, would be
// processed far out of order. (A lag of a few windows is normal between devices, and does no harm.) In dense
// rounds, which follow one arc, most of the work within the bound is left at a meeting: a bound that rose by a
// window each time would run away from it, and stays at one window.
template <class P>
__device__ u64 warp_decide(const Part<P> &part, u64 due, u64 begin_ns) {
    using Value = typename P::Value;
    Control *control = part.control;
    u32 lane = lane_id();
    // All at once, as each load takes as long as the rest of the decision.
    Report mine{};
    mine.lowest = load_relaxed(&control->lowest);
    mine.limit = bits_of_value(load_relaxed(reinterpret_cast<Value *>(&control->limit)));
    const u32 overflow = load_relaxed(&control->overflow);
    const u32 round = load_relaxed(&control->round);
    const float bound = load_relaxed(&control->bound);
    const u64 rounds = load_relaxed(&control->counters[ROUNDS]);
    const u64 changes = load_relaxed(&control->counters[THRESHOLD_CHANGES]);
    Window window{load_relaxed(&control->window), load_relaxed(&control->hops), Trials{}};
    if constexpr (!P::accumulates)
        if (part.adapts) window.trials = control->trials;
    const float width_before = window.width;
    mine.now_ns = __shfl_sync(FULL_WARP, now_ns(), 0);  // lanes' clocks differ, reports must not
    mine.flags = mine.now_ns - begin_ns > part.slice_ns ? FLAG_LEAVE : 0;
    if (__shfl_sync(FULL_WARP, overflow, 0)) mine.flags |= FLAG_OVERFLOW;
    if (due >= part.sparse_items) mine.flags |= FLAG_DENSE;
    u32 lowest = mine.lowest, flags = mine.flags;
    u64 time_ns = mine.now_ns;  // of the first device
    if (part.has_peers()) {
        Report others = mine;
        if (!warp_exchange(part, mine, others)) flags |= FLAG_LOST;
        bool there = lane < part.devices;
        lowest = __reduce_min_sync(FULL_WARP, there ? others.lowest : NO_KEY);
        flags = __reduce_or_sync(FULL_WARP, flags | (there ? others.flags : 0));
        time_ns = __shfl_sync(FULL_WARP, others.now_ns, 0);
        if (there) {
            for (u32 last = 0; last < part.devices; last++)
                control->incoming[lane][last] = lane == part.device ? 0 : others.items[last];
            control->outgoing[lane] = 0;
        }
        Value limit = value_of_bits<Value>(mine.limit);
        for (u32 device = 0; device < part.devices; device++) {
            u64 bits = __shfl_sync(FULL_WARP, others.limit, device);
            Value theirs = value_of_bits<Value>(bits);
            if (improves<P>(theirs, limit)) limit = theirs;
        }
        if (lane == 0) *reinterpret_cast<Value *>(&control->limit) = limit;
        u32 arrive = there && lane != part.device ? others.items[part.device] : 0;
        due += __reduce_add_sync(FULL_WARP, arrive);
    }
    const bool is_dense = (flags & FLAG_DENSE) != 0;
    u32 status = RUNNING;
    if (flags & FLAG_LOST)
        status = PEER_LOST;
    else if (lowest == NO_KEY || (flags & FLAG_OVERFLOW))
        status = FINISHED;
    else if (flags & FLAG_LEAVE)
        status = LEFT;
    const float first = priority_of_key(lowest);
    bool begins = false;
    if constexpr (!P::accumulates) {
        if (part.adapts)
            begins = adapt_window(part, window, round, first, time_ns, is_dense, status != RUNNING);
    }
    float lag = is_dense ? DENSE_LAG : LONGEST_LAG;
    float next = fminf(fmaxf(bound, first) + window.width, first + lag * window.width);
    if (!(next >= bound) && window.width >= width_before) next = bound;
    __syncwarp();  // all lanes have read the words that lane 0 changes
    if (lane == 0) {
        if constexpr (!P::accumulates) {
            if (part.adapts) {
                if (begins) window.trials.begin_bound = fmaxf(next, bound);
                control->window = window.width;
                control->hops = window.hops;
                control->trials = window.trials;
            }
        }
        control->counters[THRESHOLD_CHANGES] = changes + (next > bound);
        control->counters[ROUNDS] = rounds + 1;
        control->bound = next;
        control->lowest = NO_KEY;
        control->hub_cursor = 0;
        control->round = round + 1;
        control->status = status;
        if (flags & FLAG_OVERFLOW) control->overflow = 1;
    }
    __syncwarp();
    u64 word = __float_as_uint(next);
    if (status != RUNNING) word |= static_cast<u64>(FLAG_STOP) << 32;
    if (due < part.sparse_items) word |= static_cast<u64>(FLAG_SPARSE) << 32;
    return word;
}
