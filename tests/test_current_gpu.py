"""What a run leaves of a thread's current GPU: a model of the driver, and of CuPy's copy of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from godwit.runtime.cuda import driver
from native_calls import no_quick_calls

GPUS = 2
OK = 0


class Model:
    """One thread. A context is its GPU's number plus one; 0 is none.

    :ivar entered: the context that the driver has for the thread
    :ivar named: what CuPy has named by cudaSetDevice; it holds where no context is entered
    :ivar present: GPUs that have a context
    :ivar launched: GPUs on which CuPy has launched a kernel, and so takes a context for granted
    """

    def __init__(self) -> None:
        self.entered = 0
        self.named = 0
        self.present: set[int] = set()
        self.launched: set[int] = set()

    # CuPy.

    def cupys(self) -> int:
        return self.entered - 1 if self.entered else self.named

    def set_device(self, gpu: int) -> None:
        self.named = gpu
        self.enter(gpu)

    def launch(self, _: int = 0) -> None:
        gpu = self.cupys()
        if gpu not in self.launched:
            self.enter(gpu)  # by a call of the runtime, the first time only
            self.launched.add(gpu)
        assert self.entered == gpu + 1, "a kernel is launched without a context"

    def elsewhere(self, gpu: int) -> None:
        """``with cupy.cuda.Device(gpu): ...``"""
        before = self.cupys()
        if before != gpu:
            self.set_device(gpu)
        self.set_device(before)

    # The driver.

    def enter(self, gpu: int) -> None:
        self.present.add(gpu)
        self.entered = gpu + 1

    def set_current(self, context: int) -> tuple[int]:
        self.entered = context
        return (OK,)

    def retain(self, gpu: int) -> tuple[int, int]:
        self.present.add(gpu)
        return OK, gpu + 1

    @property
    def bindings(self) -> Any:
        return SimpleNamespace(
            cuCtxGetCurrent=lambda: (OK, self.entered),
            cuCtxSetCurrent=self.set_current,
            cuInit=lambda flags: (OK,),
            cuDeviceGet=lambda gpu: (OK, gpu),
            cuDevicePrimaryCtxRetain=self.retain,
            cuDevicePrimaryCtxGetState=lambda gpu: (OK, 0, int(gpu in self.present)),
        )

    @property
    def cupy(self) -> Any:
        runtime = SimpleNamespace(getDevice=self.cupys, setDevice=self.set_device)
        return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))


@contextmanager
def standing_in(model: Model, *, has_cupy: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "bindings", lambda: (model.bindings, None))
        patch.setattr(driver, "quick_calls", no_quick_calls)
        patch.setattr(driver, "context_handle", driver.context_handle.__wrapped__)
        patch.setattr(driver, "_thread", SimpleNamespace())
        patch.setattr(driver, "loaded_cupy", lambda: model.cupy if has_cupy else None)
        yield


def nested(gpu: int) -> None:
    with driver.entered(gpu):
        pass


OWN: dict[str, Callable[[Model], Callable[[int], None]]] = {
    "use": lambda model: driver.use,
    "nested": lambda model: nested,
    "enter any": lambda model: driver.enter_any,
}
CUPYS: dict[str, Callable[[Model], Callable[[int], None]]] = {
    "set device": lambda model: model.set_device,
    "elsewhere": lambda model: model.elsewhere,
    "launch": lambda model: model.launch,
}


Calls = tuple[tuple[str, int], ...]


def calls(kinds: Iterable[str], most: int) -> list[Calls]:
    """All sequences of so many calls at most."""
    single = list(product(kinds, range(GPUS)))
    return [found for count in range(most + 1) for found in product(single, repeat=count)]


@pytest.mark.parametrize("before", calls(CUPYS, 1), ids=str)
def test_with_cupy_the_thread_has_the_gpu_that_it_had(before: Calls) -> None:
    """And CuPy launches nothing without a context, whatever it has done in between."""
    for within, after in product(calls(OWN | CUPYS, 2), calls(CUPYS, 1)):
        model, alone = Model(), Model()
        with standing_in(model, has_cupy=True):
            for _ in range(2):
                for name, gpu in before:
                    CUPYS[name](model)(gpu)
                    CUPYS[name](alone)(gpu)
                with driver.current_kept():
                    for name, gpu in within:
                        (OWN | CUPYS)[name](model)(gpu)
                assert model.cupys() == alone.cupys(), within
                for name, gpu in after:
                    CUPYS[name](model)(gpu)
                    CUPYS[name](alone)(gpu)
                    assert model.cupys() == alone.cupys(), (within, after)


@pytest.mark.parametrize("entered", [None, *range(GPUS)])
def test_without_cupy_no_context_is_made_of_what_nobody_uses(entered: int | None) -> None:
    for within in calls(["use", "nested"], 3):
        model = Model()
        if entered is not None:
            model.enter(entered)
        used = {gpu for _, gpu in within} | model.present
        with standing_in(model, has_cupy=False):
            with driver.current_kept():
                for name, gpu in within:
                    OWN[name](model)(gpu)
            assert model.present == used
            if entered is None:
                assert model.entered == (1 if 0 in used else 0)
            else:
                assert model.entered == entered + 1


@pytest.mark.parametrize("used", [(), (0,), (1,), (0, 1)])
def test_a_thread_that_needs_some_gpu_has_the_first_if_that_is_in_use(
    used: tuple[int, ...],
) -> None:
    model = Model()
    model.present.update(used)
    with standing_in(model, has_cupy=False):
        for _ in range(2):
            driver.enter_any(1)
            assert model.entered == (1 if 0 in used else 2)


def test_what_cupy_cannot_tell_hides_no_error() -> None:
    model = Model()

    def fail() -> int:
        raise RuntimeError("cudaErrorIllegalAddress")

    with standing_in(model, has_cupy=True), pytest.MonkeyPatch.context() as patch:
        broken = SimpleNamespace(getDevice=fail, setDevice=fail)
        patch.setattr(
            driver, "loaded_cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=broken))
        )
        with pytest.raises(ValueError, match="first"), driver.entered(1):
            raise ValueError("first")
        assert model.entered == 0
