"""
NetworkX's functions, run by Godwit
===================================

Godwit is a backend of NetworkX: ``backend="godwit"``, or the variable ``GODWIT_NETWORKX_AUTO=1``
without any change to a program. The bars are times on the machine that built this page, of second
calls: the first one converts the graph and compiles.
"""

import time

import matplotlib.pyplot as plt
import networkx as nx

G = nx.barabasi_albert_graph(3000, 6, seed=1)
tasks = {
    "pagerank": lambda **options: nx.pagerank(G, **options),
    "connected\ncomponents": lambda **options: list(nx.connected_components(G, **options)),
    "shortest paths\nfrom a node": lambda **options: nx.single_source_shortest_path_length(
        G, 0, **options
    ),
    "betweenness\n(30 sources)": lambda **options: nx.betweenness_centrality(
        G, k=30, seed=1, **options
    ),
}


def seconds_of(task, **options):
    """Return the time of the second of two calls."""
    task(**options)
    begin = time.perf_counter()
    task(**options)
    return time.perf_counter() - begin


networkx_s = [seconds_of(task) for task in tasks.values()]
godwit_s = [seconds_of(task, backend="godwit") for task in tasks.values()]

# %%

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
places = range(len(tasks))
axes.bar(
    [p - 0.2 for p in places], [1000 * s for s in networkx_s], 0.38, label="NetworkX", color="0.7"
)
axes.bar([p + 0.2 for p in places], [1000 * s for s in godwit_s], 0.38, label="backend Godwit")
axes.set(yscale="log", ylabel="ms", title="3,000 nodes, 18,000 edges, on the CPU")
axes.set_xticks(places, list(tasks))
axes.legend(frameon=False)
plt.show()

# %%
# Results are the same, up to rounding:

ours, theirs = nx.pagerank(G, backend="godwit", tol=1e-10), nx.pagerank(G, tol=1e-10)
print("largest difference of PageRank:", max(abs(ours[v] - theirs[v]) for v in G))
