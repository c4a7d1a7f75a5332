"""Devices, kinds of devices (:class:`DeviceKind`), and what runs hand over to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# What on_send and on_receive return: flags, as in Groute's figure 10.
DROP = 0
KEEP = 1
PASS = 2
DUPLICATE = 3


ProgressPoll = Callable[[int], None]
"""Called now and then in the caller's thread with the :class:`Progress` so far; may raise to stop."""


@dataclass(frozen=True)
class Device:
    """A GPU, the CPU, or a thread of it as a virtual device.

    :param name: ``"cpu"`` (all cores, one shared memory) or ``"cpu:3"`` (a virtual device: one
        thread with its own partition, worklists and mailboxes)
    :param kind: ``"cpu"`` or ``"cuda"``
    :param description: for people
    :param memory: returns the bytes that may still be allocated on it
    :param threads: threads that work for it
    :param shares_memory: these threads share one memory, without mailboxes between them
    :param fills: it initializes values itself, so that an array of one number repeated (strides 0) is
        passed without a copy
    :param delivers: it copies results to a :class:`Destination`; else the parts hold them
    """

    name: str
    kind: str
    description: str = ""
    memory: Callable[[], int] = field(default=int, repr=False, compare=False)
    threads: int = 1
    shares_memory: bool = False
    fills: bool = False
    delivers: bool = False

    @property
    def memory_bytes(self) -> int:
        """Bytes that may still be allocated on it."""
        return self.memory()


class Placement(Protocol):
    """Parts of a graph in the memory of their devices."""

    def close(self) -> None:
        """Release the memory. Closing twice is allowed."""


class DeviceKind(Protocol):
    """A kind of device."""

    kind: str

    def devices(self) -> Sequence[Device]:
        """Return the devices of this machine, in order."""

    def find(self, name: str) -> Device:
        """Return the device of a name; DeviceError, naming those there are, if it does not exist."""

    def require_idle(self, devices: Sequence[Device]) -> None:
        """Refuse to wait for a run on these devices that the calling thread is in.

        :raises InputError: the calling thread is in such a run, as a progress function is
        """
