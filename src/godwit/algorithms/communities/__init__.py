"""Communities of graphs: Louvain, Leiden, label propagation, and the modularity of any communities.

Sums are integers, and scores are rounded in one order, so a seed gives the same communities, bit for bit,
for any number of threads (cpu.py says how vertices move), and on a GPU (levels.cuh, labels.cuh): of several
the first alone computes, in the memory of all if need be. Communities are connected: what remains
unconnected in the end is divided, which only raises the modularity (Sahu, "Addressing
internally-disconnected communities in Leiden and Louvain", 2024).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Set, ValuesView
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from godwit.algorithms.checks import check_graph
from godwit.algorithms.communities import query
from godwit.algorithms.communities.levels import (
    Cores,
    Level,
    Steps,
    is_small,
    leiden_levels,
    louvain_levels,
)
from godwit.algorithms.communities.query import WeightedRows
from godwit.algorithms.communities.result import CommunitiesResult, by_size
from godwit.arrays import host_array
from godwit.dtypes import Array, as_count, as_integer, frozen
from godwit.errors import GraphTooLargeError, InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.facts import is_symmetric
from godwit.placement import PlacedGraph, names_devices
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options
from godwit.runtime.polling import RunPoll
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.supersteps.first_gpu import Outcome, run_on_first_gpu
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import GraphArgument, add_placement
from godwit.worker.solve import make_poll

_OBJECTIVES = ("modularity", "cpm")
_VARIANTS = ("parts", "cdlp")
_MOST_ITERATIONS = 1 << 20

_Find = Callable[[Steps[Any]], tuple[Any, list[Array]]]
"""Find communities on the levels of a graph; return labels, where they are, and maps between levels."""


@public
def louvain(
    graph: GraphArgument,
    resolution: float = 1.0,
    *,
    weighted: bool | None = None,
    seed: int = 0,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> CommunitiesResult:
    """Find communities of high modularity, by Louvain's method.

    >>> import godwit as gw
    >>> pairs = gw.Graph.from_edges([0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3], directed=False)
    >>> found = gw.louvain(pairs)
    >>> found.label.tolist(), round(found.modularity, 6)
    ([0, 0, 0, 1, 1, 1], 0.357143)

    Vertices move to the community of a neighbour where that raises the modularity most, then communities
    become vertices of a smaller graph, and so on (Blondel, Guillaume, Lambiotte, Lefebvre, 2008); at last
    vertices of each level move once more. A seed gives the same communities on any number of threads, on a
    GPU, on every machine. Communities are connected.

    :param graph: a graph, or one placed on devices by :func:`place`. Parallel edges add up. The modularity
        of directed graphs is that of Leicht and Newman (:func:`modularity`)
    :param resolution: weight of the term for what chance would give; more than 1: smaller communities
    :param weighted: None: edges count by their weights where the graph has some, which must not be
        negative; True: the same, and a graph without is refused; False: each edge counts 1
    :param seed: of the order in which vertices move: any integer
    :param devices: None: the first GPU, or all where the graph does not fit there; all cores where there is
        no GPU, and for graphs that are small, or too large for all GPUs. ``"cpu"`` for all cores, or
        virtual ones, each of which is a thread; or GPUs, of which the first alone computes, in the memory
        of all if need be. ``.statistics.devices`` names what computed
    :param results: where ``.label`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; compiling is not counted
    :param progress: as for :func:`bfs`: the number of visits of vertices so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.label`` (n), ``.count``, ``.sizes`` (count), ``.modularity``, ``.levels``, ``.to_dict()``,
        ``.statistics``
    :raises InputError: a negative weight, or another wrong argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the arrays do not fit into memory
    :raises RunTimeoutError: out of time
    """
    return _find(
        "louvain", graph, resolution, "modularity", louvain_levels, weighted, seed, devices,
        query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results), trace,
    )  # fmt: skip


@public
def leiden(
    graph: GraphArgument,
    resolution: float = 1.0,
    *,
    objective: str = "modularity",
    iterations: int = 2,
    weighted: bool | None = None,
    seed: int = 0,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> CommunitiesResult:
    """Find communities by Leiden's method.

    >>> import godwit as gw
    >>> pairs = gw.Graph.from_edges([0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3], directed=False)
    >>> gw.leiden(pairs).sizes.tolist()
    [3, 3]
    >>> gw.leiden(pairs, 0.5, objective="cpm").quality
    3.0

    As :func:`louvain`, but before communities become vertices, each is divided into connected parts that
    are better than single vertices, and these become vertices (Traag, Waltman, van Eck, 2019). That leads
    to a higher modularity. A vertex joins the part that suits it best, where the original draws among all
    that suit it.

    :param resolution: as for :func:`louvain`; with ``"cpm"`` the density that communities exceed
    :param objective: ``"modularity"``, or ``"cpm"``: the constant Potts model, where each pair of
        vertices of a community costs ``resolution`` and each edge within one yields its weight; in
        directed graphs, pairs are ordered
    :param iterations: 2 and more: all begins again with the communities found, which raises the modularity
        of graphs with clear communities. The first of several is rough, so 1 takes no less time than 2
    :returns: as of :func:`louvain`, and ``.quality`` by the objective

    Other parameters and errors are as for :func:`louvain`.
    """
    if not isinstance(objective, str) or objective not in _OBJECTIVES:
        raise InputError(f"objective must be 'modularity' or 'cpm', got {shown(objective)}")
    iterations = as_count(iterations, "iterations", 1, _MOST_ITERATIONS)

    def find(steps: Steps[Any]) -> tuple[Any, list[Array]]:
        return leiden_levels(steps, iterations, slow=objective == "modularity")

    return _find(
        "leiden", graph, resolution, objective, find, weighted, seed, devices,
        query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results), trace,
    )  # fmt: skip


@public
def label_propagation(
    graph: GraphArgument,
    *,
    variant: str = "parts",
    max_iterations: int | None = None,
    weighted: bool | None = None,
    seed: int = 0,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> CommunitiesResult:
    """Find communities by label propagation: vertices take the label that most neighbours have.

    >>> import godwit as gw
    >>> pairs = gw.Graph.from_edges([0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3], directed=False)
    >>> gw.label_propagation(pairs).sizes.tolist()
    [3, 3]

    The result is the same on any number of threads, on a GPU, on every machine.

    :param graph: arcs count in both directions
    :param variant: ``"parts"``: in each iteration a hash of seed and vertex divides the vertices into
        classes, which take new labels one after the other (Raghavan, Albert, Kumara, 2007, in a fixed
        order); a vertex keeps its label where no other is heavier, and else takes one of the heaviest, by a
        hash; communities that are not connected are divided. ``"cdlp"``: as LDBC Graphalytics defines it:
        all vertices take new labels at once, the most frequent of the neighbours', of several the smallest,
        an arc counts for both its ends, weights do not count, and ``.names`` has the labels
    :param max_iterations: None: 100 for ``"parts"``, or until no vertex changes; 10 for ``"cdlp"``, which
        makes exactly so many
    :param weighted: as for :func:`louvain`
    :param seed: of the hashes; ``"cdlp"`` has no use for it
    :returns: as of :func:`louvain`

    Other parameters and errors are as for :func:`louvain`.
    """
    if not isinstance(variant, str) or variant not in _VARIANTS:
        raise InputError(f"variant must be 'parts' or 'cdlp', got {shown(variant)}")
    default = 100 if variant == "parts" else 10
    iterations = default if max_iterations is None else max_iterations
    iterations = as_count(iterations, "max_iterations", 0, _MOST_ITERATIONS)
    if variant == "cdlp" and weighted:
        raise InputError("variant='cdlp' counts each arc once: weighted must be None or False")
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    seed = as_integer(seed, "seed")
    with (
        recorded(trace, "label_propagation"),
        query.on_gpus_or_threads(graph, devices) as (plain, chosen, placed),
    ):
        check_options(chosen, options.gpu, "label propagation", OF_STEPS)
        statistics = _statistics(chosen, "label_propagation")
        is_cdlp = variant == "cdlp"
        arcs = query.weighted_rows(plain, False if is_cdlp else weighted, "label_propagation")
        run = _LabelRun(plain, arcs, is_cdlp, iterations, seed, options)
        return _on_gpu_or_threads(run, chosen, placed, statistics, graph, devices)


@public
def modularity(
    graph: GraphArgument, labels: Any, *, resolution: float = 1.0, weighted: bool | None = None
) -> float:
    """Return the modularity of communities: the share of edges within them, less what chance would give.

    >>> import godwit as gw
    >>> round(gw.modularity(gw.generators.path(4), [0, 0, 1, 1]), 6)
    0.166667

    With e(c) the weight of edges within a community, k(c) the sum of the strengths of its vertices, where a
    self-loop counts twice, and m the weight of all edges, that is the sum over communities of
    ``e(c) / m - resolution * (k(c) / 2m)**2`` (Newman and Girvan, 2004; Reichardt and Bornholdt, 2006), and
    in directed graphs of ``e(c) / m - resolution * k_out(c) * k_in(c) / m**2`` (Leicht and Newman, 2008).
    Sums are exact where weights are integers; see docs/communities.md for others. Where the graph is placed
    on GPUs, the first one computes it, with the same value.

    :param labels: (n) integers, the community of each vertex by any numbers, on the host or on a GPU; a
        result; a mapping ``{vertex: number}``, or a pandas Series, whose index names vertices; or a list or
        set of communities, each a list or set of vertices
    :param resolution: as for :func:`louvain`, like ``weighted``
    :returns: NaN in a graph without arcs
    :raises InputError: a wrong shape or dtype, a negative weight, or another wrong argument
    """
    resolution = query.as_resolution(resolution)
    placed = None
    if isinstance(graph, PlacedGraph):
        graph.check_open()
        placed = graph if graph.context.devices[0].kind == "cuda" else None
        graph = graph.graph
    check_graph(graph)
    label = query.labels_below_n(_by_position(graph, labels), graph, stay=placed is not None)
    arcs = query.weighted_rows(graph, weighted, "modularity")
    if placed is not None and graph.vertex_count > 0:
        return _modularity_on_gpu(placed, arcs, label, resolution)
    return query.modularity_of(graph, arcs.rows, label.astype(graph.targets.dtype), resolution)


def _modularity_on_gpu(
    placed: PlacedGraph, arcs: WeightedRows, label: Any, resolution: float
) -> float:
    from godwit.algorithms.communities.cuda_summary import modularity_on_gpu

    placed.check_all_duplicated("modularity runs")
    weighted = len(arcs.rows.weights) > 0
    if weighted:
        placed = query.with_integer_weights(placed, arcs.rows.weights)
    return place_positions(placed).run_on_first(
        "modularity", lambda whole: modularity_on_gpu(whole, label, resolution, weighted=weighted)
    )


def _by_position(graph: Graph, labels: Any) -> Any:
    """Return labels of :func:`modularity` in the order of positions, where they are not yet.

    :raises InputError: a vertex has no label, or is in two communities
    """
    if isinstance(labels, CommunitiesResult):
        return labels
    if (
        isinstance(labels, list | tuple | Set | ValuesView)
        and labels
        and all(isinstance(c, Collection) and not isinstance(c, str) for c in labels)
    ):
        members = [graph.ids.positions(c, "a vertex of labels") for c in labels if len(c)]
        numbers = np.repeat(np.arange(len(members)), [len(one) for one in members])
        positions = np.concatenate([np.empty(0, np.int64), *members])
        if len(np.unique(positions)) < len(positions):
            again = int(np.bincount(positions).argmax())
            raise InputError(
                f"communities must not overlap, and {shown(graph.ids[again])} is in two"
            )
        labels = dict(zip(graph.ids.of(positions), numbers.tolist(), strict=True))
    return graph.ids.ordered(labels, "labels")


def _find(
    name: str, graph: GraphArgument, resolution: Any, objective: str, find: _Find, weighted: Any,
    seed: Any, devices: DevicesArgument, options: SolverOptions, trace: TraceArgument,
) -> CommunitiesResult:  # fmt: skip
    """Check arguments, and find communities."""
    resolution = query.as_resolution(resolution)
    seed = as_integer(seed, "seed")
    with (
        recorded(trace, name),
        query.on_gpus_or_threads(graph, devices) as (plain, chosen, placed),
    ):
        check_options(chosen, options.gpu, name, OF_STEPS)
        statistics = _statistics(chosen, name)
        arcs = query.weighted_rows(plain, weighted, name)
        run = _LevelsRun(plain, arcs, resolution, objective, find, seed, options)
        return _on_gpu_or_threads(run, chosen, placed, statistics, graph, devices)


class _Run(ABC):
    """A run of a method, whose result does not depend on what computes it."""

    options: SolverOptions

    @abstractmethod
    def on_threads(
        self, devices: tuple[Device, ...], statistics: RunStatistics
    ) -> CommunitiesResult:
        """Return what the CPU computes."""

    @abstractmethod
    def on_gpu(self, placed: PlacedGraph, statistics: RunStatistics) -> CommunitiesResult:
        """Return the same, computed on the first GPU."""

    @cached_property
    def _poll(self) -> RunPoll | None:
        return make_poll(self.options)

    def begin(self) -> RunPoll | None:
        """Return the time-out and progress of the run, which begins, or begins again: memory was short."""
        if self._poll is not None:
            self._poll.before = 0
        return self._poll


def _on_gpu_or_threads(
    run: _Run,
    chosen: tuple[Device, ...],
    placed: PlacedGraph | None,
    statistics: RunStatistics,
    graph: GraphArgument,
    devices: DevicesArgument,
) -> CommunitiesResult:
    """Return what a GPU computes, or cores: also where the user named no GPU, and it has no room.

    :param chosen: devices, and ``placed`` the graph on them, as of :func:`query.on_gpus_or_threads`
    :param graph: what the user gave, and ``devices``
    """
    if placed is None:
        return run.on_threads(chosen, statistics)
    try:
        if placed.graph.vertex_count > 0:
            return run.on_gpu(placed, statistics)
    except GraphTooLargeError:
        if names_devices(devices) or placed is graph:
            raise
        chosen = tuple(resolve_devices("cpu"))
        statistics.begin_on([device.name for device in chosen])
    finally:
        add_placement(statistics, placed, graph)
    return run.on_threads(chosen, statistics)


@dataclass(frozen=True)
class _LevelsRun(_Run):
    """A run of Louvain's or Leiden's method."""

    graph: Graph
    arcs: WeightedRows
    resolution: float
    objective: str
    find: _Find
    seed: int
    options: SolverOptions

    def on_threads(
        self, devices: tuple[Device, ...], statistics: RunStatistics
    ) -> CommunitiesResult:
        """Return what the CPU computes."""
        poll = self.begin()
        with statistics.phase("run"):
            cores = self._cores(query.thread_limit(devices), poll)
            label, maps = self.find(cores)
            label = self._without_negative_scores(cores, label)
            label, mass = by_size(label, query.strengths(self.graph, self.arcs.rows))
            value = query.modularity_of(
                self.graph, self.arcs.rows, label, self._weight, (cores.inside, mass)
            )
            quality = self._quality(label, value)
        _report(statistics, cores, len(maps) + 1)
        return CommunitiesResult(
            self.graph, label, maps, value, quality, statistics, self.options.location
        )

    def _without_negative_scores(self, cores: Cores, label: Array) -> Array:
        """Return communities in which no vertex has a negative score, as CPM's may at first (levels.py)."""
        if self.objective != "cpm" or cores.first.is_serial:
            return label
        return cores.without_negative_scores(label, self.seed)

    def _cores(self, threads: int | None, poll: RunPoll | None) -> Cores:
        """Return the steps of the CPU."""
        level, factor = _first_level(self.graph, self.arcs, self.resolution, self.objective)
        level.is_serial = is_small(level.vertex_count, level.arcs)
        return Cores(level, factor, self.seed, threads, poll)

    @property
    def _weight(self) -> float:
        """The resolution of the modularity that is reported."""
        return self.resolution if self.objective == "modularity" else 1.0

    def _quality(self, label: Any, modularity: float) -> float:
        """Return the quality by the objective."""
        if self.objective == "modularity":
            return modularity
        return query.potts_quality(self.graph, self.arcs, host_array(label), self.resolution)

    def on_gpu(self, placed: PlacedGraph, statistics: RunStatistics) -> CommunitiesResult:
        """Return the same, computed on the first GPU."""
        from godwit.algorithms.communities.cuda_summary import CommunitySummary
        from godwit.algorithms.communities.levels_cuda import (
            GpuSteps,
            Scores,
            downloaded_labels,
            uploaded_labels,
        )

        placed.check_all_duplicated(f"{statistics.solver} runs")
        weighted = len(self.arcs.rows.weights) > 0
        if weighted:
            placed = query.with_integer_weights(placed, self.arcs.rows.weights)
        gpu = self.options.gpu
        scores = Scores(
            partial(_factor, self.arcs, self.resolution, self.objective),
            weighted,
            _is_one_way(self.graph, self.arcs),
            self.objective == "cpm",
        )
        loops = 1 if self.graph.directed else 2

        arc_count = (1 + scores.one_way) * self.graph.arc_count

        def run(whole: Any) -> Outcome:
            poll = self.begin()
            with whole.held():
                # Memory of the summary is taken now: if it is too short, nothing has been computed.
                summary = CommunitySummary(whole, gpu, poll, weighted=weighted)
                steps: GpuSteps | Cores
                inside: int | None = None
                if is_small(self.graph.vertex_count, arc_count):
                    steps = self._cores(None, poll)
                    on_host, maps = self.find(steps)
                    label = uploaded_labels(whole, on_host)
                    seconds: dict[str, float] = {}
                else:
                    steps = GpuSteps(
                        whole, scores, loops, self.seed, gpu, poll, self.options.location
                    )
                    label, maps = self.find(steps)
                    seconds, inside = steps.seconds, steps.inside
                    if self.objective == "cpm":
                        if poll is not None:
                            poll.before = steps.visits
                        cores = self._cores(None, poll)
                        on_host = downloaded_labels(whole, label, self.graph.targets.dtype)
                        kept = self._without_negative_scores(cores, on_host)
                        steps.visits += cores.visits
                        steps.rounds += cores.rounds
                        if kept is not on_host:
                            label, inside = uploaded_labels(whole, kept), None
                if poll is not None:
                    poll.before = steps.visits
                found = summary.number(
                    label, self.options.location, resolution=self._weight, inside=inside
                )
            for phase, taken in summary.seconds.items():
                to = "summary" if phase in ("kernel", "sort") else phase
                seconds[to] = seconds.get(to, 0.0) + taken
            return Outcome((maps, found), steps.visits, 0, steps.rounds, seconds)

        maps, found = run_on_first_gpu(placed, statistics, run).values
        statistics.levels = len(maps) + 1
        with statistics.phase("run"):
            quality = self._quality(found.label, found.modularity)
        return CommunitiesResult(
            self.graph, found.label, maps, found.modularity, quality, statistics,
            self.options.location, found.sizes,
        )  # fmt: skip


def _is_one_way(graph: Graph, arcs: WeightedRows) -> bool:
    """Return True if rows do not have the reverse of each arc."""
    return not is_symmetric(graph, weighted=len(arcs.rows.weights) > 0)


def _factor(arcs: WeightedRows, resolution: float, objective: str, mass: int) -> float:
    """Return the factor of the product of masses in a score (cpu.py).

    :param mass: of all vertices
    """
    return arcs.scaled(resolution) if objective == "cpm" else resolution / max(1, mass)


def _first_level(
    graph: Graph, arcs: WeightedRows, resolution: float, objective: str
) -> tuple[Level, float]:
    """Return the level of the graph itself, and the factor of scores (cpu.py)."""
    if objective == "cdlp":
        zeros = frozen(np.zeros(graph.vertex_count, np.int64))
        return Level(arcs.rows, (zeros, zeros[:0]), graph.arc_count, graph.arc_count), 0.0
    strength = query.strengths(graph, arcs.rows)
    one_way = _is_one_way(graph, arcs)
    rows = query.both_directions(arcs.rows, graph.offsets) if one_way else arcs.rows
    arc_count = (1 + one_way) * graph.arc_count
    if objective == "labels":
        return Level(rows, (strength, strength[:0]), arc_count, arc_count), 0.0
    none = strength[:0]
    entering = query.in_strengths(arcs.rows, strength.dtype) if one_way else none
    if objective == "cpm":
        strength = frozen(np.ones_like(strength))
        entering = strength if one_way else none
    factor = _factor(arcs, resolution, objective, int(strength.sum()))
    return Level(rows, (strength, entering), arc_count, arc_count), factor


def _statistics(devices: tuple[Device, ...], name: str) -> RunStatistics:
    return RunStatistics(tuple(device.name for device in devices), name.replace("_", " "))


def _report(statistics: RunStatistics, cores: Cores, levels: int) -> None:
    """Note the work of a run; threads share it, and the first device has the visits."""
    statistics.processed_items[0] = cores.visits
    statistics.rounds[:] = cores.rounds
    statistics.levels = levels


@dataclass(frozen=True)
class _LabelRun(_Run):
    """A run of label propagation.

    :param is_cdlp: as Graphalytics defines CDLP (Iosup et al., PVLDB 9, 2016; specification 1.0, 2.3.4)
    """

    graph: Graph
    arcs: WeightedRows
    is_cdlp: bool
    iterations: int
    seed: int
    options: SolverOptions

    def on_threads(
        self, devices: tuple[Device, ...], statistics: RunStatistics
    ) -> CommunitiesResult:
        """Return what the CPU computes."""
        graph, arcs = self.graph, self.arcs
        poll = self.begin()
        with statistics.phase("run"):
            level, factor = _first_level(graph, arcs, 0.0, "cdlp" if self.is_cdlp else "labels")
            cores = Cores(level, factor, self.seed, query.thread_limit(devices), poll)
            if self.is_cdlp:
                backward = None
                if graph.directed:
                    backward = query.weighted_rows(graph.reverse, False, "label_propagation").rows
                label = cores.propagate(level, backward, self.iterations)
            else:
                cores.begin_alone(level)
                cores.move(level, rounds=self.iterations, last=0, random_ties=True)
                label = cores.split(level, frozen(cores.label))
            numbered, mass = by_size(label, query.strengths(graph, arcs.rows))
            names = None
            if self.is_cdlp:
                names = np.empty(int(numbered.max(initial=-1)) + 1, label.dtype)
                names[numbered] = label
            known = None if self.is_cdlp else (cores.inside, mass)
            value = query.modularity_of(graph, arcs.rows, numbered, 1.0, known)
        _report(statistics, cores, 1)
        return CommunitiesResult(
            graph, numbered, [], value, value, statistics, self.options.location, names=names
        )

    def on_gpu(self, placed: PlacedGraph, statistics: RunStatistics) -> CommunitiesResult:
        """Return the same, computed on the first GPU."""
        from godwit.algorithms.communities.cuda import labels_on_gpu

        placed.check_all_duplicated("label propagation runs")
        weighted = len(self.arcs.rows.weights) > 0
        if weighted:
            placed = query.with_integer_weights(placed, self.arcs.rows.weights)
        steps = place_positions(placed)
        with statistics.phase("run"):
            outcome = steps.run_on_first(
                statistics.solver,
                lambda whole: labels_on_gpu(
                    whole,
                    weighted,
                    self.is_cdlp,
                    self.iterations,
                    self.seed,
                    self.options.gpu,
                    self.options.location,
                    self.begin(),
                ),
            )
        statistics.begin_on(statistics.devices[:1])
        statistics.split_run(outcome.seconds)
        statistics.rounds[:] = outcome.supersteps
        statistics.processed_items[0] = outcome.visited
        statistics.levels = 1
        found = outcome.summary
        return CommunitiesResult(
            self.graph, found.label, [], found.modularity, found.modularity, statistics,
            self.options.location, found.sizes, found.names,
        )  # fmt: skip
