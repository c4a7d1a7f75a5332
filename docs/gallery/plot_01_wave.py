"""
A wave on a road network
========================

Breadth-first search from one vertex of a grid of roads, of which nearly half are missing. The distance
of a vertex is the number of roads on the shortest way to it, so that equal distances look like the
front of a wave, which bends around the gaps.
"""

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

rows, columns = 160, 240
graph = gw.generators.road(rows, columns, keep=0.54, seed=3)
centre = rows // 2 * columns + columns // 2
source = centre + int(np.argmax(graph.out_degree()[centre:]))  # the next crossing of four roads
result = gw.bfs(graph, source)
print(
    f"{result.reached.sum():,} of {graph.vertex_count:,} vertices, at most "
    f"{result.distance[result.reached].max()} roads away"
)

# %%
# Vertices of a grid are numbered row by row, so that distances are a picture as they are. Vertices that
# the search does not reach are left white.

picture = np.where(result.reached, result.distance, np.nan).reshape(rows, columns)
figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
image = axes.imshow(picture, cmap="viridis")
axes.plot(source % columns, source // columns, "o", color="white", markeredgecolor="black")
axes.set(title="Roads from the source (white dot)", xticks=[], yticks=[])
figure.colorbar(image, label="distance, in roads", shrink=0.85)
plt.show()
