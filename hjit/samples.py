"""Measured schedules: what the cost model learns from.

Random programs (`hjit.model.generator`) run under random schedules of the space that a search looks through (Adams
2019, section 5). Every result is compared with NumPy's own, so each sample is a test, too: a wrong one is reported, and
nothing is learnt from it.

    python -m hjit.samples --seconds 1200 --out samples --seed 0          collect
    python -m hjit.samples --fit samples --weights weights.npz            learn
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import logging
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hjit.call.segments import TraceSegments, strides_of
from hjit.call.variant import Variant
from hjit.errors import HjitError
from hjit.kernels.runtime import features
from hjit.kernels.runtime.kernel import Bound
from hjit.model import network
from hjit.model.costs import Cost
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.sched.default.schedules import default_schedule
from hjit.sched.search.batches import State
from hjit.sched.search.refine import Schedule, refined, walked
from hjit.sched.search.space import Space
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import graph_key
from hjit.tuning.autoschedule import space_of
from hjit.tuning.candidates import with_fixes
from hjit.tuning.choice import Choice, Segment
from hjit.tuning.decide import by_search

log = logging.getLogger("hjit")

Arrays = Sequence[np.ndarray[Any, Any]]

RUNS, LEAST_RUNS = 40, 3  # of one schedule
RUN_SECONDS = 0.06  # for them all
PROGRAM_SECONDS = 25.0  # for the kernels of one program
MAX_STAGES = 14  # of a program that is measured
RANDOM_TRIES = 8
LONG_SECONDS = 1.0  # of a slow one: it runs no more
PIXELS = (256**2, 3072**2)  # of the images of a program
IMAGES = 3  # sizes of them, for one program
LONGEST_WALK = 8  # moves from the default schedule
REFINED_MOVES = 150  # looked at
LOOKED_AT = (2, 4)  # ways of each decision that a cost model chooses from
DECAY, RATE = 0.1, 6e-3  # of weights, and of learning; programs held out are predicted best with them
RTOL = 1e-3  # of results: sums of floats have no order
NOISE = 1e-5  # what is left of float32 values of about 1 that cancel


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured schedule: seconds, and its features [stages, len(SCHEDULE)]."""

    seconds: float
    features: Any


class Mismatch(Exception):
    """A schedule computed something else than NumPy."""


def candidates(space: Space, graph: Graph, count: int, seed: int, cost: Cost | None = None) -> Iterator[Schedule]:
    """Schedules to measure: the default one, some near to it, random ones, and such as cost models find good.

    Args:
        cost: a cost model that chooses every fourth one and refines some of those; None: random ones do, as for the
            first training set of section 5.
    """
    rng = random.Random(seed)
    default = Schedule(default_schedule(graph, space.target), frozenset())
    yield default
    for k in range(count - 1):
        under = Space.like(space, network.random(rng.randrange(1 << 30)) if cost is None or k % 4 == 3 else cost)
        if k % 4 == 0:
            state: State | None = random_state(space, rng)
        elif k % 4 == 1:
            yield walked(space, default, rng.randint(1, LONGEST_WALK), rng)
            continue
        else:
            state = chosen_state(under, rng, rng.choice(LOOKED_AT))
        if state is not None:
            found = Schedule(state.tree, state.inlined)
            yield (
                refined(under, found, rng.randrange(1 << 30), limited(REFINED_MOVES)).schedule
                if k % 4 == 2 and rng.random() < 0.5
                else found
            )


def limited(count: int) -> Callable[[], bool]:
    """True from the call after so many on."""
    calls = iter(range(count))
    return lambda: next(calls, None) is None


def random_state(space: Space, rng: random.Random) -> State | None:
    """Random decisions that break no rule in the end; None where that is hard to find."""
    for _ in range(RANDOM_TRIES):
        batch, row = space.start.batch, 0
        while not batch.is_complete:
            batch = rng.choice(space.families(batch[row]))
            row = rng.randrange(len(batch))
        ((cost,),) = space.cost([(batch, np.array([row]))])
        if cost < math.inf:
            return batch[row]
    return None


