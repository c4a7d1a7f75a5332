// Power iterations by pull, a pass over the rows per superstep. CPU counterpart: cpu.py, which explains the
// method: arrays hold iterates before they are scaled, and a pass compares the last two.
//
// Every device has arrays for all positions. A pass reads some of them and writes others; an owner stores
// its results locally and on the devices that read them (`subscribers`), or on all. Only an owner reads the
// iterate before the last, from the array that its pass overwrites.
//
// Sums over vertices (the change, squares, values) have the same bits every time on the same devices: each
// thread's are added in an order that the launch fixes, then those of a block's threads, and a superstep of
// one block adds those of all tiles and blocks (`partials`). Row sums depend on the order of the row alone,
// or are exact, by tiles.
//
// By tiles, the unit of a pass follows from the squares of what it reads, which the pass before has summed
// up: no value exceeds their root, and no row sum exceeds that times its arcs times the largest weight
// (cuda.py). Values that are not normalized may grow so far that the unit would be too coarse for those with
// which they began: then a run ends at once, with an infinite residual.
//
// Schedule row by row: rows of more than LONG_ROW arcs are listed, the longest first; those of more than BLOCK_ROW are
// summed by a block each, the others by a warp. Warps take all other rows in bundles of 32: a thread sums a
// row of up to LOADS arcs, 8 lanes one of up to 32, all lanes longer ones. So out-rows of directed graphs,
// which are in no order of length, take no longer than in-rows.
#pragma once

#include "supersteps/halos.cuh"
#include "supersteps/tiled_sums.cuh"

// Macros of the generated source. TWO_SIDED: whether an iteration computes hubs from iterates first. WEIGHTED:
// whether weights count.
// TILE_WORDS: words of sums if rows are summed up by tiles (supersteps/tiled_sums.cuh); 0: row by row.

enum PowerPhase : u32 {
    POWER_START,
    POWER_HUBS,  // of two sides: hubs from the last iterate
    POWER_ADD_HUBS,
    POWER_PULL,  // the next iterate, from the last one or from hubs
    POWER_ADD,
    POWER_FINISH
};

// How results are scaled: as query.py says.
enum PowerFinish : u32 { POWER_AS_IS, POWER_UNIT, POWER_SUM };

// Words of control->state; all but the first are bits of doubles. SQUARES and TOTAL are sums over the last
// iterate, HUB_SQUARES and HUB_TOTAL over hubs; RESIDUAL is the sum of absolute changes.
enum PowerState : u32 {
    ITERATIONS,
    RESIDUAL,
    SCALE,
    SCALE_BEFORE,
    SQUARES,
    TOTAL,
    HUB_SQUARES,
    HUB_TOTAL
};

enum PowerCount : u32 { UPDATED };
enum PowerAmount : u32 { CHANGE, SQUARED, ADDED, POWER_AMOUNTS };
static_assert(POWER_AMOUNTS <= AMOUNTS);

constexpr u32 LOADS = 4;  // of a thread in flight
constexpr u32 GROUP = 8;  // lanes that share a row of medium length
constexpr i64 LONG_ROW = 256;
constexpr i64 BLOCK_ROW = 4096;

// Own rows, and the local indexes of long ones, by descending length.
struct Matrix {
    Rows<Id> rows;
    const Weight *weights;  // (arcs); null if they do not count
    const i64 *long_rows;
    i64 long_count;
    i64 block_count;  // of these, rows for a block each
    TiledArcs tiled;  // if TILE_WORDS, in place of these and of targets; with weights as factors
};

struct Arguments {
    Stage stage;
    Matrix in;
    Matrix out;              // if TWO_SIDED
    const double *start;     // (owned) first iterate; null: `uniform_start` everywhere
    const double *constant;  // (owned); null: `uniform_constant` everywhere
    // Bitmaps of the own vertices for each device (supersteps/halos.cuh): whose iterates it reads, whose hubs.
    const u32 *subscribers;
    const u32 *hub_subscribers;
    double *partials;  // (tiles and blocks, POWER_AMOUNTS)
    double *iterates[2][MAX_DEVICES];
    double *hubs[MAX_DEVICES];
    double uniform_start;
    double uniform_constant;
    double factor;
    double shift;
    double values_factor;
    double hubs_factor;
    double tolerance;      // of the sum of absolute changes
    double units;          // in 1, for sums by tiles over values that are at most 1
    double most_squares;   // of values, in sum, for which these suffice
    double start_squares;  // of the first iterate, in sum
    u64 most_iterations;
    u32 normalizes;
    u32 finish;
};

