// Distances in arcs from many sources by one search, a bit per source (M. Then et al., The more the merrier:
// efficient multi-source graph traversal, PVLDB 8 (2014)), by all blocks of a device, which has the whole graph.
//
// Every vertex has a *line* of LANES words of 64 bits, with a bit for each source of a batch whose search has
// reached it. There are two copies of all lines: `lines[parity]` as of the last level, and another. LANES lanes of
// a warp, a *group*, process a line together, so that a visit of an arc reads it at once for all sources.
//
// A level is *pulled*: every vertex that some search has not reached unites the lines of its in-neighbours, until
// no search is missing, and writes its line into the other copy. (Lines do as well as frontiers: a search that
// reached an in-neighbour before the last level has reached the vertex, too.) Or, if the arcs from the frontier
// are few beside those into vertices that some search is missing at, it is *pushed* along the rows of a queue:
// bits are added to the other copy of the lines of their heads. These are queued once, or, if there may be many,
// found by looking at all lines afterwards (*spreading*). Invariant of a level that is pushed: a vertex is in the
// queue if and only if it was reached in the last level; both copies are equal, and all words of `queued` are zero.
//
// What is found is recorded by the group that owns the vertex in this superstep: added to the sums of the vertex
// (BY_VERTEX), which are integers, or written into *planes*. These hold, for each vertex and source, the number of
// the level since `base`, from 1 on, or 0 if it was not reached since, a bit in each plane: a word of a plane has
// that bit for 64 sources. At the end of a batch, and before the number has no room, planes are turned into rows.
//
// Lower bound of a pull: 4 bytes of target and a line for each arc, two lines for each vertex; lines of graphs of
// some million vertices stay in the second-level cache. Of the rows: 4 bytes for each distance, and a line for
// each vertex and plane.
#pragma once

#include "algorithms/distances/rows.cuh"
#include "runtime/cuda/include/schedule/mixed.cuh"

constexpr u32 GROUPS = WARP / LANES;
constexpr u32 WORD = 64;                // sources of a word
constexpr u32 TOGETHER = WORD * LANES;  // sources of a batch
constexpr u32 IN_FLIGHT = 4;            // lines that a lane loads at once
constexpr u32 PUSHED_AT_ONCE = 4;
constexpr u32 MOST_LEVELS = (1 << PLANES) - 1;  // that planes have numbers for
constexpr i32 UNREACHED = 0x7fffffff;
constexpr u64 PUSH_FACTOR =
    4;  // a level is pushed if its arcs times this are fewer than those of a pull
constexpr u64 SPREAD_SHARE =
    8;                       // a level is spread if its arcs times this are more than the vertices
constexpr i64 SLICE = 2048;  // arcs of a row of class GRID that a warp pulls at once
constexpr u64 ALONE_LINES = 4096,
              ALONE_ARCS = 16384;  // divided by LANES: a level that one block pushes alone

// Counts of a superstep. The first is a run's progress.
constexpr u32 BEGUN = 0;         // sources begun
constexpr u32 FOUND = 1;         // pairs of a source and a vertex that it reaches
constexpr u32 FOUND_WANTED = 2;  // of these, pairs whose distances are wanted
constexpr u32 FRONT = 3;         // vertices of the next frontier
constexpr u32 FRONT_ARCS = 4;    // arcs from them
constexpr u32 FRONT_LONG = 5;    // of them, rows that are left to the team
constexpr u32 VISITED = 6;       // arcs visited
constexpr u32 DONE_ARCS = 7;     // arcs into vertices that the last search has reached

// Words of the state.
constexpr u32 FIRST = 0;  // first source of the batch
constexpr u32 LEVEL = 1;
constexpr u32 SIZE = 2;  // vertices of the frontier
constexpr u32 ARCS = 3;  // arcs from them
constexpr u32 LONG_ROWS = 4;
constexpr u32 PARITY = 5;   // of the lines as of the last level
constexpr u32 QUEUED = 6;   // the frontier is in a queue
constexpr u32 WHICH = 7;    // which queue
constexpr u32 MISSING = 8;  // pairs that are wanted and not found
constexpr u32 ALL_FOUND = 9;
constexpr u32 ALL_VISITED = 10;
constexpr u32 OPEN_ARCS = 11;  // arcs into vertices that some search has not reached
constexpr u32 BASE = 12;       // level that has number 1 in the planes
constexpr u32 ENDED = 13;      // the batch's searches have ended

