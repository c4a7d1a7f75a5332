// Fibers that stand for threads of GPUs: blocks begin and end, fibers wait and go on, in a schedule that a seed
// chooses. All state is of the process: one set of kernels runs at a time, on one thread.
//
// By turns (seed 0) each block's ready fibers go on once, block after block. At random any ready fiber does, and
// now and then a block lags far behind. Time is virtual: it goes on by switches, by sleeping, and in leaps where
// all that anybody does is to poll what does not change. Where hosts write what kernels poll, it goes on as theirs
// does instead of in leaps, or a busy machine's host would come later than kernels wait.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#include "emulated_grid_races.h"

struct EmulatedExtent {
    unsigned x, y, z;
};
extern "C" {
EmulatedExtent threadIdx{}, blockIdx{}, blockDim{1, 1, 1}, gridDim{1, 1, 1};
}

namespace emulated {
struct Start {
    virtual void run() const = 0;
    virtual size_t size() const = 0;
    virtual ~Start() = default;
};
}  // namespace emulated

extern "C" void emulated_poll(const void *place, unsigned long long found);

namespace {

using u8 = unsigned char;
using u32 = unsigned;
using u64 = unsigned long long;

constexpr u32 WARP = 32;
constexpr size_t STACK_BYTES = 1 << 18, GUARD_BYTES = 1 << 12;
constexpr size_t STATIC_SHARED_BYTES = 48 << 10, MARGIN_BYTES = 64;
constexpr unsigned char GARBAGE = 0xcd;
constexpr u64 SWITCH_NS = 20, LOOK_NS = 5;
constexpr u64 PATIENT_ROUNDS = 64, HOPELESS_ROUNDS = 1000000;
constexpr u32 LARGEST_LEAP = 16;  // log2 of how much faster time goes at most
constexpr u32 POLLS = 4;          // that a fiber remembers
constexpr double LONGEST_S = 100;
constexpr long NAP_NS = 20000;  // of kernels that wait for hosts, which may need the core

// Where a fiber goes on. __builtin_setjmp leaves it to the compiler to keep registers, which is quicker than setjmp.
using Place = void *[5];

// Its first frame stays for all fibers that have the stack one after the other: each begins by a jump there.
struct Stack {
    char *memory = nullptr;
    bool is_started = false;
    Place first = {};
};

struct Block;

struct Fiber {
    u32 number = 0;  // of all that run together
    Place at;
    Stack *stack = nullptr;
    Block *block = nullptr;
    u32 thread = 0;
    bool is_started = false;
    const char *waits_for = nullptr;
    u64 polled[POLLS] = {};
    u32 polls = 0;
};

struct Barrier {
    u32 arrived = 0, votes = 0, parity = 0;
    u32 result[2] = {};
    const char *what = nullptr;
    std::vector<Fiber *> waiting;
};

// Those lanes of a warp that a mask names.
struct Exchange {
    u32 mask = 0, arrived = 0, parity = 0;
    u32 came[2] = {};
    u64 words[2][WARP] = {};
    const char *what = nullptr;
    std::vector<Fiber *> waiting;
};

struct Warp {
    u32 alive = 0;
    std::vector<std::unique_ptr<Exchange>> exchanges;
};

struct Launch {
    const emulated::Start *start;
    u32 device, blocks, threads, shared_bytes, resident;
    u32 first_number;  // of its threads
    u32 begun = 0;
};

// Memory that kernels may use.
struct Range {
    u64 begin, bytes;
    int device;  // -1: of the host, -2: of the program
};

struct Block {
    Launch *launch;
    u32 index, alive;
    bool lags = false;
    std::vector<Fiber *> ready;
    Barrier barrier;
    std::vector<Warp> warps;
    std::map<const void *, std::vector<unsigned char>> shared;
    size_t shared_bytes = 0;
    std::vector<unsigned char> dynamic;
    unsigned char *dynamic_begin = nullptr;
    std::vector<std::unique_ptr<Fiber>> fibers;
};

struct Sleeper {
    u64 until;
    u64 number;
    Fiber *fiber;
    bool operator<(const Sleeper &other) const {
        return until != other.until ? until > other.until : number > other.number;
    }
};

std::vector<Stack *> spare_stacks;
std::vector<std::unique_ptr<Block>> live;
std::vector<Fiber *> turn;  // of the block whose turn it is
size_t turn_at = 0, live_at = 0;
std::priority_queue<Sleeper> sleepers;
Fiber *current = nullptr;
thread_local bool runs_kernels = false;  // of the host's thread whose stack fibers were left from
jmp_buf caller;
std::string failure;
u64 clock_ns = 1000000000, random_state = 0, progress = 0, progress_seen = 0, idle_rounds = 0;
u64 switches = 0, picks_in_round = 0, sleeps = 0;
u64 ready_fibers = 0, alive_fibers = 0;
std::vector<Launch> launches;
bool is_checking = false, is_strict = false, hosts_write = false;

// A plain write that is about to happen, to be looked at when it has: it is one only if it changes something.
struct Write {
    races::Access access;
    void *at = nullptr;
    u64 bytes = 0;
    unsigned char before[16];
} last_write;

races::Races races_found;
std::vector<Range> ranges;
const unsigned char *peers = nullptr;  // which device reaches which
u32 device_count = 0;
double begin_s = 0;

double wall_s() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

u64 random_word() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

[[noreturn]] void fail(const char *format, ...) {
    char text[2048];
    va_list given;
    va_start(given, format);
    vsnprintf(text, sizeof text, format, given);
    va_end(given);
    failure = text;
    _longjmp(caller, 1);
}

void look_at_write();

// The last plain write has happened; nobody else has run since.
void settle_write() {
    if (!last_write.at) return;
    if (memcmp(last_write.before, last_write.at, last_write.bytes) != 0) look_at_write();
    last_write.at = nullptr;
}

// What everybody waits for, by blocks.
std::string whereabouts() {
    std::string text;
    for (const auto &block : live) {
        std::map<std::string, u32> counts;
        u32 exited = 0;
        for (const auto &fiber : block->fibers) {
            if (!fiber->stack)
                exited += 1;
            else
                counts[fiber->waits_for ? fiber->waits_for : "(running)"] += 1;
        }
        text += "\n  device " + std::to_string(block->launch->device) + " block " +
                std::to_string(block->index) + ":";
        for (const auto &[what, count] : counts) text += " " + std::to_string(count) + " " + what;
        if (exited) text += " " + std::to_string(exited) + " returned";
    }
    return text;
}

Stack *new_stack() {
    if (!spare_stacks.empty()) {
        Stack *found = spare_stacks.back();
        spare_stacks.pop_back();
        return found;
    }
    void *made = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) fail("no memory for the stacks of so many threads");
    mprotect(made, GUARD_BYTES, PROT_NONE);
    auto *stack = new Stack{};
    stack->memory = static_cast<char *>(made);
    return stack;
}

