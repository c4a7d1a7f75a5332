"""Operators and kernels for GPUs: what compiles, what is found again, what is refused. No GPU needed.

What the code computes is seen without running it: kernels call operators with constants, all is
inlined and folded, and the cubin holds the verdict as an immediate number.
"""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import re
import struct
import subprocess
import sys
import types
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import godwit as gw
from godwit.dataflow.operators import adapt
from godwit.errors import DeviceError, GodwitError, OperatorError
from godwit.runtime.checks import Fault
from godwit.runtime.cuda import compile as compilation
from godwit.runtime.cuda import libraries, structs
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.driver import FAULT_NAME
from godwit.runtime.cuda.operators import DeviceFunction, compile_function, fault_error
from waiting import HANG_S

_NEEDED = ("numba_cuda", "cuda")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
needs_compilers = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)} (extra 'cuda')"
)

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

# dtype, C's type, a value that a wrong width or sign would change
NUMBERS = [
    ("bool", "bool", "true"),
    ("int8", "signed char", "-77"),
    ("uint8", "unsigned char", "200"),
    ("int16", "short", "-30000"),
    ("uint16", "unsigned short", "60000"),
    ("int32", "int", "-2000000000"),
    ("uint32", "unsigned int", "4000000000u"),
    ("int64", "long long", "-(1ll << 62) + 3"),
    ("uint64", "unsigned long long", "(1ull << 63) + 5"),
    ("float32", "float", "-1.5f"),
    ("float64", "double", "-0.1"),
]
YES, NO = 0x5EED7000, 0x0BAD7000  # plus the number of the question


def _identity(value: Any) -> Any:
    return value


def _verdicts(questions: list[str]) -> str:
    """A kernel that writes YES or NO, plus its number, for every C++ expression."""
    lines = [
        f"    verdict[{index}] = ({question}) ? {YES + index}u : {NO + index}u;"
        for index, question in enumerate(questions)
    ]
    body = "\n".join(lines)
    return f'extern "C" __global__ void ask(volatile unsigned *verdict) {{\n{body}\n}}\n'


def _check_verdicts(code: bytes, questions: list[str]) -> None:
    for index, question in enumerate(questions):
        assert (NO + index).to_bytes(4, "little") not in code, f"not so: {question}"
        assert (YES + index).to_bytes(4, "little") in code, f"not folded: {question}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation, "_BUILT", {})
    return tmp_path / "cache" / "cuda"


