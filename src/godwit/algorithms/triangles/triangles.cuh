// Triangles, each found at its middle corner, by one device that has all rows and a share of the work.
//
// Rows are those of positions (rows.py): first the lower neighbours of a vertex, ascending, then the upper ones.
// For the corners w < v < u of a triangle, the lower neighbours of v are put into a hash table in shared memory;
// for each upper neighbour u of v, the lower neighbours of u that come before v are looked up there. (S. Pandey et
// al., TRUST: triangle counting reloaded on GPUs, IEEE TPDS 32 (2021), has such tables; they are filled there from
// the tail of an arc, here from its head, so that the shorter row is read, and only up to v.) A slot of the table
// also adds up what its vertex w gets, so that memory has one atomic addition for each row, not for each triangle.
//
// Long rows come first. Their arcs are cut into pieces, each of which one block takes, and fills a table for every
// row in it; every other row is taken by one warp, which has its part of the block's table. Pieces, and batches of
// short rows, go to blocks and warps as these come, and to devices in turn.
//
// A run of several devices ends with runs of ADD alone, by which the first device adds up the sums of all.
//
// Invariant: between two rows a table is empty. Rows with more lower neighbours than half a table has slots are
// looked up in several rounds.
#pragma once

#include "runtime/cuda/include/warp_rows.cuh"
#include "supersteps/step.cuh"

#if VALUED
using Sum = double;   // of products of values
using Slot = double;  // the same in a table
#else
using Sum = u64;   // triangles
using Slot = u32;  // the same in a table, where one row's arcs bound it
#endif

constexpr u32 NO_KEY = 0xffffffffu;
constexpr u32 NO_SLOT = 0xffffffffu;
constexpr u32 SPARSE = 4;       // slots for each key, where the table has them
constexpr u32 FEWEST_BITS = 5;  // slots of a table, as a power of two
constexpr u32 BATCH_ROWS = WARP;

// Counts of a superstep. The first is a run's progress.
constexpr u32 DONE = 0;   // rows
constexpr u32 FOUND = 1;  // triangles
// Words of the state.
constexpr u32 NEXT = 0;  // first piece or batch of the superstep

enum TrianglesPhase : u32 { CLEAR, LONG_ROWS, SHORT_ROWS, ADD };
enum TrianglesWord : u32 { ALL_FOUND = 1 };

struct Arguments {
    Stage stage;
    const i64 *offsets;    // (rows + 1)
    const i64 *splits;     // (rows) end of the lower neighbours
    const Id *targets;     // positions
    const double *values;  // of edges; null unless VALUED
    Sum *sums;             // by position
    const Sum *received;   // sums of another device, which ADD adds to own ones; null: none
    i64 rows;
    i64 long_rows;
    i64 piece_arcs;
    u64 pieces;   // of this device
    u64 batches;  // of this device
    u64 pieces_a_step;
    u64 batches_a_step;
    u32 share;   // this device is one of so many `shares`
    u32 shares;  // pieces and batches p * shares + share are its own
    u32 table_bits;
    u32 padding;
};

// A set of vertices in shared memory, with a sum, and a value, for each: open addressing, linear probing.
struct Table {
    u32 *keys;
    Slot *sums;
    double *values;
    u32 bits;      // of all slots that there is room for
    u32 used = 0;  // bits of the slots that are used now

    __device__ __forceinline__ i64 capacity() const { return i64{1} << (bits - 1); }
    __device__ __forceinline__ u32 slots() const { return 1u << used; }
    // Choose how many slots to use for a number of keys.
    __device__ __forceinline__ void thread_size(u32 count) {
        used = FEWEST_BITS;
        while (used < bits && (1u << used) < SPARSE * count) used++;
    }
    __device__ __forceinline__ u32 first_slot(u32 key) const {
        return (key * 2654435769u) >> (32 - used);
    }
    __device__ __forceinline__ void thread_insert(u32 key, double value) const {
        u32 slot = first_slot(key);
        while (atomicCAS(&keys[slot], NO_KEY, key) != NO_KEY) slot = (slot + 1) & (slots() - 1);
        if (VALUED) values[slot] = value;
    }
    __device__ __forceinline__ u32 slot_of(u32 key) const {
        u32 slot = first_slot(key);
        for (;;) {
            const u32 there = keys[slot];
            if (there == key) return slot;
            if (there == NO_KEY) return NO_SLOT;
            slot = (slot + 1) & (slots() - 1);
        }
    }
};

// The threads that take a row together: a block, or one of its warps.
template <bool IS_BLOCK>
struct Group {
    __device__ __forceinline__ u32 thread() const { return IS_BLOCK ? threadIdx.x : lane_id(); }
    __device__ __forceinline__ u32 threads() const { return IS_BLOCK ? blockDim.x : WARP; }
    __device__ __forceinline__ void wait() const {
        if constexpr (IS_BLOCK)
            __syncthreads();
        else
            __syncwarp();
    }
};

