// Betweenness: sums of Brandes' dependencies over sources, in supersteps, or with a search per block.
//
// U. Brandes, A faster algorithm for betweenness centrality, Journal of Mathematical Sociology 25 (2001).
// From a source, paths(v) is the sum of paths over the neighbours one level before; then, from the last
// level back, coefficient(v) = sum + 1 / paths(v), where sum is that of the coefficients of the neighbours
// one level after, and the dependency on v is paths(v) * sum. A level takes one superstep forward and one
// back. While few vertices are unvisited the next level is found from all of them (*dense*), else from the
// rows of this one.
//
// The own vertices of a level are in a list, in the order of discovery, or, if it was found densely, those
// with its depth among all. Either way a warp takes up to 32 of them.
//
// Lower bound: each row is read twice, 4 bytes an arc each (520.8M arcs: 4.2 GB, 1.1 ms at 4 TB/s); each
// arc between two levels reads a value of 8 bytes at random, twice. Bits of sets come from caches.
//
// With many sources on a graph that does not fill a GPU, each block does searches of its own, in memory of
// its own, without waiting for others; at the end the sums of blocks are added in their order.
#pragma once

#include "algorithms/betweenness/search.cuh"

// Begin a search: only the source is visited. The first one also clears the sums.
__device__ __forceinline__ void team_begin(Search &search) {
    const Arguments &given = search.given;
    i64 source = static_cast<i64>(search.state[ORIGIN]);
    i64 own = source - search.first();
    bool is_first = search.state[SOURCE] < max(1u, given.block_searches);
    bool is_mine = own >= 0 && own < given.stage.owned;
    for (i64 i = search.team.thread(); i < given.words; i += search.team.threads()) {
        u32 bits = i == source >> 5 ? 1u << (source & 31) : 0;
        search.visited()[i] = bits;
        search.set(0)[i] = bits;
        for (u32 level = 1; level < SETS; level++) search.set(level)[i] = 0;
    }
    for (i64 i = search.team.thread(); i < given.stage.owned; i += search.team.threads()) {
        search.depths()[i] = i == own ? 0 : NO_DEPTH;
        if (is_first) search.centrality[i] = 0;
    }
    i64 edges = is_first && search.edges ? given.out.offsets[given.stage.owned] : 0;
    for (i64 i = search.team.thread(); i < edges; i += search.team.threads()) search.edges[i] = 0;
    if (search.team.thread() != 0) return;
    if (search.device() == 0) search.block->sums.counts[BEGUN] += 1;
    SearchCounters *counters = search.counters();
    counters->tail = is_mine;
    counters->taken_tail = 0;
    for (u32 other = 0; other < MAX_DEVICES; other++) {
        counters->sent[0][other] = counters->sent_before[0][other] = 0;
    }
    search.place<Id>(given.layout.ends)[0] = is_mine;
    search.place<Id>(given.layout.taken_ends)[0] = 0;
    search.values()[source] = 1;
    if (is_mine) {
        search.place<Id>(given.layout.order)[0] = static_cast<Id>(own);
        search.thread_count_row(own);
    }
}

// Append own vertices that other devices claimed to the list `taken`.
__device__ __forceinline__ void team_take(Search &search) {
    const Arguments &given = search.given;
    for (u32 other = 0; other < search.devices; other++) {
        if (other == search.device()) continue;
        const SearchCounters *theirs = search.at(other, search.counters());
        u32 parity = (search.depth - 1) & 1;
        u64 begin = load_system(&theirs->sent_before[parity][search.device()]);
        u64 end = begin + load_system(&theirs->sent[parity][search.device()]);
        const Id *inbox = search.place<Id>(given.layout.inbox) + other * given.stage.capacity;
        for (u64 first = begin + search.team.thread() - lane_id(); first < end;
             first += search.team.threads()) {
            bool is_fresh = false;
            i64 own = 0;
            if (first + lane_id() < end) {
                i64 target = inbox[first + lane_id()];
                own = target - search.first();
                u32 bit = 1u << (target & 31);
                is_fresh = !(atomicOr(search.visited() + (target >> 5), bit) & bit);
                if (is_fresh) {
                    set_bits(search.set(search.depth) + (target >> 5), bit);
                    search.depths()[own] = search.depth;
                }
            }
            warp_append(&search.counters()->taken_tail, search.place<Id>(given.layout.taken),
                        is_fresh, static_cast<Id>(own));
        }
    }
    search.team.wait(*search.block);
}

