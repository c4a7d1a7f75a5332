"""Which architectures tests compile kernels for, and how.

In the gate for two and quickly; with ``--all`` for all, as users do.
"""

from __future__ import annotations

import pytest

from godwit.runtime.cuda import libraries
from godwit.runtime.cuda.compile import ARCHITECTURES, cubin

GATE_ARCHITECTURES = ("80", "90")

each_architecture = pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(name, marks=() if name in GATE_ARCHITECTURES else pytest.mark.thorough)
        for name in ARCHITECTURES
    ],
)

_QUICK = "--Ofast-compile=max"  # of NVRTC 13, maybe of some before
_optimizes = False


def optimize() -> None:
    """Let :func:`compiled_for` optimize kernels as users' are."""
    global _optimizes  # noqa: PLW0603
    _optimizes = True


def compiled_for(source: str, architecture: str) -> bytes:
    """Return kernels without operators as a cubin; NVRTC takes 3 to 20 times as long to optimize them.

    Templates, assertions, inline PTX and the sizes of shared memory are checked in any case. Optimized
    kernels are compiled with ``--all``, for every GPU that runs them, and, of those that have operators,
    in the gate, too.
    """
    is_quick = not _optimizes and libraries.nvrtc().nvrtcVersion()[1] >= 13
    return cubin(source, (), architecture, [_QUICK] if is_quick else [])
