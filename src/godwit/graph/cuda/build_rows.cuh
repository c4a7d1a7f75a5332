// Arcs in any order into rows sorted by target. CPU counterpart: graph/build.py; host code: rows.py, whose
// generated source says what Edges, Id, Word (of a given weight) and Weights (the rule of random ones) are.
//
// Method: the arcs of a range of sources become keys, are sorted (by the host's library), made distinct if
// asked, and written as rows. Edges are read once to count the arcs of each *bucket* of sources and once
// for each range of buckets that fits in memory: generated edges are drawn again, which takes no memory.
//
// Encoding: `key = (source - first source of the range) << target_bits | target`, below 2^63.
#pragma once

#include "graph/cuda/tiles.cuh"

constexpr u32 BUCKETS = 1024;
constexpr u32 EDGES_PER_LANE = 4;
constexpr u64 NO_KEY = ~0ull;  // sorts behind every key

// The number of edges, and which arcs they become: members are 8 bytes each, as Python passes them.
struct EdgeRules {
    i64 edges;
    u64 both_directions;
    u64 drop_loops;
};

// A range of sources, [first, last).
struct SourceRange {
    i64 first;
    i64 last;
    u64 target_bits;

    __device__ __forceinline__ bool has(i64 source) const {
        return source >= first && source < last;
    }
    __device__ __forceinline__ u64 key(i64 source, i64 target) const {
        return static_cast<u64>(source - first) << target_bits | static_cast<u64>(target);
    }
    __device__ __forceinline__ i64 source(u64 key) const {
        return first + static_cast<i64>(key >> target_bits);
    }
    __device__ __forceinline__ i64 target(u64 key) const {
        return static_cast<i64>(key & ((1ull << target_bits) - 1));
    }
};

// Add the number of arcs of each bucket of 2^bucket_bits sources to `counts`, of BUCKETS entries.
__device__ __forceinline__ void grid_count_arcs(const Edges &edges, const EdgeRules &rules,
                                                u32 bucket_bits, u64 *counts) {
    __shared__ u32 block_counts[BUCKETS];
    for (u32 b = threadIdx.x; b < BUCKETS; b += blockDim.x) block_counts[b] = 0;
    __syncthreads();
    const Edges::Reader reader(edges);
    for (i64 i = grid_thread(); i < rules.edges; i += grid_threads()) {
        const Edge edge = reader.edge(i);
        const bool loop = edge.source == edge.target;
        if (!loop || !rules.drop_loops) atomicAdd(&block_counts[edge.source >> bucket_bits], 1u);
        if (!loop && rules.both_directions)
            atomicAdd(&block_counts[edge.target >> bucket_bits], 1u);
    }
    __syncthreads();
    for (u32 b = threadIdx.x; b < BUCKETS; b += blockDim.x) {
        if (block_counts[b]) atomicAdd(&counts[b], static_cast<u64>(block_counts[b]));
    }
}

extern "C" __global__ void count_arcs(Edges edges, EdgeRules rules, u64 bucket_bits, u64 *counts) {
    grid_count_arcs(edges, rules, static_cast<u32>(bucket_bits), counts);
}

// Write the keys of the arcs whose sources are in range, in any order, from `keys[*cursor]` on.
__device__ __forceinline__ void grid_distribute_arcs(const Edges &edges, const EdgeRules &rules,
                                                     const SourceRange &range, u64 *keys,
                                                     u64 *cursor) {
    constexpr u32 ARCS = 2 * EDGES_PER_LANE;
    constexpr i64 SPAN = WARP * EDGES_PER_LANE;
    const Edges::Reader reader(edges);
    const u32 lane = lane_id(), before = (1u << lane) - 1;
    for (i64 begin = grid_warp() * SPAN; begin < rules.edges; begin += grid_warps() * SPAN) {
        u64 arc_keys[ARCS];
        u32 kept[ARCS];  // bit mask of lanes with an arc
        u32 total = 0;
#pragma unroll
        for (u32 k = 0; k < EDGES_PER_LANE; ++k) {
            const i64 i = begin + k * WARP + lane;
            const bool there = i < rules.edges;
            const Edge edge = there ? reader.edge(i) : Edge{0, 0};
            const bool loop = edge.source == edge.target;
            const bool forward = there && !(loop && rules.drop_loops) && range.has(edge.source);
            const bool backward = there && !loop && rules.both_directions && range.has(edge.target);
            arc_keys[2 * k] = range.key(edge.source, edge.target);
            arc_keys[2 * k + 1] = range.key(edge.target, edge.source);
            kept[2 * k] = __ballot_sync(FULL_WARP, forward);
            kept[2 * k + 1] = __ballot_sync(FULL_WARP, backward);
            total += __popc(kept[2 * k]) + __popc(kept[2 * k + 1]);
        }
        u64 at = 0;
        if (lane == 0 && total) at = atomicAdd(cursor, static_cast<u64>(total));
        at = __shfl_sync(FULL_WARP, at, 0);
#pragma unroll
        for (u32 k = 0; k < ARCS; ++k) {
            if (kept[k] >> lane & 1) keys[at + __popc(kept[k] & before)] = arc_keys[k];
            at += __popc(kept[k]);
        }
    }
}

