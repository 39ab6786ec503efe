"""One application measured: its candidates built, checked against NumPy and timed in interleaved rounds.

`benchmarks.suite` runs this module in a fresh process, whose environment says how many threads everything may use:
``python -m benchmarks.rows REQUEST FILE``, REQUEST being a `Request` as JSON. FILE gets one JSON object a line:
``{"at": label}`` before a candidate is built, so that the parent knows which one ended the process, and
``{"row": {...}}`` for each result.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import apps
from benchmarks.pairs import MIN_ROUNDS, interleaved, quartiles, ratio, seconds

Array = np.ndarray[Any, Any]
Emit = Callable[[dict[str, Any]], None]

HERE = Path(__file__).resolve().parent
PEERS = ("numpy", "opencv", "numba", "jax", "halide")
LAYOUTS = ("planar", "channels_last")
HALIDE_SCHEDULES = ("manual", "adams2019", "mullapudi2016")
HJIT_SCHEDULES = ("default", "manual", "greedy", "refined", "beam")
SEARCHED = ("greedy", "refined", "beam")
KEPT_BYTES = 1 << 28  # a peer may keep every new array that it has seen
COPY = "copy"  # the peer that only moves the bytes that an application must
REFERENCES = {
    "numpy": ("numpy", None),
    "halide manual": ("halide", "manual"),
    "hjit default": ("hjit", "default"),
    COPY: (COPY, None),
}


@dataclass(frozen=True)
class Request:
    """What a process is to measure.

    Attributes:
        app: a name of `apps.NAMES`.
        small: take the size of the tests.
        budget: seconds for each candidate.
        skip: why candidates are left out, by label.
        halide: the schedules that Halide runs by.
        hjit: those that hjit runs by; "greedy", "refined" and "beam" are searched.
    """

    app: str
    peers: Sequence[str]
    threads: int
    small: bool = False
    budget: float = 1.0
    skip: dict[str, str] = field(default_factory=dict)
    halide: Sequence[str] = HALIDE_SCHEDULES
    hjit: Sequence[str] = ("default", "manual")


@dataclass(frozen=True)
class Row:
    """A result. `agrees` is about NumPy's; times are None and `error` says why where there are none.

    Attributes:
        median_ms: of a call, over rounds; `iqr_ms` are its quartiles.
        rounds: in which it ran.
        ratios: how many times as fast it is as each of `REFERENCES` that ran beside it: `pairs.Ratio` of the rounds of
            both.
    """

    app: str
    peer: str
    schedule: str | None
    layout: str
    threads: int
    shape: list[int]
    dtype: str
    fast_math: bool
    into: bool
    median_ms: float | None = None
    iqr_ms: Sequence[float | None] = (None, None)
    rounds: int = 0
    ratios: dict[str, Any] = field(default_factory=dict)
    compile_s: float | None = None
    agrees: bool | None = None
    bytes: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Problem:
    """An application with arguments, and what NumPy makes of them.

    Attributes:
        bytes: of the arguments and the result: what must move whatever the schedule is.
    """

    app: str
    layout: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    expected: Array
    tolerance: tuple[float, float]
    bytes: int


@dataclass(frozen=True)
class Candidate:
    """Something to time; `new` and `into` run it."""

    label: str
    row: Row
    new: Callable[[], Any] | None
    into: Callable[[Array], Any] | None
    keeps: bool = False


# -- the candidates


def problem(app: str, layout: str, small: bool) -> Problem | None:
    """The application in a layout, or None where it has only the other one."""
    module = apps.load(app)
    function = getattr(module, app if layout == "planar" else layout, None)
    if function is None:
        return None
    arguments = module.inputs(np.random.default_rng(0), module.SMALL if small else module.SHAPE)
    if layout == "channels_last":
        arguments = tuple(last(x) for x in arguments)
    expected = np.asarray(function(*arguments))
    moved = expected.nbytes + sum(x.nbytes for x in arguments if isinstance(x, np.ndarray))
    return Problem(app, layout, function, arguments, expected, module.TOLERANCE, moved)


def last(x: Any) -> Any:
    """An argument with its channels last: a planar picture of three axes turned, anything else as it is."""
    if isinstance(x, np.ndarray) and x.ndim == 3:
        return np.ascontiguousarray(np.moveaxis(x, 0, -1))
    return x


def candidates(p: Problem, request: Request) -> Iterator[tuple[str, Row, Callable[[], Candidate]]]:
    """Labels and empty rows of all candidates, and how to build them."""
    empty = Row(
        p.app,
        "",
        None,
        p.layout,
        request.threads,
        list(p.expected.shape),
        str(p.expected.dtype),
        False,
        False,
        bytes=p.bytes,
    )
    for peer in request.peers:
        if peer == "numpy":
            row = replace(empty, peer="numpy", compile_s=0.0)
            yield (
                f"{p.layout} numpy",
                row,
                lambda row=row: Candidate("numpy", row, lambda: p.function(*p.arguments), None),
            )
        elif p.layout == "planar" and (HERE / "peers" / peer / f"{p.app}.py").exists():
            for schedule in request.halide if peer == "halide" else (None,):
                row = replace(empty, peer=peer, schedule=schedule, fast_math=True)
                yield f"planar {peer} {schedule or ''}".strip(), row, lambda row=row: _peer(p, row)
    for schedule, path in schedules(p, request.hjit):
        for fast in (False, True):
            row = replace(empty, peer="hjit", schedule=schedule, fast_math=fast)
            label = f"{p.layout} hjit {schedule} {'fast' if fast else 'strict'}"
            yield label, row, lambda row=row, path=path: _hjit(p, row, path)


def schedules(p: Problem, wanted: Sequence[str]) -> list[tuple[str, Path | None]]:
    """The schedules that hjit is timed with; the one written by hand where there is one."""
    name = p.app if p.layout == "planar" else f"{p.app}_{p.layout}"
    path = HERE / "apps" / "schedules" / f"{name}.json"
    return [(x, path if x == "manual" else None) for x in wanted if x != "manual" or path.exists()]


def _peer(p: Problem, row: Row) -> Candidate:
    """A program of a peer, compiled."""
    if row.peer == "halide":
        package = importlib.import_module("benchmarks.peers.halide")
        # a beam is Adams2019's; another autoscheduler ends the process where it does not know a parameter
        parameters = getattr(package.load(p.app), "AUTOSCHEDULER", None) if row.schedule == "adams2019" else None
        made = package.build(p.app, p.arguments, row.schedule, row.threads, parameters)
    elif row.peer == "jax":
        made = importlib.import_module("benchmarks.peers.jax").build(p.app, p.arguments, row.threads)
    else:
        made = importlib.import_module(f"benchmarks.peers.{row.peer}.{p.app}").build(p.arguments, row.threads)
    if (tuple(made.shape), np.dtype(made.dtype)) != (p.expected.shape, p.expected.dtype):
        raise ValueError(
            f"a result {tuple(made.shape)} of {np.dtype(made.dtype)}, not {p.expected.shape} of {p.expected.dtype}"
        )

    def new() -> Array:
        out = np.empty(made.shape, made.dtype)
        made.run(out)
        return out

    return Candidate("", replace(row, compile_s=made.seconds), new, made.run, keeps=True)


def _hjit(p: Problem, row: Row, path: Path | None) -> Candidate:
    """hjit's kernel, compiled with an empty cache; `compile_s` is what the first call took beyond a warm one."""
    import hjit

    hjit.pipeline(_warm_up, cache="off", verify="off")(np.zeros((32, 32), np.float32))  # imports are no part of it
    tune = row.schedule if row.schedule in SEARCHED else False
    f: Any = hjit.pipeline(
        p.function, tune=tune, fast_math=row.fast_math, num_threads=row.threads, cache="off", verify="off", blas=False
    )
    if path is not None:
        f.use(hjit.Schedule.load(path))
    first = seconds(lambda: f(*p.arguments))
    warm = seconds(lambda: f(*p.arguments))
    if f.stats.fallbacks:
        raise RuntimeError("it ran as plain NumPy")
    return Candidate(
        "",
        replace(row, compile_s=max(first - warm, 0.0)),
        lambda: f(*p.arguments),
        lambda out: f.into(out, *p.arguments),
    )


