"""What the launcher of MPI says in the environment, read without importing ``mpi4py``."""

from __future__ import annotations

import os

_COUNTS = (
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MPI_LOCALNRANKS",
)
"""Variables in which launchers (Open MPI; MPICH and Intel MPI; MVAPICH) give the number of processes."""
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")


def launched_rank() -> int:
    """Return the number of this process among those that ``mpiexec`` started; 0 without a launcher."""
    for name in _RANKS:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 0


def launched_processes() -> int:
    """Return the number of processes that ``mpiexec`` started with this one; 1 without a launcher."""
    for name in _COUNTS:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return max(1, int(text))
    return 1
