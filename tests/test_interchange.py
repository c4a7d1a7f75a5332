"""Graphs of other libraries, and back: nothing is lost on the way, or it is refused."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.arrays import ResultLocation, host_array
from godwit.errors import DeviceError, InputError
from godwit.graph.csr import Graph
from graphs import arcs_of, each_graph, graphs, named_graph

_PAGE = Path(__file__).resolve().parent.parent / "docs" / "interchange.md"
_README = _PAGE.parent.parent / "README.md"


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def igraph() -> Any:
    return pytest.importorskip("igraph")


@pytest.fixture(scope="module")
def networkit() -> Any:
    return pytest.importorskip("networkit")


NX_TYPES = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
LABELS = st.one_of(st.integers(-3, 6), st.text(max_size=2), st.tuples(st.integers(0, 2)))


def arcs_by_label(source: Any, weight: str | None = "weight") -> Counter[Any]:
    """The arcs of a NetworkX graph with their weights: an edge in both directions, a loop once."""
    found: Counter[Any] = Counter()
    for tail, head, attributes in source.edges(data=True):
        value = attributes.get(weight)
        found[tail, head, value] += 1
        if not source.is_directed() and tail != head:
            found[head, tail, value] += 1
    return found


def labelled(graph: Graph) -> Counter[Any]:
    """The arcs of a graph of ours, likewise."""
    name = graph.ids
    return Counter(
        (name[arc[0]], name[arc[1]], arc[2] if graph.is_weighted else None)
        for arc in arcs_of(graph)
    )


def without_duplicates(graph: Graph) -> bool:
    return len({arc[:2] for arc in arcs_of(graph)}) == graph.arc_count


class TestNetworkx:
    @given(data=st.data())
    @pytest.mark.parametrize("kind", NX_TYPES, ids=lambda kind: kind.__name__)
    def test_every_arc_arrives_with_its_labels(self, kind: Any, data: st.DataObject) -> None:
        source = kind()
        source.add_nodes_from(data.draw(st.lists(LABELS, max_size=4)))
        weights = data.draw(st.sampled_from([None, st.integers(0, 2**62), st.floats(0, 9)]))
        pairs = data.draw(st.lists(st.tuples(LABELS, LABELS), max_size=12))
        for tail, head in pairs:
            attributes = {} if weights is None else {"weight": data.draw(weights)}
            source.add_edge(tail, head, **attributes)
        graph = Graph.from_networkx(source)
        assert graph.directed == source.is_directed()
        assert [graph.ids[v] for v in range(graph.vertex_count)] == list(source)
        assert labelled(graph) == arcs_by_label(source)
        if pairs:
            assert graph.is_weighted == (weights is not None)
        back = graph.to_networkx()
        assert list(back) == list(source)
        assert arcs_by_label(back) == arcs_by_label(source)
        assert back.is_multigraph() != without_duplicates(graph)

    @each_graph
    def test_there_and_back(self, name: str) -> None:
        graph = named_graph(name)
        there = graph.to_networkx()
        back = Graph.from_networkx(there)
        assert there.is_directed() == graph.directed == back.directed
        assert back.vertex_count == graph.vertex_count
        assert sorted(arcs_of(back)) == sorted(arcs_of(graph))
        assert back.ids.kind == "consecutive"

    @given(source=graphs(weighted=True, directed=False))
    def test_parallel_edges_keep_their_weights_apart(self, source: Graph) -> None:
        assert labelled(Graph.from_networkx(source.to_networkx())) == labelled(source)

    def test_consecutive_integers_are_not_stored(self) -> None:
        shifted = Graph.from_networkx(nx.path_graph(range(5, 9)))
        assert (shifted.ids.nbytes, list(shifted.ids)) == (0, [5, 6, 7, 8])
        assert Graph.from_networkx(nx.path_graph([1, 0, 2])).ids.kind == "integer"
        assert Graph.from_networkx(nx.path_graph([False, True])).ids[0] is False

    def test_neighbours_that_only_equal_their_node(self) -> None:
        source: Any = nx.DiGraph()
        source.add_nodes_from([0, 1])
        source.add_edge(0.0, np.int64(1))
        assert arcs_of(Graph.from_networkx(source)) == [(0, 1)]

    def test_views(self) -> None:
        source: Any = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)])
        assert labelled(Graph.from_networkx(source.reverse(copy=False))) == arcs_by_label(
            source.reverse()
        )
        assert labelled(Graph.from_networkx(source.subgraph([0, 2, 3]))) == Counter(
            {(2, 0, None): 1, (2, 3, None): 1}
        )

    def test_another_attribute_or_none(self) -> None:
        source: Any = nx.Graph()
        source.add_edge("a", "b", weight=3, km=2.5)
        assert arcs_of(Graph.from_networkx(source, "km")) == [(0, 1, 2.5), (1, 0, 2.5)]
        assert not Graph.from_networkx(source, None).is_weighted
        with pytest.raises(InputError, match="no edge has 'miles'; weight=None"):
            Graph.from_networkx(source, "miles")
        del source.edges["a", "b"]["weight"]
        assert not Graph.from_networkx(source).is_weighted
        assert not Graph.from_networkx(nx.Graph(), "miles").is_weighted

    @pytest.mark.parametrize(
        ("values", "dtype"),
        [
            ((1, 2), "int64"),
            ((True, False), "int32"),
            ((1, 2.5), "float64"),
            ((2**70, 0.5), "float64"),
            ((2**53 - 1, 0.5), "float64"),
            ((np.float32(1), np.float32(2)), "float32"),
            ((np.int32(1), np.int32(2)), "int32"),
            ((math.inf, 1.0), "float64"),
            ((np.uint64(2**63 - 1), -1), "int64"),
            ((-(2**63), True), "int64"),
        ],
    )
    def test_weights_keep_their_values(self, values: tuple[Any, Any], dtype: str) -> None:
        source: Any = nx.DiGraph()
        source.add_weighted_edges_from([(0, 1, values[0]), (1, 2, values[1])])
        weights = Graph.from_networkx(source).weights
        assert weights is not None
        assert weights.dtype == dtype
        assert tuple(weights.tolist()) == values

    @pytest.mark.parametrize(
        ("second", "message"),
        [
            (None, r"edge \('b', 'c'\) has no 'weight', and others have"),
            ("7", r"'weight' of edge \('b', 'c'\) must be an int or a float, got '7'"),
            (np.longdouble(1), "must be an int or a float"),
            (Fraction(1, 3), r"edge \('b', 'c'\) must be an int or a float, got Fraction\(1, 3\)"),
            (2**63, r"edge \('b', 'c'\) must be in \[-2\*\*63, 2\*\*63\), got 9223372036854775808"),
            (-(2**63) - 1, r"edge \('b', 'c'\) must be in \[-2\*\*63, 2\*\*63\)"),
        ],
    )
    def test_refuses_other_weights(self, second: Any, message: str) -> None:
        source: Any = nx.DiGraph()
        source.add_weighted_edges_from([("a", "b", 1), ("b", "c", second)])
        with pytest.raises(InputError, match=message):
            Graph.from_networkx(source)

    @pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 10**400])
    def test_refuses_integers_that_floats_would_change(self, large: int) -> None:
        source: Any = nx.DiGraph()
        source.add_weighted_edges_from([("a", "b", np.float32(math.inf)), ("b", "c", large)])
        with pytest.raises(InputError, match=r"\('b', 'c'\), .*, does not fit float64"):
            Graph.from_networkx(source)

    def test_names_the_edge_of_a_multigraph(self) -> None:
        source: Any = nx.MultiDiGraph()
        source.add_weighted_edges_from([("a", "b", 1), ("a", "b", 2), ("b", "c", 3)])
        source.add_edge("c", "a")
        with pytest.raises(InputError, match=r"edge \('c', 'a'\) has no 'weight'"):
            Graph.from_networkx(source)

    def test_refuses_what_is_no_graph(self) -> None:
        with pytest.raises(InputError, match=r"expected a networkx.Graph, got a dict"):
            Graph.from_networkx({0: [1]})
        with pytest.raises(InputError, match=r"expected a networkx.Graph, got the class DiGraph"):
            Graph.from_networkx(nx.DiGraph)

    @pytest.mark.parametrize("weight", [[], {}, (1, [])], ids=repr)
    def test_refuses_what_is_no_name_of_an_attribute(self, weight: Any) -> None:
        with pytest.raises(InputError, match="weight must be the name of an attribute, or None"):
            Graph.from_networkx(nx.path_graph(3), weight)

    def test_without_networkx(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "networkx", None)
        with pytest.raises(InputError, match="pip install networkx"):
            named_graph("path").to_networkx()


def cities() -> Any:
    source: Any = nx.Graph()
    source.add_weighted_edges_from(
        [("Berlin", "Hamburg", 289), ("Berlin", "Leipzig", 190), ("Leipzig", "Hamburg", 391)]
    )
    source.add_node("Valletta")
    return source


class TestResultsById:
    @pytest.mark.parametrize("page", [_README, _PAGE], ids=lambda page: page.name)
    def test_the_three_lines_of_the_documentation(self, page: Path) -> None:
        found = re.search(
            r"graph = gw\.Graph\.from_networkx\(G\)\n"
            r"result = gw\.sssp\(graph, \"Berlin\"\)\n"
            r"result\.to_dict\(\)\[\"Hamburg\"\]",
            page.read_text(),
        )
        assert found is not None
        names: dict[str, Any] = {"gw": gw, "G": cities()}
        *statements, last = found.group().splitlines()
        exec("\n".join(statements), names)
        assert eval(last, names) == 289

    @given(graph=graphs(weighted=True))
    def test_distances_are_networkx(self, graph: Graph) -> None:
        if graph.vertex_count == 0:
            return
        graph = graph.with_ids([f"v{v}" for v in range(graph.vertex_count)])
        found = gw.sssp(graph, "v0").to_dict()
        expected = nx.single_source_dijkstra_path_length(graph.to_networkx(), "v0")
        assert found == pytest.approx(expected)
        assert {type(value) for value in found.values()} <= {int, float}

    def test_what_was_not_reached_is_left_out(self) -> None:
        graph = Graph.from_networkx(cities())
        assert set(gw.bfs(graph, "Berlin").to_dict()) == {"Berlin", "Hamburg", "Leipzig"}

    def test_a_program_has_values_of_all_vertices(self) -> None:
        graph = Graph.from_networkx(cities())
        minimum = gw.VertexProgram(
            name="least neighbour", message=lambda value, weight: value, combine="min",
            dtype="int64", initial=lambda vertices: vertices,
        )  # fmt: skip
        found = gw.run(minimum, graph).to_dict()
        assert found == {"Berlin": 0, "Hamburg": 0, "Leipzig": 0, "Valletta": 3}

    def test_results_are_pickled(self) -> None:
        result = gw.sssp(Graph.from_networkx(cities()), "Berlin")
        assert pickle.loads(pickle.dumps(result)).to_dict() == result.to_dict()


class OnFakeGpu(np.ndarray[Any, Any]):
    """What takes the place of CuPy's arrays where there is no GPU."""


