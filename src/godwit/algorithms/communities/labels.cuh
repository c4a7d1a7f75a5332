// Label propagation on one device. CPU counterpart: move_vertices and propagate_labels of cpu.py, which have
// the invariants: all vertices of a class decide on one state, then all of them take their labels, so the
// result is that of the CPU, bit for bit. Labels are vertices of the graph, by position; arcs name positions.
//
// A round counts and lists the active vertices by bins: of class and kind of row. Then each class takes two
// supersteps. LABEL_DECIDE reads labels: vertices of the class choose, and the neighbours of those of the class
// before that took another label become active, as seen before this class moves. LABEL_TAKE writes labels. In
// the order of Graphalytics (CDLP) there is one class, whose list is made once.
//
// Weights are added up by label in hash tables with linear probing: in registers for TINY rows, in shared memory
// of a warp or of a block, and for the longest rows in global memory, of which as many blocks as there are
// arenas have a part. Sums are integers, and the best label is a maximum in a total order: no schedule of
// threads changes it.
//
// In the end, union-find within communities divides those that are not connected. parent[v] <= v.
#pragma once

#include "runtime/cuda/include/hashing.cuh"
#include "runtime/cuda/include/schedule.cuh"

constexpr u32 TINY_ARCS = 8;
constexpr u32 WARP_SLOTS = 512;            // of a warp's table
constexpr u32 WARP_ARCS = WARP_SLOTS / 2;  // of rows that a warp visits
constexpr u32 LEAST_SLOTS = WARP;
constexpr u32 MOST_CLASSES = 64;
constexpr u32 KINDS = 4;
constexpr u32 MOST_BINS = MOST_CLASSES * KINDS;
constexpr u32 NO_LABEL = 0xffffffffu;
constexpr u32 NO_CLASS = 0xffffffffu;

enum LabelPhase : u32 {
    LABEL_BEGIN,
    LABEL_COUNT,
    LABEL_LIST,
    LABEL_DECIDE,
    LABEL_TAKE,
    LABEL_SPLIT,    // join the ends of arcs within communities
    LABEL_FLATTEN,  // find roots
    LABEL_NAME      // replace labels by roots
};

// Words of control->state.
enum LabelState : u32 { SEED, ROUNDS, ROUND, START, MOVED, CLASS, PREVIOUS };

enum LabelCount : u32 { VISITED, MOVES };

// Kinds of rows, the longest first.
enum RowKind : u32 { ROW_ARENA, ROW_BLOCK, ROW_WARP, ROW_TINY };

struct LabelCounters {
    u64 long_rows;
    u32 bins[2][MOST_BINS];  // listed vertices, by parity of the round
    u32 ends[MOST_BINS];     // of bins in `order`
};

using Sum = WeightSum;  // u32 without weights

struct Arguments {
    Stage stage;
    Rows<Id> out;
    Rows<Id> in;  // of a directed graph
    const i64 *out_weights;
    const i64 *in_weights;
    const Id *vertices;  // by position
    u32 *label;
    u32 *chosen;  // by place in `order`; NO_LABEL: it stays
    u32 *order;   // positions
    u32 *active;  // by position
    u32 *parent;  // by position
    u32 *firsts;  // by block and bin: first place of the block's vertices
    u32 *arena_keys;
    Sum *arena_sums;
    Schedule::Row *long_rows;
    LabelCounters *counters;
    u64 arena_slots;  // of each block that has some
    u32 arenas;
    u32 classes;
    u32 block_slots;
    u32 is_directed;
};

// A label with the sum of its weights. A larger sum is better, then a smaller tie.
struct Candidate {
    u64 sum;
    u64 tie;
    u32 label;

    __device__ __forceinline__ void take(const Candidate &other) {
        if (other.sum > sum || (other.sum == sum && other.tie < tie)) *this = other;
    }
};

__device__ __forceinline__ Candidate warp_best(Candidate best) {
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        const Candidate other{__shfl_xor_sync(FULL_WARP, best.sum, step),
                              __shfl_xor_sync(FULL_WARP, best.tie, step),
                              __shfl_xor_sync(FULL_WARP, best.label, step)};
        best.take(other);
    }
    return best;
}

struct LabelTable {
    u32 *keys;
    Sum *sums;
    u32 mask;

