"""CuPy as far as links use it, over the memory and streams of pretend_cuda.py."""

from __future__ import annotations

import ctypes
import threading
import types
from collections import defaultdict
from typing import Any

import numpy as np


class Array:
    """Stands for cupy.ndarray; ``host`` shows the memory."""

    def __init__(self, shape: Any, dtype: Any, data: Any) -> None:
        self.data = data
        kind = np.dtype(dtype)
        shape = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        nbytes = kind.itemsize * int(np.prod(shape))
        raw = (ctypes.c_byte * max(1, nbytes)).from_address(data.ptr)
        self.host = np.frombuffer(raw, np.uint8)[:nbytes].view(kind).reshape(shape)

    dtype = property(lambda self: self.host.dtype)
    shape = property(lambda self: self.host.shape)
    ndim = property(lambda self: self.host.ndim)
    nbytes = property(lambda self: self.host.nbytes)
    size = property(lambda self: self.host.size)
    flags = property(lambda self: self.host.flags)

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, rows: slice) -> Array:
        return self._over(self.host[rows])

    def reshape(self, *shape: Any) -> Array:
        return self._over(self.host.reshape(*shape))

    def view(self, dtype: Any) -> Array:
        return self._over(self.host.view(dtype))

    def _over(self, part: Any) -> Array:
        assert part.flags.c_contiguous
        offset = part.ctypes.data - self.host.ctypes.data if part.size else 0
        return Array(part.shape, part.dtype, Pointer(self.data.mem, self.data.offset + offset))


class Pointer:
    """Stands for cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem = mem
        self.offset = offset
        self.ptr = mem.ptr + offset
        self.device_id = mem.device_id


class Memory:
    """Stands for cupy.cuda.UnownedMemory."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
        self.ptr = ptr
        self.owner = owner
        self.device_id = device_id


def cupy_module(machine: Any) -> Any:
    """What the library uses of CuPy, on pretended GPUs."""

    class Local(threading.local):
        """Of a thread, the current stream on each GPU, and those of the blocks that it is in."""

        def __init__(self) -> None:
            self.streams: dict[int, Any] = {}
            self.blocks: dict[int, list[Any]] = defaultdict(list)

    local = Local()

    def gpu() -> int:
        return int(machine.current)

    def get_current_stream(device_id: int = -1) -> Any:
        return local.streams.get(gpu() if device_id < 0 else device_id, Stream.null)

    class Stream:
        null: Any

        def __init__(self, ptr: int | None = None, non_blocking: bool = False) -> None:
            self.ptr = machine.new_stream(machine.current) if ptr is None else ptr

        def __enter__(self) -> Stream:
            self._index = gpu()
            local.blocks[self._index].append(self)
            local.streams[self._index] = self
            return self

        def use(self) -> None:
            local.streams[gpu()] = self

        def __exit__(self, *_: object) -> None:
            """Return to the stream of the block around this one, as CuPy: not to one set by ``use``."""
            blocks = local.blocks[self._index]
            blocks.pop()
            local.streams[self._index] = blocks[-1] if blocks else Stream.null

        def __del__(self) -> None:
            if self.ptr:
                machine.streams.pop(self.ptr).end()

    Stream.null = Stream(0)
    cuda = types.SimpleNamespace(
        Stream=Stream,
        UnownedMemory=Memory,
        MemoryPointer=Pointer,
        get_current_stream=get_current_stream,
        runtime=types.SimpleNamespace(getDevice=gpu),
    )
    return types.SimpleNamespace(ndarray=Array, cuda=cuda)
