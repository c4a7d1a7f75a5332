// Relaxation: the messages of a vertex along its arcs; target vertices that improve become pending.
//
// A vertex that has changed and not been processed since is *pending*: its bit is set, or it is in the
// queue of a block that will process it or set the bit. Invariant (no update is lost): a thread that
// changes a value sets the bit after the change, with a fence between; a thread that clears the bit reads
// the value after that, with a fence between. So if the reader misses a new value, the bit for it is set
// after the reader has cleared it.
#pragma once

#include "worker/cuda/part.cuh"
#include "worker/cuda/program.cuh"

// The queue of a block in shared memory: two halves, of which one is read and the other filled. Counts may
// exceed the room: for an entry without room, the vertex's bit is set instead.
template <class P>
struct Queue {
    typename P::Id *vertex;  // each array has entries of even hops, then of odd ones
    typename P::Value *value;
    Row<typename P::Id> *row;
    Row<typename P::Weight> *row_weight;
    u32 *counts;  // of three hops: the one read, the one filled, and the one after
    u32 room;
    u32 hop;
    bool open;

    __device__ __forceinline__ u32 readable() const { return min(counts[hop % 3], room); }
    __device__ __forceinline__ u32 first(u32 of_hop) const { return (of_hop & 1) * room; }
};

template <class P>
struct Worker {
    using Id = typename P::Id;
    using Value = typename P::Value;
    using Weight = typename P::Weight;
    using Field = typename P::Field;

    const Part<P> &part;
    Queue<P> &queue;
    float bound = 0;
    Value limit;
    u32 lowest = NO_KEY;  // lowest priority that this thread has left pending in this round
    u32 due = 0;          // number of due vertices that it has left pending
    u32 processed = 0, useless = 0, filtered = 0, received = 0;
    u64 arcs = 0;

    __device__ __forceinline__ Worker(const Part<P> &of, Queue<P> &its) : part(of), queue(its) {}

    __device__ __forceinline__ u32 *overflow() const { return &part.control->overflow; }

    // Whether a target is a vertex of this device, not one of the halo.
    __device__ __forceinline__ bool is_own(i64 target) const {
        return !HAS_PEERS || target < part.owned;
    }

    __device__ __forceinline__ bool is_due(float priority) const { return !(priority > bound); }

    // Make an own vertex pending. A fence must precede.
    __device__ __forceinline__ void thread_set_pending(i64 vertex, float priority) {
        lowest = min(lowest, key_of(priority));
        due += is_due(priority) || !isfinite(bound);  // before the first bound, all are
        set_bits(&part.pending[vertex >> 5], 1u << (vertex & 31));
    }

    // Loaded here, not at the first use, so that the load overlaps with that of a value.
    __device__ __forceinline__ Row<Id> row_of(i64 vertex) const {
        if constexpr (P::packed)
            return load_row(part.rows + vertex);
        else
            return Row<Id>{};
    }

    __device__ __forceinline__ Row<Weight> row_weight_of(i64 vertex) const {
        if constexpr (P::packed && P::weighted)
            return load_row(part.row_weights + vertex);
        else
            return Row<Weight>{};
    }

    // Push an item into the block's queue; return true if there was room.
    __device__ __forceinline__ bool thread_push(i64 vertex, Value value, const Row<Id> &row,
                                                const Row<Weight> &weight) {
        u32 at = atomicAdd(&queue.counts[(queue.hop + 1) % 3], 1u);
        if (at >= queue.room) return false;
        at += queue.first(queue.hop + 1);
        queue.vertex[at] = static_cast<Id>(vertex);
        queue.value[at] = value;
        if constexpr (P::packed) {
            queue.row[at] = row;
            if constexpr (P::weighted) queue.row_weight[at] = weight;
        }
        return true;
    }

    // Deliver a changed own vertex: into the block's queue if it is due and there is room, otherwise by its
    // bit. A fence must precede.
    __device__ __forceinline__ void thread_deliver(i64 vertex, Value value, const Row<Id> &row,
                                                   const Row<Weight> &weight) {
        if (!P::accumulates && vertex == part.target) thread_note_target(value);
        float priority = priority_of<P>(value);
        if (queue.open && is_due(priority) && thread_push(vertex, value, row, weight)) return;
        thread_set_pending(vertex, priority);
    }

