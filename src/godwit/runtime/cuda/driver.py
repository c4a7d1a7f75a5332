"""The CUDA driver and runtime by ``cuda.bindings``: GPUs, contexts, streams, events, modules, launches.

Every call names its GPU by index and makes it current for the calling thread. CUDA's errors become
DeviceErrors with CUDA's own words. ``cuda.core`` is not used: its launches and streams cost more than the
bindings', and what is launched while other kernels wait goes by ctypes for the same reason
(:func:`calls`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.runtime.cuda.libraries import bindings

T = TypeVar("T")

_NON_BLOCKING = 0x01
_WRONG_CONTEXT = (201, 400)
"""CUDA_ERROR_INVALID_CONTEXT and _INVALID_HANDLE: of calls about a GPU that is not the current one."""

FAULT_NAME = "godwit_fault"
"""Variable of a module whose operators may fail, int64: the operator that failed first, or 0; then the five
words of :class:`godwit.runtime.checks.FaultRecord`."""
FAULT_WORDS = 6
_STOPPED = 1 << 62  # value of the first word that makes operators leave their loops


@dataclass(frozen=True)
class GpuProperties:
    """Properties of a GPU.

    :param compute_capability: such as ``"90"``
    :param memory_bytes: total global memory
    :param shared_bytes: largest dynamic shared memory of a block
    :param cooperative: whether cooperative launches are supported
    """

    name: str
    compute_capability: str
    multiprocessors: int
    memory_bytes: int
    shared_bytes: int
    pci_bus_id: str
    cooperative: bool


def checked(outcome: tuple[Any, ...], what: str) -> Any:
    """Return the results of a call of the bindings.

    :raises DeviceError: the call failed, with ``what`` and CUDA's words
    """
    status, *results = outcome
    if int(status) != 0:
        raise DeviceError(f"{what}: {_error_text(status)}")
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


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
    """Return the number of GPUs, and why there is none."""
    try:
        _, runtime = bindings()
    except DeviceError as error:
        return 0, str(error)
    try:
        status, count = runtime.cudaGetDeviceCount()
    except Exception as error:  # there is no driver library
        return 0, f"no NVIDIA driver was found ({error})"
    if int(status) != 0:
        if int(runtime.cudaDriverGetVersion()[1]) == 0:
            return 0, "no NVIDIA driver was found"
        try:
            reason = _error_text(status)
        except Exception as error:  # the text comes from the driver, which may be missing
            reason = f"no NVIDIA driver was found ({error})"
        return 0, f"no NVIDIA GPU can be used: {reason}"
    return int(count), "" if count else "there is no NVIDIA GPU"


def device_count() -> int:
    """Return the number of GPUs; 0 also if libraries or the driver are missing."""
    return _discovery()[0]


def why_not() -> str:
    """Return why no GPU can be used; empty if one can."""
    return _discovery()[1]


def architecture_before_discovery() -> str | None:
    """Return the architecture of this machine's GPUs, such as ``"90"``, before CUDA has looked for them.

    NVML says it within some 15 ms, while CUDA begins in 300. None if CUDA has begun or is to see no GPU, if
    GPUs differ, or if there is no NVML.
    """
    if _discovery.cache_info().currsize or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    return _architecture_of_all()


@lru_cache(maxsize=1)
def _architecture_of_all() -> str | None:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count, handle = ctypes.c_uint(), ctypes.c_void_p()
    major, minor = ctypes.c_int(), ctypes.c_int()
    found = set()
    if nvml.nvmlInit_v2():
        return None
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
        for index in range(count.value):
            numbers = ctypes.byref(major), ctypes.byref(minor)
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            failed = failed or nvml.nvmlDeviceGetCudaComputeCapability(handle, *numbers)
            found.add(None if failed else f"{major.value}{minor.value}")
    nvml.nvmlShutdown()
    return found.pop() if len(found) == 1 else None


@lru_cache(maxsize=64)
def properties(index: int) -> GpuProperties:
    """Return the properties of a GPU."""
    _, runtime = bindings()
    given = checked(runtime.cudaGetDeviceProperties(index), f"cuda:{index} has no properties")
    bus = checked(runtime.cudaDeviceGetPCIBusId(32, index), f"cuda:{index} has no address")
    return GpuProperties(
        name=_decoded(given.name),
        compute_capability=f"{given.major}{given.minor}",
        multiprocessors=int(given.multiProcessorCount),
        memory_bytes=int(given.totalGlobalMem),
        shared_bytes=int(given.sharedMemPerBlockOptin),
        pci_bus_id=_decoded(bus).partition("\0")[0],
        cooperative=bool(given.cooperativeLaunch),
    )


# The current GPU of a thread


def use(index: int) -> None:
    """Make a GPU current for the calling thread."""
    context = context_handle(index)
    if quick_calls().set_context(context):
        driver, _ = bindings()
        checked(driver.cuCtxSetCurrent(context), f"cuda:{index} cannot be used")
    _thread.has_entered = True


@lru_cache(maxsize=64)
def context_handle(index: int) -> int:
    """Return the handle of a GPU's primary context, which the runtime, CuPy and PyTorch use as well."""
    driver, _ = bindings()
    what = f"cuda:{index} cannot be used"
    checked(driver.cuInit(0), what)
    device = checked(driver.cuDeviceGet(index), what)
    return int(checked(driver.cuDevicePrimaryCtxRetain(device), what))


