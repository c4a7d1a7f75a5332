// Union-find over positions, within communities. Encoding: parent[v] <= v; a root is its own parent.
#pragma once

#include "runtime/cuda/include/memory.cuh"

struct Forest {
    u32 *parent;

    __device__ __forceinline__ u32 parent_of(u32 v) const { return load_relaxed(parent + v); }
    __device__ __forceinline__ u32 root_of(u32 v) const {
        u32 root = parent_of(v);
        for (u32 next = parent_of(root); next != root; next = parent_of(root)) root = next;
        return root;
    }
    // Join the trees of two vertices.
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
