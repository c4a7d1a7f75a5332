"""A model checker for the compiled workers' protocols: their own source, every schedule.

`load_protocol` executes the source of the given modules with every access to a shared word (the
atomics, and plain accesses to mailbox slots) turned into a ``yield`` of the operation, and every
function that contains one into a generator. So a worker is a generator of operations, which does what
the compiled one does between them. Constants (chunk and batch sizes) can be made smaller, and bugs
planted by replacing text of the source.

An `Automaton` is such a worker as a table: its local state (position in the code, local variables,
private arrays), and where it goes for each reply to its pending operation. It is filled as the
exploration asks, by running the generator. Since the table knows no shared memory, the exploration may
put any memory behind it:

- `Sequential`: one memory, operations happen in the order in which they are scheduled (also what x86's
  TSO amounts to for this code's single-writer words: a store that waits in a buffer is one that has
  not been scheduled yet);
- `ReleaseAcquire`: C11's release and acquire by views (Lahav, Giannarakis and Vafeiadis, "Taming
  release-acquire consistency", POPL 2016): each store is a message with the writer's view, a load may
  read any message not older than its thread's view, and an acquiring one takes the message's view
  over. A plain access to a slot that is not ordered with the others is a data race, and an error.
  Every word has a single writer, so that the order of its messages is the writer's program order.

`explore` visits every reachable state of workers and memory once, calls the invariant in each, and
proves that from each the end can still be reached: nothing deadlocks, and no fair schedule runs for
ever. `wander` follows random schedules instead, for models too large for that.
"""

from __future__ import annotations

import ast
import inspect
import operator
import random
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np

Location = tuple[str, int]
Operation = tuple[str, Location, int]  # kind, where, operand
Replacement = tuple[str, str]

_LOADS = {"load_acquire": 2, "load_relaxed": 2}
_STORES = {"store_release": 3, "store_relaxed": 3}
_MODIFIES = {"fetch_add": 3, "fetch_min": 3}
_MODIFIED: dict[str, Callable[[int, int], int]] = {"fetch_add": operator.add, "fetch_min": min}
_ATOMICS = {**_LOADS, **_STORES, **_MODIFIES}
_NO_OPERATION = {"yield_thread", "prefetch"}
_PLAIN = {"load": "read", "store": "write"}
_SHARED_ATTRIBUTES = {"slots"}
_SHARED_NAMES = {"frontier"}


class ProtocolError(AssertionError):
    """The protocol broke an invariant; the message ends with the schedule that leads there."""


