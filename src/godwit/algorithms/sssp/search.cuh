// Shortest paths that look at few arcs, in supersteps on one to many devices: push short arcs, then pull, then
// correct.
//
// Push (stages): rows are sorted by weight. At the end of a stage with the bound `near`, every distance up to `near`
// is final: each vertex at distance d <= near has pushed its arcs of weight up to near - d, a prefix of its row
// (`cursors`), and the arcs behind that reach no distance up to `near`. The next stage has a larger bound.
//
// Pull: when the vertices that are left have few in-arcs beside what a stage pushes, each looks through its in-row for
// final neighbours, and stops at the first weight that is not below the distance it has found.
//
// Correct: vertices beyond `near` push all their arcs to each other, nearest first, until nothing changes. `open` are
// these vertices then: most of their arcs lead to others, whose distances need not be read.
//
// Beamer, Asanovic and Patterson (SC 2012) have push and pull for BFS, Chakaravarthy et al. (IPDPS 2014) pushing,
// pulling and pruning by weight for shortest paths, Meyer and Sanders (2003) the stages (delta-stepping).
//
// Invariant: between two stages, `open` are the vertices at final distances with arcs behind their cursors, and no
// vertex is pending. A stage begins with the open vertices and those whose distances lie between the old bound and the
// new one; from then on, a vertex whose distance falls to `near` or below is *pending*. The bit is set after the
// distance is written, and cleared before it is read: no change is lost.
//
// Several devices: an owner pushes and pulls along its rows, and has the distances of its vertices. Of others'
// vertices a device has copies, `known`, which are never below the owner's distance but for what is on its way. A
// push to such a vertex lowers the copy, and sets a bit in `sent`, from where the owner takes it in the next
// superstep that pushes: it reads the words of bits and then the copies. So most arcs to a vertex that is nearer
// already send nothing, and no device waits for another within a superstep. What is sent within a stage, up to
// `near`, counts as found: the stage goes on. Before the pull, owners store their final distances in the copies of
// all (BROADCAST). In the pull they store what they find, by which the copies say at the correction what need not
// be sent. What was sent last before the pull is only taken after it: the pull looks at the same arcs.
//
// Target: its distance, as it falls, becomes the limit of the search, beyond which nothing is found any more. The
// stage that passes the limit leaves all distances up to it final, and ends the search. CUT then marks vertices that
// were found beyond it before as unreached.
//
// Distances are stored as integers in whose order they are: floating-point numbers that are not negative are ordered
// like their bits.
#pragma once

#include "algorithms/sssp/weights.cuh"
#include "runtime/cuda/include/bitmap.cuh"
#include "runtime/cuda/include/schedule.cuh"
#include "supersteps/step.cuh"

#ifndef SEVERAL_DEVICES
#define SEVERAL_DEVICES true
#endif

// Whether there are other devices: one alone has less code to compile.
constexpr bool HAS_OTHERS = SEVERAL_DEVICES;

enum SsspPhase : u32 { BEGIN, PUSH, BROADCAST, PULL, CORRECT, CUT };

// Words of the state.
enum SsspState : u32 {
    NEAR,          // the bound of the stage, as stored
    BEFORE,        // that of the stage before
    WIDTH,         // by which the bound rises at the next stage, as stored
    FIRST_WIDTH,   // after a stage that found something
    LIMIT,         // farther vertices are not reached
    ARCS,          // in-arcs of all vertices
    SETTLED_ARCS,  // in-arcs of those at final distances
    STAGE_ARCS,    // arcs looked at in the stage so far
    STAGE_LEFT,    // vertices seen in the stage so far that are beyond the bound, or open
    IS_FIRST,      // the next superstep is the first of its stage
    PULLED,
    OVERFLOWS,  // a distance does not fit
    DEEP_STEPS,  // every so many supersteps (four times as many after a pull) a search whose frontier is narrow is
    // given up; 0: never
    GAVE_UP,
    VERTICES,
    TURN,  // pull when the in-arcs left are at most this multiple of a stage's arcs; bits of a double
    IS_SENT,     // the last superstep that pushed sent something to another device
    ALL_LOOKED,  // arcs looked at so far
    HAS_TARGET,
};

// TARGET is no count, but the distance of the target, which its owner adds to zeros.
enum SsspCount : u32 {
    PROCESSED,
    LOOKED,
    FOUND,
    BEYOND,
    NEWLY_SETTLED_ARCS,
    OVERFLOWED,
    SENT,
    TARGET
};

