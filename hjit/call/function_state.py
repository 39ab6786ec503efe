"""`FunctionState`: what is kept for a compiled function between calls, which the steps of a call share."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey, is_device_array
from hjit.call.entry import MAX_CONTEXTS, Call, Entries, Stats, limit
from hjit.call.results import PLAIN
from hjit.errors import HjitWarning
from hjit.options import Options, context_state, resolve
from hjit.process import deadline
from hjit.trace.tracing.frames import stack_level, uncounted

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.call.build import Built, Request
    from hjit.call.checks.first_calls import FirstCalls
    from hjit.tuning.autotune import Tuned
    from hjit.tuning.choice import Scheduler


@uncounted
class FunctionState:
    """A function, and what is known about its calls.

    `PartState` of `hjit.graph_breaks` overrides `run_plain`, `report_fallback`, `may_trace` and `build`.

    Attributes:
        py_func: the plain function.
        name: its name, in messages.
        stats: counters, for people and tests.
        options: the options in force.
        warnings: those that it issues.
        entries: what is known about calls, by the key of their arguments.
        lock: held while a kernel is built or verified.
        schedule: the one given to `use`, or None.
        parts: the split function, made when a call cannot be traced as a whole.
        depth: how many split functions call each other, down to this one.
        compared: the comparisons with NumPy so far, made by the first.
        tuned: the result of the latest tuning, or None.
        spent: what building it and its parts has taken of the latest budget.
        interprets: see `hjit.call.build.Request`.
        assumes: while tracing, assume that conditions on values come out as in an earlier process?
        speculated: the outcomes in loops that the latest trace speculated on; those for other sizes assume the same.
    """

    is_part = False

    def __init__(
        self,
        function: Callable[..., Any],
        given: dict[str, Any],
        spent: deadline.Spent | None = None,
        depth: int = 0,
    ) -> None:
        self.py_func = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.stats = Stats()
        self.options = OptionsInForce(given)
        self.warnings = OwnWarnings(self.name)
        self.entries = Entries(self.name, self.stats)
        self.lock = threading.RLock()
        self.schedule: Scheduler | None = None
        self.parts: Parts | None = None
        self.depth = depth
        self.compared: FirstCalls | None = None
        self.tuned: Tuned | None = None
        self.spent = deadline.Spent() if spent is None else spent
        self.interprets = True
        self.assumes = True
        self.speculated: tuple[Any, ...] = ()

    def run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the plain function in place of a kernel."""
        self.stats.fallbacks += 1
        return self.py_func(*args, **kwargs)

    def plain_for_numpy(self) -> Callable[..., Any]:
        """The plain function, run on NumPy arrays even if its code names CuPy."""
        from hjit.trace.capture.cupy_names import by_numpy

        return by_numpy(self.py_func)

    def leave_to_numpy(self, call: Call) -> Any:
        """A call that NumPy raises an exception for: the plain function raises it, on the host, as CuPy may not."""
        if not any(map(is_device_array, call.leaves)):
            return PLAIN
        from hjit.call.other_arrays.on_device import on_copies

        self.stats.fallbacks += 1
        return on_copies(call, lambda here: self.plain_for_numpy()(*here.args, **here.kwargs))

    def give_up(self, key: CallKey, why: str, is_refused: bool = False) -> None:
        """Leave all calls with this key to NumPy; see `Entries.give_up`."""
        self.entries.give_up(key, why, is_refused)
        self.report_fallback(why)

    def report_fallback(self, why: str) -> None:
        """Report why NumPy runs calls."""
        self.warnings.of_fallback(why)

    def may_trace(self, call: Call) -> bool:
        """May a call that no variant serves be traced?"""
        return True

    def build(self, request: Request) -> Built:
        """Run `hjit.call.build.build`, and update the counters.

        Raises:
            BudgetError, TraceError, CompileError, OutOfBounds, TracingFailed: as `build` does.
        """
        from hjit.call.build import build

        options = request.options
        tune: Callable[..., Tuned | None] | None = None
        if options.tune == "autotune" and not options.tune_in_background and request.scheduler is None:
            from hjit.call.tuning.kernels import tuned_once

            tune = tuned_once
        with deadline.counting(self.spent):
            made = build(request, self.name, tune)
        self.tuned = made.tuned or self.tuned
        self.stats.traces += 1
        self.stats.compilations += made.compiled
        self.stats.cache_hits += made.loaded
        if made.verified is not None:
            self.stats.verified = self.stats.verified is not False
            self.count_flipped(made.verified.flipped)
        self.stats.scratch_bytes = max((b.scratch_bytes for b in made.variant.bounds), default=0)
        return made

    def count_flipped(self, count: int) -> None:
        """Count elements of compared results that differ because a decision on a rounded value went the other way."""
        self.stats.flipped += count
        if count:
            self.warnings.of_flips(count)


class OptionsInForce:
    """The options of a function in the context of a call: its own, those of ``with`` blocks and of the environment.

    Attributes:
        given: its own.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self._by_context: dict[Any, Options] = {}
        self._uses_plans = False

    def of(self, context: Any) -> Options:
        """The options in a context (`context_state`)."""
        found = self._by_context.get(context)
        if found is None:
            found = resolve(self.given)
            if found.target == "cuda":  # has only the default schedule, and is never compared with NumPy's time
                found = replace(found, tune=False, numpy_if_faster=False)
            elif self._uses_plans and found.tune is False:
                found = replace(found, tune="stored")
            self._by_context[context] = found
            limit(self._by_context, MAX_CONTEXTS)
        return found

    def here(self) -> Options:
        """The options of a call that is made here."""
        return self.of(context_state())

    def use_plans(self) -> None:
        """Use stored plans even if ``tune=False``: the user has called `tune`."""
        self._uses_plans = True
        self.forget()

    def override(self, context: Any, options: Options) -> None:
        """Use these options in a context."""
        self._by_context[context] = options

    def forget(self, context: Any = None) -> None:
        """Find the options of a context anew; None: of all."""
        if context is None:
            self._by_context = {}
        else:
            self._by_context.pop(context, None)


@uncounted
class OwnWarnings:
    """The warnings of one function. Each kind is issued once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.told_of_fallback = self.told_of_flips = False

    def of_fallback(self, why: str) -> None:
        """Warn that NumPy runs calls."""
        if why and not self.told_of_fallback:
            self.told_of_fallback = True
            warnings.warn(why, HjitWarning, stacklevel=stack_level())

    def of_flips(self, count: int) -> None:
        """Warn of elements that differ because a decision on a rounded value went the other way."""
        if self.told_of_flips:
            return
        self.told_of_flips = True
        text = (
            f"{self._name}: {count} elements of the result differ from NumPy's by more than a rounding: "
            "a threshold, a rounding to a whole number, an argmax, an index, a quotient or the overflow of a sum "
            "depends on numbers that agree but for their last bits "
            "(f.stats.flipped counts such elements)"
        )
        warnings.warn(text, HjitWarning, stacklevel=stack_level())

    def silence(self) -> None:
        """Issue none."""
        self.told_of_fallback = self.told_of_flips = True
