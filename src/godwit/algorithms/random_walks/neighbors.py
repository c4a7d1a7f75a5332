"""Samples of the neighbourhoods of vertices, hop by hop, for training of graph neural networks.

Encoding: sampled vertices are numbered in the order in which they are found, the seeds first. Random words
are hashes of the seed, the vertex, the hop and a count, so samples do not depend on devices and threads
(cuda_neighbors.py runs neighbors.cuh on GPUs). Without replacement, few arcs of a long row are drawn by
Floyd's algorithm (Bentley, Floyd: A Sample of Brilliance, CACM 1987), more by selection sampling (Knuth:
The Art of Computer Programming 2, 3.4.2, algorithm S).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from godwit.dtypes import Array, as_flag, as_integer, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.hashing import below, mix, seed_word
from godwit.graph.ids import Sources
from godwit.graph.rows import require_memory, thread_count_for
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll

FEW = 64
"""Arcs that Floyd's algorithm draws, at most: it compares each with those before."""
_POLL_ROWS = 1024


@dataclass(frozen=True)
class NeighborSample:
    """Sampled arcs, as pyg-lib's ``neighbor_sample`` returns them.

    :ivar nodes: positions of the sampled vertices, each once, (k), dtype of the targets: the seeds first,
        then in the order in which hops found them
    :ivar row: int64 (e): of each sampled arc, the index in ``nodes`` of the vertex that it leaves, which
        was found one hop before
    :ivar col: int64 (e): the index in ``nodes`` of the vertex that it leads to
    :ivar edges: int64 (e): its index in ``graph.targets``
    :ivar nodes_per_hop: vertices found: the number of seeds, then a number for each hop
    :ivar edges_per_hop: arcs sampled, a number for each hop; ``row``, ``col`` and ``edges`` are in this
        order
    :ivar statistics: work and times of the run
    """

    nodes: Array
    row: Array
    col: Array
    edges: Array
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    statistics: RunStatistics

    def __repr__(self) -> str:
        hops = len(self.edges_per_hop)
        return f"NeighborSample({len(self.nodes)} nodes, {len(self.edges)} edges, {hops} hop(s))"


@dataclass(frozen=True)
class SampleQuery:
    """A checked query.

    :param graph: the graph
    :param nodes: positions of the seeds, each once, dtype of the targets
    :param fanouts: for each hop, arcs of each vertex; -1 for all
    :param replace: an arc may be drawn again
    :param seed: a word of 64 bits
    """

    graph: Graph
    nodes: Array
    fanouts: list[int]
    replace: bool
    seed: np.uint64


