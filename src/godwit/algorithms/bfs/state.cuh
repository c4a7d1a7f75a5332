// State and arguments of breadth-first search in supersteps (algorithms/bfs/bfs.cuh).
#pragma once

#include "runtime/cuda/include/schedule.cuh"

constexpr i64 SHORT_ROW_ARCS = 32;  // longest row for one block alone
constexpr i32 UNREACHED = 0x7fffffff;
constexpr u32 NO_STEP = 0xffffffffu;

// Whether hubs' rows are shared out: one device has its own rows only.
constexpr bool HAS_HUBS = HAS_PEERS;
constexpr u32 ALONE_VERTICES = 1024;  // limit on all devices for one block alone
constexpr u32 LISTED_VERTICES =
    1 << 16;  // after frontiers up to this size a pull queues what it reaches

// Kinds of superstep.
enum BfsPhase : u32 { BEGIN, PUSH, RECEIVE, BROADCAST, PULL, QUEUE, QUEUE_AGAIN };

// Words of control->state.
enum BfsState : u32 {
    DEPTH,       // of the vertices that the next superstep reaches
    VISITED,     // so far, on all devices
    FRONTIER,    // vertices that were reached last
    PARITY,      // index of the current bitmap
    QUEUED,      // whether the queues hold the frontier
    REPLICATED,  // whether `visited` is complete on every device
    LIMIT,       // no vertex is reached beyond this depth
    VERTICES,    // vertices that have arcs
    ARCS,
    TURN_DOWN,  // the thresholds, as bits of doubles: do_a, do_b
    TURN_BACK,
    PULLED,       // whether the search has pulled
    DEEP_STEPS,   // depth at which to predict whether many levels follow; 0: never
    IS_DEEP,      // many would: the search gave up
    LONG_ROWS,    // in the frontier: of more than SHORT_ROW_ARCS
    QUEUE_INDEX,  // index of the queue that holds the frontier
    HAS_MISSED,   // whether the frontier did not fit a queue
    GROWTHS,
    LISTING,       // whether the pull queues what it reaches, as far as it fits
    HUBS,          // in the frontier; not counted as long rows
    ALL_EXAMINED,  // arcs looked at so far
};

// Sums over blocks and devices.
enum BfsCount : u32 { FOUND, SENT, FOUND_LONG, FOUND_TARGET, EXAMINED, MISSED, FOUND_HUBS };

struct BfsCounters {
    u32 queued[2];  // in each queue of this device
    u64 left_rows;  // rows left to the team
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;
    i32 *depth;                    // by position; valid in the own range
    u32 *visited[2][MAX_DEVICES];  // bitmaps over positions, of every device
    u32 *remote[MAX_DEVICES];      // bitmaps: vertices of other devices that were pushed to
    u32 *queue[2];                 // of local indexes
    u64 queue_room;                // items of each
    Schedule::Row *left_rows;
    BfsCounters *counters;
    const Id *seeds;  // in host memory: positions of the sources, of all devices
    i64 seed_count;
    i64 target;              // local index, or -1
    i64 long_below;          // local indexes from here on have rows of at most SHORT_ROW_ARCS
    u64 is_directed;         // the rows of smaller indexes may be short, too
    i64 active;              // local indexes from here on are reached as seeds only
    i64 cleared;             // depths from here on are UNREACHED, and stay so
    i64 hubs;                // local indexes below this are hubs (HubRows of supersteps/rows.py)
    const i64 *hub_offsets;  // (devices * hubs + 1): of each hub's arcs to own vertices
    const Id *hub_targets;
    u32 *hub_frontier[MAX_DEVICES];  // of every device (3, devices * hubs / 32), by depth % 3
};

// The queue of a block that goes on alone.
struct AloneQueue {
    u32 step;  // the superstep that reads it, whose other queue is empty; invalid in any other
    u32 count[2];
    u32 indexes[2][ALONE_VERTICES];

    // Called by one thread between two supersteps, the former of which has filled queue `filled`.
    __device__ __forceinline__ void turn(u32 filled, u32 next_step) {
        count[filled ^ 1] = 0;
        step = next_step;
    }
};

// A thread's view of a superstep, and its counts.
struct Bfs {
    const Arguments &arguments;
    const Stage &stage;
    const Team &team;
    StepBlock &block;
    AloneQueue &alone;
    const u64 *state;
    bool is_alone;
    bool looks_first;  // load `visited` before the atomic
    i32 depth;
    u32 found = 0, found_long = 0, found_hubs = 0, sent = 0, missed = 0;
    u64 examined = 0;

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
    // Words of a bitmap that have own vertices which may be reached.
    __device__ __forceinline__ i64 own_words() const { return (arguments.active + 31) / 32; }
    __device__ __forceinline__ u32 *own_visited(u32 which) const {
        return arguments.visited[which][stage.device] + first() / 32;
    }

    // Allocate `amount` items per lane, at most MOST, in a queue; returns the lane's first index. All lanes
    // participate.
    template <u32 MOST = WARP>
    __device__ __forceinline__ u32 warp_room(u32 which, u32 amount) {
        u32 end = MOST == 1 ? __popc(__ballot_sync(FULL_WARP, amount) << (WARP - 1 - lane_id()))
                            : warp_sum_up_to(amount);
        u32 place = 0;
        if (lane_id() == WARP - 1 && end)
            place =
                atomicAdd(is_alone ? &alone.count[which] : &arguments.counters->queued[which], end);
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

    // Bitmaps of hubs that were reached, by depth % 3: a superstep sets bits of its own depth, reads those
    // of the depth before, and clears those of the next, which no device reads or sets meanwhile.
    __device__ __forceinline__ u32 hub_words() const {
        return static_cast<u32>(arguments.hubs) / 32 * stage.devices;
    }
    __device__ __forceinline__ u32 *hub_frontier(u32 device, i32 of_depth) const {
        return arguments.hub_frontier[device] + static_cast<u32>(of_depth) % 3 * hub_words();
    }
    __device__ __forceinline__ void thread_reach_hub(u32 index) {
        found_hubs += 1;
        if (depth == 0) return;  // team_seed sets the bits of sources
        u32 hub = stage.device * static_cast<u32>(arguments.hubs) + index;
        for (u32 other = 0; other < stage.devices; other++)
            set_bits_system(hub_frontier(other, depth) + hub / 32, 1u << (hub & 31));
    }

    // Reach an own vertex: store its depth, and count it.
    __device__ __forceinline__ void thread_reach(u32 index) {
        arguments.depth[first() + index] = depth;
        found += 1;
        if (HAS_HUBS && index < arguments.hubs)
            thread_reach_hub(index);
        else if (index < arguments.long_below)
            found_long +=
                !arguments.is_directed ||
                arguments.out.offsets[index + 1] - arguments.out.offsets[index] > SHORT_ROW_ARCS;
        if (index == arguments.target) atomicAdd(&block.sums.counts[FOUND_TARGET], 1ull);
    }

    // Queue the vertices of the bits in the lanes' words.
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
        if (HAS_PEERS) warp_count(block, SENT, sent);
        warp_count(block, EXAMINED, examined);
        warp_count(block, MISSED, missed);
        if (HAS_HUBS && arguments.hubs) warp_count(block, FOUND_HUBS, found_hubs);
    }
};
