"""NVRTC in another process, since it compiles one program at a time in each.

The process is Python without Godwit: it loads the library that this process has, compiles what it reads,
and writes the result. Whatever goes wrong there, the caller compiles itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = """
import ctypes, sys
library, output, *options = sys.argv[1:]
nvrtc = ctypes.CDLL(library)
program, size = ctypes.c_void_p(), ctypes.c_size_t()
given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
source = sys.stdin.buffer.read()
def call(name, *arguments):
    if getattr(nvrtc, "nvrtc" + name)(*arguments):
        sys.exit(1)
call("CreateProgram", ctypes.byref(program), source, b"kernel.cu", 0, None, None)
call("CompileProgram", program, len(options), given)
call("Get" + output + "Size", program, ctypes.byref(size))
code = ctypes.create_string_buffer(size.value)
call("Get" + output, program, code)
sys.stdout.buffer.write(code.raw)
"""


def compiled_elsewhere(source: str, options: Sequence[str], output: str) -> bytes | None:
    """Return what NVRTC makes of a source in another process; None if that did not work.

    :param output: ``"CUBIN"`` or ``"LTOIR"``
    """
    library = _loaded_library()
    if library is None or not Path(sys.executable or "").name.startswith("python"):
        return None
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, library, output, *options]
    try:
        done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None


def _loaded_library() -> str | None:
    """Return the path of NVRTC's library as this process has loaded it."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libnvrtc.so" in line)
    return next(paths, None)
