"""What gpu_components.py measures: Hellås' kinds of graphs, generated, and the queries of each experiment.

Each graph is as near in size to one of his as its generator makes it (thesis, table 6.1); ``x4`` at the end
of a name says that it is four copies side by side with nothing between them (table 6.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpu_steps_plans import device_names as gpu_names

HOOK, REM, AFFOREST, AUTO = METHODS = ("hook", "rem", "afforest", "auto")
DIRECT, TREE = "direct", "tree"
MOST_ROUNDS = 3
JUMPS: dict[str, int | None] = {"not compressed": 0, "one jump": 1, "to the root": None}
COPIES = {"rgg": 10, "stencil": 4}
"""How often he has replicated one of each kind to pass a billion edges."""


@dataclass(frozen=True)
class Kind:
    """A kind of graphs of his.

    :param spec: what makes ours
    :param quick: what makes a small one
    :param his: the graph that ours is like; his time with hooks over his time with Rem's algorithm on one
        K80, both with the better number of rounds (6.3.3; 0.0 where he gives none)
    """

    words: str
    spec: str
    quick: str
    his: str
    hook_over_rem: float


KINDS = {
    "mesh": Kind(
        "2-D simulation", "bubbles:5100,seed=1", "bubbles:40,seed=1", "hugebubbles-00000", 3.69
    ),
    "citations": Kind(
        "citation network",
        "cliques:540486,count=360000,seed=1",
        "cliques:900,seed=1",
        "coPapersDBLP",
        1.87,
    ),
    "delaunay": Kind(
        "Delaunay", "delaunay:4194304,seed=1", "delaunay:900,seed=1", "delaunay_n23", 1.17
    ),
    "rgg": Kind(
        "random geometric",
        "random-geometric:4194304,seed=1",
        "random-geometric:900,seed=1",
        "rgg_n_2_22_s0",
        1.26,
    ),
    "stencil": Kind(
        "sparse matrix", "stencil:152,points=27", "stencil:9,points=27", "nlpkkt120", 1.55
    ),
    "streets": Kind("street network", "streets:1900,seed=1", "streets:20,seed=1", "asia.osm", 1.0),
    "road": Kind("percolated grid", "road:4900,seed=1", "road:40,seed=1", "-", 0.0),
    "kron": Kind(
        "synthetic",
        "rmat:20,edge_factor=48,seed=1",
        "rmat:9,edge_factor=48,seed=1",
        "kron_g500-logn20",
        1.33,
    ),
}
SAMPLE = tuple(KINDS)
WEAK = "rgg"
"""What he takes as many copies of as there are GPUs (6.3.5)."""

_COPIED = re.compile(rf"({'|'.join(KINDS)})x(\d+)")


def kind_of(name: str) -> tuple[Kind, int]:
    """The kind of a graph of that name, and of how many copies it is made.

    >>> kind_of("rggx10")[0].his, kind_of("rggx10")[1]
    ('rgg_n_2_22_s0', 10)
    """
    copied = _COPIED.fullmatch(name)
    return (KINDS[copied[1]], int(copied[2])) if copied else (KINDS[name], 1)


def spec_of(name: str, *, quick: bool) -> str:
    """Return the description of the graph of that name, for ``component_graphs.generate``."""
    kind, copies = kind_of(name)
    spec = kind.quick if quick else kind.spec
    return spec if copies == 1 else f"{spec},copies={copies}"


def is_known(name: str) -> bool:
    """Whether there is a graph of that name."""
    return name in KINDS or _COPIED.fullmatch(name) is not None


@dataclass(frozen=True)
class Setting:
    """A query in a certain way. Those that are equal are measured once.

    :param devices: as :func:`device_names` reads it
    :param rounds: of hooking without atomics; of Afforest, neighbours that are linked first
    :param jumps: up the tree after each of the former; None for all the way
    :param streamed: edges come from the host, in packets, to whichever device is free
    """

    graph: str
    method: str
    devices: str
    rounds: int | None = None
    jumps: int | None = None
    merge: str = AUTO
    streamed: bool = False

    @property
    def place(self) -> tuple[str, bool]:
        """Settings of a graph that share a place: devices that have it, or that its edges stream to."""
        return self.devices, self.streamed

    @property
    def words(self) -> str:
        """For people."""
        parts = [self.method]
        if self.rounds is not None:
            parts.append(f"rounds={self.rounds}")
        if self.jumps is not None:
            parts.append(f"jumps={self.jumps}")
        if self.merge != AUTO:
            parts.append(self.merge)
        if self.streamed:
            parts.append("streamed")
        return " ".join(parts)


Plan = list[tuple[str, Setting]]
"""Settings, each with the name by which its section's table calls it."""


