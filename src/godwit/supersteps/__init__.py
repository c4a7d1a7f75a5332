"""The bulk-synchronous engine on GPUs: one persistent kernel a GPU; all meet after each superstep."""
