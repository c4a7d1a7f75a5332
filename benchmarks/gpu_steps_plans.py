"""What gpu_steps.py measures: graphs, and the queries of each of its sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_paths import device_list

AUTO, ASYNCHRONOUS, SUPERSTEPS = EXECUTIONS = ("auto", "asynchronous", "bulk-synchronous")
PATH_VERTICES = 4096
MANY_SOURCES, MORE_SOURCES = 64, 1024

PUSHED = "bfs pushed"
"""BFS that never turns its direction, so that wide frontiers are queued."""
LEVELS, LEVELS_PULLED, LEVELS_AUTO, UNFUSED = STEP_LEVELS = (
    "levels", "levels pulled", "levels auto", "levels unfused",
)  # fmt: skip
"""BFS as a step program, by the direction of its advance; unfused: by a frontier of arcs in between."""
PROGRAMS = ("sssp", "components", "labels", "k-core", "colouring", *STEP_LEVELS[:3])

RANKS_TO: dict[str, bool | None] = {"pagerank to 1e-6": None, "pagerank to 1e-6, plain": False}
"""PageRank until it has converged, accelerated where it can be, or not."""

UNIONS: dict[str, dict[str, Any]] = {
    "afforest": {"method": "afforest"},
    "afforest, 2 neighbours": {"method": "afforest", "rounds": 2},
    "rem": {"method": "rem"},
    "hook": {"method": "hook"},
    "hook after 1 round": {"method": "hook", "rounds": 1},
    "hook after 1 round, not compressed": {"method": "hook", "rounds": 1, "jumps": 0},
    "hook after 2 rounds": {"method": "hook", "rounds": 2},
    "rem after 1 round": {"method": "rem", "rounds": 1},
}
DIRECT, TREE = MERGES = (", direct", ", tree")
UNIONS |= {
    name + merge: {**UNIONS[name], "merge": merge.removeprefix(", ")}
    for name in list(UNIONS)
    for merge in MERGES
}
"""Ways of ``gw.connected_components``; how several GPUs come together is chosen, but where it is said."""

SCHEDULES = ("mixed", "thread", "warp", "block", "merge-path")
COMMUNICATIONS = ("selective", "broadcast")
ONE_HOP = "selective, 1-hop"
BY_HOST = "copied by the host"
BY_HOST_ALGORITHMS = ("bfs", "pagerank", LEVELS, LEVELS_PULLED, "k-core")
FIXED, MAXIMUM = "fixed", "maximum"
SMALL_ITEMS = 1024
POLICIES: dict[str, int | str | None] = {
    "just enough": None,
    f"just enough, from {SMALL_ITEMS:,}": SMALL_ITEMS,
    FIXED: FIXED,
    MAXIMUM: MAXIMUM,
}
"""Items that queues begin with; those that are fixed must come after those that tell how many."""

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
    "star22": "star:4194304",
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
    "star22": "star:5000",
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
    :param duplication: ``"1-hop"``, or None for what suits the algorithm
    :param gpu: what GpuOptions are made of; ``frontier_items`` may also be ``"maximum"`` (as many as there
        are vertices) or ``"fixed"`` (as many as an earlier run needed)
    """

    graph: str
    algorithm: str
    devices: str
    execution: str = SUPERSTEPS
    dtype: str = "float32"
    sources: int = 1
    ids: str = "int32"
    partition: str = ""
    duplication: str | None = None
    gpu: tuple[tuple[str, Any], ...] = ()

    @property
    def is_weighted(self) -> bool:
        """Whether it is of a graph with weights."""
        return self.algorithm == "sssp"

    @property
    def is_program(self) -> bool:
        """Whether it is a step program."""
        return self.algorithm in (*PROGRAMS, UNFUSED) and self.algorithm not in ("sssp", "labels")

    @property
    def place(self) -> tuple[str, ...]:
        """Settings of the same place share a placed graph; not those that compare beginnings of queues."""
        options = dict(self.gpu)
        begin = str(options["frontier_items"]) if "frontier_items" in options else ""
        weights = "weighted" if self.is_weighted else ""
        duplication = self.duplication or ""
        return self.graph, self.ids, self.devices, self.partition, duplication, weights, begin

    @property
    def words(self) -> str:
        """What is special about it, for people."""
        usual = {
            "bfs": [self.execution],
            "pagerank": [self.dtype],
            "betweenness": [f"{self.sources} sources"],
        }
        options = [f"{name}={value}" for name, value in self.gpu]
        options += [self.duplication] if self.duplication else []
        return " ".join([self.algorithm, *usual.get(self.algorithm, []), *options])


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
            for algorithm in RANKS_TO:
                yield algorithm, Setting(graph, algorithm, text)


