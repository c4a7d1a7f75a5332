// Order of weights as 32 bits, in which rows are sorted: where one weight is below another, its key is not above.
#pragma once

#include "runtime/cuda/include/memory.cuh"

__device__ __forceinline__ u32 key_of(float number) {
    return __float_as_uint(number + 0.0f);  // -0.0 becomes 0.0
}

__device__ __forceinline__ u32 key_of(double number) {
    return static_cast<u32>(static_cast<u64>(__double_as_longlong(number + 0.0)) >> 32);
}

__device__ __forceinline__ u32 key_of(i32 number) { return static_cast<u32>(number); }
__device__ __forceinline__ u32 key_of(u32 number) { return number; }
__device__ __forceinline__ u32 key_of(i64 number) { return key_of(static_cast<double>(number)); }
__device__ __forceinline__ u32 key_of(u64 number) { return key_of(static_cast<double>(number)); }

// The largest key of weights that are at most `bound`, a distance.
template <class Weight, class Value>
__device__ __forceinline__ u32 key_up_to(Value bound) {
    if constexpr (is_float<Weight>) {
        return key_of(static_cast<Weight>(bound));
    } else if constexpr (sizeof(Weight) == 8) {
        return key_of(static_cast<double>(bound));
    } else {
        return bound >= static_cast<Value>(0x7fffffff) ? 0xffffffffu
                                                       : static_cast<u32>(static_cast<i64>(bound));
    }
}
