"""Connected components on GPUs: runs components.cuh, and downloads the labels."""

from __future__ import annotations

from itertools import permutations
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.components.queries import UnionOutcome, UnionQuery
from godwit.algorithms.components.tiles import is_tiled, lay_tiles, row_bits_bytes
from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.types import c_type
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_positions
from godwit.supersteps.rows import StepRows
from godwit.supersteps.run import PEERS, ROWS, STAGE, STEP, point_rows, step_run, step_source
from godwit.supersteps.schedules import left_rows_bytes

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("rows", ROWS),
        ("vertices", PEERS),
        ("long_rows", np.uint64),
        ("row_bits", np.uint64),
        ("heads", PEERS),
        ("parents", PEERS),
        ("labels", PEERS),
        ("words", np.int64),
        ("rounds", np.uint64),
        ("more_rounds", np.uint64),
        ("jumps", np.uint64),
        ("is_sampled", np.uint32),
        ("is_directed", np.uint32),
        ("has_long_rows", np.uint32),
        ("is_ascending", np.uint32),
        ("tile", np.uint32),
        ("padding", np.uint32),
    ]
)
"""``Arguments`` of algorithms/components/labels.cuh."""

MERGES = {"none": 0, "tree": 1, "direct": 2}
"""``MERGE`` of algorithms/components/forest.cuh."""

_CLASS_WARP, _CLASS_NONE = 2, 5
_ROWS_DONE, _ARCS_SEEN = 0, 1  # counts
_UNBOUNDED = 2**64 - 1
_SOME_VERTICES = 1024
_ALIKE = 0.15
"""Standard deviation over mean: of a 3-D stencil 0.07, of a Delaunay triangulation 0.22."""


def source(id_dtype: Any, merge: str, *, splices: bool, tiled: bool = False) -> str:
    """The kernel for positions of a dtype, a way in which devices come together, and a way to link.

    :param tiled: trees begin in tiles (algorithms/components/tiles.cuh)
    """
    types = {"Id": c_type(np.dtype(id_dtype))}
    text = step_source(
        "algorithms/components/components.cuh", ARGUMENTS, types=types, work="grid_components"
    )
    defined = {"MERGE": MERGES[merge], "SPLICES": str(splices).lower(), "TILED": str(tiled).lower()}
    return "".join(f"#define {name} {value}\n" for name, value in defined.items()) + text


def label_on_gpus(
    placement: StepPlacement, query: UnionQuery, poll: ProgressPoll | None
) -> UnionOutcome:
    """The smallest vertex of every vertex' component, into the query's destination.

    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    :raises DeviceError: devices whose atomics do not reach each other's memory, or that wait in vain
    """
    _require_atomics(placement)
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"a device would own {placement.capacity:,} vertices, and components take fewer than "
            f"{1 << 32:,} a device; use more GPUs"
        )
    tiled = is_tiled(placement, query)
    merge = _merge_of(placement, query, tiled)
    with placement.held():
        begin = perf_counter()
        rows = placement.rows("out")
        vertices = placement.vertices()
        seconds = {"rows": perf_counter() - begin}
        arguments = np.zeros(len(placement.parts), ARGUMENTS)
        code = source(placement.id_dtype, merge, splices=query.splices, tiled=tiled)
        with step_run(placement, code, arguments, query.gpu) as run:
            _bring_up(placement, query, merge, tiled, rows, arguments)
            for own in arguments:
                own["vertices"][: len(rows)] = [numbers.pointer for numbers in vertices]
                own["heads"][: len(rows)] = [one.heads.pointer for one in rows]
            for name in ("parents", "labels"):
                arguments[name] = run.exchange.shared(name)
            if tiled:
                lay_tiles(placement, run, arguments)
            run.prepare(early=True)
            seconds["kernel"] = run.drive(poll)
            controls = run.controls()
        seconds["compile"] = run.compile_s
        seconds["gather"] = deliver_positions(
            placement, "labels", placement.id_dtype, query.destination
        )
    return UnionOutcome(
        controls["run_counts"][:, _ROWS_DONE].astype(np.int64),
        controls["run_counts"][:, _ARCS_SEEN].astype(np.int64),
        controls["state"][:, STEP].astype(np.int64),
        seconds,
    )


