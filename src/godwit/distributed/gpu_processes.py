"""Processes of an MPI run, each with a GPU, as supersteps see them (:mod:`godwit.supersteps.processes`)."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from godwit.distributed.gpu_copies import GpuCopies, HostCopies, NvshmemCopies
from godwit.distributed.processes import Processes, Transport
from godwit.dtypes import Array
from godwit.errors import DeviceError, InputError, shown
from godwit.runtime.cuda import driver, ipc
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.devices import gpu_index, held_gpus
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.transfer import nvshmem
from godwit.runtime.protocol import Device
from godwit.runtime.registry import resolve_devices
from godwit.supersteps.processes import Spans


def machine() -> str:
    """Return a text that is the same in all processes of this machine, and in no other."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()} {boot}"


def own_gpu(processes: Processes, devices: str) -> Device:
    """Return the GPU of this process, which no other one has; all processes call it.

    :param devices: ``"cuda"``: processes of a machine take its GPUs in their order; or a name
    :raises InputError: not one of these, or two processes would have the same GPU
    :raises DeviceError: there is no GPU, or there are fewer than processes
    """
    if processes.count > MAXIMAL_DEVICES:
        raise InputError(
            f"at most {MAXIMAL_DEVICES} processes work on GPUs together, and there are {processes.count}"
        )
    here = processes.share(machine())
    beside = [rank for rank, name in enumerate(here) if name == here[processes.rank]]
    gpus = resolve_devices(devices)
    if devices == "cuda" and len(gpus) > 1:
        place = beside.index(processes.rank)
        if place >= len(gpus):
            raise DeviceError(
                f"{len(beside)} processes run on this machine, and process {processes.rank} sees "
                f"{len(gpus)} GPUs: start one process a GPU"
            )
        gpus = gpus[place : place + 1]
    if len(gpus) != 1 or gpus[0].kind != "cuda":
        raise InputError(
            "devices of a graph on several processes must be None (cores), 'cuda' (a GPU for each "
            f"process) or the name of a GPU, such as 'cuda:0'; got {shown(devices)}"
        )
    (device,) = gpus
    gpu = driver.properties(gpu_index(device)).pci_bus_id
    places = processes.share((here[processes.rank], gpu))
    for rank, taken in enumerate(places):
        first = places.index(taken)
        if first != rank:
            raise InputError(
                f"processes {first} and {rank} would use the same GPU ({gpu} of "
                f"{taken[0].partition(' ')[0]}): start one process a GPU, or give each a GPU of its own "
                "(devices='cuda:0', 'cuda:1', ...)"
            )
    return device


class GpuProcesses:
    """The processes, and their memory that kernels of this one reach.

    All processes make one together.

    :param device: the GPU of this process
    :param transport: how GPUs are to reach each other; None: "direct", else "host"
    :ivar copies: how memory is copied where kernels do not reach it
    :ivar why_by_host: why kernels do not reach all memory, so that hosts copy; empty if they do
    :ivar change_each_other: True if atomics of kernels work in all memory; False also where GPUs of other
        processes are hidden from this one, since then it is not known
    """

    def __init__(
        self, processes: Processes, device: Device, transport: Transport | None = None
    ) -> None:
        self.rank, self.count = processes.rank, processes.count
        self._processes = processes
        self._index = gpu_index(device)
        self._opened: list[int] = []
        self.why_by_host = self._probe()
        self.copies: GpuCopies = HostCopies(self, self._index)
        if transport == "direct" and self.why_by_host:
            raise DeviceError(f"transport='direct' is not possible here: {self.why_by_host}")
        if transport in ("nvshmem", "host"):
            self.why_by_host = f"transport={transport!r} was asked for"
        if transport == "nvshmem":
            self.copies = self._by_nvshmem()
        self.change_each_other = self.reach_each_other and self._has_atomics()

    @property
    def reach_each_other(self) -> bool:
        """True if kernels reach the memory of all processes' GPUs."""
        return not self.why_by_host

    def any(self, flag: bool) -> bool:
        """Return True if any process gives True."""
        return bool(self._processes.meet(int(flag)).any())

    def largest(self, number: int) -> int:
        """Return the largest of the numbers that processes give."""
        return int(self._processes.meet(number).max())

    def addresses(self, buffer: Buffer) -> list[int]:
        """Return the addresses, for kernels of this process, of the buffers that all processes give.

        :raises DeviceError: CUDA refuses it
        """
        handle = np.frombuffer(ipc.exported(buffer), np.uint8)
        handles = self.exchange([handle] * self.count)
        addresses = []
        for rank, handle in enumerate(handles):
            if rank == self.rank:
                addresses.append(buffer.pointer)
                continue
            address = ipc.opened(self._index, handle.tobytes())
            self._opened.append(address)
            addresses.append(address)
        return addresses

    def exchange(self, parts: Sequence[Array]) -> list[Array]:
        """Send each process an array of bytes; return those that it got, in the order of the processes."""
        counts = np.array([len(part) for part in parts])
        received, got, _ = self._processes.exchange(np.concatenate(parts), counts)
        return np.split(received, np.cumsum(got)[:-1])

    def copy(self, sent: Sequence[Spans], into: Sequence[Spans]) -> None:
        """Copy as :class:`GpuCopies` does."""
        self.copies.copy(sent, into)

    def _by_nvshmem(self) -> NvshmemCopies:
        """Begin NVSHMEM; all processes call it.

        :raises DeviceError: it is missing, or does not begin, in a process: all raise it
        """
        share = self._processes.share
        with held_gpus([self._index]):
            memory = nvshmem.begin(
                self._index, self.rank, self.count, share,
                on_one_machine=len(set(share(machine()))) == 1,
            )  # fmt: skip
        return NvshmemCopies(self, self._index, memory)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Provide a block that all processes enter at the same time, and in which Ctrl-C is deferred."""
        with self._processes.uninterrupted():
            self._processes.meet()
            yield

    def unmap(self) -> None:
        """Unmap the memory of other processes' GPUs, which no kernel of this one uses any more."""
        opened, self._opened = self._opened, []
        for address in opened:
            ipc.close_opened(self._index, address)

    def close(self) -> None:
        """Unmap the memory; the calling thread does not hold the GPU."""
        with held_gpus([self._index]):
            self.unmap()

    def _probe(self) -> str:
        """Map memory of other processes; return why that fails, or an empty text. All processes call it."""
        machines = self._processes.share(machine())
        if len(set(machines)) > 1:
            return "the processes are on several machines"
        why = ""
        with held_gpus([self._index]), Buffer(self._index, 1) as buffer:
            handle = b""
            try:
                handle = ipc.exported(buffer)
            except DeviceError as error:
                why = str(error)
            for rank, other in enumerate(self._processes.share(handle)):
                if rank != self.rank and other and not why:
                    try:
                        ipc.close_opened(self._index, ipc.opened(self._index, other))
                    except DeviceError as error:
                        why = str(error)
            reasons = self._processes.share(why)  # before the buffer is freed
        return next((reason for reason in reasons if reason), "")

    def _has_atomics(self) -> bool:
        """Return True if links have native atomics; all processes call it."""
        own = driver.properties(self._index).pci_bus_id
        seen = {
            driver.properties(index).pci_bus_id: index for index in range(driver.device_count())
        }
        others = [bus for bus in self._processes.share(own) if bus != own]
        works = all(
            bus in seen and bool(driver.peer_attribute("native_atomics", self._index, seen[bus]))
            for bus in others
        )
        return not self.any(not works)
