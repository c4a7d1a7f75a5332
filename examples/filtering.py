"""Predicate-based filtering with links and routers: Groute's first example (2020, section 3, figure 6).

The host sends pieces of an array to whichever device is free, and concatenates the results.
`gw.filter` does this with any predicate, compiled, and overlaps copies and kernels.
Run it: python examples/filtering.py [DEVICE ...]
"""

import sys

import numpy as np

import godwit as gw


def filtered(values, predicate, devices=None):
    """Return the values that satisfy a predicate of NumPy or CuPy arrays, in their order."""
    with gw.Context(devices) as context:
        host = context.host
        to_devices = gw.Router([host], context.endpoints, "any")
        to_host = gw.Router(context.endpoints, [host], "gather")

        def work(device):
            for segment in to_devices.output(device):  # ends when the host has sent all
                kept = segment.array[predicate(segment.array)]
                to_host.input(device).send(kept, metadata=segment.offset)

        pieces = {}
        with context.workers() as workers:  # a thread for each device; all joined at the end
            workers.each(context.endpoints, work)
            to_devices.input(host).send(values)
            to_devices.input(host).shutdown()
            for segment in to_host.output(host):  # ends when all devices have sent all
                pieces[segment.metadata] = segment.array.copy()
    return np.concatenate([pieces[offset] for offset in sorted(pieces)])


if __name__ == "__main__":
    numbers = np.random.default_rng(1).random(50_000_000, dtype=np.float32)
    kept = filtered(numbers, lambda x: x > 0.5, sys.argv[1:] or None)
    assert np.array_equal(kept, gw.filter(numbers, lambda x: x > 0.5))
    print(f"{len(kept):,} of {len(numbers):,} values are above a half")
