"""Progress on stderr, where a person looks at it: nothing where stderr is a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

BytesProgress = Callable[[int, int, str], None]
ItemsProgress = Callable[[int], None]
StepsProgress = Callable[[int, int], None]


class Display:
    """Shows what goes on, unless it shall be quiet.

    :param quiet: show nothing, terminal or not
    """

    def __init__(self, *, quiet: bool) -> None:
        self.shown = not quiet and sys.stderr.isatty()

    @contextmanager
    def bytes(self, label: str) -> Iterator[BytesProgress | None]:
        """A bar; yields what to call with (bytes done, bytes in all, phase)."""
        if not self.shown:
            yield None
            return
        from rich.progress import BarColumn, DownloadColumn, TimeElapsedColumn

        with _bar(BarColumn(), DownloadColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task(label, total=None)

            def show(done: int, total: int, phase: str) -> None:
                words = label if phase == "reading" else f"{label}: {phase}"
                bar.update(task, completed=done, total=total, description=words)

            yield show

    @contextmanager
    def items(self, label: str) -> Iterator[ItemsProgress | None]:
        """A spinner; yields what to call with the number of items processed."""
        if not self.shown:
            yield None
            return
        from rich.progress import TimeElapsedColumn

        with _bar(TimeElapsedColumn()) as bar:
            task = bar.add_task(label, total=None)

            def show(items: int) -> None:
                if items:
                    bar.update(
                        task, description=f"{label}: {items:,} items processed{_more(items)}"
                    )

            yield show

    @contextmanager
    def steps(self, label: str) -> Iterator[StepsProgress | None]:
        """A bar; yields what to call with (steps done, steps in all)."""
        if not self.shown:
            yield None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

        with _bar(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def waiting(self, label: str) -> Iterator[None]:
        """A spinner."""
        with self.items(label):
            yield


def _more(items: int) -> str:
    """What GPUs tell beside the number."""
    idle = getattr(items, "idle_share", ())
    if not idle:
        return ""
    shares = "/".join(f"{share:.0%}" for share in idle)
    return f", priorities up to {items.threshold:,.4g}, GPUs idle {shares}"  # type: ignore[attr-defined]


def _bar(*columns: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
