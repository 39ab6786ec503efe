"""Programs under schedules, compiled and measured: the cost model's training data.

Every result is compared with that of the other schedules, and the default schedule's with NumPy's own, so each sample
is a test, too: a wrong one is reported, and nothing is learnt from it. All schedules of a program are timed in rounds,
one after the other in each, so that a machine that is slow for a while is slow for all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hjit.call.compiling import segments_for
from hjit.call.segments import strides_of
from hjit.call.variant import Variant
from hjit.errors import HjitError
from hjit.kernels.runtime import features
from hjit.kernels.runtime.bind import bind
from hjit.kernels.runtime.kernel import Bound
from hjit.model import network
from hjit.model.costs import Cost
from hjit.options import Options, resolve
from hjit.pipeline import Pipeline
from hjit.sched.search.refine import Schedule
from hjit.sched.search.space import Space
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import graph_key
from hjit.training.schedules import candidates
from hjit.tuning.autoschedule import space_of
from hjit.tuning.candidates import with_fixes
from hjit.tuning.choice import Choice, Segment
from hjit.tuning.decide import by_search
from hjit.tuning.nest_times import components

log = logging.getLogger("hjit")

Arrays = Sequence[np.ndarray[Any, Any]]

ROUNDS = 3  # in which all schedules are timed
RUNS, LEAST_RUNS = 14, 2  # of one schedule in a round: the first one may touch all its pages for the first time
RUN_SECONDS = 0.02  # for them all
LONG_SECONDS = 0.3  # of a slow one: it runs no more
MEASURED_SECONDS = 8.0  # of a program, after which no larger images of it are begun
MUCH_SLOWER = 8.0  # times as long as the best on smaller images: nothing is learnt from it on larger ones
PROGRAM_SECONDS = 25.0  # for the kernels of one program, after which no more are begun
LEAST_SCHEDULES = 5  # of one whose kernels take longer
BUDGET = 60.0  # seconds for the first kernel of a program: long ones are measured, too
MAX_STAGES = 150  # of a program that is measured
RTOL = 1e-3  # of results: sums of floats have no order
NOISE = 1e-5  # what is left of float32 values of about 1 that cancel


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured schedule.

    Attributes:
        times: seconds of one run, the least of each round.
        part: the part of the kernel that each stage is in, see `hjit.tuning.nest_times`.
        part_seconds: of each part, of the fastest run.
        features: [stages, len(SCHEDULE)].
        origins: how it was found, see `hjit.training.schedules.candidates`: by some of them again.
    """

    times: tuple[float, ...]
    part: Any
    part_seconds: Any
    features: Any
    origins: tuple[str, ...]
    schedule: Schedule

    @property
    def origin(self) -> str:
        """How it was found first."""
        return self.origins[0]

    @property
    def seconds(self) -> float:
        """The least of all rounds."""
        return min(self.times)


class Mismatch(Exception):
    """A schedule computed something else than NumPy."""


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
        """No other work runs meanwhile."""
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
        if len(self.variant.graphs) != 1 or self.variant.impure or guarded is None:
            raise HjitError("not one kernel")
        (self.graph,) = self.variant.graphs
        if len(self.graph.stages) > MAX_STAGES:
            raise HjitError(f"{len(self.graph.stages)} stages take too long to compile again and again")
        self.space = space_for(self.variant, options, cost)
        self.given = (
            {n: arrays[k] for n, k in self.variant.guards.arguments.items()} | guarded[1] | dict(self.variant.constants)
        )
        self.scalars = {name: guarded[0][slot] for name, slot in self.variant.body.slots.items()}
        self.elements = sum(map(np.size, arrays))
        self.made: dict[Schedule, Bound] = {}
        self.origins: dict[Schedule, list[str]] = {}
        self.lost: Counter[str] = Counter()

    def make(self, origin: str, schedule: Schedule) -> None:
        """Compile a schedule; at another size the kernel is known. One that cannot be is counted in `lost`."""
        if schedule in self.made:
            self.origins[schedule].append(origin)
            return
        outputs = self.graph.outputs
        try:
            choice = by_search({outputs: schedule.tree}, schedule.inlined)
            bound, done = compiled(self.variant, choice, self.options, timed=True)
            fixed = Schedule(done.trees[outputs], schedule.inlined)
            self.made.setdefault(fixed, bound)
            self.origins.setdefault(fixed, []).append(origin)
        except HjitError as error:
            reason = str(error).splitlines()[0]
            self.lost[f"{origin}: {type(error).__name__}: {reason}"] += 1
            log.debug("not lowered: %s", error)

    def samples(self, without: Collection[Schedule] = ()) -> list[Sample]:
        """The schedules timed, in rounds, but for some.

        Raises:
            Mismatch: the results of two are not the same.
        """
        made = {x: found for x, found in self.made.items() if x not in without}
        times: dict[Schedule, list[Any]] = {x: [] for x in made}  # of the nests
        reference: list[Any] | None = None
        for _ in range(ROUNDS):
            for schedule, bound in made.items():
                if sum(map(np.sum, times[schedule])) > LONG_SECONDS:
                    continue
                outputs = bound.new_outputs()
                scalars = [self.scalars[n] for n, _ in bound.scalars]
                times[schedule].append(timed(bound, [self.given[n] for n in bound.inputs], outputs, scalars))
                reference = reference or outputs
                if len(times[schedule]) == 1 and not all(map(alike, outputs, reference)):
                    raise Mismatch(f"{schedule.tree}\ninlined: {sorted(schedule.inlined)}")
        return [self._sample(x, bound, times[x]) for x, bound in made.items()]

    def _sample(self, schedule: Schedule, bound: Bound, times: Sequence[Any]) -> Sample:
        best = min(times, key=np.sum)
        part, seconds = components(self.graph, schedule.inlined, bound.parameters.nests, best)
        features, origins = self.space.features(schedule.tree, schedule.inlined), tuple(self.origins[schedule])
        return Sample(tuple(float(x.sum()) for x in times), part, seconds, features, origins, schedule)


