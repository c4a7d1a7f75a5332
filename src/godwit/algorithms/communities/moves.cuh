// Move vertices of a level to better communities, and refine communities: move_vertices and refine_communities of
// cpu.py.
//
// A round counts and lists the active vertices by bins: of class and kind of row. Then each class takes
// supersteps of its own. In MOVE_DECIDE its vertices choose, and the neighbours of those of the class before that
// moved become active, as seen before this class moves; in MOVE_TAKE it moves. Weights are added up by community in
// lists for TINY rows, and else in hash tables: in shared memory of a warp or of a block. The rows of hubs
// are divided among all blocks, which add what their shared memory has to a table in global memory; MOVE_SCAN
// divides the tables.
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

__device__ __forceinline__ Candidate warp_best(Candidate best) {
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        const double score = __shfl_xor_sync(FULL_WARP, best.score, step);
        const u32 label = __shfl_xor_sync(FULL_WARP, best.label, step);
        best.take(score, label);
    }
    return best;
}

__device__ __forceinline__ double number_of(u32 sum) { return static_cast<double>(sum); }
// Sums are below 2^53.
__device__ __forceinline__ double number_of(u64 sum) {
    return static_cast<double>(static_cast<i64>(sum));
}

// What a vertex compares communities by.
struct Visitor {
    u32 v;
    u32 id;
    u32 own;
    double share;  // factor * mass
    double in_share;
};

// What a thread, a warp or a block has found for a vertex. `extra` is the weight to the vertex' own community:
// without those of its vertices that are not counted.
struct Choice {
    Candidate best;
    u64 extra;
};

struct BlockMemory {
    Candidate best[WARP];
    u64 extra[WARP];
    u32 claimed;
    u32 written;
    u64 begin;
};

template <bool REFINES>
struct Moves : Level {
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

    // The first place of the vertices of the class with a kind of row, which is the end of those before.
    __device__ __forceinline__ u32 begin_of(u32 kind) const {
        return static_cast<u32>(block.state[THIS + kind]);
    }
    __device__ __forceinline__ u32 end_of(u32 kind) const { return begin_of(kind + 1); }
    __device__ __forceinline__ RowKind kind_of(u64 arcs) const {
        if (arcs <= TINY_ARCS) return ROW_TINY;
        if (arcs <= WARP_ARCS) return ROW_WARP;
        return is_long(arcs) ? ROW_HUB : ROW_BLOCK;
    }

    __device__ __forceinline__ Visitor visitor(u32 v) const {
        Visitor at{v, id_of(v), arguments.label[v], 0, 0};
        at.share = __dmul_rn(arguments.factor, number_of(arguments.mass[v]));
        if (ONE_WAY) at.in_share = __dmul_rn(arguments.factor, number_of(arguments.in_mass[v]));
        return at;
    }

    // The same operations in the same order as _penalty of cpu.py.
    __device__ __forceinline__ double penalty(const Visitor &at, Sum there, Sum entering) const {
        const double leaving = number_of(there);
        if (!ONE_WAY) return __dmul_rn(at.share, leaving);
        return __dadd_rn(__dmul_rn(at.share, number_of(entering)), __dmul_rn(at.in_share, leaving));
    }
    __device__ __forceinline__ double own_penalty(const Visitor &at) const {
        const Sum there = arguments.total[at.own] - arguments.mass[at.v];
        const Sum entering = ONE_WAY ? arguments.in_total[at.own] - arguments.in_mass[at.v] : 0;
        return penalty(at, there, entering);
    }

