// Union-find over vertices of one device or several: links of two trees, compression, roots.
//
// Encoding: a vertex is its own index * devices + owner, so vertices of high degree have low numbers
// on all devices; with tiles (TILED, tiles.cuh) it is its position. parent[v] <= v at all times, so
// there are no cycles; a root is its own parent.
//
// Invariant: an atomic link gives a root a smaller parent, or a vertex a smaller ancestor, and undoes no
// other link, so joined trees stay joined and words only decrease. A link that is retried goes on with a
// smaller larger end, so it ends. A stale parent is still an ancestor, or was a root, which the
// compare-and-swap detects.
//
// MERGE says where the words are: at their owners, for all devices (DIRECT); or all of them on every
// device, which joins what its own arcs join, and forests are merged in pairs later (TREE). A single device
// has them all.
#pragma once

#include "runtime/cuda/include/schedule/mixed.cuh"

constexpr u32 MERGE_NONE = 0, MERGE_TREE = 1, MERGE_DIRECT = 2;  // as in cuda.py

#ifndef TILED
#define TILED false
#endif

constexpr u32 BATCH = 4;  // vertices that a thread processes at once
constexpr Id NO_ROOT = -1;
constexpr u64 TO_THE_ROOT = ~0ull;  // number of jumps

template <class T>
struct UnsignedOf {
    using Type = u32;
};
template <>
struct UnsignedOf<i64> {
    using Type = u64;
};
using Unsigned = UnsignedOf<Id>::Type;

// Call visit(indexes[], there[]) with COUNT of `count` indexes at a time, apart() from each other, so that the
// loads of a thread do not wait for each other; an index that is not there is replaced by the first.
template <u32 COUNT = BATCH, class Apart, class Visit>
__device__ __forceinline__ void thread_visit_batches(i64 begin, Apart apart, i64 count,
                                                     Visit visit) {
    for (i64 first = begin; first < count; first += COUNT * apart()) {
        i64 indexes[COUNT];
        bool there[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            indexes[i] = first + i * apart();
            there[i] = indexes[i] < count;
            if (!there[i]) indexes[i] = first;
        }
        visit(indexes, there);
    }
}

// Return the most frequent root of a warp's lanes, and the number of lanes that have it. All lanes take
// part.
__device__ __forceinline__ Id warp_most_frequent(Id root, u32 &votes) {
    u32 best = __popc(__match_any_sync(FULL_WARP, root)) * WARP + lane_id();
    for (u32 step = WARP / 2; step > 0; step /= 2)
        best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
    votes = best / WARP;
    return __shfl_sync(FULL_WARP, root, best % WARP);
}

// Load a word that only this device's threads write (with DIRECT, those of all devices).
__device__ __forceinline__ Id load_word(const Id *place) {
    return MERGE == MERGE_DIRECT ? load_system(place) : load_relaxed(place);
}

__device__ __forceinline__ Id compare_and_swap(Id *place, Id wanted, Id desired) {
    // atomicCAS takes unsigned types.
    using Bits = typename UnsignedOf<Id>::Type;
    Bits *bits = reinterpret_cast<Bits *>(place);
    const Bits old = static_cast<Bits>(wanted), fresh = static_cast<Bits>(desired);
    return static_cast<Id>(MERGE == MERGE_DIRECT ? atomicCAS_system(bits, old, fresh)
                                                 : atomicCAS(bits, old, fresh));
}

// Hang the root of one of two vertices below the other's tree, given their parents. `trees` has
// parent_of(vertex) and replace(vertex, expected, desired), a compare-and-swap of the parent.
template <class Trees, class Vertex>
__device__ __forceinline__ void thread_hook_in(const Trees &trees, Vertex parent_u,
                                               Vertex parent_v) {
    while (parent_u != parent_v) {
        const Vertex high = max(parent_u, parent_v), low = min(parent_u, parent_v);
        const Vertex over = trees.parent_of(high);
        if (over == low) return;
        if (over == high && trees.replace(high, high, low)) return;
        parent_u = trees.parent_of(trees.parent_of(high));
        parent_v = trees.parent_of(low);
    }
}

// Join two trees by Rem's algorithm: walk up from both, and splice each vertex below the smaller parent.
template <class Trees, class Vertex>
__device__ __forceinline__ void thread_splice_in(const Trees &trees, Vertex u, Vertex v,
                                                 Vertex parent_u, Vertex parent_v) {
    while (parent_u != parent_v) {
        if (parent_u < parent_v) {
            const Vertex other = u, parent_other = parent_u;
            u = v, parent_u = parent_v;
            v = other, parent_v = parent_other;
        }
        const bool replaced = trees.replace(u, parent_u, parent_v);
        if (u == parent_u) {
            if (replaced) return;
        } else {
            u = parent_u;
        }
        parent_u = trees.parent_of(u);
        parent_v = trees.parent_of(v);
    }
}

template <class Trees, class Vertex>
__device__ __forceinline__ void thread_link_in(const Trees &trees, Vertex u, Vertex v,
                                               Vertex parent_u, Vertex parent_v) {
    if constexpr (SPLICES)
        thread_splice_in(trees, u, v, parent_u, parent_v);
    else
        thread_hook_in(trees, parent_u, parent_v);
}

