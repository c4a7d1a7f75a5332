// Shortest paths that look at few arcs, in supersteps on one GPU: push short arcs, then pull, then correct.
//
// Push (stages): rows are sorted by weight. At the end of a stage with the bound `near`, every distance up to `near`
// is final: each vertex at distance d <= near has pushed its arcs of weight up to near - d, a prefix of its row
// (`cursors`), and the arcs behind that reach no distance up to `near`. The next stage has a larger bound.
//
// Pull: when the vertices that are left have few in-arcs beside what a stage pushes, each looks through its in-row for
// final neighbours, and stops at the first weight that is not below the distance it has found.
//
// Correct: vertices beyond `near` push all their arcs to each other, nearest first, until nothing changes. `open` are
// these vertices then: most of their arcs lead to others, whose distances need not be read.
//
// Beamer, Asanovic and Patterson (SC 2012) have push and pull for BFS, Chakaravarthy et al. (IPDPS 2014) pushing,
// pulling and pruning by weight for shortest paths, Meyer and Sanders (2003) the stages (delta-stepping).
//
// Invariant: between two stages, `open` are the vertices at final distances with arcs behind their cursors, and no
// vertex is pending. A stage begins with the open vertices and those whose distances lie between the old bound and the
// new one; from then on, a vertex whose distance falls to `near` or below is *pending*. The bit is set after the
// distance is written, and cleared before it is read: no change is lost.
//
// Distances are stored as integers in whose order they are: floating-point numbers that are not negative are ordered
// like their bits.
#pragma once

#include "algorithms/sssp/weights.cuh"
#include "runtime/cuda/include/bitmap.cuh"
#include "runtime/cuda/include/schedule.cuh"
#include "supersteps/step.cuh"

enum SsspPhase : u32 { BEGIN, PUSH, PULL, CORRECT };

// Words of the state.
enum SsspState : u32 {
    NEAR,          // the bound of the stage, as stored
    BEFORE,        // that of the stage before
    WIDTH,         // by which the bound rises at the next stage, as stored
    FIRST_WIDTH,   // after a stage that found something
    LIMIT,         // farther vertices are not reached
    ARCS,          // in-arcs of all vertices
    SETTLED_ARCS,  // in-arcs of those at final distances
    STAGE_ARCS,    // arcs looked at in the stage so far
    STAGE_LEFT,    // vertices seen in the stage so far that are beyond the bound, or open
    IS_FIRST,      // the next superstep is the first of its stage
    PULLED,
    OVERFLOWS,  // a distance does not fit
    DEEP_STEPS,  // every so many supersteps (four times as many after a pull) a search whose frontier is narrow is
    // given up; 0: never
    GAVE_UP,
    VERTICES,
    TURN,  // pull when the in-arcs left are at most this multiple of a stage's arcs; bits of a double
};

enum SsspCount : u32 { PROCESSED, LOOKED, FOUND, BEYOND, NEWLY_SETTLED_ARCS, OVERFLOWED };

constexpr u32 LONG_PULL_ARCS = 4096;     // longer in-rows are pulled by the team
constexpr u32 PULL_ALONE_ARCS = 8;       // arcs that a lane looks at before its warp helps
constexpr u32 NEVER = 0xffffffffu;       // cursor of a vertex that has not pushed
constexpr u64 FEW_SHARE = 64;            // fewer than this share of the vertices are few
constexpr u32 CORRECTION_DOUBLINGS = 4;  // stages after the pull begin 16 times as wide

struct SsspCounters {
    u64 left_rows;
};

struct Arguments {
    Stage stage;
    Rows<Id> out;  // targets are not those of `out_targets`
    Rows<Id> in;
    const Id *out_targets;  // by ascending weight in each row
    const Weight *out_weights;
    const Id *in_targets;
    const Weight *in_weights;
    Stored *distances;  // by position
    u32 *pending;       // bits of vertices, as `open`
    u32 *open;
    u32 *cursors;  // arcs of each row that were pushed, or NEVER
    Schedule::Row *left_rows;
    SsspCounters *counters;
    const Id *seeds;  // in host memory: positions of the sources
    i64 seed_count;
    i64 active;   // vertices from here on are reached as seeds only
    i64 cleared;  // distances from here on are UNREACHED, and stay so
    u64 has_long_rows;
};

__device__ __forceinline__ Value value_of(Stored stored) {
    if constexpr (is_float<Value>) return __longlong_as_double(stored);
    return static_cast<Value>(stored);
}