enum HopsPhase : u32 { BEGIN, CLEAR, PUSH, SPREAD, PULL, QUEUE, DELIVER, SUM };

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;        // the same if the graph is symmetric
    const Id *sources;  // positions
    u64 *lines[2];      // [owned][LANES]
    u64 *planes;        // [PLANES][owned][LANES]
    u32 *queued;        // a bit for each own vertex
    u64 *united;        // [rows above 4096 in-arcs][LANES], zero between supersteps
    Id *queue[2];       // [owned]
    MixedSchedule::Row *left_rows;
    u64 *vertex_sums;   // BY_VERTEX: [owned][FIELDS]
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
    u32 number;  // of the level in the planes
    u32 group = lane_id() / LANES, place = lane_id() % LANES;
    u64 *now;    // lines as of the last level
    u64 *next;   // as of this one
    u64 all;     // bits of this lane's word that have sources
    u64 factor;  // BY_VERTEX: by which a number of sources is multiplied for this lane's field
    // Counts of this lane.
    u64 found = 0, wanted = 0, front = 0, front_arcs = 0, front_long = 0, visited = 0,
        done_arcs = 0;

    __device__ __forceinline__ Hops(const Arguments &arguments, const Team &its_team,
                                    StepBlock &its_block)
        : given(arguments),
          team(its_team),
          block(its_block),
          level(static_cast<u32>(its_block.state[LEVEL])),
          number(static_cast<u32>(its_block.state[LEVEL] - its_block.state[BASE]) + 1),
          now(arguments.lines[its_block.state[PARITY]]),
          next(arguments.lines[its_block.state[PARITY] ^ 1]) {
        i64 left = static_cast<i64>(count()) - static_cast<i64>(WORD * place);
        all = left >= WORD ? ~0ull : left <= 0 ? 0 : (1ull << left) - 1;
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
    __device__ __forceinline__ u64 *plane(u32 which) const {
        return given.planes + static_cast<i64>(which) * owned() * LANES;
    }

    // Return whether any lane of the group votes so. All lanes take part.
    __device__ __forceinline__ bool group_any(bool vote) const {
        if constexpr (LANES == 1) return vote;
        u32 votes = __ballot_sync(FULL_WARP, vote);
        return (votes >> (group * LANES)) & ((1u << (LANES % WARP)) - 1);
    }

    __device__ __forceinline__ bool is_wanted(i64 own) const {
        return !given.wanted || has_bit(given.wanted, own);
    }

    // Record that the sources in the groups' words `fresh` have reached own vertices, which the sources in `line`
    // have reached now. All lanes take part.
    __device__ __forceinline__ void warp_record(i64 own, u64 fresh, u64 line) {
        if (!__any_sync(FULL_WARP, fresh != 0)) return;
        bool is_reached = group_any(fresh != 0);
        bool is_done = !group_any(line != all);
        u32 ones = static_cast<u32>(__popcll(fresh));
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
            for (u32 bits = number; bits; bits &= bits - 1)
                plane(static_cast<u32>(__ffs(static_cast<int>(bits)) - 1))[word(own)] |= fresh;
        }
        if (is_reached && place == 0) {
            thread_join_front(own);
            if (is_done)
                done_arcs += static_cast<u64>(given.in.offsets[own + 1] - given.in.offsets[own]);
        }
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

    // Unite the lines of the tails of in-arcs of each group's row, until no bit of `missing` is left; return the
    // bits that were found. WIDTH lanes visit arcs of one row together, and so the rows of their groups in turn.
    // All lanes take part.
    template <u32 WIDTH>
    __device__ __forceinline__ u64 warp_unite(i64 begin, i64 end, u64 missing) {
        static_assert(WIDTH >= LANES && WIDTH <= WARP);
        constexpr u32 TURNS = WIDTH / LANES;
        u32 turn_of_mine = group % TURNS;
        u64 found_by_mine = 0;
        bool is_mine_open = group_any(missing != 0) && begin < end;
#pragma unroll 1
        for (u32 turn = 0; turn < TURNS; turn++) {
            u32 lane = lane_id() / WIDTH * WIDTH + turn * LANES + place;
            bool is_open = is_mine_open;
            u64 sought = missing;
            i64 arc = begin, last = end;
            if constexpr (TURNS > 1) {
                is_open = __shfl_sync(FULL_WARP, static_cast<u32>(is_mine_open), lane);
                if (!__any_sync(FULL_WARP, is_open)) continue;
                sought = __shfl_sync(FULL_WARP, missing, lane);
                arc = __shfl_sync(FULL_WARP, begin, lane);
                last = __shfl_sync(FULL_WARP, end, lane);
            }
            u64 united = 0;
            while (__any_sync(FULL_WARP, is_open)) {
                Id tail[IN_FLIGHT];
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++) {
                    i64 mine = arc + static_cast<i64>(i * TURNS + turn_of_mine);
                    tail[i] = is_open && mine < last ? load_once(given.in.targets + mine) : Id(-1);
                    visited += tail[i] >= 0 && place == 0;
                }
                u64 words[IN_FLIGHT];
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++)
                    words[i] = tail[i] >= 0 ? now[word(tail[i])] : 0;
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++) united |= words[i];
                for (u32 step = LANES; step < WIDTH; step *= 2)
                    united |= __shfl_xor_sync(FULL_WARP, united, step);
                arc += IN_FLIGHT * TURNS;
                is_open = group_any((sought & ~united) != 0) && is_open && arc < last;
            }
            if (turn == turn_of_mine) found_by_mine = united & missing;
        }
        return found_by_mine;
    }

    // Pull a level to own vertices, one of each group. All lanes take part.
    template <u32 WIDTH>
    __device__ __forceinline__ void warp_pull(i64 own, bool is_there) {
        u64 before = is_there ? now[word(own)] : all;
        u64 missing = all & ~before, fresh = 0;
        if (__any_sync(FULL_WARP, missing != 0)) {
            // Most vertices find all in the line of their first in-neighbour, which has most arcs.
            bool is_open = group_any(missing != 0);
            Id head = is_open ? given.in.heads[own] : Id(-1);
            if (head >= 0) fresh = now[word(head)] & missing;
            visited += head >= 0 && place == 0;
            is_open = group_any(fresh != missing) && head >= 0;
            if (__any_sync(FULL_WARP, is_open)) {
                i64 begin = is_open ? given.in.offsets[own] + 1 : 0;
                i64 end = is_open ? given.in.offsets[own + 1] : 0;
                fresh |= warp_unite<WIDTH>(begin, end, missing & ~fresh);
            }
        }
        if (is_there) next[word(own)] = before | fresh;
        warp_record(own, fresh, before | fresh);
    }

    __device__ __forceinline__ void count_all() {
        __syncwarp();
        warp_count(block, FOUND, found);
        warp_count(block, FOUND_WANTED, wanted);
        warp_count(block, FRONT, front);
        warp_count(block, FRONT_ARCS, front_arcs);
        warp_count(block, FRONT_LONG, front_long);
        warp_count(block, VISITED, visited);
        warp_count(block, DONE_ARCS, done_arcs);
    }
};

