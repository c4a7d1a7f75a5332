"""PageRank on GPUs: brings up what it needs, runs kernels/pagerank_steps.cuh, and brings the ranks home.

Kept on the devices from one query to the next: rows, out-degrees, which of its vertices the other devices
read, and, for weights, what each arc gets of its source's rank. The first query makes the last, in a
superstep before the first iteration; it counts as there only when its run has come to an end.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from godwit.backends.base import ProgressPoll
from godwit.backends.cuda.driver import Buffer
from godwit.backends.cuda.instantiation import c_type
from godwit.backends.cuda.step_placement import StepPart, StepPlacement
from godwit.backends.cuda.step_results import deliver_positions
from godwit.backends.cuda.step_rows import StepRows
from godwit.backends.cuda.steps import (
    PEERS,
    ROWS,
    STAGE,
    StepRun,
    point_rows,
    step_run,
    step_source,
)
from godwit.backends.ranks import RankOutcome, RankQuery
from godwit.dtypes import Array, frozen
from godwit.graph.rows import thread_count_for
from godwit.parallel.kernel import kernel
from godwit.parallel.team import block_range, run_team

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("rows", ROWS),
        ("weights", np.uint64),
        ("parts", np.uint64),
        ("flows", np.uint64),
        ("degrees", np.uint64),
        ("teleport", np.uint64),
        ("start", np.uint64),
        ("readers", np.uint64),
        ("carried", PEERS, 2),
        ("uniform", np.float64),
        ("damping", np.float64),
        ("tolerance", np.float64),
        ("most_iterations", np.uint64),
    ]
)
"""``Arguments`` of pagerank_steps.cuh."""

_PREPARE, _START = 0, 1  # phases
_ITERATIONS, _RESIDUAL = 0, 4  # words of the state


def source(
    id_dtype: Any, rank_dtype: Any, weight_dtype: Any = None, *, accelerated: bool = False
) -> str:
    """The kernel for positions, ranks and, where they count, weights of given dtypes.

    :param accelerated: iterations may go beyond plain ones
    """
    types = {
        "Id": c_type(np.dtype(id_dtype)),
        "Rank": c_type(np.dtype(rank_dtype)),
        "Weight": "void" if weight_dtype is None else c_type(np.dtype(weight_dtype)),
    }
    text = step_source("pagerank_steps.cuh", ARGUMENTS, types=types, work="grid_pagerank")
    return f"#define ACCELERATED {str(accelerated).lower()}\n{text}"


def run_pagerank(
    placement: StepPlacement, query: RankQuery, poll: ProgressPoll | None
) -> RankOutcome:
    """Ranks of all vertices, into the query's destination.

    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    :raises DeviceError: devices that do not reach each other's memory, or that wait in vain
    """
    with placement.held():
        begin = perf_counter()
        rows = placement.rows("in", query.weighted)
        readers = []
        if len(placement.parts) > 1:
            broadcasts = query.gpu.communication == "broadcast"
            readers = placement.readers() if broadcasts else placement.readers("in")
        seconds = {"rows": perf_counter() - begin}
        arguments = np.zeros(len(placement.parts), ARGUMENTS)
        weight_dtype = rows[0].weight_dtype if query.weighted else None
        code = source(placement.id_dtype, query.dtype, weight_dtype, accelerated=query.accelerated)
        with step_run(placement, code, arguments, query.gpu) as run:
            ranking = _Ranking(placement, query, rows, arguments)
            ranking.bring_up()
            ranking.connect(run, readers)
            run.prepare(phase=_PREPARE if ranking.makes_parts else _START)
            seconds["kernel"] = run.drive(poll)
            ranking.keep()
            state = run.controls()["state"][0]
        iterations = int(state[_ITERATIONS])
        ranks = _carried_name(query, 1 - iterations % 2)
        seconds["compile"] = run.compile_s
        seconds["gather"] = deliver_positions(placement, ranks, query.dtype, query.destination)
    return RankOutcome(
        iterations,
        float(state[_RESIDUAL : _RESIDUAL + 1].view(np.float64)[0]),
        np.array([part.owned for part in placement.parts], np.int64),
        np.array([one.arcs for one in rows], np.int64),
        seconds,
    )


def _carried_name(query: RankQuery, parity: int) -> str:
    return f"carried ranks {parity} {query.dtype.name}"


class _Ranking:
    """What a query has on the devices."""

    def __init__(
        self, placement: StepPlacement, query: RankQuery, rows: list[StepRows], arguments: Array
    ) -> None:
        self.placement = placement
        self.query = query
        self.rows = rows
        self.arguments = arguments
        there = placement.parts[0].buffers
        self.parts_name = f"parts of ranks {query.dtype.name}"
        self.makes_parts = query.weighted and self.parts_name not in there

    def bring_up(self) -> None:
        """Make room for everything, and fill in what does not begin as anything.

        :raises GraphTooLargeError: need against free
        """
        sizes = [self._sizes(part, rows) for part, rows in self._each()]
        self.placement.make_room(sizes)
        # Out-degrees are those of rows where every edge is two arcs.
        needs_degrees = self.placement.graph.directed and not self.query.weighted
        degrees = self.placement.degrees("out") if needs_degrees else []
        flows = _flows(self.placement) if self.query.weighted else None
        for place, (part, rows) in enumerate(self._each()):
            own = self.arguments[place]
            if degrees:
                own["degrees"] = degrees[place].pointer
            if flows is not None:
                part.buffers["flows"].upload(flows)
            self._fill_vertices(own, part)
            self._point(own, part, rows)

    def _each(self) -> list[tuple[StepPart, StepRows]]:
        return list(zip(self.placement.parts, self.rows, strict=True))

    def _sizes(self, part: StepPart, rows: StepRows) -> dict[str, int]:
        """Bytes of the buffers that a device has for this query."""
        item, count = self.query.dtype.itemsize, self.placement.count
        found = {_carried_name(self.query, parity): item * count for parity in (0, 1)}
        if self.query.weighted:
            found["flows"] = 8 * count
        if self.makes_parts:
            found[f"new {self.parts_name}"] = item * rows.arcs
        for name in ("teleport", "start"):
            if getattr(self.query, name) is not None:
                found[name] = 8 * part.owned
        return found

    def _fill_vertices(self, own: Any, part: StepPart) -> None:
        """What is given of the own vertices."""
        for name in ("teleport", "start"):
            given = getattr(self.query, name)
            if given is not None:
                positions = np.arange(part.first, part.first + part.owned)
                part.buffers[name].upload(given[self.placement.vertex(positions)])
                own[name] = part.buffers[name].pointer

    def _point(self, own: Any, part: StepPart, rows: StepRows) -> None:
        """The pointers to a device's own memory, and the numbers."""
        point_rows(own["rows"], rows)
        if self.query.weighted:
            new = "new " if self.makes_parts else ""
            own["parts"] = part.buffers[f"{new}{self.parts_name}"].pointer
            own["flows"] = part.buffers["flows"].pointer
        if self.makes_parts:
            assert rows.weights is not None
            own["weights"] = rows.weights.pointer
        own["uniform"] = 1 / self.placement.vertex_count
        own["damping"], own["tolerance"] = self.query.damping, self.query.tolerance
        own["most_iterations"] = self.query.max_iterations

    def connect(self, run: StepRun, readers: list[Buffer]) -> None:
        """The pointers to all devices' memory, and who reads what there."""
        for parity in (0, 1):
            self.arguments["carried"][:, parity] = run.pointers(_carried_name(self.query, parity))
        for own, bits in zip(self.arguments, readers, strict=False):  # none: alone
            own["readers"] = bits.pointer

    def keep(self) -> None:
        """What this run has made is there from now on."""
        if not self.makes_parts:
            return
        for part in reversed(self.placement.parts):  # what the first one has, all have
            part.buffers[self.parts_name] = part.buffers.pop(f"new {self.parts_name}")


def _flows(placement: StepPlacement) -> Array:
    """(all positions) float64: the sum of the weights of a vertex' out-arcs."""
    graph = placement.graph

    def summed() -> Array:
        found = np.empty(graph.vertex_count)
        threads = thread_count_for(graph.arc_count)
        run_team(_sum_rows, graph.offsets, graph.weights, found, threads=threads)
        return frozen(found)

    by_vertex: Array = graph.cached("flows", summed)
    flows = np.zeros(placement.count)
    flows[placement.numbering.position] = by_vertex
    return flows


@kernel
def _sum_rows(rank: int, size: int, control: Any, offsets: Any, weights: Any, sums: Any) -> None:
    begin, end = block_range(rank, size, sums.size)
    for v in range(begin, end):
        total = 0.0
        for arc in range(offsets[v], offsets[v + 1]):
            total += weights[arc]
        sums[v] = total
