"""Values in code compiled by Numba for CPUs: what operators return, bit patterns, and tuples by
reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.errors import TypingError
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer, infer_getattr
from numba.extending import intrinsic, lower_builtin, lower_getattr_generic, register_model
from numba.np.numpy_support import as_dtype

from godwit.runtime.rebuilding import wrong_return

VALUE_DTYPES = tuple(
    np.dtype(name) for name in ("int32", "uint32", "int64", "uint64", "float32", "float64")
)
"""The dtypes that the value of a work-item can have."""


def _to_bits(typing_context: Any, value: Any) -> Any:
    """Return the bits of a 4- or 8-byte number as int64; those of 4 bytes are zero-extended."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], ir.IntType(value.bitwidth))
        return bits if value.bitwidth == 64 else builder.zext(bits, ir.IntType(64))

    return types.int64(value), generate


def _make_from_bits(dtype: np.dtype[Any]) -> Any:
    numba_type = from_dtype(dtype)

    def from_bits(typing_context: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = arguments[0]
            if numba_type.bitwidth < 64:
                word = builder.trunc(word, ir.IntType(numba_type.bitwidth))
            return builder.bitcast(word, context.get_value_type(numba_type))

        return numba_type(types.int64), generate

    from_bits.__name__ = from_bits.__qualname__ = f"from_bits_{dtype.name}"
    from_bits.__doc__ = f"Return the {dtype.name} whose bits are the low ones of an int64."
    return intrinsic(from_bits)


to_bits: Any = intrinsic(_to_bits)
FROM_BITS = {dtype: _make_from_bits(dtype) for dtype in VALUE_DTYPES}


def _returned(typing_context: Any, value: Any, who: Any, wanted: Any) -> Any:
    """Return the value; compilation fails unless it is one number or a boolean, and as wanted.

    The type is known only when the program is compiled, since Numba infers it.

    :param who: the operator, for the message
    :param wanted: the NumPy class that the value is converted to, ``np.bool_`` for a condition; None: any
    """
    plain = types.unliteral(value)
    is_number = isinstance(plain, types.Number | types.Boolean)
    is_number = is_number and not isinstance(plain, types.Complex)
    if isinstance(plain, types.Optional):
        what = f"{plain.type} or nothing (None)"
    else:
        what = "nothing (None)" if isinstance(plain, types.NoneType) else str(plain)
    dtype = None if isinstance(wanted, types.NoneType) else as_dtype(wanted.dtype)
    wrong = wrong_return(what, as_dtype(plain) if is_number else None, dtype)
    if wrong:
        raise TypingError(f"{getattr(who, 'literal_value', 'an operator')} {wrong}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], signature.args[0], plain)

    return plain(value, who, wanted), generate


def _fits(typing_context: Any, value: Any, low: Any, high: Any) -> Any:
    """Return True if an integer is within the limits of an integer type."""

    def fits_unsigned(value: Any, low: Any, high: Any) -> bool:
        return bool(np.uint64(value) <= np.uint64(high))

    def fits_signed(value: Any, low: Any, high: Any) -> bool:
        return bool(low <= np.int64(value) <= high)

    is_unsigned = isinstance(value, types.Integer) and not getattr(value, "signed", True)
    chosen = fits_unsigned if is_unsigned else fits_signed
    signature = types.boolean(value, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.compile_internal(builder, chosen, signature, arguments)

    return signature, generate


returned: Any = intrinsic(prefer_literal=True)(_returned)
fits: Any = intrinsic(_fits)


# Named tuples by reference. Numba passes a tuple of arrays to another function as some seven numbers an
# array, and reading one member loads all. A kernel that takes large tuples therefore begins by ``state =
# by_reference(state)``, which passes a pointer on; functions below it read members as before. Once they are
# inlined nothing is left of the pointer.


class _Reference(types.Type):
    """Pointer to a tuple that does not change."""

    def __init__(self, tuple_type: Any) -> None:
        self.tuple_type = tuple_type
        super().__init__(name=f"reference({tuple_type})")

    @property
    def key(self) -> Any:
        """The tuple type's key: its name lacks the class and the names of members."""
        return self.tuple_type.key


@register_model(_Reference)
class _ReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, reference: Any) -> None:
        pointee = manager[reference.tuple_type].get_value_type()
        super().__init__(manager, reference, pointee.as_pointer())  # type: ignore[no-untyped-call]


def _member_type(member: Any) -> Any:
    """Return the type under which a member is read: tuples are references, too."""
    return _Reference(member) if isinstance(member, types.BaseTuple) and len(member) else member


def _member(context: Any, builder: Any, reference: Any, pointer: Any, index: int) -> Any:
    address = cgutils.gep_inbounds(builder, pointer, 0, index)
    if isinstance(_member_type(reference.tuple_type[index]), _Reference):
        return address
    return builder.load(address)


@infer_getattr
class _Members(AttributeTemplate):
    key = _Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
        fields = getattr(reference.tuple_type, "fields", ())
        if name not in fields:
            return None
        return _member_type(reference.tuple_type[fields.index(name)])


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
            return _member_type(reference.tuple_type[index])(*arguments)
        return None


@lower_builtin("static_getitem", _Reference, types.IntegerLiteral)  # type: ignore[untyped-decorator]
def _load_item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return _member(context, builder, signature.args[0], *arguments)


def _by_reference(typing_context: Any, value: Any) -> Any:
    """Return a reference to a named tuple of Godwit's; any other value as it is.

    Users may do more with tuples of theirs than read members.
    """

    def refer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    def pass_on(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0]

    if getattr(value, "instance_class", type).__module__.startswith("godwit."):
        return _Reference(value)(value), refer
    return value(value), pass_on


by_reference: Any = intrinsic(_by_reference)
