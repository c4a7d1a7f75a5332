// Runs CUDA kernels on one thread of a CPU: all threads of all blocks of all devices are fibers.
//
// A fiber runs until it waits for its warp, its block or the time, or polls memory; then another does. With a
// random schedule, any access that others may see lets others go first. Memory is sequentially consistent;
// what that hides is found where accesses are checked (emulated_grid_checks.h). Who waits for ever is
// reported, with what everybody waits for.
#include "emulated_grid_checks.h"
#include "emulated_grid_fibers.h"

extern "C" {

void emulated_access(const volatile void *place, unsigned long bytes, unsigned how,
                     const void *code) {
    if (how & races::WRITES) progress += 1;
    if (random_state && random_word() % 4 == 0) yield(nullptr);
    if (is_checking) check(place, bytes, how, code);
}

void emulated_fence(bool system) {
    settle_write();
    progress += 1;
    if (is_checking) races_found.fence(current->number, system);
    if (random_state && random_word() % 4 == 0) yield(nullptr);
}

void emulated_poll(const void *place, unsigned long long found) {
    Fiber *me = current;
    const u64 seen = reinterpret_cast<uintptr_t>(place) * 0x9e3779b97f4a7c15ull ^ found;
    bool is_known = false;
    for (u64 polled : me->polled) is_known = is_known || polled == seen;
    if (!is_known) {
        me->polled[me->polls++ % POLLS] = seen;
        progress += 1;
    }
    yield("polls memory");
}

void emulated_sleep(unsigned nanoseconds) {
    sleepers.push({clock_ns + nanoseconds, sleeps++, current});
    suspend("sleep");
}

unsigned long long emulated_now_ns() { return clock_ns += LOOK_NS; }

const unsigned long long *emulated_exchange(unsigned mask, unsigned long long word,
                                            const char *what, unsigned *came) {
    settle_write();
    Fiber *me = current;
    Warp &warp = me->block->warps[me->thread / WARP];
    const u32 lane = me->thread % WARP;
    if (!(mask >> lane & 1))
        fail("lane %u calls %s with mask %08x, without itself", lane, what, mask);
    Exchange *exchange = nullptr;
    for (auto &one : warp.exchanges)
        if (one->mask == mask) exchange = one.get();
    if (!exchange) {
        warp.exchanges.push_back(std::make_unique<Exchange>());
        exchange = warp.exchanges.back().get();
        exchange->mask = mask;
    }
    if (!exchange->arrived)
        exchange->what = what;
    else if (exchange->what != what && strcmp(exchange->what, what) != 0)
        fail("lanes of one warp (device %u, block %u, warp %u) meet at %s and at %s",
             me->block->launch->device, me->block->index, me->thread / WARP, exchange->what, what);
    const u32 parity = exchange->parity;
    exchange->words[parity][lane] = word;
    exchange->arrived |= 1u << lane;
    progress += 1;
    if (exchange->arrived == (mask & warp.alive)) {
        finish_exchange(*exchange, me);
        if (random_state && random_word() % 4 == 0) yield(nullptr);
    } else {
        exchange->waiting.push_back(me);
        suspend(what);
    }
    *came = exchange->came[parity];
    return exchange->words[parity];
}

unsigned emulated_barrier(bool vote, const char *what) {
    settle_write();
    Block &block = *current->block;
    Barrier &barrier = block.barrier;
    if (!barrier.arrived)
        barrier.what = what;
    else if (barrier.what != what && strcmp(barrier.what, what) != 0)
        fail("threads of one block (device %u, block %u) meet at %s and at %s",
             block.launch->device, block.index, barrier.what, what);
    const u32 parity = barrier.parity;
    barrier.votes += vote;
    progress += 1;
    if (++barrier.arrived == block.alive) {
        finish_barrier(block, current);
    } else {
        barrier.waiting.push_back(current);
        suspend(what);
    }
    return barrier.result[parity];
}

void *emulated_shared(const void *key, unsigned long bytes) {
    Block &block = *current->block;
    auto &found = block.shared[key];
    if (found.empty()) {
        block.shared_bytes += bytes;
        if (block.shared_bytes > STATIC_SHARED_BYTES)
            fail("a block has %zu bytes of shared variables, more than %zu", block.shared_bytes,
                 STATIC_SHARED_BYTES);
        found.assign(bytes + 2 * MARGIN_BYTES, GARBAGE);
    }
    return found.data() + MARGIN_BYTES;
}

void *emulated_dynamic_shared() { return current->block->dynamic_begin; }

// Kernels that run together; as emulated_grid_machine.py has it.
struct EmulatedKernel {
    const emulated::Start *start;
    u32 device, blocks, threads, shared_bytes, resident;
};

// Run kernels together to their ends. Returns null, or what went wrong. With `range_count` memory is checked:
// the ranges are all that kernels may use; `strict` if nothing but __syncwarp orders the lanes of a warp, and equal
// numbers may not be written by several threads; `hosts` if threads of the host write what kernels wait for.
__attribute__((visibility("default"))) const char *emulated_run(
    u32 count, const EmulatedKernel *kernels, u64 seed, u32 range_count, const Range *given_ranges,
    u32 devices, const unsigned char *given_peers, u32 strict, u32 hosts) {
    launches.clear();
    u32 threads = 0;
    for (u32 i = 0; i < count; ++i) {
        const EmulatedKernel &one = kernels[i];
        launches.push_back({one.start, one.device, one.blocks, one.threads, one.shared_bytes,
                            one.resident, threads});
        threads += one.blocks * one.threads;
    }
    random_state = seed ? seed * 0x9e3779b97f4a7c15ull | 1 : 0;
    failure.clear();
    begin_s = wall_s();
    idle_rounds = 0;
    is_checking = range_count > 0;
    is_strict = strict;
    hosts_write = hosts;
    last_write.at = nullptr;
    peers = given_peers;
    device_count = devices;
    if (is_checking) {
        find_ranges(range_count, given_ranges);
        races_found.begin(threads);
    }
    runs_kernels = true;
    if (!_setjmp(caller)) {
        for (Launch &launch : launches)
            for (u32 i = 0; i < launch.resident && i < launch.blocks; ++i) begin_block(launch);
        go_on();
    }
    runs_kernels = false;
    if (failure.empty()) return nullptr;
    for (auto &block : live)
        for (auto &fiber : block->fibers)
            if (fiber->stack) spare_stacks.push_back(fiber->stack);
    live.clear();
    turn.clear();
    turn_at = live_at = 0;
    sleepers = {};
    ready_fibers = alive_fibers = 0;
    return failure.c_str();
}

void emulated_forget(const emulated::Start *start) { delete start; }
}
