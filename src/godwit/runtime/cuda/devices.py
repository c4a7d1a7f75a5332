"""The GPUs of this machine: their names as devices, who holds them, and how they reach each other.

``"cuda"`` is all GPUs, ``"cuda:1"`` one of them; a name may be given several times.

A kernel on one GPU can use another's memory where there is *peer access*. Without it, data goes over a
third GPU that has access to both, or through the host's memory. What joins a pair is known from NVML where
``nvidia-ml-py`` is installed; else from whether atomics are native over the link, as they are over NVLink
and not over PCIe. CUDA's performance rank (0 is best) only orders the pairs of one machine.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any, Literal, Protocol, TypeVar

from godwit import config
from godwit.errors import ClosedContextError, DeviceError, InputError
from godwit.runtime.cuda import driver, libraries, memory
from godwit.runtime.protocol import Device, DeviceKind

OLDEST_ARCHITECTURE = 80
"""First architecture whose warps reduce in hardware (sm_80)."""


class CudaKind(DeviceKind):
    """The GPUs of this machine."""

    kind = "cuda"

    def devices(self) -> Sequence[Device]:
        """Return all GPUs that are supported; none if compilers for them are missing."""
        if not libraries.are_installed():
            return []
        return [
            self.find(f"cuda:{index}")
            for index in range(driver.device_count())
            if int(driver.properties(index).compute_capability) >= OLDEST_ARCHITECTURE
        ]

    def find(self, name: str) -> Device:
        """Return the device of a name."""
        count = driver.device_count()
        if count == 0:
            raise DeviceError(f"there is no device {name!r}: {driver.why_not()}; 'cpu' works")
        if not libraries.are_installed():
            raise DeviceError(
                f"GPUs need numba-cuda and cuda-bindings; install: {libraries.INSTALL}"
            )
        match = re.fullmatch(r"cuda:(0|[1-9]\d{0,3})", name)
        if name == "cuda":
            raise DeviceError(
                f"all GPUs are older than compute capability {OLDEST_ARCHITECTURE} (Ampere); 'cpu' works"
            )
        if not match or int(match[1]) >= count:
            there = ", ".join(f"'cuda:{index}'" for index in range(count))
            raise DeviceError(f"there is no device {name!r}; GPUs are {there}, and 'cuda' is all")
        index = int(match[1])
        gpu = driver.properties(index)
        if int(gpu.compute_capability) < OLDEST_ARCHITECTURE:
            raise DeviceError(
                f"cuda:{index} ({gpu.name}) has compute capability {gpu.compute_capability}; kernels "
                f"need {OLDEST_ARCHITECTURE} (Ampere) or later; 'cpu' works"
            )
        size = config.readable_bytes(gpu.memory_bytes)
        return Device(
            name,
            self.kind,
            f"{gpu.name}, {gpu.multiprocessors} multiprocessors, {size}",
            partial(memory.free_memory_bytes, index),
            fills=True,
            delivers=True,
        )

    def require_idle(self, devices: Sequence[Device]) -> None:
        """Raise InputError if this thread is in a run on one of these GPUs."""
        refuse_held(gpu_index(device) for device in devices)


def gpu_index(device: Device) -> int:
    """Return the index of a device's GPU."""
    return int(device.name.partition(":")[2])


# Locks. A thread that allocates, frees or loads on a GPU may wait for a kernel there, which may wait for
# another that is not started yet. So all work but queries holds its GPUs, taken in the order of their
# numbers: two runs that wait for each other's GPUs would never end.

_GPU_LOCKS: dict[int, threading.Lock] = {}
_HOLDERS: dict[int, int] = {}  # thread by GPU
_LOCKS_LOCK = threading.Lock()


def refuse_held(indexes: Iterable[int]) -> None:
    """Refuse to wait for GPUs that the calling thread holds, as a progress function does.

    :raises InputError: this thread holds one of them
    """
    thread = threading.get_ident()
    for index in indexes:
        if _HOLDERS.get(index) == thread:
            raise InputError(
                f"cuda:{index} is at work for this thread: a progress function cannot use it"
            )


def holds_gpus() -> bool:
    """Return True if the calling thread holds GPUs."""
    return threading.get_ident() in _HOLDERS.values()


class GpuLocks:
    """The locks of some GPUs, in the order in which they are taken."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self.indexes = sorted(set(indexes))
        with _LOCKS_LOCK:
            self.locks = [_GPU_LOCKS.setdefault(index, threading.Lock()) for index in self.indexes]


CLOSED = "this placed graph was closed; place the graph again"


class _HasStream(Protocol):
    @property
    def stream(self) -> driver.Stream:
        """The endpoint's stream."""


