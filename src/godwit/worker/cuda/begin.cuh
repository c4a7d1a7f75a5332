// The beginning of a run: each device makes its own initial state.
//
// No device waits for another here: others store into a device's mailboxes and boards only, which are not
// cleared. Items of earlier runs are never read, since control words count the items of a run; meetings are
// counted over all runs.
#pragma once

#include "worker/cuda/meeting.cuh"

template <class T>
__device__ __forceinline__ void grid_fill(T *values, T value, i64 count) {
    i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count; i += stride)
        values[i] = value;
}

// Set the first `ones` bits of a bitmap, and clear the others.
__device__ __forceinline__ void grid_fill_bits(u32 *words, i64 bits, i64 ones) {
    i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i * 32 < bits;
         i += stride) {
        i64 count = min(max(ones - i * 32, 0ll), 32ll);
        words[i] = count == 32 ? FULL_WARP : (1u << count) - 1;
    }
}

// Reset the control words of a run, and copy its parameters.
template <class P>
__device__ __forceinline__ void block_begin(const Part<P> &part) {
    Control *control = part.control;
    for (u32 i = threadIdx.x; i < part.request.parameter_count; i += blockDim.x)
        part.parameters[i] = load_system(&part.request.parameters[i]);
    for (u32 i = threadIdx.x; i < COUNTERS; i += blockDim.x) control->counters[i] = 0;
    if (threadIdx.x < MAX_DEVICES) {
        control->outgoing[threadIdx.x] = 0;
        control->relayed[threadIdx.x] = 0;
        for (u32 last = 0; last < MAX_DEVICES; last++) control->incoming[threadIdx.x][last] = 0;
    }
    if (threadIdx.x == 0) {
        control->hub_cursor = 0;
        control->limit = part.request.limit;
        control->lowest = NO_KEY;
        control->overflow = 0;
        control->round = 0;
        control->bound = -__int_as_float(0x7f800000);
        const Window window = first_window(part);
        control->window = window.width;
        control->hops = window.hops;
        control->trials = window.trials;
    }
}

// Make a device's initial state. Called by all blocks.
template <class P>
__device__ __noinline__ void grid_begin(const Part<P> &part, u64 *shared_word) {
    using Value = typename P::Value;
    const Request<P> &request = part.request;
    if (request.fills_values)
        grid_fill(part.values, value_of_bits<Value>(request.value), part.owned);
    if constexpr (P::has_field) {
        if (request.fills_fields)
            grid_fill(part.fields, value_of_bits<typename P::Field>(request.field), part.owned);
    }
    grid_fill(part.halo_values, P::identity(), part.halo);
    grid_fill_bits(part.halo_pending, part.halo, 0);
    grid_fill_bits(part.pending, part.owned, request.all_pending ? part.owned : 0);
    if (blockIdx.x == 0) block_begin(part);
    if (!request.seed_count) return;
    grid_wait(part.control, shared_word);
    i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    i64 first = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x;
    for (i64 i = first; i < request.seed_count; i += stride) {
        i64 vertex = load_system(&request.seeds[i]);
        part.values[vertex] = load_system(&request.seed_values[i]);
        set_bits(&part.pending[vertex >> 5], 1u << (vertex & 31));
    }
}
