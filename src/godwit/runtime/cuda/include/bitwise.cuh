// Atomic "or" and "and" of integers of 4 or 8 bytes, signed or not. They return the old value.
#pragma once

#include "runtime/cuda/include/memory.cuh"

template <class Integer>
__device__ __forceinline__ Integer thread_or(Integer *place, Integer bits) {
    if constexpr (sizeof(Integer) == 8)
        return static_cast<Integer>(
            atomicOr(reinterpret_cast<u64 *>(place), static_cast<u64>(bits)));
    else
        return static_cast<Integer>(
            atomicOr(reinterpret_cast<u32 *>(place), static_cast<u32>(bits)));
}

template <class Integer>
__device__ __forceinline__ Integer thread_and(Integer *place, Integer bits) {
    if constexpr (sizeof(Integer) == 8)
        return static_cast<Integer>(
            atomicAnd(reinterpret_cast<u64 *>(place), static_cast<u64>(bits)));
    else
        return static_cast<Integer>(
            atomicAnd(reinterpret_cast<u32 *>(place), static_cast<u32>(bits)));
}
