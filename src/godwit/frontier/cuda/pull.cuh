// Advance that pulls: candidates go over their in-arcs, looking for messages from the frontier, whose bitmap is
// up to date on every device (frontier/cuda/queue.cuh). What comes of it is merged as after pushing, word by word.
#pragma once

#include "frontier/cuda/advance.cuh"

// What comes along some of a row's in-arcs, from `begin` on in steps.
template <class Step>
__device__ __forceinline__ bool thread_pull(const Step &step, i64 target, i64 begin, i64 end,
                                            i64 stride, typename Step::Wide &total, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const u32 *frontier = arguments.frontiers[arguments.stage.device];
    bool has_come = false;
    for (i64 arc = begin; arc < end; arc += stride) {
        tally.arcs++;
        const i64 source = load_once(&arguments.in.targets[arc]);
        if (!(frontier[source / WARP] >> (source % WARP) & 1)) continue;
        if (!step.keep(source, target, arc, tally)) continue;
        const Wide sent = thread_fit<Wide>(step.message(source, target, arc, tally), tally);
        total = combined<Step::COMBINE>(total, sent);
        has_come = true;
    }
    return has_come;
}

// Note what has come to a vertex of one's own; whether it counts.
template <class Step>
__device__ __forceinline__ bool thread_accept(const Step &step, i64 target,
                                              typename Step::Wide total) {
    const Arguments &arguments = step.arguments;
    const u32 device = arguments.stage.device;
    if constexpr (Step::COMBINE != COMBINE_ADD) {
        const auto before = field_here<typename Step::Field>(arguments, Step::FIELD)[target];
        if (!is_better<Step::COMBINE>(total, before)) return false;
    }
    accumulators_of<typename Step::Wide>(arguments, Step::SLOT, device)[target] = total;
    return true;
}

// The lanes' totals, in a fixed order.
template <class Step>
__device__ __forceinline__ typename Step::Wide warp_combined(typename Step::Wide total) {
    for (u32 step = WARP / 2; step > 0; step /= 2)
        total = combined<Step::COMBINE>(total, __shfl_down_sync(FULL_WARP, total, step));
    return total;
}

// Rows of more arcs than a warp should have: a block each.
template <class Step>
__device__ __forceinline__ void team_pull_long_rows(const Step &step, const Team &team,
                                                    Tally &tally) {
    using Wide = typename Step::Wide;
    __shared__ u64 totals[WARP];
    __shared__ u32 came[WARP];
    const Arguments &arguments = step.arguments;
    for (i64 own = team.block; own < arguments.in.classes[CLASS_BLOCK]; own += team.blocks) {
        const i64 target = arguments.stage.first() + own;
        if (!step.candidate(target, tally)) continue;  // all threads of the block say so
        Wide total = Step::identity();
        const i64 begin = arguments.in.offsets[own] + threadIdx.x;
        bool has_come = thread_pull(step, target, begin, arguments.in.offsets[own + 1], blockDim.x,
                                    total, tally);
        total = warp_combined<Step>(total);
        const u32 all = __ballot_sync(FULL_WARP, has_come);
        if (lane_id() == 0) {
            memcpy(&totals[warp_id()], &total, sizeof(Wide));
            came[warp_id()] = all != 0;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            total = Step::identity();
            has_come = false;
            for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
                Wide part;
                memcpy(&part, &totals[warp], sizeof(Wide));
                total = combined<Step::COMBINE>(total, part);
                has_come = has_come || came[warp];
            }
            if (has_come && thread_accept(step, target, total))
                thread_touch(arguments.touched[arguments.stage.device], target);
        }
        __syncthreads();
    }
}

template <class Step>
__device__ __forceinline__ void team_pull(const Step &step, const Team &team, Tally &tally) {
    using Wide = typename Step::Wide;
    constexpr i64 ALONE_ARCS = 32;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first(), long_rows = arguments.in.classes[CLASS_BLOCK];
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    team_pull_long_rows(step, team, tally);
    team_visit_members(arguments, team, step.state, true, [&](i64 own, bool is_own) {
        const i64 target = first + own;
        tally.processed += is_own && (frontier[own / WARP] >> lane_id() & 1);
        i64 begin = 0, end = 0;
        if (is_own && own >= long_rows && step.candidate(target, tally)) {
            begin = arguments.in.offsets[own];
            end = arguments.in.offsets[own + 1];
        }
        Wide total = Step::identity();
        bool has_come = false;
        if (end - begin <= ALONE_ARCS)
            has_come = thread_pull(step, target, begin, end, 1, total, tally);
        u32 longer = __ballot_sync(FULL_WARP, end - begin > ALONE_ARCS);
        while (longer) {
            const u32 whose = __ffs(static_cast<int>(longer)) - 1;
            longer &= longer - 1;
            Wide part = Step::identity();
            const bool any = thread_pull(step, __shfl_sync(FULL_WARP, target, whose),
                                         __shfl_sync(FULL_WARP, begin, whose) + lane_id(),
                                         __shfl_sync(FULL_WARP, end, whose), WARP, part, tally);
            part = __shfl_sync(FULL_WARP, warp_combined<Step>(part), 0);
            const u32 all = __ballot_sync(FULL_WARP, any);
            if (lane_id() == whose) {
                total = part;
                has_come = all != 0;
            }
        }
        const bool counts = has_come && thread_accept(step, target, total);
        const u32 bits = __ballot_sync(FULL_WARP, counts);
        if (lane_id() == 0 && bits)
            set_bits(&arguments.touched[arguments.stage.device][target / WARP], bits);
    });
}
