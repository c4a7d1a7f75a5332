"""Louvain and Leiden over levels, each of whose vertices are communities, or parts, of the level below.

Louvain (Blondel, Guillaume, Lambiotte, Lefebvre, J. Stat. Mech. P10008, 2008): move vertices to better
communities, then make a vertex of each community, until none moves. On the way back down, vertices of each
level move again (multilevel refinement: Rotta, Noack, ACM JEA 16, 2011). Leiden (Traag, Waltman, van Eck,
Sci. Rep. 9:5233, 2019) refines the communities into connected parts first, makes a vertex of each part,
which begins in its community, and can begin again with the communities that it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from godwit import config
from godwit.algorithms.communities import cpu, serial
from godwit.algorithms.communities.query import exact_sum
from godwit.dtypes import Array, frozen
from godwit.graph.rows import SMALL_ARCS, require_memory
from godwit.runtime.cpu.team import WORDS_PER_LINE, run_team

_LEAST_CLASSES = cpu.LEAST_CLASSES
"""Classes of a round where rows are short: more lead to better communities, but rows are read in pieces."""
LABEL_CLASSES = cpu.MOST_JOINED_CLASSES
"""Classes of a round where rows are long, and of label propagation."""
SMALL_VERTICES = 1 << 16
"""Vertices up to which a level has all classes: few vertices that move at once miss their best places."""
SERIAL_ARCS = 1 << 22
"""Arcs up to which a level above the first, of no more than SMALL_VERTICES, is one thread's (serial.py)."""
_BRIEF_WORK = 1 << 18
"""Rows and arcs of a level below which all of its rounds together take a few milliseconds."""
_LONE_WORK = 100_000
"""Vertices and arcs of a small graph below which threads would wait for each other most of the time."""
MOST_ROUNDS = 32
_LAST_MOVES, _LAST_MOVES_UPWARD, _LAST_MOVES_AGAIN = 256, 64, 8
"""A round in which no more than a 256th of the vertices move is the last one of a level; on the way up
a 64th of those of a large level, which move once more on the way down, and an eighth where another
iteration follows."""
_VAST_VERTICES = 1 << 19
_LAST_MOVED_ARCS = 3
"""On the way up through a level of more vertices, a round is the last as well if those that move, 1 in 8 at
most, have no more than a third as many arcs as there are vertices, were all rows equally long."""
_LAST_MERGES = 1024
"""A level that merges no more than 1 / LAST_MERGES of its vertices is the last one."""
_SMALL_GRAPH_ARCS = 1 << 21
"""Arcs up to which a graph of no more than 2 * SMALL_VERTICES is small: one thread begins several times."""
_STARTS = 4
"""Partitions of a small graph, of which every second one grows slowly."""
_AGREEMENTS = 2
"""Levels of a small graph whose vertices are what all of its partitions leave together."""
_SCALES = (10.0, 3.0)
"""Where communities grow slowly, resolution counts so many times at the lowest levels."""
_CLEAR_MODULARITY = 0.5
"""Modularity from which on the communities of an iteration are clear; random graphs have less."""
_NEXT_SEED = 0x9E3779B97F4A7C15
_START_SEED = 1 << 56
"""Between the seeds of work that is done at the same time."""

Found = TypeVar("Found")


class HasVertices(Protocol):
    """A level, wherever its arrays are."""

    @property
    def vertex_count(self) -> int:
        """Number of vertices, n."""

    @property
    def arcs(self) -> int:
        """Number of arcs."""