// Store this level's set of own vertices on all devices.
__device__ __forceinline__ void team_show_set(Search &search, bool is_dense, bool is_closed) {
    if (search.devices == 1) return;
    u32 *set = search.set(search.depth);
    i64 size = search.given.in.classes[CLASS_NONE];
    if (is_dense) {
        i64 first = search.first() >> 5;
        for (i64 i = search.team.thread(); i < (size + 31) / 32; i += search.team.threads())
            search.store_everywhere(set + first + i, load_relaxed(set + first + i));
        return;
    }
    auto list = search.list(search.depth, is_closed);
    for (i64 i = search.team.thread(); i < list.size; i += search.team.threads()) {
        u32 *word = set + ((search.first() + search.listed(list, i)) >> 5);
        search.store_everywhere(word, load_relaxed(word));
    }
}

// Clear the set of a level: of a list, by the owners in all copies; of a dense level, by each device in its
// own.
__device__ __forceinline__ void team_clear_set(Search &search, u32 level) {
    u32 *set = search.set(level);
    if (search.is_dense(level)) {
        for (i64 i = search.team.thread(); i < search.given.words; i += search.team.threads())
            set[i] = 0;
        return;
    }
    auto list = search.list(level, true);
    for (i64 i = search.team.thread(); i < list.size; i += search.team.threads())
        search.store_everywhere(set + ((search.first() + search.listed(list, i)) >> 5), 0u);
}

// Return whether a vertex takes part in this superstep, where there is no list.
__device__ __forceinline__ bool thread_wants(const Search &search, const Pass &pass, i64 own) {
    if (pass.is_dense && (pass.what & GATHERS)) {
        i64 position = search.first() + own;
        return !(load_relaxed(search.visited() + (position >> 5)) >> (position & 31) & 1);
    }
    return load_relaxed(search.depths() + own) == search.depth;
}

// Process the sum of a vertex's row; return whether the vertex is added to the set of this level.
__device__ __forceinline__ bool thread_finish(Search &search, const Pass &pass, i64 own,
                                              double sum) {
    if (pass.what & DEPENDS) {
        search.thread_depend(own, sum);
        return true;
    }
    if (!(pass.what & GATHERS) || (pass.is_dense && sum == 0)) return false;
    search.thread_reach(own, sum);
    if (pass.is_dense) search.depths()[own] = search.depth;
    return pass.is_dense;
}

__device__ __forceinline__ void thread_mark(Search &search, const Pass &pass, i64 own, u32 bits) {
    i64 word = (search.first() + own) >> 5;
    if (pass.what & GATHERS) set_bits(search.visited() + word, bits);
    set_bits(search.set(search.depth) + word, bits);
}

// Visit the long rows of a level, each with a block; that of the source with the whole team.
__device__ __forceinline__ void team_long_rows(Search &search, const Pass &pass) {
    __shared__ i64 chosen[1024];
    __shared__ u32 count;
    const Team &team = search.team;
    bool is_source = search.depth == 0 && (pass.what & EXPANDS);
    i64 size = is_source ? 1 : pass.long_rows.count;
    for (i64 base = 0; base < size; base += team.threads()) {
        i64 mine = base + static_cast<i64>(threadIdx.x) * team.blocks + team.block, own = -1;
        if (is_source && threadIdx.x == 0)
            own = static_cast<i64>(search.state[ORIGIN]) - search.first();
        else if (!is_source && mine < size)
            own = pass.long_rows.rows[mine];
        bool is_mine = own >= 0 && own < search.given.stage.owned;
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        if (is_mine && thread_wants(search, pass, own)) chosen[atomicAdd(&count, 1u)] = own;
        __syncthreads();
        u32 all = count;
        u64 warp = is_source ? team.warp() : warp_id();
        u64 warps = is_source ? team.warps() : blockDim.x / WARP;
        for (u32 which = 0; which < all; which++) {
            own = chosen[which];
            double sum = search.block_row(pass, static_cast<Id>(own), warp, warps);
            if (threadIdx.x == 0 && thread_finish(search, pass, own, sum))
                thread_mark(search, pass, own, 1u << (own & 31));
        }
        __syncthreads();
    }
}

