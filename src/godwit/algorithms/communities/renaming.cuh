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

    // A smaller neighbour in the community of a vertex, if one is among the first; else the vertex.
    __device__ __forceinline__ u32 first_parent(u32 v) const {
        const i64 begin = arguments.begins[v], end = min(arguments.ends[v], begin + BATCH);
        const u32 own = arguments.label[v];
        for (i64 arc = begin; arc < end; arc++) {
            const u32 u = static_cast<u32>(arguments.targets[arc]);
            if (u < v && arguments.label[u] == own) return u;
        }
        return v;
    }

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
                team_each(arguments.count, [&](u32 v) { arguments.part[v] = first_parent(v); });
                if (team.thread() == 0) thread_forget_long_rows();
                break;
            case SPLIT_JOIN:
                team_split();
                break;
            case SPLIT_NAME:
                team_each(arguments.count, [&](u32 v) {
                    arguments.other[v] = id_of(Forest{arguments.part}.root_of(v));
                });
                break;
        }
    }
    __device__ __forceinline__ void team_split() const;
};

// The visitor of all rows that joins the ends of arcs within communities.
struct JoinEnds {
    const Arguments &arguments;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        u32 target[ARCS];
        bool joins[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            target[i] = there[i] ? static_cast<u32>(arguments.targets[arcs[i]]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            joins[i] = there[i] && ((ONE_WAY && arguments.in_begins) || target[i] < rows[i]) &&
                       arguments.label[target[i]] == arguments.label[rows[i]];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            if (joins[i]) Forest{arguments.part}.thread_join(rows[i], target[i]);
    }
};

__device__ __forceinline__ void Renaming::team_split() const {
    team_visit_arcs(false, JoinEnds{arguments});
}

__device__ __forceinline__ u32 thread_decide_levels(const Arguments &arguments, u32 phase,
                                                    const Sums &sums, u64 *state) {
    const LevelCounters &counters = *arguments.counters;
    if (phase >= RENAME_CLEAR) {
        if (phase == RENAME_CLEAR && !arguments.lifts) return RENAME_FIRST;
        return phase == RENAME_WRITE || phase == SPLIT_NAME ? STOP : phase + 1;
    }
    if (phase >= GROUP_CLEAR) return thread_decide_joins(arguments, phase, sums, state);
    if (phase >= MOVE_BEGIN) return thread_decide_moves(arguments, phase, sums, state);
    if (phase == BEGIN_ALONE) return STOP;
    state[FOUND] += sums.counts[NAMES];
    if (phase == FIRST_LEVEL && !arguments.is_unit) return FIRST_ARCS;
    state[LONGEST] = load_relaxed(&counters.longest);
    state[LONG_ROWS] = load_relaxed(&counters.hubs);
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
