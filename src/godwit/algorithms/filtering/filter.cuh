// Stable compaction: the items of an array that a predicate keeps, in order, in one pass. CPU counterpart:
// cpu.py.
//
// Method: decoupled look-back (Merrill and Garland, "Single-pass parallel prefix scan with decoupled
// look-back", NVIDIA, 2016). Each block loads a *tile* of the array into registers, in vectors of 16 bytes,
// counts kept items, and publishes the count. It adds the counts of previous tiles, back to one with a
// published prefix sum; gathers kept items in shared memory; and writes them to their position, in vectors
// again. The array is read once, and only kept items are written.
//
// Invariant: tiles are claimed in order, by tickets. So a block waits only for tiles whose blocks have
// begun and wait only for earlier ones: there is progress however few blocks run at a time.
//
// Encoding: the state of a tile is one word, read and written atomically: epoch of the launch << 42 | kind
// << 40 | count. A word of an earlier epoch is invalid; tickets are counted on from launch to launch. So
// nothing is cleared between launches, which run one after the other.
#pragma once

#include "runtime/cuda/include/warp.cuh"

constexpr u32 FILTER_ROUNDS = 4;  // vectors of a thread
constexpr u32 VECTOR_BYTES = 16;

constexpr u32 COUNT_BITS = 40;
constexpr u32 EPOCH_SHIFT = 42;
constexpr u64 OWN_COUNT = 1ull << COUNT_BITS;  // count of the tile alone
constexpr u64 WHOLE_SUM = 2ull << COUNT_BITS;  // prefix sum: the tile and all before it
constexpr u64 KNOWN = 3ull << COUNT_BITS;
constexpr u64 COUNT_MASK = OWN_COUNT - 1;

// Whether the predicate's return type is bool.
template <class T>
constexpr bool IS_BOOLEAN = false;
template <>
constexpr bool IS_BOOLEAN<bool> = true;

template <class Item>
struct alignas(VECTOR_BYTES) ItemVector {
    Item items[VECTOR_BYTES / sizeof(Item)];
};

// Items in four registers whatever their size: compilers would give each small item a register.
struct HeldVector {
    u32 words[VECTOR_BYTES / 4];

    template <class Item>
    __device__ __forceinline__ void take(const ItemVector<Item> &vector) {
        memcpy(words, &vector, VECTOR_BYTES);
    }
    template <class Item>
    __device__ __forceinline__ ItemVector<Item> items() const {
        ItemVector<Item> vector;
        memcpy(&vector, words, VECTOR_BYTES);
        return vector;
    }
    // Keep compilers from holding single items in registers beyond this point.
    __device__ __forceinline__ void forget_items() {
        for (u32 &word : words) asm volatile("" : "+r"(word));
    }
};

// A word with a field for the count of each round, so that one sum over the warp adds up all rounds. A field
// has room for the number of items in a warp's 32 vectors; a vector of few items takes narrow fields.
template <bool IS_NARROW>
struct RoundCounts {
    using Word = u64;
    static constexpr u32 BITS = 16;
};
template <>
struct RoundCounts<true> {
    using Word = u32;
    static constexpr u32 BITS = 8;
};

// Arguments of a launch.
//
// states: a word per tile; tickets: next ticket, first_ticket at the start of the launch; count: number of
// kept items, in memory that the host reads.
template <class Item>
struct Filtering {
    const Item *input;
    Item *output;
    u64 length;
    u64 *states;
    u64 *tickets;
    u64 first_ticket;
    u64 epoch;
    u64 *count;
};

__device__ __forceinline__ void thread_publish(u64 *state, u64 word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(word) : "memory");
}

// Return the number of items that all previous tiles keep. All lanes take part.
__device__ __forceinline__ u64 warp_sum_before(const u64 *states, u64 tile, u64 epoch) {
    u64 sum = 0;
    for (i64 nearest = static_cast<i64>(tile) - 1;; nearest -= WARP) {
        const i64 mine = nearest - static_cast<i64>(lane_id());
        u64 word = epoch << EPOCH_SHIFT | WHOLE_SUM;  // before the first tile: 0
        do {
            if (mine >= 0) word = load_relaxed(&states[mine]);
        } while (__any_sync(FULL_WARP, word >> EPOCH_SHIFT != epoch));
        const u32 whole = __ballot_sync(FULL_WARP, (word & KNOWN) == WHOLE_SUM);
        const u32 last = whole ? static_cast<u32>(__ffs(static_cast<int>(whole))) - 1 : WARP - 1;
        sum += lanes_sum(lane_id() <= last ? word & COUNT_MASK : u64(0));
        if (whole) return sum;
    }
}

