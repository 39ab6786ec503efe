"""Measured schedules: what the cost model learns from.

Random programs (`hjit.model.generator`) run under random schedules of the space that a search looks through (Adams 2019, section 5).
Every result is compared with NumPy's own, so each sample is a test, too: a wrong one is reported, and nothing is learnt from it.

    python -m hjit.tune --seconds 1200 --out samples --seed 0          collect
    python -m hjit.tune --fit samples --weights weights.npz            learn
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hjit.autoschedule import Searched, space_of
from hjit.errors import HjitError
from hjit.model import network
from hjit.model.costs import Cost
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.sched.default import default_schedule
from hjit.sched.search import Options as SearchOptions
from hjit.sched.search import keep_probability, presets, search
from hjit.sched.space import Space, State
from hjit.sched.tree import Root
from hjit.trace.graph import Graph
from hjit.trace.poly import sizes_value

log = logging.getLogger("hjit")

Arrays = Sequence[np.ndarray[Any, Any]]
Candidate = tuple[Root, frozenset[str]]

RUNS, LEAST_RUNS = 40, 3  # of one schedule
RUN_SECONDS = 0.06  # for them all
PROGRAM_SECONDS = 14.0  # for one program
RTOL = 1e-3  # of results: sums of floats have no order


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured schedule: seconds, and its features [stages, len(SCHEDULE)]."""

    seconds: float
    features: Any


class Mismatch(Exception):
    """A schedule computed something else than NumPy."""


def candidates(space: Space, graph: Graph, count: int, seed: int, cost: Cost | None = None) -> Iterator[Candidate]:
    """Schedules to measure: the default one, random ones, and greedy ones of random cost models with random dropout (section 5).

    Args:
        cost: for half of the greedy ones, a cost model that is not random.
    """
    rng = random.Random(seed)
    yield default_schedule(graph, space.target), frozenset()
    for k in range(count - 1):
        if k % 3 == 0:
            state: State | None = random_state(space, rng)
        else:
            other = space if cost is not None and k % 3 == 1 else Space.like(space, network.random(rng.randrange(1 << 30)))
            keep = keep_probability(len(graph.stages))
            found = search(other, other.start, presets()["greedy"], SearchOptions(keep=1.0))
            state = found.best if k < 3 else None
            if state is None:
                state = dropped(other, rng, keep)
        if state is not None:
            yield state.tree, state.inlined


def random_state(space: Space, rng: random.Random) -> State | None:
    """Random decisions, none that a rule forbids; stages are rather at the root or in a loop, as each has many sizes."""
    state = space.start
    while not space.is_complete(state):
        children = space.children(state)
        costs = list(space.cost(children))
        batches: dict[int, list[State]] = {}
        for child, c in zip(children, costs, strict=True):
            if c < math.inf:
                batches.setdefault(id(child.batch), []).append(child)
        if not batches:
            return None
        state = rng.choice(rng.choice(list(batches.values())))
    return state


def dropped(space: Space, rng: random.Random, keep: float) -> State | None:
    """Greedy decisions, each possible one left out at random (Adams 2019, section 4.3)."""
    state = space.start
    while not space.is_complete(state):
        children = space.children(state)
        ranked = sorted(zip(space.cost(children), range(len(children)), strict=True))
        allowed = [k for c, k in ranked if c < math.inf]
        if not allowed:
            return None
        state = children[next((k for k in allowed if rng.random() < keep), allowed[-1])]
    return state


def measured(
    function: Callable[..., Any], arrays: Arrays, options: dict[str, Any], count: int, seed: int, cost: Cost | None = None
) -> tuple[Any, list[Sample], Any]:
    """Pipeline features, samples and machine facts of a program.

    Raises:
        Mismatch: a result is not NumPy's.
        HjitError: the function is not one kernel.
    """
    reference = leaves(function(*arrays))
    plain = Pipeline(function, {**options, "verify": "off"})
    variant = plain._variant(arrays, {}, plain._resolved(()))
    if len(variant.graphs) != 1 or variant.impure:
        raise HjitError("decisions or opaque calls: not one kernel")
    (graph,) = variant.graphs
    space = space_of(graph, variant.rec.sizes, Options(**options), cost or network.random(seed))
    found: list[Sample] = []
    seen: set[Candidate] = set()
    end = time.perf_counter() + PROGRAM_SECONDS
    for tree, inlined in candidates(space, graph, count, seed, cost):
        if (tree, inlined) in seen:
            continue
        seen.add((tree, inlined))
        try:
            seconds = timed(function, arrays, options, Searched({graph.outputs: tree}, inlined), reference)
        except HjitError as error:  # a schedule that cannot be lowered
            log.debug("not lowered: %s", error)
            continue
        found.append(Sample(seconds, space.features(tree, inlined)))
        if time.perf_counter() > end:
            break
    return space.pipeline, found, space.machine


