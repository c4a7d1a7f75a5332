"""Twenty tasks of a first hour with Godwit, a function each; vertices go in and come out by name.

The first ten are those of an analyst with tables, the next six those of a user of big graphs, and the
last four those of a researcher who writes algorithms. tests/test_first_hour.py compares the answers with
those of NetworkX. Run it: python examples/first_hour.py
"""

import tempfile
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
from scipy.sparse.csgraph import connected_components

import godwit as gw

ROADS = pd.DataFrame(
    [
        ("Berlin", "Hamburg", 289, 2.9),
        ("Berlin", "Leipzig", 190, 2.0),
        ("Leipzig", "Jena", 100, 1.1),
        ("Jena", "Ulm", 390, 3.9),
        ("Hamburg", "Bremen", 126, 1.3),
        ("Bremen", "Bonn", 345, 3.4),
        ("Bonn", "Ulm", 380, 3.8),
        ("Bonn", "Kassel", 230, 2.6),
        ("Kassel", "Jena", 180, 2.1),
        ("Palermo", "Catania", 208, 2.3),
    ],
    columns=["from", "to", "km", "hours"],
)


def roads(weight: str | None = "km") -> gw.Graph:
    """Return the roads as a graph, weighted by one of the columns."""
    return gw.Graph.from_table(ROADS, "from", "to", weight, directed=False)


# An analyst with pandas and NetworkX


def read_csv_with_names(folder: Path) -> gw.Graph:
    """Read a graph from a CSV file with names."""
    ROADS.to_csv(folder / "roads.csv", index=False)
    return gw.read(folder / "roads.csv", columns=["from", "to", "km"], directed=False)


def most_central_cities() -> list[tuple[str, float]]:
    """Return the three cities that most shortest paths lead through."""
    return gw.betweenness_centrality(roads(), weighted=False).highest(3)


def path_between_names() -> list[str]:
    """Return a path with the fewest roads."""
    return gw.bfs(roads(), "Hamburg").path_to("Jena")


def fastest_route() -> list[str]:
    """Return the route of the least hours."""
    return gw.sssp(roads("hours"), "Bremen").path_to("Leipzig")


def hours_to_all_cities() -> dict[str, float]:
    """Return the hours from a city to all that it reaches."""
    return gw.sssp(roads("hours"), "Bremen").to_dict()


def kilometres_per_component() -> dict[str, int]:
    """Group a DataFrame by connected components."""
    component = ROADS["from"].map(gw.connected_components(roads()).to_dict())
    return ROADS.groupby(component)["km"].sum().to_dict()


def closest_to_all_others() -> list[tuple[str, float]]:
    """Return the ten cities of highest closeness, by kilometres."""
    return gw.closeness_centrality(roads()).highest(10)


def ego_network() -> set[str]:
    """Return a city and its neighbours."""
    graph = roads()
    return set(graph.subgraph(graph.neighborhood("Jena", hops=1)).ids)


def main_network() -> gw.Graph:
    """Return the largest connected component as a graph."""
    return roads().largest_component()


def results_as_attributes() -> nx.Graph:
    """Return a graph of NetworkX whose nodes have PageRank as an attribute."""
    graph = roads()
    nodes = graph.to_networkx()
    nx.set_node_attributes(nodes, gw.pagerank(graph).to_dict(), "rank")
    return nodes


# A user of big graphs, who knows cuGraph


def big_graph() -> gw.Graph:
    """Return a synthetic graph."""
    return gw.generators.rmat(10, weights=(1, 64), seed=1)


def personalized_ranks() -> dict[str, float]:
    """Return PageRank that restarts at two cities."""
    ranks = gw.pagerank(roads(), damping=0.9, personalization={"Ulm": 2, "Bonn": 1})
    return ranks.to_dict()


def distances_table(graph: gw.Graph, source: int) -> pd.DataFrame:
    """Return distances and predecessors as a DataFrame."""
    return gw.sssp(graph, source).to_frame()


def sampled_distances(graph: gw.Graph) -> gw.DistancesResult:
    """Return the distances between some vertices, by numbers of arcs."""
    return gw.distances(graph, sources=[0, 5, 9], targets=[1, 2, 3], weighted=False)


def many_queries(graph: gw.Graph) -> list[int]:
    """Return how many vertices each of several searches reaches, on one placed graph."""
    with gw.place(graph) as placed:
        return [int(gw.bfs(placed, source).reached.sum()) for source in (0, 1, 2)]


def components_in_scipy(graph: gw.Graph) -> int:
    """Pass the adjacency matrix to SciPy."""
    return int(connected_components(graph.to_scipy())[0])


def hubs_of(graph: gw.Graph) -> list[tuple[int, float]]:
    """Return the five vertices of highest eigenvector centrality."""
    return gw.eigenvector_centrality(graph, weighted=False).highest(5)


# A researcher who writes algorithms

WIDEST = gw.VertexProgram(
    "widest path",
    combine="max",
    message=lambda value, weight: min(value, weight),  # noqa: PLW0108 (operators go by names)
    priority=lambda value: -value,
    dtype="int64",
)

LEVELS = gw.StepProgram(
    name="levels",
    fields={"level": ("int32", 2**31 - 1)},
    numbers={"now": ("int64", 0)},
    steps=[
        gw.frontier.compute("level", lambda: 0),
        gw.frontier.repeat(
            [
                gw.frontier.assign("now", lambda now: now + 1),
                gw.frontier.advance("level", lambda now: now, "min"),
            ],
            until=lambda size: size == 0,
        ),
    ],
)


def widest_roads() -> dict[str, int]:
    """Run a vertex program from a city: the longest road that the shortest road of a path can be."""
    return gw.run(WIDEST, roads(), {"Hamburg": 1000}).to_dict()


def levels() -> dict[str, int]:
    """Run a step program from two cities: the number of roads from the nearest."""
    return LEVELS.run(roads(), frontier=["Hamburg", "Ulm"]).to_dict("level")


def verified_distances() -> gw.PathResult:
    """Return distances that were checked by an independent verifier."""
    graph = roads()
    result = gw.sssp(graph, "Hamburg")
    gw.verify_sssp(graph, result)
    return result


def same_on_devices(graph: gw.Graph) -> bool:
    """Return True if a result is the same on one device and on two."""
    one = gw.sssp(graph, 0, devices="cpu").distance
    return bool((one == gw.sssp(graph, 0, devices=["cpu:0", "cpu:1"]).distance).all())


def main() -> None:
    """Print the answers."""
    graph = big_graph()
    with tempfile.TemporaryDirectory() as folder:
        print(read_csv_with_names(Path(folder)))
    for task in (
        most_central_cities, path_between_names, fastest_route, hours_to_all_cities,
        kilometres_per_component, closest_to_all_others, ego_network, main_network, results_as_attributes,
        personalized_ranks, widest_roads, levels, verified_distances,
    ):  # fmt: skip
        print(f"{task.__name__}: {task()}")
    for of_graph in (
        sampled_distances,
        many_queries,
        components_in_scipy,
        hubs_of,
        same_on_devices,
    ):
        answer: Any = of_graph(graph)
        print(f"{of_graph.__name__}: {answer}")
    print(distances_table(graph, 0).head())


if __name__ == "__main__":
    main()
