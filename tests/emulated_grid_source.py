"""CUDA C++ as C++: what no header can stand for is translated in the text, line by line.

Shared variables become references into the running block's own; asm statements become calls that do what
their PTX says. An instruction that is not known here is an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SHARED = re.compile(r"\b(extern\s+)?__shared__\s+([^;]*);")
_ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\([^)]*\)\s*")
_NAME = re.compile(r"(.*?)(\w+)\s*((?:\[[^\]]*\]\s*)*)", re.DOTALL)
_ASM = re.compile(r"\basm\b\s*(?:volatile\b)?\s*\(")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\('
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}

_TYPES = {
    "u8": "unsigned char", "b8": "unsigned char", "s8": "signed char",
    "u16": "unsigned short", "b16": "unsigned short", "s16": "short",
    "u32": "unsigned", "b32": "unsigned", "s32": "int",
    "u64": "unsigned long long", "b64": "unsigned long long", "s64": "long long",
    "f32": "float", "f64": "double",
}  # fmt: skip
_ATOMICS = {
    "add": "Add", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
    "exch": "Exch", "cas": "CAS", "inc": "Inc", "dec": "Dec",
}  # fmt: skip
_REGISTERS = {
    "%globaltimer": "emulated_now_ns()",
    "%clock64": "emulated_now_ns()",
    "%laneid": "(threadIdx.x % 32)",
    "%smid": "blockIdx.x",
    "%nsmid": "gridDim.x",
    "%lanemask_lt": "((1u << threadIdx.x % 32) - 1)",
}
# How memory is accessed: bits, as in emulated_grid.h.
_READS, _WRITES, _STRONG, _ACQUIRES, _RELEASES, _SYSTEM, _CONSTANT = (1 << bit for bit in range(7))
_HOW = {
    "relaxed": _STRONG,
    "acquire": _STRONG | _ACQUIRES,
    "release": _STRONG | _RELEASES,
    "acq_rel": _STRONG | _ACQUIRES | _RELEASES,
    "volatile": _STRONG | _SYSTEM,
    "sys": _SYSTEM,
    "nc": _CONSTANT,
}


def translated(text: str) -> str:
    """A file of CUDA C++ as C++ that ``emulated_grid.h`` stands before; the same lines."""
    return _without_asm(_SHARED.sub(_shared_variable, text))


def included(text: str, headers: dict[str, str]) -> dict[str, str]:
    """Those of the headers that a text includes, directly or not."""
    found: dict[str, str] = {}
    left = [text]
    while left:
        for name in _INCLUDE.findall(left.pop()):
            if name in headers and name not in found:
                found[name] = headers[name]
                left.append(headers[name])
    return found


def kernel_names(text: str) -> list[str]:
    """The kernels that the host can start."""
    return list(dict.fromkeys(_KERNEL.findall(text)))


def _shared_variable(match: re.Match[str]) -> str:
    declaration = _ALIGNED.sub("", match[2]).strip()
    lines = "\n" * match[0].count("\n")
    names = [_NAME.fullmatch(one) for one in _split(declaration, angles=True)]
    if match[1]:
        only = names[0]
        assert only is not None, f"a shared array that is not understood: {match[0]}"
        kind, name = only[1].strip(), only[2]
        begin = f"static_cast<{kind} *>(emulated_dynamic_shared())"
        return f"{kind} *const {name} = {begin};{lines}"
    made = []
    structure = f"emulated_shared_at_{match.start()}"
    declared = " ".join(match[2].split())
    for number, one in enumerate(names):
        assert one is not None, f"a shared variable that is not understood: {match[0]}"
        holder = f"emulated::shared<{structure}>().{one[2]}"
        made.append(f"auto &{one[2]} = {holder};")
        assert number == 0 or one[1].strip(" *&") == ""
    return f"struct {structure} {{ {declared}; }}; {' '.join(made)}{lines}"


def _split(text: str, separator: str = ",", *, angles: bool = False) -> list[str]:
    """Parts of a text between separators that stand outside all brackets and strings."""
    opening = "([{<" if angles else "([{"
    parts, closing, begin = [], "", 0
    quoted = False
    for place, letter in enumerate(text):
        if letter == '"' and text[place - 1 : place] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif letter in opening and not (letter == "<" and closing[-1:] in ("]", ")")):
            closing += _CLOSING[letter]
        elif closing and letter == closing[-1]:
            closing = closing[:-1]
        elif letter == separator and not closing:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def _without_asm(text: str) -> str:
    made, end = [], 0
    for match in _ASM.finditer(text):
        if match.start() < end or _in_comment(text, match.start()):
            continue
        made.append(text[end : match.start()])
        close = _closing(text, match.end())
        statement = text[match.end() : close]
        semicolon = text.index(";", close)
        made.append(_asm(statement) + "\n" * text.count("\n", match.start(), semicolon))
        end = semicolon + 1
    return "".join([*made, text[end:]])


def _in_comment(text: str, place: int) -> bool:
    return "//" in text[text.rfind("\n", 0, place) + 1 : place]


def _closing(text: str, begin: int) -> int:
    """Where the bracket ends that was opened before a place."""
    depth, quoted = 1, False
    for place in range(begin, len(text)):
        if text[place] == '"' and text[place - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            if depth == 0:
                return place
    raise AssertionError(f"an asm statement that does not end: {text[begin : begin + 60]}")


def _asm(statement: str) -> str:
    """What an asm statement does, in C++."""
    sections = _split(statement, ":")
    instructions = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', sections[0]))
    operands = [
        f"({re.fullmatch(r'[^(]*[(](.*)[)]', one.strip(), re.DOTALL)[1]})"  # type: ignore[index]
        for section in sections[1:3]
        for one in _split(section)
        if one.strip()
    ]
    calls = [
        _instruction(one.strip(), operands)
        for one in re.split(r";|\\n|\\t", instructions.replace("%%", "\0"))
        if one.strip()
    ]
    return f"{{ {' '.join(calls)} }}"


def _instruction(text: str, operands: list[str]) -> str:
    opcode, _, rest = text.partition(" ")
    name, *modifiers = opcode.replace("::", "#").split(".")
    given = [part.strip() for part in _split(rest)]

    def values(part: str) -> list[str]:
        return list(_values(part, operands))

    known = next((one for one in reversed(modifiers) if one in _TYPES), "")
    kind = _TYPES.get(known, "")
    how = 0
    for one in modifiers:
        how |= _HOW.get(one, 0)
    if name == "ld" and kind and len(given) == 2:
        place = ", ".join(_address(given[1], operands))
        return f"emulated::load<{kind}>({_READS | how}, {place}, {', '.join(values(given[0]))});"
    if name == "st" and kind and len(given) == 2:
        place = ", ".join(_address(given[0], operands))
        return f"emulated::store<{kind}>({_WRITES | how}, {place}, {', '.join(values(given[1]))});"
    operation = next((_ATOMICS[one] for one in modifiers if one in _ATOMICS), None)
    if name in ("red", "atom") and kind and operation:
        if kind == "long long" and operation not in ("Min", "Max"):
            kind = "unsigned long long"
        results = values(given[0]) if name == "atom" else []
        base, offset = _address(given[len(results)], operands)
        place = f"emulated::at<{kind}>({base}, {offset})"
        taken = [one for part in given[len(results) + 1 :] for one in values(part)]
        taken.append(str(_READS | _WRITES | _STRONG | how))
        to = f"{results[0]} = " if results else ""
        return f"{to}atomic{operation}({place}, {', '.join(taken)});"
    if name == "mov" and len(given) == 2:
        return f"{values(given[0])[0]} = {values(given[1])[0]};"
    if name in ("fence", "membar"):
        return f"emulated_fence({str(bool(how & _SYSTEM)).lower()});"
    if name in ("prefetch", "prefetchu", "discard", "applypriority"):
        return ""
    raise AssertionError(f"PTX that the emulator does not know: {text.replace(chr(0), '%')}")


def _values(part: str, operands: list[str]) -> Iterator[str]:
    for one in part.strip("{} ").split(","):
        name = one.strip()
        if name.startswith("\0"):
            if "%" + name[1:] not in _REGISTERS:
                raise AssertionError(f"a register that the emulator does not know: %{name[1:]}")
            yield _REGISTERS["%" + name[1:]]
        elif name.startswith("%"):
            yield operands[int(name[1:])]
        else:
            yield str(int(name, 0))


def _address(part: str, operands: list[str]) -> tuple[str, str]:
    """A pointer, and how many bytes further."""
    match = re.fullmatch(r"\[\s*%(\d+)\s*(?:\+\s*(\d+)\s*)?\]", part)
    if match is None:
        raise AssertionError(f"an address that the emulator does not know: {part}")
    return operands[int(match[1])], match[2] or "0"