// Store a value of an own vertex wherever it is read.
__device__ __forceinline__ void thread_store(const Arguments &arguments, double *const *array,
                                             const u32 *subscribers, i64 row, double value) {
    const Stage &stage = arguments.stage;
    const i64 position = stage.first() + row;
    array[stage.device][position] = value;
    for (u32 peer = 0; peer < stage.devices; peer++)
        if (peer != stage.device && is_read_at(stage, subscribers, peer, row))
            array[peer][position] = value;
}

// Values of an own vertex: the last two iterates, before they are scaled.
struct Past {
    double last = 0;
    double before = 0;
};

// A thread's state in a pass over the own vertices.
template <
    bool
        IS_FIRST>  // the pass compares iterates; it is the only one of an iteration, or that of hubs
struct PowerPass {
    static constexpr bool MAKES_HUBS = TWO_SIDED && IS_FIRST;

    const Arguments &arguments;
    const Matrix &matrix;
    const u32 parity;      // of the array that holds the last iterate
    const i64 first;       // own position
    const double *values;  // of all positions
    const double squares;  // of these, in sum
    const double scale;
    const double scale_before;
    double sums[POWER_AMOUNTS] = {};

    __device__ __forceinline__ PowerPass(const Arguments &arguments, const u64 *state)
        : arguments(arguments),
          matrix(MAKES_HUBS ? arguments.out : arguments.in),
          parity(state[ITERATIONS] & 1),
          first(arguments.stage.first()),
          values(TWO_SIDED && !IS_FIRST ? arguments.hubs[arguments.stage.device]
                                        : arguments.iterates[parity][arguments.stage.device]),
          squares(amount_of(state[TWO_SIDED && !IS_FIRST ? HUB_SQUARES : SQUARES])),
          scale(IS_FIRST ? amount_of(state[SCALE]) : 1.0),
          scale_before(IS_FIRST ? amount_of(state[SCALE_BEFORE]) : 0.0) {}

    __device__ __forceinline__ Past past(i64 row) const {
        Past found;
        if (!IS_FIRST) return found;
        const u32 device = arguments.stage.device;
        found.last = arguments.iterates[parity][device][first + row];
        found.before = arguments.iterates[parity ^ 1][device][first + row];
        return found;
    }

    // Sum every `lanes`-th arc of a row.
    __device__ __forceinline__ double thread_sum(i64 begin, i64 length, i64 lane, i64 lanes) const {
        const Id *targets = matrix.rows.targets + begin;
        double sum = 0;
        for (i64 at = lane; at < length; at += LOADS * lanes) {
            Id sources[LOADS];
            double products[LOADS];
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                sources[load] =
                    at + load * lanes < length ? load_once(&targets[at + load * lanes]) : 0;
#pragma unroll
            for (u32 load = 0; load < LOADS; load++)
                products[load] = at + load * lanes < length ? values[sources[load]] : 0.0;
            if (WEIGHTED) {
#pragma unroll
                for (u32 load = 0; load < LOADS; load++)
                    if (at + load * lanes < length)
                        products[load] *=
                            static_cast<double>(matrix.weights[begin + at + load * lanes]);
            }
            sum += (products[0] + products[1]) + (products[2] + products[3]);
        }
        return sum;
    }

    // Update a vertex from the sum of its row.
    __device__ __forceinline__ void thread_update(i64 row, Past past, double row_sum) {
        double value = scale * (arguments.factor * row_sum + arguments.shift * past.last);
        if (!TWO_SIDED)
            value += arguments.constant ? arguments.constant[row] : arguments.uniform_constant;
        if (IS_FIRST) {
            const double change = scale * past.last - scale_before * past.before;
            sums[CHANGE] += change < 0 ? -change : change;
        }
        sums[SQUARED] += value * value;
        sums[ADDED] += value;
        if (MAKES_HUBS)
            thread_store(arguments, arguments.hubs, arguments.hub_subscribers, row, value);
        else
            thread_store(arguments, arguments.iterates[parity ^ 1], arguments.subscribers, row,
                         value);
    }
};
static_assert(LOADS == 4);

