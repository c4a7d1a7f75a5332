"""Kernels: found again by content, whatever the process; what they may refer to."""

from __future__ import annotations

import errno
import gc
import hashlib
import math
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from godwit import Graph, config
from godwit import cache as cache_module
from godwit.cli import ahead
from godwit.dataflow.operators import adapt
from godwit.errors import OperatorError
from godwit.runtime.cpu import compile as kernel_module
from godwit.runtime.cpu.atomics import keep_rolled, prefetch
from godwit.runtime.cpu.compile import Kernel, content_key
from godwit.runtime.cpu.compile_time import compiling
from godwit.runtime.cpu.team import ABORT, Team, barrier, borrowed_team, new_control, run_team
from waiting import HANG_S

SCALE = 3


def _scaled(values: Any) -> Any:
    total = 0
    for index in range(len(values)):
        total += values[index] * SCALE
    return total


def _same_under_another_name(values: Any) -> Any:
    total = 0
    for index in range(len(values)):
        total += values[index] * SCALE
    return total


def test_a_kernel_computes() -> None:
    assert Kernel(_scaled)(np.arange(5)) == 30


def test_the_key_is_the_content() -> None:
    assert content_key(_scaled, {}) == content_key(_same_under_another_name, {})

    def with_step(step: Any) -> Any:
        return lambda value: value + step

    assert content_key(with_step(1), {}) == content_key(with_step(1), {})
    assert content_key(with_step(1), {}) != content_key(with_step(2), {})
    assert content_key(with_step(1), {}) != content_key(with_step(1.0), {})


def test_the_key_follows_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_key(_scaled, {})
    monkeypatch.setitem(globals(), "SCALE", 4)
    assert content_key(_scaled, {}) != before


def test_what_cannot_be_compiled_is_named() -> None:
    unfit = {"a": 1}

    def refers(value: int) -> int:
        return value + unfit["a"]

    with pytest.raises(OperatorError, match="unfit is a dict"):
        Kernel(refers)(1)
    with pytest.raises(OperatorError, match="must be a Python function"):
        Kernel(3)  # type: ignore[arg-type]


_PROGRAM = """
import os, sys
from numba.core import event
import godwit as gw
from godwit.runtime.cpu.compile import Kernel
with event.install_recorder("numba:compile") as record:
    result = gw.sssp(gw.generators.path(9, weights=(1, 5)), 0, devices=2)
    compiled = len(record.buffer)
    os.environ["GODWIT_CACHE"] = sys.argv[1]  # an empty one: what is compiled is counted
    Kernel(lambda value: value + 1)(1)
print(compiled, len(record.buffer) - compiled, int(result.distance[-1]))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """The first compiles what no test before has compiled: the cache is that of all tests."""
    outputs = []
    for folder in ("first", "second"):
        command = [sys.executable, "-c", _PROGRAM, str(tmp_path / folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        outputs.append([int(word) for word in done.stdout.split()])
    assert outputs[1][0] == 0
    assert outputs[0][1] == outputs[1][1] > 0
    assert outputs[0][2] == outputs[1][2]


_COMMAND = """
import sys
from contextlib import suppress
from godwit.cli import main
from godwit.runtime.cpu.compile import _INSTANCES
with suppress(SystemExit):
    main(sys.argv[1:])
for key, instance in _INSTANCES.items():
    print(*[key.rpartition("_")[0]] * len(instance.dispatcher.overloads), sep="\\n", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("info {}/names.csv", ""),
        ("info {}/numbers.csv", "_scan_lines count_lines"),
        (
            "sssp road:300x300,weights=1..64 --source max-degree --verify --output {}/distances.npy",
            "_grid_rows _integer_weights _is_sorted _shared pull",
        ),
    ],
)
def test_first_commands_need_few_kernels(command: str, expected: str, tmp_path: Path) -> None:
    """Each takes a quarter of a second or more where the cache is empty, _shared some four."""
    (tmp_path / "names.csv").write_text("user,friend\na,b\nb,c\nc,d\nd,a\na,c\n")
    (tmp_path / "numbers.csv").write_text("1,2\n2,3\n3,4\n4,5\n5,1\n")
    process = [sys.executable, "-c", _COMMAND, *command.format(tmp_path).split()]
    done = subprocess.run(process, capture_output=True, text=True, check=True)
    assert sorted(done.stderr.split()) == expected.split()


