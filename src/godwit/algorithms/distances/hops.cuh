// Distances in arcs from many sources by one search, a bit per source (M. Then et al., The more the merrier:
// efficient multi-source graph traversal, PVLDB 8 (2014)), by all blocks of a device, which has the whole graph.
//
// Every vertex has three *lines* of LANES words, with a bit for each source of a batch: those whose searches have
// reached it (`seen`), those that reached it in the last level (`bits[parity]`, the frontier), and in this level
// (`bits[parity ^ 1]`). LANES lanes of a warp, a *group*, process a line together, so that a visit of an arc
// reads it at once for all sources.
//
// A level is *pulled*: every vertex that some search has not reached unites the frontiers of its in-neighbours,
// until no search is missing. Or, if the arcs from the frontier are few, it is *pushed* along the rows of a
// queue: bits are added to the lines of their heads, which are queued once. Invariant of a level that is pushed:
// a vertex is in the queue if and only if its line in the frontier is not zero; lines of the next frontier are
// zero, and so are all words of `queued`.
//
// What is found is recorded by the group that owns the vertex in this superstep: added to the sums of the vertex
// (BY_VERTEX), which are integers, or written into a matrix.
//
// Lower bound of a pull: 4 bytes of target and a line for each arc, three lines for each vertex; lines of graphs
// of some 100,000 vertices stay in the second-level cache.
#pragma once

#include "algorithms/distances/rows.cuh"
#include "runtime/cuda/include/schedule_mixed.cuh"

constexpr u32 GROUPS = WARP / LANES;
constexpr u32 TOGETHER = 32 * LANES;                          // sources of a batch
constexpr u32 IN_FLIGHT = 8;                                  // lines that a group loads at once
constexpr u32 CHUNK = LANES > IN_FLIGHT ? LANES : IN_FLIGHT;  // targets that a group loads at once
constexpr u32 PUSHED_AT_ONCE = 4;
constexpr i32 UNREACHED = 0x7fffffff;
constexpr u64 PUSH_FACTOR = 16;  // a level is pushed if its arcs times this are fewer than all arcs
constexpr u64 ALONE_LINES = 4096,
              ALONE_ARCS = 16384;  // times LANES: a level that one block pushes alone

// Counts of a superstep. The first is a run's progress.
constexpr u32 BEGUN = 0;         // sources begun
constexpr u32 FOUND = 1;         // pairs of a source and a vertex that it reaches
constexpr u32 FOUND_WANTED = 2;  // of these, pairs whose distances are wanted
constexpr u32 FRONT = 3;         // vertices of the next frontier
constexpr u32 FRONT_ARCS = 4;    // arcs from them
constexpr u32 FRONT_LONG = 5;    // of them, rows that are left to the team
constexpr u32 VISITED = 6;       // arcs visited

// Words of the state.
constexpr u32 FIRST = 0;  // first source of the batch
constexpr u32 LEVEL = 1;
constexpr u32 SIZE = 2;  // vertices of the frontier
constexpr u32 ARCS = 3;  // arcs from them
constexpr u32 LONG_ROWS = 4;
constexpr u32 PARITY = 5;   // of the frontier
constexpr u32 QUEUED = 6;   // the frontier is in a queue
constexpr u32 WHICH = 7;    // which queue
constexpr u32 MISSING = 8;  // pairs that are wanted and not found
constexpr u32 ALL_FOUND = 9;
constexpr u32 ALL_VISITED = 10;

enum HopsPhase : u32 { BEGIN, PUSH, PULL, QUEUE, DELIVER, SUM };

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;        // the same if the graph is symmetric
    const Id *sources;  // positions
    u32 *seen;          // [owned][LANES]
    u32 *bits[2];       // [owned][LANES]
    u32 *queued;        // a bit for each own vertex
    u32 *united;        // [rows above 4096 in-arcs][LANES], zero between supersteps
    Id *queue[2];       // [owned]
    MixedSchedule::Row *left_rows;
    u64 *vertex_sums;   // BY_VERTEX: [owned][FIELDS]
    i32 *matrix;        // [sources][capacity], by position
    const u32 *wanted;  // a bit for each own vertex, or null: all
    const Id *columns;  // positions of the columns of `results`
    i32 *results;       // [sources][columns], or null
    u64 *source_sums;   // [sources][FIELDS], or null
    u64 source_count;
    u64 wanted_count;
    i64 column_count;
    u64 limit;  // largest distance
    u64 arcs;   // of the graph
};

