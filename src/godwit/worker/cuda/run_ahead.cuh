// Running ahead: a block follows the vertices that it reaches through a queue in shared memory, up to
// `hops` arcs and as long as their priorities are within the bound, before it meets the other blocks.
//
// A hop has one barrier, as three counters of queued vertices take turns: one is read, that of the next hop is
// filled, and the third is cleared. A packed row is queued with its vertex: it was loaded together with the
// vertex's value when the vertex was reached, so that a hop takes one latency of memory and one atomic.
#pragma once

#include "worker/cuda/expand.cuh"

// Relax one arc of a packed row, with all loads issued at once. It does not check first if the item is
// stale or the target's value is better already: that load would take longer than it saves
// (benchmarks/RESULTS.md).
template <class P>
__device__ __forceinline__ void thread_relax_packed(Worker<P> &worker, i64 vertex,
                                                    typename P::Value value, typename P::Id target,
                                                    typename P::Weight weight, i64 degree) {
    using Value = typename P::Value;
    const Part<P> &part = worker.part;
    // Asked of one device, too: without the branch the compiler loads the row behind the atomic, which made
    // searches of roads up to 1.24 times as long.
    const bool ours = target < part.owned;
    Value *address = worker.address_of(target);
    Row<typename P::Id> row{};
    Row<typename P::Weight> row_weight{};
    if (ours) {
        row = worker.row_of(target);
        row_weight = worker.row_weight_of(target);
    }
    worker.arcs += 1;
    i64 id = 0;
    if constexpr (P::uses_vertex) id = part.vertices[vertex];
    Value candidate = worker.message(value, weight, degree, id, typename P::Field(0));
    if (improves<P>(worker.limit, candidate)) return;
    if (!thread_combine<P>(address, candidate)) {
        if (!ours) worker.filtered += 1;
    } else if (!ours) {
        worker.thread_set_halo_pending(target - part.owned);
    } else {
        if (target == part.target) worker.thread_note_target(candidate);
        float priority = priority_of<P>(candidate);
        if (worker.is_due(priority) && worker.thread_push(target, candidate, row, row_weight))
            return;
        __threadfence();
        worker.thread_set_pending(target, priority);
    }
}

// Relax a row that is too long to be packed, by four lanes.
template <class P>
__device__ void thread_relax_long(Worker<P> &worker, i64 vertex, typename P::Value value,
                                  u32 side) {
    const Part<P> &part = worker.part;
    i64 begin = part.offsets[vertex], end = part.offsets[vertex + 1];
    if (end - begin > HUB_DEGREE) {  // all blocks will process it: it is pending
        if (side == 0) {
            worker.thread_set_pending(vertex, priority_of<P>(value));
            worker.processed -= 1;
        }
        return;
    }
    for (i64 arc = begin + side; arc < end; arc += 4) {
        typename P::Weight weight = 1;
        if constexpr (P::weighted) weight = part.weights[arc];
        thread_relax_packed(worker, vertex, value, part.targets[arc], weight, end - begin);
    }
}

// Process a hop's items by four lanes each, one for each arc.
template <class P>
__device__ __forceinline__ void block_hop_packed(Worker<P> &worker, u32 items) {
    using Id = typename P::Id;
    using Value = typename P::Value;
    const Part<P> &part = worker.part;
    const Queue<P> &queue = worker.queue;
    u32 start = queue.first(queue.hop);
    for (u32 i = threadIdx.x; i < items * 4; i += blockDim.x) {
        u32 entry = start + i / 4, side = i % 4;
        i64 vertex = queue.vertex[entry];
        Value value = queue.value[entry];
        Id target = queue.row[entry].at[side];
        worker.processed += side == 0;
        if (improves<P>(worker.limit, value)) {
            worker.useless += side == 0;
            continue;
        }
        if (!P::activate(value, part.parameters)) continue;
        if (queue.row[entry].at[0] == LONG_ROW) {
            thread_relax_long(worker, vertex, value, side);
        } else if (target != NO_ARC) {
            typename P::Weight weight = 1;
            if constexpr (P::weighted) weight = queue.row_weight[entry].at[side];
            i64 degree = 0;
            if constexpr (P::uses_degree) {
                for (u32 k = 0; k < 4; k++) degree += queue.row[entry].at[k] != NO_ARC;
            }
            thread_relax_packed(worker, vertex, value, target, weight, degree);
        }
    }
}

// Process a hop's items, a lane each, and share their arcs out in the warp.
template <class P>
__device__ __forceinline__ void block_hop(Worker<P> &worker, u32 items) {
    using Value = typename P::Value;
    const Part<P> &part = worker.part;
    Queue<P> &queue = worker.queue;
    u32 start = queue.first(queue.hop);
    u32 warps = blockDim.x / WARP;
    for (u32 first = 0; first < items; first += WARP * warps) {
        u32 entry = first + lane_id() * warps + warp_id();
        bool in = entry < items;
        if (!__any_sync(FULL_WARP, in)) continue;
        i64 begin = 0, degree = 0;
        typename Worker<P>::Sending sending{};
        if (in) {
            i64 vertex = queue.vertex[start + entry];
            Value value = queue.value[start + entry];
            begin = part.offsets[vertex];
            degree = part.offsets[vertex + 1] - begin;
            Value now = load_relaxed(part.values + vertex);
            worker.processed += degree <= HUB_DEGREE;
            if (degree > HUB_DEGREE) {
                worker.thread_set_pending(vertex, priority_of<P>(now));
                degree = 0;
            } else if (!P::accumulates && !same_bits(now, value)) {
                worker.useless += 1;
                degree = 0;
            } else if (!worker.thread_begin(vertex, now, sending)) {
                degree = 0;
            }
        }
        warp_expand(worker, begin, static_cast<u32>(degree), sending);
    }
}

// Process the queue hop by hop; vertices left after the last hop become pending. At the beginning the queue
// is filled for hop `queue.hop + 1`. Called by all threads of a block.
template <class P>
__device__ __forceinline__ void block_run_ahead(Worker<P> &worker) {
    Queue<P> &queue = worker.queue;
    const u32 hops = load_relaxed(&worker.part.control->hops);
    for (u32 hop = 0;; hop++) {
        __syncthreads();
        queue.hop += 1;
        u32 items = queue.readable();
        if (threadIdx.x == 0) queue.counts[(queue.hop + 2) % 3] = 0;
        if (items == 0) break;
        if (hop == hops) {
            u32 start = queue.first(queue.hop);
            __threadfence();
            for (u32 entry = start + threadIdx.x; entry < start + items; entry += blockDim.x)
                worker.thread_set_pending(queue.vertex[entry], priority_of<P>(queue.value[entry]));
            break;
        }
        if constexpr (P::packed)
            block_hop_packed(worker, items);
        else
            block_hop(worker, items);
    }
    __syncthreads();
}
