"""Runs a step kernel (supersteps/step.cuh) on placed positions: connects the devices, drives it.

The structs that host and kernels share are declared here with the names and the order of ``step.cuh``; the
generated code asserts that sizes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.driver import Buffer, PinnedBuffer
from godwit.runtime.cuda.operators import DeviceFunction
from godwit.runtime.cuda.slices import SlicedRun, nanoseconds
from godwit.runtime.cuda.topology import reach_each_other
from godwit.runtime.cuda.types import MAXIMAL_DEVICES
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Progress
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.rows import StepRows
from godwit.trace import seconds_since
from godwit.worker.cuda.placement import settle

THREADS = 1024
STATE_WORDS = 32
STEP = STATE_WORDS - 2
"""Of the state: supersteps so far. The last word is the engine's, too."""
_COUNTS, _AMOUNTS = 8, 4
_PROFILED_STEPS = 64
_PHASE = 0x3FFFFFFF
"""Of a phase: but for who does it, and whether the kernel leaves before."""

STAGE = np.dtype(
    [
        ("control", np.uint64),
        ("board", np.uint64),
        ("boards", np.uint64, MAXIMAL_DEVICES),
        ("stop", np.uint64),
        ("ended", np.uint64),
        ("capacity", np.int64),
        ("owned", np.int64),
        ("slice_ns", np.uint64),
        ("patience_ns", np.uint64),
        ("latency_ns", np.uint64),
        ("devices", np.uint32),
        ("device", np.uint32),
        ("prepare", np.uint32),
        ("early", np.uint32),
    ]
)

STEP_CONTROL = np.dtype(
    [
        ("release", np.uint64),
        ("arrived", np.uint64),
        ("cursors", np.uint64, 4),
        ("counts", np.uint64, _COUNTS),
        ("amounts", np.float64, _AMOUNTS),
        ("state", np.uint64, STATE_WORDS),
        ("run_counts", np.uint64, _COUNTS),
        ("ended_ns", np.uint64, _PROFILED_STEPS),
        ("phases", np.uint32, _PROFILED_STEPS),
        ("phase", np.uint32),
        ("status", np.uint32),
    ]
)

ROWS = np.dtype(
    [
        ("offsets", np.uint64),
        ("targets", np.uint64),
        ("heads", np.uint64),
        ("classes", np.int64, 7),
    ]
)
"""``Rows`` of step.cuh."""

PEERS = np.dtype((np.uint64, MAXIMAL_DEVICES))
"""A pointer at every device."""

_BOARD_BYTES = 2 * MAXIMAL_DEVICES * 8 * 2 * (_COUNTS + _AMOUNTS + 1)


def step_source(file: str, arguments: np.dtype[Any], *, types: dict[str, str], work: str) -> str:
    """The few lines that instantiate a step kernel.

    :param file: the header that has it
    :param arguments: of its struct ``Arguments``, of which ``stage`` is the first member
    :param types: what its type names stand for
    :param work: the device function that is the kernel, which takes the struct
    """
    usings = "\n".join(f"using {name} = {meaning};" for name, meaning in types.items())
    return f"""#include "supersteps/step.cuh"
{usings}
#include "{file}"
static_assert(sizeof(Stage) == {STAGE.itemsize});
static_assert(sizeof(StepControl) == {STEP_CONTROL.itemsize});
static_assert(sizeof(StepBoard) == {_BOARD_BYTES});
static_assert(sizeof(Rows<int>) == {ROWS.itemsize});
static_assert(sizeof(Arguments) == {arguments.itemsize});
extern "C" __global__ void __launch_bounds__({THREADS}, 1)
work(const __grid_constant__ Arguments arguments) {{
    {work}(arguments);
}}
"""


def point_rows(own: Any, rows: StepRows) -> None:
    """Fill in a :data:`ROWS`."""
    own["offsets"] = rows.offsets.pointer
    own["targets"] = rows.targets.pointer
    own["heads"] = rows.heads.pointer
    own["classes"] = rows.classes


@lru_cache(maxsize=64)
def _loaded(index: int, code: bytes) -> driver.Kernel:
    return driver.load(index, code).kernel("work")


def copies_by_host(placement: StepPlacement | StepCopies, gpu: GpuOptions) -> bool:
    """Whether what devices tell each other is copied by the host, between supersteps."""
    if isinstance(placement, StepCopies) or len(placement.parts) == 1:
        return False
    return gpu.transport == "host" or not reach_each_other(placement.devices)


def refuse_selective(placement: StepPlacement, gpu: GpuOptions) -> None:
    """InputError if values are to go where they are read only, and the host copies whole ranges."""
    if gpu.communication == "selective" and copies_by_host(placement, gpu):
        raise InputError(
            "communication='selective' is not possible here: the host copies what GPUs tell each other "
            "(they do not reach each other's memory, or transport='host' was asked for), and all get all; "
            "leave communication out (and duplication='all', where that was asked for)"
        )


