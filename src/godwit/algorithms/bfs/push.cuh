// Push of algorithms/bfs/bfs.cuh along the arcs of the frontier, and the receipt of what other devices
// pushed.
#pragma once

#include "algorithms/bfs/state.cuh"

constexpr u32 DEVICES_AT_ONCE = 4;  // loads in flight

// Push along ARCS arcs of the frontier per lane. A load of `visited` before the atomic saves most atomics,
// but not for one block alone, which waits for every access, nor while only sources are visited: nearly all
// targets are new.
template <u32 ARCS>
__device__ __forceinline__ void warp_push(Bfs &bfs, const Id *targets, const i64 (&arcs)[ARCS],
                                          const bool (&there)[ARCS], u32 next) {
    Id target[ARCS];
    u32 *visited = bfs.arguments.visited[bfs.parity()][bfs.stage.device];
    bool is_new[ARCS];
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        const Id *place = targets + arcs[i];
        target[i] = !there[i] ? Id(0) : bfs.is_alone ? *place : load_once(place);
    }
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        is_new[i] = there[i];
        if (there[i] && bfs.looks_first)
            is_new[i] = !(load_relaxed(visited + (target[i] >> 5)) >> (target[i] & 31) & 1);
    }
    u32 before[ARCS], amount = 0;
#pragma unroll
    for (u32 i = 0; i < ARCS; i++)  // all are issued before the first result is used
        before[i] = is_new[i] ? atomicOr(visited + (target[i] >> 5), 1u << (target[i] & 31)) : 0;
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        is_new[i] &= !(before[i] >> (target[i] & 31) & 1);
        i64 index = static_cast<i64>(target[i]) - bfs.first();
        // In this device's `visited`, the bit of another device's vertex means that it was sent to its owner.
        if (HAS_PEERS && is_new[i] && (index < 0 || index >= bfs.stage.capacity)) {
            set_bits(bfs.arguments.remote[bfs.stage.device] + (target[i] >> 5),
                     1u << (target[i] & 31));
            bfs.sent += 1;
            is_new[i] = false;
        }
        amount += is_new[i];
    }
    if (!__any_sync(FULL_WARP, amount)) return;
    u32 place = bfs.warp_room<ARCS>(next, amount);
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        if (!is_new[i]) continue;
        u32 index = static_cast<u32>(target[i] - static_cast<Id>(bfs.first()));
        bfs.thread_reach(index);
        bfs.thread_queue(next, place++, index);
    }
}

// What a schedule calls with the arcs that it has assigned to the lanes of a warp.
struct Push {
    Bfs &bfs;
    const Id *targets;
    u32 next;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&)[ARCS],
                                               const bool (&there)[ARCS]) const {
        warp_push(bfs, targets, arcs, there, next);
    }
};

// Push along the rows of all devices' hubs in the frontier, to own vertices. The chunks of consecutive hubs
// are assigned to consecutive warps.
__device__ __forceinline__ void team_push_hubs(Bfs &bfs, u32 next) {
    const u32 *remote = bfs.hub_frontier(bfs.stage.device, bfs.depth - 1);
    const i64 *offsets = bfs.arguments.hub_offsets;
    const Push visit{bfs, bfs.arguments.hub_targets, next};
    u64 warps = bfs.team.warps(), turn = bfs.team.warp();
    for (u32 base = 0; base < bfs.hub_words(); base += WARP) {
        u32 word = base + lane_id() < bfs.hub_words() ? load_system(remote + base + lane_id()) : 0;
        u32 words = __ballot_sync(FULL_WARP, word != 0);
        while (words) {
            u32 from = __ffs(words) - 1, bits = __shfl_sync(FULL_WARP, word, from);
            words &= words - 1;
            while (bits) {
                u32 hub = (base + from) * 32 + __ffs(bits) - 1;
                bits &= bits - 1;
                i64 begin = offsets[hub], end = offsets[hub + 1];
                u64 chunks = static_cast<u64>(end - begin + ARCS_A_WARP - 1) / ARCS_A_WARP;
                for (; turn < chunks; turn += warps) {
                    i64 first = begin + static_cast<i64>(turn) * ARCS_A_WARP;
                    if (lane_id() == 0)
                        bfs.examined += static_cast<u64>(min(end - first, i64{ARCS_A_WARP}));
                    warp_visit_part(first, end, hub, visit);
                }
                turn -= chunks;
            }
        }
    }
}

