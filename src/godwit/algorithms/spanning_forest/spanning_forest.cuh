// Minimum spanning forest by Boruvka's algorithm on a list of edges, in supersteps on one GPU.
//
// Encoding: vertices are positions; an edge is the arc whose source is the smaller vertex of the graph, and its
// id is that arc's index in the graph. A key is an i64 that orders as the weight does (KeyOrder in cpu.py).
// Edges are ordered by (key, id), so no two are equal. Where keys are of 32 bits and ids, too, both are one word
// (PACKED); else they are lowered one after the other.
//
// In a round every tree, named by its root, chooses its least edge to another tree: each edge lowers the choices
// of both ends' roots by atomicMin. Chosen edges belong to the forest (cut property) and close no cycle but those of
// two trees that chose the same edge, as the order has no ties. So JOIN makes the other end of its choice each
// root's parent, without atomics, but for one of such two, and sets the edge's bit. The next round lists the edges
// whose ends have different roots, with these roots as ends. Parents may form chains as long as the graph, so roots
// are looked for JUMPS steps up, and paths compressed, in as many supersteps as it takes. After Fallin,
// Gonzalez, Seo, Burtscher: A High-Performance MST Implementation for GPUs (ECL-MST), SC 2023.
//
// In graphs with many edges the lightest, up to a pivot, come first; of the others only those are listed whose
// ends are in different trees then (filter-Kruskal: Osipov, Sanders, Singler, ALENEX 2009).
//
// The first round needs no list where rows are sorted by target (and PACKED): every vertex is a root, and its edges
// are its row. The arcs of a row to smaller vertices come first, in the order of these, as do the ids of their
// edges; then those to greater ones, whose ids are their own. So the arc of least (key, index) is that of the edge
// of least (key, id), which is looked for in the row of the smaller end. A vertex whose edge is not found in a few
// steps, behind parallel ones, chooses none: any part of the choices may be linked.
//
// There are two arrays of choices. A round uses one, and its JOIN resets the other: each root of the round once,
// by the edge it chose. The roots of the next round are among them.
//
// Bytes and atomics, rmat22_16 (m = 128 M arcs): the first round reads 8 m bytes more (1 GB), with an atomic for
// 128 arcs of a long row; light edges within its trees are not listed. Listing visits only the arcs to greater
// vertices of sorted rows of more than 4 arcs: m / 2 in place of m, twice.
//
// Lower bound, `n` vertices with arcs and `m` arcs of 4-byte ids and weights: arcs are read once, or twice with a
// pivot, 8 m bytes each time; parents and choices are written once, 20 n. rmat22_16 (m = 128 M): 2.2 GB, 0.5 ms
// at 4.0 TB/s; road4900 (m = 57.6 M): 0.9 GB, 0.2 ms.
#pragma once

#define SPLICES false
#define MERGE 0
#include "algorithms/components/union_find.cuh"
#include "runtime/cuda/include/schedule/warp.cuh"

enum ForestPhase : u32 {
    BEGIN_TREES,
    CHOOSE_ARCS,
    JOIN_CHOICES,
    LIST_EDGES,
    CHOOSE_IDS,
    JOIN_TREES,
    KEEP_EDGES,
    FLATTEN_TREES
};
enum ForestState : u32 { LISTED, TURN, IS_HEAVY, JOINED, NEEDED };
enum ForestCount : u32 { EDGES_DONE, EDGES_LISTED, TREES_JOINED, ROOTS_FURTHER };

constexpr i64 NO_KEY = 0x7fffffffffffffff;
constexpr i64 SEARCHED_ARCS = 8;  // from where a binary search ends
constexpr u64 NO_CHOICE = ~0ull;
constexpr u64 JUMPS = 32;  // of a vertex in a superstep: a chain may be as long as the graph

struct Edge {
    Id u;  // roots of the ends, at the time of listing
    Id v;
#if PACKED
    u64 word;  // key - least_key << 32 | id
#else
    i64 key;
    i64 id;
#endif
};

// Each root's least edge so far.
struct Choices {
#if PACKED
    u64 *words;
#else
    i64 *keys;
    i64 *ids;
#endif
};

