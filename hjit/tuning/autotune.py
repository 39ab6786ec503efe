"""Autotuning: batches of schedules are compiled and timed, and the cost model is fitted between batches.

The procedure is that of Adams 2019, section 4.3. A function's kernels are tuned one after the other, each for its share
of the time. Schedules of a batch are timed in interleaved rounds, together with the default schedule and the fastest
one so far, so that a temporarily slow machine is slow for all of them. Tuning ends after some batches without a gain,
when the time is up, or on Ctrl-C, which keeps the result so far. At the end, the fastest schedule is timed once more
against the default one, which is used unless it is clearly slower.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import hjit.cache as cache
from hjit.errors import HjitError
from hjit.kernels.runtime.kernel import Bound
from hjit.kernels.runtime.machine_code import is_busy
from hjit.model.samples import to_bytes
from hjit.options import Options
from hjit.process import deadline, debug
from hjit.process.progress import milliseconds, note
from hjit.sched.language.tree import Root
from hjit.sched.search.refine import Schedule
from hjit.trace.passes.rewrites import NO_REWRITES
from hjit.tuning import autoschedule, decide, plans
from hjit.tuning.candidates import least_times, with_fixes
from hjit.tuning.choice import DEFAULT, Arguments, Candidate, Choice, Segment, SegmentsOf
from hjit.tuning.learning import Learner, can_fit
from hjit.tuning.limits import (
    BATCH,
    BATCH_SECONDS,
    CLEARLY_FASTER,
    CONFIRMED_SECONDS,
    FIT_SECONDS,
    GAIN,
    KEPT_TIMED,
    LITTLE_TIME,
    PLATEAU,
)
from hjit.tuning.sampling import Sampler

log = logging.getLogger("hjit")


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning.

    Attributes:
        seconds: what all kernels of the function take together by the schedules that were found.
        default: the same by the default schedules, timed against them.
        candidates: schedules that were timed, the default ones among them.
        lost: others, that could not be compiled.
        batches: of them.
        fits: how often the cost model was fitted to the times.
        took: seconds of tuning.
        why: it ended.
    """

    seconds: float
    default: float
    candidates: int
    lost: int
    batches: int
    fits: int
    took: float
    why: str

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedules; 1: these run."""
        return self.default / self.seconds if self.seconds else 1.0

    def __str__(self) -> str:
        if self.default == 0:
            return f"not tuned: {self.why}"
        lost = f", {self.lost} more could not be compiled" if self.lost else ""
        return (
            f"{milliseconds(self.seconds)}, by the default schedule {milliseconds(self.default)}: "
            f"{self.speedup:.2f} times as fast; {self.candidates} schedules in {self.batches} batches{lost}, "
            f"{self.took:.0f} s; it ended as {self.why}"
        )


def not_tuned(why: str) -> Tuned:
    """Nothing was done."""
    return Tuned(0.0, 0.0, 0, 0, 0, 0, 0.0, why)


def combined(some: Sequence[Tuned], took: float) -> Tuned:
    """The result of tuning several parts of a function."""
    some = [x for x in some if x.default]
    if not some:
        return not_tuned("no part of it has kernels that take long enough, and were not tuned before")
    why = ", ".join(dict.fromkeys(x.why for x in some))
    seconds, default = sum(x.seconds for x in some), sum(x.default for x in some)
    candidates, lost, batches, fits = (
        sum(getattr(x, n) for x in some) for n in ("candidates", "lost", "batches", "fits")
    )
    return Tuned(seconds, default, candidates, lost, batches, fits, took, why)


Outputs = dict[Any, list[np.ndarray[Any, Any]]]
Make = Callable[[Choice], Candidate]


@dataclass(frozen=True, slots=True)
class KernelSchedule:
    """The schedule of one kernel: None is the default tree."""

    tree: Root | None = None
    inlined: frozenset[str] = frozenset()
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def schedule(self, default: Root) -> Schedule | None:
        """The same as local search takes it; None where reductions are done in parts: that is another Graph."""
        return None if self.factored else Schedule(self.tree or default, self.inlined)


@dataclass(slots=True)
class _Timed:
    """A schedule of a kernel that was timed.

    Attributes:
        seconds: on a machine as fast as it was when the first one was timed.
        predicted: by the cost model as it was before.
    """

    found: KernelSchedule
    bound: Bound
    seconds: float
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What tuning may take.

    Attributes:
        seconds: to end after; one more compilation may follow.
        is_stopped: is it to end at once?
        fits: may the cost model be fitted, where there is JAX?
    """

    seconds: float
    is_stopped: Callable[[], bool] = lambda: False
    fits: bool = True


