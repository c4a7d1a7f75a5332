// Primitives of a warp: sums over its lanes, reserved places of a list for them, and binary searches for the row
// that has an arc. "All lanes call it": no lane of the warp may be elsewhere, as shuffles use all.
#pragma once

#include "runtime/cuda/include/memory.cuh"

constexpr u32 FULL_WARP = 0xffffffffu;
constexpr u32 WARP = 32;

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & (WARP - 1); }
__device__ __forceinline__ u32 warp_id() { return threadIdx.x / WARP; }

// Return the sum over this lane and the lanes before it. All lanes call it.
template <class T>
__device__ __forceinline__ T warp_sum_up_to(T amount) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const T before = __shfl_up_sync(FULL_WARP, amount, step);
        if (lane_id() >= step) amount += before;
    }
    return amount;
}

// Return the sum over each group of `lanes` lanes, a power of two, to all lanes of the group. All lanes call it.
template <class T>
__device__ __forceinline__ T lanes_sum(T amount, u32 lanes = WARP) {
    for (u32 step = lanes / 2; step > 0; step /= 2)
        amount += __shfl_xor_sync(FULL_WARP, amount, step);
    return amount;
}

// Return the sum over all lanes, in lane 0. All lanes call it.
template <class T>
__device__ __forceinline__ T warp_sum(T amount) {
    for (u32 step = WARP / 2; step > 0; step /= 2)
        amount += __shfl_down_sync(FULL_WARP, amount, step);
    return amount;
}

// Reserve a place of a list for each lane in `votes`, in the order of lanes; return the lane's. `count` is the
// number of places that are taken. All lanes call it, with the same votes.
template <class Count>
__device__ __forceinline__ Count warp_place(Count *count, u32 votes) {
    if (votes == 0) return 0;
    Count begin = 0;
    if (lane_id() == 0) begin = atomicAdd(count, static_cast<Count>(__popc(votes)));
    const u32 below = votes & ((1u << lane_id()) - 1);
    return __shfl_sync(FULL_WARP, begin, 0) + static_cast<Count>(__popc(below));
}

// Append the items of the lanes with `appends` to a list, in the order of lanes. All lanes call it.
template <class Count, class Item>
__device__ __forceinline__ void warp_append(Count *count, Item *list, bool appends, Item item) {
    const Count place = warp_place(count, __ballot_sync(FULL_WARP, appends));
    if (appends) list[place] = item;
}

// Return the lane whose row has arc `number` of the rows of all lanes, one behind the other: the first lane
// whose `end`, the sum of lengths up to it, exceeds the number (the schedule of Merrill's scan-based gathering,
// by shuffles). Numbers past all rows belong to the last lane. All lanes call it.
__device__ __forceinline__ u32 warp_lane_of(u32 end, u32 number) {
    u32 whose = 0;
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        u32 sum = __shfl_sync(FULL_WARP, end, whose + step - 1);
        if (sum <= number) whose += step;
    }
    return whose;
}

// Return the first index in [low, high) whose value is not below the wanted one, or `high`; values ascend. Each step
// compares 32 values. All lanes call it, with the same range and value.
template <class Value>
__device__ __forceinline__ i64 warp_lower_bound(const Value *values, i64 low, i64 high,
                                                i64 wanted) {
    while (low < high) {
        const i64 width = (high - low + WARP - 1) / WARP, place = low + width * lane_id();
        const bool is_below = place < high && values[place] < wanted;
        const u32 below = __popc(__ballot_sync(FULL_WARP, is_below));
        if (below == 0) break;
        high = min(low + width * below, high);
        low += width * (below - 1) + 1;
    }
    return low;
}

// Return the first index in [low, high) whose value is not below the wanted one, or `high`; values ascend.
template <class Value, class Wanted>
__device__ __forceinline__ i64 thread_lower_bound(const Value *values, i64 low, i64 high,
                                                  Wanted wanted) {
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (static_cast<Wanted>(values[middle]) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Return the row of [low, high] that has an arc: the last one that begins at the arc or before it. Row `low` must
// begin there or before.
__device__ __forceinline__ i64 thread_row_of(const i64 *offsets, i64 low, i64 high, i64 arc) {
    return thread_lower_bound(offsets + 1, low, high, arc + 1);
}

// Return the index of the row that has a chunk: the last of `count` rows whose first chunk is not past it. Rows
// lie in the order of their chunks.
template <class Row>
__device__ __forceinline__ u32 thread_row_of_chunk(const Row *rows, u32 count, u64 chunk) {
    u32 low = 0, high = count - 1;
    while (low < high) {
        u32 middle = (low + high + 1) / 2;
        if (rows[middle].chunk <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
