"""Random graphs with adversarial numbers, by every algorithm, on one device and on several virtual ones.

What is slow to change, as it is compiled for (dtypes, devices), changes every 300 cases.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import godwit as gw
from godwit.dtypes import WEIGHT_DTYPES
from godwit.errors import InputError, OperatorError, ValueOverflowError
from references import breadth_first, dijkstra, smallest_label

from .watch import raised

_CASES_PER_VARIANT = 300
_STRUCTURE_EVERY = 10
_FILTER_EVERY = 20  # each may compile a predicate
_TIMEOUT_S = 60.0
_LIMIT = 2**63 - 1
_EXACT = 2**53

_INTEGERS = (
    *(2**bits + more for bits in (31, 32, 33, 40, 53, 61, 62, 63) for more in (-2, -1, 0, 1)),
    0, 0, 1, 1, 2, 3, 64,
)  # fmt: skip


@dataclass(frozen=True)
class _Variant:
    """What kernels are compiled for."""

    weight_dtype: np.dtype[Any] | None
    id_dtype: str | None
    devices: tuple[str, ...]
    partition: str


@dataclass(frozen=True)
class _Case:
    """One query of one graph."""

    generator: random.Random
    variant: _Variant
    graph: gw.Graph
    algorithm: str


def case(seed: int, number: int) -> tuple[str, str | None]:
    """Try one case."""
    drawn = _draw(seed, number)
    try:
        wrong = _ALGORITHMS[drawn.algorithm](drawn)
    except Exception as error:
        wrong = raised(error)
    return drawn.algorithm, None if wrong is None else f"{wrong} {_described(drawn)}"


def describe(seed: int, number: int) -> str:
    """Return what a case tries."""
    return _described(_draw(seed, number))


def _described(drawn: _Case) -> str:
    """Return the devices and the graph, with its arrays if it is small."""
    graph = drawn.graph
    text = f"[{drawn.algorithm} on {','.join(drawn.variant.devices)}: {graph}"
    if graph.arc_count <= 12:
        weights = None if graph.weights is None else graph.weights.tolist()
        text += f", offsets {graph.offsets.tolist()}, targets {graph.targets.tolist()}, weights {weights}"
    return text + "]"


def _draw(seed: int, number: int) -> _Case:
    slow = random.Random(f"graphs {seed} {number // _CASES_PER_VARIANT}")
    generator = random.Random(f"graphs {seed} {number}")
    variant = _variant(slow)
    algorithm = generator.choice(
        [
            "bfs",
            "sssp",
            "sssp",
            "sssp",
            "pagerank",
            "components",
            "betweenness",
            "forest",
            "walks",
        ]
    )
    if number % _FILTER_EVERY == _FILTER_EVERY - 1:
        algorithm = "filter"
    if number % _STRUCTURE_EVERY == _STRUCTURE_EVERY - 2:
        algorithm = "structure"
    return _Case(generator, variant, _graph(generator, variant), algorithm)


def _variant(generator: random.Random) -> _Variant:
    return _Variant(
        generator.choice([None, *WEIGHT_DTYPES]),
        generator.choice([None, None, "int64"]),
        generator.choice(_device_sets()),
        generator.choice(["contiguous", "random", "biased-random"]),
    )


def _device_sets() -> list[tuple[str, ...]]:
    virtual = [tuple(f"cpu:{index}" for index in range(count)) for count in (1, 2, 3)]
    gpus = [device.name for device in gw.all_devices() if device.kind != "cpu"]
    return [
        ("cpu",),
        *virtual,
        *([tuple(gpus[:1])] if gpus else []),
        *([tuple(gpus)] if gpus[1:] else []),
    ]


# --- Graphs.


def _graph(generator: random.Random, variant: _Variant) -> gw.Graph:
    pairs, count = _pairs(generator)
    weights = None
    if variant.weight_dtype is not None:
        weights = _weights(generator, len(pairs), variant.weight_dtype, count)
    sources, targets = np.array(pairs, np.int64).reshape(-1, 2).T
    return gw.Graph.from_edges(
        sources,
        targets,
        weights,
        vertex_count=count,
        directed=generator.random() < 0.5,
        id_dtype=variant.id_dtype,
    )


def _pairs(generator: random.Random) -> tuple[list[tuple[int, int]], int]:
    """Return arcs and a number of vertices: known shapes and random ones, isolated vertices behind some."""
    count = generator.choice([1, 2, 3, 5, 8, 13, 40, 40, 150])
    shape = generator.choice(
        ["none", "path", "star", "cycle", "complete", "random", "random", "hubs"]
    )
    vertices = range(count)
    match shape:
        case "none":
            return [], generator.choice([0, 1, count])
        case "path":
            pairs = [(v, v + 1) for v in vertices[:-1]]
        case "star":
            centre = generator.choice([0, count - 1])
            pairs = [(centre, v) for v in vertices if v != centre]
        case "cycle":
            pairs = [(v, (v + 1) % count) for v in vertices]
        case "complete":
            count = min(count, 13)
            pairs = [(u, v) for u in range(count) for v in range(u)]
        case _:
            many = generator.choice([1, 2, 4]) * count
            few = range(min(count, 3)) if shape == "hubs" else vertices
            pairs = [(generator.choice(few), generator.choice(vertices)) for _ in range(many)]
    for _ in range(generator.choice([0, 0, 1, 3])):  # self-loops, parallel arcs
        if generator.random() < 0.5:
            vertex = generator.randrange(count)
            pairs.append((vertex, vertex))
        elif pairs:
            pairs.append(generator.choice(pairs))
    return pairs, count + generator.choice([0, 0, 0, 1, 5])


def _weights(
    generator: random.Random, number: int, dtype: np.dtype[Any], count: int
) -> np.ndarray[Any, Any]:
    """Return weights from few values, at the limits of the dtype or anywhere."""
    palette: list[Any]
    if dtype.kind in "iu":
        highest = int(np.iinfo(dtype).max)
        at_most = highest // max(1, count)  # sums of paths are just below, or above
        numbers = [
            *_INTEGERS,
            highest,
            highest - 1,
            highest // 2,
            highest // 2 + 1,
            at_most,
            at_most + 1,
        ]
        palette = [value for value in numbers if 0 <= value <= highest]
        if generator.random() < 0.02 and dtype.kind == "i":
            palette = [-1, int(np.iinfo(dtype).min)]
    else:
        about = np.finfo(dtype)
        palette = [
            0.0, 1.0, 0.1, 3.0, float(about.max), float(about.max) / 2, float(about.tiny),
            float(about.smallest_subnormal), float(about.eps), 2.0**53, 2.0**53 + 2, math.inf,
            *(math.exp(generator.gauss(0, 20)) for _ in range(4)),
        ]  # fmt: skip
        if generator.random() < 0.02:
            palette = [math.nan, -1.0, -math.inf]
    style = generator.random()
    if style < 0.4:  # small ones, so that ties are common
        palette = [palette[0] * 0 + value for value in (0, 1, 2, 3, 5)]
    chosen = [generator.choice(palette) for _ in range(generator.choice([1, 2, 3, 8]))]
    return np.array([generator.choice(chosen) for _ in range(number)]).astype(dtype)


def _is_negative(graph: gw.Graph) -> bool:
    return graph.weights is not None and not bool(np.all(graph.weights >= 0))


# --- Paths.


def _bfs(drawn: _Case) -> str | None:
    return _paths(drawn, gw.bfs, breadth_first, unit_lengths=True)


def _sssp(drawn: _Case) -> str | None:
    return _paths(drawn, gw.sssp, dijkstra, unit_lengths=drawn.graph.weights is None)


def _paths(
    drawn: _Case, function: Callable[..., Any], reference: Callable[..., Any], *, unit_lengths: bool
) -> str | None:
    generator, graph = drawn.generator, drawn.graph
    count = graph.vertex_count
    if count == 0:
        return _refused(lambda: function(graph, 0))
    sources = [generator.randrange(count) for _ in range(generator.choice([1, 1, 1, 3]))]
    named = {
        "devices": list(drawn.variant.devices),
        "partition": drawn.variant.partition,
        "execution": generator.choice(["auto", "auto", "asynchronous", "bulk-synchronous"]),
        "timeout_s": _TIMEOUT_S,
    }
    if drawn.variant.devices == ("cpu",):
        del named["partition"]
    if not unit_lengths and _is_negative(graph):
        return _refused(lambda: function(graph, sources, **named))
    exact = reference(graph, sources)
    expected = [None if value == math.inf else value for value in exact]
    cutoff = _cutoff(generator, expected) if generator.random() < 0.4 else None
    target = generator.randrange(count) if generator.random() < 0.2 else None
    integral = unit_lengths or graph.weights.dtype.kind in "iu"  # type: ignore[union-attr]
    if cutoff is not None:
        expected = [None if d is None or d > cutoff else d for d in expected]
    try:
        result = function(graph, sources, cutoff=cutoff, target=target, **named)
    except (ValueOverflowError, InputError) as error:
        may_overflow = integral and not unit_lengths and _largest(graph) * (count + 1) >= _LIMIT
        if may_overflow and "overflow" in str(error) + type(error).__name__.lower():
            return None
        raise
    if target is not None and expected[target] is not None:
        bound = expected[target]
        expected = [None if d is None or d > bound else d for d in expected]
        cutoff = bound
    found = [None if d == result.unreached else d for d in result.distance.tolist()]
    if found != expected:
        v = next(v for v in range(count) if found[v] != expected[v])
        return (
            f"vertex {v} is at {found[v]!r}, must be at {expected[v]!r} from {sources} with "
            f"cutoff={cutoff!r}, target={target}, {named}"
        )
    verify = gw.verify_bfs if function is gw.bfs else gw.verify_sssp
    predecessor = result.predecessor if target is None else None
    verify(graph, sources, result.distance, predecessor, cutoff=cutoff)
    return None


def _largest(graph: gw.Graph) -> int:
    return int(graph.weights.max()) if graph.weights is not None and len(graph.weights) else 1


def _cutoff(generator: random.Random, expected: list[Any]) -> Any:
    known = [d for d in expected if d is not None]
    return generator.choice([
        0, 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**70, math.inf,
        *known[-3:], *(d + 1 for d in known[-2:]),
    ])  # fmt: skip


# --- Others.


def _one_device(drawn: _Case) -> str | list[str]:
    """Return devices for what runs on one device of the CPU, or on GPUs."""
    devices = drawn.variant.devices
    return devices[0] if devices[0].startswith("cpu") else list(devices)


def _pagerank(drawn: _Case) -> str | None:
    generator, graph = drawn.generator, drawn.graph
    count = graph.vertex_count
    is_push = generator.random() < 0.2
    damping = generator.choice([0.0, 0.5, 0.85, 0.85, 0.99])
    dtype = "float64" if is_push else generator.choice(["float32", "float64"])
    asked: dict[str, Any] = {"weighted": generator.choice([None, None, False])}
    if count and generator.random() < 0.3:
        few = [generator.randrange(count) for _ in range(2)]
        asked["personalization"] = {v: generator.choice([1.0, 5e-324, 1e308, 3.0]) for v in few}
    named: dict[str, Any] = {
        "tolerance": generator.choice([1e-3, 1e-6, 1e-9]),
        "timeout_s": _TIMEOUT_S,
    }
    if is_push:
        named |= {"execution": "asynchronous", "devices": list(drawn.variant.devices)}
    else:
        named |= {"devices": _one_device(drawn), "dtype": dtype}
    weights = graph.weights
    if weights is not None and asked["weighted"] is None and len(weights):
        largest = float(weights.max())
        if _is_negative(graph) or not math.isfinite(largest * len(weights)):
            return _refused(lambda: gw.pagerank(graph, damping, **asked, **named))
    result = gw.pagerank(graph, damping, **asked, **named)
    # What is said of the residual must be true, and ranks below the tolerance if they are said to be.
    tolerance = named["tolerance"] if result.converged else result.residual
    gw.verify_pagerank(graph, result.rank, damping, tolerance=tolerance, **asked)
    return None


def _structure(drawn: _Case) -> str | None:
    devices = _one_device(drawn)
    result = gw.core_number(drawn.graph, devices=devices, timeout_s=_TIMEOUT_S)
    gw.verify_core_number(drawn.graph, result)
    gw.verify_truss_number(
        drawn.graph, gw.truss_number(drawn.graph, devices=devices, timeout_s=_TIMEOUT_S)
    )
    seed = drawn.generator.randrange(2**63)
    chosen = gw.maximal_independent_set(drawn.graph, seed=seed, devices=devices)
    gw.verify_maximal_independent_set(drawn.graph, chosen)
    gw.verify_greedy_color(drawn.graph, gw.greedy_color(drawn.graph, seed=seed, devices=devices))
    return None


def _components(drawn: _Case) -> str | None:
    generator, graph = drawn.generator, drawn.graph
    method = generator.choice(["auto", "afforest", "rem", "hook", "label-propagation", "stream"])
    if method == "label-propagation" and graph.directed:
        method = "rem"
    named: dict[str, Any] = {"devices": _one_device(drawn), "timeout_s": _TIMEOUT_S}
    if method == "label-propagation":
        named["devices"] = list(drawn.variant.devices)
    if method == "stream":
        result = gw.connected_components_of_edges(graph, memory_bytes=1 << 28, **named)
    else:
        result = gw.connected_components(graph, method=method, **named)
    gw.verify_connected_components(graph, result.label)
    whole = graph if not graph.directed else graph.without_weights().symmetrize()
    if result.label.tolist() != smallest_label(whole):
        return f"{result.label.tolist()} are not the labels"
    return _strong_components(drawn)


def _forest(drawn: _Case) -> str | None:
    generator, graph = drawn.generator, drawn.graph
    graph = graph.symmetrize(merge=None)
    named: dict[str, Any] = {
        "maximum": generator.random() < 0.5, "devices": _one_device(drawn), "timeout_s": _TIMEOUT_S
    }  # fmt: skip
    try:
        result = gw.minimum_spanning_forest(graph, **named)
    except InputError as error:
        has_nan = graph.weights is not None and np.isnan(graph.weights).any()
        return None if has_nan else raised(error)
    gw.verify_minimum_spanning_forest(graph, result)
    return None


def _walks(drawn: _Case) -> str | None:
    generator, graph = drawn.generator, drawn.graph
    weights = graph.weights
    fits = weights is None or bool(((weights >= 0) & (weights.astype(np.float64) < 1e300)).all())
    weighted = weights is not None and fits and generator.random() < 0.6
    named: dict[str, Any] = {
        "p": generator.choice([1, 1, 0.5, 1e9]), "q": generator.choice([1, 1, 4, 1e-9]),
        "seed": generator.randrange(2**64), "weighted": weighted, "timeout_s": _TIMEOUT_S,
    }  # fmt: skip
    sources = range(graph.vertex_count)
    length = generator.choice([0, 1, 7, 40])
    walks = gw.random_walks(graph, sources, length, devices=_one_device(drawn), **named)
    gw.verify_random_walks(graph, walks, weighted=weighted)
    if not np.array_equal(walks, gw.random_walks(graph, sources, length, devices="cpu", **named)):
        return "walks differ from those on the CPU"
    return None


def _strong_components(drawn: _Case) -> str | None:
    graph = drawn.graph
    named: dict[str, Any] = {"devices": _one_device(drawn), "timeout_s": _TIMEOUT_S}
    result = gw.strongly_connected_components(graph, **named)
    if not graph.directed:
        gw.verify_connected_components(graph, result.label)
        return _refused(lambda: gw.topological_generations(graph, **named))
    gw.verify_strongly_connected_components(graph, result.label)
    condensed = gw.condensation(graph, **named).graph
    gw.verify_topological_generations(condensed, gw.topological_generations(condensed, **named))
    is_acyclic = (
        condensed.vertex_count == graph.vertex_count
        and not (
            np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets)) == graph.targets
        ).any()
    )
    if gw.is_directed_acyclic_graph(graph, **named) != is_acyclic:
        return f"is_directed_acyclic_graph is not {is_acyclic}"
    return None


def _betweenness(drawn: _Case) -> str | None:
    generator, graph = drawn.generator, drawn.graph
    weights = graph.weights
    weighted = weights is not None and generator.random() < 0.6
    asked: dict[str, Any] = {
        "normalized": generator.random() < 0.5,
        "endpoints": generator.random() < 0.5,
        "weighted": weighted,
    }
    if graph.vertex_count and generator.random() < 0.5:
        asked["sources"] = sorted({generator.randrange(graph.vertex_count) for _ in range(3)})
    devices = _one_device(drawn)
    edges = isinstance(devices, str) or not weighted
    named: dict[str, Any] = {"devices": devices, "edges": edges, "timeout_s": _TIMEOUT_S}
    if weighted and weights is not None and len(weights):
        if not (float(weights.min()) > 0 and float(weights.max()) < math.inf):
            return _refused(lambda: gw.betweenness_centrality(graph, **asked, **named))
        try:
            result = gw.betweenness_centrality(graph, **asked, **named)
        except (InputError, ValueOverflowError) as error:
            # Too long for 64 bits, or so short beside others that a sum in float64 loses them.
            spread = float(weights.max()) * (graph.vertex_count + 1) / float(weights.min())
            is_wide = weights.dtype.kind == "f" and not spread < _EXACT / 2
            is_long = (
                weights.dtype.kind in "iu" and _largest(graph) * (graph.vertex_count + 1) >= _LIMIT
            )
            if is_wide or is_long:
                return None
            raise error
    else:
        result = gw.betweenness_centrality(graph, **asked, **named)
    found_edges = result.edge_centrality if edges else None
    gw.verify_betweenness_centrality(graph, result.centrality, found_edges, **asked)
    return None


_PREDICATES: tuple[Callable[[Any], Any], ...] = (
    lambda x: x > 0,
    lambda x: math.isnan(x) or x > 2147483646,
    lambda x: not x < 1,
    lambda x: x <= 2147483647,
    lambda x: x == 9007199254740993,
    lambda x: -1 < x < 4294967296,
    lambda x: x >= 9223372036854775807,
    lambda x: x < 1e300,
)


def _filter(drawn: _Case) -> str | None:
    generator = drawn.generator
    name = generator.choice(
        ["int8", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
    )
    dtype = np.dtype(name)
    if dtype.kind == "f":
        about = np.finfo(dtype)
        values = [
            0.0,
            -0.0,
            math.nan,
            math.inf,
            -math.inf,
            float(about.max),
            float(about.tiny),
            0.5,
            2.0**53,
        ]
    else:
        limits = np.iinfo(dtype)
        values = [int(limits.min), int(limits.min) + 1, int(limits.max), int(limits.max) - 1, 0, 1]
        values += [v for v in _INTEGERS if limits.min <= v <= limits.max]
    size = generator.choice([0, 1, 7, 1000, 70000])
    array = np.array([generator.choice(values) for _ in range(min(size, 500))], dtype)
    array = np.resize(array, size)
    predicate = generator.choice(_PREDICATES)
    ordered = generator.random() < 0.7
    devices = list(drawn.variant.devices)
    try:
        kept = gw.filter(array, predicate, devices, ordered=ordered, packet_bytes=1 << 12)
    except OperatorError as error:  # a constant that no float64 is
        if dtype.kind == "f" and "would be rounded" in str(error):
            return None
        raise
    gw.verify_filter(array, predicate, kept, ordered=ordered)
    return None


def _refused(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except InputError:
        return None
    return "must be refused by an InputError"


_ALGORITHMS: dict[str, Callable[[_Case], str | None]] = {
    "bfs": _bfs,
    "sssp": _sssp,
    "pagerank": _pagerank,
    "components": _components,
    "structure": _structure,
    "betweenness": _betweenness,
    "forest": _forest,
    "walks": _walks,
    "filter": _filter,
}
