"""``python -m benchmarks dask``: arrays of Dask.

What the graph of a call costs a chunk; a mosaic larger than the workers' memory (`benchmarks.mosaic`) on a cluster of
two workers of 2 GB, from file to file, checked in windows against the plain function; the same, smaller, beside other
ways to write it; and from what was measured, how it would scale (`benchmarks.scaling`).
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.order import order

import hjit
from benchmarks import mosaic, scaling
from benchmarks.mosaic import RawFile
from benchmarks.pairs import interleaved, ratio
from benchmarks.suite import about, check_names

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

WORKERS, MEMORY = 2, "2GB"
WINDOWS, SIDE = 1000, 64  # of the result that are compared, and how large they are
CHUNK = 4096
PARTS = ("graph", "cluster", "peers")
PEERS_SIZE = 0.02  # gigabytes of the mosaic that is developed in several ways
PLAIN_HISTOGRAM = 0.5  # gigabytes up to which the histogram of the comparison is the plain function's
EMPTY_TASKS = 2000
PACKAGES = ("dask", "distributed", "dask-image")


def chunk_of(shape: Sequence[int]) -> int:
    """The side of chunks: eight along an axis at least."""
    return int(min(CHUNK, max(shape) // 8))


# -- the graph

GRAPH_COSTS = (("made_us", "call"), ("prepared_us", "Dask's preparation"), ("ordered_us", "Dask's order"))


def integral(x: Array) -> Any:
    """A scan along both axes."""
    return x.cumsum(0).cumsum(1)


def of_graph(chunks: int = 40, calls: int = 3, side: int = 1024) -> list[dict[str, Any]]:
    """Processor time, in microseconds a chunk: making the graph of a call; what Dask does with it before tasks run, and
    of that, apart, the order that it gives them.

    Nothing is computed, so that the image's file need not be there; each call has an image of its own. Tasks read their
    windows from it; of chunks that Dask computes they are given what they need.
    """
    file = RawFile(Path("mosaic.raw"), (chunks * side,) * 2)

    def image() -> Any:
        return da.from_array(file, chunks=side, asarray=False, meta=np.empty((0, 0), np.uint8))

    def computed() -> Any:
        return image().map_blocks(np.negative)

    developed = hjit.pipeline(mosaic.developed)
    ways: dict[str, tuple[Function, Callable[[], Any]]] = {
        "development": (developed, image),
        "development of what is computed": (developed, computed),
        "contrast alone": (hjit.pipeline(mosaic.contrast), image),
        "integral image": (hjit.pipeline(integral), image),
        "development by map_overlap": (mosaic.by_map_overlap(mosaic.contrast), image),
    }
    rows = []
    for name, (f, given_of) in ways.items():
        f(given_of())
        made, prepared, ordered = [], [], []
        for _ in range(calls):
            given = given_of()
            start = time.process_time()
            found = f(given)
            made.append(time.process_time() - start)
            start = time.process_time()
            graph = dict(da.optimize(found.__dask_graph__(), found.__dask_keys__()))
            prepared.append(time.process_time() - start)
            start = time.process_time()
            order(graph)
            ordered.append(time.process_time() - start)
        each = 1e6 / chunks**2
        rows.append(
            {
                "graph": name,
                "made_us": each * statistics.median(made),
                "prepared_us": each * statistics.median(prepared),
                "ordered_us": each * statistics.median(ordered),
                "tasks": len(graph) / chunks**2,
            }
        )
    return rows


# -- on a cluster

KINDS = (  # of tasks, by words of their keys
    ("-excerpts-", "cut out for others"),
    ("-partial-", "combine"),
    ("-partial", "histogram"),
    ("store-", "store"),
    ("array-", "load"),
    ("original-", "load"),
    ("developed-", "result"),
)


def kind_of(key: str) -> str:
    """The kind of a task; levels of the tree have a number after "partial"."""
    if re.search(r"-partial-\d", key):
        return "combine"
    return next((kind for word, kind in KINDS if word in key and kind != "combine"), "other")


def on_cluster(gigabytes: float, folder: Path, chunk: int | None = None) -> dict[str, Any]:
    """The development of a mosaic from file to file, with what the workers needed for it."""
    from distributed import Client, LocalCluster, get_task_stream, progress

    shape = mosaic.shape_of(gigabytes)
    source, target = (RawFile(folder / f"{name}.raw", shape) for name in ("mosaic", "developed"))
    start = time.perf_counter()
    share = mosaic.write_mosaic(source)
    found: dict[str, Any] = {"shape": list(shape), "written_share": share, "write_s": time.perf_counter() - start}
    target.create()
    side = chunk or chunk_of(shape)
    image = da.from_array(source, chunks=side, asarray=False, meta=np.empty((0, 0), np.uint8))
    found |= {"chunk": side, "chunks": image.npartitions, "workers": WORKERS, "memory_limit": MEMORY}
    settings = {"distributed.scheduler.dashboard.tasks.task-stream-length": 16 * image.npartitions + 10_000}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, memory_limit=MEMORY, dashboard_address=None, local_directory=folder
        ) as cluster,
        Client(cluster) as client,
    ):
        found["before_mb"] = [x / 1e6 for x in client.run(peak_memory).values()]
        start = time.perf_counter()
        lazy = hjit.pipeline(mosaic.developed)(image)
        found["call_s"] = time.perf_counter() - start
        with get_task_stream(client) as stream:
            start = time.perf_counter()
            future = client.compute(da.store(lazy, target, lock=False, compute=False))
            progress(future, notebook=False)
            future.result()
            found["run_s"] = time.perf_counter() - start
        print()
        found["peak_mb"] = [x / 1e6 for x in client.run(peak_memory).values()]
        found["moved_bytes"] = sum(client.run(received).values())
        found["spilled_bytes"] = sum(client.run(spilled).values())
        found["tasks"] = of_tasks(stream.data)
        found["empty_task_s"] = empty_tasks(client)
    found["mb_a_second"] = shape[0] * shape[1] / 1e6 / found["run_s"]
    return found | compared(source, target, side)


def peak_memory() -> int:
    """The most bytes of memory that this process had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def received(dask_worker: Any) -> int:
    """Bytes that a worker was sent by others."""
    return sum(x["total"] for x in dask_worker.transfer_incoming_log)


