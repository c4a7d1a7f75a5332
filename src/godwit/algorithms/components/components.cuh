// Weakly connected components in supersteps: counterpart of graph/union_find.py, which cites the sources.
//
// Every vertex begins below its first neighbour if that has a higher degree, or below that one's first
// neighbour, some hops on. Rows are sorted by descending degree of their targets, so `heads`, read in whole
// lines, put nearly all of a graph with hubs below one root without an atomic.
//
// *Sampled* (Afforest): further neighbours of each vertex are linked, some vertices' roots are sampled, and
// the rows of vertices with the most frequent root are skipped: an arc from there to another tree is in the
// row of its other end, too; in directed graphs in its in-row, and where there are none, no row is skipped.
// (A vertex that joins that root later may be skipped as well: both ends of an unread arc are below it.)
// Where hubs have not joined most vertices, and the sample has many trees, one more neighbour of each vertex
// is linked before the next sample.
//
// Otherwise all arcs are linked, each edge from its end of lower degree, perhaps after rounds without
// atomics. Where neighbours are near each other (TILED), trees begin in tiles in shared memory, and rows
// are read again only for arcs that leave their tile (tiles.cuh).
//
// At the end every vertex lowers its root's label to its own number, and then takes that label. Where every
// device has a forest of its own, forests are merged in pairs before that: one of a pair links (v, the
// other's parent of v) for all v, until the first device has everything.
//
// Where the host copies what devices send (BY_HOST), every device has a forest of its own, too. A device then follows heads of
// own vertices only; the forest that it merges, and later that of the first device, are copied to it; and it
// lowers copies of all labels, the least of which the owners get before labels are copied to vertices.
//
// Lower bound, sampled, one neighbour, ids of 4 bytes, `a` vertices with arcs: BEGIN_TREES reads heads and
// vertices and writes parents and labels; COMPRESS reads and writes parents; SAMPLE and LINK_ROWS read
// them; LOWER_LABELS reads parents and vertices and writes parents; COPY_LABELS reads parents and writes
// labels: 12 words, 48 a bytes, and for each further neighbour 8 bytes of offset and a sector of 32 a
// vertex. Linked rows take 8 a vertex and 4 an arc more. rmat24_16 (a = 8.9 M): 0.43 GB, 0.11 ms at 4.0
// TB/s. road4900 (a = 23.4 M, all arcs linked): 1.6 GB, 0.4 ms; 3.0 ms were measured without tiles: links
// 1.7 and compression 0.5 (chains of dependent reads), labels 0.5.
#pragma once

#include "algorithms/components/tiles.cuh"
#include "algorithms/components/union_find.cuh"

enum ComponentPhase : u32 {
    BEGIN_TREES,
    HOOK_PLAINLY,
    COMPRESS,
    LINK_NEIGHBOURS,
    SAMPLE,
    LINK_ROWS,
    LINK_IN_ROWS,
    MERGE_FORESTS,
    FLATTEN_ROOTS,
    LOWER_LABELS,
    COPY_LABELS,
    NAME
};

enum ComponentState : u32 { TURN, LARGEST, DISTANCE, IS_MERGED };
enum ComponentCount : u32 { ROWS_DONE, ARCS_SEEN, ROOT, VOTES, COMPONENTS };

#ifndef BY_HOST
#define BY_HOST false
#endif

constexpr u32 MAX_HOPS = 4;  // from head to head; few, as long paths are shared out

// Lanes of a warp that must sample the same root, or one more neighbour is linked.
constexpr u32 ENOUGH_VOTES = 28;

struct Arguments {
    Stage stage;
    Rows<Id> rows;     // of out-arcs
    Rows<Id> in_rows;  // if sampled and directed; offsets are null where there are none
    const Id *vertices[MAX_DEVICES];  // (owned) of the graph, of each device
    MixedSchedule::Row *long_rows;
    u32 *row_bits;  // Tiles::leaving and Tiles::roots (tiles.cuh)
    const Id
        *heads[MAX_DEVICES];  // of each device: a neighbour of each vertex, of the highest degree
    Id *parents[MAX_DEVICES];
    Id *labels[MAX_DEVICES];  // (all positions), valid for own vertices
    i64 words;                // number of parents on this device
    u64 rounds;               // of linking further neighbours, or of hooking without atomics
    u64 more_rounds;          // of linking neighbours while the sample has many trees
    u64 jumps;                // of a compression after each round
    u32 is_sampled;
    u32 is_directed;
    u32 has_long_rows;
    u32 is_ascending;  // the smallest position of a component is that of its smallest vertex
    u32 tile;          // vertices of a tile
    u32 padding;
};

