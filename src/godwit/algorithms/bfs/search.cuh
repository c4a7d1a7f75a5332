// What a breadth-first search in supersteps (algorithms/bfs/bfs.cuh) keeps, and what a thread has at hand.
#pragma once

#include "runtime/cuda/include/schedule.cuh"

constexpr i64 SHORT_ROW_ARCS = 32;  // longer ones are not for one block alone
constexpr i32 UNREACHED = 0x7fffffff;
constexpr u32 NO_STEP = 0xffffffffu;
constexpr u32 ALONE_VERTICES = 1024;      // on all devices
constexpr u32 LISTED_VERTICES = 1 << 16;  // after so many in a frontier a pull queues what it finds

// Kinds of superstep.
enum BfsPhase : u32 { BEGIN, PUSH, RECEIVE, SPREAD, PULL, QUEUE, QUEUE_AGAIN };

// Words of control->state.
enum BfsState : u32 {
    DEPTH,       // of the vertices that the next superstep finds
    VISITED,     // so far, on all devices
    FRONTIER,    // how many were found last
    PARITY,      // which bitmap is up to date
    QUEUED,      // whether the queues hold the frontier
    REPLICATED,  // whether every device knows all that is visited
    LIMIT,       // no vertex is found beyond this depth
    VERTICES,    // that have arcs
    ARCS,
    TURN_DOWN,  // the thresholds, as bits of doubles: do_a, do_b
    TURN_BACK,
    PULLED,       // the direction turned once
    DEEP_STEPS,   // at this depth it is looked whether there will be many more; 0: never
    IS_DEEP,      // there will: the search gave up
    LONG_ROWS,    // in the frontier: of more than SHORT_ROW_ARCS
    QUEUE_INDEX,  // which queue holds the frontier
    HAS_MISSED,   // a queue had no room for the whole frontier
    GROWTHS,
    LISTING,  // the pull queues what it finds, as long as there is room
    HUBS,     // in the frontier; they are not counted as long rows
};

// What blocks count.
enum BfsCount : u32 { FOUND, SENT, FOUND_LONG, FOUND_TARGET, LOOKED, MISSED, FOUND_HUBS };

struct BfsLocal {
    u32 queued[2];  // in each queue of this device
    u64 left_rows;  // what the schedule counts
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
    Schedule::Row *left_rows;
    BfsLocal *local;
    const Id *seeds;  // own indexes
    i64 seed_count;
    i64 target;       // own index, or -1
    i64 long_below;   // own indexes from here on have rows of SHORT_ROW_ARCS at most
    u64 is_directed;  // those before may have, too
    i64 active;       // own indexes from here on are reached as seeds only
    i64 cleared;      // depths of those from here on are UNREACHED already, and stay so
    i64 hubs;         // own indexes before this one: their rows are shared out (supersteps/hubs.py)
    const i64 *hub_offsets;  // (devices * hubs + 1): of each hub's arcs to own vertices
    const Id *hub_targets;
    u32 *hub_marks[MAX_DEVICES];  // of every device (3, devices * hubs / 32), by depth % 3
};

// The queue of a block that goes on alone.
struct AloneQueue {
    u32 step;  // the superstep that reads it, and finds the other one empty; any other finds nothing here
    u32 count[2];
    u32 indexes[2][ALONE_VERTICES];

    // One thread, between two supersteps: the one that ended has filled queue `filled`.
    __device__ __forceinline__ void turn(u32 filled, u32 next_step) {
        count[filled ^ 1] = 0;
        step = next_step;
    }
};

// A superstep of one thread: what it has at hand, and what it counts.
struct Bfs {
    const Arguments &arguments;
    const Stage &stage;
    const Team &team;
    StepBlock &block;
    AloneQueue &alone;
    const u64 *state;
    bool is_alone;
    bool looks_first;  // whether a vertex is visited, before it is visited
    i32 depth;
    u32 found = 0, found_long = 0, found_hubs = 0, sent = 0, missed = 0;
    u64 looked = 0;