def chosen_state(space: Space, rng: random.Random, looked_at: int) -> State | None:
    """The best of a few random ways to make each decision; None where the rules forbid all.

    It is the dropout of Adams 2019, section 4.3, without the cost of what is dropped. Ways that differ in sizes only
    count as one, and of their sizes all are looked at.
    """
    state = space.start
    while not state.batch.is_complete:
        batches = space.families(state)
        rng.shuffle(batches)
        best = math.inf
        while batches and best == math.inf:
            some, batches = batches[:looked_at], batches[looked_at:]
            for batch, costs in zip(some, space.cost([(b, np.arange(len(b))) for b in some]), strict=True):
                k = int(np.argmin(costs))
                if costs[k] < best:
                    best, state = float(costs[k]), batch[k]
        if best == math.inf:
            return None
    return state


@dataclass(frozen=True, slots=True)
class MeasurementLock:
    """Lets several processes compile at once, and one measure while no other works."""

    folder: Path

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Some work that would disturb a measurement."""
        with self._held("gate", fcntl.LOCK_EX):
            pass  # one that waits to measure is let through
        with self._held("work", fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Nobody else works meanwhile."""
        with self._held("gate", fcntl.LOCK_EX), self._held("work", fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _held(self, name: str, kind: int) -> Iterator[None]:
        with (self.folder / f".{name}.lock").open("w") as file:
            fcntl.flock(file, kind)
            yield


class Case:
    """A program at one size of images, traced.

    Raises:
        Mismatch: by the default schedule a result is not NumPy's.
        HjitError: the function is not one kernel.
    """

    def __init__(
        self, pipe: Pipeline[..., Any], function: Callable[..., Any], arrays: Arrays, options: Options, cost: Cost
    ) -> None:
        for ours, theirs in zip(leaves(pipe(*arrays)), leaves(function(*arrays)), strict=True):
            if not alike(ours, theirs):
                raise Mismatch("the default schedule")
        self.variant, self.options = pipe.variant_of(tuple(arrays), {}, options), options
        guarded = self.variant.guards.values(arrays)
        if len(self.variant.graphs) != 1 or self.variant.impure or self.variant.body.slots or guarded is None:
            raise HjitError("not one kernel of arrays alone")
        (self.graph,) = self.variant.graphs
        if len(self.graph.stages) > MAX_STAGES:
            raise HjitError(f"{len(self.graph.stages)} stages take too long to compile again and again")
        self.space = space_of(segment_of(self.graph, options), self.variant.rec.sizes, options, cost)
        self.given = (
            {n: arrays[k] for n, k in self.variant.guards.arguments.items()} | guarded[1] | dict(self.variant.constants)
        )
        self.made: dict[Schedule, Bound] = {}

    def make(self, schedule: Schedule) -> None:
        """Compile a schedule; at another size the kernel is known."""
        if schedule in self.made:
            return
        outputs = self.graph.outputs
        try:
            bound, done = compiled(self.variant, by_search({outputs: schedule.tree}, schedule.inlined), self.options)
            self.made.setdefault(Schedule(done.trees[outputs], schedule.inlined), bound)
        except HjitError as error:  # a schedule that cannot be lowered
            log.debug("not lowered: %s", error)

    def samples(self) -> list[Sample]:
        """All schedules timed.

        Raises:
            Mismatch: the results of two are not the same.
        """
        reference: list[Any] | None = None
        found = []
        for schedule, bound in self.made.items():
            outputs = bound.new_outputs()
            seconds = timed(bound, [self.given[n] for n in bound.inputs], outputs)
            reference = reference or outputs
            if not all(map(alike, outputs, reference)):
                raise Mismatch(f"{schedule.tree}\ninlined: {sorted(schedule.inlined)}")
            found.append(Sample(seconds, self.space.features(schedule.tree, schedule.inlined)))
        return found


@dataclass(frozen=True, slots=True)
class Measured:
    """A program at one size of images: pipeline features [stages, len(PIPELINE)], samples, and facts of the machine."""

    pipeline: Any
    samples: list[Sample]
    machine: Any


def measured(
    function: Callable[..., Any],
    sizes: Sequence[Arrays],
    options: Options,
    count: int,
    seed: int,
    quiet: MeasurementLock,
    cost: Cost | None = None,
) -> list[Measured]:
    """The same schedules of a program on images of several sizes; they are chosen for the first ones.

    Args:
        sizes: what to call it with.

    Raises:
        Mismatch: a result is not NumPy's.
        HjitError: the function is not one kernel.
    """
    with quiet.working():
        given = {
            "verify": "off",
            "cache": "off",
            "tune": False,
            "fast_math": options.fast_math,
            "num_threads": options.num_threads,
        }
        given["target"] = options.target
        pipe = Pipeline(function, given)
        cases = [Case(pipe, function, arrays, options, cost or network.random(seed)) for arrays in sizes]
        first = cases[0]
        cases = [c for c in cases if graph_key(c.graph) == graph_key(first.graph)]
    found = candidates(first.space, first.graph, count, seed, cost)
    end = time.perf_counter() + PROGRAM_SECONDS
    while time.perf_counter() < end:
        with quiet.working():
            candidate = next(found, None)
            if candidate is None:
                break
            for case in cases:
                case.make(candidate)
    with quiet.measuring():
        return [Measured(c.space.nests.pipeline, c.samples(), c.space.nests.machine) for c in cases]


def segment_of(graph: Graph, options: Options) -> Segment:
    """A canonical Graph as a search takes it."""
    return Segment(graph, features.schedule_target(options.target))


def compiled(variant: Variant, choice: Choice, options: Options) -> tuple[Bound, Choice]:
    """The kernel of a searched schedule, and the schedule with its fixes; see `with_fixes`.

    Raises:
        HjitError: it cannot be lowered.
    """
    rec, segments_of = variant.rec, TraceSegments(variant.trace, features.schedule_target(options.target))
    choice.check(segments_of(choice.rewrites))

    def make(choice: Choice) -> Bound:
        (segment,) = segments_of(choice.rewrites)
        return Bound(choice.of(segment), options, rec.sizes, strides_of(rec, [segment.graph]))

    return with_fixes(make, choice, segments_of)


def timed(bound: Bound, inputs: Arrays, outputs: Arrays) -> float:
    """The least of several times of a kernel, in seconds."""
    times: list[float] = []
    while (len(times) < LEAST_RUNS and sum(times) < LONG_SECONDS) or (len(times) < RUNS and sum(times) < RUN_SECONDS):
        start = time.perf_counter()
        if not bound.run(inputs, outputs, ()):
            raise Mismatch("an index out of bounds")
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
    return bool(
        np.allclose(
            a, b, rtol=RTOL, atol=NOISE + RTOL * float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), equal_nan=True
        )
    )