def plan_betweenness(devices: Sequence[str]) -> Plan:
    one = {"rmat22": 1, "rmat24": 1, "road1000": 1}
    for graph, sources in [*one.items(), ("rmat16", MANY_SOURCES), ("rmat16", MORE_SOURCES)]:
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
    for algorithm in ("bfs", "pagerank", "betweenness", LEVELS, "afforest", "rem", "sssp"):
        for text in devices:
            yield "", Setting("rmat27_20", algorithm, text)


def plan_memory(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24", "road4900"):
        for text in on_gpus(devices):
            for name, items in POLICIES.items():
                yield name, Setting(graph, PUSHED, text, gpu=(("frontier_items", items),))
            for name, algorithm in (("fused", LEVELS), ("unfused", UNFUSED)):
                yield name, Setting(graph, algorithm, text, gpu=(("frontier_items", None),))


def plan_programs(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24", "road4900"):
        for text in devices:
            for algorithm in PROGRAMS:
                yield "", Setting(graph, algorithm, text)


def plan_schedules(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "road1000", "star22"):
        for text in on_gpus(devices):
            for algorithm in (PUSHED, LEVELS):
                for name in SCHEDULES:
                    yield name, Setting(graph, algorithm, text, gpu=(("schedule", name),))


def plan_communication(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24", "road4900"):
        for text in on_gpus(devices, several=True):
            for algorithm in ("pagerank", "betweenness", LEVELS, LEVELS_PULLED, "k-core"):
                for name in COMMUNICATIONS:
                    yield name, Setting(graph, algorithm, text, gpu=(("communication", name),))
            yield ONE_HOP, Setting(graph, "pagerank", text, duplication="1-hop")
            yield "broadcast", Setting(graph, "bfs", text)
            is_deep = graph == "road4900"
            for algorithm in ("pagerank",) if is_deep else BY_HOST_ALGORITHMS:
                yield BY_HOST, Setting(graph, algorithm, text, gpu=(("transport", "host"),))


def plan_components(devices: Sequence[str]) -> Plan:
    for graph in ("rmat22", "rmat24", "road4900"):
        for text in devices:
            for algorithm in UNIONS:
                if len(device_names(text)) > 1 or not algorithm.endswith(MERGES):
                    yield algorithm, Setting(graph, algorithm, text)


def on_gpus(devices: Sequence[str], *, several: bool = False) -> list[str]:
    """Those that options of kernels are for."""
    gpus = [text for text in devices if text != "cpu"]
    return [text for text in gpus if not several or len(device_names(text)) > 1]


LEFT_OUT = {
    "memory": "GPUs have queues of their own making",
    "schedules": "they are options of GPUs",
    "communication": "it is an option of several GPUs",
}
"""Why a section may have nothing to measure."""

PLANS: dict[str, Callable[[Sequence[str]], Plan]] = {
    "overhead": plan_overhead,
    "bfs": plan_bfs,
    "auto": plan_auto,
    "pagerank": plan_pagerank,
    "betweenness": plan_betweenness,
    "scaling": plan_scaling,
    "ids": plan_ids,
    "wide": plan_wide,
    "memory": plan_memory,
    "programs": plan_programs,
    "schedules": plan_schedules,
    "communication": plan_communication,
    "components": plan_components,
}
