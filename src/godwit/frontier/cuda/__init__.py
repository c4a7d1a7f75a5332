"""Step programs on GPUs: compiled into a kernel of the bulk-synchronous engine."""
