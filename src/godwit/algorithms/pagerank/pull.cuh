// One iteration of PageRank over the own vertices: rows of in-arcs summed up, ranks stored where they are read.
//
// Schedule: rows of a class of lengths have one kind of team, from a block (the longest, first) to a thread;
// every thread has several loads under way that do not wait for each other: 4 to 16 of each kind.
#pragma once

#include "supersteps/halos.cuh"

// What the source defines. ACCELERATED: whether iterations may go on beyond plain ones (algorithms/pagerank/pagerank.cuh).
// ONE_HOP: whether devices have room for their own vertices and those that they read only, and rows name the
// slots of these (supersteps/halos.cuh); else for all positions, which rows name.

// Words of control->state; all but the first are bits of doubles. Of the ranks in the array that is read: their
// TOTAL; their LEVEL, the part of its teleport that an isolated vertex has, and LEVEL_BEFORE that; RATIO of
// RESIDUAL to the one before. An iteration goes BEYOND a plain one by omega - 1.
enum RankState : u32 {
    ITERATIONS,
    LIFT,
    LEVEL,
    LEVEL_BEFORE,
    RESIDUAL,
    RATIO,
    TOTAL,
    ISOLATED,
    BEYOND
};

// What is counted: vertices updated, and what is added up over all vertices. Accelerated, so much behind a sum
// is its coarse part.
enum RankCount : u32 { UPDATED, CHANGE, DANGLING, RANKS, SUMS_END };
constexpr u32 TO_COARSE = SUMS_END - CHANGE;
static_assert(SUMS_END + TO_COARSE <= COUNTS);

constexpr u32 LOADS = 4;  // under way at once, of a thread
constexpr u32 GROUP = 8;  // lanes that share a row of medium length

template <class T>
struct WeightOf {
    using Type = T;
    static constexpr bool given = true;
};
template <>
struct WeightOf<void> {
    using Type = float;
    static constexpr bool given = false;
};
constexpr bool WEIGHTED = WeightOf<Weight>::given;  // whether arcs have parts of their own

struct Arguments {
    Stage stage;
    Rows<Id> rows;                                   // of in-arcs
    const typename WeightOf<Weight>::Type *weights;  // (arcs); null if the parts are there already
    Rank *parts;             // (arcs) what each in-arc gets of its source's rank
    const double *flows;     // (all positions, or slots) weights of out-arcs, in sum
    const i64 *degrees;      // (owned) out-degrees; null: as long as the row
    const double *teleport;  // (owned) of sum 1 over all; null: the same everywhere
    const double *start;     // (owned) likewise: ranks to begin with
    const u32 *subscribers;  // a bitmap of the own vertices for each device (supersteps/halos.cuh)
    const Id *slots;    // if ONE_HOP: where they are there, by words (supersteps/halos.cuh)
    Rank *carried[2][MAX_DEVICES];
    double uniform;  // 1 / number of vertices
    double damping;
    double tolerance;
    u64 most_iterations;
};

// What an own vertex carries, and, where iterations go beyond plain ones, carried before.
struct Past {
    Rank last = 0;
    Rank before = 0;
};

// A thread's part of a pass over the own vertices.
struct RankPass {
    const Arguments &arguments;
    const u64 *state;
    const Rank *old;  // of all positions, or slots
    u32 next;         // the one that is written
    i64 first;        // own position, or place
    double lift;
    Rank beyond;
    double sums[SUMS_END] = {};

    __device__ __forceinline__ RankPass(const Arguments &arguments, const u64 *state)
        : arguments(arguments),
          state(state),
          old(arguments.carried[state[ITERATIONS] & 1][arguments.stage.device]),
          next((state[ITERATIONS] & 1) ^ 1),
          first(ONE_HOP ? 0 : arguments.stage.first()),
          lift(amount_of(state[LIFT])),
          beyond(ACCELERATED ? static_cast<Rank>(amount_of(state[BEYOND])) : Rank(0)) {}

    __device__ __forceinline__ double teleport(i64 row) const {
        return arguments.teleport ? arguments.teleport[row] : arguments.uniform;
    }

    __device__ __forceinline__ double start(i64 row) const {
        return arguments.start ? arguments.start[row] : arguments.uniform;
    }

