// Label propagation on one device. CPU counterpart: move_vertices and propagate_labels of cpu.py, which have
// the invariants: all vertices of a class decide on one state, then all of them take their labels, so the
// result is that of the CPU, bit for bit. Labels are vertices of the graph, by position; arcs name positions.
//
// A round counts and lists the active vertices by bins: of class and kind of row. Then each class takes some
// supersteps. LABEL_DECIDE reads labels: vertices of the class choose, and the neighbours of those of the class
// before that took another label become active, as seen before this class moves; those whose turn is still to come
// are visited anyway. LABEL_TAKE writes labels. In the order of Graphalytics (CDLP) there is one class, whose list
// is made once.
//
// Weights are added up by label in hash tables with linear probing: in registers for TINY rows, in shared memory
// for rows of a warp. LONG rows are divided into chunks, which warps add to tables in global memory, the arena;
// LABEL_CHOOSE finds the best of each part of a table, and clears it, and LABEL_TAKE the best of all parts. Where
// the arena has no room for all long rows of a class, they come in batches (LABEL_ADD). The vertex' own label and
// that of its first neighbour, which most neighbours may have, are added up in registers first: all threads would
// wait for one slot. Sums are integers, and the best label is a maximum in a total order: no schedule of threads
// changes it.
//
// In the end, union-find divides communities that are not connected (connected.cuh).
#pragma once

#include "algorithms/communities/connected.cuh"
#include "algorithms/communities/listing.cuh"

constexpr u32 TINY_ARCS = 8;
constexpr u32 WARP_SLOTS = 512;                  // of a warp's table
constexpr u32 WARP_ARCS = WARP_SLOTS / 2;        // of rows that a warp visits
constexpr u32 ROW_CHUNK_ARCS = 256;              // of a long row
constexpr u32 CHUNK_SLOTS = 2 * ROW_CHUNK_ARCS;  // of its table, for each chunk
constexpr u32 MOST_CLASSES = 64;
// Kinds of rows, the longest first, of which ROW_LONG is the first.
enum RowKind : u32 { ROW_WARP = 1, ROW_TINY, KINDS };
using VertexLists = Lists<MOST_CLASSES, KINDS>;

enum LabelPhase : u32 {
    LABEL_BEGIN,
    LABEL_COUNT,  // in the first round, vertices get their labels first
    LABEL_LIST,
    LABEL_DECIDE,
    LABEL_ADD,     // the next batch of long rows
    LABEL_CHOOSE,  // the best of the parts of their tables
    LABEL_TAKE,
    LABEL_LINK,    // to parents among the first neighbours
    LABEL_LINKED,  // find roots
    LABEL_SPLIT,   // join the ends of arcs within communities
    LABEL_NAME     // replace labels by roots
};

// Words of control->state. LONG_BEGIN and LONG_END are the batch of the class' long rows, CLASSES those of the round.
enum LabelState : u32 {
    SEED,
    ROUNDS,
    ROUND,
    START,
    MOVED,
    CLASS,
    PREVIOUS,
    LONG_BEGIN,
    LONG_END,
    CLASSES
};

// WITHIN: the weight within communities.
enum LabelCount : u32 { VISITED, MOVES, WITHIN };

using Sum = WeightSum;   // u32 without weights
using Slot = TableSlot;  // u32 with weights, u64 without
constexpr Slot NO_SLOT = static_cast<Slot>(~0ull);

// What a part of a long row's table holds: its best label, and the sum of the vertex' own.
struct LongPart {
    u64 sum;
    u64 tie;
    u64 own;
    u32 label;
    u32 padding;
};

// A listed vertex, with what a visit needs: what it reads lies side by side with that of the next one.
struct Listed {
    u32 v;
    u32 id;
    u32 own;  // its label, which stays until its class moves; in the order of Graphalytics the first one
    u32 leaving;  // arcs from it
    i64 begin;    // the first of them
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;  // of a directed graph
    const i64 *out_weights;
    const i64 *in_weights;
    const Id *vertices;  // by position
    u32 *label;
    u32 *chosen;  // by place in `listed`; NO_LABEL: it stays
    Listed *listed;
    u8 *active;   // by position, in whole words
    u32 *parent;  // by position
    u32 *firsts;  // as in Lists
    u32 *chunks;
    Slot *arena_keys;
    Sum *arena_sums;  // of weights
    LongPart *parts;  // by chunk of the class
    Schedule::Row *long_rows;
    ListCounters<MOST_CLASSES, KINDS> *counters;
    u64 arena_chunks;
    u32 classes;
    u32 is_directed;
    u32 loops;  // times that arcs from a vertex to itself count
    u32 padding;
};

