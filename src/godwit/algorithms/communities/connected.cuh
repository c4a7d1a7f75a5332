// Union-find over positions, within communities. Encoding: parent[v] <= v; a root is its own parent.
#pragma once

#include "runtime/cuda/include/memory.cuh"

struct Forest {
    u32 *parent;

    __device__ __forceinline__ u32 parent_of(u32 v) const { return load_relaxed(parent + v); }
    // The root of a vertex; the way to it becomes shorter by half. Only roots get other parents, so what is stored is
    // an ancestor whatever others do.
    __device__ __forceinline__ u32 root_of(u32 v) const {
        u32 above = parent_of(v);
        if (above == v) return v;
        for (u32 next = parent_of(above); next != above; next = parent_of(above)) {
            store_system(parent + v, next);
            v = above;
            above = next;
        }
        return above;
    }
    // Join the trees of two vertices (Jaiganesh, Burtscher, HPDC 2018).
    __device__ __forceinline__ void thread_join(u32 u, u32 v) const {
        u = root_of(u);
        v = root_of(v);
        while (u != v) {
            const u32 high = max(u, v), low = min(u, v);
            const u32 over = atomicCAS(parent + high, high, low);
            if (over == high) return;
            u = root_of(over);
            v = low;
        }
    }
};
