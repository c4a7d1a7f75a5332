// Equal pieces of rows and arcs together: the merge path of Merrill and Garland (SC 2016; Odeh, Green et al.
// 2012), by which neither many empty rows nor a long one make a warp's piece longer than another's.
//
// All rows of a frontier are left to the team. One atomic counts both rows and arcs, so a row gets its place
// in the list and the number of arcs before it at once: no scan is needed. The path goes through the rows in
// the order of the list: a row is one *item*, then come its arcs, an item each. Row j is item j + (arcs before
// it), its *diagonal*, which grows with j: a warp looks for the row in which its piece begins, and goes on
// from there to the piece's end. An item is in one piece, so every arc is visited once.
//
// The list has room for every row of a frontier. What the word of both counts can hold is checked by the
// host (supersteps/run.py).
#pragma once

#include "runtime/cuda/include/schedule/rows.cuh"

struct MergePathSchedule {
    // Whether rows that are not long are visited where they are brought.
    static constexpr bool LEAVES_LONG_ROWS_ONLY = false;

    static constexpr u32 ARC_BITS = 36, ROW_BITS = 64 - ARC_BITS;  // as in supersteps/run.py
    static constexpr u64 LEAST_PIECE = ARCS_A_WARP;
    static constexpr u64 MOST_PIECE = 1ull << 30;  // a lane counts arcs of a piece by 32 bits

    struct Row {
        i64 begin;
        u64 place;  // arcs before it << ROW_BITS | its number

        __device__ __forceinline__ u64 before() const { return place >> ROW_BITS; }
        __device__ __forceinline__ u32 number() const {
            return static_cast<u32>(place & ((1ull << ROW_BITS) - 1));
        }
    };
    static_assert(sizeof(Row) == 16);  // as in supersteps/run.py

    Row *list;
    u64 *cursor;  // rows << ARC_BITS | arcs

    template <class Visit>
    __device__ __forceinline__ void warp_bring(i64 begin, i64 end, u32 row, Visit) const {
        const u64 mine = begin < end ? 1ull << ARC_BITS | static_cast<u64>(end - begin) : 0;
        if (!__any_sync(FULL_WARP, mine != 0)) return;
        const u64 up_to = warp_sum_up_to(mine);
        u64 before = 0;
        if (lane_id() == WARP - 1) before = atomicAdd(cursor, up_to);
        before = __shfl_sync(FULL_WARP, before, WARP - 1) + up_to - mine;
        if (mine) list[before >> ARC_BITS] = Row{begin, before << ROW_BITS | row};
    }

    template <class Visit>
    __device__ __forceinline__ void team_finish(const Team &team, StepBlock &block, bool,
                                                Visit visit) const {
        team.wait(block);
        const u64 left = load_relaxed(cursor);
        const u64 rows = left >> ARC_BITS, arcs = left & ((1ull << ARC_BITS) - 1);
        const u64 items = rows + arcs, share = (items + team.warps() - 1) / team.warps();
        const u64 piece = min(max(share, LEAST_PIECE), MOST_PIECE);
        for (u64 from = team.warp() * piece; from < items; from += team.warps() * piece)
            warp_visit_piece(rows, arcs, from, min(from + piece, items), visit);
    }

    // Visit the arcs among the items [from, to), those of 32 rows at a time.
    template <class Visit>
    __device__ __forceinline__ void warp_visit_piece(u64 rows, u64 arcs, u64 from, u64 to,
                                                     Visit visit) const {
        for (u64 first = warp_row_at(rows, from); first < rows; first += WARP) {
            const u64 at = first + lane_id();
            Row row{0, 0};
            u64 diagonal = to, length = 0;
            if (at < rows) {
                row = list[at];
                diagonal = at + row.before();
                length = (at + 1 < rows ? list[at + 1].before() : arcs) - row.before();
            }
            if (__shfl_sync(FULL_WARP, diagonal, 0) >= to) return;
            // Arc i of the row is item diagonal + 1 + i.
            const u64 end = diagonal < to ? min(length, to - diagonal - 1) : 0;
            const u64 begin = diagonal < from ? min(from - diagonal - 1, end) : 0;
            warp_visit_rows(row.begin + static_cast<i64>(begin), static_cast<u32>(end - begin),
                            row.number(), visit);
        }
    }

    // The last row whose diagonal is not past an item's. Lanes look at 32 places at a time, as each look takes
    // a trip to memory.
    __device__ __forceinline__ u64 warp_row_at(u64 rows, u64 item) const {
        u64 low = 0, high = rows;  // it is one of these
        while (high - low > 1) {
            const u64 apart = (high - low + WARP - 1) / WARP, at = low + lane_id() * apart;
            const bool is_before = at < high && at + list[at].before() <= item;
            low += (__popc(__ballot_sync(FULL_WARP, is_before)) - 1) * apart;
            high = min(high, low + apart);
        }
        return low;
    }
};
