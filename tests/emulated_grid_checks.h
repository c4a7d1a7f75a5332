// Looks at accesses of memory: whether it is there, and whether they are in order (emulated_grid_races.h).
//
// Kernels that were compiled with -fsanitize=thread call the sanitizer's functions before each access. These are
// here, in the place of its own library. What the emulator does itself, atomics among it, comes by `check`.
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

// Look at an access that is about to happen.
void check(const volatile void *at, u64 bytes, u32 how, const void *code) {
    const Fiber &me = *current;
    const u64 place = reinterpret_cast<u64>(at);
    const u64 stack = reinterpret_cast<u64>(me.stack);
    if (place >= stack && place < stack + STACK_BYTES) return;
    const Block &block = *me.block;
    const u64 dynamic = reinterpret_cast<u64>(block.dynamic_begin);
    Range range{dynamic, block.launch->shared_bytes, static_cast<int>(block.launch->device)};
    bool is_there = place >= dynamic && place < dynamic + block.launch->shared_bytes;
    bool is_shared = is_there;
    if (!is_there) {
        for (const auto &[key, held] : block.shared) {
            const u64 begin = reinterpret_cast<u64>(held.data()) + MARGIN_BYTES;
            const u64 size = held.size() - 2 * MARGIN_BYTES;
            if (place < begin || place >= begin + size) continue;
            range.begin = begin;
            range.bytes = size;
            is_there = is_shared = true;
        }
    }
    if (!is_there) {
        if (const Range *found = range_of(place)) {
            range = *found;
            is_there = true;
        }
    }
    races::Access now{me.number, 0, how, code};
    if (!is_there) fail("%llu bytes at %#llx are nobody's:%s", bytes, place, text_of(now).c_str());
    if (range.device == -2) {
        if (how & races::WRITES) fail("a constant is written:%s", text_of(now).c_str());
        return;
    }
    char where[100];
    snprintf(where, sizeof where, "%llu bytes at %llu of a %s of %llu bytes of device %d", bytes,
             place - range.begin, is_shared ? "shared variable" : "buffer", range.bytes,
             range.device);
    if (place + bytes > range.begin + range.bytes)
        fail("%s, beyond its end:%s", where, text_of(now).c_str());
    const u32 device = block.launch->device;
    if (range.device >= 0 && !peers[device * device_count + range.device])
        fail("%s, which is no peer:%s", where, text_of(now).c_str());
    if (!races_found.access(me.number, const_cast<const void *>(at), bytes, how, code)) return;
    fail("%s two accesses of %s:%s%s", races_found.problem, where,
         text_of(races_found.first).c_str(), text_of(races_found.second).c_str());
}

// An ordinary access of instrumented code.
void instrumented(const volatile void *at, u64 bytes, u32 how, const void *code) {
    if (!current || !is_checking) return;
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
