"""Graphs on the processes of an MPI run, one a machine: ``mpiexec -n 4 python script.py``.

>>> import godwit as gw
>>> processes = gw.distributed.context()
>>> with processes.place("rmat:10") as graph:
...     gw.connected_components(graph).gather().count
145

:func:`context` joins the processes, :meth:`Processes.place` divides a graph among them, and :func:`bfs`,
:func:`sssp`, :func:`connected_components`, :func:`pagerank` and :func:`betweenness_centrality` take it.
Needs ``godwit[mpi]``.
"""

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.processes import Processes, context
from godwit.distributed.result import DistributedResult

__all__ = ["DistributedGraph", "DistributedResult", "GpuGraph", "Processes", "context"]
