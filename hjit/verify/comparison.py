"""`verify="first"`: does a compiled result differ from NumPy's by more than rounding explains?

Most operations are bit-identical to NumPy's, and so are results that depend on no others (`hjit.verify.tolerances`).
For the other results, the elements that differ are compared with reference values: the kernel's and NumPy's must each
be as close to the reference as the errors of all preceding operations allow (`hjit.verify.reference`). If that takes
too long, only the elements that differ most are checked. If no bound is known, as for sums of an extern function, the
difference must be within a few roundings of the result's largest number, in the coarsest float type that the value has
had: ``np.exp(a).astype(np.float64)`` of a float32 array is only as accurate as float32.

Where a decision on a rounded value goes the other way, elements may differ by more. They are counted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import raise_if_signalled
from hjit.trace.ir.analysis.tolerances import EXACT, Tolerance
from hjit.trace.tracing.complex_memory import parts_of
from hjit.trace.tracing.objects import fields_of
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx, Array
from hjit.verify.reference import Reference
from hjit.verify.work import WorkLimitExceeded

log = logging.getLogger("hjit")

ROUNDINGS = 256  # roundings of the largest number that results may be apart where their errors are not known
FLIPPED_SHARE = (
    1e-4  # of all elements: those for which a decision may fall the other way where it is not known for which
)
SAMPLES = (1 << 15, 2048, 128)  # elements that stand for all where more would take too long

# Of a result's tolerance, its stage, and what makes the result of the stage
_Make = Callable[[Tolerance, str, Callable[[Any], Any]], Any]


@dataclass(frozen=True, slots=True)
class Rounded:
    """The allowed differences of an array of results, element by element.

    Attributes:
        tolerance: where there is no reference.
        reference: reference values by position in C order; None: not known. It may raise `WorkLimitExceeded`.
        is_guess: were some errors of the reference tried out rather than derived, as for extern functions?
    """

    tolerance: Tolerance
    reference: Callable[[Array], Approx | None]
    is_guess: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed differences of a call from NumPy's.

    Attributes:
        results: in the structure of the results; see `Comparison.compare`.
        written: of the changed arguments, by name.
        is_settled: are all decisions between segments certainly the same in hjit and in NumPy?
    """

    results: Any
    written: dict[str, Any]
    is_settled: Callable[[], bool]


