"""
Time against size: R-MAT graphs
===============================

R-MAT graphs resemble social networks: few vertices with very many neighbours, many with few. Each scale
has twice the vertices and edges of the one before. A placed graph is prepared once; the times are those
of one search each, on the machine that built this page.
"""

import time

import matplotlib.pyplot as plt

import godwit as gw

scales = range(10, 18)
arcs, seconds = [], {"bfs": [], "pagerank": []}
for scale in scales:
    graph = gw.generators.rmat(scale, seed=1)
    arcs.append(graph.arc_count)
    with gw.place(graph) as placed:
        source = graph.highest_degree_vertex()
        tasks = {
            "bfs": lambda placed=placed, source=source: gw.bfs(placed, source),
            "pagerank": lambda placed=placed: gw.pagerank(placed),
        }
        for name, task in tasks.items():
            task()  # the first call compiles
            times = []
            for _ in range(3):
                begin = time.perf_counter()
                task()
                times.append(time.perf_counter() - begin)
            seconds[name].append(min(times))

# %%
# On axes with logarithmic scales a line of slope 1 is time proportional to the number of arcs.
# Breadth-first search grows more slowly: it looks at a fraction of the arcs of such graphs, since it
# turns around and lets unreached vertices look for a reached neighbour.

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, marker in (("pagerank", "s"), ("bfs", "o")):
    axes.loglog(arcs, [1000 * value for value in seconds[name]], marker=marker, label=name)
axes.set(xlabel="arcs", ylabel="time of a call, ms", title="R-MAT, scales 10 to 17")
axes.grid(which="major", alpha=0.3)
axes.legend(frameon=False)
plt.show()
