// Louvain and Leiden on one device: what the steps of levels_cuda.py have in common. CPU counterpart: cpu.py, which
// has the invariants. One kernel has all steps, in phases; the host runs them level by level, and writes the
// arrays of a level into the arguments.
//
// A level has vertices by *position*, which is the vertex itself in all levels but the first, whose rows are in
// device order. Communities and parts are named by vertices of the level, not by positions: hashes and ties are
// those of the CPU. Sums of weights are integers, and scores are rounded as on the CPU, so the order of threads
// changes nothing.
//
// moves.cuh moves vertices and refines communities, aggregation.cuh makes the next level, renaming.cuh takes
// communities from level to level.
#pragma once

#include "algorithms/communities/listing.cuh"

constexpr u32 BATCH = 4;                   // items that a thread loads before it looks at the first
constexpr u32 TINY_ARCS = 8;               // of rows that a thread visits
constexpr u32 LIST_ARCS = 16;              // of communities that a thread joins
constexpr u32 WARP_SLOTS = 512;            // of a warp's table
constexpr u32 WARP_ARCS = WARP_SLOTS / 2;  // of rows that a warp visits
constexpr u32 GROUP_WARPS = 4;             // warps of a block that visit a row together
constexpr u32 MOST_HUGE = 32;  // communities whose arcs to each other are added up first
constexpr u32 MOST_CLASSES = 1024;
constexpr u64 FEW_VERTICES = 2048, FEW_ARCS = 16 * FEW_VERTICES;  // that one block visits
// Kinds of rows, the longest first, of which ROW_LONG is the first.
enum RowKind : u32 { ROW_BLOCK = 1, ROW_GROUP, ROW_WARP, ROW_TINY, KINDS };
using VertexLists = Lists<MOST_CLASSES, KINDS>;

enum LevelPhase : u32 {
    FIRST_LEVEL,  // lengths of rows
    FIRST_ARCS,   // masses of vertices
    BEGIN_ALONE,  // each vertex is a community
    MOVE_BEGIN,   // moves.cuh
    MOVE_COUNT,   // count active vertices by class and kind of row
    MOVE_LIST,    // list them
    MOVE_DECIDE,  // vertices of a class choose, and neighbours of those that moved before become active
    MOVE_ADD,      // the next batch of long rows
    MOVE_CHOOSE,   // vertices of long rows with many communities choose
    MOVE_TAKE,     // vertices move
    GROUP_CLEAR,   // aggregation.cuh
    GROUP_MARK,    // find the names that occur
    GROUP_COUNT,   // count them
    GROUP_NUMBER,  // number them
    JOIN_CLEAR,    // masses of new vertices
    JOIN_COUNT,    // count members and their arcs
    JOIN_LAYOUT,   // choose places for members
    JOIN_PLACES,   // choose places for the rows and tables of the largest
    JOIN_MEMBERS,  // list members
    JOIN_ROWS,     // sum up arcs
    JOIN_BIGS,     // write the rows of the largest
    JOIN_END,      // find the longest row
    RENAME_CLEAR,  // renaming.cuh
    RENAME_LIFT,   // new vertices get the communities of their members
    RENAME_FIRST,  // find the smallest vertex of each community
    RENAME_WRITE,  // name communities by it
    SPLIT_BEGIN,   // vertices of the first level choose parents among their first neighbours
    SPLIT_LINKED,  // find roots
    SPLIT_JOIN,    // join the ends of arcs within communities
    SPLIT_NAME     // name connected parts by roots
};

// Words of control->state.
enum LevelState : u32 {
    SEED,
    ROUNDS,
    ENOUGH,
    REFINES,
    GROUPS,      // communities are numbered when vertices have moved
    MOST_ABOVE,  // and are joined at once if they are at most so many
    ROUND,
    START,
    MOVED,
    CLASS,
    CLASSES,  // of the round
    PREVIOUS,
    LONG_BEGIN,  // the batch of the class' long rows
    LONG_END,
    LONG_ROWS,    // of the class
    FOUND,        // result: names that occur, the sum of masses, or the weight within communities
    ARCS,         // result: arcs of the next level
    ROOM,         // result: arcs of the members of its vertices
    LONGEST,      // result: arcs of the longest row
    LONG_CHUNKS,  // result: of all long rows
    SLOTS,        // result: of tables of the largest communities
    TEAM,         // ALONE where one block moves the vertices of the round, else 0
    SINGLE        // each vertex is a community
};

