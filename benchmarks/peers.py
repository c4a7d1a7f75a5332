"""What the benchmarks beside other libraries have in common: graphs, turns, and the report.

Every system gets the graph in its own form beforehand; the query alone is timed, by the wall clock, the
systems taking turns so that a drift of the machine's speed touches all alike. Ratios are peer over Godwit:
above 1, Godwit is faster. Graphs are symmetrized, and the real ones read from a folder.

``--gap FOLDER`` adds the GAP Benchmark Suite (Beamer, Asanović, Patterson, 2015), whose programs are not
Python's: each is given the graph as a file, runs its trials by itself after the turns of the others, and
tells their times, of which the first is left out.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw

Row = dict[str, Any]
Bench = Callable[[str, gw.Graph, argparse.Namespace], list[Row]]
"""``bench(name, graph, arguments)``: a row per system, perhaps per algorithm as well."""

REFERENCE = "Godwit"
"""The system that the others are compared with."""
GAP = "GAP"

_TRIAL = re.compile(r"^Trial Time:\s*(\d+(?:\.\d*)?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Column:
    """Of the printed table: what stands above it, its key in the rows, and how a value is written."""

    heading: str
    key: str
    width: int
    form: str = ""

    def head(self) -> str:
        """What stands above it."""
        return f"{self.heading:{self._side}{self.width}}"

    def cell(self, row: Row) -> str:
        """Its value in a row, blank where there is none."""
        value = row[self.key]
        text = "" if value is None else format(value, self.form)
        return f"{text:{self._side}{self.width}}"

    @property
    def _side(self) -> str:
        return ">" if self.heading else "<"


TIMES = (
    Column("median ms", "median_ms", 10, ".2f"),
    Column("min ms", "min_ms", 10, ".2f"),
    Column("ratio", "ratio", 8, ".2f"),
)


def graphs(folder: Path) -> dict[str, Callable[[], gw.Graph]]:
    """The graphs by their names, made or read when called."""
    return {
        "USA-road-d.NY": partial(_from_file, folder / "USA-road-d.NY.gr.xz"),
        "road:1000x1000": lambda: gw.generators.road(1000, 1000, seed=1),
        "rmat:20": lambda: gw.generators.rmat(20, 16, seed=1),
        "soc-Slashdot0902": partial(_from_file, folder / "soc-Slashdot0902.mtx.xz"),
    }


def directed_graphs(folder: Path) -> dict[str, Callable[[], gw.Graph]]:
    """The same of directed graphs, which keep their directions."""
    names = ("cnr-2000", "uk-2007-05@100000", "soc-Slashdot0902", "cit-HepPh")
    return {
        **{name: partial(directed_file, folder / f"{name}.mtx.xz") for name in names},
        "rmat:20": lambda: gw.generators.rmat(20, 16, seed=1, symmetrize=False),
    }


def directed_file(file: Path) -> gw.Graph:
    return gw.read(file).with_ids(0).remove_self_loops().merge_parallel_arcs()


def _from_file(file: Path) -> gw.Graph:
    return gw.read(file).with_ids(0).remove_self_loops().symmetrize()  # others count from 0


def in_networkit_and_igraph(graph: gw.Graph) -> tuple[Any, Any]:
    """A graph as these have it; weights, if it has some, are igraph's edges' ``weight``."""
    import igraph
    import networkit

    rows = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    upper = graph.directed | (rows <= graph.targets)
    ends = rows[upper], graph.targets[upper].astype(np.int64)
    weights = None if graph.weights is None else np.asarray(graph.weights, np.float64)[upper]
    coordinates = tuple(end.astype(np.uint64) for end in ends)
    kit = networkit.GraphFromCoo(
        coordinates if weights is None else (weights, coordinates),
        n=graph.vertex_count,
        weighted=weights is not None,
        directed=graph.directed,
    )
    attributes = {} if weights is None else {"weight": weights}
    other = igraph.Graph(
        n=graph.vertex_count, edges=np.stack(ends, 1), edge_attrs=attributes,
        directed=graph.directed,
    )  # fmt: skip
    return kit, other


def measure(
    contenders: Mapping[str, Callable[[], Any]],
    runs: int,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, list[float]]:
    """Milliseconds of so many runs of each, in turns; each has been run before."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, query in contenders.items():
            begin = clock()
            query()
            times[name].append((clock() - begin) * 1e3)
    return times


@contextmanager
def gap_file(graph: gw.Graph) -> Iterator[Path]:
    """The graph as a file of GAP's while the block lasts: serialized, with its weights as int32."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / ("graph.wsg" if graph.is_weighted else "graph.sg")
        gw.write(graph.with_ids(0), file)
        yield file


def gap_times(program: Path, file: Path, runs: int, *options: object) -> list[float]:
    """Milliseconds of so many trials of one of GAP's programs, after a first one."""
    command = [program, "-f", file, "-n", runs + 1, *options]
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SystemExit(f"--gap: cannot run {program}: {error.strerror}") from None
    times = [1e3 * float(found) for found in _TRIAL.findall(done.stdout)]
    if done.returncode or len(times) != runs + 1:
        last_line = "".join(done.stdout.strip().splitlines()[-1:])
        said = done.stderr.strip() or last_line or f"{len(times)} trials instead of {runs + 1}"
        raise SystemExit(f"--gap: {' '.join(words)} ended with {done.returncode}: {said}")
    return times[1:]


def compared(times: Mapping[str, list[float]], **facts: Any) -> list[Row]:
    """A row per system: these facts, its times, and how they compare."""
    reference = statistics.median(times[REFERENCE])
    return [
        {
            **facts,
            "system": system,
            "median_ms": statistics.median(taken),
            "min_ms": min(taken),
            "ratio": statistics.median(taken) / reference,
        }
        for system, taken in times.items()
    ]


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def existing_folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return Path(text).resolve()  # programs in it are not looked for on the search path


def parser(
    description: str, *, runs: int, known: Callable[[Path], Mapping[str, Any]] = graphs
) -> argparse.ArgumentParser:
    """The options of all these benchmarks; add further ones to it."""
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    made.add_argument("--data", type=Path, default=beside, help="folder of the real graphs")
    made.add_argument("--runs", type=positive, default=runs)
    made.add_argument(
        "--only", action="append", choices=list(known(beside)), help="a graph's name, repeatable"
    )
    made.add_argument(
        "--file", type=Path, action="append", help="a graph's file instead of these, repeatable"
    )
    made.add_argument("--json", action="store_true")
    made.add_argument(
        "--gap",
        type=existing_folder,
        metavar="FOLDER",
        help="folder of GAP's programs, to run them too",
    )
    return made


def report(
    arguments: argparse.Namespace, bench: Bench, columns: Sequence[Column],
    known: Callable[[Path], Mapping[str, Callable[[], gw.Graph]]] = graphs,
    read: Callable[[Path], gw.Graph] = _from_file,
) -> None:  # fmt: skip
    """Measure on one graph after the other, and print tables or JSON.

    :param known: the graphs by their names
    :param read: makes a graph of a file
    """
    found: list[Row] = []
    wanted = {file.name: partial(read, file) for file in arguments.file or ()}
    for name, make in (wanted or known(arguments.data)).items():
        if not wanted and arguments.only and name not in arguments.only:
            continue
        try:
            graph = make()
        except gw.errors.FileError as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        rows = bench(name, graph, arguments)
        found += rows
        if not arguments.json:
            print(f"\n{name}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs")
            print("  " + "".join(column.head() for column in columns))
            for row in rows:
                print("  " + "".join(column.cell(row) for column in columns))
    if arguments.json:
        print(json.dumps(found, indent=1))
