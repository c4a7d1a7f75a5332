"""Tables as HTML, for notebooks.

No colours are set, so a table has those of the notebook's theme. Texts are aligned to the left and numbers
to the right, in digits of equal width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_PADDED = "padding: 0.3em 0.7em"
_LEFT = f' style="text-align: left; {_PADDED}"'
_RIGHT = f' style="text-align: right; {_PADDED}; font-variant-numeric: tabular-nums"'
_ELLIPSIS = "\u2026"


def table_of_columns(title: str, columns: Mapping[str, Sequence[Any]], most_rows: int) -> str:
    """Return the HTML of a line of text and, below it, of a table with a column for each name.

    :param columns: values, as many in each column; None for an empty cell
    :param most_rows: rows that are shown; an ellipsis stands for more
    """
    styles = [_RIGHT if _are_numbers(values) else _LEFT for values in columns.values()]
    texts = [_texts(values[:most_rows]) for values in columns.values()]
    if any(len(values) > most_rows for values in columns.values()):
        texts = [[*values, _ELLIPSIS] for values in texts]
    heads = "".join(
        f"<th{style}>{escape(name)}</th>" for style, name in zip(styles, columns, strict=True)
    )
    rows = (
        "".join(f"<td{style}>{escape(text)}</td>" for style, text in zip(styles, row, strict=True))
        for row in zip(*texts, strict=True)
    )
    return _titled(title, f"<thead><tr>{heads}</tr></thead>", rows)


def table_of_facts(title: str, facts: Mapping[str, Any]) -> str:
    """Return the HTML of a line of text and, below it, of a table with a row for each name.

    :param facts: a value each, or a list of values, which have cells of their own
    """
    width = max((len(value) for value in facts.values() if isinstance(value, list)), default=1)
    return _titled(title, "", (_fact(name, value, width) for name, value in facts.items()))


def _fact(name: str, value: Any, width: int) -> str:
    if isinstance(value, list):
        style = _RIGHT if width > 1 else _LEFT
        cells = "".join(f"<td{style}>{escape(str(each))}</td>" for each in value)
    else:
        span = f' colspan="{width}"' if width > 1 else ""
        cells = f"<td{span}{_LEFT}>{escape(str(value))}</td>"
    return f"<th{_LEFT}>{escape(name)}</th>{cells}"


def _titled(title: str, head: str, rows: Iterable[str]) -> str:
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<div><code>{escape(title)}</code>"
        f'<table style="margin-left: 0">{head}<tbody>{body}</tbody></table></div>'
    )


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float | None) for value in values)


def _texts(values: Sequence[Any]) -> list[str]:
    """Return the values of a column as people read them: floats with six digits or, to align them, more."""
    texts = ["" if value is None else _text(value) for value in values]
    floats = [text for text, value in zip(texts, values, strict=True) if isinstance(value, float)]
    if not floats or any("e" in text for text in floats):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in floats)
    return [
        f"{value:.{decimals}f}" if isinstance(value, float) else text
        for text, value in zip(texts, values, strict=True)
    ]


def _text(value: Any) -> str:
    """Return a value as people read it: a float with up to six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
