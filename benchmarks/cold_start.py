"""What a user waits for before the first answer: import, and the first query of a fresh process.

    python benchmarks/cold_start.py [--runs N]
    python benchmarks/cold_start.py --commands [--runs N]      # first commands, each with an empty cache
    python benchmarks/cold_start.py --calls [--runs N]         # later calls on a graph of ten vertices
    python benchmarks/cold_start.py --device cuda:0 [--runs N] [--json FILE]

Each run is a process of its own. The cache of compiled code is warm, as it is from the second process on;
the first line shows what the very first one costs. With ``--device`` the answer is that of a graph of some
10 M arcs, read from a .godwit file (in the page cache: it was written just before), on that device; the
wait is broken down, from the start of Python to distances on the host, and the answer is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, time

_COMMANDS = {
    "README's": "sssp road:1000x1000,weights=1..64 --source max-degree --verify --output {}/out.npy",
    "five lines of names": "info {}/names.csv",
    "five lines of numbers": "info {}/numbers.csv",
}
_TABLES = {
    "names": "user,friend\na,b\nb,c\nc,d\nd,a\na,c\n",
    "numbers": "1,2\n2,3\n3,4\n4,5\n5,1\n",
}

_PROGRAM = """
import json
from time import perf_counter
begin = perf_counter()
import godwit as gw
imported = perf_counter()
graph = gw.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
gw.bfs(graph, 0).distance
searched = perf_counter()
gw.sssp(graph, 0).distance
print(json.dumps([imported - begin, searched - imported, perf_counter() - searched]))
"""

# Arguments: when the process was started, the file, the device, the algorithm, the source. The steps are
# those of gw.sssp(gw.read(file), source, devices=device), taken one by one so that each has its time.
_DEVICE_PROGRAM = """
import sys
from time import perf_counter, time
began, path, device, algorithm, source = sys.argv[1:]
seconds = {"Python": time() - float(began)}
last = perf_counter()
def done(step):
    global last
    now = perf_counter()
    seconds[step] = now - last
    last = now
import godwit as gw
done("import")
from godwit.runtime.registry import resolve_devices
found = resolve_devices(device)
done("discovery")
found[0].memory_bytes
done("context")
graph = gw.read(path)
done("read")
graph.offsets, graph.targets, graph.weights
done("check")
placed = gw.place(graph, device)
place_s = dict(placed.seconds)
done("place")
result = getattr(gw, algorithm)(placed, int(source))
distance = result.distance
done("query")
answer = int(distance[result.reached].sum())
query_s = dict(result.statistics.seconds)
for step, parts in (("place", place_s), ("query", query_s)):
    whole = seconds.pop(step)
    names = {"place": {"place": "layout"}, "query": {"compile": "load", "run": "prepare"}}[step]
    seconds.update({names.get(name, name): part for name, part in parts.items()})
    seconds["rest of " + step] = whole - sum(parts.values())
import json
print(json.dumps({"seconds": seconds, "answer": answer}))
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


