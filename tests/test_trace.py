"""Timelines are valid, say what happened where, are written whatever happens, and cost nothing when off."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit import trace as tracing
from godwit.cli.application import app
from godwit.errors import FileError, FormatError, GodwitError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.slices import SlicedRun
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.trace import Trace, active, recorded, seconds_since
from worklist_operators import split, split_fanout, split_owner, split_state

GRAPH = gw.generate("rmat:9,seed=1,weights=1..64")
ROAD = gw.generators.path(64)

LEVELS = gw.StepProgram(
    name="levels",
    fields={"level": ("int32", 2**31 - 1)},
    numbers={"now": ("int64", 0)},
    steps=[
        gw.frontier.compute("level", lambda: 0),
        gw.frontier.repeat(
            [
                gw.frontier.assign("now", lambda now: now + 1),
                gw.frontier.advance("level", lambda now: now, "min"),
            ],
            until=lambda size: size == 0,
        ),
    ],
)
COUNTING = gw.VertexProgram(
    name="counting", dtype="int32", message=lambda value: value + 1, combine="min"
)

RUNS: dict[str, Callable[..., Any]] = {
    "bfs": lambda **asked: gw.bfs(GRAPH, 0, **asked),
    "sssp": lambda **asked: gw.sssp(GRAPH, 0, **asked),
    "pagerank": lambda **asked: gw.pagerank(GRAPH, **asked),
    "betweenness": lambda **asked: gw.betweenness_centrality(
        GRAPH, sources=[0], weighted=False, **asked
    ),
    "connected_components": lambda **asked: gw.connected_components(GRAPH, merge="direct", **asked),
    "counting": lambda **asked: gw.run(COUNTING, GRAPH, {0: 0}, **asked),
    "levels": lambda **asked: LEVELS.run(GRAPH, [0], **asked),
}
"""Every function that takes a trace, by the name of its call there."""
DIVIDED = ("bfs", "sssp", "counting", "levels")
"""Those that run on several virtual devices of the CPU."""


class Timeline:
    """What a file holds, by process and track, after it was found to be valid."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.events = found["traceEvents"]
        for event in self.events:
            assert {"ph", "name", "ts", "pid", "tid"} <= event.keys()
            assert event["ts"] >= 0
            assert event["ph"] in "MXiC"
        self.process_names = self._named("process_name", "pid")
        self.track_names = self._named("thread_name", "tid")
        assert not self.process_names.keys() & self.track_names.keys()
        self.orders = self._named("thread_sort_index", "tid", "sort_index")
        self.spans: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self.instants: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.counts: dict[str, list[float]] = defaultdict(list)
        for event in self.events:
            if event["ph"] == "X":
                self.spans[self._place(event)].append(event)
            elif event["ph"] == "i":
                assert event["s"] == "t"
                self.instants[self._place(event)].append(event["name"])
            elif event["ph"] == "C":
                self.counts[event["name"]].append(event["args"][event["name"]])
        for spans in self.spans.values():
            _check_nesting(spans)

    def _named(self, what: str, number: str, key: str = "name") -> dict[int, Any]:
        named = [event for event in self.events if event["ph"] == "M" and event["name"] == what]
        found = {event[number]: event["args"][key] for event in named}
        assert len(found) == len(named)  # no number stands for two
        return found

    def _place(self, event: dict[str, Any]) -> tuple[str, str]:
        return self.process_names[event["pid"]], self.track_names[event["tid"]]

    @property
    def phases(self) -> list[str]:
        """Names of the host's phases."""
        return [span["name"] for span in self.spans["host", "phases"]]

    def phase(self, name: str) -> dict[str, Any]:
        """The only phase of a name."""
        (found,) = (span for span in self.spans["host", "phases"] if span["name"] == name)
        return found

    def first(self, name: str) -> dict[str, Any]:
        """The first phase of a name, which there may be several of."""
        return next(span for span in self.spans["host", "phases"] if span["name"] == name)

    def within(self, inner: dict[str, Any], outer: dict[str, Any]) -> bool:
        """Whether a span is a part of another."""
        return _ns(inner)[0] >= _ns(outer)[0] and _ns(inner)[1] <= _ns(outer)[1]


def _ns(span: dict[str, Any]) -> tuple[int, int]:
    begin = round(span["ts"] * 1000)
    return begin, begin + round(span["dur"] * 1000)


def _check_nesting(spans: list[dict[str, Any]]) -> None:
    """Each span is within the last that is open, or behind it; they come in the order of time."""
    open_ends: list[int] = []
    last = 0
    for span in spans:
        begin, end = _ns(span)
        assert last <= begin <= end
        last = begin
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], span
        open_ends.append(end)


