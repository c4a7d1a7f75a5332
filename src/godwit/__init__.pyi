"""The public names, each with its module. ``__init__.py`` reads them from this file at run time."""

from godwit import distributed as distributed
from godwit import errors as errors
from godwit import frontier as frontier
from godwit.algorithms.betweenness import betweenness_centrality as betweenness_centrality
from godwit.algorithms.betweenness.result import BetweennessResult as BetweennessResult
from godwit.algorithms.betweenness.verify import (
    verify_betweenness_centrality as verify_betweenness_centrality,
)
from godwit.algorithms.bfs import bfs as bfs
from godwit.algorithms.closeness import closeness_centrality as closeness_centrality
from godwit.algorithms.closeness import harmonic_centrality as harmonic_centrality
from godwit.algorithms.closeness.result import ClosenessResult as ClosenessResult
from godwit.algorithms.coloring import greedy_color as greedy_color
from godwit.algorithms.coloring.result import ColoringResult as ColoringResult
from godwit.algorithms.coloring.verify import verify_greedy_color as verify_greedy_color
from godwit.algorithms.communities import label_propagation as label_propagation
from godwit.algorithms.communities import leiden as leiden
from godwit.algorithms.communities import louvain as louvain
from godwit.algorithms.communities import modularity as modularity
from godwit.algorithms.communities.result import CommunitiesResult as CommunitiesResult
from godwit.algorithms.communities.verify import verify_communities as verify_communities
from godwit.algorithms.components import connected_components as connected_components
from godwit.algorithms.components import (
    connected_components_of_edges as connected_components_of_edges,
)
from godwit.algorithms.components.result import ComponentsResult as ComponentsResult
from godwit.algorithms.components.verify import (
    verify_connected_components as verify_connected_components,
)
from godwit.algorithms.core import core_number as core_number
from godwit.algorithms.core import k_core as k_core
from godwit.algorithms.core import k_shell as k_shell
from godwit.algorithms.core.result import CoreResult as CoreResult
from godwit.algorithms.core.verify import verify_core_number as verify_core_number
from godwit.algorithms.diameter import diameter_bounds as diameter_bounds
from godwit.algorithms.distances import distances as distances
from godwit.algorithms.distances.result import DistancesResult as DistancesResult
from godwit.algorithms.eccentricity import EccentricityResult as EccentricityResult
from godwit.algorithms.eccentricity import eccentricity as eccentricity
from godwit.algorithms.eigenvector import eigenvector_centrality as eigenvector_centrality
from godwit.algorithms.filtering import filter as filter
from godwit.algorithms.filtering.verify import verify_filter as verify_filter
from godwit.algorithms.hits import hits as hits
from godwit.algorithms.independent_set import maximal_independent_set as maximal_independent_set
from godwit.algorithms.independent_set.result import IndependentSetResult as IndependentSetResult
from godwit.algorithms.independent_set.verify import (
    verify_maximal_independent_set as verify_maximal_independent_set,
)
from godwit.algorithms.katz import katz_centrality as katz_centrality
from godwit.algorithms.pagerank import pagerank as pagerank
from godwit.algorithms.pagerank.result import PageRankResult as PageRankResult
from godwit.algorithms.pagerank.verify import verify_pagerank as verify_pagerank
from godwit.algorithms.paths.result import PathResult as PathResult
from godwit.algorithms.paths.verify import verify_bfs as verify_bfs
from godwit.algorithms.paths.verify import verify_sssp as verify_sssp
from godwit.algorithms.power_iteration.result import CentralityResult as CentralityResult
from godwit.algorithms.power_iteration.result import HitsResult as HitsResult
from godwit.algorithms.power_iteration.verify import (
    verify_eigenvector_centrality as verify_eigenvector_centrality,
)
from godwit.algorithms.power_iteration.verify import verify_hits as verify_hits
from godwit.algorithms.power_iteration.verify import (
    verify_katz_centrality as verify_katz_centrality,
)
from godwit.algorithms.random_walks import random_walks as random_walks
from godwit.algorithms.random_walks.neighbors import NeighborSample as NeighborSample
from godwit.algorithms.random_walks.neighbors import sample_neighbors as sample_neighbors
from godwit.algorithms.random_walks.verify import verify_random_walks as verify_random_walks
from godwit.algorithms.similarity import adamic_adar as adamic_adar
from godwit.algorithms.similarity import jaccard as jaccard
from godwit.algorithms.similarity import overlap as overlap
from godwit.algorithms.similarity import resource_allocation as resource_allocation
from godwit.algorithms.similarity import sorensen as sorensen
from godwit.algorithms.similarity.result import SimilarityResult as SimilarityResult
from godwit.algorithms.similarity.verify import verify_similarity as verify_similarity
from godwit.algorithms.spanning_forest import minimum_spanning_forest as minimum_spanning_forest
from godwit.algorithms.spanning_forest.result import SpanningForestResult as SpanningForestResult
from godwit.algorithms.spanning_forest.verify import (
    verify_minimum_spanning_forest as verify_minimum_spanning_forest,
)
from godwit.algorithms.sssp import sssp as sssp
from godwit.algorithms.strong_components import Condensation as Condensation
from godwit.algorithms.strong_components import condensation as condensation
from godwit.algorithms.strong_components import (
    strongly_connected_components as strongly_connected_components,
)
from godwit.algorithms.strong_components.verify import (
    verify_strongly_connected_components as verify_strongly_connected_components,
)
from godwit.algorithms.topological import is_directed_acyclic_graph as is_directed_acyclic_graph
from godwit.algorithms.topological import topological_generations as topological_generations
from godwit.algorithms.topological.result import GenerationsResult as GenerationsResult
from godwit.algorithms.topological.verify import (
    verify_topological_generations as verify_topological_generations,
)
from godwit.algorithms.triangles import average_clustering as average_clustering
from godwit.algorithms.triangles import clustering as clustering
from godwit.algorithms.triangles import transitivity as transitivity
from godwit.algorithms.triangles import triangles as triangles
from godwit.algorithms.triangles.result import ClusteringResult as ClusteringResult
from godwit.algorithms.triangles.result import TrianglesResult as TrianglesResult
from godwit.algorithms.triangles.verify import verify_clustering as verify_clustering
from godwit.algorithms.triangles.verify import verify_triangles as verify_triangles
from godwit.algorithms.truss import k_truss as k_truss
from godwit.algorithms.truss import truss_number as truss_number
from godwit.algorithms.truss.result import TrussResult as TrussResult
from godwit.algorithms.truss.verify import verify_truss_number as verify_truss_number
from godwit.dataflow import collectives as collectives
from godwit.dataflow import policies as policies
from godwit.dataflow.context import Context as Context
from godwit.dataflow.endpoint import Endpoint as Endpoint
from godwit.dataflow.item_router import ItemLink as ItemLink
from godwit.dataflow.item_router import ItemRouter as ItemRouter
from godwit.dataflow.kernel_sizing import kernel_sizing as kernel_sizing
from godwit.dataflow.link import Link as Link
from godwit.dataflow.policies import Policy as Policy
from godwit.dataflow.policies import every as every
from godwit.dataflow.receiver import PendingSegment as PendingSegment
from godwit.dataflow.receiver import Segment as Segment
from godwit.dataflow.router import Router as Router
from godwit.frontier.explorer import explore as explore
from godwit.frontier.program import StepProgram as StepProgram
from godwit.frontier.program import StepResult as StepResult
from godwit.graph import generators as generators
from godwit.graph.csr import Graph as Graph
from godwit.graph.generators.spec import generate as generate
from godwit.graph.partition import Partition as Partition
from godwit.graph.partition import partition as partition
from godwit.io.datasets import dataset as dataset
from godwit.io.datasets import datasets as datasets
from godwit.io.graph_files import read as read
from godwit.io.graph_files import write as write
from godwit.placement import PlacedGraph as PlacedGraph
from godwit.runtime.gpu_options import GpuOptions as GpuOptions
from godwit.runtime.random_numbers import random as random
from godwit.runtime.registry import all_devices as all_devices
from godwit.runtime.statistics import RunStatistics as RunStatistics
from godwit.supersteps.place import place as place
from godwit.trace import Trace as Trace
from godwit.worker.options import WorkerOptions as WorkerOptions
from godwit.worker.program import VertexProgram as VertexProgram
from godwit.worker.solve import Solution as Solution
from godwit.worker.solve import run as run
from godwit.worker.worklist import DistributedWorklist as DistributedWorklist

__version__: str
