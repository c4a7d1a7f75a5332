// Move vertices of a level to better communities, and refine communities: move_vertices and refine_communities of
// cpu.py.
//
// A round counts and lists the active vertices (listing.cuh), each with what the visit needs: so what a vertex reads
// lies side by side with that of the next one, and there is less to wait for. Then each class takes two supersteps. In
// MOVE_DECIDE its vertices choose, and the neighbours of those of the class before that moved become active, as seen
// before this class moves, unless their turn is still to come; in MOVE_TAKE it moves. Weights are added up by community
// in registers for TINY rows, and else in hash tables in shared memory: of a warp, of a group of warps, or of a block. LONG rows are divided into
// chunks, which blocks add up in shared memory, then to tables in global memory, the arena. The block that ends the
// last chunk of a row compares its communities; where they are many, all blocks do so together (MOVE_CHOOSE). Where the
// arena has no room for all long rows of a class, they come in batches (MOVE_ADD). The weight to the vertex' own
// community, and to that of its first neighbour, which most neighbours may have, are added up in registers: all threads
// would wait for one slot.
//
// Tables in shared memory are empty between two rows: who reads a slot clears it.
//
// One block alone does a round of few vertices and arcs, whose supersteps then need no meeting of all blocks.
//
// A refinement is one round in which all vertices are active, and only communities of one's own count.
#pragma once

#include "algorithms/communities/levels.cuh"

// A community with its score. A larger score is better, then a smaller name.
struct Candidate {
    double score;
    u32 label;

    __device__ __forceinline__ void take(double other_score, u32 other) {
        if (other_score > score || (other_score == score && other < label)) {
            score = other_score;
            label = other;
        }
    }
};

__device__ __forceinline__ Candidate no_candidate() {
    return Candidate{amount_of(0xfff0000000000000ull), NO_LABEL};  // minus infinity
}

// Return a word that is larger where the score is.
__device__ __forceinline__ u64 order_of(double score) {
    const u64 bits = bits_of_amount(__dadd_rn(score, 0.0));  // -0 is 0
    return bits >> 63 ? ~bits : bits | u64{1} << 63;
}

// Return the best candidate of all lanes to all of them.
__device__ __forceinline__ Candidate warp_best(const Candidate &best) {
    const u64 order = order_of(best.score);
    const u32 high = static_cast<u32>(order >> 32), low = static_cast<u32>(order);
    const u32 most_high = __reduce_max_sync(FULL_WARP, high);
    const u32 most_low = __reduce_max_sync(FULL_WARP, high == most_high ? low : 0u);
    const bool is_best = high == most_high && low == most_low;
    const u32 label = __reduce_min_sync(FULL_WARP, is_best ? best.label : NO_LABEL);
    const u32 whose = __ffs(static_cast<int>(__ballot_sync(FULL_WARP, is_best))) - 1;
    return Candidate{__shfl_sync(FULL_WARP, best.score, whose), label};
}

// Return the sum over all lanes to all of them.
__device__ __forceinline__ u32 warp_total(u32 sum) { return __reduce_add_sync(FULL_WARP, sum); }
__device__ __forceinline__ u64 warp_total(u64 sum) { return lanes_sum(sum); }

__device__ __forceinline__ double number_of(u32 sum) { return static_cast<double>(sum); }
// Sums are below 2^53.
__device__ __forceinline__ double number_of(u64 sum) {
    return static_cast<double>(static_cast<i64>(sum));
}

// What a vertex compares communities by.
struct Visitor {
    u32 id;
    u32 own;
    double share;  // factor * mass
    double in_share;
};

// What a thread, a warp or a block has found for a vertex. `extra` is the weight to the vertex' own community:
// without those of its vertices that are not counted.
struct Choice {
    Candidate best;
    Sum extra;
};

struct BlockMemory {
    Candidate best[WARP];
    Sum extra[WARP];
    u32 claimed;
    u32 written;
    u64 begin;
    u64 begins[WARP];  // the next three by group of warps
    u32 added[WARP];
    u32 placed[WARP];
};

template <bool REFINES>
struct Moves : Level {
    using Units = VertexLists::Units;

    u64 start;
    u32 which;  // class
    BlockMemory &shared;
    unsigned char *bytes;

    __device__ __forceinline__ Moves(const Level &level, BlockMemory &shared, unsigned char *bytes)
        : Level(level),
          start(level.block.state[START]),
          which(static_cast<u32>(level.block.state[CLASS])),
          shared(shared),
          bytes(bytes) {}

    __device__ __forceinline__ RowKind kind_of(u64 arcs) const {
        if (arcs <= TINY_ARCS) return ROW_TINY;
        if (arcs <= WARP_ARCS) return ROW_WARP;
        if (arcs <= group_warps() * WARP_ARCS) return ROW_GROUP;
        return is_long(arcs) ? static_cast<RowKind>(ROW_LONG) : ROW_BLOCK;
    }

