// One device's part of a run: its rows of the graph, the vertices' state, and the control words.
//
// Vertices have local indices (graph/partition/layout.py): a target t < owned is an own vertex, otherwise
// halo vertex t - owned.
#pragma once

#include "runtime/cuda/include/barrier.cuh"

// Indexes of the counters of a run, in the order of COUNTERS in program.py.
enum Counter : u32 {
    PROCESSED,
    USELESS,
    ARCS,
    THRESHOLD_CHANGES,
    RECEIVED,
    FILTERED,
    ROUNDS,
    WAITED,  // clock cycles that blocks waited at meetings, of all their CYCLES
    CYCLES,
    SENT_TO,  // items sent, one counter per device
    COUNTERS = SENT_TO + MAX_DEVICES
};

// How the width of the window is being found: see window.cuh.
struct Trials {
    u64 begin_ns;       // when the measurement began
    float begin_first;  // the lowest pending priority then
    float begin_bound;  // the bound then, or when the width changed
    float speed;        // of the width that is kept, or was before the trial
    float factor;       // of the width that is tried over the one before
    u32 meetings;       // since the measurement began
    u32 phase;
    u32 rest;       // measurements until the next trial
    u32 patience;   // the rest after the last trial
    u32 measures;   // 0: work within the bound of the width before is still pending
    u32 was_dense;  // before this trial
    float tried;    // speed of the width that was tried last
    u32 padding;
};

// The state of a run besides values and bitmaps; with these it is all that a later launch needs to
// continue. `release` and `epoch` go on from run to run: boards still have the reports of earlier meetings.
struct Control {
    u64 release;     // the word that ends a meeting: see runtime/cuda/include/barrier.cuh
    u64 arrived;     // blocks at the meeting, and the number of due vertices that they left pending
    u64 hub_cursor;  // hubs << 32 | chunks
    u64 limit;       // as a Value: worse messages are dropped
    u32 lowest;      // key of the lowest pending priority
    u32 overflow;
    u32 status;
    u32 round;
    u32 epoch;  // number of meetings with the other devices
    float bound;
    float window;  // by which the bound rises at a meeting
    u32 hops;      // arcs that a block may run ahead between two meetings
    Trials trials;
    u32 outgoing[MAX_DEVICES];  // items put into mailboxes in this round, by final device
    u32 incoming[MAX_DEVICES][MAX_DEVICES];  // items to receive, by sending and by final device
    u32 relayed[MAX_DEVICES];                // end of the relayed items among the outgoing ones
    u64 counters[COUNTERS];
};

// What a launch leaves for the host, in host memory.
struct Outcome {
    u64 limit;
    float bound;
    u32 status;
    u32 overflow;
    u32 padding;
    u64 counters[COUNTERS];
};

// A device's report to another one at a meeting. A board has two slots for each sender: a fast device may
// write the next meeting's report while a slow one still reads.
struct Report {
    u32 lowest;
    u32 flags;
    u64 limit;
    u64 now_ns;
    u32 items[MAX_DEVICES];  // sent to the receiver of the report, by final device
};

struct Board {
    Report reports[2][MAX_DEVICES];
    u32 epochs[MAX_DEVICES][32];  // a cache line each
};

template <class T>
struct alignas(16) Row {
    T at[4];
};

// Read a row by loads of 16 bytes, which the compiler does not move.
template <class T>
__device__ __forceinline__ Row<T> load_row(const Row<T> *place) {
    constexpr u32 pieces = sizeof(Row<T>) / 16;
    int4 words[pieces];
    for (u32 i = 0; i < pieces; i++)
        asm volatile("ld.global.nc.v4.s32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[i].x), "=r"(words[i].y), "=r"(words[i].z), "=r"(words[i].w)
                     : "l"(reinterpret_cast<const int4 *>(place) + i));
    Row<T> row;
    memcpy(&row, words, sizeof(row));
    return row;
}

// A vertex whose row the whole grid expands. `chunk` is the number of its first chunk in this round.
template <class P>
struct Hub {
    i64 begin;
    i64 end;
    u64 chunk;
    i64 vertex;
    typename P::Value value;
    typename P::Field field;
};

template <class P>
struct alignas(sizeof(typename P::Value) == 4 && sizeof(typename P::Id) == 4 ? 8 : 16) Item {
    typename P::Id vertex;
    typename P::Value value;
};

