"""The asynchronous engine on GPUs: one persistent kernel a GPU."""
