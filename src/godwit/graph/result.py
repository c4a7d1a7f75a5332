"""Base of the results of queries: tables of them, in Arrow, pandas and notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from godwit.dtypes import Array, as_count
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column, to_frame, vertex_table
from godwit.html_tables import table_of_columns
from godwit.other_names import NamesItsAttributes
from godwit.plots import plot_counts
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN_ROWS = 5
"""Rows of a result in a notebook."""


class Result(NamesItsAttributes, ABC):
    """Result of a query, as a table.

    :ivar statistics: counts and times of the run
    """

    statistics: RunStatistics
    _nullable: ClassVar[bool] = False
    """True if integers of the table may be missing."""

    @abstractmethod
    def to_arrow(self) -> Any:
        """Return the result as a ``pyarrow.Table``; vertices have their ids."""

    def to_frame(self) -> Any:
        """Return the table of :meth:`to_arrow` as a ``pandas.DataFrame``.

        Where integers may be missing, they have pandas' nullable dtypes.

        :raises InputError: pandas is not installed
        """
        return to_frame(self.to_arrow(), nullable=self._nullable)

    @abstractmethod
    def _first_rows(self, count: int) -> dict[str, list[Any]]:
        """Return some rows to look at, by column; ``None`` where there is no value.

        A notebook calls it: it computes nothing that takes long.
        """

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the values with matplotlib.

        :param ax: axes to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """

    def _repr_html_(self) -> str:
        return table_of_columns(repr(self), self._first_rows(_SHOWN_ROWS + 1), _SHOWN_ROWS)


class VertexResult(Result):
    """Result that has a value, or several, for each vertex."""

    @property
    @abstractmethod
    def ids(self) -> VertexIds:
        """Ids of the vertices that have values, in the order of the values."""

    @property
    @abstractmethod
    def columns(self) -> list[Column]:
        """The columns of the table of vertices, beside their ids."""

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per vertex: ``vertex`` (its id), then the values.

        A vertex that has no value has null, and where values are vertices, the table has their ids.
        """
        return vertex_table(self.columns, self.ids)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices have each value; the first, where they have several.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        column = self._shown_columns()[0]
        values = column.values if column.present is None else column.values[column.present]
        return plot_counts(values, column.name, ax)

    def _shown_columns(self) -> list[Column]:
        """Return the columns that are shown in notebooks."""
        return self.columns

    def _shown_vertices(self, count: int) -> Array:
        """Return the rows that are shown in notebooks."""
        return np.arange(min(count, len(self.ids)))

    def _first_rows(self, count: int) -> dict[str, list[Any]]:
        rows = self._shown_vertices(count)
        table = {"vertex": self.ids.of(rows)}
        for column in self._shown_columns():
            is_there = np.full(len(rows), True) if column.present is None else column.present[rows]
            given = column.values[rows]
            values = np.where(is_there, given, given.dtype.type(0))
            shown = self.ids.of(values) if column.ids else values.tolist()
            table[column.name] = [
                value if there else None for value, there in zip(shown, is_there, strict=True)
            ]
        return table


def highest_values(values: Array, count: Any, ids: VertexIds) -> list[tuple[Any, Any]]:
    """Return ids and values of the vertices of highest value, highest first; ties by position.

    :raises InputError: ``count`` is no integer, or negative
    """
    descending = (
        -values if values.dtype.kind == "f" else ~values
    )  # -x of the least integer is itself
    order = np.argsort(descending, kind="stable")[: as_count(count, "count")]
    return list(zip(ids.of(order), values[order].tolist(), strict=True))
