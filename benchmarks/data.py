"""Graphs on their way to a GPU: milliseconds from arrays there or on the host to placed graphs.

    python benchmarks/data.py [--device cuda:0] [--scale 24] [--edge-factor 16] [--runs 5] [--json]
    python benchmarks/data.py --only place      # some sections: build, weights, place

The graph is R-MAT, undirected: each edge is given once, its rows hold both directions. The first run, which
may compile, is told apart; the figure is the others' median. Every graph is compared with the one that the
host's arrays make, bit by bit, and distances from the vertex of highest degree in the placed graphs, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.graph.generators import cuda as generators
from godwit.runtime.cuda import driver


def equal(one: gw.Graph, other: gw.Graph) -> bool:
    """Return True if two graphs have the same arrays."""
    pairs = zip(one.rows, other.rows, strict=True)
    return all(a is b is None or np.array_equal(bits(a), bits(b)) for a, b in pairs)


def bits(array: Any) -> Any:
    """Return the bytes of a contiguous array, one by one."""
    return array.view(np.uint8)


SECTIONS = ("build", "weights", "place")


class Bench:
    """Arrays of one graph on the host and on a GPU, and what is measured of them."""

    def __init__(self, device: str, scale: int, edge_factor: int, runs: int) -> None:
        import cupy

        self.cupy, self.device, self.runs = cupy, device, runs
        self.index = int(device.partition(":")[2])
        self.graph = generators.rmat(scale, edge_factor, seed=1, index=self.index)
        self.found: list[dict[str, Any]] = []

    def there(self, arrays: Any) -> list[Any]:
        """Return copies of arrays on the GPU."""
        with self.cupy.cuda.Device(self.index):
            held = [self.cupy.asarray(array) for array in arrays if array is not None]
            self.cupy.cuda.Device(self.index).synchronize()
        return held

    def measure(self, name: str, make: Callable[[], Any], check: Callable[[Any], bool]) -> None:
        """Print the times of a function whose result is checked once."""
        times = []
        made: Any = None
        for _ in range(self.runs + 1):
            if hasattr(made, "close"):
                made.close()
            made = None  # its memory is given back before the next is made
            begin = perf_counter()
            made = make()
            times.append(1e3 * (perf_counter() - begin))
        row = {
            "what": name,
            "first_ms": times[0],
            "median_ms": statistics.median(times[1:]),
            "equal": check(made),
        }
        if hasattr(made, "close"):
            made.close()
        self.found.append(row)
        verdict = "equal" if row["equal"] else "DIFFERENT"
        print(
            f"{name:<44} {row['median_ms']:9.1f} ms  (first {times[0]:9.1f})  {verdict}",
            file=sys.stderr,
            flush=True,
        )

    def run(self, sections: Sequence[str]) -> None:
        """Measure some sections."""
        if "build" in sections:
            self.build(self.graph, "")
        if "weights" in sections:
            self.build(self.graph.with_random_weights(1, 64, seed=1), ", weights")
        if "place" in sections:
            self.place(self.graph)

    def build(self, graph: gw.Graph, words: str) -> None:
        """Measure how long edges and rows on the GPU take to become a graph."""
        arrays = self.there(graph.to_edges())
        self.measure(
            f"{len(arrays[0]):,} edges on the GPU{words}: Graph",
            lambda: gw.Graph.from_edges(*arrays, vertex_count=graph.vertex_count, directed=False),
            lambda made: equal(made, graph),
        )
        arrays = self.there(graph.rows)
        self.measure(
            f"{graph.arc_count:,} arcs in rows{words}: Graph",
            lambda: gw.Graph(*arrays, directed=False),
            lambda made: equal(made, graph),
        )

    def place(self, graph: gw.Graph) -> None:
        """Measure how long a graph takes to be placed, from the host and from the GPU."""
        source = graph.highest_degree_vertex()
        distance = gw.bfs(graph, source, devices="cpu").distance

        def same(placed: gw.PlacedGraph) -> bool:
            return bool(np.array_equal(gw.bfs(placed, source).distance, distance))

        rows = self.there(graph.rows)
        for name, make in (
            ("rows on the host: place", lambda: graph),
            ("rows on the GPU: Graph, place", lambda: gw.Graph(*rows, directed=False)),
        ):
            self.measure(name, partial(self.placed, make), same)
        kept = gw.Graph(*rows, directed=False)
        self.measure("rows on the GPU: place again", partial(self.placed, lambda: kept), same)

    def placed(self, make: Callable[[], gw.Graph]) -> gw.PlacedGraph:
        """Return the graph that a function returns, placed."""
        return gw.place(make(), self.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--edge-factor", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5, help="after the first")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sections = options.only.split(",")
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        sys.exit(f"--only takes {', '.join(SECTIONS)}, not {', '.join(unknown)}")
    device = next((one for one in gw.all_devices() if one.name == options.device), None)
    if device is None or device.kind != "cuda":
        sys.exit(f"there is no GPU {options.device!r}: {driver.why_not() or 'others are there'}")
    bench = Bench(options.device, options.scale, options.edge_factor, max(1, options.runs))
    bench.run(sections)
    if options.json:
        print(json.dumps({"device": device.description, "results": bench.found}, indent=2))


if __name__ == "__main__":
    main()
