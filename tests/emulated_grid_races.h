// Finds accesses of memory that nothing orders, and memory that is nobody's, in what emulated threads do.
//
// Method: vector clocks (FastTrack, Flanagan and Freund 2009), over PTX's model of memory as far as kernels use
// it. What orders two threads: barriers of blocks, __syncwarp, and releases that an acquire has seen: a fence
// or a releasing store on the one side, a fence or an acquiring load on the other, with strong accesses
// (atomics, relaxed, volatile) of one place between. A strong write is also before all that follows a
// strong read that has seen it. Between devices both sides need the scope of the system.
// Two accesses of one place by different threads, of which one writes, need such an order, or must both be
// strong. So a missing fence is found in the schedule where it does no harm.
//
// Places are words of 4 bytes, or bytes where smaller ones were used.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace races {

using u8 = unsigned char;
using u32 = unsigned;
using u64 = unsigned long long;

// How memory is accessed; as in emulated_grid.h.
constexpr u32 READS = 1, WRITES = 2, STRONG = 4, ACQUIRES = 8, RELEASES = 16, SYSTEM = 32,
              CONSTANT = 64;

using Clock = std::vector<u32>;  // of each thread; empty: nothing is known of anyone

// Most of the time of a run that is checked goes here.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
inline void raise(u32 *into, const u32 *from, size_t count) {
    for (size_t i = 0; i < count; ++i) into[i] = into[i] < from[i] ? from[i] : into[i];
}

inline void join(Clock &into, const Clock &from) {
    if (from.empty()) return;
    if (into.empty())
        into = from;
    else
        raise(into.data(), from.data(), into.size());
}

struct Thread {
    u32 device = 0;
    u32 now = 1;                    // its own clock
    Clock known;                    // what came before, of the others
    Clock fenced, fenced_system;    // what was known at its last fence
    Clock pending, pending_system;  // what it has seen published, to be known after a fence
};

// What was published by strong writes of a place.
struct Published {
    std::vector<Clock> here;  // for each device
    Clock system;
};

struct Access {
    u32 thread = 0, now = 0, how = 0;
    const void *code = nullptr;
};

// What is known of a place in a run: the last plain write, and what came after it, except for what later
// accesses stand for.
struct Place {
    u64 run = 0;
    bool is_written = false;
    Access plain_write;
    std::vector<Access> plain_reads, strong;
};

constexpr u64 PAGE_BYTES = 1024;

struct Page {
    u32 place_bytes = 4;
    std::vector<Place> places = std::vector<Place>(PAGE_BYTES / 4);
};

class Races {
public:
    // A run of so many threads begins.
    void begin(u32 count) {
        run_ += 1;
        threads_.assign(count, {});
        published_.clear();
        if (pages_.size() > 1u << 14) pages_.clear();
        last_ = nullptr;
    }
    void add_thread(u32 thread, u32 device) { threads_[thread].device = device; }

    // Several threads wait for each other.
    void meet(const std::vector<u32> &threads) {
        Clock all(threads_.size());
        for (u32 thread : threads) {
            join(all, threads_[thread].known);
            if (all[thread] < threads_[thread].now) all[thread] = threads_[thread].now;
        }
        for (u32 thread : threads) {
            threads_[thread].known = all;
            threads_[thread].now += 1;
        }
    }

    void fence(u32 number, bool system) {
        Thread &thread = threads_[number];
        join(thread.known, thread.pending);
        if (system) join(thread.known, thread.pending_system);
        thread.fenced = with_itself(number);
        if (system) thread.fenced_system = thread.fenced;
        thread.now += 1;
    }

    // An access that is about to happen; whether something is wrong with it, which `problem` says.
    bool access(u32 thread, const void *at, u64 bytes, u32 how, const void *code) {
        const u64 begin = reinterpret_cast<u64>(at);
        const Access now{thread, threads_[thread].now, how, code};
        for (u64 byte = begin; byte < begin + bytes;) {
            Page &page = page_of(byte, bytes < 4 || begin % 4 != 0);
            Place &place = page.places[byte % PAGE_BYTES / page.place_bytes];
            if (place.run != run_) {
                place.run = run_;
                place.is_written = false;
                place.plain_write = {};
                place.plain_reads.clear();
                place.strong.clear();
            }
            if (is_wrong(place, now)) return true;
            note(place, now);
            byte += page.place_bytes - byte % page.place_bytes;
        }
        if (how & STRONG)
            synchronize(thread, begin, how);
        else if (how & WRITES)
            published_.erase(begin / 4);
        return false;
    }

    // Memory that others will have, or nobody.
    void forget(const void *at, u64 bytes) {
        const u64 begin = reinterpret_cast<u64>(at);
        for (u64 byte = begin; byte < begin + bytes;) {
            Page &page = page_of(byte, false);
            page.places[byte % PAGE_BYTES / page.place_bytes].run = 0;
            published_.erase(byte / 4);
            byte += page.place_bytes - byte % page.place_bytes;
        }
    }

