"""Graphs: compressed sparse rows, what builds, changes, generates, reads and partitions them."""
