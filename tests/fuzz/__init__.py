"""The fuzz harness: ``python -m tests.fuzz --seconds 120 --seed 7`` (see ``--help``).

A part is a module with ``run(seed, seconds)``, which tries cases that are derived from the seed until the
time is over, and returns a :class:`~tests.fuzz.report.Report`.
"""