    __device__ __forceinline__ void clear(u32 slot) const {
        store_system(keys + slot, NO_LABEL);
        store_system(sums + slot, Sum(0));
    }
    __device__ __forceinline__ void add(u32 label, Sum weight) const {
        for (u32 slot = static_cast<u32>(label * 0x9e3779b1u >> 7) & mask;;
             slot = (slot + 1) & mask) {
            const u32 there = atomicCAS(keys + slot, NO_LABEL, label);
            if (there == NO_LABEL || there == label) {
                atomicAdd(sums + slot, weight);
                return;
            }
        }
    }
};

// Return the number of slots of a table for a row: a power of two, at most half of which are taken.
__device__ __forceinline__ u32 slots_for(u64 arcs) {
    u32 slots = LEAST_SLOTS;
    while (slots < 2 * arcs) slots *= 2;
    return slots;
}

struct BlockChoice {
    Candidate best[WARP];
    u64 own[WARP];
    u32 claimed;
};

struct Labels {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;

    __device__ __forceinline__ u64 arcs_of(u32 v) const {
        u64 arcs = arguments.out.offsets[v + 1] - arguments.out.offsets[v];
        if (arguments.is_directed) arcs += arguments.in.offsets[v + 1] - arguments.in.offsets[v];
        return arcs;
    }
    __device__ __forceinline__ RowKind kind_of(u64 arcs) const {
        if (arcs <= TINY_ARCS) return ROW_TINY;
        if (arcs <= WARP_ARCS) return ROW_WARP;
        return 2 * arcs <= arguments.block_slots ? ROW_BLOCK : ROW_ARENA;
    }
    __device__ __forceinline__ u32 end_of_bin(u32 bin) const {
        return load_relaxed(arguments.counters->ends + bin);
    }
    __device__ __forceinline__ u32 begin_of_bin(u32 bin) const {
        return bin ? end_of_bin(bin - 1) : 0;
    }

    // Position and weight of arc `number` of a vertex, in-arcs behind out-arcs; weight 0 if it does not count.
    __device__ __forceinline__ u32 thread_arc(u32 v, u64 number, Sum &weight) const {
        const i64 begin = arguments.out.offsets[v], end = arguments.out.offsets[v + 1];
        const bool leaves = static_cast<i64>(number) < end - begin;
        const i64 arc = leaves ? begin + static_cast<i64>(number)
                               : arguments.in.offsets[v] + static_cast<i64>(number) - (end - begin);
        const u32 u = static_cast<u32>((leaves ? arguments.out : arguments.in).targets[arc]);
        weight = 1;
        if constexpr (WEIGHTED)
            weight = static_cast<Sum>((leaves ? arguments.out_weights : arguments.in_weights)[arc]);
        if (!IS_CDLP && u == v) weight = 0;
        return u;
    }

    __device__ __forceinline__ u64 tie_of(u32 label, u64 word) const {
        return IS_CDLP ? label : thread_mix(word ^ label);
    }

    // The label that a vertex takes, given the best of those that it has not, and the sum of its own.
    __device__ __forceinline__ u32 choice(const Candidate &best, u64 own_sum, u32 own) const {
        if (best.sum == 0) return NO_LABEL;
        if (IS_CDLP)
            return best.sum > own_sum || (best.sum == own_sum && best.label < own) ? best.label
                                                                                   : NO_LABEL;
        return best.sum > own_sum ? best.label : NO_LABEL;
    }

    __device__ __forceinline__ u32 thread_choose(u32 v, u64 start) const {
        const u32 arcs = static_cast<u32>(arcs_of(v));
        const u32 own = arguments.label[v];
        const u64 word = thread_mix(start + static_cast<u64>(arguments.vertices[v]));
        u32 label[TINY_ARCS];
        Sum weight[TINY_ARCS];
#pragma unroll
        for (u32 i = 0; i < TINY_ARCS; i++) {
            label[i] = NO_LABEL;
            weight[i] = 0;
            if (i < arcs) label[i] = thread_arc(v, i, weight[i]);
        }
#pragma unroll
        for (u32 i = 0; i < TINY_ARCS; i++)
            if (i < arcs) label[i] = arguments.label[label[i]];
        Candidate best{0, ~0ull, NO_LABEL};
        u64 own_sum = 0;
#pragma unroll
        for (u32 i = 0; i < TINY_ARCS; i++) {
            u64 sum = 0;
#pragma unroll
            for (u32 j = 0; j < TINY_ARCS; j++)
                if (label[j] == label[i]) sum += weight[j];
            if (label[i] == own)
                own_sum = sum;
            else if (sum > 0 && sum >= best.sum)
                best.take(Candidate{sum, tie_of(label[i], word), label[i]});
        }
        return choice(best, own_sum, own);
    }

