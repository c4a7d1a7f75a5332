// Operators of step programs: advance, filter, compute, reduce. The text that Python generates has a struct a
// step (its fields, its dtypes, the user's functions) and the order of steps; everything else is here.
//
// A frontier is a bitmap over all positions; a device reads and writes the words of its own range, and, where a
// program pulls, stores what it writes at its peers as well. Fields have room for all positions on every device.
// An owner alone writes its range, at itself and, where others read the field, at all peers (SHARED).
//
// What an operator reads is what was there before it: messages are combined in *accumulators*, one for each
// position on every device, all of them at their identity between operators, with a bitmap `touched` of the
// positions for which a message has come, all clear. In the superstep after that the owner merges what all
// devices have for its vertices, and resets it there: nobody else touches it then.
//
// The generated text defines, before this file: FIELDS, SLOTS, HAS_WEIGHTS (Weight), PULLS.
#pragma once

#include "schedule_mixed.cuh"

template <class T>
constexpr bool IS_WHOLE = false;
template <>
constexpr bool IS_WHOLE<bool> = true;
template <>
constexpr bool IS_WHOLE<signed char> = true;
template <>
constexpr bool IS_WHOLE<u8> = true;
template <>
constexpr bool IS_WHOLE<short> = true;
template <>
constexpr bool IS_WHOLE<u16> = true;
template <>
constexpr bool IS_WHOLE<i32> = true;
template <>
constexpr bool IS_WHOLE<u32> = true;
template <>
constexpr bool IS_WHOLE<i64> = true;
template <>
constexpr bool IS_WHOLE<u64> = true;

template <u32 bytes>
struct BitsOf {
    using Type = u64;
};
template <>
struct BitsOf<4> {
    using Type = u32;
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;
    const Weight *out_weights;
    const Weight *in_weights;
    const Id *vertices;   // of each position; -1: none
    const Id *positions;  // of each vertex
    const i64 *degrees;   // of each position: out-degree
    i64 vertex_count;
    LongRow *long_rows;
    u8 *arcs;  // own: which are in the frontier, where that is of arcs: of the vertices that they leave
    u32 *frontiers[MAX_DEVICES];
    u32 *touched[MAX_DEVICES];
    i64 *extremes[MAX_DEVICES];  // two words each: of reductions by min, in turn
    void *fields[FIELDS + 1][MAX_DEVICES];
    void *accumulators[SLOTS + 1][MAX_DEVICES];
};

enum FrontierCount : u32 { PROCESSED, MEMBERS, TOTAL, TOO_LARGE, STRAY, ARCS };

enum Combine : u32 { COMBINE_ADD, COMBINE_MIN, COMBINE_MAX };

// Words of the state, behind the numbers.
constexpr u32 SIZE = 0, FAILED = 24, REDUCTIONS = 25, OPERATORS = 26;

// What a thread finds in a superstep.
struct Tally {
    u64 processed = 0, members = 0, total = 0, too_large = 0, stray = 0, arcs = 0;
    double amount = 0;
};

template <class To, class From>
__device__ __forceinline__ To thread_fit(From value, Tally &tally) {
    if constexpr (IS_WHOLE<To>) {
        constexpr bool is_wide = sizeof(To) == 8;
        constexpr i64 low = is_wide          ? -0x7fffffffffffffffll - 1
                            : To(-1) < To(0) ? -0x80000000ll
                                             : 0;
        constexpr i64 high = is_wide          ? 0x7fffffffffffffffll
                             : To(-1) < To(0) ? 0x7fffffffll
                                              : 0xffffffffll;
        bool fits;
        if constexpr (!IS_WHOLE<From>)
            // The largest value plus one is a power of two, which is exact.
            fits =
                value >= static_cast<double>(low) && value < 2 * static_cast<double>(high / 2 + 1);
        else if constexpr (sizeof(From) == 8 && From(-1) > From(0))
            fits = value <= static_cast<u64>(high);
        else
            fits = static_cast<i64>(value) >= low && static_cast<i64>(value) <= high;
        tally.too_large += !fits;
    }
    return static_cast<To>(value);
}

template <Combine how, class T>
__device__ __forceinline__ bool is_better(T candidate, T current) {
    return how == COMBINE_MIN ? candidate < current : candidate > current;
}

template <Combine how, class T>
__device__ __forceinline__ T combined(T total, T value) {
    if constexpr (how == COMBINE_ADD) return total + value;
    return is_better<how>(value, total) ? value : total;
}

