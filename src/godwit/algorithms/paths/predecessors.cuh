// Predecessors by final distances on GPUs: the kernels that cuda.py starts. predecessors.py has the rules.
//
// The including source defines Id (of the graph), Distance, Length (of an arc), and PULLS: the rows of
// vertices are their in-arcs, too; otherwise every vertex pushes its id along its out-arcs. UNIT: all
// lengths are 1.
//
// The rows of a device are those of the asynchronous engine: vertices have local indices, `vertices` has the
// id of each, and is null where these are equal, on one device. Arrays by id have an element for every
// vertex of the graph.
//
// Nearly all of the time goes into reading the distance of the other end of each arc, at random. So this
// end is a *key* that is small enough for the second-level cache to have all keys: the lowest byte of an
// integer distance. 255 is that of an unreached vertex. If all distances are below 255, a key is the
// distance itself; otherwise (`is_wide`) an arc whose keys agree is compared by its distances. Keys of
// floating-point numbers are the numbers.
//
// An id that is not below the smallest candidate is not looked at, so long sorted rows cost little after
// their first hit. As unsigned, -1 is larger than every id: it is the identity of min.
#pragma once

#include "runtime/cuda/include/schedule/rows.cuh"

constexpr u32 THREADS = 256;    // of a block; as in cuda.py
constexpr i64 HUB_ARCS = 1024;  // longer rows are left to the whole grid, in chunks; as in cuda.py
constexpr u32 KEYS_A_THREAD = 4;
constexpr u64 UNREACHED_KEY = 255;

template <class T>
struct Unsigned {
    using Type = u32;
};
template <>
struct Unsigned<i64> {
    using Type = u64;
};
using Candidate = typename Unsigned<Id>::Type;
constexpr Candidate NONE = ~Candidate(0);

template <class T>
struct KeyOf {
    using Type = u8;
};
template <>
struct KeyOf<double> {
    using Type = double;
};
using Key = typename KeyOf<Distance>::Type;

// Keys that are written at once.
struct alignas(KEYS_A_THREAD * sizeof(Key)) Keys {
    Key at[KEYS_A_THREAD];
};

// A long row. Rows lie in the order of their chunks.
struct Hub {
    i64 begin;
    i64 end;
    u64 chunk;  // the first one
    i64 local;
};

struct Control {
    u64 hubs;  // rows << 32 | chunks
    u64 wide;  // number of the latest pass with a distance of 255 or more
    u64 open;  // reached vertices without a candidate
    u64 tail;  // of the queue of ties
};

struct Arguments {
    const i64 *offsets;
    const Id *targets;
    const Length *lengths;
    const Id *vertices;
    const Distance *distance;  // by id
    Key *keys;                 // of own vertices and halo
    Candidate *candidates;     // by id
    Hub *hubs;
    Control *control;
    const Candidate *others;  // by id: of another device
    const i64 *sources;
    u32 *rounds;  // by id, for ties
    Id *queue;    // by id, for ties
    i64 owned;
    i64 locals;  // with halo
    i64 count;   // vertices of the graph
    i64 source_count;
    i64 source;  // the only one, or -1
    i64 round;   // of ties, in which [first, last) of the vertices or of the queue offer themselves
    i64 first;
    i64 last;
    u64 number;  // of this pass; passes are counted from 1
    Distance unreached;

    __device__ __forceinline__ i64 vertex(i64 local) const {
        return vertices ? static_cast<i64>(vertices[local]) : local;
    }
    __device__ __forceinline__ bool is_wide() const {
        return !is_float<Distance> && load_relaxed(&control->wide) == number;
    }
};

