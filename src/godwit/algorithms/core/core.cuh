// Core numbers by peeling, on one device. CPU counterpart: cpu.py, which explains the method and has
// the invariants.
//
// A superstep scans the remaining vertices, or goes on with those that the superstep before has listed.
// A block that removes a vertex keeps it in shared memory, and lowers the neighbours of all that it
// keeps, and of those that are removed by this, before the devices meet: no superstep is needed for a
// chain of removals. What it keeps in a superstep has a budget of arcs: further vertices are listed,
// and their rows are distributed over all blocks.
//
// Each block has a list of remaining vertices, which its scan compacts. They are dealt to blocks in
// turn, a warp's worth at a time, since rows lie by descending length.
//
// A vertex is removed by the block that replaces NOT_REMOVED in `core`. Its degree may be lowered
// further in the same superstep, by lanes that loaded it before; it stays at most its core number.
#pragma once

#include "runtime/cuda/include/schedule.cuh"

constexpr i32 NOT_REMOVED = -1;          // core number of a vertex that is not removed
constexpr u32 KEPT_VERTICES = 4096;      // that a block keeps in a superstep
constexpr u32 KEPT_ARCS = 1 << 14;       // of these
constexpr u32 SHORT_ARCS = ARCS_A_WARP;  // longer rows are visited by all warps of a block
constexpr u32 NO_DEGREE = 0xffffffffu;

enum CorePhase : u32 {
    CORE_BEGIN,
    CORE_LOOPS,  // subtract self-loops from degrees
    CORE_SCAN,
    CORE_LIST
};

// Words of control->state.
enum CoreState : u32 {
    LEVEL,
    REMAINING,      // vertices
    LEVEL_REMOVED,  // vertices that this level has removed so far
    LIST_BEGIN,     // the listed vertices that CORE_LIST goes on with
    LIST_END,
    LOOPS  // self-loops, each counted in its rows
};

enum CoreCount : u32 { REMOVED, VISITED, LOOPS_SEEN };

struct CoreCounters {
    u64 long_rows;  // rows left to the team
    u32 listed;     // vertices that are listed, in all supersteps
    u32 least;      // degree that the scan left
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;      // of a directed graph
    i32 *degree;      // by position: remaining neighbours
    i32 *core;        // by position
    u32 *left;        // by block: remaining vertices
    u32 *left_count;  // by block
    u64 left_room;    // of each block
    u32 *listed;      // room for all vertices
    Schedule::Row *long_rows;
    CoreCounters *counters;
    i64 active;    // vertices from here on have no arcs
    i64 out_arcs;  // arcs from here on are in-arcs; above all if there are none
    u32 is_directed;
    u32 has_loops;
};

// The vertices that a block removed, and has not gone on with.
struct KeptVertices {
    u64 arcs;   // of those that were brought, kept or not
    u32 count;  // may exceed the room
    u32 has_long_rows;
    u32 left;  // vertices that the scan has left
    u32 least;
    u32 items[KEPT_VERTICES];
};

// A thread's view of a superstep, and its counts.
struct Peel {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;
    KeptVertices &kept;
    i32 level;
    u32 removed = 0;
    u64 visited = 0;

    // Arcs of both directions have numbers, in-arcs behind out-arcs.
    __device__ __forceinline__ u32 target(i64 arc) const {
        return static_cast<u32>(arc < arguments.out_arcs
                                    ? arguments.out.targets[arc]
                                    : arguments.in.targets[arc - arguments.out_arcs]);
    }
    // The arcs of a vertex that leave it (way 0) or reach it (way 1).
    __device__ __forceinline__ void thread_row(u32 way, u32 vertex, i64 &begin, i64 &end) const {
        const i64 *offsets = way ? arguments.in.offsets : arguments.out.offsets;
        begin = offsets[vertex] + (way ? arguments.out_arcs : 0);
        end = offsets[vertex + 1] + (way ? arguments.out_arcs : 0);
    }
    __device__ __forceinline__ u32 ways() const { return arguments.is_directed ? 2 : 1; }

