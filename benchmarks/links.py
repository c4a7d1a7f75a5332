"""What links and routers reach of the copy engines, what a small message costs, and collectives by NCCL.

    python benchmarks/links.py --json links.json        # all of it, on all GPUs
    python benchmarks/links.py --only copies,small --megabytes 256
    python benchmarks/links.py --devices cpu:0,cpu:1 --only small,collectives    # does it work?

Sections: copies (links, and routers from one to one, against the same copies made by plain
cudaMemcpyAsync in one stream, packet by packet, in the same run: up, down, both at once, from GPU to GPU
pushed and pulled; of ordinary memory, too; --packets 1,4,16: only in packets of so many megabytes; clocks
run from when workers are started, or, "running", from when a worker that runs already sends), small
(messages of 4 KB between two endpoints, over a link and over a router: time a message when many follow each
other, and a round trip), routers (the host's array to whoever is free, and to all), costs (of the calls
that a message is made of, in the host's time), collectives (over links, and by NCCL, by size).

Times are medians of 5 after one that is left out; of every link it is checked that all arrives.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.dataflow import collectives
from godwit.runtime.cuda import driver
from links_copies import KB, MB, PACKETS, Row, copies, on_gpu, pinned, timed

SMALL = 4 * KB


# --- Small messages.


@contextmanager
def connected(context: Any, kind: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    """There and back between the first two endpoints: what is sent into, and received from."""
    one, other = context.endpoints[:2]
    if kind == "link":
        there, back = (gw.Link(*ends, packet_bytes=SMALL) for ends in ((one, other), (other, one)))
        yield there, there, back, back
    else:
        routers = [gw.Router([a], [b], packet_bytes=SMALL) for a, b in ((one, other), (other, one))]
        yield (
            routers[0].input(one), routers[0].output(other),
            routers[1].input(other), routers[1].output(one),
        )  # fmt: skip


def small(names: Sequence[str], count: int) -> Iterator[Row]:
    if len(names) < 2:
        return
    for kind in ("link", "router"):
        arrays = small_arrays(names)
        row: Row = {"section": "small", "what": kind, "bytes": SMALL}
        for name, run in (
            ("us_a_message", many),
            ("us_a_round_trip", round_trips),
            ("us_one_thread", one_thread),
        ):
            row[name] = 1e6 * timed(partial(run, names, kind, arrays, count)) / count
        yield row


def many(names: Sequence[str], kind: str, arrays: Any, count: int) -> float:
    """One after the other, as fast as they go."""
    with gw.Context(list(names[:2])) as context, connected(context, kind) as ways:
        there, arrived = ways[0], ways[1]

        def send() -> None:
            for _ in range(count):
                there.send(arrays[0])

        def receive() -> None:
            for segment in arrived:
                segment.release()
            context.endpoints[1].space.record_event().wait()

        begin = perf_counter()
        with context.workers() as workers:
            workers.start(context.endpoints[0], send)
            workers.start(context.endpoints[1], receive)
        return perf_counter() - begin


def round_trips(names: Sequence[str], kind: str, arrays: Any, count: int) -> float:
    """Each answered before the next; a quarter of them, counted as if they were all."""
    rounds = max(1, count // 4)
    with gw.Context(list(names[:2])) as context, connected(context, kind) as ways:
        there, arrived, back, returned = ways

        def lead() -> None:
            for _ in range(rounds):
                there.send(arrays[0])
                with returned.receive().wait():
                    pass
            there.shutdown()

        def answer() -> None:
            for segment in arrived:
                segment.wait()
                segment.release()
                back.send(arrays[1])

        begin = perf_counter()
        with context.workers() as workers:
            workers.start(context.endpoints[0], lead)
            workers.start(context.endpoints[1], answer)
        return (perf_counter() - begin) / rounds * count


def one_thread(names: Sequence[str], kind: str, arrays: Any, count: int) -> float:
    """Sent and received by turns in the caller's thread: what both cost together, without a switch."""
    with gw.Context(list(names[:2])) as context, connected(context, kind) as ways:
        there, arrived = ways[0], ways[1]
        stream = context.endpoints[1].stream
        with context.endpoints[0].space.entered():
            begin = perf_counter()
            for _ in range(count):
                pending = arrived.receive()
                there.send(arrays[0])
                (pending.wait() if stream is None else pending.wait_on(stream)).release()
            context.endpoints[1].space.record_event().wait()
            return perf_counter() - begin