def _stored(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def _prototype(function: Callable[..., Any], *arguments: Any, parameters: int = 0) -> str:
    dtypes = tuple(np.dtype(argument) for argument in arguments)
    return compile_function(DeviceFunction("f", function, dtypes, parameters), "80").prototype


FIVE = np.arange(10, 60, 10)


def _at(x: int) -> int:
    return FIVE[x]


@needs_compilers
class TestOperators:
    @pytest.mark.parametrize("architecture", ["80", "90"])
    def test_every_dtype_passes_unchanged(self, architecture: str) -> None:
        functions = [
            DeviceFunction(f"same_{name}", _identity, (np.dtype(name),)) for name, _, _ in NUMBERS
        ]
        questions = [
            f"same_{name}(static_cast<{kind}>({value})) == static_cast<{kind}>({value})"
            for name, kind, value in NUMBERS
        ]
        code = cubin(_verdicts(questions), functions, architecture)
        assert code.startswith(b"\x7fELF")
        _check_verdicts(code, questions)
        assert b"same_" not in code, "a call that was not inlined"

    def test_a_wrong_answer_would_be_seen(self) -> None:
        questions = ["same(1) == 2"]
        code = cubin(_verdicts(questions), [DeviceFunction("same", _identity, (INT32,))], "80")
        with pytest.raises(AssertionError, match="not so"):
            _check_verdicts(code, questions)

    @pytest.mark.parametrize(("name", "kind", "_value"), NUMBERS)
    def test_prototypes_name_the_types(self, name: str, kind: str, _value: str) -> None:
        assert _prototype(_identity, name) == f'extern "C" __device__ {kind} f({kind});'

    @pytest.mark.parametrize(
        ("function", "arguments", "kind"),
        [
            (lambda value, weight: value + 2 * weight, (FLOAT32, FLOAT32), "double"),
            (lambda value, weight: value + weight, (FLOAT32, FLOAT32), "float"),
            (lambda value, weight: value + weight, (FLOAT32, INT32), "double"),
            (lambda value, weight: value + weight, (INT32, INT32), "long long"),
            (lambda value: value / 2, (INT64,), "double"),
            (lambda value: value > 2, (INT64,), "bool"),
            (lambda value: True, (INT64,), "bool"),
            (lambda value: 7, (FLOAT32,), "long long"),
            (lambda value: np.uint32(value + 1), (INT64,), "unsigned int"),
            (lambda value: math.sqrt(value + 1), (FLOAT64,), "double"),
        ],
    )
    def test_results_have_the_type_that_numba_infers(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], kind: str
    ) -> None:
        assert _prototype(function, *arguments).split(" f(")[0] == f'extern "C" __device__ {kind}'

    @pytest.mark.parametrize(
        ("function", "questions"),
        [
            (lambda x: FIVE[x], ["f(4) == 50", "f(-1) == 50", "f(5) == 0", "f(1000000) == 0"]),
            (lambda x: 6 // (x - 1), ["f(3) == 3", "f(0) == -6", "f(1) == 0"]),
            (lambda x: 1 << x, ["f(62) == 1ll << 62", "f(64) == 0", "f(-1) == 0"]),
            (lambda x: int(0.5 * x), ["f(7) == 3"]),
            (lambda x: _at(x) + 1, ["f(4) == 51", "f(5) == 0"]),
            (lambda x: (1, 2, 3)[x], ["f(2) == 3", "f(3) == 0"]),
        ],
    )
    def test_an_operator_that_fails_is_left_with_0_and_noted(
        self, function: Callable[..., Any], questions: list[str]
    ) -> None:
        given = DeviceFunction("f", function, (INT64,))
        assert compile_function(given, "80").may_fail
        code = cubin(_verdicts(questions), [given], "80")
        _check_verdicts(code, questions)

    def test_only_code_that_may_fail_has_a_variable_of_faults(self) -> None:
        source = 'extern "C" __global__ void run(long long *x) { *x = f(*x); }'
        for function, may_fail in [
            (lambda x: FIVE[x], True),
            (lambda x: x // (x + 1), True),
            (lambda x: x * 3 + 1, False),
            (lambda x: min(x, 3) // 2 % 5 << 3, False),
            (lambda x: 1.0 / x, False),
            (lambda x: FIVE[x % 5] if x >= 0 else 0, False),  # as the compiler sees
        ]:
            code = cubin(source, [DeviceFunction("f", function, (INT64,))], "80")
            assert (FAULT_NAME.encode() in code) == may_fail

    def test_a_fault_is_told_in_the_users_words(self) -> None:
        functions = [
            DeviceFunction("g", lambda x: x, (INT64,)),
            DeviceFunction("f", lambda x: _at(x) + 1, (INT64,)),
        ]
        words = [zlib.crc32(b"f") + 1, int(Fault.INDEX), 2, 7, 5, 3]
        assert re.fullmatch(
            r"'_at' \(test_cuda_compilation.py, line \d+\) raised IndexError: "
            "index 7 is out of bounds for length 5 at vertex 3",
            str(fault_error(functions, words)),
        )

    def test_parameters_follow_as_doubles(self) -> None:
        message = adapt(
            "message",
            lambda value, tens, ones: 100 * value + 10 * tens + ones,
            ("value", "weight"),
            ("ones", "unused", "tens"),
            takes_parameters=True,
        )
        function = DeviceFunction("message", message, (FLOAT32, INT32), 3)
        prototype = compile_function(function, "80").prototype
        expected = 'extern "C" __device__ double message(float, int, double, double, double);'
        assert prototype == expected
        questions = ["message(3.0f, 0, 7.0, 0.0, 5.0) == 357.0"]
        _check_verdicts(cubin(_verdicts(questions), [function], "80"), questions)

    def test_an_operator_without_parameters_ignores_those_there_are(self) -> None:
        expected = 'extern "C" __device__ float f(float, double, double);'
        assert _prototype(lambda value: value, FLOAT32, parameters=2) == expected
        always = adapt("activate", lambda: True, ("value",), takes_parameters=True)
        assert _prototype(always, FLOAT32) == 'extern "C" __device__ bool f(float);'

    def test_helpers_closures_constants_and_compiled_functions(self) -> None:
        offset = 3
        table = (5, 7, 11)
        array = np.array([0.25, 0.5])

        def chosen(value: Any) -> Any:
            return table[value] if value < len(table) else offset

        compiled = numba.njit(lambda value: value + offset)

        def operator(value: Any) -> Any:
            # Without a loop, whose turns look at whether the run is to end: nothing of that is folded.
            return compiled(chosen(value)) + compiled(chosen(value + 1)) + array[1]

        function = DeviceFunction("f", operator, (INT32,))
        questions = [f"f({value}) == {operator(value)}" for value in range(5)]
        _check_verdicts(cubin(_verdicts(questions), [function], "90"), questions)

    def test_results_are_rounded_as_on_the_cpu(self) -> None:
        function = DeviceFunction("f", lambda a, b, c: a * b + c, (FLOAT64,) * 3)
        source = 'extern "C" __global__ void k(double *x) { x[3] = f(x[0], x[1], x[2]); }'
        instructions = _sass_opcodes(cubin(source, [function], "80"))
        assert _DMUL in instructions
        assert _DADD in instructions
        assert _DFMA not in instructions

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda value: (value, 1), r"'f' \(test_cuda_comp\S+, line \d+\) returns a tuple"),
            (lambda value: None, r"returns nothing \(None\); an operator returns one number"),
            (lambda value: value + 1j, "returns complex128"),
            (lambda value: value.size, r"'f' \(\S+, line \d+\): Unknown attribute 'size'"),
            (lambda value: [value], r"'f' \(\S+, line \d+\): it makes a list, an array or"),
            (lambda value: absent(value + 1), "name 'absent' is not defined"),  # noqa: F821
            (
                lambda value: _adds_text(value + 1),
                r"'_adds_text' \(\S+, line \d+\): no implementation",
            ),
            (lambda value: _sometimes(value + 1), "returns int64 or nothing"),
            (lambda value: _raises(value + 1), r"'_raises' \(\S+, line \d+\) raises or handles an"),
            (lambda value: _handles(value + 1), "'_handles' .* raises or handles an exception"),
            (lambda value: _calls_itself(value + 1), "'_calls_itself' calls itself"),
            (print, "must be a Python function, got <built-in function print>"),
        ],
    )
    def test_refusals_name_operator_and_reason(
        self, function: Callable[..., Any], message: str
    ) -> None:
        with pytest.raises(OperatorError, match=message) as caught:
            cubin(_verdicts([]), [DeviceFunction("f", function, (INT32,))], "80")
        assert "\n" not in str(caught.value)

    def test_places_are_exact(self) -> None:
        program = gw.VertexProgram(
            name="wrong", message=lambda value: -_adds_text(value), combine="min", dtype="int32"
        )
        function = DeviceFunction("f", program.operators.message, (INT32,) * 5)
        line = _adds_text.__code__.co_firstlineno + 1
        expected = f"cannot compile '_adds_text' (test_cuda_compilation.py, line {line}): no impl"
        with pytest.raises(OperatorError) as caught:
            cubin(_verdicts([]), [function], "80")
        assert str(caught.value).startswith(expected)


