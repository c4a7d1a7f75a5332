// What supersteps/hubs.py starts: the arcs from hubs to own vertices, found in the rows of these, where
// hubs are the first targets. What includes this file says what Id (of a position) is.
//
// Every member of a launch's arguments has 8 bytes, as Python hands them over.
#pragma once

#include "graph/cuda/tiles.cuh"

// For each of the first arcs of own rows that leads to a hub: `take(hub, own index)`.
template <class Take>
__device__ __forceinline__ void grid_visit_hubs(const i64 *offsets, const Id *targets, i64 rows,
                                                i64 capacity, i64 hubs, Take take) {
    for (i64 row = grid_thread(); row < rows; row += grid_threads()) {
        for (i64 arc = offsets[row]; arc < offsets[row + 1]; arc++) {
            const i64 target = targets[arc], owner = target / capacity;
            const i64 index = target - owner * capacity;
            if (index >= hubs) break;
            take(owner * hubs + index, row);
        }
    }
}

extern "C" __global__ void count_hub_arcs(const i64 *offsets, const Id *targets, i64 rows, i64,
                                          i64 capacity, i64 hubs, u64 *counts) {
    grid_visit_hubs(offsets, targets, rows, capacity, hubs,
                    [=](i64 hub, i64) { atomicAdd(counts + hub, 1ull); });
}

extern "C" __global__ void place_hub_arcs(const i64 *offsets, const Id *targets, i64 rows,
                                          i64 first, i64 capacity, i64 hubs, u64 *cursors,
                                          Id *hub_targets) {
    grid_visit_hubs(offsets, targets, rows, capacity, hubs, [=](i64 hub, i64 row) {
        hub_targets[atomicAdd(cursors + hub, 1ull)] = static_cast<Id>(first + row);
    });
}