// A label with the sum of its weights. A larger sum is better, then a smaller tie, which no other label has.
struct Candidate {
    Sum sum;
    u64 tie;
    u32 label;

    __device__ __forceinline__ void take(const Candidate &other) {
        if (other.sum > sum || (other.sum == sum && other.tie < tie)) *this = other;
    }
};

constexpr Candidate NO_CANDIDATE{0, ~0ull, NO_LABEL};

// Return the best candidate of all lanes, which come with different labels, to all of them.
__device__ __forceinline__ Candidate warp_best(Candidate best) {
    if constexpr (WEIGHTED) {
        for (u32 step = WARP / 2; step > 0; step /= 2) {
            const Candidate other{__shfl_xor_sync(FULL_WARP, best.sum, step),
                                  __shfl_xor_sync(FULL_WARP, best.tie, step),
                                  __shfl_xor_sync(FULL_WARP, best.label, step)};
            best.take(other);
        }
        return best;
    }
    const u32 most = __reduce_max_sync(FULL_WARP, static_cast<u32>(best.sum));
    bool is_best = best.sum == most;
    const u32 high = static_cast<u32>(best.tie >> 32), low = static_cast<u32>(best.tie);
    const u32 least_high = __reduce_min_sync(FULL_WARP, is_best ? high : ~0u);
    is_best = is_best && high == least_high;
    const u32 least_low = __reduce_min_sync(FULL_WARP, is_best ? low : ~0u);
    is_best = is_best && low == least_low;
    const u32 whose = __ffs(static_cast<int>(__ballot_sync(FULL_WARP, is_best))) - 1;
    return Candidate{most, __shfl_sync(FULL_WARP, best.tie, whose),
                     __shfl_sync(FULL_WARP, best.label, whose)};
}

// A hash table of sums by label. Without weights, label and sum are one word, so that a label that was not there
// yet takes one atomic: label << 32 | sum. `sums` are of weights alone.
struct LabelTable {
    Slot *keys;
    Sum *sums;
    u32 slots;

    __device__ __forceinline__ void clear(u32 slot) const {
        store_system(keys + slot, NO_SLOT);
        if constexpr (WEIGHTED) store_system(sums + slot, Sum(0));
    }
    __device__ __forceinline__ LabelTable from(u64 slot, u32 count) const {
        return LabelTable{keys + slot, WEIGHTED ? sums + slot : sums, count};
    }
    static __device__ __forceinline__ u32 label_of(Slot key) {
        if constexpr (WEIGHTED) return static_cast<u32>(key);
        return static_cast<u32>(static_cast<u64>(key) >> 32);
    }
    // Return the sum of a slot that no thread changes at the same time.
    __device__ __forceinline__ Sum sum_of(u32 slot, Slot key) const {
        if constexpr (WEIGHTED) return load_system(sums + slot);
        return static_cast<Sum>(key);
    }
    __device__ __forceinline__ u32 slot_of(u32 label) const {
        return static_cast<u32>(u64{label * 0x9e3779b1u} * slots >> 32);
    }
    // Put a label that is alone into a slot, if that is empty; return what was there.
    __device__ __forceinline__ Slot put(u32 slot, u32 label, Sum weight) const {
        Slot wanted = static_cast<Slot>(label);
        if constexpr (!WEIGHTED)
            wanted = static_cast<Slot>(static_cast<u64>(label) << 32 | static_cast<u64>(weight));
        return atomicCAS(keys + slot, NO_SLOT, wanted);
    }
    // Add to the sum of a slot where put() has found something, or nothing; return whether it has the label.
    __device__ __forceinline__ bool add_at(u32 slot, Slot there, u32 label, Sum weight) const {
        if (there != NO_SLOT && label_of(there) != label) return false;
        if constexpr (WEIGHTED)
            atomicAdd(sums + slot, weight);
        else if (there != NO_SLOT)
            atomicAdd(keys + slot, static_cast<Slot>(weight));
        return true;
    }
    __device__ __forceinline__ void add(u32 label, Sum weight) const {
        for (u32 slot = slot_of(label); !add_at(slot, put(slot, label, weight), label, weight);)
            slot = slot + 1 == slots ? 0 : slot + 1;
    }
    // Add several labels, without waiting for one after the other; those of weight 0 do not count.
    template <u32 LABELS>
    __device__ __forceinline__ void add_all(const u32 (&label)[LABELS],
                                            const Sum (&weight)[LABELS]) const {
        Slot there[LABELS];
#pragma unroll
        for (u32 i = 0; i < LABELS; i++)
            if (weight[i]) there[i] = put(slot_of(label[i]), label[i], weight[i]);
#pragma unroll
        for (u32 i = 0; i < LABELS; i++)
            if (weight[i] && !add_at(slot_of(label[i]), there[i], label[i], weight[i]))
                add(label[i], weight[i]);
    }
};