__device__ __forceinline__ i64 grid_thread() {
    return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ i64 grid_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// Return the distance at the end of an arc as the CPU computes it: integers may wrap around.
__device__ __forceinline__ Distance far_end(Distance near, Length length) {
    if constexpr (is_float<Distance>) {
        return near + static_cast<Distance>(length);
    } else {
        return static_cast<Distance>(static_cast<u64>(near) + static_cast<u64>(length));
    }
}

// Return true unless the arc cannot be tight. `key` is that of one end, `distance` that of the other.
template <bool key_is_near>
__device__ __forceinline__ bool may_be_tight(Key key, Distance distance, Length length,
                                             bool is_wide) {
    if constexpr (is_float<Distance>) {
        const Distance near = key_is_near ? key : distance, far = key_is_near ? distance : key;
        return near < far && near + static_cast<Distance>(length) == far;
    } else {
        const u64 near = key_is_near ? static_cast<u64>(key) : static_cast<u64>(distance);
        const u64 far = key_is_near ? static_cast<u64>(distance) : static_cast<u64>(key);
        const u64 difference = near + static_cast<u64>(length) - far;
        if (is_wide) return (difference & 0xff) == 0;
        return difference == 0 && near < far && key != UNREACHED_KEY;
    }
}

// Return true if an arc is tight between different distances, the smaller of which was reached.
__device__ __forceinline__ bool is_tight(Distance near, Distance far, Length length) {
    return near < far && far_end(near, length) == far;
}

// The visitor of own rows. Lane l of a warp has the vertex of row l and its distance.
struct Search {
    const Arguments &pass;
    bool is_wide;
    Distance distance;
    Candidate id;     // pushing
    Candidate *best;  // pulling: the smallest candidates for the rows of the warp, in shared memory

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        Id target[ARCS];
        Length length[ARCS];
        Distance mine[ARCS];
        Candidate id_of_row[ARCS];
        Key key[ARCS];
        bool may_be[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            target[i] = there[i] ? load_once(pass.targets + arcs[i]) : Id(0);
            length[i] = Length(1);
            if constexpr (!UNIT)
                length[i] = there[i] ? load_once(pass.lengths + arcs[i]) : Length(0);
            mine[i] = __shfl_sync(FULL_WARP, distance, rows[i]);
            if constexpr (PULLS)
                id_of_row[i] = best[rows[i]];
            else
                id_of_row[i] = __shfl_sync(FULL_WARP, id, rows[i]);
        }
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            may_be[i] = there[i];
            // No sum is below a summand.
            if constexpr (PULLS && !UNIT) may_be[i] &= length[i] <= mine[i];
            if constexpr (PULLS)
                may_be[i] &= pass.vertices || static_cast<Candidate>(target[i]) < id_of_row[i];
            key[i] = may_be[i] ? pass.keys[target[i]] : Key(0);
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            may_be[i] = may_be[i] && may_be_tight<PULLS>(key[i], mine[i], length[i], is_wide);
            if (!may_be[i]) continue;
            const i64 other = pass.vertex(target[i]);
            if (is_wide) {
                const Distance its = pass.distance[other];
                if constexpr (PULLS) {
                    if (!is_tight(its, mine[i], length[i])) continue;
                } else {
                    if (its == pass.unreached || !is_tight(mine[i], its, length[i])) continue;
                }
            }
            if constexpr (PULLS) {
                atomicMin(&best[rows[i]], static_cast<Candidate>(other));
            } else {
                Candidate *place = pass.candidates + other;
                if (id_of_row[i] < load_relaxed(place)) atomicMin(place, id_of_row[i]);
            }
        }
        __syncwarp();
    }
};

// Write the keys of own vertices and halo, and clear the candidates unless every one is written later.
extern "C" __global__ void __launch_bounds__(THREADS)
    prepare(const __grid_constant__ Arguments pass) {
    if (grid_thread() == 0) pass.control->hubs = pass.control->open = pass.control->tail = 0;
    if (!PULLS || pass.vertices) {
        for (i64 v = grid_thread(); v < pass.count; v += grid_threads()) pass.candidates[v] = NONE;
    }
    if (static_cast<const void *>(pass.keys) == static_cast<const void *>(pass.distance)) return;
    bool is_wide = false;
    for (i64 first = grid_thread() * KEYS_A_THREAD; first < pass.locals;
         first += grid_threads() * KEYS_A_THREAD) {
        Keys keys;
#pragma unroll
        for (u32 i = 0; i < KEYS_A_THREAD; i++) {
            keys.at[i] = Key(0);
            if (first + i >= pass.locals) continue;
            const Distance distance = pass.distance[pass.vertex(first + i)];
            keys.at[i] = static_cast<Key>(distance);
            is_wide |=
                distance >= static_cast<Distance>(UNREACHED_KEY) && distance != pass.unreached;
        }
        *reinterpret_cast<Keys *>(pass.keys + first) = keys;  // there is room past the last key
    }
    if (__syncthreads_or(is_wide) && threadIdx.x == 0) atomicMax(&pass.control->wide, pass.number);
}