def timed(function: Callable[..., Any], arrays: Arrays, options: dict[str, Any], schedule: Searched, reference: list[Any]) -> float:
    """The least of several times of a schedule, in seconds.

    Raises:
        Mismatch: its result is not NumPy's.
    """
    pipe = Pipeline(function, {**options, "verify": "off"})
    pipe.use(schedule)  # type: ignore[arg-type]
    result = pipe(*arrays)
    for k, (ours, theirs) in enumerate(zip(leaves(result), reference, strict=True)):
        if not alike(ours, theirs):
            raise Mismatch(f"result {k} under\n{next(iter(schedule.trees.values()))}\ninlined: {sorted(schedule.inlined)}")
    times: list[float] = []
    while len(times) < LEAST_RUNS or (len(times) < RUNS and sum(times) < RUN_SECONDS):
        start = time.perf_counter()
        pipe.into(result, *arrays)
        times.append(time.perf_counter() - start)
    return min(times)


def leaves(x: Any) -> list[Any]:
    """The arrays of a result."""
    return [y for part in x for y in leaves(part)] if isinstance(x, (tuple, list)) else [x]


def alike(a: Any, b: Any) -> bool:
    """Are two results the same, floats nearly so?"""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=RTOL, atol=RTOL * float(np.abs(b[np.isfinite(b)]).max(initial=1e-6)), equal_nan=True))


# -- collecting


def collect_one(seed: int, folder: Path, count: int, weights: Path | None) -> str:
    """Measure one random program into a file of its own; a line that says what came of it."""
    from hjit.model.generator import random_program

    program = random_program(seed)
    arrays = program.inputs(seed)
    options = {"num_threads": 1 if seed % 4 == 3 else 0, "cache": "off", "fast_math": seed % 2 == 0}
    cost = None if weights is None else network.load(weights)
    pipeline, samples, machine = measured(program.function, arrays, options, count, seed, cost)
    if len(samples) < 2:
        return f"{seed}: {len(samples)} samples, not kept"
    times = np.array([x.seconds for x in samples])
    np.savez(
        folder / f"{seed}.npz", pipeline=pipeline, schedule=np.stack([x.features for x in samples]).astype(np.float32), runtimes=times, machine=machine
    )
    return f"{seed}: {len(samples)} samples of {len(pipeline)} stages, {times.min() * 1e3:.2f} to {times.max() * 1e3:.2f} ms, default {times[0] / times.min():.2f}"


def collect(seconds: float, folder: Path, first: int, count: int, weights: Path | None) -> None:
    """Measure random programs, each in a process of its own, until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.time() + seconds
    seed = first
    while time.time() < end:
        command = [sys.executable, "-m", "hjit.tune", "--one", str(seed), "--out", str(folder), "--count", str(count)]
        try:
            done = subprocess.run(command + (["--weights", str(weights)] if weights else []), capture_output=True, text=True, timeout=60, check=False)
            print(done.stdout.strip() or f"{seed}: status {done.returncode} {done.stderr.strip()[-600:]}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"{seed}: more than 60 s", flush=True)
        seed += 1


def fit_all(folders: Sequence[Path], out: Path, passes: int, seed: int) -> None:
    """Fit a network to all samples of some folders."""
    from hjit.model.fit import Program, fit

    programs = []
    for folder in folders:
        for file in sorted(folder.glob("*.npz")):
            with np.load(file) as x:
                programs.append(Program(x["pipeline"], x["schedule"], x["runtimes"], x["machine"]))
    found, report = fit(programs, passes=passes, seed=seed, show=lambda k, loss: print(k, round(loss, 5), flush=True))
    found.save(out)
    about = {name: vars_of(getattr(report, name)) for name in ("trained", "held_out")}
    print(report)
    out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def vars_of(x: Any) -> dict[str, Any]:
    """The fields of a dataclass."""
    return {name: getattr(x, name) for name in x.__slots__}


def total_points(graph: Graph, sizes: dict[str, int]) -> int:
    """Elements of all stages."""
    return sum(math.prod(sizes_value(n, sizes) for n in s.shape) for s in graph.stages)


def main() -> int:
    """Collect or learn."""
    parser = argparse.ArgumentParser(prog="python -m hjit.tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--out", type=Path, default=Path("samples"))
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--count", type=int, default=16, help="schedules of one program")
    parser.add_argument("--weights", type=Path, help="a fitted network that chooses some of the schedules, or where to write one")
    parser.add_argument("--fit", type=Path, nargs="+", help="folders of samples to learn from")
    parser.add_argument("--passes", type=int, default=60)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        fit_all(given.fit, given.weights, given.passes, given.seed)
    elif given.one is not None:
        print(collect_one(given.one, given.out, given.count, given.weights))
    else:
        collect(given.seconds, given.out, given.seed, given.count, given.weights)
    return 0


if __name__ == "__main__":
    sys.exit(main())