constexpr u32 LONG_PULL_ARCS = 4096;     // longer in-rows are pulled by the team
constexpr u32 PULL_ALONE_ARCS = 8;       // arcs that a lane looks at before its warp helps
constexpr u32 NEVER = 0xffffffffu;       // cursor of a vertex that has not pushed
constexpr u64 FEW_SHARE = 64;            // fewer than this share of the vertices are few
constexpr u32 CORRECTION_DOUBLINGS = 4;  // stages after the pull begin 16 times as wide

struct SsspCounters {
    u64 left_rows;
};

struct Arguments {
    Stage stage;
    Rows<Id> out;  // targets are not those of `out_targets`
    Rows<Id> in;
    const Id *out_targets;  // by ascending weight in each row
    const Weight *out_weights;
    const Id *in_targets;
    const Weight *in_weights;
    Stored *distances;  // of own vertices, by local index
    u32 *pending;       // bits of own vertices, as `open`
    u32 *open;
    u32 *cursors;                   // arcs of each row that were pushed, or NEVER
    Stored *known;                  // by position: own distances, and copies of others'
    const u32 *known_open;          // by position: after the pull, `open` of all devices
    Stored *known_by[MAX_DEVICES];  // `known` of every device
    u32 *known_open_by[MAX_DEVICES];
    u32 *sent
        [2]
        [MAX_DEVICES];  // of every device, by parity of supersteps: bits of others' vertices that it lowered
    Schedule::Row *left_rows;
    SsspCounters *counters;
    const Id *seeds;  // in host memory: positions of the sources, of all devices
    i64 seed_count;
    i64 target;                // local index, or -1
    i64 active;                // local indexes from here on are reached as seeds only
    i64 cleared[MAX_DEVICES];  // of each device: distances from here on are UNREACHED, and stay so
    u64 has_long_rows;
};

__device__ __forceinline__ Value value_of(Stored stored) {
    if constexpr (is_float<Value>) return __longlong_as_double(stored);
    return static_cast<Value>(stored);
}

__device__ __forceinline__ Stored stored(Value value) {
    if constexpr (is_float<Value>) return __double_as_longlong(value);
    return static_cast<Stored>(value);
}

constexpr bool IS_WIDE = sizeof(Stored) == 8;
constexpr Stored LARGEST =
    IS_WIDE ? static_cast<Stored>(0x7fffffffffffffffll) : static_cast<Stored>(0x7fffffff);
// Infinity where distances are floating-point numbers.
constexpr Stored UNREACHED = is_float<Value> ? static_cast<Stored>(0x7ff0000000000000ll) : LARGEST;

// A thread's view of a superstep, and its counts.
struct Search {
    const Arguments &arguments;
    const Team &team;
    StepBlock &block;
    Stored near, limit;
    bool corrects;
    u32 processed = 0, found = 0, left = 0, overflowed = 0, sent = 0;
    u64 looked = 0, settled_arcs = 0;

    __device__ __forceinline__ Search(const Arguments &given, const Team &with, StepBlock &in)
        : arguments(given),
          team(with),
          block(in),
          near(static_cast<Stored>(in.state[NEAR])),
          limit(static_cast<Stored>(in.state[LIMIT])),
          corrects(in.state[PULLED] != 0) {}

    __device__ __forceinline__ u32 devices() const {
        return HAS_OTHERS ? arguments.stage.devices : 1;
    }
    // Position of the first own vertex.
    __device__ __forceinline__ i64 first() const {
        return HAS_OTHERS ? arguments.stage.first() : 0;
    }
    // The local index of an own vertex; at least `capacity` for others.
    __device__ __forceinline__ u64 index_of(Id position) const {
        return static_cast<u64>(static_cast<i64>(position) - first());
    }
    __device__ __forceinline__ bool owns(u64 index) const {
        return !HAS_OTHERS || index < static_cast<u64>(arguments.stage.capacity);
    }
    // The bits of what this superstep sends, or of what the one before has sent.
    __device__ __forceinline__ u32 *sent_by(u32 device, bool before) const {
        return arguments.sent[(block.state[STEP] ^ before) & 1][device];
    }