    // Add the arcs of a row to a table, and find the best; `threads` threads share the work. `sync` orders them.
    template <class Sync>
    __device__ __forceinline__ Candidate choose_in(const LabelTable &table, u32 v, u64 arcs,
                                                   u32 own, u64 word, u32 thread, u32 threads,
                                                   u64 &own_sum, Sync sync) const {
        for (u32 slot = thread; slot <= table.mask; slot += threads) table.clear(slot);
        sync();
        for (u64 number = thread; number < arcs; number += threads) {
            Sum weight;
            const u32 u = thread_arc(v, number, weight);
            if (weight) table.add(arguments.label[u], weight);
        }
        sync();
        Candidate best{0, ~0ull, NO_LABEL};
        own_sum = 0;
        for (u32 slot = thread; slot <= table.mask; slot += threads) {
            const u32 label = load_system(table.keys + slot);
            if (label == NO_LABEL) continue;
            const u64 sum = load_system(table.sums + slot);
            if (label == own)
                own_sum = sum;
            else if (sum >= best.sum)
                best.take(Candidate{sum, tie_of(label, word), label});
        }
        return best;
    }

    __device__ __forceinline__ void warp_choose(const LabelTable &table, u32 place,
                                                u64 start) const {
        const u32 v = arguments.order[place], own = arguments.label[v];
        const u64 arcs = arcs_of(v);
        const u64 word = thread_mix(start + static_cast<u64>(arguments.vertices[v]));
        const LabelTable part{table.keys, table.sums, slots_for(arcs) - 1};
        u64 own_sum;
        Candidate best =
            choose_in(part, v, arcs, own, word, lane_id(), WARP, own_sum, [] { __syncwarp(); });
        best = warp_best(best);
        own_sum = lanes_sum(own_sum);
        if (lane_id() == 0) arguments.chosen[place] = choice(best, own_sum, own);
        __syncwarp();
    }

    __device__ __forceinline__ void block_choose(const LabelTable &table, BlockChoice &shared,
                                                 u32 place, u64 start) const {
        const u32 v = arguments.order[place], own = arguments.label[v];
        const u64 arcs = arcs_of(v);
        const u64 word = thread_mix(start + static_cast<u64>(arguments.vertices[v]));
        const LabelTable part{table.keys, table.sums, slots_for(arcs) - 1};
        u64 own_sum;
        Candidate best = choose_in(part, v, arcs, own, word, threadIdx.x, blockDim.x, own_sum,
                                   [] { __syncthreads(); });
        best = warp_best(best);
        own_sum = lanes_sum(own_sum);
        if (lane_id() == 0) {
            shared.best[warp_id()] = best;
            shared.own[warp_id()] = own_sum;
        }
        __syncthreads();
        if (warp_id() == 0) {
            const bool is_there = lane_id() < blockDim.x / WARP;
            best = is_there ? shared.best[lane_id()] : Candidate{0, ~0ull, NO_LABEL};
            best = warp_best(best);
            own_sum = lanes_sum(is_there ? shared.own[lane_id()] : u64(0));
            if (lane_id() == 0) arguments.chosen[place] = choice(best, own_sum, own);
        }
        __syncthreads();
    }

    // Blocks claim the vertices of a bin one by one.
    __device__ __forceinline__ void block_choose_bin(const LabelTable &table, BlockChoice &shared,
                                                     u32 bin, u32 cursor, u64 start) const {
        const u32 begin = begin_of_bin(bin), end = end_of_bin(bin);
        if (begin == end) return;
        for (;;) {
            if (threadIdx.x == 0)
                shared.claimed =
                    begin + static_cast<u32>(atomicAdd(team.control->cursors + cursor, 1ull));
            __syncthreads();
            const u32 place = shared.claimed;
            __syncthreads();
            if (place >= end) return;
            block_choose(table, shared, place, start);
        }
    }