def device_names(devices: str) -> list[str]:
    """The devices of ``"2"``, of ``"0+0"``, or of ``"cpu"``; ``"cpu:2"`` is two parts of the CPU.

    >>> device_names("cpu:2")
    ['cpu:0', 'cpu:1']
    """
    kind, _, count = devices.partition(":")
    return [f"cpu:{part}" for part in range(int(count))] if count else gpu_names(kind)


def several(devices: Sequence[str]) -> list[str]:
    """Those of more than one GPU."""
    return [text for text in devices if len(device_names(text)) > 1]


def whole(devices: Sequence[str]) -> list[str]:
    """Those of which none is a GPU that is named twice, or a part of the CPU."""
    return [text for text in devices if "+" not in text and ":" not in text]


def resident(devices: Sequence[str]) -> list[str]:
    """Those that a graph can be placed on to find its components: parts of the CPU cannot."""
    return [text for text in devices if ":" not in text]


def best_of(graph: str, devices: str) -> Plan:
    """Hooks and Rem's algorithm with none and one round, of which the better counts, and ours."""
    tried = [(method, rounds) for method in (HOOK, REM) for rounds in (0, 1)]
    plan = [(method, Setting(graph, method, devices, rounds)) for method, rounds in tried]
    return plan + [(method, Setting(graph, method, devices)) for method in (AFFOREST, AUTO)]


def plan_rounds(devices: Sequence[str]) -> Plan:
    """6.3.1: rounds of hooking without atomics; of Afforest, neighbours."""
    plan: Plan = []
    for graph in SAMPLE:
        for method in (HOOK, REM, AFFOREST):
            for rounds in range(method == AFFOREST, MOST_ROUNDS + 1):
                plan.append((str(rounds), Setting(graph, method, devices[0], rounds)))
    return plan


def plan_compress(devices: Sequence[str]) -> Plan:
    """6.3.2: how far vertices get up their trees after a round, and after each of two."""
    return [
        (name, Setting(graph, method, devices[0], rounds, jumps))
        for graph in SAMPLE
        for method in (HOOK, REM)
        for rounds in (1, 2)
        for name, jumps in JUMPS.items()
    ]


def plan_runtime(devices: Sequence[str]) -> Plan:
    """6.3.3, 6.4.1: hooks against Rem's algorithm, each with the number of rounds that is better."""
    return [one for graph in SAMPLE for text in resident(devices) for one in best_of(graph, text)]


def plan_strong(devices: Sequence[str]) -> Plan:
    """6.3.4, 6.3.6, 6.4.5: the same graph on ever more devices."""
    devices = whole(devices)
    if not several(devices):
        return []
    plan: Plan = []
    for graph in SAMPLE:
        for text in devices:
            plan.append(("rem", Setting(graph, REM, text, 0)))
            plan.append(("auto", Setting(graph, AUTO, text)))
    return plan


def plan_weak(devices: Sequence[str]) -> Plan:
    """6.3.5, 6.4.4: as many copies as devices."""
    devices = whole(devices)
    plan: Plan = []
    for text in devices if several(devices) else []:
        count = len(device_names(text))
        graph = WEAK if count == 1 else f"{WEAK}x{count}"
        plan.append(("hook", Setting(graph, HOOK, text, 1)))
        plan.append(("rem", Setting(graph, REM, text, 0)))
        plan.append(("auto", Setting(graph, AUTO, text)))
    return plan


def plan_expanded(devices: Sequence[str]) -> Plan:
    """6.3.7: copies, and one of them alone."""
    names = [name for one, count in COPIES.items() for name in (one, f"{one}x{count}")]
    return [one for graph in names for text in resident(devices) for one in best_of(graph, text)]


def plan_merge(devices: Sequence[str]) -> Plan:
    """4.2.4, 5.2.2: forests merged in pairs, or links in the memory of the others."""
    return [
        (merge, Setting(graph, method, text, 0 if method in (HOOK, REM) else None, merge=merge))
        for graph in SAMPLE
        for text in several(resident(devices))
        for method in (HOOK, REM, AFFOREST)
        for merge in (DIRECT, TREE, AUTO)
    ]


def plan_streamed(devices: Sequence[str]) -> Plan:
    """6.3.1 and 6.3.6 as he has them: edges come from the host, and forests are merged in pairs."""
    return [
        (str(rounds), Setting(graph, method, text, rounds, streamed=True))
        for graph in SAMPLE
        for text in devices
        for method in (HOOK, REM)
        for rounds in range(3)
    ]


PLANS: dict[str, Callable[[Sequence[str]], Iterable[tuple[str, Setting]]]] = {
    "rounds": plan_rounds,
    "compress": plan_compress,
    "runtime": plan_runtime,
    "strong": plan_strong,
    "weak": plan_weak,
    "expanded": plan_expanded,
    "merge": plan_merge,
    "streamed": plan_streamed,
}
"""Sections, by the chapters of his thesis."""

ON_SEVERAL = ("strong", "weak", "merge")
"""Sections that need more than one GPU."""