constexpr u32 NAMED = 8;  // vertices whose names a thread looks up at once

template <u32 COUNT = BATCH, class Visit>
__device__ __forceinline__ void team_visit_batches(const Team &team, i64 count, Visit visit) {
    const i64 apart = static_cast<i64>(team.threads());
    thread_visit_batches<COUNT>(
        static_cast<i64>(team.thread()), [&] { return apart; }, count, visit);
}

// Labels of components: the smallest of their vertices, once trees are complete. Every vertex lowers its
// root's label and then reads it. Where positions ascend with vertices, the root itself is the smallest
// vertex.
struct Labels {
    const Arguments &arguments;
    const Stage &stage;
    Forest forest;
    i64 active;  // own vertices that have arcs

    __device__ __forceinline__ explicit Labels(const Arguments &arguments)
        : arguments(arguments),
          stage(arguments.stage),
          forest{arguments.parents, stage.devices, stage.device,
                 static_cast<Unsigned>(stage.capacity)},
          active(arguments.rows.classes[CLASS_NONE]) {}

    // Label own vertices from an index on with themselves.
    __device__ __forceinline__ void team_label_each(const Team &team, i64 from) const {
        const Id *vertices = arguments.vertices[stage.device] + from;
        Id *own = arguments.labels[stage.device] + stage.first() + from;
        team_visit_batches(team, stage.owned - from,
                           [&](const i64(&index)[BATCH], const bool (&there)[BATCH]) {
                               Id vertex[BATCH];
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++) vertex[i] = vertices[index[i]];
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++)
                                   if (there[i]) own[index[i]] = vertex[i];
                           });
    }

    __device__ __forceinline__ Id *label(Id root) const {
        const Unsigned owner = forest.owner(root);
        return arguments.labels[owner] + static_cast<i64>(owner) * stage.capacity +
               forest.index(root);
    }

    __device__ __forceinline__ void thread_lower_label(Id root, Id vertex) const {
        Id *const place = label(root);
        if (MERGE == MERGE_NONE) {
            if (vertex < load_relaxed(place)) atomicMin(place, vertex);
        } else if (vertex < load_system(place)) {
            atomicMin_system(place, vertex);
        }
    }

    // Lower each root's label to the smallest vertex of its tree. For the majority root of its vertices
    // (Boyer and Moore) a thread keeps the minimum in a register until the end.
    __device__ __forceinline__ void team_lower_labels(const Team &team) const {
        Id kept = NO_ROOT, smallest = 0;
        u32 votes = 0;
        const Id *vertices = arguments.vertices[stage.device];
        team_visit_batches(team, active, [&](const i64(&index)[BATCH], const bool (&there)[BATCH]) {
            Id own[BATCH], vertex[BATCH], root[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                own[i] = forest.own(index[i]);
                vertex[i] = vertices[index[i]];
                if (MERGE == MERGE_TREE) root[i] = arguments.parents[0][own[i]];
            }
            if (MERGE != MERGE_TREE) forest.thread_compress(own, there, TO_THE_ROOT, kept, root);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (!there[i]) continue;
                if (MERGE == MERGE_TREE && stage.device != 0)
                    arguments.parents[stage.device][own[i]] = root[i];
                if (root[i] == kept) {
                    votes++;
                    smallest = min(smallest, vertex[i]);
                } else if (votes > 0) {
                    votes--;
                    thread_lower_label(root[i], vertex[i]);
                } else {
                    if (kept != NO_ROOT) thread_lower_label(kept, smallest);
                    kept = root[i], smallest = vertex[i], votes = 1;
                }
            }
        });
        if (kept != NO_ROOT) thread_lower_label(kept, smallest);
    }

    // Copy the labels of roots to all other vertices; return the number of roots.
    __device__ __forceinline__ u64 team_copy_labels(const Team &team) const {
        u64 roots = 0;
        const Id *parents = arguments.parents[stage.device];
        Id *own = arguments.labels[stage.device] + stage.first();
        team_visit_batches(team, active, [&](const i64(&index)[BATCH], const bool (&there)[BATCH]) {
            Id vertex[BATCH], root[BATCH], smallest[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                vertex[i] = forest.own(index[i]);
                root[i] = parents[MERGE == MERGE_TREE ? vertex[i] : index[i]];
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) smallest[i] = *label(root[i]);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (there[i] && root[i] != vertex[i]) own[index[i]] = smallest[i];
                roots += there[i] && root[i] == vertex[i];
            }
        });
        return roots;
    }

    __device__ __forceinline__ Id name_of(Id root) const {
        return arguments.vertices[forest.owner(root)][forest.index(root)];
    }

    // Label every vertex with its root, where the smallest position of a component is that of its smallest
    // vertex; return the number of roots. Not every thread reads the parent of the largest component's root:
    // reads of one address are served one after the other.
    __device__ __forceinline__ u64 team_name(const Team &team) const {
        u64 roots = 0;
        Id *own = arguments.labels[stage.device] + stage.first();
        Id known = NO_ROOT, named = NO_ROOT, known_name = 0;
        team_visit_batches<NAMED>(
            team, active, [&](const i64(&index)[NAMED], const bool (&there)[NAMED]) {
                Id vertex[NAMED], root[NAMED], name[NAMED];
#pragma unroll
                for (u32 i = 0; i < NAMED; i++) {
                    vertex[i] = forest.own(index[i]);
                    if (MERGE == MERGE_TREE) root[i] = arguments.parents[0][vertex[i]];
                }
                if (MERGE != MERGE_TREE) forest.thread_find(vertex, known, root);
                if (known != named) named = known, known_name = name_of(known);
#pragma unroll
                for (u32 i = 0; i < NAMED; i++)
                    name[i] = root[i] == named ? known_name : name_of(root[i]);
#pragma unroll
                for (u32 i = 0; i < NAMED; i++) {
                    if (there[i]) own[index[i]] = name[i];
                    roots += there[i] && root[i] == vertex[i];
                }
            });
        team_label_each(team, active);
        return roots;
    }
};

