"""The asynchronous engine on CPUs: workers that are threads, and mailboxes in shared memory."""
