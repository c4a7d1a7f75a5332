"""The compiled scanner of lines: text in, columns of ids and weights out, on all threads.

A line is ``[prefix] [SOURCE] [NUMBER ...] TARGET [WEIGHT]``, or the same with any number of targets. The
text is scanned in pieces of equal size; a line belongs to the piece that its first byte lies in. First
the lines (or the targets) of each piece are counted, which gives the place of its columns;
then each piece is scanned on its own, up to its first wrong line. The first wrong line of the text is
that of the first piece that has one, so it does not depend on the number of threads.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from godwit.io.text.tokens import (
    BAD_ID,
    FINE,
    MALFORMED,
    NEWLINE,
    RETURN,
    SPACE,
    SURPLUS,
    WIDE,
    WORD_BYTES,
    WORD_LENGTH_BITS,
    is_blank,
    line_ends,
    load_word,
    scan_id,
    scan_integer,
    scan_real,
    scan_word,
    skip_blanks,
)
from godwit.runtime.cpu.atomics import fetch_add, load_acquire
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, block_range

_POLL_STEPS = 16_384

# Columns of the report, which has a row for each piece: entries found; why its scan ended (FINE, or what
# is wrong), in the line that begins at LINE, at the token at TOKEN; the smallest and the largest id.
FOUND, STATUS, LINE, TOKEN, MIN_ID, MAX_ID = range(6)
REPORT_COLUMNS = 6

# Kinds of weights. INTEGER_32 ends with WIDE at a number of more bits; both INTEGERs end with FRACTION at
# a number with a point, an exponent or letters.
NONE, INTEGER_32, INTEGER_64, REAL = range(4)

_HUGE = (1 << 63) - 1
_EIGHT_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_7, _56 = np.uint64(7), np.uint64(56)

# Bound to kernels when they are compiled.
_ONLY_ARCS = True
_REALS = False
_scan_vertex = scan_id


@kernel
def count_lines(
    rank: int, size: int, control: Any, text: Any, begin: int, end: int, piece: int, counts: Any
) -> None:
    """Set counts[k, 1] to the number of lines whose first byte is in piece k of [begin, end).

    :param text: uint8; position ``begin`` is the first byte of a line, ``end - 1`` a newline
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= counts.shape[0] or load_acquire(control, ABORT) != 0:
            return
        # A line begins behind each newline: look one byte back.
        at = max(begin + k * piece - 1, begin)
        stop = min(begin + (k + 1) * piece - 1, end - 1)
        lines: Any = 1 if k == 0 else 0
        while at + WORD_BYTES <= stop:
            word = load_word(text, at) ^ _EIGHT_NEWLINES
            others = ((word & _LOW_BITS) + _LOW_BITS) | word
            lines += np.int64((((~others & _HIGH_BITS) >> _7) * _ONES) >> _56)
            at += WORD_BYTES
        while at < stop:
            lines += 1 if text[at] == NEWLINE else 0
            at += 1
        counts[k, 1] = lines