struct Components : Labels {
    const u64 *state;

    __device__ __forceinline__ Components(const Arguments &arguments, const u64 *state)
        : Labels(arguments), state(state) {}

    // Vertex of a word on this device, and its own index, `active` if another device owns it.
    __device__ __forceinline__ Id vertex_of_word(i64 word) const {
        return MERGE == MERGE_DIRECT ? forest.own(word) : static_cast<Id>(word);
    }
    __device__ __forceinline__ i64 index_of_word(i64 word) const {
        if (MERGE != MERGE_TREE) return word;
        const Id vertex = static_cast<Id>(word);
        return forest.owner(vertex) == stage.device ? static_cast<i64>(forest.index(vertex))
                                                    : active;
    }

    // Go from a vertex to its first neighbour, and so on, while numbers decrease. Heads are read-only, so
    // caches hold those of hubs, also of other devices.
    __device__ __forceinline__ Id thread_follow_heads(Id vertex, Id head) const {
        for (u32 hop = 1; head >= 0; hop++) {
            const Id next = forest.of_position(head);
            if (next >= vertex) break;
            vertex = next;
            if (vertex == 0 || hop == MAX_HOPS) break;
            if (BY_HOST && forest.owner(vertex) != stage.device) break;
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
        const Id *heads = arguments.heads[stage.device];
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
        if constexpr (BY_HOST) team_raise_copies(team);
        return 0;
    }

    // Raise the copies of others' labels above all vertices.
    __device__ __forceinline__ void team_raise_copies(const Team &team) const {
        Id *labels = arguments.labels[stage.device];
        const u64 count = static_cast<u64>(stage.capacity) * stage.devices;
        for (u64 position = team.thread(); position < count; position += team.threads())
            if (position / static_cast<u64>(stage.capacity) != stage.device)
                labels[position] = static_cast<Id>(~Unsigned(0) >> 1);
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

    // Link the next neighbour of every vertex that has one; return the number of arcs.
    __device__ __forceinline__ u64 team_link_neighbours(const Team &team) const {
        u64 seen = 0;
        const i64 *offsets = arguments.rows.offsets;
        for (i64 index = team.thread(); index < active; index += team.threads()) {
            const i64 arc = offsets[index] + static_cast<i64>(state[TURN]) + 1;
            if (arc >= offsets[index + 1]) continue;
            const Id u = forest.own(index), v = forest.of_position(arguments.rows.targets[arc]);
            forest.thread_link(u, v, forest.parent_of(u), forest.parent_of(v));
            seen++;
        }
        return seen;
    }

    // Sample the roots of 32 own vertices at equal distances. All lanes of a warp take part.
    __device__ __forceinline__ Id warp_sample_root(u32 &votes) const {
        votes = WARP;
        if (active == 0) return NO_ROOT;
        return warp_most_frequent(forest.parent_of(forest.own(lane_id() * active / WARP)), votes);
    }

    // Call link(from, to, parents of both) for arcs whose ends have different parents.
    template <class Link>
    __device__ __forceinline__ void thread_visit_arcs(const Id *targets,
                                                      const i64 (&arcs)[ARCS_A_LANE],
                                                      const u32 (&rows)[ARCS_A_LANE],
                                                      const bool (&there)[ARCS_A_LANE],
                                                      Link link) const {
        // One arc of each edge is enough, unless rows are skipped.
        const bool both = arguments.is_directed || arguments.is_sampled;
        Id from[ARCS_A_LANE], to[ARCS_A_LANE], parent_from[ARCS_A_LANE], parent_to[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            from[i] = forest.own(rows[i]);
            to[i] = there[i] ? forest.of_position(load_once(&targets[arcs[i]])) : 0;
        }
        bool wanted[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            wanted[i] = there[i] && (both || to[i] < from[i]);
            parent_from[i] = wanted[i] ? forest.parent_of(from[i]) : 0;
            parent_to[i] = wanted[i] ? forest.parent_of(to[i]) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++)
            if (wanted[i] && parent_from[i] != parent_to[i])
                link(from[i], to[i], parent_from[i], parent_to[i]);
    }

    // Visit the arcs of all rows but those of the tree `left_out`; return the number of arcs.
    template <class Link>
    __device__ __forceinline__ u64 team_visit_rows(const Team &team, StepBlock &block,
                                                   const Rows<Id> &linked, Id left_out,
                                                   Link link) const {
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&rows)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            thread_visit_arcs(linked.targets, arcs, rows, there, link);
        };
        const MixedSchedule schedule{arguments.long_rows, &stage.control->cursors[0]};
        const i64 *offsets = linked.offsets;
        u64 seen = 0;
        for (i64 some = static_cast<i64>(WARP * team.warp()); some < active;
             some += static_cast<i64>(WARP * team.warps())) {
            const i64 row = some + lane_id();
            i64 begin = 0, end = 0;
            if (row < active &&
                (left_out == NO_ROOT || forest.parent_of(forest.own(row)) != left_out))
                begin = offsets[row], end = offsets[row + 1];
            seen += static_cast<u64>(end - begin);
            schedule.warp_bring(begin, end, static_cast<u32>(row), visit);
        }
        schedule.team_finish(team, block, arguments.has_long_rows, visit);
        return seen;
    }