    // The distance over an arc, or UNREACHED if it is beyond the limit.
    __device__ __forceinline__ Stored along(Stored from, Weight weight) {
        if constexpr (is_float<Value>) {
            const Stored to = stored(value_of(from) + static_cast<Value>(weight));
            return to > limit ? UNREACHED : to;
        } else {
            const u64 to = static_cast<u64>(from) + static_cast<u64>(weight);
            if (to >= static_cast<u64>(UNREACHED)) {
                overflowed |= limit == LARGEST - 1;
                return UNREACHED;
            }
            return static_cast<Stored>(to) > limit ? UNREACHED : static_cast<Stored>(to);
        }
    }

    // The largest key of the weights along which a vertex reaches a distance up to `near`.
    __device__ __forceinline__ u32 prefix_key(Stored from) const {
        Value bound = value_of(near) - value_of(from);
        // A sum may be rounded down to `near`.
        if constexpr (is_float<Value>) bound += value_of(near) * 4.5e-16;
        return key_up_to<Weight>(bound);
    }

    __device__ __forceinline__ void count() {
        warp_count(block, PROCESSED, processed);
        warp_count(block, LOOKED, looked);
        warp_count(block, FOUND, found);
        warp_count(block, BEYOND, left);
        warp_count(block, NEWLY_SETTLED_ARCS, settled_arcs);
        warp_count(block, OVERFLOWED, overflowed);
        if constexpr (HAS_OTHERS) warp_count(block, SENT, sent);
        if (team.thread() == 0 && arguments.target >= 0)
            block.sums.counts[TARGET] =
                static_cast<u64>(load_relaxed(arguments.distances + arguments.target));
    }
};

// Lower a distance; return the one before. Others read copies while they are lowered.
__device__ __forceinline__ Stored lower(Stored *place, Stored distance) {
    return HAS_OTHERS ? atomicMin_system(place, distance) : atomicMin(place, distance);
}

// Read a distance that other devices may be writing.
__device__ __forceinline__ Stored load_known(const Stored *place) {
    return HAS_OTHERS ? load_system(place) : load_relaxed(place);
}

// The visitor of a schedule that pushes along arcs of out-rows.
struct PushArcs {
    Search &search;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = search.arguments;
        Id target[ARCS];
        Weight weight[ARCS];
        Stored from[ARCS], to[ARCS];
        bool goes[ARCS];
        // All loads and atomics of a kind are issued before the first result is used.
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            target[i] = there[i] ? load_once(arguments.out_targets + arcs[i]) : Id(0);
        u32 open[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            open[i] = search.corrects && there[i] ? arguments.known_open[target[i] >> 5] : 0;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++)
            goes[i] = search.corrects ? open[i] >> (target[i] & 31) & 1 : there[i];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            weight[i] = goes[i] ? load_once(arguments.out_weights + arcs[i]) : Weight(0);
            from[i] = goes[i] ? load_relaxed(arguments.distances + rows[i]) : Stored(0);
        }
        Stored known[ARCS];
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            to[i] = goes[i] ? search.along(from[i], weight[i]) : UNREACHED;
            known[i] = to[i] != UNREACHED ? load_relaxed(arguments.known + target[i]) : Stored(0);
        }
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            goes[i] = to[i] < known[i];
            known[i] = goes[i] ? lower(arguments.known + target[i], to[i]) : to[i];
        }
        bool is_near[ARCS], any_near = false;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            const bool improves = known[i] > to[i];
            is_near[i] = improves && to[i] <= search.near;
            search.found += is_near[i];
            search.left += improves && !is_near[i];
            if (HAS_OTHERS && improves && !search.owns(search.index_of(target[i]))) {
                set_bits(search.sent_by(arguments.stage.device, false) + (target[i] >> 5),
                         1u << (target[i] & 31));
                search.sent += 1;
                is_near[i] = false;
            }
            any_near |= is_near[i];
        }
        if (!any_near) return;
        __threadfence();  // a thread that clears a bit reads this distance, or a smaller one
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!is_near[i]) continue;
            const u64 index = search.index_of(target[i]);
            set_bits(arguments.pending + (index >> 5), 1u << (index & 31));
        }
    }
};

// The visitor that pulls along arcs of long in-rows.
struct PullArcs {
    Search &search;

    template <u32 ARCS>
    __device__ __forceinline__ void operator()(const i64 (&arcs)[ARCS], const u32 (&rows)[ARCS],
                                               const bool (&there)[ARCS]) const {
        const Arguments &arguments = search.arguments;
#pragma unroll
        for (u32 i = 0; i < ARCS; i++) {
            if (!there[i]) continue;
            const Stored from = load_known(arguments.known + arguments.in_targets[arcs[i]]);
            if (from > search.near) continue;
            const Stored to = search.along(from, arguments.in_weights[arcs[i]]);
            if (to == UNREACHED || to >= load_relaxed(arguments.distances + rows[i])) continue;
            lower(arguments.distances + rows[i], to);
        }
    }
};