    __device__ __forceinline__ void block_decide(u32 which, u64 start, unsigned char *bytes,
                                                 BlockChoice &shared) const {
        Sum *sums = reinterpret_cast<Sum *>(bytes);
        u32 *keys = reinterpret_cast<u32 *>(sums + arguments.block_slots);
        const u32 bin = which * KINDS;
        if (team.block < arguments.arenas) {
            const u64 first = team.block * arguments.arena_slots;
            const LabelTable table{arguments.arena_keys + first, arguments.arena_sums + first, 0};
            block_choose_bin(table, shared, bin + ROW_ARENA, 0, start);
        }
        block_choose_bin(LabelTable{keys, sums, 0}, shared, bin + ROW_BLOCK, 1, start);
        const u32 own = warp_id() * WARP_SLOTS;
        const LabelTable table{keys + own, sums + own, 0};
        const u32 warp_end = end_of_bin(bin + ROW_WARP);
        for (u64 place = begin_of_bin(bin + ROW_WARP) + team.warp(); place < warp_end;
             place += team.warps())
            warp_choose(table, static_cast<u32>(place), start);
        const u64 end = end_of_bin(bin + ROW_TINY);
        for (u64 place = begin_of_bin(bin + ROW_TINY) + team.thread(); place < end;
             place += team.threads())
            arguments.chosen[place] = thread_choose(arguments.order[place], start);
    }

    __device__ __forceinline__ void thread_activate(u32 v, u64 number, u32 own) const {
        Sum weight;
        const u32 u = thread_arc(v, number, weight);
        if (arguments.label[u] != own) store_system(arguments.active + u, 1u);
    }

    // Activate the neighbours of the vertices of a class that took other labels.
    __device__ __forceinline__ void team_activate(u32 which) const {
        const u32 bin = which * KINDS;
        const u32 block_end = end_of_bin(bin + ROW_BLOCK), warp_end = end_of_bin(bin + ROW_WARP);
        for (u32 place = begin_of_bin(bin) + team.block; place < block_end; place += team.blocks) {
            if (arguments.chosen[place] == NO_LABEL) continue;
            const u32 v = arguments.order[place];
            const u64 arcs = arcs_of(v);
            const u32 own = arguments.label[v];
            for (u64 number = threadIdx.x; number < arcs; number += blockDim.x)
                thread_activate(v, number, own);
        }
        for (u64 place = block_end + team.warp(); place < warp_end; place += team.warps()) {
            if (arguments.chosen[place] == NO_LABEL) continue;
            const u32 v = arguments.order[place];
            const u64 arcs = arcs_of(v);
            const u32 own = arguments.label[v];
            for (u64 number = lane_id(); number < arcs; number += WARP)
                thread_activate(v, number, own);
        }
        const u64 end = end_of_bin(bin + ROW_TINY);
        for (u64 place = warp_end + team.thread(); place < end; place += team.threads()) {
            if (arguments.chosen[place] == NO_LABEL) continue;
            const u32 v = arguments.order[place];
            const u32 arcs = static_cast<u32>(arcs_of(v));
            const u32 own = arguments.label[v];
            for (u32 number = 0; number < arcs; number++) thread_activate(v, number, own);
        }
    }

    __device__ __forceinline__ void team_begin() const {
        for (u64 v = team.thread(); v < static_cast<u64>(arguments.stage.owned);
             v += team.threads()) {
            arguments.label[v] = static_cast<u32>(arguments.vertices[v]);
            arguments.active[v] = arcs_of(static_cast<u32>(v)) > 0;
            arguments.parent[v] = static_cast<u32>(v);
        }
        if (team.block == 0)
            for (u32 bin = threadIdx.x; bin < MOST_BINS; bin += blockDim.x)
                arguments.counters->bins[0][bin] = 0;
        if (team.thread() == 0) arguments.counters->long_rows = 0;
    }

    __device__ __forceinline__ u32 bin_of(u32 v, u64 start) const {
        const u64 word = thread_mix(start ^ static_cast<u64>(arguments.vertices[v]));
        return static_cast<u32>(word % arguments.classes) * KINDS + kind_of(arcs_of(v));
    }

