"""Compilation for CPUs, atomics, and teams of threads."""
