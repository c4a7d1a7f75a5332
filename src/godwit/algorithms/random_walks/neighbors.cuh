// Samples of neighbourhoods, a hop a run: counterpart of neighbors.py, which cites the sources, with the same words
// and the same order.
//
// The device has the whole graph in its own order. `marks` has of each vertex that was found its number, and in a
// hop, of each new one, `nodes` + the least place of an arc that leads to it: the number of a new vertex is how many
// such places come before its own. Sums over rows and over arcs are made in two supersteps: each block has a range
// of them, adds it up, and begins at the sum of the blocks before it.
//
// A run begins with the vertices [FIRST, NODES) of `found`, whose arcs COUNT_ROWS has counted.
#pragma once

#include "runtime/cuda/include/hashing.cuh"
#include "supersteps/step.cuh"

enum NeighborsPhase : u32 { COUNT_ROWS, DRAW, FIND, COUNT_NEW, NUMBER_NEW, NUMBER_ARCS };
enum NeighborsWord : u32 { FIRST, NODES, NEW, NEXT_ARCS };
enum NeighborsCount : u32 { NUMBERED, COUNTED_ARCS, COUNTED_NEW };

struct Arguments {
    Stage stage;
    const i64 *offsets;  // of the graph
    const Id *targets;
    Id *found;    // (n) vertices by number
    u64 *marks;   // (n) ~0 of those that are not found
    i64 *begins;  // (n) of each row of the hop, the place of its first arc
    u64 *sums;    // (blocks)
    i64 *row;     // of the hop's arcs
    i64 *col;
    i64 *edges;
    u64 seed;          // hash of the seed
    u64 hop;           // number of the hop
    i64 arcs;          // of the hop
    i64 fanout;        // of the hop; -1: all arcs
    i64 next_fanout;   // of the hop after it
    u32 replace;       // arcs may be drawn again
    u32 with_numbers;  // a hop comes before the rows that are counted
};

// A range of items, the block's of a team.
struct BlockRange {
    i64 begin;
    i64 end;

    __device__ __forceinline__ BlockRange(const Team &team, i64 first, i64 last) {
        const i64 each = (last - first + team.blocks - 1) / team.blocks;
        begin = min(first + each * team.block, last);
        end = min(begin + each, last);
    }
};

// Return the number of arcs that are drawn from a row.
__device__ __forceinline__ i64 drawn_of(i64 degree, i64 fanout, bool replace) {
    if (fanout < 0) return degree;
    return replace ? (degree > 0 ? fanout : 0) : min(degree, fanout);
}

// Return the sum of the amounts of the threads before this one in the block, and add all to `before`.
__device__ __forceinline__ u64 block_sum_before(u64 amount, u64 &before) {
    __shared__ u64 warp_ends[WARP];
    const u64 end = warp_sum_up_to(amount);
    if (lane_id() == WARP - 1) warp_ends[warp_id()] = end;
    __syncthreads();
    u64 sum = before + end - amount;
    for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
        if (warp < warp_id()) sum += warp_ends[warp];
        before += warp_ends[warp];
    }
    __syncthreads();
    return sum;
}

// Return the sum of the blocks before this one.
__device__ __forceinline__ u64 block_begin(const Arguments &given, const Team &team) {
    u64 sum = 0;
    for (u32 block = lane_id(); block < team.block; block += WARP) sum += given.sums[block];
    return lanes_sum(sum);
}

__device__ __forceinline__ u64 thread_below(u64 word, u64 bound) { return word % bound; }

// Draw some of a row's arcs without repetition, ascending, into edges[0 .. count).
__device__ __forceinline__ void thread_draw(i64 *edges, i64 first, i64 degree, i64 count, u64 key) {
    if (count <= FEW) {
        for (i64 i = 0; i < count;
             i++) {  // Floyd: each draw is of one more arc than the one before
            const i64 bound = degree - count + i;
            i64 arc = first + static_cast<i64>(thread_below(thread_mix(key + i), bound + 1));
            for (i64 j = 0; j < i; j++)
                if (edges[j] == arc) {
                    arc = first + bound;
                    break;
                }
            i64 place = i;
            for (; place > 0 && edges[place - 1] > arc; place--) edges[place] = edges[place - 1];
            edges[place] = arc;
        }
        return;
    }
    i64 chosen = 0;
    for (i64 i = 0; chosen < count;
         i++)  // S: each arc with the share of those that are still wanted
        if (static_cast<i64>(thread_below(thread_mix(key + i), degree - i)) < count - chosen)
            edges[chosen++] = first + i;
}

struct Sampler {
    const Arguments &given;
    const Team &team;
    StepBlock &block;

    __device__ __forceinline__ i64 first() const { return static_cast<i64>(block.state[FIRST]); }
    __device__ __forceinline__ i64 nodes() const { return static_cast<i64>(block.state[NODES]); }
    __device__ __forceinline__ u64 row_key(Id vertex) const {
        return thread_mix(thread_mix(given.seed + static_cast<u64>(vertex)) + given.hop);
    }

