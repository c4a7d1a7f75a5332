"""Weakly connected components of graphs, and of edges that stream.

A component is named by its smallest vertex. On the CPU :mod:`godwit.graph.union_find` joins trees of
vertices, on GPUs cuda.py does so with the same methods in supersteps; label propagation is a vertex program
on either. Edges without a graph stream to the devices in packets (streamed.py). So do the arcs of a graph
that does not fit on its GPUs, or whose GPUs cannot change each other's memory by atomics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from godwit.algorithms.components.result import ComponentsResult
from godwit.dtypes import as_count
from godwit.errors import DeviceError, GraphTooLargeError, InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs_at_hand, is_symmetric
from godwit.graph.foreign import not_a_graph
from godwit.graph.rows import require_memory
from godwit.graph.union_find import weak_components
from godwit.placement import PlacedGraph, default_step_devices
from godwit.progress import ProgressArgument
from godwit.public import or_distributed, public
from godwit.runtime.gpu_options import GpuOptions, check_components
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, are_peers, resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.trace import TraceArgument, recorded, seconds_since
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.program import VertexProgram
from godwit.worker.query import (
    GraphArgument,
    Note,
    add_placement,
    devices_for_one_query,
    note_of,
    on_gpus_or_cores,
    placed_for_query,
    repeated_query,
)
from godwit.worker.solve import make_poll, solve

if TYPE_CHECKING:
    from godwit.algorithms.components.cuda import UnionQuery

EdgesArgument = Graph | str | os.PathLike[str] | Iterable[Any]
"""Edges: a file, an array of shape (m, 2), an iterator of such arrays, or the arcs of a graph."""

Method = Literal["auto", "hook", "rem", "afforest", "label-propagation"]
METHODS: tuple[Method, ...] = ("auto", "hook", "rem", "afforest", "label-propagation")
Merge = Literal["auto", "tree", "direct"]
MERGES: tuple[Merge, ...] = ("auto", "tree", "direct")

_STREAM_METHODS = ("auto", "hook", "rem")
SHORT_DEGREE = 4
"""Mean degree below which Afforest gains nothing, since hardly any row can be left out."""
_CORE_NS = 1.0
"""Nanoseconds that all cores take for each arc, however many they are (benchmarks/zoo.py)."""
_MAX_ROUNDS = 1 << 20
_MORE_ROUNDS = 2
"""Further neighbours that Afforest links on GPUs where first neighbours have not joined most vertices."""


@or_distributed(
    "godwit.algorithms.components.distributed", "godwit.algorithms.components.distributed_gpus"
)
def connected_components(
    graph: GraphArgument,
    *,
    method: str = "auto",
    rounds: int | None = None,
    jumps: int | None = None,
    merge: str = "auto",
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> ComponentsResult:
    """Find the connected component of every vertex; weakly connected where the graph is directed.

    >>> import godwit as gw
    >>> gw.connected_components(gw.Graph.from_edges([0, 4], [3, 1])).label.tolist()
    [0, 1, 2, 0, 1]

    A component is named by its smallest vertex, by every method, on all devices.

    The arcs of a graph that does not fit on its GPUs, or is on GPUs that cannot change each other's memory
    by atomics, stream to them as in :func:`connected_components_of_edges`, unless an argument needs the
    graph there (``"afforest"``, label propagation, ``merge="direct"``, ``gpu``). ``.statistics.solver``
    begins with ``"streamed"`` then.

    :param graph: a graph, or one placed on devices by :func:`place`
    :param method: ``"afforest"`` (one or two neighbours of every vertex are linked; rows of the largest
        component are then left out), ``"rem"`` (all arcs are linked by Rem's algorithm, which splices
        paths), ``"hook"`` (all arcs hook roots below each other), ``"label-propagation"`` (a vertex
        program: labels go along arcs; on any devices, virtual ones of the CPU too); ``"auto"``: Rem where
        the mean degree is small, else Afforest; of several GPUs, this runs on the first if the whole graph
        fits there and ``merge`` is ``"auto"``, which is faster: ``.statistics.devices`` names it
    :param rounds: of Afforest, neighbours of every vertex that are linked first, at least 1; of Rem and
        hook, rounds of hooking without atomics before the atomic one (Hellås, 2018); with ``"auto"`` at
        least 1. None: what is usually best
    :param jumps: steps that each vertex moves up its tree after every such round: 0 for no compression,
        None for up to the root
    :param merge: how several GPUs reach one result: ``"direct"``, every GPU links in the memory of the
        others; ``"tree"``, each joins what its own arcs join, and the forests are merged in pairs;
        ``"auto"``: what is usually best
    :param devices: as for :func:`pagerank`; with label propagation as for :func:`bfs`
    :param results: where ``.label`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of rows processed so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.label`` (n), ``.count``, ``.sizes`` and ``.names`` (count), ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, or several devices of the CPU with another method than label
        propagation
    :raises DeviceError: a device is not there; GPUs do not reach each other, and arcs cannot stream
    :raises GraphTooLargeError: the labels do not fit, or a graph that cannot stream
    :raises RunTimeoutError: out of time
    """
    asked = method, rounds, jumps, merge, devices, results, timeout_s, progress, trace, gpu
    repeated: ComponentsResult | None = repeated_query(graph, "components", asked)
    if repeated is not None:
        return repeated
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise InputError(f"{not_a_graph(plain)}; connected_components_of_edges takes edges")
    query = ComponentsQuery.checked(
        plain, method, rounds, jumps, merge, has_gpu_options=gpu is not None
    )
    if not query.keeps_graph and merge == "auto":
        devices = devices_for_one_query(graph, devices, options, _CORE_NS, scales=False)
    with recorded(trace, "connected_components"):
        placed = graph if isinstance(graph, PlacedGraph) else None
        note = None if placed is None else note_of(placed, "components", asked)
        return _find(graph, query, devices, options, note)


@public
def connected_components_of_edges(
    edges: EdgesArgument,
    *,
    vertex_count: int | None = None,
    edge_dtype: Any = None,
    columns: tuple[str, ...] | list[str] | None = None,
    method: str = "auto",
    rounds: int | None = None,
    jumps: int | None = None,
    memory_bytes: int | None = None,
    host_bytes: int | None = None,
    packet_bytes: int | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
) -> ComponentsResult:
    """Find the connected components of edges that stream in packets to the devices.

    >>> import godwit as gw
    >>> edges = ([[vertex, vertex + 2]] for vertex in range(4))
    >>> gw.connected_components_of_edges(edges, vertex_count=6).sizes.tolist()
    [3, 3]

    The edges may be larger than all memory; every device needs room for a number per vertex. A component is
    named by its smallest vertex, as by :func:`connected_components`.

    :param edges: the path of a ``.npy`` file of shape (m, 2) or of a file of bare pairs; an array of that
        shape (NumPy's, mapped, CuPy's); an iterator of such arrays; or a graph, whose arcs stream.
        The path may also be that of a file of a format that lists arcs (edge lists such as SNAP's, Matrix
        Market, DIMACS, CSV, Parquet, …), compressed or not, whose ids are integers: it is read twice,
        16 MiB of text at a time, and vertices and ``.ids`` are those of :func:`read`. A ``.godwit`` file
        is mapped, and its arcs stream
    :param vertex_count: ids are below it. None: one more than the largest id, which takes another pass and
        is not possible for an iterator. Formats that list arcs, and graphs, have their own
    :param edge_dtype: of the ids in a file of bare pairs
    :param columns: of a table in a file (CSV, Parquet), as of :func:`read`
    :param method: ``"rem"`` (``"auto"``) or ``"hook"``, as of :func:`connected_components`
    :param rounds: rounds of hooking without atomics over each packet; None: 0
    :param jumps: as of :func:`connected_components`
    :param memory_bytes: limit of labels and packets on each device
    :param host_bytes: limit of buffers on the host
    :param packet_bytes: size of a packet
    :param devices: as for :func:`bfs`; GPUs and the CPU together, too
    :param results: where ``.label`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; compiling is not counted
    :param progress: as for :func:`bfs`: the number of edges processed so far, with ``.total`` (None while
        unknown)
    :param trace: as for :func:`bfs`
    :returns: as of :func:`connected_components`; ``.graph`` is None for edges without a graph
    :raises InputError: a wrong argument; an edge whose ends are not vertices, with its row
    :raises FileError: the file cannot be read
    :raises FormatError: the file is malformed; names the line
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: a number per vertex does not fit
    :raises RunTimeoutError: out of time
    """
    from godwit.algorithms.components.streamed import StreamOptions, stream_components
    from godwit.io.edge_sources import as_edges

    options = query_options(timeout_s=timeout_s, progress=progress, results=results)
    if isinstance(edges, PlacedGraph):
        raise InputError(
            "a placed graph is on its devices, and its arcs do not stream: give placed.graph"
        )
    if not isinstance(method, str) or method not in _STREAM_METHODS:
        raise InputError(
            f"method must be {_listed(_STREAM_METHODS)} for edges that stream, got {shown(method)}"
        )
    stream = StreamOptions.checked(
        method=method,
        rounds=_checked_rounds(rounds, "rounds", 0),
        jumps=_checked_rounds(jumps, "jumps", 0),
        vertex_count=vertex_count,
        memory_bytes=memory_bytes,
        host_bytes=host_bytes,
        packet_bytes=packet_bytes,
    )
    with (
        recorded(trace, "connected_components_of_edges"),
        closing(as_edges(edges, edge_dtype, columns)) as source,
    ):
        return stream_components(source, devices, stream, options)


@dataclass(frozen=True)
class ComponentsQuery:
    """Checked arguments of :func:`connected_components`.

    :ivar method: the method, chosen for the graph where ``"auto"`` is given
    :ivar is_automatic: the method and how GPUs merge were left to this module
    :ivar stream_method: the method if arcs stream
    :ivar keeps_graph: given arguments without which arcs could stream
    """

    method: Method
    is_automatic: bool
    stream_method: str
    rounds: int | None
    jumps: int | None
    merge: Merge
    keeps_graph: Sequence[str]

    @classmethod
    def checked(
        cls, graph: Graph, method: Any, rounds: Any, jumps: Any, merge: Any, *, has_gpu_options: bool
    ) -> ComponentsQuery:  # fmt: skip
        """Return the query of checked arguments.

        :raises InputError: one of them is wrong
        """
        if not isinstance(merge, str) or merge not in MERGES:
            raise InputError(f"merge must be {_listed(MERGES)}, got {shown(merge)}")
        if not isinstance(method, str) or method not in METHODS:
            raise InputError(f"method must be {_listed(METHODS)}, got {shown(method)}")
        # With "auto", rounds must suit whatever method suits the graph.
        rounds = _checked_rounds(rounds, "rounds", 1 if method in ("auto", "afforest") else 0)
        jumps = _checked_rounds(jumps, "jumps", 0)
        if method == "label-propagation" and (rounds, jumps, merge) != (None, None, "auto"):
            raise InputError(
                "rounds, jumps and merge are of methods 'hook', 'rem' and 'afforest'; "
                "method 'label-propagation' has none"
            )
        keeps = ["merge='direct'"] if merge == "direct" else []
        keeps += ["gpu"] if has_gpu_options else []
        keeps += [] if method in _STREAM_METHODS else [f"method={method!r}"]
        is_short = graph.arc_count < SHORT_DEGREE * max(1, graph.vertex_count)
        automatic: Method = "rem" if is_short else "afforest"
        chosen: Method = automatic if method == "auto" else method
        is_automatic = method == "auto" and merge == "auto"
        return cls(chosen, is_automatic, method, rounds, jumps, merge, keeps)

    @property
    def suits_one_gpu(self) -> bool:
        """True if of several GPUs one alone is faster, by default: hardly any arc is read."""
        return self.is_automatic and self.method == "afforest"

    def on_gpus(
        self, dtype: np.dtype[Any], options: SolverOptions, *, reverses: bool
    ) -> UnionQuery:
        """Return the query in the terms of GPUs.

        :param dtype: of the labels
        :param reverses: in-rows of directed graphs may be made
        """
        from godwit.algorithms.components.cuda import UnionQuery

        is_sampled = self.method == "afforest"
        rounds = int(is_sampled) if self.rounds is None else self.rounds
        return UnionQuery(
            is_sampled=is_sampled,
            splices=self.method == "rem",
            rounds=rounds - is_sampled,
            more_rounds=_MORE_ROUNDS if is_sampled and self.rounds is None else 0,
            jumps=self.jumps,
            merge=self.merge,
            location=options.location,
            dtype=dtype,
            gpu=options.gpu,
            reverses=reverses,
        )

    @property
    def to_leave_out(self) -> str:
        """Arguments to leave out so that arcs can stream, as part of a message."""
        return f" without {' and '.join(self.keeps_graph)}" if self.keeps_graph else ""


def _checked_rounds(value: Any, name: str, least: int) -> int | None:
    return None if value is None else as_count(value, name, least, _MAX_ROUNDS)


def _listed(names: Sequence[str]) -> str:
    return " or ".join([", ".join(map(repr, names[:-1])), repr(names[-1])])


def _find(
    graph: GraphArgument, query: ComponentsQuery, devices: DevicesArgument,
    options: SolverOptions, note: Note | None,
) -> ComponentsResult:  # fmt: skip
    """Find components on devices that hold the graph, or, where these cannot, by streaming its arcs.

    :param note: as of :func:`godwit.worker.query.note_of`
    """
    begin = perf_counter()
    gpus = _gpus_for(graph, devices)
    names = [gpu.name for gpu in gpus]
    if gpus and query.method != "label-propagation":
        if isinstance(graph, PlacedGraph):
            graph.check_all_duplicated("connected components by trees run")
        if not are_peers(gpus, atomics=True):
            if query.keeps_graph:
                raise DeviceError(
                    f"not all of {', '.join(names)} change each other's memory by atomics, and so the arcs "
                    f"stream to all of them, which goes{query.to_leave_out}: leave that out, or use one of "
                    "them"
                )
            plain = graph.graph if isinstance(graph, PlacedGraph) else graph
            return _stream_arcs(plain, query, names, options)
        if isinstance(graph, Graph):
            devices = names
    try:
        return _find_resident(graph, query, devices, options, note)
    except GraphTooLargeError as error:
        if not gpus:
            raise
        if query.keeps_graph or isinstance(graph, PlacedGraph):
            arcs = "the arcs of placed.graph" if isinstance(graph, PlacedGraph) else "its arcs"
            raise GraphTooLargeError(f"{error}; {arcs} would stream{query.to_leave_out}") from error
        refused = str(error)
    # Outside of the handler, whose exception would hold the memory of the attempt.
    lost_s = seconds_since(begin, "place")
    try:
        result = _stream_arcs(graph, query, names, options)
    except GraphTooLargeError as error:
        raise GraphTooLargeError(f"{refused}; nor do its arcs stream: {error}") from error
    result.statistics.seconds["place"] += lost_s
    return result


def _gpus_for(graph: GraphArgument, devices: DevicesArgument) -> Sequence[Device]:
    """Return the GPUs that are to find components; none if it is the CPU."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        resolved = graph.context.devices
    else:
        names = default_step_devices(graph, atomics=True) if devices is None else devices
        resolved = resolve_devices(names)
    return resolved if resolved[0].kind == "cuda" else ()


