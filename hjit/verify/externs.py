"""Error bounds of extern functions, which can only be tried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hjit.trace.tracing.results import Called
from hjit.verify.approx import NUMPYS, OURS, Approx, Array, Columns

PROBES = 2  # calls of an extern function with its arguments moved by their errors
PROBED = 8.0  # times as far as the results of the probes moved, results may be off
PROBED_ROUNDINGS = 64  # and roundings of the largest result


def probed(call: Callable[..., Called], needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
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
        arrays = call(*moved).arrays
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
