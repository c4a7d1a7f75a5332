// Breadth-first search in supersteps that turns its direction (Beamer, Asanovic, Patterson, SC 2012), on one
// to many devices. When to turn is said by counts that are there anyway (Pan et al., multi-GPU Gunrock, VI-A).
//
// Pushing, the owner of a vertex in the frontier marks its neighbours: its own are visited, and queued; of
// those of others it sets bits, which their owners read in a superstep of its own ("receive"), if any were set,
// in which they also tell everyone what is visited.
// Pulling, the owner of an unvisited vertex looks for a neighbour that was visited before this superstep: it is
// in the frontier then, as whoever is visited earlier has no unvisited neighbours. So one bitmap serves as
// frontier and as visited set. There are two, `visited[step & 1]` as of before a superstep and the other as
// of after it, on every device; what an owner finds it stores into all of them, word by word as it goes.
// Pushing changes bitmaps where they are.
//
// Where the frontier is tiny one block of each device pushes alone. It keeps its queue in shared memory, too:
// the other copy is for whoever goes on.
//
// Rows are hot first (step.cuh): most unvisited vertices that have a visited neighbour have one at the
// head of their row, and heads are an array that warps read in lines. Floor of a pull: a bit a vertex of
// `visited`, read and written (to every device), and 4 bytes of head and a random bit for each unvisited one.
#pragma once

#include "bfs_search.cuh"

struct Bfs {
    const Arguments &arguments;
    const Stage &stage;
    const Team &team;
    StepBlock &block;
    AloneQueue &alone;
    PullList *lists;  // of the block's warps
    const u64 *state;
    bool is_alone;
    i32 depth;
    u32 found = 0, found_long = 0, sent = 0, missed = 0;
    u64 looked = 0;

    __device__ __forceinline__ Bfs(const Arguments &given, const Team &with, StepBlock &in,
                                   AloneQueue &queue, PullList *of_warps, bool alone_now)
        : arguments(given),
          stage(given.stage),
          team(with),
          block(in),
          alone(queue),
          lists(of_warps),
          state(in.state),
          is_alone(alone_now),
          depth(static_cast<i32>(state[DEPTH])) {}

    __device__ __forceinline__ u32 parity() const { return static_cast<u32>(state[PARITY]); }
    __device__ __forceinline__ i64 first() const { return stage.first(); }
    __device__ __forceinline__ i64 own_words() const { return stage.capacity / 32; }
    __device__ __forceinline__ u32 *own_visited(u32 which) const {
        return arguments.visited[which][stage.device] + first() / 32;
    }

    // Room in a queue for so many of each lane; returns where the lane's begin. All lanes come.
    __device__ __forceinline__ u32 warp_room(u32 which, u32 amount) {
        u32 end = warp_sum_up_to(amount);
        u32 place = 0;
        if (lane_id() == WARP - 1 && end)
            place =
                atomicAdd(is_alone ? &alone.count[which] : &arguments.local->queued[which], end);
        return __shfl_sync(FULL_WARP, place, WARP - 1) + end - amount;
    }

    __device__ __forceinline__ void thread_queue(u32 which, u32 place, u32 index) {
        if (place >= arguments.queue_room) {
            missed += 1;
            return;
        }
        arguments.queue[which][place] = index;
        if (is_alone && place < ALONE_VERTICES) alone.indexes[which][place] = index;
    }

    // A vertex of this device is reached: note it.
    __device__ __forceinline__ void thread_reach(u32 index) {
        arguments.depth[first() + index] = depth;
        found += 1;
        if (index < arguments.long_below)
            found_long +=
                !arguments.is_directed ||
                arguments.out.offsets[index + 1] - arguments.out.offsets[index] > SHORT_ROW_ARCS;
        if (index == arguments.target) atomicAdd(&block.sums.counts[FOUND_TARGET], 1ull);
    }

    __device__ __forceinline__ void clear() {
        for (u64 i = team.thread(); i < static_cast<u64>(stage.capacity); i += team.threads())
            arguments.depth[first() + i] = UNREACHED;
        i64 words = own_words() * stage.devices;
        for (u64 i = team.thread(); i < static_cast<u64>(words); i += team.threads()) {
            for (u32 which = 0; which < 2; which++) arguments.visited[which][stage.device][i] = 0;
            if (stage.devices > 1) arguments.marks[stage.device][i] = 0;
        }
        if (team.thread() == 0) *arguments.local = BfsLocal{};
    }

