"""Memory of GPUs that the process keeps: bounded, free for whoever needs it, and never two's at once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit.algorithms.filtering import gpu_packets
from godwit.dataflow.cuda.segments import GpuSpace
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda import memory
from godwit.runtime.cuda.memory import KeptMemory
from pretend_cuda import pretended_gpus

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ptf"), st.integers(0, 1), st.sampled_from([1, 3, 7, 20])))
)
def test_it_is_bounded_and_loses_nothing(steps: list[tuple[str, int, int]]) -> None:
    kept: KeptMemory[int] = KeptMemory(16)
    held: Counter[tuple[int, int]] = Counter()  # GPU, size
    sizes: dict[int, tuple[int, int]] = {}  # by pointer
    for pointer, (what, index, nbytes) in enumerate(steps):
        if what == "p":
            sizes[pointer] = index, nbytes
            held[index, nbytes] += 1
            gone = kept.put(index, nbytes, pointer)
        elif what == "t":
            found = kept.take(index, nbytes)
            assert (found is None) == (held[index, nbytes] == 0)
            gone = [] if found is None else [found]
            assert all(sizes[one] == (index, nbytes) for one in gone)
        else:
            gone = kept.take_all(index)
            assert len(gone) == sum(count for (gpu, _), count in held.items() if gpu == index)
        for one in gone:
            held[sizes.pop(one)] -= 1
        for gpu in (0, 1):
            assert kept.kept_bytes(gpu) == sum(size * held[gpu, size] for size in (1, 3, 7, 20))
            assert kept.kept_bytes(gpu) <= 16


def test_what_was_kept_the_longest_makes_room() -> None:
    kept: KeptMemory[int] = KeptMemory(10)
    assert kept.put(0, 4, 100) == kept.put(0, 3, 200) == kept.put(0, 3, 300) == []
    assert kept.take(0, 4) == 100
    assert kept.take(0, 3) == 300
    assert kept.put(0, 4, 100) == kept.put(0, 3, 300) == []
    assert kept.put(0, 3, 400) == [200]
    assert kept.put(0, 11, 500) == [100, 300, 400, 500]


def test_a_mixture_that_is_needed_again_and_again_is_found() -> None:
    """Also where larger calls before have left what nobody asks for now."""
    kept: KeptMemory[int] = KeptMemory(17)
    for pointer in range(8):
        kept.put(0, 2, pointer)
    for turn in range(3):
        taken = [kept.take(0, size) for size in (1, 1, 1, 1, 2, 2, 2, 2, 2, 2)]
        assert (None in taken) == (turn == 0)
        for size, pointer in zip((1, 1, 1, 1, 2, 2, 2, 2, 2, 2), range(10), strict=True):
            kept.put(0, size, pointer)


@needs_compiler
def test_what_is_kept_is_free_for_others() -> None:
    with emulated_gpus(2, memory_bytes=1000) as machine:
        for nbytes in (300, 200):
            memory.kept_or_new(0, nbytes).keep()
        assert machine.held_bytes(0) == 500
        assert memory.free_memory_bytes(0) == memory.free_memory_bytes(1) == 1000
        again = memory.kept_or_new(0, 300)
        assert machine.held_bytes(0) == 500
        assert memory.free_memory_bytes(0) == 700
        with pytest.raises(GraphTooLargeError, match="cannot give 701 B: 700 B are free"):
            memory.Buffer(0, 701)
        with memory.Buffer(0, 700):
            assert machine.held_bytes(0) == 1000
        again.keep()
        again.keep()
        again.close()
        assert memory.free_memory_bytes(0) == 1000
        assert memory.free_kept(0)
        assert not memory.free_kept(0)
        assert machine.held_bytes(0) == 0


@pytest.mark.parametrize("seed", range(4))
def test_work_is_done_before_others_get_its_memory(seed: int) -> None:
    """A stream of the user's is still to read it when the space is closed."""
    with pretended_gpus(np.ones((1, 1), bool), seed=seed, delay_s=5e-3) as machine:
        space = GpuSpace(0)
        block = space.allocate(4096)
        array = block.view(np.uint8, (4096,))
        place = array.data.ptr
        array.host[:] = 1
        seen: list[int] = []
        stream = machine.new_stream(0)
        for _ in range(5):
            machine.stream(stream).put(lambda host=array.host: seen.append(int(host.sum())))  # type: ignore[misc]
        del array
        block.free()
        del block
        space.close()
        with memory.kept_or_new(0, 4096) as other:
            assert other.pointer == place
            assert seen == [4096] * 5


def test_contexts_of_one_size_allocate_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with a limit, which somebody has set who cares, nothing is kept."""
    made = []
    real = memory.Buffer.__init__
    with pretended_gpus(np.ones((1, 1), bool)) as machine:

        def init(self: memory.Buffer, index: int, nbytes: int) -> None:
            made.append(nbytes)
            real(self, index, nbytes)

        monkeypatch.setattr(memory.Buffer, "__init__", init)
        for limit in (None, None, None, 1 << 16):
            with gw.Context(["cuda:0"], memory_bytes=limit) as context:
                link = gw.Link(context.host, context.endpoints[0], packet_bytes=4096, buffers=1)
                with link:
                    link.send(np.arange(9000, dtype=np.int32))
                assert sum(len(one) for one in link if not one.release()) == 9000
        assert made == [4096, 1 << 16]
        assert machine.bytes_on(0) == memory._KEPT.kept_bytes(0) == 4096


def test_what_a_filter_needs_is_kept() -> None:
    """Buffers of GPUs are allocated once: the process keeps all that one call takes."""
    small = 8 << 20  # counts, and places for small arrays
    # For the packets themselves, and for what they keep.
    buffers = 2 * gpu_packets.SLOTS_PER_PACKET * gpu_packets.READY_PACKETS
    assert buffers * gpu_packets.PACKET_BYTES + small <= memory.KEPT_BYTES
