// Advance: messages along the arcs of a frontier, pushed or pulled, and their merging into fields.
#pragma once

#include "frontier/cuda/operators.cuh"

// A step has: COMBINE, Field, FIELD, Wide (of the accumulator), SLOT, identity(), keep(source, target, arc,
// …), message(source, target, arc, …), goal(source, target, …), candidate(target, …); vertices are
// positions.

__device__ __forceinline__ void thread_touch(u32 *bitmap, i64 position) {
    u32 *word = &bitmap[position / WARP];
    const u32 bit = 1u << (position % WARP);
    if (!(load_relaxed(word) & bit)) set_bits(word, bit);
}

// Set a vertex's bit; return true if it was clear.
__device__ __forceinline__ bool thread_touch_first(u32 *bitmap, i64 position, bool looks = true) {
    u32 *word = &bitmap[position / WARP];
    const u32 bit = 1u << (position % WARP);
    if (looks && load_relaxed(word) & bit) return false;
    return !(atomicOr(word, bit) & bit);
}

// List the goals of a warp that were touched for the first time: own vertices and remote ones.
template <class Step>
__device__ __forceinline__ void warp_list_touched(const Step &step, const Id *goal, u32 is_new,
                                                  Tally &tally) {
    if (!__any_sync(FULL_WARP, is_new != 0)) return;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    QueueControl &queues = own_queues(arguments);
    tally.members += __popc(is_new);
    u32 others = 0;
#pragma unroll
    for (u32 i = 0; i < ARCS_A_LANE; i++) {
        const i64 local = goal[i] - stage.first();
        others |= static_cast<u32>(local < 0 || local >= stage.capacity) << i;
    }
    others &= is_new;
    is_new &= ~others;
    const u32 next = queue_of_next(step.state);
    u32 place = warp_places(&queues.queued[next], __popc(is_new));
#pragma unroll
    for (u32 i = 0; i < ARCS_A_LANE; i++)
        if (is_new >> i & 1) thread_put(arguments, next, place++, goal[i] - stage.first(), tally);
    if (!__any_sync(FULL_WARP, others != 0)) return;
    tally.total += __popc(others);
    place = warp_places(&queues.sent, __popc(others));
#pragma unroll
    for (u32 i = 0; i < ARCS_A_LANE; i++) {
        if (!(others >> i & 1)) continue;
        if (place < arguments.queue_room)
            sent_list(&queues)[place] = goal[i];
        else
            tally.missed++;
        place++;
    }
}

// Send messages along a warp's arcs. If touched vertices are listed, each message that improves the field
// touches its goal, even if it does not improve the accumulator: then a better message is there.
template <class Step>
__device__ __forceinline__ void warp_send(const Step &step, const i64 *arcs, const u32 *rows,
                                          const bool *there, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    u32 *touched = arguments.touched[stage.device];
    const bool lists = has_form(step.state, LISTS), looks = !has_form(step.state, FEW);
    Id goal[ARCS_A_LANE];  // at first the target
    u32 is_new = 0;        // a bit for each arc
#pragma unroll
    for (u32 i = 0; i < ARCS_A_LANE; i++) {
        const bool goes = there[i] && (!Step::MASKED || arguments.arcs[arcs[i]]);
        goal[i] = goes ? load_once(&arguments.out.targets[arcs[i]]) : Id(-1);
    }
#pragma unroll
    for (u32 i = 0; i < ARCS_A_LANE; i++) {
        if (goal[i] < 0) continue;
        const i64 source = stage.first() + rows[i], target = goal[i];
        if (Step::CHOOSES && !step.candidate(target, tally)) continue;
        if (!step.keep(source, target, arcs[i], tally)) continue;
        const i64 place = step.goal(source, target, tally);
        const Wide sent = thread_fit<Wide>(step.message(source, target, arcs[i], tally), tally);
        if constexpr (Step::COMBINE != COMBINE_ADD) {
            const auto before = field_here<typename Step::Field>(arguments, Step::FIELD)[place];
            if (!is_better<Step::COMBINE>(sent, before)) continue;
        }
        Wide *accumulator = &accumulators_of<Wide>(arguments, Step::SLOT, stage.device)[place];
        if (lists) {
            is_new |= static_cast<u32>(thread_touch_first(touched, place, looks)) << i;
            combine_at<Step::COMBINE>(accumulator, sent, looks);
            goal[i] = static_cast<Id>(place);
        } else if (combine_at<Step::COMBINE>(accumulator, sent)) {
            thread_touch(touched, place);
        }
    }
    if (lists) warp_list_touched(step, goal, is_new, tally);
}