class Words:
    """A shared array as the code under test sees it.

    Plain reads see this worker's own stores only: they are allowed for words that it alone writes.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.own = [0] * size

    def __getitem__(self, index: int) -> int:
        return self.own[index]

    def __len__(self) -> int:
        return len(self.own)


# --- The source with its shared accesses made visible.


def _called(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return None


def _is_shared(node: ast.AST) -> bool:
    """Whether this is a plain access to an element of a shared array."""
    if isinstance(node, ast.Subscript):
        whole: ast.AST = node.value
    elif isinstance(node, ast.Call) and _called(node) in _PLAIN:
        whole = node.args[0]
    else:
        return False
    if isinstance(whole, ast.Attribute):
        return whole.attr in _SHARED_ATTRIBUTES
    return isinstance(whole, ast.Name) and whole.id in _SHARED_NAMES


def _yielding_functions(functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    """Names of the functions that access shared words, themselves or by those that they call."""
    yielding = {
        name
        for name, function in functions.items()
        if any(_called(node) in _ATOMICS or _is_shared(node) for node in ast.walk(function))
    }
    while True:
        more = {
            name
            for name, function in functions.items()
            if name not in yielding and any(_called(n) in yielding for n in ast.walk(function))
        }
        if not more:
            return yielding
        yielding |= more


class _Yields(ast.NodeTransformer):
    def __init__(self, yielding: set[str]) -> None:
        self.yielding = yielding

    def visit_Call(self, node: ast.Call) -> ast.AST:
        shared = _is_shared(node)
        self.generic_visit(node)
        name = _called(node)
        if name in _PLAIN and shared:
            return ast.Yield(ast.Tuple([ast.Constant(_PLAIN[name]), *node.args], ast.Load()))
        if name in _PLAIN:
            method = "__getitem__" if name == "load" else "__setitem__"
            return ast.Call(ast.Attribute(node.args[0], method, ast.Load()), node.args[1:], [])
        if name in _ATOMICS:
            return ast.Yield(ast.Tuple([ast.Constant(name), *node.args], ast.Load()))
        if name in _NO_OPERATION:
            return ast.Constant(None)
        if name in self.yielding:
            return ast.YieldFrom(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not (_is_shared(node) and isinstance(node.ctx, ast.Load)):
            return node
        return ast.Yield(ast.Tuple([ast.Constant("read"), node.value, node.slice], ast.Load()))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if not _is_shared(target):
            return node
        assert isinstance(target, ast.Subscript)
        parts = [ast.Constant("write"), target.value, target.slice, node.value]
        return ast.Expr(ast.Yield(ast.Tuple(parts, ast.Load())))


def load_protocol(
    modules: Sequence[ModuleType],
    constants: Mapping[str, int],
    replacements: Iterable[Replacement] = (),
) -> dict[str, Any]:
    """The namespace of the modules' functions as generators of shared operations.

    :param constants: other values for constants of these modules; what they compute from them follows
    :param replacements: (old, new) texts; each old one must stand in the sources exactly once
    """
    sources = [inspect.getsource(module) for module in modules]
    for old, new in replacements:
        assert sum(source.count(old) for source in sources) == 1, f"not found once: {old}"
        sources = [source.replace(old, new) for source in sources]
    trees = [ast.parse(source) for source in sources]
    functions = {
        node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    transformer = _Yields(_yielding_functions(functions))
    namespace: dict[str, Any] = {"__name__": "protocol"}
    own = {module.__name__ for module in modules}
    for module, tree in zip(modules, trees, strict=True):
        for node in list(tree.body):
            if isinstance(node, ast.ImportFrom) and node.module in own:
                tree.body.remove(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and target.id in constants:
                    node.value = ast.Constant(constants[target.id])
        transformed = ast.fix_missing_locations(transformer.visit(tree))
        exec(compile(transformed, f"<{module.__name__} under exploration>", "exec"), namespace)
    return namespace


# --- One worker as a table.

Worker = Generator[tuple[Any, ...], int | None, int]


class Automaton:
    """A worker's local states and the moves between them, found as they are asked for.

    :param start: makes the worker anew: its generator, a function that gives its private state in
        canonical form, and one that gives what the invariant may know of it
    :param ignored: local variables that have no influence on what the worker does
    :param constant: replies to loads of words that nobody writes
    """

    def __init__(
        self,
        start: Callable[[], tuple[Worker, Callable[[], Hashable], Callable[[], Any]]],
        ignored: frozenset[str] = frozenset(),
        constant: Callable[[Location], int | None] = lambda location: None,
    ) -> None:
        self._start = start
        self._ignored = ignored
        self._constant = constant
        self._nodes: dict[Hashable, int] = {}
        self._paths: list[tuple[int, int | None]] = []  # how each node was first reached
        self._moves: dict[tuple[int, int | None], int] = {}
        self._live: dict[int, tuple[Worker, Any, Any]] = {}
        self.operations: list[Operation] = []  # pending, by node; ("end", _, code) at the end
        self.facts: list[Any] = []
        self.first = self._register(self._begin(), -1, None)

    def move(self, node: int, reply: int | None) -> int:
        """The node after the reply to the pending operation of a node."""
        found = self._moves.get((node, reply))
        if found is None:
            run = self._live.pop(node, None) or self._replay(node)
            found = self._register(self._step(run, reply), node, reply)
            self._moves[node, reply] = found
        return found

    def _begin(self) -> tuple[tuple[Worker, Any, Any], Operation]:
        run = self._start()
        return self._step((*run, None), None)

    def _step(self, run: Any, reply: int | None) -> Any:
        generator, private, facts, *_ = run
        while True:
            try:
                kind, array, index, *operands = generator.send(reply)
            except StopIteration as end:
                return (generator, private, facts), ("end", ("", 0), int(end.value))
            operand = int(operands[0]) if operands else 0
            location = (array.name, int(index))
            if kind in _STORES:
                array.own[int(index)] = operand
            known = self._constant(location) if kind in _LOADS else None
            if known is None:
                return (generator, private, facts), (kind, location, operand)
            reply = known

    def _register(self, stepped: Any, parent: int, reply: int | None) -> int:
        (generator, private, facts), operation = stepped
        state = (operation, self._frames(generator), private())
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = len(self._nodes)
            self._paths.append((parent, reply))
            self.operations.append(operation)
            self.facts.append(facts())
            self._live[node] = (generator, private, facts)
        return node

    def _replay(self, node: int) -> Any:
        replies = []
        while node != self.first:
            node, reply = self._paths[node]
            replies.append(reply)
        run, _ = self._begin()
        for reply in reversed(replies):
            run, _ = self._step(run, reply)
        return run

    def _frames(self, generator: Any) -> Hashable:
        frames = []
        while generator is not None and generator.gi_frame is not None:
            frame = generator.gi_frame
            values = tuple(
                (name, int(value))
                for name, value in frame.f_locals.items()
                if isinstance(value, int | np.integer) and name not in self._ignored
            )
            frames.append((frame.f_code.co_name, frame.f_lasti, values))
            generator = generator.gi_yieldfrom
        return tuple(frames)

    def __len__(self) -> int:
        return len(self.operations)


# --- Memories.


class Locations(dict[Location, int]):
    """Places of locations in a memory's tuples, given as they are asked for."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __missing__(self, location: Location) -> int:
        place = self[location] = len(self)
        assert place < self.size, "give the memory more words"
        return place


