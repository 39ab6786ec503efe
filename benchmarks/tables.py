"""The tables of README.md that are made of `results/`: ``python -m benchmarks.tables`` writes them there anew.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; its NAME is a function of `TABLES`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import geomean

HERE = Path(__file__).parent
README = HERE / "README.md"
PLACE = re.compile(r"(?<=<!-- table )(?P<name>[a-z0-9-]+) -->\n.*?(?=<!-- end -->)", re.S)

Results = dict[str, Any]


def results(name: str) -> Results:
    """A file of `results/`."""
    found: Results = json.loads((HERE / "results" / f"{name}.json").read_text())
    return found


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def _ratio(rows: Iterable[dict[str, Any]], schedule: str, layout: str, fast_math: bool, into: bool) -> str:
    """Halide's time by hand over hjit's, with the quartiles; nothing where it was not measured."""
    for r in rows:
        if (r["peer"], r["schedule"], r["layout"], r["fast_math"], r["into"]) == (
            "hjit",
            schedule,
            layout,
            fast_math,
            into,
        ):
            found = r["ratios"].get("halide manual")
            if found:
                return f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
    return ""


def beside_halide(file: str = "apps-medians-2-threads") -> str:
    """Each application beside Halide by hand."""
    rows = results(file)["rows"]
    apps = dict.fromkeys((r["app"], r["layout"]) for r in rows if r["peer"] == "hjit")
    schedules = [(s, True, True) for s in ("default", "greedy", "manual")] + [("greedy", False, False)]

    def lines() -> Iterator[list[str]]:
        for app, layout in apps:
            own = [r for r in rows if r["app"] == app]
            cells = [_ratio(own, s, layout, fast, into) for s, fast, into in schedules]
            if any(cells):
                yield [app if layout == "planar" else f"{app}, {layout}", *cells]

    head = ["application", "default", "greedy", "by hand", "greedy, new results, NumPy's arithmetic"]
    return markdown(head, lines())


def beside_halide_zen5() -> str:
    """The same on a Zen 5."""
    return beside_halide("apps-medians-zen5-2-threads")


def overhead() -> str:
    """What calls cost."""
    d = results("overhead")
    rows = [
        ("`import hjit`", f"{d['import_ms']:.0f} ms"),
        ("the first call of some 20 operations, empty cache", f"{d['first_call_s']:.2f} s"),
        ("the first call in a second process", f"{d['second_process_ms']:.0f} ms"),
        ("a call with a new image size", f"{d['new_size_ms']:.1f} ms, {d['new_size_compilations']} kernels compiled"),
        ("a warm call, besides the kernel", f"{d['warm_call_us']:.1f} us"),
        ("the demo's four functions, NumPy's time / hjit's, geometric mean", f"{d['demo_geomean']:.1f}"),
    ]
    return markdown(["what", "takes"], rows)


def idioms() -> str:
    """The fastest and the slowest of the idioms."""
    rows = sorted(results("idioms")["rows"], key=lambda r: r["times"])
    line = [f"{r['idiom']} {r['times']:.1f}" for r in rows]
    return markdown(
        ["pieces of code", "NumPy's time / hjit's, geometric mean", "lowest five", "highest five"],
        [[str(len(rows)), f"{geomean(r['times'] for r in rows):.1f}", ", ".join(line[:5]), ", ".join(line[-5:])]],
    )


def searches() -> str:
    """What searches cost, for each application."""
    files = ("search", "search-avx2")
    found = {(f, r["app"], r["tune"]): r for f in files for r in results(f)["search"]}
    apps = dict.fromkeys(app for _, app, _ in found)

    def cell(file: str, app: str, tune: str) -> str:
        r = found.get((file, app, tune))
        if r is None:
            return ""
        each = r["us_per_schedule"]
        return f"{r['schedules']:,} in {r[f'{tune}_s']:.2f} s" + ("" if each is None else f", {each:.1f} us")

    head = ["application", "Zen 5, greedy", "Zen 5, beam", "Zen 3, greedy", "Zen 3, beam"]
    return markdown(head, ([app, *(cell(f, app, t) for f in files for t in ("greedy", "beam"))] for app in apps))


def mb2fbs() -> str:
    """Table 5 of Gao 2022 beside the paper's numbers."""

    def lines() -> Iterator[list[str]]:
        for r in results("mb2fbs")["table_5"]:
            cells = [str(r["beta1"]), str(r["beta2"])]
            for kind in ("uncontrolled", "controlled"):
                x = r[kind]
                cells += [
                    f"{x['accuracy']:.3f} ({x['paper_accuracy']})",
                    f"{x['expansions']:.0f} ({x['paper_expansions']})",
                ]
            yield cells

    head = ["beta1", "beta2", "MB2FBS: accuracy", "expansions", "controlled: accuracy", "expansions"]
    return markdown(head, lines())


def model() -> str:
    """How well the weights predict."""
    d = results("fit")
    sets = {
        "trained": "what they were fitted to",
        "trained_before": "the same, the weights before",
        "held_out": "held-out new programs, quiet",
        "before": "the same, the weights before",
    }
    keys = ("programs", "schedules", "log_runtime_r2", "relative_r2", "throughput_r2", "rank", "choice")

    def text(value: Any) -> str:
        return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.2f}"

    rows = ([about, *(text(d[name].get(k)) for k in keys)] for name, about in sets.items())
    head = [
        "on",
        "programs",
        "schedules",
        "R2 of log seconds",
        "R2 of throughput relative to the fastest by the model",
        "R2 of throughput relative to the fastest measured",
        "rank correlation",
        "choice",
    ]
    return markdown(head, rows)


def pairs() -> str:
    """Random programs under random schedules."""

    def lines() -> Iterator[list[str]]:
        for name in ("pairs", "pairs-2", "pairs-3", "pairs-4", "pairs-5"):
            d = results(name)
            failed = d["failed"]
            yield [
                f"`{name}.json`",
                d["machine"]["cpu"],
                f"{d['pairs']:,}",
                f"from {d['first_seed']}",
                str(len(failed)),
            ]

    return markdown(["file", "processor", "pairs", "seeds", "not equal to NumPy"], lines())


TABLES: dict[str, Callable[[], str]] = {
    "beside-halide": beside_halide,
    "beside-halide-zen5": beside_halide_zen5,
    "overhead": overhead,
    "idioms": idioms,
    "searches": searches,
    "mb2fbs": mb2fbs,
    "model": model,
    "pairs": pairs,
}


def filled(text: str) -> str:
    """A text with its tables made anew."""
    return PLACE.sub(lambda m: f"{m['name']} -->\n{TABLES[m['name']]()}", text)


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
