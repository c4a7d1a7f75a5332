// A frontier: a bitmap over all positions, of which a device reads and writes its own range, and beside it a
// queue of the device's members, by own index. Where a frontier is small, its queue spares going through a bitmap
// of the whole graph; where it is tiny, one block of each device goes through the queue alone.
//
// The bitmap is the truth. A queue is what there is room for: `state[FORM]`, the same on every device, says
// whether all queues hold all members (LISTED), and whoever goes through a frontier that is not goes through the
// bitmap. queue[state[QUEUE]] is the frontier's; the other one gathers the next frontier's: what a filter leaves,
// what an owner merges word by word, or, where LISTS, own vertices as they are touched, since those that are
// touched are in the frontier as soon as they are merged. Vertices of others that are touched go to the list
// `sent`, once each, by position; their owners read the lists of all.
//
// Who resets what, and why nobody reads it meanwhile:
// - A queue's count, and that of `sent`: the thread that decides, between the superstep that reads them, which
//   everybody has ended then, and the next, of which nobody begins before. Lists are written in one superstep,
//   and read in the one after that.
// - The frontier's bits, where LISTS: those of the members by the superstep that sends, which goes through the
//   queue; those of the next are set by the one that merges. Without lists, the superstep that merges writes
//   whole words. Filters clear bits of those that leave, and go through either queue or bitmap.
// - Bits of `touched`: in a superstep that merges by lists nobody reads any. The owner clears words of its
//   range at home, by its queue, and whoever sent clears those of others' vertices at home, by `sent`. Without
//   lists an owner reads the words of its range at all devices, and clears them: no one else has to do with them.
// - Other devices' bitmaps, which pulling reads: whoever writes whole words writes them everywhere; where bits
//   are set and cleared by lists, that is only done at home (REPLICATED is 0 then), and a superstep that stores
//   own words everywhere goes before one that pulls.
#pragma once

#include "frontier/cuda/frontier.cuh"

constexpr u64 FEW_VERTICES = 1024;   // on all devices: for one block of each
constexpr i64 SHORT_ROW_ARCS = 32;   // longer ones are not for one block alone
constexpr u32 SPREAD = 0x20000000u;  // of a phase: own words are stored everywhere before it
constexpr u32 TURNED = 0x10000000u;  // of a phase: it pulls, where the same step pushes, too

// Bits of state[FORM]. LISTS: pushing lists what it touches. SHORT: no row has more than SHORT_ROW_ARCS. Of
// what was touched, before it is merged: LISTED_TOUCHED: lists hold all of it; HAS_SENT: some are of others.
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

// The positions of others' vertices that a device has sent to.
__device__ __forceinline__ Id *sent_list(QueueControl *queues) {
    return reinterpret_cast<Id *>(queues + 1);
}

__device__ __forceinline__ u32 *own_words(const Arguments &arguments, u32 *const *bitmaps) {
    return bitmaps[arguments.stage.device] + arguments.stage.first() / WARP;
}

__device__ __forceinline__ i64 own_word_count(const Arguments &arguments) {
    return (arguments.stage.owned + WARP - 1) / WARP;
}

// Places in a list for so many of each lane; returns where the lane's begin. All lanes come.
__device__ __forceinline__ u32 warp_places(u32 *count, u32 amount) {
    const u32 end = warp_sum_up_to(amount);
    u32 begin = 0;
    if (lane_id() == WARP - 1 && end) begin = atomicAdd(count, end);
    return __shfl_sync(FULL_WARP, begin, WARP - 1) + end - amount;
}

// Likewise for one of each lane that has any.
__device__ __forceinline__ u32 warp_place(u32 *count, bool has) {
    const u32 all = __ballot_sync(FULL_WARP, has);
    u32 begin = 0;
    if (lane_id() == 0 && all) begin = atomicAdd(count, static_cast<u32>(__popc(all)));
    begin = __shfl_sync(FULL_WARP, begin, 0);
    return begin + __popc(all & ((1u << lane_id()) - 1));
}