class Sequential:
    """One memory, seen by all alike; words are zero at first, except those given."""

    def __init__(self, words: int = 64, values: Mapping[Location, int] | None = None) -> None:
        self.locations = Locations(words)
        given = {self.locations[location]: value for location, value in (values or {}).items()}
        self.first: Any = tuple(given.get(place, 0) for place in range(words))

    def value(self, memory: Any, location: Location) -> int:
        """The newest value of a word."""
        found: int = memory[self.locations[location]]
        return found

    def replies(self, memory: Any, thread: int, operation: Operation) -> list[tuple[Any, Any]]:
        """What the operation may give, each with the memory after it."""
        kind, location, operand = operation
        place = self.locations[location]
        old = memory[place]
        if kind in _LOADS or kind == "read":
            return [(old, memory)]
        new = _MODIFIED[kind](old, operand) if kind in _MODIFIES else operand
        if new != old:
            memory = (*memory[:place], new, *memory[place + 1 :])
        return [(old if kind in _MODIFIES else None, memory)]


class ReleaseAcquire:
    """C11's release and acquire, by messages and views.

    A memory is (messages by place, views by thread): messages is (values with views, ...), oldest
    first, of which the last is the newest; a view gives each place the message that must be seen,
    counted back from the newest, so that numbers stay small. Words of ``hints`` order nothing and
    are kept as in `Sequential`.
    """

    def __init__(
        self, threads: int, words: int = 32, hints: Callable[[Location], bool] = lambda _: False
    ) -> None:
        self.locations = Locations(words)
        self.hints = hints
        self.first = ((((0, None),),) * words, ((0,) * words,) * threads)

    def value(self, memory: Any, location: Location) -> int:
        """The newest value of a word."""
        found: int = memory[0][self.locations[location]][-1][0]
        return found

    def replies(self, memory: Any, thread: int, operation: Operation) -> list[tuple[Any, Any]]:
        """What the operation may give, each with the memory after it."""
        kind, location, operand = operation
        messages, views = memory
        place = self.locations[location]
        own = views[thread]
        if self.hints(location):
            if kind in _LOADS:
                return [(messages[place][-1][0], memory)]
            old = messages[place][-1][0]
            if kind in _MODIFIES:
                operand = _MODIFIED[kind](old, operand)
            return [
                (
                    old if kind in _MODIFIES else None,
                    (_with(messages, place, ((operand, None),)), views),
                )
            ]
        if kind == "read":
            if own[place] != 0:
                raise ProtocolError(f"data race: {location} is read before its write is ordered")
            # A ghost word counts the reads, so that an overwriting must be ordered after them.
            ghost = self.locations["read", place]
            after = self._stored(messages, views, thread, ghost, 0, released=False)
            return [(messages[place][-1][0], after)]
        if kind == "write":
            ghost = self.locations["read", place]
            if own[place] != 0 or own[ghost] != 0:
                raise ProtocolError(
                    f"data race: {location} is overwritten before its read is ordered"
                )
            return [(None, self._stored(messages, views, thread, place, operand, released=False))]
        if kind in _STORES:
            assert own[place] == 0, f"{location} has several writers"
            released = kind == "store_release"
            return [
                (None, self._stored(messages, views, thread, place, operand, released=released))
            ]
        found = []
        for back in range(own[place] + 1):
            value, published = messages[place][-1 - back]
            view = _with(own, place, back)
            if kind == "load_acquire" and published is not None:
                view = _newer(view, published)
            if view == own:
                found.append((value, memory))  # it has learnt nothing, and memory is tidy
            else:
                found.append((value, self._tidied(messages, _with(views, thread, view))))
        return found

    def _stored(
        self, messages: Any, views: Any, thread: int, place: int, value: int, *, released: bool
    ) -> Any:
        """The memory with one more message; every older one is one further back."""
        messages = tuple(
            row
            if row[-1][1] is None
            else tuple((old, _with(view, place, view[place] + 1)) for old, view in row)
            for row in messages
        )
        views = tuple(
            _with(view, place, 0 if other == thread else view[place] + 1)
            for other, view in enumerate(views)
        )
        row = messages[place]
        nothing = None
        if released or row[-1][1] is not None:
            # A row has views in all its messages or in none: one that tells nothing is the oldest.
            nothing = tuple(map(max, *views))
            row = tuple((old, nothing if view is None else view) for old, view in row)
        row = (*row, (value, views[thread] if released else nothing))
        return self._tidied(_with(messages, place, row), views)

    def _tidied(self, messages: Any, views: Any) -> Any:
        """Without what no thread can read any more, and views no older than everybody's."""
        oldest = tuple(map(max, *views)) if len(views) > 1 else views[0]
        kept = []
        for back, messages_of_place in zip(oldest, messages, strict=True):
            row = messages_of_place
            if len(row) > 1 + back:
                row = row[-1 - back :]
            if row[-1][1] is not None:
                row = tuple([(value, _newer(view, oldest)) for value, view in row])
            kept.append(row)
        return tuple(kept), views