class FakeCupy:
    """As much of CuPy as results need, for two GPUs that are none."""

    def __init__(self) -> None:
        self.count: int | None = 2
        self.used: int | None = None
        self.waited_for: int | None = None
        self._current = 0
        self.cuda = self.runtime = self

    def getDeviceCount(self) -> int:  # noqa: N802
        if self.count is None:
            raise RuntimeError("insufficient driver")
        return self.count

    @contextmanager
    def Device(self, index: int) -> Iterator[None]:  # noqa: N802
        self.used = index
        before, self._current = self._current, index
        yield
        self._current = before

    def getDevice(self) -> int:  # noqa: N802
        return self._current

    def get_current_stream(self) -> Any:
        return self

    def synchronize(self) -> None:
        self.waited_for = self._current

    def asarray(self, array: Any) -> Any:
        return array.copy().view(OnFakeGpu)


@pytest.fixture
def fake_cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    made = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


def _same(value: Any) -> Any:
    return value


def _itself(vertices: Any) -> Any:
    return vertices


class OnlyDlpack:
    """An array that says nothing of itself but DLPack's two methods."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._array.__dlpack_device__()
        return device


class OnGpu:
    """An array on a GPU, as far as it says."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class OnCudaInterface:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (2,), "typestr": "<i8", "data": (0, True), "version": 3}


