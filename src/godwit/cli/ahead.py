"""Compilation beside reading, for the first search of a large graph by weights that a user runs.

Where the cache folder holds no code for CPUs yet, a second process runs the vertex program on a tiny graph
while the command imports libraries and reads or generates its own. What it compiles is in the cache when
the command needs it. (A thread would wait for the locks of Python and Numba.) If that process fails, the
command compiles itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from godwit import cache, config
from godwit.config import launched_processes
from godwit.errors import GodwitError
from godwit.graph.generators.spec import is_spec, parse_spec

if TYPE_CHECKING:
    from subprocess import Popen

    from godwit.graph.csr import Graph

_PROGRAM = """
import os, threading
def end_with_command():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=end_with_command, daemon=True).start()
import gc, sys, numpy, godwit
gc.disable()
weights = numpy.ones(1, sys.argv[1])
graph = godwit.Graph.from_edges([0], [1], weights, directed=False)
godwit.sssp(graph, 0, devices="cpu", execution="asynchronous")
"""
_LONGEST_S = 60.0
_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg")
"""Files of drivers of NVIDIA GPUs: on Linux, and on Linux within Windows."""
_SMALL_BYTES = 100_000
"""Size of files below which graphs are small, compressed ones too."""
_NEEDED_NEXT = ("godwit.worker.cpu.engine", "rich.console")
"""Modules that the command imports after the search was compiled, or before, while it waits."""


class SearchAhead:
    """Process that compiles the vertex program of :func:`godwit.sssp`; a context manager, which ends it.

    :param weights: dtype of the weights; None: nothing is compiled
    """

    def __init__(self, weights: str | None) -> None:
        self._weights = weights
        self._process: Popen[bytes] | None = None
        alone = launched_processes() == 1 and config.thread_count() > 1
        if weights is None or not alone or not _nothing_is_compiled():
            return
        from subprocess import DEVNULL, PIPE, Popen

        # -P: what lies in the current folder is not imported. A new session gets no Ctrl-C.
        with suppress(OSError):
            self._process = Popen(
                [sys.executable, "-P", "-c", _PROGRAM, weights],
                stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> SearchAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()

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


@contextmanager
def search_ahead(arguments: Sequence[str]) -> Iterator[None]:
    """Compile what a command needs during the block, as far as its words say; :func:`wait` waits for it.

    :param arguments: words of the command line, not yet parsed: the libraries that parse them take long to
        import. Where they are read wrongly, a process runs in vain
    """
    global _ahead  # noqa: PLW0603
    with ExitStack() as stack:
        with suppress(GodwitError):  # which the command reports
            _ahead = stack.enter_context(SearchAhead(_likely_weights(arguments)))
        yield
    _ahead = None


_ahead: SearchAhead | None = None


def wait(graph: Graph, *, predecessors: bool) -> float:
    """Wait for the process of :func:`search_ahead`, if there is one; see :meth:`SearchAhead.wait`."""
    return 0.0 if _ahead is None else _ahead.wait(graph, predecessors=predecessors)


def _likely_weights(arguments: Sequence[str]) -> str | None:
    """Return the dtype of the weights of a large graph that is likely to be searched on all cores, or None.

    Small files are None, for which vertex programs are not needed.
    """
    if arguments[:1] != ["sssp"] or {"-h", "--help"} & set(arguments):
        return None
    if "cpu" not in arguments and any(Path(path).exists() for path in _GPU_FILES):
        return None
    for word in arguments[1:]:
        if is_spec(word):
            return _weights_of_spec(word)
        with suppress(OSError):
            if Path(word).stat().st_size >= _SMALL_BYTES:
                return "int32"
    return None


def _weights_of_spec(spec: str) -> str | None:
    bounds = parse_spec(spec).keywords.get("weights")
    if bounds is None:
        return None
    return "float64" if any(isinstance(bound, float) for bound in bounds) else "int32"


def _nothing_is_compiled() -> bool:
    """Return True if the cache folder may be used, and holds no code for CPUs."""
    folder = config.cache_folder()
    return folder is not None and not cache.refusal(folder) and not (folder / "cpu").exists()
