// Sums over the arcs of own rows, read in the order of the arcs' sources: a schedule for kernels that pull.
//
// A row-by-row kernel reads the values of sources all over memory. Here own rows are cut into *tiles*, whose
// arcs are sorted by source, so that neighbouring lanes read neighbouring values, and a tile's sums are in
// shared memory. The idea is that of propagation blocking (Beamer, Asanović and Patterson, "Reducing PageRank
// communication via propagation blocking", IPDPS 2017), with shared memory in place of a second pass.
//
// Encoding: a tile has at most TILE_SLOTS *slots*, which are its sums: 2^log_slots of each row, among which
// the row's arcs are distributed, so that few rows with many arcs are not added to one word by all lanes. Its
// arcs are in chunks of CHUNK; an arc is one word, `(source - begin of the chunk's range) << SLOT_BITS | slot`.
// A range has 2^SOURCE_BITS positions. A tile's chunks of one range are filled up with arcs of slot
// PADDING_SLOT, which no thread reads. Within a range arcs are in the order of bins (tiled_rows.cuh), and within
// a bin in any.
//
// Values are rounded to multiples of a unit, and sums are integers in two or three words of shared memory,
// where atomics on 32 bits are native and others are not. A higher word takes part only if a value reaches
// it, or if the lower one overflows. Sums are exact, so they do not depend on tiles, orders, launches or
// devices.
//
// Lower bound, H100, float32: 4 bytes an arc over memory bandwidth; 521M arcs at 3.0 TB/s take 0.69 ms.
#pragma once

#include "supersteps/step.cuh"

constexpr u32 CHUNK = 128;
constexpr u32 SLOT_BITS = 14;
constexpr u32 SOURCE_BITS = 32 - SLOT_BITS;
constexpr u32 PADDING_SLOT = (1u << SLOT_BITS) - 1;
constexpr u32 TILE_SLOTS = PADDING_SLOT;
constexpr u32 CHUNKS_AT_ONCE = 2;  // of a warp

struct SumTile {
    i64 arc;    // first arc of its rows
    i64 chunk;  // its first
    u32 row;    // the first, by local index
    u32 rows;
    u32 log_slots;
    u32 chunks;
};

struct TiledArcs {
    const SumTile *tiles;  // the largest first
    const u32 *arcs;       // (chunks, CHUNK)
    const u32 *begins;     // (chunks) first position of the range
    const void *factors;   // (chunks, CHUNK) of the type of values, to be multiplied by; or null
    u64 count;             // of tiles
};

constexpr u32 SLOT_BYTES_A_WORD = sizeof(u32) << SLOT_BITS;  // dynamic shared memory of a block

// The sums of a tile, of two or three words each, the lowest first.
template <u32 WORDS>
struct TileSums {
    static_assert(WORDS == 2 || WORDS == 3);
    u32 *words[WORDS];

    __device__ __forceinline__ TileSums() {
        extern __shared__ u32 tile_words[];
        for (u32 word = 0; word < WORDS; word++) words[word] = tile_words + (word << SLOT_BITS);
    }

    __device__ __forceinline__ void thread_clear(u32 slot) const {
        for (u32 word = 0; word < WORDS; word++) words[word][slot] = 0;
    }

    // Add a value in units, rounded to the nearest; its magnitude is below 2^63 (two words) or 2^95.
    template <class Value>
    __device__ __forceinline__ void thread_add(u32 slot, Value value) const {
        u32 low;
        i64 rest = 0;  // in units of 2^32
        if (WORDS == 3) {
            const double whole = floor(static_cast<double>(value) * (1.0 / TWO_32));
            const u64 part =
                __double2ull_rn(static_cast<double>(value) - whole * TWO_32);  // up to 2^32
            low = static_cast<u32>(part);
            rest = static_cast<i64>(whole) + static_cast<i64>(part >> 32);
        } else if (value >= 0 && value < static_cast<Value>(TWO_32 - 1)) {  // 2^32 as a float
            if constexpr (sizeof(Value) == 4) {
                low = __float2uint_rn(value);
            } else {
                low = __double2uint_rn(value);
            }
        } else {
            i64 whole;
            if constexpr (sizeof(Value) == 4) {
                whole = __float2ll_rn(value);
            } else {
                whole = __double2ll_rn(value);
            }
            low = static_cast<u32>(whole);
            rest = whole >> 32;
        }
        u32 before = atomicAdd(&words[0][slot], low);
        rest += before + low < before;
        if (rest == 0) return;
        const u32 middle = static_cast<u32>(rest);
        before = atomicAdd(&words[1][slot], middle);
        if constexpr (WORDS == 3) {
            const u32 high = static_cast<u32>(rest >> 32) + (before + middle < before);
            if (high) atomicAdd(&words[2][slot], high);
        }
    }