struct Hops {
    const Arguments &given;
    const Team &team;
    StepBlock &block;
    u32 level;
    u32 group = lane_id() / LANES, place = lane_id() % LANES;
    u32 *frontier;
    u32 *next;
    u32 all;     // bits of this lane's word that have sources
    u64 factor;  // BY_VERTEX: by which a number of sources is multiplied for this lane's field
    // Counts of this lane.
    u64 found = 0, wanted = 0, front = 0, front_arcs = 0, front_long = 0, visited = 0;

    __device__ __forceinline__ Hops(const Arguments &arguments, const Team &its_team,
                                    StepBlock &its_block)
        : given(arguments),
          team(its_team),
          block(its_block),
          level(static_cast<u32>(its_block.state[LEVEL])),
          frontier(arguments.bits[its_block.state[PARITY]]),
          next(arguments.bits[its_block.state[PARITY] ^ 1]) {
        i64 left = static_cast<i64>(count()) - 32 * static_cast<i64>(place);
        all = left >= 32 ? FULL_WARP : left <= 0 ? 0 : (1u << left) - 1;
        Reciprocal reciprocal(level);
        factor = place == COUNT         ? 1
                 : place == TOTAL       ? level
                 : place == RECIPROCALS ? reciprocal.units
                                        : reciprocal.fractions;
    }
    __device__ __forceinline__ u64 first() const { return block.state[FIRST]; }
    // Sources of the batch.
    __device__ __forceinline__ u64 count() const {
        u64 left = given.source_count - min(given.source_count, first());
        return min(left, static_cast<u64>(TOGETHER));
    }
    __device__ __forceinline__ i64 word(i64 own) const { return own * LANES + place; }
    __device__ __forceinline__ i64 owned() const { return given.stage.owned; }

    // Return whether any lane of the group votes so. All lanes take part.
    __device__ __forceinline__ bool group_any(bool vote) const {
        u32 votes = __ballot_sync(FULL_WARP, vote);
        if constexpr (LANES == WARP) return votes != 0;
        return (votes >> (group * LANES % WARP)) & ((1u << (LANES % WARP)) - 1);
    }

    __device__ __forceinline__ bool is_wanted(i64 own) const {
        return !given.wanted || has_bit(given.wanted, own);
    }

    // Record that the sources in the groups' words `fresh` have reached own vertices. All lanes take part.
    __device__ __forceinline__ void warp_record(i64 own, u32 fresh) {
        bool is_reached = group_any(fresh != 0);
        if (!__any_sync(FULL_WARP, fresh != 0)) return;
        u32 ones = static_cast<u32>(__popc(fresh));
        found += ones;
        if constexpr (BY_VERTEX) {
            u64 sources = lanes_sum(ones, LANES);
            if (is_reached && place < FIELDS) {
                u64 *sum = given.vertex_sums + own * FIELDS + place;
                *sum =
                    place == LARGEST ? max(*sum, static_cast<u64>(level)) : *sum + sources * factor;
            }
        } else if (fresh && is_wanted(own)) {
            wanted += ones;
            i64 stride = given.stage.capacity;
            i32 *cell = given.matrix + static_cast<i64>(first() + 32 * place) * stride + own;
            while (fresh) {
                cell[(__ffs(static_cast<int>(fresh)) - 1) * stride] = static_cast<i32>(level);
                fresh &= fresh - 1;
            }
        }
        if (is_reached && place == 0) thread_join_front(own);
    }

    __device__ __forceinline__ void thread_join_front(i64 own) {
        i64 degree = given.out.offsets[own + 1] - given.out.offsets[own];
        front += 1;
        front_arcs += static_cast<u64>(degree);
        front_long += degree > LONG_ROW_ARCS;
    }

    // Append own vertices to a queue. All lanes take part.
    __device__ __forceinline__ void warp_enqueue(Id *queue, bool appends, i64 own) const {
        warp_append(&team.control->cursors[1], queue, appends, static_cast<Id>(own));
    }

