"""The block that owns devices and what is placed on them (Groute, table 1: Context, Endpoint)."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from godwit.backends.base import Backend, Device
from godwit.backends.registry import DevicesArgument, backend_of, resolve_devices
from godwit.errors import ClosedContextError


@dataclass(frozen=True)
class Endpoint:
    """Something that sends and receives: a device of a context, by its place there.

    The same device may stand at several places: each is an endpoint of its own.
    """

    index: int
    device: Device

    def __str__(self) -> str:
        return f"{self.device.name} (endpoint {self.index})"


class Context:
    """Devices, for as long as the block lasts.

    >>> with Context(devices=["cpu:0", "cpu:1"]) as context:
    ...     len(context.endpoints)
    2

    :param devices: as everywhere: None, a number, a name or names
    :raises InputError: see :func:`godwit.backends.registry.resolve_devices`
    :raises DeviceError: a device is not there
    """

    def __init__(self, devices: DevicesArgument = None) -> None:
        self._endpoints = tuple(
            Endpoint(index, device) for index, device in enumerate(resolve_devices(devices))
        )
        self._closed = False

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """One endpoint a device, in the order given."""
        self.check_open()
        return self._endpoints

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order given."""
        return tuple(endpoint.device for endpoint in self.endpoints)

    @property
    def backend(self) -> Backend:
        """What runs on these devices."""
        return backend_of(self.devices)

    @property
    def closed(self) -> bool:
        """Whether the block has ended."""
        return self._closed

    def check_open(self) -> None:
        """Raise ClosedContextError if the block has ended."""
        if self._closed:
            raise ClosedContextError("this context is closed; make another one")

    def close(self) -> None:
        """End the block; closing twice does no harm."""
        self._closed = True

    def __enter__(self) -> Context:
        self.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