# -- collecting


def collect_one(seed: int, folder: Path, count: int, weights: Path | None, target: str) -> str:
    """Measure one random program, a file for each size of images; a line that says what came of it.

    Args:
        target: see `hjit.options.Options`.
    """
    from hjit.model.generator import random_program

    rng = random.Random(seed)
    low, high = map(math.log, PIXELS)
    programs = [random_program(seed, round(math.exp(rng.uniform(low, high)))) for _ in range(IMAGES)]
    same = [p for p in programs if p.source == programs[0].source]
    options = Options(
        num_threads=1 if seed % 4 == 3 else 0,
        cache="off",
        verify="off",
        tune=False,
        fast_math=seed % 2 == 0,
        target=target,
    )
    cost = None if weights is None else network.load(weights)
    found = measured(
        programs[0].function, [p.inputs(seed) for p in same], options, count, seed, MeasurementLock(folder), cost
    )
    lines = []
    for k, x in enumerate(found):
        if len(x.samples) < 2:
            continue
        times = np.array([s.seconds for s in x.samples])
        schedule = np.stack([s.features for s in x.samples]).astype(np.float32)
        np.savez(folder / f"{seed}-{k}.npz", pipeline=x.pipeline, schedule=schedule, runtimes=times, machine=x.machine)
        least, most = (f"{1e3 * t:.2f}" for t in (times.min(), times.max()))
        lines.append(f"{len(times)} of {least} to {most} ms, default {times[0] / times.min():.2f} of the best")
    return f"{seed}: {len(found[0].pipeline)} stages, samples " + ("; ".join(lines) or "none")


