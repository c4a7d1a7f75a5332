"""Graphs and tables of other libraries, and back, behind the methods of ``Graph``."""