__device__ __forceinline__ void thread_put(const Arguments &arguments, u32 which, u32 place,
                                           i64 own, Tally &tally) {
    if (place < arguments.queue_room)
        arguments.queue[which][place] = static_cast<u32>(own);
    else
        tally.missed++;
}

// A vertex is in the next frontier: what is to be known of it.
__device__ __forceinline__ void thread_count_member(const Arguments &arguments, i64 own,
                                                    Tally &tally) {
    tally.members++;
    if (own >= arguments.long_below) return;
    const i64 *offsets = arguments.out.offsets;
    tally.long_rows += !arguments.is_directed || offsets[own + 1] - offsets[own] > SHORT_ROW_ARCS;
}

// Queue the vertices of the lanes' words, of which there may be more than there is room for.
__device__ __forceinline__ void warp_queue_words(const Arguments &arguments, u32 which, i64 word,
                                                 u32 bits, Tally &tally) {
    if (!__any_sync(FULL_WARP, bits != 0)) return;
    u32 *count = &own_queues(arguments).queued[which];
    // What is full already is left alone: one word for all warps to come to.
    if (__shfl_sync(FULL_WARP, load_relaxed(count), 0) >= arguments.queue_room) {
        tally.members += __popc(bits);
        tally.missed += bits != 0;
        return;
    }
    u32 place = warp_places(count, __popc(bits));
    while (bits) {
        const i64 own = word * WARP + __ffs(static_cast<int>(bits)) - 1;
        bits &= bits - 1;
        thread_count_member(arguments, own, tally);
        thread_put(arguments, which, place++, own, tally);
    }
}

// Go through words of the own range: a lane loads a word, and for those that are not 0 the whole warp does
// visit(word's index, its value), which returns a word, too. Then all lanes come to finish(word's index, what was
// returned for it, or 0). Units of neighbouring words are dealt out to the warps of the team in turn.
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

// The members of a queue: visit(lane's own index, is it one of them). All lanes of a warp come.
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

// The vertices that an operator is for, 32 at a time: visit(lane's own index, is it one of them). Neighbours,
// if the operator is for all. All lanes of a warp come. One loop for queue and bitmap, as visits are long, and
// what is easily made again is not kept over them.
template <class Visit>
__device__ __forceinline__ void team_visit_members(const Arguments &arguments, const Team &team,
                                                   const u64 *state, bool everywhere, Visit visit) {
    constexpr u32 UNIT = 8;
    const bool by_queue = !everywhere && has_form(state, LISTED);
    const u32 words = static_cast<u32>(own_word_count(arguments));
    // A round is WARP members, or UNIT words; `there`: of WARP words, those that are not 0 nor done.
    const u32 limit = by_queue ? own_queues(arguments).queued[state[QUEUE]] : words;
    const u32 warps = static_cast<u32>(team.warps()), warp = static_cast<u32>(team.warp());
    u32 there = 0, bits = 0;
    for (u32 round = 0;;) {
        u32 own = 0;
        bool is_member;
        if (by_queue) {
            const u64 first = (static_cast<u64>(round++) * warps + warp) * WARP;
            if (first >= limit) return;
            is_member = first + lane_id() < limit;
            if (is_member) own = arguments.queue[state[QUEUE]][first + lane_id()];
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
            own = (unit * UNIT + whose % UNIT) * WARP + lane_id();
            is_member = (__shfl_sync(FULL_WARP, bits, whose) >> lane_id() & 1) &&
                        own < arguments.stage.owned;
        }
        visit(static_cast<i64>(own), is_member);
    }
}

// Make the next frontier word by word: make(word's index, its value) by a warp returns its word of it, where
// load(word's index) is not 0; elsewhere it stays as it is, which is empty.
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

