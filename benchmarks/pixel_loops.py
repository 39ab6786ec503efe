"""``python -m benchmarks loops``: Python loops over pixels, as they are, beside numba's ``njit`` on the same functions.

Both compile with an empty cache; their warm calls are interleaved. Python runs once, on a part of the image, and its
time is taken to grow with the pixels.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numba
import numpy as np

import hjit
from benchmarks.functions.pixel_loops import FUNCTIONS
from benchmarks.pairs import interleaved, ratio
from benchmarks.suite import about, check_names
from benchmarks.table import geomean
from hjit.kernels.runtime.launch import cores

Array = np.ndarray[Any, Any]
SIDE, SMALL = 600, 48  # of the images, in pixels; of those of the tests
PART = 120  # of the side of what Python runs on


@dataclass(frozen=True)
class Row:
    """A function.

    Attributes:
        kind: how hjit runs it, by `explain`.
        python_s: seconds of a call of Python, estimated.
        numba_ms, hjit_ms: medians.
        times: numba's time over hjit's, the median over pairs, and its quartiles.
        numba_first_s, hjit_first_s: seconds of first calls; hjit's with its comparison with Python, on a part.
        agrees: are hjit's results Python's, on that part?
    """

    function: str
    kind: str
    python_s: float
    numba_ms: float | None
    hjit_ms: float
    times: float | None
    times_iqr: tuple[float | None, float | None]
    numba_first_s: float | None
    hjit_first_s: float
    agrees: bool


def image(side: int) -> Array:
    """A smooth grey image with noise, of bytes."""
    y, x = np.mgrid[:side, : side + 8] / 40.0
    waves = 90 * np.sin(x + np.sin(y)) * np.cos(y - 0.3 * x) + 128
    return np.clip(waves + np.random.default_rng(0).normal(0, 12, x.shape), 0, 255).astype(np.uint8)


def run(names: Sequence[str] = (), threads: int | None = None, *, small: bool = False, budget: float = 1.0) -> Any:
    """A row for each function; all if there are no names.

    Args:
        threads: of hjit; all cores if not given. numba's have one each.
        small: the size of the tests.
        budget: seconds for each of the two.
    """
    check_names("function", list(names), list(FUNCTIONS))
    given = image(SMALL if small else SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = {n: f for n, f in FUNCTIONS.items() if n in (names or FUNCTIONS)}
        return {
            **about(),
            "side": len(given),
            "rows": [asdict(_row(n, f, given, threads or cores(), budget)) for n, f in chosen.items()],
        }


def _row(name: str, f: Callable[[Array], Any], given: Array, threads: int, budget: float) -> Row:
    part = np.ascontiguousarray(given[:PART, : PART + 8])
    python, expected = _timed(f, part)
    ours = hjit.pipeline(f, cache="off", num_threads=threads, on_unsupported="break")
    hjit_first, found = _timed(ours, part)
    agrees = _alike(found, expected)
    ours(given)
    kind = str(ours.explain(given)).splitlines()[0].removeprefix(f"{name} ")
    theirs: Any = numba.njit(f)
    try:
        numba_first, _ = _timed(theirs, part)
    except Exception:  # numba does not compile it
        theirs = numba_first = None
    runs = [lambda: ours(given), *([] if theirs is None else [lambda: theirs(given)])]
    hjit_s, *numba_s = interleaved(runs, budget)
    times = ratio(numba_s[0], hjit_s) if numba_s else None
    return Row(
        name,
        kind,
        python * given.size / part.size,
        1e3 * statistics.median(numba_s[0]) if numba_s else None,
        1e3 * statistics.median(hjit_s),
        None if times is None else times.median,
        (None, None) if times is None else (times.low, times.high),
        numba_first,
        hjit_first,
        agrees,
    )


def _timed(f: Callable[[Array], Any], given: Array) -> tuple[float, Any]:
    start = time.perf_counter()
    found = f(given)
    return time.perf_counter() - start, found


def _alike(ours: Any, expected: Any) -> bool:
    """Are results equal, floats up to roundings?"""
    if isinstance(expected, list):
        return bool(ours == expected)
    return ours.dtype == expected.dtype and np.allclose(ours, expected, rtol=1e-9, atol=1e-9)


def show(numbers: Mapping[str, Any]) -> None:
    """Print a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    t = Table(box=box.SIMPLE_HEAD, title="loops over pixels", title_justify="left", padding=(0, 1, 0, 0))
    for column in ("", "Python s", "numba ms", "hjit ms", "times numba", "quartiles", "first: numba s", "hjit s", ""):
        t.add_column(column, justify="right" if column else "left")
    for r in numbers["rows"]:
        quartiles = "-".join(f"{x:.2f}" for x in r["times_iqr"] if x is not None)
        note = "" if r["kind"].startswith("runs compiled") else r["kind"].split(":")[0]
        t.add_row(
            r["function"],
            f"{r['python_s']:.2f}",
            _text(r["numba_ms"], 2),
            _text(r["hjit_ms"], 2),
            _text(r["times"], 2),
            quartiles,
            _text(r["numba_first_s"], 2),
            _text(r["hjit_first_s"], 2),
            note if r["agrees"] else "differs",
        )
    mean = geomean(r["times"] for r in numbers["rows"])
    t.add_row("geometric mean", "", "", "", _text(mean, 2), "", "", "", "")
    Console().print(t)


def _text(x: float | None, digits: int) -> str:
    return "-" if x is None else f"{x:.{digits}f}"