struct Arguments {
    Stage stage;
    Rows<Id> rows;        // in the graph's order
    const Bits *weights;  // of their arcs; null if all weights are equal
    const Id *vertices;   // (owned) of the graph
    const i64 *shifts;    // (owned) the graph's index of a row's first arc, less the index here
    MixedSchedule::Row *long_rows;
    Id *parents[1];
    u64 *choices[2];  // (active) words; not packed: keys, then as many ids
    Edge *lists[2];
    u32 *marks;    // a bit for each arc of the graph
    i64 capacity;  // of a list
    i64 mark_words;
    i64 mask;  // KeyOrder
    i64 least;
    i64 flip;
    i64 least_key;  // PACKED: keys are not below it
    i64 pivot_key;
    i64 pivot_id;
    u32 has_pivot;
    u32 has_long_rows;
    u32 has_sorted_rows;  // the targets of each row ascend in the graph
    u32 padding;
};

struct Trees {
    const Arguments &arguments;
    const u64 *state;
    Forest forest;
    i64 active;  // vertices that have arcs

    __device__ __forceinline__ Trees(const Arguments &arguments, const u64 *state)
        : arguments(arguments),
          state(state),
          forest{arguments.parents, 1, 0, static_cast<Unsigned>(arguments.stage.capacity)},
          active(arguments.rows.classes[CLASS_NONE]) {}

    __device__ __forceinline__ u64 turn() const { return state[TURN] & 1; }

    __device__ __forceinline__ Choices choices(u64 which) const {
#if PACKED
        return {arguments.choices[which]};
#else
        i64 *keys = reinterpret_cast<i64 *>(arguments.choices[which]);
        return {keys, keys + active};
#endif
    }

    __device__ __forceinline__ void thread_reset(const Choices &chosen, Id root) const {
#if PACKED
        store_system(&chosen.words[root], NO_CHOICE);
#else
        store_system(&chosen.keys[root], NO_KEY);
        store_system(&chosen.ids[root], NO_KEY);
#endif
    }

    __device__ __forceinline__ void thread_lower_word(u64 *place, u64 word) const {
        if (word < load_relaxed(place)) atomicMin(place, word);
    }

    __device__ __forceinline__ void thread_lower(const Choices &chosen, Id root,
                                                 const Edge &edge) const {
#if PACKED
        thread_lower_word(&chosen.words[root], edge.word);
#else
        if (edge.key < load_relaxed(&chosen.keys[root])) atomicMin(&chosen.keys[root], edge.key);
#endif
    }

    __device__ __forceinline__ bool is_chosen(const Choices &chosen, Id root,
                                              const Edge &edge) const {
#if PACKED
        return chosen.words[root] == edge.word;
#else
        return chosen.ids[root] == edge.id;
#endif
    }

    __device__ __forceinline__ i64 key_of(i64 arc) const {
        if (!arguments.weights) return 0;
        return key_of_bits(load_once(&arguments.weights[arc]));
    }

    __device__ __forceinline__ i64 key_of_bits(Bits bits) const {
        i64 key = static_cast<i64>(bits) & arguments.mask;
        if (key < 0 && arguments.least) key = arguments.least - key;
        return key ^ arguments.flip;
    }

    __device__ __forceinline__ void team_begin(const Team &team) const {
        const i64 apart = static_cast<i64>(team.threads());
        const Choices chosen = choices(0);
        for (i64 vertex = team.thread(); vertex < active; vertex += apart) {
            arguments.parents[0][vertex] = static_cast<Id>(vertex);
            thread_reset(chosen, static_cast<Id>(vertex));
        }
        for (i64 word = team.thread(); word < arguments.mark_words; word += apart)
            arguments.marks[word] = 0;
    }

