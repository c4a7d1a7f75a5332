// Trees of vertices that take in edges as they come by: kernels that algorithms/components/stream_cuda.py starts one
// after the other in a stream, a few a segment. Encoding and invariants are those of algorithms/components/forest.cuh.
//
// Most edges of a stream join nothing: both ends have been below one root for long. Where trees are flat, two
// parents and a comparison tell so. An edge that has to *walk*, to join trees or to find out that they are
// one, may pay for it again and again as long as nobody flattens the trees; flattening looks at every vertex.
// So walks are counted, and trees are flattened whenever walks have cost about as much as that will: the
// total is at most some twice what the best moments would have cost. Kernels decide it; the host never waits.
//
// In a large component nearly all who walk ask for the parent of its root, which is one place in memory.
// So a thread is told a root that most vertices had a moment ago, and asks no more for that one's parent: an
// edge may hang below it whether it still is a root or not, and a compare-and-swap on it finds out.
//
// Floor: an edge is read once, 2 words of 4 or 8 bytes, and two parents. From a bus of 55 GB/s come 6.9 G
// edges of 8 bytes a second, 14 G parents; memory gives 75 G/s of random words over 64 MB, of which that is
// a fifth.
#pragma once

#define MERGE 0
#include "algorithms/components/forest.cuh"

struct StreamControl {
    u64 walks;          // edges that did not find one parent, since the beginning
    u64 walks_settled;  // of these, those before trees were flattened last
    i64 root;           // of most vertices, a moment ago
    u32 blocks_done;
    u32 is_faulty;  // somebody has reported an edge that is none
};

// In host memory: the first edge that was found to be none; `found` is written last.
struct StreamFault {
    u64 chunk;
    u64 row;
    i64 source;
    i64 target;
    u64 found;  // 0: nothing; 1: ids are signed; 2: they are not
};

struct StreamForest {
    Id *parents[1];
    i64 vertices;
    StreamControl *control;
    StreamFault *fault;

    __device__ __forceinline__ Forest forest() const { return {parents, 1, 0, 0}; }
};

// Which rows of the user's edges a kernel gets, for who has to name one of them.
struct StreamOrigin {
    u64 chunk;
    u64 row;
};

constexpr Id NOBODY = -1;
constexpr u64 ALL_JUMPS = ~0ull;

__device__ __forceinline__ i64 grid_thread() {
    return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ i64 grid_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// Both ends of an edge; ids of 4 bytes come by one load.
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
    // Negative ids become huge, whatever the width.
    __device__ __forceinline__ bool are_below(i64 vertices) const {
        const u64 most = static_cast<u64>(vertices);
        return static_cast<u64>(static_cast<i64>(source)) < most &&
               static_cast<u64>(static_cast<i64>(target)) < most;
    }
};

// A thread's walks up the trees, of which it knows one root, as far as it has not become another's child.
struct Walker {
    const Forest forest;
    mutable Id known;

    __device__ __forceinline__ Id above(Id vertex) const {
        return vertex == known ? vertex : forest.above(vertex);
    }

    __device__ __forceinline__ bool replace(Id vertex, Id wanted, Id desired) const {
        if (forest.replace(vertex, wanted, desired)) return true;
        if (vertex == known) known = NOBODY;
        return false;
    }

    __device__ __forceinline__ void thread_link(Id u, Id v, Id above_u, Id above_v) const {
        if constexpr (SPLICES)
            thread_splice_in(*this, u, v, above_u, above_v);
        else
            thread_hook_in(*this, above_u, above_v);
    }
};

// visit(places[], there[]) gets BATCH of `count` places a thread, for loads that do not wait for each other;
// a place that is not there is another's of the thread.
template <class Visit>
__device__ __forceinline__ void grid_visit_batches(i64 count, Visit visit) {
    for (i64 first = grid_thread(); first < count; first += BATCH * grid_threads()) {
        i64 places[BATCH];
        bool there[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            places[i] = first + i * grid_threads();
            there[i] = places[i] < count;
            if (!there[i]) places[i] = first;
        }
        visit(places, there);
    }
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
    store_system(&fault->found, static_cast<u64>(is_signed ? 1 : 2));
}

// link(u, v, above_u, above_v) gets each edge whose ends have different parents; self-loops have one. Ends
// that are no vertices are reported. Returns the edges that were brought.
template <class End, class Link>
__device__ __forceinline__ u32 grid_visit_edges(const StreamForest &stream, const End *ends,
                                                i64 edges, StreamOrigin origin,
                                                const Walker &walker, Link link) {
    u32 brought = 0;
    grid_visit_batches(edges, [&](const i64(&places)[BATCH], const bool (&there)[BATCH]) {
        Id u[BATCH], v[BATCH], above_u[BATCH], above_v[BATCH];
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
            above_u[i] = walker.above(u[i]);
            above_v[i] = walker.above(v[i]);
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            if (above_u[i] == above_v[i]) continue;
            brought++;
            link(u[i], v[i], above_u[i], above_v[i]);
        }
    });
    return brought;
}

