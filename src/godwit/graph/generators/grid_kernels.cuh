// The rows of a percolated grid, which graph/generators/cuda.py starts: counted by tiles, then
// written. What includes this file says what Id and Weights are.
#pragma once

#include "graph/cuda/build_rows.cuh"

// How many arcs leave the vertices of each tile.
extern "C" __global__ void count_neighbours(PercolatedGrid grid, u64 *tiles) {
    const u64 start = thread_mix(grid.seed);
    for (i64 tile = grid_warp(); tile * TILE < grid.vertices; tile += grid_warps()) {
        u32 total = 0;
#pragma unroll 1
        for (i64 v = tile * TILE + lane_id(); v < (tile + 1) * TILE && v < grid.vertices;
             v += WARP) {
            total += __popc(grid.neighbours(start, v));
        }
        const u32 end = warp_sum_up(total);
        if (lane_id() == WARP - 1) tiles[tile] = end;
    }
}

extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }

// `ends[v]`, and the row of v in order; `tiles` holds where the rows of each tile begin. `weights` is
// null in a graph without.
extern "C" __global__ void write_neighbours(PercolatedGrid grid, const u64 *tiles, Weights rule,
                                            i64 *ends, Id *targets, Weights::Weight *weights) {
    const u64 start = thread_mix(grid.seed), weight_start = thread_mix(rule.seed);
    for (i64 tile = grid_warp(); tile * TILE < grid.vertices; tile += grid_warps()) {
        u64 at = tiles[tile];
#pragma unroll 1
        for (i64 v = tile * TILE + lane_id(); v < (tile + 1) * TILE + lane_id(); v += WARP) {
            u32 found = v < grid.vertices ? grid.neighbours(start, v) : 0;
            const u32 end = warp_sum_up(static_cast<u32>(__popc(found)));
            if (v < grid.vertices) ends[v] = static_cast<i64>(at + end);
            for (u64 to = at + end - __popc(found); found; found &= found - 1, ++to) {
                const i64 u = grid.neighbour(v, __ffs(found) - 1);
                targets[to] = static_cast<Id>(u);
                if (weights) weights[to] = rule.of(thread_edge_word(weight_start, v, u));
            }
            at += __shfl_sync(FULL_WARP, end, WARP - 1);
        }
    }
}