__device__ __forceinline__ Stored stored(Value value) {
    if constexpr (is_float<Value>) return __double_as_longlong(value);
    return static_cast<Stored>(value);
}

constexpr bool IS_WIDE = sizeof(Stored) == 8;
constexpr Stored LARGEST =
    IS_WIDE ? static_cast<Stored>(0x7fffffffffffffffll) : static_cast<Stored>(0x7fffffff);
// Infinity where distances are floating-point numbers.
constexpr Stored UNREACHED = is_float<Value> ? static_cast<Stored>(0x7ff0000000000000ll) : LARGEST;

// A thread's view of a superstep, and its counts.
struct Search {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;
    Stored near, limit;
    bool corrects;
    u32 processed = 0, found = 0, left = 0, overflowed = 0;
    u64 looked = 0, settled_arcs = 0;

    __device__ __forceinline__ Search(const Arguments &given, const Team &with, StepBlock &in)
        : arguments(given),
          team(with),
          block(in),
          near(static_cast<Stored>(in.state[NEAR])),
          limit(static_cast<Stored>(in.state[LIMIT])),
          corrects(in.state[PULLED] != 0) {}

    // The distance over an arc, or UNREACHED if it is beyond the limit.
    __device__ __forceinline__ Stored along(Stored from, Weight weight) {
        if constexpr (is_float<Value>) {
            const Stored to = stored(value_of(from) + static_cast<Value>(weight));
            return to > limit ? UNREACHED : to;
        } else {
            const u64 to = static_cast<u64>(from) + static_cast<u64>(weight);
            if (to >= static_cast<u64>(UNREACHED)) {
                overflowed |= limit == LARGEST - 1;
                return UNREACHED;
            }
            return static_cast<Stored>(to) > limit ? UNREACHED : static_cast<Stored>(to);
        }
    }

    // The largest key of the weights along which a vertex reaches a distance up to `near`.
    __device__ __forceinline__ u32 prefix_key(Stored from) const {
        Value bound = value_of(near) - value_of(from);
        // A sum may be rounded down to `near`.
        if constexpr (is_float<Value>) bound += value_of(near) * 4.5e-16;
        return key_up_to<Weight>(bound);
    }

    __device__ __forceinline__ void count() {
        warp_count(block, PROCESSED, processed);
        warp_count(block, LOOKED, looked);
        warp_count(block, FOUND, found);
        warp_count(block, BEYOND, left);
        warp_count(block, NEWLY_SETTLED_ARCS, settled_arcs);
        warp_count(block, OVERFLOWED, overflowed);
    }
};

// The visitor of a schedule that pushes along arcs of out-rows.
struct PushArcs {
    Search &search;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = search.arguments;
        Id target[ARCS];
        Stored to[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            to[i] = UNREACHED;
            target[i] = there[i] ? load_once(arguments.out_targets + arcs[i]) : Id(0);
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            const bool is_final = search.corrects && !has_bit(arguments.open, target[i]);
            if (!there[i] || is_final) continue;
            to[i] = search.along(load_relaxed(arguments.distances + rows[i]),
                                 load_once(arguments.out_weights + arcs[i]));
        }
        bool is_near[ARCS], any_near = false;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            is_near[i] =
                to[i] != UNREACHED && to[i] < load_relaxed(arguments.distances + target[i]);
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!is_near[i]) continue;
            const bool improves = atomicMin(arguments.distances + target[i], to[i]) > to[i];
            is_near[i] = improves && to[i] <= search.near;
            search.found += is_near[i];
            search.left += improves && !is_near[i];
            any_near |= is_near[i];
        }
        if (!any_near) return;
        __threadfence();  // whoever clears a bit reads this distance, or a smaller one
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            if (is_near[i]) set_bits(arguments.pending + (target[i] >> 5), 1u << (target[i] & 31));
    }
};

// The visitor that pulls along arcs of long in-rows.
struct PullArcs {
    Search &search;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = search.arguments;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!there[i]) continue;
            const Stored from = load_relaxed(arguments.distances + arguments.in_targets[arcs[i]]);
            if (from > search.near) continue;
            const Stored to = search.along(from, arguments.in_weights[arcs[i]]);
            if (to == UNREACHED || to >= load_relaxed(arguments.distances + rows[i])) continue;
            atomicMin(arguments.distances + rows[i], to);
        }
    }
};

