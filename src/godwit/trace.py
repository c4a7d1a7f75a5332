"""Timelines of runs, in the Chrome trace event format.

A trace has a process for the host and for each device, and in each of them tracks: phases, kernels, copies,
workers, links. Spans, instants and counters are noted as tuples, which costs an append, and put into the
format's words only when the trace is written. In the file the spans of a track contain each other or are
apart, as viewers expect; of others, some go to a further track of that name.

The trace that is being recorded is a context variable (:func:`active`) and no argument, since it has to
reach readers, copies and teams of threads, which do not get the options of a run. Threads that are started
meanwhile get it from the thread that starts them.

Format: "Trace Event Format" (Chromium project), JSON object form; times in microseconds.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from godwit.errors import FileError, FormatError, InputError, shown
from godwit.files import check_writable, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOST = "host"
"""The process that is no device."""

PHASES = "phases"
"""The host's track of what a run is doing: the names are those of ``RunStatistics.seconds``."""

PROGRESS = "items processed"

_FIRST_TRACKS = (PHASES, "kernel", "worker")
_SPAN, _INSTANT, _COUNTER = "X", "i", "C"

_NOT_RECORDED = nullcontext()
_active: ContextVar[Trace | None] = ContextVar("godwit_trace", default=None)


class _Event(NamedTuple):
    kind: str
    process: str
    track: str
    name: str
    begin_s: float
    end_s: float
    arguments: dict[str, Any]


_Noted = tuple[str, str, str, str, float, float, dict[str, Any]]
"""An :class:`_Event` to be: a tuple takes no call to make, which is most of what adding one costs."""