// Return the table of a block, or of the calling warp. The sums of all slots lie first, then values, then keys.
template <bool IS_BLOCK>
__device__ __forceinline__ Table table_in(char *memory, u32 table_bits) {
    u32 shift = 0;
    if (!IS_BLOCK)
        while ((1u << shift) < blockDim.x / WARP) shift++;
    Table table;
    table.bits = table_bits - shift;
    const u32 all = 1u << table_bits, first = IS_BLOCK ? 0 : warp_id() << table.bits;
    table.sums = reinterpret_cast<Slot *>(memory) + first;
    memory += sizeof(Slot) * all;
    table.values = reinterpret_cast<double *>(memory) + first;
    if (VALUED) memory += sizeof(double) * all;
    table.keys = reinterpret_cast<u32 *>(memory) + first;
    return table;
}

// An arc to a lower neighbour.
struct Arc {
    u32 target;
    double value;  // if VALUED
};

// One row, v, whose table is filled: its upper neighbours are looked at by warps.
template <bool IS_BLOCK>
struct RowVisit {
    const Arguments &given;
    const Table &table;
    Sum *edge_sums;  // of the warp: one for each lane's edge
    i64 v;

    __device__ __forceinline__ Arc fetch(i64 arc) const {
        Arc fetched;
        fetched.target = static_cast<u32>(given.targets[arc]);
        if (VALUED) fetched.value = given.values[arc];
        return fetched;
    }

    // Look a lower neighbour of u up: return what the triangle counts.
    __device__ __forceinline__ Sum thread_look_up(Arc arc, double edge) const {
        const u32 slot = table.slot_of(arc.target);
        if (slot == NO_SLOT) return 0;
#if VALUED
        const double product = edge * arc.value * table.values[slot];
        atomicAdd(&table.sums[slot], product);
        return product;
#else
        atomicAdd(&table.sums[slot], 1u);
        return 1;
#endif
    }

    // Return the number of lower neighbours of u that come before v, which is one of them.
    __device__ __forceinline__ u32 thread_prefix(i64 begin, i64 end) const {
        return static_cast<u32>(thread_lower_bound(given.targets, begin, end, v) - begin);
    }

    // Visit arcs [from, to) from v to upper neighbours; return the sum of what the lane's edges get.
    __device__ __forceinline__ Sum group_visit(i64 from, i64 to) const {
        const u32 lane = lane_id();
        const i64 first = from + (IS_BLOCK ? WARP * warp_id() : 0);
        const i64 apart = IS_BLOCK ? blockDim.x : WARP;
        Sum mine = 0;
        for (i64 base = first; base < to; base += apart) {
            const i64 arc = base + lane;
            i64 u = 0, begin = 0;
            u32 length = 0;
            double factor = 0;
            if (arc < to) {
                u = given.targets[arc];
                begin = given.offsets[u];
                length = thread_prefix(begin, given.splits[u]);
                if (VALUED) factor = given.values[arc];
            }
            const Sum found = warp_sum_fronts(
                begin, length, edge_sums,
                [&](u32 whose) { return VALUED ? __shfl_sync(FULL_WARP, factor, whose) : 0.0; },
                [&](i64 at) { return fetch(at); },
                [&](Arc lower, double edge) { return thread_look_up(lower, edge); });
            if (found != 0) atomicAdd(&given.sums[u], found);
            mine += found;
        }
        return mine;
    }
};

// Add the triangles whose middle corner is v, and whose arcs to upper neighbours are [from, to); return the lane's
// part of their sum.
template <bool IS_BLOCK>
__device__ __forceinline__ Sum group_take_row(const Arguments &given, Table &table, Sum *edge_sums,
                                              i64 v, i64 from, i64 to) {
    const Group<IS_BLOCK> group;
    const RowVisit<IS_BLOCK> visit{given, table, edge_sums, v};
    const i64 lower_end = given.splits[v];
    Sum mine = 0;
    for (i64 begin = given.offsets[v]; begin < lower_end; begin += table.capacity()) {
        const i64 end = min(begin + table.capacity(), lower_end);
        table.thread_size(static_cast<u32>(end - begin));
        for (i64 arc = begin + group.thread(); arc < end; arc += group.threads())
            table.thread_insert(static_cast<u32>(given.targets[arc]),
                                VALUED ? given.values[arc] : 0);
        group.wait();
        mine += visit.group_visit(from, to);
        group.wait();
        for (u32 slot = group.thread(); slot < table.slots(); slot += group.threads()) {
            const Slot sum = table.sums[slot];
            if (sum != 0) {
                atomicAdd(&given.sums[table.keys[slot]], static_cast<Sum>(sum));
                table.sums[slot] = 0;
            }
            table.keys[slot] = NO_KEY;
        }
        group.wait();
    }
    const Sum sum = warp_sum(mine);
    if (lane_id() == 0 && sum != 0) atomicAdd(&given.sums[v], sum);
    return mine;
}

