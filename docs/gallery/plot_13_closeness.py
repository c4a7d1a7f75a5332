"""
The centre of a road network
============================

Closeness is high where the mean distance to all other vertices is small. Searches from all vertices are
made in one call, without storing their distances.
"""

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

rows, columns = 60, 90
graph = gw.generators.road(rows, columns, keep=0.62, seed=2)
closeness = gw.closeness_centrality(graph).centrality

picture = np.where(closeness > 0.3 * closeness.max(), closeness, np.nan).reshape(rows, columns)
centre = int(closeness.argmax())

figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
image = axes.imshow(picture, cmap="magma")
axes.plot(
    centre % columns, centre // columns, "*", color="white", markersize=14, markeredgecolor="black"
)
axes.set(title="Closeness; the star is the centre", xticks=[], yticks=[])
figure.colorbar(image, label="closeness", shrink=0.85)
plt.show()