@public
def sample_neighbors(
    graph: GraphArgument,
    seeds: Sources,
    fanouts: Sequence[int],
    *,
    replace: bool = False,
    seed: int = 0,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> NeighborSample:
    """Sample the neighbourhoods of vertices: some out-arcs of each, some of each vertex found by these, and
    so on.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 3, 3])
    >>> sample = gw.sample_neighbors(graph, [0], [2, 1])
    >>> sample.nodes.tolist(), sample.row.tolist(), sample.col.tolist(), sample.nodes_per_hop
    ([0, 1, 2, 3], [0, 0, 1, 2], [1, 2, 3, 3], [1, 2, 1])

    Arcs are drawn uniformly. A vertex that is found again is not sampled again. The same seed gives the
    same sample on any devices, for any number of threads.

    :param graph: a graph, or one placed on devices by :func:`place`
    :param seeds: a vertex or several, by id; repetitions count once
    :param fanouts: for each hop, the number of arcs of each vertex; all arcs where a row has no more, or if
        it is -1
    :param replace: True to draw an arc independently of those drawn before: always as many as asked for, if
        there is any arc
    :param seed: any integer
    :param devices: None: those of a placed graph, else all cores, since a sample is found sooner than a
        graph is uploaded; ``"cpu"``, or GPUs, of which the first samples alone
    :param results: where ``.nodes``, ``.row``, ``.col`` and ``.edges`` live, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of arcs sampled so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.nodes``, ``.row``, ``.col``, ``.edges``, ``.nodes_per_hop``, ``.edges_per_hop``,
        ``.statistics``
    :raises InputError: a wrong argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the graph or the sample does not fit
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    replace = as_flag(replace, "replace")
    ids = plain.targets.dtype
    positions = plain.ids.in_order(seeds, "seeds", or_none=True).astype(ids, copy=False)
    nodes, _ = _number(np.empty(0, ids), positions)
    query = SampleQuery(plain, nodes, _checked(fanouts), replace, seed_word(seed))
    if devices is None and graph is plain:
        devices = "cpu"
    with (
        recorded(trace, "sample_neighbors"),
        DeviceQuery(graph, devices, "sample_neighbors", "sampling", options, takes=()) as run,
    ):
        device, placed, statistics = run.device, run.placed, run.statistics
        poll = make_poll(options)
        if placed is None:
            with statistics.phase("run"):
                arrays, nodes_per_hop, edges_per_hop = _sample_on_cores(query, device.threads, poll)
            arrays = [options.location.place(array) for array in arrays]
        else:
            from godwit.algorithms.random_walks.cuda_neighbors import sample_on_gpu

            placed.check_all_duplicated("sample_neighbors runs")
            statistics.begin_on([device.name])
            arrays, nodes_per_hop, edges_per_hop = sample_on_gpu(
                placed, query, options.gpu, options.location, poll, statistics
            )
        statistics.processed_items[0] = sum(edges_per_hop)
    nodes, row, col, edges = arrays
    return NeighborSample(nodes, row, col, edges, nodes_per_hop, edges_per_hop, statistics)


def _sample_on_cores(
    query: SampleQuery, threads: int | None, poll: RunPoll | None
) -> tuple[list[Any], list[int], list[int]]:
    """Return nodes, rows, columns and edges of a sample, vertices per hop, and arcs per hop."""
    graph, nodes = query.graph, query.nodes
    rows, cols, edges = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    nodes_per_hop: list[int] = [len(nodes)]
    edges_per_hop: list[int] = []
    begin = done = 0
    for hop, fanout in enumerate(query.fanouts):
        frontier = nodes[begin:]
        degrees = graph.offsets[1:][frontier] - graph.offsets[frontier]
        counts = degrees
        if fanout >= 0:
            few = np.where(degrees > 0, fanout, 0)
            counts = few if query.replace else np.minimum(degrees, fanout)
        ends = np.concatenate([[0], np.cumsum(counts)])
        total = int(ends[-1])
        require_memory(total * 40, f"a sample of {total:,} arcs")
        arcs = np.empty(total, np.int64)
        team = thread_count_for(total)
        run_team(
            _sample_rows, graph.offsets, frozen(frontier), frozen(ends), query.replace and fanout >= 0,
            query.seed, hop, arcs, threads=team if threads is None else min(team, threads),
            poll=None if poll is None else partial(poll, done),
        )  # fmt: skip
        done += total
        row = np.repeat(np.arange(begin, len(nodes)), counts)
        begin = len(nodes)
        nodes, col = _number(nodes, graph.targets[arcs])
        rows, cols, edges = [*rows, row], [*cols, col], [*edges, arcs]
        nodes_per_hop.append(len(nodes) - begin)
        edges_per_hop.append(total)
        if poll is not None:
            poll(done)
    arrays: list[Any] = [nodes, *(np.concatenate(parts) for parts in (rows, cols, edges))]
    return arrays, nodes_per_hop, edges_per_hop


def _checked(fanouts: Any) -> list[int]:
    """Return fanouts as integers from -1; InputError for anything else."""
    try:
        listed = None if isinstance(fanouts, str | bytes | dict) else list(fanouts)
    except TypeError:
        listed = None
    if listed is None:
        raise InputError(f"fanouts must be a list of integers, got {shown(fanouts)}")
    found = [as_integer(value, "fanouts") for value in listed]
    for value in found:
        if not -1 <= value < 1 << 31:
            raise InputError(
                "fanouts must be -1, for all arcs, or numbers from 0 to "
                f"{(1 << 31) - 1}, got {shown(value)}"
            )
    return found


def _number(nodes: Array, targets: Array) -> tuple[Array, Array]:
    """Return the nodes with new ones of the targets behind them, and the index of each target: int64."""
    size = 1 << max(4, (2 * (len(nodes) + len(targets))).bit_length())
    table = np.full(size, -1, np.int64)
    numbered = np.empty(len(nodes) + len(targets), nodes.dtype)
    numbered[: len(nodes)] = nodes
    index = np.empty(len(targets), np.int64)
    count = _find_numbers(numbered, len(nodes), frozen(targets), table, index)
    return numbered[:count].copy(), index


def _slot(table: Any, nodes: Any, vertex: Any) -> Any:
    """Return the slot of a hash table that has a vertex' number, or a free one (linear probing)."""
    mask = np.uint64(table.size - 1)
    slot = mix(np.uint64(vertex)) & mask
    while table[slot] >= 0 and nodes[table[slot]] != vertex:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def _find_numbers(nodes: Any, count: int, targets: Any, table: Any, index: Any) -> int:
    """Store the number of each target, and append those that have none to the nodes; return their number.

    :param count: of nodes at first, all distinct
    :param table: (a power of two) -1 everywhere: numbers of nodes by hash
    """
    for number in range(count):
        table[_slot(table, nodes, nodes[number])] = number
    for place in range(targets.size):
        slot = _slot(table, nodes, targets[place])
        if table[slot] < 0:
            table[slot] = count
            nodes[count] = targets[place]
            count += 1
        index[place] = table[slot]
    return count


@kernel
def _sample_rows(
    rank: int, size: int, control: Any, offsets: Any, frontier: Any, ends: Any, replace: bool,
    seed: Any, hop: int, arcs: Any,
) -> None:  # fmt: skip
    """Store sampled arcs of each vertex of the frontier, ascending unless arcs may repeat.

    :param ends: (vertices + 1) where the arcs of each vertex go
    """
    begin, end = block_range(rank, size, frontier.size)
    for place in range(begin, end):
        if place % _POLL_ROWS == 0 and load_acquire(control, ABORT) != 0:
            return
        v = frontier[place]
        first = offsets[v]
        degree = offsets[v + 1] - first
        at = ends[place]
        count = ends[place + 1] - at
        key = mix(mix(mix(seed) + np.uint64(v)) + np.uint64(hop))
        if replace:
            for i in range(count):
                arcs[at + i] = first + below(mix(key + np.uint64(i)), degree)
        elif count == degree:
            for i in range(count):
                arcs[at + i] = first + i
        elif count <= FEW:
            for i in range(count):  # Floyd: each draw is of one more arc than the one before
                bound = degree - count + i
                drawn = below(mix(key + np.uint64(i)), bound + 1)
                place_of = at + i
                for j in range(at, at + i):
                    if arcs[j] == first + drawn:
                        drawn = bound
                        break
                while place_of > at and arcs[place_of - 1] > first + drawn:
                    arcs[place_of] = arcs[place_of - 1]
                    place_of -= 1
                arcs[place_of] = first + drawn
        else:
            chosen = 0
            for i in range(degree):  # S: each arc with the share of those that are still wanted
                if below(mix(key + np.uint64(i)), degree - i) < count - chosen:
                    arcs[at + chosen] = first + i
                    chosen += 1