class Trace:
    """A timeline, of one run or of several.

    >>> import godwit as gw
    >>> trace = gw.Trace()
    >>> distance = gw.bfs(gw.generators.path(4), 0, trace=trace).distance
    >>> trace.write("run.json")  # doctest: +SKIP

    Any thread may add to it. Times are those of :func:`time.perf_counter`, in seconds; what is given after
    the name is shown where a viewer is asked for details.
    """

    def __init__(self) -> None:
        self._begin_s = perf_counter()
        self._events: list[_Noted] = []

    def add(
        self, process: str, track: str, name: str, begin_s: float, end_s: float, **arguments: Any
    ) -> None:
        """Add something that took from one time to another."""
        self._events.append((_SPAN, process, track, name, begin_s, end_s, arguments))

    def instant(
        self, process: str, track: str, name: str, at_s: float | None = None, **arguments: Any
    ) -> None:
        """Add something that happened at a time, by default now."""
        at_s = perf_counter() if at_s is None else at_s
        self._events.append((_INSTANT, process, track, name, at_s, at_s, arguments))

    def count(
        self, name: str, value: float, *, process: str = HOST, at_s: float | None = None
    ) -> None:
        """Set a counter's value from a time on, by default from now on."""
        at_s = perf_counter() if at_s is None else at_s
        self._events.append((_COUNTER, process, name, name, at_s, at_s, {name: value}))

    @contextmanager
    def span(self, process: str, track: str, name: str, **arguments: Any) -> Iterator[None]:
        """Add the time of the block; if it fails, with the name of the exception."""
        begin_s = perf_counter()
        try:
            yield
        except BaseException as error:
            arguments["raised"] = type(error).__name__
            raise
        finally:
            self.add(process, track, name, begin_s, perf_counter(), **arguments)

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        """Record what the calling thread does in the block."""
        before = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(before)

    def to_dict(self) -> dict[str, Any]:
        """Return the file's content: ``traceEvents``, in the order of time."""
        noted = map(_Event._make, self._events.copy())  # other threads may add events meanwhile
        events = sorted(noted, key=lambda event: (event.begin_s, -event.end_s))
        begin_s = min([self._begin_s, *(event.begin_s for event in events[:1])])
        tracks = _tracks(events)
        places = _Places(set(tracks))
        written = [
            _written(event, begin_s, *places.numbers(place))
            for event, place in zip(events, tracks, strict=True)
        ]
        return {"traceEvents": [*places.metadata(), *written], "displayTimeUnit": "ms"}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, for ui.perfetto.dev or chrome://tracing; as a picture if the path ends
        in .pdf, .png or .svg.

        :raises InputError: a picture, and matplotlib is not installed
        :raises FileError: the file cannot be written
        """
        from godwit.plots import is_picture, require_matplotlib, save_plot

        if is_picture(path):
            matplotlib = require_matplotlib()
            from matplotlib.figure import Figure

            from godwit.trace_plot import STYLE, plot_timeline

            with matplotlib.rc_context(STYLE):
                events = self.to_dict()["traceEvents"]
                save_plot(plot_timeline(events, Figure(), None, None), path)
            return
        text = json.dumps(self.to_dict(), allow_nan=False, separators=(",", ":"))
        with replacing(path) as file:
            file.write(text.encode())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Trace:
        """Return a trace that :meth:`write` wrote as JSON, for example to plot it.

        :raises FileError: the file cannot be read
        :raises FormatError: it is no timeline of Godwit's
        """
        try:
            with open(path, "rb") as file:
                events = json.load(file)["traceEvents"]
        except OSError as error:
            raise FileError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(
                os.fspath(path), "not a timeline in the Chrome trace event format"
            ) from error
        trace = cls()
        trace._begin_s = 0.0
        try:
            names = {
                (event["name"], event["pid"], event["tid"]): event["args"]["name"]
                for event in events
                if event["ph"] == "M" and "name" in event["args"]
            }
            for event in events:
                if event["ph"] in (_SPAN, _INSTANT, _COUNTER):
                    process = str(names["process_name", event["pid"], 0])
                    name = str(event["name"])
                    track = str(names.get(("thread_name", event["pid"], event["tid"]), name))
                    begin_s = event["ts"] / 1e6
                    end_s = begin_s + event.get("dur", 0) / 1e6
                    if not math.isfinite(end_s):
                        raise ValueError(f"{name} ends at {end_s}")
                    arguments = dict(event.get("args", {}))
                    noted = (event["ph"], process, track, name, begin_s, end_s, arguments)
                    trace._events.append(noted)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(
                os.fspath(path), f"not a timeline that Godwit wrote: {error!r}"
            ) from error
        return trace

    def plot(
        self,
        ax: Axes | None = None,
        *,
        begin_ms: float | None = None,
        end_ms: float | None = None,
    ) -> Axes:
        """Draw the timeline with matplotlib: a row for each track, and a legend of the colours.

        :param ax: axes to draw on; by default those of a new figure
        :param begin_ms: what ends before this time is left out, in milliseconds from the trace's beginning
        :param end_ms: what begins after this time is left out
        :raises InputError: matplotlib is not installed, or an argument is wrong
        """
        from godwit.dtypes import as_float
        from godwit.plots import new_axes, require_matplotlib
        from godwit.trace_plot import plot_timeline

        begin = None if begin_ms is None else as_float(begin_ms, "begin_ms")
        end = None if end_ms is None else as_float(end_ms, "end_ms")
        if begin is not None and end is not None and not begin < end:
            raise InputError(f"begin_ms must be less than end_ms, got {begin:g} and {end:g}")
        require_matplotlib()
        from matplotlib import pyplot

        place = pyplot.figure() if ax is None else new_axes(ax)
        return plot_timeline(self.to_dict()["traceEvents"], place, begin, end)


TraceArgument = str | os.PathLike[str] | Trace | None


def active() -> Trace | None:
    """Return the trace that is being recorded in this context, or None."""
    return _active.get()


def recorded(
    target: TraceArgument, name: str, *, input_path: str | None = None
) -> AbstractContextManager[None]:
    """Record the block as a call of this name: into a file, into a trace, or into what is recorded already.

    A file is written when the block ends, well or not: of a run that fails it has what there was.

    :param input_path: what is read; writing over it is refused
    :raises InputError: the target is neither a path nor a trace
    :raises FileError: the file cannot be written, which is found out before the block begins
    """
    trace = active() if target is None else target
    return _NOT_RECORDED if trace is None else _recorded(trace, name, input_path)


@contextmanager
def _recorded(trace: Any, name: str, input_path: str | None) -> Iterator[None]:
    if isinstance(trace, Trace):
        with trace.recording(), trace.span(HOST, PHASES, name):
            yield
        return
    require_writable(trace, input_path)
    made = Trace()
    try:
        with made.recording(), made.span(HOST, PHASES, name):
            yield
    except BaseException as failure:
        try:
            made.write(trace)
        except FileError as error:  # what failed first is what matters
            failure.add_note(str(error))
        raise
    made.write(trace)


def require_writable(path: Any, input_path: str | None = None) -> None:
    """Check before a run whether its trace can be written.

    :param input_path: what is read; writing over it is refused
    :raises InputError: it is no path, or that of what is read, or that of a picture without matplotlib
    :raises FileError: the file cannot be written
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"trace must be a path such as 'run.json', or a godwit.Trace, got {shown(path)}"
        )
    from godwit.plots import is_picture, require_matplotlib

    if is_picture(path):
        require_matplotlib()
    check_writable(path, input_path)