void make_ready(Fiber *fiber) {
    fiber->waits_for = nullptr;
    fiber->block->ready.push_back(fiber);
    ready_fibers += 1;
}

void begin_block(Launch &launch) {
    auto block = std::make_unique<Block>();
    block->launch = &launch;
    block->index = launch.begun++;
    block->alive = launch.threads;
    block->warps.resize((launch.threads + WARP - 1) / WARP);
    block->dynamic.assign(launch.shared_bytes + 2 * MARGIN_BYTES + 1024, GARBAGE);
    const auto begin = reinterpret_cast<uintptr_t>(block->dynamic.data()) + MARGIN_BYTES + 1023;
    block->dynamic_begin = reinterpret_cast<unsigned char *>(begin / 1024 * 1024);
    for (u32 thread = 0; thread < launch.threads; ++thread) {
        auto fiber = std::make_unique<Fiber>();
        fiber->block = block.get();
        fiber->thread = thread;
        fiber->number = launch.first_number + block->index * launch.threads + thread;
        if (is_checking) races_found.add_thread(fiber->number, launch.device);
        fiber->stack = new_stack();
        block->warps[thread / WARP].alive |= 1u << thread % WARP;
        make_ready(fiber.get());
        block->fibers.push_back(std::move(fiber));
    }
    alive_fibers += launch.threads;
    live.push_back(std::move(block));
}

