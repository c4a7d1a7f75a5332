"""Operators of step programs (:class:`godwit.StepProgram`)."""

from godwit.frontier.operators import advance, arcs, assign, compute, filter, reduce, repeat

__all__ = ["advance", "arcs", "assign", "compute", "filter", "reduce", "repeat"]
