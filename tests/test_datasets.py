"""Named data sets: fetched from a local server that misbehaves in every way, kept, checked, read."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import random
import re
import resource
import shutil
import socket
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

import godwit as gw
from godwit import config
from godwit.errors import FileError, FormatError, InputError
from godwit.io import datasets
from godwit.io.datasets import fetching
from godwit.io.datasets.catalog import DataSet, catalog, named
from graphs import arcs_of

ROADS = b"c three roads\np sp 3 3\na 1 2 5\na 2 3 7\na 3 1 9\n"
MATRIX = b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 1\n"
ROAD_FILE = "USA-road-d.NY.gr.gz"
MATRIX_FILE = "LAW/cnr-2000.tar.gz"


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


Answer = Callable[[BaseHTTPRequestHandler], None]


class Mirror:
    """A server on this machine: files by path, and what it does instead of sending one."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.released = threading.Event()
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.removeprefix("/mirror/")
                mirror.asked.append(path)
                if path in mirror.faults:
                    mirror.faults[path](self)
                elif path in mirror.files:
                    send(self, mirror.files[path])
                else:
                    self.send_error(404)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/mirror"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    @property
    def downloads(self) -> list[str]:
        return [path for path in self.asked if path != "SHA256SUMS"]


def send(
    request: BaseHTTPRequestHandler, content: bytes, length: int | None = None, status: int = 200
) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(len(content) if length is None else length))
    request.end_headers()
    request.wfile.write(content)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "datasets"


def mirror_folder(cache: Path) -> Path:
    """The folder of the only mirror in the cache."""
    (folder,) = cache.glob("mirror-*")
    return folder


