"""The command line answers what the Python functions answer; whatever goes wrong is one line."""

from __future__ import annotations

import errno
import json
import lzma
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components, dijkstra
from typer.testing import CliRunner

import godwit as gw
from godwit.cli import application, info, outputs
from godwit.cli import devices as devices_command
from godwit.cli.application import app
from godwit.cli.facts import smallest
from godwit.errors import InputError
from godwit.graph.generators.spec import GENERATORS
from godwit.io.format_names import FORMATS
from godwit.runtime.cuda import driver, libraries, memory
from godwit.runtime.cuda.driver import GpuProperties
from waiting import HANG_S

UNREACHED = np.iinfo(np.int64).max
GODWIT = [sys.executable, "-m", "godwit"]


def run(*arguments: object, status: int = 0, env: dict[str, str] | None = None) -> Any:
    """Run a command in this process; its status must be as expected."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
    assert result.exit_code == status, result.output
    if status == 0:
        assert result.stderr == ""
    return result


def run_json(*arguments: object) -> Any:
    """Run a command with --json: stdout is one object, and nothing else."""
    return json.loads(run(*arguments, "--json").stdout)


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    """A road network of 30 x 20 crossings and some islands, in DIMACS' format: ids from 1."""
    graph = gw.generators.road(30, 20, keep=0.62, seed=12, weights=(1, 64))
    tails = np.repeat(np.arange(600), np.diff(graph.offsets))
    lines = [f"p sp 600 {graph.arc_count}"]
    for tail, head, weight in zip(tails, graph.targets, graph.weights, strict=True):
        lines.append(f"a {tail + 1} {head + 1} {weight}")
    path = tmp_path / "roads.gr.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    return path


@cache
def expected_distances(path: Path, source: int) -> np.ndarray[Any, Any]:
    """By SciPy, which adds parallel arcs up; the source is counted from 1."""
    graph = gw.read(path).merge_parallel_arcs("min")
    distance = dijkstra(graph.to_scipy(merge="min").astype(float), indices=source - 1)
    exact = np.full(len(distance), UNREACHED)
    exact[np.isfinite(distance)] = distance[np.isfinite(distance)]
    return exact


class TestMainJob:
    def test_writes_the_distances_and_prints_the_table(self, roads: Path, tmp_path: Path) -> None:
        output = tmp_path / "distances.npy"
        result = run(
            "sssp",
            roads,
            "--source",
            1,
            "--devices",
            4,
            "--verify",
            "--output",
            output,
            "--verbose",
        )
        np.testing.assert_array_equal(np.load(output), expected_distances(roads, 1))
        for words in [
            "600 vertices", "int32 weights", "cpu:0, cpu:1, cpu:2, cpu:3", "cut arcs",
            "border vertices", "balance", "MTEPS", "verified", "read", "partition", "place", "run",
            "verify", "write", "processed", "useless", "arcs relaxed", "threshold changes",
            "Items sent per link", "from \\ to",
        ]:  # fmt: skip
            assert words in result.stdout
        assert set(tmp_path.iterdir()) == {roads, output}
        target = int(np.flatnonzero(expected_distances(roads, 1) < UNREACHED)[-1]) + 1
        answer = run("sssp", roads, "--source", 1, "--target", target).stdout.splitlines()
        assert answer[0].startswith("target")
        path = answer[0].split("arcs: ")[1].split(" > ")
        assert path[0] == "1"
        assert path[-1] == str(target)
        assert "..." not in path
        assert not any("MTEPS" in line or "useless" in line for line in answer)

    @pytest.mark.parametrize("devices", ["1", "2", "4", "cpu", "cpu:0", "cpu:0,cpu:1"])
    @pytest.mark.parametrize("method", ["contiguous", "random", "biased-random", "metis"])
    @pytest.mark.parametrize("command", ["bfs", "sssp"])
    def test_every_division_gives_the_same(
        self, roads: Path, tmp_path: Path, command: str, devices: str, method: str
    ) -> None:
        output = tmp_path / "out.npy"
        run(
            command, roads, "-s", 17, "--devices", devices, "--partition", method, "-o", output,
            "--predecessors", "--verify", "-q", "--seed", 3,
        )  # fmt: skip
        expected = getattr(gw, command)(gw.read(roads), 16)
        rows = np.load(output)
        np.testing.assert_array_equal(rows["distance"], expected.distance)
        np.testing.assert_array_equal(rows["predecessor"], expected.predecessor)

    def test_rates_and_tables_of_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        devices = ["cpu:0", "cpu:1"]

        def as_on_gpus(placed: Any, *arguments: Any, **named: Any) -> Any:
            result = search(placed, *arguments, **named)
            statistics = result.statistics
            statistics.seconds |= {"run": 0.25, "kernel": 0.75}
            statistics.busy_share = np.array([0.5, 0.875])
            statistics.item_bytes = 12
            statistics.hops = 16
            return result

        search = gw.sssp
        monkeypatch.setattr(gw, "sssp", as_on_gpus)
        command = ("sssp", "grid:30x30", "-s", 0, "--devices", ",".join(devices))
        facts = run_json(*command)
        assert facts["mteps"] == facts["traversed_arcs"] / 1e6  # in 1 s
        statistics = facts["statistics"]
        assert statistics["busy_share"] == [0.5, 0.875]
        sent = np.array(statistics["sent_items"])
        assert np.array_equal(statistics["sent_bytes"], 12 * sent)
        assert sent.sum() > 0
        text = run(*command, "-v").stdout
        assert "run in 1.0000 s" in text
        assert "hops 16" in text
        assert re.search(r"Items sent per link, of 12 bytes: [\d.]+ \w+ in all", text)
        lines = text.splitlines()
        header, _, *rows, total = lines[lines.index("Work-items") + 1 :][:5]
        assert re.split(r" {2,}", header.strip())[-3:] == ["received", "threshold changes", "busy"]
        assert [row.split()[-1] for row in rows] == ["50.0%", "87.5%"]
        assert total.split()[0] == "total"

    def test_json_has_the_same_and_nothing_else(self, roads: Path) -> None:
        facts = run_json("sssp", roads, "-s", 1, "--devices", 2, "--verify")
        expected = expected_distances(roads, 1)
        reached = expected < UNREACHED
        graph = gw.read(roads)
        assert facts["command"] == "sssp"
        assert facts["graph"]["vertices"] == 600
        assert facts["graph"]["first_id"] == 1
        assert facts["graph"]["max_weight"] == graph.weights.max()
        assert facts["sources"] == [1]
        assert facts["reached_vertices"] == reached.sum() == 550
        assert facts["largest_distance"] == expected[reached].max()
        assert facts["traversed_arcs"] == graph.out_degree()[reached].sum()
        assert facts["mteps"] > 0
        assert facts["verified"] is True
        assert facts["output"] is None
        assert facts["partition"]["parts"] == 2
        assert sum(facts["partition"]["arcs_per_part"]) == graph.arc_count
        statistics = facts["statistics"]
        assert statistics["devices"] == ["cpu:0", "cpu:1"]
        assert {"read", "partition", "place", "run", "verify"} <= set(statistics["seconds"])
        assert sum(statistics["arcs_relaxed"]) >= facts["traversed_arcs"]
        for row in facts["nearest"] + facts["farthest"]:
            assert expected[row["vertex"] - 1] == row["distance"]
        assert facts["farthest"][0]["distance"] == facts["largest_distance"]

    @pytest.mark.parametrize("devices", [1, 2, 4])
    @pytest.mark.parametrize("method", ["contiguous", "random", "biased-random", "metis"])
    def test_real_road_network(
        self, data_folder: Path, tmp_path: Path, devices: int, method: str
    ) -> None:
        output = tmp_path / "distances.npy"
        path = data_folder / "USA-road-d.NY.gr.xz"
        run(
            "sssp", path, "--source", 1, "--devices", devices, "--partition", method, "--verify",
            "--output", output,
        )  # fmt: skip
        np.testing.assert_array_equal(np.load(output), expected_distances(path, 1))