// Mark all vertices as unreached, or at the end those beyond the limit. One loop for both: another one, for the end,
// changed the code of the push, which took an eighth longer.
__device__ __forceinline__ void team_unreach(Search &search, bool at_end) {
    const Arguments &arguments = search.arguments;
    for (u32 device = 0; device < search.devices(); device++) {
        Stored *known = arguments.known + device * arguments.stage.capacity;
        for (u64 i = search.team.thread(); i < static_cast<u64>(arguments.cleared[device]);
             i += search.team.threads())
            if (!at_end || known[i] > search.limit) known[i] = UNREACHED;
    }
}

__device__ __forceinline__ void team_clear(Search &search) {
    const Arguments &arguments = search.arguments;
    const Team &team = search.team;
    for (u64 i = team.thread(); i < static_cast<u64>(arguments.active); i += team.threads())
        arguments.cursors[i] = NEVER;
    for (u64 i = team.thread(); i < static_cast<u64>(arguments.active + 31) / 32;
         i += team.threads()) {
        arguments.pending[i] = 0;
        arguments.open[i] = 0;
    }
    if constexpr (HAS_OTHERS) {
        const u64 words = static_cast<u64>(arguments.stage.capacity) / 32 * search.devices();
        for (u64 i = team.thread(); i < words; i += team.threads())
            for (u32 parity = 0; parity < 2; parity++)
                arguments.sent[parity][arguments.stage.device][i] = 0;
    }
    if (team.thread() == 0) arguments.counters->left_rows = 0;
}

__device__ __forceinline__ void team_seed(Search &search) {
    const Arguments &arguments = search.arguments;
    for (u64 i = search.team.thread(); i < static_cast<u64>(arguments.seed_count);
         i += search.team.threads()) {
        const u64 index = search.index_of(arguments.seeds[i]);
        // Another device's; or the host sets the distance.
        if (index >= static_cast<u64>(arguments.active)) continue;
        arguments.distances[index] = 0;
        search.found += 1;
    }
}

