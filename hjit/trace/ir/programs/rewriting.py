"""Steps of a `Program` with other expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.poly import Indirect, Poly, poly
from hjit.trace.ir.programs.steps import Branch, Define, Loop, Refuse, Step, Update, with_bodies
from hjit.trace.ir.rewriting import map_exprs


def with_exprs(s: Step, change: Callable[[Expr], Expr]) -> Step:
    """A step with other expressions, those of steps inside it, too."""
    match s:
        case Define():
            return Define(map_exprs(s.stage, change))
        case Update():
            d = map_exprs(Stage("", np.dtype(bool), (), None, (s.definition,)), change).updates[0]
            return replace(s, definition=d)
        case Branch() | Refuse():
            s = replace(s, condition=change(s.condition))
        case Loop():
            s = with_loop_exprs(s, change)
    return with_bodies(s, lambda body: tuple(with_exprs(x, change) for x in body))


def with_loop_exprs(s: Loop, change: Callable[[Expr], Expr]) -> Loop:
    """A loop with other expressions for its ends, and for whether it ends."""

    def end(p: Poly) -> Poly:
        return p.substitute(lambda a: poly(Indirect(change(a.expr), a.extent)) if isinstance(a, Indirect) else None)

    return replace(s, begin=end(s.begin), end=end(s.end), until=None if s.until is None else change(s.until))
