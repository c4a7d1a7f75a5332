// PageRank by pull, an iteration a superstep: the device twin of algorithms/pagerank/cpu.py.
//
// Encoding: kept of a vertex is what each of its out-arcs carries, `carried = rank / max(1, shares)`; shares
// are the parts that a rank is divided into: the out-degree, or 1 where arcs have `parts` of their own (their
// weights over the flow out of their source). No shares: the vertex is dangling, and its rank goes to all.
// There are two full-length arrays of it on every device; an iteration reads one and writes the other, so
// what is read is never written meanwhile, and any cache may have it. An owner stores what it computes at
// itself and at those devices that have an arc from that vertex (`subscribers`, supersteps/halos.cuh), or at all.
// Where devices have room for the vertices that they read only (ONE_HOP), nothing else is different.
//
// Vertices without arcs cost nothing: their rank is lift * teleport, so the meeting adds them up by itself.
// Sums over vertices (change, dangling ranks, all ranks) are added per thread in an order that the launch
// fixes, and over warps as whole numbers of 2^-61: the same devices find the same bits every time.
// Row sums have the precision of the ranks.
//
// Acceleration, of undirected graphs, is the CPU's, decided by the same sums in the same way. The iterate before
// the last, from which it goes on, lies in the array that is being written, at owners, who alone ask. What
// comes out is the iterate whose change was measured, the one before the last. On the way there ranks may be
// negative, and changes have been seen beyond 100 (a binary tree, from its root, damping 0.9999): sums are in
// two words, as whole numbers of 2^-16 and of 2^-61.
//
// Floor, float32, a row a vertex that has arcs: 4 bytes of target an arc, 8 of offset and 8 of ranks a row,
// over the bandwidth of memory; and a random read an arc, which those sorted hot first (most wanted sources at
// the lowest positions) find in the caches. rmat24_16: 2.2 GB at 4.0 TB/s are 0.56 ms, 521 M reads at the
// 138 G/s of the second-level cache 3.8 ms if the first level had none of them. road4900: 0.6 GB, 0.15 ms.
#pragma once

#include "algorithms/pagerank/pull.cuh"

enum RankPhase : u32 { RANK_PREPARE, RANK_START, RANK_ITERATE, RANK_FINISH };

constexpr double FIXED_ONE = 2305843009213693952.0;  // 2^61: sums are below 8
constexpr double COARSE_ONE = 65536.0;               // 2^16: 2^18 warps have less than 8 left

// A pass is over: its sums, for the meeting. All lanes come.
__device__ __forceinline__ void warp_add_sums(const RankPass &pass, StepBlock &block) {
    for (u32 which = CHANGE; which < SUMS_END; which++) {
        double sum = lanes_add(pass.sums[which], WARP);
        if (ACCELERATED) {
            const double coarse = floor(sum * COARSE_ONE);
            sum -= coarse / COARSE_ONE;
            const u64 count = static_cast<u64>(static_cast<i64>(coarse));  // wraps if negative
            warp_count(block, which + TO_COARSE, lane_id() == 0 ? count : 0);
        }
        warp_count(block, which, lane_id() == 0 ? static_cast<u64>(sum * FIXED_ONE + 0.5) : 0);
    }
}

// What each in-arc gets of its source's rank.
__device__ __forceinline__ void team_make_parts(const Arguments &arguments, const Team &team) {
    const i64 arcs = arguments.rows.offsets[arguments.stage.owned];
    for (i64 arc = team.thread(); arc < arcs; arc += team.threads()) {
        const double flow = arguments.flows[arguments.rows.targets[arc]];
        const double weight = static_cast<double>(arguments.weights[arc]);
        arguments.parts[arc] = static_cast<Rank>(flow == 0 ? 0.0 : weight / flow);
    }
}

// What every vertex carries at first.
__device__ __forceinline__ void team_start_ranks(RankPass &pass, const Team &team) {
    const i64 *classes = pass.arguments.rows.classes;
    for (i64 row = team.thread(); row < classes[CLASS_NONE]; row += team.threads()) {
        const double value = pass.start(row);
        const i64 count = pass.shares(row);
        if (count == 0) pass.sums[DANGLING] += value;
        pass.thread_store(0, row, static_cast<Rank>(value / (count > 1 ? count : 1)));
    }
    // The place of their ranks takes what the isolated vertices get of what all get.
    const i64 isolated = classes[CLASS_NONE] + team.thread();
    for (i64 row = isolated; row < classes[CLASS_NONE + 1]; row += team.threads()) {
        pass.sums[DANGLING] += pass.start(row);
        pass.sums[RANKS] += pass.teleport(row);
    }
}

__device__ __forceinline__ void team_iterate_ranks(RankPass &pass, const Team &team,
                                                   StepBlock &block) {
    const Arguments &arguments = pass.arguments;
    const i64 *classes = arguments.rows.classes;
    constexpr u32 AT_ONCE = 16 / sizeof(Rank);  // rows: more take more registers than there are
    team_pull_by_block(pass, team, classes[CLASS_GRID], classes[CLASS_BLOCK]);
    team_pull_by_warp<4>(pass, team, classes[CLASS_BLOCK], classes[CLASS_WARP]);
    team_pull_by_warp<8>(pass, team, classes[CLASS_WARP], classes[CLASS_GROUP]);
    team_pull_by_group<AT_ONCE>(pass, team, classes[CLASS_GROUP], classes[CLASS_THREAD]);
    team_pull_by_thread<AT_ONCE>(pass, team, classes[CLASS_THREAD], classes[CLASS_NONE]);
    if (pass.state[ITERATIONS] == 0) {
        // Only now do isolated vertices change otherwise than the lift does.
        const i64 isolated = classes[CLASS_NONE] + team.thread();
        for (i64 row = isolated; row < classes[CLASS_NONE + 1]; row += team.threads()) {
            const double change = pass.lift * pass.teleport(row) - pass.start(row);
            pass.sums[CHANGE] += change < 0 ? -change : change;
        }
    }
    warp_count(block, UPDATED, team.thread() == 0 ? static_cast<u64>(arguments.stage.owned) : 0);
}

// Ranks of sum 1 (the roundings of many iterations add up), into the array that was not written last.
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
            const i64 count = pass.shares(row);
            value = static_cast<double>(found[row]) * (count > 1 ? count : 1);
        }
        // Accelerated iterates swing about their limit, which may be next to 0.
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

// How many iterations it takes to shrink a change to the tolerance, each to that ratio.
__device__ __forceinline__ double iteration_count(double ratio, double change, double tolerance) {
    return (log(tolerance) - log(change)) / log(ratio);
}

// How far the iteration to come goes on (cpu.py says why); `ratio` of the last change to the one before.
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
    if (phase == RANK_PREPARE) return RANK_START;
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
            if (phase == RANK_PREPARE) {
                if constexpr (WEIGHTED) {
                    team_make_parts(arguments, team);
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
