// Kernels that copy, access memory at random and signal each other; devices_testbed.py times them.
//
// The patterns are those of Groute's figure 2: direct access to another GPU's or the host's memory,
// coalesced and random; messages in packets, relayed from memory to memory. A flag holds the number of the
// last completed round (an epoch) and only grows, so it is never reset; for that, a single thread sets it,
// in the order of rounds. Every wait has a time limit: after it `failed` is set and the block exits.
//
// Scalars are 64 bits wide, as the host passes nothing else.

#include "runtime/cuda/include/warp.cuh"

constexpr u32 POLLS_PER_LOOK = 64;  // at the clock, which is slow to read
constexpr u32 UNROLLED = 8;         // random accesses of a thread on the way at once

__device__ __forceinline__ u32 thread_load_flag(const u32 *flag) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__device__ __forceinline__ void thread_store_flag(u32 *flag, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Wait until a flag reaches an epoch; false after the time limit.
__device__ __forceinline__ bool thread_await(const u32 *flag, u32 epoch, u64 timeout_ns) {
    u64 deadline_ns = 0;
    for (u32 polls = 1; static_cast<i32>(thread_load_flag(flag) - epoch) < 0; polls++) {
        if (polls % POLLS_PER_LOOK != 0) continue;
        u64 now = now_ns();
        if (deadline_ns == 0) deadline_ns = now + timeout_ns;
        if (now > deadline_ns) return false;
    }
    return true;
}

// Copy 16 bytes a thread at a time, with four loads in flight. Not through the read-only cache, since the
// source may be written while the kernel runs.
__device__ __forceinline__ void group_copy(uint4 *to, const uint4 *from, u64 vectors, u64 rank,
                                           u64 size) {
    u64 at = rank;
    for (; at + 3 * size < vectors; at += 4 * size) {
        uint4 a = from[at];
        uint4 b = from[at + size];
        uint4 c = from[at + 2 * size];
        uint4 d = from[at + 3 * size];
        to[at] = a;
        to[at + size] = b;
        to[at + 2 * size] = c;
        to[at + 3 * size] = d;
    }
    for (; at < vectors; at += size) to[at] = from[at];
}

__device__ __forceinline__ u32 thread_mixed(u32 x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// A thread's random places in a table whose size is a power of two.
struct Places {
    u32 state;
    u32 mask;

    __device__ __forceinline__ Places(u64 words, u64 seed)
        : state(thread_mixed(static_cast<u32>(seed) + blockIdx.x * blockDim.x + threadIdx.x)),
          mask(static_cast<u32>(words - 1)) {}
    __device__ __forceinline__ u32 next() {
        state = state * 1664525u + 1013904223u;
        return thread_mixed(state) & mask;
    }
};

// Fill with words that depend on their index and on the GPU, so that a wrong delivery is detected.
extern "C" __global__ void fill_pattern(u32 *words, u64 count, u64 seed) {
    u64 size = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += size)
        words[i] = (static_cast<u32>(i) * 2654435761u) ^ static_cast<u32>(seed);
}

// All threads of the grid copy: a push where `to` is remote, a pull where `from` is.
extern "C" __global__ void copy_coalesced(uint4 *to, const uint4 *from, u64 vectors) {
    u64 size = static_cast<u64>(gridDim.x) * blockDim.x;
    group_copy(to, from, vectors, static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x, size);
}

// Each thread reads `UNROLLED * repeats` words; `sum` grows by all of them.
extern "C" __global__ void random_read(const u32 *table, u64 words, u64 repeats, u64 seed,
                                       u64 *sum) {
    Places places(words, seed);
    u64 total = 0;
    for (u64 i = 0; i < repeats; i++) {
        u32 values[UNROLLED];
#pragma unroll
        for (u32 j = 0; j < UNROLLED; j++) {
            // Past the first-level cache, as shared state is read.
            const u32 *place = table + places.next();
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(values[j]) : "l"(place));
        }
#pragma unroll
        for (u32 j = 0; j < UNROLLED; j++) total += values[j];
    }
    for (u32 step = WARP / 2; step > 0; step /= 2)
        total += __shfl_down_sync(FULL_WARP, total, step);
    if (threadIdx.x % WARP == 0) atomicAdd(sum, total);
}

