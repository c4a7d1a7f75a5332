// Grid barrier.
//
// The last block to arrive does the work of one block, then releases the others with one word, which has the
// decision how to continue. Invariant: `arrived` counts the blocks of one meeting; only the last one resets
// it, before the release that lets anyone arrive again. Every block's writes before its arrival are seen by
// all after the release: fence and atomic by the arriving, acquire by the waiting thread, and the barrier of
// the block on both sides. So after a meeting ordinary loads (not load_once) see what was written before it.
#pragma once

#include "runtime/cuda/include/warp.cuh"

constexpr u32 MAX_DEVICES = 16;

#ifndef ONE_DEVICE
#define ONE_DEVICE false
#endif
// Whether devices meet, and reach each other's memory: one device has less code to compile.
constexpr bool HAS_PEERS = !ONE_DEVICE;

// How a launch ended.
enum Status : u32 { RUNNING, FINISHED, LEFT, PEER_LOST };

// The release word: generation << 40 | flags << 32 | the decision.
constexpr u32 FLAG_STOP = 1;
constexpr u32 FLAG_SPARSE = 2;

struct Meeting {
    u64 word;
    __device__ __forceinline__ bool stops() const { return (word >> 32) & FLAG_STOP; }
    __device__ __forceinline__ bool is_sparse() const { return (word >> 32) & FLAG_SPARSE; }
    __device__ __forceinline__ float bound() const {
        return __uint_as_float(static_cast<u32>(word));
    }
    __device__ __forceinline__ u32 phase() const { return static_cast<u32>(word); }
};

// Flags of reports between devices.
constexpr u32 FLAG_LEAVE = 1, FLAG_OVERFLOW = 2, FLAG_LOST = 4, FLAG_DENSE = 8;
constexpr u64 ASK_HOST_NS = 1000000;
constexpr u32 ARRIVAL_BITS = 16;  // blocks fit below, what is pending above

// All blocks meet; `last_warp` is called by the first warp of the last block, and returns flags << 32 | bound.
// Every thread of the block must call it. `pending` is added up over the blocks.
template <class Control, class Action>
__device__ __forceinline__ Meeting grid_meet(Control *control, u64 *shared_word, u32 pending,
                                             bool across_devices, Action last_warp) {
    block_delay(1);
    __syncthreads();
    if (warp_id() == 0) {
        u64 generation = 0, ticket = 0;
        if (lane_id() == 0) {
            generation = load_relaxed(&control->release) >> 40;
            if (across_devices)
                __threadfence_system();
            else
                __threadfence();
            ticket = atomicAdd(&control->arrived, (static_cast<u64>(pending) << ARRIVAL_BITS) + 1);
            __threadfence();
        }
        ticket = __shfl_sync(FULL_WARP, ticket, 0);
        __syncwarp();
        u64 word;
        if ((ticket & ((1u << ARRIVAL_BITS) - 1)) == gridDim.x - 1) {
            u64 waiting = (ticket >> ARRIVAL_BITS) + pending;
            word = last_warp(waiting);
            if (lane_id() == 0) {
                control->arrived = 0;
                word |= ((generation + 1) & 0xffffff) << 40;
                store_release(&control->release, word);
            }
        } else if (lane_id() == 0) {
            do {
                word = load_acquire(&control->release);
            } while ((word >> 40) == generation);
        }
        if (lane_id() == 0) *shared_word = word;
    }
    __syncthreads();
    return Meeting{*shared_word};
}

// A meeting that decides nothing; returns for how long the block waited, in cycles.
template <class Control>
__device__ __forceinline__ u64 grid_wait(Control *control, u64 *shared_word) {
    u64 arrival = clock64();
    grid_meet(control, shared_word, 0, false, [&](u64) -> u64 { return 0; });
    return clock64() - arrival;
}
