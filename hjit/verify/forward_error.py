"""Forward error analysis of the operations of a Graph: bounds of the distance of computed values from exact ones.

An `Approx` has a value, computed with few roundings, and bounds of its error in three columns: for a kernel, as hjit
promises; for NumPy; and for the difference of the two as long as every decision on a rounded value (a comparison, a
rounding to a whole number, an index) is the same in both. Where an operation has NumPy's bits and its arguments have no
error, its result has none. See N. Higham, "Accuracy and Stability of Numerical Algorithms" (2002), chapters 1 to 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Op
from hjit.trace.ir.fma import fma
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx, Array, Columns, decided, ulp, wider

ULPS = 5.0  # error of an inexact function: the promised 4, and 1 as the value it is compared with is rounded, too
FAST_ULPS = 4.0  # error of any operation with fast_math, which contracts and uses reciprocals
# Roundings of one element in a sum of hjit: short sums are in their own dtype, long ones in a wider one or compensated
SUM_ROUNDINGS = 96

# Monotone functions, and where they are defined
_MONOTONE: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        "exp exp2 expm1 sinh tanh arcsinh arctan cbrt degrees radians rint floor ceil trunc sign".split(),
        (-np.inf, np.inf),
    ),
    **dict.fromkeys(("sqrt", "log", "log2", "log10"), (0.0, np.inf)),
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), (-1.0, 1.0)),
    "log1p": (-1.0, np.inf),
    "arccosh": (1.0, np.inf),
}
# Where a function is exact in hjit and in NumPy alike
EXACT_AT: dict[str, float] = {
    **dict.fromkeys("exp exp2 expm1 sin cos tan arcsin arctan sinh cosh tanh arcsinh arctanh log1p cbrt".split(), 0.0),
    **dict.fromkeys("log log2 log10".split(), 1.0),
}
_DISCONTINUOUS = frozenset("rint floor ceil trunc sign".split())
COMPARISONS = frozenset("greater greater_equal less less_equal equal not_equal".split())
_PREDICATES = COMPARISONS | frozenset(
    "logical_and logical_or logical_xor logical_not isnan isinf isfinite signbit inside".split()
)
# Operations whose error is at most the sum of their arguments' errors
_NONEXPANSIVE = frozenset("add subtract maximum minimum fmax fmin hypot logaddexp logaddexp2".split())
_ALIAS = {"radians": "deg2rad", "degrees": "rad2deg", "reordered": "positive", "unordered": "positive"}


def evaluate_op(e: Op, args: Sequence[Any]) -> Array:
    """Evaluate an operation in NumPy."""
    with np.errstate(all="ignore"):
        if e.name == "select":
            return np.asarray(np.where(*args).astype(e.dtype))
        if e.name == "inside":
            return np.asarray((args[0] >= 0) & (args[0] < args[1]))
        if e.name == "fma":
            return fma(*args).astype(e.dtype)
        return np.asarray(getattr(np, _ALIAS.get(e.name, e.name))(*args)).astype(e.dtype)


def apply(e: Op, args: Sequence[Approx], inexact: bool, fast: bool) -> Approx:
    """Apply an operation to approximate values.

    Args:
        inexact: may its last bits differ between hjit and NumPy?
        fast: is it computed with fast_math?
    """
    inexact = inexact and e.dtype.kind == "f"
    fast = fast and e.dtype.kind == "f"
    values = [a.value for a in args]
    if not inexact and not fast and all(a.errors is None and a.nonfinite is None for a in args):
        return Approx(evaluate_op(e, values))
    with np.errstate(all="ignore"):
        if e.name == "select":
            return _select(args, e)
        wide = [np.asarray(v, wider(e.args[k].dtype)) for k, v in enumerate(values)]
        value = (
            evaluate_op(Op(e.name, e.args, np.dtype(wider(e.dtype))), wide).astype(e.dtype)
            if inexact
            else evaluate_op(e, values)
        )
        if e.name in _PREDICATES:
            return _predicate(e, args, value)
        if all(a.errors is None for a in args):  # a rounding is all there is
            gap = _rounding(e, wide, value, np.zeros(()), inexact, fast)
            return _with_limits(e.dtype, value, (gap, gap, 2.0 * gap), args, None)
        columns: list[Array] = []
        for k in range(3):
            if k == NUMPYS and all(a.errors is None or a.errors[OURS] is a.errors[NUMPYS] for a in args):
                columns.append(columns[OURS])
                continue
            errors = [np.float64(0) if a.errors is None else a.errors[k] for a in args]
            error = np.asarray(_propagated(e, wide, errors, value, k == SAME_WAY), np.float64)
            if e.dtype.kind == "f":
                error = error + (2.0 if k == SAME_WAY else 1.0) * _rounding(e, wide, value, error, inexact, fast)
            columns.append(error)
        return _with_limits(
            e.dtype, value, (columns[0], columns[1], columns[2]), args, _may_leave_domain(e, wide, args)
        )


def _rounding(e: Op, wide: Sequence[Array], value: Array, error: Array, inexact: bool, fast: bool) -> Any:
    """The error that an operation adds to its arguments'; none if they have none and it has NumPy's bits."""
    gap = ulp(value, error, e.dtype)
    if inexact:
        if e.name in EXACT_AT:
            gap = np.where((wide[0] == EXACT_AT[e.name]) & (error == 0), 0.0, gap)
        return ULPS * gap + _cancellation(e.name, wide, e.dtype)
    if not fast:
        return np.where(error > 0, gap, 0.0)
    largest: Any = np.abs(value)
    for w, x in zip(wide, e.args, strict=True):
        largest = np.fmax(largest, np.abs(w)) if x.dtype.kind == "f" else largest
    return FAST_ULPS * ulp(largest, error, e.dtype)


def _cancellation(name: str, wide: Sequence[Array], dtype: np.dtype[Any]) -> Any:
    """The error by cancellation in the sum at the end of a formula."""
    if name == "fma":  # a product that is rounded, too
        return np.finfo(dtype).eps * np.abs(np.asarray(wide[0] * wide[1], np.float64))
    if not name.startswith("logaddexp"):
        return 0.0
    largest = np.maximum(np.abs(wide[0]), np.abs(wide[1]))
    return ULPS * np.finfo(dtype).eps * np.where(np.isfinite(largest), np.maximum(largest, 1), 1).astype(np.float64)


def _with_limits(
    dtype: np.dtype[Any], value: Array, errors: Columns, args: Sequence[Approx], leaves: Array | None
) -> Approx:
    """The result of an operation, with errors for values that are not finite, may become so, or may wrap around."""
    shape = np.broadcast_shapes(value.shape, *(e.shape for e in errors))
    value = np.broadcast_to(value, shape)
    nonfinite = np.zeros(shape, bool)
    for b in (*(a.nonfinite for a in args), leaves):
        if b is not None:
            nonfinite = nonfinite | b
    if _is_ordinary(dtype, value, errors) and not nonfinite.any():
        return Approx(value, errors)
    if dtype.kind == "f":
        finite = np.isfinite(value)
        given = np.ones(shape, bool)
        for a in args:
            given = given & np.isfinite(a.value)
        rounded = any(a.errors is not None for a in args)
        nonfinite |= (finite & ~np.isfinite(np.abs(value).astype(np.float64) + errors[OURS])) | (
            ~finite & given & rounded
        )
        if dtype.itemsize < 8 or rounded:
            nonfinite |= finite & (
                np.abs(value).astype(wider(dtype)) + np.maximum(errors[OURS], errors[NUMPYS]) > np.finfo(dtype).max
            )
    found: list[Array] = []
    for k, e in enumerate(errors):
        if k == NUMPYS and e is errors[OURS]:
            found.append(found[OURS])
            continue
        e = np.where(np.isnan(e), np.inf, e)
        if dtype.kind == "f":
            e = np.where(finite, e, np.where(nonfinite, np.inf, 0.0))
        elif dtype.kind in "iu":  # it may wrap around
            info, wide = np.iinfo(dtype), value.astype(wider(dtype))
            e = np.where((e > 0) & ((wide - e < info.min) | (wide + e > info.max)), np.inf, e)
        found.append(e)
    return Approx(value, (found[0], found[1], found[2]), nonfinite if nonfinite.any() else None)


def _is_ordinary(dtype: np.dtype[Any], value: Array, errors: Columns) -> bool:
    """Are all values finite and far from overflow? This is the common case, and quick to check."""
    if dtype.kind != "f" or not value.size:
        return False
    most = max(-float(value.min()), float(value.max()))
    error = max(float(e.max(initial=0.0)) for e in errors)
    return most + error < float(np.finfo(dtype).max) / 2  # not where one is no number


def _may_leave_domain(e: Op, wide: Sequence[Array], args: Sequence[Approx]) -> Array | None:
    """Where an argument may be outside a function's domain."""
    if args[0].errors is None:
        return None
    x, most = wide[0], np.maximum(args[0].errors[OURS], args[0].errors[NUMPYS])
    if e.name in _MONOTONE:
        low, high = _MONOTONE[e.name]
        over = ((x - most <= low) & (x + most >= low) & np.isfinite(low)) | (
            (x + most >= high) & (x - most <= high) & np.isfinite(high)
        )
        return np.asarray(over & (most > 0))
    if e.name == "power":
        return np.asarray((x - most <= 0) & (x + most >= 0) & (most > 0))
    return None


