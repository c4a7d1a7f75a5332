// What all operators of step programs share: arguments, values and how they are combined. The generated
// source (frontier/cuda/program.py) has a struct for each step (its field, dtypes and the user's functions)
// and the order of steps; everything else is here, in queue.cuh (the frontier), operators.cuh and
// advance.cuh of this folder.
//
// Fields have room for all positions on every device. Only an owner writes its range, in its own memory
// and, where other devices read the field (SHARED), in theirs.
//
// An operator reads only values from before it: messages are combined in *accumulators*, one for each
// position on every device, with a bitmap `touched` of the positions that have got a message. Between
// operators all accumulators are at their identity and all bits are clear. In the superstep after, the
// owner merges the accumulators that all devices have for its vertices, and resets them: no other device
// accesses them then.
//
// The generated source defines, before this file: Id, Weight, FIELDS, SLOTS, PULLS.
#pragma once

#include "runtime/cuda/include/bitwise.cuh"
#include "runtime/cuda/include/schedule.cuh"
#include "supersteps/halos.cuh"

// Counts of a device's queues (queue.cuh); the list of the positions that it has sent to follows in memory.
struct QueueControl {
    u32 queued[2];
    u32 sent;
    u32 padding;
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
    Schedule::Row *left_rows;
    u8 *arcs;  // flags of the frontier's arcs, valid for the rows of the vertices that they leave
    const u32 *subscribers;  // of own vertices (supersteps/halos.cuh); null: all devices
    u32 *queue[2];           // local indexes
    u64 queue_room;          // of each; the same on every device
    u64 listing_limit;       // largest number of vertices of a frontier that lists what it touches
    i64 long_below;          // local indexes from here on have at most SHORT_ROW_ARCS arcs
    u64 is_directed;         // then those before may have, too
    QueueControl *queues[MAX_DEVICES];
    u32 *frontiers[MAX_DEVICES];
    u32 *touched[MAX_DEVICES];
    i64 *extremes[MAX_DEVICES];  // two words each: results of reductions by min or max, by turns
    void *fields[FIELDS + 1][MAX_DEVICES];
    void *accumulators[SLOTS + 1][MAX_DEVICES];
};

// MEMBERS: of the next frontier, or newly touched; TOTAL: a sum, or arcs in the frontier, or remote
// vertices that were sent to; TOO_LARGE: values that do not fit; STRAY: fields that name no vertex; MISSED:
// members without room in a queue; LONG: members with more than SHORT_ROW_ARCS arcs.
enum FrontierCount : u32 { PROCESSED, MEMBERS, TOTAL, TOO_LARGE, STRAY, ARCS, MISSED, LONG };

enum Combine : u32 { COMBINE_ADD, COMBINE_MIN, COMBINE_MAX, COMBINE_OR, COMBINE_AND };

// Words of the state, behind the numbers.
constexpr u32 SIZE = 0, FAILED = 24, REDUCTIONS = 25, OPERATORS = 26, QUEUE = 27, FORM = 28,
              REPLICATED = 29;

// A thread's counts of a superstep.
struct Tally {
    u64 processed = 0, members = 0, total = 0, too_large = 0, stray = 0, arcs = 0;
    u32 missed = 0, long_rows = 0;
    double amount = 0;
};

template <class To, class From>
__device__ __forceinline__ To thread_fit(From value, Tally &tally) {
    if constexpr (!is_float<To>) {
        constexpr bool is_wide = sizeof(To) == 8;
        constexpr i64 low = is_wide          ? -0x7fffffffffffffffll - 1
                            : To(-1) < To(0) ? -0x80000000ll
                                             : 0;
        constexpr i64 high = is_wide          ? 0x7fffffffffffffffll
                             : To(-1) < To(0) ? 0x7fffffffll
                                              : 0xffffffffll;
        static_assert(!is_float<From>);  // others are refused by runtime/cuda/operators.py
        bool fits;
        if constexpr (sizeof(From) == 8 && From(-1) > From(0))
            fits = value <= static_cast<u64>(high);
        else
            fits = static_cast<i64>(value) >= low && static_cast<i64>(value) <= high;
        tally.too_large += !fits;
    }
    return static_cast<To>(value);
}

template <Combine how, class T>
__device__ __forceinline__ bool is_better(T candidate, T current) {
    if constexpr (how == COMBINE_OR)
        return (candidate & ~current) != 0;
    else if constexpr (how == COMBINE_AND)
        return (~candidate & current) != 0;
    else
        return how == COMBINE_MIN ? candidate < current : candidate > current;
}

template <Combine how, class T>
__device__ __forceinline__ T combined(T total, T value) {
    if constexpr (how == COMBINE_ADD) return total + value;
    if constexpr (how == COMBINE_OR) return total | value;
    if constexpr (how == COMBINE_AND) return total & value;
    return is_better<how>(value, total) ? value : total;
}

// Combine a value into memory of this device; return true if that changed it. `looks`: load the old value
// first, which saves atomics where many values come to one place, and costs an access where few do.
template <Combine how, class T>
__device__ __forceinline__ bool combine_at(T *place, T value, bool looks = true) {
    if constexpr (how == COMBINE_ADD) {
        if constexpr (!is_float<T>)
            atomicAdd(reinterpret_cast<u64 *>(place), static_cast<u64>(value));
        else
            atomicAdd(place, value);
        return true;
    } else if constexpr (!is_float<T>) {
        if (looks && !is_better<how>(value, load_relaxed(place))) return false;
        T old;
        if constexpr (how == COMBINE_OR)
            old = thread_or(place, value);
        else if constexpr (how == COMBINE_AND)
            old = thread_and(place, value);
        else
            old = how == COMBINE_MIN ? atomicMin(place, value) : atomicMax(place, value);
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

// Give a field of an own vertex its value, on this device and on those that read it.
template <class T, bool shared>
__device__ __forceinline__ void thread_publish(const Arguments &arguments, u32 index, i64 position,
                                               T value) {
    const Stage &stage = arguments.stage;
    field_of<T>(arguments, index, stage.device)[position] = value;
    if constexpr (shared) {
        for (u32 device = 0; device < stage.devices; device++) {
            if (device == stage.device) continue;
            if (!arguments.subscribers ||
                is_read_at(stage, arguments.subscribers, device, position - stage.first()))
                field_of<T>(arguments, index, device)[position] = value;
        }
    }
}

// Return the position of the vertex that a field names.
template <class T>
__device__ __forceinline__ i64 position_named(const Arguments &arguments, T vertex, Tally &tally) {
    const i64 wide = static_cast<i64>(vertex);
    if (wide >= 0 && wide < arguments.vertex_count) return arguments.positions[wide];
    tally.stray++;
    return arguments.stage.first();
}

__device__ __forceinline__ u64 bits_of_number(i64 number) { return static_cast<u64>(number); }
__device__ __forceinline__ u64 bits_of_number(double number) { return bits_of_amount(number); }

// Add the counts of a superstep to the block's, for the meeting. Called by whole warps.
__device__ __forceinline__ void warp_add_tally(const Tally &tally, StepBlock &block) {
    warp_count(block, PROCESSED, tally.processed);
    warp_count(block, MEMBERS, tally.members);
    warp_count(block, TOTAL, tally.total);
    warp_count(block, TOO_LARGE, tally.too_large);
    warp_count(block, STRAY, tally.stray);
    warp_count(block, ARCS, tally.arcs);
    warp_count(block, MISSED, tally.missed);
    warp_count(block, LONG, tally.long_rows);
    warp_amount(block, 0, tally.amount);
}
