"""What a user waits for before the first answer: import, and the first query of a second process.

    python benchmarks/cold_start.py [--runs N]

Each run is a process of its own. The cache of compiled code is warm, as it is from the second process on;
the first line shows what the very first one costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

_PROGRAM = """
import json
from time import perf_counter
begin = perf_counter()
import godwit as gw
imported = perf_counter()
graph = gw.Graph.from_arcs([0, 1, 2, 3], [1, 2, 3, 0])
gw.bfs(graph, 0).distance
searched = perf_counter()
gw.sssp(graph, 0).distance
print(json.dumps([imported - begin, searched - imported, perf_counter() - searched]))
"""


def one_process(cache: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "GODWIT_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    print(f"{'seconds':24}{'import':>10}{'first BFS':>12}{'then SSSP':>12}")
    with tempfile.TemporaryDirectory() as cache:
        cold = one_process(cache)
        print(f"{'empty cache':24}{cold[0]:10.3f}{cold[1]:12.3f}{cold[2]:12.3f}")
        warm = [one_process(cache) for _ in range(arguments.runs)]
    median = [statistics.median(column) for column in zip(*warm, strict=True)]
    print(f"{'second process, median':24}{median[0]:10.3f}{median[1]:12.3f}{median[2]:12.3f}")


if __name__ == "__main__":
    main()
