"""
Betweenness of vertices and edges
=================================

Zachary's karate club: 34 members, who split into two clubs later. Betweenness is the number of shortest
paths through a vertex, or through an edge, as a share of all: it is high where two parts hang together.
"""

import matplotlib.pyplot as plt
import networkx as nx

import godwit as gw

G = nx.karate_club_graph()
graph = gw.Graph.from_networkx(G).without_weights()
result = gw.betweenness_centrality(graph, edges=True)
of_vertices = result.to_dict()
of_edges = result.edges_to_dict()

expected = nx.betweenness_centrality(G)
print("largest difference to NetworkX:", max(abs(of_vertices[v] - expected[v]) for v in G))

# %%
# Colours are the clubs after the split; areas and widths are betweenness.

position = nx.spring_layout(G, seed=3, k=0.3)
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
widths = [120 * max(of_edges.get((u, v), 0), of_edges.get((v, u), 0)) for u, v in G.edges]
nx.draw_networkx_edges(G, position, ax=axes, edge_color="0.65", width=widths)
nx.draw_networkx_nodes(
    G,
    position,
    ax=axes,
    node_size=[60 + 4000 * of_vertices[v] for v in G],
    node_color=["tab:blue" if G.nodes[v]["club"] == "Mr. Hi" else "tab:orange" for v in G],
    edgecolors="white",
)
nx.draw_networkx_labels(G, position, font_size=8, ax=axes)
axes.axis("off")
plt.show()