__device__ __forceinline__ void team_clear(const Team &team, u64 *words, u64 count) {
    for (u64 i = team.thread(); i < count; i += team.threads()) words[i] = 0;
}

// Clear all lines and the first plane; then set the bits of the sources.
__device__ __forceinline__ void team_begin(Hops &hops) {
    const Arguments &given = hops.given;
    const Team &team = hops.team;
    u64 words = static_cast<u64>(hops.owned()) * LANES;
    team_clear(team, given.lines[0], words);
    team_clear(team, given.lines[1], words);
    if (!BY_VERTEX) team_clear(team, hops.plane(0), words);
    if (given.source_sums)
        team_clear(team, given.source_sums + hops.first() * FIELDS, hops.count() * FIELDS);
    // A run that was given up leaves anything.
    u64 queued = static_cast<u64>(hops.owned() + 31) / 32;
    for (u64 i = team.thread(); i < queued; i += team.threads()) given.queued[i] = 0;
    team_clear(team, given.united, static_cast<u64>(given.in.classes[CLASS_BLOCK]) * LANES);
    team.wait(hops.block);
    for (u64 i = team.thread(); i < hops.count(); i += team.threads()) {
        i64 own = given.sources[hops.first() + i];
        i64 at = own * LANES + static_cast<i64>(i / WORD);
        u64 bit = 1ull << (i % WORD);
        given.lines[0][at] = given.lines[1][at] = bit;  // sources differ
        given.queue[0][i] = static_cast<Id>(own);
        hops.found += 1;
        if constexpr (BY_VERTEX) {
            given.vertex_sums[own * FIELDS + COUNT] += 1;
        } else if (hops.is_wanted(own)) {
            hops.wanted += 1;
            hops.plane(0)[at] = bit;
        }
        hops.thread_join_front(own);
    }
    if (team.thread() == 0)
        atomicAdd(&hops.block.sums.counts[BEGUN], static_cast<u64>(hops.count()));
}

