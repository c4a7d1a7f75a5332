"""The fuzz harness: ``python -m tests.fuzz --seconds 120 --seed 7`` (see ``--help``).

A part is a module. One whose cases are numbered has ``case(seed, number)``, which tries one case, derived
from these two numbers alone, and returns its kind and what is wrong, or None; :mod:`tests.fuzz.watch` calls
it in a process that may crash or hang. Others have ``run(seed, seconds)``, which returns a
:class:`~tests.fuzz.report.Report`.
"""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:  # for graphs.py, references.py and mutations.py
    sys.path.insert(0, _TESTS)
