"""Filtering beside NumPy, beside the bus, and on unequal devices: Groute's first example (section 5.3).

    python benchmarks/filtering.py --json filtering.json         # 2 GB of float32, on 1, 2, ... GPUs
    python benchmarks/filtering.py --only bus,filter --kept 0.5  # some sections, some selectivities
    python benchmarks/filtering.py --tiny                        # does it work? on the CPU if need be

Sections: numpy (``array[array < x]``, and gw.filter on the CPU), kernel (of an array on the GPU: bytes read
and written a second), bus (plain copies of page-locked memory in packets: up, and up with what is kept of
it coming down at the same time), filter (page-locked arrays, to a page-locked ``out`` or a new array;
ordinary arrays; 1, 2, ... GPUs, and a GPU with the CPU), packets (sizes of them), balance (table 5 of the
paper: whoever is free takes the next packet, against equal parts, on two devices of which one is slower: a
GPU and the CPU, or two of a kind of which one rests after every packet; the ideal is both at the speed of
each alone).

Values are drawn evenly from [0, 1), so that ``x < 0.5`` keeps half. Times are medians of 5 calls after one
that is left out and whose result is checked against NumPy's; a call makes its context, threads and buffers,
and ends them. GB/s are of the input, but for the kernel. Shares are of the bus, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count as numbers
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.algorithms.filtering import FilterOptions, filter_host_array, gpu_packets
from godwit.algorithms.filtering.cuda import GpuFilter
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream, TimedEvent
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer

Row = dict[str, Any]
Values = np.ndarray[Any, Any]
Predicate = Callable[[Any], Any]

RUNS = 5
PACKET_BYTES = 64 << 20  # of plain copies
FLOAT32 = np.dtype(np.float32)


def predicate_of(kept: float) -> Predicate:
    """What keeps such a part of the values."""
    return lambda x: x < kept


def fill(values: Values) -> None:
    """Random values, by all cores."""
    piece = 1 << 22

    def one(begin: int) -> None:
        some = values[begin : begin + piece]
        some[:] = np.random.default_rng(begin).random(len(some), np.float32)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(0, len(values), piece)))


def timed(run: Callable[[], Any], expected: Values | None = None) -> Row:
    """Seconds of a call, and whether its result is right."""
    wrong = False
    first = perf_counter()
    found = run()
    first = perf_counter() - first
    if expected is not None:
        wrong = not np.array_equal(found, expected)
    del found
    seconds = []
    for _ in range(RUNS):
        begin = perf_counter()
        found = run()
        seconds.append(perf_counter() - begin)
        del found
    return {"seconds": median(seconds), "least_s": min(seconds), "most_s": max(seconds),
            "first_s": first, "wrong": wrong}  # fmt: skip


class Bench:
    """The arrays, and what was measured of the bus.

    :param nbytes: of the input
    """

    def __init__(self, nbytes: int, kept: Sequence[float], stack: ExitStack) -> None:
        self.kept = kept
        self.gpus = driver.device_count()
        count = nbytes // FLOAT32.itemsize
        self.ordinary = np.empty(count, FLOAT32)
        fill(self.ordinary)
        self.expected = {one: self.ordinary[self.ordinary < one] for one in kept}
        self.bus: dict[tuple[int, float], float] = {}
        if self.gpus:
            self.locked_from = stack.enter_context(PinnedBuffer(nbytes))
            self.locked_to = stack.enter_context(PinnedBuffer(nbytes))
            self.locked = self.locked_from.array(FLOAT32)
            self.locked[:] = self.ordinary
            self.locked_out = self.locked_to.array(FLOAT32)
            self.locked_out[:] = 0

    @property
    def counts(self) -> list[int]:
        """Of GPUs."""
        return [count for count in (1, 2, 4, 8) if count <= self.gpus]

    def rate(self, row: Row) -> Row:
        """With GB/s of the input."""
        return {**row, "gb_s": self.ordinary.nbytes / row["seconds"] / 1e9}

    # Sections.

    def numpy(self) -> Iterator[Row]:
        """Of the host, NumPy's selection and ours."""
        for kept in self.kept:
            wanted = self.expected[kept]
            limit = FLOAT32.type(kept)
            how = timed(lambda limit=limit: self.ordinary[self.ordinary < limit], wanted)  # type: ignore[misc]
            yield {"what": "NumPy", "kept": kept, **self.rate(how)}
            for devices in ("cpu:0", "cpu"):
                run = self._filter(self.ordinary, kept, devices)
                yield {"what": devices, "kept": kept, **self.rate(timed(run, wanted))}

    def kernel(self) -> Iterator[Row]:
        """On an array that lies on a GPU."""
        if not self.gpus:
            return
        nbytes = min(self.ordinary.nbytes, 1 << 30)
        count = nbytes // FLOAT32.itemsize
        for kept in self.kept:
            with ExitStack() as stack:
                stream = Stream(0)
                stack.callback(stream.close)
                source, target = (stack.enter_context(Buffer(0, nbytes)) for _ in range(2))
                source.upload(self.ordinary[:count])
                kernel = GpuFilter(0, stream, predicate_of(kept), FLOAT32, count)
                stack.callback(kernel.close)
                times = []
                for _ in range(RUNS + 1):
                    before, after = TimedEvent(0), TimedEvent(0)
                    before.record(stream)
                    kernel.start(source.pointer, count, target.pointer)
                    after.record(stream)
                    stream.synchronize()
                    times.append(driver.elapsed_ms(before, after) / 1e3)
                moved = nbytes + kernel.kept_count() * FLOAT32.itemsize
                yield {"what": "kernel", "kept": kept, "seconds": median(times[1:]),
                       "gb_s": moved / median(times[1:]) / 1e9}  # fmt: skip

    def measure_bus(self) -> Iterator[Row]:
        """Plain copies, up, and both ways at once."""
        for count in self.counts:
            for kept in dict.fromkeys([0.0, *self.kept]):
                seconds = self._copies(count, kept)
                rate = self.ordinary.nbytes / seconds / 1e9
                self.bus[count, kept] = rate
                yield {"what": "bus", "gpus": count, "kept": kept, "seconds": seconds, "gb_s": rate}

    def _copies(self, gpus: int, kept: float) -> float:
        """Seconds of all packets up, dealt out to GPUs in turn, and of a part of each down again."""
        up: list[Stream] = []
        down: list[Stream] = []
        buffers: list[Buffer] = []
        down_bytes = int(PACKET_BYTES * kept)
        with ExitStack() as stack:
            for index in range(gpus):
                buffers.append(stack.enter_context(Buffer(index, 4 * PACKET_BYTES)))
                for streams in (up, down):
                    streams.append(Stream(index))
                    stack.callback(streams[-1].close)
            times = []
            for _ in range(RUNS + 1):
                begin = perf_counter()
                for number, at in enumerate(range(0, self.ordinary.nbytes, PACKET_BYTES)):
                    gpu, half = number % gpus, number // gpus % 2 * PACKET_BYTES
                    here = buffers[gpu].pointer
                    length = min(PACKET_BYTES, self.ordinary.nbytes - at)
                    driver.copy_async(here + half, self.locked_from.pointer + at, length, up[gpu])
                    if down_bytes:
                        there = self.locked_to.pointer + at
                        back = min(down_bytes, length)
                        driver.copy_async(there, here + 2 * PACKET_BYTES + half, back, down[gpu])
                for stream in (*up, *down):
                    stream.synchronize()
                times.append(perf_counter() - begin)
        return median(times[1:])

    def filter(self) -> Iterator[Row]:
        """Every memory, place and selectivity."""
        places: list[list[str]] = [[f"cuda:{one}" for one in range(count)] for count in self.counts]
        places += [["cuda:0", "cpu"]] if self.gpus else [["cpu"], ["cpu:0", "cpu:1"]]
        for kept in self.kept:
            for devices in places:
                yield from self._memories(devices, kept)

    def _memories(self, devices: list[str], kept: float) -> Iterator[Row]:
        gpus = sum(one.startswith("cuda") for one in devices)
        plans: list[tuple[str, Values, Values | None]] = [("ordinary", self.ordinary, None)]
        if gpus:
            plans.insert(0, ("page-locked to page-locked", self.locked, self.locked_out))
            plans.insert(1, ("page-locked", self.locked, None))
        for memory, values, out in plans:
            run = self._filter(values, kept, devices, out=out)
            row = self.rate(timed(run, self.expected[kept]))
            for name, part in (("share_up", 0.0), ("share_both", kept)):
                bus = self.bus.get((gpus, part))
                row[name] = row["gb_s"] / bus if bus else None
            yield {"what": "filter", "devices": devices, "memory": memory, "kept": kept, **row}

    def packets(self) -> Iterator[Row]:
        """Sizes of packets, on the first GPU or the CPU."""
        devices = "cuda:0" if self.gpus else "cpu"
        values, out = (self.locked, self.locked_out) if self.gpus else (self.ordinary, None)
        for shift in range(20, 28):
            run = self._filter(values, 0.5, devices, out=out, packet_bytes=1 << shift)
            yield {"what": "packets", "devices": devices, "packet_bytes": 1 << shift,
                   **self.rate(timed(run, self.expected.get(0.5)))}  # fmt: skip

    def balance(self) -> Iterator[Row]:
        """Packets for the device that is free, against equal parts as they would take."""
        pairs = [("GPU and CPU", ["cuda:0", "cpu"], 0.0),
                 ("two, one slowed", [f"cuda:{min(1, self.gpus - 1)}", "cuda:0"], 0.002)]  # fmt: skip
        for name, devices, pause_s in pairs if self.gpus else []:
            packet_bytes = 1 << 22 if pause_s else None  # a pause for each
            alone = []
            for place, device in enumerate(devices):
                with slowed(pause_s if place == 1 else 0.0, 0):
                    alone.append(self.rate(timed(self._flow([device], packet_bytes)))["gb_s"])
            gigabytes = self.ordinary.nbytes / 1e9
            ideal_s = gigabytes / sum(alone)
            with slowed(pause_s, 1):
                run = self._flow(devices, packet_bytes)
                row = self.rate(timed(run, self.expected.get(0.5)))
            yield {"what": "balance", "pair": name, "devices": devices, "alone_gb_s": alone,
                   "ideal_s": ideal_s, **row, "of_ideal": row["seconds"] / ideal_s,
                   "equal_parts_of_ideal": gigabytes / 2 / min(alone) / ideal_s}  # fmt: skip

    # What is run.

    def _filter(self, values: Values, kept: float, devices: Any, **how: Any) -> Callable[[], Any]:
        predicate = predicate_of(kept)
        return lambda: gw.filter(values, predicate, devices, **how)

    def _flow(self, devices: Any, packet_bytes: int | None) -> Callable[[], Any]:
        values, out = (self.locked, self.locked_out) if self.gpus else (self.ordinary, None)
        options = FilterOptions(out=out, packet_bytes=packet_bytes)
        predicate = predicate_of(0.5)
        return lambda: filter_host_array(values, predicate, FLOAT32, devices, options)