__device__ __forceinline__ Sum warp_total(Sum amount) {
    if constexpr (WEIGHTED)
        return lanes_sum(amount);
    else
        return __reduce_add_sync(FULL_WARP, static_cast<u32>(amount));
}

__device__ __forceinline__ VertexLists lists_of(const Arguments &arguments, const u64 *state) {
    return VertexLists{arguments.counters,
                       arguments.active,
                       arguments.firsts,
                       arguments.chunks,
                       static_cast<u64>(arguments.stage.owned),
                       arguments.classes,
                       static_cast<u32>(state[CLASSES])};
}

using Units = VertexLists::Units;

struct Labels {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;

    __device__ __forceinline__ VertexLists lists() const {
        return lists_of(arguments, block.state);
    }
    __device__ __forceinline__ RowKind kind_of(u64 arcs) const {
        if (arcs <= TINY_ARCS) return ROW_TINY;
        return arcs <= WARP_ARCS ? ROW_WARP : static_cast<RowKind>(ROW_LONG);
    }
    static __device__ __forceinline__ u32 chunks_of(u64 arcs) {
        return static_cast<u32>((arcs + ROW_CHUNK_ARCS - 1) / ROW_CHUNK_ARCS);
    }
    static __device__ __forceinline__ u64 word_of(const Listed &listed, u64 start) {
        return thread_mix(start + u64{listed.id});
    }
    __device__ __forceinline__ u32 own_of(const Listed &listed) const {
        return IS_CDLP ? arguments.label[listed.v] : listed.own;
    }

    __device__ __forceinline__ RowArcs row_of(u32 v, i64 begin, u64 leaving) const {
        RowArcs row{begin, 0, leaving, leaving};
        if (arguments.is_directed) {
            row.in_begin = arguments.in.offsets[v];
            row.arcs += static_cast<u64>(arguments.in.offsets[v + 1] - row.in_begin);
        }
        return row;
    }
    __device__ __forceinline__ RowArcs row_of(u32 v) const {
        const i64 begin = arguments.out.offsets[v];
        return row_of(v, begin, static_cast<u64>(arguments.out.offsets[v + 1] - begin));
    }
    __device__ __forceinline__ RowArcs row_of(const Listed &listed) const {
        return row_of(listed.v, listed.begin, listed.leaving);
    }

    // The end of an arc of a row, a position.
    __device__ __forceinline__ u32 thread_end(const RowArcs &row, u64 number) const {
        const Id *targets = arguments.out.targets + row.begin;
        if (number >= row.leaving) targets = arguments.in.targets + row.in_begin - row.leaving;
        return static_cast<u32>(targets[number]);
    }

    // The weight of an arc from v to u, number `number` of its row; 0 if it does not count.
    __device__ __forceinline__ Sum thread_weight(const RowArcs &row, u64 number, u32 v,
                                                 u32 u) const {
        if (!IS_CDLP && u == v) return 0;
        if constexpr (!WEIGHTED) return 1;
        const i64 *weights = arguments.out_weights + row.begin;
        if (number >= row.leaving) weights = arguments.in_weights + row.in_begin - row.leaving;
        return static_cast<Sum>(weights[number]);
    }

    __device__ __forceinline__ u64 tie_of(u32 label, u64 word) const {
        return IS_CDLP ? label : thread_mix(word ^ label);
    }

    // The label that a vertex takes, given the best of those that it has not, and the sum of its own.
    __device__ __forceinline__ u32 choice(const Candidate &best, Sum own_sum, u32 own) const {
        if (best.sum == 0) return NO_LABEL;
        if (IS_CDLP)
            return best.sum > own_sum || (best.sum == own_sum && best.label < own) ? best.label
                                                                                   : NO_LABEL;
        return best.sum > own_sum ? best.label : NO_LABEL;
    }

