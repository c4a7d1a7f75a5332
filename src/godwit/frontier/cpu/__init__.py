"""Step programs on CPUs: compiled by Numba, run by a team of threads."""