    // Call visit(v) for the active vertices in the block's range; threads come one by one.
    template <class Visit>
    __device__ __forceinline__ void block_active(Visit visit) const {
        const u64 owned = static_cast<u64>(arguments.stage.owned);
        const u64 each = (owned + team.blocks - 1) / team.blocks;
        const u64 end = min(owned, (team.block + 1) * each);
        for (u64 v = team.block * each + threadIdx.x; v < end; v += blockDim.x)
            if (arguments.active[v]) visit(static_cast<u32>(v));
    }

    // Count the block's active vertices by bins, and reserve places in them.
    __device__ __forceinline__ void block_count(u32 parity, u64 start, u32 *shared) const {
        const u32 bins = arguments.classes * KINDS;
        for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) shared[bin] = 0;
        __syncthreads();
        u64 visited = 0;
        block_active([&](u32 v) {
            atomicAdd(shared + bin_of(v, start), 1u);
            visited += 1;
        });
        __syncthreads();
        for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) {
            const u32 count = shared[bin];
            u32 first = 0;
            if (count) first = atomicAdd(arguments.counters->bins[parity] + bin, count);
            arguments.firsts[team.block * MOST_BINS + bin] = first;
        }
        __syncthreads();
        warp_count(block, VISITED, visited);
    }

    // List them.
    __device__ __forceinline__ void block_list(u32 parity, u64 start, u32 *shared) const {
        const u32 bins = arguments.classes * KINDS;
        if (warp_id() == 0) {
            u32 before = 0;
            for (u32 base = 0; base < bins; base += WARP) {
                const u32 bin = base + lane_id();
                const u32 count = bin < bins ? arguments.counters->bins[parity][bin] : 0;
                const u32 end = before + warp_sum_up_to(count);
                if (bin < bins) {
                    shared[bin] = end - count + arguments.firsts[team.block * MOST_BINS + bin];
                    if (team.block == 0) arguments.counters->ends[bin] = end;
                }
                before = __shfl_sync(FULL_WARP, end, WARP - 1);
            }
        }
        if (team.block == 0)
            for (u32 bin = threadIdx.x; bin < MOST_BINS; bin += blockDim.x)
                arguments.counters->bins[parity ^ 1][bin] = 0;
        __syncthreads();
        block_active([&](u32 v) { arguments.order[atomicAdd(shared + bin_of(v, start), 1u)] = v; });
    }

    __device__ __forceinline__ void team_take(u32 which) const {
        const u64 end = end_of_bin(which * KINDS + KINDS - 1);
        u64 moves = 0;
        for (u64 base = begin_of_bin(which * KINDS) + team.thread(); base < end;
             base += team.threads()) {
            const u32 v = arguments.order[base], label = arguments.chosen[base];
            if (!IS_CDLP) arguments.active[v] = 0;
            if (label == NO_LABEL) continue;
            arguments.label[v] = label;
            moves += 1;
        }
        __syncwarp();
        warp_count(block, MOVES, moves);
    }

    __device__ __forceinline__ u32 parent_of(u32 v) const {
        return load_relaxed(arguments.parent + v);
    }

    __device__ __forceinline__ void thread_join(u32 u, u32 v) const {
        u32 above_u = parent_of(u), above_v = parent_of(v);
        while (above_u != above_v) {
            const u32 high = max(above_u, above_v), low = min(above_u, above_v);
            const u32 over = parent_of(high);
            if (over == low) return;
            if (over == high && atomicCAS(arguments.parent + high, high, low) == high) return;
            above_u = parent_of(parent_of(high));
            above_v = parent_of(low);
        }
    }

    __device__ __forceinline__ void team_split() const;

    __device__ __forceinline__ void team_flatten() const {
        for (u64 v = team.thread(); v < static_cast<u64>(arguments.stage.owned);
             v += team.threads()) {
            u32 root = parent_of(static_cast<u32>(v));
            for (u32 next = parent_of(root); next != root; next = parent_of(root)) root = next;
            store_system(arguments.parent + v, root);
        }
    }

    __device__ __forceinline__ void team_name() const {
        for (u64 v = team.thread(); v < static_cast<u64>(arguments.stage.owned);
             v += team.threads())
            arguments.label[v] = static_cast<u32>(arguments.vertices[arguments.parent[v]]);
    }
};