def _ends(e: Op, wide: Sequence[Array], errors: Sequence[Any], value: Array) -> Any:
    """The largest change of a function that is monotone in each argument: it is at a corner."""
    low, high = _MONOTONE.get(e.name, (-np.inf, np.inf))
    most: Any = 0.0
    corners = np.array(np.meshgrid(*[(-1.0, 1.0)] * len(wide))).reshape(len(wide), -1).T
    for corner in corners:
        moved = [
            np.clip(w + s * x, low, high) if len(wide) == 1 else w + s * x
            for w, x, s in zip(wide, errors, corner, strict=True)
        ]
        if e.name == "power" and np.any(moved[0] < 0):
            whole = moved[1] == np.trunc(moved[1])
            moved[0] = np.where((moved[0] < 0) & ~whole & (wide[0] >= 0), 0.0, moved[0])
        there = np.asarray(getattr(np, _ALIAS.get(e.name, e.name))(*moved))
        most = np.fmax(most, np.abs(there - value))
    return most


def _power(e: Op, wide: Sequence[Array], errors: Sequence[Any], value: Array) -> Any:
    most = _ends(e, wide, errors, value)
    across = (np.abs(wide[0]) <= errors[0]) & (np.asarray(errors[0]) > 0)
    return np.where(across, np.where(wide[1] > 0, np.fmax(most, np.abs(value)), np.inf), most)