def autotune(
    segments_of: SegmentsOf,
    sizes: Mapping[str, int],
    make: Make,
    arguments: Callable[[Candidate], Arguments | None],
    options: Options,
    limits: Limits,
) -> Tuned:
    """Tune the kernels of a function, and keep their plans.

    Args:
        segments_of: the segments of the function, with some rewrites.
        sizes: numbers of the run-time sizes by name.
        make: compiles the kernels of a schedule.
        arguments: all arrays that kernels read in one call, by the kernels of the default schedule; None: they are
            not to be had.
        options: those of the calls that are to find the plans.
    """
    with deadline.paused():
        run = _Tuning(segments_of, sizes, make, replace(options, tune="autotune"), limits)
        default = make(DEFAULT)
        if not any(default.kernels):
            return not_tuned("it has no kernels")
        given = arguments(default)
        if given is None:
            return not_tuned("its kernels cannot be run on their own: calls between them have effects")
        return run.run(default, given)


class _Tuning:
    """The kernels of one function, and what is known of their schedules."""

    def __init__(
        self,
        segments_of: SegmentsOf,
        sizes: Mapping[str, int],
        make: Make,
        options: Options,
        limits: Limits,
    ) -> None:
        self.segments_of, self.sizes, self.make, self.options = segments_of, sizes, make, options
        self.begin = time.perf_counter()
        self.end = self.begin + limits.seconds
        self.is_stopped, self.fits_model = limits.is_stopped, limits.fits and can_fit()
        self.segments = segments_of(NO_REWRITES)
        self.chosen: dict[int, KernelSchedule] = {}  # by the number of the kernel
        self.all_timed: dict[int, list[_Timed]] = {}
        self.outputs: Outputs = {}  # shared: a new array costs its first writer more than the kernel does
        self.candidates = self.lost = self.batches = self.fits = 0
        self.why = ""
        self.given = Arguments({}, {})
        note(begin=self.begin, end=self.end)

    def run(self, default: Candidate, given: Arguments) -> Tuned:
        """Tune all kernels; keep what was found."""
        self.given = given
        try:
            first = self._first_times(default)
            total = sum(first.values())
            for k, own in sorted(first.items(), key=lambda x: -x[1]):
                left = self.end - time.perf_counter()
                share = own / max(sum(t for j, t in first.items() if j not in self.all_timed), 1e-12)
                if own >= LITTLE_TIME * total:
                    bound = default.kernels[k]
                    assert bound is not None
                    self._kernel(k, bound, time.perf_counter() + left * share)
        except KeyboardInterrupt:
            self.why = "it was interrupted"
        except _OutOfBounds:
            return not_tuned("an index is out of bounds")
        return self._finished(default)

    def is_over(self, end: float) -> bool:
        """Is it time to end?"""
        return time.perf_counter() >= end or self.is_stopped()

    # -- one kernel
    def _kernel(self, k: int, default: Bound, end: float) -> None:
        """Batches of schedules of one kernel."""
        segment = self.segments[k]
        stop = functools.partial(self.is_over, end)
        base = _Timed(KernelSchedule(), default, math.inf)
        self.all_timed[k] = [base]
        seen: set[str] = {default.kernel.name}
        note(doing="searching", candidates=self.candidates)
        first = self._known(k)
        best = self._batch(k, base, base, [x for x in first if not stop()], seen)
        cost_space = autoschedule.space_of(segment, self.sizes, self.options)
        left = max(end - time.perf_counter(), 0.0)
        sampler = Sampler(cost_space, 0, left, stop)
        learner = Learner(cost_space, self.fits_model and left >= FIT_SECONDS)
        try:
            self._batches(k, base, best, sampler, learner, seen, stop)
        finally:
            self._keep_samples(segment, learner)

    def _batches(
        self,
        k: int,
        base: _Timed,
        best: _Timed,
        sampler: Sampler,
        learner: Learner,
        seen: set[str],
        stop: Callable[[], bool],
    ) -> None:
        """Batches, until they gain nothing more."""
        segment = self.segments[k]
        self._learn(segment, learner, self.all_timed[k], stop)
        without = 0
        while without < PLATEAU:
            if stop():
                self.why = "the time was over" if not self.is_stopped() else "it was stopped"
                return
            start = best.found.schedule(segment.default) or Schedule(segment.default, frozenset())
            known = len(self.all_timed[k])
            before = best
            best = self._batch(k, base, best, map(_found, sampler.batch(BATCH, start)), seen, stop)
            new = self.all_timed[k][known:]
            if new and self._learn(segment, learner, new, stop):
                sampler.learn(learner.cost)
                self.fits += 1
            without = 0 if best.seconds < (1 - GAIN) * before.seconds else without + 1
        self.why = f"{PLATEAU} batches brought no gain"

    def _keep_samples(self, segment: Segment, learner: Learner) -> None:
        """What was timed joins this user's samples, which ``hjit train --own`` fits weights to."""
        found = learner.samples() if self.options.cache == "rw" else None
        if found is not None:
            name = plans.plan_name(segment, self.sizes, self.options).entry.replace("plan_", "samples_", 1)
            about = {"samples": len(found.origins[0])}
            cache.store(name, to_bytes(found), about, self.options.cache_dir, self.options.cache, "samples")

    def _known(self, k: int) -> list[KernelSchedule]:
        """What a short search finds, or what is kept of an earlier one."""
        segment = self.segments[k]
        stored = plans.load_plan(plans.plan_name(segment, self.sizes, self.options), segment.graph, self.options)
        found = [] if stored is None else [KernelSchedule(stored.tree, stored.inlined, stored.factored)]
        alone = replace(self.options, tune="greedy")
        decision = decide.found_or_searched(self._only(k), self.sizes, alone, decide.search)
        return [*found, *(_part_of(c, segment) for c in (decision.best, *decision.others))]

    def _only(self, k: int) -> SegmentsOf:
        return lambda rewrites: (self.segments_of(rewrites)[k],)

    def _batch(
        self,
        k: int,
        base: _Timed,
        best: _Timed,
        some: Iterable[KernelSchedule],
        seen: set[str],
        stop: Callable[[], bool] = lambda: False,
    ) -> _Timed:
        """Compile and time some schedules against the default one and the best so far; the best of them all."""
        made: list[_Timed] = []
        interrupted = False
        try:
            for found in some:
                bound = self._compiled(k, found, seen)
                if bound is not None:
                    made.append(_Timed(bound[0], bound[1], math.inf))
                note(doing=f"compiled {len(made)} of {BATCH}", candidates=self.candidates)
                if stop():
                    break
        except KeyboardInterrupt:  # what is compiled is timed
            interrupted = True
        self.batches += 1
        every = [base, *([best] if best is not base else []), *made]
        note(doing="timing")
        times = least_times([self._run_of(x.bound) for x in every], BATCH_SECONDS * len(every))
        if times is None:
            raise _OutOfBounds
        if base.seconds == math.inf:
            base.seconds = times[0]
        scale = base.seconds / times[0]
        for x, t in zip(every, times, strict=True):
            x.seconds = t * scale
        self.all_timed[k] += made
        self.candidates += len(made)
        best = min((x for x in every if x is not base), key=lambda x: x.seconds, default=base)
        best = best if best.seconds < CLEARLY_FASTER * base.seconds else base
        self.chosen[k] = best.found
        note(candidates=self.candidates, best=best.seconds, default=base.seconds)
        debug.say(
            "search",
            f"batch {self.batches} of {', '.join(self.segments[k].graph.outputs)}, the default schedule first",
            lambda: " ".join(f"{1e3 * t:.3f} ms" for t in times),
        )
        if interrupted:
            raise KeyboardInterrupt
        return best

    def _compiled(self, k: int, found: KernelSchedule, seen: set[str]) -> tuple[KernelSchedule, Bound] | None:
        """The kernel of a schedule, which may be changed for it; None where there is none, or it is known."""
        if found.tree is None:
            return None
        outputs = self.segments[k].graph.outputs
        choice = self._choice({**self.chosen, k: found})
        try:
            choice.check(self.segments_of(choice.rewrites))
            candidate, choice = with_fixes(self.make, choice, self.segments_of)
        except (HjitError, deadline.OverBudget) as error:
            if is_busy():  # LLVM does not end: nothing more can be compiled
                self.is_stopped = lambda: True
            self.lost += 1
            log.debug("a schedule is lost: %s", error)
            return None
        names = ["" if b is None else b.kernel.name for b in candidate.kernels]
        bound = candidate.kernels[k]
        if bound is None or bound.kernel.name in seen or any(n not in self.given.arrays for n in bound.inputs):
            return None
        if len(names) > 1 and not self._is_alone(k, names):
            return None
        seen.add(bound.kernel.name)
        return replace(found, tree=choice.trees[outputs]), bound

    def _is_alone(self, k: int, names: list[str]) -> bool:
        """Are all other kernels as they are without it? Inlining may change what is carried over between kernels."""
        rest = self.make(self._choice({j: x for j, x in self.chosen.items() if j != k})).kernels
        expected = ["" if b is None else b.kernel.name for b in rest]
        return [*names[:k], *names[k + 1 :]] == [*expected[:k], *expected[k + 1 :]]

    def _learn(self, segment: Segment, learner: Learner, new: list[_Timed], stop: Callable[[], bool]) -> bool:
        for x in new:
            schedule = x.found.schedule(segment.default)
            if schedule is not None and math.isfinite(x.seconds):
                x.predicted = learner.predicted(schedule)
                learner.add(schedule, x.seconds)
        note(doing="learning")
        return learner.learn(stop)

    # -- running
    def _run_of(self, bound: Bound) -> Callable[[], bool]:
        arrays, scalars = self.given.arrays, self.given.scalars
        results = self.outputs.setdefault(bound.outputs, bound.new_outputs())
        return functools.partial(
            bound.run, [arrays[n] for n in bound.inputs], results, [scalars[n] for n, _ in bound.scalars]
        )

    def _first_times(self, default: Candidate) -> dict[int, float]:
        """Seconds of each kernel by the default schedule."""
        found = {}
        for k, b in enumerate(default.kernels):
            if b is not None:
                times = least_times([self._run_of(b)], BATCH_SECONDS)
                if times is None:
                    raise _OutOfBounds
                found[k] = times[0]
                self.candidates += 1
        note(default=sum(found.values()), candidates=self.candidates)
        return found

    # -- the end
    def _choice(self, chosen: Mapping[int, KernelSchedule]) -> Choice:
        """The schedule of the function, with the default one where none is `chosen`."""
        every = [(self.segments[k].graph.outputs, x) for k, x in sorted(chosen.items())]
        return decide.by_search(
            {outputs: x.tree for outputs, x in every if x.tree is not None},
            frozenset(n for _, x in every for n in x.inlined),
            {n: f for _, x in every for n, f in x.factored.items()},
            {self.segments[k].graph.outputs: p for k, x in chosen.items() if (p := self._predicted(k, x)) is not None},
        )

    def _predicted(self, k: int, found: KernelSchedule) -> float | None:
        return next((x.predicted for x in self.all_timed.get(k, []) if x.found == found), None)

    def _finished(self, default: Candidate) -> Tuned:
        """Time the fastest against the default schedule, once more, and keep the plans."""
        choice = DEFAULT
        seconds: dict[str, float] = {}
        if any(x.tree is not None for x in self.chosen.values()):
            try:
                choice, seconds = self._confirmed(default)
            except KeyboardInterrupt:  # what is known of it counts
                choice = self._choice(self.chosen)
        by_default = sum(self._seconds_of(k, KernelSchedule()) for k in self.all_timed)
        best = by_default
        if choice is not DEFAULT:
            best = sum(self._seconds_of(k, self.chosen.get(k, KernelSchedule())) for k in self.all_timed)
        if seconds:
            by_default, best = seconds["default"], seconds["best"]
        if not math.isfinite(by_default) or not by_default:
            return not_tuned(self.why or "no kernel takes long enough")
        self._keep(choice)
        took = time.perf_counter() - self.begin
        counts = self.candidates, self.lost, self.batches, self.fits
        found = Tuned(best, by_default, *counts, took, self.why or "nothing was left to try")
        log.info("tuned: %s", found)
        return found

    def _seconds_of(self, k: int, found: KernelSchedule) -> float:
        return next((x.seconds for x in self.all_timed[k] if x.found == found), 0.0)

    def _confirmed(self, default: Candidate) -> tuple[Choice, dict[str, float]]:
        """The choice that runs from now on, and what it, and the default schedule, took in the end."""
        note(doing="timing the best once more")
        choice = self._choice(self.chosen)
        kernels = [*filter(None, default.kernels)], [*filter(None, self.make(choice).kernels)]
        default_run, best_run = (_in_order([self._run_of(b) for b in some]) for some in kernels)
        times = least_times([default_run, best_run], CONFIRMED_SECONDS)
        if times is None:
            return DEFAULT, {}
        if times[1] < CLEARLY_FASTER * times[0]:
            return choice, {"default": times[0], "best": times[1]}
        return DEFAULT, {"default": times[0], "best": times[0]}

    def _keep(self, choice: Choice) -> None:
        """Put the plans of all kernels where later calls find them."""
        for k, segment in enumerate(self.segments):
            if not segment.graph.outputs:
                continue
            timed = sorted(self.all_timed.get(k, []), key=lambda x: x.seconds)
            kept = [(self._choice({k: x.found}), x.seconds) for x in timed[:KEPT_TIMED] if math.isfinite(x.seconds)]
            measured = None
            if timed and math.isfinite(timed[0].seconds):
                own = self.chosen.get(k, KernelSchedule()) if choice is not DEFAULT else KernelSchedule()
                measured = self._seconds_of(k, own), self._seconds_of(k, KernelSchedule())
            name = plans.plan_name(segment, self.sizes, self.options)
            plans.store_plans(choice, [(name, segment.graph)], self.options, measured, kept)


class _OutOfBounds(Exception):
    """NumPy is to say that an index is out of bounds."""


def _found(x: Schedule) -> KernelSchedule:
    return KernelSchedule(x.tree, x.inlined)


def _part_of(choice: Choice, segment: Segment) -> KernelSchedule:
    """What a choice says of one segment."""
    graph = segment.graph
    return KernelSchedule(
        choice.trees.get(graph.outputs),
        frozenset(n for n in graph.by_name if n in choice.rewrites.inlined_after),
        {n: x for n, x in choice.rewrites.factored.items() if n in graph.by_name},
    )


def _in_order(runs: list[Callable[[], bool]]) -> Callable[[], bool]:
    """All of them as one."""
    return lambda: all(run() for run in runs)
