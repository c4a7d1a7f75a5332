// The worker: one persistent kernel per GPU, which runs a VertexProgram to its end or for a time slice.
//
// The worklist is a bitmap: a vertex is *pending* if it has changed and has not been processed since
// (relax.cuh has the invariant). So there is always room, no vertex is queued twice, a scan visits vertices
// in the order of memory, and values and bitmaps are the whole state, with which a later launch continues.
// Soft priority: a pending vertex beyond the bound stays pending.
//
// In a round, a device receives items of other devices, scans the bitmap for due vertices, processes them,
// sends pending halo vertices, and meets the other devices. In most rounds, blocks run ahead (run_ahead.cuh):
// each follows the vertices that it reaches through its own queue, as far as the bound allows, before the
// meeting. After a round that left many due vertices, since queues had no room for them, the next one is
// *dense*: warps process the vertices that they scan at once, one arc far (expand.cuh). At every meeting the
// bound rises by delta, or to the lowest pending priority: delta is the width of the window in which work is
// asynchronous; with 0, rounds are supersteps in the order of priorities.
#pragma once

#include "worker/cuda/begin.cuh"
#include "worker/cuda/mailbox.cuh"
#include "worker/cuda/meeting.cuh"
#include "worker/cuda/run_ahead.cuh"

// Process due vertices of the bitmap, or, in sparse rounds, move them to the block's queue.
template <class P>
__device__ __forceinline__ void grid_process_pending(Worker<P> &worker, u16 *list) {
    using Value = typename P::Value;
    const Part<P> &part = worker.part;
    u32 lane = lane_id();
    Spans spans(part.owned, part.unit_shift);
    i64 count = spans.count();
    for (i64 span = 0; span < count; span++) {
        i64 at = spans.word_of(span, lane);
        u32 word = at < spans.words ? load_relaxed(&part.pending[at]) : 0;
        if (!__any_sync(FULL_WARP, word != 0)) continue;
        if (word) word = atomicExch(&part.pending[at], 0u);
        __threadfence();
        u32 total = warp_list_bits(word, list);
        for (u32 first = 0; first < total; first += WARP) {
            i64 begin = 0, end = 0;
            bool sends = false;
            typename Worker<P>::Sending sending{};
            if (first + lane < total) {
                u32 place = list[first + lane];
                i64 vertex = spans.word_of(span, place >> 5) * 32 + (place & 31);
                Value value = load_relaxed(&part.values[vertex]);
                Row<typename P::Id> row{};
                if (P::packed && worker.queue.open) row = worker.row_of(vertex);
                if (!P::packed || !worker.queue.open || row.at[0] == LONG_ROW) {
                    begin = part.offsets[vertex];
                    end = part.offsets[vertex + 1];
                }
                bool is_hub = end - begin > HUB_DEGREE;
                float priority = priority_of<P>(value);
                bool stays = !worker.is_due(priority);
                if (!stays && worker.queue.open && !is_hub) {
                    stays = !worker.thread_push(vertex, value, row, worker.row_weight_of(vertex));
                } else if (!stays) {
                    worker.processed += 1;
                    sends = worker.thread_begin(vertex, value, sending);
                    if (sends && is_hub) {
                        thread_defer_hub(worker, begin, end, sending);
                        sends = false;
                    }
                }
                if (stays) worker.thread_set_pending(vertex, priority);
            }
            u32 degree = sends ? static_cast<u32>(end - begin) : 0;
            if (!worker.queue.open) warp_expand(worker, begin, degree, sending);
        }
    }
}

__device__ __forceinline__ void block_add(u64 *shared, u64 amount) {
    amount = warp_sum(amount);
    if (lane_id() == 0 && amount) atomicAdd(shared, amount);
}

struct BlockState {
    u64 word;
    u64 counts[6];
    u32 queue_counts[3];
    u32 lowest;
    u32 due;
};

// Publish the lowest priority that the block leaves pending; return the number of due vertices that it leaves.
template <class P>
__device__ __forceinline__ u32 block_publish(Worker<P> &worker, BlockState &block) {
    u32 lowest = __reduce_min_sync(FULL_WARP, worker.lowest);
    u32 due = __reduce_add_sync(FULL_WARP, worker.due);
    worker.lowest = NO_KEY;
    worker.due = 0;
    if (threadIdx.x == 0) {
        block.lowest = NO_KEY;
        block.due = 0;
    }
    __syncthreads();
    if (lane_id() == 0 && lowest != NO_KEY) {
        atomicMin(&block.lowest, lowest);
        atomicAdd(&block.due, due);
    }
    __syncthreads();
    if (threadIdx.x == 0 && block.lowest != NO_KEY)
        atomicMin(&worker.part.control->lowest, block.lowest);
    return block.due;
}

