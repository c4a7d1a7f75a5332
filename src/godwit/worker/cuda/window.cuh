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
// than the one before, the next is tried; else the faster is kept for a while, which doubles with each trial in vain.
// On several devices, where a window that is too wide costs more, the next is tried only if the last was much faster.
// A wider window that leaves so many due vertices that blocks no longer run ahead is given up at once: its
// work grows severalfold. So a width is found for weights of any distribution, and again where the graph changes.
//
// All devices decide alike: from the lowest priority of all, and from the clock of the first one. Which width is
// chosen depends on time; results do not depend on it.
#pragma once

#include "worker/cuda/part.cuh"

// Meetings of a measurement: at least so many, and this part of all before it, which makes it exact in long runs.
// It ends after MOST_MEETINGS more where the window is so wide that its work does not end.
constexpr u32 LEAST_MEETINGS = 8, MEETINGS_SHARE = 16, MOST_MEETINGS = 12;
constexpr float TRIED_FACTOR = 2, LEAST_GAIN = 1.05f, MUCH_GAIN = 1.25f, WIDEST_FACTOR = 1024;
constexpr u32 LONGEST_REST = 64;                     // measurements
constexpr u32 LEAST_HOPS = 16, MOST_HOPS = 1 << 20;  // as in worker/delta.py
constexpr float FIRST_SHARE = 1.0f / 32;             // of the width that was asked for

enum TrialPhase : u32 { WIDENS, RESTS, TRIES_FIRST, TRIES_SECOND, GOES_ON };

// Set the width of the window, and how far blocks may run ahead in it.
template <class P>
__device__ __forceinline__ void thread_set_window(const Part<P> &part, float window) {
    window = fminf(fmaxf(window, part.delta / WIDEST_FACTOR), part.delta * WIDEST_FACTOR);
    const float hops = static_cast<float>(part.hops) * (window / part.delta);
    part.control->window = window;
    part.control->hops = static_cast<u32>(
        fminf(fmaxf(hops, static_cast<float>(LEAST_HOPS)), static_cast<float>(MOST_HOPS)));
    part.control->trials.measures = 0;
    part.control->trials.meetings = 0;
}

template <class P>
__device__ __forceinline__ void thread_begin_window(const Part<P> &part) {
    part.control->window = part.delta;
    part.control->hops = part.hops;
    part.control->trials = Trials{};
    part.control->trials.patience = 1;
    if constexpr (!P::accumulates)
        if (part.adapts) thread_set_window(part, part.delta * FIRST_SHARE);
}

__device__ __forceinline__ void thread_begin_measurement(Control *control, float first,
                                                         u64 time_ns) {
    Trials &trials = control->trials;
    trials.measures = 1;
    trials.meetings = 0;
    trials.begin_ns = time_ns;
    trials.begin_first = first;
}

// Take a meeting into account, before the bound rises; called by one thread of each device. Return true if a
// measurement, or another width, begins: then `begin_bound` is to be the next bound.
//
// `first` is the lowest pending priority. `breaks` says that the launch ends here.
template <class P>
__device__ __forceinline__ bool thread_adapt_window(const Part<P> &part, float first, u64 time_ns,
                                                    bool is_dense, bool breaks) {
    Control *control = part.control;
    Trials &trials = control->trials;
    if (trials.phase == WIDENS) {
        thread_set_window(part, fminf(2 * control->window, part.delta));
        if (control->window < part.delta) return false;
        trials.phase = RESTS;
        return true;
    }
    trials.meetings += 1;
    if (breaks) trials.measures = 0;
    const u32 least = trials.measures ? LEAST_MEETINGS + control->round / MEETINGS_SHARE : 0;
    const bool fills = trials.phase != RESTS && trials.factor > 1 && is_dense && !trials.was_dense;
    const bool is_done = first > trials.begin_bound || trials.meetings >= least + MOST_MEETINGS;
    if (breaks || !(fills || (is_done && trials.meetings >= least))) return false;
    if (!trials.measures && !fills) {
        thread_begin_measurement(control, first, time_ns);
        return true;
    }
    const float speed =
        fills ? 0 : (first - trials.begin_first) / static_cast<float>(time_ns - trials.begin_ns);
    thread_begin_measurement(control, first, time_ns);
    if (!isfinite(speed)) return true;
    if (trials.phase == RESTS) {
        trials.speed = speed;
        if (trials.rest > 0) {
            trials.rest -= 1;
            return true;
        }
        trials.phase = TRIES_FIRST;
        trials.was_dense = is_dense;
        trials.factor = is_dense ? 1 / TRIED_FACTOR : TRIED_FACTOR;
        thread_set_window(part, control->window * trials.factor);
    } else if (speed > LEAST_GAIN * trials.speed) {
        const bool goes_on = part.devices == 1 || speed > MUCH_GAIN * trials.speed;
        trials.speed = speed;
        trials.patience = trials.rest = 1;
        trials.phase = goes_on ? GOES_ON : RESTS;
        if (goes_on) thread_set_window(part, control->window * trials.factor);
    } else {
        const float before = control->window / trials.factor;
        if (trials.phase == TRIES_FIRST) {
            trials.phase = TRIES_SECOND;
            trials.factor = 1 / trials.factor;
            thread_set_window(part, before * trials.factor);
        } else {
            trials.phase = RESTS;
            trials.patience = min(2 * trials.patience, LONGEST_REST);
            trials.rest = trials.patience;
            thread_set_window(part, before);
        }
    }
    return true;
}
