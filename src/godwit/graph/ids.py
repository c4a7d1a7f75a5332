"""Ids of vertices: a graph's own ids, or the positions 0 to n - 1.

If a graph has ids of its own, every vertex argument, every dictionary and every table of results uses
them; otherwise vertices are 0 to n - 1. Arrays are ordered by position in both cases.

A graph's own ids are distinct integers (an int64 array, or a range, of which nothing is stored), texts (an
Arrow array of large strings), or hashable Python objects (an object array). A graph without ids may come
from a file that does not count from 0, as Matrix Market counts from 1: :attr:`VertexIds.base`, which files
and the command line use, and Python does not.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from godwit.arrays import arrow_array, arrow_text, host_array
from godwit.dtypes import (
    Array,
    as_array,
    as_count,
    as_integer,
    as_integers,
    frozen,
)
from godwit.errors import InputError, shown

MAXIMAL_ID_BASE = 2**31 - 1
"""The largest id of the first of consecutive vertices in a file."""

_MOST_COMPARED = 10_000

Kind = Literal["consecutive", "integer", "text", "object"]


class VertexIds:
    """A mapping between the ids of n vertices and their positions, both ways.

    :param count: n
    :param ids: 0 for positions; the first of consecutive integers; or (n) distinct integers, texts or
        hashable objects (NumPy, Arrow or a sequence). Integers 0 to n - 1 in this order are positions
    :raises InputError: an id occurs twice, or their number is not n
    """

    __slots__ = ("_base", "_count", "_first", "_held", "_index", "_kind")

    _kind: Kind
    _count: int
    _first: int  # of integers that are not stored
    _base: int
    _held: Any  # the stored ids, or a function that returns them; None for a range

    def __init__(self, count: int, ids: Any = 0) -> None:
        self._count = count
        self._base = 0
        self._first = 0
        self._held = None
        self._index: Any = None
        if isinstance(ids, VertexIds):
            self._kind, self._base, self._first = ids._kind, ids._base, ids._first
            self._held, self._index = ids._held, ids._index
            given = len(ids)
        elif hasattr(ids, "__index__") and np.ndim(ids) == 0:
            self._first = as_count(ids, "the first id", 0, MAXIMAL_ID_BASE)
            self._kind = "integer" if self._first else "consecutive"
            given = count
        else:
            self._kind, self._held = _stored(ids)
            given = len(self._held)
            if self._kind == "integer" and _is_range(self._held):
                self._first = int(self._held[0]) if given else 0
                self._kind = "integer" if self._first else "consecutive"
                self._held = None
            else:
                _check_distinct(self._kind, self._held)
        if given != count:
            raise InputError(f"there must be an id for each of the {count} vertices, got {given}")

    @classmethod
    def trusted(
        cls, kind: Kind, stored: Any, count: int | None = None, *, base: int = 0
    ) -> VertexIds:
        """Return ids that are known to be distinct, stored as the kind says.

        :param stored: :attr:`stored`, or a function that returns it, called on first use
        :param count: n, needed beside a function
        :param base: the number that files add to integers
        """
        made = cls(0)
        made._kind, made._held, made._base = kind, stored, base
        made._count = len(stored) if count is None else count
        return made

    @classmethod
    def counted(cls, count: int, base: int) -> VertexIds:
        """Return positions as ids; the first vertex is ``base`` in a file."""
        made = cls(count)
        made._base = base
        return made

    @classmethod
    def ascending(cls, values: Array) -> VertexIds:
        """Return integers that are known to ascend as ids; nothing is stored of a range."""
        if not _is_range(values):
            return cls.trusted("integer", frozen(values, np.int64))
        made = cls(len(values))
        made._first = int(values[0]) if len(values) else 0
        made._kind = "integer" if made._first else "consecutive"
        return made

    @property
    def _stored(self) -> Any:
        if callable(self._held):
            self._held = self._held()
        return self._held

    @property
    def kind(self) -> Kind:
        """``"consecutive"`` where ids are positions; else ``"integer"``, ``"text"`` or ``"object"``."""
        return self._kind

    @property
    def own(self) -> bool:
        """True if the graph has ids of its own; False if its vertices are 0 to n - 1."""
        return self._kind != "consecutive"

    @property
    def base(self) -> int:
        """The number of vertex 0 in files, for a graph without ids of its own."""
        return self._base

    @property
    def in_file(self) -> VertexIds:
        """The ids that files and the command line use: the same, or positions counted from :attr:`base`."""
        if self._base == 0:
            return self
        if self._held is None:
            made = VertexIds(self._count)
            made._kind, made._first = "integer", self._first + self._base
            return made
        return VertexIds.trusted("integer", frozen(self._stored + self._base))

    @property
    def is_range(self) -> bool:
        """True if ids are consecutive integers in ascending order, of which nothing is stored."""
        return self._held is None

    @property
    def nbytes(self) -> int:
        """Bytes of the stored ids."""
        return 0 if self._stored is None else int(self._stored.nbytes)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> Any:
        """Return the id of the vertex at a position: an int, a str or another object.

        :raises IndexError: there is no such vertex
        """
        if getattr(position, "ndim", 0) > 0:
            raise InputError(
                f"position must be an integer, got {shown(position)}; graph.ids.of takes several"
            )
        at = as_integer(position, "position")
        if not 0 <= at < self._count:
            raise IndexError(f"position must be in [0, {self._count}), got {shown(position)}")
        if self._stored is None:
            return at + self._first
        value = self._stored[at]
        if self._kind == "text":
            return value.as_py()
        return int(value) if self._kind == "integer" else value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.of(np.arange(self._count)))

    def __contains__(self, id: Any) -> bool:
        return self._find(id) is not None

    def of(self, positions: Any) -> list[Any]:
        """Return the ids at several positions, as Python objects.

        >>> ids = VertexIds(3, ["Bonn", "Ulm", "Jena"])
        >>> ids.of([2, 0])
        ['Jena', 'Bonn']
        >>> ids.of(np.array([True, False, True]))
        ['Bonn', 'Jena']

        :param positions: integers; or (n) booleans, True for each vertex whose id is wanted
        :raises IndexError: a position is out of range
        """
        if _is_mask(positions):
            if len(positions) != self._count:
                raise InputError(
                    f"booleans must be one for each of {self._count} vertices, got {len(positions)}"
                )
            positions = np.flatnonzero(host_array(positions))
        several = as_integers(positions, "positions")
        wrong = (several < 0) | (several >= self._count)
        if wrong.any():
            first = int(several[np.argmax(wrong)])
            raise IndexError(f"positions must be in [0, {self._count}), got {first}")
        if self._stored is None:
            return (several.astype(np.int64) + self._first).tolist()  # type: ignore[no-any-return]
        if self._kind == "text":
            return self._stored.take(arrow_array(several)).to_pylist()  # type: ignore[no-any-return]
        return self._stored[several].tolist()  # type: ignore[no-any-return]

    @property
    def stored(self) -> Any:
        """(n) ids in the order of positions: int64, a large-string array of Arrow, or an object array."""
        if self._stored is None:
            return np.arange(self._first, self._first + self._count, dtype=np.int64)
        return self._stored

    def to_arrow(self) -> Any:
        """Return (n) ids as an Arrow array; objects become texts by ``str``.

        :raises InputError: two objects become the same text
        """
        if self._kind == "text":
            return self._stored
        if self._kind == "object":
            import pyarrow as pa

            texts = [str(id) for id in self._stored]
            if len(set(texts)) < len(texts):
                again = Counter(texts).most_common(1)[0][0]
                raise InputError(
                    f"several ids are objects whose text is {shown(again)}: a table cannot tell them "
                    "apart; drop them with graph.with_ids(0)"
                )
            return pa.array(texts, pa.large_string())
        return arrow_array(self.stored)

    def position(self, id: Any, what: str = "vertex") -> int:
        """Return the position of the vertex with an id.

        :param what: the name of the argument in messages
        :raises InputError: there is no such vertex; says whether the graph has ids of its own
        """
        position = self._find(id)
        if position is None:
            raise InputError(self._no_vertex(id, what))
        return position

    def positions(self, ids: Any, what: str = "vertex") -> Array:
        """Return the positions of several ids, in their order: int64 (k), the array itself if it has them.

        :param ids: an array, a list, a set or a pandas Series of ids
        :raises InputError: it is none of these, or no vertex has an id
        """
        return self._positions_of(ids, what).astype(np.int64, copy=False)

    def _found(self, ids: Sequence[Any]) -> tuple[list[int], Array]:
        """Return which of several ids vertices have, by their index, and the positions of these."""
        if self._kind == "text":
            places = self._places_of_texts(ids)
        else:
            listed = (self._find(id) for id in ids)
            places = np.array([-1 if place is None else place for place in listed], np.int64)
        indices = np.flatnonzero(places >= 0)
        return indices.tolist(), places[indices]

    def _places_of_texts(self, ids: Sequence[Any]) -> Array:
        """Return the positions of several ids, which are texts: int64, -1 for those that no vertex has."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pa.array(map(_as_text, ids), pa.large_string())
        indices = pc.index_in(texts, value_set=self._stored)
        return np.asarray(indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)

    def _positions_of(self, ids: Any, what: str) -> Array:
        """:meth:`positions`, of an integer dtype."""
        try:
            several = self._listed(ids)
        except (TypeError, ValueError) as error:
            raise InputError(f"{what} must be an array: {error}") from None
        if isinstance(several, np.ndarray):
            if several.ndim != 1:
                raise InputError(f"{what} must have one dimension, got shape {several.shape}")
            if several.size == 0:
                return np.empty(0, np.int64)
            if self._kind in ("consecutive", "integer") and several.dtype.kind in "iu":
                return self._positions_of_integers(several, what)
            several = several.tolist()
        if self._kind == "text" and len(several) > 1:
            places = self._places_of_texts(several)
            if places.min() < 0:
                raise InputError(self._no_vertex(several[int(np.argmin(places))], what))
            return places
        return np.array([self.position(id, what) for id in several], np.int64)

    def one_or_several(self, given: Any, what: str, *, or_none: bool = False) -> Array:
        """Return the positions of one id or several, ascending and without repetition: int64 (k).

        Arguments and errors as of :meth:`in_order`.
        """
        if type(given) is int:
            return np.array([self.position(given, what)], np.int64)
        positions = self.in_order(given, what, or_none=or_none)
        return positions if len(positions) < 2 else np.unique(positions)

    def in_order(self, given: Any, what: str, *, or_none: bool = False) -> Array:
        """Return the positions of one id or several, in the order given: int64 (k).

        :param given: an id, or an argument of :meth:`positions`
        :param or_none: True to allow an empty list
        :raises InputError: it is neither, it is empty, or no vertex has an id
        """
        if self._is_one(given):
            return np.array([self.position(given, what)], np.int64)
        listed: Any = None
        if not isinstance(given, Mapping):
            with suppress(TypeError, ValueError):  # lists of several lengths
                listed = self._listed(given)
        fits = isinstance(listed, list) or (
            isinstance(listed, np.ndarray)
            and listed.ndim == 1
            and (listed.size == 0 or listed.dtype.kind in "iuUOT")
        )
        if not fits or not (or_none or len(listed)):
            kind = "list" if or_none else "non-empty list"
            message = f"{what} must be a vertex or a {kind} of vertices, got {shown(given)}"
            if _is_mask(given):
                message += "; graph.ids.of makes a list of vertices of such booleans"
            raise InputError(message)
        return self.positions(listed, what)

    def _listed(self, ids: Any) -> list[Any] | Array:
        """Return several ids as an array if they are integers, or given as an array; else as a list.

        :raises TypeError: ``ids`` is no collection
        :raises ValueError: NumPy makes no array of it
        """
        if isinstance(ids, Set):
            ids = list(ids)
        if not isinstance(ids, list | tuple | range):
            return host_array(ids)
        if self._kind in ("text", "object"):
            return list(ids)  # NumPy would convert integers beside texts to texts
        array = host_array(ids)
        return list(ids) if array.dtype.kind in "UO" and array.ndim == 1 else array

    def by_position(self, values: Any, what: str, *, complete_is_array: bool = True) -> Any:
        """Return values by id (a mapping or a pandas Series) as a mapping by position; others unchanged.

        :param complete_is_array: a Series with a value for each vertex becomes an array by position
        :raises InputError: a key is the id of no vertex, or two keys are the id of one
        """
        if isinstance(values, Mapping):
            keys = list(values)
            positions = self.positions(keys, f"a vertex of {what}")
            self._require_distinct(positions, keys, f"the vertices of {what}")
            return dict(zip(positions.tolist(), values.values(), strict=True))
        if not hasattr(values, "iloc") or getattr(values, "ndim", 0) != 1:
            return values
        if hasattr(values, "to_pandas"):  # a Series of cuDF, which cannot be iterated over
            values = values.to_pandas()
        labels = list(values.index) if self._kind == "object" else values.index
        positions = (
            self.positions(labels, f"each label of {what}") if len(values) else np.empty(0, int)
        )
        self._require_distinct(positions, labels, f"the labels of {what}")
        if complete_is_array and len(values) == self._count:
            array = host_array(values)
            if array.dtype != object:
                ordered = np.empty_like(array)
                ordered[positions] = array
                return ordered
        return dict(zip(positions.tolist(), values.tolist(), strict=True))

    def ordered(self, values: Any, what: str) -> Any:
        """Return values by id, as of :meth:`by_position`, in the order of positions; others unchanged.

        :raises InputError: as :meth:`by_position`, or a vertex has no value
        """
        found = self.by_position(values, what)
        if not isinstance(found, Mapping):
            return found
        if len(found) < self._count:
            absent = next(v for v in range(self._count) if v not in found)
            raise InputError(f"{what} must be of all vertices, and {shown(self[absent])} has none")
        return [found[position] for position in range(self._count)]

    @staticmethod
    def _require_distinct(positions: Any, ids: Any, what: str) -> None:
        once, counts = np.unique(np.asarray(positions), return_counts=True)
        if len(once) < len(positions):
            again = int(np.flatnonzero(np.asarray(positions) == once[np.argmax(counts > 1)])[1])
            raise InputError(f"{what} must be distinct, and {shown(ids[again])} occurs twice")

    @property
    def described(self) -> str:
        """The ids in a few words, for messages."""
        if self._count == 0:
            return "no vertices"
        first, last = shown(self[0]), shown(self[self._count - 1])
        if self._kind == "consecutive":
            return f"no ids of its own: its vertices are {first} to {last}"
        if self._held is None:
            return f"ids of its own, {first} to {last}"
        return f"{self._count:,} {self._kind} ids of its own, such as {first} and {last}"

    def take(self, vertices: Array) -> VertexIds:
        """Return the ids of some vertices, in the order given; positions become ids."""
        if self._kind == "text":
            return VertexIds.trusted("text", self._stored.take(arrow_array(vertices)))
        if self._kind == "object":
            return VertexIds.trusted("object", self._stored[vertices])
        if self._held is not None:
            stored = frozen(self._stored[vertices], np.int64)
            return VertexIds.trusted("integer", stored, base=self._base)
        made = VertexIds.ascending(np.asarray(vertices, np.int64) + self._first)
        made._base = self._base
        return made

    def extended(self, count: int) -> VertexIds:
        """Return the ids of ``count`` vertices that continue a range (:attr:`is_range`)."""
        if not self.own:
            return VertexIds.counted(count, self._base)
        return VertexIds(count, self._first)

    def similar(self, id: Any) -> str:
        """Return ``"; did you mean ...?"`` with the text id that resembles one that is not there.

        Of many ids, only those are compared that differ in capitals alone. The text is empty if none does.
        """
        if self._kind != "text" or not isinstance(id, str) or not _is_unicode(id):
            return ""
        import pyarrow.compute as pc

        at = int(pc.index(pc.utf8_lower(self._stored), id.lower()).as_py())
        if at < 0 and self._count <= _MOST_COMPARED:
            texts = self._stored.to_pylist()
            at = next((texts.index(text) for text in get_close_matches(id, texts, 1, 0.7)), -1)
        return "" if at < 0 else f"; did you mean {shown(self[at])}?"

    def _no_vertex(self, id: Any, what: str) -> str:
        """Return the message that no vertex has an id, with the kind of ids that the graph has."""
        if self._kind != "consecutive":
            message = f"{what} {shown(id)} is not in the graph, which has {self.described}"
            message += self.similar(id)
            if self._is_integer(id) and 0 <= int(id) < self._count:
                message += (
                    f"; position {int(id)} has the id {shown(self[int(id)])} (graph.ids[{int(id)}])"
                )
            return message
        if not self._is_integer(id):
            return f"{what} must be an integer, got {shown(id)}; the graph has {self.described}"
        if self._count == 0:
            return f"{what} is {shown(id)}, and the graph has no vertices"
        return f"{what} must be in [0, {self._count}), got {shown(id)}; the graph has no ids of its own"

    @staticmethod
    def _is_integer(id: Any) -> bool:
        if isinstance(id, bool | np.bool_) or getattr(id, "ndim", 0) != 0:
            return False
        try:
            operator.index(id)
        except TypeError:
            return False
        return True

    def _is_one(self, given: Any) -> bool:
        """Return True if an argument is one vertex: a text, an integer, or an object that is an id."""
        if isinstance(given, str) or self._is_integer(given):
            return True
        return self._kind == "object" and self._find(given) is not None

    def _find(self, id: Any) -> int | None:
        if type(id) is int and self._held is None and self._kind == "consecutive":
            vertex = id - self._first
            return vertex if 0 <= vertex < self._count else None
        if self._kind == "text":
            return self._find_text(id)
        if self._kind == "object":
            if self._index is None:
                self._index = {id: vertex for vertex, id in enumerate(self._stored)}
            try:
                position: int | None = self._index.get(id)
            except TypeError:  # not hashable
                return None
            return position
        if not self._is_integer(id):
            return None
        number = int(id)
        if self._held is None:
            vertex = number - self._first
            return vertex if 0 <= vertex < self._count else None
        if not -(2**63) <= number < 2**63:
            return None
        order, ascending = self._ascending
        at = int(np.searchsorted(ascending, number))
        if at == self._count or ascending[at] != number:
            return None
        return at if order is None else int(order[at])

    @property
    def _ascending(self) -> tuple[Array | None, Array]:
        """The sorting permutation of stored integers (None if they ascend), and the sorted integers."""
        if self._index is None:
            stored = self._stored
            if bool((stored[1:] > stored[:-1]).all()):
                self._index = (None, stored)
            else:
                order = np.argsort(stored, kind="stable")
                self._index = (order, stored[order])
        index: tuple[Array | None, Array] = self._index
        return index

    def _positions_of_integers(self, ids: Array, what: str) -> Array:
        """:meth:`positions` of an array of integers, where ids are integers, too; of an integer dtype."""
        positions: Array
        end = self._first + self._count if self._held is None else 0
        if self._held is None and int(ids.min()) >= self._first and int(ids.max()) < end:
            return ids if self._first == 0 else ids.astype(np.int64) - self._first
        if self._count == 0:
            wrong, positions = np.ones(len(ids), np.bool_), np.zeros(len(ids), np.int64)
        elif ids.dtype == np.uint64 and ids.size and int(ids.max()) >= 2**63:
            wrong = ids >= 2**63
            positions = np.zeros(len(ids), np.int64)
        elif self._held is None:
            wide = ids.astype(np.int64)
            wrong = (wide < self._first) | (wide >= self._first + self._count)
            positions = wide - self._first
        else:
            wide = ids.astype(np.int64)
            order, ascending = self._ascending
            positions = np.searchsorted(ascending, wide)
            wrong = ascending[np.minimum(positions, self._count - 1)] != wide
            if order is not None:
                positions = order[np.where(wrong, 0, positions)]
        if wrong.any():
            raise InputError(self._no_vertex(ids[int(np.argmax(wrong))].item(), what))
        return positions

    def _find_text(self, id: Any) -> int | None:
        import pyarrow.compute as pc

        text = _as_text(id)
        if text is None:
            return None
        at = int(pc.index(self._stored, arrow_text(text)).as_py())
        return None if at < 0 else at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VertexIds):
            return NotImplemented
        if (self._kind, self._base, self._count) != (other._kind, other._base, other._count):
            return False
        if self._kind in ("consecutive", "integer"):
            if self._held is None and other._held is None:
                return self._first == other._first
            return bool(np.array_equal(self.stored, other.stored))
        if self._kind == "text":
            return bool(self._stored.equals(other._stored))
        return bool(np.array_equal(self._stored, other._stored))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._kind, self._count, self._first, self._base, self._stored)

    def __repr__(self) -> str:
        return f"<VertexIds: {self.described}>"


