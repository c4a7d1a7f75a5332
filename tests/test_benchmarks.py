"""The command lines of the benchmarks: what is not there is refused before anything is measured."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import godwit as gw
from godwit.runtime.cuda import driver


def parsed(monkeypatch: pytest.MonkeyPatch, *line: str) -> Any:
    """What gpu_steps.py makes of its command line."""
    monkeypatch.setattr(sys, "argv", ["gpu_steps.py", *line])
    return import_module("gpu_steps").parsed()


class TestGpuSteps:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (["--only", ""], "--only takes overhead, .*, not ''"),
            (["--only", "bfs,none"], "--only takes overhead, .*, not none"),
            (["--graphs", "none"], "--graphs takes path, .*, not none"),
            (["--tiny", "--devices", "x"], "--devices takes numbers of GPUs, .*, not 'x'"),
            (["--devices", "1,"], "--devices takes numbers of GPUs, .*, not '1,'"),
        ],
    )
    def test_wrong_arguments(
        self, line: list[str], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(SystemExit, match=words):
            parsed(monkeypatch, *line)

    def test_on_the_cpu_if_nobody_named_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 0)
        monkeypatch.setattr(driver, "why_not", lambda: "this is a test")
        assert parsed(monkeypatch, "--tiny", "--only", "bfs,").devices == ["cpu"]
        for line in ([], ["--tiny", "--devices", "2,0+0"]):
            with pytest.raises(SystemExit, match="no GPU: this is a test"):
                parsed(monkeypatch, *line)

    def test_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 2)
        found = parsed(monkeypatch, "--only", "bfs")
        assert found.devices == ["1", "2"]
        assert found.only == ["bfs"]
        assert "rmat22" in found.graphs
        assert parsed(monkeypatch, "--devices", "0+0+1,4").devices == ["0+0+1"]


class TestSectionsOfGpuSteps:
    def test_each_has_a_table_and_graphs_that_are_there(self) -> None:
        plans, tables = import_module("gpu_steps_plans"), import_module("gpu_steps_tables")
        assert list(tables.TABLES) == list(plans.PLANS)
        for devices in (["1", "2", "0+0"], ["cpu"]):
            for section, plan in plans.PLANS.items():
                settings = [setting for _, setting in plan(devices)]
                assert bool(settings) == (devices != ["cpu"] or section not in plans.LEFT_OUT)
                assert {setting.graph for setting in settings} <= set(plans.GRAPHS)
                assert len({setting.place for setting in settings}) <= len(settings)
        assert set(plans.GRAPHS) == set(plans.TINY_GRAPHS)

    def test_fixed_room_is_what_an_earlier_run_needed(self) -> None:
        queries, plans = import_module("gpu_steps_queries"), import_module("gpu_steps_plans")
        known = SimpleNamespace(graph=gw.generators.path(9), frontier_items={})

        def setting(items: Any, devices: str = "2") -> Any:
            return plans.Setting("path", plans.PUSHED, devices, gpu=(("frontier_items", items),))

        with pytest.raises(queries.UnknownSizeError):
            queries.gpu_options(setting("fixed"), known)
        assert queries.gpu_options(setting("maximum"), known).frontier_items == 9
        for nbytes in (16 * 300, 16 * 200, 16 * 250):
            queries.note_size(setting(None), known, nbytes)
        assert queries.gpu_options(setting("fixed"), known).frontier_items == 200
        with pytest.raises(queries.UnknownSizeError):
            queries.gpu_options(setting("fixed", "1"), known)

    def test_colourings_are_checked(self) -> None:
        checks = import_module("gpu_steps_checks")
        known = checks.Reference("grid", gw.generators.grid(3, 4))
        colour = (
            import_module("greedy_colouring")
            .GREEDY_COLOURING.run(
                known.graph, fields={"rank": known.colouring_ranks}, devices="cpu:0"
            )
            .fields["colour"]
        )
        assert checks._wrong_colours(known, colour) == ""
        for v in range(12):
            for other in {0, 1, 2, 3} - {int(colour[v])}:
                wrong = colour.copy()
                wrong[v] = other
                assert "vertex" in checks._wrong_colours(known, wrong)

    def test_what_is_drawn(self) -> None:
        plots = import_module("gpu_steps_plots")
        row = {"section": "scaling", "name": "strong", "algorithm": "bfs", "kernel_ms": 1.0}
        rows = [row | {"devices": devices} for devices in ("1", "2", "0+0", "cpu")]
        found = plots.curves([*rows, row | {"devices": "4", "note": "no"}], "strong")
        assert {name: list(curve) for name, curve in found.items()} == {"bfs": [1, 2]}
        assert plots.curves(rows[:1], "strong") == {}
        assert plots.curves(rows, "weak in edges") == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--only", "none"], "invalid choice: '?none"),
        (["--runs", "0"], "must be at least 1, got 0"),
        (["--runs", "many"], "invalid positive value"),
    ],
)
def test_wrong_arguments_of_benchmarks_beside_peers(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        import_module("peers").parser("What it is.", runs=3).parse_args(line)
    assert re.search(words, capsys.readouterr().err)


FAKE_GAP = """#!{python}
import sys
print("Graph has 4 nodes and 3 undirected edges for degree: 0")
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
from pathlib import Path
name, file = Path(sys.argv[0]).name, Path(sys.argv[sys.argv.index("-f") + 1])
assert file.read_bytes()[:1] == bytes(1), "an undirected graph"
delta = int(sys.argv[sys.argv.index("-d") + 1]) if "-d" in sys.argv else 1
for trial in range(int(sys.argv[sys.argv.index("-n") + 1])):
    print(f"Trial Time:          {{0.5 if trial == 0 else (1 + abs(delta - 64)) / 1000:.5f}}")
