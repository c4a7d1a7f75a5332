// Weakly connected components in supersteps: the device twin of graph/union_find.py, which names the sources.
//
// Every vertex begins below its first neighbour, if that is of higher degree, or below that one's, some hops
// on: rows are hot first, so `heads`, read in whole lines, hang nearly all of a graph with hubs below one root
// at once, and no atomic is needed.
// Then *sampled* links further neighbours of each vertex, asks some vertices for their root, and leaves out
// the rows of those that have the most frequent one: an arc from there to elsewhere stands in the row
// at its other end, too. (That is so of undirected graphs; of directed ones no row is left out. A vertex that
// comes to that root later may be left out as well: both ends of an arc that nobody looks at are below it.)
// Where hubs have not done their work, and those who are asked are in many trees, a neighbour more of each
// vertex is linked, and they are asked again.
//
// Otherwise all arcs are linked, each edge from its colder end, perhaps after rounds without atomics. Where
// neighbours stand near each other (TILED), trees begin in tiles instead, in shared memory, and rows are looked
// at again only for what leads out of them (algorithms/components/tiles.cuh).
//
// In the end roots are known, every vertex lowers its root's label to its own number, and takes that label.
// Where words lie on every device, the forests of devices are merged in pairs before that: one of a pair
// links (v, the other's parent of v) for all v, until the first device has everything.
//
// Floor, sampled, one neighbour, ids of 4 bytes, of `a` vertices with arcs: start reads heads and vertices and
// writes parents and labels, compress reads and writes parents, look reads them, settle reads parents and
// vertices and writes parents, label reads parents and writes labels: 12 words, 48 a bytes; and of each
// further neighbour 8 of offset and a sector of 32 a vertex. Linked rows: 8 a vertex and 4 an arc besides.
// rmat24_16 (a = 8.9 M): 0.43 GB are 0.11 ms at 4.0 TB/s. road4900 (a = 23.4 M, all arcs linked): 1.6 GB, 0.4 ms,
// and 3.0 ms were measured without tiles: links 1.7 and compress 0.5, chains of dependent reads, settle 0.5.
#pragma once

#include "algorithms/components/labels.cuh"
#include "algorithms/components/tiles.cuh"

enum ComponentPhase : u32 {
    BEGIN_TREES,
    HOOK_PLAINLY,
    COMPRESS,
    LINK_NEIGHBOURS,
    SAMPLE,
    LINK_ROWS,
    MERGE_FORESTS,
    FLATTEN_ROOTS,
    SETTLE,
    LABEL,
    NAME
};

enum ComponentState : u32 { TURN, LARGEST, DISTANCE, IS_MERGED };
enum ComponentCount : u32 { ROWS_DONE, ARCS_SEEN, ROOT, VOTES };

constexpr u32 MOST_HOPS =
    4;  // from head to head: a few where there are hubs; on long paths others share

// Of a warp that is asked so many are to be in one tree, or more neighbours are linked.
constexpr u32 ENOUGH_VOTES = 28;

struct Components : Labels {
    const u64 *state;

    __device__ __forceinline__ Components(const Arguments &arguments, const u64 *state)
        : Labels(arguments), state(state) {}

    // The vertex of a word on this device, and its own index: not below `active` if it is another's.
    __device__ __forceinline__ Id vertex_of_word(i64 word) const {
        return MERGE == MERGE_DIRECT ? forest.own(word) : static_cast<Id>(word);
    }
    __device__ __forceinline__ i64 index_of_word(i64 word) const {
        if (MERGE != MERGE_TREE) return word;
        const Id vertex = static_cast<Id>(word);
        return forest.owner(vertex) == stage.device ? static_cast<i64>(forest.index(vertex))
                                                    : active;
    }

    // From a vertex to its first neighbour, and so on, while these come before. Nobody writes heads, so
    // caches have those of hubs, of other devices, too.
    __device__ __forceinline__ Id thread_follow_heads(Id vertex, Id head) const {
        for (u32 hop = 1; head >= 0; hop++) {
            const Id next = forest.of_position(head);
            if (next >= vertex) break;
            vertex = next;
            if (vertex == 0 || hop == MOST_HOPS) break;
            head = arguments.heads[forest.owner(vertex)][forest.index(vertex)];
        }
        return vertex;
    }

