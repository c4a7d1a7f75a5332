"""A thin layer over the CUDA runtime: GPUs, plain memory, streams, events, modules, launches.

Why not a pool: stream-ordered pools are not mapped to peers, and a pool that frees late may wait for a
kernel that waits for a peer. Every :class:`Buffer` is one plain allocation, made and freed while no
kernel of ours runs. Every call names its GPU by index and makes it current for the calling thread.
Whatever CUDA reports becomes a DeviceError with CUDA's own words.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.runtime.cuda.kept_memory import KeptMemory
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.native import ELSEWHERE, calls, launch_config
from godwit.trace import HOST, copied

_PORTABLE_AND_MAPPED = 0x01 | 0x02
_NON_BLOCKING = 0x01

FAULT_NAME = "godwit_fault"
"""The variable of a module whose operators may fail, int64: which operator failed first, or 0; then the
five words of :class:`godwit.runtime.checks.FaultRecord`."""
FAULT_WORDS = 6
_STOPPED = 1 << 62  # what the host writes there to have operators leave their loops

KEPT_BYTES = 1 << 30
"""Of a GPU, that the process keeps of what was let go by :meth:`Buffer.keep`."""
_KEPT: KeptMemory[int] = KeptMemory(KEPT_BYTES)


@dataclass(frozen=True)
class GpuProperties:
    """What a GPU is.

    :param name: the maker's name for it
    :param compute_capability: such as ``"90"``
    :param multiprocessors: of them
    :param memory_bytes: in all
    :param shared_bytes: shared memory that one block may ask for
    :param pci_bus_id: where it is plugged in
    :param cooperative: whether blocks of one launch may wait for each other
    """

    name: str
    compute_capability: str
    multiprocessors: int
    memory_bytes: int
    shared_bytes: int
    pci_bus_id: str
    cooperative: bool


def checked(outcome: tuple[Any, ...], what: str) -> Any:
    """The results of a call of the bindings; DeviceError, saying what failed, if it did."""
    status, *results = outcome
    if int(status) != 0:
        raise DeviceError(f"{what}: {_error_text(status)}")
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _again(status: int, function: Any, given: tuple[Any, ...], index: int, what: str) -> None:
    """A call of :mod:`~godwit.runtime.cuda.native` about a GPU has failed: DeviceError, if not because
    that GPU was not the current one of the thread.
    """
    if status in ELSEWHERE:
        with entered(index):
            status = function(*given)
    if status:
        checked((bindings()[0].CUresult(status),), what)


def _error_text(status: Any) -> str:
    driver, runtime = bindings()
    if isinstance(status, driver.CUresult):
        name, text = driver.cuGetErrorName(status)[1], driver.cuGetErrorString(status)[1]
    else:
        name, text = runtime.cudaGetErrorName(status)[1], runtime.cudaGetErrorString(status)[1]
    return f"{_decoded(text)} ({_decoded(name)})"


def _decoded(text: Any) -> str:
    return text.decode() if isinstance(text, bytes) else str(text)


@lru_cache(maxsize=1)
def _discovery() -> tuple[int, str]:
    """How many GPUs there are; why there is none."""
    try:
        _, runtime = bindings()
    except DeviceError as error:
        return 0, str(error)
    try:
        status, count = runtime.cudaGetDeviceCount()
    except Exception as error:  # no driver library at all
        return 0, f"no NVIDIA driver was found ({error})"
    if int(status) != 0:
        if int(runtime.cudaDriverGetVersion()[1]) == 0:
            return 0, "no NVIDIA driver was found"
        try:
            reason = _error_text(status)
        except Exception as error:  # the words are the driver's, and there may be none
            reason = f"no NVIDIA driver was found ({error})"
        return 0, f"no NVIDIA GPU can be used: {reason}"
    return int(count), "" if count else "there is no NVIDIA GPU"


def device_count() -> int:
    """How many GPUs can be used; 0 also where libraries or the driver are missing."""
    return _discovery()[0]


def why_not() -> str:
    """Why there is no GPU, for people; empty if there is one."""
    return _discovery()[1]


def use(index: int) -> None:
    """Make a GPU the current one of this thread."""
    driver, _ = bindings()
    checked(driver.cuCtxSetCurrent(_context(index)), f"cuda:{index} cannot be used")


@lru_cache(maxsize=64)
def _context(index: int) -> Any:
    """What the runtime, CuPy and PyTorch use of a GPU as well; it is made if there is none."""
    driver, _ = bindings()
    what = f"cuda:{index} cannot be used"
    checked(driver.cuInit(0), what)
    device = checked(driver.cuDeviceGet(index), what)
    return checked(driver.cuDevicePrimaryCtxRetain(device), what)


def _has_context(index: int) -> bool:
    """Whether anybody in this process uses a GPU."""
    driver, _ = bindings()
    status, device = driver.cuDeviceGet(index)
    if int(status) != 0:
        return False
    status, _flags, active = driver.cuDevicePrimaryCtxGetState(device)
    return int(status) == 0 and bool(active)


def _entered() -> Any:
    """The context that this thread has entered; None if it has none yet."""
    driver, _ = bindings()
    status, context = driver.cuCtxGetCurrent()
    return context if int(status) == 0 and int(context) else None


_thread = threading.local()  # whether it has entered a GPU, as far as is known


def enter_any(index: int) -> None:
    """Let a thread that has entered no GPU enter the first, which CUDA would give it; this one if nobody
    uses the first, whose memory a context would take.
    """
    if getattr(_thread, "has_entered", False):
        return
    if _entered() is None:
        use(0 if _has_context(0) else index)
    _thread.has_entered = True


@contextmanager
def current_kept() -> Iterator[None]:
    """Leave the thread's current GPU as it was: it is the caller's, who may use CuPy or PyTorch.

    What a thread has entered is kept by the driver. If it has entered nothing, every library has a copy of
    CUDA's runtime with a GPU of its own for the thread: the first, until cudaSetDevice names another, which
    outlives a return to nothing. So nobody calls that here (:func:`use` does not), and what CuPy has chosen
    meanwhile is undone. Nor does a thread return to nothing where its GPU has a context: once CuPy has
    launched a kernel there, it takes for granted that the thread has entered it.
    """
    driver, _ = bindings()
    before = _entered()
    chosen = _cupys_choice() if before is None else 0
    try:
        yield
    finally:
        if before is not None:
            driver.cuCtxSetCurrent(before)
        else:
            _return_to(chosen)


def _return_to(chosen: int) -> None:
    driver, _ = bindings()
    _thread.has_entered = False
    with suppress(DeviceError, RuntimeError):  # a GPU is lost, as others have reported
        driver.cuCtxSetCurrent(_context(chosen) if _has_context(chosen) else 0)
        if _cupys_choice() != chosen:
            _loaded_cupy().cuda.runtime.setDevice(chosen)


@contextmanager
def entered(index: int) -> Iterator[None]:
    """A block in which a GPU is the current one of this thread, for CuPy too."""
    with current_kept():
        use(index)
        yield


@lru_cache(maxsize=64)
def properties(index: int) -> GpuProperties:
    """What a GPU is."""
    _, runtime = bindings()
    found = checked(runtime.cudaGetDeviceProperties(index), f"cuda:{index} has no properties")
    bus = checked(runtime.cudaDeviceGetPCIBusId(32, index), f"cuda:{index} has no address")
    return GpuProperties(
        name=_decoded(found.name),
        compute_capability=f"{found.major}{found.minor}",
        multiprocessors=int(found.multiProcessorCount),
        memory_bytes=int(found.totalGlobalMem),
        shared_bytes=int(found.sharedMemPerBlockOptin),
        pci_bus_id=_decoded(bus).partition("\0")[0],
        cooperative=bool(found.cooperativeLaunch),
    )


def free_memory_bytes(index: int) -> int:
    """Memory of a GPU that nothing holds, plus what CuPy's pool and the process keep for later."""
    _, runtime = bindings()
    with entered(index):
        free, _total = checked(runtime.cudaMemGetInfo(), f"cuda:{index} does not tell its memory")
        return int(free) + _pooled_bytes() + _KEPT.kept_bytes(index)