class TestArrays:
    def test_dlpack_is_shared(self) -> None:
        array = np.arange(5)
        assert np.shares_memory(host_array(OnlyDlpack(array)), array)
        graph = Graph(OnlyDlpack(np.array([0, 1, 2])), array[:2], OnlyDlpack(np.ones(2)))
        assert arcs_of(graph) == [(0, 0, 1.0), (1, 1, 1.0)]

    def test_dlpack_where_arrays_are_taken(self) -> None:
        graph = Graph.from_edges(
            OnlyDlpack(np.array([0, 1])), OnlyDlpack(np.array([1, 2])), ids=OnlyDlpack(np.arange(3))
        )
        assert graph.ids[2] == 2
        weighted = graph.with_weights(OnlyDlpack(np.array([4, 3])))
        result = gw.sssp(weighted, OnlyDlpack(np.array([0])))
        assert result.distance.tolist() == [0, 4, 7]
        gw.verify_sssp(weighted, OnlyDlpack(np.array([0])), OnlyDlpack(result.distance))
        order = OnlyDlpack(np.array([2, 1, 0]))
        assert arcs_of(weighted.relabel(order)) == [(1, 0, 3), (2, 1, 4)]

    @pytest.mark.parametrize("values", [OnGpu(), OnCudaInterface()], ids=["dlpack", "interface"])
    def test_without_cupy_a_gpu_is_out_of_reach(
        self, values: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)
        with pytest.raises(DeviceError, match=r"lies on a GPU, which needs CuPy: pip install"):
            Graph.from_edges(values, [1, 2])

    @pytest.mark.parametrize("method", ["__dlpack_device__", "__dlpack__", "__array__"])
    @pytest.mark.parametrize("error", [KeyError, BufferError, ZeroDivisionError, AttributeError])
    def test_what_its_own_library_cannot_convert_is_refused(
        self, method: str, error: type[Exception]
    ) -> None:
        def broken(_: Any, *__: Any, **___: Any) -> Any:
            raise error("lost")

        methods = {"__dlpack__": broken, "__dlpack_device__": lambda _: (1, 0), method: broken}
        values = type("Broken", (), methods)()
        with pytest.raises(InputError, match=r"sources must be an array: .*lost"):
            Graph.from_edges(values, [1])

    @pytest.mark.parametrize("values", [[[1], [1, 2]], object(), "text", None])
    def test_what_is_no_array_is_refused(self, values: Any) -> None:
        with pytest.raises(InputError, match="sources must"):
            Graph.from_edges(values, [1, 2])

    def test_results_on_a_gpu_need_cupy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)
        for call in (gw.bfs, gw.sssp):
            with pytest.raises(DeviceError, match=r"results='cuda:1' .* needs CuPy: pip install"):
                call(named_graph("path"), 0, results="cuda:1")

    @pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:x", "CUDA", 0, None])
    def test_results_elsewhere_are_refused(self, name: Any) -> None:
        with pytest.raises(InputError, match="results must be 'host', 'cuda' or such as 'cuda:1'"):
            gw.bfs(named_graph("path"), 0, results=name)

    def test_results_on_a_gpu(self, fake_cupy: FakeCupy) -> None:
        graph = named_graph("parallel arcs and self-loops")
        for call in (gw.bfs, gw.sssp):
            host, there = call(graph, 1), call(graph, 1, results="cuda:1")
            for name in ("distance", "reached", "predecessor"):
                fake_cupy.waited_for = None
                array = getattr(there, name)
                assert isinstance(array, OnFakeGpu)
                assert fake_cupy.used == 1
                # What the caller starts on the current GPU would not wait for the copy.
                assert fake_cupy.waited_for == 1
                assert array.tolist() == getattr(host, name).tolist()
                assert array is getattr(there, name) or name == "reached"
            assert there.to_dict() == host.to_dict()
            assert there.path_to(0) == host.path_to(0)
            assert repr(there) == repr(host)
            assert not isinstance(host.distance, OnFakeGpu)

    def test_a_programs_results_on_a_gpu(self, fake_cupy: FakeCupy) -> None:
        graph = named_graph("cycle")
        program = gw.VertexProgram(
            name="farthest source", message=_same, combine="max", dtype="int64", initial=_itself
        )
        there = gw.run(program, graph, results="cuda")
        assert isinstance(there.values, OnFakeGpu)
        assert fake_cupy.used == 0
        assert there.to_dict() == gw.run(program, graph).to_dict() == dict.fromkeys(range(50), 49)

    def test_a_gpu_that_is_not_there(self, fake_cupy: FakeCupy) -> None:
        message = "no GPU for results='cuda:2'; there are 'host', 'cuda:0', 'cuda:1'"
        with pytest.raises(DeviceError, match=message):
            gw.bfs(named_graph("path"), 0, results="cuda:2")
        fake_cupy.count = None
        with pytest.raises(DeviceError, match=r"results='cuda' needs a GPU .*insufficient driver"):
            gw.bfs(named_graph("path"), 0, results="cuda")

    def test_results_on_the_host_are_not_copied(self) -> None:
        array = np.arange(3)
        assert ResultLocation.named("host").place(array) is array


