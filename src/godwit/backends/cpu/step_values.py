"""What a step program's operators return, on cores: that it is one number, and that it fits.

Both depend on the type that Numba has inferred, so they are decided when the program is compiled.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from godwit.parallel.rebuilding import RETURN_RULE


def _returned(typing_context: Any, value: Any, who: Any) -> Any:
    """``returned(value, who)``: the value, if it is one number or a boolean."""
    plain = types.unliteral(value)
    if isinstance(plain, types.Number | types.Boolean) and not isinstance(plain, types.Complex):

        def give_back(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.cast(builder, arguments[0], signature.args[0], plain)

        return plain(value, who), give_back
    if isinstance(plain, types.Optional):
        what = f"{plain.type} or nothing (None)"
    else:
        what = "nothing (None)" if isinstance(plain, types.NoneType) else str(plain)
    label = getattr(who, "literal_value", "an operator")
    raise TypingError(f"{label} returns {what}; {RETURN_RULE}")


def _fits(typing_context: Any, value: Any, low: Any, high: Any) -> Any:
    """``fits(value, low, high)``: whether it is within the limits of an integer type; NaN is not.

    Floating-point numbers may not have ``high`` among them, but have ``high + 1``, a power of two.
    """

    def fits_float(value: Any, low: Any, high: Any) -> bool:
        return bool(float(low) <= value < 2.0 * float(high // 2 + 1))

    def fits_unsigned(value: Any, low: Any, high: Any) -> bool:
        return bool(np_uint64(value) <= np_uint64(high))

    def fits_signed(value: Any, low: Any, high: Any) -> bool:
        return bool(low <= np_int64(value) <= high)

    from numpy import int64 as np_int64
    from numpy import uint64 as np_uint64

    chosen = fits_signed
    if isinstance(value, types.Float):
        chosen = fits_float
    elif isinstance(value, types.Integer) and not getattr(value, "signed", True):
        chosen = fits_unsigned
    signature = types.boolean(value, types.int64, types.int64)

    def decide(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.compile_internal(builder, chosen, signature, arguments)

    return signature, decide


returned: Any = intrinsic(prefer_literal=True)(_returned)
fits: Any = intrinsic(_fits)
