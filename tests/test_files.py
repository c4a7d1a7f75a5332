"""Files that are written: complete under their name or not there, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from godwit import files
from godwit.errors import FileError
from godwit.files import check_writable, replacing

WRITER = """
import sys, time
from godwit import files
if "named" in sys.argv:
    files._open_unnamed = lambda folder: None
with files.replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    time.sleep(0 if "done" in sys.argv else 60)
"""


@pytest.fixture(params=["unnamed", "named"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether files have no name while they are written, or a temporary one."""
    if request.param == "named":
        monkeypatch.setattr(files, "_open_unnamed", lambda folder: None)
    elif (handle := files._open_unnamed(tmp_path)) is None:
        pytest.skip("there are no unnamed files here")
    else:
        os.close(handle)
    return str(request.param)


def writer(path: Path, *options: str) -> subprocess.Popen[str]:
    """A process that has written half of a file."""
    command = [sys.executable, "-c", WRITER, str(path), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def finish(path: Path) -> None:
    """Let a new process write a file."""
    process = writer(path, "done")
    with process:
        pass
    assert process.returncode == 0
    assert path.read_bytes() == b"half"


@pytest.mark.parametrize("before", [None, b"old"])
def test_killed_while_it_is_written(kind: str, before: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    if before is not None:
        path.write_bytes(before)
    kill(writer(path, kind))
    assert (path.read_bytes() if path.exists() else None) == before
    left = set(tmp_path.iterdir()) - {path}
    assert len(left) == (1 if kind == "named" else 0)
    finish(path)
    assert list(tmp_path.iterdir()) == [path]


def test_killed_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    program = f"""
from godwit.files import replacing
print("ready", flush=True)
while True:
    with replacing({str(path)!r}) as file:
        file.write(b"x" * 1000)
"""
    for seed in range(5):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.Random(seed).random() / 20)
            process.send_signal(signal.SIGKILL)
        assert not path.exists() or path.read_bytes() == b"x" * 1000
    finish(path)
    assert list(tmp_path.iterdir()) == [path]


def test_what_somebody_is_writing_is_no_leftover(tmp_path: Path) -> None:
    process = writer(tmp_path / "one", "named")
    try:
        (temporary,) = tmp_path.iterdir()
        finish(tmp_path / "two")
        assert temporary.exists()
    finally:
        kill(process)
    finish(tmp_path / "two")
    assert not temporary.exists()


def test_what_is_no_leftover_of_ours_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    others = [
        folder / name for name in (".godwit-x.tmp", "godwit-abcdefgh.tmp", ".godwit-abcdefgh")
    ]
    for other in others:
        other.touch()
    (folder / ".godwit-aaaaaaaa.tmp").symlink_to(others[0])
    os.mkfifo(folder / ".godwit-bbbbbbbb.tmp")
    (folder / ".godwit-cccccccc.tmp").mkdir()
    if os.geteuid() == 0:
        (folder / ".godwit-dddddddd.tmp").touch()
        os.chown(folder / ".godwit-dddddddd.tmp", 1, 1)
    before = set(folder.iterdir())
    with replacing(folder / "out") as file:
        file.write(b"it")
    assert set(folder.iterdir()) == before | {folder / "out"}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("private", [False, True])
def test_permissions_and_links(kind: str, exists: bool, private: bool, tmp_path: Path) -> None:
    path, link = tmp_path / "out", tmp_path / "link"
    link.symlink_to("out")
    if exists:
        path.write_bytes(b"old")
        path.chmod(0o664)
    (tmp_path / "other").touch()
    check_writable(link)
    with replacing(link, private=private) as file:
        file.write(b"new")
    usual = 0o664 if exists else stat.S_IMODE((tmp_path / "other").stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == (0o600 if private else usual)
    assert link.is_symlink()
    assert (path.read_bytes(), path.stat().st_nlink) == (b"new", 1)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "other", "out"]


def test_what_appears_meanwhile_is_replaced(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replacing(path) as file:
        file.write(b"new")
        path.write_bytes(b"in between")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_block_may_close_the_file(kind: str, tmp_path: Path) -> None:
    with replacing(tmp_path / "out") as file:
        file.write(b"new")
        file.close()
    assert (tmp_path / "out").read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_nothing(kind: str, error: BaseException, tmp_path: Path) -> None:
    def fail() -> None:
        with replacing(tmp_path / "out") as file:
            file.write(b"half")
            raise error

    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(type(error)):
        fail()
    assert list(tmp_path.iterdir()) == []
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("write", [check_writable, lambda path: replacing(path).__enter__()])
def test_what_is_no_file_is_refused(kind: str, write: Callable[[Any], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(FileError, match="not a regular file"):
            write(path)
    with pytest.raises(FileError, match="No such file or directory"):
        write(tmp_path / "absent" / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]