// Listed rows of a block each.
template <class Pass>
__device__ __forceinline__ void team_pull_by_block(Pass &pass, const Team &team) {
    __shared__ double parts[2 * WARP];  // of warps; for two rows alternately: one barrier per row
    const i64 *offsets = pass.matrix.rows.offsets;
    const u32 warps = blockDim.x / WARP;
    u32 turn = 0;
    for (i64 listed = team.block; listed < pass.matrix.block_count; listed += team.blocks) {
        const i64 row = pass.matrix.long_rows[listed], begin = offsets[row];
        double sum = lanes_sum(
            pass.thread_sum(begin, offsets[row + 1] - begin, threadIdx.x, blockDim.x), WARP);
        if (lane_id() == 0) parts[turn + warp_id()] = sum;
        __syncthreads();
        if (warp_id() == 0) {
            sum = lanes_sum(lane_id() < warps ? parts[turn + lane_id()] : 0.0, WARP);
            if (lane_id() == 0) pass.thread_update(row, pass.past(row), sum);
        }
        turn ^= WARP;
    }
}

// Listed rows of a warp each.
template <class Pass>
__device__ __forceinline__ void team_pull_by_warp(Pass &pass, const Team &team) {
    const i64 *offsets = pass.matrix.rows.offsets;
    const i64 begin = pass.matrix.block_count + static_cast<i64>(team.warp());
    for (i64 listed = begin; listed < pass.matrix.long_count; listed += team.warps()) {
        const i64 row = pass.matrix.long_rows[listed], from = offsets[row];
        const double sum =
            lanes_sum(pass.thread_sum(from, offsets[row + 1] - from, lane_id(), WARP), WARP);
        if (lane_id() == 0) pass.thread_update(row, pass.past(row), sum);
    }
}

// All other rows: 32 for a warp, of which each lane updates one.
template <class Pass>
__device__ __forceinline__ void team_pull_bundles(Pass &pass, const Team &team) {
    constexpr u32 GROUPS = WARP / GROUP;
    constexpr u32 GROUP_ROWS = (1u << GROUPS) - 1;
    const i64 *offsets = pass.matrix.rows.offsets;
    const i64 owned = pass.arguments.stage.owned;
    const u32 lane = lane_id();
    const i64 apart = static_cast<i64>(WARP * team.warps());
    // Warps that are last in lists are first here.
    const u64 place = team.warps() - 1 - team.warp();
    for (i64 bundle = static_cast<i64>(WARP * place); bundle < owned; bundle += apart) {
        const i64 row = bundle + lane;
        i64 begin = 0, length = 0;
        Past past;
        if (row < owned) {
            begin = offsets[row];
            length = offsets[row + 1] - begin;
            past = pass.past(row);
        }
        const bool mine = row < owned && length <= LONG_ROW;
        double sum = mine && length <= LOADS ? pass.thread_sum(begin, length, 0, 1) : 0.0;
        const u32 medium = __ballot_sync(FULL_WARP, length > LOADS && length <= WARP);
        for (u32 turn = 0; turn < GROUP; turn++) {
            if (!(medium >> (turn * GROUPS) & GROUP_ROWS)) continue;
            const u32 which = turn * GROUPS + lane / GROUP;
            const i64 from = __shfl_sync(FULL_WARP, begin, which);
            const i64 its_length = __shfl_sync(FULL_WARP, length, which);
            const i64 count = medium >> which & 1 ? its_length : 0;
            const double part = lanes_sum(pass.thread_sum(from, count, lane % GROUP, GROUP), GROUP);
            const double found = __shfl_sync(FULL_WARP, part, lane % GROUPS * GROUP);
            if (lane / GROUPS == turn && (medium >> lane & 1)) sum = found;
        }
        u32 wide = __ballot_sync(FULL_WARP, length > WARP && length <= LONG_ROW);
        while (wide) {
            const u32 which = __ffs(static_cast<int>(wide)) - 1;
            wide &= wide - 1;
            const i64 from = __shfl_sync(FULL_WARP, begin, which);
            const i64 count = __shfl_sync(FULL_WARP, length, which);
            const double found = lanes_sum(pass.thread_sum(from, count, lane, WARP), WARP);
            if (lane == which) sum = found;
        }
        if (mine) pass.thread_update(row, past, sum);
    }
}