class TestQuestions:
    def test_target_shows_the_path_and_stops_there(self, roads: Path) -> None:
        whole = gw.sssp(gw.read(roads), 16)
        target = int(np.flatnonzero(whole.reached)[-1])
        for devices in (1, 3):
            facts = run_json(
                "sssp", roads, "-s", 17, "-t", target + 1, "--devices", devices, "--verify"
            )
            assert facts["target"]["distance"] == whole.distance[target]
            assert facts["target"]["path"] == [v + 1 for v in whole.path_to(target)]
            assert facts["largest_distance"] == whole.distance[target]

    def test_target_that_is_not_reached(self, roads: Path) -> None:
        whole = gw.sssp(gw.read(roads), 16)
        target = int(np.flatnonzero(~whole.reached)[0])
        result = run("bfs", roads, "-s", 17, "-t", target + 1, "--verify")
        assert f"{target + 1} was not reached" in result.stdout

    @pytest.mark.parametrize("cutoff", ["0", "100", "100.5", "inf"])
    def test_cutoff(self, roads: Path, tmp_path: Path, cutoff: str) -> None:
        output = tmp_path / "near.npy"
        run("sssp", roads, "-s", 17, "--cutoff", cutoff, "-o", output, "--verify")
        whole = gw.sssp(gw.read(roads), 16).distance
        np.testing.assert_array_equal(
            np.load(output), np.where(whole <= float(cutoff), whole, UNREACHED)
        )

    def test_several_sources(self, roads: Path, tmp_path: Path) -> None:
        output = tmp_path / "both.npy"
        run("bfs", roads, "-s", 17, "-s", 400, "-o", output)
        expected = gw.bfs(gw.read(roads), [16, 399]).distance
        np.testing.assert_array_equal(np.load(output), expected)

    def test_source_of_highest_degree(self) -> None:
        facts = run_json("bfs", "rmat:8,seed=5", "-s", "max-degree")
        assert facts["sources"] == [gw.generators.rmat(8, 16, seed=5).highest_degree_vertex()]

    def test_a_direction_that_is_asked_for_needs_no_warning(self, tmp_path: Path) -> None:
        path = tmp_path / "one-sided.graph"
        path.write_text("3 3\n2 3\n3\n\n")
        assert run_json("info", path, "--directed")["arcs"] == 3
        assert run_json("info", path, "--undirected")["edges"] == 3
        result = CliRunner().invoke(app, ["info", str(path)])
        assert "--directed, --undirected" in result.stderr

    def test_undirected_merges_both_directions(self, tmp_path: Path) -> None:
        path = tmp_path / "arcs.el"
        path.write_text("0 1 5\n1 0 3\n1 2 4\n")
        assert run_json("info", path)["arcs"] == 3
        facts = run_json("info", path, "--undirected")
        assert (facts["arcs"], facts["edges"], facts["directed"]) == (4, 2, False)
        facts = run_json("sssp", path, "--undirected", "-s", 2)
        assert facts["farthest"][0] == {"vertex": 0, "distance": 7}

    @pytest.mark.parametrize(
        ("how", "arcs", "edges"),
        [
            ("sum", [(0, 1, 7), (1, 0, 3), (1, 2, 4)], [(0, 1, 10), (1, 2, 4)]),
            ("min", [(0, 1, 2), (1, 0, 3), (1, 2, 4)], [(0, 1, 2), (1, 2, 4)]),
            ("max", [(0, 1, 5), (1, 0, 3), (1, 2, 4)], [(0, 1, 5), (1, 2, 4)]),
            ("first", [(0, 1, 5), (1, 0, 3), (1, 2, 4)], [(0, 1, 5), (1, 2, 4)]),
        ],
    )
    def test_convert_merges_parallel_arcs(
        self, tmp_path: Path, how: str, arcs: list[Any], edges: list[Any]
    ) -> None:
        path, merged = tmp_path / "arcs.wel", tmp_path / "merged.csv"
        path.write_text("0 1 5\n0 1 2\n1 0 3\n1 2 4\n")
        for options, expected in (((), arcs), (("--undirected",), edges)):
            run("convert", path, merged, "--merge", how, "--quiet", *options)
            rows = merged.read_text().split()[1:]
            assert [tuple(map(int, row.split(","))) for row in rows] == expected

    def test_merged_arcs_without_weights_are_counted(self, tmp_path: Path) -> None:
        path, merged = tmp_path / "arcs.el", tmp_path / "merged.wel"
        path.write_text("0 1\n0 1\n1 0\n2 2\n")
        run("convert", path, merged, "--merge", "sum", "--undirected", "--quiet")
        graph = gw.read(merged)
        assert not graph.directed
        assert sorted(zip(*(a.tolist() for a in graph.to_edges()), strict=True)) == [
            (0, 1, 3),
            (2, 2, 1),
        ]
        run("convert", path, tmp_path / "simple.el", "--merge", "first", "--quiet")
        assert gw.read(tmp_path / "simple.el").arc_count == 3
        failed = run("convert", path, merged, "--merge", "mean", status=2)
        assert "--merge must be one of sum, min, max, first, got 'mean'" in failed.stderr

    def test_id_base_and_format(self, tmp_path: Path) -> None:
        path = tmp_path / "arcs"
        path.write_text("5 6 2\n6 7 3\n")
        facts = run_json("sssp", path, "--id-base", 5, "--format", "edge-list", "-s", 5)
        assert facts["graph"]["vertices"] == 3
        assert facts["farthest"][0] == {"vertex": 7, "distance": 5}

    def test_tuning_changes_nothing_but_the_way(self, roads: Path, tmp_path: Path) -> None:
        output = tmp_path / "out.npy"
        run(
            "sssp", roads, "-s", 1, "--devices", 3, "--delta", 7, "--window", 2,
            "--ring-items", 4, "--timeout", 300, "-o", output, "--quiet",
        )  # fmt: skip
        np.testing.assert_array_equal(np.load(output), expected_distances(roads, 1))

    @pytest.mark.parametrize("devices", ["cpu", "cpu:0,cpu:1"])
    def test_execution(self, roads: Path, tmp_path: Path, devices: str) -> None:
        output = tmp_path / "out.npy"
        solvers = {}
        for execution in ("auto", "asynchronous", "bulk-synchronous"):
            asked = ("-s", 1, "--devices", devices, "--execution", execution, "-o", output)
            facts = run_json("sssp", roads, *asked, "--verify")
            solvers[execution] = facts["statistics"]["solver"]
            np.testing.assert_array_equal(np.load(output), expected_distances(roads, 1))
        assert solvers.pop("bulk-synchronous") == "bulk-synchronous"
        assert set(solvers.values()) == {"delta-stepping" if devices == "cpu" else "asynchronous"}

    @pytest.mark.parametrize("size", [0, 1])
    def test_graphs_with_hardly_anything_in_them(self, size: int) -> None:
        assert run_json("info", f"path:{size}")["arcs"] == 0
        assert run_json("partition", f"path:{size}", "-k", 1)["partition"]["parts"] == 1
        if size:
            assert run_json("sssp", "path:1", "-s", 0)["reached_vertices"] == 1
        else:
            result = run("sssp", "path:0", "-s", 0, status=2)
            assert "which has no vertices" in result.stderr