@pytest.mark.parametrize("broken", [False, True])
def test_the_first_search_compiles_in_a_second_process(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that process fails, the command compiles itself."""
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GODWIT_THREADS", "2")
    monkeypatch.setattr(ahead, "_LONGEST_S", 120.0)
    if broken:
        monkeypatch.setattr(ahead, "_PROGRAM", "raise SystemExit(1)")
    edges = [0, 1], [1, 2], np.array([2, 3], np.int32)
    graph = Graph.from_edges(*edges, directed=False, vertex_count=100_000)
    command = ["sssp", "road:3x3,weights=1..2", "--devices", "cpu"]
    with ahead.search_ahead(command):
        ahead.wait(graph, predecessors=False)
        kept = [path.name for path in tmp_path.glob("cache/cpu/*")]
    assert [name.rpartition("_")[0] for name in kept] == ([] if broken else ["_shared"])
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "another"))
    small = tmp_path / "small.csv"
    small.write_text("1,2\n")
    for words in (
        ["bfs", *command[1:]],
        ["sssp", "road:3x3", "cpu"],
        ["sssp", "road:3x3,weights=x"],
        ["sssp", str(small)],
        ["sssp", "-"],
        [*command, "--help"],
        [],
    ):
        with ahead.search_ahead(words):
            assert ahead.wait(graph, predecessors=False) == 0.0
    with ahead.search_ahead(command):
        assert ahead.wait(Graph.from_edges(*edges), predecessors=False) == 0.0
    monkeypatch.setenv("GODWIT_THREADS", "many")
    with ahead.search_ahead(command):  # which reports the error
        assert ahead.wait(graph, predecessors=False) == 0.0


def test_the_second_process_ends_with_the_command() -> None:
    """Its standard input ends then, whatever ends the command."""
    program = ahead._PROGRAM.replace("import gc", "import time; time.sleep(100)\nimport gc")
    with subprocess.Popen(
        [sys.executable, "-c", program, "int32"], stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 1


@pytest.mark.parametrize("was_on", [True, False])
def test_cycles_are_not_collected_while_code_is_compiled(
    was_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SCALE", 8 + was_on)  # a kernel of its own
    monkeypatch.setenv("GODWIT_CACHE", os.devnull)
    before = gc.isenabled()
    on: list[bool] = []
    try:
        (gc.enable if was_on else gc.disable)()
        with compiling():
            on.append(gc.isenabled())
            Kernel(_scaled)(np.arange(4))
            on.append(gc.isenabled())
        on.append(gc.isenabled())
    finally:
        (gc.enable if before else gc.disable)()
    assert on == [False, False, was_on]


def test_an_unwritable_cache_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GODWIT_CACHE", str(blocked))
    monkeypatch.setitem(globals(), "SCALE", 7)  # a kernel of its own
    monkeypatch.setattr(cache_module, "_warned", False)
    with pytest.warns(UserWarning, match=f"the cache folder {blocked} cannot be written"):
        assert Kernel(_scaled)(np.arange(4)) == 42


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a process that has instantiated nothing."""
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path))
    monkeypatch.setattr(kernel_module, "_INSTANCES", {})
    return tmp_path


def _closed(function: Any) -> Any:
    def template(value: Any) -> Any:
        return function(value)

    return template


def _compilations(call: Any) -> int:
    from numba.core import event

    with event.install_recorder("numba:compile") as record:
        call()
    return sum(1 for _, entry in record.buffer if entry.is_start)


def _module(text: str) -> Any:
    module = types.ModuleType("user_helper")
    exec(text, module.__dict__)
    return module


def _key_with(**names: Any) -> Any:
    """A function from source text to the content key, its globals given."""

    def key(text: str) -> str:
        return content_key(eval(text, dict(names)), {})

    return key