    // Choose by a row of at most ARCS arcs.
    template <u32 ARCS>
    __device__ __forceinline__ u32 thread_choose(const RowArcs &row, const Listed &listed,
                                                 u64 start) const {
        const u32 v = listed.v, own = own_of(listed);
        const u64 word = word_of(listed, start);
        u32 label[ARCS];
        Sum weight[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) label[i] = i < row.arcs ? thread_end(row, i) : NO_LABEL;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            weight[i] = i < row.arcs ? thread_weight(row, i, v, label[i]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            if (i < row.arcs) label[i] = arguments.label[label[i]];
        Candidate best = NO_CANDIDATE;
        Sum own_sum = 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            Sum sum = 0;
#pragma unroll
            for (u32 j = 0; j < ARCS; j++)
                if (label[j] == label[i]) sum += weight[j];
            if (label[i] == own)
                own_sum = sum;
            else if (sum > 0 && sum >= best.sum)
                best.take(Candidate{sum, tie_of(label[i], word), label[i]});
        }
        return choice(best, own_sum, own);
    }

    // Add the arcs [first, end) of a row to a table, by a warp: there are some.
    __device__ __forceinline__ void warp_add(const LabelTable &table, const RowArcs &row, u32 v,
                                             u32 own, u64 first, u64 end) const {
        const u32 neighbour = thread_end(row, 0);
        u32 guess = NO_LABEL;
        Sum of_own = 0, of_guess = 0;
        for (u64 base = first + lane_id(); base < end; base += ARCS_A_WARP) {
            u32 label[ARCS_A_LANE];
            Sum weight[ARCS_A_LANE];
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++)
                label[i] = base + i * WARP < end ? thread_end(row, base + i * WARP) : v;
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++)
                weight[i] =
                    base + i * WARP < end ? thread_weight(row, base + i * WARP, v, label[i]) : 0;
            if (guess == NO_LABEL) guess = arguments.label[neighbour];
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++) label[i] = arguments.label[label[i]];
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++) {
                const bool is_own = label[i] == own, is_guess = !is_own && label[i] == guess;
                if (is_own) of_own += weight[i];
                if (is_guess) of_guess += weight[i];
                if (is_own || is_guess) weight[i] = 0;
            }
            table.add_all(label, weight);
        }
        __syncwarp();
        of_own = warp_total(of_own);
        of_guess = warp_total(of_guess);
        if (lane_id() == 0 && of_own) table.add(own, of_own);
        if (lane_id() == 0 && of_guess) table.add(guess, of_guess);
    }

    __device__ __forceinline__ void warp_choose(const LabelTable &table, u32 place,
                                                u64 start) const {
        const Listed listed = arguments.listed[place];
        const u32 own = own_of(listed);
        const RowArcs row = row_of(listed);
        const u64 word = word_of(listed, start);
        const LabelTable part = table.from(0, slots_for(row.arcs));
        for (u32 slot = lane_id(); slot < part.slots; slot += WARP) part.clear(slot);
        __syncwarp();
        warp_add(part, row, listed.v, own, 0, row.arcs);
        __syncwarp();
        Candidate best = NO_CANDIDATE;
        Sum own_sum = 0;
        for (u32 slot = lane_id(); slot < part.slots; slot += WARP) {
            const Slot key = load_system(part.keys + slot);
            if (key != NO_SLOT)
                thread_weigh(part.label_of(key), part.sum_of(slot, key), own, word, best, own_sum);
        }
        __syncwarp();
        best = warp_best(best);
        own_sum = warp_total(own_sum);
        if (lane_id() == 0) arguments.chosen[place] = choice(best, own_sum, own);
        __syncwarp();
    }

    __device__ __forceinline__ void thread_weigh(u32 label, Sum sum, u32 own, u64 word,
                                                 Candidate &best, Sum &own_sum) const {
        if (label == own)
            own_sum = sum;
        else if (sum >= best.sum)
            best.take(Candidate{sum, tie_of(label, word), label});
    }

    __device__ __forceinline__ LabelTable arena() const {
        return LabelTable{arguments.arena_keys, arguments.arena_sums, 0};
    }

    // Add a chunk of a long row to the row's table.
    __device__ __forceinline__ void warp_add_chunk(const Units &units, u32 chunk) const {
        const u32 place = lists().warp_place_of(units, chunk);
        const u32 first = arguments.chunks[place];
        const Listed listed = arguments.listed[place];
        const RowArcs row = row_of(listed);
        const u64 slot = static_cast<u64>(first - units.chunk) * CHUNK_SLOTS;
        const LabelTable table = arena().from(slot, slots_for(row.arcs));
        const u64 begin = static_cast<u64>(chunk - first) * ROW_CHUNK_ARCS;
        warp_add(table, row, listed.v, own_of(listed), begin,
                 min(row.arcs, begin + ROW_CHUNK_ARCS));
    }

    // Find the best label of the part of a long row's table that belongs to a chunk, and clear it.
    __device__ __forceinline__ void warp_choose_part(const Units &units, u32 chunk,
                                                     u64 start) const {
        const u32 place = lists().warp_place_of(units, chunk);
        const Listed listed = arguments.listed[place];
        const u32 own = own_of(listed);
        const u64 word = word_of(listed, start);
        const u64 from = static_cast<u64>(chunk - units.chunk) * CHUNK_SLOTS;
        const LabelTable part = arena().from(from, CHUNK_SLOTS);
        Candidate best = NO_CANDIDATE;
        Sum own_sum = 0;
#pragma unroll 8
        for (u32 slot = lane_id(); slot < CHUNK_SLOTS; slot += WARP) {
            const Slot key = part.keys[slot];
            if (key == NO_SLOT) continue;
            thread_weigh(part.label_of(key), part.sum_of(slot, key), own, word, best, own_sum);
            part.clear(slot);
        }
        __syncwarp();
        best = warp_best(best);
        own_sum = warp_total(own_sum);
        if (lane_id() == 0)
            arguments.parts[chunk] = LongPart{best.sum, best.tie, own_sum, best.label, 0};
    }

    // The label that the vertex of a long row takes, in all lanes.
    __device__ __forceinline__ u32 warp_choice(u32 place, const Listed &listed) const {
        const LongPart *parts = arguments.parts + arguments.chunks[place];
        const u32 count = chunks_of(row_of(listed).arcs);
        Candidate best = NO_CANDIDATE;
        Sum own_sum = 0;
        for (u32 i = lane_id(); i < count; i += WARP) {
            own_sum += static_cast<Sum>(parts[i].own);
            best.take(Candidate{static_cast<Sum>(parts[i].sum), parts[i].tie, parts[i].label});
        }
        __syncwarp();
        best = warp_best(best);
        return choice(best, warp_total(own_sum), own_of(listed));
    }

    // Chunks of long rows, rows, and groups of tiny rows: what warps take.
    static __device__ __forceinline__ u64 units_in(const Units &units) {
        return static_cast<u64>(units.chunks) + units.rows(ROW_WARP) +
               (units.rows(ROW_TINY) + WARP - 1) / WARP;
    }

    __device__ __forceinline__ void warp_decide(const Units &units, u64 unit,
                                                const LabelTable &table, u64 start) const {
        if (unit < units.chunks) {
            warp_add_chunk(units, units.chunk + static_cast<u32>(unit));
            return;
        }
        unit -= units.chunks;
        if (unit < units.rows(ROW_WARP)) {
            warp_choose(table, units.begins[ROW_WARP] + static_cast<u32>(unit), start);
            return;
        }
        unit = (unit - units.rows(ROW_WARP)) * WARP + lane_id();
        const u32 place = units.begins[ROW_TINY] + static_cast<u32>(unit);
        const bool is_there = unit < units.rows(ROW_TINY);
        const Listed listed = is_there ? arguments.listed[place] : Listed{};
        const RowArcs row = is_there ? row_of(listed) : RowArcs{};
        // The vote decides before lanes part: ptxas of CUDA 13.0 votes again where it is needed, if only some lanes
        // come there, and these wait forever.
        if (__all_sync(FULL_WARP, row.arcs <= TINY_ARCS / 2)) {
            if (is_there)
                arguments.chosen[place] = thread_choose<TINY_ARCS / 2>(row, listed, start);
        } else if (is_there) {
            arguments.chosen[place] = thread_choose<TINY_ARCS>(row, listed, start);
        }
        __syncwarp();
    }

    // Activate the neighbours of vertices that took other labels.
    __device__ __forceinline__ void warp_activate(const Units &units, u64 unit) const {
        if (unit < units.chunks) {
            const u32 chunk = static_cast<u32>(unit), place = lists().warp_place_of(units, chunk);
            const u64 begin = static_cast<u64>(chunk - arguments.chunks[place]) * ROW_CHUNK_ARCS;
            lane_activate_row(place, begin + lane_id(), begin + ROW_CHUNK_ARCS, WARP);
        } else if (unit < units.chunks + static_cast<u64>(units.rows(ROW_WARP))) {
            const u32 place = units.begins[ROW_WARP] + static_cast<u32>(unit - units.chunks);
            lane_activate_row(place, lane_id(), WARP_ARCS, WARP);
        } else {
            unit = (unit - units.chunks - units.rows(ROW_WARP)) * WARP + lane_id();
            if (unit < units.rows(ROW_TINY))
                lane_activate_row(units.begins[ROW_TINY] + static_cast<u32>(unit), 0, TINY_ARCS, 1);
        }
        __syncwarp();
    }

    // Along every `step`-th arc of a vertex, before `end`, if it took another label.
    __device__ __forceinline__ void lane_activate_row(u32 place, u64 first, u64 end,
                                                      u32 step) const {
        const u32 taken = arguments.chosen[place];
        if (taken == NO_LABEL) return;
        const RowArcs row = row_of(arguments.listed[place]);
        const u32 which = static_cast<u32>(block.state[CLASS]);
        lane_activate(arguments.active, arguments.label, taken, which, first, min(end, row.arcs),
                      step, [&](u64 number) { return thread_end(row, number); });
    }

    // The vertices of a class choose, and those of the class before activate their neighbours.
    __device__ __forceinline__ void team_decide(const Units &now, const Units &before, u64 start,
                                                unsigned char *bytes) const {
        const u64 slots = blockDim.x / WARP * WARP_SLOTS;
        Sum *sums = reinterpret_cast<Sum *>(bytes);
        Slot *keys = reinterpret_cast<Slot *>(WEIGHTED ? bytes + sizeof(Sum) * slots : bytes);
        const LabelTable table =
            LabelTable{keys, sums, 0}.from(static_cast<u64>(warp_id()) * WARP_SLOTS, WARP_SLOTS);
        const u64 choosing = units_in(now), units = choosing + units_in(before);
        for (u64 unit = team.warp(); unit < units; unit += team.warps()) {
            if (unit < choosing)
                warp_decide(now, unit, table, start);
            else
                warp_activate(before, unit - choosing);
        }
    }

    __device__ __forceinline__ void team_choose_batch(const Units &units, u64 start) const {
        for (u64 unit = team.warp(); unit < units.chunks; unit += team.warps())
            warp_choose_part(units, units.chunk + static_cast<u32>(unit), start);
    }

    __device__ __forceinline__ void team_begin() const {
        const u64 slots = arguments.arena_chunks * CHUNK_SLOTS;
        for (u64 slot = team.thread(); slot < slots; slot += team.threads()) {
            arguments.arena_keys[slot] = NO_SLOT;
            if constexpr (WEIGHTED) arguments.arena_sums[slot] = 0;
        }
        lists().team_begin(team);
    }
    // A vertex begins with its own label; return whether it is visited in the first round.
    __device__ __forceinline__ bool thread_begin(u32 v) const {
        arguments.label[v] = id_of(v);
        const RowArcs row = row_of(v);
        // In the order of Graphalytics, the one list has all vertices with arcs.
        return IS_CDLP ? row.arcs > 0 : thread_is_outer(row.arcs, [&](u64 number) {
            return thread_end(row, number) != v;
        });
    }

    __device__ __forceinline__ u32 bin_of(u32 id, u64 arcs, u64 start) const {
        const u64 word = thread_mix(start ^ id);
        return static_cast<u32>(word % arguments.classes) * KINDS + kind_of(arcs);
    }
    __device__ __forceinline__ u32 id_of(u32 v) const {
        return static_cast<u32>(arguments.vertices[v]);
    }

    __device__ __forceinline__ void block_count(u64 round, u64 start, u32 *shared) const {
        const u64 visited = lists().block_count(
            team, round & 1, shared, round == 0, [&](u32 v) { return thread_begin(v); },
            [&](u32 v) { return bin_of(id_of(v), row_of(v).arcs, start); });
        warp_count(block, VISITED, block.state[ROUNDS] ? visited : 0);
    }
    __device__ __forceinline__ void block_list(u32 parity, u64 start, u32 *shared) const {
        lists().block_list(team, parity, shared, [&](u32 v, const VertexLists::Places &places) {
            const RowArcs row = row_of(v);
            const Listed listed{v, id_of(v), arguments.label[v], static_cast<u32>(row.leaving),
                                row.begin};
            const u32 bin = bin_of(listed.id, row.arcs, start);
            arguments.listed[places.take(bin, chunks_of(row.arcs))] = listed;
            return bin;
        });
    }

    __device__ __forceinline__ void team_take(const Units &units) const {
        u64 moves = 0;
        const auto take = [&](u32 v, u32 label) {
            if (label != NO_LABEL) arguments.label[v] = label;
            moves += label != NO_LABEL;
        };
        for (u64 place = units.begins[ROW_LONG] + team.warp(); place < units.begins[ROW_LONG + 1];
             place += team.warps()) {
            const Listed listed = arguments.listed[place];
            const u32 label = warp_choice(static_cast<u32>(place), listed);
            if (lane_id() == 0) {
                arguments.chosen[place] = label;
                take(listed.v, label);
            }
            __syncwarp();
        }
        for (u64 place = units.begins[ROW_WARP] + team.thread(); place < units.begins[KINDS];
             place += team.threads()) {
            const u32 label = arguments.chosen[place];
            take(label == NO_LABEL ? 0 : arguments.listed[place].v, label);
        }
        __syncwarp();
        warp_count(block, MOVES, moves);
    }

    // Call visit(v) for all vertices; threads come one by one.
    template <class Visit>
    __device__ __forceinline__ void team_each(Visit visit) const {
        const u64 owned = static_cast<u64>(arguments.stage.owned);
        for (u64 v = team.thread(); v < owned; v += team.threads()) visit(static_cast<u32>(v));
    }
    __device__ __forceinline__ void team_split(unsigned char *bytes) const;

    __device__ __forceinline__ void team_link() const {
        const i64 *offsets = arguments.out.offsets;
        team_each([&](u32 v) {
            arguments.parent[v] = thread_parent(v, offsets[v], offsets[v + 1],
                                                arguments.out.targets, arguments.label);
        });
    }
    __device__ __forceinline__ void team_name() const {
        team_each([&](u32 v) {
            u32 root[1];
            Forest{arguments.parent}.thread_flatten({v}, root);
            arguments.label[v] = static_cast<u32>(arguments.vertices[root[0]]);
        });
    }
};

