"""Ways of a result from a GPU to the host, compared: what runtime/cuda/transfer/delivery.py chose by.

    python benchmarks/delivery.py                                # cuda:0, 2^24 values
    python benchmarks/delivery.py --scale 22 --only pinning,gather

*pinning* is the time to make page-locked memory and to free it, by size; *gather* the time of the kernel
that puts values in the order of vertices, into GPU memory and straight into page-locked memory;
*host* the time that a thread of the host takes to read what has arrived; *calls* that of single calls from
Python; *busy* that of calls while a kernel runs; *fork* whether a forked process can read the memory.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import load
from godwit.runtime.cuda.driver import Launch, Stream, checked
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
PARTS = ("pinning", "gather", "host", "calls", "busy", "fork")
_POPULATE_WRITE, _HUGE_PAGE, _PORTABLE_AND_MAPPED = 23, 14, 3
_THREADS = 256

KERNELS = r"""
#include "runtime/cuda/include/memory.cuh"

template <int EACH, typename Value, typename Result>
__device__ void grid_gather(const Value *values, const i32 *positions, i64 count, Result *results) {
    const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x * EACH;
    i64 first = (static_cast<i64>(blockIdx.x) * EACH) * blockDim.x + threadIdx.x;
    for (; first < count; first += stride) {
        i32 at[EACH];
        Value value[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++)
            at[k] = first + k * blockDim.x < count ? positions[first + k * blockDim.x] : 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) value[k] = values[at[k]];
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (first + k * blockDim.x < count)
                results[first + k * blockDim.x] = static_cast<Result>(value[k]);
    }
}

// Four neighbouring results a thread.
template <typename Value, typename Result>
__device__ void grid_gather_quads(const Value *values, const i32 *positions, i64 count,
                                  Result *results) {
    struct alignas(16) Quad { i32 of[4]; };
    struct alignas(16) Out { Result of[16 / sizeof(Result)]; };
    const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 4; i += stride) {
        Quad at = reinterpret_cast<const Quad *>(positions)[i];
        constexpr int wide = 16 / sizeof(Result);
        Out out[4 / wide];
#pragma unroll
        for (int k = 0; k < 4; k++) out[k / wide].of[k % wide] = static_cast<Result>(values[at.of[k]]);
#pragma unroll
        for (int k = 0; k < 4 / wide; k++) reinterpret_cast<Out *>(results)[i * 4 / wide + k] = out[k];
    }
}

#define GATHER(name, each, Result)                                                                 \
    extern "C" __global__ void name(const i32 *values, const i32 *positions, i64 count,           \
                                    Result *results) {                                            \
        grid_gather<each>(values, positions, count, results);                                     \
    }
