// Atomic "or" and "and" of integers of 4 or 8 bytes, signed or not. They return the old value.
#pragma once

#include "runtime/cuda/include/memory.cuh"

// The unsigned integer of 4 or 8 bytes.
template <u32 bytes>
struct BitsOf {
    using Type = u64;
};
template <>
struct BitsOf<4> {
    using Type = u32;
};

template <class Integer>
__device__ __forceinline__ Integer thread_or(Integer *address, Integer bits) {
    using Bits = typename BitsOf<sizeof(Integer)>::Type;
    return static_cast<Integer>(
        atomicOr(reinterpret_cast<Bits *>(address), static_cast<Bits>(bits)));
}

template <class Integer>
__device__ __forceinline__ Integer thread_and(Integer *address, Integer bits) {
    using Bits = typename BitsOf<sizeof(Integer)>::Type;
    return static_cast<Integer>(
        atomicAnd(reinterpret_cast<Bits *>(address), static_cast<Bits>(bits)));
}
