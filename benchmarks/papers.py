"""``python -m benchmarks search --tables``: the tables of two papers on searching schedules, for hjit's applications.

- `anderson`: Anderson 2021, Tables 1 to 3: what hierarchical sampling, freezing and memoisation save in a beam search
  (32 states, 5 passes). States are cost evaluations. The search that decides what to freeze is included in the seconds,
  not in the states; Graphs of few stages are not frozen (`hjit.tuning.autoschedule.FEW_STAGES`). Without memoisation
  every decision computes the costs of all nests again; candidates that differ only in sizes are still one batch.
- `mb2fbs`: Gao 2022, Tables 2 and 3: two searches by MB2FBS compared with beams, all with 5 passes, without sampling or
  freezing. Expansions are those of a pass. Costs are not in the paper's units, so both are relative to the beam of 32.

Each search has its own process and a time limit, for every Graph of the call. What a stopped search has counted is a
bound: "> 120" are its seconds, and a mean over such numbers is a bound, too; "~": a mean over bounds of both kinds.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks import search
from benchmarks.table import geomean
from hjit.process import machine
from hjit.sched.search.search import Parameters, presets
from hjit.tuning.autoschedule import EFFORTS, Effort
from hjit.tuning.weights import weights

if TYPE_CHECKING:
    from rich.table import Table

LIMIT = 120.0  # seconds of one search
PASSES = 5
GRACE = 300.0  # seconds more that a process has

Row = dict[str, Any]

ANDERSON: dict[str, Effort] = {
    f"memoise {memoise}, sample {sample}, freeze {freeze}": replace(
        EFFORTS["beam"], sample=sample == "on", freeze=freeze == "on", memoise=memoise == "on"
    )
    for memoise in ("on", "off")
    for sample in ("on", "off")
    for freeze in ("on", "off")
}
ALL_OFF = "memoise off, sample off, freeze off"
NOTHING_SAMPLED = "memoise on, sample off, freeze off"
MB2FBS: dict[str, Effort] = {
    "beam 32": Effort(presets(32)["beam"], PASSES),
    "beam 64": Effort(presets(64)["beam"], PASSES),
    "mb2fbs 30, 2, inf": Effort(Parameters(30, 2), PASSES, by_depth=True),
    "mb2fbs 28, 4, 32": Effort(Parameters(28, 4, 32), PASSES, by_depth=True),
}
EFFORT = {"anderson": ANDERSON, "mb2fbs": MB2FBS}

# the papers' geometric means over their applications, in the order of the settings
STATES = (11740, 95092, 121008, 226311)
SECONDS = (7.61, 28.61, 16.92, 41.78, 24.78, 168.74, 217.94, 372.06)
SPEEDUPS = (48.92, 13.01, 21.99, 8.9, 15.01, 2.2, 1.71, 1)
COSTS = (13.29263, 13.5584, 12.963, 12.57535)
EXPANSIONS = (1674.5, 3332.1, 1834.0, 1552.0)  # these are plain means


# -- measuring


def run(
    names: Sequence[str],
    threads: Sequence[int] = (),
    *,
    small: bool = False,
    limit: float = LIMIT,
    keep: Callable[[dict[str, list[Row]]], None] = lambda found: None,
) -> dict[str, list[Row]]:
    """The rows of both tables, each search in a fresh process.

    Args:
        limit: seconds of one search.
        keep: called with what there is after each application.
    """
    from rich.console import Console

    from hjit.kernels.runtime.launch import cores
    from hjit.process.machine import bandwidth

    console = Console(stderr=True)
    found: dict[str, list[Row]] = {table: [] for table in EFFORT}
    for n in threads or (cores(),):
        for name in names:
            for table, setting in ((table, setting) for table, efforts in EFFORT.items() for setting in efforts):
                with console.status(f"{table}: {name}, {setting}"):
                    counted = _process(table, setting, name, n, small, limit, bandwidth(n))
                    found[table].append({"app": name, "setting": setting, "threads": n, **counted})
            keep(found)
    return found


def _process(table: str, setting: str, name: str, threads: int, small: bool, limit: float, bandwidth: float) -> Row:
    from benchmarks.children import reported

    most = 2 * limit + GRACE  # a call may have several Graphs
    return reported("benchmarks.papers", [table, setting, name, threads, small, limit, bandwidth], threads, most)


def measure(table: str, setting: str, name: str, threads: int, small: bool, limit: float, bandwidth: float) -> Row:
    """Search the schedules of an application with one setting; `cost`: of the schedule found, None if there is none.

    Args:
        bandwidth: of the machine, the same for all settings: costs depend on it, and it is measured.
    """
    effort = replace(EFFORT[table][setting], seconds=limit)
    weights()
    with mock.patch.object(machine, "bandwidth", lambda _: bandwidth):
        plans = [p for p, _, _ in search.plans(name, "beam", threads, small, effort)]
    records = [p.record for p in plans if p.record is not None]
    costs = [r.improvements[-1].cost if r.improvements else math.inf for r in records]
    return {
        "states": sum(r.costs for r in records),
        "expansions": sum(r.expansions for r in records) / effort.passes,
        "seconds": sum(p.seconds for p in plans),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cost": sum(costs) if math.isfinite(sum(costs)) else None,
        "stopped": any(r.stopped for r in records),
    }


# -- numbers that may be bounds


@dataclass(frozen=True, slots=True)
class Bound:
    """A number; `mark`: ">" is at least this, "<" at most, "~" neither is known, "" exact."""

    value: float
    mark: str = ""

    def __truediv__(self, other: Bound) -> Bound | None:
        """A ratio; None where nothing is known of it."""
        turned = {">": "<", "<": ">"}.get(other.mark, other.mark)
        marks = {self.mark, turned} - {""}
        return (
            Bound(self.value / other.value, marks.pop() if marks else "")
            if len(marks) < 2 and "~" not in marks and other.value
            else None
        )

    def text(self, form: str) -> str:
        return f"{self.mark} {self.value:{form}}".strip()


def mean(numbers: Iterable[Bound | None]) -> Bound | None:
    """The geometric mean of those that are known; what was stopped before it counted anything is not."""
    known = [x for x in numbers if x is not None and x.value]
    marks = {x.mark for x in known} - {""}
    value = geomean(x.value for x in known)
    return None if value is None else Bound(value, "~" if len(marks) > 1 else "".join(marks))


def bound_of(row: Row | None, key: str) -> Bound | None:
    """A number of a row. For a stopped search it bounds the cost from above, and everything else from below."""
    if row is None or row.get(key) is None:
        return None
    return Bound(row[key], "" if not row["stopped"] else "<" if key == "cost" else ">")


# -- the tables


def show(numbers: dict[str, list[Row]]) -> None:
    """Print the tables with the papers' means."""
    from rich.console import Console

    console = Console()
    console = console if console.is_terminal else Console(width=150)
    for table in tables(numbers):
        console.print(table)


