// Where a device that has room for its own vertices and its halo keeps the value of a position.
//
// Encoding: the *halo* of a device are the positions of others that it reads. Its own vertices come first, by
// own index, then the halo in the order of positions: what it reads of one owner is one range. `needs` is a
// bitmap of positions, `places` has, for each word of it, where the halo goes on. An owner has both for its own
// range and each device, one behind the other (supersteps/halos.py).
#pragma once

#include "runtime/cuda/include/memory.cuh"

// Of a position that is needed.
template <class Id>
__device__ __forceinline__ i64 halo_place(const u32 *needs, const Id *places, i64 position) {
    const u32 before = needs[position >> 5] & ((1u << (position & 31)) - 1);
    return static_cast<i64>(places[position >> 5]) + __popc(before);
}
