"""Godwit: irregular graph algorithms on all GPUs or CPU cores of one machine.

>>> import godwit as gw
>>> graph = gw.generators.road(100, 100, seed=1)
>>> gw.bfs(graph, 0).distance.shape
(10000,)

``__init__.pyi`` lists the public names. Each is imported on first use, so that ``import godwit`` is quick.
"""

import re
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _MODULE_OF = {
        name: module
        for module, name in re.findall(r"^from (\S+) import \(?\s*(\w+) as \2", _stub.read(), re.M)
    }

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        from godwit.other_names import hint

        # Python would add a hint of its own, by the letters of all names, if it knew the module.
        text = f"module 'godwit' has no attribute {name!r}{hint(name, __all__)}"
        raise AttributeError(text, name=name, obj=object())
    module = import_module(_MODULE_OF[name])
    value = vars(module).get(name) or import_module(f"{module.__name__}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
