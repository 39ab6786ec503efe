"""``python -m benchmarks ablate``: rules off, one at a time, of the default schedule and of what the search leaves out.

Rules were found on some programs, and reported on the same. Here each is judged on three sets: the applications; the
idioms; and a third on which no rule was made: functions of scikit-image, kernels of npbench's kind, and random programs
under seeds that nothing else uses.

For a rule of the default schedule, the default schedules with and without it are timed, interleaved; for a pruning rule
the choices of a greedy search by the cost model alone. A ratio above 1 says that the rule helps. Where both schedules
are the same it is 1, and nothing is timed. Each program has a process of its own, in which all rules are tried.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import geomean

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 900.0  # seconds of one program, all rules together
SEARCH_SECONDS = 10.0  # of one greedy search
SEEDS = range(7_700_000, 7_700_020)  # of random programs: none of these is used for training or tests
MODULES = ("filters", "color", "exposure", "feature", "restoration")  # of scikit-image
KERNELS = "kernels (npbench's kind)"
PIXELS, SMALL_PIXELS = 1_000_000, 40_000
SETS = ("apps", "idioms", "third")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that can be switched off.

    Attributes:
        kind: "default" or "pruning".
        off: a block in which it is.
        found_on: applications on which it, or its numbers, were found.
    """

    name: str
    kind: str
    off: Callable[[], contextlib.AbstractContextManager[None]]
    found_on: tuple[str, ...] = ()


@contextlib.contextmanager
def _with(module: str, name: str, value: Any) -> Iterator[None]:
    """A block in which a name of a module is something else."""
    import importlib

    where = importlib.import_module(module)
    before = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


def _default(name: str, room: str, function: str, instead: Callable[..., Any], *found_on: str) -> Rule:
    return Rule(name, "default", functools.partial(_with, f"hjit.sched.{room}", function, instead), found_on)


def _pruning(field: str, value: Any) -> Rule:
    def off() -> contextlib.AbstractContextManager[None]:
        from hjit.sched.search.pruning import Rules

        return _with("hjit.sched.search.space", "Rules", functools.partial(Rules, **{field: value}))

    return Rule(f"pruning: {field}", "pruning", off)


SCHEDULES, NESTS = "default.schedules", "nests.root_nests"
RULES: tuple[Rule, ...] = (
    _default("line buffers", SCHEDULES, "members_of", lambda *_: ()),
    _default("strips of columns", SCHEDULES, "_strip", lambda *_: None, "nl_means", "camera_pipe"),
    _default(
        "rows of a stencil together",
        SCHEDULES,
        "_jammed",
        lambda s, node: node,
        "harris",
        "local_laplacian",
        "nl_means",
    ),
    _default("epilogues of products", SCHEDULES, "products_of", lambda *_: {}, "conv_layer"),
    _default("copies in blocks", SCHEDULES, "_packed", lambda *_: (), "mat_mul", "conv_layer"),
    _default("blocks of accumulators", NESTS, "block_dim", lambda *_: None, "mat_mul", "conv_layer", "bilateral_grid"),
    _default("tiled transposes", NESTS, "transposed_dim", lambda *_: None),
    _default("strips of scans", NESTS, "strip_dim", lambda *_: None, "iir_blur"),
    _default("rows of a scan together", NESTS, "scan_rows", lambda *_: None, "iir_blur"),
    _default("interleaved histograms", NESTS, "parts_dim", lambda *_: None, "hist"),
    _default("small dimensions unrolled", NESTS, "unrolled_dims", lambda *_: [], "nl_means"),
    _pruning("recompute", math.inf),
    _pruning("largest_tile", 1 << 16),
    _pruning("tiles", 16),
    _pruning("one_dimension", False),
    _pruning("together", 1 << 16),
    _pruning("tile_levels", 4),
    _pruning("tasks", 0.0),
    _pruning("orders", False),
    _pruning("native_vectors", False),
    _pruning("unrolled", math.inf),
    _pruning("inlined", math.inf),
)


# -- programs


def programs(kind: str) -> list[str]:
    """The names of a set."""
    if kind == "apps":
        from benchmarks.apps import NAMES

        return list(NAMES)
    if kind == "idioms":
        from benchmarks.idioms import IDIOMS

        return list(IDIOMS)
    from benchmarks.functions import TABLES

    of_skimage = [n for n in TABLES["scikit-image"] if n.split(".")[1] in MODULES]
    return [*of_skimage, *TABLES[KERNELS], *(f"random {seed}" for seed in SEEDS)]


