// A frontier: a bitmap of all positions, of which a device reads and writes its own range, and a queue of
// the device's members, by local index. If the frontier is small, the queue avoids scanning a bitmap of the
// whole graph; if it is tiny, one block of each device processes the queue alone.
//
// The bitmap is always complete; a queue holds as many members as it has room for. `state[FORM]`, the same
// on every device, has LISTED if all queues are complete; otherwise operators scan the bitmap.
// queue[state[QUEUE]] is the frontier's; the other one gathers the next frontier: what a filter keeps, what
// an owner merges word by word, or, if LISTS, own vertices as they are touched, as touched vertices are in
// the frontier once they are merged. Touched vertices of other devices go to the list `sent`, once each, by
// position; their owners read the lists of all devices.
//
// What resets which memory, and why nothing reads it meanwhile:
// - The counts of queues and of `sent`: the deciding thread, after all devices have ended the superstep
// that
//   reads them, and before any begins the next. Lists are written in one superstep and read in the one
// after.
// - Bits of the frontier, if LISTS: the superstep that sends goes through the queue and clears those of the
//   members; the one that merges sets those of the next. Without lists, the superstep that merges writes
// whole
//   words. A filter clears the bits of vertices that it removes, by queue or by bitmap.
// - Bits of `touched`: a superstep that merges by lists reads none. The owner clears words of its range in
// its
//   own memory, by its queue; a sender clears those of others' vertices in its own memory, by `sent`.
// Without
//   lists an owner reads and clears the words of its range on all devices, which no other device accesses.
// - Bitmaps of other devices, which pulling reads: whole words are written on all devices; bits that are
// set and
//   cleared by lists only on the owner (REPLICATED is 0 then), and an extra superstep copies the owners'
// words to
//   all devices before the next one that pulls.
#pragma once

#include "frontier/cuda/frontier.cuh"

constexpr u64 FEW_VERTICES = 1024;      // of all devices; fewer are for one block of each
constexpr i64 SHORT_ROW_ARCS = 32;      // one block alone takes no longer rows
constexpr u32 BROADCAST = 0x20000000u;  // of a phase: first copy own words to all devices
constexpr u32 TURNED = 0x10000000u;     // of a phase: the pulling form of an automatic step

// Bits of state[FORM]. FEW: at most FEW_VERTICES. SHORT: no row is longer than SHORT_ROW_ARCS. LISTS:
// pushing lists the vertices that it touches. LISTED_TOUCHED: these lists are complete. HAS_SENT: some are
// of other devices.
enum FrontierForm : u64 {
    LISTED = 1,
    FEW = 2,
    SHORT = 4,
    LISTS = 8,
    LISTED_TOUCHED = 16,
    HAS_SENT = 32
};

__device__ __forceinline__ bool has_form(const u64 *state, u64 form) {
    return (state[FORM] & form) == form;
}

__device__ __forceinline__ u32 queue_of_next(const u64 *state) {
    return static_cast<u32>(state[QUEUE]) ^ 1;
}

__device__ __forceinline__ QueueControl &own_queues(const Arguments &arguments) {
    return *arguments.queues[arguments.stage.device];
}

// The positions of remote vertices that a device has sent to.
__device__ __forceinline__ Id *sent_list(QueueControl *queues) {
    return reinterpret_cast<Id *>(queues + 1);
}

__device__ __forceinline__ u32 *own_words(const Arguments &arguments, u32 *const *bitmaps) {
    return bitmaps[arguments.stage.device] + arguments.stage.first() / WARP;
}

__device__ __forceinline__ i64 own_word_count(const Arguments &arguments) {
    return (arguments.stage.owned + WARP - 1) / WARP;
}

// Reserve `amount` places in a list for each lane; return the lane's first. Called by whole warps.
__device__ __forceinline__ u32 warp_places(u32 *count, u32 amount) {
    const u32 end = warp_sum_up_to(amount);
    u32 begin = 0;
    if (lane_id() == WARP - 1 && end) begin = atomicAdd(count, end);
    return __shfl_sync(FULL_WARP, begin, WARP - 1) + end - amount;
}