enum LevelCount : u32 { VISITED, MOVES, NAMES, BOUND, UNDECIDED, LISTINGS };  // LISTINGS: rounds

using Sum = WeightSum;  // of all weights, too

struct LevelCounters {
    u64 long_rows;
    u64 in_long_rows;
    u64 bigs;  // count << BIG_SLOT_BITS | slots
    u64 arcs;
    u64 longest;
    u64 chunks;
    u64 places;  // vertices of the next level that have arcs << 32 | their members
    u32 blocks;
    u32 huge;
    u32 big_members;
    u32 groups;
    ListCounters<MOST_CLASSES, KINDS> lists;
};
constexpr u32 BIG_SLOT_BITS = 40;

// The in-arcs of a listed vertex, where arcs count in both directions.
template <bool THERE>
struct ListedIn {
    __device__ __forceinline__ void set_in(i64, u64, Sum) {}
    __device__ __forceinline__ i64 in_begin() const { return 0; }
    __device__ __forceinline__ u64 leaving(u64 arcs) const { return arcs; }
    __device__ __forceinline__ Sum in_mass() const { return 0; }
};
template <>
struct ListedIn<true> {
    i64 begin_in;
    Sum mass_in;
    u32 out_arcs;

    __device__ __forceinline__ void set_in(i64 begin, u64 leaving, Sum mass) {
        begin_in = begin;
        mass_in = mass;
        out_arcs = static_cast<u32>(leaving);
    }
    __device__ __forceinline__ i64 in_begin() const { return begin_in; }
    __device__ __forceinline__ u64 leaving(u64) const { return out_arcs; }
    __device__ __forceinline__ Sum in_mass() const { return mass_in; }
};
// A listed vertex, with what stays as it is until the vertex moves. Positions of arcs are below the sum of weights.
struct alignas(8) Listed : ListedIn<ONE_WAY> {  // so it is copied by words of 64 bits
    u32 v;
    u32 id;
    u32 own;  // its community
    u32 arcs;
    Sum begin;
    Sum mass;
};

// What blocks have found of a long row. The one of its first chunk has sums; where many slots are used, each `used`
// list is divided like the arcs, and the parts have the best community of each.
struct LongRow {
    u64 extra;
    u32 done;  // chunks, and then parts
    u32 used;  // slots
    double score;
    u32 label;
    u32 padding;
};

// A community with a table in global memory: by dense number if it has a slot for each, else a hash table.
struct Big {
    u64 begin;
    u64 slots;
    u32 community;
    u32 member_end;
};

struct Arguments {
    Stage stage;
    const i64 *begins;  // rows by position
    const i64 *ends;
    const Id *targets;     // positions
    const Sum *weights;    // or null: 1 each
    const i64 *in_begins;  // in-arcs, which count as well; or null
    const i64 *in_ends;
    const Id *in_targets;
    const Sum *in_weights;
    const Id *vertices;  // by position; null: the same
    Sum *mass;           // by position
    Sum *in_mass;        // or null: there is one mass
    Sum *total;          // by community
    Sum *in_total;
    Sum *part_total;  // by part
    Sum *in_part_total;
    Sum *other_total;  // in another level
    Sum *in_other_total;
    u32 *label;  // by position
    u32 *other;  // by position of another level
    u32 *part;   // by position
    u8 *grown;   // by part
    Listed *listed;
    u32 *chosen;  // by place in `listed`; NO_LABEL: it stays
    u8 *active;   // by position, in whole words
    u32 *firsts;  // as in Lists
    u32 *chunks;
    u32 *arena_keys;      // tables of long rows, with `block_slots` / 2 slots for each chunk
    Sum *arena_sums;      // all empty between supersteps
    u32 *arena_used;      // slots that are taken, in any order; half as many for each chunk
    LongRow *arena_rows;  // by chunk
    Schedule::Row *long_rows;
    Schedule::Row *in_long_rows;
    LevelCounters *counters;
    const u32 *group;  // by position: the names that the next level's vertices are made of
    const Sum *group_total;
    const Sum *in_group_total;
    u32 *number;  // by name: the vertex of the next level
    u32 *old;     // by vertex of the next level: its name
    u32 *map;     // by position: the vertex of the next level
    u32 *members;
    u32 *member_counts;
    u32 *member_ends;  // of the largest: its index among them
    u64 *room;         // arcs of members
    u32 *dense;        // by vertex of the next level: a number among those with arcs
    u32 *sparse;       // the inverse
    u32 *block_list;   // communities that blocks join; from the end, those of groups of warps
    Big *bigs;
    u32 *big_keys;
    Sum *big_sums;
    Sum *above_mass;
    Sum *in_above_mass;
    i64 *above_begins;
    i64 *above_ends;
    Id *above_targets;
    Sum *above_weights;
    u32 *smallest;  // by community
    u64 arena_chunks;
    double factor;
    u32 count;        // vertices of the level
    u32 above_count;  // of the next level
    u32 names;        // communities are below it
    u32 classes;      // a power of two
    u32 block_slots;
    u32 loops;    // times that arcs from a vertex to itself count
    u32 is_unit;  // masses are 1
    u32 lifts;    // communities go to the next level, not down from it
};

