// Lists of the vertices that a round visits, for labels.cuh and moves.cuh. A hash assigns each active vertex to a
// class, and classes take turns. A list is ordered by *bins*, of class and kind of row, the longest kind first:
// that is LONG, whose rows are divided into chunks, and lie in the order of their chunks. The chunks of some long
// rows, as many as tables have room for, are a *batch*.
#pragma once

#include "runtime/cuda/include/hashing.cuh"
#include "runtime/cuda/include/schedule.cuh"

constexpr u32 NO_LABEL = 0xffffffffu;
constexpr u32 NO_CLASS = 0xffffffffu;
constexpr u32 LEAST_CLASSES = 4, MOST_JOINED_CLASSES = 64, MOST_TIMES_FEWER = 8;
constexpr u32 ROW_LONG = 0;  // a kind of row

// The arcs of a vertex: in-arcs are numbered behind out-arcs.
struct RowArcs {
    i64 begin;
    i64 in_begin;
    u64 leaving;
    u64 arcs;
};

// Return the number of slots of a table for a row, of which at most half are taken, or one for each label.
__device__ __forceinline__ u32 slots_for(u64 arcs) {
    return static_cast<u32>((2 * min(arcs, u64{1} << 30) + WARP - 1) / WARP * WARP);
}

// Return the number of classes of a round: _classes_of_round of cpu.py. Classes that are equal modulo this number, which
// is a power of two, become one.
__device__ __forceinline__ u32 classes_of_round(u32 classes, u64 listed, u64 count) {
    if (classes > MOST_JOINED_CLASSES) return classes;
    const u32 least = max(LEAST_CLASSES, classes / MOST_TIMES_FEWER);
    while (classes > least && classes * listed <= classes / 2 * count) classes /= 2;
    return classes;
}

constexpr u64 INNER_ARCS = 32;
// Return whether a vertex is visited in the first round: _activate_outer of cpu.py. leads_out(number) says whether an
// arc leads to another community.
template <class LeadsOut>
__device__ __forceinline__ bool thread_is_outer(u64 arcs, LeadsOut leads_out) {
    constexpr u64 ARCS_AT_ONCE = 4;
    if (arcs > INNER_ARCS) return true;
    bool found = false;
    for (u64 base = 0; base < arcs && !found; base += ARCS_AT_ONCE)
#pragma unroll
        for (u64 i = 0; i < ARCS_AT_ONCE; i++)
            if (base + i < arcs) found |= leads_out(base + i);
    return found;
}

template <u32 CLASSES, u32 KINDS>
struct ListCounters {
    u64 long_rows[CLASSES];        // rows << 32 | chunks
    u32 bins[2][CLASSES * KINDS];  // listed vertices, by parity of the round
    u32 ends[CLASSES * KINDS];     // of bins in the list
};

// The vertices of a class.
template <u32 KINDS>
struct ClassUnits {
    u32 begins[KINDS + 1] = {};  // places by kind, and their end
    u32 chunk = 0;               // the first of the batch among those of the class
    u32 chunks = 0;

    __device__ __forceinline__ u32 rows(u32 kind) const { return begins[kind + 1] - begins[kind]; }
    __device__ __forceinline__ void leave_short_rows() {
        for (u32 kind = 1; kind < KINDS; kind++) begins[kind + 1] = begins[1];
    }
};

template <u32 MOST_CLASSES, u32 KINDS>
struct Lists {
    static constexpr u32 MOST_BINS = MOST_CLASSES * KINDS;
    static constexpr u32 MOST_TURNS = 126;
    using Units = ClassUnits<KINDS>;

    ListCounters<MOST_CLASSES, KINDS> *counters;
    u8 *active;   // by position, in whole words: odd if it is active
    u32 *firsts;  // by block and bin: first place of the block's vertices
    u32 *chunks;  // by place, of long rows: the first chunk among those of the class
    u64 count;    // vertices
    u32 classes;  // of all vertices, by which they are counted
    u32 joined;   // of the round

    __device__ __forceinline__ u32 begin_of(u32 bin) const {
        return bin ? load_relaxed(counters->ends + bin - 1) : 0;
    }
    // Return the first class from one on that has vertices, or NO_CLASS.
    __device__ __forceinline__ u32 next_class(u32 which) const {
        for (; which < joined; which++)
            if (begin_of(which * KINDS) != begin_of((which + 1) * KINDS)) return which;
        return NO_CLASS;
    }
    // Return the vertices of a class, with all of its chunks.
    __device__ __forceinline__ Units units_of(u32 which) const {
        Units units;
        if (which == NO_CLASS) return units;
#pragma unroll
        for (u32 kind = 0; kind <= KINDS; kind++)
            units.begins[kind] = begin_of(which * KINDS + kind);
        if (units.rows(ROW_LONG))
            units.chunks = static_cast<u32>(load_relaxed(counters->long_rows + which));
        return units;
    }

