// A VertexProgram on the device: checked conversions of numbers, values that improve or accumulate,
// priorities.
//
// The generated `Program` (program.py) has the types Value, Field, Weight, Id, the constants accumulates,
// maximizes, bitwise, has_field, weighted, prioritized, …, and the operators, compiled from Python, with
// the types that Numba inferred for their results. There are two kinds of program, as on the CPU
// (worker/cpu/relax.py):
//
// - improving (min, max, or, and): a value only improves, so items may arrive in any order and twice.
//   `bitwise` programs combine bits: by "or" if they maximize, otherwise by "and";
// - accumulating (add): messages add up; processing takes the value, leaving zero.
#pragma once

#include "runtime/cuda/include/bitwise.cuh"

// Convert integers to 64 bits, as Numba does in operators.
template <class T>
__device__ __forceinline__ auto wide(T number) {
    if constexpr (is_float<T>)
        return number;
    else
        return static_cast<i64>(number);
}

template <class T>
struct Limits;
template <>
struct Limits<i32> {
    static constexpr i64 low = -2147483647ll - 1, high = 2147483647ll;
};
template <>
struct Limits<u32> {
    static constexpr i64 low = 0, high = 4294967295ll;
};
template <>
struct Limits<i64> {
    static constexpr i64 low = -9223372036854775807ll - 1, high = 9223372036854775807ll;
};

// Return true if an integer type holds a number of any type; NaN fits none.
template <class Integer, class Wide>
__device__ __forceinline__ bool fits(Wide wide) {
    if constexpr (is_float<Wide>) {
        // The largest value plus one is a power of two, which is exact.
        return wide >= static_cast<Wide>(Limits<Integer>::low) &&
               wide < static_cast<Wide>(Limits<Integer>::high / 2 + 1) * 2;
    } else if constexpr (static_cast<Wide>(-1) > static_cast<Wide>(0)) {
        return static_cast<u64>(wide) <= static_cast<u64>(Limits<Integer>::high);
    } else {
        i64 number = static_cast<i64>(wide);
        return number >= Limits<Integer>::low && number <= Limits<Integer>::high;
    }
}

// Convert a number to a value. An integer that does not fit sets the overflow flag, which ends the run at
// the next meeting. Until then the identity replaces it, which improves nothing and adds nothing: so a
// number that does not fit is never stored, and no cycle of arcs keeps improving by it.
template <class P, class Wide>
__device__ __forceinline__ typename P::Value to_value(Wide wide, u32 *overflow) {
    using Value = typename P::Value;
    if constexpr (!is_float<Value>) {
        if (!fits<Value>(wide)) {
            *reinterpret_cast<volatile u32 *>(overflow) = 1;
            return P::identity();
        }
    }
    return static_cast<Value>(wide);
}

// Return the sum of two values; of integers that overflow, set the word and return the identity.
template <class P>
__device__ __forceinline__ typename P::Value to_sum(typename P::Value old, typename P::Value amount,
                                                    u32 *overflow) {
    if constexpr (is_float<typename P::Value>) return old + amount;
    i64 a = static_cast<i64>(old), b = static_cast<i64>(amount);
    i64 sum = static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
    if ((a < 0) == (b < 0) && (sum < 0) != (a < 0)) {  // 64 bits wrapped around
        *reinterpret_cast<volatile u32 *>(overflow) = 1;
        return P::identity();
    }
    return to_value<P>(sum, overflow);
}

// Convert the message of a vertex's value to a value. For min and max of integers the identity does not fit
// either, since it means "not reached".
template <class P, class Wide>
__device__ __forceinline__ typename P::Value to_message(Wide wide, typename P::Value value,
                                                        u32 *overflow) {
    using Value = typename P::Value;
    Value made = to_value<P>(wide, overflow);
    if constexpr (!is_float<Value> && !P::accumulates && !P::bitwise) {
        if (made == P::identity() && value != P::identity())
            *reinterpret_cast<volatile u32 *>(overflow) = 1;
    }
    return made;
}

template <class P>
__device__ __forceinline__ bool improves(typename P::Value candidate, typename P::Value current) {
    if constexpr (P::bitwise)
        return P::maximizes ? (candidate & ~current) != 0 : (~candidate & current) != 0;
    else
        return P::maximizes ? candidate > current : candidate < current;
}

template <class T>
__device__ __forceinline__ bool same_bits(T left, T right) {
    if constexpr (sizeof(T) == 8) {
        u64 a, b;
        memcpy(&a, &left, 8);
        memcpy(&b, &right, 8);
        return a == b;
    } else {
        u32 a, b;
        memcpy(&a, &left, 4);
        memcpy(&b, &right, 4);
        return a == b;
    }
}

