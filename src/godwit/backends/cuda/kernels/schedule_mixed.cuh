// Load balance for rows of any length: short ones are dealt out to the lanes of a warp arc by arc, long ones
// are left to the team in chunks.
//
// A lane brings a row; the lanes' lengths are summed up, and arc number i of all belongs to the first lane
// whose sum exceeds i (the schedule of Merrill's scan-based gathering, by shuffles).
#pragma once

#include "step.cuh"

constexpr i64 LONG_ROW_ARCS = 256;  // longer ones are left to the team: classes GRID and BLOCK
constexpr u32 CHUNK_ARCS = 256;
constexpr u32 MIXED_UNROLL = 4;

// Rows that are left to the team, and the first of each one's chunks among all.
struct LongRow {
    i64 begin;
    i64 end;
    u64 chunk;
    u64 row;
};

struct LongRows {
    LongRow *rows;  // room for every row of such length
    u64 *cursor;    // rows << 32 | chunks; 0 before
};

__device__ __forceinline__ void thread_leave(const LongRows &list, u64 row, i64 begin, i64 end) {
    u64 chunks = static_cast<u64>((end - begin + CHUNK_ARCS - 1) / CHUNK_ARCS);
    u64 cursor = atomicAdd(list.cursor, (1ull << 32) | chunks);
    list.rows[cursor >> 32] = LongRow{begin, end, cursor & 0xffffffffull, row};
}

// Visit `length` arcs from `begin` of each lane's row: visit(arcs[], rows[], there[]) gets MIXED_UNROLL arcs a
// lane, the numbers that their rows' lanes brought, and whether they are there. All lanes come.
template <class Visit>
__device__ __forceinline__ void warp_visit_rows(i64 begin, u32 length, u32 row, Visit visit) {
    u32 lane = lane_id();
    u32 end = warp_sum_up_to(length);
    u32 total = __shfl_sync(FULL_WARP, end, WARP - 1);
    i64 base = begin - (end - length);
    for (u32 first = 0; first < total; first += WARP * MIXED_UNROLL) {
        i64 arcs[MIXED_UNROLL];
        u32 rows[MIXED_UNROLL];
        bool there[MIXED_UNROLL];
#pragma unroll
        for (u32 i = 0; i < MIXED_UNROLL; i++) {
            u32 number = first + i * WARP + lane;
            u32 whose = 0;
            for (u32 step = WARP / 2; step > 0; step /= 2) {
                u32 sum = __shfl_sync(FULL_WARP, end, whose + step - 1);
                if (sum <= number) whose += step;
            }
            there[i] = number < total;
            arcs[i] = __shfl_sync(FULL_WARP, base, whose) + number;
            rows[i] = __shfl_sync(FULL_WARP, row, whose);
        }
        visit(arcs, rows, there);
    }
}

// The team visits the rows that were left to it, a chunk a warp. They lie in the order of their chunks, as
// both were counted by one atomic.
template <class Visit>
__device__ __forceinline__ void team_visit_long_rows(const Team &team, const LongRows &list,
                                                     Visit visit) {
    u64 cursor = load_relaxed(list.cursor);
    u64 chunks = cursor & 0xffffffffull;
    for (u64 chunk = team.warp(); chunk < chunks; chunk += team.warps()) {
        u32 low = 0, high = static_cast<u32>(cursor >> 32) - 1;
        while (low < high) {  // the last row whose first chunk is not past this one
            u32 middle = (low + high + 1) / 2;
            if (list.rows[middle].chunk <= chunk)
                low = middle;
            else
                high = middle - 1;
        }
        const LongRow row = list.rows[low];
        i64 begin = row.begin + static_cast<i64>(chunk - row.chunk) * CHUNK_ARCS;
        i64 end = min(begin + static_cast<i64>(CHUNK_ARCS), row.end);
        for (i64 first = begin; first < end; first += WARP * MIXED_UNROLL) {
            i64 arcs[MIXED_UNROLL];
            u32 rows[MIXED_UNROLL];
            bool there[MIXED_UNROLL];
#pragma unroll
            for (u32 i = 0; i < MIXED_UNROLL; i++) {
                arcs[i] = first + i * WARP + lane_id();
                rows[i] = static_cast<u32>(row.row);
                there[i] = arcs[i] < end;
            }
            visit(arcs, rows, there);
        }
    }
}