    // Into how many parts a rank is divided; 0 if the vertex is dangling.
    __device__ __forceinline__ i64 shares(i64 row, i64 length) const {
        if (WEIGHTED) return arguments.flows[first + row] > 0;
        return arguments.degrees ? arguments.degrees[row] : length;
    }

    __device__ __forceinline__ i64 shares(i64 row) const {
        const i64 *offsets = arguments.rows.offsets;
        return shares(row, offsets[row + 1] - offsets[row]);
    }

    // The same as a number of the ranks' type.
    __device__ __forceinline__ Rank rank_shares(i64 row, i64 length) const {
        return static_cast<Rank>(shares(row, length));
    }

    // Loaded by the thread that will update the row, if it is `mine`, as that is where it writes.
    __device__ __forceinline__ Past past(i64 row, bool mine = true) const {
        Past found;
        found.last = old[first + row];
        if (ACCELERATED && beyond != 0 && mine)
            found.before = arguments.carried[next][arguments.stage.device][first + row];
        return found;
    }

    // A vertex' rank is known: to wherever it is read.
    __device__ __forceinline__ void thread_store(u32 to, i64 row, Rank value) const {
        const Stage &stage = arguments.stage;
        arguments.carried[to][stage.device][first + row] = value;
        for (u32 peer = 0; peer < stage.devices; peer++) {
            if (peer == stage.device) continue;
            if (!is_read_at(stage, arguments.subscribers, peer, row)) continue;
            const i64 bit = peer * stage.capacity + row;
            const i64 place =
                ONE_HOP ? halo_slot(arguments.subscribers, arguments.slots, bit) : first + row;
            arguments.carried[to][peer][place] = value;
        }
    }

    // A row has been summed. What the vertex carried was loaded earlier, as its shares were.
    __device__ __forceinline__ void thread_update(i64 row, Rank shares, Past past, Rank incoming) {
        const Rank divisor = shares > 0 ? shares : Rank(1);
        Rank value = static_cast<Rank>(lift * teleport(row)) +
                     static_cast<Rank>(arguments.damping) * incoming;
        const Rank change = value - past.last * divisor;
        sums[CHANGE] += static_cast<double>(change < 0 ? -change : change);
        Rank carried = value / divisor;
        if (ACCELERATED && beyond != 0) {
            carried += beyond * (carried - past.before);
            value = carried * divisor;
        }
        if (!ACCELERATED || value > 0) sums[RANKS] += static_cast<double>(value);
        if (shares == 0) sums[DANGLING] += static_cast<double>(value);
        thread_store(next, row, carried);
    }

    // What comes along every `lanes`-th arc of a row, a long one.
    __device__ __forceinline__ Rank thread_sum(i64 begin, i64 lane, i64 lanes, i64 length) const {
        const Id *targets = arguments.rows.targets + begin;
        Rank sum = 0;
        for (i64 at = lane; at < length; at += LOADS * lanes) {
            Id sources[LOADS];
            Rank values[LOADS];
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                sources[load] =
                    at + load * lanes < length ? load_once(&targets[at + load * lanes]) : 0;
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                values[load] = at + load * lanes < length ? old[sources[load]] : Rank(0);
            if (WEIGHTED) {
#pragma unroll
                for (u32 load = 0; load < LOADS; load++)
                    if (at + load * lanes < length)
                        values[load] *= arguments.parts[begin + at + load * lanes];
            }
            sum += (values[0] + values[1]) + (values[2] + values[3]);
        }
        return sum;
    }