@dataclass
class Level:
    """A graph whose vertices have a mass, or two.

    :param rows: arcs, both directions of each edge; of vertices that have none, the last may be left out
    :param mass: (n) of the dtype of all sums, and the same for in-arcs; the second is empty where there is
        one mass
    :param arcs: number of arcs; where rows have both directions, twice that of the graph, though an arc
        from a vertex to itself occurs once in them
    :param bound: of the first level its number of arcs, else that of the level below, which is no less
    :param is_serial: one thread moves and joins its vertices
    :ivar above: the vertex of the next level of each vertex, once there is that level
    """

    rows: cpu.Rows
    mass: tuple[Array, Array]
    arcs: int
    bound: int
    is_serial: bool = False
    above: Array | None = None

    @property
    def vertex_count(self) -> int:
        """Number of vertices, n."""
        return len(self.mass[0])

    @property
    def row_count(self) -> int:
        """Number of vertices that have rows; those after them have no arcs."""
        return len(self.rows.begins)

    @property
    def ids(self) -> np.dtype[Any]:
        """Dtype of vertices."""
        return self.rows.targets.dtype

    @property
    def sums(self) -> np.dtype[Any]:
        """Dtype of masses, sums of them, and sums of weights."""
        return self.mass[0].dtype

    def totals(self, label: Array) -> tuple[Array, Array]:
        """Return the masses of communities; sums are below 2^53, and exact."""
        out, into = (
            np.bincount(label, weights=mass, minlength=len(mass)).astype(mass.dtype)
            if len(mass)
            else np.zeros(0, mass.dtype)
            for mass in self.mass
        )
        return out, into