    // Unite the frontiers of the tails of in-arcs, each group of a row of its own, until no bit of `missing` is
    // left; return the bits of `missing` that were found. All lanes take part.
    __device__ __forceinline__ u32 warp_unite(i64 begin, i64 end, u32 missing) {
        u32 united = 0;
        bool is_open = group_any(missing != 0) && begin < end;
        while (__any_sync(FULL_WARP, is_open)) {
            Id target[CHUNK / LANES];
#pragma unroll
            for (u32 i = 0; i < CHUNK / LANES; i++) {
                i64 arc = begin + i * LANES + place;
                target[i] = is_open && arc < end ? load_once(given.in.targets + arc) : Id(-1);
            }
#pragma unroll 1
            for (u32 from = 0; from < CHUNK; from += IN_FLIGHT) {
                u32 words[IN_FLIGHT];
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++) {
                    Id tail;
                    if constexpr (CHUNK == LANES)
                        tail = __shfl_sync(FULL_WARP, target[0], group * LANES + from + i);
                    else
                        tail = __shfl_sync(FULL_WARP, target[i / LANES], group * LANES + i % LANES);
                    words[i] = is_open && tail >= 0 ? frontier[word(tail)] : 0;
                }
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++) united |= words[i];
                i64 left = end - begin - static_cast<i64>(from);
                if (is_open && place == 0)
                    visited += static_cast<u64>(min(left, static_cast<i64>(IN_FLIGHT)));
                bool is_missing = group_any((missing & ~united) != 0);
                is_open = is_open && is_missing && left > static_cast<i64>(IN_FLIGHT);
                if (!__any_sync(FULL_WARP, is_open)) break;
            }
            begin += CHUNK;
        }
        return united & missing;
    }

    // Store the bits that have reached own vertices in this level, and record them. All lanes take part.
    __device__ __forceinline__ void warp_reach(i64 own, u32 fresh, u32 before, bool is_there) {
        if (is_there) next[word(own)] = fresh;
        if (fresh) given.seen[word(own)] = before | fresh;
        warp_record(own, fresh);
    }

    __device__ __forceinline__ void count_all() {
        __syncwarp();
        warp_count(block, FOUND, found);
        warp_count(block, FOUND_WANTED, wanted);
        warp_count(block, FRONT, front);
        warp_count(block, FRONT_ARCS, front_arcs);
        warp_count(block, FRONT_LONG, front_long);
        warp_count(block, VISITED, visited);
    }
};

// Clear all lines, and the rows of the matrix; then set the bits of the sources.
__device__ __forceinline__ void team_begin(Hops &hops) {
    const Arguments &given = hops.given;
    u64 words = static_cast<u64>(hops.owned()) * LANES;
    for (u64 i = hops.team.thread(); i < words; i += hops.team.threads())
        given.seen[i] = given.bits[0][i] = given.bits[1][i] = 0;
    // A run that was given up leaves anything.
    u64 queued = static_cast<u64>(hops.owned() + 31) / 32;
    for (u64 i = hops.team.thread(); i < queued; i += hops.team.threads()) given.queued[i] = 0;
    u64 united = static_cast<u64>(given.in.classes[CLASS_BLOCK]) * LANES;
    for (u64 i = hops.team.thread(); i < united; i += hops.team.threads()) given.united[i] = 0;
    if constexpr (!BY_VERTEX) {
        u64 cells = hops.count() * static_cast<u64>(given.stage.capacity);
        i32 *matrix = given.matrix + hops.first() * static_cast<u64>(given.stage.capacity);
        for (u64 i = hops.team.thread(); i < cells; i += hops.team.threads()) matrix[i] = UNREACHED;
    }
    hops.team.wait(hops.block);
    for (u64 i = hops.team.thread(); i < hops.count(); i += hops.team.threads()) {
        i64 own = given.sources[hops.first() + i];
        i64 at = own * LANES + static_cast<i64>(i / 32);
        given.seen[at] = given.bits[0][at] = 1u << (i & 31);
        given.queue[0][i] = static_cast<Id>(own);
        hops.found += 1;
        if constexpr (BY_VERTEX) {
            given.vertex_sums[own * FIELDS + COUNT] += 1;
        } else if (hops.is_wanted(own)) {
            hops.wanted += 1;
            given.matrix[static_cast<i64>(hops.first() + i) * given.stage.capacity + own] = 0;
        }
        hops.thread_join_front(own);
    }
    if (hops.team.thread() == 0)
        atomicAdd(&hops.block.sums.counts[BEGUN], static_cast<u64>(hops.count()));
}

