// What a run leaves in positions, to the order of vertices: the kernel of supersteps/results.py.
// What includes this file says what Value (of the run), Result (what it becomes) and Id (of a position) are.
#pragma once

#include "runtime/cuda/include/memory.cuh"

// The bits of a value of 4 or 8 bytes, and the value of bits: the low ones, as GPUs are little-endian.
template <class T>
__device__ __forceinline__ u64 thread_bits_of(const T &value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    u64 bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T>
__device__ __forceinline__ T thread_of_bits(u64 bits) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// The results of vertices [first, first + count); where `replaces`, the value of bits `old_bits` becomes the
// result of bits `new_bits`.
extern "C" __global__ void gather_results(const Value *values, const Id *positions, i64 first,
                                          i64 count, u64 replaces, u64 old_bits, u64 new_bits,
                                          Result *results) {
    const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    const Result fresh = thread_of_bits<Result>(new_bits);
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const Value value = values[positions[first + i]];
        const bool old = replaces && thread_bits_of(value) == old_bits;
        results[i] = old ? fresh : static_cast<Result>(value);
    }
}