struct Tally {
    u64 rows = 0;   // of the block's or the warp's first lane
    u64 found = 0;  // of the lane

    __device__ __forceinline__ void add(Sum sum) {
        if (!VALUED) found += static_cast<u64>(sum);
    }
};

// Take pieces of the arcs of long rows, by the block.
__device__ __forceinline__ void team_take_pieces(const Arguments &given, Table table,
                                                 Sum *edge_sums, StepBlock &block, Tally &tally) {
    const u64 last = min(block.state[NEXT] + given.pieces_a_step, given.pieces);
    const i64 arcs = given.offsets[given.long_rows];
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0)
            block.own = block.state[NEXT] + atomicAdd(&given.stage.control->cursors[0], 1ull);
        __syncthreads();
        if (block.own >= last) break;
        const i64 piece = static_cast<i64>(block.own * given.shares + given.share);
        const i64 begin = piece * given.piece_arcs, end = min(begin + given.piece_arcs, arcs);
        for (i64 v = thread_row_of(given.offsets, 0, given.long_rows, begin);
             v < given.long_rows && given.offsets[v] < end; v++) {
            if (threadIdx.x == 0) tally.rows += given.offsets[v + 1] <= end;
            const i64 from = max(given.splits[v], begin), to = min(given.offsets[v + 1], end);
            if (from < to) tally.add(group_take_row<true>(given, table, edge_sums, v, from, to));
        }
    }
}

// Take batches of other rows, by each warp.
__device__ __forceinline__ void warp_take_batches(const Arguments &given, Table table,
                                                  Sum *edge_sums, StepBlock &block, Tally &tally) {
    const u32 lane = lane_id();
    const u64 last = min(block.state[NEXT] + given.batches_a_step, given.batches);
    for (;;) {
        u64 batch = 0;
        if (lane == 0)
            batch = block.state[NEXT] + atomicAdd(&given.stage.control->cursors[0], 1ull);
        batch = __shfl_sync(FULL_WARP, batch, 0);
        if (batch >= last) break;
        const i64 first =
            given.long_rows + static_cast<i64>((batch * given.shares + given.share) * BATCH_ROWS);
        const i64 row = first + lane;
        i64 begin = 0, from = 0, to = 0;
        if (row < given.rows) {
            begin = given.offsets[row];
            from = given.splits[row];
            to = given.offsets[row + 1];
        }
        if (lane == 0) tally.rows += static_cast<u64>(min(i64{BATCH_ROWS}, given.rows - first));
        u32 waiting = __ballot_sync(FULL_WARP, begin < from && from < to);
        while (waiting) {
            const u32 whose = __ffs(static_cast<int>(waiting)) - 1;
            waiting &= waiting - 1;
            tally.add(group_take_row<false>(given, table, edge_sums, first + whose,
                                            __shfl_sync(FULL_WARP, from, whose),
                                            __shfl_sync(FULL_WARP, to, whose)));
        }
    }
}

__device__ __forceinline__ void block_take(const Arguments &given, StepBlock &block, u32 phase) {
    extern __shared__ char memory[];
    Sum *edge_sums = reinterpret_cast<Sum *>(memory) + WARP * warp_id();
    char *tables = memory + sizeof(Sum) * blockDim.x;
    const Table whole = table_in<true>(tables, given.table_bits);
    for (u32 slot = threadIdx.x; slot < 1u << given.table_bits; slot += blockDim.x) {
        whole.keys[slot] = NO_KEY;
        whole.sums[slot] = 0;
    }
    __syncthreads();
    Tally tally;
    if (phase == LONG_ROWS)
        team_take_pieces(given, whole, edge_sums, block, tally);
    else
        warp_take_batches(given, table_in<false>(tables, given.table_bits), edge_sums, block,
                          tally);
    warp_count(block, DONE, tally.rows);
    warp_count(block, FOUND, tally.found);
}

__device__ __forceinline__ void grid_triangles(const Arguments &given) {
    run_steps(
        given.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            if (phase == CLEAR) {
                for (i64 row = team.thread(); row < given.rows; row += team.threads())
                    given.sums[row] = 0;
            } else if (phase == ADD) {
                if (!given.received) return;
                for (i64 row = team.thread(); row < given.rows; row += team.threads())
                    given.sums[row] += given.received[row];
            } else {
                block_take(given, block, phase);
            }
        },
        [&](u32 phase, const Sums &totals, u64 *state) -> u32 {
            state[ALL_FOUND] += totals.counts[FOUND];
            if (phase == ADD) return STOP;
            if (phase == CLEAR) return given.pieces > 0 ? LONG_ROWS : SHORT_ROWS;
            const bool is_long = phase == LONG_ROWS;
            state[NEXT] += is_long ? given.pieces_a_step : given.batches_a_step;
            if (state[NEXT] < (is_long ? given.pieces : given.batches)) return phase;
            state[NEXT] = 0;
            return is_long ? SHORT_ROWS : STOP;
        });
}
