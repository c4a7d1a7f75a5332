// Truss numbers by removing edges level by level, on one device. CPU counterpart: cpu.py, which explains the
// method and has the invariants.
//
// Rows are those of positions (truss/rows.py), sorted. A superstep counts triangles, scans the edges that are
// left, destroys the triangles of the edges that the superstep before has listed, or drops the arcs of removed
// edges from rows. Triangles of an edge are found alike in all of them: the neighbours of one end, the *front*,
// are looked up in the row of the other. The fronts of some edges are visited together by a warp (warp_rows.cuh). If
// few edges are listed, each front is divided over several warps.
//
// The first rows are those of the vertices of highest degree, the *hubs*. A pair of hubs is looked up in a table
// that has, for each hub and each 32 vertices before it, which of these are neighbours and the number of the first
// edge to them. Other pairs are looked up in rows by binary search.
//
// Numbers of edges by arc, ends of edges and the table are the same for all queries: the first one makes them.
//
// Triangles are counted at their largest corner u and its neighbour v: fronts are the lower neighbours of one
// of them, and rows those of the other, so that each is found once.
#pragma once

#include "runtime/cuda/include/warp_rows.cuh"
#include "supersteps/step.cuh"

constexpr u32 NO_ORDER = 0xffffffffu;  // of an edge that is left
constexpr u32 NO_EDGE = 0xffffffffu;
constexpr u32 NO_SUPPORT = 0xffffffffu;  // above all
constexpr u32 MOST_SLICES = 64;          // of a front
constexpr u32 MOST_FRONTS = 4;           // that a warp visits together: more are uneven
constexpr u32 BATCH_EDGES = WARP;        // whose triangles a warp counts at once

enum TrussPhase : u32 {
    TRUSS_NUMBER,  // what all queries share
    TRUSS_BEGIN,
    TRUSS_COUNT,
    TRUSS_SCAN,
    TRUSS_DESTROY,
    TRUSS_PACK
};

// Words of control->state.
enum TrussState : u32 {
    LEVEL,
    LIST_BEGIN,  // the listed edges whose triangles TRUSS_DESTROY destroys
    LIST_END,
    IN_ROWS,  // edges that rows have
    NEXT      // first batch of TRUSS_COUNT
};

// Counts. The first is a run's progress.
enum TrussCount : u32 { REMOVED, VISITED };

struct TrussCounters {
    u32 listed;  // edges that are listed, in all supersteps
    u32 least;   // support that the scan left
};

// For a hub and 32 vertices: bits of its lower neighbours among them, and the number of the first edge to these.
struct alignas(8) HubWord {
    u32 bits;
    u32 number;
};

struct Arguments {
    Stage stage;
    const i64 *offsets;      // (rows + 1)
    const i64 *splits;       // (rows) end of the lower neighbours
    const Id *neighbours;    // (arcs) positions
    const i64 *first_edges;  // (rows + 1) number of the first arc to a lower neighbour
    u32 *arc_edges;          // (arcs) edges of `neighbours`
    HubWord *hub_words;      // by hub: a word for each 32 vertices up to it
    i64 *ends;               // (rows) of what rows have left
    Id *targets;             // (arcs) what rows have left
    u32 *numbers;            // (arcs) their edges
    u32 *upper;              // (edges) the larger end
    u32 *lower;              // (edges) the smaller end
    u32 *support;            // (edges)
    u32 *order;              // (edges)
    u32 *listed_bits;        // a bitmap of edges
    i32 *truss;              // (edges)
    u32 *listed;             // (edges)
    u32 *left;               // by block: edges that are left
    u32 *left_count;         // by block
    u64 left_room;           // of each block
    TrussCounters *counters;
    i64 rows;
    i64 long_rows;  // these are packed by a block each
    u64 edges;
    u64 edges_a_step;  // whose triangles a superstep counts
    u64 hubs;          // a multiple of 32
};

// A part of the row of an edge's one end, and the row of the other. Of a counted triangle, both are lower
// neighbours.
struct Front {
    i64 begin = 0;
    u32 length = 0;
    u32 edge = 0;
    u32 vertex = 0;  // whose row it is
    i64 row = 0;
    i64 row_end = 0;
};

struct RowEntry {
    u32 target;
    u32 number;
};

// A thread's view of a superstep, and its counts.
struct Truss {
    const Arguments &given;
    u32 level;
    u64 visited = 0;

    __device__ __forceinline__ RowEntry fetch(i64 arc) const {
        return RowEntry{static_cast<u32>(given.targets[arc]), given.numbers[arc]};
    }