// The end of the prefix of a sorted row whose keys are at most `key`, which is mostly short.
__device__ __forceinline__ i64 thread_prefix_end(const Weight *weights, i64 begin, i64 end,
                                                 u32 key) {
    i64 step = 4;
    while (begin + step <= end && key_of(weights[begin + step - 1]) <= key) {
        begin += step;
        step *= 2;
    }
    end = min(end, begin + step);
    while (begin < end) {
        const i64 middle = begin + (end - begin) / 2;
        if (key_of(weights[middle]) <= key)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

// The arcs [begin, end) along which a vertex pushes now. `continues` is true if it may have pushed before at the distance
// that it has.
__device__ __forceinline__ void thread_prefix(Search &search, u32 vertex, bool continues,
                                              i64 &begin, i64 &end) {
    const Arguments &arguments = search.arguments;
    begin = arguments.out.offsets[vertex];
    end = arguments.out.offsets[vertex + 1];
    search.processed += 1;
    if (search.corrects) return;
    const i64 row = begin, row_end = end;
    const u32 cursor = arguments.cursors[vertex];
    if (cursor == NEVER)
        search.settled_arcs +=
            static_cast<u64>(arguments.in.offsets[vertex + 1] - arguments.in.offsets[vertex]);
    else if (continues)
        begin += cursor;
    const u32 key = search.prefix_key(load_relaxed(arguments.distances + vertex));
    end = thread_prefix_end(arguments.out_weights, begin, row_end, key);
    arguments.cursors[vertex] = static_cast<u32>(end - row);
    const u32 bit = 1u << (vertex & 31);
    if (end < row_end) {
        search.left += 1;
        set_bits(&arguments.open[vertex >> 5], bit);
    } else if (cursor != NEVER) {
        atomicAnd(&arguments.open[vertex >> 5], ~bit);
    }
}

// Own vertices, dealt out to the warps of the grid in turn, eight at a time: vertices with many arcs come first.
// The bits of a *share* are those of four bytes of a bitmap, far apart.
struct Shares {
    i64 bytes;
    u64 warps, warp;

    __device__ __forceinline__ Shares(const Team &team, i64 vertices)
        : bytes((vertices + 7) / 8), warps(team.warps()), warp(team.warp()) {}
    // Number of shares of a warp.
    __device__ __forceinline__ i64 count() const {
        return static_cast<i64>((static_cast<u64>(bytes) + 4 * warps - 1) / (4 * warps));
    }
    __device__ __forceinline__ i64 byte_of(i64 share, u32 part) const {
        return static_cast<i64>((static_cast<u64>(share) * 4 + part) * warps + warp);
    }
    __device__ __forceinline__ i64 vertex_of(i64 share, u32 bit) const {
        return byte_of(share, bit >> 3) * 8 + (bit & 7);
    }
    // Return the bits of a share in a bitmap; if asked to, clear them.
    __device__ __forceinline__ u32 bits_of(u32 *bitmap, i64 share, bool clears) const {
        u32 found[4], bits = 0;
#pragma unroll
        for (u32 part = 0; part < 4; part++) {
            const i64 byte = byte_of(share, part);
            found[part] = byte < bytes ? load_relaxed(bitmap + (byte >> 2)) : 0;
        }
#pragma unroll
        for (u32 part = 0; part < 4; part++) {
            const i64 byte = byte_of(share, part);
            const u32 shift = (byte & 3) * 8, mask = 0xffu << shift;
            if (clears && (found[part] & mask))
                found[part] = atomicAnd(bitmap + (byte >> 2), ~mask);
            bits |= (found[part] >> shift & 0xff) << (part * 8);
        }
        return bits;
    }
};

// The vertices with which a stage begins, as bits of the lanes' shares, from `base` on: those whose distances lie
// between the old bound and the new one, and open ones. All lanes participate.
__device__ __forceinline__ u32 warp_begin_stage(Search &search, const Shares &shares, i64 base,
                                                u32 open) {
    constexpr u32 LOADS = 8;
    const Arguments &arguments = search.arguments;
    const Stored before = static_cast<Stored>(search.block.state[BEFORE]);
    u32 mine = open;
    for (u32 first = 0; first < WARP; first += LOADS) {
        Stored distance[LOADS];
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            const i64 vertex = shares.vertex_of(base + first + i, lane_id());
            distance[i] =
                vertex < arguments.active ? load_relaxed(arguments.distances + vertex) : UNREACHED;
        }
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            search.left += distance[i] > search.near && distance[i] != UNREACHED;
            const u32 begins =
                __ballot_sync(FULL_WARP, distance[i] > before && distance[i] <= search.near);
            if (lane_id() == first + i) mine |= begins;
        }
    }
    return mine;
}

// Take the distances that other devices have sent in the superstep that pushed before. Own vertices whose distances
// fall to `near` or below become pending, but for the first superstep of a stage, which looks at all distances.
__device__ __forceinline__ void team_receive(Search &search, bool is_first) {
    constexpr u32 LOADS = 8;
    const Arguments &arguments = search.arguments;
    const u64 count = static_cast<u64>(arguments.active + 31) / 32;
    for (u64 base = search.team.warp() * WARP; base < count; base += search.team.warps() * WARP) {
        const u64 at = base + lane_id();
        u32 fell = 0;
        for (u32 other = 0; other < search.devices(); other++) {
            if (other == arguments.stage.device) continue;
            u32 *place = search.sent_by(other, true) + search.first() / 32 + at;
            const Stored *known = arguments.known_by[other] + search.first();
            const u32 theirs = at < count ? load_system(place) : 0;
            if (theirs) store_system(place, 0u);
            u32 words = __ballot_sync(FULL_WARP, theirs != 0);
            while (words) {
                u32 from[LOADS];
                Stored distance[LOADS], before[LOADS];
#pragma unroll
                for (u32 i = 0; i < LOADS; i++) {  // all are issued before the first result is used
                    from[i] = words ? __ffs(words) - 1 : WARP;
                    words &= words - 1;
                    const u32 bits = __shfl_sync(FULL_WARP, theirs, from[i] % WARP);
                    const bool is_sent = from[i] < WARP && (bits >> lane_id() & 1);
                    distance[i] = is_sent ? load_system(known + (base + from[i]) * 32 + lane_id())
                                          : UNREACHED;
                }
#pragma unroll
                for (u32 i = 0; i < LOADS; i++) {
                    Stored *own = arguments.distances + (base + from[i]) * 32 + lane_id();
                    before[i] = distance[i] != UNREACHED ? lower(own, distance[i]) : Stored(0);
                }
#pragma unroll
                for (u32 i = 0; i < LOADS; i++) {
                    const bool falls = before[i] > distance[i] && distance[i] <= search.near;
                    const u32 near = __ballot_sync(FULL_WARP, falls);
                    if (lane_id() == from[i]) fell |= near;
                }
            }
        }
        if (fell && !is_first) set_bits(arguments.pending + at, fell);
    }
}

