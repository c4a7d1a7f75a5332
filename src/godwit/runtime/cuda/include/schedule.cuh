// Load balance: how the arcs of a frontier's rows are shared out among threads. SCHEDULE names one of these,
// each in a file of its own:
//
//     warp_bring(begin, end, row, visit)    each lane brings a row, of arcs begin to before end (none:
//                                           begin == end), which is visited at once or left to the team in a
//                                           list in memory; all lanes come
//     team_finish(team, block, has_long_rows, visit)
//                                           once all rows were brought: the team waits for all of them, and
//                                           shares what is in the list out; all threads of the team come
//
// visit is that of schedule_rows.cuh, and the same in both. `has_long_rows` is whether any row that the team's
// warps brought may be longer than LONG_ROW_ARCS; it is the same for all. The cursor is 0 when a superstep
// begins.
#pragma once

#include "runtime/cuda/include/schedule_block.cuh"
#include "runtime/cuda/include/schedule_merge_path.cuh"
#include "runtime/cuda/include/schedule_mixed.cuh"
#include "runtime/cuda/include/schedule_thread.cuh"
#include "runtime/cuda/include/schedule_warp.cuh"

#ifdef SCHEDULE
using Schedule = SCHEDULE;
#else
using Schedule = MixedSchedule;
#endif
