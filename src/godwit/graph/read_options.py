"""What a user said about a graph that is read or made from a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Progress = Callable[[int, int, str], None]
"""Called now and then, from the calling thread, with (bytes done, bytes in all, phase)."""


@dataclass(frozen=True)
class ReadOptions:
    """What a user may say about a file; see :func:`godwit.read`."""

    id_base: int | None = None
    directed: bool | None = None
    weighted: bool | None = None
    columns: tuple[str, ...] | None = None
    relabel: bool | None = None
    weight_dtype: np.dtype[Any] | None = None
    progress: Progress | None = None
    text_ids: bool = True
    """Whether ids may be texts; not where arcs stream."""
