"""What the emulator says of accesses that nothing orders, and of memory that is nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, EmulationError, Machine, emulated_gpus
from godwit.runtime.cuda import compile as compilation
from godwit.runtime.cuda import driver, memory

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
SEEDS = (0, 1, 2)


@pytest.fixture(params=SEEDS)
def gpus(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with emulated_gpus(2, multiprocessors=3, checks=True, seed=request.param) as machine:
        yield machine


def run(body: str, *, blocks: int = 1, threads: int = 32, devices: int = 1, words: int = 64) -> Any:
    """Run a kernel on GPUs: each has an array ``mine`` of zeros, and sees ``theirs`` of the other."""
    source = f"""
    #include "runtime/cuda/include/warp.cuh"
    __constant__ const u32 table[4] = {{1, 2, 3, 4}};
    extern "C" __global__ void kernel(u32 *mine, u32 *theirs, u64 device) {{
        const u32 t = threadIdx.x, block = blockIdx.x;
        {body}
    }}
    """
    code = compilation.cubin(source, (), "90")
    kernels = [driver.Module(index, code).kernel("kernel") for index in range(devices)]
    buffers = [memory.Buffer(index, 4 * words) for index in range(2)]
    streams = [driver.Stream(index) for index in range(devices)]
    try:
        for buffer in buffers:
            buffer.fill_bytes(0)
        for index in range(devices):
            driver.launch(
                kernels[index], streams[index], blocks=blocks, threads=threads, cooperative=True,
                arguments=(buffers[index].pointer, buffers[1 - index].pointer, index),
            )  # fmt: skip
        for stream in streams:
            stream.synchronize()
        return buffers[0].download(np.uint32, words)
    finally:
        for buffer in buffers:
            buffer.close()
        for stream in streams:
            stream.close()


# Block 0 makes a number known to block 1, which reads it: (what is done, whether that is in order). {} is
# the fence of the one, of the other, and what says so.
PUBLISHED = """
    if (block == 0 && t == 0) {{ mine[8] = 7; {} {} }}
    if (block == 1 && t == 0) {{ while ({} == 0) {{}} {} mine[9] = mine[8]; }}
