// Random numbers as a function of a counter: the CPU's (graph/hashing.py, graph/generators/common.py),
// bit by bit, so that a graph does not depend on where it is made.
//
// `thread_mix` is the finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, OOPSLA 2014, with Stafford's variant 13 constants).
#pragma once

#include "runtime/cuda/include/warp.cuh"

constexpr u32 SCRAMBLE_ROUNDS = 4;

__device__ __forceinline__ u64 thread_mix(u64 word) {
    word += 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

// A hash as a double in [0, 1): exact.
__device__ __forceinline__ double thread_unit(u64 word) {
    return static_cast<double>(word >> 11) * 0x1p-53;
}

// A bijection of words of `bits` bits. Its keys are made once a thread.
struct Scramble {
    u64 keys[SCRAMBLE_ROUNDS];
    u64 mask;
    u32 down;

    __device__ __forceinline__ Scramble(u32 bits, u64 seed)
        : mask((1ull << bits) - 1), down((bits + 1) / 2) {
#pragma unroll
        for (u32 round = 0; round < SCRAMBLE_ROUNDS; ++round)
            keys[round] = thread_mix(seed + round);
    }
    __device__ __forceinline__ u64 of(u64 word) const {
#pragma unroll
        for (u32 round = 0; round < SCRAMBLE_ROUNDS; ++round) {
            word = ((word ^ (keys[round] >> 11)) * (keys[round] | 1)) & mask;
            if (down > 0) word ^= word >> down;
        }
        return word;
    }
};