// The visitor of all rows that joins the ends of arcs within communities.
struct JoinEnds {
    const Labels &labels;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = labels.arguments;
        u32 target[ARCS];
        bool joins[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            target[i] = there[i] ? static_cast<u32>(arguments.out.targets[arcs[i]]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            joins[i] = there[i] && (arguments.is_directed || target[i] < rows[i]) &&
                       arguments.label[target[i]] == arguments.label[rows[i]];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            if (joins[i]) labels.thread_join(rows[i], target[i]);
    }
};

__device__ __forceinline__ void Labels::team_split() const {
    const Schedule schedule{arguments.long_rows, &arguments.counters->long_rows};
    const JoinEnds visit{*this};
    const u64 owned = static_cast<u64>(arguments.stage.owned);
    for (u64 base = team.warp() * WARP; base < owned; base += team.warps() * WARP) {
        const u64 v = base + lane_id();
        i64 begin = 0, end = 0;
        if (v < owned) begin = arguments.out.offsets[v], end = arguments.out.offsets[v + 1];
        schedule.warp_bring(begin, end, static_cast<u32>(v), visit);
    }
    schedule.team_finish(team, block, true, visit);
}

// The next superstep of a round: that of the next class that has vertices, or the last of activation.
__device__ __forceinline__ u32 thread_next_class(const Arguments &arguments, u64 *state,
                                                 u32 which) {
    const u32 *ends = arguments.counters->ends;
    u32 begin = which ? load_relaxed(ends + which * KINDS - 1) : 0;
    for (; which < arguments.classes; which++) {
        const u32 end = load_relaxed(ends + which * KINDS + KINDS - 1);
        if (end > begin) {
            state[CLASS] = which;
            return LABEL_DECIDE;
        }
        begin = end;
    }
    state[CLASS] = NO_CLASS;
    if (state[PREVIOUS] != NO_CLASS && state[MOVED]) return LABEL_DECIDE;
    state[ROUND] += 1;
    const bool is_last = state[ROUND] >= state[ROUNDS];
    if (IS_CDLP && !is_last) return thread_next_class(arguments, state, 0);
    if (is_last || state[MOVED] == 0) return IS_CDLP ? STOP : LABEL_SPLIT;
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
            if (state[ROUNDS] == 0) return IS_CDLP ? STOP : LABEL_SPLIT;
            return LABEL_COUNT;
        case LABEL_COUNT:
            if (sums.counts[VISITED] == 0) return IS_CDLP ? STOP : LABEL_SPLIT;
            return LABEL_LIST;
        case LABEL_LIST:
            state[PREVIOUS] = NO_CLASS;
            return thread_next_class(arguments, state, 0);
        case LABEL_TAKE:
            state[MOVED] += sums.counts[MOVES];
            state[PREVIOUS] = sums.counts[MOVES] && !IS_CDLP ? state[CLASS] : NO_CLASS;
            return thread_next_class(arguments, state, static_cast<u32>(state[CLASS]) + 1);
        case LABEL_DECIDE:
            if (state[CLASS] != NO_CLASS) return LABEL_TAKE;
            state[PREVIOUS] = NO_CLASS;
            return thread_next_class(arguments, state, arguments.classes);
        case LABEL_SPLIT:
            return LABEL_FLATTEN;
        case LABEL_FLATTEN:
            return LABEL_NAME;
    }
    return STOP;
}

__device__ __forceinline__ void grid_labels(const Arguments &arguments) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ BlockChoice choice;
    __shared__ u32 bins[MOST_BINS];
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        const Labels labels{arguments, team, block};
        const u64 start = block.state[START];
        const u32 which = static_cast<u32>(block.state[CLASS]);
        const u32 before = static_cast<u32>(block.state[PREVIOUS]);
        const u32 parity = block.state[ROUND] & 1;
        switch (phase) {
            case LABEL_BEGIN:
                labels.team_begin();
                break;
            case LABEL_COUNT:
                labels.block_count(parity, start, bins);
                break;
            case LABEL_LIST:
                labels.block_list(parity, start, bins);
                break;
            case LABEL_DECIDE:
                if (which != NO_CLASS) labels.block_decide(which, start, shared_bytes, choice);
                if (before != NO_CLASS) labels.team_activate(before);
                break;
            case LABEL_TAKE:
                labels.team_take(which);
                break;
            case LABEL_SPLIT:
                labels.team_split();
                break;
            case LABEL_FLATTEN:
                labels.team_flatten();
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