__device__ __forceinline__ void team_clear(Search &search) {
    const Arguments &arguments = search.arguments;
    const Team &team = search.team;
    for (u64 i = team.thread(); i < static_cast<u64>(arguments.cleared); i += team.threads())
        arguments.distances[i] = UNREACHED;
    for (u64 i = team.thread(); i < static_cast<u64>(arguments.active); i += team.threads())
        arguments.cursors[i] = NEVER;
    for (u64 i = team.thread(); i < static_cast<u64>(arguments.active + 31) / 32;
         i += team.threads()) {
        arguments.pending[i] = 0;
        arguments.open[i] = 0;
    }
    if (team.thread() == 0) arguments.counters->left_rows = 0;
}

__device__ __forceinline__ void team_seed(Search &search) {
    const Arguments &arguments = search.arguments;
    for (u64 i = search.team.thread(); i < static_cast<u64>(arguments.seed_count);
         i += search.team.threads()) {
        const i64 position = arguments.seeds[i];
        if (position >= arguments.active) continue;  // the host sets distances of such vertices
        arguments.distances[position] = 0;
        search.found += 1;
    }
}

// The end of the prefix of a sorted row whose keys are at most `key`.
__device__ __forceinline__ i64 thread_prefix_end(const Weight *weights, i64 begin, i64 end,
                                                 u32 key) {
    while (begin < end) {
        const i64 middle = begin + (end - begin) / 2;
        if (key_of(weights[middle]) <= key)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

// The arcs [begin, end) along which a vertex pushes now. `continues` is true if it may have pushed before at the distance
// that it has.
__device__ __forceinline__ void thread_prefix(Search &search, u32 vertex, bool continues,
                                              i64 &begin, i64 &end) {
    const Arguments &arguments = search.arguments;
    begin = arguments.out.offsets[vertex];
    end = arguments.out.offsets[vertex + 1];
    search.processed += 1;
    if (search.corrects) return;
    const i64 row = begin, row_end = end;
    const u32 cursor = arguments.cursors[vertex];
    if (cursor == NEVER)
        search.settled_arcs +=
            static_cast<u64>(arguments.in.offsets[vertex + 1] - arguments.in.offsets[vertex]);
    else if (continues)
        begin += cursor;
    const u32 key = search.prefix_key(load_relaxed(arguments.distances + vertex));
    end = thread_prefix_end(arguments.out_weights, begin, row_end, key);
    arguments.cursors[vertex] = static_cast<u32>(end - row);
    const u32 bit = 1u << (vertex & 31);
    if (end < row_end) {
        search.left += 1;
        set_bits(&arguments.open[vertex >> 5], bit);
    } else if (cursor != NEVER) {
        atomicAnd(&arguments.open[vertex >> 5], ~bit);
    }
}

// The vertices with which a stage begins, as bits of the lanes' words: those whose distances lie between the old bound
// and the new one, and open ones. All lanes participate.
__device__ __forceinline__ u32 warp_begin_stage(Search &search, i64 at, u32 open) {
    constexpr u32 LOADS = 8;
    const Arguments &arguments = search.arguments;
    const Stored before = static_cast<Stored>(search.block.state[BEFORE]);
    u32 mine = open;
    for (u32 first = 0; first < WARP; first += LOADS) {
        Stored distance[LOADS];
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            const i64 vertex = __shfl_sync(FULL_WARP, at, first + i) * 32 + lane_id();
            distance[i] =
                vertex < arguments.active ? load_relaxed(arguments.distances + vertex) : UNREACHED;
        }
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            search.left += distance[i] > search.near && distance[i] != UNREACHED;
            const u32 begins =
                __ballot_sync(FULL_WARP, distance[i] > before && distance[i] <= search.near);
            if (lane_id() == first + i) mine |= begins;
        }
    }
    return mine;
}

// Push along prefixes of rows, or, when correcting, along whole rows. The first superstep of a stage takes the vertices
// with which it begins, the others take the pending ones.
__device__ __forceinline__ void team_push(Search &search, u16 *list, bool is_first) {
    const Arguments &arguments = search.arguments;
    const Schedule schedule{arguments.left_rows, &arguments.counters->left_rows};
    const PushArcs visit{search};
    const Spans spans(arguments.active, 0);
    const i64 count = spans.count();
    for (i64 span = 0; span < count; span++) {
        const i64 at = spans.word_of(span, lane_id());
        const bool is_word = at < spans.words;
        u32 mine;
        if (is_first) {
            const u32 open = is_word && !search.corrects ? load_relaxed(&arguments.open[at]) : 0;
            mine = warp_begin_stage(search, at, open);
        } else {
            mine = is_word ? load_relaxed(&arguments.pending[at]) : 0;
            if (mine) mine = atomicExch(&arguments.pending[at], 0u);
        }
        if (!__any_sync(FULL_WARP, mine != 0)) continue;
        __threadfence();
        const u32 total = warp_list_bits(mine, list);
        for (u32 first = 0; first < total; first += WARP) {
            i64 begin = 0, end = 0;
            u32 vertex = 0;
            if (first + lane_id() < total) {
                const u32 place = list[first + lane_id()];
                vertex = static_cast<u32>(spans.word_of(span, place >> 5) * 32 + (place & 31));
                thread_prefix(search, vertex, is_first, begin, end);
            }
            search.looked += static_cast<u64>(end - begin);
            schedule.warp_bring(begin, end, vertex, visit);
        }
    }
    schedule.team_finish(search.team, search.block, arguments.has_long_rows != 0, visit);
}

