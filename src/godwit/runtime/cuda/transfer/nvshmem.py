"""NVSHMEM: memory of the GPUs of several processes, also of several machines, and copies between them.

Only the host's part of the library is used, and only for copies: a process puts them into a stream, from
its own memory to the same place in another process' memory. No GPU waits for another process. The
environment variables of NVSHMEM are the user's; what is not set is set so that multicast stays off, and on
one machine no network is looked for.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from godwit.errors import DeviceError
from godwit.runtime.cuda.driver import Stream, use

INSTALL = 'pip install "godwit[nvshmem]"'
_LIBRARY = "libnvshmem_host.so.3"
_ID_BYTES = 128
_WITH_UNIQUE_ID = 1 << 3
_FIRST_VERSION = 1 << 16  # of a struct; its size is added


class _UniqueIdArguments(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("id", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("count", ctypes.c_int),
    ]


class _Arguments(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("unique_id", _UniqueIdArguments),
        ("padding", ctypes.c_char * 96),
    ]


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("communicator", ctypes.c_void_p),
        ("arguments", _Arguments),
    ]


def load() -> ctypes.CDLL:
    """Return the library.

    :raises DeviceError: it is not installed, or cannot be loaded
    """
    names = [_LIBRARY]
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec("nvidia.nvshmem")
        folders = (found.submodule_search_locations or ()) if found is not None else ()
        names = [str(Path(folder, "lib", _LIBRARY)) for folder in folders] + names
    reason = ""
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            reason = reason or str(error)
            continue
        address, size, status = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for function, result, arguments in (
            ("nvshmemx_get_uniqueid", status, [address]),
            ("nvshmemx_set_attr_uniqueid_args", status, [status, status, address, address]),
            ("nvshmemx_hostlib_init_attr", status, [ctypes.c_uint, address]),
            ("nvshmem_malloc", address, [size]),
            ("nvshmem_free", None, [address]),
            ("nvshmemx_putmem_on_stream", None, [address, address, size, status, address]),
            ("nvshmemx_quiet_on_stream", None, [address]),
        ):
            bound = getattr(library, function)
            bound.restype, bound.argtypes = result, arguments
        return library
    raise DeviceError(f"NVSHMEM cannot be loaded ({reason}); install it: {INSTALL}")


def unique_id(library: ctypes.CDLL) -> bytes:
    """Return an id of a run of NVSHMEM, which one process makes and sends to all, to join them."""
    identity = ctypes.create_string_buffer(_ID_BYTES)
    ctypes.c_int.from_buffer(identity).value = _FIRST_VERSION + _ID_BYTES
    if library.nvshmemx_get_uniqueid(identity):
        raise DeviceError("NVSHMEM gives no unique id")
    return identity.raw


class SymmetricMemory:
    """Memory that all processes allocate alike, in which they copy to each other.

    NVSHMEM begins once in a process, on one GPU, and ends with it. All processes make this together.

    :param index: the GPU of this process
    :param identity: of :func:`unique_id`, from one of the processes
    :param on_one_machine: all processes are
    :raises DeviceError: NVSHMEM does not begin
    """

    def __init__(
        self, library: ctypes.CDLL, index: int, rank: int, count: int, identity: bytes,
        *, on_one_machine: bool,
    ) -> None:  # fmt: skip
        os.environ.setdefault("NVSHMEM_DISABLE_NVLS", "1")
        if on_one_machine:
            os.environ.setdefault("NVSHMEM_REMOTE_TRANSPORT", "none")
        use(index)
        self._library = library
        self._address = self._slot = 0
        attributes = _Attributes(_FIRST_VERSION + ctypes.sizeof(_Attributes))
        attributes.arguments.version = _FIRST_VERSION + ctypes.sizeof(_Arguments)
        argument_bytes = ctypes.sizeof(_UniqueIdArguments)
        attributes.arguments.unique_id.version = _FIRST_VERSION + argument_bytes
        given, to = ctypes.create_string_buffer(identity, _ID_BYTES), ctypes.byref(attributes)
        status = library.nvshmemx_set_attr_uniqueid_args(rank, count, given, to)
        status = status or library.nvshmemx_hostlib_init_attr(_WITH_UNIQUE_ID, to)
        if status:
            raise DeviceError(f"NVSHMEM does not begin on cuda:{index} (status {status})")

    def mailboxes(self, size: int, slots: int, largest: Callable[[int], int]) -> tuple[int, int]:
        """Return the address of slots of at least a size, and the size of a slot; all call this alike.

        They are kept, and larger ones take their place.

        :param largest: returns the largest of the numbers that processes give
        :raises DeviceError: the GPU of a process has no room: all raise it
        """
        if size > self._slot:
            address, self._address, self._slot = self._address, 0, 0
            if address:
                self._library.nvshmem_free(address)
            slot = 1 << (size - 1).bit_length()
            self._address = int(self._library.nvshmem_malloc(slot * slots) or 0)
            if largest(int(not self._address)):
                raise DeviceError(
                    f"NVSHMEM has no {slot * slots:,} bytes for what GPUs send each other; "
                    "NVSHMEM_SYMMETRIC_SIZE may give it more"
                )
            self._slot = slot
        return self._address, self._slot

    def put(self, to: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Put a copy to another process' memory into a stream.

        :param to: the address that this process has for the place
        :param source: address in symmetric memory of this process
        """
        self._library.nvshmemx_putmem_on_stream(to, source, nbytes, rank, int(stream.handle))

    def complete(self, stream: Stream) -> None:
        """Let a stream wait until the copies that were put into it have arrived."""
        self._library.nvshmemx_quiet_on_stream(int(stream.handle))


_begun: dict[int, tuple[tuple[int, int], SymmetricMemory]] = {}
"""The memory of a process, by its rank, with its GPU and the number of processes."""


def begin(
    index: int, rank: int, count: int, share: Callable[[object], list[object]],
    *, on_one_machine: bool,
) -> SymmetricMemory:  # fmt: skip
    """Return the memory of the processes, which begin NVSHMEM with the first call; all call this together.

    :param share: returns what all processes give
    :raises DeviceError: NVSHMEM is missing, or does not begin, in one of them: all raise it
    """
    key = index, count
    known, memory = _begun.get(rank, (None, None))
    if all(share(known == key)) and memory is not None:
        return memory

    def agreed(outcome: object) -> list[object]:
        """Return the outcomes of all processes, none of which is an error."""
        outcomes = share(str(outcome) if isinstance(outcome, DeviceError) else outcome)
        failed = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if failed:
            raise DeviceError(failed[0])
        return outcomes

    library: ctypes.CDLL | None = None
    identity: object = None
    try:
        if known is not None:
            raise DeviceError("NVSHMEM has begun on another GPU, or for other processes")
        library = load()
        identity = unique_id(library) if rank == 0 else None
    except DeviceError as error:
        identity = error
    first = agreed(identity)[0]
    assert library is not None
    assert isinstance(first, bytes)
    made: SymmetricMemory | DeviceError
    try:
        made = SymmetricMemory(library, index, rank, count, first, on_one_machine=on_one_machine)
    except DeviceError as error:
        made = error
    agreed(made if isinstance(made, DeviceError) else None)
    assert isinstance(made, SymmetricMemory)
    _begun[rank] = key, made
    return made
