"""``python -m benchmarks npbench --source PATH``: npbench's kernels, as `hjit.pipeline` runs them.

The source is a checkout of https://github.com/spcl/npbench: nothing is downloaded. A row for each kernel and size: does
it run compiled as a whole, with breaks, or plain, and why; how far its result and changed arguments are from NumPy's;
what it prints, warns of or changes beside; how long its first call takes, with an empty cache; and how fast later calls
are, relative to NumPy. Each has a process of its own, with a limit; every call gets arguments of its own, as kernels
change them. Rows are kept in a JSON file, in which those that ran replace those of the same kernel and size.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import answer, row_of_child
from benchmarks.pairs import MIN_ROUNDS, ratio
from benchmarks.suite import about, check_names
from hjit.report.equality import difference, text
from hjit.report.kinds import KINDS, row_of

Arguments = list[Any]
SIZES = ("S",)
KNOWN_SIZES = ("S", "M", "L", "paper")
LIMIT = 300.0  # seconds of the process of a kernel and size
SETTLING = 3  # calls whose results are compared
SETTLED = 25  # calls after which hjit has decided what runs; fewer where they take longer than `SETTLING_SECONDS`
SETTLING_SECONDS = 10.0
PATIENCE = 3.0  # seconds of a plain call: sizes at which it takes longer are left out
MOST_ROUNDS = 1000
SLOW_FIRST = 5.0  # seconds of the processor
FAR = 1e-9  # relative to the largest magnitude, of kernels in double precision; `FAR_SINGLE` in single
FAR_SINGLE = 1e-4
BEHIND = 0.95  # of NumPy's speed


@dataclass(frozen=True)
class Kernel:
    """A kernel of npbench, as a file of its `bench_info` says it."""

    name: str
    info: Mapping[str, Any]

    @property
    def module(self) -> str:
        """The module of its initialisation; that of its NumPy version has `_numpy` behind it."""
        return f"npbench.benchmarks.{self.info['relative_path'].replace('/', '.')}.{self.info['module_name']}"

    def function(self) -> Callable[..., Any]:
        """Its NumPy version."""
        found: Callable[..., Any] = getattr(importlib.import_module(self.module + "_numpy"), self.info["func_name"])
        return found

    def arguments(self, size: str) -> Arguments:
        """Those of a call."""
        data = dict(self.info["parameters"][size])
        init = self.info.get("init")
        if init:
            made = getattr(importlib.import_module(self.module), init["func_name"])(*map(data.get, init["input_args"]))
            names = init["output_args"]
            data |= dict(zip(names, made if len(names) > 1 or isinstance(made, tuple) else (made,), strict=True))
        return [data[name] for name in self.info["input_args"]]


def kernels_of(source: Path) -> dict[str, Kernel]:
    """All kernels of a checkout, by the names that npbench's own commands take.

    Raises:
        ValueError: there are none.
    """
    files = sorted(source.glob("bench_info/*.json"))
    if not files:
        raise ValueError(f"{source} is no checkout of npbench: it has no bench_info")
    return {file.stem: Kernel(file.stem, json.loads(file.read_text(encoding="utf-8"))["benchmark"]) for file in files}


# -- one kernel, in its own process


@dataclass
class Beside:
    """What a call does beside its result."""

    printed: str = ""
    warned: set[tuple[str, str]] = field(default_factory=set)
    drew: bool = False  # from NumPy's random numbers

    def more_than(self, other: Beside) -> list[str]:
        """What the other one does not do."""
        found = [f"warns: {kind}: {message}" for kind, message in sorted(self.warned - other.warned)]
        found += ["prints something else"] if self.printed != other.printed else []
        return [*found, *(["changes the random state"] if self.drew > other.drew else [])]


@contextlib.contextmanager
def watched(found: Beside) -> Iterator[None]:
    """Notice what is done beside a result."""
    said, before = io.StringIO(), _random_state()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            yield
    found.printed += said.getvalue()
    found.warned |= {(w.category.__name__, str(w.message)) for w in raised}
    found.drew |= _random_state() != before


def _random_state() -> tuple[Any, ...]:
    name, words, *others = np.random.get_state()
    return (name, bytes(np.asarray(words)), *others)


def measure(kernel: Kernel, size: str, seconds: float, write: Callable[[Any], None]) -> None:
    """Run a kernel, and write what is found, bit by bit: dictionaries that make up its row.

    Args:
        seconds: for timing each way; 0: nothing is timed.
    """
    import hjit

    f, given = kernel.function(), kernel.arguments(size)
    took = []
    for _ in range(2):  # the first one also loads what it needs
        own = copy.deepcopy(given)
        start = time.perf_counter()
        with warnings.catch_warnings(action="ignore"):
            f(*own)
        took.append(time.perf_counter() - start)
    write({"plain_ms": 1e3 * min(took)})
    if min(took) > PATIENCE:
        return write({"left_out": f"a plain call takes {min(took):.1f} s"})
    p = hjit.pipeline(f)
    compared(p, f, given, write)
    found = row_of(kernel.name, p)
    write({"kind": found.kind, "why": found.why.replace(f"{_source_of(f)}/", ""), "parts": found.parts})
    write({"verified": found.verified, "flipped": found.flipped})
    if seconds:
        write({"speed": speed(p, f, given, seconds)})
        write({"runs_numpy": p.stats.slower > 0, "kind_later": row_of(kernel.name, p).kind})
    return None


def _source_of(f: Callable[..., Any]) -> str:
    return str(Path(inspect.getfile(f)).parent)


def compared(p: Any, f: Callable[..., Any], given: Arguments, write: Callable[[Any], None]) -> None:
    """How far results of the first calls are from NumPy's, changed arguments included, and what else differs."""
    apart, theirs, ours = 0.0, Beside(), Beside()
    for k in range(SETTLING):
        plain, compiled = copy.deepcopy(given), copy.deepcopy(given)
        with watched(theirs):
            expected = f(*plain)
        with watched(ours):
            start, cpu = time.perf_counter(), time.process_time()
            got = p(*compiled)
            took = {"first_call": time.perf_counter() - start, "first_call_cpu": time.process_time() - cpu}
        if k == 0:
            write({name: round(x, 3) for name, x in took.items()})
        apart = max(apart, difference((expected, plain), (got, compiled)))
    single = any(isinstance(x, np.ndarray) and x.dtype in (np.float32, np.complex64) for x in (*given, expected))
    write({"apart": apart if math.isfinite(apart) else None, "results": text(apart)})
    write({"equal": apart <= (FAR_SINGLE if single else FAR), "beside": ours.more_than(theirs)})