class TestOutput:
    def test_every_form_says_the_same(self, roads: Path, tmp_path: Path) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        files = [tmp_path / f"out{form}" for form in outputs.FORMS]
        for file in files:
            run("sssp", roads, "-s", 17, "-o", file, "--predecessors", "-q")
        rows = np.load(files[0])
        table = pyarrow.parquet.read_table(files[2])
        assert table.equals(pyarrow.csv.read_csv(files[1]))
        assert table.column_names == ["vertex", "distance", "predecessor"]
        columns = table.to_pydict()
        assert columns["vertex"] == list(range(1, 601))
        assert columns["distance"] == [
            None if value == UNREACHED else value for value in rows["distance"].tolist()
        ]
        assert columns["predecessor"] == [
            None if value < 0 else value + 1 for value in rows["predecessor"].tolist()
        ]

    def test_floats_survive_as_text(self, tmp_path: Path) -> None:
        path = tmp_path / "arcs.el"
        path.write_text("0 1 0.1\n1 2 0.2\n3 3 1\n")
        run("sssp", path, "-s", 0, "-o", tmp_path / "out.csv", "-q")
        run("sssp", path, "-s", 0, "-o", tmp_path / "out.npy", "-q")
        assert (tmp_path / "out.csv").read_text().splitlines() == [
            "vertex,distance", "0,0", "1,0.1", f"2,{0.1 + 0.2}", "3,",
        ]  # fmt: skip
        assert np.load(tmp_path / "out.npy").tolist() == [0, 0.1, 0.1 + 0.2, np.inf]

    def test_csv_on_stdout(self) -> None:
        result = CliRunner().invoke(app, ["bfs", "path:3", "-s", "0", "--output", "-"])
        assert result.stdout == "vertex,distance\n0,0\n1,1\n2,2\n"
        assert "reached" in result.stderr

    def test_quiet_prints_nothing(self) -> None:
        assert run("bfs", "path:3", "-s", 0, "--quiet").stdout == ""

    def test_without_output_the_nearest_and_farthest_are_shown(self) -> None:
        lines = run("bfs", "path:9", "-s", 8).stdout.splitlines()
        begin = lines.index("The farthest vertices")
        assert [line.split() for line in lines[begin + 3 : begin + 5]] == [["0", "8"], ["1", "7"]]

    def test_overwrites_keep_permissions_and_links(self, tmp_path: Path) -> None:
        file, link = tmp_path / "real.npy", tmp_path / "link.npy"
        file.write_bytes(b"old")
        file.chmod(0o640)
        link.symlink_to(file)
        run("bfs", "path:3", "-s", 0, "-o", link, "-q")
        assert link.is_symlink()
        assert np.load(file).tolist() == [0, 1, 2]
        assert file.stat().st_mode & 0o777 == 0o640

    def test_new_files_are_as_public_as_others(self, tmp_path: Path) -> None:
        (tmp_path / "other").touch()
        run("bfs", "path:3", "-s", 0, "-o", tmp_path / "new.npy", "-q")
        assert (tmp_path / "new.npy").stat().st_mode == (tmp_path / "other").stat().st_mode

    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
    def test_a_failed_write_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
    ) -> None:
        output = tmp_path / "out.npy"
        output.write_bytes(b"old")

        def fail(file: Any, *rest: Any) -> None:
            file.write(b"half of it")
            raise error

        monkeypatch.setattr(outputs, "_write_npy", fail)
        status = 2 if isinstance(error, OSError) else 130
        result = run("bfs", "path:3", "-s", 0, "-o", output, status=status)
        assert output.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [output]
        if status == 2:
            assert result.stderr == f"godwit: error: cannot write {output}: No space left\n"

    def test_unwritable_output_is_found_out_before_the_graph_is_read(self, tmp_path: Path) -> None:
        result = run("sssp", "absent.gr", "-s", 1, "-o", tmp_path / "no" / "out.npy", status=2)
        assert "cannot write" in result.stderr
        assert "No such file or directory" in result.stderr

    def test_the_graph_itself_is_not_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "arcs.csv"
        path.write_text("0,1\n")
        result = run("bfs", path, "-s", 0, "-o", path, status=2)
        assert "would overwrite what is read" in result.stderr
        assert path.read_text() == "0,1\n"