__device__ __forceinline__ void Labels::team_split(unsigned char *bytes) const {
    u32 queued = 0;
    const Schedule schedule{arguments.long_rows, &team.control->cursors[0]};
    u64 inside = 0;
    const JoinEnds<Id, i64> visit{Forest{arguments.parent},
                                  arguments.out.targets,
                                  arguments.out_weights,
                                  arguments.label,
                                  arguments.is_directed != 0,
                                  arguments.loops,
                                  reinterpret_cast<u64 *>(bytes) + warp_id() * JOIN_QUEUE,
                                  queued,
                                  inside};
    const u64 owned = static_cast<u64>(arguments.stage.owned);
    for (u64 base = team.warp() * WARP; base < owned; base += team.warps() * WARP) {
        const u64 v = base + lane_id();
        i64 begin = 0, end = 0;
        if (v < owned) begin = arguments.out.offsets[v], end = arguments.out.offsets[v + 1];
        schedule.warp_bring(begin, end, static_cast<u32>(v), visit);
    }
    schedule.team_finish(team, block, true, visit);
    visit.warp_finish();
    warp_count(block, WITHIN, inside);
}

// Choose the next batch of a class' long rows.
__device__ __forceinline__ void thread_next_batch(const Arguments &arguments, u64 *state) {
    state[LONG_BEGIN] = state[LONG_END];
    state[LONG_END] =
        lists_of(arguments, state)
            .batch_end(static_cast<u32>(state[CLASS]), state[LONG_BEGIN], arguments.arena_chunks);
}