GATHER(one_i32, 1, i32)
GATHER(four_i32, 4, i32)
GATHER(eight_i32, 8, i32)
GATHER(one_i64, 1, i64)
GATHER(four_i64, 4, i64)
extern "C" __global__ void quads_i32(const i32 *values, const i32 *positions, i64 count, i32 *results) {
    grid_gather_quads(values, positions, count, results);
}
extern "C" __global__ void quads_i64(const i32 *values, const i32 *positions, i64 count, i64 *results) {
    grid_gather_quads(values, positions, count, results);
}
extern "C" __global__ void nothing(i64 count) {}
extern "C" __global__ void spin(i64 nanoseconds) {
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < static_cast<u64>(nanoseconds));
}
"""

_libc = ctypes.CDLL(None, use_errno=True)


def ms(run: Callable[[], Any], repeats: int = 7) -> float:
    """Return the median time of some calls, the first apart."""
    times = []
    for _ in range(repeats + 1):
        begin = perf_counter()
        run()
        times.append(1e3 * (perf_counter() - begin))
    return median(times[1:])


class Registered:
    """Private memory of the process, its pages made by threads, then page-locked."""

    def __init__(self, nbytes: int, threads: int, *, huge: bool) -> None:
        begin = perf_counter()
        self.nbytes = nbytes
        self.map = mmap.mmap(-1, nbytes + 2 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.pointer = -(-base // (2 * MB)) * 2 * MB
        if huge:
            _madvise(self.pointer, nbytes, _HUGE_PAGE)
        step = max(2 * MB, -(-nbytes // threads // (2 * MB)) * 2 * MB)
        pieces = [(at, min(step, nbytes - at)) for at in range(0, nbytes, step)]
        if len(pieces) == 1:
            _madvise(self.pointer, nbytes, _POPULATE_WRITE)
        else:
            with ThreadPoolExecutor(len(pieces)) as pool:
                list(
                    pool.map(lambda p: _madvise(self.pointer + p[0], p[1], _POPULATE_WRITE), pieces)
                )
        self.touch_ms = 1e3 * (perf_counter() - begin)
        begin = perf_counter()
        _, runtime = bindings()
        checked(runtime.cudaHostRegister(self.pointer, nbytes, _PORTABLE_AND_MAPPED), "registering")
        self.register_ms = 1e3 * (perf_counter() - begin)

    def array(self, dtype: Any) -> Any:
        """Return the memory as an array."""
        raw: Any = (ctypes.c_byte * self.nbytes).from_address(self.pointer)
        return np.frombuffer(raw, np.uint8).view(dtype)

    def unregister(self) -> None:
        """Unlock the pages."""
        checked(bindings()[1].cudaHostUnregister(self.pointer), "unregistering")

    def close(self) -> None:
        """Unlock the pages; the memory is freed with the object."""
        self.unregister()


def _madvise(pointer: int, nbytes: int, advice: int) -> None:
    if _libc.madvise(ctypes.c_void_p(pointer), ctypes.c_size_t(nbytes), advice):
        error = ctypes.get_errno()
        if advice != _HUGE_PAGE:
            raise OSError(error, os.strerror(error))


def pinning(threads: int) -> None:
    """Print how long it takes to make and to free page-locked memory."""
    driver.use(0)
    print("pinning, ms; huge pages:", _text("/sys/kernel/mm/transparent_hugepage/enabled"))
    print(f"{'bytes':>12} {'alloc':>9} {'free':>9} | {'huge: touch':>12} {'register':>9} {'unreg.':>8} |"
          f" {'4K: touch':>10} {'register':>9} {'unreg.':>8}")  # fmt: skip
    for nbytes in (4 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB, 128 * MB, GB):
        rows = []
        for _ in range(3):
            row = []
            begin = perf_counter()
            buffer = PinnedBuffer(nbytes)
            row.append(perf_counter() - begin)
            begin = perf_counter()
            buffer.close()
            row.append(perf_counter() - begin)
            for huge in (True, False):
                made = Registered(max(nbytes, 4 * KB), threads, huge=huge)
                row += [made.touch_ms / 1e3, made.register_ms / 1e3]
                begin = perf_counter()
                made.close()
                row.append(perf_counter() - begin)
            rows.append(row)
        best = [1e3 * median(column) for column in zip(*rows, strict=True)]
        print(f"{nbytes:12,} {best[0]:9.3f} {best[1]:9.3f} | {best[2]:12.3f} {best[3]:9.3f} "
              f"{best[4]:8.3f} |"
              f" {best[5]:10.3f} {best[6]:9.3f} {best[7]:8.3f}")  # fmt: skip


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        return str(error)


class Bench:
    """Values and positions on the GPU, and kernels."""

    def __init__(self, count: int, positions: Any) -> None:
        self.count = count
        self.stream = Stream(0)
        self.values = Buffer(0, 4 * count)
        self.values.upload(np.arange(count, dtype=np.int32))
        self.positions = Buffer(0, 4 * count)
        self.positions.upload(positions)
        self.results = Buffer(0, 8 * count)
        self.module = load(0, KERNELS)
        self.multiprocessors = driver.properties(0).multiprocessors

    def launch(self, name: str, to: int, blocks: int, first: int = 0, count: int | None = None,
               stream: Stream | None = None) -> Launch:  # fmt: skip
        """Return a kernel that gathers some of the values to an address."""
        count = self.count if count is None else count
        item = 8 if name.endswith("64") else 4
        return Launch(
            self.module.kernel(name), stream or self.stream,
            blocks=blocks * self.multiprocessors, threads=_THREADS,
            arguments=(self.values.pointer, self.positions.pointer + 4 * first, count, to + item * first),
        )  # fmt: skip

    def run(self, launch: Launch) -> None:
        """Start a kernel and wait."""
        launch.start()
        self.stream.synchronize()


def gather(bench: Bench, what: str, threads: int) -> None:
    """Print the times of the kernel into GPU memory and into the host's."""
    count = bench.count
    print(f"gather of {count:,} values, {what}, ms")
    for name in (
        "one_i32",
        "four_i32",
        "eight_i32",
        "quads_i32",
        "one_i64",
        "four_i64",
        "quads_i64",
    ):
        times = []
        for blocks in (1, 2, 4, 8):
            launch = bench.launch(name, bench.results.pointer, blocks)
            times.append(ms(partial(bench.run, launch)))
        print(f"  on the GPU   {name:10} blocks 1 2 4 8: " + " ".join(f"{t:8.3f}" for t in times))
    with PinnedBuffer(8 * count) as allocated:
        registered = Registered(8 * count, threads, huge=True)
        for where, pointer in (
            ("allocated", allocated.pointer),
            ("registered", registered.pointer),
        ):
            for name in ("one_i32", "four_i32", "quads_i32", "one_i64", "four_i64", "quads_i64"):
                times = []
                for blocks in (1, 2, 4, 8):
                    launch = bench.launch(name, pointer, blocks)
                    times.append(ms(partial(bench.run, launch)))
                print(
                    f"  {where:12} {name:10} blocks 1 2 4 8: "
                    + " ".join(f"{t:8.3f}" for t in times)
                )
            for item, name in ((4, "four_i32"), (8, "four_i64")):
                for pieces in (1, 4, 8, 16):
                    run = _copied_in_pieces(bench, name, pointer, item, pieces)
                    print(
                        f"  {where:12} {name:10} then copied in {pieces:2} pieces: {ms(run):8.3f}"
                    )

                def copy(item: int = item, pointer: int = pointer) -> None:
                    driver.copy_async(pointer, bench.results.pointer, item * count, bench.stream)
                    bench.stream.synchronize()

                print(f"  {where:12} {item} bytes     copy alone          : {ms(copy):8.3f}")
            raw: Any = (ctypes.c_byte * (8 * count)).from_address(pointer)
            found = np.frombuffer(raw, np.int64)
            bench.run(bench.launch("quads_i64", pointer, 8))
            assert np.array_equal(found, bench.positions.download(np.int32, count))
        registered.close()


