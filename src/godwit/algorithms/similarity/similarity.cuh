// Similarity of pairs of vertices: their common neighbours, each with a term, by one device that has all rows.
//
// Each lane has a pair. The shorter of its two rows is visited, the lanes of a warp together, and each neighbour is
// searched for in the longer row, which is sorted. Batches of pairs go to warps as these come.
#pragma once

#include "algorithms/similarity/score.cuh"
#include "runtime/cuda/include/warp_rows.cuh"
#include "supersteps/step.cuh"

// Counts of a superstep: pairs done.
constexpr u32 DONE = 0;
// Words of the state: first batch of the superstep.
constexpr u32 NEXT = 0;

struct Arguments {
    Stage stage;
    const i64 *offsets;
    const Id *targets;    // of each row ascending
    const double *terms;  // of each vertex; null: 1 for each
    const Id *pairs;      // [pairs][2]
    double *scores;       // [pairs]
    u64 pair_count;
    u64 batches_a_step;
    u32 measure;
    u32 padding;
};

// The row that is searched.
struct Searched {
    i64 begin;
    i64 end;
};

// Return the term of a vertex if a row has it, else 0.
__device__ __forceinline__ double thread_term(const Arguments &given, Id vertex, Searched row) {
    i64 low = row.begin, high = row.end;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (given.targets[middle] < vertex)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == row.end || given.targets[low] != vertex) return 0;
    return given.terms ? given.terms[vertex] : 1.0;
}

__device__ __forceinline__ void warp_take_pairs(const Arguments &given, double *sums, u64 first) {
    const u64 number = first + lane_id();
    i64 begin = 0, length = 0, begin_other = 0, length_other = 0;
    if (number < given.pair_count) {
        const i64 left = given.pairs[2 * number], right = given.pairs[2 * number + 1];
        begin = given.offsets[left];
        length = given.offsets[left + 1] - begin;
        begin_other = given.offsets[right];
        length_other = given.offsets[right + 1] - begin_other;
    }
    const bool swaps = length_other < length;
    const i64 from = swaps ? begin_other : begin;
    const i64 count = swaps ? length_other : length;
    const Searched longer{swaps ? begin : begin_other,
                          swaps ? begin + length : begin_other + length_other};
    const double common = warp_sum_fronts(
        from, static_cast<u32>(count), sums,
        [&](u32 whose) {
            return Searched{__shfl_sync(FULL_WARP, longer.begin, whose),
                            __shfl_sync(FULL_WARP, longer.end, whose)};
        },
        [&](i64 arc) { return given.targets[arc]; },
        [&](Id vertex, Searched row) { return thread_term(given, vertex, row); });
    if (number < given.pair_count)
        given.scores[number] = score_of(given.measure, common, length, length_other);
}

__device__ __forceinline__ void grid_similarity(const Arguments &given) {
    extern __shared__ double shared_sums[];
    const u64 batches = (given.pair_count + WARP - 1) / WARP;
    run_steps(
        given.stage,
        [&](u32, const Team &, StepBlock &block) {
            const u64 last = min(block.state[NEXT] + given.batches_a_step, batches);
            u64 done = 0;
            for (;;) {
                u64 batch = 0;
                if (lane_id() == 0)
                    batch = block.state[NEXT] + atomicAdd(&given.stage.control->cursors[0], 1ull);
                batch = __shfl_sync(FULL_WARP, batch, 0);
                if (batch >= last) break;
                const u64 first = batch * WARP;
                warp_take_pairs(given, shared_sums + WARP * warp_id(), first);
                if (lane_id() == 0) done += min(static_cast<u64>(WARP), given.pair_count - first);
            }
            warp_count(block, DONE, done);
        },
        [&](u32 phase, const Sums &, u64 *state) -> u32 {
            state[NEXT] += given.batches_a_step;
            return state[NEXT] < batches ? phase : STOP;
        });
}
