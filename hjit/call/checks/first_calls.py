"""Comparing the first results of kernels with NumPy's.

A verdict holds for the same kernels and the same way of making results of their outputs (`Variant.signature`), so
another size of a known kernel is not compared again. Streaming stores are separate code, with verdicts of their own.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.call.arguments import copied, leaves_of
from hjit.call.checks import against_numpy
from hjit.call.checks.uninitialised import TooMuchToInterpret, Uninitialised, without_dependent
from hjit.call.entry import Call
from hjit.call.guards import GuardValues
from hjit.call.variant import Mispredict, OutOfBounds, RunOptions, Variant
from hjit.errors import TraceError
from hjit.process import shown_warnings
from hjit.trace.ir.analysis.tolerances import EXACT, INEXACT
from hjit.trace.splitting.locations import RETURNED
from hjit.trace.tracing.complex_memory import parts_of
from hjit.trace.tracing.recording.events import GraphBreak
from hjit.trace.tracing.writeable import is_writeable
from hjit.verify.comparison import Allowed, Comparison, allowed_of, is_exact
from hjit.verify.frame import Inputs
from hjit.verify.reference import Reference

log = logging.getLogger("hjit")

MAX_VERDICTS = 512  # that a pipeline remembers; the oldest is dropped
# inconclusive comparisons: values that may consist of rounding errors alone, as of a constant image less its mean
MAX_DOUBTS = 2
MORE_WORK = 4  # times as much work is allowed for the next comparison after an inconclusive one
MAX_BLANKS = 4  # comparisons of arrays, or results, with a single value: that they agree says little
MAX_AGAIN = 4  # further runs, to find results that extern functions draw at random
MAX_PATHS = 8  # comparisons in which kernels took another path through the function than NumPy
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Verdict:
    """The outcome of the comparisons of some kernels so far.

    Attributes:
        verified: are the kernels right? None: undecided.
        why: how they are wrong.
        doubts: inconclusive comparisons.
        blanks: comparisons that agreed, of arrays with a single value.
        paths: comparisons in which a decision went the other way, so that there was nothing to compare.
    """

    verified: bool | None = None
    why: str = ""
    doubts: int = 0
    blanks: int = 0
    paths: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one comparison.

    Attributes:
        verified: may the kernels be used from now on? None: undecided.
        flipped: elements that differ because a decision on a rounded value went the other way.
        why: why they may not be used; empty if that was reported before.
        is_blank: did they agree on arrays with a single value, so that the next call is compared as well?
        is_kept: may the verdict be stored for later processes?
    """

    verified: bool | None
    flipped: int = 0
    why: str = ""
    is_blank: bool = False
    is_kept: bool = True

    def what_is_wrong(self, name: str) -> str:
        """The text of the warning."""
        return (
            f"{name}: the compiled result differs from NumPy's ({self.why}), so NumPy runs instead. "
            "Please report this with the function and the dtypes and shapes of its arguments"
        )