    // Remove the lanes' vertices, if they are not removed yet. All lanes participate.
    __device__ __forceinline__ void warp_remove(bool is_asked, u32 vertex) {
        if (!__any_sync(FULL_WARP, is_asked)) return;
        const bool removes =
            is_asked && atomicCAS(arguments.core + vertex, NOT_REMOVED, level) == NOT_REMOVED;
        const u32 votes = __ballot_sync(FULL_WARP, removes);
        if (!votes) return;
        u64 longest = 0, length = 0;
        if (removes) {
            removed += 1;
            for (u32 way = 0; way < ways(); way++) {
                i64 begin, end;
                thread_row(way, vertex, begin, end);
                length += static_cast<u64>(end - begin);
                longest = max(longest, static_cast<u64>(end - begin));
            }
        }
        length = lanes_sum(length);
        u64 before = 0;
        if (lane_id() == 0) before = atomicAdd(&kept.arcs, length);
        const bool fits = __shfl_sync(FULL_WARP, before, 0) + length <= KEPT_ARCS;
        u32 place = KEPT_VERTICES;
        if (fits) place = warp_place(&kept.count, votes);
        const bool keeps = removes && place < KEPT_VERTICES;
        if (keeps) {
            kept.items[place] = vertex;
            if (longest > SHORT_ARCS) atomicOr(&kept.has_long_rows, 1u);
        }
        warp_append(&arguments.counters->listed, arguments.listed, removes && !keeps, vertex);
    }
};

// The visitor of rows of removed vertices.
struct Lower {
    Peel &peel;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&)[ARCS],
                                               const bool (&there)[ARCS]) const {
        u32 target[ARCS];
        bool is_left[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) target[i] = there[i] ? peel.target(arcs[i]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            is_left[i] = there[i] && load_relaxed(peel.arguments.degree + target[i]) > peel.level;
        bool is_last[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            is_last[i] =
                is_left[i] && atomicSub(peel.arguments.degree + target[i], 1) == peel.level + 1;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) peel.warp_remove(is_last[i], target[i]);
    }
};

// The visitor of all rows that subtracts self-loops from degrees.
struct SubtractLoops {
    const Peel &peel;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        u32 loops = 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            const bool is_loop = there[i] && peel.target(arcs[i]) == rows[i];
            if (is_loop) atomicSub(peel.arguments.degree + rows[i], 1);
            loops += is_loop;
        }
        warp_count(peel.block, LOOPS_SEEN, loops);
    }
};

// Vertices in groups of a warp, dealt to blocks in turn.
__device__ __forceinline__ void team_begin(const Peel &peel) {
    const Arguments &arguments = peel.arguments;
    const Team &team = peel.team;
    for (i64 v = static_cast<i64>(team.thread()); v < arguments.stage.owned;
         v += static_cast<i64>(team.threads())) {
        i64 degree = 0;
        for (u32 way = 0; way < peel.ways(); way++) {
            i64 begin, end;
            peel.thread_row(way, static_cast<u32>(v), begin, end);
            degree += end - begin;
        }
        arguments.degree[v] = static_cast<i32>(degree);
        arguments.core[v] = v < arguments.active ? NOT_REMOVED : 0;
    }
    u32 *left = arguments.left + team.block * arguments.left_room;
    u32 count = 0;
    for (u64 group = team.block + static_cast<u64>(warp_id()) * team.blocks;
         group * WARP < static_cast<u64>(arguments.active); group += team.warps()) {
        const u64 v = group * WARP + lane_id();
        if (v < static_cast<u64>(arguments.active)) {
            left[group / team.blocks * WARP + lane_id()] = static_cast<u32>(v);
            count += 1;
        }
    }
    if (threadIdx.x == 0) arguments.left_count[team.block] = 0;
    __syncthreads();
    count = __reduce_add_sync(FULL_WARP, count);
    if (lane_id() == 0 && count) atomicAdd(arguments.left_count + team.block, count);
    if (team.thread() == 0) *arguments.counters = CoreCounters{0, 0, NO_DEGREE};
}

