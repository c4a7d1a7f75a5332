"""Measurement of copies and links: ``godwit devices --measure``."""
