"""Graphs of other libraries, and back: a module each, behind the methods of ``Graph``."""
