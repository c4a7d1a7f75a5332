// A search of Brandes' algorithm: its memory, its counters, the kernel's arguments, and the visits of rows.
//
// Everything is pulled: a vertex sums, over its row, the values of the neighbours in a *set*, a bitmap of
// one level, which caches hold where they would not hold the levels or values of all vertices. The order of
// a sum follows from the row alone, so results have the same bits whatever ran when, and for every way to
// process a level.
//
// The value of a vertex is its number of shortest paths, later its coefficient. The set of a level is in
// slot level % SETS: a superstep reads one neighbouring level, writes up to two, and clears a fourth.
//
// A search belongs to all blocks of all devices, or to one block. Its arrays are in one piece of each
// device's memory, at the same offsets (SearchLayout). Owners write sets into all copies, and values into
// those of the devices that read them, or into all; depths, lists and centralities are local.
#pragma once

#include "supersteps/halos.cuh"
#include "supersteps/step.cuh"

constexpr u32 SETS = 4;
constexpr u32 UNROLL = 4;
constexpr u32 GROUP = 8;
// Largest rows of a thread, of a group of lanes, and of a warp; longer ones are a block's.
constexpr i64 THREAD_ROW = 4;
constexpr i64 GROUP_ROW = GROUP * UNROLL;
constexpr i64 LONG_ROW = 4096;
constexpr u32 NO_DEPTH = 0xffffffffu;
constexpr double LARGEST_COUNT = 0x1p900;

// Sums over blocks and devices. The first is a run's progress.
constexpr u32 BEGUN = 0;       // searches begun
constexpr u32 FOUND_ARCS = 1;  // arcs of FOUND
constexpr u32 SENT = 2;        // vertices sent to other devices, some of them visited before
constexpr u32 REACHED = 3;     // vertices with counted paths
constexpr u32 ARCS = 4;        // arcs from REACHED
constexpr u32 FAILED = 5;      // numbers of paths that overflow or are 0
constexpr u32 FOUND = 6;       // own vertices of the next level
constexpr u32 ARCS_IN = 7;     // arcs to REACHED

// Words of a search's state, equal on all devices.
constexpr u32 SOURCE = 0;  // number of the source
constexpr u32 DEPTH = 1;
constexpr u32 LAST = 2;         // the deepest level
constexpr u32 DENSE_BEGIN = 3;  // first level that is in no list
constexpr u32 DENSE_END = 4;    // end of these levels
constexpr u32 SEEN = 5;         // arcs to vertices reached
constexpr u32 COUNT = 6;        // vertices reached
constexpr u32 ARRIVING = 7;     // vertices sent between devices in the previous superstep
constexpr u32 PHASE = 8;        // of the current superstep
constexpr u32 HAS_FAILED = 9;
constexpr u32 ALL_COUNT = 10;  // vertices reached, over all searches
constexpr u32 ALL_ARCS = 11;   // arcs from these
constexpr u32 ORIGIN = 12;     // position of the source

// Offsets in the memory of a search, in bytes.
struct SearchLayout {
    i64 visited;     // u32 [words]; of remote vertices, those known to be visited
    i64 sets;        // u32 [SETS][words]
    i64 values;      // double [positions]
    i64 depths;      // u32 [owned]
    i64 order;       // Id [owned]: own vertices found by this device, level by level
    i64 taken;       // Id [owned]: own vertices found by other devices, level by level
    i64 ends;        // Id [levels]: end of each level in `order`
    i64 taken_ends;  // Id [levels]: end of each level in `taken`
    i64 lights;      // u8 [levels]: whether one block processed the level
    i64 inbox;       // Id [devices][capacity]
    i64 counters;    // SearchCounters
    i64 centrality;  // double [owned], of a block's search
    i64 edges;       // double [own arcs]
    i64 nbytes;
};

struct SearchCounters {
    u64 tail;  // of `order`
    u64 taken_tail;
    // Vertices sent to each device before a level, and at it; by parity of depth, as other devices read
    // those of the last level while this one's are counted.
    u64 sent_before[2][MAX_DEVICES];
    u64 sent[2][MAX_DEVICES];
    u64 state[32];  // of a block's search
};

struct LongRows {
    const Id *rows;  // own indexes
    i64 count;
};

