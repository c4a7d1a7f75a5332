// Looks at accesses of memory: whether it is there, and whether they are in order (emulated_grid_races.h).
//
// Kernels that were compiled with -fsanitize=thread call the sanitizer's functions before each access. These are
// here, in the place of its own library. A plain write that changes nothing is none, unless that is strict:
// equal numbers written by several threads are common, and do no harm on any GPU. What the emulator does itself, atomics among it, comes by `check`.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <algorithm>

#include "emulated_grid_fibers.h"

namespace {

std::string text_of(const void *code) {
    Dl_info found;
    if (!code || !dladdr(code, &found)) return "somewhere";
    char offset[32];
    snprintf(offset, sizeof offset, "%#lx",
             static_cast<const char *>(code) - static_cast<const char *>(found.dli_fbase) - 1);
    return std::string("@{") + found.dli_fname + "+" + offset + "}";
}

std::string text_of(const races::Access &access) {
    const Launch *launch = &launches[0];
    for (const Launch &one : launches)
        if (one.first_number <= access.thread) launch = &one;
    const u32 thread = access.thread - launch->first_number;
    const bool is_strong = access.how & races::STRONG;
    std::string what = access.how & races::WRITES ? "writes" : "reads";
    if (is_strong && (access.how & races::READS) && (access.how & races::WRITES)) what = "changes";
    if (is_strong) what += access.how & races::SYSTEM ? " (strong, system)" : " (strong)";
    return "\n  thread " + std::to_string(thread % launch->threads) + " of block " +
           std::to_string(thread / launch->threads) + " of device " +
           std::to_string(launch->device) + " " + what + ": " + text_of(access.code);
}

const Range *range_of(u64 place) {
    size_t low = 0, high = ranges.size();
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].begin <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 || place >= ranges[low - 1].begin + ranges[low - 1].bytes ? nullptr
                                                                              : &ranges[low - 1];
}

// The memory that a place of the running thread's lies in.
struct Spot {
    Range range{};
    bool is_there = false, is_shared = false;

    explicit Spot(u64 place) {
        const Block &block = *current->block;
        const auto try_shared = [&](const unsigned char *begin, u64 bytes) {
            const u64 first = reinterpret_cast<u64>(begin);
            if (place < first || place >= first + bytes) return;
            range = {first, bytes, static_cast<int>(block.launch->device)};
            is_there = is_shared = true;
        };
        try_shared(block.dynamic_begin, block.launch->shared_bytes);
        for (const auto &[key, held] : block.shared)
            try_shared(held.data() + MARGIN_BYTES, held.size() - 2 * MARGIN_BYTES);
        if (is_there) return;
        if (const Range *found = range_of(place)) {
            range = *found;
            is_there = true;
        }
    }

    std::string text(u64 place, u64 bytes) const {
        const char *kind = is_shared ? " of a shared variable of " : " of a buffer of ";
        return std::to_string(bytes) + " bytes at " + std::to_string(place - range.begin) + kind +
               std::to_string(range.bytes) + " bytes of device " + std::to_string(range.device);
    }
};

// Fail if there is no such memory for the running thread; whether it is memory that can be changed.
bool check_bounds(u64 place, u64 bytes, const races::Access &access) {
    const Spot spot(place);
    if (!spot.is_there)
        fail("%llu bytes at %#llx are nobody's:%s", bytes, place, text_of(access).c_str());
    if (spot.range.device == -2) {
        if (access.how & races::WRITES) fail("a constant is written:%s", text_of(access).c_str());
        return false;
    }
    if (place + bytes > spot.range.begin + spot.range.bytes)
        fail("%s, beyond its end:%s", spot.text(place, bytes).c_str(), text_of(access).c_str());
    const u32 device = current->block->launch->device;
    if (spot.range.device >= 0 && !peers[device * device_count + spot.range.device])
        fail("%s, which is no peer:%s", spot.text(place, bytes).c_str(), text_of(access).c_str());
    return true;
}

