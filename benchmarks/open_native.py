"""How long a file of Godwit's own format takes to open, and to be checked on first use.

    python benchmarks/open_native.py [--gigabytes 1] [--runs 5] [--folder FOLDER]

Each run is a process of its own, which has imported godwit and nothing else when the clock starts. The
file has been written just before, so it lies in the page cache: what is measured is Godwit, not the
disk. Once with plain vertex numbers, once with text ids.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import godwit as gw
from godwit.io.graph_files import write

_RUN = """
import sys, time
import godwit as gw
gw.read
begin = time.perf_counter()
graph = gw.read(sys.argv[1])
opened = time.perf_counter()
graph.offsets
checked = time.perf_counter()
print(opened - begin, checked - opened)
"""


def make(gigabytes: float, ids: bool) -> gw.Graph:
    """A random graph of 16 arcs a vertex that takes so much in a file."""
    count = int(gigabytes * 1e9 / (16 * 4 + 8 + (17 if ids else 0)))
    offsets = np.arange(0, 16 * count + 1, 16)
    targets = np.random.default_rng(1).integers(0, count, 16 * count, np.int32)
    names = pa.array(np.arange(10**8, 10**8 + count)).cast(pa.large_string()) if ids else 0
    return gw.Graph(offsets, targets, ids=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for ids in (False, True):
            path = Path(folder, "graph.godwit")
            write(make(arguments.gigabytes, ids), path)
            times = []
            for _ in range(arguments.runs):
                done = subprocess.run(
                    [sys.executable, "-c", _RUN, path], check=True, capture_output=True, text=True
                )
                times.append([float(word) * 1e3 for word in done.stdout.split()])
            opened, checked = (statistics.median(column) for column in zip(*times, strict=True))
            print(
                f"{path.stat().st_size / 1e9:.2f} GB, {'text ids' if ids else 'no ids':8}: "
                f"opened in {opened:.1f} ms, checked in {checked:.0f} ms on first use"
            )


if __name__ == "__main__":
    main()
