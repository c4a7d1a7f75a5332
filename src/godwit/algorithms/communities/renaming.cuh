// Take communities to the next level, or down from it, named by their smallest vertex: _representatives of
// levels.py. In the end, divide those that are not connected: split_communities of cpu.py.
#pragma once

#include "algorithms/communities/aggregation.cuh"
#include "algorithms/communities/connected.cuh"

struct Renaming : Level {
    __device__ __forceinline__ explicit Renaming(const Level &level) : Level(level) {}

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
                    store_system(arguments.other + arguments.map[v], arguments.label[v]);
                });
                break;
            case RENAME_FIRST:
                team_each(renamed(), [&](u32 v) {
                    if (!arguments.lifts) arguments.other[v] = arguments.label[arguments.map[v]];
                    const u32 id = name_at(v);
                    u32 *smallest = arguments.smallest + arguments.other[v];
                    if (load_relaxed(smallest) > id) atomicMin(smallest, id);
                });
                break;
            case RENAME_WRITE:
                team_each(renamed(), [&](u32 v) {
                    const u32 id = name_at(v), name = arguments.other[v];
                    const u32 smallest = arguments.smallest[name];
                    const bool is_smallest = smallest == id;
                    arguments.other[v] = smallest;
                    arguments.other_total[id] = is_smallest ? arguments.total[name] : 0;
                    if (ONE_WAY)
                        arguments.in_other_total[id] = is_smallest ? arguments.in_total[name] : 0;
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
                team_each(arguments.count, [&](u32 v) { forest().thread_flatten(v); });
                break;
            case SPLIT_JOIN:
                team_visit_arcs(false, JoinEnds<Id>{forest(), arguments.targets, arguments.label,
                                                    ONE_WAY && arguments.in_begins});
                break;
            case SPLIT_NAME:
                team_each(arguments.count,
                          [&](u32 v) { arguments.other[v] = id_of(forest().thread_flatten(v)); });
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
        return phase == RENAME_WRITE || phase == SPLIT_NAME ? STOP : phase + 1;
    }
    if (phase >= GROUP_CLEAR) return thread_decide_joins(arguments, phase, sums, state);
    if (phase >= MOVE_BEGIN) return thread_decide_moves(arguments, phase, sums, state);
    if (phase == BEGIN_ALONE) return state[ROUNDS] ? MOVE_BEGIN : STOP;
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
        if (phase >= RENAME_CLEAR)
            Renaming(level).run(phase);
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
        return thread_decide_levels(arguments, phase, sums, state);
    });
}
