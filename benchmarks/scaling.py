"""A model of how the mosaic's development scales to many workers, from what was measured on two.

Chunks are worked on in waves; the scheduler hands out tasks one after the other; what neighbours need of a chunk moves
over the network, here as if no neighbour were on the same worker; and the histogram is a tree whose levels wait for
each other. Storage is as fast for each worker as it was here, up to a limit of all. The largest of what runs side by
side, and the sum of what waits, is the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
FAN_IN = 16  # of the tree


@dataclass(frozen=True, slots=True)
class Costs:
    """What is measured, and what is assumed of the cluster.

    Attributes:
        first, second: seconds of a chunk's tasks before the histogram is known, and after it.
        combine: seconds of a task of the tree.
        graph: seconds to make the graph, for each chunk.
        schedule: seconds of the scheduler for each task.
        tasks: for each chunk.
        moved: bytes that a chunk's tasks are sent by other workers, both passes together.
        stored: bytes that they read from and write to storage.
        network: bytes a second of a worker.
        latency: seconds until the first byte of another worker's.
        storage: bytes a second of all workers together.
    """

    first: float
    second: float
    combine: float
    graph: float
    schedule: float
    tasks: float
    moved: float
    stored: float
    network: float = 1.25e9
    latency: float = 1e-3
    storage: float = 50e9


@dataclass(frozen=True, slots=True)
class Row:
    """The time of a run, and what it is bound by."""

    workers: int
    chunks: int
    seconds: float
    graph: float
    compute: float
    move: float
    tree: float
    schedule: float
    storage: float
    limit: str
    efficiency: float


def predicted(costs: Costs, chunks: int, workers: int) -> Row:
    """The time of `chunks` on so many workers of one thread."""
    waves = math.ceil(chunks / workers)
    compute = waves * (costs.first + costs.second)
    move = 0.0 if workers == 1 else waves * (costs.moved / costs.network + 2 * costs.latency)
    levels = max(math.ceil(math.log(max(chunks, 2), FAN_IN)), 1)
    width = math.ceil(chunks / FAN_IN / workers)  # of the first level; the others are as good as free beside it
    tree = (levels - 1 + width) * costs.combine + (levels * costs.latency if workers > 1 else 0.0)
    schedule = chunks * costs.tasks * costs.schedule
    storage = chunks * costs.stored / costs.storage
    side_by_side = {"workers": compute + move, "the scheduler": schedule, "storage": storage}
    graph = chunks * costs.graph
    limit = max(side_by_side, key=side_by_side.__getitem__)
    total = graph + side_by_side[limit] + tree
    if graph > side_by_side[limit]:
        limit = "making the graph"
    work = chunks * (costs.first + costs.second) / workers
    return Row(workers, chunks, total, graph, compute, move, tree, schedule, storage, limit, work / total)


def table(costs: Costs, chunks: int, each: int = 64, workers: Sequence[int] = WORKERS) -> dict[str, Any]:
    """The same mosaic on more and more workers, and mosaics that grow with them: `each` chunks a worker."""
    return {
        "costs": asdict(costs),
        "same": [asdict(predicted(costs, chunks, n)) for n in workers],
        "growing": [asdict(predicted(costs, each * n, n)) for n in workers],
    }
