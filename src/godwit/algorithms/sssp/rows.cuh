// Rows sorted by weight: the kernels that algorithms.sssp.cuda_rows.py starts. The including source defines Id and
// Weight.
//
// Arcs are sorted in ranges of whole rows by `key = (row - first row of the range) << 32 | key of the weight`.
#pragma once

#include "algorithms/sssp/weights.cuh"

__device__ __forceinline__ u64 grid_thread() {
    return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ u64 grid_threads() { return static_cast<u64>(gridDim.x) * blockDim.x; }

// Write the keys of the arcs of `rows` rows from `first_row` on.
extern "C" __global__ void write_weight_keys(const i64 *offsets, const Weight *weights,
                                             i64 first_row, i64 rows, u64 *keys) {
    const i64 begin = offsets[first_row], end = offsets[first_row + rows];
    for (i64 arc = begin + static_cast<i64>(grid_thread()); arc < end;
         arc += static_cast<i64>(grid_threads())) {
        i64 low = first_row,
            high = first_row + rows - 1;  // the row is the last that begins at the arc or before
        while (low < high) {
            const i64 middle = low + (high - low + 1) / 2;
            if (offsets[middle] <= arc) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        keys[arc - begin] = static_cast<u64>(low - first_row) << 32 | key_of(weights[arc]);
    }
}

// Store targets and weights in the order of their keys. Pointers are those of the range.
extern "C" __global__ void take_in_order(const i64 *order, i64 count, const Id *targets,
                                         const Weight *weights, Id *sorted_targets,
                                         Weight *sorted_weights) {
    for (i64 at = static_cast<i64>(grid_thread()); at < count;
         at += static_cast<i64>(grid_threads())) {
        const i64 from = order[at];
        sorted_targets[at] = targets[from];
        sorted_weights[at] = weights[from];
    }
}
