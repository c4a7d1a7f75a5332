// The kernels that graph/cuda/rows.py starts. What includes this file says what Edges, Id, Word (of a
// given weight) and Weights (the rule of random ones) are.
#pragma once

#include "graph/cuda/build_rows.cuh"

extern "C" __global__ void count_arcs(Edges edges, Dealing dealing, u64 bucket_bits, u64 *counts) {
    grid_count_arcs(edges, dealing, static_cast<u32>(bucket_bits), counts);
}
extern "C" __global__ void deal_arcs(Edges edges, Dealing dealing, Range range, u64 *keys,
                                     u64 *cursor) {
    grid_deal_arcs(edges, dealing, range, keys, cursor);
}
extern "C" __global__ void place_arcs(Edges edges, Dealing dealing, Range range, u64 *keys) {
    grid_place_arcs(edges, dealing, range, keys);
}
extern "C" __global__ void gather_keys(const u64 *keys, const u64 *order, i64 count, u64 *to) {
    grid_gather(keys, order, count, 0, to);
}
extern "C" __global__ void gather_weights(const Word *weights, const u64 *order, i64 count,
                                          u64 both_directions, Word *to) {
    grid_gather(weights, order, count, both_directions ? 1 : 0, to);
}
extern "C" __global__ void count_distinct(const u64 *keys, i64 count, u64 *tiles) {
    grid_count_distinct(keys, count, tiles);
}
extern "C" __global__ void keep_distinct(const u64 *keys, i64 count, const u64 *tiles, u64 *kept) {
    grid_keep_distinct(keys, count, tiles, kept);
}
extern "C" __global__ void clear(u64 *words, i64 count) { grid_clear(words, count); }
extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }
extern "C" __global__ void write_targets(const u64 *keys, i64 count, Range range, Id *targets) {
    grid_write_targets(keys, count, range, targets);
}
extern "C" __global__ void write_ends(const u64 *keys, i64 count, Range range, i64 base,
                                      i64 *ends) {
    grid_write_ends(keys, count, range, base, ends);
}
extern "C" __global__ void write_weights(const u64 *keys, i64 count, Range range, Weights rule,
                                         Weights::Weight *weights) {
    grid_write_weights(keys, count, range, rule, weights);
}
extern "C" __global__ void find_id_range(Edges edges, i64 count, i64 *found) {
    grid_find_id_range(edges, count, found);
}
