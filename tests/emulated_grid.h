// What CUDA C++ has beyond C++, on a CPU: included before the kernels, whose asm and shared variables
// emulated_grid_source.py has translated. emulated_grid.cpp runs them.
#pragma once

#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
// What does not report its accesses of memory but by emulated_access.
#define EMULATED_QUIET __attribute__((no_sanitize("thread")))
#define EMULATED_EXPORT extern "C" __attribute__((visibility("default")))

struct EmulatedExtent {
    unsigned x, y, z;
};

// What the scheduler offers to running threads.
extern "C" {
extern EmulatedExtent threadIdx, blockIdx, blockDim, gridDim;
// Memory is about to be accessed in a way that others may see: another thread may go first.
void emulated_access(const volatile void *place, unsigned long bytes, unsigned how,
                     const void *code);
void emulated_fence(bool system);
// A load that may be one of a loop: others go on. Repeated ones that find the same are no progress.
void emulated_poll(const void *place, unsigned long long found);
void emulated_sleep(unsigned nanoseconds);
unsigned long long emulated_now_ns();
// The words of all lanes of the mask, which wait for each other; `came` are those that brought one.
const unsigned long long *emulated_exchange(unsigned mask, unsigned long long word,
                                            const char *what, unsigned *came);
// All threads of the block wait for each other; in how many of them `vote` is.
unsigned emulated_barrier(bool vote, const char *what);
void *emulated_shared(const void *key, unsigned long bytes);
void *emulated_dynamic_shared();
}

constexpr int warpSize = 32;

// How memory is accessed: bits, as in emulated_grid_races.h and emulated_grid_source.py.
constexpr unsigned EMULATED_READS = 1, EMULATED_WRITES = 2, EMULATED_STRONG = 4,
                   EMULATED_SYSTEM = 32;
constexpr unsigned EMULATED_ATOMIC_ACCESS = EMULATED_READS | EMULATED_WRITES | EMULATED_STRONG;

namespace emulated {

// A function's parameter that does not tell T: as CUDA's overloads, it converts.
template <class T>
struct Same {
    using Type = T;
};
template <class T>
using same = typename Same<T>::Type;

template <class T, class... Others>
constexpr bool is_one_of = (std::is_same_v<T, Others> || ...);

template <class T>
unsigned long long bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    unsigned long long word = 0;
    std::memcpy(&word, &value, sizeof(T));
    return word;
}
template <class T>
T of_bits(unsigned long long word) {
    T value;
    std::memcpy(&value, &word, sizeof(T));
    return value;
}

inline unsigned lane() { return threadIdx.x % 32; }

// A shared variable of the block that asks; T is a struct of its own for each.
template <class T>
T &shared() {
    static char key;
    return *static_cast<T *>(emulated_shared(&key, sizeof(T)));
}

// Loads and stores of asm, and how they access memory. A load polls if others may wait by it.
template <class T, class... To>
EMULATED_QUIET void load(unsigned how, const volatile void *place, long offset, To &...to) {
    const T *from = reinterpret_cast<const T *>(
        static_cast<const char *>(const_cast<const void *>(place)) + offset);
    emulated_access(from, sizeof(T) * sizeof...(To), how, __builtin_return_address(0));
    const T *next = from;
    ((to = static_cast<To>(*next++)), ...);
    if (how & EMULATED_STRONG) emulated_poll(from, bits(*from));
}
template <class T, class... From>
EMULATED_QUIET void store(unsigned how, volatile void *place, long offset, From... from) {
    T *to = reinterpret_cast<T *>(static_cast<char *>(const_cast<void *>(place)) + offset);
    emulated_access(to, sizeof(T) * sizeof...(From), how, __builtin_return_address(0));
    ((*to++ = static_cast<T>(from)), ...);
}
template <class T>
T *at(volatile void *place, long offset) {
    return reinterpret_cast<T *>(static_cast<char *>(const_cast<void *>(place)) + offset);
}

// What starts a kernel in one thread, with a copy of the arguments; all are taken by their addresses.
struct Start {
    virtual void run() const = 0;
    virtual size_t size() const = 0;
    virtual ~Start() = default;
};
template <class... A>
struct StartOf : Start {
    void (*kernel)(A...);
    std::tuple<std::decay_t<A>...> arguments;
    void run() const override { std::apply(kernel, arguments); }
    size_t size() const override { return sizeof(*this); }
};
template <class... A, size_t... I>
Start *start_of(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
    auto *made = new StartOf<A...>;
    made->kernel = kernel;
    (std::memcpy(&std::get<I>(made->arguments), given[I], sizeof(std::get<I>(made->arguments))),
     ...);
    return made;
}
template <class... A>
Start *start_of(void (*kernel)(A...), void **given) {
    static_assert((std::is_trivially_copyable_v<std::decay_t<A>> && ...));
    return start_of(kernel, given, std::index_sequence_for<A...>());
}
template <class... A>
size_t sizes_of(void (*)(A...), size_t *sizes) {
    ((*sizes++ = sizeof(std::decay_t<A>)), ...);
    return sizeof...(A);
}

}  // namespace emulated