    __device__ __forceinline__ u64 team_hook_plainly(const Team &team, StepBlock &block) const {
        return team_visit_rows(team, block, arguments.rows, NO_ROOT,
                               [&](Id, Id, Id parent_u, Id parent_v) {
                                   forest.thread_hook_plainly(parent_u, parent_v);
                               });
    }

    __device__ __forceinline__ u64 team_link_rows(const Team &team, StepBlock &block,
                                                  const Rows<Id> &linked) const {
        if constexpr (TILED) return team_link_leaving(team, block);
        const bool leaves_out =
            arguments.is_sampled && (!arguments.is_directed || arguments.in_rows.offsets);
        const Id largest = leaves_out ? static_cast<Id>(state[LARGEST]) - 1 : NO_ROOT;
        return team_visit_rows(team, block, linked, largest,
                               [&](Id u, Id v, Id parent_u, Id parent_v) {
                                   forest.thread_link(u, v, parent_u, parent_v);
                               });
    }

    // Link arcs that leave their tile, and long rows. Their arcs were counted in tiles.
    __device__ __forceinline__ u64 team_link_leaving(const Team &team, StepBlock &block) const {
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&rows)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            thread_visit_arcs(arguments.rows.targets, arcs, rows, there,
                              [&](Id u, Id v, Id parent_u, Id parent_v) {
                                  forest.thread_link(u, v, parent_u, parent_v);
                              });
        };
        const MixedSchedule schedule{arguments.long_rows, &stage.control->cursors[0]};
        tiles().team_link_leaving(team, [&](i64 begin, i64 end, u32 row) {
            schedule.warp_bring(begin, end, row, visit);
        });
        schedule.team_finish(team, block, arguments.has_long_rows, visit);
        return 0;
    }

    // Merge the forest of the device `DISTANCE` further, which is idle.
    __device__ __forceinline__ void team_merge(const Team &team) const {
        const u64 distance = state[DISTANCE], other = stage.device + distance;
        if (stage.device % (2 * distance) != 0 || other >= stage.devices) return;
        const Id *theirs = arguments.parents[other];
        for (i64 word = team.thread(); word < arguments.words; word += team.threads()) {
            const Id vertex = static_cast<Id>(word), there = theirs[word];
            if (there == vertex) continue;
            const Id above = forest.parent_of(vertex);
            if (above != there) forest.thread_link(vertex, there, above, forest.parent_of(there));
        }
    }
};

