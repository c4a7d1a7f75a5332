// Distances from many sources in a contracted graph (contraction.py), by all blocks of a device.
//
// Distances are in a *line* for each position, with a word for each source; a warp has 128 neighbouring sources, a
// *group*, so that a visit of an arc reads the words of all of them at once. From each source a
// warp climbs along kept arcs (those of a vertex when it was contracted, all to greater positions): to all their
// heads, then on from the greatest one, since shortcuts join the heads with each other, until it is in the core. In
// the core, each pair of a vertex and a group is lowered by those of its neighbours that changed since, until none
// changes. Then level by level all others are lowered along their kept arcs. Distances only fall, and what is read
// in the core may be of this superstep or of the last: the result does not depend on the order.
//
// Lower bound: 4 bytes for each kept arc and source, mostly from the second-level cache; 4 bytes written when lines
// are cleared, on the way down, and read for rows, for each vertex and source; and the rows.
#pragma once

#include "algorithms/distances/rows.cuh"

constexpr u32 ABSENT = 0xffffffffu;  // no path; lengths of no arc
constexpr u32 FAR = ABSENT - 1;      // a distance that does not fit
constexpr Result UNREACHED = static_cast<Result>(~0ull >> (65 - 8 * sizeof(Result)));
constexpr u32 EACH = 4;             // sources of a lane
constexpr u32 GROUP = EACH * WARP;  // as in cuda.py
constexpr u32 IN_FLIGHT = 4;        // lines that a lane loads at once
constexpr u32 COLUMNS = 64;         // of a tile of rows

// Counts of a superstep. The first is a run's progress.
constexpr u32 BEGUN = 0;    // sources begun
constexpr u32 VISITED = 1;  // lines read
constexpr u32 FOUND = 2;    // pairs of a source and a vertex of a column that it reaches
constexpr u32 CHANGED = 3;  // lines of the core that have changed
constexpr u32 TOO_FAR = 4;  // distances that do not fit
// Words of the state.
constexpr u32 ROUND = 0;  // of the core, from 1 on
constexpr u32 ALL_VISITED = 1;
constexpr u32 ALL_FOUND = 2;
constexpr u32 ALL_TOO_FAR = 3;
constexpr u32 LEVEL = 4;

enum SweepsPhase : u32 { BEGIN, CLIMB, CORE, DESCEND, DELIVER, SUM };

struct Arguments {
    Stage stage;
    const i64 *levels;   // first position of each level, and their end
    const i64 *offsets;  // of kept arcs, by position
    const u32 *heads;
    const u32 *up;
    const u32 *down;
    const Id *sources;  // positions
    u32 *matrix;        // [vertices][groups][GROUP]
    u32 *stamps;        // [core][groups]: round of the last change
    const u32 *wanted;  // a bit for each position whose distance counts in sums, or null: all
    const Id *columns;  // positions of the columns of `results`
    Result *results;    // [sources][columns], or null
    u64 *source_sums;   // [sources][FIELDS], or null
    u64 source_count;
    i64 column_count;
    i64 vertex_count;
    u64 level_count;
};

// Return a distance along an arc.
__device__ __forceinline__ u32 along(u32 distance, u32 length) {
    u32 sum = distance + length;
    if (sum < distance || sum > FAR) sum = FAR;
    return distance == ABSENT || length == ABSENT ? ABSENT : sum;
}

struct Sweeps {
    const Arguments &given;
    const Team &team;
    StepBlock &block;
    i64 core = given.levels[1];
    u64 groups = (given.source_count + GROUP - 1) / GROUP;
    i64 stride = static_cast<i64>(groups) * GROUP;
    u64 visited = 0, found = 0, changed = 0, too_far = 0;

    // The group's words of a position, from this lane's first on.
    __device__ __forceinline__ u32 *line(i64 position, u64 group) const {
        return given.matrix + position * stride + static_cast<i64>(group) * GROUP + lane_id();
    }
    __device__ __forceinline__ u32 *stamp(i64 position, u64 group) const {
        return given.stamps + position * static_cast<i64>(groups) + static_cast<i64>(group);
    }