class _Point(NamedTuple):
    x: int
    y: int


class _SwappedPoint(NamedTuple):
    y: int
    x: int


_SwappedPoint.__qualname__ = "_Point"


def test_attributes_of_modules_and_classes_are_in_the_key() -> None:
    def both(text: str, one: Any, other: Any) -> tuple[str, str]:
        return _key_with(helper=one)(text), _key_with(helper=other)(text)

    for text in ("FACTOR = 2", "from types import SimpleNamespace\nclass FACTOR: K = 2"):
        use = "lambda v: v * helper.FACTOR" + (".K" if "class" in text else "")
        first, second = both(use, _module(text), _module(text.replace("2", "3")))
        assert first != second
        assert first == _key_with(helper=_module(text))(use)
    nested = [_module(f"import types\nsub = types.ModuleType('s')\nsub.F = {n}") for n in (1, 2)]
    first, second = both("lambda v: [helper.sub.F for i in v]", *nested)
    assert first != second
    cell = "(lambda helper: lambda v: [helper.sub.F for i in v])(helper)"
    first, second = both(cell, *nested)
    assert first != second
    use = "lambda v: helper(1, 2).x"
    assert both(use, _Point, _SwappedPoint)[0] != both(use, _Point, _SwappedPoint)[1]
    one, other = both("lambda v: helper.floor(v)", math, np)
    assert one != other
    dtypes = [np.dtype([("a", "i4"), ("b", kind)]) for kind in ("i4", "f4")]
    assert dtypes[0].str == dtypes[1].str
    one, other = both("lambda v: helper", *dtypes)
    assert one != other
    one, other = both("lambda v: helper", *[np.zeros(1, dtype) for dtype in dtypes])
    assert one != other


def test_keyword_only_defaults_are_in_the_key_and_in_the_code() -> None:
    def scaled(value: int, *, by: int = 4) -> int:
        return value * by

    before = content_key(scaled, {})
    scaled.__kwdefaults__ = {"by": 5}
    assert content_key(scaled, {}) != before
    rebuilt: Any = Kernel(scaled).compile()
    assert rebuilt.py_func.__kwdefaults__ == {"by": 5}


def test_strings_that_lambdas_return_are_no_docstrings() -> None:
    key = _key_with()
    assert key("lambda v: 'a'") != key("lambda v: 'b'")


def test_options_and_version_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_key(_scaled, {})
    monkeypatch.setitem(kernel_module._USER_OPTIONS, "error_model", "python")
    other = content_key(_scaled, {})
    assert other != before
    monkeypatch.setattr(kernel_module, "_VERSION", "other")
    assert content_key(_scaled, {}) not in (before, other)


_FACTOR_PROGRAM = """
import helper
from godwit.runtime.cpu.compile import Kernel
operator = lambda value: value * helper.FACTOR
print(Kernel(operator)(10))
"""