__device__ __forceinline__ void thread_put(const Arguments &arguments, u32 which, u32 place,
                                           i64 local, Tally &tally) {
    if (place < arguments.queue_room)
        arguments.queue[which][place] = static_cast<u32>(local);
    else
        tally.missed++;
}

// Count a vertex of the next frontier.
__device__ __forceinline__ void thread_count_member(const Arguments &arguments, i64 local,
                                                    Tally &tally) {
    tally.members++;
    if (local >= arguments.long_below) return;
    const i64 *offsets = arguments.out.offsets;
    tally.long_rows +=
        !arguments.is_directed || offsets[local + 1] - offsets[local] > SHORT_ROW_ARCS;
}

// Queue the vertices of the lanes' words, as far as there is room.
__device__ __forceinline__ void warp_queue_words(const Arguments &arguments, u32 which, i64 word,
                                                 u32 bits, Tally &tally) {
    if (!__any_sync(FULL_WARP, bits != 0)) return;
    u32 *count = &own_queues(arguments).queued[which];
    // No atomics on the count of a full queue, which all warps would contend for.
    if (__shfl_sync(FULL_WARP, load_relaxed(count), 0) >= arguments.queue_room) {
        tally.members += __popc(bits);
        tally.missed += bits != 0;
        return;
    }
    u32 place = warp_places(count, __popc(bits));
    while (bits) {
        const i64 local = word * WARP + __ffs(static_cast<int>(bits)) - 1;
        bits &= bits - 1;
        thread_count_member(arguments, local, tally);
        thread_put(arguments, which, place++, local, tally);
    }
}

// Visit the words of the own range: a lane loads a word, and for each that is not 0 the whole warp calls
// visit(word index, value), which returns a word. Then all lanes call finish(word index, returned word or
// 0). Units of neighbouring words go to the warps of the team by turns.
template <class Load, class Visit, class Finish>
__device__ __forceinline__ void team_visit_words(const Team &team, i64 words, Load load,
                                                 Visit visit, Finish finish) {
    constexpr i64 UNIT = 8;
    const i64 units = (words + UNIT - 1) / UNIT, warps = static_cast<i64>(team.warps());
    const i64 lane = lane_id();
    for (i64 round = 0; round * warps < units; round += WARP / UNIT) {
        const i64 unit = (round + lane / UNIT) * warps + static_cast<i64>(team.warp());
        const i64 word = unit * UNIT + lane % UNIT;
        const u32 bits = word < words ? load(word) : 0;
        u32 there = __ballot_sync(FULL_WARP, bits != 0), made = 0;
        while (there) {
            const u32 whose = __ffs(static_cast<int>(there)) - 1;
            there &= there - 1;
            const u32 one =
                visit(__shfl_sync(FULL_WARP, word, whose), __shfl_sync(FULL_WARP, bits, whose));
            if (lane == whose) made = one;
        }
        finish(word, made);
    }
}

// Visit the members of a queue: visit(local index, is a member). Called by whole warps, as is visit.
template <class Visit>
__device__ __forceinline__ void team_visit_queue(const Arguments &arguments, const Team &team,
                                                 u32 which, Visit visit) {
    const u32 *queue = arguments.queue[which];
    const u64 count = own_queues(arguments).queued[which];
    for (u64 base = team.warp() * WARP; base < count; base += team.warps() * WARP) {
        const u64 place = base + lane_id();
        visit(place < count ? static_cast<i64>(queue[place]) : 0, place < count);
    }
}