struct SumTable {
    u32 *keys;
    Sum *sums;
    u32 slots;

    __device__ __forceinline__ void clear(u32 slot) const {
        store_system(keys + slot, NO_LABEL);
        store_system(sums + slot, Sum(0));
    }
    // The first slot that may have a key.
    __device__ __forceinline__ u32 slot_of(u32 key) const {
        return static_cast<u32>(u64{key * 0x9e3779b1u} * slots >> 32);
    }
    // Add to the sum of a key; return its slot, and in `is_first` whether the key was not there.
    __device__ __forceinline__ u32 add(u32 key, Sum weight, bool &is_first) const {
        for (u32 slot = slot_of(key);; slot = slot + 1 == slots ? 0 : slot + 1) {
            u32 there = load_system(keys + slot);
            is_first = false;
            if (there == NO_LABEL) {
                there = atomicCAS(keys + slot, NO_LABEL, key);
                is_first = there == NO_LABEL;
            }
            if (is_first || there == key) {
                atomicAdd(sums + slot, weight);
                return slot;
            }
        }
    }
    __device__ __forceinline__ bool add(u32 key, Sum weight) const {
        bool is_first;
        add(key, weight, is_first);
        return is_first;
    }
    // Do so for some keys, without waiting for one after the other; NO_LABEL stands for none. Most are not there yet.
    template <u32 KEYS>
    __device__ __forceinline__ void add_new(const u32 (&key)[KEYS], const Sum (&weight)[KEYS],
                                            u32 (&slot)[KEYS], bool (&is_first)[KEYS]) const {
        u32 there[KEYS];
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) {
            slot[i] = slot_of(key[i]);
            there[i] = NO_LABEL;
            if (key[i] != NO_LABEL) there[i] = atomicCAS(keys + slot[i], NO_LABEL, key[i]);
        }
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) {
            is_first[i] = key[i] != NO_LABEL && there[i] == NO_LABEL;
            if (key[i] == NO_LABEL) continue;
            if (is_first[i] || there[i] == key[i])
                atomicAdd(sums + slot[i], weight[i]);
            else
                slot[i] = add(key[i], weight[i], is_first[i]);
        }
    }
    // The same where most may be there already.
    template <u32 KEYS>
    __device__ __forceinline__ void add_all(const u32 (&key)[KEYS],
                                            const Sum (&weight)[KEYS]) const {
        u32 slot[KEYS], there[KEYS];
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) {
            slot[i] = slot_of(key[i]);
            there[i] = key[i] != NO_LABEL ? load_system(keys + slot[i]) : NO_LABEL;
        }
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) {
            if (key[i] == NO_LABEL || there[i] != NO_LABEL) continue;
            const u32 before = atomicCAS(keys + slot[i], NO_LABEL, key[i]);
            there[i] = before == NO_LABEL ? key[i] : before;
        }
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) {
            if (key[i] == NO_LABEL) continue;
            if (there[i] == key[i])
                atomicAdd(sums + slot[i], weight[i]);
            else
                add(key[i], weight[i]);
        }
    }
};