    // Call take(name, weight) for the arcs [first, end) of a row, `step` apart, that count for a community or part.
    template <class Take>
    __device__ __forceinline__ void thread_each_name(const Visitor &at, const Row &row, u64 first,
                                                     u64 end, u32 step, Take take) const {
        for (u64 base = first; base < end; base += BATCH * static_cast<u64>(step)) {
            u32 name[BATCH], part[BATCH];
            Sum weight[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u64 number = base + static_cast<u64>(i) * step;
                name[i] = at.v;
                weight[i] = 0;
                if (number < end) name[i] = thread_arc(row, number, weight[i]);
                if (name[i] == at.v) weight[i] = 0;
            }
            if constexpr (REFINES) {
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) part[i] = weight[i] ? arguments.part[name[i]] : 0;
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                name[i] = weight[i] ? arguments.label[name[i]] : NO_LABEL;
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (!weight[i] || (REFINES && name[i] != at.own)) continue;
                take(REFINES ? part[i] : name[i], weight[i]);
            }
        }
    }

    // Compare the communities in slots [first, end) of a table, `step` apart.
    __device__ __forceinline__ Choice look_through(const SumTable &table, const Visitor &at,
                                                   u32 first, u32 end, u32 step) const {
        const Sum *totals = REFINES ? arguments.part_total : arguments.total;
        const Sum *in_totals = REFINES ? arguments.in_part_total : arguments.in_total;
        Choice choice{no_candidate(), 0};
        for (u32 base = first; base < end; base += BATCH * step) {
            u32 name[BATCH];
            Sum there[BATCH], entering[BATCH];
            bool moves[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u32 slot = base + i * step;
                name[i] = slot < end ? load_system(table.keys + slot) : NO_LABEL;
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const bool is_there = name[i] != NO_LABEL && (REFINES || name[i] != at.own);
                there[i] = is_there ? totals[name[i]] : 0;
                entering[i] = ONE_WAY && is_there ? in_totals[name[i]] : 0;
                // A part that has grown does not move; nor does one of another class, in this superstep.
                moves[i] = REFINES && is_there && !arguments.grown[name[i]];
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (name[i] == NO_LABEL) continue;
                const Sum sum = load_system(table.sums + (base + i * step));
                if (REFINES || name[i] == at.own) choice.extra += sum;
                if (REFINES ? moves[i] && class_of(name[i], start) == which : name[i] == at.own)
                    continue;
                const double score = __dsub_rn(number_of(sum), penalty(at, there[i], entering[i]));
                choice.best.take(score, name[i]);
            }
        }
        return choice;
    }

    // The community that a vertex moves to, or NO_LABEL.
    __device__ __forceinline__ u32 decision(const Visitor &at, const Choice &choice) const {
        const double weight = number_of(choice.extra);
        const double against = own_penalty(at);
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

    // Parts that others have joined stay.
    __device__ __forceinline__ bool stays(const Visitor &at) const {
        return REFINES && arguments.grown[at.id];
    }

    // A thread has every 32nd slot of its warp's table, as a list.
    __device__ __forceinline__ u32 thread_choose(const SumTable &table, u32 v) const {
        const Visitor at = visitor(v);
        if (stays(at)) return NO_LABEL;
        const Row row = row_of(v);
        const u32 first = lane_id();
        u32 end = first;
        thread_each_name(at, row, 0, row.arcs, 1, [&](u32 name, Sum weight) {
            u32 slot = first;
            while (slot < end && table.keys[slot] != name) slot += WARP;
            const bool is_new = slot == end;
            table.keys[slot] = name;
            table.sums[slot] = is_new ? weight : table.sums[slot] + weight;
            if (is_new) end += WARP;
        });
        return decision(at, look_through(table, at, first, end, WARP));
    }

    // Add arcs of a row to an empty table; `threads` threads share the work, and `sync` orders them.
    template <class Sync>
    __device__ __forceinline__ void add_arcs(const SumTable &table, const Visitor &at,
                                             const Row &row, u64 first, u64 end, u32 thread,
                                             u32 threads, Sync sync) const {
        for (u32 slot = thread; slot <= table.mask; slot += threads) table.clear(slot);
        sync();
        thread_each_name(at, row, first + thread, end, threads,
                         [&](u32 name, Sum weight) { table.add(name, weight); });
        sync();
    }

    // Return the choice of all threads of the block, to its first warp.
    __device__ __forceinline__ Choice block_choice(Choice choice) const {
        choice.best = warp_best(choice.best);
        choice.extra = lanes_sum(choice.extra);
        if (lane_id() == 0) {
            shared.best[warp_id()] = choice.best;
            shared.extra[warp_id()] = choice.extra;
        }
        __syncthreads();
        if (warp_id() == 0) {
            const bool is_there = lane_id() < blockDim.x / WARP;
            choice.best = warp_best(is_there ? shared.best[lane_id()] : no_candidate());
            choice.extra = lanes_sum(is_there ? shared.extra[lane_id()] : u64(0));
        }
        __syncthreads();
        return choice;
    }

    // The next hubs of the class, as many as have tables, one for each lane, with pieces of their rows or tables.
    struct Hubs {
        u32 begin;  // place of the first
        u32 pieces;
        u32 end;  // pieces of the lanes up to this one
        u32 all;

        __device__ __forceinline__ u32 hub_of(u32 piece) const { return warp_lane_of(end, piece); }
        __device__ __forceinline__ u32 first_of(u32 hub) const {
            return __shfl_sync(FULL_WARP, end - pieces, hub);
        }
    };
    template <class PiecesOf>
    __device__ __forceinline__ Hubs warp_hubs(PiecesOf pieces_of) const {
        Hubs hubs{begin_of(ROW_HUB) + static_cast<u32>(block.state[HUB]), 0, 0, 0};
        if (hubs.begin >= end_of(ROW_HUB)) return hubs;
        if (lane_id() < min(arguments.hubs, end_of(ROW_HUB) - hubs.begin))
            hubs.pieces = pieces_of(row_of(arguments.order[hubs.begin + lane_id()]).arcs);
        hubs.end = warp_sum_up_to(hubs.pieces);
        hubs.all = __shfl_sync(FULL_WARP, hubs.end, WARP - 1);
        return hubs;
    }
    __device__ __forceinline__ SumTable hub_table(u32 hub, u64 arcs) const {
        const u64 first = hub * arguments.hub_slots;
        return SumTable{arguments.hub_keys + first, arguments.hub_sums + first,
                        slots_for(arcs) - 1};
    }
    __device__ __forceinline__ HubPart *hub_part(u32 hub, u32 piece) const {
        return arguments.hub_parts + hub * (arguments.hub_slots / piece_slots()) + piece;
    }

    __device__ __forceinline__ u32 piece_slots() const { return arguments.block_slots / 4; }
    __device__ __forceinline__ u32 table_pieces(u64 arcs) const {
        return (slots_for(arcs) + piece_slots() - 1) / piece_slots();
    }
    // Look through pieces of tables, and clear them.
    __device__ __forceinline__ void block_scan_hubs() const {
        const Hubs hubs = warp_hubs([&](u64 arcs) { return table_pieces(arcs); });
        for (u32 number = team.block; number < hubs.all; number += team.blocks) {
            const u32 hub = hubs.hub_of(number), place = hubs.begin + hub;
            const u32 piece = number - hubs.first_of(hub);
            const Visitor at = visitor(arguments.order[place]);
            if (stays(at)) {
                if (piece == 0 && threadIdx.x == 0) arguments.chosen[place] = NO_LABEL;
                continue;
            }
            const SumTable table = hub_table(hub, row_of(at.v).arcs);
            const u32 begin = piece * piece_slots();
            const u32 end = min(table.mask + 1, begin + piece_slots());
            const Choice choice =
                block_choice(look_through(table, at, begin + threadIdx.x, end, blockDim.x));
            for (u32 slot = begin + threadIdx.x; slot < end; slot += blockDim.x) table.clear(slot);
            if (threadIdx.x == 0) {
                HubPart *part = hub_part(hub, piece);
                store_system(&part->score, choice.best.score);
                store_system(&part->extra, choice.extra);
                store_system(&part->label, choice.best.label);
                __threadfence();
                shared.claimed = atomicAdd(arguments.counters->done + hub, 1u);
                __threadfence();
            }
            __syncthreads();
            const u32 pieces = table_pieces(row_of(at.v).arcs);
            if (warp_id() == 0 && shared.claimed == pieces - 1)
                warp_choose_of_pieces(at, hub, place, pieces);
            __syncthreads();
        }
    }
    // The block that has looked through the last piece of a hub's table compares what all of them had.
    __device__ __forceinline__ void warp_choose_of_pieces(const Visitor &at, u32 hub, u32 place,
                                                          u32 pieces) const {
        Choice choice{no_candidate(), 0};
        for (u32 piece = lane_id(); piece < pieces; piece += WARP) {
            const HubPart *part = hub_part(hub, piece);
            choice.best.take(load_system(&part->score), load_system(&part->label));
            choice.extra += load_system(&part->extra);
        }
        __syncwarp();
        choice.best = warp_best(choice.best);
        choice.extra = lanes_sum(choice.extra);
        const u32 found = decision(at, choice);
        if (lane_id() != 0) return;
        arguments.chosen[place] = found;
        arguments.counters->done[hub] = 0;
    }

    // Claim a row of the class that a block visits.
    __device__ __forceinline__ u32 thread_claim() const {
        return begin_of(ROW_BLOCK) + static_cast<u32>(atomicAdd(team.control->cursors, 1ull));
    }

    // Visit pieces of the rows of hubs, then rows that a block visits, which blocks claim one by one, then those for
    // warps: one copy of the code for all.
    __device__ __forceinline__ void block_decide() const {
        const u32 most = arguments.block_slots / 4, lane = lane_id();
        const Hubs hubs =
            warp_hubs([&](u64 arcs) { return static_cast<u32>((arcs + most - 1) / most); });
        Sum *sums = reinterpret_cast<Sum *>(bytes);
        u32 *keys = reinterpret_cast<u32 *>(sums + arguments.block_slots);
        const u32 mine = warp_id() * WARP_SLOTS;
        u32 kind = ROW_HUB;
        u64 next = team.block;
        for (;;) {
            u32 place, hub = 0;
            u64 first = 0;
            if (kind == ROW_HUB) {
                if (next >= hubs.all) {
                    if (block.state[HUB]) return;
                    kind = end_of(ROW_BLOCK) > begin_of(ROW_BLOCK) ? ROW_BLOCK : ROW_WARP;
                    if (kind == ROW_BLOCK && threadIdx.x == 0) shared.claimed = thread_claim();
                    next = begin_of(ROW_WARP) + team.warp();
                    continue;
                }
                hub = hubs.hub_of(static_cast<u32>(next));
                place = hubs.begin + hub;
                first = (next - hubs.first_of(hub)) * most;
                next += team.blocks;
            } else if (kind == ROW_BLOCK) {
                __syncthreads();
                place = shared.claimed;
                if (place >= end_of(ROW_BLOCK)) {
                    kind = ROW_WARP;
                    continue;
                }
            } else {
                if (next >= end_of(ROW_WARP)) break;
                place = static_cast<u32>(next);
                next += team.warps();
            }
            const bool is_block = kind != ROW_WARP;
            const u32 thread = is_block ? threadIdx.x : lane,
                      threads = is_block ? blockDim.x : WARP;
            // The next claim, which is under way meanwhile, is stored once all have read the last.
            u32 claim = 0;
            if (kind == ROW_BLOCK && threadIdx.x == 0) claim = thread_claim();
            const Visitor at = visitor(arguments.order[place]);
            u32 found = NO_LABEL;
            if (!stays(at)) {
                const Row row = row_of(at.v);
                const u64 end = kind == ROW_HUB ? min(row.arcs, first + most) : row.arcs;
                const SumTable table{is_block ? keys : keys + mine, is_block ? sums : sums + mine,
                                     slots_for(end - first) - 1};
                add_arcs(table, at, row, first, end, thread, threads, [=] {
                    if (is_block)
                        __syncthreads();
                    else
                        __syncwarp();
                });
                if (kind == ROW_HUB) {
                    const SumTable all = hub_table(hub, row.arcs);
                    for (u32 slot = threadIdx.x; slot <= table.mask; slot += blockDim.x) {
                        const u32 name = load_system(table.keys + slot);
                        if (name != NO_LABEL) all.add(name, load_system(table.sums + slot));
                    }
                    __syncthreads();
                    continue;
                }
                Choice choice = look_through(table, at, thread, table.mask + 1, threads);
                if (is_block) {
                    choice = block_choice(choice);
                } else {
                    choice.best = warp_best(choice.best);
                    choice.extra = lanes_sum(choice.extra);
                }
                found = decision(at, choice);
            }
            if (thread == 0 && kind != ROW_HUB) arguments.chosen[place] = found;
            if (is_block) {
                __syncthreads();
                if (threadIdx.x == 0) shared.claimed = claim;
            } else {
                __syncwarp();
            }
        }
        const SumTable table{keys + mine, sums + mine, 0};
        const u64 end = end_of(ROW_TINY);
        for (u64 place = begin_of(ROW_TINY) + team.thread(); place < end; place += team.threads())
            arguments.chosen[place] = thread_choose(table, arguments.order[place]);
    }

    // Activate the neighbours in other communities of the vertices of a class that moved.
    __device__ __forceinline__ void activate(u32 place, u32 thread, u32 threads) const {
        if (arguments.chosen[place] == NO_LABEL) return;
        const u32 v = arguments.order[place];
        const Row row = row_of(v);
        const u32 own = arguments.label[v];
        for (u64 number = thread; number < row.arcs; number += threads) {
            Sum weight;
            const u32 u = thread_arc(row, number, weight);
            if (arguments.label[u] != own && !load_system(arguments.active + u))
                store_system(arguments.active + u, u8(1));
        }
    }
    // Blocks, warps and threads begin at the end, as those at the begin have vertices to visit.
    __device__ __forceinline__ void team_activate() const {
        const u64 *places = block.state + BEFORE;
        const u64 block_end = places[ROW_WARP], warp_end = places[ROW_TINY], end = places[KINDS];
        for (u64 place = places[ROW_HUB] + team.blocks - 1 - team.block; place < block_end;
             place += team.blocks)
            activate(static_cast<u32>(place), threadIdx.x, blockDim.x);
        for (u64 place = block_end + team.warps() - 1 - team.warp(); place < warp_end;
             place += team.warps())
            activate(static_cast<u32>(place), lane_id(), WARP);
        for (u64 place = warp_end + team.threads() - 1 - team.thread(); place < end;
             place += team.threads())
            activate(static_cast<u32>(place), 0, 1);
    }

    __device__ __forceinline__ void thread_move_mass(Sum *totals, u32 from, u32 to,
                                                     Sum mass) const {
        if (mass == 0) return;
        // The mass of a part is not read any more when its vertex has left it.
        if (!REFINES) atomicAdd(totals + from, Sum(0) - mass);
        atomicAdd(totals + to, mass);
    }
    __device__ __forceinline__ void team_take() const {
        const u64 end = end_of(ROW_TINY);
        u64 moves = 0;
        for (u64 place = begin_of(ROW_HUB) + team.thread(); place < end; place += team.threads()) {
            const u32 v = arguments.order[place], to = arguments.chosen[place];
            arguments.active[v] = 0;
            if (to == NO_LABEL) continue;
            u32 *names = REFINES ? arguments.part : arguments.label;
            const u32 from = names[v];
            names[v] = to;
            if (REFINES) store_system(arguments.grown + to, u8(1));
            thread_move_mass(REFINES ? arguments.part_total : arguments.total, from, to,
                             arguments.mass[v]);
            if (ONE_WAY)
                thread_move_mass(REFINES ? arguments.in_part_total : arguments.in_total, from, to,
                                 arguments.in_mass[v]);
            moves += 1;
        }
        __syncwarp();
        warp_count(block, MOVES, moves);
    }

    __device__ __forceinline__ void team_begin() const {
        team_each(arguments.count, [&](u32 v) {
            arguments.active[v] = row_of(v).arcs > 0;
            if constexpr (REFINES) {
                const u32 id = id_of(v);
                arguments.part[v] = id;
                arguments.grown[v] = 0;
                arguments.part_total[id] = arguments.mass[v];
                if (ONE_WAY) arguments.in_part_total[id] = arguments.in_mass[v];
            }
        });
        for (u64 slot = team.thread(); slot < arguments.hubs * arguments.hub_slots;
             slot += team.threads())
            SumTable{arguments.hub_keys, arguments.hub_sums, 0}.clear(static_cast<u32>(slot));
        if (team.block == 0) {
            for (u32 bin = threadIdx.x; bin < MOST_BINS; bin += blockDim.x)
                arguments.counters->bins[0][bin] = 0;
            if (threadIdx.x < MOST_HUBS) arguments.counters->done[threadIdx.x] = 0;
        }
    }

    __device__ __forceinline__ u32 bin_of(u32 v) const {
        return class_of(id_of(v), start) * KINDS + kind_of(row_of(v).arcs);
    }
    // Call visit(v) for the active vertices in the block's range; threads come one by one.
    template <class Visit>
    __device__ __forceinline__ void block_active(Visit visit) const {
        const u64 end = block_end(arguments.count);
        for (u64 v = block_begin(arguments.count) + threadIdx.x; v < end; v += blockDim.x)
            if (arguments.active[v]) visit(static_cast<u32>(v));
    }
    // Count the block's active vertices by bins, and reserve places in them.
    __device__ __forceinline__ void block_count() const {
        u32 *counts = reinterpret_cast<u32 *>(bytes);
        const u32 bins = arguments.classes * KINDS, parity = block.state[ROUND] & 1;
        for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) counts[bin] = 0;
        __syncthreads();
        u64 visited = 0;
        block_active([&](u32 v) {
            atomicAdd(counts + bin_of(v), 1u);
            visited += 1;
        });
        __syncthreads();
        for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) {
            const u32 count = counts[bin];
            u32 first = 0;
            if (count) first = atomicAdd(arguments.counters->bins[parity] + bin, count);
            arguments.firsts[team.block * MOST_BINS + bin] = first;
        }
        __syncthreads();
        warp_count(block, VISITED, REFINES ? 0 : visited);
        warp_count(block, MOVES, visited);
    }
    // List them.
    __device__ __forceinline__ void block_list() const {
        u32 *places = reinterpret_cast<u32 *>(bytes);
        const u32 bins = arguments.classes * KINDS, parity = block.state[ROUND] & 1;
        if (warp_id() == 0) {
            u32 before = 0;
            for (u32 base = 0; base < bins; base += WARP) {
                const u32 bin = base + lane_id();
                const u32 count = bin < bins ? arguments.counters->bins[parity][bin] : 0;
                const u32 end = before + warp_sum_up_to(count);
                if (bin < bins) {
                    places[bin] = end - count + arguments.firsts[team.block * MOST_BINS + bin];
                    if (team.block == 0) arguments.counters->ends[bin] = end;
                }
                before = __shfl_sync(FULL_WARP, end, WARP - 1);
            }
        }
        if (team.block == 0)
            for (u32 bin = threadIdx.x; bin < MOST_BINS; bin += blockDim.x)
                arguments.counters->bins[parity ^ 1][bin] = 0;
        __syncthreads();
        block_active([&](u32 v) { arguments.order[atomicAdd(places + bin_of(v), 1u)] = v; });
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
                if (which != NO_CLASS) block_decide();
                if (block.state[PREVIOUS] != NO_CLASS && block.state[HUB] == 0) team_activate();
                break;
            case MOVE_SCAN:
                block_scan_hubs();
                break;
            case MOVE_TAKE:
                team_take();
                break;
        }
    }
};