def _stream_arcs(
    graph: Graph, query: ComponentsQuery, devices: DevicesArgument, options: SolverOptions
) -> ComponentsResult:
    from godwit.algorithms.components.streamed import StreamOptions, stream_components
    from godwit.io.edge_sources import EdgeRows

    stream = StreamOptions.checked(
        method=query.stream_method, rounds=query.rounds, jumps=query.jumps
    )
    return stream_components(EdgeRows(graph), devices, stream, options)


def _find_resident(
    graph: GraphArgument, query: ComponentsQuery, devices: DevicesArgument,
    options: SolverOptions, note: Note | None,
) -> ComponentsResult:  # fmt: skip
    """Find components of a graph on its GPUs, or in the memory of the CPU."""
    if query.method == "label-propagation":
        return _propagate_labels(graph, devices, options)
    with on_gpus_or_cores(graph, devices, "connected_components") as (plain, device, placed):
        used = (device,) if placed is None else placed.context.devices
        check_components(used, options.gpu)
        statistics = RunStatistics(tuple(device.name for device in used), query.method)
        if plain.vertex_count == 0:
            label: Any = np.empty(0, plain.id_dtype)
        elif placed is not None:
            answer = _gpus_answer(placed, query, options)
            result = answer(placed)
            if note is not None:
                note(answer)
            add_placement(result.statistics, placed, graph)
            return result
        else:
            poll = make_poll(options)
            with statistics.phase("run"):
                if isinstance(graph, PlacedGraph):
                    is_symmetric(plain)  # finding it takes as long as one query
                arcs_in = in_arcs_at_hand(plain)
                label = weak_components(
                    plain.rows, arcs_in is not plain, query.method,  # type: ignore[arg-type]
                    in_rows=None if arcs_in is None else arcs_in.rows,
                    rounds=query.rounds, jumps=query.jumps, threads=device.threads, poll=poll,
                )  # fmt: skip
        return ComponentsResult(
            plain, label, statistics, method=query.method, location=options.location
        )


