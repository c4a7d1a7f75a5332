"""Formats of text."""
