// CUDA C++ on a CPU, as far as the kernels that make graphs need it: in the place of kernels/memory.cuh.
//
// Each thread of a block is a fiber, run until it waits for its warp or its block; blocks run one after
// another. So races between blocks are not seen here, but every exchange within a warp or block is real.
#pragma once

#include <ucontext.h>

#include <cstring>
#include <memory>
#include <vector>

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr u32 FULL_WARP = 0xffffffffu;
constexpr u32 WARP = 32;

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static

struct Extent {
    u32 x;
};
static Extent blockIdx, blockDim, gridDim, threadIdx;

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool done = false;
};

struct Barrier {
    u32 arrived = 0;
    u64 generation = 0;
};

constexpr size_t STACK_BYTES = 1 << 16;
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Barrier> warp_barriers;
static Barrier block_barrier;
static u64 exchanged[32][WARP];

static void wait_at(Barrier &barrier, u32 count) {
    const u64 generation = barrier.generation;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        ++barrier.generation;
        return;
    }
    const u32 me = threadIdx.x;
    while (barrier.generation == generation) swapcontext(&fibers[me].context, &scheduler);
}

inline u32 lane_id() { return threadIdx.x % WARP; }
inline u32 warp_id() { return threadIdx.x / WARP; }
inline void __syncthreads() { wait_at(block_barrier, blockDim.x); }

// Every lane hands over a word, and reads one or all.
template <class Read>
static auto with_words(u64 word, Read read) {
    exchanged[warp_id()][lane_id()] = word;
    wait_at(warp_barriers[warp_id()], WARP);
    const auto found = read(exchanged[warp_id()]);
    wait_at(warp_barriers[warp_id()], WARP);
    return found;
}

template <class T>
T __shfl_sync(u32, T value, u32 from) {
    return with_words(static_cast<u64>(value), [&](u64 *all) { return static_cast<T>(all[from]); });
}
template <class T>
T __shfl_up_sync(u32 mask, T value, u32 distance) {
    return __shfl_sync(mask, value, lane_id() >= distance ? lane_id() - distance : lane_id());
}
inline u32 __ballot_sync(u32, bool vote) {
    return with_words(vote, [](u64 *all) {
        u32 votes = 0;
        for (u32 lane = 0; lane < WARP; ++lane) votes |= static_cast<u32>(all[lane]) << lane;
        return votes;
    });
}

inline int __popc(u32 word) { return __builtin_popcount(word); }
inline int __ffs(u32 word) { return __builtin_ffs(static_cast<int>(word)); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

template <class T>
T atomicAdd(T *place, T value) {
    const T before = *place;
    *place += value;
    return before;
}
template <class T>
T atomicMin(T *place, T value) {
    const T before = *place;
    if (value < before) *place = value;
    return before;
}
template <class T>
T atomicMax(T *place, T value) {
    const T before = *place;
    if (value > before) *place = value;
    return before;
}

template <class Body>
void run_grid(u32 blocks, u32 threads, Body body) {
    static Body *running;
    running = &body;
    gridDim.x = blocks;
    blockDim.x = threads;
    for (u32 block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        fibers = std::vector<Fiber>(threads);
        warp_barriers.assign(threads / WARP, {});
        block_barrier = {};
        for (Fiber &fiber : fibers) {
            fiber.stack.reset(new char[STACK_BYTES]);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = STACK_BYTES;
            fiber.context.uc_link = &scheduler;
            void (*entry)() = [] {
                (*running)();
                fibers[threadIdx.x].done = true;
            };
            makecontext(&fiber.context, entry, 0);
        }
        for (u32 left = threads; left > 0;) {
            for (u32 t = 0; t < threads; ++t) {
                if (fibers[t].done) continue;
                threadIdx.x = t;
                swapcontext(&scheduler, &fibers[t].context);
                left -= fibers[t].done;
            }
        }
    }
}