// Add what the block counted in this launch to the device's counters. The last block to do so writes the
// outcome to the host's memory, and then that the launch has ended.
template <class P>
__device__ __forceinline__ void grid_report(const Worker<P> &worker, BlockState &block, u64 waited,
                                            u64 cycles) {
    constexpr u32 kinds = 5;
    const u32 counter[kinds] = {PROCESSED, USELESS, ARCS, RECEIVED, FILTERED};
    const u64 count[kinds] = {worker.processed, worker.useless, worker.arcs, worker.received,
                              worker.filtered};
    Control *control = worker.part.control;
    for (u32 kind = 0; kind < kinds; kind++) block_add(&block.counts[kind], count[kind]);
    __syncthreads();
    if (warp_id() != 0) return;
    u32 lane = lane_id();
    u64 ticket = 0;
    if (lane == 0) {
        for (u32 kind = 0; kind < kinds; kind++)
            atomicAdd(&control->counters[counter[kind]], block.counts[kind]);
        atomicAdd(&control->counters[WAITED], waited);
        atomicAdd(&control->counters[CYCLES], cycles);
        __threadfence();
        ticket = atomicAdd(&control->arrived, 1ull);
        __threadfence();
    }
    if (__shfl_sync(FULL_WARP, ticket, 0) != gridDim.x - 1) return;
    __syncwarp();
    Outcome *outcome = worker.part.outcome;
    for (u32 i = lane; i < COUNTERS; i += WARP)
        store_system(&outcome->counters[i], load_relaxed(&control->counters[i]));
    if (lane == 0) {
        control->arrived = 0;
        store_system(&outcome->limit, control->limit);
        store_system(&outcome->bound, control->bound);
        store_system(&outcome->status, control->status);
        store_system(&outcome->overflow, control->overflow);
    }
    __threadfence_system();
    __syncwarp();
    if (lane == 0) store_system(worker.part.ended, 1u);
}

// Divide the block's shared memory: the queue, and a list for each warp.
template <class P>
__device__ __forceinline__ Queue<P> block_queue(const Part<P> &part, unsigned char *bytes,
                                                BlockState &block, u16 *&list) {
    Queue<P> queue{};
    u32 entries = 2 * part.queue_items;
    queue.room = part.queue_items;
    if constexpr (P::packed) {
        queue.row = reinterpret_cast<Row<typename P::Id> *>(bytes);
        bytes += entries * sizeof(Row<typename P::Id>);
        if constexpr (P::weighted) {
            queue.row_weight = reinterpret_cast<Row<typename P::Weight> *>(bytes);
            bytes += entries * sizeof(Row<typename P::Weight>);
        }
    }
    queue.value = reinterpret_cast<typename P::Value *>(bytes);
    bytes += entries * sizeof(typename P::Value);
    queue.vertex = reinterpret_cast<typename P::Id *>(bytes);
    bytes += entries * sizeof(typename P::Id);
    list = reinterpret_cast<u16 *>(bytes) + warp_id() * 1024;
    queue.counts = block.queue_counts;
    if (threadIdx.x < 3) block.queue_counts[threadIdx.x] = 0;
    if (threadIdx.x < 6) block.counts[threadIdx.x] = 0;
    return queue;
}

template <class P>
__device__ void grid_work(const Part<P> &part) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ BlockState block;
    if (part.prepare) return;
    Control *control = part.control;
    // The clock of lane 0, since those of lanes differ: all threads must leave the slice at the same meeting.
    const u64 begin_ns = __shfl_sync(FULL_WARP, now_ns(), 0);
    if (part.begins) grid_begin(part, &block.word);
    u64 begin_clock = clock64(), waited = 0;

    u16 *list;
    Queue<P> queue = block_queue(part, shared_bytes, block, list);
    Worker<P> worker(part, queue);
    // Start gate: no device begins before all run.
    Meeting meeting = grid_meet(control, &block.word, 0, true, [&](u64) -> u64 {
        Report nothing{}, others{};
        bool all = !part.has_peers() || warp_exchange(part, nothing, others);
        if (lane_id() == 0) control->status = all ? RUNNING : PEER_LOST;
        u64 word = __float_as_uint(control->bound);
        return all ? word : word | static_cast<u64>(FLAG_STOP) << 32;
    });
    u32 round = control->round;
    while (!meeting.stops()) {
        worker.bound = meeting.bound();
        worker.limit = load_relaxed(reinterpret_cast<typename P::Value *>(&control->limit));
        queue.open = meeting.is_sparse();
        block_delay(2);
        if (part.has_peers()) {
            if (part.relays) grid_relay(worker, round);
            grid_receive(worker, round);
            if (!queue.open) waited += grid_wait(control, &block.word);
        }
        grid_process_pending(worker, list);
        if (queue.open) block_run_ahead(worker);
        queue.open = false;
        block_delay(3);
        if (part.has_hubs) {
            waited += grid_wait(control, &block.word);
            if (load_relaxed(&control->hub_cursor) != 0) grid_expand_hubs(worker);
        }
        if (part.has_peers()) {
            waited += grid_wait(control, &block.word);
            grid_send(worker, list, round);
        }
        u32 due = block_publish(worker, block);
        u64 arrival = clock64();
        meeting = grid_meet(control, &block.word, due, part.has_peers(), [&](u64 of_all) -> u64 {
            if (part.has_peers()) warp_close_mailboxes(part);
            return warp_decide(part, of_all, begin_ns);
        });
        waited += clock64() - arrival;
        round += 1;
    }
    grid_report(worker, block, waited, clock64() - begin_clock);
}

// Pack rows: up to four targets, the rest NO_ARC; longer rows begin with LONG_ROW.
template <class P>
__device__ __forceinline__ void grid_pack_rows(const i64 *offsets, const typename P::Id *targets,
                                               const typename P::Weight *weights, i64 owned,
                                               Row<typename P::Id> *rows,
                                               Row<typename P::Weight> *row_weights) {
    i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 v = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; v < owned; v += stride) {
        i64 begin = offsets[v], end = offsets[v + 1];
        Row<typename P::Id> row;
        Row<typename P::Weight> row_weight{};
        for (u32 k = 0; k < 4; k++) {
            bool there = end - begin <= 4 && begin + k < end;
            row.at[k] = there ? targets[begin + k] : NO_ARC;
            if constexpr (P::weighted) {
                if (there) row_weight.at[k] = weights[begin + k];
            }
        }
        if (end - begin > 4) row.at[0] = LONG_ROW;
        rows[v] = row;
        if constexpr (P::weighted) row_weights[v] = row_weight;
    }
}