// Rule 1 for all rows but long ones, which are listed.
extern "C" __global__ void __launch_bounds__(THREADS)
    search_rows(const __grid_constant__ Arguments pass) {
    __shared__ Candidate best[THREADS];
    Search search{pass, pass.is_wide(), Distance(0), NONE, best + warp_id() * WARP};
    for (i64 first = grid_thread() / WARP * WARP; first < pass.owned; first += grid_threads()) {
        const i64 local = first + lane_id();
        i64 begin = 0, end = 0;
        search.distance = 0;
        search.id = NONE;
        if (local < pass.owned) {
            const i64 vertex = pass.vertex(local);
            begin = pass.offsets[local];
            end = pass.offsets[local + 1];
            search.distance = pass.distance[vertex];
            bool searches = search.distance != pass.unreached;
            if constexpr (PULLS) {
                searches &= search.distance > 0;
                if (UNIT && search.distance == 1 && pass.source >= 0) {
                    search.id = static_cast<Candidate>(pass.source);
                    searches = false;
                }
            } else {
                search.id = static_cast<Candidate>(vertex);
            }
            if (!searches) end = begin;
            if (end - begin > HUB_ARCS) {
                const u64 chunks = static_cast<u64>((end - begin + HUB_ARCS - 1) / HUB_ARCS);
                const u64 before = atomicAdd(&pass.control->hubs, 1ull << 32 | chunks);
                pass.hubs[before >> 32] = Hub{begin, end, before & 0xffffffffull, local};
                end = begin;
            }
        }
        if constexpr (PULLS) {
            search.best[lane_id()] = search.id;
            __syncwarp();
        }
        warp_visit_rows(begin, static_cast<u32>(end - begin), lane_id(), search);
        if constexpr (PULLS) {
            if (local < pass.owned) pass.candidates[pass.vertex(local)] = search.best[lane_id()];
            __syncwarp();
        }
    }
}

// Rule 1 for long rows: the chunks are distributed over the warps in ranges.
extern "C" __global__ void __launch_bounds__(THREADS)
    search_hubs(const __grid_constant__ Arguments pass) {
    __shared__ Candidate best[THREADS];
    Search search{pass, pass.is_wide(), Distance(0), NONE, best + warp_id() * WARP};
    const u64 listed = load_relaxed(&pass.control->hubs);
    const u64 hubs = listed >> 32, chunks = listed & 0xffffffffull;
    const u64 warps = static_cast<u64>(grid_threads()) / WARP;
    const u64 share = (chunks + warps - 1) / warps;
    u64 chunk = static_cast<u64>(grid_thread()) / WARP * share;
    const u64 last = min(chunk + share, chunks);
    if (chunk >= last) return;
    u64 at = thread_row_of_chunk(pass.hubs, static_cast<u32>(hubs), chunk);
    for (; chunk < last; chunk++) {
        while (at + 1 < hubs && pass.hubs[at + 1].chunk <= chunk) at++;
        const Hub hub = pass.hubs[at];
        const i64 vertex = pass.vertex(hub.local);
        search.distance = pass.distance[vertex];
        search.id = static_cast<Candidate>(vertex);
        Candidate known = NONE;
        if constexpr (PULLS) {
            known = load_relaxed(pass.candidates + vertex);
            search.best[lane_id()] = known;
            __syncwarp();
        }
        const i64 begin = hub.begin + static_cast<i64>(chunk - hub.chunk) * HUB_ARCS;
        const i64 end = min(begin + HUB_ARCS, hub.end);
        for (i64 first = begin; first < end; first += ARCS_A_WARP)
            warp_visit_part(first, end, 0, search);
        if constexpr (PULLS) {
            if (lane_id() == 0 && search.best[0] < known)
                atomicMin(pass.candidates + vertex, search.best[0]);
            __syncwarp();
        }
    }
}

