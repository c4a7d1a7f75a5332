// Communities by size, and what modularity is made of, on one device. CPU counterparts: by_size of result.py,
// strengths and modularity_of of query.py, whose values these are, bit for bit.
//
// Labels are any numbers below the number of vertices, by position. Three runs, each of some phases:
// - strengths: the weight of the arcs of each vertex, which no labels change;
// - sizes: vertices, smallest vertex and strengths of each label, and a sort key of each community. The host
//   sorts the keys: the largest community first, of equal ones that of the smallest vertex;
// - modularity: the number of each vertex's community, the weight within communities, and squares.
//
// All sums are of integers, so that no order changes them. Squares of shares are doubles, each rounded as the CPU
// rounds it, and added up exactly: as integers of units of 2^-160, in words of 32 bits that are not carried over
// before the host rounds the sum, once. Shares are at least 2^-52, so squares are multiples of 2^-156.
#pragma once

#include "runtime/cuda/include/schedule.cuh"

enum SummaryPhase : u32 {
    STRENGTHS_BEGIN,
    STRENGTHS_ADD,
    STRENGTHS_SUM,
    LABELS_TAKE,  // the user's, by vertex
    SIZES_BEGIN,
    SIZES_ADD,
    SIZES_LIST,  // keys of communities
    NUMBERS_BEGIN,
    NUMBERS_TAKE,
    INNER_ADD,
    SQUARES_ADD
};

// Words of control->state: whether communities are listed, and whether the weight within them is known.
enum SummaryWord : u32 { NUMBERS, KNOWS_INNER };

// FOUND is of a run: the sum of strengths, the number of communities, or the weight within them.
enum SummaryCount : u32 { DONE, FOUND, LIMBS };

constexpr u32 LIMB_COUNT = COUNTS - LIMBS;
constexpr u32 LIMB_BITS = 32;
constexpr u32 UNIT_BITS = 160;
constexpr u32 AT_ONCE = 4;           // items of a thread whose loads overlap
constexpr u32 LISTED_AT_ONCE = 16;   // labels of a thread for which a warp takes places at once
constexpr u32 FEW_STRENGTHS = 1024;  // smaller ones are counted before they are squared
constexpr u32 MOST_GROUPS = 4;       // labels of a warp whose vertices may be counted together
constexpr u32 LEAST_ALIKE = 8;       // vertices of such a label

struct Arguments {
    Stage stage;
    Rows<Id> out;
    const i64 *out_weights;
    const Id *vertices;  // by position
    const u32 *given;    // by vertex
    u32 *label;          // by position, like the next three
    u32 *number;
    Strength *strength;
    Strength *entering;  // strength of in-arcs, of a directed graph
    u32 *size;           // by label, like the next three
    u32 *first;
    Strength *leaving_of;  // strength of a community
    Strength *entering_of;
    u64 *keys;
    u32 *rank;   // by first vertex
    i64 *sizes;  // by community, like the names
    u32 *names;
    Schedule::Row *long_rows;
    u64 communities;
    double total;  // sum of all strengths
    u32 is_directed;
    u32 padding;
};

struct Summary {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;

    __device__ __forceinline__ u64 vertices() const {
        return static_cast<u64>(arguments.stage.owned);
    }

    // Call visit(items, there) for the numbers below a count, several for each thread, whose loads overlap.
    template <class Visit>
    __device__ __forceinline__ void team_each(u64 count, Visit visit) const {
        for (u64 base = team.thread(); base < count; base += AT_ONCE * team.threads()) {
            u64 items[AT_ONCE];
            bool there[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                items[i] = base + i * team.threads();
                there[i] = items[i] < count;
            }
            visit(items, there);
        }
    }

    __device__ __forceinline__ void team_begin_strengths() const {
        for (u64 v = team.thread(); v < vertices(); v += team.threads()) {
            const i64 arcs = arguments.out.offsets[v + 1] - arguments.out.offsets[v];
            arguments.strength[v] = WEIGHTED ? 0 : static_cast<Strength>(arcs);
            if (arguments.is_directed) arguments.entering[v] = 0;
        }
    }