def _require_atomics(placement: StepPlacement) -> None:
    """Every way to merge lowers labels at their owners; over some links atomics are none."""
    for here, there in permutations(sorted(set(placement.indexes)), 2):
        if not driver.peer_attribute("native_atomics", here, there):
            raise DeviceError(
                f"atomics of cuda:{here} do not work in the memory of cuda:{there}, as connected "
                "components on several GPUs need: use one GPU, or method='label-propagation'"
            )


def _merge_of(placement: StepPlacement, query: UnionQuery, tiled: bool) -> str:
    """How devices come together, by what was measured (docs/components.md).

    Directly, where hardly anything goes over the links: most arcs stay on their device; tiles, or rounds
    without atomics whose trees were compressed, have joined what is near; the rows of a graph with hubs are
    left out; or hooks stay near, as the order of ids was kept, since rows are short or all of one length.
    Else nearly every arc asks for both ends, half of them far away: forests are merged.
    """
    if len(placement.parts) == 1:
        return "none"
    if query.merge != "auto":
        return query.merge
    numbering = placement.numbering
    if tiled or numbering.stays_near:
        return "direct"
    stays_near = not query.splices and _degrees_are_alike(placement)
    if query.is_sampled:
        has_hubs = bool((numbering.classes[:, 1] > 0).any())
        stays_near = stays_near or has_hubs or not numbering.by_degree
    elif query.rounds > 0 and query.jumps != 0:
        stays_near = stays_near or not numbering.by_degree
    return "direct" if stays_near else "tree"


def _degrees_are_alike(placement: StepPlacement) -> bool:
    """Whether those of some vertices, apart from each other, are about the same."""
    offsets = placement.graph.offsets
    some = np.linspace(0, len(offsets) - 2, _SOME_VERTICES).astype(np.int64)
    degrees = offsets[some + 1] - offsets[some]
    degrees = degrees[degrees > 0]
    return len(degrees) > 0 and bool(degrees.std() < _ALIKE * degrees.mean())


def _bring_up(
    placement: StepPlacement,
    query: UnionQuery,
    merge: str,
    tiled: bool,
    rows: list[StepRows],
    arguments: Array,
) -> None:
    """Make room for everything, and fill in what a device knows of itself.

    :raises GraphTooLargeError: need against free
    """
    active = [int(one.classes[_CLASS_NONE]) for one in rows]
    words = active
    if merge == "tree":  # whole forests have a word for every vertex that any device has
        words = [len(active) * (placement.capacity if tiled else max(active))] * len(active)
    id_bytes = placement.id_dtype.itemsize
    sizes = [
        {
            "labels": id_bytes * placement.count,
            "parents": id_bytes * words[place],
            "left rows": left_rows_bytes("mixed", rows[place], placement.capacity),
            **({"row bits": row_bits_bytes(active[place])} if tiled else {}),
        }
        for place in range(len(rows))
    ]
    placement.make_room(sizes)
    for place, part in enumerate(placement.parts):
        own = arguments[place]
        point_rows(own["rows"], rows[place])
        own["long_rows"] = part.buffers["left rows"].pointer
        # In directed graphs classes are of in-degrees.
        is_directed = placement.graph.directed
        own["has_long_rows"] = is_directed or rows[place].classes[_CLASS_WARP] > 0
        own["words"] = words[place]
        own["rounds"] = query.rounds
        own["more_rounds"] = query.more_rounds
        own["jumps"] = _UNBOUNDED if query.jumps is None else query.jumps
        own["is_sampled"], own["is_directed"] = query.is_sampled, is_directed
