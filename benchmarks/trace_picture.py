"""A picture of a timeline that trace= wrote, as SVG: the same file for the same timeline.

    python benchmarks/trace_picture.py run.json docs/images/trace.svg
    python benchmarks/trace_picture.py run.json zoomed.svg --begin-ms 20 --end-ms 35

A row for each track, devices one below the other; what lies within another span is drawn lower, in front of
it. Lines across a row are instants. The legend says what the colours are: on tracks of kernels, copies,
links and waits all spans have one colour, elsewhere all spans of a name. Without the ``--begin-ms`` and
``--end-ms`` it shows all.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STYLE = {"svg.hashsalt": "godwit", "svg.fonttype": "none", "font.size": 8}
WIDTH_INCHES, ROW_INCHES, MARGIN_INCHES = 9.0, 0.3, 0.7
LEAST_LABELLED = 0.007
"""Of the width, for each letter of a name, below which it is left out."""
COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#8c6d31", "#b279a2", "#5f6b6d", "#2f4b7c",
)  # fmt: skip
HATCHES = ("", "////", "....", "xxxx")
"""Further kinds than there are colours have them again, hatched."""
INSTANT_COLOUR = "0.2"
LEGEND_COLUMNS = 6

Event = dict[str, Any]


@dataclass
class Track:
    """What there is to draw in a row."""

    process: str
    name: str
    spans: list[Event] = field(default_factory=list)
    instants: list[Event] = field(default_factory=list)


def tracks_of(events: list[Event]) -> list[Track]:
    """In the order in which viewers show them; those of which there is nothing to draw are left out."""
    named: dict[str, dict[int, str]] = defaultdict(dict)
    order: dict[int, int] = {}
    for event in events:
        if event["ph"] == "M" and "name" in event["args"]:
            key = "pid" if event["name"] == "process_name" else "tid"
            named[key][event[key]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_sort_index":
            order[event["tid"]] = event["args"]["sort_index"]
    found: dict[int, Track] = {}
    for event in events:
        if event["ph"] in "Xi":
            track = found.get(event["tid"])
            if track is None:
                names = named["pid"][event["pid"]], named["tid"][event["tid"]]
                track = found[event["tid"]] = Track(*names)
            (track.spans if event["ph"] == "X" else track.instants).append(event)
    return [found[number] for number in sorted(found, key=lambda number: order[number])]


def kind_of(track: Track, span: Event) -> str:
    """What the colour of a span means: what its track is for, or else its name."""
    if track.name.startswith("kernel"):
        return "kernel"
    if track.name.startswith("copy host -> "):
        return "copy to a GPU"
    if track.name.startswith("copy "):
        return "copy from a GPU"
    if track.name.startswith("wait"):
        return "wait"
    return "segment of a link" if "bytes" in span.get("args", {}) else str(span["name"])


def depths_of(spans: list[Event]) -> list[int]:
    """How many spans each lies within; they come in the order of time."""
    open_ends: list[float] = []
    depths = []
    for span in spans:
        while open_ends and open_ends[-1] <= span["ts"] + 5e-4:  # half a nanosecond
            open_ends.pop()
        depths.append(len(open_ends))
        open_ends.append(span["ts"] + span["dur"])
    return depths


def draw(
    found: dict[str, Any],
    path: Path,
    begin_ms: float | None = None,
    end_ms: float | None = None,
) -> None:
    """Draw a timeline, or what of it lies between two times."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    tracks = tracks_of(found["traceEvents"])
    ends = [
        event["ts"] + event.get("dur", 0) for one in tracks for event in one.spans + one.instants
    ]
    left = 0.0 if begin_ms is None else begin_ms
    right = max(ends, default=1e3) / 1e3 if end_ms is None else end_ms
    shown = [
        (span["ts"], kind_of(track, span))
        for track in tracks
        for span in track.spans
        if (span["ts"] + span["dur"]) / 1e3 >= left and span["ts"] / 1e3 <= right
    ]
    kinds = list(dict.fromkeys(kind for _, kind in sorted(shown)))
    styles = {
        kind: {
            "facecolor": COLOURS[place % len(COLOURS)],
            "hatch": HATCHES[place // len(COLOURS) % len(HATCHES)],
        }
        for place, kind in enumerate(kinds)
    }
    instants = {
        instant["name"]
        for track in tracks
        for instant in track.instants
        if left <= instant["ts"] / 1e3 <= right
    }
    entries = len(kinds) + bool(instants)
    with matplotlib.rc_context(STYLE):
        rows = len(tracks) + 0.7 * math.ceil(entries / LEGEND_COLUMNS)
        height = MARGIN_INCHES + ROW_INCHES * rows
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.subplots()
        for row, track in enumerate(tracks):
            _draw_track(axes, row, track, styles, left, right)
            if row and track.process != tracks[row - 1].process:
                axes.axhline(row - 0.5, color="0.7", linewidth=0.6)
        axes.set_xlim(left, right)
        axes.set_ylim(len(tracks) - 0.5, -0.5)
        axes.set_yticks(range(len(tracks)), [f"{one.process}: {one.name}" for one in tracks])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("ms")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        handles: list[Any] = [
            Patch(edgecolor="white", linewidth=0.3, label=kind, **style)
            for kind, style in styles.items()
        ]
        if instants:
            label = f"at an instant: {', '.join(sorted(instants))}"
            handles.append(Line2D([], [], color=INSTANT_COLOUR, linewidth=0.6, label=label))
        figure.legend(
            handles=handles, loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_track(
    axes: Any, row: int, track: Track, styles: dict[str, dict[str, Any]], left: float, right: float
) -> None:
    depths = depths_of(track.spans)
    lanes = 1 + max(depths, default=0)
    for span, depth in zip(track.spans, depths, strict=True):
        begin, length = span["ts"] / 1e3, span["dur"] / 1e3
        if begin + length < left or begin > right:
            continue
        top, height = row - 0.42 + 0.84 * depth / lanes, 0.84 * (1 - depth / lanes)
        axes.broken_barh(
            [(begin, length)], (top, height), **styles[kind_of(track, span)], linewidth=0.3,
            edgecolor="white",
        )  # fmt: skip
        begin, end = max(begin, left), min(begin + length, right)
        if end - begin > LEAST_LABELLED * (right - left) * len(span["name"]):
            axes.text(
                begin + 0.003 * (right - left), top + 0.42 / lanes, span["name"],
                va="center", fontsize=8 if lanes == 1 else 5.5, color="white", clip_on=True,
            )  # fmt: skip
    for instant in track.instants:
        if left <= instant["ts"] / 1e3 <= right:
            axes.plot(
                [instant["ts"] / 1e3] * 2, [row - 0.42, row + 0.42], INSTANT_COLOUR, linewidth=0.6
            )


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path, help="what trace= or --trace wrote")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    parser.add_argument("--begin-ms", type=float)
    parser.add_argument("--end-ms", type=float)
    given = parser.parse_args(arguments)
    draw(json.loads(given.trace.read_text()), given.picture, given.begin_ms, given.end_ms)


if __name__ == "__main__":
    main()
