// Trees that begin in tiles, where vertices keep their order and neighbours are near each other (roads).
//
// A block joins a range of own vertices, a *tile*, by the arcs among them, in shared memory, where a step
// up a tree takes some 30 cycles instead of 700. Every vertex then hangs below the smallest of its tree in
// the tile. What remains are arcs that leave tiles, and roots of tiles: a tile of a grid is some rows high
// and falls into thousands of trees, which hang below each other in long paths; these are compressed before
// other vertices follow them.
//
// A warp takes groups of GROUP rows in ascending order, so that most vertices that a group links to are
// joined already. Tiles consist of whole groups. `leaving` has a bit for every row that is read again: one
// with an arc out of its tile that counts, or with more arcs than a lane reads. `roots` has a bit for every
// root of a tile. Of the two arcs of an edge that one counts whose tail has the larger number.
//
// Invariant within a tile: that of union_find.cuh, with numbers that count from the tile's first vertex.
//
// Lower bound, ids of 4 bytes: 8 a vertex of offsets, 4 an arc, parents written and read, labels written:
// 20 bytes a vertex with arcs, 4 an arc. road4900 (23.4 M, 57.6 M): 0.70 GB, 0.17 ms at 4.0 TB/s. Of its
// edges 1.5 M leave tiles of 44,000 vertices, in which 0.6 M trees remain. Measured on an H200: reading the
// rows takes 0.17 ms, arcs that leave 0.06. Hanging all rows first and flattening them before links, each a
// pass over shared memory, costs more than linking them in order (bank conflicts); smaller tiles, two
// blocks a multiprocessor, gain nothing and leave more arcs; and labels take 0.4 ms, or 0.8 where all
// threads read the parent of the largest component's root.
#pragma once

#include "algorithms/components/union_find.cuh"

constexpr u32 ROWS_A_LANE = 4;
constexpr u32 ARCS_A_ROW = 4;  // that a lane reads: short rows of graph/partition/positions.py
constexpr u32 GROUP = WARP * ROWS_A_LANE;  // as in cuda.py

// Parents of a tile's vertices, in dynamic shared memory.
struct Tile {
    u32 *words;

    __device__ __forceinline__ u32 parent_of(u32 row) const { return load_system(words + row); }
    __device__ __forceinline__ u32 exchange(u32 row, u32 wanted, u32 desired) const {
        return atomicCAS(words + row, wanted, desired);
    }
    __device__ __forceinline__ bool replace(u32 row, u32 wanted, u32 desired) const {
        return exchange(row, wanted, desired) == wanted;
    }
};

// Arcs of the rows first + i * WARP + lane, counted from a base.
struct RowSpans {
    u32 begins[ROWS_A_LANE];
    u32 lengths[ROWS_A_LANE];
};

// Vertices of these rows, and heads of their first arcs.
struct RowGroup {
    Id from[ROWS_A_LANE];
    Id to[ROWS_A_LANE][ARCS_A_ROW];  // `from` beyond the row's end
};

struct Tiles {
    const Forest &forest;
    const Rows<Id> &rows;
    u32 *leaving;
    u32 *roots;
    i64 active;
    u32 tile;         // vertices of a tile
    bool counts_all;  // every arc counts, also of two that are one edge