class TestTables:
    @pytest.mark.parametrize("columns", ["20", "80"])
    def test_numbers_are_never_cut_short(self, columns: str) -> None:
        result = run(
            "sssp", "road:1000x40,weights=1..64,keep=1", "-s", 0, "--devices", 4,
            env={"COLUMNS": columns},
        )  # fmt: skip
        assert "…" not in result.stdout
        assert "40,000 vertices, 157,920 arcs" in result.stdout
        assert "\x1b" not in result.stdout

    def test_terminals_that_know_little(self, tmp_path: Path) -> None:
        path = tmp_path / "stra\u00dfe.el"
        path.write_text("0 1\n")
        done = subprocess.run(
            [*GODWIT, "bfs", str(path), "-s", "0", "--devices", "2"],
            capture_output=True, check=True, timeout=HANG_S,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )  # fmt: skip
        assert b"stra\\xdfe.el: 2 vertices" in done.stdout

    def test_columns_align(self) -> None:
        lines = run("partition", "path:100", "-k", 3).stdout.splitlines()
        begin = lines.index("Parts")
        assert len({len(line) for line in lines[begin + 1 : begin + 6]}) == 1

    def test_many_devices_have_sums_instead_of_a_matrix(self) -> None:
        result = run("partition", "path:100", "-k", 20)
        assert "--json has every pair" in result.stdout
        assert len(run_json("partition", "path:100", "-k", 20)["partition"]["border"]) == 20

    def test_smallest_few(self) -> None:
        values = np.array([5, 1, 3, 1, 9, 1, 1, 0])
        assert smallest(values, 4) == [7, 1, 3, 5]
        assert smallest(values[:2], 4) == [1, 0]


