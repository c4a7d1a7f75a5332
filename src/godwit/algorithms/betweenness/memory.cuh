// Where a search of Brandes' algorithm keeps things, what it counts, and what its kernel is given.
//
// Everything of a search lies in one piece of each device's memory, at the same places (SearchLayout).
#pragma once

#include "supersteps/readers.cuh"

constexpr u32 SETS = 4;
constexpr u32 UNROLL = 4;
constexpr u32 GROUP = 8;
constexpr i64 THREAD_ROW = 4;              // rows up to so many arcs are a thread's,
constexpr i64 GROUP_ROW = GROUP * UNROLL;  // up to so many a group's of lanes,
constexpr i64 LONG_ROW = 4096;             // up to so many a warp's; longer ones a block's
constexpr u32 NO_DEPTH = 0xffffffffu;
constexpr double LARGEST_COUNT = 0x1p900;

// What block and device sums count. The first is a run's progress.
constexpr u32 BEGUN = 0;       // searches
constexpr u32 FOUND_ARCS = 1;  // their arcs
constexpr u32 SENT = 2;        // vertices of other devices, some of them found before
constexpr u32 REACHED = 3;     // vertices whose paths were counted
constexpr u32 ARCS = 4;        // the arcs from them,
constexpr u32 FAILED = 5;      // numbers of paths that are too large, or none
constexpr u32 FOUND = 6;       // vertices of the next level, of this device
constexpr u32 ARCS_IN = 7;     // and the arcs to those whose paths were counted

// Words of a search's state: the same at every device.
constexpr u32 SOURCE = 0;  // number of the source
constexpr u32 DEPTH = 1;
constexpr u32 LAST = 2;         // the deepest level
constexpr u32 DENSE_BEGIN = 3;  // levels that are in no list: from here
constexpr u32 DENSE_END = 4;    // to before here
constexpr u32 SEEN = 5;         // arcs to vertices reached
constexpr u32 COUNT = 6;        // vertices reached
constexpr u32 ARRIVING = 7;     // vertices that devices sent each other in the superstep before
constexpr u32 PHASE = 8;        // the superstep that is being done
constexpr u32 HAS_FAILED = 9;
constexpr u32 ALL_COUNT = 10;  // of all searches
constexpr u32 ALL_ARCS = 11;   // from vertices reached

// Where things lie in the memory of a search, in bytes.
struct SearchLayout {
    i64 visited;     // u32 [words]; of others' vertices, those that are known to be
    i64 sets;        // u32 [SETS][words]
    i64 values;      // double [positions]
    i64 depths;      // u32 [owned]
    i64 order;       // Id [owned]: own vertices, level by level, as they were found here
    i64 taken;       // Id [owned]: and those that others found
    i64 ends;        // Id [levels]: of each level in `order`
    i64 taken_ends;  // Id [levels]
    i64 lights;      // u8 [levels]: whether one block did the level
    i64 inbox;       // Id [devices][capacity]
    i64 counters;    // SearchCounters
    i64 centrality;  // double [owned], of a block's search
    i64 edges;       // double [own arcs]
    i64 nbytes;
};

struct SearchCounters {
    u64 tail;  // of order
    u64 taken_tail;
    // To each device: how many before a level, and at it. By parity of depth, as others read the last level's while
    // this one's are counted.
    u64 sent_before[2][MAX_DEVICES];
    u64 sent[2][MAX_DEVICES];
    u64 state[32];  // of a block's search
};

struct LongRows {
    const Id *rows;  // own indexes
    i64 count;
};

// The rows of a pass.
struct Pass {
    const i64 *offsets;
    const Id *targets;
    LongRows long_rows;
    u32 what;
    bool is_dense;  // through all own vertices, not a list
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;  // the same if the graph is undirected
    LongRows long_out;
    LongRows long_in;
    const Id *sources;   // positions
    double *centrality;  // by own index
    double *edges;       // by own arc, or null
    const u32 *readers;  // of own vertices' values (supersteps/readers.cuh); null: all devices
    char *searches[MAX_DEVICES];
    SearchLayout layout;
    i64 words;  // of a bitmap of all positions
    u64 source_count;
    u64 arcs;            // of the graph
    u64 mean_degree;     // of vertices that have arcs
    u64 light_vertices;  // a level with as many, and
    u64 light_arcs;      // with as many arcs is done by one block
    u64 dense_factor;  // a level is found from all that is left if so many times its arcs are more
    u32 block_searches;  // so many blocks search for themselves; 0: all together
    u32 sources_a_round;
    u32 endpoints;
    u32 is_hot_first;  // in-rows in the order of positions, those of highest degree first
    u32 is_directed;
    u32 has_long_rows;  // some device
};