def collect(seconds: float, folder: Path, first: int, count: int, jobs: int, weights: Path | None, target: str) -> None:
    """Measure random programs, each in a process of its own, until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.time() + seconds
    seeds = itertools.count(first)

    def work(number: int) -> None:
        while time.time() < end:
            seed = next(seeds)
            command = [sys.executable, "-m", "hjit.samples", "--one", str(seed), "--out", str(folder)]
            command += ["--count", str(count), "--target", target, *(["--weights", str(weights)] if weights else [])]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
                print(
                    done.stdout.strip() or f"{seed}: status {done.returncode} {done.stderr.strip()[-600:]}", flush=True
                )
            except subprocess.TimeoutExpired:
                print(f"{seed}: more than 90 s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))


def fit_all(
    folders: Sequence[Path],
    out: Path,
    passes: int,
    seed: int,
    loss: str = "log",
    decay: float = DECAY,
    held_out: float = 0.2,
) -> None:
    """Fit a network to all samples of some folders."""
    from hjit.model.fit import Program, fit, steadied

    programs = []
    for folder in folders:
        for file in sorted(folder.glob("*.npz")):
            with np.load(file) as x:
                programs.append(Program(x["pipeline"], x["schedule"], x["runtimes"], x["machine"]))

    def show(number: int, error: float) -> None:
        print(number, round(error, 5), flush=True)

    given = {"passes": passes, "seed": seed, "learning_rate": RATE, "loss": loss, "decay": decay, "held_out": held_out}
    found, report = fit(steadied(programs), **given, show=show)  # type: ignore[arg-type]
    found.save(out)
    about = {name: vars_of(of) for name in ("trained", "held_out") if (of := getattr(report, name)) is not None}
    print(report)
    out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def vars_of(x: Any) -> dict[str, Any]:
    """The fields of a dataclass."""
    return {name: getattr(x, name) for name in x.__slots__}


def main() -> int:
    """Collect or learn."""
    parser = argparse.ArgumentParser(prog="python -m hjit.samples", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--out", type=Path, default=Path("samples"))
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--count", type=int, default=16, help="schedules of one program")
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes at once; one at a time measures, while the others wait"
    )
    parser.add_argument(
        "--weights", type=Path, help="a fitted network that chooses some of the schedules, or where to write one"
    )
    parser.add_argument("--target", default="cpu", help="x86-64-v3, say, to learn of machines without AVX-512, too")
    parser.add_argument("--fit", type=Path, nargs="+", help="folders of samples to learn from")
    parser.add_argument("--passes", type=int, default=60)
    parser.add_argument(
        "--loss", default="log", help="the error that is made small: log or throughput, see hjit.model.fit"
    )
    parser.add_argument("--decay", type=float, default=DECAY, help="of weights, see hjit.model.fit")
    parser.add_argument(
        "--held-out", type=float, default=0.2, help="the share of programs that is not learnt from, but predicted"
    )
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        fit_all(given.fit, given.weights, given.passes, given.seed, given.loss, given.decay, given.held_out)
    elif given.one is not None:
        print(collect_one(given.one, given.out, given.count, given.weights, given.target))
    else:
        collect(given.seconds, given.out, given.seed, given.count, given.jobs, given.weights, given.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
