// One block for each row: the team's blocks take the rows of the list in turn. The list has room for every row of
// a frontier.
//
// The warp that begins a row changes from row to row, so that all warps of a block have work where rows are too
// short for all of them: they do not wait for each other between two rows.
#pragma once

#include "runtime/cuda/include/schedule/rows.cuh"

struct BlockSchedule {
    // Whether rows that are not long are visited where they are brought.
    static constexpr bool LEAVES_LONG_ROWS_ONLY = false;

    struct Row {
        i64 begin;
        i64 end;
        u64 row;
    };
    static_assert(sizeof(Row) == 24);  // as in supersteps/run.py

    Row *list;
    u64 *cursor;  // rows

    template <class Visit>
    __device__ __forceinline__ void warp_bring(i64 begin, i64 end, u32 row, Visit) const {
        u32 brought = __ballot_sync(FULL_WARP, begin < end);
        if (!brought) return;
        u64 place = 0;
        if (lane_id() == 0) place = atomicAdd(cursor, static_cast<u64>(__popc(brought)));
        place = __shfl_sync(FULL_WARP, place, 0) + __popc(brought & ((1u << lane_id()) - 1));
        if (begin < end) list[place] = Row{begin, end, row};
    }

    template <class Visit>
    __device__ __forceinline__ void team_finish(const Team &team, StepBlock &block, bool,
                                                Visit visit) const {
        team.wait(block);
        const u64 rows = load_relaxed(cursor);
        const u32 warps = blockDim.x / WARP;
        u32 turn = warp_id();
        for (u64 at = team.block; at < rows; at += team.blocks) {
            const Row row = list[at];
            for (i64 first = row.begin + static_cast<i64>(turn) * ARCS_A_WARP; first < row.end;
                 first += static_cast<i64>(warps) * ARCS_A_WARP)
                warp_visit_part(first, row.end, static_cast<u32>(row.row), visit);
            turn = turn + 1 < warps ? turn + 1 : 0;
        }
    }
};
