// Make the next level, whose vertices are the communities or parts of a level: aggregate of cpu.py.
//
// Names that occur are numbered in ascending order, as on the CPU; the order of arcs in rows, and of rows in
// memory, is any. Arcs of the members of a new vertex are summed up by target: with up to WARP_ARCS of them in a
// hash table of a warp, with more in one of a group of warps, or of a block. The *big* ones have tables in global
// memory, with a slot for each vertex that has arcs where that takes less than a hash table. Their members are visited
// one vertex after the other, so the tables that are in use at a time are near. Arcs between the MOST_HUGE first of the
// largest, of which there are most, are added up in shared memory first. (Visits of big ones that wait for several arcs
// at once were slower: all of the kernel then spilled registers.)
#pragma once

#include "algorithms/communities/moves.cuh"

struct Aggregation : Level {
    BlockMemory &shared;
    unsigned char *bytes;

    __device__ __forceinline__ Aggregation(const Level &level, BlockMemory &shared,
                                           unsigned char *bytes)
        : Level(level), shared(shared), bytes(bytes) {}

    // Sum over the block; all threads come.
    __device__ __forceinline__ u32 block_sum(u32 amount) const {
        if (threadIdx.x == 0) shared.written = 0;
        __syncthreads();
        amount = lanes_sum(amount);
        if (lane_id() == 0 && amount) atomicAdd(&shared.written, amount);
        __syncthreads();
        amount = shared.written;
        __syncthreads();
        return amount;
    }

    __device__ __forceinline__ u32 above_count() const {
        return static_cast<u32>(block.state[FOUND]);
    }
    // Dense numbers, of the next level's vertices that have arcs.
    __device__ __forceinline__ u32 dense_count() const {
        return static_cast<u32>(load_relaxed(&arguments.counters->places) >> 32);
    }
    // Slots of a table with a slot for each of them.
    __device__ __forceinline__ u32 dense_slots() const {
        return (dense_count() + WARP - 1) / WARP * WARP;
    }