// Combine a value into memory of this device; whether it made a difference.
template <Combine how, class T>
__device__ __forceinline__ bool combine_at(T *place, T value) {
    if constexpr (how == COMBINE_ADD) {
        if constexpr (IS_WHOLE<T>)
            atomicAdd(reinterpret_cast<u64 *>(place), static_cast<u64>(value));
        else
            atomicAdd(place, value);
        return true;
    } else if constexpr (IS_WHOLE<T>) {
        if (!is_better<how>(value, load_relaxed(place))) return false;
        T old = how == COMBINE_MIN ? atomicMin(place, value) : atomicMax(place, value);
        return is_better<how>(value, old);
    } else {
        using Bits = typename BitsOf<sizeof(T)>::Type;
        T old = load_relaxed(place);
        while (is_better<how>(value, old)) {
            Bits wanted, desired;
            memcpy(&wanted, &old, sizeof(T));
            memcpy(&desired, &value, sizeof(T));
            Bits found = atomicCAS(reinterpret_cast<Bits *>(place), wanted, desired);
            if (found == wanted) return true;
            memcpy(&old, &found, sizeof(T));
        }
        return false;
    }
}

template <class T>
__device__ __forceinline__ T *field_of(const Arguments &arguments, u32 index, u32 device) {
    return static_cast<T *>(arguments.fields[index][device]);
}

template <class T>
__device__ __forceinline__ const T *field_here(const Arguments &arguments, u32 index) {
    return field_of<T>(arguments, index, arguments.stage.device);
}

template <class T>
__device__ __forceinline__ T *accumulators_of(const Arguments &arguments, u32 slot, u32 device) {
    return static_cast<T *>(arguments.accumulators[slot][device]);
}

// Give a field of an own vertex its value, wherever it is read.
template <class T, bool shared>
__device__ __forceinline__ void thread_publish(const Arguments &arguments, u32 index, i64 position,
                                               T value) {
    if constexpr (shared) {
        for (u32 device = 0; device < arguments.stage.devices; device++)
            field_of<T>(arguments, index, device)[position] = value;
    } else {
        field_of<T>(arguments, index, arguments.stage.device)[position] = value;
    }
}

// The position of the vertex that a field names.
template <class T>
__device__ __forceinline__ i64 position_named(const Arguments &arguments, T vertex, Tally &tally) {
    const i64 wide = static_cast<i64>(vertex);
    if (wide >= 0 && wide < arguments.vertex_count) return arguments.positions[wide];
    tally.stray++;
    return arguments.stage.first();
}

__device__ __forceinline__ u64 bits_of_number(i64 number) { return static_cast<u64>(number); }
__device__ __forceinline__ u64 bits_of_number(double number) { return bits_of_amount(number); }

__device__ __forceinline__ u32 *own_words(const Arguments &arguments, u32 *const *bitmaps) {
    return bitmaps[arguments.stage.device] + arguments.stage.first() / WARP;
}

// Go through words of the own range: a lane loads a word, and for those that are not 0 the whole warp does
// visit(word's index, its value). Units of neighbouring words are dealt out to the warps of the team in turn.
template <class Load, class Visit>
__device__ __forceinline__ void team_visit_words(const Team &team, i64 words, Load load,
                                                 Visit visit) {
    constexpr i64 UNIT = 8;
    const i64 units = (words + UNIT - 1) / UNIT, warps = static_cast<i64>(team.warps());
    const i64 lane = lane_id();
    for (i64 round = 0; round * warps < units; round += WARP / UNIT) {
        const i64 unit = (round + lane / UNIT) * warps + static_cast<i64>(team.warp());
        const i64 word = unit * UNIT + lane % UNIT;
        const u32 bits = word < words ? load(word) : 0;
        u32 there = __ballot_sync(FULL_WARP, bits != 0);
        while (there) {
            const u32 whose = __ffs(static_cast<int>(there)) - 1;
            there &= there - 1;
            visit(__shfl_sync(FULL_WARP, word, whose), __shfl_sync(FULL_WARP, bits, whose));
        }
    }
}

__device__ __forceinline__ i64 own_word_count(const Arguments &arguments) {
    return (arguments.stage.owned + WARP - 1) / WARP;
}

// The vertices that an operator is for, 32 at a time: visit(word's index, lane's own index, is it one of them).
template <class Visit>
__device__ __forceinline__ void team_visit_members(const Arguments &arguments, const Team &team,
                                                   bool everywhere, Visit visit) {
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    team_visit_words(
        team, own_word_count(arguments),
        [&](i64 word) { return everywhere ? FULL_WARP : frontier[word]; },
        [&](i64 word, u32 bits) {
            const i64 own = word * WARP + lane_id();
            visit(word, own, (bits >> lane_id() & 1) && own < arguments.stage.owned);
        });
}

// A warp has a word of the next frontier.
__device__ __forceinline__ void warp_put_frontier(const Arguments &arguments, i64 word, u32 bits,
                                                  Tally &tally) {
    const Stage &stage = arguments.stage;
    if (lane_id() == 0) tally.members += __popc(bits);
    const i64 place = stage.first() / WARP + word;
    if (PULLS) {
        if (lane_id() < stage.devices) arguments.frontiers[lane_id()][place] = bits;
    } else if (lane_id() == 0) {
        arguments.frontiers[stage.device][place] = bits;
    }
}