__device__ __forceinline__ void team_subtract_loops(Peel &peel) {
    const Arguments &arguments = peel.arguments;
    const Team &team = peel.team;
    const Schedule schedule{arguments.long_rows, &arguments.counters->long_rows};
    const SubtractLoops visit{peel};
    for (u64 base = team.warp() * WARP; base < static_cast<u64>(arguments.active);
         base += team.warps() * WARP) {
        const u32 v = static_cast<u32>(base + lane_id());
        for (u32 way = 0; way < peel.ways(); way++) {
            i64 begin = 0, end = 0;
            if (v < arguments.active) peel.thread_row(way, v, begin, end);
            schedule.warp_bring(begin, end, v, visit);
        }
    }
    schedule.team_finish(team, peel.block, true, visit);
}

// Remove the block's vertices that have at most `level` neighbours left, and list the others again.
__device__ __forceinline__ void block_scan(Peel &peel) {
    const Arguments &arguments = peel.arguments;
    u32 *left = arguments.left + peel.team.block * arguments.left_room;
    const u32 count = arguments.left_count[peel.team.block];
    u32 least = NO_DEGREE;
    for (u32 base = 0; base < count; base += blockDim.x) {
        const u32 at = base + threadIdx.x;
        const u32 v = at < count ? left[at] : 0;
        const i32 degree = at < count ? load_relaxed(arguments.degree + v) : 0;
        const bool stays = at < count && degree > peel.level;
        if (stays) least = min(least, static_cast<u32>(degree));
        __syncthreads();  // items before `base` may be overwritten, those from there on have been read
        warp_append(&peel.kept.left, left, stays, v);
        peel.warp_remove(at < count && !stays, v);
    }
    least = __reduce_min_sync(FULL_WARP, least);
    if (lane_id() == 0 && least != NO_DEGREE) atomicMin(&peel.kept.least, least);
    __syncthreads();
    if (threadIdx.x == 0) {
        arguments.left_count[peel.team.block] = peel.kept.left;
        if (peel.kept.least != NO_DEGREE) atomicMin(&arguments.counters->least, peel.kept.least);
    }
}

// Lower the neighbours of the vertices that are listed.
__device__ __forceinline__ void team_lower_listed(Peel &peel) {
    const Arguments &arguments = peel.arguments;
    const Team &team = peel.team;
    const Schedule schedule{arguments.long_rows, &arguments.counters->long_rows};
    const Lower visit{peel};
    const u64 first = peel.block.state[LIST_BEGIN];
    const u64 count = peel.block.state[LIST_END] - first;
    // Few vertices are distributed over all warps.
    const u64 each = min((count + team.warps() - 1) / team.warps(), static_cast<u64>(WARP));
    for (u64 base = team.warp() * each; base < count; base += team.warps() * each) {
        const bool is_there = lane_id() < each && base + lane_id() < count;
        const u32 v = is_there ? arguments.listed[first + base + lane_id()] : 0;
        for (u32 way = 0; way < peel.ways(); way++) {
            i64 begin = 0, end = 0;
            if (is_there) peel.thread_row(way, v, begin, end);
            peel.visited += static_cast<u64>(end - begin);
            schedule.warp_bring(begin, end, v, visit);
        }
    }
    schedule.team_finish(team, peel.block, true, visit);
}

