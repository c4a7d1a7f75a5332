"""Weakly connected components: which vertices arcs lead between, whatever their direction.

A component is called by its smallest vertex. On the CPU :mod:`godwit.graph.union_find` finds them, on GPUs
the same methods in supersteps (:mod:`godwit.algorithms.components.cuda`); label propagation is a vertex
program on either.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from godwit.algorithms.components.queries import Merge, UnionQuery
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_count, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column, to_pandas, vertex_table
from godwit.graph.rows import require_memory
from godwit.graph.union_find import weak_components
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import check_components
from godwit.runtime.protocol import Device
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.place import place_positions
from godwit.worker.options import SolverOptions
from godwit.worker.program import VertexProgram
from godwit.worker.solve import make_poll, solve

Method = Literal["auto", "hook", "rem", "afforest", "label-propagation"]
METHODS: tuple[Method, ...] = ("auto", "hook", "rem", "afforest", "label-propagation")
STREAM_METHODS: tuple[Method, ...] = ("auto", "hook", "rem")
"""Those that take one arc after the other."""
MERGES: tuple[Merge, ...] = ("auto", "tree", "direct")

_SHORT_DEGREE = 4
"""Where vertices have fewer arcs, hardly any row could be left out: sampling gains nothing."""
_MOST_ROUNDS = 1 << 20
_MORE_ROUNDS = 2
"""On GPUs, where a graph's hubs have not joined most vertices by their first neighbours."""

_HOST = ResultLocation()


