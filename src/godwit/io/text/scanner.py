"""The compiled scanner of arc lines: text in, columns of ids and weights out, on all threads.

The text (uint8) ends with a newline and has eight bytes of padding after it, so that whole words
may be loaded anywhere. It is scanned in pieces of equal size; a line belongs to the piece that its
first byte lies in. First the lines of each piece are counted, which says where its arcs go at most;
then each piece is scanned on its own, up to its first wrong line. The first wrong line of the text
is that of the first piece that has one, whatever the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.io.text.decimals import HARD, double_bits
from godwit.io.text.words import WORD_BYTES, load_word, trailing_zeros
from godwit.runtime.cpu.atomics import fetch_add, load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, block_range

_POLL_STEPS = 16_384

# Columns of the report, one row a piece.
FOUND, STATUS, POSITION, MIN_ID, MAX_ID = range(5)
REPORT_COLUMNS = 5

# Status of a piece: why its scan ended at POSITION (the first byte of a line).
FINE, MALFORMED, OUT_OF_RANGE, WIDE, FRACTION = range(5)

# What the third column holds. INTEGER_32 that meets a wider number ends with WIDE, both INTEGERs
# that meet a number with a point, an exponent or letters end with FRACTION.
NONE, INTEGER_32, INTEGER_64, REAL = range(4)

_NEWLINE = 10
_RETURN = 13
_SPACE = 32
_TAB = 9
_PLUS = 43
_MINUS = 45
_COMMA = 44
_POINT = 46
_ZERO = 48

_EIGHT_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
_EIGHT_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TEN_TO_HIGH_BIT = np.uint64(0x7676767676767676)
_EIGHT_BITS = np.uint64(8)
_SEVEN = np.uint64(7)
_ONES = np.uint64(0x0101010101010101)
_TEN = np.uint64(10)
_TEN_TO_8 = np.uint64(10**8)
_PAIRS = np.uint64(0x000000FF000000FF)
_PAIR_WEIGHTS_1 = np.uint64(0x000F424000000064)
_PAIR_WEIGHTS_2 = np.uint64(0x0000271000000001)
_SIXTEEN = np.uint64(16)
_THIRTY_TWO = np.uint64(32)
_FIFTY_SIX = np.uint64(56)
_SIXTY_FOUR = np.uint64(64)
_THREE = np.uint64(3)
_ONE = np.uint64(1)
_NOTHING = np.uint64(0)

_MOST_MANTISSA_DIGITS = 19  # of a uint64
_HUGE = (1 << 63) - 1
_MOST_SIGNED = np.uint64(_HUGE)
_MOST = np.uint64((1 << 64) - 1)
_MOST_TIMES_TEN = np.uint64(((1 << 64) - 1) // 10 - 1)
TOO_LARGE = -2  # in the place of an id

WORD_LENGTH_BITS = 16


def count_lines(
    rank: int, size: int, control: Any, text: Any, begin: int, end: int, piece: int, counts: Any
) -> None:
    """Set counts[k] to the number of lines whose first byte is in the k-th piece of [begin, end).

    :param text: uint8; position ``begin`` is the first byte of a line, ``end - 1`` a newline
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= counts.shape[0] or load_acquire(control, ABORT) != 0:
            return
        # A line begins behind each newline: look one byte back.
        at = max(begin + k * piece - 1, begin)
        stop = min(begin + (k + 1) * piece - 1, end - 1)
        found: Any = 1 if k == 0 else 0
        while at + WORD_BYTES <= stop:
            word = load_word(text, at) ^ _EIGHT_NEWLINES
            others = ((word & _LOW_BITS) + _LOW_BITS) | word
            found += np.int64((((~others & _HIGH_BITS) >> _SEVEN) * _ONES) >> _FIFTY_SIX)
            at += WORD_BYTES
        while at < stop:
            found += 1 if text[at] == _NEWLINE else 0
            at += 1
        counts[k] = found