// Visit the vertices that an operator is for, 32 at a time: visit(local index, is one of them). Called by
// whole warps, as is visit. One loop for queue and bitmap, since the inlined visits are long; values that
// are cheap to compute again are not kept in registers over a visit.
template <class Visit>
__device__ __forceinline__ void team_visit_members(const Arguments &arguments, const Team &team,
                                                   const u64 *state, bool everywhere, Visit visit) {
    constexpr u32 UNIT = 8;
    const bool by_queue = !everywhere && has_form(state, LISTED);
    const u32 words = static_cast<u32>(own_word_count(arguments));
    // A round is WARP members, or UNIT words; `there` is a mask of the WARP words that are neither 0 nor
    // done.
    const u32 limit = by_queue ? own_queues(arguments).queued[state[QUEUE]] : words;
    const u32 warps = static_cast<u32>(team.warps()), warp = static_cast<u32>(team.warp());
    u32 there = 0, bits = 0;
    for (u32 round = 0;;) {
        u32 local = 0;
        bool is_member;
        if (by_queue) {
            const u64 first = (static_cast<u64>(round++) * warps + warp) * WARP;
            if (first >= limit) return;
            is_member = first + lane_id() < limit;
            if (is_member) local = arguments.queue[state[QUEUE]][first + lane_id()];
        } else {
            while (!there) {
                if (static_cast<u64>(round) * warps * UNIT >= limit) return;
                const u64 unit = static_cast<u64>(round + lane_id() / UNIT) * warps + warp;
                const u64 word = unit * UNIT + lane_id() % UNIT;
                const u32 *frontier = own_words(arguments, arguments.frontiers);
                bits = word >= limit ? 0 : everywhere ? FULL_WARP : frontier[word];
                there = __ballot_sync(FULL_WARP, bits != 0);
                round += WARP / UNIT;
            }
            const u32 whose = __ffs(static_cast<int>(there)) - 1;
            there &= there - 1;
            const u32 unit = (round - WARP / UNIT + whose / UNIT) * warps + warp;
            local = (unit * UNIT + whose % UNIT) * WARP + lane_id();
            is_member = (__shfl_sync(FULL_WARP, bits, whose) >> lane_id() & 1) &&
                        local < arguments.stage.owned;
        }
        visit(static_cast<i64>(local), is_member);
    }
}

// Make the next frontier word by word: where load(word index) is not 0, a warp calls make(word index,
// value), which returns the new word; the other words stay empty.
template <class Load, class Make>
__device__ __forceinline__ void team_make_frontier(const Arguments &arguments, const Team &team,
                                                   const u64 *state, Tally &tally, Load load,
                                                   Make make) {
    const Stage &stage = arguments.stage;
    const u32 which = queue_of_next(state);
    team_visit_words(
        team, own_word_count(arguments), load,
        [&](i64 word, u32 bits) {
            const u32 made = make(word, bits);
            const i64 place = stage.first() / WARP + word;
            if (PULLS) {
                if (lane_id() < stage.devices) arguments.frontiers[lane_id()][place] = made;
            } else if (lane_id() == 0) {
                arguments.frontiers[stage.device][place] = made;
            }
            return made;
        },
        [&](i64 word, u32 made) { warp_queue_words(arguments, which, word, made, tally); });
}

// Call merge(local index) of each touched vertex in the list; if `follows`, they are the next frontier.
template <bool follows, class Merge>
__device__ __forceinline__ void team_take_touched(const Arguments &arguments, const Team &team,
                                                  const u64 *state, Tally &tally, Merge merge) {
    u32 *touched = own_words(arguments, arguments.touched);
    u32 *frontier = own_words(arguments, arguments.frontiers);
    team_visit_queue(arguments, team, queue_of_next(state), [&](i64 local, bool is_touched) {
        if (!is_touched) return;
        merge(local);
        touched[local / WARP] = 0;  // all vertices of this word are in the list
        if constexpr (follows) {
            set_bits(&frontier[local / WARP], 1u << (local % WARP));
            thread_count_member(arguments, local, tally);
        }
    });
}

