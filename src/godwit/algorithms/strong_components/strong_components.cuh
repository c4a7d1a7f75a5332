// Strongly connected components in supersteps, on one device.
//
// Bitmaps over the vertices that have arcs: `alive` are those whose component is not known. BEGIN leaves out
// vertices without an arc in or out. Then
//
// 1. PUSH and PULL search forward from a pivot, then backward within what the first search reached: that is
//    the pivot's component, nearly always the largest (Fleischer, Hendrickson, Pinar, IPDPS 2000).
// 2. TRIM removes vertices without a living neighbour in or out, each a component of its own, again while it
//    removes a share of them (Slota, Rajamanickam, Madduri, IPDPS 2014).
// 3. COLOUR gives each vertex its own id as `least_in` and `least_out`; PROPAGATE lowers these to the least
//    id that reaches it and that it reaches, until nothing changes. Where both are equal, the vertex and the
//    least are in one component, whose smallest vertex that is: SETTLE labels them. For others the pair
//    becomes their part: vertices of one component have equal pairs, so further rounds regard arcs within a
//    part only. The least vertex of each part is settled, so rounds end. (ECL-SCC: Alabandi, Sands, Biros,
//    Burtscher, SC 2023, with maxima.) Back to 2.
//
// Nothing here depends on the order of threads but the number of supersteps: searches reach what is
// reachable, ids decrease to one fixpoint, and removals go on until no more is possible or ids propagate.
// A search has no depths, so that a pull may find neighbours that were reached in the same superstep.
//
// Encoding: a vertex's bit and values are at its position. A word of a bitmap has one writer, the warp that
// visits it, except for `forward`, `backward` and the next frontier in a push. `frontiers[parity]` is cleared
// by the superstep that reads it, so the other one is clear when a superstep begins.
//
// Bound: after MOST_STEPS supersteps, MOST_ARCS arcs, or MOST_SLOW arcs of rows that a warp examines alone, the
// kernel gives up: ids that have to go along a path of a million vertices, or rounds through a million parts,
// take longer than one thread of a CPU; and so does a warp that goes through a row of millions of arcs in every
// superstep. (Hubs are nearly always in the pivot's component, and their rows are visited by pushes only.)
//
// Lower bound, rmat22 (a = 2.4 M vertices with arcs, 65 M arcs): BEGIN reads 16 a and writes 4 n bytes; each
// search looks at a few arcs a vertex, 32 bytes each; a trim reads offsets and some arcs of what is left:
// some 0.4 GB, 0.1 ms at 4 TB/s; a meeting between supersteps takes 3 us, and there are about 30.
#pragma once

#include "runtime/cuda/include/schedule/mixed.cuh"

enum StrongPhase : u32 {
    BEGIN,
    SEED,
    PUSH,
    PULL,
    FIND_NAME,
    NAME,
    TRIM,
    COLOUR,
    PROPAGATE,
    SETTLE
};

// Words of control->state.
enum StrongState : u32 {
    ALIVE,        // vertices whose component is not known
    OPEN,         // vertices that the search may reach
    VISITED,      // vertices that it has reached
    FRONTIER,     // of these, those that it reached last
    BACKWARD,     // whether it is the second search
    PARITY,       // index of the frontier's bitmap
    ROUND,        // how often vertices were settled
    EXAMINED,     // arcs
    GAVE_UP,      // whether the bound was exceeded
    MEAN_DEGREE,  // the bits of a double
    MOST_STEPS,
    MOST_ARCS,
    SLOW,  // arcs of long rows
    MOST_SLOW,
};

// Sums over blocks.
enum StrongCount : u32 { DONE, ARCS_SEEN, CHANGED, SLOW_ARCS };

constexpr u32 ARCS_ALONE = 16;  // of a row that a lane examines before its warp helps
constexpr u32 ARCS_AT_ONCE = 4;
constexpr i64 SLOW_ROW = 4096;  // arcs that a warp may examine alone without being slow
constexpr double TURN =
    0.05;  // a search pulls if a push visits more arcs than that share of a pull's