// Add up what threads counted. All threads of a warp come.
__device__ __forceinline__ void warp_add(u64 *sum, u32 amount) {
    const u32 total = warp_sum_up_to(amount);
    if (lane_id() == WARP - 1 && total) atomicAdd(sum, static_cast<u64>(total));
}

__device__ __forceinline__ void grid_begin_forest(const StreamForest &stream) {
    for (i64 v = grid_thread(); v < stream.vertices; v += grid_threads())
        stream.parents[0][v] = static_cast<Id>(v);
    if (grid_thread() == 0) *stream.control = {0, 0, NOBODY, 0, 0};
}

template <class End>
__device__ __forceinline__ void grid_link_edges(const StreamForest &stream, const End *ends,
                                                i64 edges, StreamOrigin origin) {
    const Walker walker{stream.forest(), static_cast<Id>(stream.control->root)};
    const u32 walks = grid_visit_edges(
        stream, ends, edges, origin, walker,
        [&](Id u, Id v, Id above_u, Id above_v) { walker.thread_link(u, v, above_u, above_v); });
    warp_add(&stream.control->walks, walks);
}

// A round without atomics, which a link of all these edges has to follow. Only words of roots are written:
// what is undone has been joined in this round, by an edge that is to be linked yet. What earlier segments
// joined nobody will make good.
template <class End>
__device__ __forceinline__ void grid_hook_edges_plainly(const StreamForest &stream, const End *ends,
                                                        i64 edges, StreamOrigin origin) {
    // It asks for all parents: nothing would find out that a root is none any more.
    const Walker walker{stream.forest(), NOBODY};
    grid_visit_edges(stream, ends, edges, origin, walker, [&](Id, Id, Id above_u, Id above_v) {
        const Id high = max(above_u, above_v);
        if (walker.above(high) == high) walker.forest.thread_hook_plainly(above_u, above_v);
    });
}

// What another forest has joined: parents of `count` vertices from `first` on.
__device__ __forceinline__ void grid_absorb_forest(const StreamForest &stream, const Id *theirs,
                                                   i64 first, i64 count) {
    const Walker walker{stream.forest(), static_cast<Id>(stream.control->root)};
    u32 walks = 0;
    grid_visit_batches(count, [&](const i64(&places)[BATCH], const bool (&there)[BATCH]) {
        Id u[BATCH], v[BATCH], above_u[BATCH], above_v[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            u[i] = static_cast<Id>(first + places[i]);
            v[i] = there[i] ? load_once(theirs + places[i]) : u[i];
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            const bool is_joined = u[i] != v[i];
            above_u[i] = is_joined ? walker.above(u[i]) : u[i];
            above_v[i] = is_joined ? walker.above(v[i]) : u[i];
        }
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            if (above_u[i] == above_v[i]) continue;
            walks++;
            walker.thread_link(u[i], v[i], above_u[i], above_v[i]);
        }
    });
    warp_add(&stream.control->walks, walks);
}

// The root of most of 32 vertices that lie evenly apart; all lanes come. Trees are flat.
__device__ __forceinline__ Id warp_most_frequent_root(const StreamForest &stream) {
    const Id root = stream.forest().above(static_cast<Id>(lane_id() * stream.vertices / WARP));
    u32 best = __popc(__match_any_sync(FULL_WARP, root)) * WARP + lane_id();
    for (u32 step = WARP / 2; step > 0; step /= 2)
        best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
    return __shfl_sync(FULL_WARP, root, best % WARP);
}

// Every vertex gets up its tree by so many jumps, if there have been enough walks since the last time.
__device__ __forceinline__ void grid_flatten_forest(const StreamForest &stream, u64 least_walks,
                                                    u64 jumps) {
    StreamControl &control = *stream.control;
    if (control.walks - control.walks_settled < least_walks) return;
    const Forest forest = stream.forest();
    Id known = NOBODY;
    grid_visit_batches(stream.vertices, [&](const i64(&places)[BATCH], const bool (&there)[BATCH]) {
        Id vertex[BATCH], root[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) vertex[i] = static_cast<Id>(places[i]);
        forest.thread_compress(vertex, there, jumps, known, root);
        if (jumps == ALL_JUMPS) known = root[0];
    });
    // Whoever comes last has everybody's stores before it, and nobody reads the control words any more.
    __shared__ u32 place;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        place = atomicAdd(&control.blocks_done, 1u);
        __threadfence();
    }
    __syncthreads();
    if (place != gridDim.x - 1 || warp_id() != 0) return;
    const Id root = warp_most_frequent_root(stream);
    if (lane_id() == 0) {
        control.root = root;
        control.walks_settled = control.walks;
        control.blocks_done = 0;
    }
}