def _adds_text(value: Any) -> Any:
    return value + "text"


def _sometimes(value: Any) -> Any:
    if value > 1:
        return value
    return None


def _raises(value: Any) -> Any:
    if value > 1:
        raise ValueError(value)
    return value


def _handles(value: Any) -> Any:
    try:
        return 1 // value
    except ZeroDivisionError:
        return 0


def _calls_itself(value: Any) -> Any:
    return value * _calls_itself(value - 1) if value > 1 else 1


_DMUL, _DADD, _DFMA = 0x228, 0x229, 0x22B


def _sass_opcodes(code: bytes) -> set[int]:
    """The low twelve bits of the 16-byte instructions, which name the operation since Volta."""
    table, entry, count, names_at = struct.unpack_from("<Q10xHHH", code, 0x28)
    sections = [struct.unpack_from("<II8x8xQQ", code, table + entry * i) for i in range(count)]
    names = sections[names_at][2]
    found = set()
    for name, _, start, size in sections:
        if code.startswith(b".text.", names + name):
            for at in range(start, start + size, 16):
                found.add(int.from_bytes(code[at : at + 2], "little") & 0xFFF)
    return found


FUNCTION = DeviceFunction("f", lambda value: value + 1, (INT32,))
SOURCE = 'extern "C" __global__ void k(int *x) { x[0] = f(x[0]); }'