def _pooled_bytes() -> int:
    """Free blocks of CuPy's pool of the current GPU, if it is loaded; given back when memory is short."""
    cupy = _loaded_cupy()
    if cupy is None:
        return 0
    return int(cupy.get_default_memory_pool().free_bytes())


def _loaded_cupy() -> Any:
    import sys

    cupy = sys.modules.get("cupy")
    is_whole = hasattr(cupy, "get_default_memory_pool")  # nobody is just importing it
    return cupy if is_whole else None


def _cupys_choice() -> int:
    """The GPU on which a thread's next array of CuPy would be made."""
    cupy = _loaded_cupy()
    try:
        return 0 if cupy is None else int(cupy.cuda.runtime.getDevice())
    except RuntimeError:  # on a GPU that is lost, or in a process that was forked: others report it
        return 0


class Buffer:
    """Memory of one GPU, visible to its peers. A context manager; closing twice does no harm.

    :param index: the GPU
    :param nbytes: at least 1 is allocated
    :raises GraphTooLargeError: it does not fit, with need against free
    """

    def __init__(self, index: int, nbytes: int) -> None:
        self.index = index
        self.nbytes = int(nbytes)
        self.pointer = 0
        use(index)
        _, runtime = bindings()
        status, pointer = runtime.cudaMalloc(max(1, self.nbytes))
        if status == runtime.cudaError_t.cudaErrorMemoryAllocation and free_kept(index):
            status, pointer = runtime.cudaMalloc(max(1, self.nbytes))
        if status == runtime.cudaError_t.cudaErrorMemoryAllocation:
            cupy = _loaded_cupy()
            if cupy is not None:
                cupy.get_default_memory_pool().free_all_blocks()
                status, pointer = runtime.cudaMalloc(max(1, self.nbytes))
        if status == runtime.cudaError_t.cudaErrorMemoryAllocation:
            free = config.readable_bytes(free_memory_bytes(index))
            raise GraphTooLargeError(
                f"cuda:{index} cannot give {config.readable_bytes(self.nbytes)}: {free} are free"
            )
        checked((status,), f"memory of cuda:{index}")
        self.pointer = int(pointer)

    def upload(self, array: Array, offset_bytes: int = 0) -> None:
        """Copy a host array here."""
        array = np.ascontiguousarray(array)
        begin = perf_counter()
        self._copy(self.pointer + offset_bytes, array.ctypes.data, array.nbytes)
        copied(HOST, f"cuda:{self.index}", array.nbytes, begin)

    def download(self, dtype: Any, count: int, offset_bytes: int = 0) -> Array:
        """A host array of what lies here."""
        array = np.empty(count, dtype)
        begin = perf_counter()
        self._copy(array.ctypes.data, self.pointer + offset_bytes, array.nbytes)
        copied(f"cuda:{self.index}", HOST, array.nbytes, begin)
        return array

    def fill_bytes(self, byte: int, count: int | None = None) -> None:
        """Set every byte, or the first so many."""
        use(self.index)
        _, runtime = bindings()
        nbytes = self.nbytes if count is None else count
        if nbytes:
            checked(runtime.cudaMemset(self.pointer, byte, nbytes), f"filling on cuda:{self.index}")
            # Filling does not wait, and our streams do not wait for it.
            checked(runtime.cudaStreamSynchronize(0), f"filling on cuda:{self.index}")

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        use(self.index)
        _, runtime = bindings()
        if nbytes:
            kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
            outcome = runtime.cudaMemcpy(destination, source, nbytes, kind)
            checked(outcome, f"copying {nbytes:,} bytes on cuda:{self.index}")
            # From pageable memory it may return before all has arrived.
            checked(runtime.cudaStreamSynchronize(0), f"copying on cuda:{self.index}")

    def close(self) -> None:
        """Give the memory back; what failed before is not reported here."""
        pointer, self.pointer = self.pointer, 0
        self.nbytes = 0
        if pointer:
            _free(self.index, pointer)

    def keep(self) -> None:
        """As :meth:`close`, but the process keeps it for :func:`kept_or_new`, if it is not too much.

        It waits for all that runs on the GPU, as freeing does: nothing may use what others get.
        """
        pointer, self.pointer = self.pointer, 0
        nbytes, self.nbytes = self.nbytes, 0
        if not pointer:
            return
        surplus = [pointer]
        _, runtime = bindings()
        with suppress(DeviceError), entered(self.index):
            is_sound = int(runtime.cudaDeviceSynchronize()[0]) == 0
            if is_sound:
                surplus = _KEPT.put(self.index, nbytes, pointer)
        for one in surplus:
            _free(self.index, one)

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The garbage collector comes at any time; freeing waits for kernels, which may wait for others that
        # this thread is about to start.
        if getattr(self, "pointer", 0):
            _ABANDONED.append((self.index, self.pointer))


