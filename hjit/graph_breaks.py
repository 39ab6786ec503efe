"""`CompiledPart`: the pipeline of a part of a split function; all parts share the budget of the function."""

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
    """The pipeline of some statements of a split function, or of a function that these call. It issues no warnings.

    Attributes:
        plain: why NumPy runs all calls; empty if it does not.
        cell: the closure cell through which the split function calls it; None once plain statements have replaced it.
    """

    _is_part = True

    def __init__(self, given: dict[str, Any], spent: Spent, function: Callable[..., Any], depth: int) -> None:
        super().__init__(function, {**given, "on_unsupported": "break"})
        self.plain = ""
        self.cell: types.CellType | None = None
        self._whole: CompiledFunction[..., Any] | None = None
        self._spent, self._depth = spent, depth
        self._numbers: set[tuple[int, ...]] = set()  # the integer arguments that it was traced for
        self._seconds = 0.0  # CPU time that tracing and compiling took

    @classmethod
    def of(cls, whole: CompiledFunction[..., Any], function: Any, deeper: int) -> CompiledPart:
        """The pipeline of a part of a function, or of a function that it calls (`deeper` = 1)."""
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
        """As for any pipeline, unless sizes or numbers differ at every call: then tracing takes longer than NumPy."""
        self.plain = self._not_worth()
        if self.plain:
            self.leave()
            return PLAIN
        self._numbers.add(tuple(x for x in call.leaves if type(x) is int))
        return super()._first_call(call)

    def _run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As for any pipeline; a part that Python runs each time is replaced by its plain statements."""
        calls = self.stats.fallbacks
        if calls >= PLAIN_CALLS and calls & (calls - 1) == 0 and all(e.is_given_up for e in self.entries):
            self.leave()
        return super()._run_plain(args, kwargs)

    def leave(self) -> None:
        """Replace this part by its plain statements in the split function. If it was the last compiled part, and the
        split function is a part itself, replace that one, too."""
        if self.cell is not None:
            self.cell.cell_contents = self.py_func
            self.cell = None
        whole = self._whole
        if isinstance(whole, CompiledPart) and whole.parts is not None and whole.parts.are_plain:
            if all(e.is_given_up or e.parts is not None for e in whole.entries):
                whole.leave()

    def _not_worth(self) -> str:
        """Why the part is not to be traced again; empty if it may be."""
        traces = self.stats.traces
        if traces >= MAX_TRACES and 2 * traces > self.stats.calls:
            return "its arrays have other sizes, or its numbers other values, at nearly every call"
        is_enough = traces >= FEW_TRACES or self._seconds > LOOP_SECONDS
        if is_enough and 0 < traces == len(self._numbers) and traces + 1 >= self.stats.calls:
            return "it is traced anew for each whole number, as of a loop, and they are others at every call"
        return ""

    def _build(self, request: Request) -> Built:
        """As for any pipeline, within what is left of the function's budget."""
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