    // List an edge, which the calling thread alone removes.
    __device__ __forceinline__ void thread_remove(u32 edge, u32 place) const {
        given.listed[place] = edge;
        store_system(given.order + edge, place);
        set_bits(given.listed_bits + edge / 32, 1u << (edge & 31));
        given.truss[edge] = static_cast<i32>(level + 2);
    }

    // Lower the support of an edge, and remove the edge if this lowers it to the level. Removed edges are lowered,
    // too, from the level or below: to look first would take longer.
    __device__ __forceinline__ void thread_lower(u32 edge) const {
        if (atomicSub(given.support + edge, 1u) == level + 1)
            thread_remove(edge, atomicAdd(&given.counters->listed, 1u));
    }

    // Return the place of a target in a part of a sorted row, or its end. Three places are read at once: half as
    // many loads wait for each other as in a binary search.
    __device__ __forceinline__ i64 thread_find(i64 begin, i64 end, u32 target) const {
        const auto is_below = [&](i64 at) { return static_cast<u32>(given.targets[at]) < target; };
        i64 low = begin;
        u32 length = static_cast<u32>(end - begin);
        while (length > 3) {
            const u32 quarter = length / 4;
            const u32 below =
                is_below(low + quarter) + is_below(low + 2 * quarter) + is_below(low + 3 * quarter);
            const u32 passed = below ? below * quarter + 1 : 0;
            length = below == 3 ? length - passed : (below + 1) * quarter - passed;
            low += passed;
        }
        u32 below = 0;
#pragma unroll
        for (u32 i = 0; i < 3; i++)
            if (i < length) below += is_below(low + i);
        low += below;
        return low < end && static_cast<u32>(given.targets[low]) == target ? low : end;
    }

    // Return the place of a hub's word for a lower vertex: rows of words are as long as 32 hubs need.
    __device__ __forceinline__ u64 hub_place(u32 hub, u32 lower) const {
        const u64 group = hub / 32;
        return (16 * group + hub % 32) * (group + 1) + lower / 32;
    }

    // Return the edge between a vertex and the one that has the front's row, or NO_EDGE.
    __device__ __forceinline__ u32 thread_edge(const Front &front, u32 target) const {
        const u32 upper = max(front.vertex, target), lower = min(front.vertex, target);
        if (upper < given.hubs) {
            const HubWord word = given.hub_words[hub_place(upper, lower)];
            const u32 bit = 1u << (lower & 31);
            return word.bits & bit ? word.number + static_cast<u32>(__popc(word.bits & (bit - 1)))
                                   : NO_EDGE;
        }
        const i64 at = thread_find(front.row, front.row_end, target);
        return at == front.row_end ? NO_EDGE : given.numbers[at];
    }

    // Return true if an edge was listed; for one that is listed in this superstep it may return false.
    __device__ __forceinline__ bool is_listed(u32 edge) const {
        return load_relaxed(given.listed_bits + edge / 32) >> (edge & 31) & 1;
    }

    // Find the triangles of the lanes' fronts; `look_up` of one entry returns 1 for a triangle that counts.
    template <class LookUp>
    __device__ __forceinline__ u32 warp_visit(const Front &front, u32 *sums, LookUp look_up) {
        visited += front.length;
        return warp_sum_fronts(
            front.begin, front.length, sums,
            [&](u32 whose) {
                Front other;
                other.edge = __shfl_sync(FULL_WARP, front.edge, whose);
                other.vertex = __shfl_sync(FULL_WARP, front.vertex, whose);
                other.row = __shfl_sync(FULL_WARP, front.row, whose);
                other.row_end = __shfl_sync(FULL_WARP, front.row_end, whose);
                return other;
            },
            [&](i64 arc) { return fetch(arc); }, look_up);
    }

    // Return true if an edge is listed with a smaller order. For an edge that is left, as most are, only a bit is read.
    __device__ __forceinline__ bool thread_precedes(u32 edge, u32 order) const {
        return is_listed(edge) && load_relaxed(given.order + edge) < order;
    }

    // Destroy the triangle of a removed edge and one arc of its front, if there is one left.
    __device__ __forceinline__ u32 thread_destroy(RowEntry entry, const Front &front) const {
        const u32 own = given.order[front.edge];
        if (load_relaxed(given.order + entry.number) <= own)
            return 0;  // removed, or the edge itself
        const u32 other = thread_edge(front, entry.target);
        if (other == NO_EDGE || thread_precedes(other, own)) return 0;
        thread_lower(entry.number);
        thread_lower(other);
        return 0;
    }

