// Rows in device order (graph/partition/positions.py): the kernels that supersteps/rows.py and halos.py
// start. The including source defines Id (of a position), GraphId (of a target of the graph) and Word (the
// bits of a weight).
//
// Method: each device counts the lengths of its own rows and sums them up. The graph's targets come in
// chunks, in the order of vertices; a warp takes a tile of a chunk and finds the row of each arc by
// bisection between the rows in which the tile begins and ends, so a long row is not left to one warp. The
// order within a row is kept, except of rows of in-arcs, which are sorted in any case. Rows by descending degree are sorted afterwards by `key = (local index -
// first local index of the range) << rank_bits | degree rank of the target`.
//
// The degree rank of position p is (p % capacity) * devices + p / capacity: owners number their vertices by
// descending degree, so a lower rank means a higher degree.
#pragma once

#include "graph/cuda/tiles.cuh"
#include "supersteps/halos.cuh"

// One device's share of the positions. Every member has 8 bytes, as Python passes them.
struct PartitionView {
    i64 device;
    i64 devices;
    i64 capacity;
    i64 owned;
    i64 vertices;  // of the graph

    // The local index of a position; outside of [0, capacity) for positions of other devices.
    __device__ __forceinline__ i64 local(i64 position) const {
        return position - device * capacity;
    }
    __device__ __forceinline__ bool has(i64 local) const { return local >= 0 && local < capacity; }
    __device__ __forceinline__ u64 degree_rank(i64 position) const {
        const i64 owner = devices == 1 ? 0 : position / capacity;
        return static_cast<u64>((position - owner * capacity) * devices + owner);
    }
    __device__ __forceinline__ i64 position(u64 degree_rank) const {
        if (devices == 1) return static_cast<i64>(degree_rank);
        const i64 index = static_cast<i64>(degree_rank) / devices;
        return (static_cast<i64>(degree_rank) - index * devices) * capacity + index;
    }
};

// For each arc of [begin, begin + count) in a row of this device: `put(arc - begin, its index in own
// rows)`.
template <class Put>
__device__ __forceinline__ void grid_place_own_arcs(const i64 *graph_offsets, const Id *positions,
                                                    const PartitionView &view, const i64 *offsets,
                                                    i64 begin, i64 count, Put put) {
    grid_visit_arcs(graph_offsets, 0, view.vertices - 1, begin, count, [=](i64 arc, i64 v) {
        const i64 local = view.local(positions[v]);
        if (view.has(local)) put(arc - begin, offsets[local] + arc - graph_offsets[v]);
    });
}

extern "C" __global__ void count_rows(const i64 *graph_offsets, const Id *positions,
                                      PartitionView view, i64 *lengths) {
    for (i64 v = grid_thread(); v < view.vertices; v += grid_threads()) {
        const i64 local = view.local(positions[v]);
        if (view.has(local)) lengths[local] = graph_offsets[v + 1] - graph_offsets[v];
    }
}

extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }

extern "C" __global__ void list_vertices(const Id *positions, PartitionView view, Id *vertices) {
    for (i64 v = grid_thread(); v < view.vertices; v += grid_threads()) {
        const i64 local = view.local(positions[v]);
        if (view.has(local)) vertices[local] = static_cast<Id>(v);
    }
}

extern "C" __global__ void place_targets(const i64 *graph_offsets, const Id *positions,
                                         PartitionView view, const i64 *offsets, i64 begin,
                                         i64 count, const GraphId *chunk, Id *targets) {
    const auto put = [=](i64 i, i64 arc) { targets[arc] = positions[chunk[i]]; };
    grid_place_own_arcs(graph_offsets, positions, view, offsets, begin, count, put);
}

extern "C" __global__ void place_weights(const i64 *graph_offsets, const Id *positions,
                                         PartitionView view, const i64 *offsets, i64 begin,
                                         i64 count, const Word *chunk, Word *weights) {
    const auto put = [=](i64 i, i64 arc) { weights[arc] = chunk[i]; };
    grid_place_own_arcs(graph_offsets, positions, view, offsets, begin, count, put);
}

// Store the sources of the arcs of a chunk that reach own vertices, a row's in any order; `ends` has the
// beginning of each row at first.
extern "C" __global__ void place_sources(const i64 *graph_offsets, const Id *positions,
                                         PartitionView view, u64 *ends, i64 begin, i64 count,
                                         const GraphId *chunk, Id *sources) {
    grid_visit_arcs(graph_offsets, 0, view.vertices - 1, begin, count, [=](i64 arc, i64 v) {
        const i64 local = view.local(positions[chunk[arc - begin]]);
        if (view.has(local)) sources[atomicAdd(ends + local, 1ull)] = positions[v];
    });
}

// Sort keys of the arcs [begin, begin + count) of own rows, which lie in `rows` rows from `first_row` on.
extern "C" __global__ void write_degree_keys(const i64 *offsets, const Id *targets,
                                             PartitionView view, i64 first_row, i64 rows,
                                             u64 rank_bits, i64 begin, i64 count, u64 *keys) {
    const u32 bits = static_cast<u32>(rank_bits);
    grid_visit_arcs(offsets, first_row, first_row + rows - 1, begin, count, [=](i64 arc, i64 row) {
        keys[arc - begin] =
            static_cast<u64>(row - first_row) << bits | view.degree_rank(targets[arc]);
    });
}

