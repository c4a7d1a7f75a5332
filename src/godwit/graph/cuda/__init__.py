"""Graphs built on GPUs: arcs into rows."""