// Clear the bits of the frontier's members, if LISTS; called while messages are sent, when no bits are
// read.
__device__ __forceinline__ void team_clear_members(const Arguments &arguments, const Team &team,
                                                   const u64 *state) {
    u32 *frontier = own_words(arguments, arguments.frontiers);
    team_visit_queue(arguments, team, static_cast<u32>(state[QUEUE]),
                     [&](i64 local, bool is_member) {
                         if (is_member) frontier[local / WARP] = 0;
                     });
}

// Copy the own range of the frontier's bitmap to all devices.
__device__ __forceinline__ void team_broadcast(const Arguments &arguments, const Team &team) {
    const Stage &stage = arguments.stage;
    const i64 first = stage.first() / WARP, words = own_word_count(arguments);
    for (i64 word = static_cast<i64>(team.thread()); word < words;
         word += static_cast<i64>(team.threads())) {
        const u32 bits = arguments.frontiers[stage.device][first + word];
        for (u32 device = 0; device < stage.devices; device++)
            if (device != stage.device) arguments.frontiers[device][first + word] = bits;
    }
}

// Called by one thread of each device between two supersteps, with the same arguments on all devices:

// Decide how touched vertices are merged, and by which blocks: return bits of the next phase.
__device__ __forceinline__ u32 thread_have_touched(const Arguments &arguments, const Sums &totals,
                                                   u64 *state, bool sends) {
    const u64 count = totals.counts[MEMBERS];
    // An owner has room for all: `count` includes what was sent to it.
    if (has_form(state, LISTS) && !totals.counts[MISSED] && count <= arguments.queue_room) {
        state[FORM] |= LISTED_TOUCHED;
        if (sends && totals.counts[TOTAL]) state[FORM] |= HAS_SENT;
        return count <= FEW_VERTICES ? ALONE : 0;
    }
    own_queues(arguments).queued[queue_of_next(state)] = 0;  // merging fills it again
    // Members' bits were cleared on the owner only, and merging word by word skips words without messages.
    if (PULLS && has_form(state, LISTS)) state[REPLICATED] = 0;
    return 0;
}

// Replace the frontier by the next one.
__device__ __forceinline__ void thread_take_frontier(const Arguments &arguments, const Sums &totals,
                                                     u64 *state, bool by_list) {
    const u64 members = totals.counts[MEMBERS];
    QueueControl &queues = own_queues(arguments);
    queues.queued[state[QUEUE]] = 0;
    queues.sent = 0;
    state[QUEUE] ^= 1;
    state[FORM] = 0;
    if (PULLS && by_list && arguments.stage.devices > 1) state[REPLICATED] = 0;
    if (totals.counts[MISSED]) return;
    state[FORM] = LISTED | (members <= FEW_VERTICES ? FEW : 0) | (totals.counts[LONG] ? 0 : SHORT) |
                  (members <= arguments.listing_limit ? LISTS : 0);
}

// Keep the frontier after touched vertices were merged.
__device__ __forceinline__ void thread_keep_frontier(const Arguments &arguments, u64 *state) {
    QueueControl &queues = own_queues(arguments);
    queues.queued[queue_of_next(state)] = 0;
    queues.sent = 0;
    state[FORM] &= ~static_cast<u64>(LISTED_TOUCHED | HAS_SENT);
}

// Return a phase with its bits: one for the frontier's vertices, for their arcs, or one that pulls.
__device__ __forceinline__ u32 phase_of_members(u32 phase, const u64 *state) {
    return has_form(state, FEW) ? phase | ALONE : phase;
}
__device__ __forceinline__ u32 phase_of_arcs(u32 phase, const u64 *state) {
    return has_form(state, FEW | SHORT) ? phase | ALONE : phase;
}
__device__ __forceinline__ u32 phase_of_pull(const Arguments &arguments, u32 phase,
                                             const u64 *state) {
    return arguments.stage.devices > 1 && !state[REPLICATED] ? phase | BROADCAST : phase;
}