    static __device__ __forceinline__ RowArcs row_of(const Listed &listed) {
        return RowArcs{static_cast<i64>(listed.begin), listed.in_begin(),
                       listed.leaving(listed.arcs), listed.arcs};
    }
    __device__ __forceinline__ Visitor visitor(const Listed &listed) const {
        Visitor at{listed.id, listed.own, 0, 0};
        at.share = __dmul_rn(arguments.factor, number_of(listed.mass));
        if (ONE_WAY) at.in_share = __dmul_rn(arguments.factor, number_of(listed.in_mass()));
        return at;
    }

    // The same operations in the same order as _penalty of cpu.py.
    __device__ __forceinline__ double penalty(const Visitor &at, Sum there, Sum entering) const {
        const double leaving = number_of(there);
        if (!ONE_WAY) return __dmul_rn(at.share, leaving);
        return __dadd_rn(__dmul_rn(at.share, number_of(entering)), __dmul_rn(at.in_share, leaving));
    }
    // The penalty of the vertex' own community, of which the vertex is not counted.
    __device__ __forceinline__ double own_penalty(const Listed &listed, const Visitor &at) const {
        const Sum there = arguments.total[at.own] - listed.mass;
        const Sum entering = ONE_WAY ? arguments.in_total[at.own] - listed.in_mass() : 0;
        return penalty(at, there, entering);
    }

    // Whether the vertex that a part has its name from is of the class that chooses now.
    __device__ __forceinline__ bool is_in_class(u32 name) const {
        return (class_of(name, start) & (lists().joined - 1)) == which;
    }
    // Parts that others have joined stay.
    __device__ __forceinline__ bool stays(const Listed &listed) const {
        return REFINES && arguments.grown[listed.id];
    }
    // The name of the community or part of a neighbour; NO_LABEL if that does not count.
    __device__ __forceinline__ u32 name_of(u32 u, u32 own) const {
        const u32 label = arguments.label[u];
        if (!REFINES) return label;
        return label == own ? arguments.part[u] : NO_LABEL;
    }