"""
SAYS = "atomicExch(&mine[0], 1u);"
HEARS = "load_relaxed(&mine[0])"


@pytest.mark.usefixtures("gpus")
class TestOrder:
    @pytest.mark.parametrize(
        ("first", "says", "hears", "then"),
        [
            ("__threadfence();", SAYS, HEARS, "__threadfence();"),
            ("", 'store_release_system(&mine[0], 1);', HEARS, "__threadfence();"),
            ("__threadfence();", SAYS, "load_acquire_system(&mine[0])", ""),
            ("__threadfence();", "set_bits(&mine[0], 1);", "atomicAdd(&mine[0], 0u)", "__threadfence();"),
            ("__threadfence_system();", "store_system(&mine[0], 1u);", "load_system(&mine[0])",
             "__threadfence_system();"),
        ],
    )  # fmt: skip
    def test_what_is_published(self, first: str, says: str, hears: str, then: str) -> None:
        made = run(PUBLISHED.format(first, says, hears, then), blocks=2)
        assert made[9] == 7

    @pytest.mark.parametrize(
        ("first", "says", "hears", "then"),
        [
            ("", SAYS, HEARS, "__threadfence();"),
            ("__threadfence();", SAYS, HEARS, ""),
            ("", SAYS, "load_acquire_system(&mine[0])", ""),
            ("", "store_release_system(&mine[0], 1);", HEARS, ""),
            ("__threadfence_block();", SAYS, HEARS, "__threadfence();"),
            ("", f"{SAYS} __threadfence();", HEARS, "__threadfence();"),
        ],
    )
    def test_what_lacks_a_fence(self, first: str, says: str, hears: str, then: str) -> None:
        with pytest.raises(EmulationError) as found:
            run(PUBLISHED.format(first, says, hears, then), blocks=2)
        message = str(found.value)
        assert "nothing orders two accesses of 4 bytes at 32 of a buffer of 256 bytes" in message
        assert "thread 0 of block 0 of device 0 writes: kernel.cu:7 (kernel)" in message
        assert "thread 0 of block 1 of device 0 reads: kernel.cu:8 (kernel)" in message

    @pytest.mark.parametrize("wait", ["__syncthreads();", ""])
    def test_threads_of_a_block(self, wait: str) -> None:
        body = f"mine[t] = t; {wait} u32 found = mine[63 - t]; {wait} mine[t] = found;"
        if wait:
            assert run(body, threads=64).tolist() == list(range(63, -1, -1))
        else:
            with pytest.raises(EmulationError, match="nothing orders"):
                run(body, threads=64)

    @pytest.mark.parametrize("wait", ["__syncwarp();", ""])
    def test_lanes_of_a_warp_and_shared_memory(self, wait: str) -> None:
        body = f"""
            __shared__ u16 halves[32];
            halves[t] = t + 1;
            {wait}
            mine[t] = halves[t ^ 1];
        """
        if wait:
            assert run(body)[:32].tolist() == [(t ^ 1) + 1 for t in range(32)]
        else:
            with pytest.raises(EmulationError, match=r"2 bytes at .* of a shared variable of 64"):
                run(body)

    def test_a_plain_write_against_atomics(self) -> None:
        with pytest.raises(EmulationError, match=r"changes \(strong\)") as found:
            run("if (block) atomicAdd(&mine[0], 1u); else if (t == 0) mine[0] = 100;", blocks=2)
        assert "writes: kernel.cu:6" in str(found.value)

    def test_numbers_written_twice(self) -> None:
        assert run("mine[0] = 1;")[0] == 1
        with pytest.raises(EmulationError, match="nothing orders"):
            run("mine[0] = 1 + t / 16;")
        assert run("store_system(&mine[0], t + 1);")[0] > 0

    @pytest.mark.parametrize("wait", ["__threadfence();", ""])
    def test_who_comes_last(self, wait: str) -> None:
        body = f"""
            mine[1 + block * 32 + t] = block + 1;
            __syncthreads();
            if (t == 0) {{
                __threadfence();
                u32 ticket = atomicAdd(&mine[0], 1u);
                {wait}
                if (ticket == gridDim.x - 1) {{
                    u32 sum = 0;
                    for (u32 i = 0; i < gridDim.x * 32; i++) sum += mine[1 + i];
                    mine[100] = sum;
                    mine[0] = 0;
                }}
            }}
        """
        if wait:
            made = run(body, blocks=3, words=101)
            assert (made[100], made[0]) == (6 * 32, 0)
        else:
            with pytest.raises(EmulationError, match="nothing orders"):
                run(body, blocks=3, words=101)

    def test_bytes_beside_each_other(self) -> None:
        made = run("reinterpret_cast<u8 *>(mine)[t] = t;", words=8)
        assert made.view(np.uint8).tolist() == list(range(32))


ACROSS = """
    if (t == 0) {{
        theirs[8] = device + 7;
        {}
        {}
        while ({} == 0) {{}}
        {}
        mine[9] = mine[8];
    }}