def allowed_of(
    reference: Reference, decisions: Sequence[str], arranged: Callable[[_Make], tuple[Any, dict[str, Any]]]
) -> Allowed:
    """How a call may differ.

    Args:
        decisions: names of the numbers that the function branches on and that do not have NumPy's bits.
        arranged: builds the structure of the results, and of the changed arguments, from a function of each one's
            `Tolerance`, its stage, and what makes the result of the stage.
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
            raise_if_signalled(error)
            log.debug("no reference for a decision: %s: %s", type(error).__name__, error)
            return False

    return Allowed(*arranged(allowed), is_settled)


def is_exact(allowed: Any) -> bool:
    """Must results be bit-identical? `allowed`: as in `Comparison.compare`."""
    if isinstance(allowed, (Tolerance, Rounded)):
        return allowed == EXACT
    parts = fields_of(allowed) or allowed
    return all(map(is_exact, parts.values() if isinstance(parts, dict) else parts))


def _type(x: Any) -> type:
    """The type of a result. NumPy gives that of an `np.memmap` to some new arrays made of it, too."""
    return np.ndarray if type(x) is np.memmap else type(x)


@dataclass(slots=True)
class Comparison:
    """The comparison of results with the expected ones.

    Attributes:
        why: the difference that is not allowed; None: there is none.
        is_proof: does no rounding explain it? Otherwise it is not known how far they may be apart.
        flipped: number of elements that differ because a decision on a rounded value fell the other way.
        differing: number of elements that do not have the same bits.
        unbounded: number of those that may have any value, such as 0 / 0 of a blank image less its mean.
    """

    why: str | None = None
    is_proof: bool = False
    flipped: int = 0
    unbounded: int = 0
    differing: int = 0

    @property
    def is_in_doubt(self) -> bool:
        """Are there differences that roundings do not explain?"""
        return self.why is not None or self.flipped > 0 or self.unbounded > 0

    def compare(self, ours: Any, expected: Any, allowed: Any) -> None:
        """Compare results, up to the first that may not differ as it does.

        Args:
            allowed: the `Tolerance` of every array and number, or `Rounded`, or containers of them like the results.
        """
        if isinstance(expected, (tuple, list, dict)):
            self._containers(ours, expected, allowed)
        elif _type(ours) is not _type(expected):
            self._differs(f"a {type(ours).__name__} instead of a {type(expected).__name__}")
        elif (fields := fields_of(expected)) is not None:
            parts = allowed if isinstance(allowed, (Tolerance, Rounded)) else fields_of(allowed)
            self._containers(fields_of(ours), fields, parts)
        elif isinstance(expected, (np.ndarray, np.generic)) or (
            allowed != EXACT and isinstance(expected, (bool, int, float, complex))
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
        a, b = parts_of(a), parts_of(b)
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
        """Which elements are wrong, and is that certain? Others that roundings alone do not explain are counted."""
        near: Approx | None = None
        known: Any = None
        samples = [np.arange(len(x))]
        for most in SAMPLES:
            if most < len(x):
                some = samples[0]
                samples.insert(0, some[_suspicious(x[some], y[some], most)])
        for some in samples:
            try:
                found = allowed.reference(positions[some])
            except WorkLimitExceeded:
                break  # the fewer before have to do
            except Exception as error:
                raise_if_signalled(error)
                log.debug("no reference for a comparison: %s: %s", type(error).__name__, error)
                break
            if found is None:
                break
            near, known = found, some
        if near is None:
            return self._roughly(x, y, b, allowed.tolerance), False
        return self._judged(x, y, b, known, near, allowed.tolerance), not allowed.is_guess()

    def _judged(self, x: Any, y: Any, b: Array, known: Any, near: Approx, tolerance: Tolerance) -> Any:
        """Which elements are wrong; `near` are the reference values of the `known` ones, which stand for all."""
        wrong, unbounded, apart, rest = np.zeros((4, len(x)), bool)
        ours, numpys = x[known], y[known]
        wrong[known] = ~(_within(ours, near, OURS) & _within(numpys, near, NUMPYS))
        unbounded[known] = _unbounded(ours, numpys, near) & ~wrong[known] & ~_near(ours, numpys, b, tolerance)
        apart[known] = ~_close(ours, numpys, near)
        rest[...] = True
        rest[known] = False
        if apart.any():  # then so may be those that were not checked
            apart |= rest & ~_near(x, y, b, tolerance)
        self.flipped += int(np.count_nonzero(apart & ~wrong & ~unbounded))
        self.unbounded += int(np.count_nonzero(unbounded))
        return wrong

    def _roughly(self, x: Any, y: Any, b: Any, allowed: Tolerance) -> Any:
        """Which elements are wrong where their errors are not known."""
        far = ~_near(x, y, b, allowed)
        count = int(np.count_nonzero(far))
        if count > (FLIPPED_SHARE * b.size if b.dtype.kind != "f" or allowed.decided else 0):
            return far
        self.flipped += count + (0 if b.dtype.kind == "f" else int(np.count_nonzero(~far)))
        return np.zeros(x.shape, bool)


def _suspicious(x: Any, y: Any, count: int) -> Any:
    """A sample of elements that differ: those that differ most, absolutely and relatively."""
    with np.errstate(all="ignore"):
        apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
        apart = np.where(np.isnan(apart), np.inf, apart)
        relative = apart / (np.abs(y.astype(np.float64)) + np.finfo(np.float64).tiny)
        relative = np.where(np.isnan(relative), np.inf, relative)
    half = count // 2
    return np.unique(np.concatenate([np.argpartition(k, len(k) - half)[len(k) - half :] for k in (apart, relative)]))


def _apart(x: Any, y: Any) -> Any:
    """The distance of numbers, computed with more digits than they have."""
    wide = np.longdouble if x.dtype.itemsize == 8 else np.float64
    with np.errstate(all="ignore"):
        return np.abs(x.astype(wide) - np.asarray(y).astype(wide))


def _within(x: Any, near: Approx, column: int) -> Any:
    """The elements that are within the error bounds of the reference."""
    v = near.value
    found = (x == v) | ((x != x) & (v != v))
    if near.errors is not None:
        found |= _apart(x, v) <= near.errors[column]
    if near.nonfinite is not None:
        found |= near.nonfinite & ~(
            np.isfinite(x) & np.isfinite(v) & np.isfinite(near.errors[column] if near.errors is not None else 0.0)
        )
    return found


def _close(x: Any, y: Any, near: Approx) -> Any:
    """Which elements are as close to each other as roundings without flipped decisions leave them."""
    return _apart(x, y) <= (0.0 if near.errors is None else near.errors[SAME_WAY])


def _unbounded(x: Any, y: Any, near: Approx) -> Any:
    """Which elements may have any value, or are finite in only one of the two."""
    found = (
        np.zeros(x.shape, bool) if near.errors is None else ~(np.isfinite(near.errors[0]) & np.isfinite(near.errors[1]))
    )
    return found if near.nonfinite is None else found | (near.nonfinite & (np.isfinite(x) != np.isfinite(y)))


def _near(x: Any, y: Any, b: np.ndarray[Any, Any], allowed: Tolerance) -> Any:
    """Which elements of an array `b` are within some roundings of its largest number."""
    with np.errstate(all="ignore"):
        if b.dtype.kind == "f":
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.max()) if finite.size else 0.0
            eps = max(allowed.eps, float(np.finfo(b.dtype).eps))
            return np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= ROUNDINGS * eps * scale)
        if b.dtype.kind in "iu":  # a value between two whole numbers, or counts of such values
            most = max(FLIPPED_SHARE * float(np.abs(b.astype(np.float64)).max(initial=0.0)), 1.0)
            return np.abs(x.astype(np.float64) - y.astype(np.float64)) <= most
        return np.zeros(x.shape, bool)