// The visitor of a schedule: add the lines of the tails of arcs to those of their heads.
struct Push {
    Hops &hops;
    Id *queue;  // of the heads, or null

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
        if constexpr (LANES == 1) {
            warp_push(target, rows);
            return;
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_HERE; i++) {
            if (!__any_sync(FULL_WARP, there[i])) continue;
            constexpr u32 AT_ONCE = PUSHED_AT_ONCE < LANES ? PUSHED_AT_ONCE : LANES;
#pragma unroll 1
            for (u32 from = 0; from < LANES; from += AT_ONCE) {
                // Each group visits an arc of one of its lanes.
                Id heads[AT_ONCE];
                u32 tails[AT_ONCE];
#pragma unroll
                for (u32 j = 0; j < AT_ONCE; j++) {
                    u32 lane = hops.group * LANES + from + j;
                    heads[j] = __shfl_sync(FULL_WARP, target[i], lane);
                    tails[j] = __shfl_sync(FULL_WARP, rows[i], lane);
                }
                warp_push(heads, tails);
            }
        }
    }

    // Push along arcs of each group; a negative head is no arc.
    template <u32 COUNT_HERE>
    __device__ __forceinline__ void warp_push(const Id (&heads)[COUNT_HERE],
                                              const u32 (&tails)[COUNT_HERE]) const {
        u64 fresh[COUNT_HERE];
#pragma unroll
        for (u32 i = 0; i < COUNT_HERE; i++) {
            bool is_arc = heads[i] >= 0;
            fresh[i] = is_arc ? hops.now[hops.word(static_cast<i64>(tails[i]))] &
                                    ~hops.now[hops.word(heads[i])]
                              : 0;
        }
#pragma unroll
        for (u32 i = 0; i < COUNT_HERE; i++) {
            if (!__any_sync(FULL_WARP, fresh[i] != 0)) continue;
            if (fresh[i]) atomicOr(hops.next + hops.word(heads[i]), fresh[i]);
            if (!queue) continue;
            bool appends = hops.group_any(fresh[i] != 0) && hops.place == 0;
            if (appends) {
                u32 bit = 1u << (heads[i] & 31);
                appends = !(atomicOr(hops.given.queued + (heads[i] >> 5), bit) & bit);
            }
            hops.warp_enqueue(queue, appends, heads[i]);
        }
    }
};

