"""Generated graphs, made in place: each process draws a part of the edges, and sends them to their owners.

Generators whose edges do not depend on each other are R-MAT, uniform, Watts-Strogatz and Barabási-Albert.
Other graphs are made as a whole in every process, which keeps its part.
"""

from __future__ import annotations

import numpy as np

from godwit.distributed.exchange import arcs_to_owners
from godwit.distributed.graph import DistributedGraph, bounds_of_ends
from godwit.distributed.halo import halo_of_arcs
from godwit.distributed.place import own_ids, place_graph
from godwit.distributed.processes import Processes
from godwit.dtypes import id_dtype_for
from godwit.graph.generators.common import Drawing, collected_drawings
from godwit.graph.generators.spec import parse_spec
from godwit.graph.hashing import random_weights
from godwit.graph.rows import Rows, require_memory


def place_generated(processes: Processes, spec: str) -> DistributedGraph:
    """Place the graph that a text describes, such as ``rmat:20``; all processes call it."""
    recipe = parse_spec(spec)
    if recipe.copies != 1:
        return place_graph(processes, recipe())
    with collected_drawings() as drawings:
        made = recipe()
    if not drawings:
        return place_graph(processes, made)
    return _draw(processes, drawings[0])


def _draw(processes: Processes, drawing: Drawing) -> DistributedGraph:
    count = processes.count
    first, end = (drawing.edges * rank // count for rank in (processes.rank, processes.rank + 1))
    arcs = (end - first) * (2 if drawing.both_directions else 1)
    dtype = id_dtype_for(drawing.vertices)
    require_memory(6 * arcs * dtype.itemsize, f"a part of {drawing.what}")
    endpoints = np.empty((2, end - first), dtype)
    drawing.draw(endpoints, first)
    sources, targets = endpoints
    if drawing.simple:
        keep = sources != targets
        sources, targets = sources[keep], targets[keep]
    ends = [sources, targets] if drawing.both_directions else [sources]
    bounds = bounds_of_ends(processes, ends, drawing.vertices)
    columns = [sources, targets]
    del endpoints, ends, sources, targets
    sources, targets = arcs_to_owners(
        processes, bounds, columns, both_directions=drawing.both_directions
    )
    rows = halo_of_arcs(processes, bounds, sources, targets, None, simple=drawing.simple)
    graph = DistributedGraph(
        processes, bounds, rows, own_ids(processes, bounds),
        directed=not drawing.both_directions, is_range=True,
    )  # fmt: skip
    if drawing.weights is not None:
        whole = Rows(rows.offsets, graph.targets_in_graph(), None)
        weights = random_weights(whole, *drawing.weights, drawing.seed, graph.vertices.start)
        graph.set_weights(weights)
    return graph
