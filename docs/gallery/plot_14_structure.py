"""
Structure: cores and triangles of a network of friends
======================================================

People live in the unit square, and those who live close to each other know each other; in two towns they
live closer together. Who is in the dense parts? ``core_number`` is, for each vertex, the largest *k* for
which it is in the *k*-core: the largest part in which every vertex has at least *k* neighbours.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from scipy.spatial import cKDTree

import godwit as gw

random = np.random.default_rng(3)
places = np.concatenate(
    [
        random.random((1_500, 2)),
        random.normal((0.3, 0.65), 0.06, (500, 2)),
        random.normal((0.72, 0.3), 0.09, (500, 2)),
    ]
)
pairs = cKDTree(places).query_pairs(0.028, output_type="ndarray")
friends = gw.Graph.from_edges(pairs[:, 0], pairs[:, 1], vertex_count=len(places), directed=False)

cores = gw.core_number(friends)
print(friends)
print(
    "degeneracy", cores.degeneracy, "with", gw.k_core(friends).vertex_count, "in the innermost core"
)
print("of highest core number:", cores.highest(3))

# %%
# ``clustering`` is another measure: the share of pairs of a person's friends who know each other. It is
# often high where friends are few, outside the towns as well.

clustering = gw.clustering(friends)
print(f"{gw.triangles(friends).total:,} triangles, transitivity {gw.transitivity(friends):.2f}")


def draw(axes, values, title):
    """Draw a dot for each person, those of high values last."""
    order = np.argsort(values, kind="stable")
    dots = axes.scatter(*places[order].T, c=values[order], s=7)
    axes.set(title=title, xticks=[], yticks=[], aspect="equal")
    axes.figure.colorbar(dots, ax=axes, shrink=0.7)


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
draw(left, cores.core, "core number")
draw(right, clustering.clustering, "clustering coefficient")
plt.show()

# %%
# A minimum spanning forest connects each component by edges of least total weight, here the distance
# between two people. Its edges are ``sources`` and ``targets``, by position.

lengths = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
weighted = gw.Graph.from_edges(
    pairs[:, 0], pairs[:, 1], lengths, vertex_count=len(places), directed=False
)
forest = gw.minimum_spanning_forest(weighted)
print(forest)

figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
ends = np.stack([places[forest.sources], places[forest.targets]], axis=1)
axes.add_collection(LineCollection(ends, linewidths=0.8))
axes.set(title=f"{forest.edge_count:,} edges, {forest.count} trees", aspect="equal")
axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
plt.show()
