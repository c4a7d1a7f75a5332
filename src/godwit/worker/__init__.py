"""The asynchronous engine: vertex programs over worklists that never wait for a barrier (Groute)."""
