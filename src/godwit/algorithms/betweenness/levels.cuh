// Levels of a search: what a team does in each kind of superstep.
//
// A level's own vertices are in a list, in the order in which they were found, or, if most of what is left was
// found at once ("dense"), those whose depth it is among all. Either way a warp takes up to 32 of them.
#pragma once

#include "algorithms/betweenness/search.cuh"

// Begin a search: nothing is visited but the source.
__device__ __forceinline__ void team_begin(Search &search) {
    const Arguments &given = search.given;
    i64 source = given.sources[search.state[SOURCE]];
    i64 own = source - search.first();
    bool is_mine = own >= 0 && own < given.stage.owned;
    for (i64 i = search.team.thread(); i < given.words; i += search.team.threads()) {
        u32 bits = i == source >> 5 ? 1u << (source & 31) : 0;
        search.visited()[i] = bits;
        search.set(0)[i] = bits;
        for (u32 level = 1; level < SETS; level++) search.set(level)[i] = 0;
    }
    for (i64 i = search.team.thread(); i < given.stage.owned; i += search.team.threads())
        search.depths()[i] = i == own ? 0 : NO_DEPTH;
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

// What others found of this device's vertices comes into the list `taken`.
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
            search.warp_append(&search.counters()->taken_tail, search.place<Id>(given.layout.taken),
                               __ballot_sync(FULL_WARP, is_fresh), own);
        }
    }
    search.team.wait(*search.block);
}

// Others learn which own vertices are in this level.
__device__ __forceinline__ void team_show_set(Search &search, bool is_dense, bool is_on_record) {
    if (search.devices == 1) return;
    u32 *set = search.set(search.depth);
    i64 size = search.given.in.classes[CLASS_NONE];
    if (is_dense) {
        i64 first = search.first() >> 5;
        for (i64 i = search.team.thread(); i < (size + 31) / 32; i += search.team.threads())
            search.store_everywhere(set + first + i, load_relaxed(set + first + i));
        return;
    }
    auto list = search.list(search.depth, is_on_record);
    for (i64 i = search.team.thread(); i < list.size; i += search.team.threads()) {
        u32 *word = set + ((search.first() + search.listed(list, i)) >> 5);
        search.store_everywhere(word, load_relaxed(word));
    }
}

// Empty the set of a level: that of a list by its owners everywhere, that of a dense one by everyone at home.
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

// Whether a vertex has to do with this superstep, where no list says so.
__device__ __forceinline__ bool thread_wants(const Search &search, const Pass &pass, i64 own) {
    if (pass.is_dense && (pass.what & GATHERS)) {
        i64 position = search.first() + own;
        return !(load_relaxed(search.visited() + (position >> 5)) >> (position & 31) & 1);
    }
    return load_relaxed(search.depths() + own) == search.depth;
}

// A vertex' row was summed up. Returns whether it is to be marked in the set of this level.
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

// The long rows of a level, a block each; that of the source is shared by the team.
__device__ __forceinline__ void team_long_rows(Search &search, const Pass &pass) {
    __shared__ i64 chosen[1024];
    __shared__ u32 count;
    const Team &team = search.team;
    bool is_source = search.depth == 0 && (pass.what & EXPANDS);
    i64 size = is_source ? 1 : pass.long_rows.count;
    for (i64 base = 0; base < size; base += team.threads()) {
        i64 mine = base + static_cast<i64>(threadIdx.x) * team.blocks + team.block, own = -1;
        if (is_source && threadIdx.x == 0)
            own = search.given.sources[search.state[SOURCE]] - search.first();
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

// The rows of a level that are not long. `scans`: whether there is anything to be found in them.
__device__ __forceinline__ void team_rows(Search &search, const Pass &pass, bool scans) {
    const Team &team = search.team;
    bool is_dense = pass.is_dense;
    auto list = search.list(is_dense ? 0 : search.depth, (pass.what & DEPENDS) != 0);
    const i64 *classes = search.given.in.classes;  // the same for both directions
    Id size = is_dense ? static_cast<Id>(classes[CLASS_NONE]) : list.size;
    // Of all vertices, those of many arcs are dealt out one by one; of a list, so many that all warps have some.
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
        if (is_word) {  // one of the set
            bits = __ballot_sync(FULL_WARP, marks);
            marks = lane_id() == 0 && bits;
        }
        if (marks) thread_mark(search, pass, own, bits);
    }
}

// In the first level, the number of paths is that of the arcs from the source.
__device__ __forceinline__ void team_count_arcs(Search &search) {
    auto list = search.list(1, false);
    i64 source = search.given.sources[search.state[SOURCE]];
    for (i64 i = search.team.thread(); i < list.size; i += search.team.threads()) {
        i64 own = search.listed(list, i);
        search.thread_reach(own, search.thread_count_arcs(own, source));
    }
}

// What devices know of each other's vertices by the sets is not to be sent to them later.
__device__ __forceinline__ void team_visit_others(Search &search, u32 level) {
    if (search.devices == 1) return;
    const u32 *set = search.set(level);
    i64 begin = search.first() >> 5, end = begin + (search.given.stage.capacity >> 5);
    for (i64 i = search.team.thread(); i < search.given.words; i += search.team.threads())
        if (i < begin || i >= end) search.visited()[i] |= set[i];
}
