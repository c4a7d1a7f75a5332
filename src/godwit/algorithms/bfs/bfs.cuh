// Breadth-first search in supersteps that turns its direction (Beamer, Asanovic, Patterson, SC 2012), on one
// to many devices. When to turn is said by counts that are there anyway (Pan et al., multi-GPU Gunrock, VI-A).
//
// Pushing, the owner of a vertex in the frontier marks its neighbours: its own are visited, and queued; of
// those of others it sets bits, which their owners read in a superstep of its own ("receive"), if any were set,
// in which they also tell everyone what is visited.
// Rows of hubs are shared out: all push along them, each to its own vertices (supersteps/hubs.py).
// Pulling, the owner of an unvisited vertex looks for a neighbour that was visited before this superstep: it is
// in the frontier then, as whoever is visited earlier has no unvisited neighbours. So one bitmap serves as
// frontier and as visited set. There are two, `visited[step & 1]` as of before a superstep and the other as
// of after it, on every device; what an owner finds it stores into all of them, word by word as it goes.
// Pushing changes bitmaps where they are.
//
// Where the frontier is tiny one block of each device pushes alone. It keeps its queue in shared memory, too:
// the other copy is for whoever goes on.
//
// Rows are hot first (step.cuh): most unvisited vertices that have a visited neighbour have one at the
// head of their row, and heads are an array that warps read in lines. Floor of a pull: a bit a vertex of
// `visited`, read and written (to every device), and 4 bytes of head and a random bit for each unvisited one.
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
        if (bfs.stage.devices > 1) bfs.arguments.marks[bfs.stage.device][i] = 0;
    }
    if (bfs.team.thread() == 0) *bfs.arguments.local = BfsLocal{};
}

__device__ __forceinline__ void team_seed(Bfs &bfs) {
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.arguments.seed_count);
         base += bfs.team.warps() * WARP) {
        u64 i = base + lane_id();
        bool is_new = false;
        u32 index = 0;
        if (i < static_cast<u64>(bfs.arguments.seed_count)) {
            index = static_cast<u32>(bfs.arguments.seeds[i]);
            u32 bit = 1u << (index & 31);
            is_new = !(atomicOr(&bfs.own_visited(bfs.parity())[index >> 5], bit) & bit);
            if (is_new) bfs.thread_reach(index);
            // Nobody clears it next time: the host knows of it.
            if (index >= bfs.arguments.active) bfs.arguments.depth[bfs.first() + index] = UNREACHED;
        }
        u32 place = bfs.warp_room(0, is_new);
        if (is_new) bfs.thread_queue(0, place, index);
    }
}

