"""What the source of a graph calls its vertices; Godwit itself counts them from 0.

Either ids are consecutive integers from a first one on, and nothing is stored; or every vertex has an
id of its own: an integer (int64 array), a text (Arrow array of large strings, some 8 bytes more than
its characters), or any hashable object of Python (object array). Ids are distinct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from godwit.dtypes import Array, as_array, as_count, as_integer, as_integers, frozen, shown
from godwit.errors import InputError

MAXIMAL_ID_BASE = 2**31 - 1
"""The largest id that the first of consecutive ones can have."""

Kind = Literal["consecutive", "integer", "text", "object"]


class VertexIds:
    """The ids of n vertices, both ways: vertex to id, id to vertex.

    :param count: n
    :param ids: the first of consecutive integers; or (n) distinct integers, texts or hashable objects
        (NumPy, Arrow or a sequence)
    :raises InputError: an id occurs twice, or there are not n
    """

    __slots__ = ("_base", "_count", "_held", "_index", "_kind")

    _kind: Kind
    _base: int
    _held: Any  # what is stored, or a function that makes it

    def __init__(self, count: int, ids: Any = 0) -> None:
        self._count = count
        self._base = 0
        self._held = None
        self._index: Any = None
        if isinstance(ids, VertexIds):
            self._kind, self._base, self._held = ids._kind, ids._base, ids._held
            self._index = ids._index
            given = len(ids)
        elif hasattr(ids, "__index__") and np.ndim(ids) == 0:
            self._kind = "consecutive"
            self._base = as_count(ids, "the first id", 0, MAXIMAL_ID_BASE)
            given = count
        else:
            self._kind, self._held = _stored(ids)
            _check_distinct(self._kind, self._held)
            given = len(self._held)
        if given != count:
            raise InputError(f"there must be an id for each of the {count} vertices, got {given}")

    @classmethod
    def trusted(cls, kind: Kind, stored: Any, count: int | None = None) -> VertexIds:
        """Ids that are known to be distinct, stored as the kind says.

        :param stored: :attr:`stored`, or a function that makes it when it is first needed
        :param count: n, which such a function does not tell
        """
        made = cls(0)
        made._kind, made._held = kind, stored
        made._count = len(stored) if count is None else count
        return made

    @property
    def _stored(self) -> Any:
        if callable(self._held):
            self._held = self._held()
        return self._held

    @property
    def kind(self) -> Kind:
        """``"consecutive"``, ``"integer"``, ``"text"`` or ``"object"``."""
        return self._kind

    @property
    def base(self) -> int:
        """The first of consecutive ids; 0 for others."""
        return self._base

    @property
    def nbytes(self) -> int:
        """Bytes that are stored."""
        return 0 if self._stored is None else int(self._stored.nbytes)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, vertex: int) -> Any:
        """The id of a vertex: an int, a str or another object.

        :raises IndexError: there is no such vertex
        """
        at = as_integer(vertex, "vertex")
        if not 0 <= at < self._count:
            raise IndexError(f"vertex must be in [0, {self._count}), got {shown(vertex)}")
        if self._stored is None:
            return at + self._base
        value = self._stored[at]
        if self._kind == "text":
            return value.as_py()
        return int(value) if self._kind == "integer" else value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.of(np.arange(self._count)))

    def __contains__(self, id: Any) -> bool:
        return self._find(id) is not None

    def of(self, vertices: Any) -> list[Any]:
        """The ids of several vertices, as Python has them.

        :raises IndexError: one of them is none
        """
        several = as_integers(vertices, "vertices")
        wrong = (several < 0) | (several >= self._count)
        if wrong.any():
            first = int(several[np.argmax(wrong)])
            raise IndexError(f"vertices must be in [0, {self._count}), got {first}")
        if self._stored is None:
            return (several.astype(np.int64) + self._base).tolist()  # type: ignore[no-any-return]
        if self._kind == "text":
            return self._stored.take(_arrow(several)).to_pylist()  # type: ignore[no-any-return]
        return self._stored[several].tolist()  # type: ignore[no-any-return]

    @property
    def stored(self) -> Any:
        """(n) ids: int64, a large-string array of Arrow, or an object array."""
        if self._stored is None:
            return np.arange(self._base, self._base + self._count, dtype=np.int64)
        return self._stored

    def to_arrow(self) -> Any:
        """(n) ids as an Arrow array; objects as the text that ``str`` makes of them.

        :raises InputError: two objects have one text
        """
        if self._kind == "text":
            return self._stored
        if self._kind == "object":
            import pyarrow as pa

            texts = [str(one) for one in self._stored]
            if len(set(texts)) < len(texts):
                again = Counter(texts).most_common(1)[0][0]
                raise InputError(
                    f"several ids are objects whose text is {shown(again)}: a table cannot tell them "
                    "apart; drop them with graph.with_ids(0)"
                )
            return pa.array(texts, pa.large_string())
        return _arrow(self.stored)

    def vertex(self, id: Any, what: str = "vertex") -> int:
        """The vertex that has the id.

        :param what: what it is called in the message
        :raises InputError: there is none
        """
        found = self._find(id)
        if found is None:
            raise InputError(f"{what} {shown(id)} is not in the graph, which has {self.described}")
        return found

    def vertices(self, ids: Sequence[Any] | Array, what: str = "vertex") -> Array:
        """int64 (k): the vertices that have the ids. :raises InputError: one of them has none."""
        if self._kind == "text" and len(ids) > 1:
            import pyarrow as pa
            import pyarrow.compute as pc

            listed = [_as_text(one) for one in ids]
            found = pc.index_in(pa.array(listed, pa.large_string()), value_set=self._stored)
            if found.null_count == 0:
                return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
        return np.array([self.vertex(one, what) for one in ids], np.int64)

    def not_by_id(self, id: Any, what: str) -> str:
        """What to say of an id that was given where a vertex is wanted, which is a number.

        :param what: what the vertex is called in the message
        """
        if self._kind == "consecutive" and self._base == 0:
            advice = "vertices are numbers here: the graph has no ids"
        elif self._find(id) is None:
            advice = f"no vertex has that id; the graph has {self.described}"
        else:
            advice = f"graph.ids.vertex({shown(id)}) is the number of the vertex with that id"
        return f"{what} must be an integer, got {shown(id)}; {advice}"

    @property
    def described(self) -> str:
        """What ids there are, in a few words."""
        if self._count == 0:
            return "no vertices"
        first, last = self[0], self[self._count - 1]
        if self._kind == "consecutive":
            return f"ids {first} to {last}"
        return f"{self._count:,} {self._kind} ids such as {shown(first)} and {shown(last)}"

    def take(self, vertices: Array) -> VertexIds:
        """The ids of some vertices, which become 0, 1, 2, … in the order given."""
        if self._kind == "text":
            return VertexIds.trusted("text", self._stored.take(_arrow(vertices)))
        if self._kind == "object":
            return VertexIds.trusted("object", self._stored[vertices])
        return VertexIds.trusted("integer", frozen(self.stored[vertices], np.int64))

    def _find(self, id: Any) -> int | None:
        if self._kind == "text":
            return self._find_text(id)
        if self._kind == "object":
            if self._index is None:
                self._index = {one: vertex for vertex, one in enumerate(self._stored)}
            try:
                found: int | None = self._index.get(id)
            except TypeError:  # not hashable
                return None
            return found
        if isinstance(id, bool) or not hasattr(id, "__index__") or np.ndim(id) != 0:
            return None
        number = int(id)
        if self._kind == "consecutive":
            vertex = number - self._base
            return vertex if 0 <= vertex < self._count else None
        if not -(2**63) <= number < 2**63:
            return None
        if self._index is None:
            order = np.argsort(self._stored, kind="stable")
            self._index = (order, self._stored[order])
        order, ascending = self._index
        at = int(np.searchsorted(ascending, number))
        return int(order[at]) if at < self._count and ascending[at] == number else None

    def _find_text(self, id: Any) -> int | None:
        import pyarrow as pa
        import pyarrow.compute as pc

        text = _as_text(id)
        if text is None:
            return None
        at = int(pc.index(self._stored, pa.scalar(text, pa.large_string())).as_py())
        return None if at < 0 else at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VertexIds):
            return NotImplemented
        if (self._kind, self._base, self._count) != (other._kind, other._base, other._count):
            return False
        if self._stored is None:
            return True
        if self._kind == "text":
            return bool(self._stored.equals(other._stored))
        return bool(np.array_equal(self._stored, other._stored))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._stored is None:
            return VertexIds, (self._count, self._base)
        return VertexIds.trusted, (self._kind, self._stored)

    def __repr__(self) -> str:
        return f"<VertexIds: {self.described}>"


def _as_text(id: Any) -> str | None:
    """A text that may be an id; integers are looked for by their digits, as files have them."""
    if isinstance(id, int) and not isinstance(id, bool):
        return str(id)
    return id if isinstance(id, str) and _is_unicode(id) else None


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair in it, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stored(ids: Any) -> tuple[Kind, Any]:
    """Ids as they are kept, from whatever array or sequence there is."""
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
    if types <= {int} and all(-(2**63) <= one < 2**63 for one in array):
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
    for i, one in enumerate(listed):  # NumPy would unpack tuples
        array[i] = one.item() if isinstance(one, np.generic) else one
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

    values = stored if kind == "text" else _arrow(stored)
    counts = pc.value_counts(values)
    if len(counts) < len(stored):
        again = next(one["values"].as_py() for one in counts if one["counts"].as_py() > 1)
        raise InputError(f"ids must be distinct, and {shown(again)} occurs twice")


def _arrow(array: Array) -> Any:
    import pyarrow as pa

    return pa.array(array)