    __device__ __forceinline__ void seed() {
        for (u64 base = team.warp() * WARP; base < static_cast<u64>(arguments.seed_count);
             base += team.warps() * WARP) {
            u64 i = base + lane_id();
            bool is_new = false;
            u32 index = 0;
            if (i < static_cast<u64>(arguments.seed_count)) {
                index = static_cast<u32>(arguments.seeds[i]);
                u32 bit = 1u << (index & 31);
                is_new = !(atomicOr(&own_visited(parity())[index >> 5], bit) & bit);
                if (is_new) thread_reach(index);
            }
            u32 place = warp_room(0, is_new);
            if (is_new) thread_queue(0, place, index);
        }
    }

    // The arcs of the frontier: MIXED_UNROLL a lane. One block alone does not look first, as it waits for
    // every trip to memory, and what it reads is near what it read before.
    __device__ __forceinline__ void warp_push(const i64 (&arcs)[MIXED_UNROLL],
                                              const bool (&there)[MIXED_UNROLL], u32 next) {
        Id target[MIXED_UNROLL];
        u32 *visited = arguments.visited[parity()][stage.device];
        bool is_new[MIXED_UNROLL];
#pragma unroll
        for (u32 i = 0; i < MIXED_UNROLL; i++) {
            const Id *place = arguments.out.targets + arcs[i];
            target[i] = !there[i] ? Id(0) : is_alone ? *place : load_once(place);
        }
#pragma unroll
        for (u32 i = 0; i < MIXED_UNROLL; i++) {
            is_new[i] = there[i];
            if (there[i] && !is_alone)
                is_new[i] = !(load_relaxed(visited + (target[i] >> 5)) >> (target[i] & 31) & 1);
        }
        u32 amount = 0;
#pragma unroll
        for (u32 i = 0; i < MIXED_UNROLL; i++) {
            if (!is_new[i]) continue;
            u32 bit = 1u << (target[i] & 31);
            // Of others' vertices the bit here says that their owner was told.
            is_new[i] = !(atomicOr(visited + (target[i] >> 5), bit) & bit);
            i64 index = static_cast<i64>(target[i]) - first();
            if (is_new[i] && (index < 0 || index >= stage.capacity)) {
                set_bits(arguments.marks[stage.device] + (target[i] >> 5), bit);
                sent += 1;
                is_new[i] = false;
            }
            amount += is_new[i];
        }
        if (!__any_sync(FULL_WARP, amount)) return;
        u32 place = warp_room(next, amount);
#pragma unroll
        for (u32 i = 0; i < MIXED_UNROLL; i++) {
            if (!is_new[i]) continue;
            u32 index = static_cast<u32>(target[i] - static_cast<Id>(first()));
            thread_reach(index);
            thread_queue(next, place++, index);
        }
    }

    __device__ __forceinline__ void push() {
        u32 current = static_cast<u32>(state[QUEUE_INDEX]), next = current ^ 1;
        u32 step = static_cast<u32>(state[STEP]);
        const u32 *queue = arguments.queue[current];
        u32 count;
        if (is_alone) {
            bool is_here = alone.step == step;
            count = is_here ? alone.count[current] : arguments.local->queued[current];
            if (is_here) queue = alone.indexes[current];
            __syncthreads();
            if (threadIdx.x == 0) {
                alone.count[next] = 0;
                alone.step = step + 1;
            }
            __syncthreads();
        } else {
            count = arguments.local->queued[current];
        }
        LongRows left{arguments.long_rows, &arguments.local->long_rows};
        auto visit = [&](const i64(&arcs)[MIXED_UNROLL], const u32(&)[MIXED_UNROLL],
                         const bool (&there)[MIXED_UNROLL]) { warp_push(arcs, there, next); };
        for (u64 base = team.warp() * WARP; base < count; base += team.warps() * WARP) {
            u64 place = base + lane_id();
            i64 begin = 0, end = 0;
            u32 index = 0;
            if (place < count) {
                index = queue[place];
                begin = arguments.out.offsets[index];
                end = arguments.out.offsets[index + 1];
            }
            looked += static_cast<u64>(end - begin);
            if (end - begin > LONG_ROW_ARCS) {
                thread_leave(left, index, begin, end);
                end = begin;
            }
            warp_visit_rows(begin, static_cast<u32>(end - begin), index, visit);
        }
        if (is_alone) {  // without long rows
            __syncthreads();
            if (threadIdx.x == 0) arguments.local->queued[next] = alone.count[next];
        } else if (state[LONG_ROWS]) {
            team.wait(block);
            team_visit_long_rows(team, left, visit);
        }
    }