def _has_context(index: int) -> bool:
    """Return True if the primary context of a GPU is active in this process."""
    driver, _ = bindings()
    status, device = driver.cuDeviceGet(index)
    if int(status) != 0:
        return False
    status, _flags, active = driver.cuDevicePrimaryCtxGetState(device)
    return int(status) == 0 and bool(active)


def _current_context() -> int:
    """Return this thread's current context; 0 if it has none."""
    found = ctypes.c_void_p()
    if quick_calls().get_context(ctypes.byref(found)) == 0:
        return found.value or 0
    driver, _ = bindings()
    status, context = driver.cuCtxGetCurrent()
    return 0 if int(status) else int(context)


def _set_context(context: int) -> None:
    """Make a context current for the calling thread, if it can be; 0 for none."""
    if quick_calls().set_context(context):
        bindings()[0].cuCtxSetCurrent(context)


_thread = threading.local()  # has_entered: this thread is known to have a current context


def enter_any(index: int) -> None:
    """Give a thread without a current GPU one: the first, as CUDA would, if it has a context.

    Else ``index``, since a context takes memory.
    """
    if getattr(_thread, "has_entered", False):
        return
    if not _current_context():
        use(0 if _has_context(0) else index)
    _thread.has_entered = True


@contextmanager
def current_kept() -> Iterator[None]:
    """Restore the thread's current GPU after the block: the caller may use CuPy or PyTorch.

    The driver keeps a thread's current context. Where there is none, every library has a copy of CUDA's
    runtime with a GPU of its own for the thread: the first, until cudaSetDevice names another, which
    outlives a return to no context. So cudaSetDevice is not called here (:func:`use` does not), and what
    CuPy has set meanwhile is undone. Nor does a thread return to no context where its GPU has one: CuPy,
    once it has launched a kernel there, assumes that the context is current.
    """
    before = current()
    try:
        yield
    finally:
        return_to(before)


class Current(NamedTuple):
    """The current GPU of a thread.

    :param context: the current context; 0 if there is none
    :param chosen: the GPU that CuPy's runtime has for the thread, if there is none
    """

    context: int
    chosen: int


def current() -> Current:
    """Return the current GPU of the calling thread, for :func:`return_to`."""
    context = _current_context()
    return Current(context, 0 if context else _cupys_choice())


def return_to(before: Current) -> None:
    """Make a GPU, or none, current for the calling thread, as in :func:`current_kept`."""
    context, chosen = before
    if context:
        _set_context(context)
        return
    _thread.has_entered = False
    with suppress(DeviceError, RuntimeError):  # the GPU is lost, which other calls report
        _set_context(context_handle(chosen) if _has_context(chosen) else 0)
        if _cupys_choice() != chosen:
            loaded_cupy().cuda.runtime.setDevice(chosen)


@contextmanager
def entered(index: int) -> Iterator[None]:
    """Make a GPU the current one of this thread for the block, for CuPy too."""
    with current_kept():
        use(index)
        yield


def call_on(index: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function with a GPU as the current one of this thread: :func:`entered`, mostly faster."""
    before = _current_context()
    if not before:
        with entered(index):
            return function(*arguments)
    if before == context_handle(index):
        return function(*arguments)
    use(index)
    try:
        return function(*arguments)
    finally:
        _set_context(before)


def loaded_cupy() -> Any:
    """Return CuPy if this process has imported it, else None."""
    cupy = sys.modules.get("cupy")
    is_complete = hasattr(cupy, "get_default_memory_pool")  # not just being imported
    return cupy if is_complete else None


def _cupys_choice() -> int:
    """Return the GPU on which CuPy would make this thread's next array."""
    cupy = loaded_cupy()
    try:
        return 0 if cupy is None else int(cupy.cuda.runtime.getDevice())
    except RuntimeError:  # the GPU is lost, or the process was forked, which other calls report
        return 0


# Calls that other kernels wait for


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint64), ("value", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 15))


