"""Picture of a timeline, from what a trace's file holds (:meth:`godwit.Trace.to_dict`).

A row for each track, devices one below the other; what lies within another span is drawn lower, in front
of it. Lines across a row are instants. The legend says what the colours are: on tracks of kernels, copies,
links and waits all spans have one colour, elsewhere all spans of a name.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {"svg.hashsalt": "godwit", "svg.fonttype": "none", "font.size": 8}
"""Settings of matplotlib: equal timelines give equal SVG files, in which text is not stored as outlines."""
_WIDTH_INCHES, _ROW_INCHES, _MARGIN_INCHES = 9.0, 0.3, 0.7
_LEAST_LABELLED = 0.007
"""A span has its name in it if it is at least this share of the picture's width for each letter."""
_COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#8c6d31", "#b279a2", "#5f6b6d", "#2f4b7c",
)  # fmt: skip
_HATCHES = ("", "////", "....", "xxxx")
"""If there are more kinds than colours, the next kinds get the same colours with a hatch."""
_INSTANT_COLOUR = "0.2"
_LEGEND_COLUMNS = 6

_Event = dict[str, Any]


@dataclass
class _Track:
    """A row of the picture."""

    process: str
    name: str
    spans: list[_Event] = field(default_factory=list)
    instants: list[_Event] = field(default_factory=list)


def plot_timeline(
    events: list[_Event], place: Axes | Figure, begin_ms: float | None, end_ms: float | None
) -> Axes:
    """Draw a timeline, or what of it lies between two times.

    :param events: ``traceEvents`` of the file
    :param place: axes to draw on, or an empty figure, whose height becomes that of the tracks
    """
    from matplotlib.figure import Figure

    tracks = _tracks_of(events)
    ends = [
        each["ts"] + each.get("dur", 0) for track in tracks for each in track.spans + track.instants
    ]
    left = 0.0 if begin_ms is None else begin_ms
    right = max(max(ends, default=0) / 1e3, left + 1e-3) if end_ms is None else end_ms
    shown = [
        (span["ts"], _kind_of(track, span))
        for track in tracks
        for span in track.spans
        if _is_shown(span, left, right)
    ]
    kinds = list(dict.fromkeys(kind for _, kind in sorted(shown)))
    styles = {
        kind: {
            "facecolor": _COLOURS[index % len(_COLOURS)],
            "hatch": _HATCHES[index // len(_COLOURS) % len(_HATCHES)],
        }
        for index, kind in enumerate(kinds)
    }
    instants = {
        each["name"]
        for track in tracks
        for each in track.instants
        if left <= each["ts"] / 1e3 <= right
    }
    handles = _handles(styles, instants)
    legend: dict[str, Any] = {"handles": handles, "ncols": _LEGEND_COLUMNS, "frameon": False}
    if isinstance(place, Figure):
        rows = len(tracks) + 0.7 * math.ceil(len(handles) / _LEGEND_COLUMNS)
        place.set_size_inches(_WIDTH_INCHES, _MARGIN_INCHES + _ROW_INCHES * rows)
        place.set_layout_engine("constrained")
        axes = place.subplots()
        place.legend(loc="outside lower center", **legend)
    else:
        axes = place
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), **legend)
    for row, track in enumerate(tracks):
        _draw_track(axes, row, track, styles, left, right)
        if row and track.process != tracks[row - 1].process:
            axes.axhline(row - 0.5, color="0.7", linewidth=0.6)
    axes.set_xlim(left, right)
    axes.set_ylim(max(len(tracks), 1) - 0.5, -0.5)
    axes.set_yticks(range(len(tracks)), [f"{track.process}: {track.name}" for track in tracks])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("ms")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes


def _tracks_of(events: list[_Event]) -> list[_Track]:
    """Return the tracks in the order in which viewers show them, without those that are empty."""
    names: dict[str, dict[int, str]] = defaultdict(dict)
    order: dict[int, int] = {}
    for event in events:
        if event["ph"] == "M" and "name" in event["args"]:
            key = "pid" if event["name"] == "process_name" else "tid"
            names[key][event[key]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_sort_index":
            order[event["tid"]] = event["args"]["sort_index"]
    tracks: dict[int, _Track] = {}
    for event in events:
        if event["ph"] in "Xi":
            track = tracks.get(event["tid"])
            if track is None:
                track = _Track(names["pid"][event["pid"]], names["tid"][event["tid"]])
                tracks[event["tid"]] = track
            (track.spans if event["ph"] == "X" else track.instants).append(event)
    return [tracks[number] for number in sorted(tracks, key=order.__getitem__)]


def _is_shown(span: _Event, left: float, right: float) -> bool:
    """Return True if a part of a span lies between two times, in milliseconds."""
    return bool((span["ts"] + span["dur"]) / 1e3 >= left and span["ts"] / 1e3 <= right)


def _kind_of(track: _Track, span: _Event) -> str:
    """Return what the colour of a span stands for: the use of its track, or else its name."""
    if track.name.startswith("kernel"):
        return "kernel"
    if track.name.startswith("copy host -> "):
        return "copy to a GPU"
    if track.name.startswith("copy "):
        return "copy from a GPU"
    if track.name.startswith("wait"):
        return "wait"
    return "segment of a link" if "bytes" in span.get("args", {}) else str(span["name"])


def _handles(styles: dict[str, dict[str, Any]], instants: set[str]) -> list[Any]:
    """Return the entries of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(edgecolor="white", linewidth=0.3, label=kind, **style)
        for kind, style in styles.items()
    ]
    if instants:
        label = f"at an instant: {', '.join(sorted(instants))}"
        handles.append(Line2D([], [], color=_INSTANT_COLOUR, linewidth=0.6, label=label))
    return handles


def _depths_of(spans: list[_Event]) -> list[int]:
    """Return the number of spans that each lies within; they come in the order of time."""
    open_ends: list[float] = []
    depths = []
    for span in spans:
        while open_ends and open_ends[-1] <= span["ts"] + 5e-4:  # half a nanosecond
            open_ends.pop()
        depths.append(len(open_ends))
        open_ends.append(span["ts"] + span["dur"])
    return depths


def _draw_track(
    axes: Axes, row: int, track: _Track, styles: dict[str, dict[str, Any]], left: float, right: float
) -> None:  # fmt: skip
    depths = _depths_of(track.spans)
    lanes = 1 + max(depths, default=0)
    for span, depth in zip(track.spans, depths, strict=True):
        if not _is_shown(span, left, right):
            continue
        begin, length = span["ts"] / 1e3, span["dur"] / 1e3
        top, height = row - 0.42 + 0.84 * depth / lanes, 0.84 * (1 - depth / lanes)
        axes.broken_barh(
            [(begin, length)], (top, height), **styles[_kind_of(track, span)], linewidth=0.3,
            edgecolor="white",
        )  # fmt: skip
        begin, end = max(begin, left), min(begin + length, right)
        if end - begin > _LEAST_LABELLED * (right - left) * len(span["name"]):
            axes.text(
                begin + 0.003 * (right - left), top + 0.42 / lanes, span["name"],
                va="center", fontsize=8 if lanes == 1 else 5.5, color="white", clip_on=True,
            )  # fmt: skip
    for instant in track.instants:
        if left <= instant["ts"] / 1e3 <= right:
            axes.plot(
                [instant["ts"] / 1e3] * 2, [row - 0.42, row + 0.42], color=_INSTANT_COLOUR,
                linewidth=0.6,
            )  # fmt: skip