    // What others marked of this device's vertices; the marks are cleared, as nobody sets any meanwhile.
    __device__ __forceinline__ void receive() {
        u32 next = static_cast<u32>(state[QUEUE_INDEX]);
        u32 *visited = own_visited(parity());
        i64 offset = first() / 32;
        for (u64 base = team.warp() * WARP; base < static_cast<u64>(own_words());
             base += team.warps() * WARP) {
            u64 at = base + lane_id();
            u32 word = 0;
            for (u32 other = 0; other < stage.devices; other++) {
                if (other == stage.device) continue;
                u32 *marks = arguments.marks[other] + offset + at;
                u32 theirs = load_system(marks);
                if (theirs) store_system(marks, 0u);
                word |= theirs;
            }
            u32 before = visited[at];
            word &= ~before;
            for (u32 other = 0; other < stage.devices; other++)
                arguments.visited[parity()][other][offset + at] = before | word;
            warp_queue_words(word, static_cast<u32>(at), next, true);
        }
    }

    // Queue the vertices whose bits are set in the lanes' words.
    __device__ __forceinline__ void warp_queue_words(u32 word, u32 at, u32 which, bool reaches) {
        if (!__any_sync(FULL_WARP, word != 0)) return;
        u32 place = warp_room(which, __popc(word));
        while (word) {
            u32 index = at * 32 + __ffs(word) - 1;
            word &= word - 1;
            if (reaches) thread_reach(index);
            thread_queue(which, place++, index);
        }
    }

    // Everyone learns what this device's vertices are.
    __device__ __forceinline__ void spread() {
        const u32 *visited = own_visited(parity());
        i64 offset = first() / 32;
        for (u64 at = team.thread(); at < static_cast<u64>(own_words()); at += team.threads()) {
            u32 word = visited[at];
            for (u32 other = 0; other < stage.devices; other++)
                if (other != stage.device) arguments.visited[parity()][other][offset + at] = word;
        }
    }

    // After queues were enlarged: the frontier is what was found last.
    __device__ __forceinline__ void queue_again() {
        u32 which = static_cast<u32>(state[QUEUE_INDEX]);
        for (u64 base = team.warp() * WARP; base < static_cast<u64>(stage.owned);
             base += team.warps() * WARP) {
            u64 index = base + lane_id();
            bool is_last = index < static_cast<u64>(stage.owned) &&
                           arguments.depth[first() + index] == depth - 1;
            if (!__any_sync(FULL_WARP, is_last)) continue;
            u32 place = warp_room(which, is_last);
            if (is_last) thread_queue(which, place, static_cast<u32>(index));
        }
    }

    // After pulling: the frontier is where the two bitmaps differ.
    __device__ __forceinline__ void queue() {
        u32 which = static_cast<u32>(state[QUEUE_INDEX]);
        const u32 *now = own_visited(parity()), *before = own_visited(parity() ^ 1);
        for (u64 base = team.warp() * WARP; base < static_cast<u64>(own_words());
             base += team.warps() * WARP) {
            u64 at = base + lane_id();
            warp_queue_words(now[at] & ~before[at], static_cast<u32>(at), which, false);
        }
    }