@kernel
def count_entries(
    rank: int, size: int, control: Any, text: Any, begin: int, end: int, piece: int,
    comment: int, other_comment: int, blank_counts: bool, lead: int, step: int, counts: Any,
) -> None:  # fmt: skip
    """Set counts[k] to the numbers of rows and of entries in piece k, if all its lines are well-formed.

    :param blank_counts: a blank line is a row
    :param lead: words of a line before its first entry
    :param step: words of an entry
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= counts.shape[0] or load_acquire(control, ABORT) != 0:
            return
        stop = min(begin + (k + 1) * piece, end)
        at = _first_line(text, begin + k * piece, k)
        rows = np.int64(0)
        entries = np.int64(0)
        while at < stop:
            at = skip_blanks(text, at)
            is_comment = text[at] == comment or text[at] == other_comment
            words = np.int64(0)
            in_word = False
            while text[at] != NEWLINE:
                filled = text[at] > SPACE
                if filled and not in_word:
                    words += 1
                in_word = filled
                at += 1
            at += 1
            if is_comment or (words == 0 and not blank_counts):
                continue
            rows += 1
            entries += (words - lead) // step if words > lead else np.int64(0)
        counts[k, 0] = rows
        counts[k, 1] = entries


def _scan_lines(
    rank: int, size: int, control: Any, text: Any, begin: int, end: int, piece: int,
    prefix: int, comment: int, other_comment: int, comma: int, many: bool, id_columns: int,
    skipped: int, dropped: int, column: int, base: int, last_id: int, first_row: int,
    last_row: int, before: Any, heads: Any, sources: Any, targets: Any, weights: Any,
    wide_weights: Any, powers: Any, report: Any,
) -> None:  # fmt: skip
    """Scan the lines of all pieces into the columns, those of piece k from (row, entry) ``before[k]`` on.

    Ids are stored less ``base``; those outside of [base, last_id] are wrong. Blank lines and lines that
    begin with a comment byte are skipped, but where lines are numbered a blank one is a row.

    :param prefix: byte that begins each line, 0 for none
    :param comma: byte that may stand between two columns besides blanks, a blank for none
    :param many: a line has any number of targets
    :param id_columns: 2: source and target; 1: the source is the number of the line, from
        ``first_row`` on; lines from ``last_row`` on must be blank; 0: there are only weights
    :param skipped: integers before the first target that are not stored
    :param dropped: real numbers behind a weight that are not stored
    :param column: kind of the weights: NONE, INTEGER_32 (stored in ``weights``, int32), INTEGER_64 or the
        bits of REAL (stored in ``wide_weights``, int64)
    :param heads: (rows) sources of lines with any number of targets
    :param report: int64 (pieces, REPORT_COLUMNS)
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= report.shape[0] or load_acquire(control, ABORT) != 0:
            return
        stop = min(begin + (k + 1) * piece, end)
        at = _first_line(text, begin + k * piece, k)
        row = before[k, 0]
        entry = before[k, 1]
        status = FINE
        min_id = np.int64(_HUGE)
        max_id = np.int64(-1)
        line = at
        while at < stop:
            line = at
            at = skip_blanks(text, at)
            byte = text[at]
            is_comment = byte == comment or byte == other_comment  # noqa: PLR1714 (compiled)
            if byte <= RETURN or is_comment:
                is_blank_line = line_ends(text, at)
                if is_blank_line or is_comment:
                    while text[at] != NEWLINE:
                        at += 1
                    at += 1
                    if is_blank_line and not _ONLY_ARCS and id_columns == 1:
                        if skipped > 0 and first_row + row < last_row:
                            status = MALFORMED
                            break
                        row += 1
                    continue
            if _ONLY_ARCS:
                if prefix != 0:
                    if text[at] != prefix or not is_blank(text[at + 1]):
                        status = MALFORMED
                        break
                    at = skip_blanks(text, at + 2)
                at, status, low, high = _scan_arc(
                    text, at, comma, column, base, last_id,
                    entry, sources, targets, weights, wide_weights, powers,
                )  # fmt: skip
                entry += 1 if status == FINE else 0
            else:
                at, status, low, high, entry = _scan_row(
                    text, at, many, id_columns, skipped, dropped, column, base, last_id,
                    first_row + row, last_row, row,
                    entry, heads, sources, targets, weights, wide_weights, powers,
                )  # fmt: skip
                row += 1
            if status != FINE:
                break
            min_id = min(min_id, low)
            max_id = max(max_id, high)
            if text[at] != NEWLINE:
                at = skip_blanks(text, at)
                if text[at] == RETURN:
                    at += 1
                if text[at] != NEWLINE:
                    status = MALFORMED
                    break
            at += 1
        report[k, FOUND] = entry - before[k, 1]
        report[k, STATUS] = status
        report[k, LINE] = line
        report[k, TOKEN] = at
        report[k, MIN_ID] = min_id
        report[k, MAX_ID] = max_id


def _scan_arc(
    text: Any, at: Any, comma: int, column: int, base: int, last_id: int, entry: Any,
    sources: Any, targets: Any, weights: Any, wide_weights: Any, powers: Any,
) -> Any:  # fmt: skip
    """Scan ``SOURCE TARGET [WEIGHT]``.

    :returns: the position behind it (of a bad id), status, the smaller and the larger id
    """
    none = np.int64(0)
    begin = at
    source, at = _scan_vertex(text, at)
    if source < base or source > last_id:
        return begin, BAD_ID, none, none
    begin = _next_column(text, at, comma)
    if begin == at:
        return at, MALFORMED, none, none
    target, at = _scan_vertex(text, begin)
    if target < base or target > last_id:
        return begin, BAD_ID, none, none
    if column != NONE:
        begin = _next_column(text, at, comma)
        if begin == at:
            return at, MALFORMED, none, none
        at, status = _scan_weight(text, begin, column, entry, weights, wide_weights, powers)
        if status != FINE:
            return at, status, none, none
    sources[entry] = source - base
    targets[entry] = target - base
    return at, FINE, min(source, target), max(source, target)