    // Mark the vertices of the frontier with their numbers, and count the arcs that are to be drawn.
    __device__ __forceinline__ void block_count_rows() const {
        const BlockRange range(team, first(), nodes());
        u64 before = 0, mine = 0;
        for (i64 base = range.begin; base < range.end; base += blockDim.x) {
            const i64 number = base + threadIdx.x;
            u64 count = 0;
            if (number < range.end) {
                const Id vertex = given.found[number];
                given.marks[vertex] = static_cast<u64>(number);
                const i64 degree = given.offsets[vertex + 1] - given.offsets[vertex];
                count = drawn_of(degree, given.next_fanout, given.replace);
            }
            const u64 begin = block_sum_before(count, before);
            if (number < range.end) given.begins[number - first()] = static_cast<i64>(begin);
            mine += count;
        }
        if (threadIdx.x == 0) given.sums[team.block] = before;
        warp_count(block, COUNTED_ARCS, mine);
    }

    // Draw arcs of rows of which neither all are taken nor each is drawn by itself.
    __device__ __forceinline__ void block_draw() const {
        const BlockRange range(team, first(), nodes());
        const i64 before = static_cast<i64>(block_begin(given, team));
        for (i64 number = range.begin + threadIdx.x; number < range.end; number += blockDim.x) {
            const i64 at = given.begins[number - first()] + before;
            given.begins[number - first()] = at;
            const Id vertex = given.found[number];
            const i64 begin = given.offsets[vertex], degree = given.offsets[vertex + 1] - begin;
            const i64 count = drawn_of(degree, given.fanout, given.replace);
            if (!given.replace && count < degree)
                thread_draw(given.edges + at, begin, degree, count, row_key(vertex));
        }
    }

    // Store row, edge and, in `col`, the target of each arc; mark new targets with the least place.
    __device__ __forceinline__ void team_find() const {
        const i64 rows = nodes() - first();
        for (i64 place = team.thread(); place < given.arcs; place += team.threads()) {
            i64 low = 0, high = rows;  // the last row that begins at the place or before has it
            while (low + 1 < high) {
                const i64 middle = (low + high) / 2;
                if (given.begins[middle] <= place)
                    low = middle;
                else
                    high = middle;
            }
            const Id vertex = given.found[first() + low];
            const i64 begin = given.offsets[vertex], degree = given.offsets[vertex + 1] - begin;
            const i64 i = place - given.begins[low];
            i64 arc;
            if (given.replace && given.fanout >= 0)
                arc =
                    begin + static_cast<i64>(thread_below(thread_mix(row_key(vertex) + i), degree));
            else if (drawn_of(degree, given.fanout, given.replace) == degree)
                arc = begin + i;
            else
                arc = given.edges[place];
            given.edges[place] = arc;
            given.row[place] = first() + low;
            const Id target = given.targets[arc];
            given.col[place] = target;
            atomicMin(&given.marks[target], static_cast<u64>(nodes() + place));
        }
    }

    __device__ __forceinline__ bool is_first(i64 place) const {
        return given.marks[given.col[place]] == static_cast<u64>(nodes() + place);
    }

    __device__ __forceinline__ void block_count_new() const {
        const BlockRange range(team, 0, given.arcs);
        u64 mine = 0, all = 0;
        for (i64 place = range.begin + threadIdx.x; place < range.end; place += blockDim.x)
            mine += is_first(place);
        block_sum_before(mine, all);
        if (threadIdx.x == 0) given.sums[team.block] = all;
        warp_count(block, COUNTED_NEW, mine);
    }

    __device__ __forceinline__ void block_number_new() const {
        const BlockRange range(team, 0, given.arcs);
        u64 before = block_begin(given, team);
        for (i64 base = range.begin; base < range.end; base += blockDim.x) {
            const i64 place = base + threadIdx.x;
            const bool is_new = place < range.end && is_first(place);
            const u64 number = block_sum_before(is_new, before);
            if (is_new) given.found[nodes() + number] = static_cast<Id>(given.col[place]);
        }
    }

    __device__ __forceinline__ void team_number_arcs() const {
        u64 mine = 0;
        for (i64 place = team.thread(); place < given.arcs; place += team.threads()) {
            given.col[place] = static_cast<i64>(given.marks[given.col[place]]);
            mine++;
        }
        warp_count(block, NUMBERED, mine);
    }
};

__device__ __forceinline__ void grid_sample(const Arguments &given) {
    run_steps(
        given.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            const Sampler sampler{given, team, block};
            switch (phase) {
                case COUNT_ROWS:
                    sampler.block_count_rows();
                    break;
                case DRAW:
                    sampler.block_draw();
                    break;
                case FIND:
                    sampler.team_find();
                    break;
                case COUNT_NEW:
                    sampler.block_count_new();
                    break;
                case NUMBER_NEW:
                    sampler.block_number_new();
                    break;
                default:
                    sampler.team_number_arcs();
            }
        },
        [&](u32 phase, const Sums &totals, u64 *state) -> u32 {
            if (phase == COUNT_NEW) state[NEW] = totals.counts[COUNTED_NEW];
            if (phase == NUMBER_NEW) {
                state[FIRST] = state[NODES];
                state[NODES] += state[NEW];
            }
            if (phase == COUNT_ROWS) {
                state[NEXT_ARCS] = totals.counts[COUNTED_ARCS];
                return given.with_numbers ? NUMBER_ARCS : STOP;
            }
            if (phase == NUMBER_ARCS) return STOP;
            return phase == NUMBER_NEW ? COUNT_ROWS : phase + 1;
        });
}