    // Make roots the parents of all vertices, as far as JUMPS steps reach; count those of the lane that are no roots,
    // and those whose roots are further.
    __device__ __forceinline__ void team_flatten(const Team &team, u64 &joined,
                                                 u64 &further) const {
        const Choices chosen = choices(0);
        const i64 apart = static_cast<i64>(team.threads());
        thread_visit_batches(
            static_cast<i64>(team.thread()), [&] { return apart; }, active,
            [&](const i64(&indexes)[BATCH], const bool (&there)[BATCH]) {
                Id vertices[BATCH], roots[BATCH];
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) vertices[i] = static_cast<Id>(indexes[i]);
                further += forest.thread_compress(vertices, there, JUMPS, 0, roots);
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    const bool is_root = roots[i] == vertices[i];
                    if (there[i] && is_root) thread_reset(chosen, vertices[i]);
                    joined += there[i] && !is_root;
                }
            });
    }

    // Return one of the arcs [low, high) of a sorted row, at most SEARCHED_ARCS / 2 before the first of them to a
    // vertex of the graph that is not less than a given one.
    __device__ __forceinline__ i64 thread_arc_near(i64 low, i64 high, Id vertex) const {
        while (high - low > SEARCHED_ARCS / 2) {
            const i64 middle = low + (high - low) / 2;
            if (arguments.vertices[arguments.rows.targets[middle]] < vertex)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

#if PACKED
    // A lane's least choice among arcs of one row: key - least_key << 32 | index of the arc here.
    __device__ __forceinline__ u64 thread_least(const i64 (&arcs)[ARCS_A_LANE], i64 row,
                                                const bool (&there)[ARCS_A_LANE]) const {
        Id targets[ARCS_A_LANE];
        Bits bits[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            targets[i] = there[i] ? arguments.rows.targets[arcs[i]] : static_cast<Id>(row);
            bits[i] = there[i] && arguments.weights ? arguments.weights[arcs[i]] : 0;
        }
        u64 least = NO_CHOICE;
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            if (targets[i] == row) continue;  // a self-loop
            const i64 key = arguments.weights ? key_of_bits(bits[i]) : 0;
            least = min(least, static_cast<u64>(key - arguments.least_key) << 32 |
                                   static_cast<u64>(arcs[i]));
        }
        return least;
    }

    // Choose the least arc of each row: short rows by a lane each (those of a warp are of similar lengths),
    // others by warps, with an atomic for ARCS_A_WARP arcs.
    __device__ __forceinline__ void team_choose_arcs(const Team &team, StepBlock &block) const {
        u64 *words = choices(0).words;
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&rows)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            u64 least = thread_least(arcs, rows[0], there);
            for (u32 apart = WARP / 2; apart > 0; apart /= 2)
                least = min(least, __shfl_xor_sync(FULL_WARP, least, apart));
            if (lane_id() == 0) thread_lower_word(&words[rows[0]], least);
        };
        const MixedSchedule schedule{arguments.long_rows, &arguments.stage.control->cursors[0]};
        const i64 *offsets = arguments.rows.offsets;
        for (i64 some = static_cast<i64>(WARP * team.warp()); some < active;
             some += static_cast<i64>(WARP * team.warps())) {
            const i64 row = some + lane_id();
            i64 begin = row < active ? offsets[row] : 0;
            const i64 end = row < active ? offsets[row + 1] : 0;
            if (end - begin > LONG_ROW_ARCS) {
                schedule.thread_leave(static_cast<u64>(row), begin, end);
                begin = end;
            } else if (end - begin <= WARP) {
                u64 least = NO_CHOICE;
                for (; begin < end; begin += ARCS_A_LANE) {
                    i64 arcs[ARCS_A_LANE];
                    bool there[ARCS_A_LANE];
#pragma unroll
                    for (u32 i = 0; i < ARCS_A_LANE; i++) {
                        arcs[i] = begin + i;
                        there[i] = arcs[i] < end;
                    }
                    least = min(least, thread_least(arcs, row, there));
                }
                if (row < active) words[row] = least;
            }
            WarpSchedule{}.warp_bring(begin, end, static_cast<u32>(row), visit);
        }
        schedule.team_finish(team, block, arguments.has_long_rows, visit);
    }

    // Return the id of the edge that an arc of a vertex' row stands for: its own, or that of the opposite arc,
    // which is looked for if it is -1: the first arc from the target of the same key; -1 if that is not found.
    __device__ __forceinline__ i64 thread_id_of(Id vertex, i64 arc, Id target, i64 opposite) const {
        const Id own = arguments.vertices[vertex];
        if (own < arguments.vertices[target]) return arc + arguments.shifts[vertex];
        if (opposite >= 0) return opposite + arguments.shifts[target];
        const i64 *offsets = arguments.rows.offsets;
        const i64 end = offsets[target + 1];
        const i64 low = thread_arc_near(offsets[target], end, own);
        Id targets[SEARCHED_ARCS];
#pragma unroll
        for (i64 i = 0; i < SEARCHED_ARCS; i++)
            targets[i] = low + i < end ? arguments.rows.targets[low + i] : target;
        const i64 key = key_of(arc);
#pragma unroll
        for (i64 i = 0; i < SEARCHED_ARCS; i++)
            if (targets[i] == vertex && key_of(low + i) == key)
                return low + i + arguments.shifts[target];
        return -1;
    }

    // Make the vertex that each vertex chose its parent, but of two that chose each other only that of the larger;
    // vertex 0 stays a root, as union_find.cuh demands. Return the number of the lane's choices.
    __device__ __forceinline__ u64 team_join_choices(const Team &team) const {
        const u64 *words = choices(0).words;
        const Id *targets = arguments.rows.targets;
        u64 linked = 0;
        const i64 apart = static_cast<i64>(team.threads());
        thread_visit_batches(
            static_cast<i64>(team.thread()), [&] { return apart; }, active,
            [&](const i64(&vertices)[BATCH], const bool (&there)[BATCH]) {
                i64 arcs[BATCH], back_arcs[BATCH];
                Id to[BATCH], back[BATCH];
                bool wanted[BATCH];
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    const u64 word = words[vertices[i]];
                    wanted[i] = there[i] && vertices[i] != 0 && word != NO_CHOICE;
                    arcs[i] = static_cast<i64>(word & 0xffffffffull);
                }
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) to[i] = wanted[i] ? targets[arcs[i]] : 0;
#pragma unroll
                for (u32 i = 0; i < BATCH; i++)
                    back_arcs[i] = wanted[i] ? static_cast<i64>(words[to[i]] & 0xffffffffull) : 0;
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) back[i] = wanted[i] ? targets[back_arcs[i]] : 0;
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    const Id vertex = static_cast<Id>(vertices[i]);
                    const bool is_mutual = back[i] == vertex;
                    if (!wanted[i] || (is_mutual && vertex < to[i])) continue;
                    const i64 id = is_mutual ? thread_id_of(to[i], back_arcs[i], vertex, arcs[i])
                                             : thread_id_of(vertex, arcs[i], to[i], -1);
                    if (id < 0) continue;
                    set_bits(&arguments.marks[id / 32], 1u << id % 32);
                    arguments.parents[0][vertex] = to[i];
                    linked++;
                }
            });
        return linked;
    }
