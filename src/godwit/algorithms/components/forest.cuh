// Trees of vertices over one device or several, and how two of them become one.
//
// Encoding: a vertex is a *hotness*: own index * devices + owner, so the vertices of highest degree have the
// lowest, whoever owns them; where trees are begun in tiles (TILED, algorithms/components/tiles.cuh), it is a position.
// parent[v] <= v at all times, so there are no cycles; a root is its own parent.
// An atomic link gives a root a smaller parent, or a vertex a smaller ancestor, and undoes no other: what was
// joined stays joined, and words only get smaller. A link that has to try again goes on with a smaller larger
// end, so it ends. A word that is read late is one that was there: an ancestor still, or a root no more, which
// the compare-and-swap finds out.
//
// Where the words are, MERGE says: at their owners, for all (DIRECT); or all of them on every device, which
// joins what its own arcs join, and the forests are merged two by two later (TREE). One device has them all.
#pragma once

#include "runtime/cuda/include/schedule_mixed.cuh"

constexpr u32 MERGE_NONE = 0, MERGE_TREE = 1, MERGE_DIRECT = 2;  // as in cuda.py

#ifndef TILED
#define TILED false
#endif

constexpr u32 BATCH = 4;  // vertices that a thread takes at once

template <class T>
struct UnsignedOf {
    using Type = u32;
};
template <>
struct UnsignedOf<i64> {
    using Type = u64;
};
using Unsigned = UnsignedOf<Id>::Type;

// Of words that only this device's threads write (or all, where words lie at their owners).
__device__ __forceinline__ Id load_word(const Id *place) {
    return MERGE == MERGE_DIRECT ? load_system(place) : load_relaxed(place);
}

__device__ __forceinline__ Id compare_and_swap(Id *place, Id wanted, Id desired) {
    // There are atomics of one signed type only.
    using Bits = typename UnsignedOf<Id>::Type;
    Bits *bits = reinterpret_cast<Bits *>(place);
    const Bits old = static_cast<Bits>(wanted), fresh = static_cast<Bits>(desired);
    return static_cast<Id>(MERGE == MERGE_DIRECT ? atomicCAS_system(bits, old, fresh)
                                                 : atomicCAS(bits, old, fresh));
}

// Hang the root of one of two vertices below the other's tree; their parents are known. `trees` tells a
// vertex' parent, above(), and takes another one by replace(), if the old one still is what was said.
template <class Trees, class Vertex>
__device__ __forceinline__ void thread_hook_in(const Trees &trees, Vertex above_u, Vertex above_v) {
    while (above_u != above_v) {
        const Vertex high = max(above_u, above_v), low = min(above_u, above_v);
        const Vertex over = trees.above(high);
        if (over == low) return;
        if (over == high && trees.replace(high, high, low)) return;
        above_u = trees.above(trees.above(high));
        above_v = trees.above(low);
    }
}

// Rem's algorithm: both walk up, and are spliced below the smaller parent on their way.
template <class Trees, class Vertex>
__device__ __forceinline__ void thread_splice_in(const Trees &trees, Vertex u, Vertex v,
                                                 Vertex above_u, Vertex above_v) {
    while (above_u != above_v) {
        if (above_u < above_v) {
            const Vertex other = u, above_other = above_u;
            u = v, above_u = above_v;
            v = other, above_v = above_other;
        }
        const bool replaced = trees.replace(u, above_u, above_v);
        if (u == above_u) {
            if (replaced) return;
        } else {
            u = above_u;
        }
        above_u = trees.above(u);
        above_v = trees.above(v);
    }
}

template <class Trees, class Vertex>
__device__ __forceinline__ void thread_link_in(const Trees &trees, Vertex u, Vertex v,
                                               Vertex above_u, Vertex above_v) {
    if constexpr (SPLICES)
        thread_splice_in(trees, u, v, above_u, above_v);
    else
        thread_hook_in(trees, above_u, above_v);
}

