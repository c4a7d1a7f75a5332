// Facts about rows that lie in a GPU's memory. CPU counterparts: graph/csr.py, graph/facts.py; host code:
// stored.py, whose generated source says what Id (of a target) and Word (the bits of a weight) are.
#pragma once

#include "graph/cuda/tiles.cuh"

extern "C" __global__ void clear(u64 *words, i64 count) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) words[i] = 0;
}

extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }

// Raise `*wrong`, which is 0, if the arrays are not `rows` rows of `count` arcs to as many vertices.
extern "C" __global__ void check_rows(const i64 *offsets, i64 rows, const Id *targets, i64 count,
                                      u64 *wrong) {
    bool is_wrong = grid_thread() == 0 && (offsets[0] != 0 || offsets[rows] != count);
    for (i64 v = grid_thread(); v < rows; v += grid_threads())
        is_wrong |= offsets[v] > offsets[v + 1];
    for (i64 i = grid_thread(); i < count; i += grid_threads())
        is_wrong |= targets[i] < 0 || targets[i] >= rows;
    if (is_wrong) atomicAdd(wrong, 1ull);
}

// Add the number of arcs to each vertex to `counts`.
extern "C" __global__ void count_targets(const Id *targets, i64 count, u64 *counts) {
    for (i64 i = grid_thread(); i < count; i += grid_threads())
        atomicAdd(counts + targets[i], 1ull);
}

__device__ __forceinline__ u64 thread_mix_again(u64 word) {
    word = (word ^ (word >> 29)) * 0xd6e8feb86659fd93ull;
    return word ^ (word >> 32);
}

// Add x(u) y(v) w, x(u) z(v) w, y(u) x(v) w and z(u) x(v) w of all arcs u -> v to the four `sums`: w is 1, or
// a hash of the weight; x, y and z are hashes of vertices.
extern "C" __global__ void sum_directions(const i64 *offsets, i64 rows, const Id *targets,
                                          i64 count, const Word *weights, u64 is_weighted, u64 seed,
                                          u64 *sums) {
    u64 mine[4] = {0, 0, 0, 0};
    grid_visit_arcs(offsets, 0, rows - 1, 0, count, [&](i64 arc, i64 v) {
        const u64 from_x = thread_mix(seed ^ static_cast<u64>(v));
        const u64 from_y = thread_mix_again(from_x), from_z = thread_mix_again(from_y);
        u64 x = thread_mix(seed ^ static_cast<u64>(targets[arc]));
        u64 y = thread_mix_again(x), z = thread_mix_again(y);
        if (is_weighted) {
            const i64 bits = sizeof(Word) == 4 ? static_cast<i64>(static_cast<int>(weights[arc]))
                                               : static_cast<i64>(weights[arc]);
            const u64 w = thread_mix(seed + static_cast<u64>(bits));
            x *= w;
            y *= w;
            z *= w;
        }
        mine[0] += from_x * y;
        mine[1] += from_x * z;
        mine[2] += from_y * x;
        mine[3] += from_z * x;
    });
    for (u32 k = 0; k < 4; k++) {
        const u64 total = warp_sum_up_to(mine[k]);
        if (lane_id() == WARP - 1) atomicAdd(&sums[k], total);
    }
}
