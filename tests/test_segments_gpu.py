"""Links on real GPUs: every kind of memory to every other, order by streams alone, pools, nothing left."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.dataflow.kernel_sizing import kernel_sizing
from godwit.errors import InputError
from godwit.runtime.cuda import driver, libraries, memory

pytestmark = pytest.mark.gpu

PACKET = 1 << 16
SLOW = r"""
extern "C" __global__ void slow_fill(unsigned* out, long long n, unsigned value, long long wait_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < wait_ns);
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = value;
}
extern "C" __global__ void slow_add(
    const unsigned* in, unsigned* out, long long n, unsigned value, long long wait_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < wait_ns);
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = in[i] + value;
}
"""


@pytest.fixture(scope="module")
def cp() -> Any:
    if not driver.device_count():
        pytest.skip(f"needs a GPU: {driver.why_not()}")
    return pytest.importorskip("cupy", reason="segments on GPUs are CuPy's arrays")


def gpu_names(count: int = 2) -> list[str]:
    """So many; the first again where there are too few."""
    there = driver.device_count()
    return [f"cuda:{index % there}" for index in range(count)]


def made(cp: Any, kind: str, count: int, context: Any) -> tuple[Any, Any]:
    """An array of one of the kinds of memory that there are, and who sends it."""
    numbers = np.arange(count, dtype=np.uint32) + 7
    if kind in ("cuda:0", "other", "managed"):
        endpoint = context.endpoints[kind == "other"]
        with cp.cuda.Device(int(endpoint.device.name[5:])):
            if kind == "managed":
                memory = cp.cuda.malloc_managed(max(1, numbers.nbytes))
                array = cp.ndarray((count,), np.uint32, memory)
                array[...] = cp.asarray(numbers)
                return array, endpoint
            return cp.asarray(numbers), endpoint
    if kind == "torch":
        torch = pytest.importorskip("torch")
        return torch.arange(7, 7 + count, dtype=torch.int32, device="cuda:0"), context.endpoints[0]
    if kind == "locked":
        view = cp.cuda.alloc_pinned_memory(max(1, numbers.nbytes))
        array = np.frombuffer(view, np.uint32, count)
        array[...] = numbers
        return array, context.host
    if kind == "read-only":
        numbers.flags.writeable = False
    return numbers, context.host


def received(cp: Any, link: Any) -> Any:
    found = []
    for segment in link:
        with segment:
            if isinstance(segment.array, np.ndarray):
                found.append(segment.array.copy())
            else:
                with link.target.space.entered():
                    found.append(segment.array.copy())
    link.target.space.record_event().wait()
    return np.concatenate([cp.asnumpy(one) for one in found] or [np.empty(0, np.uint32)])


@pytest.mark.parametrize("transport", ["direct", "host"])
@pytest.mark.parametrize("target", ["host", "first", "last"])
@pytest.mark.parametrize(
    "kind", ["ordinary", "read-only", "locked", "cuda:0", "other", "managed", "torch"]
)
def test_every_kind_of_memory_reaches_every_other(
    cp: Any, kind: str, target: str, transport: Any
) -> None:
    rows = PACKET // 4
    for count in (0, 1, rows - 1, rows, rows + 1, 40 * rows + 5):
        with gw.Context(gpu_names(3), transport=transport) as context:
            array, sender = made(cp, kind, count, context)
            receiver = {"host": context.host, "first": context.endpoints[0]}.get(target)
            receiver = receiver or context.endpoints[2]
            if sender is receiver:
                sender = context.endpoints[1]
            link = gw.Link(sender, receiver, packet_bytes=PACKET, copies=True)
            with context.workers() as workers:
                workers.start(sender, link.send, array)
                found = received(cp, link)
            np.testing.assert_array_equal(found, np.arange(7, 7 + count, dtype=np.uint32))


def test_what_a_kernel_writes_late_is_what_arrives(cp: Any) -> None:
    fill = cp.RawKernel(SLOW, "slow_fill")
    with gw.Context(gpu_names(2)) as context:
        sender, receiver = context.endpoints
        link = gw.Link(sender, receiver, packet_bytes=PACKET, copies=True)

        def send() -> None:
            array = cp.zeros(PACKET, np.uint32)
            for number in range(20):
                fill((1,), (256,), (array, PACKET, np.uint32(number), 300_000))
                link.send(array).wait_on(sender.stream)

        with context.workers() as workers:
            workers.start(sender, send)
            found = received(cp, link).reshape(20, PACKET)
    np.testing.assert_array_equal(found, np.arange(20)[:, None] + np.zeros(PACKET, np.int64))


def test_in_the_users_own_streams(cp: Any) -> None:
    """The null stream of the main thread, a stream that is named, and one of another library."""
    torch = pytest.importorskip("torch")
    fill = cp.RawKernel(SLOW, "slow_fill")
    with gw.Context(gpu_names(1)) as context:
        link = gw.Link(context.endpoints[0], context.host, packet_bytes=PACKET)
        with cp.cuda.Device(0):
            arrays = [cp.zeros(64, np.uint32) for _ in range(3)]
            cp.cuda.Device(0).synchronize()
            fill((1,), (32,), (arrays[0], 64, np.uint32(1), 2_000_000))
            link.send(arrays[0])
            stream = cp.cuda.Stream(non_blocking=True)
            with stream:
                fill((1,), (32,), (arrays[1], 64, np.uint32(2), 2_000_000))
            link.send(arrays[1], stream=stream)
            foreign = torch.cuda.Stream()
            fill((1,), (32,), (arrays[2], 64, np.uint32(3), 2_000_000))
            link.send(arrays[2])
            with torch.cuda.stream(foreign):
                tensor = torch.zeros(64, dtype=torch.int32, device="cuda:0")
                torch.cuda._sleep(3_000_000)
                tensor += 4
            link.send(tensor, stream=foreign)
            link.shutdown()
        found = [segment.array.copy() for segment in link]
        assert [set(one.tolist()) for one in found] == [{1}, {2}, {3}, {4}]


@pytest.mark.parametrize("transport", ["direct", "host"])
def test_buffers_are_not_written_to_while_slow_kernels_read_them(cp: Any, transport: Any) -> None:
    """Host to a GPU, to the other, and back, by kernels that wait before they read."""
    add = cp.RawKernel(SLOW, "slow_add")
    rows = PACKET // 4
    with gw.Context(gpu_names(2), transport=transport) as context:
        host, (first, second) = context.host, context.endpoints
        up = gw.Link(host, first, packet_bytes=PACKET, buffers=2)
        across = gw.Link(first, second, packet_bytes=PACKET, buffers=2, copies=True)
        down = gw.Link(second, host, packet_bytes=PACKET, buffers=2)

        def work(endpoint: Any, source: Any, target: Any, amount: int) -> None:
            outs = [cp.empty(rows, np.uint32) for _ in range(3)]
            sent: list[Any] = []
            for number, segment in enumerate(source):
                if number > 2:
                    sent[number - 3].wait_on(endpoint.stream)
                out = outs[number % 3]
                with segment:
                    size = len(segment.array)
                    add((1,), (256,), (segment.array, out, size, np.uint32(amount), 200_000))
                sent.append(target.send(out[:size]))

        found = []
        with context.workers() as workers:
            workers.start(first, work, first, up, across, 1000)
            workers.start(second, work, second, across, down, 20000)
            up.send(np.arange(rows * 60 + 3, dtype=np.uint32))
            up.shutdown()
            for segment in down:
                with segment:
                    found.append(segment.array.copy())
    np.testing.assert_array_equal(np.concatenate(found), np.arange(rows * 60 + 3) + 21000)


def test_contexts_leave_nothing_behind(cp: Any) -> None:
    names = gpu_names(2)
    held, counts = [], []
    for number in range(200):
        with gw.Context(names) as context:
            spread = gw.Router([context.host], context.endpoints, packet_bytes=1 << 20)

            def take(endpoint: Any, router: Any = spread) -> None:
                for segment in router.output(endpoint):
                    segment.release()

            with context.workers() as workers:
                workers.each(context.endpoints, take)
                spread.input(context.host).send(np.ones(3 << 20, np.uint8))
        assert context.used_bytes == 0
        if number % 50 == 49:
            gc.collect()
            # Arrays were over some of it when their pools closed.
            memory.free_abandoned(range(driver.device_count()))
            held.append(sum(one.nbytes for one in gc.get_objects() if type(one) is memory.Buffer))
            names_left = [one.name for one in threading.enumerate() if "-worker-" in one.name]
            counts.append((names_left, marks_in_use()))
    assert held[1:] == held[:1] * 3  # not what is free: others use the GPU, too
    assert counts[1:] == counts[:1] * 3
    assert counts[0][0] == []


def marks_in_use() -> list[int]:
    from godwit.runtime.cuda.events import event_pool

    return [event_pool(index).in_use for index in range(driver.device_count())]


def test_pools_keep_to_their_limits(cp: Any) -> None:
    with cp.cuda.Device(0):
        given = cp.empty(1 << 20, np.uint8)
    begin = given.data.ptr
    with gw.Context(["cuda:0"], pools={"cuda:0": given}, memory_bytes={"host": 1 << 20}) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=1 << 18, buffers=4)
        with context.workers() as workers:
            workers.start(context.host, link.send, np.ones(1 << 21, np.uint8))
            for segment in link:
                with segment:
                    assert begin <= segment.array.data.ptr < begin + (1 << 20)
        with pytest.raises(InputError, match="does not fit in the pool of cuda:0"):
            context.endpoints[0].space.allocate(1)
        space = context.host.space
        with pytest.raises(InputError, match="does not fit in the pool of the host"):
            space.allocate(1 << 21)


def test_a_grid_is_as_large_as_what_runs_at_once(cp: Any) -> None:
    kernel = cp.RawKernel(SLOW, "slow_fill")
    with gw.Context(["cuda:0", "cuda:0"]) as context:
        whole = kernel_sizing(kernel, "cuda:0")
        half = kernel_sizing(kernel, context.endpoints[0], items=10**9)
        few = kernel_sizing(kernel, context.endpoints[0], items=1000, threads=128)
    multiprocessors = driver.properties(0).multiprocessors
    assert whole.blocks == whole.resident_blocks
    assert whole.blocks % multiprocessors == 0
    assert whole.blocks * whole.threads == 2048 * multiprocessors
    assert half.blocks == whole.blocks // 2
    assert tuple(few) == (8, 128)
    with libraries.numba_cuda_compat():

        @libraries.numba_cuda().jit("void(uint32[:])")
        def nothing(array: Any) -> None:
            array[0] = 1

    assert kernel_sizing(nothing, "cuda:0").blocks >= multiprocessors
    with pytest.raises(InputError, match="not one block"):
        kernel_sizing(kernel, "cuda:0", shared_bytes=1 << 30)
    with pytest.raises(InputError, match="a kernel must be"):
        kernel_sizing("text", "cuda:0")
