"""Memory of several GPUs at consecutive addresses, for what does not fit into the memory of one.

CUDA's virtual memory management maps pages of the physical memory of any GPUs one behind the other. Kernels
and copies take such memory for that of the GPU that they run on; what lies elsewhere comes over the links
between the GPUs. A page that is mapped lives until it is unmapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from godwit.runtime.cuda import memory
from godwit.runtime.cuda.driver import checked, entered
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import Buffer


def can_join(indexes: Sequence[int]) -> bool:
    """Return True if the memory of GPUs can be joined: drivers for some environments do not map it."""
    return all(map(_maps_memory, set(indexes)))


@lru_cache
def _maps_memory(index: int) -> bool:
    driver, _ = bindings()
    name = "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"
    with entered(index):
        outcome = driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, name), index)
        return bool(checked(outcome, f"asking cuda:{index} whether it maps memory"))


@lru_cache
def page_bytes(index: int) -> int:
    """Return the size of a GPU's pages: of joint memory a GPU gives whole pages."""
    driver, _ = bindings()
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    with entered(index):
        outcome = driver.cuMemGetAllocationGranularity(_kind_of(index), least)
        return int(checked(outcome, f"asking cuda:{index} for the size of its pages"))


def joint_buffer(shares: Mapping[int, int]) -> Buffer:
    """Return a buffer at consecutive addresses in the memory of several GPUs, all of which access it.

    Its GPU is the first one. The caller holds all of them, and they reach each other's memory.

    :param shares: bytes by GPU, in their order, which are rounded up to whole pages
    :raises GraphTooLargeError: a GPU has no room
    :raises DeviceError: they do not reach each other's memory
    """
    driver, _ = bindings()
    sizes = {
        index: -(-nbytes // page_bytes(index)) * page_bytes(index)
        for index, nbytes in shares.items()
    }
    total, first = sum(sizes.values()), next(iter(sizes))
    with entered(first):
        start = int(checked(driver.cuMemAddressReserve(total, 0, 0, 0), "reserving addresses"))
        mapped: list[tuple[int, int]] = []  # addresses and sizes

        def unmap() -> None:
            for address, nbytes in mapped:  # what Ctrl-C has kept from being mapped fails alone
                driver.cuMemUnmap(address, nbytes)
            driver.cuMemAddressFree(start, total)

        try:
            address = start
            for index, nbytes in sizes.items():
                if nbytes == 0:
                    continue
                handle = _pages(index, nbytes)
                try:
                    mapped.append((address, nbytes))
                    outcome = driver.cuMemMap(address, nbytes, 0, handle, 0)
                    checked(outcome, f"mapping memory of cuda:{index}")
                finally:
                    driver.cuMemRelease(handle)
                address += nbytes
            access = [_access_of(index) for index in sizes]
            outcome = driver.cuMemSetAccess(start, total, access, len(access))
            names = ", ".join(f"cuda:{index}" for index in sizes)
            checked(outcome, f"giving {names} access to each other's memory")
        except BaseException:
            unmap()
            raise
    return memory.mapped_buffer(first, total, start, unmap)


def _pages(index: int, nbytes: int) -> Any:
    """Return physical memory of a GPU."""
    driver, _ = bindings()
    kind, no_memory = _kind_of(index), driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with entered(index):
        return memory.allocated(
            index, nbytes, lambda: driver.cuMemCreate(nbytes, kind, 0), no_memory
        )


def _kind_of(index: int) -> Any:
    """Return the description of a GPU's memory."""
    driver, _ = bindings()
    kind = driver.CUmemAllocationProp()
    kind.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kind.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    kind.location.id = index
    return kind


def _access_of(index: int) -> Any:
    """Return the right of a GPU to read and write."""
    driver, _ = bindings()
    right = driver.CUmemAccessDesc()
    right.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    right.location.id = index
    right.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return right