class TestOtherCommands:
    def test_info(self, roads: Path) -> None:
        graph = gw.read(roads)
        facts = run_json("info", roads)
        assert facts["vertices"] == 600
        assert facts["arcs"] == graph.arc_count
        assert facts["edges"] is None
        assert facts["directed"] is True
        assert facts["weights"] == "int32"
        assert facts["min_weight"] == graph.weights.min()
        assert facts["degree"]["max"] == graph.out_degree().max()
        assert facts["self_loops"] == 0
        assert facts["memory_bytes"] == graph.nbytes
        text = run("info", roads).stdout
        assert "out-degree" in text
        assert "self-loops" in text

    def test_info_of_the_structure(self, roads: Path) -> None:
        facts = run_json("info", roads, "--undirected")
        graph = gw.read(roads, directed=False).to_scipy(merge="min")
        count, labels = connected_components(graph, directed=False)
        largest = np.flatnonzero(labels == np.bincount(labels).argmax())
        lengths = dijkstra(graph[largest][:, largest], unweighted=True)
        assert facts["components"] == count
        assert facts["largest_component"] == len(largest)
        assert facts["diameter"]["lower"] <= lengths.max() <= facts["diameter"]["upper"]
        assert sum(one["vertices"] for one in facts["histogram"]) == 600
        memory = facts["memory"]
        assert [one["devices"] for one in memory] == [1, 2, 4, 8]
        assert memory[0]["arcs"] == facts["arcs"]
        assert memory[0]["bytes"] > memory[1]["bytes"] > memory[3]["bytes"]

    def test_info_draws_the_degrees(self) -> None:
        drawn = run("info", "star:1000", "--histogram").stdout
        assert re.search(r"█+ +1 +999\n", drawn)
        assert re.search(r" 512 to 1,023 +1\n", drawn)
        assert "█" not in run("info", "star:1000").stdout

    def test_weights_that_are_not_numbers_fit_into_json(self, tmp_path: Path) -> None:
        path = tmp_path / "arcs.el"
        path.write_text("0 1 nan\n1 0 2\n")
        assert run_json("info", path)["min_weight"] is None

    @pytest.mark.parametrize("form", [".npy", ".csv", ".parquet"])
    def test_partition_writes_owners(self, roads: Path, tmp_path: Path, form: str) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        output = tmp_path / f"owners{form}"
        facts = run_json("partition", roads, "--parts", 4, "--method", "random", "-o", output)
        expected = gw.partition(gw.read(roads), 4, "random")
        if form == ".npy":
            owners = np.load(output)
        elif form == ".csv":
            owners = pyarrow.csv.read_csv(output)["part"].to_numpy()
        else:
            owners = pyarrow.parquet.read_table(output)["part"].to_numpy()
        np.testing.assert_array_equal(owners, expected.owner)
        assert facts["partition"]["cut_arcs"] == expected.cut_arcs
        assert facts["partition"]["border"] == expected.border.tolist()

    def test_owners_can_be_used_again(self, roads: Path, tmp_path: Path) -> None:
        owners = tmp_path / "owners.npy"
        run("partition", roads, "-k", 2, "--method", "random", "-o", owners, "-q")
        facts = run_json("sssp", roads, "-s", 1, "--devices", 2, "--partition", owners)
        assert facts["partition"]["method"] == "array"
        again = run_json("partition", roads, "-k", 2, "--method", owners)
        assert again["partition"]["cut_arcs"] == facts["partition"]["cut_arcs"]

    def test_devices(self) -> None:
        facts = run_json("devices")["devices"]
        assert [device["name"] for device in facts] == [d.name for d in gw.all_devices()]
        assert "cpu:0" in run("devices").stdout

    @pytest.mark.parametrize(
        ("gpus", "installed", "has_driver", "expected"),
        [
            ([], False, False, None),
            ([], False, True, "GPUs need the Python module cuda; .*"),
            (["90", "75"], False, True, r"2 GPUs, .* pip install \"\.\[cuda\]\" .*"),
            (["90"], False, True, "1 GPU, for .*"),
            (["90", "75"], True, True, r"cuda:1 \(Made up, 7\.5\): .* 8\.0 \(Ampere\) or later"),
            (["90", "100"], True, True, None),
        ],
        ids=["nothing", "no bindings", "no compilers", "one", "too old", "all listed"],
    )
    def test_devices_says_why_gpus_are_not_listed(
        self, gpus: list[str], installed: bool, has_driver: bool, expected: str | None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(driver, "device_count", lambda: len(gpus))
        monkeypatch.setattr(
            driver, "why_not", lambda: "GPUs need the Python module cuda; install it: ..."
        )
        monkeypatch.setattr(
            driver,
            "properties",
            lambda index: GpuProperties("Made up", gpus[index], 1, 1, 1, "0000:01", True),
        )
        monkeypatch.setattr(driver, "can_access_peer", lambda i, j: False)
        monkeypatch.setattr(driver, "peer_attribute", lambda name, i, j: 0)
        monkeypatch.setattr(memory, "free_memory_bytes", lambda index: 1 << 30)
        monkeypatch.setattr(libraries, "are_installed", lambda: installed)
        monkeypatch.setattr(devices_command, "has_driver", lambda: has_driver)
        told = run_json("devices")
        assert sum(device["kind"] == "cuda" for device in told["devices"]) == (
            sum(int(one) >= 80 for one in gpus) if installed else 0
        )
        lines = [line for line in run("devices").stdout.splitlines() if "not listed" in line]
        if expected is None:
            assert told["unlisted"] is None
            assert lines == []
        else:
            assert re.fullmatch(expected, told["unlisted"])
            assert lines == [f"not listed  {told['unlisted']}"]

    def test_version(self) -> None:
        assert run("--version").stdout == f"godwit {gw.__version__}\n"

    @pytest.mark.parametrize(
        "command", ["", "bfs", "sssp", "components", "filter", "info", "partition", "devices"]
    )
    def test_help_teaches_by_example(self, command: str) -> None:
        text = run(*command.split(), "--help").stdout
        assert f"godwit {command}".rstrip() in text.partition("Examples:")[2]

    @pytest.mark.parametrize("command", ["", "sssp", "info"])
    def test_help_shows_no_types_of_flags(self, command: str) -> None:
        text = run(*command.split(), "--help").stdout
        assert "--help" in text
        assert "bool" not in text

    def test_infinite_eccentricities_are_explained(self, tmp_path: Path) -> None:
        path = tmp_path / "parts.el"
        path.write_text("# Undirected graph\n0 1\n1 2\n3 4\n")
        assert "5 do not reach all others: their values are" in run("eccentricity", path).stdout
        assert "do not reach" not in run("eccentricity", "path:4").stdout

    def test_help_says_what_is_counted(self) -> None:
        assert "MTEPS are millions of arcs" in run("sssp", "--help").stdout

    def test_without_a_command_there_is_help(self) -> None:
        assert "Usage: godwit" in run().stdout


class TestConversion:
    @pytest.mark.parametrize(
        "name", ["a.godwit", "a.mtx.gz", "a.gr.xz", "a.graph", "a.parquet", "a.wsg", "a.e", "a.el"]
    )
    def test_there_and_back(self, tmp_path: Path, name: str) -> None:
        spec = "road:9x12" + (",weights=1..9" if name != "a.el" else "")
        facts = run_json("generate", spec, tmp_path / name)
        assert facts["bytes"] == (tmp_path / name).stat().st_size
        back = tmp_path / "back.godwit"
        run("convert", tmp_path / name, back, "-q")
        found, wanted = gw.read(back), gw.generate(spec)
        np.testing.assert_array_equal(found.offsets, wanted.offsets)
        np.testing.assert_array_equal(found.targets, wanted.targets)
        np.testing.assert_array_equal(found.weights, wanted.weights)

    def test_names_travel(self, tmp_path: Path) -> None:
        table = tmp_path / "follows.csv"
        table.write_text("user,friend,since\nzoe,adam,1\nadam,eve,2\n")
        file = tmp_path / "follows.godwit"
        run("convert", table, file, "--columns", "user,friend")
        assert run_json("info", file)["ids"] == "text"
        out = tmp_path / "out.csv"
        run("bfs", file, "-s", "zoe", "-t", "eve", "-o", out, "--predecessors")
        lines = out.read_text().split()
        assert lines == [
            "vertex,distance,predecessor",
            '"adam",1,"zoe"',
            '"eve",2,"adam"',
            '"zoe",0,',
        ]
        assert "'bob' is not in the graph" in run("bfs", file, "-s", "bob", status=2).stderr

    def test_what_has_no_room_is_dropped_on_request_only(self, tmp_path: Path) -> None:
        target = tmp_path / "a.graph-txt"
        for command in (["road:4x4,weights=1..9", target], ["road:4x4,weights=1..9", "--to", "el"]):
            assert run("convert", *command, status=2).exit_code == 2
        assert list(tmp_path.iterdir()) == []
        run("convert", "road:4x4,weights=1..9", target, "--drop", "weights")
        assert gw.read(target).weights is None

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["path:3", "a.xyz"], "cannot tell the format from the name"),
            (["path:3", "-", "--to", "csv"], "OUTPUT must be the name of a file, got '-'"),
            (["path:3", "a.el", "--to", "tape"], "format must be one of"),
            (["path:3", "a.el", "--drop", "all"], "--drop must be weights or ids"),
            (["path:3", "absent/a.el"], "cannot write absent/a.el: No such file or directory"),
            (["absent.gr", "a.el"], "no such file: absent.gr"),
            (["path:3", "a.el", "--columns", "u,v"], "--columns is for files"),
            (["dataset:no-such-graph", "a.el"], "no data set is called 'no-such-graph'"),
        ],
    )
    def test_bad_input(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        done = run("convert", *arguments, status=2)
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    def test_weights_are_drawn_on_request(self, tmp_path: Path) -> None:
        path = tmp_path / "a.gr"
        assert "--weights LOW..HIGH" in run("convert", "road:9x9", path, status=2).stderr
        run("convert", "road:9x9", path, "--weights", "1..3", "-q")
        assert (
            gw.read(path).weights.tolist() == gw.generate("road:9x9,weights=1..3").weights.tolist()
        )
        assert (
            "--weights must be"
            in run("convert", "road:9x9", path, "--weights", "3", status=2).stderr
        )

    def test_a_name_that_contradicts_is_found_out_at_once(self, tmp_path: Path) -> None:
        for spec, name in (("rmat:39,weights=1..9", "a.el"), ("rmat:39", "a.wel")):
            assert "file has" in run("generate", spec, tmp_path / name, status=2).stderr

    def test_generate_wants_a_generator(self, tmp_path: Path) -> None:
        assert "is no generator" in run("generate", "a.gr", tmp_path / "b.gr", status=2).stderr

    def test_a_graph_is_not_written_over_itself(self, tmp_path: Path) -> None:
        path = tmp_path / "a.el"
        path.write_text("0 1\n")
        assert "overwrite" in run("convert", path, path, status=2).stderr
        assert path.read_text() == "0 1\n"

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_a_full_disk_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def make(path: Path, *, named: bool = False) -> tuple[int, str]:
            name = tmp_path / "temporary"
            name.touch()
            return os.open("/dev/full", os.O_WRONLY), str(name)

        monkeypatch.setattr("godwit.files._make_temporary", make)
        for name in ("a.godwit", "a.mtx", "a.parquet", "a.csv", "a.graph", "a.gr.gz", "a.e"):
            spec = "grid:50x50,weights=1..9"
            error = run("convert", spec, tmp_path / name, status=2).stderr
            assert error.count("\n") == 1
            assert "No space left on device" in error
            assert list(tmp_path.iterdir()) == []


class TestGenerators:
    @pytest.mark.parametrize(
        ("text", "make"),
        [
            ("rmat:6", lambda: gw.generators.rmat(6)),
            ("rmat:6,edge_factor=3,seed=9", lambda: gw.generators.rmat(6, 3, seed=9)),
            ("road:7", lambda: gw.generators.road(7, 7)),
            ("road:4x9,keep=0.7,seed=1", lambda: gw.generators.road(4, 9, keep=0.7, seed=1)),
            ("path:6,weights=1..64", lambda: gw.generators.path(6, weights=(1, 64))),
        ],
    )
    def test_make_what_the_functions_make(self, text: str, make: Callable[[], gw.Graph]) -> None:
        made, expected = gw.generate(text), make()
        np.testing.assert_array_equal(made.offsets, expected.offsets)
        np.testing.assert_array_equal(made.targets, expected.targets)
        assert (made.weights is None) == (expected.weights is None)
        if made.weights is not None:
            np.testing.assert_array_equal(made.weights, expected.weights)

    @pytest.mark.parametrize(
        "text",
        [
            "rmat:", "rmat:x", "rmat:5,", "rmat:5,keep=0.5", "rmat:5,seed=1,seed=1", "road:4y5",
            "road:4x", "road:4x5,keep=many", "path:5,weights=3", "path:5,weights=1..x", "path:1e3",
        ],
    )  # fmt: skip
    def test_refuse_what_they_do_not_understand(self, text: str) -> None:
        with pytest.raises(InputError, match=r"cannot understand .* expected"):
            gw.generate(text)

    def test_stand_where_a_file_does(self) -> None:
        facts = run_json("info", "watts-strogatz:60,neighbours=4,rewire=0,copies=3")
        assert (facts["vertices"], facts["arcs"]) == (180, 720)
        assert "expected grid:ROWSxCOLUMNS" in run("info", "grid:4x4x4", status=2).stderr
        assert "got 9" in run("info", "watts-strogatz:20,neighbours=9", status=2).stderr

    def test_help_lists_all(self) -> None:
        words = set(re.split(r"[\s,.;:)│]+", run("--help").stdout))
        assert set(FORMATS) <= words | {"godwit"}
        assert set(GENERATORS) <= words


ROADS = "p sp 3 2\na 1 2 5\na 2 3 4\n"

BAD_INPUT: dict[str, tuple[str, str, str]] = {
    # name: (content of the file, arguments with FILE in its place, what the message says)
    "missing file": (ROADS, "sssp absent.gr -s 1", "no such file: absent.gr"),
    "folder": (ROADS, "sssp . -s 1", "is a directory"),
    "empty file": ("", "sssp FILE -s 1", "the file is empty"),
    "malformed line": ("p sp 3 2\na 1 2 5\na 2 x 4\n", "sssp FILE -s 1", ":3: .*'a 2 x 4'"),
    "unknown format": ("hello\n", "info FILE", ":1: unknown format.*'hello'"),
    "id out of range": ("p sp 3 2\na 1 2 5\na 2 4 4\n", "sssp FILE -s 1", ":3: .*4.*'a 2 4 4'"),
    "id 0": ("p sp 3 2\na 1 2 5\na 0 2 4\n", "info FILE", ":3: .*--id-base 0"),
    "negative weight": ("p sp 3 2\na 1 2 5\na 2 3 -4\n", "sssp FILE -s 1", "from 2 to 3.* -4"),
    "NaN weight": ("0 1 1.5\n1 2 nan\n", "sssp FILE -s 0", "from 1 to 2 .*nan"),
    "zero weight": ("0 1 1.5\n1 2 0\n", "betweenness FILE", "from 1 to 2 .*--ignore-weights"),
    "several weights": ("0 1 2\n0 1 3\n", "clustering FILE", "0 -> 1 .*--ignore-weights"),
    "weights of zero": ("0 1 0\n1 2 0\n", "clustering FILE", "positive.*--ignore-weights"),
    "source too small": (
        ROADS,
        "sssp FILE -s 0",
        "source 0 is not in the graph, which has ids of its own, 1 to 3",
    ),
    "source too large": (
        ROADS,
        "bfs FILE -s 4",
        "source 4 is not in the graph, which has ids of its own, 1 to 3",
    ),
    "source is a word": (ROADS, "bfs FILE -s here", "source must be .*, got 'here'"),
    "target out of range": (ROADS, "bfs FILE -s 1 -t 9", "target 9 is not in the graph"),
    "no source": (ROADS, "bfs FILE", "Missing option '--source'"),
    "zero devices": (ROADS, "sssp FILE -s 1 --devices 0", "devices must be at least 1, got 0"),
    "negative devices": (ROADS, "sssp FILE -s 1 --devices -1", "at least 1, got -1"),
    "unknown device": (
        ROADS,
        "sssp FILE -s 1 --devices gpu",
        "there is no device 'gpu'.*GPUs are called cuda",
    ),
    "no device name": (ROADS, "sssp FILE -s 1 --devices cpu:0,", "must be a number or names"),
    "zero parts": (ROADS, "partition FILE -k 0", "parts must be at least 1, got 0"),
    "unknown method": (ROADS, "sssp FILE -s 1 --partition best", "contiguous, random.*'best'"),
    "owners are no array": (ROADS, "sssp FILE -s 1 --partition no.npy", "cannot read no.npy"),
    "negative cutoff": (ROADS, "sssp FILE -s 1 --cutoff -2", "cutoff must not be negative"),
    "cutoff is a word": (ROADS, "bfs FILE -s 1 --cutoff far", "cutoff must be a number, got 'far'"),
    "zero timeout": (ROADS, "bfs FILE -s 1 --timeout 0", "timeout must be a positive number"),
    "zero delta": (ROADS, "sssp FILE -s 1 --delta 0", "delta must be positive"),
    "zero ring": (ROADS, "sssp FILE -s 1 --ring-items 0", "ring_items must be at least 1"),
    "output in no folder": (ROADS, "sssp FILE -s 1 -o no/out.npy", "cannot write no/out.npy"),
    "output is a folder": (ROADS, "sssp FILE -s 1 -o folder.npy", "not a regular file"),
    "output of no form": (ROADS, "sssp FILE -s 1 -o out.txt", "must end in .npy, .csv or .parq"),
    "two on stdout": (ROADS, "sssp FILE -s 1 --json -o -", "both want stdout"),
    "two on stdout, parts": (ROADS, "partition FILE -k 2 --json -o -", "both want stdout"),
    "two on stdout, ranks": (ROADS, "pagerank FILE --json -o -", "both want stdout"),
    "two on stdout, components": (ROADS, "components FILE --json -o -", "both want stdout"),
    "two on stdout, centralities": (ROADS, "betweenness FILE --json -o -", "both want stdout"),
    "unknown execution": (
        ROADS,
        "sssp FILE -s 1 --execution bsp",
        "execution must be 'auto', 'asynchronous' or 'bulk-synchronous', got 'bsp'",
    ),
    "graph too large": (ROADS, "info rmat:38", "needs some .* GiB"),
    "file too large": ("p sp 900000000000 0\n", "info FILE", "do not fit in memory"),
    "misspelt generator": (ROADS, "info rmta:20", "no such file: rmta:20; nor is rmta a generator"),
    "address": (ROADS, "info https://a.org/b.gr", "download https://a.org/b.gr first"),
    "generator without a size": (ROADS, "info rmat", "a generated graph is rmat:SCALE"),
    "a path with a colon": (ROADS, "info no/such:file", "no such file: no/such:file$"),
    "generator": (ROADS, "info rmat:20,edges=3", "cannot understand 'edges=3'"),
    "format of a generator": (ROADS, "info path:3 --id-base 1", "path:3 is a generated graph"),
    "unknown option": (ROADS, "info FILE --colour", "No such option.*--colour"),
    "unknown command": (ROADS, "walk FILE", "No such command 'walk'"),
    "name of NetworkX": (ROADS, "k_core FILE", "No such command 'k_core'. Did you mean 'core'?"),
    "option of NetworkX": (ROADS, "pagerank FILE --alpha 1", "--alpha. Did you mean --damping?"),
    "option misspelt": (ROADS, "sssp FILE -s 1 --column a,b", "--column. Did you mean --columns?"),
    "no command": (ROADS, "FILE", r"A command comes first: godwit info "),
    "name of cuGraph": (ROADS, "wcc FILE", "No such command 'wcc'. Did you mean 'components'?"),
}


def test_names_of_other_libraries_are_of_commands() -> None:
    commands = set(application.command().commands)
    names = application._OF_OTHER_LIBRARIES
    assert set(names.values()) <= commands
    assert not names.keys() & commands


class TestBadInput:
    @pytest.mark.parametrize("name", BAD_INPUT)
    def test_is_one_line_and_status_2_and_writes_nothing(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content, arguments, message = BAD_INPUT[name]
        monkeypatch.chdir(tmp_path)
        Path("graph.txt").write_text(content)
        Path("folder.npy").mkdir()
        words = arguments.replace("FILE", "graph.txt").split()
        if words[0] in ("bfs", "sssp") and "-o" not in words:
            words += ["-o", "out.npy"]
        result = run(*words, status=2)
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("godwit: error: ")
        assert re.search(message, result.stderr), result.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"graph.txt", "folder.npy"}

    def test_a_graph_without_a_name(self) -> None:
        assert "GRAPH must be a file, " in run("info", "", status=2).stderr

    def test_too_little_memory_to_place(self, roads: Path) -> None:
        arguments = ["sssp", roads, "-s", 1, "--devices", 2]
        result = run(*arguments, status=2, env={"GODWIT_MEMORY_BYTES": "10000"})
        assert result.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("error", "status", "line"),
        [
            (MemoryError(), 2, "error: out of memory"),
            (MemoryError("cannot allocate 7 GiB"), 2, "error: cannot allocate 7 GiB"),
            (OSError(errno.EIO, "I/O error", "disk"), 2, "error: disk: I/O error"),
            (gw.errors.RunTimeoutError("too slow"), 2, "error: too slow"),
            (gw.errors.VerificationError("two\nlines"), 2, "error: two lines"),
            (InputError("\x1b[31mred"), 2, "error: \\x1b[31mred"),
            (KeyboardInterrupt(), 130, "interrupted"),
            (RuntimeError("a bug"), 1, "error: internal error, please report it: RuntimeError: a "),
        ],
    )
    def test_any_failure_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, line: str
    ) -> None:
        def fail(*arguments: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(info, "load_graph", fail)
        result = run("info", "path:3", status=status)
        assert result.stderr.startswith(f"godwit: {line}")
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""

    def test_traceback_on_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: Any, **options: Any) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(info, "load_graph", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            CliRunner().invoke(app, ["--traceback", "info", "path:3"], catch_exceptions=False)


def check_ends_by_signals(script: str) -> None:
    """For each signal it ends with that one's status; at the same time, as they wait for seconds."""
    statuses = {signal.SIGINT: 130, signal.SIGTERM: 143}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script.replace("SIGNAL", str(int(number)))],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for number in statuses
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=HANG_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == list(statuses.values()), errors


