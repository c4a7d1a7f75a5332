"""What gpu_steps.py measures: graphs, and the queries of each of its sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpu_paths import device_list

AUTO, ASYNCHRONOUS, SUPERSTEPS = EXECUTIONS = ("auto", "asynchronous", "bulk-synchronous")
PATH_VERTICES = 4096
MANY_SOURCES = 64

GRAPHS = {
    "path": f"path:{PATH_VERTICES}",
    "rmat22": "rmat:22,edge_factor=16,seed=1",
    "rmat24": "rmat:24,edge_factor=16,seed=1",
    "road4900": "road:4900,keep=0.6,seed=1",
    "rmat16": "rmat:16,edge_factor=16,seed=1",
    "road1000": "road:1000,keep=0.6,seed=1",
    "rmat20": "rmat:20,edge_factor=16,seed=1",
    "NY": "file:USA-road-d.NY.gr.xz",
    "Slashdot": "file:soc-Slashdot0902.mtx.xz",
    "rmat23": "rmat:23,edge_factor=16,seed=1",
    "rmat22_32": "rmat:22,edge_factor=32,seed=1",
    "rmat22_64": "rmat:22,edge_factor=64,seed=1",
    "rmat26": "rmat:26,edge_factor=16,seed=1",
    "rmat27_20": "rmat:27,edge_factor=20,seed=1",
}
"""In the order in which they are measured; those of ``file:`` are real graphs, symmetrized."""

TINY_GRAPHS = {
    "path": "path:200",
    "rmat22": "rmat:9,edge_factor=16,seed=1",
    "rmat24": "rmat:11,edge_factor=16,seed=1",
    "road4900": "road:60,keep=0.6,seed=1",
    "rmat16": "rmat:8,edge_factor=16,seed=1",
    "road1000": "road:40,keep=0.6,seed=1",
    "rmat20": "rmat:8,edge_factor=16,seed=2",
    "NY": "road:50x40,keep=0.7,seed=2",
    "Slashdot": "rmat:8,edge_factor=8,seed=3",
    "rmat23": "rmat:10,edge_factor=16,seed=1",
    "rmat22_32": "rmat:9,edge_factor=32,seed=1",
    "rmat22_64": "rmat:9,edge_factor=64,seed=1",
    "rmat26": "rmat:12,edge_factor=16,seed=1",
    "rmat27_20": "rmat:12,edge_factor=20,seed=1",
}

PEERS_GRAPHS = ("rmat22", "rmat24", "road4900", "road1000", "rmat20", "NY", "Slashdot")
WEAK = {
    "weak in vertices": ("rmat22", "rmat23", "rmat24"),
    "weak in edges": ("rmat22", "rmat22_32", "rmat22_64"),
}
"""On 1, 2 and 4 GPUs."""


@dataclass(frozen=True)
class Setting:
    """A query in a certain way. Those that are equal are measured once.

    :param devices: as gpu_paths.device_list reads it, ``"2"`` or ``"0+0"``; or ``"cpu"``
    :param execution: of BFS
    :param dtype: of ranks
    :param sources: of betweenness
    :param ids: dtype of the graph's ids
    :param partition: ``"alternating"``: neighbours on a path belong to different devices
    """

    graph: str
    algorithm: str
    devices: str
    execution: str = SUPERSTEPS
    dtype: str = "float32"
    sources: int = 1
    ids: str = "int32"
    partition: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Settings of the same place share a placed graph."""
        return self.graph, self.ids, self.devices, self.partition


Plan = Iterable[tuple[str, Setting]]
"""Settings, each with the name by which its section's table calls it."""


def device_names(devices: str) -> list[str]:
    """The devices that a text such as ``"2"``, ``"0+0"`` or ``"cpu"`` stands for."""
    return ["cpu"] if devices == "cpu" else device_list(devices)


def plan_bfs(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24", "rmat26", "road4900"):
        for text in devices:
            yield "", Setting(graph, "bfs", text)


def plan_auto(devices: Sequence[str]) -> Plan:
    for graph in PEERS_GRAPHS:
        for text in devices:
            for execution in EXECUTIONS:
                yield execution, Setting(graph, "bfs", text, execution)


def plan_overhead(devices: Sequence[str]) -> Plan:
    for text in devices:
        yield "nothing sent", Setting("path", "bfs", text)
    for text in devices:
        if len(device_names(text)) > 1:
            yield "a vertex sent", Setting("path", "bfs", text, partition="alternating")


def plan_pagerank(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24", "road4900"):
        for text in devices:
            for dtype in ("float32", "float64"):
                yield dtype, Setting(graph, "pagerank", text, dtype=dtype)


def plan_betweenness(devices: Sequence[str]) -> Plan:
    wanted = {"rmat22": 1, "rmat24": 1, "road1000": 1, "rmat16": MANY_SOURCES}
    for graph, sources in wanted.items():
        for text in devices:
            yield "", Setting(graph, "betweenness", text, sources=sources)


def plan_scaling(devices: Sequence[str]) -> Plan:
    for algorithm in ("bfs", "pagerank"):
        for text in devices:
            yield "strong", Setting("rmat24", algorithm, text)
        for name, graphs in WEAK.items():
            for count, graph in zip((1, 2, 4), graphs, strict=True):
                for text in devices:
                    if len(device_names(text)) == count:
                        yield name, Setting(graph, algorithm, text)


def plan_ids(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24"):
        for text in devices:
            for ids in ("int32", "int64"):
                yield ids, Setting(graph, "bfs", text, ids=ids)
                yield ids, Setting(graph, "pagerank", text, ids=ids)
                yield ids, Setting(graph, "betweenness", text, ids=ids)


def plan_wide(devices: Sequence[str]) -> Plan:
    for algorithm in ("bfs", "pagerank", "betweenness"):
        for text in devices:
            yield "", Setting("rmat27_20", algorithm, text)


PLANS: dict[str, Callable[[Sequence[str]], Plan]] = {
    "overhead": plan_overhead,
    "bfs": plan_bfs,
    "auto": plan_auto,
    "pagerank": plan_pagerank,
    "betweenness": plan_betweenness,
    "scaling": plan_scaling,
    "ids": plan_ids,
    "wide": plan_wide,
}