// Visit the out-arcs of the frontier's vertices: visit(arcs[], rows[], there[]) of schedule/rows.cuh.
template <class Visit>
__device__ __forceinline__ void team_visit_out_arcs(const Arguments &arguments, const Team &team,
                                                    StepBlock &block, Tally &tally,
                                                    Visit visit_arcs) {
    const Schedule schedule{arguments.left_rows, &arguments.stage.control->cursors[0]};
    auto visit = [&](const i64 *arcs, const u32 *rows, const bool *there) {
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) tally.arcs += there[i];
        visit_arcs(arcs, rows, there);
    };
    team_visit_members(arguments, team, block.state, false, [&](i64 local, bool is_member) {
        i64 begin = 0, end = 0;
        if (is_member) {
            tally.processed++;
            begin = arguments.out.offsets[local];
            end = arguments.out.offsets[local + 1];
        }
        schedule.warp_bring(begin, end, static_cast<u32>(local), visit);
    });
    const bool may_be_long = arguments.long_below > 0 && !has_form(block.state, SHORT);
    schedule.team_finish(team, block, may_be_long, visit);
}

template <class Step>
__device__ __forceinline__ void team_push(const Step &step, const Team &team, StepBlock &block,
                                          Tally &tally) {
    team_visit_out_arcs(step.arguments, team, block, tally,
                        [&](const i64 *arcs, const u32 *rows, const bool *there) {
                            warp_send(step, arcs, rows, there, tally);
                        });
    if (!Step::STAYS && has_form(step.state, LISTS))
        team_clear_members(step.arguments, team, step.state);
}

// Make a frontier of arcs: set their flags, and touch the vertices that they leave; TOTAL counts arcs.
template <class Step>
__device__ __forceinline__ void team_arcs(const Step &step, const Team &team, StepBlock &block,
                                          Tally &tally) {
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    const bool lists = has_form(step.state, LISTS);
    const u32 next = queue_of_next(step.state);
    u32 *touched = own_words(arguments, arguments.touched);
    auto visit = [&](const i64 *arcs, const u32 *rows, const bool *there) {
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            bool is_new = false;
            if (there[i]) {
                const bool stays =
                    (!Step::MASKED || arguments.arcs[arcs[i]]) &&
                    step.keep(first + rows[i], load_once(&arguments.out.targets[arcs[i]]), arcs[i],
                              tally);
                arguments.arcs[arcs[i]] = stays;
                tally.total += stays;
                if (stays && lists)
                    is_new = thread_touch_first(touched, rows[i]);
                else if (stays)
                    thread_touch(touched, rows[i]);
            }
            if (!lists) continue;
            const u32 place =
                warp_place(&own_queues(arguments).queued[next], __ballot_sync(FULL_WARP, is_new));
            if (is_new) thread_put(arguments, next, place, rows[i], tally);
            tally.members += is_new;
        }
    };
    team_visit_out_arcs(arguments, team, block, tally, visit);
    if (lists) team_clear_members(arguments, team, step.state);
}

// The superstep after: touched vertices are the frontier.
template <class Step>
__device__ __forceinline__ void team_take_arcs(const Step &step, const Team &team, Tally &tally) {
    const Arguments &arguments = step.arguments;
    if (has_form(step.state, LISTED_TOUCHED)) {
        team_take_touched<true>(arguments, team, step.state, tally, [](i64) {});
        return;
    }
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    u32 *touched = own_words(arguments, arguments.touched);
    team_make_frontier(
        arguments, team, step.state, tally,
        [&](i64 word) { return frontier[word] | touched[word]; },
        [&](i64 word, u32) {
            const u32 bits = touched[word];
            __syncwarp();
            if (lane_id() == 0) touched[word] = 0;
            return bits;
        });
}

// Merge the combined messages to an own vertex into its field.
template <class Step>
__device__ __forceinline__ void thread_merge(const Step &step, i64 position,
                                             typename Step::Wide total, Tally &tally) {
    using Field = typename Step::Field;
    const Field before = field_here<Field>(step.arguments, Step::FIELD)[position];
    if constexpr (Step::COMBINE != COMBINE_MIN && Step::COMBINE != COMBINE_MAX)
        total = combined<Step::COMBINE>(static_cast<typename Step::Wide>(before), total);
    const Field after = thread_fit<Field>(total, tally);
    thread_publish<Field, Step::SHARED>(step.arguments, Step::FIELD, position, after);
}