// The visitor of a schedule: add the frontier's bits to the heads of arcs, and queue these.
struct Push {
    Hops &hops;
    Id *queue;

    template <u32 ARCS_HERE>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS_HERE],
                                               const u32 (&rows)[ARCS_HERE],
                                               const bool (&there)[ARCS_HERE]) const {
        const Arguments &given = hops.given;
        Id target[ARCS_HERE];
#pragma unroll
        for (u32 i = 0; i < ARCS_HERE; i++) {
            target[i] = there[i] ? load_once(given.out.targets + arcs[i]) : Id(-1);
            hops.visited += there[i];
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_HERE; i++) {
            if (!__any_sync(FULL_WARP, there[i])) continue;
#pragma unroll 1
            for (u32 from = 0; from < LANES; from += PUSHED_AT_ONCE)
                warp_push(target[i], rows[i], from);
        }
    }

    // Push along PUSHED_AT_ONCE arcs of each group, from the one of its lane `from` on.
    __device__ __forceinline__ void warp_push(Id target, u32 row, u32 from) const {
        constexpr u32 AT_ONCE = PUSHED_AT_ONCE < LANES ? PUSHED_AT_ONCE : LANES;
        Id heads[AT_ONCE];
        u32 fresh[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 lane = hops.group * LANES + from + i;
            heads[i] = __shfl_sync(FULL_WARP, target, lane);
            i64 tail = __shfl_sync(FULL_WARP, row, lane);
            fresh[i] = heads[i] < 0
                           ? 0
                           : hops.frontier[hops.word(tail)] & ~hops.given.seen[hops.word(heads[i])];
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            if (!__any_sync(FULL_WARP, fresh[i] != 0)) continue;
            if (fresh[i]) set_bits(hops.next + hops.word(heads[i]), fresh[i]);
            bool appends = hops.group_any(fresh[i] != 0) && hops.place == 0;
            if (appends) {
                u32 bit = 1u << (heads[i] & 31);
                appends = !(atomicOr(hops.given.queued + (heads[i] >> 5), bit) & bit);
            }
            hops.warp_enqueue(queue, appends, heads[i]);
        }
    }
};

__device__ __forceinline__ void team_push(Hops &hops) {
    const Arguments &given = hops.given;
    const u64 *state = hops.block.state;
    const Id *queue = given.queue[state[WHICH]];
    Id *next_queue = given.queue[state[WHICH] ^ 1];
    u64 size = state[SIZE];
    const MixedSchedule schedule{given.left_rows, &hops.team.control->cursors[0]};
    const Push visit{hops, next_queue};
    for (u64 base = hops.team.warp() * WARP; base < size; base += hops.team.warps() * WARP) {
        i64 begin = 0, end = 0;
        u32 row = 0;
        if (base + lane_id() < size) {
            row = static_cast<u32>(queue[base + lane_id()]);
            begin = given.out.offsets[row];
            end = given.out.offsets[row + 1];
        }
        schedule.warp_bring(begin, end, row, visit);
    }
    schedule.team_finish(hops.team, hops.block, state[LONG_ROWS] != 0, visit);
    hops.team.wait(hops.block);
    // The frontier's lines are those of the frontier after the next, and become zero.
    u64 groups = hops.team.warps() * GROUPS, mine = hops.team.warp() * GROUPS + hops.group;
    for (u64 i = mine; i < size; i += groups) hops.frontier[hops.word(queue[i])] = 0;
    u64 next_size = load_relaxed(&hops.team.control->cursors[1]);
    for (u64 base = hops.team.warp() * GROUPS; base < next_size; base += groups) {
        bool is_there = base + hops.group < next_size;
        i64 own = is_there ? static_cast<i64>(next_queue[base + hops.group]) : 0;
        u32 fresh = is_there ? load_relaxed(hops.next + hops.word(own)) : 0;
        if (fresh) given.seen[hops.word(own)] |= fresh;
        hops.warp_record(own, fresh);
        if (is_there && hops.place == 0) atomicAnd(given.queued + (own >> 5), ~(1u << (own & 31)));
    }
}

