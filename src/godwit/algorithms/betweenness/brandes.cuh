// Betweenness: Brandes' dependencies, added up over sources, in supersteps or by every block for itself.
//
// U. Brandes, A faster algorithm for betweenness centrality, Journal of Mathematical Sociology 25 (2001).
// From a source, paths(v) is the sum of paths over the neighbours one level before; then, from the last level
// back, coefficient(v) = sum + 1 / paths(v), sum being that of the coefficients of the neighbours one level
// after, and the dependency on v is paths(v) * sum. A level takes one superstep forth and one back; while few
// vertices are left to be found the next level is found from all of them, else from the rows of this one.
//
// Floor: each row is read twice, 4 bytes an arc each (520.8M arcs: 4.2 GB, 1.1 ms at 4 TB/s); each arc between
// two levels reads a value of 8 bytes at random, twice. Bits of sets come from caches.
//
// Many sources on a graph that does not fill a GPU: each block has a search to itself, in memory of its own, and
// waits for no other; what the blocks add up is added in their order in the end.
#pragma once

#include "algorithms/betweenness/levels.cuh"

// Kinds of supersteps.
constexpr u32 BEGIN = 0;
constexpr u32 LIST = 1;          // with GATHERS, EXPANDS or both
constexpr u32 DENSE = 2;         // find a level and count its paths
constexpr u32 DENSE_EXPAND = 3;  // find the next from its rows
constexpr u32 DEPEND = 4;
constexpr u32 ROUND = 5;   // blocks search for themselves
constexpr u32 REDUCE = 6;  // and their sums are added up
constexpr u32 OVER = 7;    // of a block's search
constexpr u32 KINDS = 15;

// A level is found from all that is left only if it has such a part of all arcs: looking at what is visited
// costs something, too.
constexpr u64 DENSE_SHARE = 256;

// What the arcs of a level are looked at for, if at all, before which its lists and sets are seen to.
__device__ __forceinline__ u32 team_open(Search &search, u32 phase) {
    u32 depth = search.depth;
    switch (phase & KINDS) {
        case BEGIN:
            team_begin(search);
            return 0;
        case LIST:
            if (depth == 0) return EXPANDS;
            if (search.state[ARRIVING]) team_take(search);
            team_show_set(search, false, false);
            if (depth >= 2) team_clear_set(search, depth - 2);
            if (depth > 1 || !search.given.is_hot_first) return phase & (GATHERS | EXPANDS);
            team_count_arcs(search);
            return phase & EXPANDS;
        case DENSE:
            team_visit_others(search, depth - 1);
            if (depth >= 2) team_clear_set(search, depth - 2);
            return GATHERS;
        case DENSE_EXPAND:
            return EXPANDS;
        case DEPEND:
            if (depth + 2 <= search.state[LAST]) team_clear_set(search, depth + 2);
            return DEPENDS;
    }
    return 0;
}

// A superstep of a search.
__device__ __forceinline__ void team_step(Search &search, u32 phase) {
    const Arguments &given = search.given;
    u32 kind = phase & KINDS, depth = static_cast<u32>(search.state[DEPTH]);
    search.depth = depth;
    u32 what = team_open(search, phase);
    bool is_dense =
        kind == DENSE || kind == DENSE_EXPAND || (kind == DEPEND && search.is_dense(depth));
    // The last level has no successors, and those of the source matter to its arcs only.
    bool scans = kind != DEPEND || (depth < search.state[LAST] && (depth > 0 || search.edges));
    while (what) {
        bool is_first = given.is_directed && (what & GATHERS);  // arcs in, then arcs out
        u32 now = is_first ? GATHERS : what;
        bool goes_in = now & GATHERS;
        Pass pass{goes_in ? given.in.offsets : given.out.offsets,
                  goes_in ? given.in.targets : given.out.targets,
                  goes_in ? given.long_in : given.long_out, now, is_dense};
        if (scans) team_long_rows(search, pass);
        if (kind != LIST || depth > 0) team_rows(search, pass, scans);
        what &= ~now;
    }
    if (search.devices > 1 && (kind == DENSE || kind == DEPEND)) {
        search.team.wait(*search.block);
        team_show_set(search, is_dense, true);
    }
    __syncwarp();
    search.warp_report();
}

// One thread: what comes after a superstep of a search. Everything global follows from sums and state.
struct Decision {
    Search &search;
    const Arguments &given;
    u64 *state;

    __device__ __forceinline__ Id *ends() const { return search.place<Id>(given.layout.ends); }
    __device__ __forceinline__ Id *taken_ends() const {
        return search.place<Id>(given.layout.taken_ends);
    }
    __device__ __forceinline__ u8 *lights() const { return search.place<u8>(given.layout.lights); }
    __device__ __forceinline__ u32 alone(u64 depth) const { return lights()[depth] ? ALONE : 0; }

    // What was claimed is the next level's.
    __device__ __forceinline__ void close_level(u64 depth) const {
        ends()[depth + 1] = static_cast<Id>(search.counters()->tail);
        taken_ends()[depth] = static_cast<Id>(search.counters()->taken_tail);
    }

