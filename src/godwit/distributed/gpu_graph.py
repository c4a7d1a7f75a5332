"""A graph whose vertices are divided among the GPUs of several processes, one GPU a process.

Each process has the whole graph in the memory of its host, and the rows of its share of the vertices on its
GPU: those that one process with as many GPUs would have there (:mod:`godwit.supersteps`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.dataflow.context import Context
from godwit.distributed.processes import Processes, Transport, is_agreed
from godwit.dtypes import Array
from godwit.errors import ClosedContextError, InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.generators.spec import generate, is_spec
from godwit.graph.ids import VertexIds
from godwit.placement import PlacedGraph
from godwit.public import OnProcesses
from godwit.trace import seconds_since

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


class GpuGraph(OnProcesses):
    """A graph on the GPUs of the processes of one MPI run. Made by :meth:`Processes.place`.

    :func:`bfs`, :func:`sssp`, :func:`connected_components`, :func:`pagerank`,
    :func:`betweenness_centrality`, :func:`run` and :meth:`StepProgram.run` take one in place of a graph.
    All processes call them alike, and each gets the values of a range of vertices. A context manager; all
    processes leave it together.

    :ivar processes: the processes
    :ivar graph: the whole graph
    :ivar vertices: positions in the whole graph of the vertices whose values this process gets
    :ivar ids: their ids
    :ivar device: the GPU of this process
    :ivar transport: ``"direct"`` if kernels reach the memory of all GPUs; ``"nvshmem"`` if NVSHMEM copies
        after each superstep, ``"host"`` if the hosts do, by messages
    :ivar why_by_host: why it is not ``"direct"``, in words
    :ivar seconds: time by phase: ``read`` or ``generate``, and ``place``
    """

    on_gpus = True

    def __init__(
        self, processes: Processes, graph: Graph, devices: str, transport: Transport | None = None
    ) -> None:
        from godwit.distributed.gpu_processes import GpuProcesses, own_gpu
        from godwit.supersteps.placement import StepPlacement

        self.processes = processes
        self.graph = graph
        self.seconds: dict[str, float] = {}
        device = own_gpu(processes, devices)
        self.device = device.name
        self._gpus = GpuProcesses(processes, device, transport)
        self._whole: PlacedGraph | None = None
        ids = graph.id_dtype if graph.id_dtype.itemsize == 8 else None
        try:
            self._steps: StepPlacement | None = StepPlacement(
                [device], graph, id_dtype=ids, processes=self._gpus
            )
        except BaseException:
            self._gpus.close()  # what is mapped would keep memory of the others' GPUs
            raise
        self.vertices = self._steps.results
        self.ids = graph.ids.take(np.arange(self.vertices.start, self.vertices.stop))

    @property
    def steps(self) -> StepPlacement:
        """The rows of this process' share, on its GPU."""
        if self._steps is None:
            raise ClosedContextError("this graph is closed; place the graph again")
        return self._steps

    def whole(self) -> PlacedGraph:
        """Return the whole graph on the GPU of this process alone, made once; it is closed with this."""
        _ = self.steps
        if self._whole is None:
            self._whole = PlacedGraph(self.graph, Context(self.device), None, 0, None)
        return self._whole

    def drop_whole(self) -> None:
        """Free the memory that :meth:`whole` takes on the GPU."""
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.close()

    @contextmanager
    def running(self, name: str, *arguments: Any) -> Iterator[None]:
        """Run a query as :meth:`Processes.running` does."""
        graph = self.vertex_count, self.arc_count, self.directed
        try:
            with self.processes.running(name, *graph, *arguments):
                yield
        except BaseException:  # a kernel of another process may have ended anywhere
            if self._steps is not None:
                from godwit.supersteps.run import RunArrays

                self._steps.kept(RunArrays).are_valid = False
            raise

    @property
    def transport(self) -> str:
        """How devices reach each other."""
        return "direct" if self._gpus.reach_each_other else self._gpus.copies.name

    @property
    def why_by_host(self) -> str:
        """Why kernels do not reach all memory; empty if they do."""
        return self._gpus.why_by_host

    @property
    def vertex_count(self) -> int:
        """Number of vertices of all processes, n."""
        return self.graph.vertex_count

    @property
    def arc_count(self) -> int:
        """Number of stored arcs of all processes."""
        return self.graph.arc_count

    @property
    def directed(self) -> bool:
        """False where every arc is stored in both directions."""
        return self.graph.directed

    @property
    def is_weighted(self) -> bool:
        """True if arcs have weights."""
        return self.graph.is_weighted

    @property
    def bounds(self) -> Array:
        """The first vertex of each process, and the end of the last: int64 (processes + 1)."""
        count = self.processes.count
        return self.vertex_count * np.arange(count + 1, dtype=np.int64) // count

    def names_of(self, positions: Array) -> VertexIds | int:
        """Return the ids of all vertices, or the first one if they are consecutive."""
        ids = self.graph.ids
        if ids.is_range:
            return int(ids[0]) if len(ids) else 0
        return ids

    def ids_of(self, positions: Array) -> Array:
        """Return the ids of vertices of the whole graph, as in files."""
        return array_of_ids(self.graph.ids.in_file, positions)

    def positions(self, several: Sequence[Any], what: str) -> Array:
        """Return the positions of vertices in the whole graph.

        :param several: ids
        :param what: the name of the argument in messages
        :raises InputError: no vertex has one of the ids
        """
        return np.array(self.graph.ids.positions(several, what), np.int64)

    def highest_degree_vertex(self) -> Any:
        """Return the id of the vertex with most out-arcs, of several the first."""
        return self.graph.highest_degree_vertex()

    def close(self) -> None:
        """Free the memory of the GPU; all processes call it. Closing twice does no harm."""
        if self._steps is None:
            return
        with self.processes.running("close"):
            self.processes.meet()  # no kernel of another process uses the memory
            self._gpus.close()
            self.processes.meet()  # none has it mapped
        self._free()

    def _free(self) -> None:
        self.drop_whole()
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def __enter__(self) -> GpuGraph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or is_agreed(error):
            self.close()
        # Else the others do not come here: the process is about to end, and all with it.

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return (
            f"<GpuGraph: {self.vertex_count:,} vertices, {self.arc_count:,} arcs, {kind}; process "
            f"{self.processes.rank} of {self.processes.count} has {self.device}>"
        )