// Pull rows of more than 256 arcs, each with a block; longer ones than 4096 with all blocks, slice by slice.
__device__ __forceinline__ void team_pull_long_rows(Hops &hops) {
    __shared__ u32 shared_union[LANES];
    const Arguments &given = hops.given;
    constexpr i64 SLICE = 4096;
    i64 sliced = given.in.classes[CLASS_BLOCK], rows = given.in.classes[CLASS_WARP];
    u64 turn = hops.team.block;
    auto block_unite = [&](i64 begin, i64 end, u32 missing) -> u32 {
        i64 groups = static_cast<i64>(blockDim.x / LANES);
        i64 share = (end - begin + groups - 1) / groups;
        i64 from = begin + share * static_cast<i64>(threadIdx.x / LANES);
        __syncthreads();
        if (threadIdx.x < LANES) shared_union[threadIdx.x] = 0;
        __syncthreads();
        u32 part = hops.warp_unite(from, min(from + share, end), missing);
        if (part) atomicOr(&shared_union[hops.place], part);
        __syncthreads();
        return shared_union[hops.place];
    };
    for (i64 row = 0; row < sliced; row++) {
        i64 begin = given.in.offsets[row], end = given.in.offsets[row + 1];
        u64 slices = static_cast<u64>((end - begin + SLICE - 1) / SLICE);
        u32 missing = hops.all & ~given.seen[hops.word(row)];
        bool is_open = hops.group_any(missing != 0);  // the same for all groups
        for (; turn < slices; turn += hops.team.blocks) {
            if (!is_open) continue;
            i64 from = begin + static_cast<i64>(turn) * SLICE;
            u32 united = block_unite(from, min(from + SLICE, end), missing);
            if (threadIdx.x < LANES && united) set_bits(given.united + hops.word(row), united);
        }
        turn -= slices;
    }
    for (i64 row = sliced + hops.team.block; row < rows; row += hops.team.blocks) {
        u32 before = given.seen[hops.word(row)];
        u32 missing = hops.all & ~before;
        __syncthreads();  // `seen` has been read by all
        u32 united = 0;
        if (hops.group_any(missing != 0))
            united = block_unite(given.in.offsets[row], given.in.offsets[row + 1], missing);
        if (warp_id() == 0) {
            bool is_there = threadIdx.x < LANES;
            hops.warp_reach(row, is_there ? united : 0, before, is_there);
        }
    }
    if (sliced == 0) return;
    hops.team.wait(hops.block);
    for (i64 row = static_cast<i64>(hops.team.warp()); row < sliced;
         row += static_cast<i64>(hops.team.warps())) {
        bool is_there = lane_id() < LANES;
        u32 before = is_there ? given.seen[hops.word(row)] : 0;
        u32 fresh = is_there ? load_relaxed(given.united + hops.word(row)) : 0;
        if (fresh) given.united[hops.word(row)] = 0;
        hops.warp_reach(row, fresh, before, is_there);
    }
}

__device__ __forceinline__ void team_pull(Hops &hops) {
    const Arguments &given = hops.given;
    i64 groups = static_cast<i64>(hops.team.warps() * GROUPS);
    i64 active = given.in.classes[CLASS_NONE];
    if (given.in.classes[CLASS_WARP] > 0) team_pull_long_rows(hops);
    for (i64 base = given.in.classes[CLASS_WARP] + static_cast<i64>(hops.team.warp() * GROUPS);
         base < hops.owned(); base += groups) {
        i64 own = base + hops.group;
        bool is_there = own < hops.owned();
        u32 before = is_there ? given.seen[hops.word(own)] : 0;
        u32 missing = is_there && own < active ? hops.all & ~before : 0;
        u32 fresh = 0;
        if (__any_sync(FULL_WARP, missing != 0)) {
            i64 begin = 0, end = 0;
            if (is_there && own < active) {
                begin = given.in.offsets[own];
                end = given.in.offsets[own + 1];
            }
            fresh = hops.warp_unite(begin, end, missing);
        }
        hops.warp_reach(own, fresh, before, is_there);
    }
}

