"""Where graphs are made on a GPU: kernels, a stream, and how long each step takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from time import perf_counter
from types import TracebackType
from typing import Any

from godwit import config
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.driver import Buffer, Module, Stream
from godwit.runtime.cuda.gpu_locks import held_gpus

TILE = 1024
"""Items that a warp goes through; as in build_rows.cuh."""

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_SCAN_THREADS = 1024

# What the driver and CuPy's sort need beside our own arrays.
_RESERVED_BYTES = 64 << 20
_RESERVED_SHARE = 0.03


def kernel_source(file: str, **types: str) -> str:
    """The few lines that instantiate the kernels of a file: what its type names stand for."""
    usings = (f"using {name} = {meaning};" for name, meaning in types.items())
    return "\n".join(
        ('#include "graph/generators/generate.cuh"', *usings, f'#include "{file}"', "")
    )


def spare_bytes(index: int) -> int:
    """Memory of a GPU that a graph may take."""
    free = driver.free_memory_bytes(index)
    return max(0, int(free * (1 - _RESERVED_SHARE)) - _RESERVED_BYTES)


@lru_cache(maxsize=64)
def _module(index: int, source: str) -> Module:
    architecture = driver.properties(index).compute_capability
    return driver.load(index, cubin(source, (), architecture))


class GraphBuilder:
    """A GPU's kernels for one kind of graph. A context manager.

    :param index: the GPU
    :param source: of the kernels
    :param seconds: gets the time of each step, by name, if given
    """

    def __init__(self, index: int, source: str, seconds: dict[str, float] | None = None) -> None:
        self.index = index
        self.seconds = {} if seconds is None else seconds
        self._blocks = driver.properties(index).multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
        with ExitStack() as stack:
            stack.enter_context(held_gpus([index]))
            begin = perf_counter()
            self._module = _module(index, source)
            self.seconds["compile"] = perf_counter() - begin
            self.stream = Stream(index)
            stack.callback(self.stream.close)
            self._stack = stack.pop_all()

    def start(self, name: str, *arguments: Any) -> None:
        """Start a kernel on the whole GPU: pointers and numbers of 64 bits, and structures."""
        driver.launch(
            self._module.kernel(name),
            self.stream,
            blocks=self._blocks,
            threads=_THREADS,
            arguments=arguments,
        )

    def clear(self, buffer: Buffer) -> None:
        """Zero words of 64 bits, in the stream."""
        self.start("clear", buffer.pointer, buffer.nbytes // 8)

    def sum_up(self, tiles: Buffer, count: int) -> int:
        """Replace each of so many counts by the sum of those before; the sum of all."""
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
        """Add what the block takes, with all that it starts on the GPU, to the seconds of a step."""
        begin = perf_counter()
        yield
        self.stream.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begin

    def spare_bytes(self) -> int:
        """Memory of the GPU that a graph may take."""
        return spare_bytes(self.index)

    def require(self, needed_bytes: int, what: str) -> None:
        """GraphTooLargeError, with need against free, if it is more than the GPU has to spare."""
        spare = self.spare_bytes()
        if needed_bytes > spare:
            raise GraphTooLargeError(
                f"{what} needs some {config.readable_bytes(needed_bytes)} on cuda:{self.index}, "
                f"and {config.readable_bytes(spare)} are available there"
            )

    def __enter__(self) -> GraphBuilder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