def small_arrays(names: Sequence[str]) -> list[Any]:
    return [
        on_gpu(int(name[5:]), SMALL) if name.startswith("cuda") else np.ones(SMALL, np.uint8)
        for name in names[:2]
    ]


# --- Costs of calls.


def costs(names: Sequence[str], count: int) -> Iterator[Row]:
    gpus = [name for name in names if name.startswith("cuda")]
    if not gpus:
        return
    with gw.Context(gpus) as context:
        space = context.endpoints[0].space
        lane = space.lane()
        block = space.allocate(SMALL)
        view = block.view(np.uint8, (SMALL,))
        far = on_gpu(int(gpus[-1][5:]), SMALL)
        locked, ordinary = pinned(SMALL), np.ones(SMALL, np.uint8)
        event = space.record_event()
        what: dict[str, Callable[[], Any]] = {
            "event": space.record_event,
            "event and order": lambda: space.record_event().wait_on(space.stream),
            "view": lambda: block.view(np.uint8, (SMALL,)),
            "take, with its event": lambda: space.take(view),
            "copy from GPU": lambda: lane.copy(far, block.address, ()),
            "copy after an event": lambda: lane.copy(far, block.address, (event,)),
            "copy from page-locked": lambda: lane.copy(locked, block.address, ()),
            "copy from ordinary": lambda: lane.copy(ordinary, block.address, ()),
            "done": event.done,
        }
        with space.entered():
            for name, call in what.items():

                def many(call: Callable[[], Any] = call) -> float:
                    begin = perf_counter()
                    for _ in range(count):
                        call()
                    seconds = perf_counter() - begin
                    lane.copy(locked, block.address, ()).wait()
                    return seconds

                yield {"section": "costs", "what": name, "us": 1e6 * timed(many) / count}
        lane.close()
        block.free()


# --- Routers.


def routers(names: Sequence[str], nbytes: int, packets: Sequence[int]) -> Iterator[Row]:
    """The host's array to one GPU or more, and to two endpoints of the first."""
    gpus = [name for name in names if name.startswith("cuda")]
    if not gpus:
        return
    array = pinned(nbytes)
    groups = [gpus[:count] for count in range(1, len(gpus) + 1)] + [[gpus[0]] * 2]
    for policy, packet in product(("any", "broadcast"), packets):
        for ends in groups:

            def run(policy: str = policy, packet: int = packet, ends: Any = ends) -> float:
                with gw.Context(ends) as context:
                    router = gw.Router(
                        [context.host], context.endpoints, policy, packet_bytes=packet
                    )
                    got = dict.fromkeys(context.endpoints, 0)

                    def receive(endpoint: Any) -> None:
                        for segment in router.output(endpoint):
                            got[endpoint] += segment.array.nbytes
                            segment.release()
                        endpoint.space.record_event().wait()

                    begin = perf_counter()
                    with context.workers() as workers:
                        workers.each(context.endpoints, receive)
                        workers.start(context.host, router.input(context.host).send, array)
                    seconds = perf_counter() - begin
                    copies = len(ends) if policy == "broadcast" else 1
                    assert sum(got.values()) == nbytes * copies
                    return seconds

            copied = nbytes * (len(ends) if policy == "broadcast" else 1)
            yield {
                "section": "routers", "what": policy, "packet_bytes": packet,
                "gpus": len(set(ends)), "endpoints": len(ends),
                "gb_per_s": copied / timed(run) / 1e9,
            }  # fmt: skip


# --- Collectives.