// Queue the frontier after a pull, and clear the lines of the next one.
__device__ __forceinline__ void team_queue(Hops &hops) {
    const Arguments &given = hops.given;
    Id *queue = given.queue[hops.block.state[WHICH]];
    for (i64 base = static_cast<i64>(hops.team.warp() * GROUPS); base < hops.owned();
         base += static_cast<i64>(hops.team.warps() * GROUPS)) {
        i64 own = base + hops.group;
        bool is_there = own < hops.owned();
        bool is_reached = hops.group_any(is_there && hops.frontier[hops.word(own)] != 0);
        if (is_there) hops.next[hops.word(own)] = 0;
        hops.warp_enqueue(queue, is_reached && hops.place == 0, own);
    }
}

__device__ __forceinline__ u32 hops_push_phase(const u64 *state) {
    bool is_tiny = state[LONG_ROWS] == 0 && state[SIZE] * LANES <= ALONE_LINES &&
                   state[ARCS] * LANES <= ALONE_ARCS;
    return is_tiny ? PUSH | ALONE : static_cast<u32>(PUSH);
}

// Return the phase that follows a complete level.
__device__ __forceinline__ u32 hops_next(const Arguments &given, u64 *state) {
    if (state[SIZE] > 0 && state[LEVEL] < given.limit && (BY_VERTEX || state[MISSING] > 0)) {
        state[LEVEL] += 1;
        if (state[ARCS] * PUSH_FACTOR >= given.arcs) {
            state[QUEUED] = 0;
            return PULL;
        }
        return state[QUEUED] ? hops_push_phase(state) : static_cast<u32>(QUEUE);
    }
    state[FIRST] += TOGETHER;
    state[LEVEL] = state[PARITY] = 0;
    if (state[FIRST] < given.source_count) return BEGIN;
    return given.results ? DELIVER : given.source_sums ? SUM : STOP;
}

__device__ __forceinline__ void grid_hops(const Arguments &given) {
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Hops hops(given, team, block);
        switch (phase & ~ALONE) {
            case BEGIN:
                team_begin(hops);
                break;
            case PUSH:
                team_push(hops);
                break;
            case PULL:
                team_pull(hops);
                break;
            case QUEUE:
                team_queue(hops);
                break;
            case DELIVER:
                team_deliver(team, given.matrix, given.stage.capacity, given.source_count,
                             given.columns, given.column_count, given.results,
                             [](i32 value) { return value; });
                break;
            case SUM:
                team_sum_hops(team, given.matrix, given.stage.capacity, given.source_count,
                              given.stage.owned, given.source_sums, given.wanted, [](i32 value) {
                                  return value == UNREACHED ? i64{-1} : static_cast<i64>(value);
                              });
                break;
        }
        hops.count_all();
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        state[ALL_FOUND] += sums.counts[FOUND];
        state[ALL_VISITED] += sums.counts[VISITED];
        switch (phase & ~ALONE) {
            case BEGIN:
                state[MISSING] = min(given.source_count - min(given.source_count, state[FIRST]),
                                     static_cast<u64>(TOGETHER)) *
                                 given.wanted_count;
                state[QUEUED] = 1;
                state[WHICH] = 0;
                break;
            case PUSH:
                state[PARITY] ^= 1;
                state[WHICH] ^= 1;
                break;
            case PULL:
                state[PARITY] ^= 1;
                break;
            case QUEUE:
                state[QUEUED] = 1;
                return hops_push_phase(state);
            default:
                return STOP;
        }
        state[MISSING] -= sums.counts[FOUND_WANTED];
        state[SIZE] = sums.counts[FRONT];
        state[ARCS] = sums.counts[FRONT_ARCS];
        state[LONG_ROWS] = sums.counts[FRONT_LONG];
        return hops_next(given, state);
    };
    run_steps(given.stage, body, decide);
}
