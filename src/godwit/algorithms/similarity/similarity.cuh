// Similarity of pairs of vertices: their common neighbours, each with a term, by one device that has all rows.
//
// The shorter row of a pair is visited, and each neighbour is looked up in the longer one. Pairs whose longer row
// is long, a *hub*'s, are grouped by it (a counting sort). A block takes a unit of such pairs, one a thread, sets a bit in shared
// memory for each neighbour of the hub, and its warps look neighbours up there. Where the bits of all vertices do
// not fit, ranges of vertices take turns, and each look-up is in one of them. Batches of other pairs go to warps as
// these come: two long rows are merged, a short one is searched for in the longer. The order of pairs in a group
// varies, results do not.
//
// Invariant: between two units no bit is set.
#pragma once

#include "algorithms/similarity/score.cuh"
#include "runtime/cuda/include/warp_rows.cuh"
#include "supersteps/step.cuh"

constexpr u32 NO_HUB = 0xffffffffu;
constexpr u32 FRONTS_A_CLAIM = 1;  // of a unit
constexpr u32 BATCHES_A_WARP = 4;  // of other pairs, if these are few
// Rows are merged if the shorter has LONG_FRONT arcs, and the longer at most so many times as many: merging reads
// (shorter + longer) / 8 sectors of memory, searching about shorter * log2(longer / 8).
constexpr i64 MERGED_RATIO = 16;

enum SimilarityPhase : u32 { CLEAR, COUNT, PLACE, GROUP, TAKE_UNITS, TAKE_OTHERS };

// Counts of a superstep: pairs done.
constexpr u32 DONE = 0;
// Words of the state: first unit or batch of the superstep.
constexpr u32 NEXT = 0;

struct Arguments {
    Stage stage;
    const i64 *offsets;
    const Id *targets;    // of each row ascending
    const double *terms;  // of each vertex; null: 1 for each
    const u32 *hub_of;    // (vertices) the number of a hub, or NO_HUB
    const Id *hubs;       // (hubs) vertices
    const Id *pairs;      // [pairs][2]
    double *scores;       // [pairs]
    u32 *group_sizes;   // (hubs + 1) pairs of each hub, and others; then, where the next is placed
    u32 *group_begins;  // (hubs + 2)
    u32 *group_units;   // (hubs + 1) the first unit of each hub, and the number of all
    u32 *order;         // [pairs] by group
    u64 pair_count;
    u64 units_a_step;
    u64 batches_a_step;
    i64 vertices;
    u32 hub_count;
    u32 bitmap_words;
    u32 measure;
    u32 least_pairs;  // hubs with fewer are none
};

struct Row {
    i64 begin = 0;
    i64 end = 0;

    __device__ __forceinline__ i64 length() const { return end - begin; }

    __device__ __forceinline__ Row of_lane(u32 lane) const {
        return Row{__shfl_sync(FULL_WARP, begin, lane), __shfl_sync(FULL_WARP, end, lane)};
    }
};

// A pair of vertices with its rows.
struct Pair {
    u32 number = 0;
    i64 lengths[2] = {0, 0};  // of the rows as the pair is given
    Row shorter;
    Row longer;
    i64 longer_vertex = 0;

    __device__ __forceinline__ Pair() {}
    __device__ __forceinline__ Pair(const Arguments &given, u32 number) : number(number) {
        Row rows[2];
        i64 vertices[2];
#pragma unroll
        for (u32 side = 0; side < 2; side++) {
            vertices[side] = given.pairs[2 * static_cast<u64>(number) + side];
            rows[side] = Row{given.offsets[vertices[side]], given.offsets[vertices[side] + 1]};
            lengths[side] = rows[side].length();
        }
        const bool swaps = lengths[1] < lengths[0];
        shorter = swaps ? rows[1] : rows[0];
        longer = swaps ? rows[0] : rows[1];
        longer_vertex = swaps ? vertices[0] : vertices[1];
    }

    __device__ __forceinline__ void thread_score(const Arguments &given, double common) const {
        given.scores[number] = score_of(given.measure, common, lengths[0], lengths[1]);
    }
};

// What a common neighbour adds to a sum: 1, or its term.
template <class Sum>
__device__ __forceinline__ Sum thread_term(const Arguments &given, Id vertex) {
    if constexpr (sizeof(Sum) == 4)
        return 1;
    else
        return given.terms[vertex];
}

// The targets of a row in turn, one for each lane; the next ones are fetched meanwhile. Behind the row is BEHIND,
// which is no vertex.
struct Targets {
    static constexpr Id BEHIND = static_cast<Id>((1ull << (8 * sizeof(Id) - 1)) - 1);
    const Id *all;
    Row rest;
    Id now;
    Id next;

