// Rows of any length: short rows are distributed over the lanes of a warp arc by arc, long rows over the warps of
// the team in chunks. The list has room for every long row.
#pragma once

#include "runtime/cuda/include/schedule/rows.cuh"

constexpr i64 LONG_ROW_ARCS = 256;  // longer rows are visited by the team; as in supersteps/run.py
constexpr u32 CHUNK_ARCS = 256;

struct MixedSchedule {
    // Whether rows that are not long are visited where they are brought.
    static constexpr bool LEAVES_LONG_ROWS_ONLY = true;

    struct Row {
        i64 begin;
        i64 end;
        u64 chunk;  // index of its first chunk among all
        u64 row;
    };
    static_assert(sizeof(Row) == 32);  // as in supersteps/run.py

    Row *list;
    u64 *cursor;  // rows << 32 | chunks

    template <class Visit>
    __device__ __forceinline__ void warp_bring(i64 begin, i64 end, u32 row, Visit visit) const {
        if (end - begin > LONG_ROW_ARCS) {
            thread_leave(row, begin, end);
            end = begin;
        }
        warp_visit_rows(begin, static_cast<u32>(end - begin), row, visit);
    }

    __device__ __forceinline__ void thread_leave(u64 row, i64 begin, i64 end) const {
        u64 chunks = static_cast<u64>((end - begin + CHUNK_ARCS - 1) / CHUNK_ARCS);
        u64 before = atomicAdd(cursor, (1ull << 32) | chunks);
        list[before >> 32] = Row{begin, end, before & 0xffffffffull, row};
    }

    // Rows lie in the order of their chunks, as one atomic counts both.
    template <class Visit>
    __device__ __forceinline__ void team_finish(const Team &team, StepBlock &block,
                                                bool has_long_rows, Visit visit) const {
        if (!has_long_rows) return;
        team.wait(block);
        u64 left = load_relaxed(cursor);
        u64 chunks = left & 0xffffffffull;
        for (u64 chunk = team.warp(); chunk < chunks; chunk += team.warps()) {
            const Row row = list[thread_row_of_chunk(list, static_cast<u32>(left >> 32), chunk)];
            i64 begin = row.begin + static_cast<i64>(chunk - row.chunk) * CHUNK_ARCS;
            i64 end = min(begin + static_cast<i64>(CHUNK_ARCS), row.end);
            for (i64 first = begin; first < end; first += ARCS_A_WARP)
                warp_visit_part(first, end, static_cast<u32>(row.row), visit);
        }
    }
};
