"""The environment, read in one place: cores, memory and folders that Godwit may use."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from godwit.errors import InputError

_share_of_cores = 1.0


def share_cores(share: float) -> None:
    """Leave cores to the other processes of this machine that compute with this one.

    :param share: part of the cores that this process may use by default
    """
    global _share_of_cores  # noqa: PLW0603
    _share_of_cores = share


def thread_count() -> int:
    """Return the number of threads that this process may run at once, at least 1.

    ``GODWIT_THREADS`` where set; else the smaller of the CPU affinity mask and the cgroup's quota, or the
    share of them that :func:`share_cores` has set.
    """
    configured = os.environ.get("GODWIT_THREADS")
    if configured is not None:
        if not configured.isdecimal() or int(configured) < 1:
            raise InputError(f"GODWIT_THREADS must be a positive integer, got {configured!r}")
        return int(configured)
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _cgroup_cpu_quota()
    if quota is not None:
        cores = min(cores, int(quota))
    return max(1, int(cores * _share_of_cores))


@lru_cache(maxsize=1)
def _cgroup_cpu_quota() -> float | None:
    """Return the CPUs that the cgroup allows (v2, then v1), or None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        folder = Path("/sys/fs/cgroup/cpu")
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        period_us = int((folder / "cpu.cfs_period_us").read_text())
        return None if quota_us < 0 else quota_us / period_us
    except (OSError, ValueError):
        return None


def missing_memory_bytes(needed_bytes: int) -> int | None:
    """Return the available memory if less than needed; None if there is enough.

    Less than 16 MiB are not checked: asking the system takes a noticeable part of a query of a small graph.
    """
    if needed_bytes < _ALWAYS_THERE_BYTES and "GODWIT_MEMORY_BYTES" not in os.environ:
        return None
    available = available_memory_bytes()
    return available if needed_bytes > available else None


_ALWAYS_THERE_BYTES = 1 << 24


def readable_bytes(count: float) -> str:
    """Return a size as people read it, such as 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def available_memory_bytes() -> int:
    """Return the bytes of memory that may still be allocated.

    ``GODWIT_MEMORY_BYTES`` where set; else what the system reports as available, capped by the
    cgroup's limit. Where neither can be read (not Linux), half of the physical memory.
    """
    configured = os.environ.get("GODWIT_MEMORY_BYTES")
    if configured is not None:
        if not configured.isdecimal():
            raise InputError(f"GODWIT_MEMORY_BYTES must be an integer, got {configured!r}")
        return int(configured)
    available = _system_available_bytes()
    allowed = _cgroup_available_bytes(Path("/sys/fs/cgroup"))
    return available if allowed is None else min(available, allowed)


def _cgroup_available_bytes(folder: Path) -> int | None:
    """Return the bytes that a cgroup (v2) leaves of its limit; None without one.

    Its use includes the page cache; pages of files that were not in use lately are given back on
    demand, so they count as available.
    """
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        if limit == "max":
            return None
        left = int(limit) - used
    except (OSError, ValueError):
        return None
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                left += int(line.split()[1])
    return max(0, min(left, int(limit)))


def _system_available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return sys.maxsize


def preferred_devices() -> str | None:
    """Return the value of ``GODWIT_DEVICES``, which says where queries run that name no devices.

    ``"cpu"``: on no GPU; ``"cuda"``: on GPUs, also where cores would be sooner; None: it is not set.
    """
    configured = os.environ.get("GODWIT_DEVICES")
    if configured not in (None, "", "cpu", "cuda"):
        raise InputError(f"GODWIT_DEVICES must be 'cpu' or 'cuda', got {configured!r}")
    return configured or None


def cache_folder() -> Path | None:
    """Return the folder for compiled code and data sets: ``GODWIT_CACHE``, else the user's cache folder.

    Not created here. None where the user has no home folder: then nothing is kept.
    """
    configured = os.environ.get("GODWIT_CACHE")
    if configured:
        return Path(configured)
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    base = os.environ.get(variable) if variable else None
    if base:
        return Path(base) / "godwit"
    below = {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    try:
        return Path.home() / below / "godwit"
    except RuntimeError:
        return None


def dataset_mirror() -> str | None:
    """Return where data sets come from instead of their homes: ``GODWIT_DATASETS``, a URL or a folder."""
    return os.environ.get("GODWIT_DATASETS") or None


_PROCESS_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
"""Variables in which launchers (Open MPI; MPICH and Intel MPI; MVAPICH) give the number of processes."""
_PROCESS_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")


def launched_rank() -> int:
    """Return the number of this process among those that ``mpiexec`` started; 0 without a launcher."""
    for name in _PROCESS_RANKS:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 0


def is_launched() -> bool:
    """Return True if a launcher started this process, perhaps alone."""
    return any(name in os.environ for name in _PROCESS_COUNTS)


def launched_processes() -> int:
    """Return the number of processes that ``mpiexec`` started with this one; 1 without a launcher."""
    for name in _PROCESS_COUNTS:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return max(1, int(text))
    return 1