void check_shared(const Block &block) {
    const unsigned char *end = block.dynamic_begin + block.launch->shared_bytes;
    const unsigned char *last = block.dynamic.data() + block.dynamic.size();
    for (const unsigned char *at = block.dynamic.data(); at < block.dynamic_begin; ++at)
        if (*at != GARBAGE) fail("a block has written before its dynamic shared memory");
    for (const unsigned char *at = end; at < last; ++at)
        if (*at != GARBAGE)
            fail("a block has written %ld bytes behind its %u bytes of dynamic shared memory",
                 static_cast<long>(at - end), block.launch->shared_bytes);
    for (const auto &[key, bytes] : block.shared)
        for (size_t i = 0; i < MARGIN_BYTES; ++i)
            if (bytes[i] != GARBAGE || bytes[bytes.size() - 1 - i] != GARBAGE)
                fail("a block has written beyond a shared variable of %zu bytes",
                     bytes.size() - 2 * MARGIN_BYTES);
    if (!is_checking) return;
    races_found.forget(block.dynamic_begin, block.launch->shared_bytes);
    for (const auto &[key, bytes] : block.shared) races_found.forget(bytes.data(), bytes.size());
}

void finish_barrier(Block &block, const Fiber *last);
void finish_exchange(Exchange &exchange, const Fiber *last);

void end_thread(Fiber *fiber) {
    settle_write();
    Block &block = *fiber->block;
    Warp &warp = block.warps[fiber->thread / WARP];
    progress += 1;
    spare_stacks.push_back(fiber->stack);  // it is left before another can take it
    fiber->stack = nullptr;
    warp.alive &= ~(1u << fiber->thread % WARP);
    alive_fibers -= 1;
    if (--block.alive > 0) {
        // Who has returned is not waited for.
        if (block.barrier.arrived == block.alive) finish_barrier(block, nullptr);
        for (auto &exchange : warp.exchanges)
            if (exchange->arrived && exchange->arrived == (exchange->mask & warp.alive))
                finish_exchange(*exchange, nullptr);
        return;
    }
    check_shared(block);
    Launch &launch = *block.launch;
    for (size_t i = 0; i < live.size(); ++i) {
        if (live[i].get() != &block) continue;
        live.erase(live.begin() + static_cast<long>(i));
        if (live_at > i) live_at -= 1;
        break;
    }
    if (launch.begun < launch.blocks) begin_block(launch);
}

void wake_sleepers() {
    while (!sleepers.empty() && sleepers.top().until <= clock_ns) {
        make_ready(sleepers.top().fiber);
        sleepers.pop();
    }
}

void require_time() {
    if (wall_s() - begin_s > LONGEST_S)
        fail("kernels have run for more than %g s%s", LONGEST_S, whereabouts().c_str());
}

// Give hosts the time to write what everybody polls.
void wait_for_hosts() {
    require_time();
    const double begin = wall_s();
    const timespec nap{0, NAP_NS};
    nanosleep(&nap, nullptr);
    clock_ns += static_cast<u64>(1e9 * (wall_s() - begin));
}

// Everybody ready has had a turn.
void end_round() {
    picks_in_round = 0;
    if (progress != progress_seen || !sleepers.empty()) {
        progress_seen = progress;
        idle_rounds = 0;
        return;
    }
    idle_rounds += 1;
    for (auto &block : live) block->lags = false;
    if (hosts_write) {
        if (idle_rounds > PATIENT_ROUNDS) wait_for_hosts();
        return;
    }
    if (idle_rounds > HOPELESS_ROUNDS)
        fail("all threads poll memory that nobody changes%s", whereabouts().c_str());
    if (idle_rounds > PATIENT_ROUNDS) {
        u64 faster = (idle_rounds - PATIENT_ROUNDS) / 8;
        clock_ns += SWITCH_NS << (faster < LARGEST_LEAP ? faster : LARGEST_LEAP);
    }
}

Fiber *next_by_turns() {
    if (turn_at == turn.size()) {
        turn.clear();
        turn_at = 0;
        while (true) {
            if (live_at >= live.size()) {
                live_at = 0;
                end_round();
            }
            Block &block = *live[live_at++];
            if (block.ready.empty()) continue;
            turn.swap(block.ready);
            break;
        }
    }
    return turn[turn_at++];
}