    __device__ __forceinline__ Targets(const Id *all, Row row) : all(all), rest(row) {
        now = fetch(0);
        next = fetch(WARP);
    }

    __device__ __forceinline__ Id fetch(i64 behind) const {
        const i64 arc = rest.begin + behind + lane_id();
        return arc < rest.end ? all[arc] : BEHIND;
    }

    __device__ __forceinline__ Id last() const { return __shfl_sync(FULL_WARP, now, WARP - 1); }

    __device__ __forceinline__ void advance() {
        rest.begin += WARP;
        now = next;
        next = fetch(WARP);
    }
};

// Sum the terms of the common targets of two rows, which the warp reads in order; return the sum to all lanes.
template <class Sum>
__device__ __forceinline__ Sum warp_merge(const Arguments &given, Row shorter, Row longer) {
    Targets mine(given.targets, shorter), others(given.targets, longer);
    Sum sum = 0;
    while (mine.rest.begin < shorter.end && others.rest.begin < longer.end) {
        u32 place = 0;  // among the lanes of `mine`, whose targets ascend
        for (u32 step = WARP / 2; step > 0; step /= 2)
            if (__shfl_sync(FULL_WARP, mine.now, place + step - 1) < others.now) place += step;
        const bool is_common =
            __shfl_sync(FULL_WARP, mine.now, place) == others.now && others.now != Targets::BEHIND;
        if (is_common) sum += thread_term<Sum>(given, others.now);
        const Id mine_last = mine.last(), others_last = others.last();
        if (mine_last <= others_last) mine.advance();
        if (others_last <= mine_last) others.advance();
    }
    return lanes_sum(sum);
}

// Groups

// Count, or place, all pairs by group. Rows of other pairs are the last group, to which a warp adds at once.
template <bool PLACES>
__device__ __forceinline__ void team_group(const Arguments &given, const Team &team) {
    const u64 rounds = (given.pair_count + team.threads() - 1) / team.threads();
    for (u64 round = 0; round < rounds; round++) {
        const u64 number = round * team.threads() + team.thread();
        const bool is_there = number < given.pair_count;
        u32 hub = 0;
        if (is_there) hub = given.hub_of[Pair(given, static_cast<u32>(number)).longer_vertex];
        if (PLACES && is_there && hub != NO_HUB && load_relaxed(given.group_sizes + hub) == NO_HUB)
            hub = NO_HUB;
        const u32 others = __ballot_sync(FULL_WARP, is_there && hub == NO_HUB);
        u32 place = warp_place(given.group_sizes + given.hub_count, others);
        if (!is_there) continue;
        if (hub != NO_HUB) place = atomicAdd(given.group_sizes + hub, 1u);
        if (PLACES) given.order[place] = static_cast<u32>(number);
    }
}

// Turn sizes of groups into their first places, and into first units, by one block. Pairs of small groups become
// others.
__device__ __forceinline__ void block_place_groups(const Arguments &given) {
    __shared__ u64 warp_ends[WARP];
    const u32 groups = given.hub_count + 1;
    u64 before_all = 0;  // units << 32 | pairs
    for (u32 base = 0; base < groups; base += blockDim.x) {
        const u32 group = base + threadIdx.x;
        u64 size = group < given.hub_count ? given.group_sizes[group] : 0;
        const bool is_small = group < given.hub_count && size < given.least_pairs;
        if (is_small) size = 0;
        if (group < given.hub_count) size |= ((size + blockDim.x - 1) / blockDim.x) << 32;
        const u64 end = warp_sum_up_to(size);
        if (lane_id() == WARP - 1) warp_ends[warp_id()] = end;
        __syncthreads();
        u64 begin = before_all + end - size;
        for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
            if (warp < warp_id()) begin += warp_ends[warp];
            before_all += warp_ends[warp];
        }
        if (group < groups) {
            given.group_begins[group] = static_cast<u32>(begin);
            given.group_sizes[group] = is_small ? NO_HUB : static_cast<u32>(begin);
            given.group_units[group] = static_cast<u32>(begin >> 32);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) given.group_begins[groups] = static_cast<u32>(given.pair_count);
}

// Pairs of hubs

// Shared memory of a block: a place for each of its threads, and the bits of vertices. In a unit a thread has a pair,
// whose front is the part of its shorter row in a range of vertices.
template <class Sum>
struct UnitMemory {
    Sum *sums;    // of the lanes of a warp
    Sum *common;  // of each pair
    i64 *begins;  // of the fronts
    u32 *lengths;
    u32 *bitmap;

