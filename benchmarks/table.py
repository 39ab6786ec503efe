"""The applications' numbers as a table: median milliseconds over rounds, into a given array; median ratios over pairs.

"By hand" is the schedule that was written by hand, and nothing else: an application that has none has no number there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.pairs import Ratio
from benchmarks.rows import COPY

BANDWIDTH_BOUND = ("blur", "blur_large", "unsharp", "camera_pipe")
COLUMNS = (
    ("NumPy", "numpy", None, None),
    ("OpenCV", "opencv", None, None),
    ("numba", "numba", None, None),
    ("jax", "jax", None, None),
    ("Halide by hand", "halide", "manual", None),
    ("Adams2019", "halide", "adams2019", None),
    ("Mullapudi2016", "halide", "mullapudi2016", None),
    ("strict, by hand", "hjit", "manual", False),
    ("strict, default", "hjit", "default", False),
    ("fast, by hand", "hjit", "manual", True),
    ("fast, default", "hjit", "default", True),
    ("fast, greedy", "hjit", "greedy", True),
    ("fast, refined", "hjit", "refined", True),
    ("fast, beam", "hjit", "beam", True),
)

BESIDE = ("manual", "default")  # schedules of hjit that stand beside Halide's by hand
BESIDE_A_COPY = {
    "hjit by hand": ("hjit", "manual", True),
    "by default": ("hjit", "default", True),
    "Halide by hand": ("halide", "manual"),
}

Row = dict[str, Any]


def one(rows: Iterable[Row], peer: str, schedule: str | None = None, fast_math: bool | None = None) -> Row | None:
    """The row of a peer and schedule; into a given array, where the peer can do that."""
    found = [
        r
        for r in rows
        if r["peer"] == peer
        and r["schedule"] == schedule
        and fast_math in (None, r.get("fast_math"))
        and r.get("median_ms") is not None
    ]
    return next((r for r in found if r["into"]), next(iter(found), None))


def ratio(rows: Iterable[Row], schedule: str, reference: str = "halide manual") -> Ratio | None:
    """The time of Halide scheduled by hand over hjit's with fast_math, by the pairs of their rounds."""
    ours = one(rows, "hjit", schedule, True)
    found = ours["ratios"].get(reference) if ours else None
    return Ratio(**found) if found else None


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
        shown = [c for c in COLUMNS if any(one(rows, *c[1:]) for rows in mine.values())]
        t = Table(
            box=box.SIMPLE_HEAD,
            title=f"ms, {threads} thread{'s' if threads > 1 else ''}",
            title_justify="left",
            padding=(0, 1, 0, 0),
        )
        t.add_column("")
        for c in shown:
            t.add_column(c[0], justify="right")
        t.add_column("Halide by hand / fast, by hand (quartiles)", justify="right")
        t.add_column("/ fast, default", justify="right")
        for (app, layout), rows in mine.items():
            ratios = [ratio(rows, s) for s in BESIDE]
            t.add_row(
                _title(app, layout),
                *[_ms(one(rows, *c[1:])) for c in shown],
                *["-" if x is None else x.text() for x in ratios],
            )
        t.add_section()
        t.add_row(
            "geometric mean",
            *[""] * len(shown),
            *[mean_text([ratio(rows, s) for rows in mine.values()]) for s in BESIDE],
        )
        with_both = [r for rows in mine.values() if None not in (r := [ratio(rows, s) for s in BESIDE])]
        t.add_row(
            "of those by hand",
            *[""] * len(shown),
            *map(mean_text, zip(*with_both, strict=True) if with_both else ([], [])),
        )
        console.print(t)
        for line in bandwidth(numbers, threads):
            console.print(line, highlight=False)
    for line in faults(numbers):
        console.print(line, highlight=False, markup=False)


def mean_text(ratios: Sequence[Ratio | None]) -> str:
    """The geometric mean of the medians, and of how many."""
    mean = geomean(None if x is None else x.median for x in ratios)
    return "-" if mean is None else f"{mean:.2f} (of {sum(x is not None for x in ratios)})"


def bandwidth(numbers: dict[str, Any], threads: int) -> list[str]:
    """The times of memory-bound applications, relative to a copy of as many bytes in the same rounds."""
    found = []
    for (n, app, layout), rows in groups(numbers).items():
        floor = one(rows, COPY)
        if n != threads or app not in BANDWIDTH_BOUND or floor is None:
            continue
        beside = [(name, one(rows, *which)) for name, which in BESIDE_A_COPY.items()]
        times = [
            f"{name} {r['median_ms']:.3g} ms ({1 / r['ratios'][COPY]['median']:.2f} times)" for name, r in beside if r
        ]
        if times:
            moved = f"{floor['bytes'] / 1e6:.1f} MB must move, a copy of them {floor['median_ms']:.3g} ms"
            head = f"{_title(app, layout)}: {moved}"
            found.append(f"{head}; {', '.join(times)}")
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
    return f"{row['median_ms']:.3g}" + ("" if row["agrees"] else " [red]disagrees[/]")
