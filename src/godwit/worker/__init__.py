"""The asynchronous engine: vertex programs and distributed worklists, on CPUs and GPUs (Groute)."""