__device__ __forceinline__ VertexLists lists_of(const Arguments &arguments, const u64 *state) {
    return VertexLists{&arguments.counters->lists,
                       arguments.active,
                       arguments.firsts,
                       arguments.chunks,
                       arguments.count,
                       arguments.classes,
                       static_cast<u32>(state[CLASSES])};
}

struct Level {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;

    __device__ __forceinline__ VertexLists lists() const {
        return lists_of(arguments, block.state);
    }

    __device__ __forceinline__ u32 id_of(u32 v) const {
        return arguments.vertices ? static_cast<u32>(arguments.vertices[v]) : v;
    }
    __device__ __forceinline__ RowArcs row_of(u32 v) const {
        RowArcs row{arguments.begins[v], 0, 0, 0};
        row.leaving = row.arcs = static_cast<u64>(arguments.ends[v] - row.begin);
        if (ONE_WAY && arguments.in_begins) {
            row.in_begin = arguments.in_begins[v];
            row.arcs += static_cast<u64>(arguments.in_ends[v] - row.in_begin);
        }
        return row;
    }
    // Position and weight of an arc of a vertex.
    __device__ __forceinline__ u32 thread_arc(const RowArcs &row, u64 number, Sum &weight) const {
        const bool leaves = !ONE_WAY || number < row.leaving;
        const i64 arc = leaves ? row.begin + static_cast<i64>(number)
                               : row.in_begin + static_cast<i64>(number - row.leaving);
        const Sum *weights = leaves ? arguments.weights : arguments.in_weights;
        weight = weights ? weights[arc] : Sum(1);
        return static_cast<u32>((leaves ? arguments.targets : arguments.in_targets)[arc]);
    }
    __device__ __forceinline__ u32 class_of(u32 id, u64 start) const {
        return static_cast<u32>(thread_mix(start ^ id)) & (arguments.classes - 1);
    }
    __device__ __forceinline__ u32 group_warps() const {
        return min(GROUP_WARPS, blockDim.x / WARP);
    }
    __device__ __forceinline__ bool is_long(u64 arcs) const {
        return 2 * arcs > arguments.block_slots;
    }
    __device__ __forceinline__ u32 chunk_arcs() const { return arguments.block_slots / 4; }
    __device__ __forceinline__ u32 chunks_of(u64 arcs) const {
        return static_cast<u32>((arcs + chunk_arcs() - 1) / chunk_arcs());
    }

    // Call visit(i) for all i below `count`; threads come one by one.
    template <class Visit>
    __device__ __forceinline__ void team_each(u64 count, Visit visit) const {
        for (u64 i = team.thread(); i < count; i += team.threads()) visit(static_cast<u32>(i));
    }
    // The same, BATCH numbers for a thread at a time, whose loads overlap: visit(numbers, there).
    template <class Visit>
    __device__ __forceinline__ void team_each_batch(u64 count, Visit visit) const {
        for (u64 base = team.thread(); base < count; base += BATCH * team.threads()) {
            u32 number[BATCH];
            bool there[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u64 at = base + i * team.threads();
                there[i] = at < count;
                number[i] = there[i] ? static_cast<u32>(at) : 0;
            }
            visit(number, there);
        }
    }
    // The same; all lanes of a warp come, with false past the end.
    template <class Visit>
    __device__ __forceinline__ void team_each_lane(u64 count, Visit visit) const {
        for (u64 base = team.warp() * WARP; base < count; base += team.warps() * WARP)
            visit(static_cast<u32>(base) + lane_id(), base + lane_id() < count);
    }
    // The same of the block's range; returns its begin.
    __device__ __forceinline__ u64 block_begin(u64 count) const {
        const u64 each = (count + team.blocks - 1) / team.blocks;
        return min(count, team.block * each);
    }
    __device__ __forceinline__ u64 block_end(u64 count) const {
        const u64 each = (count + team.blocks - 1) / team.blocks;
        return min(count, (team.block + 1) * each);
    }

    // Note the length of a row of the level; lengths of 0 are for lanes without one.
    __device__ __forceinline__ void warp_note_length(u64 arcs) const {
        u64 longest = arcs;
        for (u32 step = WARP / 2; step > 0; step /= 2)
            longest = max(longest, __shfl_xor_sync(FULL_WARP, longest, step));
        const u32 chunks = __reduce_add_sync(FULL_WARP, is_long(arcs) ? chunks_of(arcs) : 0u);
        if (lane_id() != 0) return;
        if (longest > load_relaxed(&arguments.counters->longest))
            atomicMax(&arguments.counters->longest, longest);
        if (chunks) atomicAdd(&arguments.counters->chunks, static_cast<u64>(chunks));
    }