    template <class Visit>
    __device__ __forceinline__ void team_visit_rows(Visit visit) const {
        const Schedule schedule{arguments.long_rows, &team.control->cursors[0]};
        for (u64 base = team.warp() * WARP; base < vertices(); base += team.warps() * WARP) {
            const u64 v = base + lane_id();
            i64 begin = 0, end = 0;
            if (v < vertices())
                begin = arguments.out.offsets[v], end = arguments.out.offsets[v + 1];
            schedule.warp_bring(begin, end, static_cast<u32>(v), visit);
        }
        schedule.team_finish(team, block, true, visit);
    }

    __device__ __forceinline__ void team_sum_strengths() const {
        u64 sum = 0;
        for (u64 v = team.thread(); v < vertices(); v += team.threads())
            sum += arguments.strength[v];
        __syncwarp();
        warp_count(block, FOUND, sum);
    }

    __device__ __forceinline__ void team_take_labels() const {
        for (u64 v = team.thread(); v < vertices(); v += team.threads())
            arguments.label[v] = arguments.given[arguments.vertices[v]];
    }

    __device__ __forceinline__ void team_begin_sizes() const {
        for (u64 label = team.thread(); label < vertices(); label += team.threads()) {
            arguments.size[label] = 0;
            arguments.first[label] = ~0u;
            arguments.leaving_of[label] = 0;
            if (arguments.is_directed) arguments.entering_of[label] = 0;
        }
    }

    // Most vertices of a warp may have one label: those of a few labels are added up before they are counted.
    __device__ __forceinline__ void team_add_sizes() const {
        for (u64 base = team.warp() * WARP; base < vertices(); base += team.warps() * WARP) {
            const u64 v = base + lane_id();
            const bool is_there = v < vertices();
            const u32 label = is_there ? arguments.label[v] : 0;
            const Strength leaving = is_there ? arguments.strength[v] : 0;
            const Strength entering = is_there && arguments.is_directed ? arguments.entering[v] : 0;
            if (is_there) {
                const u32 vertex = static_cast<u32>(arguments.vertices[v]);
                if (vertex < load_relaxed(arguments.first + label))
                    atomicMin(arguments.first + label, vertex);
            }
            u32 left = __ballot_sync(FULL_WARP, is_there), alone = left;
            for (u32 turn = 0; turn < MOST_GROUPS && left; turn++) {
                const u32 leader = __ffs(static_cast<int>(left)) - 1;
                const u32 chosen = __shfl_sync(FULL_WARP, label, leader);
                const bool is_alike = is_there && label == chosen;
                const u32 alike = __ballot_sync(FULL_WARP, is_alike);
                left &= ~alike;
                if (__popc(alike) < LEAST_ALIKE) continue;
                alone &= ~alike;
                const Strength leaves = lanes_sum(is_alike ? leaving : Strength(0));
                const Strength enters =
                    arguments.is_directed ? lanes_sum(is_alike ? entering : Strength(0)) : 0;
                if (lane_id() == leader) thread_add(label, __popc(alike), leaves, enters);
            }
            if (alone >> lane_id() & 1) thread_add(label, 1, leaving, entering);
        }
    }

    __device__ __forceinline__ void thread_add(u32 label, u32 count, Strength leaving,
                                               Strength entering) const {
        atomicAdd(arguments.size + label, count);
        if (leaving) atomicAdd(arguments.leaving_of + label, leaving);
        if (entering) atomicAdd(arguments.entering_of + label, entering);
    }

