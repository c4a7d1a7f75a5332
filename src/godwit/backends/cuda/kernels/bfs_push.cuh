// Pushing of bfs_steps.cuh: along the arcs of the frontier, and what others pushed.
#pragma once

#include "bfs_search.cuh"

// The arcs of the frontier: ARCS a lane. One block alone does not look first, as it waits for
// every trip to memory, and what it reads is near what it read before.
template <u32 ARCS>
__device__ __forceinline__ void warp_push(Bfs &bfs, const i64 (&arcs)[ARCS],
                                          const bool (&there)[ARCS], u32 next) {
    Id target[ARCS];
    u32 *visited = bfs.arguments.visited[bfs.parity()][bfs.stage.device];
    bool is_new[ARCS];
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        const Id *place = bfs.arguments.out.targets + arcs[i];
        target[i] = !there[i] ? Id(0) : bfs.is_alone ? *place : load_once(place);
    }
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        is_new[i] = there[i];
        if (there[i] && !bfs.is_alone)
            is_new[i] = !(load_relaxed(visited + (target[i] >> 5)) >> (target[i] & 31) & 1);
    }
    u32 before[ARCS], amount = 0;
#pragma unroll
    for (u32 i = 0; i < ARCS; i++)  // all of them before the first answer is waited for
        before[i] = is_new[i] ? atomicOr(visited + (target[i] >> 5), 1u << (target[i] & 31)) : 0;
#pragma unroll
    for (u32 i = 0; i < ARCS; i++) {
        is_new[i] &= !(before[i] >> (target[i] & 31) & 1);
        i64 index = static_cast<i64>(target[i]) - bfs.first();
        // Of others' vertices the bit here says that their owner was told.
        if (is_new[i] && (index < 0 || index >= bfs.stage.capacity)) {
            set_bits(bfs.arguments.marks[bfs.stage.device] + (target[i] >> 5),
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

// What a schedule visits arcs by.
struct Push {
    Bfs &bfs;
    u32 next;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&)[ARCS],
                                               const bool (&there)[ARCS]) const {
        warp_push(bfs, arcs, there, next);
    }
};

__device__ __forceinline__ void team_push(Bfs &bfs) {
    u32 current = static_cast<u32>(bfs.state[QUEUE_INDEX]), next = current ^ 1;
    const u32 *queue = bfs.arguments.queue[current];
    u32 count;
    if (bfs.is_alone) {
        if (bfs.alone.step == static_cast<u32>(bfs.state[STEP])) {
            count = bfs.alone.count[current];
            queue = bfs.alone.indexes[current];
        } else {
            count = bfs.arguments.local->queued[current];
            if (threadIdx.x == 0) bfs.alone.count[next] = 0;
            __syncthreads();
        }
    } else {
        count = bfs.arguments.local->queued[current];
    }
    const Schedule schedule{bfs.arguments.left_rows, &bfs.arguments.local->left_rows};
    const Push visit{bfs, next};
    for (u64 base = bfs.team.warp() * WARP; base < count; base += bfs.team.warps() * WARP) {
        u64 place = base + lane_id();
        i64 begin = 0, end = 0;
        u32 index = 0;
        if (place < count) {
            index = queue[place];
            begin = bfs.arguments.out.offsets[index];
            end = bfs.arguments.out.offsets[index + 1];
        }
        bfs.looked += static_cast<u64>(end - begin);
        // One block alone has short rows only, and leaves nothing to anyone.
        u32 length = static_cast<u32>(end - begin);
        if (!bfs.is_alone)
            schedule.warp_bring(begin, end, index, visit);
        else if (__reduce_add_sync(FULL_WARP, length) <= WARP)
            warp_visit_rows<1>(begin, length, index, visit);
        else
            warp_visit_rows(begin, length, index, visit);
    }
    if (!bfs.is_alone) schedule.team_finish(bfs.team, bfs.block, bfs.state[LONG_ROWS] != 0, visit);
}

// What others marked of this device's vertices; the marks are cleared, as nobody sets any meanwhile.
__device__ __forceinline__ void team_receive(Bfs &bfs) {
    u32 next = static_cast<u32>(bfs.state[QUEUE_INDEX]);
    u32 *visited = bfs.own_visited(bfs.parity());
    i64 offset = bfs.first() / 32;
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.own_words());
         base += bfs.team.warps() * WARP) {
        u64 at = base + lane_id();
        u32 word = 0;
        for (u32 other = 0; other < bfs.stage.devices; other++) {
            if (other == bfs.stage.device) continue;
            u32 *marks = bfs.arguments.marks[other] + offset + at;
            u32 theirs = load_system(marks);
            if (theirs) store_system(marks, 0u);
            word |= theirs;
        }
        u32 before = visited[at];
        word &= ~before;
        for (u32 other = 0; other < bfs.stage.devices; other++)
            bfs.arguments.visited[bfs.parity()][other][offset + at] = before | word;
        bfs.warp_queue_words(word, static_cast<u32>(at), next, true);
    }
}
