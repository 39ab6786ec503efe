"""Compiling and timing candidate schedules: the fastest one runs, and its plan is stored."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from hjit.errors import BlockError, ScheduleError, SlidingError
from hjit.kernels.runtime.kernel import Bound
from hjit.options import Options
from hjit.process import deadline, debug
from hjit.process.progress import note
from hjit.sched.language.transforms import storage_at_compute, unroll_less
from hjit.sched.language.tree import Root, computes
from hjit.trace.passes.rewrites import Rewrites
from hjit.tuning import decide, plans
from hjit.tuning.choice import DEFAULT, Arguments, ArgumentsOf, Candidate, Choice, SegmentsOf
from hjit.tuning.decide import Decision
from hjit.tuning.limits import (
    CLEARLY_FASTER,
    COMPILING_SECONDS,
    LONG,
    LONG_COMPILATION,
    MEASURED_SECONDS,
    MUCH_SLOWER,
    ROUNDS,
    VERY_LONG,
)

log = logging.getLogger("hjit")
Array = np.ndarray[Any, Any]
T = TypeVar("T")


class Candidates:
    """Compiles the kernels of schedules to compare, as far as there is time.

    Attributes:
        make: compiles the kernels of a schedule.
        segments_of: returns the segments of the function for some rewrites.
        has_left_out: were some not compiled for lack of time?
    """

    def __init__(self, make: Callable[[Choice], Candidate], segments_of: SegmentsOf) -> None:
        self.make, self.segments_of = make, segments_of
        self.has_left_out = False

    def compiled(self, choice: Choice, is_needed: bool) -> Candidate | None:
        """The kernels of a schedule; None if it cannot be lowered, or there is no time and it is not needed."""
        try:
            return with_fixes(self.make, choice, self.segments_of)[0] if choice.trees else self.make(choice)
        except deadline.OverBudget:
            if is_needed:
                raise
            self.has_left_out = True
        except ScheduleError as error:
            decide.refused(error)
        return None

    def found(self, decision: Decision, seconds: float, is_needed: bool) -> list[Candidate]:
        """The kernels of the schedules of a decision, the best first; after some seconds no more are compiled.

        Args:
            is_needed: is there nothing else to run?
        """
        end = time.perf_counter() + seconds
        made = [self.compiled(decision.best, is_needed)]
        for number, choice in enumerate(decision.others):
            if time.perf_counter() > end:
                break
            note(doing=f"compiling {number + 2} of {len(decision.others) + 1} schedules")
            made.append(self.compiled(choice, is_needed and not any(made)))
        return [x for x in made if x is not None and x.choice.trees]


def chosen(
    decision: Decision,
    make: Callable[[Choice], Candidate],
    segments_of: SegmentsOf,
    arguments: ArgumentsOf,
    options: Options,
) -> Candidate:
    """Time the schedules of a decision and the default one; the kernels of the fastest, whose plan is stored.

    Args:
        arguments: returns the arrays to time them on.
    """
    candidates = Candidates(make, segments_of)
    default: Candidate | None = None
    if decision.new and options.tune != "one_shot":
        default, is_alone = default_of(candidates, options)
        if default is not None and is_alone:
            plans.store_plans(replace(DEFAULT, costs=decision.best.costs), decision.new, options)
            return default
    start, spent = time.process_time(), deadline.spent()
    found = candidates.found(decision, COMPILING_SECONDS[str(options.tune)], default is None)
    spent.comparing += time.process_time() - start
    if options.tune == "one_shot" and decision.new:
        best = found[0] if found else make(DEFAULT)
        plans.store_plans(best.choice, decision.new, options)
        return best
    best = fastest(candidates, found, default, decision, arguments) if decision.new or not found else found[0]
    if not candidates.has_left_out:  # else store no plan: another process may have time to compare all
        plans.store_plans(best.choice, decision.new, options, best.measured, best.timed)
    return best


def default_of(candidates: Candidates, options: Options) -> tuple[Candidate | None, bool]:
    """The kernels of the default schedule, None if there is no time for them; and whether they took so long to compile
    that no other schedule is to be compared with it."""
    start, cpu = time.perf_counter(), time.process_time()
    default = candidates.compiled(DEFAULT, False)
    took = min(time.perf_counter() - start, time.process_time() - cpu)  # a busy machine searches as an idle one does
    is_alone = default is not None and took > longest_alone(options)
    if is_alone:
        log.debug("the default schedule took long to compile: no other one is compared with it")
    return default, is_alone


def is_default_alone(make: Callable[[Choice], Candidate], segments_of: SegmentsOf, options: Options) -> bool:
    """Does the default schedule, which is compiled, take so long that no other one is worth searching?"""
    return options.tune != "one_shot" and default_of(Candidates(make, segments_of), options)[1]


def longest_alone(options: Options) -> float:
    """Seconds of compiling the default schedule beyond which no other one is compiled."""
    return max(COMPILING_SECONDS[str(options.tune)], LONG_COMPILATION)


def fastest(
    candidates: Candidates,
    found: Sequence[Candidate],
    default: Candidate | None,
    decision: Decision,
    arguments: ArgumentsOf,
) -> Candidate:
    """The fastest of some candidates and the default schedule; if they cannot be timed, the one predicted to be it."""
    default = default or candidates.compiled(DEFAULT, not found)
    if default is None:
        return found[0]
    if not found:
        return default
    with deadline.paused():
        given = arguments(default)
        if given is None:
            return found[0] if decision.best.trees else default
        if len(default.kernels) > 1:
            return fastest_of_each(candidates, found[0], default, given)
        kernels = [x for c in (*found, default) for x in c.kernels if x is not None]
        if len(kernels) != len(found) + 1:
            return default
        best, seconds = measured(kernels, given.arrays, given.scalars)
    every = (*found, default)
    if not seconds:
        return every[best]
    timed = tuple((x.choice, t) for x, t in zip(every, seconds, strict=False))
    return replace(every[best], measured=(seconds[best], seconds[-1]), timed=timed)


def fastest_of_each(candidates: Candidates, found: Candidate, default: Candidate, given: Arguments) -> Candidate:
    """For each kernel of a function, the faster one of two candidates, combined into one candidate."""

    def is_slower(ours: Bound | None, theirs: Bound | None) -> bool:
        if ours is None or theirs is None or ours.kernel.name == theirs.kernel.name:
            return False
        if any(n not in given.arrays for n in ours.inputs):  # inlining may change what is carried over between kernels
            return False
        return measured((ours, theirs), given.arrays, given.scalars)[0] == 1

    slower = [is_slower(*both) for both in zip(found.kernels, default.kernels, strict=True)]
    if not any(slower):
        return found
    graphs = [x.graph for x, is_other in zip(default.segments, slower, strict=True) if not is_other]
    kept, before = {n for g in graphs for n in g.by_name}, found.choice.rewrites
    rewrites = Rewrites(
        inlined_after=frozenset(n for n in kept if n in before.inlined_after),
        factored={n: x for n, x in before.factored.items() if n in kept},
    )
    trees = {g.outputs: found.choice.trees[g.outputs] for g in graphs if g.outputs in found.choice.trees}
    return candidates.compiled(replace(found.choice, rewrites=rewrites, trees=trees), False) or default


def with_fixes(make: Callable[[Choice], T], choice: Choice, segments_of: SegmentsOf) -> tuple[T, Choice]:
    """``make(choice)`` and the choice, repaired if lowering refuses it.

    Storage of stages that cannot slide is moved inwards, and nests with too long a block are unrolled less.

    Raises:
        ScheduleError: the schedule cannot be lowered for another reason.
    """
    while True:
        try:
            return make(choice), choice
        except (SlidingError, BlockError) as error:
            fix = storage_at_compute if isinstance(error, SlidingError) else unroll_less
            trees = {
                outputs: fix(tree, error.stage) if _has(tree, error.stage) else tree
                for outputs, tree in choice.trees.items()
            }
            if trees == choice.trees:
                raise
            log.debug("fixed: %s", error)
            choice = replace(choice, trees=trees)
            choice.check(segments_of(choice.rewrites))


def _has(tree: Root, stage: str) -> bool:
    return any(c.stage == stage for c in computes(tree))


def measured(
    kernels: Sequence[Bound], arrays: Mapping[str, Array], scalars: Mapping[str, Any]
) -> tuple[int, list[float]]:
    """The position of the fastest kernel, run interleaved on these arrays, and the least seconds of each.

    The last kernel has the default schedule. The fastest of several may have been lucky: it must win once more against
    the default one alone. If an index is out of bounds, the last kernel is returned, and no seconds.
    """
    results: dict[Any, list[Array]] = {}  # shared: the first write to a new array may take longer than the kernel
    given = [
        (
            [arrays[n] for n in x.inputs],
            results.setdefault(x.outputs, x.new_outputs()),
            [scalars[n] for n, _ in x.scalars],
        )
        for x in kernels
    ]
    last = len(kernels) - 1

    seconds_of = [math.inf] * len(kernels)

    def winner(some: Sequence[int], seconds: float) -> int:
        note(doing="timing", candidates=len(kernels))
        times = least_times([functools.partial(kernels[k].run, *given[k]) for k in some], seconds)
        if times is None:
            seconds_of.clear()
            return last
        debug.say(
            "search", "measured, the default schedule first", lambda: " ".join(f"{1e3 * x:.3f} ms" for x in times)
        )
        log.debug("measured, the default schedule first: %s ms", ", ".join(f"{1e3 * x:.3f}" for x in times))
        for k, x in zip(some, times, strict=True):
            seconds_of[k] = min(seconds_of[k], x)
        note(best=min(seconds_of), default=seconds_of[last])
        return min(zip(some, times, strict=True), key=lambda x: x[1] * (CLEARLY_FASTER if x[0] == last else 1.0))[0]

    start = time.perf_counter()
    best = winner([*reversed(range(len(kernels)))], MEASURED_SECONDS * last)
    if best != last and time.perf_counter() - start <= LONG:
        best = winner([last, best], MEASURED_SECONDS)
    return best, seconds_of


def least_times(runs: Sequence[Callable[[], bool]], seconds: float) -> list[float] | None:
    """The least seconds of each function, run interleaved; None if one of them fails.

    One that is much slower than another is not run again: predictions may be far off.
    """
    best = [math.inf] * len(runs)
    begin, rounds = time.perf_counter(), 0
    while not _is_enough(rounds, taken := time.perf_counter() - begin, seconds):
        for k, run in enumerate(runs):
            if rounds and best[k] > MUCH_SLOWER[rounds > 1 or taken > LONG] * min(best):
                continue
            start = time.perf_counter()
            if not run():
                return None
            best[k] = min(best[k], time.perf_counter() - start)
        rounds += 1
    return best


def _is_enough(rounds: int, taken: float, seconds: float) -> bool:
    least, most = ROUNDS
    return (
        rounds >= most
        or (rounds >= least and taken >= seconds)
        or (rounds >= 2 and taken >= LONG)
        or taken >= VERY_LONG
    )
