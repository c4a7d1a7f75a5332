// Visits of arcs by a warp, for all schedules.
//
// visit(arcs[], rows[], there[]) gets ARCS_A_LANE arcs for each lane, their rows, and flags that are false past the
// last arc. All lanes of a warp call it, so it may vote and shuffle.
#pragma once

#include "runtime/cuda/include/warp.cuh"
#include "supersteps/step.cuh"

constexpr u32 ARCS_A_LANE = 4;
constexpr u32 ARCS_A_WARP = ARCS_A_LANE * WARP;

// Visit the arcs [first, end) of one row, at most ARCS_A_WARP. All lanes pass the same row.
template <class Visit>
__device__ __forceinline__ void warp_visit_part(i64 first, i64 end, u32 row, Visit visit) {
    i64 arcs[ARCS_A_LANE];
    u32 rows[ARCS_A_LANE];
    bool there[ARCS_A_LANE];
#pragma unroll
    for (u32 i = 0; i < ARCS_A_LANE; i++) {
        arcs[i] = first + i * WARP + lane_id();
        rows[i] = row;
        there[i] = arcs[i] < end;
    }
    visit(arcs, rows, there);
}

// Visit `length` arcs from `begin` of each lane's row, distributed over the lanes arc by arc, ARCS for each.
template <u32 ARCS = ARCS_A_LANE, class Visit>
__device__ __forceinline__ void warp_visit_rows(i64 begin, u32 length, u32 row, Visit visit) {
    u32 lane = lane_id();
    u32 end = warp_sum_up_to(length);
    u32 total = __shfl_sync(FULL_WARP, end, WARP - 1);
    i64 base = begin - (end - length);
    for (u32 first = 0; first < total; first += ARCS * WARP) {
        i64 arcs[ARCS];
        u32 rows[ARCS];
        bool there[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            u32 number = first + i * WARP + lane;
            u32 whose = warp_lane_of(end, number);
            there[i] = number < total;
            arcs[i] = __shfl_sync(FULL_WARP, base, whose) + number;
            rows[i] = __shfl_sync(FULL_WARP, row, whose);
        }
        visit(arcs, rows, there);
    }
}