def _gpus_answer(
    placed: PlacedGraph, query: ComponentsQuery, options: SolverOptions
) -> Callable[[PlacedGraph], ComponentsResult]:
    """Return a function that finds the components of a graph that is placed as here."""
    from godwit.algorithms.components.cuda import label_on_gpus

    n, dtype = placed.graph.vertex_count, placed.graph.id_dtype
    union_query = query.on_gpus(dtype, options, reverses=placed.is_kept)

    def answer(placed: PlacedGraph) -> ComponentsResult:
        if options.location.gpu is None:
            require_memory(n * dtype.itemsize, f"the components of {n:,} vertices")
        poll, steps = make_poll(options), place_positions(placed)
        statistics = RunStatistics(placed.context.device_names, query.method)
        # Of several GPUs one alone is faster: hardly any arc is read, and all would wait for each other.
        alone = query.suits_one_gpu and len(steps.parts) > 1 and steps.has_room_for_copy()
        with statistics.run() as run:
            if alone:
                try:
                    outcome = steps.run_on_copies(
                        1, lambda copies: label_on_gpus(copies.placements[0], union_query, poll)
                    )
                    statistics.begin_on(statistics.devices[:1])
                except GraphTooLargeError:
                    alone = False
            if not alone:
                outcome = label_on_gpus(steps, union_query, poll)
            run.parts = outcome.seconds
        statistics.count_later(outcome.count)
        return ComponentsResult(
            placed.graph, outcome.labels, statistics, method=query.method,
            location=options.location,
        )  # fmt: skip

    return answer


def _label_propagation(dtype: np.dtype[Any]) -> VertexProgram:
    """Return the program by which every vertex takes the smallest label of its neighbours."""
    return VertexProgram(
        name="label propagation",
        dtype=dtype,
        initial=lambda vertices: vertices,
        message=lambda value: value,
        combine="min",
    )


def _propagate_labels(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions
) -> ComponentsResult:
    """Find components by a vertex program; labels go along arcs, so each needs its reverse."""
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if isinstance(graph, Graph):
        graph = graph.symmetrize()
    elif plain.directed:
        raise InputError(
            "the placed graph is directed, and labels go one way along arcs: place graph.symmetrize()"
        )
    with placed_for_query(graph, devices, None) as placed:
        solution = solve(_label_propagation(plain.id_dtype), placed, "all", options)
        add_placement(solution.statistics, placed, graph)
    return ComponentsResult(
        plain,
        solution.values,
        solution.statistics,
        method="label-propagation",
        location=options.location,
    )
