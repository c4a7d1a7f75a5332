"""
PageRank of a small network
===========================

The characters of Victor Hugo's *Les Misérables*; an edge joins two who appear in a chapter together,
its weight is the number of chapters. The graph comes with NetworkX, which draws it as well.
"""

import matplotlib.pyplot as plt
import networkx as nx
from matplotlib.patheffects import withStroke

import godwit as gw

G = nx.les_miserables_graph()
graph = gw.Graph.from_networkx(G)
rank = gw.pagerank(graph).to_dict()  # by weights, as the graph has some

for name in sorted(rank, key=rank.get, reverse=True)[:5]:
    print(f"{name:12} {rank[name]:.3f}")

# %%
# The area of a circle is the rank of its vertex.

position = nx.kamada_kawai_layout(G)
figure, axes = plt.subplots(figsize=(9, 7), layout="constrained")
nx.draw_networkx_edges(G, position, ax=axes, edge_color="0.8")
nx.draw_networkx_nodes(
    G,
    position,
    ax=axes,
    nodelist=list(G),
    node_size=[12_000 * rank[name] for name in G],
    node_color=[rank[name] for name in G],
    cmap="YlOrRd",
    edgecolors="0.3",
    linewidths=0.5,
)
for name in G:
    if rank[name] > 0.02:
        text = axes.annotate(name, position[name], (0, 12), textcoords="offset points", ha="center")
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])
axes.axis("off")
plt.show()
