"""Graphs on devices: partitioned and uploaded once, queried many times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, NoReturn, TypeVar, cast

from godwit import config
from godwit.dataflow.context import Context
from godwit.errors import ClosedContextError, InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.partition import Partition, partition
from godwit.graph.partition.layout import Duplication, Layout, LocalGraph, build_layout, whole
from godwit.runtime.protocol import Placement
from godwit.runtime.registry import DevicesArgument, are_peers, gpu_names, resolve_devices
from godwit.trace import seconds_since

PartitionArgument = str | Partition | Any | None
Resource = TypeVar("Resource", bound=Placement)


@dataclass(frozen=True, slots=True)
class LatestQuery:
    """The latest query of an algorithm, and a function that answers further ones with the same arguments.

    :param asked: the arguments but for the graph and the source: numbers, text and the like
    :param kinds: their types, as True is equal to 1
    :param answer: called with the placed graph, to which it must not refer otherwise, and, in a search,
        with an array of sources; returns None if it cannot answer
    """

    asked: tuple[Any, ...]
    kinds: tuple[type, ...]
    answer: Callable[..., Any]


class PlacedGraph:
    """A graph on devices. Every algorithm takes one in place of a graph, and then has no set-up time.

    Made by :func:`godwit.place`; a context manager. Queries may run at the same time from several threads.

    :ivar context: the devices; closed with this
    :ivar duplication: as the user chose; None: as suits the algorithm
    :ivar is_kept: True if :func:`godwit.place` made it. Its first query may then take longer, to make what
        speeds up later ones
    :ivar names_devices: the user named the devices; otherwise cores take over what is slow on GPUs
    :ivar searches: number of breadth-first searches on CPUs, which are faster if in-arcs have been made
    :ivar suits_steps: False once supersteps turned out not to suit the graph
    :ivar given_up: names of algorithms whose faster method turned out not to suit the graph
    :ivar faster_on_all: names of algorithms that turned out to be faster on all GPUs than on the first
    :ivar slow: names of algorithms that turned out to be slower on GPUs than on cores
    :ivar latest: by name of the algorithm
    :ivar seconds: time by phase, such as ``partition`` and ``place``
    """

    def __init__(
        self,
        graph: Graph,
        context: Context,
        method: PartitionArgument,
        seed: int,
        duplication: Duplication | None,
    ) -> None:
        self.graph = graph
        self.context = context
        self.seconds: dict[str, float] = {}
        self._method = method
        self._seed = seed
        self.duplication = duplication
        self._layout: Layout | None = None
        self._resources: dict[Callable[[PlacedGraph], Placement], Placement] = {}
        self.is_kept = False
        self.names_devices = True
        self.searches = 0
        self.suits_steps = True
        self.given_up: set[str] = set()
        self.faster_on_all: set[str] = set()
        self.slow: set[str] = set()
        self._reweighted: list[PlacedGraph] = []
        self._elsewhere: dict[str, PlacedGraph] = {}
        self.latest: dict[str, LatestQuery] = {}
        self._placing = threading.Lock()

    @property
    def layout(self) -> Layout:
        """Each device's part of the graph, made on first use."""
        self.check_open()
        if self._layout is None:
            self._layout = self._lay_out()
        return self._layout

    @property
    def parts(self) -> tuple[LocalGraph, ...]:
        """Each device's part of the graph: of one device all of it, for which no layout is made."""
        self.check_open()
        if self._layout is None and len(self.context.devices) == 1:
            return (whole(self.graph),)
        return self.layout.parts

    @property
    def partition(self) -> Partition:
        """The owner of each vertex."""
        return self.layout.partition

    @property
    def asked_partition(self) -> Partition | None:
        """The partition that the user asked for; None: engines choose one."""
        self.check_open()
        return None if self._method is None else self.partition

    def resource(self, make: Callable[[PlacedGraph], Resource], phase: str) -> Resource:
        """Return the data of the graph that an engine keeps on the devices, closed with this.

        :param make: makes it; called once
        :param phase: of :attr:`seconds`
        :raises InputError: the calling thread is in a run on these devices
        """
        known = self.known_resource(make)
        if known is not None:
            return known  # type: ignore[return-value]
        self.context.device_kind.require_idle(self.context.devices)
        with self._placing:
            if make not in self._resources:
                begin = perf_counter()
                self._resources[make] = make(self)
                self.seconds[phase] = seconds_since(begin, phase)
            return cast("Resource", self._resources[make])

    def known_resource(self, make: Callable[[PlacedGraph], Placement]) -> Placement | None:
        """Return the data that this function has made; None if it was not called."""
        self.check_open()
        return self._resources.get(make)

    def release(self, make: Callable[[PlacedGraph], Placement]) -> None:
        """Close the resource that this function made, if there is one."""
        self.context.device_kind.require_idle(self.context.devices)
        with self._placing:
            resource = self._resources.pop(make, None)
            if resource is not None:
                resource.close()

    @cached_property
    def has_peers(self) -> bool:
        """True if the devices are GPUs with access to each other's memory."""
        return are_peers(self.context.devices)

    def check_all_duplicated(self, what: str, instead: str = "") -> None:
        """Raise InputError if GPUs store their neighbours only, and an algorithm needs all vertices.

        :param what: the algorithm
        :param instead: another remedy, as ``", or ..."``
        """
        if self.duplication == "1-hop" and self.context.devices[0].kind != "cpu":
            raise InputError(
                f"{what} in supersteps, where each GPU stores a value of every vertex, but the graph was "
                "placed with duplication='1-hop'; place it with duplication='all', or leave that out"
                f"{instead}"
            )

    def reweighted(self, graph: Graph) -> PlacedGraph:
        """Return a graph with the same vertices and other weights or arcs, on the same devices.

        It is closed with this. Return this one itself if ``graph`` is the graph that it places.

        :param graph: kept by the caller, as by :meth:`Graph.cached`: it is placed once
        """
        self.check_open()
        if graph is self.graph:
            return self
        with self._placing:
            for made in self._reweighted:
                if made.graph is graph:
                    return made
            method = self._method if self._layout is None else self._layout.partition
            made = PlacedGraph(graph, self.context, method, self._seed, self.duplication)
            made.is_kept = self.is_kept
            self._reweighted.append(made)
            return made

    def on_cores(self) -> PlacedGraph:
        """Return the graph placed on all cores, made once; it is closed with this."""
        return self._placed_on("cpu")

    def on_first(self) -> PlacedGraph | None:
        """Return the graph placed on the first device alone, made once; it is closed with this.

        None if that GPU has no ample room for all of it.
        """
        self.check_open()
        names = [device.name for device in self.context.devices[:2]]
        if (
            names[0] not in self._elsewhere
            and len(_first_with_room(names, _ROOM * self.graph.nbytes)) > 1
        ):
            return None
        return self._placed_on(names[0])

    def _placed_on(self, device: str) -> PlacedGraph:
        self.check_open()
        with self._placing:
            made = self._elsewhere.get(device)
            if made is None:
                made = PlacedGraph(self.graph, Context(device), None, self._seed, None)
                made.is_kept, made.seconds = self.is_kept, self.seconds
                self._elsewhere[device] = made
            return made

    def _lay_out(self) -> Layout:
        begin = perf_counter()
        parts = len(self.context.devices)
        division = partition(self.graph, parts, self._method, seed=self._seed)
        self.seconds["partition"] = seconds_since(begin, "partition")
        begin = perf_counter()
        layout = build_layout(self.graph, division, duplication=self.duplication or "1-hop")
        self.seconds["place"] = seconds_since(begin, "place")
        return layout

    def check_open(self) -> None:
        """Raise ClosedContextError if the graph is closed."""
        if self.context.closed:
            raise ClosedContextError("this placed graph is closed; place the graph again")

    def close(self) -> None:
        """Free the devices' memory; closing twice does no harm."""
        with self._placing:
            for resource in self._resources.values():
                resource.close()
            self._resources.clear()
        for made in self._reweighted:
            made.close()
        for made in self._elsewhere.values():
            made.close()
        self._layout = None
        self.latest.clear()
        self.context.close()

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a placed graph stands for memory of devices, and can be neither pickled nor copied: pickle "
            "or copy its .graph, and place that with godwit.place(graph, devices)"
        )

    def __enter__(self) -> PlacedGraph:
        self.check_open()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def place_for_one_query(
    graph: Graph,
    devices: DevicesArgument,
    partition: PartitionArgument,
    *,
    seed: int = 0,
    duplication: Duplication | None = None,
) -> PlacedGraph:
    """Return a placed graph for one query, which uploads what it needs."""
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    context = Context(default_devices(graph) if devices is None else devices)
    placed = PlacedGraph(graph, context, partition, seed, duplication)
    placed.names_devices = names_devices(devices)
    several_cpus = len(context.devices) > 1 and not context.devices[0].delivers
    if several_cpus or partition is not None:
        _ = placed.layout
    return placed


