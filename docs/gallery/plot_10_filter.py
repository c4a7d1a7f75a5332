"""
Filtering a file of numbers
===========================

``gw.filter`` keeps the items of an array for which a function of one item is true. The function is
compiled; the array may be in a file that is larger than memory, and devices share the work. Kept items
stay in their order.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "speeds.npy"
    np.save(path, np.random.default_rng(1).gamma(4.0, 12.0, 2_000_000))
    fast = gw.filter(path, lambda speed: 100.0 < speed <= 130.0)
    speeds = np.load(path)

print(f"{len(fast):,} of {len(speeds):,} kept")

# %%
# The command ``godwit filter speeds.npy "100 < x <= 130" --output fast.npy`` does the same.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
bins = np.arange(0, 201, 2.5)
axes.hist(speeds, bins, color="0.8", label="in the file")
axes.hist(fast, bins, color="tab:blue", label="kept")
axes.set(xlabel="speed", ylabel="items", yscale="log", xlim=(0, 200))
axes.legend(frameon=False)
plt.show()
