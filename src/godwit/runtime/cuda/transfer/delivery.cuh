// Values into results: the kernel of runtime/cuda/transfer/delivery.py. The including source defines Value, Result (the
// same type, or one that values are converted to), Id (of positions), and BOUNDED and MAXIMIZES: if BOUNDED,
// the identity, and values beyond the limit, become `never`; beyond is below the limit if MAXIMIZES, else above.
#pragma once

#include "runtime/cuda/include/memory.cuh"

struct DeliveryArguments {
    const Value *values;
    const Id *
        positions;  // of each result among the values; null: results are in the order of the values
    Result *results;  // in the memory of this GPU, or in page-locked memory of the host
    i64 count;
    const Value *others;  // are read instead if the number at `turn` is odd
    const u64 *turn;      // null: the values are read
    const Value *joined;  // null: all are read above; else those of positions that are not own
    i64 first;            // the first own position, and the number of own ones
    i64 owned;
    Value limit;
    Value identity;
    Result never;
};

__device__ __forceinline__ Result thread_result(Value value, const DeliveryArguments &given) {
    if constexpr (BOUNDED) {
        bool beyond = MAXIMIZES ? value < given.limit : value > given.limit;
        if (beyond || value == given.identity) return given.never;
    }
    return static_cast<Result>(value);
}

// Results of a thread that are read at a time: reads at random positions take long.
constexpr int RESULTS_PER_THREAD = 4;

extern "C" __global__ void deliver(const __grid_constant__ DeliveryArguments given) {
    const i64 block = static_cast<i64>(blockDim.x) * RESULTS_PER_THREAD;
    const i64 stride = gridDim.x * block;
    const Value *values = given.turn && (*given.turn & 1) ? given.others : given.values;
    const Value *joined = given.joined ? given.joined : values;
    // Neighbouring threads write neighbouring results: whole lines go over the bus.
    for (i64 first = blockIdx.x * block + threadIdx.x; first < given.count; first += stride) {
        i64 at[RESULTS_PER_THREAD];
        Value value[RESULTS_PER_THREAD];
#pragma unroll
        for (int k = 0; k < RESULTS_PER_THREAD; k++) {
            const i64 i = first + static_cast<i64>(k) * blockDim.x;
            at[k] = i >= given.count ? 0 : given.positions ? given.positions[i] : i;
        }
#pragma unroll
        for (int k = 0; k < RESULTS_PER_THREAD; k++) {
            const bool is_own =
                static_cast<u64>(at[k] - given.first) < static_cast<u64>(given.owned);
            value[k] = (is_own ? values : joined)[at[k]];
        }
#pragma unroll
        for (int k = 0; k < RESULTS_PER_THREAD; k++) {
            const i64 i = first + static_cast<i64>(k) * blockDim.x;
            if (i < given.count) given.results[i] = thread_result(value[k], given);
        }
    }
}