    // Load the names and weights of the arcs base, base + step, ... before `end` that count: others have weight 0.
    template <u32 ARCS>
    __device__ __forceinline__ void thread_load(const Listed &listed, const RowArcs &row, u64 base,
                                                u64 end, u32 step, u32 (&name)[ARCS],
                                                Sum (&weight)[ARCS]) const {
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            const u64 number = base + static_cast<u64>(i) * step;
            name[i] = listed.v;
            weight[i] = 0;
            if (number < end) name[i] = thread_arc(row, number, weight[i]);
            if (name[i] == listed.v) weight[i] = 0;
        }
        u32 part[ARCS];
        if constexpr (REFINES) {
#pragma unroll
            for (u32 i = 0; i < ARCS; i++) part[i] = weight[i] ? arguments.part[name[i]] : 0;
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) name[i] = weight[i] ? arguments.label[name[i]] : NO_LABEL;
        if constexpr (REFINES) {
#pragma unroll
            for (u32 i = 0; i < ARCS; i++) {
                if (name[i] != listed.own) weight[i] = 0;
                name[i] = weight[i] ? part[i] : NO_LABEL;
            }
        }
    }

    // Compare communities with the best one: those with weight.
    template <u32 ARCS>
    __device__ __forceinline__ void thread_compare(const Visitor &at, const u32 (&name)[ARCS],
                                                   const Sum (&weight)[ARCS],
                                                   Candidate &best) const {
        const Sum *totals = REFINES ? arguments.part_total : arguments.total;
        const Sum *in_totals = REFINES ? arguments.in_part_total : arguments.in_total;
        Sum there[ARCS], entering[ARCS];
        bool moves[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            there[i] = weight[i] ? totals[name[i]] : 0;
            entering[i] = ONE_WAY && weight[i] ? in_totals[name[i]] : 0;
            // A part that has grown does not move; nor does one of another class, in this superstep.
            moves[i] = REFINES && weight[i] && !arguments.grown[name[i]];
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!weight[i] || (moves[i] && is_in_class(name[i]))) continue;
            best.take(__dsub_rn(number_of(weight[i]), penalty(at, there[i], entering[i])), name[i]);
        }
    }

    // Compare the communities in some slots of a table, and clear them: slot_of(i) for first, first + step, ... below
    // `end`.
    template <class SlotOf>
    __device__ __forceinline__ Candidate take_slots(const SumTable &table, const Visitor &at,
                                                    u32 first, u32 end, u32 step,
                                                    SlotOf slot_of) const {
        Candidate best = no_candidate();
        for (u32 base = first; base < end; base += BATCH * step) {
            u32 slot[BATCH], name[BATCH];
            Sum weight[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                slot[i] = base + i * step < end ? slot_of(base + i * step) : NO_LABEL;
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {  // empty slots have the sum 0
                name[i] = slot[i] != NO_LABEL ? load_system(table.keys + slot[i]) : NO_LABEL;
                weight[i] = slot[i] != NO_LABEL ? load_system(table.sums + slot[i]) : Sum(0);
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                if (name[i] != NO_LABEL) table.clear(slot[i]);
            thread_compare(at, name, weight, best);
        }
        return best;
    }

    // The community that a vertex moves to, or NO_LABEL.
    __device__ __forceinline__ u32 decision(const Listed &listed, const Visitor &at,
                                            const Choice &choice) const {
        const double weight = number_of(choice.extra);
        const double against = own_penalty(listed, at);
        if constexpr (REFINES) {
            const bool is_connected = weight >= against;
            return is_connected && choice.best.score > 0 ? choice.best.label : NO_LABEL;
        }
        u32 found = at.own;
        double score = __dsub_rn(weight, against);
        if (choice.best.score > score) {
            found = choice.best.label;
            score = choice.best.score;
        }
        if (score < 0 && arguments.total[at.id] == 0 && !(ONE_WAY && arguments.in_total[at.id]))
            found = at.id;  // alone, in a community that is empty
        return found == at.own ? NO_LABEL : found;
    }

    // Choose by a row of at most ARCS arcs.
    template <u32 ARCS>
    __device__ __forceinline__ u32 thread_choose(const Listed &listed) const {
        if (stays(listed)) return NO_LABEL;
        const Visitor at = visitor(listed);
        u32 name[ARCS];
        Choice choice{no_candidate(), 0};
        Sum weight[ARCS];
        thread_load(listed, row_of(listed), 0, listed.arcs, 1, name, weight);
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!REFINES && name[i] != at.own) continue;
            choice.extra += weight[i];
            if (!REFINES) weight[i] = 0;
        }
#pragma unroll
        for (u32 i = ARCS - 1; i > 0; i--) {  // the first arc to a community has the sum of all
            bool is_first = true;
#pragma unroll
            for (u32 j = 0; j < i; j++) {
                const bool is_same = is_first && name[j] == name[i];
                weight[j] += is_same ? weight[i] : 0;
                is_first = is_first && !is_same;
            }
            if (!is_first) weight[i] = 0;
        }
        thread_compare(at, name, weight, choice.best);
        return decision(listed, at, choice);
    }

    // Add the arcs [first, end) of a row to a table, by warps that share them, of which this is `thread`; return the
    // lane's part of `extra`.
    __device__ __forceinline__ Sum warp_add(const SumTable &table, const Listed &listed, u64 first,
                                            u64 end, u32 thread, u32 threads) const {
        const RowArcs row = row_of(listed);
        u32 guess = NO_LABEL;
        Sum extra = 0, of_guess = 0, ignored;
        const u32 neighbour = first < end ? thread_arc(row, 0, ignored) : listed.v;
        for (u64 base = first + thread; base < end; base += BATCH * static_cast<u64>(threads)) {
            u32 name[BATCH];
            Sum weight[BATCH];
            thread_load(listed, row, base, end, threads, name, weight);
            if (guess == NO_LABEL) guess = name_of(neighbour, listed.own);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const bool is_own = name[i] == listed.own;
                if (REFINES || is_own) extra += weight[i];
                const bool is_guess = name[i] == guess && (REFINES || !is_own);
                if (is_guess) of_guess += weight[i];
                if (!weight[i] || (!REFINES && is_own) || is_guess) name[i] = NO_LABEL;
            }
            table.add_all(name, weight);
        }
        __syncwarp();
        guess = __shfl_sync(FULL_WARP, guess, 0);  // the first lane has arcs if any has
        of_guess = warp_total(of_guess);
        if (lane_id() == 0 && of_guess) table.add(guess, of_guess);
        return extra;
    }

    __device__ __forceinline__ Choice warp_choice(const Choice &choice) const {
        return Choice{warp_best(choice.best), warp_total(choice.extra)};
    }
    // Tell the block what a warp has found.
    __device__ __forceinline__ void warp_tell(Choice choice) const {
        choice = warp_choice(choice);
        if (lane_id() != 0) return;
        shared.best[warp_id()] = choice.best;
        shared.extra[warp_id()] = choice.extra;
    }
    // Return what some warps of the block have told.
    __device__ __forceinline__ Choice warp_hear(u32 first, u32 warps) const {
        const bool is_there = lane_id() < warps;
        Choice choice{no_candidate(), 0};
        if (is_there) choice = {shared.best[first + lane_id()], shared.extra[first + lane_id()]};
        return warp_choice(choice);
    }

    // The block's table.
    __device__ __forceinline__ SumTable table() const {
        Sum *sums = reinterpret_cast<Sum *>(bytes);
        return SumTable{reinterpret_cast<u32 *>(sums + arguments.block_slots), sums,
                        arguments.block_slots};
    }
    // The part of it from a warp on, for some arcs.
    __device__ __forceinline__ SumTable table_of(u32 warp, u64 arcs) const {
        const SumTable all = table();
        return SumTable{all.keys + warp * WARP_SLOTS, all.sums + warp * WARP_SLOTS,
                        slots_for(arcs)};
    }

    // The table in the arena of a long row, by its first chunk in the batch.
    __device__ __forceinline__ SumTable table_of_long(u64 chunk, const Listed &listed) const {
        const u64 first = chunk * 2 * chunk_arcs();
        return SumTable{arguments.arena_keys + first, arguments.arena_sums + first,
                        slots_for(listed.arcs)};
    }
    // Compare the communities in the slots [first, end) of the list of those that a long row uses; return the best to
    // the first warp. All threads of the block come.
    __device__ __forceinline__ Candidate block_best(u64 chunk, const Listed &listed, u32 first,
                                                    u32 end) const {
        const u32 *used = arguments.arena_used + chunk * chunk_arcs();
        warp_tell({take_slots(table_of_long(chunk, listed), visitor(listed), first + threadIdx.x,
                              end, blockDim.x, [&](u32 i) { return load_system(used + i); }),
                   0});
        __syncthreads();
        return warp_id() == 0 ? warp_hear(0, blockDim.x / WARP).best : no_candidate();
    }
    // The vertex of a long row chooses, given its best community, and the row is forgotten.
    __device__ __forceinline__ void thread_decide_long(LongRow *row, u32 place,
                                                       const Listed &listed,
                                                       const Candidate &best) const {
        const Choice choice{best, static_cast<Sum>(load_system(&row->extra))};
        arguments.chosen[place] =
            stays(listed) ? NO_LABEL : decision(listed, visitor(listed), choice);
        store_system(&row->extra, u64{0});
        store_system(&row->used, 0u);
        store_system(&row->done, 0u);
    }

    // Add a chunk of a long row, which the block has added up, to the row's table in the arena; who ends the last
    // chunk chooses, unless MOVE_CHOOSE does. `part` has half of the slots of shared memory at most: the others take a
    // list.
    __device__ __forceinline__ void block_add_chunk(const Units &now, u32 place,
                                                    const Listed &listed, const SumTable &part,
                                                    Sum extra) const {
        const u64 chunk = arguments.chunks[place] - now.chunk;
        LongRow *row = arguments.arena_rows + chunk;
        u32 *used = arguments.arena_used + chunk * chunk_arcs();
        const SumTable all = table_of_long(chunk, listed);
        u32 *list = part.keys + arguments.block_slots / 2;
        for (u32 base = threadIdx.x; base < part.slots; base += BATCH * blockDim.x) {
            u32 name[BATCH], where[BATCH];
            Sum weight[BATCH];
            bool is_first[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u32 slot = base + i * blockDim.x;
                name[i] = slot < part.slots ? load_system(part.keys + slot) : NO_LABEL;
                weight[i] = 0;
                if (name[i] == NO_LABEL) continue;
                weight[i] = load_system(part.sums + slot);
                part.clear(slot);
            }
            all.add_new(name, weight, where, is_first);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                if (is_first[i]) store_system(list + atomicAdd(&shared.written, 1u), where[i]);
        }
        extra = warp_total(extra);
        if (lane_id() == 0 && extra) atomicAdd(&row->extra, static_cast<u64>(extra));
        __syncthreads();
        const u32 written = shared.written;
        if (threadIdx.x == 0) shared.begin = written ? atomicAdd(&row->used, written) : 0u;
        __syncthreads();
        for (u32 i = threadIdx.x; i < written; i += blockDim.x) {
            store_system(used + shared.begin + i, load_system(list + i));
            store_system(list + i, NO_LABEL);
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            shared.begin = atomicAdd(&row->done, 1u) + 1;
            shared.written = 0;
            __threadfence();
        }
        __syncthreads();
        if (shared.begin < chunks_of(listed.arcs)) return;
        const u32 count = load_system(&row->used);
        if (count > chunk_arcs()) {
            if (warp_id() == 0) warp_count(block, UNDECIDED, lane_id() == 0);
            if (threadIdx.x == 0) store_system(&row->done, 0u);
            return;
        }
        const Candidate best = block_best(chunk, listed, 0, count);
        if (threadIdx.x == 0) thread_decide_long(row, place, listed, best);
    }
    // Choose for the long rows of a batch that have not chosen: a block takes as many used slots as a chunk has arcs,
    // and who ends the last part of a row compares all parts.
    __device__ __forceinline__ void block_choose_long(const Units &now) const {
        for (u32 unit = team.block; unit < now.chunks; unit += team.blocks) {
            const u32 place = lists().warp_place_of(now, now.chunk + unit);
            const u64 chunk = arguments.chunks[place] - now.chunk;
            LongRow *row = arguments.arena_rows + chunk;
            const u32 first = static_cast<u32>(unit - chunk) * chunk_arcs();
            // The rows that have chosen use none. Those that have not are not forgotten before all parts are done.
            const u32 count = load_system(&row->used);
            if (first >= count) continue;
            const Listed listed = arguments.listed[place];
            Candidate best = block_best(chunk, listed, first, min(count, first + chunk_arcs()));
            if (warp_id() == 0) {
                u32 done = 0;
                if (lane_id() == 0) {
                    store_system(&arguments.arena_rows[unit].score, best.score);
                    store_system(&arguments.arena_rows[unit].label, best.label);
                    __threadfence();
                    done = atomicAdd(&row->done, 1u) + 1;
                    __threadfence();
                }
                const u32 parts = (count + chunk_arcs() - 1) / chunk_arcs();
                if (__shfl_sync(FULL_WARP, done, 0) == parts) {
                    best = no_candidate();
                    for (u32 part = lane_id(); part < parts; part += WARP)
                        best.take(load_system(&row[part].score), load_system(&row[part].label));
                    best = warp_best(best);
                    if (lane_id() == 0) thread_decide_long(row, place, listed, best);
                }
            }
            __syncthreads();
        }
    }

    // Visit chunks of long rows, rows of a block, and groups of rows, which blocks claim one by one.
    __device__ __forceinline__ void block_visit_large(const Units &now) const {
        const u32 warps = blockDim.x / WARP, groups = warps / group_warps();
        const u32 before = now.chunks + now.rows(ROW_BLOCK);
        const u32 all = before + (now.rows(ROW_GROUP) + groups - 1) / groups;
        for (u32 unit = team.block; unit < all;) {
            u32 claim = 0;  // the next one, which is under way meanwhile
            if (threadIdx.x == 0)
                claim = team.blocks + static_cast<u32>(atomicAdd(team.control->cursors, 1ull));
            const u32 sharing = unit < before ? warps : group_warps();
            const u32 group = warp_id() / sharing, thread = threadIdx.x - group * sharing * WARP;
            u32 place = now.begins[ROW_BLOCK] + unit - now.chunks;
            u64 first = 0;
            bool is_there = true;
            if (unit < now.chunks) {
                const u32 chunk = now.chunk + unit;
                place = lists().warp_place_of(now, chunk);
                first = static_cast<u64>(chunk - arguments.chunks[place]) * chunk_arcs();
            } else if (unit >= before) {
                place = now.begins[ROW_GROUP] + (unit - before) * groups + group;
                is_there = group < groups && place < now.begins[ROW_GROUP + 1];
            }
            Listed listed{};
            if (is_there) listed = arguments.listed[place];
            const bool counts = is_there && !stays(listed);
            u64 end = counts ? listed.arcs : first;
            if (unit < now.chunks) end = min(end, first + chunk_arcs());
            const SumTable part = table_of(group * sharing, end - first);
            const Sum extra = warp_add(part, listed, first, end, thread, sharing * WARP);
            __syncthreads();
            if (unit < now.chunks) {
                block_add_chunk(now, place, listed, part, extra);
            } else {
                const Visitor at = visitor(listed);
                warp_tell({take_slots(part, at, thread, part.slots, sharing * WARP,
                                      [](u32 slot) { return slot; }),
                           extra});
                __syncthreads();
                if (thread < WARP) {
                    const Choice choice = warp_hear(warp_id(), sharing);
                    if (lane_id() == 0 && is_there)
                        arguments.chosen[place] = counts ? decision(listed, at, choice) : NO_LABEL;
                }
            }
            if (threadIdx.x == 0) shared.claimed = claim;
            __syncthreads();
            unit = shared.claimed;
        }
    }

    // Visit rows of a warp.
    __device__ __forceinline__ void team_visit_rows(const Units &now) const {
        const u64 end = now.begins[ROW_WARP + 1];
        u64 place = now.begins[ROW_WARP] + team.warp();
        Listed next{};
        if (place < end) next = arguments.listed[place];
        for (; place < end; place += team.warps()) {
            const Listed listed = next;
            if (place + team.warps() < end) next = arguments.listed[place + team.warps()];
            u32 found = NO_LABEL;
            if (!stays(listed)) {
                const SumTable part = table_of(warp_id(), listed.arcs);
                const Sum extra = warp_add(part, listed, 0, listed.arcs, lane_id(), WARP);
                __syncwarp();
                const Visitor at = visitor(listed);
                const Candidate best = take_slots(part, at, lane_id(), part.slots, WARP,
                                                  [](u32 slot) { return slot; });
                __syncwarp();
                found = decision(listed, at, warp_choice({best, extra}));
            }
            if (lane_id() == 0) arguments.chosen[place] = found;
        }
    }

    // Visit rows of a thread. The first warps to do so are those that have none of the rows of a warp, or fewer.
    __device__ __forceinline__ void team_visit_tiny(const Units &now) const {
        const u64 warps = team.warps(), taken = now.rows(ROW_WARP) % warps;
        const u64 first = (team.warp() + warps - taken) % warps, end = now.begins[ROW_TINY + 1];
        Listed next{};
        u64 place = now.begins[ROW_TINY] + first * WARP + lane_id();
        if (place < end) next = arguments.listed[place];
        for (u64 base = place - lane_id(); base < end; base += warps * WARP) {
            place = base + lane_id();
            const Listed listed = place < end ? next : Listed{};
            if (place + warps * WARP < end) next = arguments.listed[place + warps * WARP];
            const bool are_least = __all_sync(FULL_WARP, listed.arcs <= TINY_ARCS / 2);
            if (place < end)
                arguments.chosen[place] = are_least ? thread_choose<TINY_ARCS / 2>(listed)
                                                    : thread_choose<TINY_ARCS>(listed);
            __syncwarp();
        }
    }

    __device__ __forceinline__ void block_decide(const Units &now) const {
        if (now.begins[ROW_TINY] > now.begins[0]) {
            const SumTable all = table();
            for (u32 slot = threadIdx.x; slot < all.slots; slot += blockDim.x) all.clear(slot);
            if (threadIdx.x == 0) shared.written = 0;
            __syncthreads();
            block_visit_large(now);
            team_visit_rows(now);
        }
        team_visit_tiny(now);
    }

    // Activate the neighbours in other communities of the vertices of a class that moved. A warp takes a 16th of the
    // arcs of a chunk or of a row of a block, a quarter of a row of a group, a row, or 32 of the smallest. Warps begin
    // at the end, as those at the begin have vertices to visit.
    __device__ __forceinline__ void team_activate(const Units &units) const {
        const u64 wide = units.chunks + units.rows(ROW_BLOCK);
        const u64 parts = WIDE_WARPS * wide + GROUP_WARPS * units.rows(ROW_GROUP);
        const u64 rows = parts + units.rows(ROW_WARP);
        const u64 all = rows + (units.rows(ROW_TINY) + WARP - 1) / WARP;
        for (u64 turn = team.warps() - 1 - team.warp(); turn < all; turn += team.warps()) {
            if (turn >= rows) {
                const u64 row = (turn - rows) * WARP + lane_id();
                if (row < units.rows(ROW_TINY))
                    lane_activate_row(units.begins[ROW_TINY] + static_cast<u32>(row), 0, 0, 1);
            } else if (turn >= parts) {
                lane_activate_row(units.begins[ROW_WARP] + static_cast<u32>(turn - parts), 0,
                                  lane_id(), WARP);
            } else if (turn >= WIDE_WARPS * wide) {
                const u32 part = static_cast<u32>(turn - WIDE_WARPS * wide);
                lane_activate_row(units.begins[ROW_GROUP] + part / GROUP_WARPS, 0,
                                  part % GROUP_WARPS * WARP + lane_id(), GROUP_WARPS * WARP);
            } else {
                const u32 unit = static_cast<u32>(turn / WIDE_WARPS);
                const u32 thread = static_cast<u32>(turn % WIDE_WARPS) * WARP + lane_id();
                u32 place = units.begins[ROW_BLOCK] + unit - units.chunks;
                u64 first = 0;
                if (unit < units.chunks) {
                    place = lists().warp_place_of(units, unit);
                    first = static_cast<u64>(unit - arguments.chunks[place]) * chunk_arcs();
                }
                lane_activate_row(place, first, thread, WIDE_WARPS * WARP);
            }
            __syncwarp();
        }
    }
    static constexpr u32 WIDE_WARPS = 16;
    // Along the arcs first + thread, first + thread + threads, ... of a chunk, or of a row that is not long.
    __device__ __forceinline__ void lane_activate_row(u32 place, u64 first, u32 thread,
                                                      u32 threads) const {
        const u32 taken = arguments.chosen[place];
        if (taken == NO_LABEL) return;
        const Listed listed = arguments.listed[place];
        const RowArcs row = row_of(listed);
        u64 end = listed.arcs;
        if (is_long(end)) end = min(end, first + chunk_arcs());
        lane_activate(arguments.active, arguments.label, taken, which, first + thread, end, threads,
                      [&](u64 number) {
                          Sum ignored;
                          return thread_arc(row, number, ignored);
                      });
    }

    __device__ __forceinline__ void thread_move_mass(Sum *totals, u32 from, u32 to,
                                                     Sum mass) const {
        if (mass == 0) return;
        // The mass of a part is not read any more when its vertex has left it.
        if (!REFINES) atomicAdd(totals + from, Sum(0) - mass);
        atomicAdd(totals + to, mass);
    }
    __device__ __forceinline__ void team_take(const Units &units) const {
        u64 moves = 0;
        const bool clears = !REFINES && !lists().has_turns();
        for (u64 place = units.begins[0] + team.thread(); place < units.begins[KINDS];
             place += team.threads()) {
            const Listed listed = arguments.listed[place];
            const u32 to = arguments.chosen[place];
            if (clears) arguments.active[listed.v] = 0;
            if (to == NO_LABEL) continue;
            (REFINES ? arguments.part : arguments.label)[listed.v] = to;
            if (REFINES) store_system(arguments.grown + to, u8(1));
            const u32 from = REFINES ? listed.id : listed.own;
            thread_move_mass(REFINES ? arguments.part_total : arguments.total, from, to,
                             listed.mass);
            if (ONE_WAY)
                thread_move_mass(REFINES ? arguments.in_part_total : arguments.in_total, from, to,
                                 listed.in_mass());
            moves += 1;
        }
        __syncwarp();
        warp_count(block, MOVES, moves);
    }

    __device__ __forceinline__ void team_begin() const {
        // Only vertices of the first level have arcs to themselves.
        const bool are_single = !REFINES && block.state[SINGLE], have_loops = arguments.vertices;
        team_each(arguments.count, [&](u32 v) {
            const RowArcs row = Level::row_of(v);
            if (are_single) {
                arguments.active[v] =
                    have_loops ? thread_is_outer(row.arcs,
                                                 [&](u64 number) {
                                                     Sum ignored;
                                                     return thread_arc(row, number, ignored) != v;
                                                 })
                               : row.arcs > 0;
            } else if constexpr (!REFINES) {
                const u32 own = arguments.label[v];
                arguments.active[v] = thread_is_outer(row.arcs, [&](u64 number) {
                    Sum ignored;
                    return arguments.label[thread_arc(row, number, ignored)] != own;
                });
            } else {
                arguments.active[v] = row.arcs > 0;
                const u32 id = id_of(v);
                arguments.part[v] = id;
                arguments.grown[v] = 0;
                arguments.part_total[id] = arguments.mass[v];
                if (ONE_WAY) arguments.in_part_total[id] = arguments.in_mass[v];
            }
        });
        const u64 slots = arguments.arena_chunks * 2 * chunk_arcs();
        for (u64 slot = team.thread(); slot < slots; slot += team.threads()) {
            arguments.arena_keys[slot] = NO_LABEL;
            arguments.arena_sums[slot] = 0;
        }
        for (u64 row = team.thread(); row < arguments.arena_chunks; row += team.threads())
            arguments.arena_rows[row] = LongRow{};
        lists().team_begin(team);
        const u64 rest = u64{arguments.count} + threadIdx.x;
        if (team.block == 0 && rest < (u64{arguments.count} + 3) / 4 * 4)
            arguments.active[rest] = 0;
    }

    __device__ __forceinline__ void block_count() const {
        u64 arcs = 0;
        const u64 visited = lists().block_count(
            team, block.state[ROUND] & 1, reinterpret_cast<u32 *>(bytes), false,
            [](u32) { return false; },
            [&](u32 v) {
                const u64 length = Level::row_of(v).arcs;
                arcs += length;
                return class_of(id_of(v), start) * KINDS + kind_of(length);
            });
        warp_count(block, VISITED, REFINES ? 0 : visited);
        warp_count(block, LISTINGS, !REFINES && team.thread() == 0);
        warp_count(block, MOVES, visited);
        warp_count(block, BOUND, arcs);
    }
    __device__ __forceinline__ void block_list() const {
        lists().block_list(team, block.state[ROUND] & 1, reinterpret_cast<u32 *>(bytes),
                           [&](u32 v, const VertexLists::Places &places) {
                               const RowArcs row = Level::row_of(v);
                               Listed listed{};
                               listed.v = v;
                               listed.id = id_of(v);
                               listed.own = arguments.label[v];
                               listed.arcs = static_cast<u32>(row.arcs);
                               listed.begin = static_cast<Sum>(row.begin);
                               listed.mass = arguments.mass[v];
                               if (ONE_WAY)
                                   listed.set_in(row.in_begin, row.leaving, arguments.in_mass[v]);
                               const u32 bin =
                                   class_of(listed.id, start) * KINDS + kind_of(row.arcs);
                               arguments.listed[places.take(bin, chunks_of(row.arcs))] = listed;
                               return bin;
                           });
    }

    __device__ __forceinline__ void run(u32 phase) const {
        switch (phase) {
            case MOVE_BEGIN:
                team_begin();
                break;
            case MOVE_COUNT:
                block_count();
                break;
            case MOVE_LIST:
                block_list();
                break;
            case MOVE_DECIDE:
            case MOVE_ADD: {
                Units now = lists().batch_of(which, block.state[LONG_BEGIN], block.state[LONG_END]);
                if (phase == MOVE_ADD) now.leave_short_rows();
                block_decide(now);
                const u32 before = static_cast<u32>(block.state[PREVIOUS]);
                if (phase == MOVE_DECIDE && !REFINES) team_activate(lists().units_of(before));
                break;
            }
            case MOVE_CHOOSE:
                block_choose_long(
                    lists().batch_of(which, block.state[LONG_BEGIN], block.state[LONG_END]));
                break;
            case MOVE_TAKE:
                team_take(lists().units_of(which));
                break;
        }
    }
};

