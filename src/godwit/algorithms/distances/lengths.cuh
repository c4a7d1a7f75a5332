// Distances from many sources, each searched from by one block of a device, which has the whole graph: by
// weights, or by arcs (UNIT_LENGTHS) in graphs with many levels, where one block is fast enough.
//
// Near-far: A. Davidson, S. Baxter, M. Garland, J. Owens, Work-efficient parallel GPU methods for single-source
// shortest paths, IPDPS 2014. Vertices whose distance has fallen wait in a list: those within the bound in one of
// the *near* lists, which are processed in rounds, the others in the *far* list. When no vertex is near, the bound
// rises beyond the smallest distance in the far list, by a step that is adapted to the number of vertices that
// become near. Distances only fall, so the result does not depend on the order.
//
// Distances are in one row of the matrix, as 64-bit integers that are ordered like them: bits of a double
// where lengths are floating-point numbers. Each vertex is in a list at most once, as bits of `waits` say: a
// block clears the bit before it reads the distance, and lowers the distance before it sets the bit.
#pragma once

#include "algorithms/distances/rows.cuh"
#include "runtime/cuda/include/schedule/mixed.cuh"

constexpr u64 FARTHEST = 0x7ffffffffffffffeull;  // sums of integers saturate here
constexpr u64 UNREACHED_INTEGER = 0x7fffffffffffffffull;
constexpr u64 UNREACHED_FLOAT = 0x7ff0000000000000ull;
constexpr bool FLOATS = is_float<Weight>;
constexpr u64 UNREACHED = FLOATS ? UNREACHED_FLOAT : UNREACHED_INTEGER;
constexpr u32 FEW_NEAR = 4,
              MANY_NEAR = 32;  // vertices per thread that become near: the step is doubled, halved

// Counts of a superstep. The first is a run's progress.
constexpr u32 DONE = 0;     // sources done
constexpr u32 VISITED = 1;  // vertices processed
constexpr u32 FOUND = 2;    // vertices reached
// Words of the state.
constexpr u32 FIRST = 0;  // first source of the superstep
constexpr u32 ALL_VISITED = 1;
constexpr u32 ALL_FOUND = 2;

enum LengthsPhase : u32 { SEARCH, DELIVER, SUM };

// Offsets in the memory of a block, in bytes.
struct SearchLayout {
    i64 near[2];    // u32 [owned]
    i64 far;        // u32 [owned]
    i64 waits[2];   // a bit for each own vertex: in a near list; in the far list
    i64 left_rows;  // MixedSchedule::Row
    i64 cursor;     // u64
    i64 nbytes;
};

struct Arguments {
    Stage stage;
    Rows<Id> out;
    const Weight *weights;  // in the order of the arcs; null where all lengths are 1
    const Id *sources;      // positions
    u64 *matrix;            // [sources][capacity], by position
    char *searches;         // memory of the blocks
    SearchLayout layout;
    const u32 *wanted;  // a bit for each own vertex whose distance counts in sums, or null: all
    const Id *columns;  // positions of the columns of `results`
    Result *results;    // [sources][columns], or null
    u64 *source_sums;   // [sources][FIELDS], or null
    u64 source_count;
    u64 sources_a_step;    // of all blocks
    u64 searching_blocks;  // there is memory for
    i64 column_count;
    u64 limit;  // largest distance, as in the matrix
    u64 step;   // by which the bound rises at first: an integer, or a double's bits
};

__device__ __forceinline__ double length_of(u64 value) { return amount_of(value); }

// Return a distance along an arc, as in the matrix.
__device__ __forceinline__ u64 along(u64 distance, Weight weight) {
    if constexpr (FLOATS) return bits_of_amount(length_of(distance) + static_cast<double>(weight));
    u64 length = static_cast<u64>(weight);
    return length <= FARTHEST - distance ? distance + length : FARTHEST;
}

// Return a bound that lies a step beyond a distance, or at it where rounding has it so.
__device__ __forceinline__ u64 beyond(u64 distance, u64 step) {
    if constexpr (FLOATS) return bits_of_amount(length_of(distance) + length_of(step));
    return distance <= FARTHEST - min(step, FARTHEST) ? distance + step : UNREACHED;
}

__device__ __forceinline__ u64 doubled(u64 step) {
    if constexpr (FLOATS) return bits_of_amount(2 * length_of(step));
    return step < FARTHEST / 2 ? 2 * step : step;
}

