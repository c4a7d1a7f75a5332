// Conversion and copying of results into a page-locked buffer of the host or an array on this GPU.
//
// The including file (results.py) defines Value (the program's type), Result (the same, or a wider
// integer), Id (of vertices), and for programs that combine by min or max BOUNDED and MAXIMIZES: then the
// identity, and values beyond the limit of the run, become `never`.
#pragma once

#include "runtime/cuda/include/memory.cuh"

template <bool bounded, bool maximizes>
__device__ __forceinline__ Result thread_result(Value value, Value limit, Value identity,
                                                Result never) {
    if constexpr (bounded) {
        bool beyond = maximizes ? value < limit : value > limit;
        if (beyond || value == identity) return never;
    }
    return static_cast<Result>(value);
}

// Write results in the order of the values, or, with `vertices`, each at the index of its vertex.
template <bool bounded, bool maximizes>
__device__ __forceinline__ void grid_place_results(const Value *values, const Id *vertices,
                                                   i64 count, Value limit, Value identity,
                                                   Result never, Result *results) {
    i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count; i += stride)
        results[vertices ? static_cast<i64>(vertices[i]) : i] =
            thread_result<bounded, maximizes>(values[i], limit, identity, never);
}

extern "C" __global__ void place_results(const Value *values, const Id *vertices, i64 count,
                                         Value limit, Value identity, Result never,
                                         Result *results) {
    grid_place_results<BOUNDED, MAXIMIZES>(values, vertices, count, limit, identity, never,
                                           results);
}
