"""Rows of graphs built on GPUs."""
