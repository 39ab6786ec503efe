"""The pictures of the page of benchmarks, made of `benchmarks/results/`: a function of `PLOTS` for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import svg
from svg import Ratio

from benchmarks.table import geomean
from benchmarks.tables import results


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture, what it shows, and the file of results that it was made of; `part` of it, where parts have commits."""

    picture: str
    about: str
    file: str
    part: str = ""

    @property
    def source(self) -> str:
        """The file, the machine and the commit."""
        d = results(self.file)
        commit = d["commits"][self.part] if self.part else d["commit"]
        machine = f"{d['machine']['cpu']}, {d['machine']['cores']} cores"
        return f"Of results/{self.file}.json: {machine}, hjit at {commit[:12]}."


def _given(rows: Iterable[dict[str, Any]], peer: str, schedule: str) -> dict[str, dict[str, Any]]:
    """By application: results that are given, fast-math, the channels as planes."""
    of = (peer, schedule, "planar", True, True)
    keys = ("peer", "schedule", "layout", "fast_math", "into")
    return {r["app"]: r for r in rows if tuple(r[k] for k in keys) == of}


def halide_by_hand() -> Plot:
    """Halide's time by hand over hjit's, by application and schedule."""
    file = "apps-medians-2-threads"
    rows: dict[str, dict[str, Ratio]] = {}
    for schedule, name in (("default", "default"), ("greedy", "greedy"), ("manual", "by hand")):
        for app, r in _given(results(file)["rows"], "hjit", schedule).items():
            x = r["ratios"]["halide manual"]
            rows.setdefault(app, {})[name] = Ratio(x["median"], x["low"], x["high"])
    about = "Compared with Halide scheduled by hand: Halide's time divided by hjit's, for hjit's schedules"
    return Plot(svg.ratios(about, "Halide's time by hand / hjit's; medians, quartiles as lines", rows), about, file)


def halide_by_autoscheduler() -> Plot:
    """The times of Halide's autoschedulers over that of hjit's greedy search."""
    file = "apps-2-threads"
    data = results(file)["rows"]
    ours = _given(data, "hjit", "greedy")
    rows: dict[str, dict[str, Ratio]] = {app: {} for app in ours}
    for schedule, name in (("adams2019", "Adams2019"), ("mullapudi2016", "Mullapudi2016")):
        for app, r in _given(data, "halide", schedule).items():
            if r["min_ms"] and ours[app]["min_ms"]:
                rows[app][name] = Ratio(r["min_ms"] / ours[app]["min_ms"])
    about = "Compared with Halide's autoschedulers: their time divided by that of hjit's greedy search"
    return Plot(svg.ratios(about, "the autoscheduler's time / hjit's; by minima", rows), about, file)


def coverage() -> Plot:
    """NumPy's time over hjit's, by package and size."""
    data = results("coverage")
    sizes = [f"{s:g}" for s in data["sizes"]]
    rows: dict[str, dict[str, Ratio]] = {}
    for package in [*dict.fromkeys(r["package"] for r in data["rows"]), "all"]:
        own = [r["speed"] for r in data["rows"] if package in ("all", r["package"]) and r.get("speed")]
        for size in sizes:
            times = geomean(s[size]["times"] for s in own if s.get(size))
            if times:
                rows.setdefault(package, {})[f"{size} MP"] = Ratio(times)
    about = "Functions of many packages at three sizes of images: NumPy's time divided by hjit's"
    return Plot(svg.ratios(about, "NumPy's time / hjit's; geometric means", rows), about, "coverage")


def mosaic() -> Plot:
    """A mosaic of Dask, by what develops it."""
    data = results("dask")["peers"]
    rows = {r["way"]: {"times as long as hjit": Ratio(r["times"], *r["times_iqr"])} for r in data["rows"]}
    about = f"A mosaic of {data['shape'][0]:,} x {data['shape'][1]:,} pixels in Dask: time divided by hjit's"
    return Plot(
        svg.ratios(about, f"time / hjit's, {data['threads']} threads; medians, quartiles as lines", rows),
        about,
        "dask",
        "peers",
    )


def model() -> Plot:
    """What the cost model says of schedules of the applications, and what they take."""
    groups: dict[str, list[svg.Point]] = {name: [] for name in ("default", "greedy", "beam", "others")}
    for r in results("model-choices")["rows"]:
        for s in r["samples"]:
            group = groups[s["origin"] if s["origin"] in groups else "others"]
            group.append((f"{r['app']}, {s['origin']}", s["predicted_ms"], s["ms"]))
    about = "Schedules of the applications: milliseconds as the cost model predicts them, and as measured"
    return Plot(svg.points(about, "predicted, ms", "measured, ms", groups), about, "model-choices")


PLOTS: dict[str, Callable[[], Plot]] = {
    "halide-by-hand": halide_by_hand,
    "halide-by-autoscheduler": halide_by_autoscheduler,
    "coverage": coverage,
    "mosaic": mosaic,
    "model": model,
}