def scan_arcs(
    rank: int,
    size: int,
    control: Any,
    text: Any,
    begin: int,
    end: int,
    piece: int,
    prefix: int,
    comment: int,
    other_comment: int,
    comma: int,
    column: int,
    base: int,
    last_id: int,
    first_arc: Any,
    sources: Any,
    targets: Any,
    weights: Any,
    wide_weights: Any,
    powers: Any,
    report: Any,
) -> None:
    """Scan lines ``[prefix] source target [weight]`` of all pieces into the columns.

    Ids are stored less ``base``; ids outside of [base, last_id] are wrong. The arcs of piece k go to
    ``first_arc[k]`` and on. A line that is blank or begins with a comment byte is skipped.

    :param prefix: byte that begins an arc's line, 0 for none
    :param comma: byte that may stand between two columns besides blanks, a blank for none
    :param column: kind of the third column: NONE, INTEGER_32 (stored in ``weights``, int32),
        INTEGER_64 or the bits of REAL (stored in ``wide_weights``, int64). A real number that this
        scanner leaves to others is stored as HARD + its position in the text.
    :param report: int64 (pieces, REPORT_COLUMNS)
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= report.shape[0] or load_acquire(control, ABORT) != 0:
            return
        stop = min(begin + (k + 1) * piece, end)
        at = first_line(text, begin + k * piece, k)
        arc = first_arc[k]
        status = FINE
        min_id = np.int64(_HUGE)
        max_id = np.int64(-1)
        line = at
        while at < stop:
            line = at
            at = skip_blanks(text, at)
            if _holds_no_arc(text, at, comment, other_comment):
                while text[at] != _NEWLINE:
                    at += 1
                at += 1
                continue
            if prefix != 0:
                if text[at] != prefix or not is_blank(text[at + 1]):
                    status = MALFORMED
                    break
                at = skip_blanks(text, at + 2)
            source, at = scan_vertex(text, at)
            after = _skip_separator(text, at, comma)
            target = np.int64(-1)
            if after > at:
                target, at = scan_vertex(text, after)
            if source < 0 or target < 0:
                status = MALFORMED if source == -1 or target == -1 else OUT_OF_RANGE
                break
            if column != NONE:
                after = _skip_separator(text, at, comma)
                if after == at:
                    status = MALFORMED
                    break
                at, status = scan_weight(text, after, column, arc, weights, wide_weights, powers)
                if status != FINE:
                    break
            if text[at] != _NEWLINE:
                at = skip_blanks(text, at)
                if text[at] == _RETURN:
                    at += 1
                if text[at] != _NEWLINE:
                    status = MALFORMED
                    break
            at += 1
            low = min(source, target)
            high = max(source, target)
            min_id = min(min_id, low)
            max_id = max(max_id, high)
            if low < base or high > last_id:
                status = OUT_OF_RANGE
                break
            sources[arc] = source - base
            targets[arc] = target - base
            arc += 1
        report[k, FOUND] = arc - first_arc[k]
        report[k, STATUS] = status
        report[k, POSITION] = line
        report[k, MIN_ID] = min_id
        report[k, MAX_ID] = max_id


def first_line(text: Any, at: int, k: int) -> int:
    """The first byte of the first line that begins in piece k, which begins at a position."""
    if k == 0:
        return at
    at -= 1
    while text[at] != _NEWLINE:
        at += 1
    return at + 1


def scan_weight(
    text: Any, at: int, column: int, entry: Any, weights: Any, wide_weights: Any, powers: Any
) -> Any:
    """Scan a weight of a kind, and store it as that of an entry: the position behind it, status."""
    if column == REAL:
        bits, after = scan_real(text, at, powers)
        if after < 0:
            return at, MALFORMED
        wide_weights[entry] = bits
        return after, FINE
    weight, after, status = scan_integer(text, at)
    if status == FINE:
        if column == INTEGER_64:
            wide_weights[entry] = weight
        elif weight == np.int64(np.int32(weight)):
            weights[entry] = np.int32(weight)
        else:
            status = WIDE
    return after, status


def _holds_no_arc(text: Any, at: int, comment: int, other_comment: int) -> Any:
    """Whether a line, from its first byte that is no blank, is empty or a comment."""
    byte = text[at]
    if byte == _RETURN:
        return text[at + 1] == _NEWLINE
    return byte == _NEWLINE or byte == comment or byte == other_comment  # noqa: PLR1714


def is_blank(byte: int) -> bool:
    """Whether a byte is a blank or a tab."""
    return byte == _SPACE or byte == _TAB  # noqa: PLR1714 (compiled: no tuple)


def _is_digit(byte: int) -> bool:
    return byte >= _ZERO and byte < _ZERO + 10


def skip_blanks(text: Any, at: int) -> int:
    """The first position from here on that is no blank."""
    while is_blank(text[at]):
        at += 1
    return at


def _skip_separator(text: Any, at: int, comma: int) -> int:
    """Past blanks with at most one comma among them."""
    at = skip_blanks(text, at)
    if text[at] == comma:
        at = skip_blanks(text, at + 1)
    return at


def _scan_digits(text: Any, at: Any) -> Any:
    """The unsigned number at a position (uint64) and the position behind it, the same where there is none.

    Larger numbers than fit come back as the largest, or nearly.
    """
    word = load_word(text, at) ^ _EIGHT_ZEROS
    # The lowest byte that is no digit is marked by its high bit (higher ones may be marked wrongly,
    # by a carry).
    marks = ((word + _TEN_TO_HIGH_BIT) | word) & _HIGH_BITS
    digits = trailing_zeros(marks) >> _THREE
    if digits == np.uint64(0):
        return np.uint64(0), at
    value = np.uint64(_eight_digits(word << (_SIXTY_FOUR - digits * _EIGHT_BITS)))
    at += np.int64(digits)
    if digits == _EIGHT_BITS:
        while _is_digit(text[at]):
            if value <= _MOST_TIMES_TEN:
                value = value * _TEN + np.uint64(text[at] - _ZERO)
            else:
                value = _MOST
            at += 1
    return value, at


def _scan_id(text: Any, at: Any) -> Any:
    """The unsigned number at a position and the position behind it; -1 where there is none, TOO_LARGE
    for one that does not fit int64.
    """
    value, after = _scan_digits(text, at)
    if after == at:
        return np.int64(-1), at
    return (np.int64(value) if value <= _MOST_SIGNED else np.int64(TOO_LARGE)), after


def _scan_word(text: Any, at: Any) -> Any:
    """A word as its position * 2**WORD_LENGTH_BITS + its length, and the position behind it.

    -1 where there is none, or one that is too long.
    """
    begin = at
    while not is_blank(text[at]) and text[at] != _COMMA and text[at] > _RETURN:
        at += 1
    length = at - begin
    if length == 0 or length >= (1 << WORD_LENGTH_BITS):
        return np.int64(-1), at
    return np.int64(begin) << WORD_LENGTH_BITS | np.int64(length), at


scan_vertex = _scan_id


def _eight_digits(word: Any) -> Any:
    """The number whose eight digits (0 to 9, not characters) are the bytes of a word."""
    word = word * _TEN + (word >> _EIGHT_BITS)
    upper = (word & _PAIRS) * _PAIR_WEIGHTS_1
    lower = ((word >> _SIXTEEN) & _PAIRS) * _PAIR_WEIGHTS_2
    return (upper + lower) >> _THIRTY_TWO


def scan_integer(text: Any, at: int) -> Any:
    """A signed integer: value, position behind it, FINE, MALFORMED, WIDE or FRACTION."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    value, after = _scan_digits(text, at)
    none = after == at
    byte = text[after]
    if byte == _POINT or _lower(byte) == 101 or (none and _begins_word(byte)):  # 'e'
        return np.int64(0), after, FRACTION
    if none:
        return np.int64(0), after, MALFORMED
    if value > _MOST_SIGNED + (_ONE if negative else _NOTHING):
        return np.int64(0), after, WIDE
    return np.int64(_NOTHING - value if negative else value), after, FINE