def _adding(amount: int) -> DeviceFunction:
    return DeviceFunction("f", lambda value: value + amount, (INT32,))


SCALE = 2


def _scaled(value: Any) -> Any:
    return value * SCALE


@needs_compilers
class TestCache:
    def test_equal_content_is_stored_once(self, cache: Path, monkeypatch: Any) -> None:
        first = cubin(SOURCE, [_adding(1)], "80")
        monkeypatch.setattr(compilation, "_BUILT", {})
        monkeypatch.setattr(compilation, "compiled", _unexpected)
        assert cubin(SOURCE, [_adding(1)], "80") == first
        assert len(_stored(cache)) == 1

    def test_whatever_matters_makes_another(self, cache: Path, monkeypatch: Any) -> None:
        made = [
            cubin(SOURCE, [_adding(1)], "80"),
            cubin(SOURCE, [_adding(2)], "80"),
            cubin(SOURCE, [_adding(2)], "90"),
            cubin(SOURCE, [DeviceFunction("f", _adding(2).function, (FLOAT32,))], "80"),
            cubin(SOURCE.replace("x[0]);", "x[1]);"), [_adding(2)], "80"),
        ]
        assert len(set(made)) == len(_stored(cache)) == 5
        cubin(SOURCE, [_adding(2)], "80", ["-DUNUSED=1"])
        assert len(_stored(cache)) == 6
        scaled = [DeviceFunction("f", _scaled, (INT32,))]
        cubin(SOURCE, scaled, "80")
        monkeypatch.setattr(sys.modules[__name__], "SCALE", 3)
        cubin(SOURCE, scaled, "80")
        assert len(_stored(cache)) == 8
        monkeypatch.setattr(compilation, "_versions", lambda: ("another",))
        cubin(SOURCE, scaled, "80")
        assert len(_stored(cache)) == 9

    def test_included_headers_matter_and_others_do_not(
        self, cache: Path, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(compilation, "INCLUDE_FOLDER", tmp_path)
        (tmp_path / "outer.cuh").write_text('#pragma once\n  # include "inner.cuh"\n')
        (tmp_path / "inner.cuh").write_text('#include "outer.cuh"\nconstexpr int ONE = 1;\n')
        (tmp_path / "other.cuh").write_text("constexpr int TWO = 2;\n")
        source = '#include "outer.cuh"\n' + SOURCE.replace("x[0])", "x[ONE])")
        first = cubin(source, [FUNCTION], "80")
        (tmp_path / "other.cuh").write_text("constexpr int TWO = 3;\n")
        assert cubin(source, [FUNCTION], "80") == first
        assert len(_stored(cache)) == 1
        (tmp_path / "inner.cuh").write_text('#include "outer.cuh"\nconstexpr int ONE = 5;\n')
        assert cubin(source, [FUNCTION], "80") != first

    def test_every_include_of_ours_is_found(self) -> None:
        headers = sorted(compilation.INCLUDE_FOLDER.rglob("*.cuh"))
        assert headers
        for header in headers:
            text = header.read_text(encoding="utf-8")
            named = text.count('#include "')
            direct = [
                name for name in compilation.included_headers(text, {}) if f'"{name}"' in text
            ]
            assert len(direct) == named, header.name

    def test_without_operators_nothing_is_linked(self, cache: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr(libraries, "nvjitlink", _unexpected)
        monkeypatch.setattr(libraries, "numba_cuda", _unexpected)
        code = cubin('extern "C" __global__ void k(int *x) { x[0] = 1; }', (), "80")
        assert code.startswith(b"\x7fELF")
        assert len(_stored(cache)) == 1

    @pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "folder"])
    def test_a_damaged_file_costs_compilation(
        self, cache: Path, monkeypatch: Any, damage: str
    ) -> None:
        first = cubin(SOURCE, [FUNCTION], "80")
        (path,) = _stored(cache)
        whole = path.read_bytes()
        path.unlink()
        if damage == "folder":
            path.mkdir()
        else:
            changed = whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]
            path.write_bytes({"truncated": whole[:-1], "changed": changed, "empty": b""}[damage])
        monkeypatch.setattr(compilation, "_BUILT", {})
        if damage == "folder":
            with pytest.warns(UserWarning, match="cannot be written"):
                assert cubin(SOURCE, [FUNCTION], "80") == first
        else:
            assert cubin(SOURCE, [FUNCTION], "80") == first
            assert path.read_bytes() == whole

    def test_a_folder_that_cannot_be_written_costs_compilation(
        self, cache: Path, monkeypatch: Any
    ) -> None:
        cache.parent.mkdir()
        cache.write_text("not a folder")
        first = cubin(SOURCE, [FUNCTION], "80")
        monkeypatch.setattr(compilation, "compiled", _unexpected)
        assert cubin(SOURCE, [FUNCTION], "80") == first  # this process remembers

    def test_without_any_folder(self, monkeypatch: Any) -> None:
        monkeypatch.setattr("godwit.config.cache_folder", lambda: None)
        assert cubin(SOURCE, [FUNCTION], "80").startswith(b"\x7fELF")

    def test_another_process_needs_no_compiler(self, cache: Path) -> None:
        compilers = ("numba.cuda", "cuda.bindings.nvrtc", "cuda.bindings.nvjitlink")
        script = _SCRIPT + f"print([name for name in {compilers} if name in sys.modules])\n"
        first, second = (_run(script) for _ in range(2))
        assert first[0] == second[0]
        assert first[1] == str(list(compilers))
        assert second[1] == "[]"
        assert len(_stored(cache)) == 1

    def test_two_processes_at_once(self, cache: Path) -> None:
        running = [_start(_SCRIPT) for _ in range(2)]
        outcomes = [_finish(process) for process in running]
        assert outcomes[0] == outcomes[1]
        assert [path.suffix for path in _stored(cache)] == [".cubin"]