// Rows and operations of a pass.
struct Pass {
    const i64 *offsets;
    const Id *targets;
    LongRows long_rows;
    u32 what;
    bool is_dense;  // visits all own vertices, not a list
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;  // the same if the graph is undirected
    LongRows long_out;
    LongRows long_in;
    const Id *sources;       // positions of all sources of the query, in host memory
    double *centrality;      // by own index
    double *edges;           // by own arc, or null
    const u32 *subscribers;  // of own vertices' values (supersteps/halos.cuh); null: all devices
    char *searches[MAX_DEVICES];
    SearchLayout layout;
    i64 words;                // of a bitmap of all positions
    u64 all_sources;          // number of sources
    u64 first_source;         // these devices search from this one,
    u64 source_step;          // the one so much further, and so on,
    u64 source_count;         // from so many
    double scale;             // of the sums of all vertices, in the end
    double scale_of_sources;  // a further factor of those of sources
    u64 arcs;                 // of the graph
    u64 mean_degree;          // of vertices that have arcs
    u64 light_vertices;       // largest level that one block processes,
    u64 light_arcs;           // and its largest number of arcs
    u64 dense_factor;  // dense search pays if this times the frontier's arcs exceeds the unseen ones
    u32 block_searches;  // blocks with a search of their own; 0: one search of all
    u32 sources_a_round;
    u32 endpoints;
    u32 is_by_degree;  // in-rows are sorted by descending degree of the neighbours
    u32 is_directed;
    u32 has_long_rows;  // on some device

    // Position of one of the sources of these devices.
    __device__ __forceinline__ u64 source(u64 number) const {
        return static_cast<u64>(sources[first_source + number * source_step]);
    }
};

// Operations on a row.
constexpr u32 GATHERS = 16;  // sum the paths of the previous level
constexpr u32 EXPANDS = 32;  // claim the next level
constexpr u32 DEPENDS = 64;  // sum the coefficients of the next level

struct Search {
    const Arguments &given;
    Team team;
    StepBlock *block;
    char *home;
    double *centrality;
    double *edges;
    u64 *state;
    u32 devices;  // number of devices that search together
    u32 depth = 0;
    // Counts of this lane.
    u32 found = 0, reached = 0;
    u64 found_arcs = 0, arcs = 0, arcs_in = 0;

    template <class T>
    __device__ __forceinline__ T *place(i64 offset) const {
        return reinterpret_cast<T *>(home + offset);
    }
    __device__ __forceinline__ u32 *visited() const { return place<u32>(given.layout.visited); }
    __device__ __forceinline__ u32 *set(u32 level) const {
        return place<u32>(given.layout.sets) + (level % SETS) * given.words;
    }
    __device__ __forceinline__ double *values() const { return place<double>(given.layout.values); }
    __device__ __forceinline__ u32 *depths() const { return place<u32>(given.layout.depths); }
    __device__ __forceinline__ SearchCounters *counters() const {
        return place<SearchCounters>(given.layout.counters);
    }
    __device__ __forceinline__ i64 first() const { return given.stage.first(); }
    __device__ __forceinline__ u32 device() const { return given.stage.device; }

    // The counterpart in another device's memory.
    template <class T>
    __device__ __forceinline__ T *at(u32 other, T *mine) const {
        return reinterpret_cast<T *>(given.searches[other] +
                                     (reinterpret_cast<char *>(mine) - home));
    }
    template <class T>
    __device__ __forceinline__ void store_everywhere(T *mine, T value) const {
        *mine = value;
        for (u32 other = 0; other < devices; other++)
            if (other != device()) *at(other, mine) = value;
    }

    // Store the value of an own vertex here, and on the devices that read it.
    __device__ __forceinline__ void store_value(i64 own, double value) const {
        double *mine = values() + first() + own;
        *mine = value;
        for (u32 other = 0; other < devices; other++)
            if (other != device() &&
                (!given.subscribers || is_read_at(given.stage, given.subscribers, other, own)))
                *at(other, mine) = value;
    }

    // Own vertices of a level: first those in `order`, then those in `taken`.
    struct List {
        Id begin, middle, taken_begin, size;
    };
    // `is_closed`: the level's end in `taken` is recorded; else it is the end of `taken`.
    __device__ __forceinline__ List list(u32 level, bool is_closed) const {
        const Id *ends = place<Id>(given.layout.ends), *others = place<Id>(given.layout.taken_ends);
        Id begin = level ? ends[level - 1] : 0, middle = ends[level] - begin;
        List made{begin, middle, 0, middle};
        if (devices > 1 && level) {
            u64 end = is_closed ? others[level] : load_relaxed(&counters()->taken_tail);
            made.taken_begin = others[level - 1];
            made.size += static_cast<Id>(end) - made.taken_begin;
        }
        return made;
    }
    __device__ __forceinline__ Id listed(const List &list, Id i) const {
        return i < list.middle
                   ? place<Id>(given.layout.order)[list.begin + i]
                   : place<Id>(given.layout.taken)[list.taken_begin + (i - list.middle)];
    }

    __device__ __forceinline__ bool is_dense(u32 level) const {
        return level >= state[DENSE_BEGIN] && level < state[DENSE_END];
    }

