"""benchmarks/devices.py: messages arrive, and every measurement is made and printed."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import devices
import devices_results as results
import devices_testbed as testbed
import devices_trials as trials
import pretend_gpus
from devices_results import ALL, HOST, POINT_TO_POINT, What
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.devices import topology
from pretend_gpus import RING_OF_FOUR

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=driver.why_not())


class TestMeasuring:
    """On pretended GPUs: whatever is measured, every message arrives where it should."""

    @pytest.mark.parametrize("access", [[[1]], [[1, 1], [1, 1]], np.eye(2), RING_OF_FOUR])
    def test_everything_is_measured(self, access: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        access = np.asarray(access)
        machine = pretend_gpus.pretend(monkeypatch, access)
        steps: list[tuple[int, int]] = []
        found = devices.measure(range(len(access)), lambda done, of: steps.append((done, of)))
        assert steps == [(i, len(found.results)) for i in range(len(found.results) + 1)]
        assert machine.held == {}  # all memory was given back

        names = [f"cuda:{i}" for i in range(len(access))]
        reached = {(names[i], names[j]) for i, j in zip(*np.nonzero(access), strict=True)}
        hosts = {(name, HOST) for name in names}
        everyone = {(a, b) for a in names for b in names}
        apart = {(a, b) for a, b in everyone if a != b} or everyone
        assert set(found.matrix("round_trip")) == apart
        assert set(found.matrix("copy")) == everyone | hosts | {(b, a) for a, b in hosts}
        assert set(found.matrix("push")) == reached | hosts
        assert set(found.matrix("pull")) == reached | {(b, a) for a, b in hosts}
        for what in ("random_read", "random_write"):
            assert set(found.matrix(what)) == reached | hosts
        assert set(found.matrix("random_minimum")) == reached
        for (source, destination, _), curve in found.curves(POINT_TO_POINT).items():
            assert tuple(curve) == trials.PACKET_BYTES
            assert (source, destination) in apart
        ways = {what for _, _, what in found.curves(POINT_TO_POINT)}
        assert ("packets_push" in ways) == bool(apart & reached)
        assert {what.removeprefix("packets_") for what in ways} >= {"copy", "staged_push"}
        assert bool(found.of("broadcast_copies", "shift_copy")) == (len(access) > 1)
        assert found.same_gpu_twice == (len(access) == 1)
        for one in found.results:
            assert one.what in get_args(What)
            assert 0 < one.least <= one.median <= one.most < math.inf
            assert one.samples == devices.SAMPLES

    def test_rates(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pretended clock gives 10^8 bytes a millisecond, and every launch 10 µs."""
        pretend_gpus.pretend(monkeypatch, np.ones((2, 2)))
        found = devices.measure([0, 1])
        assert found.matrix("copy")["cuda:0", "cuda:1"] == pytest.approx(100)
        message_ms = testbed.MESSAGE_BYTES / 1e8
        expected = testbed.MESSAGE_BYTES / (message_ms + 0.01) / 1e6
        assert found.matrix("push")["cuda:1", "cuda:0"] == pytest.approx(expected)
        assert found.matrix("shift_copy")[ALL, ALL] == pytest.approx(100)  # one after the other
        most_rounds = trials.MOST_REPEATS_INSIDE * trials.PING_ROUNDS
        assert found.matrix("round_trip")["cuda:0", "cuda:1"] == pytest.approx(10 / most_rounds)

    def test_lost_messages_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machine = pretend_gpus.pretend(monkeypatch, np.ones((2, 2)), breaks=True)
        expected = "measuring copy from cuda:0 to cuda:1: .* did not arrive as it was sent"
        with pytest.raises(DeviceError, match=expected):
            devices.measure([0, 1])
        assert machine.held == {}

    def test_silence_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pretend_gpus.pretend(monkeypatch, np.ones((2, 2)), silent=True)
        expected = (
            "measuring round_trip from cuda:0 to cuda:1: cuda:0 and cuda:1 waited 5 s for another "
            "GPU in vain"
        )
        with pytest.raises(DeviceError, match=expected):
            devices.measure([0, 1])

    def test_a_trial_is_told_with_its_packets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pretend_gpus.pretend(monkeypatch, np.ones((2, 2)))
        with testbed.Testbed(topology([0, 1])) as bed:
            told = {str(trial) for trial in trials.all_trials(bed)}
            assert "packets_staged_push from cuda:0 to cuda:1 in packets of 64.0 KiB" in told
            assert "shift_copy from all to all" in told
            assert len(told) == len(list(trials.all_trials(bed)))

    def test_no_gpus(self) -> None:
        with pytest.raises(DeviceError, match="there is nothing to measure"):
            devices.measure([])


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["devices.py", *map(str, arguments)])
    devices.main()


