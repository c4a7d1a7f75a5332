"""Devices, kinds of devices (:class:`DeviceKind`), and what runs hand over to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# What on_send and on_receive return: flags, as in Groute's figure 10.
DROP = 0
KEEP = 1
PASS = 2
DUPLICATE = 3


class Progress(int):
    """Items processed so far; GPUs tell more.

    :ivar threshold: priorities up to it are due now, or None
    :ivar idle_share: of each GPU's time so far, the part in which its blocks waited for others
    """

    threshold: float | None = None
    idle_share: tuple[float, ...] = ()


ProgressPoll = Callable[[int], None]
"""Called now and then in the caller's thread with the :class:`Progress` so far; may raise to stop."""


@dataclass(frozen=True)
class Device:
    """Something that has memory and runs kernels.

    :param name: ``"cpu"`` (all cores, one shared memory) or ``"cpu:3"`` (a virtual device: one
        thread with its own partition, worklists and mailboxes)
    :param kind: ``"cpu"`` or ``"cuda"``
    :param description: for people
    :param memory: tells how much memory may still be allocated on it, in bytes
    :param threads: threads that work for it
    :param shares_memory: whether these threads work on one memory, without mailboxes between them
    :param fills: whether it initializes values itself: an array of one number repeated (strides 0)
        costs nothing to hand over
    :param delivers: whether it brings results to a :class:`Destination`; else the parts hold them
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
        """Memory that may still be allocated on it."""
        return self.memory()


class Placement(Protocol):
    """Parts of a graph in the memory of their devices."""

    def close(self) -> None:
        """Give the memory back; closing twice does no harm."""


class DeviceKind(Protocol):
    """A kind of device: which there are, and whether they are idle."""

    kind: str

    def devices(self) -> Sequence[Device]:
        """The devices that are there, in order."""

    def find(self, name: str) -> Device:
        """The device of a name; DeviceError, saying what there is, if it is not there."""

    def require_idle(self, devices: Sequence[Device]) -> None:
        """Asked before waiting for anything that a run on these devices may hold.

        :raises InputError: the calling thread is in such a run, as a progress function is
        """
