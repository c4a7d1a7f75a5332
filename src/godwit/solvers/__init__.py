"""Vertex programs, and what runs them on the devices."""