// Take the candidates of another device where they are smaller.
extern "C" __global__ void __launch_bounds__(THREADS)
    merge(const __grid_constant__ Arguments pass) {
    for (i64 v = grid_thread(); v < pass.count; v += grid_threads()) {
        const Candidate other = pass.others[v];
        if (other < pass.candidates[v]) pass.candidates[v] = other;
    }
}

// Count the reached vertices, with sources, that have no candidate.
extern "C" __global__ void __launch_bounds__(THREADS)
    count_open(const __grid_constant__ Arguments pass) {
    u64 open = 0;
    for (i64 v = grid_thread(); v < pass.count; v += grid_threads())
        open += pass.candidates[v] == NONE && pass.distance[v] != pass.unreached;
    open = warp_sum(open);
    if (lane_id() == 0 && open) atomicAdd(&pass.control->open, open);
}

// Rule 2, on one device, in rounds. `rounds` has the round in which a vertex got its candidate, 0 for rule
// 1 and for sources, OPEN for the others. The vertices of a round are a range of the queue.
constexpr u32 OPEN = 0xffffffffu;

extern "C" __global__ void __launch_bounds__(THREADS)
    open_ties(const __grid_constant__ Arguments pass) {
    for (i64 v = grid_thread(); v < pass.count; v += grid_threads()) {
        const bool is_open = pass.candidates[v] == NONE && pass.distance[v] != pass.unreached;
        pass.rounds[v] = is_open ? OPEN : 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    settle_sources(const __grid_constant__ Arguments pass) {
    for (i64 i = grid_thread(); i < pass.source_count; i += grid_threads())
        pass.rounds[pass.sources[i]] = 0;
}

// The visitor of the out-arcs of settled vertices, of which each lane has one.
struct Offer {
    const Arguments &pass;
    u32 round;
    Distance distance;
    Candidate id;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            const Distance here = __shfl_sync(FULL_WARP, distance, rows[i]);
            const Candidate from = __shfl_sync(FULL_WARP, id, rows[i]);
            if (!there[i]) continue;
            const i64 v = pass.targets[arcs[i]];
            Length length = Length(1);
            if constexpr (!UNIT) length = pass.lengths[arcs[i]];
            if (pass.distance[v] != here || far_end(here, length) != here) continue;
            u32 known = load_relaxed(pass.rounds + v);
            if (known < round) continue;
            if (known == OPEN) known = atomicCAS(pass.rounds + v, OPEN, round);
            if (known == OPEN)
                pass.queue[atomicAdd(&pass.control->tail, 1ull)] = static_cast<Id>(v);
            atomicMin(pass.candidates + v, from);
        }
    }
};

// A round: the vertices that were settled in the round before offer themselves, in round 1 all that were
// settled by rule 1.
extern "C" __global__ void __launch_bounds__(THREADS)
    settle_ties(const __grid_constant__ Arguments pass) {
    for (i64 base = pass.first + grid_thread() / WARP * WARP; base < pass.last;
         base += grid_threads()) {
        const i64 at = base + lane_id();
        i64 begin = 0, end = 0;
        Offer offer{pass, static_cast<u32>(pass.round), Distance(0), NONE};
        if (at < pass.last) {
            const i64 v = pass.round == 1 ? at : static_cast<i64>(pass.queue[at]);
            offer.distance = pass.distance[v];
            offer.id = static_cast<Candidate>(v);
            const bool settled = pass.round > 1 || load_relaxed(pass.rounds + v) == 0;
            if (settled && offer.distance != pass.unreached) {
                begin = pass.offsets[v];
                end = pass.offsets[v + 1];
            }
        }
        warp_visit_rows(begin, static_cast<u32>(end - begin), lane_id(), offer);
    }
}
