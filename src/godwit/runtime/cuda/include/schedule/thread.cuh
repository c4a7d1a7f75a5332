// One thread for each row. A warp takes as long as the longest of its rows.
#pragma once

#include "runtime/cuda/include/schedule/rows.cuh"

struct ThreadSchedule {
    // Whether rows that are not long are visited where they are brought.
    static constexpr bool LEAVES_LONG_ROWS_ONLY = false;

    struct Row {};  // the list is not used

    Row *list;
    u64 *cursor;

    template <class Visit>
    __device__ __forceinline__ void warp_bring(i64 begin, i64 end, u32 row, Visit visit) const {
        while (__any_sync(FULL_WARP, begin < end)) {
            i64 arcs[ARCS_A_LANE];
            u32 rows[ARCS_A_LANE];
            bool there[ARCS_A_LANE];
#pragma unroll
            for (u32 i = 0; i < ARCS_A_LANE; i++) {
                arcs[i] = begin + i;
                rows[i] = row;
                there[i] = arcs[i] < end;
            }
            visit(arcs, rows, there);
            begin += ARCS_A_LANE;
        }
    }

    template <class Visit>
    __device__ __forceinline__ void team_finish(const Team &, StepBlock &, bool, Visit) const {}
};
