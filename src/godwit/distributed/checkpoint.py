"""State of a long run in a folder, from which a later run with the same arguments goes on.

Each process writes the values of its own vertices to a file of its own; when all have, the first process
replaces ``checkpoint.json``, which names the step and the number of files. So a run that is killed at any
time leaves a complete state: the one that this file names. Files of other steps are removed after that.
Values are by vertex, so a run of another number of processes reads the parts that it needs, if its
processes see them.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

import numpy as np

from godwit.distributed.graph import DistributedGraph
from godwit.dtypes import Array, as_number
from godwit.errors import FileError, FormatError, InputError, shown
from godwit.files import replacing
from godwit.graph.hashing import mix
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team

_STATE = "checkpoint.json"


class Checkpoint:
    """The saved state of a run; all processes make one together, within :meth:`Processes.running`.

    :param folder: made if it is not there
    :param every_s: seconds between two saved states, by the clock of the first process
    :param arguments: what must be the same when the run goes on, beside the graph: plain values by name
    :param weighted: the weights of the graph belong to it
    :raises InputError: the folder has the state of another graph or of other arguments
    :raises FileError: the folder cannot be made or read
    """

    def __init__(
        self,
        graph: DistributedGraph,
        folder: str | os.PathLike[str],
        every_s: float,
        arguments: Mapping[str, Any],
        *,
        weighted: bool,
    ) -> None:
        self._graph = graph
        self._processes = graph.processes
        self._folder = Path(folder)
        self._every_s = as_number(every_s, "checkpoint_s")
        if not self._every_s >= 0:
            raise InputError(f"checkpoint_s must not be negative, got {shown(every_s)}")
        self._arguments = {**_described(graph, weighted=weighted), **arguments}
        self._saved = monotonic()
        state = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._processes.rank == 0 and (self._folder / _STATE).exists():
                state = json.loads((self._folder / _STATE).read_text("utf-8"))
        except OSError as error:
            raise FileError(f"cannot use {folder}: {error.strerror or error}") from error
        except ValueError as error:
            raise FormatError(self._folder / _STATE, f"it is damaged: {error}") from error
        if state is not None and not _is_state(state):
            raise FormatError(self._folder / _STATE, "it is not the state of a run of Godwit's")
        self._state: dict[str, Any] | None = self._processes.share(state)[0]
        if self._state is not None:
            self._compare(self._state["arguments"])

    @property
    def is_due(self) -> bool:
        """True in the first process if the state should be saved."""
        return self._processes.rank == 0 and monotonic() - self._saved >= self._every_s

    def save(self, step: int, numbers: Mapping[str, float], arrays: Mapping[str, Array]) -> None:
        """Save the state; all processes call it.

        :param step: grows from state to state
        :param numbers: the same in all processes
        :param arrays: (n) values of the own vertices
        """
        processes = self._processes
        own = self._graph.vertices
        name = self._part(step, processes.rank, processes.count)
        content: dict[str, Any] = {"vertices": np.array([own.start, own.stop]), **arrays}
        with replacing(self._folder / name) as file:
            np.savez(file, **content)
            _store(file)
        processes.meet()
        if processes.rank == 0:
            state = {
                "arguments": self._arguments,
                "step": step,
                "numbers": {key: float(value).hex() for key, value in numbers.items()},
                "bounds": self._graph.bounds.tolist(),
            }
            with replacing(self._folder / _STATE) as file:
                file.write(json.dumps(state, indent=1).encode())
                _store(file)
        processes.meet()
        kept = self._part(step, 0, processes.count).split(".part")[0]
        for old in self._folder.glob("step-*.part-*.npz"):
            if not old.name.startswith(f"{kept}.") or f"-of-{processes.count:05}." not in old.name:
                with suppress(OSError):  # another process has removed it
                    old.unlink()
        self._saved = monotonic()

    def load(self) -> tuple[int, dict[str, float], dict[str, Array]] | None:
        """Return step, numbers and own values of the saved state; None if there is none.

        :raises FileError: a part cannot be read
        :raises FormatError: a part is damaged
        """
        state = self._state
        if state is None:
            return None
        step, bounds = int(state["step"]), np.array(state["bounds"], np.int64)
        own = self._graph.vertices
        pieces: dict[str, list[Array]] = {}
        begins, ends = np.maximum(own.start, bounds[:-1]), np.minimum(own.stop, bounds[1:])
        needed = np.flatnonzero(begins < ends).tolist()
        # A process without vertices reads dtypes, from the part that it has written if it has.
        for part in needed or [min(self._processes.rank, len(bounds) - 2)]:
            first, end = int(begins[part]), int(ends[part])
            path = self._folder / self._part(step, part, len(bounds) - 1)
            try:
                with np.load(path) as arrays:
                    begin = int(arrays["vertices"][0])
                    for name in arrays.files:
                        if name != "vertices":
                            values = arrays[name][max(0, first - begin) : max(0, end - begin)]
                            pieces.setdefault(name, []).append(values)
            except OSError as error:
                raise FileError(
                    f"process {self._processes.rank} cannot read {path} ({error.strerror or error}): "
                    "processes that do not see one file system need the same number and order as those "
                    "that have written it"
                ) from error
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                raise FormatError(path, f"the file is damaged: {error}") from error
        numbers = {key: float.fromhex(value) for key, value in state["numbers"].items()}
        return step, numbers, {name: np.concatenate(parts) for name, parts in pieces.items()}

    def _part(self, step: int, part: int, parts: int) -> str:
        return f"step-{step:08}.part-{part:05}-of-{parts:05}.npz"

    def _compare(self, saved: Mapping[str, Any]) -> None:
        """Raise InputError unless the arguments of the saved state are those of this run."""
        for name, value in self._arguments.items():
            if saved.get(name) != value:
                raise InputError(
                    f"{self._folder} has the state of a run with {name} {shown(saved.get(name))}, and "
                    f"this one has {shown(value)}: name another folder, or remove this one"
                )


def _store(file: BinaryIO) -> None:
    """Have a file on the disk before another one names it, or replaces it: a machine may go down, too."""
    file.flush()
    os.fsync(file.fileno())


def _is_state(found: Any) -> bool:
    """Return True if a JSON document has what :meth:`Checkpoint.save` writes."""
    keys = {"arguments", "step", "numbers", "bounds"}
    return isinstance(found, dict) and keys <= found.keys() and isinstance(found["arguments"], dict)


def _described(graph: DistributedGraph, *, weighted: bool) -> dict[str, Any]:
    """Return numbers by which graphs differ from each other, the same for any number of processes."""
    rows = graph.rows
    threads = thread_count_for(len(rows.targets))
    sums = np.zeros(threads, np.uint64)
    positions = graph.cached("slot positions", lambda: graph.positions_of_slots(rows))
    weights = rows.weights if weighted else None
    bits = np.empty(0, np.int64)
    if weights is not None:
        bits = weights.view(np.int64 if weights.itemsize == 8 else np.int32)
    run_team(
        _digest, rows.offsets, rows.targets, positions, bits, graph.vertices.start, sums,
        threads=threads,
    )  # fmt: skip
    own = int(sums.sum(dtype=np.uint64).view(np.int64))
    digest = int(graph.processes.meet(own)[:, 0].astype(np.uint64).sum(dtype=np.uint64))
    return {
        "vertices": graph.vertex_count,
        "arcs": graph.arc_count,
        "checksum of the arcs": f"{digest:016x}",
    }


@kernel
def _digest(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, positions: Any, bits: Any, first: int,
    sums: Any,
) -> None:  # fmt: skip
    """Add up hashes of a thread's arcs, of which each has source, target and weight."""
    begin, end = block_range(rank, size, offsets.size - 1)
    total = np.uint64(0)
    for v in range(begin, end):
        row = mix(np.uint64(first + v))
        for arc in range(offsets[v], offsets[v + 1]):
            word = mix(row ^ np.uint64(positions[targets[arc]]))
            if bits.size:
                word = mix(word ^ np.uint64(bits[arc]))
            total += word
    sums[rank] = total
