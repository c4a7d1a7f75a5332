"""Segments in the memory of GPUs, and copies between them."""
