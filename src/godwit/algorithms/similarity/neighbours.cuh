// All pairs of vertices with common neighbours, by sums over paths of two edges. Each device has the rows of all
// vertices, and finds the pairs (u, v), u < v, of its share of the vertices u.
//
// A block takes a vertex u. For each neighbour w it adds the term of w to each neighbour v > u of w, in an array of
// its own that is zero between two vertices; the thread that adds to a zero lists v. (Gustavson's product of sparse matrices,
// by rows.) Then it scores the listed vertices, and appends those above the bound to the pairs of the device. Where
// these have no room, they are counted only.
#pragma once

#include "algorithms/similarity/score.cuh"
#include "supersteps/step.cuh"

constexpr i64 LONG_ROW = 1024;  // longer rows are visited by the block together

// Counts of a superstep: vertices done.
constexpr u32 DONE = 0;
// Words of the state: first vertex of the superstep, of this device's.
constexpr u32 NEXT = 0;

struct Arguments {
    Stage stage;
    const i64 *offsets;
    const Id *targets;    // of each row ascending
    const double *terms;  // of each vertex, positive; null: 1 for each
    double *sums;         // [blocks][vertices]
    Id *reached;          // [blocks][vertices]
    u64 *found;           // pairs of this device
    Id *pairs;            // [capacity][2]
    double *scores;       // [capacity]
    u64 capacity;
    i64 vertices;
    u64 vertices_a_step;
    double above;  // pairs of larger scores are found
    u32 blocks;    // blocks that have room in `sums` and `reached`; others do nothing
    u32 share;     // number of the device
    u32 shares;    // number of devices: vertices k * shares + share are this device's
    u32 measure;
};

// The sums of the block's vertex.
struct Neighbours {
    const Arguments &given;
    double *sums;
    Id *reached;
    u32 *count;  // of reached vertices, in shared memory
    i64 u;

    // Add the term of w along every `apart`-th arc of its row to a neighbour behind u.
    __device__ __forceinline__ void add(i64 w, i64 place, i64 apart) const {
        const double term = given.terms ? given.terms[w] : 1.0;
        const i64 end = given.offsets[w + 1];
        const i64 behind = thread_lower_bound(given.targets, given.offsets[w], end, u + 1);
        for (i64 arc = behind + place; arc < end; arc += apart) {
            const Id v = given.targets[arc];
            if (atomicAdd(&sums[v], term) == 0) reached[atomicAdd(count, 1u)] = v;
        }
    }

    __device__ __forceinline__ void block_add_all() const {
        const i64 begin = given.offsets[u], end = given.offsets[u + 1];
        const u32 warps = blockDim.x / WARP;
        for (i64 arc = begin + warp_id(); arc < end; arc += warps) {
            const i64 w = given.targets[arc];
            if (given.offsets[w + 1] - given.offsets[w] <= LONG_ROW) add(w, lane_id(), WARP);
        }
        for (i64 arc = begin; arc < end; arc++) {
            const i64 w = given.targets[arc];
            if (given.offsets[w + 1] - given.offsets[w] > LONG_ROW) add(w, threadIdx.x, blockDim.x);
        }
    }

    // Append the pairs above the bound, and clear the sums.
    __device__ __forceinline__ void block_append() const {
        const i64 degree = given.offsets[u + 1] - given.offsets[u];
        const u32 all = *count;
        for (u32 base = 0; base < all; base += blockDim.x) {
            const u32 place = base + threadIdx.x;
            double score = 0;
            Id v = 0;
            if (place < all) {
                v = reached[place];
                const double sum = load_relaxed(&sums[v]);
                sums[v] = 0;
                score =
                    score_of(given.measure, sum, degree, given.offsets[v + 1] - given.offsets[v]);
            }
            const bool is_above = place < all && score > given.above;
            const u64 number = warp_place(given.found, __ballot_sync(FULL_WARP, is_above));
            if (is_above && number < given.capacity) {
                given.pairs[2 * number] = static_cast<Id>(u);
                given.pairs[2 * number + 1] = v;
                given.scores[number] = score;
            }
        }
    }
};

__device__ __forceinline__ void grid_neighbours(const Arguments &given) {
    __shared__ u32 count;
    const u64 own =
        (static_cast<u64>(given.vertices) + given.shares - 1 - given.share) / given.shares;
    run_steps(
        given.stage,
        [&](u32, const Team &, StepBlock &block) {
            const u64 last = min(block.state[NEXT] + given.vertices_a_step, own);
            const u64 room = static_cast<u64>(blockIdx.x) * given.vertices;
            u64 done = 0;
            while (blockIdx.x < given.blocks) {
                __syncthreads();
                if (threadIdx.x == 0) {
                    block.own =
                        block.state[NEXT] + atomicAdd(&given.stage.control->cursors[0], 1ull);
                    count = 0;
                }
                __syncthreads();
                if (block.own >= last) break;
                const i64 u = static_cast<i64>(block.own * given.shares + given.share);
                const Neighbours visit{given, given.sums + room, given.reached + room, &count, u};
                visit.block_add_all();
                __syncthreads();
                visit.block_append();
                if (threadIdx.x == 0) done++;
            }
            warp_count(block, DONE, done);
        },
        [&](u32 phase, const Sums &, u64 *state) -> u32 {
            state[NEXT] += given.vertices_a_step;
            return state[NEXT] < own ? phase : STOP;
        });
}
