"""Makes the forest of an endpoint, on the CPU or on a GPU: wherever the endpoint's memory is."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.components.forests import Forest, Linking
from godwit.runtime.memory import Space
from godwit.runtime.protocol import Device


def make_forest(device: Device | None, space: Space, linking: Linking) -> Forest:
    """A forest without edges in an endpoint's memory.

    :raises InputError: the limit of the memory does not leave so much
    :raises GraphTooLargeError: the device has no more
    """
    if space.kind == "cuda":
        from godwit.algorithms.components.stream_cuda import new_forest

        return new_forest(space, linking)
    from godwit.algorithms.components.stream_cpu import HostForest

    return HostForest(space, linking, 1 if device is None else device.threads)


def compile_for(space: Space, linking: Linking, dtype: np.dtype[Any]) -> None:
    """Compile what links edges of a dtype, or find it compiled, so that no run is charged with it."""
    if space.kind == "cuda":
        from godwit.algorithms.components.stream_cuda import compile_kernels

        compile_kernels(space, linking, dtype)
    else:
        from godwit.algorithms.components.stream_cpu import compile_kernels as for_cpu

        for_cpu(linking, dtype)
