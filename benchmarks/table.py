"""The applications' numbers as a table to read: milliseconds, the least of all runs, into an array given."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from benchmarks.rows import COPY

BANDWIDTH_BOUND = ("blur", "blur_large", "unsharp", "camera_pipe")
COLUMNS = (
    ("NumPy", "numpy", None, None),
    ("OpenCV", "opencv", None, None),
    ("numba", "numba", None, None),
    ("jax", "jax", None, None),
    ("Halide manual", "halide", "manual", None),
    ("Adams2019", "halide", "adams2019", None),
    ("Mullapudi2016", "halide", "mullapudi2016", None),
    ("hjit strict", "hjit", None, False),
    ("hjit fast", "hjit", None, True),
    ("fast, default", "hjit", "default", True),
    ("fast, greedy", "hjit", "greedy", True),
    ("fast, refined", "hjit", "refined", True),
    ("fast, beam", "hjit", "beam", True),
)

Row = dict[str, Any]


def best(rows: Iterable[Row], peer: str, schedule: str | None = None, fast_math: bool | None = None) -> Row | None:
    """The fastest of the rows that match; into a given array, where the peer can do that."""
    found = [
        r
        for r in rows
        if r["peer"] == peer and schedule in (None, r["schedule"]) and fast_math in (None, r.get("fast_math")) and r.get("min_ms") is not None
    ]
    into = [r for r in found if r["into"]]
    return min(into or found, key=lambda r: r["min_ms"], default=None)


def ratio(rows: Iterable[Row], schedule: str | None) -> float | None:
    """The time of Halide scheduled by hand over hjit's with fast_math."""
    rows = list(rows)
    theirs, ours = best(rows, "halide", "manual"), best(rows, "hjit", schedule, True)
    return theirs["min_ms"] / ours["min_ms"] if theirs and ours else None


def groups(numbers: dict[str, Any]) -> dict[tuple[int, str, str], list[Row]]:
    """The rows by threads, application and layout."""
    found: dict[tuple[int, str, str], list[Row]] = {}
    for r in numbers["rows"]:
        found.setdefault((r["threads"], r["app"], r["layout"]), []).append(r)
    return found


def geomean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are there."""
    there = [math.log(v) for v in values if v is not None]
    return math.exp(sum(there) / len(there)) if there else None


def show(numbers: dict[str, Any]) -> None:
    """Print a table for each number of threads, what memory allows, and what went wrong."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=170)  # a file has room
    all_rows = groups(numbers)
    for threads in dict.fromkeys(k[0] for k in all_rows):
        mine = {(app, layout): rows for (n, app, layout), rows in all_rows.items() if n == threads}
        shown = [c for c in COLUMNS if any(best(rows, *c[1:]) for rows in mine.values())]
        t = Table(box=box.SIMPLE_HEAD, title=f"ms, {threads} thread{'s' if threads > 1 else ''}", title_justify="left", padding=(0, 1, 0, 0))
        t.add_column("")
        for c in shown:
            t.add_column(c[0], justify="right")
        t.add_column("Halide manual / hjit fast", justify="right")
        t.add_column("/ default", justify="right")
        for (app, layout), rows in mine.items():
            ratios = [ratio(rows, None), ratio(rows, "default")]
            t.add_row(_title(app, layout), *[_ms(best(rows, *c[1:])) for c in shown], *map(_times, ratios))
        means = [geomean(ratio(rows, s) for rows in mine.values()) for s in (None, "default")]
        t.add_section()
        t.add_row("geometric mean", *[""] * len(shown), *map(_times, means))
        console.print(t)
        for line in bandwidth(numbers, threads):
            console.print(line, highlight=False)
    for line in faults(numbers):
        console.print(line, highlight=False, markup=False)


def bandwidth(numbers: dict[str, Any], threads: int) -> list[str]:
    """The times of applications that do little more than move memory, against a copy of as many bytes in the same run."""
    found = []
    for (n, app, layout), rows in groups(numbers).items():
        ours, floor = best(rows, "hjit", None, True), best(rows, COPY)
        if n != threads or app not in BANDWIDTH_BOUND or ours is None or floor is None:
            continue
        theirs = best(rows, "halide", "manual")
        also = f", Halide manual {theirs['min_ms']:.3g} ms ({theirs['min_ms'] / floor['min_ms']:.2f} times)" if theirs else ""
        text = f"{_title(app, layout)}: {ours['bytes'] / 1e6:.1f} MB must move, a copy of them {floor['min_ms']:.3g} ms"
        found.append(f"{text}; hjit {ours['min_ms']:.3g} ms ({ours['min_ms'] / floor['min_ms']:.2f} times){also}")
    return found


def faults(numbers: dict[str, Any]) -> list[str]:
    """A line for each row that failed or disagrees with NumPy."""
    found = []
    for r in numbers["rows"]:
        fast = {True: "fast", False: "strict"}.get(r.get("fast_math"), "") if r["peer"] == "hjit" else ""
        name = " ".join(filter(None, [_title(r["app"], r["layout"]), r["peer"], r["schedule"], fast]))
        if r.get("error"):
            found.append(f"{name}: {r['error']}")
        elif r.get("agrees") is False:
            found.append(f"{name}{' into' if r['into'] else ''}: disagrees with NumPy")
    return list(dict.fromkeys(found))


def _title(app: str, layout: str) -> str:
    return app if layout == "planar" else f"{app} ({layout.replace('_', ' ')})"


def _ms(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"{row['min_ms']:.3g}" + ("" if row["agrees"] else " [red]disagrees[/]")


def _times(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}x"
