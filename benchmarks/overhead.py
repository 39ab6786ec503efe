"""What hjit costs besides the work itself: importing it, a first call, a new size, a warm call; and the demo's gains.

Everything that depends on a fresh process is measured in subprocesses. Numbers are medians.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import hjit
from benchmarks.pairs import quartiles
from hjit import demo

Array = np.ndarray[Any, Any]

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("jax", "cupy", "numba", "scipy")
SIZES = [(200 + 7 * k, 300 + 11 * k) for k in range(13)]  # the first one is seen before


def simple(a: Array, b: Array) -> Array:
    """A small pipeline of two arguments."""
    return (a + b) * 0.5


def twenty_operations(img: Array) -> Array:
    """About twenty operations: stencils, point-wise formulas, selections."""
    p = np.pad(img, 1, mode="edge")
    dx = p[1:-1, 2:] - p[1:-1, :-2]
    dy = p[2:, 1:-1] - p[:-2, 1:-1]
    magnitude = np.sqrt(dx * dx + dy * dy)
    q = np.pad(magnitude, 1, mode="reflect")
    mean = (q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] + magnitude) / 5
    strong = np.where(magnitude > mean, magnitude, 0.5 * mean)
    scaled = np.clip(strong * 2 + 0.1, 0, 1)
    return np.maximum(scaled, np.abs(img - 0.5)) * 255


def twelve_stages(img: Array) -> Array:
    """Six blurs, each along the rows and along the columns: twelve stages."""
    for _ in range(6):
        p = np.pad(img, [(1, 1), (0, 0)], mode="edge")
        img = (p[:-2] + 2 * p[1:-1] + p[2:]) / 4
        p = np.pad(img, [(0, 0), (1, 1)], mode="edge")
        img = (p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]) / 4
    return img


def warm_call_us(calls: int = 20_000, groups: int = 21) -> float:
    """Microseconds of one call on 4 x 4 images that hjit knows; the median over groups of calls."""
    f = hjit.pipeline(simple, verify="off", cache="off")
    a = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    b = a.copy()
    f(a, b)
    times = []
    for _ in range(groups):
        each = calls // groups
        start = time.perf_counter()
        for _ in range(each):
            f(a, b)
        times.append((time.perf_counter() - start) / each)
    return 1e6 * statistics.median(times)


def new_size() -> tuple[float, int]:
    """Milliseconds of a call with a new size after one has been seen, and how many of those calls compiled."""
    f = hjit.pipeline(twenty_operations, verify="off", cache="off")
    rng = np.random.default_rng(1)
    images = [rng.random(size, np.float32) for size in SIZES]
    f(images[0])
    before = f.stats.compilations
    times = []
    for image in images[1:]:
        start = time.perf_counter()
        f(image)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times), f.stats.compilations - before


# -- fresh processes

_IMPORT = """
import json, sys, time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
{statement}
end = time.perf_counter()
print(json.dumps([middle - start, end - middle, [m for m in {heavy} if m in sys.modules]]))
"""

_FIRST_CALL = """
import json, sys, time
import numpy as np, llvmlite.binding, numba, hjit
import numba.core.codegen
import hjit.kernels.runtime.lowered, hjit.call.build, hjit.sched.default.schedules, hjit.sched.nests.root_nests
from benchmarks.overhead import twelve_stages
image = np.random.default_rng(2).random((512, 768), np.float32)
f = hjit.pipeline(twelve_stages, verify="off", cache_dir=sys.argv[1])
start = time.perf_counter()
f(image)
print(json.dumps([time.perf_counter() - start, f.stats.compilations, f.stats.cache_hits]))
"""

_COMPILER_IMPORT = """
import json, time
import numpy, llvmlite.binding, numba, hjit
import numba.core.codegen
start = time.perf_counter()
import hjit.call.build
print(json.dumps(time.perf_counter() - start))
"""


def _fresh(code: str, *arguments: str) -> Any:
    """What a new Python process prints, as JSON."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HJIT_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def import_ms(rounds: int = 9) -> tuple[float, list[str]]:
    """Milliseconds of `import hjit` where numpy is there already, and which heavy packages came with it."""
    more: list[float] = []
    loaded: set[str] = set()
    for _ in range(rounds):
        _, t, names = _fresh(_IMPORT.format(statement="import hjit", heavy=HEAVY))
        loaded.update(names)
        more.append(t - _fresh(_IMPORT.format(statement="pass", heavy=HEAVY))[1])
    return 1e3 * statistics.median(more), sorted(loaded)


