// Direction-optimizing breadth-first search (Beamer, Asanovic, Patterson, SC 2012) in supersteps, on one to
// many devices. Sums that are at hand anyway decide when to turn (Pan et al., multi-GPU Gunrock, VI-A).
//
// Push: the owner of a frontier vertex visits its neighbours. Own ones are set visited and queued; for
// others' vertices it sets bits in `remote`. If any device has set such bits, a superstep RECEIVE follows,
// in which owners read them, and broadcast what is visited. All devices push along the rows of hubs, each
// to its own vertices (HubRows of supersteps/rows.py).
//
// Pull: the owner of an unvisited vertex looks for a neighbour that was visited before this superstep. Such
// a neighbour is in the frontier, as vertices visited earlier have no unvisited neighbours: one bitmap
// serves as frontier and as visited set. There are two on every device, `visited[parity]` as of before a
// pull and the other as of after it; an owner stores each word of its range into all devices. Pushes change
// bitmaps in place.
//
// A tiny frontier is pushed by one block of each device alone, whose queue is also kept in shared memory;
// the copy in global memory is for the supersteps after.
//
// Rows are by descending degree (step.cuh): most unvisited vertices with a visited neighbour have one at
// the head of their row, and warps read the array of heads in lines. Lower bound of a pull: a bit of
// `visited` per vertex, read and written (to every device); 4 bytes of head and a random bit per unvisited
// vertex.
#pragma once

#include "algorithms/bfs/pull.cuh"
#include "algorithms/bfs/push.cuh"

__device__ __forceinline__ void team_clear(Bfs &bfs) {
    for (u64 i = bfs.team.thread(); i < static_cast<u64>(bfs.arguments.cleared);
         i += bfs.team.threads())
        bfs.arguments.depth[bfs.first() + i] = UNREACHED;
    i64 words = bfs.stage.capacity / 32 * bfs.stage.devices;
    for (u64 i = bfs.team.thread(); i < static_cast<u64>(words); i += bfs.team.threads()) {
        for (u32 which = 0; which < 2; which++)
            bfs.arguments.visited[which][bfs.stage.device][i] = 0;
        if (HAS_PEERS) bfs.arguments.remote[bfs.stage.device][i] = 0;
    }
    // The bits of depth 1 are cleared by block_clear_hub_frontier.
    for (u64 i = bfs.team.thread(); HAS_HUBS && i < bfs.hub_words(); i += bfs.team.threads())
        for (i32 depth = 0; depth <= 2; depth += 2)
            bfs.hub_frontier(bfs.stage.device, depth)[i] = 0;
    if (bfs.team.thread() == 0) *bfs.arguments.counters = BfsCounters{};
}

// Reach the own vertices of the sources. Every device sets the bits of the hubs of all, in its own bitmap:
// this superstep accesses no other device's memory.
__device__ __forceinline__ void team_seed(Bfs &bfs) {
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.arguments.seed_count);
         base += bfs.team.warps() * WARP) {
        u64 i = base + lane_id();
        bool is_new = false;
        u32 index = 0;
        bool is_own = false;
        if (i < static_cast<u64>(bfs.arguments.seed_count)) {
            i64 position = bfs.arguments.seeds[i];
            u32 owner = static_cast<u32>(position / bfs.stage.capacity);
            index = static_cast<u32>(position - owner * bfs.stage.capacity);
            is_own = owner == bfs.stage.device;
            if (HAS_HUBS && index < bfs.arguments.hubs) {
                u32 hub = owner * static_cast<u32>(bfs.arguments.hubs) + index;
                set_bits(bfs.hub_frontier(bfs.stage.device, 0) + hub / 32, 1u << (hub & 31));
            }
        }
        if (is_own) {
            u32 bit = 1u << (index & 31);
            is_new = !(atomicOr(&bfs.own_visited(bfs.parity())[index >> 5], bit) & bit);
            if (is_new) bfs.thread_reach(index);
            // The next search does not clear it: the host sets depths of such vertices.
            if (index >= bfs.arguments.active) bfs.arguments.depth[bfs.first() + index] = UNREACHED;
        }
        u32 place = bfs.warp_room(0, is_new);
        if (is_new) bfs.thread_queue(0, place, index);
    }
}

