// Which devices read a vertex (its subscribers), and in which slot a device with a halo keeps its value.
//
// Encoding: the *halo* of a device is the set of positions of other devices that its rows name. Its slots hold
// its own vertices by local index, then the halo in the order of positions, so the halo vertices of one owner
// are one range. `needs` is a bitmap over all positions with the bits of the halo set; `slots` has, for each word
// of `needs`, the slot of the first halo vertex in that word. Owners get copies (supersteps/halos.py): for each
// device, one after the other, the words of its `needs` and `slots` in the owner's range of positions. There the
// words of `needs` are the owner's *subscriber mask*.
#pragma once

#include "runtime/cuda/include/memory.cuh"

// Return the slot of a position in the halo.
template <class Id>
__device__ __forceinline__ i64 halo_slot(const u32 *needs, const Id *slots, i64 position) {
    const u32 before = needs[position >> 5] & ((1u << (position & 31)) - 1);
    return static_cast<i64>(slots[position >> 5]) + __popc(before);
}

// Return true if `device` reads the vertex of local index `own`, by the owner's subscriber mask.
template <class Stage>
__device__ __forceinline__ bool is_read_at(const Stage &stage, const u32 *mask, u32 device,
                                           i64 own) {
    return has_bit(mask + device * (stage.capacity / 32), own);
}
