"""The compiled scanner of lines of neighbours: text in, columns of arcs out, on all threads.

The text is as ``scanner`` has it, and so are its pieces. The rows and entries of each piece are counted
first, which says where they go; there are never more than counted, as each entry takes words of its
own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.io.text.scanner import (
    FINE,
    MALFORMED,
    NONE,
    OUT_OF_RANGE,
    first_line,
    is_blank,
    scan_integer,
    scan_vertex,
    scan_weight,
    skip_blanks,
)
from godwit.runtime.cpu.atomics import fetch_add, load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR

SURPLUS = 5  # status beside the scanner's: a line that is not blank behind that of the last vertex

# Columns of the report: why the scan of a piece ended, in which line, and where in it.
STATUS, LINE, BEHIND = range(3)
REPORT_COLUMNS = 3

_NEWLINE = 10
_RETURN = 13
_SPACE = 32


@kernel
def count_rows(
    rank: int,
    size: int,
    control: Any,
    text: Any,
    begin: int,
    end: int,
    piece: int,
    comment: int,
    named: bool,
    lead: int,
    step: int,
    counts: Any,
) -> None:
    """Set counts[k] to (rows, entries) of the lines whose first byte is in piece k.

    :param text: uint8; position ``begin`` is the first byte of a line, ``end - 1`` a newline
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= counts.shape[0] or load_acquire(control, ABORT) != 0:
            return
        stop = min(begin + (k + 1) * piece, end)
        at = first_line(text, begin + k * piece, k)
        rows = np.int64(0)
        entries = np.int64(0)
        while at < stop:
            at = skip_blanks(text, at)
            is_comment = text[at] == comment
            words = np.int64(0)
            in_word = False
            while text[at] != _NEWLINE:
                filled = text[at] > _SPACE
                if filled and not in_word:
                    words += 1
                in_word = filled
                at += 1
            at += 1
            if is_comment or (named and words == 0):
                continue
            rows += 1
            entries += (words - lead) // step if words > lead else np.int64(0)
        counts[k, 0] = rows
        counts[k, 1] = entries


@kernel
def scan_rows(
    rank: int,
    size: int,
    control: Any,
    text: Any,
    begin: int,
    end: int,
    piece: int,
    comment: int,
    named: bool,
    skipped: int,
    column: int,
    base: int,
    last_id: int,
    last_row: int,
    first_row: int,
    before: Any,
    heads: Any,
    sources: Any,
    targets: Any,
    weights: Any,
    wide_weights: Any,
    powers: Any,
    report: Any,
) -> None:
    """Scan the lines of all pieces into the columns, those of piece k from ``before[k]`` on.

    Ids are stored less ``base``; those outside of [base, last_id] are wrong.

    :param last_row: rows without names, counted from ``first_row``, that are this or more are blank
    :param column: kind of the weights, stored as by ``scanner.scan_arcs``
    :param report: int64 (pieces, 3): why the scan ended, the line and where in it
    """
    while True:
        k = fetch_add(control, CURSOR, 1)
        if k >= report.shape[0] or load_acquire(control, ABORT) != 0:
            return
        stop = min(begin + (k + 1) * piece, end)
        at = first_line(text, begin + k * piece, k)
        row = before[k, 0]
        entry = before[k, 1]
        status = FINE
        line = at
        while at < stop and status == FINE:
            line = at
            at = skip_blanks(text, at)
            if text[at] == comment:
                while text[at] != _NEWLINE:
                    at += 1
                at += 1
                continue
            if _line_ends(text, at):
                at = _behind_end(text, at)
                if named:
                    continue
                if skipped > 0 and first_row + row < last_row:
                    status = MALFORMED
                row += 1
                continue
            source = first_row + row
            if named:
                source, at, status = _scan_vertex(text, at, base, last_id)
                if status != FINE:
                    break
                heads[row] = source
            elif source >= last_row:
                status = SURPLUS
                break
            for _ in range(skipped):
                at = skip_blanks(text, at)
                number, at, status = scan_integer(text, at)
                if status != FINE or number < 0 or not _word_ends(text, at):
                    status = MALFORMED
                    break
            while status == FINE:
                at = skip_blanks(text, at)
                if _line_ends(text, at):
                    break
                target, at, status = _scan_vertex(text, at, base, last_id)
                if status != FINE:
                    break
                if column != NONE:
                    at = skip_blanks(text, at)
                    at, status = scan_weight(text, at, column, entry, weights, wide_weights, powers)
                    if status != FINE:
                        break
                    if not _word_ends(text, at):
                        status = MALFORMED
                        break
                sources[entry] = source
                targets[entry] = target
                entry += 1
            if status != FINE:
                break
            at = _behind_end(text, at)
            row += 1
        report[k, STATUS] = status
        report[k, LINE] = line
        report[k, BEHIND] = at


def _scan_vertex(text: Any, at: Any, base: int, last_id: int) -> Any:
    """The vertex of an id: that less ``base``, the position behind it (of it, if wrong), status."""
    id, after = scan_vertex(text, at)
    if id == -1 or not _word_ends(text, after):
        return np.int64(-1), at, MALFORMED
    if id < base or id > last_id:
        return np.int64(-1), at, OUT_OF_RANGE
    return id - base, after, FINE


def _word_ends(text: Any, at: int) -> bool:
    """Whether what has been scanned ends a word."""
    return is_blank(text[at]) or _line_ends(text, at)


def _line_ends(text: Any, at: int) -> bool:
    """Whether a line ends here: with a newline, or a return before it."""
    if text[at] == _RETURN:
        at += 1
    return bool(text[at] == _NEWLINE)


def _behind_end(text: Any, at: int) -> int:
    """The first position behind the end of a line, which is here."""
    return at + 1 if text[at] == _NEWLINE else at + 2