// Choose the next batch of a class' long rows.
__device__ __forceinline__ void thread_next_batch(const Arguments &arguments, u64 *state) {
    state[LONG_BEGIN] = state[LONG_END];
    if (state[LONG_BEGIN] < state[LONG_ROWS])
        state[LONG_END] = lists_of(arguments, state)
                              .batch_end(static_cast<u32>(state[CLASS]), state[LONG_BEGIN],
                                         arguments.arena_chunks);
}

// What follows the last round: communities are numbered, if that was asked for.
__device__ __forceinline__ u32 thread_end_moves(const u64 *state) {
    return state[GROUPS] ? GROUP_CLEAR : STOP;
}

// The next superstep of a round: that of the next class that has vertices, or the last of activation.
__device__ __forceinline__ u32 thread_next_class(const Arguments &arguments, u64 *state,
                                                 u32 which) {
    const VertexLists lists = lists_of(arguments, state);
    which = lists.next_class(which);
    state[CLASS] = which;
    state[LONG_END] = state[LONG_ROWS] = 0;
    if (which != NO_CLASS && arguments.arena_chunks > 0)
        state[LONG_ROWS] = lists.begin_of(which * KINDS + 1) - lists.begin_of(which * KINDS);
    thread_next_batch(arguments, state);
    if (state[CLASS] != NO_CLASS) return MOVE_DECIDE;
    const bool is_last = state[MOVED] <= state[ENOUGH] || state[ROUND] + 1 >= state[ROUNDS];
    if (state[PREVIOUS] != NO_CLASS && !is_last) return MOVE_DECIDE;
    state[ROUND] += 1;
    if (is_last) return thread_end_moves(state);
    state[START] = thread_mix(state[SEED] + state[ROUND]);
    state[MOVED] = 0;
    return MOVE_COUNT;
}