#endif

    // Append edges to a list, and lower their roots' choices; return how many of the lane's there are. An edge
    // beyond the capacity is only counted: the host enlarges the lists, and all is listed again. All lanes call it.
    template <u32 COUNT>
    __device__ __forceinline__ u32 warp_list(Edge *list, const Choices &chosen,
                                             const Edge (&edges)[COUNT],
                                             const bool (&wanted)[COUNT]) const {
        u32 own = 0;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) own += wanted[i];
        const u32 end = warp_sum_up_to(own);
        const u32 total = __shfl_sync(FULL_WARP, end, WARP - 1);
        if (total == 0) return 0;
        u64 place = 0;
        if (lane_id() == 0)
            place = atomicAdd(&arguments.stage.control->cursors[1], static_cast<u64>(total));
        place = __shfl_sync(FULL_WARP, place, 0) + end - own;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!wanted[i]) continue;
            if (static_cast<i64>(place) < arguments.capacity) list[place] = edges[i];
            place++;
            thread_lower(chosen, edges[i].u, edges[i]);
            thread_lower(chosen, edges[i].v, edges[i]);
        }
        return own;
    }

    __device__ __forceinline__ u32 warp_list_arcs(const i64 (&arcs)[ARCS_A_LANE],
                                                  const u32 (&rows)[ARCS_A_LANE],
                                                  const bool (&there)[ARCS_A_LANE]) const {
        const bool is_heavy = state[IS_HEAVY];
        Edge edges[ARCS_A_LANE];
        bool wanted[ARCS_A_LANE];
        i64 keys[ARCS_A_LANE], ids[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            keys[i] = there[i] ? key_of(arcs[i]) : 0;
            ids[i] = there[i] ? arcs[i] + arguments.shifts[rows[i]] : 0;
            const bool is_light = keys[i] < arguments.pivot_key ||
                                  (keys[i] == arguments.pivot_key && ids[i] <= arguments.pivot_id);
            wanted[i] = there[i] && is_light != is_heavy;
            edges[i].u = static_cast<Id>(rows[i]);
            edges[i].v = wanted[i] ? load_once(&arguments.rows.targets[arcs[i]]) : 0;
        }
        Id from[ARCS_A_LANE], to[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            from[i] = edges[i].u, to[i] = edges[i].v;
            if (state[JOINED] && wanted[i]) {  // trees are flat, and many edges are within one
                edges[i].u = arguments.parents[0][from[i]];
                edges[i].v = arguments.parents[0][to[i]];
                wanted[i] = edges[i].u != edges[i].v;
            }
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            wanted[i] = wanted[i] && arguments.vertices[from[i]] < arguments.vertices[to[i]];
#if PACKED
            edges[i].word =
                static_cast<u64>(keys[i] - arguments.least_key) << 32 | static_cast<u64>(ids[i]);
#else
            edges[i].key = keys[i], edges[i].id = ids[i];
#endif
        }
        return warp_list(arguments.lists[0], choices(0), edges, wanted);
    }

    __device__ __forceinline__ u64 team_list(const Team &team, StepBlock &block) const {
        u64 listed = 0;
        const auto visit = [&](const i64(&arcs)[ARCS_A_LANE], const u32(&rows)[ARCS_A_LANE],
                               const bool (&there)[ARCS_A_LANE]) {
            listed += warp_list_arcs(arcs, rows, there);
        };
        const MixedSchedule schedule{arguments.long_rows, &arguments.stage.control->cursors[0]};
        const i64 *offsets = arguments.rows.offsets;
        for (i64 some = static_cast<i64>(WARP * team.warp()); some < active;
             some += static_cast<i64>(WARP * team.warps())) {
            const i64 row = some + lane_id();
            i64 begin = row < active ? offsets[row] : 0;
            const i64 end = row < active ? offsets[row + 1] : 0;
            if (arguments.has_sorted_rows && row < active)  // arcs to smaller vertices come first
                begin = thread_arc_near(begin, end, arguments.vertices[row]);
            schedule.warp_bring(begin, end, static_cast<u32>(row), visit);
        }
        schedule.team_finish(team, block, arguments.has_long_rows, visit);
        return listed;
    }

    // Call visit(edges, there) for all edges of a list, some for each lane. All lanes of a warp call it.
    template <u32 COUNT, class Visit>
    __device__ __forceinline__ void team_visit_edges(const Team &team, const Edge *list,
                                                     Visit visit) const {
        const i64 count = static_cast<i64>(state[LISTED]);
        const i64 apart = static_cast<i64>(WARP * COUNT * team.warps());
        for (i64 first = static_cast<i64>(WARP * COUNT * team.warp()); first < count;
             first += apart) {
            Edge edges[COUNT];
            bool there[COUNT];
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                const i64 place = first + i * WARP + lane_id();
                there[i] = place < count;
                edges[i] = list[there[i] ? place : first];
            }
            visit(edges, there);
        }
    }

