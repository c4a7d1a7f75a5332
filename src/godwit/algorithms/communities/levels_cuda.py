"""Louvain's and Leiden's steps on one GPU: arguments and results of levels.cuh.

A superstep takes as long as a core needs for hundreds of vertices, and small levels have thousands of
supersteps a round. So cores take over small levels, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.communities.cpu import MOST_CLASSES, Rows
from godwit.algorithms.communities.cuda_summary import require_short_labels
from godwit.algorithms.communities.levels import (
    MOST_ROUNDS,
    Cores,
    Level,
    class_count,
    enough_moves,
    first_word,
    is_serial,
)
from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.one_gpu import OneGpuPlan, Preparation, compiling
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import VertexValues, deliver_items, deliver_vertices
from godwit.supersteps.run import state_words, step_source

ARGUMENTS = struct_dtype("algorithms/communities/levels.cuh", "Arguments")

_THREADS = 512
"""Threads of a block: a multiprocessor runs two blocks, and each visits a long row at a time."""
_WARP_SLOTS = 512
_MOST_HUGE = 32
_MOST_BINS = 5 * MOST_CLASSES
_COUNTERS_BYTES = 7 * 8 + 4 * 4 + 8 * MOST_CLASSES + 3 * 4 * _MOST_BINS
_LONG_ROW_STATE_BYTES = 32
_BIG_BYTES = 24
_LONG_ROW_ARCS, _LONG_ROW_BYTES = 256, 32
_MOST_ARENA_BYTES = 1 << 26
"""Upper limit of the tables of long rows, unless one alone is larger; rounds begin with their clearing."""
_JOINED = ("members", "member_counts", "member_ends", "dense", "sparse", "block_list", "old")
"""Words by vertex that aggregation has where the list of vertices is otherwise."""
_ROOM_ABOVE = 1 << 22
"""Vertices of a level up to which there is room for as many of the next one before they are counted."""
_EXCHANGED = (("label", "other"), ("total", "other_total"), ("in_total", "in_other_total"))
"""Arrays that change places whenever communities go to another level."""


class Phase(IntEnum):
    """``LevelPhase`` of the kernel."""

    (
        FIRST_LEVEL, FIRST_ARCS, BEGIN_ALONE, MOVE_BEGIN, MOVE_COUNT, MOVE_LIST, MOVE_DECIDE, MOVE_ADD,
        MOVE_CHOOSE, MOVE_TAKE, GROUP_CLEAR, GROUP_MARK, GROUP_COUNT, GROUP_NUMBER, JOIN_CLEAR,
        JOIN_COUNT, JOIN_LAYOUT, JOIN_PLACES, JOIN_MEMBERS, JOIN_ROWS, JOIN_BIGS, JOIN_END,
        RENAME_CLEAR, RENAME_LIFT, RENAME_FIRST, RENAME_WRITE, SPLIT_BEGIN, SPLIT_LINKED, SPLIT_JOIN,
        SPLIT_NAME,
    ) = range(30)  # fmt: skip


class Word(IntEnum):
    """Words of ``control->state``: ``LevelState`` of the kernel."""

    (
        SEED, ROUNDS, ENOUGH, REFINES, GROUPS, MOST_ABOVE, ROUND, START, MOVED, CLASS, CLASSES,
        PREVIOUS, LONG_BEGIN, LONG_END, LONG_ROWS, FOUND, ARCS, ROOM, LONGEST, LONG_CHUNKS, SLOTS,
        TEAM, SINGLE,
    ) = range(23)  # fmt: skip


class Count(IntEnum):
    """Indices of the counts of a block: ``LevelCount`` of the kernel."""

    VISITED, MOVES, NAMES, BOUND, UNDECIDED, LISTINGS = range(6)


def source(id_dtype: Any, *, wide: bool, one_way: bool) -> str:
    """Return the source of the kernel.

    :param id_dtype: of positions
    :param wide: sums of weights have 64 bits
    :param one_way: arcs count in both directions, and there are two masses
    """
    text = step_source(
        "algorithms/communities/renaming.cuh",
        types={"Id": c_type(np.dtype(id_dtype)), "WeightSum": "u64" if wide else "u32"},
        work="grid_levels",
        enums=(Phase, Word, Count),
    )
    return f"""constexpr bool ONE_WAY = {str(one_way).lower()};
{text}
static_assert(WARP_SLOTS == {_WARP_SLOTS} && MOST_HUGE == {_MOST_HUGE});
static_assert(VertexLists::MOST_BINS == {_MOST_BINS});
static_assert(sizeof(LevelCounters) == {_COUNTERS_BYTES} && sizeof(Big) == {_BIG_BYTES});
static_assert(sizeof(LongRow) == {_LONG_ROW_STATE_BYTES});
static_assert(sizeof(Listed) == {_listed_bytes(wide=wide, one_way=one_way)});
"""


def _words(word: Word, value: int) -> list[int]:
    """Return the first words of a state, of which one is not 0."""
    return [0] * word + [value]


def _listed_bytes(*, wide: bool, one_way: bool) -> int:
    """Return the size of ``Listed``."""
    sums = 8 if wide else 4
    return 4 * 4 + 2 * sums + (16 + 8 * wide if one_way else 0)


def downloaded_labels(placement: StepPlacement, label: DeviceArray, ids: np.dtype[Any]) -> Array:
    """Return the smallest vertex of each vertex' community, of labels by position on the only GPU.

    :param label: uint32, numbers below ``placement.capacity`` of communities
    :param ids: dtype of vertices
    """
    by_vertex: Array = deliver_vertices(placement, label, np.int32, ResultLocation())[0]
    smallest = np.empty(placement.capacity, ids)
    smallest[by_vertex[::-1]] = np.arange(len(by_vertex), dtype=ids)[::-1]
    return smallest[by_vertex]


def uploaded_labels(placement: StepPlacement, label: Array) -> DeviceArray:
    """Return labels by position on the only GPU, as uint32.

    :param label: (n) a vertex of each vertex' community
    """
    require_short_labels(placement)
    (part,) = placement.parts
    array = placement.arrays("levels")["label", 0]
    placement.reserve((array, [max(8, 4 * placement.capacity)]))
    by_position = np.zeros(placement.capacity, np.uint32)
    by_position[placement.numbering.position] = label
    array[part].upload(by_position)
    return array


@dataclass(frozen=True)
class Scores:
    """Definition of the score by which a vertex chooses its community.

    :param factor_of: returns the factor of the product of masses (cpu.py), given the sum of all masses
    :param weighted: by weights, which are int64
    :param one_way: rows are not symmetric
    :param is_unit: masses are 1
    """

    factor_of: Callable[[int], float]
    weighted: bool
    one_way: bool
    is_unit: bool


@dataclass
class GpuLevel:
    """A level on the GPU.

    :param members: of ``Arguments``, by name: where its rows and masses are
    :param number: 0 for the first level
    :param vertex_count: number of vertices
    :param longest: arcs of its longest row
    :param long_chunks: number of chunks of rows longer than a block's table takes
    :param arcs: number of arcs in its rows
    :param bound: as of :class:`godwit.algorithms.communities.levels.Level`
    """

    members: dict[str, int]
    number: int
    vertex_count: int
    longest: int
    long_chunks: int
    arcs: int
    bound: int


class _FirstLevel:
    """What is known of the first level of a placement, whose masses lie on the GPU, from an earlier query.

    :ivar key: what masses and lengths depend on; None: nothing is known
    :ivar state: of the kernel when it had found them
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.key: Hashable = None
        self.state = state_words(())