def speed(p: Any, f: Callable[..., Any], given: Arguments, seconds: float) -> dict[str, Any]:
    """NumPy's time over hjit's, by the median of interleaved pairs of calls on equal arguments."""

    def timed(run: Callable[..., Any]) -> float:
        own = copy.deepcopy(given)
        start = time.perf_counter()
        run(*own)
        return time.perf_counter() - start

    with warnings.catch_warnings(action="ignore"):
        end = time.perf_counter() + SETTLING_SECONDS
        for _ in range(SETTLED):
            timed(p)
            if time.perf_counter() > end:
                break
        pairs: list[tuple[float, float]] = []
        while len(pairs) < MIN_ROUNDS or (len(pairs) < MOST_ROUNDS and sum(map(sum, pairs)) < 2 * seconds):
            pairs.append((timed(f), timed(p)))
    plain, compiled = ([pair[k] for pair in pairs] for k in (0, 1))
    found = ratio(plain, compiled)
    milliseconds = {name: 1e3 * statistics.median(x) for name, x in (("plain_ms", plain), ("hjit_ms", compiled))}
    return {"times": found.median, "low": found.low, "high": found.high, "pairs": found.pairs, **milliseconds}


# -- all kernels


def row_for(source: Path, kernel: Kernel, size: str, seconds: float, limit: float) -> dict[str, Any]:
    """The row of a kernel, from a process of its own, with an empty cache."""
    row: dict[str, Any] = {"kernel": kernel.name, "size": size}
    with tempfile.TemporaryDirectory(prefix="hjit-npbench-") as folder:
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HJIT_CACHE_DIR": str(Path(folder, "cache"))}
        request = [str(source), kernel.name, size, seconds]
        file = Path(folder, "row.jsonl")
        found, error = row_of_child("benchmarks.npbench", request, file, variables, limit, str(source))
    error = f"ended at its limit of {limit:.0f} s" if error is None else error
    return row | found | ({"error": error} if error else {})


