"""Step programs on the GPUs of several processes: the kernels of one process with as many GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import kind_of
from godwit.distributed.step_programs import DistributedStepResult, check_end
from godwit.dtypes import as_array
from godwit.frontier.code import StepCode
from godwit.frontier.program import StepProgram
from godwit.frontier.state import Frontier, initial_state, run_code_together
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.content import Content
from godwit.runtime.gpu_options import GpuOptions
from godwit.worker.options import query_options


@public
def run(
    program: StepProgram,
    graph: GpuGraph,
    frontier: Frontier = "all",
    *,
    fields: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int | float] | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedStepResult:
    """Run a step program; return fields of a range of vertices; see :meth:`StepProgram.run`.

    Arrays of fields have an element for each vertex of the graph, or for each in ``graph.vertices``.
    """
    options = query_options(timeout_s=timeout_s, progress=progress, gpu=gpu)
    code, plain = program.code, graph.graph
    given = fields if isinstance(fields, Mapping) else {}
    kinds = sorted((repr(name), kind_of(values)) for name, values in given.items())
    declared = program.declarations
    same = declared.fields, declared.numbers, numbers, frontier, kinds, options.gpu
    with graph.running("StepProgram.run", key_of(code), *same):
        check_end(code)
        if isinstance(fields, Mapping):
            fields = {
                name: whole_array(graph, f"field {name!r}", fields[name])
                for name in sorted(fields, key=repr)
            }
        state = initial_state(code, plain, declared, fields, numbers, frontier)
        statistics = run_code_together(code, graph.steps, state, options)
        graph.processes.report(statistics)
        own = graph.vertices
        members = np.zeros(len(own), bool)
        members[state.frontier.astype(np.int64) - own.start] = True
        values = dict(zip(declared.fields, state.fields, strict=True))
        return DistributedStepResult(graph, values, state.numbers(code), members, statistics)


def whole_array(graph: GpuGraph, what: str, given: Any) -> Any:
    """Return an array of all vertices' values, if each process gives one of its own; else what is given.

    All processes call it.

    :param what: its name in messages
    :raises ProcessError: what is given is of all vertices, and differs
    """
    if kind_of(given) == "values":
        values = as_array(given, what)
        is_part = values.shape == (len(graph.vertices),)
        if graph.processes.meet(int(is_part)).all():
            return np.concatenate(graph.processes.share(values))
    graph.processes.require_same(given, what, "the same values, or each those of its own vertices")
    return given


def key_of(code: StepCode, *functions: Any) -> str:
    """Return a text that differs for programs of other operators, or of other constants in these.

    :param functions: others that the run calls; what is no function is left out
    """
    content = Content({})
    for step in code.instructions():
        content.add(f"{step.index} {step.label} {step.everywhere}")
        for operator in step.operators():
            content.visit(operator.function, step.label)
    for function in filter(callable, functions):
        content.visit(function, "initial")
    return content.digest.hexdigest()