_ABANDONED: list[tuple[int, int]] = []


def kept_or_new(index: int, nbytes: int) -> Buffer:
    """Memory that is let go by :meth:`Buffer.keep`; what is in it is anything, as always."""
    pointer = _KEPT.take(index, nbytes)
    if pointer is None:
        return Buffer(index, nbytes)
    found = Buffer.__new__(Buffer)
    found.index, found.nbytes, found.pointer = index, nbytes, pointer
    return found


def free_kept(index: int) -> bool:
    """Free what the process keeps of a GPU; whether there was any."""
    pointers = _KEPT.take_all(index)
    for pointer in pointers:
        _free(index, pointer)
    return bool(pointers)


def free_abandoned(indexes: Sequence[int]) -> None:
    """Free what nobody closed, on GPUs that nobody else uses now."""
    for entry in [entry for entry in _ABANDONED if entry[0] in indexes]:
        _ABANDONED.remove(entry)
        _free(*entry)


def _free(index: int, pointer: int) -> None:
    _, runtime = bindings()
    with suppress(DeviceError), entered(index):
        runtime.cudaFree(pointer)


class PinnedBuffer:
    """Host memory that every GPU reads and writes in place."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = int(nbytes)
        self.pointer = 0
        _, runtime = bindings()
        outcome = runtime.cudaHostAlloc(max(1, self.nbytes), _PORTABLE_AND_MAPPED)
        self.pointer = int(checked(outcome, f"{self.nbytes:,} bytes of pinned host memory"))

    def array(self, dtype: Any) -> Array:
        """The memory as a NumPy array; not to be used after :meth:`close`."""
        kind = np.dtype(dtype)
        raw = (ctypes.c_byte * self.nbytes).from_address(self.pointer)
        found: Array = np.ctypeslib.as_array(raw).view(kind)
        return found

    def upload(self, array: Array) -> None:
        """Copy a NumPy array to its beginning, while no kernel looks."""
        self.array(np.uint8)[: array.nbytes] = array.view(np.uint8).ravel()

    def fill_bytes(self, byte: int) -> None:
        """Set every byte."""
        self.array(np.uint8)[:] = byte

    def close(self) -> None:
        """Give the memory back."""
        pointer, self.pointer = self.pointer, 0
        if pointer:
            _, runtime = bindings()
            runtime.cudaFreeHost(pointer)

    def __enter__(self) -> PinnedBuffer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter is going down
            return


class Stream:
    """A stream that does not wait for the null stream."""

    def __init__(self, index: int) -> None:
        use(index)
        _, runtime = bindings()
        outcome = runtime.cudaStreamCreateWithFlags(_NON_BLOCKING)
        self._hold(index, checked(outcome, f"a stream of cuda:{index}"))

    def _hold(self, index: int, stream: Any) -> None:
        self.index = index
        self._stream = stream
        self._given = ctypes.c_void_p(int(stream))
        self._wait = calls().synchronize

    @property
    def handle(self) -> int:
        """As the driver takes it."""
        return int(self._stream)

    @property
    def native(self) -> Any:
        """As the bindings take it, who need not look at it twice."""
        return self._stream

    def synchronize(self) -> None:
        """Wait until all that was put into it is done."""
        status = self._wait(self._given)
        if status:
            what = f"a kernel on cuda:{self.index} failed"
            _again(status, self._wait, (self._given,), self.index, what)

    def is_done(self) -> bool:
        """Whether all that was put into it is done."""
        _, runtime = bindings()
        with entered(self.index):
            status = runtime.cudaStreamQuery(self._stream)[0]
        if status == runtime.cudaError_t.cudaErrorNotReady:
            return False
        checked((status,), f"a kernel on cuda:{self.index} failed")
        return True

    def close(self) -> None:
        """Give it back; what is in it runs to its end."""
        stream, self._stream = self._stream, None
        self._given = ctypes.c_void_p()
        if stream is not None:
            _, runtime = bindings()
            with suppress(DeviceError), entered(self.index):
                runtime.cudaStreamDestroy(stream)


class BorrowedStream(Stream):
    """Somebody else's stream.

    :param number: its handle
    """

    def __init__(self, index: int, number: int) -> None:
        self._hold(index, number)

    def close(self) -> None:
        """Its owner does."""


class TimedEvent:
    """CUDA event that records its time."""

    def __init__(self, index: int) -> None:
        self.index = index
        use(index)
        _, runtime = bindings()
        self._event = checked(runtime.cudaEventCreate(), f"an event of cuda:{index}")

    def record(self, stream: Stream) -> None:
        """Put it into a stream of its GPU."""
        use(self.index)
        _, runtime = bindings()
        checked(runtime.cudaEventRecord(self._event, stream.handle), "recording an event")

    def is_reached(self) -> bool:
        """Whether it is; DeviceError if something before it failed."""
        _, runtime = bindings()
        outcome = runtime.cudaEventQuery(self._event)
        if outcome[0] == runtime.cudaError_t.cudaErrorNotReady:
            return False
        checked(outcome, f"a kernel on cuda:{self.index} failed")
        return True

    def synchronize(self) -> None:
        """Wait until it is reached."""
        _, runtime = bindings()
        checked(runtime.cudaEventSynchronize(self._event), f"a kernel on cuda:{self.index} failed")

    def __del__(self) -> None:
        try:
            _, runtime = bindings()
            runtime.cudaEventDestroy(self._event)
        except Exception:  # the interpreter is going down
            return


def elapsed_ms(begin: TimedEvent, end: TimedEvent) -> float:
    """Time between two events of one GPU."""
    _, runtime = bindings()
    return float(checked(runtime.cudaEventElapsedTime(begin._event, end._event), "timing"))


def can_access_peer(here: int, there: int) -> bool:
    """Whether kernels of one GPU may read and write the memory of another."""
    _, runtime = bindings()
    if here == there:
        return True
    return bool(checked(runtime.cudaDeviceCanAccessPeer(here, there), "asking for peer access"))


def peer_attribute(name: str, here: int, there: int) -> int:
    """``"performance_rank"``, ``"access"`` or ``"native_atomics"`` of a pair of GPUs."""
    _, runtime = bindings()
    kinds = runtime.cudaDeviceP2PAttr
    kind = {
        "performance_rank": kinds.cudaDevP2PAttrPerformanceRank,
        "access": kinds.cudaDevP2PAttrAccessSupported,
        "native_atomics": kinds.cudaDevP2PAttrNativeAtomicSupported,
    }[name]
    return int(
        checked(runtime.cudaDeviceGetP2PAttribute(kind, here, there), "asking for peer access")
    )


def enable_peer_access(indexes: Iterable[int]) -> None:
    """Let every pair that can use each other's memory; asking twice does no harm."""
    _, runtime = bindings()
    distinct = sorted(set(indexes))
    already = runtime.cudaError_t.cudaErrorPeerAccessAlreadyEnabled
    for here in distinct:
        for there in distinct:
            if here == there or not can_access_peer(here, there):
                continue
            use(here)
            outcome = runtime.cudaDeviceEnablePeerAccess(there, 0)
            if outcome[0] == already:
                runtime.cudaGetLastError()  # it sticks otherwise
            else:
                checked(outcome, f"peer access from cuda:{here} to cuda:{there}")