def _never(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def read(path: Path) -> Timeline:
    return Timeline(json.loads(path.read_text(), parse_constant=_never))


def written(trace: Trace) -> Timeline:
    """By way of JSON, as a file has it."""
    return Timeline(json.loads(json.dumps(trace.to_dict(), allow_nan=False)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


@pytest.fixture
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


class TestTrace:
    def test_spans_of_a_track_contain_each_other_or_go_to_a_further_track(self) -> None:
        trace = Trace()
        at = trace._begin_s
        for begin, end in [(0, 10), (1, 2), (2, 3), (2, 12), (9, 10), (10, 11), (11, 11), (4, 13)]:
            trace.add("cuda:0", "kernel", f"{begin}-{end}", at + begin, at + end)
        trace.add("cuda:0", "kernel", "inner", at + 20, at + 21)  # noted when it ends: first
        trace.add("cuda:0", "kernel", "outer", at + 20, at + 22)
        spans = written(trace).spans
        names = {track: [span["name"] for span in own] for (_, track), own in spans.items() if own}
        assert names == {
            "kernel": ["0-10", "1-2", "2-3", "9-10", "10-11", "11-11", "outer", "inner"],
            "kernel (2)": ["2-12"],
            "kernel (3)": ["4-13"],
        }

    def test_what_begins_and_ends_together_is_nested_to_the_nanosecond(self) -> None:
        trace = Trace()
        at = trace._begin_s
        for step in range(200):
            begin, end = at + step / 3e6, at + (step + 1) / 3e6
            trace.add("host", "phases", "outer", begin, end)
            trace.add("host", "phases", "inner", begin + 1e-10, end)
        timeline = written(trace)
        assert len(timeline.spans["host", "phases"]) == 400

    def test_the_host_comes_first_and_devices_in_their_order(self) -> None:
        trace = Trace()
        for device in ("cuda:10", "cuda:9", "host", "cpu:0"):
            for track in (
                "wait",
                "copy host -> cuda:10",
                "copy host -> cuda:9",
                "kernel",
                "phases",
            ):
                trace.instant(device, track, "here")
        timeline = written(trace)
        assert list(timeline.process_names.values()) == ["host", "cpu:0", "cuda:9", "cuda:10"]
        shown = sorted(timeline.track_names, key=lambda track: timeline.orders[track])
        assert [timeline.track_names[track] for track in shown[:5]] == [
            "phases", "kernel", "copy host -> cuda:9", "copy host -> cuda:10", "wait",
        ]  # fmt: skip

    def test_arguments_are_what_json_has(self) -> None:
        trace = Trace()
        given = {"a": np.int64(3), "b": np.inf, "c": np.arange(2), "d": Path("x"), "e": None}
        trace.add("host", "phases", "one", 1.0, 2.0, **given, name_of=[float("nan")])
        (span,) = written(trace).spans["host", "phases"]
        expected = {"a": 3, "b": "inf", "c": [0, 1], "d": "x", "e": None, "name_of": ["nan"]}
        assert span["args"] == expected

    def test_times_count_from_the_first(self) -> None:
        trace = Trace()
        begin = trace._begin_s
        trace.add("host", "phases", "earlier", begin - 2.0, begin - 1.0)
        trace.instant("host", "phases", "later", begin + 0.5)
        trace.count("items", 7, at_s=begin + 1.0)
        times = [event["ts"] for event in written(trace).events if event["ph"] != "M"]
        assert times == pytest.approx([0.0, 2.5e6, 3e6])

    def test_many_threads_add_at_once(self) -> None:
        trace = Trace()

        def work(rank: int) -> None:
            for step in range(500):
                with trace.span("host", f"thread {rank}", str(step)):
                    pass

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spans = written(trace).spans
        for rank in range(8):
            assert [span["name"] for span in spans["host", f"thread {rank}"]] == [
                str(step) for step in range(500)
            ]

    def test_a_span_says_what_ended_it(self) -> None:
        trace = Trace()
        with pytest.raises(KeyboardInterrupt), trace.span("host", "phases", "run", size=3):
            raise KeyboardInterrupt
        (span,) = written(trace).spans["host", "phases"]
        assert span["args"] == {"size": 3, "raised": "KeyboardInterrupt"}

    def test_only_the_thread_that_records_has_it(self) -> None:
        trace, seen = Trace(), []
        with trace.recording():
            assert active() is trace
            thread = threading.Thread(target=lambda: seen.append(active()))
            thread.start()
            thread.join()
            with Trace().recording() as inner:
                assert active() is inner
            assert active() is trace
        assert active() is None
        assert seen == [None]

    def test_a_phase_is_as_long_as_it_says(self) -> None:
        trace = Trace()
        with trace.recording():
            seconds = seconds_since(trace._begin_s, "read")
        span = written(trace).phase("read")
        assert span["dur"] == pytest.approx(1e6 * seconds, abs=0.01)
        assert span["ts"] == 0

    def test_a_file_that_cannot_be_written_stays_as_it_was(self, path: Path) -> None:
        path.write_text("before")
        path.chmod(0o640)
        trace = Trace()
        trace.add("host", "phases", "bad", 0.0, 1.0, value=3)
        trace.write(path)
        assert read(path).phases == ["bad"]
        assert path.stat().st_mode & 0o777 == 0o640
        with pytest.raises(FileError, match="cannot write"):
            trace.write(path / "below")
        assert [one.name for one in path.parent.iterdir()] == ["run.json"]


class TestOnCores:
    @pytest.mark.parametrize("name", RUNS)
    def test_a_run_on_all_cores(self, name: str, path: Path) -> None:
        plain = RUNS[name](devices="cpu")
        result = RUNS[name](devices="cpu", trace=path)
        timeline = read(path)
        assert timeline.phases[0] == name
        call = timeline.phase(name)
        assert "raised" not in call.get("args", {})
        assert set(timeline.process_names.values()) == {"host"}
        threads = [track for _, track in timeline.spans if track.startswith("thread ")]
        assert threads
        run = timeline.first("run")
        at_work = [span for track in threads for span in timeline.spans["host", track]]
        assert any(timeline.within(span, run) for span in at_work)
        for span in at_work:
            assert timeline.within(span, call)
        phases = {
            phase: seconds
            for phase, seconds in result.statistics.seconds.items()
            if phase in ("partition", "place", "gather") and seconds > 0
        }
        for phase, seconds in phases.items():
            assert timeline.phase(phase)["dur"] / 1e6 == pytest.approx(seconds, rel=1e-3, abs=1e-8)
        assert result.statistics.solver == plain.statistics.solver

    @pytest.mark.parametrize("name", DIVIDED)
    def test_virtual_devices_are_processes(self, name: str, path: Path) -> None:
        devices = ["cpu:2", "cpu:0"]
        result = RUNS[name](devices=devices, trace=str(path))
        timeline = read(path)
        assert list(timeline.process_names.values()) == ["host", "cpu:0", "cpu:2"]
        for device in devices:
            (worker,) = timeline.spans[device, "worker"]
            assert timeline.within(worker, timeline.phase("run"))
            assert worker["dur"] > 0
        counted = timeline.counts["items processed"]
        assert counted == sorted(counted)
        assert counted[-1] == result.statistics.processed_items.sum()

    @pytest.mark.parametrize(
        ("devices", "track"),
        [(["cpu:0", "cpu:1"], "worker"), (["cpu:0"], "worker"), ("cpu", "thread 0")],
    )
    def test_growth_is_noted_where_it_happens(self, devices: Any, track: str, path: Path) -> None:
        gw.sssp(GRAPH, 0, devices=devices, worker=gw.WorkerOptions(capacity_items=2), trace=path)
        grown = {place: names for place, names in read(path).instants.items() if names}
        assert all(set(names) == {"growth"} for names in grown.values())
        process = "host" if devices == "cpu" else "cpu:0"
        assert (process, track) in grown

    def test_a_thread_that_fails_is_seen(self, path: Path) -> None:
        from godwit.runtime.cpu.team import run_team

        def fail(rank: int, size: int, control: Any) -> None:
            raise ValueError(f"thread {rank}")

        with pytest.raises(ValueError, match="thread 0"), recorded(path, "call"):
            run_team(fail, threads=1)
        timeline = read(path)
        (span,) = timeline.spans["host", "thread 0"]
        assert (span["name"], span["args"]) == ("fail", {"raised": "ValueError"})

    def test_several_runs_in_one(self, path: Path) -> None:
        trace = gw.Trace()
        with gw.place(GRAPH, ["cpu:0", "cpu:1"]) as placed:
            gw.bfs(placed, 0, trace=trace)
            gw.sssp(placed, 0, trace=trace)
            gw.sssp(placed, 0)
        assert not path.exists()
        trace.write(path)
        phases = read(path).phases
        assert phases.count("bfs") == phases.count("sssp") == 1
        assert phases.index("bfs") < phases.index("sssp")

    def test_operators_of_an_explorer_one_by_one(self, path: Path) -> None:
        step = gw.frontier.compute("mark", lambda: 1)
        with gw.explore(
            GRAPH, fields={"mark": ("int32", 0)}, devices="cpu", trace=path
        ) as explorer:
            explorer.do(step, gw.frontier.filter(lambda vertex: vertex < 3))
            explorer.do(step)
            assert not path.exists()
        phases = read(path).phases
        assert (phases.count("compute 'mark'"), phases.count("run")) == (2, 3)
        path.unlink()
        explorer.close()  # has been written
        assert not path.exists()

    def test_an_explorer_adds_to_a_trace_and_knows_where_it_cannot_write(
        self, tmp_path: Path
    ) -> None:
        trace = gw.Trace()
        gw.explore(GRAPH, fields={"mark": ("int32", 0)}, trace=trace).do(
            gw.frontier.compute("mark", lambda: 1)
        )
        assert "compute 'mark'" in written(trace).phases
        with pytest.raises(FileError, match="cannot write"):
            gw.explore(GRAPH, fields={"mark": ("int32", 0)}, trace=tmp_path / "absent" / "run.json")

    def test_a_worklist_is_recorded_in_the_trace_of_its_context(self, path: Path) -> None:
        other = gw.Trace()
        with gw.Context(2, trace=path) as context:
            states = [split_state(2) for _ in context.endpoints]
            worklist = gw.DistributedWorklist(
                gw.ItemRouter(context), process=split, owner=split_owner, fanout=split_fanout
            )
            with other.recording():
                worklist.run([(3, 500)], states)
                assert active() is other
            with pytest.raises(GodwitError, match="owner"):
                worklist.run([(0, 1000)], [split_state(2, wrong_key=6, wrong_owner=9)] * 2)
            assert active() is None
            with context.workers() as workers:
                workers.start(context.host, worklist.run, [(3, 500)], states)
        timeline = read(path)
        assert timeline.phases == ["compile"]  # once for all runs
        for device in (0, 1):
            assert len(timeline.spans["host", f"thread {device}"]) == 3
        (worker,) = timeline.spans["host", "worker"]
        assert timeline.within(timeline.spans["host", "thread 0"][-1], worker)
        assert written(other).events == []

    def test_what_calls_record_goes_into_what_is_recorded_around_them(self) -> None:
        trace = gw.Trace()
        with trace.recording():
            gw.bfs(GRAPH, 0, devices="cpu")
            with gw.explore(GRAPH, fields={"mark": ("int32", 0)}, devices="cpu") as explorer:
                explorer.do(gw.frontier.compute("mark", lambda: 1))
        phases = written(trace).phases
        assert phases.count("bfs") == 1
        assert phases.count("run") == 2


class TestOnGpus:
    @pytest.mark.parametrize("name", RUNS)
    def test_kernels_and_copies_of_each_gpu(self, name: str, path: Path, gpus: Machine) -> None:
        devices = ["cuda:0", "cuda:1"]
        result = RUNS[name](devices=devices, trace=path)
        timeline = read(path)
        assert set(timeline.process_names.values()) == {"host", *devices}
        call, run = timeline.phase(name), timeline.first("run")
        for device in devices:
            kernels = timeline.spans[device, "kernel"]
            assert kernels
            assert all(timeline.within(span, run) for span in kernels)
            assert [span["args"]["ended"] for span in kernels][-1] == "finished"
        for track in ("copy host -> {}", "copy {} -> host"):
            copies = [
                span
                for device in devices
                for span in timeline.spans.get((device, track.format(device)), [])
            ]
            assert copies
            assert all(timeline.within(span, call) for span in copies)
            assert all(span["args"]["bytes"] > 0 for span in copies)
        slowest = max(
            sum(span["dur"] for span in timeline.spans[device, "kernel"]) for device in devices
        )
        assert slowest / 1e6 == pytest.approx(result.statistics.seconds["kernel"], rel=0.2)
        counted = timeline.counts["items processed"]
        assert counted[0] == 0 < counted[-1]
        assert counted == sorted(counted)
        for phase in ("number", "rows", "upload", "compile", "gather"):
            if phase in result.statistics.seconds:
                assert timeline.within(timeline.first(phase), call)

    @pytest.mark.parametrize(("name", "reached"), [("sssp", "rounds"), ("levels", "supersteps")])
    def test_each_slice_says_how_far_it_got(
        self, name: str, reached: str, path: Path, gpus: Machine
    ) -> None:
        options = gw.GpuOptions(slice_s=0)
        result = RUNS[name](devices=["cuda:0", "cuda:1"], gpu=options, trace=path)
        timeline = read(path)
        spans = [timeline.spans[device, "kernel"] for device in ("cuda:0", "cuda:1")]
        assert len(spans[0]) == len(spans[1]) > 2
        for device, own in zip(("cuda:0", "cuda:1"), spans, strict=True):
            far = [span["args"][reached] for span in own]
            assert far == sorted(far)
            assert far[0] < far[-1]
            ended = [span["args"]["ended"] for span in own]
            assert ended == ["left"] * (len(own) - 1) + ["finished"]
            assert timeline.instants[device, "kernel"] == ["left"] * (len(own) - 1)
        items = sum(own[-1]["args"]["processed_items"] for own in spans)
        assert items == result.statistics.processed_items.sum()
        counted = timeline.counts["items processed"]
        assert counted == sorted(counted)
        assert counted[-1] == items
        assert len(set(counted)) > 2

    def test_endpoints_of_one_gpu_have_tracks_of_their_own(self, path: Path, gpus: Machine) -> None:
        gw.sssp(GRAPH, 0, devices=["cuda:1", "cuda:0", "cuda:1"], trace=path)
        tracks = {place for place in read(path).spans if place[1].startswith("kernel")}
        assert tracks == {
            ("cuda:0", "kernel"),
            ("cuda:1", "kernel of endpoint 0"),
            ("cuda:1", "kernel of endpoint 1"),
        }

    def test_copies_are_counted_byte_by_byte(self, path: Path, gpus: Machine) -> None:
        with gw.place(GRAPH, ["cuda:0"]) as placed:
            gw.sssp(placed, 0, trace=path)
            timeline = read(path)
            copies = [
                span["args"]["bytes"] for span in timeline.spans["cuda:0", "copy cuda:0 -> host"]
            ]
            assert copies.count(8 * GRAPH.vertex_count) == 1  # the distances
            assert "upload" not in timeline.phases
            gw.bfs(placed, 0, execution="bulk-synchronous", trace=path)
            back = read(path).spans["cuda:0", "copy cuda:0 -> host"]
            assert [span["args"]["bytes"] for span in back].count(4 * GRAPH.vertex_count) == 1
        gw.sssp(GRAPH, 0, devices="cuda:0", trace=path)
        timeline = read(path)
        there = timeline.spans["cuda:0", "copy host -> cuda:0"]
        upload = timeline.phase("upload")
        brought = [span["args"]["bytes"] for span in there if timeline.within(span, upload)]
        assert GRAPH.targets.nbytes in brought
        assert GRAPH.offsets.nbytes in brought

    def test_arrays_larger_than_a_staging_buffer(
        self, path: Path, gpus: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from godwit.runtime.cuda.transfer import copies, staging

        monkeypatch.setattr(copies, "DIRECT_BYTES", 100)
        monkeypatch.setattr(staging, "LEAST_PIECE_BYTES", 1024)
        given = np.arange(5000)
        back, few = np.empty_like(given), np.empty(7, given.dtype)
        with recorded(path, "both"), memory.Buffer(1, given.nbytes) as buffer:
            copies.upload(buffer, given)
            copies.upload(buffer, given[:7])
            copies.download(1, buffer.pointer, back)
            copies.download(1, buffer.pointer, few)
        np.testing.assert_array_equal(back, given)
        spans = read(path).spans
        for track in ("copy host -> cuda:1", "copy cuda:1 -> host"):
            assert [span["args"]["bytes"] for span in spans["cuda:1", track]] == [40_000, 56]

    def test_queues_that_grow(self, path: Path, gpus: Machine) -> None:
        # What is pulled is not queued.
        options = ExperimentOptions(frontier_items=1, turn_down=math.inf)
        result = gw.bfs(
            GRAPH, 0,
            devices="cuda:0", execution="bulk-synchronous", gpu=options, trace=path,
        )  # fmt: skip
        names = read(path).instants["cuda:0", "kernel"]
        assert names.count("growth") == result.statistics.growths > 0

    def test_a_slice_that_is_interrupted(
        self, path: Path, gpus: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_slice = SlicedRun._run_slice

        def interrupted(
            run: SlicedRun, ended: memoryview, ends: list[float], look: Any, behind: Any
        ) -> None:
            run_slice(run, ended, ends, look, behind)
            del ends[1:]
            raise KeyboardInterrupt

        monkeypatch.setattr(SlicedRun, "_run_slice", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gw.sssp(GRAPH, 0, devices=["cuda:0", "cuda:1"], trace=path)
        timeline = read(path)
        for device in ("cuda:0", "cuda:1"):
            (span,) = timeline.spans[device, "kernel"]
            assert span["args"] == {"raised": "KeyboardInterrupt"}
        assert timeline.phase("run")  # a phase that fails is one

    @pytest.mark.gpu
    @pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
    @pytest.mark.parametrize("name", RUNS)
    def test_on_a_real_gpu(self, name: str, path: Path) -> None:
        result = RUNS[name](devices="cuda:0", trace=path)
        timeline = read(path)
        kernels = timeline.spans["cuda:0", "kernel"]
        assert kernels
        assert all(timeline.within(span, timeline.first("run")) for span in kernels)
        taken = sum(span["dur"] for span in kernels) / 1e6
        assert taken == pytest.approx(result.statistics.seconds["kernel"], rel=0.2, abs=1e-4)


class StoppedError(Exception):
    """Raised by a callback."""


class TestFailures:
    @pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]])
    def test_a_run_out_of_time(self, devices: Any, path: Path) -> None:
        program = gw.VertexProgram(
            name="endless", dtype="float64", message=lambda value: value + 1.0, combine="max"
        )
        with pytest.raises(RunTimeoutError):
            gw.run(program, ROAD, {0: 0.0}, devices=devices, timeout_s=0.1, trace=path)
        timeline = read(path)
        assert timeline.phase("endless")["args"] == {"raised": "RunTimeoutError"}
        assert timeline.phase("endless")["dur"] > 1e5
        process = "host" if devices == "cpu" else "cpu:1"
        assert any(name == process and track != "phases" for name, track in timeline.spans)

    def test_what_a_callback_raises_on_gpus(self, path: Path, gpus: Machine) -> None:
        def later(items: int) -> None:
            if items:
                raise StoppedError

        with pytest.raises(StoppedError):
            gw.sssp(
                GRAPH, 0, devices=["cuda:0", "cuda:1"], gpu=gw.GpuOptions(slice_s=0),
                progress=later, trace=path,
            )  # fmt: skip
        timeline = read(path)
        assert timeline.phase("sssp")["args"] == {"raised": "StoppedError"}
        assert len(timeline.spans["cuda:1", "kernel"]) > 1

    def test_a_wrong_vertex_is_found_within_the_run(self, path: Path) -> None:
        with pytest.raises(InputError, match="a vertex of start"):
            gw.run(COUNTING, GRAPH, {-1: 0}, devices="cpu", trace=path)
        assert read(path).phase("counting")["args"] == {"raised": "InputError"}

    @pytest.mark.parametrize("name", RUNS)
    @pytest.mark.parametrize("place", ["", "missing/run.json", "file/run.json", "\0"])
    def test_an_unwritable_file_is_one_error_before_anything_starts(
        self, name: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()

        def started(*arguments: Any, **named: Any) -> None:
            raise AssertionError("started")

        for algorithm in ("bfs", "sssp", "pagerank", "betweenness", "components"):
            for function in ("placed_for_query", "on_gpus_or_cores", "_propagate_labels"):
                callee = f"godwit.algorithms.{algorithm}.{function}"
                monkeypatch.setattr(callee, started, raising=False)
        monkeypatch.setattr("godwit.worker.query.placed_for_query", started)
        monkeypatch.setattr("godwit.worker.solve.placed_for_query", started)
        monkeypatch.setattr("godwit.frontier.program.placed_for_steps", started)
        with pytest.raises(FileError, match="cannot write") as caught:
            RUNS[name](devices="cpu", trace=str(tmp_path / place))
        assert str(tmp_path)[1:] in str(caught.value)
        with pytest.raises(AssertionError, match="started"):  # that is where it would have begun
            RUNS[name](devices="cpu", trace=tmp_path / "run.json")

    @pytest.mark.parametrize("wrong", [3, True, ["run.json"], b"run.json"])
    def test_what_is_no_path(self, wrong: Any) -> None:
        with pytest.raises(InputError, match=r"trace must be a path such as 'run\.json'.* got "):
            gw.bfs(GRAPH, 0, devices="cpu", trace=wrong)

    def test_a_folder_that_vanishes_is_told(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        with pytest.raises(FileError, match="cannot write"), recorded(folder / "run.json", "call"):
            shutil.rmtree(folder)

    def test_what_failed_first_is_what_is_raised(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()

        def fail() -> None:
            with recorded(folder / "run.json", "call"):
                shutil.rmtree(folder)
                raise StoppedError

        with pytest.raises(StoppedError) as caught:
            fail()
        assert "cannot write" in caught.value.__notes__[0]
        assert active() is None


def calls_to_traces(run: Callable[[], Any]) -> int:
    """How often functions of trace.py are called by this thread while it runs."""
    calls = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename == tracing.__file__:
            calls += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


class TestWithoutTrace:
    @pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"], ["cuda:0", "cuda:1"]])
    @pytest.mark.parametrize("execution", ["bulk-synchronous", "asynchronous"])
    def test_a_superstep_makes_no_call(self, devices: Any, execution: str, gpus: Machine) -> None:
        def calls(cutoff: int, slice_s: float = 10.0) -> tuple[int, int]:
            rounds = 0

            def search() -> None:
                nonlocal rounds
                options = gw.GpuOptions(slice_s=slice_s)
                result = gw.bfs(placed, 0, cutoff=cutoff, execution=execution, gpu=options)
                rounds = int(result.statistics.rounds.max())

            return calls_to_traces(search), rounds

        with gw.place(ROAD, devices) as placed:
            calls(60)  # compiles, and makes room
            few, few_rounds = calls(2)
            many, many_rounds = calls(60)
            assert few == many > 0
            if devices != "cpu":
                assert many_rounds > few_rounds
            if devices[0] == "cuda:0":  # a slice does make calls
                assert calls(60, slice_s=0.0) > calls(2, slice_s=0.0)

    def test_nothing_is_kept(self) -> None:
        gw.bfs(GRAPH, 0, devices="cpu")
        assert active() is None

    def test_no_poll_is_made_for_it(self) -> None:
        from godwit.worker.options import SolverOptions
        from godwit.worker.solve import make_poll

        assert make_poll(SolverOptions()) is None
        with Trace().recording():
            assert make_poll(SolverOptions()) is not None


def godwit(*arguments: object, status: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result


COMMANDS = {
    "bfs": ["--source", "0"],
    "sssp": ["--source", "0"],
    "pagerank": [],
    "betweenness": ["--samples", "3"],
    "components": [],
}


class TestCommands:
    def test_every_command_that_can_run_out_of_time_takes_one(self) -> None:
        commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
        options = {
            name: {option for one in command.params for option in one.opts}
            for name, command in commands.items()
        }
        timed = {name for name, own in options.items() if "--timeout" in own}
        assert set(COMMANDS) <= timed
        assert timed <= {name for name, own in options.items() if "--trace" in own}

    @pytest.mark.parametrize("command", COMMANDS)
    def test_from_reading_to_writing(self, command: str, path: Path) -> None:
        graph, output = path.with_name("graph.npz"), path.with_name("found.npy")
        gw.write(GRAPH, str(graph.with_suffix(".godwit")))
        godwit(
            command, graph.with_suffix(".godwit"), *COMMANDS[command],
            "--devices", "cpu", "--output", output, "--trace", path, "--quiet",
        )  # fmt: skip
        timeline = read(path)
        names = timeline.phases
        assert names[0] == f"godwit {command}"
        order = [names.index(name) for name in ("read", "run", "write")]
        assert order == sorted(order)
        for span in timeline.spans["host", "phases"]:
            assert timeline.within(span, timeline.phase(f"godwit {command}"))

    def test_verification_is_a_phase(self, path: Path) -> None:
        godwit(
            "bfs",
            "rmat:8",
            "-s",
            "max-degree",
            "--devices",
            "cpu:0,cpu:1",
            "--verify",
            "--trace",
            path,
        )
        timeline = read(path)
        assert {"read", "partition", "place", "predecessors", "verify"} <= set(timeline.phases)
        assert "cpu:1" in timeline.process_names.values()

    @pytest.mark.parametrize("command", COMMANDS)
    def test_an_unwritable_file_is_one_line_before_anything_is_read(
        self, command: str, tmp_path: Path
    ) -> None:
        result = godwit(
            command, "rmat:8", *COMMANDS[command], "--trace", tmp_path / "no" / "run.json", status=2
        )
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("godwit: error: cannot write ")

    @pytest.mark.parametrize("command", COMMANDS)
    def test_the_graph_is_not_written_over(self, command: str, tmp_path: Path) -> None:
        graph = tmp_path / "graph.godwit"
        gw.write(GRAPH, str(graph))
        before = graph.read_bytes()
        result = godwit(command, graph, *COMMANDS[command], "--trace", graph, status=2)
        assert "would overwrite what is read" in result.stderr
        assert graph.read_bytes() == before

    @pytest.mark.parametrize("command", COMMANDS)
    def test_the_result_is_not_written_over(self, command: str, tmp_path: Path) -> None:
        both, alias = tmp_path / "both.npy", f"{tmp_path}/./both.npy"
        result = godwit(
            command, "rmat:8", *COMMANDS[command], "-o", both, "--trace", alias, status=2
        )
        assert "--trace and --output are the same file" in result.stderr
        assert not both.exists()

    def test_a_run_that_fails_leaves_one(self, path: Path) -> None:
        result = godwit("bfs", "rmat:8", "-s", "999", "--trace", path, status=2)
        assert len(result.stderr.splitlines()) == 1
        timeline = read(path)
        assert timeline.phase("godwit bfs")["args"] == {"raised": "InputError"}
        assert "read" in timeline.phases


def test_graphs_of_no_vertices(path: Path) -> None:
    gw.pagerank(Graph.from_edges([], []), devices="cpu", trace=path)
    assert read(path).phases[0] == "pagerank"


pictures = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")


@pictures
def test_the_legend_of_a_picture_names_what_is_shown(tmp_path: Path) -> None:
    trace = gw.Trace()
    for track, name, further in (
        ("kernel", "slice", {}),
        ("kernel (2)", "slice", {}),
        ("copy host -> cuda:0", "copy", {"bytes": 8}),
        ("copy cuda:0 -> host", "64 MB", {"bytes": 64}),
        ("router 0 -> cuda:0", "12 items", {"bytes": 12}),
        ("wait", "a segment", {}),
        ("worker", "my_function", {}),
    ):
        begin = perf_counter()
        trace.add("cuda:0", track, name, begin, begin + 1e-9, **further)
    trace.instant("cuda:0", "kernel", "growth")
    trace.write(tmp_path / "all.svg")
    text = (tmp_path / "all.svg").read_text()
    assert re.findall("text-anchor: start[^>]*>([^<]+)<", text) == [
        "kernel", "copy to a GPU", "copy from a GPU", "segment of a link", "wait", "my_function",
        "at an instant: growth",
    ]  # fmt: skip


@pictures
def test_a_picture_shows_every_track(tmp_path: Path, path: Path) -> None:
    options = gw.WorkerOptions(capacity_items=2)
    gw.sssp(GRAPH, 0, devices=["cpu:0", "cpu:1"], worker=options, trace=path)
    trace = gw.Trace.read(path)
    assert trace.to_dict() == json.loads(path.read_text())
    trace.write(tmp_path / "all.svg")
    text = (tmp_path / "all.svg").read_text()
    for shown in ("host: phases", "cpu:0: worker", "cpu:1: worker", ">sssp<", ">run<", ">work<"):
        assert shown in text
    assert "items processed" not in text
    assert trace.plot().get_yticklabels()[0].get_text() == "host: phases"
    end_ms = read(path).phase("run")["ts"] / 1e3
    drawn = trace.plot(end_ms=end_ms - 1e-3)
    assert "work" not in [text.get_text() for text in drawn.texts]
    assert drawn.get_xlim() == (0, end_ms - 1e-3)
    assert len(gw.Trace().plot().get_yticks()) == len(trace.plot(begin_ms=1e6).texts) == 0
    with pytest.raises(InputError, match="begin_ms must be less than end_ms, got 2 and 1"):
        trace.plot(begin_ms=2, end_ms=1)


@pictures
def test_a_trace_is_a_picture_where_its_path_ends_so(tmp_path: Path) -> None:
    gw.bfs(GRAPH, 0, devices="cpu", trace=tmp_path / "run.PNG")
    assert (tmp_path / "run.PNG").read_bytes().startswith(b"\x89PNG")
    godwit("bfs", "rmat:8", "-s", "0", "--trace", tmp_path / "run.pdf")
    assert (tmp_path / "run.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"traceEvents": [{"ph": "i", "name": "a", "ts": NaN}]}',
        '{"traceEvents": 3}',
        '{"traceEvents": [{"ph": "X"}]}',
        '{"traceEvents": [1]}',
    ],
)
def test_what_is_no_timeline_is_refused(content: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(FormatError, match="not a timeline"):
        gw.Trace.read(path)
    with pytest.raises(FileError, match="cannot read"):
        gw.Trace.read(path.with_name("absent.json"))
