"""Runs a step program on the cores: its text (text.py) compiled as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.errors import OperatorError
from godwit.frontier.code import StepCode, StepCounts, StepError, StepState, ends_with_arcs
from godwit.frontier.cpu import team
from godwit.frontier.cpu.text import ProgramText, accumulators_of
from godwit.graph.csr import Graph
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.team import new_control, run_team
from godwit.runtime.protocol import Device
from godwit.trace import seconds_since

ALONE_WORK = 30_000
"""Graphs of less work than this, in arcs and vertices, are left to one thread: meeting takes longer."""

_NOTHING = np.empty(0, np.int64)


def run_steps_on_cores(
    code: StepCode,
    graph: Graph,
    devices: Sequence[Device],
    state: StepState,
    poll: Callable[[int], None] | None,
) -> StepCounts:
    """Run a program to its end by a team: all cores, or as many threads as there are virtual devices."""
    threads = len(devices)
    if devices[0].shares_memory:
        small = graph.arc_count + graph.vertex_count < ALONE_WORK
        threads = 1 if small else config.thread_count()
    weighted = code.reads("weight") and graph.weights is not None
    shared = _shared(code, graph, state, threads, weighted=weighted)
    control = new_control()
    begin = perf_counter()
    kernel = code.compiled.get(("cpu", weighted))
    if kernel is None:
        kernel = code.compiled["cpu", weighted] = Kernel(ProgramText(code, weighted).entry())
    try:
        kernel.prepare(0, threads, control, shared)
    except OperatorError as error:
        raise OperatorError(f"step program {code.name!r}, {error}") from error.__cause__
    compile_s = seconds_since(begin, "compile")
    words = shared.words
    run_team(
        kernel,
        shared,
        threads=threads,
        control=control,
        poll=None if poll is None else lambda: poll(int(words[team.PROCESSED])),
        tracks=None
        if devices[0].shares_memory
        else [(device.name, "worker") for device in devices],
    )
    failed = int(words[team.FAILED])
    if failed:
        index, what = divmod(failed - 1, 2)
        raise StepError(index, "vertex" if what else "overflow")
    base, size = int(words[team.BASE]), int(words[team.LISTED])
    state.integers[:], state.floats[:] = shared.integers, shared.floats
    if code.has_arcs:
        state.arcs = shared.arcs if ends_with_arcs(code) else None
    state.frontier = np.sort(shared.frontiers[base : base + size])
    return StepCounts(
        supersteps=int(words[team.SUPERSTEPS]),
        processed=_of_team(words[team.PROCESSED], devices),
        arcs=_of_team(words[team.ARCS], devices),
        compile_s=compile_s,
    )


def _of_team(count: int, devices: Sequence[Device]) -> Array:
    """(devices) what was counted of work that nobody in particular owns."""
    return np.array([count, *[0] * (len(devices) - 1)], np.int64)


def _shared(
    code: StepCode, graph: Graph, state: StepState, threads: int, *, weighted: bool
) -> team.State:
    """The arrays that a team works on: of a run that fails, only fields remain changed."""
    n = graph.vertex_count
    reverse = graph.reverse if code.pulls else None
    blocks = n // team.BLOCK + 1
    frontiers = np.empty(2 * n, graph.targets.dtype)
    frontiers[: len(state.frontier)] = state.frontier
    words = (n + 31) // 32
    control_words = np.zeros(team.WORD_COUNT, np.int64)
    control_words[team.LISTED] = len(state.frontier)

    def weights_of(rows: Graph | None) -> Array:
        weights = None if rows is None or not weighted else rows.weights
        return frozen(_NOTHING if weights is None else weights)

    return team.State(
        offsets=graph.offsets,
        targets=graph.targets,
        weights=weights_of(graph),
        in_offsets=frozen(_NOTHING) if reverse is None else reverse.offsets,
        in_targets=frozen(_NOTHING, graph.targets.dtype) if reverse is None else reverse.targets,
        in_weights=weights_of(reverse),
        fields=tuple(state.fields),
        integers=state.integers.copy(),
        floats=state.floats.copy(),
        accumulators=tuple(
            np.full(n, identity, dtype) for dtype, identity in accumulators_of(code).values()
        ),
        frontiers=frontiers,
        touched=np.zeros(words, np.uint32),
        waiting=np.empty(words if code.pulls else 0, np.uint32),
        buffers=np.empty(threads * team.BUFFER, graph.targets.dtype),
        integer_parts=np.empty(blocks, np.int64),
        float_parts=np.empty(blocks, np.float64),
        arcs=_arc_flags(code, graph, state),
        words=control_words,
    )


def _arc_flags(code: StepCode, graph: Graph, state: StepState) -> Array:
    """A flag an arc, where the frontier may be of arcs."""
    if state.arcs is not None:
        return state.arcs.copy()
    return np.zeros(graph.arc_count if code.has_arcs else 0, np.uint8)
