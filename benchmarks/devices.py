"""Measures the links of a machine: the microbenchmarks of Groute's figure 2.

    python benchmarks/devices.py
    python benchmarks/devices.py --json links.json --plot links.svg    # a plot needs Matplotlib

Each trial (devices_trials.py) is timed by two events in the first stream of its source, which waits for all
other streams of the trial in between. It is repeated until it takes some milliseconds, which warms it up;
what arrived is checked once, and the time limits of kernels each time; the result is the median of further
samples. Copies are submitted one by one from Python, as segment links submit them, so the rate of small
packets includes that cost. Other programs on the GPUs disturb the measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from devices_results import ENDINGS, Measurement, Measurements, plot, print_measurements
from devices_testbed import Testbed
from devices_trials import Trial, all_trials
from godwit.errors import DeviceError, GodwitError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.devices import held_gpus, topology
from godwit.runtime.cuda.driver import TimedEvent

Progress = Callable[[int, int], None]
"""Called with the numbers of trials done and of all trials."""

SAMPLES = 5

_LONG_ENOUGH_MS = 2.0


def measure(indexes: Sequence[int], progress: Progress | None = None) -> Measurements:
    """Measure the links between GPUs, and between each and the host.

    :param indexes: the GPUs; if there is one, pairs are this GPU and itself
    :raises DeviceError: a GPU does not exist or respond, or a message arrives damaged
    :raises GraphTooLargeError: a GPU's memory does not hold the messages
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
    """Warm up, check, and measure; a DeviceError names the trial."""
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
    bed.synchronize()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", help="numbers of GPUs with commas between; all by default")
    parser.add_argument("--json", help="file for the topology and the figures")
    parser.add_argument("--plot", help=f"file for the rates by packet size: {' or '.join(ENDINGS)}")
    given = parser.parse_args()
    if given.plot and Path(given.plot).suffix.lower() not in ENDINGS:
        parser.error(f"--plot must end in {' or '.join(ENDINGS)}, got {given.plot!r}")
    gpus = range(driver.device_count()) if given.gpus is None else map(int, given.gpus.split(","))
    try:
        found = measure(list(gpus), _show_progress)
    except GodwitError as error:
        parser.error(str(error))
    print_measurements(found)
    if given.json:
        facts = {"topology": found.topology.to_dict(), "measurements": found.to_dict()}
        Path(given.json).write_text(json.dumps(facts, indent=1))
    if given.plot:
        plot(found, given.plot)


def _show_progress(done: int, trials: int) -> None:
    print(f"\r# {done} of {trials}", end="\n" if done == trials else "", file=sys.stderr)


if __name__ == "__main__":
    main()