_WIDE_ARCS = 1 << 28
_WIDE_DEGREE = 8
"""Arcs, and arcs per vertex, from which on most queries of a placed graph gain by several GPUs."""
_LONG_QUERY_ARCS = 1 << 36
"""Arcs that a query visits in about a second, after which placing a graph on further GPUs pays."""
_ROOM = 4
"""A GPU has room for a graph, and for what engines make of it, if this many copies of it fit."""


def names_devices(devices: DevicesArgument) -> bool:
    """Return True if the user chose devices: by an argument, or GPUs by ``GODWIT_DEVICES=cuda``."""
    return devices is not None or config.preferred_devices() == "cuda"


_GPU_CALL_NS = 3e6
_GPU_ARC_NS = 1.2
"""Nanoseconds to place a graph on a GPU with its rows, and those for each arc (benchmarks/zoo.py)."""


def cores_are_sooner(graph: Graph, core_ns: float) -> bool:
    """Return True if all cores are done with a query before the graph would be on a GPU.

    False where ``GODWIT_DEVICES`` is ``"cuda"``.

    :param core_ns: nanoseconds that the query takes on all cores, for each arc
    """
    if config.preferred_devices() == "cuda":
        return False
    return graph.arc_count * (core_ns - _GPU_ARC_NS) < _GPU_CALL_NS


