// Sets of vertices as bits, and lists made of them.
//
// A *span* is the 32 words that the lanes of a warp hold together. The words of a span are 2^unit_shift
// neighbours, then those of the next unit of this warp: units are dealt out to the warps of the grid in turn,
// so that a part of the graph with much work is shared by many.
#pragma once

#include "runtime/cuda/include/warp.cuh"

struct Spans {
    i64 words;
    u32 unit_shift;
    u64 warps;  // of the grid
    u64 warp;

    __device__ __forceinline__ Spans(i64 bits, u32 shift)
        : words((bits + 31) / 32), unit_shift(shift) {
        warps = static_cast<u64>(gridDim.x) * (blockDim.x / WARP);
        // Neighbouring units go to different blocks.
        warp = static_cast<u64>(warp_id()) * gridDim.x + blockIdx.x;
    }
    // The word that a lane holds in the warp's span of this number.
    __device__ __forceinline__ i64 word_of(i64 span, u32 lane) const {
        u64 unit =
            ((static_cast<u64>(span) << (5 - unit_shift)) + (lane >> unit_shift)) * warps + warp;
        return static_cast<i64>((unit << unit_shift) + (lane & ((1u << unit_shift) - 1)));
    }
    __device__ __forceinline__ i64 count() const {
        u64 units = (static_cast<u64>(words) + (1u << unit_shift) - 1) >> unit_shift;
        u64 per_warp = (units + warps - 1) / warps;
        return static_cast<i64>((per_warp + (1u << (5 - unit_shift)) - 1) >> (5 - unit_shift));
    }
};

// List the set bits of the lanes' words, as lane << 5 | bit, in order. Returns how many there are. `list` has
// room for 1,024 and belongs to the warp.
__device__ __forceinline__ u32 warp_list_bits(u32 word, u16 *list) {
    u32 lane = lane_id();
    u32 count = __popc(word);
    u32 end = warp_sum_up_to(count);
    u32 at = end - count;
    __syncwarp();
    while (word) {
        u32 bit = __ffs(word) - 1;
        word &= word - 1;
        list[at++] = static_cast<u16>(lane << 5 | bit);
    }
    __syncwarp();
    return __shfl_sync(FULL_WARP, end, WARP - 1);
}
