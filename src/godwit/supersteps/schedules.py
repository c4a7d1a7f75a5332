"""Which schedule shares the arcs of a frontier out among threads (schedule.cuh), and its memory."""

from __future__ import annotations

from godwit.errors import GraphTooLargeError
from godwit.runtime.gpu_options import Schedule
from godwit.supersteps.rows import StepRows

_STRUCTS: dict[Schedule, str] = {
    "mixed": "MixedSchedule",
    "thread": "ThreadSchedule",
    "warp": "WarpSchedule",
    "block": "BlockSchedule",
    "merge-path": "MergePathSchedule",
}
_ROW_BYTES: dict[Schedule, int] = {
    "mixed": 32,
    "thread": 0,
    "warp": 0,
    "block": 24,
    "merge-path": 16,
}
"""Of a row in the list: ``Row`` of each schedule."""

_LONG_ROW_ARCS = 256
"""Longer ones are left to the team by the mixed schedule: as in schedule_mixed.cuh."""
_MERGE_PATH_ARC_BITS = 36
_MERGE_PATH_ROW_BITS = 64 - _MERGE_PATH_ARC_BITS
"""Of the word that counts both: as in schedule_merge_path.cuh."""

_CLASS_NONE = 5


def schedule_define(schedule: Schedule) -> str:
    """What a kernel's text begins with; nothing for the usual one."""
    return "" if schedule == "mixed" else f"#define SCHEDULE {_STRUCTS[schedule]}\n"


def left_rows_bytes(schedule: Schedule, rows: StepRows, most_rows: int) -> int:
    """Room of a device's list of rows that are left to the team.

    :param rows: those that are pushed along
    :param most_rows: of them in a frontier
    :raises GraphTooLargeError: the merge path cannot count them
    """
    active = int(rows.classes[_CLASS_NONE])
    if schedule == "merge-path":
        _require_countable(active, rows.arcs)
    left = min(most_rows, active)
    if schedule == "mixed":
        left = min(left, rows.arcs // (_LONG_ROW_ARCS + 1))
    return max(1, _ROW_BYTES[schedule] * left)


def _require_countable(rows: int, arcs: int) -> None:
    """Whether rows, their numbers and arcs fit the words of schedule_merge_path.cuh."""
    if rows >= 1 << _MERGE_PATH_ROW_BITS or arcs >= 1 << _MERGE_PATH_ARC_BITS:
        raise GraphTooLargeError(
            f"schedule='merge-path' takes fewer than {1 << _MERGE_PATH_ROW_BITS:,} vertices and "
            f"{1 << _MERGE_PATH_ARC_BITS:,} arcs a device, and one has {rows:,} and {arcs:,}; use more "
            "GPUs, or schedule='mixed'"
        )
