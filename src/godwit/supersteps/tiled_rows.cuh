// Tiles of rows (supersteps/tiled_sums.cuh), made by a block each: the kernels that tiled_rows.py starts. The
// including source defines Id (of a position), Weight (or void) and Factor (float or double).
//
// Method: a counting sort by *bins* of positions in shared memory. A bin is a range of positions of one owner:
// 2^log_bins bins for each power of two, so the vertices of highest degree, which come first and are read
// most, have one each. Arcs of a bin may be in any order, as lanes read several bins at once in any case. No
// bin lies in two ranges of 2^SOURCE_BITS positions.
#pragma once

#include "graph/cuda/tiles.cuh"
#include "supersteps/tiled_sums.cuh"

// How positions are divided. Every member has 8 bytes, as Python passes them.
struct SourceBins {
    i64 capacity;
    i64 devices;
    u64 log_bins;
    u64 bins;    // of an owner
    u64 ranges;  // of an owner

    __device__ __forceinline__ u32 bin_of_local(u32 local) const {
        const u32 log = static_cast<u32>(log_bins);
        if (local >> log == 0) return local;
        const u32 width = WARP - 1 - __clz(local) - log;  // log2
        return (width << log) + (local >> width);
    }
    __device__ __forceinline__ u32 owner(i64 position) const {
        return devices == 1 ? 0 : static_cast<u32>(position / capacity);
    }
    __device__ __forceinline__ u32 local(i64 position) const {
        return static_cast<u32>(position - owner(position) * capacity);
    }
    __device__ __forceinline__ u32 bin(i64 position) const {
        return owner(position) * static_cast<u32>(bins) + bin_of_local(local(position));
    }
    __device__ __forceinline__ u32 range(i64 position) const {
        return owner(position) * static_cast<u32>(ranges) + (local(position) >> SOURCE_BITS);
    }
    __device__ __forceinline__ u32 range_count() const {
        return static_cast<u32>(devices * static_cast<i64>(ranges));
    }
    __device__ __forceinline__ u32 range_begin(u32 range) const {
        const u32 of_owner = range % static_cast<u32>(ranges);
        return static_cast<u32>(range / static_cast<u32>(ranges) * capacity) +
               (of_owner << SOURCE_BITS);
    }
    // The first bin of a range; of the number of ranges, the number of bins.
    __device__ __forceinline__ u32 first_bin(u32 range) const {
        const u32 of_owner = range % static_cast<u32>(ranges);
        return range / static_cast<u32>(ranges) * static_cast<u32>(bins) +
               bin_of_local(of_owner << SOURCE_BITS);
    }
};

// Find the first row with at least each multiple of `apart` before it, in arcs and `row_work` for each row.
extern "C" __global__ void find_rows(const i64 *offsets, i64 rows, i64 row_work, i64 apart,
                                     i64 count, i64 *found) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        i64 row = 0, end = rows;
        while (row < end) {
            const i64 middle = row + (end - row) / 2;
            if (offsets[middle] + row_work * middle < i * apart) {
                row = middle + 1;
            } else {
                end = middle;
            }
        }
        found[i] = row;
    }
}

extern "C" __global__ void read_offsets(const i64 *offsets, const i64 *rows, i64 count,
                                        i64 *found) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) found[i] = offsets[rows[i]];
}

// Replace `count` words by the sums of those before them. All threads of the block participate.
__device__ __forceinline__ void block_sum_up_words(u32 *words, u32 count) {
    __shared__ u32 ends[WARP];
    const u32 each = (count + blockDim.x - 1) / blockDim.x;
    const u32 begin = min(threadIdx.x * each, count), end = min(begin + each, count);
    u32 sum = 0;
    for (u32 i = begin; i < end; i++) sum += words[i];
    const u32 up_to = warp_sum_up_to(sum);
    if (lane_id() == WARP - 1) ends[warp_id()] = up_to;
    __syncthreads();
    u32 before = up_to - sum;
    for (u32 warp = 0; warp < warp_id(); warp++) before += ends[warp];
    for (u32 i = begin; i < end; i++) {
        const u32 word = words[i];
        words[i] = before;
        before += word;
    }
    __syncthreads();
}

