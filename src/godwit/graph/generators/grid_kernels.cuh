// The rows of a percolated grid: counted by tiles, then written. Host code: graph/generators/cuda.py, whose
// generated source says what Id and Weights are.
#pragma once

#include "graph/cuda/tiles.cuh"

// Count the arcs of the vertices of each tile.
extern "C" __global__ void count_neighbours(PercolatedGrid grid, u64 *tiles) {
    const u64 start = thread_mix(grid.seed);
    for (i64 tile = grid_warp(); tile * TILE < grid.vertices; tile += grid_warps()) {
        u32 total = 0;
#pragma unroll 1
        for (i64 v = tile * TILE + lane_id(); v < (tile + 1) * TILE && v < grid.vertices;
             v += WARP) {
            total += __popc(grid.neighbours(start, v));
        }
        const u32 end = warp_sum_up_to(total);
        if (lane_id() == WARP - 1) tiles[tile] = end;
    }
}

extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }

// Write `ends[v]`, and the row of v in ascending order; `tiles` holds the first arc of each tile. `weights`
// is null in a graph without weights.
extern "C" __global__ void write_neighbours(PercolatedGrid grid, const u64 *tiles, Weights rule,
                                            i64 *ends, Id *targets, Weights::Weight *weights) {
    const u64 start = thread_mix(grid.seed), weight_start = thread_mix(rule.seed);
    for (i64 tile = grid_warp(); tile * TILE < grid.vertices; tile += grid_warps()) {
        u64 at = tiles[tile];
#pragma unroll 1
        for (i64 v = tile * TILE + lane_id(); v < (tile + 1) * TILE + lane_id(); v += WARP) {
            u32 directions = v < grid.vertices ? grid.neighbours(start, v) : 0;
            const u32 end = warp_sum_up_to(static_cast<u32>(__popc(directions)));
            if (v < grid.vertices) ends[v] = static_cast<i64>(at + end);
            for (u64 to = at + end - __popc(directions); directions;
                 directions &= directions - 1, ++to) {
                const i64 u = grid.neighbour(v, __ffs(directions) - 1);
                targets[to] = static_cast<Id>(u);
                if (weights) weights[to] = rule.of(thread_edge_word(weight_start, v, u));
            }
            at += __shfl_sync(FULL_WARP, end, WARP - 1);
        }
    }
}