// Push along the rows of the queue.
__device__ __forceinline__ void team_push_rows(Hops &hops, Id *next_queue) {
    const Arguments &given = hops.given;
    const u64 *state = hops.block.state;
    const Id *queue = given.queue[state[WHICH]];
    u64 size = state[SIZE];
    const MixedSchedule schedule{given.left_rows, &hops.team.control->cursors[0]};
    const Push visit{hops, next_queue};
    // Few rows are dealt out to all warps.
    u64 each = max(min((size + hops.team.warps() - 1) / hops.team.warps(), u64{WARP}), u64{1});
    for (u64 base = hops.team.warp() * each; base < size; base += hops.team.warps() * each) {
        i64 begin = 0, end = 0;
        u32 row = 0;
        if (lane_id() < each && base + lane_id() < size) {
            row = static_cast<u32>(queue[base + lane_id()]);
            begin = given.out.offsets[row];
            end = given.out.offsets[row + 1];
        }
        schedule.warp_bring(begin, end, row, visit);
    }
    schedule.team_finish(hops.team, hops.block, state[LONG_ROWS] != 0, visit);
    hops.team.wait(hops.block);
}

__device__ __forceinline__ void team_push(Hops &hops) {
    const Arguments &given = hops.given;
    Id *next_queue = given.queue[hops.block.state[WHICH] ^ 1];
    team_push_rows(hops, next_queue);
    u64 groups = hops.team.warps() * GROUPS;
    u64 next_size = load_relaxed(&hops.team.control->cursors[1]);
    for (u64 base = hops.team.warp() * GROUPS; base < next_size; base += groups) {
        bool is_there = base + hops.group < next_size;
        i64 own = is_there ? static_cast<i64>(next_queue[base + hops.group]) : 0;
        u64 line = is_there ? load_relaxed(hops.next + hops.word(own)) : 0;
        u64 fresh = is_there ? line & ~hops.now[hops.word(own)] : 0;
        if (fresh) hops.now[hops.word(own)] = line;
        hops.warp_record(own, fresh, line);
        if (is_there && hops.place == 0) atomicAnd(given.queued + (own >> 5), ~(1u << (own & 31)));
    }
}

// Push, and look at all lines for what was reached.
__device__ __forceinline__ void team_spread(Hops &hops) {
    team_push_rows(hops, nullptr);
    i64 active = hops.given.in.classes[CLASS_NONE];
    for (i64 base = static_cast<i64>(hops.team.warp() * GROUPS); base < active;
         base += static_cast<i64>(hops.team.warps() * GROUPS)) {
        i64 own = base + hops.group;
        u64 line = own < active ? load_relaxed(hops.next + hops.word(own)) : 0;
        u64 fresh = own < active ? line & ~hops.now[hops.word(own)] : 0;
        hops.warp_record(own, fresh, line);
    }
}