class TestProcess:
    """What only a process of its own shows."""

    def test_shells_complete_commands_and_options(self, tmp_path: Path) -> None:
        """The script that is installed asks the command for what may follow."""
        environment = {**os.environ, "HOME": str(tmp_path), "SHELL": "bash"}

        def output(*arguments: str, **further: str) -> list[str]:
            run = ["bash", "-c", '"$@"; exit $?', "bash", *GODWIT, *arguments]
            text = subprocess.run(
                run, capture_output=True, text=True, check=True, env={**environment, **further}
            ).stdout
            return text.split()

        output("--install-completion")
        script = (tmp_path / ".bash_completions" / "godwit.sh").read_text()
        assert script.split() == output("--show-completion")
        asked = {"_GODWIT_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
        assert asked["_GODWIT_COMPLETE"] in script.replace("=", " ").split()
        assert output(COMP_WORDS="godwit ss", **asked) == ["sssp"]
        words = output(COMP_WORDS="godwit bfs --so", **asked | {"COMP_CWORD": "2"})
        assert words == ["--source"]

    def test_help_is_quick_because_it_imports_little(self) -> None:
        for arguments in (["--help"], ["--version"], ["sssp", "--help"]):
            done = subprocess.run(
                [sys.executable, "-X", "importtime", "-m", "godwit", *arguments],
                capture_output=True, text=True, check=True, timeout=HANG_S,
            )  # fmt: skip
            imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
            assert "typer" in imported
            assert not imported & {"numba", "scipy", "pyarrow", "numpy", "pymetis"}

    def test_console_script_and_module_agree(self) -> None:
        from importlib.metadata import entry_points

        (script,) = entry_points(group="console_scripts", name="godwit")
        assert script.value == "_godwit_command:main"
        done = subprocess.run(
            [*GODWIT, "bfs", "path:4", "-s", "0", "-o", "-", "-q"],
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "vertex,distance\n0,0\n1,1\n2,2\n3,3\n"

    def test_bad_input(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [*GODWIT, "sssp", "absent.gr", "--source", "1", "--output", "out.npy"],
            capture_output=True, text=True, timeout=HANG_S, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "godwit: error: no such file: absent.gr\n"
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="needs /dev/stdin")
    def test_a_graph_on_standard_input(self) -> None:
        done = subprocess.run(
            [*GODWIT, "bfs", "-", "-s", "5", "-o", "-", "-q"], input="5 7\n7 6\n",
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-3:] == ["5,0", "6,2", "7,1"]
        done = subprocess.run(
            f"{shlex.join(GODWIT)} bfs - -s 5 <&-", shell=True, capture_output=True, text=True,
            timeout=HANG_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "godwit: error: /dev/stdin: the file is empty\n"

    @pytest.mark.skipif(sys.platform == "win32", reason="needs a shell of POSIX")
    @pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
    @pytest.mark.parametrize(
        "command", ["bfs path:4 -s 0 -o out.npy", "bfs path:4 -s 0 --json", "--help"]
    )
    def test_what_is_closed_is_not_written_to(
        self, command: str, closed: str, tmp_path: Path
    ) -> None:
        shell = f"{shlex.join(GODWIT)} {command} {closed}"
        done = subprocess.run(
            shell, shell=True, capture_output=True, timeout=HANG_S, check=False, cwd=tmp_path
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert (tmp_path / "out.npy").exists() == ("out.npy" in command)

    @pytest.mark.parametrize(
        "arguments",
        [
            pytest.param("bfs path:100000 -s 0", marks=pytest.mark.thorough),
            "bfs path:100000 -s 0 --json",
            "bfs path:100000 -s 0 -o - -q",
            pytest.param("--help", marks=pytest.mark.thorough),
            "bfs --help",
        ],
    )
    def test_closed_pipe_is_quiet(self, arguments: str) -> None:
        process = subprocess.Popen(
            [*GODWIT, *arguments.split()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        with process.stderr as stderr:
            assert stderr.read() == b""
        assert process.wait(120) == 141

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    @pytest.mark.parametrize(
        ("number", "status", "line"),
        [(signal.SIGINT, 130, b"godwit: interrupted\n"), (signal.SIGTERM, 143, b"")],
    )
    def test_signals(self, tmp_path: Path, number: int, status: int, line: bytes) -> None:
        fifo = tmp_path / "graph.el"
        os.mkfifo(fifo)
        process = subprocess.Popen(
            [*GODWIT, "bfs", str(fifo), "-s", "0", "-o", "out.npy"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
        )  # fmt: skip
        with fifo.open("w") as writer:  # returns when the other side has opened it, too
            writer.write("0 1\n")
            writer.flush()
            process.send_signal(number)
            try:
                out, err = process.communicate(timeout=HANG_S)
            finally:
                process.kill()
        assert (process.returncode, out, err) == (status, b"", line)
        assert list(tmp_path.iterdir()) == [fifo]

    @pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
    def test_a_signal_that_python_loses_is_not_lost(self) -> None:
        """It comes while an object is finalized: Python prints the exception, and goes on."""
        script = (
            "import os, time, godwit.cli, godwit.cli.application as application\n"
            "class Finalized:\n"
            "    def __del__(self): os.kill(os.getpid(), SIGNAL); time.sleep(0.1)\n"
            "class Command:\n"
            "    def main(self, **_):\n"
            "        del self.inner\n"
            "        time.sleep(100)\n"
            "made = Command(); made.inner = Finalized()\n"
            "application.command = lambda: made\n"
            "godwit.cli.main([])\n"
        )
        check_ends_by_signals(script)

    @pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
    def test_a_signal_that_wakes_nobody_is_not_lost(self) -> None:
        """It comes to another thread, or right before a read: the main thread goes on waiting."""
        script = (
            "import os, signal, threading, time\n"
            "import godwit.cli, godwit.cli.application as application\n"
            "def send():\n"
            "    time.sleep(0.5)\n"
            "    signal.pthread_kill(threading.get_ident(), SIGNAL)\n"
            "    time.sleep(100)\n"
            "class Command:\n"
            "    def main(self, **_):\n"
            "        threading.Thread(target=send, daemon=True).start()\n"
            "        os.read(os.pipe()[0], 1)\n"
            "application.command = Command\n"
            "godwit.cli.main([])\n"
        )
        check_ends_by_signals(script)

    @pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
    @pytest.mark.parametrize("quiet", [False, True])
    def test_progress_is_for_terminals(self, roads: Path, quiet: bool) -> None:
        import pty

        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*GODWIT, "sssp", str(roads), "-s", "1", "--json", *(["--quiet"] * quiet)],
            stdout=subprocess.PIPE, stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):
            while chunk := terminal.read(1 << 12):  # ends with EIO when the other side is closed
                shown += chunk
        json.loads(process.communicate(timeout=HANG_S)[0])
        assert process.returncode == 0
        assert (b"reading roads.gr.xz" in shown) == (not quiet)
        assert (b"running sssp" in shown) == (not quiet)
        if quiet:
            assert shown == b""
