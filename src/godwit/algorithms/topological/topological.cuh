// Topological generations on one device: A. B. Kahn's algorithm, generation by generation. CPU counterpart: cpu.py.
//
// Encoding: `left` is the number of a vertex' arcs in from vertices that have no number. The list has all numbered
// vertices, each generation behind the one before: a vertex is appended by the arc that lowers `left` to 0.
//
// A superstep visits the rows of a generation, distributed over all warps. While generations are narrow, one block
// goes through many of them in one superstep, without the meetings of all blocks.
//
// Lower bound, `n` vertices and `m` arcs: arcs are read twice, 8 m bytes, with an atomic operation each time.
#pragma once

#include "runtime/cuda/include/schedule.cuh"

constexpr u64 NARROW_VERTICES = 128;     // of a generation that one block visits
constexpr u32 NARROW_GENERATIONS = 256;  // in a superstep, so that the host is not kept waiting

enum TopologicalPhase : u32 {
    TOPOLOGICAL_BEGIN,
    TOPOLOGICAL_COUNT,  // arcs in
    TOPOLOGICAL_FIRST,  // list the vertices without
    TOPOLOGICAL_WIDE,
    TOPOLOGICAL_NARROW
};

// Words of control->state.
enum TopologicalState : u32 {
    GENERATION,
    LIST_BEGIN,  // its vertices in the list
    LIST_END,
    HAS_LONG_ROWS
};

enum TopologicalCount : u32 { NUMBERED, VISITED };

struct TopologicalCounters {
    u64 listed;     // vertices
    u32 long_rows;  // 1 if a row of the next generation is long
    u32 padding;
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    i32 *left;        // by position
    i32 *generation;  // by position; -1: none
    Id *list;         // room for all vertices
    Schedule::Row *long_rows;
    TopologicalCounters *counters;
};

// A thread's view of a superstep, and its counts.
struct Numbering {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;
    u64 numbered = 0;
    u64 visited = 0;

    // Number the lanes' vertices, and list them. All lanes participate.
    __device__ __forceinline__ void warp_number(bool is_asked, i64 vertex, i32 generation) {
        if (!__any_sync(FULL_WARP, is_asked)) return;
        if (is_asked) {
            arguments.generation[vertex] = generation;
            numbered += 1;
            const i64 *row = arguments.out.offsets + vertex;
            if (row[1] - row[0] > LONG_ROW_ARCS) atomicOr(&arguments.counters->long_rows, 1u);
        }
        warp_append(&arguments.counters->listed, arguments.list, is_asked, static_cast<Id>(vertex));
    }

    // Visit the rows of vertices [0, count), or of those that a list has there.
    template <class Visit>
    __device__ __forceinline__ void team_visit(const Id *list, u64 count, bool has_long_rows,
                                               Visit visit) {
        const Schedule schedule{arguments.long_rows, &arguments.stage.control->cursors[0]};
        // Few vertices are distributed over all warps.
        const u64 each = min((count + team.warps() - 1) / team.warps(), static_cast<u64>(WARP));
        for (u64 base = team.warp() * each; base < count; base += team.warps() * each) {
            const u64 index = base + lane_id();
            const bool is_there = lane_id() < each && index < count;
            i64 begin = 0, end = 0, vertex = 0;
            if (is_there) {
                vertex = list ? static_cast<i64>(list[index]) : static_cast<i64>(index);
                begin = arguments.out.offsets[vertex];
                end = arguments.out.offsets[vertex + 1];
            }
            visited += static_cast<u64>(end - begin);
            schedule.warp_bring(begin, end, static_cast<u32>(vertex), visit);
        }
        schedule.team_finish(team, block, has_long_rows, visit);
    }
};

// The visitor of all rows that counts arcs in.
struct CountArcs {
    const Arguments &arguments;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&)[ARCS],
                                               const bool (&there)[ARCS]) const {
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            if (there[i]) atomicAdd(arguments.left + arguments.out.targets[arcs[i]], 1);
    }
};

// The visitor of a generation's rows, which numbers vertices of the next.
struct LowerLeft {
    Numbering &numbering;
    i32 following;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = numbering.arguments;
        Id target[ARCS];
        bool is_last[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) target[i] = there[i] ? arguments.out.targets[arcs[i]] : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            is_last[i] = there[i] && atomicSub(arguments.left + target[i], 1) == 1;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            numbering.warp_number(is_last[i], static_cast<i64>(target[i]), following);
    }
};