    // Spans of rows before `end`; bit i of `there` says whether row i is wanted.
    __device__ __forceinline__ RowSpans warp_spans(i64 base, u32 first, u32 end, u32 there) const {
        RowSpans spans;
        i64 begins[ROWS_A_LANE], ends[ROWS_A_LANE];
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++) {
            const u32 row = first + i * WARP + lane_id();
            const bool is_one = (there >> i & 1) && row < end;
            begins[i] = is_one ? rows.offsets[row] : base;
            ends[i] = is_one ? rows.offsets[row + 1] : base;
        }
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++) {
            spans.begins[i] = static_cast<u32>(begins[i] - base);
            spans.lengths[i] = static_cast<u32>(ends[i] - begins[i]);
        }
        return spans;
    }

    __device__ __forceinline__ RowGroup warp_read(i64 base, u32 first,
                                                  const RowSpans &spans) const {
        const Id *targets = rows.targets + base;
        RowGroup group;
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++) {
            group.from[i] = forest.own(first + i * WARP + lane_id());
#pragma unroll
            for (u32 k = 0; k < ARCS_A_ROW; k++)
                group.to[i][k] = k < spans.lengths[i]
                                     ? forest.of_position(targets[spans.begins[i] + k])
                                     : group.from[i];
        }
        return group;
    }

    __device__ __forceinline__ bool is_wanted(Id from, Id to) const {
        return to < from || (counts_all && to != from);
    }

    // Index of a vertex in the tile that begins with `begin`; its size or more outside of it.
    __device__ __forceinline__ Unsigned within(Id begin, Id vertex) const {
        return static_cast<Unsigned>(vertex) - static_cast<Unsigned>(begin);
    }

    // Link the arcs of a group of rows within its tile.
    __device__ __forceinline__ void warp_join(const Tile &words, const RowGroup &group,
                                              const RowSpans &spans, u32 begin, u32 size,
                                              u32 some) const {
        const Id first = forest.own(begin);
        u32 row[ROWS_A_LANE], near[ROWS_A_LANE][ARCS_A_ROW], bits = 0;
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++) {
            row[i] = some + i * WARP + lane_id();
            bool leaves = spans.lengths[i] > ARCS_A_ROW;
#pragma unroll
            for (u32 k = 0; k < ARCS_A_ROW; k++) {
                const bool wanted = is_wanted(group.from[i], group.to[i][k]);
                const Unsigned place = within(first, group.to[i][k]);
                near[i][k] = wanted && place < size ? static_cast<u32>(place) : row[i];
                leaves |= wanted && place >= size;
            }
            const u32 votes = __ballot_sync(FULL_WARP, leaves);
            if (lane_id() == i) bits = votes;
        }
        if (lane_id() < ROWS_A_LANE) leaving[(begin + some) / WARP + lane_id()] = bits;
#pragma unroll
        for (u32 k = 0; k < ARCS_A_ROW; k++) {
            u32 to[ROWS_A_LANE];
            bool wanted[ROWS_A_LANE], any = false;
#pragma unroll
            for (u32 i = 0; i < ROWS_A_LANE; i++) {
                to[i] = near[i][k];
                wanted[i] = to[i] != row[i];
                any |= wanted[i];
            }
            if (__any_sync(FULL_WARP, any)) thread_link_some(words, row, to, wanted);
        }
    }

    // Copy the flattened trees of a tile into the forest.
    __device__ __forceinline__ void block_hang(const Tile &words, Id *parents, u32 begin,
                                               u32 size) const {
        const u32 lines = (size + WARP - 1) / WARP * WARP;  // whole warps take part
        const Id first = forest.own(begin);
        for (u32 some = threadIdx.x; some < lines; some += BATCH * blockDim.x) {
            u32 row[BATCH], root[BATCH], next[BATCH], last[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                row[i] = some + i * blockDim.x;
                root[i] = words.parent_of(min(row[i], size - 1));
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) next[i] = words.parent_of(root[i]);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) last[i] = words.parent_of(next[i]);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (row[i] >= lines) break;
                const bool is_there = row[i] < size;
                while (is_there && last[i] != next[i]) {
                    store_system(words.words + row[i], last[i]);  // as in Forest::thread_compress
                    next[i] = last[i];
                    last[i] = words.parent_of(next[i]);
                }
                const u32 bits = __ballot_sync(FULL_WARP, is_there && next[i] == row[i]);
                if (lane_id() == 0) roots[(begin + row[i]) / WARP] = bits;
                const i64 place = (MERGE == MERGE_TREE ? static_cast<i64>(first) : begin) + row[i];
                if (is_there) parents[place] = first + static_cast<Id>(next[i]);
            }
        }
    }

    // Join the own vertices of all tiles; return the number of arcs.
    __device__ __forceinline__ u64 team_join(const Team &team, Id *parents) const {
        extern __shared__ u32 tile_words[];
        const Tile words{tile_words};
        u64 seen = 0;
        for (i64 place = static_cast<i64>(team.block) * tile; place < active;
             place += static_cast<i64>(team.blocks) * tile) {
            const u32 begin = static_cast<u32>(place);
            const u32 size = static_cast<u32>(min(static_cast<i64>(tile), active - place));
            for (u32 row = threadIdx.x; row < size; row += blockDim.x)
                store_system(tile_words + row, row);
            __syncthreads();
            const i64 base = rows.offsets[begin];
            const u32 stride = blockDim.x * ROWS_A_LANE;
            u32 some = warp_id() * GROUP;
            RowSpans spans = warp_spans(base, begin + some, begin + size, ~0u);
            for (; some < size; some += stride) {
                const RowGroup group = warp_read(base, begin + some, spans);
                const RowSpans now = spans;
                spans = warp_spans(base, begin + some + stride, begin + size, ~0u);  // meanwhile
#pragma unroll
                for (u32 i = 0; i < ROWS_A_LANE; i++) seen += now.lengths[i];
                warp_join(words, group, now, begin, size, some);
            }
            __syncthreads();
            block_hang(words, parents, begin, size);
            __syncthreads();
        }
        return seen;
    }

    // Link the arcs of a group of rows that leave their tile; give long rows to bring(begin, end, row).
    template <class Bring>
    __device__ __forceinline__ void warp_link_group(u32 first, u32 bits, Bring bring) const {
        u32 there = 0;
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++)
            there |= (__shfl_sync(FULL_WARP, bits, i) >> lane_id() & 1) << i;
        const i64 base = rows.offsets[first];
        const RowSpans spans = warp_spans(base, first, static_cast<u32>(active), there);
        const RowGroup group = warp_read(base, first, spans);
        const u32 start = first / tile * tile;
        const Id begin = forest.own(start);
        const Unsigned size = static_cast<Unsigned>(min(static_cast<i64>(tile), active - start));