def array_of_ids(ids: VertexIds, positions: Array) -> Array:
    """Return the ids of vertices: int64, or objects."""
    is_integer = ids.kind in ("consecutive", "integer")
    return np.array(ids.of(positions), np.int64 if is_integer else object)


def place_on_gpus(
    processes: Processes,
    source: Graph | str | os.PathLike[str],
    devices: str,
    directed: bool | None,
    weighted: bool | None,
    transport: Transport | None,
) -> GpuGraph:
    """Place a graph within a block of :meth:`Processes.running`; see :meth:`Processes.place`."""
    begin = perf_counter()
    phase = ""
    if isinstance(source, Graph):
        graph = source
    elif not isinstance(source, str | os.PathLike):
        raise not_a_graph(source)
    elif isinstance(source, str) and is_spec(source):
        graph, phase = generate(source), "generate"
    else:
        from godwit.io.graph_files import read

        graph, phase = read(source, directed=directed, weighted=weighted), "read"
    if phase != "read" and (directed is not None or weighted is not None):
        raise InputError("directed and weighted are for files; the graph has its own")
    seconds: dict[str, float] = {}
    if phase:
        seconds[phase] = seconds_since(begin, phase)
    begin = perf_counter()
    placed = GpuGraph(processes, graph, devices, transport)
    placed.seconds = seconds | {"place": seconds_since(begin, "place")}
    return placed