// Everyone learns what this device's vertices are.
__device__ __forceinline__ void team_spread(Bfs &bfs) {
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

// Where the whole frontier are hubs each device visits its own vertices, and no one is told of any by marks: so
// it tells everyone in the same superstep, as pulling mostly comes next.
__device__ __forceinline__ bool is_spread_by_push(const Arguments &arguments, const u64 *state) {
    return arguments.stage.devices > 1 && state[HUBS] == state[FRONTIER];
}

__device__ __forceinline__ void block_clear_hub_marks(const Bfs &bfs) {
    u32 *marks = bfs.hub_marks(bfs.stage.device, bfs.depth + 1);
    for (u32 word = threadIdx.x; word < bfs.hub_words(); word += blockDim.x) marks[word] = 0;
}

// After queues were enlarged: the frontier is what was found last.
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

// After pulling: the frontier is where the two bitmaps differ.
__device__ __forceinline__ void team_queue(Bfs &bfs) {
    u32 which = static_cast<u32>(bfs.state[QUEUE_INDEX]);
    const u32 *now = bfs.own_visited(bfs.parity()), *before = bfs.own_visited(bfs.parity() ^ 1);
    for (u64 base = bfs.team.warp() * WARP; base < static_cast<u64>(bfs.own_words());
         base += bfs.team.warps() * WARP) {
        u64 at = base + lane_id();
        bfs.warp_queue_words(now[at] & ~before[at], static_cast<u32>(at), which, false);
    }
}

// A frontier that a queue had no room for is queued again, from depths, when the host has enlarged the queues:
// everything else is noted where there is room for all. Where pulling comes next no queue is needed.
__device__ __forceinline__ u32 bfs_push_phase(u64 *state) {
    if (state[HAS_MISSED]) {
        state[HAS_MISSED] = 0;
        state[GROWTHS] += 1;
        return QUEUE_AGAIN | LEAVE_FIRST;
    }
    bool is_tiny = state[FRONTIER] <= ALONE_VERTICES && state[LONG_ROWS] == 0 && state[HUBS] == 0;
    return is_tiny ? PUSH | ALONE : static_cast<u32>(PUSH);
}

// What comes after a frontier is complete.
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
    // Arcs that pushing would look at, and pulling; both times vertices * visited.
    double forward = frontier * static_cast<double>(state[ARCS]) * visited;
    double backward = open * vertices * vertices;
    if (state[QUEUED]) {
        if (!state[PULLED] && forward > backward * amount_of(state[TURN_DOWN])) {
            state[QUEUED] = 0;
            state[PULLED] = 1;
            state[HAS_MISSED] = 0;
            return state[REPLICATED] ? PULL : SPREAD;
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
        if (arguments.hubs && team.block == 0) block_clear_hub_marks(bfs);
        switch (phase & ~ALONE) {
            case BEGIN:
                team_clear(bfs);
                team.wait(block);
                team_seed(bfs);
                break;
            case PUSH:
                team_push(bfs);
                if (is_spread_by_push(arguments, bfs.state)) {
                    team.wait(block);
                    team_spread(bfs);
                }
                break;
            case RECEIVE:
                team_receive(bfs);
                break;
            case SPREAD:
                team_spread(bfs);
                break;
            case PULL:
                team_pull(bfs, lists[warp_id()]);
                break;
            case QUEUE:
                team_queue(bfs);
                break;
            case QUEUE_AGAIN:
                if (team.thread() == 0) arguments.local->queued[bfs.state[QUEUE_INDEX]] = 0;
                team.wait(block);
                team_queue_again(bfs);
                break;
        }
        bfs.count();
    };
    auto next = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        state[VISITED] += sums.counts[FOUND];
        u64 long_rows = sums.counts[FOUND_LONG], hubs = sums.counts[FOUND_HUBS];
        bool is_over = sums.counts[FOUND_TARGET] != 0;
        state[HAS_MISSED] |= sums.counts[MISSED] != 0;
        switch (phase & ~ALONE) {
            case BEGIN:
                state[FRONTIER] = sums.counts[FOUND];
                state[LONG_ROWS] = long_rows;
                state[HUBS] = hubs;
                if (is_over) state[LIMIT] = state[DEPTH];
                return bfs_next(state);
            case PUSH:
                state[QUEUE_INDEX] ^= 1;
                arguments.local->queued[state[QUEUE_INDEX] ^ 1] = 0;
                if (phase & ALONE) {
                    u32 filled = static_cast<u32>(state[QUEUE_INDEX]);
                    arguments.local->queued[filled] = alone.count[filled];
                    alone.turn(filled, static_cast<u32>(state[STEP]) + 1);
                }
                arguments.local->left_rows = 0;
                state[REPLICATED] =
                    arguments.stage.devices == 1 || is_spread_by_push(arguments, state);
                state[FRONTIER] = sums.counts[FOUND];
                state[LONG_ROWS] = long_rows;
                state[HUBS] = hubs;
                if (is_over) state[LIMIT] = state[DEPTH];
                if (sums.counts[SENT]) return RECEIVE;
                return bfs_next(state);
            case RECEIVE:
                state[REPLICATED] = 1;
                state[FRONTIER] += sums.counts[FOUND];
                state[LONG_ROWS] += long_rows;
                state[HUBS] += hubs;
                if (is_over) state[LIMIT] = state[DEPTH];
                return bfs_next(state);
            case SPREAD:
                return PULL;
            case PULL:
                state[PARITY] ^= 1;
                state[FRONTIER] = sums.counts[FOUND];
                state[LONG_ROWS] = long_rows;
                state[HUBS] = hubs;
                if (is_over) state[LIMIT] = state[DEPTH];
                return bfs_next(state);
            case QUEUE:
            case QUEUE_AGAIN:
                state[QUEUED] = 1;
                return bfs_push_phase(state);
        }
        return STOP;
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        phase = next(phase, sums, state);
        // What a pull left in the queue, or what was pushed before the first, is not wanted.
        if (phase == PULL || phase == QUEUE) arguments.local->queued[state[QUEUE_INDEX]] = 0;
        return phase;
    };
    run_steps(arguments.stage, body, decide);
}