class _LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("blocks", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint32),
    )


_COOPERATIVE = _Attribute(2, 1)  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE


class Calls(NamedTuple):
    """Functions of the driver, by ctypes: they take ctypes objects and return the number of a CUresult.

    Kernels that meet wait for the one that is launched last, and a run ends when the host has seen all of
    them end. Of four launches by the bindings, 33 µs on a host of H200 GPUs, 17 are the driver's, and of
    waiting for four idle streams, 19 µs, 6 are (benchmarks/RESULTS.md). Both release the GIL: a launch
    blocks where very many are under way.

    The others are called by compiled code, which takes their addresses (staging.py).

    :param launch: cuLaunchKernelEx
    :param synchronize: cuStreamSynchronize
    :param copy_async: cuMemcpyAsync
    :param record_event: cuEventRecord
    :param query_event: cuEventQuery
    :param set_context: cuCtxSetCurrent
    """

    launch: Any
    synchronize: Any
    copy_async: Any
    record_event: Any
    query_event: Any
    set_context: Any


@lru_cache(maxsize=1)
def calls() -> Calls:
    """Return the functions of the driver that the bindings have loaded."""
    bindings()[0].cuDriverGetVersion()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        return Calls(
            driver.cuLaunchKernelEx, driver.cuStreamSynchronize, driver.cuMemcpyAsync,
            driver.cuEventRecord, driver.cuEventQuery, driver.cuCtxSetCurrent,
        )  # fmt: skip
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the CUDA driver cannot be called: {error}") from error


class QuickCalls(NamedTuple):
    """Functions of the driver by ctypes that keep the GIL, with numbers; they return that of a CUresult.

    Each takes about a microsecond, and a call that releases the GIL while other threads want it takes five
    more (two H100, Python 3.12); a thread that starts or sends calls a dozen. They wait only where a GPU
    has not begun a thousand operations, and then for the GPU.

    :param record: cuEventRecord
    :param query: cuEventQuery
    :param let_wait: cuStreamWaitEvent
    :param query_stream: cuStreamQuery
    :param set_context: cuCtxSetCurrent
    :param get_context: cuCtxGetCurrent
    """

    record: Callable[[int, int], int]
    query: Callable[[int], int]
    let_wait: Callable[[int, int, int], int]
    query_stream: Callable[[int], int]
    set_context: Callable[[int], int]
    get_context: Callable[[Any], int]


@lru_cache(maxsize=1)
def quick_calls() -> QuickCalls:
    """Return functions of the driver that the bindings have loaded."""
    calls()
    driver = ctypes.PyDLL("libcuda.so.1")
    found = QuickCalls(
        driver.cuEventRecord, driver.cuEventQuery, driver.cuStreamWaitEvent,
        driver.cuStreamQuery, driver.cuCtxSetCurrent, driver.cuCtxGetCurrent,
    )  # fmt: skip
    word = ctypes.c_void_p
    kinds = (word, word), (word,), (word, word, ctypes.c_uint), (word,), (word,), (word,)
    for function, argtypes in zip(found, kinds, strict=True):
        function.argtypes = argtypes  # type: ignore[attr-defined]
    return found


def address_of_function(function: Any) -> int:
    """Return the address of a function of ctypes."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _call(function: Any, arguments: tuple[Any, ...], index: int, what: str) -> None:
    """Call a function of :class:`Calls` about a GPU, which is made current only if the call says so."""
    status = function(*arguments)
    if status in _WRONG_CONTEXT:
        with entered(index):
            status = function(*arguments)
    if status:
        checked((bindings()[0].CUresult(status),), what)


# Streams and events


class Stream:
    """A stream that does not wait for the null stream.

    :ivar native: the stream as the bindings take it
    """

    def __init__(self, index: int) -> None:
        use(index)
        _, runtime = bindings()
        outcome = runtime.cudaStreamCreateWithFlags(_NON_BLOCKING)
        self._hold(index, checked(outcome, f"a stream of cuda:{index}"))

    def _hold(self, index: int, stream: Any) -> None:
        self.index = index
        self.native = stream
        self._arguments = (ctypes.c_void_p(int(stream)),)
        self._synchronize = calls().synchronize
        self._failed = f"a kernel on cuda:{index} failed"

    @property
    def handle(self) -> int:
        """The stream's CUstream as a number."""
        return int(self.native)

    def synchronize(self) -> None:
        """Wait until all work in the stream is done."""
        if self._synchronize(*self._arguments):  # with the GPU current, or to say why not
            _call(self._synchronize, self._arguments, self.index, self._failed)

    def close(self) -> None:
        """Destroy the stream; work in it runs to its end."""
        stream, self.native = self.native, None
        self._arguments = (ctypes.c_void_p(),)
        if stream is not None:
            _, runtime = bindings()
            with suppress(DeviceError), entered(self.index):
                runtime.cudaStreamDestroy(stream)


