"""
A step program: the k-core of a network
=======================================

The *k-core* is what remains of a network when vertices of fewer than k neighbours are removed until
there are none. It is an algorithm in rounds with decisions about the whole graph, so it is a step
program: operators on a frontier, with loops.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import godwit as gw

NONE = 2**31 - 1
k_core = gw.StepProgram(
    name="k-core",
    fields={
        "left": ("int32", "degree"),  # neighbours that are not removed yet
        "core": ("int32", -1),  # -1: not removed yet
    },
    numbers={"k": "int64", "fewest": "int64"},
    steps=[
        gw.frontier.repeat(
            [
                gw.frontier.reduce(
                    "fewest", lambda core, left: left if core < 0 else NONE, "min", of="all"
                ),
                gw.frontier.assign("k", lambda k, fewest: k if fewest >= NONE else max(k, fewest)),
                gw.frontier.filter(lambda core, left, k: core < 0 and left <= k, of="all"),
                gw.frontier.repeat(
                    [
                        gw.frontier.compute("core", lambda k: k),
                        gw.frontier.advance(
                            "left",
                            lambda: -1,
                            "add",
                            keep=lambda core_at_target: core_at_target < 0,
                        ),
                        gw.frontier.filter(lambda left, k: left <= k),
                    ],
                    until=lambda size: size == 0,
                ),
            ],
            until=lambda fewest: fewest >= NONE,
        )
    ],
)

# %%
# Characters of *Les Misérables*, coloured by their core: the largest k whose core contains them.

G = nx.les_miserables_graph()
graph = gw.Graph.from_networkx(G)
core = k_core.run(graph).fields["core"]
of_name = dict(zip(graph.ids, core.tolist(), strict=True))
print("as NetworkX computes it:", of_name == nx.core_number(G))

position = nx.kamada_kawai_layout(G)
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
nx.draw_networkx_edges(G, position, ax=axes, edge_color="0.85")
drawn = nx.draw_networkx_nodes(
    G,
    position,
    ax=axes,
    nodelist=list(G),
    node_size=110,
    node_color=[of_name[name] for name in G],
    cmap="viridis_r",
    edgecolors="0.3",
    linewidths=0.5,
)
figure.colorbar(drawn, ax=axes, label="core number", shrink=0.7, ticks=np.unique(core))
axes.axis("off")
plt.show()

# %%
# The same program on a graph of 16,384 vertices:

graph = gw.generators.rmat(14, 16, seed=1)
core = k_core.run(graph).fields["core"]
print("largest core number:", core.max())