extern "C" __global__ void distribute_arcs(Edges edges, EdgeRules rules, SourceRange range,
                                           u64 *keys, u64 *cursor) {
    grid_distribute_arcs(edges, rules, range, keys, cursor);
}

// Write the key of every arc at a fixed position, so that a stable sort keeps parallel arcs in their
// order: arc i of directed edges at i; an undirected edge at 2 i, and reversed at 2 i + 1, which stays
// unused for a self-loop.
extern "C" __global__ void place_arcs(Edges edges, EdgeRules rules, SourceRange range, u64 *keys) {
    const Edges::Reader reader(edges);
    for (i64 i = grid_thread(); i < rules.edges; i += grid_threads()) {
        const Edge edge = reader.edge(i);
        const u64 key = range.key(edge.source, edge.target);
        if (!rules.both_directions) {
            keys[i] = key;
            continue;
        }
        keys[2 * i] = key;
        keys[2 * i + 1] = edge.source == edge.target ? NO_KEY : range.key(edge.target, edge.source);
    }
}

// Set `to[i]` to the word at position `order[i] >> shift`.
template <class Value>
__device__ __forceinline__ void grid_gather(const Value *from, const u64 *order, i64 count,
                                            u32 shift, Value *to) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) to[i] = from[order[i] >> shift];
}

extern "C" __global__ void gather_keys(const u64 *keys, const u64 *order, i64 count, u64 *to) {
    grid_gather(keys, order, count, 0, to);
}

// Both arcs of an undirected edge get its weight.
extern "C" __global__ void gather_weights(const Word *weights, const u64 *order, i64 count,
                                          u64 both_directions, Word *to) {
    grid_gather(weights, order, count, both_directions ? 1 : 0, to);
}

__device__ __forceinline__ bool thread_is_first(const u64 *keys, i64 i) {
    return i == 0 || keys[i - 1] != keys[i];
}

// Count the distinct keys that begin in each tile of sorted keys.
extern "C" __global__ void count_distinct(const u64 *keys, i64 count, u64 *tiles) {
    for (i64 tile = grid_warp(); tile * TILE < count; tile += grid_warps()) {
        u32 total = 0;
#pragma unroll 1
        for (i64 i = tile * TILE + lane_id(); i < (tile + 1) * TILE + lane_id(); i += WARP) {
            total += __popc(__ballot_sync(FULL_WARP, i < count && thread_is_first(keys, i)));
        }
        if (lane_id() == 0) tiles[tile] = total;
    }
}

// Copy the distinct keys among sorted ones, in order; `tiles` holds the first position of each tile.
extern "C" __global__ void keep_distinct(const u64 *keys, i64 count, const u64 *tiles, u64 *kept) {
    const u32 before = (1u << lane_id()) - 1;
    for (i64 tile = grid_warp(); tile * TILE < count; tile += grid_warps()) {
        u64 at = tiles[tile];
#pragma unroll 1
        for (i64 i = tile * TILE + lane_id(); i < (tile + 1) * TILE + lane_id(); i += WARP) {
            const bool first = i < count && thread_is_first(keys, i);
            const u32 firsts = __ballot_sync(FULL_WARP, first);
            if (first) kept[at + __popc(firsts & before)] = keys[i];
            at += __popc(firsts);
        }
    }
}

extern "C" __global__ void clear(u64 *words, i64 count) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) words[i] = 0;
}

extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }

extern "C" __global__ void write_targets(const u64 *keys, i64 count, SourceRange range,
                                         Id *targets) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        targets[i] = static_cast<Id>(range.target(keys[i]));
    }
}

// Write the end of each row of the range; `base` arcs come before the range.
extern "C" __global__ void write_ends(const u64 *keys, i64 count, SourceRange range, i64 base,
                                      i64 *ends) {
    for (i64 row = grid_thread(); row < range.last - range.first; row += grid_threads()) {
        const u64 limit = static_cast<u64>(row + 1) << range.target_bits;
        ends[row] = base + thread_lower_bound(keys, 0, count, limit);
    }
}

// Write the random weight of the arc of each key.
extern "C" __global__ void write_weights(const u64 *keys, i64 count, SourceRange range,
                                         Weights rule, Weights::Weight *weights) {
    const u64 start = thread_mix(rule.seed);
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        const u64 key = keys[i];
        weights[i] = rule.of(thread_edge_word(start, range.source(key), range.target(key)));
    }
}

// Lower `range[0]` to the smallest id at either end of an edge, raise `range[1]` to the largest.
extern "C" __global__ void find_id_range(Edges edges, i64 count, i64 *range) {
    const Edges::Reader reader(edges);
    i64 smallest = static_cast<i64>(~0ull >> 1), largest = -smallest - 1;
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        const Edge edge = reader.edge(i);
        const i64 low = edge.source < edge.target ? edge.source : edge.target;
        const i64 high = edge.source < edge.target ? edge.target : edge.source;
        if (low < smallest) smallest = low;
        if (high > largest) largest = high;
    }
    atomicMin(&range[0], smallest);
    atomicMax(&range[1], largest);
}