    // Bring some rows of the level to the visitor of schedule/rows.cuh.
    template <class RowOf, class Visit>
    __device__ __forceinline__ void team_visit_rows(bool enters, u64 count, RowOf row_number,
                                                    Visit visit) const {
        LevelCounters &counters = *arguments.counters;
        const Schedule schedule{enters ? arguments.in_long_rows : arguments.long_rows,
                                enters ? &counters.in_long_rows : &counters.long_rows};
        const i64 *begins = enters ? arguments.in_begins : arguments.begins;
        const i64 *ends = enters ? arguments.in_ends : arguments.ends;
        team_each_lane(count, [&](u32 i, bool is_there) {
            const u32 v = is_there ? row_number(i) : 0;
            schedule.warp_bring(is_there ? begins[v] : 0, is_there ? ends[v] : 0, v, visit);
        });
        schedule.team_finish(team, block, true, visit);
    }
    template <class Visit>
    __device__ __forceinline__ void team_visit_arcs(bool enters, Visit visit) const {
        team_visit_rows(enters, arguments.count, [](u32 v) { return v; }, visit);
    }
    __device__ __forceinline__ void thread_forget_long_rows() const {
        arguments.counters->long_rows = arguments.counters->in_long_rows = 0;
    }

    // Lengths of rows, and masses as far as these say.
    __device__ __forceinline__ void team_first_level() const {
        const bool counts = !arguments.weights;
        u64 added = 0;
        team_each_lane(arguments.count, [&](u32 v, bool is_there) {
            const RowArcs row = is_there ? row_of(v) : RowArcs{0, 0, 0, 0};
            warp_note_length(row.arcs);
            if (!is_there) return;
            const Sum mass = arguments.is_unit ? 1 : counts ? static_cast<Sum>(row.leaving) : 0;
            const Sum in_mass = arguments.is_unit ? 1
                                : counts          ? static_cast<Sum>(row.arcs - row.leaving)
                                                  : 0;
            arguments.mass[v] = mass;
            if (ONE_WAY) arguments.in_mass[v] = in_mass;
            added += mass;
        });
        __syncwarp();
        warp_count(block, NAMES, added);
        if (team.thread() == 0) thread_forget_long_rows();
    }
    __device__ __forceinline__ void team_first_arcs() const;
    __device__ __forceinline__ void team_begin_alone() const {
        team_each(arguments.count, [&](u32 v) {
            const u32 id = id_of(v);
            arguments.label[v] = id;
            arguments.total[id] = arguments.mass[v];
            if (ONE_WAY) arguments.in_total[id] = arguments.in_mass[v];
        });
    }
};

// The visitor of all rows that adds to the masses of vertices what lengths of rows do not say.
struct AddMasses {
    const Level &level;
    bool enters;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = level.arguments;
        const Id *targets = enters ? arguments.in_targets : arguments.targets;
        const Sum *weights = enters ? arguments.in_weights : arguments.weights;
        Sum *masses = enters ? arguments.in_mass : arguments.mass;
        const Sum loops = enters ? 1 : arguments.loops;
        u64 added = 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            Sum mass = 0;
            if (there[i]) {
                const bool is_loop = static_cast<u32>(targets[arcs[i]]) == rows[i];
                mass =
                    weights ? (is_loop ? loops : 1) * weights[arcs[i]] : (is_loop ? loops - 1 : 0);
            }
            added += mass;
            const u32 row = __shfl_sync(FULL_WARP, rows[i], 0);
            if (__all_sync(FULL_WARP, rows[i] == row || !there[i])) {
                mass = warp_sum(mass);
                if (lane_id() != 0) mass = 0;
            }
            if (mass) atomicAdd(masses + rows[i], mass);
        }
        if (!enters) warp_count(level.block, NAMES, added);
    }
};

__device__ __forceinline__ void Level::team_first_arcs() const {
    team_visit_arcs(false, AddMasses{*this, false});
    if (ONE_WAY) team_visit_arcs(true, AddMasses{*this, true});
}