__device__ __forceinline__ u64 halved(u64 step) {
    if constexpr (FLOATS) return bits_of_amount(length_of(step) / 2);
    return max(step / 2, 1ull);
}

// What the threads of a block share in a search.
struct SearchShared {
    u32 near[2];  // numbers of vertices in the lists
    u32 far;
    u32 kept;  // of the far list, while it is divided
    u64 smallest;
    u64 source;
    u64 bound;
    u64 step;
};

struct Search {
    const Arguments &given;
    StepBlock &block;
    SearchShared &shared;
    char *home;
    u64 *distances;
    u64 visited = 0, found = 0;

    template <class T>
    __device__ __forceinline__ T *place(i64 offset) const {
        return reinterpret_cast<T *>(home + offset);
    }
    __device__ __forceinline__ u32 *near(u32 which) const {
        return place<u32>(given.layout.near[which]);
    }
    __device__ __forceinline__ u32 *far() const { return place<u32>(given.layout.far); }
    __device__ __forceinline__ u32 *waits(u32 which) const {
        return place<u32>(given.layout.waits[which]);
    }

    // Mark that a vertex waits in a near list (0) or in the far list (1); return whether it did not.
    __device__ __forceinline__ bool thread_join(u32 which, u32 own) const {
        u32 bit = 1u << (own & 31);
        return !(atomicOr(waits(which) + (own >> 5), bit) & bit);
    }
    __device__ __forceinline__ void thread_leave(u32 which, u32 own) const {
        atomicAnd(waits(which) + (own >> 5), ~(1u << (own & 31)));
    }
};

// The visitor of a schedule: lower the distances of the heads of arcs, and list these.
struct Relax {
    Search &search;
    u32 next;  // near list

    template <u32 ARCS_HERE>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS_HERE],
                                               const u32 (&rows)[ARCS_HERE],
                                               const bool (&there)[ARCS_HERE]) const {
        const Arguments &given = search.given;
        u32 head[ARCS_HERE];
        u64 length[ARCS_HERE];
        bool is_shorter[ARCS_HERE];
#pragma unroll
        for (u32 i = 0; i < ARCS_HERE; i++) {
            head[i] = there[i] ? static_cast<u32>(load_once(given.out.targets + arcs[i])) : 0;
            Weight weight =
                UNIT_LENGTHS || !there[i] ? Weight(1) : load_once(given.weights + arcs[i]);
            u64 distance = there[i] ? load_relaxed(search.distances + rows[i]) : 0;
            length[i] = along(distance, weight);
        }
#pragma unroll
        for (u32 i = 0; i < ARCS_HERE; i++)
            is_shorter[i] = there[i] && length[i] <= given.limit &&
                            length[i] < load_relaxed(search.distances + head[i]);
#pragma unroll
        for (u32 i = 0; i < ARCS_HERE; i++) {
            if (!__any_sync(FULL_WARP, is_shorter[i])) continue;
            bool is_near = false, is_far = false;
            if (is_shorter[i]) {
                u64 before = atomicMin(search.distances + head[i], length[i]);
                search.found += before == UNREACHED;
                __threadfence_block();  // before the bit is set
                bool joins = length[i] < before;
                bool is_within = length[i] <= search.shared.bound;
                is_near = joins && is_within && search.thread_join(0, head[i]);
                is_far = joins && !is_within && search.thread_join(1, head[i]);
            }
            warp_append(&search.shared.near[next], search.near(next), is_near, head[i]);
            warp_append(&search.shared.far, search.far(), is_far, head[i]);
        }
    }
};

// Process a near list; vertices that become near are put into the other one.
__device__ __forceinline__ void block_process_near(Search &search, u32 which) {
    const Arguments &given = search.given;
    StepControl *control = given.stage.control;
    const Team team{control, 0, 1};
    u64 *cursor = search.place<u64>(given.layout.cursor);
    const MixedSchedule schedule{search.place<MixedSchedule::Row>(given.layout.left_rows), cursor};
    const Relax visit{search, which ^ 1};
    u32 size = search.shared.near[which];
    const u32 *list = search.near(which);
    bool has_long_rows = false;
    for (u32 base = warp_id() * WARP; base < size; base += blockDim.x) {
        u32 own = 0;
        i64 begin = 0, end = 0;
        if (base + lane_id() < size) {
            own = list[base + lane_id()];
            search.thread_leave(0, own);
            begin = given.out.offsets[own];
            end = given.out.offsets[own + 1];
            search.visited += 1;
        }
        has_long_rows |= end - begin > LONG_ROW_ARCS;
        __threadfence_block();  // bits are cleared before distances are read
        __syncwarp();
        schedule.warp_bring(begin, end, own, visit);
    }
    has_long_rows = __syncthreads_or(has_long_rows);
    schedule.team_finish(team, search.block, has_long_rows, visit);
    __syncthreads();
    if (threadIdx.x == 0) {
        search.shared.near[which] = 0;
        if (has_long_rows) *cursor = 0;
    }
    __syncthreads();
}