def first_calls(rounds: int = 5) -> tuple[float, float, float]:
    """Seconds of a first call with an empty cache, milliseconds of it in a second process with the same cache.

    Both are past imports. The third number is the milliseconds of the import of what a call needs and `import hjit`
    leaves out.
    """
    cold, warm, imports = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="hjit-bench-") as folder:
            seconds, compiled, _ = _fresh(_FIRST_CALL, folder)
            again, compiled_again, hits = _fresh(_FIRST_CALL, folder)
            if not compiled or compiled_again or not hits:
                raise RuntimeError(
                    f"the disk cache was not used as planned: {compiled}, then {compiled_again} compiled, {hits} loaded"
                )
            cold.append(seconds)
            warm.append(1e3 * again)
            imports.append(1e3 * _fresh(_COMPILER_IMPORT))
    return statistics.median(cold), statistics.median(warm), statistics.median(imports)


def demo_rows(rounds: int = 5) -> list[demo.Row]:
    """The demo's pipelines at its default size."""
    photo = demo.resized(demo.load_photo(), *demo.SIZE)
    with tempfile.TemporaryDirectory(prefix="hjit-bench-") as folder:
        demo.start_up()
        return [demo.measure(case, photo, rounds, folder) for case in demo.CASES]


# -- the report


def about() -> dict[str, Any]:
    """The machine, the versions and the commit."""
    from hjit.kernels.runtime import features, launch
    from hjit.process.machine import cpu

    names = ("numpy", "numba", "llvmlite", "tbb")
    found = {"python": platform.python_version(), "hjit": hjit.__version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "-"
    machine = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu": cpu(),
        "cores": launch.cores(),
        "vector_bits": 8 * features.native_width(features.host_features()),
        "threading": launch.parallel_for()[1],
    }
    return {"machine": machine, "versions": found, "commit": _commit()}


def _git(*words: str) -> str:
    """What git prints of this checkout.

    Raises:
        OSError, subprocess.CalledProcessError: there is no git, no checkout, or it knows no such thing.
    """
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _commit() -> str:
    """The commit that is checked out, with ``+changes`` where hjit or the benchmarks differ from it."""
    try:
        changes = _git("status", "--porcelain", "--", "hjit", "benchmarks", ":!benchmarks/results", ":!benchmarks/*.md")
        return _git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def commit_named(name: str) -> str:
    """A commit's whole hash, from any name that git has for it.

    Raises:
        ValueError: git knows none of that name.
    """
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        raise ValueError(f"git knows no commit {name!r}") from None


def run() -> dict[str, Any]:
    """All numbers, under the names of the JSON file."""
    from rich.console import Console

    console = Console(stderr=True)

    def step(text: str, measure: Callable[[], Any]) -> Any:
        with console.status(text):
            return measure()

    imported, loaded = step("importing", import_ms)
    cold, warm, compiler = step("first calls", first_calls)
    size_ms, compiled = step("new sizes", new_size)
    call_us = step("warm calls", warm_call_us)
    rows = step("the demo's pipelines", demo_rows)
    return {
        "warm_call_us": round(call_us, 3),
        "new_size_ms": round(size_ms, 3),
        "new_size_compilations": compiled,
        "import_ms": round(imported, 2),
        "import_loads": loaded,
        "first_call_s": round(cold, 4),
        "second_process_ms": round(warm, 2),
        "compiler_import_ms": round(compiler, 2),
        "demo_geomean": round(demo.geometric_mean(r.ratio for r in rows), 3),
        "demo": [asdict(r) | {"ratio": r.ratio, "ratio_iqr": quartiles(r.ratios)} for r in rows],
        **about(),
    }


def show(numbers: dict[str, Any]) -> None:
    """Print the numbers as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    t = Table(box=box.SIMPLE_HEAD)
    t.add_column("overhead")
    t.add_column("median", justify="right")
    t.add_row("a warm call, 4x4 image, two arguments", f"{numbers['warm_call_us']:.2f} us")
    t.add_row(f"a new size, {len(SIZES) - 1} of them, about 20 operations", f"{numbers['new_size_ms']:.2f} ms")
    t.add_row("    kernels compiled for the new sizes", str(numbers["new_size_compilations"]))
    t.add_row("import hjit, after numpy", f"{numbers['import_ms']:.1f} ms")
    t.add_row(f"    of {', '.join(HEAVY)} it loads", ", ".join(numbers["import_loads"]) or "none")
    t.add_row("a first call, 12 stages, empty cache", f"{numbers['first_call_s']:.3f} s")
    t.add_row("    the same in a second process", f"{numbers['second_process_ms']:.1f} ms")
    t.add_row("    before it: importing what a call needs", f"{numbers['compiler_import_ms']:.1f} ms")
    t.add_row("the demo's pipelines: geometric mean of NumPy's time / hjit's", f"{numbers['demo_geomean']:.2f}x")
    console = Console()
    console.print(t)
    console.print(
        demo.table(
            demo.Row(**{k: v for k, v in r.items() if not k.startswith("ratio_") and k != "ratio"})
            for r in numbers["demo"]
        )
    )