@dataclass(slots=True)
class FirstCalls:
    """The comparisons of a pipeline's first calls with NumPy."""

    name: str
    verdicts: dict[Any, Verdict] = field(default_factory=dict)

    def unverified(self, variant: Variant, stores: Sequence[bool]) -> list[bool]:
        """Of these kinds of stores (True: streaming), those whose results have not been compared yet."""
        for streamed in stores:
            verdict = self.verdicts.get((variant.signature, streamed))
            if verdict is not None and verdict.verified:
                variant.verified_stores.add(streamed)
        return [streamed for streamed in stores if streamed not in variant.verified_stores]

    def is_wrong(self, variant: Variant, stores: Sequence[bool]) -> bool:
        """Has a comparison found the kernels wrong?"""
        found = (self.verdicts.get((variant.signature, streamed)) for streamed in stores)
        return any(v is not None and v.verified is False for v in found)

    def compare(
        self,
        variant: Variant,
        guarded: GuardValues,
        ran: Runs,
        expected: Any,
        uninitialised: Callable[[Mapping[str, Array]], Uninitialised],
    ) -> Report:
        """Compare runs of a variant with the plain function.

        Args:
            expected: the result of the plain function, which has changed its arguments by now.
            uninitialised: makes what finds uninitialised elements, from the random numbers that were drawn.

        Raises:
            TraceError: the function defines a class of what it returns anew at each call.
        """
        with shown_warnings.of_another_run():
            draws = next(iter(ran.by_store.values())).draws
            known = [self.verdicts.setdefault((variant.signature, streamed), Verdict()) for streamed in ran.by_store]
            effort = MORE_WORK ** max(verdict.doubts for verdict in known)
            allowed = _allowed(variant, guarded, {**ran.arrays, **ran.before, **draws}, effort)
            after = {n: ran.arrays[n] for n in ran.before}
            limits = allowed.results, [allowed.written[n] for n in after]
            flipped, why, is_blank = 0, "", False
            told = _tells([*ran.arrays.values()], [expected, *after.values()])
            decides = any(e is not None and e.call is None for e in variant.breaks)  # the next call may go another way
            may_wait = not told and not decides
            changed = ran.changed_besides()
            for streamed, run in ran.by_store.items():
                ours = (run.result, [run.written[n] for n in after])
                numpys = (expected, list(after.values()))
                found = _compared(ours, numpys, limits)
                if found.why is not None:
                    _check_classes(variant, ours, numpys)
                    found = _without_random(variant, ran, streamed, found, ours, numpys, limits)
                verdict = self.verdicts[variant.signature, streamed]
                decides_now = found.is_proof or verdict.doubts >= MAX_DOUBTS  # else the next call is compared anyway
                if found.why is not None and decides_now and variant.rec.findings.reads_uninitialised:
                    found = self._without(uninitialised(draws), found, ours, numpys, limits, list(after))
                flipped += self._judge(verdict, found, allowed)
                if changed:
                    verdict.verified, verdict.why = False, f"the function changes {changed[0]}, and the kernel does not"
                if verdict.verified and may_wait and not verdict.doubts and verdict.blanks < MAX_BLANKS:
                    verdict.blanks += 1
                    verdict.verified, is_blank = None, True
                why = why or verdict.why
            verdicts = [self.verdicts[variant.signature, streamed].verified for streamed in ran.by_store]
            while len(self.verdicts) > MAX_VERDICTS:
                del self.verdicts[next(iter(self.verdicts))]
            if all(verdicts):
                variant.verified_stores.update(ran.by_store)
            verified = False if False in verdicts else None if None in verdicts else True
            return Report(verified, flipped, why, is_blank and verified is None, told)

    def _without(
        self,
        uninitialised: Uninitialised,
        found: Comparison,
        ours: Any,
        numpys: Any,
        limits: Any,
        names: list[str],
    ) -> Comparison:
        """Compare once more, leaving out elements that depend on uninitialised ones."""
        try:
            for dependent in uninitialised.dependent(names):
                found = _compared(without_dependent(ours, numpys, dependent), numpys, limits)
                if not found.is_in_doubt:
                    break
        except TooMuchToInterpret as error:
            log.debug("%s: uninitialised elements are not found: %s", self.name, error)
            found.is_proof = False
            if found.why is not None:
                found.why += "; or elements that np.empty has left as they are, which are too many to be found"
        return found

    def _judge(self, verdict: Verdict, found: Comparison, allowed: Allowed) -> int:
        """Update a verdict by a comparison; the number of elements that differ because decisions went the other way."""
        if found.why is not None and verdict.paths < MAX_PATHS and not allowed.is_settled():
            verdict.paths += 1  # NumPy took another path through the function: that is no fault of the kernels
            return max(found.differing, 1)
        if found.why is not None and (found.is_proof or verdict.doubts >= MAX_DOUBTS):
            unknown = "" if found.is_proof else "; whether roundings explain that is not known"
            verdict.verified, verdict.why = False, found.why + unknown
            return 0
        if (found.why is not None or found.unbounded) and verdict.doubts < MAX_DOUBTS:
            verdict.doubts += 1
            text = "%s: the compiled result differs from NumPy's (%s), perhaps by roundings: the next call is compared"
            log.debug(text, self.name, found.why or f"{found.unbounded} elements where roundings are all that is left")
            return 0
        verdict.verified = True
        return found.flipped + found.unbounded


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of one run of a variant.

    Attributes:
        written: copies of the arguments that it changed, by name.
        draws: its random numbers, by input.
        missed: the number of the graph break whose outcome is not what it was while tracing: then there is no result;
            None if there was no such break.
    """

    result: Any
    written: dict[str, Array]
    draws: dict[str, Array]
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of a variant on copies of the arrays that it changes, made before NumPy runs.

    Attributes:
        by_store: the runs, by whether they use streaming stores.
        arrays: arguments and captured arrays, by input.
        before: copies of those that the variant changes, made before the runs.
        sums: checksums of those that it does not change.
        seconds: of one run.
        end: when the last one ended, by `against_numpy.clock`.
        again: runs it once more with the same random numbers; None if that would compute the same, since there are no
            extern calls.
    """

    by_store: dict[bool, Run]
    arrays: dict[str, Any]
    before: dict[str, Array]
    sums: dict[str, int]
    seconds: float
    end: float
    again: Callable[[bool, Mapping[str, Array]], Run | None] | None = None

    @property
    def missed(self) -> int | None:
        """See `Run`."""
        return next((run.missed for run in self.by_store.values() if run.missed is not None), None)

    def changed_besides(self) -> list[str]:
        """The arrays that NumPy has changed although the variant does not."""
        return [n for n, known in self.sums.items() if _check_sum(self.arrays[n]) != known]


