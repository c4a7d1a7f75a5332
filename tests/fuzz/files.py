"""Damaged files of every format and compression that we write: read, or refused by an exception of ours.

Where a format or a compression has checksums, one flipped bit must not make another graph of it.
Every 200th case goes through ``godwit info``: exit status 0, or 2 with one line on stderr.
"""

from __future__ import annotations

import atexit
import gzip
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import godwit as gw
from godwit.errors import GodwitError
from godwit.io.format_names import FORMATS
from mutations import mutated, mutated_text

from .watch import raised

_COMPRESSIONS = ("", "", ".gz", ".bz2", ".xz", ".zst")
_CHECKED = (".gz", ".bz2", ".xz", ".zst", ".godwit", ".parquet")
_COMMAND_EVERY = 200
_COMMAND_LIMIT_S = 100
_MEMORY_BYTES = 6 << 30
"""Of address space beyond what the process has: what is claimed by a header is not allocated."""
_MOST_MESSAGE = 2000


def case(seed: int, number: int) -> tuple[str, str | None]:
    """Try one case."""
    generator = random.Random(f"files {seed} {number}")
    samples = _samples()
    name = generator.choice(sorted(samples))
    content = samples[name]
    parts = [part for part in sorted(content) if part]
    damaged = generator.choice(parts)
    whole = {part: content[part] for part in parts}
    sound = None
    if name.endswith(_CHECKED) and generator.randrange(4) == 0:
        sound = _sound(name)
        bit = generator.randrange(8 * len(content[damaged]))
        flipped = bytearray(content[damaged])
        flipped[bit // 8] ^= 1 << bit % 8
        whole[damaged] = bytes(flipped)
    else:
        whole[damaged] = _damaged(generator, name, content[damaged])
    path = _put(name, whole)
    if sound is not None:
        return f"bit of {name.split('.', 2)[2]}", _by_comparison(path, sound)
    if number % _COMMAND_EVERY == _COMMAND_EVERY - 1:
        return "godwit info", _by_command(path)
    return name.split(".", 2)[2], _by_process(path, generator)


def _put(name: str, whole: dict[str, bytes]) -> Path:
    """Write the parts of a sample; return the path of the one that is read."""
    for path in _folder().iterdir():
        path.unlink()
    for part, data in whole.items():
        (_folder() / part).write_bytes(data)
    return _folder() / _main_part(name, sorted(whole))


@cache
def _sound(name: str) -> tuple[object, ...]:
    """Return what a sample is when nothing has happened to it."""
    content = _samples()[name]
    return _signature(gw.read(_put(name, {part: content[part] for part in content if part})))


def _signature(graph: gw.Graph) -> tuple[object, ...]:
    weights = None if graph.weights is None else (graph.weights.dtype, graph.weights.tolist())
    arcs = graph.offsets.tolist(), graph.targets.tolist()
    return graph.directed, arcs, weights, list(graph.ids)


def _by_comparison(path: Path, sound: tuple[object, ...]) -> str | None:
    _limit_memory()
    try:
        graph = gw.read(path)
        return None if _signature(graph) == sound else "one flipped bit has made another graph"
    except GodwitError as error:
        return _wrong_error(error)
    except Exception as error:
        return raised(error)


def describe(seed: int, number: int) -> str:
    """Try the case, and return where its files are kept."""
    case(seed, number)
    kept = Path(tempfile.mkdtemp(prefix="fuzz-"))
    shutil.copytree(_folder(), kept, dirs_exist_ok=True)
    return f"{', '.join(path.name for path in kept.iterdir())} in {kept}"


def _damaged(generator: random.Random, name: str, content: bytes) -> bytes:
    seed = generator.randrange(1 << 30)
    other = generator.choice(sorted(_samples()))
    splice = next(iter(_samples()[other].values()))
    match generator.randrange(5):
        case 0:
            cut, begin = generator.randrange(len(content) + 1), generator.randrange(len(splice) + 1)
            return content[:cut] + splice[begin:]
        case 1 | 2:
            if content.isascii():
                return mutated_text(content, splice, seed)
            if content[:2] == b"\x1f\x8b":  # what decompresses well is the more interesting
                return gzip.compress(mutated_text(gzip.decompress(content), splice, seed), 1)
    return mutated(content, seed)


def _by_process(path: Path, generator: random.Random) -> str | None:
    _limit_memory()
    options = generator.choice(
        [{}, {}, {}, {"directed": False}, {"relabel": True}, {"relabel": False}]
    )
    try:
        graph = gw.read(path, **options)
        return _wrong_graph(graph)
    except GodwitError as error:
        return _wrong_error(error)
    except Exception as error:
        return raised(error)


def _wrong_graph(graph: gw.Graph) -> str | None:
    """Return what makes a graph that was read unusable."""
    count = graph.vertex_count
    offsets, targets = graph.offsets, graph.targets
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != len(targets):
        return f"offsets of {graph} are wrong"
    if np.any(np.diff(offsets) < 0):
        return f"offsets of {graph} fall"
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < count:
        return f"targets of {graph} are no vertices"
    if graph.weights is not None and len(graph.weights) != len(targets):
        return f"weights of {graph} are too many, or too few"
    if count:
        _ = graph.ids[0], graph.ids[count - 1]
    return None


def _wrong_error(error: GodwitError) -> str | None:
    """Return what is wrong with an exception of ours."""
    message = str(error)
    if not message or "\n" in message or len(message) > _MOST_MESSAGE:
        return f"{type(error).__name__} has the message {message[:200]!r}"
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception as fault:
        return f"{type(error).__name__} does not survive pickle: {raised(fault)}"
    if type(copy) is not type(error) or str(copy) != message:
        return f"{type(error).__name__} does not survive pickle: {message!r} becomes {str(copy)!r}"
    return None


def _by_command(path: Path) -> str | None:
    done = subprocess.run(
        [sys.executable, "-m", "godwit", "info", str(path)],
        capture_output=True, timeout=_COMMAND_LIMIT_S, check=False,
    )  # fmt: skip
    lines = done.stderr.decode(errors="replace").splitlines()
    if done.returncode == 0 and not lines:
        return None
    if done.returncode == 2 and len(lines) == 1 and lines[0].startswith("godwit: "):
        return None
    return f"status {done.returncode}, stderr {lines[:5]}"


@cache
def _limit_memory() -> None:
    """Limit the address space of this process."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, hard))


# --- Sound files.


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="godwit-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _graphs() -> dict[str, gw.Graph]:
    generator = np.random.default_rng(5)
    sources, targets = generator.integers(0, 30, (2, 80))
    plain = gw.Graph.from_edges(sources, targets, vertex_count=32)
    return {
        "plain": plain,
        "integers": plain.with_weights(generator.integers(0, 2**40, 80)),
        "floats": plain.with_weights(generator.random(80)),
        "undirected": gw.Graph.from_edges(sources, targets, directed=False),
        "named": gw.Graph.from_edges([0, 1, 2], [1, 2, 0], ids=["Ulm", "Bonn", "Köln"]),
    }


def _main_part(name: str, parts: list[str]) -> str:
    """Return the part of a sample that is named when it is read."""
    return name if name in parts else parts[0]


@cache
def _samples() -> dict[str, dict[str, bytes]]:
    """Return sound files: for each, the content of all its parts by their names."""
    samples: dict[str, dict[str, bytes]] = {}
    endings = [ending for format_name in FORMATS.values() for ending in format_name.endings]
    with tempfile.TemporaryDirectory() as folder:
        for kind, graph in _graphs().items():
            for ending in endings:
                for compression in dict.fromkeys(_COMPRESSIONS):
                    place = Path(folder) / f"{kind}{ending}{compression}"
                    place.mkdir()
                    name = f"g.{kind}{ending}{compression}"
                    try:
                        gw.write(graph, place / name)
                    except GodwitError:  # the format cannot hold it
                        continue
                    samples[name] = {path.name: path.read_bytes() for path in place.iterdir()}
    return samples