// Each thread writes `UNROLLED * repeats` words, `value` everywhere.
extern "C" __global__ void random_write(u32 *table, u64 words, u64 repeats, u64 seed, u64 value) {
    Places places(words, seed);
    u32 written = static_cast<u32>(value);
    for (u64 i = 0; i < repeats; i++) {
#pragma unroll
        for (u32 j = 0; j < UNROLLED; j++) {
            u32 *place = table + places.next();
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(place), "r"(written)
                         : "memory");
        }
    }
}

// Each thread lowers `UNROLLED * repeats` words of its own GPU's memory to `value`.
extern "C" __global__ void random_minimum(u32 *table, u64 words, u64 repeats, u64 seed, u64 value) {
    Places places(words, seed);
    u32 bound = static_cast<u32>(value);
    for (u64 i = 0; i < repeats; i++) {
#pragma unroll
        for (u32 j = 0; j < UNROLLED; j++) {
            u32 *place = table + places.next();
            asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" ::"l"(place), "r"(bound)
                         : "memory");
        }
    }
}

// The same in memory that other GPUs use at the same time.
extern "C" __global__ void random_minimum_system(u32 *table, u64 words, u64 repeats, u64 seed,
                                                 u64 value) {
    Places places(words, seed);
    u32 bound = static_cast<u32>(value);
    for (u64 i = 0; i < repeats; i++) {
#pragma unroll
        for (u32 j = 0; j < UNROLLED; j++) {
            u32 *place = table + places.next();
            asm volatile("red.relaxed.sys.global.min.u32 [%0], %1;" ::"l"(place), "r"(bound)
                         : "memory");
        }
    }
}

// Two kernels of one thread answer each other: each polls a flag of its own that the other sets. The
// leading one sets first.
extern "C" __global__ void ping_pong(const u32 *ours, u32 *theirs, u64 leads, u64 rounds, u64 epoch,
                                     u64 timeout_ns, u32 *failed) {
    u32 last = static_cast<u32>(epoch + rounds);
    for (u32 now = static_cast<u32>(epoch); now != last; now++) {
        if (leads) thread_store_flag(theirs, now);
        if (!thread_await(ours, now, timeout_ns)) {
            *failed = 1;
            return;
        }
        if (!leads) thread_store_flag(theirs, now);
    }
}

// One stop of a message that is relayed in packets, `rounds` times: wait for a packet (unless `arrived` is
// null), copy it to the next stop (unless `to` is null), set its flags (unless `announced` is null).
//
// A team of `members` blocks takes a packet, each an equal share with a flag of its own, so no block waits
// for another of its grid. The next stop copies a packet when all its flags are set. A packet belongs to the
// same team in every round: another team could be a round ahead, and this team's late store would lower the
// flag below an epoch that was never seen. All stops of a message have equal numbers of blocks and members.
extern "C" __global__ void relay(uint4 *to, const uint4 *from, const u32 *arrived, u32 *announced,
                                 u64 packets, u64 packet_vectors, u64 members, u64 rounds,
                                 u64 epoch, u64 timeout_ns, u32 *failed) {
    u64 team = blockIdx.x / members;
    u64 member = blockIdx.x % members;
    u64 teams = gridDim.x / members;
    u64 share = packet_vectors / members;
    if (team >= teams) return;
    for (u64 round = 0; round < rounds; round++) {
        u32 now = static_cast<u32>(epoch + round);
        for (u64 packet = team; packet < packets; packet += teams) {
            bool late = false;
            if (arrived && threadIdx.x < members) {
                const u32 *flag = arrived + packet * members + threadIdx.x;
                late = !thread_await(flag, now, timeout_ns);
                load_acquire_system(flag);  // pairs with the release: the packet is visible
            }
            if (__syncthreads_or(late)) {
                if (threadIdx.x == 0) *failed = 1;
                return;
            }
            if (!to) continue;
            u64 begin = packet * packet_vectors + member * share;
            group_copy(to + begin, from + begin, share, threadIdx.x, blockDim.x);
            block_delay(static_cast<u32>(round));
            __syncthreads();
            if (announced && threadIdx.x == 0) {
                // The barrier orders the block's copies before the release, which makes them visible.
                store_release_system(announced + packet * members + member, now);
            }
        }
    }
}