@contextmanager
def slowed(pause_s: float, place: int) -> Iterator[None]:
    """A block in which the GPU at a place rests after every packet."""
    real = gpu_packets.host_filter
    made_so_far = numbers()

    def host_filter(*given: Any) -> Any:
        made = real(*given)
        if pause_s and next(made_so_far) == place:
            resting = Rest(pause_s)
            for slot in made.slots:
                slot.count = resting.counted(slot.count)
        return made

    gpu_packets.host_filter = host_filter
    try:
        yield
    finally:
        gpu_packets.host_filter = real


class Rest:
    """A GPU is done with a packet only when it has rested after that, and after those before."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._end_s = 0.0

    def counted(self, real: Callable[[], int | None]) -> Callable[[], int | None]:
        """What says how many items a packet keeps, later."""
        end_s: float | None = None

        def late() -> int | None:
            nonlocal end_s
            if end_s is None:
                if real() is None:
                    return None
                end_s = self._end_s = max(self._end_s, perf_counter()) + self._pause_s
            if perf_counter() < end_s:
                return None
            end_s = None
            return real()

        return late


SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "numpy": Bench.numpy,
    "kernel": Bench.kernel,
    "bus": Bench.measure_bus,
    "filter": Bench.filter,
    "packets": Bench.packets,
    "balance": Bench.balance,
}
_SHOWN = ("what", "pair", "devices", "gpus", "memory", "packet_bytes", "kept", "seconds", "gb_s",
          "share_up", "share_both", "of_ideal", "wrong")  # fmt: skip


def shown(row: Row) -> str:
    """A row as people read it."""
    words = []
    for name in _SHOWN:
        value = row.get(name)
        if value is None or (name == "wrong" and not value):
            continue
        if name == "seconds":
            words.append(f"{1e3 * value:.2f} ms")
        elif name == "gb_s":
            words.append(f"{value:.1f} GB/s")
        elif isinstance(value, float):
            words.append(f"{name} {value:.2f}")
        elif isinstance(value, list):
            words.append("+".join(value))
        else:
            words.append(str(value) if name in ("what", "memory", "pair") else f"{name} {value}")
    return "  ".join(words)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of the input (2)")
    parser.add_argument("--kept", default="0,0.1,0.5,1", help="parts of it that are kept")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--json", type=Path, help="a file for all rows")
    parser.add_argument("--tiny", action="store_true", help="32 MB: does it work?")
    found = parser.parse_args()
    found.only = found.only.split(",")
    unknown = [name for name in found.only if name not in SECTIONS]
    if unknown:
        sys.exit(f"--only takes {', '.join(SECTIONS)}, not {', '.join(unknown)}")
    try:
        found.kept = [float(one) for one in found.kept.split(",")]
    except ValueError:
        sys.exit(f"--kept takes numbers from 0 to 1, not {found.kept!r}")
    return found


def main() -> None:
    """Measure, print, and write."""
    arguments = parsed()
    nbytes = 32 << 20 if arguments.tiny else int(arguments.gigabytes * 1e9) // 4 * 4
    rows: list[Row] = []
    with ExitStack() as stack:
        bench = Bench(nbytes, arguments.kept, stack)
        for name in arguments.only:
            for row in SECTIONS[name](bench):
                rows.append({"bytes": nbytes, **row})
                print(shown(row), flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(rows, indent=1))
    if any(row.get("wrong") for row in rows):
        sys.exit("some results are wrong")


if __name__ == "__main__":
    main()