    __device__ __forceinline__ i64 row_words() const {
        return (active + GROUP - 1) / GROUP * ROWS_A_LANE;
    }
    __device__ __forceinline__ Tiles tiles() const {
        return {forest, arguments.rows, arguments.row_bits,        arguments.row_bits + row_words(),
                active, arguments.tile, arguments.is_directed != 0};
    }

    __device__ __forceinline__ u64 team_begin(const Team &team) const {
        if constexpr (TILED) return team_begin_tiles(team);
        const Id *heads = arguments.rows.heads;
        Id *parents = arguments.parents[stage.device];
        team_visit_batches(team, arguments.words,
                           [&](const i64(&words)[BATCH], const bool (&there)[BATCH]) {
                               Id parent[BATCH], head[BATCH];
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++) {
                                   parent[i] = vertex_of_word(words[i]);
                                   const i64 index = index_of_word(words[i]);
                                   head[i] = index < active ? heads[index] : static_cast<Id>(-1);
                               }
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++) {
                                   const Id root = thread_follow_heads(parent[i], head[i]);
                                   if (there[i]) parents[words[i]] = root;
                               }
                           });
        team_label_each(team, 0);
        return 0;
    }

    __device__ __forceinline__ u64 team_begin_tiles(const Team &team) const {
        Id *parents = arguments.parents[stage.device];
        if (MERGE == MERGE_TREE) {  // other devices' vertices
            for (i64 word = team.thread(); word < arguments.words; word += team.threads())
                if (index_of_word(word) >= active) parents[word] = static_cast<Id>(word);
        }
        if (!arguments.is_ascending) team_label_each(team, 0);
        return tiles().team_join(team, parents);
    }

    __device__ __forceinline__ void team_compress(const Team &team) const {
        if (state[IS_MERGED] && stage.device != 0) return;
        const bool all = state[IS_MERGED] || state[TURN] == 0 || arguments.is_sampled;
        const u64 jumps = all ? TO_THE_ROOT : arguments.jumps;
        Id known = NO_ROOT;
        team_visit_batches(team, arguments.words,
                           [&](const i64(&words)[BATCH], const bool (&there)[BATCH]) {
                               Id vertex[BATCH], root[BATCH];
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++) vertex[i] = vertex_of_word(words[i]);
                               forest.thread_compress(vertex, there, jumps, known, root);
                               if (all && (!TILED || root[0] == root[1])) known = root[0];
                           });
    }

    // The next neighbour of every vertex that has one. Returns the arcs.
    __device__ __forceinline__ u64 team_link_neighbours(const Team &team) const {
        u64 seen = 0;
        const i64 *offsets = arguments.rows.offsets;
        for (i64 index = team.thread(); index < active; index += team.threads()) {
            const i64 arc = offsets[index] + static_cast<i64>(state[TURN]) + 1;
            if (arc >= offsets[index + 1]) continue;
            const Id u = forest.own(index), v = forest.of_position(arguments.rows.targets[arc]);
            forest.thread_link(u, v, forest.above(u), forest.above(v));
            seen++;
        }
        return seen;
    }

    // The root of most of some own vertices, which lie evenly apart. A warp, all lanes come.
    // `votes`: how many of the warp's lanes found it.
    __device__ __forceinline__ Id warp_most_frequent_root(u32 &votes) const {
        votes = WARP;
        if (active == 0) return NO_ROOT;
        const Id root = forest.above(forest.own(lane_id() * active / WARP));
        u32 best = __popc(__match_any_sync(FULL_WARP, root)) * WARP + lane_id();
        for (u32 step = WARP / 2; step > 0; step /= 2)
            best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
        votes = best / WARP;
        return __shfl_sync(FULL_WARP, root, best % WARP);
    }

    // Some arcs of rows: link(from, to, their parents) for those whose ends have different ones.
    template <class Link>
    __device__ __forceinline__ void thread_visit_arcs(const i64 (&arcs)[ARCS_A_LANE],
                                                      const u32 (&rows)[ARCS_A_LANE],
                                                      const bool (&there)[ARCS_A_LANE],
                                                      Link link) const {
        // Each edge from one end is enough, unless rows are left out.
        const bool both = arguments.is_directed || arguments.is_sampled;
        Id from[ARCS_A_LANE], to[ARCS_A_LANE], above_from[ARCS_A_LANE], above_to[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            from[i] = forest.own(rows[i]);
            to[i] = there[i] ? forest.of_position(load_once(&arguments.rows.targets[arcs[i]])) : 0;
        }
        bool wanted[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            wanted[i] = there[i] && (both || to[i] < from[i]);
            above_from[i] = wanted[i] ? forest.above(from[i]) : 0;
            above_to[i] = wanted[i] ? forest.above(to[i]) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++)
            if (wanted[i] && above_from[i] != above_to[i])
                link(from[i], to[i], above_from[i], above_to[i]);
    }

    // Arcs of rows that are to be looked at: all that `link` wants. Returns the arcs.
    template <class Link>
    __device__ __forceinline__ u64 team_visit_rows(const Team &team, StepBlock &block, Id left_out,
                                                   Link link) const {
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&rows)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            thread_visit_arcs(arcs, rows, there, link);
        };
        const MixedSchedule schedule{arguments.long_rows, &stage.control->cursors[0]};
        const i64 *offsets = arguments.rows.offsets;
        u64 seen = 0;
        for (i64 some = static_cast<i64>(WARP * team.warp()); some < active;
             some += static_cast<i64>(WARP * team.warps())) {
            const i64 row = some + lane_id();
            i64 begin = 0, end = 0;
            if (row < active && (left_out == NO_ROOT || forest.above(forest.own(row)) != left_out))
                begin = offsets[row], end = offsets[row + 1];
            seen += static_cast<u64>(end - begin);
            schedule.warp_bring(begin, end, static_cast<u32>(row), visit);
        }
        schedule.team_finish(team, block, arguments.has_long_rows, visit);
        return seen;
    }

    __device__ __forceinline__ u64 team_hook_plainly(const Team &team, StepBlock &block) const {
        return team_visit_rows(team, block, NO_ROOT, [&](Id, Id, Id above_u, Id above_v) {
            forest.thread_hook_plainly(above_u, above_v);
        });
    }

    __device__ __forceinline__ u64 team_link_rows(const Team &team, StepBlock &block) const {
        if constexpr (TILED) return team_link_leaving(team, block);
        const bool leaves_out = arguments.is_sampled && !arguments.is_directed;
        const Id largest = leaves_out ? static_cast<Id>(state[LARGEST]) - 1 : NO_ROOT;
        return team_visit_rows(team, block, largest, [&](Id u, Id v, Id above_u, Id above_v) {
            forest.thread_link(u, v, above_u, above_v);
        });
    }

    // Rows that tiles have not done with. Their arcs were counted there.
    __device__ __forceinline__ u64 team_link_leaving(const Team &team, StepBlock &block) const {
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&rows)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            thread_visit_arcs(arcs, rows, there, [&](Id u, Id v, Id above_u, Id above_v) {
                forest.thread_link(u, v, above_u, above_v);
            });
        };
        const MixedSchedule schedule{arguments.long_rows, &stage.control->cursors[0]};
        tiles().team_link_leaving(team, [&](i64 begin, i64 end, u32 row) {
            schedule.warp_bring(begin, end, row, visit);
        });
        schedule.team_finish(team, block, arguments.has_long_rows, visit);
        return 0;
    }

    // What the device `DISTANCE` further has joined. It does nothing meanwhile.
    __device__ __forceinline__ void team_merge(const Team &team) const {
        const u64 distance = state[DISTANCE], other = stage.device + distance;
        if (stage.device % (2 * distance) != 0 || other >= stage.devices) return;
        const Id *theirs = arguments.parents[other];
        for (i64 word = team.thread(); word < arguments.words; word += team.threads()) {
            const Id vertex = static_cast<Id>(word), there = theirs[word];
            if (there == vertex) continue;
            const Id above = forest.above(vertex);
            if (above != there) forest.thread_link(vertex, there, above, forest.above(there));
        }
    }
};