class BorrowedStream(Stream):
    """A stream that its owner destroys.

    :param handle: its CUstream as a number
    """

    def __init__(self, index: int, handle: int) -> None:
        self._hold(index, handle)

    def close(self) -> None:
        """Do nothing."""


class TimedEvent:
    """CUDA event that records its time."""

    def __init__(self, index: int) -> None:
        self.index = index
        use(index)
        _, runtime = bindings()
        self._event = checked(runtime.cudaEventCreate(), f"an event of cuda:{index}")

    def record(self, stream: Stream) -> None:
        """Record the event in a stream of its GPU."""
        use(self.index)
        _, runtime = bindings()
        checked(runtime.cudaEventRecord(self._event, stream.handle), "recording an event")

    def is_reached(self) -> bool:
        """Return True if all work before the event is done.

        :raises DeviceError: that work failed
        """
        _, runtime = bindings()
        outcome = runtime.cudaEventQuery(self._event)
        if outcome[0] == runtime.cudaError_t.cudaErrorNotReady:
            return False
        checked(outcome, f"a kernel on cuda:{self.index} failed")
        return True

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        _, runtime = bindings()
        checked(runtime.cudaEventSynchronize(self._event), f"a kernel on cuda:{self.index} failed")

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            bindings()[1].cudaEventDestroy(self._event)


def elapsed_ms(begin: TimedEvent, end: TimedEvent) -> float:
    """Return the time between two events of one GPU."""
    _, runtime = bindings()
    return float(checked(runtime.cudaEventElapsedTime(begin._event, end._event), "timing"))


# Peers


@lru_cache(maxsize=1024)
def can_access_peer(here: int, there: int) -> bool:
    """Return True if kernels of one GPU may read and write the memory of another."""
    _, runtime = bindings()
    if here == there:
        return True
    return bool(checked(runtime.cudaDeviceCanAccessPeer(here, there), "asking for peer access"))


@lru_cache(maxsize=1024)
def peer_attribute(name: str, here: int, there: int) -> int:
    """Return ``"performance_rank"`` or ``"native_atomics"`` of the link between two GPUs."""
    _, runtime = bindings()
    kinds = runtime.cudaDeviceP2PAttr
    kind = {
        "performance_rank": kinds.cudaDevP2PAttrPerformanceRank,
        "native_atomics": kinds.cudaDevP2PAttrNativeAtomicSupported,
    }[name]
    outcome = runtime.cudaDeviceGetP2PAttribute(kind, here, there)
    return int(checked(outcome, "asking for peer access"))


def enable_peer_access(indexes: Iterable[int]) -> None:
    """Let every pair of GPUs that can access each other's memory; repeating it is allowed."""
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
                runtime.cudaGetLastError()  # clears the error, which later calls would return
            else:
                checked(outcome, f"peer access from cuda:{here} to cuda:{there}")


def copy_async(destination: int, source: int, nbytes: int, stream: Stream) -> None:
    """Put a copy into a stream, in any direction."""
    use(stream.index)
    _, runtime = bindings()
    kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
    outcome = runtime.cudaMemcpyAsync(destination, source, nbytes, kind, stream.handle)
    checked(outcome, f"copying {nbytes:,} bytes on cuda:{stream.index}")


def copy_peer_async(
    destination: int, to_index: int, source: int, from_index: int, nbytes: int, stream: Stream
) -> None:
    """Put a copy between two GPUs into a stream; the driver goes through the host without peer access."""
    use(stream.index)
    _, runtime = bindings()
    outcome = runtime.cudaMemcpyPeerAsync(
        destination, to_index, source, from_index, nbytes, stream.handle
    )
    checked(outcome, f"copying {nbytes:,} bytes from cuda:{from_index} to cuda:{to_index}")


# Modules, kernels, launches