// The targets of sorted keys.
extern "C" __global__ void read_degree_keys(const u64 *keys, i64 count, u64 rank_bits,
                                            PartitionView view, Id *targets) {
    const u64 mask = (1ull << static_cast<u32>(rank_bits)) - 1;
    for (i64 i = grid_thread(); i < count; i += grid_threads())
        targets[i] = static_cast<Id>(view.position(keys[i] & mask));
}

// The first target of each own row, -1 for an empty row.
extern "C" __global__ void write_heads(const i64 *offsets, const Id *targets, i64 owned,
                                       Id *heads) {
    for (i64 row = grid_thread(); row < owned; row += grid_threads()) {
        const i64 first = offsets[row];
        heads[row] = first < offsets[row + 1] ? targets[first] : static_cast<Id>(-1);
    }
}

// Store for each own row the first target of the out-row or of the in-row: that of higher degree.
extern "C" __global__ void join_heads(const Id *out_heads, const Id *in_heads, PartitionView view,
                                      Id *heads) {
    for (i64 row = grid_thread(); row < view.owned; row += grid_threads()) {
        const Id out = out_heads[row], in = in_heads[row];
        const bool takes_in = out < 0 || (in >= 0 && view.degree_rank(in) < view.degree_rank(out));
        heads[row] = takes_in ? in : out;
    }
}

// Hubs. For each arc from an own row to a hub, `visit(hub, local index of the row)`: hubs come first in
// rows.
template <class Visit>
__device__ __forceinline__ void grid_visit_hub_arcs(const i64 *offsets, const Id *targets, i64 rows,
                                                    i64 capacity, i64 hubs, Visit visit) {
    for (i64 row = grid_thread(); row < rows; row += grid_threads()) {
        for (i64 arc = offsets[row]; arc < offsets[row + 1]; arc++) {
            const i64 target = targets[arc], owner = target / capacity;
            const i64 index = target - owner * capacity;
            if (index >= hubs) break;
            visit(owner * hubs + index, row);
        }
    }
}

extern "C" __global__ void count_hub_arcs(const i64 *offsets, const Id *targets, i64 rows, i64,
                                          i64 capacity, i64 hubs, u64 *counts) {
    grid_visit_hub_arcs(offsets, targets, rows, capacity, hubs,
                        [=](i64 hub, i64) { atomicAdd(counts + hub, 1ull); });
}

extern "C" __global__ void place_hub_arcs(const i64 *offsets, const Id *targets, i64 rows,
                                          i64 first, i64 capacity, i64 hubs, u64 *cursors,
                                          Id *hub_targets) {
    grid_visit_hub_arcs(offsets, targets, rows, capacity, hubs, [=](i64 hub, i64 row) {
        hub_targets[atomicAdd(cursors + hub, 1ull)] = static_cast<Id>(first + row);
    });
}

// Subscriptions and halos: supersteps/halos.cuh has the encoding.

// Set the bits of all targets. A load saves most atomics: hubs have most arcs.
extern "C" __global__ void mark_targets(const Id *targets, i64 arcs, u32 *needs) {
    for (i64 arc = grid_thread(); arc < arcs; arc += grid_threads()) {
        const i64 position = load_once(&targets[arc]);
        u32 *word = &needs[position >> 5];
        const u32 bit = 1u << (position & 31);
        if (!(load_relaxed(word) & bit)) set_bits(word, bit);
    }
}

extern "C" __global__ void count_needs(const u32 *needs, i64 words, u64 *counts) {
    for (i64 word = grid_thread(); word < words; word += grid_threads())
        counts[word] = __popc(needs[word]);
}

// `before` has the number of needed positions before each word, and of all; `begins` gets the first slot of
// each owner's vertices, and the end of the last. Own vertices take slots [0, owned).
extern "C" __global__ void write_slots(const u64 *before, i64 words, i64 words_of_owner, i64 owned,
                                       Id *slots, i64 *begins) {
    for (i64 word = grid_thread(); word <= words; word += grid_threads()) {
        const i64 slot = owned + static_cast<i64>(before[word]);
        if (word < words) slots[word] = static_cast<Id>(slot);
        if (word % words_of_owner == 0) begins[word / words_of_owner] = slot;
    }
}

// Turn positions into slots. `local` may be the same array as `targets`.
extern "C" __global__ void localize_targets(const Id *targets, i64 arcs, i64 first, i64 capacity,
                                            const u32 *needs, const Id *slots, Id *local) {
    for (i64 arc = grid_thread(); arc < arcs; arc += grid_threads()) {
        const i64 position = targets[arc], own = position - first;
        const bool is_own = own >= 0 && own < capacity;
        local[arc] = static_cast<Id>(is_own ? own : halo_slot(needs, slots, position));
    }
}