void check_order(const void *at, u64 bytes, const races::Access &access) {
    if (!races_found.access(access.thread, at, bytes, access.how, access.code)) return;
    const u64 place = reinterpret_cast<u64>(at);
    fail("%s two accesses of %s:%s%s", races_found.problem, Spot(place).text(place, bytes).c_str(),
         text_of(races_found.first).c_str(), text_of(races_found.second).c_str());
}

void look_at_write() { check_order(last_write.at, last_write.bytes, last_write.access); }

// Look at an access that is about to happen.
void check(const volatile void *shared_place, u64 bytes, u32 how, const void *code) {
    settle_write();
    void *at = const_cast<void *>(shared_place);
    const u64 place = reinterpret_cast<u64>(at),
              stack = reinterpret_cast<u64>(current->stack->memory);
    if (place >= stack && place < stack + STACK_BYTES) return;
    const races::Access access{current->number, 0, how, code};
    if (!check_bounds(place, bytes, access)) return;
    if (!is_strict && how == races::WRITES && bytes <= sizeof last_write.before) {
        last_write.access = access;
        last_write.at = at;
        last_write.bytes = bytes;
        memcpy(last_write.before, at, bytes);
        return;
    }
    check_order(at, bytes, access);
}

// An ordinary access of instrumented code.
void instrumented(const volatile void *at, u64 bytes, u32 how, const void *code) {
    if (!runs_kernels || !is_checking) return;
    if (how == (races::READS | races::STRONG | races::SYSTEM) &&
        range_of(reinterpret_cast<u64>(at)))
        emulated_poll(const_cast<const void *>(at), *static_cast<const volatile u8 *>(at));
    else if (random_state && random_word() % 64 == 0)
        yield(nullptr);
    check(at, bytes, how, code);
}

void find_ranges(u32 count, const Range *given) {
    ranges.assign(given, given + count);
    for (const Launch &launch : launches)
        ranges.push_back({reinterpret_cast<u64>(launch.start), launch.start->size(), -2});
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *) {
            // Tables of constants; and threadIdx and its like.
            if (!strstr(info->dlpi_name, "kernels-") && !strstr(info->dlpi_name, "scheduler-"))
                return 0;
            for (int i = 0; i < info->dlpi_phnum; ++i)
                if (info->dlpi_phdr[i].p_type == PT_LOAD)
                    ranges.push_back({info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                                      info->dlpi_phdr[i].p_memsz, -2});
            return 0;
        },
        nullptr);
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
}

}  // namespace

extern "C" {

#define INSTRUMENTED(name, bytes, how) \
    void __tsan_##name(void *at) { instrumented(at, bytes, how, __builtin_return_address(0)); }
#define INSTRUMENTED_SIZE(bytes)                                                              \
    INSTRUMENTED(read##bytes, bytes, races::READS)                                            \
    INSTRUMENTED(write##bytes, bytes, races::WRITES)                                          \
    INSTRUMENTED(unaligned_read##bytes, bytes, races::READS)                                  \
    INSTRUMENTED(unaligned_write##bytes, bytes, races::WRITES)                                \
    INSTRUMENTED(volatile_read##bytes, bytes, races::READS | races::STRONG | races::SYSTEM)   \
    INSTRUMENTED(volatile_write##bytes, bytes, races::WRITES | races::STRONG | races::SYSTEM) \
    INSTRUMENTED(unaligned_volatile_read##bytes, bytes,                                       \
                 races::READS | races::STRONG | races::SYSTEM)                                \
    INSTRUMENTED(unaligned_volatile_write##bytes, bytes,                                      \
                 races::WRITES | races::STRONG | races::SYSTEM)
INSTRUMENTED_SIZE(1)
INSTRUMENTED_SIZE(2)
INSTRUMENTED_SIZE(4)
INSTRUMENTED_SIZE(8)
INSTRUMENTED_SIZE(16)
void __tsan_read_range(void *at, size_t bytes) {
    instrumented(at, bytes, races::READS, __builtin_return_address(0));
}
void __tsan_write_range(void *at, size_t bytes) {
    instrumented(at, bytes, races::WRITES, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
}
