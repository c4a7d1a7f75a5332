"""Connected components by hooking and pointer jumping.

A vertex' label names a vertex of its component, initially itself, so labels represent trees. In each round,
roots of trees get smaller labels along arcs (hooking), and then every label is replaced by the label of its
label until all name roots (Soman, Kothapalli, Narayanan: "A fast GPU algorithm for graph connectivity",
2010). The number of rounds is small also for graphs of large diameter. Directed graphs are symmetrized. Run
it: python examples/connected_components.py [FILE]
"""

import sys

import numpy as np

import godwit as gw

COMPONENTS = gw.StepProgram(
    name="components",
    fields={"label": ("int64", "vertex")},
    numbers={"hooked": "int64"},
    steps=[
        gw.frontier.repeat(
            [
                gw.frontier.filter(lambda: True, of="all"),
                gw.frontier.advance(
                    "label",
                    lambda label: label,
                    "min",
                    at="label_at_target",
                    keep=lambda label, label_at_target: label < label_at_target,
                ),
                gw.frontier.assign("hooked", lambda size: size),
                gw.frontier.repeat(
                    [
                        gw.frontier.filter(
                            lambda label, label_at_label: label != label_at_label, of="all"
                        ),
                        gw.frontier.compute("label", lambda label_at_label: label_at_label),
                    ],
                    until=lambda size: size == 0,
                ),
            ],
            until=lambda hooked: hooked == 0,
        )
    ],
)


def connected_components(graph: gw.Graph, **options) -> np.ndarray:
    """Return the smallest vertex of every vertex's component, int64 (n); ignores directions."""
    if graph.directed:
        graph = graph.symmetrize()
    return COMPONENTS.run(graph, **options).fields["label"]


if __name__ == "__main__":
    graph = gw.read(sys.argv[1]) if len(sys.argv) > 1 else gw.generators.rmat(14, 4, seed=1)
    label, sizes = np.unique(connected_components(graph), return_counts=True)
    print(f"{len(label)} components, the largest of {sizes.max(initial=0)} vertices")
