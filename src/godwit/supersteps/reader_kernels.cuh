// Which positions a device reads along its arcs: the kernel that supersteps/readers.py starts.
//
// Encoding: `needs` is a bitmap of all positions, of those that this device's rows name as the other end of an
// arc. The words of an owner's range, brought to the owner, tell which of its vertices the device reads: row
// `device` of the owner's `readers`, of capacity / 32 words. What includes this file says what Id is.
#pragma once

#include "graph/cuda/tiles.cuh"

// Mark the targets of all rows. Most are marked already, since hubs have most arcs: they are only looked at.
extern "C" __global__ void mark_targets(const Id *targets, i64 arcs, u32 *needs) {
    for (i64 arc = grid_thread(); arc < arcs; arc += grid_threads()) {
        const i64 position = load_once(&targets[arc]);
        u32 *word = &needs[position >> 5];
        const u32 bit = 1u << (position & 31);
        if (!(load_relaxed(word) & bit)) set_bits(word, bit);
    }
}