#if !PACKED
    // Among the edges whose key a root has chosen, choose the least id.
    __device__ __forceinline__ void team_choose_ids(const Team &team) const {
        const Choices chosen = choices(turn());
        team_visit_edges<BATCH>(team, arguments.lists[turn()],
                                [&](const Edge(&edges)[BATCH], const bool (&there)[BATCH]) {
#pragma unroll
                                    for (u32 i = 0; i < BATCH; i++) {
                                        if (!there[i]) continue;
                                        for (const Id root : {edges[i].u, edges[i].v})
                                            if (chosen.keys[root] == edges[i].key)
                                                atomicMin(&chosen.ids[root], edges[i].id);
                                    }
                                });
    }
#endif

    // Link each root to the other end of the edge that it chose; of two that chose the same edge only the larger.
    // Vertex 0 stays a root, as union_find.cuh demands. Each root has one choice, so no two threads store one's parent.
    __device__ __forceinline__ u64 team_join(const Team &team) const {
        const Choices chosen = choices(turn()), coming = choices(1 - turn());
        u64 joined = 0;
        team_visit_edges<BATCH>(
            team, arguments.lists[turn()],
            [&](const Edge(&edges)[BATCH], const bool (&there)[BATCH]) {
                bool is_of_u[BATCH], is_of_v[BATCH];
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    is_of_u[i] = there[i] && is_chosen(chosen, edges[i].u, edges[i]);
                    is_of_v[i] = there[i] && is_chosen(chosen, edges[i].v, edges[i]);
                }
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    if (!is_of_u[i] && !is_of_v[i]) continue;
                    const Id u = edges[i].u, v = edges[i].v;
                    if (is_of_u[i]) thread_reset(coming, u);
                    if (is_of_v[i]) thread_reset(coming, v);
                    const Id child = is_of_u[i] && is_of_v[i] ? max(u, v) : is_of_u[i] ? u : v;
                    if (child == 0) continue;
                    arguments.parents[0][child] = child == u ? v : u;
#if PACKED
                    const u64 id = edges[i].word & 0xffffffffull;
#else
                    const u64 id = static_cast<u64>(edges[i].id);
#endif
                    set_bits(&arguments.marks[id / 32], 1u << id % 32);
                    joined++;
                }
            });
        return joined;
    }

    // List the edges that are still between different trees; count ends whose roots are further than JUMPS steps.
    // If there are any, the list is incomplete, and the superstep is repeated.
    __device__ __forceinline__ u64 team_keep(const Team &team, u64 &further) const {
        const Choices coming = choices(1 - turn());
        u64 kept = 0;
        team_visit_edges<BATCH>(
            team, arguments.lists[turn()],
            [&](const Edge(&edges)[BATCH], const bool (&there)[BATCH]) {
                Id u[BATCH], v[BATCH], root_u[BATCH], root_v[BATCH];
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) u[i] = edges[i].u, v[i] = edges[i].v;
                const u32 far = forest.thread_compress(u, there, JUMPS, 0, root_u) +
                                forest.thread_compress(v, there, JUMPS, 0, root_v);
                further += far;
                Edge left[BATCH];
                bool wanted[BATCH];
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    left[i] = edges[i];
                    left[i].u = root_u[i], left[i].v = root_v[i];
                    wanted[i] = there[i] && far == 0 && root_u[i] != root_v[i];
                }
                kept += warp_list(arguments.lists[1 - turn()], coming, left, wanted);
            });
        return kept;
    }
};