def default_devices(
    graph: Graph, *, searches: int = 1, nbytes: int | None = None
) -> DevicesArgument:
    """Return the devices that suit one query of a graph that is not placed: the first GPU, if it has room.

    Placing the graph takes longer than most queries, and k times as long on k GPUs.

    :param searches: of the query: with many, all GPUs pay
    :param nbytes: limit of the memory that the query takes; None: a few times what the graph takes
    """
    gpus: Sequence[str] = gpu_names()
    if searches * graph.arc_count < _LONG_QUERY_ARCS:
        gpus = _first_with_room(gpus, _ROOM * graph.nbytes if nbytes is None else nbytes)
    return list(gpus) or None


def devices_to_keep(graph: Graph) -> DevicesArgument:
    """Return the devices that suit many queries: the first GPU, or all for a large graph of wide frontiers.

    On long, thin graphs (roads) a frontier keeps one GPU busy, and further ones wait.
    """
    gpus = gpu_names()
    is_wide = graph.arc_count >= max(_WIDE_ARCS, _WIDE_DEGREE * graph.vertex_count)
    return list(gpus if is_wide else _first_with_room(gpus, _ROOM * graph.nbytes)) or None


def _first_with_room(gpus: Sequence[str], nbytes: int) -> Sequence[str]:
    """Return the first GPU alone if it has so much free memory, else all."""
    if len(gpus) < 2:
        return gpus
    from godwit.runtime.cuda.memory import free_memory_bytes

    index = int(gpus[0].partition(":")[2])
    return gpus[:1] if nbytes <= free_memory_bytes(index) else gpus


def default_step_devices(
    graph: Graph, *, atomics: bool = False, searches: int = 1, nbytes: int | None = None
) -> DevicesArgument:
    """Return the devices that suit a query in supersteps: several GPUs only if they have peer access.

    :param atomics: they also need atomics in each other's memory
    :param searches: as of :func:`default_devices`, like ``nbytes``
    """
    names = default_devices(graph, searches=searches, nbytes=nbytes)
    if isinstance(names, list) and not are_peers(resolve_devices(names), atomics=atomics):
        return names[:1]
    return names