// The next superstep of a round: that of the next class that has vertices, or the last of activation.
__device__ __forceinline__ u32 thread_next_class(const Arguments &arguments, u64 *state,
                                                 u32 which) {
    state[HUB] = 0;
    for (; which < arguments.classes; which++) {
        u32 ends[KINDS + 1];
        for (u32 kind = 0; kind <= KINDS; kind++) {
            const u32 bin = which * KINDS + kind;
            ends[kind] = bin ? load_relaxed(arguments.counters->ends + bin - 1) : 0;
        }
        if (ends[KINDS] == ends[0]) continue;
        for (u32 kind = 0; kind <= KINDS; kind++) state[THIS + kind] = ends[kind];
        state[CLASS] = which;
        return MOVE_DECIDE;
    }
    state[CLASS] = NO_CLASS;
    const bool is_last = state[MOVED] <= state[ENOUGH] || state[ROUND] + 1 >= state[ROUNDS];
    if (state[PREVIOUS] != NO_CLASS && !is_last) return MOVE_DECIDE;
    state[ROUND] += 1;
    if (is_last) return STOP;
    state[START] = thread_mix(state[SEED] + state[ROUND]);
    state[MOVED] = 0;
    return MOVE_COUNT;
}

__device__ __forceinline__ u32 thread_decide_moves(const Arguments &arguments, u32 phase,
                                                   const Sums &sums, u64 *state) {
    u32 which = static_cast<u32>(state[CLASS]);
    switch (phase) {
        case MOVE_BEGIN:
            state[ROUND] = state[MOVED] = 0;
            state[START] = thread_mix(state[SEED]);
            return MOVE_COUNT;
        case MOVE_COUNT:
            if (sums.counts[MOVES] > 0) return MOVE_LIST;
            state[ROUND] += 1;
            return STOP;
        case MOVE_DECIDE:
            if (which != NO_CLASS)
                return state[THIS + ROW_HUB + 1] > state[THIS + ROW_HUB] ? MOVE_SCAN : MOVE_TAKE;
            state[PREVIOUS] = NO_CLASS;
            which = arguments.classes;
            break;
        case MOVE_SCAN:
            state[HUB] += arguments.hubs;
            return state[THIS + ROW_HUB] + state[HUB] < state[THIS + ROW_HUB + 1] ? MOVE_DECIDE
                                                                                  : MOVE_TAKE;
        case MOVE_LIST:
            state[PREVIOUS] = NO_CLASS;
            which = 0;
            break;
        default:  // MOVE_TAKE
            state[MOVED] += sums.counts[MOVES];
            state[PREVIOUS] = NO_CLASS;
            if (sums.counts[MOVES] && !state[REFINES]) {
                state[PREVIOUS] = which;
                for (u32 kind = 0; kind <= KINDS; kind++) state[BEFORE + kind] = state[THIS + kind];
            }
            which += 1;
    }
    return thread_next_class(arguments, state, which);
}