// Link COUNT pairs of nearby trees, many of which are joined already. Parents that are roots are hooked at
// once, so that a thread's links do not wait for each other; a link that loses a race walks.
template <u32 COUNT, class Trees, class Vertex>
__device__ __forceinline__ void thread_link_some(const Trees &trees, const Vertex (&u)[COUNT],
                                                 const Vertex (&v)[COUNT],
                                                 const bool (&wanted)[COUNT]) {
    Vertex parent_u[COUNT], parent_v[COUNT], over[COUNT];
    bool is_root[COUNT];
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        parent_u[i] = wanted[i] ? trees.parent_of(u[i]) : 0;
        parent_v[i] = wanted[i] ? trees.parent_of(v[i]) : 0;
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++)
        over[i] = parent_u[i] == parent_v[i] ? parent_u[i]
                                             : trees.parent_of(max(parent_u[i], parent_v[i]));
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const Vertex high = max(parent_u[i], parent_v[i]), low = min(parent_u[i], parent_v[i]);
        is_root[i] = high != low && over[i] == high;
        if (is_root[i]) over[i] = trees.exchange(high, high, low);
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const bool is_hooked = is_root[i] && over[i] == max(parent_u[i], parent_v[i]);
        if (!is_hooked && over[i] != min(parent_u[i], parent_v[i]))
            thread_link_in(trees, u[i], v[i], parent_u[i], parent_v[i]);
    }
}

struct Forest {
    Id *const *parents;  // of each device
    Unsigned devices;
    Unsigned device;
    Unsigned capacity;

    __device__ __forceinline__ Id own(i64 index) const {
        if (MERGE == MERGE_NONE) return static_cast<Id>(index);
        return TILED ? static_cast<Id>(static_cast<i64>(device) * capacity + index)
                     : static_cast<Id>(index * devices + device);
    }

    __device__ __forceinline__ Id of_position(Id position) const {
        if (MERGE == MERGE_NONE || TILED) return position;
        const Unsigned owner = static_cast<Unsigned>(position) / capacity;
        const Unsigned index = static_cast<Unsigned>(position) - owner * capacity;
        return static_cast<Id>(index * devices + owner);
    }

    __device__ __forceinline__ Unsigned owner(Id vertex) const {
        if (MERGE == MERGE_NONE) return 0;
        return TILED ? static_cast<Unsigned>(vertex) / capacity
                     : static_cast<Unsigned>(vertex) % devices;
    }

    __device__ __forceinline__ Unsigned index(Id vertex) const {
        if (MERGE == MERGE_NONE) return static_cast<Unsigned>(vertex);
        return TILED ? static_cast<Unsigned>(vertex) % capacity
                     : static_cast<Unsigned>(vertex) / devices;
    }

    __device__ __forceinline__ Id *word(Id vertex) const {
        if (MERGE == MERGE_DIRECT) return parents[owner(vertex)] + index(vertex);
        return parents[MERGE == MERGE_NONE ? 0 : device] + vertex;
    }

    // Vertex 0 is a root. In a graph with hubs nearly all threads need its parent, a single address.
    __device__ __forceinline__ Id parent_of(Id vertex) const {
        return vertex == 0 ? vertex : load_word(word(vertex));
    }

    __device__ __forceinline__ bool replace(Id vertex, Id wanted, Id desired) const {
        return exchange(vertex, wanted, desired) == wanted;
    }

    // Compare-and-swap the parent; return the old one.
    __device__ __forceinline__ Id exchange(Id vertex, Id wanted, Id desired) const {
        return compare_and_swap(word(vertex), wanted, desired);
    }

    __device__ __forceinline__ void thread_link(Id u, Id v, Id parent_u, Id parent_v) const {
        thread_link_in(*this, u, v, parent_u, parent_v);
    }

    // Hook without atomics. Concurrent links may be lost, so an atomic link of all arcs must follow.
    __device__ __forceinline__ void thread_hook_plainly(Id parent_u, Id parent_v) const {
        if (parent_u != parent_v)
            store_system(word(max(parent_u, parent_v)), min(parent_u, parent_v));
    }

    // Make the ancestors `jumps` steps up the parents: the roots, if that is enough and no link is running.
    // Each step is written, so that others take shortcuts and a path is compressed in logarithmic time.
    // `known` is a root that is not read again: the root of most vertices is a single address. Return the number of
    // vertices whose roots are further.
    __device__ __forceinline__ u32 thread_compress(const Id (&vertices)[BATCH],
                                                   const bool (&there)[BATCH], u64 jumps, Id known,
                                                   Id (&roots)[BATCH]) const {
        Id next[BATCH];
        u32 further = 0;
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) roots[i] = parent_of(vertices[i]);
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) next[i] = roots[i] == known ? known : parent_of(roots[i]);
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            if (!there[i]) continue;
            for (u64 jump = 0; jump < jumps && next[i] != roots[i]; jump++) {
                store_system(word(vertices[i]), next[i]);
                roots[i] = next[i];
                next[i] = roots[i] == known ? known : parent_of(roots[i]);
            }
            further += next[i] != roots[i];
        }
        return further;
    }

    // Compress one vertex to its root, which becomes `known` if the vertex is not a root.
    __device__ __forceinline__ void thread_flatten(Id vertex, Id &known) const {
        Id root = parent_of(vertex);
        if (root == vertex) return;
        Id next = root == known ? known : parent_of(root);
        while (next != root) {
            store_system(word(vertex), next);
            root = next;
            next = root == known ? known : parent_of(root);
        }
        known = root;
    }

    // Find roots without writing. `known` is a root that is not read again; it becomes the last root found
    // more than one step up.
    template <u32 COUNT>
    __device__ __forceinline__ void thread_find(const Id (&vertices)[COUNT], Id &known,
                                                Id (&roots)[COUNT]) const {
        Id next[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) roots[i] = parent_of(vertices[i]);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) next[i] = roots[i] == known ? known : parent_of(roots[i]);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (next[i] == roots[i]) continue;
            do {
                roots[i] = next[i];
                next[i] = roots[i] == known ? known : parent_of(roots[i]);
            } while (next[i] != roots[i]);
            known = roots[i];
        }
    }
};
