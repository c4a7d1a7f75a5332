// A graph's rows in positions (graph/partition/positions.py), made on a device that owns some of them.
//
// Method: rows are counted at their own indexes and summed up. The graph's targets come in chunks, in the
// order of vertices; a warp takes a tile of a chunk and finds the row of each arc by bisection between the
// rows in which the tile begins and ends, so long rows are no work for one warp alone. An arc of an own row
// has its place there, and its order in the row is kept. Rows *hot first* are sorted afterwards, by the
// caller, by `key = (own index - first own index of the range) << hot_bits | hotness`.
//
// Hotness of a position p: (p % capacity) * devices + p / capacity. The lower, the nearer to the front of its
// owner's vertices: of higher degree.
#pragma once

#include "graph/cuda/tiles.cuh"

// How a graph's vertices stand on its devices. Every member has 8 bytes, as Python hands them over.
struct PartitionView {
    i64 device;
    i64 devices;
    i64 capacity;
    i64 owned;
    i64 vertices;  // of the graph

    // The own index of a position; negative or not below the capacity where it is another device's.
    __device__ __forceinline__ i64 own(i64 position) const { return position - device * capacity; }
    __device__ __forceinline__ bool has(i64 own) const { return own >= 0 && own < capacity; }
    __device__ __forceinline__ u64 hotness(i64 position) const {
        const i64 owner = devices == 1 ? 0 : position / capacity;
        return static_cast<u64>((position - owner * capacity) * devices + owner);
    }
    __device__ __forceinline__ i64 position(u64 hotness) const {
        if (devices == 1) return static_cast<i64>(hotness);
        const i64 index = static_cast<i64>(hotness) / devices;
        return (static_cast<i64>(hotness) - index * devices) * capacity + index;
    }
};

// The last of the rows [low, high] that begins at an arc or before it; `low` does.
__device__ __forceinline__ i64 thread_row_of(const i64 *offsets, i64 low, i64 high, i64 arc) {
    while (low < high) {
        const i64 middle = low + (high - low + 1) / 2;
        if (offsets[middle] <= arc) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// The lengths of the own rows, at their own indexes.
template <class Id>
__device__ __forceinline__ void grid_count_rows(const i64 *graph_offsets, const Id *positions,
                                                const PartitionView &standing, i64 *lengths) {
    for (i64 v = grid_thread(); v < standing.vertices; v += grid_threads()) {
        const i64 own = standing.own(positions[v]);
        if (standing.has(own)) lengths[own] = graph_offsets[v + 1] - graph_offsets[v];
    }
}

// The vertex of each own index.
template <class Id>
__device__ __forceinline__ void grid_list_vertices(const Id *positions,
                                                   const PartitionView &standing, Id *vertices) {
    for (i64 v = grid_thread(); v < standing.vertices; v += grid_threads()) {
        const i64 own = standing.own(positions[v]);
        if (standing.has(own)) vertices[own] = static_cast<Id>(v);
    }
}

// The place in own rows of each arc [begin, begin + count) that is one of theirs: `put(arc - begin, place)`.
template <class Id, class Put>
__device__ __forceinline__ void grid_place_own_arcs(const i64 *graph_offsets, const Id *positions,
                                                    const PartitionView &standing,
                                                    const i64 *offsets, i64 begin, i64 count,
                                                    Put put) {
    const i64 warps = grid_warps(), last = standing.vertices - 1;
    for (i64 tile = grid_warp(); tile * TILE < count; tile += warps) {
        const i64 from = begin + tile * TILE;
        const i64 to = from + TILE < begin + count ? from + TILE : begin + count;
        const i64 low = thread_row_of(graph_offsets, 0, last, from);
        const i64 high = thread_row_of(graph_offsets, low, last, to - 1);
        for (i64 arc = from + lane_id(); arc < to; arc += WARP) {
            const i64 v = thread_row_of(graph_offsets, low, high, arc);
            const i64 own = standing.own(positions[v]);
            if (standing.has(own)) put(arc - begin, offsets[own] + arc - graph_offsets[v]);
        }
    }
}

// The keys by which the arcs [begin, begin + count) of own rows, of which `first_row` is the first, are sorted.
template <class Id>
__device__ __forceinline__ void grid_write_hot_keys(const i64 *offsets, const Id *targets,
                                                    const PartitionView &standing, i64 first_row,
                                                    i64 row_count, u32 hot_bits, i64 begin,
                                                    i64 count, u64 *keys) {
    const i64 warps = grid_warps(), last = first_row + row_count - 1;
    for (i64 tile = grid_warp(); tile * TILE < count; tile += warps) {
        const i64 from = begin + tile * TILE;
        const i64 to = from + TILE < begin + count ? from + TILE : begin + count;
        const i64 low = thread_row_of(offsets, first_row, last, from);
        const i64 high = thread_row_of(offsets, low, last, to - 1);
        for (i64 arc = from + lane_id(); arc < to; arc += WARP) {
            const u64 row = static_cast<u64>(thread_row_of(offsets, low, high, arc) - first_row);
            keys[arc - begin] = row << hot_bits | standing.hotness(targets[arc]);
        }
    }
}

// The targets that sorted keys stand for.
template <class Id>
__device__ __forceinline__ void grid_read_hot_keys(const u64 *keys, i64 count, u32 hot_bits,
                                                   const PartitionView &standing, Id *targets) {
    const u64 mask = (1ull << hot_bits) - 1;
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        targets[i] = static_cast<Id>(standing.position(keys[i] & mask));
    }
}

// The first target of each own row, -1 where there is none.
template <class Id>
__device__ __forceinline__ void grid_write_heads(const i64 *offsets, const Id *targets, i64 owned,
                                                 Id *heads) {
    for (i64 row = grid_thread(); row < owned; row += grid_threads()) {
        const i64 at = offsets[row];
        heads[row] = at < offsets[row + 1] ? targets[at] : static_cast<Id>(-1);
    }
}
