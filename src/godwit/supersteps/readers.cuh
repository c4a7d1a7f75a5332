// Where a vertex is read: an owner stores what it computes at itself, and at the devices that read it.
//
// Encoding: `readers` of an owner has a bitmap of its own vertices for each device, of capacity / 32 words
// (supersteps/reader_kernels.cuh makes them, before any run).
#pragma once

#include "supersteps/step.cuh"

__device__ __forceinline__ bool is_read_at(const Stage &stage, const u32 *readers, u32 device,
                                           i64 own) {
    const u32 *bits = readers + device * (stage.capacity / 32);
    return bits[own >> 5] >> (own & 31) & 1;
}
