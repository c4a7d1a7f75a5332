"""Samples of neighbourhoods on a GPU: arguments of neighbors.cuh, which runs once a hop, and results.

Of several GPUs the first samples alone: a hop is short next to a meeting. The numbers of arcs of a hop are
known before it runs, so that there is room for them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from godwit.algorithms.random_walks.cuda import WalkArrays
from godwit.algorithms.random_walks.neighbors import FEW, SampleQuery
from godwit.arrays import ResultLocation
from godwit.graph.hashing import mix
from godwit.placement import PlacedGraph
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import upload
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_items
from godwit.supersteps.run import STEP, StepPlan, state_words, step_source

THREADS = 512

_SPARE_SHARE = 4
"""1 / the part of a hop's arcs by which there is more room than needed: the next sample may have more."""

ARGUMENTS = struct_dtype("algorithms/random_walks/neighbors.cuh", "Arguments")


class NeighborsPhase(IntEnum):
    """Phases of neighbors.cuh."""

    COUNT_ROWS, DRAW, FIND, COUNT_NEW, NUMBER_NEW, NUMBER_ARCS = range(6)


class NeighborsWord(IntEnum):
    """Words of the state of neighbors.cuh."""

    FIRST, NODES, NEW, NEXT_ARCS = range(4)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel.

    :param id_dtype: of the graph's targets
    """
    text = step_source(
        "algorithms/random_walks/neighbors.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        enums=(NeighborsPhase, NeighborsWord),
        work="grid_sample",
    )
    return f"#define FEW {FEW}\n{text}"


class _SampleArrays:
    """Arrays of a sample, kept on a device between queries; ``row``, ``col``, ``edges`` of all its hops."""

    def __init__(self, placement: StepPlacement) -> None:
        self.found = DeviceArray(placement)
        self.marks = DeviceArray(placement)
        self.begins = DeviceArray(placement)
        self.sums = DeviceArray(placement)
        self.row = DeviceArray(placement)
        self.col = DeviceArray(placement)
        self.edges = DeviceArray(placement)
        self.larger = DeviceArray(placement)


def sample_on_gpu(
    placed: PlacedGraph,
    query: SampleQuery,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: RunPoll | None,
    statistics: RunStatistics,
) -> tuple[list[Any], list[int], list[int]]:
    """Return nodes, rows, columns, edges, vertices per hop and arcs per hop; fill in statistics.

    :raises GraphTooLargeError: need against free
    """

    def run(placement: StepPlacement) -> tuple[list[Any], list[int], list[int]]:
        return _sample_on(placement, query, gpu, location, poll, statistics, seconds)

    seconds = {"kernel": 0.0, "gather": 0.0}
    with statistics.phase("run"):
        found = place_positions(placed).run_on_first("neighbors", run)
    statistics.split_run(seconds)
    return found


def _sample_on(
    placement: StepPlacement,
    query: SampleQuery,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: RunPoll | None,
    statistics: RunStatistics,
    seconds: dict[str, float],
) -> tuple[list[Any], list[int], list[int]]:
    def make() -> _SamplePlan:
        made = _SamplePlan(placement, gpu)
        seconds["compile"] = made.compile_s
        return made

    with placement.held():
        plan = placement.plan(("neighbors", gpu), make)
        hops = _Hops(plan, query, poll, seconds)
        hops.run()
        statistics.rounds[0] = hops.supersteps
        nodes, arcs = sum(hops.nodes_per_hop), sum(hops.edges_per_hop)
        arrays, part = placement.kept(_SampleArrays), placement.parts[0]
        wanted: list[tuple[DeviceArray, int, Any]] = [
            (arrays.found, nodes, query.graph.targets.dtype),
            *((array, arcs, np.int64) for array in (arrays.row, arrays.col, arrays.edges)),
        ]
        items = [
            (array[part].pointer if part in array else 0, count, dtype)
            for array, count, dtype in wanted
        ]
        results, taken_s = deliver_items(part, items, location)
        seconds["gather"] += taken_s
    return results, hops.nodes_per_hop, hops.edges_per_hop


class _Hops:
    """Sampling of all hops of one query: a run of the kernel for each hop.

    :ivar nodes_per_hop: as of :class:`NeighborSample`
    :ivar edges_per_hop: as of :class:`NeighborSample`
    :ivar supersteps: supersteps of all runs
    """

    def __init__(
        self,
        plan: _SamplePlan,
        query: SampleQuery,
        poll: RunPoll | None,
        seconds: dict[str, float],
    ) -> None:
        self._plan = plan
        self._query = query
        self._poll = poll
        if poll is not None:  # a run with less memory may have counted
            poll.before = 0
        self._seconds = seconds
        self.nodes_per_hop = [len(query.nodes)]
        self.edges_per_hop: list[int] = []
        self.supersteps = 0

    def run(self) -> None:
        """Sample all hops."""
        query = self._query
        fanouts = [*query.fanouts, 0]
        self._plan.ask(query)
        begin, nodes, arcs = 0, len(query.nodes), 0
        if fanouts[0] and nodes:
            _, _, arcs = self._launch(NeighborsPhase.COUNT_ROWS, begin, nodes, 0, 0, fanouts[0])
        for hop, fanout in enumerate(query.fanouts):
            self.edges_per_hop.append(arcs)
            if arcs:
                self._plan.make_room(sum(self.edges_per_hop[:-1]), arcs)
                begin, nodes, arcs = self._launch(
                    NeighborsPhase.DRAW, begin, nodes, hop, fanout, fanouts[hop + 1]
                )
            else:  # no vertex is left to go on from
                begin = nodes
            self.nodes_per_hop.append(nodes - begin)

    def _launch(
        self, phase: NeighborsPhase, begin: int, nodes: int, hop: int, fanout: int, next_fanout: int
    ) -> tuple[int, int, int]:
        """Run a hop, or count its arcs; return the vertices of the next one and the number of its arcs."""
        arguments = self._plan.arguments
        arcs = 0 if phase == NeighborsPhase.COUNT_ROWS else self.edges_per_hop[-1]
        arguments["hop"], arguments["arcs"] = hop, arcs
        arguments["fanout"], arguments["next_fanout"] = fanout, next_fanout
        arguments["with_numbers"] = phase != NeighborsPhase.COUNT_ROWS
        kernel_s = self._plan.run(state_words([begin, nodes]), phase=phase, poll=self._poll)
        self._seconds["kernel"] += kernel_s
        if self._poll is not None:
            self._poll.before += arcs
        state = self._plan.controls()["state"][0]
        self.supersteps += int(state[STEP])
        first, end, _, next_arcs = (int(state[word]) for word in NeighborsWord)
        return first, end, next_arcs


class _SamplePlan(StepPlan[StepPlacement]):
    """The kernel on a placement with one device, with arguments that no query changes."""

    def __init__(self, placement: StepPlacement, gpu: GpuOptions) -> None:
        graph = placement.graph
        ids = graph.targets.dtype
        super().__init__(placement, source(ids), np.zeros(1, ARGUMENTS), gpu, threads=THREADS)
        self._part = placement.parts[0]
        rows, self._arrays = placement.kept(WalkArrays), placement.kept(_SampleArrays)
        arrays, n = self._arrays, max(1, graph.vertex_count)
        graph_arrays = [(rows.offsets, graph.offsets), (rows.targets[False], graph.targets)]
        missing = [(array, held) for array, held in graph_arrays if not array]
        placement.reserve(
            *((array, [max(8, held.nbytes)]) for array, held in missing),
            (arrays.found, [n * ids.itemsize]),
            (arrays.marks, [8 * n]),
            (arrays.begins, [8 * n]),
            (arrays.sums, [8 * self.blocks_with(0, 0)]),
        )
        for array, held in missing:
            if len(held):
                upload(array[self._part], held)
        own = self.arguments[0]
        own["offsets"] = rows.offsets[self._part].pointer
        own["targets"] = rows.targets[False][self._part].pointer
        for name in ("found", "marks", "begins", "sums"):
            own[name] = getattr(arrays, name)[self._part].pointer
        self.lay_out()

    def ask(self, query: SampleQuery) -> None:
        """Begin a query: upload its seeds."""
        with np.errstate(over="ignore"):
            self.arguments["seed"] = mix(query.seed)
        self.arguments["replace"] = query.replace
        self._arrays.marks[self._part].fill_bytes(0xFF)
        if len(query.nodes):
            self._arrays.found[self._part].upload(query.nodes)

    def make_room(self, before: int, arcs: int) -> None:
        """Make room for the arcs of a hop behind those of earlier ones.

        :raises GraphTooLargeError: need against free
        """
        part, larger = self._part, self._arrays.larger
        for name in ("row", "col", "edges"):
            array = getattr(self._arrays, name)
            if array.nbytes(part) < 8 * (before + arcs):
                room = before + arcs + arcs // _SPARE_SHARE
                self.placement.reserve((larger, [8 * room]))
                if before:
                    to, stream = larger[part].pointer, part.stream
                    driver.copy_async(to, array[part].pointer, 8 * before, stream)
                    stream.synchronize()
                array.release(part)
                array.take(larger)
            self.arguments[name] = array[part].pointer + 8 * before
