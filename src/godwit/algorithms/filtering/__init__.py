"""Predicate-based filtering: the elements of an array that satisfy a predicate, in their order.

CPUs alone filter the array in one pass (cpu.py). With GPUs, packets of the array go to whichever device is
free (gpu_packets.py); CPUs beside them claim units of the same array.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from godwit.algorithms.filtering.cpu import filter_on_cpus
from godwit.algorithms.filtering.predicate import Predicate, as_item_dtype, as_predicate
from godwit.arrays import MASKED, host_array, lies_on_gpu, mapped_array
from godwit.dataflow.context import Context
from godwit.dataflow.packets import is_page_locked
from godwit.dtypes import Array, as_count, as_flag, as_positive_number, check_callable
from godwit.errors import InputError, shown
from godwit.progress import Progress, ProgressArgument
from godwit.public import public
from godwit.runtime.constants import with_exact_constants
from godwit.runtime.registry import DevicesArgument, gpu_names, resolve_devices
from godwit.trace import TraceArgument, active, recorded

_LEAST_GPU_BYTES = 64 << 20
"""Size of a host array below which the CPU filters it by default: setting a GPU up takes longer."""


@dataclass(frozen=True)
class FilterOptions:
    """Checked options of :func:`filter`.

    :param ordered: True: kept items stay in their order; False: packets are written as they finish
    :param packet_bytes: bytes of the array that a GPU claims at a time; None: chosen automatically
    :param buffers: packets in flight to a GPU; None: chosen automatically
    :param out: array for the result; None: a new one
    :param progress: called with the number of items processed
    :param timeout_s: time limit in seconds; compilation is not counted
    """

    ordered: bool = True
    packet_bytes: int | None = None
    buffers: int | None = None
    out: Array | None = None
    progress: Callable[[int], None] | None = None
    timeout_s: float | None = None


def filter_array(
    array: Any, predicate: Any, devices: DevicesArgument, options: FilterOptions
) -> Any:
    """Filter an array, a file, or an array on a GPU; see :func:`godwit.filter`."""
    keeps = as_predicate(predicate)
    if lies_on_gpu(array):
        from godwit.algorithms.filtering.cuda import filter_on_gpu
        from godwit.runtime.cuda.gpu_arrays import sendable_gpu_array

        resident = sendable_gpu_array(array)
        here = f"cuda:{resident.data.device_id}"
        if devices is None or [device.name for device in resolve_devices(devices, mixed=True)] == [
            here
        ]:
            _check_shape(resident)
            dtype = as_item_dtype(resident.dtype)
            keeps = with_exact_constants(keeps, dtype)
            if options.out is not None:
                raise InputError(f"out is for arrays on the host; this one is filtered on {here}")
            return filter_on_gpu(resident.astype(dtype, order="C", copy=False), keeps)
    items = (
        np.asarray(mapped_array(array)) if isinstance(array, str | os.PathLike) else _on_host(array)
    )
    _check_shape(items)
    dtype = as_item_dtype(items.dtype)
    keeps = with_exact_constants(keeps, dtype)
    if options.out is not None:
        _check_out(options.out, items.dtype)
        _check_overlap(items, options)
        options = replace(options, out=options.out.view(dtype))
    if devices is None:
        devices = default_devices(items)
    kept = filter_host_array(items, keeps, dtype, devices, options)
    return kept if items.dtype.isnative else kept.byteswap(inplace=True).view(items.dtype)


def default_devices(array: Array) -> DevicesArgument:
    """Return the devices for a host array where none are given.

    Of an ordinary array, threads of the CPU copy each packet for a GPU: the CPU may as well filter some.
    """
    gpus = gpu_names()
    if not gpus or array.nbytes < _LEAST_GPU_BYTES:
        return "cpu"
    return None if is_page_locked(array) else [gpus[0], "cpu"]


def _on_host(array: Any) -> Array:
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(MASKED)
    try:
        items = host_array(array)
    except (TypeError, ValueError) as error:
        raise InputError(_no_array(array)) from error
    if items.ndim == 0:
        raise InputError(_no_array(array))
    return items


def _no_array(given: Any) -> str:
    return f"array must be an array of numbers, or the path of a .npy file, got {shown(given)}"


def _check_shape(array: Any) -> None:
    if array.ndim != 1:
        raise InputError(
            f"an array to be filtered must have one dimension, got shape {tuple(array.shape)}; "
            "pass array.reshape(-1)"
        )


def _check_out(out: Any, dtype: np.dtype[Any]) -> None:
    if isinstance(out, np.ma.MaskedArray):
        raise InputError(f"out cannot be masked: {MASKED}")
    if not isinstance(out, np.ndarray) or out.ndim != 1 or out.dtype != dtype:
        got = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else shown(out)
        raise InputError(f"out must be a NumPy array of {dtype} with one dimension, got {got}")
    if not out.flags.writeable:
        raise InputError("out must be writable, and is read-only")


def _check_overlap(array: Array, options: FilterOptions) -> None:
    """Raise InputError if the result could be written over items that have not been read.

    That cannot happen if both are contiguous, the result begins at or before the array, and the order is
    kept: kept items of a packet are written at or before the packet, after all previous ones are counted.
    """
    out = options.out
    assert out is not None
    if not np.may_share_memory(array, out):
        return
    both = array, out
    is_behind = options.ordered and all(each.flags.c_contiguous for each in both)
    if not is_behind or out.ctypes.data > array.ctypes.data:
        raise InputError(
            "out overlaps the array, so that unread items would be overwritten: pass another array"
            " (with ordered=True, out may be the array itself if it is contiguous)"
        )


def filter_host_array(
    array: Array, predicate: Predicate, dtype: np.dtype[Any], devices: Any, options: FilterOptions
) -> Array:
    """Return the kept items of an array in host memory, or of a mapped file.

    :param dtype: dtype of the array, in native byte order
    :param devices: names of devices; GPUs and CPUs may be mixed
    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises InputError: ``out`` is too small
    :raises RunTimeoutError: out of time
    """
    resolved = resolve_devices(devices, mixed=True)
    if all(device.kind == "cpu" for device in resolved):
        threads = sum(device.threads for device in resolved)
        return filter_on_cpus(
            array,
            predicate,
            dtype,
            options.out,
            threads,
            _counted(options.progress, array.size),
            options.timeout_s,
        )
    from godwit.algorithms.filtering.gpu_packets import filter_on_gpus

    with Context(devices) as context:
        context.trace = context.trace or active()
        return filter_on_gpus(
            context,
            array,
            predicate,
            dtype,
            options.out,
            ordered=options.ordered,
            packet_bytes=options.packet_bytes,
            buffers=options.buffers,
            progress=_counted(options.progress, array.size),
            timeout_s=options.timeout_s,
        )


def _counted(progress: Callable[[int], None] | None, total: int) -> Callable[[int], None] | None:
    """Return a progress function that passes the total number of items on with the number done."""
    if progress is None:
        return None
    report = progress
    return lambda done: report(Progress.of(done, total=total))


@public
def filter(
    array: Any,
    predicate: Callable[[Any], Any],
    devices: DevicesArgument = None,
    *,
    ordered: bool = True,
    out: Array | None = None,
    packet_bytes: int | None = None,
    buffers: int | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
) -> Array:
    """Return the elements of an array that satisfy a predicate.

    >>> import numpy as np, godwit as gw
    >>> gw.filter(np.arange(10), lambda x: x % 3 == 0)
    array([0, 3, 6, 9])

    Packets of the array go to whichever device is free, GPUs and the CPU together, and their kept elements
    come back (Groute, section 3). The array may be larger than the devices' memory, and a file larger than
    the host's. Page-locked memory (``cupyx.empty_pinned``) goes to GPUs at the speed of the bus.

    :param array: one-dimensional, of booleans, integers up to 64 bits, float32 or float64, in any byte
        order, contiguous or not; NumPy's, mapped (``np.memmap``), any other library's; or the path of a
        ``.npy`` file
    :param predicate: a Python function of one element that returns a boolean. It is compiled for the CPU by
        Numba and into the GPU's kernel; it may call other functions and read constants around it,
        and may be called twice for an element
    :param devices: as for :func:`bfs`, but kinds may be mixed: ``["cuda:0", "cpu"]``. None: for a
        CuPy array, its GPU; for a host array of at least 64 MiB, the first GPU if there is one, with the
        CPU if the array is not page-locked; otherwise all cores
    :param ordered: False: with GPUs, packets may be written in the order in which they finish
    :param out: an array to write to, of the same dtype, with room for the result
    :param packet_bytes: bytes of the array that a GPU claims at a time
    :param buffers: packets in flight to a GPU, 3 by default
    :param timeout_s: seconds after which to give up; compiling is not counted
    :param progress: True for a bar; or a function that is called now and then with the number of elements
        processed so far, an int, which also has ``.total``
    :param trace: as for :func:`bfs`
    :returns: a NumPy array of the same dtype, byte order included; for an array on a GPU, filtered there, a
        CuPy array; with ``out``, a part of that
    :raises InputError: a wrong argument, or no room in ``out``
    :raises OperatorError: the predicate is no Python function of one element, cannot be compiled,
        returns no boolean, or has a constant that compiled code would change (``2**70``)
    :raises FileError: the file cannot be read
    :raises DeviceError: a device is not there
    :raises RunTimeoutError: out of time
    """
    if isinstance(progress, bool):
        progress = None  # a bar is a function by now
    check_callable(progress, "progress")
    options = FilterOptions(
        ordered=as_flag(ordered, "ordered"),
        out=out,
        packet_bytes=None
        if packet_bytes is None
        else as_count(packet_bytes, "packet_bytes", 1, 1 << 40),
        buffers=None if buffers is None else as_count(buffers, "buffers", 1, 1 << 10),
        progress=progress,
        timeout_s=None if timeout_s is None else as_positive_number(timeout_s, "timeout_s"),
    )
    with recorded(trace, "filter"):
        kept: Array = filter_array(array, predicate, devices, options)
        return kept