// Lower the neighbours of the kept vertices [first, end).
__device__ __forceinline__ void block_lower(Peel &peel, u32 first, u32 end, bool has_long_rows) {
    const Lower visit{peel};
    const u32 warps = blockDim.x / WARP;
    const u32 each = min((end - first + warps - 1) / warps, WARP);
    for (u32 base = first + warp_id() * each; base < end; base += warps * each) {
        const bool is_there = lane_id() < each && base + lane_id() < end;
        const u32 v = is_there ? peel.kept.items[base + lane_id()] : 0;
        for (u32 way = 0; way < peel.ways(); way++) {
            i64 begin = 0, row_end = 0;
            if (is_there) peel.thread_row(way, v, begin, row_end);
            u64 length = static_cast<u64>(row_end - begin);
            peel.visited += length;
            if (length > SHORT_ARCS) length = 0;
            warp_visit_rows(begin, static_cast<u32>(length), v, visit);
        }
    }
    if (!has_long_rows) return;
    u32 turn = warp_id();
    for (u32 at = first; at < end; at++) {
        const u32 v = peel.kept.items[at];
        for (u32 way = 0; way < peel.ways(); way++) {
            i64 begin, row_end;
            peel.thread_row(way, v, begin, row_end);
            if (row_end - begin <= SHORT_ARCS) continue;
            for (i64 part = begin + static_cast<i64>(turn) * ARCS_A_WARP; part < row_end;
                 part += static_cast<i64>(warps) * ARCS_A_WARP)
                warp_visit_part(part, row_end, v, visit);
            turn = turn + 1 < warps ? turn + 1 : 0;
        }
    }
}

// Lower the neighbours of all vertices that the block keeps, and of those that it keeps meanwhile.
__device__ __forceinline__ void block_run_ahead(Peel &peel) {
    for (u32 done = 0;;) {
        __syncthreads();
        const u32 end = min(peel.kept.count, KEPT_VERTICES);
        const bool has_long_rows = peel.kept.has_long_rows;
        __syncthreads();  // all have read it before any warp adds to it
        if (done == end) break;
        block_lower(peel, done, end, has_long_rows);
        done = end;
    }
}

__device__ __forceinline__ u32 thread_decide_core(const Arguments &arguments, u32 phase,
                                                  const Sums &sums, u64 *state) {
    CoreCounters *counters = arguments.counters;
    counters->long_rows = 0;
    if (phase == CORE_BEGIN) {
        state[REMAINING] = static_cast<u64>(arguments.active);
        if (arguments.has_loops) return CORE_LOOPS;
        return state[REMAINING] ? CORE_SCAN : STOP;
    }
    if (phase == CORE_LOOPS) {
        state[LOOPS] = sums.counts[LOOPS_SEEN];
        return CORE_SCAN;
    }
    state[REMAINING] -= sums.counts[REMOVED];
    state[LEVEL_REMOVED] += sums.counts[REMOVED];
    state[LIST_BEGIN] = state[LIST_END];
    state[LIST_END] = load_relaxed(&counters->listed);
    if (state[LIST_BEGIN] != state[LIST_END]) return CORE_LIST;
    if (state[REMAINING] == 0) return STOP;
    // A scan that removed nothing has read all degrees as they are.
    state[LEVEL] = state[LEVEL_REMOVED] ? state[LEVEL] + 1 : load_relaxed(&counters->least);
    state[LEVEL_REMOVED] = 0;
    counters->least = NO_DEGREE;
    return CORE_SCAN;
}

__device__ __forceinline__ void grid_core(const Arguments &arguments) {
    __shared__ KeptVertices kept;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Peel peel{arguments, team, block, kept, static_cast<i32>(block.state[LEVEL])};
        if (threadIdx.x == 0) {
            kept.count = kept.arcs = kept.has_long_rows = kept.left = 0;
            kept.least = NO_DEGREE;
        }
        __syncthreads();
        switch (phase) {
            case CORE_BEGIN:
                team_begin(peel);
                break;
            case CORE_LOOPS:
                team_subtract_loops(peel);
                break;
            case CORE_SCAN:
                block_scan(peel);
                break;
            case CORE_LIST:
                team_lower_listed(peel);
                break;
        }
        block_run_ahead(peel);  // all phases: one copy of the code
        warp_count(block, REMOVED, peel.removed);
        warp_count(block, VISITED, peel.visited);
    };
    run_steps(arguments.stage, body, [&](u32 phase, const Sums &sums, u64 *state) {
        return thread_decide_core(arguments, phase, sums, state);
    });
}
