// Greedy passes over vertices in an order, on one device. CPU counterpart: cpu.py; __init__.py explains
// the method.
//
// Warps take vertices in the order, a few at a time, and wait for neighbours that come first. Waits
// end: all blocks of the grid are resident, all vertices before one that is taken are taken, a warp
// decides its vertices in the order, and the first vertex that is not decided waits for none. A
// superstep decides a part of the order, so that the kernel can leave between two.
//
// Rows lie by descending degree, as far as `is_sorted` says, and so do the vertices of the order:
// ascending for sets, descending for colours. `bound` of a vertex delimits the positions of its degree,
// so that the part of a row behind it, whose vertices all come later, is not read: a set's rows are
// read from the end, colours' from the head.
//
// A decision is one word, which is read past the first-level cache; nothing else is read of what others
// write.
#pragma once

#include "runtime/cuda/include/warp.cuh"
#include "supersteps/step.cuh"

// Macro of the generated source: COLORS, whether colours are decided, and not a set.

constexpr i32 OPEN = -1;                 // decision of a vertex that is not decided
constexpr u32 WINDOW = WARP * 32;        // colours that a warp compares at once, as bits
constexpr u32 MOST_WARPS = 1024 / WARP;  // of a block

// Pauses of a warp that waits: none while decisions that it waits for come in, else longer and longer,
// so that warps that are far from their turn leave the memory's bandwidth to others.
constexpr u32 PAUSE_STEP_NS = 32, LONGEST_PAUSE_NS = 512;

// Vertices that a warp takes at once, so that loads of their rows overlap; one in the first superstep of a
// colouring, whose chains of waits are long (rmat22 on an H100: 10.3 ms, 17.9 if 2^16 were taken one by one).
constexpr u32 BATCH = 8;

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

// Wait for the decisions of neighbours in the lanes that say so. Lanes of a set stop waiting when one
// has found a member. All lanes participate.
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

// A vertex whose turn it is.
struct Turn {
    u32 vertex;
    u32 rank;
    u32 bound;
    i64 begin;  // its out-row
    i64 end;

    __device__ __forceinline__ Turn of_lane(u32 lane) const {
        return Turn{__shfl_sync(FULL_WARP, vertex, lane), __shfl_sync(FULL_WARP, rank, lane),
                    __shfl_sync(FULL_WARP, bound, lane), __shfl_sync(FULL_WARP, begin, lane),
                    __shfl_sync(FULL_WARP, end, lane)};
    }
};

// Visit the decisions of the neighbours in a row that come before a vertex, until `visit` returns true,
// in all lanes alike. Lanes without such a neighbour pass OPEN. A first pass does not wait, and a
// second one, with waiting, visits the part of the row that had open neighbours: long rows are read
// while others decide.
template <class Visit>
__device__ __forceinline__ bool warp_visit_row(const Arguments &arguments, const Turn &turn,
                                               const Id *targets, i64 begin, i64 end, u64 &visited,
                                               Visit visit) {
    const u32 vertex = turn.vertex, rank = turn.rank, bound = turn.bound;
    i64 first = 0, last = end - begin;
    for (bool may_wait = false;; may_wait = true) {
        i64 open_first = last, open_last = 0;
        for (i64 done = first; done < last; done += WARP) {
            const i64 place = done + lane_id();
            const bool is_there = place < last;
            const u32 neighbour =
                is_there ? static_cast<u32>(targets[COLORS ? begin + place : end - 1 - place])
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

// The same for the neighbours of both directions.
template <class Visit>
__device__ __forceinline__ bool warp_visit_before(const Arguments &arguments, const Turn &turn,
                                                  u64 &visited, Visit visit) {
    if (warp_visit_row(arguments, turn, arguments.out.targets, turn.begin, turn.end, visited,
                       visit))
        return true;
    if (!arguments.is_directed) return false;
    const i64 *offsets = arguments.in.offsets + turn.vertex;
    return warp_visit_row(arguments, turn, arguments.in.targets, offsets[0], offsets[1], visited,
                          visit);
}

__device__ __forceinline__ i32 warp_choose_set(const Arguments &arguments, const Turn &turn,
                                               u64 &visited) {
    return !warp_visit_before(arguments, turn, visited,
                              [](i32 value) { return __any_sync(FULL_WARP, value > 0) != 0; });
}

// `taken` has a bit for each colour of a window.
__device__ __forceinline__ i32 warp_choose_color(const Arguments &arguments, const Turn &turn,
                                                 u32 *taken, u64 &visited) {
    for (i32 first = 0;; first += WINDOW) {
        __syncwarp();
        taken[lane_id()] = 0;
        __syncwarp();
        warp_visit_before(arguments, turn, visited, [&](i32 value) {
            const i32 color = value - first;
            if (value >= 0 && color >= 0 && color < static_cast<i32>(WINDOW))
                atomicOr(taken + color / 32, 1u << (color & 31));
            return false;
        });
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

__device__ __forceinline__ bool takes_singles(u64 first) { return COLORS && first == 0; }

// Return the number of vertices that the superstep decides which begins with rank `first`.
__device__ __forceinline__ u64 step_amount(const Arguments &arguments, u64 first) {
    return static_cast<u64>(min(arguments.count - static_cast<i64>(first), arguments.chunk));
}

__device__ __forceinline__ void team_decide(const Arguments &arguments, StepBlock &block,
                                            u32 *taken) {
    const u64 first = block.state[NEXT], amount = step_amount(arguments, first);
    const u32 batch = takes_singles(first) ? 1 : BATCH;
    u64 visited = 0, decided = 0;
    while (true) {
        u64 begin = 0;
        if (lane_id() == 0)
            begin = atomicAdd(&arguments.stage.control->cursors[0], static_cast<u64>(batch));
        begin = __shfl_sync(FULL_WARP, begin, 0);
        if (begin >= amount) break;
        const u32 turns = static_cast<u32>(min(amount - begin, static_cast<u64>(batch)));
        Turn own{};
        if (lane_id() < turns) {
            own.rank = static_cast<u32>(first + begin) + lane_id();
            own.vertex = arguments.order[own.rank];
            own.bound = arguments.bound[own.vertex];
            own.begin = arguments.out.offsets[own.vertex];
            own.end = arguments.out.offsets[own.vertex + 1];
        }
        for (u32 lane = 0; lane < turns; lane++) {
            const Turn turn = own.of_lane(lane);
            const i32 value = COLORS ? warp_choose_color(arguments, turn, taken, visited)
                                     : warp_choose_set(arguments, turn, visited);
            if (lane_id() == 0) atomicExch(arguments.value + turn.vertex, value);
        }
        if (lane_id() == 0) decided += turns;
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
            if (phase == GREEDY_DECIDE) state[NEXT] += step_amount(arguments, state[NEXT]);
            return state[NEXT] < static_cast<u64>(arguments.count) ? GREEDY_DECIDE : STOP;
        });
}