Fiber *next_at_random() {
    if (++picks_in_round > 2 * alive_fibers) {
        end_round();
        const u64 word = random_word();
        for (auto &block : live) block->lags = false;
        if (word % 4 == 0) live[(word >> 8) % live.size()]->lags = true;
    }
    for (u32 tries = 0;; ++tries) {
        const u64 word = random_word();
        Block &block = *live[(word >> 32) % live.size()];
        if (block.ready.empty()) continue;
        if (block.lags && tries < 100 && word % 64 != 0) continue;
        const size_t which = (word & 0xffffffff) % block.ready.size();
        Fiber *found = block.ready[which];
        block.ready[which] = block.ready.back();
        block.ready.pop_back();
        return found;
    }
}

[[noreturn]] void go_on();

void run_thread() {
    current->block->launch->start->run();
    Fiber *ended = current;
    end_thread(ended);
    go_on();
}

[[gnu::noinline]] void begin_threads() {
    __builtin_setjmp(current->stack->first);
    run_thread();
}

[[noreturn, gnu::noinline]] void enter(Fiber *next) {
    current = next;
    threadIdx = {next->thread, 0, 0};
    const Launch &launch = *next->block->launch;
    blockIdx = {next->block->index, 0, 0};
    blockDim = {launch.threads, 1, 1};
    gridDim = {launch.blocks, 1, 1};
    if (next->is_started) __builtin_longjmp(next->at, 1);
    next->is_started = true;
    Stack &stack = *next->stack;
    if (stack.is_started) __builtin_longjmp(stack.first, 1);
    stack.is_started = true;
    static ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = stack.memory + GUARD_BYTES;
    first.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES;
    first.uc_link = nullptr;
    makecontext(&first, begin_threads, 0);
    setcontext(&first);
    abort();
}

// Whoever is next.
void go_on() {
    switches += 1;
    clock_ns += SWITCH_NS;
    if ((switches & 0xfffff) == 0) require_time();
    wake_sleepers();
    if (ready_fibers == 0 && !sleepers.empty()) {
        clock_ns = sleepers.top().until;
        wake_sleepers();
    }
    if (ready_fibers == 0) {
        if (alive_fibers == 0) _longjmp(caller, 1);
        fail("all threads wait for others%s", whereabouts().c_str());
    }
    Fiber *next = random_state ? next_at_random() : next_by_turns();
    ready_fibers -= 1;
    enter(next);
}

[[gnu::noinline]] void suspend(const char *why) {
    settle_write();
    Fiber *me = current;
    me->waits_for = why;
    if (!__builtin_setjmp(me->at)) go_on();
    me->waits_for = nullptr;
}

void yield(const char *why) {
    make_ready(current);
    suspend(why);
}

// Those that waited, and who came last, have met.
void note_meeting(const std::vector<Fiber *> &waiting, const Fiber *last) {
    if (!is_checking) return;
    std::vector<u32> numbers;
    for (const Fiber *fiber : waiting) numbers.push_back(fiber->number);
    if (last) numbers.push_back(last->number);
    races_found.meet(numbers);
}

void finish_barrier(Block &block, const Fiber *last) {
    Barrier &barrier = block.barrier;
    note_meeting(barrier.waiting, last);
    barrier.result[barrier.parity] = barrier.votes;
    barrier.parity ^= 1;
    barrier.arrived = barrier.votes = 0;
    for (Fiber *fiber : barrier.waiting) make_ready(fiber);
    barrier.waiting.clear();
}

void finish_exchange(Exchange &exchange, const Fiber *last) {
    // CUDA promises that of __syncwarp only; kernels may lean on what the hardware does.
    if (!is_strict || strcmp(exchange.what, "__syncwarp") == 0)
        note_meeting(exchange.waiting, last);
    exchange.came[exchange.parity] = exchange.arrived;
    exchange.parity ^= 1;
    exchange.arrived = 0;
    for (Fiber *fiber : exchange.waiting) make_ready(fiber);
    exchange.waiting.clear();
}

}  // namespace