    // What is counted for the next level is what others read while they were at this one: all have met since.
    __device__ __forceinline__ void deepen() const {
        SearchCounters *counters = search.counters();
        u32 now = state[DEPTH] & 1, next = 1 - now;
        for (u32 other = 0; other < search.devices; other++) {
            counters->sent_before[next][other] =
                counters->sent_before[now][other] + counters->sent[now][other];
            counters->sent[next][other] = 0;
        }
        state[DEPTH] += 1;
    }

    __device__ __forceinline__ bool pays_dense(u64 frontier) const {
        u64 left = given.arcs > state[SEEN] ? given.arcs - state[SEEN] : 0;
        return frontier * given.dense_factor >= left && frontier * DENSE_SHARE >= given.arcs;
    }

    // The vertices that were found at the depth after this one are to be dealt with.
    __device__ __forceinline__ u32 descend(const Sums &sums) const {
        u64 mine = sums.counts[FOUND], sent = sums.counts[SENT], depth = state[DEPTH];
        if (mine + sent == 0) return turn_back(depth);
        u64 mean = mine ? sums.counts[FOUND_ARCS] / mine : given.mean_degree;
        u64 frontier = sums.counts[FOUND_ARCS] + sent * mean;
        deepen();
        state[ARRIVING] = sent;
        // How long the rows are of those that were sent, only their owners know.
        bool may_be_long = sent && given.has_long_rows;
        bool is_light =
            mine + sent <= given.light_vertices && frontier <= given.light_arcs && !may_be_long;
        lights()[depth + 1] = is_light;
        if (state[DENSE_BEGIN] == NO_DEPTH && pays_dense(frontier)) {
            lights()[depth + 1] = 0;
            return LIST | GATHERS;
        }
        return LIST | GATHERS | EXPANDS | alone(depth + 1);
    }

    __device__ __forceinline__ u32 turn_back(u64 last) const {
        state[LAST] = state[DEPTH] = last;
        return ascend(last);
    }

    __device__ __forceinline__ u32 ascend(u64 depth) const {
        if (depth > 0)
            return DEPEND | (search.is_dense(static_cast<u32>(depth)) ? 0 : alone(depth));
        if (given.edges || given.endpoints) return DEPEND | (given.edges ? 0 : ALONE);
        return OVER;
    }

    __device__ __forceinline__ u32 after_dense(const Sums &sums) const {
        u64 depth = state[DEPTH];
        lights()[depth] = 0;
        ends()[depth] = ends()[depth - 1];
        taken_ends()[depth] = taken_ends()[depth - 1];
        if (sums.counts[REACHED] == 0) {
            state[DENSE_END] = depth;
            return turn_back(depth - 1);
        }
        if (pays_dense(sums.counts[ARCS])) {
            deepen();
            return DENSE;
        }
        state[DENSE_END] = depth + 1;
        return DENSE_EXPAND;
    }

    __device__ __forceinline__ u32 next(const Sums &sums) const {
        u32 phase = static_cast<u32>(state[PHASE]);
        u64 depth = state[DEPTH];
        state[COUNT] += sums.counts[REACHED];
        state[SEEN] += sums.counts[ARCS_IN];
        state[ALL_ARCS] += sums.counts[ARCS];
        if (sums.counts[FAILED]) {
            state[HAS_FAILED] = 1;
            return OVER;
        }
        switch (phase & KINDS) {
            case BEGIN:
                return LIST | EXPANDS;
            case LIST:
                if (phase & EXPANDS) {
                    close_level(depth);
                    return descend(sums);
                }
                taken_ends()[depth] = static_cast<Id>(search.counters()->taken_tail);
                state[DENSE_BEGIN] = depth + 1;
                deepen();
                return DENSE;
            case DENSE:
                return after_dense(sums);
            case DENSE_EXPAND:
                close_level(depth);
                return descend(sums);
            case DEPEND:
                if (depth == 0) return OVER;
                state[DEPTH] = depth - 1;
                return ascend(depth - 1);
        }
        return OVER;
    }

    // Set the state up for a search.
    __device__ __forceinline__ u32 begin() const {
        state[DEPTH] = state[SEEN] = state[ARRIVING] = 0;
        state[COUNT] = 1;
        state[DENSE_BEGIN] = state[DENSE_END] = NO_DEPTH;
        return state[PHASE] = BEGIN;
    }
};

// The memory of a block's own search.
__device__ __forceinline__ Search block_search(const Arguments &given, StepControl *control,
                                               StepBlock &block) {
    const SearchLayout &layout = given.layout;
    char *home = given.searches[given.stage.device] + blockIdx.x * layout.nbytes;
    auto *counters = reinterpret_cast<SearchCounters *>(home + layout.counters);
    auto *edges = reinterpret_cast<double *>(home + layout.edges);
    return Search{given,
                  Team{control, 0, 1},
                  &block,
                  home,
                  reinterpret_cast<double *>(home + layout.centrality),
                  given.edges ? edges : nullptr,
                  counters->state,
                  1};
}

