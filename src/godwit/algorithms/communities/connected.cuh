// Divide communities that are not connected: union-find over positions. First each vertex takes one of its first
// neighbours as parent, without atomics (thread_parent), and then the root of its tree (team_flatten), so that few
// arcs join trees (JoinEnds). In the end all take their roots again. Encoding: parent[v] <= v; a root is its own
// parent.
#pragma once

#include "runtime/cuda/include/schedule.cuh"

constexpr i64 LINK_ARCS = 4;  // of neighbours that may become parents

struct Forest {
    u32 *parent;

    __device__ __forceinline__ u32 parent_of(u32 v) const { return load_relaxed(parent + v); }
    // Replace the parent of a vertex by its root, which is returned. Others see each step, and take several at once.
    __device__ __forceinline__ u32 thread_flatten(u32 v) const {
        u32 root = parent_of(v);
        for (u32 next = parent_of(root); next != root; next = parent_of(root)) {
            store_system(parent + v, next);
            root = next;
        }
        return root;
    }
    // Join the trees of two vertices (Jaiganesh, Burtscher, HPDC 2018).
    __device__ __forceinline__ void thread_join(u32 u, u32 v) const {
        u32 above_u = parent_of(u), above_v = parent_of(v);
        while (above_u != above_v) {
            const u32 high = max(above_u, above_v), low = min(above_u, above_v);
            const u32 over = parent_of(high);
            if (over == low) return;
            if (over == high && atomicCAS(parent + high, high, low) == high) return;
            above_u = parent_of(parent_of(high));
            above_v = parent_of(low);
        }
    }
};

// A smaller neighbour with the label of a vertex, if one is among the first of the arcs [begin, end); else the vertex.
template <class Id>
__device__ __forceinline__ u32 thread_parent(u32 v, i64 begin, i64 end, const Id *targets,
                                             const u32 *label) {
    const u32 own = label[v];
    end = min(end, begin + LINK_ARCS);
    for (i64 arc = begin; arc < end; arc++) {
        const u32 u = static_cast<u32>(targets[arc]);
        if (u < v && label[u] == own) return u;
    }
    return v;
}

// The visitor of all rows that joins the ends of arcs within communities. Ends that had one parent before, which is
// enough to know, are in one tree.
template <class Id>
struct JoinEnds {
    Forest forest;
    const Id *targets;
    const u32 *label;
    bool is_directed;  // else each edge has two arcs, one of which counts

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        u32 target[ARCS];
        bool joins[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            target[i] = there[i] ? static_cast<u32>(targets[arcs[i]]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            joins[i] = there[i] && (is_directed || target[i] < rows[i]) &&
                       load_near(forest.parent + target[i]) != load_near(forest.parent + rows[i]) &&
                       label[target[i]] == label[rows[i]];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            if (joins[i]) forest.thread_join(rows[i], target[i]);
    }
};
