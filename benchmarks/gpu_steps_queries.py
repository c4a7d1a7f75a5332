"""The queries of gpu_steps.py: what each of its algorithms asks of a placed graph.

Step programs are those of ``examples/``, and levels: breadth-first search by ``advance``, which is fused
with the filter that follows it, or unfused: the arcs that lead on are a frontier of their own in between.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import godwit as gw
from godwit.algorithms.pagerank.cuda import RankArrays
from godwit.frontier.cuda.run import ProgramArrays
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.supersteps import place_positions
from gpu_steps_plans import (
    FIXED,
    LEVELS,
    LEVELS_AUTO,
    LEVELS_PULLED,
    MAXIMUM,
    PUSHED,
    RANKS_TO,
    STEP_LEVELS,
    SUPERSTEPS,
    UNFUSED,
    UNIONS,
    Setting,
    device_names,
)

if TYPE_CHECKING:
    from gpu_steps_checks import Reference

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from connected_components import COMPONENTS
from greedy_colouring import GREEDY_COLOURING
from k_core import K_CORE
from label_propagation import LABEL_PROPAGATION

EXAMPLES = {"components": COMPONENTS, "k-core": K_CORE, "colouring": GREEDY_COLOURING}
FAR = 2**31 - 1
TINY_TOLERANCE = 1e-30
"""Of PageRank: below what an iteration changes, so that there are as many as are allowed."""

_ITEM_BYTES = 2 * 4  # there are two queues


class UnknownSizeError(Exception):
    """A fixed size is wanted, and no run before has told it."""


@cache
def levels(algorithm: str) -> gw.StepProgram:
    """Breadth-first search of that name."""

    def is_far(level_at_target: int) -> bool:
        return level_at_target == FAR

    directions: dict[str, dict[str, Any]] = {
        LEVELS: {},
        LEVELS_PULLED: {"direction": "pull", "candidates": lambda level: level == FAR},
        LEVELS_AUTO: {"direction": "auto", "candidates": lambda level: level == FAR},
        UNFUSED: {},
    }
    advance = gw.frontier.advance("level", lambda now: now, "min", **directions[algorithm])
    return gw.StepProgram(
        name=algorithm,
        fields={"level": ("int32", FAR)},
        numbers={"now": "int64"},
        steps=[
            gw.frontier.compute("level", lambda: 0),
            gw.frontier.repeat(
                [
                    gw.frontier.assign("now", lambda now: now + 1),
                    *([gw.frontier.arcs(is_far)] if algorithm == UNFUSED else []),
                    advance,
                ],
                until=lambda size: size == 0,
            ),
        ],
    )


def query(placed: gw.PlacedGraph, setting: Setting, known: Reference, limits: Any) -> Any:
    """Ask once."""
    algorithm, source = setting.algorithm, known.source
    options = {"gpu": gpu_options(setting, known), "timeout_s": limits.timeout_s}
    if algorithm in STEP_LEVELS:
        return levels(algorithm).run(placed, [source], **options)
    if setting.is_program:
        fields = {"rank": known.colouring_ranks} if algorithm == "colouring" else None
        return EXAMPLES[algorithm].run(placed, fields=fields, **options)
    if algorithm in UNIONS:
        return gw.connected_components(placed, **UNIONS[algorithm], **options)
    if algorithm == "labels":
        return gw.run(LABEL_PROPAGATION, placed, execution=SUPERSTEPS, **options)
    if algorithm == "sssp":
        return gw.sssp(placed, source, execution=SUPERSTEPS, **options)
    if algorithm == "bfs":
        return gw.bfs(placed, source, execution=setting.execution, **options)
    if algorithm == PUSHED:
        return gw.bfs(placed, source, execution=SUPERSTEPS, **options)
    if algorithm == "pagerank":
        return gw.pagerank(
            placed,
            dtype=setting.dtype,
            max_iterations=limits.iterations,
            tolerance=TINY_TOLERANCE,
            accelerated=False,
            **options,
        )
    if algorithm in RANKS_TO:
        return gw.pagerank(placed, dtype=setting.dtype, accelerated=RANKS_TO[algorithm], **options)
    return gw.betweenness_centrality(
        placed, sources=known.sources(setting.sources), normalized=False, weighted=False, **options
    )


def gpu_options(setting: Setting, known: Reference) -> gw.GpuOptions:
    """The options, with numbers for what is named.

    :raises UnknownSizeError: no run before this has told a fixed size
    """
    options = dict(setting.gpu)
    if setting.algorithm == PUSHED:
        options["turn_down"] = math.inf
    if options.get("frontier_items") == MAXIMUM:
        options["frontier_items"] = known.graph.vertex_count
    elif options.get("frontier_items") == FIXED:
        if setting.devices not in known.frontier_items:
            raise UnknownSizeError("no run before has told the size")
        options["frontier_items"] = known.frontier_items[setting.devices]
    return ExperimentOptions(**options)


def note_size(setting: Setting, known: Reference, nbytes: int) -> None:
    """Keep what the queues of a run had grown to: the least is enough."""
    if setting.algorithm == PUSHED:
        items = nbytes // (_ITEM_BYTES * len(device_names(setting.devices)))
        before = known.frontier_items.get(setting.devices, items)
        known.frontier_items[setting.devices] = min(before, items)


def carried_bytes(placed: gw.PlacedGraph, setting: Setting) -> int | None:
    """Of what vertices carry in PageRank: of the GPU that has most; None where there is no such thing."""
    if setting.devices == "cpu" or setting.algorithm != "pagerank":
        return None
    if "transport" in dict(setting.gpu):  # on what other settings have left there
        return None
    steps: Any = place_positions(placed)
    carried = steps.kept(RankArrays).carried[setting.dtype]
    return max(sum(array.nbytes(part) for array in carried) for part in steps.parts)


def frontier_bytes(placed: gw.PlacedGraph, setting: Setting, statistics: Any) -> int | None:
    """Of what keeps frontiers on all GPUs: queues; of step programs bitmaps and flags of arcs, too."""
    if setting.devices == "cpu" or not setting.is_program:
        found: int | None = statistics.frontier_bytes
        return found
    steps = place_positions(placed)
    arrays = steps.kept(ProgramArrays)
    kept = (arrays.frontier, *arrays.queue, arrays.queues, arrays.left_rows, arrays.arcs)
    return sum(array.nbytes(part) for part in steps.parts for array in kept)