// Push along prefixes of rows, or, when correcting, along whole rows. The first superstep of a stage takes the vertices
// with which it begins, the others take the pending ones.
__device__ __forceinline__ void team_push(Search &search, u16 *list, bool is_first) {
    const Arguments &arguments = search.arguments;
    const Schedule schedule{arguments.left_rows, &arguments.counters->left_rows};
    const PushArcs visit{search};
    const Shares shares(search.team, arguments.active);
    const i64 count = shares.count();
    for (i64 base = 0; base < count; base += WARP) {
        const i64 share = base + lane_id();
        u32 mine = 0;
        if (!is_first)
            mine = shares.bits_of(arguments.pending, share, true);
        else if (!search.corrects)
            mine = shares.bits_of(arguments.open, share, false);
        if (is_first) mine = warp_begin_stage(search, shares, base, mine);
        if (!__any_sync(FULL_WARP, mine != 0)) continue;
        __threadfence();
        const u32 total = warp_list_bits(mine, list);
        for (u32 first = 0; first < total; first += WARP) {
            i64 begin = 0, end = 0;
            u32 vertex = 0;
            if (first + lane_id() < total) {
                const u32 place = list[first + lane_id()];
                vertex = static_cast<u32>(shares.vertex_of(base + (place >> 5), place & 31));
                thread_prefix(search, vertex, is_first, begin, end);
            }
            search.looked += static_cast<u64>(end - begin);
            schedule.warp_bring(begin, end, vertex, visit);
        }
    }
    schedule.team_finish(search.team, search.block, arguments.has_long_rows != 0, visit);
}

// The smallest distance over the arcs [at, end) of an in-row, of final neighbours. All lanes pass the same row. Ends at
// the first chunk with a weight that cannot be below the best.
__device__ __forceinline__ Stored warp_pull_row(Search &search, i64 at, i64 end, Stored best) {
    const Arguments &arguments = search.arguments;
    bool ends = false;
    for (; at < end && !ends; at += WARP) {
        const i64 arc = at + lane_id();
        Stored to = UNREACHED;
        bool is_over = false;
        if (arc < end) {
            const Weight weight = arguments.in_weights[arc];
            const Stored from = load_known(arguments.known + arguments.in_targets[arc]);
            if (from <= search.near) to = search.along(from, weight);
            is_over = key_of(weight) > key_up_to<Weight>(value_of(best));
            search.looked += 1;
        }
#pragma unroll
        for (u32 step = WARP / 2; step; step /= 2)
            to = min(to, __shfl_xor_sync(FULL_WARP, to, step));
        best = min(best, to);
        ends = __any_sync(FULL_WARP, is_over);
    }
    return best;
}

// Store the final distances of own vertices in the copies of all other devices.
__device__ __forceinline__ void team_broadcast(Search &search) {
    constexpr u32 LOADS = 4;
    const Arguments &arguments = search.arguments;
    const u64 threads = search.team.threads(), count = static_cast<u64>(arguments.active);
    for (u64 first = search.team.thread(); first < count; first += LOADS * threads) {
        Stored distance[LOADS];
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            const u64 vertex = first + i * threads;
            distance[i] = vertex < count ? arguments.distances[vertex] : UNREACHED;
        }
        for (u32 other = 0; other < search.devices(); other++) {
            if (other == arguments.stage.device) continue;
            Stored *known = arguments.known_by[other] + search.first();
#pragma unroll
            for (u32 i = 0; i < LOADS; i++)
                if (distance[i] <= search.near) known[first + i * threads] = distance[i];
        }
    }
}

// Send all other devices the bits of own vertices of a word that are open, and the distance of the lane's vertex
// unless it is UNREACHED.
__device__ __forceinline__ void warp_tell(Search &search, u64 word, u32 open, Stored found) {
    const Arguments &arguments = search.arguments;
    const i64 first = search.first();
    for (u32 other = 0; other < search.devices(); other++) {
        if (other == arguments.stage.device) continue;
        if (lane_id() == 0) arguments.known_open_by[other][first / 32 + word] = open;
        if (found != UNREACHED)
            store_system(arguments.known_by[other] + first + word * 32 + lane_id(), found);
    }
}

