"""CSV: columns between commas, semicolons or tabs (RFC 4180, parsed by Arrow), usually below their names.

The type of a column is the narrowest that fits all its fields, and is found by trying. Integers are
decimal; ``1.0``, as pandas writes integers of a column with missing values, is one if all ids are. Blanks
around a field do not belong to it, unless a field in quotes begins or ends with a blank: then they belong
to the texts of this file. An empty field without quotes is a missing value, not an empty text. Files
without names of columns are edge lists, unless they have quotes (``csv_header``).

A file whose columns may take more than half of the memory is parsed block by block, each time that its
arcs are iterated.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO, NoReturn

from godwit.arrays import arrow_text
from godwit.errors import FormatError, InputError
from godwit.graph.arcs import ArcList, ReadOptions, integers_in
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.table_columns import (
    NAMES,
    Columns,
    arcs_of_tables,
    choose_columns,
    describe_unread,
    known_columns,
    require_all_in_arcs,
    row_tables,
)
from godwit.io.format import HEAD_BYTES, Format, Head
from godwit.io.source import Source
from godwit.io.text.csv_header import Header, header_of
from godwit.io.text.writing import joined, text_scalar

_KIND_COLUMN = "type"  # of Gephi's tables of edges
_MOST_KINDS = 8  # texts in it: Directed and Undirected, in any letters

_BLANKS = " \t"
_QUOTED_BLANK = re.compile(rb'[,;\t\r\n]"[ \t]|[ \t]"[,;\t\r\n]')  # at an end of a field in quotes

_MISSING = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None")  # of R, pandas and databases

_HEXADECIMAL = r"^[ \t]*-?0[xX]"  # Arrow takes such integers, too

_SHARE_HELD = 1 / 6  # the text, its columns and what is made of them take up to 5.4 times the text
_SHARE_OF_BLOCK = 1 / 64
_SMALLEST_BLOCK = 1 << 16
_LARGEST_BLOCK = 1 << 28
_COUNTED_BYTES = 1 << 20
_LEAST_BYTES = 4  # of a row
_PARALLEL_BLOCK = 1 << 22  # that a thread takes, where the file is parsed at a stretch


def recognize(head: Head) -> bool:
    """Return True if the first line names columns, or has quotes (which edge lists do not have)."""
    header = header_of(head)
    return header is not None and header.certain


def read(source: Source, options: ReadOptions) -> ArcList:
    """Read arcs, with int32, int64 or float64 weights if there is a column for them.

    They are directed, unless a column ``Type``, as Gephi writes it, says ``Undirected`` in all rows.
    Columns are those of ``options.columns``; None: see
    :func:`godwit.graph.table_columns.choose_columns`. Ids are names, unless ``options.relabel`` is False:
    vertices then count from ``options.id_base``; None: 0.
    """
    table = _Table(source, options)
    arcs = arcs_of_tables(
        source.path,
        table.parsed,
        options,
        table.problem,
        one_table=not table.in_blocks,
        most_rows=table.most_rows,
        typed=False,
    )
    doubts = [table.describe_first_line(arcs.ids), _describe_missing(arcs.ids), table.unread]
    unread = "; ".join(filter(None, doubts))
    return replace(arcs, unread=unread, directed=table.directed)


def _describe_missing(ids: VertexIds) -> str:
    """Return a sentence about an id that stands for none, among integers; else an empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if ids.kind != "text":
        return ""
    texts = ids.to_arrow()
    names = pa.concat_arrays([pa.repeat(arrow_text(name), 1) for name in _MISSING])
    is_missing = pc.is_in(texts, value_set=names)
    if not pc.any(is_missing).as_py() or integers_in(texts.filter(pc.invert(is_missing))) is None:
        return ""
    return (
        f"{texts.filter(is_missing)[0].as_py()} is the id of a vertex, and makes texts of all other ids, "
        "which are integers; where it means that there is no id, leave such rows out: "
        "godwit.Graph.from_table(pandas.read_csv(path).dropna().convert_dtypes())"
    )


