"""Arrays on a GPU: taken from every library that makes them, and given back as results.

``results="cuda"`` must give what the host gives, on the GPU that was asked for, and DLPack must lead
from there to the other libraries without a copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.arrays import host_array
from godwit.errors import DeviceError
from godwit.graph.csr import Graph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # of libraries that are what they are on the machine
]

SOURCES, TARGETS, WEIGHTS = [0, 0, 1, 2], [1, 2, 2, 3], [4.0, 9.0, 3.0, 0.5]
DISTANCE = [0.0, 4.0, 7.0, 7.5]


@pytest.fixture(scope="module")
def cupy() -> Any:
    found = pytest.importorskip("cupy")
    try:
        count = found.cuda.runtime.getDeviceCount()
    except RuntimeError as error:
        pytest.skip(f"no GPU: {error}")
    if count == 0:
        pytest.skip("no GPU")
    return found


def _torch() -> Callable[[Any], Any]:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    return lambda values: torch.tensor(values, device="cuda")


def _jax() -> Callable[[Any], Any]:
    # Else JAX takes three quarters of the GPU, beside tests of other processes.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    make: Callable[[Any], Any] = jax.numpy.array
    return make


def _numba() -> Callable[[Any], Any]:
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("Numba has no GPU")
    return lambda values: cuda.to_device(np.array(values))


class OnlyInterface:
    """An array that says nothing but ``__cuda_array_interface__``."""

    def __init__(self, array: Any) -> None:
        self._array = array  # keeps its memory
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class OnlyDlpack:
    """An array that says nothing but DLPack's two methods."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


@pytest.fixture(params=["cupy", "torch", "jax", "numba", "interface", "dlpack"])
def on_gpu(request: pytest.FixtureRequest, cupy: Any) -> Callable[[Any], Any]:
    """What makes an array on a GPU of a list."""
    makers: dict[str, Callable[[], Callable[[Any], Any]]] = {
        "cupy": lambda: cupy.array,
        "torch": _torch,
        "jax": _jax,
        "numba": _numba,
        "interface": lambda: lambda values: OnlyInterface(cupy.array(values)),
        "dlpack": lambda: lambda values: OnlyDlpack(cupy.array(values)),
    }
    return makers[request.param]()


class TestTaken:
    def test_by_every_argument(self, on_gpu: Callable[[Any], Any]) -> None:
        graph = Graph.from_edges(on_gpu(SOURCES), on_gpu(TARGETS), on_gpu(WEIGHTS))
        assert gw.sssp(graph, on_gpu([0])).distance.tolist() == DISTANCE
        again = Graph(on_gpu(graph.offsets.tolist()), on_gpu(graph.targets.tolist()))
        assert gw.bfs(again.with_weights(on_gpu(WEIGHTS)), 0).distance.tolist() == [0, 1, 1, 2]
        gw.verify_sssp(graph, on_gpu([0]), on_gpu(DISTANCE))
        named = graph.with_ids(on_gpu([7, 5, 3, 1]))
        assert gw.sssp(named, on_gpu([7])).to_dict() == {7: 0.0, 5: 4.0, 3: 7.0, 1: 7.5}

    def test_as_edge_index(self, on_gpu: Callable[[Any], Any]) -> None:
        graph = Graph.from_edge_index(on_gpu([SOURCES, TARGETS]), on_gpu(WEIGHTS))
        assert gw.sssp(graph, 0).distance.tolist() == DISTANCE

    @pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "int64"])
    def test_in_every_dtype(self, on_gpu: Callable[[Any], Any], dtype: str) -> None:
        values = np.array([1, 0, 1], dtype)
        found = host_array(on_gpu(values))
        assert found.tolist() == values.tolist()
        assert found.dtype in (values.dtype, np.int32)  # JAX has no int64 unless told


def test_tensor_that_requires_a_gradient() -> None:
    weights = _torch()(WEIGHTS).requires_grad_()
    assert gw.sssp(Graph.from_edges(SOURCES, TARGETS, weights), 0).distance.tolist() == DISTANCE