// Pull rows of more than 4096 arcs, each slice with a warp.
__device__ __forceinline__ void team_pull_slices(Hops &hops) {
    const Arguments &given = hops.given;
    i64 rows = given.in.classes[CLASS_BLOCK];
    u64 warps = hops.team.warps(), warp = hops.team.warp();
    u64 before = 0;  // slices of the rows that were dealt out
    for (i64 base = 0; base < rows; base += WARP) {
        i64 own = base + lane_id();
        u64 slices = 0;
        bool is_open = false;
        if (own < rows) {
            slices =
                static_cast<u64>(given.in.offsets[own + 1] - given.in.offsets[own] + SLICE - 1) /
                SLICE;
            for (u32 i = 0; i < LANES; i++) {
                i64 left = static_cast<i64>(hops.count()) - static_cast<i64>(WORD * i);
                u64 wanted = left >= WORD ? ~0ull : left <= 0 ? 0 : (1ull << left) - 1;
                is_open |= (wanted & ~hops.now[own * LANES + i]) != 0;
            }
        }
        u64 up_to = warp_sum_up_to(slices);
        for (u32 open = __ballot_sync(FULL_WARP, is_open); open; open &= open - 1) {
            u32 lane = static_cast<u32>(__ffs(static_cast<int>(open)) - 1);
            u64 count = __shfl_sync(FULL_WARP, slices, lane);
            u64 turn = (before + __shfl_sync(FULL_WARP, up_to, lane) - count) % warps;
            i64 row = base + lane;
            u64 missing = hops.all & ~hops.now[hops.word(row)];
            for (u64 slice = (warp + warps - turn) % warps; slice < count; slice += warps) {
                i64 begin = given.in.offsets[row] + static_cast<i64>(slice) * SLICE;
                i64 end = min(begin + SLICE, given.in.offsets[row + 1]);
                // The first group's row is the slice; the others have none.
                u64 united = hops.warp_unite<WARP>(begin, hops.group == 0 ? end : begin, missing);
                if (hops.group == 0 && united) atomicOr(given.united + hops.word(row), united);
            }
        }
        before += __shfl_sync(FULL_WARP, up_to, WARP - 1);
    }
    hops.team.wait(hops.block);
    for (i64 base = static_cast<i64>(warp * GROUPS); base < rows;
         base += static_cast<i64>(warps * GROUPS)) {
        i64 own = base + hops.group;
        bool is_there = own < rows;
        u64 line = is_there ? hops.now[hops.word(own)] : hops.all;
        u64 fresh = is_there ? load_relaxed(given.united + hops.word(own)) : 0;
        if (fresh) given.united[hops.word(own)] = 0;
        if (is_there) hops.next[hops.word(own)] = line | fresh;
        hops.warp_record(own, fresh, line | fresh);
    }
}

// Pull rows of [begin, end), each warp neighbouring ones.
template <u32 WIDTH>
__device__ __forceinline__ void team_pull_rows(Hops &hops, i64 begin, i64 end) {
    for (i64 base = begin + static_cast<i64>(hops.team.warp() * GROUPS); base < end;
         base += static_cast<i64>(hops.team.warps() * GROUPS))
        hops.warp_pull<WIDTH>(base + hops.group, base + hops.group < end);
}

__device__ __forceinline__ void team_pull(Hops &hops) {
    const i64 *classes = hops.given.in.classes;
    constexpr u32 SHORT = LANES > 8 ? LANES : 8;
    if (classes[CLASS_BLOCK] > 0) team_pull_slices(hops);
    // Long rows are dealt out, so that no warp has many of the longest.
    i64 warps = static_cast<i64>(hops.team.warps());
    for (i64 base = classes[CLASS_BLOCK] + static_cast<i64>(hops.team.warp());
         base < classes[CLASS_WARP]; base += warps * GROUPS) {
        i64 own = base + hops.group * warps;
        hops.warp_pull<WARP>(own, own < classes[CLASS_WARP]);
    }
    team_pull_rows<WARP>(hops, classes[CLASS_WARP], classes[CLASS_GROUP]);
    team_pull_rows<SHORT>(hops, classes[CLASS_GROUP], classes[CLASS_THREAD]);
    team_pull_rows<LANES>(hops, classes[CLASS_THREAD], classes[CLASS_NONE]);
}

// Queue the frontier after a level that queued none, and make both copies of lines equal.
__device__ __forceinline__ void team_queue(Hops &hops) {
    const Arguments &given = hops.given;
    Id *queue = given.queue[hops.block.state[WHICH]];
    i64 active = given.in.classes[CLASS_NONE];  // others are reached as sources only
    for (i64 base = static_cast<i64>(hops.team.warp() * GROUPS); base < active;
         base += static_cast<i64>(hops.team.warps() * GROUPS)) {
        i64 own = base + hops.group;
        u64 fresh = own < active ? hops.now[hops.word(own)] & ~hops.next[hops.word(own)] : 0;
        if (fresh) hops.next[hops.word(own)] |= fresh;
        hops.warp_enqueue(queue, hops.group_any(fresh != 0) && hops.place == 0, own);
    }
}

