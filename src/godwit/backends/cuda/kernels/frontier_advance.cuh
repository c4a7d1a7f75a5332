// Advance: messages along the arcs of a frontier, pushed or pulled, and what comes of them.
#pragma once

#include "frontier.cuh"

// A step has: COMBINE, Field, FIELD, Wide (of the accumulator), SLOT, identity(), keep(source, target, arc, …),
// message(source, target, arc, …), place(source, target, …), candidate(target, …); ends are positions.

__device__ __forceinline__ void thread_touch(u32 *bitmap, i64 position) {
    u32 *word = &bitmap[position / WARP];
    const u32 bit = 1u << (position % WARP);
    if (!(load_relaxed(word) & bit)) set_bits(word, bit);
}

template <class Step>
__device__ __forceinline__ void thread_send(const Step &step, i64 source, i64 arc, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const u32 device = arguments.stage.device;
    if (Step::MASKED && !arguments.arcs[arc]) return;
    const i64 target = load_once(&arguments.out.targets[arc]);
    if (!step.keep(source, target, arc, tally)) return;
    const i64 goal = step.place(source, target, tally);
    const Wide sent = thread_fit<Wide>(step.message(source, target, arc, tally), tally);
    if constexpr (Step::COMBINE != COMBINE_ADD) {
        const auto before = field_here<typename Step::Field>(arguments, Step::FIELD)[goal];
        if (!is_better<Step::COMBINE>(sent, before)) return;
    }
    if (combine_at<Step::COMBINE>(&accumulators_of<Wide>(arguments, Step::SLOT, device)[goal],
                                  sent))
        thread_touch(arguments.touched[device], goal);
}

// The out-arcs of the frontier's vertices: visit(source, arc).
template <class Visit>
__device__ __forceinline__ void team_visit_out_arcs(const Arguments &arguments, const Team &team,
                                                    StepBlock &block, Tally &tally,
                                                    Visit visit_arc) {
    const i64 first = arguments.stage.first();
    const LongRows list{arguments.long_rows, &arguments.stage.control->cursors[0]};
    auto visit = [&](const i64 *arcs, const u32 *rows, const bool *there) {
#pragma unroll
        for (u32 i = 0; i < MIXED_UNROLL; i++) {
            if (!there[i]) continue;
            tally.arcs++;
            visit_arc(first + rows[i], arcs[i]);
        }
    };
    team_visit_members(arguments, team, false, [&](i64, i64 own, bool is_member) {
        i64 begin = 0, end = 0;
        if (is_member) {
            tally.processed++;
            begin = arguments.out.offsets[own];
            end = arguments.out.offsets[own + 1];
            if (end - begin > LONG_ROW_ARCS) {
                thread_leave(list, own, begin, end);
                end = begin;
            }
        }
        warp_visit_rows(begin, static_cast<u32>(end - begin), static_cast<u32>(own), visit);
    });
    team.wait(block);
    team_visit_long_rows(team, list, visit);
}

template <class Step>
__device__ __forceinline__ void team_push(const Step &step, const Team &team, StepBlock &block,
                                          Tally &tally) {
    team_visit_out_arcs(step.arguments, team, block, tally,
                        [&](i64 source, i64 arc) { thread_send(step, source, arc, tally); });
}

// A frontier of arcs: their flags, and the vertices that they leave as touched; TOTAL counts arcs.
template <class Step>
__device__ __forceinline__ void team_arcs(const Step &step, const Team &team, StepBlock &block,
                                          Tally &tally) {
    const Arguments &arguments = step.arguments;
    team_visit_out_arcs(arguments, team, block, tally, [&](i64 source, i64 arc) {
        const bool stays = (!Step::MASKED || arguments.arcs[arc]) &&
                           step.keep(source, load_once(&arguments.out.targets[arc]), arc, tally);
        arguments.arcs[arc] = stays;
        if (!stays) return;
        tally.total++;
        thread_touch(arguments.touched[arguments.stage.device], source);
    });
}

// The superstep after: what was touched is the frontier.
template <class Step>
__device__ __forceinline__ void team_arcs_settle(const Step &step, const Team &team, Tally &tally) {
    const Arguments &arguments = step.arguments;
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    u32 *touched = own_words(arguments, arguments.touched);
    team_visit_words(
        team, own_word_count(arguments), [&](i64 word) { return frontier[word] | touched[word]; },
        [&](i64 word, u32) {
            const u32 bits = touched[word];
            __syncwarp();
            if (lane_id() == 0) touched[word] = 0;
            warp_put_frontier(arguments, word, bits, tally);
        });
}

// The superstep after: the owner makes its fields, and the frontier, of what has come on all devices.
template <class Step>
__device__ __forceinline__ void team_merge(const Step &step, const Team &team, Tally &tally) {
    using Wide = typename Step::Wide;
    using Field = typename Step::Field;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    const i64 first_word = stage.first() / WARP;
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    team_visit_words(
        team, own_word_count(arguments),
        [&](i64 word) {
            u32 bits = Step::STAYS ? 0 : frontier[word];  // those that are in it shall leave it
            for (u32 device = 0; device < stage.devices; device++)
                bits |= arguments.touched[device][first_word + word];
            return bits;
        },
        [&](i64 word, u32) {
            const i64 position = stage.first() + word * WARP + lane_id();
            Wide total = Step::identity();
            bool has_come = false;
            for (u32 device = 0; device < stage.devices; device++) {
                u32 *touched = &arguments.touched[device][first_word + word];
                const u32 bits = *touched;
                __syncwarp();
                if (bits == 0) continue;
                if (lane_id() == 0) *touched = 0;
                if (bits >> lane_id() & 1) {
                    Wide *theirs = &accumulators_of<Wide>(arguments, Step::SLOT, device)[position];
                    total = combined<Step::COMBINE>(total, *theirs);
                    *theirs = Step::identity();
                    has_come = true;
                }
            }
            if (has_come) {
                const Field before = field_here<Field>(arguments, Step::FIELD)[position];
                if constexpr (Step::COMBINE == COMBINE_ADD) total += static_cast<Wide>(before);
                const Field after = thread_fit<Field>(total, tally);
                thread_publish<Field, Step::SHARED>(arguments, Step::FIELD, position, after);
            }
            if constexpr (!Step::STAYS)
                warp_put_frontier(arguments, word, __ballot_sync(FULL_WARP, has_come), tally);
        });
}

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
    team_visit_members(arguments, team, true, [&](i64 word, i64 own, bool is_own) {
        const i64 target = first + own;
        tally.processed += is_own && (frontier[word] >> lane_id() & 1);
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
            set_bits(&arguments.touched[arguments.stage.device][first / WARP + word], bits);
    });
}
