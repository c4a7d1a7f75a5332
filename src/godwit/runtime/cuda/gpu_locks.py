"""Who may use a GPU: one run, one generator, one measurement at a time.

Two runs that waited for each other's GPUs would never end; and whoever allocates, frees or loads on a GPU
may wait for a kernel there that waits for one that is not started yet. So everything that does more than
ask holds the GPUs that it uses, in the order of their numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from godwit.errors import InputError
from godwit.runtime.cuda import driver

_GPU_LOCKS: dict[int, threading.Lock] = {}
_HOLDERS: dict[int, int] = {}  # threads, by the GPUs that they hold
_LOCKS_LOCK = threading.Lock()


def refuse_held(indexes: Iterable[int]) -> None:
    """Whoever waits for anything else that a holder of GPUs may hold, asks this first.

    :raises InputError: this thread holds one of them already, as in a progress function
    """
    me = threading.get_ident()
    for index in indexes:
        if _HOLDERS.get(index) == me:
            raise InputError(
                f"cuda:{index} is at work for this thread: a progress function cannot use it"
            )


@contextmanager
def held_gpus(indexes: Sequence[int]) -> Iterator[None]:
    """Have GPUs to oneself: two runs that waited for each other's would never end.

    The calling thread's current GPU is what it was before, afterwards.

    :raises InputError: this thread holds one already, as in a progress function
    """
    wanted = sorted(set(indexes))
    me = threading.get_ident()
    with ExitStack() as stack:
        for index in wanted:
            refuse_held([index])
            with _LOCKS_LOCK:
                lock = _GPU_LOCKS.setdefault(index, threading.Lock())
            stack.enter_context(lock)
            stack.callback(_HOLDERS.pop, index, None)
            _HOLDERS[index] = me
        stack.enter_context(driver.current_kept())
        driver.free_abandoned(wanted)
        yield