__device__ __forceinline__ u32 thread_next_move(const Arguments &arguments, u32 phase,
                                                const Sums &sums, u64 *state) {
    const u32 which = static_cast<u32>(state[CLASS]);
    switch (phase) {
        case MOVE_BEGIN:
            state[ROUND] = state[MOVED] = 0;
            state[START] = thread_mix(state[SEED]);
            return MOVE_COUNT;
        case MOVE_COUNT:
            state[CLASSES] =
                classes_of_round(arguments.classes, sums.counts[MOVES], arguments.count);
            state[TEAM] =
                sums.counts[MOVES] <= FEW_VERTICES && sums.counts[BOUND] <= FEW_ARCS ? ALONE : 0;
            if (sums.counts[MOVES] > 0) return MOVE_LIST;
            state[ROUND] += 1;
            return thread_end_moves(state);
        case MOVE_LIST:
            state[PREVIOUS] = NO_CLASS;
            return thread_next_class(arguments, state, 0);
        case MOVE_DECIDE:
            if (which == NO_CLASS) {
                state[PREVIOUS] = NO_CLASS;
                return thread_next_class(arguments, state, NO_CLASS);
            }
            [[fallthrough]];
        case MOVE_ADD:
            if (sums.counts[UNDECIDED]) return MOVE_CHOOSE;
            [[fallthrough]];
        case MOVE_CHOOSE:
            thread_next_batch(arguments, state);
            return state[LONG_END] > state[LONG_BEGIN] ? MOVE_ADD : MOVE_TAKE;
        default:  // MOVE_TAKE
            state[MOVED] += sums.counts[MOVES];
            state[PREVIOUS] = sums.counts[MOVES] ? which : NO_CLASS;
            return thread_next_class(arguments, state, which + 1);
    }
}

__device__ __forceinline__ u32 thread_decide_moves(const Arguments &arguments, u32 phase,
                                                   const Sums &sums, u64 *state) {
    const u32 next = thread_next_move(arguments, phase, sums, state);
    return next >= MOVE_DECIDE && next <= MOVE_TAKE ? next | static_cast<u32>(state[TEAM]) : next;
}