class _Table:
    """The rows behind the header, or all rows if there is none."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        import pyarrow as pa

        self.source = source
        self.progress = options.progress
        header = _header(source, options.columns)
        self.delimiter = header.delimiter
        self.width = len(header.fields)
        self.named = header.names
        is_guess = header.names and options.columns is None and known_columns(header.fields) is None
        self._guessed = header if is_guess else None
        self.lines_before = header.line.number if header.names else header.line.number - 1
        self.columns = Columns(0, 1, 2 if self.width > 2 else None)
        self.unread = ""
        if header.names:
            self.columns = choose_columns(header.fields, options.columns, self.problem)
            self.unread = describe_unread(header.fields, self.columns, options)
        if options.weighted is False:
            self.columns = self.columns._replace(weight=None)
        begin = header.line.end if header.names else header.line.begin
        self.content: Any = pa.py_buffer(source.content())[begin:]
        self.in_blocks = self.content.size > source.room(_SHARE_HELD)
        self.types = [pa.int32(), pa.int32(), pa.int32()][: len(self.columns.used)]
        self._held: Any = None
        self._has_blanks = self._blanks_belong = False  # anywhere; to texts
        self._look_through()
        self._settle_types()
        self.directed = True
        if header.names and options.columns is None:
            self.directed = self._are_directed(header.fields, options)

    def describe_first_line(self, ids: VertexIds) -> str:
        """Return a sentence about the line of names if it may be an arc, else an empty text.

        It may be one if its names are not usual ones, and one of them is an id.
        """
        if self._guessed is None or ids.kind != "text":
            return ""
        fields = self._guessed.fields
        names = [fields[self.columns.source], fields[self.columns.target]]
        also_ids = [name for name in names if name in ids]
        if not also_ids:
            return ""
        return (
            f"line {self._guessed.line.number} was taken for names of columns, {', '.join(names)}, and "
            f"{also_ids[0]!r} is an id below, too: if the line is an arc, put a line such as "
            f"source{self.delimiter}target above it"
        )

    def _are_directed(self, names: Sequence[str], options: ReadOptions) -> bool:
        """Return False if a column says that all rows are undirected.

        :raises FormatError: it says so of some rows only, and the options do not decide
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.csv

        of_kinds = [at for at, name in enumerate(names) if name.strip().lower() == _KIND_COLUMN]
        if len(of_kinds) != 1 or of_kinds[0] in self.columns.used or self.content.size == 0:
            return True
        given = self._options(_LARGEST_BLOCK, True, {of_kinds[0]: pa.large_string()})
        kinds: set[str] = set()
        with self._errors_placed():
            for batch in pyarrow.csv.open_csv(pa.BufferReader(self.content), **given):
                kinds.update(pc.unique(batch.column(0)).to_pylist())
                if len(kinds) > _MOST_KINDS:
                    return True  # of something else
        plain = {"" if kind is None else kind.strip().lower() for kind in kinds}
        if options.directed is None and plain == {"directed", "undirected"}:
            chosen = ",".join(names[at] for at in self.columns.used)
            raise self.problem(
                f"the column {names[of_kinds[0]]} calls some edges directed, and others undirected; "
                f"directed=True or directed=False decides for all (command line: --columns {chosen})",
                None,
            )
        return plain != {"undirected"}

    def parsed(self) -> Iterator[Any]:
        """Yield tables of the two or three columns."""
        if not self.in_blocks:
            yield self._held
            return
        with self._errors_placed():
            yield from map(self._trimmed, self._blocks(threaded=True))

    def _trimmed(self, table: Any) -> Any:
        """Return a table without blanks around ids that are texts; ids of blanks alone become nulls."""
        import pyarrow as pa
        import pyarrow.compute as pc

        trims = self._has_blanks and not self._blanks_belong
        if not trims or not pa.types.is_large_string(self.types[0]):
            return table
        for at, name in enumerate(table.column_names[:2]):
            field = table.column(at)
            text = pc.utf8_trim(field, _BLANKS)
            empty, null = arrow_text(""), pa.nulls(1, text.type)[0]
            is_blank = pc.and_(pc.equal(text, empty), pc.not_equal(field, empty))
            text = pc.if_else(is_blank, null, text)
            table = table.set_column(at, name, text)
        return table

    @property
    def most_rows(self) -> int:
        """The number of rows, or a larger one."""
        return self.content.size // _LEAST_BYTES if self.in_blocks else int(self._held.num_rows)

    def problem(self, message: str, row: int | None) -> FormatError:
        """Return the error about a row (counted from 0), or about the file."""
        if row is None:
            return FormatError(self.source.path, message)
        line, text = self._place(row)
        return FormatError(self.source.path, message, line=line, text=text)

    def _look_through(self) -> None:
        """Check for what Arrow accepts, but is wrong: open quotation marks and hexadecimal numbers.

        Blanks belong to texts if one is at either end of a field in quotes.
        """
        quotes = 0
        hexadecimal = False
        for begin in range(0, self.content.size, _COUNTED_BYTES):
            end = min(begin + _COUNTED_BYTES + 2, self.content.size)
            piece = self.content[begin:end].to_pybytes()
            quotes += piece.count(b'"', 0, _COUNTED_BYTES)
            if not self._blanks_belong and b'"' in piece:
                rows = b"\n" * (begin == 0) + piece + b"\n" * (end == self.content.size)
                self._blanks_belong = _QUOTED_BLANK.search(rows) is not None
            self._has_blanks = self._has_blanks or b" " in piece or b"\t" in piece
            # One byte is found many times faster than two.
            hexadecimal |= (b"x" in piece and b"0x" in piece) or (b"X" in piece and b"0X" in piece)
        if quotes % 2:
            self._require_closed_quotes()
        if hexadecimal:
            self._settle_hexadecimal()

    def _require_closed_quotes(self) -> None:
        """Refuse a quotation mark that is open at the end of the file."""
        reader = csv.reader(self._lines(), delimiter=self.delimiter, strict=True)
        line = 0
        try:
            for _ in reader:
                line = reader.line_num
        except csv.Error as error:
            if "unexpected end" in str(error) or "field limit" in str(error):
                raise FormatError(
                    self.source.path,
                    'a quotation mark (") is open at the end of the file, in the row that begins here',
                    line=self.lines_before + line + 1,
                ) from None

    def _lines(self) -> io.TextIOWrapper:
        import pyarrow as pa

        content = io.BufferedReader(pa.BufferReader(self.content))
        return io.TextIOWrapper(content, "utf-8", "replace", newline="")

    def _settle_hexadecimal(self) -> None:
        """Read ids as texts if one begins like a hexadecimal number; refuse such weights."""
        import pyarrow as pa
        import pyarrow.compute as pc

        narrow = self.types
        self.types = [pa.large_string() for _ in narrow]
        hexadecimal = [False for _ in narrow]
        row = 0
        with self._errors_placed():
            for table in self._blocks(threaded=True):
                wrong = [pc.match_substring_regex(column, _HEXADECIMAL) for column in table.columns]
                at = pc.index(wrong[2], True).as_py() if len(wrong) > 2 else -1
                if at >= 0:
                    raise self.problem("the weight is not a decimal number", row + at)
                hexadecimal = [
                    before or pc.any(column).as_py()
                    for before, column in zip(hexadecimal, wrong, strict=True)
                ]
                row += table.num_rows
        self.types = narrow
        if any(hexadecimal):
            self.types[:2] = [pa.large_string(), pa.large_string()]

    def _settle_types(self) -> None:
        """Widen the types of columns until all fields fit, those of the first 64 KiB before the others."""
        import pyarrow as pa

        whole = self.content
        beginning = whole[: min(whole.size, HEAD_BYTES)].to_pybytes()
        beginning = beginning[: beginning.rfind(b"\n") + 1]
        with suppress(pa.ArrowInvalid):  # it may end within quotes
            self._widen(lambda: self._parse(pa.py_buffer(beginning)))
        with self._errors_placed():
            if self.in_blocks:
                self._widen(lambda: [None for _ in self._blocks(threaded=True)])
            else:
                self._held = self._trimmed(self._widen(lambda: self._parse(whole)))

    def _widen(self, parse: Callable[[], Any]) -> Any:
        """Widen the types until ``parse`` accepts all fields, and return its result."""
        import pyarrow as pa

        while True:
            try:
                return parse()
            except pa.ArrowInvalid as error:
                column = re.match(r"In CSV column #([0-9]+): .*conversion error to", str(error))
                if column is None:
                    raise
                position = self.columns.used.index(int(column[1]))
                wider = self._wider(position, str(error))
                if wider is None:
                    raise
                if pa.types.is_large_string(wider):
                    self.types[:2] = [wider, wider]
                else:
                    self.types[position] = wider

    def _wider(self, position: int, message: str) -> Any:
        import pyarrow as pa

        last = pa.float64() if position == 2 else pa.large_string()
        kinds = [pa.int32(), pa.int64(), last]
        at = kinds.index(self.types[position])
        too_large = re.search(r"invalid value '\s*-?[0-9]+\s*'", message) is not None
        if at == 2 or (at == 1 and position == 2 and too_large):
            return None  # integers stay exact, or fail
        return kinds[1] if at == 0 and too_large else last

    def _parse(self, content: Any) -> Any:
        import pyarrow as pa
        import pyarrow.csv

        if content.size == 0:
            return self._empty()
        return pyarrow.csv.read_csv(
            pa.BufferReader(content), **self._options(_PARALLEL_BLOCK, True, self._used)
        )

    def _blocks(self, threaded: bool) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.csv

        if self.content.size == 0:
            yield self._empty()
            return
        block = min(max(self.source.room(_SHARE_OF_BLOCK), _SMALLEST_BLOCK), _LARGEST_BLOCK)
        reader = pyarrow.csv.open_csv(
            pa.BufferReader(self.content), **self._options(block, threaded, self._used)
        )
        done = 0
        for batch in iter(lambda: next(reader, None), None):
            yield pa.Table.from_batches([batch])
            done = min(done + block, self.content.size)
            if self.progress is not None:
                self.progress(done, self.content.size, "parsing")

    def _empty(self) -> Any:
        import pyarrow as pa

        return pa.schema(
            [(name, kind) for name, kind in zip(NAMES, self.types, strict=False)]
        ).empty_table()

    @property
    def _used(self) -> dict[int, Any]:
        """Types of the columns that are read, by position."""
        return dict(zip(self.columns.used, self.types, strict=True))

    def _options(self, block: int, threaded: bool, types: Mapping[int, Any]) -> dict[str, Any]:
        from pyarrow.csv import ConvertOptions, ParseOptions
        from pyarrow.csv import ReadOptions as RowOptions

        column_types = {str(position): kind for position, kind in types.items()}
        return {
            "read_options": RowOptions(
                block_size=block,
                use_threads=threaded,
                column_names=[str(position) for position in range(self.width)],
            ),
            "parse_options": ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            "convert_options": ConvertOptions(
                include_columns=list(column_types),
                column_types=column_types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        }

    @contextmanager
    def _errors_placed(self) -> Iterator[None]:
        """Turn Arrow's errors into FormatError, which names the line."""
        import pyarrow as pa

        try:
            yield
        except pa.ArrowInvalid as error:
            self._fail(str(error))

    def _fail(self, message: str) -> NoReturn:
        """Raise the error about the first wrong row, which one thread finds."""
        import pyarrow as pa

        try:
            for _ in self._blocks(threaded=False):
                pass
        except pa.ArrowInvalid as error:
            message = str(error)
        row = re.search(r"Row #([0-9]+)", message)
        raise self.problem(self._explained(message), None if row is None else int(row[1]) - 1)

    def _explained(self, message: str) -> str:
        columns = re.search(r"Expected [0-9]+ columns, got ([0-9]+)", message)
        if columns is not None:
            first = "header" if self.named else "first row"
            return f"malformed row: the {first} has {self.width} columns, this one {columns[1]}"
        if "straddling" in message:
            return 'a row does not end within megabytes: is a quotation mark (") open?'
        column = re.match(r"In CSV column #([0-9]+)", message)
        if column is None:
            return f"malformed CSV: {message}"
        if "UTF8" in message:
            return "the text is not UTF-8"
        name = NAMES[self.columns.used.index(int(column[1]))]
        if re.search(r"invalid value '\s*-?[0-9]+\s*'", message):
            return f"the {name} does not fit in 64 bits with a sign (int64)"
        if re.search(r"invalid value '[^']*[0-9],[0-9]", message):
            return f"the {name} is not a number: numbers have a decimal point, and no commas"
        return f"the {name} is not a number"

    def _place(self, row: int) -> tuple[int | None, str | None]:
        """Return line and text of a row by Python's parser; None if that fails before the row."""
        reader = csv.reader(self._lines(), delimiter=self.delimiter)
        try:
            for fields in filter(None, reader):
                if row == 0:
                    return self.lines_before + reader.line_num, self.delimiter.join(fields)
                row -= 1
        except csv.Error:
            pass
        return None, None


def _header(source: Source, wanted: Sequence[str] | None) -> Header:
    """Return the line that names columns, or the first row of two or three columns.

    :raises FormatError: there is neither
    """
    header = header_of(source.head, wanted)
    if header is None:
        if source.size > len(source.head.content):
            raise FormatError(source.path, "the line that names columns is too long")
        raise FormatError(source.path, "there is no line that names columns")
    if header.names or (header.certain and len(header.fields) <= len(NAMES)):
        return header
    hint = "" if header.certain else (
        "; format edge-list does without (format=, command line: --format)"
    )  # fmt: skip
    raise FormatError(
        source.path,
        f"the first line must name columns{hint}",
        line=header.line.number,
        text=header.line.text,
    )


def write(graph: Graph, file: BinaryIO) -> None:
    """Write columns source, target and weight, with the ids of the vertices; an undirected edge is one row.

    The file does not state that a graph is undirected: read it with ``directed=False``. Where vertices
    have no ids and are numbered from 1, reading the file gives them these numbers as ids.

    :raises InputError: a vertex without arcs would be lost; or ids are objects, or texts that are all
        integers
    """
    require_all_in_arcs(graph.rows, graph.ids, "CSV", "write Parquet or another format")
    _require_read_as_texts(graph)
    names = NAMES if graph.is_weighted else NAMES[:2]
    file.write((",".join(names) + "\n").encode())
    for table in row_tables(graph.rows, graph.ids, graph.directed, in_file=True):
        columns = [column.combine_chunks() for column in table.columns]
        fields = [*map(_quoted, columns[:2]), *map(_digits, columns[2:])]
        if table.num_rows:
            between = [*chain.from_iterable((field, text_scalar(",")) for field in fields)][:-1]
            file.write(joined([*between, text_scalar("\n")]))


def _require_read_as_texts(graph: Graph) -> None:
    """Refuse text ids that would be read as integers."""
    import pyarrow.compute as pc

    if graph.ids.kind != "text" or graph.vertex_count == 0:
        return
    if integers_in(pc.utf8_trim_whitespace(graph.ids.to_arrow())) is None:
        return
    raise InputError(
        "CSV cannot hold text ids that are all integers: write Parquet, or make them integers with "
        "graph.with_ids(...)"
    )


def _quoted(ids: Any) -> Any:
    """Return ids as fields, quoted if necessary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_large_string(ids.type):
        return ids.cast(pa.large_string())
    special = pc.match_substring_regex(ids, r'[",;\t\r\n]|^\s|\s$|^$')
    if not pc.any(special).as_py():
        return ids
    quote = text_scalar('"')
    inside = pc.replace_substring(ids, '"', '""')
    return pc.if_else(
        special, pc.binary_join_element_wise(quote, inside, quote, text_scalar("")), ids
    )


def _digits(weights: Any) -> Any:
    """Return weights as fields; floating-point numbers with a point or an exponent."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(weights.type):
        return weights.cast(pa.large_string())
    # The digits of a float32 are not those of the float64 that is read.
    fields = weights.cast(pa.float64()).cast(pa.large_string())
    ending = pc.if_else(pc.match_substring_regex(fields, "[.en]"), "", ".0")
    return pc.binary_join_element_wise(fields, ending.cast(pa.large_string()), text_scalar(""))


FORMAT = Format(
    "csv",
    recognize,
    read,
    write,
    options=frozenset({"columns", "relabel", "id_base"}),
    lists_arcs=True,
)
