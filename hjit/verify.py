"""`verify="first"`: how far a compiled result may be from NumPy's, and whether it is further.

Most operations have NumPy's bits. Where some on the way to a result have not, its tolerance follows the coarsest float
that an inexact value has been since: ``np.exp(a).astype(np.float64)`` of a float32 array is as good as float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Expr, Graph, Load, Op, Stage
from hjit.trace.tracing.recorder import Event

# Ufuncs whose compiled result may differ from NumPy's in the last bits
INEXACT = frozenset(
    """exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh power cbrt reordered""".split()
)
# Ufuncs from floats to floats that jump
_JUMPS = frozenset("rint floor ceil trunc sign floor_divide remainder fmod heaviside copysign spacing nextafter".split())
_ROUNDINGS = 256  # roundings of the largest number that results may be apart
DOUBTS = 2  # calls whose results differ where roundings could be all that is left of values, as of a blank image less its mean
_FEW = 1e-4  # elements for which a decision on a rounded value may fall the other way


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How a result may differ from NumPy's.

    Attributes:
        eps: of the coarsest float that its inexact values have been; 0: it has NumPy's bits.
        decided: has an inexact value been rounded to a whole number, compared, or been an index? A few elements may then be quite different.
    """

    eps: float = 0.0
    decided: bool = False

    def __or__(self, other: Tolerance) -> Tolerance:
        return other if not self.eps else self if not other.eps else Tolerance(max(self.eps, other.eps), self.decided or other.decided)


EXACT = Tolerance()


def rounding(dtype: np.dtype[Any]) -> Tolerance:
    """Of values that have been rounded to a dtype in another way than NumPy's."""
    return Tolerance(float(np.finfo(dtype).eps)) if dtype.kind == "f" else EXACT


def tolerances(graphs: Sequence[Graph], events: Sequence[Event | None], fast_math: bool) -> dict[str, Tolerance]:
    """For each stage of the segments how it may differ; `events`: what ends each of them."""
    found: dict[str, Tolerance] = {}
    for graph, event in zip(graphs, events, strict=True):
        judge = _Judge(found, fast_math)
        for s in graph.stages:
            judge.stage(s)
        if event is not None and event.call is not None:
            needs = _all(found.get(n, EXACT) for n in event.needs)
            dtypes = {i.name: i.dtype for g in graphs for i in g.inputs}
            if event.product is not None:
                found[event.gives[0]] = needs | rounding(event.product.dtype)  # the order of sums depends on how operands lie in memory
                continue
            found.update({n: needs | Tolerance(rounding(dtypes[n]).eps, True) for n in event.gives if needs.eps and n in dtypes})
    return found


class _Judge:
    """What the stages of a Graph make of the tolerances of what they read."""

    def __init__(self, found: dict[str, Tolerance], fast_math: bool) -> None:
        self.found, self.fast_math = found, fast_math

    def stage(self, s: Stage) -> None:
        own = rounding(s.dtype)
        before: Tolerance | None = None
        now = EXACT
        while now != before:  # updates read what they have made
            before = self.found[s.name] = now
            known: dict[Expr, Tolerance] = {}
            for d in s.definitions:
                value = self.expr(d.value, known) | self.chosen((e for p in d.target for e in p.exprs), s.dtype, known)
                if d.order in ("add", "multiply") or (d.order == "sequential" and d.rdims):
                    value = value | own  # NumPy leaves the order of its sums open
                now = now | (value | own if value.eps else value)

    def chosen(self, indices: Iterable[Expr], dtype: np.dtype[Any], known: dict[Expr, Tolerance]) -> Tolerance:
        """Of an element whose place is computed."""
        found = _all(self.expr(e, known) for e in indices)
        return Tolerance(max(found.eps, rounding(dtype).eps), True) if found.eps else EXACT

    def expr(self, e: Expr, known: dict[Expr, Tolerance]) -> Tolerance:
        found = known.get(e)
        if found is None:
            found = _all(self.expr(a, known) for a in e.args) | self.chosen((x for p in e.polys for x in p.exprs), e.dtype, known)
            if isinstance(e, Load):
                found = found | self.found.get(e.source, EXACT)
            elif isinstance(e, Op) and (self.fast_math or e.name in INEXACT):
                found = found | rounding(e.dtype)
            if found.eps:
                jumps = e.args and (e.dtype.kind != "f" or (isinstance(e, Op) and e.name in _JUMPS))
                found = found | rounding(e.dtype) | (Tolerance(found.eps, True) if jumps else EXACT)
            known[e] = found
        return found


def _all(parts: Iterable[Tolerance]) -> Tolerance:
    found = EXACT
    for t in parts:
        found = found | t
    return found


def is_exact(allowed: Any) -> bool:
    """Must results have NumPy's bits? `allowed`: as in `difference`."""
    parts = allowed.values() if isinstance(allowed, dict) else allowed
    return allowed == EXACT if isinstance(allowed, Tolerance) else all(map(is_exact, parts))


def difference(ours: Any, expected: Any, allowed: Any = EXACT) -> str | None:
    """Why two results are not the same, or None.

    Args:
        allowed: the `Tolerance` of every array and number, or containers of them as the results are.
    """
    if isinstance(expected, (tuple, list, dict)):
        if type(ours) is not type(expected) or len(ours) != len(expected):
            return f"a {type(ours).__name__} instead of a {type(expected).__name__}"
        for k in expected if isinstance(expected, dict) else range(len(expected)):
            if isinstance(expected, dict) and k not in ours:
                return f"no item {k!r}"
            why = difference(ours[k], expected[k], allowed if isinstance(allowed, Tolerance) else allowed[k])
            if why is not None:
                return why
        return None
    if type(ours) is not type(expected):
        return f"a {type(ours).__name__} instead of a {type(expected).__name__}"
    if isinstance(expected, (np.ndarray, np.generic)) or (allowed.eps and isinstance(expected, (bool, int, float))):
        return _array_difference(np.asarray(ours), np.asarray(expected), allowed)
    return None if ours == expected or (ours != ours and expected != expected) else f"{ours!r} instead of {expected!r}"


def _array_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], allowed: Tolerance) -> str | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} of shape {a.shape} instead of {b.dtype} of shape {b.shape}"
    same = (a == b) | ((a != a) & (b != b))
    if np.all(same):
        return None
    if allowed.eps:
        same |= _near(a, b, allowed)
        discrete = b.dtype.kind != "f"
        if np.count_nonzero(~same) <= (_FEW * b.size if discrete or allowed.decided else 0):
            return None
    at = tuple(int(k) for k in np.argwhere(~same)[0])
    where = f"[{', '.join(map(str, at))}]" if at else ""
    return f"{np.count_nonzero(~same)} of {same.size} elements, the first at {where}: {a[at]} instead of {b[at]}"


def _near(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], allowed: Tolerance) -> Any:
    """Where two arrays are as close as rounding has them."""
    with np.errstate(all="ignore"):
        if b.dtype.kind == "f":
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.max()) if finite.size else 0.0
            eps = max(allowed.eps, float(np.finfo(b.dtype).eps))
            return np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= _ROUNDINGS * eps * scale)
        if b.dtype.kind in "iu":  # a value at the border of two whole numbers
            return np.abs(a.astype(np.float64) - b.astype(np.float64)) <= 1
        return np.zeros(b.shape, bool)