    __device__ __forceinline__ void thread_deliver(i64 vertex, Value value) {
        if (P::packed && queue.open)
            thread_deliver(vertex, value, row_of(vertex), row_weight_of(vertex));
        else
            thread_deliver(vertex, value, Row<Id>{}, Row<Weight>{});
    }

    // Lower the limit to a better value of the target: no worse value matters any more.
    __device__ void thread_note_target(Value value) {
        thread_improve<P>(reinterpret_cast<Value *>(&part.control->limit), value);
    }

    __device__ __forceinline__ void thread_set_halo_pending(i64 halo) {
        u32 bit = 1u << (halo & 31);
        u32 old = atomicOr(&part.halo_pending[halo >> 5], bit);
        if (old & bit) filtered += 1;
    }

    __device__ __forceinline__ Value *address_of(i64 target) const {
        return is_own(target) ? part.values + target : part.halo_values + (target - part.owned);
    }

    __device__ __forceinline__ Value message(Value value, Weight weight, i64 degree, i64 vertex,
                                             Field field) const {
        auto wide = P::message(value, weight, degree, vertex, field, part.parameters);
        return to_message<P>(wide, value, overflow());
    }

    // Deliver messages to N targets of each lane. Called by whole warps.
    template <u32 N>
    __device__ __forceinline__ void warp_relax(const Id (&target)[N], Value (&candidate)[N],
                                               bool (&in)[N]) {
        if constexpr (P::accumulates) {
            warp_accumulate(target, candidate, in);
            return;
        }
        Value current[N];
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            in[i] = in[i] && !improves<P>(limit, candidate[i]);
            if (in[i]) current[i] = load_relaxed(address_of(target[i]));
        }
        bool any = false;
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (!in[i]) continue;
            bool better = improves<P>(candidate[i], current[i]);
            if (!better && !is_own(target[i])) filtered += 1;
            in[i] = better && thread_combine<P>(address_of(target[i]), candidate[i]);
            any = any || in[i];
        }
        if (!__any_sync(FULL_WARP, any)) return;
        __threadfence();
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (!in[i]) continue;
            if (is_own(target[i]))
                thread_deliver(target[i], candidate[i]);
            else
                thread_set_halo_pending(target[i] - part.owned);
        }
    }

    // Add to an own vertex's value; return true if that made it active.
    __device__ __forceinline__ bool thread_accumulate(i64 vertex, Value amount, Value &made) {
        Value old = thread_add(&part.values[vertex], amount);
        made = to_sum<P>(old, amount, overflow());
        return P::activate(made, part.parameters) && !P::activate(old, part.parameters);
    }

    template <u32 N>
    __device__ __forceinline__ void warp_accumulate(const Id (&target)[N],
                                                    const Value (&candidate)[N], bool (&in)[N]) {
        bool any = false;
        Value made[N];
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (!in[i]) continue;
            if (is_own(target[i])) {
                in[i] = thread_accumulate(target[i], candidate[i], made[i]);
                any = any || in[i];
            } else {
                i64 halo = target[i] - part.owned;
                Value old = thread_add(&part.halo_values[halo], candidate[i]);
                to_sum<P>(old, candidate[i], overflow());
                thread_set_halo_pending(halo);
                in[i] = false;
            }
        }
        if (!__any_sync(FULL_WARP, any)) return;
        __threadfence();
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (in[i]) thread_deliver(target[i], made[i]);
        }
    }

    // What a vertex sends along its arcs.
    struct Sending {
        Value value;
        Field field;
        i64 vertex;
    };

    // Begin to process a vertex whose bit was cleared; return false if it has nothing to send. `value` is
    // the queued value, or the one just read.
    __device__ __forceinline__ bool thread_begin(i64 vertex, Value value, Sending &sending) {
        sending = Sending{value, Field(0), 0};
        if constexpr (P::accumulates) {
            if (!P::activate(value, part.parameters)) {
                useless += 1;
                return false;
            }
            sending.value = thread_take(&part.values[vertex]);
        } else if (improves<P>(limit, value)) {
            useless += 1;
            return false;
        } else if (!P::activate(value, part.parameters)) {
            return false;
        }
        if constexpr (P::has_field)
            sending.field =
                thread_update<P>(&part.fields[vertex], sending.value, part.parameters, overflow());
        if constexpr (P::uses_vertex) sending.vertex = part.vertices[vertex];
        return true;
    }
};