    // Return the first chunk of a long row, by its number among those of its class, or the end of all chunks.
    __device__ __forceinline__ u32 chunk_of(const Units &all, u64 row) const {
        if (row >= all.rows(ROW_LONG)) return all.chunks;
        return load_relaxed(chunks + all.begins[ROW_LONG] + row);
    }
    // Return the end of the batch of long rows that begins with one and has at most so many chunks.
    __device__ __forceinline__ u64 batch_end(u32 which, u64 begin, u64 most_chunks) const {
        const Units all = units_of(which);
        const u64 room = chunk_of(all, begin) + most_chunks;
        u64 low = begin, high = all.rows(ROW_LONG);
        if (all.chunks <= room) return high;
        while (low < high) {
            const u64 middle = (low + high + 1) / 2;
            if (chunk_of(all, middle) <= room)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
    // Return the vertices of a class, with the chunks of the long rows [begin, end).
    __device__ __forceinline__ Units batch_of(u32 which, u64 begin, u64 end) const {
        Units units = units_of(which);
        if (units.chunks == 0) return units;
        const u32 first = chunk_of(units, begin);
        units.chunks = chunk_of(units, end) - first;
        units.chunk = first;
        return units;
    }
    // Return the place of the long row that has a chunk. All lanes come, with the same chunk.
    __device__ __forceinline__ u32 warp_place_of(const Units &units, u32 chunk) const {
        const i64 after = warp_lower_bound(chunks, units.begins[ROW_LONG],
                                           units.begins[ROW_LONG + 1], i64{chunk} + 1);
        return static_cast<u32>(after) - 1;
    }

    // Call visit(v) for the active vertices in the block's range; threads come one by one. A warp takes 32 words, and
    // neighbouring lanes have neighbouring vertices: what they load is in few lines of the cache. Vertices that are not
    // active lose their turns, if asked.
    template <bool FORGETS = false, class Visit>
    __device__ __forceinline__ void block_active(const Team &team, Visit visit) const {
        const u64 all = (count + 3) / 4, each = (all + team.blocks - 1) / team.blocks;
        const u64 end = min(all, (team.block + 1) * each);
        u32 *words = reinterpret_cast<u32 *>(active);
        for (u64 first = team.block * each + warp_id() * WARP; first < end; first += blockDim.x) {
            const u64 word = first + lane_id();
            const u32 bytes = word < end ? words[word] : 0;
            if (!__any_sync(FULL_WARP, bytes)) continue;
            if constexpr (FORGETS) {
                constexpr u32 ACTIVE = 0x01010101;
                if (bytes & ~ACTIVE) store_system(words + word, bytes & ACTIVE);
                __syncwarp();
            }
            for (u32 i = 0; i < 4; i++) {
                const u32 four = __shfl_sync(FULL_WARP, bytes, 8 * i + lane_id() / 4);
                if (four >> lane_id() % 4 * 8 & 1)
                    visit(static_cast<u32>(4 * first) + WARP * i + lane_id());
            }
        }
    }
    // Before the first round.
    __device__ __forceinline__ void team_begin(const Team &team) const {
        if (team.block != 0) return;
        for (u32 bin = threadIdx.x; bin < MOST_BINS; bin += blockDim.x) counters->bins[0][bin] = 0;
    }
    // Before the first round: vertices become active for which is_active(v) is true; call visit(v) for these, as
    // block_active does.
    template <class IsActive, class Visit>
    __device__ __forceinline__ void block_activate(const Team &team, IsActive is_active,
                                                   Visit visit) const {
        const u64 all = (count + 3) / 4, each = (all + team.blocks - 1) / team.blocks;
        const u64 end = min(4 * all, 4 * (team.block + 1) * each);
        for (u64 v = 4 * team.block * each + threadIdx.x; v < end; v += blockDim.x) {
            const bool becomes_active = v < count && is_active(static_cast<u32>(v));
            active[v] = becomes_active;
            if (becomes_active) visit(static_cast<u32>(v));
        }
    }
    // Count the block's active vertices by bins, and reserve places in them; return how many the thread has. `shared`
    // has a word for each bin. If the round begins all, is_active(v) says which vertices are active.
    template <class IsActive, class BinOf>
    __device__ __forceinline__ u64 block_count(const Team &team, u32 parity, u32 *shared,
                                               bool begins, IsActive is_active,
                                               BinOf bin_of) const {
        const u32 bins = classes * KINDS;
        for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) shared[bin] = 0;
        __syncthreads();
        u64 visited = 0;
        const auto visit = [&](u32 v) {
            atomicAdd(shared + bin_of(v), 1u);
            visited += 1;
        };
        if (begins)
            block_activate(team, is_active, visit);
        else
            block_active(team, visit);
        __syncthreads();
        for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) {
            const u32 listed = shared[bin];
            u32 first = 0;
            if (listed) first = atomicAdd(counters->bins[parity] + bin, listed);
            firsts[team.block * MOST_BINS + bin] = first;
        }
        if (team.block == 0)
            for (u32 which = threadIdx.x; which < classes; which += blockDim.x)
                counters->long_rows[which] = 0;
        __syncthreads();
        return visited;
    }
    // Places in the list, in shared memory: the next one of each bin; of LONG ones the first.
    struct Places {
        const Lists &lists;
        u32 *next;