// The smallest distance over the arcs [at, end) of an in-row, of final neighbours. All lanes pass the same row. Ends at
// the first chunk with a weight that cannot be below the best.
__device__ __forceinline__ Stored warp_pull_row(Search &search, i64 at, i64 end, Stored best) {
    const Arguments &arguments = search.arguments;
    bool ends = false;
    for (; at < end && !ends; at += WARP) {
        const i64 arc = at + lane_id();
        Stored to = UNREACHED;
        bool is_over = false;
        if (arc < end) {
            const Weight weight = arguments.in_weights[arc];
            const Stored from = load_relaxed(arguments.distances + arguments.in_targets[arc]);
            if (from <= search.near) to = search.along(from, weight);
            is_over = key_of(weight) > key_up_to<Weight>(value_of(best));
            search.looked += 1;
        }
#pragma unroll
        for (u32 step = WARP / 2; step; step /= 2)
            to = min(to, __shfl_xor_sync(FULL_WARP, to, step));
        best = min(best, to);
        ends = __any_sync(FULL_WARP, is_over);
    }
    return best;
}

// Each vertex beyond `near` looks for the nearest final neighbour plus weight. Only its own thread, or warp, writes its
// distance, but for long rows.
__device__ __forceinline__ void team_pull(Search &search) {
    const Arguments &arguments = search.arguments;
    const Schedule schedule{arguments.left_rows, &arguments.counters->left_rows};
    const u64 words = static_cast<u64>(arguments.active + 31) / 32;
    for (u64 word = search.team.warp(); word < words; word += search.team.warps()) {
        const i64 vertex = static_cast<i64>(word) * 32 + lane_id();
        const bool is_there = vertex < arguments.active;
        const Stored before = is_there ? load_relaxed(arguments.distances + vertex) : search.near;
        const bool searches = before > search.near;
        const u32 open = __ballot_sync(FULL_WARP, searches);
        if (lane_id() == 0) arguments.open[word] = open;
        if (!open) continue;
        i64 at = 0, end = 0;
        if (searches) {
            at = arguments.in.offsets[vertex];
            end = arguments.in.offsets[vertex + 1];
        }
        bool is_long = end - at > static_cast<i64>(LONG_PULL_ARCS);
        if (is_long) {
            schedule.thread_leave(static_cast<u64>(vertex), at, end);
            search.looked += static_cast<u64>(end - at);
            end = at;
        }
        Stored best = before;
        bool ends = false;
        for (u32 alone = 0; alone < PULL_ALONE_ARCS; alone += 4) {
            Id target[4];
            Weight weight[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const bool reads = !ends && at + i < end;
                target[i] = reads ? arguments.in_targets[at + i] : Id(-1);
                weight[i] = reads ? arguments.in_weights[at + i] : Weight(0);
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                if (target[i] < 0 || ends) continue;
                search.looked += 1;
                if (key_of(weight[i]) > key_up_to<Weight>(value_of(best))) {
                    ends = true;
                    continue;
                }
                const Stored from = load_relaxed(arguments.distances + target[i]);
                if (from <= search.near) best = min(best, search.along(from, weight[i]));
            }
            at += 4;
            ends |= at >= end;
            if (!__any_sync(FULL_WARP, !ends)) break;
        }
        u32 waiting = __ballot_sync(FULL_WARP, !ends && at < end);
        while (waiting) {
            const u32 whose = __ffs(waiting) - 1;
            waiting &= waiting - 1;
            const Stored found = warp_pull_row(search, __shfl_sync(FULL_WARP, at, whose),
                                               __shfl_sync(FULL_WARP, end, whose),
                                               __shfl_sync(FULL_WARP, best, whose));
            if (lane_id() == whose) best = found;
        }
        if (best < before) atomicMin(arguments.distances + vertex, best);
    }
    schedule.team_finish(search.team, search.block, arguments.has_long_rows != 0, PullArcs{search});
}

