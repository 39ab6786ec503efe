"""Parts of a function that cannot be traced as a whole: each runs compiled, within what the function has left."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from hjit.call.breaks.limits import FEW_TRACES, LOOP_SECONDS, MAX_ITEMS, MAX_TRACES, PLAIN_CALLS
from hjit.call.compiled_function import CompiledFunction
from hjit.call.entry import Call
from hjit.call.results import PLAIN
from hjit.errors import BudgetError
from hjit.inspection import Inspectable
from hjit.process.deadline import Spent
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.build import Built, Request

log = logging.getLogger("hjit")


@uncounted
class CompiledPart(Inspectable[..., Any]):
    """Statements of a function that cannot be traced as a whole; what cannot be traced of them runs without a word.

    Attributes:
        plain: why NumPy runs all calls.
        cell: where the function that it is a part of finds it; None: it finds the plain statements there.
    """

    _is_part = True

    def __init__(self, given: dict[str, Any], spent: Spent, function: Callable[..., Any], depth: int) -> None:
        super().__init__(function, {**given, "on_unsupported": "break"})
        self.plain = ""
        self.cell: types.CellType | None = None
        self._whole: CompiledFunction[..., Any] | None = None
        self._spent, self._depth = spent, depth
        self._numbers: set[tuple[int, ...]] = set()  # for which it was traced
        self._seconds = 0.0  # of the processor's time, that this took

    @classmethod
    def of(cls, whole: CompiledFunction[..., Any], function: Any, deeper: int) -> CompiledPart:
        """What runs a part of a function, or one that it calls (`deeper`)."""
        part = cls(whole._own_options, whole._spent, function, whole._depth + deeper)
        part._warned_of_flips = whole._warned_of_flips
        part._whole = whole
        return part

    def _with_options(self, given: dict[str, Any]) -> Self:
        return type(self)(given, self._spent, self.py_func, self._depth)

    def _make_part(self, function: Any, deeper: int = 0) -> CompiledPart:
        return CompiledPart.of(self, function, deeper)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.plain or any(type(x) in (list, tuple, dict) and len(x) > MAX_ITEMS for x in args):
            return self.py_func(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _first_call(self, call: Call) -> Any:
        """As that of a pipeline, if most calls find what they run: where sizes or numbers are others at every call,
        tracing takes longer than NumPy."""
        self.plain = self._not_worth()
        if self.plain:
            self.leave()
            return PLAIN
        self._numbers.add(tuple(x for x in call.leaves if type(x) is int))
        return super()._first_call(call)

    def _run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As that of a pipeline; in a loop, what Python runs each time need not be looked up each time."""
        calls = self.stats.fallbacks
        if calls >= PLAIN_CALLS and calls & (calls - 1) == 0 and all(e.is_given_up for e in self.entries):
            self.leave()
        return super()._run_plain(args, kwargs)

    def leave(self) -> None:
        """Be no part any more: the function runs the plain statements. So does what that one is a part of, where this
        was the last of its parts."""
        if self.cell is not None:
            self.cell.cell_contents = self.py_func
            self.cell = None
        whole = self._whole
        if isinstance(whole, CompiledPart) and whole.parts is not None and whole.parts.are_plain:
            if all(e.is_given_up or e.parts is not None for e in whole.entries):
                whole.leave()

    def _not_worth(self) -> str:
        """Why nothing more is to be traced; empty where it may be."""
        traces = self.stats.traces
        if traces >= MAX_TRACES and 2 * traces > self.stats.calls:
            return "its arrays have other sizes, or its numbers other values, at nearly every call"
        is_enough = traces >= FEW_TRACES or self._seconds > LOOP_SECONDS
        if is_enough and 0 < traces == len(self._numbers) and traces + 1 >= self.stats.calls:
            return "it is traced anew for each whole number, as of a loop, and they are others at every call"
        return ""

    def _build(self, request: Request) -> Built:
        """As that of a pipeline, within what the function has left of its budget."""
        options, before = request.options, self._spent.building
        if options.budget is not None and before >= options.budget:
            why = f"the budget of {options.budget:g} s is spent on other parts of the function"
            raise BudgetError(self.__name__, why, "allow more time (budget=60, or None for any)")
        left = None if options.budget is None else options.budget - before
        try:
            return super()._build(replace(request, options=replace(options, budget=left)))
        finally:
            self._seconds += self._spent.building - before

    def _report_fallback(self, why: str) -> None:
        log.info("%s", why)