// What a run begins with. Pointers are to host memory.
template <class P>
struct Request {
    const i64 *seeds;  // vertices that are pending, each once
    const typename P::Value *seed_values;
    i64 seed_count;
    const double *parameters;
    i64 parameter_count;
    u64 limit;         // as a Value
    u64 value;         // of all other vertices, as a Value
    u64 field;         // of all vertices, as a Field
    u32 fills_values;  // 0: the host has uploaded them
    u32 fills_fields;
    u32 all_pending;
    u32 padding;
};

constexpr i32 NO_ARC = -1;    // an unused element of a packed row
constexpr i32 LONG_ROW = -2;  // first element of a packed row whose arcs are in the arrays

template <class P>
struct Part {
    using Id = typename P::Id;
    using Value = typename P::Value;
    using Weight = typename P::Weight;

    const i64 *offsets;
    const Id *targets;
    const Weight *weights;
    const Id *vertices;
    const Row<Id> *rows;  // packed rows: up to four targets of each vertex
    const Row<Weight> *row_weights;
    const Id *halo_remote;
    Value *values;
    Value *halo_values;
    typename P::Field *fields;
    u32 *pending;  // a bit for each vertex: see relax.cuh
    u32 *halo_pending;
    Hub<P> *hubs;
    double *parameters;
    Control *control;
    Outcome *outcome;
    u32 *ended;  // in host memory: set at the end of a launch, after all other stores
    Board *board;
    Item<P> *inbox[MAX_DEVICES];   // mailbox from each device: two halves
    const u32 *stop;               // set by the host: stop waiting for other devices
    Item<P> *const *relay;         // mailboxes here, [sending device * MAX_DEVICES + final device]
    Item<P> *outbox[MAX_DEVICES];  // mailbox to each device
    Board *boards[MAX_DEVICES];
    i64 halo_begin[MAX_DEVICES + 1];  // first halo vertex of each owner
    i64 owned;
    i64 halo;
    i64 target;  // the vertex whose value lowers the limit, or -1
    u64 slice_ns;
    u64 patience_ns;
    u64 latency_ns;  // artificial delay of every meeting of devices
    u32 devices;
    u32 device;
    u32 mailbox_items;  // limit of own items that a device sends to another in a round
    u32 mailbox_room;   // items of half a mailbox
    u32 relays;         // 1 if devices relay items of others
    u32 queue_items;    // room of a block's queue in shared memory
    u32 hops;           // arcs that a block may run ahead between two meetings, at first
    u32 unit_shift;     // log2 of the neighbouring words of a bitmap that a warp scans
    u32 has_hubs;
    u32 sparse_items;  // with fewer due vertices, blocks run ahead
    float delta;       // by which the bound rises at a meeting, at first
    u32 adapts;        // 1: this width changes if others turn out to be faster
    u32 volume;        // number of times that every item is sent, for experiments
    u32 next_hop[MAX_DEVICES];
    u32 begins;  // 1: a run begins, with `request`; 0: it continues
    u32 padding;
    u32 prepare;  // 1: return at once; the launch only loads the kernel
    Request<P> request;

    __device__ __forceinline__ bool has_peers() const { return HAS_PEERS && devices > 1; }
};

// Load an item of a mailbox, which another device has written, perhaps into host memory: not through a
// cache.
template <class P>
__device__ __forceinline__ Item<P> load_item(const Item<P> *place) {
    Item<P> item;
    if constexpr (sizeof(Item<P>) == 8) {
        u64 bits = load_system(reinterpret_cast<const u64 *>(place));
        memcpy(&item, &bits, 8);
    } else {
        u64 bits[2] = {load_system(reinterpret_cast<const u64 *>(place)),
                       load_system(reinterpret_cast<const u64 *>(place) + 1)};
        memcpy(&item, bits, 16);
    }
    return item;
}

template <class P>
__device__ __forceinline__ void store_item(Item<P> *place, Item<P> item) {
    if constexpr (sizeof(Item<P>) == 8) {
        u64 bits;
        memcpy(&bits, &item, 8);
        store_system(reinterpret_cast<u64 *>(place), bits);
    } else {
        int4 bits;
        memcpy(&bits, &item, 16);
        asm volatile("st.volatile.global.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(place), "r"(bits.x),
                     "r"(bits.y), "r"(bits.z), "r"(bits.w)
                     : "memory");
    }
}