// Combine messages of other devices with this device's own, and list the vertices that they touch.
template <class Step>
__device__ __forceinline__ void team_fetch(const Step &step, const Team &team, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    const u32 next = queue_of_next(step.state);
    QueueControl &queues = own_queues(arguments);
    u32 *touched = arguments.touched[stage.device];
    for (u32 device = 0; device < stage.devices; device++) {
        const u64 count = load_system(&arguments.queues[device]->sent);
        const Id *positions = sent_list(arguments.queues[device]);
        for (u64 base = team.warp() * WARP; base < count; base += team.warps() * WARP) {
            const u64 at = base + lane_id();
            const i64 position = at < count ? load_system(&positions[at]) : Id(0);
            if (device == stage.device) {
                if (at < count)
                    touched[position / WARP] = 0;  // all vertices of this word are in the list
                continue;
            }
            const i64 local = position - stage.first();
            bool is_new = false;
            if (at < count && local >= 0 && local < stage.capacity) {
                Wide *theirs = &accumulators_of<Wide>(arguments, Step::SLOT, device)[position];
                const Wide value = *theirs;
                *theirs = Step::identity();
                combine_at<Step::COMBINE>(
                    &accumulators_of<Wide>(arguments, Step::SLOT, stage.device)[position], value);
                is_new = thread_touch_first(touched, position);
            }
            const u32 place = warp_place(&queues.queued[next], __ballot_sync(FULL_WARP, is_new));
            if (is_new) thread_put(arguments, next, place, local, tally);
        }
    }
}

// Merge the messages of all devices word by word.
template <class Step>
__device__ __forceinline__ void team_merge_words(const Step &step, const Team &team, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    const i64 first_word = stage.first() / WARP;
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    auto load = [&](i64 word) {
        u32 bits = Step::STAYS ? 0 : frontier[word];  // old members must be removed
        for (u32 device = 0; device < stage.devices; device++)
            bits |= arguments.touched[device][first_word + word];
        return bits;
    };
    auto merge = [&](i64 word, u32) {
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
        if (has_come) thread_merge(step, position, total, tally);
        return __ballot_sync(FULL_WARP, has_come);
    };
    if constexpr (Step::STAYS)
        team_visit_words(team, own_word_count(arguments), load, merge, [](i64, u32) {});
    else
        team_make_frontier(arguments, team, step.state, tally, load, merge);
}

// The superstep after: owners merge the messages of all devices into fields, and make the frontier.
template <class Step>
__device__ __forceinline__ void team_merge(const Step &step, const Team &team, StepBlock &block,
                                           Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    if (!has_form(step.state, LISTED_TOUCHED)) {
        team_merge_words(step, team, tally);
        return;
    }
    if (has_form(step.state, HAS_SENT)) {
        team_fetch(step, team, tally);
        team.wait(block);
    }
    const i64 first = arguments.stage.first();
    Wide *come = accumulators_of<Wide>(arguments, Step::SLOT, arguments.stage.device);
    team_take_touched<!Step::STAYS>(arguments, team, step.state, tally, [&](i64 local) {
        const Wide total = come[first + local];
        come[first + local] = Step::identity();
        thread_merge(step, first + local, total, tally);
    });
}

// Pulling: candidates go over their in-arcs, looking for messages from the frontier, whose bitmap is up to
// date on every device (queue.cuh). Messages are merged as after pushing, word by word.

// Combine the messages along in-arcs from `begin` on, `stride` apart; return true if there are any.
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

// Store the combined message to an own vertex; return true if it improves the field.
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

// Combine the lanes' totals, in a fixed order.
template <class Step>
__device__ __forceinline__ typename Step::Wide warp_combined(typename Step::Wide total) {
    for (u32 step = WARP / 2; step > 0; step /= 2)
        total = combined<Step::COMBINE>(total, __shfl_down_sync(FULL_WARP, total, step));
    return total;
}

// Pull rows that are too long for a warp, a block each.
template <class Step>
__device__ __forceinline__ void team_pull_long_rows(const Step &step, const Team &team,
                                                    Tally &tally) {
    using Wide = typename Step::Wide;
    __shared__ u64 totals[WARP];
    __shared__ u32 came[WARP];
    const Arguments &arguments = step.arguments;
    for (i64 local = team.block; local < arguments.in.classes[CLASS_BLOCK]; local += team.blocks) {
        const i64 target = arguments.stage.first() + local;
        if (!step.candidate(target, tally)) continue;  // the same for all threads of the block
        Wide total = Step::identity();
        const i64 begin = arguments.in.offsets[local] + threadIdx.x;
        bool has_come = thread_pull(step, target, begin, arguments.in.offsets[local + 1],
                                    blockDim.x, total, tally);
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
    team_visit_members(arguments, team, step.state, true, [&](i64 local, bool is_own) {
        const i64 target = first + local;
        tally.processed += is_own && (frontier[local / WARP] >> lane_id() & 1);
        i64 begin = 0, end = 0;
        if (is_own && local >= long_rows && step.candidate(target, tally)) {
            begin = arguments.in.offsets[local];
            end = arguments.in.offsets[local + 1];
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