def _quotient(a: Any, b: Any, da: Any, db: Any) -> Any:
    left = np.abs(b) - db
    exact = (np.asarray(da) == 0) & (np.asarray(db) == 0)
    return np.where(exact, 0.0, np.where(left > 0, (da + np.abs(np.asarray(a) / np.asarray(b)) * db) / left, np.inf))


def _propagated(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    """The error of a result near `value` from errors `d` of arguments near `w`, without roundings."""
    name = e.name
    if name in _MONOTONE:
        jumps = name in _DISCONTINUOUS
        return np.float64(0) if jumps and same_way else _ends(e, w, d, value)
    if name in _NONEXPANSIVE:
        return sum(d, np.float64(0)) if name not in ("maximum", "minimum", "fmax", "fmin") else np.maximum(d[0], d[1])
    rule = _RULES.get(name)
    if rule is not None:
        return rule(e, w, d, value, same_way)
    worst: Any = np.float64(0)
    for x in d:
        worst = np.where(np.asarray(x) > 0, np.inf, worst)
    return worst


def _floor_divide(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    if same_way:
        return np.float64(0)
    q = np.asarray(w[0] / w[1])
    error = _quotient(w[0], w[1], d[0], d[1])
    return np.fmax(np.abs(np.floor(q + error) - value), np.abs(np.floor(q - error) - value)) * (np.asarray(error) > 0)


def _remainder(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    q = np.asarray(w[0] / w[1])
    smooth = d[0] + (np.abs(q) + 1) * d[1]
    if same_way:
        return np.where(smooth < np.abs(w[1]), smooth, 0.0)
    error = _quotient(w[0], w[1], d[0], d[1])
    return np.where(np.floor(q + error) == np.floor(q - error), smooth, np.abs(w[1]) + d[1]) * (np.asarray(smooth) > 0)


def _heaviside(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    across = (np.abs(w[0]) <= d[0]) & (np.asarray(d[0]) > 0) & (not same_way)
    return np.where(across, 1.0 + np.abs(w[1]) + d[1], d[1])


def _copysign(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    across = (np.abs(w[1]) <= d[1]) & (np.asarray(d[1]) > 0) & (not same_way)
    return np.where(across, 2 * np.abs(w[0]) + d[0], d[0])


def _arctan2(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    y, x = w
    moved = np.asarray(d[0] + d[1])
    far = np.hypot(x, y)
    smooth = np.where(2 * moved < far, 2 * (np.abs(x) * d[0] + np.abs(y) * d[1]) / (far * far), 2 * np.pi) * (moved > 0)
    across = (np.abs(y) <= d[0]) & (np.asarray(d[0]) > 0) & (x - d[1] <= 0)
    return smooth if same_way else np.where(across, 2 * np.pi, smooth)


def _sin_cos(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    """Sine and cosine: with an argument anywhere in a period the result is arbitrary, which no rounding explains."""
    return np.where(np.asarray(d[0]) < 1, d[0], 0.0) if same_way else np.minimum(d[0], 2.0)


def _tan(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    slope = (1 + np.abs(value).astype(np.float64) ** 2) * d[0]
    return np.where(slope * (1 + np.abs(value)) < 0.1, 2 * slope, np.where(slope > 0, np.inf, 0.0))


def _shift_left(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    return np.where(np.asarray(d[1]) > 0, np.inf, d[0] * 2.0 ** np.clip(w[1], 0, 63))


def _ldexp(e: Op, w: Sequence[Array], d: Sequence[Any], value: Array, same_way: bool) -> Any:
    scale = np.ldexp(1.0, np.clip(w[1], -3000, 3000).astype(np.int64))
    return np.where(np.asarray(d[1]) > 0, np.inf, np.where(np.asarray(d[0]) > 0, d[0] * scale, 0.0))


_Rule = Callable[[Op, Sequence[Array], Sequence[Any], Array, bool], Any]
_RULES: dict[str, _Rule] = {
    "multiply": lambda e, w, d, v, s: np.abs(w[0]) * d[1] + np.abs(w[1]) * d[0] + d[0] * d[1],
    "fma": lambda e, w, d, v, s: np.abs(w[0]) * d[1] + np.abs(w[1]) * d[0] + d[0] * d[1] + d[2],
    "square": lambda e, w, d, v, s: (2 * np.abs(w[0]) + d[0]) * d[0],
    "true_divide": lambda e, w, d, v, s: _quotient(w[0], w[1], d[0], d[1]),
    "reciprocal": lambda e, w, d, v, s: _quotient(1.0, w[0], 0.0, d[0]),
    "power": lambda e, w, d, v, s: _power(e, w, d, v),
    "cosh": lambda e, w, d, v, s: np.cosh(np.abs(w[0]) + d[0]) - np.cosh(w[0]),
    **dict.fromkeys(("sin", "cos"), _sin_cos),
    "tan": _tan,
    "arctan2": _arctan2,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _remainder,
    "heaviside": _heaviside,
    "copysign": _copysign,
    "nextafter": lambda e, w, d, v, s: d[0] + 2 * ulp(w[0], d[0], e.dtype),
    "spacing": lambda e, w, d, v, s: 2 * ulp(w[0], d[0], e.dtype) * (np.asarray(d[0]) > 0),
    "ldexp": _ldexp,
    "left_shift": _shift_left,
    **dict.fromkeys(
        ("negative", "positive", "absolute", "fabs", "reordered", "unordered", "invert"), lambda e, w, d, v, s: d[0]
    ),
}


# -- decisions


def truth(a: Approx) -> tuple[Array, Array]:
    """Where a value may be true, and where it must be true, in hjit or in NumPy."""
    now, doubtful = np.asarray(a.value != 0), a.doubtful
    if doubtful is None:
        return now, now
    if a.errors is not None:
        doubtful = (
            np.abs(a.value) <= np.maximum(a.errors[OURS], a.errors[NUMPYS]) if a.value.dtype.kind != "b" else doubtful
        )
        doubtful = doubtful & ((a.errors[OURS] > 0) | (a.errors[NUMPYS] > 0))
    if a.nonfinite is not None:
        doubtful = doubtful | a.nonfinite
    return now | doubtful, now & ~doubtful


def _predicate(e: Op, args: Sequence[Approx], value: Array) -> Approx:
    if e.name.startswith("logical"):
        mays, musts = zip(*map(truth, args), strict=True)
        match e.name:
            case "logical_not":
                doubtful = mays[0] & ~musts[0]
            case "logical_and":
                doubtful = (mays[0] & mays[1]) & ~(musts[0] & musts[1])
            case "logical_or":
                doubtful = (mays[0] | mays[1]) & ~(musts[0] | musts[1])
            case _:
                doubtful = (mays[0] & ~musts[0]) | (mays[1] & ~musts[1])
        return decided(value, doubtful)
    broken = np.zeros(value.shape, bool)
    for a in args:
        if a.nonfinite is not None:
            broken = broken | a.nonfinite
    if e.name in ("isnan", "isinf", "isfinite"):
        return decided(value, broken)
    most = sum((np.maximum(a.errors[OURS], a.errors[NUMPYS]) for a in args if a.errors is not None), np.float64(0))
    wide = [np.asarray(a.value, wider(a.value.dtype)) for a in args]
    if e.name == "signbit":
        near = np.abs(wide[0]) <= most
    elif e.name == "inside":
        near = (np.abs(wide[0]) <= most + 1) | (np.abs(wide[0] - wide[1]) <= most + 1)
    else:
        near = np.abs(wide[0] - wide[1]) <= most
    return decided(value, (near & (most > 0)) | broken)


def _select(args: Sequence[Approx], e: Op) -> Approx:
    """One of two values; where that is doubtful, the error is their distance."""
    c, a, b = args
    value = evaluate_op(e, [x.value for x in args])
    may, must = truth(c)
    doubtful = may & ~must
    if a.errors is None and b.errors is None and a.nonfinite is None and b.nonfinite is None and not doubtful.any():
        return Approx(value)
    columns = []
    apart = np.abs(np.asarray(a.value, wider(e.dtype)) - np.asarray(b.value, wider(e.dtype))).astype(np.float64)
    apart = np.where(np.isnan(apart), np.inf, apart)
    for k in range(3):
        da, db = (np.float64(0) if x.errors is None else x.errors[k] for x in (a, b))
        error = np.where(c.value, da, db)
        columns.append(error if k == SAME_WAY else np.where(doubtful, apart + np.maximum(da, db), error))
    none = np.zeros(value.shape, bool)
    ba, bb = (none if x.nonfinite is None else x.nonfinite for x in (a, b))
    nonfinite = np.where(c.value, ba, bb) | (doubtful & (ba | bb | ~(np.isfinite(a.value) & np.isfinite(b.value))))
    shape = np.broadcast_shapes(value.shape, nonfinite.shape, *(x.shape for x in columns))
    return Approx(
        np.broadcast_to(value, shape), (columns[0], columns[1], columns[2]), nonfinite if nonfinite.any() else None
    )


def cast(a: Approx, dtype: np.dtype[Any]) -> Approx:
    """``astype``."""
    if a.value.dtype == dtype:
        return a
    with np.errstate(all="ignore"):
        value = np.asarray(a.value).astype(dtype)
        old = a.value.dtype
        if dtype.kind == "b":
            may, must = truth(a)
            return decided(value, may & ~must)
        whole = dtype.kind != "f"
        beyond = None
        if whole and old.kind == "f":  # what a conversion makes of a number out of range is the processor's affair
            info = np.iinfo(dtype)
            beyond = ~((a.value > info.min - 1.0) & (a.value < info.max + 1.0))
            beyond = beyond if beyond.any() else None
        if a.errors is None and a.nonfinite is None and beyond is None:
            return Approx(value)
        if not whole:
            return _cast_to_float(a, value, dtype)
        info = np.iinfo(dtype)
        columns = []
        for k in range(3):
            error = np.zeros(a.value.shape) if a.errors is None or (k == SAME_WAY and old.kind == "f") else a.errors[k]
            w = np.asarray(a.value, wider(old))
            ends = np.trunc(w - error), np.trunc(w + error)
            if old.kind == "f":
                error = np.maximum(ends[1] - np.trunc(w), np.trunc(w) - ends[0]).astype(np.float64)
            columns.append(np.where((error > 0) & ((ends[0] < info.min) | (ends[1] > info.max)), np.inf, error))
        nonfinite = a.nonfinite if beyond is None else beyond if a.nonfinite is None else a.nonfinite | beyond
        if nonfinite is not None:
            columns = [np.where(nonfinite, np.inf, x) if k != SAME_WAY else x for k, x in enumerate(columns)]
        return Approx(value, (columns[0], columns[1], columns[2]))


def _cast_to_float(a: Approx, value: Array, dtype: np.dtype[Any]) -> Approx:
    if a.errors is None:
        return Approx(value, None, a.nonfinite)
    columns = []
    for k in range(3):
        error = a.errors[k]
        narrower = a.value.dtype.kind != "f" or dtype.itemsize < a.value.dtype.itemsize
        columns.append(
            np.where(error > 0, error + (2.0 if k == SAME_WAY else 1.0) * ulp(value, error, dtype), 0.0)
            if narrower
            else error
        )
    return _with_limits(dtype, value, (columns[0], columns[1], columns[2]), [a], None)