def copy_async(destination: int, source: int, nbytes: int, stream: Stream) -> None:
    """Copy in a stream, in any direction."""
    use(stream.index)
    _, runtime = bindings()
    kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
    outcome = runtime.cudaMemcpyAsync(destination, source, nbytes, kind, stream.handle)
    checked(outcome, f"copying {nbytes:,} bytes on cuda:{stream.index}")


def copy_peer_async(
    destination: int, to_index: int, source: int, from_index: int, nbytes: int, stream: Stream
) -> None:
    """Copy between two GPUs in a stream, through the host where they are no peers."""
    use(stream.index)
    _, runtime = bindings()
    outcome = runtime.cudaMemcpyPeerAsync(
        destination, to_index, source, from_index, nbytes, stream.handle
    )
    checked(outcome, f"copying {nbytes:,} bytes from cuda:{from_index} to cuda:{to_index}")


class Kernel:
    """A kernel that is loaded on a GPU.

    :ivar faults: the address of its module's :data:`FAULT_NAME`; 0 if there is none
    :ivar fault_count: how often it held a fault when :meth:`take_fault` was called
    :ivar last_fault: what it then held
    """

    def __init__(self, index: int, function: Any, name: str, faults: int = 0) -> None:
        self.index = index
        self.name = name
        self.function = function
        self.faults = faults
        self.fault_count = 0
        self.last_fault: list[int] = []

    def take_fault(self) -> bool:
        """Return whether an operator failed; keep what, and clear the variable.

        Who shares a kernel with others compares ``fault_count`` with that of its beginning.
        """
        if not self.faults:
            return False
        words = np.zeros(FAULT_WORDS, np.int64)
        use(self.index)
        _, runtime = bindings()
        kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
        outcome = runtime.cudaMemcpy(words.ctypes.data, self.faults, words.nbytes, kind)
        checked(outcome, f"reading {FAULT_NAME} on cuda:{self.index}")
        if not words[0]:
            return False
        checked(runtime.cudaMemset(self.faults, 0, words.nbytes), f"clearing {FAULT_NAME}")
        checked(runtime.cudaStreamSynchronize(0), f"clearing {FAULT_NAME}")
        if words[0] == _STOPPED:
            return False
        self.last_fault = [int(word) for word in words]
        self.fault_count += 1
        return True

    def stop_operators(self) -> None:
        """Have users' operators leave their loops until :meth:`take_fault` is called, without waiting."""
        if not self.faults:
            return
        word = np.array([_STOPPED], np.int64)
        stream = Stream(self.index)
        try:
            copy_async(self.faults, word.ctypes.data, word.nbytes, stream)
            stream.synchronize()
        finally:
            stream.close()

    def allow_shared(self, nbytes: int) -> None:
        """Let it be launched with so much dynamic shared memory."""
        driver, _ = bindings()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        use(self.index)
        outcome = driver.cuFuncSetAttribute(self.function, attribute, nbytes)
        checked(outcome, f"{nbytes:,} bytes of shared memory for {self.name} on cuda:{self.index}")

    def occupancy(self, threads: int, shared_bytes: int = 0) -> int:
        """How many blocks of it fit on a multiprocessor at once."""
        driver, _ = bindings()
        use(self.index)
        outcome = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self.function, threads, shared_bytes
        )
        return int(checked(outcome, f"asking for the occupancy of {self.name}"))

    def registers(self) -> int:
        """Registers a thread."""
        driver, _ = bindings()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
        return int(checked(driver.cuFuncGetAttribute(attribute, self.function), self.name))


