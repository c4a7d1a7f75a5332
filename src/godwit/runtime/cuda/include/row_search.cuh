// Which of a warp's rows an arc belongs to, where their arcs are dealt out to the lanes.
//
// A lane brings a row; the lanes' lengths are summed up, and arc number i of all belongs to the first lane
// whose sum exceeds i (the schedule of Merrill's scan-based gathering, by shuffles).
#pragma once

#include "runtime/cuda/include/memory.cuh"

// The lane that brought arc `number`; `end` is the sum of the lengths up to this lane's. A number that is not
// there belongs to the last lane. All lanes come.
__device__ __forceinline__ u32 warp_lane_of(u32 end, u32 number) {
    u32 whose = 0;
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        u32 sum = __shfl_sync(FULL_WARP, end, whose + step - 1);
        if (sum <= number) whose += step;
    }
    return whose;
}
