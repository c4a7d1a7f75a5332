"""
Communities: clusters of a graph of nearest neighbours
======================================================

Single-cell analysis divides cells into types by communities of a graph, in which each cell has edges to
those that are most similar to it. Here cells are points of a plane. ``leiden`` finds their communities: the
same seed gives the same ones, on any number of cores and on a GPU.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

import godwit as gw

random = np.random.default_rng(2)
centres, widths = random.random((9, 2)), random.uniform(0.02, 0.06, 9)
kind = random.integers(9, size=4_000)
cells = random.normal(centres[kind], widths[kind, None])

# A symmetric matrix of similarities, such as ``adata.obsp["connectivities"]`` of scanpy.
distance, neighbour = cKDTree(cells).query(cells, k=16)
rows = np.repeat(np.arange(len(cells)), 16)
similarity = csr_array((np.exp(-(distance.ravel() ** 2) / 1e-3), (rows, neighbour.ravel())))
similarity.setdiag(0)
similarity.eliminate_zeros()
graph = gw.Graph.from_scipy(similarity.maximum(similarity.T), directed=False)
print(graph)

# %%
# A smaller ``resolution`` gives fewer communities.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
for ax, resolution in zip(axes, (0.02, 1.0), strict=True):
    found = gw.leiden(graph, resolution)
    print(f"resolution {resolution}: sizes {found.sizes[:9]}")
    ax.scatter(*cells.T, c=found.label % 20, cmap="tab20", s=3)
    ax.set(title=f"resolution {resolution}: {found.count} communities", xticks=[], yticks=[])
plt.show()

# %%
# The result has the dendrogram as well: each of ``levels`` divides the communities of the next one.

found = gw.louvain(graph)
print([int(label.max()) + 1 for label in found.levels], f"modularity {found.modularity:.3f}")
