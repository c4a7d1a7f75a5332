"""Generated graphs by one line of text."""

from __future__ import annotations

from functools import partial

from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.generators.spec import parse_spec
from godwit.runtime.protocol import Device
from godwit.runtime.registry import resolve_devices


def generate(spec: str, *, device: str | None = None) -> Graph:
    """The graph described by, say, ``rmat:20,seed=3``: what the command line takes for a file.

    ``NAME:SIZE[,key=value...]``: the name of a function of :mod:`godwit.generators` with ``-`` for
    ``_``, its sizes with ``x`` between them, and its keyword arguments as ``keep=0.7``,
    ``simple=false``, ``weights=1..64`` (integers) or ``weights=0.0..1.0`` (floats); ``copies=4`` makes
    four disjoint copies, as :meth:`Graph.replicate` does.

    >>> import godwit as gw
    >>> gw.generate("road:20x30,keep=1.0").vertex_count
    600

    :param device: ``"cuda:0"``: made on that GPU, which has some of the generators; the same graph,
        wherever it is made
    :raises InputError: if the text cannot be understood, the function refuses a value, or the device has
        no such generator
    :raises DeviceError: the device is not there
    :raises GraphTooLargeError: before anything large is allocated
    """
    recipe = parse_spec(spec)
    home = None if device is None else _one_device(device)
    if home is None or home.kind == "cpu":
        return recipe()
    from godwit.graph.generators.cuda import GENERATORS

    function = GENERATORS.get(recipe.generator.function)
    if function is None:
        raise InputError(
            f"{recipe.generator.name} has no version for {home.name}; those that have are "
            f"{', '.join(GENERATORS)}, and the CPU makes all (device=None)"
        )
    return recipe(partial(function, index=int(home.name.partition(":")[2])))


def _one_device(device: str) -> Device:
    """The device of a name, which is one."""
    if not isinstance(device, str):
        raise InputError(f"device must be a name such as 'cuda:0', got {shown(device)}")
    found = resolve_devices(device)
    if len(found) > 1:
        raise InputError(f"device must be one, as {found[0].name!r} is; {device!r} is {len(found)}")
    return found[0]