def seconds_since(begin_s: float, phase: str) -> float:
    """Return the seconds since a time, and note them as a phase of the run."""
    end_s = perf_counter()
    trace = _active.get()
    if trace is not None:
        trace.add(HOST, PHASES, phase, begin_s, end_s)
    return end_s - begin_s


def copied(source: str, target: str, nbytes: int, begin_s: float) -> None:
    """Note a copy that has just ended, between two devices or the host and a device."""
    trace = active()
    if trace is not None and nbytes:
        track = f"copy {source} -> {target}"
        device = target if source == HOST else source
        trace.add(device, track, "copy", begin_s, perf_counter(), bytes=nbytes)


class _Places:
    """Numbers of processes and tracks: the host first, devices and tracks in the order of their names.

    Counters belong to a process, which is track None of it, and 0 by number.
    """

    def __init__(self, places: Iterable[tuple[str, str | None]]) -> None:
        ordered = sorted(
            places, key=lambda place: (_process_order(place[0]), _track_order(place[1]))
        )
        self._processes = {
            name: 1 + index for index, name in enumerate(dict.fromkeys(name for name, _ in ordered))
        }
        # No track has the number of a process: viewers would take it for the main thread of that.
        first = 1 + len(self._processes)
        self._tracks = {
            place: first + index if place[1] else 0 for index, place in enumerate(ordered)
        }

    def numbers(self, place: tuple[str, str | None]) -> tuple[int, int]:
        """Return the process id and the thread id that the trace uses for a (process, track) pair."""
        return self._processes[place[0]], self._tracks[place]

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yield names, and the order in which viewers show them."""
        for name, process in self._processes.items():
            yield _named("process_name", process, 0, name=name)
            yield _named("process_sort_index", process, 0, sort_index=process)
        for (name, track), thread in self._tracks.items():
            if track is not None:
                process = self._processes[name]
                yield _named("thread_name", process, thread, name=track)
                yield _named("thread_sort_index", process, thread, sort_index=thread)


def _named(what: str, process: int, track: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "ts": 0, "args": arguments}


def _tracks(events: Iterable[_Event]) -> list[tuple[str, str | None]]:
    """Return the process and track of each event; events come in the order of time."""
    open_ends: dict[tuple[str, str], list[list[float]]] = {}
    found: list[tuple[str, str | None]] = []
    for event in events:
        track: str | None = event.track
        if event.kind == _COUNTER:
            track = None
        elif event.kind == _SPAN:
            lane = _lane(open_ends.setdefault((event.process, event.track), []), event)
            track = f"{event.track} ({lane + 1})" if lane else event.track
        found.append((event.process, track))
    return found


def _lane(lanes: list[list[float]], span: _Event) -> int:
    """Return the first lane in which a span overlaps no other span, unless it lies within that.

    :param lanes: for each lane the end times of the spans that are open, outermost first; changed
    """
    for lane, ends in enumerate(lanes):
        while ends and ends[-1] <= span.begin_s:
            ends.pop()
        if not ends or span.end_s <= ends[-1]:
            ends.append(span.end_s)
            return lane
    lanes.append([span.end_s])
    return len(lanes) - 1


def _written(event: _Event, begin_s: float, process: int, track: int) -> dict[str, Any]:
    """Return an event in the format's words.

    Times are whole nanoseconds, rounded at both ends: spans that were within each other stay so.
    """
    begin_ns, end_ns = (round((at - begin_s) * 1e9) for at in (event.begin_s, event.end_s))
    written: dict[str, Any] = {
        "ph": event.kind,
        "name": event.name,
        "cat": "counter" if event.kind == _COUNTER else event.track.partition(" ")[0],
        "pid": process,
        "tid": track,
        "ts": begin_ns / 1000,
    }
    if event.kind == _SPAN:
        written["dur"] = max(0, end_ns - begin_ns) / 1000
    elif event.kind == _INSTANT:
        written["s"] = "t"
    if event.arguments:
        written["args"] = {name: _plain(value) for name, value in event.arguments.items()}
    return written


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, without infinities; unknown types become text."""
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _process_order(name: str) -> tuple[bool, list[Any]]:
    return name != HOST, _natural(name)


def _track_order(name: str | None) -> tuple[int, list[Any]]:
    name = name or ""
    kind = name.partition(" ")[0]
    known = kind in _FIRST_TRACKS
    return _FIRST_TRACKS.index(kind) if known else len(_FIRST_TRACKS), _natural(name)


def _natural(name: str) -> list[Any]:
    """Return a sort key that orders ``cuda:10`` behind ``cuda:9``.

    Text and numbers alternate, so only values of one type are compared.
    """
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]
