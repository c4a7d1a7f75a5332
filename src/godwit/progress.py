"""Progress of a run: what its poll reports, and a bar of it in terminals and notebooks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from time import perf_counter
from types import TracebackType
from typing import Any

ProgressArgument = Callable[[int], None] | bool | None
"""Argument ``progress``: a function that is called with the progress; True for a bar; None for nothing."""

_FIRST_S = 0.3
"""A run that takes less has no bar."""
_STEP_S = 0.1


class Progress(int):
    """Number of items processed so far; some runs set attributes as well.

    :ivar total: number of items of the whole run; None if unknown
    :ivar rounds: number of iterations so far; None if there are none
    :ivar residual: change that the last of them made; None if unknown
    :ivar threshold: items with priorities up to this value are processed now; None if unknown
    :ivar idle_share: for each GPU, the share of time in which its blocks waited
    """

    total: int | None = None
    rounds: int | None = None
    residual: float | None = None
    threshold: float | None = None
    idle_share: tuple[float, ...] = ()

    @classmethod
    def of(cls, count: int, *, total: int | None = None) -> Progress:
        """Return the progress of a run that processes each item once."""
        progress = cls(count)
        progress.total = total
        return progress

    @classmethod
    def of_iterations(cls, iterations: int, vertices: int, residual: float) -> Progress:
        """Return the progress of iterations over all vertices.

        The numbers are arguments, read once: the run goes on while they are reported.
        """
        progress = cls(vertices * iterations)
        progress.rounds = iterations
        progress.residual = residual
        return progress


class Bar:
    """Bar of a run's progress on standard error, if that is a terminal, or in a notebook.

    With a known total it shows the share and the time that is left; else what is known: items, iterations,
    residual; and that code is compiled, if that takes long. It vanishes when the block is left.

    :param label: what runs
    :param at_once: True: the bar is shown when the block is entered; False: after some tenths of a second
    """

    def __init__(self, label: str, *, at_once: bool = False) -> None:
        self._label = label
        self._at_once = at_once
        self._begin = self._last = perf_counter()
        self._compile_s = 0.0
        self._shown: Any = None
        self._show = _place()

    def __enter__(self) -> Bar:
        """Begin to count the time."""
        self._begin = self._last = perf_counter()
        _bars.append(self)
        if self._at_once:
            self._appear()
        return self

    def _appear(self) -> bool:
        """Show the bar, if it is not there; return True if it is shown now."""
        if self._shown is None and self._show is not None:
            self._shown = self._show(self._label)
        return self._shown is not None

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Say that code is compiled in the block, if that takes long, with what was compiled before."""

        def show() -> None:
            if self._appear():
                self._shown.update(0, None, "compiling (once)")

        timer = threading.Timer(max(0.0, _FIRST_S - self._compile_s), show)
        timer.daemon = True
        begin = perf_counter()
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._compile_s += perf_counter() - begin
            if self._shown is not None:
                self._shown.update(0, None, "")

    def __call__(self, done: int, total: int | None = None, phase: str = "") -> None:
        """Show the progress.

        :param done: items or bytes so far, perhaps a :class:`Progress`
        :param total: of the whole run; None: as the progress says
        :param phase: what is done at the moment
        """
        now = perf_counter()
        if self._show is None or now - self._last < (_STEP_S if self._shown else _FIRST_S):
            return
        self._last = now
        self._appear()
        total = getattr(done, "total", None) if total is None else total
        texts = [] if phase in ("", "reading") else [phase]
        if total and done:
            left_s = (now - self._begin) * max(0, total - done) / done
            texts.append(f"{min(1.0, done / total):.0%}, about {_duration(left_s)} left")
        else:
            texts += _counts(done)
        self._shown.update(done, total, "; ".join(texts))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the bar."""
        _bars.remove(self)
        if self._shown is not None:
            self._shown.close()


_bars: list[Bar] = []
"""Bars of this process, the innermost last."""


def shown_compilation() -> AbstractContextManager[None]:
    """Return a block in which the innermost bar says that code is compiled, if there is a bar."""
    return _bars[-1].compiling() if _bars else nullcontext()


def _counts(done: int) -> list[str]:
    """Return texts of what is known of a run without a total."""
    rounds, residual = getattr(done, "rounds", None), getattr(done, "residual", None)
    texts = [f"{rounds:,} iterations" if rounds is not None else f"{done:,} items processed"]
    if residual is not None:
        texts.append(f"residual {residual:.2g}")
    idle = getattr(done, "idle_share", ())
    if idle:
        shares = "/".join(f"{share:.0%}" for share in idle)
        texts.append(f"priorities up to {done.threshold:,.4g}, GPUs idle {shares}")  # type: ignore[attr-defined]
    return texts


def _duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _place() -> Callable[[str], Any] | None:
    """Return the class that shows a bar here; None if stderr is neither a terminal nor a notebook's."""
    if _in_notebook():
        return _NotebookBar
    return _TerminalBar if sys.stderr is not None and sys.stderr.isatty() else None


def _in_notebook() -> bool:
    """Return True in a notebook's kernel."""
    if "IPython" not in sys.modules:
        return False
    import IPython

    shell = IPython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


class _TerminalBar:
    """A line of a terminal."""

    def __init__(self, label: str) -> None:
        from rich import progress
        from rich.console import Console

        self._label = label
        self._bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(20),
            progress.TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(label, total=None, text="")
        self._bar.start()

    def update(self, done: int, total: int | None, text: str) -> None:
        """Show the progress."""
        self._bar.update(self._task, completed=done, total=total, text=text)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class _NotebookBar:
    """An element of the output of a notebook's cell."""

    def __init__(self, label: str) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._label = label
        self._handle: Any = display(HTML(escape(label)), display_id=True)

    def update(self, done: int, total: int | None, text: str) -> None:
        """Show the progress."""
        share = f' value="{int(done)}" max="{int(total)}"' if total else ""
        self._handle.update(
            self._html(f"{escape(self._label)} <progress{share}></progress> {escape(text)}")
        )

    def close(self) -> None:
        """Remove the element's contents."""
        self._handle.update(self._html(""))