        // Take a place for a vertex whose row has so many chunks.
        __device__ __forceinline__ u32 take(u32 bin, u32 row_chunks) const {
            if (bin % KINDS != ROW_LONG) return atomicAdd(next + bin, 1u);
            // One atomic counts rows and chunks, so rows lie in the order of their chunks.
            const u32 which = bin / KINDS & (lists.joined - 1);
            const u64 before = atomicAdd(lists.counters->long_rows + which,
                                         u64{1} << 32 | static_cast<u64>(row_chunks));
            const u32 place = next[which * KINDS + ROW_LONG] + static_cast<u32>(before >> 32);
            lists.chunks[place] = static_cast<u32>(before);
            return place;
        }
    };
    // Whether `active` has the turns of listed vertices: 2 * (class + 1). Else it stays odd until they move.
    __device__ __forceinline__ bool has_turns() const { return joined <= MOST_TURNS; }
    // List them: call put(v, places), which takes a place for the vertex, and returns its bin.
    template <class Put>
    __device__ __forceinline__ void block_list(const Team &team, u32 parity, u32 *shared,
                                               Put put) const {
        const u32 bins = classes * KINDS, parts = classes / joined;
        if (warp_id() == 0) {
            u32 before = 0;
            for (u32 base = 0; base < bins; base += WARP) {
                const u32 turn = base + lane_id();  // by bin of the round, then by its parts
                const u32 joint = turn / parts, part = turn % parts;
                const u32 bin = joint + part * joined * KINDS;
                const u32 listed = turn < bins ? counters->bins[parity][bin] : 0;
                const u32 end = before + warp_sum_up_to(listed);
                if (turn < bins) {
                    const u32 first = firsts[team.block * MOST_BINS + bin];
                    shared[bin] = end - listed + (bin % KINDS == ROW_LONG ? 0 : first);
                    if (team.block == 0 && part == parts - 1) counters->ends[joint] = end;
                }
                before = __shfl_sync(FULL_WARP, end, WARP - 1);
            }
        }
        if (team.block == 0)
            for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x)
                counters->bins[parity ^ 1][bin] = 0;
        __syncthreads();
        const Places places{*this, shared};
        block_active<true>(team, [&](u32 v) {
            const u32 which = put(v, places) / KINDS & (joined - 1);
            if (has_turns()) store_system(active + v, static_cast<u8>(2 * (which + 1)));
        });
    }
};

// Activate neighbours along the arcs first, first + step, ... before `end` of a vertex that has left their community
// or label: target_of(number) is the end of an arc, `taken` is what the vertex has taken. Those whose turn comes in
// `which` or later stay as they are: they are visited then.
template <class TargetOf>
__device__ __forceinline__ void lane_activate(u8 *active, const u32 *label, u32 taken, u32 which,
                                              u64 first, u64 end, u32 step, TargetOf target_of) {
    const u32 *words = reinterpret_cast<const u32 *>(active);
    for (u64 base = first; base < end; base += ARCS_A_LANE * static_cast<u64>(step)) {
        u32 target[ARCS_A_LANE], theirs[ARCS_A_LANE];
        bool counts[ARCS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            const u64 number = base + i * static_cast<u64>(step);
            counts[i] = number < end;
            target[i] = counts[i] ? target_of(number) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) {
            const u32 mark = load_near(words + target[i] / 4) >> target[i] % 4 * 8 & 0xff;
            counts[i] = counts[i] && !(mark & 1) && mark / 2 <= which;
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++) theirs[i] = counts[i] ? label[target[i]] : taken;
#pragma unroll
        for (u32 i = 0; i < ARCS_A_LANE; i++)
            if (theirs[i] != taken) store_system(active + target[i], u8(1));
    }
}