    // Count the triangle of an edge and one common lower neighbour of its ends.
    __device__ __forceinline__ u32 thread_count(RowEntry entry, const Front &front) const {
        const u32 other = thread_edge(front, entry.target);
        if (other == NO_EDGE) return 0;
        atomicAdd(given.support + entry.number, 1u);
        atomicAdd(given.support + other, 1u);
        return 1;
    }

    // Return the front of an edge for counting.
    __device__ __forceinline__ Front thread_lower_front(u32 edge) const {
        const u32 v = given.lower[edge], u = given.upper[edge];
        const i64 begin[2] = {given.offsets[v], given.offsets[u]};
        // Common neighbours are smaller than v: in the row of u they come before it.
        const i64 end[2] = {given.splits[v],
                            begin[1] + static_cast<i64>(edge - given.first_edges[u])};
        const u32 few = end[0] - begin[0] <= end[1] - begin[1] ? 0 : 1, many = 1 - few;
        return Front{begin[few],  static_cast<u32>(end[few] - begin[few]),
                     edge,        many ? u : v,
                     begin[many], end[many]};
    }

    // Return a slice of the front of a removed edge.
    __device__ __forceinline__ Front thread_front(u32 edge, u32 slice, u32 slices) const {
        const u32 v = given.lower[edge], u = given.upper[edge];
        const i64 begin[2] = {given.offsets[v], given.offsets[u]};
        const i64 end[2] = {given.ends[v], given.ends[u]};
        const u32 few = end[0] - begin[0] <= end[1] - begin[1] ? 0 : 1, many = 1 - few;
        const i64 length = end[few] - begin[few];
        const i64 from = length * slice / slices, to = length * (slice + 1) / slices;
        return Front{
            begin[few] + from, static_cast<u32>(to - from), edge, many ? u : v, begin[many],
            end[many]};
    }
};

// Number the edges of arcs, and fill the hubs' table. A warp takes a row.
__device__ __forceinline__ void team_number(const Truss &truss, const Team &team) {
    const Arguments &given = truss.given;
    for (i64 row = static_cast<i64>(team.warp()); row < given.rows;
         row += static_cast<i64>(team.warps())) {
        const i64 begin = given.offsets[row], split = given.splits[row],
                  end = given.offsets[row + 1];
        const i64 first = given.first_edges[row];
        for (i64 arc = begin + lane_id(); arc < end; arc += WARP) {
            const i64 target = static_cast<i64>(given.neighbours[arc]);
            i64 number;
            if (arc < split) {
                number = first + arc - begin;
                given.upper[number] = static_cast<u32>(row);
                given.lower[number] = static_cast<u32>(target);
            } else {  // that of the arc back
                const i64 back = given.offsets[target];
                number = given.first_edges[target] - back +
                         thread_lower_bound(given.neighbours, back, given.splits[target], row);
            }
            given.arc_edges[arc] = static_cast<u32>(number);
        }
        if (row >= static_cast<i64>(given.hubs)) continue;
        for (i64 group = lane_id(); group <= row / 32; group += WARP) {
            i64 at = thread_lower_bound(given.neighbours, begin, split, 32 * group);
            HubWord word{0, static_cast<u32>(first + at - begin)};
            for (; at < split && static_cast<i64>(given.neighbours[at]) / 32 == group; at++)
                word.bits |= 1u << (given.neighbours[at] & 31);
            given.hub_words[truss.hub_place(static_cast<u32>(row), static_cast<u32>(32 * group))] =
                word;
        }
    }
}

// Begin with whole rows and with all edges, in groups of a warp that are dealt to blocks in turn.
__device__ __forceinline__ void team_begin(const Truss &truss, const Team &team) {
    const Arguments &given = truss.given;
    const u64 arcs = 2 * given.edges;
    for (u64 arc = team.thread(); arc < arcs; arc += team.threads()) {
        given.targets[arc] = given.neighbours[arc];
        given.numbers[arc] = given.arc_edges[arc];
    }
    for (u64 row = team.thread(); row < static_cast<u64>(given.rows); row += team.threads())
        given.ends[row] = given.offsets[row + 1];
    for (u64 edge = team.thread(); edge < given.edges; edge += team.threads()) {
        given.support[edge] = 0;
        given.order[edge] = NO_ORDER;
        if (edge % 32 == 0) given.listed_bits[edge / 32] = 0;
    }
    u32 *left = given.left + team.block * given.left_room;
    u32 count = 0;
    for (u64 group = team.block + static_cast<u64>(warp_id()) * team.blocks;
         group * WARP < given.edges; group += team.warps()) {
        const u64 edge = group * WARP + lane_id();
        if (edge < given.edges) {
            left[group / team.blocks * WARP + lane_id()] = static_cast<u32>(edge);
            count += 1;
        }
    }
    if (threadIdx.x == 0) given.left_count[team.block] = 0;
    __syncthreads();
    count = __reduce_add_sync(FULL_WARP, count);
    if (lane_id() == 0 && count) atomicAdd(given.left_count + team.block, count);
    if (team.thread() == 0) *given.counters = TrussCounters{0, NO_SUPPORT};
}