def run(
    source: Path | None,
    sizes: Sequence[str] = SIZES,
    names: Sequence[str] = (),
    *,
    seconds: float = 1.0,
    limit: float = LIMIT,
    earlier: Sequence[dict[str, Any]] = (),
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All rows, under the names of the JSON file.

    Args:
        source: a checkout of npbench.
        names: of kernels; none: all of them.
        seconds: for timing each way; 0: nothing is timed.
        earlier: rows of earlier runs; those of kernels that are not run now stay.
        keep: called with what there is after each kernel.

    Raises:
        ValueError: an unknown kernel or size, or no checkout.
    """
    if source is None:
        raise ValueError("npbench needs --source, a checkout of https://github.com/spcl/npbench")
    source = source.resolve()
    kernels = kernels_of(source)
    check_names("kernel", names, [*kernels])
    check_names("size", sizes, KNOWN_SIZES)
    head = about()
    rows = {(row["kernel"], row["size"]): row for row in earlier}
    for name in names or kernels:
        for size in sizes:
            row = {**row_for(source, kernels[name], size, seconds, limit), "commit": head["commit"]}
            rows[name, size] = row
            print(line_of(row), flush=True)
            keep({**head, "rows": [*rows.values()]})
    return {**head, "rows": [*rows.values()]}


def line_of(row: Mapping[str, Any]) -> str:
    """What is printed of a row."""
    first = f"first call {row['first_call_cpu']:.1f} s" if "first_call_cpu" in row else ""
    times = f"{row['speed']['times']:.2f}x of {row['speed']['plain_ms']:.3g} ms" if "speed" in row else ""
    parts = (row.get("kind", "?"), row.get("results", ""), first, times, *faults(row))
    name = f"{row['kernel']:<28}{row['size']}"
    return "  ".join([name, *(part for part in (*parts, row.get("left_out", ""), row.get("why", "")) if part)])


def faults(row: Mapping[str, Any]) -> list[str]:
    """What is wrong with a row."""
    found = [f"ERROR {row['error']}"] if "error" in row else []
    found += ["NOT EQUAL"] if row.get("equal") is False else []
    found += ["VERIFICATION FAILED"] if row.get("verified") is False else []
    found += [f"BESIDE: {x}" for x in row.get("beside", ())]
    found += ["SLOW FIRST CALL"] if row.get("first_call_cpu", 0) > SLOW_FIRST else []
    return [*found, *(["BEHIND NUMPY"] if row.get("speed", {}).get("times", math.inf) < BEHIND else [])]


def show(numbers: Mapping[str, Any]) -> None:
    """Print the counts, and the kernels with something wrong."""
    rows = numbers["rows"]
    print(f"{len(rows)} rows: " + ", ".join(f"{sum(r.get('kind') == kind for r in rows)} {kind}" for kind in KINDS))
    for row in rows:
        if found := faults(row):
            print(f"    {row['kernel']} {row['size']}: {'; '.join(found)}")


def answered(source: str, name: str, size: str, seconds: float, write: Callable[[Any], None]) -> None:
    """Measure one kernel, in its own process."""
    measure(kernels_of(Path(source))[name], size, seconds, write)


if __name__ == "__main__":
    answer(answered)