    // Claim the heads of arcs for the next level: own ones are listed, others sent to their owners. All
    // lanes take part.
    __device__ __forceinline__ void warp_claim(const Id (&target)[UNROLL],
                                               const bool (&asks)[UNROLL]) {
        u32 word[UNROLL];
        bool fresh[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++)
            word[i] = asks[i] ? load_relaxed(visited() + (target[i] >> 5)) : FULL_WARP;
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            u32 bit = 1u << (target[i] & 31);
            fresh[i] = asks[i] && !(word[i] & bit);
            if (fresh[i]) fresh[i] = !(atomicOr(visited() + (target[i] >> 5), bit) & bit);
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            if (!__any_sync(FULL_WARP, fresh[i])) continue;
            i64 own = target[i] - first();
            bool is_mine = devices == 1 || (own >= 0 && own < given.stage.capacity);
            bool is_kept = fresh[i] && is_mine, sends = fresh[i] && !is_mine;
            warp_append(&counters()->tail, place<Id>(given.layout.order), is_kept,
                        static_cast<Id>(own));
            if (is_kept) {
                set_bits(set(depth + 1) + (target[i] >> 5), 1u << (target[i] & 31));
                depths()[own] = depth + 1;
                found += 1;
                found_arcs += given.out.offsets[own + 1] - given.out.offsets[own];
            }
            if (devices > 1 && __any_sync(FULL_WARP, sends)) warp_send(target[i], sends);
        }
    }

    __device__ __forceinline__ void warp_send(Id target, bool sends) {
        u32 owner = sends ? static_cast<u32>(target / given.stage.capacity) : device();
        for (u32 other = 0; other < devices; other++) {
            const bool is_its = sends && owner == other;
            if (!__any_sync(FULL_WARP, is_its)) continue;
            Id *inbox = at(other, place<Id>(given.layout.inbox)) + device() * given.stage.capacity;
            inbox += counters()->sent_before[depth & 1][other];
            warp_append(&counters()->sent[depth & 1][other], inbox, is_its, target);
        }
        if (sends) atomicAdd(&block->sums.counts[SENT], 1ull);
    }

    // Visit every `stride`-th of `left` arcs from `begin`, at most UNROLL; return the sum of the values of
    // neighbours in the set. `own` is the row's vertex. All lanes take part.
    __device__ __forceinline__ double warp_visit(const Pass &pass, i64 begin, i32 left, u32 stride,
                                                 Id own) {
        Id target[UNROLL];
        bool asks[UNROLL];
        double sum = 0;
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            asks[i] = static_cast<i32>(i * stride) < left;
            target[i] = asks[i] ? load_once(pass.targets + begin + i * stride) : Id(0);
        }
        if (pass.what & (GATHERS | DEPENDS)) {
            const u32 *wanted = set(pass.what & GATHERS ? depth - 1 : depth + 1);
            bool counts[UNROLL];
            double value[UNROLL];
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) counts[i] = asks[i] && has_bit(wanted, target[i]);
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) value[i] = counts[i] ? values()[target[i]] : 0;
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) sum += value[i];
            if (edges && (pass.what & DEPENDS)) {
                // The vertex of a lane without a row may be written by another warp.
                double paths = left > 0 ? values()[first() + own] : 0;
#pragma unroll
                for (u32 i = 0; i < UNROLL; i++)
                    if (counts[i]) edges[begin + i * stride] += paths * value[i];
            }
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) asks[i] = asks[i] && !counts[i];
        }
        if (pass.what & EXPANDS) warp_claim(target, asks);
        return sum;
    }

    // Visit the rows of the lanes' vertices, except long ones: a row per lane, then four rows at a time,
    // then one. Return each lane's sum. All lanes take part.
    __device__ __forceinline__ double warp_rows(const Pass &pass, Id own, bool is_there) {
        i64 begin = 0;
        i32 degree = 0;
        if (is_there) {
            begin = pass.offsets[own];
            degree = static_cast<i32>(min(pass.offsets[own + 1] - begin, LONG_ROW + 1));
        }
        u32 short_rows = __ballot_sync(FULL_WARP, degree > 0 && degree <= THREAD_ROW);
        u32 middle_rows = __ballot_sync(FULL_WARP, degree > THREAD_ROW && degree <= GROUP_ROW);
        u32 rows = __ballot_sync(FULL_WARP, degree > GROUP_ROW && degree <= LONG_ROW);
        double sum = 0, part = 0;
        i32 done = 0;  // of the first of `rows`
        while (short_rows | middle_rows | rows) {
            u32 lanes = short_rows ? 1 : middle_rows ? GROUP : WARP;  // that share a row
            u32 place = lane_id() % lanes, whose = lane_id();
            if (lanes > 1) {
                u32 mine = lanes == GROUP ? middle_rows : rows;
                for (u32 group = 0; group < lane_id() / lanes; group++) mine &= mine - 1;
                whose = mine ? __ffs(mine) - 1 : WARP;
            }
            i64 from = __shfl_sync(FULL_WARP, begin, whose % WARP);
            i32 length = __shfl_sync(FULL_WARP, degree, whose % WARP);
            Id vertex = __shfl_sync(FULL_WARP, own, whose % WARP);
            bool has_row = whose < WARP && (lanes > 1 || (short_rows >> whose & 1));
            i32 skipped = done + static_cast<i32>(place);
            i32 left = has_row ? length - skipped : 0;
            double found = warp_visit(pass, from + skipped, left, lanes, vertex);
            if (lanes == 1) {
                sum = found;
                short_rows = 0;
                continue;
            }
            part += found;
            if (lanes == WARP && done + static_cast<i32>(WARP * UNROLL) < length) {
                done += WARP * UNROLL;
                continue;
            }
            part = lanes_sum(part, lanes);
            u32 &left_over = lanes == GROUP ? middle_rows : rows;
            for (u32 group = 0; group < WARP / lanes; group++) {
                double theirs = __shfl_sync(FULL_WARP, part, group * lanes);
                if (left_over && lane_id() + 1 == static_cast<u32>(__ffs(left_over))) sum = theirs;
                left_over &= left_over - 1;
            }
            part = 0;
            done = 0;
        }
        return sum;
    }

    // Visit a row of any length with a block, or with the whole team, in tiles of a warp. Return the
    // block's sum to thread 0. All threads take part.
    __device__ __forceinline__ double block_row(const Pass &pass, Id own, u64 warp, u64 warps) {
        __shared__ double parts[WARP];
        i64 from = pass.offsets[own], end = pass.offsets[own + 1];
        double part = 0;
        for (i64 at = from + warp * WARP * UNROLL; at < end; at += warps * WARP * UNROLL)
            part += warp_visit(pass, at + lane_id(),
                               static_cast<i32>(min(end - at, i64(WARP * UNROLL)) - lane_id()),
                               WARP, own);
        part = lanes_sum(part);
        if (lane_id() == 0) parts[warp_id()] = part;
        __syncthreads();
        double sum = 0;
        if (threadIdx.x == 0)
            for (u32 i = 0; i < blockDim.x / WARP; i++) sum += parts[i];
        __syncthreads();
        return sum;
    }

    // Rank of a position in the order of sorted rows, by descending degree.
    __device__ __forceinline__ u64 degree_rank(i64 position) const {
        u64 capacity = static_cast<u64>(given.stage.capacity);
        u64 owner = static_cast<u64>(position) / capacity;
        return (static_cast<u64>(position) - owner * capacity) * given.stage.devices + owner;
    }

    // Count the arcs from a vertex by binary search in the sorted row.
    __device__ __forceinline__ double thread_count_arcs(i64 own, i64 from) const {
        i64 bounds[2];
        u64 wanted = degree_rank(from);
        for (u32 which = 0; which < 2; which++) {
            i64 low = given.in.offsets[own], high = given.in.offsets[own + 1];
            while (low < high) {
                i64 middle = low + (high - low) / 2;
                if (degree_rank(given.in.targets[middle]) < wanted + which)
                    low = middle + 1;
                else
                    high = middle;
            }
            bounds[which] = low;
        }
        return static_cast<double>(bounds[1] - bounds[0]);
    }

    // Store the number of paths of a vertex of this level.
    __device__ __forceinline__ void thread_reach(i64 own, double paths) {
        store_value(own, paths);
        if (!(paths > 0 && paths <= LARGEST_COUNT)) atomicAdd(&block->sums.counts[FAILED], 1ull);
        reached += 1;
        thread_count_row(own);
    }

    __device__ __forceinline__ void thread_count_row(i64 own) {
        u64 from_it = given.out.offsets[own + 1] - given.out.offsets[own];
        arcs += from_it;
        arcs_in += given.is_directed ? given.in.offsets[own + 1] - given.in.offsets[own] : from_it;
    }

    // Compute the dependency and coefficient of a vertex of this level from the sum of its successors'
    // coefficients.
    __device__ __forceinline__ void thread_depend(i64 own, double sum) {
        double paths = values()[first() + own];
        if (depth == 0) {
            if (given.endpoints) centrality[own] += static_cast<double>(state[COUNT] - 1);
            return;
        }
        centrality[own] += paths * sum + (given.endpoints ? 1.0 : 0.0);
        store_value(own, sum + 1.0 / paths);
    }

    // Add the lanes' counts to the block's. All lanes take part.
    __device__ __forceinline__ void warp_report() {
        warp_count(*block, FOUND, found);
        warp_count(*block, FOUND_ARCS, found_arcs);
        warp_count(*block, REACHED, reached);
        warp_count(*block, ARCS, arcs);
        warp_count(*block, ARCS_IN, arcs_in);
    }
};
