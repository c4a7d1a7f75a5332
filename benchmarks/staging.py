"""Copies between ordinary memory and GPUs: what buses give, and what the staging pool makes of it.

    python benchmarks/staging.py                        # everything, on one and two GPUs
    python benchmarks/staging.py --only memory,pool     # some sections
    python benchmarks/staging.py --only pool --threads 8,12,16 --pieces 1,2,4   # other pools

Sections: memory (memcpy by 1, 2, 4, ... threads from ordinary memory to page-locked, far and into rings of
2 MiB a thread; from there to pages that were never touched), driver (cudaHostRegister of ordinary memory,
and cudaMemcpyAsync from there by several threads), bus (page-locked memory in packets of 32 MiB), pool
(ordinary memory by the staging pool, up and down, in packets of 32 MiB, three under way to each GPU).
GB/s are the best of 3 runs; what the pool copied is compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.native import copy_bytes
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer
from godwit.runtime.cuda.transfer import staging
from godwit.runtime.cuda.transfer.staging import StagedCopy, StagingPool, Way, staging_pool

PACKET_BYTES = 32 << 20
RING_BYTES = 2 << 20
STEP_BYTES = 512 << 10
RUNS = 3


@kernel
def copy_steps(to: int, origin: int, nbytes: int, step: int, ring: int) -> None:
    """Copy in steps; what is written begins again after ``ring`` bytes."""
    at = 0
    while at < nbytes:
        length = min(step, nbytes - at)
        copy_bytes(to + at % ring, origin + at, length)
        at += length


def best_s(run: Callable[[], Any]) -> float:
    """Least seconds of some runs."""
    times = []
    for _ in range(RUNS):
        begin = perf_counter()
        run()
        times.append(perf_counter() - begin)
    return min(times)


class Bench:
    """Ordinary and page-locked memory.

    :param nbytes: of both
    """

    def __init__(self, nbytes: int, stack: ExitStack) -> None:
        self.nbytes = nbytes // (2 * PACKET_BYTES) * 2 * PACKET_BYTES
        self.ordinary = np.empty(self.nbytes // 8, np.int64)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._fill, range(0, len(self.ordinary), 1 << 20)))
        self.address = self.ordinary.ctypes.data
        self.locked = stack.enter_context(PinnedBuffer(self.nbytes))
        self.gpus = [range(count) for count in (1, 2) if count <= driver.device_count()]
        self.buffers = [stack.enter_context(Buffer(index, self.nbytes)) for index in self.gpus[-1]]

    def _fill(self, begin: int) -> None:
        some = self.ordinary[begin : begin + (1 << 20)]
        some[:] = np.arange(begin, begin + len(some)) * 0x1E3779B97F4A7C15  # wraps

    def _shared(self, threads: int, to: int, origin: int, ring: int | None) -> float:
        """GB/s of a copy that threads share; each has a ring, or its part of all."""
        share = self.nbytes // threads // 4096 * 4096

        def one(rank: int) -> None:
            target = to + rank * (share if ring is None else ring)
            copy_steps(target, origin + rank * share, share, STEP_BYTES, ring or 1 << 40)

        with ThreadPoolExecutor(threads) as pool:
            return share * threads / best_s(lambda: list(pool.map(one, range(threads)))) / 1e9

    def memory(self, _: argparse.Namespace) -> None:
        """Memcpy by threads."""
        copy_steps(0, 0, 0, 1, 1)
        for threads in (1, 2, 4, 8, 12, 16, 24):
            if threads > (os.cpu_count() or 1):
                break
            far = self._shared(threads, self.locked.pointer, self.address, None)
            near = self._shared(threads, self.locked.pointer, self.address, RING_BYTES)
            fresh = np.empty(self.nbytes, np.uint8)
            share = self.nbytes // threads
            begin = perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                for rank in range(threads):
                    where = rank * share
                    given = fresh.ctypes.data + where, self.locked.pointer + where
                    pool.submit(copy_steps, *given, share, STEP_BYTES, 1 << 40)
            untouched = self.nbytes / (perf_counter() - begin) / 1e9
            print(
                f"memcpy, {threads} threads: to page-locked {far:.1f}, to rings {near:.1f}, "
                f"to untouched pages {untouched:.1f} GB/s",
                flush=True,
            )

    def driver(self, _: argparse.Namespace) -> None:
        """What the driver makes of ordinary memory."""
        _, runtime = bindings()
        begin = perf_counter()
        driver.checked(runtime.cudaHostRegister(self.address, self.nbytes, 1), "page-locking")
        middle = perf_counter()
        driver.checked(runtime.cudaHostUnregister(self.address), "unlocking")
        end = perf_counter()
        gigabytes = self.nbytes / 1e9
        print(
            f"cudaHostRegister {1e3 * (middle - begin) / gigabytes:.1f} ms a GB, "
            f"cudaHostUnregister {1e3 * (end - middle) / gigabytes:.1f}"
        )
        for threads in (1, 2, 4, 8):
            share = self.nbytes // threads
            streams = [Stream(0) for _ in range(threads)]

            def one(rank: int, share: int = share, streams: Sequence[Stream] = streams) -> None:
                to, origin = self.buffers[0].pointer + rank * share, self.address + rank * share
                driver.copy_async(to, origin, share, streams[rank])
                streams[rank].synchronize()

            with ThreadPoolExecutor(threads) as pool:
                seconds = best_s(lambda: list(pool.map(one, range(threads))))  # noqa: B023
            rate = self.nbytes / seconds / 1e9
            print(
                f"cudaMemcpyAsync from ordinary memory, {threads} threads: {rate:.1f} GB/s",
                flush=True,
            )
            for stream in streams:
                stream.close()

    def bus(self, _: argparse.Namespace) -> None:
        """Page-locked memory."""
        for indexes in self.gpus:
            streams = [Stream(index) for index in indexes]

            def run(indexes: Sequence[int] = indexes, streams: Sequence[Stream] = streams) -> None:
                for number, at in enumerate(range(0, self.nbytes, PACKET_BYTES)):
                    turn = number % len(indexes)
                    to = self.buffers[turn].pointer + at
                    driver.copy_async(to, self.locked.pointer + at, PACKET_BYTES, streams[turn])
                for stream in streams:
                    stream.synchronize()

            print(
                f"bus, {len(indexes)} GPUs: {self.nbytes / best_s(run) / 1e9:.1f} GB/s", flush=True
            )

    def pool(self, arguments: argparse.Namespace) -> None:
        """Ordinary memory, by pools."""
        for threads, piece, slots in product(arguments.threads, arguments.pieces, arguments.slots):
            staging.close_pool()
            if threads:
                staging.TEAM_SLOTS, staging.PIECE_BYTES = slots, int(piece * (1 << 20))
                staging._pools[os.getpid()] = StagingPool(threads)
            begin = perf_counter()
            made = staging_pool()
            made_ms = 1e3 * (perf_counter() - begin)
            rates = []
            for indexes in self.gpus:
                for way in (Way.UP, Way.DOWN):
                    seconds = best_s(lambda way=way, indexes=indexes: self._packets(way, indexes))  # type: ignore[misc]
                    rates.append(f"{self.nbytes / seconds / 1e9:.1f}")
            size = f"{made._piece_bytes / (1 << 20):g} MiB x {made._slots.shape[1]}"
            team = len(made._slots) // staging.TEAMS
            print(
                f"pool of {staging.TEAMS} x {team} threads, {size}: up, down; two GPUs: {', '.join(rates)} "
                f"GB/s" + ("" if threads else f"; made in {made_ms:.0f} ms"),
                flush=True,
            )

    def _packets(self, way: Way, indexes: Sequence[int]) -> None:
        pool = staging_pool()
        under_way: list[deque[StagedCopy]] = [deque() for _ in indexes]
        for number, at in enumerate(range(0, self.nbytes, PACKET_BYTES)):
            turn = number % len(indexes)
            there, here = self.buffers[turn].pointer + at, self.address + at
            to, origin = (there, here) if way == Way.UP else (here, there)
            if len(under_way[turn]) == 3:
                under_way[turn].popleft().wait()
            copy = StagedCopy(way, indexes[turn], to, origin, PACKET_BYTES)
            under_way[turn].append(pool.start(copy))
        for copies in under_way:
            for copy in copies:
                copy.wait()

    def check(self) -> bool:
        """Return True if GPUs and ordinary memory have what they ought to."""
        expected = np.empty(1 << 20, np.int64)
        ordinary, self.ordinary = self.ordinary, expected
        self._fill(0)
        self.ordinary = ordinary
        on_gpu = self.buffers[0].download(np.int64, len(expected))
        return np.array_equal(ordinary[: len(expected)], expected) and np.array_equal(
            on_gpu, expected
        )


SECTIONS = {"memory": Bench.memory, "driver": Bench.driver, "bus": Bench.bus, "pool": Bench.pool}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    numbers = {"threads": "0", "pieces": "2", "slots": "24"}
    for name, default in numbers.items():
        parser.add_argument(
            f"--{name}",
            default=default,
            help="of pools, threads and slots of each team; 0 threads: the process's own",
        )
    arguments = parser.parse_args()
    for name in numbers:
        kind = float if name == "pieces" else int
        setattr(arguments, name, [kind(one) for one in getattr(arguments, name).split(",")])
    sections = arguments.only.split(",")
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        sys.exit(f"--only takes {', '.join(SECTIONS)}, not {', '.join(unknown)}")
    if not driver.device_count():
        sys.exit(f"there is no GPU: {driver.why_not()}")
    with ExitStack() as stack:
        bench = Bench(int(arguments.gigabytes * 1e9), stack)
        for name in sections:
            SECTIONS[name](bench, arguments)
        if "pool" in sections and not bench.check():
            sys.exit("what was copied is wrong")


if __name__ == "__main__":
    main()