    __device__ __forceinline__ void team_mark() const {
        team_each(arguments.count,
                  [&](u32 v) { store_system(arguments.number + arguments.group[v], 1u); });
    }
    __device__ __forceinline__ void block_count() const {
        const u64 end = block_end(arguments.count);
        u32 marks = 0;
        for (u64 id = block_begin(arguments.count) + threadIdx.x; id < end; id += blockDim.x)
            marks += arguments.number[id];
        warp_count(block, NAMES, marks);
        const u32 all = block_sum(marks);
        if (threadIdx.x == 0) arguments.firsts[team.block] = all;
    }
    __device__ __forceinline__ void block_number() const {
        u32 *sums = reinterpret_cast<u32 *>(bytes);
        u32 marks = 0;
        for (u32 other = threadIdx.x; other < team.block; other += blockDim.x)
            marks += arguments.firsts[other];
        u32 base = block_sum(marks);
        const u64 end = block_end(arguments.count);
        const u32 warps = blockDim.x / WARP, below = (1u << lane_id()) - 1;
        for (u64 first = block_begin(arguments.count); first < end; first += BATCH * blockDim.x) {
            u32 votes[BATCH], before[BATCH];  // sums of marks of the warps before
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u64 id = first + i * blockDim.x + threadIdx.x;
                votes[i] = __ballot_sync(FULL_WARP, id < end && arguments.number[id]);
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                if (lane_id() == 0) sums[i * warps + warp_id()] = __popc(votes[i]);
            __syncthreads();
            for (u32 from = 0; from < BATCH * warps; from += WARP) {
                const u32 which = from + lane_id();
                const u32 sum = which < BATCH * warps ? sums[which] : 0;
                const u32 up_to = warp_sum_up_to(sum);
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) {
                    const u32 own = i * warps + warp_id() - from;
                    const u32 there = __shfl_sync(FULL_WARP, up_to - sum, own % WARP);
                    if (own < WARP) before[i] = base + there;
                }
                base += __shfl_sync(FULL_WARP, up_to, WARP - 1);
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (!(votes[i] >> lane_id() & 1)) continue;
                const u32 id = static_cast<u32>(first) + i * blockDim.x + threadIdx.x;
                const u32 number = before[i] + __popc(votes[i] & below);
                arguments.number[id] = number;
                arguments.old[number] = id;
            }
            __syncthreads();
        }
    }

    __device__ __forceinline__ void team_clear() const {
        team_each(above_count(), [&](u32 c) {
            arguments.member_counts[c] = 0;
            arguments.room[c] = 0;
            const u32 name = arguments.old[c];
            arguments.above_mass[c] = arguments.group_total[name];
            if (ONE_WAY) arguments.in_above_mass[c] = arguments.in_group_total[name];
        });
        if (team.thread() == 0) {
            LevelCounters &counters = *arguments.counters;
            counters.bigs = counters.arcs = counters.longest = counters.chunks = 0;
            counters.blocks = counters.groups = counters.huge = counters.big_members = 0;
            counters.places = u64{MOST_HUGE} << 32;
        }
    }
    __device__ __forceinline__ void team_count_members() const {
        team_each_batch(arguments.count, [&](const u32(&v)[BATCH], const bool (&there)[BATCH]) {
            u32 c[BATCH];
            u64 arcs[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                c[i] = arguments.number[arguments.group[v[i]]];
                arcs[i] = row_of(v[i]).arcs;
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (!there[i]) continue;
                arguments.map[v[i]] = c[i];
                if (arcs[i] == 0) continue;
                atomicAdd(arguments.member_counts + c[i], 1u);
                atomicAdd(arguments.room + c[i], arcs[i]);
            }
        });
    }

    // A warp takes places for several times 32 vertices at once: all warps wait for one word.
    __device__ __forceinline__ void team_lay_out() const {
        LevelCounters &counters = *arguments.counters;
        const u32 below = (1u << lane_id()) - 1, count = above_count();
        u64 bound = 0;
        for (u64 base = team.warp() * BATCH * WARP; base < count;
             base += team.warps() * BATCH * WARP) {
            u64 arcs[BATCH];
            u32 place[BATCH], members[BATCH];  // places of members behind those of others
            bool is_huge[BATCH];
            u64 taken = 0;
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u64 c = base + i * WARP + lane_id();
                arcs[i] = c < count ? arguments.room[c] : 0;
                members[i] = arcs[i] > 0 && !is_long(arcs[i]) ? arguments.member_counts[c] : 0;
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                place[i] = NO_LABEL;
                if (is_long(arcs[i]) && slots_for(arcs[i]) >= count + MOST_HUGE + WARP)
                    place[i] = atomicAdd(&counters.huge, 1u);
                is_huge[i] = place[i] < MOST_HUGE;
                __syncwarp();
                const u32 votes = __ballot_sync(FULL_WARP, arcs[i] > 0 && !is_huge[i]);
                const u32 up_to = warp_sum_up_to(members[i]);
                if (!is_huge[i]) place[i] = static_cast<u32>(taken >> 32) + __popc(votes & below);
                members[i] = static_cast<u32>(taken) + up_to - members[i];
                taken +=
                    static_cast<u64>(__popc(votes)) << 32 | __shfl_sync(FULL_WARP, up_to, WARP - 1);
            }
            u64 first = 0;
            if (lane_id() == 0 && taken) first = atomicAdd(&counters.places, taken);
            first = __shfl_sync(FULL_WARP, first, 0);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u32 c = static_cast<u32>(base) + i * WARP + lane_id();
                if (!is_huge[i]) place[i] += static_cast<u32>(first >> 32);
                if (arcs[i] > 0) {
                    arguments.dense[c] = place[i];
                    arguments.sparse[place[i]] = c;
                }
                const bool is_large = arcs[i] > WARP_ARCS && !is_long(arcs[i]);
                const bool is_of_group = is_large && arcs[i] <= group_warps() * WARP_ARCS;
                warp_append(&counters.blocks, arguments.block_list, is_large && !is_of_group, c);
                const u32 number =
                    warp_place(&counters.groups, __ballot_sync(FULL_WARP, is_of_group));
                if (is_of_group) arguments.block_list[count - 1 - number] = c;
                if (base + i * WARP + lane_id() >= count) continue;
                arguments.member_ends[c] = static_cast<u32>(first) + members[i];
                arguments.above_begins[c] = arguments.above_ends[c] = 0;
                bound += arcs[i];
            }
            __syncwarp();
        }
        warp_count(block, BOUND, bound);
    }
    // The rows of the largest begin where there is room for all that they may have.
    __device__ __forceinline__ void team_place_bigs() const {
        LevelCounters &counters = *arguments.counters;
        const u64 dense = dense_slots();
        team_each(above_count(), [&](u32 c) {
            const u64 arcs = arguments.room[c];
            if (!is_long(arcs)) return;
            const u64 slots = min(static_cast<u64>(slots_for(arcs)), dense);
            const u64 before = atomicAdd(&counters.bigs, (1ull << BIG_SLOT_BITS) + slots);
            const u32 number = static_cast<u32>(before >> BIG_SLOT_BITS);
            // Their members lie at the end.
            const u32 members = arguments.member_counts[c];
            const u32 end = arguments.count - atomicAdd(&counters.big_members, members);
            arguments.bigs[number] =
                Big{before & ((1ull << BIG_SLOT_BITS) - 1), slots, c, end - members};
            arguments.member_ends[c] = number;
            const i64 begin = static_cast<i64>(atomicAdd(&counters.arcs, min(arcs, dense)));
            arguments.above_begins[c] = arguments.above_ends[c] = begin;
        });
    }

    __device__ __forceinline__ void team_list_members() const {
        team_each_batch(arguments.count, [&](const u32(&v)[BATCH], const bool (&there)[BATCH]) {
            u32 c[BATCH], place[BATCH];
            bool counts[BATCH], is_big[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                c[i] = arguments.map[v[i]];
                counts[i] = there[i] && row_of(v[i]).arcs > 0;
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) is_big[i] = counts[i] && is_long(arguments.room[c[i]]);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (!counts[i]) continue;
                u32 *end = arguments.member_ends + c[i];
                if (is_big[i]) end = &arguments.bigs[*end].member_end;
                place[i] = atomicAdd(end, 1u);
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                if (counts[i]) arguments.members[place[i]] = v[i];
        });
        const u64 slots = arguments.counters->bigs & ((1ull << BIG_SLOT_BITS) - 1);
        for (u64 slot = team.thread(); slot < slots; slot += team.threads()) {
            arguments.big_keys[slot] = NO_LABEL;
            arguments.big_sums[slot] = 0;
        }
        if (team.thread() == 0) thread_forget_long_rows();
    }

    // Add the arcs of 32 members, of one for each lane, to a table; return how many targets the lane added. All lanes
    // come, with false if they have no member. Warps may share the arcs: this is number `share` of `sharing`.
    __device__ __forceinline__ u32 warp_add_members(const SumTable &table, u32 c, u32 place,
                                                    bool is_there, u32 share, u32 sharing) const {
        const u32 v = is_there ? arguments.members[place] : 0;
        const RowArcs row = is_there ? row_of(v) : RowArcs{0, 0, 0, 0};
        u32 added = 0;
        const u32 length = static_cast<u32>(row.arcs), end = warp_sum_up_to(length);
        const u32 all = __shfl_sync(FULL_WARP, end, WARP - 1);
        for (u32 first = share * BATCH * WARP; first < all; first += sharing * BATCH * WARP) {
            u32 d[BATCH];
            Sum weight[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                const u32 arc = first + i * WARP + lane_id(), whose = warp_lane_of(end, arc);
                RowArcs theirs{__shfl_sync(FULL_WARP, row.begin, whose), 0, 0, 0};
                if (ONE_WAY) {
                    theirs.in_begin = __shfl_sync(FULL_WARP, row.in_begin, whose);
                    theirs.leaving = __shfl_sync(FULL_WARP, row.leaving, whose);
                }
                const u32 before = __shfl_sync(FULL_WARP, end - length, whose);
                d[i] = 0;
                weight[i] = 0;
                if (arc < all) d[i] = thread_arc(theirs, arc - before, weight[i]);
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) d[i] = weight[i] ? arguments.map[d[i]] : c;
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                if (d[i] != c) added += table.add(d[i], weight[i]);
        }
        return added;
    }
    // Say where a row lies.
    __device__ __forceinline__ void thread_begin_row(u32 c, u64 begin, u32 length) const {
        arguments.above_begins[c] = static_cast<i64>(begin);
        arguments.above_ends[c] = static_cast<i64>(begin + length);
        if (length > load_relaxed(&arguments.counters->longest))
            atomicMax(&arguments.counters->longest, static_cast<u64>(length));
    }
    __device__ __forceinline__ u64 thread_reserve_arcs(u32 count) const {
        return count ? atomicAdd(&arguments.counters->arcs, static_cast<u64>(count)) : 0;
    }
    __device__ __forceinline__ void write_arc(u64 place, u32 d, Sum weight) const {
        arguments.above_targets[place] = static_cast<Id>(d);
        arguments.above_weights[place] = weight;
    }

    // Join a community whose members have the places [begin, end).
    __device__ __forceinline__ void warp_join(const SumTable &table, u32 c, u64 arcs, u32 begin,
                                              u32 end) const {
        const u32 lane = lane_id();
        const SumTable part{table.keys, table.sums, slots_for(arcs)};
        for (u32 slot = lane; slot < part.slots; slot += WARP) part.clear(slot);
        __syncwarp();
        u32 added = 0;
        for (u32 place = begin; place < end; place += WARP)
            added += warp_add_members(part, c, place + lane, place + lane < end, 0, 1);
        __syncwarp();
        added = lanes_sum(added);
        u64 place = 0;
        if (lane == 0) {
            place = thread_reserve_arcs(added);
            thread_begin_row(c, place, added);
        }
        place = __shfl_sync(FULL_WARP, place, 0);
        for (u32 slot = lane; slot < part.slots; slot += WARP) {
            const u32 d = load_system(part.keys + slot);
            const u32 votes = __ballot_sync(FULL_WARP, d != NO_LABEL);
            if (d != NO_LABEL)
                write_arc(place + __popc(votes & ((1u << lane) - 1)), d,
                          load_system(part.sums + slot));
            place += __popc(votes);
        }
        __syncwarp();
    }
    // What joins communities, one for each lane, loads in advance: what is a community's own, then a member.
    struct Joined {
        u32 c;
        u32 arcs;  // 0: there is none; at most 2^32 - 1
        u32 place;
        u32 last;    // of the places of its members
        u32 member;  // the first
    };
    __device__ __forceinline__ void lane_find(Joined &joined, u64 number, u64 count) const {
        joined.c = number < count ? arguments.sparse[MOST_HUGE + number] : NO_LABEL;
    }
    __device__ __forceinline__ void lane_find_places(Joined &joined) const {
        joined.arcs = joined.place = joined.last = 0;
        if (joined.c == NO_LABEL) return;
        joined.arcs = static_cast<u32>(min(arguments.room[joined.c], u64{NO_LABEL}));
        joined.last = arguments.member_ends[joined.c];
        joined.place = arguments.member_counts[joined.c];
    }
    __device__ __forceinline__ void lane_find_member(Joined &joined) const {
        joined.place = joined.last - joined.place;
        joined.member = 0;
        if (joined.arcs > 0 && joined.arcs <= LIST_ARCS)
            joined.member = arguments.members[joined.place];
    }

    // Communities with few arcs, one for each lane, which has every 32nd slot of its warp's table, as a list. All
    // lanes come, with others if they have none.
    __device__ __forceinline__ void warp_join_tiny(const SumTable &table,
                                                   const Joined &joined) const {
        const u32 first = lane_id(), c = joined.c;
        const bool is_there = joined.arcs > 0 && joined.arcs <= LIST_ARCS;
        u32 end = first;
        if (is_there) {
            constexpr u32 PAIR = 2 * BATCH;  // arcs of two members, whose loads overlap
            u32 next[2] = {joined.member, 0};
            if (joined.place + 1 < joined.last) next[1] = arguments.members[joined.place + 1];
            for (u32 place = joined.place; place < joined.last; place += 2) {
                RowArcs row[2] = {row_of(next[0]), {0, 0, 0, 0}};
                if (place + 1 < joined.last) row[1] = row_of(next[1]);
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    if (place + 2 + i < joined.last) next[i] = arguments.members[place + 2 + i];
                const u64 longest = max(row[0].arcs, row[1].arcs);
                for (u64 base = 0; base < longest; base += BATCH) {
                    u32 d[PAIR];
                    Sum weight[PAIR];
#pragma unroll
                    for (u32 i = 0; i < PAIR; i++) {
                        const u64 number = base + i % BATCH;
                        d[i] = 0;
                        weight[i] = 0;
                        if (number < row[i / BATCH].arcs)
                            d[i] = thread_arc(row[i / BATCH], number, weight[i]);
                    }
#pragma unroll
                    for (u32 i = 0; i < PAIR; i++) d[i] = weight[i] ? arguments.map[d[i]] : c;
#pragma unroll
                    for (u32 i = 0; i < PAIR; i++) {
                        if (d[i] == c) continue;
                        u32 slot = first;
                        while (slot < end && table.keys[slot] != d[i]) slot += WARP;
                        const bool is_new = slot == end;
                        table.keys[slot] = d[i];
                        table.sums[slot] = is_new ? weight[i] : table.sums[slot] + weight[i];
                        if (is_new) end += WARP;
                    }
                }
            }
        }
        __syncwarp();
        const u32 length = (end - first) / WARP, up_to = warp_sum_up_to(length);
        u64 place = 0;
        if (first == WARP - 1) place = thread_reserve_arcs(up_to);
        place = __shfl_sync(FULL_WARP, place, WARP - 1) + (up_to - length);
        if (!is_there) return;
        thread_begin_row(c, place, length);
        for (u32 slot = first; slot < end; slot += WARP)
            write_arc(place++, table.keys[slot], table.sums[slot]);
    }
    // Each group of so many warps joins a community, or none.
    __device__ __forceinline__ void block_join(u32 c, bool is_there, u32 warps) const {
        const u32 group = warp_id() / warps, warp = warp_id() % warps;
        const u32 threads = warps * WARP, thread = threadIdx.x - group * threads;
        Sum *sums = reinterpret_cast<Sum *>(bytes);
        u32 *keys = reinterpret_cast<u32 *>(sums + arguments.block_slots);
        const u32 first = group * warps * WARP_SLOTS;
        const SumTable table{keys + first, sums + first,
                             is_there ? slots_for(arguments.room[c]) : 0};
        for (u32 slot = thread; slot < table.slots; slot += threads) table.clear(slot);
        if (thread == 0) shared.added[group] = shared.placed[group] = 0;
        __syncthreads();
        const u32 end = is_there ? arguments.member_ends[c] : 0;
        const u32 members = is_there ? arguments.member_counts[c] : 0;
        // Where members are few, several warps share 32 of them.
        const u32 sharing = max(1u, warps / max(1u, (members + WARP - 1) / WARP));
        const u32 parts = warps / sharing, part = warp / sharing;
        u32 added = 0;
        for (u32 place = end - members + part * WARP; part < parts && place < end;
             place += parts * WARP)
            added += warp_add_members(table, c, place + lane_id(), place + lane_id() < end,
                                      warp % sharing, sharing);
        __syncwarp();
        added = lanes_sum(added);
        if (lane_id() == 0 && added) atomicAdd(&shared.added[group], added);
        __syncthreads();
        if (thread == 0 && is_there) {
            shared.begins[group] = thread_reserve_arcs(shared.added[group]);
            thread_begin_row(c, shared.begins[group], shared.added[group]);
        }
        __syncthreads();
        for (u32 slot = thread; slot < table.slots; slot += threads) {
            const u32 d = load_system(table.keys + slot);
            const u32 place =
                warp_place(&shared.placed[group], __ballot_sync(FULL_WARP, d != NO_LABEL));
            if (d != NO_LABEL)
                write_arc(shared.begins[group] + place, d, load_system(table.sums + slot));
        }
        __syncthreads();
    }

    __device__ __forceinline__ void team_join() const;

    // Write the rows of the largest: a warp takes 32 slots of one table.
    __device__ __forceinline__ void team_write_bigs() const {
        const u64 bigs = arguments.counters->bigs;
        const u64 slots = bigs & ((1ull << BIG_SLOT_BITS) - 1);
        const u32 count = static_cast<u32>(bigs >> BIG_SLOT_BITS);
        for (u64 first = team.warp() * WARP; first < slots; first += team.warps() * WARP) {
            u32 low = 0,
                high = count - 1;  // the last table that begins at the first slot or before
            while (low < high) {
                const u32 middle = (low + high + 1) / 2;
                if (arguments.bigs[middle].begin <= first)
                    low = middle;
                else
                    high = middle - 1;
            }
            const Big big = arguments.bigs[low];
            const u64 slot = first + lane_id();
            const Sum weight = arguments.big_sums[slot];
            u64 *end = reinterpret_cast<u64 *>(arguments.above_ends + big.community);
            const u64 place = warp_place(end, __ballot_sync(FULL_WARP, weight != 0));
            if (weight == 0) continue;
            const u32 key = arguments.big_keys[slot];
            const u32 d =
                key == NO_LABEL ? arguments.sparse[static_cast<u32>(slot - big.begin)] : key;
            write_arc(place, d, weight);
        }
    }
    __device__ __forceinline__ void team_end() const {
        const u64 bigs = arguments.counters->bigs >> BIG_SLOT_BITS;
        team_each_lane(bigs, [&](u32 number, bool is_there) {
            u64 length = 0;
            if (is_there) {
                const u64 c = arguments.bigs[number].community;
                length = static_cast<u64>(arguments.above_ends[c] - arguments.above_begins[c]);
            }
            warp_note_length(length);
        });
    }

    __device__ __forceinline__ void run(u32 phase) const {
        switch (phase) {
            case GROUP_CLEAR:
                team_each(arguments.count, [&](u32 id) { arguments.number[id] = 0; });
                break;
            case GROUP_MARK:
                team_mark();
                break;
            case GROUP_COUNT:
                block_count();
                break;
            case GROUP_NUMBER:
                block_number();
                break;
            case JOIN_CLEAR:
                team_clear();
                break;
            case JOIN_COUNT:
                team_count_members();
                break;
            case JOIN_LAYOUT:
                team_lay_out();
                break;
            case JOIN_PLACES:
                team_place_bigs();
                break;
            case JOIN_MEMBERS:
                team_list_members();
                break;
            case JOIN_ROWS:
                team_join();
                break;
            case JOIN_BIGS:
                team_write_bigs();
                break;
            case JOIN_END:
                team_end();
                break;
        }
    }
};