def runs_of(variant: Variant, guarded: GuardValues, call: Call, stores: Sequence[bool]) -> Runs | None:
    """Run a variant once for each kind of stores; None if NumPy would raise an exception."""
    arrays = guarded[1] | {n: call.leaves[k] for n, k in variant.guards.arguments.items()}
    before = {n: copied(arrays[n]) for n in sorted(variant.guards.written)}
    sums = {n: _check_sum(a) for n, a in arrays.items() if n not in before and _may_change(a)}
    run = functools.partial(_run, variant, guarded, call.leaves, call.targets, before)
    start = against_numpy.clock()
    runs = {s: run(s) for s in stores}
    done = {s: run for s, run in runs.items() if run is not None}
    if len(done) < len(runs):
        return None
    end = against_numpy.clock()
    return Runs(done, arrays, before, sums, (end - start) / len(stores), end, run if variant.makes_calls else None)


def _may_change(a: Any) -> bool:
    return type(a) is np.ndarray and is_writeable(a) and not a.dtype.hasobject


def _check_sum(a: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)


def _run(
    variant: Variant,
    guarded: GuardValues,
    leaves: Sequence[Any],
    targets: Sequence[Any],
    written: Mapping[str, Array],
    streamed: bool,
    known: Mapping[str, Array] | None = None,
) -> Run | None:
    """Run a variant on copies of the arrays that it changes (`written`); None if NumPy would raise an exception.

    Args:
        known: random numbers to use instead of drawing new ones.
    """
    copies = {n: copied(a) for n, a in written.items()}
    given = variant.guards.with_arrays(leaves, copies)
    destinations = [np.empty_like(t) if isinstance(t, np.ndarray) else t for t in targets] if streamed else []
    captured = {n: copies.get(n, a) for n, a in guarded[1].items()}
    draws: dict[str, Array] = {}
    impure = ((k, e) for k, e in enumerate(variant.breaks) if e is not None and e.impure)
    drawn = {k: tuple(known[n] for n in e.gives) for k, e in impure} if known is not None else {}
    options = RunOptions(drawn, effects=False, streamed=streamed, draws=draws)
    try:
        result = variant.run(given, (guarded[0], captured), destinations, options=options)
    except OutOfBounds:
        return None
    except Mispredict as error:
        return Run(None, copies, draws, error.number)
    return Run(result, copies, draws)


def _compared(ours: Any, expected: Any, limits: Any) -> Comparison:
    """See `Comparison.compare`."""
    found = Comparison()
    found.compare(ours, expected, limits)
    return found