// Turn planes into rows of the results: of each word of sources, a block has neighbouring columns. All cells of a
// batch are written at first, and then those that were reached since.
template <u32 USED>
__device__ __forceinline__ void team_deliver_planes(Hops &hops) {
    const Arguments &given = hops.given;
    i64 columns = given.column_count;
    i32 offset = static_cast<i32>(hops.block.state[BASE]) - 1;
    bool is_first = hops.block.state[BASE] == 0;
    u64 words = (hops.count() + WORD - 1) / WORD;
    u64 tiles = static_cast<u64>(columns + blockDim.x - 1) / blockDim.x;
    for (u64 task = hops.team.block; task < words * tiles; task += hops.team.blocks) {
        u64 which = task % words;
        i64 column = static_cast<i64>(task / words * blockDim.x + threadIdx.x);
        if (column >= columns) continue;
        u64 planes[USED];
        i64 at = static_cast<i64>(given.columns[column]) * LANES + static_cast<i64>(which);
#pragma unroll
        for (u32 i = 0; i < USED; i++) planes[i] = hops.number >> i ? hops.plane(i)[at] : 0;
        u64 first = WORD * which;
        i32 *cell = given.results + static_cast<i64>(hops.first() + first) * columns + column;
        u32 rows = static_cast<u32>(min(hops.count() - first, static_cast<u64>(WORD)));
#pragma unroll 8
        for (u32 row = 0; row < rows; row++, cell += columns) {
            u32 number = 0;
#pragma unroll
            for (u32 i = 0; i < USED; i++) {
                number |= (static_cast<u32>(planes[i]) & 1) << i;
                planes[i] >>= 1;
            }
            if (number || is_first) *cell = number ? static_cast<i32>(number) + offset : UNREACHED;
        }
    }
}

// Add up planes for each source. A warp has a word of sources, and each lane two of them.
__device__ __forceinline__ void team_sum_planes(Hops &hops) {
    const Arguments &given = hops.given;
    __shared__ u64 units[MOST_LEVELS + 1], fractions[MOST_LEVELS + 1];
    u64 base = hops.block.state[BASE];
    for (u32 number = 1 + threadIdx.x; number <= MOST_LEVELS; number += blockDim.x) {
        Reciprocal reciprocal(base + number - 1);
        units[number] = reciprocal.units;
        fractions[number] = reciprocal.fractions;
    }
    __syncthreads();
    u64 words = (hops.count() + WORD - 1) / WORD;
    i64 slices = static_cast<i64>(max(hops.team.warps() / words, 1ull));
    for (u64 task = hops.team.warp(); task < words * static_cast<u64>(slices);
         task += hops.team.warps()) {
        u64 which = task % words;
        u64 sums[2][FIELDS] = {};
        for (i64 own = static_cast<i64>(task / words); own < hops.owned(); own += slices) {
            u32 numbers[2] = {};
            for (u32 i = 0; hops.number >> i; i++) {
                u64 word = hops.plane(i)[own * LANES + static_cast<i64>(which)];
                numbers[0] |= static_cast<u32>(word >> lane_id() & 1) << i;
                numbers[1] |= static_cast<u32>(word >> (WARP + lane_id()) & 1) << i;
            }
            for (u32 half = 0; half < 2; half++) {
                if (numbers[half] == 0) continue;
                u64 distance = base + numbers[half] - 1;
                sums[half][COUNT] += 1;
                sums[half][TOTAL] += distance;
                sums[half][LARGEST] = max(sums[half][LARGEST], distance);
                sums[half][RECIPROCALS] += units[numbers[half]];
                sums[half][FRACTIONS] += fractions[numbers[half]];
            }
        }
        for (u32 half = 0; half < 2; half++) {
            if (sums[half][COUNT] == 0) continue;
            u64 source = hops.first() + WORD * which + WARP * half + lane_id();
            thread_add_sums(given.source_sums + source * FIELDS, sums[half]);
        }
    }
}