class Module:
    """Compiled code on a GPU. Everything is loaded at once, as nothing may be while kernels wait."""

    def __init__(self, index: int, cubin: bytes) -> None:
        self.index = index
        driver, runtime = bindings()
        use(index)
        checked(runtime.cudaFree(0), f"cuda:{index} cannot be used")
        self._module = checked(driver.cuModuleLoadData(cubin), f"loading code on cuda:{index}")
        self._faults = 0
        if FAULT_NAME.encode() in cubin:
            outcome = driver.cuModuleGetGlobal(self._module, FAULT_NAME.encode())
            self._faults = int(checked(outcome, f"looking for {FAULT_NAME}")[0])

    def kernel(self, name: str) -> Kernel:
        """One of its kernels."""
        driver, _ = bindings()
        use(self.index)
        outcome = driver.cuModuleGetFunction(self._module, name.encode())
        function = checked(outcome, f"looking for kernel {name}")
        found = Kernel(self.index, function, name, self._faults)
        found.registers()  # loads it now, should loading be lazy
        return found


def load(index: int, cubin: bytes) -> Module:
    """Compiled code, loaded on a GPU."""
    return Module(index, cubin)


class Launch:
    """A kernel with its arguments, ready to be started.

    Kernels that wait for each other are made ready first, as those that run wait while others are started.

    :param arguments: the bytes of the one struct that it takes by value; or a list of ints (pointers,
        64 bits) and ctypes numbers
    :param cooperative: its blocks wait for each other: it is an error if they do not all fit at once
    """

    def __init__(
        self,
        kernel: Kernel,
        stream: Stream,
        *,
        blocks: int,
        threads: int,
        arguments: bytes | Sequence[Any],
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> None:
        self.kernel = kernel
        if isinstance(arguments, bytes):
            held: list[Any] = [ctypes.create_string_buffer(arguments, len(arguments))]
        else:
            held = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
        addresses = (ctypes.c_void_p * max(1, len(held)))(*[ctypes.addressof(one) for one in held])
        config = launch_config(
            blocks, threads, shared_bytes, stream.handle, cooperative=cooperative
        )
        self._held = held
        self._launch = calls().launch
        self._given = ctypes.byref(config), ctypes.c_void_p(int(kernel.function)), addresses, None

    def start(self) -> None:
        """Start it."""
        status = self._launch(*self._given)
        if status:
            what = f"starting {self.kernel.name} on cuda:{self.kernel.index}"
            _again(status, self._launch, self._given, self.kernel.index, what)


def launch(kernel: Kernel, stream: Stream, **given: Any) -> None:
    """Start a kernel; arguments as of :class:`Launch`."""
    Launch(kernel, stream, **given).start()
