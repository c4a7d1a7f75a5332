// Types of words, and loads and stores with their scope and order.
//
// Shared state of a run (values, bitmaps, control words) that other threads may be writing is read past the
// first-level cache, which is not coherent, by relaxed loads at the scope of the writers. What is not written
// before the next meeting is read by ordinary loads. A graph's arrays are read only and may be cached
// anywhere: load_once is for them alone.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

template <class T>
constexpr bool is_float = false;
template <>
constexpr bool is_float<float> = true;
template <>
constexpr bool is_float<double> = true;

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

// Read a word that may be in the first-level cache: what other blocks have written since the last meeting may be
// missed.
__device__ __forceinline__ u32 load_near(const u32 *place) {
    u32 value;
    asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}

// Read what is read once and never written, without evicting anything from the first-level cache.
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

// Whether a bit of a bitmap is set.
template <class Index>
__device__ __forceinline__ bool has_bit(const u32 *bitmap, Index index) {
    return bitmap[index >> 5] >> (index & 31) & 1;
}

// Set bits of a word; the old ones are not returned.
__device__ __forceinline__ void set_bits(u32 *place, u32 bits) {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(place), "r"(bits) : "memory");
}

// Set bits of a word that may be in another device's memory.
__device__ __forceinline__ void set_bits_system(u32 *place, u32 bits) {
    asm volatile("red.relaxed.sys.global.or.b32 [%0], %1;" ::"l"(place), "r"(bits) : "memory");
}

__device__ __forceinline__ u64 now_ns() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// Delay blocks at random, for tests that define DELAY_NS: mostly a little, sometimes for all of that time.
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
