"""The emulator of GPUs itself: what kernels rely on holds, and what a GPU would not forgive is found."""

from __future__ import annotations

import ctypes
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, EmulationError, Machine, emulated_gpus
from emulated_grid_source import kernel_names, translated
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.runtime.cuda import compile as compilation
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import INCLUDE_FOLDER
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
SEEDS = [0, 1, 2, 3]

# All blocks of a grid meet.
MEET = """
#include "runtime/cuda/include/warp.cuh"
__device__ void meet(u32 *arrived, u32 round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (load_relaxed(arrived) < gridDim.x * round) {}
        __threadfence();
    }
    __syncthreads();
}
"""


@pytest.fixture
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2, multiprocessors=3) as machine:
        yield machine


def loaded(source: str, index: int = 0) -> driver.Module:
    return driver.Module(index, compilation.cubin(source, (), "90"))


def run(
    source: str, *arguments: Any, blocks: int = 1, threads: int = 32, shared_bytes: int = 0
) -> None:
    """Run a source's only kernel on GPU 0."""
    kernel = loaded(source).kernel(kernel_names(source)[0])
    stream = driver.Stream(0)
    driver.launch(
        kernel, stream, blocks=blocks, threads=threads, arguments=arguments,
        shared_bytes=shared_bytes, cooperative=blocks > 1,
    )  # fmt: skip
    stream.synchronize()
    stream.close()


def results(source: str, count: int, dtype: Any = np.uint32, **shape: int) -> Any:
    """What a kernel leaves in an array of zeros, its only argument."""
    with memory.Buffer(0, count * np.dtype(dtype).itemsize) as buffer:
        buffer.fill_bytes(0)
        run(source, buffer.pointer, **shape)
        return buffer.download(dtype, count)


class TestTranslation:
    @pytest.mark.parametrize(
        "path", sorted(INCLUDE_FOLDER.rglob("*.cuh")), ids=lambda path: path.stem
    )
    def test_every_kernel_file(self, path: Path) -> None:
        text = path.read_text()
        made = translated(text)
        assert made.count("\n") == text.count("\n")
        assert "asm" not in made.replace("asm_", "")
        assert "__shared__" not in made

    def test_shared_variables(self) -> None:
        made = translated("__shared__ Pair<A, B> one, two[N][M < 3 ? 1 : 2];")
        assert "struct emulated_shared_at_0 { Pair<A, B> one, two[N][M < 3 ? 1 : 2]; };" in made
        assert "auto &one = " in made
        assert "auto &two = " in made

    @pytest.mark.parametrize(
        ("text", "made"),
        [
            (
                'asm("ld.global.nc.v2.u32 {%0, %1}, [%2+8];" : "=r"(a), "=r"(b[i, 1]) : "l"(p));',
                "{ emulated::load<unsigned>(65, (p), 8, (a), (b[i, 1])); }",
            ),
            (
                'asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");',
                "{ emulated::store<unsigned long long>(54, (p), 0, (v)); }",
            ),
            (
                'asm volatile("atom.global.cas.b32 %0, [%1], %2, %3;"\n'
                '             : "=r"(f) : "l"(p), "r"(x), "r"(y) : "memory");',
                "{ (f) = atomicCAS(emulated::at<unsigned>((p), 0), (x), (y), 7); }\n",
            ),
            (
                'asm volatile("red.relaxed.gpu.global.add.s64 [%0], 1;" ::"l"(p));',
                "{ atomicAdd(emulated::at<unsigned long long>((p), 0), 1, 7); }",
            ),
            ('asm("mov.u32 %0, %%laneid;" : "=r"(lane));', "{ (lane) = (threadIdx.x % 32); }"),
        ],
    )
    def test_asm(self, text: str, made: str) -> None:
        assert translated(text) == made

    @pytest.mark.parametrize(
        "instruction", ["bfind.u32 %0, %1;", "mov.u32 %0, %%pm0;", "ld.u32 %0, [%1+x];"]
    )
    def test_what_is_not_known_is_refused(self, instruction: str) -> None:
        with pytest.raises(AssertionError, match="does not know"):
            translated(f'asm("{instruction}" : "=r"(a) : "l"(b));')