// Count the triangles of the edges of a superstep, in batches that warps claim.
__device__ __forceinline__ void team_count(Truss &truss, StepBlock &block, u32 *sums) {
    const Arguments &given = truss.given;
    const u64 last = min(block.state[NEXT] + given.edges_a_step, given.edges);
    for (;;) {
        u64 base = 0;
        if (lane_id() == 0)
            base =
                block.state[NEXT] + BATCH_EDGES * atomicAdd(&given.stage.control->cursors[0], 1ull);
        base = __shfl_sync(FULL_WARP, base, 0);
        if (base >= last) break;
        const u64 edge = base + lane_id();
        Front front;
        if (edge < last) front = truss.thread_lower_front(static_cast<u32>(edge));
        const u32 found = truss.warp_visit(
            front, sums,
            [&](RowEntry entry, const Front &of) -> u32 { return truss.thread_count(entry, of); });
        if (found) atomicAdd(given.support + edge, found);
    }
}

// Remove the block's edges whose support is at most the level, and list the others again.
__device__ __forceinline__ void block_scan(const Truss &truss, const Team &team) {
    const Arguments &given = truss.given;
    __shared__ u32 kept, least_kept;
    if (threadIdx.x == 0) {
        kept = 0;
        least_kept = NO_SUPPORT;
    }
    u32 *left = given.left + team.block * given.left_room;
    const u32 count = given.left_count[team.block];
    u32 least = NO_SUPPORT;
    for (u32 base = 0; base < count; base += blockDim.x) {
        const u32 at = base + threadIdx.x;
        const u32 edge = at < count ? left[at] : 0;
        const bool is_left = at < count && !truss.is_listed(edge);
        const u32 support = is_left ? given.support[edge] : 0;
        const bool stays = is_left && support > truss.level;
        if (stays) least = min(least, support);
        __syncthreads();  // items before `base` may be overwritten, those from there on have been read
        warp_append(&kept, left, stays, edge);
        const bool removes = is_left && !stays;
        const u32 place = warp_place(&given.counters->listed, __ballot_sync(FULL_WARP, removes));
        if (removes) truss.thread_remove(edge, place);
    }
    least = __reduce_min_sync(FULL_WARP, least);
    __syncthreads();
    if (lane_id() == 0 && least != NO_SUPPORT) atomicMin(&least_kept, least);
    __syncthreads();
    if (threadIdx.x == 0) {
        given.left_count[team.block] = kept;
        if (least_kept != NO_SUPPORT) atomicMin(&given.counters->least, least_kept);
    }
}

// Destroy the triangles of the listed edges.
__device__ __forceinline__ void team_destroy(Truss &truss, const Team &team, StepBlock &block,
                                             u32 *sums) {
    const u64 first = block.state[LIST_BEGIN], count = block.state[LIST_END] - first;
    const u64 shared = team.warps() / count;
    const u32 slices = static_cast<u32>(min(max(shared, u64{1}), u64{MOST_SLICES}));
    const u64 items = count * slices;
    const u64 each = min((items + team.warps() - 1) / team.warps(), u64{MOST_FRONTS});
    for (u64 base = team.warp() * each; base < items; base += team.warps() * each) {
        const u64 item = base + lane_id();
        Front front;
        if (lane_id() < each && item < items)
            front = truss.thread_front(truss.given.listed[first + item / slices],
                                       static_cast<u32>(item % slices), slices);
        truss.warp_visit(front, sums, [&](RowEntry entry, const Front &of) -> u32 {
            return truss.thread_destroy(entry, of);
        });
    }
}