def program(kind: str, name: str, small: bool) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A function, and its arguments.

    Raises:
        ImportError: its package is not installed.
    """
    if kind == "apps":
        from benchmarks import apps

        module = apps.load(name)
        given = module.inputs(np.random.default_rng(0), module.SMALL if small else module.SHAPE)
        return getattr(module, name), tuple(given), {}
    if kind == "idioms":
        from benchmarks import idioms

        function, image = idioms.IDIOMS[name]
        return function, (idioms.images(idioms.SMALL if small else idioms.SIZE)[image],), {}
    pixels = SMALL_PIXELS if small else PIXELS
    if name.startswith("random "):
        from hjit.model.generator import random_program

        seed = int(name.split()[1])
        made = random_program(seed, pixels)
        return made.function, tuple(made.inputs(seed)), {}
    from benchmarks import functions

    text = next(table[name] for table in functions.TABLES.values() if name in table)
    args, kwargs = functions.arguments(text, functions.images(pixels / 1e6))
    return functions.load(name), args, kwargs


# -- one program


def build(function: Callable[..., Any], args: Any, kwargs: Any, kind: str, threads: int) -> tuple[Any, str]:
    """A pipeline that has been called once, and its schedule as text; nothing of an earlier one is used.

    Raises:
        HjitError: it is not compiled as a whole.
    """
    import hjit
    from hjit.kernels.runtime import kernel
    from hjit.tuning import plans

    plans._plans.clear()
    kernel._kernels.clear()  # by the default schedule kernels are named without their trees
    kernel._others = weakref.WeakValueDictionary()
    given = {"cache": "off", "verify": "off", "num_threads": threads, "budget": None, "numpy_if_faster": False}
    p = hjit.pipeline(function, tune="one_shot" if kind == "pruning" else False, on_unsupported="raise", **given)
    tree = str(p.tree(*args, **kwargs))
    p(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    return p, tree


def greedy(segment: Any, sizes: Any, options: Any, *_: Any) -> Any:
    """The choice of a greedy search by the cost model alone, which never sees the default schedule."""
    from hjit.tuning import autoschedule
    from hjit.tuning.limits import FEW_STAGES
    from hjit.tuning.plans import Plan

    end = time.perf_counter() + SEARCH_SECONDS
    space = autoschedule.space_of(segment, sizes, options)
    if len(segment.graph.stages) > FEW_STAGES:
        space = autoschedule.frozen(space, lambda: time.perf_counter() > end - SEARCH_SECONDS / 2)
    found = autoschedule.greedy_searches(space, lambda: time.perf_counter() > end)[0].found
    if found.best is None:
        return Plan(None, frozenset(), math.inf)
    return Plan(found.best.tree, found.best.inlined, found.cost)


def by_greedy_search() -> contextlib.AbstractContextManager[None]:
    """A block in which that is what searches find."""
    return _with("hjit.tuning.autoschedule", "searched", greedy)


def measure(
    kind: str, name: str, rules: Sequence[str], threads: int, small: bool, budget: float, write: Callable[[Row], None]
) -> None:
    """A row for each rule of these names; one with an error in place of all where the program is not one."""
    from hjit.errors import HjitError

    try:
        function, args, kwargs = program(kind, name, small)
        with by_greedy_search():
            for of in ("default", "pruning"):
                some = [r for r in RULES if r.kind == of and r.name in rules]
                if some:
                    on = build(function, args, kwargs, of, threads)
                    for rule in some:
                        write({"rule": rule.name, **_compared(on, rule, function, args, kwargs, threads, budget)})
    except (ImportError, HjitError) as error:
        write({"skipped": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]})


def _compared(
    on: tuple[Any, str], rule: Rule, function: Any, args: Any, kwargs: Any, threads: int, budget: float
) -> Row:
    """The times without a rule over those with it."""
    from benchmarks.pairs import interleaved, ratio
    from hjit.errors import HjitError
    from hjit.training.cases import alike, leaves

    try:
        with rule.off():
            off = build(function, args, kwargs, rule.kind, threads)
    except HjitError as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]}
    if off[1] == on[1]:
        return {"ratio": 1.0, "same": True}
    given = [(p, copy.deepcopy(args), copy.deepcopy(kwargs)) for p, _ in (on, off)]
    ours, theirs = (leaves(p(*a, **k)) for p, a, k in given)
    if len(ours) != len(theirs) or not all(map(alike, ours, theirs)):
        return {"error": "the results are not the same"}
    runs = [functools.partial(p, *a, **k) for p, a, k in given]
    with_rule, without = interleaved(runs, budget)
    found = ratio(without, with_rule)
    return {"ratio": found.median, "low": found.low, "high": found.high, "pairs": found.pairs, "same": False}


# -- all programs


def run(
    sets: Sequence[str] = SETS,
    words: Sequence[str] = (),
    rules: Sequence[str] = (),
    *,
    threads: int,
    small: bool = False,
    budget: float = 0.5,
    limit: float = LIMIT,
    earlier: Sequence[Row] = (),
    keep: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """A row for each program and rule.

    Args:
        words: of the programs' names; none: all of them.
        rules: words of the rules' names; none: all.
        earlier: rows of another run: their programs are not run again.
        keep: called with the rows so far after each program.

    Raises:
        ValueError: there is no such set, program or rule.
    """
    if odd := [x for x in sets if x not in SETS]:
        raise ValueError(f"no set {', '.join(odd)}; there are {', '.join(SETS)}")
    chosen = [r.name for r in RULES if not rules or any(w in r.name for w in rules)]
    every = [(k, n) for k in sets for n in programs(k) if not words or any(w in n for w in words)]
    if not every or not chosen:
        raise ValueError("no program, or no rule, has one of these words in its name")
    rows = list(earlier)
    done = {(r["set"], r["program"]) for r in rows}
    for kind, name in every:
        if (kind, name) not in done:
            rows += _in_a_process(kind, name, chosen, threads, small, budget, limit)
            keep(rows)
    return rows


def _in_a_process(
    kind: str, name: str, rules: Sequence[str], threads: int, small: bool, budget: float, limit: float
) -> list[Row]:
    from benchmarks.suite import environment

    with tempfile.TemporaryDirectory(prefix="hjit-ablate-") as folder:
        file = Path(folder) / "rows.jsonl"
        file.touch()
        request = json.dumps([kind, name, list(rules), threads, small, budget])
        command = [sys.executable, "-m", "benchmarks.ablate", request, str(file)]
        given = {**environment(threads), "MPLBACKEND": "agg", "HJIT_CACHE_DIR": os.fspath(folder)}
        try:
            done = subprocess.run(
                command, env=given, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit
            )
            last = (done.stderr.strip().splitlines() or [""])[-1]
            error = "" if done.returncode == 0 else f"status {done.returncode}: {last}"[:200]
        except subprocess.TimeoutExpired:
            error = f"more than {limit:g} s"
        lines = file.read_text(encoding="utf-8").splitlines()
    rows = [{"set": kind, "program": name, **json.loads(line)} for line in lines]
    return rows + ([{"set": kind, "program": name, "skipped": error}] if error else [])


def summary(rows: Sequence[Row]) -> list[Row]:
    """Of each rule and set: the geometric mean, how many schedules it changes, and where it matters most and least."""
    found = []
    for rule in RULES:
        line: Row = {"rule": rule.name, "found_on": list(rule.found_on), "sets": {}}
        for kind in SETS:
            own = [r for r in rows if r["set"] == kind and r.get("rule") == rule.name and "ratio" in r]
            if own:
                others = [r for r in own if kind != "apps" or r["program"] not in rule.found_on]
                changed = sorted((r for r in own if not r["same"]), key=lambda r: float(r["ratio"]))
                line["sets"][kind] = {
                    "programs": len(own),
                    "changed": len(changed),
                    "geomean": geomean(r["ratio"] for r in own),
                    "geomean_of_others": geomean(r["ratio"] for r in others),
                    "least": [changed[0]["program"], changed[0]["ratio"]] if changed else None,
                    "most": [changed[-1]["program"], changed[-1]["ratio"]] if changed else None,
                }
        if line["sets"]:
            found.append(line)
    return found


def _named(x: Sequence[Any]) -> str:
    return f"{x[0]} {x[1]:.2f}"


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = "ablate: time without a rule over time with it, geomean; in brackets without the apps it was found on"
    t = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    for column in ("rule", *SETS, "helps most", "helps least"):
        t.add_column(column, justify="left")
    for line in summary(rows):
        cells = []
        for kind in SETS:
            x = line["sets"].get(kind)
            if x is None:
                cells.append("")
                continue
            others = f" [{x['geomean_of_others']:.3f}]" if x["geomean_of_others"] != x["geomean"] else ""
            cells.append(f"{x['geomean']:.3f}{others} ({x['changed']} of {x['programs']})".replace("[", "\\["))
        ends = []
        for end, pick in (("most", max), ("least", min)):
            some = [x[end] for x in line["sets"].values() if x[end]]
            ends.append("" if not some else _named(pick(some, key=lambda x: float(x[1]))))
        t.add_row(line["rule"], *cells, *ends)
    console = Console()
    (console if console.is_terminal else Console(width=170)).print(t)
    skipped = {f"{r['set']} {r['program']}: {r['skipped']}" for r in rows if "skipped" in r}
    for text in sorted(skipped):
        console.print(f"skipped: {text}", highlight=False, markup=False)


def main() -> None:
    """Measure one program in this process."""
    kind, name, rules, threads, small, budget = json.loads(sys.argv[1])
    with Path(sys.argv[2]).open("a", encoding="utf-8") as file:

        def write(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        measure(kind, name, rules, threads, small, budget, write)


if __name__ == "__main__":
    main()
