"""Build hook: compiles the kernels that first queries take, so that users need not wait.

For the architectures that ``GODWIT_CUBINS`` names (``"90,120"``; ``"all"``: those that tests cover;
``"none"``), or those of this machine's GPUs: without GPUs nothing is compiled or installed for it. A wheel
without compiled kernels works as well, and compiles what it needs when it is first used.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ALL = ["80", "86", "89", "90", "100", "120"]  # ARCHITECTURES of src/godwit/runtime/cuda/compile.py
_FOLDER = "src/godwit/cubins"
_OLDEST = 80  # Ampere
_CUDA = 13
"""Major version of CUDA whose compiler is taken; older drivers do not load what it makes."""


def _architectures() -> list[str]:
    named = os.environ.get("GODWIT_CUBINS")
    if named is not None:
        listed = [one.strip() for one in named.split(",") if one.strip()]
        return {"all": _ALL, "none": []}.get(named.strip(), listed)
    driver = re.search(r"CUDA Version: (\d+)", _output("nvidia-smi"))
    if driver is None or int(driver[1]) < _CUDA:  # it would refuse what is compiled
        return []
    found = _output("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    numbers = {line.strip().replace(".", "") for line in found.splitlines()}
    return sorted(number for number in numbers if number.isdecimal() and int(number) >= _OLDEST)


def _output(*command: str) -> str:
    """Return what a command prints; empty if it is not there or fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        return done.stdout
    return ""


class CubinHook(BuildHookInterface):
    """Compiles kernels into the package before a wheel is built, or an editable installation made."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs."""
        if not _architectures():
            return []
        compilers = [f"{name}=={_CUDA}.*" for name in ("cuda-bindings", "nvidia-cuda-nvrtc")]
        return [*self.metadata.core.dependencies, *compilers]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile. A failure costs the kernels, not the build, unless ``GODWIT_CUBINS`` asks for them."""
        architectures = _architectures()
        if not architectures:
            return
        root = Path(self.root)
        command = [
            sys.executable,
            "-m",
            "godwit.usual_kernels",
            str(root / _FOLDER),
            *architectures,
        ]
        environment = os.environ | {"PYTHONPATH": str(root / "src")}
        if subprocess.run(command, env=environment, check=False).returncode == 0:
            build_data["artifacts"].append(_FOLDER)
        elif "GODWIT_CUBINS" in os.environ:
            sys.exit(
                "GODWIT_CUBINS asks for kernels that do not compile; GODWIT_CUBINS=none does without"
            )
        else:
            self.app.display_warning("kernels will be compiled when they are first used")
