"""The cache folder: nothing that others could have written is executed, and why is said once."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from godwit import cache, config, files
from godwit.errors import FileError
from godwit.io.datasets import fetching
from godwit.runtime.cpu import compile as kernel_module
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cuda import compile as compilation
from waiting import HANG_S

if not hasattr(os, "geteuid"):
    pytest.skip("folders have no owners here", allow_module_level=True)

STRANGER = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder, below one that others may not write to, and a process that has not warned yet."""
    made = tmp_path / "above" / "cache"
    made.mkdir(parents=True)
    for place in (tmp_path / "above", made):
        place.chmod(0o755)
    monkeypatch.setenv("GODWIT_CACHE", str(made))
    monkeypatch.setattr(cache, "_warned", False)
    yield made
    for place in (tmp_path / "above", made):
        if place.exists():
            os.chown(place, os.geteuid(), -1)


class _Poison:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def _doubled(value: int) -> int:
    return value * 2


def _run_anew(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Compile or load; what was warned of."""
    monkeypatch.setattr(kernel_module, "_INSTANCES", {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert Kernel(_doubled)(21) == 42
    return [str(one.message) for one in caught]


def _poison(folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Compile into a folder, and put a pickle that leaves a mark in the place of each file."""
    _run_anew(monkeypatch)
    files = list(folder.rglob("*.code"))
    assert files
    data = pickle.dumps(_Poison(mark))
    for file in files:
        file.write_bytes(sha256(data).digest() + data)
    return files


def _open_to_group(folder: Path) -> None:
    folder.chmod(0o775)


def _open_to_others(folder: Path) -> None:
    folder.chmod(0o757)


def _sticky_and_open(folder: Path) -> None:
    folder.chmod(0o1777)


def _of_a_stranger(folder: Path) -> None:
    os.chown(folder, STRANGER, -1)


def _below_an_open_folder(folder: Path) -> None:
    folder.parent.chmod(0o777)


def _below_a_strangers_folder(folder: Path) -> None:
    os.chown(folder.parent, STRANGER, -1)


def _open_inside(folder: Path) -> None:
    for inside in folder.glob("cpu/*"):
        inside.chmod(0o777)


UNSAFE = [
    pytest.param(_open_to_group, "may be written by group", id="group"),
    pytest.param(_open_to_others, "may be written by others", id="others"),
    pytest.param(_sticky_and_open, "may be written by others", id="sticky"),
    pytest.param(_of_a_stranger, f"belongs to user {STRANGER}", id="stranger", marks=needs_root),
    pytest.param(_below_an_open_folder, "above it, may be written by others", id="above"),
    pytest.param(
        _below_a_strangers_folder,
        f"above it, belongs to user {STRANGER}",
        id="above-stranger",
        marks=needs_root,
    ),
]


@pytest.mark.parametrize(
    ("open_it", "reason"),
    [*UNSAFE, pytest.param(_open_inside, "may be written by others", id="inside")],
)
def test_code_that_others_could_have_written_is_not_executed(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_it: Callable[[Path], None],
    reason: str,
) -> None:
    mark = tmp_path / "executed"
    _poison(folder, mark, monkeypatch)
    open_it(folder)
    (message,) = _run_anew(monkeypatch)
    assert not mark.exists()
    assert message.startswith(f"the cache folder {folder}")
    assert reason in message
    assert "GODWIT_CACHE" in message
    assert "\n" not in message
    assert _run_anew(monkeypatch) == []  # once is enough


def test_code_that_only_we_could_have_written_is_executed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the poison above is worth; also below a folder like /tmp."""
    mark = tmp_path / "executed"
    _poison(folder, mark, monkeypatch)
    folder.parent.chmod(0o1777)
    assert _run_anew(monkeypatch) == []
    assert mark.exists()


def _given_away(file: Path) -> None:
    os.chown(file, STRANGER, -1)


def _opened(file: Path) -> None:
    file.chmod(0o666)


def _linked(file: Path) -> None:
    target = file.with_name("elsewhere")
    file.rename(target)
    file.symlink_to(target)


def _a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


@pytest.mark.parametrize(
    "change", [pytest.param(_given_away, marks=needs_root), _opened, _linked, _a_pipe]
)
def test_files_that_others_could_have_written_are_not_executed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    mark = tmp_path / "executed"
    for file in _poison(folder, mark, monkeypatch):
        change(file)
    messages = _run_anew(monkeypatch)
    assert ["cannot be written" in message for message in messages] == [True] * (change is _a_pipe)
    assert not mark.exists()


def test_links_are_followed_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("GODWIT_CACHE", str(link))
    mark = tmp_path / "executed"
    _poison(folder, mark, monkeypatch)
    folder.chmod(0o777)
    (message,) = _run_anew(monkeypatch)
    assert str(folder) in message
    assert not mark.exists()


@pytest.mark.parametrize(("open_it", "reason"), UNSAFE)
def test_nothing_is_read_from_an_unsafe_folder_or_written_to_it(
    folder: Path, open_it: Callable[[Path], None], reason: str
) -> None:
    cache.store(b"code", "cuda", "ab", "abc.cubin")
    assert cache.load("cuda", "ab", "abc.cubin") == b"code"
    before = sorted(folder.rglob("*"))
    open_it(folder)
    with pytest.warns(UserWarning, match=reason):
        assert cache.load("cuda", "ab", "abc.cubin") is None
    cache.store(b"other", "cuda", "cd", "cde.cubin")
    assert sorted(folder.rglob("*")) == before
    with pytest.raises(FileError, match=reason):
        fetching.cache_folder()


def test_cubins_are_kept_in_the_checked_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "compiled", lambda *arguments: b"compiled")
    monkeypatch.setattr(compilation, "_key", lambda *arguments: "abc")
    for mode, expected in ((0o700, b"poison"), (0o770, b"compiled")):
        monkeypatch.setattr(compilation, "_BUILT", {})
        folder.chmod(0o700)
        cache.store(b"poison", "cuda", "ab", "abc.cubin")
        folder.chmod(mode)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert compilation.cubin("", (), "80") == expected


def test_a_folder_of_our_own_says_how_to_close_it(folder: Path) -> None:
    folder.chmod(0o775)
    with pytest.warns(UserWarning, match=f"run 'chmod go-w {folder}', or let GODWIT_CACHE name"):
        assert cache.usable_folder() is None
    folder.chmod(0o755)
    assert cache.usable_folder() == folder


@pytest.mark.parametrize("mask", [0o000, pytest.param(0o002, marks=pytest.mark.thorough), 0o077])
def test_what_is_made_is_closed_to_others(tmp_path: Path, mask: int) -> None:
    script = (
        f"import os; os.umask({mask}); from godwit.runtime.cpu.compile import Kernel;"
        "Kernel(lambda value: value)(1)"
    )
    environment = {**os.environ, "GODWIT_CACHE": str(tmp_path / "a" / "b")}
    subprocess.run([sys.executable, "-W", "error", "-c", script], env=environment, check=True)
    made = sorted((tmp_path / "a").rglob("*"))
    assert any(path.is_file() for path in made)
    for path in [tmp_path / "a", *made]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_command_says_it_in_one_line(folder: Path) -> None:
    folder.chmod(0o777)
    command = [sys.executable, "-m", "godwit", "bfs", "path:9", "--source", "0", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"godwit: warning: the cache folder {folder} is not used: ")


@needs_root
def test_root_does_not_use_a_users_folder_nor_a_user_roots(folder: Path) -> None:
    """In containers, too: whoever runs the process is who must own the folder."""
    os.chown(folder, STRANGER, -1)
    with pytest.warns(UserWarning, match=f"belongs to user {STRANGER}"):
        assert cache.usable_folder() is None
    os.chown(folder, 0, -1)
    os.seteuid(STRANGER)
    try:
        refused = cache.refusal(Path("/usr"))
    finally:
        os.seteuid(0)
    assert "belongs to user 0" in refused


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/below"])
def test_what_is_no_folder_is_none(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("GODWIT_CACHE", place)
    assert _run_anew(monkeypatch) == []


def _halved(value: int) -> float:
    return value / 2


def test_a_folder_that_cannot_be_written_is_named_once_where_something_was_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run_anew(monkeypatch) == []

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cache, "replacing", refuse)
    assert _run_anew(monkeypatch) == []
    with pytest.warns(UserWarning, match="Permission denied") as caught:
        assert Kernel(_halved)(21) == 10.5
    cache.store(b"code", "name")  # warns no more
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(
        f"the cache folder {folder} cannot be written (Permission denied), so that each process compiles"
    )
    assert "let GODWIT_CACHE name a folder" in message


def test_a_command_names_a_file_in_place_of_the_folder_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    command = [sys.executable, "-m", "godwit", "bfs", "path:9", "--source", "0", "--quiet"]
    environment = {**os.environ, "GODWIT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"godwit: warning: the cache folder {tmp_path / 'cache'} cannot be")


def test_without_a_cache_folder_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_folder", lambda: None)
    assert cache.usable_folder() is None
    cache.store(b"code", "name")
    assert cache.load("name") is None


_DOUBLES_AT_ONCE = """
import sys, threading
from godwit.runtime.cpu.compile import kernel

@kernel
def doubled(value):
    return 2 * value

doubled.key
print("ready", flush=True)
sys.stdin.readline()
results = []
threads = [threading.Thread(target=lambda: results.append(doubled(21))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == [42] * 4, results
print(sum(doubled.compile().stats.cache_misses.values()))
"""


@pytest.mark.skipif(files.fcntl is None, reason="no locks of files here")
def test_of_processes_that_need_the_same_code_at_once_one_compiles_it(folder: Path) -> None:
    command = [sys.executable, "-c", _DOUBLES_AT_ONCE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    assert sum(int(process.communicate(timeout=HANG_S)[0]) for process in started) == 1


@pytest.mark.skipif(files.fcntl is None, reason="no locks of files here")
def test_a_claim_of_a_process_that_is_killed_is_released(folder: Path) -> None:
    code = "from godwit import cache; claim = cache.Claim('a'); claim.wait(); print(1, flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holder: Any = subprocess.Popen([sys.executable, "-c", code], **pipes)  # type: ignore[call-overload]
    holder.stdout.readline()
    claim = cache.Claim("a")
    threading.Timer(0.2, holder.kill).start()
    assert claim.wait()
    holder.communicate()
    claim.release()
    claim = cache.Claim("a")
    assert not claim.wait()
    claim.release()