    // A warp takes places for several times 32 labels at once: all warps wait for one word.
    __device__ __forceinline__ void team_list_communities() const {
        const u32 below = (1u << lane_id()) - 1;
        u64 found = 0;
        for (u64 base = team.warp() * LISTED_AT_ONCE * WARP; base < vertices();
             base += team.warps() * LISTED_AT_ONCE * WARP) {
            u32 size[LISTED_AT_ONCE], place[LISTED_AT_ONCE], taken = 0;
#pragma unroll
            for (u32 i = 0; i < LISTED_AT_ONCE; i++) {
                const u64 label = base + i * WARP + lane_id();
                size[i] = label < vertices() ? arguments.size[label] : 0;
            }
#pragma unroll
            for (u32 i = 0; i < LISTED_AT_ONCE; i++) {
                const u32 votes = __ballot_sync(FULL_WARP, size[i] > 0);
                place[i] = taken + __popc(votes & below);
                taken += __popc(votes);
            }
            u64 first = 0;
            if (lane_id() == 0 && taken) first = atomicAdd(&team.control->cursors[0], u64{taken});
            first = __shfl_sync(FULL_WARP, first, 0);
#pragma unroll
            for (u32 i = 0; i < LISTED_AT_ONCE; i++) {
                if (size[i] == 0) continue;
                const u64 label = base + i * WARP + lane_id();
                arguments.keys[first + place[i]] =
                    static_cast<u64>(~size[i]) << 32 | arguments.first[label];
                found += 1;
            }
            __syncwarp();
        }
        warp_count(block, FOUND, found);
    }

    __device__ __forceinline__ void team_begin_numbers() const {
        team_each(
            arguments.communities, [&](const u64(&rank)[AT_ONCE], const bool (&there)[AT_ONCE]) {
                u64 key[AT_ONCE];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++) key[i] = there[i] ? arguments.keys[rank[i]] : 0;
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++) {
                    if (!there[i]) continue;
                    arguments.rank[static_cast<u32>(key[i])] = static_cast<u32>(rank[i]);
                    arguments.sizes[rank[i]] = static_cast<i64>(~static_cast<u32>(key[i] >> 32));
                }
            });
    }

    __device__ __forceinline__ void team_take_numbers() const {
        team_each(vertices(), [&](const u64(&v)[AT_ONCE], const bool (&there)[AT_ONCE]) {
            u32 label[AT_ONCE], first[AT_ONCE], rank[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) label[i] = there[i] ? arguments.label[v[i]] : 0;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) first[i] = there[i] ? arguments.first[label[i]] : 0;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) rank[i] = there[i] ? arguments.rank[first[i]] : 0;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                if (!there[i]) continue;
                arguments.number[v[i]] = rank[i];
                if (first[i] == static_cast<u32>(arguments.vertices[v[i]]))
                    arguments.names[rank[i]] = label[i];
            }
        });
    }

    __device__ __forceinline__ double share(Strength strength) const {
        return static_cast<double>(strength) / arguments.total;
    }

    // Add a square, of at least 2^-104, several times to words of 32 bits each.
    static __device__ __forceinline__ void thread_add_exactly(double square, u32 times,
                                                              u64 (&limbs)[LIMB_COUNT]) {
        // square = mantissa * 2^(exponent - 1075)
        const u64 bits = static_cast<u64>(__double_as_longlong(square));
        const u64 mantissa = (bits & ((1ull << 52) - 1)) | 1ull << 52;
        const u32 place = static_cast<u32>(bits >> 52) - 1075 + UNIT_BITS;
        const u32 lowest = place / LIMB_BITS, shift = place % LIMB_BITS;
        const u64 low = mantissa << shift;
        const u64 high = shift ? mantissa >> (64 - shift) : 0;
#pragma unroll
        for (u32 limb = 0; limb < LIMB_COUNT; limb++) {
            if (limb == lowest) limbs[limb] += times * (low & 0xffffffffull);
            if (limb == lowest + 1) limbs[limb] += times * (low >> LIMB_BITS);
            if (limb == lowest + 2) limbs[limb] += times * high;
        }
    }

    // Most communities have one of a few strengths: blocks count these.
    __device__ __forceinline__ void block_add_squares() const {
        __shared__ u32 counts[FEW_STRENGTHS];
        for (u32 i = threadIdx.x; i < FEW_STRENGTHS; i += blockDim.x) counts[i] = 0;
        __syncthreads();
        u64 limbs[LIMB_COUNT] = {};
        const bool is_directed = arguments.is_directed;
        team_each(vertices(), [&](const u64(&label)[AT_ONCE], const bool (&there)[AT_ONCE]) {
            Strength leaving[AT_ONCE], entering[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                leaving[i] = there[i] ? arguments.leaving_of[label[i]] : 0;
                entering[i] = leaving[i];
                if (there[i] && is_directed) entering[i] = arguments.entering_of[label[i]];
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                if (!leaving[i] || !entering[i]) continue;
                if (!is_directed && leaving[i] < FEW_STRENGTHS)
                    atomicAdd(counts + leaving[i], 1u);
                else
                    thread_add_exactly(share(leaving[i]) * share(entering[i]), 1, limbs);
            }
        });
        __syncthreads();
        for (u32 i = threadIdx.x; i < FEW_STRENGTHS; i += blockDim.x)
            if (counts[i]) thread_add_exactly(share(i) * share(i), counts[i], limbs);
        __syncwarp();
#pragma unroll
        for (u32 limb = 0; limb < LIMB_COUNT; limb++) warp_count(block, LIMBS + limb, limbs[limb]);
    }
};