def lines_below(title: str, text: str) -> list[list[str]]:
    """The cells of the table that has this in its title."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if title in line) + 1
    end = next((i for i in range(begin, len(lines)) if not lines[i]), len(lines))
    return [line.split() for line in lines[begin:end] if "─" not in line]


class TestScript:
    @pytest.fixture
    def four(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pretend_gpus.pretend(monkeypatch, RING_OF_FOUR)

    def test_without_gpu(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 0)
        monkeypatch.setattr(driver, "why_not", lambda: "there is no NVIDIA GPU")
        with pytest.raises(SystemExit):
            run(monkeypatch)
        assert "there is nothing to measure: there is no NVIDIA GPU" in capsys.readouterr().err

    def test_tables(
        self, four: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(monkeypatch)
        text = capsys.readouterr().out
        header, first, *_, last = lines_below("Copy engine", text)
        assert header[-1] == last[0] == HOST
        assert first == ["cuda:0", "100", "100", "100", "100", "100"]
        assert len(last) == 5  # nothing from the host to the host
        assert len(lines_below("Kernel that pushes", text)[1]) == 5  # no peer access to one GPU
        packets = lines_below("in packets from cuda:0 to cuda:2", text)
        assert packets[1][:3] == ["64.0", "KiB", "100"]
        assert len(packets) == 1 + len(trials.PACKET_BYTES)
        broadcast = lines_below("to all others", text)
        sizes = [*trials.BROADCAST_PACKET_BYTES, testbed.MESSAGE_BYTES]
        assert len(broadcast) == 1 + len(set(sizes))
        assert "ring of kernels" in text
        assert "Each GPU to the next at once" in text
        assert "one GPU" not in text

    def test_one_gpu(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pretend_gpus.pretend(monkeypatch, [[1]])
        run(monkeypatch)
        text = capsys.readouterr().out
        assert "pairs of GPUs are this one and itself" in text
        assert "to all others" not in text

    def test_json(self, four: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        run(monkeypatch, "--json", tmp_path / "links.json")
        facts = json.loads((tmp_path / "links.json").read_text())
        measured = facts["measurements"]
        assert measured["message_bytes"] == testbed.MESSAGE_BYTES
        copies = [one for one in measured["results"] if one["what"] == "copy"]
        assert len(copies) == 16 + 8
        assert {one["unit"] for one in copies} == {"GB/s"}
        assert facts["topology"]["routes"][2][0] == "via 1"

    @pytest.mark.parametrize("form", ["svg", "png"])
    def test_plot(
        self, form: str, four: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
        path = tmp_path / f"links.{form}"
        run(monkeypatch, "--plot", path)
        image = path.read_bytes()
        assert image.startswith({"svg": b"<?xml", "png": b"\x89PNG"}[form])
        assert len(image) > 10_000

    def test_plot_of_an_unknown_form(
        self, four: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            run(monkeypatch, "--plot", "links.pdf")
        assert "--plot must end in .svg or .png, got 'links.pdf'" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("value", "text"),
        [(1412.4, "1,412"), (365.04, "365"), (99.96, "100"), (8.84, "8.84"), (0.931, "0.931"),
         (12.0, "12.0"), (None, "")],
    )  # fmt: skip
    def test_rate(self, value: float | None, text: str) -> None:
        assert results.rate(value) == text


def test_kernels_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    libraries = pytest.importorskip("godwit.runtime.cuda.libraries")
    compilation = pytest.importorskip("godwit.runtime.cuda.compile")
    try:
        libraries.nvrtc()
    except DeviceError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path))
    for architecture in ("80", "90"):
        code = compilation.cubin(testbed._SOURCE, (), architecture)
        assert code.startswith(b"\x7fELF")
        for kernel in testbed._KERNELS:
            assert f".text.{kernel}".encode() in code


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @pytest.mark.alone
    def test_measurements_are_plausible(self) -> None:
        count = min(4, driver.device_count())
        found = devices.measure(range(count))
        assert found.seconds < 60
        for one in found.results:
            assert 0 < one.least <= one.median <= one.most < 1e5, one
        copies, reads = found.matrix("copy"), found.matrix("random_read")
        for i in range(count):
            gpu = f"cuda:{i}"
            assert copies[gpu, gpu] > copies[gpu, HOST]  # its own memory is nearest
            assert reads[gpu, gpu] > reads[gpu, HOST]
        for (source, destination, what), curve in found.curves(POINT_TO_POINT).items():
            if what == "packets_copy":  # the larger the packets, the less they cost
                assert curve[1 << 16] < curve[1 << 24], (source, destination)
        for i, j in found.topology.pairs_by_link().values():
            trip = found.matrix("round_trip")
            assert trip[f"cuda:{i}", f"cuda:{j}"] == pytest.approx(
                trip[f"cuda:{j}", f"cuda:{i}"], rel=0.5
            )

    def test_random_kernels_touch_what_they_should(self) -> None:
        with testbed.Testbed(topology([0])) as bed:
            station = bed.stations[0]
            bed.span_bytes = 1 << 12
            for kernel in ("random_write", "random_minimum", "random_minimum_system"):
                station.landing.fill_bytes(0xFF)
                bed.synchronize()
                bed.random(station, kernel, station.landing.pointer, 4, 7)
                station.first.synchronize()
                words = station.landing.download(np.uint32, 1 << 11)
                assert (words[: 1 << 10] == 7).all()  # all: each is hit thousands of times
                assert (words[1 << 10 :] == 0xFFFFFFFF).all()

    def test_nobody_waits_forever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(testbed, "TIMEOUT_S", 0.05)
        with testbed.Testbed(topology([0])) as bed:
            station = bed.stations[0]
            bed.ping_pong(station, station, 10)  # the one that answers; nobody leads
            station.second.synchronize()
            with pytest.raises(DeviceError, match=r"waited 0.05 s for another GPU in vain"):
                bed.check_answers()
            station.control.fill_bytes(0)
            stops = bed.stops_direct([station, station])
            bed.relay(stops, 1 << 20, 1)
            station.second.synchronize()
            with pytest.raises(DeviceError, match="in vain"):
                bed.check_answers()

    @pytest.mark.parametrize("packet_bytes", [1 << 16, 1 << 20])
    def test_flags_only_grow_whoever_lags(
        self, packet_bytes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Blocks lag behind by up to a round and more; few packets, as then most may be overtaken."""
        source = "#define DELAY_NS 500000ull\n" + testbed._SOURCE
        monkeypatch.setattr(testbed, "_SOURCE", source)
        monkeypatch.setattr(testbed, "TIMEOUT_S", 1.0)
        rounds = 16
        with testbed.Testbed(topology(range(min(2, driver.device_count())))) as bed:
            one, other = bed.stations[0], bed.stations[-1]
            bed.message_bytes = 4 * packet_bytes
            for _ in range(5):
                flags = bed.host_control.array(np.uint32)[testbed._FLAGS // 4 :]
                flags[:] = 0
                last = bed._epoch + rounds - 1
                bed.relay(bed.stops_staged(one, other), packet_bytes, rounds, staged=True)()
                one.first.synchronize()
                bed.check_answers()
                set_once = flags[flags > 0]
                assert set_once.size == 4 * min(8, packet_bytes >> 14)
                assert (set_once == last).all()