// Add the sums of the block's threads; the first warp gets the result. All threads call this, with a barrier
// between two calls.
__device__ __forceinline__ void block_add(double (&sums)[POWER_AMOUNTS]) {
    __shared__ double parts[POWER_AMOUNTS][WARP];
    for (u32 which = 0; which < POWER_AMOUNTS; which++) {
        const double sum = lanes_sum(sums[which], WARP);
        if (lane_id() == 0) parts[which][warp_id()] = sum;
    }
    __syncthreads();
    if (warp_id() != 0) return;
    const u32 warps = blockDim.x / WARP;
    for (u32 which = 0; which < POWER_AMOUNTS; which++)
        sums[which] = lanes_sum(lane_id() < warps ? parts[which][lane_id()] : 0.0, WARP);
}

// Store the sums of a pass over the block's threads, and begin with new ones.
template <class Pass>
__device__ __forceinline__ void block_store_partials(Pass &pass, u64 place) {
    block_add(pass.sums);
    for (u32 which = 0; which < POWER_AMOUNTS; which++) {
        if (threadIdx.x == 0)
            pass.arguments.partials[place * POWER_AMOUNTS + which] = pass.sums[which];
        pass.sums[which] = 0;
    }
}

// Units in 1 for sums by tiles over values whose squares have a sum.
__device__ __forceinline__ double units_for(const Arguments &arguments, double squares) {
    const int exponent =
        squares > 0 ? (ilogb(squares) >> 1) + 1 : 0;  // values are below 2^exponent
    return ldexp(arguments.units, -exponent);
}

// All rows, by tiles. Any block may take a tile, so sums over vertices are stored for each.
template <class Pass>
__device__ __forceinline__ void team_pull_by_tiles(Pass &pass, const Team &team) {
    const double units = units_for(pass.arguments, pass.squares);
    const auto update = [&](i64 row, double sum) {
        pass.thread_update(row, pass.past(row), sum / units);
    };
    const auto end = [&](u64 tile) { block_store_partials(pass, tile); };
    team_sum_tiles<TILE_WORDS, WEIGHTED>(pass.matrix.tiled, pass.values, units,
                                         &team.control->cursors[0], update, end);
    // Vertices without arcs.
    const i64 *classes = pass.matrix.rows.classes;
    const i64 isolated = classes[CLASS_NONE] + team.thread();
    for (i64 row = isolated; row < classes[CLASS_NONE + 1]; row += team.threads())
        pass.thread_update(row, pass.past(row), 0.0);
}

template <bool IS_FIRST>
__device__ __forceinline__ void team_pull(const Arguments &arguments, const Team &team,
                                          StepBlock &block) {
    PowerPass<IS_FIRST> pass(arguments, block.state);
    if constexpr (TILE_WORDS > 0) {
        team_pull_by_tiles(pass, team);
    } else {
        team_pull_by_block(pass, team);
        team_pull_by_warp(pass, team);
        team_pull_bundles(pass, team);
    }
    block_store_partials(pass, pass.matrix.tiled.count + blockIdx.x);
    const u64 updated = TWO_SIDED && IS_FIRST ? 0 : static_cast<u64>(arguments.stage.owned);
    warp_count(block, UPDATED, team.thread() == 0 ? updated : 0);
}

// Add the sums of all tiles of a matrix and all blocks of the device, by a block that is alone.
__device__ __forceinline__ void block_add_partials(const Arguments &arguments, const Matrix &matrix,
                                                   StepBlock &block) {
    double sums[POWER_AMOUNTS] = {};
    for (u64 place = threadIdx.x; place < matrix.tiled.count + gridDim.x; place += blockDim.x)
        for (u32 which = 0; which < POWER_AMOUNTS; which++)
            sums[which] += arguments.partials[place * POWER_AMOUNTS + which];
    block_add(sums);
    if (warp_id() != 0) return;
    for (u32 which = 0; which < POWER_AMOUNTS; which++)
        warp_amount(block, which, lane_id() == 0 ? sums[which] : 0.0);
}

__device__ __forceinline__ void team_start(const Arguments &arguments, const Team &team) {
    const i64 owned = arguments.stage.owned;
    for (i64 row = team.thread(); row < owned; row += team.threads()) {
        const double value = arguments.start ? arguments.start[row] : arguments.uniform_start;
        thread_store(arguments, arguments.iterates[0], arguments.subscribers, row, value);
        // The array before is compared with, though not counted, in the first pass.
        arguments.iterates[1][arguments.stage.device][arguments.stage.first() + row] = 0;
    }
}