    __device__ __forceinline__ explicit UnitMemory(void *memory) {
        const u32 threads = blockDim.x;
        double *words = static_cast<double *>(memory);
        sums = static_cast<Sum *>(memory) + WARP * warp_id();
        common = reinterpret_cast<Sum *>(words + threads);
        begins = reinterpret_cast<i64 *>(words + 2 * threads);
        lengths = reinterpret_cast<u32 *>(words + 3 * threads);
        bitmap = lengths + threads;
    }
};

// Look up all fronts of a unit, of which warps claim some at a time.
template <class Sum>
__device__ __forceinline__ void block_visit_fronts(const Arguments &given,
                                                   const UnitMemory<Sum> &memory, u32 *claimed,
                                                   u32 count, i64 from) {
    for (;;) {
        u32 base = 0;
        if (lane_id() == 0) base = atomicAdd(claimed, FRONTS_A_CLAIM);
        base = __shfl_sync(FULL_WARP, base, 0);
        if (base >= count) break;
        const u32 at = base + lane_id();
        const bool has_front = lane_id() < FRONTS_A_CLAIM && at < count;
        const Sum common = warp_sum_fronts(
            has_front ? memory.begins[at] : i64{0}, has_front ? memory.lengths[at] : 0u,
            memory.sums, [](u32) { return 0; }, [&](i64 arc) { return given.targets[arc]; },
            [&](Id vertex, int) -> Sum {
                const u32 bit = static_cast<u32>(vertex - from);
                return has_bit(memory.bitmap, bit) ? thread_term<Sum>(given, vertex) : Sum(0);
            });
        if (has_front) memory.common[at] += common;
    }
}

// Score the pairs [first, end) in the order, whose longer row is that of a hub, by the block.
template <class Sum>
__device__ __forceinline__ void block_take_unit(const Arguments &given,
                                                const UnitMemory<Sum> &memory, Row hub, u32 first,
                                                u32 end) {
    __shared__ u32 claimed;
    const u32 count = end - first, own = threadIdx.x;
    Pair pair;
    if (own < count) pair = Pair(given, given.order[first + own]);
    Row rest = pair.shorter;
    memory.common[own] = 0;
    const i64 bits = i64{32} * given.bitmap_words;
    for (i64 from = 0; from < given.vertices; from += bits) {
        Row range = hub, front = rest;
        if (from + bits < given.vertices) {
            range.end = warp_lower_bound(given.targets, hub.begin, hub.end, from + bits);
            front.end = thread_lower_bound(given.targets, rest.begin, rest.end, from + bits);
        }
        memory.begins[own] = front.begin;
        memory.lengths[own] = static_cast<u32>(front.length());
        for (i64 arc = range.begin + own; arc < range.end; arc += blockDim.x) {
            const u32 bit = static_cast<u32>(given.targets[arc] - from);
            atomicOr(&memory.bitmap[bit / 32], 1u << (bit & 31));
        }
        if (own == 0) claimed = 0;
        __syncthreads();
        block_visit_fronts(given, memory, &claimed, count, from);
        __syncthreads();
        for (i64 arc = range.begin + own; arc < range.end; arc += blockDim.x)
            memory.bitmap[static_cast<u32>(given.targets[arc] - from) / 32] = 0;
        __syncthreads();
        hub.begin = range.end;
        rest.begin = front.end;
    }
    if (own < count) pair.thread_score(given, static_cast<double>(memory.common[own]));
}

template <class Sum>
__device__ __forceinline__ void team_take_units(const Arguments &given,
                                                const UnitMemory<Sum> &memory, StepBlock &block,
                                                u64 &done) {
    for (u32 word = threadIdx.x; word < given.bitmap_words; word += blockDim.x)
        memory.bitmap[word] = 0;
    const u32 units = given.group_units[given.hub_count];
    const u64 last = min(block.state[NEXT] + given.units_a_step, u64{units});
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0)
            block.own = block.state[NEXT] + atomicAdd(&given.stage.control->cursors[0], 1ull);
        __syncthreads();
        if (block.own >= last) break;
        const u32 unit = static_cast<u32>(block.own);
        // The last hub whose first unit is not behind.
        const i64 group = warp_lower_bound(given.group_units, 0, given.hub_count, unit + 1) - 1;
        const u32 first =
            given.group_begins[group] + (unit - given.group_units[group]) * blockDim.x;
        const u32 end = min(first + blockDim.x, given.group_begins[group + 1]);
        const i64 vertex = given.hubs[group];
        const Row hub{given.offsets[vertex], given.offsets[vertex + 1]};
        block_take_unit(given, memory, hub, first, end);
        if (threadIdx.x == 0) done += end - first;
    }
}

// Other pairs