// Raise the bound; move the vertices of the far list that are within it to a near list, and drop those that were
// near meanwhile. Returns false if none is left.
__device__ __forceinline__ bool block_raise_bound(Search &search, u32 which) {
    SearchShared &shared = search.shared;
    u32 size = shared.far, *list = search.far();
    if (size == 0) return false;
    u64 old_bound = shared.bound, smallest = UNREACHED;
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
        u64 distance = load_relaxed(search.distances + list[i]);
        if (distance > old_bound) smallest = min(smallest, distance);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.smallest = UNREACHED;
        shared.kept = 0;
    }
    __syncthreads();
    if (smallest != UNREACHED) atomicMin(&shared.smallest, smallest);
    __syncthreads();
    u64 bound = beyond(shared.smallest, shared.step);
    // Vertices that stay move to the front, not past those that were not read yet.
    for (u32 base = 0; base < size; base += blockDim.x) {
        bool is_near = false, is_far = false;
        u32 own = 0;
        if (base + threadIdx.x < size) {
            own = list[base + threadIdx.x];
            u64 distance = load_relaxed(search.distances + own);
            is_far = distance > bound;
            is_near = distance > old_bound && !is_far;
            if (!is_far) search.thread_leave(1, own);
            if (is_near) is_near = search.thread_join(0, own);
        }
        __syncthreads();
        warp_append(&shared.kept, list, is_far, own);
        warp_append(&shared.near[which], search.near(which), is_near, own);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 count = shared.near[which];
        if (count < FEW_NEAR * blockDim.x) shared.step = doubled(shared.step);
        if (count > MANY_NEAR * blockDim.x) shared.step = halved(shared.step);
        shared.bound = bound;
        shared.far = shared.kept;
    }
    __syncthreads();
    return shared.smallest != UNREACHED;
}

// Search from the source of a row of the matrix.
__device__ __forceinline__ void block_search(Search &search, u64 row) {
    const Arguments &given = search.given;
    SearchShared &shared = search.shared;
    search.distances = given.matrix + row * static_cast<u64>(given.stage.capacity);
    for (i64 i = threadIdx.x; i < given.stage.capacity; i += blockDim.x)
        search.distances[i] = UNREACHED;
    i64 words = (given.stage.owned + 31) / 32;
    for (u32 which = 0; which < 2; which++)
        for (i64 i = threadIdx.x; i < words; i += blockDim.x) search.waits(which)[i] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 source = static_cast<u32>(given.sources[row]);
        search.distances[source] = 0;
        search.near(0)[0] = source;
        shared.near[0] = 1;
        shared.near[1] = shared.far = 0;
        shared.step = given.step;
        shared.bound = UNIT_LENGTHS ? UNREACHED : beyond(0, given.step);
        *search.place<u64>(given.layout.cursor) = 0;
        search.found += 1;
    }
    // What follows reads these words past the first-level cache.
    __threadfence();
    __syncthreads();
    u32 which = 0;
    do {
        while (shared.near[which] > 0) {
            block_process_near(search, which);
            which ^= 1;
        }
    } while (!UNIT_LENGTHS && block_raise_bound(search, which));
}

__device__ __forceinline__ void block_search_all(const Arguments &given, const Team &team,
                                                 StepBlock &block, SearchShared &shared) {
    if (team.block >= given.searching_blocks) return;
    Search search{given, block, shared,
                  given.searches + static_cast<i64>(team.block) * given.layout.nbytes, nullptr};
    u64 first = block.state[FIRST];
    u64 count = min(given.sources_a_step, given.source_count - min(given.source_count, first));
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) shared.source = atomicAdd(&team.control->cursors[0], 1ull);
        __syncthreads();
        u64 number = shared.source;
        if (number >= count) break;
        block_search(search, first + number);
        if (threadIdx.x == 0) atomicAdd(&block.sums.counts[DONE], 1ull);
    }
    __syncwarp();
    warp_count(block, VISITED, search.visited);
    warp_count(block, FOUND, search.found);
}

