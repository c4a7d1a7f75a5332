"""NVIDIA GPUs: one persistent kernel per GPU holds worker, router and termination."""