def _is_mask(given: Any) -> bool:
    """Return True if an argument is an array of booleans, of one dimension."""
    return str(getattr(given, "dtype", "")) == "bool" and getattr(given, "ndim", 0) == 1


def positions_as(dtype: Any, ids: VertexIds, several: Any, what: str) -> Array:
    """Return positions in a dtype, which has room for all; the array itself if it has them."""
    return ids._positions_of(several, what).astype(dtype, copy=False)


def _restored(kind: Kind, count: int, first: int, base: int, stored: Any) -> VertexIds:
    made = VertexIds.trusted(kind, stored, count, base=base)
    made._first = first
    return made


def _is_range(values: Array) -> bool:
    """Return True if integers are consecutive and ascend, from at most :data:`MAXIMAL_ID_BASE` on."""
    count = len(values)
    if count == 0:
        return True
    if not 0 <= values[0] <= MAXIMAL_ID_BASE or int(values[-1]) - int(values[0]) != count - 1:
        return False
    return bool((values[1:] > values[:-1]).all())


def _as_text(id: Any) -> str | None:
    """Return the text that an id is looked up by: integers by their digits, as in files."""
    if isinstance(id, int) and not isinstance(id, bool):
        return str(id)
    return id if isinstance(id, str) and _is_unicode(id) else None