    // Add what comes along up to LOADS arcs, `apart` from each other, of each of several short rows. All
    // loads of a kind come before any of the next. None is left out where a row has no such arc, but made
    // where it costs nothing: branches, or more conditions than the few that threads can hold, would make
    // them wait. So there must be an arc at `first` and at each `begin` behind it.
    template <u32 ROWS, class Begin>
    __device__ __forceinline__ void thread_sum_rows(i64 first, const Begin (&begin)[ROWS],
                                                    const u32 (&length)[ROWS], u32 at, u32 apart,
                                                    Rank (&row_sums)[ROWS]) const {
        const Id *targets = arguments.rows.targets + first;
        Id sources[ROWS][LOADS];
        Rank values[ROWS][LOADS];
        const auto inside = [&](u32 row, u32 load) { return at + load * apart < length[row]; };
        const auto arc = [&](u32 row, u32 load) {
            return begin[row] + (inside(row, load) ? at + load * apart : 0);
        };
#pragma unroll
        for (u32 row = 0; row < ROWS; row++)
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                sources[row][load] = load_once(&targets[arc(row, load)]);
#pragma unroll
        for (u32 row = 0; row < ROWS; row++)
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                values[row][load] = old[inside(row, load) ? sources[row][load] : 0];
        if (WEIGHTED) {
#pragma unroll
            for (u32 row = 0; row < ROWS; row++)
#pragma unroll
                for (u32 load = 0; load < LOADS; load++)
                    values[row][load] *= arguments.parts[first + arc(row, load)];
        }
#pragma unroll
        for (u32 row = 0; row < ROWS; row++) {
            Rank *of = values[row];
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                if (!inside(row, load)) of[load] = 0;
            row_sums[row] += (of[0] + of[1]) + (of[2] + of[3]);
        }
    }
};
static_assert(LOADS == 4);

// A row that a thread will update, if `mine`; else one without arcs.
struct OwnRow {
    i64 row;
    i64 begin = 0;
    u32 length = 0;
    Rank shares = 0;
    Past past;
    bool mine;

    __device__ __forceinline__ OwnRow(const RankPass &pass, i64 row, bool mine)
        : row(row), mine(mine) {
        const i64 *offsets = pass.arguments.rows.offsets;
        if (!mine) return;
        begin = offsets[row];
        length = static_cast<u32>(offsets[row + 1] - begin);
        shares = pass.rank_shares(row, length);
        past = pass.past(row);
        if (length == 0) begin = 0;  // there may be no arc behind it
    }
};

// The sum over neighbouring lanes, the same in each of them.
template <class T>
__device__ __forceinline__ T lanes_add(T amount, u32 lanes) {
    for (u32 step = lanes / 2; step > 0; step /= 2)
        amount += __shfl_xor_sync(FULL_WARP, amount, step);
    return amount;
}

// Rows for a block each, the longest first; there and back, so that no block has the longest every time.
__device__ __forceinline__ void team_pull_by_block(RankPass &pass, const Team &team, i64 begin,
                                                   i64 end) {
    __shared__ double partial[2 * WARP];  // of the warps; for two rows by turns: one barrier a row
    const i64 *offsets = pass.arguments.rows.offsets;
    const u32 warps = blockDim.x / WARP;
    for (u32 round = 0;; round++) {
        const u32 place = round & 1 ? team.blocks - 1 - team.block : team.block;
        const i64 row = begin + static_cast<i64>(round) * team.blocks + place;
        if (row >= end) break;
        const i64 from = offsets[row], length = offsets[row + 1] - from;
        double sum = lanes_add(pass.thread_sum(from, threadIdx.x, blockDim.x, length), WARP);
        double *turn = partial + (round & 1) * WARP;
        if (lane_id() == 0) turn[warp_id()] = sum;
        __syncthreads();
        if (warp_id() == 0) {
            sum = lanes_add(lane_id() < warps ? turn[lane_id()] : 0.0, WARP);
            if (lane_id() == 0)
                pass.thread_update(row, pass.rank_shares(row, length), pass.past(row),
                                   static_cast<Rank>(sum));
        }
    }
}

// ROWS for each warp, which sums two by two and updates all of them at once.
template <u32 ROWS>
__device__ __forceinline__ void team_pull_by_warp(RankPass &pass, const Team &team, i64 begin,
                                                  i64 end) {
    static_assert(ROWS % 2 == 0);
    const u32 lane = lane_id();
    const i64 apart = static_cast<i64>(ROWS * team.warps());
    for (i64 some = begin + static_cast<i64>(ROWS * team.warp()); some < end; some += apart) {
        const OwnRow own(pass, some + lane, lane < ROWS && some + lane < end);
        Rank sum = 0;
        for (u32 pair = 0; pair < ROWS && some + pair < end; pair += 2) {
            i64 from[2];
            u32 length[2];
            Rank sums[2] = {};
            for (u32 one = 0; one < 2; one++) {
                from[one] = __shfl_sync(FULL_WARP, own.begin, pair + one);
                length[one] = __shfl_sync(FULL_WARP, own.length, pair + one);
            }
            const u32 longest = length[0] > length[1] ? length[0] : length[1];
            for (u32 at = 0; at < longest; at += LOADS * WARP)
                pass.thread_sum_rows<2>(0, from, length, at + lane, WARP, sums);
            for (u32 one = 0; one < 2; one++) {
                const Rank found = lanes_add(sums[one], WARP);
                if (lane == pair + one) sum = found;
            }
        }
        if (own.mine) pass.thread_update(own.row, own.shares, own.past, sum);
    }
}