    // Lower distances to those along the arcs of a row from their heads, but only from heads for which
    // `is_of_use` is true. `load` reads a word. All lanes take part.
    template <class IsOfUse, class Load>
    __device__ __forceinline__ void warp_lower(u32 (&distances)[EACH], i64 position, u64 group,
                                               IsOfUse is_of_use, Load load) {
        i64 begin = given.offsets[position], end = given.offsets[position + 1];
        for (i64 first = begin; first < end; first += WARP) {
            i64 arc = first + lane_id();
            u32 head = arc < end ? load_once(given.heads + arc) : 0;
            u32 length = arc < end ? load_once(given.down + arc) : ABSENT;
            u32 votes = __ballot_sync(FULL_WARP, length != ABSENT && is_of_use(head));
            visited += lane_id() == 0 ? __popc(votes) : 0;
            while (votes) {
                u32 words[IN_FLIGHT][EACH], lengths[IN_FLIGHT];
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++) {
                    u32 lane = votes ? static_cast<u32>(__ffs(static_cast<int>(votes)) - 1) : 0;
                    const u32 *other = line(__shfl_sync(FULL_WARP, head, lane), group);
                    lengths[i] = __shfl_sync(FULL_WARP, length, lane);
#pragma unroll
                    for (u32 j = 0; j < EACH; j++)
                        words[i][j] = votes ? load(other + j * WARP) : ABSENT;
                    votes &= votes - 1;
                }
#pragma unroll
                for (u32 i = 0; i < IN_FLIGHT; i++)
#pragma unroll
                    for (u32 j = 0; j < EACH; j++)
                        distances[j] = min(distances[j], along(words[i][j], lengths[i]));
            }
        }
    }

    __device__ __forceinline__ void count_all() {
        __syncwarp();
        warp_count(block, VISITED, visited);
        warp_count(block, FOUND, found);
        warp_count(block, CHANGED, changed);
        warp_count(block, TOO_FAR, too_far);
    }
};

__device__ __forceinline__ void team_begin(Sweeps &sweeps) {
    const Arguments &given = sweeps.given;
    const Team &team = sweeps.team;
    u64 words = static_cast<u64>(given.vertex_count) * sweeps.groups * GROUP;
    for (u64 i = team.thread(); i < words; i += team.threads()) given.matrix[i] = ABSENT;
    u64 stamps = static_cast<u64>(sweeps.core) * sweeps.groups;
    for (u64 i = team.thread(); i < stamps; i += team.threads()) given.stamps[i] = 0;
    if (given.source_sums)
        for (u64 i = team.thread(); i < given.source_count * FIELDS; i += team.threads())
            given.source_sums[i] = 0;
    if (team.thread() == 0) atomicAdd(&sweeps.block.sums.counts[BEGUN], given.source_count);
}

// From each source, lower the distances of all that can be reached along kept arcs, by a warp.
__device__ __forceinline__ void team_climb(Sweeps &sweeps) {
    const Arguments &given = sweeps.given;
    i64 stride = sweeps.stride;
    for (u64 source = sweeps.team.warp(); source < given.source_count;
         source += sweeps.team.warps()) {
        u32 *own = given.matrix + source;  // the words of this source
        i64 position = given.sources[source];
        u32 distance = 0;
        if (lane_id() == 0) own[position * stride] = 0;
        while (position >= sweeps.core) {
            i64 begin = given.offsets[position], end = given.offsets[position + 1];
            if (begin == end) break;
            for (i64 arc = begin + lane_id(); arc < end; arc += WARP) {
                u32 *word = own + given.heads[arc] * stride;
                *word = min(*word, along(distance, given.up[arc]));
            }
            position = given.heads[end - 1];
            __syncwarp();
            distance = own[position * stride];
            __syncwarp();
        }
    }
}

// Lower each line of the core once.
__device__ __forceinline__ void team_lower_core(Sweeps &sweeps) {
    u32 round = static_cast<u32>(sweeps.block.state[ROUND]);
    u64 tasks = static_cast<u64>(sweeps.core) * sweeps.groups;
    for (u64 task = sweeps.team.warp(); task < tasks; task += sweeps.team.warps()) {
        i64 position = static_cast<i64>(task / sweeps.groups);
        u64 group = task % sweeps.groups;
        u32 *own = sweeps.line(position, group);
        u32 before[EACH], distances[EACH];
        for (u32 i = 0; i < EACH; i++) before[i] = distances[i] = load_relaxed(own + i * WARP);
        sweeps.warp_lower(
            distances, position, group,
            [&](u32 head) { return load_relaxed(sweeps.stamp(head, group)) + 1 >= round; },
            [](const u32 *word) { return load_relaxed(word); });
        bool is_lower = false;
        for (u32 i = 0; i < EACH; i++) {
            if (distances[i] >= before[i]) continue;
            atomicMin(own + i * WARP, distances[i]);
            is_lower = true;
        }
        if (__any_sync(FULL_WARP, is_lower)) {
            // A thread that reads the new stamp and still the old line reads both again in the next round.
            if (lane_id() == 0) atomicMax(sweeps.stamp(position, group), round);
            sweeps.changed += lane_id() == 0;
        }
    }
}

// Lower the lines of a level, along kept arcs.
__device__ __forceinline__ void team_descend(Sweeps &sweeps) {
    const Arguments &given = sweeps.given;
    i64 begin = given.levels[sweeps.block.state[LEVEL]];
    i64 end = given.levels[sweeps.block.state[LEVEL] + 1];
    u64 tasks = static_cast<u64>(end - begin) * sweeps.groups;
    for (u64 task = sweeps.team.warp(); task < tasks; task += sweeps.team.warps()) {
        i64 position = begin + static_cast<i64>(task / sweeps.groups);
        u64 group = task % sweeps.groups;
        u32 *own = sweeps.line(position, group);
        u32 distances[EACH];
        for (u32 i = 0; i < EACH; i++) distances[i] = own[i * WARP];
        sweeps.warp_lower(
            distances, position, group, [](u32) { return true; },
            [](const u32 *word) { return *word; });
        for (u32 i = 0; i < EACH; i++) own[i * WARP] = distances[i];
    }
}

