// The kernels that supersteps/rows.py starts. What includes this file says what Id (of a position),
// GraphId (of a graph's target) and Word (the bits of a weight) are.
#pragma once

#include "supersteps/rows.cuh"

extern "C" __global__ void count_rows(const i64 *graph_offsets, const Id *positions,
                                      PartitionView standing, i64 *lengths) {
    grid_count_rows(graph_offsets, positions, standing, lengths);
}
extern "C" __global__ void sum_up(u64 *values, i64 count) { block_sum_up(values, count); }
extern "C" __global__ void list_vertices(const Id *positions, PartitionView standing,
                                         Id *vertices) {
    grid_list_vertices(positions, standing, vertices);
}
extern "C" __global__ void place_targets(const i64 *graph_offsets, const Id *positions,
                                         PartitionView standing, const i64 *offsets, i64 begin,
                                         i64 count, const GraphId *chunk, Id *targets) {
    const auto put = [=](i64 i, i64 place) { targets[place] = positions[chunk[i]]; };
    grid_place_own_arcs(graph_offsets, positions, standing, offsets, begin, count, put);
}
extern "C" __global__ void place_weights(const i64 *graph_offsets, const Id *positions,
                                         PartitionView standing, const i64 *offsets, i64 begin,
                                         i64 count, const Word *chunk, Word *weights) {
    const auto put = [=](i64 i, i64 place) { weights[place] = chunk[i]; };
    grid_place_own_arcs(graph_offsets, positions, standing, offsets, begin, count, put);
}
extern "C" __global__ void write_hot_keys(const i64 *offsets, const Id *targets,
                                          PartitionView standing, i64 first_row, i64 row_count,
                                          u64 hot_bits, i64 begin, i64 count, u64 *keys) {
    grid_write_hot_keys(offsets, targets, standing, first_row, row_count,
                        static_cast<u32>(hot_bits), begin, count, keys);
}
extern "C" __global__ void read_hot_keys(const u64 *keys, i64 count, u64 hot_bits,
                                         PartitionView standing, Id *targets) {
    grid_read_hot_keys(keys, count, static_cast<u32>(hot_bits), standing, targets);
}
extern "C" __global__ void write_heads(const i64 *offsets, const Id *targets, i64 owned,
                                       Id *heads) {
    grid_write_heads(offsets, targets, owned, heads);
}