// The next superstep of a round: that of the next class that has vertices, or the last of activation.
__device__ __forceinline__ u32 thread_next_class(const Arguments &arguments, u64 *state,
                                                 u32 which) {
    state[CLASS] = lists_of(arguments, state).next_class(which);
    state[LONG_END] = 0;
    thread_next_batch(arguments, state);
    if (state[CLASS] != NO_CLASS) return LABEL_DECIDE;
    if (state[PREVIOUS] != NO_CLASS && state[MOVED]) return LABEL_DECIDE;
    state[ROUND] += 1;
    const bool is_last = state[ROUND] >= state[ROUNDS];
    if (IS_CDLP && !is_last) return thread_next_class(arguments, state, 0);
    if (is_last || state[MOVED] == 0) return IS_CDLP ? STOP : LABEL_LINK;
    state[START] = thread_mix(state[SEED] + state[ROUND]);
    state[MOVED] = 0;
    return LABEL_COUNT;
}

__device__ __forceinline__ u32 thread_decide_labels(const Arguments &arguments, u32 phase,
                                                    const Sums &sums, u64 *state) {
    switch (phase) {
        case LABEL_BEGIN:
            state[ROUND] = state[MOVED] = 0;
            state[START] = thread_mix(state[SEED]);
            return LABEL_COUNT;
        case LABEL_COUNT:
            if (state[ROUNDS] == 0 || sums.counts[VISITED] == 0) return IS_CDLP ? STOP : LABEL_LINK;
            state[CLASSES] = classes_of_round(arguments.classes, sums.counts[VISITED],
                                              static_cast<u64>(arguments.stage.owned));
            return LABEL_LIST;
        case LABEL_LIST:
            state[PREVIOUS] = NO_CLASS;
            return thread_next_class(arguments, state, 0);
        case LABEL_DECIDE:
            if (state[CLASS] != NO_CLASS)
                return state[LONG_END] > state[LONG_BEGIN] ? LABEL_CHOOSE : LABEL_TAKE;
            state[PREVIOUS] = NO_CLASS;
            return thread_next_class(arguments, state, NO_CLASS);
        case LABEL_CHOOSE:
            thread_next_batch(arguments, state);
            return state[LONG_END] > state[LONG_BEGIN] ? LABEL_ADD : LABEL_TAKE;
        case LABEL_TAKE:
            state[MOVED] += sums.counts[MOVES];
            state[PREVIOUS] = sums.counts[MOVES] && !IS_CDLP ? state[CLASS] : NO_CLASS;
            return thread_next_class(arguments, state, static_cast<u32>(state[CLASS]) + 1);
        case LABEL_NAME:
            return STOP;
    }
    return phase + 1;
}

