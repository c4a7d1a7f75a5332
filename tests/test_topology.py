"""Routes between GPUs follow from peer access; `godwit devices` shows them."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
import pretend_gpus
from godwit.cli.application import app
from godwit.errors import InputError
from godwit.runtime.cuda import devices, driver
from godwit.runtime.cuda.devices import Gpu, Route, Topology
from pretend_gpus import RING_OF_FOUR

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=driver.why_not())


def fabricated(access: Any, links: Any = None, ranks: Any = None) -> Topology:
    """A topology of a matrix of peer access."""
    n = len(access)
    if links is None:
        links = [
            ["same" if i == j else "nvlink" if access[i][j] else "host" for j in range(n)]
            for i in range(n)
        ]
    if ranks is None:
        ranks = [[0] * n for _ in range(n)]
    rows = tuple(tuple(bool(one) for one in row) for row in access)
    return Topology(
        tuple(Gpu(i, "Pretended", f"0000:0{i}:00.0") for i in range(n)),
        rows, rows, tuple(map(tuple, links)), tuple(map(tuple, ranks)),
    )  # fmt: skip


@st.composite
def symmetric_access(draw: st.DrawFn) -> list[list[bool]]:
    n = draw(st.integers(1, 7))
    access = [[i == j for j in range(n)] for i in range(n)]
    for i in range(n):
        for j in range(i):
            access[i][j] = access[j][i] = draw(st.booleans())
    return access


class TestRoutes:
    @given(symmetric_access())
    def test_a_route_exists_wherever_one_can(self, access: list[list[bool]]) -> None:
        found = fabricated(access)
        everyone = range(len(access))
        for i in everyone:
            for j in everyone:
                between = {k for k in everyone if access[i][k] and access[k][j]} - {i, j}
                route = found.route(i, j)
                assert (route.kind == "direct") == access[i][j]
                if route.kind == "via":
                    assert route.via in between
                else:
                    assert route.via is None
                    assert access[i][j] or not between
                assert route == found.route(j, i)

    def test_a_ring_of_four(self) -> None:
        found = fabricated(RING_OF_FOUR)
        assert str(found.route(0, 1)) == "direct"
        assert found.route(0, 2) == Route("via", 1)
        assert str(found.route(3, 1)) == "via 0"

    def test_the_better_link_wins_then_the_better_rank(self) -> None:
        links = np.where(np.array(RING_OF_FOUR) > 0, "nvlink", "host")
        links[1, 2] = links[2, 1] = "pcie"
        assert fabricated(RING_OF_FOUR, links).route(0, 2) == Route("via", 3)
        ranks = np.zeros((4, 4), int)
        ranks[1, 0] = 1
        assert fabricated(RING_OF_FOUR, None, ranks).route(0, 2) == Route("via", 3)

    def test_access_one_way_is_no_way_back(self) -> None:
        access = [[1, 1, 0], [0, 1, 1], [0, 0, 1]]
        found = fabricated(access)
        assert [str(found.route(*pair)) for pair in [(0, 1), (1, 0), (0, 2)]] == [
            "direct", "host", "host",
        ]  # fmt: skip

    @pytest.mark.parametrize("place", [-1, 4])
    def test_no_such_gpu(self, place: int) -> None:
        with pytest.raises(InputError, match=f"there are 4 GPUs, counted from 0; got {place}"):
            fabricated(RING_OF_FOUR).route(0, place)

    def test_pairs_by_link(self) -> None:
        assert fabricated(RING_OF_FOUR).pairs_by_link() == {"nvlink": (0, 1), "host": (0, 2)}
        assert fabricated([[1]]).pairs_by_link() == {"same": (0, 0)}
        assert fabricated([]).pairs_by_link() == {}

    @pytest.mark.parametrize(
        ("case", "link"),
        [
            ((True, True, True, None), "same"),
            ((False, False, False, None), "host"),
            ((False, False, False, True), "host"),  # NVLink that may not be used
            ((False, True, True, None), "nvlink"),
            ((False, True, False, None), "pcie"),
            ((False, True, True, False), "pcie"),
            ((False, True, False, True), "nvlink"),
        ],
    )
    def test_link(self, case: tuple[Any, ...], link: str) -> None:
        assert devices._link(*case) == link

    def test_json(self) -> None:
        told = json.loads(json.dumps(fabricated(RING_OF_FOUR).to_dict(), allow_nan=False))
        assert told["routes"][0] == ["direct", "direct", "via 1", "direct"]
        assert told["access"] == [[bool(one) for one in row] for row in RING_OF_FOUR]
        assert told["gpus"][3]["device"] == "cuda:3"

    def test_of_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        pretend_gpus.pretend(monkeypatch, RING_OF_FOUR)
        found = devices.topology([1, 3, 2])
        assert [gpu.index for gpu in found.gpus] == [1, 3, 2]
        assert found.links == (
            ("same", "host", "nvlink"), ("host", "same", "nvlink"), ("nvlink", "nvlink", "same"),
        )  # fmt: skip
        assert found.ranks[0] == (0, -1, 0)
        assert devices.topology([2, 2]).links == (("same", "same"),) * 2


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["devices", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def lines_below(title: str, text: str) -> list[list[str]]:
    """The cells of the table that has this in its title."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if title in line) + 1
    end = next((i for i in range(begin, len(lines)) if not lines[i]), len(lines))
    return [line.split() for line in lines[begin:end] if "─" not in line]


class TestCommand:
    @pytest.fixture
    def four(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pretend_gpus.pretend(monkeypatch, RING_OF_FOUR)

    @pytest.fixture
    def none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 0)
        monkeypatch.setattr(driver, "why_not", lambda: "there is no NVIDIA GPU")

    def test_without_gpu(self, none: None) -> None:
        assert "PCI" not in run().stdout
        assert json.loads(run("--json").stdout)["topology"] is None

    def test_how_gpus_reach_each_other(self, four: None) -> None:
        table = lines_below("How GPUs reach each other", run().stdout)
        assert table[1] == ["cuda:0", "0000:01", "-", "NVLink", "via", "cuda:1", "NVLink"]


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    def test_topology(self) -> None:
        count = driver.device_count()
        found = devices.topology(range(count))
        assert all(found.gpus[i].pci_bus_id for i in range(count))
        for i in range(count):
            assert found.links[i][i] == "same"
            for j in range(count):
                assert found.access[i][j] == found.access[j][i]
                assert found.links[i][j] == found.links[j][i]
                assert found.native_atomics[i][j] <= found.access[i][j]

    def test_command(self) -> None:
        told = json.loads(run("--json").stdout)
        assert len(told["topology"]["gpus"]) == driver.device_count()
        names = [device.name for device in gw.all_devices()]
        assert {gpu["device"] for gpu in told["topology"]["gpus"]} <= set(names)
