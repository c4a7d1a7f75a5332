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
// A vertex has one word, which is read past the first-level cache, and written by the warp that decides it: a
// decision, from 0 on, or OPEN, less the lowest colour that it can get. Nothing else is read of what others write.
#pragma once

#include "runtime/cuda/include/warp.cuh"
#include "supersteps/step.cuh"

// Macro of the generated source: COLORS, whether colours are decided, and not a set.

constexpr i32 OPEN = -1;  // word of a vertex that is not decided; less a lower bound of its colour
constexpr u32 WINDOW = WARP * 32;        // colours that a warp compares at once, as bits
constexpr u32 MOST_WARPS = 1024 / WARP;  // of a block

// Pauses of a warp that waits: none while decisions that it waits for come in, else longer and longer,
// so that warps that are far from their turn leave the memory's bandwidth to others.
constexpr u32 PAUSE_STEP_NS = 32, LONGEST_PAUSE_NS = 512;

// Vertices that a warp takes at once, so that loads of their rows overlap; one in the first superstep of a
// colouring, whose chains of waits are long (rmat22 on an H100: 2.2 ms; 215 by batches).
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

// Return the lowest colour that an undecided vertex can get, from its word.
__device__ __forceinline__ i32 lowest_color(i32 value) { return OPEN - value; }

