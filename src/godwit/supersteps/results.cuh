// Values in device order into the order of vertices: the kernel of supersteps/results.py. The including
// source defines Value (in device order), Result (its type in the result) and Id (of a position).
#pragma once

#include "runtime/cuda/include/memory.cuh"

// The results of vertices [first, first + count).
extern "C" __global__ void gather_results(const Value *values, const Id *positions, i64 first,
                                          i64 count, Result *results) {
    const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
        results[i] = static_cast<Result>(values[positions[first + i]]);
}