class Cores:
    """Steps of the methods on the cores of the CPU, with memory that all levels share.

    :param level: the first level, which is the largest
    :param factor: of the product of masses in a score (cpu.py)
    :param seed: any integer
    :param threads: upper limit; None: all of the process
    :param poll: called now and then with the number of vertices visited; an exception ends the run
    :ivar label: the community of each vertex of the level that the latest step was about
    :ivar word: of which the seed of the next rounds is made
    :ivar visits: number of visits of vertices that looked for a better community
    :ivar rounds: number of rounds of these
    :ivar inside: weight of the arcs within the communities that were divided last
    """

    def __init__(
        self,
        level: Level,
        factor: float,
        seed: int,
        threads: int | None,
        poll: Callable[[int], None] | None,
    ) -> None:
        n, ids, sums = level.vertex_count, level.ids, level.sums
        self.first = level
        self.label = self._part = np.empty(0, ids)
        self._total = level.mass
        self._most_threads = config.thread_count() if threads is None else threads
        self._threads = self._most_threads
        self._threads = self._threads_for(level)
        self._poll = poll
        self._factor = factor
        self.word = seed % 2**64
        size = sums.itemsize
        each, shared = n * (size + ids.itemsize), n * (size + 6 * ids.itemsize)
        while (
            self._threads > 1
            and config.missing_memory_bytes(self._threads * each + shared) is not None
        ):
            self._threads -= 1
        require_memory(self._threads * each + shared, f"communities of {n:,} vertices")
        self._sums = np.zeros((self._threads, n), sums)
        self._touched = np.empty((self._threads, n), ids)
        self._window = (
            np.empty((self._threads, cpu.WINDOW_ARCS), ids),
            np.empty((self._threads, cpu.WINDOW_ARCS), sums),
            np.empty((self._threads, cpu.CHUNK), np.int64),
        )
        self.visits = 0
        self.rounds = 0
        self.inside = 0

    def _threads_for(self, level: Level) -> int:
        is_small = level.vertex_count < LABEL_CLASSES * cpu.ALONE_VERTICES
        is_small |= level.is_serial or level.arcs < SMALL_ARCS
        return 1 if is_small else self._threads

    def _next_seed(self) -> np.uint64:
        """Return another seed at each call."""
        self.word = first_word(self.word)
        return np.uint64(self.word)

    def _run(
        self,
        kernel: Any,
        level: Level,
        *arguments: Any,
        tallies: Array | None = None,
        threads: int | None = None,
    ) -> list[Any]:
        """Run a kernel; the fourth of its tallies counts visits, the third rounds.

        :param threads: None: as the level is large
        """
        poll, before = self._poll, self.visits
        if poll is not None:
            poll(before)  # each of many kernels may end before the next poll
        tally = np.zeros(4, np.int64) if tallies is None else tallies
        found = run_team(
            kernel,
            *arguments,
            threads=self._threads_for(level) if threads is None else threads,
            poll=None if poll is None else lambda: poll(before + int(tally[3])),
            brief=level.row_count + level.arcs < _BRIEF_WORK,
        )
        self.rounds += int(tally[2])
        self.visits += int(tally[3])
        return found

    def _cursors(self, level: Level) -> Array:
        """Return how many vertices of each thread's share are claimed: none."""
        return np.zeros(self._threads_for(level) * WORDS_PER_LINE, np.int64)

    def _scratch(
        self, level: Level, active: Array, most: int, scale: float = 1.0
    ) -> tuple[Any, ...]:
        """Return what rounds need: active vertices, and arrays from ``order`` to ``classes`` (cpu.py).

        :param most: classes where there are few vertices
        :param scale: of the factor
        """
        n = level.vertex_count
        classes = class_count(n, level.bound, most)
        return (
            active, np.empty(n, level.ids), np.empty(n, level.ids),
            np.zeros((self._threads_for(level), cpu.MOST_CLASSES + 1), np.int64), self._cursors(level),
            self._sums, self._touched, self._window, self._factor * scale, self._next_seed(), classes,
        )  # fmt: skip

    def apart(self, count: int) -> list[Cores]:
        """Return steps with communities, seeds and memory of their own, for work at the same time."""
        word = int(self._next_seed())
        return [
            Cores(self.first, self._factor, word + number * _START_SEED, 1, None)
            for number in range(count)
        ]

    def all_of(
        self, level: Level, tasks: Sequence[Callable[[], Found]], others: list[Cores]
    ) -> list[Found]:
        """Return what functions return that work on a level, each by one thread.

        :param others: the steps that they take, whose work is counted
        """
        poll, before = self._poll, self.visits
        size = 1 if level.vertex_count + level.arcs < _LONE_WORK else self._most_threads
        size = min(size, len(tasks))
        found = run_team(
            _every,
            tasks,
            threads=size,
            poll=None if poll is None else lambda: poll(before + sum(one.visits for one in others)),
            brief=size == 1,
        )
        self.rounds += sum(one.rounds for one in others)
        self.visits += sum(one.visits for one in others)
        return [found[number % size][number // size] for number in range(len(tasks))]

    def begin_alone(self, level: Level) -> None:
        """Make each vertex of a level a community."""
        self.label = np.arange(level.vertex_count, dtype=level.ids)
        self._total = _copies(level.mass)

    def take(self, level: Level, label: Array) -> None:
        """Take the communities of a level from elsewhere."""
        self.label = label
        self._total = level.totals(label)

    def move(
        self,
        level: Level,
        *,
        scale: float = 1.0,
        rounds: int = MOST_ROUNDS,
        upward: bool = False,
        again: bool = False,
        aggregated: bool = False,
        last: int | None = None,
        random_ties: bool = False,
    ) -> None:
        """Move the vertices of a level to better communities.

        :param scale: resolution counts so many times
        :param rounds: at most so many
        :param upward: as for :func:`enough_moves`, like ``again``
        :param aggregated: :meth:`aggregate` comes next
        :param last: a round with this number of moves is the last; None: the default
        :param random_ties: of communities of equal score a hash chooses, not the smallest id
        """
        if level.is_serial:
            self._move_serially(
                level, np.empty(0, np.uint8), rounds, enough_moves(level.row_count, level.bound),
                self._factor * scale, self._next_seed(),
            )  # fmt: skip
            return
        n, rows = level.vertex_count, level.rows
        tallies = np.zeros(4, np.int64)
        most = LABEL_CLASSES if random_ties else cpu.MOST_CLASSES
        scratch = self._scratch(level, np.empty(n + 1, np.uint8), most, scale)
        if last is None:
            last = enough_moves(n, level.bound, upward=upward, again=again)
        self._run(
            cpu.move_vertices, level, *rows, level.mass, self.label, self._total, *scratch, rounds,
            last, random_ties, tallies, tallies=tallies,
        )  # fmt: skip

    def _move_serially(
        self, level: Level, first: Array, rounds: int, last: int, factor: float, seed: np.uint64
    ) -> None:
        tallies = np.zeros(4, np.int64)
        active = np.zeros(level.row_count // 32 + 1, np.uint64)
        self._run(
            serial.move_vertices, level, *level.rows, level.mass, self.label, self._total, active,
            self._sums[0], self._touched[0], factor, seed, first, rounds, last, tallies, tallies=tallies,
            threads=1,
        )  # fmt: skip

    def refine(self, level: Level) -> None:
        """Divide the communities of a level into connected parts."""
        n = level.vertex_count
        self._part = np.arange(n, dtype=level.ids)
        if level.is_serial:
            self._run(
                serial.refine_communities, level, *level.rows, level.mass, self.label, self._total,
                self._sums[0], self._touched[0], self._factor, self._next_seed(), self._part,
                _copies(level.mass), np.zeros(level.row_count, np.uint8),
            )  # fmt: skip
            return
        active = (level.rows.ends > level.rows.begins).view(np.uint8)
        self._run(
            cpu.refine_communities, level, *level.rows, level.mass, self.label, self._total,
            *self._scratch(level, active, cpu.MOST_CLASSES), self._part,
            _copies(level.mass), np.zeros(n, np.uint8),
        )  # fmt: skip

    def count_communities(self, level: Level) -> int:
        """Return the number of communities of a level."""
        return self._number(level, self.label, np.empty(0, level.ids))

    def _number(self, level: Level, label: Array, above: Array) -> int:
        """Return the number of communities, or parts; ``above``, if not empty, becomes their numbers."""
        # Vertices without rows are communities of their own, and the last ones.
        with_rows = level.row_count
        counts = np.zeros(self._threads_for(level), np.int64)
        self._run(
            cpu.number_communities, level, label[:with_rows], np.zeros(with_rows, np.uint8), counts,
            np.empty_like(above), above,
        )  # fmt: skip
        return int(counts.sum()) + level.vertex_count - with_rows

    def aggregate(self, level: Level, *, parts: bool = False) -> Level | None:
        """Return the level whose vertices are the communities, or parts; None if all have one vertex."""
        label = self._part if parts else self.label
        if level.is_serial:
            return self._aggregate_serially(level, label)
        n, ids = level.vertex_count, level.ids
        above = np.empty(n, ids)
        count = self._number(level, label, above)
        if count == n:
            return None
        room = cpu.room_for(level.arcs, self._threads_for(level))
        require_memory(
            room * (level.sums.itemsize + ids.itemsize), f"a graph of {count:,} communities"
        )
        begins, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        targets, weights = np.empty(room, ids), np.empty(room, level.sums)
        mass = tuple(np.empty(count if len(one) else 0, one.dtype) for one in level.mass)
        used = np.zeros(1, np.int64)
        written = self._run(
            cpu.aggregate, level, *level.rows, level.mass, above, np.empty(count, np.int64),
            np.empty(n, ids), np.empty(self._threads_for(level), np.int64), self._sums, self._touched,
            used, begins, ends, targets, weights, mass,
        )  # fmt: skip
        rows = cpu.Rows(begins, ends, targets[: used[0]], weights[: used[0]])
        level.above = above
        arcs = sum(written)
        return Level(
            cpu.Rows(*map(frozen, rows)),
            (frozen(mass[0]), frozen(mass[1])),
            arcs,
            level.arcs,
            is_serial(count, arcs),
        )

    def _aggregate_serially(self, level: Level, label: Array) -> Level | None:
        n, rows, ids = level.vertex_count, level.row_count, level.ids
        begins, ends = np.empty(rows, np.int64), np.empty(rows, np.int64)
        targets, weights = np.empty(level.arcs, ids), np.empty(level.arcs, level.sums)
        above = np.empty(n, ids)
        mass = tuple(np.empty_like(one) for one in level.mass)
        counts = np.zeros(3, np.int64)
        self._run(
            serial.aggregate, level, *level.rows, level.mass, label, np.zeros(rows + 1, ids),
            np.empty(rows, ids), self._sums[0], self._touched[0], above, begins, ends, targets, weights,
            mass, counts,
        )  # fmt: skip
        count, with_rows, arcs = counts.tolist()
        if count == n:
            return None
        level.above = above
        kept = cpu.Rows(begins[:with_rows], ends[:with_rows], targets[:arcs], weights[:arcs])
        return Level(
            cpu.Rows(*map(frozen, kept)),
            (frozen(mass[0][:count]), frozen(mass[1][:count])),
            arcs,
            level.arcs,
            True,
        )

    def modularity(self, level: Level) -> float:
        """Return the modularity of communities that are the vertices of a level; 0 if many threads have it.

        With a resolution of 1, where masses are strengths of vertices.
        """
        out, into = level.mass[0], level.mass[-1] if len(level.mass[1]) else level.mass[0]
        total = int(out.sum())
        if not level.is_serial or total == 0:
            return 0.0
        leaving = np.empty(level.row_count, np.int64)
        self._run(cpu.vertex_strengths, level, *level.rows, 1, leaving)
        between = int(leaving.sum()) / (2 if len(level.mass[1]) else 1)
        return 1 - between / total - exact_sum((out / total) * (into / total))

    def quality(self, level: Level) -> float:
        """Return what moves have raised: by it partitions of a level compare."""
        inside = sum(self._run(cpu.inner_weight, level, *level.rows, self.label))
        out, into = (total.astype(np.float64) for total in self._total)
        squares = out * out if len(into) == 0 else 2 * (out * into)
        return float(inside) - self._factor * exact_sum(squares)

    def _rename(self, level: Level, above: Level, *, lifts: bool) -> None:
        old, high = self.label, above if lifts else level
        # Vertices without rows are communities of their own, and the last ones of both levels.
        apart = level.vertex_count - level.row_count
        self.label = np.empty(high.vertex_count, high.ids)
        old_total, self._total = self._total, (
            np.empty_like(high.mass[0]), np.empty_like(high.mass[1]),
        )  # fmt: skip
        self._run(
            cpu.rename_communities, level, old, level.above, lifts,
            self._touched, apart, high.mass, self.label, old_total, self._total,
        )  # fmt: skip

    def lift(self, level: Level, above: Level) -> None:
        """Give the vertices of the next level the communities of their members."""
        self._rename(level, above, lifts=True)

    def lower(self, level: Level, above: Level) -> None:
        """Give the vertices of a level the communities that those of the next level have."""
        self._rename(level, above, lifts=False)

    def vertices_above(self, levels: Sequence[Level]) -> list[Array]:
        """Return the vertex of the next level of each vertex, by level."""
        return [cast("Array", level.above) for level in levels]

    def communities(self) -> Array:
        """Return a vertex of the community of each vertex of the first level.

        Communities that are not connected are divided.
        """
        return self.split(self.first, frozen(self.label))

    def without_negative_scores(self, label: Array, seed: int) -> Array:
        """Return communities of the first level after all vertices whose score is negative have moved.

        Vertices that join a community at the same time may be too many for it where masses are not
        strengths, and a vertex all of whose neighbours are there is not visited again.

        :param label: a vertex of each vertex's community; returned if there are no such vertices
        :param seed: of the order in which they move, one by one
        """
        level = self.first
        self.take(level, label.copy())
        found = np.zeros(level.row_count, np.uint8)
        count = sum(
            self._run(
                cpu.find_negative_scores, level, *level.rows, level.mass, self.label, self._total,
                self._factor, found,
            )
        )  # fmt: skip
        if count == 0:
            return label
        self._move_serially(level, found, MOST_ROUNDS, 0, self._factor, np.uint64(first_word(seed)))
        return self.communities()

    def propagate(self, level: Level, backward: cpu.Rows | None, iterations: int) -> Array:
        """Return the label of each vertex after iterations of synchronous label propagation.

        :param backward: in-arcs, which count as well
        """
        n = level.vertex_count
        labels = np.arange(n, dtype=level.ids), np.empty(n, level.ids)
        none = frozen(np.empty(0, np.int64)), frozen(np.empty(0, level.ids))
        rows = (none[0], none[0], none[1]) if backward is None else backward[:3]
        tallies = np.zeros(4, np.int64)
        self._run(
            cpu.propagate_labels, level, *level.rows[:3], *rows, *labels,
            np.zeros(2 * WORDS_PER_LINE, np.int64), self._sums, self._touched, iterations, tallies,
            tallies=tallies,
        )  # fmt: skip
        return labels[iterations % 2]

    def split(self, level: Level, label: Array) -> Array:
        """Return the smallest vertex of the connected part of each vertex's community."""
        parent = np.empty(level.vertex_count, level.ids)
        found = self._run(
            cpu.split_communities, level, *level.rows, label, parent, self._cursors(level)
        )
        self.inside = sum(found)
        return parent


def _every(rank: int, size: int, control: Any, tasks: Sequence[Callable[[], Found]]) -> list[Found]:
    """Call every ``size``-th function, from that of a thread's rank on; return what they return."""
    return [task() for task in tasks[rank::size]]


def _copies(mass: tuple[Array, Array]) -> tuple[Array, Array]:
    return mass[0].copy(), mass[1].copy()


def first_word(seed: int) -> int:
    """Return the seed of the first rounds of a run: 64 bits."""
    return (seed + _NEXT_SEED) % 2**64


def is_serial(vertices: int, arcs: int) -> bool:
    """Return True if a level above the first is one thread's, on a computer with a GPU as without."""
    return vertices <= SMALL_VERTICES and arcs <= SERIAL_ARCS


def is_small(vertices: int, arcs: int) -> bool:
    """Return True if a graph is one thread's, on a computer with a GPU as without."""
    return vertices <= 2 * SMALL_VERTICES and arcs <= _SMALL_GRAPH_ARCS


def _is_large(level: HasVertices) -> bool:
    """Return True if the first level is neither small nor dense."""
    n = level.vertex_count
    return n > SMALL_VERTICES and not is_small(n, level.arcs)


def enough_moves(vertices: int, arcs: int, *, upward: bool = False, again: bool = False) -> int:
    """Return the number of moves of a round that is the last one of a level, if there are no more.

    :param arcs: ``bound`` of the level
    :param upward: the vertices move once more on the way down
    :param again: another iteration follows
    """
    if not upward or vertices <= SMALL_VERTICES:
        return vertices // _LAST_MOVES
    if again:
        return vertices // _LAST_MOVES_AGAIN
    enough = vertices // _LAST_MOVES_UPWARD
    if vertices <= _VAST_VERTICES:
        return enough
    return max(
        enough, min(vertices // _LAST_MOVES_AGAIN, vertices**2 // (_LAST_MOVED_ARCS * max(1, arcs)))
    )


def class_count(vertices: int, arcs: int, most: int) -> int:
    """Return the number of classes of a round in which all vertices of a level are active.

    :param arcs: ``bound`` of the level
    :param most: of few vertices
    """
    if vertices <= SMALL_VERTICES:
        return most
    classes = _LEAST_CLASSES
    while classes < LABEL_CLASSES and classes * vertices < 2 * arcs:
        classes *= 2
    return classes


StepLevel = TypeVar("StepLevel", bound=HasVertices)


class Steps(Protocol[StepLevel]):
    """Steps of the methods, wherever they run; the communities that they change stay there."""

    first: StepLevel

    def begin_alone(self, level: StepLevel) -> None:
        """Make each vertex of a level a community."""

    def move(
        self,
        level: StepLevel,
        *,
        scale: float = 1.0,
        upward: bool = False,
        again: bool = False,
        aggregated: bool = False,
    ) -> None:
        """Move the vertices of a level to better communities; resolution counts ``scale`` times.

        :param upward: as for :func:`enough_moves`, like ``again``
        :param aggregated: :meth:`aggregate` comes next
        """

    def refine(self, level: StepLevel) -> None:
        """Divide the communities of a level into connected parts."""

    def count_communities(self, level: StepLevel) -> int:
        """Return the number of communities of a level."""

    def aggregate(self, level: StepLevel, *, parts: bool = False) -> StepLevel | None:
        """Return the level whose vertices are the communities, or parts; None if all have one vertex."""

    def modularity(self, level: StepLevel) -> float:
        """Return the modularity of communities that are the vertices of a small level; 0 of others."""

    def lift(self, level: StepLevel, above: StepLevel) -> None:
        """Give the vertices of the next level the communities of their members."""

    def lower(self, level: StepLevel, above: StepLevel) -> None:
        """Give the vertices of a level the communities that those of the next level have."""

    def vertices_above(self, levels: Sequence[StepLevel]) -> list[Any]:
        """Return the vertex of the next level of each vertex, by level, where the result is to be.

        :param levels: the first ones
        """

    def communities(self) -> Any:
        """Return a vertex of the community of each vertex of the first level, where that is.

        Communities that are not connected are divided.
        """


def _merge(
    steps: Steps[StepLevel], levels: list[StepLevel], scales: tuple[float, ...] = ()
) -> None:
    """Add levels whose vertices are the communities of the level below, until none moves: Louvain's way up.

    :param levels: of the last one vertices have moved
    :param scales: resolution counts so many times at the next levels
    """
    while True:
        level = levels[-1]
        above = steps.aggregate(level)
        if above is None:
            if not scales:
                return
            above = level
        else:
            levels.append(above)
        steps.begin_alone(above)
        merged = level.vertex_count - above.vertex_count
        if not scales and merged <= level.vertex_count // _LAST_MERGES:
            return
        scale = scales[0] if scales else 1.0
        steps.move(above, scale=scale, upward=True, aggregated=True)
        scales = scales[1:]


def _start(cores: Cores, level: Level, *, slow: bool) -> tuple[Array, float]:
    """Return a partition of a level of a small graph, and its quality.

    :param slow: communities grow slowly
    """
    scales = _SCALES if slow else (1.0,)
    level = replace(level)  # which has a next level of its own
    cores.begin_alone(level)
    cores.move(level, scale=scales[0])
    above = [level]
    _merge(cores, above, scales[1:])
    _move_downwards(cores, above)
    return cores.label, cores.quality(level)


def _from_starts(cores: Cores, *, slow: bool) -> list[Level]:
    """Return the first levels of a small graph: a vertex of the next one is what all starts agree on.

    Partitions that begin with other seeds err in other places; what all of them leave together belongs
    together (Ovelgoenne, Geyer-Schulz, "An ensemble learning strategy for graph clustering", 2012). The
    communities of the best of them go on from there. In small graphs with hubs, communities that are large
    at the first level keep what later levels cannot part, while random graphs lose by growing slowly: so
    every second start does.

    :param slow: where masses are strengths, it may be of use
    """
    cores.begin_alone(cores.first)
    levels = [cores.first]
    for _ in range(_AGREEMENTS):
        level = levels[-1]
        n = level.vertex_count
        starts = cores.apart(_STARTS)
        tasks = [
            partial(_start, one, level, slow=slow and number % 2 == 0)
            for number, one in enumerate(starts)
        ]
        agreed, best, best_quality = np.zeros(n, np.int64), cores.label, cores.quality(level)
        for label, quality in cores.all_of(level, tasks, starts):
            agreed = np.unique(agreed * n + label, return_inverse=True)[1]
            if quality > best_quality:
                best, best_quality = label, quality
        vertices = np.unique(agreed, return_index=True)[1].astype(level.ids)
        cores.take(level, vertices[agreed])
        joined = cores.aggregate(level)
        cores.take(level, best)
        if joined is None:
            break
        cores.lift(level, joined)
        cores.take(joined, cores.label)  # communities may divide what partitions agree on
        levels.append(joined)
        cores.move(joined)
        if joined.arcs > _SMALL_GRAPH_ARCS // 2:  # partitions agree on little, in random graphs
            break
    return levels


def _begin(
    steps: Steps[StepLevel], *, slow: bool, again: bool = False, aggregated: bool = True
) -> list[StepLevel]:
    """Return the first levels, of the last of which vertices have moved.

    :param slow: as of :func:`_from_starts`
    :param again: as for :func:`enough_moves`
    :param aggregated: communities of the last level are aggregated next
    """
    on_cores: Any = steps
    if isinstance(on_cores, Cores) and on_cores.first.is_serial:
        return cast("list[StepLevel]", _from_starts(on_cores, slow=slow))
    steps.begin_alone(steps.first)
    steps.move(steps.first, upward=True, again=again, aggregated=aggregated)
    return [steps.first]


def louvain_levels(steps: Steps[StepLevel]) -> tuple[Any, list[Any]]:
    """Return the community of each vertex, by an id, and maps from the vertices of a level to the next."""
    levels = _begin(steps, slow=True)
    _merge(steps, levels)
    return _moved_downwards(steps, levels)


def leiden_levels(steps: Steps[StepLevel], iterations: int, *, slow: bool) -> tuple[Any, list[Any]]:
    """Return the same of Leiden's method.

    The first of several iterations over a large graph is rough: rounds end early, communities are not
    divided, and vertices do not move on the way down. Where its communities are clear, the second one
    leaves the vertices of the second level together, which has far fewer arcs than the first. Where they
    are not, it divides the first level, and no other large one: parts have nearly as many arcs as the
    vertices that they are made of. Between iterations, vertices of a large first level do not move.

    :param slow: masses are strengths
    """
    is_rough = iterations > 1 and _is_large(steps.first)
    levels = _begin(steps, slow=slow, again=is_rough, aggregated=is_rough)
    for iteration in range(iterations):
        lowest, divides_all = 0, True
        if is_rough and iteration == 1 and slow and len(levels) > 1:
            divides_all = steps.modularity(levels[-1]) >= _CLEAR_MODULARITY
            lowest = int(divides_all)
        if iteration > 0:
            _move_downwards(steps, levels[lowest:], first=False, moves=not is_rough)
            levels = levels[: lowest + 1]
        is_rough = is_rough and iteration == 0
        while True:
            level = levels[-1]
            n = level.vertex_count
            divides = divides_all or len(levels) == lowest + 1 or n <= SMALL_VERTICES
            above = None
            if divides and not is_rough:
                if steps.count_communities(level) == n:
                    break
                steps.refine(level)
                above = steps.aggregate(level, parts=True)
            if above is None:  # or no part has two vertices
                above = steps.aggregate(level)
            if above is None:
                break
            steps.lift(level, above)
            levels.append(above)
            if n - above.vertex_count <= n // _LAST_MERGES:
                break
            steps.move(above, upward=True, again=is_rough, aggregated=is_rough)
    return _moved_downwards(steps, levels)


def _move_downwards(
    steps: Steps[StepLevel], levels: list[StepLevel], *, first: bool = True, moves: bool = True
) -> None:
    """Take the communities of the last level to the first one given.

    :param first: vertices of the graph itself move where that is large
    :param moves: vertices of each level move once more
    """
    for level, above in zip(levels[-2::-1], levels[:0:-1], strict=True):
        steps.lower(level, above)
        if moves and (first or level is not steps.first or not _is_large(level)):
            steps.move(level)


def _moved_downwards(steps: Steps[StepLevel], levels: list[StepLevel]) -> tuple[Any, list[Any]]:
    """Do the same; return communities, and maps from the vertices of a level to the next."""
    _move_downwards(steps, levels)
    maps = steps.vertices_above(levels[:-1])
    return steps.communities(), maps