    __device__ __forceinline__ Bfs(const Arguments &given, const Team &with, StepBlock &in,
                                   AloneQueue &queue, bool alone_now)
        : arguments(given),
          stage(given.stage),
          team(with),
          block(in),
          alone(queue),
          state(in.state),
          is_alone(alone_now),
          looks_first(!alone_now && in.state[VISITED] != in.state[FRONTIER]),
          depth(static_cast<i32>(state[DEPTH])) {}

    __device__ __forceinline__ u32 parity() const { return static_cast<u32>(state[PARITY]); }
    __device__ __forceinline__ i64 first() const { return stage.first(); }
    // Of bitmaps: those of vertices that may be reached.
    __device__ __forceinline__ i64 own_words() const { return (arguments.active + 31) / 32; }
    __device__ __forceinline__ u32 *own_visited(u32 which) const {
        return arguments.visited[which][stage.device] + first() / 32;
    }

    // Room in a queue for so many of each lane, MOST at most; returns where the lane's begin. All lanes come.
    template <u32 MOST = WARP>
    __device__ __forceinline__ u32 warp_room(u32 which, u32 amount) {
        u32 end = MOST == 1 ? __popc(__ballot_sync(FULL_WARP, amount) << (WARP - 1 - lane_id()))
                            : warp_sum_up_to(amount);
        u32 place = 0;
        if (lane_id() == WARP - 1 && end)
            place =
                atomicAdd(is_alone ? &alone.count[which] : &arguments.local->queued[which], end);
        return __shfl_sync(FULL_WARP, place, WARP - 1) + end - amount;
    }

    __device__ __forceinline__ void thread_queue(u32 which, u32 place, u32 index) {
        if (place >= arguments.queue_room) {
            missed += 1;
            return;
        }
        arguments.queue[which][place] = index;
        if (is_alone && place < ALONE_VERTICES) alone.indexes[which][place] = index;
    }

    // All devices push along the rows of hubs. A superstep sets marks of its own depth, reads those of the depth
    // before, and clears those of the next (algorithms/bfs/bfs.cuh), which nobody reads or sets meanwhile.
    __device__ __forceinline__ u32 hub_words() const {
        return static_cast<u32>(arguments.hubs) / 32 * stage.devices;
    }
    __device__ __forceinline__ u32 *hub_marks(u32 device, i32 of_depth) const {
        return arguments.hub_marks[device] + static_cast<u32>(of_depth) % 3 * hub_words();
    }
    __device__ __forceinline__ void thread_reach_hub(u32 index) {
        found_hubs += 1;
        if (depth == 0) return;  // the host has marked the sources
        u32 hub = stage.device * static_cast<u32>(arguments.hubs) + index;
        for (u32 other = 0; other < stage.devices; other++)
            set_bits_system(hub_marks(other, depth) + hub / 32, 1u << (hub & 31));
    }

    // A vertex of this device is reached: note it.
    __device__ __forceinline__ void thread_reach(u32 index) {
        arguments.depth[first() + index] = depth;
        found += 1;
        if (index < arguments.hubs)
            thread_reach_hub(index);
        else if (index < arguments.long_below)
            found_long +=
                !arguments.is_directed ||
                arguments.out.offsets[index + 1] - arguments.out.offsets[index] > SHORT_ROW_ARCS;
        if (index == arguments.target) atomicAdd(&block.sums.counts[FOUND_TARGET], 1ull);
    }

    // Queue the vertices whose bits are set in the lanes' words.
    __device__ __forceinline__ void warp_queue_words(u32 word, u32 at, u32 which, bool reaches) {
        if (!__any_sync(FULL_WARP, word != 0)) return;
        u32 place = warp_room(which, __popc(word));
        while (word) {
            u32 index = at * 32 + __ffs(word) - 1;
            word &= word - 1;
            if (reaches) thread_reach(index);
            thread_queue(which, place++, index);
        }
    }

    __device__ __forceinline__ void count() {
        warp_count(block, FOUND, found);
        warp_count(block, FOUND_LONG, found_long);
        if (stage.devices > 1) warp_count(block, SENT, sent);
        warp_count(block, LOOKED, looked);
        warp_count(block, MISSED, missed);
        if (arguments.hubs) warp_count(block, FOUND_HUBS, found_hubs);
    }
};