__device__ __forceinline__ u32 hops_push_phase(const Arguments &given, const u64 *state) {
    if (state[ARCS] * SPREAD_SHARE > static_cast<u64>(given.stage.owned)) return SPREAD;
    bool is_tiny = state[LONG_ROWS] == 0 && state[SIZE] * LANES <= ALONE_LINES &&
                   state[ARCS] * LANES <= ALONE_ARCS;
    return is_tiny ? PUSH | ALONE : static_cast<u32>(PUSH);
}

// Return the phase that searches the next level.
__device__ __forceinline__ u32 hops_level(const Arguments &given, u64 *state) {
    if (state[ARCS] * PUSH_FACTOR >= state[OPEN_ARCS] + static_cast<u64>(given.stage.owned) / 2) {
        return PULL;
    }
    return state[QUEUED] ? hops_push_phase(given, state) : static_cast<u32>(QUEUE);
}

// Go on to the next level. Its number needs another plane if it is a power of two.
__device__ __forceinline__ u32 hops_next(const Arguments &given, u64 *state) {
    state[LEVEL] += 1;
    u64 number = state[LEVEL] - state[BASE] + 1;
    if (!BY_VERTEX && (number & (number - 1)) == 0) return CLEAR;
    return hops_level(given, state);
}

// Return the phase that follows what was asked for of a batch.
__device__ __forceinline__ u32 hops_next_batch(const Arguments &given, u64 *state) {
    state[FIRST] += TOGETHER;
    state[LEVEL] = state[BASE] = state[PARITY] = 0;
    return state[FIRST] < given.source_count ? static_cast<u32>(BEGIN) : STOP;
}

// Return the phase that follows a complete level.
__device__ __forceinline__ u32 hops_after_level(const Arguments &given, u64 *state) {
    state[ENDED] =
        state[SIZE] == 0 || state[LEVEL] >= given.limit || (!BY_VERTEX && state[MISSING] == 0);
    bool is_full = state[LEVEL] - state[BASE] + 1 == MOST_LEVELS;
    if (!BY_VERTEX && (state[ENDED] || is_full)) return given.results ? DELIVER : SUM;
    return state[ENDED] ? hops_next_batch(given, state) : hops_next(given, state);
}

__device__ __forceinline__ void grid_hops(const Arguments &given) {
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Hops hops(given, team, block);
        switch (phase & ~ALONE) {
            case BEGIN:
                team_begin(hops);
                break;
            case CLEAR:
                team_clear(team,
                           hops.plane(static_cast<u32>(__ffs(static_cast<int>(hops.number)) - 1)),
                           static_cast<u64>(hops.owned()) * LANES);
                break;
            case PUSH:
                team_push(hops);
                break;
            case SPREAD:
                team_spread(hops);
                break;
            case PULL:
                team_pull(hops);
                break;
            case QUEUE:
                team_queue(hops);
                break;
            case DELIVER:
                if (hops.number >> PLANES / 2)
                    team_deliver_planes<PLANES>(hops);
                else
                    team_deliver_planes<PLANES / 2>(hops);
                break;
            case SUM:
                team_sum_planes(hops);
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
                state[OPEN_ARCS] = given.arcs;
                state[QUEUED] = 1;
                state[WHICH] = 0;
                break;
            case PUSH:
                state[WHICH] ^= 1;
                break;
            case SPREAD:
            case PULL:
                state[QUEUED] = 0;
                state[PARITY] ^= 1;
                break;
            case CLEAR:
                return hops_level(given, state);
            case QUEUE:
                state[QUEUED] = 1;
                return hops_push_phase(given, state);
            default:
                if (state[ENDED]) return hops_next_batch(given, state);
                state[BASE] = state[LEVEL] + 1;
                return hops_next(given, state);
        }
        state[MISSING] -= sums.counts[FOUND_WANTED];
        state[OPEN_ARCS] -= sums.counts[DONE_ARCS];
        state[SIZE] = sums.counts[FRONT];
        state[ARCS] = sums.counts[FRONT_ARCS];
        state[LONG_ROWS] = sums.counts[FRONT_LONG];
        return hops_after_level(given, state);
    };
    run_steps(given.stage, body, decide);
}