__device__ __forceinline__ void grid_labels(const Arguments &arguments) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ u32 bins[VertexLists::MOST_BINS];
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        const Labels labels{arguments, team, block};
        const u64 start = block.state[START];
        const u32 which = static_cast<u32>(block.state[CLASS]);
        const u32 before = static_cast<u32>(block.state[PREVIOUS]);
        const u32 parity = block.state[ROUND] & 1;
        const auto batch = [&] {
            return labels.lists().batch_of(which, block.state[LONG_BEGIN], block.state[LONG_END]);
        };
        switch (phase) {
            case LABEL_BEGIN:
                labels.team_begin();
                break;
            case LABEL_COUNT:
                labels.block_count(block.state[ROUND], start, bins);
                break;
            case LABEL_LIST:
                labels.block_list(parity, start, bins);
                break;
            case LABEL_DECIDE:
            case LABEL_ADD: {
                Units now = batch();
                if (phase == LABEL_ADD) now.leave_short_rows();
                const u32 active = phase == LABEL_ADD ? NO_CLASS : before;
                labels.team_decide(now, labels.lists().units_of(active), start, shared_bytes);
                break;
            }
            case LABEL_CHOOSE:
                labels.team_choose_batch(batch(), start);
                break;
            case LABEL_TAKE:
                labels.team_take(labels.lists().units_of(which));
                break;
            case LABEL_LINK:
                labels.team_link();
                break;
            case LABEL_SPLIT:
                labels.team_split(shared_bytes);
                break;
            case LABEL_LINKED:
                labels.team_each([&](u32 v) {
                    u32 root[1];
                    Forest{arguments.parent}.thread_flatten({v}, root);
                });
                break;
            case LABEL_NAME:
                labels.team_name();
                break;
        }
    };
    run_steps(arguments.stage, body, [&](u32 phase, const Sums &sums, u64 *state) {
        return thread_decide_labels(arguments, phase, sums, state);
    });
}
