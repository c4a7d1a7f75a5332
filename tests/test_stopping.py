"""Operators that do not return: a run out of time, or interrupted, leaves no thread that computes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any

import numba
import numpy as np
import pytest

import godwit as gw
from godwit import config
from godwit.errors import RunTimeoutError
from godwit.runtime.cpu import compile as kernel_module
from godwit.runtime.cpu import stopping
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cuda import driver

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")

PATH = gw.generators.path(50)


def _while(value: Any) -> Any:
    rest = value
    while rest >= 0:
        rest = (rest * 3 + 1) % 1_000_003
    return rest


def _for(value: Any) -> Any:
    total = value
    for index in range(1 << 62):
        total ^= index * total
    return total


def _handles(value: Any) -> Any:
    rest = value
    while rest >= 0:
        try:
            rest = (rest * 5 + 1) % 1_000_003
            if rest < 0:
                raise ValueError("never")
        except Exception:
            rest = 1
    return rest


@numba.njit  # type: ignore[untyped-decorator, unused-ignore]
def _compiled(value: Any) -> Any:
    rest = value
    while rest != 1 << 50:
        rest = (rest * 7 + 1) % 1_000_003
    return rest


def _below(value: Any) -> Any:
    return _compiled(value) + 1


def _program(endless: Callable[[Any], Any]) -> gw.VertexProgram:
    return gw.VertexProgram(
        name="endless", dtype="int64", combine="min", message=lambda value: endless(value) + 1
    )


def _assert_nothing_computes() -> None:
    begin = process_time()
    sleep(0.3)
    assert process_time() - begin < 0.1


@pytest.mark.parametrize(
    ("endless", "devices"),
    [(_while, "cpu"), (_while, 2), (_for, "cpu"), (_handles, "cpu"), (_below, "cpu")],
)
def test_a_vertex_program(endless: Callable[[Any], Any], devices: Any) -> None:
    for execution in ("asynchronous", "bulk-synchronous"):
        with pytest.raises(RunTimeoutError, match=r"within 0\.1 s"):
            gw.run(
                _program(endless), PATH, {0: 0}, devices=devices, timeout_s=0.1, execution=execution
            )
        _assert_nothing_computes()


def test_threads_are_used_again() -> None:
    """They have ended, rather than having been left behind."""
    counts = []
    for _ in range(3):
        with pytest.raises(RunTimeoutError):
            gw.run(_program(_while), PATH, {0: 0}, devices=2, timeout_s=0.05)
        counts.append(threading.active_count())
    assert counts[0] == counts[-1]


@pytest.mark.parametrize("devices", ["cpu", 2])
def test_a_step_program(devices: Any) -> None:
    program = gw.StepProgram(
        name="endless",
        fields={"value": ("int64", 0)},
        steps=[gw.frontier.compute("value", _while)],
    )
    with pytest.raises(RunTimeoutError):
        program.run(PATH, frontier="all", devices=devices, timeout_s=0.1)
    _assert_nothing_computes()


@pytest.mark.parametrize("devices", ["cpu", 2])
@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_a_filter(devices: Any, size: int) -> None:
    with pytest.raises(RunTimeoutError, match=r"timeout_s=0\.1"):
        gw.filter(np.arange(size), lambda x: _while(x) > 0, devices=devices, timeout_s=0.1)
    _assert_nothing_computes()


def test_other_runs_go_on() -> None:
    """Users' loops of other runs look at the same word."""

    def long(value: Any) -> Any:
        rest = value
        for _ in range(20_000_000):
            rest = (rest * 3 + 1) % 1_000_003
        return value + 1 + rest * 0

    program = gw.VertexProgram(name="long", dtype="int64", combine="min", message=long)
    found: list[list[int]] = []

    def run() -> None:
        found.append(gw.run(program, gw.generators.path(8), {0: 0}, devices="cpu").values.tolist())

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        with pytest.raises(RunTimeoutError):
            gw.run(_program(_while), PATH, {0: 0}, devices="cpu", timeout_s=0.05)
    thread.join()
    assert found == [list(range(8))]


_INTERRUPTED = """
    import sys
    sys.path.insert(0, {tests!r})
    import godwit as gw
    import test_stopping

    def progress(done):
        print("running", flush=True)

    try:
        gw.run(test_stopping._program(test_stopping._while), test_stopping.PATH, {{0: 0}},
               devices={devices!r}, progress=progress)
    except KeyboardInterrupt:
        test_stopping._assert_nothing_computes()
        print("interrupted", flush=True)
"""


GPUS = [["cuda:0"], ["cuda:0", "cuda:0"]]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("devices", GPUS, ids=len)
@pytest.mark.parametrize("endless", [_while, _for, _below])
def test_a_vertex_program_on_gpus(endless: Callable[[Any], Any], devices: list[str]) -> None:
    for execution in ("asynchronous", "bulk-synchronous"):
        begin = monotonic()
        with pytest.raises(RunTimeoutError, match=r"within 0\.3 s"):
            gw.run(
                _program(endless), PATH, {0: 0}, devices=devices, timeout_s=0.3, execution=execution
            )
        assert monotonic() - begin < 60
        distance = gw.bfs(PATH, 0, devices=devices).distance  # the GPU is free
        assert distance.tolist() == list(range(50))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("devices", GPUS, ids=len)