def _unexpected(*arguments: Any, **named: Any) -> Any:
    raise AssertionError("this was not to be called")


_SCRIPT = """
import hashlib, sys
import numpy as np
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.operators import DeviceFunction
amount = 5
function = DeviceFunction("f", lambda value: value + amount, (np.dtype(np.int32),))
source = 'extern "C" __global__ void k(int *x) { x[0] = f(x[0]); }'
print(hashlib.sha256(cubin(source, [function], "80")).hexdigest())
"""


def _start(script: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", script]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=dict(os.environ))


def _finish(process: subprocess.Popen[str]) -> list[str]:
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors
    return output.splitlines()


def _run(script: str) -> list[str]:
    return _finish(_start(script))


@needs_compilers
class TestRefusals:
    def test_a_kernel_that_does_not_compile_shows_the_log(self) -> None:
        with pytest.raises(GodwitError, match=r"sm_80: kernel.cu\(2\): error") as caught:
            cubin("\nnot C++", [FUNCTION], "80")
        assert "detected in the compilation" in caught.value.__notes__[0]

    def test_a_kernel_that_cannot_be_linked_shows_the_log(self) -> None:
        source = 'extern "C" __device__ int gone(int);' + SOURCE.replace("f(x[0])", "gone(f(1))")
        with pytest.raises(GodwitError, match=r"linked for sm_80: .*'gone'") as caught:
            cubin(source, [FUNCTION], "80")
        assert "gone" in caught.value.__notes__[0]

    @pytest.mark.parametrize("architecture", ["20", "", "ninety"])
    def test_unknown_architectures(self, architecture: str) -> None:
        with pytest.raises(DeviceError, match=f"sm_{architecture}, only for .*sm_90"):
            cubin(SOURCE, [FUNCTION], architecture)

    def test_a_linker_older_than_a_compiler(self, monkeypatch: Any) -> None:
        old = types.SimpleNamespace(version=lambda: (12, 0))
        monkeypatch.setattr(libraries, "nvjitlink", lambda: old)
        with pytest.raises(DeviceError, match=r"newer than nvJitLink 12\.0.*pip install --upgrade"):
            cubin(SOURCE, [FUNCTION], "80")

    def test_numpy_without_row_stack(self) -> None:
        script = (
            """
import numpy as np
if hasattr(np, "row_stack"):
    del np.row_stack
"""
            + _SCRIPT
            + "print(hasattr(np, 'row_stack'))"
        )
        assert _run(script)[1:] == ["False"]

    def test_threads_at_once(self, cache: Path) -> None:
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda amount: cubin(SOURCE, [_adding(amount)], "80"), range(8)))
        assert len(set(made)) == len(_stored(cache)) == 8