class TestTorch:
    """PyTorch's tensors on the host; those on a GPU have tests/test_device_arrays.py."""

    def test_shared_both_ways(self, torch: Any) -> None:
        offsets, targets = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
        graph = Graph(offsets, targets)
        assert graph.targets.dtype == np.int64
        assert graph.targets.ctypes.data == targets.data_ptr()
        result = gw.bfs(graph, torch.tensor([0]))
        tensor = torch.from_dlpack(result.distance)
        assert tensor.data_ptr() == result.distance.ctypes.data
        assert torch.equal(torch.from_dlpack(graph.targets), targets)

    @pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float16", "float64"])
    def test_dtypes(self, torch: Any, dtype: str) -> None:
        weights = torch.tensor([3, 4]).to(getattr(torch, dtype)).requires_grad_("float" in dtype)
        graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), weights)
        assert gw.sssp(graph, torch.tensor(0)).distance.tolist() == [0, 3, 7]

    def test_refuses_what_numpy_has_not(self, torch: Any) -> None:
        with pytest.raises(InputError, match=r"weights must be an array: .*BFloat16"):
            Graph.from_edges([0], [1], torch.ones(1, dtype=torch.bfloat16))
        with pytest.raises(InputError, match=r"sources must be an array: .*meta"):
            Graph.from_edges(torch.zeros(1, device="meta"), [1])

    def test_edge_index(self, torch: Any) -> None:
        graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0.5, 2.0]))
        assert arcs_of(graph) == [(0, 1, 0.5), (1, 2, 2.0)]
        assert Graph.from_edge_index(torch.empty(2, 0), vertex_count=3).vertex_count == 3