__device__ __forceinline__ void team_span(const Trees &trees, u32 phase, const Team &team,
                                          StepBlock &block) {
    u64 listed = 0, joined = 0, done = 0, further = 0;
    if (phase == BEGIN_TREES) trees.team_begin(team);
    if (phase == FLATTEN_TREES) trees.team_flatten(team, joined, further);
    if (phase == LIST_EDGES) listed = done = trees.team_list(team, block);
#if PACKED
    if (phase == CHOOSE_ARCS) trees.team_choose_arcs(team, block);
    if (phase == JOIN_CHOICES) done = trees.team_join_choices(team);
#else
    if (phase == CHOOSE_IDS) trees.team_choose_ids(team);
#endif
    if (phase == JOIN_TREES) joined = trees.team_join(team);
    if (phase == KEEP_EDGES) listed = done = trees.team_keep(team, further);
    warp_count(block, EDGES_DONE, done);
    warp_count(block, EDGES_LISTED, listed);
    warp_count(block, TREES_JOINED, joined);
    warp_count(block, ROOTS_FURTHER, further);
}

__device__ __forceinline__ u32 thread_decide_forest(const Arguments &arguments, u32 phase,
                                                    const Sums &totals, u64 *state) {
    switch (phase) {
        case BEGIN_TREES:
            return PACKED && arguments.has_sorted_rows ? CHOOSE_ARCS : LIST_EDGES;
        case CHOOSE_ARCS:
            return JOIN_CHOICES;
        case JOIN_CHOICES:
            return FLATTEN_TREES;
        case FLATTEN_TREES:
            if (totals.counts[ROOTS_FURTHER]) return FLATTEN_TREES;
            state[JOINED] = totals.counts[TREES_JOINED];
            return LIST_EDGES;
        case LIST_EDGES:
            state[NEEDED] = totals.counts[EDGES_LISTED];
            if (static_cast<i64>(state[NEEDED]) > arguments.capacity)
                return LIST_EDGES | LEAVE_FIRST;
            break;
        case JOIN_TREES:
            state[JOINED] += totals.counts[TREES_JOINED];
            return KEEP_EDGES;
        case KEEP_EDGES:
            if (totals.counts[ROOTS_FURTHER]) return KEEP_EDGES;
            state[TURN] += 1;
            break;
        default:  // CHOOSE_IDS
            return JOIN_TREES;
    }
    state[LISTED] = totals.counts[EDGES_LISTED];
    if (state[LISTED]) return PACKED ? JOIN_TREES : CHOOSE_IDS;
    if (!arguments.has_pivot || state[IS_HEAVY]) return STOP;
    state[IS_HEAVY] = 1;
    state[TURN] = 0;
    return FLATTEN_TREES;
}

__device__ __forceinline__ void grid_span(const Arguments &arguments) {
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            team_span(Trees(arguments, block.state), phase, team, block);
        },
        [&](u32 phase, const Sums &totals, u64 *state) {
            return thread_decide_forest(arguments, phase, totals, state);
        });
}