// Each vertex beyond `near` looks for the nearest final neighbour plus weight. Only its own thread, or warp, writes its
// distance, but for long rows.
__device__ __forceinline__ void team_pull(Search &search) {
    const Arguments &arguments = search.arguments;
    const Schedule schedule{arguments.left_rows, &arguments.counters->left_rows};
    const u64 words = static_cast<u64>(arguments.active + 31) / 32;
    for (u64 word = search.team.warp(); word < words; word += search.team.warps()) {
        const i64 vertex = static_cast<i64>(word) * 32 + lane_id();
        const bool is_there = vertex < arguments.active;
        const Stored before = is_there ? load_relaxed(arguments.distances + vertex) : search.near;
        const bool searches = before > search.near;
        const u32 open = __ballot_sync(FULL_WARP, searches);
        if (lane_id() == 0) arguments.open[word] = open;
        if (!open) {
            if constexpr (HAS_OTHERS) warp_tell(search, word, open, UNREACHED);
            continue;
        }
        i64 at = 0, end = 0;
        if (searches) {
            at = arguments.in.offsets[vertex];
            end = arguments.in.offsets[vertex + 1];
        }
        bool is_long = end - at > static_cast<i64>(LONG_PULL_ARCS);
        if (is_long) {
            schedule.thread_leave(static_cast<u64>(vertex), at, end);
            search.looked += static_cast<u64>(end - at);
            end = at;
        }
        Stored best = before;
        bool ends = false;
        for (u32 alone = 0; alone < PULL_ALONE_ARCS; alone += 4) {
            Id target[4];
            Weight weight[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const bool reads = !ends && at + i < end;
                target[i] = reads ? arguments.in_targets[at + i] : Id(-1);
                weight[i] = reads ? arguments.in_weights[at + i] : Weight(0);
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                if (target[i] < 0 || ends) continue;
                search.looked += 1;
                if (key_of(weight[i]) > key_up_to<Weight>(value_of(best))) {
                    ends = true;
                    continue;
                }
                const Stored from = load_known(arguments.known + target[i]);
                if (from <= search.near) best = min(best, search.along(from, weight[i]));
            }
            at += 4;
            ends |= at >= end;
            if (!__any_sync(FULL_WARP, !ends)) break;
        }
        u32 waiting = __ballot_sync(FULL_WARP, !ends && at < end);
        while (waiting) {
            const u32 whose = __ffs(waiting) - 1;
            waiting &= waiting - 1;
            const Stored found = warp_pull_row(search, __shfl_sync(FULL_WARP, at, whose),
                                               __shfl_sync(FULL_WARP, end, whose),
                                               __shfl_sync(FULL_WARP, best, whose));
            if (lane_id() == whose) best = found;
        }
        if (best < before) lower(arguments.distances + vertex, best);
        if constexpr (HAS_OTHERS) warp_tell(search, word, open, searches ? best : UNREACHED);
    }
    schedule.team_finish(search.team, search.block, arguments.has_long_rows != 0, PullArcs{search});
}

__device__ __forceinline__ Stored raised(Stored near, Stored width) {
    if constexpr (is_float<Value>) {
        const Value next = value_of(near) + value_of(width);
        // A width that is lost in rounding doubles until it is not.
        return next < value_of(UNREACHED) ? stored(next) : static_cast<Stored>(UNREACHED - 1);
    }
    return near > UNREACHED - 1 - width ? UNREACHED - 1 : near + width;
}

__device__ __forceinline__ Stored doubled(Stored width) {
    if constexpr (is_float<Value>)
        return stored(static_cast<Value>(min(static_cast<double>(value_of(width)) * 2, 8.9e307)));
    return width > LARGEST / 2 ? LARGEST : width * 2;
}

// A 32nd of a width.
__device__ __forceinline__ Stored part_of(Stored width) {
    if constexpr (is_float<Value>) return stored(static_cast<Value>(value_of(width) / 32));
    return width >> 5;
}

