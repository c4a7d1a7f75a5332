"""Damaged files: ``mutated(content, seed)`` is the content with something wrong, the same each time."""

from __future__ import annotations

import random


def mutated(content: bytes, seed: int) -> bytes:
    """A copy with one to three mutations, never equal to ``content``.

    A mutation flips a bit, sets a byte, inserts or deletes some bytes, cuts off the end, repeats a
    block, or overwrites 8 bytes with what breaks arithmetic: 0, -1, 2**31, 2**63 - 1.
    """
    generator = random.Random(seed)
    while True:
        result = bytearray(content)
        for _ in range(generator.choice((1, 1, 2, 3))):
            _mutate(result, generator)
        if result != content:
            return bytes(result)


def _mutate(data: bytearray, generator: random.Random) -> None:
    # Headers are short and files long: half of the mutations are among the first bytes.
    at = generator.randrange((min(len(data), 96) if generator.random() < 0.5 else len(data)) or 1)
    length = generator.randrange(1, 1 + generator.choice((1, 8, 64)))
    match generator.randrange(8):
        case 0 | 1 if data:
            data[at] ^= 1 << generator.randrange(8)
        case 2 if data:
            data[at] = generator.choice((0, 1, 0x0A, 0x20, 0x30, 0x39, 0x7F, 0xFF))
        case 3:
            data[at:at] = generator.randbytes(length)
        case 4:
            del data[at : at + length]
        case 5:
            del data[at:]
        case 6:
            data[at:at] = data[at : at + length]
        case 7:
            number = generator.choice((0, -1, 2**31, 2**63 - 1))
            data[at : at + 8] = number.to_bytes(8, "little", signed=True)


def mutated_text(content: bytes, other: bytes, seed: int) -> bytes:
    """A copy with one to three lines moved, lost, repeated, spliced or with another number in them.

    :param other: a file whose lines are put among those of ``content``
    """
    generator = random.Random(seed)
    lines, others = content.split(b"\n"), other.split(b"\n")
    for _ in range(generator.choice((1, 1, 2, 3))):
        at, from_ = generator.randrange(len(lines)), generator.randrange(len(lines))
        match generator.randrange(6):
            case 0:
                lines[at], lines[from_] = lines[from_], lines[at]
            case 1:
                lines[at:at] = lines[from_ : from_ + generator.choice((1, 1, 5))]
            case 2 if len(lines) > 1:
                del lines[at]
            case 3:
                lines[at:] = others[generator.randrange(len(others)) :]
            case 4:
                lines.insert(at, generator.choice(others))
            case _:
                lines[at] = _with_another_number(lines[at], generator)
    return b"\n".join(lines)


_NUMBERS = (
    b"-1", b"0", b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"18446744073709551616", b"1" + b"0" * 400, b"1e308",
    b"1e-400", b"1e999999999", b"nan", b"-inf", b"0x10", b"1_000", b"+5", b"1.5", b"", b"\xd9\xa3",
)  # fmt: skip


def _with_another_number(line: bytes, generator: random.Random) -> bytes:
    words = line.split(b" ")
    words[generator.randrange(len(words))] = generator.choice(_NUMBERS)
    return b" ".join(words)
