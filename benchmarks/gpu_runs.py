"""What benchmarks of many settings on GPUs have in common: options, rows that are written as they come."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.runtime.cuda import driver
from gpu_paths import device_list

Row = dict[str, Any]
Found = dict[Any, Row]
"""A row for each setting."""
Plans = dict[str, list[tuple[str, Any]]]
"""By section: names of rows, and their settings (dataclasses)."""

OUT_OF_TIME = "not run: out of time (--budget-s)"


class ElsewhereError(Exception):
    """A query that was to run on GPUs ran somewhere else."""


def kernel_ms(statistics: Any, devices: str) -> float:
    """Milliseconds of the algorithm itself: of kernels, and of what the host copies between them."""
    if devices == "cpu":
        return 1e3 * float(statistics.run_s)
    if "kernel" not in statistics.seconds:
        raise ElsewhereError(f"no kernel ran: solver {statistics.solver!r} on {statistics.devices}")
    return 1e3 * float(statistics.seconds["kernel"] + statistics.seconds.get("exchange", 0.0))


def options(
    description: str | None, *, repeats: int, setting_s: float, timeout_s: float = 20.0
) -> argparse.ArgumentParser:
    """The options of all these benchmarks, with what they are by default; add further ones to it."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=repeats, help="after the first run")
    parser.add_argument(
        "--setting-s", type=float, default=setting_s,
        help="no further run of a setting after so long",
    )  # fmt: skip
    parser.add_argument("--timeout-s", type=float, default=timeout_s, help="of one run")
    parser.add_argument(
        "--budget-s", type=float, default=np.inf, help="settings that come later are left out"
    )
    parser.add_argument("--json", help="file to write all rows to")
    return parser


def limits_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What the command line says; ``deadline`` is by ``perf_counter``."""
    limits = parser.parse_args()
    limits.deadline = perf_counter() + limits.budget_s
    limits.repeats = max(1, limits.repeats)
    return limits


def chosen(option: str, text: str, known: Iterable[str]) -> list[str]:
    """The names in a list, of those that are known; one at least."""
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        sys.exit(f"{option} takes {', '.join(known)}, not {', '.join(unknown) or repr(text)}")
    return names


def chosen_devices(text: str | None, *, tiny: bool) -> list[str]:
    """What to run on: GPUs, or the CPU, if there are none, nobody named any, and graphs are tiny."""
    if text is None and tiny and driver.device_count() == 0:
        return ["cpu"]
    text = "1,2,4" if text is None else text
    if not re.fullmatch(r"([1-9]\d*|\d+(\+\d+)+)(,([1-9]\d*|\d+(\+\d+)+))*", text):
        sys.exit(f"--devices takes numbers of GPUs, or such as 0+0, by commas, not {text!r}")
    return usable(text)


def usable(devices: str) -> list[str]:
    """Of the lists of devices, those that are there."""
    count = driver.device_count()
    if count == 0:
        sys.exit(f"there is no GPU: {driver.why_not()}")
    kept = []
    for text in devices.split(","):
        if all(int(name.partition(":")[2]) < count for name in device_list(text)):
            kept.append(text)
        else:
            print(f"# {text} GPUs left out: there are {count}")
    return kept or sys.exit("none of these GPUs is there")


def run(
    plans: Plans,
    measure: Callable[[Sequence[Any]], Iterable[Found]],
    show: Callable[[Sequence[Row]], None],
    path: str | None,
    facts: Mapping[str, Any],
) -> None:
    """Measure the settings of all sections, once each, and show the rows; status 1 if one is wrong.

    :param measure: rows of settings, as they come
    :param path: file that has, at any time, the facts and all rows so far
    """
    names = [device.description for device in gw.all_devices() if device.kind == "cuda"]
    found: Found = {}
    for some in measure([setting for plan in plans.values() for _, setting in plan]):
        found |= some
        if path:
            _write(path, {"gpus": names, **facts, "rows": _rows(plans, found)})
    rows = _rows(plans, found)
    show(rows)
    faults = [row for row in rows if row.get("wrong") or row.get("note", "").startswith("failed")]
    if faults:
        sys.exit(f"{len(faults)} rows failed, or have a WRONG result")


def _rows(plans: Plans, found: Found) -> list[Row]:
    """What there is so far, section by section."""
    return [
        {"section": section, "name": name} | asdict(setting) | found[setting]
        for section, plan in plans.items()
        for name, setting in plan
        if setting in found
    ]


def _write(path: str, document: Row) -> None:
    """Whole or not at all."""
    partial = Path(f"{path}.part")
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(path)
