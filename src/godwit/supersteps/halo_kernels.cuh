// Places of halos, and rows that name them: the kernels that supersteps/halos.py starts. Encoding:
// supersteps/halos.cuh. What includes this file says what Id is.
#pragma once

#include "graph/cuda/tiles.cuh"
#include "supersteps/halos.cuh"

extern "C" __global__ void count_needs(const u32 *needs, i64 words, u64 *counts) {
    for (i64 word = grid_thread(); word < words; word += grid_threads())
        counts[word] = __popc(needs[word]);
}
extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }

// `before` has, for each word, how many positions are needed before it, and of how many in all; `begins` gets
// where each owner's vertices begin, and where the last ones end. Own vertices take the first `owned` places.
extern "C" __global__ void write_places(const u64 *before, i64 words, i64 words_of_owner, i64 owned,
                                        Id *places, i64 *begins) {
    for (i64 word = grid_thread(); word <= words; word += grid_threads()) {
        const i64 place = owned + static_cast<i64>(before[word]);
        if (word < words) places[word] = static_cast<Id>(place);
        if (word % words_of_owner == 0) begins[word / words_of_owner] = place;
    }
}

// Positions become places: own ones the own index. `local` may be the same array.
extern "C" __global__ void localize_targets(const Id *targets, i64 arcs, i64 first, i64 capacity,
                                            const u32 *needs, const Id *places, Id *local) {
    for (i64 arc = grid_thread(); arc < arcs; arc += grid_threads()) {
        const i64 position = targets[arc], own = position - first;
        const bool is_own = own >= 0 && own < capacity;
        local[arc] = static_cast<Id>(is_own ? own : halo_place(needs, places, position));
    }
}
