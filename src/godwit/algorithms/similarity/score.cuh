// Scores of pairs from sums over their common neighbours.
#pragma once

#include "runtime/cuda/include/warp.cuh"

enum Measure : u32 { JACCARD, OVERLAP, SORENSEN, SUM_OF_TERMS };

__device__ __forceinline__ double score_of(u32 measure, double common, i64 left, i64 right) {
    const double a = static_cast<double>(left), b = static_cast<double>(right);
    if (common == 0 || measure == SUM_OF_TERMS) return common;
    if (measure == JACCARD) return common / (a + b - common);
    return measure == OVERLAP ? common / min(a, b) : 2 * common / (a + b);
}
