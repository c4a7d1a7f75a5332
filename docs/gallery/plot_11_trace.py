"""
A timeline of a run
===================

``trace=`` records what each device did, and when. The file opens in Perfetto or in Chrome's
``chrome://tracing``; it is JSON, so that a picture of it is soon drawn. Here two virtual devices of the
CPU search a road network together, each its own half of it.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import godwit as gw

graph = gw.generators.road(300, 300, weights=(1, 64), seed=1)
devices = ["cpu:0", "cpu:1"]
gw.sssp(graph, 0, devices=devices)  # compiles

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "run.json"
    gw.sssp(graph, graph.highest_degree_vertex(), devices=devices, trace=path)
    events = json.loads(path.read_text())["traceEvents"]

# %%
# Events of kind ``X`` are spans: a name, the begin and the duration in microseconds, and the track that
# they belong to. Events of kind ``M`` name processes and tracks.

names = {}
for event in events:
    if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
        key = event["pid"] if event["name"] == "process_name" else (event["pid"], event["tid"])
        names[key] = event["args"]["name"]

tracks, colours = {}, {}
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: -e["dur"]):
    track = (event["pid"], event["tid"])
    row = tracks.setdefault(track, len(tracks))
    colour = colours.setdefault(event["name"], f"C{len(colours) % 10}")
    span = (event["ts"] / 1000, event["dur"] / 1000)
    axes.broken_barh([span], (row - 0.4, 0.8), color=colour, edgecolor="white", linewidth=0.5)

axes.set_yticks(range(len(tracks)), [f"{names[pid]}: {names[pid, tid]}" for pid, tid in tracks])
axes.invert_yaxis()
axes.set(xlabel="time, ms")
handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()]
figure.legend(handles, colours, loc="outside upper center", ncols=6, frameon=False)
plt.show()
