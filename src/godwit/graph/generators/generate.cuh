// Generated graphs: edges drawn by R-MAT, rows of a percolated grid, random weights; bit by bit as on the
// CPU (graph/generators/random.py and grids.py, graph/hashing.py).
//
// An *Edges* type, of which build_rows.cuh makes rows, is a struct of 8-byte members with a Reader: each
// thread makes a Reader once, and its `edge(i)` returns the endpoints of edge i.
#pragma once

#include "runtime/cuda/include/hashing.cuh"

struct Edge {
    i64 source;
    i64 target;
};

constexpr u64 RMAT_DRAWS = 0x52d4a7;  // keeps the seeds of the draws and of the relabelling apart
constexpr u32 RMAT_LEVEL_BITS = 21;
constexpr u32 RMAT_LEVELS_PER_WORD = 3;

// R-MAT edges: an edge falls into a quadrant of the adjacency matrix, then into a quadrant of that quadrant,
// and so on. Members a, ab and abc are thresholds in units of 2^-21.
struct RmatEdges {
    u64 seed;
    i64 scale;
    i64 a;
    i64 ab;
    i64 abc;

    struct Reader {
        const u64 start;
        const Scramble labels;
        const u32 scale, a, ab, abc;

        __device__ __forceinline__ explicit Reader(const RmatEdges &edges)
            : start(thread_mix(edges.seed ^ RMAT_DRAWS)),
              labels(static_cast<u32>(edges.scale), thread_mix(edges.seed)),
              scale(static_cast<u32>(edges.scale)),
              a(static_cast<u32>(edges.a)),
              ab(static_cast<u32>(edges.ab)),
              abc(static_cast<u32>(edges.abc)) {}

        __device__ __forceinline__ Edge edge(i64 i) const {
            const u64 key = thread_mix(start ^ static_cast<u64>(i));
            u64 source = 0, target = 0;
            for (u32 level = 0; level < scale; level += RMAT_LEVELS_PER_WORD) {
                u64 word = thread_mix(key + level);
                for (u32 k = level; k < scale && k < level + RMAT_LEVELS_PER_WORD; ++k) {
                    const u32 draw = static_cast<u32>(word) & ((1u << RMAT_LEVEL_BITS) - 1);
                    word >>= RMAT_LEVEL_BITS;
                    const bool down = draw >= ab;
                    const bool right = ((draw >= a) != down) || draw >= abc;
                    source = source << 1 | down;
                    target = target << 1 | right;
                }
            }
            return {static_cast<i64>(labels.of(source)), static_cast<i64>(labels.of(target))};
        }
    };
};

// Edges that lie in the GPU's memory.
template <class Id>
struct GivenEdges {
    const Id *sources;
    const Id *targets;

    struct Reader {
        const Id *const sources;
        const Id *const targets;

        __device__ __forceinline__ explicit Reader(const GivenEdges &edges)
            : sources(edges.sources), targets(edges.targets) {}
        __device__ __forceinline__ Edge edge(i64 i) const {
            return {static_cast<i64>(sources[i]), static_cast<i64>(targets[i])};
        }
    };
};

// Integers in [low, low + span) for edges {u, v}, equal in both directions.
template <class Value>
struct IntegerWeights {
    using Weight = Value;
    u64 seed;
    i64 low;
    u64 span;

    __device__ __forceinline__ Value of(u64 word) const {
        return static_cast<Value>(low + static_cast<i64>(word % span));
    }
};

// Floats in [low, low + width), at most `last`, should that round up. Nothing is contracted into a fused
// multiply-add, which would round once instead of twice.
struct FloatWeights {
    using Weight = double;
    u64 seed;
    double low;
    double width;
    double last;

    __device__ __forceinline__ double of(u64 word) const {
        const double weight = __dadd_rn(low, __dmul_rn(width, thread_unit(word)));
        return last < weight ? last : weight;
    }
};

// The rule of a graph without weights.
struct NoWeights {
    using Weight = u8;
    u64 seed;

    __device__ __forceinline__ u8 of(u64) const { return 0; }
};

// Return a hash of two vertices, whatever their order. `start` is the mixed seed.
__device__ __forceinline__ u64 thread_edge_word(u64 start, i64 u, i64 v) {
    const u64 low = static_cast<u64>(u < v ? u : v), high = static_cast<u64>(u < v ? v : u);
    return thread_mix(thread_mix(start ^ low) ^ high);
}

// A grid whose edges are kept if their hash is below a threshold: edge 2 v leads from v to the right,
// edge 2 v + 1 down.
struct PercolatedGrid {
    u64 seed;
    u64 threshold;
    i64 columns;
    i64 vertices;

    __device__ __forceinline__ bool keeps(u64 start, i64 edge) const {
        return (thread_mix(start ^ static_cast<u64>(edge)) >> 11) < threshold;
    }
    // Return a bit mask of the neighbours of v, in ascending order: above 1, left 2, right 4, below 8.
    __device__ __forceinline__ u32 neighbours(u64 start, i64 v) const {
        const i64 column = v % columns;
        u32 directions = 0;
        if (v >= columns && keeps(start, 2 * (v - columns) + 1)) directions |= 1;
        if (column > 0 && keeps(start, 2 * (v - 1))) directions |= 2;
        if (column < columns - 1 && keeps(start, 2 * v)) directions |= 4;
        if (v + columns < vertices && keeps(start, 2 * v + 1)) directions |= 8;
        return directions;
    }
    __device__ __forceinline__ i64 neighbour(i64 v, u32 direction) const {
        const i64 steps[4] = {-columns, -1, 1, columns};
        return v + steps[direction];
    }
};