@dataclass
class _Room:
    """Memory for a level above the first.

    :ivar count: for so many vertices
    :ivar below: for the arcs of a level below with so many
    :ivar members: of ``Arguments``, by name
    """

    count: int
    below: int
    members: dict[str, int]


class _LevelPlan(OneGpuPlan):
    """The kernel in a placement on one device; the queries write what lies in levels into its arguments.

    A query with memory elsewhere makes another plan.

    :ivar is_laid_out: True once there is memory for the first level
    :ivar rooms: by number of the level
    """

    def __init__(
        self, placement: StepPlacement, prepared: Preparation, gpu: GpuOptions, wide: bool
    ) -> None:
        super().__init__(placement, prepared, ARGUMENTS, gpu, "levels", threads=_THREADS)
        self.sum_bytes = 8 if wide else 4
        self.block_slots = _WARP_SLOTS * (self._threads // 32)
        self.chunk_arcs = self.block_slots // 4
        self.shared_bytes = max(self.block_slots * (4 + self.sum_bytes), 4 * _MOST_BINS)
        self.blocks = self.blocks_with(self.part.device, self.shared_bytes)
        self.is_laid_out = False
        self.rooms: dict[int, _Room] = {}
        self.lay_out()


class GpuSteps:
    """Steps of the methods (levels.py) on a GPU that is held; those of small levels on the CPU's cores.

    Invariant: the communities of the latest level are where its rows are.

    Runs of the kernel whose outcome decides nothing are queued: the host prepares the next ones meanwhile.

    :param seed: any integer
    :param location: where maps from level to level are to be, as far as the GPU has them
    :ivar visits: number of visits of vertices that looked for a better community
    :ivar rounds: number of rounds of these
    :ivar inside: sum of the weights of arcs within the communities that are the result, as of
        :meth:`godwit.algorithms.communities.cuda_summary.CommunitySummary.number`
    :ivar seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    def __init__(
        self, placement: StepPlacement, scores: Scores, loops: int, seed: int, gpu: GpuOptions,
        poll: RunPoll | None, location: ResultLocation,
    ) -> None:  # fmt: skip
        require_short_labels(placement)
        self._placement = placement
        self._ids = placement.graph.id_dtype
        self._scores = scores
        self._word = seed % 2**64
        self._poll = poll
        self._location = location
        self._cores: Cores | None = None
        self._entered: GpuLevel | None = None
        self._due: Phase | None = None  # what comes before the next run, or begins it
        self._numbered: tuple[GpuLevel, bool, Array] | None = None  # by the latest run: its state
        self.visits = self.rounds = self.inside = 0
        self.seconds: dict[str, float] = {}
        directions = 2 if scores.one_way else 1
        wide = scores.weighted or 2 * directions * placement.graph.arc_count >= 1 << 32
        key = ("levels", gpu, wide, scores.one_way)
        self._plan = placement.plan(key, lambda: self._make_plan(wide, gpu))
        (out_rows,) = placement.rows("out", scores.weighted)
        (in_rows,) = placement.rows("in", scores.weighted) if scores.one_way else (None,)
        (vertices,) = placement.vertices()
        self._plan.drop_queue()
        self._arguments = self._plan.struct
        n, blocks = placement.capacity, self._plan.blocks
        in_arcs = 0 if in_rows is None else in_rows.arcs
        arcs = out_rows.arcs + in_arcs
        sum_bytes = self._plan.sum_bytes
        listed_bytes = _listed_bytes(wide=wide, one_way=scores.one_way)
        masses = {"mass": sum_bytes * n, "in_mass": sum_bytes * n * scores.one_way}
        depends = (
            wide, scores.weighted, scores.one_way, scores.is_unit, loops, self._plan.block_slots
        )  # fmt: skip
        known = placement.kept(_FirstLevel)
        if known.key != depends:
            known.key = None  # before the masses move to another place
        sizes = dict(
            **dict.fromkeys(("label", "other", "part", "chosen"), 4 * n),
            listed=max(4 * len(_JOINED) * (n + _MOST_HUGE), n * listed_bytes),
            **dict.fromkeys(("total", "part_total", "other_total"), sum_bytes * n),
            **{f"in_{name}": masses["in_mass"] for name in ("total", "part_total", "other_total")},
            active=n + 4,
            grown=n,
            room=8 * n,
            firsts=4 * _MOST_BINS * blocks,
            long_rows=_LONG_ROW_BYTES * (arcs // (_LONG_ROW_ARCS + 1)),
            in_long_rows=_LONG_ROW_BYTES * (in_arcs // (_LONG_ROW_ARCS + 1)),
            counters=_COUNTERS_BYTES,
            map=4 * n,
            **masses,
        )  # fmt: skip
        if not self._plan.is_laid_out:
            self._plan.allocate(sizes)
            # Room for the arcs of the next level, too: if there is none, nothing has been computed.
            placement.reserve(*self._needs_above(self._arc_sizes(arcs), 1))
            self._plan.is_laid_out = True
        for pair in _EXCHANGED:  # in any order, or half exchanged, if an exception ended a query
            for name in pair:
                self._plan.struct[name] = self._pointer(name)
        members = {
            "begins": out_rows.offsets.pointer, "ends": out_rows.offsets.pointer + 8,
            "targets": out_rows.targets.pointer,
            "weights": 0 if out_rows.weights is None else out_rows.weights.pointer,
            **dict.fromkeys(("in_begins", "in_ends", "in_targets", "in_weights"), 0),
            "vertices": vertices.pointer, "mass": self._pointer("mass"), "in_mass": 0,
        }  # fmt: skip
        if in_rows is not None:
            members |= {
                "in_begins": in_rows.offsets.pointer, "in_ends": in_rows.offsets.pointer + 8,
                "in_targets": in_rows.targets.pointer,
                "in_weights": 0 if in_rows.weights is None else in_rows.weights.pointer,
                "in_mass": self._pointer("in_mass"),
            }  # fmt: skip
        self.first = GpuLevel(members, 0, placement.vertex_count, 0, 0, arcs, arcs)
        struct = self._arguments
        struct["number"], struct["smallest"] = struct["chosen"], struct["chosen"]
        for number, name in enumerate(_JOINED):
            struct[name] = int(struct["listed"]) + 4 * (n + _MOST_HUGE) * number
        struct["block_slots"], struct["loops"] = self._plan.block_slots, loops
        struct["is_unit"] = scores.is_unit
        if known.key is None:
            self._plan.array("counters")[self._plan.part].fill_bytes(0)
            self._enter(self.first)
            known.state = self._run(Phase.FIRST_LEVEL)
            known.key = depends
        state = known.state
        self._factor = scores.factor_of(int(state[Word.FOUND]))
        self._measure(self.first, state)

    def _make_plan(self, wide: bool, gpu: GpuOptions) -> _LevelPlan:
        placement, scores = self._placement, self._scores
        text = source(placement.id_dtype, wide=wide, one_way=scores.one_way)
        with compiling(placement, text) as prepared:
            placement.rows("out", scores.weighted)
            if scores.one_way:
                placement.rows("in", scores.weighted)
            placement.vertices()
        return _LevelPlan(placement, prepared, gpu, wide)

    def _pointer(self, name: str, level: int = 0) -> int:
        """Return the address of an array; those of levels have their numbers."""
        return self._plan.array(name, level)[self._plan.part].pointer

    def _run(self, phase: Phase, state: Any = ()) -> Array:
        """Run phases from one on; return the state at the end."""
        self._run_due()
        self._numbered = None
        poll = self._poll
        if poll is not None:
            poll.before = self.visits
        control = self._plan.ask(state_words(state), phase=phase, poll=poll)
        for name, taken in self._plan.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + taken
        self.visits += int(control["run_counts"][Count.VISITED])
        self.rounds += int(control["run_counts"][Count.LISTINGS])
        words: Array = control["state"].copy()
        return words

    def _queue(self, phase: Phase, state: Any = ()) -> None:
        """Run phases from one on behind what is under way, without waiting for the end."""
        self._numbered = None
        if self._poll is None and self._plan.queue(state_words(state), phase=phase):
            return
        self._run(phase, state)

    def _enter(self, level: GpuLevel) -> None:
        """Point to the rows of a level, and reserve tables for its hubs."""
        if level is self._entered:
            return
        self._run_due()
        self._entered = level
        struct = self._arguments
        for name, pointer in level.members.items():
            struct[name] = pointer
        struct["count"] = level.vertex_count
        struct["map"] = self._pointer("map", level.number)
        struct["classes"] = class_count(level.vertex_count, level.bound, MOST_CLASSES)
        plan, chunks = self._plan, level.long_chunks
        slot_bytes, slots = 4 + plan.sum_bytes, 2 * plan.chunk_arcs
        chunk_bytes = slots * slot_bytes + 4 * plan.chunk_arcs + _LONG_ROW_STATE_BYTES
        longest = -(-level.longest // plan.chunk_arcs)
        chunks = min(chunks, max(longest, _MOST_ARENA_BYTES // chunk_bytes))
        struct["arena_chunks"] = chunks
        if chunks == 0:
            return
        self._plan.allocate(
            {
                "chunks": 4 * level.vertex_count,
                "arena_keys": 4 * slots * chunks,
                "arena_sums": plan.sum_bytes * slots * chunks,
                "arena_used": 4 * plan.chunk_arcs * chunks,
                "arena_rows": _LONG_ROW_STATE_BYTES * chunks,
            }
        )

    def _measure(self, level: GpuLevel, state: Array) -> None:
        level.longest, level.long_chunks = int(state[Word.LONGEST]), int(state[Word.LONG_CHUNKS])
        self._entered = None  # tables depend on it

    def _moves(self, rounds: int, enough: int = 0) -> tuple[Phase, list[int]]:
        """Return the phase with which moves begin, with what is due, and the first words of the state."""
        self._word = first_word(self._word)
        phase = Phase.MOVE_BEGIN if self._due is None else self._due
        self._due = None
        return phase, [self._word, rounds, enough]

    @contextmanager
    def _on_cores(self) -> Iterator[Cores]:
        """Yield the cores' steps, with the seed, and take over what they have counted."""
        cores = self._cores
        assert cores is not None
        cores.word, cores.visits, cores.rounds = self._word, self.visits, self.rounds
        if self._poll is not None:
            self._poll.before = 0
        yield cores
        self._word, self.visits, self.rounds = cores.word, cores.visits, cores.rounds

    def begin_alone(self, level: GpuLevel | Level) -> None:
        """Make each vertex of a level a community."""
        if isinstance(level, Level):
            with self._on_cores() as cores:
                cores.begin_alone(level)
            return
        self._enter(level)
        self._run_due()
        self._due = Phase.BEGIN_ALONE

    def _run_due(self) -> None:
        """Begin with what is due: vertices become communities, or get those of another level."""
        if self._due is not None:
            phase, self._due = self._due, None
            self._queue(phase)

    def _finish_due(self) -> None:
        """Do what is due, and wait for the end."""
        assert self._due is not None
        phase, self._due = self._due, None
        self._run(phase)

    def move(
        self,
        level: GpuLevel | Level,
        *,
        scale: float = 1.0,
        upward: bool = False,
        again: bool = False,
        aggregated: bool = False,
    ) -> None:
        """Move the vertices of a level to better communities; resolution counts ``scale`` times.

        :param upward: as for :func:`godwit.algorithms.communities.levels.enough_moves`, like ``again``
        :param aggregated: :meth:`aggregate` comes next
        """
        if isinstance(level, Level):
            with self._on_cores() as cores:
                cores.move(level, scale=scale, upward=upward, again=again)
            return
        self._enter(level)
        self._arguments["factor"] = self._factor * scale
        enough = enough_moves(level.vertex_count, level.bound, upward=upward, again=again)
        phase, state = self._moves(MOST_ROUNDS, enough)
        if not upward:
            self._queue(phase, state)
            return
        most_above = self._group(level, parts=False, joins=aggregated)  # they are counted next
        self._numbered = level, False, self._run(phase, [*state, False, True, most_above])

    def refine(self, level: GpuLevel | Level) -> None:
        """Divide the communities of a level into connected parts."""
        if isinstance(level, Level):
            with self._on_cores() as cores:
                cores.refine(level)
            return
        self._enter(level)
        self._arguments["factor"] = self._factor
        most_above = self._group(level, parts=True, joins=True)
        phase, state = self._moves(1)
        self._numbered = level, True, self._run(phase, [*state, True, True, most_above])

    def count_communities(self, level: GpuLevel | Level) -> int:
        """Return the number of communities of a level."""
        if isinstance(level, Level):
            with self._on_cores() as cores:
                return cores.count_communities(level)
        return int(self._grouped(level, parts=False, joins=False)[Word.FOUND])

    def _grouped(self, level: GpuLevel, *, parts: bool, joins: bool) -> Array:
        """Number the communities, or parts, of a level, unless the latest run did; return its state.

        :param joins: join them, too, if there is room
        """
        if self._numbered is None or self._numbered[:2] != (level, parts):
            self._enter(level)
            most_above = self._group(level, parts=parts, joins=joins)
            state = self._run(Phase.GROUP_CLEAR, _words(Word.MOST_ABOVE, most_above))
            self._numbered = level, parts, state
        return self._numbered[2]

    def _group(self, level: GpuLevel, *, parts: bool, joins: bool) -> int:
        """Let vertices of the next level be communities, or parts; return for how many there is room."""
        struct, prefix = self._arguments, "part_" if parts else ""
        struct["group"] = struct["part" if prefix else "label"]
        struct["group_total"] = struct[f"{prefix}total"]
        struct["in_group_total"] = struct[f"in_{prefix}total"]
        if not joins:
            return 0
        count, room = level.vertex_count, self._plan.rooms.get(level.number + 1)
        if count > _ROOM_ABOVE:
            count = min(count, 0 if room is None else room.count)
        if count:
            self._make_room_above(level, count)
        return count

    def _make_room_above(self, level: GpuLevel, count: int) -> dict[str, int]:
        """Make room for so many vertices of the next level; return where its rows and masses are to be."""
        struct, plan = self._arguments, self._plan
        room = plan.rooms.get(level.number + 1)
        if room is None or room.count < count or room.below < level.arcs:
            most = max(count, 0 if room is None else room.count)
            arcs = max(level.arcs, 0 if room is None else room.below)
            members = self._reserve_level(level.number + 1, most, arcs)
            bigs = arcs // max(1, plan.block_slots // 2) + 1
            plan.allocate({"bigs": _BIG_BYTES * min(most, bigs)})
            room = _Room(most, arcs, members)
            plan.rooms[level.number + 1] = room
        members = room.members
        struct["above_mass"], struct["in_above_mass"] = members["mass"], members["in_mass"]
        struct["above_begins"], struct["above_ends"] = members["begins"], members["ends"]
        struct["above_targets"], struct["above_weights"] = members["targets"], members["weights"]
        return members

    def _reserve_level(self, number: int, count: int, arcs: int) -> dict[str, int]:
        """Give a level above the first room; return members of the arguments, by name."""
        sum_bytes, two = self._plan.sum_bytes, self._scores.one_way
        sizes = {
            "begins": 8 * count, "ends": 8 * count, "mass": sum_bytes * count,
            "in_mass": sum_bytes * count * two, "map": 4 * count, **self._arc_sizes(arcs),
        }  # fmt: skip
        self._plan.wait_for_queue()
        self._placement.reserve(*self._needs_above(sizes, number))
        members = {name: self._pointer(name, number) for name in sizes if name != "map"}
        if not two:
            members["in_mass"] = 0
        none = ("in_begins", "in_ends", "in_targets", "in_weights", "vertices")
        return members | dict.fromkeys(none, 0)

    def _arc_sizes(self, arcs: int) -> dict[str, int]:
        """Return the bytes by name of the arrays of a level above the first that have its arcs."""
        target_bytes = self._placement.id_dtype.itemsize
        return {"targets": target_bytes * arcs, "weights": self._plan.sum_bytes * arcs}

    def _needs_above(
        self, sizes: Mapping[str, int], number: int
    ) -> list[tuple[DeviceArray, Sequence[int]]]:
        """Return what a level above the first needs, as :meth:`StepPlacement.reserve` takes it."""
        return [
            (self._plan.array(name, number), [max(8, nbytes)]) for name, nbytes in sizes.items()
        ]

    def aggregate(self, level: GpuLevel | Level, *, parts: bool = False) -> GpuLevel | Level | None:
        """Return the level whose vertices are the communities, or parts; None if all have one vertex."""
        if isinstance(level, Level):
            with self._on_cores() as cores:
                return cores.aggregate(level, parts=parts)
        above = self._aggregated(level, parts=parts)
        if above is None or not is_serial(above.vertex_count, above.arcs):
            return above
        taken = self._downloaded(above)
        self._cores = Cores(taken, self._factor, 0, None, self._poll)
        return taken

    def modularity(self, level: GpuLevel | Level) -> float:
        """Return the modularity of communities that are the vertices of a small level; 0 of others."""
        if isinstance(level, Level):
            with self._on_cores() as cores:
                return cores.modularity(level)
        return 0.0

    def _downloaded(self, level: GpuLevel) -> Level:
        """Return a level on the host."""
        n, ids = level.vertex_count, self._ids
        plan = self._plan
        sums = np.dtype(f"u{self._plan.sum_bytes}")
        kinds = {
            "begins": (np.dtype(np.int64), n), "ends": (np.dtype(np.int64), n),
            "targets": (self._placement.id_dtype, level.arcs),
            "weights": (sums, level.arcs),
            "mass": (sums, n), "in_mass": (sums, n * self._scores.one_way),
        }  # fmt: skip
        of = {
            name: plan.array(name, level.number)[plan.part].download(*kind)
            for name, kind in kinds.items()
        }
        rows = Rows(
            frozen(of["begins"]), frozen(of["ends"]), frozen(of["targets"], ids),
            frozen(of["weights"], np.int64),
        )  # fmt: skip
        masses = frozen(of["mass"], np.int64), frozen(of["in_mass"], np.int64)
        return Level(rows, masses, level.arcs, level.bound, is_serial=True)

    def _aggregated(self, level: GpuLevel, *, parts: bool) -> GpuLevel | None:
        state = self._grouped(level, parts=parts, joins=True)
        count = int(state[Word.FOUND])
        if count == level.vertex_count:
            return None
        members = self._make_room_above(level, count)
        if count > state[Word.MOST_ABOVE]:
            state = self._run(Phase.JOIN_CLEAR, _words(Word.FOUND, count))
        room, slots = int(state[Word.ROOM]), int(state[Word.SLOTS])
        if slots:
            self._plan.allocate({"big_keys": 4 * slots, "big_sums": self._plan.sum_bytes * slots})
            state = self._run(Phase.JOIN_MEMBERS, _words(Word.FOUND, count))
        arcs = int(state[Word.ARCS])
        above = GpuLevel(members, level.number + 1, count, 0, 0, arcs, room)
        self._measure(above, state)
        return above

    def _rename(self, level: GpuLevel, above_count: int, *, lifts: bool) -> None:
        struct = self._arguments
        self._enter(level)
        self._run_due()
        struct["above_count"], struct["lifts"] = above_count, lifts
        struct["names"] = level.vertex_count if lifts else above_count
        for one, other in _EXCHANGED:
            struct[one], struct[other] = struct[other].copy(), struct[one].copy()
        self._numbered = None
        self._due = Phase.RENAME_CLEAR

    def lift(self, level: GpuLevel | Level, above: GpuLevel | Level) -> None:
        """Give the vertices of the next level the communities of their members."""
        if isinstance(level, Level):
            assert isinstance(above, Level)
            with self._on_cores() as cores:
                cores.lift(level, above)
            return
        self._rename(level, above.vertex_count, lifts=True)
        if isinstance(above, Level):
            self._finish_due()
            with self._on_cores() as cores:
                label = self._of("label")[self._plan.part].download(np.int32, above.vertex_count)
                cores.take(above, label.astype(self._ids, copy=False))

    def lower(self, level: GpuLevel | Level, above: GpuLevel | Level) -> None:
        """Give the vertices of a level the communities that those of the next level have."""
        if isinstance(level, Level):
            assert isinstance(above, Level)
            with self._on_cores() as cores:
                cores.lower(level, above)
            return
        if isinstance(above, Level):
            # It was made of what has been waited for, so no run accesses communities meanwhile.
            assert self._due is None
            assert not self._plan.has_queued
            with self._on_cores() as cores:
                self._upload_communities(above, cores.label)
        self._rename(level, above.vertex_count, lifts=False)

    def _upload_communities(self, level: Level, label: Array) -> None:
        """Take the communities of a level from the host."""
        self._of("label")[self._plan.part].upload(label.astype(np.uint32))
        totals = level.totals(label)
        for name, total in zip(("total", "in_total"), totals, strict=True):
            self._of(name)[self._plan.part].upload(total.astype(f"u{self._plan.sum_bytes}"))

    def vertices_above(self, levels: Sequence[GpuLevel | Level]) -> list[Any]:
        """Return the vertex of the next level of each vertex, by level, of the first one and others."""
        if not levels:
            return []
        begin = perf_counter()
        plan, location = self._plan, self._location
        counts = not plan.has_queued  # else the time belongs to the runs that are under way
        firsts = VertexValues(
            self._placement, plan.array("map"), np.int32, location, result_dtype=self._ids
        ).begin()
        on_gpu = [level for level in levels[1:] if isinstance(level, GpuLevel)]
        maps = [
            (self._pointer("map", level.number), level.vertex_count, np.int32) for level in on_gpu
        ]
        others, _ = deliver_items(plan.part, maps, location)
        found = [
            array if array.dtype == self._ids else array.astype(self._ids)
            for array in (firsts.gather()[0], *others)
        ]
        if counts:
            self.seconds["gather"] = self.seconds.get("gather", 0.0) + perf_counter() - begin
        on_cores = [level for level in levels if isinstance(level, Level)]
        if on_cores:
            with self._on_cores() as cores:
                found += cores.vertices_above(on_cores)
        return found

    def communities(self) -> DeviceArray:
        """Return a vertex of the community of each vertex of the first level, by position, uint32.

        Communities that are not connected are divided.
        """
        self._enter(self.first)
        self.inside = int(self._run(Phase.SPLIT_BEGIN)[Word.FOUND])
        return self._of("other")

    def _of(self, name: str) -> DeviceArray:
        """Return the array that a member of the arguments, one of those exchanged, points to."""
        pointer = int(self._arguments[name])
        pair = next(pair for pair in _EXCHANGED if name in pair)
        (found,) = (one for one in pair if self._pointer(one) == pointer)
        return self._plan.array(found)
