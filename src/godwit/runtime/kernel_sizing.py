"""How large the grid of a user's kernel may be on a GPU; imports CUDA code only when asked."""

from __future__ import annotations

from typing import Any


def size_of_kernel(
    device: str, kernel: Any, threads: int | None, shared_bytes: int
) -> tuple[int, int]:
    """Blocks that a GPU has room for at once, and threads of each; see runtime/cuda/kernel_sizing.py."""
    from godwit.runtime.cuda.kernel_sizing import size_of_kernel as on_gpu

    return on_gpu(int(device.partition(":")[2]), kernel, threads, shared_bytes)
