"""``python -m benchmarks coverage``: functions of many packages, one after the other, as `hjit.pipeline` runs them.

For each of `benchmarks.functions.TABLES`: does it run compiled as a whole, with breaks, or plain; how far its results
are from NumPy's; how long its first call takes, and that of a second process; how fast later calls are, relative to
NumPy, at several sizes, and how much of their time is in kernels. Each function has processes of its own, with a limit.
Rows are kept in a JSON file, in which those that ran replace those of the same name, each with the commit and the day
that it was measured at; the page in Markdown is made of all of them.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import math
import os
import re
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import functions
from benchmarks.children import answer, row_of_child
from benchmarks.overhead import commit_named
from benchmarks.pairs import interleaved, ratio
from benchmarks.suite import ROOT, about
from benchmarks.table import geomean
from hjit.kernels.runtime import kernel, launch
from hjit.report.equality import difference, text
from hjit.report.kinds import BREAKS, KINDS, PLAIN, WHOLE, row_of

SIZES = (0.1, 1.0, 6.0)  # megapixels
LIMIT = 180.0  # seconds of a function's process, for each size
TABLE = ROOT / "docs/coverage.md"
RESULTS = ROOT / "benchmarks/results/coverage.json"
SETTLING = 3  # calls whose results are compared
SETTLED = 24  # calls after which hjit has decided what runs; fewer where they take longer than `SETTLING_SECONDS`
SETTLING_SECONDS = 10.0
SAMPLE_SECONDS = 5e-4  # between two looks at where a call is
SAMPLED_SECONDS = 0.3  # of calls that are looked at
FAR = 1e-6  # relative to the largest magnitude: results that are further apart are listed
BEHIND = 0.95  # of NumPy's speed
_INSTALLED = re.compile(rf"[^\s(]*/site-packages/|{re.escape(str(ROOT))}/")  # where this machine has its packages
PACKAGES = ("scikit-image", "scipy", "colour-science", "colour-demosaicing", "sewar")


# -- one function, in its own process


def measure(
    path: str, arguments: str, sizes: Sequence[float], seconds: float, again: bool, write: Callable[[Any], None]
) -> None:
    """Run a function, and write what is found, bit by bit: dictionaries that make up its row.

    Args:
        seconds: for timing each way; 0: nothing is timed.
        again: of a second process, whose cache is that of the first: its first call is all that is measured.
    """
    import hjit

    warnings.simplefilter("ignore")
    f = functions.load(path)
    p = hjit.pipeline(f, on_unsupported="break").quiet()
    if again:
        given = functions.arguments(arguments, functions.images(sizes[0]))
        write(dict(zip(("second_process", "second_process_cpu"), first_call(p, given)[1], strict=True)))
        return
    apart, speeds = 0.0, {}
    for k, size in enumerate(sizes):
        given = functions.arguments(arguments, functions.images(size))
        apart = max(apart, compared(p, f, given, {} if k else {"first": write}))
        found = row_of(path, p)
        known = {"apart": apart if math.isfinite(apart) else None, "results": text(apart)}
        if not k:
            known |= {"kind": found.kind, "why": _INSTALLED.sub("", found.why), "parts": found.parts}
        write({**known, "verified": found.verified, "flipped": found.flipped})
        if seconds:
            speeds[f"{size:g}"] = speed(p, f, given, seconds)
            write({"speed": speeds, "runs_numpy": p.stats.slower > 0})


def compared(p: Any, f: Callable[..., Any], given: Any, first: dict[str, Callable[[Any], None]]) -> float:
    """How far results of the first calls are from NumPy's, changed arguments included."""
    apart = 0.0
    for k in range(SETTLING):
        plain, compiled = copy.deepcopy(given), copy.deepcopy(given)
        expected = f(*plain[0], **plain[1])
        got, took = first_call(p, compiled)
        if k == 0 and first:
            first["first"](dict(zip(("first_call", "first_call_cpu"), took, strict=True)))
        apart = max(apart, difference((expected, *plain), (got, *compiled)))
    return apart


def first_call(p: Any, given: Any) -> tuple[Any, tuple[float, float]]:
    """The result of a call, and its seconds: by the clock, and of the processor."""
    start, cpu = time.perf_counter(), time.process_time()
    got = p(*given[0], **given[1])
    return got, (round(time.perf_counter() - start, 4), round(time.process_time() - cpu, 4))


