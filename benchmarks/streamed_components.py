"""Connected components of edges that stream: beside the bus, and of a file beside the disk.

    python benchmarks/streamed_components.py --json streamed.json      # edges in memory, on 1, 2, ... GPUs
    python benchmarks/streamed_components.py --graphs even-24 --gigabytes 6   # page-locked, for each GPU
    python benchmarks/streamed_components.py --file FOLDER --json file.json   # of 32 GB, within limits
    python benchmarks/streamed_components.py --tiny [--file FOLDER]    # does it work? on the CPU if need be

In memory: R-MAT (0.57, 0.19, 0.19, 0.05) with scattered ids, and edges between vertices drawn evenly, as
pairs of int32, in page-locked and in ordinary memory. The bandwidth is that of plain copies of the same
array to the same GPUs at the same time, measured in the same run; shares are of that. Times are those of
the run (``statistics.run_s``: first segment to last link, with the merge), medians of 5 after one that is
left out and whose labels are checked against the CPU's. What does not depend on the edges, such as merging
forests and bringing labels home, takes a part that shrinks with ``--gigabytes``: so many for each GPU.

File: a row is (u, v) with v = u modulo K, both drawn evenly. With a mean degree of 32 there are K
components, unless some vertex has no edge (of 256 million, one in 300,000 files), and the label of v is v
modulo K. It is written by all cores, forced to the disk, and put out of the page cache; then read by
threads that do nothing else (the disk's speed), and streamed; and both again with the file in the cache.
While it streams, device memory and the buffers of the host are watched.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

import godwit as gw
from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer

Row = dict[str, Any]
Pairs = np.ndarray[Any, Any]

RUNS = 5
PIECE_ROWS = 1 << 21
METHODS = ("rem", "hook")


# Edges.


def scattered(ids: Pairs, scale: int) -> Pairs:
    """Other numbers for vertices: multiplied by an odd number, folded, and multiplied again."""
    mask = np.uint64((1 << scale) - 1)
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) & mask
    mixed ^= mixed >> np.uint64(scale // 2 + 1)
    return (mixed * np.uint64(0xD1B54A32D192ED03) & mask).astype(np.int32)


def rmat_piece(scale: int, rows: int, seed: int) -> Pairs:
    """Edges of R-MAT."""
    generator = np.random.default_rng(seed)
    ends = np.zeros((2, rows), np.int32)
    for _ in range(scale):
        draw = generator.random(rows, np.float32)
        down = draw >= 0.76
        right = ((draw >= 0.57) & ~down) | (draw >= 0.95)
        ends = ends * 2 + np.stack([down, right])
    return scattered(ends.T, scale)


def even_piece(scale: int, rows: int, seed: int) -> Pairs:
    """Edges between vertices drawn evenly."""
    return np.random.default_rng(seed).integers(0, 1 << scale, (rows, 2), dtype=np.int32)


PIECES: dict[str, Callable[[int, int, int], Pairs]] = {"rmat": rmat_piece, "even": even_piece}


def fill(target: Pairs, kind: str, scale: int) -> None:
    """Edges of a kind, by all cores."""

    def one(first: int) -> None:
        some = target[first : first + PIECE_ROWS]
        some[:] = PIECES[kind](scale, len(some), first)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(0, len(target), PIECE_ROWS)))


# The bus.


def copies_gb_s(source: int, nbytes: int, indexes: Sequence[int], packet_bytes: int) -> float:
    """Bandwidth of plain copies of page-locked memory, each GPU its part, all at once."""
    share = nbytes // len(indexes) // packet_bytes * packet_bytes
    times = []
    with ExitStack() as stack:
        streams, buffers = [], []
        for index in indexes:
            buffers.append(stack.enter_context(Buffer(index, 2 * packet_bytes)))
            streams.append(Stream(index))
            stack.callback(streams[-1].close)
        for _ in range(RUNS + 1):
            begin = perf_counter()
            for place in range(0, share, packet_bytes):
                for which, (buffer, stream) in enumerate(zip(buffers, streams, strict=True)):
                    target = buffer.pointer + place // packet_bytes % 2 * packet_bytes
                    origin = source + which * share + place
                    driver.copy_async(target, origin, packet_bytes, stream)
            for stream in streams:
                stream.synchronize()
            times.append(perf_counter() - begin)
    return share * len(indexes) / median(times[1:]) / 1e9


# In memory.


def streamed(edges: Any, expected: Any, **options: Any) -> Row:
    """Times of a stream; the first run is checked."""
    seconds, whole = [], []
    wrong = False
    for turn in range(RUNS + 1):
        begin = perf_counter()
        found = gw.connected_components_of_edges(edges, **options)
        whole.append(perf_counter() - begin)
        seconds.append(found.statistics.run_s)
        if turn == 0:
            wrong = not np.array_equal(found.label, expected)
    return {
        "run_s": median(seconds[1:]),
        "query_s": median(whole[1:]),
        "gb_s": edges.nbytes / median(seconds[1:]) / 1e9,
        "first_s": seconds[0],
        "segments": found.statistics.rounds.tolist(),
        "phases_s": found.statistics.seconds,
        "wrong": wrong,
    }


def places_of(counts: Sequence[int]) -> list[list[str]]:
    """GPUs, and GPUs with the CPU; the CPU alone where there is none."""
    if driver.device_count() == 0:
        return [["cpu"], ["cpu:0", "cpu:1"]]
    places = [[f"cuda:{index}" for index in range(count)] for count in counts]
    return [*places, ["cuda:0", "cpu"]]


def in_memory(arguments: argparse.Namespace) -> Iterator[Row]:
    """Every graph, memory, place and method."""
    count = driver.device_count()
    counts = [one for one in (1, 2, 4, 8) if one <= count]
    for name in arguments.graphs.split(","):
        kind, _, numbers = name.partition("-")
        scale, factor = (int(number) for number in f"{numbers}x16".split("x")[:2])
        rows = factor << scale
        if arguments.gigabytes:
            rows = int(arguments.gigabytes * 1e9) // 8 * max(counts, default=1)
        with ExitStack() as stack:
            memories: dict[str, Pairs] = {}
            if count:
                locked = stack.enter_context(PinnedBuffer(8 * rows))
                memories["page-locked"] = locked.array(np.int32).reshape(rows, 2)
            if not (count and arguments.gigabytes):
                memories["ordinary"] = np.empty((rows, 2), np.int32)
            first, *others = memories.values()
            fill(first, kind, scale)
            for other in others:
                other[:] = first
            how = {"vertex_count": 1 << scale}
            expected: dict[int, Any] = {}
            bus: dict[tuple[int, int], float] = {}
            for devices in places_of(counts):
                gpus = sum(one.startswith("cuda") for one in devices)
                some = (
                    rows * max(1, gpus) // max(counts, default=1) if arguments.gigabytes else rows
                )
                if some not in expected:
                    expected[some] = gw.connected_components_of_edges(
                        first[:some], devices="cpu", **how
                    ).label
                if gpus and (gpus, some) not in bus:
                    packet = min(16 << 20, 8 * some // gpus)
                    bus[gpus, some] = copies_gb_s(locked.pointer, 8 * some, range(gpus), packet)
                for memory, edges in memories.items():
                    for method in METHODS:
                        row = streamed(
                            edges[:some], expected[some], devices=devices, method=method, **how
                        )
                        row["bus_gb_s"] = bus.get((gpus, some))
                        row["share"] = row["gb_s"] / bus[gpus, some] if gpus else None
                        yield {"graph": name, "memory": memory, "devices": devices,
                               "method": method, "edges": some, **row}  # fmt: skip


# A file.


def write_file(path: Path, vertices: int, parts: int, rows: int) -> float:
    """The file, by all cores, on the disk when it returns; seconds."""
    begin = perf_counter()
    with path.open("wb") as file:
        header = {"descr": "<i4", "fortran_order": False, "shape": (rows, 2)}
        np.lib.format.write_array_header_1_0(file, header)
        offset = file.tell()
    handle = os.open(path, os.O_WRONLY)
    height = vertices // parts

    def one(first: int) -> None:
        some = min(PIECE_ROWS, rows - first)
        generator = np.random.default_rng(first)
        pairs = generator.integers(0, height, (some, 2), dtype=np.int32) * np.int32(parts)
        pairs += generator.integers(0, parts, (some, 1), dtype=np.int32)
        data, place = pairs.reshape(-1).view(np.uint8).data, offset + 8 * first
        while len(data):
            written = os.pwrite(handle, data, place)
            data, place = data[written:], place + written

    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, range(0, rows, PIECE_ROWS)))
        os.fsync(handle)
    finally:
        os.close(handle)
    return perf_counter() - begin


def forget(path: Path) -> None:
    """Put a file out of the page cache."""
    handle = os.open(path, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def read_s(path: Path, threads: int = 8) -> float:
    """Seconds to read a file by threads that do nothing else."""
    handle, size, piece = os.open(path, os.O_RDONLY), path.stat().st_size, 16 << 20
    places = iter(range(0, size, piece))

    def work() -> None:
        buffer = np.empty(piece, np.uint8).data
        for place in places:
            os.preadv(handle, [buffer], place)

    begin = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(work) for _ in range(threads)]:
            job.result()
    os.close(handle)
    return perf_counter() - begin


class Watch:
    """The most memory that was taken while a block lasted.

    :ivar device_bytes: of GPU 0, by everybody
    :ivar host_bytes: of the host's buffers of contexts
    """

    def __init__(self) -> None:
        self.device_bytes = 0
        self.host_bytes = 0
        self._hosts: list[Any] = []

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look every few milliseconds."""
        original, ended = Context.make_space, threading.Event()

        def make_space(context: Context, endpoint: Endpoint) -> Any:
            space = original(context, endpoint)
            if endpoint.kind == "host":
                self._hosts.append(space)
            return space

        has_gpu = driver.device_count() > 0
        before = memory.free_memory_bytes(0) if has_gpu else 0

        def look() -> None:
            while not ended.is_set():
                used = sum(space.used_bytes for space in self._hosts)
                self.host_bytes = max(self.host_bytes, used)
                if has_gpu:
                    taken = before - memory.free_memory_bytes(0)
                    self.device_bytes = max(self.device_bytes, taken)
                sleep(0.005)

        watcher = threading.Thread(target=look)
        Context.make_space = make_space  # type: ignore[method-assign]
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            Context.make_space = original  # type: ignore[method-assign]