constexpr u64 TRIMMED_SHARE = 32;  // trim again if one of so many was removed

template <class T>
constexpr T LARGEST = static_cast<T>(0x7fffffff);
template <>
constexpr i64 LARGEST<i64> = 0x7fffffffffffffffll;
constexpr Id NO_ID = LARGEST<Id>;

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;
    MixedSchedule::Row *long_rows;
    const Id *vertices;   // (owned): the vertex at each position
    const Id *positions;  // (n): the position of each vertex
    Id *labels;           // (owned)
    u32 *alive;           // bitmaps
    u32 *forward;
    u32 *backward;
    u32 *frontiers[2];
    Id *least_in;  // (owned), as the following
    Id *least_out;
    Id *part_in;
    Id *part_out;
    Id *name;    // of the pivot's component
    i64 active;  // vertices that have arcs; they come first
    i64 pivot;   // position of a vertex with arcs in and out; -1: there is none
};

// Visit the words of a bitmap that are not 0. load(word) returns one, by a single lane; visit(word, bits) is
// called by all lanes. A warp's words are spread over the bitmap, as high degrees come first.
template <class Load, class Visit>
__device__ __forceinline__ void team_visit_words(const Team &team, i64 words, Load load,
                                                 Visit visit) {
    const i64 warps = static_cast<i64>(team.warps());
    for (i64 first = static_cast<i64>(team.warp()); first < words; first += WARP * warps) {
        const i64 own = first + lane_id() * warps;
        const u32 bits = own < words ? load(own) : 0;
        u32 waiting = __ballot_sync(FULL_WARP, bits != 0);
        for (; waiting; waiting &= waiting - 1) {
            const u32 whose = __ffs(waiting) - 1;
            visit(first + whose * warps, __shfl_sync(FULL_WARP, bits, whose));
        }
    }
}

__device__ __forceinline__ bool is_set(const u32 *bitmap, Id position) {
    return load_relaxed(bitmap + (position >> 5)) >> (position & 31) & 1;
}

struct Strong {
    const Arguments &arguments;
    const Stage &stage;
    const Team &team;
    StepBlock &block;
    const u64 *state;
    u64 done = 0, examined = 0, changed = 0, slow = 0;

    __device__ __forceinline__ Strong(const Arguments &given, const Team &with, StepBlock &in)
        : arguments(given), stage(given.stage), team(with), block(in), state(in.state) {}

    __device__ __forceinline__ i64 words() const { return (arguments.active + 31) / 32; }
    __device__ __forceinline__ u32 *visited() const {
        return state[BACKWARD] ? arguments.backward : arguments.forward;
    }
    // Vertices that the search may reach.
    __device__ __forceinline__ const u32 *open() const {
        return state[BACKWARD] ? arguments.forward : arguments.alive;
    }
    __device__ __forceinline__ u32 *frontier(u32 next) const {
        return arguments.frontiers[(static_cast<u32>(state[PARITY]) + next) & 1];
    }

    // Count the arcs of a row that the warp has examined alone.
    __device__ __forceinline__ void thread_note_row(i64 arcs) {
        if (arcs > SLOW_ROW && lane_id() == 0) slow += static_cast<u64>(arcs);
    }

