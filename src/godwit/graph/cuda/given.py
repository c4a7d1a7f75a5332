"""Arrays that users hold on GPUs."""

from __future__ import annotations

from typing import Any

from godwit.arrays import lies_on_gpu
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.libraries import cupy


def on_gpu(values: Any) -> Any:
    """Return values as a contiguous CuPy array, shared if possible; None if not a 1-d array on a GPU."""
    if not lies_on_gpu(values):
        return None
    if getattr(values, "requires_grad", False):  # which PyTorch does not share
        values = values.detach()
    module = cupy()
    try:
        shared = module.from_dlpack if hasattr(values, "__dlpack__") else module.asarray
        array = shared(values)
        with driver.entered(int(array.device.id)):
            return module.ascontiguousarray(array) if array.ndim == 1 else None
    except (RuntimeError, BufferError, TypeError, ValueError):  # not CUDA's, or unknown to CuPy
        return None


def common_gpu(arrays: list[Any]) -> int | None:
    """Return the index of the GPU where all arrays lie; None if they lie on several, or one is None."""
    if any(array is None for array in arrays):
        return None
    indexes = {int(array.device.id) for array in arrays}
    return indexes.pop() if len(indexes) == 1 else None
