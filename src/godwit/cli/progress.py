"""Progress on stderr if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter

BytesProgress = Callable[[int, int, str], None]
ItemsProgress = Callable[[int], None]
StepsProgress = Callable[[int, int], None]


class Display:
    """Bars and spinners on the terminal.

    :param quiet: show none
    """

    def __init__(self, *, quiet: bool) -> None:
        self.shown = not quiet and sys.stderr.isatty()

    @contextmanager
    def bytes(self, label: str) -> Iterator[BytesProgress | None]:
        """Show a bar; yield a function of (bytes done, total bytes, phase)."""
        with self._task(label, "BarColumn", "DownloadColumn") as update:

            def show(done: int, total: int, phase: str) -> None:
                text = label if phase == "reading" else f"{label}: {phase}"
                update(completed=done, total=total, description=text)

            yield show if self.shown else None

    @contextmanager
    def items(self, label: str) -> Iterator[ItemsProgress | None]:
        """Show a spinner; yield a function of the number of items processed."""
        with self._task(label) as update:
            begin = perf_counter()

            def show(items: int) -> None:
                total = getattr(items, "total", None)
                if items and total:
                    left_s = (perf_counter() - begin) * (total - items) / items
                    text = f"{items:,} of {total:,} searches, about {left_s:,.0f} s left"
                    update(description=f"{label}: {text}")
                elif items:
                    update(description=f"{label}: {items:,} items processed{_gpu_state(items)}")

            yield show if self.shown else None

    @contextmanager
    def steps(self, label: str) -> Iterator[StepsProgress | None]:
        """Show a bar; yield a function of (steps done, total steps)."""
        with self._task(label, "BarColumn", "MofNCompleteColumn") as update:

            def show(done: int, total: int) -> None:
                update(completed=done, total=total)

            yield show if self.shown else None

    @contextmanager
    def waiting(self, label: str) -> Iterator[None]:
        """Show a spinner."""
        with self._task(label):
            yield

    @contextmanager
    def _task(self, label: str, *columns: str) -> Iterator[Callable[..., None]]:
        """Show a spinner and columns, by their names in rich; yield a function that updates them."""
        if not self.shown:
            yield lambda **_: None
            return
        from rich import progress
        from rich.console import Console

        with progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            *(getattr(progress, name)() for name in (*columns, "TimeElapsedColumn")),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as bar:
            yield partial(bar.update, bar.add_task(label, total=None))


def _gpu_state(items: int) -> str:
    """Return the priority bound and the idle share of GPUs, if the number has these attributes."""
    idle = getattr(items, "idle_share", ())
    if not idle:
        return ""
    shares = "/".join(f"{share:.0%}" for share in idle)
    return f", priorities up to {items.threshold:,.4g}, GPUs idle {shares}"  # type: ignore[attr-defined]
