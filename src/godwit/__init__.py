"""Godwit: irregular graph algorithms over all devices of one machine, without stopping at barriers.

>>> import godwit as gw
>>> graph = gw.generators.road(100, 100, seed=1)
>>> gw.bfs(graph, 0).distance.shape
(10000,)

Names are imported when first used, so that ``import godwit`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from godwit import errors as errors
    from godwit.algorithms.betweenness import betweenness_centrality as betweenness_centrality
    from godwit.algorithms.betweenness.verify import (
        verify_betweenness_centrality as verify_betweenness_centrality,
    )
    from godwit.algorithms.bfs import bfs as bfs
    from godwit.algorithms.components import connected_components as connected_components
    from godwit.algorithms.components.verify import (
        verify_connected_components as verify_connected_components,
    )
    from godwit.algorithms.diameter import diameter_bounds as diameter_bounds
    from godwit.algorithms.filtering import filter as filter
    from godwit.algorithms.filtering.verify import verify_filter as verify_filter
    from godwit.algorithms.pagerank import pagerank as pagerank
    from godwit.algorithms.pagerank.verify import verify_pagerank as verify_pagerank
    from godwit.algorithms.paths.verify import verify_bfs as verify_bfs
    from godwit.algorithms.paths.verify import verify_sssp as verify_sssp
    from godwit.algorithms.sssp import sssp as sssp
    from godwit.dataflow import collectives as collectives
    from godwit.dataflow import policies as policies
    from godwit.dataflow.context import Context as Context
    from godwit.dataflow.endpoint import Endpoint as Endpoint
    from godwit.dataflow.item_router import ItemLink as ItemLink
    from godwit.dataflow.item_router import ItemRouter as ItemRouter
    from godwit.dataflow.kernel_sizing import kernel_sizing as kernel_sizing
    from godwit.dataflow.link import Link as Link
    from godwit.dataflow.policies import Policy as Policy
    from godwit.dataflow.policies import every as every
    from godwit.dataflow.router import Router as Router
    from godwit.dataflow.segment import PendingSegment as PendingSegment
    from godwit.dataflow.segment import Segment as Segment
    from godwit.frontier.explorer import explore as explore
    from godwit.frontier.operators import advance as advance
    from godwit.frontier.operators import arcs as arcs
    from godwit.frontier.operators import assign as assign
    from godwit.frontier.operators import compute as compute
    from godwit.frontier.operators import reduce as reduce
    from godwit.frontier.operators import repeat as repeat
    from godwit.frontier.program import StepProgram as StepProgram
    from godwit.graph import generators as generators
    from godwit.graph.csr import Graph as Graph
    from godwit.graph.generators.generate import generate as generate
    from godwit.graph.partition import Partition as Partition
    from godwit.graph.partition import partition as partition
    from godwit.io.datasets import dataset as dataset
    from godwit.io.datasets import datasets as datasets
    from godwit.io.graph_files import read as read
    from godwit.io.graph_files import write as write
    from godwit.placement import PlacedGraph as PlacedGraph
    from godwit.runtime.gpu_options import GpuOptions as GpuOptions
    from godwit.runtime.registry import all_devices as all_devices
    from godwit.trace import Trace as Trace
    from godwit.worker.place import place as place
    from godwit.worker.program import VertexProgram as VertexProgram
    from godwit.worker.run import run as run
    from godwit.worker.worklist import DistributedWorklist as DistributedWorklist

__version__ = "0.1.0"

_MODULE_OF = {
    "Context": "dataflow.context",
    "DistributedWorklist": "worker.worklist",
    "GpuOptions": "runtime.gpu_options",
    "Endpoint": "dataflow.endpoint",
    "Graph": "graph.csr",
    "ItemLink": "dataflow.item_router",
    "ItemRouter": "dataflow.item_router",
    "Link": "dataflow.link",
    "Partition": "graph.partition",
    "PendingSegment": "dataflow.segment",
    "PlacedGraph": "placement",
    "Policy": "dataflow.policies",
    "Router": "dataflow.router",
    "Segment": "dataflow.segment",
    "StepProgram": "frontier.program",
    "Trace": "trace",
    "VertexProgram": "worker.program",
    "advance": "frontier.operators",
    "all_devices": "runtime.registry",
    "arcs": "frontier.operators",
    "assign": "frontier.operators",
    "betweenness_centrality": "algorithms.betweenness",
    "bfs": "algorithms.bfs",
    "compute": "frontier.operators",
    "collectives": "dataflow.collectives",
    "connected_components": "algorithms.components",
    "dataset": "io.datasets",
    "datasets": "io.datasets",
    "diameter_bounds": "algorithms.diameter",
    "errors": "errors",
    "every": "dataflow.policies",
    "explore": "frontier.explorer",
    "filter": "algorithms.filtering",
    "generate": "graph.generators.generate",
    "generators": "graph.generators",
    "kernel_sizing": "dataflow.kernel_sizing",
    "pagerank": "algorithms.pagerank",
    "partition": "graph.partition",
    "place": "worker.place",
    "policies": "dataflow.policies",
    "read": "io.graph_files",
    "reduce": "frontier.operators",
    "repeat": "frontier.operators",
    "run": "worker.run",
    "sssp": "algorithms.sssp",
    "verify_betweenness_centrality": "algorithms.betweenness.verify",
    "verify_bfs": "algorithms.paths.verify",
    "verify_connected_components": "algorithms.components.verify",
    "verify_filter": "algorithms.filtering.verify",
    "verify_pagerank": "algorithms.pagerank.verify",
    "verify_sssp": "algorithms.paths.verify",
    "write": "io.graph_files",
}

_MODULES = ("collectives", "errors", "generators", "policies")

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module_name = _MODULE_OF.get(name)
    if module_name is None:
        raise AttributeError(f"module 'godwit' has no attribute {name!r}")
    module = import_module(f"godwit.{module_name}")
    if name == "Graph":
        module.build_on_gpu = _build_on_gpu  # type: ignore[attr-defined]
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def _build_on_gpu(*arcs: Any) -> Any:
    """Rows of arcs that lie on a GPU; the layer of graphs imports no GPU code, so it is handed this."""
    from godwit.graph.cuda.arcs import rows_of_arcs

    return rows_of_arcs(*arcs)


def __dir__() -> list[str]:
    return sorted(__all__)