// Wait for neighbours in the lanes that say so, as long as `waits_for` their words. Lanes of a set stop waiting
// when one has found a member. All lanes participate.
template <class WaitsFor>
__device__ __forceinline__ void warp_await(const i32 *place, bool waits, i32 &value,
                                           WaitsFor waits_for) {
    for (u32 pause_ns = 0; __any_sync(FULL_WARP, waits);) {
        if (!COLORS && __any_sync(FULL_WARP, value > 0)) break;
        if (pause_ns) __nanosleep(pause_ns);
        if (waits) value = load_relaxed(place);
        const bool ends = waits && !waits_for(value);
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

// The part of a row whose neighbours are still to be visited: places from its head (colours), or its end (sets).
struct Part {
    const Id *targets = nullptr;
    i64 begin = 0, end = 0;  // of the row
    i64 first = 0, last = 0;

    __device__ __forceinline__ Part() {}
    __device__ __forceinline__ Part(const Id *targets, i64 begin, i64 end)
        : targets(targets), begin(begin), end(end), last(end - begin) {}

    __device__ __forceinline__ Id target(i64 place) const {
        return targets[COLORS ? begin + place : end - 1 - place];
    }
};

// Visit the words of the neighbours in a part that come before a vertex, until `visit` returns true, in
// all lanes alike, after waiting for those that `waits_for` says. Lanes without such a neighbour pass OPEN.
// Shrink the part to what has undecided neighbours. `before_wait` is called before each wait.
template <class WaitsFor, class BeforeWait, class Visit>
__device__ __forceinline__ bool warp_visit_part(const Arguments &arguments, const Turn &turn,
                                                Part &part, u64 &visited, WaitsFor waits_for,
                                                BeforeWait before_wait, Visit visit) {
    i64 open_first = part.last, open_last = part.last;
    for (i64 done = part.first; done < part.last; done += WARP) {
        const i64 place = done + lane_id();
        const bool is_there = place < part.last;
        const u32 neighbour = is_there ? static_cast<u32>(part.target(place)) : turn.vertex;
        i32 value = OPEN;
        if (neighbour != turn.vertex) value = load_relaxed(arguments.value + neighbour);
        bool is_open =
            neighbour != turn.vertex && value < 0 && arguments.rank[neighbour] < turn.rank;
        visited += is_there;
        const bool waits = is_open && waits_for(value);
        if (__any_sync(FULL_WARP, waits)) {
            before_wait();
            warp_await(arguments.value + neighbour, waits, value, waits_for);
            is_open = is_open && value < 0;
        }
        if (__any_sync(FULL_WARP, is_open)) {
            open_first = min(open_first, done);
            open_last = min(done + WARP, part.last);
        }
        if (visit(value)) return true;
        const bool may_precede =
            is_there && (COLORS ? neighbour < turn.bound : neighbour >= turn.bound);
        if (arguments.is_sorted && !__any_sync(FULL_WARP, may_precede)) break;
    }
    part.first = open_first;
    part.last = open_last;
    return false;
}

// The parts of the rows of a vertex.
struct Parts {
    Part out;
    Part in;  // of a directed graph

    __device__ __forceinline__ Parts(const Arguments &arguments, const Turn &turn)
        : out(arguments.out.targets, turn.begin, turn.end) {
        if (!arguments.is_directed) return;
        const i64 *offsets = arguments.in.offsets + turn.vertex;
        in = Part(arguments.in.targets, offsets[0], offsets[1]);
    }

    __device__ __forceinline__ bool are_empty() const {
        return out.first == out.last && in.first == in.last;
    }

    template <class WaitsFor, class BeforeWait, class Visit>
    __device__ __forceinline__ bool warp_visit(const Arguments &arguments, const Turn &turn,
                                               u64 &visited, WaitsFor waits_for,
                                               BeforeWait before_wait, Visit visit) {
        if (warp_visit_part(arguments, turn, out, visited, waits_for, before_wait, visit))
            return true;
        return arguments.is_directed &&
               warp_visit_part(arguments, turn, in, visited, waits_for, before_wait, visit);
    }
};

// Long rows are read once without waiting, while others decide, before neighbours are waited for.
__device__ __forceinline__ i32 warp_choose_set(const Arguments &arguments, const Turn &turn,
                                               u64 &visited) {
    Parts parts(arguments, turn);
    for (bool may_wait = false;; may_wait = true) {
        const bool has_member = parts.warp_visit(
            arguments, turn, visited, [&](i32 value) { return may_wait && value < 0; }, [] {},
            [](i32 value) { return __any_sync(FULL_WARP, value > 0) != 0; });
        if (has_member) return 0;
        if (parts.are_empty()) return 1;
    }
}

// The colours of a window that neighbours have, as bits of a warp.
struct Taken {
    u32 *words;
    i32 first;  // colour of the window

    __device__ __forceinline__ void warp_clear() const {
        __syncwarp();
        words[lane_id()] = 0;
        __syncwarp();
    }

    __device__ __forceinline__ void thread_take(i32 value) const {
        const i32 color = value - first;
        if (value >= 0 && color >= 0 && color < static_cast<i32>(WINDOW))
            atomicOr(words + color / 32, 1u << (color & 31));
    }

    // Return the lowest colour that is not taken: behind the window if none is free.
    __device__ __forceinline__ i32 warp_lowest() const {
        __syncwarp();
        const u32 word = words[lane_id()];
        const u32 free_lanes = __ballot_sync(FULL_WARP, word != 0xffffffffu);
        if (!free_lanes) return first + static_cast<i32>(WINDOW);
        const u32 lane = __ffs(free_lanes) - 1;
        const u32 open = ~__shfl_sync(FULL_WARP, word, lane);
        return first + static_cast<i32>(lane * 32 + __ffs(open) - 1);
    }
};

// A vertex gets the lowest colour that no neighbour before it has. While neighbours are undecided, it publishes the
// lowest colour that decided ones leave to it, which only rises, and it waits only for those that may still get
// the colour that it would get (the shortcut of ECL-GC; Alabandi, Powers and Burtscher, PPoPP 2020): chains of
// waits become shorter, the colours do not change.
__device__ __forceinline__ i32 warp_choose_color(const Arguments &arguments, const Turn &turn,
                                                 u32 *words, u64 &visited) {
    i32 told = 0;
    const auto warp_tell = [&](i32 lowest) {
        if (lowest > told && lane_id() == 0)
            atomicExch(arguments.value + turn.vertex, OPEN - lowest);
        told = max(told, lowest);
    };
    for (Taken taken{words, 0};; taken.first += WINDOW) {
        taken.warp_clear();
        Parts parts(arguments, turn);
        i32 wanted = -1;  // the first pass waits for none
        for (;;) {
            parts.warp_visit(
                arguments, turn, visited,
                [&](i32 value) { return value < 0 && lowest_color(value) <= wanted; },
                [&] { warp_tell(taken.warp_lowest()); },
                [&](i32 value) {
                    taken.thread_take(value);
                    return false;
                });
            const i32 lowest = taken.warp_lowest();
            if (lowest == taken.first + static_cast<i32>(WINDOW)) break;
            if (lowest == wanted || parts.are_empty()) return lowest;
            warp_tell(lowest);
            wanted = lowest;
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
