"""The context that extern calls depend on, and their side effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class ExternState:
    """The state of the interpreter around extern calls.

    Attributes:
        contexts: make contexts such as `numpy.errstate` that are active, to be entered again for later calls.
        warning_filters: the active ones.
        is_running: is an extern function running?
        warnings: of extern functions that ran while tracing; they were not shown.
        warns_if: the traced condition under which the next warning is given; None: it always is.
        undo: functions to call if the trace fails, so that it leaves no effects.
    """

    contexts: list[Callable[[], Callable[[], Any]]] = field(default_factory=list)
    warning_filters: list[Any] = field(default_factory=list)
    is_running: bool = False
    warnings: list[Any] = field(default_factory=list)
    warns_if: Any = None
    undo: list[Callable[[], None]] = field(default_factory=list)

    def roll_back(self) -> None:
        """Undo the effects of extern calls: restore random-number streams."""
        while self.undo:
            self.undo[-1]()
            self.undo.pop()
