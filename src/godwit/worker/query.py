"""How queries get a graph on its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from godwit import config
from godwit.errors import GraphTooLargeError, InputError, ValueOverflowError
from godwit.graph.csr import Graph
from godwit.graph.depth import likely_levels
from godwit.graph.facts import has_hubs
from godwit.graph.foreign import not_a_graph
from godwit.graph.ids import Sources
from godwit.graph.rows import Rows
from godwit.placement import (
    LatestQuery,
    PartitionArgument,
    PlacedGraph,
    cores_are_sooner,
    default_step_devices,
    names_devices,
    place_for_one_query,
)
from godwit.runtime.gpu_options import OF_STEPS, check_options
from godwit.runtime.polling import CoresAreFasterError, HandOver
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, gpu_names, resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, active, recorded
from godwit.worker.options import SolverOptions

if TYPE_CHECKING:
    from godwit.worker.cuda.placement import GpuPlacement

GraphArgument = Graph | PlacedGraph


class _HasStatistics(Protocol):
    statistics: RunStatistics


Result = TypeVar("Result", bound=_HasStatistics)


def place_parts(placed: PlacedGraph) -> GpuPlacement | None:
    """Return a graph's parts in the memory of its GPUs, uploaded once; None for CPUs.

    :raises GraphTooLargeError: they do not fit; before anything is allocated
    """
    if placed.context.devices[0].kind == "cpu":
        _ = placed.parts
        return None
    _ = placed.layout
    return placed.resource(_place_on_gpus, "upload")


def _place_on_gpus(placed: PlacedGraph) -> GpuPlacement:
    from godwit.worker.cuda.placement import GpuPlacement

    return GpuPlacement(placed.context.devices, placed.layout.parts)


_ARCS_OF_A_GPU = 100_000_000
_ASYNCHRONOUS_ARCS = 1 << 26
"""Arcs of each GPU from which on several search together faster than one alone: by rows sorted by weight,
and, in graphs with hubs, by the asynchronous engine. Without hubs its searches took up to 1.5 times as
long on two GPUs with 2²⁷ arcs each (benchmarks/choices.py)."""


def suits_all_gpus(placed: PlacedGraph, arcs_of_a_gpu: int | None = None) -> bool:
    """Return True if all GPUs of a graph search together; else the first one does so alone.

    :param arcs_of_a_gpu: from which on several are faster; None: by rows sorted by weight
    """
    devices = placed.context.devices
    if len(devices) == 1 or not placed.has_peers:
        return False
    if placed.asked_partition is not None:
        return True
    names = {device.name for device in devices}
    least = _ARCS_OF_A_GPU if arcs_of_a_gpu is None else arcs_of_a_gpu
    return len(names) == len(devices) and placed.graph.arc_count // len(devices) >= least


def searched_on_gpus(placed: PlacedGraph, options: SolverOptions) -> PlacedGraph:
    """Return the placed graph that the asynchronous engine searches: of several GPUs mostly on the first.

    On roads, meshes and small graphs a GPU alone is faster than several, which meet after little work. All
    search if the user asked for a partition, for duplicates or for options of the engine, if each has many
    arcs of a graph with hubs, or if the first one has no room for the graph. CPUs always search as placed.
    """
    devices, graph = placed.context.devices, placed.graph
    if len(devices) == 1 or devices[0].kind != "cuda" or options.asks_for_kernels:
        return placed
    if placed.asked_partition is not None or placed.duplication is not None:
        return placed
    if suits_all_gpus(placed, _ASYNCHRONOUS_ARCS) and has_hubs(graph):
        return placed
    alone = placed.on_first()
    if alone is None:
        return placed
    try:
        place_parts(alone)
    except GraphTooLargeError:
        return placed
    return alone


def devices_for_one_query(
    graph: GraphArgument,
    devices: DevicesArgument,
    options: SolverOptions,
    core_ns: float | SearchTime,
    *,
    scales: bool = True,
    by_levels: bool = False,
    kernel: Callable[[], str] | None = None,
) -> DevicesArgument:
    """Return the devices of an argument; for None all cores, if a GPU is expected to answer later.

    It does if cores are done before it could begin, and in searches of long, narrow graphs if it takes
    longer merely to go from level to level. A graph that is placed, or options that ask for a GPU, leave
    the argument as it is.

    :param core_ns: nanoseconds that the query takes on a core, for each arc of the graph, or for each
        vertex and each arc
    :param scales: True if the cores of the CPU share this work, False if one core alone is as fast as all
    :param by_levels: True if a GPU goes from level to level, as searches do
    :param kernel: returns the source of the kernel that the query takes on one GPU, which is
        compiled while CUDA begins
    """
    if not isinstance(graph, Graph):
        return devices
    chooses = devices is None and not options.asks_for_gpu
    if chooses:
        if isinstance(core_ns, SearchTime):
            core_ns = 1e9 * core_ns.seconds(graph) / max(1, graph.arc_count)
        cores = config.thread_count() if scales else 1
        if cores_are_sooner(graph, core_ns / cores):
            return "cpu"
    architecture = None if kernel is None else _architecture_ahead(devices)
    may_stay = chooses and by_levels  # on cores, if the graph is narrow
    if architecture is not None and kernel is not None and not (may_stay and _is_narrow(graph)):
        from godwit.runtime.cuda.compile import compile_for

        compile_for(architecture, kernel())
    if chooses and not gpu_names():
        return "cpu"
    return "cpu" if may_stay and _is_narrow(graph) else devices


def _architecture_ahead(devices: DevicesArgument) -> str | None:
    """Return the architecture to compile for before CUDA has begun; None if not for one GPU."""
    by_default = devices is None and config.preferred_devices() != "cpu"
    if not by_default and not (isinstance(devices, str) and devices.startswith("cuda:")):
        return None
    from godwit.runtime.cuda.driver import architecture_before_discovery

    return architecture_before_discovery()


_LEVEL_NS = 1500.0
_NARROW_CORE_NS = 20.0
"""Nanoseconds that a GPU takes for a level, and a core for an arc of a narrow graph (benchmarks/zoo.py)."""


def _is_narrow(graph: Graph) -> bool:
    """Return True if cores have searched a graph before a GPU has gone through its levels.

    False where ``GODWIT_DEVICES`` is ``"cuda"``, and for a graph on a GPU, whose arcs would have to be
    copied to the host.
    """
    if names_devices(None) or not isinstance(graph.stored, Rows):
        return False
    return likely_levels(graph) * _LEVEL_NS > graph.arc_count * _NARROW_CORE_NS


def placed_for_query(
    graph: GraphArgument, devices: DevicesArgument, partition: PartitionArgument
) -> AbstractContextManager[PlacedGraph]:
    """Return a block with the placed graph; an unplaced one is placed for this query."""
    if isinstance(graph, PlacedGraph):
        _check_placed(graph, devices, partition)
        return nullcontext(graph)
    return place_for_one_query(graph, devices, partition)


def _check_placed(
    graph: PlacedGraph, devices: DevicesArgument, partition: PartitionArgument
) -> None:
    """Raise an error if a placed graph is closed, or comes with arguments of placing."""
    if devices is not None or partition is not None:
        raise InputError("the graph is placed already: give devices and partition to place()")
    graph.check_open()


_PLAIN = frozenset({type(None), bool, int, float, str, type})
"""Types of arguments that can be compared, and do not change."""


def repeated_query(
    graph: GraphArgument, name: str, asked: tuple[Any, ...], source: Sources | None = None
) -> Any:
    """Return the result of a query with the arguments of the latest one; None for any other query.

    So what depends on arguments alone is checked and chosen once for queries in a row.

    :param name: of the algorithm
    :param asked: all arguments but the graph and the source
    :param source: of a search; None: it is none
    """
    if not isinstance(graph, PlacedGraph):
        return None
    latest = graph.latest.get(name)
    if latest is None or latest.kinds != tuple(map(type, asked)) or latest.asked != asked:
        return None
    if active() is not None:  # blocks of a trace
        return None
    graph.check_open()
    try:
        if source is None:
            result = latest.answer(graph)
        else:
            result = latest.answer(graph, graph.graph.ids.one_or_several(source, "source"))
    except (GraphTooLargeError, ValueOverflowError, CoresAreFasterError):
        result = None  # there may be another way
    if result is None:
        graph.latest.pop(name, None)
    return result


Answer = TypeVar("Answer")
Note = Callable[[Callable[..., Any]], None]


def note_of(graph: PlacedGraph, name: str, asked: tuple[Any, ...]) -> Note | None:
    """Return a function that sets the graph's latest query, which :func:`repeated_query` reads.

    It takes ``answer`` of :class:`LatestQuery`. None if arguments cannot be compared, or a trace is
    recorded.
    """
    kinds = tuple(map(type, asked))
    if active() is not None or not _PLAIN.issuperset(kinds):
        return None

    def note(answer: Callable[..., Any]) -> None:
        graph.latest[name] = LatestQuery(asked, kinds, answer)

    return note


def answered(
    graph: GraphArgument,
    devices: DevicesArgument,
    partition: PartitionArgument,
    trace: TraceArgument,
    name: str,
    ask: Callable[[PlacedGraph], Result],
) -> Result:
    """Return the result of a query of a placed graph; an unplaced one is placed for this query.

    :param trace: as of :func:`godwit.trace.recorded`, as is the name
    :param ask: returns the result, whose statistics get the time of placing
    """
    if trace is None and isinstance(graph, PlacedGraph) and active() is None:
        _check_placed(graph, devices, partition)
        return ask(graph)  # without blocks that do nothing
    with recorded(trace, name), placed_for_query(graph, devices, partition) as placed:
        result = ask(placed)
        add_placement(result.statistics, placed, graph)
        return result


@dataclass(frozen=True)
class SearchTime:
    """The time of a search on the CPU, which visits all vertices and arcs of a graph.

    :param vertex_ns: nanoseconds for each vertex
    :param arc_ns: nanoseconds for each arc
    """

    vertex_ns: float
    arc_ns: float

    def seconds(self, graph: Graph) -> float:
        """Return the seconds of a search."""
        return 1e-9 * (self.vertex_ns * graph.vertex_count + self.arc_ns * graph.arc_count)


def on_gpus_unless_slow(
    placed: PlacedGraph,
    name: str,
    options: SolverOptions,
    run: Callable[[PlacedGraph, SolverOptions], Answer],
    time_on_cores: SearchTime,
) -> Answer:
    """Return what a search returns, run on all cores if that turns out to be faster (:class:`HandOver`).

    Cores take over only if neither devices nor options were named, and then at once in later queries.

    :param name: of the algorithm, as in :attr:`PlacedGraph.slow`
    :param run: runs the search, which visits all vertices, on a placed graph
    :param time_on_cores: of the search
    """
    if placed.names_devices or options.asks_for_kernels:
        return run(placed, options)
    if placed.context.devices[0].kind != "cuda":
        return run(placed, options)
    if name not in placed.slow:
        graph = placed.graph
        hand_over = HandOver(time_on_cores.seconds(graph), graph.vertex_count)
        try:
            return run(placed, replace(options, hand_over=hand_over))
        except CoresAreFasterError as slow:
            placed.slow.add(name)
            options = options.after(slow.elapsed_s)
    return run(placed.on_cores(), options)


def _placed_on_gpus(graph: GraphArgument, devices: DevicesArgument) -> PlacedGraph | None:
    """Return the graph placed on GPUs, by the caller or here; None if the CPU is to compute."""
    if isinstance(graph, PlacedGraph):
        graph.check_open()
        on_gpus = devices is None and graph.context.devices[0].kind == "cuda"
        return graph if on_gpus else None
    if isinstance(graph, Graph):
        chosen = _gpus_or_cores(default_step_devices(graph) if devices is None else devices)
        if chosen[0].kind == "cuda":
            return place_for_one_query(graph, [device.name for device in chosen], None)
    return None


class on_gpus_or_cores:  # noqa: N801  # used like a function
    """Block with a graph and its placement on GPUs with the first GPU, or the CPU's device and None.

    For algorithms that run in supersteps on GPUs, and on one device of the CPU. A generator would take
    several times as long.

    :param what: name of the algorithm in error messages
    """

    __slots__ = ("_devices", "_graph", "_made", "_what")

    def __init__(self, graph: GraphArgument, devices: DevicesArgument, what: str) -> None:
        self._graph, self._devices, self._what = graph, devices, what
        self._made: PlacedGraph | None = None

    def __enter__(self) -> tuple[Graph, Device, PlacedGraph | None]:
        graph = self._graph
        placed = _placed_on_gpus(graph, self._devices)
        if placed is None:
            return (*on_cores(graph, self._devices, self._what), None)
        if placed is not graph:
            self._made = placed
        return placed.graph, placed.context.devices[0], placed

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            self._made.close()


class DeviceQuery:
    """A query with checked options, on GPUs or on one device of the CPU, while the block lasts.

    At its end the time of a placement that was made for this query is added to the statistics.

    :param name: name of the function in error messages
    :param solver: of the statistics
    :param what: the algorithm in messages about options; None: the name
    :param takes: of the options that not all algorithms take, those that this one does
    :ivar graph: the graph
    :ivar device: the CPU's device, or the first GPU
    :ivar placed: the graph on its GPUs; None: the CPU computes
    :ivar statistics: of the query; replaced if it ends up on other devices
    """

    def __init__(
        self,
        graph: GraphArgument,
        devices: DevicesArgument,
        name: str,
        solver: str,
        options: SolverOptions,
        *,
        what: str | None = None,
        takes: Sequence[str] = OF_STEPS,
    ) -> None:
        self._given = graph
        self.placed = placed = _placed_on_gpus(graph, devices)
        try:
            used: tuple[Device, ...]
            if placed is None:
                self.graph, self.device = on_cores(graph, devices, name)
                used = (self.device,)
            else:
                used = placed.context.devices
                self.graph, self.device = placed.graph, used[0]
            check_options(used, options.gpu, what or name, takes)
            self.statistics = RunStatistics(tuple([device.name for device in used]), solver)
        except BaseException:
            if placed is not None and placed is not graph:
                placed.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.placed is not None and self.placed is not self._given:
            if kind is None:
                add_placement(self.statistics, self.placed, self._given)
            self.placed.close()


def on_cores(graph: GraphArgument, devices: DevicesArgument, what: str) -> tuple[Graph, Device]:
    """Return a graph and the CPU's device, for algorithms that run on one of these."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        chosen, graph = graph.context.devices, graph.graph
        if chosen[0].kind != "cpu" or len(chosen) > 1:  # the graph itself is used, not its parts
            chosen = resolve_devices("cpu")
    else:
        chosen = _gpus_or_cores(devices)
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    if len(chosen) > 1:
        names = ", ".join(device.name for device in chosen)
        takers = "BFS, SSSP, step programs, vertex programs and pagerank(execution='asynchronous')"
        if what == "connected_components":
            takers = "method='label-propagation' and connected_components_of_edges"
        raise InputError(
            f"{what} runs on one device of the CPU, or on GPUs, so far; got {names}; devices='cpu' is all "
            f"cores as one. {takers} take several of the CPU"
        )
    return graph, chosen[0]


def _gpus_or_cores(devices: DevicesArgument) -> tuple[Device, ...]:
    """Return the devices of an argument; all cores for None, and for a number where there is no GPU."""
    chosen = resolve_devices("cpu" if devices is None else devices)
    is_number = devices is not None and not isinstance(devices, Iterable)
    return resolve_devices("cpu") if is_number and chosen[0].kind == "cpu" else chosen


def add_placement(
    statistics: RunStatistics, placed: PlacedGraph | None, graph: GraphArgument
) -> None:
    """Add the time of a placement, if any, to the statistics of the query that made it."""
    if placed is not None and placed is not graph:
        statistics.seconds = {**placed.seconds, **statistics.seconds}
