// Arcs in any order into rows sorted by target. CPU twin: graph/build.py.
//
// Method: the arcs of a range of sources become keys, are sorted (by the caller), made distinct if asked,
// and read off as rows. Edges are gone through once to count the arcs of each *bucket* of sources and
// once for each range of buckets that fits in memory: generated edges are drawn again, which takes no
// memory.
//
// Encoding: `key = (source - first source of the range) << target_bits | target`, below 2^63.
//
// A *tile* is 1,024 consecutive items that one warp goes through, 32 at a time, in order: what a tile
// keeps is counted, the counts are summed up by one block, and each warp then knows where what it keeps
// belongs.
#pragma once

#include "graph/generators/generate.cuh"

constexpr u32 BUCKETS = 1024;
constexpr u32 EDGES_PER_LANE = 4;
constexpr i64 TILE = 1024;
constexpr u64 NO_KEY = ~0ull;  // sorts behind every key

// What becomes of edges: members are 8 bytes each, as Python hands them over.
struct Dealing {
    i64 edges;
    u64 both_directions;
    u64 drop_loops;
};

// A range of sources, [first, last).
struct Range {
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

__device__ __forceinline__ i64 grid_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }
__device__ __forceinline__ i64 grid_thread() {
    return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ i64 grid_warps() { return grid_threads() / WARP; }
__device__ __forceinline__ i64 grid_warp() { return grid_thread() / WARP; }

// The sum over this lane and those before it.
template <class T>
__device__ __forceinline__ T warp_sum_up(T value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const T before = __shfl_up_sync(FULL_WARP, value, step);
        if (lane_id() >= step) value += before;
    }
    return value;
}

// How many arcs leave each bucket of 2^bucket_bits sources: added to `counts`, BUCKETS of them.
template <class Edges>
__device__ __forceinline__ void grid_count_arcs(const Edges &edges, const Dealing &dealing,
                                                u32 bucket_bits, u64 *counts) {
    __shared__ u32 found[BUCKETS];
    for (u32 b = threadIdx.x; b < BUCKETS; b += blockDim.x) found[b] = 0;
    __syncthreads();
    const typename Edges::Reader reader(edges);
    for (i64 i = grid_thread(); i < dealing.edges; i += grid_threads()) {
        const Edge edge = reader.edge(i);
        const bool loop = edge.source == edge.target;
        if (!loop || !dealing.drop_loops) atomicAdd(&found[edge.source >> bucket_bits], 1u);
        if (!loop && dealing.both_directions) atomicAdd(&found[edge.target >> bucket_bits], 1u);
    }
    __syncthreads();
    for (u32 b = threadIdx.x; b < BUCKETS; b += blockDim.x) {
        if (found[b]) atomicAdd(&counts[b], static_cast<u64>(found[b]));
    }
}

// The keys of the arcs whose sources are in range, in any order, from `keys[*cursor]` on.
template <class Edges>
__device__ __forceinline__ void grid_deal_arcs(const Edges &edges, const Dealing &dealing,
                                               const Range &range, u64 *keys, u64 *cursor) {
    constexpr u32 ARCS = 2 * EDGES_PER_LANE;
    constexpr i64 SPAN = WARP * EDGES_PER_LANE;
    const typename Edges::Reader reader(edges);
    const u32 lane = lane_id(), before = (1u << lane) - 1;
    for (i64 begin = grid_warp() * SPAN; begin < dealing.edges; begin += grid_warps() * SPAN) {
        u64 found[ARCS];
        u32 kept[ARCS];  // which lanes have one
        u32 total = 0;
#pragma unroll
        for (u32 k = 0; k < EDGES_PER_LANE; ++k) {
            const i64 i = begin + k * WARP + lane;
            const bool there = i < dealing.edges;
            const Edge edge = there ? reader.edge(i) : Edge{0, 0};
            const bool loop = edge.source == edge.target;
            const bool forward = there && !(loop && dealing.drop_loops) && range.has(edge.source);
            const bool backward =
                there && !loop && dealing.both_directions && range.has(edge.target);
            found[2 * k] = range.key(edge.source, edge.target);
            found[2 * k + 1] = range.key(edge.target, edge.source);
            kept[2 * k] = __ballot_sync(FULL_WARP, forward);
            kept[2 * k + 1] = __ballot_sync(FULL_WARP, backward);
            total += __popc(kept[2 * k]) + __popc(kept[2 * k + 1]);
        }
        u64 at = 0;
        if (lane == 0 && total) at = atomicAdd(cursor, static_cast<u64>(total));
        at = __shfl_sync(FULL_WARP, at, 0);
#pragma unroll
        for (u32 k = 0; k < ARCS; ++k) {
            if (kept[k] >> lane & 1) keys[at + __popc(kept[k] & before)] = found[k];
            at += __popc(kept[k]);
        }
    }
}

