"""The bulk-synchronous engine on GPUs: one persistent kernel a GPU, which meets the others every step."""