__device__ __forceinline__ void team_find_components(const Components &components, u32 phase,
                                                     const Team &team, StepBlock &block) {
    u64 seen = 0;
    phase &= ~ALONE;
    if (phase == BEGIN_TREES) seen = components.team_begin(team);
    if (phase == COMPRESS) components.team_compress(team);
    if (!TILED && phase == LINK_NEIGHBOURS) seen = components.team_link_neighbours(team);
    if (!TILED && phase == HOOK_PLAINLY) seen = components.team_hook_plainly(team, block);
    if (phase == LINK_ROWS) seen = components.team_link_rows(team, block);
    if (phase == MERGE_FORESTS) components.team_merge(team);
    if (phase == SETTLE) components.team_settle(team);
    if (phase == LABEL) components.team_label(team);
    if (TILED && phase == FLATTEN_ROOTS) components.tiles().team_flatten_roots(team);
    if (TILED && phase == NAME) components.team_name(team);
    if (!TILED && phase == SAMPLE) {
        if (components.stage.device == 0 && warp_id() == 0) {
            u32 votes;
            const Id root = components.warp_most_frequent_root(votes);
            warp_count(block, ROOT, lane_id() == 0 ? static_cast<u64>(root + 1) : 0);
            warp_count(block, VOTES, lane_id() == 0 ? votes : 0);
        }
        return;
    }
    warp_count(block, ROWS_DONE, team.thread() == 0 ? static_cast<u64>(components.active) : 0);
    warp_count(block, ARCS_SEEN, seen);
}