class TestLibraries:
    @pytest.mark.parametrize(
        ("system", "machine"), [("win32", "AMD64"), ("darwin", "arm64"), ("linux", "ppc64le")]
    )
    def test_other_platforms_are_refused_by_name(
        self, monkeypatch: Any, system: str, machine: str
    ) -> None:
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        monkeypatch.setattr(platform, "system", lambda: f"{system}-system")
        for load in (libraries.bindings, libraries.nvrtc, libraries.numba_cuda):
            with pytest.raises(DeviceError, match=f"not on {system}-system on {machine}"):
                load.__wrapped__()

    @pytest.mark.parametrize("name", ["bindings", "nvrtc", "nvjitlink", "numba_cuda"])
    def test_what_is_missing_is_named(self, monkeypatch: Any, name: str) -> None:
        monkeypatch.setattr(libraries, "check_platform", lambda: None)
        monkeypatch.setattr(importlib, "import_module", _not_there)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        expected = r'(cuda\.bindings|numba-cuda).*; install it: pip install "\.\[cuda\]"'
        with pytest.raises(DeviceError, match=expected):
            getattr(libraries, name).__wrapped__()

    def test_a_library_that_does_not_load_says_why(self, monkeypatch: Any) -> None:
        def broken(name: str) -> Any:
            raise RuntimeError("libnvrtc.so.13:\n  file too short")

        monkeypatch.setattr(libraries, "check_platform", lambda: None)
        monkeypatch.setattr(importlib, "import_module", broken)
        with pytest.raises(DeviceError, match=r"\(libnvrtc.so.13: file too short\)"):
            libraries.nvrtc.__wrapped__()


def _not_there(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@needs_compilers
class TestSeveralAtOnce:
    """NVRTC compiles one program at a time in a process; others are compiled by other processes."""

    @staticmethod
    def source(number: int) -> str:
        return f'extern "C" __global__ void kernel(int *out) {{ *out = {number}; }}'

    def compiled(self, number: int) -> bytes:
        return compilation._nvrtc(self.source(number), "90", (), link_later=False)

    def test_code_does_not_depend_on_the_process(self) -> None:
        here = [self.compiled(number) for number in range(4)]
        with compilation._COMPILING:  # as while this process compiles
            elsewhere = [self.compiled(number) for number in range(4)]
        assert elsewhere == here

    @pytest.mark.parametrize(
        "broken", [{"executable": ""}, {"executable": "/bin/false"}, {"executable": "python-none"}]
    )
    def test_without_another_process_this_one_compiles(
        self, broken: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = [self.compiled(number) for number in range(4)]
        for name, value in broken.items():
            monkeypatch.setattr(sys, name, value)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(self.compiled, range(4))) == here

    def test_errors_have_the_log_of_the_compiler(self) -> None:
        def fails(_: int) -> str:
            with pytest.raises(GodwitError, match="does not compile") as caught:
                compilation._nvrtc("nonsense", "90", (), link_later=False)
            return "".join(caught.value.__notes__)

        with ThreadPoolExecutor(4) as pool:
            logs = list(pool.map(fails, range(4)))
        assert all("nonsense" in log for log in logs)


def test_structs_have_the_members_and_the_layout_of_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner.cuh").write_text(
        "constexpr u32 COUNT = 3;  // of pairs\n"
        "template <class Id>\nstruct Pair {\n    u32 first;  // u64 no;\n    const Id *second;\n};\n"
    )
    (tmp_path / "outer.cuh").write_text(
        '#include "inner.cuh"\n'
        "struct Outer {\n    using Id = int;\n    u8 kind;\n    Pair<Id> pairs[COUNT + 1][2];\n"
        "    char *lists[WIDTH];\n    Value value;\n"
        "    i64 size() const {\n        if (kind) { return 1; }\n        return 2;\n    }\n};\n"
    )
    monkeypatch.setattr(structs, "INCLUDE_FOLDER", tmp_path)
    monkeypatch.setattr(compilation, "INCLUDE_FOLDER", tmp_path)
    made = structs.struct_dtype("outer.cuh", "Outer", WIDTH=2, Value=FLOAT32)
    pair = np.dtype([("first", np.uint32), ("second", np.uint64)], align=True)
    expected = [
        ("kind", np.uint8), ("pairs", pair, (4, 2)), ("lists", np.uint64, 2), ("value", np.float32),
    ]  # fmt: skip
    assert made == np.dtype(expected, align=True)