// A visitor of all rows that adds the weights of arcs to the strengths of their ends. Loops of an undirected
// graph are one arc, and count twice.
struct AddStrengths {
    const Arguments &arguments;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!there[i]) continue;
            const u64 target = static_cast<u64>(arguments.out.targets[arcs[i]]);
            Strength weight = 1;
            if constexpr (WEIGHTED) weight = static_cast<Strength>(arguments.out_weights[arcs[i]]);
            Strength leaves = WEIGHTED ? weight : 0;
            if (arguments.is_directed)
                atomicAdd(arguments.entering + target, weight);
            else if (target == rows[i])
                leaves += weight;
            if (leaves) atomicAdd(arguments.strength + rows[i], leaves);
        }
    }
};

// A visitor of all rows that adds up the weights of arcs within communities. Of an undirected graph, the arc to the
// lower end of an edge counts for both.
struct AddInner {
    const Arguments &arguments;
    u64 &inside;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        u32 target[ARCS];
        bool counts[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            target[i] = there[i] ? static_cast<u32>(arguments.out.targets[arcs[i]]) : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            counts[i] = there[i] && (arguments.is_directed || target[i] <= rows[i]) &&
                        arguments.label[target[i]] == arguments.label[rows[i]];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!counts[i]) continue;
            u64 weight = 1;
            if constexpr (WEIGHTED) weight = static_cast<u64>(arguments.out_weights[arcs[i]]);
            inside += arguments.is_directed ? weight : 2 * weight;
        }
    }
};

__device__ __forceinline__ u32 thread_next_summary(u32 phase, const u64 *state) {
    switch (phase) {
        case STRENGTHS_SUM:
        case SIZES_LIST:
        case SQUARES_ADD:
            return STOP;
        case SIZES_ADD:
            return state[NUMBERS] ? SIZES_LIST : INNER_ADD;
        case NUMBERS_TAKE:
            return state[KNOWS_INNER] ? SQUARES_ADD : INNER_ADD;
    }
    return phase + 1;
}

__device__ __forceinline__ void grid_summary(const Arguments &arguments) {
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        const Summary summary{arguments, team, block};
        u64 inside = 0;
        switch (phase) {
            case STRENGTHS_BEGIN:
                summary.team_begin_strengths();
                break;
            case STRENGTHS_ADD:
                summary.team_visit_rows(AddStrengths{arguments});
                break;
            case STRENGTHS_SUM:
                summary.team_sum_strengths();
                break;
            case LABELS_TAKE:
                summary.team_take_labels();
                break;
            case SIZES_BEGIN:
                summary.team_begin_sizes();
                break;
            case SIZES_ADD:
                summary.team_add_sizes();
                break;
            case SIZES_LIST:
                summary.team_list_communities();
                break;
            case NUMBERS_BEGIN:
                summary.team_begin_numbers();
                break;
            case NUMBERS_TAKE:
                summary.team_take_numbers();
                break;
            case INNER_ADD:
                summary.team_visit_rows(AddInner{arguments, inside});
                __syncwarp();
                warp_count(block, FOUND, inside);
                break;
            case SQUARES_ADD:
                summary.block_add_squares();
                break;
        }
    };
    run_steps(arguments.stage, body, [&](u32 phase, const Sums &, u64 *state) {
        return thread_next_summary(phase, state);
    });
}
