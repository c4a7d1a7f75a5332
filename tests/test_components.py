"""Connected components against SciPy: every method, over graphs, threads and devices of the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as by_scipy
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.components import METHODS
from godwit.cli.application import app
from godwit.errors import ClosedContextError, DeviceError, InputError, RunTimeoutError
from godwit.graph import rows, union_find
from godwit.graph.csr import Graph
from godwit.graph.union_find import weak_components
from graphs import arcs_of, each_graph, forced_threads, graphs, named_graph

UNIONS = ("hook", "rem", "afforest")


def expected_labels(graph: Graph) -> np.ndarray[Any, Any]:
    """The smallest vertex of every vertex' component, by SciPy's partition."""
    n = graph.vertex_count
    if n == 0:
        return np.empty(0, np.int64)
    ends = np.array([arc[:2] for arc in arcs_of(graph)], np.int64).reshape(-1, 2)
    matrix = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    count, part = by_scipy(matrix, directed=True, connection="weak")
    smallest = np.full(count, n)
    np.minimum.at(smallest, part, np.arange(n))
    return smallest[part]


class TestLabels:
    @each_graph
    @pytest.mark.parametrize("method", METHODS)
    def test_as_scipy(self, name: str, method: str) -> None:
        graph = named_graph(name)
        result = gw.connected_components(graph, method=method)
        assert result.label.dtype == graph.targets.dtype
        np.testing.assert_array_equal(result.label, expected_labels(graph))

    @given(
        graph=graphs(),
        method=st.sampled_from(UNIONS),
        rounds=st.sampled_from([None, 1, 2, 5]),
        jumps=st.sampled_from([None, 0, 1]),
        threads=st.sampled_from([1, 3]),
    )
    def test_any_graph_any_options_any_threads(
        self, graph: Graph, method: str, rounds: int | None, jumps: int | None, threads: int
    ) -> None:
        with forced_threads(threads):
            found = gw.connected_components(graph, method=method, rounds=rounds, jumps=jumps)
        np.testing.assert_array_equal(found.label, expected_labels(graph))

    @pytest.mark.parametrize("method", UNIONS)
    @pytest.mark.parametrize(
        "spec", ["rmat:12,seed=3", "rmat:11,symmetrize=false", "road:90", "path:20000", "star:9000"]
    )
    def test_threads_that_meet(
        self, spec: str, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_THREADS", "4")
        monkeypatch.setattr(rows, "SMALL_ARCS", 0)
        monkeypatch.setattr(union_find, "_CHUNK_VERTICES", 16)
        graph = gw.generate(spec)
        expected = expected_labels(graph)
        for rounds in (None, 1, 3):
            found = gw.connected_components(graph, method=method, rounds=rounds)
            np.testing.assert_array_equal(found.label, expected)

    def test_rows_of_the_largest_are_left_out_and_nothing_is_lost(self) -> None:
        # The only arc to the second part is the last of its row, and stands in the row of vertex 0, too.
        star = np.arange(1, 400)
        graph = Graph.from_edges([*np.zeros(399, int), 399, 400], [*star, 400, 401], directed=False)
        for rounds in (None, 1, 2):
            found = gw.connected_components(graph, method="afforest", rounds=rounds)
            assert found.count == 1

    @given(roots=st.lists(st.integers(0, 3), min_size=1, max_size=200), seed=st.integers(0, 9))
    def test_the_vote_does_not_overrate_a_tree(self, roots: list[int], seed: int) -> None:
        """By it further neighbours are left alone; here, all vertices that have arcs take part."""
        degree = np.random.default_rng(seed).integers(0, 2, len(roots))
        parent = np.array(roots)
        found, voters, others = union_find._most_frequent_root(
            np.append(0, np.cumsum(degree)), parent
        )
        assert voters == degree.sum()
        assert np.count_nonzero(parent[degree > 0] != found) <= others <= voters

    @pytest.mark.parametrize("spec", ["rmat:14", "road:200"])
    def test_auto_goes_by_degree(self, spec: str) -> None:
        result = gw.connected_components(gw.generate(spec))
        assert result.method == ("afforest" if spec.startswith("rmat") else "rem")
        assert result.statistics.solver == result.method

    @pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"], ["cpu:0", "cpu:1", "cpu:2"]])
    def test_labels_propagate_over_devices(
        self, devices: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_THREADS", "3")
        for name in ("random sparse", "two components", "random undirected"):
            graph = named_graph(name)
            result = gw.connected_components(graph, method="label-propagation", devices=devices)
            np.testing.assert_array_equal(result.label, expected_labels(graph))
            assert result.graph is graph

    @pytest.mark.parametrize(
        "file",
        ["email-Enron.mtx.xz", "USA-road-d.NY.gr.xz", "cit-HepPh.mtx.xz", "dblp-2010.mtx.xz"],
    )
    def test_real_graphs(self, file: str, data_folder: Path) -> None:
        graph = gw.read(data_folder / file).without_weights()
        count, part = by_scipy(graph.to_scipy(merge="min"), directed=True, connection="weak")
        smallest = np.full(count, graph.vertex_count)
        np.minimum.at(smallest, part, np.arange(graph.vertex_count))
        for method in UNIONS:
            result = gw.connected_components(graph, method=method)
            assert result.count == count
            np.testing.assert_array_equal(result.label, smallest[part])


class TestResult:
    def test_sizes_and_names(self) -> None:
        result = gw.connected_components(Graph.from_edges([5, 1, 3], [4, 3, 2], vertex_count=7))
        assert result.label.tolist() == [0, 1, 1, 1, 4, 4, 6]
        assert result.count == 4
        assert result.names.tolist() == [0, 1, 4, 6]
        assert result.sizes.tolist() == [1, 3, 2, 1]
        assert result.largest(3) == [(1, 3), (4, 2), (0, 1)]
        assert result.largest(9) == [(1, 3), (4, 2), (0, 1), (6, 1)]
        assert [result.size(name) for name in range(7)] == [1, 3, 0, 0, 2, 0, 1]
        assert "4 component(s), the largest of 3" in repr(result)

    @pytest.mark.parametrize("name", [7, -1, 1.5, "Ulm"])
    def test_the_size_of_what_is_no_vertex(self, name: Any) -> None:
        result = gw.connected_components(Graph.from_edges([5, 1, 3], [4, 3, 2], vertex_count=7))
        with pytest.raises(InputError, match=f"name must be .* got '?{name}"):
            result.size(name)

    @given(graph=graphs())
    def test_sizes_add_up(self, graph: Graph) -> None:
        result = gw.connected_components(graph)
        assert result.sizes.sum() == graph.vertex_count
        assert len(result.sizes) == len(result.names) == result.count
        for name, size in zip(result.names, result.sizes, strict=True):
            assert np.count_nonzero(result.label == name) == size

    def test_by_ids_and_as_tables(self) -> None:
        graph = Graph.from_edges([0, 2], [1, 3], ids=["Ulm", "Bonn", "Jena", "Gera"])
        result = gw.connected_components(graph)
        assert result.to_dict() == {"Ulm": "Ulm", "Bonn": "Ulm", "Jena": "Jena", "Gera": "Jena"}
        table = result.to_arrow()
        assert table.column_names == ["vertex", "component"]
        assert table["component"].to_pylist() == ["Ulm", "Ulm", "Jena", "Jena"]
        assert result.to_frame()["component"].tolist() == ["Ulm", "Ulm", "Jena", "Jena"]

    def test_statistics(self) -> None:
        statistics = gw.connected_components(gw.generators.rmat(8)).statistics
        assert statistics.devices == ("cpu",)
        assert set(statistics.seconds) == {"run"}
        json.dumps(statistics.to_dict())

    def test_of_placed_graphs(self) -> None:
        graph = named_graph("random directed")
        with gw.place(graph, "cpu") as placed:
            np.testing.assert_array_equal(
                gw.connected_components(placed).label, expected_labels(graph)
            )
            with pytest.raises(InputError, match="placed already"):
                gw.connected_components(placed, devices="cpu")
            with pytest.raises(InputError, match=r"place graph\.symmetrize"):
                gw.connected_components(placed, method="label-propagation")
        with pytest.raises(ClosedContextError):
            gw.connected_components(placed)

    def test_time_runs_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = gw.generators.path(3_000_000)
        with pytest.raises(RunTimeoutError, match=r"within 0\.1 s"):
            gw.connected_components(graph, method="hook", rounds=100_000, jumps=0, timeout_s=0.1)

    def test_progress_grows(self) -> None:
        seen: list[int] = []
        graph = gw.generators.path(100_000)

        def poll(count: int) -> None:
            seen.append(count)
            if len(seen) == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            weak_components(graph.rows, graph.directed, "hook", rounds=100_000, jumps=0, poll=poll)
        assert seen == sorted(seen)
        assert seen[-1] > 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "best"}, "method must be 'auto', 'hook'.* got 'best'"),
    "method that is no text": ({"method": 3}, "method must be .* got 3"),
    "merge": ({"merge": "ring"}, "merge must be 'auto', 'tree' or 'direct', got 'ring'"),
    "no neighbours": ({"method": "afforest", "rounds": 0}, "rounds must be at least 1, got 0"),
    "no rounds by any method": ({"rounds": 0}, "rounds must be at least 1, got 0"),
    "negative rounds": ({"method": "hook", "rounds": -1}, "rounds must .* got -1"),
    "half a round": ({"method": "rem", "rounds": 0.5}, "rounds must be an integer, got 0.5"),
    "negative jumps": ({"jumps": -1}, "jumps must .* got -1"),
    "rounds of labels": (
        {"method": "label-propagation", "rounds": 1},
        "'label-propagation' has none",
    ),
    "merge of labels": ({"method": "label-propagation", "merge": "tree"}, "'label-prop.* has none"),
    "several devices": ({"devices": ["cpu:0", "cpu:1"]}, "runs on one device of the CPU.*'cpu'"),
    "unknown device": ({"devices": "tpu"}, "there is no device 'tpu'"),
    "results elsewhere": ({"results": "disk"}, "results must be 'host'"),
    "no time": ({"timeout_s": 0}, "timeout_s must be positive, got 0"),
}


class TestBadInput:
    @pytest.mark.parametrize("what", WRONG)
    def test_is_refused(self, what: str) -> None:
        settings, message = WRONG[what]
        error = DeviceError if what == "unknown device" else InputError
        with pytest.raises(error, match=message):
            gw.connected_components(Graph.from_edges([0, 1], [1, 2]), **settings)

    def test_no_graph(self) -> None:
        with pytest.raises(
            InputError,
            match=r"expected a godwit.Graph, got a int; connected_components_of_edges takes",
        ):
            gw.connected_components(12)  # type: ignore[arg-type]


class TestCommand:
    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["components", *arguments])

    def test_table_and_json(self) -> None:
        ran = self.run("road:30,seed=2", "--top", "3")
        assert ran.exit_code == 0, ran.output
        wanted = gw.connected_components(gw.generate("road:30,seed=2"))
        assert f"{wanted.count}, the largest of {wanted.sizes.max()} vertices" in ran.output
        facts = json.loads(self.run("road:30,seed=2", "--json", "--method", "hook").stdout)
        assert facts["components"] == wanted.count
        assert facts["method"] == "hook"
        assert facts["single_vertices"] == int((wanted.sizes == 1).sum())
        assert [row["vertices"] for row in facts["top"]] == sorted(wanted.sizes)[::-1][:10]

    def test_output(self, tmp_path: Path) -> None:
        file = tmp_path / "arcs.csv"
        file.write_text("source,target\nUlm,Bonn\nJena,Gera\n")
        ran = self.run(str(file), "--output", "-")
        assert ran.exit_code == 0, ran.output
        assert '"Ulm","Bonn"' in ran.stdout
        assert self.run(str(file), "-o", str(tmp_path / "found.npy"), "-q").exit_code == 0
        assert np.load(tmp_path / "found.npy").tolist() == [0, 1, 1, 0]

    def test_what_suits_the_graph_only_is_not_refused_before_it_is_read(self) -> None:
        labels = ("--method", "label-propagation", "--devices", "cpu:0,cpu:1")
        for arguments in (labels, ("--rounds", "1")):
            ran = self.run("road:30,seed=2", "--json", *arguments)
            assert ran.exit_code == 0, ran.output
            wanted = gw.connected_components(gw.generate("road:30,seed=2"))
            assert json.loads(ran.stdout)["components"] == wanted.count

    def test_bad_method(self) -> None:
        ran = self.run("road:30", "--method", "best")
        assert ran.exit_code == 2
        assert "method must be" in ran.stderr