// What was touched, by its list, is the next frontier, if it is one that follows. After merge(own index) of each.
template <bool follows, class Merge>
__device__ __forceinline__ void team_take_touched(const Arguments &arguments, const Team &team,
                                                  const u64 *state, Tally &tally, Merge merge) {
    u32 *touched = own_words(arguments, arguments.touched);
    u32 *frontier = own_words(arguments, arguments.frontiers);
    team_visit_queue(arguments, team, queue_of_next(state), [&](i64 own, bool is_touched) {
        if (!is_touched) return;
        merge(own);
        touched[own / WARP] = 0;  // all that are set in this word are in the list
        if constexpr (follows) {
            set_bits(&frontier[own / WARP], 1u << (own % WARP));
            thread_count_member(arguments, own, tally);
        }
    });
}

// Where LISTS: the members' bits go while messages are sent, and nobody reads any.
__device__ __forceinline__ void team_clear_members(const Arguments &arguments, const Team &team,
                                                   const u64 *state) {
    u32 *frontier = own_words(arguments, arguments.frontiers);
    team_visit_queue(arguments, team, static_cast<u32>(state[QUEUE]), [&](i64 own, bool is_member) {
        if (is_member) frontier[own / WARP] = 0;
    });
}

// Other devices learn which of the own vertices are in the frontier.
__device__ __forceinline__ void team_spread(const Arguments &arguments, const Team &team) {
    const Stage &stage = arguments.stage;
    const i64 first = stage.first() / WARP, words = own_word_count(arguments);
    for (i64 word = static_cast<i64>(team.thread()); word < words;
         word += static_cast<i64>(team.threads())) {
        const u32 bits = arguments.frontiers[stage.device][first + word];
        for (u32 device = 0; device < stage.devices; device++)
            if (device != stage.device) arguments.frontiers[device][first + word] = bits;
    }
}

// By one thread of each device, between two supersteps, from what is the same on all devices:

// A superstep was to touch vertices. How they are merged, and by whom: bits of the next phase.
__device__ __forceinline__ u32 thread_have_touched(const Arguments &arguments, const Sums &totals,
                                                   u64 *state, bool sends) {
    const u64 count = totals.counts[MEMBERS];
    // Of what is sent to an owner there is nothing that it did not have room for.
    if (has_form(state, LISTS) && !totals.counts[MISSED] && count <= arguments.queue_room) {
        state[FORM] |= LISTED_TOUCHED;
        if (sends && totals.counts[TOTAL]) state[FORM] |= HAS_SENT;
        return count <= FEW_VERTICES ? ALONE : 0;
    }
    own_queues(arguments).queued[queue_of_next(state)] = 0;  // it is filled again
    // The members' bits went at home; merging word by word passes over words where none came.
    if (PULLS && has_form(state, LISTS)) state[REPLICATED] = 0;
    return 0;
}

// There is a new frontier.
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

// What was touched is merged, and the frontier is what it was.
__device__ __forceinline__ void thread_keep_frontier(const Arguments &arguments, u64 *state) {
    QueueControl &queues = own_queues(arguments);
    queues.queued[queue_of_next(state)] = 0;
    queues.sent = 0;
    state[FORM] &= ~static_cast<u64>(LISTED_TOUCHED | HAS_SENT);
}

// A phase that is for the frontier's vertices, or for their arcs, or that pulls.
__device__ __forceinline__ u32 phase_of_members(u32 phase, const u64 *state) {
    return has_form(state, FEW) ? phase | ALONE : phase;
}
__device__ __forceinline__ u32 phase_of_arcs(u32 phase, const u64 *state) {
    return has_form(state, FEW | SHORT) ? phase | ALONE : phase;
}
__device__ __forceinline__ u32 phase_of_pull(const Arguments &arguments, u32 phase,
                                             const u64 *state) {
    return arguments.stage.devices > 1 && !state[REPLICATED] ? phase | SPREAD : phase;
}