def test_pending_work_is_waited_for(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        values = cupy.arange(2**26)
        for _ in range(20):
            values = values[::-1].copy()
        found = host_array(values)
    assert found[0] == 0
    assert found[-1] == 2**26 - 1


def test_torch_stream_is_waited_for() -> None:
    torch = pytest.importorskip("torch")
    _torch()
    with torch.cuda.stream(torch.cuda.Stream()):
        values = torch.arange(2**26, device="cuda")
        for _ in range(20):
            values = values.flip(0)
        found = host_array(values)
    assert found[0] == 0


def _narrower(value: Any, weight: Any) -> Any:
    return min(value, weight)


class TestGiven:
    @pytest.mark.parametrize("place", ["cuda", "cuda:0"])
    def test_paths(self, cupy: Any, place: str) -> None:
        graph = Graph.from_edges(SOURCES, TARGETS, WEIGHTS, vertex_count=5)
        for call in (gw.bfs, gw.sssp):
            host, there = call(graph, 0), call(graph, 0, results=place)
            for name in ("distance", "reached", "predecessor"):
                array = getattr(there, name)
                assert isinstance(array, cupy.ndarray)
                assert array.device.id == 0
                assert array.dtype == getattr(host, name).dtype
                assert np.array_equal(cupy.asnumpy(array), getattr(host, name))
            assert there.to_dict() == host.to_dict()
            assert there.path_to(3) == host.path_to(3)
            assert repr(there) == repr(host)
            gw.verify_sssp(graph if call is gw.sssp else graph.without_weights(), 0, there.distance)

    def test_programs(self, cupy: Any) -> None:
        graph = Graph.from_edges(SOURCES, TARGETS, WEIGHTS)
        program = gw.VertexProgram(
            name="widest", message=_narrower, combine="max", dtype="float64", initial=0.0
        )
        host = gw.run(program, graph, {0: np.inf})
        there = gw.run(program, graph, {0: np.inf}, results="cuda")
        assert isinstance(there.values, cupy.ndarray)
        assert there.values.tolist() == host.values.tolist()
        assert there.fields is None
        assert there.to_dict() == host.to_dict()
        again = gw.run(program, graph, there.values)  # an initial value from the GPU
        assert again.values.tolist() == host.values.tolist()

    def test_on_to_other_libraries_without_a_copy(self, cupy: Any) -> None:
        graph = Graph.from_edges(SOURCES, TARGETS, WEIGHTS)
        distance: Any = gw.sssp(graph, 0, results="cuda").distance
        _torch()
        import torch

        tensor = torch.from_dlpack(distance)
        assert tensor.is_cuda
        assert tensor.data_ptr() == distance.data.ptr
        assert tensor.tolist() == DISTANCE

    def test_on_to_jax(self, cupy: Any) -> None:
        _jax()
        import jax

        distance = gw.bfs(Graph.from_edges(SOURCES, TARGETS), 0, results="cuda").distance
        there = jax.numpy.from_dlpack(distance)
        assert there.devices().pop().platform == "gpu"
        assert there.tolist() == [0, 1, 1, 2]

    def test_on_every_gpu(self, cupy: Any) -> None:
        for index in range(cupy.cuda.runtime.getDeviceCount()):
            result = gw.bfs(Graph.from_edges(SOURCES, TARGETS), 0, results=f"cuda:{index}")
            array: Any = result.distance
            assert array.device.id == index
            assert host_array(array).tolist() == [0, 1, 1, 2]
            assert result.reached.all()

    def test_a_gpu_that_is_not_there(self, cupy: Any) -> None:
        count = cupy.cuda.runtime.getDeviceCount()
        with pytest.raises(DeviceError, match=rf"no GPU for results='cuda:{count}'; there are"):
            gw.bfs(Graph.from_edges(SOURCES, TARGETS), 0, results=f"cuda:{count}")
