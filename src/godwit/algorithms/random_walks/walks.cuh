// Random walks in supersteps: counterpart of cpu.py, which cites the sources, with the same arithmetic.
//
// Each device has the whole graph, in its own order, and some of the walks; each thread does some steps of
// one walk after the other. All state of a walk is in its row of the result, and random words are hashes of
// numbers, so a launch goes on where the last one ended. Products and sums of double are rounded one by
// one, as on CPUs.
//
// Lower bound of a uniform step: a sector of offsets and one of targets are read, 64 bytes, and an id is
// written: 100 M steps 1.7 ms at 4.0 TB/s.
#pragma once

#include "runtime/cuda/include/hashing.cuh"
#include "supersteps/step.cuh"

enum WalkState : u32 { STEPS_DONE };
enum WalkCount : u32 { STEPS_COUNTED };

struct Arguments {
    Stage stage;
    const i64 *offsets;  // of the graph
    const Id *targets;
    const double *sums;  // of weights up to each arc of its row; null without weights
    const i64 *sources;  // of own walks
    Id *walks;           // (count, length + 1)
    u64 seed;            // hash of the seed
    u64 first;           // number of the first own walk
    i64 count;           // of own walks
    u64 length;
    u64 steps;  // of a superstep
    double return_bias;
    double far_bias;
    u32 biased;
    u32 padding;
};

struct Walker {
    const Arguments &arguments;
    u64 key;  // of the walk

    __device__ __forceinline__ u64 word(u64 step, u32 count) const {
        return thread_mix(key + (step << WORDS_BITS | count));
    }

    // Draw an arc of a row in proportion to the weights; -1 if there is none of positive weight.
    __device__ __forceinline__ i64 draw(i64 begin, i64 end, u64 word) const {
        if (begin == end) return -1;
        const double *sums = arguments.sums;
        if (!sums) return begin + static_cast<i64>(word % static_cast<u64>(end - begin));
        const double total = sums[end - 1];
        if (total == 0) return -1;
        const double share = thread_unit(word), wanted = __dmul_rn(share, total);
        // The first arc whose sum is above, or is the total, is near that share of the row if weights are
        // alike.
        i64 low = begin, high = end - 1;
        i64 guess = begin + static_cast<i64>(share * static_cast<double>(end - begin));
        for (i64 step = 1; step <= high - low; step *= 4) {
            const i64 middle = min(max(guess, low), high - 1);
            if (sums[middle] > wanted || sums[middle] == total) {
                high = middle;
                guess = middle - step;
            } else {
                low = middle + 1;
                guess = middle + step;
            }
        }
        while (low < high) {
            const i64 middle = (low + high) >> 1;
            if (sums[middle] > wanted || sums[middle] == total)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }

    __device__ __forceinline__ bool has_arc(Id source, Id target) const {
        i64 low = arguments.offsets[source], high = arguments.offsets[source + 1];
        const i64 end = high;
        while (low < high) {
            const i64 middle = (low + high) >> 1;
            if (arguments.targets[middle] < target)
                low = middle + 1;
            else
                high = middle;
        }
        return low < end && arguments.targets[low] == target;
    }

    // The weight of an arc times its bias, by where it leads to.
    __device__ __forceinline__ double biased_weight(i64 arc, i64 begin, Id previous) const {
        const double *sums = arguments.sums;
        double weight = 1.0;
        if (sums) weight = __dsub_rn(sums[arc], arc > begin ? sums[arc - 1] : 0.0);
        const Id target = arguments.targets[arc];
        if (target == previous) return __dmul_rn(weight, arguments.return_bias);
        return has_arc(previous, target) ? weight : __dmul_rn(weight, arguments.far_bias);
    }

    __device__ __forceinline__ i64 draw_biased(Id vertex, Id previous, u64 step) const {
        const i64 begin = arguments.offsets[vertex], end = arguments.offsets[vertex + 1];
        const double back = arguments.return_bias, far = arguments.far_bias;
        const double most = max(max(back, far), 1.0);
        for (u32 attempt = 0; attempt < TRIES; attempt++) {
            const i64 drawn = draw(begin, end, word(step, 2 * attempt));
            if (drawn < 0) return drawn;
            const double bound = __dmul_rn(thread_unit(word(step, 2 * attempt + 1)), most);
            const Id target = arguments.targets[drawn];
            if (target == previous) {
                if (bound < back) return drawn;
            } else if (bound < min(far, 1.0)) {  // whether an arc leads there does not matter
                return drawn;
            } else if (bound < max(far, 1.0)) {
                if (has_arc(previous, target) == (far < 1.0)) return drawn;
            }
        }
        double total = 0.0;
        for (i64 arc = begin; arc < end; arc++)
            total = __dadd_rn(total, biased_weight(arc, begin, previous));
        const double wanted = __dmul_rn(thread_unit(word(step, 2 * TRIES)), total);
        total = 0.0;
        i64 last = -1;
        for (i64 arc = begin; arc < end; arc++) {
            const double *sums = arguments.sums;
            if (sums && !(sums[arc] > (arc > begin ? sums[arc - 1] : 0.0))) continue;
            total = __dadd_rn(total, biased_weight(arc, begin, previous));
            last = arc;
            if (total > wanted) break;
        }
        return last;
    }
};

// Do the next steps of all walks; return the number of steps that the thread did.
__device__ __forceinline__ u64 team_walk(const Arguments &arguments, const u64 *state,
                                         const Team &team) {
    const u64 begin = state[STEPS_DONE];
    const u64 end = min(begin + arguments.steps, arguments.length);
    u64 done = 0;
    for (i64 walk = team.thread(); walk < arguments.count;
         walk += static_cast<i64>(team.threads())) {
        Id *own = arguments.walks + static_cast<u64>(walk) * (arguments.length + 1);
        if (begin == 0) own[0] = static_cast<Id>(arguments.sources[walk]);
        const Walker walker{arguments, thread_mix(arguments.seed + arguments.first + walk)};
        Id vertex = own[begin];
        Id previous = begin > 0 ? own[begin - 1] : static_cast<Id>(-1);
        for (u64 step = begin; step < end; step++) {
            if (vertex >= 0) {
                const i64 arc =
                    arguments.biased && step > 0
                        ? walker.draw_biased(vertex, previous, step)
                        : walker.draw(arguments.offsets[vertex], arguments.offsets[vertex + 1],
                                      walker.word(step, 0));
                previous = vertex;
                vertex = arc < 0 ? static_cast<Id>(-1) : arguments.targets[arc];
            }
            own[step + 1] = vertex;
        }
        done += end - begin;
    }
    return done;
}

__device__ __forceinline__ void grid_walk(const Arguments &arguments) {
    run_steps(
        arguments.stage,
        [&](u32, const Team &team, StepBlock &block) {
            warp_count(block, STEPS_COUNTED, team_walk(arguments, block.state, team));
        },
        [&](u32 phase, const Sums &, u64 *state) {
            state[STEPS_DONE] += arguments.steps;
            return state[STEPS_DONE] < arguments.length ? phase : STOP;
        });
}