def test_jax_arrays() -> None:
    jnp = pytest.importorskip("jax.numpy")
    graph = Graph.from_edges(jnp.array([0, 1]), jnp.array([1, 2]), jnp.array([3.0, 4.0]))
    assert gw.sssp(graph, jnp.array([0])).distance.tolist() == [0, 3, 7]
    assert jnp.from_dlpack(gw.bfs(graph, 0).distance).tolist() == [0, 1, 2]
    jax = pytest.importorskip("jax")
    shared = jax.device_put(np.array([1, 2], np.int32), jax.devices("cpu")[0])
    graph = Graph(jnp.array([0, 1, 2, 2]), shared)
    assert graph.targets.ctypes.data == shared.unsafe_buffer_pointer()


class TestEdgeIndex:
    @given(graph=graphs())
    def test_there_and_back(self, graph: Graph) -> None:
        arcs = np.array([arc[:2] for arc in arcs_of(graph)], np.int64).reshape(-1, 2).T
        made = Graph.from_edge_index(
            arcs, graph.weights, vertex_count=graph.vertex_count, directed=graph.directed
        )
        assert sorted(arcs_of(made)) == sorted(arcs_of(graph))
        assert made.directed == graph.directed

    def test_undirected_means_both_directions_are_there(self) -> None:
        with pytest.raises(InputError, match="the arcs between 0 and 1 differ"):
            Graph.from_edge_index([[0], [1]], directed=False)

    @pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 2, 2), (0, 0)])
    def test_refuses_other_shapes(self, shape: tuple[int, ...]) -> None:
        message = rf"edge_index must have shape \(2, m\), got {re.escape(str(shape))}"
        with pytest.raises(InputError, match=message):
            Graph.from_edge_index(np.zeros(shape, int))

    def test_refuses_other_entries(self) -> None:
        with pytest.raises(InputError, match=r"targets\[0\] must be a vertex in \[0, 3\), got 7"):
            Graph.from_edge_index([[0], [7]], vertex_count=3)
        with pytest.raises(InputError, match="weights must have shape"):
            Graph.from_edge_index([[0], [1]], [[1.0]])


