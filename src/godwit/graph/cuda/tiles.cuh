// Tiles of arrays, sums over them, and visits of all arcs, for kernels that make or read rows of graphs.
//
// A *tile* is 1,024 consecutive items that one warp visits, 32 at a time, in order: the items that a tile
// keeps are counted, one block sums up the counts, and each warp then knows where its items go.
#pragma once

#include "graph/generators/generate.cuh"

constexpr i64 TILE = 1024;

__device__ __forceinline__ i64 grid_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }
__device__ __forceinline__ i64 grid_thread() {
    return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ i64 grid_warps() { return grid_threads() / WARP; }
__device__ __forceinline__ i64 grid_warp() { return grid_thread() / WARP; }

// Replace every value by the sum of the values before it, and `values[count]` by the sum of all. For one
// block of whole warps.
__device__ __forceinline__ void block_sum_up(u64 *values, i64 count) {
    __shared__ u64 ends[WARP];
    const u32 warps = blockDim.x / WARP;
    u64 sum = 0;
    for (i64 begin = 0; begin < count; begin += blockDim.x) {
        const i64 i = begin + threadIdx.x;
        const u64 value = i < count ? values[i] : 0;
        const u64 end = warp_sum_up_to(value);
        if (lane_id() == WARP - 1) ends[warp_id()] = end;
        __syncthreads();
        if (warp_id() == 0) {
            const u64 warp_end = lane_id() < warps ? ends[lane_id()] : 0;
            const u64 up_to = warp_sum_up_to(warp_end);
            ends[lane_id()] = up_to;
        }
        __syncthreads();
        const u64 base = sum + (warp_id() > 0 ? ends[warp_id() - 1] : 0);
        if (i < count) values[i] = base + end - value;
        sum += ends[warps - 1];
        __syncthreads();  // before the next round overwrites the ends
    }
    if (threadIdx.x == 0) values[count] = sum;
}

// For each arc of [begin, begin + count): `visit(arc, row)`. `first` and `last` bound the rows of these
// arcs.
template <class Visit>
__device__ __forceinline__ void grid_visit_arcs(const i64 *offsets, i64 first, i64 last, i64 begin,
                                                i64 count, Visit visit) {
    const i64 warps = grid_warps();
    for (i64 tile = grid_warp(); tile * TILE < count; tile += warps) {
        const i64 from = begin + tile * TILE;
        const i64 to = from + TILE < begin + count ? from + TILE : begin + count;
        const i64 low = thread_row_of(offsets, first, last, from);
        const i64 high = thread_row_of(offsets, low, last, to - 1);
        for (i64 arc = from + lane_id(); arc < to; arc += WARP)
            visit(arc, thread_row_of(offsets, low, high, arc));
    }
}
