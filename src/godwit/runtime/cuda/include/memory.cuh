// Words of memory and how they are touched: types, scopes, order.
//
// Shared state of a run (values, bitmaps, control words) that somebody may be writing is read past the
// first-level cache, which is not coherent, by relaxed loads at the scope of those who write it. What nobody
// writes before the next meeting is read by ordinary loads. What a graph consists of is read only and may be
// cached anywhere: load_once is for that alone.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr u32 FULL_WARP = 0xffffffffu;
constexpr u32 WARP = 32;

template <class T>
__device__ __forceinline__ T load_relaxed(const T *place) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    if constexpr (sizeof(T) == 4) {
        u32 bits;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(bits) : "l"(place) : "memory");
        T value;
        memcpy(&value, &bits, 4);
        return value;
    } else {
        u64 bits;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(place) : "memory");
        T value;
        memcpy(&value, &bits, 8);
        return value;
    }
}

// What is read once, and never written: it shall not push anything else out of the first-level cache.
template <class T>
__device__ __forceinline__ T load_once(const T *place) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    T value;
    if constexpr (sizeof(T) == 4) {
        u32 bits;
        asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(bits) : "l"(place));
        memcpy(&value, &bits, 4);
    } else {
        u64 bits;
        asm("ld.global.nc.L1::no_allocate.u64 %0, [%1];" : "=l"(bits) : "l"(place));
        memcpy(&value, &bits, 8);
    }
    return value;
}

__device__ __forceinline__ u64 load_acquire(const u64 *place) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(u64 *place, u64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(place), "l"(value) : "memory");
}

__device__ __forceinline__ u32 load_acquire_system(const u32 *place) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}

__device__ __forceinline__ void store_release_system(u32 *place, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

__device__ __forceinline__ u64 load_relaxed_system(const u64 *place) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
    return value;
}

template <class T>
__device__ __forceinline__ T load_system(const T *place) {
    return *reinterpret_cast<const volatile T *>(place);
}

template <class T>
__device__ __forceinline__ void store_system(T *place, T value) {
    *reinterpret_cast<volatile T *>(place) = value;
}

// Set bits of a word without asking what they were.
__device__ __forceinline__ void set_bits(u32 *place, u32 bits) {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(place), "r"(bits) : "memory");
}

// Likewise, perhaps of another device's memory.
__device__ __forceinline__ void set_bits_system(u32 *place, u32 bits) {
    asm volatile("red.relaxed.sys.global.or.b32 [%0], %1;" ::"l"(place), "r"(bits) : "memory");
}

__device__ __forceinline__ u64 now_ns() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & (WARP - 1); }
__device__ __forceinline__ u32 warp_id() { return threadIdx.x / WARP; }

// The sum of what this lane and those before it bring. All lanes come.
__device__ __forceinline__ u32 warp_sum_up_to(u32 amount) {
    for (u32 step = 1; step < WARP; step *= 2) {
        u32 before = __shfl_up_sync(FULL_WARP, amount, step);
        if (lane_id() >= step) amount += before;
    }
    return amount;
}

// Where tests ask for it (DELAY_NS), any block may lag behind: mostly a little, now and then for all of that
// time. What holds must hold then.
__device__ __forceinline__ void block_delay(u32 salt) {
#ifdef DELAY_NS
    if (threadIdx.x == 0) {
        u64 word = clock64() * 0x9e3779b97f4a7c15ull + blockIdx.x * 0xbf58476d1ce4e5b9ull + salt;
        word ^= word >> 29;
        word *= 0x94d049bb133111ebull;
        word ^= word >> 32;
        if (word % 8 == 0) {
            u64 until = now_ns() + (DELAY_NS >> (word / 8 % 16));
            while (now_ns() < until) __nanosleep(1000);
        }
    }
    __syncthreads();
#endif
}