// Store the own range of `visited` at all other devices.
__device__ __forceinline__ void team_broadcast(Bfs &bfs) {
    const u32 *visited = bfs.own_visited(bfs.parity());
    i64 offset = bfs.first() / 32;
    for (u64 at = bfs.team.thread(); at < static_cast<u64>(bfs.own_words());
         at += bfs.team.threads()) {
        u32 word = visited[at];
        for (u32 other = 0; other < bfs.stage.devices; other++)
            if (word && other != bfs.stage.device)
                bfs.arguments.visited[bfs.parity()][other][offset + at] = word;
    }
}

// Whether a push broadcasts in the same superstep: if the whole frontier are hubs, devices visit own
// vertices only, and mostly a pull follows.
__device__ __forceinline__ bool push_broadcasts(const Arguments &arguments, const u64 *state) {
    return HAS_PEERS && state[HUBS] == state[FRONTIER];
}

__device__ __forceinline__ void block_clear_hub_frontier(const Bfs &bfs) {
    u32 *remote = bfs.hub_frontier(bfs.stage.device, bfs.depth + 1);
    for (u32 word = threadIdx.x; word < bfs.hub_words(); word += blockDim.x) remote[word] = 0;
}

// Queue the vertices of the last depth, after queues were enlarged.
__device__ __forceinline__ void team_queue_again(Bfs &bfs) {
    u32 which = static_cast<u32>(bfs.state[QUEUE_INDEX]);
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.stage.owned);
         base += bfs.team.warps() * WARP) {
        u64 index = base + lane_id();
        bool is_last = index < static_cast<u64>(bfs.stage.owned) &&
                       bfs.arguments.depth[bfs.first() + index] == bfs.depth - 1;
        if (!__any_sync(FULL_WARP, is_last)) continue;
        u32 place = bfs.warp_room(which, is_last);
        if (is_last) bfs.thread_queue(which, place, static_cast<u32>(index));
    }
}

// Queue the frontier after a pull: the difference of the two bitmaps.
__device__ __forceinline__ void team_queue(Bfs &bfs) {
    u32 which = static_cast<u32>(bfs.state[QUEUE_INDEX]);
    const u32 *now = bfs.own_visited(bfs.parity()), *before = bfs.own_visited(bfs.parity() ^ 1);
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.own_words());
         base += bfs.team.warps() * WARP) {
        u64 at = base + lane_id();
        bfs.warp_queue_words(now[at] & ~before[at], static_cast<u32>(at), which, false);
    }
}

// Return the phase of a push. A frontier that did not fit a queue is queued again, by depths, after the
// host has enlarged the queues; before a pull no queue is needed.
__device__ __forceinline__ u32 bfs_push_phase(u64 *state) {
    if (state[HAS_MISSED]) {
        state[HAS_MISSED] = 0;
        state[GROWTHS] += 1;
        return QUEUE_AGAIN | LEAVE_FIRST;
    }
    bool is_tiny = state[FRONTIER] <= ALONE_VERTICES && state[LONG_ROWS] == 0 && state[HUBS] == 0;
    return is_tiny ? PUSH | ALONE : static_cast<u32>(PUSH);
}

// Return the phase that follows a complete frontier.
__device__ __forceinline__ u32 bfs_next(u64 *state) {
    if (state[FRONTIER] == 0 || state[DEPTH] >= state[LIMIT]) return STOP;
    state[DEPTH] += 1;
    double frontier = static_cast<double>(state[FRONTIER]);
    double visited = static_cast<double>(state[VISITED]);
    double vertices = static_cast<double>(state[VERTICES]);
    double open = vertices - visited;
    if (state[DEPTH] == state[DEEP_STEPS] && frontier * 256 < open) {
        state[IS_DEEP] = 1;
        return STOP;
    }
    // Arcs that a push and a pull would examine, both times vertices * visited.
    double forward = frontier * static_cast<double>(state[ARCS]) * visited;
    double backward = open * vertices * vertices;
    if (state[QUEUED]) {
        if (!state[PULLED] && forward > backward * amount_of(state[TURN_DOWN])) {
            state[QUEUED] = 0;
            state[PULLED] = 1;
            state[HAS_MISSED] = 0;
            return state[REPLICATED] ? PULL : BROADCAST;
        }
        return bfs_push_phase(state);
    }
    bool is_listed = state[LISTING] && !state[HAS_MISSED];
    state[HAS_MISSED] = 0;
    state[LISTING] = state[FRONTIER] <= LISTED_VERTICES;
    if (forward >= backward * amount_of(state[TURN_BACK])) return PULL;
    if (!is_listed) return QUEUE;
    state[QUEUED] = 1;
    return bfs_push_phase(state);
}

