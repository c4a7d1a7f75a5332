"""Formats of bytes."""
