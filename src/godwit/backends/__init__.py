"""Devices and how to run on them. The CPU is always there; other kinds are added beside it."""
