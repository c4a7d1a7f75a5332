// PageRank by pull, an iteration per superstep. CPU counterpart: cpu.py, which explains the method.
//
// Encoding: a vertex is represented by the value that each of its out-arcs carries, `carried = rank /
// max(1, divisor)`. The divisor is the out-degree, or 1 if arcs have `contributions` (their weights over
// the outflow of their source). Divisor 0: the vertex is dangling, and its rank goes to all vertices. Every
// device has two full-length arrays of carried values; an iteration reads one and writes the other, so
// values are never written while they are read, and any cache may hold them. An owner stores its results
// locally and on the devices with an arc from the vertex (`subscribers`), or on all. Where devices have
// room for the vertices that they read only (ONE_HOP), nothing else changes.
//
// Vertices without arcs cost nothing: their rank is lift * teleport, so the deciding thread adds them by
// itself. Sums over vertices (change, dangling ranks, all ranks) are added per thread in an order that the
// launch fixes, and over warps in fixed point, in units of 2^-61: the same devices compute the same bits
// every time. Row sums have the precision of ranks, or that of fixed point, by tiles.
//
// Acceleration, of undirected graphs, is that of the CPU, with the same decisions from the same sums. The
// iterate before the last, from which it extrapolates, is in the array that is being written, at the
// owners. The result is the iterate whose change was measured, the last but one. Intermediate ranks may be
// negative, and changes have exceeded 100 (a binary tree, from its root, damping 0.9999): sums are in two
// words, in units of 2^-16 and of 2^-61.
//
// Schedule: rows of each length class are processed by one kind of team, from a block (the longest, first)
// to a thread; every thread has 4 to 16 independent loads of each kind in flight.
//
// Lower bound, float32, a row per vertex with arcs: 4 bytes of target an arc, 8 of offset and 8 of ranks a
// row, over memory bandwidth; and a random read per arc, which hits caches if rows are sorted by degree
// (most read sources at the lowest positions). rmat24_16: 2.2 GB at 4.0 TB/s take 0.56 ms, 521 M reads at
// the 138 G/s of the second-level cache 3.8 ms if the first level had none of them. road4900: 0.6 GB, 0.15
// ms.
#pragma once

#include "supersteps/halos.cuh"
#include "supersteps/tiled_sums.cuh"

// Macros of the generated source. ACCELERATED: iterations may extrapolate. ONE_HOP: whether devices have
// room for their own vertices and those that they read only, and rows name the slots of these
// (supersteps/halos.cuh); else for all positions, which rows name. WEIGHTED: arcs have contributions.
// TILE_WORDS: words of sums if rows are summed up by tiles (supersteps/tiled_sums.cuh), in `units`; 0: row by
// row.

// Words of control->state; all but the first are bits of doubles. Of the ranks in the array that is read:
// their TOTAL; their LEVEL, the part of its teleport that an isolated vertex has, and LEVEL_BEFORE that;
// RATIO of RESIDUAL to the one before. An iteration goes BEYOND a plain one by omega - 1.
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

// Counts: vertices updated, and sums over all vertices. If accelerated, the coarse part of a sum is
// TO_COARSE further.
enum RankCount : u32 { UPDATED, CHANGE, DANGLING, RANKS, SUMS_END };
constexpr u32 TO_COARSE = SUMS_END - CHANGE;
static_assert(SUMS_END + TO_COARSE <= COUNTS);

constexpr u32 LOADS = 4;  // of a thread in flight
constexpr u32 GROUP = 8;  // lanes that share a row of medium length

struct Arguments {
    Stage stage;
    Rows<Id> rows;           // of in-arcs
    const Weight *weights;   // (arcs)
    Rank *contributions;     // (arcs) what each in-arc gets of its source's rank
    const double *outflows;  // (all positions, or slots) weights of out-arcs, in sum
    const i64 *degrees;      // (owned) out-degrees; null: as long as the row
    const double *teleport;  // (owned) of sum 1 over all; null: the same everywhere
    const double *start;     // (owned) ranks to begin with, of sum 1 over all; null: uniform
    const u32 *subscribers;  // a bitmap of the own vertices for each device (supersteps/halos.cuh)
    const Id *slots;         // if ONE_HOP: where they are there, by words (supersteps/halos.cuh)
    Rank *carried[2][MAX_DEVICES];
    TiledArcs tiled;  // if TILE_WORDS; with contributions as factors
    double units;     // in 1, if TILE_WORDS
    double uniform;   // 1 / number of vertices
    double damping;
    double tolerance;
    u64 most_iterations;
};