def test_an_edited_module_is_compiled_anew(tmp_path: Path) -> None:
    environment = {**os.environ, "GODWIT_CACHE": str(tmp_path / "c"), "PYTHONPATH": str(tmp_path)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    answers = []
    for factor in (2, 3):
        (tmp_path / "helper.py").write_text(f"FACTOR = {factor}\n")
        command = [sys.executable, "-c", _FACTOR_PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        answers.append(int(done.stdout))
    assert answers == [20, 30]


floor = [1]  # an unfit global, named as an attribute that the operator below takes of a module


def test_an_attribute_is_no_global() -> None:
    assert Kernel(lambda value: math.floor(value) + 0)(2.5) == 2


def test_functions_and_modules_that_numba_cannot_reach_are_named() -> None:
    helper = _module("def f(v): return v")
    with pytest.raises(
        OperatorError, match=r"helper\.f, a Python function .* of a module.*import f"
    ):
        Kernel(lambda value: helper.f(value) + 0)(1)
    with pytest.raises(OperatorError, match="module helper around"):
        Kernel(lambda value: _scaled(helper))(1)


def test_a_function_that_calls_itself_is_refused() -> None:
    def digits(value: int) -> int:
        if value < 10:
            return 1
        return 1 + digits(value // 10)

    with pytest.raises(OperatorError, match="'digits' calls itself, perhaps by others"):
        Kernel(digits).compile()


def _tripled(value: int) -> int:
    return value * 3


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "another pickle"])
def test_a_damaged_cache_is_replaced(
    cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def fresh_run() -> None:
        monkeypatch.setattr(kernel_module, "_INSTANCES", {})
        assert Kernel(_tripled)(4) == 12

    fresh_run()
    files = list(cache.rglob("*.code"))
    assert files
    other = pickle.dumps("no code")
    for file in files:
        content = file.read_bytes()
        cut = {"empty": b"", "truncated": content[: len(content) // 2], "garbage": b"\x80\x05x" * 9}
        cut["another pickle"] = hashlib.sha256(other).digest() + other
        file.write_bytes(cut[damage])
    assert _compilations(fresh_run) == 1
    assert _compilations(fresh_run) == 0


def test_a_full_disk_costs_the_cache_only(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("godwit.files.os.fdopen", full)
        patch.setattr(cache_module, "_warned", False)
        with pytest.warns(UserWarning, match="cannot be written .*No space left on device"):
            assert Kernel(_tripled)(5) == 15
    assert not [path for path in cache.rglob("*") if path.is_file()]
    monkeypatch.setattr(tempfile, "mkstemp", full)
    monkeypatch.setattr(kernel_module, "_INSTANCES", {})
    monkeypatch.setenv("GODWIT_CACHE", str(cache / "other"))
    monkeypatch.setattr(cache_module, "_warned", True)
    assert Kernel(_tripled)(5) == 15


def test_without_a_home_or_with_anothers_nothing_is_cached(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **named: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr(Path, "stat", refuse)
        patch.setattr(cache_module, "_warned", False)
        with pytest.warns(UserWarning, match="cannot be written .*Permission denied"):
            assert Kernel(_tripled)(6) == 18

    def homeless(*arguments: Any) -> Any:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("GODWIT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(kernel_module, "_INSTANCES", {})
    assert config.cache_folder() is None
    assert Kernel(_tripled)(7) == 21


def _unknown_attribute(value: Any) -> Any:
    return value.no_such_thing


def _adds_text(value: Any) -> Any:
    return value + "text"


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (_unknown_attribute, "no_such_thing"),
        (_adds_text, "add"),
        (lambda value: value.no_such_thing, "no_such_thing"),
    ],
)
def test_a_compile_error_names_the_operator(operator: Any, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason) as caught:
        Kernel(_closed(operator))(1)
    message = str(caught.value)
    name = "function" if operator.__name__ == "<lambda>" else operator.__name__
    assert message.startswith(f"cannot compile '{name}' (test_kernel.py, line ")
    assert "\n" not in message
    assert len(message) < 200
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (lambda value: len([value]), "it makes a list, an array or another object"),
        (lambda value: sum([value, 1]), "no implementation of sum"),
    ],
)
def test_the_line_is_the_users_and_not_one_of_numbas(operator: Any, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason) as caught:
        Kernel(_closed(operator))(1)
    line = operator.__code__.co_firstlineno
    assert f"(test_kernel.py, line {line})" in str(caught.value)


def test_an_operator_without_a_name_is_called_by_its_role() -> None:
    message = adapt("message", lambda value: value.no_such_thing, ("value",))
    with pytest.raises(OperatorError, match=r"^cannot compile 'message' \(test_kernel.py, line"):
        Kernel(_closed(message))(1)


def test_an_exception_of_an_operator_arrives_as_an_operator_error(cache: Path) -> None:
    def refuse(value: int) -> int:
        if value > 2:
            raise ValueError("too much")
        return value

    run = Kernel(_closed(refuse))
    assert run(2) == 2
    with pytest.raises(
        OperatorError, match=r"'refuse' \(test_kernel.py, line .*ValueError: too much"
    ):
        run(3)
    with pytest.raises(OperatorError) as caught:
        run(4)
    assert isinstance(caught.value.__cause__, ValueError)


def test_equal_kernels_share_one_instantiation(cache: Path) -> None:
    def made() -> Kernel:
        return Kernel(_closed(lambda value: value * 5 + 1))

    first, second = made(), made()
    assert first.compile() is second.compile()
    assert first(1) == 6
    assert _compilations(lambda: second(1)) == 0
    found: list[Any] = []
    kernels = [Kernel(_tripled) for _ in range(8)]
    threads = [threading.Thread(target=lambda k=k: found.append(k.compile())) for k in kernels]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(dispatcher is found[0] for dispatcher in found)


def _prefetch_all(values: Any) -> None:
    for index in range(values.size):
        keep_rolled()
        prefetch(values, index)


def test_a_loop_that_is_kept_rolled_has_its_body_once() -> None:
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled = numba.njit(**options)(_prefetch_all)
    compiled.compile((numba.int64[::1],))
    (code,) = compiled.inspect_llvm().values()
    assert code.count("call void @llvm.prefetch") == 1


def _count_barriers(rank: int, size: int, control: Any, steps: Any, out: Any) -> None:
    for step in range(steps):
        out[rank] = step
        if not barrier(control, size):
            return
        for other in range(size):
            if out[other] != step:
                out[size] += 1
        if not barrier(control, size):
            return


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_barriers_keep_threads_together(threads: int) -> None:
    out = np.zeros(threads + 1, np.int64)
    run_team(Kernel(_count_barriers), 300, out, threads=threads)
    assert out[:threads].tolist() == [299] * threads
    assert out[threads] == 0


def test_a_failing_task_stops_the_others() -> None:
    control = new_control()

    def fail() -> None:
        raise ValueError("broken")

    def wait() -> None:
        while not control[ABORT]:
            pass

    with borrowed_team(2) as team, pytest.raises(ValueError, match="broken"):
        team.run([(fail, ()), (wait, ())], control)
    assert run_team(lambda rank, size, control: rank, threads=2) == [0, 1]


def _cores_allowed(rank: int, size: int, control: Any) -> set[int]:
    return os.sched_getaffinity(0)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no threads")
def test_threads_run_on_cores_that_the_caller_may_use() -> None:
    cores = os.sched_getaffinity(0)
    try:
        with borrowed_team(2) as team:
            tasks = [(_cores_allowed, (rank, 2, None)) for rank in range(2)]
            for chosen in [cores, *({core} for core in sorted(cores)[:2]), cores]:
                os.sched_setaffinity(0, chosen)
                for allowed in team.run(tasks, new_control()):
                    assert allowed <= chosen
    finally:
        os.sched_setaffinity(0, cores)


def test_brief_work_of_one_is_done_by_the_caller_unless_that_is_to_poll() -> None:
    def who(rank: int, size: int, control: Any) -> int:
        assert (rank, size, control[ABORT]) == (0, 1, 0)
        return threading.get_ident()

    me = threading.get_ident()
    assert run_team(who, threads=1, brief=True) == [me]
    assert run_team(who, threads=1) != [me]
    assert run_team(who, threads=1, brief=True, poll=lambda: None) != [me]
    assert me not in run_team(lambda *_: threading.get_ident(), threads=2, brief=True)


def test_teams_are_kept_and_end() -> None:
    before = threading.active_count()
    team = Team(2)
    assert threading.active_count() == before + 2
    team.close()
    for thread in team._threads:
        thread.join(timeout=HANG_S)
    assert threading.active_count() == before


def test_compiling_does_not_import_scipys_linear_algebra(tmp_path: Path) -> None:
    code = """
import sys
import numba, numpy
from godwit.runtime.cpu.compile import kernel
kernel(lambda a: a + 1)(1)
assert "scipy.linalg" not in sys.modules
product = numba.njit(lambda a: a @ a)(numpy.full((2, 2), 3.0))
assert product.tolist() == [[18.0, 18.0], [18.0, 18.0]] and "scipy.linalg" in sys.modules
"""
    environment = {**os.environ, "GODWIT_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=HANG_S)