    // Whether each lane's row has a target for which test(target, index) is true. All lanes take part.
    template <class Test>
    __device__ __forceinline__ bool warp_has(const Rows<Id> &rows, bool searches, i64 index,
                                             Test test) {
        i64 at = searches ? rows.offsets[index] : 0, end = searches ? rows.offsets[index + 1] : 0;
        bool has = false;
        for (u32 alone = 0; alone < ARCS_ALONE; alone += ARCS_AT_ONCE) {
            if (!__any_sync(FULL_WARP, !has && at < end)) return has;
            Id target[ARCS_AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < ARCS_AT_ONCE; i++)
                target[i] = !has && at + i < end ? rows.targets[at + i] : static_cast<Id>(-1);
#pragma unroll
            for (u32 i = 0; i < ARCS_AT_ONCE; i++) {
                if (target[i] < 0) continue;
                examined += 1;
                has |= test(target[i], index);
            }
            at += ARCS_AT_ONCE;
        }
        u32 waiting = __ballot_sync(FULL_WARP, !has && at < end);
        for (; waiting; waiting &= waiting - 1) {
            const u32 whose = __ffs(waiting) - 1;
            i64 from = __shfl_sync(FULL_WARP, at, whose);
            const i64 to = __shfl_sync(FULL_WARP, end, whose);
            const i64 owner = __shfl_sync(FULL_WARP, index, whose), first = from;
            bool is_hit = false;
            for (; from < to && !is_hit; from += ARCS_A_WARP) {
                bool here = false;
#pragma unroll
                for (u32 i = 0; i < ARCS_AT_ONCE; i++) {
                    const i64 arc = from + i * WARP + lane_id();
                    if (arc >= to) continue;
                    examined += 1;
                    here |= test(rows.targets[arc], owner);
                }
                is_hit = __any_sync(FULL_WARP, here);
            }
            if (lane_id() == whose) has = is_hit;
            thread_note_row(from - first);
        }
        return has;
    }

    // The least value(target, index) of each lane's row, NO_ID if it is empty. All lanes take part.
    template <class Value>
    __device__ __forceinline__ Id warp_least(const Rows<Id> &rows, bool searches, i64 index,
                                             Value value) {
        i64 at = searches ? rows.offsets[index] : 0, end = searches ? rows.offsets[index + 1] : 0;
        Id least = NO_ID;
        for (u32 alone = 0; alone < ARCS_ALONE; alone += ARCS_AT_ONCE) {
            if (!__any_sync(FULL_WARP, at < end)) return least;
#pragma unroll
            for (u32 i = 0; i < ARCS_AT_ONCE; i++) {
                if (at + i >= end) continue;
                examined += 1;
                least = min(least, value(rows.targets[at + i], index));
            }
            at += ARCS_AT_ONCE;
        }
        u32 waiting = __ballot_sync(FULL_WARP, at < end);
        for (; waiting; waiting &= waiting - 1) {
            const u32 whose = __ffs(waiting) - 1;
            const i64 from = __shfl_sync(FULL_WARP, at, whose);
            const i64 to = __shfl_sync(FULL_WARP, end, whose);
            const i64 owner = __shfl_sync(FULL_WARP, index, whose);
            Id here = NO_ID;
            for (i64 arc = from + lane_id(); arc < to; arc += WARP) {
                examined += 1;
                here = min(here, value(rows.targets[arc], owner));
            }
            for (u32 step = WARP / 2; step > 0; step /= 2)
                here = min(here, __shfl_xor_sync(FULL_WARP, here, step));
            if (lane_id() == whose) least = min(least, here);
            thread_note_row(to - from);
        }
        return least;
    }

    // Whether a target is alive and in the same part.
    __device__ __forceinline__ bool is_near(Id target, i64 index) const {
        if (!is_set(arguments.alive, target)) return false;
        return state[ROUND] == 0 || (arguments.part_in[target] == arguments.part_in[index] &&
                                     arguments.part_out[target] == arguments.part_out[index]);
    }

