// The width of the window in which work is asynchronous, which is found while a run goes on.
//
// At the beginning the width doubles at each meeting until it is the one that was asked for: a search from one
// vertex begins in one block, which would process a wide window alone and far out of order, while all others
// wait.
//
// Then a run's speed is by how much its lowest pending priority rises in a nanosecond. It is measured from when
// all work within the bound is done until, some meetings later, all work within the bound of that time is done, too:
// a wide window raises the lowest priority at once, and costs more work later. Then a window twice as wide is tried,
// and one half as wide, the narrower first if many due vertices were left. As long as a width is faster
// than the one before, the next is tried. One that is not is checked: a search that spreads becomes slower at any
// width. So the width before is measured once more, and that which was tried is taken if it was faster than
// the mean of both; else the one before is kept for a while, which doubles with each trial in vain.
// On several devices, where a window that is too wide costs more, the next is tried only if the last was much faster.
// A wider window that leaves so many due vertices that blocks no longer run ahead is given up at once: its
// work grows severalfold. So a width is found for weights of any distribution, and again where the graph changes.
//
// All devices decide alike: from the lowest priority of all, and from the clock of the first one. Which width is
// chosen depends on time; results do not depend on it.
#pragma once

#include "worker/cuda/part.cuh"

// Meetings of a measurement: at least so many, on one device and on several, whose short measurements vary more;
// and this part of all before it, which makes it exact in long runs.
// It ends after MOST_MEETINGS more where the window is so wide that its work does not end.
constexpr u32 LEAST_MEETINGS = 4, LEAST_MEETINGS_OF_SEVERAL = 8, MEETINGS_SHARE = 16,
              MOST_MEETINGS = 12;
constexpr float TRIED_FACTOR = 2, LEAST_GAIN = 1.05f, MUCH_GAIN = 1.25f, WIDEST_FACTOR = 1024;
constexpr u32 LONGEST_REST = 64;                     // measurements
constexpr u32 LEAST_HOPS = 16, MOST_HOPS = 1 << 20;  // as in worker/delta.py
constexpr float FIRST_SHARE = 1.0f / 32;             // of the width that was asked for

enum TrialPhase : u32 {
    WIDENS,
    RESTS,
    TRIES_FIRST,
    TRIES_SECOND,
    GOES_ON,
    CHECKS_FIRST,  // the width before, after a trial of the first of two others
    CHECKS_LAST,
};

// The width of the window, how far blocks may run ahead in it, and how it is being found: in registers of the
// warp that decides.
struct Window {
    float width;
    u32 hops;
    Trials trials;
};

template <class P>
__device__ __forceinline__ void set_width(const Part<P> &part, Window &window, float width) {
    width = fminf(fmaxf(width, part.delta / WIDEST_FACTOR), part.delta * WIDEST_FACTOR);
    const float hops = static_cast<float>(part.hops) * (width / part.delta);
    window.width = width;
    window.hops = static_cast<u32>(
        fminf(fmaxf(hops, static_cast<float>(LEAST_HOPS)), static_cast<float>(MOST_HOPS)));
    window.trials.measures = 0;
    window.trials.meetings = 0;
}

template <class P>
__device__ __forceinline__ Window first_window(const Part<P> &part) {
    Window window{part.delta, part.hops, Trials{}};
    window.trials.patience = 1;
    if constexpr (!P::accumulates)
        if (part.adapts) set_width(part, window, part.delta * FIRST_SHARE);
    return window;
}

__device__ __forceinline__ void begin_measurement(Trials &trials, float first, u64 time_ns) {
    trials.measures = 1;
    trials.meetings = 0;
    trials.begin_ns = time_ns;
    trials.begin_first = first;
}

// Keep the width for a while, after trials in vain.
__device__ __forceinline__ void rest(Trials &trials) {
    trials.phase = RESTS;
    trials.patience = min(2 * trials.patience, LONGEST_REST);
    trials.rest = trials.patience - 1;  // the last measurement was of this width
}

// Decide after a measurement of the width before, whether that which was tried is taken.
template <class P>
__device__ __forceinline__ void check(const Part<P> &part, Window &window, float speed) {
    Trials &trials = window.trials;
    const float mean = sqrtf(speed * trials.speed);
    trials.speed = speed;
    if (trials.tried > LEAST_GAIN * mean) {
        trials.patience = 1;
        trials.rest = 0;
        trials.phase = RESTS;
        set_width(part, window, window.width * trials.factor);
    } else if (trials.phase == CHECKS_FIRST) {
        trials.phase = TRIES_SECOND;
        trials.factor = 1 / trials.factor;
        set_width(part, window, window.width * trials.factor);
    } else {
        rest(trials);
    }
}

// Take a meeting into account, before the bound rises; all threads that call it get the same. Return true if a
// measurement, or another width, begins: then `begin_bound` is to be the next bound.
//
// `first` is the lowest pending priority. `breaks` says that the launch ends here.
template <class P>
__device__ __forceinline__ bool adapt_window(const Part<P> &part, Window &window, u32 round,
                                             float first, u64 time_ns, bool is_dense, bool breaks) {
    Trials &trials = window.trials;
    if (trials.phase == WIDENS) {
        set_width(part, window, fminf(2 * window.width, part.delta));
        if (window.width < part.delta) return false;
        trials.phase = RESTS;
        return true;
    }
    trials.meetings += 1;
    if (breaks) trials.measures = 0;
    const u32 fewest = part.has_peers() ? LEAST_MEETINGS_OF_SEVERAL : LEAST_MEETINGS;
    const u32 least = trials.measures ? fewest + round / MEETINGS_SHARE : 0;
    const bool tries = trials.phase >= TRIES_FIRST && trials.phase <= GOES_ON;
    const bool fills = tries && trials.factor > 1 && is_dense && !trials.was_dense;
    const bool is_done = first > trials.begin_bound || trials.meetings >= least + MOST_MEETINGS;
    if (breaks || !(fills || (is_done && trials.meetings >= least))) return false;
    if (!trials.measures && !fills) {
        begin_measurement(trials, first, time_ns);
        return true;
    }
    const float speed =
        fills ? 0 : (first - trials.begin_first) / static_cast<float>(time_ns - trials.begin_ns);
    begin_measurement(trials, first, time_ns);
    if (!isfinite(speed)) return true;
    if (trials.phase >= CHECKS_FIRST) {
        check(part, window, speed);
    } else if (trials.phase == RESTS) {
        trials.speed = speed;
        if (trials.rest > 0) {
            trials.rest -= 1;
            return true;
        }
        trials.phase = TRIES_FIRST;
        trials.was_dense = is_dense;
        trials.factor = is_dense ? 1 / TRIED_FACTOR : TRIED_FACTOR;
        set_width(part, window, window.width * trials.factor);
    } else if (speed > LEAST_GAIN * trials.speed) {
        const bool goes_on = !part.has_peers() || speed > MUCH_GAIN * trials.speed;
        trials.speed = speed;
        trials.patience = trials.rest = 1;
        trials.phase = goes_on ? GOES_ON : RESTS;
        if (goes_on) set_width(part, window, window.width * trials.factor);
    } else {
        trials.tried = speed;
        trials.phase = trials.phase == TRIES_FIRST ? CHECKS_FIRST : CHECKS_LAST;
        set_width(part, window, window.width / trials.factor);
    }
    return true;
}