@pytest.fixture
def mirror(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    mirror = Mirror()
    monkeypatch.setenv("GODWIT_DATASETS", mirror.url)
    mirror.files[ROAD_FILE] = gzip.compress(ROADS, mtime=0)
    mirror.files[MATRIX_FILE] = tar_of({"cnr-2000/cnr-2000.mtx": MATRIX})
    yield mirror
    mirror.close()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def failure(name: str = "USA-road-d.NY") -> str:
    """What is said about a data set that cannot be had: one line."""
    with pytest.raises(FileError) as caught:
        gw.dataset(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_fetched_once_and_read(mirror: Mirror, cache: Path) -> None:
    for _ in range(2):
        graph = gw.dataset("USA-road-d.NY")
        assert arcs_of(graph) == [(0, 1, 5), (1, 2, 7), (2, 0, 9)]
        assert graph.directed
    assert mirror.downloads == [ROAD_FILE]
    assert files_in(mirror_folder(cache)) == [ROAD_FILE]


@pytest.mark.parametrize(
    ("name", "path", "member", "pack"),
    [
        ("cnr-2000", MATRIX_FILE, "cnr-2000.mtx", tar_of),
        ("soc-orkut", "soc-orkut.zip", "soc-orkut.mtx", zip_of),
    ],
)
def test_of_an_archive_the_graph_alone_is_kept(
    mirror: Mirror, cache: Path, name: str, path: str, member: str,
    pack: Callable[[dict[str, bytes]], bytes],
) -> None:  # fmt: skip
    mirror.files[path] = pack(
        {
            f"other_{member}": b"no graph",
            "../../outside.txt": b"no graph",
            "/etc/outside.txt": b"no graph",
            f"../../../{name}/{member}": MATRIX,
            "later": b"no graph",
        }
    )
    graph = gw.dataset(name)
    assert arcs_of(graph) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert not graph.directed
    stored = str(Path(path).with_name(f"{member}.zst"))
    assert files_in(mirror_folder(cache)) == [stored]
    assert not list(cache.parent.parent.rglob("outside.txt"))
    gw.dataset(name)
    assert mirror.downloads == [path]


def test_a_link_in_an_archive_is_not_followed(mirror: Mirror, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(MATRIX)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo("cnr-2000/cnr-2000.mtx")
            member.type = kind
            member.linkname = str(tmp_path / "secret")
            tar.addfile(member)
    mirror.files[MATRIX_FILE] = packed.getvalue()
    assert "there is no cnr-2000.mtx in the archive" in failure("cnr-2000")
    assert files_in(cache) == []


def test_bzip2_archives_are_unpacked(mirror: Mirror) -> None:
    content = b"% asym unweighted\n1 2\n2 3\n"
    mirror.files["download.tsv.friendster.tar.bz2"] = tar_of(
        {"friendster/README.friendster": b"1 2", "friendster/out.friendster": content}, "w:bz2"
    )
    assert gw.dataset("friendster", id_base=1).arc_count == 2


def test_progress_is_reported_in_order(mirror: Mirror) -> None:
    seen: list[tuple[int, int, str]] = []
    gw.dataset("cnr-2000", progress=lambda *report: seen.append(report))
    assert all(0 <= done <= total for done, total, _ in seen)
    phases = list(dict.fromkeys(phase for *_, phase in seen))
    assert phases[:2] == ["downloading", "unpacking"]
    size = len(mirror.files[MATRIX_FILE])
    assert (size, size, "downloading") in seen


def test_options_are_those_of_read(mirror: Mirror) -> None:
    graph = gw.dataset("USA-road-d.NY", directed=False, weighted=False)
    assert not graph.directed
    assert not graph.is_weighted
    for option in ("path", "nonsense"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
            gw.dataset("cnr-2000", **{option: 1})
    assert mirror.downloads == [ROAD_FILE]


def cut(keep: int) -> Answer:
    return lambda request: send(request, gzip.compress(ROADS)[:keep], len(gzip.compress(ROADS)))


def cut_chunks(request: BaseHTTPRequestHandler) -> None:
    request.protocol_version = "HTTP/1.1"
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.send_header("Connection", "close")
    request.end_headers()
    request.wfile.write(b"10\r\n" + gzip.compress(ROADS)[:16] + b"\r\n")


def without_length(content: bytes) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(content)

    return answer


def redirect_forever(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", request.path)
    request.send_header("Content-Length", "0")
    request.end_headers()


def nonsense(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"\x00\x01 this is no HTTP\r\n\r\n")


FAULTS: dict[str, tuple[Answer, str]] = {
    "cut at once": (cut(0), r"the connection was cut before all \d+ bytes had come"),
    "cut": (cut(20), r"cut before all \d+ bytes had come"),
    "cut before the last byte": (cut(len(gzip.compress(ROADS)) - 1), "cut before all"),
    "cut within chunks": (cut_chunks, "cut before the end"),
    "cut, length unknown": (without_length(gzip.compress(ROADS)[:30]), "cut before the end"),
    "nothing": (without_length(b""), "cut before the end"),
    "404": (lambda request: request.send_error(404), "the server answered 404"),
    "403": (lambda request: request.send_error(403), "the server answered 403"),
    "500": (lambda request: request.send_error(500), "the server answered 500"),
    "redirects in circles": (redirect_forever, "redirects"),
    "no HTTP": (nonsense, "the server cannot be reached"),
    "hangs up": (lambda request: None, "the server cannot be reached"),
    "a web page": (lambda request: send(request, b"\n<!DOCTYPE html>"), "sent a web page"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_server_are_one_line_and_leave_nothing(
    mirror: Mirror, cache: Path, fault: str
) -> None:
    mirror.faults[ROAD_FILE], expected = FAULTS[fault]
    message = failure()
    assert re.search(expected, message)
    assert f"cannot fetch USA-road-d.NY from {mirror.url}/{ROAD_FILE}: " in message
    assert f"put it at {mirror_folder(cache) / ROAD_FILE}" in message
    assert files_in(cache) == []
    del mirror.faults[ROAD_FILE]
    assert gw.dataset("USA-road-d.NY").vertex_count == 3


@pytest.mark.parametrize("at", ["at once", "in the middle"])
def test_a_server_that_hangs_is_given_up(
    mirror: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def hang(request: BaseHTTPRequestHandler) -> None:
        if at == "in the middle":
            request.send_response(200)
            request.send_header("Content-Length", "100")
            request.end_headers()
            request.wfile.write(gzip.compress(ROADS)[:10])
        mirror.released.wait(30)

    monkeypatch.setattr(fetching, "_TIMEOUT_S", 0.2)
    mirror.faults[ROAD_FILE] = hang
    begin = time.monotonic()
    assert "sent nothing for 0.2 s" in failure()
    assert time.monotonic() - begin < 25  # the mirror hangs for 30 s
    assert files_in(cache) == []


def test_a_slow_server_is_waited_for(mirror: Mirror) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        content = gzip.compress(ROADS)
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        for begin in range(0, len(content), 20):
            request.wfile.write(content[begin : begin + 20])
            time.sleep(0.01)

    mirror.faults[ROAD_FILE] = drip
    assert gw.dataset("USA-road-d.NY").arc_count == 3


def test_redirects_are_followed(mirror: Mirror) -> None:
    def redirect(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", "/mirror/elsewhere")
        request.end_headers()

    mirror.faults[ROAD_FILE] = redirect
    mirror.files["elsewhere"] = gzip.compress(ROADS)
    assert gw.dataset("USA-road-d.NY").arc_count == 3


@pytest.mark.parametrize("encoded", [False, True])
def test_answers_without_length_are_right_too(mirror: Mirror, encoded: bool) -> None:
    """Some servers say Content-Encoding of files that are compressed: then they arrive unpacked."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if encoded:
            request.send_header("Content-Encoding", "gzip")
            request.send_header("Content-Length", str(len(gzip.compress(ROADS))))
        request.end_headers()
        request.wfile.write(gzip.compress(ROADS))

    mirror.faults[ROAD_FILE] = answer
    assert gw.dataset("USA-road-d.NY").arc_count == 3


def test_offline_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GODWIT_DATASETS", f"http://127.0.0.1:{unused.getsockname()[1]}")
        assert "the server cannot be reached; is this machine offline?" in failure()
    assert files_in(cache) == []


def test_an_unknown_host_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    message = failure()
    assert "is this machine offline?" in message
    assert "https://www.diag.uniroma1.it/challenge9/data/USA-road-d/USA-road-d.NY.gr.gz" in message


@pytest.mark.parametrize("home", ["http://", "http://[", "http://*.a:99999"])
def test_mirrors_that_are_no_urls(cache: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("GODWIT_DATASETS", home)
    assert failure().startswith("cannot fetch USA-road-d.NY from ")


@pytest.mark.parametrize("home", ["ftp://x/y", "gopher://x", "://", "file://elsewhere/data"])
def test_mirrors_of_other_kinds(cache: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("GODWIT_DATASETS", home)
    message = failure()
    assert "GODWIT_DATASETS must be an http:// or https:// address, or a folder, got" in message
    assert home in message


@pytest.mark.parametrize("form", ["{} *{}", "{}  {}", "{}  ./{}", "{} {}"])
def test_checksums_of_a_mirror_are_heeded(mirror: Mirror, cache: Path, form: str) -> None:
    right = hashlib.sha256(mirror.files[ROAD_FILE]).hexdigest()
    wrong = hashlib.sha256(b"another").hexdigest()
    others = f"{wrong}  x{ROAD_FILE}\n{right[:-1]}\n\n"
    mirror.files["SHA256SUMS"] = (others + form.format(wrong, ROAD_FILE) + "\n").encode()
    message = failure()
    assert f"wrong checksum: its SHA-256 is {right}, SHA256SUMS says {wrong}" in message
    assert files_in(cache) == []
    mirror.files["SHA256SUMS"] = form.format(right.upper(), ROAD_FILE).encode()
    assert gw.dataset("USA-road-d.NY").arc_count == 3


def test_checksums_that_cannot_be_had_stop_the_download(mirror: Mirror, cache: Path) -> None:
    for fault, problem in (
        (lambda request: request.send_error(500), "the server answered 500"),
        (lambda request: send(request, b"1", 2), "cut before the end"),
    ):
        mirror.faults["SHA256SUMS"] = fault
        message = failure()
        assert problem in message
        assert "/SHA256SUMS: " in message
    assert mirror.downloads == []


def test_a_file_that_is_damaged_in_the_cache_is_not_read(mirror: Mirror, cache: Path) -> None:
    gw.dataset("USA-road-d.NY")
    stored = mirror_folder(cache) / ROAD_FILE
    content = bytearray(stored.read_bytes())
    content[12] ^= 1
    stored.write_bytes(content)
    with pytest.raises(FormatError, match="corrupt gzip stream"):
        gw.dataset("USA-road-d.NY")
    stored.unlink()
    assert gw.dataset("USA-road-d.NY").arc_count == 3
    assert mirror.downloads == [ROAD_FILE] * 2


def test_a_file_that_the_user_put_there_is_read(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / ROAD_FILE).write_bytes(ROADS)
    assert gw.dataset("USA-road-d.NY").arc_count == 3


def test_an_archive_that_the_user_put_there_is_unpacked(cache: Path) -> None:
    (cache / "LAW").mkdir(parents=True)
    (cache / MATRIX_FILE).write_bytes(tar_of({"cnr-2000/cnr-2000.mtx": MATRIX}))
    assert gw.dataset("cnr-2000").vertex_count == 3
    (cache / MATRIX_FILE).unlink()
    assert gw.dataset("LAW/cnr-2000").vertex_count == 3


def test_a_folder_serves_as_mirror(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mirror"
    (folder / "LAW").mkdir(parents=True)
    (folder / ROAD_FILE).write_bytes(gzip.compress(ROADS))
    (folder / MATRIX_FILE).write_bytes(tar_of({"cnr-2000.mtx": MATRIX}))
    monkeypatch.setenv("GODWIT_DATASETS", str(folder))
    assert gw.dataset("USA-road-d.NY").arc_count == 3
    assert gw.dataset("cnr-2000").arc_count == 4
    assert files_in(mirror_folder(cache)) == ["LAW/cnr-2000.mtx.zst"]
    assert f"no file {folder / 'USA-road-d.BAY.gr.gz'}" in failure("USA-road-d.BAY")


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_folder_may_be_a_url(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    folder = tmp_path / "a mirror"
    folder.mkdir()
    (folder / ROAD_FILE).write_bytes(gzip.compress(ROADS))
    monkeypatch.setenv("GODWIT_DATASETS", f"file://{host}{quote(str(folder))}/")
    assert fetching.fetch(named("USA-road-d.NY")) == folder / ROAD_FILE


def test_a_home_that_nobody_has_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_DATASETS", "~no-such-user/data")
    assert "no file ~no-such-user/data/USA-road-d.NY.gr.gz" in failure()


def archive_of(vertices: int) -> bytes:
    matrix = f"%%MatrixMarket matrix coordinate pattern general\n{vertices} {vertices} 1\n2 1\n"
    return tar_of({"cnr-2000.mtx": matrix.encode()})


def vertex_count() -> int:
    return gw.dataset("cnr-2000").vertex_count


class TestOrigins:
    """What is kept is served only to those who ask for what it was made of."""

    @pytest.fixture
    def folder(self, cache: Path, tmp_path: Path) -> Path:
        folder = tmp_path / "folder"
        (folder / "LAW").mkdir(parents=True)
        (folder / MATRIX_FILE).write_bytes(archive_of(7))
        return folder

    def test_of_a_folder_nothing_is_served_without_it(
        self, mirror: Mirror, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_DATASETS", str(folder))
        assert vertex_count() == 7
        monkeypatch.setenv("GODWIT_DATASETS", mirror.url)
        assert vertex_count() == 3
        assert vertex_count() == 3
        assert mirror.downloads == [MATRIX_FILE]
        monkeypatch.setenv("GODWIT_DATASETS", str(folder))
        assert vertex_count() == 7

    def test_an_archive_that_is_replaced_is_unpacked_anew(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_DATASETS", str(folder))
        assert vertex_count() == 7
        (folder / MATRIX_FILE).write_bytes(archive_of(8))
        os.utime(folder / MATRIX_FILE, ns=(1, 1))
        assert vertex_count() == 8
        (folder / MATRIX_FILE).write_bytes(archive_of(1234567))
        os.utime(folder / MATRIX_FILE, ns=(2, 2))
        assert vertex_count() == 1234567

    def test_an_archive_is_unpacked_once(
        self, cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder.parent)
        times = []
        for name in (str(folder), "folder", f"{folder}/", f"file://{folder}"):
            monkeypatch.setenv("GODWIT_DATASETS", name)
            assert vertex_count() == 7
            stored = mirror_folder(cache) / "LAW" / "cnr-2000.mtx.zst"
            times.append(stored.stat().st_ctime_ns)
        assert len(set(times)) == 1

    def test_of_one_mirror_nothing_is_served_for_another(
        self, mirror: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert gw.dataset("USA-road-d.NY").arc_count == 3
        monkeypatch.setenv("GODWIT_DATASETS", f"{mirror.url}/")
        assert gw.dataset("USA-road-d.NY").arc_count == 3
        assert mirror.downloads == [ROAD_FILE]
        mirror.files[f"other/{ROAD_FILE}"] = b"p sp 2 1\na 1 2 5\n"
        monkeypatch.setenv("GODWIT_DATASETS", f"{mirror.url}/other")
        assert gw.dataset("USA-road-d.NY").arc_count == 1

    def test_the_home_is_another_origin(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gw.dataset("USA-road-d.NY")
        monkeypatch.delenv("GODWIT_DATASETS")

        def unknown(*_: object, **__: object) -> None:
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        assert "is this machine offline?" in failure()

    def test_an_archive_in_the_cache_goes_before_what_was_downloaded(
        self, mirror: Mirror, cache: Path
    ) -> None:
        assert vertex_count() == 3
        archive = mirror_folder(cache) / MATRIX_FILE
        archive.write_bytes(archive_of(9))
        assert vertex_count() == 9
        archive.write_bytes(archive_of(1234567))
        assert vertex_count() == 1234567
        archive.unlink()
        assert vertex_count() == 1234567
        assert mirror.downloads == [MATRIX_FILE]

    def test_a_file_put_where_the_message_says_is_read(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_DATASETS", "http://")
        path = re.search(r"put it at ([^)]*)", failure())
        assert path is not None
        Path(path[1]).write_bytes(b"p sp 2 1\na 1 2 5\n")
        assert gw.dataset("USA-road-d.NY").arc_count == 1

    def test_passwords_do_not_matter_and_are_not_kept(
        self, mirror: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gw.dataset("USA-road-d.NY")
        monkeypatch.setenv("GODWIT_DATASETS", mirror.url.replace("://", "://me:secret@"))
        gw.dataset("USA-road-d.NY")
        assert mirror.downloads == [ROAD_FILE]
        assert not any("secret" in name for name in files_in(cache))


def unpacking_failure(data: DataSet, content: bytes) -> str | None:
    try:
        fetching._unpack(data, io.BytesIO(content), "there", io.BytesIO(), None)
    except FileError as error:
        return str(error)
    return None


def test_corrupt_archives_are_one_line_and_leave_nothing(mirror: Mirror, cache: Path) -> None:
    generator = np.random.default_rng(1)
    matrix = MATRIX + b"%" + generator.bytes(4000).replace(b"\n", b"") + b"\n"
    chance = random.Random(1)
    archives = {
        "cnr-2000": (MATRIX_FILE, tar_of({"a": b"b" * 700, "cnr-2000/cnr-2000.mtx": matrix})),
        "soc-orkut": ("soc-orkut.zip", zip_of({"readme": b"b" * 700, "soc-orkut.mtx": matrix})),
        "friendster": (
            "download.tsv.friendster.tar.bz2",
            tar_of({"friendster/out.friendster": matrix}, "w:bz2"),
        ),
    }
    refused = 0
    for name, (path, archive) in archives.items():
        data = named(name)
        for _ in range(200):
            content = bytearray(archive)
            for _ in range(chance.choice((1, 1, 20))):
                content[chance.randrange(len(content))] = chance.randrange(256)
            if chance.random() < 0.3:
                del content[chance.randrange(len(content)) :]
            message = unpacking_failure(data, bytes(content))
            if message is None:
                continue
            refused += 1
            assert message.startswith(f"cannot unpack {name} from there: ")
            assert "\n" not in message
        mirror.files[path] = archive[: len(archive) // 2]
        assert "the archive is corrupt" in failure(name)
        mirror.files[path] = b"no archive"
        assert "the archive is corrupt" in failure(name)
        assert files_in(cache) == []
    assert refused > 200


def test_an_unwritable_cache_is_one_line(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "file"))
    message = failure()
    assert message.startswith(f"cannot make the folder {tmp_path / 'file' / 'datasets'}/")
    assert "GODWIT_CACHE names another one" in message


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to write larger files, much as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("name", "limit"), [("USA-road-d.NY", 10_000), ("cnr-2000", 10_000), ("cnr-2000", 220_000)]
)
def test_a_full_disk_is_one_line_and_leaves_nothing(
    mirror: Mirror, cache: Path, name: str, limit: int
) -> None:
    noise = np.random.default_rng(2).bytes(100_000).hex().encode()
    mirror.files[ROAD_FILE] = gzip.compress(noise)
    mirror.files[MATRIX_FILE] = tar_of({"cnr-2000/cnr-2000.mtx": MATRIX + noise * 3})
    packed = len(mirror.files[MATRIX_FILE])
    with files_of_at_most(min(limit, packed - 1) if limit < packed else limit):
        message = failure(name)
    assert re.match(rf"cannot write {cache}/\S+: File too large", message)
    assert files_in(cache) == []


def test_what_does_not_fit_is_refused_before_it_comes(mirror: Mirror, cache: Path) -> None:
    mirror.faults[ROAD_FILE] = lambda request: send(request, b"", 1 << 60)
    assert "the download takes 1,152,921,504,606,846,976 bytes and" in failure()
    assert files_in(cache) == []


def test_interruption_leaves_nothing(mirror: Mirror, cache: Path) -> None:
    for name, phases in (("USA-road-d.NY", 1), ("cnr-2000", 2)):
        for interrupted in ("downloading", "unpacking")[:phases]:

            def interrupt(done: int, total: int, phase: str, at: str = interrupted) -> None:
                if phase == at:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                gw.dataset(name, progress=interrupt)
            assert files_in(cache) == []


def test_fetching_at_the_same_time_does_no_harm(mirror: Mirror, cache: Path) -> None:
    names = ["USA-road-d.NY", "cnr-2000"] * 6
    with ThreadPoolExecutor(6) as pool:
        paths = list(pool.map(lambda name: fetching.fetch(named(name)), names))
    assert [gw.read(path).vertex_count for path in paths] == [3] * 12
    assert all(gw.dataset(name).vertex_count == 3 for name in names)
    assert len(files_in(cache)) == 2


def test_without_a_home_files_are_temporary(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "cache_folder", lambda: None)
    fetching._temporary_folder.cache_clear()
    path = fetching.fetch(named("USA-road-d.NY"))
    assert path.parent.parent == fetching.cache_folder()
    shutil.rmtree(path.parent.parent)
    fetching._temporary_folder.cache_clear()


def test_names_are_found_in_any_case_and_by_their_aliases() -> None:
    assert named("usa-road-d.usa") is named("USA") is named("dataset:USA-road-d.USA")
    assert named("kron21.sym").url.endswith("/DIMACS10/kron_g500-logn21.tar.gz")
    assert named("law/CNR-2000") is named("cnr-2000")
    other = named("HB/1138_bus")
    assert (other.name, other.member) == ("HB/1138_bus", "1138_bus.mtx")
    assert other.file == "HB/1138_bus.tar.gz"
    assert other.vertices is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("USA-road-d.NYC", "did you mean USA-road-d.NY"),
        ("soc-LiveJournal", "did you mean soc-LiveJournal1"),
        ("europe.som", "did you mean europe_osm"),
        ("quite another thing", r"godwit\.datasets\(\) lists them"),
        ("", "lists them"),
        ("../../etc/passwd", "no data set is called"),
        ("a/..", "no data set is called"),
        ("/etc", "no data set is called"),
        ("HB/1138_bus\n", "no data set is called"),
        (7, "name must be that of a data set, got 7"),
        (None, "name must be that of a data set, got None"),
    ],
)
def test_unknown_names(cache: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gw.dataset(name)


def test_the_catalog_is_consistent() -> None:
    found = gw.datasets()
    assert found == list(catalog())
    for part in ("url", "stored", "name"):
        assert len({getattr(one, part) for one in found}) == len(found)
    for one in found:
        assert urlsplit(one.url).netloc
        assert one.vertices is not None
        assert one.edges is not None
        assert named(one.name) is one
        assert bool(one.member) == one.url.endswith((".tar.gz", ".tar.bz2", ".zip"))
        assert ".." not in Path(one.stored).parts
        assert not Path(one.stored).is_absolute()
    regions = [one for one in found if one.source == "DIMACS-9"]
    assert len(regions) == 24


@pytest.mark.parametrize(
    ("paper", "names"),
    {
        "Groute": "USA OSM-eur-k soc-LiveJournal1 twitter kron21.sym",
        "Gunrock": "soc-LiveJournal1 hollywood-2009 soc-orkut soc-sinaweibo soc-twitter-2010 "
        "indochina-2004 uk-2002 arabic-2005 uk-2005 webbase-2001 coPapersCiteseer com-orkut "
        "com-Friendster twitter-mpi twitter-rv LiveJournal1 friendster sk-2005",
        "Hellås": "hugebubbles-00000 hugebubbles-00010 hugebubbles-00020 coPapersCiteseer "
        "coPapersDBLP delaunay_n23 delaunay_n24 rgg_n_2_22_s0 rgg_n_2_23_s0 rgg_n_2_24_s0 "
        "af_shell10 audikw_1 nlpkkt120 nlpkkt160 nlpkkt200 nlpkkt240 asia.osm europe_osm "
        "germany.osm kron_g500-logn20",
    }.items(),
)
def test_the_graphs_of_the_papers_are_there(paper: str, names: str) -> None:
    for name in names.split():
        assert paper in named(name).papers


def test_the_documentation_lists_every_data_set() -> None:
    page = (Path(__file__).parent.parent / "docs" / "datasets.md").read_text()
    for one in gw.datasets():
        if one.source == "DIMACS-9":
            assert one.name.partition(".")[2] in page
        else:
            assert f"`{one.name}`" in page


def test_counts_agree_with_real_files(data_folder: Path) -> None:
    """Where a real file is at hand, the catalog says of it what is in it."""
    found = 0
    for path in sorted(data_folder.glob("*.xz")):
        name = path.name.split(".mtx")[0].split(".gr")[0]
        try:
            one: DataSet = named(name)
        except InputError:
            continue
        graph = gw.read(path)
        found += 1
        assert graph.vertex_count == one.vertices
        assert graph.directed == one.directed
        assert one.edges == (graph.arc_count if graph.directed else graph.edge_count)
    assert found >= 5


def test_data_sets_on_the_command_line() -> None:
    assert datasets.is_dataset("dataset:USA-road-d.NY")
    assert not datasets.is_dataset("datasets/USA-road-d.NY.gr")


def test_garbage_in_a_file_is_an_error_of_its_format(mirror: Mirror) -> None:
    mirror.files[ROAD_FILE] = bz2.compress(b"no graph at all")
    with pytest.raises(FormatError, match="which is missing"):
        gw.dataset("USA-road-d.NY")