def _scan_row(
    text: Any, at: Any, many: bool, id_columns: int, skipped: int, dropped: int, column: int,
    base: int, last_id: int, source: Any, last_row: int, row: Any, entry: Any, heads: Any,
    sources: Any, targets: Any, weights: Any, wide_weights: Any, powers: Any,
) -> Any:  # fmt: skip
    """Scan a line of any shape up to its end.

    :param source: the number of the line
    :returns: the position of its end (of a bad id), status, the smallest and the largest id, and the
        number of the next entry
    """
    low, high = np.int64(_HUGE), np.int64(-1)
    if id_columns == 2:
        begin = at
        source, at = scan_id(text, at)
        if source < base or source > last_id:
            return begin, BAD_ID, low, high, entry
        if not _word_ends(text, at):
            return at, MALFORMED, low, high, entry
        low = high = source
        source -= base
        if many:
            heads[row] = source
    elif id_columns == 1 and source >= last_row:
        return at, SURPLUS, low, high, entry
    for _ in range(skipped):
        number, at, status = scan_integer(text, skip_blanks(text, at))
        if status != FINE or number < 0 or not _word_ends(text, at):
            return at, MALFORMED, low, high, entry
    at = skip_blanks(text, at)
    more = True
    while more and not (many and line_ends(text, at)):
        target = np.int64(base)
        if id_columns > 0:
            begin = at
            target, at = scan_id(text, at)
            if target < base or target > last_id:
                return begin, BAD_ID, low, high, entry
            low, high = min(low, target), max(high, target)
        if column != NONE:
            begin = skip_blanks(text, at)
            if id_columns > 0 and begin == at:
                return at, MALFORMED, low, high, entry
            at, status = _scan_weight(text, begin, column, entry, weights, wide_weights, powers)
            if status != FINE:
                return at, status, low, high, entry
        if _REALS:
            for _ in range(dropped):
                begin = skip_blanks(text, at)
                _, after = scan_real(text, begin, powers)
                if begin == at or after < 0:
                    return begin, MALFORMED, low, high, entry
                at = after
        if not _word_ends(text, at):
            return at, MALFORMED, low, high, entry
        at = skip_blanks(text, at)
        sources[entry] = source
        targets[entry] = target - base
        entry += 1
        more = many
    return at, FINE, low, high, entry


def _word_ends(text: Any, at: int) -> bool:
    """Return True if a word ends before a position."""
    return is_blank(text[at]) or line_ends(text, at)


def _first_line(text: Any, at: int, k: int) -> int:
    """Return the index of the first line that begins in piece k; ``at``: the index of the piece itself."""
    if k == 0:
        return at
    at -= 1
    while text[at] != NEWLINE:
        at += 1
    return at + 1


def _next_column(text: Any, at: int, comma: int) -> int:
    """Return the position behind blanks with at most one comma among them."""
    at = skip_blanks(text, at)
    if text[at] == comma:
        at = skip_blanks(text, at + 1)
    return at


def _scan_weight(
    text: Any, at: int, column: int, entry: Any, weights: Any, wide_weights: Any, powers: Any
) -> Any:
    """Scan a weight and store it as that of an entry; return the position behind it, and the status.

    :param column: kind of the weights, as of :func:`_scan_lines`
    """
    if _REALS and column == REAL:
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


@kernel
def copy_words(
    rank: int, size: int, control: Any, text: Any, words: Any, offsets: Any, characters: Any
) -> None:
    """Copy each word (position and length, packed as by ``scan_word``) to its offset in ``characters``."""
    begin, end = block_range(rank, size, words.size)
    for i in range(begin, end):
        if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        shift = (words[i] >> WORD_LENGTH_BITS) - offsets[i]
        for to in range(offsets[i], offsets[i + 1]):
            characters[to] = text[to + shift]


@cache
def line_scanner(words: bool, only_arcs: bool, reals: bool) -> Kernel:
    """Return the kernel that scans lines, which has no code for what they do not contain.

    :param words: ids are words
    :param only_arcs: lines are ``[prefix] SOURCE TARGET [WEIGHT]``
    :param reals: there are REAL weights, or numbers that are dropped
    """
    scan = scan_word if words else scan_id
    return Kernel(_scan_lines, {"_scan_vertex": scan, "_ONLY_ARCS": only_arcs, "_REALS": reals})
