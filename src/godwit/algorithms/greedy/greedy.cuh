// Greedy passes over vertices in an order, on one device. CPU counterpart: cpu.py; __init__.py explains the method.
//
// Warps take vertices in the order, one at a time, and wait for neighbours that come first. Waits end: all blocks of
// the grid are resident, all vertices before one that is taken are taken, and the first of them that is not decided
// waits for none. A superstep decides `chunk` vertices of the order, so that the kernel can leave between two.
//
// Rows lie by descending degree, as far as `is_sorted` says, and so do the vertices of the order: ascending for
// sets, descending for colours. `bound` of a vertex delimits the positions of its degree, so that the part of a row
// behind it, whose vertices all come later, is not read: a set's rows are read from the end, colours' from the head.
//
// A decision is one word, which is read past the first-level cache; nothing else is read of what others write.
#pragma once

#include "runtime/cuda/include/warp.cuh"
#include "supersteps/step.cuh"

// Macro of the generated source: COLORS, whether colours are decided, and not a set.

constexpr i32 OPEN = -1;                 // decision of a vertex that is not decided
constexpr u32 WINDOW = WARP * 32;        // colours that a warp compares at once, as bits
constexpr u32 MOST_WARPS = 1024 / WARP;  // of a block

// Pauses of a warp that waits: none while decisions that it waits for come in, else longer and longer, so that warps
// that are far from their turn leave the memory's bandwidth to others.
constexpr u32 PAUSE_STEP_NS = 32, LONGEST_PAUSE_NS = 512;

enum GreedyPhase : u32 { GREEDY_BEGIN, GREEDY_DECIDE };

// Words of control->state.
enum GreedyState : u32 {
    NEXT  // rank of the first vertex of the superstep
};

enum GreedyCount : u32 { DECIDED, VISITED };

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;       // of a directed graph
    const u32 *order;  // positions of the vertices that have arcs, by rank
    const u32 *rank;   // by position; undefined for vertices without arcs
    const u32
        *bound;  // by position: first of those of its degree (sets), or behind the last (colours)
    i32 *value;  // decisions, by position
    i64 count;   // vertices in the order
    i64 chunk;   // that a superstep decides
    u32 is_directed;
    u32 is_sorted;
};

__device__ __forceinline__ void team_open(const Arguments &arguments, const Team &team) {
    for (i64 v = static_cast<i64>(team.thread()); v < arguments.stage.owned;
         v += static_cast<i64>(team.threads())) {
        bool has_arcs = arguments.out.offsets[v] < arguments.out.offsets[v + 1];
        if (arguments.is_directed)
            has_arcs = has_arcs || arguments.in.offsets[v] < arguments.in.offsets[v + 1];
        arguments.value[v] = has_arcs ? OPEN : COLORS ? 0 : 1;
    }
}

// Wait for the decisions of neighbours in the lanes that say so. Lanes of a set stop waiting when one has found a
// member. All lanes participate.
__device__ __forceinline__ void warp_await(const i32 *place, bool waits, i32 &value) {
    for (u32 pause_ns = 0; __any_sync(FULL_WARP, waits);) {
        if (!COLORS && __any_sync(FULL_WARP, value > 0)) break;
        if (pause_ns) __nanosleep(pause_ns);
        if (waits) value = load_relaxed(place);
        const bool ends = waits && value >= 0;
        waits = waits && !ends;
        pause_ns =
            __any_sync(FULL_WARP, ends) ? 0 : min(pause_ns + PAUSE_STEP_NS, LONGEST_PAUSE_NS);
    }
}

