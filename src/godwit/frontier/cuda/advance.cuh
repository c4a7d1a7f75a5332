// Advance: messages along the arcs of a frontier, pushed or pulled, and what comes of them.
#pragma once

#include "frontier/cuda/operators.cuh"

// A step has: COMBINE, Field, FIELD, Wide (of the accumulator), SLOT, identity(), keep(source, target, arc, …),
// message(source, target, arc, …), place(source, target, …), candidate(target, …); ends are positions.

__device__ __forceinline__ void thread_touch(u32 *bitmap, i64 position) {
    u32 *word = &bitmap[position / WARP];
    const u32 bit = 1u << (position % WARP);
    if (!(load_relaxed(word) & bit)) set_bits(word, bit);
}

// Whether nobody has touched it before.
__device__ __forceinline__ bool thread_touch_first(u32 *bitmap, i64 position, bool looks = true) {
    u32 *word = &bitmap[position / WARP];
    const u32 bit = 1u << (position % WARP);
    if (looks && load_relaxed(word) & bit) return false;
    return !(atomicOr(word, bit) & bit);
}

// Of a warp's goals those that were touched first, one's own and others', go to their lists.
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
        const i64 own = goal[i] - stage.first();
        others |= static_cast<u32>(own < 0 || own >= stage.capacity) << i;
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

// Messages along a warp's arcs. Where what is touched is listed, whatever improves on the field is touched: if it
// is not the best, something better is there.
template <class Step>
__device__ __forceinline__ void warp_send(const Step &step, const i64 *arcs, const u32 *rows,
                                          const bool *there, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    u32 *touched = arguments.touched[stage.device];
    const bool lists = has_form(step.state, LISTS), looks = !has_form(step.state, FEW);
    Id goal[ARCS_A_LANE];  // first the target
    u32 is_new = 0;        // a bit an arc
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
        const i64 place = step.place(source, target, tally);
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

// The out-arcs of the frontier's vertices, by warps: visit(arcs[], rows[], there[]) of schedule_rows.cuh.
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
    team_visit_members(arguments, team, block.state, false, [&](i64 own, bool is_member) {
        i64 begin = 0, end = 0;
        if (is_member) {
            tally.processed++;
            begin = arguments.out.offsets[own];
            end = arguments.out.offsets[own + 1];
        }
        schedule.warp_bring(begin, end, static_cast<u32>(own), visit);
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

// A frontier of arcs: their flags, and the vertices that they leave as touched; TOTAL counts arcs.
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
            const u32 place = warp_place(&own_queues(arguments).queued[next], is_new);
            if (is_new) thread_put(arguments, next, place, rows[i], tally);
            tally.members += is_new;
        }
    };
    team_visit_out_arcs(arguments, team, block, tally, visit);
    if (lists) team_clear_members(arguments, team, step.state);
}

// The superstep after: what was touched is the frontier.
template <class Step>
__device__ __forceinline__ void team_arcs_settle(const Step &step, const Team &team, Tally &tally) {
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

// The value of an own field, when all that has come to the vertex is `total`.
template <class Step>
__device__ __forceinline__ void thread_merge(const Step &step, i64 position,
                                             typename Step::Wide total, Tally &tally) {
    using Field = typename Step::Field;
    const Field before = field_here<Field>(step.arguments, Step::FIELD)[position];
    if constexpr (Step::COMBINE == COMBINE_ADD) total += static_cast<typename Step::Wide>(before);
    const Field after = thread_fit<Field>(total, tally);
    thread_publish<Field, Step::SHARED>(step.arguments, Step::FIELD, position, after);
}

// What others have sent to own vertices comes to what has come here, and to the list of what was touched.
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
                if (at < count) touched[position / WARP] = 0;  // all that are set are in the list
                continue;
            }
            const i64 own = position - stage.first();
            bool is_new = false;
            if (at < count && own >= 0 && own < stage.capacity) {
                Wide *theirs = &accumulators_of<Wide>(arguments, Step::SLOT, device)[position];
                const Wide value = *theirs;
                *theirs = Step::identity();
                combine_at<Step::COMBINE>(
                    &accumulators_of<Wide>(arguments, Step::SLOT, stage.device)[position], value);
                is_new = thread_touch_first(touched, position);
            }
            const u32 place = warp_place(&queues.queued[next], is_new);
            if (is_new) thread_put(arguments, next, place, own, tally);
        }
    }
}

// The same, word by word.
template <class Step>
__device__ __forceinline__ void team_merge_words(const Step &step, const Team &team, Tally &tally) {
    using Wide = typename Step::Wide;
    const Arguments &arguments = step.arguments;
    const Stage &stage = arguments.stage;
    const i64 first_word = stage.first() / WARP;
    const u32 *frontier = own_words(arguments, arguments.frontiers);
    auto load = [&](i64 word) {
        u32 bits = Step::STAYS ? 0 : frontier[word];  // those that are in it shall leave it
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

// The superstep after: the owner makes its fields, and the frontier, of what has come on all devices.
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
    team_take_touched<!Step::STAYS>(arguments, team, step.state, tally, [&](i64 own) {
        const Wide total = come[first + own];
        come[first + own] = Step::identity();
        thread_merge(step, first + own, total, tally);
    });
}
