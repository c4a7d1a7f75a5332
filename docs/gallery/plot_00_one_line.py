"""
Plots in one line
=================

Every result has ``plot()``, and so has a small graph. They draw on axes of matplotlib, new ones or
those of ``ax=``, and return them, so that titles and files are as always.
"""

import matplotlib.pyplot as plt
import networkx as nx

import godwit as gw

graph = gw.Graph.from_networkx(nx.les_miserables_graph())
ranks = gw.pagerank(graph)

axes = graph.plot(ranks.rank, label="PageRank")
axes.set_title("Characters of Les Misérables")
plt.show()

# %%
# Distances: how many vertices have each. Ranks: the share of vertices with at least a value.
# Components: how many there are of each size. Degrees: how many vertices have each.

road = gw.generators.road(150, 200, keep=0.52, seed=1)
largest = road.largest_component()

figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
gw.bfs(largest, largest.highest_degree_vertex()).plot(ax=axes[0, 0])
ranks.plot(ax=axes[0, 1])
gw.connected_components(road).plot(ax=axes[1, 0])
gw.generators.rmat(14, seed=1).plot_degrees(ax=axes[1, 1])
plt.show()
