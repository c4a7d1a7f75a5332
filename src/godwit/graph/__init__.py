"""Graphs: compressed sparse rows, and what builds, changes, generates and partitions them."""
