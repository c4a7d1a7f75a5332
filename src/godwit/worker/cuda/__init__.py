"""The asynchronous engine on GPUs: one persistent kernel a GPU, and mailboxes between GPUs."""