__device__ __forceinline__ u32 thread_next_round(const Arguments &arguments, const u64 *state) {
    if (state[TURN] < arguments.rounds)
        return arguments.is_sampled ? LINK_NEIGHBOURS : HOOK_PLAINLY;
    return arguments.is_sampled ? SAMPLE | ALONE : LINK_ROWS;
}

__device__ __forceinline__ u32 phase_of_labels(const Arguments &arguments) {
    return TILED && arguments.is_ascending ? NAME : SETTLE;
}

__device__ __forceinline__ u32 thread_decide_components(const Arguments &arguments, u32 phase,
                                                        const Sums &totals, u64 *state) {
    switch (phase & ~ALONE) {
        case BEGIN_TREES:
            return TILED ? LINK_ROWS : COMPRESS;
        case COMPRESS:
            return state[IS_MERGED] ? phase_of_labels(arguments)
                                    : thread_next_round(arguments, state);
        case HOOK_PLAINLY:
            state[TURN] += 1;
            return arguments.jumps ? COMPRESS : thread_next_round(arguments, state);
        case LINK_NEIGHBOURS:
            state[TURN] += 1;
            return COMPRESS;
        case SAMPLE:
            if (totals.counts[VOTES] < ENOUGH_VOTES &&
                state[TURN] < arguments.rounds + arguments.more_rounds)
                return LINK_NEIGHBOURS;
            state[LARGEST] = totals.counts[ROOT];
            return LINK_ROWS;
        case LINK_ROWS:
            state[DISTANCE] = 1;
            if (MERGE == MERGE_TREE) return MERGE_FORESTS;
            return TILED ? FLATTEN_ROOTS : SETTLE;
        case FLATTEN_ROOTS:
            return phase_of_labels(arguments);
        case MERGE_FORESTS:
            state[DISTANCE] *= 2;
            if (state[DISTANCE] < arguments.stage.devices) return MERGE_FORESTS;
            state[IS_MERGED] = 1;
            return COMPRESS;
        case SETTLE:
            return LABEL;
        default:
            return STOP;
    }
}

__device__ __forceinline__ void grid_components(const Arguments &arguments) {
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            team_find_components(Components(arguments, block.state), phase, team, block);
        },
        [&](u32 phase, const Sums &totals, u64 *state) {
            return thread_decide_components(arguments, phase, totals, state);
        });
}