def spilled(dask_worker: Any) -> int:
    """Bytes of results that lie on disk."""
    total = getattr(dask_worker.data, "spilled_total", None)
    return int(total.disk) if total is not None else 0


def of_tasks(stream: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each kind of task: how many, the median and the sum of their seconds, and the bytes of a result."""
    seconds: dict[str, list[float]] = defaultdict(list)
    size: dict[str, list[int]] = defaultdict(list)
    for record in stream:
        spent = sum(x["stop"] - x["start"] for x in record["startstops"] if x["action"] == "compute")
        kind = kind_of(str(record["key"]))
        seconds[kind].append(spent)
        size[kind].append(record.get("nbytes") or 0)
    return {
        kind: {
            "count": len(x),
            "median_s": statistics.median(x),
            "total_s": sum(x),
            "median_bytes": statistics.median(size[kind]),
        }
        for kind, x in seconds.items()
    }


def nothing(k: int) -> int:
    return k


def empty_tasks(client: Any) -> float:
    """Seconds of the scheduler, workers and client for a task that does nothing."""
    start = time.perf_counter()
    client.gather(client.map(nothing, range(EMPTY_TASKS)))
    return (time.perf_counter() - start) / EMPTY_TASKS


def compared(source: RawFile, target: RawFile, chunk: int, count: int = WINDOWS) -> dict[str, Any]:
    """Windows of the result beside those of the plain function: some anywhere, at seams of chunks, at the border."""
    is_plain = source.shape[0] * source.shape[1] <= PLAIN_HISTOGRAM * 1e9
    of_strip = mosaic.contrast if is_plain else hjit.pipeline(mosaic.contrast)
    start = time.perf_counter()
    table = mosaic.table_of(mosaic.strips(source, of_strip))
    random = np.random.default_rng(0)
    differ = []
    for k in range(count):
        corner = [int(random.integers(0, n - SIDE)) for n in source.shape]
        if k % 4 == 1:  # across the corner of four chunks
            corner = [max(c // chunk * chunk - SIDE // 2, 0) for c in corner]
        elif k % 4 == 2:
            corner[k // 4 % 2] = int(random.choice([0, source.shape[0] - SIDE]))
        expected = mosaic.window(source, table, (corner[0], corner[1]), SIDE)
        found = target[corner[0] : corner[0] + SIDE, corner[1] : corner[1] + SIDE]
        differ.append(int((found != expected).sum()))
    return {
        "windows": count,
        "window_side": SIDE,
        "windows_that_differ": sum(n > 0 for n in differ),
        "pixels_that_differ": sum(differ),
        "histogram_by": "the plain function" if is_plain else "the compiled function, in strips",
        "compare_s": time.perf_counter() - start,
    }


# -- other ways


def of_peers(gigabytes: float = PEERS_SIZE, budget: float = 5.0) -> dict[str, Any]:
    """Seconds of the development of a mosaic in memory on Dask's threads, in several ways, interleaved."""
    shape = mosaic.shape_of(gigabytes)
    with tempfile.TemporaryDirectory(prefix="hjit-dask-") as folder:
        file = RawFile(Path(folder) / "mosaic.raw", shape)
        mosaic.write_mosaic(file, tile=1024)
        image = file[:]
    lazy = da.from_array(image, chunks=shape[0] // 4)
    options = {"verify": "off", "num_threads": 1}
    ways: dict[str, Function] = {
        "hjit": hjit.pipeline(mosaic.developed, **options),
        "map_overlap, hjit in blocks": mosaic.by_map_overlap(hjit.pipeline(mosaic.contrast, **options)),
        "map_overlap, NumPy in blocks": mosaic.by_map_overlap(mosaic.contrast),
    }
    try:
        import dask_image  # noqa: F401

        ways["dask-image"] = mosaic.by_dask_image
    except ImportError:
        print("dask-image is not installed: it is left out")

    def run(f: Function) -> Callable[[], Any]:
        return lambda: f(lazy).compute(scheduler="threads", num_workers=WORKERS)

    expected = mosaic.developed(image)
    differ = {name: int((run(f)() != expected).sum()) for name, f in ways.items()}
    times = dict(zip(ways, interleaved([run(f) for f in ways.values()], budget), strict=True))
    rows = []
    for name, seconds in times.items():
        r = ratio(seconds, times["hjit"])
        rows.append(
            {
                "way": name,
                "seconds": statistics.median(seconds),
                "times": r.median,
                "times_iqr": [r.low, r.high],
                "rounds": r.pairs,
                "pixels_that_differ": differ[name],
            }
        )
    return {"shape": list(shape), "threads": WORKERS, "rows": rows}


# -- scaling


def scaled(graph: Sequence[dict[str, Any]], cluster: dict[str, Any]) -> dict[str, Any]:
    """The model with what was measured."""
    tasks, chunks = cluster["tasks"], cluster["chunks"]

    def total(*kinds: str) -> float:
        """Seconds a chunk; medians, as the first tasks of each worker compile."""
        return sum(tasks[kind]["median_s"] * tasks[kind]["count"] for kind in kinds if kind in tasks) / chunks

    shared = total("load", "cut out for others", "other") / 2  # both passes load, and cut out
    cut = tasks.get("cut out for others", {}).get("median_bytes", 0.0)
    costs = scaling.Costs(
        first=shared + total("histogram"),
        second=shared + total("result", "store"),
        combine=tasks.get("combine", {}).get("median_s", 0.0),
        graph=1e-6 * sum(graph[0][name] for name, _ in GRAPH_COSTS),
        schedule=cluster["empty_task_s"],
        tasks=sum(x["count"] for x in tasks.values()) / chunks,
        moved=2 * 8 * cut,
        stored=3 * cluster["chunk"] ** 2,
    )
    return scaling.table(costs, chunks)


def run(
    gigabytes: float,
    folder: Path | None = None,
    chunk: int | None = None,
    *,
    budget: float = 5.0,
    peers_size: float = PEERS_SIZE,
    parts: Sequence[str] = PARTS,
    earlier: dict[str, Any] | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All of it, under the names of the JSON file; its "commits" are those of the parts.

    Args:
        gigabytes: of the mosaic.
        folder: for the files, which are removed.
        chunk: the side of its chunks.
        budget: seconds for each way of the comparison.
        parts: what to measure; the others are those of an earlier run.
        keep: called with what there is so far.
    """
    from importlib.metadata import PackageNotFoundError, version

    found = about()
    for name in PACKAGES:
        try:
            found["versions"][name] = version(name)
        except PackageNotFoundError:
            found["versions"][name] = "-"
    check_names("part", parts, PARTS)
    found |= {name: x for name, x in (earlier or {}).items() if name in PARTS}
    found["commits"] = (earlier or {}).get("commits", {}) | dict.fromkeys(parts, found["commit"])
    if "graph" in parts:
        found["graph"] = of_graph()
        keep(found)
    if "cluster" in parts:
        with tempfile.TemporaryDirectory(prefix="hjit-dask-", dir=folder) as inside:
            found["cluster"] = on_cluster(gigabytes, Path(inside), chunk)
        keep(found)
    if "peers" in parts:
        found["peers"] = of_peers(peers_size, budget)
    if "graph" in found and "cluster" in found:
        found["scaling"] = scaled(found["graph"], found["cluster"])
    return found


def show(numbers: dict[str, Any]) -> None:
    """Print tables."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()

    def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        t = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
        for k, column in enumerate(columns):
            t.add_column(column, justify="right" if k else "left")
        for row in rows:
            t.add_row(*row)
        console.print(t)

    if "graph" in numbers:
        table(
            "the graph, microseconds a chunk",
            ("", *(title for _, title in GRAPH_COSTS), "tasks a chunk"),
            (
                (g["graph"], *(f"{g[name]:.0f}" for name, _ in GRAPH_COSTS), f"{g['tasks']:.1f}")
                for g in numbers["graph"]
            ),
        )
    if "cluster" in numbers:
        c = numbers["cluster"]
        peak = ", ".join(f"{x:.0f}" for x in c["peak_mb"])
        print(
            f"{c['shape'][0]} x {c['shape'][1]} pixels in {c['chunks']} chunks: {c['run_s']:.1f} s, "
            f"{c['mb_a_second']:.0f} MB/s; at most {peak} MB in workers of {c['memory_limit']}, "
            f"{c['spilled_bytes'] / 1e6:.0f} MB spilled, {c['moved_bytes'] / 1e6:.1f} MB moved"
        )
        print(
            f"{c['windows']} windows of {c['window_side']} x {c['window_side']} beside the whole-array result: "
            f"{c['windows_that_differ']} differ, in {c['pixels_that_differ']} pixels"
        )
        table(
            "tasks",
            ("", "tasks", "median ms", "all s"),
            (
                (kind, f"{x['count']:.0f}", f"{1e3 * x['median_s']:.2f}", f"{x['total_s']:.1f}")
                for kind, x in c["tasks"].items()
            ),
        )
    if "peers" in numbers:
        p = numbers["peers"]
        table(
            f"{p['shape'][0]} x {p['shape'][1]} pixels in memory, {p['threads']} threads",
            ("", "seconds", "times hjit's", "quartiles", "pixels that differ"),
            (
                (
                    r["way"],
                    f"{r['seconds']:.3f}",
                    f"{r['times']:.2f}",
                    "-".join(f"{x:.2f}" for x in r["times_iqr"] if x is not None),
                    str(r["pixels_that_differ"]),
                )
                for r in p["rows"]
            ),
        )
    if "scaling" in numbers:
        for name, title in (("same", "the same mosaic, modelled"), ("growing", "64 chunks a worker, modelled")):
            table(
                title,
                ("workers", "chunks", "seconds", "efficiency", "bound by"),
                (
                    (str(r["workers"]), str(r["chunks"]), f"{r['seconds']:.1f}", f"{r['efficiency']:.0%}", r["limit"])
                    for r in numbers["scaling"][name]
                ),
            )