print("Average Time:        0.12345")
sys.exit({status})
"""


def fake_gap(folder: Path, *names: str, status: int = 0) -> Path:
    """Programs that tell times as GAP's do; the file that their arguments come to."""
    log = folder / "log"
    for name in names:
        program = folder / name
        program.write_text(FAKE_GAP.format(python=sys.executable, log=str(log), status=status))
        program.chmod(0o755)
    return log


class TestGap:
    def bench(self, name: str, folder: Path, *line: str) -> list[dict[str, Any]]:
        """The rows of a benchmark on a small graph, without the peers that need not be there."""
        module = import_module(name)
        parser = import_module("peers").parser("What it is.", runs=2)
        parser.add_argument("--sources", type=int, default=4)
        parser.add_argument("--weighted", action="store_true")
        parser.add_argument("--algorithm")
        arguments = parser.parse_args(["--gap", str(folder), *line])
        graph = gw.generators.grid(4, 5, seed=1)
        rows: list[dict[str, Any]] = module.bench("grid", graph, arguments)
        return [row for row in rows if row["system"].startswith("GAP")]

    @pytest.fixture(autouse=True)
    def _without_peers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(import_module("paths"), "peers", lambda *_: {"bfs": {}, "sssp": {}})
        monkeypatch.setattr(
            import_module("betweenness"), "contenders", lambda *_: {"Godwit": lambda: None}
        )

    def test_paths_by_the_best_delta(self, tmp_path: Path) -> None:
        log = fake_gap(tmp_path, "bfs", "sssp")
        bfs, sssp = self.bench("paths", tmp_path)
        assert bfs["system"] == "GAP"
        assert (sssp["system"], sssp["median_ms"], sssp["min_ms"]) == ("GAP, delta 64", 1.0, 1.0)
        lines = log.read_text().splitlines()
        assert len(lines) == 1 + 9
        assert re.fullmatch(r"-f \S+graph\.sg -n 3 -r 6", lines[0])
        assert re.fullmatch(r"-f \S+graph\.wsg -n 3 -r 6 -d 1", lines[1])

    def test_betweenness(self, tmp_path: Path) -> None:
        log = fake_gap(tmp_path, "bc")
        (row,) = self.bench("betweenness", tmp_path)
        assert (row["system"], row["median_ms"]) == ("GAP", 64.0)
        assert re.fullmatch(r"-f \S+graph\.sg -n 3 -i 4 -r 6", log.read_text().strip())

    def test_pagerank(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = SimpleNamespace(scores=lambda: [0.05] * 20, numberOfIterations=lambda: 7)
        monkeypatch.setattr(
            import_module("pagerank"), "peers", lambda _: {"networkit": lambda: answer}
        )
        log = fake_gap(tmp_path, "pr", "pr_spmv")
        rows = self.bench("pagerank", tmp_path)
        assert [row["system"] for row in rows] == ["GAP, pr", "GAP, pr_spmv"]
        assert {(row["median_ms"], row["error"], row["iterations"]) for row in rows} == {
            (64.0, None, None)
        }
        assert re.search(r"graph\.sg -n 3 -i 1000 -t 1e-06\n", log.read_text())

    @pytest.mark.parametrize(
        ("names", "status", "words"),
        [(["sssp"], 0, "cannot run .*/bfs: No such file"), (["bfs"], 3, "ended with 3")],
    )
    def test_what_fails_is_said(
        self, names: list[str], status: int, words: str, tmp_path: Path
    ) -> None:
        fake_gap(tmp_path, *names, status=status)
        with pytest.raises(SystemExit, match=words):
            self.bench("paths", tmp_path)

    def test_no_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            self.bench("paths", tmp_path / "none")
        assert "there is no folder" in capsys.readouterr().err


class TestGpuComponents:
    def run(self, monkeypatch: pytest.MonkeyPatch, *line: str) -> None:
        monkeypatch.setattr(sys, "argv", ["gpu_components.py", *line])
        import_module("gpu_components").main()

    def test_sections_have_tables_and_graphs_that_are_there(self) -> None:
        plans, tables = (
            import_module("gpu_components_plans"),
            import_module("gpu_components_tables"),
        )
        assert list(tables.TABLES) == list(plans.PLANS)
        for devices in (["1", "2", "0+0"], ["2"], ["cpu"]):
            for section, plan in plans.PLANS.items():
                settings = [setting for _, setting in plan(devices)]
                assert bool(settings) == (devices != ["cpu"] or section not in plans.ON_SEVERAL)
                assert all(plans.is_known(setting.graph) for setting in settings)
        weak = [setting for _, setting in plans.plan_weak(["1", "2", "0+0", "4"])]
        places = {(setting.graph, setting.devices) for setting in weak}
        assert places == {("rgg", "1"), ("rggx2", "2"), ("rggx4", "4")}
        assert plans.spec_of("rggx10", quick=True) == "random-geometric:900,seed=1,copies=10"
        assert not plans.is_known("rggx")

    def test_on_the_cpu(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        pytest.importorskip("matplotlib")
        file = tmp_path / "rows.json"
        self.run(
            monkeypatch, "--quick", "--devices", "cpu,cpu:2", "--repeats", "1", "--json", str(file),
            "--graphs", "streets,rgg,rggx10", "--plot", str(tmp_path / "images"),
        )  # fmt: skip
        said = capsys.readouterr().out
        assert "# merge: nothing to measure on cpu,cpu:2 (it needs several GPUs)" in said
        assert re.search(r"\| rggx10 +\| cpu ", said)
        document = json.loads(file.read_text())
        rows = document["rows"]
        sections = {"rounds", "compress", "runtime", "expanded", "streamed"}
        assert {row["section"] for row in rows} == sections
        assert {row["devices"] for row in rows if row["section"] == "streamed"} == {"cpu", "cpu:2"}
        assert not any(row["wrong"] for row in rows)
        assert all(row["kernel_ms"] > 0 and row["runs"] == 1 for row in rows)
        components = {row["graph"]: row["components"] for row in rows}
        assert components["streets"] == 1
        assert components["rggx10"] == 10 * components["rgg"]
        drawn = {path.name for path in (tmp_path / "images").iterdir()}
        assert drawn == {"components-rounds.svg", "components-methods.svg"}

    def test_wrong_labels_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = import_module("gpu_components")
        query = module.query

        def wrong(*arguments: Any) -> Any:
            found = query(*arguments)
            found._given = found._given.copy()
            found._given[7] += 1
            return found

        monkeypatch.setattr(module, "query", wrong)
        with pytest.raises(SystemExit, match="rows failed, or have a WRONG result"):
            self.run(
                monkeypatch, "--quick", "--devices", "cpu", "--only", "rounds", "--graphs", "rgg"
            )

    def test_wrong_arguments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for line, words in [
            (["--graphs", "rggx", "--devices", "cpu"], "--graphs takes mesh, .* not rggx"),
            (["--only", "none"], "--only takes rounds, .*, not none"),
            (["--devices", "x", "--quick"], "--devices takes numbers of GPUs"),
        ]:
            with pytest.raises(SystemExit, match=words):
                self.run(monkeypatch, *line)

    def test_scaling(self) -> None:
        """4 ms on one device, 2.5 on two: 1.6 times as fast, 80 % each; weakly, 160 %."""
        tables, plots = (
            import_module("gpu_components_tables"),
            import_module("gpu_components_plots"),
        )
        row = {"graph": "rgg", "name": "rem", "rounds": 0, "wrong": ""}
        rows = [
            {**row, "section": section, "devices": devices, "kernel_ms": time}
            for section in ("strong", "weak")
            for devices, time in [("1", 4.0), ("2", 2.5), ("0+0", 5.0)]
        ]
        strong, weak = rows[:3], rows[3:]
        assert re.search(r"\| +2 \| 2\.500 +\| +1\.60 \| +80 % \|", tables.strong(strong[:2]))
        assert re.search(r"2 \| rgg .* 2\.500 \| +160 % \| +160 % \|", tables.weak(weak[:2]))
        assert plots.speed_ups(plots.of_section(rows, "strong")) == {"rgg": {1: 1.0, 2: 1.6}}
        assert plots.efficiencies(plots.of_section(rows, "weak")) == {"rem": {1: 100.0, 2: 160.0}}
        assert plots.speed_ups(strong[:1]) == {}
        missing = {**strong[1], "note": "not run"}
        assert "| not run |" in tables.strong([strong[0], missing])
        assert "notes" not in tables.strong(strong)