// Turn lines into rows of the results, in tiles.
__device__ __forceinline__ void team_deliver_lines(Sweeps &sweeps) {
    __shared__ u32 tile[WARP][COLUMNS + 1];
    const Arguments &given = sweeps.given;
    u64 tiles = static_cast<u64>((given.column_count + COLUMNS - 1) / COLUMNS);
    u64 parts = (given.source_count + WARP - 1) / WARP;  // of 32 rows
    u32 warps = blockDim.x / WARP;
    for (u64 task = sweeps.team.block; task < tiles * parts; task += sweeps.team.blocks) {
        u64 part = task % parts;
        i64 first = static_cast<i64>(task / parts) * COLUMNS;
        u32 width = static_cast<u32>(min(given.column_count - first, static_cast<i64>(COLUMNS)));
        const u32 *words = given.matrix + static_cast<i64>(part * WARP) + lane_id();
        __syncthreads();
        for (u32 base = warp_id(); base < width; base += warps * IN_FLIGHT) {
            u32 loaded[IN_FLIGHT];
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++) {
                u32 column = min(base + i * warps, width - 1);
                loaded[i] = words[static_cast<i64>(given.columns[first + column]) * sweeps.stride];
            }
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++)
                if (base + i * warps < width) tile[lane_id()][base + i * warps] = loaded[i];
        }
        __syncthreads();
        u32 rows = static_cast<u32>(min(given.source_count - part * WARP, static_cast<u64>(WARP)));
        for (u32 row = warp_id(); row < rows; row += warps) {
            Result *results =
                given.results + static_cast<i64>(part * WARP + row) * given.column_count + first;
            for (u32 column = lane_id(); column < width; column += WARP) {
                u32 distance = tile[row][column];
                results[column] = distance == ABSENT ? UNREACHED : static_cast<Result>(distance);
                sweeps.found += distance != ABSENT;
                sweeps.too_far += distance == FAR;
            }
        }
    }
}

// Add up the distances from each source; sums are integers, as in hops.cuh.
__device__ __forceinline__ void team_sum_lines(Sweeps &sweeps) {
    const Arguments &given = sweeps.given;
    u64 parts = (given.source_count + WARP - 1) / WARP;
    u64 slices = max(sweeps.team.warps() / parts, 1ull);
    for (u64 task = sweeps.team.warp(); task < parts * slices; task += sweeps.team.warps()) {
        u64 source = task % parts * WARP + lane_id();
        u64 sums[FIELDS] = {};
        for (i64 position = static_cast<i64>(task / parts); position < given.vertex_count;
             position += static_cast<i64>(slices)) {
            if (given.wanted && !has_bit(given.wanted, position)) continue;
            u32 distance = given.matrix[position * sweeps.stride + static_cast<i64>(source)];
            if (distance == ABSENT) continue;
            Reciprocal reciprocal(distance);
            sums[COUNT] += 1;
            sums[TOTAL] += distance;
            sums[LARGEST] = max(sums[LARGEST], static_cast<u64>(distance));
            sums[RECIPROCALS] += reciprocal.units;
            sums[FRACTIONS] += reciprocal.fractions;
            sweeps.too_far += distance == FAR;
        }
        if (sums[COUNT] == 0 || source >= given.source_count) continue;
        sweeps.found += sums[COUNT];
        thread_add_sums(given.source_sums + source * FIELDS, sums);
    }
}

__device__ __forceinline__ void grid_sweeps(const Arguments &given) {
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Sweeps sweeps{given, team, block};
        switch (phase & ~ALONE) {
            case BEGIN:
                team_begin(sweeps);
                break;
            case CLIMB:
                team_climb(sweeps);
                break;
            case CORE:
                team_lower_core(sweeps);
                break;
            case DESCEND:
                team_descend(sweeps);
                break;
            case DELIVER:
                team_deliver_lines(sweeps);
                break;
            case SUM:
                team_sum_lines(sweeps);
                break;
        }
        sweeps.count_all();
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        state[ALL_VISITED] += sums.counts[VISITED];
        state[ALL_FOUND] += sums.counts[FOUND];
        state[ALL_TOO_FAR] += sums.counts[TOO_FAR];
        switch (phase & ~ALONE) {
            case BEGIN:
                return CLIMB;
            case CLIMB:
            case CORE:
                if (phase == CLIMB || sums.counts[CHANGED] > 0) {
                    state[ROUND] += 1;
                    return CORE;
                }
                state[LEVEL] = 0;
                [[fallthrough]];
            case DESCEND:
                state[LEVEL] += 1;
                if (state[LEVEL] < given.level_count) return DESCEND;
                return given.results ? DELIVER : SUM;
            default:
                return STOP;
        }
    };
    run_steps(given.stage, body, decide);
}
