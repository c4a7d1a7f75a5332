// What a run leaves in a GPU's memory, to where it is wanted: a page-locked buffer of the host, or the
// array of a result on this GPU.
//
// What includes this file says what Value (of the program), Result (what it becomes: the same type, or a
// wider integer) and Id (of a vertex) are, and which values a program that combines by min or max has
// reached: those that are not its identity and not beyond the limit of the run. All others become `never`.
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

// Results in the order of the values, or each at the place of its vertex where `vertices` are given.
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
