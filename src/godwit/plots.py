"""Plots by matplotlib of what results and graphs hold, each on axes of the caller's or on new ones."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.errors import InputError, shown
from godwit.files import check_writable, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from godwit.dtypes import Array

FORMS = (".pdf", ".png", ".svg")
"""Endings of files that plots are written to."""

_MOST_BARS = 64
_BINS = 50
_MOST_POINTS = 2000
"""Points of a distribution, so that a picture of millions of vertices stays small."""
COLOR = "#1f5f8b"


def require_matplotlib() -> Any:
    """Return the module; raise InputError if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib: pip install matplotlib") from None
    return matplotlib


def is_picture(target: str | os.PathLike[str]) -> bool:
    """Return True if a path ends as one of a picture does."""
    return Path(target).suffix.lower() in FORMS


def new_axes(axes: Axes | None = None) -> Axes:
    """Return the axes, or new ones of a new figure; without lines above and to the right.

    :raises InputError: matplotlib is not installed, or these are no axes
    """
    require_matplotlib()
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    if axes is None:
        _, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    if not isinstance(axes, Axes):
        raise InputError(f"ax must be axes of matplotlib, got {shown(axes)}")
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def plot_counts(values: Array, label: str, axes: Axes | None = None, of: str = "vertices") -> Axes:
    """Draw how many vertices have each value: a bar for each integer, or for each range of values.

    :param values: (k) numbers; those that are infinite or NaN are left out
    :param of: what is counted
    """
    axes = new_axes(axes)
    values = np.asarray(values)
    values = values[np.isfinite(values)]
    is_whole = values.dtype.kind in "iub" and len(values) > 0
    if is_whole and int(values.max()) - int(values.min()) < _MOST_BARS:
        least = int(values.min())
        counts = np.bincount((values - least).astype(np.int64))
        axes.bar(np.arange(least, least + len(counts)), counts, width=0.85, color=COLOR)
        _tick_integers(axes.xaxis)
    else:
        counts, edges = np.histogram(values.astype(np.float64), _BINS)
        axes.stairs(counts, edges, fill=True, color=COLOR)
    _tick_integers(axes.yaxis)
    axes.set(xlabel=label, ylabel=of)
    axes.set_ylim(bottom=0)
    return axes


def plot_tail(values: Array, label: str, axes: Axes | None = None, color: Any = None) -> Axes:
    """Draw the share of vertices that have at least a value, on scales that suit their ranges.

    Values that are not positive have no place on a logarithmic scale, and those below 1e-12 of the largest
    would stretch it: they count as vertices only.

    :param values: (n) numbers
    """
    axes = new_axes(axes)
    is_whole = np.asarray(values).dtype.kind in "iu"
    values = np.asarray(values, np.float64)
    count = len(values)
    values = values[(values > 0) & np.isfinite(values)]
    distinct, counts = np.unique(
        values[values >= 1e-12 * values.max(initial=0)], return_counts=True
    )
    ranked, at_least = distinct[::-1], np.cumsum(counts[::-1])
    if len(ranked) > _MOST_POINTS:
        points = np.unique(np.geomspace(1, len(ranked), _MOST_POINTS).astype(np.int64)) - 1
        ranked, at_least = ranked[points], at_least[points]
    if len(ranked):
        axes.plot(ranked, at_least / count, ".", markersize=4, color=color or COLOR)
        axes.set(xscale=_scale(ranked), yscale=_scale(at_least))
        if is_whole and axes.get_xscale() == "linear":
            _tick_integers(axes.xaxis)
    axes.set(xlabel=label, ylabel="share of vertices with at least that")
    return axes


def plot_frequencies(
    values: Array, label: str, axes: Axes | None = None, of: str = "vertices"
) -> Axes:
    """Draw how often each integer occurs, on scales that suit their ranges; 0 has a place on each.

    :param values: (k) integers that are not negative
    """
    axes = new_axes(axes)
    present, counts = np.unique(np.asarray(values), return_counts=True)
    axes.plot(present, counts, ".", markersize=5, color=COLOR)
    if len(present):
        is_wide = _scale(present[present > 0]) == "log"
        if is_wide and present[0] == 0:
            axes.set_xscale("symlog", linthresh=1)  # linear up to 1
        elif is_wide:
            axes.set_xscale("log")
        axes.set_yscale(_scale(counts))
        if not is_wide:
            _tick_integers(axes.xaxis)
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
            _tick_integers(axes.yaxis)
    axes.set(xlabel=label, ylabel=of)
    return axes


def _tick_integers(axis: Any) -> None:
    """Put marks of a linear scale at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _scale(positive: Array) -> str:
    """Return the scale that suits numbers above 0: linear if they span less than a decade."""
    if len(positive) == 0:
        return "linear"
    return "log" if positive.max() >= 10 * positive.min() else "linear"


def check_plot(target: str | None, input_path: str) -> None:
    """Check that a plot can be made and written, before what it shows is computed.

    :param input_path: the file that is read, which must be another
    :raises InputError: matplotlib is not installed, or the ending is unknown
    :raises FileError: the file could not be written
    """
    if target is None:
        return
    if not is_picture(target):
        raise InputError(f"--plot must end in .pdf, .png or .svg, got {target!r}")
    require_matplotlib().use("Agg")
    check_writable(target, input_path)


def save_plot(axes: Axes, target: str | os.PathLike[str]) -> None:
    """Write the figure of axes to a file, which exists completely or not at all.

    :raises FileError: writing failed, and a previous file is unchanged
    """
    picture = io.BytesIO()
    figure: Any = axes.figure
    form = Path(target).suffix.lower()[1:]
    # Without the date, the file of the same plot is the same.
    figure.savefig(
        picture, format=form, dpi=200, metadata={"Date": None} if form == "svg" else None
    )
    with replacing(Path(target)) as file:
        file.write(picture.getvalue())
