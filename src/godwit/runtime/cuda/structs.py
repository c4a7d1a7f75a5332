"""NumPy dtypes of structs that headers of kernels define: a struct is written once, in C++."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.runtime.cuda.compile import INCLUDE_FOLDER, included_headers

_NUMBERS = {
    "u8": np.uint8, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "float": np.float32, "double": np.float64,
}  # fmt: skip


@lru_cache(maxsize=256)
def struct_dtype(file: str, struct: str, **given: Any) -> np.dtype[Any]:
    """Return the dtype of a struct that a header defines, or one that it includes.

    Members are numbers, pointers (uint64), other structs, and arrays of these; functions are passed over.
    :func:`~godwit.runtime.cuda.compile.layout_checks` lets a compiler compare the dtype with the struct.

    :param file: path of the header in the package
    :param given: dtypes of types, and sizes of arrays, that headers leave to the source that includes them
    """
    text = (INCLUDE_FOLDER / file).read_text(encoding="utf-8")
    texts = [text, *included_headers(text, {}).values()]
    return _Headers(texts, {**_NUMBERS, **given}).dtype(struct)


def struct_type(file: str, struct: str) -> Any:
    """Return the class of ctypes for a struct that a header defines, and a kernel takes by value."""
    return np.ctypeslib.as_ctypes_type(struct_dtype(file, struct))


class _Headers:
    """The texts of headers, and the dtypes and sizes that they use and do not define."""

    def __init__(self, texts: list[str], given: dict[str, Any]) -> None:
        self._texts = texts
        self._given = given

    def dtype(self, kind: str) -> np.dtype[Any]:
        """Return the dtype of a number, of a given type, or of a struct."""
        if kind in self._given:
            dtype: np.dtype[Any] = np.dtype(self._given[kind])
            return dtype
        body = re.sub("//.*", "", self._find(rf"^struct {kind} {{\n(.*?)^}};"))
        fields = []
        for member in re.findall(r"^    (?!using )(\w[^;(){}]*);", body, re.MULTILINE):
            declared, *sizes = re.split(r"\s*\[", member)
            first, *_, name = re.findall(r"\w+|\*", declared)
            dtype = np.dtype(np.uint64) if "*" in declared else self.dtype(first)
            fields.append((name, dtype, tuple(map(self._size, sizes))))
        return np.dtype(fields, align=True)

    def _size(self, text: str) -> int:
        """Return the size of an array: a sum of numbers and constants, and a bracket."""
        return sum(map(self._constant, text.rstrip("] \n").split(" + ")))

    def _constant(self, term: str) -> int:
        if term not in self._given and not term.isdigit():
            term = self._find(rf"^constexpr \w+ {term} = (\d+);")
        return int(self._given.get(term, term))

    def _find(self, pattern: str) -> str:
        """Return what a group of the first match captures."""
        matches = (re.search(pattern, text, re.MULTILINE | re.DOTALL) for text in self._texts)
        return next(match for match in matches if match)[1]