// Visit the other rows of a level. `scans`: whether arcs have to be read.
__device__ __forceinline__ void team_rows(Search &search, const Pass &pass, bool scans) {
    const Team &team = search.team;
    bool is_dense = pass.is_dense;
    auto list = search.list(is_dense ? 0 : search.depth, (pass.what & DEPENDS) != 0);
    const i64 *classes = search.given.in.classes;  // the same for both directions
    Id size = is_dense ? static_cast<Id>(classes[CLASS_NONE]) : list.size;
    // Warps take the vertices with many arcs one by one; of a list, as many at once as leave some to all
    // warps.
    Id heavy = is_dense ? static_cast<Id>(classes[CLASS_WARP] / WARP * WARP) : size;
    Id warps = static_cast<Id>(team.warps()), share = 1;
    while (!is_dense && share < static_cast<Id>(WARP) && share * warps < size) share *= 2;
    Id tasks = (heavy + share - 1) / share;
    for (Id task = static_cast<Id>(team.warp());; task += warps) {
        bool is_word = task >= tasks;
        i64 first = is_word ? heavy + static_cast<i64>(task - tasks) * WARP
                            : static_cast<i64>(task) * share;
        if (first >= size) break;
        Id number = static_cast<Id>(first + lane_id());
        bool is_there = number < size && (is_word || lane_id() < share);
        Id own = is_dense || !is_there ? number : search.listed(list, number);
        if (is_dense) is_there = is_there && thread_wants(search, pass, own);
        if (!__any_sync(FULL_WARP, is_there)) continue;
        bool is_long = is_there && scans && pass.long_rows.count &&
                       pass.offsets[own + 1] - pass.offsets[own] > LONG_ROW;
        double sum = 0;
        if (scans) sum = search.warp_rows(pass, own, is_there);
        bool marks = is_there && !is_long && thread_finish(search, pass, own, sum);
        u32 bits = 1u << (own & 31);
        if (is_word) {  // a whole word of the set
            bits = __ballot_sync(FULL_WARP, marks);
            marks = lane_id() == 0 && bits;
        }
        if (marks) thread_mark(search, pass, own, bits);
    }
}

// Count the paths of the first level: arcs from the source.
__device__ __forceinline__ void team_count_arcs(Search &search) {
    auto list = search.list(1, false);
    i64 source = static_cast<i64>(search.state[ORIGIN]);
    for (i64 i = search.team.thread(); i < list.size; i += search.team.threads()) {
        i64 own = search.listed(list, i);
        search.thread_reach(own, search.thread_count_arcs(own, source));
    }
}

// Mark remote vertices of a level visited, so that they are not sent to their owners later.
__device__ __forceinline__ void team_visit_others(Search &search, u32 level) {
    if (search.devices == 1) return;
    const u32 *set = search.set(level);
    i64 begin = search.first() >> 5, end = begin + (search.given.stage.capacity >> 5);
    for (i64 i = search.team.thread(); i < search.given.words; i += search.team.threads())
        if (i < begin || i >= end) search.visited()[i] |= set[i];
}

// Kinds of supersteps.
constexpr u32 BEGIN = 0;
constexpr u32 LIST = 1;          // with GATHERS, EXPANDS or both
constexpr u32 DENSE = 2;         // find a level and count its paths
constexpr u32 DENSE_EXPAND = 3;  // find the next from its rows
constexpr u32 DEPEND = 4;
constexpr u32 ROUND = 5;   // each block does searches of its own
constexpr u32 REDUCE = 6;  // add the sums of blocks
constexpr u32 OVER = 7;    // end of a search
constexpr u32 SCALE = 8;   // multiply the sums of vertices by their factors
constexpr u32 KINDS = 15;

// A level is found from all unvisited vertices only if it has 1 / DENSE_SHARE of all arcs: reading the
// bitmap of visited vertices has a cost, too.
constexpr u64 DENSE_SHARE = 256;

// Prepare the lists and sets of a level; return the operations on its rows.
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
            if (depth > 1 || !search.given.is_by_degree) return phase & (GATHERS | EXPANDS);
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