// A program's superstep is over: its sums, for the meeting. All lanes come.
__device__ __forceinline__ void warp_add_tally(const Tally &tally, StepBlock &block) {
    warp_count(block, PROCESSED, tally.processed);
    warp_count(block, MEMBERS, tally.members);
    warp_count(block, TOTAL, tally.total);
    warp_count(block, TOO_LARGE, tally.too_large);
    warp_count(block, STRAY, tally.stray);
    warp_count(block, ARCS, tally.arcs);
    warp_amount(block, 0, tally.amount);
}

template <class Step>
__device__ __forceinline__ void team_filter(const Step &step, const Team &team, Tally &tally) {
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    team_visit_members(arguments, team, Step::EVERYWHERE, [&](i64 word, i64 own, bool is_member) {
        tally.processed += is_member;
        const bool stays = is_member && step.keep(first + own, tally);
        warp_put_frontier(arguments, word, __ballot_sync(FULL_WARP, stays), tally);
    });
}

template <class Step>
__device__ __forceinline__ void team_compute(const Step &step, const Team &team, Tally &tally) {
    using Field = typename Step::Field;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    team_visit_members(arguments, team, Step::EVERYWHERE, [&](i64, i64 own, bool is_member) {
        if (!is_member) return;
        tally.processed++;
        const i64 position = first + own;
        const Field value = thread_fit<Field>(step.value(position, tally), tally);
        if constexpr (Step::STAGED)
            accumulators_of<Field>(arguments, Step::SLOT, arguments.stage.device)[position] = value;
        else
            thread_publish<Field, Step::SHARED>(arguments, Step::FIELD, position, value);
    });
}

// What was computed while others read the field takes its place.
template <class Step>
__device__ __forceinline__ void team_settle(const Step &step, const Team &team, Tally &) {
    using Field = typename Step::Field;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    const Field *staged = accumulators_of<Field>(arguments, Step::SLOT, arguments.stage.device);
    team_visit_members(arguments, team, Step::EVERYWHERE, [&](i64, i64 own, bool is_member) {
        if (is_member)
            thread_publish<Field, Step::SHARED>(arguments, Step::FIELD, first + own,
                                                staged[first + own]);
    });
}

// Doubles in an order that whole numbers have, and back: it is its own inverse.
__device__ __forceinline__ i64 ordered(i64 bits) {
    return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}

__device__ __forceinline__ i64 key_of(i64 number, Combine how) {
    return how == COMBINE_MAX ? ~number : number;
}
__device__ __forceinline__ i64 key_of(double number, Combine how) {
    return key_of(ordered(static_cast<i64>(bits_of_amount(number))), how);
}
__device__ __forceinline__ u64 bits_of_key(i64 key, Combine how, bool is_float) {
    const i64 number = how == COMBINE_MAX ? ~key : key;
    return static_cast<u64>(is_float ? ordered(number) : number);
}

template <class Step>
__device__ __forceinline__ void team_reduce(const Step &step, const Team &team, Tally &tally) {
    using Number = typename Step::Number;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    const i64 none = key_of(Step::identity(), Step::COMBINE);
    i64 best = none;
    team_visit_members(arguments, team, Step::EVERYWHERE, [&](i64, i64 own, bool is_member) {
        if (!is_member) return;
        tally.processed++;
        const Number value = thread_fit<Number>(step.value(first + own, tally), tally);
        if constexpr (Step::COMBINE != COMBINE_ADD) {
            // What is not ordered (NaN) is no better than anything.
            if (is_better<Step::COMBINE>(value, Step::identity()))
                best = min(best, key_of(value, Step::COMBINE));
        } else if constexpr (IS_WHOLE<Number>) {
            tally.total += static_cast<u64>(value);
        } else {
            tally.amount += value;
        }
    });
    if constexpr (Step::COMBINE != COMBINE_ADD) {
        for (u32 apart = WARP / 2; apart > 0; apart /= 2)
            best = min(best, __shfl_down_sync(FULL_WARP, best, apart));
        i64 *extreme = arguments.extremes[arguments.stage.device] + (step.state[REDUCTIONS] & 1);
        if (lane_id() == 0 && best != none) atomicMin(extreme, best);
    }
}

// One thread of each device: what a reduction has found. Words of extremes are used in turn: the one that is
// reset here was read last before the meeting that precedes this one.
template <class Step>
__device__ __forceinline__ u64 thread_reduced(const Step &step, const Sums &totals, u64 *state) {
    const Arguments &arguments = step.arguments;
    if constexpr (Step::COMBINE == COMBINE_ADD) {
        return IS_WHOLE<typename Step::Number> ? totals.counts[TOTAL]
                                               : bits_of_amount(totals.amounts[0]);
    } else {
        u64 *turn = &state[REDUCTIONS];
        i64 best = 0x7fffffffffffffffll;
        for (u32 device = 0; device < arguments.stage.devices; device++)
            best = min(best, static_cast<i64>(load_system(&arguments.extremes[device][*turn & 1])));
        *turn += 1;
        arguments.extremes[arguments.stage.device][*turn & 1] = 0x7fffffffffffffffll;
        const i64 none = key_of(Step::identity(), Step::COMBINE);
        return bits_of_key(min(best, none), Step::COMBINE, !IS_WHOLE<typename Step::Number>);
    }
}
