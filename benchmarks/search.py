"""``python -m benchmarks search``: what searching the applications' schedules costs.

Each search runs in a fresh process; the median of three is reported.

For every application: `us_per_schedule`, `schedules` (cost evaluations), `us_per_featurised`, `featurised` (those whose
features were computed; of the others the costs of all nests were known), `greedy_s` (`refined_s`, `beam_s`),
`peak_mb` (of the process when the search ends), and `cost` (seconds that the cost model predicts), all of the graphs of
one call together. The machine's bandwidth, which is measured once and kept, is known before.
"""

from __future__ import annotations

import contextlib
import math
import resource
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import apps
from benchmarks.table import geomean

if TYPE_CHECKING:
    from hjit.sched.search.nest_costs import SearchCounters
    from hjit.sched.search.space import Space
    from hjit.tuning.autoschedule import Effort
    from hjit.tuning.plans import Plan

TIMEOUT = 1800  # seconds of one application
REPEATS = 3  # on shared cores the same search may take three times as long as a moment before

Row = dict[str, Any]


def run(names: Sequence[str], efforts: Sequence[str], threads: Sequence[int] = (), *, small: bool = False) -> list[Row]:
    """A row for each application, effort and number of threads."""
    from benchmarks.children import reported
    from hjit.kernels.runtime.launch import cores

    found = []
    for n in threads or (cores(),):
        for name in names:
            for effort in efforts:
                request = [name, effort, n, small]
                runs = [reported("benchmarks.search", request, n, TIMEOUT) for _ in range(REPEATS)]
                failed = next((x for x in runs if "error" in x), None)
                found.append({"app": name, "tune": effort, "threads": n, **(failed or middle(runs))})
    return found


def middle(runs: Sequence[Row]) -> Row:
    """The search with the median of the time for a schedule; on shared cores the fastest is luck."""
    return sorted(runs, key=lambda x: x["us_per_schedule"] or math.inf)[len(runs) // 2]


class _Searched(BaseException):
    """Enough is known: what was found need not be compiled. Nothing on the way takes it for an error."""


def plans(
    name: str, tune: str, threads: int, small: bool, effort: Effort | None = None
) -> list[tuple[Plan, int, float]]:
    """What a search of an application's schedules decides on: the plans of its Graphs, each with its number of stages.

    And with the megabytes that the process has had at most when the search ends. Nothing is compiled.

    Args:
        effort: if not that of `tune`.
    """
    import numpy as np

    import hjit
    from hjit.tuning import autoschedule, decide

    module = apps.load(name)
    arguments = module.inputs(np.random.default_rng(0), module.SMALL if small else module.SHAPE)
    found: list[tuple[Plan, int, float]] = []
    real, of_all = autoschedule.searched, decide.found_or_searched

    def searched(segment: Any, *more: Any, **named: Any) -> Plan:
        found.append((real(segment, *more, **{"effort": effort, **named}), len(segment.graph.stages), _peak()))
        return found[-1][0]

    def scheduled(*given: Any) -> Any:
        of_all(*given)
        raise _Searched

    f = hjit.pipeline(getattr(module, name), tune=tune, num_threads=threads, cache="off", verify="off", blas=False)
    autoschedule.searched, decide.found_or_searched = searched, scheduled
    try:
        with contextlib.suppress(_Searched):
            f.graph(*arguments)
    finally:
        autoschedule.searched, decide.found_or_searched = real, of_all
    return found


def _peak() -> float:
    """The most memory that this process has had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def counted_searches() -> Iterator[list[SearchCounters]]:
    """What the searches have done that are made meanwhile."""
    from hjit.tuning import autoschedule

    found: list[SearchCounters] = []
    real = autoschedule.space_of

    def space_of(*given: Any, **named: Any) -> Space:
        space = real(*given, **named)
        found.append(space.counters)
        return space

    autoschedule.space_of = space_of
    try:
        yield found
    finally:
        autoschedule.space_of = real


def measure(name: str, effort: str, threads: int, small: bool) -> Row:
    """Search the schedules of an application."""
    from hjit.process import machine
    from hjit.tuning.weights import weights

    weights()
    machine.bandwidth(threads)
    before = _peak()
    with counted_searches() as counters:
        found = plans(name, effort, threads, small)
    records = [p.record for p, _, _ in found if p.record is not None]
    count = sum(p.evaluations for p, _, _ in found)
    featurised = sum(x.featurised for x in counters)
    seconds = sum(p.seconds for p, _, _ in found)
    return {
        "stages": sum(n for _, n, _ in found),
        "schedules": count,
        f"{effort}_s": seconds,
        "us_per_schedule": 1e6 * seconds / count if count else None,
        "featurised": featurised,
        "us_per_featurised": 1e6 * seconds / featurised if featurised else None,
        "expansions": sum(r.expansions for r in records),
        "peak_mb": max((mb for _, _, mb in found), default=before),
        "before_mb": before,
        "cost": sum(p.cost for p, _, _ in found),
        "by_default": all(p.tree is None for p, _, _ in found),
    }


def show(rows: Sequence[Row]) -> None:
    """Print a table of the searches."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    t = Table(box=box.SIMPLE_HEAD, title="search", title_justify="left", padding=(0, 1, 0, 0))
    for column in ("", "stages", "schedules", "us / schedule", "us / featurised", "s", "peak MB", "predicted ms", ""):
        t.add_column(column, justify="right" if column else "left")
    for r in rows:
        if "error" in r:
            t.add_row(f"{r['app']} {r['tune']}", *[""] * 7, r["error"])
            continue
        us, each = ("-" if x is None else f"{x:.0f}" for x in (r["us_per_schedule"], r["us_per_featurised"]))
        numbers = (str(r["stages"]), str(r["schedules"]), us, each, f"{r[r['tune'] + '_s']:.2f}", f"{r['peak_mb']:.0f}")
        t.add_row(
            f"{r['app']} {r['tune']}",
            *numbers,
            f"{1e3 * r['cost']:.3g}",
            "the default schedule" if r["by_default"] else "",
        )
    for effort in dict.fromkeys(r["tune"] for r in rows):
        means = [
            geomean(r.get(column) for r in rows if r["tune"] == effort)
            for column in ("us_per_schedule", "us_per_featurised")
        ]
        t.add_row(f"geometric mean {effort}", "", "", *("-" if x is None else f"{x:.0f}" for x in means), *[""] * 4)
    console = Console()
    (console if console.is_terminal else Console(width=130)).print(t)


if __name__ == "__main__":
    from benchmarks.children import answer_whole

    answer_whole(measure)