#pragma unroll
        for (u32 k = 0; k < ARCS_A_ROW; k++) {
            Id to[ROWS_A_LANE];
            bool wanted[ROWS_A_LANE], any = false;
#pragma unroll
            for (u32 i = 0; i < ROWS_A_LANE; i++) {
                to[i] = group.to[i][k];
                wanted[i] = is_wanted(group.from[i], to[i]) && within(begin, to[i]) >= size;
                any |= wanted[i];
            }
            if (__any_sync(FULL_WARP, any)) thread_link_some(forest, group.from, to, wanted);
        }
        bool is_long = false;
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++) is_long |= spans.lengths[i] > ARCS_A_ROW;
        if (!__any_sync(FULL_WARP, is_long)) return;
#pragma unroll
        for (u32 i = 0; i < ROWS_A_LANE; i++) {
            const u32 row = first + i * WARP + lane_id();
            const bool brings = spans.lengths[i] > ARCS_A_ROW;
            const i64 begins = base + spans.begins[i];
            bring(begins, begins + (brings ? spans.lengths[i] : 0), row);
        }
    }

    // Link all rows that are read again; bring(begin, end, row) gets long ones, a row per lane.
    template <class Bring>
    __device__ __forceinline__ void team_link_leaving(const Team &team, Bring bring) const {
        const i64 groups = (active + GROUP - 1) / GROUP, warps = static_cast<i64>(team.warps());
        for (i64 some = static_cast<i64>(team.warp()); some < groups; some += WARP * warps) {
            const i64 mine = some + lane_id() * warps;  // a lane loads the warp's next groups
            u32 bits[ROWS_A_LANE] = {};
            if (mine < groups)
#pragma unroll
                for (u32 i = 0; i < ROWS_A_LANE; i++) bits[i] = leaving[mine * ROWS_A_LANE + i];
            u32 busy = __ballot_sync(FULL_WARP, (bits[0] | bits[1] | bits[2] | bits[3]) != 0);
            for (; busy; busy &= busy - 1) {
                const u32 which = __ffs(busy) - 1;
                u32 word = 0;
#pragma unroll
                for (u32 i = 0; i < ROWS_A_LANE; i++) {
                    const u32 its = __shfl_sync(FULL_WARP, bits[i], which);
                    if (lane_id() == i) word = its;
                }
                warp_link_group(static_cast<u32>((some + which * warps) * GROUP), word, bring);
            }
        }
    }

    // Compress the paths from roots of tiles.
    __device__ __forceinline__ void team_flatten_roots(const Team &team) const {
        const i64 words = (active + WARP - 1) / WARP, threads = static_cast<i64>(team.threads());
        Id known = -1;
        for (i64 word = static_cast<i64>(team.thread()); word < words; word += threads)
            for (u32 bits = roots[word]; bits; bits &= bits - 1)
                forest.thread_flatten(forest.own(word * WARP + __ffs(bits) - 1), known);
    }
};
