"""
The shortest way across a road network
======================================

Shortest paths by the lengths of roads, from the upper left to the lower right. The path follows from
the predecessors, which are computed when they are first asked for.
"""

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

rows, columns = 90, 150
graph = gw.generators.road(rows, columns, keep=0.6, weights=(1, 9), seed=5)
parts = gw.connected_components(graph)
largest = np.flatnonzero(parts.label == np.bincount(parts.label).argmax())
start, end = int(largest[0]), int(largest[-1])

result = gw.sssp(graph, start)
path = np.array(result.path_to(end))
print(f"{len(path) - 1} roads of length {result.distance[end]} in all")

# %%
# Roads are drawn as lines between the points of the grid, those on the path in red. The rows of a graph
# are arrays: the arcs of vertex ``v`` lead to ``graph.targets[graph.offsets[v]:graph.offsets[v + 1]]``.

sources = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
once = sources < graph.targets  # an edge is stored as two arcs
ends = np.stack([sources[once], graph.targets[once]])
x, y = ends % columns, ends // columns

figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
axes.plot(x, y, color="0.75", linewidth=0.7)
axes.plot(path % columns, path // columns, color="tab:red", linewidth=2)
axes.plot([start % columns, end % columns], [start // columns, end // columns], "o", color="black")
axes.set(title="The shortest of all ways", aspect="equal")
axes.invert_yaxis()
axes.axis("off")
plt.show()
