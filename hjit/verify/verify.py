"""`verify="first"`: how far a compiled result may be from NumPy's, and whether it is further.

Most operations have NumPy's bits, and so have results on whose way there are no others (`tolerances`). Of other results those elements that
differ are compared with a reference: the kernel's and NumPy's must each be as near to it as the errors of all operations before allow
(`hjit.verify.reference`). Where that would take too long, the elements that differ most stand for all; where it is not known, as in sums of an
extern function, a result is held to roundings of its largest number in the coarsest float that it has been:
``np.exp(a).astype(np.float64)`` of a float32 array is as good as float32.

Where a decision on a rounded value falls the other way, elements may differ by more. They are counted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Expr, Graph, Load, Op, Stage
from hjit.trace.tracing.recorder import GraphBreak
from hjit.verify.forward_error import NUMPYS, OURS, SAME_WAY, Approx
from hjit.verify.reference import Reference, TooMuch

Array = np.ndarray[Any, Any]
log = logging.getLogger("hjit")

# Ufuncs whose compiled result may differ from NumPy's in the last bits
INEXACT = frozenset(
    """exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh power cbrt reordered""".split()
)
# Ufuncs from floats to floats that jump
_JUMPS = frozenset(
    "rint floor ceil trunc sign floor_divide remainder fmod heaviside copysign spacing nextafter".split()
)
_ROUNDINGS = 256  # roundings of the largest number that results may be apart
_FEW = 1e-4  # elements for which a decision may fall the other way where it is not known which
_SAMPLES = (1 << 15, 2048, 128)  # elements that stand for all, where more would take too long


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
        return (
            other
            if not self.eps
            else self
            if not other.eps
            else Tolerance(max(self.eps, other.eps), self.decided or other.decided)
        )


EXACT = Tolerance()
_Make = Callable[
    [Tolerance, str, Callable[[Any], Any]], Any
]  # of a result's tolerance, its stage, and what makes the result of the stage


def rounding(dtype: np.dtype[Any]) -> Tolerance:
    """Of values that have been rounded to a dtype in another way than NumPy's."""
    return Tolerance(float(np.finfo(dtype).eps)) if dtype.kind == "f" else EXACT


def tolerances(graphs: Sequence[Graph], events: Sequence[GraphBreak | None], fast_math: bool) -> dict[str, Tolerance]:
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
                found[event.gives[0]] = needs | rounding(
                    event.product.dtype
                )  # the order of sums depends on how operands lie in memory
                continue
            found.update(
                {n: needs | Tolerance(rounding(dtypes[n]).eps, True) for n in event.gives if needs.eps and n in dtypes}
            )
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
            found = _all(self.expr(a, known) for a in e.args) | self.chosen(
                (x for p in e.polys for x in p.exprs), e.dtype, known
            )
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


@dataclass(frozen=True, slots=True)
class Rounded:
    """How an array of results may differ, element by element.

    Attributes:
        tolerance: where the reference cannot say.
        reference: what elements should be, by their positions in C order; None: it is not known. It may raise `TooMuch`.
        is_guess: has the reference not been derived, but tried out in part, with extern functions?
    """

    tolerance: Tolerance
    reference: Callable[[Array], Approx | None]
    is_guess: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Allowed:
    """How a call may differ from NumPy's.

    Attributes:
        results: put together as the results are; see `difference`.
        written: of the changed arguments, by name.
        is_settled: are all decisions on values that cut the function the same in hjit and in NumPy?
    """

    results: Any
    written: dict[str, Any]
    is_settled: Callable[[], bool]


def allowed_of(
    reference: Reference, decisions: Sequence[str], arranged: Callable[[_Make], tuple[Any, dict[str, Any]]]
) -> Allowed:
    """How a call may differ.

    Args:
        decisions: names of the numbers that the function decides on and that have not NumPy's bits.
        arranged: puts together what is made for each result, and for each changed argument: of its `Tolerance`, its stage, and what makes
            the result of the stage.
    """

    def allowed(tolerance: Tolerance, stage: str, arrange: Callable[[Any], Any]) -> Tolerance | Rounded:
        def at(positions: Array) -> Approx | None:
            shape = reference.shape_of(stage)
            if shape is None:
                return None
            numbers = np.asarray(arrange(np.arange(math.prod(shape)).reshape(shape))).reshape(-1)
            return reference.at(stage, numbers[positions])

        return Rounded(tolerance, at, lambda: reference.has_guessed) if tolerance.eps else EXACT

    def is_settled() -> bool:
        try:
            return all(map(reference.is_settled, decisions))
        except Exception as error:
            log.debug("no reference for a decision: %s: %s", type(error).__name__, error)
            return False

    return Allowed(*arranged(allowed), is_settled)