// Links of near trees, of which many are there already, or are the same: parents that are roots are hooked at
// once, so that a thread's links do not wait for each other; who comes too late has to walk.
template <u32 COUNT, class Trees, class Vertex>
__device__ __forceinline__ void thread_link_some(const Trees &trees, const Vertex (&u)[COUNT],
                                                 const Vertex (&v)[COUNT],
                                                 const bool (&wanted)[COUNT]) {
    Vertex above_u[COUNT], above_v[COUNT], over[COUNT];
    bool is_root[COUNT];
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        above_u[i] = wanted[i] ? trees.above(u[i]) : 0;
        above_v[i] = wanted[i] ? trees.above(v[i]) : 0;
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++)
        over[i] = above_u[i] == above_v[i] ? above_u[i] : trees.above(max(above_u[i], above_v[i]));
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const Vertex high = max(above_u[i], above_v[i]), low = min(above_u[i], above_v[i]);
        is_root[i] = high != low && over[i] == high;
        if (is_root[i]) over[i] = trees.exchange(high, high, low);
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const bool is_hooked = is_root[i] && over[i] == max(above_u[i], above_v[i]);
        if (!is_hooked && over[i] != min(above_u[i], above_v[i]))
            thread_link_in(trees, u[i], v[i], above_u[i], above_v[i]);
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

    // The first vertex has none before it: in a graph with hubs nearly all ask for its parent, which is one
    // place in memory.
    __device__ __forceinline__ Id above(Id vertex) const {
        return vertex == 0 ? vertex : load_word(word(vertex));
    }

    __device__ __forceinline__ bool replace(Id vertex, Id wanted, Id desired) const {
        return exchange(vertex, wanted, desired) == wanted;
    }

    // What the parent was: it is the desired one now, if that is what was wanted.
    __device__ __forceinline__ Id exchange(Id vertex, Id wanted, Id desired) const {
        return compare_and_swap(word(vertex), wanted, desired);
    }

    __device__ __forceinline__ void thread_hook(Id above_u, Id above_v) const {
        thread_hook_in(*this, above_u, above_v);
    }
    __device__ __forceinline__ void thread_splice(Id u, Id v, Id above_u, Id above_v) const {
        thread_splice_in(*this, u, v, above_u, above_v);
    }

    __device__ __forceinline__ void thread_link(Id u, Id v, Id above_u, Id above_v) const {
        thread_link_in(*this, u, v, above_u, above_v);
    }

    // Without atomics: what others link at once may be undone, which an atomic link of all arcs makes good.
    __device__ __forceinline__ void thread_hook_plainly(Id above_u, Id above_v) const {
        if (above_u != above_v) store_system(word(max(above_u, above_v)), min(above_u, above_v));
    }

    // The ancestors so many jumps up, which become the parents: the roots, if enough, while none is linked.
    // They are written at every jump: those who come by are spared it, so that a long path takes its logarithm.
    // `known` is a root that is not asked: that of most vertices is one place in memory, too.
    __device__ __forceinline__ void thread_compress(const Id (&vertices)[BATCH],
                                                    const bool (&there)[BATCH], u64 jumps, Id known,
                                                    Id (&roots)[BATCH]) const {
        Id next[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) roots[i] = above(vertices[i]);
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) next[i] = roots[i] == known ? known : above(roots[i]);
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            if (!there[i]) continue;
            for (u64 jump = 0; jump < jumps && next[i] != roots[i]; jump++) {
                store_system(word(vertices[i]), next[i]);
                roots[i] = next[i];
                next[i] = roots[i] == known ? known : above(roots[i]);
            }
        }
    }

    // As thread_compress to the root, of one vertex. `known` becomes the root, if the vertex is none.
    __device__ __forceinline__ void thread_flatten(Id vertex, Id &known) const {
        Id root = above(vertex);
        if (root == vertex) return;
        Id next = root == known ? known : above(root);
        while (next != root) {
            store_system(word(vertex), next);
            root = next;
            next = root == known ? known : above(root);
        }
        known = root;
    }

    // Roots. Nothing is written: trees are flat, or nobody asks again. `known` is a root that is not asked; it becomes
    // one that is further away than the next.
    template <u32 COUNT>
    __device__ __forceinline__ void thread_find(const Id (&vertices)[COUNT], Id &known,
                                                Id (&roots)[COUNT]) const {
        Id next[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) roots[i] = above(vertices[i]);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) next[i] = roots[i] == known ? known : above(roots[i]);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (next[i] == roots[i]) continue;
            do {
                roots[i] = next[i];
                next[i] = roots[i] == known ? known : above(roots[i]);
            } while (next[i] != roots[i]);
            known = roots[i];
        }
    }
};