// Carried values of an own vertex: the last, and, if accelerated, the one before.
struct Past {
    Rank last = 0;
    Rank before = 0;
};

// A thread's state in a pass over the own vertices.
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

    // Divisor of a rank; 0 if the vertex is dangling.
    __device__ __forceinline__ i64 divisor(i64 row, i64 length) const {
        if (WEIGHTED) return arguments.outflows[first + row] > 0;
        return arguments.degrees ? arguments.degrees[row] : length;
    }

    __device__ __forceinline__ i64 divisor(i64 row) const {
        const i64 *offsets = arguments.rows.offsets;
        return divisor(row, offsets[row + 1] - offsets[row]);
    }

    // The same in the type of ranks.
    __device__ __forceinline__ Rank rank_divisor(i64 row, i64 length) const {
        return static_cast<Rank>(divisor(row, length));
    }

    // Load carried values; the one before, which the update overwrites, only for rows that are `mine`.
    __device__ __forceinline__ Past past(i64 row, bool mine = true) const {
        Past found;
        found.last = old[first + row];
        if (ACCELERATED && beyond != 0 && mine)
            found.before = arguments.carried[next][arguments.stage.device][first + row];
        return found;
    }

    // Store a vertex's carried value wherever it is read.
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

    // Update a vertex from the sum of its row; its carried values and divisor were loaded earlier.
    __device__ __forceinline__ void thread_update(i64 row, Rank divisor, Past past, Rank incoming) {
        const Rank scale = divisor > 0 ? divisor : Rank(1);
        Rank value = static_cast<Rank>(lift * teleport(row)) +
                     static_cast<Rank>(arguments.damping) * incoming;
        const Rank change = value - past.last * scale;
        sums[CHANGE] += static_cast<double>(change < 0 ? -change : change);
        Rank carried = value / scale;
        if (ACCELERATED && beyond != 0) {
            carried += beyond * (carried - past.before);
            value = carried * scale;
        }
        if (!ACCELERATED || value > 0) sums[RANKS] += static_cast<double>(value);
        if (divisor == 0) sums[DANGLING] += static_cast<double>(value);
        thread_store(next, row, carried);
    }

    // Sum every `lanes`-th arc of a long row.
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
                        values[load] *= arguments.contributions[begin + at + load * lanes];
            }
            sum += (values[0] + values[1]) + (values[2] + values[3]);
        }
        return sum;
    }

    // Sum up to LOADS arcs, `apart` from each other, of each of several short rows. All loads of a kind are
    // issued before any of the next kind. A load beyond the end of a row is not skipped but redirected to
    // where it costs nothing: branches, or more predicates than there are registers for, would serialize
    // loads. So there must be an arc at `first` and at each `begin` behind it.
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
                    values[row][load] *= arguments.contributions[first + arc(row, load)];
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

// A row that a thread updates if `mine`; else a row without arcs.
struct OwnRow {
    i64 row;
    i64 begin = 0;
    u32 length = 0;
    Rank divisor = 0;
    Past past;
    bool mine;

    __device__ __forceinline__ OwnRow(const RankPass &pass, i64 row, bool mine)
        : row(row), mine(mine) {
        const i64 *offsets = pass.arguments.rows.offsets;
        if (!mine) return;
        begin = offsets[row];
        length = static_cast<u32>(offsets[row + 1] - begin);
        divisor = pass.rank_divisor(row, length);
        past = pass.past(row);
        if (length == 0) begin = 0;  // there may be no arc at its begin
    }
};

// Rows of a block each, the longest first; back and forth, so that no block has the longest every time.
__device__ __forceinline__ void team_pull_by_block(RankPass &pass, const Team &team, i64 begin,
                                                   i64 end) {
    __shared__ double partial[2 * WARP];  // of warps; for two rows alternately: one barrier per row
    const i64 *offsets = pass.arguments.rows.offsets;
    const u32 warps = blockDim.x / WARP;
    for (u32 round = 0;; round++) {
        const u32 place = round & 1 ? team.blocks - 1 - team.block : team.block;
        const i64 row = begin + static_cast<i64>(round) * team.blocks + place;
        if (row >= end) break;
        const i64 from = offsets[row], length = offsets[row + 1] - from;
        double sum = lanes_sum(pass.thread_sum(from, threadIdx.x, blockDim.x, length), WARP);
        double *turn = partial + (round & 1) * WARP;
        if (lane_id() == 0) turn[warp_id()] = sum;
        __syncthreads();
        if (warp_id() == 0) {
            sum = lanes_sum(lane_id() < warps ? turn[lane_id()] : 0.0, WARP);
            if (lane_id() == 0)
                pass.thread_update(row, pass.rank_divisor(row, length), pass.past(row),
                                   static_cast<Rank>(sum));
        }
    }
}