class _Endpoints(Protocol):
    closed: bool

    @property
    def parts(self) -> Sequence[_HasStream]:
        """The parts of all endpoints."""


class HeldGpus:
    """Block that holds GPUs exclusively; the thread's current GPU is restored afterwards.

    Every query on GPUs enters one, so it is no generator, which takes several times as long.

    :param endpoints: those that are used; no work in their streams outlasts the block
    :raises InputError: this thread holds one of them, as in a progress function
    :raises ClosedContextError: the endpoints are closed
    """

    __slots__ = ("_before", "_endpoints", "_gpus", "_held")

    def __init__(self, gpus: GpuLocks, endpoints: _Endpoints | None = None) -> None:
        self._gpus, self._endpoints = gpus, endpoints
        self._held = 0
        self._before: driver.Current | None = None

    def __enter__(self) -> None:
        indexes, thread = self._gpus.indexes, threading.get_ident()
        if _HOLDERS:
            refuse_held(indexes)
        try:
            for index, lock in zip(indexes, self._gpus.locks, strict=True):
                lock.acquire()
                self._held += 1
                _HOLDERS[index] = thread
            endpoints = self._endpoints
            if endpoints is not None and endpoints.closed:
                raise ClosedContextError(CLOSED)
            self._before = driver.current()
            driver.use(indexes[0])  # a launch fails, and is repeated, where no GPU is current
            memory.free_abandoned(indexes)
        except BaseException:
            self._release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            if self._endpoints is not None:
                for part in self._endpoints.parts:
                    try:  # noqa: SIM105  # less code for the caller to wait for
                        part.stream.synchronize()
                    except DeviceError:  # it was raised where the work was waited for
                        pass
        finally:
            self._release()

    def _release(self) -> None:
        before, self._before = self._before, None
        try:
            if before is not None:
                driver.return_to(before)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        while self._held:
            self._held -= 1
            _HOLDERS.pop(self._gpus.indexes[self._held], None)
            self._gpus.locks[self._held].release()

    def __del__(self) -> None:
        self._unlock()  # Ctrl-C may come between the block and its end


def held_gpus(indexes: Sequence[int]) -> HeldGpus:
    """Return a block that holds GPUs exclusively."""
    return HeldGpus(GpuLocks(indexes))


# Topology

Link = Literal["same", "nvlink", "pcie", "host"]
"""What joins two GPUs: nothing (they are one), NVLink, PCIe with peer access, or the host's memory."""

Cell = TypeVar("Cell")
Matrix = tuple[tuple[Cell, ...], ...]