class Bar:
    """A progress bar on stderr."""

    def __init__(self) -> None:
        self._begin = perf_counter()
        self._last = 0.0

    def __call__(self, done: Any) -> None:
        """So many edges are done."""
        now = perf_counter()
        if now - self._last > 0.5 and done.total:
            self._last = now
            filled = int(40 * done / done.total)
            rate = 8e-9 * done / (now - self._begin)
            print(f"\r[{'#' * filled:40}] {done:,} of {done.total:,} edges, {rate:.1f} GB/s",
                  end="", file=sys.stderr)  # fmt: skip


def of_file(arguments: argparse.Namespace) -> Iterator[Row]:
    """A file of known components, from the disk and from the page cache."""
    vertices, parts, rows = (
        (1 << 15, 8, 1 << 19) if arguments.tiny else (256_000_000, 1000, 4 * 10**9)
    )
    path = Path(arguments.file) / "streamed_components.npy"
    limits = {"memory_bytes": 8 * 10**9, "host_bytes": 4 * 10**9}
    try:
        yield {"what": "write", "seconds": write_file(path, vertices, parts, rows), "rows": rows}
        devices = ["cuda:0"] if driver.device_count() else ["cpu"]
        # First of all, so that nothing is compiled, and no GPU woken, while it is timed.
        gw.connected_components_of_edges([[0, 1]], vertex_count=2, devices=devices)
        expected = np.arange(vertices, dtype=np.int32) % parts
        for where in ("disk", "cache"):
            for what in ("read", "stream"):
                if where == "disk":
                    forget(path)
                if what == "read":
                    seconds = read_s(path)
                    row: Row = {}
                else:
                    watch, begin = Watch(), perf_counter()
                    with watch.looking():
                        found = gw.connected_components_of_edges(
                            path, devices=devices, vertex_count=vertices, progress=Bar(), **limits
                        )
                    seconds = perf_counter() - begin
                    print(file=sys.stderr)
                    row = {"wrong": int((found.label != expected).sum()), "components": found.count,
                           "device_peak_bytes": watch.device_bytes, "host_peak_bytes": watch.host_bytes,
                           "phases_s": found.statistics.seconds, **limits}  # fmt: skip
                    del found
                gb_s = path.stat().st_size / seconds / 1e9
                yield {"what": f"{what} from the {where}", "seconds": seconds, "gb_s": gb_s, **row}
    finally:
        path.unlink(missing_ok=True)


