// Load balance: distribution of the arcs of a frontier's rows over threads. SCHEDULE names one of these structs,
// each in a file of its own:
//
//     warp_bring(begin, end, row, visit)    each lane passes a row with the arcs [begin, end), which may be empty;
//                                           it is visited at once, or put into a list for the whole team. All
//                                           lanes call it
//     team_finish(team, block, has_long_rows, visit)
//                                           after all rows: the team waits for all of its threads, and visits
//                                           the rows in the list. All threads of the team call it
//
// `visit` is that of schedule/rows.cuh, the same in both calls. `has_long_rows` is true if any row of the team's
// warps may be longer than LONG_ROW_ARCS; it is the same for all threads. The cursor is 0 when a superstep
// begins.
#pragma once

#include "runtime/cuda/include/schedule/block.cuh"
#include "runtime/cuda/include/schedule/merge_path.cuh"
#include "runtime/cuda/include/schedule/mixed.cuh"
#include "runtime/cuda/include/schedule/thread.cuh"
#include "runtime/cuda/include/schedule/warp.cuh"

#ifdef SCHEDULE
using Schedule = SCHEDULE;
#else
using Schedule = MixedSchedule;
#endif