_LINKS: tuple[Link, ...] = ("same", "nvlink", "pcie", "host")  # the best first


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    :param index: CUDA's number of it, as in ``cuda:index``
    :param name: the product's name
    """

    index: int
    name: str
    pci_bus_id: str

    @property
    def device(self) -> str:
        """Its name as a device."""
        return f"cuda:{self.index}"


@dataclass(frozen=True)
class Route:
    """The way of data from one GPU to another.

    :param kind: peer access, a third GPU with peer access to both, or the host's memory
    :param via: position of the third GPU
    """

    kind: Literal["direct", "via", "host"]
    via: int | None = None

    def __str__(self) -> str:
        return self.kind if self.via is None else f"via {self.via}"


@dataclass(frozen=True)
class Topology:
    """Some GPUs and what joins each pair of them; rows and columns are positions in ``gpus``.

    :param gpus: the GPUs, which may repeat
    :param access: ``access[i][j]``: whether kernels on i can use the memory of j
    :param native_atomics: ``[i][j]``: whether their atomics are native there
    :param links: what joins i and j
    :param ranks: CUDA's performance rank of the link, 0 is best; -1 without peer access
    """

    gpus: tuple[Gpu, ...]
    access: Matrix[bool]
    native_atomics: Matrix[bool]
    links: Matrix[Link]
    ranks: Matrix[int]

    def __len__(self) -> int:
        return len(self.gpus)

    def route(self, source: int, destination: int) -> Route:
        """Return the way of data from one position to another.

        Of several GPUs between them, the one whose worse link is best; then by CUDA's ranks, then the
        first.

        :raises InputError: a position is out of range
        """
        for position in (source, destination):
            if not 0 <= position < len(self):
                raise InputError(f"there are {len(self)} GPUs, counted from 0; got {position}")
        if self.access[source][destination]:
            return Route("direct")
        between = [
            via
            for via in range(len(self))
            if self._joined(via, source) and self._joined(via, destination)
        ]
        if not between:
            return Route("host")
        return Route("via", min(between, key=lambda via: self._cost(via, source, destination)))

    def pairs_by_link(self) -> dict[Link, tuple[int, int]]:
        """Return the first pair of GPUs for each kind of link; a single GPU is paired with itself."""
        count = len(self)
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)] or [(0, 0)] * count
        first: dict[Link, tuple[int, int]] = {}
        for i, j in pairs:
            first.setdefault(self.links[i][j], (i, j))
        return first

    def to_dict(self) -> dict[str, Any]:
        """Return the topology as JSON values; routes are strings."""
        positions = range(len(self))
        matrices = {
            name: [list(row) for row in getattr(self, name)]
            for name in ("access", "native_atomics", "links", "ranks")
        }
        return {
            "gpus": [
                {"device": gpu.device, "name": gpu.name, "pci_bus_id": gpu.pci_bus_id}
                for gpu in self.gpus
            ],
            **matrices,
            "routes": [[str(self.route(i, j)) for j in positions] for i in positions],
        }

    def _joined(self, here: int, there: int) -> bool:
        return here != there and self.access[here][there] and self.access[there][here]

    def _cost(self, via: int, *ends: int) -> tuple[int, int, int]:
        links = [_LINKS.index(self.links[via][end]) for end in ends]
        return max(links), sum(self.ranks[via][end] for end in ends), via


def topology(indexes: Sequence[int]) -> Topology:
    """Return what joins the GPUs of these indexes.

    :raises DeviceError: there is no such GPU
    """

    def matrix(cell: Callable[[int, int], Cell]) -> Matrix[Cell]:
        return tuple(tuple(cell(i, j) for j in indexes) for i in indexes)

    def native_atomics(i: int, j: int) -> bool:
        return i == j or bool(driver.peer_attribute("native_atomics", i, j))

    def link(i: int, j: int) -> Link:
        access = driver.can_access_peer(i, j)
        return _link(i == j, access, native_atomics(i, j), nvlinks.get((i, j)))

    def rank(i: int, j: int) -> int:
        if i == j:
            return 0
        return (
            driver.peer_attribute("performance_rank", i, j) if driver.can_access_peer(i, j) else -1
        )

    properties = [driver.properties(index) for index in indexes]
    gpus = tuple(
        Gpu(index, gpu.name, gpu.pci_bus_id) for index, gpu in zip(indexes, properties, strict=True)
    )
    nvlinks = _nvlinks(gpus)
    return Topology(
        gpus, matrix(driver.can_access_peer), matrix(native_atomics), matrix(link), matrix(rank)
    )


def _link(same: bool, access: bool, native_atomics: bool, nvlink: bool | None) -> Link:
    """Return what joins a pair; ``nvlink`` is NVML's answer, or None."""
    if same:
        return "same"
    if not access:
        return "host"
    return "nvlink" if (native_atomics if nvlink is None else nvlink) else "pcie"


def _nvlinks(gpus: Iterable[Gpu]) -> dict[tuple[int, int], bool]:
    """Return for pairs of indexes whether NVLink joins them; empty where NVML does not say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the module's old distribution warns when imported
            import pynvml as nvml
        nvml.nvmlInit()
    except Exception:  # not installed, or this system has no NVML
        return {}
    try:
        handles = {
            gpu.index: nvml.nvmlDeviceGetHandleByPciBusId(gpu.pci_bus_id.encode()) for gpu in gpus
        }
        nvlink, ok = nvml.NVML_P2P_CAPS_INDEX_NVLINK, nvml.NVML_P2P_STATUS_OK
        return {
            (i, j): nvml.nvmlDeviceGetP2PStatus(handles[i], handles[j], nvlink) == ok
            for i, j in permutations(handles, 2)
        }
    except nvml.NVMLError:  # not supported, or hidden in a container
        return {}
    finally:
        nvml.nvmlShutdown()


def reach_each_other(devices: Sequence[Device], *, atomics: bool = False) -> bool:
    """Return True if all GPUs have access to each other's memory.

    :param atomics: require native atomics, too
    """
    indexes = sorted({gpu_index(device) for device in devices})
    return all(
        driver.can_access_peer(here, there)
        and (not atomics or bool(driver.peer_attribute("native_atomics", here, there)))
        for here, there in permutations(indexes, 2)
    )