// Replace a word of 4 or 8 bytes if it has the expected value; return its old value.
template <class T>
__device__ __forceinline__ T thread_compare_exchange(T *place, T expected, T desired) {
    T found;
    if constexpr (sizeof(T) == 8) {
        u64 before, after, seen;
        memcpy(&before, &expected, 8);
        memcpy(&after, &desired, 8);
        seen = atomicCAS(reinterpret_cast<u64 *>(place), before, after);
        memcpy(&found, &seen, 8);
    } else {
        u32 before, after, seen;
        memcpy(&before, &expected, 4);
        memcpy(&after, &desired, 4);
        seen = atomicCAS(reinterpret_cast<u32 *>(place), before, after);
        memcpy(&found, &seen, 4);
    }
    return found;
}

// Set a value to the candidate if that is better; return true if it was.
template <class P>
__device__ __forceinline__ bool thread_improve(typename P::Value *place,
                                               typename P::Value candidate) {
    using Value = typename P::Value;
    if constexpr (is_float<Value>) {
        Value current = load_relaxed(place);
        while (improves<P>(candidate, current)) {
            Value found = thread_compare_exchange(place, current, candidate);
            if (same_bits(found, current)) return true;
            current = found;
        }
        return false;
    } else {
        Value old = P::maximizes ? atomicMax(place, candidate) : atomicMin(place, candidate);
        return improves<P>(candidate, old);
    }
}

// Combine a value with the candidate; return true if that improved it. The candidate is then the new value.
template <class P>
__device__ __forceinline__ bool thread_combine(typename P::Value *place,
                                               typename P::Value &candidate) {
    if constexpr (P::bitwise) {
        const auto old = P::maximizes ? thread_or(place, candidate) : thread_and(place, candidate);
        const bool is_better = improves<P>(candidate, old);
        candidate = P::maximizes ? candidate | old : candidate & old;
        return is_better;
    } else {
        return thread_improve<P>(place, candidate);
    }
}

// Add to a value; what it was before.
template <class Value>
__device__ __forceinline__ Value thread_add(Value *place, Value amount) {
    if constexpr (sizeof(Value) == 8 && !is_float<Value>)
        return static_cast<Value>(
            atomicAdd(reinterpret_cast<u64 *>(place), static_cast<u64>(amount)));
    else
        return atomicAdd(place, amount);
}

// Take a value, leaving zero.
template <class Value>
__device__ __forceinline__ Value thread_take(Value *place) {
    if constexpr (sizeof(Value) == 8) {
        u64 bits = atomicExch(reinterpret_cast<u64 *>(place), 0ull);
        Value value;
        memcpy(&value, &bits, 8);
        return value;
    } else {
        u32 bits = atomicExch(reinterpret_cast<u32 *>(place), 0u);
        Value value;
        memcpy(&value, &bits, 4);
        return value;
    }
}

// Replace a field by `update` of it; return the new one.
template <class P>
__device__ __forceinline__ typename P::Field thread_update(typename P::Field *place,
                                                           typename P::Value value,
                                                           const double *parameters,
                                                           u32 *overflow) {
    // Another thread may take the vertex's next value before this one has stored the field.
    using Field = typename P::Field;
    Field old = load_relaxed(place);
    while (true) {
        auto wide = P::update(old, value, parameters);
        Field made = static_cast<Field>(wide);
        if constexpr (!is_float<Field>) {
            if (!fits<Field>(wide)) {
                *reinterpret_cast<volatile u32 *>(overflow) = 1;
                made = old;
            }
        }
        Field found = thread_compare_exchange(place, old, made);
        if (same_bits(found, old)) return made;
        old = found;
    }
}

// Priorities are float32: a hint, whose rounding changes the order of work only. Keys order priorities as
// integers: smaller is sooner, NaN is first, and NO_KEY means no work.
constexpr u32 NO_KEY = 0xffffffffu;

template <class P>
__device__ __forceinline__ float priority_of(typename P::Value value) {
    if constexpr (P::prioritized)
        return static_cast<float>(P::priority(value));
    else
        return 0.0f;
}

__device__ __forceinline__ u32 key_of(float priority) {
    if (priority != priority) return 0;
    u32 bits = __float_as_uint(priority);
    return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float priority_of_key(u32 key) {
    if (key == 0) return -__int_as_float(0x7f800000);
    return __uint_as_float((key & 0x80000000u) ? key ^ 0x80000000u : ~key);
}
