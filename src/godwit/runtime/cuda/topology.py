"""How the GPUs of a machine reach each other: links, peer access, routes.

A kernel on one GPU can use another's memory where there is *peer access*; where there is none, data goes
over a third GPU that has access to both, or through the host's memory. What joins a pair comes from NVML
where ``nvidia-ml-py`` is installed. Without it, CUDA tells whether atomics are native over the link, which
they are over NVLink and are not over PCIe; its performance rank (0 is best) only orders the pairs of one
machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

from godwit.errors import InputError
from godwit.runtime.cuda import driver
from godwit.runtime.protocol import Device

Link = Literal["same", "nvlink", "pcie", "host"]
"""What joins two GPUs: nothing (they are one), NVLink, PCIe with peer access, or the host's memory."""

Matrix = tuple[tuple[bool, ...], ...]

_LINKS: tuple[Link, ...] = ("same", "nvlink", "pcie", "host")  # the best first


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    :param index: as CUDA counts, and ``cuda:index`` says
    :param name: the maker's name for it
    :param pci_bus_id: where it is plugged in
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
    """How data gets from one GPU to another.

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

    :param gpus: the GPUs; one may be there twice
    :param access: ``access[i][j]``: whether kernels on i can use the memory of j
    :param native_atomics: ``[i][j]``: whether their atomics work there
    :param links: what joins i and j
    :param ranks: CUDA's performance rank of the link, 0 is best; -1 where there is none
    """

    gpus: tuple[Gpu, ...]
    access: Matrix
    native_atomics: Matrix
    links: tuple[tuple[Link, ...], ...]
    ranks: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.gpus)

    def route(self, source: int, destination: int) -> Route:
        """How data gets from one position to another.

        Of several GPUs between them, the one whose worse link is best; then by CUDA's ranks, then the
        first.

        :raises InputError: there is no such position
        """
        for place in (source, destination):
            if not 0 <= place < len(self):
                raise InputError(f"there are {len(self)} GPUs, counted from 0; got {place}")
        if self.access[source][destination]:
            return Route("direct")
        between = [
            place
            for place in range(len(self))
            if self._joined(place, source) and self._joined(place, destination)
        ]
        if not between:
            return Route("host")
        return Route("via", min(between, key=lambda via: self._cost(via, source, destination)))

    def pairs_by_link(self) -> dict[Link, tuple[int, int]]:
        """The first pair of two GPUs for each kind of link that there is; of one GPU, it and itself."""
        count = len(self)
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)] or [(0, 0)] * count
        found: dict[Link, tuple[int, int]] = {}
        for i, j in pairs:
            found.setdefault(self.links[i][j], (i, j))
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it; routes are written as ``str`` writes them."""
        places = range(len(self))
        return {
            "gpus": [
                {"device": gpu.device, "name": gpu.name, "pci_bus_id": gpu.pci_bus_id}
                for gpu in self.gpus
            ],
            "access": [list(row) for row in self.access],
            "native_atomics": [list(row) for row in self.native_atomics],
            "links": [list(row) for row in self.links],
            "ranks": [list(row) for row in self.ranks],
            "routes": [[str(self.route(i, j)) for j in places] for i in places],
        }

    def _joined(self, here: int, there: int) -> bool:
        return here != there and self.access[here][there] and self.access[there][here]

    def _cost(self, via: int, *ends: int) -> tuple[int, int, int]:
        links = [_LINKS.index(self.links[via][end]) for end in ends]
        return max(links), sum(self.ranks[via][end] for end in ends), via


def topology(indexes: Sequence[int]) -> Topology:
    """What joins the GPUs of these indexes.

    :raises DeviceError: one of them is not there
    """
    found = [driver.properties(index) for index in indexes]
    gpus = tuple(
        Gpu(index, one.name, one.pci_bus_id) for index, one in zip(indexes, found, strict=True)
    )
    access = _matrix(indexes, driver.can_access_peer)
    atomics = _matrix(
        indexes,
        lambda i, j: i == j or bool(driver.peer_attribute("native_atomics", i, j)),
    )
    nvlinks = _nvlinks(gpus)
    links = tuple(
        tuple(
            _link(i == j, access[row][column], atomics[row][column], nvlinks.get((i, j)))
            for column, j in enumerate(indexes)
        )
        for row, i in enumerate(indexes)
    )
    ranks = tuple(
        tuple(
            0
            if i == j
            else driver.peer_attribute("performance_rank", i, j)
            if access[row][column]
            else -1
            for column, j in enumerate(indexes)
        )
        for row, i in enumerate(indexes)
    )
    return Topology(gpus, access, atomics, links, ranks)


def _matrix(indexes: Sequence[int], holds: Any) -> Matrix:
    return tuple(tuple(bool(holds(i, j)) for j in indexes) for i in indexes)


def _link(same: bool, access: bool, native_atomics: bool, nvlink: bool | None) -> Link:
    """What joins a pair; ``nvlink`` is what NVML says, None where it says nothing."""
    if same:
        return "same"
    if not access:
        return "host"
    return "nvlink" if (native_atomics if nvlink is None else nvlink) else "pcie"


def _nvlinks(gpus: Iterable[Gpu]) -> dict[tuple[int, int], bool]:
    """For each pair of indexes whether NVLink joins it, as far as NVML tells; empty without it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # an old distribution of the module says so when imported
            import pynvml as nvml
        nvml.nvmlInit()
    except Exception:  # not installed, or no NVML in this system: CUDA's own answers have to do
        return {}
    found = {}
    try:
        handles = {
            gpu.index: nvml.nvmlDeviceGetHandleByPciBusId(gpu.pci_bus_id.encode()) for gpu in gpus
        }
        for i, here in handles.items():
            for j, there in handles.items():
                if i != j:
                    status = nvml.nvmlDeviceGetP2PStatus(
                        here, there, nvml.NVML_P2P_CAPS_INDEX_NVLINK
                    )
                    found[i, j] = status == nvml.NVML_P2P_STATUS_OK
    except nvml.NVMLError:  # not supported here, or hidden in a container
        return {}
    finally:
        nvml.nvmlShutdown()
    return found


def gpu_index(device: Device) -> int:
    """The number of the GPU that a device is."""
    return int(device.name.partition(":")[2])


def reach_each_other(devices: Sequence[Device], *, atomics: bool = False) -> bool:
    """Whether all GPUs reach each other's memory.

    :param atomics: that they do so by atomics, too
    """
    indexes = sorted({gpu_index(device) for device in devices})
    return all(
        driver.can_access_peer(here, there)
        and (not atomics or driver.peer_attribute("native_atomics", here, there))
        for here, there in permutations(indexes, 2)
    )