// Division of a tile: a warp has FILTER_ROUNDS times 32 consecutive vectors.
template <class Predicate, u32 THREADS>
struct FilterTile {
    using Item = typename Predicate::Item;
    using Vector = ItemVector<Item>;
    static constexpr u32 VECTOR_ITEMS = VECTOR_BYTES / sizeof(Item);
    static constexpr u32 VECTORS = THREADS * FILTER_ROUNDS;
    static constexpr u32 ITEMS = VECTORS * VECTOR_ITEMS;
    static constexpr u32 WARPS = THREADS / WARP;
    using Counts = RoundCounts<(VECTOR_ITEMS <= 4)>;
    using Word = typename Counts::Word;

    // This lane's vector of a round.
    static __device__ __forceinline__ u32 vector(u32 round) {
        return (warp_id() * FILTER_ROUNDS + round) * WARP + lane_id();
    }
};

// Load the tile's items into registers. Partial or misaligned vectors go through shared memory; items
// beyond the array are replaced by its first one, as the predicate must be called for items of the array
// only.
template <class Tile>
__device__ __forceinline__ void block_hold(const typename Tile::Item *input, u32 available,
                                           typename Tile::Vector *staged, HeldVector *held) {
    using Vector = typename Tile::Vector;
    if (available == Tile::ITEMS && reinterpret_cast<u64>(input) % VECTOR_BYTES == 0) {
#pragma unroll
        for (u32 round = 0; round < FILTER_ROUNDS; ++round) {
            held[round].take(reinterpret_cast<const Vector *>(input)[Tile::vector(round)]);
        }
        return;
    }
#pragma unroll 1
    for (u32 i = threadIdx.x; i < Tile::ITEMS; i += blockDim.x) {
        reinterpret_cast<typename Tile::Item *>(staged)[i] = input[i < available ? i : 0];
    }
    __syncthreads();
#pragma unroll
    for (u32 round = 0; round < FILTER_ROUNDS; ++round) {
        held[round].take(staged[Tile::vector(round)]);
    }
}

// Call the predicate; set a bit per kept item and round, and return counts in fields of a word.
template <class Tile, class Predicate>
__device__ __forceinline__ typename Tile::Word thread_choose(HeldVector *held, u32 available,
                                                             u32 *kept) {
    typename Tile::Word counts = 0;
#pragma unroll
    for (u32 round = 0; round < FILTER_ROUNDS; ++round) {
        const auto vector = held[round].template items<typename Tile::Item>();
        const u32 first = Tile::vector(round) * Tile::VECTOR_ITEMS;
        kept[round] = 0;
#pragma unroll
        for (u32 k = 0; k < Tile::VECTOR_ITEMS; ++k) {
            const bool keeps = Predicate::keeps(vector.items[k]);
            kept[round] |= static_cast<u32>(keeps && first + k < available) << k;
        }
        counts += static_cast<typename Tile::Word>(__popc(kept[round]))
                  << (round * Tile::Counts::BITS);
        held[round].forget_items();
    }
    return counts;
}

// Compute the offset of each round of this lane among the warp's kept items; return the warp's count.
template <class Tile>
__device__ __forceinline__ u32 warp_places(typename Tile::Word counts, u32 *places) {
    using Word = typename Tile::Word;
    constexpr u32 BITS = Tile::Counts::BITS;
    constexpr Word FIELD = (static_cast<Word>(1) << BITS) - 1;
    const Word up_to = warp_sum_up_to(counts);
    const Word of_warp = __shfl_sync(FULL_WARP, up_to, WARP - 1);
    const Word before = up_to - counts;
    u32 total = 0;
#pragma unroll
    for (u32 round = 0; round < FILTER_ROUNDS; ++round) {
        places[round] = total + static_cast<u32>(before >> (round * BITS) & FIELD);
        total += static_cast<u32>(of_warp >> (round * BITS) & FIELD);
    }
    return total;
}