    // A warp takes PULL_SPAN words at a time, a lane each. First it looks at the heads of the rows of all open
    // vertices, then at what is behind the heads of those that are left, 32 at a time: what counts is how many
    // loads are under way.
    __device__ __forceinline__ void pull() {
        const u32 *own = own_visited(parity());
        u32 next = parity() ^ 1;
        i64 offset = first() / 32;
        PullList &list = lists[warp_id()];
        // Vertices without arcs come last, and are not found.
        u32 active = static_cast<u32>(arguments.in.classes[CLASS_NONE]);
        u32 words = (active + 31) / 32;
        for (u64 span = team.warp(); span * PULL_SPAN < words; span += team.warps()) {
            u32 first_word = static_cast<u32>(span * PULL_SPAN), at = first_word + lane_id();
            bool is_mine = lane_id() < PULL_SPAN && at < words;
            u32 mine = is_mine ? own[at] : FULL_WARP;
            u32 beyond = at + 1 == words && (active & 31) ? FULL_WARP << (active & 31) : 0;
            u32 open = ~(mine | beyond);
            if (__any_sync(FULL_WARP, open != 0)) {
                u32 left = warp_look_at_heads(list, first_word, open, mine);
                __syncwarp();
                for (u32 base = 0; base < left; base += WARP) {
                    bool searches = base + lane_id() < left;
                    u32 place = searches ? list.places[base + lane_id()] : 0;
                    u32 index = first_word * 32 + place;
                    u32 outcome = warp_search(
                        arguments.in, arguments.visited[parity()][stage.device], searches, index);
                    looked += outcome >> 1;
                    if (!(outcome & 1)) continue;
                    thread_reach(index);
                    atomicOr(&list.found[place >> 5], 1u << (place & 31));
                }
                __syncwarp();
                if (lane_id() < PULL_SPAN) mine |= list.found[lane_id()];
            }
            for (u32 other = 0; other < stage.devices; other++)
                if (is_mine) arguments.visited[next][other][offset + at] = mine;
        }
    }

    // Look at the heads of the rows of open vertices of PULL_SPAN words, of which lanes have one each: what is
    // found goes to `mine`, and what is not to the list. Returns how many these are.
    __device__ __forceinline__ u32 warp_look_at_heads(PullList &list, u32 first_word, u32 open,
                                                      u32 &mine) {
        const u32 *visited = arguments.visited[parity()][stage.device];
        u32 left = 0, words = __ballot_sync(FULL_WARP, open != 0);
        if (lane_id() < PULL_SPAN) list.found[lane_id()] = 0;
        while (words) {
            u32 from[PULL_WORDS], bits[PULL_WORDS];
            Id head[PULL_WORDS];
#pragma unroll
            for (u32 i = 0; i < PULL_WORDS; i++) {
                from[i] = words ? __ffs(words) - 1 : WARP;
                words &= words - 1;
                u32 word = __shfl_sync(FULL_WARP, open, from[i] % WARP);
                bool is_open = from[i] < WARP && (word >> lane_id() & 1);
                u32 index = (first_word + from[i]) * 32 + lane_id();
                head[i] = is_open ? load_once(arguments.in.heads + index) : Id(-1);
            }
#pragma unroll
            for (u32 i = 0; i < PULL_WORDS; i++) bits[i] = head[i] >= 0 ? visited[head[i] >> 5] : 0;
#pragma unroll
            for (u32 i = 0; i < PULL_WORDS; i++) {
                u32 place = from[i] * 32 + lane_id();
                bool is_new = bits[i] >> (head[i] & 31) & 1;
                bool is_left = head[i] >= 0 && !is_new;
                if (head[i] >= 0) looked += 1;
                if (is_new) thread_reach(first_word * 32 + place);
                u32 found_here = __ballot_sync(FULL_WARP, is_new);
                if (lane_id() == from[i]) mine |= found_here;
                u32 others = __ballot_sync(FULL_WARP, is_left);
                u32 before = __popc(others & ((1u << lane_id()) - 1));
                if (is_left) list.places[left + before] = static_cast<u16>(place);
                left += __popc(others);
            }
        }
        return left;
    }

    __device__ __forceinline__ void count() {
        warp_count(block, FOUND, found);
        warp_count(block, FOUND_LONG, found_long);
        if (stage.devices > 1) warp_count(block, SENT, sent);
        warp_count(block, LOOKED, looked);
        warp_count(block, MISSED, missed);
    }
};

// A frontier that a queue had no room for is queued again, from depths, when the host has enlarged the queues:
// everything else is noted where there is room for all. Where pulling comes next no queue is needed.
__device__ __forceinline__ u32 bfs_push_phase(u64 *state) {
    if (state[HAS_MISSED]) {
        state[HAS_MISSED] = 0;
        state[GROWTHS] += 1;
        return QUEUE_AGAIN | LEAVE_FIRST;
    }
    bool is_tiny = state[FRONTIER] <= ALONE_VERTICES && state[LONG_ROWS] == 0;
    return is_tiny ? PUSH | ALONE : static_cast<u32>(PUSH);
}