def shown(row: Row) -> str:
    """For people."""
    if "what" in row:
        rest = {key: value for key, value in row.items() if key not in ("what", "phases_s")}
        return f"{row['what']}: " + ", ".join(
            f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value:,}"
            for key, value in rest.items()
        )
    share = "" if row["share"] is None else f", {row['share']:.1%} of {row['bus_gb_s']:.1f}"
    return (
        f"{row['graph']} {8e-9 * row['edges']:.1f} GB {row['memory']} {'+'.join(row['devices'])} "
        f"{row['method']}: "
        f"{1e3 * row['run_s']:.1f} ms, {row['gb_s']:.1f} GB/s{share}; whole query "
        f"{1e3 * row['query_s']:.1f} ms{'  WRONG' if row['wrong'] else ''}"
    )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", default="rmat-24x16,even-24x16,rmat-26x8")
    parser.add_argument(
        "--file", metavar="FOLDER", help="the experiment with a file, written there"
    )
    parser.add_argument(
        "--gigabytes",
        type=float,
        help="of page-locked edges for each GPU, instead of a graph's own",
    )
    parser.add_argument("--tiny", action="store_true", help="small graphs: does it work?")
    parser.add_argument("--json", metavar="FILE", help="where rows go")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.graphs = "rmat-14x8,even-14x8"
    rows = []
    for row in of_file(arguments) if arguments.file else in_memory(arguments):
        rows.append(row)
        print(shown(row), flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(rows, indent=1))
    if any(row.get("wrong") for row in rows):
        sys.exit("some labels are wrong")


if __name__ == "__main__":
    main()