// Vectors.
#define EMULATED_VECTORS(T, name, most)                        \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };         \
    struct name##3 { T x, y, z; };                             \
    struct alignas(most) name##4 { T x, y, z, w; };            \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTORS(int, int, 16)
EMULATED_VECTORS(unsigned, uint, 16)
EMULATED_VECTORS(float, float, 16)
EMULATED_VECTORS(double, double, 16)
EMULATED_VECTORS(long long, longlong, 16)
EMULATED_VECTORS(unsigned long long, ulonglong, 16)
EMULATED_VECTORS(short, short, 8)
EMULATED_VECTORS(unsigned short, ushort, 8)
EMULATED_VECTORS(signed char, char, 4)
EMULATED_VECTORS(unsigned char, uchar, 4)

// Numbers.
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
inline unsigned __float_as_uint(float x) { return emulated::of_bits<unsigned>(emulated::bits(x)); }
inline int __float_as_int(float x) { return emulated::of_bits<int>(emulated::bits(x)); }
inline float __uint_as_float(unsigned x) { return emulated::of_bits<float>(x); }
inline float __int_as_float(int x) { return emulated::of_bits<float>(static_cast<unsigned>(x)); }
inline long long __double_as_longlong(double x) {
    return emulated::of_bits<long long>(emulated::bits(x));
}
inline double __longlong_as_double(long long x) {
    return emulated::of_bits<double>(static_cast<unsigned long long>(x));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
    return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline unsigned __double2uint_rn(double x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline unsigned long long __double2ull_rn(double x) {
    return static_cast<unsigned long long>(std::nearbyint(x));
}
inline long long __float2ll_rn(float x) { return static_cast<long long>(std::nearbyint(x)); }
inline long long __double2ll_rn(double x) { return static_cast<long long>(std::nearbyint(x)); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// Time and order. One thread runs at a time, and what it stores is there at once.
inline void __nanosleep(unsigned nanoseconds) { emulated_sleep(nanoseconds); }
inline long long clock64() { return static_cast<long long>(emulated_now_ns()); }
inline long long clock() { return clock64(); }
inline void __threadfence_block() {}
inline void __threadfence() { emulated_fence(false); }
inline void __threadfence_system() { emulated_fence(true); }
[[noreturn]] inline void __trap() { __builtin_trap(); }
template <class T>
T __ldg(const T *place) {
    return *place;
}
template <class T>
T __ldcg(const T *place) {
    return *place;
}
template <class T>
void __stcg(T *place, emulated::same<T> value) {
    *place = value;
}

// Blocks.
inline void __syncthreads() { emulated_barrier(false, "__syncthreads"); }
inline int __syncthreads_count(int vote) {
    return static_cast<int>(emulated_barrier(vote != 0, "__syncthreads_count"));
}
inline int __syncthreads_or(int vote) {
    return emulated_barrier(vote != 0, "__syncthreads_or") > 0;
}
inline int __syncthreads_and(int vote) {
    return emulated_barrier(vote == 0, "__syncthreads_and") == 0;
}

// Warps.
inline void __syncwarp(unsigned mask = 0xffffffffu) {
    unsigned came;
    emulated_exchange(mask, 0, "__syncwarp", &came);
}
namespace emulated {
template <class T>
EMULATED_QUIET T shuffled(unsigned mask, T value, unsigned from, const char *what) {
    unsigned came;
    const unsigned long long *all = emulated_exchange(mask, bits(value), what, &came);
    return of_bits<T>(all[from % 32]);
}
template <class T, class Combine>
EMULATED_QUIET T reduced(unsigned mask, T value, const char *what, Combine combine) {
    unsigned came;
    const unsigned long long *all = emulated_exchange(mask, bits(value), what, &came);
    T total{};
    bool is_first = true;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(came >> lane & 1)) continue;
        const T next = of_bits<T>(all[lane]);
        total = is_first ? next : combine(total, next);
        is_first = false;
    }
    return total;
}
}  // namespace emulated
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    const unsigned lane = emulated::lane(), w = static_cast<unsigned>(width);
    return emulated::shuffled(mask, value, lane / w * w + static_cast<unsigned>(from) % w,
                              "__shfl_sync");
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
    const unsigned lane = emulated::lane(), in = lane % static_cast<unsigned>(width);
    return emulated::shuffled(mask, value, in >= distance ? lane - distance : lane,
                              "__shfl_up_sync");
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
    const unsigned lane = emulated::lane(), w = static_cast<unsigned>(width);
    return emulated::shuffled(mask, value, lane % w + distance < w ? lane + distance : lane,
                              "__shfl_down_sync");
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const unsigned lane = emulated::lane(), to = lane ^ static_cast<unsigned>(bits);
    const unsigned w = static_cast<unsigned>(width);
    return emulated::shuffled(mask, value, to / w <= lane / w ? to : lane, "__shfl_xor_sync");
}
EMULATED_QUIET inline unsigned __ballot_sync(unsigned mask, int vote) {
    unsigned came, votes = 0;
    const unsigned long long *all = emulated_exchange(mask, vote != 0, "__ballot_sync", &came);
    for (unsigned lane = 0; lane < 32; ++lane)
        votes |= (came >> lane & 1) && all[lane] ? 1u << lane : 0;
    return votes;
}
inline int __any_sync(unsigned mask, int vote) {
    return emulated::reduced<int>(mask, vote != 0, "__any_sync",
                                  [](int a, int b) { return a | b; });
}
inline int __all_sync(unsigned mask, int vote) {
    return emulated::reduced<int>(mask, vote != 0, "__all_sync",
                                  [](int a, int b) { return a & b; });
}
template <class T>
EMULATED_QUIET unsigned __match_any_sync(unsigned mask, T value) {
    unsigned came, same = 0;
    const unsigned long long *all =
        emulated_exchange(mask, emulated::bits(value), "__match_any_sync", &came);
    for (unsigned lane = 0; lane < 32; ++lane)
        same |= (came >> lane & 1) && all[lane] == emulated::bits(value) ? 1u << lane : 0;
    return same;
}
#define EMULATED_REDUCE(name, combination)                                              \
    template <class T>                                                                  \
    T __reduce_##name##_sync(unsigned mask, T value) {                                  \
        static_assert(emulated::is_one_of<T, int, unsigned>);                           \
        return emulated::reduced(mask, value, "__reduce_" #name "_sync",                \
                                 [](T a, T b) { return static_cast<T>(combination); }); \
    }
