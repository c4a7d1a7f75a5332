"""
An algorithm of your own: a flood
=================================

Water rises from the sea at the left edge of a landscape. At which level of the sea does it reach each
place? It must pass the highest point of its way, and takes the way whose highest point is lowest. That
is a vertex program: a vertex sends its own level, or the height of the next place if that is higher; of
several messages the least counts.
"""

import matplotlib.pyplot as plt
import numpy as np

import godwit as gw

flood = gw.VertexProgram(
    name="flood",
    dtype="float64",
    initial=float("inf"),
    message=lambda value, weight: value if value > weight else weight,
    combine="min",
    priority=lambda value: value,  # low levels first; any order gives the same result
)

# %%
# A landscape: waves of random direction. An arc's weight is the height of the place that it leads to.

rows, columns = 150, 240
generator = np.random.default_rng(7)
y, x = np.mgrid[:rows, :columns]
height = x / columns * 1.5
for wave in range(1, 40):
    angle, shift = generator.uniform(0, 2 * np.pi, 2)
    frequency = wave / 90
    height = (
        height + np.sin((np.cos(angle) * x + np.sin(angle) * y) * frequency + shift) / wave**0.8
    )
height -= height[:, 0].min()

grid = gw.generators.grid(rows, columns)
graph = gw.Graph(grid.offsets, grid.targets, height.ravel()[grid.targets])

coast = {row * columns: float(height[row, 0]) for row in range(rows)}
level = gw.run(flood, graph, coast).values.reshape(rows, columns)

# %%
# Lakes behind a ridge fill at once when the water passes it: areas of one colour on the right.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
for axes, values, title in (
    (left, height, "height of the land"),
    (right, level, "level of the sea that floods it"),
):
    image = axes.imshow(values, cmap="terrain", vmin=height.min(), vmax=height.max())
    axes.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=[left, right], shrink=0.85)
plt.show()