// ROWS for each warp, which sums them in pairs and updates them together.
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
                const Rank found = lanes_sum(sums[one], WARP);
                if (lane == pair + one) sum = found;
            }
        }
        if (own.mine) pass.thread_update(own.row, own.divisor, own.past, sum);
    }
}

// A row for GROUP lanes, at most LOADS arcs for each; a warp updates a row per lane.
template <u32 AT_ONCE>
__device__ __forceinline__ void team_pull_by_group(RankPass &pass, const Team &team, i64 begin,
                                                   i64 end) {
    constexpr u32 GROUPS = WARP / GROUP;
    const u32 lane = lane_id();
    const i64 apart = static_cast<i64>(WARP * team.warps());
    // Warps that are last in other classes are first here.
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
                const Rank its = lanes_sum(sums[one], GROUP);
                const Rank found = __shfl_sync(FULL_WARP, its, lane % GROUPS * GROUP);
                if (lane / GROUPS == turn + one) sum = found;
            }
        }
        if (own.mine) pass.thread_update(own.row, own.divisor, own.past, sum);
    }
}

// ROWS for each thread, at most LOADS arcs each. Arcs are numbered from the first of the block's tile in 32
// bits, as registers limit the number of loads in flight.
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
        Rank divisor[ROWS], sums[ROWS] = {};
        Past past[ROWS];
#pragma unroll
        for (u32 one = 0; one < ROWS; one++) {
            // Rows beyond the end are read as the last one, and not updated.
            const i64 row = some + one * blockDim.x + threadIdx.x;
            const i64 there = row < end ? row : end - 1;
            from[one] = static_cast<u32>(offsets[there] - first);
            length[one] = static_cast<u32>(offsets[there + 1] - first) - from[one];
            past[one] = pass.past(there, row < end);
            divisor[one] = pass.rank_divisor(there, length[one]);
            if (length[one] == 0) from[one] = 0;
        }
        if (has_arcs) pass.thread_sum_rows<ROWS>(first, from, length, 0, 1, sums);
#pragma unroll
        for (u32 one = 0; one < ROWS; one++) {
            const i64 row = some + one * blockDim.x + threadIdx.x;
            if (row < end) pass.thread_update(row, divisor[one], past[one], sums[one]);
        }
    }
}

enum RankPhase : u32 { RANK_CONTRIBUTIONS, RANK_START, RANK_ITERATE, RANK_FINISH };

constexpr double FIXED_ONE = 2305843009213693952.0;  // 2^61: sums are below 8
constexpr double COARSE_ONE = 65536.0;               // 2^16: 2^18 warps have less than 8 left

// Add the sums of a pass to the block's counts. All lanes take part.
__device__ __forceinline__ void warp_add_sums(const RankPass &pass, StepBlock &block) {
    for (u32 which = CHANGE; which < SUMS_END; which++) {
        double sum = lanes_sum(pass.sums[which], WARP);
        if (ACCELERATED) {
            const double coarse = floor(sum * COARSE_ONE);
            sum -= coarse / COARSE_ONE;
            const u64 count = static_cast<u64>(static_cast<i64>(coarse));  // wraps if negative
            warp_count(block, which + TO_COARSE, lane_id() == 0 ? count : 0);
        }
        warp_count(block, which, lane_id() == 0 ? static_cast<u64>(sum * FIXED_ONE + 0.5) : 0);
    }
}

// Compute the contribution of each in-arc.
__device__ __forceinline__ void team_make_contributions(const Arguments &arguments,
                                                        const Team &team) {
    const i64 arcs = arguments.rows.offsets[arguments.stage.owned];
    for (i64 arc = team.thread(); arc < arcs; arc += team.threads()) {
        const double flow = arguments.outflows[arguments.rows.targets[arc]];
        const double weight = static_cast<double>(arguments.weights[arc]);
        arguments.contributions[arc] = static_cast<Rank>(flow == 0 ? 0.0 : weight / flow);
    }
}

// Compute initial carried values.
__device__ __forceinline__ void team_start_ranks(RankPass &pass, const Team &team) {
    const i64 *classes = pass.arguments.rows.classes;
    for (i64 row = team.thread(); row < classes[CLASS_NONE]; row += team.threads()) {
        const double value = pass.start(row);
        const i64 count = pass.divisor(row);
        if (count == 0) pass.sums[DANGLING] += value;
        pass.thread_store(0, row, static_cast<Rank>(value / (count > 1 ? count : 1)));
    }
    // RANKS takes the share of teleport of isolated vertices.
    const i64 isolated = classes[CLASS_NONE] + team.thread();
    for (i64 row = isolated; row < classes[CLASS_NONE + 1]; row += team.threads()) {
        pass.sums[DANGLING] += pass.start(row);
        pass.sums[RANKS] += pass.teleport(row);
    }
}