__device__ __forceinline__ void team_find_components(const Components &components, u32 phase,
                                                     const Team &team, StepBlock &block) {
    u64 seen = 0, roots = 0;
    phase &= ~ALONE;
    if (phase == BEGIN_TREES) seen = components.team_begin(team);
    if (phase == COMPRESS) components.team_compress(team);
    if (!TILED && phase == LINK_NEIGHBOURS) seen = components.team_link_neighbours(team);
    if (!TILED && phase == HOOK_PLAINLY) seen = components.team_hook_plainly(team, block);
    // A single call site, so that there is one copy of the code.
    if (phase == LINK_ROWS || phase == LINK_IN_ROWS)
        seen = components.team_link_rows(
            team, block,
            phase == LINK_ROWS ? components.arguments.rows : components.arguments.in_rows);
    if (phase == MERGE_FORESTS) components.team_merge(team);
    if (phase == LOWER_LABELS) components.team_lower_labels(team);
    if (phase == COPY_LABELS) roots = components.team_copy_labels(team);
    if (TILED && phase == FLATTEN_ROOTS) components.tiles().team_flatten_roots(team);
    if (TILED && phase == NAME) roots = components.team_name(team);
    if (!TILED && phase == SAMPLE) {
        if (components.stage.device == 0 && warp_id() == 0) {
            u32 votes;
            const Id root = components.warp_sample_root(votes);
            warp_count(block, ROOT, lane_id() == 0 ? static_cast<u64>(root + 1) : 0);
            warp_count(block, VOTES, lane_id() == 0 ? votes : 0);
        }
        return;
    }
    warp_count(block, ROWS_DONE, team.thread() == 0 ? static_cast<u64>(components.active) : 0);
    warp_count(block, ARCS_SEEN, seen);
    if (phase == COPY_LABELS || (TILED && phase == NAME)) {
        const i64 alone = components.stage.owned - components.active;  // without arcs
        warp_count(block, COMPONENTS, roots + (team.thread() == 0 ? static_cast<u64>(alone) : 0));
    }
}

__device__ __forceinline__ u32 thread_next_round(const Arguments &arguments, const u64 *state) {
    if (state[TURN] < arguments.rounds)
        return arguments.is_sampled ? LINK_NEIGHBOURS : HOOK_PLAINLY;
    return arguments.is_sampled ? SAMPLE | ALONE : LINK_ROWS;
}

__device__ __forceinline__ u32 phase_of_labels(const Arguments &arguments) {
    return TILED && arguments.is_ascending ? NAME : LOWER_LABELS;
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
            if (arguments.in_rows.offsets) return LINK_IN_ROWS;
            [[fallthrough]];
        case LINK_IN_ROWS:
            state[DISTANCE] = 1;
            if (MERGE == MERGE_TREE) return MERGE_FORESTS;
            return TILED ? FLATTEN_ROOTS : LOWER_LABELS;
        case FLATTEN_ROOTS:
            return phase_of_labels(arguments);
        case MERGE_FORESTS:
            state[DISTANCE] *= 2;
            if (state[DISTANCE] < arguments.stage.devices) return MERGE_FORESTS;
            state[IS_MERGED] = 1;
            return COMPRESS;
        case LOWER_LABELS:
            return COPY_LABELS;
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
