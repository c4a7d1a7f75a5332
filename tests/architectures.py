"""Which architectures tests compile kernels for: two in the gate, all with ``--all``."""

from __future__ import annotations

import pytest

from godwit.runtime.cuda.compile import ARCHITECTURES

GATE_ARCHITECTURES = ("80", "90")

each_architecture = pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(name, marks=() if name in GATE_ARCHITECTURES else pytest.mark.thorough)
        for name in ARCHITECTURES
    ],
)