// Sum the lengths of each row, by one block, whose threads add them up in the same order every time.
__device__ __forceinline__ void team_sum_lengths(const Arguments &given, const Team &team) {
    __shared__ u64 integers[3];  // number, and sums of the lower and the upper half
    __shared__ u64 largest;
    __shared__ double totals[WARP], reciprocals[WARP];
    for (u64 row = team.block; row < given.source_count; row += team.blocks) {
        __syncthreads();
        if (threadIdx.x < 3) integers[threadIdx.x] = 0;
        if (threadIdx.x == 0) largest = 0;
        __syncthreads();
        const u64 *values = given.matrix + row * static_cast<u64>(given.stage.capacity);
        u64 mine[3] = {}, longest = 0;
        double total = 0, reciprocal = 0;
        for (i64 own = threadIdx.x; own < given.stage.owned; own += blockDim.x) {
            u64 value = values[own];
            if (value == UNREACHED || (given.wanted && !has_bit(given.wanted, own))) continue;
            double length = FLOATS ? length_of(value) : static_cast<double>(value);
            mine[0] += 1;
            mine[1] += value & 0xffffffffull;
            mine[2] += value >> 32;
            longest = max(longest, value);
            total += length;
            if (value) reciprocal += 1 / length;
        }
        for (u32 i = 0; i < 3; i++) {
            u64 sum = warp_sum(mine[i]);
            if (lane_id() == 0) atomicAdd(&integers[i], sum);
        }
        atomicMax(&largest, longest);
        total = warp_sum(total);
        reciprocal = warp_sum(reciprocal);
        if (lane_id() == 0) {
            totals[warp_id()] = total;
            reciprocals[warp_id()] = reciprocal;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            total = reciprocal = 0;
            for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
                total += totals[warp];
                reciprocal += reciprocals[warp];
            }
            if (!FLOATS) {
                u64 upper = integers[2] + (integers[1] >> 32);
                total = static_cast<double>(upper) * 0x1p32 +
                        static_cast<double>(integers[1] & 0xffffffffull);
            }
            u64 *sums = given.source_sums + row * FIELDS;
            sums[COUNT] = integers[0];
            sums[TOTAL] = bits_of_amount(total);
            sums[LARGEST] = FLOATS                ? largest
                            : largest == FARTHEST ? UNREACHED_FLOAT
                                                  : bits_of_amount(static_cast<double>(largest));
            sums[RECIPROCALS] = bits_of_amount(reciprocal);
            sums[FRACTIONS] = 0;
        }
    }
}

// Return a distance as in results.
__device__ __forceinline__ Result result_of(u64 value) {
    if constexpr (FLOATS) return static_cast<Result>(length_of(value));
    if constexpr (UNIT_LENGTHS) return static_cast<Result>(value == UNREACHED ? 0x7fffffff : value);
    return static_cast<Result>(value);
}

__device__ __forceinline__ void grid_lengths(const Arguments &given) {
    __shared__ SearchShared shared;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        switch (phase & ~ALONE) {
            case SEARCH:
                block_search_all(given, team, block, shared);
                break;
            case DELIVER:
                team_deliver(team, given.matrix, given.stage.capacity, given.source_count,
                             given.columns, given.column_count, given.results,
                             [](u64 value) { return result_of(value); });
                break;
            case SUM:
                if constexpr (UNIT_LENGTHS) {
                    team_sum_hops(team, given.matrix, given.stage.capacity, given.source_count,
                                  given.stage.owned, given.source_sums, given.wanted,
                                  [](u64 value) {
                                      return value == UNREACHED ? i64{-1} : static_cast<i64>(value);
                                  });
                } else {
                    team_sum_lengths(given, team);
                }
                break;
        }
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        if (phase != SEARCH) return STOP;
        state[ALL_VISITED] += sums.counts[VISITED];
        state[ALL_FOUND] += sums.counts[FOUND];
        state[FIRST] += given.sources_a_step;
        if (state[FIRST] < given.source_count) return SEARCH;
        return given.results ? DELIVER : given.source_sums ? SUM : STOP;
    };
    run_steps(given.stage, body, decide);
}
