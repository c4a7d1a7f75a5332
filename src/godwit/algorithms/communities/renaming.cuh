// Take communities to the next level, or down from it, named by their smallest vertex: _representatives of
// levels.py. Those of the level that they come from are `other`. In the end, divide those that are not connected:
// split_communities of cpu.py.
#pragma once

#include "algorithms/communities/aggregation.cuh"
#include "algorithms/communities/connected.cuh"

struct Renaming : Level {
    unsigned char *bytes;

    __device__ __forceinline__ Renaming(const Level &level, unsigned char *bytes)
        : Level(level), bytes(bytes) {}

    __device__ __forceinline__ u64 renamed() const {
        return arguments.lifts ? arguments.above_count : arguments.count;
    }
    __device__ __forceinline__ u32 name_at(u32 v) const { return arguments.lifts ? v : id_of(v); }

    __device__ __forceinline__ void run(u32 phase) const {
        switch (phase) {
            case RENAME_CLEAR:
                team_each(arguments.names, [&](u32 name) { arguments.smallest[name] = NO_LABEL; });
                break;
            case RENAME_LIFT:  // members of one part have one community
                team_each(arguments.count, [&](u32 v) {
                    store_system(arguments.label + arguments.map[v], arguments.other[v]);
                });
                break;
            case RENAME_FIRST:
                team_each_batch(renamed(), [&](const u32(&v)[BATCH], const bool (&there)[BATCH]) {
                    u32 name[BATCH], id[BATCH];
                    bool is_less[BATCH];
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++) {
                        name[i] = 0;
                        if (there[i])
                            name[i] = arguments.lifts ? arguments.label[v[i]]
                                                      : arguments.other[arguments.map[v[i]]];
                        id[i] = name_at(v[i]);
                    }
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++)
                        is_less[i] = there[i] && load_relaxed(arguments.smallest + name[i]) > id[i];
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++) {
                        if (there[i] && !arguments.lifts) arguments.label[v[i]] = name[i];
                        if (is_less[i]) atomicMin(arguments.smallest + name[i], id[i]);
                    }
                });
                break;
            case RENAME_WRITE:
                team_each_batch(renamed(), [&](const u32(&v)[BATCH], const bool (&there)[BATCH]) {
                    u32 name[BATCH], id[BATCH], smallest[BATCH];
                    Sum total[BATCH], in_total[BATCH];
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++) {
                        id[i] = name_at(v[i]);
                        name[i] = there[i] ? arguments.label[v[i]] : 0;
                    }
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++) smallest[i] = arguments.smallest[name[i]];
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++) {
                        const bool is_smallest = there[i] && smallest[i] == id[i];
                        total[i] = is_smallest ? arguments.other_total[name[i]] : 0;
                        in_total[i] =
                            ONE_WAY && is_smallest ? arguments.in_other_total[name[i]] : 0;
                    }
#pragma unroll
                    for (u32 i = 0; i < BATCH; i++) {
                        if (!there[i]) continue;
                        arguments.label[v[i]] = smallest[i];
                        arguments.total[id[i]] = total[i];
                        if (ONE_WAY) arguments.in_total[id[i]] = in_total[i];
                    }
                });
                break;
            case SPLIT_BEGIN:
                team_each(arguments.count, [&](u32 v) {
                    arguments.part[v] = thread_parent(v, arguments.begins[v], arguments.ends[v],
                                                      arguments.targets, arguments.label);
                });
                if (team.thread() == 0) thread_forget_long_rows();
                break;
            case SPLIT_LINKED:
                team_each_batch(arguments.count, [&](const u32(&v)[BATCH], const bool (&)[BATCH]) {
                    u32 root[BATCH];
                    forest().thread_flatten(v, root);
                });
                break;
            case SPLIT_JOIN: {
                u32 queued = 0;
                u64 inside = 0;
                const JoinEnds<Id, Sum> visit{
                    forest(),
                    arguments.targets,
                    arguments.weights,
                    arguments.label,
                    ONE_WAY && arguments.in_begins,
                    arguments.loops,
                    reinterpret_cast<u64 *>(bytes) + warp_id() * JOIN_QUEUE,
                    queued,
                    inside};
                team_visit_arcs(false, visit);
                visit.warp_finish();
                warp_count(block, NAMES, inside);
                break;
            }
            case SPLIT_NAME:
                team_each_batch(arguments.count,
                                [&](const u32(&v)[BATCH], const bool (&there)[BATCH]) {
                                    u32 root[BATCH];
                                    forest().thread_flatten(v, root);
#pragma unroll
                                    for (u32 i = 0; i < BATCH; i++) root[i] = id_of(root[i]);
#pragma unroll
                                    for (u32 i = 0; i < BATCH; i++)
                                        if (there[i]) arguments.other[v[i]] = root[i];
                                });
                break;
        }
    }
    __device__ __forceinline__ Forest forest() const { return Forest{arguments.part}; }
};

__device__ __forceinline__ u32 thread_decide_levels(const Arguments &arguments, u32 phase,
                                                    const Sums &sums, u64 *state) {
    const LevelCounters &counters = *arguments.counters;
    if (phase >= RENAME_CLEAR) {
        if (phase == RENAME_CLEAR && !arguments.lifts) return RENAME_FIRST;
        if (phase == RENAME_WRITE) return state[ROUNDS] ? MOVE_BEGIN : STOP;
        if (phase == SPLIT_JOIN) state[FOUND] = sums.counts[NAMES];
        return phase == SPLIT_NAME ? STOP : phase + 1;
    }
    if (phase >= GROUP_CLEAR) return thread_decide_joins(arguments, phase, sums, state);
    if (phase >= MOVE_BEGIN) return thread_decide_moves(arguments, phase, sums, state);
    if (phase == BEGIN_ALONE) {
        state[SINGLE] = 1;
        return state[ROUNDS] ? MOVE_BEGIN : STOP;
    }
    state[FOUND] += sums.counts[NAMES];
    if (phase == FIRST_LEVEL && !arguments.is_unit) return FIRST_ARCS;
    state[LONGEST] = load_relaxed(&counters.longest);
    state[LONG_CHUNKS] = load_relaxed(&counters.chunks);
    return STOP;
}

__device__ __forceinline__ void grid_levels(const Arguments &arguments) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ BlockMemory shared;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        const Level level{arguments, team, block};
        phase &= ~ALONE;
        if (phase >= RENAME_CLEAR)
            Renaming(level, shared_bytes).run(phase);
        else if (phase >= GROUP_CLEAR)
            Aggregation(level, shared, shared_bytes).run(phase);
        else if (phase >= MOVE_BEGIN && block.state[REFINES])
            Moves<true>(level, shared, shared_bytes).run(phase);
        else if (phase >= MOVE_BEGIN)
            Moves<false>(level, shared, shared_bytes).run(phase);
        else if (phase == FIRST_LEVEL)
            level.team_first_level();
        else if (phase == FIRST_ARCS)
            level.team_first_arcs();
        else
            level.team_begin_alone();
    };
    run_steps(arguments.stage, body, [&](u32 phase, const Sums &sums, u64 *state) {
        return thread_decide_levels(arguments, phase & ~ALONE, sums, state);
    });
}
