"""What operators return, on cores: that it is one number of the kind that is wanted, and that it fits.

Both depend on the type that Numba has inferred, so they are decided when the program is compiled.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

from godwit.runtime.rebuilding import wrong_return


def _returned(typing_context: Any, value: Any, who: Any, wanted: Any) -> Any:
    """``returned(value, who, wanted)``: the value, if it is one number or a boolean.

    ``wanted`` is the class of NumPy's that it will be converted to, ``np.bool_`` of a condition; None: any.
    """
    plain = types.unliteral(value)
    is_one = isinstance(plain, types.Number | types.Boolean) and not isinstance(
        plain, types.Complex
    )
    if isinstance(plain, types.Optional):
        what = f"{plain.type} or nothing (None)"
    else:
        what = "nothing (None)" if isinstance(plain, types.NoneType) else str(plain)
    kind = None if isinstance(wanted, types.NoneType) else as_dtype(wanted.dtype)
    wrong = wrong_return(what, as_dtype(plain) if is_one else None, kind)
    if wrong:
        raise TypingError(f"{getattr(who, 'literal_value', 'an operator')} {wrong}")

    def give_back(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], signature.args[0], plain)

    return plain(value, who, wanted), give_back


def _fits(typing_context: Any, value: Any, low: Any, high: Any) -> Any:
    """``fits(value, low, high)``: whether an integer is within the limits of an integer type."""

    def fits_unsigned(value: Any, low: Any, high: Any) -> bool:
        return bool(np_uint64(value) <= np_uint64(high))

    def fits_signed(value: Any, low: Any, high: Any) -> bool:
        return bool(low <= np_int64(value) <= high)

    from numpy import int64 as np_int64
    from numpy import uint64 as np_uint64

    is_unsigned = isinstance(value, types.Integer) and not getattr(value, "signed", True)
    chosen = fits_unsigned if is_unsigned else fits_signed
    signature = types.boolean(value, types.int64, types.int64)

    def decide(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.compile_internal(builder, chosen, signature, arguments)

    return signature, decide


returned: Any = intrinsic(prefer_literal=True)(_returned)
fits: Any = intrinsic(_fits)