// The visitor of rows that adds the arcs of big communities to their tables. `kept` has the sums of pairs of huge ones.
struct AddBigs {
    const Aggregation &level;
    bool enters;
    u32 dense_slots;
    Sum *kept;

    __device__ __forceinline__ void add(u32 from, u32 to, Sum weight) const {
        const Arguments &arguments = level.arguments;
        const Big big = arguments.bigs[arguments.member_ends[from]];
        if (big.slots < dense_slots) {
            const SumTable table{arguments.big_keys + big.begin, arguments.big_sums + big.begin,
                                 static_cast<u32>(big.slots)};
            table.add(to, weight);
            return;
        }
        const u32 tail = arguments.dense[from], head = arguments.dense[to];
        if (tail < MOST_HUGE && head < MOST_HUGE)
            atomicAdd(kept + tail * MOST_HUGE + head, weight);
        else
            atomicAdd(arguments.big_sums + big.begin + head, weight);
    }

    // Give the weights of all lanes that have the same communities, 1 each, to the first of them. Lanes without an
    // arc have the weight 0.
    static __device__ __forceinline__ Sum warp_gather(u32 from, u32 to, Sum weight) {
        const u64 key = weight ? static_cast<u64>(from) << 32 | to : ~0ull;
        const u32 same = __match_any_sync(FULL_WARP, key);
        const bool is_first = lane_id() == __ffs(static_cast<int>(same)) - 1u;
        return weight && is_first ? static_cast<Sum>(__popc(same)) : Sum(0);
    }

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = level.arguments;
        const Id *targets = enters ? arguments.in_targets : arguments.targets;
        const Sum *weights = enters ? arguments.in_weights : arguments.weights;
        u32 from[ARCS], to[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            from[i] = to[i] = 0;
            if (there[i]) {
                from[i] = arguments.map[rows[i]];
                to[i] = arguments.map[targets[arcs[i]]];
            }
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            Sum weight = 0;
            if (from[i] != to[i]) weight = weights ? weights[arcs[i]] : Sum(1);
            if (!weights) weight = warp_gather(from[i], to[i], weight);
            if (weight) add(from[i], to[i], weight);
        }
    }
};