class TestIgraph:
    @given(graph=graphs())
    def test_every_arc_arrives(self, igraph: Any, graph: Graph) -> None:
        arcs = [arc for arc in arcs_of(graph) if graph.directed or arc[0] <= arc[1]]
        source = igraph.Graph(
            graph.vertex_count, [arc[:2] for arc in arcs], directed=graph.directed
        )
        if graph.is_weighted:
            source.es["weight"] = [arc[2] for arc in arcs]
        made = Graph.from_igraph(source)
        assert made.directed == graph.directed
        assert sorted(arcs_of(made)) == sorted(arcs_of(graph if arcs else graph.without_weights()))
        assert not Graph.from_igraph(source, None).is_weighted

    def test_names(self, igraph: Any) -> None:
        source = igraph.Graph.TupleList([("b", "a", 2), ("a", "c", 5)], weights=True)
        graph = Graph.from_igraph(source)
        assert gw.sssp(graph, "b").to_dict() == {"b": 0, "a": 2, "c": 7}
        source.vs["name"] = ["a", "a", "c"]
        with pytest.raises(InputError, match="ids must be distinct, and 'a' occurs twice"):
            Graph.from_igraph(source)
        source.es[1]["weight"] = None
        with pytest.raises(InputError, match=r"edge \(1, 2\) has no 'weight', and others have"):
            Graph.from_igraph(source)

    def test_names_that_some_vertices_lack(self, igraph: Any) -> None:
        source = igraph.Graph([(0, 1)])
        source.vs[0]["name"] = "a"
        with pytest.raises(InputError, match="vertex 1 has no 'name': give every"):
            Graph.from_igraph(source)

    @pytest.mark.parametrize("weight", [[], 3, b"weight"], ids=repr)
    def test_refuses_what_is_no_name_of_an_attribute(self, igraph: Any, weight: Any) -> None:
        with pytest.raises(InputError, match="weight must be the name of an attribute, or None"):
            Graph.from_igraph(igraph.Graph([(0, 1)]), weight)

    def test_refuses_what_is_no_graph(self, igraph: Any) -> None:
        with pytest.raises(InputError, match=r"expected an igraph.Graph, got a networkx DiGraph"):
            Graph.from_igraph(nx.DiGraph())
        with pytest.raises(InputError, match=r"expected an igraph.Graph, got the class Graph"):
            Graph.from_igraph(igraph.Graph)


class TestNetworkit:
    @given(graph=graphs())
    def test_every_arc_arrives(self, networkit: Any, graph: Graph) -> None:
        source = networkit.Graph(graph.vertex_count, graph.is_weighted, graph.directed)
        for tail, head, *weight in arcs_of(graph):
            if graph.directed or tail <= head:
                source.addEdge(tail, head, *weight)
        made = Graph.from_networkit(source)
        assert made.directed == graph.directed
        assert made.is_weighted == graph.is_weighted
        assert sorted(arcs_of(made)) == sorted(arcs_of(graph))

    def test_removed_nodes_leave_ids(self, networkit: Any) -> None:
        source = networkit.Graph(5)
        source.addEdge(1, 4)
        source.addEdge(4, 2)
        source.removeNode(0)
        source.removeNode(3)
        graph = Graph.from_networkit(source)
        assert graph.vertex_count == 3
        assert gw.bfs(graph, 1).to_dict() == {1: 0, 2: 2, 4: 1}

    def test_refuses_what_is_no_graph(self, networkit: Any) -> None:
        with pytest.raises(InputError, match=r"expected a networkit.Graph, got a networkx DiGraph"):
            Graph.from_networkit(nx.DiGraph())
        with pytest.raises(InputError, match=r"expected a networkit.Graph, got the class Graph"):
            Graph.from_networkit(networkit.Graph)