    Access first, second;  // of the problem
    const char *problem = nullptr;

private:
    Clock with_itself(u32 number) const {
        Clock clock = threads_[number].known;
        if (clock.empty()) clock.resize(threads_.size());
        clock[number] = threads_[number].now;
        return clock;
    }

    bool is_before(const Access &earlier, const Access &now) const {
        if (earlier.now == 0 || earlier.thread == now.thread) return true;
        const Clock &known = threads_[now.thread].known;
        return !known.empty() && known[earlier.thread] >= earlier.now;
    }

    bool report(const char *what, const Access &earlier, const Access &now) {
        problem = what;
        first = earlier;
        second = now;
        return true;
    }

    bool is_wrong(const Place &place, const Access &now) {
        const bool is_strong = now.how & STRONG;
        if ((now.how & CONSTANT) && place.is_written)
            return report("a read-only load of what this run has written", place.plain_write, now);
        if (!is_before(place.plain_write, now))
            return report("nothing orders", place.plain_write, now);
        if (now.how & WRITES) {
            for (const Access &read : place.plain_reads)
                if (!is_before(read, now)) return report("nothing orders", read, now);
        }
        bool is_observed = false;  // what was written is before who reads it, and who comes after
        for (size_t i = place.strong.size(); i-- > 0;) {
            const Access &other = place.strong[i];
            if (is_before(other, now)) {
                is_observed = is_observed || (other.how & READS);
                continue;
            }
            if (!((other.how | now.how) & WRITES)) continue;
            if (is_observed && (other.how & WRITES)) continue;
            if (!is_strong) return report("nothing orders", other, now);
            const bool is_near = threads_[other.thread].device == threads_[now.thread].device;
            if (!is_near && !(other.how & now.how & SYSTEM))
                return report("too small a scope for two devices have", other, now);
        }
        return false;
    }

    void note(Place &place, const Access &now) {
        if (now.how & WRITES) place.is_written = true;
        if (!(now.how & STRONG) && (now.how & WRITES)) {
            // All the others came before it.
            place.plain_write = now;
            place.plain_reads.clear();
            place.strong.clear();
            return;
        }
        std::vector<Access> &those = now.how & STRONG ? place.strong : place.plain_reads;
        size_t kept = 0;
        for (const Access &other : those) {
            if (other.thread == now.thread && other.now == now.now && other.how == now.how)
                continue;  // once more: it becomes the last
            // Who comes after this access comes after that one, too.
            const bool is_covered = (now.how & WRITES) || !(other.how & WRITES);
            if (!is_covered || !is_before(other, now)) those[kept++] = other;
        }
        those.resize(kept);
        those.push_back(now);
    }

    // What a strong access publishes, and what it sees published.
    void synchronize(u32 number, u64 place, u32 how) {
        Thread &thread = threads_[number];
        auto found = published_.find(place / 4);
        if ((how & READS) && found != published_.end()) {
            Published &there = found->second;
            if (thread.device < there.here.size()) {
                const Clock &seen = there.here[thread.device];
                join(how & ACQUIRES ? thread.known : thread.pending, seen);
            }
            if (how & SYSTEM)
                join(how & ACQUIRES ? thread.known : thread.pending_system, there.system);
        }
        if (!(how & WRITES)) return;
        const bool releases = how & RELEASES;
        const bool has_more = releases || !thread.fenced.empty();
        if (!(how & READS) && found != published_.end()) {
            published_.erase(found);
            found = published_.end();
        }
        if (!has_more) return;  // nothing to publish, and nothing of others is taken away
        Published &there = published_[place / 4];
        if (there.here.size() <= thread.device) there.here.resize(thread.device + 1);
        if (releases) {
            const Clock clock = with_itself(number);
            join(there.here[thread.device], clock);
            if (how & SYSTEM) join(there.system, clock);
            thread.now += 1;
        } else {
            join(there.here[thread.device], thread.fenced);
            if (how & SYSTEM) join(there.system, thread.fenced_system);
        }
    }

    Page &page_of(u64 byte, bool is_small) {
        const u64 number = byte / PAGE_BYTES;
        if (number != last_number_ || !last_) {
            auto &found = pages_[number];
            if (!found) found = std::make_unique<Page>();
            last_number_ = number;
            last_ = found.get();
        }
        if (is_small && last_->place_bytes == 4) {
            std::vector<Place> finer;
            for (const Place &place : last_->places) finer.insert(finer.end(), 4, place);
            last_->places = std::move(finer);
            last_->place_bytes = 1;
        }
        return *last_;
    }

    u64 run_ = 0;
    std::vector<Thread> threads_;
    std::unordered_map<u64, Published> published_;
    std::unordered_map<u64, std::unique_ptr<Page>> pages_;
    u64 last_number_ = 0;
    Page *last_ = nullptr;
};

}  // namespace races
