// Pull of algorithms/bfs/bfs.cuh: unvisited vertices look for visited neighbours.
#pragma once

#include "algorithms/bfs/state.cuh"

constexpr u32 PULL_SPAN = 16;       // limit of words that a warp claims at a time
constexpr u32 PULL_WORDS = 4;       // words of these with loads in flight at a time
constexpr u32 PULL_ALONE_ARCS = 8;  // arcs that a lane tests before its warp helps

// Search the row of each lane's vertex, behind its head, for a visited neighbour. All lanes participate.
// Returns in bit 0 whether there is one, above it the number of arcs that the lane examined.
__device__ __noinline__ u32 warp_search_row(const Rows<Id> &rows, const u32 *visited, bool searches,
                                            i64 index) {
    const Id *targets = rows.targets;
    i64 at = 0, end = 0;
    u32 examined = 0;
    if (searches) {
        at = rows.offsets[index] + 1;
        end = rows.offsets[index + 1];
    }
    bool is_found = false;
    for (u32 alone = 0; alone < PULL_ALONE_ARCS; alone += 4) {
        if (!__any_sync(FULL_WARP, !is_found && at < end)) return is_found | examined << 1;
        Id target[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            target[i] = !is_found && at + i < end ? targets[at + i] : Id(-1);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (target[i] < 0) continue;
            examined += 1;
            if (has_bit(visited, target[i])) is_found = true;
        }
        at += 4;
    }
    u32 waiting = __ballot_sync(FULL_WARP, !is_found && at < end);
    while (waiting) {
        u32 whose = __ffs(waiting) - 1;
        waiting &= waiting - 1;
        i64 from = __shfl_sync(FULL_WARP, at, whose), last = __shfl_sync(FULL_WARP, end, whose);
        bool hit = false;
        for (; from < last && !hit; from += WARP) {
            bool here = false;
            if (from + lane_id() < last) {
                examined += 1;
                here = has_bit(visited, targets[from + lane_id()]);
            }
            hit = __any_sync(FULL_WARP, here);
        }
        if (lane_id() == whose) is_found = hit;
    }
    return is_found | examined << 1;
}

// The vertices of a span that are still searched for, and bits of those with a visited neighbour.
struct PullList {
    u16 places[PULL_SPAN * 32];
    u32 found[PULL_SPAN];
};

// Test the heads of the rows of unvisited vertices of PULL_SPAN words, one word per lane: add those whose
// head is visited to `mine`, list the others. Returns the length of the list.
__device__ __forceinline__ u32 warp_test_heads(Bfs &bfs, PullList &list, u32 first_word, u32 open,
                                               u32 &mine) {
    const u32 *visited = bfs.arguments.visited[bfs.parity()][bfs.stage.device];
    u32 left = 0, words = __ballot_sync(FULL_WARP, open != 0);
    if (lane_id() < PULL_SPAN) list.found[lane_id()] = 0;
    while (words) {
        u32 from[PULL_WORDS], bits[PULL_WORDS];
        Id head[PULL_WORDS];
#pragma unroll
        for (u32 i = 0; i < PULL_WORDS; i++) {
            from[i] = words ? __ffs(words) - 1 : WARP;
            words &= words - 1;
            u32 word = __shfl_sync(FULL_WARP, open, from[i] % WARP);
            bool is_open = from[i] < WARP && (word >> lane_id() & 1);
            u32 index = (first_word + from[i]) * 32 + lane_id();
            head[i] = is_open ? load_once(bfs.arguments.in.heads + index) : Id(-1);
        }
#pragma unroll
        for (u32 i = 0; i < PULL_WORDS; i++) bits[i] = head[i] >= 0 ? visited[head[i] >> 5] : 0;
#pragma unroll
        for (u32 i = 0; i < PULL_WORDS; i++) {
            u32 place = from[i] * 32 + lane_id();
            bool is_new = bits[i] >> (head[i] & 31) & 1;
            bool is_left = head[i] >= 0 && !is_new;
            if (head[i] >= 0) bfs.examined += 1;
            if (is_new) bfs.thread_reach(first_word * 32 + place);
            u32 found_here = __ballot_sync(FULL_WARP, is_new);
            if (lane_id() == from[i]) mine |= found_here;
            u32 others = __ballot_sync(FULL_WARP, is_left);
            u32 before = __popc(others & ((1u << lane_id()) - 1));
            if (is_left) list.places[left + before] = static_cast<u16>(place);
            left += __popc(others);
        }
    }
    return left;
}

// A warp claims up to PULL_SPAN words at a time, one per lane; fewer if all warps then have equally many
// turns. First it tests the heads of the rows of all unvisited vertices, then searches behind the heads of
// those that are left, 32 at a time: throughput is the number of loads in flight.
__device__ __forceinline__ void team_pull(Bfs &bfs, PullList &list) {
    const u32 *own = bfs.own_visited(bfs.parity());
    u32 next = bfs.parity() ^ 1, queue = static_cast<u32>(bfs.state[QUEUE_INDEX]);
    const u32 *stale = bfs.own_visited(next);
    i64 offset = bfs.first() / 32;
    // Vertices without arcs come last, and are never reached.
    u32 active = static_cast<u32>(bfs.arguments.in.classes[CLASS_NONE]);
    u32 words = (active + 31) / 32, warps = static_cast<u32>(bfs.team.warps());
    u32 turns = (words + PULL_SPAN * warps - 1) / (PULL_SPAN * warps);
    u32 span = (words + turns * warps - 1) / max(1u, turns * warps);
    span = (span + 3) / 4 * 4;  // of 16 bytes
    for (u64 number = bfs.team.warp(); number * span < words; number += warps) {
        u32 first_word = static_cast<u32>(number * span), at = first_word + lane_id();
        bool is_mine = lane_id() < span && at < words;
        u32 mine = is_mine ? own[at] : FULL_WARP, there = is_mine ? stale[at] : FULL_WARP;
        u32 before = mine;
        u32 beyond = at + 1 == words && (active & 31) ? FULL_WARP << (active & 31) : 0;
        u32 open = ~(mine | beyond);
        if (__any_sync(FULL_WARP, open != 0)) {
            u32 left = warp_test_heads(bfs, list, first_word, open, mine);
            __syncwarp();
            for (u32 base = 0; base < left; base += WARP) {
                bool searches = base + lane_id() < left;
                u32 place = searches ? list.places[base + lane_id()] : 0;
                u32 index = first_word * 32 + place;
                u32 outcome = warp_search_row(bfs.arguments.in,
                                              bfs.arguments.visited[bfs.parity()][bfs.stage.device],
                                              searches, index);
                bfs.examined += outcome >> 1;
                if (!(outcome & 1)) continue;
                bfs.thread_reach(index);
                atomicOr(&list.found[place >> 5], 1u << (place & 31));
            }
            __syncwarp();
            if (lane_id() < PULL_SPAN) mine |= list.found[lane_id()];
        }
        // The other bitmap is the same on all devices, by the owner's last broadcast.
        if (mine != there)
            for (u32 other = 0; other < bfs.stage.devices; other++)
                bfs.arguments.visited[next][other][offset + at] = mine;
        if (bfs.state[LISTING]) bfs.warp_queue_words(mine & ~before, at, queue, false);
    }
}
