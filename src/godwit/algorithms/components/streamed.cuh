// Union-find that takes in edges as they arrive: kernels that streamed_cuda.py enqueues one after the other
// in a stream, a few per segment. Encoding and invariants are those of union_find.cuh.
//
// Most edges of a stream join nothing: both ends are below one root already, and where trees are flat,
// comparing two parents shows it. An edge that has to *walk*, to join trees or to find that they are one,
// may walk again and again while trees are deep; flattening reads every vertex. So walks are counted, and
// trees are flattened when walks have cost about as much as that: the total is at most twice that of the
// best moments. Kernels decide; the host never waits.
//
// In a large component nearly all walks read the parent of its root, a single address. So a thread is given
// the root that most vertices had a moment ago, and does not read that one's parent: an edge may be hung
// below it whether it still is a root or not, which a compare-and-swap on it detects.
//
// Lower bound: an edge is read once, 2 words of 4 or 8 bytes, and two parents. A bus of 55 GB/s delivers
// 6.9 G edges of 8 bytes a second, hence 14 G parents; memory delivers 75 G/s random words over 64 MB, five
// times that.
#pragma once

#define MERGE 0
#include "algorithms/components/union_find.cuh"

struct StreamControl {
    u64 walks;            // edges whose ends had different parents, since the start
    u64 walks_flattened;  // those before trees were last flattened
    i64 root;             // of most vertices when trees were last flattened
    u32 blocks_done;
    u32 is_faulty;  // a thread has claimed the fault report
};

// Report in host memory of an edge whose ends are not vertices; `kind` is written last.
struct StreamFault {
    u64 chunk;
    u64 row;
    i64 source;
    i64 target;
    u64 kind;  // 0: no fault; 1: signed ids; 2: unsigned ids
};

struct StreamForest {
    Id *parents[1];
    i64 vertices;
    StreamControl *control;
    StreamFault *fault;

    __device__ __forceinline__ Forest forest() const { return {parents, 1, 0, 0}; }
};

// Chunk and first row of a kernel's edges among the user's edges.
struct StreamOrigin {
    u64 chunk;
    u64 row;
};

