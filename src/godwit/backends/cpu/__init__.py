"""The CPU backend: compiled workers, their queues and mailboxes."""
