"""Wrong arguments for every public callable: each call returns, or raises one exception of ours.

A *target* is a callable with arguments that work. A case replaces one of them, by the name that it has in
the signature, by a hostile value: of a wrong type, out of range, or in a form that NumPy would take for
something else.
"""

from __future__ import annotations

import inspect
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

import godwit as gw
from godwit.errors import GodwitError

from .report import Report

LONG = "x" * 100_000
GRAPH = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 3, 3], [1, 5, 2, 1])
UNDIRECTED = gw.Graph.from_edges([0, 1, 2], [1, 2, 3], directed=False)
MATRIX = scipy.sparse.csr_array(np.eye(4))
TABLE = pd.DataFrame({"source": [0, 1], "target": [1, 2], "weight": [1, 2]})

HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "5": lambda: 5,
    "-1": lambda: -1,
    "2**70": lambda: 2**70,
    "-2**63": lambda: -(2**63),
    "0.5": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "1j": lambda: 1j,
    "''": lambda: "",
    "'x'": lambda: "x",
    "'\\0'": lambda: "\0",
    "b'x'": lambda: b"x",
    "long text": lambda: LONG,
    "surrogate": lambda: "\udcff",
    "[]": list,
    "()": tuple,
    "{}": dict,
    "set": lambda: {"x", 1},
    "['x', None]": lambda: ["x", None],
    "[[1], [2, 3]]": lambda: [[1], [2, 3]],
    "{'x': 'y'}": lambda: {"x": "y"},
    "object": object,
    "type": lambda: int,
    "lambda": lambda: lambda *arguments: None,
    "generator": lambda: iter([1, 2]),
    "Ellipsis": lambda: ...,
    "array of no dimension": lambda: np.array(1.5),
    "empty array": lambda: np.empty((0, 3)),
    "array of three dimensions": lambda: np.zeros((2, 2, 2)),
    "array of objects": lambda: np.array([None, "x", 3, []], object),
    "complex array": lambda: np.zeros(4, complex),
    "structured array": lambda: np.zeros(4, "i4,f4"),
    "array of dates": lambda: np.zeros(4, "M8[s]"),
    "array of texts": lambda: np.array(["a", "b", "c", "d"]),
    "array of nan": lambda: np.full(4, np.nan),
    "large uint64": lambda: np.full(4, 2**64 - 1, np.uint64),
    "big-endian array": lambda: np.arange(4, dtype=">i4"),
    "masked array": lambda: np.ma.masked_array([0, 1, 2, 3], [0, 1, 0, 0]),
    "sparse matrix": lambda: MATRIX,
    "data frame": lambda: TABLE,
    "series": lambda: pd.Series([0, 1], index=["x", "x"]),
    "dtype": lambda: np.dtype("f8"),
    "graph": lambda: GRAPH,
    "module": lambda: np,
}


@dataclass(frozen=True)
class Target:
    """A callable and arguments that work.

    :param call: the callable
    :param given: arguments by name, or by position with integers as keys
    """

    call: Callable[..., Any]
    given: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self) -> list[str]:
        """Names of what can be replaced."""
        skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found = inspect.signature(self.call).parameters.values()
        return [one.name for one in found if one.kind not in skipped]

    def try_with(self, parameter: str, value: Any) -> None:
        """Call with one argument replaced, and use up what comes out."""
        given = {**self.given, parameter: value}
        positional = []
        for one in inspect.signature(self.call).parameters.values():
            if one.kind is inspect.Parameter.POSITIONAL_ONLY and one.name in given:
                positional.append(given.pop(one.name))
        result = self.call(*positional, **given)
        if isinstance(result, gw.PlacedGraph | gw.Context):
            result.close()


PROGRAM = gw.VertexProgram(
    name="least", dtype="int64", combine="min", message=lambda value, weight: value + weight
)
LEVEL = gw.StepProgram(
    name="levels",
    fields={"level": ("int32", 9)},
    steps=[gw.frontier.compute("level", lambda vertex: vertex, of="all")],
)