class TestTables:
    """What tests/test_tables.py does not ask of ``Graph.from_table``."""

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            (pa.array([1]), pa.array(["1"])),
            (pa.array([1], pa.uint64()), pa.array(["1"], pa.large_string())),
            (pa.array([1]).dictionary_encode(), pa.array(["1"]).dictionary_encode()),
        ],
    )
    @pytest.mark.parametrize("turned", [False, True])
    def test_integers_beside_texts_are_refused(
        self, source: Any, target: Any, turned: bool
    ) -> None:
        columns = [source, target] if not turned else [target, source]
        table = pa.table([*columns, pa.array([2])], ["source", "target", "weight"])
        integers, texts = ("source", "target") if not turned else ("target", "source")
        message = f"ids of column '{integers}' are integers and those of column '{texts}' are texts"
        for relabel in (None, True):
            with pytest.raises(InputError, match=message):
                Graph.from_table(table, relabel=relabel)

    def test_columns_of_pandas(self) -> None:
        pd = pytest.importorskip("pandas")
        with pytest.raises(InputError, match="ids of column 'a' are integers"):
            Graph.from_table(pd.DataFrame({"a": [1], "b": ["1"]}))

    @pytest.mark.parametrize(
        ("source", "target"),
        [("float64", "float64"), ("object", "object"), ("int64", "object"), ("float64", "str")],
    )
    def test_empty_tables_of_pandas(self, source: str, target: str) -> None:
        pd = pytest.importorskip("pandas")
        columns = {"source": source, "target": target, "weight": "float64"}
        table = pd.DataFrame({name: pd.Series([], dtype=dtype) for name, dtype in columns.items()})
        graph = Graph.from_table(table)
        assert (graph.vertex_count, graph.arc_count) == (0, 0)
        assert graph.is_weighted

    def test_refuses_classes(self) -> None:
        with pytest.raises(InputError, match="table must be of pandas, Polars, Arrow"):
            Graph.from_table(pa.Table)
        from scipy.sparse import csr_array

        with pytest.raises(InputError, match=r"matrix must be a scipy.sparse matrix, got "):
            Graph.from_scipy(csr_array)

    def test_foreign_errors(self) -> None:
        class Broken:
            def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
                raise KeyError("lost")

        with pytest.raises(InputError, match=r"the table cannot be read: .*lost"):
            Graph.from_table(Broken())


@pytest.mark.parametrize("value", ["no", 0, 1, [], np.ones(2), np.int64(1)], ids=repr)
def test_flags_are_bools(value: Any) -> None:
    from scipy.sparse import coo_array, csr_array

    calls: list[tuple[str, Callable[[], Any]]] = [
        ("directed", lambda: Graph([0, 0], [], directed=value)),
        ("directed", lambda: Graph.from_edges([0], [0], directed=value)),
        ("directed", lambda: Graph.from_scipy(csr_array((2, 2)), directed=value)),
        ("directed", lambda: Graph.from_scipy(coo_array((2, 2)), directed=value)),
        ("directed", lambda: Graph.from_edge_index([[0], [0]], directed=value)),
        ("directed", lambda: Graph.from_table(_LOOP, directed=value)),
        ("relabel", lambda: Graph.from_table(_LOOP, relabel=value)),
        ("symmetrize", lambda: gw.generators.rmat(2, symmetrize=value)),
        ("simple", lambda: gw.generators.rmat(2, simple=value)),
    ]
    for name, call in calls:
        with pytest.raises(InputError, match=f"{name} must be True or False, got "):
            call()


def test_numpys_flags_are_flags() -> None:
    assert Graph.from_edges([0], [0], directed=np.True_).directed is True
    assert Graph.from_table(_LOOP, directed=np.False_, relabel=np.True_).directed is False
    assert gw.generators.rmat(2, symmetrize=np.False_, simple=np.False_).arc_count == 64


_LOOP = pa.table({"source": [0], "target": [0]})


def test_no_library_is_imported() -> None:
    program = (
        "import sys, numpy as np; from godwit.graph.csr import Graph;"
        "Graph.from_edge_index(np.array([[0, 1], [1, 2]]));"
        "heavy = {'torch', 'jax', 'cupy', 'networkx', 'igraph', 'networkit', 'pandas'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