// Drop the arcs of removed edges from a row, by the threads of a block, or of a warp.
template <bool IS_BLOCK>
__device__ __forceinline__ void group_pack(const Truss &truss, i64 row) {
    const Arguments &given = truss.given;
    __shared__ u32 stays_of[WARP];
    const u32 thread = IS_BLOCK ? threadIdx.x : lane_id(), threads = IS_BLOCK ? blockDim.x : WARP;
    const i64 begin = given.offsets[row], end = given.ends[row];
    i64 to = begin;
    for (i64 base = begin; base < end; base += threads) {
        const i64 arc = base + thread;
        const Id target = arc < end ? given.targets[arc] : Id(0);
        const u32 number = arc < end ? given.numbers[arc] : 0;
        const bool stays = arc < end && !truss.is_listed(number);
        const u32 votes = __ballot_sync(FULL_WARP, stays);
        u32 before = static_cast<u32>(__popc(votes & ((1u << lane_id()) - 1)));
        u32 all = static_cast<u32>(__popc(votes));
        if (IS_BLOCK) {
            if (lane_id() == 0) stays_of[warp_id()] = all;
            __syncthreads();  // all threads have read their arcs, which others may overwrite
            all = 0;
            for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
                if (warp < warp_id()) before += stays_of[warp];
                all += stays_of[warp];
            }
        }
        if (stays) {
            given.targets[to + before] = target;
            given.numbers[to + before] = number;
        }
        to += all;
        if (IS_BLOCK)
            __syncthreads();
        else
            __syncwarp();
    }
    if (thread == 0) given.ends[row] = to;
}

__device__ __forceinline__ void team_pack(const Truss &truss, const Team &team) {
    const Arguments &given = truss.given;
    for (i64 row = team.block; row < given.long_rows; row += team.blocks)
        group_pack<true>(truss, row);
    for (i64 row = given.long_rows + static_cast<i64>(team.warp()); row < given.rows;
         row += static_cast<i64>(team.warps()))
        group_pack<false>(truss, row);
}

__device__ __forceinline__ u32 thread_decide_truss(const Arguments &given, u32 phase, u64 *state) {
    TrussCounters *counters = given.counters;
    if (phase == TRUSS_NUMBER) return TRUSS_BEGIN;
    if (phase == TRUSS_BEGIN) {
        state[IN_ROWS] = given.edges;
        return TRUSS_COUNT;
    }
    if (phase == TRUSS_COUNT) {
        state[NEXT] += given.edges_a_step;
        return state[NEXT] < given.edges ? TRUSS_COUNT : TRUSS_SCAN;
    }
    if (phase == TRUSS_PACK) return TRUSS_SCAN;
    state[LIST_BEGIN] = state[LIST_END];
    state[LIST_END] = load_relaxed(&counters->listed);
    const u64 left = given.edges - state[LIST_END];
    if (left == 0) return STOP;
    // Edges that are removed at level 0 have no triangles.
    if (state[LIST_BEGIN] != state[LIST_END] && state[LEVEL] > 0) return TRUSS_DESTROY;
    // A scan has read all supports as they are.
    state[LEVEL] = phase == TRUSS_SCAN ? load_relaxed(&counters->least) : state[LEVEL] + 1;
    counters->least = NO_SUPPORT;
    if (4 * left >= 3 * state[IN_ROWS]) return TRUSS_SCAN;
    state[IN_ROWS] = left;
    return TRUSS_PACK;
}

__device__ __forceinline__ void grid_truss(const Arguments &given) {
    __shared__ u32 all_sums[1024];
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Truss truss{given, static_cast<u32>(block.state[LEVEL])};
        u32 *sums = all_sums + WARP * warp_id();
        switch (phase) {
            case TRUSS_NUMBER:
                team_number(truss, team);
                break;
            case TRUSS_BEGIN:
                team_begin(truss, team);
                break;
            case TRUSS_COUNT:
                team_count(truss, block, sums);
                break;
            case TRUSS_SCAN:
                block_scan(truss, team);
                break;
            case TRUSS_DESTROY:
                team_destroy(truss, team, block, sums);
                break;
            case TRUSS_PACK:
                team_pack(truss, team);
                break;
        }
        // What level 0 removed is reported by the next scan.
        const bool reports = (phase == TRUSS_DESTROY || phase == TRUSS_SCAN) && team.thread() == 0;
        warp_count(block, REMOVED, reports ? block.state[LIST_END] - block.state[LIST_BEGIN] : 0);
        warp_count(block, VISITED, truss.visited);
    };
    run_steps(given.stage, body, [&](u32 phase, const Sums &, u64 *state) {
        return thread_decide_truss(given, phase, state);
    });
}
