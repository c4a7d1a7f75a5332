"""
Connected components: when does a grid fall apart?
==================================================

Of a full grid, each road is kept with some probability. Above one half, nearly all vertices hang
together; below, the network falls into many small parts. The change is sudden: it is the percolation
threshold, which is exactly 1/2 for this grid.
"""

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

side = 200
kept = np.linspace(0.30, 0.70, 17)
shares = []
for share in kept:
    graph = gw.generators.road(side, side, keep=share, seed=1)
    parts = gw.connected_components(graph)
    shares.append(parts.sizes.max() / graph.vertex_count)

# %%
# ``label`` names the component of each vertex by its smallest vertex. For a picture, components get
# random colours.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
left.plot(kept, shares, "o-")
left.axvline(0.5, color="0.7", linestyle="--")
left.set(xlabel="probability that a road is kept", ylabel="share of the largest component")

parts = gw.connected_components(gw.generators.road(side, side, keep=0.48, seed=1))
colours = np.random.default_rng(1).random((side * side, 3))
right.imshow(colours[parts.label].reshape(side, side, 3))
right.set(title=f"{parts.count:,} components at 0.48", xticks=[], yticks=[])
plt.show()