// Return how many pairs a warp takes at once: few, if there are few.
__device__ __forceinline__ u64 others_a_batch(const Arguments &given) {
    const u64 others = given.pair_count - load_relaxed(given.group_begins + given.hub_count);
    const u64 each = others / (BATCHES_A_WARP * gridDim.x * (blockDim.x / WARP));
    return min(max(each, u64{1}), u64{WARP});
}

template <class Sum>
__device__ __forceinline__ void warp_take_others(const Arguments &given, Sum *sums,
                                                 StepBlock &block, u64 &done) {
    const u32 begin = given.group_begins[given.hub_count];
    const u64 each = others_a_batch(given);
    const u64 batches = (given.pair_count - begin + each - 1) / each;
    const u64 last = min(block.state[NEXT] + given.batches_a_step, batches);
    for (;;) {
        u64 batch = 0;
        if (lane_id() == 0)
            batch = block.state[NEXT] + atomicAdd(&given.stage.control->cursors[0], 1ull);
        batch = __shfl_sync(FULL_WARP, batch, 0);
        if (batch >= last) break;
        const u64 at = begin + batch * each + lane_id();
        const bool has_pair = lane_id() < each && at < given.pair_count;
        Pair pair;
        if (has_pair) pair = Pair(given, given.order[at]);
        const i64 length = pair.shorter.length();
        const bool merges = length >= LONG_FRONT && pair.longer.length() <= MERGED_RATIO * length;
        Sum common = 0;
        for (u32 waiting = __ballot_sync(FULL_WARP, merges); waiting; waiting &= waiting - 1) {
            const u32 whose = __ffs(static_cast<int>(waiting)) - 1;
            const Sum sum =
                warp_merge<Sum>(given, pair.shorter.of_lane(whose), pair.longer.of_lane(whose));
            if (lane_id() == whose) common = sum;
        }
        common += warp_sum_fronts(
            pair.shorter.begin, merges ? 0u : static_cast<u32>(length), sums,
            [&](u32 whose) { return pair.longer.of_lane(whose); },
            [&](i64 arc) { return given.targets[arc]; },
            [&](Id vertex, Row row) -> Sum {
                const i64 found = thread_lower_bound(given.targets, row.begin, row.end, vertex);
                if (found == row.end || given.targets[found] != vertex) return 0;
                return thread_term<Sum>(given, vertex);
            });
        if (has_pair) {
            pair.thread_score(given, static_cast<double>(common));
            done += 1;
        }
    }
}

template <class Sum>
__device__ __forceinline__ void block_take(const Arguments &given, StepBlock &block, u32 phase,
                                           void *memory) {
    const UnitMemory<Sum> parts(memory);
    u64 done = 0;
    if (phase == TAKE_UNITS)
        team_take_units(given, parts, block, done);
    else
        warp_take_others(given, parts.sums, block, done);
    warp_count(block, DONE, done);
}

__device__ __forceinline__ u32 thread_decide_similarity(const Arguments &given, u32 phase,
                                                        u64 *state) {
    if (phase == CLEAR) return COUNT;
    if (phase == COUNT) return PLACE | ALONE;
    if (phase == (PLACE | ALONE)) return GROUP;
    const u64 others = given.pair_count - load_relaxed(given.group_begins + given.hub_count);
    const u64 each = others_a_batch(given), batches = (others + each - 1) / each;
    if (phase == GROUP || phase == TAKE_UNITS) {
        if (phase == TAKE_UNITS) state[NEXT] += given.units_a_step;
        if (state[NEXT] < load_relaxed(given.group_units + given.hub_count)) return TAKE_UNITS;
        state[NEXT] = 0;
        return batches ? TAKE_OTHERS : STOP;
    }
    state[NEXT] += given.batches_a_step;
    return state[NEXT] < batches ? TAKE_OTHERS : STOP;
}

__device__ __forceinline__ void grid_similarity(const Arguments &given) {
    extern __shared__ double memory[];
    run_steps(
        given.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            switch (phase) {
                case CLEAR:
                    for (u64 group = team.thread(); group <= given.hub_count;
                         group += team.threads())
                        given.group_sizes[group] = 0;
                    break;
                case COUNT:
                    team_group<false>(given, team);
                    break;
                case PLACE | ALONE:
                    block_place_groups(given);
                    break;
                case GROUP:
                    team_group<true>(given, team);
                    break;
                default:
                    if (given.terms)
                        block_take<double>(given, block, phase, memory);
                    else
                        block_take<u32>(given, block, phase, memory);
            }
        },
        [&](u32 phase, const Sums &, u64 *state) {
            return thread_decide_similarity(given, phase, state);
        });
}
