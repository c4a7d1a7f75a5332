// The fronts of 32 rows of different lengths, one for each lane, visited by the lanes of their warp together.
#pragma once

#include "runtime/cuda/include/warp.cuh"

constexpr u32 LONG_FRONT = 32;  // from this length on, the warp visits a front alone
constexpr u32 FRONT_LOADS =
    4;  // arcs of a lane that are fetched before the first of them is looked up

// Sum `look_up(fetch(arc), context)` over the first `length` arcs from `begin` of each lane's row; return the lane's
// sum. `context_of(lane)` returns, by shuffles, what a look-up takes of another lane's row. `sums` are of
// shared memory, one for each lane, and belong to the warp. All lanes call it.
template <class Sum, class ContextOf, class Fetch, class LookUp>
__device__ __forceinline__ Sum warp_sum_fronts(i64 begin, u32 length, Sum *sums,
                                               ContextOf context_of, Fetch fetch, LookUp look_up) {
    const u32 lane = lane_id();
    Sum found = 0;
    u32 waiting = __ballot_sync(FULL_WARP, length >= LONG_FRONT);
    while (waiting) {
        const u32 whose = __ffs(static_cast<int>(waiting)) - 1;
        waiting &= waiting - 1;
        const i64 first = __shfl_sync(FULL_WARP, begin, whose);
        const u32 count = __shfl_sync(FULL_WARP, length, whose);
        const auto context = context_of(whose);
        Sum sum = 0;
        for (u32 base = lane; base < count; base += FRONT_LOADS * WARP) {
            decltype(fetch(first)) items[FRONT_LOADS];
#pragma unroll
            for (u32 load = 0; load < FRONT_LOADS; load++)
                if (base + load * WARP < count) items[load] = fetch(first + base + load * WARP);
#pragma unroll
            for (u32 load = 0; load < FRONT_LOADS; load++)
                if (base + load * WARP < count) sum += look_up(items[load], context);
        }
        __syncwarp();
        sum = lanes_sum(sum);
        if (lane == whose) found = sum;
    }
    if (length >= LONG_FRONT) length = 0;
    const u32 end = warp_sum_up_to(length);
    const u32 total = __shfl_sync(FULL_WARP, end, WARP - 1);
    if (total == 0) return found;
    sums[lane] = 0;
    __syncwarp();
    const i64 shifted = begin - static_cast<i64>(end - length);
    for (u32 base = 0; base < total; base += WARP) {
        const u32 number = base + lane;
        const u32 whose = warp_lane_of(end, number);
        const i64 first = __shfl_sync(FULL_WARP, shifted, whose);
        const auto context = context_of(whose);
        const Sum sum = number < total ? look_up(fetch(first + number), context) : 0;
        if (sum != 0) atomicAdd(&sums[whose], sum);
    }
    __syncwarp();
    found += sums[lane];
    __syncwarp();
    return found;
}