def _copied_in_pieces(
    bench: Bench, name: str, pointer: int, item: int, pieces: int
) -> Callable[[], None]:
    count = bench.count
    step = -(-count // pieces // 128) * 128
    streams = [Stream(0), Stream(0)]
    plan = []
    for number, first in enumerate(range(0, count, step)):
        stream, length = streams[number % 2], min(step, count - first)
        plan.append((bench.launch(name, bench.results.pointer, 4, first, length, stream), stream,
                     item * first, item * length))  # fmt: skip

    def run() -> None:
        for launch, stream, offset, nbytes in plan:
            launch.start()
            driver.copy_async(pointer + offset, bench.results.pointer + offset, nbytes, stream)
        for stream in streams:
            stream.synchronize()

    return run


def host(count: int, threads: int) -> None:
    """Print how long a thread takes to read memory of each kind."""
    nbytes = 4 * count
    with PinnedBuffer(nbytes) as allocated:
        registered = Registered(nbytes, threads, huge=True)
        kinds: dict[str, Any] = {
            "allocated": allocated.array(np.int32),
            "registered": registered.array(np.int32),
            "ordinary": np.ones(count, np.int32),
        }
        target = np.ones(count, np.int32)
        for name, array in kinds.items():
            array[:] = 1
            whole = ms(array.sum)
            copied = ms(partial(np.copyto, target, array))
            print(
                f"host reads {nbytes:,} bytes, {name:10}: sum {whole:8.3f} ms, copied {copied:8.3f} ms"
            )
        del array, kinds
        registered.close()
    begin = perf_counter()
    np.empty(count, np.int32)[:] = 1
    print(f"host: new array filled {1e3 * (perf_counter() - begin):8.3f} ms")


def calls(bench: Bench) -> None:
    """Print the times of single calls, in microseconds."""

    def us(name: str, run: Callable[[], Any]) -> None:
        run()
        times = []
        for _ in range(5):
            begin = perf_counter()
            for _ in range(100):
                run()
            times.append((perf_counter() - begin) * 1e4)
        print(f"  {name:48} {median(times):8.2f} us")

    stream = bench.stream
    nothing = Launch(bench.module.kernel("nothing"), stream, blocks=1, threads=32, arguments=(1,))

    def launched() -> None:
        nothing.start()
        stream.synchronize()

    def made() -> None:
        Stream(0).close()

    def peer() -> None:
        driver.copy_peer_async(bench.results.pointer, 0, bench.values.pointer, 0, 4096, stream)
        stream.synchronize()

    def copied() -> None:
        driver.copy_async(bench.results.pointer, bench.values.pointer, 4096, stream)
        stream.synchronize()

    print("calls")
    us("stream.synchronize, idle", stream.synchronize)
    us("launch and synchronize", launched)
    us("Launch(...) made, not started", lambda: bench.launch("one_i32", bench.results.pointer, 8))
    us("Stream made and closed", made)
    us("copy_peer_async and synchronize", peer)
    us("copy_async and synchronize", copied)
    us("driver.use", lambda: driver.use(0))
    us("np.empty(1 MB)", lambda: np.empty(1 << 20, np.uint8))
    us("np.empty(64 MB)", lambda: np.empty(64 << 20, np.uint8))
    us("runtime.cudaDeviceSynchronize, idle", bindings()[1].cudaDeviceSynchronize)
    context = ctypes.CDLL("libcuda.so.1").cuCtxSynchronize
    us("cuCtxSynchronize by ctypes, idle", context)
    try:
        import cupy
    except ImportError:
        print("  no CuPy")
        return
    from godwit.arrays import ResultLocation

    location = ResultLocation(0)
    us("ResultLocation.empty on the GPU, 64 MB", lambda: location.empty(1 << 24, np.int32))
    us("cupy.empty", lambda: cupy.empty(1 << 24, np.int32))

    def entered() -> None:
        with cupy.cuda.Device(0):
            pass

    us("with cupy.cuda.Device(0)", entered)
    us("get_current_stream", cupy.cuda.get_current_stream)
    null = cupy.cuda.get_current_stream()
    us("null stream.synchronize", null.synchronize)
    us("null stream.done", lambda: null.done)
    us("ResultLocation.named", lambda: ResultLocation.named("cuda:0"))


def busy(bench: Bench) -> None:
    """Print how long calls take while a kernel runs for 40 ms."""
    spin = Launch(bench.module.kernel("spin"), bench.stream, blocks=1, threads=32,
                  arguments=(40_000_000,))  # fmt: skip
    _, runtime = bindings()
    spare = [PinnedBuffer(16 * MB) for _ in range(2)]
    kept: list[Any] = []
    made = Registered(16 * MB, 1, huge=True)
    other = mmap.mmap(-1, 16 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(other))
    ctypes.memset(address, 0, 16 * MB)
    for name, run in (
        ("cudaHostAlloc 16 MB", lambda: kept.append(PinnedBuffer(16 * MB))),
        ("cudaFreeHost", lambda: spare.pop().close()),
        ("cudaHostRegister", lambda: runtime.cudaHostRegister(address, 16 * MB, 3)),
        ("cudaHostUnregister", made.unregister),
        ("cudaMalloc 16 MB", lambda: kept.append(Buffer(0, 16 * MB))),
    ):
        spin.start()
        begin = perf_counter()
        run()
        taken = 1e3 * (perf_counter() - begin)
        bench.stream.synchronize()
        print(f"while a kernel runs (40 ms): {name:24} {taken:8.3f} ms")


def fork(bench: Bench, threads: int) -> None:
    """Print whether a child process can read memory that was page-locked before, and what it sees."""
    count = bench.count
    for name in ("allocated", "registered"):
        memory: Any = (
            PinnedBuffer(4 * count)
            if name == "allocated"
            else Registered(4 * count, threads, huge=True)
        )
        array = memory.array(np.int32)
        launch = bench.launch("one_i32", memory.pointer, 8)
        bench.run(launch)
        before = int(array[:1000].sum())
        reading, writing = os.pipe()
        begin = perf_counter()
        child = os.fork()
        if child == 0:
            os.read(reading, 1)  # until the parent has overwritten it
            os._exit(0 if int(array[:1000].sum()) == before else 3)
        forked = 1e3 * (perf_counter() - begin)
        bench.positions.fill_bytes(0)
        bench.run(launch)
        seen = array[:1000].sum()
        os.write(writing, b"x")
        status = os.waitpid(child, 0)[1]
        outcome = {0: "sees its own", 3 << 8: "sees the parent's new values"}.get(
            status, f"died: {status}"
        )
        print(
            f"fork, {name:10}: {forked:7.2f} ms, child {outcome}; parent sees new values: {seen == 0}"
        )


def main() -> None:
    """Print all that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--graph", help="a generator's spec: positions of that graph, too")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    threads = min(16, config.thread_count())
    count = 1 << arguments.scale
    print(
        f"{driver.properties(0).name}, {threads} threads, kernel {os.uname().release}", flush=True
    )
    if "pinning" in only:
        pinning(threads)
    positions = np.random.default_rng(1).permutation(count).astype(np.int32)
    bench = Bench(count, positions)
    if "gather" in only:
        gather(bench, "at random positions", threads)
        if arguments.graph:
            import godwit as gw
            from godwit.graph.partition.positions import number_vertices

            graph = gw.generate(arguments.graph, device="cuda:0")
            numbering = number_vertices(graph, 1, None, id_dtype=np.int32)
            count = graph.vertex_count
            bench = Bench(numbering.count, np.resize(numbering.position, numbering.count))
            bench.count = count
            gather(bench, "at the positions of " + arguments.graph, threads)
    if "host" in only:
        host(1 << arguments.scale, threads)
    if "calls" in only:
        calls(bench)
    if "busy" in only:
        busy(bench)
    if "fork" in only:
        fork(bench, threads)


if __name__ == "__main__":
    main()
