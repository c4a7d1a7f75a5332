"""Kernels that make rows of graphs on a GPU, with a stream and the time of each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import load
from godwit.runtime.cuda.devices import held_gpus
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer

TILE = 1024
"""Items of a tile, which one warp visits; as in tiles.cuh."""

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_SCAN_THREADS = 1024

# Memory for the driver and for CuPy's sort, beside the arrays allocated here.
_RESERVED_BYTES = 64 << 20
_RESERVED_SHARE = 0.03


def kernel_source(file: str, **types: str) -> str:
    """Return the source that instantiates the kernels of a file, with the meaning of its type names."""
    usings = (f"using {name} = {meaning};" for name, meaning in types.items())
    return "\n".join(
        ('#include "graph/generators/generate.cuh"', *usings, f'#include "{file}"', "")
    )


def c_id(dtype: np.dtype[Any]) -> str:
    """Return the C++ type of int32 or int64 ids."""
    return {4: "i32", 8: "i64"}[dtype.itemsize]


def c_word(dtype: np.dtype[Any] | None) -> str:
    """Return the C++ type of the bits of given weights."""
    return "u64" if dtype is not None and dtype.itemsize == 8 else "u32"


def spare_bytes(index: int) -> int:
    """Return the free memory of a GPU that a graph may take."""
    free = memory.free_memory_bytes(index)
    return max(0, int(free * (1 - _RESERVED_SHARE)) - _RESERVED_BYTES)


class GraphBuilder:
    """Context manager that holds a GPU, the kernels of one source and a stream.

    :param index: the number of the GPU
    :param source: the source of the kernels
    :param seconds: a dictionary to which the time of each step is added, by name
    """

    def __init__(self, index: int, source: str, seconds: dict[str, float] | None = None) -> None:
        self.index = index
        self.seconds = {} if seconds is None else seconds
        self._blocks = driver.properties(index).multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
        with ExitStack() as stack:
            stack.enter_context(held_gpus([index]))
            begin = perf_counter()
            self._module = load(index, source)
            self.seconds["compile"] = perf_counter() - begin
            self.stream = Stream(index)
            stack.callback(self.stream.close)
            self._stack = stack.pop_all()

    def start(self, name: str, *arguments: Any) -> None:
        """Start a kernel on the whole GPU. Arguments are pointers, numbers of 64 bits and structures."""
        driver.launch(
            self._module.kernel(name),
            self.stream,
            blocks=self._blocks,
            threads=_THREADS,
            arguments=arguments,
        )

    def clear(self, buffer: Buffer) -> None:
        """Set all 64-bit words of a buffer to zero, in the stream."""
        self.start("clear", buffer.pointer, buffer.nbytes // 8)

    def sum_up(self, tiles: Buffer, count: int) -> int:
        """Replace ``count`` counts by their exclusive prefix sum; return their total."""
        driver.launch(
            self._module.kernel("sum_up"),
            self.stream,
            blocks=1,
            threads=_SCAN_THREADS,
            arguments=(tiles.pointer, count),
        )
        self.stream.synchronize()
        return int(tiles.download("uint64", 1, 8 * count)[0])

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the duration of the block, and of all that it starts on the GPU, to the seconds of a step."""
        begin = perf_counter()
        yield
        self.stream.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begin

    def require(self, needed_bytes: int, what: str) -> None:
        """Raise GraphTooLargeError, naming both figures, if the GPU has less memory to spare."""
        spare = spare_bytes(self.index)
        if needed_bytes > spare:
            raise GraphTooLargeError(
                f"{what} needs some {config.readable_bytes(needed_bytes)} on cuda:{self.index}, "
                f"and {config.readable_bytes(spare)} are available there"
            )

    def __enter__(self) -> GraphBuilder:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