class Kernel:
    """A kernel that is loaded on a GPU.

    :ivar faults: the address of its module's :data:`FAULT_NAME`; 0 if there is none
    :ivar fault_count: number of calls of :meth:`take_fault` that returned True
    :ivar last_fault: the words of :data:`FAULT_NAME` at the latest of these calls
    """

    def __init__(self, index: int, function: Any, name: str, faults: int = 0) -> None:
        self.index = index
        self.name = name
        self.function = function
        self.faults = faults
        self.fault_count = 0
        self._most_shared = 0
        self.last_fault: list[int] = []

    def take_fault(self) -> bool:
        """Return True if an operator failed; keep its words and clear the variable.

        Runs that share a kernel compare ``fault_count`` with its value when they began.
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
        """Make users' operators leave their loops until :meth:`take_fault` is called, without waiting."""
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
        """Allow launches with this much dynamic shared memory, or as much as was allowed before."""
        if nbytes <= self._most_shared:
            return
        driver, _ = bindings()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        use(self.index)
        outcome = driver.cuFuncSetAttribute(self.function, attribute, nbytes)
        checked(outcome, f"{nbytes:,} bytes of shared memory for {self.name} on cuda:{self.index}")
        self._most_shared = nbytes

    def occupancy(self, threads: int, shared_bytes: int = 0) -> int:
        """Return the number of blocks that are resident on a multiprocessor at once."""
        driver, _ = bindings()
        use(self.index)
        outcome = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self.function, threads, shared_bytes
        )
        return int(checked(outcome, f"asking for the occupancy of {self.name}"))


class Module:
    """Compiled code on a GPU. Everything is loaded at once, since loading blocks while kernels wait."""

    def __init__(self, index: int, cubin: bytes) -> None:
        self.index = index
        driver, runtime = bindings()
        use(index)
        checked(runtime.cudaFree(0), f"cuda:{index} cannot be used")
        self._module = checked(driver.cuModuleLoadData(cubin), f"loading code on cuda:{index}")
        self._kernels: dict[str, Kernel] = {}
        self._faults = 0
        if FAULT_NAME.encode() in cubin:
            outcome = driver.cuModuleGetGlobal(self._module, FAULT_NAME.encode())
            self._faults = int(checked(outcome, f"looking for {FAULT_NAME}")[0])

    def kernel(self, name: str) -> Kernel:
        """Return a kernel of the module."""
        if name not in self._kernels:
            driver, _ = bindings()
            use(self.index)
            outcome = driver.cuModuleGetFunction(self._module, name.encode())
            function = checked(outcome, f"looking for kernel {name}")
            # Loads the kernel now, should loading be lazy.
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
            checked(driver.cuFuncGetAttribute(attribute, function), f"loading kernel {name}")
            self._kernels[name] = Kernel(self.index, function, name, self._faults)
        return self._kernels[name]


class Launch:
    """A kernel with its arguments, ready to be started.

    Kernels that wait for each other are prepared first: those that run wait while others are started.

    :param arguments: the one struct that the kernel takes by value: its bytes, or an array, whose content
        is read at each start; or a list of ints (pointers, 64 bits) and ctypes numbers
    :param cooperative: its blocks wait for each other: starting fails if they are not all resident at once
    """

    def __init__(
        self,
        kernel: Kernel,
        stream: Stream,
        *,
        blocks: int,
        threads: int,
        arguments: bytes | Array | Sequence[Any],
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> None:
        self.kernel = kernel
        if isinstance(arguments, bytes):
            arguments = np.frombuffer(arguments, np.uint8)
        if isinstance(arguments, np.ndarray):
            held: list[Any] = [
                (ctypes.c_byte * arguments.nbytes).from_address(arguments.ctypes.data)
            ]
            self._struct = arguments
        else:
            held = [
                ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments
            ]
        addresses = (ctypes.c_void_p * max(1, len(held)))(
            *[ctypes.addressof(value) for value in held]
        )
        config = _LaunchConfig(
            (blocks, 1, 1), (threads, 1, 1), shared_bytes, stream.handle,
            ctypes.pointer(_COOPERATIVE), cooperative,
        )  # fmt: skip
        self._held = held
        self._launch = calls().launch
        function = ctypes.c_void_p(int(kernel.function))
        self._arguments = ctypes.byref(config), function, addresses, None
        self._failed = f"starting {kernel.name} on cuda:{kernel.index}"

    def start(self) -> None:
        """Start the kernel."""
        if self._launch(*self._arguments):  # with the GPU as the current one, or to say why not
            _call(self._launch, self._arguments, self.kernel.index, self._failed)


def launch(kernel: Kernel, stream: Stream, **given: Any) -> None:
    """Start a kernel; arguments as of :class:`Launch`."""
    Launch(kernel, stream, **given).start()
