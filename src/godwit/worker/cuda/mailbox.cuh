// Item links between devices: a mailbox for each pair (sender, receiver) in the receiver's memory.
//
// A mailbox has two halves; in round r the sender fills half r & 1, and the receiver empties it in round r
// + 1, while the other half is filled. So no item is overwritten before it is read, and the credit of each
// round is a whole half. Items that do not fit stay pending at the sender (by their bits), are merged with
// later updates, and sent in the next round: no item is lost however small the mailbox is, and no device
// waits for room. A halo vertex is sent at most once in a round, with all updates merged into it.
#pragma once

#include "runtime/cuda/include/bitmap.cuh"
#include "worker/cuda/relax.cuh"

// Send pending halo vertices to their owners. Runs between two meetings, so no bits are set meanwhile.
template <class P>
__device__ __forceinline__ void grid_send(Worker<P> &worker, u16 *list, u32 round) {
    using Value = typename P::Value;
    const Part<P> &part = worker.part;
    u32 lane = lane_id();
    Spans spans(part.halo, part.unit_shift);
    for (i64 span = 0; span < spans.count(); span++) {
        i64 at = spans.word_of(span, lane);
        u32 word = at < spans.words ? load_relaxed(&part.halo_pending[at]) : 0;
        if (!__any_sync(FULL_WARP, word != 0)) continue;
        u32 keep = 0;
        for (u32 device = 0; device < part.devices; device++) {
            i64 low = max(part.halo_begin[device] - at * 32, 0ll);
            i64 high = min(part.halo_begin[device + 1] - at * 32, 32ll);
            u32 mine = 0;
            if (low < high) mine = word & (FULL_WARP << low) & (FULL_WARP >> (32 - high));
            if (!__any_sync(FULL_WARP, mine != 0)) continue;
            u32 total = warp_list_bits(mine, list);
            u32 first = 0;
            if (lane == 0) first = atomicAdd(&part.control->outgoing[device], total);
            first = __shfl_sync(FULL_WARP, first, 0);
            Item<P> *half = part.outbox[device] + static_cast<u64>(round & 1) * part.mailbox_room;
            for (u32 i = lane; i < total; i += WARP) {
                i64 halo = spans.word_of(span, list[i] >> 5) * 32 + (list[i] & 31);
                bool fits = first + i < part.mailbox_items;
                Value value;
                if (P::accumulates && fits)
                    value = thread_take(&part.halo_values[halo]);
                else
                    value = load_relaxed(&part.halo_values[halo]);
                worker.lowest = min(worker.lowest, key_of(priority_of<P>(value)));
                if (fits) {
                    Item<P> item{part.halo_remote[halo], value};
                    for (u32 copy = 0; copy < part.volume; copy++)
                        store_item(half + first + i, item);
                }
            }
            // Bits of items that did not fit stay set.
            u32 position = first + warp_sum_up_to(__popc(mine)) - __popc(mine);
            while (mine) {
                u32 bit = mine & -mine;
                mine ^= bit;
                if (position >= part.mailbox_items) keep |= bit;
                position += 1;
            }
        }
        if (word) part.halo_pending[at] = keep;
    }
}

// Count the items for each device; called by the first warp of the last block, before the reports.
template <class P>
__device__ __forceinline__ void warp_close_mailboxes(const Part<P> &part) {
    u32 lane = lane_id();
    if (lane < part.devices) {
        // `counted` includes own items that did not fit; relayed ones may exceed mailbox_items.
        u32 counted = load_relaxed(&part.control->outgoing[lane]);
        u32 relayed = part.relays ? load_relaxed(&part.control->relayed[lane]) : 0;
        u32 sent = min(counted, max(relayed, part.mailbox_items));
        part.control->relayed[lane] = 0;
        part.control->outgoing[lane] = sent;
        part.control->counters[SENT_TO + lane] += sent;
    }
    __syncwarp();
}

// Relay items for other devices, before own items are sent. There is always room: each device adds at most
// `mailbox_items` a round for each final device, and all relayed items of a mailbox were sent in one round
// by each of the devices before it on the way, so `devices` times as many items are enough.
template <class P>
__device__ __forceinline__ void grid_relay(Worker<P> &worker, u32 round) {
    const Part<P> &part = worker.part;
    u32 stride = gridDim.x * blockDim.x;
    for (u32 device = 0; device < part.devices; device++) {
        for (u32 last = 0; last < part.devices; last++) {
            u32 count = last == part.device ? 0 : part.control->incoming[device][last];
            if (count == 0) continue;
            const Item<P> *half = part.relay[device * MAX_DEVICES + last] +
                                  static_cast<u64>((round + 1) & 1) * part.mailbox_room;
            Item<P> *onward = part.outbox[last] + static_cast<u64>(round & 1) * part.mailbox_room;
            for (u32 i = threadIdx.x * gridDim.x + blockIdx.x; i < count; i += stride) {
                Item<P> item = load_item(half + i);
                u32 at = atomicAdd(&part.control->outgoing[last], 1u);
                atomicMax(&part.control->relayed[last], at + 1);
                store_item(onward + at, item);
                worker.lowest = min(worker.lowest, key_of(priority_of<P>(item.value)));
            }
        }
    }
}

// Combine received items with the vertices' values; vertices that improve are delivered as after relaxing
// here.
template <class P>
__device__ __forceinline__ void grid_receive(Worker<P> &worker, u32 round) {
    using Value = typename P::Value;
    const Part<P> &part = worker.part;
    for (u32 device = 0; device < part.devices; device++) {
        u32 count = part.control->incoming[device][part.device];
        const Item<P> *half =
            part.inbox[device] + static_cast<u64>((round + 1) & 1) * part.mailbox_room;
        u32 stride = gridDim.x * blockDim.x;
        for (u32 i = threadIdx.x * gridDim.x + blockIdx.x; i < count; i += stride) {
            Item<P> item = load_item(half + i);
            worker.received += 1;
            if constexpr (P::accumulates) {
                Value made;
                if (!worker.thread_accumulate(item.vertex, item.value, made)) continue;
                __threadfence();
                worker.thread_deliver(item.vertex, made);
            } else {
                if (improves<P>(worker.limit, item.value)) continue;
                if (!thread_combine<P>(&part.values[item.vertex], item.value)) continue;
                __threadfence();
                worker.thread_deliver(item.vertex, item.value);
            }
        }
    }
}