@needs_compiler
@pytest.mark.usefixtures("gpus")
class TestThreads:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_blocks_have_shared_memory_of_their_own(self, gpus: Machine, seed: int) -> None:
        gpus.seed = seed
        source = (
            MEET
            + """
        extern "C" __global__ void kernel(u32 *out) {
            __shared__ u32 mine, others[2];
            extern __shared__ __align__(16) unsigned char bytes[];
            u16 *numbers = reinterpret_cast<u16 *>(bytes);
            if (threadIdx.x == 0) mine = blockIdx.x + 7;
            if (threadIdx.x < 2) others[threadIdx.x] = blockIdx.x * 10 + threadIdx.x;
            numbers[threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
            meet(&out[0], 1);
            u32 sum = mine + others[0] + others[1] + numbers[blockDim.x - 1 - threadIdx.x];
            out[1 + blockIdx.x * blockDim.x + threadIdx.x] = sum;
        }
        """
        )
        found = results(source, 1 + 3 * 64, blocks=3, threads=64, shared_bytes=128)
        expected = [b + 7 + 20 * b + 1 + 1000 * b + 63 - t for b in range(3) for t in range(64)]
        assert found[1:].tolist() == expected

    @pytest.mark.parametrize("seed", SEEDS)
    def test_collectives(self, gpus: Machine, seed: int) -> None:
        gpus.seed = seed
        source = """
        #include "runtime/cuda/include/warp.cuh"
        extern "C" __global__ void kernel(u32 *out) {
            u32 lane = lane_id(), odd = lane & 1 ? 0xaaaaaaaau : 0x55555555u;
            u32 at = threadIdx.x;
            auto put = [&](u32 value) { out[at] = value; at += blockDim.x; };
            put(__shfl_sync(FULL_WARP, lane * 3, lane + 5));
            put(__shfl_sync(FULL_WARP, lane, 1, 8));
            put(__shfl_up_sync(FULL_WARP, lane, 2));
            put(__shfl_down_sync(FULL_WARP, lane, 3));
            put(__shfl_xor_sync(FULL_WARP, lane, 6));
            put(__ballot_sync(FULL_WARP, lane % 3 == 0));
            put(__ballot_sync(odd, lane < 4));
            put(__reduce_add_sync(FULL_WARP, at));
            put(__reduce_max_sync(odd, lane));
            put(__match_any_sync(FULL_WARP, lane / 4));
            put(__any_sync(FULL_WARP, lane == 9) + 2 * __all_sync(FULL_WARP, lane < 31));
            put(__syncthreads_count(threadIdx.x % 5 == 0));
            put(__syncthreads_or(threadIdx.x == 40));
            put(static_cast<u32>(__shfl_sync(FULL_WARP, 0.25 * lane, 10) * 100));
            put(warp_sum_up_to(lane));
        }
        """
        threads = np.arange(64)
        lane = threads % 32
        made = results(source, 15 * 64, threads=64).reshape(15, 64)
        at = threads + 7 * 64
        expected = [
            (lane + 5) % 32 * 3,
            lane // 8 * 8 + 1,
            np.where(lane >= 2, lane - 2, lane),
            np.where(lane < 29, lane + 3, lane),
            lane ^ 6,
            np.full(64, sum(1 << k for k in range(0, 32, 3))),
            np.where(lane % 2, 0b1010, 0b0101),
            np.repeat(at.reshape(2, 32).sum(axis=1), 32),
            np.where(lane % 2, 31, 30),
            0xF << (lane // 4 * 4),
            np.full(64, 1),
            np.full(64, 13),
            np.full(64, 1),
            np.full(64, 250),
            lane * (lane + 1) // 2,
        ]
        for row, wanted in zip(made, expected, strict=True):
            assert row.tolist() == wanted.tolist()

    def test_who_has_returned_is_not_waited_for(self) -> None:
        source = """
        #include "runtime/cuda/include/warp.cuh"
        extern "C" __global__ void kernel(u32 *out) {
            if (threadIdx.x % 4 == 3) return;
            __syncthreads();
            out[threadIdx.x] = __ballot_sync(FULL_WARP, 1);
            __syncthreads();
        }
        """
        made = results(source, 64, threads=64)
        assert made.tolist() == [0 if t % 4 == 3 else 0x77777777 for t in range(64)]

    def test_atomics(self) -> None:
        source = """
        #include "runtime/cuda/include/warp.cuh"
        extern "C" __global__ void kernel(u64 *out) {
            atomicAdd(&out[0], 3ull);
            atomicMin(reinterpret_cast<i64 *>(&out[1]), -i64(threadIdx.x));
            atomicAdd(reinterpret_cast<double *>(&out[2]), 0.5);
            atomicOr(reinterpret_cast<u32 *>(&out[3]), 1u << lane_id());
            u64 seen = 0;
            while (true) {
                u64 found = atomicCAS(&out[4], seen, seen + threadIdx.x);
                if (found == seen) break;
                seen = found;
            }
            set_bits(reinterpret_cast<u32 *>(&out[5]), 1u << threadIdx.x / 2);
        }
        """
        made = results(source, 6, np.uint64, threads=64)
        assert made[:2].view(np.int64).tolist() == [192, -63]
        assert made[2:3].view(np.float64)[0] == 32
        assert made[3:].tolist() == [0xFFFFFFFF, 63 * 32, 0xFFFFFFFF]

    def test_time_goes_on(self) -> None:
        source = """
        #include "runtime/cuda/include/warp.cuh"
        extern "C" __global__ void kernel(u64 *out) {
            u64 begin = now_ns();
            __nanosleep(1000 * threadIdx.x);
            out[threadIdx.x] = now_ns() - begin;
        }
        """
        made = results(source, 4, np.uint64, threads=4)
        assert all(1000 * t <= made[t] < 1000 * t + 1000 for t in range(4))

    def test_seeds_are_schedules(self, gpus: Machine) -> None:
        source = """
        extern "C" __global__ void kernel(unsigned *out) {
            unsigned place = atomicAdd(&out[0], 1u);
            out[1 + place] = blockIdx.x * blockDim.x + threadIdx.x;
        }
        """
        orders = []
        for seed in (0, 0, 5, 5, 6):
            gpus.seed = seed
            orders.append(tuple(results(source, 193, blocks=3, threads=64)[1:].tolist()))
        assert orders[0] == tuple(range(192))
        assert orders[0] == orders[1]
        assert orders[2] == orders[3]
        assert len(set(orders)) == 3
        assert all(sorted(order) == list(range(192)) for order in orders)


PING_PONG = """
#include "runtime/cuda/include/warp.cuh"
extern "C" __global__ void kernel(u32 *ours, u32 *theirs, u64 leads) {
    for (u32 round = 1; round <= 5; round++) {
        if (leads) {
            theirs[1 + round] = round * round;
            store_release_system(theirs, round);
        }
        while (load_acquire_system(ours) < round) {}
        if (!leads) {
            theirs[1 + round] = ours[1 + round] + 1;
            store_release_system(theirs, round);
        }
    }
}
"""


@needs_compiler
class TestDevices:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_kernels_wait_for_each_other(self, gpus: Machine, seed: int) -> None:
        gpus.seed = seed
        buffers = [memory.Buffer(index, 64) for index in range(2)]
        streams = [driver.Stream(index) for index in range(2)]
        for buffer in buffers:
            buffer.fill_bytes(0)
        kernels = [loaded(PING_PONG, index).kernel("kernel") for index in range(2)]
        for here in range(2):
            pointers = (buffers[here].pointer, buffers[1 - here].pointer)
            driver.launch(
                kernels[here], streams[here], blocks=1, threads=1,
                arguments=(*pointers, int(here == 0)), cooperative=True,
            )  # fmt: skip
        assert not buffers[0].download(np.uint32, 16).any()  # nobody has waited for them
        streams[1].synchronize()
        assert buffers[0].download(np.uint32, 8).tolist() == [5, 0, 2, 5, 10, 17, 26, 0]
        for buffer in buffers:
            buffer.close()

    def test_one_alone_is_found_to_wait(self, gpus: Machine) -> None:
        with memory.Buffer(0, 64) as buffer:
            buffer.fill_bytes(0)
            with pytest.raises(
                EmulationError, match=r"nobody changes.*\n.* block 0: 1 polls memory"
            ):
                run(PING_PONG, buffer.pointer, buffer.pointer + 32, 0, threads=1)

    def test_memory_is_limited(self) -> None:
        with emulated_gpus(1, memory_bytes=1000) as machine, memory.Buffer(0, 600):
            assert machine.held_bytes(0) == 600
            assert memory.free_memory_bytes(0) == 400
            with pytest.raises(GraphTooLargeError, match="400 B are free"):
                memory.Buffer(0, 401)
            memory.Buffer(0, 400).close()

    def test_nothing_stays_behind(self) -> None:
        count = driver.device_count()
        with emulated_gpus(5, multiprocessors=3):
            assert driver.device_count() == 5
            assert driver.properties(3).multiprocessors == 3
        assert driver.device_count() == count


@needs_compiler
@pytest.mark.usefixtures("gpus")
class TestFaults:
    """What a real GPU answers with wrong results, a crash, or for ever nothing."""

    def test_lanes_at_different_places(self) -> None:
        source = """
        extern "C" __global__ void kernel(unsigned *out) {
            if (threadIdx.x < 16) __syncwarp();
            else out[0] = __ballot_sync(0xffffffffu, 1);
        }
        """
        with pytest.raises(EmulationError, match=r"meet at __(syncwarp|ballot_sync) and at __"):
            results(source, 1)

    def test_a_barrier_that_not_all_reach(self) -> None:
        source = """
        extern "C" __global__ void kernel(unsigned *out) {
            if (threadIdx.x >= 60) return;
            if (threadIdx.x < 40) __syncthreads();
            else __syncwarp();
        }
        """
        with pytest.raises(EmulationError, match="40 __syncthreads 20 __syncwarp 4 returned"):
            results(source, 1, threads=64)

    def test_a_lane_outside_its_mask(self) -> None:
        source = 'extern "C" __global__ void kernel(unsigned *out) { __syncwarp(0xfffffffeu); }'
        with pytest.raises(EmulationError, match="lane 0 calls __syncwarp with mask fffffffe"):
            results(source, 1)

    @pytest.mark.parametrize("place", [-1, 4])
    def test_writes_beyond_a_buffer(self, place: int) -> None:
        source = f'extern "C" __global__ void kernel(int *out) {{ out[{place}] = 1; }}'
        where = "before" if place < 0 else "behind"
        with pytest.raises(EmulationError, match=f"written {where} a buffer of 16 bytes on GPU 0"):
            results(source, 4)

    @pytest.mark.parametrize("kind", ["extern __shared__ int x[];", "__shared__ int x[4];"])
    def test_writes_beyond_shared_memory(self, kind: str) -> None:
        source = f'extern "C" __global__ void kernel(int *out) {{ {kind} x[out[0] + 4] = 1; }}'
        with pytest.raises(EmulationError, match=r"has written (0 bytes behind|beyond)"):
            results(source, 4, shared_bytes=16)

    def test_too_much_shared_memory(self) -> None:
        source = (
            'extern "C" __global__ void kernel(int *out) { __shared__ int x[12289]; x[0] = 1; }'
        )
        with pytest.raises(EmulationError, match="49156 bytes of shared variables"):
            results(source, 1)

    def test_wrong_arguments(self) -> None:
        source = 'extern "C" __global__ void kernel(int *out, long long n) {}'
        with pytest.raises(EmulationError, match=r"takes arguments of \[8, 8\] bytes, got \[8\]"):
            run(source, 0)
        with pytest.raises(EmulationError, match=r"got \[8, 4\]"):
            run(source, 0, ctypes.c_uint32(1))

    def test_copies_beyond_a_buffer(self) -> None:
        with memory.Buffer(0, 10) as buffer:
            with pytest.raises(
                EmulationError, match="reading 4 bytes at 8 of a buffer of 10 bytes"
            ):
                buffer.download(np.uint32, 1, 8)
            with pytest.raises(EmulationError, match="writing"):
                buffer.upload(np.zeros(11, np.uint8))

    def test_too_many_blocks_that_wait_for_each_other(self) -> None:
        with pytest.raises(DeviceError, match="cooperative launch too large"):
            run('extern "C" __global__ void kernel() {}', blocks=4)

    def test_more_shared_memory_than_a_kernel_may_have(self) -> None:
        kernel = loaded('extern "C" __global__ void kernel() {}').kernel("kernel")
        stream = driver.Stream(0)

        def start() -> None:
            driver.launch(
                kernel, stream, blocks=1, threads=32, arguments=(), shared_bytes=(48 << 10) + 1
            )

        with pytest.raises(DeviceError, match="starting kernel on cuda:0: cuda error invalid"):
            start()
        kernel.allow_shared(50 << 10)
        start()
        stream.synchronize()
        with pytest.raises(DeviceError, match="of shared memory for kernel"):
            kernel.allow_shared(228 << 10)

    def test_what_might_wait_for_a_kernel_that_waits(self) -> None:
        kernel = loaded('extern "C" __global__ void kernel() {}').kernel("kernel")
        buffer = memory.Buffer(0, 4)
        streams = driver.Stream(0), driver.Stream(0)

        def start(stream: driver.Stream) -> None:
            driver.launch(kernel, stream, blocks=2, threads=32, arguments=(), cooperative=True)

        start(streams[0])
        start(streams[0])  # kernels of a single stream wait for no other ones
        memory.Buffer(0, 4).close  # noqa: B018
        loaded('extern "C" __global__ void other() {}')
        with pytest.raises(EmulationError, match="freeing"):
            buffer.close()
        start(streams[1])
        with pytest.raises(EmulationError, match="allocating"):
            memory.Buffer(0, 4)
        with pytest.raises(EmulationError, match="loading"):
            loaded('extern "C" __global__ void third() {}')
        for stream in streams:
            stream.synchronize()
        memory.Buffer(0, 4).close()

    def test_memory_that_is_free_already(self) -> None:
        bindings: Any = getattr(driver, "bindings")  # noqa: B009 (it is the driver's own)
        _, runtime = bindings()
        pointer = runtime.cudaMalloc(8)[1]
        runtime.cudaFree(pointer)
        with pytest.raises(EmulationError, match="is freed and was not allocated"):
            runtime.cudaFree(pointer)

    def test_what_does_not_compile(self) -> None:
        with pytest.raises(EmulationError, match=r"kernel.cu:1:.*nowhere"):
            loaded('extern "C" __global__ void kernel() { nowhere = 1; }')

    def test_a_run_goes_on_after_a_fault(self) -> None:
        self.test_a_barrier_that_not_all_reach()
        source = 'extern "C" __global__ void kernel(unsigned *out) { out[threadIdx.x] = 7; }'
        assert results(source, 32).tolist() == [7] * 32


_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_DEVICES = [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1", "cuda:0"]]


def graphs() -> dict[str, gw.Graph]:
    return {
        "road": gw.generators.road(12, 17, weights=(1, 9), seed=4),
        "rmat": gw.generators.rmat(7, 6, weights=(1, 64), seed=2),
        "star": gw.generators.star(1500),
        "two parts": gw.Graph.from_edges([0, 1, 3], [1, 0, 4], [2, 2, 5], vertex_count=6),
    }


@needs_compiler
class TestRuns:
    """The package's own runs, from Python's functions down to the kernels."""

    @pytest.mark.parametrize("devices", _DEVICES, ids="-".join)
    @pytest.mark.parametrize("name", graphs())
    @pytest.mark.parametrize("seed", [0, 11])
    def test_distances_are_those_of_the_cpu(
        self, gpus: Machine, name: str, devices: list[str], seed: int
    ) -> None:
        gpus.seed = seed
        graph = graphs()[name]
        for function in (gw.bfs, gw.sssp):
            expected = function(graph, 0, devices="cpu")
            made = function(graph, 0, devices=devices)
            assert np.array_equal(made.distance, expected.distance)
        assert gpus.launched["work"] > 0

    @pytest.mark.parametrize("gpu", [
        GpuOptions(slice_s=0), ExperimentOptions(delay_ns=20_000), GpuOptions(transport="host"),
        GpuOptions(transport="ring"), ExperimentOptions(hops=0), ExperimentOptions(threads=32, blocks=1),
    ], ids=str)  # fmt: skip
    def test_whatever_the_options(self, gpus: Machine, gpu: GpuOptions) -> None:
        graph = graphs()["rmat"]
        expected = gw.sssp(graph, 1, devices="cpu").distance
        for seed in (0, 3):
            gpus.seed = seed
            made = gw.sssp(graph, 1, devices=["cuda:0", "cuda:1", "cuda:1"], gpu=gpu)
            assert np.array_equal(made.distance, expected)

    @pytest.mark.parametrize("slice_s", [0.0007, 0.0013])
    def test_devices_end_a_slice_together(self, gpus: Machine, slice_s: float) -> None:
        graph = gw.generators.grid(3, 20).with_random_weights(1, 64, seed=1)
        expected = gw.sssp(graph, 0, devices="cpu").distance
        for seed in range(1, 7):
            gpus.seed = seed
            made = gw.sssp(
                graph, 0, devices=["cuda:0", "cuda:1"], execution="asynchronous",
                gpu=GpuOptions(slice_s=slice_s), worker=gw.WorkerOptions(delta=1.0),
            )  # fmt: skip
            assert np.array_equal(made.distance, expected)

    def test_operators_of_a_user(self, gpus: Machine) -> None:
        program = runpy.run_path(str(_EXAMPLES / "widest_path.py"))["WIDEST_PATH"]
        graph = graphs()["rmat"]
        expected = gw.run(program, graph, {0: np.inf}, devices="cpu")
        made = gw.run(program, graph, {0: np.inf}, devices=["cuda:0", "cuda:1"])
        assert np.array_equal(made.values, expected.values)
