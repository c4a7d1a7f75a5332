// Relaxing whole rows: the arcs of short rows are shared out to the lanes of a warp, those of longer rows than
// HUB_DEGREE to the warps of the whole grid, in chunks.
//
// The searches are those of supersteps (runtime/cuda/include/warp.cuh). The loops are not those of schedule/rows.cuh
// and schedule/mixed.cuh: with a common loop and visitors the compiler gives other machine code, and a row is long
// from 1,024 arcs on here, as the list needs another barrier, but from 256 on there.
#pragma once

#include "worker/cuda/relax.cuh"
#include "runtime/cuda/include/warp.cuh"

constexpr i64 HUB_DEGREE = 1024;  // as in program.py
constexpr u32 UNROLL = 4;

// Relax `degree` arcs from `begin` of each lane's vertex; degree 0 for lanes without one. Called by whole warps.
template <class P>
__device__ __forceinline__ void warp_expand(Worker<P> &worker, i64 begin, u32 degree,
                                            const typename Worker<P>::Sending &sending) {
    using Id = typename P::Id;
    using Value = typename P::Value;
    using Weight = typename P::Weight;
    const Part<P> &part = worker.part;
    u32 lane = lane_id();
    u32 end = warp_sum_up_to(degree);
    u32 total = __shfl_sync(FULL_WARP, end, WARP - 1);
    if (lane == 0) worker.arcs += total;
    i64 base = begin - (end - degree);
    for (u32 first = 0; first < total; first += WARP * UNROLL) {
        Id target[UNROLL];
        Value candidate[UNROLL];
        bool in[UNROLL];
        Weight weight[UNROLL];
        u32 from[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            u32 number = first + i * WARP + lane;
            u32 whose = warp_lane_of(end, number);
            in[i] = number < total;
            from[i] = whose;
            i64 arc = __shfl_sync(FULL_WARP, base, whose) + number;
            target[i] = in[i] ? load_once(part.targets + arc) : Id(0);
            if constexpr (P::weighted)
                weight[i] = in[i] ? load_once(part.weights + arc) : Weight(0);
            else
                weight[i] = Weight(1);
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            Value value = __shfl_sync(FULL_WARP, sending.value, from[i]);
            i64 length = 0, vertex = 0;
            typename P::Field field{};
            if constexpr (P::uses_degree) length = __shfl_sync(FULL_WARP, degree, from[i]);
            if constexpr (P::uses_vertex) vertex = __shfl_sync(FULL_WARP, sending.vertex, from[i]);
            if constexpr (P::has_field) field = __shfl_sync(FULL_WARP, sending.field, from[i]);
            if (in[i]) candidate[i] = worker.message(value, weight[i], length, vertex, field);
        }
        worker.warp_relax(target, candidate, in);
    }
}

// Leave the row of a vertex to the whole grid. The list has room for each hub once a round.
template <class P>
__device__ __forceinline__ void thread_defer_hub(Worker<P> &worker, i64 begin, i64 end,
                                                 const typename Worker<P>::Sending &sending) {
    u64 chunks = static_cast<u64>((end - begin + HUB_DEGREE - 1) / HUB_DEGREE);
    u64 cursor = atomicAdd(&worker.part.control->hub_cursor, (1ull << 32) | chunks);
    Hub<P> hub{begin, end, cursor & 0xffffffffull, sending.vertex, sending.value, sending.field};
    worker.part.hubs[cursor >> 32] = hub;
}

// Relax the rows that were left to the grid. Hubs are in the order of their chunks, as one atomic counts both.
template <class P>
__device__ __forceinline__ void grid_expand_hubs(Worker<P> &worker) {
    using Id = typename P::Id;
    using Value = typename P::Value;
    using Weight = typename P::Weight;
    const Part<P> &part = worker.part;
    u64 cursor = load_relaxed(&part.control->hub_cursor);
    u64 chunks = cursor & 0xffffffffull;
    u32 hubs = static_cast<u32>(cursor >> 32);
    u64 warps = static_cast<u64>(gridDim.x) * (blockDim.x / WARP);
    for (u64 chunk = static_cast<u64>(warp_id()) * gridDim.x + blockIdx.x; chunk < chunks;
         chunk += warps) {
        const Hub<P> hub = part.hubs[thread_row_of_chunk(part.hubs, hubs, chunk)];
        i64 begin = hub.begin + static_cast<i64>(chunk - hub.chunk) * HUB_DEGREE;
        i64 end = min(begin + HUB_DEGREE, hub.end);
        if (lane_id() == 0) worker.arcs += end - begin;
        for (i64 first = begin; first < end; first += WARP * UNROLL) {
            Id target[UNROLL];
            Value candidate[UNROLL];
            Weight weight[UNROLL];
            bool in[UNROLL];
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                i64 arc = first + i * WARP + lane_id();
                in[i] = arc < end;
                target[i] = in[i] ? load_once(part.targets + arc) : Id(0);
                if constexpr (P::weighted)
                    weight[i] = in[i] ? load_once(part.weights + arc) : Weight(0);
                else
                    weight[i] = Weight(1);
            }
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                if (in[i])
                    candidate[i] = worker.message(hub.value, weight[i], hub.end - hub.begin,
                                                  hub.vertex, hub.field);
            }
            worker.warp_relax(target, candidate, in);
        }
    }
}
