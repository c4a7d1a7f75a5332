// Divide communities that are not connected: union-find over positions. First each vertex takes one of its first
// neighbours as parent, without atomics (thread_parent), and then the root of its tree (thread_flatten), so that few
// arcs join trees (JoinEnds), which adds up the weights of arcs within communities as well. In the end all take their
// roots again. Encoding: parent[v] <= v; a root is its own parent.
#pragma once

#include "runtime/cuda/include/schedule.cuh"

constexpr i64 LINK_ARCS =
    32;  // of neighbours that may become parents: most rows have one of their community there
constexpr i64 LINKS_AT_ONCE = 4;                // that a thread loads before it looks at the first
constexpr u32 JOIN_QUEUE = WARP + ARCS_A_WARP;  // words of shared memory of a warp that joins trees

struct Forest {
    u32 *parent;

    __device__ __forceinline__ u32 parent_of(u32 v) const { return load_relaxed(parent + v); }
    // Replace the parents of vertices by their roots, which are returned: loads of several vertices overlap. Others see
    // each step, and take several at once.
    template <u32 VERTICES>
    __device__ __forceinline__ void thread_flatten(const u32 (&v)[VERTICES],
                                                   u32 (&root)[VERTICES]) const {
#pragma unroll
        for (u32 i = 0; i < VERTICES; i++) root[i] = parent_of(v[i]);
        for (bool goes_on = true; goes_on;) {
            u32 next[VERTICES];
            goes_on = false;
#pragma unroll
            for (u32 i = 0; i < VERTICES; i++) next[i] = parent_of(root[i]);
#pragma unroll
            for (u32 i = 0; i < VERTICES; i++) {
                if (next[i] == root[i]) continue;
                store_system(parent + v[i], next[i]);
                root[i] = next[i];
                goes_on = true;
            }
        }
    }
    // Return the root of a vertex' tree; vertices on the way take the parents of their parents, so that the next way
    // is shorter.
    __device__ __forceinline__ u32 thread_root(u32 v) const {
        u32 above = parent_of(v);
        for (u32 next = parent_of(above); next != above; next = parent_of(above)) {
            store_system(parent + v, next);
            v = above;
            above = next;
        }
        return above;
    }
    // Join the trees of two vertices (Jaiganesh, Burtscher, HPDC 2018).
    __device__ __forceinline__ void thread_join(u32 u, u32 v) const {
        u32 root_u = thread_root(u), root_v = thread_root(v);
        while (root_u != root_v) {
            const u32 high = max(root_u, root_v), low = min(root_u, root_v);
            const u32 over = atomicCAS(parent + high, high, low);
            if (over == high) return;
            root_u = thread_root(over);
            root_v = thread_root(low);
        }
    }
};

// A smaller neighbour with the label of a vertex, if one is among the first of the arcs [begin, end); else the vertex.
template <class Id>
__device__ __forceinline__ u32 thread_parent(u32 v, i64 begin, i64 end, const Id *targets,
                                             const u32 *label) {
    const u32 own = label[v];
    end = min(end, begin + LINK_ARCS);
    for (i64 base = begin; base < end; base += LINKS_AT_ONCE) {
        u32 u[LINKS_AT_ONCE], theirs[LINKS_AT_ONCE];
#pragma unroll
        for (i64 i = 0; i < LINKS_AT_ONCE; i++)
            u[i] = base + i < end ? static_cast<u32>(targets[base + i]) : v;
#pragma unroll
        for (i64 i = 0; i < LINKS_AT_ONCE; i++) theirs[i] = label[u[i]];
#pragma unroll
        for (i64 i = 0; i < LINKS_AT_ONCE; i++)
            if (u[i] < v && theirs[i] == own) return u[i];
    }
    return v;
}

// The visitor of all rows that joins the ends of arcs within communities, and adds up the weights of these arcs. Ends
// that had one parent before, which is enough to know, are in one tree. Few arcs of a visit join trees, which takes
// long: a warp puts them into a queue in shared memory, and joins 32 at a time.
template <class Id, class Weight>
struct JoinEnds {
    Forest forest;
    const Id *targets;
    const Weight *weights;  // or null: 1 each
    const u32 *label;
    bool is_directed;  // else each edge has two arcs: that to the lower end counts for both
    u32 loops;         // times that arcs from a vertex to itself count
    u64 *queue;        // the warp's, JOIN_QUEUE words: the ends of an arc
    u32 &queued;       // the same for all lanes
    u64 &inside;       // the lane's sum of weights

    // Join the last ones, up to 32.
    __device__ __forceinline__ void warp_join(u32 count) const {
        queued -= count;
        if (lane_id() < count) {
            const u64 ends = queue[queued + lane_id()];
            forest.thread_join(static_cast<u32>(ends >> 32), static_cast<u32>(ends));
        }
        __syncwarp();
    }
    __device__ __forceinline__ void warp_finish() const {
        __syncwarp();
        if (queued) warp_join(queued);
    }

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        static_assert(ARCS <= ARCS_A_LANE);
        u32 target[ARCS];
        bool counts[ARCS], joins[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            target[i] = there[i] ? static_cast<u32>(targets[arcs[i]]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            counts[i] = there[i] && (is_directed || target[i] <= rows[i]);
            joins[i] = counts[i] &&
                       load_near(forest.parent + target[i]) != load_near(forest.parent + rows[i]);
            if (joins[i]) counts[i] = joins[i] = label[target[i]] == label[rows[i]];
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!counts[i]) continue;
            const u32 times = target[i] == rows[i] ? loops : is_directed ? 1 : 2;
            inside += times * (weights ? static_cast<u64>(weights[arcs[i]]) : 1);
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            const u32 votes = __ballot_sync(FULL_WARP, joins[i]);
            const u32 place = queued + __popc(votes & ((1u << lane_id()) - 1));
            if (joins[i]) queue[place] = static_cast<u64>(rows[i]) << 32 | target[i];
            queued += __popc(votes);
        }
        __syncwarp();
        while (queued >= WARP) warp_join(WARP);
    }
};