def _without_random(
    variant: Variant, ran: Runs, streamed: bool, found: Comparison, ours: Any, numpys: Any, limits: Any
) -> Comparison:
    """Compare once more, leaving out elements that differ from run to run: extern functions may draw random numbers.

    Raises:
        TraceError: the outcome of an extern call, which the trace relies on, differs from run to run.
    """
    for again in [ran.again] * MAX_AGAIN if ran.again is not None else ():
        run = again(streamed, ran.by_store[streamed].draws)
        if run is None:
            break
        if run.missed is not None:
            missed = variant.breaks[run.missed]
            assert missed is not None
            raise never_the_same(missed)
        numpys = _where_equal(ours, (run.result, [run.written[n] for n in ran.before]), numpys)
        found = _compared(ours, numpys, limits)
        if found.why is None:
            break
    return found


def never_the_same(graph_break: GraphBreak) -> TraceError:
    """The error for an extern call whose outcome differs from the one while tracing."""
    why = "it gives other results each time, for the same arguments"
    return TraceError(graph_break.operation, why, "call it before, and pass its result in", graph_break.origin)


def _check_classes(variant: Variant, ours: Any, numpys: Any) -> None:
    """Check that results do not differ by two classes of the same name.

    Raises:
        TraceError: they do.
    """
    a, b = (ours, numpys) if isinstance(ours, type) and isinstance(numpys, type) else (type(ours), type(numpys))
    if a is not b and (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__):
        reason = f"the function makes the class {b.__name__} anew at each call"
        raise TraceError(RETURNED, reason, "make the class outside the function", variant.rec.origin)
    if a is b and isinstance(ours, dict):
        ours, numpys = list(ours.values()), [numpys.get(k) for k in ours]
    if a is b and isinstance(ours, (list, tuple, dict)):
        for pair in zip(ours, numpys, strict=False):
            _check_classes(variant, *pair)


def _where_equal(ours: Any, again: Any, numpys: Any) -> Any:
    """NumPy's results, with ours in place of those that differ in another run of ours."""
    if _compared(again, ours, EXACT).why is None:
        return numpys
    kind = type(ours)
    if kind in (tuple, list) and all(type(x) is kind and len(x) == len(ours) for x in (again, numpys)):
        return kind(_where_equal(*x) for x in zip(ours, again, numpys, strict=True))
    return ours


def _tells(arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    """Is the agreement of results evidence that a kernel is right? Not if the largest arguments have a single value, as
    blank images have, or if all results do."""
    given = [a for a in arguments if isinstance(a, np.ndarray) and a.size > 1]
    largest = max((a.size for a in given), default=0)
    if given and not any(_varies(a) for a in given if a.size == largest):
        return False
    found = [a for a in leaves_of(list(results)) if isinstance(a, np.ndarray) and a.size > 1]
    return not found or any(map(_varies, found))


def _varies(a: Array) -> bool:
    """Does an array have two different values? NaNs count as equal."""
    first = a.item(0)
    return bool((~np.isnan(a)).any()) if first != first else bool((a != first).any())


def _allowed(variant: Variant, guarded: GuardValues, arrays: Mapping[str, Any], effort: int) -> Allowed:
    """The error bounds for the results of a variant; `effort`: how many times the usual work may be done for them."""
    values, captured = guarded
    found_arrays = {**variant.constants, **captured, **arrays}
    inputs = Inputs(
        found_arrays | {n: parts_of(found_arrays[n]) for n in variant.guards.complex_inputs if n in found_arrays},
        variant.rec.sizes,
        {name: values[k] for name, k in variant.body.slots.items()},
    )
    graphs, breaks, found = variant.reference_graphs, variant.breaks, variant.tolerances()
    exact = {name for name, tolerance in found.items() if tolerance == EXACT}
    reference = Reference(graphs, breaks, inputs, INEXACT, variant.fast_math, exact, effort)
    decisions = [e.needs[0] for e in breaks if e is not None and e.call is None]
    arranged = functools.partial(variant.results.arranged, found, lengths=reference.values_of)
    return allowed_of(reference, [n for n in decisions if not is_exact(found.get(n, EXACT))], arranged)


__all__ = ["MAX_DOUBTS", "MAX_PATHS", "FirstCalls", "Report", "Run", "Runs", "never_the_same", "runs_of"]