// Publish a tile's count; return the number of items that previous tiles keep. The last tile writes the
// total.
template <class Item>
__device__ __forceinline__ u64 warp_publish(const Filtering<Item> &given, u64 tile, u32 total,
                                            bool is_last) {
    const u64 mark = given.epoch << EPOCH_SHIFT;
    u64 base = 0;
    if (tile > 0) {
        if (lane_id() == 0) thread_publish(&given.states[tile], mark | OWN_COUNT | total);
        base = warp_sum_before(given.states, tile, given.epoch);
    }
    if (lane_id() == 0) {
        thread_publish(&given.states[tile], mark | WHOLE_SUM | (base + total));
        if (is_last) store_system(given.count, base + total);
    }
    return base;
}

// Write gathered items, except the first `shift` ones and those from `end` on, to their position.
template <class Vector, class Item>
__device__ __forceinline__ void block_write(const Vector *staged, Item *output, u32 shift,
                                            u32 end) {
    constexpr u32 ITEMS = VECTOR_BYTES / sizeof(Item);
    const Item *const gathered = reinterpret_cast<const Item *>(staged);
    for (u32 vector = threadIdx.x; vector * ITEMS < end; vector += blockDim.x) {
        const u32 first = vector * ITEMS;
        if (first >= shift && first + ITEMS <= end) {
            *reinterpret_cast<Vector *>(output + first) = staged[vector];
            continue;
        }
        for (u32 k = 0; k < ITEMS; ++k) {
            if (first + k >= shift && first + k < end) output[first + k] = gathered[first + k];
        }
    }
}

// Filter one tile with THREADS threads. Predicate has Item, the type of items in memory, and keeps(Item).
template <class Predicate, u32 THREADS>
__device__ __forceinline__ void block_filter(const Filtering<typename Predicate::Item> &given) {
    using Tile = FilterTile<Predicate, THREADS>;
    using Item = typename Tile::Item;
    constexpr u32 VECTOR_ITEMS = Tile::VECTOR_ITEMS;
    __shared__ typename Tile::Vector staged[THREADS * FILTER_ROUNDS + 1];
    __shared__ u32 totals[THREADS / WARP];
    __shared__ u64 words[2];  // the tile, and the items kept before it

    if (threadIdx.x == 0) words[0] = atomicAdd(given.tickets, 1ull) - given.first_ticket;
    __syncthreads();
    const u64 tile = words[0], left = given.length - tile * Tile::ITEMS;
    const u32 available = left < Tile::ITEMS ? static_cast<u32>(left) : Tile::ITEMS;
    HeldVector held[FILTER_ROUNDS];
    u32 kept[FILTER_ROUNDS], places[FILTER_ROUNDS];
    block_hold<Tile>(given.input + tile * Tile::ITEMS, available, staged, held);
    const auto counts = thread_choose<Tile, Predicate>(held, available, kept);
    const u32 of_warp = warp_places<Tile>(counts, places);
    if (lane_id() == 0) totals[warp_id()] = of_warp;
    __syncthreads();
    u32 before = 0, total = 0;
#pragma unroll
    for (u32 warp = 0; warp < Tile::WARPS; ++warp) {
        if (warp < warp_id()) before += totals[warp];
        total += totals[warp];
    }
    if (warp_id() == 0) {
        const u64 base = warp_publish(given, tile, total, left <= Tile::ITEMS);
        if (lane_id() == 0) words[1] = base;
    }
    __syncthreads();

    // Gather so that vectors of shared memory are aligned vectors of the output.
    const u64 base = words[1], begin = reinterpret_cast<u64>(given.output) / sizeof(Item) + base;
    const u32 shift = static_cast<u32>(begin % VECTOR_ITEMS);
    Item *const gathered = reinterpret_cast<Item *>(staged);
#pragma unroll
    for (u32 round = 0; round < FILTER_ROUNDS; ++round) {
        const auto vector = held[round].template items<Item>();
        u32 place = shift + before + places[round];
#pragma unroll
        for (u32 k = 0; k < VECTOR_ITEMS; ++k) {
            if (kept[round] >> k & 1) gathered[place++] = vector.items[k];
        }
    }
    __syncthreads();
    block_write(staged, given.output + base - shift, shift, shift + total);
}
