"""Which packets suit a pair of endpoints: the smallest that come near to the bandwidth of the link.

``godwit devices --measure`` copies packets of many sizes over every kind of link; what it found is kept in
the cache folder, by the names and places of the GPUs, and asked here. Nothing is measured when a link is
made: that would cost more than it gives. Without measurements: 16 MiB, at which copy engines reached 361 of
382 GB/s between H200s over NVLink (with 4 MiB: 315), and 54.5 of 55 from and to the host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from godwit import cache
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.measurements import Measurements

DEFAULT_BYTES = 16 << 20
NEAR = 0.95
"""Of the best rate that any packet size has."""
_FILE = "links"

Curves = dict[str, dict[int, float]]
"""By ``"host -> cuda:0"``: rates by packet size."""


def packet_bytes(source: int | None, target: int | None) -> int:
    """What suits a link between GPUs; None is the host."""
    gpus = sorted({index for index in (source, target) if index is not None})
    curve = _kept(tuple(map(_place, gpus))).get(f"{_name(source)} -> {_name(target)}")
    return smallest_near(curve) if curve else DEFAULT_BYTES


def smallest_near(curve: dict[int, float]) -> int:
    """The smallest packets whose rate is near to the best."""
    best = max(curve.values())
    return min(size for size, rate in curve.items() if rate >= NEAR * best)


def keep(found: Measurements) -> None:
    """Keep what was measured for runs to come; where there is no folder for it, do without."""
    places = {gpu.device: f"{gpu.name} at {gpu.pci_bus_id}" for gpu in found.topology.gpus}
    text = json.dumps({"gpus": places, "gb_per_s": curves_of(found)}, indent=1)
    cache.store(text.encode(), _FILE)
    _kept.cache_clear()


def curves_of(found: Measurements) -> Curves:
    """Of every pair of GPUs: that of the one pair that was measured of those which are joined alike."""
    names = [gpu.device for gpu in found.topology.gpus]
    links = found.topology.links
    curves: Curves = {}
    for (source, target, _), curve in found.curves(["packets_copy"]).items():
        if source not in names or target not in names:
            curves[f"{source} -> {target}"] = curve
            continue
        kind = links[names.index(source)][names.index(target)]
        for i, here in enumerate(names):
            for j, there in enumerate(names):
                if links[i][j] == kind:
                    curves.setdefault(f"{here} -> {there}", curve)
    return curves


def _name(index: int | None) -> str:
    return "host" if index is None else f"cuda:{index}"


def _place(index: int) -> tuple[str, str]:
    properties = driver.properties(index)
    return f"cuda:{index}", f"{properties.name} at {properties.pci_bus_id}"


@lru_cache(maxsize=16)
def _kept(places: Sequence[tuple[str, str]]) -> Curves:
    """What was measured on these GPUs; nothing if they are others now, or were not measured."""
    text = cache.load(_FILE)
    if text is None:
        return {}
    try:
        kept: dict[str, Any] = json.loads(text)
        if any(kept["gpus"].get(name) != place for name, place in places):
            return {}
        return {
            link: {int(size): float(rate) for size, rate in curve.items()}
            for link, curve in kept["gb_per_s"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
