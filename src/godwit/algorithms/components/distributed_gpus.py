"""Connected components on the GPUs of several processes, as on the GPUs of one (cuda.py).

Where one GPU of several would do it alone, which is faster, the GPU of each process does: every process
has the whole graph, so nothing is sent. Otherwise GPUs merge what each has joined: in each other's memory,
or, where atomics do not work there, by the hosts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from godwit.algorithms.components import ComponentsQuery
from godwit.algorithms.components.cuda import UnionOutcome, UnionQuery, label_on_gpus
from godwit.algorithms.components.distributed import DistributedComponentsResult
from godwit.distributed.gpu_graph import GpuGraph
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.rows import require_memory
from godwit.progress import ProgressArgument
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_components
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options
from godwit.worker.solve import make_poll


def connected_components(
    graph: GpuGraph,
    *,
    method: str = "auto",
    rounds: int | None = None,
    jumps: int | None = None,
    merge: str = "auto",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedComponentsResult:
    """Return the components of a range of vertices; see :func:`godwit.connected_components`."""
    options = query_options(timeout_s=timeout_s, progress=progress, gpu=gpu)
    arguments = method, rounds, jumps, merge, options.gpu
    with graph.running("connected_components", *arguments):
        steps, plain, own = graph.steps, graph.graph, graph.vertices
        query = ComponentsQuery.checked(
            plain, method, rounds, jumps, merge, has_gpu_options=gpu is not None
        )
        if query.method == "label-propagation":
            raise InputError(
                "method='label-propagation' does not run on GPUs of several processes: leave it out"
            )
        check_components(steps.devices, options.gpu, OF_STEPS)
        processes = steps.processes
        if processes is not None and not processes.change_each_other:
            options = replace(options, gpu=replace(options.gpu, transport="host"))
        if merge == "direct" and options.gpu.transport == "host":
            raise InputError(
                "merge='direct' needs GPUs whose atomics work in each other's memory, and not "
                "transport='host': leave it out"
            )
        statistics = RunStatistics((graph.device,), query.method)
        label, count = np.empty(0, plain.id_dtype), 0
        if plain.vertex_count:
            require_memory(
                len(own) * plain.id_dtype.itemsize, f"the components of {len(own):,} vertices"
            )
            union_query = query.on_gpus(plain.id_dtype, options, reverses=True)
            poll = make_poll(options)
            with statistics.phase("run"):
                outcome = _label_alone(graph, union_query, poll) if query.suits_one_gpu else None
                if outcome is not None:
                    count = outcome.components
                else:
                    outcome = label_on_gpus(steps, union_query, poll)
                    count = int(graph.processes.meet(outcome.components).sum())
            label = outcome.labels
            statistics.split_run(outcome.seconds)
            statistics.count_later(outcome.count)
        graph.processes.report(statistics)
        return DistributedComponentsResult(graph, label, graph.names_of(label), count, statistics)


def _label_alone(
    graph: GpuGraph, query: UnionQuery, poll: ProgressPoll | None
) -> UnionOutcome | None:
    """Return labels that each GPU has found alone; None if one has no room for the graph."""
    steps = graph.steps
    if steps.device_count == 1 or steps.any(not steps.has_room_for_copy()):
        return None
    outcome = None
    try:
        outcome = steps.run_on_copies(
            1, lambda copies: label_on_gpus(copies.placements[0], query, poll)
        )
    except GraphTooLargeError:
        steps.copies_fit = False
    return None if steps.any(outcome is None) else outcome
