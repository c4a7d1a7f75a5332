"""Measuring the links of a machine: the microbenchmarks of Groute's figure 2, and what they rest on.

Each trial (trials.py) is timed by two events in the first stream of its source, with everything that it
starts elsewhere awaited between them. It is repeated until it takes some milliseconds, which warms it up;
what arrived is checked once, and that nobody waited in vain each time; the median of several further
samples is the result. Copies are submitted one by one from Python, as segment links submit them, so small
packets show what that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from godwit.errors import DeviceError
from godwit.measure.testbed import Testbed
from godwit.measure.trials import Trial, all_trials
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import TimedEvent
from godwit.runtime.cuda.gpu_locks import held_gpus
from godwit.runtime.cuda.measurements import Measurement, Measurements
from godwit.runtime.cuda.topology import topology

Progress = Callable[[int, int], None]
"""Called with the trials that are done, and with how many there are."""

SAMPLES = 5

_LONG_ENOUGH_MS = 2.0


def measure(indexes: Sequence[int], progress: Progress | None = None) -> Measurements:
    """Measure the links between GPUs, and between each and the host.

    :param indexes: the GPUs; of a single one, pairs are it and itself
    :raises DeviceError: one is not there, does not answer, or receives something else than was sent
    :raises GraphTooLargeError: its memory does not hold the messages
    """
    begin = perf_counter()
    if not indexes:
        raise DeviceError(f"there is nothing to measure: {driver.why_not() or 'no GPU was named'}")
    shape = topology(indexes)
    with held_gpus([gpu.index for gpu in shape.gpus]), Testbed(shape) as bed:
        trials = list(all_trials(bed))
        results = []
        for done, trial in enumerate(trials):
            if progress is not None:
                progress(done, len(trials))
            results.append(run_trial(bed, trial))
        if progress is not None:
            progress(len(trials), len(trials))
        seconds = perf_counter() - begin
        return Measurements(shape, tuple(results), bed.message_bytes, bed.span_bytes, seconds)


def run_trial(bed: Testbed, trial: Trial) -> Measurement:
    """Warm up, check, and measure.

    :raises DeviceError: which says what was being measured
    """
    try:
        return _run_trial(bed, trial)
    except DeviceError as error:
        raise DeviceError(f"measuring {trial}: {error}") from error


def _run_trial(bed: Testbed, trial: Trial) -> Measurement:
    begin, end = TimedEvent(trial.lead.index), TimedEvent(trial.lead.index)

    def sample(repeats: int) -> float:
        go = trial.arrange(repeats)
        begin.record(trial.lead)
        go()
        end.record(trial.lead)
        end.synchronize()
        bed.check_answers()
        return driver.elapsed_ms(begin, end)

    if trial.prepare is not None:
        trial.prepare()
    bed.settle()
    repeats = 1
    taken_ms = sample(repeats)
    if trial.check is not None:
        trial.check(repeats)
    while taken_ms < _LONG_ENOUGH_MS and repeats < trial.most_repeats:
        wanted = int(repeats * _LONG_ENOUGH_MS / max(taken_ms, 1e-3)) + 1
        repeats = min(trial.most_repeats, max(2 * repeats, wanted))
        taken_ms = sample(repeats)
    values = [_rate(trial, repeats, sample(repeats)) for _ in range(SAMPLES)]
    return Measurement(
        trial.what, trial.source, trial.destination, trial.packet_bytes, trial.unit,
        median(values), min(values), max(values), len(values),
    )  # fmt: skip


def _rate(trial: Trial, repeats: int, taken_ms: float) -> float:
    amount = repeats * trial.amount
    return 1e3 * taken_ms / amount if trial.unit == "us" else amount / (1e6 * taken_ms)
