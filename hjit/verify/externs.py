"""Error bounds of extern functions: by a rule if one is known, otherwise by experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hjit.trace.tracing.recording.events import GraphBreak
from hjit.trace.tracing.recording.recorder import OutOfBounds
from hjit.trace.tracing.recording.results import ExternResult
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx, Array, Columns, as_columns, ulp, wider

ExternCall = Callable[..., ExternResult]

ROUNDINGS = 4  # of a result that is between two elements

PROBES = 2  # calls of an extern function with its arguments moved by their errors
PROBED = 8.0  # times as far as the results of the probes moved, results may be off
PROBED_ROUNDINGS = 64  # and roundings of the largest result


def bounds(graph_break: GraphBreak, needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """Error bounds of the results of an extern function whose arguments have errors."""
    assert graph_break.call is not None
    rule: Callable[..., list[Columns | None]] = _RULES.get(graph_break.rule, probed)
    return rule(graph_break.call, needs, results)


def is_guess(graph_break: GraphBreak) -> bool:
    """Were its error bounds found by experiment?"""
    return graph_break.rule not in _RULES


def _monotone(call: ExternCall, needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """Of a function that grows with each argument: it lies between those of the least and the greatest arguments."""
    if any(x.nonfinite is not None and x.nonfinite.any() for x in needs):
        return _unbounded(results)
    found: list[Columns | None] = []
    ends = [call(*(_moved(x, sign) for x in needs)).arrays for sign in (-1.0, 1.0)]
    for r, *both in zip(results, *ends, strict=True):
        wide = [np.asarray(end).astype(wider(r.dtype)) for end in (r, *both)]
        with np.errstate(all="ignore"):
            apart = np.maximum(np.abs(wide[0] - wide[1]), np.abs(wide[2] - wide[0]))
            same = (wide[0] == wide[1]) & (wide[0] == wide[2])
        error = np.where(same | np.isnan(wide[0]), 0.0, np.where(np.isnan(apart), np.inf, apart)).astype(np.float64)
        if r.dtype.kind == "f":
            error = error + ROUNDINGS * np.where(error > 0, ulp(r, error, r.dtype), 0.0)
        found.append((error, error, error if r.dtype.kind == "f" else np.zeros(error.shape)))
    return found


def _moved(x: Approx, sign: float) -> Array:
    """The least or the greatest that an argument may be."""
    if x.errors is None:
        return x.value
    error = np.maximum(np.maximum(x.errors[OURS], x.errors[NUMPYS]), x.errors[SAME_WAY])
    with np.errstate(all="ignore"):
        if x.value.dtype.kind == "f":
            end = (x.value.astype(wider(x.value.dtype)) + sign * error).astype(x.value.dtype)
            moves = (error > 0) & np.isfinite(x.value)
            return np.where(moves, np.nextafter(end, x.value.dtype.type(sign * np.inf)), x.value)
        low, high = (0, 1) if x.value.dtype == bool else (np.iinfo(x.value.dtype).min, np.iinfo(x.value.dtype).max)
        end = np.rint(x.value.astype(np.longdouble) + sign * error)
        return np.where(error > 0, np.clip(end, low, high).astype(x.value.dtype), x.value)


def _unbounded(results: Sequence[Array]) -> list[Columns | None]:
    infinite = [np.full(r.shape, np.inf) for r in results]
    return [(e, e, e) for e in infinite]


def _arranged(call: ExternCall, needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """Of a function that orders elements: those that are close may be in either order, so any may be at a place."""
    found: list[Columns | None] = []
    for r in results:
        finite = r[np.isfinite(r)].astype(np.float64)
        width = float(np.ptp(finite)) if finite.size else 0.0
        error = np.full(r.shape, width if r.size == finite.size else np.inf)
        found.append((error, error, np.zeros(r.shape)))
    return found


def perturbed(call: ExternCall, needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """Error bounds of loops whose roundings are not NumPy's: tried out, as if arguments had been rounded so.

    A recurrence may magnify each rounding as it does errors of what it begins with.
    """
    moved = []
    for x in needs:
        if x.value.dtype.kind == "f":
            with np.errstate(all="ignore"):
                own = np.abs(x.value.astype(np.float64)) * (ROUNDINGS * float(np.finfo(x.value.dtype).eps))
            own = np.where(np.isfinite(own), own, 0.0)
            known = as_columns([own] * 3 if x.errors is None else [np.maximum(e, own) for e in x.errors])
            x = replace(x, errors=known)
        moved.append(x)
    return [
        columns if columns is None or r.dtype.kind != "f" or not r.size else _as_far_as_others(columns)
        for columns, r in zip(probed(call, moved, results), results, strict=True)
    ]


def _as_far_as_others(columns: Columns) -> Columns:
    """Error bounds where an element may move as far as another one did, without the margin of that one."""
    ours = columns[OURS]
    most = np.max(ours, where=np.isfinite(ours), initial=0.0) / PROBED
    return as_columns([np.maximum(column, most) for column in columns])


def probed(call: ExternCall, needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """Error bounds of an extern function's results, tried out: with its arguments moved by their errors at random."""
    random = np.random.default_rng(0)
    spreads = [np.zeros(r.shape) for r in results]
    for _ in range(PROBES):
        moved = []
        for x in needs:
            error = (
                0.0
                if x.errors is None
                else np.minimum(np.maximum(x.errors[OURS], x.errors[NUMPYS]), np.finfo(np.float64).max)
            )
            with np.errstate(all="ignore"):
                moved.append((x.value + random.choice((-1.0, 1.0), x.value.shape) * error).astype(x.value.dtype))
        try:
            arrays = call(*moved).arrays
        except OutOfBounds:  # NumPy refuses the moved ones
            arrays = ()
        for k in range(len(results)):
            r = np.asarray(arrays[k]) if len(arrays) == len(results) else None
            if r is None or r.shape != results[k].shape:  # it may raise, or return something else
                spreads[k][...] = np.inf
                continue
            with np.errstate(all="ignore"):
                apart = np.abs(np.asarray(r, np.float64) - np.asarray(results[k], np.float64))
            spreads[k] = np.fmax(
                spreads[k], np.where(np.isnan(apart) & ~(np.isnan(r) & np.isnan(results[k])), np.inf, apart)
            )
    found: list[Columns | None] = []
    for r, spread in zip(results, spreads, strict=True):
        if r.dtype.kind == "f":
            size = np.abs(np.where(np.isfinite(r), r, 0)).max(initial=0.0)
            error = PROBED * np.maximum(spread, spread.mean() if spread.size else 0.0) + PROBED_ROUNDINGS * float(
                np.finfo(r.dtype).eps
            ) * float(size)
            found.append((error, error, error))
        else:
            error = np.where(spread > 0, np.inf, 0.0)
            found.append((error, error, np.zeros(r.shape)))
    return found


def reordered(needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """Error bounds of results that another library has computed from the same arguments, by sums in another order.

    Either may have computed with the precision of the least precise argument: SciPy transforms each in its own.
    """
    eps = max((float(np.finfo(x.value.dtype).eps) for x in needs if x.value.dtype.kind == "f"), default=0.0)
    found: list[Columns | None] = []
    for r in results:
        if r.dtype.kind != "f":
            found.append(None)
            continue
        size = np.abs(np.where(np.isfinite(r), r, 0)).max(initial=0.0)
        error = np.full(r.shape, PROBED_ROUNDINGS * max(eps, float(np.finfo(r.dtype).eps)) * float(size))
        found.append((error, error, error))
    return found


def larger(a: Columns | None, b: Columns | None) -> Columns | None:
    """The larger of two error bounds, element by element; None: no error."""
    if a is None or b is None:
        return b if a is None else a
    return np.maximum(a[0], b[0]), np.maximum(a[1], b[1]), np.maximum(a[2], b[2])


_RULES: dict[str, Callable[..., list[Columns | None]]] = {"monotone": _monotone, "arrangement": _arranged}