class StepRun(SlicedRun):
    """One run of a step kernel.

    :param placement: the graph's positions on the devices, or copies for each of them
    :param source: of :func:`step_source`
    :param arguments: (devices) structs, whose first field ``stage`` is filled in here
    :param gpu: how kernels are run
    :param functions: a user's operators
    :param threads: of a block
    :ivar exchange: how the devices get at each other's arrays
    :ivar exchange_on_host: where the host copies, called after each superstep but the last to do so, with
        its phase, the one that comes and the state
    :ivar exchange_s: seconds that this took
    :ivar between: called with the control words between two launches: memory may be allocated then
    :ivar shared_bytes: dynamic shared memory of a block, if any
    """

    control_dtype = STEP_CONTROL
    says_ended = True

    def __init__(
        self,
        placement: StepPlacement | StepCopies,
        source: str,
        arguments: Array,
        gpu: GpuOptions,
        *,
        functions: Sequence[DeviceFunction] = (),
        threads: int = THREADS,
    ) -> None:
        super().__init__(placement, gpu)
        self.placement: StepPlacement | StepCopies = placement
        self.arguments = arguments
        delay = f"#define DELAY_NS {gpu.delay_ns}ull\n" if gpu.delay_ns else ""
        self._source = delay + source
        self.functions = tuple(functions)
        self._threads = max(64, gpu.threads or threads)
        self.compile_s = 0.0
        self.shared_bytes = 0
        by_host = copies_by_host(placement, gpu)
        self.exchange = Exchange(placement.parts, placement.capacity, by_host=by_host)
        self.exchange_s = 0.0
        self.exchange_on_host: Callable[[int, int, Array], None] | None = None
        self.between: Callable[[Array], None] | None = None

    def load(self) -> None:
        """Compile the kernel, or find it, and load it on every GPU."""
        begin = perf_counter()
        for part in self.placement.parts:
            architecture = driver.properties(part.index).compute_capability
            code = cubin(self._source, self.functions, architecture)
            self.kernels.append(_loaded(part.index, code))
        self.compile_s = seconds_since(begin, "compile")

    def prepare(self, state: Sequence[Any] = (), *, phase: int = 0, early: bool = False) -> None:
        """Set the control words up, connect the devices, and launch once to no effect.

        :param state: the first words of ``control->state``: integers, or floats as bits
        :param phase: of the first superstep
        :param early: it touches no other device's memory, and so need not wait until all are launched
        """
        placement = self.placement
        board = np.zeros(_BOARD_BYTES, np.uint8)
        for place, part in enumerate(placement.parts):
            control = np.zeros(1, STEP_CONTROL)
            for word, number in enumerate(state):
                is_float = isinstance(number, float)
                control["state"][0, word] = (
                    np.float64(number).view(np.uint64) if is_float else number
                )
            control["phase"] = phase
            part.room("control", STEP_CONTROL.itemsize).upload(control)
            stage = self.arguments[place]["stage"]
            stage["control"] = part.buffers["control"].pointer
            stage["board"] = self.room_for_all("board", place, board).pointer
            stage["stop"], stage["ended"] = self.stop_pointer, self.ended_pointer(place)
            stage["capacity"], stage["owned"] = placement.capacity, part.owned
            # Where the host copies, it does after each superstep.
            stage["slice_ns"] = 0 if self.exchange.by_host else nanoseconds(self.gpu.slice_s)
            stage["patience_ns"] = nanoseconds(self.gpu.patience_s)
            stage["latency_ns"] = self.gpu.latency_ns
            stage["devices"], stage["device"] = placement.joint, place % placement.joint
            stage["early"] = early
            blocks = self.blocks_with(place, self.shared_bytes)
            self.shapes.append((blocks, self._threads, self.shared_bytes))
        boards = self.arguments["stage"]["board"]
        self.arguments["stage"]["boards"][:, : len(boards)] = boards
        self.warm()

    def room_for_all(self, name: str, place: int, content: Array) -> Buffer | PinnedBuffer:
        """A small array of a device that all others reach while kernels run: on the host, if need be."""
        room: Buffer | PinnedBuffer
        if self.exchange.by_host:
            assert isinstance(self.placement, StepPlacement)
            room = self.placement.pinned_room(f"{name} of {place}", content.nbytes)
        else:
            room = self.placement.parts[place].room(name, content.nbytes)
        room.upload(content)
        return room

    def blocks_with(self, place: int, shared_bytes: int) -> int:
        """How many blocks of an endpoint's kernel run at once, with so much dynamic shared memory each."""
        if shared_bytes:
            self.kernels[place].allow_shared(shared_bytes)
        return self.blocks_for(place, self._threads, shared_bytes)

    def progress(self, controls: Array) -> Progress:
        """What the kernels count first is what they got done."""
        return Progress(int(controls["run_counts"][:, 0].sum()))

    def reached(self, control: Any) -> dict[str, Any]:
        """Supersteps and what they got done so far."""
        return {"supersteps": control["state"][STEP], "processed_items": control["run_counts"][0]}

    def between_slices(self, controls: Array) -> None:
        """What the primitive does there, if it does anything."""
        if self.exchange.by_host:
            assert self.exchange_on_host is not None
            begin = perf_counter()
            control = controls[0]
            last = control["phases"][int(control["state"][STEP]) % _PROFILED_STEPS]
            self.exchange_on_host(
                int(last) & _PHASE, int(control["phase"]) & _PHASE, control["state"]
            )
            settle(self.placement.parts)
            self.exchange_s += seconds_since(begin, "exchange")
        if self.between is not None:
            self.between(controls)

    def _prepare_flag(self, place: int, value: int) -> None:
        self.arguments[place]["stage"]["prepare"] = value


@contextmanager
def step_run(
    placement: StepPlacement | StepCopies,
    source: str,
    arguments: Array,
    gpu: GpuOptions,
    *,
    functions: Sequence[DeviceFunction] = (),
) -> Iterator[StepRun]:
    """A run that leaves no kernel behind, whatever happens. Whoever calls it holds the placement's GPUs."""
    run = StepRun(placement, source, arguments, gpu, functions=functions)
    run.load()
    try:
        yield run
    except BaseException:
        run.give_up()
        raise