// What comes after a frontier is complete.
__device__ __forceinline__ u32 bfs_next(u64 *state) {
    if (state[FRONTIER] == 0 || state[DEPTH] >= state[LIMIT]) return STOP;
    state[DEPTH] += 1;
    state[STEPS] += 1;
    double frontier = static_cast<double>(state[FRONTIER]);
    double visited = static_cast<double>(state[VISITED]);
    double vertices = static_cast<double>(state[VERTICES]);
    double open = vertices - visited;
    if (state[STEPS] == state[DEEP_STEPS] && frontier * 256 < open) {
        state[IS_DEEP] = 1;
        return STOP;
    }
    // Arcs that pushing would look at, and pulling; both times vertices * visited.
    double forward = frontier * static_cast<double>(state[ARCS]) * visited;
    double backward = open * vertices * vertices;
    if (state[QUEUED]) {
        if (!state[PULLED] && forward > backward * amount_of(state[TURN_DOWN])) {
            state[QUEUED] = 0;
            state[PULLED] = 1;
            state[HAS_MISSED] = 0;
            return state[SPREADED] ? PULL : SPREAD;
        }
        return bfs_push_phase(state);
    }
    return forward < backward * amount_of(state[TURN_BACK]) ? QUEUE : PULL;
}

__device__ __forceinline__ void grid_bfs(const Arguments &arguments) {
    __shared__ AloneQueue alone;
    __shared__ PullList lists[1024 / WARP];
    if (threadIdx.x == 0) alone.step = NO_STEP;
    auto body = [&](u32 phase, const Team &team, StepBlock &block) {
        Bfs bfs(arguments, team, block, alone, lists, phase & ALONE);
        switch (phase & ~ALONE) {
            case BEGIN:
                bfs.clear();
                team.wait(block);
                bfs.seed();
                break;
            case PUSH:
                bfs.push();
                break;
            case RECEIVE:
                bfs.receive();
                break;
            case SPREAD:
                bfs.spread();
                break;
            case PULL:
                bfs.pull();
                break;
            case QUEUE:
                bfs.queue();
                break;
            case QUEUE_AGAIN:
                if (team.thread() == 0) arguments.local->queued[bfs.state[QUEUE_INDEX]] = 0;
                team.wait(block);
                bfs.queue_again();
                break;
        }
        bfs.count();
    };
    auto decide = [&](u32 phase, const Sums &sums, u64 *state) -> u32 {
        state[VISITED] += sums.counts[FOUND];
        u64 long_rows = sums.counts[FOUND_LONG];
        bool is_over = sums.counts[FOUND_TARGET] != 0;
        state[HAS_MISSED] |= sums.counts[MISSED] != 0;
        switch (phase & ~ALONE) {
            case BEGIN:
                state[FRONTIER] = sums.counts[FOUND];
                state[LONG_ROWS] = long_rows;
                if (is_over) state[LIMIT] = state[DEPTH];
                return bfs_next(state);
            case PUSH:
                state[QUEUE_INDEX] ^= 1;
                arguments.local->queued[state[QUEUE_INDEX] ^ 1] = 0;
                arguments.local->long_rows = 0;
                state[FRONTIER] = sums.counts[FOUND];
                state[LONG_ROWS] = long_rows;
                if (is_over) state[LIMIT] = state[DEPTH];
                state[SPREADED] = arguments.stage.devices == 1;
                if (sums.counts[SENT]) return RECEIVE;
                return bfs_next(state);
            case RECEIVE:
                state[SPREADED] = 1;
                state[FRONTIER] += sums.counts[FOUND];
                state[LONG_ROWS] += long_rows;
                if (is_over) state[LIMIT] = state[DEPTH];
                return bfs_next(state);
            case SPREAD:
                return PULL;
            case PULL:
                state[PARITY] ^= 1;
                arguments.local->queued[state[QUEUE_INDEX]] = 0;
                state[FRONTIER] = sums.counts[FOUND];
                state[LONG_ROWS] = long_rows;
                if (is_over) state[LIMIT] = state[DEPTH];
                return bfs_next(state);
            case QUEUE:
            case QUEUE_AGAIN:
                state[QUEUED] = 1;
                return bfs_push_phase(state);
        }
        return STOP;
    };
    run_steps(arguments.stage, body, decide);
}
