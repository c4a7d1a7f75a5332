"""
Degree distributions
====================

Four kinds of generated graphs with about the same number of edges. The curves show which share of the
vertices has at least a given number of neighbours.
"""

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

graphs = {
    "R-MAT": gw.generators.rmat(14, 8, seed=1),
    "Barabási-Albert": gw.generators.barabasi_albert(1 << 14, attach=8, seed=1),
    "uniform": gw.generators.uniform(1 << 14, edges=8 << 14, seed=1),
    "Watts-Strogatz": gw.generators.watts_strogatz(1 << 14, neighbours=16, rewire=0.1, seed=1),
}

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, graph in graphs.items():
    degree = np.sort(graph.out_degree())
    share = 1 - np.arange(len(degree)) / len(degree)
    axes.loglog(degree[degree > 0], share[degree > 0], label=name, linewidth=2)
axes.set(xlabel="neighbours, at least", ylabel="share of the vertices", ylim=(4e-5, 1.3))
axes.grid(which="major", alpha=0.3)
axes.legend(frameon=False)
plt.show()

# %%
# The same as numbers:

for name, graph in graphs.items():
    degree = graph.out_degree()
    print(
        f"{name:16} mean {degree.mean():5.1f}   median {np.median(degree):4.0f}   max {degree.max():5d}"
    )