def _is_unicode(text: str) -> bool:
    """Return True if a text can be encoded: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stored(ids: Any) -> tuple[Kind, Any]:
    """Return the kind of an array or sequence of ids, and the ids as they are stored."""
    if hasattr(ids, "__arrow_array__") or type(ids).__module__.startswith("pyarrow"):
        return _stored_arrow(ids)
    protocols = ("__array__", "__dlpack__", "__cuda_array_interface__")
    is_array = any(hasattr(ids, protocol) for protocol in protocols)
    array = as_array(ids, "ids") if is_array else _array_of_objects(ids)
    if array.ndim != 1:
        raise InputError(f"ids must have one dimension, got shape {array.shape}")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        return "object", frozen(array.astype(object))
    if array.dtype.kind in "iu":
        return "integer", frozen(array, np.int64)
    if array.dtype.kind in "UT":
        array = array.astype(object)
    if array.dtype != object:
        raise InputError(f"ids must be integers, texts or objects, got {array.dtype}")
    types = set(map(type, array))
    if type(None) in types:
        raise InputError("ids must not be None")
    if types == {str} and all(map(_is_unicode, array)):
        import pyarrow as pa

        return "text", pa.array(array, pa.large_string())
    if types <= {int} and all(-(2**63) <= number < 2**63 for number in array):
        return "integer", frozen(array.astype(np.int64))
    return "object", frozen(array)


def _array_of_objects(ids: Any) -> Array:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InputError(
            "ids must be the first of consecutive integers, or an id for each vertex, "
            f"got {shown(ids)}"
        )
    listed = list(ids)
    array = np.empty(len(listed), object)
    for i, id in enumerate(listed):  # NumPy would unpack tuples
        array[i] = id.item() if isinstance(id, np.generic) else id
    return array


def _stored_arrow(ids: Any) -> tuple[Kind, Any]:
    import pyarrow as pa

    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    try:
        array = ids if isinstance(ids, pa.Array) else pa.array(ids)
        if array.null_count:
            raise InputError(f"ids must not be null, and {array.null_count} are")
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_integer(array.type):
            return _stored(array.to_numpy(zero_copy_only=False))
        if pa.types.is_floating(array.type):
            raise InputError(f"ids must be integers, texts or objects, got {array.type}")
        return "text", array.cast(pa.large_string())
    except pa.ArrowException as error:
        raise InputError(f"ids must be integers or texts: {error}") from None


def _check_distinct(kind: Kind, stored: Any) -> None:
    if kind == "object":
        try:
            twice = len(set(stored)) < len(stored)
        except TypeError as error:
            raise InputError(f"ids must be hashable: {error}") from None
        if twice:
            again = Counter(stored).most_common(1)[0][0]
            raise InputError(f"ids must be distinct, and {shown(again)} occurs twice")
        return
    import pyarrow.compute as pc

    values = stored if kind == "text" else arrow_array(stored)
    counts = pc.value_counts(values)
    if len(counts) < len(stored):
        again = next(entry["values"].as_py() for entry in counts if entry["counts"].as_py() > 1)
        raise InputError(f"ids must be distinct, and {shown(again)} occurs twice")


def require_no_objects(ids: VertexIds, format: str) -> None:
    """Refuse to write ids that are Python objects, which files have no way to hold.

    :param format: as the message begins
    :raises InputError: they are; the message says what works
    """
    if ids.kind == "object":
        raise InputError(
            f"{format} cannot hold ids that are Python objects: graph.with_ids(list(map(str, graph.ids))) "
            "makes texts of them, graph.with_ids(0) drops them (command line: --drop ids)"
        )


Vertex = Any
"""A vertex as an argument: its id (:attr:`Graph.ids`), an int in [0, n) where the graph has no ids."""


Sources = Any
"""A vertex as an argument, or several: a list, a set, an array or a pandas Series."""
