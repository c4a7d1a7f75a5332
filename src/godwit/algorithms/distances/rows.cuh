// Rows of distances, a value for each position: delivered in the order of columns, or summed.
#pragma once

#include "supersteps/step.cuh"

// Fields of sums over a row, u64 each; lengths have no fractions, and floating-point totals and reciprocals.
constexpr u32 COUNT = 0, TOTAL = 1, LARGEST = 2, RECIPROCALS = 3, FRACTIONS = 4, FIELDS = 5;

constexpr i64 TILE_COLUMNS = 4096;  // of a task of one block

// Write `results[row][column]` from `values[row][positions[column]]`.
template <class Value, class Result, class Convert>
__device__ __forceinline__ void team_deliver(const Team &team, const Value *values, i64 stride,
                                             u64 rows, const Id *positions, i64 columns,
                                             Result *results, Convert convert) {
    u64 tiles = static_cast<u64>((columns + TILE_COLUMNS - 1) / TILE_COLUMNS);
    for (u64 task = team.block; task < rows * tiles; task += team.blocks) {
        i64 row = static_cast<i64>(task / tiles);
        i64 begin = static_cast<i64>(task % tiles) * TILE_COLUMNS;
        i64 end = min(begin + TILE_COLUMNS, columns);
        for (i64 column = begin + threadIdx.x; column < end; column += blockDim.x)
            results[row * columns + column] = convert(values[row * stride + positions[column]]);
    }
}

// Parts of 1 / distance: units of 2^-32, and the 32 bits that follow.
struct Reciprocal {
    u64 units;
    u64 fractions;
    __device__ __forceinline__ explicit Reciprocal(u64 distance) : units(0), fractions(0) {
        if (distance == 0) return;
        units = (1ull << 32) / distance;
        fractions = (((1ull << 32) % distance) << 32) / distance;
    }
};

// Add a thread's sums to those of a row: integers.
__device__ __forceinline__ void thread_add_sums(u64 *row, const u64 (&sums)[FIELDS]) {
    for (u32 field = 0; field < FIELDS; field++) {
        if (field == LARGEST)
            atomicMax(row + field, sums[field]);
        else
            atomicAdd(row + field, sums[field]);
    }
}

// Sum numbers of arcs over each row, by one block: integers, whose sums do not depend on the order.
// `hops(value)` is the number of arcs, or a negative number for a vertex that is not reached.
// `wanted` has a bit for each position that counts; null: all do.
template <class Value, class Hops>
__device__ __forceinline__ void team_sum_hops(const Team &team, const Value *values, i64 stride,
                                              u64 rows, i64 positions, u64 *sums, const u32 *wanted,
                                              Hops hops) {
    __shared__ u64 totals[FIELDS];
    for (u64 row = team.block; row < rows; row += team.blocks) {
        __syncthreads();
        if (threadIdx.x < FIELDS) totals[threadIdx.x] = 0;
        __syncthreads();
        u64 mine[FIELDS] = {};
        for (i64 position = threadIdx.x; position < positions; position += blockDim.x) {
            i64 distance = hops(values[static_cast<i64>(row) * stride + position]);
            if (distance < 0 || (wanted && !has_bit(wanted, position))) continue;
            Reciprocal reciprocal(static_cast<u64>(distance));
            mine[COUNT] += 1;
            mine[TOTAL] += static_cast<u64>(distance);
            mine[LARGEST] = max(mine[LARGEST], static_cast<u64>(distance));
            mine[RECIPROCALS] += reciprocal.units;
            mine[FRACTIONS] += reciprocal.fractions;
        }
        for (u32 field = 0; field < FIELDS; field++) {
            if (field == LARGEST) {
                if (mine[field]) atomicMax(&totals[field], mine[field]);
                continue;
            }
            u64 total = warp_sum(mine[field]);
            if (lane_id() == 0) atomicAdd(&totals[field], total);
        }
        __syncthreads();
        if (threadIdx.x < FIELDS) sums[row * FIELDS + threadIdx.x] = totals[threadIdx.x];
    }
}