def scan_real(text: Any, at: int, powers: Any) -> Any:
    """A decimal number: the bits of the nearest double, and the position behind it, -1 if none."""
    begin = at
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    if _begins_word(text[at]):  # inf or nan: whoever reads the hard ones will see
        while _lower(text[at]) >= 97 and _lower(text[at]) <= 122:
            at += 1
        return np.int64(HARD) + begin, at
    mantissa = np.uint64(0)
    digits = 0  # significant ones, in the mantissa
    dropped = 0
    power: Any = 0
    first = at
    while _is_digit(text[at]):
        if digits < _MOST_MANTISSA_DIGITS:
            mantissa = mantissa * _TEN + np.uint64(text[at] - _ZERO)
            digits += 1 if mantissa != np.uint64(0) else 0
        else:
            dropped += 1
            power += 1
        at += 1
    some = at > first
    if text[at] == _POINT:
        at += 1
        first = at
        while digits + 8 <= _MOST_MANTISSA_DIGITS:
            word = load_word(text, at) ^ _EIGHT_ZEROS
            if ((word + _TEN_TO_HIGH_BIT) | word) & _HIGH_BITS != np.uint64(0):
                break
            mantissa = mantissa * _TEN_TO_8 + _eight_digits(word)
            digits += 8  # leading zeros too: rather too many than too few
            power -= 8
            at += 8
        while _is_digit(text[at]):
            if digits < _MOST_MANTISSA_DIGITS:
                mantissa = mantissa * _TEN + np.uint64(text[at] - _ZERO)
                digits += 1 if mantissa != np.uint64(0) else 0
                power -= 1
            else:
                dropped += 1
            at += 1
        some = some or at > first
    if not some:
        return np.int64(0), np.int64(-1)
    if _lower(text[at]) == 101:  # 'e'
        at += 1
        downwards = text[at] == _MINUS
        if downwards or text[at] == _PLUS:
            at += 1
        unsigned, after = _scan_digits(text, at)
        if after == at:
            return np.int64(0), np.int64(-1)
        at = after
        exponent = np.int64(min(unsigned, np.uint64(1 << 40)))
        power += -exponent if downwards else exponent
    bits = double_bits(mantissa, power, powers)
    if dropped > 0 and bits != double_bits(mantissa + _ONE, power, powers):
        bits = np.int64(HARD)
    if bits == np.int64(HARD):
        return np.int64(HARD) + begin, at
    if negative:
        bits |= np.int64(-(1 << 63))
    return bits, at


def _lower(byte: int) -> int:
    return byte | 32


def _begins_word(byte: int) -> bool:
    lower = _lower(byte)
    return lower == 105 or lower == 110  # noqa: PLR1714 ('i' of inf, 'n' of nan)


@kernel
def copy_words(
    rank: int, size: int, control: Any, text: Any, words: Any, offsets: Any, characters: Any
) -> None:
    """Copy words, as :func:`_scan_word` gives them, one behind the other, to where offsets say."""
    begin, end = block_range(rank, size, words.size)
    for i in range(begin, end):
        if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        shift = (words[i] >> WORD_LENGTH_BITS) - offsets[i]
        for to in range(offsets[i], offsets[i + 1]):
            characters[to] = text[to + shift]


COUNT_LINES = kernel(count_lines)
SCAN_ARCS = kernel(scan_arcs)
SCAN_WORDS = SCAN_ARCS.bind(scan_vertex=_scan_word)
"""As SCAN_ARCS, where sources and targets are words instead of numbers."""