// Push along the rows of all vertices in the frontier.
__device__ __forceinline__ void team_push(Bfs &bfs) {
    u32 current = static_cast<u32>(bfs.state[QUEUE_INDEX]), next = current ^ 1;
    const u32 *queue = bfs.arguments.queue[current];
    u32 count;
    if (bfs.is_alone) {
        if (bfs.alone.step == static_cast<u32>(bfs.state[STEP])) {
            count = bfs.alone.count[current];
            queue = bfs.alone.indexes[current];
        } else {
            count = bfs.arguments.counters->queued[current];
            if (threadIdx.x == 0) bfs.alone.count[next] = 0;
            __syncthreads();
        }
    } else {
        count = bfs.arguments.counters->queued[current];
    }
    if (HAS_HUBS && bfs.state[HUBS]) team_push_hubs(bfs, next);
    const Schedule schedule{bfs.arguments.left_rows, &bfs.arguments.counters->left_rows};
    const Push visit{bfs, bfs.arguments.out.targets, next};
    for (u64 base = bfs.team.warp() * WARP; base < count; base += bfs.team.warps() * WARP) {
        u64 place = base + lane_id();
        i64 begin = 0, end = 0;
        u32 index = 0;
        if (place < count) index = queue[place];
        if (place < count && !(HAS_HUBS && index < bfs.arguments.hubs)) {
            begin = bfs.arguments.out.offsets[index];
            end = bfs.arguments.out.offsets[index + 1];
        }
        bfs.examined += static_cast<u64>(end - begin);
        // One block alone has short rows only, and leaves none to the team.
        u32 length = static_cast<u32>(end - begin);
        if (bfs.is_alone && __reduce_add_sync(FULL_WARP, length) <= WARP)
            warp_visit_rows<1>(begin, length, index, visit);
        else if (Schedule::LEAVES_LONG_ROWS_ONLY || !bfs.is_alone)
            schedule.warp_bring(begin, end, index, visit);
        else
            warp_visit_rows(begin, length, index, visit);
    }
    if (!bfs.is_alone) schedule.team_finish(bfs.team, bfs.block, bfs.state[LONG_ROWS] != 0, visit);
}

// Take and clear the bits that other devices have set for own vertices, and broadcast the words of
// `visited` that are not zero. No device sets such bits in this superstep.
__device__ __forceinline__ void team_receive(Bfs &bfs) {
    u32 next = static_cast<u32>(bfs.state[QUEUE_INDEX]), devices = bfs.stage.devices;
    u32 *visited = bfs.own_visited(bfs.parity());
    i64 offset = bfs.first() / 32;
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.own_words());
         base += bfs.team.warps() * WARP) {
        u64 at = base + lane_id();
        u32 word = 0, before = visited[at];
        for (u32 first = 0; first < devices; first += DEVICES_AT_ONCE) {
            u32 theirs[DEVICES_AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < DEVICES_AT_ONCE;
                 i++) {  // all are issued before the first result is used
                bool is_other = first + i < devices && first + i != bfs.stage.device;
                theirs[i] =
                    is_other ? load_system(bfs.arguments.remote[first + i] + offset + at) : 0;
            }
#pragma unroll
            for (u32 i = 0; i < DEVICES_AT_ONCE; i++) {
                if (theirs[i]) store_system(bfs.arguments.remote[first + i] + offset + at, 0u);
                word |= theirs[i];
            }
        }
        word &= ~before;
        if (before | word)
            for (u32 other = 0; other < devices; other++)
                bfs.arguments.visited[bfs.parity()][other][offset + at] = before | word;
        bfs.warp_queue_words(word, static_cast<u32>(at), next, true);
    }
}
