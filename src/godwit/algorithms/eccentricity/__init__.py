"""Eccentricity: the largest distance from a vertex, as NetworkX defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from godwit.algorithms.distances import run_sums
from godwit.algorithms.distances.scores import SomeScores
from godwit.dtypes import Array
from godwit.graph.ids import Sources
from godwit.plots import plot_counts
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class EccentricityResult(SomeScores):
    """Eccentricity of all vertices, or of those that were asked for."""

    score_name = "eccentricity"

    @property
    def eccentricity(self) -> Array:
        """Eccentricity of every vertex, or of every one of :attr:`vertices`: float64 (k).

        Infinity if a vertex does not reach all others.
        """
        return self._placed

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices have each eccentricity that is finite.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_counts(self._scores, self.score_name, ax)


@public
def eccentricity(
    graph: GraphArgument,
    vertices: Sources | None = None,
    *,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> EccentricityResult:
    """Compute the eccentricity of vertices: the largest distance from a vertex to any other.

    >>> import godwit as gw
    >>> gw.eccentricity(gw.generators.path(4)).eccentricity.tolist()
    [3.0, 2.0, 2.0, 3.0]

    It is infinite for a vertex that does not reach all others (NetworkX raises an exception then): the
    diameter of a graph is the largest eccentricity, its radius the smallest. The eccentricity is exact up
    to 2^53. How it is computed, parameters and errors are as for :func:`closeness_centrality`.

    :returns: ``.eccentricity`` (of each of ``.vertices``, ascending by position), ``.highest(count)``,
        ``.to_dict()``, ``.statistics``
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    found = run_sums(
        "eccentricity", graph, vertices, None, weighted, outward=True, devices=devices, trace=trace,
        options=options,
    )  # fmt: skip
    reaches_all = found.sums.count == found.graph.vertex_count
    values: Array = np.where(reaches_all, found.sums.largest, np.inf)
    return EccentricityResult(
        found.graph, found.vertices, values, found.statistics, options.location
    )