__device__ __forceinline__ void grid_bfs(const Arguments &arguments) {
    __shared__ AloneQueue alone;
    __shared__ PullList lists[1024 / WARP];
    if (threadIdx.x == 0) alone.step = NO_STEP;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Bfs bfs(arguments, team, block, alone, phase & ALONE);
        if (HAS_HUBS && arguments.hubs && team.block == 0) block_clear_hub_frontier(bfs);
        switch (phase & ~ALONE) {
            case BEGIN:
                team_clear(bfs);
                team.wait(block);
                team_seed(bfs);
                break;
            case PUSH:
                team_push(bfs);
                if (HAS_PEERS && push_broadcasts(arguments, bfs.state)) {
                    team.wait(block);
                    team_broadcast(bfs);
                }
                break;
            case RECEIVE:
                if constexpr (HAS_PEERS) team_receive(bfs);
                break;
            case BROADCAST:
                if constexpr (HAS_PEERS) team_broadcast(bfs);
                break;
            case PULL:
                team_pull(bfs, lists[warp_id()]);
                break;
            case QUEUE:
                team_queue(bfs);
                break;
            case QUEUE_AGAIN:
                if (team.thread() == 0) arguments.counters->queued[bfs.state[QUEUE_INDEX]] = 0;
                team.wait(block);
                team_queue_again(bfs);
                break;
        }
        bfs.count();
    };
    // What follows a complete frontier is one call, so that there is one copy of the code.
    auto next = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        u32 kind = phase & ~ALONE;
        state[VISITED] += sums.counts[FOUND];
        state[ALL_EXAMINED] += sums.counts[EXAMINED];
        state[HAS_MISSED] |= sums.counts[MISSED] != 0;
        if (HAS_PEERS && kind == BROADCAST) return PULL;
        if (kind == QUEUE || kind == QUEUE_AGAIN) {
            state[QUEUED] = 1;
            return bfs_push_phase(state);
        }
        if (kind == PUSH) {
            state[QUEUE_INDEX] ^= 1;
            arguments.counters->queued[state[QUEUE_INDEX] ^ 1] = 0;
            if (phase & ALONE) {
                u32 filled = static_cast<u32>(state[QUEUE_INDEX]);
                arguments.counters->queued[filled] = alone.count[filled];
                alone.turn(filled, static_cast<u32>(state[STEP]) + 1);
            }
            arguments.counters->left_rows = 0;
            state[REPLICATED] = arguments.stage.devices == 1 || push_broadcasts(arguments, state);
        }
        if (kind == PULL) state[PARITY] ^= 1;
        bool adds = HAS_PEERS && kind == RECEIVE;  // to the frontier that the push has found
        if (adds) state[REPLICATED] = 1;
        state[FRONTIER] = sums.counts[FOUND] + (adds ? state[FRONTIER] : 0);
        state[LONG_ROWS] = sums.counts[FOUND_LONG] + (adds ? state[LONG_ROWS] : 0);
        state[HUBS] = sums.counts[FOUND_HUBS] + (adds ? state[HUBS] : 0);
        if (sums.counts[FOUND_TARGET]) state[LIMIT] = state[DEPTH];
        if (HAS_PEERS && kind == PUSH && sums.counts[SENT]) return RECEIVE;
        return bfs_next(state);
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        phase = next(phase, sums, state);
        // Drop what a pull, or the push before the first pull, has queued.
        if (phase == PULL || phase == QUEUE) arguments.counters->queued[state[QUEUE_INDEX]] = 0;
        return phase;
    };
    run_steps(arguments.stage, body, decide);
}