    // Return the sum of a row, in units.
    __device__ __forceinline__ double thread_row_sum(u32 row, u32 log_slots) const {
        u64 low = 0, rest = 0;  // in units of 2^32
        for (u32 slot = row << log_slots; slot < (row + 1) << log_slots; slot++) {
            low += words[0][slot];
            if constexpr (WORDS == 3) {
                rest += static_cast<u64>(words[2][slot]) << 32 | words[1][slot];
            } else {
                rest += words[1][slot];
            }
        }
        rest += low >> 32;
        const u32 lowest = static_cast<u32>(low);
        if (WORDS == 2) return static_cast<double>(static_cast<i64>(rest << 32 | lowest));
        return static_cast<double>(static_cast<i64>(rest)) * TWO_32 + lowest;
    }

private:
    static constexpr double TWO_32 = 4294967296.0;
};

// Sum the rows of all tiles, each of which one block claims: `update(row, sum in units)` by one thread for each
// row, and `end(number of the tile)` by all threads after each tile. `cursor` is 0 when the superstep begins.
template <u32 WORDS, bool HAS_FACTORS, class Value, class Update, class End>
__device__ __forceinline__ void team_sum_tiles(const TiledArcs &tiled, const Value *values,
                                               Value units, u64 *cursor, Update update, End end) {
    __shared__ u64 claimed;
    const TileSums<WORDS> sums;
    const u32 lane = lane_id(), warps = blockDim.x / WARP;
    constexpr u32 LOADS_OF_CHUNK = CHUNK / WARP;
    for (;;) {
        if (threadIdx.x == 0) claimed = atomicAdd(cursor, 1ull);
        __syncthreads();
        if (claimed >= tiled.count) break;
        const SumTile tile = tiled.tiles[claimed];
        for (u32 slot = threadIdx.x; slot < tile.rows << tile.log_slots; slot += blockDim.x)
            sums.thread_clear(slot);
        if (threadIdx.x == 0) sums.thread_clear(PADDING_SLOT);
        __syncthreads();
        for (u32 chunk = warp_id() * CHUNKS_AT_ONCE; chunk < tile.chunks;
             chunk += warps * CHUNKS_AT_ONCE) {
            const i64 first = tile.chunk + chunk;
            const Value *ranges[CHUNKS_AT_ONCE];
            u32 arcs[CHUNKS_AT_ONCE][LOADS_OF_CHUNK];
            Value found[CHUNKS_AT_ONCE][LOADS_OF_CHUNK];
#pragma unroll
            for (u32 one = 0; one < CHUNKS_AT_ONCE; one++) {
                const bool is_there = chunk + one < tile.chunks;
                ranges[one] = values + (is_there ? load_once(&tiled.begins[first + one]) : 0);
#pragma unroll
                for (u32 load = 0; load < LOADS_OF_CHUNK; load++) {
                    const i64 arc = (first + one) * CHUNK + load * WARP + lane;
                    arcs[one][load] = is_there ? load_once(&tiled.arcs[arc]) : PADDING_SLOT;
                }
            }
#pragma unroll
            for (u32 one = 0; one < CHUNKS_AT_ONCE; one++)
#pragma unroll
                for (u32 load = 0; load < LOADS_OF_CHUNK; load++)
                    found[one][load] = ranges[one][arcs[one][load] >> SLOT_BITS];
            if constexpr (HAS_FACTORS) {
                const Value *factors = static_cast<const Value *>(tiled.factors);
#pragma unroll
                for (u32 one = 0; one < CHUNKS_AT_ONCE; one++)
#pragma unroll
                    for (u32 load = 0; load < LOADS_OF_CHUNK; load++)
                        if (chunk + one < tile.chunks)
                            found[one][load] *=
                                load_once(&factors[(first + one) * CHUNK + load * WARP + lane]);
            }
#pragma unroll
            for (u32 one = 0; one < CHUNKS_AT_ONCE; one++)
#pragma unroll
                for (u32 load = 0; load < LOADS_OF_CHUNK; load++)
                    sums.thread_add(arcs[one][load] & PADDING_SLOT, found[one][load] * units);
        }
        __syncthreads();
        for (u32 row = threadIdx.x; row < tile.rows; row += blockDim.x)
            update(static_cast<i64>(tile.row) + row, sums.thread_row_sum(row, tile.log_slots));
        end(claimed);
        __syncthreads();  // before slots are cleared, and `claimed` is written
    }
}