// All rows, by tiles. Any block may take a tile, so sums over vertices are added after each: those of a
// thread in the order of its rows, which the size of blocks fixes.
template <u32 WORDS>
__device__ __forceinline__ void team_pull_by_tiles(RankPass &pass, const Team &team,
                                                   StepBlock &block) {
    const Arguments &arguments = pass.arguments;
    const auto update = [&](i64 row, double sum) {
        const double incoming = sum / arguments.units;
        pass.thread_update(row, static_cast<Rank>(pass.divisor(row)), pass.past(row),
                           static_cast<Rank>(incoming));
    };
    const auto end = [&](u64) {
        warp_add_sums(pass, block);
        for (u32 which = 0; which < SUMS_END; which++) pass.sums[which] = 0;
    };
    team_sum_tiles<WORDS, WEIGHTED>(arguments.tiled, pass.old, static_cast<Rank>(arguments.units),
                                    &team.control->cursors[0], update, end);
}

// All rows, each class of lengths by one kind of team.
__device__ __forceinline__ void team_pull_by_rows(RankPass &pass, const Team &team) {
    const i64 *classes = pass.arguments.rows.classes;
    constexpr u32 AT_ONCE = 16 / sizeof(Rank);  // rows: more take more registers than there are
    team_pull_by_block(pass, team, classes[CLASS_GRID], classes[CLASS_BLOCK]);
    team_pull_by_warp<4>(pass, team, classes[CLASS_BLOCK], classes[CLASS_WARP]);
    team_pull_by_warp<8>(pass, team, classes[CLASS_WARP], classes[CLASS_GROUP]);
    team_pull_by_group<AT_ONCE>(pass, team, classes[CLASS_GROUP], classes[CLASS_THREAD]);
    team_pull_by_thread<AT_ONCE>(pass, team, classes[CLASS_THREAD], classes[CLASS_NONE]);
}

__device__ __forceinline__ void team_iterate_ranks(RankPass &pass, const Team &team,
                                                   StepBlock &block) {
    const Arguments &arguments = pass.arguments;
    const i64 *classes = arguments.rows.classes;
    if constexpr (TILE_WORDS > 0) {
        team_pull_by_tiles<TILE_WORDS>(pass, team, block);
    } else {
        team_pull_by_rows(pass, team);
    }
    if (pass.state[ITERATIONS] == 0) {
        // Only in the first iteration do isolated vertices change otherwise than the lift does.
        const i64 isolated = classes[CLASS_NONE] + team.thread();
        for (i64 row = isolated; row < classes[CLASS_NONE + 1]; row += team.threads()) {
            const double change = pass.lift * pass.teleport(row) - pass.start(row);
            pass.sums[CHANGE] += change < 0 ? -change : change;
        }
    }
    warp_count(block, UPDATED, team.thread() == 0 ? static_cast<u64>(arguments.stage.owned) : 0);
}

// Write ranks, scaled to sum 1 (roundings of many iterations add up), into the array that was not written
// last.
__device__ __forceinline__ void team_finish_ranks(const RankPass &pass, const Team &team) {
    const Arguments &arguments = pass.arguments;
    const i64 *classes = arguments.rows.classes;
    const double scale = 1.0 / amount_of(pass.state[TOTAL]);
    const double level = amount_of(pass.state[LEVEL]);
    Rank *ranks = arguments.carried[pass.next][arguments.stage.device] + pass.first;
    const Rank *found = ACCELERATED && pass.beyond != 0 ? ranks : pass.old + pass.first;
    for (i64 row = team.thread(); row < classes[CLASS_NONE + 1]; row += team.threads()) {
        double value = level * pass.teleport(row);
        if (row < classes[CLASS_NONE]) {
            const i64 count = pass.divisor(row);
            value = static_cast<double>(found[row]) * (count > 1 ? count : 1);
        }
        // Accelerated iterates oscillate about their limit, which may be close to 0.
        if (ACCELERATED && value < 0) value = 0;
        ranks[row] = static_cast<Rank>(value * scale);
    }
}

