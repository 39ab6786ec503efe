"""`CompiledPart`: the pipeline of a part of a split function; all parts share the budget of the function."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from hjit.call.breaks.limits import FEW_TRACES, LOOP_SECONDS, MAX_ITEMS, MAX_TRACES, PLAIN_CALLS
from hjit.call.entry import Call
from hjit.call.function_state import FunctionState
from hjit.errors import BudgetError
from hjit.inspection import Inspectable
from hjit.process.deadline import Spent
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.build import Built, Request

log = logging.getLogger("hjit")


@uncounted
class PartState(FunctionState):
    """The state of a part, which gives way to plain statements where it is not worth compiling.

    Attributes:
        whole: the state of the split function; None: its own budget is all that it knows of it.
        plain: why NumPy runs all calls; empty if it does not.
        cell: the closure cell through which the split function calls it; None once plain statements have replaced it.
    """

    is_part = True

    def __init__(
        self,
        function: Callable[..., Any],
        given: dict[str, Any],
        spent: Spent,
        depth: int,
        whole: FunctionState | None = None,
    ) -> None:
        super().__init__(function, {**given, "on_unsupported": "break"}, spent, depth)
        self.whole = whole
        self.plain = ""
        self.cell: types.CellType | None = None
        self._numbers: set[tuple[int, ...]] = set()  # the integer arguments that it was traced for
        self._seconds = 0.0  # CPU time that tracing and compiling took

    def run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As for any function; a part that Python runs each time is replaced by its plain statements."""
        calls = self.stats.fallbacks
        if calls >= PLAIN_CALLS and calls & (calls - 1) == 0 and all(e.is_given_up for e in [*self.entries.values()]):
            self._leave()
        return super().run_plain(args, kwargs)

    def report_fallback(self, why: str) -> None:
        """Write to the log why NumPy runs calls."""
        log.info("%s", why)

    def may_trace(self, call: Call) -> bool:
        """Not if sizes or numbers differ at every call: then tracing takes longer than NumPy."""
        self.plain = self._not_worth()
        if self.plain:
            self._leave()
            return False
        self._numbers.add(tuple(x for x in call.leaves if type(x) is int))
        return True

    def build(self, request: Request) -> Built:
        """As for any function, within what is left of the whole function's budget."""
        options, before = request.options, self.spent.building
        if options.budget is not None and before >= options.budget:
            why = f"the budget of {options.budget:g} s is spent on other parts of the function"
            raise BudgetError(self.name, why, "allow more time (budget=60, or None for any)")
        left = None if options.budget is None else options.budget - before
        try:
            return super().build(replace(request, options=replace(options, budget=left)))
        finally:
            self._seconds += self.spent.building - before

    def _leave(self) -> None:
        """Replace this part by its plain statements in the split function. If it was the last compiled part, and the
        split function is a part itself, replace that one, too."""
        if self.cell is not None:
            self.cell.cell_contents = self.py_func
            self.cell = None
        whole = self.whole
        if isinstance(whole, PartState) and whole.parts is not None and whole.parts.are_plain:
            if all(e.is_given_up or e.parts is not None for e in [*whole.entries.values()]):
                whole._leave()

    def _not_worth(self) -> str:
        """Why the part is not to be traced again; empty if it may be."""
        traces = self.stats.traces
        if traces >= MAX_TRACES and 2 * traces > self.stats.calls:
            return "its arrays have other sizes, or its numbers other values, at nearly every call"
        is_enough = traces >= FEW_TRACES or self._seconds > LOOP_SECONDS
        if is_enough and 0 < traces == len(self._numbers) and traces + 1 >= self.stats.calls:
            return "it is traced anew for each whole number, as of a loop, and they are others at every call"
        return ""


@uncounted
class CompiledPart(Inspectable[..., Any]):
    """The pipeline of some statements of a split function, or of a function that these call. It issues no warnings."""

    def __init__(self, state: PartState) -> None:
        super().__init__(state, CompiledPart.of)
        self._part = state

    @classmethod
    def of(cls, whole: FunctionState, function: Any, deeper: int = 0) -> CompiledPart:
        """The pipeline of a part of a function, or of a function that it calls (`deeper` = 1)."""
        state = PartState(function, whole.options.given, whole.spent, whole.depth + deeper, whole)
        state.warnings.told_of_flips = whole.warnings.told_of_flips
        return cls(state)

    def _with_options(self, given: dict[str, Any]) -> Self:
        return type(self)(PartState(self.py_func, given, self._part.spent, self._part.depth))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._part.plain or any(type(x) in (list, tuple, dict) and len(x) > MAX_ITEMS for x in args):
            return self.py_func(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def plain(self) -> str:
        """See `PartState`."""
        return self._part.plain

    @property
    def cell(self) -> types.CellType | None:
        """See `PartState`."""
        return self._part.cell

    @cell.setter
    def cell(self, cell: types.CellType | None) -> None:
        self._part.cell = cell