def targets(stack: ExitStack) -> dict[str, Target]:
    """All targets by name.

    :param stack: ends what they need; the current folder is a temporary one
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    stack.enter_context(chdir(folder))
    gw.write(GRAPH, "graph.wel")
    context = stack.enter_context(gw.Context(["cpu:0", "cpu:1"]))
    here, there = context.endpoints
    searched = gw.bfs(UNDIRECTED, 0, devices="cpu:0")
    weighted = gw.sssp(GRAPH, 0, devices="cpu:0")
    components = gw.connected_components(UNDIRECTED, devices="cpu:0")
    communities = gw.louvain(UNDIRECTED, devices="cpu:0")
    ranks = gw.pagerank(UNDIRECTED, devices="cpu:0")
    between = gw.betweenness_centrality(UNDIRECTED, devices="cpu:0", edges=True)
    scores = gw.hits(GRAPH, devices="cpu:0")
    array = np.arange(10)
    on_one = {"graph": GRAPH, "devices": "cpu:0"}
    found = {
        "random": Target(gw.random, {"vertex": 3, "salt": 1}),
        "bfs": Target(gw.bfs, {**on_one, "source": 0}),
        "sssp": Target(gw.sssp, {**on_one, "source": 0}),
        "pagerank": Target(gw.pagerank, on_one),
        "eigenvector_centrality": Target(gw.eigenvector_centrality, on_one),
        "katz_centrality": Target(gw.katz_centrality, on_one),
        "hits": Target(gw.hits, on_one),
        "betweenness_centrality": Target(gw.betweenness_centrality, on_one),
        "distances": Target(gw.distances, {**on_one, "sources": [0, 2], "targets": [1]}),
        "closeness_centrality": Target(gw.closeness_centrality, on_one),
        "harmonic_centrality": Target(gw.harmonic_centrality, {**on_one, "sources": [0]}),
        "eccentricity": Target(gw.eccentricity, on_one),
        "jaccard": Target(gw.jaccard, {**on_one, "pairs": [(0, 1), (2, 3)]}),
        "overlap": Target(gw.overlap, on_one),
        "sorensen": Target(gw.sorensen, {**on_one, "pairs": [(0, 1), (2, 3)]}),
        "adamic_adar": Target(gw.adamic_adar, {**on_one, "pairs": [(0, 1), (2, 3)]}),
        "resource_allocation": Target(
            gw.resource_allocation, {**on_one, "pairs": [(0, 1), (2, 3)]}
        ),
        "verify_similarity": Target(
            gw.verify_similarity, {"graph": GRAPH, "result": gw.jaccard(GRAPH, devices="cpu:0")}
        ),
        "triangles": Target(gw.triangles, on_one),
        "clustering": Target(gw.clustering, on_one),
        "average_clustering": Target(gw.average_clustering, on_one),
        "transitivity": Target(gw.transitivity, on_one),
        "verify_triangles": Target(
            gw.verify_triangles, {"graph": UNDIRECTED, "triangles": np.zeros(4, int)}
        ),
        "verify_clustering": Target(
            gw.verify_clustering, {"graph": UNDIRECTED, "clustering": np.zeros(4)}
        ),
        "connected_components": Target(gw.connected_components, on_one),
        "random_walks": Target(gw.random_walks, {**on_one, "sources": [0, 2], "length": 3}),
        "sample_neighbors": Target(
            gw.sample_neighbors, {**on_one, "seeds": [0, 2], "fanouts": [2, -1]}
        ),
        "minimum_spanning_forest": Target(
            gw.minimum_spanning_forest, {"graph": UNDIRECTED, "devices": "cpu:0"}
        ),
        "core_number": Target(gw.core_number, on_one),
        "maximal_independent_set": Target(gw.maximal_independent_set, on_one),
        "greedy_color": Target(gw.greedy_color, on_one),
        "k_core": Target(gw.k_core, {**on_one, "k": 1}),
        "truss_number": Target(gw.truss_number, on_one),
        "k_truss": Target(gw.k_truss, {**on_one, "k": 3}),
        "k_shell": Target(gw.k_shell, {**on_one, "core": np.ones(4, np.int32)}),
        "connected_components_of_edges": Target(
            gw.connected_components_of_edges, {"edges": array.reshape(5, 2), "devices": "cpu:0"}
        ),
        "strongly_connected_components": Target(gw.strongly_connected_components, on_one),
        "condensation": Target(gw.condensation, on_one),
        "topological_generations": Target(gw.topological_generations, on_one),
        "is_directed_acyclic_graph": Target(gw.is_directed_acyclic_graph, on_one),
        "louvain": Target(gw.louvain, {**on_one, "graph": UNDIRECTED}),
        "leiden": Target(gw.leiden, {**on_one, "graph": UNDIRECTED}),
        "label_propagation": Target(gw.label_propagation, {**on_one, "graph": UNDIRECTED}),
        "modularity": Target(gw.modularity, {"graph": UNDIRECTED, "labels": [0, 0, 1, 1]}),
        "run": Target(gw.run, {**on_one, "program": PROGRAM, "start": {0: 0}}),
        "WorkerOptions": Target(gw.WorkerOptions, {"delta": 2.0, "window": 1}),
        "run of steps": Target(LEVEL.run, on_one),
        "filter": Target(
            gw.filter, {"array": array, "predicate": lambda x: x > 3, "devices": "cpu:0"}
        ),
        "generate": Target(gw.generate, {"spec": "path:4"}),
        "read": Target(gw.read, {"path": "graph.wel"}),
        "write": Target(gw.write, {"graph": GRAPH, "path": "copy.wel"}),
        "place": Target(gw.place, on_one),
        "partition": Target(gw.partition, {"graph": GRAPH, "parts": 2, "method": "contiguous"}),
        "Partition": Target(
            gw.Partition,
            {"owner": np.array([0, 1, 0, 1]), "part_count": 2, "graph": GRAPH, "method": "array"},
        ),
        "diameter_bounds": Target(gw.diameter_bounds, {"graph": UNDIRECTED, "devices": "cpu:0"}),
        "dataset": Target(gw.dataset, {"name": "no such"}),
        "datasets": Target(gw.datasets),
        "all_devices": Target(gw.all_devices),
        "explore": Target(gw.explore, {"graph": GRAPH, "devices": "cpu:0"}),
        "frontier.advance": Target(
            gw.frontier.advance, {"into": "level", "message": lambda level: level, "combine": "min"}
        ),
        "frontier.arcs": Target(gw.frontier.arcs, {"keep": lambda level: level > 0}),
        "frontier.assign": Target(
            gw.frontier.assign, {"number": "now", "value": lambda size: size}
        ),
        "frontier.compute": Target(
            gw.frontier.compute, {"field": "level", "value": lambda level: level}
        ),
        "frontier.reduce": Target(
            gw.frontier.reduce, {"number": "now", "value": lambda level: level, "combine": "min"}
        ),
        "frontier.filter": Target(gw.frontier.filter, {"keep": lambda level: level > 0}),
        "frontier.repeat": Target(
            gw.frontier.repeat,
            {
                "steps": [gw.frontier.assign("now", lambda size: size)],
                "until": lambda size: size == 0,
            },
        ),
        "VertexProgram": Target(
            gw.VertexProgram,
            {
                "name": "p",
                "dtype": "int64",
                "combine": "min",
                "message": lambda value: value,
            },
        ),
        "StepProgram": Target(
            gw.StepProgram,
            {
                "name": "p",
                "fields": {"level": ("int32", 9)},
                "steps": [gw.frontier.compute("level", lambda level: level)],
            },
        ),
        "Context": Target(gw.Context, {"devices": "cpu:0"}),
        "Link": Target(gw.Link, {"source": here, "target": there}),
        "Router": Target(gw.Router, {"inputs": [here], "outputs": [there]}),
        "ItemLink": Target(gw.ItemLink, {"source": here, "target": there}),
        "ItemRouter": Target(gw.ItemRouter, {"context": context}),
        "GpuOptions": Target(gw.GpuOptions),
        "Policy": Target(gw.Policy, {"name": "p", "choose": lambda segment, source, ends: ends}),
        "every": Target(gw.every, {"destinations": [here]}),
        "Trace": Target(gw.Trace),
        "DistributedWorklist": Target(
            gw.DistributedWorklist,
            {
                "router": gw.ItemRouter(context),
                "process": lambda worklist, state, key, value: None,
                "owner": lambda key: 0,
                "fanout": 0,
            },
        ),
        "verify_bfs": Target(
            gw.verify_bfs, {"graph": UNDIRECTED, "sources": 0, "distance": searched.distance}
        ),
        "verify_sssp": Target(
            gw.verify_sssp, {"graph": GRAPH, "sources": 0, "distance": weighted.distance}
        ),
        "verify_pagerank": Target(gw.verify_pagerank, {"graph": UNDIRECTED, "rank": ranks.rank}),
        "verify_eigenvector_centrality": Target(
            gw.verify_eigenvector_centrality,
            {"graph": UNDIRECTED, "centrality": np.full(4, 0.5)},
        ),
        "verify_katz_centrality": Target(
            gw.verify_katz_centrality, {"graph": UNDIRECTED, "centrality": np.full(4, 0.5)}
        ),
        "verify_hits": Target(
            gw.verify_hits,
            {"graph": GRAPH, "hubs": scores.hubs, "authorities": scores.authorities},
        ),
        "verify_strongly_connected_components": Target(
            gw.verify_strongly_connected_components, {"graph": GRAPH, "label": np.arange(4)}
        ),
        "verify_topological_generations": Target(
            gw.verify_topological_generations, {"graph": GRAPH, "generation": [0, 1, 1, 2]}
        ),
        "verify_connected_components": Target(
            gw.verify_connected_components, {"graph": UNDIRECTED, "label": components.label}
        ),
        "verify_random_walks": Target(
            gw.verify_random_walks, {"graph": GRAPH, "walks": np.array([[0, 1, 3, -1]])}
        ),
        "verify_minimum_spanning_forest": Target(
            gw.verify_minimum_spanning_forest, {"graph": UNDIRECTED, "arcs": [0, 2, 4]}
        ),
        "verify_core_number": Target(
            gw.verify_core_number, {"graph": UNDIRECTED, "core": np.ones(4, np.int32)}
        ),
        "verify_truss_number": Target(
            gw.verify_truss_number,
            {"graph": UNDIRECTED, "truss": gw.truss_number(UNDIRECTED).truss},
        ),
        "verify_maximal_independent_set": Target(
            gw.verify_maximal_independent_set,
            {"graph": UNDIRECTED, "member": gw.maximal_independent_set(UNDIRECTED).member},
        ),
        "verify_greedy_color": Target(
            gw.verify_greedy_color,
            {"graph": UNDIRECTED, "color": gw.greedy_color(UNDIRECTED).color},
        ),
        "verify_communities": Target(
            gw.verify_communities, {"graph": UNDIRECTED, "label": communities.label}
        ),
        "verify_betweenness_centrality": Target(
            gw.verify_betweenness_centrality,
            {"graph": UNDIRECTED, "centrality": between.centrality},
        ),
        "verify_filter": Target(
            gw.verify_filter,
            {"array": array, "predicate": lambda x: x > 3, "kept": array[4:]},
        ),
        "Graph": Target(gw.Graph, {"offsets": [0, 1, 2], "targets": [1, 0]}),
        "Graph.from_edges": Target(gw.Graph.from_edges, {"sources": [0], "targets": [1]}),
        "Graph.from_scipy": Target(gw.Graph.from_scipy, {"matrix": MATRIX}),
        "Graph.from_table": Target(gw.Graph.from_table, {"table": TABLE}),
        "Graph.from_edge_index": Target(gw.Graph.from_edge_index, {"edge_index": [[0], [1]]}),
        "Graph.from_networkx": Target(gw.Graph.from_networkx, {"graph": UNDIRECTED.to_networkx()}),
        "Graph.from_igraph": Target(gw.Graph.from_igraph, {"graph": None}),
        "Graph.from_networkit": Target(gw.Graph.from_networkit, {"graph": None}),
    }
    found.update(_generators())
    with_arguments = {
        "with_random_weights": {"low": 1, "high": 9},
        "with_weights": {"weights": [1, 2, 3, 4]},
        "with_ids": {"ids": ["a", "b", "c", "d"]},
        "with_vertex_data": {"columns": {"colour": [1, 2, 3, 4]}},
        "with_edge_data": {"columns": {"colour": [1] * GRAPH.arc_count}},
        "relabel": {"permutation": [3, 2, 1, 0]},
        "replicate": {"count": 2},
        "subgraph": {"vertices": [0, 2]},
        "neighborhood": {"vertices": 0, "hops": 2},
        "neighbors": {"vertex": 0},
        "edge_weight": {"source": 0, "target": 1},
        "of": {"vertices": [0]},
        "position": {"id": "a"},
        "positions": {"ids": ["a", "b"]},
        "path_to": {"target": 3, "vertex": 3},
        "members": {"community": 0},
    }
    owners = {
        "Graph": GRAPH,
        "Graph.ids": GRAPH.with_ids(["a", "b", "c", "d"]).ids,
        "BFS": searched,
        "SSSP": weighted,
        "components": components,
        "communities": communities,
        "PageRank": ranks,
        "betweenness": between,
        "Partition": gw.partition(GRAPH, 2, "contiguous"),
    }
    for owner, value in owners.items():
        for name, method in _methods(value):
            given = {**with_arguments.get(name, {})}
            accepted = inspect.signature(method).parameters
            given = {key: one for key, one in given.items() if key in accepted}
            found.setdefault(f"{owner}.{name}", Target(method, given))
    return found


def _generators() -> Iterator[tuple[str, Target]]:
    for name, function in inspect.getmembers(gw.generators, inspect.isfunction):
        if not name.startswith("_") and function.__module__.startswith("godwit.graph.generators"):
            needed = [
                one.name
                for one in inspect.signature(function).parameters.values()
                if one.default is inspect.Parameter.empty
                and one.kind is not inspect.Parameter.VAR_POSITIONAL
            ]
            yield f"generators.{name}", Target(function, dict.fromkeys(needed, 4))


# Parameters of the library, not of users; it hands in what is known to be right.
INTERNAL = (
    "trusted", "cached", "one_or_several", "in_order", "by_position", "ordered", "extended", "take",
)  # fmt: skip


def _methods(value: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in inspect.getmembers(type(value), inspect.isfunction):
        if name.startswith("_") or name in INTERNAL:
            continue
        if len(inspect.signature(member).parameters) > 1:
            yield name, getattr(value, name)


UNTRIED = {
    "Endpoint": "made by a context",
    "PendingSegment": "made by a link",
    "Segment": "made by a link",
    "PlacedGraph": "made by place",
    "collectives": "functions for GPUs",
    "distributed": "functions that several processes call alike",
    "kernel_sizing": "a function for GPUs",
    "errors": "exceptions",
    "policies": "tried through Router",
    **dict.fromkeys(
        (
            "BetweennessResult",
            "CentralityResult",
            "Condensation",
            "GenerationsResult",
            "ClosenessResult",
            "CommunitiesResult",
            "ComponentsResult",
            "NeighborSample",
            "SpanningForestResult",
            "CoreResult",
            "TrussResult",
            "ColoringResult",
            "IndependentSetResult",
            "DistancesResult",
            "EccentricityResult",
            "SimilarityResult",
            "TrianglesResult",
            "ClusteringResult",
            "HitsResult",
            "PageRankResult",
            "PathResult",
            "RunStatistics",
            "Solution",
            "StepResult",
        ),
        "made by a run",
    ),
}
"""Public names that are no targets, and why."""
_CALLS_BACK = ("policy", "progress")
"""Parameters that a type is right for, as anything that can be called; what it raises is its own."""


def cases(found: Mapping[str, Target]) -> list[tuple[str, str, str]]:
    """Every target, parameter and hostile value, by name."""
    return [
        (name, parameter, value)
        for name, target in found.items()
        for parameter in target.parameters()
        for value in HOSTILE
        if not (parameter in _CALLS_BACK and value == "type")
    ]


def wrong(target: Target, parameter: str, value: str) -> str | None:
    """What is wrong with how a case ends; None if it returns or raises an exception of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.try_with(parameter, HOSTILE[value]())
    except GodwitError as error:
        lines = str(error).splitlines()
        if len(lines) != 1:
            return f"a message of {len(lines)} lines: {str(error)[:80]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def run(seed: int, seconds: float) -> Report:
    """Try cases in random order for some seconds."""
    report = Report("arguments")
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        found = targets(stack)
        order = cases(found)
        random.Random(seed).shuffle(order)
        for name, parameter, value in order:
            if time.monotonic() > deadline:
                break
            report.count(name)
            if message := wrong(found[name], parameter, value):
                report.fail(name, f"{parameter}={value}", message)
    return report