__device__ __forceinline__ void team_visit_generation(Numbering &numbering, u64 begin, u64 end,
                                                      u64 generation, bool has_long_rows) {
    numbering.team_visit(numbering.arguments.list + begin, end - begin, has_long_rows,
                         LowerLeft{numbering, static_cast<i32>(generation + 1)});
}

// Visit generations until one is wide, and leave the last that is visited in the state. The block is alone.
__device__ __forceinline__ void block_visit_narrow(Numbering &numbering) {
    TopologicalCounters *counters = numbering.arguments.counters;
    u64 *state = numbering.block.state;
    u64 begin = state[LIST_BEGIN], end = state[LIST_END], generation = state[GENERATION];
    bool has_long_rows = state[HAS_LONG_ROWS];
    for (u32 turn = 1;; turn++) {
        team_visit_generation(numbering, begin, end, generation, has_long_rows);
        __syncthreads();
        const u64 listed = load_relaxed(&counters->listed);
        has_long_rows = load_relaxed(&counters->long_rows);
        __syncthreads();  // all have read them
        if (listed == end || listed - end > NARROW_VERTICES || turn == NARROW_GENERATIONS) break;
        if (threadIdx.x == 0) {
            counters->long_rows = 0;
            numbering.arguments.stage.control->cursors[0] = 0;
        }
        __syncthreads();
        begin = end, end = listed, generation++;
    }
    if (threadIdx.x == 0)
        state[LIST_BEGIN] = begin, state[LIST_END] = end, state[GENERATION] = generation;
}

__device__ __forceinline__ void team_number(Numbering &numbering, u32 phase) {
    const Arguments &arguments = numbering.arguments;
    const Team &team = numbering.team;
    const i64 owned = arguments.stage.owned;
    const u64 *state = numbering.block.state;
    switch (phase) {
        case TOPOLOGICAL_BEGIN:
            for (i64 v = static_cast<i64>(team.thread()); v < owned;
                 v += static_cast<i64>(team.threads()))
                arguments.left[v] = 0, arguments.generation[v] = -1;
            if (team.thread() == 0) *arguments.counters = TopologicalCounters{0, 0, 0};
            break;
        case TOPOLOGICAL_COUNT:
            numbering.team_visit(nullptr, static_cast<u64>(owned), true, CountArcs{arguments});
            break;
        case TOPOLOGICAL_FIRST:
            for (i64 base = static_cast<i64>(team.warp() * WARP); base < owned;
                 base += static_cast<i64>(team.warps() * WARP)) {
                const i64 v = base + lane_id();
                numbering.warp_number(v < owned && arguments.left[v] == 0, v, 0);
            }
            break;
        case TOPOLOGICAL_WIDE:
            team_visit_generation(numbering, state[LIST_BEGIN], state[LIST_END], state[GENERATION],
                                  state[HAS_LONG_ROWS]);
            break;
        case TOPOLOGICAL_NARROW:
            block_visit_narrow(numbering);
            break;
    }
}

__device__ __forceinline__ u32 thread_decide_topological(const Arguments &arguments, u32 phase,
                                                         u64 *state) {
    if (phase == TOPOLOGICAL_BEGIN) return TOPOLOGICAL_COUNT;
    if (phase == TOPOLOGICAL_COUNT) return TOPOLOGICAL_FIRST;
    TopologicalCounters *counters = arguments.counters;
    state[LIST_BEGIN] = state[LIST_END];
    state[LIST_END] = load_relaxed(&counters->listed);
    state[HAS_LONG_ROWS] = load_relaxed(&counters->long_rows);
    counters->long_rows = 0;
    if (phase != TOPOLOGICAL_FIRST) state[GENERATION] += 1;
    const u64 count = state[LIST_END] - state[LIST_BEGIN];
    if (count == 0) return STOP;
    return count > NARROW_VERTICES ? TOPOLOGICAL_WIDE : TOPOLOGICAL_NARROW | ALONE;
}

__device__ __forceinline__ void grid_number(const Arguments &arguments) {
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            Numbering numbering{arguments, team, block};
            team_number(numbering, phase & ~ALONE);
            warp_count(block, NUMBERED, numbering.numbered);
            warp_count(block, VISITED, numbering.visited);
        },
        [&](u32 phase, const Sums &, u64 *state) {
            return thread_decide_topological(arguments, phase & ~ALONE, state);
        });
}
