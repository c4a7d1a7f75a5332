"""Step programs that several tests run, and a reference that runs any of them, serially, in Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.errors import InputError
from godwit.frontier.code import Instruction, Operator, Read

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from connected_components import (
    COMPONENTS,
    connected_components,  # noqa: F401
)
from greedy_colouring import (
    GREEDY_COLOURING,  # noqa: F401 (for tests)
    colours,  # noqa: F401
)
from k_core import (
    K_CORE,  # noqa: F401
    core_numbers,  # noqa: F401
)

FAR = 2**31 - 1


def levels(name: str, **options: Any) -> gw.StepProgram:
    """Breadth-first search."""
    return gw.StepProgram(
        name=name,
        fields={"level": ("int32", FAR)},
        numbers={"now": ("int64", 0)},
        steps=[
            gw.frontier.compute("level", lambda: 0),
            gw.frontier.repeat(
                [
                    gw.frontier.assign("now", lambda now: now + 1),
                    gw.frontier.advance("level", lambda now: now, "min", **options),
                ],
                until=lambda size: size == 0,
            ),
        ],
    )


LEVELS = levels("levels")
LEVELS_TURNED = levels("levels turned", direction="auto", candidates=lambda level: level == FAR)
LEVELS_PULLED = levels("levels pulled", direction="pull", candidates=lambda level: level == FAR)


def _bits(combine: Any, direction: Any) -> gw.StepProgram:
    """The bits that arrive, until none improves a vertex."""
    return gw.StepProgram(
        name=f"bits by {combine}",
        fields={"bits": "int64"},
        steps=[
            gw.frontier.repeat(
                [gw.frontier.advance("bits", lambda bits: bits, combine, direction=direction)],
                until=lambda size: size == 0,
            )
        ],
    )


GAINED_BITS = _bits("or", "auto")
LOST_BITS = _bits("and", "push")

ARCS = gw.StepProgram(
    name="arcs",
    fields={"label": ("int32", "vertex"), "seen": ("int64", 0)},
    numbers={"moved": "int64", "left": "int64"},
    steps=[
        gw.frontier.arcs(lambda label, label_at_target: label != label_at_target),
        gw.frontier.repeat(
            [
                gw.frontier.advance(
                    "label",
                    lambda label: label,
                    "min",
                    at="label_at_target",
                    keep=lambda label, label_at_target: label < label_at_target,
                    frontier="kept",
                ),
                gw.frontier.repeat(
                    [
                        gw.frontier.compute(
                            "label", lambda label_at_label: label_at_label, of="all"
                        ),
                        gw.frontier.reduce(
                            "moved",
                            lambda label, label_at_label: label != label_at_label,
                            "add",
                            of="all",
                        ),
                    ],
                    until=lambda moved: moved == 0,
                ),
                gw.frontier.advance("seen", lambda source: source, "add", frontier="kept"),
                gw.frontier.arcs(lambda label, label_at_target: label < label_at_target),
                gw.frontier.assign("left", lambda left, size: left + size),
            ],
            until=lambda size: size == 0,
        ),
        gw.frontier.filter(lambda: True, of="all"),
        gw.frontier.arcs(lambda source, target: (source + target) % 3 == 0),
    ],
)
"""Components as Gunrock has them: of the arcs, those within a tree are left out. Ends with one of arcs."""

LENGTHS = gw.StepProgram(
    name="lengths",
    fields={"length": ("float64", np.inf)},
    steps=[
        gw.frontier.compute("length", lambda: 0.0),
        gw.frontier.repeat(
            [gw.frontier.advance("length", lambda length, weight: length + weight, "min")],
            until=lambda size: size == 0,
        ),
    ],
)
"""Shortest paths by Bellman and Ford."""

EVERYTHING = gw.StepProgram(
    name="everything",
    fields={
        "a": ("int32", "degree"),
        "b": ("int64", "vertex"),
        "c": ("uint32", 7),
        "d": ("float64", 0.5),
        "e": ("float32", -np.inf),
        "next": ("int32", "vertex"),
    },
    numbers={"low": "int64", "mean": ("float64", 1.5), "turn": "int64"},
    steps=[
        gw.frontier.compute(
            "next", lambda vertex, degree, vertex_count: (vertex + degree) % vertex_count
        ),
        gw.frontier.filter(lambda a, vertex: a % 2 == 1 or vertex % 3 == 0),
        gw.frontier.repeat(
            [
                gw.frontier.advance(
                    "b",
                    lambda source, target, b_at_target, weight, turn: (
                        source - target + b_at_target % 5 + int(weight) + turn
                    ),
                    "add",
                    keep=lambda degree, degree_at_target: degree >= degree_at_target - 1,
                ),
                gw.frontier.compute("c", lambda c, b, next: (c + b % 100 + next) % 1000, of="all"),
                gw.frontier.reduce("low", lambda b: b, "min"),
                gw.frontier.advance(
                    "d",
                    lambda b_at_next, next_at_target: (b_at_next % 8 + next_at_target) / 4,
                    "max",
                    at="next_at_target",
                    frontier="kept",
                ),
                gw.frontier.compute("next", lambda next_at_next: next_at_next),
                gw.frontier.advance(
                    "e",
                    lambda d, weight, mean: d - weight + mean,
                    "max",
                    direction="pull",
                    candidates=lambda vertex: vertex % 4 != 1,
                    keep=lambda source, target: source != target,
                ),
                gw.frontier.reduce("mean", lambda d: d, "max", of="all"),
                gw.frontier.advance("a", lambda: 1, "add", at="source", frontier="kept"),
                gw.frontier.advance("a", lambda a: a % 3, "add", direction="pull"),
                gw.frontier.assign("turn", lambda turn, size: turn + 1 + size % 2),
            ],
            until=lambda turn: turn > 4,
        ),
    ],
)
"""Whatever there is, once; all its sums are exact."""

PUSHED = {
    dtype: gw.StepProgram(
        name=f"pushed {dtype}",
        fields={"low": (dtype, 50), "high": (dtype, 50), "total": (dtype, 1)},
        steps=[
            gw.frontier.advance("low", lambda source: source, "min", frontier="kept"),
            gw.frontier.advance("high", lambda target: 3 * target, "max", frontier="kept"),
            gw.frontier.advance("total", lambda source: source % 5, "add"),
        ],
    )
    for dtype in ("int32", "uint32", "int64", "float32", "float64")
}
"""Messages of every dtype, combined in every way."""

REFERENCED = {
    program.name: program
    for program in (LEVELS, LEVELS_PULLED, LEVELS_TURNED, COMPONENTS, ARCS, LENGTHS, EVERYTHING)
}


UNFIT = [
    (
        gw.frontier.compute("x", lambda x, degree: x / degree),
        "returns float64; an operator for integers",
    ),
    (gw.frontier.advance("x", lambda: 0.5, "add"), "returns float64; an operator for integers"),
    (
        gw.frontier.advance("x", lambda f_at_target: f_at_target, "min", direction="pull"),
        "returns float64; an operator for integers",
    ),
    (gw.frontier.reduce("k", lambda f: f, "max"), "returns float64; an operator for integers"),
    (
        gw.frontier.assign("k", lambda size: size * 1e30),
        "returns float64; an operator for integers",
    ),
    (gw.frontier.filter(lambda x: 0.5), "returns float64; a condition returns a boolean"),
    (gw.frontier.arcs(lambda x: x), "returns int32; a condition returns a boolean"),
    (
        gw.frontier.advance("f", lambda: 1, "add", keep=lambda degree: degree),
        "int64; a condition returns",
    ),
    (
        gw.frontier.advance("f", lambda: 1, "add", direction="pull", candidates=lambda f: f),
        "returns float64; a condition returns a boolean",
    ),
    (
        gw.frontier.repeat([gw.frontier.assign("k", lambda: 1)], lambda k: k),
        "returns int64; a condition returns",
    ),
]
"""Steps whose types do not fit fields x (int32) and f (float64) or the number k (int64); what is said."""


def start_of(program: gw.StepProgram, graph: gw.Graph) -> Any:
    """A frontier to begin with."""
    if program in (LEVELS, LEVELS_PULLED, LEVELS_TURNED, LENGTHS):
        return [graph.vertex_count // 2] if graph.vertex_count else []
    return "all"


def with_integer_weights(graph: gw.Graph) -> gw.Graph:
    """For the largest program, which is compiled for one dtype of weights: 1 where there were none."""
    weights = np.ones(graph.arc_count) if graph.weights is None else graph.weights
    return graph.with_weights(weights.astype(np.int32))


class Reference:
    """A run in plain Python: fields, numbers and frontier after it."""

    def __init__(
        self, program: gw.StepProgram, graph: gw.Graph, frontier: Any, **fields: Any
    ) -> None:
        self._graph = graph
        self._code = program.code
        n = graph.vertex_count
        named = {"degree": graph.out_degree(), "vertex": np.arange(n)}
        self._fields = []
        for name, (dtype, initial) in program.declarations.fields.items():
            given = fields.get(name, initial)
            given = named[given] if isinstance(given, str) else given
            self._fields.append(np.zeros(n, dtype) + np.asarray(given, dtype))
        self._numbers = [0, n, *(value for _, value in program.declarations.numbers.values())]
        self._set_frontier(range(n) if isinstance(frontier, str) else frontier)
        self._run(program.code.steps)
        self.fields = dict(zip(program.declarations.fields, self._fields, strict=True))
        self.numbers = dict(
            zip((name for name, _ in program.code.numbers), self._numbers, strict=True)
        )

    def _set_frontier(self, members: Any, *, of_arcs: bool = False) -> None:
        self._of_arcs = of_arcs
        self.frontier = sorted(set(members))
        self._numbers[0] = len(self.frontier)

    def _frontier_arcs(self) -> list[tuple[int, int, int, Any]]:
        """Arc, source, target and weight: of the frontier, or of its vertices."""
        graph = self._graph
        found, members = [], set(self.frontier)
        for source in range(graph.vertex_count):
            for arc in range(graph.offsets[source], graph.offsets[source + 1]):
                if (arc if self._of_arcs else source) in members:
                    weight = 1 if graph.weights is None else graph.weights[arc]
                    found.append((arc, source, int(graph.targets[arc]), weight))
        return found

    def _run(self, steps: tuple[Instruction, ...]) -> None:
        for step in steps:
            if step.kind == "repeat":
                self._run(step.body)
                while not self._call(step.value):
                    self._run(step.body)
            elif step.kind == "advance":
                self._advance(step)
            else:
                self._step(step)

    def _step(self, step: Instruction) -> None:
        chosen = range(self._graph.vertex_count) if step.everywhere else self.frontier
        if step.kind == "filter":
            self._set_frontier([v for v in chosen if self._call(step.keep, v)])
        elif step.kind == "arcs":
            arcs = [arc for arc, *ends in self._frontier_arcs() if self._call(step.keep, *ends)]
            self._set_frontier(arcs, of_arcs=True)
        elif step.kind == "compute":
            made = [self._call(step.value, v) for v in chosen]
            for v, value in zip(chosen, made, strict=True):
                self._fields[step.into][v] = value
        elif step.kind == "assign":
            self._numbers[step.into] = self._as_number(step, self._call(step.value))
        else:
            limits = np.iinfo(np.int64)
            integer = self._code.number_dtype(step.into).kind == "i"
            none = {
                "add": 0,
                "min": limits.max if integer else np.inf,
                "max": limits.min if integer else -np.inf,
            }[step.combine]
            how = {"add": sum, "min": min, "max": max}[step.combine]
            made = [self._as_number(step, self._call(step.value, v)) for v in chosen]
            self._numbers[step.into] = how(made) if made else none

    def _as_number(self, step: Instruction, value: Any) -> Any:
        return self._code.number_dtype(step.into).type(value).item()

    def _advance(self, step: Instruction) -> None:
        field = self._fields[step.into]
        wide = self._code.accumulators_of(step).dtype
        come: dict[int, list[Any]] = {}
        for _, *ends in self._frontier_arcs():
            if step.candidates is not None and not self._call(step.candidates, ends[1]):
                continue
            if step.keep is not None and not self._call(step.keep, *ends):
                continue
            goal = int(self._read(step.goal, *ends))
            come.setdefault(goal, []).append(wide.type(self._call(step.value, *ends)))
        before = field.copy()
        reached = []
        for goal, messages in come.items():
            if step.combine == "add":
                field[goal] = before[goal] + sum(messages)
                reached.append(goal)
                continue
            best = {"min": min, "max": max}[step.combine](messages)
            if best < before[goal] if step.combine == "min" else best > before[goal]:
                field[goal] = best
                reached.append(goal)
        if not step.stays:
            self._set_frontier(reached)

    def _call(self, operator: Operator | None, *ends: Any) -> Any:
        assert operator is not None
        return operator.function(*(self._read(read, *ends) for read in operator.reads))

    def _read(self, read: Read, *ends: Any) -> Any:
        if read.kind == "number":
            return self._numbers[read.index]
        if read.kind == "weight":
            return ends[2]
        end = ends[1] if read.at_target else ends[0]
        if read.kind == "vertex":
            return end
        if read.kind == "degree":
            return int(self._graph.offsets[end + 1] - self._graph.offsets[end])
        if read.via >= 0:
            end = self._fields[read.via][end]
        return self._fields[read.index][end].item()


def explore_arcs(devices: Any) -> None:
    """Arcs, one operator after another: those within a grid's rows, then some of them."""
    graph = gw.generators.grid(3, 4)
    with gw.explore(graph, fields={"x": ("int32", 0)}, devices=devices) as explorer:
        assert explorer.do(gw.frontier.arcs(lambda source, target: abs(source - target) == 1)) == 18
        assert explorer.do(gw.frontier.advance("x", lambda: 1, "add", frontier="kept")) == 18
        assert explorer.fields["x"].tolist() == [1, 2, 2, 1] * 3
        assert (
            explorer.do(gw.frontier.arcs(lambda source, target: source < target and source < 4))
            == 3
        )
        sources = np.repeat(np.arange(12), graph.out_degree())[explorer.frontier]
        assert sources.tolist() == [0, 1, 2]
        assert graph.targets[explorer.frontier].tolist() == [1, 2, 3]
        assert explorer.do(gw.frontier.compute("x", lambda x: 10 * x, of="all")) == 3
        with pytest.raises(InputError, match="the frontier is of arcs here"):
            explorer.do(gw.frontier.filter(lambda x: x > 0))
        assert explorer.do(gw.frontier.advance("x", lambda: 1, "add")) == 3
        assert explorer.frontier.tolist() == [1, 2, 3]
        assert explorer.fields["x"].tolist() == [10, 21, 21, 11, 10, 20, 20, 10, 10, 20, 20, 10]
        explorer.frontier = "all"
        assert explorer.do(gw.frontier.filter(lambda x: x == 21)) == 2
