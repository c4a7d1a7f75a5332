"""Progress on stderr if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from godwit.progress import Bar


class Display:
    """Bars and spinners on the terminal.

    :param quiet: show none
    """

    def __init__(self, *, quiet: bool) -> None:
        self.shown = not quiet and sys.stderr.isatty()

    @contextmanager
    def bar(self, label: str) -> Iterator[Bar | None]:
        """Show a bar of the progress with which it is called; yield None if nothing is shown."""
        if not self.shown:
            yield None
            return
        with Bar(label, at_once=True) as bar:
            yield bar

    @contextmanager
    def waiting(self, label: str) -> Iterator[None]:
        """Show a bar without numbers."""
        with self.bar(label):
            yield