def is_exact(allowed: Any) -> bool:
    """Must results have NumPy's bits? `allowed`: as in `difference`."""
    if isinstance(allowed, (Tolerance, Rounded)):
        return allowed == EXACT
    return all(map(is_exact, allowed.values() if isinstance(allowed, dict) else allowed))


@dataclass(slots=True)
class Comparison:
    """Of some results with those expected.

    Attributes:
        why: they are not the same; None: they are, as far as they may be.
        is_proof: no rounding explains it; else it is not known how far they may be.
        flipped: elements that differ since a decision on a rounded value fell the other way.
        differing: elements that have not the same bits.
        unbounded: those of them that may be anything, as 0 / 0 of a blank image less its mean.
    """

    why: str | None = None
    is_proof: bool = False
    flipped: int = 0
    unbounded: int = 0
    differing: int = 0

    def compare(self, ours: Any, expected: Any, allowed: Any) -> None:
        if isinstance(expected, (tuple, list, dict)):
            self._containers(ours, expected, allowed)
        elif type(ours) is not type(expected):
            self._differs(f"a {type(ours).__name__} instead of a {type(expected).__name__}")
        elif isinstance(expected, (np.ndarray, np.generic)) or (
            allowed != EXACT and isinstance(expected, (bool, int, float))
        ):
            self._arrays(np.asarray(ours), np.asarray(expected), allowed)
        elif not (ours == expected or (ours != ours and expected != expected)):
            self._differs(f"{ours!r} instead of {expected!r}")

    def _differs(self, why: str, is_proof: bool = True) -> None:
        self.why, self.is_proof = why, is_proof

    def _containers(self, ours: Any, expected: Any, allowed: Any) -> None:
        if type(ours) is not type(expected) or len(ours) != len(expected):
            self._differs(f"a {type(ours).__name__} instead of a {type(expected).__name__}")
            return
        for k in expected if isinstance(expected, dict) else range(len(expected)):
            if isinstance(expected, dict) and k not in ours:
                self._differs(f"no item {k!r}")
            else:
                self.compare(ours[k], expected[k], allowed if isinstance(allowed, (Tolerance, Rounded)) else allowed[k])
            if self.why is not None:
                return

    def _arrays(self, a: Array, b: Array, allowed: Tolerance | Rounded) -> None:
        if a.dtype != b.dtype or a.shape != b.shape:
            self._differs(f"{a.dtype} of shape {a.shape} instead of {b.dtype} of shape {b.shape}")
            return
        differing = np.flatnonzero(~((a == b) | ((a != a) & (b != b))))
        self.differing += differing.size
        if not differing.size:
            return
        x, y = a.reshape(-1)[differing], b.reshape(-1)[differing]
        is_known = True
        if isinstance(allowed, Rounded):
            wrong, is_known = self._rounded(x, y, differing, b, allowed)
        elif allowed.eps:
            wrong, is_known = self._roughly(x, y, b, allowed), False
        else:
            wrong = np.ones(x.shape, bool)
        if wrong.any():
            at = tuple(int(k) for k in np.unravel_index(differing[np.argmax(wrong)], b.shape))
            where = f"[{', '.join(map(str, at))}]" if at else ""
            self._differs(
                f"{np.count_nonzero(wrong)} of {b.size} elements, the first at {where}: {a[at]} instead of {b[at]}",
                is_known,
            )

    def _rounded(self, x: Any, y: Any, positions: Any, b: Any, allowed: Rounded) -> tuple[Any, bool]:
        """Which elements are wrong, and is that sure? What is not wrong, but further apart than roundings leave them, is counted."""
        near: Approx | None = None
        known: Any = None
        samples = [np.arange(len(x))]
        for most in _SAMPLES:
            if most < len(x):
                some = samples[0]
                samples.insert(0, some[_suspicious(x[some], y[some], most)])
        for some in samples:
            try:
                found = allowed.reference(positions[some])
            except TooMuch:
                break  # fewer will do
            except Exception as error:
                log.debug("no reference for a comparison: %s: %s", type(error).__name__, error)
                break
            if found is None:
                break
            near, known = found, some
        if near is None:
            return self._roughly(x, y, b, allowed.tolerance), False
        return self._judged(x, y, b, known, near, allowed.tolerance), not allowed.is_guess()

    def _judged(self, x: Any, y: Any, b: Array, known: Any, near: Approx, tolerance: Tolerance) -> Any:
        """Which elements are wrong, where `known` ones should be `near`, and stand for the others."""
        wrong, unbounded, apart, rest = np.zeros((4, len(x)), bool)
        ours, numpys = x[known], y[known]
        wrong[known] = ~(_within(ours, near, OURS) & _within(numpys, near, NUMPYS))
        unbounded[known] = _unbounded(ours, numpys, near) & ~wrong[known] & ~_near(ours, numpys, b, tolerance)
        apart[known] = ~_close(ours, numpys, near)
        rest[...] = True
        rest[known] = False
        if apart.any():  # those for which others stand may be, too
            apart |= rest & ~_near(x, y, b, tolerance)
        self.flipped += int(np.count_nonzero(apart & ~wrong & ~unbounded))
        self.unbounded += int(np.count_nonzero(unbounded))
        return wrong

    def _roughly(self, x: Any, y: Any, b: Any, allowed: Tolerance) -> Any:
        """Which elements are wrong, where the error of each is not known."""
        far = ~_near(x, y, b, allowed)
        count = int(np.count_nonzero(far))
        if count > (_FEW * b.size if b.dtype.kind != "f" or allowed.decided else 0):
            return far
        self.flipped += count + (0 if b.dtype.kind == "f" else int(np.count_nonzero(~far)))
        return np.zeros(x.shape, bool)


