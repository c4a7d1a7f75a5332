"""A dataflow graph as text and SVG.

Endpoints stand in columns, each after the endpoints that lead to it, so that a pipeline reads from left to
right; the host may stand on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from godwit.dataflow.endpoint import Endpoint
from godwit.files import replacing

if TYPE_CHECKING:
    from godwit.dataflow.context import Context
    from godwit.dataflow.link import Link

_COLUMN, _ROW, _WIDTH, _HEIGHT = 240, 70, 130, 36
_FILL = {"host": "#f6e3c5", "device": "#d5e8d4", "router": "#dae8fc"}


@dataclass(frozen=True)
class Box:
    """Rectangle of an endpoint in the picture."""

    endpoint: Endpoint
    column: int
    row: int

    @property
    def x(self) -> int:
        """Horizontal position of the upper-left corner."""
        return 20 + self.column * _COLUMN

    @property
    def y(self) -> int:
        """Vertical position of the upper-left corner."""
        return 20 + self.row * _ROW


class DataflowGraph:
    """Result of :meth:`godwit.Context.graph`; notebooks show the picture.

    :ivar text: a line per link, as ``print`` shows it
    :ivar svg: the picture
    """

    def __init__(self, text: str, svg: str) -> None:
        self.text = text
        self.svg = svg

    @classmethod
    def of(cls, context: Context) -> DataflowGraph:
        """Return the graph of a context's present links."""
        links = context.all_links()
        return cls(_text(context, links), _svg(links))

    def write(self, path: str | Path) -> None:
        """Write the picture, or the text if the name ends with ``.txt``.

        :raises FileError: the file cannot be written
        """
        text = self.text if str(path).endswith(".txt") else self.svg
        with replacing(path) as file:
            file.write(text.encode())

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.text


def _text(context: Context, links: list[Link]) -> str:
    names = [str(endpoint) for endpoint in (context.host, *context.endpoints)]
    lines = [f"endpoints: {', '.join(names)}"]
    lines += [f"{router}: policy {router.policy.name}" for router in context.routers]
    width = max((len(str(link.source)) for link in links), default=0)
    for link in links:
        size = "" if link.receiver is None else f"  {_buffers(link)}"
        lines.append(f"{link.source!s:<{width}} -> {link.target}{size}")
    return "\n".join(lines)


def _buffers(link: Link) -> str:
    return f"{link.buffers} x {link.packet_bytes:,} bytes"


def _svg(links: list[Link]) -> str:
    columns = _columns(links)
    boxes: dict[tuple[int, int], Box] = {}
    rows: dict[int, int] = {}
    for link, column in zip(links, columns, strict=True):
        for endpoint, at in ((link.source, column), (link.target, column + 1)):
            if (id(endpoint), at) not in boxes:
                row = rows.get(at, 0)
                rows[at] = row + 1
                boxes[id(endpoint), at] = Box(endpoint, at, row)
    width = 40 + _WIDTH + _COLUMN * max((box.column for box in boxes.values()), default=0)
    height = 30 + _ROW * max(rows.values(), default=1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for link, column in zip(links, columns, strict=True):
        begin, end = boxes[id(link.source), column], boxes[id(link.target), column + 1]
        x1, y1 = begin.x + _WIDTH, begin.y + _HEIGHT // 2
        x2, y2 = end.x - 2, end.y + _HEIGHT // 2
        title = link.name if link.receiver is None else f"{link.name}: {_buffers(link)}"
        parts.append(
            f'<path d="M{x1},{y1} L{x2},{y2}" stroke="#555" fill="none" marker-end="url(#tip)">'
            f"<title>{escape(title)}</title></path>"
        )
    for box in boxes.values():
        kind = box.endpoint.kind
        corner = _HEIGHT // 2 if kind == "router" else 4
        policy = getattr(getattr(box.endpoint, "policy", None), "name", "")
        name = f"{box.endpoint}: {policy}" if policy else str(box.endpoint)
        parts.append(
            f'<rect x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="{corner}" '
            f'fill="{_FILL[kind]}" stroke="#555"/><text x="{box.x + _WIDTH // 2}" '
            f'y="{box.y + _HEIGHT // 2 + 4}" text-anchor="middle">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _columns(links: list[Link]) -> list[int]:
    """Return the column of each link's source; its target is in the next.

    It is the first column in which an earlier link ended at the source, else the first of all.
    """
    columns: list[int] = []
    column_of: dict[int, int] = {}
    for link in links:
        column = column_of.setdefault(id(link.source), 1 if link.source.kind == "router" else 0)
        if link.target.kind != "host":
            column_of.setdefault(id(link.target), column + 1)
        columns.append(column)
    return columns
