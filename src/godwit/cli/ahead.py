"""Compilation beside reading, for the first search of a large graph by weights that a user runs.

Where the cache folder holds no code for CPUs yet, a second process searches a tiny graph while the command
imports libraries and reads or generates its own. What it compiles is in the cache when the command needs
it. (A thread would wait for the locks of Python and Numba.) If that process fails, the command compiles
itself.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from godwit import cache, config
from godwit.graph.generators.spec import is_spec, parse_spec

if TYPE_CHECKING:
    from subprocess import Popen

    from godwit.graph.csr import Graph

_PROGRAM = """
import gc, sys, numpy, godwit
gc.disable()
weights = numpy.ones(1, sys.argv[1])
graph = godwit.Graph.from_edges([0], [1], weights, directed=False)
godwit.sssp(graph, 0, devices="cpu", execution="asynchronous")
"""
_LONGEST_S = 60.0
_SMALL_BYTES = 100_000
"""Size of files below which graphs are small, compressed ones too."""
_NEEDED_NEXT = ("godwit.worker.cpu.engine", "rich.console")
"""Modules that the command imports after the search was compiled, or before, while it waits."""


class SearchAhead:
    """Process that compiles :func:`godwit.sssp` for all cores; a context manager, which ends it.

    :param weights: dtype of the weights; None: nothing is compiled
    """

    def __init__(self, weights: str | None) -> None:
        self._weights = weights
        self._process: Popen[bytes] | None = None
        if weights is None or config.thread_count() == 1 or not _nothing_is_compiled():
            return
        from subprocess import DEVNULL, Popen

        # -P: what lies in the current folder is not imported. A new session gets no Ctrl-C.
        with suppress(OSError):
            self._process = Popen(
                [sys.executable, "-P", "-c", _PROGRAM, weights],
                stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> SearchAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, graph: Graph, *, predecessors: bool) -> float:
        """Wait until the code for this graph is in the cache; return the seconds, 0 if it never will be.

        :param predecessors: compile what computes predecessors meanwhile
        """
        if self._process is None or graph.weights is None or graph.weights.dtype != self._weights:
            return 0.0
        from subprocess import TimeoutExpired

        from godwit.algorithms.sssp import is_small
        from godwit.trace import seconds_since

        if is_small(graph):  # other code searches it
            return 0.0
        begin = perf_counter()
        if predecessors:
            _compile_predecessors(graph)
        for module in _NEEDED_NEXT:
            import_module(module)
        with suppress(TimeoutExpired):
            self._process.wait(_LONGEST_S)
        return seconds_since(begin, "compile")


def _compile_predecessors(graph: Graph) -> None:
    """Compile what computes predecessors, by computing those of a search that reached nothing."""
    import numpy as np

    from godwit.algorithms.paths.predecessors import predecessors, unreached_of

    assert graph.weights is not None
    dtype = np.dtype(np.float64 if graph.weights.dtype.kind == "f" else np.int64)
    nowhere = np.full(graph.vertex_count, unreached_of(dtype))
    predecessors(graph, nowhere, np.zeros(0, np.int64), unit_lengths=False)


def search_ahead(command: str, graph: str, devices: Any) -> SearchAhead:
    """Return a process that compiles what a command needs, as far as its arguments say.

    :param graph: GRAPH as on the command line
    :param devices: argument of the Python function
    """
    from godwit.runtime.registry import resolve_devices

    chosen = resolve_devices(devices)
    weights = _likely_weights(graph) if command == "sssp" and chosen[0].shares_memory else None
    return SearchAhead(weights)


def _likely_weights(graph: str) -> str | None:
    """Return the dtype of the weights of most graphs that are given like this.

    None if there are none, or the graph is a small file, for which vertex programs are not needed.
    """
    if not is_spec(graph):
        with suppress(OSError):
            if Path(graph).stat().st_size < _SMALL_BYTES:
                return None
        return "int32"
    bounds = parse_spec(graph).keywords.get("weights")
    if bounds is None:
        return None
    return "float64" if any(isinstance(bound, float) for bound in bounds) else "int32"


def _nothing_is_compiled() -> bool:
    """Return True if the cache folder may be used, and holds no code for CPUs."""
    folder = cache.usable_folder("cpu")
    return folder is not None and not folder.exists()
