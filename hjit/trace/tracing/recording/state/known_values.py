"""Values of stages that were computed while tracing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr

Speculated = tuple[tuple[str, int], bool]  # a line, by file and number, and the outcome of its condition


@dataclass(eq=False, slots=True)
class KnownValues:
    """Values of stages that the trace depends on.

    Attributes:
        decided: values that were decided on; a second decision on one needs no guard.
        assumed: how many conditions were assumed to come out as expected, without evaluation.
        speculated: the outcomes that were speculated on, in order, with their lines.
        constants: stages that are the same at every call, once computed.
    """

    decided: dict[Expr | str, Any] = field(default_factory=dict)
    assumed: int = 0
    speculated: list[Speculated] = field(default_factory=list)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def forget_values(self) -> None:
        """Drop the values; their number stays."""
        self.decided.clear()
        self.constants.clear()
