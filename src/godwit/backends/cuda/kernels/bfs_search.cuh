// What a breadth-first search in supersteps (bfs_steps.cuh) keeps, and how it looks behind the heads of rows.
#pragma once

#include "schedule_mixed.cuh"

constexpr i64 SHORT_ROW_ARCS = 32;  // longer ones are not for one block alone
constexpr i32 UNREACHED = 0x7fffffff;
constexpr u32 NO_STEP = 0xffffffffu;
constexpr u32 ALONE_VERTICES = 1024;  // on all devices
constexpr u32 PULL_SPAN = 16;         // words that a warp takes at a time
constexpr u32 PULL_WORDS = 4;         // of these, that it looks through at a time
constexpr u32 PULL_ALONE_ARCS = 8;    // that a lane looks at, before its warp helps

// Kinds of superstep.
enum BfsPhase : u32 { BEGIN, PUSH, RECEIVE, SPREAD, PULL, QUEUE, QUEUE_AGAIN };

// Words of control->state.
enum BfsState : u32 {
    DEPTH,     // of the vertices that the next superstep finds
    VISITED,   // so far, on all devices
    FRONTIER,  // how many were found last
    PARITY,    // which bitmap is up to date
    QUEUED,    // whether the queues hold the frontier
    SPREADED,  // whether every device knows all that is visited
    LIMIT,     // no vertex is found beyond this depth
    VERTICES,  // that have arcs
    ARCS,
    TURN_DOWN,  // the thresholds, as bits of doubles: do_a, do_b
    TURN_BACK,
    PULLED,       // the direction turned once
    DEEP_STEPS,   // after so many supersteps it is looked whether there will be many more; 0: never
    IS_DEEP,      // there will: the search gave up
    LONG_ROWS,    // in the frontier: of more than SHORT_ROW_ARCS
    QUEUE_INDEX,  // which queue holds the frontier
    STEPS,
    HAS_MISSED,  // a queue had no room for the whole frontier
    GROWTHS,
};

// What blocks count.
enum BfsCount : u32 { FOUND, SENT, FOUND_LONG, FOUND_TARGET, LOOKED, MISSED };

struct BfsLocal {
    u32 queued[2];  // in each queue of this device
    u64 long_rows;
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;
    i32 *depth;                    // by position; its own range counts
    u32 *visited[2][MAX_DEVICES];  // bitmaps over positions, of every device
    u32 *marks[MAX_DEVICES];       // likewise: what was pushed to others
    u32 *queue[2];                 // own indexes
    u64 queue_room;                // of each
    LongRow *long_rows;
    BfsLocal *local;
    const Id *seeds;  // own indexes
    i64 seed_count;
    i64 target;       // own index, or -1
    i64 long_below;   // own indexes from here on have rows of SHORT_ROW_ARCS at most
    u64 is_directed;  // those before may have, too
};

__device__ __forceinline__ bool has_bit(const u32 *bitmap, Id position) {
    return bitmap[position >> 5] >> (position & 31) & 1;
}

// Whether a lane's vertex has a visited neighbour behind the head of its row. All lanes come. Returns that,
// and above it how many the lane looked at.
__device__ __noinline__ u32 warp_search(const Rows<Id> &rows, const u32 *visited, bool searches,
                                        i64 index) {
    const Id *targets = rows.targets;
    i64 at = 0, end = 0;
    u32 looked = 0;
    if (searches) {
        at = rows.offsets[index] + 1;
        end = rows.offsets[index + 1];
    }
    bool is_found = false;
    for (u32 alone = 0; alone < PULL_ALONE_ARCS; alone += 4) {
        if (!__any_sync(FULL_WARP, !is_found && at < end)) return is_found | looked << 1;
        Id target[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            target[i] = !is_found && at + i < end ? targets[at + i] : Id(-1);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (target[i] < 0) continue;
            looked += 1;
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
                looked += 1;
                here = has_bit(visited, targets[from + lane_id()]);
            }
            hit = __any_sync(FULL_WARP, here);
        }
        if (lane_id() == whose) is_found = hit;
    }
    return is_found | looked << 1;
}

// Of the vertices of a span: those that are looked for, and bits of those that were found.
struct PullList {
    u16 places[PULL_SPAN * 32];
    u32 found[PULL_SPAN];
};

// The queue of a block that goes on alone.
struct AloneQueue {
    u32 step;  // the superstep that reads it; any other finds nothing here
    u32 count[2];
    u32 indexes[2][ALONE_VERTICES];
};