@dataclass(frozen=True, slots=True)
class Measured:
    """A program at one size of images: pipeline features [stages, len(PIPELINE)], samples, and facts of the machine.

    Attributes:
        number: which of the sizes that were given.
        lost: reasons why schedules are no samples, and how often.
    """

    number: int
    pipeline: Any
    samples: list[Sample]
    machine: Any
    lost: Counter[str]


def measured(
    function: Callable[..., Any],
    sizes: Sequence[Arrays],
    options: Options,
    count: int,
    seed: int,
    quiet: MeasurementLock,
    cost: Cost | None = None,
) -> list[Measured]:
    """The same schedules of a program on images of several sizes, the smallest first; they are chosen for the first.

    Larger images may be left out, and on them slow schedules, where all takes long.

    Args:
        sizes: what to call it with.

    Raises:
        Mismatch: a result is not NumPy's.
        HjitError: the function is not one kernel.
    """
    with quiet.working():
        pipe = pipeline_of(function, options)
        cases = [Case(pipe, function, arrays, options, cost or network.random(seed)) for arrays in sizes]
        first, numbers = cases[0], {c: k for k, c in enumerate(cases)}
        cases = [c for c in cases if graph_key(c.graph) == graph_key(first.graph)]
    found = candidates(first.space, first.graph, count, seed, cost)
    end = time.perf_counter() + PROGRAM_SECONDS
    while time.perf_counter() < end or len(first.made) < LEAST_SCHEDULES:
        with quiet.working():
            candidate = next(found, None)
            if candidate is None:
                break
            for case in cases:
                case.make(*candidate)
    samples: dict[Case, list[Sample]] = {}
    slow: set[Schedule] = set()
    with quiet.measuring():
        end = time.perf_counter() + MEASURED_SECONDS
        for c in sorted(cases, key=lambda c: c.elements):
            if samples and time.perf_counter() > end:
                break
            samples[c] = c.samples(slow)
            most = MUCH_SLOWER * min((s.seconds for s in samples[c]), default=0.0)
            slow.update(s.schedule for s in samples[c] if s.seconds > most)
    return [
        Measured(numbers[c], c.space.nests.pipeline, found, c.space.nests.machine, c.lost)
        for c, found in samples.items()
    ]


def pipeline_of(function: Callable[..., Any], options: Options) -> Pipeline[..., Any]:
    """A random program as a pipeline that does nothing but compile it."""
    given = {"verify": "off", "cache": "off", "tune": False, "budget": BUDGET, "fast_math": options.fast_math}
    return Pipeline(
        function, given | {"num_threads": options.num_threads, "target": options.target, "blas": options.blas}
    )


def space_for(variant: Variant, options: Options, cost: Cost) -> Space:
    """The schedules of a variant of one Graph."""
    (graph,) = variant.graphs
    users = resolve({})  # in the user's cache is what is known of the machine, but no kernel of these programs
    known = replace(options, cache=users.cache, cache_dir=users.cache_dir)
    return space_of(segment_of(graph, options), variant.rec.sizes, known, cost)


def segment_of(graph: Graph, options: Options) -> Segment:
    """A canonical Graph as a search takes it."""
    return Segment(graph, features.schedule_target(options.target))


def compiled(variant: Variant, choice: Choice, options: Options, timed: bool = False) -> tuple[Bound, Choice]:
    """The kernel of a searched schedule, and the schedule with its fixes; see `with_fixes`.

    Args:
        timed: see `hjit.kernels.runtime.scheduled.Scheduled`.

    Raises:
        HjitError: it cannot be lowered.
    """
    rec, segments_of = variant.rec, segments_for(variant.trace, options)
    choice.check(segments_of(choice.rewrites))

    def make(choice: Choice) -> Bound:
        (segment,) = segments_of(choice.rewrites)
        return bind(replace(choice.of(segment), timed=timed), options, rec.sizes, strides_of(rec, [segment.graph]))

    return with_fixes(make, choice, segments_of)


def timed(bound: Bound, inputs: Arrays, outputs: Arrays, scalars: Sequence[Any] = ()) -> Any:
    """The seconds of each nest of a kernel that notes them, in the fastest of several runs, float64 [nests]."""
    times: list[Any] = []
    spent = 0.0
    while len(times) < LEAST_RUNS or (len(times) < RUNS and spent < RUN_SECONDS):
        found = bound.nest_seconds(inputs, outputs, scalars)
        if found is None:
            raise Mismatch("an index out of bounds")
        times.append(found)
        spent += float(found.sum())
    return min(times, key=np.sum)


def leaves(x: Any) -> list[Any]:
    """The arrays of a result."""
    return [y for part in x for y in leaves(part)] if isinstance(x, (tuple, list)) else [x]


def alike(a: Any, b: Any) -> bool:
    """Are two results the same, floats nearly so?"""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if np.array_equal(a, b):
        return True
    return a.dtype.kind in "fc" and bool(
        np.allclose(
            a, b, rtol=RTOL, atol=NOISE + RTOL * float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), equal_nan=True
        )
    )