__device__ __forceinline__ void Aggregation::team_join() const {
    const u32 groups = blockDim.x / WARP / group_warps();
    const u32 blocks = arguments.counters->blocks, in_groups = arguments.counters->groups;
    for (;;) {  // blocks claim them one by one
        if (threadIdx.x == 0)
            shared.claimed = static_cast<u32>(atomicAdd(team.control->cursors, 1ull));
        __syncthreads();
        const u32 place = shared.claimed;
        __syncthreads();
        if (place < blocks) {
            block_join(arguments.block_list[place], true, blockDim.x / WARP);
        } else if (u64{place - blocks} * groups < in_groups) {
            const u32 group = warp_id() / group_warps(), number = (place - blocks) * groups + group;
            const bool is_there = group < groups && number < in_groups;
            const u32 c = is_there ? arguments.block_list[above_count() - 1 - number] : 0;
            block_join(c, is_there, group_warps());
        } else {
            break;
        }
    }
    Sum *sums = reinterpret_cast<Sum *>(bytes) + warp_id() * WARP_SLOTS;
    u32 *keys = reinterpret_cast<u32 *>(reinterpret_cast<Sum *>(bytes) + arguments.block_slots);
    const SumTable table{keys + warp_id() * WARP_SLOTS, sums, 0};
    // Four loads, each of which depends on the one before, would precede the first arc: so they are made two
    // communities, and one, in advance. Where there are fewer than lanes, all warps get some.
    const u64 count = dense_count() - MOST_HUGE;
    const u64 lanes = min(u64{WARP}, (count + team.warps() - 1) / team.warps());
    const u64 step = team.warps() * lanes, mine = lane_id() < lanes ? lane_id() : count;
    u64 first = team.warp() * lanes;
    Joined now, next, after;
    lane_find(now, first + mine, count);
    lane_find(next, first + step + mine, count);
    lane_find_places(now);
    lane_find_member(now);
    lane_find_places(next);
    for (; first < count; first += step) {
        lane_find_member(next);
        lane_find(after, first + 2 * step + mine, count);
        warp_join_tiny(table, now);
        u32 larger = __ballot_sync(FULL_WARP, now.arcs > LIST_ARCS && now.arcs <= WARP_ARCS);
        while (larger) {
            const u32 lane = __ffs(static_cast<int>(larger)) - 1;
            larger &= larger - 1;
            __syncwarp();
            warp_join(
                table, __shfl_sync(FULL_WARP, now.c, lane), __shfl_sync(FULL_WARP, now.arcs, lane),
                __shfl_sync(FULL_WARP, now.place, lane), __shfl_sync(FULL_WARP, now.last, lane));
        }
        now = next;
        next = after;
        lane_find_places(next);
    }
    if (arguments.counters->bigs == 0) return;
    Sum *kept = reinterpret_cast<Sum *>(bytes);
    constexpr u32 PAIRS = MOST_HUGE * MOST_HUGE;
    __syncthreads();
    for (u32 pair = threadIdx.x; pair < PAIRS; pair += blockDim.x) kept[pair] = 0;
    __syncthreads();
    const AddBigs out{*this, false, dense_slots(), kept}, in{*this, true, dense_slots(), kept};
    const u64 big_members = arguments.counters->big_members;
    const u32 *rows = arguments.members + (arguments.count - big_members);
    team_visit_rows(false, big_members, [&](u32 i) { return rows[i]; }, out);
    if (ONE_WAY && arguments.in_begins)
        team_visit_rows(true, big_members, [&](u32 i) { return rows[i]; }, in);
    __syncthreads();
    for (u32 pair = threadIdx.x; pair < PAIRS; pair += blockDim.x) {
        if (kept[pair] == 0) continue;
        const u32 from = arguments.sparse[pair / MOST_HUGE];
        const Big big = arguments.bigs[arguments.member_ends[from]];
        atomicAdd(arguments.big_sums + big.begin + pair % MOST_HUGE, kept[pair]);
    }
}

__device__ __forceinline__ u32 thread_decide_joins(const Arguments &arguments, u32 phase,
                                                   const Sums &sums, u64 *state) {
    const LevelCounters &counters = *arguments.counters;
    switch (phase) {
        case GROUP_COUNT:
            state[FOUND] = sums.counts[NAMES];
            return state[FOUND] == arguments.count ? STOP : GROUP_NUMBER;
        case GROUP_NUMBER:
            return state[FOUND] <= state[MOST_ABOVE] ? JOIN_CLEAR : STOP;
        case JOIN_LAYOUT:
            state[ROOM] = sums.counts[BOUND];
            return JOIN_PLACES;
        case JOIN_PLACES: {
            const u64 bigs = load_relaxed(&counters.bigs);
            state[SLOTS] = bigs & ((1ull << BIG_SLOT_BITS) - 1);
            return bigs ? STOP : JOIN_MEMBERS;  // the host makes room for tables
        }
        case JOIN_END:
            state[ARCS] = load_relaxed(&counters.arcs);
            state[LONGEST] = load_relaxed(&counters.longest);
            state[LONG_CHUNKS] = load_relaxed(&counters.chunks);
            return STOP;
    }
    return phase + 1;
}