// Write the result into the array that does not hold the last iterate.
__device__ __forceinline__ void team_finish(const Arguments &arguments, const Team &team,
                                            const u64 *state) {
    const Stage &stage = arguments.stage;
    const u32 parity = state[ITERATIONS] & 1;
    const double squares = amount_of(state[SQUARES]);
    const double total = amount_of(state[TOTAL]), hub_total = amount_of(state[HUB_TOTAL]);
    double scale = amount_of(state[SCALE]) * arguments.values_factor;
    double hub_scale = arguments.hubs_factor;
    if (arguments.finish == POWER_UNIT && squares > 0) scale = 1.0 / sqrt(squares);
    if (arguments.finish == POWER_SUM && total != 0) scale = 1.0 / total;
    if (arguments.finish == POWER_SUM && hub_total != 0) hub_scale = 1.0 / hub_total;
    const double *last = arguments.iterates[parity][stage.device] + stage.first();
    double *result = arguments.iterates[parity ^ 1][stage.device] + stage.first();
    double *hubs = TWO_SIDED ? arguments.hubs[stage.device] + stage.first() : nullptr;
    for (i64 row = team.thread(); row < stage.owned; row += team.threads()) {
        result[row] = scale * last[row];
        if (TWO_SIDED) hubs[row] *= hub_scale;
    }
}

__device__ __forceinline__ u32 thread_decide_power(const Arguments &arguments, u32 phase,
                                                   const Sums &totals, u64 *state) {
    constexpr u32 FIRST_PASS = TWO_SIDED ? POWER_HUBS : POWER_PULL;
    phase &= ~ALONE;
    if (phase == POWER_START) {
        state[SCALE] = bits_of_amount(1.0);
        state[SQUARES] = bits_of_amount(arguments.start_squares);
        return FIRST_PASS;
    }
    if (phase == POWER_HUBS || phase == POWER_PULL) return ALONE | (phase + 1);
    if (phase == POWER_FINISH) return STOP;
    if (phase == POWER_ADD_HUBS || !TWO_SIDED) {
        const double change = totals.amounts[CHANGE];
        if (state[ITERATIONS] > 0) {
            state[RESIDUAL] = bits_of_amount(change);
            const bool goes_on =
                change >= arguments.tolerance && change <= 1.7976931348623157e308;  // no NaN
            state[HUB_TOTAL] = bits_of_amount(totals.amounts[ADDED]);
            if (!goes_on || state[ITERATIONS] == arguments.most_iterations) return POWER_FINISH;
        }
    }
    const double squares = totals.amounts[SQUARED];
    if (TILE_WORDS > 0 && !(squares <= arguments.most_squares)) {
        state[RESIDUAL] = 0x7ff0000000000000ull;  // infinite
        return POWER_FINISH;
    }
    if (phase == POWER_ADD_HUBS) {
        state[HUB_SQUARES] = bits_of_amount(squares);
        return POWER_PULL;
    }
    state[ITERATIONS] += 1;
    state[SCALE_BEFORE] = state[SCALE];
    if (arguments.normalizes && squares > 0) state[SCALE] = bits_of_amount(1.0 / sqrt(squares));
    state[SQUARES] = bits_of_amount(squares);
    state[TOTAL] = bits_of_amount(totals.amounts[ADDED]);
    return FIRST_PASS;
}

__device__ __forceinline__ void grid_power(const Arguments &arguments) {
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {
            switch (phase & ~ALONE) {
                case POWER_START:
                    team_start(arguments, team);
                    break;
                case POWER_HUBS:
                    if constexpr (TWO_SIDED) team_pull<true>(arguments, team, block);
                    break;
                case POWER_PULL:
                    team_pull<!TWO_SIDED>(arguments, team, block);
                    break;
                case POWER_FINISH:
                    team_finish(arguments, team, block.state);
                    break;
                case POWER_ADD_HUBS:
                    if constexpr (TWO_SIDED) block_add_partials(arguments, arguments.out, block);
                    break;
                default:
                    block_add_partials(arguments, arguments.in, block);
            }
        },
        [&](u32 phase, const Sums &totals, u64 *state) {
            return thread_decide_power(arguments, phase, totals, state);
        });
}