def test_a_step_program_on_gpus(devices: list[str]) -> None:
    program = gw.StepProgram(
        name="endless",
        fields={"value": ("int64", 0)},
        steps=[gw.frontier.compute("value", _while)],
    )
    with pytest.raises(RunTimeoutError):
        program.run(PATH, devices=devices, timeout_s=0.3)
    assert gw.bfs(PATH, 0, devices=devices).distance.tolist() == list(range(50))


@pytest.mark.gpu
@needs_gpu
def test_ctrl_c_on_gpus() -> None:
    interrupt = threading.Timer(20, signal.raise_signal, [signal.SIGINT])
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            gw.run(_program(_while), PATH, {0: 0}, devices="cuda:0")
    finally:
        interrupt.cancel()
    assert gw.bfs(PATH, 0, devices="cuda:0").distance.tolist() == list(range(50))


@pytest.mark.gpu
@needs_gpu
def test_loops_that_end_are_not_disturbed_on_gpus() -> None:
    """By what ended a run of the same program before."""

    def until(value: Any, limit: Any) -> Any:
        count = 0
        while count != limit:
            count += 1
        return value + count

    program = gw.VertexProgram(
        name="counting",
        dtype="int64",
        combine="min",
        message=lambda value, weight, limit: until(value, limit),
        parameters={"limit": 3.0},
    )
    with pytest.raises(RunTimeoutError):
        gw.run(program, PATH, {0: 0}, devices="cuda:0", timeout_s=0.3, parameters={"limit": 0.5})
    found = gw.run(program, PATH, {0: 0}, devices="cuda:0", parameters={"limit": 3})
    assert found.values.tolist() == [3 * vertex for vertex in range(50)]


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT to another process")
@pytest.mark.parametrize("devices", ["cpu", 2])
def test_ctrl_c(devices: Any) -> None:
    script = _INTERRUPTED.format(tests=str(Path(__file__).parent), devices=devices)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().endswith("interrupted\n")
        watchdog.cancel()
    assert process.returncode == 0


class _Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class _Referred:
    pass


def _interrupt(reference: Any) -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("kind", ["finalizer", "weak reference"])
def test_ctrl_c_where_python_ignores_exceptions(kind: str) -> None:
    """It comes while an object is finalized, or in the callback of a weak reference."""
    held: list[Any] = [_Finalized() if kind == "finalizer" else _Referred()]
    reference = None if kind == "finalizer" else weakref.ref(held[0], _interrupt)
    ignore = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        gw.run(
            _program(_while), PATH, {0: 0}, devices="cpu", timeout_s=60,
            progress=lambda processed: held.clear(),
        )  # fmt: skip
    assert reference is None or reference() is None
    assert sys.unraisablehook is ignore


def _llvm(operator: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(kernel_module, "_INSTANCES", {})
    monkeypatch.setattr(config, "cache_folder", lambda: None)  # what is loaded has no text

    def entry(value: Any) -> Any:
        return operator(value)

    compiled: Any = Kernel(entry).compile()
    compiled.compile((numba.int64,))
    (text,) = compiled.inspect_llvm().values()
    return str(text)


def test_only_loops_look_at_the_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopping._WORD in _llvm(_while, monkeypatch)
    assert stopping._WORD not in _llvm(lambda value: min(value + 1, 3 * value), monkeypatch)


def test_only_loops_look_at_the_fault_variable_on_gpus() -> None:
    pytest.importorskip("numba.cuda", reason="not installed: numba-cuda")
    from godwit.runtime.cuda.operators import DeviceFunction, compile_function

    def looks(operator: Callable[..., Any]) -> bool:
        function = DeviceFunction("godwit_operator", operator, (np.dtype(np.int64),))
        return compile_function(function, "90").may_fail

    assert all(map(looks, (_while, _for, _below)))
    assert not looks(lambda value: min(value + 1, 3 * value))


_COLD = """
    import sys, time
    import godwit as gw
    from godwit.errors import RunTimeoutError
    from godwit.runtime.cpu.compile_time import run_clock

    graph = gw.generators.road(20, 20, weights=(1, 9))
    begin = time.perf_counter() - run_clock()
    {call}
    compiled = time.perf_counter() - run_clock() - begin
    assert compiled > 0.2, compiled
"""


@pytest.mark.parametrize(
    "call",
    [
        "gw.sssp(graph, 0, devices=1, timeout_s=0.2)",
        pytest.param("gw.bfs(graph, 0, devices='cpu', timeout_s=0.2)", marks=pytest.mark.thorough),
        pytest.param(
            "gw.connected_components(graph, devices='cpu', timeout_s=0.2)",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_compiling_does_not_count(call: str, tmp_path: Path) -> None:
    environment = {**os.environ, "GODWIT_CACHE": str(tmp_path / "cold")}
    script = textwrap.dedent(_COLD.format(call=call))
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