// A block has done a superstep of its own search, or is to begin (`phase` ROUND). Returns the phase of the next,
// STOP after the last source of its round; what they were is then in the block's sums. All threads come.
__device__ __forceinline__ u32 block_next(Search &search, u32 phase) {
    const Arguments &given = search.given;
    StepBlock &block = *search.block;
    u64 *state = search.state;
    __syncthreads();
    if (threadIdx.x == 0) {
        Decision decision{search, given, state};
        u64 round = block.state[SOURCE];
        if (phase == ROUND) {
            state[SOURCE] = round + blockIdx.x;
            state[ALL_COUNT] = state[ALL_ARCS] = state[HAS_FAILED] = 0;
        } else {
            Sums sums = block.sums;
            for (u32 which = 0; which < COUNTS; which++) block.sums.counts[which] = 0;
            phase = decision.next(sums);
            state[PHASE] = phase;
            if (phase == OVER) {
                state[ALL_COUNT] += state[COUNT];
                state[SOURCE] += given.block_searches;
            }
        }
        if (phase == ROUND || phase == OVER) {
            u64 end = round + static_cast<u64>(given.sources_a_round) * given.block_searches;
            bool goes_on = state[SOURCE] < end && state[SOURCE] < given.source_count;
            phase = goes_on && !state[HAS_FAILED] ? decision.begin() : STOP;
        }
        if (phase == STOP) {
            block.sums.counts[BEGUN] = (state[SOURCE] - round) / given.block_searches;
            block.sums.counts[REACHED] = state[ALL_COUNT];
            block.sums.counts[ARCS] = state[ALL_ARCS];
            block.sums.counts[FAILED] = state[HAS_FAILED];
        }
        block.own = phase;
    }
    __syncthreads();
    phase = static_cast<u32>(block.own);
    __syncthreads();
    return phase;
}

// The sums of all blocks' searches, in their order.
__device__ __forceinline__ void team_reduce(const Arguments &given, const Team &team) {
    const char *home = given.searches[given.stage.device];
    auto add = [&](double *total, i64 offset, i64 count) {
        for (i64 i = team.thread(); i < count; i += team.threads()) {
            double sum = 0;
            for (u32 which = 0; which < given.block_searches; which++)
                sum += reinterpret_cast<const double *>(home + which * given.layout.nbytes +
                                                        offset)[i];
            total[i] = sum;
        }
    };
    add(given.centrality, given.layout.centrality, given.stage.owned);
    if (given.edges) add(given.edges, given.layout.edges, given.out.offsets[given.stage.owned]);
}

// After blocks searched for themselves.
__device__ __forceinline__ u32 decide_round(const Arguments &given, u64 *state, const Sums &sums) {
    if (state[PHASE] == REDUCE) return STOP;
    state[ALL_COUNT] += sums.counts[REACHED];
    state[ALL_ARCS] += sums.counts[ARCS];
    state[HAS_FAILED] |= sums.counts[FAILED] != 0;
    u64 done = state[SOURCE] + static_cast<u64>(given.sources_a_round) * given.block_searches;
    state[SOURCE] = done < given.source_count ? done : given.source_count;
    if (state[HAS_FAILED]) return STOP;
    return done < given.source_count ? ROUND : REDUCE;
}

// The kernel. `state` begins as Decision::begin leaves it, or with the phase ROUND.
__device__ __forceinline__ void grid_brandes(const Arguments &given) {
    const Stage &stage = given.stage;
    StepControl *control = stage.control;
    auto whole = [&](const Team &team, StepBlock *block, u64 *state) {
        return Search{
            given,       team,  block,        given.searches[stage.device], given.centrality,
            given.edges, state, stage.devices};
    };
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        if ((phase & KINDS) == REDUCE) {
            team_reduce(given, team);
            return;
        }
        bool is_round = (phase & KINDS) == ROUND;
        if (is_round && blockIdx.x >= given.block_searches) return;
        Search search =
            is_round ? block_search(given, control, block) : whole(team, &block, block.state);
        if (is_round) phase = block_next(search, ROUND);
        // One place for all supersteps, so that there is one copy of the code.
        while (phase != STOP) {
            search.found = search.reached = 0;
            search.found_arcs = search.arcs = search.arcs_in = 0;
            team_step(search, phase);
            phase = is_round ? block_next(search, phase) : STOP;
        }
    };
    auto decide = [&](u32, const Sums &sums, u64 *state) -> u32 {
        if (given.block_searches) return state[PHASE] = decide_round(given, state, sums);
        Search search = whole(Team{control, 0, 1}, nullptr, state);
        Decision decision{search, given, state};
        u32 phase = decision.next(sums);
        if (phase == OVER) {
            state[ALL_COUNT] += state[COUNT];
            state[SOURCE] += 1;
            if (state[HAS_FAILED] || state[SOURCE] == given.source_count) return STOP;
            return decision.begin();
        }
        return state[PHASE] = phase;
    };
    run_steps(stage, body, decide);
}