def collective_rows(names: Sequence[str], most: int) -> Iterator[Row]:
    if len(names) < 2:
        return
    ways: list[Any] = ["links"]
    gpus = all(name.startswith("cuda") for name in names)
    with gw.Context(list(names)) as context:
        if gpus:
            begin = perf_counter()
            try:
                collectives.all_reduce(context, values(names, 4), collective="nccl")
                ways.append("nccl")
                seconds = perf_counter() - begin
                yield {
                    "section": "collectives",
                    "what": "NCCL's set-up",
                    "bytes": 0,
                    "nccl_us": 1e6 * seconds,
                }
            except gw.errors.DeviceError as error:
                print(f"# no NCCL: {error}", file=sys.stderr)
        for nbytes in (4 * KB, 64 * KB, MB, 16 * MB, 256 * MB, 1024 * MB):
            if nbytes > most:
                continue
            arrays = values(names, nbytes // 4)
            calls: dict[str, Callable[[Any], Any]] = {
                "all_reduce": lambda way, arrays=arrays: collectives.all_reduce(
                    context, arrays, collective=way
                ),
                "broadcast": lambda way, arrays=arrays: collectives.broadcast(
                    context, arrays[0], collective=way
                ),
                "reduce": lambda way, arrays=arrays: collectives.reduce(
                    context, arrays, collective=way
                ),
            }
            for name, call in calls.items():
                found: Row = {"section": "collectives", "what": name, "bytes": nbytes}
                for way in ways:
                    found[f"{way}_us"] = 1e6 * timed(lambda call=call, way=way: void(call(way)))
                yield found


def void(_: Any) -> None:
    return


def values(names: Sequence[str], count: int) -> list[Any]:
    found = []
    for name in names:
        if name.startswith("cuda"):
            found.append(on_gpu(int(name[5:]), 4 * count).view(np.float32))
        else:
            found.append(np.ones(count, np.float32))
    return found


# --- Tables.


def show(rows: Sequence[Row]) -> None:
    """A table a section."""
    for section in dict.fromkeys(one["section"] for one in rows):
        chosen = [one for one in rows if one["section"] == section]
        columns = [
            name for name in dict.fromkeys(k for one in chosen for k in one) if name != "section"
        ]
        print(f"\n# {section}\n" + " | ".join(columns))
        for one in chosen:
            print(" | ".join(readable(one.get(name)) for name in columns))


def readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", help="names with commas between; all GPUs, if none is named")
    parser.add_argument("--only", default="costs,small,routers,copies,collectives")
    parser.add_argument("--megabytes", type=int, default=512, help="of an array that is copied")
    parser.add_argument(
        "--packets", help="sizes in megabytes, with commas between; by default many"
    )
    parser.add_argument("--messages", type=int, default=2000, help="small ones")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--json", help="a file for the figures")
    given = parser.parse_args()
    names = (
        given.devices.split(",")
        if given.devices
        else [f"cuda:{index}" for index in range(driver.device_count())]
    )
    if not names:
        parser.error(f"{driver.why_not()}: name --devices, such as cpu:0,cpu:1")
    nbytes = given.megabytes * MB
    packets: Sequence[int] = PACKETS
    routed: Sequence[int] = (16 * MB,)
    if given.packets:
        packets = routed = tuple(int(float(size) * MB) for size in given.packets.split(","))
    sections: dict[str, Callable[[], Iterator[Row]]] = {
        "costs": lambda: costs(names, given.messages),
        "small": lambda: small(names, given.messages),
        "routers": lambda: routers(names, nbytes, routed),
        "copies": lambda: copies(names, nbytes, packets),
        "collectives": lambda: collective_rows(names, nbytes),
    }
    chosen = given.only.split(",")
    for section in chosen:
        if section not in sections:
            parser.error(f"--only takes {', '.join(sections)}, not {section!r}")
    begin = perf_counter()
    rows: list[Row] = []
    for section in chosen:
        for found in sections[section]():
            rows.append(found)
            print("#", json.dumps(found), file=sys.stderr)
            if perf_counter() - begin > given.budget_s:
                print("# not all: out of time (--budget-s)", file=sys.stderr)
                break
        if given.json:
            with open(given.json, "w") as file:
                json.dump({"devices": names, "rows": rows}, file, indent=1)
    show(rows)


if __name__ == "__main__":
    main()