// Raise the bound: a stage that looked at no arc is followed by one twice as wide. If it took more than four such
// stages to find something, later ones begin wider, too: weights may differ by hundreds of doublings.
__device__ __forceinline__ void next_stage(u64 *state) {
    if (state[STAGE_ARCS])
        state[FIRST_WIDTH] =
            max(state[FIRST_WIDTH], static_cast<u64>(part_of(static_cast<Stored>(state[WIDTH]))));
    const Stored width = static_cast<Stored>(state[state[STAGE_ARCS] ? FIRST_WIDTH : WIDTH]);
    state[BEFORE] = state[NEAR];
    state[NEAR] =
        min(static_cast<u64>(raised(static_cast<Stored>(state[NEAR]), width)), state[LIMIT]);
    // The order of few vertices does not matter.
    if (state[PULLED] && state[STAGE_LEFT] * FEW_SHARE < state[VERTICES])
        state[NEAR] = state[LIMIT];
    state[WIDTH] = static_cast<u64>(doubled(width));
    if (state[PULLED]) state[FIRST_WIDTH] = state[WIDTH];
    state[IS_FIRST] = 1;
    state[STAGE_ARCS] = 0;
    state[STAGE_LEFT] = 0;
}

// The end of a search whose distances are all known.
__device__ __forceinline__ u32 end_of(const u64 *state) { return state[HAS_TARGET] ? CUT : STOP; }

__device__ __forceinline__ u32 sssp_next(u32 phase, const Sums &sums, u64 *state) {
    if (phase == CUT) return STOP;
    if (sums.counts[OVERFLOWED]) {
        state[OVERFLOWS] = 1;
        return STOP;
    }
    if (state[HAS_TARGET]) state[LIMIT] = min(state[LIMIT], sums.counts[TARGET]);
    const u64 found = sums.counts[FOUND];
    if (phase == BEGIN) return found ? PUSH : STOP;
    if (phase == BROADCAST) return PULL;
    state[STAGE_ARCS] += sums.counts[LOOKED];
    state[ALL_LOOKED] += sums.counts[LOOKED];
    state[STAGE_LEFT] += sums.counts[BEYOND];
    state[SETTLED_ARCS] += sums.counts[NEWLY_SETTLED_ARCS];
    state[IS_FIRST] = 0;
    if (phase != PULL) state[IS_SENT] = sums.counts[SENT] != 0;
    const bool is_narrow = (found + state[STAGE_LEFT]) * FEW_SHARE < state[VERTICES];
    const u64 most_steps = state[DEEP_STEPS] * (state[PULLED] ? 4 : 1);
    if (most_steps && (state[STEP] + 1) % most_steps == 0 && is_narrow) {
        state[GAVE_UP] = 1;
        return STOP;
    }
    if (phase == PULL) {
        state[PULLED] = 1;
        state[STAGE_LEFT] = state[VERTICES];  // as many as there may be
        for (u32 k = 0; k < CORRECTION_DOUBLINGS; k++)
            state[FIRST_WIDTH] = static_cast<u64>(doubled(static_cast<Stored>(state[FIRST_WIDTH])));
        next_stage(state);
        return CORRECT;
    }
    if (found) return phase;
    if (!state[STAGE_LEFT]) return end_of(state);
    const Stored limit = static_cast<Stored>(state[LIMIT]);
    if (static_cast<Stored>(state[NEAR]) >= limit) {
        // Arcs behind cursors lead beyond the limit: beyond all integers, if there is no other.
        state[OVERFLOWS] = !is_float<Value> && limit == LARGEST - 1;
        return end_of(state);
    }
    if (phase == PUSH) {
        const double open_arcs = static_cast<double>(state[ARCS] - state[SETTLED_ARCS]);
        if (open_arcs <= amount_of(state[TURN]) * static_cast<double>(state[STAGE_ARCS]))
            return HAS_OTHERS ? BROADCAST : PULL;
    }
    next_stage(state);
    return phase;
}

__device__ __forceinline__ void grid_sssp(const Arguments &arguments) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    u16 *list = reinterpret_cast<u16 *>(shared_bytes) + warp_id() * 1024;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Search search(arguments, team, block);
        switch (phase) {
            case BEGIN:
            case CUT:
                team_unreach(search, phase == CUT);
                if (phase == CUT) break;
                team_clear(search);
                team.wait(block);
                team_seed(search);
                break;
            case PUSH:
            case CORRECT:
                if (HAS_OTHERS && block.state[IS_SENT]) {
                    team_receive(search, block.state[IS_FIRST]);
                    team.wait(block);
                }
                team_push(search, list, block.state[IS_FIRST]);
                break;
            case BROADCAST:
                team_broadcast(search);
                break;
            case PULL:
                team_pull(search);
                break;
        }
        search.count();
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        phase = sssp_next(phase, sums, state);
        arguments.counters->left_rows = 0;
        return phase;
    };
    run_steps(arguments.stage, body, decide);
}
