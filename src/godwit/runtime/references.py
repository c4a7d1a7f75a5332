"""Named tuples by reference, in code compiled by Numba: a pointer is handed around, not all members.

Numba passes a tuple of arrays to another function as some seven numbers an array, and whoever reads one
member loads all. A kernel that takes large tuples therefore begins by ``state = by_reference(state)``;
functions below it read members as ever. Once they are inlined nothing is left of the pointer.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer,
    infer_getattr,
)
from numba.extending import intrinsic, lower_builtin, lower_getattr_generic, register_model


class _Reference(types.Type):
    """A pointer to a tuple that nobody changes."""

    def __init__(self, tuple_type: Any) -> None:
        self.tuple_type = tuple_type
        super().__init__(name=f"reference({tuple_type})")

    @property
    def key(self) -> Any:
        """The tuple's class and the names of its members are not in its name."""
        return self.tuple_type.key


@register_model(_Reference)
class _ReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, reference: Any) -> None:
        pointee = manager[reference.tuple_type].get_value_type()
        super().__init__(manager, reference, pointee.as_pointer())  # type: ignore[no-untyped-call]


def _seen(member: Any) -> Any:
    """The type of a member: a tuple, too, by reference."""
    return _Reference(member) if isinstance(member, types.BaseTuple) and len(member) else member


def _member(context: Any, builder: Any, reference: Any, pointer: Any, index: int) -> Any:
    place = cgutils.gep_inbounds(builder, pointer, 0, index)
    if isinstance(_seen(reference.tuple_type[index]), _Reference):
        return place
    return builder.load(place)


@infer_getattr
class _Members(AttributeTemplate):
    key = _Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
        fields = getattr(reference.tuple_type, "fields", ())
        return _seen(reference.tuple_type[fields.index(name)]) if name in fields else None


@lower_getattr_generic(_Reference)  # type: ignore[untyped-decorator]
def _load_member(context: Any, builder: Any, reference: Any, pointer: Any, name: str) -> Any:
    index = reference.tuple_type.fields.index(name)
    return _member(context, builder, reference, pointer, index)


@infer
class _Items(AbstractTemplate):
    key = "static_getitem"

    def generic(self, arguments: Any, keywords: Any) -> Any:
        reference, index = arguments
        if isinstance(reference, _Reference) and isinstance(index, int):
            return _seen(reference.tuple_type[index])(*arguments)
        return None


@lower_builtin("static_getitem", _Reference, types.IntegerLiteral)  # type: ignore[untyped-decorator]
def _load_item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return _member(context, builder, signature.args[0], *arguments)


def _by_reference(typing_context: Any, value: Any) -> Any:
    """``by_reference(value)``: a named tuple of Godwit's by reference; all else, of which users may do
    more than to read members, as it is.
    """

    def refer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    def pass_on(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0]

    if getattr(value, "instance_class", type).__module__.startswith("godwit."):
        return _Reference(value)(value), refer
    return value(value), pass_on


by_reference: Any = intrinsic(_by_reference)
