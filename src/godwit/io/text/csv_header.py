"""The beginning of CSV: comments, which are skipped, then the line that names columns, or the first row.

A line names columns if it has the usual names or those that the user gives; if it has any names, above
integers; and in a file .csv or .tsv, if none of its first two fields is a number, nor the last of three.
The last comment is that line itself if it has the same number of fields as the line below it
(``#source,target``). If a row comes first, and has quotes (which only CSV has) or a number as the last of
three fields, the columns are sources, targets and perhaps weights.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from godwit.graph.arcs import DECIMAL_INTEGER
from godwit.graph.table_columns import known_columns
from godwit.io.format import Head
from godwit.io.format_names import FORMATS

_DELIMITERS = ",\t;"
_NUMBER = re.compile(r"\s*[-+]?(\.?[0-9].*|inf|infinity|nan)?\s*", re.IGNORECASE)
_INTEGER = re.compile(rf"\s*{DECIMAL_INTEGER}\s*", re.ASCII)
_QUOTED = re.compile(rf'"|.*[{_DELIMITERS}]"', re.DOTALL)
_OF_EDGE_LISTS = re.compile(r"[#%]\s*((un)?directed graph\b|nodes:|ids:)", re.IGNORECASE)
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line that is not blank.

    :ivar begin: position of its first byte
    :ivar end: position of the first byte of the next line
    """

    text: str
    number: int
    begin: int
    end: int

    @property
    def is_comment(self) -> bool:
        """True if it begins with # or %."""
        return self.text.lstrip()[0] in "#%"


class Header(NamedTuple):
    """The first line that is no comment, or a comment that names the columns.

    :ivar names: the fields are names of columns; else they are the first row
    :ivar certain: the file is CSV; else it may be an edge list
    """

    line: Line
    fields: list[str]
    delimiter: str
    names: bool
    certain: bool


def header_of(head: Head, wanted: Sequence[str] | None = None) -> Header | None:
    """Return the header of a file; None if no line ends in its first 64 KiB.

    :param wanted: names of columns that the user gives
    """
    above: list[Line] = []
    data: list[Line] = []
    for line in _lines(head):
        if not line.is_comment:
            data.append(line)
        elif not data:
            above.append(line)
        if len(data) == 2:
            break
    first = _first_of(data)
    if above and not (first and _are_known(first.fields, wanted)):
        named = _in_comment(head, above[-1], first, wanted)
        if named is not None:
            return named
    if first is None:
        return None
    if wanted is not None or _are_known(first.fields, None):
        return first._replace(names=True, certain=True)
    numbers = list(map(_NUMBER.fullmatch, first.fields[:2]))
    is_table = len(first.fields) > 1
    certain = is_table and not any(numbers) and _stands_above(first, data[1:])
    if not certain and is_table and not any(numbers) and _is_called_csv(head):
        certain = not any(_OF_EDGE_LISTS.match(line.text) for line in above)
        if certain and _ends_with_weight(first.fields):
            return first._replace(certain=True)
    if not certain and is_table and _QUOTED.match(first.line.text):
        return first._replace(certain=True)
    return first._replace(names=certain or not all(numbers), certain=certain)


def _lines(head: Head) -> Iterator[Line]:
    """Yield whole lines that are not blank."""
    content = head.content
    position = len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0
    number = 0
    while position < len(content):
        match = _LINE.match(content, position)
        assert match is not None
        if match.end() == len(content) < head.size:
            return  # it may be longer
        number += 1
        text = match[1].decode("utf-8", "replace")
        if text.strip():
            yield Line(text, number, position, match.end())
        position = match.end()


def _first_of(data: list[Line]) -> Header | None:
    if not data:
        return None
    return Header(data[0], *_fields(data[0].text), names=False, certain=False)


def _in_comment(
    head: Head, line: Line, first: Header | None, wanted: Sequence[str] | None
) -> Header | None:
    """Return the header in the last comment; None if that is only a comment.

    The comment ``# FromNodeId<TAB>ToNodeId`` of SNAP's edge lists is none: the comments above it count.
    """
    text = line.text.strip()[1:]
    fields, delimiter = _fields(text)
    if first is not None and (first.delimiter, len(first.fields)) != (delimiter, len(fields)):
        return None
    close = text[:1].strip() != ""
    is_header = _are_known(fields, wanted) and (close or delimiter != "\t")
    if not is_header and wanted is None and close and _is_called_csv(head) and len(fields) > 1:
        is_header = not any(map(_NUMBER.fullmatch, fields[:2]))
    return Header(line, fields, delimiter, names=True, certain=True) if is_header else None


def _are_known(fields: list[str], wanted: Sequence[str] | None) -> bool:
    if wanted is not None:
        return all(name in fields for name in wanted)
    return known_columns(fields) is not None


def _stands_above(first: Header, below: list[Line]) -> bool:
    """Return True if the next line has the same number of fields, and integers first."""
    if not below:
        return False
    row = _split(below[0].text, first.delimiter)
    return len(row) == len(first.fields) and all(map(_INTEGER.fullmatch, row[:2]))


def _ends_with_weight(fields: list[str]) -> bool:
    return len(fields) == 3 and fields[2] != "" and _NUMBER.fullmatch(fields[2]) is not None


def _is_called_csv(head: Head) -> bool:
    return head.stem.endswith(FORMATS["csv"].endings)


def _fields(line: str) -> tuple[list[str], str]:
    """Return the fields of a line, and the delimiter that makes most of them."""
    split = [(_split(line, delimiter), delimiter) for delimiter in _DELIMITERS]
    return max(split, key=lambda fields_by: len(fields_by[0]))


def _split(line: str, delimiter: str) -> list[str]:
    try:
        fields = next(csv.reader([line], delimiter=delimiter), [""])
    except csv.Error:
        return [""]
    return [field.strip() for field in fields]