// Visit the decisions of the neighbours in a row that come before a vertex, until `visit` returns true, in all lanes
// alike. Lanes without such a neighbour pass OPEN. A first pass does not wait, and a second one, with waiting,
// visits the part of the row that had open neighbours: long rows are read while others decide.
template <class Visit>
__device__ __forceinline__ bool warp_visit_before(const Arguments &arguments, const Rows<Id> &rows,
                                                  u32 vertex, u32 rank, u64 &visited, Visit visit) {
    const i64 begin = rows.offsets[vertex], end = rows.offsets[vertex + 1];
    const u32 bound = arguments.is_sorted ? arguments.bound[vertex] : 0;
    i64 first = 0, last = end - begin;
    for (bool may_wait = false;; may_wait = true) {
        i64 open_first = last, open_last = 0;
        for (i64 done = first; done < last; done += WARP) {
            const i64 place = done + lane_id();
            const bool is_there = place < last;
            const u32 neighbour =
                is_there ? static_cast<u32>(rows.targets[COLORS ? begin + place : end - 1 - place])
                         : vertex;
            i32 value = OPEN;
            if (neighbour != vertex) value = load_relaxed(arguments.value + neighbour);
            const bool is_open =
                neighbour != vertex && value < 0 && arguments.rank[neighbour] < rank;
            visited += is_there;
            if (may_wait) {
                warp_await(arguments.value + neighbour, is_open, value);
            } else if (__any_sync(FULL_WARP, is_open)) {
                open_first = min(open_first, done);
                open_last = min(done + WARP, last);
            }
            if (visit(value)) return true;
            const bool may_precede = is_there && (COLORS ? neighbour < bound : neighbour >= bound);
            if (arguments.is_sorted && !__any_sync(FULL_WARP, may_precede)) break;
        }
        if (open_first >= open_last) return false;
        first = open_first;
        last = open_last;
    }
}

__device__ __forceinline__ i32 warp_choose_set(const Arguments &arguments, u32 vertex, u32 rank,
                                               u64 &visited) {
    auto finds_member = [](i32 value) { return __any_sync(FULL_WARP, value > 0) != 0; };
    bool has_member =
        warp_visit_before(arguments, arguments.out, vertex, rank, visited, finds_member);
    if (!has_member && arguments.is_directed)
        has_member =
            warp_visit_before(arguments, arguments.in, vertex, rank, visited, finds_member);
    return has_member ? 0 : 1;
}

// `taken` has a bit for each colour of a window.
__device__ __forceinline__ i32 warp_choose_color(const Arguments &arguments, u32 vertex, u32 rank,
                                                 u32 *taken, u64 &visited) {
    for (i32 first = 0;; first += WINDOW) {
        __syncwarp();
        taken[lane_id()] = 0;
        __syncwarp();
        auto marks = [&](i32 value) {
            const i32 color = value - first;
            if (value >= 0 && color >= 0 && color < static_cast<i32>(WINDOW))
                atomicOr(taken + color / 32, 1u << (color & 31));
            return false;
        };
        warp_visit_before(arguments, arguments.out, vertex, rank, visited, marks);
        if (arguments.is_directed)
            warp_visit_before(arguments, arguments.in, vertex, rank, visited, marks);
        __syncwarp();
        const u32 word = taken[lane_id()];
        const u32 free_lanes = __ballot_sync(FULL_WARP, word != 0xffffffffu);
        if (free_lanes) {
            const u32 lane = __ffs(free_lanes) - 1;
            const u32 open = ~__shfl_sync(FULL_WARP, word, lane);
            return first + static_cast<i32>(lane * 32 + __ffs(open) - 1);
        }
    }
}

__device__ __forceinline__ void team_decide(const Arguments &arguments, StepBlock &block,
                                            u32 *taken) {
    const u64 first = block.state[NEXT];
    const u64 amount =
        min(static_cast<u64>(arguments.count) - first, static_cast<u64>(arguments.chunk));
    u64 visited = 0, decided = 0;
    while (true) {
        u64 turn = 0;
        if (lane_id() == 0) turn = atomicAdd(&arguments.stage.control->cursors[0], 1ull);
        turn = __shfl_sync(FULL_WARP, turn, 0);
        if (turn >= amount) break;
        const u32 rank = static_cast<u32>(first + turn);
        const u32 vertex = arguments.order[rank];
        const i32 value = COLORS ? warp_choose_color(arguments, vertex, rank, taken, visited)
                                 : warp_choose_set(arguments, vertex, rank, visited);
        if (lane_id() == 0) {
            atomicExch(arguments.value + vertex, value);
            decided += 1;
        }
    }
    warp_count(block, DECIDED, decided);
    warp_count(block, VISITED, visited);
}

__device__ __forceinline__ void grid_greedy(const Arguments &arguments) {
    __shared__ u32 taken[MOST_WARPS][WARP];
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            if (phase == GREEDY_BEGIN)
                team_open(arguments, team);
            else
                team_decide(arguments, block, taken[warp_id()]);
        },
        [&](u32 phase, const Sums &, u64 *state) -> u32 {
            if (phase == GREEDY_DECIDE) state[NEXT] += static_cast<u64>(arguments.chunk);
            return state[NEXT] < static_cast<u64>(arguments.count) ? GREEDY_DECIDE : STOP;
        });
}