__device__ __forceinline__ i64 grid_thread() {
    return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ i64 grid_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// Both ends of an edge; ids of 4 bytes take one load.
template <class End>
struct Ends {
    End source;
    End target;

    __device__ __forceinline__ explicit Ends(const End *place) {
        if constexpr (sizeof(End) == 4) {
            const u64 both = load_once(reinterpret_cast<const u64 *>(place));
            source = static_cast<End>(static_cast<u32>(both));
            target = static_cast<End>(static_cast<u32>(both >> 32));
        } else {
            source = load_once(place);
            target = load_once(place + 1);
        }
    }
    // Negative ids become huge.
    __device__ __forceinline__ bool are_below(i64 vertices) const {
        const u64 most = static_cast<u64>(vertices);
        return static_cast<u64>(static_cast<i64>(source)) < most &&
               static_cast<u64>(static_cast<i64>(target)) < most;
    }
};

// Trees as one thread sees them, with a root whose parent it does not read until a compare-and-swap on it
// fails.
struct Walker {
    const Forest forest;
    mutable Id known;

    __device__ __forceinline__ Id parent_of(Id vertex) const {
        return vertex == known ? vertex : forest.parent_of(vertex);
    }

    __device__ __forceinline__ bool replace(Id vertex, Id wanted, Id desired) const {
        if (forest.replace(vertex, wanted, desired)) return true;
        if (vertex == known) known = NO_ROOT;
        return false;
    }

    __device__ __forceinline__ void thread_link(Id u, Id v, Id parent_u, Id parent_v) const {
        thread_link_in(*this, u, v, parent_u, parent_v);
    }
};

template <class Visit>
__device__ __forceinline__ void grid_visit_batches(i64 count, Visit visit) {
    thread_visit_batches(grid_thread(), grid_threads, count, visit);
}

template <class End>
__device__ __forceinline__ void thread_report(const StreamForest &stream, StreamOrigin origin,
                                              u64 place, const Ends<End> &edge) {
    u32 *const is_faulty = &stream.control->is_faulty;
    if (load_relaxed(is_faulty) || atomicExch(is_faulty, 1u)) return;
    StreamFault *const fault = stream.fault;
    store_system(&fault->chunk, origin.chunk);
    store_system(&fault->row, origin.row + place);
    store_system(&fault->source, static_cast<i64>(edge.source));
    store_system(&fault->target, static_cast<i64>(edge.target));
    __threadfence_system();
    const bool is_signed = static_cast<End>(-1) < 0;
    store_system(&fault->kind, static_cast<u64>(is_signed ? 1 : 2));
}

// Call link(u, v, parent_u, parent_v) for each edge whose ends have different parents, and return their
// number. Edges whose ends are not vertices are reported.
template <class End, class Link>
__device__ __forceinline__ u32 grid_visit_edges(const StreamForest &stream, const End *ends,
                                                i64 edges, StreamOrigin origin,
                                                const Walker &walker, Link link) {
    u32 walks = 0;
    grid_visit_batches(edges, [&](const i64(&places)[BATCH], const bool (&there)[BATCH]) {
        Id u[BATCH], v[BATCH], parent_u[BATCH], parent_v[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            const Ends<End> edge(ends + 2 * places[i]);
            const bool is_right = edge.are_below(stream.vertices);
            if (!is_right) thread_report(stream, origin, static_cast<u64>(places[i]), edge);
            const bool counts = there[i] && is_right;
            u[i] = counts ? static_cast<Id>(edge.source) : 0;
            v[i] = counts ? static_cast<Id>(edge.target) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            parent_u[i] = walker.parent_of(u[i]);
            parent_v[i] = walker.parent_of(v[i]);
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            if (parent_u[i] == parent_v[i]) continue;
            walks++;
            link(u[i], v[i], parent_u[i], parent_v[i]);
        }
    });
    return walks;
}

// Add the sum over the lanes. All lanes take part.
__device__ __forceinline__ void warp_add(u64 *sum, u32 amount) {
    const u32 total = warp_sum_up_to(amount);
    if (lane_id() == WARP - 1 && total) atomicAdd(sum, static_cast<u64>(total));
}

__device__ __forceinline__ void grid_begin_forest(const StreamForest &stream) {
    for (i64 v = grid_thread(); v < stream.vertices; v += grid_threads())
        stream.parents[0][v] = static_cast<Id>(v);
    if (grid_thread() == 0) *stream.control = {0, 0, NO_ROOT, 0, 0};
}

template <class End>
__device__ __forceinline__ void grid_link_edges(const StreamForest &stream, const End *ends,
                                                i64 edges, StreamOrigin origin) {
    const Walker walker{stream.forest(), static_cast<Id>(stream.control->root)};
    const u32 walks = grid_visit_edges(stream, ends, edges, origin, walker,
                                       [&](Id u, Id v, Id parent_u, Id parent_v) {
                                           walker.thread_link(u, v, parent_u, parent_v);
                                       });
    warp_add(&stream.control->walks, walks);
}

// Hook without atomics; grid_link_edges of the same edges must follow. Only words of roots are written, so
// a lost link is one of this round, by an edge that is linked later. Links of earlier segments are not
// lost.
template <class End>
__device__ __forceinline__ void grid_hook_edges_plainly(const StreamForest &stream, const End *ends,
                                                        i64 edges, StreamOrigin origin) {
    // No known root: without a compare-and-swap, a stale one would not be detected.
    const Walker walker{stream.forest(), NO_ROOT};
    grid_visit_edges(stream, ends, edges, origin, walker, [&](Id, Id, Id parent_u, Id parent_v) {
        const Id high = max(parent_u, parent_v);
        if (walker.parent_of(high) == high) walker.forest.thread_hook_plainly(parent_u, parent_v);
    });
}

// Join `count` vertices from `first` on with their parents in another forest.
__device__ __forceinline__ void grid_absorb_forest(const StreamForest &stream, const Id *theirs,
                                                   i64 first, i64 count) {
    const Walker walker{stream.forest(), static_cast<Id>(stream.control->root)};
    u32 walks = 0;
    grid_visit_batches(count, [&](const i64(&places)[BATCH], const bool (&there)[BATCH]) {
        Id u[BATCH], v[BATCH], parent_u[BATCH], parent_v[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            u[i] = static_cast<Id>(first + places[i]);
            v[i] = there[i] ? load_once(theirs + places[i]) : u[i];
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            const bool is_joined = u[i] != v[i];
            parent_u[i] = is_joined ? walker.parent_of(u[i]) : u[i];
            parent_v[i] = is_joined ? walker.parent_of(v[i]) : u[i];
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            if (parent_u[i] == parent_v[i]) continue;
            walks++;
            walker.thread_link(u[i], v[i], parent_u[i], parent_v[i]);
        }
    });
    warp_add(&stream.control->walks, walks);
}

// Move every vertex `jumps` steps up its tree, if there were enough walks since the last time.
__device__ __forceinline__ void grid_flatten_forest(const StreamForest &stream, u64 least_walks,
                                                    u64 jumps) {
    StreamControl &control = *stream.control;
    if (control.walks - control.walks_flattened < least_walks) return;
    const Forest forest = stream.forest();
    Id known = NO_ROOT;
    grid_visit_batches(stream.vertices, [&](const i64(&places)[BATCH], const bool (&there)[BATCH]) {
        Id vertex[BATCH], root[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) vertex[i] = static_cast<Id>(places[i]);
        forest.thread_compress(vertex, there, jumps, known, root);
        if (jumps == TO_THE_ROOT) known = root[0];
    });
    // The last block sees the stores of all others, which no longer read the control words.
    __shared__ u32 place;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        place = atomicAdd(&control.blocks_done, 1u);
        __threadfence();
    }
    __syncthreads();
    if (place != gridDim.x - 1 || warp_id() != 0) return;
    u32 votes;
    const Id root = warp_most_frequent(
        stream.forest().parent_of(static_cast<Id>(lane_id() * stream.vertices / WARP)), votes);
    if (lane_id() == 0) {
        control.root = root;
        control.walks_flattened = control.walks;
        control.blocks_done = 0;
    }
}
