"""Synthetic graphs, each a function of its arguments alone: the same on any number of threads.

Names are imported when first used, so that the command line can list them without NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from godwit.graph.generators.spec import GENERATORS

if TYPE_CHECKING:
    from godwit.graph.generators.classic import binary_tree as binary_tree
    from godwit.graph.generators.classic import caterpillar as caterpillar
    from godwit.graph.generators.classic import complete as complete
    from godwit.graph.generators.classic import path as path
    from godwit.graph.generators.classic import star as star
    from godwit.graph.generators.geometric import delaunay as delaunay
    from godwit.graph.generators.geometric import random_geometric as random_geometric
    from godwit.graph.generators.grids import grid as grid
    from godwit.graph.generators.grids import road as road
    from godwit.graph.generators.random import barabasi_albert as barabasi_albert
    from godwit.graph.generators.random import rmat as rmat
    from godwit.graph.generators.random import uniform as uniform
    from godwit.graph.generators.random import watts_strogatz as watts_strogatz

_MODULE_OF = {generator.function: generator.module for generator in GENERATORS.values()}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module_name = _MODULE_OF.get(name)
    if module_name is None:
        raise AttributeError(f"module 'godwit.graph.generators' has no attribute {name!r}")
    value = getattr(import_module(f"godwit.graph.generators.{module_name}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