EMULATED_REDUCE(add, static_cast<unsigned>(a) + static_cast<unsigned>(b))
EMULATED_REDUCE(min, b < a ? b : a)
EMULATED_REDUCE(max, a < b ? b : a)
EMULATED_REDUCE(and, a &b)
EMULATED_REDUCE(or, a | b)
EMULATED_REDUCE(xor, a ^ b)

// Atomics, of the types that CUDA has them for.
#define EMULATED_ATOMIC(name, made, ...)                                             \
    template <class T>                                                               \
    EMULATED_QUIET T atomic##name(T *place, emulated::same<T> value,                 \
                                  unsigned how = EMULATED_ATOMIC_ACCESS) {           \
        static_assert(emulated::is_one_of<T, __VA_ARGS__>);                          \
        emulated_access(place, sizeof(T), how, __builtin_return_address(0));         \
        const T old = *place;                                                        \
        *place = static_cast<T>(made);                                               \
        return old;                                                                  \
    }                                                                                \
    template <class T>                                                               \
    T atomic##name##_system(T *place, emulated::same<T> value) {                     \
        return atomic##name(place, value, EMULATED_ATOMIC_ACCESS | EMULATED_SYSTEM); \
    }                                                                                \
    template <class T>                                                               \
    T atomic##name##_block(T *place, emulated::same<T> value) {                      \
        return atomic##name(place, value);                                           \
    }
#define EMULATED_WORDS int, unsigned, unsigned long long
EMULATED_ATOMIC(Add, old + value, EMULATED_WORDS, float, double)
EMULATED_ATOMIC(Sub, old - value, int, unsigned)
EMULATED_ATOMIC(Exch, value, EMULATED_WORDS, float)
EMULATED_ATOMIC(Min, value < old ? value : old, EMULATED_WORDS, long long)
EMULATED_ATOMIC(Max, old < value ? value : old, EMULATED_WORDS, long long)
EMULATED_ATOMIC(And, old &value, EMULATED_WORDS)
EMULATED_ATOMIC(Or, old | value, EMULATED_WORDS)
EMULATED_ATOMIC(Xor, old ^ value, EMULATED_WORDS)
EMULATED_ATOMIC(Inc, old >= value ? 0 : old + 1, unsigned)
EMULATED_ATOMIC(Dec, old == 0 || old > value ? value : old - 1, unsigned)
template <class T>
EMULATED_QUIET T atomicCAS(T *place, emulated::same<T> expected, emulated::same<T> value,
                           unsigned how = EMULATED_ATOMIC_ACCESS) {
    static_assert(emulated::is_one_of<T, EMULATED_WORDS, unsigned short>);
    emulated_access(place, sizeof(T), how, __builtin_return_address(0));
    const T old = *place;
    if (old == expected) *place = value;
    return old;
}
template <class T>
T atomicCAS_system(T *place, emulated::same<T> expected, emulated::same<T> value) {
    return atomicCAS(place, expected, value, EMULATED_ATOMIC_ACCESS | EMULATED_SYSTEM);
}