def share_in_kernels(call: Callable[[], object], seconds: float = SAMPLED_SECONDS) -> float:
    """How much of the time of calls is in compiled kernels, by samples of where this thread is; 0 to 1.

    The rest is Python's, NumPy's, extern functions', and what hjit does around kernels.
    """
    own, is_over = threading.get_ident(), threading.Event()
    samples: Counter[bool] = Counter()

    def look() -> None:
        while not is_over.wait(SAMPLE_SECONDS):
            samples[sys._current_frames()[own].f_code.co_filename in _KERNEL_CALLS] += 1

    usual = sys.getswitchinterval()
    sys.setswitchinterval(SAMPLE_SECONDS / 5)  # what holds the GIL is seen as soon as what releases it
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    end = time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            call()
    finally:
        is_over.set()
        looking.join()
        sys.setswitchinterval(usual)
    return samples[True] / max(samples.total(), 1)


_KERNEL_CALLS = {kernel.__file__, launch.__file__}  # the modules that call machine code


def speed(p: Any, f: Callable[..., Any], given: Any, seconds: float) -> dict[str, Any]:
    """NumPy's time over hjit's, by the median of interleaved pairs of calls; each has arguments of its own.

    They change places after half of the time: what the pages of an array are costs a short function up to a tenth.
    """
    mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
    end = time.perf_counter() + SETTLING_SECONDS
    for _ in range(SETTLED):
        p(*mine[0], **mine[1])
        if time.perf_counter() > end:
            break
    plain: list[float] = []
    compiled: list[float] = []
    for a, b in ((theirs, mine), (mine, theirs)):
        calls = [functools.partial(f, *a[0], **a[1]), functools.partial(p, *b[0], **b[1])]
        for times, more in zip((plain, compiled), _pairs(*interleaved(calls, seconds / 2)), strict=True):
            times += more
    found = ratio(plain, compiled)
    share = share_in_kernels(functools.partial(p, *mine[0], **mine[1]))
    return {
        "times": found.median,
        "low": found.low,
        "high": found.high,
        "pairs": found.pairs,
        "plain_ms": 1e3 * min(plain),
        "in_kernels": round(share, 3),
    }


def _pairs(a: list[float], b: list[float]) -> tuple[list[float], list[float]]:
    """Those of both: one of them may have run more often."""
    n = min(len(a), len(b))
    return a[:n], b[:n]


# -- all functions


def row_for(
    package: str,
    path: str,
    arguments: str,
    sizes: Sequence[float],
    seconds: float,
    limit: float,
    cache: Path,
    end: float = math.inf,
) -> dict[str, Any] | None:
    """The row of a function, from processes of its own; None where `end`, a time of `time.monotonic`, came first."""
    row: dict[str, Any] = {"package": package, "function": path}
    for again in (False, True) if seconds else (False,):
        own, left = limit * len(sizes), max(0.0, end - time.monotonic())
        request = [path, arguments, list(sizes), seconds, again]
        variables = {**os.environ, "HJIT_CACHE_DIR": str(cache), "MPLBACKEND": "agg"}
        found, error = row_of_child("benchmarks.coverage", request, cache / "row.jsonl", variables, min(own, left))
        if error is None and left < own:
            return None
        row |= found
        if error != "":
            return row | {"error": f"ended at its limit of {own:.0f} s" if error is None else error}
    return row


def chosen(only: Sequence[str]) -> list[tuple[str, str, str]]:
    """Package, function and arguments of those whose package or name has one of these words; no words: of all."""
    found = [(package, path, text) for package, table in functions.TABLES.items() for path, text in table.items()]
    return [x for x in found if not only or any(word in x[0] or word in x[1] for word in only)]


def due(row: Mapping[str, Any] | None, missing: bool, older_than: str) -> bool:
    """Does a run measure this function, whose row this is?

    Args:
        row: None: it has none.
        missing: runs those without times.
        older_than: runs those that were measured at another commit than this one; empty: is not asked for.
    """
    without_times = row is None or not row.get("speed")
    elsewhere = row is None or row.get("commit") != older_than
    return (missing and without_times) or (older_than != "" and elsewhere) or not (missing or older_than)