@lru_cache(maxsize=1 << 16)
def _newer(view: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Of two views the newer message of each place; the same pairs come again and again."""
    return tuple(map(min, view, other))


def _with(items: Any, place: int, item: Any) -> Any:
    return (*items[:place], item, *items[place + 1 :])


# --- All schedules, and random ones.

Memory = Sequential | ReleaseAcquire


class Model:
    """Workers and a memory.

    :param automata: the workers
    :param memory: what is behind their operations
    :param invariant: ``invariant(value, facts, ended)``, called in every state with a function that
        gives the newest value of a location, the workers' facts, and which of them have ended;
        returns what is wrong, or None
    """

    def __init__(
        self,
        automata: Sequence[Automaton],
        memory: Memory,
        invariant: Callable[[Callable[[Location], int], list[Any], list[bool]], str | None],
    ) -> None:
        self.automata = automata
        self.memory = memory
        self.invariant = invariant
        self.first = (tuple(automaton.first for automaton in automata), memory.first)

    def successors(self, state: Any) -> list[tuple[int, Any]]:
        """(thread, state) for every step that can be taken."""
        nodes, memory = state
        found = []
        for thread, (automaton, node) in enumerate(zip(self.automata, nodes, strict=True)):
            operation = automaton.operations[node]
            if operation[0] == "end":
                continue
            for reply, after in self.memory.replies(memory, thread, operation):
                moved = automaton.move(node, reply)
                found.append((thread, (_with(nodes, thread, moved), after)))
        return found

    def check(self, state: Any) -> str | None:
        """What is wrong in a state."""
        nodes, memory = state
        pairs = list(zip(self.automata, nodes, strict=True))
        return self.invariant(
            partial(self.memory.value, memory),
            [automaton.facts[node] for automaton, node in pairs],
            [automaton.operations[node][0] == "end" for automaton, node in pairs],
        )

    def has_ended(self, state: Any) -> bool:
        """Whether all workers have ended."""
        return all(
            automaton.operations[node][0] == "end"
            for automaton, node in zip(self.automata, state[0], strict=True)
        )


def explore(model: Model, limit: int = 2_000_000) -> int:
    """Visit every reachable state; the number of them.

    :raises ProtocolError: an invariant is broken, or there is a state from which the end is out of reach
    """
    numbers = {model.first: 0}
    states = [model.first]
    parents = [(-1, -1)]
    predecessors: list[list[int]] = [[]]
    ends = []
    number = 0
    while number < len(states):
        state = states[number]
        try:
            following = model.successors(state)
        except ProtocolError as error:
            raise ProtocolError(f"{error}\n{_schedule(model, states, parents, number)}") from None
        for thread, after in following:
            other = numbers.get(after)
            if other is None:
                other = numbers[after] = len(states)
                assert other < limit, "the model is too large to explore"
                states.append(after)
                parents.append((number, thread))
                predecessors.append([])
                wrong = model.check(after)
                if wrong is not None:
                    raise ProtocolError(f"{wrong}\n{_schedule(model, states, parents, other)}")
            predecessors[other].append(number)
        if not following:
            assert model.has_ended(state)
            ends.append(number)
        number += 1
    can_end = set(ends)
    while ends:
        for before in predecessors[ends.pop()]:
            if before not in can_end:
                can_end.add(before)
                ends.append(before)
    if len(can_end) < len(states):
        stuck = next(number for number in range(len(states)) if number not in can_end)
        schedule = _schedule(model, states, parents, stuck)
        raise ProtocolError(f"from here the run can never end\n{schedule}")
    return len(states)


def wander(model: Model, schedules: int, steps: int, seed: int) -> None:
    """Follow random schedules, fair ones, each to its end.

    Threads run for random stretches, so that long delays are common.

    :raises ProtocolError: an invariant is broken, or a schedule has not ended after ``steps``
    """
    generator = random.Random(seed)
    for _ in range(schedules):
        state = model.first
        runner, left = 0, 0
        for _ in range(steps):
            following = model.successors(state)
            if not following:
                break
            threads = sorted({thread for thread, _ in following})
            if left == 0 or runner not in threads:
                runner = generator.choice(threads)
                left = generator.choice((1, 1, 2, 5, 20, 100))
            left -= 1
            state = generator.choice([after for thread, after in following if thread == runner])
            wrong = model.check(state)
            if wrong is not None:
                raise ProtocolError(wrong)
        else:
            raise ProtocolError(f"a schedule has not ended after {steps} steps")


def _schedule(model: Model, states: list[Any], parents: list[tuple[int, int]], number: int) -> str:
    lines = []
    while number != 0:
        number, thread = parents[number]
        kind, (name, index), operand = model.automata[thread].operations[states[number][0][thread]]
        shown = f" = {operand}" if kind in _STORES or kind == "write" else ""
        lines.append(f"  worker {thread}: {kind} {name}[{index}]{shown}")
    return "\n".join(reversed(lines))