def device_process(cache: str, arguments: list[str], wanted: int) -> dict[str, float]:
    """The seconds of each step of a fresh process, the whole first."""
    begin = time()
    done = subprocess.run(
        [sys.executable, "-c", _DEVICE_PROGRAM, repr(begin), *arguments],
        env={**os.environ, "GODWIT_CACHE": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the process failed:\n{done.stderr}")
    found = json.loads(done.stdout)
    if found["answer"] != wanted:
        sys.exit(f"WRONG: the distances add up to {found['answer']} instead of {wanted}")
    seconds: dict[str, float] = found["seconds"]
    return {"to the answer": sum(seconds.values())} | seconds


def on_device(device: str, spec: str, runs: int) -> list[dict[str, object]]:
    """A row for each algorithm and each state of the cache."""
    import godwit as gw
    from godwit.runtime.registry import resolve_devices

    try:
        resolve_devices(device)
    except gw.errors.GodwitError as error:
        sys.exit(str(error))
    rows: list[dict[str, object]] = []
    graph = gw.generate(spec)
    source = graph.highest_degree_vertex()
    print(f"{spec}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs; {device}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph.godwit")
        gw.write(graph, path)
        for algorithm in ("bfs", "sssp"):
            result = getattr(gw, algorithm)(graph, source, devices="cpu")
            wanted = int(result.distance[result.reached].sum())
            arguments = [path, device, algorithm, str(source)]
            cache = str(Path(folder) / f"cache of {algorithm}")  # the first of each compiles all
            cold = device_process(cache, arguments, wanted)
            warm = [device_process(cache, arguments, wanted) for _ in range(runs)]
            median = {step: statistics.median(one[step] for one in warm) for step in warm[0]}
            kind = {"algorithm": algorithm, "device": device, "graph": spec}
            rows.append({**kind, "cache": "empty", "seconds": cold})
            rows.append({**kind, "cache": f"warm, median of {runs}", "seconds": median})
            totals = [one["to the answer"] for one in warm]
            rows[-1]["least and most"] = [min(totals), max(totals)]
    return rows


def print_steps(rows: list[dict[str, object]]) -> None:
    """A line for each step, a column for each row, in Markdown."""
    columns = [row["seconds"] for row in rows]
    steps = dict.fromkeys(step for column in columns for step in column)  # type: ignore[attr-defined]
    heads = [f"{str(row['algorithm']).upper()}, cache {row['cache']}" for row in rows]
    widths = [max(8, len(head)) for head in heads]
    print(f"\n| {'seconds':<16} | " + " | ".join(map(str.ljust, heads, widths)) + " |")
    print(f"| {'-' * 16} | " + " | ".join("-" * (width - 1) + ":" for width in widths) + " |")
    for step in steps:
        cells = [
            f"{column.get(step, 0.0):{width}.3f}"  # type: ignore[attr-defined]
            for column, width in zip(columns, widths, strict=True)
        ]
        print(f"| {step:<16} | " + " | ".join(cells) + " |")


def time_commands(runs: int) -> None:
    """Print the seconds of each command, of its wall clock and of the CPU for all its processes."""
    print(f"{'empty cache':24}{'seconds':>10}{'of CPU':>10}   (least of {runs}; median)")
    for name, command in _COMMANDS.items():
        wall, cpu = [], []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                for table, text in _TABLES.items():
                    (Path(folder) / f"{table}.csv").write_text(text)
                words = [sys.executable, "-m", "godwit", *command.format(folder).split()]
                environment = {**os.environ, "GODWIT_CACHE": f"{folder}/cache"}
                before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
                subprocess.run(words, env=environment, capture_output=True, check=True)
                wall.append(perf_counter() - begin)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        medians = f"{statistics.median(wall):.2f}, {statistics.median(cpu):.2f}"
        print(f"{name:24}{min(wall):10.2f}{min(cpu):10.2f}   {medians}")


def time_calls(runs: int) -> None:
    """Print the milliseconds of calls on a graph of ten vertices, one after the other in each round."""
    import numpy as np

    import godwit as gw

    rng = np.random.default_rng(1)
    sources, targets = rng.integers(0, 10, (2, 20))
    weights = rng.integers(1, 9, 20).astype(np.int32)
    graph = gw.Graph.from_edges(sources, targets, weights, directed=False)
    program = gw.VertexProgram(
        name="lengths", dtype="int64", combine="min",
        message=lambda value, weight: value + weight, priority=lambda value: value,
    )  # fmt: skip
    with gw.place(graph, "cpu") as placed:
        calls: dict[str, Callable[[], object]] = {
            "bfs": lambda: gw.bfs(graph, 0, devices="cpu"),
            "bfs, placed": lambda: gw.bfs(placed, 0),
            "sssp": lambda: gw.sssp(graph, 0, devices="cpu"),
            "sssp, placed": lambda: gw.sssp(placed, 0),
            "gw.run, placed": lambda: gw.run(program, placed, {0: 0}),
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(2 + runs):
            for name, call in calls.items():
                begin = perf_counter()
                call()
                seconds[name].append(perf_counter() - begin)
    print(f"{'ten vertices':24}{'least ms':>10}{'median':>10}")
    for name, found in seconds.items():
        median = statistics.median(found[2:])
        print(f"{name:24}{1e3 * min(found[2:]):10.3f}{1e3 * median:10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--commands", action="store_true", help="time the first commands")
    parser.add_argument(
        "--calls", action="store_true", help="time calls on a graph of ten vertices"
    )
    parser.add_argument("--device", help="such as cuda:0: to the first answer on it")
    parser.add_argument(
        "--graph", default="rmat:18,edge_factor=24,seed=1,weights=1..64", help="for --device"
    )
    parser.add_argument("--json", help="file to write the steps to, for --device")
    arguments = parser.parse_args()
    if arguments.commands:
        time_commands(arguments.runs)
        return
    if arguments.calls:
        time_calls(100 * arguments.runs)
        return
    if arguments.device:
        rows = on_device(arguments.device, arguments.graph, arguments.runs)
        print_steps(rows)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(rows, indent=1))
        return
    print(f"{'seconds':24}{'import':>10}{'first BFS':>12}{'then SSSP':>12}")
    with tempfile.TemporaryDirectory() as cache:
        cold = one_process(cache)
        print(f"{'empty cache':24}{cold[0]:10.3f}{cold[1]:12.3f}{cold[2]:12.3f}")
        warm = [one_process(cache) for _ in range(arguments.runs)]
    median = [statistics.median(column) for column in zip(*warm, strict=True)]
    print(f"{'second process, median':24}{median[0]:10.3f}{median[1]:12.3f}{median[2]:12.3f}")


if __name__ == "__main__":
    main()