    __device__ __forceinline__ void team_begin() {
        for (i64 index = static_cast<i64>(team.thread()); index < stage.owned;
             index += static_cast<i64>(team.threads())) {
            arguments.labels[index] = arguments.vertices[index];
            if (index >= arguments.active) done += 1;
        }
        const i64 warps = static_cast<i64>(team.warps());
        for (i64 word = static_cast<i64>(team.warp()); word < words(); word += warps) {
            const i64 index = word * 32 + lane_id();
            const bool is_there = index < arguments.active;
            const bool is_alive = is_there &&
                                  arguments.out.offsets[index] < arguments.out.offsets[index + 1] &&
                                  arguments.in.offsets[index] < arguments.in.offsets[index + 1];
            done += is_there && !is_alive;
            changed += is_alive;
            const u32 bits = __ballot_sync(FULL_WARP, is_alive);
            const u32 seed = word == arguments.pivot >> 5 ? 1u << (arguments.pivot & 31) : 0;
            if (lane_id() != 0) continue;
            arguments.alive[word] = bits;
            arguments.forward[word] = seed;
            arguments.backward[word] = 0;
            arguments.frontiers[0][word] = seed;
            arguments.frontiers[1][word] = 0;
        }
        if (team.thread() == 0) *arguments.name = NO_ID;
    }

    // Begin the second search. Both frontiers are empty.
    __device__ __forceinline__ void team_seed() {
        if (team.thread() != 0) return;
        const u32 seed = 1u << (arguments.pivot & 31);
        arguments.backward[arguments.pivot >> 5] = seed;
        frontier(0)[arguments.pivot >> 5] = seed;
    }