// A row for GROUP lanes, at most LOADS arcs for each; a warp updates a row a lane.
template <u32 AT_ONCE>
__device__ __forceinline__ void team_pull_by_group(RankPass &pass, const Team &team, i64 begin,
                                                   i64 end) {
    constexpr u32 GROUPS = WARP / GROUP;
    const u32 lane = lane_id();
    const i64 apart = static_cast<i64>(WARP * team.warps());
    // The warps that come last in other classes come first here.
    const u64 place = team.warps() - 1 - team.warp();
    for (i64 some = begin + static_cast<i64>(WARP * place); some < end; some += apart) {
        const OwnRow own(pass, some + lane, some + lane < end);
        Rank sum = 0;
        for (u32 turn = 0; turn < GROUP; turn += AT_ONCE) {
            i64 from[AT_ONCE];
            u32 length[AT_ONCE];
            Rank sums[AT_ONCE] = {};
#pragma unroll
            for (u32 one = 0; one < AT_ONCE; one++) {
                const u32 which = (turn + one) * GROUPS + lane / GROUP;
                from[one] = __shfl_sync(FULL_WARP, own.begin, which);
                length[one] = __shfl_sync(FULL_WARP, own.length, which);
            }
            pass.thread_sum_rows<AT_ONCE>(0, from, length, lane % GROUP, GROUP, sums);
#pragma unroll
            for (u32 one = 0; one < AT_ONCE; one++) {
                const Rank its = lanes_add(sums[one], GROUP);
                const Rank found = __shfl_sync(FULL_WARP, its, lane % GROUPS * GROUP);
                if (lane / GROUPS == turn + one) sum = found;
            }
        }
        if (own.mine) pass.thread_update(own.row, own.shares, own.past, sum);
    }
}

// ROWS for each thread, at most LOADS arcs each. Arcs are counted from the first of those that the block takes
// at once, as registers are what limits how many loads are under way.
template <u32 ROWS>
__device__ __forceinline__ void team_pull_by_thread(RankPass &pass, const Team &team, i64 begin,
                                                    i64 end) {
    const i64 *offsets = pass.arguments.rows.offsets;
    const i64 tile = static_cast<i64>(ROWS) * blockDim.x;
    for (i64 some = begin + tile * team.block; some < end; some += tile * team.blocks) {
        const i64 first = offsets[some];
        const i64 last = some + tile < end ? some + tile : end;
        const bool has_arcs = offsets[last] > first;
        u32 from[ROWS], length[ROWS];
        Rank shares[ROWS], sums[ROWS] = {};
        Past past[ROWS];
#pragma unroll
        for (u32 one = 0; one < ROWS; one++) {
            // What is not there is read as the last, and not updated.
            const i64 row = some + one * blockDim.x + threadIdx.x;
            const i64 there = row < end ? row : end - 1;
            from[one] = static_cast<u32>(offsets[there] - first);
            length[one] = static_cast<u32>(offsets[there + 1] - first) - from[one];
            past[one] = pass.past(there, row < end);
            shares[one] = pass.rank_shares(there, length[one]);
            if (length[one] == 0) from[one] = 0;
        }
        if (has_arcs) pass.thread_sum_rows<ROWS>(first, from, length, 0, 1, sums);
#pragma unroll
        for (u32 one = 0; one < ROWS; one++) {
            const i64 row = some + one * blockDim.x + threadIdx.x;
            if (row < end) pass.thread_update(row, shares[one], past[one], sums[one]);
        }
    }
}