// The key of every arc in its own place, so that a stable sort keeps parallel arcs in their order: arc i
// of directed edges at i; of undirected ones at 2 i, and turned round at 2 i + 1, where a self-loop has
// none.
template <class Edges>
__device__ __forceinline__ void grid_place_arcs(const Edges &edges, const Dealing &dealing,
                                                const Range &range, u64 *keys) {
    const typename Edges::Reader reader(edges);
    for (i64 i = grid_thread(); i < dealing.edges; i += grid_threads()) {
        const Edge edge = reader.edge(i);
        const u64 key = range.key(edge.source, edge.target);
        if (!dealing.both_directions) {
            keys[i] = key;
            continue;
        }
        keys[2 * i] = key;
        keys[2 * i + 1] = edge.source == edge.target ? NO_KEY : range.key(edge.target, edge.source);
    }
}

// `to[i]` is what place `order[i]` has: of keys (shift 0), or of an edge's weight for both of its arcs
// (1).
template <class Word>
__device__ __forceinline__ void grid_gather(const Word *from, const u64 *order, i64 count,
                                            u32 shift, Word *to) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) to[i] = from[order[i] >> shift];
}

__device__ __forceinline__ bool thread_is_first(const u64 *keys, i64 i) {
    return i == 0 || keys[i - 1] != keys[i];
}

// How many distinct keys begin in each tile of sorted ones.
__device__ __forceinline__ void grid_count_distinct(const u64 *keys, i64 count, u64 *tiles) {
    for (i64 tile = grid_warp(); tile * TILE < count; tile += grid_warps()) {
        u32 total = 0;
#pragma unroll 1
        for (i64 i = tile * TILE + lane_id(); i < (tile + 1) * TILE + lane_id(); i += WARP) {
            total += __popc(__ballot_sync(FULL_WARP, i < count && thread_is_first(keys, i)));
        }
        if (lane_id() == 0) tiles[tile] = total;
    }
}

// The distinct ones among sorted keys, in order; `tiles` holds where those of each tile go.
__device__ __forceinline__ void grid_keep_distinct(const u64 *keys, i64 count, const u64 *tiles,
                                                   u64 *kept) {
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

// Every value becomes the sum of those before it, and `values[count]` the sum of all. For one block of
// whole warps.
__device__ __forceinline__ void block_sum_up(u64 *values, i64 count) {
    __shared__ u64 ends[WARP];
    const u32 warps = blockDim.x / WARP;
    u64 sum = 0;
    for (i64 begin = 0; begin < count; begin += blockDim.x) {
        const i64 i = begin + threadIdx.x;
        const u64 value = i < count ? values[i] : 0;
        const u64 end = warp_sum_up(value);
        if (lane_id() == WARP - 1) ends[warp_id()] = end;
        __syncthreads();
        if (warp_id() == 0) {
            const u64 own = lane_id() < warps ? ends[lane_id()] : 0;
            const u64 up_to = warp_sum_up(own);
            ends[lane_id()] = up_to;
        }
        __syncthreads();
        const u64 base = sum + (warp_id() > 0 ? ends[warp_id() - 1] : 0);
        if (i < count) values[i] = base + end - value;
        sum += ends[warps - 1];
        __syncthreads();  // before the next round overwrites the ends
    }
    if (threadIdx.x == 0) values[count] = sum;
}

__device__ __forceinline__ void grid_clear(u64 *words, i64 count) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) words[i] = 0;
}

template <class Id>
__device__ __forceinline__ void grid_write_targets(const u64 *keys, i64 count, const Range &range,
                                                   Id *targets) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        targets[i] = static_cast<Id>(range.target(keys[i]));
    }
}

// `ends[r]`, for each row of the range: `base` arcs come before the range.
__device__ __forceinline__ void grid_write_ends(const u64 *keys, i64 count, const Range &range,
                                                i64 base, i64 *ends) {
    for (i64 row = grid_thread(); row < range.last - range.first; row += grid_threads()) {
        const u64 limit = static_cast<u64>(row + 1) << range.target_bits;
        i64 low = 0, high = count;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (keys[middle] < limit) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        ends[row] = base + low;
    }
}

// Random weights of the arcs that keys stand for.
template <class Weights>
__device__ __forceinline__ void grid_write_weights(const u64 *keys, i64 count, const Range &range,
                                                   const Weights &rule,
                                                   typename Weights::Weight *weights) {
    const u64 start = thread_mix(rule.seed);
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        const u64 key = keys[i];
        weights[i] = rule.of(thread_edge_word(start, range.source(key), range.target(key)));
    }
}

// Lower `found[0]` to the smallest id at either end of an edge, raise `found[1]` to the largest.
template <class Edges>
__device__ __forceinline__ void grid_find_id_range(const Edges &edges, i64 count, i64 *found) {
    const typename Edges::Reader reader(edges);
    i64 smallest = static_cast<i64>(~0ull >> 1), largest = -smallest - 1;
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        const Edge edge = reader.edge(i);
        const i64 low = edge.source < edge.target ? edge.source : edge.target;
        const i64 high = edge.source < edge.target ? edge.target : edge.source;
        if (low < smallest) smallest = low;
        if (high > largest) largest = high;
    }
    atomicMin(&found[0], smallest);
    atomicMax(&found[1], largest);
}
