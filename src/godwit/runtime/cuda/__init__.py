"""The CUDA driver, compilation for GPUs, memory, and copies to and from the host."""