def run(
    sizes: Sequence[float] = SIZES,
    only: Sequence[str] = (),
    *,
    seconds: float = 1.0,
    limit: float = LIMIT,
    earlier: Mapping[str, Any] | None = None,
    missing: bool = False,
    older_than: str = "",
    minutes: float = math.inf,
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All rows, under the names of the JSON file.

    Args:
        only: words of packages or functions.
        seconds: for timing each way; 0: nothing is timed.
        earlier: the numbers of earlier runs; rows of functions that are not run now stay.
        missing, older_than: which rows are measured again, see `due`; a commit by any name that git knows.
        minutes: when to stop; a function that is not ready by then keeps the row that it has.
        keep: called with what there is after each function.

    Raises:
        ValueError: the earlier rows are of another machine.
    """
    head = heading()
    if earlier:
        _check_machine(earlier["machine"], head["machine"])
    end = time.monotonic() + 60 * minutes
    rows = {row["function"]: row for row in (earlier or {}).get("rows", ())}
    stamp = {"commit": short(head["commit"]), "date": datetime.now(UTC).date().isoformat()}
    resolved = short(commit_named(older_than)) if older_than else ""
    wanted = [x for x in installed(chosen(only)) if due(rows.get(x[1]), missing, resolved)]

    def numbers(head: Mapping[str, Any]) -> dict[str, Any]:
        return {**head, **_measured(rows.values(), sizes), "rows": _in_order(rows.values())}

    found = numbers(earlier or head)  # the versions are those of the last run that measured something
    with tempfile.TemporaryDirectory(prefix="hjit-coverage-") as folder:
        if wanted and minutes > 0:  # the machine's facts
            row_for("", "benchmarks.functions.bands.savi", "nir, red", [0.1], 0, limit, Path(folder), end)
        for k, (package, path, arguments) in enumerate(wanted):
            row = row_for(package, path, arguments, sizes, seconds, limit, Path(folder), end)
            if row is None:
                print(f"{len(wanted) - k} of {len(wanted)} functions are left: the time is over", file=sys.stderr)
                break
            rows[path] = row | stamp
            print(line_of(row), flush=True)
            found = numbers(head)
            keep(found)
    return found


def heading() -> dict[str, Any]:
    """The machine, the commit, and the versions, those of the packages among them."""
    found = about()
    for name in PACKAGES:
        try:
            found["versions"][name] = version(name)
        except PackageNotFoundError:
            found["versions"][name] = "-"
    return found


def _check_machine(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for fact in ("cpu", "cores"):
        if then.get(fact) != now[fact]:
            raise ValueError(
                f"the rows of this file are of another machine ({fact}: {then.get(fact)}, here {now[fact]}): "
                "give another file by --json"
            )


def _measured(rows: Iterable[Mapping[str, Any]], sizes: Sequence[float]) -> dict[str, Any]:
    """At which sizes there are times, and whether there are any; without: the sizes of the calls."""
    timed = {float(size) for row in rows for size in row.get("speed", {})}
    return {"sizes": sorted(timed) or list(sizes), "is_timed": bool(timed)}


def _in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as `functions.TABLES` has them, those that it has no longer last."""
    order = {path: k for k, (_, path, _) in enumerate(chosen(()))}
    return sorted(rows, key=lambda row: order.get(row["function"], len(order)))


def installed(some: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Those that are installed; packages of the others are said."""
    there = [x for x in some if importlib.util.find_spec(x[1].partition(".")[0]) is not None]
    for package in dict.fromkeys(x[0] for x in some if x not in there):
        print(f"{package} is not installed: its functions are left out", file=sys.stderr)
    return there


def short(commit: str) -> str:
    """A commit by its first seven digits, with what follows a ``+``."""
    digits, plus, changes = commit.partition("+")
    return digits[:7] + plus + changes


def line_of(row: dict[str, Any]) -> str:
    """What is printed of a row while others are measured."""
    times = "  ".join(f"{size} MP: {s['times']:.2f}x" for size, s in row.get("speed", {}).items())
    parts = (row["function"], row.get("kind", "?"), row.get("results", ""), times, row.get("error", ""))
    return "  ".join(part for part in parts if part)


# -- the table


def markdown(numbers: dict[str, Any]) -> str:
    """The table as a page of Markdown."""
    rows, sizes = numbers["rows"], [f"{size:g}" for size in numbers["sizes"]]
    machine, versions = numbers["machine"], numbers["versions"]
    lines = [
        "# What runs how",
        "",
        f"`python -m benchmarks coverage` decorated {len(rows)} functions of {len({r['package'] for r in rows})}",
        "packages and kinds of code with `hjit.pipeline` and called them on images.",
        "**Whole**: one call is compiled kernels.",
        "**With breaks**: Python runs the function, and compiled parts of it. **Plain**: NumPy runs it, as nothing of",
        "it can be compiled, or as NumPy is faster. Results: the largest difference from NumPy's, relative to the",
        "largest magnitude.",
        "",
        f"{machine['cpu']}, {machine['cores']} cores; Python {versions['python']}, NumPy {versions['numpy']}, hjit "
        f"{versions['hjit']}.",
        *_commits(rows),
        "",
    ]
    if numbers["is_timed"]:
        lines += ["Speed: NumPy's time divided by hjit's, at megapixels; the median of interleaved pairs of calls.", ""]
        lines += _first_calls(rows)
    else:
        lines += ["Nothing was timed: first calls and speeds are left out.", ""]  # times would be noise
        sizes = []
    lines += [*_summary(rows, sizes), ""]
    for package in dict.fromkeys(row["package"] for row in rows):
        lines += [f"## {package}", "", *_functions([row for row in rows if row["package"] == package], sizes), ""]
    return "\n".join(lines)


def _commits(rows: Sequence[dict[str, Any]]) -> list[str]:
    """At which commits rows were measured, and when: a line for those with times, and one for those without."""

    def counted(some: Sequence[dict[str, Any]]) -> str:
        at = Counter((row.get("commit", "?"), row.get("date", "?")) for row in some)
        days = sorted(at.items(), key=lambda item: item[0][::-1], reverse=True)
        return ", ".join(f"{n} at {commit} ({date})" for (commit, date), n in days)

    timed = [row for row in rows if row.get("speed")]
    untimed = [row for row in rows if not row.get("speed")]
    parts = (("Functions with times", timed), ("Functions without times", untimed))
    return [f"{name}: {counted(some)}." for name, some in parts if some]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def _summary(rows: Sequence[dict[str, Any]], sizes: Sequence[str]) -> list[str]:
    def cells(name: str, some: Sequence[dict[str, Any]]) -> list[str]:
        counts = [str(sum(row.get("kind") == kind for row in some)) for kind in KINDS]
        far = sum(row.get("apart") is None or row["apart"] > FAR for row in some if "results" in row)
        failed = sum("error" in row for row in some)
        times = [[row["speed"][s]["times"] for row in some if s in row.get("speed", {})] for s in sizes]
        return [
            name,
            str(len(some)),
            *counts,
            str(far),
            str(failed),
            *(f"{geomean(t):.2f}" if t else "" for t in times),
        ]

    packages = {row["package"]: [r for r in rows if r["package"] == row["package"]] for row in rows}
    head = ["package", "functions", *KINDS, f"further apart than {FAR:g}", "failed", *(f"{s} MP" for s in sizes)]
    return _table(head, [*(cells(name, some) for name, some in packages.items()), cells("all", rows)])


def _functions(rows: Sequence[dict[str, Any]], sizes: Sequence[str]) -> list[str]:
    def cells(row: dict[str, Any]) -> list[str]:
        why = (row.get("error") or row.get("why", "")).partition("\n")[0].replace("|", "\\|")
        first = [_seconds(row, "first_call"), _seconds(row, "second_process")] if sizes else []
        times = [f"{row['speed'][s]['times']:.2f}" if s in row.get("speed", {}) else "" for s in sizes]
        share = [_percent(_share(row))] if sizes else []
        name = f"`{_short(row['function'])}`"
        return [name, row.get("kind", ""), row.get("results", ""), *first, *times, *share, _cut(why)]

    head = [
        "function",
        "runs",
        "results",
        *(["first call, s", "second process, s"] if sizes else []),
        *(f"{s} MP" for s in sizes),
        *(["in kernels"] if sizes else []),
        "why not whole",
    ]
    return _table(head, [cells(row) for row in rows])


def _seconds(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f}" if name in row and row.get("speed") else ""


def _share(row: Mapping[str, Any]) -> float | None:
    """How much of a call's time is in kernels, at the middle one of the sizes."""
    shares = [s["in_kernels"] for s in row.get("speed", {}).values() if "in_kernels" in s]
    return shares[len(shares) // 2] if shares else None


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _first_calls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Medians and worst of first calls, and how many functions are mostly kernels."""
    lines = []
    for name, words in (("first_call", "First calls"), ("second_process", "First calls of a second process")):
        found = sorted(row[name] for row in rows if name in row and row.get("speed"))
        if found:
            lines.append(f"{words}: median {median(found):.2g} s, worst {found[-1]:.2g} s.")
    shares = [share for row in rows if (share := _share(row)) is not None]
    if shares:
        most = sum(share >= 0.5 for share in shares) / len(shares)
        lines.append(
            f"In kernels: the share of a call's time, at the middle size, by samples; {most:.0%} of the functions are "
            "there at least half of it. The rest is Python's, NumPy's and SciPy's, and what is around kernels."
        )
    return [*lines, ""] if lines else []


def _short(path: str) -> str:
    return path.removeprefix("benchmarks.functions.")


def _cut(words: str, most: int = 110) -> str:
    return words if len(words) <= most else f"{words[:most].rsplit(' ', 1)[0]} ..."


def show(numbers: dict[str, Any]) -> None:
    """Print the counts, and what is wrong, failed or slow."""
    rows = numbers["rows"]
    counts = {kind: sum(row.get("kind") == kind for row in rows) for kind in (WHOLE, BREAKS, PLAIN)}
    print(f"{len(rows)} functions: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    for row in rows:
        if row.get("verified") is False:
            print(f"    {row['function']}: a comparison with NumPy failed: {row.get('why')}")
        if "results" in row and (row["apart"] is None or row["apart"] > FAR):
            print(f"    {row['function']}: {row['results']}")
        if "error" in row:
            print(f"    {row['function']}: {row['error']}")
        for size, s in row.get("speed", {}).items():
            if s["times"] < BEHIND:
                print(f"    {row['function']}: {s['times']:.2f} of NumPy's speed at {size} megapixels")


if __name__ == "__main__":
    answer(measure)