__device__ __forceinline__ Stored raised(Stored near, Stored width) {
    if constexpr (is_float<Value>) {
        const Value next = value_of(near) + value_of(width);
        // A width that is lost in rounding doubles until it is not.
        return next < value_of(UNREACHED) ? stored(next) : static_cast<Stored>(UNREACHED - 1);
    }
    return near > UNREACHED - 1 - width ? UNREACHED - 1 : near + width;
}

__device__ __forceinline__ Stored doubled(Stored width) {
    if constexpr (is_float<Value>)
        return stored(static_cast<Value>(min(static_cast<double>(value_of(width)) * 2, 8.9e307)));
    return width > LARGEST / 2 ? LARGEST : width * 2;
}

// Raise the bound: a stage that looked at no arc is followed by one twice as wide.
__device__ __forceinline__ void next_stage(u64 *state) {
    const Stored width = static_cast<Stored>(state[state[STAGE_ARCS] ? FIRST_WIDTH : WIDTH]);
    state[BEFORE] = state[NEAR];
    state[NEAR] = static_cast<u64>(raised(static_cast<Stored>(state[NEAR]), width));
    // The order of few vertices does not matter.
    if (state[PULLED] && state[STAGE_LEFT] * FEW_SHARE < state[VERTICES])
        state[NEAR] = static_cast<u64>(UNREACHED - 1);
    state[WIDTH] = static_cast<u64>(doubled(width));
    if (state[PULLED]) state[FIRST_WIDTH] = state[WIDTH];
    state[IS_FIRST] = 1;
    state[STAGE_ARCS] = 0;
    state[STAGE_LEFT] = 0;
}

__device__ __forceinline__ u32 sssp_next(u32 phase, const Sums &sums, u64 *state) {
    if (sums.counts[OVERFLOWED]) {
        state[OVERFLOWS] = 1;
        return STOP;
    }
    const u64 found = sums.counts[FOUND];
    if (phase == BEGIN) return found ? PUSH : STOP;
    state[STAGE_ARCS] += sums.counts[LOOKED];
    state[STAGE_LEFT] += sums.counts[BEYOND];
    state[SETTLED_ARCS] += sums.counts[NEWLY_SETTLED_ARCS];
    state[IS_FIRST] = 0;
    const bool is_narrow = (found + state[STAGE_LEFT]) * FEW_SHARE < state[VERTICES];
    const u64 most_steps = state[DEEP_STEPS] * (state[PULLED] ? 4 : 1);
    if (most_steps && (state[STEP] + 1) % most_steps == 0 && is_narrow) {
        state[GAVE_UP] = 1;
        return STOP;
    }
    if (phase == PULL) {
        state[PULLED] = 1;
        state[STAGE_LEFT] = state[VERTICES];  // as many as there may be
        for (u32 k = 0; k < CORRECTION_DOUBLINGS; k++)
            state[FIRST_WIDTH] = static_cast<u64>(doubled(static_cast<Stored>(state[FIRST_WIDTH])));
        next_stage(state);
        return CORRECT;
    }
    if (found) return phase;
    if (!state[STAGE_LEFT]) return STOP;
    const Stored limit = static_cast<Stored>(state[LIMIT]);
    if (static_cast<Stored>(state[NEAR]) >= limit) {
        // Arcs behind cursors lead beyond the limit: beyond all integers, if there is no other.
        state[OVERFLOWS] = !is_float<Value> && limit == LARGEST - 1;
        return STOP;
    }
    if (phase == PUSH) {
        const double open_arcs = static_cast<double>(state[ARCS] - state[SETTLED_ARCS]);
        if (open_arcs <= amount_of(state[TURN]) * static_cast<double>(state[STAGE_ARCS]))
            return PULL;
    }
    next_stage(state);
    return phase;
}

__device__ __forceinline__ void grid_sssp(const Arguments &arguments) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    u16 *list = reinterpret_cast<u16 *>(shared_bytes) + warp_id() * 1024;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Search search(arguments, team, block);
        switch (phase) {
            case BEGIN:
                team_clear(search);
                team.wait(block);
                team_seed(search);
                break;
            case PUSH:
            case CORRECT:
                team_push(search, list, block.state[IS_FIRST]);
                break;
            case PULL:
                team_pull(search);
                break;
        }
        search.count();
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        phase = sssp_next(phase, sums, state);
        arguments.counters->left_rows = 0;
        return phase;
    };
    run_steps(arguments.stage, body, decide);
}