__device__ __forceinline__ double sum_of(const Sums &totals, u32 which) {
    const double fine = static_cast<double>(totals.counts[which]) / FIXED_ONE;
    if (!ACCELERATED) return fine;
    return static_cast<double>(static_cast<i64>(totals.counts[which + TO_COARSE])) / COARSE_ONE +
           fine;
}

// Number of iterations that reduce a change to the tolerance, each by a ratio.
__device__ __forceinline__ double iteration_count(double ratio, double change, double tolerance) {
    return (log(tolerance) - log(change)) / log(ratio);
}

// Extrapolation of the next iteration (see cpu.py); `ratio` of the last change to the one before.
__device__ __forceinline__ double next_beyond(const Arguments &arguments,
                                              double accelerated_tolerance, const u64 *state,
                                              double ratio) {
    const double beyond = amount_of(state[BEYOND]), radius = arguments.damping;
    if (beyond == 0) {
        if (state[ITERATIONS] <= 2 || !(ratio >= amount_of(state[RATIO]))) return 0;
        const double change = amount_of(state[RESIDUAL]);
        const double shrinks_to = radius / (1.0 + sqrt(1.0 - radius * radius));
        const double plain = iteration_count(ratio, change, arguments.tolerance);
        const double accelerated = iteration_count(shrinks_to, 2.0 * change, accelerated_tolerance);
        if (!(accelerated < plain)) return 0;
    } else if (amount_of(state[RESIDUAL]) < arguments.tolerance && ratio >= 1.0) {
        return 0;
    }
    const double part = beyond == 0 ? 0.5 : 0.25;
    return 1.0 / (1.0 - part * radius * radius * (1.0 + beyond)) - 1.0;
}

__device__ __forceinline__ u32 thread_decide_ranks(const Arguments &arguments, u32 phase,
                                                   const Sums &totals, u64 *state) {
    if (phase == RANK_CONTRIBUTIONS) return RANK_START;
    if (phase == RANK_FINISH) return STOP;
    double dangling = sum_of(totals, DANGLING), ranks = sum_of(totals, RANKS);
    const double restart = 1.0 - arguments.damping;
    if (phase == RANK_START) {
        state[ISOLATED] = bits_of_amount(ranks);
        state[LIFT] = bits_of_amount(restart + arguments.damping * dangling);
        return RANK_ITERATE;
    }
    const double isolated = amount_of(state[ISOLATED]), lift = amount_of(state[LIFT]);
    double residual = sum_of(totals, CHANGE), level = lift;
    if (state[ITERATIONS] > 0) {
        const double change = lift - amount_of(state[LEVEL]);
        residual += isolated * (change < 0 ? -change : change);
    }
    const double ratio = residual / amount_of(state[RESIDUAL]);
    state[ITERATIONS] += 1;
    state[RESIDUAL] = bits_of_amount(residual);
    const double beyond = ACCELERATED ? amount_of(state[BEYOND]) : 0.0;
    const double accelerated_tolerance =
        arguments.damping / (1.0 + arguments.damping) * arguments.tolerance;
    const double enough = beyond == 0 ? arguments.tolerance : accelerated_tolerance;
    const bool is_last = residual < enough || state[ITERATIONS] == arguments.most_iterations;
    if (beyond != 0) {
        if (is_last) return RANK_FINISH;
        level += beyond * (level - amount_of(state[LEVEL_BEFORE]));
    }
    dangling += level * isolated;
    ranks += (level > 0 ? level : 0.0) * isolated;
    state[TOTAL] = bits_of_amount(ranks);
    state[LEVEL_BEFORE] = state[LEVEL];
    state[LEVEL] = bits_of_amount(level);
    if (is_last) return RANK_FINISH;
    if (ACCELERATED) {
        state[BEYOND] = bits_of_amount(next_beyond(arguments, accelerated_tolerance, state, ratio));
        state[RATIO] = bits_of_amount(ratio);
    }
    state[LIFT] = bits_of_amount(restart + arguments.damping * dangling);
    return RANK_ITERATE;
}

__device__ __forceinline__ void grid_pagerank(const Arguments &arguments) {
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            RankPass pass(arguments, block.state);
            if (phase == RANK_CONTRIBUTIONS) {
                if constexpr (WEIGHTED) {
                    team_make_contributions(arguments, team);
                }
                return;
            }
            if (phase == RANK_START) team_start_ranks(pass, team);
            if (phase == RANK_ITERATE) team_iterate_ranks(pass, team, block);
            if (phase == RANK_FINISH) team_finish_ranks(pass, team);
            warp_add_sums(pass, block);
        },
        [&](u32 phase, const Sums &totals, u64 *state) {
            return thread_decide_ranks(arguments, phase, totals, state);
        });
}