def _warm_up(a: Array) -> Array:
    return a * a + 1


# -- checking and timing


def agrees(got: Any, expected: Array, tolerance: tuple[float, float]) -> bool:
    """Is a result NumPy's own, within (rtol, atol)? (0, 0) asks for equality."""
    got = np.asarray(got)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if tolerance == (0, 0):
        return bool(np.array_equal(got, expected, equal_nan=expected.dtype.kind in "fc"))
    return bool(np.allclose(got, expected, rtol=tolerance[0], atol=tolerance[1], equal_nan=True))


def measure(request: Request, emit: Emit) -> None:
    """Build, check and time all candidates of an application, and emit their rows."""
    for layout in LAYOUTS:
        try:
            p = problem(request.app, layout, request.small)
        except Exception as error:
            row = Row(request.app, "numpy", None, layout, request.threads, [], "", False, False, error=_text(error))
            emit({"row": asdict(row)})
            return
        if p is not None:
            _measure_layout(p, request, emit)


def _measure_layout(p: Problem, request: Request, emit: Emit) -> None:
    out = np.empty(p.expected.shape, p.expected.dtype)
    moving = Row(
        p.app,
        COPY,
        None,
        p.layout,
        request.threads,
        [p.bytes // 2],
        "uint8",
        False,
        True,
        compile_s=0.0,
        agrees=True,
        bytes=p.bytes,
    )
    runs: list[Callable[[], Any]] = [copying(p.bytes, request.threads)]
    rows: list[Row] = [moving]
    limits: list[int | None] = [None]
    for label, row, build in candidates(p, request):
        if label in request.skip:
            emit({"row": asdict(replace(row, error=request.skip[label]))})
            continue
        emit({"at": label})
        try:
            c = build()
            checked = [
                (r, replace(c.row, into=into, agrees=agrees(r(), p.expected, p.tolerance))) for into, r in _ways(c, out)
            ]
        except Exception as error:
            emit({"row": asdict(replace(row, error=_text(error)))})
            continue
        for r, made in checked:
            runs.append(r)
            rows.append(made)
            limits.append(max(KEPT_BYTES // max(out.nbytes, 1), MIN_ROUNDS) if c.keeps and not made.into else None)
    emit({"at": f"{p.layout} timing"})
    for row in timed(rows, interleaved(runs, request.budget, limits)):
        emit({"row": asdict(row)})


def timed(rows: Sequence[Row], times: Sequence[Sequence[float]]) -> list[Row]:
    """Rows with their times, and beside those of the references."""
    found = []
    for row, mine in zip(rows, times, strict=True):
        ratios = {
            name: asdict(ratio(times[k], mine)) for name in REFERENCES if (k := _reference(rows, row, name)) is not None
        }
        low, high = (None if x is None else 1e3 * x for x in quartiles(mine))
        found.append(
            replace(row, median_ms=1e3 * statistics.median(mine), iqr_ms=[low, high], rounds=len(mine), ratios=ratios)
        )
    return found


def _reference(rows: Sequence[Row], row: Row, name: str) -> int | None:
    """The index of a reference that runs as `row` does: into a given array or not; hjit's with the same arithmetic."""
    peer, schedule = REFERENCES[name]

    def fits(r: Row) -> bool:
        return (r.peer, r.schedule) == (peer, schedule) and (
            peer != "hjit" or (row.peer, row.fast_math) == (peer, r.fast_math)
        )

    like = [k for k, r in enumerate(rows) if fits(r)]
    return next((k for k in like if rows[k].into == row.into), next(iter(like), None))


def _ways(c: Candidate, out: Array) -> list[tuple[bool, Callable[[], Any]]]:
    """How a candidate runs: with a new array as its result, and into a given one that holds something else before."""
    found: list[tuple[bool, Callable[[], Any]]] = []
    if c.new is not None:
        found.append((False, c.new))
    if c.into is not None:
        into = c.into

        def run() -> Array:
            into(out)
            return out

        out.reshape(-1).view(np.uint8).fill(0xA5)
        found.append((True, run))
    return found


def _text(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {' '.join(lines)}"[:2000]


def copying(moved: int, threads: int) -> Callable[[], None]:
    """A plain copy that reads half of so many bytes and writes the other half."""
    source, out = np.ones(max(moved // 2, 1), np.uint8), np.zeros(max(moved // 2, 1), np.uint8)
    if threads == 1:
        return lambda: np.copyto(out, source)
    parts = list(zip(np.array_split(out, threads), np.array_split(source, threads), strict=True))
    pool = ThreadPoolExecutor(threads)

    def copy() -> None:
        for _ in pool.map(lambda part: np.copyto(*part), parts):
            pass

    return copy


def main() -> None:
    """Measure what the command line asks for."""
    request = Request(**json.loads(sys.argv[1]))
    if hasattr(os, "sched_setaffinity"):  # some peers have no other setting for it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: request.threads])
    with open(sys.argv[2], "a", encoding="utf-8") as file:

        def emit(record: dict[str, Any]) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        measure(request, emit)


if __name__ == "__main__":
    main()