"""


@pytest.mark.usefixtures("gpus")
class TestDevices:
    @pytest.mark.parametrize(
        ("first", "says", "hears", "then"),
        [
            ("", "store_release_system(&theirs[0], 1u);", "load_acquire_system(&mine[0])", ""),
            ("__threadfence_system();", "store_system(&theirs[0], 1u);", "load_system(&mine[0])",
             "__threadfence_system();"),
            ("__threadfence_system();", "atomicAdd_system(&theirs[0], 1u);",
             "load_acquire_system(&mine[0])", ""),
        ],
    )  # fmt: skip
    def test_what_is_published(self, first: str, says: str, hears: str, then: str) -> None:
        assert run(ACROSS.format(first, says, hears, then), devices=2)[9] == 8

    @pytest.mark.parametrize(
        ("first", "says", "hears", "then", "what"),
        [
            ("__threadfence();", "store_system(&theirs[0], 1u);", "load_system(&mine[0])",
             "__threadfence_system();", "nothing orders"),
            ("__threadfence_system();", "store_system(&theirs[0], 1u);", "load_system(&mine[0])",
             "__threadfence();", "nothing orders"),
            ("__threadfence_system();", "atomicAdd(&theirs[0], 1u);",
             "load_acquire_system(&mine[0])", "", "too small a scope"),
            ("", "store_release_system(&theirs[0], 1u);", "load_relaxed(&mine[0])",
             "__threadfence_system();", "too small a scope"),
        ],
    )  # fmt: skip
    def test_what_lacks_a_scope(
        self, first: str, says: str, hears: str, then: str, what: str
    ) -> None:
        with pytest.raises(EmulationError, match=what):
            run(ACROSS.format(first, says, hears, then), devices=2)

    def test_blocks_behind_one_that_speaks_for_them(self) -> None:
        """Order goes from block to block within a device, from there to another, and on."""
        body = """
            theirs[8 + block * 32 + t] = device + 1;
            __syncthreads();
            if (t == 0) {
                __threadfence();
                atomicAdd(&mine[1], 1u);
                if (block == 0) {
                    while (load_relaxed(&mine[1]) < 2) {}
                    __threadfence_system();
                    store_release_system(&theirs[0], 1u);
                    while (load_acquire_system(&mine[0]) == 0) {}
                    __threadfence();
                    atomicAdd(&mine[2], 1u);
                }
                while (load_relaxed(&mine[2]) == 0) {}
                __threadfence();
            }
            __syncthreads();
            mine[72 + block * 32 + t] = mine[8 + block * 32 + t];
        """
        assert run(body, blocks=2, devices=2, words=136)[72:].tolist() == [2] * 64


@pytest.mark.usefixtures("gpus")
class TestMemory:
    @pytest.mark.parametrize(
        ("body", "what"),
        [
            # Not farther from a buffer than its guards, since there others may begin.
            ("mine[64 + 60] = 1;", "4 bytes at .* are nobody's"),
            ("u32 found = mine[64 + 1]; mine[t] = found;", "are nobody's"),
            ("u32 found = *(mine - 60); mine[t] = found;", "are nobody's"),
            ("*reinterpret_cast<u64 *>(mine + 63) = 1;", "8 bytes at 252 .* beyond its end"),
            ("store_release_system(const_cast<u32 *>(table), 1u);", "a constant is written"),
            ("__shared__ u32 x[4]; x[0] = 1; mine[t] = x[t + 4];", "are nobody's"),
            ("mine[t] = 1; u32 found = load_once(mine + t); mine[t] = found;",
             "a read-only load of what this run has written"),
            ("__shared__ u32 *place; u32 own = t; if (t == 0) place = &own; __syncwarp(); "
             "atomicAdd(place, 1u); __syncwarp(); mine[t] = own;", "are nobody's"),
        ],
    )  # fmt: skip
    def test_what_is_out_of_bounds(self, body: str, what: str) -> None:
        with pytest.raises(EmulationError, match=what):
            run(body)

    def test_what_is_within_bounds(self) -> None:
        made = run("__shared__ u32 x[32]; x[t] = table[t % 4]; __syncwarp(); mine[t] = x[31 - t];")
        assert made[:32].tolist() == [4, 3, 2, 1] * 8

    def test_devices_that_are_no_peers(self, gpus: Machine) -> None:
        gpus.peers = np.eye(2, dtype=bool)
        assert run("mine[t] = 1;").sum() == 32
        with pytest.raises(EmulationError, match="which is no peer"):
            run("if (t == 0) theirs[0] = 1;")


@pytest.mark.parametrize(
    "body",
    [
        "mine[t] = t; u32 all = __ballot_sync(FULL_WARP, 1); mine[t + 32] = mine[t ^ 1] + (all == 0);",
        "mine[t + 32] = t ^ 1; mine[0] = 1;",
    ],
)
def test_what_only_the_strict_refuse(body: str) -> None:
    with emulated_gpus(2, multiprocessors=3, checks=True):
        assert run(body)[32:].tolist() == [t ^ 1 for t in range(32)]
    with (
        emulated_gpus(2, multiprocessors=3, checks="strict"),
        pytest.raises(EmulationError, match="nothing orders"),
    ):
        run(body)


@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"]], ids="-".join)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_worker(devices: list[str], seed: int) -> None:
    graph = gw.generators.rmat(7, 6, weights=(1, 64), seed=2)
    expected = gw.sssp(graph, 0, devices="cpu").distance
    with emulated_gpus(2, multiprocessors=3, checks=True, seed=seed):
        assert np.array_equal(gw.sssp(graph, 0, devices=devices).distance, expected)