def difference(ours: Any, expected: Any, allowed: Any = EXACT) -> str | None:
    """Why two results are not the same, or None.

    Args:
        allowed: the `Tolerance` of every array and number, or `Rounded`, or containers of them as the results are.
    """
    found = Comparison()
    found.compare(ours, expected, allowed)
    return found.why


def _suspicious(x: Any, y: Any, count: int) -> Any:
    """Of elements that differ some that stand for all: those that differ most, and those that do so for their size."""
    with np.errstate(all="ignore"):
        apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
        apart = np.where(np.isnan(apart), np.inf, apart)
        relative = apart / (np.abs(y.astype(np.float64)) + np.finfo(np.float64).tiny)
        relative = np.where(np.isnan(relative), np.inf, relative)
    half = count // 2
    return np.unique(np.concatenate([np.argpartition(k, len(k) - half)[len(k) - half :] for k in (apart, relative)]))


def _apart(x: Any, y: Any) -> Any:
    """The distance of numbers, with some more digits than they have."""
    wide = np.longdouble if x.dtype.itemsize == 8 else np.float64
    with np.errstate(all="ignore"):
        return np.abs(x.astype(wide) - np.asarray(y).astype(wide))


def _within(x: Any, near: Approx, column: int) -> Any:
    """Which elements are as near to the reference as they should be."""
    v = near.value
    found = (x == v) | ((x != x) & (v != v))
    if near.errors is not None:
        found |= _apart(x, v) <= near.errors[column]
    if near.breaks is not None:
        found |= near.breaks & ~(
            np.isfinite(x) & np.isfinite(v) & np.isfinite(near.errors[column] if near.errors is not None else 0.0)
        )
    return found


def _close(x: Any, y: Any, near: Approx) -> Any:
    """Which elements are as close to each other as roundings alone leave them."""
    return _apart(x, y) <= (0.0 if near.errors is None else near.errors[SAME_WAY])


def _unbounded(x: Any, y: Any, near: Approx) -> Any:
    """Which elements may be anything, or differ in whether they are numbers."""
    found = (
        np.zeros(x.shape, bool) if near.errors is None else ~(np.isfinite(near.errors[0]) & np.isfinite(near.errors[1]))
    )
    return found if near.breaks is None else found | (near.breaks & (np.isfinite(x) != np.isfinite(y)))


def _near(x: Any, y: Any, b: np.ndarray[Any, Any], allowed: Tolerance) -> Any:
    """Which elements, of an array `b`, are as close as roundings of its largest number have them."""
    with np.errstate(all="ignore"):
        if b.dtype.kind == "f":
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.max()) if finite.size else 0.0
            eps = max(allowed.eps, float(np.finfo(b.dtype).eps))
            return np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= _ROUNDINGS * eps * scale)
        if b.dtype.kind in "iu":  # a value at the border of two whole numbers; or counts of them
            most = max(_FEW * float(np.abs(b.astype(np.float64)).max(initial=0.0)), 1.0)
            return np.abs(x.astype(np.float64) - y.astype(np.float64)) <= most
        return np.zeros(x.shape, bool)