class ComponentsResult:
    """The component of every vertex.

    :ivar graph: the graph that was asked, or mapped; None where edges streamed by that are of none
    :ivar method: how they were found, ``"auto"`` being none
    :ivar statistics: what the run did and how long it took
    :ivar location: where :attr:`label` lives: a NumPy array on the host, or CuPy's on a GPU
    :param ids: what vertices are called where there is no graph; None: by their numbers
    """

    def __init__(
        self,
        graph: Graph | None,
        label: Any,
        statistics: RunStatistics,
        *,
        method: str,
        location: ResultLocation = _HOST,
        ids: VertexIds | None = None,
    ) -> None:
        self.graph = graph
        self._ids = ids
        self.method = method
        self.statistics = statistics
        self.location = location
        self._given = label

    @cached_property
    def label(self) -> Array:
        """The position of the first vertex of every vertex' component, shape (n), dtype of the targets."""
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def _label(self) -> Array:
        """On the host."""
        return host_array(self._given)

    @property
    def ids(self) -> VertexIds:
        """What the vertices are called; by their numbers where neither a graph nor a file says it."""
        if self.graph is not None:
            return self.graph.ids
        return VertexIds(len(self._label)) if self._ids is None else self._ids

    @cached_property
    def _size_of_label(self) -> Array:
        """(n) int64: vertices of the component that has the name, 0 where there is none."""
        return np.bincount(self._label, minlength=len(self._label))

    @property
    def count(self) -> int:
        """How many components there are; a vertex without arcs is one."""
        return len(self.names)

    @cached_property
    def names(self) -> Array:
        """The position of the first vertex of each component, ascending, shape (count)."""
        return frozen(np.flatnonzero(self._size_of_label))

    @cached_property
    def sizes(self) -> Array:
        """Vertices of each component, int64, in the order of :attr:`names`."""
        return frozen(self._size_of_label[self.names])

    def largest(self, count: int) -> list[Any]:
        """The names of the largest components by id, the largest first; of equal ones the first vertex.

        :raises InputError: ``count`` is no integer, or negative
        """
        count = min(as_count(count, "count"), self.count)
        order = np.argsort(-self.sizes, kind="stable")
        return self.ids.of(self.names[order[:count]])

    def size(self, name: Any) -> int:
        """Vertices of the component whose smallest vertex has this id; 0 if there is none.

        :raises InputError: no vertex
        """
        return int(self._size_of_label[self.ids.position(name, "name")])

    def to_dict(self) -> dict[Any, Any]:
        """The name of every vertex' component, both by :attr:`ids`.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 2], [1, 3], ids=["Ulm", "Bonn", "Jena", "Köln"])
        >>> gw.connected_components(graph).to_dict()
        {'Ulm': 'Ulm', 'Bonn': 'Ulm', 'Jena': 'Jena', 'Köln': 'Jena'}
        """
        ids = self.ids
        vertices = np.arange(len(self._label))
        return dict(zip(ids.of(vertices), ids.of(self._label), strict=True))

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row per vertex: columns ``vertex`` and ``component``, both ids."""
        return vertex_table(component_columns(self), self.ids)

    def to_pandas(self) -> Any:
        """The table of :meth:`to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed
        """
        return to_pandas(self.to_arrow(), nullable=False)

    def __repr__(self) -> str:
        largest = int(self.sizes.max(initial=0))
        return (
            f"ComponentsResult({len(self._label)} vertices, {self.count} component(s), "
            f"the largest of {largest}, {self.method})"
        )


def component_columns(result: ComponentsResult) -> list[Column]:
    """What a table of the vertices says of components."""
    return [Column("component", result._label, ids=True)]


def as_method(value: Any, graph: Graph) -> Method:
    """The method, chosen where none is asked for; InputError if it is none of the names."""
    for known in METHODS:
        if isinstance(value, str) and value == known:
            if known != "auto":
                return known
            is_short = graph.arc_count < _SHORT_DEGREE * max(1, graph.vertex_count)
            return "rem" if is_short else "afforest"
    raise InputError(f"method must be {_listed(METHODS)}, got {shown(value)}")


def as_merge(value: Any) -> Merge:
    """How devices come together; InputError if it is none of the names."""
    for known in MERGES:
        if isinstance(value, str) and value == known:
            return known
    raise InputError(f"merge must be {_listed(MERGES)}, got {shown(value)}")


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join([", ".join(map(repr, names[:-1])), repr(names[-1])])


def run_components(
    graph: Graph,
    device: Device,
    placed: PlacedGraph | None = None,
    *,
    method: Method,
    rounds: int | None,
    jumps: int | None,
    merge: Merge,
    options: SolverOptions,
) -> ComponentsResult:
    """The component of every vertex; see :func:`godwit.connected_components`.

    :param device: of the CPU
    :param placed: the graph on GPUs, which take the device's place
    :param method: any but label propagation
    """
    if rounds is not None:
        rounds = as_count(rounds, "rounds", 1 if method == "afforest" else 0, _MOST_ROUNDS)
    if jumps is not None:
        jumps = as_count(jumps, "jumps", 0, _MOST_ROUNDS)
    n, dtype = graph.vertex_count, graph.targets.dtype
    devices = (device,) if placed is None else placed.context.devices
    check_components(devices, options.gpu)
    statistics = RunStatistics(tuple(one.name for one in devices), method)
    if n == 0:
        return ComponentsResult(
            graph, np.empty(0, dtype), statistics, method=method, location=options.location
        )
    poll = make_poll(options)
    if placed is not None:
        require_memory(n * dtype.itemsize, f"the components of {n:,} vertices")
        label = options.location.empty(n, dtype)
        is_sampled = method == "afforest"
        given = rounds if rounds is not None else 1 if is_sampled else 0
        query = UnionQuery(
            is_sampled,
            method == "rem",
            given - is_sampled,
            _MORE_ROUNDS if is_sampled and rounds is None else 0,
            jumps,
            merge,
            label,
            options.gpu,
        )
        steps = place_positions(placed)
        with statistics.phase("run"):
            from godwit.algorithms.components.cuda import label_on_gpus

            found = label_on_gpus(steps, query, poll)
        statistics.split_run(found.seconds)
        statistics.rounds = found.supersteps
        statistics.processed_items, statistics.arcs_relaxed = found.rows, found.arcs
    else:
        with statistics.phase("run"):
            label = weak_components(
                graph.rows,
                graph.directed,
                method,  # type: ignore[arg-type]
                rounds=rounds,
                jumps=jumps,
                threads=device.threads,
                poll=poll,
            )
    return ComponentsResult(graph, label, statistics, method=method, location=options.location)


def _propagation(dtype: np.dtype[Any]) -> VertexProgram:
    """Every vertex takes the smallest label that it hears of."""
    return VertexProgram(
        name="label propagation",
        dtype=dtype,
        initial=lambda vertices: vertices,
        message=lambda value: value,
        combine="min",
    )


def propagate_labels(placed: PlacedGraph, options: SolverOptions) -> ComponentsResult:
    """The component of every vertex of a graph whose arcs all lead back, by a vertex program."""
    graph = placed.graph
    solution = solve(_propagation(graph.targets.dtype), placed, "all", options)
    return ComponentsResult(
        graph,
        solution.values,
        solution.statistics,
        method="label-propagation",
        location=options.location,
    )