struct FactorOf {
    template <class Given>
    static __device__ __forceinline__ Factor of(const Given *weights, i64 arc, double outflow) {
        const double weight = static_cast<double>(weights[arc]);
        return static_cast<Factor>(outflow == 0 ? 0.0 : weight / outflow);
    }
    static __device__ __forceinline__ Factor of(const void *, i64, double) { return 1; }
};

// Make the chunks of all tiles, a block a tile, and store their number. Factors, if any, are weights, over the
// outflow of the arc's source if there are outflows. Dynamic shared memory: a word for each bin and one, each
// row of a tile and one, and each range.
extern "C" __global__ void __launch_bounds__(1024)
    make_tiles(const i64 *offsets, const Id *targets, const Weight *weights, const double *outflows,
               SourceBins source, i64 count, u64 most_rows, SumTile *tiles, u32 *arcs, u32 *begins,
               Factor *factors) {
    extern __shared__ u32 made_words[];
    const u32 bins = static_cast<u32>(source.devices * static_cast<i64>(source.bins));
    const u32 ranges = source.range_count();
    u32 *places = made_words;             // (bins + 1)
    u32 *starts = places + bins + 1;      // (rows + 1)
    u32 *moved = starts + most_rows + 1;  // (ranges) how far a range's arcs move for filling up
    for (i64 number = blockIdx.x; number < count; number += gridDim.x) {
        const SumTile tile = tiles[number];
        const u32 tile_arcs = static_cast<u32>(offsets[tile.row + tile.rows] - tile.arc);
        for (u32 bin = threadIdx.x; bin <= bins; bin += blockDim.x) places[bin] = 0;
        for (u32 row = threadIdx.x; row <= tile.rows; row += blockDim.x)
            starts[row] = static_cast<u32>(offsets[tile.row + row] - tile.arc);
        __syncthreads();
        for (u32 arc = threadIdx.x; arc < tile_arcs; arc += blockDim.x)
            atomicAdd(&places[source.bin(targets[tile.arc + arc])], 1u);
        __syncthreads();
        block_sum_up_words(places, bins + 1);
        if (threadIdx.x == 0) {
            u32 end = 0;
            for (u32 range = 0; range < ranges; range++) {
                const u32 first = places[source.first_bin(range)];
                moved[range] = end - first;
                end += (places[source.first_bin(range + 1)] - first + CHUNK - 1) / CHUNK * CHUNK;
            }
            tiles[number].chunks = end / CHUNK;
        }
        __syncthreads();
        u32 *tile_words = arcs + tile.chunk * CHUNK;
        Factor *tile_factors = factors ? factors + tile.chunk * CHUNK : nullptr;
        for (u32 range = warp_id(); range < ranges; range += blockDim.x / WARP) {
            const u32 begin = places[source.first_bin(range)] + moved[range];
            const u32 end = places[source.first_bin(range + 1)] + moved[range];
            const u32 filled = begin + (end - begin + CHUNK - 1) / CHUNK * CHUNK;
            for (u32 place = end + lane_id(); place < filled; place += WARP) {
                tile_words[place] = PADDING_SLOT;
                if (factors) tile_factors[place] = 0;
            }
            for (u32 chunk = begin / CHUNK + lane_id(); chunk < filled / CHUNK; chunk += WARP)
                begins[tile.chunk + chunk] = source.range_begin(range);
        }
        __syncthreads();  // before places move
        for (u32 arc = threadIdx.x; arc < tile_arcs; arc += blockDim.x) {
            const i64 position = targets[tile.arc + arc];
            u32 row = 0, last = tile.rows - 1;
            while (row < last) {
                const u32 middle = (row + last + 1) / 2;
                if (starts[middle] <= arc) {
                    row = middle;
                } else {
                    last = middle - 1;
                }
            }
            const u32 range = source.range(position);
            const u32 place = atomicAdd(&places[source.bin(position)], 1u) + moved[range];
            const u32 slot = row << tile.log_slots | (place & ((1u << tile.log_slots) - 1));
            tile_words[place] =
                static_cast<u32>(position - source.range_begin(range)) << SLOT_BITS | slot;
            if (factors)
                tile_factors[place] =
                    FactorOf::of(weights, tile.arc + arc, outflows ? outflows[position] : 1.0);
        }
        __syncthreads();
    }
}