    __device__ __forceinline__ void team_push() {
        const Rows<Id> &rows = state[BACKWARD] ? arguments.in : arguments.out;
        u32 *const reached = visited(), *const next = frontier(1), *const now = frontier(0);
        const u32 *const may = open();
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            Id target[ARCS_A_LANE];
            bool is_new[ARCS_A_LANE];
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++)
                target[i] = there[i] ? rows.targets[arcs[i]] : static_cast<Id>(0);
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++)
                is_new[i] = there[i] && has_bit(may, target[i]) && !is_set(reached, target[i]);
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++) {
                if (!is_new[i]) continue;
                const u32 bit = 1u << (target[i] & 31);
                if (atomicOr(reached + (target[i] >> 5), bit) & bit) continue;
                set_bits(next + (target[i] >> 5), bit);
                changed += 1;
            }
        };
        const MixedSchedule schedule{arguments.long_rows, &stage.control->cursors[0]};
        const i64 warps = static_cast<i64>(team.warps());
        for (i64 first = static_cast<i64>(team.warp()); first < words(); first += WARP * warps) {
            const i64 word = first + lane_id() * warps;
            u32 bits = word < words() ? now[word] : 0;
            if (bits) now[word] = 0;
            while (__any_sync(FULL_WARP, bits != 0)) {
                i64 begin = 0, end = 0, index = 0;
                if (bits) {
                    index = word * 32 + __ffs(bits) - 1;
                    bits &= bits - 1;
                    begin = rows.offsets[index], end = rows.offsets[index + 1];
                    examined += static_cast<u64>(end - begin);
                }
                schedule.warp_bring(begin, end, static_cast<u32>(index), visit);
            }
        }
        schedule.team_finish(team, block, true, visit);
    }

    __device__ __forceinline__ void team_pull() {
        const Rows<Id> &rows = state[BACKWARD] ? arguments.out : arguments.in;
        u32 *const reached = visited(), *const next = frontier(1), *const now = frontier(0);
        const u32 *const may = open();
        team_visit_words(
            team, words(),
            [&](i64 word) {
                now[word] = 0;
                return may[word] & ~load_relaxed(reached + word);
            },
            [&](i64 word, u32 bits) {
                const bool is_new =
                    warp_has(rows, bits >> lane_id() & 1, word * 32 + lane_id(),
                             [&](Id target, i64) { return is_set(reached, target); });
                const u32 found = __ballot_sync(FULL_WARP, is_new);
                changed += is_new;
                if (lane_id() != 0 || !found) return;
                next[word] = found;
                store_system(reached + word, load_relaxed(reached + word) | found);
            });
    }

    // Find the smallest vertex of the pivot's component.
    __device__ __forceinline__ void team_find_name() {
        Id least = NO_ID;
        team_visit_words(
            team, words(), [&](i64 word) { return arguments.backward[word]; },
            [&](i64 word, u32 bits) {
                if (bits >> lane_id() & 1)
                    least = min(least, arguments.vertices[word * 32 + lane_id()]);
            });
        for (u32 step = WARP / 2; step > 0; step /= 2)
            least = min(least, __shfl_xor_sync(FULL_WARP, least, step));
        if (lane_id() == 0 && least != NO_ID) atomicMin(arguments.name, least);
    }

    __device__ __forceinline__ void team_name() {
        const Id name = *arguments.name;
        team_visit_words(
            team, words(), [&](i64 word) { return arguments.backward[word]; },
            [&](i64 word, u32 bits) {
                if (bits >> lane_id() & 1) {
                    arguments.labels[word * 32 + lane_id()] = name;
                    done += 1;
                }
                if (lane_id() == 0) arguments.alive[word] &= ~bits;
            });
    }

    __device__ __forceinline__ void team_trim() {
        const auto is_other = [&](Id target, i64 index) {
            return target != index && is_near(target, index);
        };
        team_visit_words(
            team, words(), [&](i64 word) { return load_relaxed(arguments.alive + word); },
            [&](i64 word, u32 bits) {
                const i64 index = word * 32 + lane_id();
                const bool is_alive = bits >> lane_id() & 1;
                bool stays = warp_has(arguments.out, is_alive, index, is_other);
                stays = warp_has(arguments.in, stays, index, is_other);
                const u32 left = __ballot_sync(FULL_WARP, stays);
                done += is_alive && !stays;
                changed += is_alive && !stays;
                if (lane_id() == 0 && left != bits) store_system(arguments.alive + word, left);
            });
    }

    // visit(index) for the vertices that are alive.
    template <class Visit>
    __device__ __forceinline__ void team_visit_alive(Visit visit) {
        team_visit_words(
            team, words(), [&](i64 word) { return arguments.alive[word]; },
            [&](i64 word, u32 bits) {
                if (bits >> lane_id() & 1) visit(word * 32 + lane_id());
            });
    }

    __device__ __forceinline__ void team_colour() {
        team_visit_alive([&](i64 index) {
            arguments.least_in[index] = arguments.vertices[index];
            arguments.least_out[index] = arguments.vertices[index];
        });
    }

    // Lower a value to the least of neighbours', and to that of the vertex that it names.
    __device__ __forceinline__ void warp_lower(const Rows<Id> &rows, Id *values, bool is_alive,
                                               i64 index) {
        Id least = warp_least(rows, is_alive, index, [&](Id target, i64 owner) {
            return is_near(target, owner) ? load_relaxed(values + target) : NO_ID;
        });
        if (!is_alive) return;
        const Id before = load_relaxed(values + index);
        least = min(least, before);
        least = min(least, load_relaxed(values + arguments.positions[least]));
        if (least == before) return;
        store_system(values + index, least);
        changed += 1;
    }

    __device__ __forceinline__ void team_propagate() {
        team_visit_words(
            team, words(), [&](i64 word) { return arguments.alive[word]; },
            [&](i64 word, u32 bits) {
                const i64 index = word * 32 + lane_id();
                const bool is_alive = bits >> lane_id() & 1;
                warp_lower(arguments.in, arguments.least_in, is_alive, index);
                warp_lower(arguments.out, arguments.least_out, is_alive, index);
            });
    }

    __device__ __forceinline__ void team_settle() {
        team_visit_words(
            team, words(), [&](i64 word) { return arguments.alive[word]; },
            [&](i64 word, u32 bits) {
                const i64 index = word * 32 + lane_id();
                bool is_settled = false;
                if (bits >> lane_id() & 1) {
                    const Id in = arguments.least_in[index], out = arguments.least_out[index];
                    is_settled = in == out;
                    if (is_settled) {
                        arguments.labels[index] = in;
                    } else {
                        arguments.part_in[index] = in;
                        arguments.part_out[index] = out;
                    }
                }
                done += is_settled;
                changed += is_settled;
                const u32 settled = __ballot_sync(FULL_WARP, is_settled);
                if (lane_id() == 0) arguments.alive[word] = bits & ~settled;
            });
    }

    __device__ __forceinline__ void count() {
        warp_count(block, DONE, done);
        warp_count(block, ARCS_SEEN, examined);
        warp_count(block, CHANGED, changed);
        warp_count(block, SLOW_ARCS, slow);
    }
};