// Do a superstep of a search.
__device__ __forceinline__ void team_step(Search &search, u32 phase) {
    const Arguments &given = search.given;
    u32 kind = phase & KINDS, depth = static_cast<u32>(search.state[DEPTH]);
    search.depth = depth;
    u32 what = team_open(search, phase);
    bool is_dense =
        kind == DENSE || kind == DENSE_EXPAND || (kind == DEPEND && search.is_dense(depth));
    // The last level has no successors, and those of the source matter for its arcs only.
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

// The next superstep of a search, decided by one thread from sums and state that are equal on all devices.
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

    // Record the ends of the next level.
    __device__ __forceinline__ void close_level(u64 depth) const {
        ends()[depth + 1] = static_cast<Id>(search.counters()->tail);
        taken_ends()[depth] = static_cast<Id>(search.counters()->taken_tail);
    }

    // Go to the next level. Its counters are those that other devices read during this one: all have met
    // since.
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

    // Go on with the vertices found at the next depth.
    __device__ __forceinline__ u32 descend(const Sums &sums) const {
        u64 mine = sums.counts[FOUND], sent = sums.counts[SENT], depth = state[DEPTH];
        if (mine + sent == 0) return turn_back(depth);
        u64 mean = mine ? sums.counts[FOUND_ARCS] / mine : given.mean_degree;
        u64 frontier = sums.counts[FOUND_ARCS] + sent * mean;
        deepen();
        state[ARRIVING] = sent;
        // The lengths of the rows of sent vertices are known to their owners only.
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

    // Initialize the state of a search.
    __device__ __forceinline__ u32 begin() const {
        state[DEPTH] = state[SEEN] = state[ARRIVING] = 0;
        state[COUNT] = 1;
        state[ORIGIN] = given.source(state[SOURCE]);
        state[DENSE_BEGIN] = state[DENSE_END] = NO_DEPTH;
        return state[PHASE] = BEGIN;
    }
};

// Return a block's own search.
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

// Return the phase of the next superstep of a block's own search, after `phase` (ROUND: none yet); STOP
// after the last source of its round, whose counts are then in the block's sums. All threads take part.
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

// Add the sums of all blocks' searches in the order of blocks.
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

// Scale the sums of vertices, those of sources by another factor.
__device__ __forceinline__ void team_scale(const Arguments &given, const Team &team,
                                           StepBlock &block) {
    if (given.scale_of_sources != 1) {
        for (u64 i = team.thread(); i < given.all_sources; i += team.threads()) {
            i64 own = static_cast<i64>(given.sources[i]) - given.stage.first();
            if (own >= 0 && own < given.stage.owned)
                given.centrality[own] *= given.scale_of_sources;
        }
        team.wait(block);
    }
    // Vertices without arcs come last, and have none.
    for (i64 i = team.thread(); i < given.in.classes[CLASS_NONE]; i += team.threads())
        given.centrality[i] *= given.scale;
}

// Return the phase after all searches.
__device__ __forceinline__ u32 last_phase(const Arguments &given) {
    return given.scale != 1 || given.scale_of_sources != 1 ? SCALE : STOP;
}

// Return the next phase after a round of blocks' own searches.
__device__ __forceinline__ u32 decide_round(const Arguments &given, u64 *state, const Sums &sums) {
    if (state[PHASE] == REDUCE) return last_phase(given);
    state[ALL_COUNT] += sums.counts[REACHED];
    state[ALL_ARCS] += sums.counts[ARCS];
    state[HAS_FAILED] |= sums.counts[FAILED] != 0;
    u64 done = state[SOURCE] + static_cast<u64>(given.sources_a_round) * given.block_searches;
    state[SOURCE] = done < given.source_count ? done : given.source_count;
    if (state[HAS_FAILED]) return STOP;
    return done < given.source_count ? ROUND : REDUCE;
}

// The kernel. A run begins with the state that Decision::begin makes, or with the phase ROUND.
__device__ __forceinline__ void grid_betweenness(const Arguments &given) {
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
        if ((phase & KINDS) == SCALE) {
            team_scale(given, team, block);
            return;
        }
        bool is_round = (phase & KINDS) == ROUND;
        if (is_round && blockIdx.x >= given.block_searches) return;
        Search search =
            is_round ? block_search(given, control, block) : whole(team, &block, block.state);
        if (is_round) phase = block_next(search, ROUND);
        // A single call site, so that there is one copy of the code.
        while (phase != STOP) {
            search.found = search.reached = 0;
            search.found_arcs = search.arcs = search.arcs_in = 0;
            team_step(search, phase);
            phase = is_round ? block_next(search, phase) : STOP;
        }
    };
    auto decide = [&](u32, const Sums &sums, u64 *state) -> u32 {
        if (state[PHASE] == SCALE) return STOP;
        if (given.block_searches) return state[PHASE] = decide_round(given, state, sums);
        Search search = whole(Team{control, 0, 1}, nullptr, state);
        Decision decision{search, given, state};
        u32 phase = decision.next(sums);
        if (phase == OVER) {
            state[ALL_COUNT] += state[COUNT];
            state[SOURCE] += 1;
            if (state[HAS_FAILED]) return STOP;
            if (state[SOURCE] == given.source_count) return state[PHASE] = last_phase(given);
            return decision.begin();
        }
        return state[PHASE] = phase;
    };
    run_steps(stage, body, decide);
}
