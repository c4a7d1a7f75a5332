// One warp for each row: all lanes visit the rows of a warp's lanes, one row after the other.
#pragma once

#include "runtime/cuda/include/schedule/rows.cuh"

struct WarpSchedule {
    // Whether rows that are not long are visited where they are brought.
    static constexpr bool LEAVES_LONG_ROWS_ONLY = false;

    struct Row {};  // the list is not used

    Row *list;
    u64 *cursor;

    template <class Visit>
    __device__ __forceinline__ void warp_bring(i64 begin, i64 end, u32 row, Visit visit) const {
        u32 waiting = __ballot_sync(FULL_WARP, begin < end);
        while (waiting) {
            u32 whose = __ffs(static_cast<int>(waiting)) - 1;
            waiting &= waiting - 1;
            i64 last = __shfl_sync(FULL_WARP, end, whose);
            u32 number = __shfl_sync(FULL_WARP, row, whose);
            for (i64 first = __shfl_sync(FULL_WARP, begin, whose); first < last;
                 first += ARCS_A_WARP)
                warp_visit_part(first, last, number, visit);
        }
    }

    template <class Visit>
    __device__ __forceinline__ void team_finish(const Team &, StepBlock &, bool, Visit) const {}
};