// Return the phase that goes on with a search whose frontier is not empty.
__device__ __forceinline__ u32 strong_search(const u64 *state) {
    const double frontier = static_cast<double>(state[FRONTIER]);
    const double visited = static_cast<double>(state[VISITED]);
    const double open = static_cast<double>(state[OPEN]);
    // Arcs that a push and a pull would examine, both times `visited`.
    const double pushed = frontier * amount_of(state[MEAN_DEGREE]) * visited;
    return pushed > TURN * (open - visited) * open ? PULL : PUSH;
}

__device__ __forceinline__ u32 strong_next(u32 phase, u64 changed, u64 *state) {
    switch (phase) {
        case BEGIN:
            state[ALIVE] = state[OPEN] = changed;
            if (changed == 0) return STOP;
            state[FRONTIER] = state[VISITED] = 1;
            return strong_search(state);
        case SEED:
            return strong_search(state);
        case PUSH:
        case PULL:
            state[PARITY] ^= 1;
            state[FRONTIER] = changed;
            state[VISITED] += changed;
            if (changed) return strong_search(state);
            if (state[BACKWARD]) return FIND_NAME;
            state[BACKWARD] = 1;
            state[OPEN] = state[VISITED];
            state[FRONTIER] = state[VISITED] = 1;
            return SEED;
        case FIND_NAME:
            return NAME;
        case NAME:
            state[ALIVE] -= state[VISITED];
            return state[ALIVE] ? TRIM : STOP;
        case TRIM:
            state[ALIVE] -= changed;
            if (state[ALIVE] == 0) return STOP;
            return changed && changed * TRIMMED_SHARE >= state[ALIVE] ? TRIM : COLOUR;
        case COLOUR:
            return PROPAGATE;
        case PROPAGATE:
            return changed ? PROPAGATE : SETTLE;
        case SETTLE:
            state[ALIVE] -= changed;
            state[ROUND] += 1;
            return state[ALIVE] ? TRIM : STOP;
    }
    return STOP;
}

__device__ __forceinline__ void grid_strong_components(const Arguments &arguments) {
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Strong strong(arguments, team, block);
        switch (phase) {
            case BEGIN:
                strong.team_begin();
                break;
            case SEED:
                strong.team_seed();
                break;
            case PUSH:
                strong.team_push();
                break;
            case PULL:
                strong.team_pull();
                break;
            case FIND_NAME:
                strong.team_find_name();
                break;
            case NAME:
                strong.team_name();
                break;
            case TRIM:
                strong.team_trim();
                break;
            case COLOUR:
                strong.team_colour();
                break;
            case PROPAGATE:
                strong.team_propagate();
                break;
            case SETTLE:
                strong.team_settle();
                break;
        }
        strong.count();
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        state[EXAMINED] += sums.counts[ARCS_SEEN];
        const u32 next = strong_next(phase, sums.counts[CHANGED], state);
        if (next == STOP) return STOP;
        state[SLOW] += sums.counts[SLOW_ARCS];
        if (state[STEP] < state[MOST_STEPS] && state[EXAMINED] <= state[MOST_ARCS] &&
            state[SLOW] <= state[MOST_SLOW])
            return next;
        state[GAVE_UP] = 1;
        return STOP;
    };
    run_steps(arguments.stage, body, decide);
}
