// Operators on vertices: filter, compute, reduce.
#pragma once

#include "frontier/cuda/queue.cuh"

// A queued frontier is filtered vertex by vertex; otherwise the next frontier is made word by word.
template <class Step>
__device__ __forceinline__ void team_filter(const Step &step, const Team &team, Tally &tally) {
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    u32 *frontier = own_words(arguments, arguments.frontiers);
    if (!Step::EVERYWHERE && has_form(step.state, LISTED)) {
        const u32 next = queue_of_next(step.state);
        u32 *count = &own_queues(arguments).queued[next];
        team_visit_queue(arguments, team, static_cast<u32>(step.state[QUEUE]),
                         [&](i64 local, bool is_member) {
                             tally.processed += is_member;
                             const bool stays = is_member && step.keep(first + local, tally);
                             const u32 place = warp_place(count, __ballot_sync(FULL_WARP, stays));
                             if (stays) {
                                 thread_count_member(arguments, local, tally);
                                 thread_put(arguments, next, place, local, tally);
                             } else if (is_member) {
                                 atomicAnd(&frontier[local / WARP], ~(1u << (local % WARP)));
                             }
                         });
        return;
    }
    team_make_frontier(
        arguments, team, step.state, tally,
        [&](i64 word) { return Step::EVERYWHERE ? FULL_WARP : frontier[word]; },
        [&](i64 word, u32 bits) {
            const i64 local = word * WARP + lane_id();
            const bool is_member = (bits >> lane_id() & 1) && local < arguments.stage.owned;
            tally.processed += is_member;
            return __ballot_sync(FULL_WARP, is_member && step.keep(first + local, tally));
        });
}

template <class Step>
__device__ __forceinline__ void team_compute(const Step &step, const Team &team, Tally &tally) {
    using Field = typename Step::Field;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    team_visit_members(
        arguments, team, step.state, Step::EVERYWHERE, [&](i64 local, bool is_member) {
            if (!is_member) return;
            tally.processed++;
            const i64 position = first + local;
            const Field value = thread_fit<Field>(step.value(position, tally), tally);
            if constexpr (Step::STAGED)
                accumulators_of<Field>(arguments, Step::SLOT, arguments.stage.device)[position] =
                    value;
            else
                thread_publish<Field, Step::SHARED>(arguments, Step::FIELD, position, value);
        });
}

// Publish values that were computed while other devices read the field.
template <class Step>
__device__ __forceinline__ void team_unstage(const Step &step, const Team &team, Tally &) {
    using Field = typename Step::Field;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    const Field *staged = accumulators_of<Field>(arguments, Step::SLOT, arguments.stage.device);
    team_visit_members(arguments, team, step.state, Step::EVERYWHERE,
                       [&](i64 local, bool is_member) {
                           if (is_member)
                               thread_publish<Field, Step::SHARED>(
                                   arguments, Step::FIELD, first + local, staged[first + local]);
                       });
}

// Map the bits of doubles to integers of the same order, and back: the function is its own inverse.
__device__ __forceinline__ i64 ordered(i64 bits) {
    return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}

__device__ __forceinline__ i64 key_of(i64 number, Combine how) {
    return how == COMBINE_MAX ? ~number : number;
}
__device__ __forceinline__ i64 key_of(double number, Combine how) {
    return key_of(ordered(static_cast<i64>(bits_of_amount(number))), how);
}
__device__ __forceinline__ u64 bits_of_key(i64 key, Combine how, bool is_float) {
    const i64 number = how == COMBINE_MAX ? ~key : key;
    return static_cast<u64>(is_float ? ordered(number) : number);
}

template <class Step>
__device__ __forceinline__ void team_reduce(const Step &step, const Team &team, Tally &tally) {
    using Number = typename Step::Number;
    const Arguments &arguments = step.arguments;
    const i64 first = arguments.stage.first();
    const i64 none = key_of(Step::identity(), Step::COMBINE);
    i64 best = none;
    team_visit_members(
        arguments, team, step.state, Step::EVERYWHERE, [&](i64 local, bool is_member) {
            if (!is_member) return;
            tally.processed++;
            const Number value = thread_fit<Number>(step.value(first + local, tally), tally);
            if constexpr (Step::COMBINE != COMBINE_ADD) {
                // NaN, which has no order, never improves.
                if (is_better<Step::COMBINE>(value, Step::identity()))
                    best = min(best, key_of(value, Step::COMBINE));
            } else if constexpr (!is_float<Number>) {
                tally.total += static_cast<u64>(value);
            } else {
                tally.amount += value;
            }
        });
    if constexpr (Step::COMBINE != COMBINE_ADD) {
        for (u32 apart = WARP / 2; apart > 0; apart /= 2)
            best = min(best, __shfl_down_sync(FULL_WARP, best, apart));
        i64 *extreme = arguments.extremes[arguments.stage.device] + (step.state[REDUCTIONS] & 1);
        if (lane_id() == 0 && best != none) atomicMin(extreme, best);
    }
}

// Return the result of a reduction; called by one thread of each device. The words of `extremes` are used
// by turns: the one that is reset here was last read before the previous meeting.
template <class Step>
__device__ __forceinline__ u64 thread_reduced(const Step &step, const Sums &totals, u64 *state) {
    const Arguments &arguments = step.arguments;
    if constexpr (Step::COMBINE == COMBINE_ADD) {
        return !is_float<typename Step::Number> ? totals.counts[TOTAL]
                                                : bits_of_amount(totals.amounts[0]);
    } else {
        u64 *turn = &state[REDUCTIONS];
        i64 best = 0x7fffffffffffffffll;
        for (u32 device = 0; device < arguments.stage.devices; device++)
            best = min(best, static_cast<i64>(load_system(&arguments.extremes[device][*turn & 1])));
        *turn += 1;
        arguments.extremes[arguments.stage.device][*turn & 1] = 0x7fffffffffffffffll;
        const i64 none = key_of(Step::identity(), Step::COMBINE);
        return bits_of_key(min(best, none), Step::COMBINE, is_float<typename Step::Number>);
    }
}
