"""The tasks of examples/first_hour.py: answers equal those of NetworkX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import godwit as gw
from test_vertex_program import example

tasks = example("first_hour")


@pytest.fixture(scope="module")
def roads() -> Any:
    return nx.from_pandas_edgelist(tasks.ROADS, "from", "to", ["km", "hours"])


@pytest.fixture(scope="module")
def big() -> tuple[gw.Graph, Any]:
    graph = tasks.big_graph()
    return graph, graph.to_networkx()


def highest(values: dict[Any, float], count: int) -> list[Any]:
    return [pytest.approx(value) for value in sorted(values.values(), reverse=True)[:count]]


def test_analyst(roads: Any, tmp_path: Path) -> None:
    read = tasks.read_csv_with_names(tmp_path)
    assert {frozenset(edge) for edge in read.to_networkx().edges} == set(
        map(frozenset, roads.edges)
    )
    assert all(read.edge_weight(u, v) == km for u, v, km in roads.edges(data="km"))

    central = nx.betweenness_centrality(roads)
    assert [value for _, value in tasks.most_central_cities()] == highest(central, 3)
    assert all(value == pytest.approx(central[city]) for city, value in tasks.most_central_cities())
    closeness = nx.closeness_centrality(roads, distance="km")
    assert tasks.closest_to_all_others()[0][1] == pytest.approx(max(closeness.values()))
    assert dict(tasks.closest_to_all_others()) == pytest.approx(closeness)

    assert tasks.path_between_names() in nx.all_shortest_paths(roads, "Hamburg", "Jena")
    assert tasks.fastest_route() == nx.dijkstra_path(roads, "Bremen", "Leipzig", "hours")
    hours = nx.single_source_dijkstra_path_length(roads, "Bremen", weight="hours")
    assert tasks.hours_to_all_cities() == pytest.approx(hours)

    sums = [roads.subgraph(nodes).size("km") for nodes in nx.connected_components(roads)]
    assert sorted(tasks.kilometres_per_component().values()) == sorted(sums)
    assert tasks.ego_network() == set(nx.ego_graph(roads, "Jena"))
    main = max(nx.connected_components(roads), key=len)
    assert nx.utils.edges_equal(
        tasks.main_network().to_networkx().edges, roads.subgraph(main).edges
    )
    ranks = nx.get_node_attributes(tasks.results_as_attributes(), "rank")
    assert ranks == pytest.approx(nx.pagerank(roads, weight="km", tol=1e-9), abs=1e-5)


def test_user_of_big_graphs(roads: Any, big: tuple[gw.Graph, Any]) -> None:
    graph, same = big
    expected = nx.pagerank(
        roads, 0.9, personalization={"Ulm": 2, "Bonn": 1}, weight="km", max_iter=1000, tol=1e-9
    )
    assert tasks.personalized_ranks() == pytest.approx(expected, abs=1e-5)

    table: pd.DataFrame = tasks.distances_table(graph, 0).dropna(subset="distance")
    found = dict(zip(table["vertex"], table["distance"], strict=True))
    assert found == dict(nx.single_source_dijkstra_path_length(same, 0))

    sampled = tasks.sampled_distances(graph)
    unreached = np.iinfo(sampled.distance.dtype).max
    for source, row in zip((0, 5, 9), sampled.distance.tolist(), strict=True):
        lengths = nx.single_source_shortest_path_length(same, source)
        assert [lengths.get(target, unreached) for target in (1, 2, 3)] == row

    sizes = [len(nx.node_connected_component(same, source)) for source in (0, 1, 2)]
    assert tasks.many_queries(graph) == sizes
    assert tasks.components_in_scipy(graph) == nx.number_connected_components(same)
    hubs = nx.eigenvector_centrality_numpy(
        same.subgraph(max(nx.connected_components(same), key=len))
    )
    assert [vertex for vertex, _ in tasks.hubs_of(graph)] == sorted(hubs, key=hubs.__getitem__)[
        :-6:-1
    ]


def test_researcher(roads: Any, big: tuple[gw.Graph, Any]) -> None:
    tree = nx.maximum_spanning_tree(roads, "km")  # its paths are the widest
    paths = nx.single_source_shortest_path(tree, "Hamburg")
    widths = {
        city: min((roads[u][v]["km"] for u, v in nx.utils.pairwise(path)), default=1000)
        for city, path in paths.items()
    }
    assert {city: width for city, width in tasks.widest_roads().items() if width > 0} == widths

    from_both = [nx.single_source_shortest_path_length(roads, one) for one in ("Hamburg", "Ulm")]
    levels = {city: min(length[city] for length in from_both) for city in from_both[0]}
    assert {city: level for city, level in tasks.levels().items() if level < 2**31 - 1} == levels

    lengths = nx.single_source_dijkstra_path_length(roads, "Hamburg", weight="km")
    assert tasks.verified_distances().to_dict() == lengths
    assert tasks.same_on_devices(big[0])


def test_fields_by_name() -> None:
    graph = tasks.roads()
    kilometres = tasks.verified_distances().to_dict()
    given = {city: kilometres.get(city, -1) for city in graph.ids}
    program = gw.StepProgram(
        "add", fields={"km": "int64"}, steps=[gw.frontier.compute("km", lambda km: km + 1)]
    )
    found = program.run(graph, fields={"km": given}).to_dict()
    assert found == {city: value + 1 for city, value in given.items()}
    with pytest.raises(
        gw.errors.InputError, match=r"keys of field 'km' must be all .* 'Catania' is"
    ):
        program.run(graph, fields={"km": kilometres})
