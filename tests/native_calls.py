"""What compiled code calls of the CUDA driver, by Python: for GPUs that are not there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from godwit.runtime.cuda.driver import Calls, QuickCalls

_UNKNOWN_ERROR = 999


def no_quick_calls() -> QuickCalls:
    """Calls that the driver refuses, so that the bindings are called."""

    def refused(*_: Any) -> int:
        return 201

    return QuickCalls(*[refused] * 6)


def native_calls(
    launch: Any,
    synchronize: Any,
    copy_async: Callable[[int, int, int, int], int],
    record_event: Callable[[int, int], int],
    query_event: Callable[[int], int],
    set_context: Callable[[int], int],
) -> Calls:
    """Calls whose functions have addresses; they take and return numbers, from any thread."""

    def addressed(function: Callable[..., int], count: int) -> Any:
        def call(*given: int) -> int:
            try:
                return int(function(*given))
            except Exception as error:
                print(f"{function.__name__}: {error!r}")
                return _UNKNOWN_ERROR

        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * count)(call)

    return Calls(
        launch,
        synchronize,
        addressed(copy_async, 4),
        addressed(record_event, 2),
        addressed(query_event, 1),
        addressed(set_context, 1),
    )