def tables(numbers: dict[str, list[Row]]) -> list[Table]:
    """The tables of Anderson 2021 and Gao 2022."""
    anderson, mb2fbs = (_by_app(numbers[name]) for name in ("anderson", "mb2fbs"))
    memoised = list(ANDERSON)[:4]

    def seconds(of: dict[str, Row], setting: str) -> Bound | None:
        return bound_of(of.get(setting), "seconds")

    def part(of: dict[str, Row], setting: str, key: str, whole: str) -> Bound | None:
        own, all_ = bound_of(of.get(setting), key), bound_of(of.get(whole), key)
        return None if own is None or all_ is None else Bound(1.0) if setting == whole else own / all_

    def faster(of: dict[str, Row], setting: str) -> Bound | None:
        own, all_off = seconds(of, setting), seconds(of, ALL_OFF)
        return None if own is None or all_off is None else Bound(1.0) if setting == ALL_OFF else all_off / own

    return [
        _table(
            "Anderson 2021, Table 1: states evaluated", anderson, memoised,
            lambda of, s: bound_of(of.get(s), "states"), ",.0f", STATES,
        ),
        _table(
            "The same, relative to neither sampling nor freezing", anderson, memoised,
            lambda of, s: part(of, s, "states", NOTHING_SAMPLED), ".1%", [x / STATES[-1] for x in STATES],
        ),
        _table("Anderson 2021, Table 2: seconds of a beam search", anderson, list(ANDERSON), seconds, ".2f", SECONDS),
        _table(
            "Anderson 2021, Table 3: times faster than with all off", anderson, list(ANDERSON), faster, ".2f", SPEEDUPS,
        ),
        _table(
            "Gao 2022, Table 2: cost of the best schedule, relative to beam 32", mb2fbs, list(MB2FBS),
            lambda of, s: part(of, s, "cost", "beam 32"), ".3f", [x / COSTS[0] for x in COSTS],
        ),
        _table(
            "Gao 2022, Table 3: expansions of a pass (the paper's: plain means)", mb2fbs, list(MB2FBS),
            lambda of, s: bound_of(of.get(s), "expansions"), ",.1f", EXPANSIONS,
        ),
    ]  # fmt: skip


def _by_app(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Rows by application and setting; those that failed are left out."""
    several = len({r["threads"] for r in rows}) > 1
    found: dict[str, dict[str, Row]] = {}
    for r in rows:
        own = found.setdefault(f"{r['app']}, {r['threads']} threads" if several else r["app"], {})
        if "error" not in r:
            own[r["setting"]] = r
    return found


def _table(
    title: str,
    apps: dict[str, dict[str, Row]],
    settings: Sequence[str],
    number: Callable[[dict[str, Row], str], Bound | None],
    form: str,
    paper: Sequence[float],
) -> Table:
    """A row of numbers for each application, their geometric means, and the paper's."""
    from rich import box
    from rich.table import Table

    t = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    for column in ("", *settings):
        t.add_column(
            column.replace(", ", "\n") if column in ANDERSON else column, justify="right" if column else "left"
        )
    cells = {name: [number(of, s) for s in settings] for name, of in apps.items()}
    means = [mean(column) for column in zip(*cells.values(), strict=True)]
    for name, row in [*cells.items(), ("geometric mean", means)]:
        t.add_row(name, *("-" if x is None else x.text(form) for x in row))
    t.add_row("the paper's", *(f"{x:{form}}" for x in paper))
    return t


if __name__ == "__main__":
    from benchmarks.children import answer_whole

    answer_whole(measure)
